//! `kill -9` at random points of turns, jobs, consolidations, and changes of the config and of jobs, all in one home.

use crate::crash::Random;
use crate::server::{Request, Responder, calls, says};
use crate::story::Story;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// The maximum time after which a process is killed, as a share of what a turn takes: most have ended by then.
const MAX_DELAY_PERCENT: u32 = 150;
/// Number of processes between two examinations.
const PROCESSES_PER_CHECK: usize = 50;
const SESSIONS: usize = 5;
const JOBS: usize = 8;

/// A model that repeats the message, writes down what a job asks for, and consolidates.
fn model() -> Responder {
    Box::new(|request: &Request| {
        if request.raw.contains("\"name\":\"save_memory\"") {
            let entry = json!({ "history_entry": "[2026-01-02 03:04] They talked.", "memory_update": "- a fact" });
            return calls("save_memory", entry)(request);
        }
        let content = request.last_content();
        let last = content.rsplit("say ").next().unwrap_or_default();
        let word = last.split(['.', '\n']).next().unwrap_or_default();
        says(&format!("You said {word}."))(request)
    })
}

/// The effects that processes have reported.
#[derive(Default)]
struct Acknowledged {
    /// Sessions and words of turns whose answer was printed.
    turns: BTreeSet<(usize, usize)>,
    /// Numbers of keys of the config.
    keys: BTreeSet<usize>,
    /// The last change of each job: true if it was added.
    jobs: [Option<bool>; JOBS],
    processes: usize,
    /// The duration of a turn, which depends on the machine and its load.
    turn_time: Duration,
    /// Processes that were killed before their end.
    kills: usize,
}

/// Runs a command and kills it after a random time. Returns its output if it ended before with status 0.
fn run_and_kill(
    story: &Story,
    random: &mut Random,
    acknowledged: &mut Acknowledged,
    arguments: &[&str],
) -> Option<String> {
    let mut child = story.command(arguments).spawn().unwrap();
    let max_delay = acknowledged.turn_time * MAX_DELAY_PERCENT / 100;
    let delay = max_delay / 1000 * u32::try_from(random.next_below(1000)).unwrap();
    let start = Instant::now();
    while start.elapsed() < delay && child.try_wait().unwrap().is_none() {
        std::thread::yield_now();
    }
    // It may have ended.
    drop(child.kill());
    let output = child.wait_with_output().unwrap();
    acknowledged.processes += 1;
    acknowledged.kills += usize::from(output.status.signal() == Some(9));
    let text = String::from_utf8(output.stdout).unwrap();
    output.status.success().then_some(text)
}

/// One process of a random kind, killed.
fn kill_one(story: &Story, random: &mut Random, acknowledged: &mut Acknowledged, number: usize) {
    let session = random.next_below(SESSIONS);
    let key = format!("s{session}");
    let job = random.next_below(JOBS);
    let name = format!("job{job}");
    match random.next_below(6) {
        0 | 1 => {
            let text = format!("say {number}.");
            let result =
                run_and_kill(story, random, acknowledged, &["agent", "-s", &key, "-m", &text]);
            if let Some(answer) = result {
                assert_eq!(answer, format!("You said {number}.\n"));
                acknowledged.turns.insert((session, number));
            }
        }
        2 => {
            let path = format!("models.m{number}.contextWindowTokens");
            if run_and_kill(story, random, acknowledged, &["config", "set", &path, "10000"])
                .is_some()
            {
                acknowledged.keys.insert(number);
            }
        }
        3 => {
            let arguments = ["memory", "consolidate", "-s", &key];
            run_and_kill(story, random, acknowledged, &arguments);
        }
        4 => {
            let arguments =
                ["cron", "add", "--replace", "-n", &name, "-c", "0 8 * * *", "-m", "say job."];
            let result = run_and_kill(story, random, acknowledged, &arguments);
            acknowledged.jobs[job] = result.map(|_| true);
        }
        _ if random.next_below(2) == 0 => {
            let result = run_and_kill(story, random, acknowledged, &["cron", "remove", &name]);
            acknowledged.jobs[job] = result.map(|_| false);
        }
        _ => drop(run_and_kill(story, random, acknowledged, &["cron", "run", &name])),
    }
}

