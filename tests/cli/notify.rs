//! `notify.target`: the place of what needs a person.

use crate::channel::{telegram_config, telegram_story};
use crate::cron::{add_job, run_cron};
use crate::server::{fails, says};
use crate::story::{Story, write_program};
use crate::telegram_server::TelegramServer;
use serde_json::json;

/// A target that appends each notification to a file, and a line after it.
const FILE_TARGET: &str = "command:{ cat; echo --; } >> \"$HOME/told\"";

fn notifications(story: &Story) -> String {
    std::fs::read_to_string(story.home().join("told")).unwrap_or_default()
}

/// Starts the job as a crontab line does, at this time of the day. Returns what it prints.
fn start(story: &Story, id: &str, time: &str) -> String {
    let mut command = story.command(["cron", "run", id, "--scheduled"]);
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
    let ["one\n", failure, "four\n", end, ""] = messages[..] else { panic!("{text}") };
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
    let sent = telegram.sent();
    assert!(sent.len() == 1 && sent[0].starts_with("job "), "{sent:?}");
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
