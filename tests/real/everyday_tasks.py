"""The tasks of `tests/real/tasks`: filters, answers by a schema, edits in small repositories, reminders, digests and memory.

A task is what a person would ask, with the files it starts from, and a check of what is there afterwards: the answer, the
files, the jobs, the notes. The replies are those of a scripted model that does it well, for runs without a model; a reply is a
text, a list of tool calls, or a function of the place that returns such a list. No check compares more of an answer than the
task asks for.
"""

import csv
import io
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field


class Failed(Exception):
    """What is wrong with the end state."""


@dataclass
class Turn:
    message: str
    replies: list
    stdin: str | None = None
    flags: list = field(default_factory=list)


@dataclass
class Task:
    name: str
    turns: list
    check: Callable
    files: dict = field(default_factory=dict)
    flags: list = field(default_factory=list)


TASKS = []


def task(name, message, replies, *, stdin=None, files=None, flags=(), then=()):
    """Registers a task with the decorated function as its check: it gets the place and the result of the last turn."""

    def register(check):
        turns = [Turn(message, replies, stdin), *then]
        TASKS.append(Task(name, turns, check, dict(files or {}), list(flags)))
        return check

    return register


def expect(condition, failure):
    if not condition:
        raise Failed(failure)


def expect_lines(result, expected):
    lines = [line.strip() for line in result["text"].strip().splitlines() if line.strip()]
    expect(lines == expected, f"{lines} instead of {expected}")


def write(path, content):
    return ("write_file", {"path": path, "content": content})


def edit(path, old, new):
    return ("edit_file", {"path": path, "old_text": old, "new_text": new})


def read(path):
    return ("read_file", {"path": path})


def run(command):
    return ("exec", {"command": command})


# Filters: a text in, a text out.

MAIL = """From: Ada <ada@example.org>
Hi, please send the forms to lin@example.com and to BOB@example.net.
Ada asked twice; answers go to ada@example.org. Not an address: me@home, @work.
"""
LOG = "".join(
    f"2026-11-2{day} {service}: {status}\n"
    for day, service, status in [
        (1, "mail", "ok"),
        (1, "billing", "failed"),
        (2, "billing", "failed"),
        (2, "web", "ok"),
        (3, "web", "failed"),
        (3, "billing", "failed"),
        (4, "mail", "failed"),
        (4, "billing", "ok"),
    ]
)
DIFF = """diff --git a/fetch.py b/fetch.py
--- a/fetch.py
+++ b/fetch.py
@@ -1,4 +1,9 @@
 def fetch(url):
-    return get(url)
+    for attempt in range(3):
+        try:
+            return get(url)
+        except TimeoutError:
+            if attempt == 2:
+                raise
"""


@task(
    "addresses",
    "Print the e-mail addresses of this text, in small letters, each once, sorted, one on a line, and nothing else.",
    ["ada@example.org\nbob@example.net\nlin@example.com"],
    stdin=MAIL,
)
def addresses(place, result):
    expect_lines(result, ["ada@example.org", "bob@example.net", "lin@example.com"])


@task(
    "failing-service",
    "Which service failed most often? Answer with its name only.",
    ["billing"],
    stdin=LOG,
)
def failing_service(place, result):
    expect_lines(result, ["billing"])


@task(
    "dates",
    "Rewrite each line as an ISO date (YYYY-MM-DD). Days come before months. Print only the dates.",
    ["2026-03-04\n2025-12-24\n2024-02-29"],
    stdin="4.3.2026\n24 December 2025\n29/02/2024\n",
)
def dates(place, result):
    expect_lines(result, ["2026-03-04", "2025-12-24", "2024-02-29"])


@task(
    "spam",
    "For each line print `spam` or `ham`, one word on a line, nothing else.",
    ["spam\nham\nspam\nham"],
    stdin="WIN a FREE phone, click NOW\nLunch at one?\nYour account is locked, send your password\nThe build is green again\n",
)
def spam(place, result):
    expect_lines(result, ["spam", "ham", "spam", "ham"])


@task(
    "commit-message",
    "Write a commit message for this diff: one line of at most 72 characters, nothing else.",
    ["fetch: retry up to three times after a timeout"],
    stdin=DIFF,
)
def commit_message(place, result):
    lines = result["text"].strip().splitlines()
    expect(len(lines) == 1 and len(lines[0]) <= 72, f"not one short line: {lines}")
    expect(re.search(r"retr|attempt|again|timeout", lines[0], re.IGNORECASE), f"it does not say what changed: {lines[0]}")


