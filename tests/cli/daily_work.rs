//! Long scripted sessions of daily work: every turn succeeds, nothing is refused, and the files are right in the end.

use crate::requirements::require;
use crate::server::{Request, Responder, calls, says};
use crate::story::Story;
use crate::web::{PageServer, page_response};
use serde_json::{Value, json};
use std::process::Command;
use std::sync::{Arc, Mutex};

/// One tool call, and a text that its result must contain.
struct Step {
    tool: &'static str,
    /// Produces the arguments, which may depend on the result of the call before.
    arguments: Box<dyn Fn(&Request) -> Value + Send + Sync>,
    expected: &'static str,
}

fn step(tool: &'static str, arguments: Value, expected: &'static str) -> Step {
    step_after(tool, move |_| arguments.clone(), expected)
}

fn step_after(
    tool: &'static str,
    arguments: impl Fn(&Request) -> Value + Send + Sync + 'static,
    expected: &'static str,
) -> Step {
    Step { tool, arguments: Box::new(arguments), expected }
}

fn shell(command: &str, expected: &'static str) -> Step {
    step("exec", json!({ "command": command }), expected)
}

fn read(path: &str, expected: &'static str) -> Step {
    step("read_file", json!({ "path": path }), expected)
}

fn write(path: &str, content: &str) -> Step {
    step("write_file", json!({ "path": path, "content": content }), "")
}

fn edit(path: &str, old: &str, new: &str) -> Step {
    let arguments = json!({ "path": path, "old_text": old, "new_text": new });
    step("edit_file", arguments, "")
}

/// A session, turn by turn.
struct Session<'a> {
    story: &'a Story,
    /// The session's file.
    file: &'a str,
    /// The arguments of every turn.
    arguments: &'a [&'a str],
    /// The working directory of every turn.
    directory: std::path::PathBuf,
    turns: usize,
    /// The results that did not contain what was expected.
    unexpected: Arc<Mutex<Vec<String>>>,
}

impl Session<'_> {
    /// Runs a turn in which the model makes the calls `steps` one after the other.
    #[track_caller]
    fn turn(&mut self, message: &str, steps: impl IntoIterator<Item = Step>) {
        let mut script: Vec<Responder> = Vec::new();
        let mut expected = None;
        for step in steps {
            let checked = self.checks_result(expected.replace((step.tool, step.expected)));
            script.push(Box::new(move |request| {
                checked(request);
                calls(step.tool, (step.arguments)(request))(request)
            }));
        }
        let checked = self.checks_result(expected);
        script.push(Box::new(move |request| {
            checked(request);
            says("Done.")(request)
        }));
        self.story.server().script(script);
        self.turns += 1;
        let mut command = self.story.command(["agent", "--strict", "-m", message]);
        command.args(self.arguments).current_dir(&self.directory);
        let output = command.output().unwrap();
        let stderr = self.story.run_result(output).stdout("Done.\n").error_text();
        let is_expected = |line: &str| {
            let starts = ["the agent added the job `", "changed what instructs later runs: "];
            starts.iter().any(|start| line.starts_with(&format!("nanobot: {start}")))
                || line.contains(".git`: git has moved `HEAD`")
        };
        assert!(stderr.lines().all(is_expected), "{message}: {stderr}");
        assert_eq!(*self.unexpected.lock().unwrap(), [""; 0], "{message}");
        let lines = self.story.session(self.file);
        let failed = lines.iter().find(|line| line["failed"] == true);
        assert_eq!(failed, None, "{message}");
    }

    /// Notes a last message that is not the result of `tool` with this text.
    fn checks_result(
        &self,
        expected: Option<(&'static str, &'static str)>,
    ) -> impl Fn(&Request) + Send + Sync + use<> {
        let unexpected = Arc::clone(&self.unexpected);
        move |request| {
            let Some((tool, text)) = expected else { return };
            let result = request.last_content();
            if !result.contains(text) {
                let entry = format!("{tool}, expected {text:?}: {result}");
                unexpected.lock().unwrap().push(entry);
            }
        }
    }
}

