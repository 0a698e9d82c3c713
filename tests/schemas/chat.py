#!/usr/bin/env python3
# /// script
# requires-python = ">=3.11"
# dependencies = ["PyYAML==6.0.3", "jsonschema==4.26.0"]
# ///
"""Writes the JSON Schemas of the calls that the program makes at Discord, Mattermost, Slack and WhatsApp.

Run it after raising the versions below, with `uv run tests/schemas/chat.py`, or with the same packages in any virtual
environment. It downloads the specifications from GitHub; with `--sources DIR` it reads checkouts of the repositories there.
It needs npm, for the types of Slack's client.

A schema describes one call: an object with the parameters of its path and its query, and its JSON `body` or the fields of
its `form`. The schemas are stricter than the specifications in three points: unknown keys are rejected, a body is required
where one is described, and no value is null. Large keys that the program does not send are left out. Where a service
documents a key in its manual only, the key is added below, with its source.

- Discord: its OpenAPI description. It does not describe the gateway.
- Mattermost: its OpenAPI description, from the repository that had it until 2023; it is now part of the server's repository,
  which is too large to fetch for it. It does not describe the WebSocket.
- Slack: the argument types of `@slack/web-api`, Slack's own client. The OpenAPI description is from 2021; it says which
  methods take JSON. `files.getUploadURLExternal`, `files.completeUploadExternal` and `apps.connections.open` are newer: by
  the methods' manual pages, the first takes no JSON, and the others do. The frames of Socket Mode are not described.
- WhatsApp: the OpenAPI description of the Business Messaging API, with the payloads of its webhooks.

The last lines check valid and invalid calls; nothing is written if one of these checks fails.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile
import urllib.request

import jsonschema
import yaml

SOURCES = {
    "discord": ("discord/discord-api-spec", "74fda0fad044407ea280043a03ffc9bc64c4e49e"),
    "mattermost": ("mattermost/mattermost-api-reference", "a00af94dab63e9af3adc4a05e279a84ae73908d8"),
    "slack": ("slackapi/slack-api-specs", "bc08db49625630e3585bf2f1322128ea04f2a7f3"),
    "whatsapp": ("facebook/openapi", "ecba623b4aba6ae770185b074ed77ed5acef22f7"),
}
NODE_PACKAGES = ["@slack/web-api@8.2.0", "ts-json-schema-generator@2.4.0"]

DISCORD_CALLS = [
    "GET /users/@me",
    "GET /users/@me/guilds",
    "POST /users/@me/channels",
    "GET /guilds/{guild_id}/channels",
    "GET /guilds/{guild_id}/threads/active",
    "GET /channels/{channel_id}",
    "GET /channels/{channel_id}/messages",
    "POST /channels/{channel_id}/messages",
    "PATCH /channels/{channel_id}/messages/{message_id}",
    "POST /channels/{channel_id}/typing",
    "PUT /channels/{channel_id}/messages/{message_id}/reactions/{emoji_name}/@me",
    "POST /interactions/{interaction_id}/{interaction_token}/callback",
]
MATTERMOST_CALLS = [
    "GET /api/v4/users/{user_id}",
    "GET /api/v4/users/{user_id}/channels",
    "GET /api/v4/users/username/{username}",
    "POST /api/v4/users/ids",
    "POST /api/v4/users/{user_id}/typing",
    "POST /api/v4/channels/direct",
    "GET /api/v4/channels/{channel_id}/posts",
    "POST /api/v4/posts",
    "PUT /api/v4/posts/{post_id}/patch",
    "GET /api/v4/posts/{post_id}/thread",
    "POST /api/v4/reactions",
    "POST /api/v4/files",
    "GET /api/v4/files/{file_id}",
]
WHATSAPP_CALLS = [
    "GET /{Version}/{Phone-Number-ID}",
    "POST /{Version}/{Phone-Number-ID}/messages",
    "POST /{Version}/{Phone-Number-ID}/media",
    "GET /{Version}/{Media-ID}",
    "POST /whatsapp/webhooks",
]
# The kinds of messages that the program sends, and those that it reads.
WHATSAPP_MESSAGES = ["TextMessage", "ImageMessage", "AudioMessage", "VideoMessage", "DocumentMessage"]
WHATSAPP_INCOMING_MESSAGES = [
    "TextMessage_2", "ImageMessage_1", "AudioMessage_1", "VideoMessage_1", "DocumentMessage_1", "StickerMessage_1",
    "ButtonMessage", "InteractiveMessageReply",
]
# Methods of Slack with the type of their arguments. Those that are read have them in the query, the others in a JSON body.
SLACK_READS = {
    "conversations.history": "ConversationsHistoryArguments",
    "conversations.replies": "ConversationsRepliesArguments",
    "files.getUploadURLExternal": "FilesGetUploadURLExternalArguments",
    "users.conversations": "UsersConversationsArguments",
}
SLACK_WRITES = {
    "apps.connections.open": "AppsConnectionsOpenArguments",
    "auth.test": "AuthTestArguments",
    "chat.postMessage": "ChatPostMessageArguments",
    "chat.update": "ChatUpdateArguments",
    "conversations.open": "ConversationsOpenArguments",
    "files.completeUploadExternal": "FilesCompleteUploadExternalArguments",
    "reactions.add": "ReactionsAddArguments",
    "reactions.remove": "ReactionsRemoveArguments",
}
SLACK_JSON_BY_MANUAL = {"apps.connections.open", "files.completeUploadExternal"}
# Keys that the program does not send, and whose types are large; and the token, which a header has.
OMITTED = {
    "discord": {
        "access_tokens", "attachments", "data", "embeds", "nicks", "poll", "shared_client_theme", "sticker_ids", "tts",
    } | {f"files[{number}]" for number in range(1, 10)},
    "mattermost": set(),
    "slack": {"as_user", "attachments", "confirm", "entities", "icon_emoji", "icon_url", "token", "username"},
    "whatsapp": set(),
}
KEPT = {
    "type", "items", "required", "enum", "const", "pattern", "minimum", "maximum", "maxLength", "minItems", "maxItems",
    "uniqueItems",
}


class Closer:
    """Writes schemas of one source without references and null, and without room for unknown keys."""

    def __init__(self, document, omitted):
        self.document = document
        self.omitted = omitted

    def resolve(self, node):
        while "$ref" in node:
            found = self.document
            for word in node["$ref"].removeprefix("#/").split("/"):
                found = found[word]
            node = found
        return node

    def close(self, node):
        node = self.resolve(node)
        for key in ("oneOf", "anyOf"):
            if key in node:
                return self.alternatives(node[key])
        # A number has its values, and refers to their list.
        if "allOf" in node and node.get("type") != "integer":
            return self.close(self.merge(node["allOf"]))
        closed = {key: value for key, value in node.items() if key in KEPT}
        if isinstance(closed.get("type"), list):
            kinds = [kind for kind in closed["type"] if kind != "null"]
            closed["type"] = kinds[0] if len(kinds) == 1 else kinds
        if "items" in closed:
            closed["items"] = self.close(closed["items"])
        if "properties" in node:
            properties = node["properties"].items()
            closed["properties"] = {name: self.close(each) for name, each in properties if name not in self.omitted}
            closed["type"] = "object"
            closed["additionalProperties"] = False
        return closed

    def alternatives(self, nodes):
        closed = []
        for node in nodes:
            is_sent = not self.omitted & set(self.resolve(node).get("required", []))
            if self.resolve(node).get("type") != "null" and is_sent:
                each = self.close(node)
                if each not in closed:
                    closed.append(each)
        return closed[0] if len(closed) == 1 else {"anyOf": closed}

    def merge(self, nodes):
        merged = {"type": "object", "properties": {}, "required": []}
        for node in nodes:
            node = self.resolve(node)
            if "allOf" in node:
                node = self.merge(node["allOf"])
            merged["properties"] |= node.get("properties", {})
            merged["required"] += [name for name in node.get("required", []) if name not in merged["required"]]
        return merged


def parameters(closer, nodes, place):
    found = [closer.resolve(node) for node in nodes]
    # A parameter of the operation replaces that of the path.
    found = {node["name"]: node for node in found if node["in"] == place}
    schema = {
        "type": "object",
        "properties": {name: closer.close(node["schema"]) for name, node in found.items()},
        "additionalProperties": False,
    }
    required = sorted(name for name, node in found.items() if node.get("required"))
    return schema | ({"required": required} if required else {})


def call(path, query, body=None, form=None):
    """The schema of a call. A call with two kinds of bodies has one of them."""
    properties = {"path": path, "query": query}
    bodies = {name: schema for name, schema in (("body", body), ("form", form)) if schema is not None}
    schema = {"type": "object", "properties": properties | bodies, "additionalProperties": False}
    if len(bodies) == 2:
        return schema | {"required": ["path", "query"], "oneOf": [{"required": [name]} for name in bodies]}
    return schema | {"required": ["path", "query", *bodies]}


def openapi_calls(vendor, document, names):
    closer = Closer(document, OMITTED[vendor])
    schemas = {}
    for name in names:
        method, path = name.split(" ")
        item = document["paths"][path]
        operation = item[method.lower()]
        nodes = [*item.get("parameters", []), *operation.get("parameters", [])]
        content = operation.get("requestBody", {}).get("content", {})
        body, form = content.get("application/json"), content.get("multipart/form-data")
        schemas[name] = call(
            parameters(closer, nodes, "path"),
            parameters(closer, nodes, "query"),
            body and closer.close(body["schema"]),
            form and closer.close(form["schema"]),
        )
    return schemas


def mattermost(read):
    document = {"paths": {}}
    for name in ("channels", "files", "posts", "reactions", "users"):
        document["paths"] |= yaml.safe_load(read(f"v4/source/{name}.yaml"))
    document |= {"components": yaml.safe_load(read("v4/source/definitions.yaml"))["components"]}
    # The description of the call leaves this key out; it is in that of a post.
    post = document["paths"]["/api/v4/posts"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    key = "pending_post_id"
    post["properties"][key] = document["components"]["schemas"]["Post"]["properties"][key]
    return openapi_calls("mattermost", document, MATTERMOST_CALLS)


def whatsapp(read):
    document = yaml.safe_load(read("business-messaging-api_v23.0.yaml"))
    schemas = document["components"]["schemas"]
    # "Typing indicators" of the Cloud API's manual.
    schemas["MarkMessageRequestPayload"]["properties"]["typing_indicator"] = {
        "type": "object", "properties": {"type": {"enum": ["text"]}}, "required": ["type"],
    }
    # The file has the definitions of two sources. Where both have a name, that of the webhooks ends with `_1` or `_2`, and the
    # references to it were left as they are.
    schemas["IncomingMessage"] = {
        "anyOf": [
            {"allOf": [{"$ref": "#/components/schemas/BaseMessageProperties_1"}, *schemas[name]["allOf"][1:]]}
            for name in WHATSAPP_INCOMING_MESSAGES
        ]
    }
    # "Business-scoped user IDs" of the manual: a user may have no number for us, but always has an id.
    user_id = {"type": "string"}
    schemas["ContactProfile"]["properties"]["user_id"] = user_id
    schemas["ContactProfile"]["required"] = ["user_id"]
    incoming, outgoing = schemas["BaseMessageProperties_1"], schemas["BaseMessageProperties"]
    incoming["properties"]["from_user_id"] = user_id
    incoming["required"] = ["from_user_id", "id", "timestamp"]
    outgoing["properties"]["recipient"] = user_id
    outgoing["required"].remove("to")
    # "Messages webhook reference" of the manual: a message has a context if it is an answer or was forwarded.
    context = {
        "type": "object",
        "properties": {
            "from": {"type": "string"}, "id": {"type": "string"}, "forwarded": {"type": "boolean"},
            "frequently_forwarded": {"type": "boolean"},
        },
    }
    schemas["BaseMessageProperties_1"]["properties"]["context"] = context
    schemas["ContextObject"] = {"anyOf": [schemas["ContextObject"], context]}
    # A document has a name in the examples of the file, and in "Document messages" of the manual.
    [_, own] = schemas["DocumentMessage"]["allOf"]
    [by_id, _] = schemas["MediaObject"]["oneOf"]
    name = {"type": "object", "properties": {"filename": {"type": "string"}}}
    own["properties"]["document"] = {"allOf": [by_id, name]}
    # "Document messages webhook reference" of the manual.
    [_, own] = schemas["DocumentMessage_1"]["allOf"]
    own["properties"]["document"]["allOf"].append({"type": "object", "properties": {"caption": {"type": "string"}}})
    paths = document["paths"]
    messages = [f"#/components/schemas/{name}" for name in [*WHATSAPP_MESSAGES, "MarkMessageRequestPayload"]]
    content = paths["/{Version}/{Phone-Number-ID}/messages"]["post"]["requestBody"]["content"]
    content["application/json"]["schema"] = {"anyOf": [{"$ref": name} for name in messages]}
    # "Upload media" of the manual: the media type is required.
    content = paths["/{Version}/{Phone-Number-ID}/media"]["post"]["requestBody"]["content"]
    del content["application/json"]
    form = content["multipart/form-data"]["schema"]
    form["properties"]["type"] = {"type": "string"}
    form["required"] = sorted(form["properties"])
    calls = openapi_calls("whatsapp", document, WHATSAPP_CALLS)
    for message in calls["POST /{Version}/{Phone-Number-ID}/messages"]["properties"]["body"]["anyOf"]:
        if "recipient" in message["properties"]:
            message["oneOf"] = [{"required": ["to"]}, {"required": ["recipient"]}]
    return calls


def members(node, name):
    """All members of this name in a JSON value."""
    if isinstance(node, dict) and name in node:
        yield node[name]
    for each in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from members(each, name)


def slack(read):
    document = json.loads(read("web-api/slack_web_openapi_v2_without_examples.json"))
    for method in SLACK_WRITES.keys() - SLACK_JSON_BY_MANUAL:
        [operation] = document["paths"][f"/{method}"].values()
        assert "application/json" in operation["consumes"], method
    types = SLACK_READS | SLACK_WRITES
    methods = "".join(f"  '{method}': {name};\n" for method, name in types.items())
    source = f"import type {{ {', '.join(types.values())} }} from '@slack/web-api';\n"
    # Of the blocks, the program sends texts and rows of buttons.
    source += "import type { ActionsBlock, Button, MarkdownBlock } from '@slack/types';\n"
    source += "type Blocks = (MarkdownBlock | Omit<ActionsBlock, 'elements'> & { elements: Button[] })[];\n"
    source += f"export interface Methods {{\n{methods}  'blocks': Blocks;\n}}\n"
    with tempfile.TemporaryDirectory() as place:
        (pathlib.Path(place) / "methods.ts").write_text(source)
        run = lambda *command: subprocess.run(command, cwd=place, check=True, stdout=subprocess.PIPE).stdout
        run("npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", *NODE_PACKAGES)
        generate = ["--path", "methods.ts", "--type", "Methods", "--expose", "none", "--no-type-check", "--minify"]
        arguments = json.loads(run("npx", "--no-install", "ts-json-schema-generator", *generate, "--no-top-ref"))
    blocks = arguments["properties"]["blocks"]
    for properties in members(arguments, "properties"):
        if "blocks" in properties:
            properties["blocks"] = blocks
    closer = Closer(arguments, OMITTED["slack"])
    nothing = {"type": "object", "additionalProperties": False}
    schemas = {}
    for method in types:
        schema = closer.close(arguments["properties"][method])
        # A type without members is an object with any.
        schema = schema if schema != {"type": "object"} else nothing
        name = f"{'GET' if method in SLACK_READS else 'POST'} /{method}"
        schemas[name] = call(nothing, schema) if method in SLACK_READS else call(nothing, nothing, schema)
    return schemas


def discord(read):
    document = json.loads(read("specs/openapi.json"))
    # Of the components, the program sends rows of buttons; and it answers a press without a message.
    schemas = document["components"]["schemas"]
    row, button = ({"$ref": f"#/components/schemas/{name}ComponentForMessageRequest"} for name in ("ActionRow", "Button"))
    for name in ("MessageCreateRequest", "MessageEditRequestPartial"):
        schemas[name]["properties"]["components"]["items"] = row
    schemas["ActionRowComponentForMessageRequest"]["properties"]["components"]["items"] = button
    callback = document["paths"]["/interactions/{interaction_id}/{interaction_token}/callback"]["post"]
    content = callback["requestBody"]["content"] = {"application/json": {}}
    content["application/json"]["schema"] = {"$ref": "#/components/schemas/UpdateMessageInteractionCallbackRequest"}
    return openapi_calls("discord", document, DISCORD_CALLS)


def text(schemas):
    """JSON with one line per call, for readable diffs."""
    def compact(value):
        return json.dumps(value, sort_keys=True, separators=(",", ":"))
    lines = ",\n".join(f"  {compact(name)}: {compact(each)}" for name, each in sorted(schemas.items()))
    return f'{{\n "$schema": "https://json-schema.org/draft/2020-12/schema",\n "$defs": {{\n{lines}\n }}\n}}\n'


MESSAGE = {"messaging_product": "whatsapp", "recipient_type": "individual", "to": "49170"}
HISTORY = "GET /channels/{channel_id}/messages"
CREATE = "POST /channels/{channel_id}/messages"
EDIT = "PATCH /channels/{channel_id}/messages/{message_id}"
PRESS = "POST /interactions/{interaction_id}/{interaction_token}/callback"
GRAPH = "POST /{Version}/{Phone-Number-ID}/messages"
WEBHOOK = "POST /whatsapp/webhooks"
NUMBER = {"Version": "v23.0", "Phone-Number-ID": "100"}


BUTTON = {"type": "button", "text": {"type": "plain_text", "text": "Yes"}, "action_id": "yes", "value": "7"}


def webhook(message):
    value = {
        "messaging_product": "whatsapp", "metadata": {"display_phone_number": "49171", "phone_number_id": "100"},
        "contacts": [{"profile": {"name": "Ada"}, "wa_id": "49170", "user_id": "DE.7"}], "messages": [message],
    }
    change = {"field": "messages", "value": value}
    body = {"object": "whatsapp_business_account", "entry": [{"id": "1", "changes": [change]}]}
    return {"path": {}, "query": {}, "body": body}


INCOMING = {"id": "w", "from": "49170", "from_user_id": "DE.7", "timestamp": "1", "type": "text"}
GOOD = {
    "discord": [
        (HISTORY, {"path": {"channel_id": "6"}, "query": {"after": "0", "limit": 100}}),
        (CREATE, {"path": {"channel_id": "6"}, "query": {}, "body": {
            "content": "a", "nonce": "n" * 24, "enforce_nonce": True, "flags": 4,
            "allowed_mentions": {"parse": [], "replied_user": False},
            "message_reference": {"message_id": "7", "fail_if_not_exists": False}}}),
        (CREATE, {"path": {"channel_id": "6"}, "query": {}, "form": {"content": "a", "files[0]": "x"}}),
        ("POST /channels/{channel_id}/typing", {"path": {"channel_id": "6"}, "query": {}}),
        (CREATE, {"path": {"channel_id": "6"}, "query": {}, "body": {"content": "a", "components": [
            {"type": 1, "components": [{"type": 2, "style": 3, "label": "Yes", "custom_id": "yes.7"}]}]}}),
        (EDIT, {"path": {"channel_id": "6", "message_id": "7"}, "query": {}, "body": {"content": "a", "components": []}}),
        (PRESS, {"path": {"interaction_id": "6", "interaction_token": "t"}, "query": {}, "body": {"type": 6}}),
    ],
    "mattermost": [
        ("POST /api/v4/posts", {"path": {}, "query": {}, "body": {
            "channel_id": "c", "message": "a", "pending_post_id": "k", "props": {"key": "k"}, "file_ids": ["f"]}}),
        ("GET /api/v4/channels/{channel_id}/posts", {"path": {"channel_id": "c"}, "query": {"since": 1}}),
        ("POST /api/v4/channels/direct", {"path": {}, "query": {}, "body": ["a", "b"]}),
    ],
    "slack": [
        ("GET /conversations.history", {"path": {}, "query": {"channel": "C", "limit": 9, "oldest": "1.2"}}),
        ("POST /chat.postMessage", {"path": {}, "query": {}, "body": {
            "channel": "C", "markdown_text": "a", "unfurl_links": False, "thread_ts": "1.2",
            "metadata": {"event_type": "t", "event_payload": {"key": "k"}}}}),
        ("POST /auth.test", {"path": {}, "query": {}, "body": {}}),
        ("POST /chat.postMessage", {"path": {}, "query": {}, "body": {"channel": "C", "text": "a", "blocks": [
            {"type": "markdown", "text": "a"}, {"type": "actions", "elements": [BUTTON]}]}}),
        ("POST /chat.update", {"path": {}, "query": {}, "body": {
            "channel": "C", "ts": "1.2", "text": "a", "blocks": [{"type": "markdown", "text": "a"}]}}),
        ("POST /chat.update", {"path": {}, "query": {}, "body": {"channel": "C", "ts": "1.2", "markdown_text": "a"}}),
    ],
    "whatsapp": [
        (GRAPH, {"path": NUMBER, "query": {}, "body": MESSAGE | {
            "type": "text", "text": {"preview_url": False, "body": "a"}}}),
        (GRAPH, {"path": NUMBER, "query": {}, "body": {
            "messaging_product": "whatsapp", "status": "read", "message_id": "w", "typing_indicator": {"type": "text"}}}),
        ("GET /{Version}/{Phone-Number-ID}", {"path": NUMBER, "query": {"fields": "id"}}),
        (GRAPH, {"path": NUMBER, "query": {}, "body": MESSAGE | {
            "type": "document", "document": {"id": "m", "filename": "a.txt"}}}),
        (WEBHOOK, webhook(INCOMING | {"text": {"body": "a"}, "context": {"forwarded": True}})),
    ],
}
BAD = {
    "discord": [
        (HISTORY, {"path": {"channel_id": "6"}, "query": {"after": "0", "limit": 101}}),
        (HISTORY, {"path": {"channel_id": "town"}, "query": {}}),
        (CREATE, {"path": {"channel_id": "6"}, "query": {}}),
        (CREATE, {"path": {"channel_id": "6"}, "query": {}, "body": {"content": "a", "nonce": "n" * 26}}),
        (CREATE, {"path": {"channel_id": "6"}, "query": {}, "body": {"text": "a"}}),
        (CREATE, {"path": {"channel_id": "6"}, "query": {}, "body": {"allowed_mentions": {"parse": ["all"]}}}),
        (CREATE, {"path": {"channel_id": "6"}, "query": {}, "body": {"message_reference": {"message_id": None}}}),
        ("POST /channels/{channel_id}/typing", {"path": {"channel_id": "6"}, "query": {}, "body": {}}),
        (CREATE, {"path": {"channel_id": "6"}, "query": {}, "body": {"content": "a", "components": [{"type": 2, "style": 3}]}}),
        (PRESS, {"path": {"interaction_id": "6", "interaction_token": "t"}, "query": {}, "body": {"type": 5}}),
    ],
    "mattermost": [
        ("POST /api/v4/posts", {"path": {}, "query": {}, "body": {"message": "a"}}),
        ("POST /api/v4/posts", {"path": {}, "query": {}, "body": {"channel_id": "c", "message": "a", "text": "a"}}),
        ("POST /api/v4/channels/direct", {"path": {}, "query": {}, "body": ["a"]}),
        ("GET /api/v4/channels/{channel_id}/posts", {"path": {"channel_id": "c"}, "query": {"since": "a"}}),
    ],
    "slack": [
        ("GET /conversations.history", {"path": {}, "query": {"limit": 9}}),
        ("GET /conversations.history", {"path": {}, "query": {"channel": "C"}, "body": {}}),
        ("POST /chat.postMessage", {"path": {}, "query": {}, "body": {"channel": "C"}}),
        ("POST /chat.postMessage", {"path": {}, "query": {}, "body": {"channel": "C", "markdown_text": "a", "text": "a"}}),
        ("POST /chat.postMessage", {"path": {}, "query": {}, "body": {"channel": "C", "text": "a", "thread_ts": 1.2}}),
        ("POST /reactions.add", {"path": {}, "query": {}, "body": {"channel": "C", "timestamp": "1.2"}}),
        ("POST /chat.postMessage", {"path": {}, "query": {}, "body": {"channel": "C", "text": "a", "blocks": [BUTTON]}}),
        ("POST /chat.update", {"path": {}, "query": {}, "body": {"channel": "C", "text": "a"}}),
    ],
    "whatsapp": [
        (GRAPH, {"path": NUMBER, "query": {}, "body": MESSAGE | {"type": "text"}}),
        (GRAPH, {"path": NUMBER, "query": {}, "body": MESSAGE | {"type": "image", "text": {"body": "a"}}}),
        (GRAPH, {"path": NUMBER, "query": {}, "body": MESSAGE | {"type": "text", "text": {"text": "a"}}}),
        ("GET /{Version}/{Phone-Number-ID}", {"path": {"Version": "v", "Phone-Number-ID": "100"}, "query": {}}),
        (GRAPH, {"path": NUMBER, "query": {}, "body": MESSAGE | {
            "recipient": "DE.7", "type": "text", "text": {"body": "a"}}}),
        (WEBHOOK, webhook({"id": "w", "type": "text", "text": {"body": "a"}})),
        (WEBHOOK, webhook(INCOMING | {"text": {"body": "a"}, "context": {"forwards": True}})),
        (WEBHOOK, webhook(INCOMING | {"text": {"text": "a"}})),
    ],
}


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--sources", type=pathlib.Path, help="a folder with checkouts, named as the repositories")
    place = options.parse_args().sources
    written = {}
    for vendor, generate in (("discord", discord), ("mattermost", mattermost), ("slack", slack), ("whatsapp", whatsapp)):
        repository, commit = SOURCES[vendor]

        def read(path):
            if place:
                return (place / repository.split("/")[1] / path).read_text()
            with urllib.request.urlopen(f"https://raw.githubusercontent.com/{repository}/{commit}/{path}") as file:
                return file.read().decode()

        schemas = generate(read)
        for schema in schemas.values():
            jsonschema.Draft202012Validator.check_schema(schema)
        for calls, is_good in ((GOOD[vendor], True), (BAD[vendor], False)):
            for name, value in calls:
                judge = jsonschema.Draft202012Validator(schemas[name])
                assert judge.is_valid(value) == is_good, (name, value, [str(each) for each in judge.iter_errors(value)])
        written[vendor] = text(schemas)
    for vendor, schema in written.items():
        pathlib.Path(__file__).with_name(f"{vendor}.json").write_text(schema)


if __name__ == "__main__":
    main()
