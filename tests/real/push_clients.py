"""Uses a stand-in of tests/cli as the vendor's client, or the channel of the Python program, uses the service. Prints `ok`.

    push_clients.py dingtalk|feishu|qq|wecom|mochat PORT

The stand-in sends a message `hi` of the user `ann` when a connection is open; the client answers `hello`.
"""

import asyncio
import json
import os
import sys
import threading

name, port = sys.argv[1], int(sys.argv[2])
base = f"http://127.0.0.1:{port}"
APP, SECRET = "app-of-the-story", "secret-of-the-story"


def done():
    print("ok", flush=True)
    # Threads and loops of clients do not end by themselves.
    os._exit(0)


def dingtalk():
    os.environ["DINGTALK_OPENAPI_ENDPOINT"] = base
    import dingtalk_stream
    import requests
    from dingtalk_stream import AckMessage, ChatbotMessage

    class Handler(dingtalk_stream.ChatbotHandler):
        async def process(self, callback):
            message = ChatbotMessage.from_dict(callback.data)
            assert message.text.content.strip() == "hi" and message.sender_staff_id == "ann", message
            assert message.message_type == "text" and message.conversation_type == "1"
            token = self.dingtalk_client.get_access_token()
            assert token, "a token"
            headers = {"x-acs-dingtalk-access-token": token}
            body = {
                "robotCode": APP,
                "userIds": ["ann"],
                "msgKey": "sampleMarkdown",
                "msgParam": json.dumps({"title": "t", "text": "hello"}),
            }
            sent = requests.post(f"{base}/v1.0/robot/oToMessages/batchSend", json=body, headers=headers)
            assert sent.json()["processQueryKey"]
            asyncio.get_event_loop().call_later(1, done)
            return AckMessage.STATUS_OK, "OK"

    credential = dingtalk_stream.Credential(APP, "wrong")
    assert dingtalk_stream.DingTalkStreamClient(credential).open_connection() is None
    client = dingtalk_stream.DingTalkStreamClient(dingtalk_stream.Credential(APP, SECRET))
    client.register_callback_handler(ChatbotMessage.TOPIC, Handler())
    client.start_forever()


def feishu():
    import lark_oapi as lark
    from lark_oapi.api.im.v1 import CreateMessageRequest, CreateMessageRequestBody
    from lark_oapi.api.im.v1 import GetMessageResourceRequest, ReplyMessageRequest, ReplyMessageRequestBody

    client = lark.Client.builder().app_id(APP).app_secret(SECRET).domain(base).build()
    wrong = lark.Client.builder().app_id(APP).app_secret("wrong").domain(base).build()

    def text(value):
        return json.dumps({"text": value})

    def create(by, to, uuid="u1"):
        body = CreateMessageRequestBody.builder().receive_id(to).msg_type("text").content(text("hello")).uuid(uuid)
        request = CreateMessageRequest.builder().receive_id_type("open_id").request_body(body.build()).build()
        return by.im.v1.message.create(request)

    def on_message(data):
        message, sender = data.event.message, data.event.sender
        assert json.loads(message.content) == {"text": "hi"} and message.chat_type == "p2p", message.content
        assert sender.sender_id.open_id == "ann" and message.message_id == "om_m1"
        assert create(client, "ann").success()
        assert create(client, "ann").success(), "the same uuid"
        assert create(client, "unknown").code == 230013
        reply = ReplyMessageRequestBody.builder().msg_type("text").content(text("hello again")).uuid("u2").build()
        request = ReplyMessageRequest.builder().message_id("om_m1").request_body(reply).build()
        assert client.im.v1.message.reply(request).success()
        request = GetMessageResourceRequest.builder().message_id("om_m1").file_key("k").type("file").build()
        assert client.im.v1.message_resource.get(request).file.read() == b"the report"
        threading.Timer(1, done).start()

    try:
        assert not create(wrong, "ann").success()
    except Exception as error:
        assert "10014" in str(error), error
    handler = lark.EventDispatcherHandler.builder("", "").register_p2_im_message_receive_v1(on_message).build()
    lark.ws.Client(APP, SECRET, event_handler=handler, domain=base).start()


