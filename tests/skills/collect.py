# Fetches public skills and stores the front matter of each as parsed by a real YAML parser: collect.py DIRECTORY. `.ci/fetch` runs it.
#
# DIRECTORY gets one workspace for each package, and at last `expect.json`. Needs pip, npm and PyYAML, which is fetched
# too. Fetched files are neither run nor stored in the repository.
import importlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile

PYYAML = "pyyaml==6.0.3"
# Releases of the Python program, and packages of skills in the public format.
WHEELS = ["nanobot-ai==0.1.4.post3", "nanobot-ai==0.3.5"]
TARBALLS = ["@elizaos/skills@2.0.0-beta.1", "ai-labs-claude-skills@2.0.1"]


def run(*command):
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)


def files_of(archive):
    """Path and bytes of each file in a wheel or a tarball."""
    if archive.endswith(".tgz"):
        with tarfile.open(archive) as tar:
            for member in tar:
                if member.isfile():
                    yield member.name, tar.extractfile(member).read()
    else:
        with zipfile.ZipFile(archive) as wheel:
            for name in wheel.namelist():
                if not name.endswith("/"):
                    yield name, wheel.read(name)


def main(folder):
    os.makedirs(folder, exist_ok=True)
    modules = os.path.join(folder, "modules")
    run(sys.executable, "-m", "pip", "install", "-q", "--target", modules, PYYAML)
    sys.path.insert(0, modules)
    yaml = importlib.import_module("yaml")
    expect = []
    for package in WHEELS + TARBALLS:
        place = os.path.join(folder, re.sub(r"[^a-z0-9.]+", "-", package).strip("-"))
        fetched = os.path.join(place, "fetched")
        os.makedirs(fetched, exist_ok=True)
        if package in WHEELS:
            run(sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:", "-d", fetched, package)
        else:
            run("npm", "pack", "--silent", "--ignore-scripts", "--pack-destination", fetched, package)
        [archive] = [os.path.join(fetched, name) for name in os.listdir(fetched)]
        files = dict(files_of(archive))
        for path, content in sorted(files.items()):
            if not path.endswith("/SKILL.md"):
                continue
            root = path[: -len("SKILL.md")]
            name = root.rstrip("/").split("/")[-1]
            for other, found in files.items():
                if other.startswith(root) and ".." not in other:
                    to = os.path.join(place, "skills", name, other[len(root) :])
                    os.makedirs(os.path.dirname(to), exist_ok=True)
                    with open(to, "wb") as file:
                        file.write(found)
            text = content.decode("utf-8")
            match = re.match(r"\ufeff?---[ \t]*\r?\n(.*?\r?\n|)---[ \t]*(?:\r?\n|\Z)", text, re.S)
            head, body = (match.group(1), text[match.end() :]) if match else ("", text)
            try:
                fields, is_yaml = yaml.safe_load(io.StringIO(head)) or {}, True
            except yaml.YAMLError:
                fields, is_yaml = {}, False
            tools = fields.get("allowed-tools")
            expect.append({
                "package": os.path.basename(place), "name": name, "yaml": is_yaml, "said": fields.get("name"),
                "description": fields.get("description"), "license": fields.get("license"),
                "compatibility": fields.get("compatibility"), "tools": tools if isinstance(tools, list) else None,
                "metadata": fields.get("metadata"), "body": body.strip(),
            })
        shutil.rmtree(fetched)
    with open(os.path.join(folder, "expect.json"), "w") as file:
        json.dump(expect, file, default=str)


main(sys.argv[1])