const MAKEFILE: &str = "\
CFLAGS = -Wall -Wextra -Werror

test: build/test_text
\t./build/test_text

build/test_text: tests/test_text.c src/text.c src/text.h
\tmkdir -p build
\t$(CC) $(CFLAGS) -o $@ tests/test_text.c src/text.c

clean:
\trm -rf build

.PHONY: test clean
";
const TEXT_C: &str = r#"#include "text.h"

int count_words(const char *text) {
    int count = 0, inside = 0;
    for (; *text; text++) {
        if (*text == ' ') {
            inside = 0;
        } else if (!inside) {
            inside = 1;
            count++;
        }
    }
    return count;
}
"#;
const TEST_C: &str = r#"#include <stdio.h>
#include "../src/text.h"

static int passed, failed;

static void check(const char *name, int got, int expected) {
    if (got == expected) {
        passed++;
    } else {
        failed++;
        printf("FAIL %s: %d, expected %d\n", name, got, expected);
    }
}

int main(void) {
    check("two words", count_words("a b"), 2);
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
"#;
const MAIN_C: &str = r#"#include <stdio.h>
#include "text.h"

int main(void) {
    static char text[1 << 20];
    text[fread(text, 1, sizeof text - 1, stdin)] = 0;
    printf("%d\n", count_words(text));
    return 0;
}
"#;

/// A repository of a small C program, with one commit.
fn repository(story: Story) -> Story {
    let story = story
        .file("Makefile", MAKEFILE)
        .file(".gitignore", "build/\n")
        .file("src/text.h", "int count_words(const char *text);\n")
        .file("src/text.c", TEXT_C)
        .file("src/old.c", "/* unused */\n")
        .file("tests/test_text.c", TEST_C);
    let config =
        "[user]\n\tname = Ann\n\temail = ann@example.org\n[init]\n\tdefaultBranch = main\n";
    std::fs::write(story.home().join(".gitconfig"), config).unwrap();
    command(&story, "git init -q && git add -A && git commit -qm 'Count words'");
    story
}

/// Runs a shell command of the user's in the working directory. Returns its output.
#[track_caller]
fn command(story: &Story, text: &str) -> String {
    let mut shell: Command = story.program("/bin/sh");
    let output = shell.args(["-c", text]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    text
}

#[test]
fn forty_turns_of_a_coding_task() {
    if !(require("git") && require("gcc") && require("make")) {
        return;
    }
    let story = repository(Story::new());
    let mut session = Session {
        story: &story,
        file: "task.jsonl",
        arguments: &["-s", "task", "--write"],
        directory: story.dir(),
        turns: 0,
        unexpected: Arc::default(),
    };
    find_the_way(&mut session);
    mend_a_defect(&mut session);
    write_a_program(&mut session);
    work_with_branches(&mut session);
    tidy_up(&mut session);
    assert_eq!(session.turns, 40);

    assert_eq!(command(&story, "git status --porcelain"), "");
    assert_eq!(command(&story, "git branch --show-current"), "main\n");
    assert_eq!(command(&story, "git rev-list --count HEAD"), "9\n");
    assert_eq!(command(&story, "git describe --tags"), "v1\n");
    command(&story, "git fsck --strict");
    assert!(!story.dir().join("src/old.c").exists());
    let tested = command(&story, "make -s test");
    assert!(tested.ends_with("4 passed, 0 failed\n"), "{tested}");
    let counted =
        command(&story, "make -s build/count && printf 'a\\tb\\nc\\n' | ./build/count -l");
    assert_eq!(counted, "2\n");
}

fn find_the_way(session: &mut Session<'_>) {
    session
        .turn("What is in this directory?", [step("list_dir", json!({ "path": "." }), "Makefile")]);
    session.turn("How is it built?", [read("Makefile", "-Wextra")]);
    session.turn("Run the tests.", [shell("make test", "1 passed, 0 failed")]);
    session.turn(
        "Where are words counted?",
        [step("grep", json!({ "pattern": r"int count_\w+" }), "src/text.c")],
    );
    session.turn("Which files are C?", [step("glob", json!({ "pattern": "**/*.c" }), "src/old.c")]);
    session.turn("Explain it.", [read("src/text.c", "inside = 0")]);
    session.turn("Who wrote it?", [shell("git log --format=%an -1", "Ann")]);
}

fn mend_a_defect(session: &mut Session<'_>) {
    let test = "    check(\"two words\", count_words(\"a b\"), 2);\n";
    session.turn(
        "Tabs are not counted as blanks. Write a test first.",
        [
            edit(
                "tests/test_text.c",
                test,
                &format!("{test}    check(\"a tab\", count_words(\"a\\tb\"), 2);\n"),
            ),
            shell("make test 2>&1 || echo it fails", "FAIL a tab: 1, expected 2"),
        ],
    );
    session.turn(
        "Mend it.",
        [
            edit("src/text.c", "*text == ' '", "*text == ' ' || *text == '\\t' || *text == '\\n'"),
            shell("make test", "2 passed, 0 failed"),
        ],
    );
    session.turn("What changed?", [shell("git diff --stat", "2 files changed")]);
    session.turn("Show me.", [shell("git diff src", "+        if (*text")]);
    session.turn("Commit it.", [shell("git commit -am 'Count tabs as blanks'", "2 files changed")]);
    session.turn(
        "Is everything committed?",
        [shell("git status --short && git log --oneline", "Count tabs as blanks")],
    );
    session.turn(
        "Does it handle an empty text?",
        [
            edit(
                "tests/test_text.c",
                "    printf(\"%d passed",
                "    check(\"nothing\", count_words(\"\"), 0);\n    printf(\"%d passed",
            ),
            shell("make test", "3 passed, 0 failed"),
        ],
    );
    session.turn("Commit that.", [shell("git commit -am 'Test an empty text'", "1 file changed")]);
}

fn write_a_program(session: &mut Session<'_>) {
    let plan = json!({ "todos": [
        { "content": "write src/main.c", "status": "in_progress" },
        { "content": "build it", "status": "pending" },
    ] });
    session.turn(
        "I want a program that counts the words of its input. Plan it.",
        [step("todo", plan, "write src/main.c")],
    );
    session.turn("Write it.", [write("src/main.c", MAIN_C)]);
    session.turn(
        "Build it.",
        [
            edit(
                "Makefile",
                "clean:\n",
                "build/count: src/main.c src/text.c src/text.h\n\tmkdir -p build\n\t$(CC) $(CFLAGS) -o $@ src/main.c src/text.c\n\nclean:\n",
            ),
            shell("make build/count", "-o build/count"),
        ],
    );
    session.turn("Try it.", [shell("echo one two three | ./build/count", "3")]);
    session.turn("And with a file?", [shell("./build/count < Makefile", "")]);
    session.turn(
        "How large is it?",
        [shell("ls -l build/count | awk '{print $5}'; file build/count || true", "")],
    );
    session.turn("Commit it.", [shell("git add -A && git commit -m 'A program'", "create mode")]);
    session.turn(
        "Write a test of the program.",
        [
            write(
                "tests/program.sh",
                "#!/bin/sh\nset -e\n[ \"$(printf 'a b\\tc' | ./build/count)\" = 3 ]\necho program passed\n",
            ),
            shell("sh tests/program.sh", "program passed"),
        ],
    );
    session.turn(
        "Make it part of the tests.",
        [
            edit(
                "Makefile",
                "test: build/test_text\n\t./build/test_text\n",
                "test: build/test_text build/count\n\tsh tests/program.sh\n\t./build/test_text\n",
            ),
            shell("make test", "program passed"),
        ],
    );
    session.turn(
        "Commit, with the script executable.",
        [shell(
            "chmod +x tests/program.sh && git add -A && git commit -m 'Test the program'",
            "100755",
        )],
    );
}

fn work_with_branches(session: &mut Session<'_>) {
    session.turn("Start a branch for -l.", [shell("git checkout -b lines 2>&1", "lines")]);
    session.turn(
        "-l counts lines. Write it.",
        [
            edit(
                "src/text.h",
                "int count_words",
                "int count_lines(const char *text);\nint count_words",
            ),
            edit(
                "src/text.c",
                "int count_words",
                "int count_lines(const char *text) {\n    int count = 0;\n    for (; *text; text++) {\n        count += *text == '\\n';\n    }\n    return count;\n}\n\nint count_words",
            ),
            edit("src/main.c", "int main(void) {", "int main(int argc, char **argv) {"),
            edit(
                "src/main.c",
                "    printf(\"%d\\n\", count_words(text));",
                "    int lines = argc > 1 && !strcmp(argv[1], \"-l\");\n    printf(\"%d\\n\", lines ? count_lines(text) : count_words(text));",
            ),
            shell("make test 2>&1 || echo it fails", "strcmp"),
        ],
    );
    session.turn(
        "Something is missing.",
        [
            edit("src/main.c", "#include <stdio.h>\n", "#include <stdio.h>\n#include <string.h>\n"),
            shell("make test && printf 'a\\nb\\n' | ./build/count -l", "3 passed"),
        ],
    );
    session.turn(
        "Test it, and commit.",
        [
            edit(
                "tests/test_text.c",
                "    printf(\"%d passed",
                "    check(\"lines\", count_lines(\"a\\nb\\n\"), 2);\n    printf(\"%d passed",
            ),
            shell("make test && git commit -am 'Count lines'", "4 passed, 0 failed"),
        ],
    );
    session.turn(
        "Meanwhile I need a README on main.",
        [
            shell("git checkout main 2>&1", "main"),
            write("README.md", "# count\n\nCounts words, or lines with -l.\n"),
            shell("git add README.md && git commit -m 'A README'", "create mode"),
        ],
    );
    session.turn(
        "Rebase the branch.",
        [shell("git checkout lines 2>&1 && git rebase main 2>&1", "rebase")],
    );
    session.turn(
        "Merge it.",
        [shell("git checkout main 2>&1 && git merge --ff-only lines", "Fast-forward")],
    );
    session.turn("Remove the branch.", [shell("git branch -d lines", "Deleted branch lines")]);
}

fn tidy_up(session: &mut Session<'_>) {
    session.turn(
        "src/old.c is unused.",
        [step("delete_file", json!({ "path": "src/old.c" }), ""), shell("make test", "4 passed")],
    );
    session.turn("Commit that.", [shell("git commit -am 'Remove an unused file'", "delete mode")]);
    session.turn(
        "I would rather look at it once more.",
        [shell("git stash list; git show HEAD~1:src/old.c", "unused")],
    );
    session.turn(
        "Name the build directory in the README.",
        [
            edit("README.md", "with -l.\n", "with -l. `make` writes to `build`.\n"),
            shell("git stash && git stash pop && git diff", "writes to `build`"),
        ],
    );
    session.turn(
        "Commit it.",
        [shell("git commit -am 'Name the directory' && git log --oneline | wc -l", "9")],
    );
    session.turn(
        "The message should say which directory.",
        [shell("git commit --amend -m 'Name the build directory'", "build directory")],
    );
    session.turn(
        "Tag it, and clean up.",
        [shell("git tag v1 && make clean && git status --porcelain && git describe --tags", "v1")],
    );
}

const RECIPE: &str = "<html><head><title>Leek soup</title></head><body><article><h1>Leek soup</h1><p>Wash 3 leeks and \
    cut them into rings. Fry them in butter until they are soft, add a litre of stock and 200 ml of cream, and \
    cook it all for 20 minutes. Season with salt, pepper and a little nutmeg.</p></article></body></html>";

#[test]
fn forty_turns_of_an_assistant_day() {
    let pages = PageServer::start(|_| page_response("text/html", RECIPE));
    let story = Story::new().set("tools", json!({ "ssrfWhitelist": ["127.0.0.2/32"] }));
    story.run(["onboard", "--yes"]).stderr_has("");
    let mut session = Session {
        story: &story,
        file: "day.jsonl",
        arguments: &["-s", "day"],
        directory: story.home(),
        turns: 0,
        unexpected: Arc::default(),
    };
    morning(&mut session);
    reminders(&mut session);
    notes(&mut session);
    reading(&mut session, &pages);
    evening(&mut session);
    assert_eq!(session.turns, 40);

    let text = |name: &str| std::fs::read_to_string(story.workspace().join(name)).unwrap();
    assert_eq!(text("notes/shopping.md"), "- milk\n- eggs\n- 3 leeks\n- cream\n");
    assert!(text("USER.md").contains("Lives in Vienna"));
    assert!(text("memory/MEMORY.md").contains("Anna's birthday is on 14 March"));
    assert!(text("HEARTBEAT.md").contains("- [ ] look for mail from the bank"));
    assert!(text("notes/journal.md").ends_with("Evening: soup, and early to bed.\n"));
    assert!(text("notes/recipes/leek-soup.md").contains("200 ml of cream"));
    assert!(!story.workspace().join("notes/draft.md").exists());
    let jobs = story.run(["cron", "list", "--json"]).json_lines();
    let mut names: Vec<Value> = jobs.iter().map(|job| job["name"].clone()).collect();
    names.sort_by_key(Value::to_string);
    assert_eq!(names, ["dentist", "weekly review"]);
    let table = story.crontab().table().unwrap_or_default();
    for job in &jobs {
        assert!(table.contains(job["id"].as_str().unwrap()), "{table}");
    }
}

fn morning(session: &mut Session<'_>) {
    session.turn("Good morning!", []);
    session.turn("What do you know about me?", [read("USER.md", "")]);
    session.turn(
        "I live in Vienna.",
        [shell("date +%A", "day"), write("USER.md", "# User\n\n- Lives in Vienna\n")],
    );
    session.turn("Start a shopping list with milk.", [write("notes/shopping.md", "- milk\n")]);
    session.turn("And eggs.", [edit("notes/shopping.md", "- milk\n", "- milk\n- eggs\n")]);
    session.turn(
        "Which notes do I have?",
        [step("glob", json!({ "pattern": "notes/**" }), "shopping.md")],
    );
    session.turn("What is on the list?", [read("notes/shopping.md", "eggs")]);
    session.turn("How many days until 14 March?", [shell("echo 71", "71")]);
}

fn reminders(session: &mut Session<'_>) {
    let add = |name: &str, key: &str, when: &str| {
        let mut arguments =
            json!({ "action": "add", "name": name, "message": format!("Remind me: {name}.") });
        arguments[key] = when.into();
        step("cron", arguments, "Created job")
    };
    let list = |expected| step("cron", json!({ "action": "list" }), expected);
    session.turn(
        "Remind me of the dentist tomorrow at 9.",
        [add("dentist", "at", "2026-01-03T09:00")],
    );
    session
        .turn("And of the review every Monday.", [add("weekly review", "cron_expr", "0 9 * * 1")]);
    session.turn("Water the plants at 18.", [add("plants", "at", "2026-01-02T18:00")]);
    session.turn("What is planned?", [list("weekly review")]);
    let remove = |request: &Request| {
        let listed = request.last_content();
        let line = listed.lines().find(|line| line.contains("plants")).unwrap_or_default();
        let id = line.split("id: ").nth(1).unwrap_or_default();
        let id: String = id.chars().take_while(char::is_ascii_alphanumeric).collect();
        json!({ "action": "remove", "job_id": id })
    };
    session.turn("Not the plants.", [list("plants"), step_after("cron", remove, "Removed")]);
    session.turn("What is left?", [list("dentist")]);
}

fn notes(session: &mut Session<'_>) {
    session.turn(
        "Remember that Anna's birthday is on 14 March.",
        [write("memory/MEMORY.md", "# Memory\n\n- Anna's birthday is on 14 March\n")],
    );
    session.turn("When is Anna's birthday?", []);
    session.turn("Start a journal.", [write("notes/journal.md", "Morning: wrote lists.\n")]);
    session.turn(
        "Noon: met Paul.",
        [edit("notes/journal.md", "lists.\n", "lists.\nNoon: met Paul.\n")],
    );
    session.turn(
        "Where did I mention Paul?",
        [step("grep", json!({ "pattern": "Paul", "path": "notes" }), "journal.md")],
    );
    session.turn("Draft a letter.", [write("notes/draft.md", "Dear Paul,\n")]);
    session.turn("Read it to me.", [read("notes/draft.md", "Dear Paul")]);
    session
        .turn("No, throw it away.", [step("delete_file", json!({ "path": "notes/draft.md" }), "")]);
    session.turn(
        "What did we talk about last week?",
        [step("grep", json!({ "pattern": "2025-12", "path": "memory" }), "")],
    );
    session.turn(
        "Look for mail from the bank now and then.",
        [
            read("HEARTBEAT.md", "Active Tasks"),
            step_after(
                "edit_file",
                |_| {
                    json!({ "path": "HEARTBEAT.md", "old_text": "## Active Tasks\n",
                    "new_text": "## Active Tasks\n\n- [ ] look for mail from the bank\n" })
                },
                "",
            ),
        ],
    );
    session.turn("Translate `good morning` into French.", []);
    session.turn("What is 17 * 23?", [shell("echo $((17 * 23))", "391")]);
    let plan = json!({ "todos": [{ "content": "soup", "status": "in_progress" }] });
    session.turn("Plan dinner.", [step("todo", plan, "soup")]);
}

fn reading(session: &mut Session<'_>, pages: &PageServer) {
    let url = pages.url("/soup");
    let fetch = || step("web_fetch", json!({ "url": url }), "3 leeks");
    session.turn(&format!("Summarise {url}"), [fetch()]);
    session.turn("How long does it cook?", [fetch()]);
    session.turn(
        "Save the recipe.",
        [write(
            "notes/recipes/leek-soup.md",
            "# Leek soup\n\n3 leeks, butter, 1 l of stock, 200 ml of cream.\n",
        )],
    );
    session.turn(
        "Put what I need on the list.",
        [edit("notes/shopping.md", "- eggs\n", "- eggs\n- 3 leeks\n- cream\n")],
    );
    session.turn(
        "Which recipes do I have?",
        [step("list_dir", json!({ "path": "notes/recipes" }), "leek-soup.md")],
    );
    session.turn("Read me the first.", [read("notes/recipes/leek-soup.md", "200 ml")]);
    session.turn("Is there enough butter for two?", []);
}

fn evening(session: &mut Session<'_>) {
    session.turn(
        "What is planned for tomorrow?",
        [step("cron", json!({ "action": "list" }), "dentist")],
    );
    session.turn("What is still on the list?", [read("notes/shopping.md", "leeks")]);
    session.turn(
        "Evening: soup, and early to bed.",
        [
            read("notes/journal.md", "Noon"),
            edit(
                "notes/journal.md",
                "met Paul.\n",
                "met Paul.\nEvening: soup, and early to bed.\n",
            ),
        ],
    );
    session.turn("How many lines has the journal?", [shell("wc -l < notes/journal.md", "3")]);
    session.turn("When is Anna's birthday?", [read("memory/MEMORY.md", "14 March")]);
    session.turn("Good night!", []);
}
