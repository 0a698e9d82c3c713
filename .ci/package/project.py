"""What all packages share: the facts of Cargo.toml, the program that is packaged, and the files beside it."""

import gzip
import io
import json
import os
import shutil
import re
import struct
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
DOCUMENT = tomllib.loads((ROOT / "Cargo.toml").read_text())
# Keys that all crates share stand in the table of the workspace.
MANIFEST = DOCUMENT["package"] | DOCUMENT["workspace"]["package"]
NAME = "nanobot"
VERSION = MANIFEST["version"]
SUMMARY = MANIFEST["description"]
# The placeholder in Cargo.toml until the repository has an address.
REPOSITORY = MANIFEST["repository"]
IS_PLACEHOLDER = REPOSITORY.split("/")[2].endswith(".invalid")
# No person: the address of the project at the repository's host.
MAINTAINER = f"The {NAME} project <{NAME}@{REPOSITORY.split('/')[2]}>"
OUT = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "package"
# How much a Debian package is compressed: the default of `dpkg-deb`.
XZ_LEVEL = 6

DESCRIPTION = """\
One invocation is one turn: nanobot reads its input, asks a model, runs the
tools that the model calls, prints the answer on standard output, and exits
with a status that says why. There is no daemon: pipes are the message bus,
files are the memory, and cron is the clock. Commands run in a sandbox of the
kernel. Works with OpenAI, Anthropic and compatible servers, also local ones."""

# The machines by the number in an ELF header: the names of Rust, Debian and RPM.
MACHINES = {
    62: ("x86_64-unknown-linux-gnu", "amd64", "x86_64"),
    183: ("aarch64-unknown-linux-gnu", "arm64", "aarch64"),
}


def fail(words):
    sys.exit(f"{Path(sys.argv[0]).name}: {words}")


def run(*words, **options):
    return subprocess.run(words, check=True, cwd=ROOT, text=True, **options)


def output(*words):
    return run(*words, stdout=subprocess.PIPE).stdout.strip()


def timestamp():
    """The time of all files in packages: that of the commit, so that two builds are the same."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    return int(given or output("git", "log", "-1", "--format=%ct"))


def machine(program):
    """The names of the machine that `program` is for. Packages have no dependencies, so it must be static."""
    head = program.read_bytes()[:20]
    if head[:4] != b"\x7fELF":
        fail(f"{program} is no program for Linux")
    number = struct.unpack_from("<H", head, 18)[0]
    if number not in MACHINES:
        fail(f"{program} is for a machine that is not packaged ({number})")
    headers = output("readelf", "--wide", "--program-headers", str(program))
    if "INTERP" in headers:
        fail(f"{program} is not static: install the static C library, and build it again")
    return MACHINES[number]


def manuals():
    return sorted((ROOT / "man").iterdir())


def write(path, data, mode=0o644):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    path.chmod(mode)


def compress(data):
    return gzip.compress(data, 9, mtime=0)


def stage(program, root, zsh):
    """Install everything below `root`, as a distribution lays it out. `zsh` is its directory of completions."""
    shutil.rmtree(root, ignore_errors=True)
    share = root / "usr/share"
    write(root / "usr/bin" / NAME, program.read_bytes(), 0o755)
    for page in manuals():
        section = page.suffix[1:]
        write(share / f"man/man{section}/{page.name}.gz", compress(page.read_bytes()))
    completions = ROOT / "completions"
    write(share / f"bash-completion/completions/{NAME}", (completions / f"{NAME}.bash").read_bytes())
    write(share / zsh / f"_{NAME}", (completions / f"_{NAME}").read_bytes())
    write(share / f"fish/vendor_completions.d/{NAME}.fish", (completions / f"{NAME}.fish").read_bytes())
    pages = ("README.md", "SECURITY.md")
    for name in pages:
        write(share / f"doc/{NAME}/{name}", packaged_page(name, pages))


def packaged_page(name, pages):
    """A page without pictures, and without links to other files than `pages`, which a package does not have."""
    text = re.sub(r"^!\[.*\]\(.*\)\n\n", "", (ROOT / name).read_text(), flags=re.MULTILINE)

    def keep(link):
        target = link[2].split("#")[0]
        is_there = "://" in target or target in ("", *pages)
        return link[0] if is_there else link[1]

    return re.sub(r"\[([^]]*)\]\(([^()\s]*(?:\(\d\))?[^()\s]*)\)", keep, text).encode()


def tarball(path, folder, files):
    """Write `files`, pairs of a name and data or a path, below `folder` in a tar file that depends on nothing else."""
    with open(path, "wb") as out, gzip.GzipFile("", "wb", 9, out, mtime=0) as packed:
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for name, source, mode in sorted(files):
                entry = tarfile.TarInfo(f"{folder}/{name}")
                entry.mode, entry.mtime = mode, timestamp()
                data = source if isinstance(source, bytes) else source.read_bytes()
                entry.size = len(data)
                tar.addfile(entry, io.BytesIO(data))
    return path


def crates():
    """The crates of the program, with the directories of their sources."""
    document = json.loads(output(str(ROOT / ".ci/sbom")))
    used = {(it["name"], it["version"]) for it in document["components"]}
    words = ("metadata", "--locked", "--format-version", "1", "--filter-platform", "x86_64-unknown-linux-gnu")
    packages = json.loads(output("cargo", *words))["packages"]
    found = [it for it in packages if (it["name"], it["version"]) in used]
    return [(f"{it['name']} {it['version']}", it["license"], Path(it["manifest_path"]).parent) for it in found]


def notices():
    """The licences of all crates, each text once, with the crates that it is for."""
    texts = {}
    for name, licence, folder in sorted(crates()):
        names = [it for it in sorted(folder.iterdir()) if it.is_file() and it.name.upper().startswith(("LICEN", "COPYING", "NOTICE", "COPYRIGHT"))]
        for path in names:
            text = path.read_text(errors="replace").strip()
            texts.setdefault(text, []).append(name)
        if not names:
            texts.setdefault(f"Licence: {licence}. Its package contains no text.", []).append(name)
    parts = [", ".join(dict.fromkeys(used)) + "\n\n" + text for text, used in texts.items()]
    line = "\n\n" + "-" * 80 + "\n\n"
    return line.join([f"{NAME} contains these libraries:", *parts]) + "\n"
