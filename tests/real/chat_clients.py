"""Uses a stand-in of tests/cli as slack_sdk, discord.py, mattermostdriver or pywa use the service. Prints `ok`.

    chat_clients.py slack|discord|mattermost|whatsapp PORT

The stand-in has one message of its first user, and sends another when a WebSocket is open. WhatsApp has no WebSocket: the
webhook requests of the stand-in are on standard input, one JSON object in a line, with what the program thought of each.
"""

import asyncio
import json
import sys
import tempfile
import threading
import time


def slack(port):
    from slack_sdk import WebClient
    from slack_sdk.errors import SlackApiError
    from slack_sdk.socket_mode import SocketModeClient
    from slack_sdk.socket_mode.response import SocketModeResponse

    base = f"http://127.0.0.1:{port}/api/"
    client = WebClient(token="xoxb-story", base_url=base)
    assert client.auth_test()["user_id"] == "UBOT"
    channels = client.users_conversations(types="im,public_channel", limit=1)
    ids = [channel["id"] for page in channels for channel in page["channels"]]
    assert ids == ["D1", "C1"], ids
    first = client.conversations_history(channel="C1", limit=10)["messages"][0]
    metadata = {"event_type": "nanobot_part", "event_payload": {"key": "k"}}
    sent = client.chat_postMessage(
        channel="C1", markdown_text="**hi**", thread_ts=first["ts"], metadata=metadata, unfurl_links=False
    )
    thread = client.conversations_replies(channel="C1", ts=first["ts"], include_all_metadata=True)
    assert [one["ts"] for one in thread["messages"]] == [first["ts"], sent["ts"]]
    assert thread["messages"][1]["metadata"] == metadata
    root = client.conversations_history(channel="C1", limit=10)["messages"][0]
    assert root["latest_reply"] == sent["ts"] and root["reply_count"] == 1
    client.reactions_add(channel="C1", timestamp=first["ts"], name="eyes")
    assert client.conversations_open(users="UANN")["channel"]["id"] == "D1"
    uploaded = client.files_upload_v2(channel="C1", content="the report", filename="report.txt", title="report")
    assert uploaded["ok"]
    for arguments, error in [
        (dict(channel="C9", text="x"), "channel_not_found"),
        (dict(channel="C1", markdown_text="x" * 12001), "msg_too_long"),
        (dict(channel="C1", text=""), "no_text"),
    ]:
        try:
            client.chat_postMessage(**arguments)
            raise SystemExit(f"no {error}")
        except SlackApiError as failed:
            assert failed.response["error"] == error, failed
    try:
        WebClient(token="wrong", base_url=base).auth_test()
        raise SystemExit("no invalid_auth")
    except SlackApiError as failed:
        assert failed.response["error"] == "invalid_auth"
    heard = threading.Event()

    def listen(socket, request):
        assert request.type == "events_api", request.type
        assert request.payload["event"]["type"] == "message"
        socket.send_socket_mode_response(SocketModeResponse(envelope_id=request.envelope_id))
        heard.set()

    app = SocketModeClient(app_token="xapp-story", web_client=WebClient(token="xapp-story", base_url=base))
    app.socket_mode_request_listeners.append(listen)
    app.connect()
    assert heard.wait(30), "no event"
    app.close()


def discord(port):
    import discord
    import yarl

    discord.http.Route.BASE = f"http://127.0.0.1:{port}/api/v10"
    discord.gateway.DiscordWebSocket.DEFAULT_GATEWAY = yarl.URL(f"ws://127.0.0.1:{port}/gateway")
    client = discord.Client(intents=discord.Intents(guild_messages=True, dm_messages=True))
    heard = asyncio.Event()

    @client.event
    async def on_message(message):
        if message.author.id != client.user.id:
            heard.set()

    async def run():
        await client.login("discord-token")
        assert client.user.name == "bot"
        channel = await client.create_dm(discord.Object(500000000000000007))
        texts = [message.content async for message in channel.history(after=discord.Object(1), limit=10)]
        assert texts == ["hello"], texts
        async with channel.typing():
            pass
        sent = await channel.send(
            "hi", nonce="n1", allowed_mentions=discord.AllowedMentions.none(), suppress_embeds=True
        )
        again = await client.http.request(
            discord.http.Route("POST", "/channels/{channel_id}/messages", channel_id=channel.id),
            json={"content": "hi", "nonce": "n1", "enforce_nonce": True},
        )
        assert int(again["id"]) == sent.id, "the nonce is known"
        await sent.add_reaction("👀")
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write("the report")
            file.flush()
            with_file = await channel.send("see", file=discord.File(file.name))
        assert with_file.id > sent.id
        answer = await channel.send("yes", reference=sent)
        assert answer.content == "yes"
        try:
            await channel.send("x" * 2001)
            raise SystemExit("no limit")
        except discord.HTTPException as failed:
            assert failed.code == 50035, failed
        task = asyncio.create_task(client.connect(reconnect=False))
        await asyncio.wait_for(heard.wait(), 30)
        await client.close()
        await asyncio.wait([task])

    asyncio.run(run())


