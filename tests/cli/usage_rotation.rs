//! `usage --rotate`: the calls of past months become sums, through concurrent runs and crashes.

use crate::fault_injection::{can_inject, fault_numbers, run_with_fault};
use crate::server::says;
use crate::story::{Story, write};
use crate::wait::until;
use serde_json::{Value, json};
use std::fs::File;
use std::path::PathBuf;

fn ledger(story: &Story) -> PathBuf {
    story.home().join(".nanobot/usage.jsonl")
}

/// The line of a call on this day.
fn call(day: &str, number: u32, changes: &Value) -> String {
    let mut line = json!({
        "v": 1, "time": format!("{day}T10:00:00Z"), "day": day, "session": "cli:direct", "turn": format!("t{number}"),
        "job": null, "cause": "turn", "provider": "openai", "model": "gpt-5", "input": 1000, "cached": 400,
        "cache_write": 1, "output": 50, "reasoning": 10, "estimated": false, "usd": 0.25, "ms": 1200, "outcome": "ok",
        "day_usd": 0.75, "month_usd": 1.5,
    });
    for (key, value) in changes.as_object().unwrap() {
        line[key] = value.clone();
    }
    format!("{line}\n")
}

/// Calls of four months, before the fixed time of stories, the second of January 2026.
fn calls_of_four_months() -> String {
    let job = json!({ "session": "cron:j", "job": "j", "usd": null });
    let failed = json!({ "outcome": "failed", "estimated": true, "model": "gpt-5-mini" });
    let mut text = String::new();
    for (number, day) in ["09-01", "09-02", "10-01", "10-31"].iter().enumerate() {
        let (day, number) = (format!("2025-{day}"), u32::try_from(number).unwrap());
        text += &call(&day, number, &json!({}));
        // A second call of the same turn.
        text += &call(&day, number, &json!({}));
        text += &call(&day, number, &job);
        text += &call(&day, number + 100, &failed);
        text += &call(&day, number, &json!({ "session": format!("pipe:{number}") }));
    }
    text + "not a line\n" + &call("2025-12-01", 9, &json!({})) + &call("2026-01-02", 10, &job)
}

fn story_with_calls() -> Story {
    let story = Story::new();
    write(&ledger(&story), calls_of_four_months().as_bytes());
    story
}

/// The rows of all tables whose sums stay exact.
fn rows(story: &Story) -> Vec<Value> {
    let by = |by: &str| {
        let arguments = ["usage", "--json", "--since", "2025-01-01", "--by", by];
        let result = story.run(arguments);
        result.error_text();
        result.json_lines()
    };
    [by("model"), by("job")].concat()
}

fn rotate(story: &Story) -> String {
    story.run(["usage", "--rotate"]).text()
}

#[test]
fn the_calls_of_past_months_are_added_up() {
    let story = story_with_calls();
    let tools = story.home().join(".nanobot/tools.jsonl");
    let used = |day: &str| {
        let line = json!({ "v": 1, "time": format!("{day}T10:00:00Z"), "day": day, "session": "s", "turn": "t",
            "requests": 2, "tools": {}, "told": {} });
        format!("{line}\n")
    };
    write(&tools, (used("2025-11-30") + &used("2025-12-01")).as_bytes());
    let before = rows(&story);
    // Of each past month: the conversation, the job, the other model, the piped runs.
    assert_eq!(
        rotate(&story),
        "Added up the calls before 2025-12-01: 12 fewer lines in usage.jsonl, 1 in tools.jsonl.\n"
    );
    assert_eq!(rows(&story), before);
    assert_eq!(std::fs::read_to_string(&tools).unwrap(), used("2025-12-01"));
    let text = std::fs::read_to_string(ledger(&story)).unwrap();
    let lines = calls_of_four_months();
    let lines = lines.split_at(lines.find("not a line").unwrap()).1;
    assert!(text.ends_with(lines), "{text}");
    let arguments = ["usage", "--json", "--since", "2025-01-01"];
    let result = story.run(arguments);
    let days: Vec<Value> = result.stderr_has("skipped invalid lines of the ledger: 1").json_lines();
    let names: Vec<&str> = days.iter().map(|row| row["day"].as_str().unwrap()).collect();
    assert_eq!(names, ["2025-09", "2025-10", "2025-12-01", "2026-01-02"]);
    assert_eq!((&days[0]["calls"], &days[0]["failed_calls"]), (&json!(10), &json!(2)));
    // A second time there is nothing to do.
    assert_eq!(rotate(&story), "Nothing to add up before 2025-12-01.\n");
    assert_eq!(std::fs::read_to_string(ledger(&story)).unwrap(), text);
    // Another month passes: sums and calls are added to each other.
    let mut later = story.command(["usage", "--rotate", "-q"]);
    later.env("NANOBOT_TEST_TIME", "2026-03-02T03:04:05Z");
    assert_eq!(story.wait(later.spawn().unwrap()).text(), "");
    assert_eq!(rows(&story), before);
}