@task(
    "markdown-table",
    "Make a markdown table of this, with a header row, in the same order. Print only the table.",
    ["| name | born |\n|---|---|\n| Ada | 1815 |\n| Grace | 1906 |"],
    stdin="name\tborn\nAda\t1815\nGrace\t1906\n",
)
def markdown_table(place, result):
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in result["text"].strip().splitlines()]
    expect([rows[0], *rows[2:]] == [["name", "born"], ["Ada", "1815"], ["Grace", "1906"]], f"other cells: {rows}")
    expect(len(rows) > 1 and all(re.fullmatch(r":?-+:?", cell) for cell in rows[1]), "no line below the header")


@task(
    "awk",
    "An awk program, as one shell command that reads standard input, which prints the sum of the third column.",
    ["```sh\nawk '{ sum += $3 } END { print sum }'\n```"],
    files={"data": "a b 20\nc d 19\ne f 3\n"},
    flags=["--bare", "-x"],
)
def awk(place, result):
    expect(result["code"], "no code block")
    (place.work / "sum.sh").write_text(result["code"])
    expect(re.search(r"(?m)^42$", place.command("sh sum.sh < data")), "the sum is not 42")


@task(
    "regex",
    "A grep -E command that reads standard input and prints the lines that contain an IPv4 address. Only the command.",
    ["```\ngrep -E '([0-9]{1,3}\\.){3}[0-9]{1,3}'\n```"],
    files={"hosts": "10.0.0.1 router\nno address\nversion 1.2\nprinter 192.168.1.20\n"},
    flags=["--bare", "-x"],
)
def regex(place, result):
    expect(result["code"], "no code block")
    (place.work / "find.sh").write_text(result["code"])
    output = place.command("sh find.sh < hosts")
    expect("router" in output and "printer" in output, "a line with an address is missing")
    expect("no address" not in output and "version" not in output, "a line without an address is printed")


# Answers by a schema.


@task(
    "person",
    "Who is it?",
    ['{"name": "Ada Lovelace", "born": 1815}'],
    stdin="Augusta Ada King, Countess of Lovelace, known as Ada Lovelace, was born in London in December 1815.",
    flags=["--schema", "name, born int"],
)
def person(place, result):
    expect("Lovelace" in result["data"]["name"] and result["data"]["born"] == 1815, f"{result['data']}")


@task(
    "invoice",
    "Read the invoice. The total includes the tax.",
    ['{"number": "R-77", "total": 119.0, "currency": "EUR"}'],
    stdin="Invoice R-77\n2 chairs at 50.00 EUR each\nplus 19 % tax\n",
    flags=["--schema", "number, total float, currency"],
)
def invoice(place, result):
    expect(result["data"] == {"number": "R-77", "total": 119, "currency": "EUR"}, f"{result['data']}")


@task(
    "action-items",
    "Who promised to do what? The person's first name, and what it is.",
    ['{"items": [{"who": "Lin", "what": "send the contract"}, {"who": "Bob", "what": "book a room"}]}'],
    stdin="Lin: I will send the contract today. Ada: thanks! Somebody needs to book a room. Bob: I'll do it. Ada: not on Monday.",
    flags=[
        "--schema",
        json.dumps(
            {
                "type": "object",
                "properties": {
                    "items": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "properties": {"who": {"type": "string"}, "what": {"type": "string"}},
                            "required": ["who", "what"],
                            "additionalProperties": False,
                        },
                    }
                },
                "required": ["items"],
                "additionalProperties": False,
            }
        ),
    ],
)
def action_items(place, result):
    people = sorted(item["who"] for item in result["data"]["items"])
    expect(people == ["Bob", "Lin"], f"{people}")


@task(
    "mood",
    "Judge the mood of this review.",
    ['{"mood": "negative"}'],
    stdin="Two weeks late, the box was open, and nobody answers the phone. Never again.",
    flags=[
        "--schema",
        json.dumps(
            {
                "type": "object",
                "properties": {"mood": {"enum": ["positive", "neutral", "negative"]}},
                "required": ["mood"],
                "additionalProperties": False,
            }
        ),
    ],
)
def mood(place, result):
    expect(result["data"] == {"mood": "negative"}, f"{result['data']}")


