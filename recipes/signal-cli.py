#!/usr/bin/env python3
"""Signal for `nanobot channel poll`, by signal-cli: signal-cli.py ACCOUNT, the number of the bot.

Senders are numbers, or UUIDs of those who hide theirs; groups are `group:ID`. signal-cli confirms a message to the server
as it prints it, so that one is lost if the machine fails just then.
"""

import json
import subprocess
import sys
import threading

account = sys.argv[1]
client = subprocess.Popen(
    ["signal-cli", "-o", "json", "-a", account, "jsonRpc"],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    text=True,
)


def tell(**line):
    print(json.dumps(line), flush=True)


def send_answers():
    for line in sys.stdin:
        message = json.loads(line)
        if message["type"] != "message":
            continue
        kind, _, group = message["chat"].partition("group:")
        to = {"groupId": group} if group and not kind else {"recipient": [message["chat"]]}
        params = {**to, "message": message["text"], "attachments": message["files"]}
        request = {"jsonrpc": "2.0", "method": "send", "id": message["id"], "params": params}
        print(json.dumps(request), file=client.stdin, flush=True)
    client.stdin.close()


def receive(envelope):
    message = envelope.get("dataMessage") or {}
    sender = envelope.get("sourceNumber") or envelope.get("sourceUuid")
    folder = message.get("attachments") or []
    if not sender or not (message.get("message") or folder):
        return
    group = (message.get("groupInfo") or {}).get("groupId")
    mentions = [mention.get("number") for mention in message.get("mentions") or []]
    quote = message.get("quote") or {}
    # Signal knows a message by its author and its time.
    replies_to_us = quote and account in (quote.get("author"), quote.get("authorNumber"))
    tell(
        id=f"{sender}.{envelope['timestamp']}",
        chat=f"group:{group}" if group else sender,
        direct=not group,
        mention=account in mentions,
        name=envelope.get("sourceName"),
        text=message.get("message") or "",
        quotes=[quote["text"]] if quote.get("text") and not replies_to_us else [],
        reply_to=str(quote["id"]) if replies_to_us else None,
        files=[file["file"] for file in folder if "file" in file],
        at=envelope["timestamp"] // 1000,
        **{"from": sender},
    )


threading.Thread(target=send_answers, daemon=True).start()
for line in client.stdout:
    answer = json.loads(line)
    if answer.get("method") == "receive":
        receive(answer["params"].get("envelope") or {})
    elif "result" in answer:
        remote = str(answer["result"].get("timestamp"))
        tell(type="ack", id=answer["id"], remote_id=remote)
    elif answer.get("id"):
        error = answer["error"]
        # -3 is a problem of the network, -5 a limit of the server (signal-cli, "Error codes").
        tell(type="error", id=answer["id"], error=error["message"], retry=error["code"] in (-3, -5))
sys.exit(client.wait())
