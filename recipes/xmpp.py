#!/usr/bin/env python3
"""A client of XMPP for `nanobot channel poll`, with slixmpp: xmpp.py ADDRESS [ROOM...]; the password is in XMPP_PASSWORD.

Senders are bare addresses, and in rooms `room@server/nick`. The server keeps direct messages while no poll runs.
XMPP_SERVER may have the host and the port, as `localhost:5222`, and XMPP_CA_FILE the certificate of a server of your own.
"""

import asyncio
import json
import os
import sys
import time

from slixmpp import ClientXMPP

address, *rooms = sys.argv[1:]
nick = address.split("@")[0]
client = ClientXMPP(address, os.environ["XMPP_PASSWORD"])
if os.environ.get("XMPP_CA_FILE"):
    client.ca_certs = os.environ["XMPP_CA_FILE"]
for plugin in ("xep_0045", "xep_0199", "xep_0203"):
    client.register_plugin(plugin)


def tell(**line):
    print(json.dumps(line), flush=True)


def receive(message, is_direct):
    sender, text = message["from"], message["body"]
    is_own = message["mucnick"] == nick if not is_direct else sender.bare == client.boundjid.bare
    is_old = not is_direct and message["delay"]["stamp"]
    if is_own or is_old or not text:
        return
    is_named = text.lower().startswith((nick.lower() + ":", nick.lower() + ","))
    tell(
        id=message["id"] or f"{time.time_ns()}",
        chat=sender.bare,
        direct=is_direct,
        mention=is_named,
        text=text[len(nick) + 1 :].strip() if is_named else text,
        **{"from": sender.bare if is_direct else sender.full},
    )


def on_message(message):
    if message["type"] in ("chat", "normal"):
        receive(message, True)


async def send_answers():
    reader = asyncio.StreamReader(limit=1 << 24)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        message = json.loads(line)
        if message["type"] != "message":
            continue
        if message["files"]:
            tell(type="error", id=message["id"], error="files are not sent")
            continue
        kind = "groupchat" if message["chat"] in rooms else "chat"
        stanza = client.make_message(mto=message["chat"], mbody=message["text"], mtype=kind)
        stanza["id"] = message["id"]
        stanza.send()
        # The answer to a ping comes after the stanza was taken.
        await client["xep_0199"].send_ping(client.boundjid.domain, timeout=20)
        tell(type="ack", id=message["id"])
    await client.disconnect()


async def on_start(_event):
    for room in rooms:
        client["xep_0045"].join_muc(room, nick)
    client.send_presence()
    await client.get_roster()
    client.answers = asyncio.ensure_future(send_answers())


def on_failure(_event):
    print("the server does not accept the password", file=sys.stderr)
    client.disconnect()


client.add_event_handler("session_start", on_start)
client.add_event_handler("message", on_message)
client.add_event_handler("groupchat_message", lambda message: receive(message, False))
client.add_event_handler("failed_auth", on_failure)
host, _, port = os.environ.get("XMPP_SERVER", "").partition(":")
client.connect(*([host, int(port)] if port else []))
client.loop.run_until_complete(client.disconnected)
