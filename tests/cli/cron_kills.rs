//! Jobs that are killed, hit a full disk, or are started many times at once. No run is paid twice, and the next command
//! recovers the state.

use crate::cron::add_job;
use crate::cron_run::{
    JOB_ID, every_minute, outcomes, python_job, records, stored_job, write_jobs,
};
use crate::fault_injection::{can_inject, inject_at_calls, run_with_fault};
use crate::server::{Request, says};
use crate::story::Story;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::mpsc::channel;

const SCHEDULED: [&str; 4] = ["cron", "run", JOB_ID, "--scheduled"];

/// A crontab with lines of another program.
const OTHER_CRONTAB: &str = "# mine\n1 2 3 4 5 other\n";

/// Due one minute before the stories' time, and never again.
fn one_time_job() -> Value {
    let mut once =
        python_job(&json!({ "kind": "at", "atMs": crate::cron_run::CREATED_AT_MS + 240_000 }));
    once["deleteAfterRun"] = json!(true);
    once
}

/// A story with this job and its crontab line.
fn story_with_job(job: Value) -> Story {
    let story = Story::new().set("memory", json!({ "consolidate": "manual" }));
    story.server().always(Box::new(|request: &Request| says("Done.")(request)));
    story.crontab().set_table(OTHER_CRONTAB);
    write_jobs(&story, &[job]);
    crate::cron_run::write_terms(&story, &json!({ "v": 1, "catchUp": "once" }));
    story.run(["cron", "sync"]).stdout_has(JOB_ID).stderr_has("");
    story
}

/// Starts a job `count` times while its answer is held back until all others have ended; returns their statuses and
/// messages.
fn start_concurrently(story: &Story, count: usize, arguments: &[&str]) -> Vec<(i32, String)> {
    let (release, wait) = channel::<()>();
    let wait = Mutex::new(wait);
    story.server().script([Box::new(move |request: &Request| {
        wait.lock().unwrap().recv().unwrap();
        says("Once.")(request)
    }) as crate::server::Responder]);
    let (end, ended) = channel();
    for _ in 0..count {
        let (child, end) = (story.command(arguments).spawn().unwrap(), end.clone());
        std::thread::spawn(move || end.send(child.wait_with_output().unwrap()));
    }
    let mut ended = ended.iter().map(|output| story.run_result(output));
    let others = ended.by_ref().take(count - 1);
    let others = others.map(|result| {
        result.text();
        (result.code(), result.error_text())
    });
    let others = others.collect();
    release.send(()).unwrap();
    ended.next().unwrap().stdout("Once.\n");
    others
}

#[test]
fn only_one_of_a_hundred_concurrent_starts_runs() {
    let story = Story::new();
    write_jobs(&story, &[python_job(&every_minute())]);
    for arguments in [&SCHEDULED[..], &["cron", "run", JOB_ID]] {
        let is_scheduled = arguments.len() == SCHEDULED.len();
        for (status, job_arguments) in start_concurrently(&story, 100, arguments) {
            // The slot of a scheduled start is being run, so there is nothing to say.
            assert_eq!(status, if is_scheduled { 0 } else { 75 }, "{job_arguments}");
            if is_scheduled {
                assert_eq!(job_arguments, "");
                continue;
            }
            let starts = ["is already running since ", "is already running\n"]
                .map(|end| format!("nanobot: the job `digest` {end}"));
            let is_told = starts.iter().any(|start| job_arguments.starts_with(start));
            assert!(is_told, "{job_arguments}");
        }
        // What did not run left no record.
        assert_eq!(outcomes(&story), vec!["ok"; if is_scheduled { 1 } else { 2 }]);
    }
    assert_eq!(story.requests().len(), 2);
    // A later check finds the job running and no further slot, and prints nothing.
    let (release, wait) = channel::<()>();
    let wait = Mutex::new(wait);
    let (request_arrived, is_asked) = channel::<()>();
    story.server().script([Box::new(move |request: &Request| {
        request_arrived.send(()).unwrap();
        wait.lock().unwrap().recv().unwrap();
        says("Late.")(request)
    }) as crate::server::Responder]);
    let at = |time: &str| {
        let mut command = story.command(SCHEDULED);
        command.env("NANOBOT_TEST_TIME", time).spawn().unwrap()
    };
    let long = at("2026-01-02T03:05:00Z");
    is_asked.recv().unwrap();
    drop(story.wait(at("2026-01-02T03:05:59Z")));
    // The next slot is independent.
    let result = story.wait(at("2026-01-02T03:06:00Z")).status(75);
    assert!(result.error_text().contains("is already running since "));
    // Said once for each run.
    drop(story.wait(at("2026-01-02T03:07:00Z")));
    release.send(()).unwrap();
    story.wait(long).stdout("Late.\n");
}

