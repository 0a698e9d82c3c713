//! A year of a machine with fifty jobs, each day of which runs all of them and has one message of the user.

use crate::fault_injection::can_inject;
use crate::server::{Request, Responder, calls, says};
use crate::story::Story;
use serde_json::json;
use std::path::Path;

const JOBS: usize = 50;
const DAYS: i64 = 365;
/// The end of the first month, from which on nothing may grow but what the table of the documentation says.
const FIRST_MONTH: i64 = 30;

/// A model that answers a message with a paragraph, and consolidates.
fn model() -> Responder {
    Box::new(|request: &Request| {
        if request.raw.contains("\"name\":\"save_memory\"") {
            let entry = json!({ "history_entry": "[2026-01-02 03:04] They talked.", "memory_update": "- a fact" });
            return calls("save_memory", entry)(request);
        }
        says(&"A sentence of the answer. ".repeat(20))(request)
    })
}

/// The measurements after a day.
struct Sample {
    day: i64,
    /// Bytes by the first part of the path.
    bytes: Vec<(&'static str, u64)>,
    /// System calls of a start at which nothing is due, and of a turn.
    idle_calls: u64,
    turn_calls: u64,
}

fn size(path: &Path) -> u64 {
    let Ok(metadata) = path.symlink_metadata() else {
        return 0;
    };
    if metadata.is_dir() {
        let entries = std::fs::read_dir(path).unwrap();
        entries.map(|entry| size(&entry.unwrap().path())).sum()
    } else {
        metadata.len()
    }
}

/// The number of system calls of a run.
fn count_calls(story: &Story, time: &str, arguments: &[&str]) -> u64 {
    let path = story.dir().join("calls");
    let mut command = story.program("strace");
    command.args(["-f", "-qq", "-o"]).arg(&path);
    let command = command.arg(crate::story::NANOBOT).args(arguments);
    let output = command.env("NANOBOT_TEST_TIME", time).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = std::fs::read_to_string(path).unwrap();
    u64::try_from(text.lines().filter(|line| !line.contains("resumed>")).count()).unwrap()
}

fn measure(story: &Story, day: i64, date: &str, id: &str) -> Sample {
    let root = story.home().join(".nanobot");
    let parts = ["cron", "workspace/sessions", "workspace/memory", "usage.jsonl"];
    let mut bytes: Vec<(&str, u64)> = parts.map(|part| (part, size(&root.join(part)))).to_vec();
    bytes.push(("all", size(&root)));
    let at = format!("{date}T12:00:00Z");
    let turn_calls = || count_calls(story, &at, &["agent", "-s", "daily", "-m", "one more"]);
    Sample {
        day,
        bytes,
        idle_calls: count_calls(story, &at, &["cron", "run", id, "--scheduled"]),
        turn_calls: (0..3).map(|_| turn_calls()).min().unwrap(),
    }
}

#[test]
#[ignore = "takes minutes; see tests/README.md"]
#[allow(clippy::print_stdout, reason = "the table is to be seen")]
fn a_year_of_fifty_jobs_costs_no_more_at_its_end() {
    if !can_inject() {
        return;
    }
    let story = Story::new();
    story.server().always(model());
    let start: jiff::civil::Date = "2026-01-03".parse().unwrap();
    let mut id = String::new();
    for number in 0..JOBS {
        let (name, expression) = (format!("job{number}"), "0 9 * * *".to_owned());
        let arguments = ["cron", "add", "--json", "-n", &name, "-m", "look", "-c", &expression];
        let added = story.run(arguments);
        added.error_text();
        let added = added.json();
        id = added["id"].as_str().unwrap().to_owned();
    }
    let mut samples = Vec::new();
    for day in 1..=DAYS {
        let date = start.saturating_add(jiff::Span::new().days(day - 1)).to_string();
        let run = |time: &str, arguments: &[&str]| {
            let mut command = story.command(arguments);
            let child = command.env("NANOBOT_TEST_TIME", format!("{date}T{time}Z")).spawn();
            let result = story.wait(child.unwrap());
            (result.text(), result.error_text())
        };
        run("09:00:00", &["cron", "run", "--due"]);
        run("10:00:00", &["agent", "-s", "daily", "-m", "what is on?"]);
        if [1, FIRST_MONTH, DAYS / 2, DAYS].contains(&day) {
            samples.push(measure(&story, day, &date, &id));
        }
    }
    for Sample { day, bytes, idle_calls, turn_calls } in &samples {
        let sizes: Vec<String> =
            bytes.iter().map(|(part, size)| format!("{part} {size}")).collect();
        println!("day {day}: {}; calls: idle {idle_calls}, turn {turn_calls}", sizes.join(", "));
    }
    let (first, last) = (&samples[1], &samples[3]);
    assert!(10 * last.idle_calls <= 11 * first.idle_calls);
    assert!(10 * last.turn_calls <= 11 * first.turn_calls);
}
