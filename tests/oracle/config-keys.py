#!/usr/bin/env python3
"""What two releases of the Python program make of each key of our config, for tests/cli/config_files.rs.

    cargo build && python3 tests/oracle/config-keys.py target/debug/nanobot

Each release reads a config with the key alone, and saves it. The outcome, in config-keys.json, is `kept` if some value of
the key is saved again, `refused` if the release reads no file with the key, and `dropped` otherwise. The releases are
fetched from PyPI.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

RELEASES = ["nanobot-ai==0.1.4.post3", "nanobot-ai==0.3.5"]

# Values of texts and of free-form keys, of which each key accepts at least one.
TEXTS = ["text", "default", "auto", "none", "de", "UTC", "fixed", "oauth", "sse", "standard", "never", "manual",
         "chat_completions", "thinking_type", "openai", "duckduckgo", "mention", "open", "websocket"]
FREE_FORM = [{"a": "b"}, {"a": {"model": "m"}}, {"enabled": True}, ["a"], [{"model": "m", "provider": "openai"}]]

ROUND_TRIP = '''
import contextlib, io, json, pathlib, sys, tempfile
from nanobot.config import loader

def outcome(path, value):
    config = value
    for name in reversed(path):
        config = {name: config}
    with tempfile.TemporaryDirectory() as directory:
        return round_trip(path, config, pathlib.Path(directory))

def round_trip(path, config, directory):
    (directory / "in.json").write_text(json.dumps(config))
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            loaded = loader.load_config(directory / "in.json")
    except Exception:
        return "refused"
    if "Failed to load config" in printed.getvalue():
        return "refused"
    loader.save_config(loaded, directory / "out.json")
    saved = json.loads((directory / "out.json").read_text())
    for name in path:
        saved = saved.get(name) if isinstance(saved, dict) else None
    return "dropped" if saved is None else "kept"

def best(path, values):
    found = {outcome(path, value) for value in values}
    return next(word for word in ("kept", "dropped", "refused") if word in found)

json.dump([best(path, values) for path, values in json.load(sys.stdin)], sys.stdout)
'''


def leaves(schema, path=()):
    """The paths of the keys, and their schemas."""
    properties = dict(schema.get("properties", {}))
    if "default" not in schema and isinstance(schema.get("additionalProperties"), dict):
        properties["*"] = schema["additionalProperties"]
    if not properties or "default" in schema:
        yield path, schema
        return
    for name, below in properties.items():
        yield from leaves(below, path + (name,))


def values(schema):
    """Values that the key accepts, by its schema."""
    forms = [schema] + schema.get("anyOf", [])
    enum = [word for form in forms for word in form.get("enum", []) if word is not None]
    if enum:
        return enum
    types = {name for form in forms for name in [form.get("type")] for name in ([name] if isinstance(name, str) else name or [])}
    numbers = [form for form in forms if "minimum" in form] or [{}]
    number = max(1, numbers[0].get("minimum", 1))
    return ([True] if "boolean" in types else []) + ([number, 40] if types & {"integer", "number"} else []) + (
        TEXTS if "string" in types else []) + ([["a"]] if "array" in types else []) + (
        [{"a": "b"}] if "object" in types else []) or TEXTS + FREE_FORM


def main():
    schema = json.loads(subprocess.check_output([sys.argv[1], "config", "schema"]))
    keys = list(leaves(schema))
    chosen = {("providers",): "openai", ("tools", "mcpServers"): "server"}
    # Keys that the Python program has for one provider alone.
    of_bedrock = {("providers", "*", "region"), ("providers", "*", "profile")}
    questions = []
    for path, schema in keys:
        names = [chosen.get(path[:at], "name") if name == "*" else name for at, name in enumerate(path)]
        names = ["bedrock" if path in of_bedrock and name == "openai" else name for name in names]
        questions.append((names, values(schema) if values(schema) else FREE_FORM))
    outcomes = []
    for release in RELEASES:
        with tempfile.TemporaryDirectory() as directory:
            subprocess.run([sys.executable, "-m", "venv", directory], check=True)
            python = pathlib.Path(directory) / "bin/python"
            subprocess.run([python, "-m", "pip", "-q", "install", release], check=True)
            answer = subprocess.run([python, "-c", ROUND_TRIP], input=json.dumps(questions), text=True, capture_output=True,
                                    check=True, env={"HOME": directory})
            outcomes.append(json.loads(answer.stdout))
    result = {".".join(path): list(words) for (path, _), *words in zip(keys, *outcomes)}
    target = pathlib.Path(__file__).with_suffix(".json")
    lines = [f" {json.dumps(key)}: {json.dumps(words)}" for key, words in result.items()]
    target.write_text("{\n" + ",\n".join(lines) + "\n}\n")


main()
