"""An MCP server over stdin and stdout whose tool `work` requests replies of the client's model (sampling).

    python3 sampler.py FIFO

The argument `steps` of the tool is a list, carried out one after another:
    {"ask": PARAMS}   sends a request, and waits for the answer
    {"send": PARAMS}  sends a request, and does not wait
    "wait"            waits until something is written to FIFO
    "withdraw"        cancels the last request, and waits for the answer to a ping
    "answer"          answers the call, without the answers that are still to come
    "exit"            exits
`times` repeats the steps. The result has the capabilities of the client, and all answers. With `early`, the server sends a
request before the first call, and its answer is the first one.
"""

import json
import sys

PARAMS = {"messages": [{"role": "user", "content": {"type": "text", "text": "too early"}}], "maxTokens": 10}


class Server:
    def __init__(self, fifo, early):
        self.fifo, self.early = fifo, early
        self.capabilities, self.answers, self.count = {}, {}, 0

    def send(self, message):
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()

    def request(self, method, params):
        self.count += 1
        self.send({"id": f"s{self.count}", "method": method, "params": params})
        return f"s{self.count}"

    def await_answer(self, number):
        while number not in self.answers:
            self.take(json.loads(sys.stdin.readline()))

    def take(self, message):
        number, params = message.get("id"), message.get("params") or {}
        match message.get("method"):
            case None:
                self.answers[number] = message.get("result") or message.get("error")
            case "initialize":
                self.capabilities = params["capabilities"]
                greeting = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}}
                self.send({"id": number, "result": {**greeting, "serverInfo": {"name": "sampler", "version": "1"}}})
            case "tools/list":
                work = {"name": "work", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}
                self.send({"id": number, "result": {"tools": [work]}})
                if self.early:
                    self.request("sampling/createMessage", PARAMS)
            case "tools/call":
                self.call(number, params["arguments"])

    def call(self, number, arguments):
        for step in arguments["steps"] * arguments.get("times", 1):
            match step:
                case "wait":
                    open(self.fifo).read()
                case "withdraw":
                    self.send({"method": "notifications/cancelled", "params": {"requestId": f"s{self.count}"}})
                    self.await_answer(self.request("ping", {}))
                case "answer":
                    break
                case "exit":
                    sys.exit(3)
                case {"ask": params}:
                    self.await_answer(self.request("sampling/createMessage", params))
                case {"send": params}:
                    self.request("sampling/createMessage", params)
        told = {"capabilities": self.capabilities, "answers": list(self.answers.values())}
        self.answers = {}
        self.send({"id": number, "result": {"content": [{"type": "text", "text": json.dumps(told)}]}})

    def serve(self):
        for line in iter(sys.stdin.readline, ""):
            self.take(json.loads(line))


Server(sys.argv[1], "early" in sys.argv[2:]).serve()