# Edits in small repositories of four languages.

PYTHON = {
    "pages.py": """\
def pages(items, size):
    '''The number of pages of `size` items that `items` items need.'''
    return items // size
""",
    "test_pages.py": """\
import unittest
from pages import pages


class Test(unittest.TestCase):
    def test_pages(self):
        self.assertEqual([pages(n, 10) for n in (0, 1, 10, 11)], [0, 1, 1, 2])


unittest.main()
""",
}


@task(
    "python-bug",
    "The test in test_pages.py fails. Repair pages.py.",
    [
        [read("pages.py"), read("test_pages.py")],
        [edit("pages.py", "items // size", "-(-items // size)")],
        [run("python3 test_pages.py")],
        "The last page counts now even if it is not full.",
    ],
    files=PYTHON,
    flags=["--write"],
)
def python_bug(place, result):
    expect(place.read("test_pages.py") == PYTHON["test_pages.py"], "the test was changed")
    place.command("python3 test_pages.py")


SHELL = {
    "count.sh": """\
#!/bin/sh
# Prints the number of lines of each file that is given.
for file in $*; do
  wc -l < $file
done
""",
    "a b.txt": "1\n2\n3\n",
}


@task(
    "shell-spaces",
    "count.sh fails for files with spaces in their names, such as `a b.txt`. Repair it.",
    [
        [read("count.sh")],
        [edit("count.sh", "$*", '"$@"'), edit("count.sh", "< $file", '< "$file"')],
        "Names with spaces work now.",
    ],
    files=SHELL,
    flags=["--write"],
)
def shell_spaces(place, result):
    expect(re.search(r"(?m)^\s*3$", place.command("sh count.sh 'a b.txt'")), "it does not print 3")


C = {
    "main.c": """\
#include <stdio.h>

int main(void) {
  int values[4] = {4, 8, 15, 16};
  int sum = 0;
  for (int i = 0; i <= 4; i++) sum += values[i];
  printf("%d\\n", sum);
  return 0;
}
""",
    "Makefile": """\
main: main.c
\tcc -Wall -Werror -fsanitize=undefined -fno-sanitize-recover=all -o main main.c
""",
}


@task(
    "c-overrun",
    "`make && ./main` should print 43, the sum of the four values. Find the mistake and repair it.",
    [[read("main.c")], [edit("main.c", "i <= 4", "i < 4")], [run("make && ./main")], "The loop ran one element too far."],
    files=C,
    flags=["--write"],
)
def c_overrun(place, result):
    expect("values[i]" in place.read("main.c"), "the loop is gone")
    expect(re.search(r"(?m)^43$", place.command("make -s && ./main")), "it does not print 43")


JAVASCRIPT = {
    "slug.mjs": "export const slug = (title) => title.toLowerCase().replace(' ', '-');\n",
    "test.mjs": """\
import assert from 'node:assert';
import { slug } from './slug.mjs';

assert.equal(slug('One Two Three'), 'one-two-three');
assert.equal(slug('  Spaces  around '), 'spaces-around');
""",
}


@task(
    "javascript-slug",
    "Make `node test.mjs` pass by changing slug.mjs only.",
    [
        [read("slug.mjs"), read("test.mjs")],
        [edit("slug.mjs", "title.toLowerCase().replace(' ', '-')", "title.trim().toLowerCase().replace(/\\s+/g, '-')")],
        "All blanks become hyphens now.",
    ],
    files=JAVASCRIPT,
    flags=["--write", "--until", "node test.mjs"],
)
def javascript_slug(place, result):
    expect(place.read("test.mjs") == JAVASCRIPT["test.mjs"], "the test was changed")
    place.command("node test.mjs")


@task(
    "rename",
    "Rename the function get_data to load_orders in all files of this project.",
    [
        [run("grep -rn get_data .")],
        [
            edit("orders.py", "def get_data", "def load_orders"),
            edit("report.py", "import get_data", "import load_orders"),
            edit("report.py", "get_data())", "load_orders())"),
            edit("README.md", "`get_data`", "`load_orders`"),
        ],
        "Renamed in three files.",
    ],
    files={
        "orders.py": "def get_data():\n    return [1, 2, 3]\n",
        "report.py": "from orders import get_data\n\nprint(sum(get_data()))\n",
        "README.md": "# Orders\n\n`get_data` reads the orders.\n",
    },
    flags=["--write"],
)
def rename(place, result):
    texts = [place.read(name) for name in ["orders.py", "report.py", "README.md"]]
    expect(not any("get_data" in text for text in texts), "the old name is still there")
    expect(all("load_orders" in text for text in texts), "the new name is missing")
    expect(re.search(r"(?m)^6$", place.command("python3 report.py")), "the report is another")


