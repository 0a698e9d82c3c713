//! Commands in the background: input, output, their end, and what they may not do.

use crate::requirements::require;
use crate::screen::Key;
use crate::server::{Responder, calls, says};
use crate::signals::{is_alive, send_signal};
use crate::story::{RunResult, Story, write};
use crate::wait::{until, until_exists};
use crate::web::{PageServer, page_response};
use serde_json::{Value, json};

/// A call that starts `command`.
fn starts(command: &str) -> (&'static str, Value) {
    ("exec", json!({ "command": command, "background": true }))
}

fn runs(command: &str) -> (&'static str, Value) {
    ("exec", json!({ "command": command, "timeout": 60 }))
}

/// A call of `process` that waits as long as it may.
fn process(mut arguments: Value) -> (&'static str, Value) {
    arguments["wait"] = json!(60);
    ("process", arguments)
}

fn writes(id: &str, input: &str) -> (&'static str, Value) {
    process(json!({ "id": id, "input": input }))
}

/// Makes the calls one after another. Returns their results, and what the run printed to standard error.
fn results(story: &Story, flags: &[&str], list: &[(&'static str, Value)]) -> (Vec<String>, String) {
    let script = list.iter().map(|(name, value)| calls(name, value.clone()));
    story.server().script(script.chain([says("done")]));
    let before = story.requests().len();
    let result = story.run(["agent", "-m", "go", "--ephemeral"].iter().chain(flags));
    let errors = result.error_text();
    result.stdout("done\n");
    let requests = story.requests();
    let contents =
        requests[before + 1..].iter().map(|it| story.normalize_paths(&it.last_content()));
    (contents.collect(), errors)
}

/// As [`results`]; nothing is printed to standard error.
fn quiet_results(story: &Story, flags: &[&str], list: &[(&'static str, Value)]) -> Vec<String> {
    let (outputs, errors) = results(story, flags, list);
    assert_eq!(errors, "", "{outputs:#?}");
    outputs
}

#[test]
fn input_and_output_of_a_running_command() {
    let results = quiet_results(
        &Story::new(),
        &[],
        &[
            starts("sh"),
            writes("sh-1", "a=1; echo one\n"),
            writes("sh-1", "echo $a two >&2\n"),
            process(json!({ "id": "sh-1", "input": "exit 3\n" })),
            writes("sh-1", "echo x\n"),
            process(json!({ "id": "sh-1" })),
            starts("cat; echo bye"),
            writes("cat-2", "to you\n"),
            process(json!({ "id": "cat-2", "end": true })),
        ],
    );
    let expect = [
        "Started in the background as `sh-1`. It ends with your turn, or when `process` ends it.",
        "one\n(still running)",
        "1 two\n(still running)",
        "(no output)\nExit code: 3",
        "nothing was written: `sh-1` has ended (it exited with status 3)",
        "`sh-1` has ended (it exited with status 3); there is no more output",
        "Started in the background as `cat-2`. It ends with your turn, or when `process` ends it.",
        "to you\n(still running)",
        "bye\nExited with status 0",
    ];
    assert_eq!(results, expect);
}

#[test]
fn a_server_in_the_background_answers_a_command() {
    if !require("python3") {
        return;
    }
    let server = "import os, socket
s = socket.socket(socket.AF_UNIX)
s.bind(os.environ['TMPDIR'] + '/server')
s.listen()
print('ready', flush=True)
while True:
    c, _ = s.accept()
    c.sendall(b'hello ' + c.recv(100))
    c.close()
";
    let client = "import os, socket
s = socket.socket(socket.AF_UNIX)
s.connect(os.environ['TMPDIR'] + '/server')
s.sendall(b'client')
print(s.recv(100).decode())
";
    // With permission to write, both hold the lock of the run.
    for flags in [&[][..], &["--write"], &["--write", "--net"]] {
        let story = Story::new().file("server.py", server).file("client.py", client);
        let results = quiet_results(
            &story,
            flags,
            &[
                starts("python3 server.py"),
                process(json!({ "id": "python3-1" })),
                runs("python3 client.py"),
                runs("python3 client.py"),
            ],
        );
        let expect = ["ready\n(still running)", "hello client", "hello client"];
        assert_eq!(results[1..], expect, "{flags:?}");
    }
}

#[test]
fn a_flood_of_output_is_bounded_and_kept() {
    let story = Story::new();
    let results = quiet_results(
        &story,
        &[],
        &[
            starts("seq 1 200000; echo the end; cat"),
            runs("true"),
            process(json!({ "id": "seq-1" })),
            starts("yes"),
            process(json!({ "id": "yes-2" })),
            process(json!({ "id": "yes-2", "end": true })),
        ],
    );
    let [_, _, counted, _, first, last] = &results[..] else {
        panic!("{results:#?}");
    };
    assert!(counted.starts_with("1\n2\n") && counted.contains("for read_file and grep"));
    assert!(counted.ends_with("(still running)"), "{counted}");
    assert!(first.contains("bytes left out") && first.ends_with("(still running)"));
    assert!(last.ends_with("Killed by signal 15"), "{last}");
    assert!(results.iter().all(|text| text.len() < 20_000));
}

#[test]
fn unusual_commands() {
    let mark = format!("{}.31", 400_000 + std::process::id());
    let until_closed = "until test -e $TMPDIR/closed; do sleep 0.01; done";
    let (mut outputs, errors) = results(
        &Story::new(),
        &[],
        &[
            // It closes its streams and goes on.
            starts(&format!("exec <&- >&- 2>&-; touch $TMPDIR/closed; exec sleep {mark}")),
            ("exec", json!({ "command": until_closed })),
            ("process", json!({ "id": "exec-1", "wait": 0 })),
            writes("exec-1", "x\n"),
            // It ignores requests to end.
            starts("trap '' TERM HUP; echo on; while :; do sleep 60; done"),
            process(json!({ "id": "trap-2" })),
            process(json!({ "id": "trap-2", "end": true })),
            // It leaves a process behind.
            starts(&format!("setsid sleep {mark} & echo off")),
            process(json!({ "id": "setsid-3" })),
            process(json!({ "id": "none" })),
            ("exec", json!({ "command": "true", "background": true, "working_dir": "missing" })),
            starts("rm -rf /"),
            writes("exec-1", "rm -rf /\n"),
        ],
    );
    outputs.remove(1);
    assert_eq!(outputs[1], "(no output)\n(still running)");
    assert_eq!(errors.matches("denied: ").count(), 2, "{errors}");
    assert!(outputs[2].contains("the command has closed its input"), "{}", outputs[2]);
    assert_eq!(outputs[4], "on\n(still running)");
    assert_eq!(outputs[5], "(no output)\nKilled by signal 9");
    assert_eq!(outputs[7], "off\nExited with status 0");
    assert_eq!(
        outputs[8],
        "there is no background command `none` in this turn; there are exec-1, trap-2, setsid-3"
    );
    assert!(outputs[9].contains("missing"), "{}", outputs[9]);
    assert!(outputs[10].contains("not run: `rm -rf /` removes everything"), "{}", outputs[10]);
    assert!(outputs[11].contains("not written: `rm -rf /` removes"), "{}", outputs[11]);
    assert!(!is_alive(&mark));
}

#[test]
fn at_most_eight_run_and_all_end_with_the_turn() {
    let mark = format!("{}.32", 400_000 + std::process::id());
    let command = format!("trap '' TERM; setsid sleep {mark} & echo on; sleep {mark}");
    let mut list = vec![starts(&command); 9];
    list.push(("process", json!({ "id": "trap-8", "end": true })));
    list.push(starts(&command));
    let story = Story::new();
    let results = quiet_results(&story, &[], &list);
    assert!(results[8].starts_with("not run: at most 8"), "{}", results[8]);
    assert!(results[10].starts_with("Started"), "{}", results[10]);
    assert!(!is_alive(&mark));
    // The next turn does not know them.
    let results = quiet_results(&story, &[], &[process(json!({ "id": "trap-1" }))]);
    assert!(results[0].contains("this turn has started none"), "{}", results[0]);
}

/// A run with a background command, which is interrupted by `end` while the model answers.
fn interrupt(number: u32, end: impl Fn(&mut std::process::Child)) {
    let mark = format!("{}.{number}", 400_000 + std::process::id());
    let command = format!("(trap '' TERM HUP INT; setsid sleep {mark} & sleep {mark})");
    let story = Story::new();
    let (name, arguments) = starts(&command);
    story.server().script([calls(name, arguments)]);
    let waiting = runs("sleep 600");
    story.server().script([calls(waiting.0, waiting.1)]);
    let mut child = story.command(["agent", "-m", "x"]).spawn().unwrap();
    story.server().wait_for_requests(2);
    until("the command runs", || is_alive(&mark));
    end(&mut child);
    child.wait().unwrap();
    until("the command has ended", || !is_alive(&mark));
}

#[test]
fn an_interrupted_run_leaves_no_command() {
    interrupt(33, |child| send_signal(child, 2));
    interrupt(34, |child| send_signal(child, 15));
    interrupt(35, |child| child.kill().unwrap());
}

#[test]
fn protected_files_are_restored() {
    let story = Story::new();
    let plant = "echo evil > .bashrc; echo on; read x; echo evil > .bashrc; echo off; cat";
    let (outputs, errors) = results(
        &story,
        &["--write"],
        &[
            starts(plant),
            process(json!({ "id": "echo-1" })),
            runs("ls -A; touch made"),
            writes("echo-1", "go\n"),
            process(json!({ "id": "echo-1", "end": true })),
        ],
    );
    assert!(outputs[1].contains("on\n(still running)"), "{}", outputs[1]);
    assert!(outputs[1].contains("may not change `.bashrc`, so it was restored"));
    assert!(outputs[2].starts_with(".bashrc.set-aside-"), "{}", outputs[2]);
    assert_eq!(outputs[2].lines().count(), 1);
    assert!(outputs[3].contains("may not change `.bashrc`, so it was restored"));
    assert_eq!(outputs[4], "(no output)\nExited with status 0");
    assert_eq!(errors.matches("denied: process").count(), 2, "{errors}");
    assert!(story.dir().join("made").exists());
    assert!(!story.dir().join(".bashrc").exists());
}

#[test]
fn a_later_command_reports_what_was_planted_before_it() {
    let story = Story::new();
    let (name, arguments) = starts("echo evil > .bashrc; touch planted; cat");
    let planted = story.dir().join("planted");
    let waits: Responder = Box::new(move |request| {
        until_exists(&planted);
        let (name, arguments) = runs("echo on");
        calls(name, arguments)(request)
    });
    let script = [calls(name, arguments), waits, says("done")];
    story.server().script(script);
    let result = story.run(["agent", "-m", "go", "--write"]);
    result.stdout("done\n");
    let content = story.requests()[2].last_content();
    assert!(
        content.starts_with("on\n(a background command changed protected files:)"),
        "{content}"
    );
    assert!(content.contains("`.bashrc`, so it was restored"), "{content}");
    assert!(!story.dir().join(".bashrc").exists());
}

#[test]
fn what_is_planted_at_the_end_of_a_turn_is_removed() {
    let story = Story::new();
    let (name, arguments) = starts("echo evil > .bashrc; touch planted; cat");
    let planted = story.dir().join("planted");
    let waits: Responder = Box::new(move |request| {
        until_exists(&planted);
        says("done")(request)
    });
    story.server().script([calls(name, arguments), waits]);
    let result = story.run(["agent", "-m", "go", "--write"]);
    result.stdout("done\n").stderr_has(
        "a background command changed `$DIR/.bashrc`, which is protected: it was undone",
    );
    assert!(!story.dir().join(".bashrc").exists());
}

#[test]
fn other_runs_wait_for_background_commands_that_may_write() {
    let story = Story::new();
    let (name, arguments) = starts("cat");
    story.server().script([calls(name, arguments)]);
    let dir = story.dir();
    story.server().script([Box::new(move |request: &crate::server::Request| {
        until_exists(&dir.join("go"));
        says("done")(request)
    }) as Responder]);
    let first = story.command(["agent", "-m", "x", "--write"]).spawn().unwrap();
    story.server().wait_for_requests(2);
    let json_arguments = r#"{"command": "touch ran", "timeout": 1}"#;
    let other = ["tool", "run", "exec", json_arguments, "--write"];
    let result = story.run(other);
    assert_ne!(result.code(), 0);
    let stderr = result.text() + &result.error_text();
    assert!(stderr.contains("another command that may change"), "{stderr}");
    std::fs::write(story.dir().join("go"), "").unwrap();
    story.wait(first).stdout("done\n");
    story.run(other).stdout("(no output)\n");
}

#[test]
fn process_is_as_permitted_as_exec() {
    let offered = |flags: &[&str], expect: [bool; 2]| {
        let story = Story::new().script([says("done")]);
        story.run(["agent", "-m", "go"].iter().chain(flags)).stdout("done\n");
        let tools = story.requests()[0].body["tools"].to_string();
        let are_offered = ["\"exec\"", "\"process\""].map(|name| tools.contains(name));
        assert_eq!(are_offered, expect, "{flags:?}");
        assert_eq!(tools.contains("\"background\""), expect == [true, true]);
    };
    offered(&[], [true, true]);
    offered(&["--tools", "exec"], [true, true]);
    offered(&["--deny", "exec"], [false, false]);
    offered(&["--disabled-tools", "exec"], [false, false]);
    offered(&["--deny", "process"], [true, false]);
    offered(&["--tools", "read_file"], [false, false]);
    // A rule about commands is one about input.
    let (outputs, errors) = results(
        &Story::new(),
        &["--deny", "exec(*secret*)"],
        &[starts("sh"), writes("sh-1", "cat secret\n"), writes("sh-1", "echo on\n")],
    );
    assert!(outputs[1].contains("denied by the rule `exec(*secret*)`"), "{}", outputs[1]);
    assert_eq!(outputs[2], "on\n(still running)");
    assert!(errors.contains("denied: process"), "{errors}");
    let story = Story::new().set("tools.permissions", json!({ "exec": "ask" }));
    let explain = |arguments: &str| story.run(["policy", "explain", "process", arguments]);
    explain(r#"{"id": "sh-1", "input": "ls"}"#).status(77).stdout_has("requires approval");
    explain(r#"{"id": "sh-1"}"#).stdout_has("allowed");
}

#[test]
fn input_needs_the_approval_of_a_command() {
    let story = Story::new().set("tools.permissions", json!({ "exec": "ask" })).script([
        calls("exec", json!({ "command": "sh", "background": true })),
        calls("process", json!({ "id": "sh-1", "wait": 0 })),
        calls("process", json!({ "id": "sh-1", "input": "touch $TMPDIR/x; echo first\n" })),
        calls("process", json!({ "id": "sh-1", "input": "echo second\n" })),
        says("All done."),
    ]);
    let mut screen = story.screen(24, 80).args(["repl"]);
    screen.until_prompt("> ").type_("go").press(Key::Enter);
    screen.until("$ sh").until_prompt("  allow?");
    screen.type_("y").press(Key::Enter);
    // Reading needs none.
    screen.until("› touch $TMPDIR/x; echo first").until_prompt("  allow?");
    screen.type_("y").press(Key::Enter);
    screen.until("› echo second").until_prompt("  allow?");
    screen.type_("n").press(Key::Enter);
    screen.until("All done.").press(Key::Ctrl('d'));
    assert_eq!(screen.code(), 0);
    let requests = story.requests();
    let results = [2, 3, 4].map(|at| requests[at].last_content());
    assert_eq!(results[0], "(no output)\n(still running)");
    assert_eq!(results[1], "first\n(still running)");
    assert!(!results[2].contains("second"), "{}", results[2]);
}

/// Runs git in the story's directory, as its user would at the same time.
fn git<const N: usize>(story: &Story, arguments: [&str; N]) -> String {
    let mut command = std::process::Command::new("git");
    let output = command
        .args(arguments)
        .current_dir(story.dir())
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", story.home())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// A command that changes the config once `go` is there.
const LATE_CHANGE: &str =
    "until [ -e go ]; do sleep 0.05; done; git config core.fsmonitor /evil; touch finished";

#[test]
fn a_harmless_change_of_a_config_opens_it_for_no_other_command() {
    if !require("git") {
        return;
    }
    let story = Story::new();
    git(&story, ["init", "-q"]);
    let (outputs, _) = results(
        &story,
        &["--write"],
        &[
            starts(LATE_CHANGE),
            runs("git config user.name Foo"),
            runs("touch go; until [ -e finished ]; do sleep 0.05; done"),
        ],
    );
    assert_eq!(outputs[1], "(no output)");
    assert!(outputs[2].contains("`.git/config`"), "{}", outputs[2]);
    let config = git(&story, ["config", "--list", "--local"]);
    assert!(config.contains("user.name=Foo"), "{config}");
    assert!(!config.contains("fsmonitor"), "{config}");
}

/// Runs a command that waits for the changes of its user, `change`, and then runs `rest`.
fn run_while_user_works<'s>(story: &'s Story, rest: &str, change: impl FnOnce()) -> RunResult<'s> {
    let command = format!("touch started; until [ -e go ]; do sleep 0.05; done; {rest}");
    let arguments = json!({ "command": command, "timeout": 60 });
    story.server().script([calls("exec", arguments), says("done")]);
    let child = story.command(["agent", "-m", "x", "--write"]).spawn().unwrap();
    until_exists(&story.dir().join("started"));
    change();
    write(&story.dir().join("go"), b"");
    story.wait(child).stdout("done\n")
}

#[test]
fn what_a_user_replaces_meanwhile_opens_nothing() {
    if !require("git") {
        return;
    }
    let story = Story::new();
    git(&story, ["init", "-q"]);
    write(&story.dir().join(".bashrc"), b"mine\n");
    let rest = "git config core.fsmonitor /evil; echo evil >> .bashrc";
    let result = run_while_user_works(&story, rest, || {
        git(&story, ["config", "user.name", "Me"]);
        // As `sed -i` does.
        write(&story.dir().join("new"), b"mine too\n");
        std::fs::rename(story.dir().join("new"), story.dir().join(".bashrc")).unwrap();
    });
    result.stderr_has("denied: exec");
    let content = story.requests()[1].last_content();
    assert!(content.contains("`.git/config`") && content.contains("`.bashrc`"), "{content}");
    let config = git(&story, ["config", "--list", "--local"]);
    assert!(!config.contains("fsmonitor"), "{config}");
    let bashrc = std::fs::read_to_string(story.dir().join(".bashrc")).unwrap();
    assert_eq!(bashrc, "mine\n");
    // The user's version is kept under another name.
    let entries = std::fs::read_dir(story.dir()).unwrap().flatten();
    let is_kept = |name: &std::ffi::OsStr| name.to_str().unwrap().starts_with(".bashrc.set-aside-");
    assert!(entries.into_iter().any(|entry| is_kept(&entry.file_name())));
}

#[test]
fn what_a_user_changes_harmlessly_meanwhile_stays() {
    if !require("git") {
        return;
    }
    let story = Story::new();
    git(&story, ["init", "-q"]);
    run_while_user_works(&story, "true", || {
        drop(git(&story, ["config", "user.name", "Me"]));
    });
    assert_eq!(git(&story, ["config", "user.name"]), "Me\n");
}

/// A watcher that was started before a page was read, and what it and others then write.
#[test]
fn what_a_background_command_writes_after_a_page_is_put_back() {
    let page = PageServer::start(|_| page_response("text/html", "<p>Leek soup</p>"));
    let watch = "until test -e x; do sleep 0.05; done; cp x AGENTS.md; cp x .envrc; mkdir d; cp x d/CLAUDE.md; touch written; sleep 60";
    // With a host that is granted to commands, they could have fetched what they write.
    for flags in [&["--write"][..], &["--write", "--net=127.0.0.2"]] {
        let story = Story::new().set("tools", json!({ "ssrfWhitelist": ["127.0.0.2/32"] }));
        story.server().script([
            calls("exec", starts(watch).1),
            // Written while all is the user's own, so that it stays.
            calls("write_file", json!({ "path": "GEMINI.md", "content": "mine" })),
            calls("web_fetch", json!({ "url": page.url("/") })),
            calls("write_file", json!({ "path": "x", "content": "obey" })),
            calls("exec", json!({ "command": "until test -e written; do sleep 0.05; done" })),
            calls("process", json!({ "id": "until-1", "wait": 0, "end": true })),
            says("done"),
        ]);
        let message = format!("read {}", page.url("/"));
        let errors =
            story.run([&["agent", "-m", &message], flags].concat()).stdout("done\n").error_text();
        for name in ["AGENTS.md", ".envrc", "d/CLAUDE.md"] {
            assert!(!story.dir().join(name).exists(), "{flags:?}: {name}: {errors}");
        }
        let mine = std::fs::read_to_string(story.dir().join("GEMINI.md"));
        assert_eq!(mine.ok().as_deref(), Some("mine"), "{flags:?}: {errors}");
    }
}

/// Without a page, a watcher may write them, which is reported.
#[test]
fn what_a_background_command_writes_without_a_page_stays() {
    let story = Story::new();
    let (outputs, errors) = results(
        &story,
        &["--write"],
        &[
            starts("echo a > AGENTS.md; touch written; sleep 60"),
            runs("until test -e written; do sleep 0.05; done"),
            process(json!({ "id": "echo-1", "wait": 0, "end": true })),
        ],
    );
    assert!(story.dir().join("AGENTS.md").exists(), "{outputs:#?}");
    assert!(errors.contains("changed what programs and agents read on their own"), "{errors}");
    assert!(!errors.contains("denied"), "{errors}");
}
