//! The program is replaced while processes of it run, as a package manager does: by a new file in the place of the old one.

use crate::channel::{send_signal, telegram_story};
use crate::cron::job_dir;
use crate::server::{Request, Responder, calls, says};
use crate::story::{NANOBOT, RunResult, Story, copy_program};
use crate::wait::until;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};

/// The program of a story, at a place where it can be replaced.
struct Installation<'s> {
    story: &'s Story,
    path: PathBuf,
}

impl<'s> Installation<'s> {
    fn new(story: &'s Story) -> Self {
        let path = story.home().join("bin/nanobot");
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        copy_program(NANOBOT, &path);
        Self { story, path }
    }

    /// Puts another file in the place of the program.
    fn replace(&self) {
        let new = self.path.with_extension("new");
        copy_program(NANOBOT, &new);
        std::fs::rename(new, &self.path).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.story.program(self.path.to_str().unwrap());
        command.args(arguments);
        command
    }

    fn start(&self, arguments: &[&str]) -> Child {
        self.story.start(&mut self.command(arguments))
    }

    fn run(&self, arguments: &[&str]) -> RunResult<'s> {
        self.story.wait(self.start(arguments))
    }

    /// A shell that runs the command of the crontab's line for a job, as cron does.
    fn line_command(&self, id: &str) -> Command {
        let table = self.story.crontab().table().unwrap();
        let line = table.lines().find(|line| line.contains(id)).unwrap();
        let (_, command) = line.split_once(" /usr/bin/env ").unwrap();
        let mut shell = self.story.program("/bin/sh");
        shell.args(["-c", &format!("exec /usr/bin/env {command}")]);
        shell
    }
}

/// A reply that waits until it is released.
fn delayed(reply: Responder) -> (Sender<()>, Responder) {
    let (release, released) = channel::<()>();
    let released = Mutex::new(released);
    let reply: Responder = Box::new(move |request: &Request| {
        released.lock().unwrap().recv().unwrap();
        reply(request)
    });
    (release, reply)
}

/// Commands, background commands and jobs that a turn starts after the replacement are those of the running program; the lines of
/// the crontab lead to the new one.
#[test]
fn a_turn_goes_on_after_the_program_was_replaced() {
    let story = Story::new();
    let (release, first) = delayed(calls("exec", json!({ "command": "echo in the sandbox" })));
    let job = json!({ "action": "add", "message": "look", "cron_expr": "0 8 * * *" });
    story.server().script([
        calls("exec", json!({ "command": "read line; echo \"got $line\"", "background": true })),
        first,
        calls("process", json!({ "id": "read-1", "input": "a line\n", "wait": 60 })),
        calls("cron", job),
        says("Done."),
    ]);
    let installed = Installation::new(&story);
    let turn = installed.start(&["agent", "-s", "telegram:7", "-m", "go"]);
    story.server().wait_for_requests(2);
    installed.replace();
    release.send(()).unwrap();
    story.wait(turn).stdout("Done.\n").stderr_has("the agent added the job");
    let results: Vec<String> = story.requests().iter().map(Request::last_content).collect();
    assert!(results[2].contains("in the sandbox"), "{results:#?}");
    assert!(results[3].contains("got a line"), "{results:#?}");
    let table = story.crontab().table().unwrap();
    assert!(table.contains(installed.path.to_str().unwrap()), "{table}");
    assert!(!table.contains("deleted"), "{table}");
}

#[test]
fn a_job_and_what_follows_it_run_through_the_replacement() {
    let story = Story::new().env("NANOBOT_TEST_ZONE", "UTC");
    let next_day = |mut command: Command| {
        command.env("NANOBOT_TEST_TIME", "2026-01-03T03:04:05Z");
        command.spawn().unwrap()
    };
    let installed = Installation::new(&story);
    let add = |arguments: &[&str]| {
        let first = ["cron", "add", "--json", "-m", "do it"];
        let ran = installed.run(&[&first, arguments].concat());
        ran.error_text();
        ran.json()["id"].as_str().unwrap().to_owned()
    };
    let digest = add(&["-n", "digest", "--cron", "4 3 * * *"]);
    let report = add(&["-n", "report", "--after", "digest"]);
    let (release, first) = delayed(says("News."));
    story.server().script([first, says("A report.")]);
    let job = next_day(installed.command(&["cron", "run", &digest, "--scheduled"]));
    story.server().wait_for_requests(1);
    installed.replace();
    release.send(()).unwrap();
    // The running program starts itself for the second job.
    story.wait(job).stdout("News.\nA report.\n");
    for id in [&digest, &report] {
        let records = std::fs::read_to_string(job_dir(&story, id).join("runs.jsonl")).unwrap();
        let record: Value = serde_json::from_str(&records).unwrap();
        assert_eq!(record["outcome"], "ok");
    }
    // The line of the crontab leads to the new program, which finds nothing due.
    story.wait(next_day(installed.line_command(&digest))).stdout("");
    story.wait(next_day(installed.command(&["cron", "check"]))).stdout("");
}

#[test]
fn a_poll_and_a_pipe_go_on_until_they_end() {
    let (story, telegram) = telegram_story();
    story.server().always(Box::new(|request: &Request| {
        let is_answered = request.messages().last().is_some_and(|last| last["role"] == "tool");
        let command = || calls("exec", json!({ "command": "echo in the sandbox" }))(request);
        if is_answered { says(&request.last_content())(request) } else { command() }
    }));
    let installed = Installation::new(&story);
    let poll = installed.start(&["channel", "poll", "--follow"]);
    let mut pipe = installed.command(&["serve", "pipe"]).stdin(Stdio::piped()).spawn().unwrap();
    let answers = || telegram.calls("sendMessage").len();
    telegram.message(7, "before");
    until("an answer", || answers() == 1);
    installed.replace();
    telegram.message(7, "after");
    until("a second answer", || answers() == 2);
    send_signal(&poll, Signal::TERM);
    assert_eq!(story.wait(poll).signal(), Some(15));
    let line = json!({ "id": "1", "session": "s", "text": "after" });
    let mut stdin = pipe.stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, format!("{line}\n").as_bytes()).unwrap();
    drop(stdin);
    story.wait(pipe).stdout_has("in the sandbox");
    for call in telegram.calls("sendMessage") {
        assert!(call.body["text"].as_str().unwrap().contains("in the sandbox"));
    }
    // The new program finds what the old one has left: nothing to do.
    installed.run(&["channel", "poll"]).stdout("");
}

/// Between two releases there may be no program for a moment: the shell of the crontab's line says so, and the slot is not lost.
#[test]
fn a_line_without_a_program_fails_with_its_name() {
    let story = Story::new();
    let installed = Installation::new(&story);
    let ran = installed.run(&["cron", "add", "--json", "-m", "do it", "-e", "1h"]);
    ran.error_text();
    let id = ran.json()["id"].as_str().unwrap().to_owned();
    drop(ran);
    let away = installed.path.with_extension("away");
    std::fs::rename(&installed.path, &away).unwrap();
    let ran = story.wait(installed.line_command(&id).spawn().unwrap()).status(127);
    let message = ran.error_text();
    assert!(message.contains("bin/nanobot") && message.contains("No such file"), "{message}");
    drop(ran);
    std::fs::rename(away, &installed.path).unwrap();
    story.server().script([says("Late.")]);
    let mut command = installed.command(&["cron", "run", &id, "--scheduled"]);
    command.env("NANOBOT_TEST_TIME", "2026-01-02T04:05:05Z");
    story.wait(command.spawn().unwrap()).stdout("Late.\n");
}