/// Kills a scheduled run at the `n`-th system call of this kind. Returns whether there was one.
fn kill_run_at(kind: &str, n: usize, job: Value) -> bool {
    let is_once = job["schedule"]["kind"] == "at";
    let story = story_with_job(job);
    let (result, is_killed) = run_with_fault(&story, &SCHEDULED, &[], (kind, "SIGKILL", n));
    let case = format!("{kind} {n}, {}", result.code());
    result.text();
    result.error_text();
    drop(result);
    let paid = story.requests().len();
    assert!(is_killed || paid == 1, "{case}");
    // The same minute, twice more.
    for _ in 0..2 {
        let result = story.run(SCHEDULED);
        let stderr = result.error_text();
        let is_told = stderr.is_empty()
            || stderr.contains("the last run was interrupted")
            || stderr.contains("no longer exists");
        assert!(is_told, "{case}: {stderr}");
        result.text();
        result.code();
    }
    // Never twice, and skipped only if its record has an unknown outcome.
    let request_count = story.requests().len();
    assert!(request_count <= 1 && request_count >= paid, "{case}: {request_count}");
    let outcomes = outcomes(&story);
    match &outcomes[..] {
        [outcome] if outcome == "ok" => assert_eq!(request_count, 1, "{case}"),
        [outcome] if outcome == "unknown" => {}
        other => panic!("{case}: {other:?}"),
    }
    let record = &records(&story)[0];
    assert!(!record["slot"].is_null(), "{case}: {record}");
    // A one-time job is removed in the end, together with its crontab line.
    let table = story.crontab().table().unwrap();
    assert!(table.starts_with(OTHER_CRONTAB), "{case}: {table}");
    assert_eq!(table.contains(JOB_ID), !is_once, "{case}: {table}");
    if is_once {
        match outcomes[0].as_str() {
            "ok" => assert_eq!(stored_job(&story), Value::Null, "{case}"),
            _ => assert_eq!(stored_job(&story)["enabled"], false, "{case}"),
        }
    } else {
        // The next minute runs normally.
        let mut command = story.command(SCHEDULED);
        command.env("NANOBOT_TEST_TIME", "2026-01-02T03:05:00Z");
        story.wait(command.spawn().unwrap()).stdout("Done.\n");
    }
    is_killed
}

/// System calls that change something outside of the program or wait for other processes; each kind is counted separately.
const TRACED_CALLS: [&str; 9] =
    ["write", "fsync", "fdatasync", "rename", "unlink", "mkdir", "flock", "connect", "clone3"];

/// Kills a run at each of these kinds of calls. Returns the number of calls that were reached.
fn kill_runs_at_calls<'a>(calls: impl IntoIterator<Item = &'a str>, job: &Value) -> usize {
    let kill = |call| inject_at_calls(|n| kill_run_at(call, n, job.clone()));
    calls.into_iter().map(kill).sum()
}

#[test]
fn a_killed_run_is_never_paid_twice() {
    if can_inject() {
        let kills = kill_runs_at_calls(TRACED_CALLS, &python_job(&every_minute()));
        assert!(kills > 25, "only {kills} calls");
    }
}

