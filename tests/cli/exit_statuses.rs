//! Every exit status, produced by its cause, with the cause's name in the result.

use crate::cron::add_job;
use crate::help::invocations;
use crate::requirements::{require, require_root};
use crate::server::{Responder, calls, fails, says};
use crate::story::{NANOBOT, Story};
use crate::wait::until_exists;
use nanobot::cli::page_table::PAGES;
use nanobot_base::error::Exit;
use rustix::process::{Pid, Signal};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

/// A user that the machine does not know.
const OTHER_USER: u32 = 54_321;

/// Runs with `--json`; returns the exit status and the result.
fn run_json(story: &Story, arguments: &[&str]) -> (i32, Value) {
    let mut all = vec!["agent", "--json"];
    all.extend(arguments);
    let run_result = story.run(all);
    let code = run_result.code();
    // A usage error is reported first; there is no result then.
    let result = if run_result.text().is_empty() {
        json!({ "status": { "number": code, "name": "usage" }, "error": { "cause": "usage" } })
    } else {
        run_result.json()
    };
    let stderr = run_result.error_text();
    assert_eq!(stderr.is_empty(), code == 0, "{code}: a failure is told: {stderr:?}");
    (code, result)
}

fn scripted_story(turns: impl IntoIterator<Item = Responder>) -> Story {
    Story::new().script(turns)
}

fn calls_list_dir() -> Responder {
    calls("list_dir", json!({}))
}

#[test]
fn every_exit_status_can_be_produced() {
    let mut caused = BTreeSet::new();
    let mut check = |exit: Exit, story: Story, arguments: &[&str]| {
        let (code, result) = run_json(&story, arguments);
        assert_eq!(code, i32::from(exit.code()), "{arguments:?}: {result}");
        let expect = json!({ "name": exit.name(), "number": exit.code() });
        assert_eq!(result["status"], expect);
        match exit {
            Exit::Answered => assert_eq!(result["error"], Value::Null),
            _ => assert_eq!(result["error"]["cause"], exit.name()),
        }
        caused.insert(exit.code());
    };
    let x: &[&str] = &["-m", "x"];
    check(Exit::Answered, scripted_story([says("x")]), x);
    check(Exit::Failed, scripted_story([fails(400, "no")]), x);
    check(Exit::Failed, scripted_story([says(""), says(""), says("")]), x);
    check(Exit::Usage, Story::new(), &["-m", "x", "--fly"]);
    let two = scripted_story([calls_list_dir(), says("so far")]);
    check(Exit::Limit, two, &["-m", "x", "--max-iterations", "1"]);
    let budget = scripted_story([calls_list_dir()]);
    check(Exit::Budget, budget, &["-m", "x", "--max-total-tokens", "5"]);
    let denied = || calls("write_file", json!({ "path": "/etc/x", "content": "" }));
    check(Exit::Denied, scripted_story([denied(), says("no")]), &["-m", "x", "--strict"]);
    check(Exit::BadInput, Story::new().stdin(b"\x7fELF\0\0"), &[]);
    check(Exit::NoInput, Story::new(), &[]);
    check(Exit::NoInput, Story::new(), &["-m", "x", "--attach", "gone"]);
    check(Exit::Unavailable, scripted_story((0..4).map(|_| fails(503, "down"))), x);
    check(Exit::Defect, Story::new().env("NANOBOT_TEST_DEFECT", "1"), x);
    let blocked = Story::new().workspace_file("sessions", "a file in the place of a directory");
    check(Exit::Io, blocked, x);
    check(Exit::TryAgain, scripted_story((0..4).map(|_| fails(429, "slower"))), x);
    check(Exit::Refused, scripted_story([fails(401, "who?")]), x);
    check(Exit::Config, Story::bare(), x);
    check(Exit::Config, Story::bare().config_text("{"), x);
    check(
        Exit::Timeout,
        scripted_story([calls("exec", json!({ "command": "sleep 60" }))]),
        &["-m", "x", "--timeout", "2"],
    );
    for (exit, signal) in [
        (Exit::HangUp, Signal::HUP),
        (Exit::Interrupted, Signal::INT),
        (Exit::Terminated, Signal::TERM),
    ] {
        let story = scripted_story([calls("exec", json!({ "command": "touch on; sleep 60" }))]);
        let child = story.command(["agent", "-m", "x", "--json", "--write"]).spawn().unwrap();
        until_exists(&story.dir().join("on"));
        rustix::process::kill_process(Pid::from_child(&child), signal).unwrap();
        let result = story.wait(child);
        assert_eq!(result.signal(), Some(signal.as_raw()));
        assert_eq!(i32::from(exit.code()), 128 + signal.as_raw());
        assert_eq!(result.json()["status"]["name"], exit.name());
        caused.insert(exit.code());
    }
    // A machine that cannot simulate such a kernel skips this.
    let story = Story::new();
    let arguments = ["agent", "-m", "x", "--sandbox", "strict", "--json"];
    if let Some(mut command) = crate::sandbox::command_without_landlock(&story, &arguments) {
        let result = story.wait(command.spawn().unwrap()).status(126);
        assert_eq!(result.json()["error"]["cause"], Exit::NoSandbox.name());
        drop(result.error_text());
    }
    caused.insert(Exit::NoSandbox.code());
    let all: BTreeSet<u8> = Exit::ALL.iter().map(|exit| exit.code()).collect();
    assert_eq!(caused, all);
}

