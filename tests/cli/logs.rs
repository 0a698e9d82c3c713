//! Logs: selected by topic and level, available for any command, and always without keys.

use crate::server::{Response, calls, says, sends};
use crate::story::{Story, write};
use serde_json::json;
use std::os::unix::fs::PermissionsExt;

#[test]
fn the_log_variable_selects_topics_and_levels() {
    let check = |value: &str, has: &[&str], has_not: &[&str]| {
        let story = Story::new()
            .file("a", "one\n")
            .script([calls("read_file", json!({ "path": "a" })), says("ok")]);
        let story = story.env("NANOBOT_LOG", value);
        let text = story.run(["agent", "-m", "x"]).stdout("ok\n").error_text();
        for phrase in has {
            assert!(text.contains(phrase), "{value}: no {phrase:?} in {text}");
        }
        for phrase in has_not {
            assert!(!text.contains(phrase), "{value}: {phrase:?} in {text}");
        }
        assert!(!text.contains("key-of-the-story"), "{text}");
    };
    let lines = [
        " ms  config: config `$HOME/.nanobot/config.json`",
        "config: workspace `$HOME/.nanobot/workspace`",
        "session: `cli:direct`: 0 messages",
        "policy: profile `default` in `$DIR`",
        "model: primary `scripted` of `custom` at http://127.0.0.1:",
        "http: post to http://127.0.0.1:",
        "http: status 200, first byte after ",
        "http: reply complete after ",
        "policy: `read_file` is allowed: permission: always",
        "tool: `read_file` ended after ",
    ];
    check("info", &lines, &["may read", "ureq"]);
    check("debug", &["policy: may read"], &["ureq"]);
    check("http=info", &["http: status 200"], &["policy", "config:", "tool:"]);
    check("tool,policy=warn", &["tool: `read_file`"], &["policy", "http"]);
    check("ureq=debug", &["ureq::pool: Return to pool"], &[" ms  http: "]);
    for silent in ["off", "error", "http=off"] {
        let story = Story::new().script([says("ok")]);
        let story = story.env("NANOBOT_LOG", silent);
        story.run(["agent", "-m", "x"]).stdout("ok\n");
    }
    // On any command; a flag overrides the variable.
    let story = Story::new().env("NANOBOT_LOG", "info");
    let result = story.run(["config", "get", "agents.defaults.model"]);
    result.stdout("scripted\n").stderr_has("config: config `");
    let result = story.run(["-q", "config", "get", "agents.defaults.model"]);
    result.stdout("scripted\n");
}

#[test]
fn logs_contain_no_key() {
    // At points where a server or our own code might log it.
    let echo = |request: &crate::server::Request| {
        let head =
            format!("{} {}", request.header("authorization").unwrap_or_default(), request.path);
        Response::json(400, &json!({ "error": { "message": head } })).header("x-key", &head)
    };
    for value in ["trace", "trace,ureq=trace,rustls=trace"] {
        let story = Story::new().env("NANOBOT_LOG", value);
        let command = json!({ "command": "echo key-of-the-story" });
        let story = story.script([
            calls("exec", command),
            sends(Response::json(500, &json!({ "error": "key-of-the-story" }))),
            Box::new(echo),
        ]);
        let text = story.run(["agent", "-m", "x", "--sandbox", "off"]).status(1).error_text();
        assert!(text.contains("http: status 400"), "{text}");
        assert!(!text.contains("key-of-the-story"), "{text}");
        assert!(!text.contains("of-the-st"), "{text}");
    }
}

#[test]
fn an_invalid_log_filter_is_reported() {
    let story = Story::new();
    for (value, message) in [
        ("loud", "unknown topic `loud`"),
        ("http=loud", "unknown level `loud`"),
        ("events.jsonl", "a path that contains `/`"),
    ] {
        let story = Story::new().env("NANOBOT_LOG", value);
        story.run(["agent", "-m", "x"]).status(78).stderr_has(message);
    }
    let story = story.script([says("ok")]).env("NANOBOT_LOG", "./events.jsonl");
    story.run(["agent", "-m", "x"]).stdout("ok\n");
    assert!(story.dir().join("events.jsonl").is_file());
    // The file of the config, unless the variable names one.
    let story = Story::new()
        .script([says("one"), says("two")])
        .set("log.events", serde_json::json!("~/events.jsonl"));
    story.run(["agent", "-m", "x"]).stdout("one\n");
    let file = story.home().join("events.jsonl");
    let logged = std::fs::read_to_string(&file).unwrap();
    assert!(logged.contains(r#""type":"result""#), "{logged}");
    let story = story.env("NANOBOT_LOG", "./events.jsonl");
    story.run(["agent", "-m", "x"]).stdout("two\n");
    assert!(story.dir().join("events.jsonl").is_file());
    assert_eq!(std::fs::read_to_string(&file).unwrap(), logged);
}

#[test]
fn a_panic_leaves_a_report_without_messages_and_keys() {
    let story = Story::new().env("NANOBOT_TEST_DEFECT", "key-of-the-story");
    let defects = story.home().join(".nanobot/defects");
    for number in 0..12 {
        let name = format!("2020-01-01T00-00-{number:02}Z-1.txt");
        write(&defects.join(name), b"old");
    }
    write(&defects.join("notes.md"), b"mine");
    let result = story.run(["agent", "-m", "my secret diary", "--json"]).status(70);
    assert_eq!(result.json()["error"]["cause"], "defect");
    let text = result.error_text();
    let begin = format!(
        "nanobot: internal error in nanobot {}, at src/ops/agent_turn.rs:",
        env!("CARGO_PKG_VERSION")
    );
    assert!(text.starts_with(&begin), "{text}");
    assert!(
        text.contains(
            "\n  try: report this bug with `$HOME/.nanobot/defects/2026-01-02T03-04-05Z-"
        ),
        "{text}"
    );
    let mut names: Vec<String> = std::fs::read_dir(&defects)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    // The last ten reports remain, and so do other files.
    assert_eq!(names.len(), 11);
    assert_eq!(names[0], "2020-01-01T00-00-03Z-1.txt");
    assert_eq!(names[10], "notes.md");
    let path = defects.join(&names[9]);
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let report = std::fs::read_to_string(&path).unwrap();
    for phrase in [
        "command: nanobot agent --message … --json\n",
        "location: src/ops/agent_turn.rs:",
        "message: requested by NANOBOT_TEST_DEFECT\n",
        "system: linux ",
        "nanobot::run",
    ] {
        assert!(report.contains(phrase), "no {phrase:?} in {report}");
    }
    for phrase in ["diary", "key-of-the-story"] {
        assert!(!report.contains(phrase), "{phrase:?} in {report}");
    }
}

#[test]
fn an_unwritable_panic_report_is_reported_in_one_line() {
    let story = Story::new().env("NANOBOT_TEST_DEFECT", "1");
    write(&story.home().join(".nanobot/defects"), b"in the way");
    let text = story.run(["agent", "-m", "x"]).status(70).error_text();
    for phrase in [
        "requested by NANOBOT_TEST_DEFECT",
        "cannot write a report",
        "try: report this line, with the steps",
    ] {
        assert!(text.contains(phrase), "no {phrase:?} in {text}");
    }
}
