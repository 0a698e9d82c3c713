#!/usr/bin/env python3
# /// script
# requires-python = ">=3.11"
# dependencies = ["anthropic==2.12.0", "openai==3.54.0", "pydantic==2.14.3", "jsonschema==4.26.0"]
# ///
"""Writes the JSON Schemas of our request bodies, from the types of the vendors' own SDKs.

Run it after raising a version above, with `uv run tests/schemas/make.py`, or with the same packages in any virtual
environment. The schemas are stored in the repository, so that no test needs Python or a network. They are stricter than
the SDKs in one point: unknown keys are rejected, since a typo would be one. A tool's own parameters and the arguments of a
call stay open. The last lines check the schemas with valid and invalid requests; nothing is written if one of these checks
fails.

Constraints that a schema cannot express are not checked: that each result answers a call, or which model accepts which option.
For example, the types of Anthropic's requests have no `temperature` since version 1 of the SDK, though older models accept it.
"""

import copy
import json
import pathlib

import anthropic.types
import jsonschema
import openai.types.chat.completion_create_params
import openai.types.responses.response_create_params
from pydantic import TypeAdapter

WIRES = {
    "anthropic_messages": anthropic.types.message_create_params.MessageCreateParams,
    "openai_chat": openai.types.chat.completion_create_params.CompletionCreateParams,
    "openai_responses": openai.types.responses.response_create_params.ResponseCreateParams,
}

# Parameters of a method that are sent as headers, though the types list them with the others.
HEADERS = ["user_profile_id", "workspace_id"]


def schema(wire):
    raw = TypeAdapter(WIRES[wire]).json_schema()
    defs = {name: tidy(each, raw["$defs"]) for name, each in raw["$defs"].items()}
    plain, streaming = [defs[each["$ref"].removeprefix("#/$defs/")] for each in raw["anyOf"]]
    body = together(plain, streaming)
    for name in HEADERS:
        body["properties"].pop(name, None)
    body["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    body["$defs"] = {name: defs[name] for name in reachable(body, defs)}
    return body


def tidy(node, defs):
    """The schema without descriptions, closed to unknown keys, its unions without redundant members."""
    node = {key: value for key, value in node.items() if key not in ("title", "description", "default")}
    if "properties" in node:
        node["properties"] = {name: tidy(each, defs) for name, each in node["properties"].items()}
        node.setdefault("additionalProperties", False)
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), dict):
            node[key] = tidy(node[key], defs)
    if "prefixItems" in node:
        node["prefixItems"] = [tidy(each, defs) for each in node["prefixItems"]]
    for key in ("anyOf", "oneOf", "allOf"):
        if key in node:
            node[key] = needed([tidy(each, defs) for each in node[key]], defs)
    if len(node.get("anyOf", [])) == 1:
        node |= node.pop("anyOf")[0]
    return node


def needed(members, defs):
    """The members of a union, without those that another one covers."""
    # A name from a list or any other; base64 text or an open file, which would be sent as such text: both are strings.
    if {"type": "string"} in members:
        members = [each for each in members if each.get("type") != "string" or each == {"type": "string"}]
    # The SDK also accepts a block of an answer in place of a block of a request; each has a variant for requests.
    members = [each for each in members if each.get("$ref", "") + "Param" not in (f"#/$defs/{name}" for name in defs)]
    # Any object besides the typed one would let a tool's parameters be a schema for something other than an object.
    if {"$ref": "#/$defs/InputSchemaTyped"} in members:
        members = [each for each in members if "$ref" in each]
    return [each for at, each in enumerate(members) if each not in members[:at]]


def together(plain, streaming):
    """One object for both kinds of request, which only differ in `stream`: a failure then names the invalid part."""
    plain, streaming = copy.deepcopy(plain), copy.deepcopy(streaming)
    for body in (plain, streaming):
        body["properties"]["stream"] = {"type": "boolean"}
        body["required"] = [name for name in body["required"] if name != "stream"] if "required" in body else []
    assert plain == streaming, "the two kinds of request differ in more than `stream`"
    return plain


