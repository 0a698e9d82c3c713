"""Conversations of the client for Python of the Agent Client Protocol with `nanobot serve acp`: an answer in pieces, a change of a file
after a question, a refusal, a cancelled turn, and a conversation that another process goes on with.

    acp_client.py NANOBOT
"""

import asyncio
import http.server
import json
import os
import pathlib
import sys
import tempfile
import threading

import acp
from acp.schema import AllowedOutcome, ClientCapabilities, RequestPermissionResponse


class Model(http.server.BaseHTTPRequestHandler):
    """A model that does what the last message says: `write NAME`, `wait`, or an answer."""

    protocol_version = "HTTP/1.1"
    waits = threading.Event()

    def log_message(self, *_):
        pass

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if "messages" not in body:
            # A question about the model.
            self.send_error(404)
            return
        last = body["messages"][-1]
        text = last["content"] if isinstance(last["content"], str) else json.dumps(last["content"])
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        if last["role"] == "user" and "write " in text:
            name = text.split("write ")[1].split()[0]
            arguments = json.dumps({"path": name, "content": "new\n"})
            call = {"index": 0, "id": "call_" + name, "type": "function", "function": {"name": "write_file", "arguments": arguments}}
            self.event({"tool_calls": [call]}, "tool_calls")
        elif last["role"] == "user" and "wait" in text:
            self.event({"content": "waiting"}, None)
            Model.waits.wait(60)
        else:
            self.event({"content": "Hello "}, None)
            self.event({"content": f"after {sum(each['role'] == 'user' for each in body['messages'])}."}, "stop")

    def event(self, delta, finish):
        choice = {"index": 0, "delta": {"role": "assistant"} | delta, "finish_reason": finish}
        self.wfile.write(f"data: {json.dumps({'choices': [choice]})}\n\n".encode())
        self.wfile.flush()


class Editor(acp.Client):
    def __init__(self):
        self.updates, self.questions, self.answers, self.waiting = [], [], [], asyncio.Event()

    async def request_permission(self, session_id, tool_call, options, **_):
        self.questions.append((tool_call, options))
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=self.answers.pop(0)))

    async def session_update(self, session_id, update, **_):
        self.updates.append(update)
        if "waiting" in str(update):
            self.waiting.set()

    def text(self):
        chunks = [each for each in self.updates if each.session_update == "agent_message_chunk"]
        self.updates = []
        return "".join(each.content.text for each in chunks)


async def converse(program, home, directory):
    environment = {"HOME": home, "PATH": os.environ["PATH"]}
    editor = Editor()
    async with acp.spawn_agent_process(editor, program, "acp", env=environment, cwd=directory) as (agent, _):
        about = await agent.initialize(protocol_version=acp.PROTOCOL_VERSION, client_capabilities=ClientCapabilities())
        assert about.protocol_version == 1 and about.agent_capabilities.load_session, about
        session = await agent.new_session(cwd=directory, mcp_servers=[])
        assert session.modes.current_mode_id == "default", session
        key = session.session_id

        async def prompt(text):
            return (await agent.prompt(session_id=key, prompt=[acp.text_block(text)])).stop_reason

        assert await prompt("hi") == "end_turn"
        assert editor.text() == "Hello after 1."
        editor.answers = ["once", "no"]
        assert await prompt("write a.txt") == "end_turn"
        call, options = editor.questions[0]
        assert call.content[0].new_text == "new\n", call
        assert [each.kind for each in options][0] == "allow_once", options
        assert pathlib.Path(directory, "a.txt").read_text() == "new\n"
        assert any(getattr(each, "status", None) == "completed" for each in editor.updates)
        assert await prompt("write b.txt") == "end_turn"
        assert not pathlib.Path(directory, "b.txt").exists()
        await agent.set_session_mode(session_id=key, mode_id="plan")
        turn = asyncio.create_task(prompt("wait"))
        await asyncio.wait_for(editor.waiting.wait(), 30)
        await agent.cancel(session_id=key)
        assert await asyncio.wait_for(turn, 30) == "cancelled"
    editor = Editor()
    async with acp.spawn_agent_process(editor, program, "acp", env=environment, cwd=directory) as (agent, _):
        await agent.initialize(protocol_version=acp.PROTOCOL_VERSION, client_capabilities=ClientCapabilities())
        await agent.load_session(session_id=key, cwd=directory, mcp_servers=[])
        assert editor.text().startswith("Hello after 1."), editor.updates
        turn = await agent.prompt(session_id=key, prompt=[acp.text_block("and now?")])
        assert turn.stop_reason == "end_turn"


def main():
    program = sys.argv[1]
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as home:
        directory = os.path.join(home, "work")
        os.makedirs(directory)
        os.makedirs(os.path.join(home, ".nanobot"))
        config = {
            "providers": {"custom": {"apiBase": f"http://127.0.0.1:{server.server_port}/v1", "apiKey": "k"}},
            "agents": {"defaults": {"provider": "custom", "model": "m"}},
        }
        with open(os.path.join(home, ".nanobot/config.json"), "w", encoding="utf-8") as file:
            json.dump(config, file)
        asyncio.run(asyncio.wait_for(converse(program, home, directory), 120))
    Model.waits.set()
    print("ok")


main()
