//! The crontab line of the channels, as cron runs it: by `sh`, in cron's small environment. `cron_real.rs` has a real cron.

use crate::channel::send_signal;
use crate::chat_services::{ChatService, chat_services};
use crate::server::says;
use crate::story::{NANOBOT, RunResult, Story, TIME};
use crate::wait::until;
use rustix::process::Signal;
use serde_json::json;

/// Runs the line.
fn run_line(story: &Story) -> RunResult<'_> {
    let mut command = story.program("/bin/sh");
    command.env_clear().current_dir(story.home());
    command
        .env("HOME", story.home())
        .env("LOGNAME", "ann")
        .env("SHELL", "/bin/sh")
        .env("PATH", "/usr/bin:/bin")
        .env("NANOBOT_TEST_TIME", TIME);
    command.args(["-c", &format!("{NANOBOT} channel poll")]);
    story.wait(story.start(&mut command))
}

fn story_of(service: &ChatService) -> Story {
    let story = Story::new()
        .set("channels", json!({ service.facts().name: service.keys }))
        .set("memory", json!({ "consolidate": "manual" }));
    // The first look.
    run_line(&story);
    story
}

#[test]
fn a_line_of_the_crontab_answers_and_is_silent() {
    for service in chat_services() {
        let story = story_of(&service);
        let story = story.script([says("First."), says("Second.")]);
        for count in 1..=2 {
            service.write("hi");
            run_line(&story);
            assert_eq!(service.count_answers(), count, "{}", service.facts().name);
            // Nothing is new.
            run_line(&story);
        }
        assert_eq!(service.count_answers(), 2, "{}", service.facts().name);
    }
}

#[test]
fn a_line_of_the_crontab_leaves_a_poll_at_work_alone() {
    for service in chat_services() {
        let story = story_of(&service);
        let story = story.script([says("Yes.")]);
        let arguments = ["channel", "poll", "--follow", "--wait", "60"];
        let follows = story.start(&mut story.command(arguments));
        until("the first poll has the lock", || run_line(&story).code() == 75);
        service.write("hi");
        until("the first poll answers", || service.count_answers() == 1);
        run_line(&story).status(75);
        send_signal(&follows, Signal::TERM);
        assert_eq!(story.wait(follows).signal(), Some(15), "{}", service.facts().name);
        assert_eq!(service.count_answers(), 1, "{}", service.facts().name);
    }
}

/// Standard error, which cron sends by mail, has one line with the cause, and at most one with what to do.
#[test]
fn a_line_of_the_crontab_says_what_is_wrong() {
    for service in chat_services() {
        let (address, nowhere) = match service.facts().name {
            "slack" => ("apiBase", json!("http://127.0.0.1:1/api")),
            "mattermost" => ("serverUrl", json!("http://127.0.0.1:1")),
            "email" => ("imapPort", json!(1)),
            _ => ("apiBase", json!("http://127.0.0.1:1")),
        };
        let secret = service.facts().secret_key;
        let key = |name: &str| format!("channels.{}.{name}", service.facts().name);
        let beginning = format!("nanobot: channel {}: ", service.facts().name);
        for (name, value, status) in [(secret, json!("1:wrong"), 77), (address, nowhere, 69)] {
            let story = story_of(&service).set(&key(name), value);
            let text = run_line(&story).status(status).error_text();
            assert!(text.starts_with(&beginning), "{text}");
            assert!(text.lines().count() <= 2, "{text}");
        }
    }
}