def reachable(body, defs):
    found, open_ = set(), [body]
    while open_:
        for name in references(open_.pop()):
            if name not in found:
                found.add(name)
                open_.append(defs[name])
    return found


def references(node):
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"].removeprefix("#/$defs/")
        for each in node.values():
            yield from references(each)
    elif isinstance(node, list):
        for each in node:
            yield from references(each)


def text(body):
    """JSON with one line per definition and per field of the body, for readable diffs."""
    def lines(fields, indent):
        inner = [f"{indent}{json.dumps(key)}: {value}" for key, value in sorted(fields.items())]
        return "{\n" + ",\n".join(inner) + "\n" + indent[:-1] + "}"
    def compact(fields):
        return {key: json.dumps(value, sort_keys=True, separators=(",", ":")) for key, value in fields.items()}
    wide = {key: lines(compact(body[key]), "  ") for key in ("$defs", "properties")}
    return lines(compact(body) | wide, " ") + "\n"


TOOL = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"], "additionalProperties": False}
CACHED = {"cache_control": {"type": "ephemeral"}}
PIXEL = "iVBORw0KGgo="

GOOD = {
    "anthropic_messages": {
        "model": "claude-x", "max_tokens": 1024, "stream": True, "stop_sequences": ["END"],
        "system": [{"type": "text", "text": "Be brief."} | CACHED],
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "tools": [{"name": "read", "description": "Read a file.", "input_schema": TOOL} | CACHED],
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
        "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": TOOL}},
        "messages": [
            {"role": "user", "content": "hello"},
            {"role": "user", "content": [
                {"type": "text", "text": "look"} | CACHED,
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}},
                {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
                {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": PIXEL}}]},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "hm", "signature": "abc"},
                {"type": "redacted_thinking", "data": "abc"},
                {"type": "text", "text": "I will read it."},
                {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "a"}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "is_error": False, "content": [
                    {"type": "text", "text": "milk"},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}]} | CACHED,
                {"type": "tool_result", "tool_use_id": "toolu_2", "content": "gone", "is_error": True}]},
        ],
    },
    "openai_chat": {
        "model": "gpt-x", "stream": True, "stream_options": {"include_usage": True}, "max_completion_tokens": 1024,
        "temperature": 0.5, "reasoning_effort": "low", "parallel_tool_calls": True, "tool_choice": "auto",
        "tools": [{"type": "function", "function": {
            "name": "read", "description": "Read a file.", "parameters": TOOL, "strict": True}}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": TOOL, "strict": True}},
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "hello"},
            {"role": "user", "content": [
                {"type": "text", "text": "look"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64," + PIXEL, "detail": "auto"}}]},
            {"role": "assistant", "content": None, "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "read", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "call_1", "content": "milk"},
            {"role": "assistant", "content": "Milk."},
        ],
    },
    "openai_responses": {
        "model": "gpt-x", "stream": True, "store": False, "instructions": "Be brief.", "max_output_tokens": 1024,
        "include": ["reasoning.encrypted_content"], "reasoning": {"effort": "low", "summary": "auto"},
        "parallel_tool_calls": True, "tool_choice": "auto", "prompt_cache_key": "k",
        "tools": [{"type": "function", "name": "read", "description": "Read a file.", "parameters": TOOL, "strict": True}],
        "text": {"format": {"type": "json_schema", "name": "answer", "schema": TOOL, "strict": True}},
        "input": [
            {"role": "user", "content": "hello"},
            {"type": "message", "role": "user", "content": [
                {"type": "input_text", "text": "look"},
                {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64," + PIXEL},
                {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64," + PIXEL}]},
            {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "abc"},
            {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [
                {"type": "output_text", "text": "I will read it.", "annotations": []}]},
            {"type": "function_call", "call_id": "call_1", "name": "read", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "call_1", "output": "milk"},
            {"type": "function_call_output", "call_id": "call_2", "output": [
                {"type": "input_text", "text": "look"},
                {"type": "input_image", "image_url": "data:image/png;base64," + PIXEL}]},
        ],
    },
}

# Changes that make the valid request invalid: the path, and the new value. GONE removes the key.
GONE = object()
BAD = {
    "anthropic_messages": [
        (["colour"], "red"), (["temperature"], 1), (["workspace_id"], "w"), (["max_tokens"], GONE), (["messages"], GONE),
        (["max_tokens"], "1024"), (["stream"], 1),
        (["messages", 0, "role"], "tool"), (["messages", 0, "content"], GONE), (["messages", 0, "name"], "me"),
        (["messages", 1, "content", 0, "txt"], "look"), (["messages", 1, "content", 0, "text"], GONE),
        (["messages", 1, "content", 0, "cache_control"], {"type": "forever"}),
        (["messages", 1, "content", 1, "source", "media_type"], "image/bmp"),
        (["messages", 2, "content", 0, "signature"], GONE), (["messages", 2, "content", 3, "input"], "{}"),
        (["messages", 3, "content", 0, "tool_use_id"], GONE), (["messages", 3, "content", 0, "name"], "read"),
        (["tools", 0, "parameters"], TOOL), (["tools", 0, "input_schema"], {"type": "string"}),
        (["tool_choice"], "auto"), (["thinking"], {"type": "enabled"}), (["system"], {"type": "text", "text": "no list"}),
    ],
    "openai_chat": [
        (["colour"], "red"), (["model"], GONE), (["messages"], GONE), (["stream"], 1), (["reasoning_effort"], "a lot"),
        (["messages", 0, "role"], "bot"), (["messages", 1, "content"], GONE), (["messages", 2, "content", 0, "type"], "input_text"),
        (["messages", 2, "content", 1, "image_url"], "data:"), (["messages", 3, "reasoning_content"], "hm"),
        (["messages", 3, "tool_calls", 0, "function", "arguments"], {}), (["messages", 3, "tool_calls", 0, "id"], GONE),
        (["messages", 3, "tool_calls", 0, "index"], 0), (["messages", 4, "tool_call_id"], GONE), (["messages", 4, "name"], "read"),
        (["tools", 0, "name"], "read"), (["tools", 0, "function", "name"], GONE), (["tool_choice"], "any"),
        (["response_format", "json_schema", "name"], GONE), (["stream_options", "usage"], True),
    ],
    "openai_responses": [
        (["colour"], "red"), (["messages"], []), (["max_tokens"], 1), (["stream"], 1), (["include", 0], "reasoning"),
        (["input", 0, "role"], "tool"), (["input", 0, "content"], GONE), (["input", 1, "content", 0, "type"], "text"),
        (["input", 1, "content", 1, "image_url"], {"url": "data:"}), (["input", 2, "summary"], GONE),
        (["input", 2, "encrypted"], "abc"), (["input", 3, "content", 0, "type"], "input_image"),
        (["input", 4, "arguments"], {}), (["input", 4, "call_id"], GONE), (["input", 4, "tool_call_id"], "call_1"),
        (["input", 5, "output"], GONE), (["input", 5, "content"], "milk"), (["input", 6, "output", 0, "type"], "output_text"),
        (["tools", 0, "function"], {"name": "read"}), (["tools", 0, "name"], GONE), (["tool_choice"], "any"),
        (["text", "format", "json_schema"], TOOL), (["reasoning", "effort"], "a lot"),
    ],
}


def broken(request, path, value):
    request = copy.deepcopy(request)
    place = request
    for step in path[:-1]:
        place = place[step]
    if value is GONE:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return request


def check(wire, body):
    jsonschema.Draft202012Validator.check_schema(body)
    judge = jsonschema.Draft202012Validator(body)
    judge.validate(GOOD[wire])
    judge.validate({**GOOD[wire], "stream": False})
    for path, value in BAD[wire]:
        assert not judge.is_valid(broken(GOOD[wire], path, value)), f"{wire}: passes, though {path} was made wrong"


if __name__ == "__main__":
    bodies = {wire: schema(wire) for wire in WIRES}
    for wire, body in bodies.items():
        check(wire, body)
        assert json.loads(text(body)) == body
    for wire, body in bodies.items():
        path = pathlib.Path(__file__).with_name(f"{wire}.json")
        path.write_text(text(body))
        print(f"{path.name}: {path.stat().st_size} bytes, {len(body['$defs'])} definitions, {len(BAD[wire])} bad requests refused")
