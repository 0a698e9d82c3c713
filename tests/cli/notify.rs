//! `notify.target`: the place of what needs a person.

use crate::channel::{telegram_config, telegram_story};
use crate::cron::{add_job, run_cron};
use crate::fault_injection::{can_inject, inject_at_calls, run_with_fault};
use crate::server::{Request, Responder, Response, fails, says, sends};
use crate::story::{Story, write_program};
use crate::telegram_server::TelegramServer;
use serde_json::json;
use std::sync::{Arc, Mutex};

/// A target that appends each notification to a file, and a line after it.
pub(crate) const FILE_TARGET: &str = "command:{ cat; echo --; } >> \"$HOME/told\"";

pub(crate) fn notifications(story: &Story) -> String {
    std::fs::read_to_string(story.home().join("told")).unwrap_or_default()
}

/// Starts the job as a crontab line does, at this time of the day. Returns what it prints.
fn start(story: &Story, id: &str, time: &str) -> String {
    start_at(story, &["cron", "run", id, "--scheduled"], time)
}

/// Runs a command at this time of the day. Returns what it prints.
fn start_at(story: &Story, arguments: &[&str], time: &str) -> String {
    let mut command = story.command(arguments);
    let output = command.env("NANOBOT_TEST_TIME", format!("2026-01-03T{time}Z")).output().unwrap();
    [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat()
}

#[test]
fn a_job_tells_its_answers_each_failure_once_and_its_end() {
    let script = [says("one"), fails(401, "no"), fails(401, "no"), says("four"), fails(401, "no")];
    let story = Story::new().set("notify", json!({ "target": FILE_TARGET })).script(script);
    let id = add_job(&story, &["-e", "1h"]);
    run_cron(&story, &["show", &id]).stdout_has("sent to `notify.target` of the config");
    let mut printed = String::new();
    for hour in 8..12 {
        printed += &start(&story, &id, &format!("{hour:02}:04:00"));
    }
    // Cron has nothing to mail.
    assert_eq!(printed, "");
    let text = notifications(&story);
    let messages: Vec<&str> = text.split("--\n").collect();
    let [one, failure, four, end, ""] = messages[..] else { panic!("{text}") };
    // A person sees which job has answered.
    assert!(one.starts_with("job `") && one.ends_with("`:\n\none\n"), "{one}");
    assert!(four.ends_with("`:\n\nfour\n"), "{four}");
    assert!(failure.starts_with("job `") && failure.contains("(status 401)"), "{failure}");
    assert!(end.contains("works again; it failed since 2026-01-03T09:"), "{end}");
    // The failure of a run by hand is printed.
    run_cron(&story, &["run", &id]).status(77).stderr_has("job `");
    assert_eq!(notifications(&story), text);
}

#[test]
fn what_happens_in_one_poll_is_one_message() {
    let telegram = TelegramServer::start();
    let mut channels = telegram_config(&telegram);
    channels["mattermost"] = json!({ "enabled": true });
    let story =
        Story::new().set("channels", channels).set("notify", json!({ "target": FILE_TARGET }));
    let body = json!({ "ok": false, "error_code": 401, "description": "Unauthorized" });
    for _ in 0..2 {
        telegram.fail("getUpdates", 401, body.clone());
        // The second poll has nothing new.
        story.run(["channel", "poll"]).stderr("").code();
    }
    let text = notifications(&story);
    assert_eq!(text.matches("--\n").count(), 1, "{text}");
    assert!(text.contains("channel telegram: ") && text.contains("channel mattermost: "), "{text}");
    let story = story.env("NANOBOT_TEST_TIME", "2026-01-02T03:10:00Z");
    story.run(["channel", "poll", "telegram"]).stderr("");
    let text = notifications(&story);
    let end = text.split("--\n").nth(1).unwrap();
    assert!(end.starts_with("channel telegram: poll works again; it failed since"), "{text}");
}

#[test]
fn a_chat_and_a_mailbox_are_targets_and_one_that_fails_hides_nothing() {
    let (story, telegram) = telegram_story();
    let story = story.set("notify", json!({ "target": "telegram:7" })).script([fails(401, "no")]);
    let id = add_job(&story, &["-e", "1h"]);
    assert_eq!(start(&story, &id, "08:04:00"), "");
    let messages = telegram.sent();
    assert!(messages.len() == 1 && messages[0].starts_with("job "), "{messages:?}");
    // A failure of the chat's own service is printed.
    let body = json!({ "ok": false, "error_code": 401, "description": "Unauthorized" });
    telegram.fail("getUpdates", 401, body);
    story.run(["channel", "poll"]).status(77).stderr_has("Unauthorized");
    let story = Story::new().set("notify", json!({ "target": "mail" })).script([fails(401, "no")]);
    let programs = story.home().join("bin");
    write_program(
        &programs.join("sendmail"),
        "#!/bin/sh\n{ echo \"to $*\"; cat; } > \"$HOME/told\"\n",
    );
    let story = story.env("PATH", &format!("{}:/usr/bin:/bin", programs.display()));
    let id = add_job(&story, &["-e", "1h"]);
    assert_eq!(start(&story, &id, "08:04:00"), "");
    let text = notifications(&story);
    assert!(text.starts_with("to -i ") && text.contains("\nSubject: nanobot\n"), "{text}");
    assert!(text.contains("\n\njob `"), "{text}");
    let story = Story::new().set("notify", json!({ "target": "command:false" }));
    story.server().script([fails(401, "no")]);
    let id = add_job(&story, &["-e", "1h"]);
    let printed = start(&story, &id, "08:04:00");
    assert!(printed.contains("nanobot: `notify.target`: "), "{printed}");
    assert!(printed.contains("nanobot: job `"), "{printed}");
    for text in ["pager", "nope:7", "telegram:", "command:"] {
        story
            .run(["config", "set", "notify.target", text])
            .status(78)
            .stderr_has("is not a target; expected `CHANNEL:CHAT`, `command:CMD` or `mail`");
    }
    for text in ["telegram:-100:7", "command:logger -t nanobot", "mail"] {
        story.run(["config", "set", "notify.target", text]);
    }
}

/// Adds a job that asks to do its name, and answers at no place. Returns its id.
pub(crate) fn add_named(story: &Story, name: &str, arguments: &[&str]) -> String {
    let message = format!("do {name} now");
    let first = ["cron", "add", "--json", "-n", name, "--channel", "none", "-m", &message];
    let result = story.run([&first, arguments].concat());
    result.error_text();
    result.json()["id"].as_str().unwrap().to_owned()
}

fn add_hourly(story: &Story, name: &str) -> String {
    add_named(story, name, &["-c", "0 * * * *"])
}

/// A model at which a job fails while the list has its name.
fn failing_model(failing: &Arc<Mutex<Vec<&'static str>>>) -> Responder {
    let failing = Arc::clone(failing);
    Box::new(move |request: &Request| {
        let content = request.last_content();
        let is_failing =
            failing.lock().unwrap().iter().any(|name| content.contains(&format!("do {name} now")));
        if is_failing { fails(401, "no")(request) } else { says("done")(request) }
    })
}

#[test]
fn jobs_that_are_due_together_are_one_message() {
    let story = Story::new().set("notify", json!({ "target": FILE_TARGET }));
    let failing = Arc::new(Mutex::new(vec!["one", "two", "three"]));
    story.server().always(failing_model(&failing));
    for name in ["one", "two", "three", "four"] {
        add_hourly(&story, name);
    }
    add_job(&story, &["-n", "five", "--after", "four", "--channel", "none"]);
    let run_due = |time: &str| {
        let mut command = story.command(["cron", "run", "--due"]);
        command.env("NANOBOT_TEST_TIME", format!("2026-01-03T{time}Z"));
        story.wait(command.spawn().unwrap()).stdout("").code()
    };
    assert_eq!(run_due("08:00:00"), 77);
    let text = notifications(&story);
    assert_eq!(
        (text.matches("--\n").count(), text.matches("(status 401)").count()),
        (1, 3),
        "{text}"
    );
    // They go on to fail, except one, and so does another one.
    *failing.lock().unwrap() = vec!["one", "two", "four"];
    assert_eq!(run_due("09:00:00"), 77);
    let new = notifications(&story)[text.len()..].to_owned();
    assert_eq!(new.matches("--\n").count(), 1, "{new}");
    assert!(new.contains("job `three`") && new.contains("job `four`"), "{new}");
    assert!(!new.contains("job `one`") && !new.contains("job `two`"), "{new}");
    failing.lock().unwrap().clear();
    let before = notifications(&story).len();
    assert_eq!(run_due("10:00:00"), 0);
    let new = notifications(&story)[before..].to_owned();
    assert_eq!((new.matches("--\n").count(), new.matches("works again").count()), (1, 3), "{new}");
}

/// Kills a start of a failing job at the `n`-th system call of a kind, and starts it twice more, the second time with a model that works.
/// Returns whether there was such a call.
fn kill_failing_at(start: &[&str], kind: &str, n: usize) -> bool {
    let story = Story::new().set("notify", json!({ "target": FILE_TARGET }));
    let failing = Arc::new(Mutex::new(vec!["one"]));
    story.server().always(failing_model(&failing));
    let id = add_hourly(&story, "one");
    let start: Vec<&str> =
        start.iter().map(|word| if *word == "ID" { &id } else { *word }).collect();
    let story = story.env("NANOBOT_TEST_TIME", "2026-01-03T08:00:00Z");
    let (result, is_killed) = run_with_fault(&story, &start, &[], (kind, "SIGKILL", n));
    let case = format!("{kind} {n}, {}", result.code());
    result.text();
    result.error_text();
    drop(result);
    let mut printed = String::new();
    for time in ["08:00:00", "09:00:00"] {
        printed += &start_at(&story, &start, time);
    }
    failing.lock().unwrap().clear();
    printed += &start_at(&story, &start, "10:00:00");
    assert_eq!(printed, "", "{case}");
    let text = notifications(&story);
    let failures = text.lines().filter(|line| line.starts_with("job `one`"));
    let failures = failures.filter(|line| !line.contains("works again")).count();
    // A message that was sent when the process was killed may come again.
    let repeated = usize::from(is_killed && text.matches("--\n").count() > 2);
    assert_eq!(failures, 1 + repeated, "{case}: {text}");
    assert_eq!(text.matches("works again; it failed since").count(), 1, "{case}: {text}");
    is_killed
}

#[test]
fn a_kill_loses_no_notice() {
    if !can_inject() {
        return;
    }
    let starts: [&[&str]; 2] = [&["cron", "run", "ID", "--scheduled"], &["cron", "run", "--due"]];
    for start in starts {
        let kills = ["write", "fsync", "rename", "flock", "clone3"]
            .map(|kind| inject_at_calls(|n| kill_failing_at(start, kind, n)));
        assert!(kills.iter().sum::<usize>() > 10, "{kills:?}");
    }
}

#[test]
fn a_job_that_cannot_start_is_told_once() {
    let story = Story::new().set("notify", json!({ "target": FILE_TARGET })).script([says("x")]);
    let id = add_hourly(&story, "one");
    let state = story.home().join(".nanobot/cron").join(&id).join("state.json");
    crate::story::write(&state, b"{");
    for (time, arguments) in [
        ("08:00:00", &["cron", "run", &id, "--scheduled"][..]),
        ("08:01:00", &["cron", "run", "--due"]),
        ("09:00:00", &["cron", "run", &id, "--scheduled"]),
    ] {
        assert_eq!(start_at(&story, arguments, time), "");
    }
    let text = notifications(&story);
    assert!(text.matches("--\n").count() == 1 && text.contains("state.json` is invalid"), "{text}");
    std::fs::remove_file(state).unwrap();
    assert_eq!(start_at(&story, &["cron", "run", "--due"], "10:00:00"), "");
    assert_eq!(notifications(&story).matches("works again").count(), 1);
    // Without a target, cron mails it.
    let story = Story::new();
    let id = add_hourly(&story, "one");
    let state = story.home().join(".nanobot/cron").join(&id).join("state.json");
    crate::story::write(&state, b"{");
    story.run(["cron", "run", &id, "--scheduled"]).status(78).stderr_has("is invalid");
}

#[test]
fn a_job_that_exceeds_its_limit_or_is_still_running_makes_a_notice() {
    let story = Story::new().set("notify", json!({ "target": FILE_TARGET }));
    let (_sender, stream) = Response::streaming();
    story.server().script([sends(stream)]);
    let id = add_named(&story, "one", &["-c", "0 * * * *", "--timeout", "4s"]);
    let start = ["cron", "run", &id, "--scheduled"];
    let mut running = story.command(start);
    let running = running.env("NANOBOT_TEST_TIME", "2026-01-03T08:00:00Z").spawn().unwrap();
    story.server().wait_for_requests(1);
    // The next slots, while the run is in progress.
    for time in ["09:00:00", "10:00:00"] {
        assert_eq!(start_at(&story, &start, time), "");
    }
    let text = notifications(&story);
    assert!(text.matches("--\n").count() == 1 && text.contains("already running"), "{text}");
    story.wait(running).status(124).stdout("").stderr("");
    let new = notifications(&story)[text.len()..].to_owned();
    assert!(new.contains("job `one`") && new.contains("`--timeout` expired"), "{new}");
}