#[test]
fn a_killed_one_time_job_does_not_remain() {
    if can_inject() {
        let kills = kill_runs_at_calls(TRACED_CALLS, &one_time_job());
        assert!(kills > 35, "only {kills} calls");
    }
}

#[test]
#[ignore = "takes minutes; see tests/README.md"]
fn a_run_killed_at_any_system_call_is_never_paid_twice() {
    if !can_inject() {
        return;
    }
    for job in [python_job(&every_minute()), one_time_job()] {
        // Records which calls the run makes.
        let story = story_with_job(job.clone());
        let trace = story.dir().join("all");
        let mut command = story.program("strace");
        command.args(["-qq", "-o", trace.to_str().unwrap(), crate::story::NANOBOT]);
        let child = command.args(SCHEDULED).spawn().unwrap();
        story.wait(child).stdout("Done.\n");
        let text = std::fs::read_to_string(trace).unwrap();
        let names = text.lines().filter_map(|line| Some(line.split_once('(')?.0));
        // The first call is not made by the program itself, and nothing follows the last ones.
        let names: BTreeSet<&str> =
            names.filter(|name| *name != "execve" && !name.contains("exit")).collect();
        let kills = kill_runs_at_calls(names, &job);
        assert!(kills > 150, "only {kills} calls");
    }
}

/// A story with two jobs, the second of which has a session; returns the id of the second.
fn story_with_two_jobs() -> (Story, String) {
    let story = Story::new().set("memory", json!({ "consolidate": "manual" }));
    story.server().always(Box::new(|request: &Request| says("Done.")(request)));
    story.crontab().set_table(OTHER_CRONTAB);
    add_job(&story, &["-n", "first", "-c", "0 7 * * *"]);
    let id = add_job(&story, &["-n", "second", "-c", "0 8 * * *"]);
    story.run(["cron", "run", "second"]).stdout("Done.\n");
    (story, id)
}

/// The job names, and the hours of their crontab lines.
fn job_names_and_hours(story: &Story) -> (Vec<String>, Vec<String>) {
    let names = crate::cron::jobs(story);
    let names = names.iter().map(|job| job["name"].as_str().unwrap().to_owned());
    let table = story.crontab().table().unwrap();
    assert!(table.starts_with(OTHER_CRONTAB), "{table}");
    let hours = table.lines().filter(|line| line.contains(" cron run "));
    let hours = hours.map(|line| line[2..3].to_owned());
    (names.collect(), hours.collect())
}

/// Runs `cron remove` with the `n`-th call of this kind failing or killed. Returns whether there was one.
fn remove_with_fault(kind: &str, error: &str, n: usize) -> bool {
    let (story, id) = story_with_two_jobs();
    let before = story.crontab().table().unwrap();
    let (result, injected) =
        run_with_fault(&story, &["cron", "remove", "second"], &[], (kind, error, n));
    let case = format!("{kind} {error} {n}, {}: {}", result.code(), result.error_text());
    let is_done = result.code() == 0;
    result.text();
    drop(result);
    let old = (vec!["first".to_owned(), "second".into()], vec!["7", "8"]);
    let (names, hours) = job_names_and_hours(&story);
    assert!(names == old.0 || names == ["first"], "{case}: {names:?}");
    assert!(hours == old.1 || hours == ["7"], "{case}: {hours:?}");
    assert!(hours == ["7"] || story.crontab().table().unwrap() == before, "{case}");
    assert!(!is_done || (names == ["first"] && hours == ["7"]), "{case}");
    assert!(names == old.0 || hours == ["7"] || !is_done, "{case}");
    // The next `cron` command makes both consistent.
    add_job(&story, &["-n", "third", "-c", "0 9 * * *"]);
    let (names, hours) = job_names_and_hours(&story);
    match names.len() {
        2 => assert_eq!(hours, ["7", "9"], "{case}"),
        _ => assert_eq!(hours, ["7", "8", "9"], "{case}"),
    }
    story.run(["cron", "sync"]).stdout("The crontab is up to date.\n");
    // A second removal removes the rest.
    let again = story.run(["cron", "remove", &id]);
    assert!([0, 66].contains(&again.code()), "{case}: {}", again.error_text());
    again.text();
    again.error_text();
    drop(again);
    let path = story.home().join(".nanobot/cron").join(&id);
    assert!(!path.exists(), "{case}: its folder is left");
    injected
}