/// A part of the surroundings that is broken while a command runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    FullOutput,
    /// A path in the permissions, for commands that take them.
    MissingPath,
    Crontab,
    Config,
    /// The directories and files of the program's state have the wrong type.
    State,
}

impl Fault {
    fn cause(self, story: &Story) {
        let root = story.home().join(".nanobot");
        match self {
            Self::FullOutput | Self::MissingPath => {}
            Self::Crontab => story.crontab().set_behavior("forbidden"),
            Self::Config => std::fs::write(root.join("config.json"), "{").unwrap(),
            Self::State => {
                for name in
                    ["auth", "channels", "cron", "mcp", "skills", "tools", "undo", "workspace"]
                {
                    let path = root.join(name);
                    if path.is_dir() {
                        std::fs::remove_dir_all(&path).unwrap();
                    }
                    std::fs::write(path, "a file in the place of a directory").unwrap();
                }
                for name in ["trust.json", "pairing.json", "usage.jsonl", "config.json.lock"] {
                    let path = root.join(name);
                    if path.is_file() {
                        std::fs::remove_file(&path).unwrap();
                    }
                    std::fs::create_dir(path).unwrap();
                }
            }
        }
    }
}

/// Commands whose example asks another server, waits, or starts programs of the machine.
fn is_run_elsewhere(line: &str) -> bool {
    ["login", "onboard", "serve", "mcp add", "webhook"].iter().any(|part| line.contains(part))
}

/// An example of each command, with something broken: its page has the status with which it ends.
#[test]
fn every_page_has_the_statuses_of_its_command() {
    let mut causes = BTreeSet::new();
    let faults =
        [Fault::FullOutput, Fault::MissingPath, Fault::Crontab, Fault::Config, Fault::State];
    for fault in faults {
        let story = Story::new().env("EDITOR", "true").script([says("x")]);
        story.run(["agent", "-m", "x"]).stdout("x\n");
        add_job(&story, &["-n", "digest", "--every", "2h"]);
        std::fs::create_dir(story.home().join("inbox")).unwrap();
        fault.cause(&story);
        // The table of all statuses, and commands that only group others.
        let pages = PAGES.iter().filter(|page| page.exit_statuses().len() > 1);
        for page in pages {
            let mut lines = page.examples.iter().map(|(line, _)| *line);
            let own = lines.find_map(|line| {
                let mut commands = invocations(line).into_iter();
                commands.find(|command| command[1..].join(" ").starts_with(page.command))
            });
            let Some(arguments) = own.filter(|arguments| !is_run_elsewhere(&arguments.join(" ")))
            else {
                continue;
            };
            let mut command = story.command(&arguments[1..]);
            if fault == Fault::MissingPath {
                command.arg("--read=/none");
            }
            if fault == Fault::FullOutput {
                command.stdout(Stdio::from(File::options().write(true).open("/dev/full").unwrap()));
            }
            let result = story.wait(command.spawn().unwrap());
            let (code, stderr) = (result.code(), result.error_text());
            drop(result.text());
            let statuses = page.exit_statuses();
            assert!(
                statuses.iter().any(|(number, _)| i32::from(*number) == code),
                "{fault:?}: {arguments:?} ends with {code}, which its page does not have\n{stderr}"
            );
            causes.insert((fault, code, page.command));
        }
    }
    let count = |fault: Fault, code: i32| {
        causes.iter().filter(|(other, number, _)| (*other, *number) == (fault, code)).count()
    };
    assert!(count(Fault::FullOutput, 74) > 30, "{causes:#?}");
    assert!(count(Fault::MissingPath, 66) > 5, "{causes:#?}");
    assert!(count(Fault::Config, 78) > 20, "{causes:#?}");
    assert!(count(Fault::State, 74) > 10, "{causes:#?}");
    for command in ["edit", "enable", "disable", "remove"] {
        let command = format!("cron {command}");
        assert!(causes.contains(&(Fault::Crontab, 1, command.as_str())), "{command}: {causes:#?}");
    }
}

