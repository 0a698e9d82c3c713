#!/usr/bin/env python3
# /// script
# requires-python = ">=3.11"
# dependencies = ["jsonschema==4.26.0"]
# ///
"""Writes the JSON Schemas of the messages that `nanobot serve acp` sends, from the schema of the Agent Client Protocol.

Run it after raising the commit below, with `uv run tests/schemas/acp.py`, or with jsonschema in any virtual environment; an
argument names a copy of the protocol's `schema/v1/schema.json` that is used instead. The schemas are stricter in one point:
unknown keys are rejected. The last lines check valid and invalid messages; nothing is written if one of these checks fails.
"""

import json
import pathlib
import sys
import urllib.request

import jsonschema

COMMIT = "b7f0005493b98de32fabee3e9540e2b64da68535"
SOURCE = f"https://raw.githubusercontent.com/agentclientprotocol/agent-client-protocol/{COMMIT}/schema/v1/schema.json"
ROOTS = [
    "InitializeResponse", "NewSessionResponse", "LoadSessionResponse", "ResumeSessionResponse", "SetSessionModeResponse",
    "CloseSessionResponse", "PromptResponse", "SessionNotification", "RequestPermissionRequest",
]
KEPT = ["type", "properties", "items", "required", "enum", "const", "$ref", "oneOf", "anyOf", "allOf", "minimum"]


def tidy(node):
    kept = {}
    for key, value in node.items():
        if key == "properties":
            kept[key] = {name: tidy(each) for name, each in value.items() if name != "_meta"}
        elif key in ("oneOf", "anyOf", "allOf"):
            kept[key] = [tidy(each) for each in value]
        elif key == "items":
            kept[key] = tidy(value)
        elif key in KEPT:
            kept[key] = value
    return kept


def references(node):
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"].removeprefix("#/$defs/")
        for each in node.values():
            yield from references(each)
    elif isinstance(node, list):
        for each in node:
            yield from references(each)


def variants(node):
    """The alternatives that add keys to those of another type."""
    if isinstance(node, dict):
        if "properties" in node and "allOf" in node:
            yield node
        for each in node.values():
            yield from variants(each)
    elif isinstance(node, list):
        for each in node:
            yield from variants(each)


def generate(source):
    defs, found, open_ = source["$defs"], {}, list(ROOTS)
    while open_:
        name = open_.pop()
        if name not in found:
            found[name] = tidy(defs[name])
            open_.extend(references(found[name]))
    extended = set()
    for variant in variants(list(found.values())):
        extended.update(name for part in variant["allOf"] for name in references(part))
        variant["unevaluatedProperties"] = False
    for name, node in found.items():
        is_alone = name not in extended and "oneOf" not in node and "anyOf" not in node
        if node.get("type") == "object" and is_alone:
            node["additionalProperties"] = False
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$defs": found}


def text(schema):
    """JSON with one line per definition, for readable diffs."""
    def compact(value):
        return json.dumps(value, sort_keys=True, separators=(",", ":"))
    defs = ",\n".join(f"  {compact(name)}: {compact(each)}" for name, each in sorted(schema["$defs"].items()))
    return f'{{\n "$schema": {compact(schema["$schema"])},\n "$defs": {{\n{defs}\n }}\n}}\n'


CHUNK = {"sessionUpdate": "agent_message_chunk", "messageId": "m", "content": {"type": "text", "text": "a"}}
GOOD = [
    ("PromptResponse", {"stopReason": "end_turn"}),
    ("SessionNotification", {"sessionId": "s", "update": CHUNK}),
    ("SessionNotification", {"sessionId": "s", "update": {"sessionUpdate": "tool_call_update", "toolCallId": "c", "content": [
        {"type": "diff", "path": "/a", "oldText": None, "newText": "b"}]}}),
]
BAD = [
    ("PromptResponse", {"stopReason": "done"}),
    ("SessionNotification", {"sessionId": "s", "update": CHUNK | {"id": "m"}}),
    ("SessionNotification", {"sessionId": "s", "update": {"sessionUpdate": "tool_call", "toolCallId": "c"}}),
    ("SessionNotification", {"sessionId": "s", "update": {"sessionUpdate": "tool_call_update", "toolCallId": "c", "content": [
        {"type": "diff", "path": "/a"}]}}),
    ("RequestPermissionRequest", {"sessionId": "s", "options": []}),
]


def main():
    if len(sys.argv) > 1:
        source = json.loads(pathlib.Path(sys.argv[1]).read_text())
    else:
        with urllib.request.urlopen(SOURCE) as answer:
            source = json.load(answer)
    schema = generate(source)

    def is_valid(name, value):
        return jsonschema.Draft202012Validator(schema | {"$ref": f"#/$defs/{name}"}).is_valid(value)
    for name, value in GOOD:
        assert is_valid(name, value), (name, value)
    for name, value in BAD:
        assert not is_valid(name, value), (name, value)
    pathlib.Path(__file__).with_name("acp.json").write_text(text(schema))


main()
