#!/usr/bin/env python3
# /// script
# requires-python = ">=3.11"
# dependencies = ["kubernetes-validate==1.37.0", "jsonschema==4.26.0"]
# ///
"""Writes the JSON Schema of the manifests that `nanobot cron export --format kubernetes` makes.

Run it after raising the version above, with `uv run tests/schemas/kubernetes.py`, or with the same packages in any virtual
environment. The schemas are those of Kubernetes itself, as shipped with that package; the repository has the parts for the
kinds below, without descriptions, so that no test needs Python or a network. They are stricter in two points: unknown keys
are rejected, as by the API server in strict mode; and no value is null. The last lines check valid and invalid manifests;
nothing is written if one of these checks fails.

Constraints that a schema cannot express are not checked: the syntax of expressions and names, and that a mounted volume
exists.
"""

import copy
import json
import pathlib

import jsonschema
import kubernetes_validate

VERSION = "v1.37.0"
KINDS = {
    "CronJob": "io.k8s.api.batch.v1.CronJob",
    "PersistentVolumeClaim": "io.k8s.api.core.v1.PersistentVolumeClaim",
}
KEPT = ["type", "properties", "items", "additionalProperties", "required", "enum", "$ref", "oneOf", "anyOf", "format"]


def tidy(node):
    node = {key: value for key, value in node.items() if key in KEPT}
    if "$ref" in node:
        return {"$ref": "#/$defs/" + node["$ref"].rsplit("/", 1)[-1]}
    if isinstance(node.get("type"), list):
        types = [name for name in node["type"] if name != "null"]
        node["type"] = types[0] if len(types) == 1 else types
    if "properties" in node:
        node["properties"] = {name: tidy(each) for name, each in node["properties"].items()}
        node.setdefault("additionalProperties", False)
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), dict):
            node[key] = tidy(node[key])
    for key in ("oneOf", "anyOf"):
        if key in node:
            node[key] = [tidy(each) for each in node[key] if each.get("type") != "null"]
    return node


def reachable(defs):
    found, open_ = {}, [*KINDS.values()]
    while open_:
        name = open_.pop()
        if name not in found:
            found[name] = tidy(defs[name])
            if name in KINDS.values():
                # Set by the server.
                del found[name]["properties"]["status"]
            open_.extend(references(found[name]))
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


def text(schema):
    """JSON with one line per definition, for readable diffs."""
    def compact(value):
        return json.dumps(value, sort_keys=True, separators=(",", ":"))
    defs = ",\n".join(f"  {compact(name)}: {compact(each)}" for name, each in sorted(schema["$defs"].items()))
    return (
        f'{{\n "$schema": {compact(schema["$schema"])},\n "kinds": {compact(schema["kinds"])},\n'
        f' "$defs": {{\n{defs}\n }}\n}}\n'
    )


GOOD = {
    "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "a", "labels": {"x": "y"}},
    "spec": {
        "schedule": "* * * * *", "timeZone": "Etc/UTC", "concurrencyPolicy": "Forbid",
        "jobTemplate": {"spec": {"backoffLimit": 0, "template": {"spec": {
            "restartPolicy": "Never",
            "containers": [{
                "name": "a", "image": "b", "command": ["c"], "env": [{"name": "D", "value": "e"}],
                "resources": {"requests": {"cpu": "50m", "memory": 1}},
            }],
        }}}},
    },
}
# The path, and the expected value.
BAD = [
    (["kind"], "Cronjob"),
    (["apiVersion"], "batch/v1beta1"),
    (["spec", "shedule"], "* * * * *"),
    (["spec", "schedule"], None),
    (["spec", "startingDeadlineSeconds"], "600"),
    (["metadata", "labels", "x"], 1),
    (["spec", "jobTemplate", "spec", "template", "spec", "containers"], []),
    (["spec", "jobTemplate", "spec", "template", "spec", "containers"], [{"image": "b"}]),
    (["spec", "jobTemplate", "spec", "template", "spec", "containers"], [{"name": "a", "env": [{"nam": "D"}]}]),
    (["spec", "jobTemplate", "spec", "template", "spec", "securityContext"], {"runAsUser": "1"}),
]


def main():
    package = pathlib.Path(kubernetes_validate.__file__).parent
    file = package / "kubernetes-json-schema" / f"{VERSION}-local-strict" / "_definitions.json"
    defs = reachable(json.loads(file.read_text())["$defs"])
    # That at least one container exists is checked by the server itself.
    defs["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"]["minItems"] = 1
    for kind, name in KINDS.items():
        group = name.split(".")[3]
        version = "batch/v1" if group == "batch" else "v1"
        defs[name]["properties"] |= {"kind": {"const": kind}, "apiVersion": {"const": version}}
        defs[name]["required"] = ["apiVersion", "kind", "metadata", "spec"]
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "kinds": KINDS, "$defs": defs}
    judge = jsonschema.Draft202012Validator({"$ref": "#/$defs/" + KINDS["CronJob"], "$defs": defs})
    judge.validate(GOOD)
    for path, value in BAD:
        bad = copy.deepcopy(GOOD)
        place = bad
        for key in path[:-1]:
            place = place.setdefault(key, {})
        place[path[-1]] = value
        assert not judge.is_valid(bad), f"{path} = {value} is taken"
    pathlib.Path(__file__).with_name("kubernetes.json").write_text(text(schema))


if __name__ == "__main__":
    main()