/// Every file of JSON in a directory, as far as it is not a journal.
fn assert_json_parses(directory: &Path) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            assert_json_parses(&path);
        } else if path.extension().is_some_and(|it| it == "json") {
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(serde_json::from_str::<Value>(&text).is_ok(), "{}: {text:?}", path.display());
        }
    }
}

/// Nothing that was acknowledged is lost, every file can be read, and the next run works.
fn check(story: &Story, acknowledged: &mut Acknowledged) {
    for command in [
        "config check --strict",
        "usage --json",
        "cron list --json",
        "cron logs --json",
        "session list --json",
        "memory show",
    ] {
        story.run(command.split(' ')).status(0).text();
    }
    assert_json_parses(&story.home().join(".nanobot"));
    let config = story.config_value();
    for number in &acknowledged.keys {
        assert_eq!(config["models"][format!("m{number}")]["contextWindowTokens"], 10_000);
    }
    for (session, number) in std::mem::take(&mut acknowledged.turns) {
        let lines = story.session(&format!("s{session}.jsonl"));
        for text in [format!("say {number}."), format!("You said {number}.")] {
            let is_stored = lines.iter().any(|line| line["content"].to_string().contains(&text));
            assert!(is_stored, "{text} {lines:?}");
        }
    }
    let jobs = story.run(["cron", "list", "--json"]).text();
    for (job, change) in acknowledged.jobs.iter().enumerate() {
        let is_there = jobs.contains(&format!("\"name\":\"job{job}\",\"enabled\""));
        assert!(change.is_none_or(|was_added| was_added == is_there), "job{job}: {jobs}");
    }
    // The crontab has what the jobs say after the next look.
    story.run(["cron", "sync"]).status(0).text();
    let table = story.crontab().table().unwrap_or_default();
    let lines = table.lines().filter(|line| line.contains("cron run")).count();
    assert_eq!(lines, jobs.lines().count(), "{table}\n{jobs}");
    acknowledged.turn_time = run_turns(story);
}

/// Runs a turn in each session. Returns the duration of one.
fn run_turns(story: &Story) -> Duration {
    let start = Instant::now();
    for session in 0..SESSIONS {
        let arguments = ["agent", "-s", &format!("s{session}"), "-m", "say alive."];
        let result = story.run(arguments);
        result.error_text();
        result.stdout("You said alive.\n");
    }
    start.elapsed() / u32::try_from(SESSIONS).unwrap()
}

fn kill(count: usize, seed: u64) {
    let story = Story::new();
    story.server().always(model());
    let (mut random, mut acknowledged) = (Random(seed), Acknowledged::default());
    acknowledged.turn_time = run_turns(&story);
    for number in 0.. {
        kill_one(&story, &mut random, &mut acknowledged, number);
        if acknowledged.processes % PROCESSES_PER_CHECK == 0 {
            check(&story, &mut acknowledged);
        }
        if acknowledged.kills >= count {
            break;
        }
    }
    check(&story, &mut acknowledged);
    // Some of them did what they were asked.
    assert!(acknowledged.processes > count + count / 5, "{} processes", acknowledged.processes);
}

#[test]
fn killed_processes_of_all_kinds_lose_nothing() {
    kill(100, 1);
}

#[test]
#[ignore = "takes minutes; see tests/README.md"]
fn ten_thousand_killed_processes_of_all_kinds_lose_nothing() {
    let runs: Vec<_> =
        (0..2).map(|seed| std::thread::spawn(move || kill(5000, 100 + seed))).collect();
    for run in runs {
        run.join().unwrap();
    }
}