def mattermost(port):
    from mattermostdriver import Driver
    from mattermostdriver.exceptions import InvalidOrMissingParameters, NotEnoughPermissions

    driver = Driver(
        {"url": "127.0.0.1", "port": port, "scheme": "http", "token": "mattermost-token", "verify": False}
    )
    driver.login()
    assert driver.users.get_user("me")["username"] == "bot"
    channels = driver.client.make_request("get", "/users/me/channels").json()
    assert [channel["id"] for channel in channels if channel["last_post_at"] > 0] == ["town"]
    page = driver.posts.get_posts_for_channel("town", params={"since": 1})
    root = page["order"][0]
    assert page["posts"][root]["message"] == "hello"
    post = {"channel_id": "town", "message": "hi", "root_id": root, "pending_post_id": "p1"}
    sent = driver.posts.create_post(post)
    assert driver.posts.create_post(post)["id"] == sent["id"], "the pending id is known"
    assert driver.posts.get_thread(root)["order"] == [sent["id"], root]
    file = driver.files.upload_file(channel_id="town", files={"files": ("a.txt", b"the report")})
    file_id = file["file_infos"][0]["id"]
    driver.posts.create_post({"channel_id": "town", "message": "", "file_ids": [file_id]})
    assert driver.channels.create_direct_message_channel(["botid", "annid"])["id"] == "direct"
    driver.reactions.create_reaction({"user_id": "botid", "post_id": root, "emoji_name": "eyes"})
    for wrong, error in [
        ({"channel_id": "town", "message": "x" * 16384}, InvalidOrMissingParameters),
        ({"channel_id": "nowhere", "message": "x"}, NotEnoughPermissions),
    ]:
        try:
            driver.posts.create_post(wrong)
            raise SystemExit("no error")
        except error:
            pass
    heard = []

    async def listen(text):
        event = json.loads(text)
        if event.get("event") == "posted":
            heard.append(json.loads(event["data"]["post"]))

    def run():
        asyncio.set_event_loop(asyncio.new_event_loop())
        driver.init_websocket(listen)

    threading.Thread(target=run, daemon=True).start()
    end = time.monotonic() + 30
    while not heard and time.monotonic() < end:
        time.sleep(0.1)
    assert heard and heard[0]["message"] == "an event", heard


def whatsapp(port):
    from pywa import WhatsApp, errors

    def connect(token):
        client = WhatsApp(
            phone_id="100", token=token, verify_token="v3rify", app_secret="app-secret", skip_duplicate_updates=False
        )
        client.api._session.base_url = f"http://127.0.0.1:{port}/v23.0"
        return client

    client = connect("graph-token")
    heard = []

    @client.on_message()
    def on_message(_, message):
        heard.append((message.id, message.from_user.wa_id, message.text, message.timestamp.timestamp()))

    number = client.get_business_phone_number()
    assert number.display_phone_number == "+49 170 1", number
    sent = client.send_message(to="491701234567", text="*hi*", preview_url=False)
    assert sent.id == "wamid.out1", sent
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("the report")
        file.flush()
        client.send_document(to="491701234567", document=file.name, filename="report.txt")
    assert client.indicate_typing("wamid.1").success
    media = client.get_media_url("m1")
    with tempfile.TemporaryDirectory() as place:
        path = client.download_media(url=media.url, path=place, filename="list.txt")
        assert path.read_text() == "buy milk"
    for wrong, error in [
        (lambda: client.send_message(to="1", text="x"), errors.ReEngagementMessage),
        (lambda: client.send_message(to="491701234567", text="x" * 4097), errors.WhatsAppError),
        (lambda: connect("wrong").send_message(to="491701234567", text="x"), errors.AuthorizationError),
    ]:
        try:
            wrong()
            raise SystemExit("no error")
        except error:
            pass
    assert client.webhook_challenge_handler("v3rify", "1158201444") == ("1158201444", 200)
    for line in sys.stdin:
        request = json.loads(line)
        body = request["body"].encode()
        refusal = client.webhook_update_validator(body, request["signature"])
        assert (refusal is None) == request["accepted"], (request, refusal)
        if refusal is None:
            assert client.webhook_update_handler(body) == ("ok", 200)
    end = time.monotonic() + 30
    while not heard and time.monotonic() < end:
        time.sleep(0.1)
    assert heard == [("wamid.1", "491701234567", "hi", 1767323045.0)], heard


{"slack": slack, "discord": discord, "mattermost": mattermost, "whatsapp": whatsapp}[sys.argv[1]](int(sys.argv[2]))
print("ok", flush=True)
# Threads of clients do not end by themselves.
import os

os._exit(0)
