#!/usr/bin/env python3
# /// script
# requires-python = ">=3.11"
# dependencies = ["aiogram==3.31.0", "jsonschema==4.26.0"]
# ///
"""Writes the JSON Schemas of the calls of Telegram's Bot API that the program makes.

Run it after raising the version above, with `uv run tests/schemas/telegram.py`, or with the same packages in any virtual
environment. The schemas are made from the types of aiogram, which are generated from the Bot API's documentation. They are
stricter in three points: unknown and deprecated keys are rejected, and no value is null. Files are left out, since a form
carries them. The last lines check valid and invalid calls; nothing is written if one of these checks fails.
"""

import json
import pathlib
import warnings

import jsonschema
from aiogram import methods
from pydantic.json_schema import GenerateJsonSchema

METHODS = [
    "AnswerCallbackQuery", "EditMessageText", "GetFile", "GetMe", "GetUpdates", "SendAudio", "SendChatAction",
    "SendDocument", "SendMessage", "SendPhoto", "SendVideo", "SendVoice", "SetMessageReaction", "SetMyCommands",
]
# Keys whose types are large, and which the program does not send.
OMITTED = {
    "business_connection_id", "callback_game", "caption_entities", "copy_text", "ephemeral_message_parameters", "entities",
    "login_url", "scope", "suggested_post_parameters", "switch_inline_query_chosen_chat", "thumbnail", "web_app",
}
# The only markup of a reply that the program sends.
BUTTONS = {"$ref": "#/$defs/InlineKeyboardMarkup"}
KEPT = ["type", "properties", "items", "required", "enum", "const", "$ref", "oneOf", "anyOf", "minimum", "maximum"]


class Generator(GenerateJsonSchema):
    def is_instance_schema(self, schema):
        """A file of an upload."""
        return {"type": "string"}


def tidy(node):
    if "anyOf" in node or "oneOf" in node:
        key = "anyOf" if "anyOf" in node else "oneOf"
        kept = [tidy(each) for each in node[key] if each.get("type") != "null"]
        return kept[0] if len(kept) == 1 else {"anyOf": kept}
    node = {key: value for key, value in node.items() if key in KEPT}
    if "properties" in node:
        properties = node["properties"].items()
        node["properties"] = {
            name: BUTTONS if name == "reply_markup" else tidy(each)
            for name, each in properties
            if name not in OMITTED and not each.get("deprecated")
        }
        node["additionalProperties"] = False
    if "required" in node:
        node["required"] = [name for name in node["required"] if name in node["properties"]]
    if "items" in node:
        node["items"] = tidy(node["items"])
    return node


def references(node):
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"].removeprefix("#/$defs/")
        for each in node.values():
            yield from references(each)
    elif isinstance(node, list):
        for each in node:
            yield from references(each)


def file_names(name):
    """The key that holds the file of an upload: the form has it as a part of its own."""
    return {name.removeprefix("Send").lower()} if name.startswith("Send") else set()


def generate():
    defs, found, open_ = {}, {}, []
    kinds = {}
    for name in METHODS:
        schema = getattr(methods, name).model_json_schema(schema_generator=Generator)
        defs |= schema.pop("$defs", {})
        root = tidy(schema)
        for key in file_names(name):
            if name not in ("SendMessage", "SendChatAction"):
                root["properties"].pop(key, None)
                root["required"] = [each for each in root["required"] if each != key]
        method = name[0].lower() + name[1:]
        kinds[method] = root
        open_.extend(references(root))
    while open_:
        name = open_.pop()
        if name not in found:
            found[name] = tidy(defs[name])
            open_.extend(references(found[name]))
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$defs": found | kinds}


def text(schema):
    """JSON with one line per definition, for readable diffs."""
    def compact(value):
        return json.dumps(value, sort_keys=True, separators=(",", ":"))
    defs = ",\n".join(f"  {compact(name)}: {compact(each)}" for name, each in sorted(schema["$defs"].items()))
    return f'{{\n "$schema": {compact(schema["$schema"])},\n "$defs": {{\n{defs}\n }}\n}}\n'


GOOD = [
    ("getUpdates", {"offset": 5, "limit": 100, "timeout": 50, "allowed_updates": ["message"]}),
    ("sendMessage", {"chat_id": -100, "text": "a", "parse_mode": "HTML", "link_preview_options": {"is_disabled": True},
                     "reply_parameters": {"message_id": 4, "allow_sending_without_reply": True}}),
    ("setMyCommands", {"commands": [{"command": "new", "description": "a"}]}),
    ("setMessageReaction", {"chat_id": 1, "message_id": 2, "reaction": [{"type": "emoji", "emoji": "👍"}]}),
    ("sendPhoto", {"chat_id": 1, "caption": "a"}),
    ("sendMessage", {"chat_id": 1, "text": "a", "reply_markup": {"inline_keyboard": [[{"text": "Yes", "callback_data": "yes.7"}]]}}),
    ("editMessageText", {"chat_id": 1, "message_id": 2, "text": "a", "parse_mode": "HTML"}),
    ("answerCallbackQuery", {"callback_query_id": "7"}),
]
BAD = [
    ("getUpdates", {"offset": "5"}),
    ("sendMessage", {"chat_id": 1}),
    ("sendMessage", {"chat_id": 1, "text": "a", "parsemode": "HTML"}),
    ("sendMessage", {"chat_id": 1, "text": "a", "reply_to_message_id": 4}),
    ("sendMessage", {"chat_id": 1, "text": "a", "reply_parameters": {"message": 4}}),
    ("sendMessage", {"chat_id": 1, "text": "a", "message_thread_id": None}),
    ("setMyCommands", {"commands": [{"command": "new"}]}),
    ("setMessageReaction", {"chat_id": 1, "message_id": 2, "reaction": [{"type": "emoij", "emoji": "👍"}]}),
    ("getFile", {}),
    ("sendMessage", {"chat_id": 1, "text": "a", "reply_markup": {"inline_keyboard": [{"text": "Yes", "callback_data": "yes.7"}]}}),
    ("editMessageText", {"chat_id": 1, "message_id": 2, "markup": "a"}),
    ("answerCallbackQuery", {"id": "7"}),
]


def main():
    warnings.simplefilter("ignore")
    schema = generate()
    for calls, is_good in ((GOOD, True), (BAD, False)):
        for method, body in calls:
            judge = jsonschema.Draft202012Validator({"$ref": f"#/$defs/{method}", "$defs": schema["$defs"]})
            assert judge.is_valid(body) == is_good, (method, body, [str(each) for each in judge.iter_errors(body)])
    pathlib.Path(__file__).with_name("telegram.json").write_text(text(schema))


if __name__ == "__main__":
    main()