#[test]
fn a_panic_is_reported_with_its_report_and_the_session_continues() {
    let story = Story::new().env("NANOBOT_TEST_DEFECT", "1");
    story.run(["agent", "-m", "x"]).status(70).stderr_has("try: report this bug with `");
    // The same home, without the panic.
    let story = story.env("NANOBOT_TEST_DEFECT", "").script([says("fine")]);
    story.run(["agent", "-m", "x"]).stdout("fine\n");
}

#[test]
fn a_command_that_the_sandbox_refused_something_counts_as_denied() {
    let exec = |command: &str| calls("exec", json!({ "command": command }));
    let script = || [exec("touch q"), exec("touch q"), exec("touch q"), says("It failed.")];
    let story = Story::new().script(script());
    let run_result = story.run(["agent", "--json", "-m", "x"]);
    let result = run_result.json();
    assert_eq!(result["text"], "It failed.");
    assert_eq!(result["denials"][0]["tool"], "exec", "{result}");
    assert_eq!(result["denials"][0]["grant"], "--write");
    // Every report has the same count.
    let denied = result["denials"].as_array().unwrap().len();
    let counts = json!([{ "name": "exec", "count": 3, "failed": 3, "denied": denied }]);
    assert_eq!(result["tools"], counts);
    let usage = story.run(["usage", "--by", "tool", "--json"]).json();
    assert_eq!((&usage["failed_calls"], &usage["denied_calls"]), (&json!(3), &json!(denied)));
    let reported = run_result.error_text();
    assert_eq!(reported.matches("denied: exec: ").count(), 1, "{reported}");
    assert!(reported.contains("`--write`"), "{reported}");
    story.server().script(script());
    let strict = story.run(["agent", "--strict", "-m", "x"]).status(5).stdout("It failed.\n");
    strict.stderr_has("which `--strict` does not allow\n  try: `--write`");
    story.server().script([
        exec("echo 'curl: (6) Could not resolve host: example.org' >&2; exit 6"),
        says("Offline."),
    ]);
    let strict = story.run(["agent", "--strict", "-m", "x"]).status(5).stdout("Offline.\n");
    strict.stderr_has("denied: exec: commands have no network").stderr_has("try: `--net`");
}

/// The kernel counts the attempts of a command to reach another machine, so that a silent one is recognised too.
#[test]
fn a_silent_command_that_sought_the_network_is_denied() {
    let attempt = "bash -c ': < /dev/tcp/192.0.2.1/80' 2> /dev/null";
    let lookup = "getent hosts example.org > /dev/null";
    let check = |command: &str, failed: u32, denied: u32| {
        let exec = calls("exec", json!({ "command": command }));
        let story = Story::new().script([exec, says("Done.")]);
        let result = story.run(["agent", "--strict", "--json", "-m", "x"]);
        let reported = result.error_text();
        assert_eq!(result.code(), if denied > 0 { 5 } else { 0 }, "{command}: {reported}");
        let is_reported = reported.contains("denied: exec: commands have no network but loopback");
        assert_eq!(is_reported, denied > 0, "{command}: {reported}");
        let counts = json!({ "name": "exec", "count": 1, "failed": failed, "denied": denied });
        assert_eq!(result.json()["tools"], json!([counts]), "{command}");
    };
    check(attempt, 1, 1);
    check(lookup, 1, 1);
    for program in ["curl -s --max-time 5", "wget -q -O - -t 1 -T 5"] {
        if require(program.split(' ').next().unwrap()) {
            check(&format!("{program} http://192.0.2.1/"), 1, 1);
        }
    }
    // Its own output may be the cause, and loopback is no other machine.
    check(&format!("{attempt}; echo no; exit 1"), 1, 0);
    check(&attempt.replace("192.0.2.1/80", "127.0.0.1/9"), 1, 0);
    check(&format!("{attempt}; true"), 0, 0);
    // An attempt of another command does not count.
    let story = Story::new().script([
        calls("exec", json!({ "command": format!("{attempt}; true") })),
        calls("exec", json!({ "command": "exit 3" })),
        says("Done."),
    ]);
    story.run(["agent", "--strict", "-m", "x"]).stdout("Done.\n");
}

