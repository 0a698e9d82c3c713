#!/usr/bin/env python3
"""A client of IRC for `nanobot channel poll`: irc.py SERVER PORT NICK [CHANNEL...], with TLS on port 6697.

Senders are `nick!user@host`, as the server tells it: a nick alone can be taken by others. A password of the server or of
NickServ is in the variable IRC_PASSWORD. IRC keeps nothing: what is written while no poll runs is not received.
"""

import json
import os
import socket
import ssl
import sys
import threading
import time

server, port, nick, *channels = sys.argv[1:]
# Bytes of text in a line of 512, of which the server adds our own name.
LIMIT = 400
connection = socket.create_connection((server, int(port)), 30)
connection.settimeout(None)
if port == "6697":
    connection = ssl.create_default_context().wrap_socket(connection, server_hostname=server)
lock = threading.Lock()


def command(line):
    with lock:
        connection.sendall(line.encode().translate(None, b"\r\n\0") + b"\r\n")


def tell(**line):
    print(json.dumps(line), flush=True)


def pieces(text):
    for line in text.splitlines():
        line = line.encode()
        while line:
            end = len(line) if len(line) <= LIMIT else line.rfind(b" ", 1, LIMIT)
            end = LIMIT if end < 1 else end
            while end < len(line) and line[end] & 0xC0 == 0x80:
                end -= 1
            yield line[:end].decode()
            line = line[end:].lstrip()


def send_answers():
    for line in sys.stdin:
        message = json.loads(line)
        if message["type"] != "message":
            continue
        if message["files"]:
            tell(type="error", id=message["id"], error="IRC takes no files")
            continue
        for number, piece in enumerate(pieces(message["text"])):
            # Servers disconnect a client that writes faster.
            time.sleep(0 if number < 4 else 2)
            command(f"PRIVMSG {message['chat']} :{piece}")
        # The server answers in order, so it has the lines before this.
        command(f"PING :{message['id']}")
    os._exit(0)


def receive(prefix, target, text):
    is_direct = target.lower() == nick.lower()
    sender = prefix.split("!")[0]
    is_named = text.lower().startswith((nick.lower() + ":", nick.lower() + ","))
    if is_named:
        text = text[len(nick) + 1 :].strip()
    tell(
        id=f"{time.time_ns()}",
        chat=sender if is_direct else target,
        direct=is_direct,
        mention=is_named,
        name=sender,
        text=text,
        at=int(time.time()),
        **{"from": prefix},
    )


if os.environ.get("IRC_PASSWORD"):
    command(f"PASS {os.environ['IRC_PASSWORD']}")
command(f"NICK {nick}")
command(f"USER {nick} 0 * :{nick}")
for line in connection.makefile(encoding="utf-8", errors="replace", newline="\r\n"):
    line = line.rstrip("\r\n")
    prefix, line = line[1:].split(" ", 1) if line.startswith(":") else ("", line)
    head, _, text = line.partition(" :")
    words = head.split()
    match words[0]:
        case "PING":
            command(f"PONG :{text or words[-1]}")
        case "PONG":
            tell(type="ack", id=text or words[-1])
        case "001":
            for channel in channels:
                command(f"JOIN {channel}")
            threading.Thread(target=send_answers, daemon=True).start()
        case "433" | "432":
            sys.exit(f"the nick {nick} is not available: {text}")
        case "464" | "465":
            sys.exit(f"the server refuses us: {text}")
        case "401" | "403" | "404":
            print(f"{words[-1]}: {text}", file=sys.stderr)
        case "ERROR":
            sys.exit(text)
        case "PRIVMSG" if not text.startswith("\1"):
            receive(prefix, words[1], text)