TYPOS = """\
# Garden

Water the tomatos every morning.

The shed is lokced; the key is under the pot.

    tomatos = 4  # as the label is spelt
"""


@task(
    "typos",
    "Fix the two spelling mistakes in the sentences of README.md; leave the code block as it is.",
    [
        [read("README.md")],
        [edit("README.md", "the tomatos every", "the tomatoes every"), edit("README.md", "lokced", "locked")],
        "Two words are corrected.",
    ],
    files={"README.md": TYPOS},
    flags=["--write"],
)
def typos(place, result):
    expected = TYPOS.replace("the tomatos every", "the tomatoes every").replace("lokced", "locked")
    expect(place.read("README.md") == expected, f"another text: {place.read('README.md')!r}")


SETTINGS = {"server": {"host": "localhost", "port": 3000}, "features": ["search", "export"], "debug": True}


@task(
    "settings",
    "In settings.json set the port to 8080 and switch debug off. Change nothing else.",
    [
        [edit("settings.json", '"port": 3000', '"port": 8080'), edit("settings.json", '"debug": true', '"debug": false')],
        "Port 8080, and no debugging.",
    ],
    files={"settings.json": json.dumps(SETTINGS, indent=2) + "\n"},
    flags=["--write"],
)
def settings(place, result):
    expected = SETTINGS | {"server": {"host": "localhost", "port": 8080}, "debug": False}
    expect(json.loads(place.read("settings.json")) == expected, "other settings")


@task(
    "patch",
    "Correct the greeting: it should say `Hello, world` with a comma.",
    [[edit("hello.sh", "Hello world", "Hello, world")], "The comma is there."],
    files={"hello.sh": "echo 'Hello world'\n"},
    flags=["--propose"],
)
def patch(place, result):
    expect(place.read("hello.sh") == "echo 'Hello world'\n", "the directory was changed")
    expect(result["patch"], "no patch")
    (place.work / "fix.patch").write_text(result["patch"])
    expect("Hello, world" in place.command("git apply fix.patch && sh hello.sh"), "the patched program says something else")


@task(
    "new-script",
    "Write backup.sh: it copies each *.txt of the current directory to the directory `backup`, which it creates if needed.",
    [[write("backup.sh", "#!/bin/sh\nset -e\nmkdir -p backup\ncp -- *.txt backup/\n")], "Written."],
    files={"one.txt": "1\n", "two words.txt": "2\n", "three.md": "3\n"},
    flags=["--write"],
)
def new_script(place, result):
    place.read("backup.sh")
    output = place.command("sh backup.sh && ls backup")
    expect("one.txt" in output and "two words.txt" in output and "three.md" not in output, "other copies")


# Reminders and jobs.


@task(
    "reminder",
    "Remind me at nine in the morning on 24 December 2099 to call Ada.",
    [[("cron", {"action": "add", "message": "Remind the user to call Ada.", "at": "2099-12-24T09:00:00"})], "I will remind you."],
)
def reminder(place, result):
    jobs = place.jobs()
    expect(len(jobs) == 1, f"{len(jobs)} jobs")
    expect("Ada" in jobs[0]["message"], f"another message: {jobs[0]['message']}")
    expect(str(jobs[0]["next"]).startswith("2099-12-24T09:00"), f"another time: {jobs[0]['next']}")


@task(
    "weekly",
    "Every Monday at 08:30, tell me which files in my workspace are new.",
    [
        [
            (
                "cron",
                {
                    "action": "add",
                    "message": "List the files in the workspace that are new since last Monday.",
                    "cron_expr": "30 8 * * 1",
                },
            )
        ],
        "Every Monday at 08:30.",
    ],
)
def weekly(place, result):
    jobs = place.jobs()
    expect(len(jobs) == 1, f"{len(jobs)} jobs")
    expression = jobs[0]["schedule"].get("expr", "")
    expect(re.fullmatch(r"30 0?8 \* \* (1|mon)", expression, re.IGNORECASE), f"another schedule: {jobs[0]['schedule']}")