#[test]
fn a_budget_counts_what_was_added_up() {
    let story = Story::new()
        .set("budget", json!({ "daily": 0.7, "perSession": 1 }))
        .set("models", json!({ "m": { "price": { "input": 1, "output": 1 } } }));
    let days = ["2025-10-30", "2025-10-31", "2025-10-31"];
    let text = days.iter().map(|day| call(day, 1, &json!({ "session": "work" })));
    write(&ledger(&story), text.collect::<String>().as_bytes());
    assert!(rotate(&story).contains("2 fewer lines"));
    // The clock was ahead when the ledger was rotated.
    let run = |session: &str| {
        let mut command = story.command(["agent", "-m", "x", "-s", session]);
        command.env("NANOBOT_TEST_TIME", "2025-10-31T12:00:00Z");
        story.wait(command.spawn().unwrap())
    };
    run("other").status(4).stderr_has("`budget.daily` limit of $0.7 reached");
    drop(story.run(["config", "set", "budget.daily", "100"]).text());
    drop(story.run(["config", "set", "budget.perSession", "0.7"]).text());
    run("work").status(4).stderr_has("`budget.perSession` limit of $0.7 reached");
}

/// A run that has opened the ledger when another process replaces it.
#[test]
fn a_call_is_recorded_in_the_file_that_replaces_the_ledger() {
    let story = story_with_calls().script([says("x")]);
    let path = ledger(&story);
    let old = File::open(&path).unwrap();
    old.lock().unwrap();
    let child = story.command(["agent", "-m", "hi"]).spawn().unwrap();
    let descriptors = format!("/proc/{}/fd", child.id());
    until("the ledger is not open", || {
        let entries = std::fs::read_dir(&descriptors).unwrap();
        let mut targets = entries.filter_map(|it| std::fs::read_link(it.unwrap().path()).ok());
        targets.any(|target| target == path)
    });
    let new = path.with_extension("new");
    write(&new, b"kept\n");
    std::fs::rename(&new, &path).unwrap();
    old.unlock().unwrap();
    story.wait(child).stdout("x\n");
    let text = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines.len(), lines[0]), (2, "kept"), "{text}");
    assert!(lines[1].contains("\"cause\":\"turn\""), "{text}");
}

#[test]
fn a_rotation_that_fails_or_is_killed_loses_nothing() {
    if !can_inject() {
        return;
    }
    let before = rows(&story_with_calls());
    for error in ["SIGKILL", "EIO"] {
        let mut faults = 0;
        for kind in ["write", "fsync", "rename"] {
            for n in fault_numbers() {
                let story = story_with_calls();
                let arguments = ["usage", "--rotate", "-q"];
                let (result, is_injected) =
                    run_with_fault(&story, &arguments, &[], (kind, error, n));
                result.code();
                result.text();
                result.error_text();
                drop(result);
                assert_eq!(rows(&story), before, "{kind} {n}");
                rotate(&story);
                assert_eq!(rows(&story), before, "{kind} {n}");
                if !is_injected {
                    break;
                }
                faults += 1;
            }
        }
        assert!(faults > 2, "only {faults} faults");
    }
}

#[test]
fn a_ledger_with_several_names_is_not_replaced() {
    let story = story_with_calls();
    let path = ledger(&story);
    std::fs::hard_link(&path, path.with_extension("backup")).unwrap();
    story.run(["usage", "--rotate"]).status(74).stderr_has("has several hard links");
    // Without a ledger there is nothing to do.
    Story::new().run(["usage", "--rotate"]).stdout("Nothing to add up before 2025-12-01.\n");
}
