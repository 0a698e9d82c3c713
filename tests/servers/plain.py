"""An MCP server over stdin and stdout that follows a plan.

    python3 plain.py PLAN.json LOG

PLAN has "tools", "resources" and "prompts" as in `tools/list` and the other methods; a tool's "gives" is the result of a
call, and a tool without one returns its arguments; "then" is the tool list after that call; a tool with "waits" never
answers; "runs" is a shell command whose output is the result; "asks" are the parameters of a question to the user
(elicitation), whose answer is the result. A resource's "contents" are what reading it returns, a prompt's "messages" those that it
becomes, with `{NAME}` for an argument; without them a text or the arguments. "templates" are addresses with placeholders. LOG gets a line for each start and each call. "warns" is a text for stderr; with "dies" the server exits at once
with this text there.
"""

import array
import fcntl
import json
import subprocess
import sys
import termios
import time

HIDDEN = ("asks", "contents", "gives", "messages", "runs", "then", "waits")


def warn(text):
    """Writes to stderr, and waits until the client has handled it: it reads a second line only after that."""
    for line in [text, ""]:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
        unread = array.array("i", [1])
        while unread[0]:
            fcntl.ioctl(2, termios.FIONREAD, unread)
            time.sleep(0.001)


def main():
    plan_path, log_path = sys.argv[1:3]
    with open(plan_path, encoding="utf-8") as file:
        plan = json.load(file)

    def log(line):
        with open(log_path, "a", encoding="utf-8") as file:
            file.write(line + "\n")

    log("start")
    if "warns" in plan:
        warn(plan["warns"])
    if "dies" in plan:
        sys.stderr.write(plan["dies"] + "\n")
        return 3
    tools = {tool["name"]: tool for tool in plan.get("tools", [])}

    def offered(tool):
        return {key: value for key, value in tool.items() if key not in HIDDEN}

    def send(message):
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()

    def answer(method, params):
        if method == "initialize":
            kinds = [kind for kind in ("tools", "resources", "prompts") if plan.get(kind)]
            return {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {kind: {"listChanged": True} for kind in kinds},
                "serverInfo": {"name": "plain", "version": "1"},
                **({"instructions": plan["instructions"]} if "instructions" in plan else {}),
            }
        if method == "tools/list":
            return {"tools": [offered(tool) for tool in plan.get("tools", [])]}
        if method == "tools/call":
            log("call " + params["name"])
            tool = tools[params["name"]]
            if "waits" in tool:
                sys.stdin.read()
            text = json.dumps(params.get("arguments", {}), sort_keys=True)
            if "runs" in tool:
                ran = subprocess.run(["sh", "-c", tool["runs"]], capture_output=True, text=True)
                text = ran.stdout + ran.stderr
            if "asks" in tool:
                send({"jsonrpc": "2.0", "id": "ask", "method": "elicitation/create", "params": tool["asks"]})
                text = json.dumps(json.loads(sys.stdin.readline())["result"], sort_keys=True)
            if "then" in tool:
                plan["tools"] = tool["then"]
                tools.update((tool["name"], tool) for tool in plan["tools"])
                send({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
            return tool.get("gives", {"content": [{"type": "text", "text": text}]})
        if method == "resources/list":
            return {"resources": [offered(resource) for resource in plan.get("resources", [])]}
        if method == "resources/templates/list":
            return {"resourceTemplates": plan.get("templates", [])}
        if method == "resources/read" and "resources" in plan and "missing" not in params["uri"]:
            log("read " + params["uri"])
            resource = next((it for it in plan["resources"] if it["uri"] == params["uri"]), {})
            if "waits" in resource:
                sys.stdin.read()
            if "contents" in resource:
                return {"contents": resource["contents"]}
            return {"contents": [{"uri": params["uri"], "text": "what stands there"}]}
        if method == "prompts/list":
            return {"prompts": [offered(prompt) for prompt in plan["prompts"]]}
        if method == "prompts/get":
            log("prompt " + params["name"])
            said = json.dumps(params.get("arguments", {}))
            prompt = next((it for it in plan["prompts"] if it["name"] == params["name"]), {})
            if "messages" in prompt:
                text = json.dumps(prompt["messages"])
                for name, value in params.get("arguments", {}).items():
                    text = text.replace("{" + name + "}", json.dumps(value)[1:-1])
                return {"messages": json.loads(text)}
            return {"messages": [{"role": "user", "content": {"type": "text", "text": said}}]}
        if method == "ping":
            return {}
        return None

    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        reply = {"jsonrpc": "2.0", "id": message["id"]}
        result = answer(message["method"], message.get("params") or {})
        if result is None:
            reply["error"] = {"code": -32601, "message": "no such method"}
        else:
            reply["result"] = result
        send(reply)
    return 0


sys.exit(main())