def qq():
    import aiohttp
    import botpy
    from botpy.http import Route
    from botpy.robot import Token

    Route.DOMAIN, Route.SCHEME = f"127.0.0.1:{port}", "http"
    post = aiohttp.ClientSession.post

    def redirect(session, url, **arguments):
        # The address of tokens is fixed.
        return post(session, url.replace("https://bots.qq.com", base), **arguments)

    aiohttp.ClientSession.post = redirect

    class Bot(botpy.Client):
        async def on_c2c_message_create(self, message):
            assert message.content == "hi" and message.author.user_openid == "ann", message
            send = dict(openid="ann", msg_type=0, content="hello", msg_id=message.id, msg_seq=7)
            sent = await self.api.post_c2c_message(**send)
            assert sent["id"].startswith("ROBOT"), sent
            try:
                await self.api.post_c2c_message(**send)
                raise SystemExit("a repeated answer is taken")
            except botpy.errors.ServerError as error:
                assert "消息被去重" in str(error), error
            done()

    async def wrong():
        try:
            await Token(APP, "wrong").update_access_token()
            raise SystemExit("a wrong secret is taken")
        except RuntimeError as error:
            assert "invalid appid or secret" in str(error)

    asyncio.new_event_loop().run_until_complete(wrong())
    asyncio.set_event_loop(asyncio.new_event_loop())
    intents = botpy.Intents(public_messages=True, direct_message=True)
    Bot(intents=intents, ext_handlers=False).run(appid=APP, secret=SECRET)


def wecom():
    from wecom_aibot_sdk import WSClient, generate_req_id

    async def run():
        client = WSClient({"bot_id": APP, "secret": SECRET, "ws_url": f"ws://127.0.0.1:{port}"})

        async def on_text(frame):
            assert frame.body["text"]["content"] == "hi" and frame.body["from"]["userid"] == "ann", frame
            answered = await client.reply_stream(frame, generate_req_id("stream"), "hello", finish=True)
            assert answered.errcode == 0
            body = {"msgtype": "markdown", "markdown": {"content": "hello again"}}
            assert (await client.send_message("ann", body)).errcode == 0
            try:
                await client.send_message("unknown", body)
                raise SystemExit("an unknown chat is taken")
            except RuntimeError as error:
                assert "93006" in str(error), error
            done()

        client.on("message.text", on_text)
        await client.connect_async()
        await asyncio.sleep(60)

    asyncio.run(run())


def mochat():
    import tempfile

    os.environ["HOME"] = tempfile.mkdtemp()
    from nanobot.bus.events import OutboundMessage
    from nanobot.bus.queue import MessageBus
    from nanobot.channels import mochat as channel
    from nanobot.config.schema import MochatConfig

    # Requests only, as without the socket's library.
    channel.SOCKETIO_AVAILABLE = False

    async def run():
        bus = MessageBus()
        config = MochatConfig(
            enabled=True, base_url=base, claw_token="claw-of-the-story", agent_user_id="agent1", sessions=["*"],
            panels=["*"], allow_from=["ann"], watch_timeout_ms=500, refresh_interval_ms=1000, reply_delay_ms=500,
        )
        mochat = channel.MochatChannel(config, bus)
        running = asyncio.create_task(mochat.start())
        heard = set()
        while len(heard) < 2:
            message = await asyncio.wait_for(bus.consume_inbound(), 30)
            heard.add((message.chat_id, message.content.split("\n")[-1]))
            await mochat.send(OutboundMessage(channel="mochat", chat_id=message.chat_id, content="hello",
                                              metadata=message.metadata))
        assert {chat for chat, _ in heard} == {"session_1", "panel1"}, heard
        assert running and not running.done()
        done()

    asyncio.run(run())


{"dingtalk": dingtalk, "feishu": feishu, "qq": qq, "wecom": wecom, "mochat": mochat}[name]()