#[test]
fn a_command_that_failed_for_another_reason_is_not_denied() {
    let story = Story::new().file("secret", "").file("program", "").file("test.log", "EROFS\n");
    let dir = story.dir();
    let mode = |name: &str, mode| {
        std::fs::set_permissions(dir.join(name), Permissions::from_mode(mode)).unwrap();
    };
    mode("secret", 0o200);
    mode("program", 0o644);
    let commands = [
        // The mode of a file, as the user would see it too.
        "cat secret || ./program",
        "echo 'git@host: Permission denied (publickey).' >&2; exit 255",
        // No flag of this run grants the system.
        "touch /usr/share/q",
        "cat missing",
        // The command succeeded.
        "touch q; true",
        "grep -c EROFS test.log",
        "curl --version > /dev/null 2>&1; exit 1",
    ];
    let script = commands.iter().map(|command| calls("exec", json!({ "command": command })));
    let story = story.script(script.chain([says("Done.")]));
    let result = story.run(["agent", "--strict", "--json", "-m", "x"]).json();
    assert_eq!((&result["text"], &result["denials"]), (&json!("Done."), &json!([])), "{result}");
}

#[test]
fn denials_are_reported_with_the_flag_that_grants_them() {
    let story = scripted_story([
        calls("write_file", json!({ "path": "a", "content": "" })),
        calls("read_file", json!({ "path": "/etc/shadow" })),
        says("sorry"),
    ]);
    let run_result = story.run(["agent", "-m", "x", "--json"]);
    let result = run_result.json();
    assert_eq!(result["status"]["name"], "answered");
    assert_eq!(result["denials"][0]["tool"], "write_file");
    assert_eq!(result["denials"][0]["grant"], "--write");
    assert_eq!(result["denials"][1]["grant"], "--read /etc/shadow");
    assert_eq!(result["tools"][1]["denied"], 1);
    let stderr = run_result.error_text();
    assert_eq!(stderr.lines().count(), 2, "{stderr}");
}

#[test]
fn the_limit_of_file_sizes_is_an_error_with_a_message() {
    let story = Story::new();
    let mut shell = story.program("/bin/sh");
    let line = format!("ulimit -f 0; exec '{}' agent -m x -s work", crate::story::NANOBOT);
    story.wait(shell.args(["-c", &line]).spawn().unwrap()).status(74).stderr_has("File too large");
}

/// Other users' processes do not count, so the run needs a user of its own.
#[test]
fn a_limit_of_processes_is_named() {
    if !require_root("only root can run a program as another user") {
        return;
    }
    let story = Story::new();
    story.give_to_user(OTHER_USER);
    for limit in ["1", "2"] {
        let mut command = story.program("setpriv");
        let user = OTHER_USER.to_string();
        command.args(["--reuid", &user, "--regid", &user, "--clear-groups"]);
        command.args(["prlimit", &format!("--nproc={limit}"), NANOBOT]);
        command.args(["tool", "run", "exec", "{\"command\": \"echo hi\"}"]);
        let result = story.wait(command.spawn().unwrap());
        assert_ne!(result.code(), 0);
        let error = result.error_text();
        assert!(error.contains("`ulimit -u`"), "{limit}: {error}");
        assert!(!error.contains("seccomp"), "{limit}: {error}");
    }
}