#[test]
fn a_killed_or_failed_removal_leaves_the_old_or_new_state() {
    if !can_inject() {
        return;
    }
    let kills = TRACED_CALLS.map(|call| (call, "SIGKILL"));
    let failures = [("write", "ENOSPC"), ("fsync", "EIO"), ("rename", "EIO")];
    let mut count = 0;
    for (kind, error) in kills.into_iter().chain(failures) {
        count += inject_at_calls(|n| remove_with_fault(kind, error, n));
    }
    assert!(count > 30, "only {count}");
}

/// Runs `cron add` with the `n`-th call of this kind failing. Returns whether there was one.
fn add_with_fault(kind: &str, error: &str, n: usize) -> bool {
    let (story, _) = story_with_two_jobs();
    let before = story.crontab().table().unwrap();
    let arguments = ["cron", "add", "-n", "third", "-m", "x", "-c", "0 9 * * *"];
    let (result, injected) = run_with_fault(&story, &arguments, &[], (kind, error, n));
    let case = format!("{kind} {error} {n}, {}: {}", result.code(), result.error_text());
    let (code, is_told) = (result.code(), !result.error_text().is_empty());
    result.text();
    drop(result);
    let (names, hours) = job_names_and_hours(&story);
    let is_new = names.len() == 3;
    assert!(is_new || names == ["first", "second"], "{case}: {names:?}");
    assert!(hours == ["7", "8", "9"] || story.crontab().table().unwrap() == before, "{case}");
    match code {
        0 => assert!(is_new && hours == ["7", "8", "9"], "{case}"),
        // The job is stored but not in the crontab, or the state of the crontab is unknown.
        1 | 74 => assert!(is_told, "{case}"),
        _ => panic!("{case}"),
    }
    // A job is never in the file without its limits.
    for job in crate::cron::jobs(&story) {
        let folder = crate::cron::job_dir(&story, job["id"].as_str().unwrap());
        assert!(folder.join("job.json").exists(), "{case}: {job}");
    }
    story.run(["cron", "sync"]).text();
    let (names, hours) = job_names_and_hours(&story);
    assert_eq!(names.len(), hours.len(), "{case}");
    injected
}

#[test]
fn a_failed_addition_leaves_the_old_or_new_state() {
    if !can_inject() {
        return;
    }
    for (kind, error) in [("write", "ENOSPC"), ("fsync", "EIO"), ("rename", "EIO")] {
        let count = inject_at_calls(|n| add_with_fault(kind, error, n));
        assert!(count > 0, "{kind}: none");
    }
}

/// The record of a slot that was missed, and the state that says so, are two files.
#[test]
fn a_missed_slot_is_recorded_once_wherever_the_process_is_killed() {
    if !can_inject() {
        return;
    }
    for kind in ["write", "fsync", "rename"] {
        let calls = inject_at_calls(|n| {
            let story = Story::new().env("NANOBOT_TEST_ZONE", "UTC");
            let id = add_job(&story, &["-c", "0 * * * *"]);
            let story = story.env("NANOBOT_TEST_TIME", "2026-01-02T05:30:00Z");
            let start = ["cron", "run", &id, "--scheduled"];
            let (ran, is_killed) = run_with_fault(&story, &start, &[], (kind, "SIGKILL", n));
            ran.code();
            drop(ran);
            story.run(start).stdout("");
            let path = crate::cron::job_dir(&story, &id).join("runs.jsonl");
            let records = std::fs::read_to_string(path).unwrap();
            assert_eq!(
                records.matches("\"outcome\":\"missed\"").count(),
                1,
                "{kind} {n}: {records}"
            );
            is_killed
        });
        assert!(calls > 0, "{kind}");
    }
}