@task(
    "cancel",
    "Remind me every day at seven to water the plants, and on the first of each month at seven to pay the rent.",
    [
        [
            (
                "cron",
                {"action": "add", "name": "plants", "message": "Remind the user to water the plants.", "cron_expr": "0 7 * * *"},
            ),
            ("cron", {"action": "add", "name": "rent", "message": "Remind the user to pay the rent.", "cron_expr": "0 7 1 * *"}),
        ],
        "I will.",
    ],
    then=[
        Turn(
            "I do not need the reminder about the plants any more; remove it.",
            [
                [("cron", {"action": "list"})],
                lambda place: [("cron", {"action": "remove", "job_id": place.job_id("plants")})],
                "It is gone.",
            ],
        )
    ],
)
def cancel(place, result):
    messages = [job["message"] for job in place.jobs()]
    expect(len(messages) == 1 and "rent" in messages[0], f"{messages}")


# Digests of folders.

NOTES = {
    "notes/a.md": "# Trip\n\nThe budget for the trip is 900 euros.\n",
    "notes/b.md": "# Books\n\nRead the one about whales.\n",
    "notes/c.md": "# Kitchen\n\nWe agreed on a budget of 4,000 euros. TODO: ask for an offer.\n",
    "notes/old/d.md": "# Car\n\nTODO: tyres\nTODO: insurance\n",
}


@task(
    "which-notes",
    "Which files below `notes` mention a budget? Print only their paths, sorted, one on a line.",
    [[("grep", {"pattern": "budget", "path": "notes"})], "notes/a.md\nnotes/c.md"],
    files=NOTES,
)
def which_notes(place, result):
    expect_lines(result, ["notes/a.md", "notes/c.md"])


@task(
    "count",
    "How many lines below `notes` contain TODO? Answer with the number only.",
    [[("grep", {"pattern": "TODO", "path": "notes"})], "3"],
    files=NOTES,
)
def count(place, result):
    expect_lines(result, ["3"])


@task(
    "index",
    "Write notes/index.md: a markdown list with a link to each note below `notes`, its heading as the text, sorted by heading.",
    [
        [("grep", {"pattern": "^# ", "path": "notes"})],
        [write("notes/index.md", "- [Books](b.md)\n- [Car](old/d.md)\n- [Kitchen](c.md)\n- [Trip](a.md)\n")],
        "The index has four notes.",
    ],
    files=NOTES,
    flags=["--write"],
)
def index(place, result):
    links = re.findall(r"\[([^]]*)\]\((?:\./)?([^)]*)\)", place.read("notes/index.md"))
    expect(links == [("Books", "b.md"), ("Car", "old/d.md"), ("Kitchen", "c.md"), ("Trip", "a.md")], f"{links}")


@task(
    "sum-of-tables",
    "Write total.csv with columns person and amount: each person's sum of the amounts in the other *.csv here, sorted by person.",
    [
        [run("head *.csv")],
        [write("total.csv", "person,amount\nAda,30.5\nBob,7.25\nLin,4\n")],
        "Three people.",
    ],
    files={"january.csv": "person,amount\nAda,10.5\nBob,7.25\n", "february.csv": "person,amount\nLin,4\nAda,20\n"},
    flags=["--write"],
)
def sum_of_tables(place, result):
    rows = list(csv.DictReader(io.StringIO(place.read("total.csv"))))
    sums = [(row["person"], float(row["amount"])) for row in rows]
    expect(sums == [("Ada", 30.5), ("Bob", 7.25), ("Lin", 4.0)], f"{sums}")


# Memory.


@task(
    "remember",
    "My cat is called Miez. Please remember that for later conversations.",
    [lambda place: [write(place.memory_file, "The user's cat is called Miez.\n")], "I will."],
    then=[Turn("What is my cat called? One word.", ["Miez"], flags=["--session", "other"])],
)
def remember(place, result):
    expect("Miez" in place.notes(), "no note has it")
    expect("Miez" in result["text"], f"another name: {result['text']}")


@task(
    "conversation",
    "The number is 17. Just say OK.",
    ["OK"],
    then=[Turn("Double it. Answer with the number only.", ["34"])],
)
def conversation(place, result):
    expect_lines(result, ["34"])
