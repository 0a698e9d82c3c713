//! A job's run: when it starts, what it sends, where its answer is delivered, and what is recorded.

use crate::cron::add_job;
use crate::memory::{calls_save_memory, session_text};
use crate::requirements::require;
use crate::server::{Response, calls, fails, says, sends};
use crate::story::{NANOBOT, Story, write};
use crate::wait::until_change_in;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Creation time of the jobs in these stories, in milliseconds: five minutes before the stories' time.
pub(crate) const CREATED_AT_MS: i64 = 1_767_322_745_000;
pub(crate) const JOB_ID: &str = "0a1b2c3d";

/// A job as stored by the Python program.
pub(crate) fn python_job(schedule: &Value) -> Value {
    json!({
        "id": JOB_ID, "name": "digest", "enabled": true, "schedule": schedule,
        "payload": { "kind": "agent_turn", "message": "What is new?", "deliver": false, "channel": null, "to": null },
        "state": { "nextRunAtMs": null, "lastRunAtMs": null, "lastStatus": null, "lastError": null },
        "createdAtMs": CREATED_AT_MS, "updatedAtMs": CREATED_AT_MS, "deleteAfterRun": false,
    })
}

/// A schedule that is due every minute.
pub(crate) fn every_minute() -> Value {
    json!({ "kind": "cron", "atMs": null, "everyMs": null, "expr": "* * * * *", "tz": null })
}

pub(crate) fn write_jobs(story: &Story, jobs: &[Value]) {
    let file = json!({ "version": 1, "jobs": jobs });
    write(
        &story.workspace().join("cron/jobs.json"),
        serde_json::to_string_pretty(&file).unwrap().as_bytes(),
    );
}

pub(crate) fn job_dir(story: &Story) -> PathBuf {
    story.home().join(".nanobot/cron").join(JOB_ID)
}

/// Writes the options that only this program stores: `options`, for the current job definition, with the policy that the
/// program itself would store. The job is our own from the start.
pub(crate) fn write_terms(story: &Story, options: &Value) {
    let path = job_dir(story).join("job.json");
    let file = story.workspace().join("cron/jobs.json");
    let before = std::fs::read(&file).unwrap();
    let table = story.crontab().table();
    if path.exists() {
        std::fs::remove_file(&path).unwrap();
    }
    let edited = story.command(["cron", "edit", JOB_ID]).output().unwrap();
    assert!(edited.status.success(), "{edited:?}");
    let stored: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let mut options = options.clone();
    for key in ["policy", "message", "session"] {
        options[key] = stored[key].clone();
    }
    write(&path, options.to_string().as_bytes());
    write(&file, &before);
    story.crontab().set_table(table.unwrap_or_default());
}

pub(crate) fn records(story: &Story) -> Vec<Value> {
    crate::cron::records(story, JOB_ID)
}

pub(crate) fn outcomes(story: &Story) -> Vec<String> {
    let outcome = |record: &Value| record["outcome"].as_str().unwrap_or_default().to_owned();
    records(story).iter().map(outcome).collect()
}

/// The job as it is now in the job file; null if it was removed.
pub(crate) fn stored_job(story: &Story) -> Value {
    let text = std::fs::read(story.workspace().join("cron/jobs.json")).unwrap();
    let file: Value = serde_json::from_slice(&text).unwrap();
    file["jobs"][0].clone()
}

const SCHEDULED: [&str; 4] = ["cron", "run", JOB_ID, "--scheduled"];

fn at_time(story: Story, time: &str) -> Story {
    story.env("NANOBOT_TEST_TIME", time)
}

#[test]
fn a_slot_runs_once() {
    let story = Story::new().script([says("All is well.")]);
    write_jobs(&story, &[python_job(&every_minute())]);
    story.run(SCHEDULED).stdout("All is well.\n");
    // The same minute again.
    story.run(SCHEDULED);
    assert_eq!(outcomes(&story), ["ok"]);
    let record = &records(&story)[0];
    assert_eq!(record["slot"], "2026-01-02T03:04:00Z");
    assert_eq!(record["trigger"], "schedule");
    assert_eq!(record["release"], env!("CARGO_PKG_VERSION"));
    assert_eq!(record["host"], nanobot_os::host::name());
    assert_eq!(record["status"], 0);
    assert_eq!(record["session"], format!("cron:{JOB_ID}"));
    assert!(record["inputTokens"].as_u64().unwrap() > 0, "{record}");
    let output = std::fs::read_to_string(record["output"].as_str().unwrap()).unwrap();
    assert_eq!(output, "All is well.");
    let state = &stored_job(&story)["state"];
    assert_eq!(state["lastStatus"], "ok");
    assert_eq!(state["lastRunAtMs"], 1_767_323_045_000_i64);
    assert_eq!(state["nextRunAtMs"], 1_767_323_100_000_i64);
    let story = at_time(story, "2026-01-02T03:05:00Z").script([says("Still well.")]);
    story.run(SCHEDULED).stdout("Still well.\n");
    assert_eq!(outcomes(&story), ["ok", "ok"]);
}

#[test]
fn jobs_beyond_the_limit_wait_for_others() {
    let (sender, silence) = Response::streaming();
    let story = Story::new().set("cron.maxRunning", json!(1)).script([sends(silence)]);
    write_jobs(&story, &[python_job(&every_minute())]);
    add_job(&story, &["-n", "first", "-c", "0 8 * * *"]);
    add_job(&story, &["-n", "ended", "-c", "0 8 * * *"]);
    add_job(&story, &["-n", "late", "-c", "0 8 * * *", "--timeout", "1"]);
    let start = |arguments: &[&str]| story.command(arguments).spawn().unwrap();
    let mut first = start(&["cron", "run", "first"]);
    story.server().wait_for_requests(1);
    let waiting = start(&SCHEDULED);
    let state = job_dir(&story).join("state.json");
    until_change_in(&job_dir(&story), || {
        std::fs::read_to_string(&state).is_ok_and(|text| text.contains("\"waiting\":true"))
    });
    let listed = story.run(["cron", "list", "digest", "--json"]).json_lines();
    assert_eq!(listed[0]["waiting"], true);
    assert_eq!(listed[0]["begun"], "2026-01-02T03:04:05Z");
    story.run(["cron", "list", "digest"]).stdout_has("waiting, ").stderr_has("cron sync");
    story.run(["cron", "logs", "digest"]).stdout_has("waiting");
    // The wait counts: a job that has no time left is recorded.
    story.run(["cron", "run", "late"]).status(75).stderr_has("`cron.maxRunning`");
    let late = story.run(["cron", "list", "late", "--json"]).json_lines();
    assert_eq!(
        (&late[0]["last"]["outcome"], &late[0]["last"]["status"]),
        (&json!("failed"), &json!(75))
    );
    let mut ended = start(&["cron", "run", "ended"]);
    let mut line = String::new();
    BufReader::new(ended.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("waiting for other jobs to end"), "{line}");
    kill_process(Pid::from_child(&ended), Signal::TERM).unwrap();
    assert_eq!(story.wait(ended).signal(), Some(Signal::TERM.as_raw()));
    assert_eq!(story.requests().len(), 1);
    // A run that is ended while it waits has done nothing, and its slot runs.
    kill_process(Pid::from_child(&waiting), Signal::TERM).unwrap();
    assert_eq!(story.wait(waiting).signal(), Some(Signal::TERM.as_raw()));
    assert!(outcomes(&story).is_empty());
    let mut waiting = start(&SCHEDULED);
    until_change_in(&job_dir(&story), || {
        let pid = format!("\"pid\":{},", waiting.id());
        std::fs::read_to_string(&state).is_ok_and(|text| text.contains(&pid))
    });
    // So does one that is killed. The kernel gives the place of a killed run back.
    for child in [&mut waiting, &mut first] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    story.server().script([says("All is well.")]);
    story.run(SCHEDULED).stdout("All is well.\n");
    assert_eq!(outcomes(&story), ["ok"]);
    drop(sender);
    story
        .set("cron.maxRunning", json!(0))
        .run(["config", "check"])
        .status(78)
        .stdout_has("`cron.maxRunning` is 0");
}

/// A condition may run another job, which would wait for the place that its own job has.
#[test]
fn a_run_that_another_one_starts_needs_no_place_of_its_own() {
    let story = Story::new().set("cron.maxRunning", json!(1));
    story.server().script([says("The mail is sorted."), says("Read it.")]);
    add_job(&story, &["-n", "sort", "-e", "1h"]);
    let when = format!("{NANOBOT} cron run sort");
    add_job(&story, &["-n", "read", "-e", "1h", "--timeout", "20", "--when", &when]);
    story.run(["cron", "run", "read"]).stdout("Read it.\n");
    let content = story.requests()[1].last_content();
    assert!(content.contains("The mail is sorted."), "{content}");
}

#[test]
fn a_job_sends_only_the_last_run_of_its_session() {
    let story = Story::new().script([says("one"), says("two"), says("three")]);
    write_jobs(&story, &[python_job(&every_minute())]);
    for answer in ["one\n", "two\n", "three\n"] {
        story.run(["cron", "run", "digest"]).stdout(answer);
    }
    let contents = |request: usize| -> Vec<String> {
        let messages = story.requests()[request].messages();
        let others = messages.iter().filter(|message| message["role"] != "system");
        others.map(|message| message["role"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(contents(0), ["user"]);
    assert_eq!(contents(1), ["user", "assistant", "user"]);
    assert_eq!(contents(2), ["user", "assistant", "user"]);
    assert!(story.requests()[2].raw.contains("two"));
    assert!(!story.requests()[2].raw.contains("\"one\""));
    // The session file has all runs.
    let log = story.session(&format!("cron_{JOB_ID}.jsonl"));
    let answers = log.iter().filter(|line| line["role"] == "assistant").count();
    assert_eq!(answers, 3);
}

/// The conversation of a job that runs each minute does not grow for ever.
#[test]
fn a_large_session_of_a_job_is_begun_anew() {
    let story = Story::new().script([says("one"), says("two"), says("three")]);
    let id = add_job(&story, &["-n", "often", "-e", "1m"]);
    let path = story.workspace().join(format!("sessions/cron_{id}.jsonl"));
    story.run(["cron", "run", &id]).stdout("one\n");
    let first = std::fs::read_to_string(&path).unwrap();
    let more = json!({ "role": "user", "content": "x".repeat(3 << 20), "timestamp": "2026-01-02T03:04:05" });
    write(&path, format!("{first}{more}\n").as_bytes());
    story.run(["cron", "run", &id]).stdout("two\n");
    assert!(std::fs::read_to_string(&path).unwrap().len() < 10_000);
    story.run(["session", "restore"]).stdout_has(&format!("cron:{id}"));
    // A small one is continued.
    story.run(["cron", "run", &id]).stdout("three\n");
    let messages = std::fs::read_to_string(&path).unwrap();
    assert!(messages.contains("two") && messages.contains("three"));
}

#[test]
fn the_system_prompt_describes_the_run() {
    let story = Story::new().script([says("x")]);
    write_jobs(&story, &[python_job(&every_minute())]);
    story.run(SCHEDULED).stdout("x\n");
    let request = &story.requests()[0];
    let system = request.messages()[0]["content"].as_str().unwrap().to_owned();
    for phrase in ["`digest`", "NOTHING_TO_REPORT", "you cannot ask questions"] {
        assert!(system.contains(phrase), "{phrase} in {system}");
    }
    assert!(request.last_content().contains("What is new?"));
}

#[test]
fn a_job_with_nothing_to_report_prints_nothing() {
    let story = Story::new().script([says("I looked.\n\nNOTHING_TO_REPORT")]);
    write_jobs(&story, &[python_job(&every_minute())]);
    let to = story.dir().join("out.txt");
    write_terms(&story, &json!({ "v": 1, "sink": { "file": to } }));
    story.run(SCHEDULED);
    assert_eq!(outcomes(&story), ["nothing"]);
    assert!(!to.exists());
}

#[test]
fn an_answer_goes_to_a_file_or_a_command() {
    let story =
        Story::new().script([says("one"), says("two % 'three' \"four\"\n🐈"), says("five")]);
    write_jobs(&story, &[python_job(&every_minute())]);
    let to = story.dir().join("new/out.txt");
    write_terms(&story, &json!({ "v": 1, "sink": { "file": to } }));
    story.run(["cron", "run", JOB_ID]);
    story.run(["cron", "run", JOB_ID]);
    let text = std::fs::read_to_string(&to).unwrap();
    assert_eq!(text, "one\ntwo % 'three' \"four\"\n🐈\n");
    assert_eq!(records(&story)[0]["delivered"], format!("file:{}", to.display()));
    let command =
        format!("cat > {}; echo $NANOBOT_JOB_NAME >> {0}", story.dir().join("piped").display());
    write_terms(&story, &json!({ "v": 1, "sink": { "command": command } }));
    story.run(["cron", "run", JOB_ID]);
    let text = std::fs::read_to_string(story.dir().join("piped")).unwrap();
    assert_eq!(text, "five\ndigest\n");
}

#[test]
fn an_undeliverable_answer_is_printed_and_fails() {
    let story = Story::new().script([says("precious")]);
    write_jobs(&story, &[python_job(&every_minute())]);
    write_terms(&story, &json!({ "v": 1, "sink": { "command": "echo no such user; exit 3" } }));
    story
        .run(SCHEDULED)
        .status(1)
        .stdout("precious\n")
        .stderr_has("the answer was not delivered: `echo no such user; exit 3` failed with exit status 3: no such user");
    assert_eq!(outcomes(&story), ["failed"]);
    assert_eq!(stored_job(&story)["state"]["lastStatus"], "error");
}

#[test]
fn a_delivery_only_named_in_the_job_file_is_not_executed() {
    // Otherwise anyone who can write the job file would get a shell.
    let story = Story::new().script([says("x")]);
    let mut job = python_job(&every_minute());
    let to = format!("touch {}", story.dir().join("owned").display());
    job["payload"]["deliver"] = json!(true);
    job["payload"]["channel"] = json!("command");
    job["payload"]["to"] = json!(to);
    write_jobs(&story, &[job]);
    story.run(SCHEDULED).stdout("x\n");
    assert!(!story.dir().join("owned").exists());
}

#[test]
fn a_false_condition_skips_the_run_without_cost() {
    let story = Story::new().script([says("seen")]);
    write_jobs(&story, &[python_job(&every_minute())]);
    let when = |command: &str| write_terms(&story, &json!({ "v": 1, "when": command }));
    when("echo new mail; exit 1");
    story.run(["cron", "run", JOB_ID]);
    when("echo new mail");
    story.run(["cron", "run", JOB_ID]).stdout("seen\n");
    let last = story.requests()[0].last_content();
    assert!(last.contains("What is new?") && last.contains("new mail"), "{last}");
    for (command, status, message) in [
        ("nanobot-is-not-here", 1, "cannot be run (exit status 127)"),
        ("/etc/passwd", 1, "cannot be run (exit status 126)"),
        ("kill -9 $$", 1, "was killed by signal 9"),
    ] {
        when(command);
        story.run(["cron", "run", JOB_ID]).status(status).stderr_has(message);
    }
    assert_eq!(outcomes(&story), ["no", "ok", "failed", "failed", "failed"]);
}

/// Files that a run left in its working directory are not executed: neither programs nor files that an interpreter loads
/// from there.
#[test]
fn commands_run_in_the_home_and_not_in_the_writable_directory() {
    let story = Story::new().script([says("one"), fails(401, "no such key")]);
    write_jobs(&story, &[python_job(&every_minute())]);
    let work = story.dir().join("work");
    for dir in [&story.workspace(), &work] {
        write(&dir.join("check"), b"#!/bin/sh\necho planted\n");
    }
    let out = story.dir().join("out");
    let command_of = |name: &str| {
        let out = out.display();
        format!(
            "echo {name} \"$PWD\" \"$NANOBOT_DIRECTORY\" $(ls check 2>&1 | wc -l) >> {out}; test ! -e check"
        )
    };
    for directory in [None, Some(&work)] {
        let mut options = json!({
            "v": 1, "when": command_of("when"), "onFailure": command_of("failure"), "sink": { "command": command_of("to") },
        });
        if let Some(path) = directory {
            options["grants"] = json!({ "directory": path });
        }
        write_terms(&story, &options);
        let result = story.run(["cron", "run", JOB_ID]);
        let failed = i32::from(directory.is_some()) * 77;
        assert_eq!((result.code(), result.error_text().is_empty()), (failed, failed == 0));
    }
    let home = story.home().display().to_string();
    let (workspace, work) = (story.workspace(), work.display());
    let text = std::fs::read_to_string(&out).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines,
        [
            format!("when {home} {} 1", workspace.display()),
            format!("to {home} {} 1", workspace.display()),
            format!("when {home} {work} 1"),
            format!("failure {home} {work} 1"),
        ]
    );
    story
        .run(["cron", "edit", JOB_ID, "--when", "./check"])
        .stdout_has("Changed")
        .stderr_has("`--when` runs in `");
}

/// Replaces the first path, or the directory on its way, by a link to the second one.
type ReplaceWithLink = fn(&Path, &Path);

/// A run may change its working directory, but this must not redirect its answer.
#[test]
fn delivery_does_not_follow_a_link_created_later() {
    let path_of = |story: &Story| story.dir().join("work/in");
    let victim = |story: &Story| story.dir().join("victim");
    let replaced: [(&str, ReplaceWithLink); 3] = [
        ("the file", |path, victim| {
            symlink(victim.join("out"), path.join("out")).unwrap();
        }),
        ("its directory", |path, victim| {
            std::fs::rename(path, path.with_extension("old")).unwrap();
            symlink(victim, path).unwrap();
        }),
        ("one above", |path, victim| {
            let above = path.parent().unwrap();
            std::fs::rename(above, above.with_extension("old")).unwrap();
            std::fs::create_dir(victim.join("in")).unwrap();
            symlink(victim, above).unwrap();
        }),
    ];
    for (what, replace) in replaced {
        let story = Story::new().script([says("one"), says("two")]);
        write_jobs(&story, &[python_job(&every_minute())]);
        let (path, victim) = (path_of(&story), victim(&story));
        std::fs::create_dir_all(&path).unwrap();
        std::fs::create_dir(&victim).unwrap();
        // A link that exists when the job is added is followed.
        symlink(&path, story.dir().join("by")).unwrap();
        let to = story.dir().join("by/out");
        let flags = ["--channel", "file", "--to", to.to_str().unwrap()];
        let result = story.run(["cron", "edit", JOB_ID].iter().chain(&flags));
        result.stdout_has("Changed").error_text();
        story.run(["cron", "run", JOB_ID]);
        assert_eq!(std::fs::read_to_string(path.join("out")).unwrap(), "one\n");
        std::fs::remove_file(path.join("out")).unwrap();
        replace(&path, &victim);
        story
            .run(["cron", "run", JOB_ID])
            .status(74)
            .stdout("two\n")
            .stderr_has("is a symbolic link, or is reached through one");
        assert!(!victim.join("out").exists(), "{what}");
        assert!(!victim.join("in/out").exists(), "{what}");
    }
}

/// Commands are stored and printed without keys.
#[test]
fn keys_in_commands_stay_with_the_job() {
    const KEY: &str = "sk-ant-api03-Q1w2E3r4T5y6U7i8O9p0A1s2D3f4G5h6J7k8L9z0";
    const PASSWORD: &str = "hunter2-hunter2";
    let story = Story::new().script([says("one"), says("two")]);
    write_jobs(&story, &[python_job(&every_minute())]);
    let command =
        format!("cat >/dev/null; echo {KEY} https://u:{PASSWORD}@h.example/; exit $(cat status)");
    let flags = ["--channel", "command", "--to", &command, "--on-failure", &command];
    let result = story.run(["cron", "edit", JOB_ID].iter().chain(&flags));
    let mut stderr = result.text() + &result.error_text();
    drop(result);
    assert_eq!(stored_job(&story)["payload"]["to"], Value::Null);
    assert_eq!(stored_job(&story)["payload"]["channel"], "command");
    assert_eq!(stored_job(&story)["payload"]["deliver"], true);
    for status in ["3", "0"] {
        write(&story.home().join("status"), status.as_bytes());
        let result = story.run(["cron", "run", JOB_ID]);
        assert_eq!(result.code(), i32::from(status == "3"));
        stderr += &(result.text() + &result.error_text());
    }
    let when = format!("echo {KEY}; kill -9 $$");
    let result = story.run(["cron", "edit", JOB_ID, "--when", &when]);
    drop(result.stdout_has("Changed").error_text());
    stderr += &story.run(["cron", "run", JOB_ID]).status(1).error_text();
    assert!(
        stderr.contains("failed with exit status 3") && stderr.contains("sk-ant-***"),
        "{stderr}"
    );
    for arguments in [
        &["cron", "show", JOB_ID][..],
        &["cron", "show", JOB_ID, "--json"],
        &["cron", "list", "--json"],
        &["cron", "logs", JOB_ID],
        &["cron", "logs", JOB_ID, "--json"],
    ] {
        stderr += &story.run(arguments).text();
    }
    for path in [story.workspace().join("cron/jobs.json"), job_dir(&story).join("runs.jsonl")] {
        stderr += &std::fs::read_to_string(path).unwrap();
    }
    for secret in [KEY, PASSWORD] {
        let at = stderr.find(secret);
        assert!(at.is_none(), "{:?}", at.map(|at| &stderr[at.saturating_sub(300)..at]));
    }
    // The command itself is unchanged and stays with the job after an edit of another option.
    let result = story.run(["cron", "edit", JOB_ID, "--channel", "command", "--timeout", "60"]);
    drop(result.stdout_has("Changed").error_text());
    let text = std::fs::read_to_string(job_dir(&story).join("job.json")).unwrap();
    let options: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(options["sink"]["command"], command);
}

#[test]
fn a_failure_is_one_line_and_runs_the_failure_command() {
    let story = Story::new().script([fails(401, "no such key")]);
    write_jobs(&story, &[python_job(&every_minute())]);
    let log = story.dir().join("told");
    let command =
        format!("{{ cat; echo $NANOBOT_JOB $NANOBOT_STATUS $NANOBOT_CAUSE; }} > {}", log.display());
    write_terms(&story, &json!({ "v": 1, "onFailure": command }));
    let error = story.run(SCHEDULED).status(77).error_text();
    assert!(error.starts_with("nanobot: job `digest` (0a1b2c3d): "), "{error}");
    let text = std::fs::read_to_string(&log).unwrap();
    assert!(text.ends_with(&format!("{JOB_ID} 77 refused\n")), "{text}");
    assert!(text.contains("no such key"), "{text}");
    let state = &stored_job(&story)["state"];
    assert_eq!(state["lastStatus"], "error");
    assert!(state["lastError"].as_str().unwrap().contains("no such key"));
    // The next failure says how often, and since when.
    let story = story.script([fails(401, "no such key")]);
    let mut next = story.command(SCHEDULED);
    next.env("NANOBOT_TEST_TIME", "2026-01-02T03:05:05Z");
    let error = story.wait(next.spawn().unwrap()).status(77).error_text();
    let start = "nanobot: job `digest` (0a1b2c3d), failed 2 times since Fri 2 Jan 03:04: ";
    assert!(error.starts_with(start), "{error}");
}

#[test]
fn a_denied_call_fails_a_run_that_answered() {
    let story = Story::new().script([
        calls("write_file", json!({ "path": "/etc/motd", "content": "x" })),
        says("I could not."),
    ]);
    write_jobs(&story, &[python_job(&every_minute())]);
    story
        .run(SCHEDULED)
        .status(5)
        .stdout("I could not.\n")
        .stderr_has("a call of `write_file` was denied, which a job does not allow\n  try: `nanobot cron edit 0a1b2c3d --write=/etc/motd`\n");
    assert_eq!(records(&story)[0]["denied"], json!(["write_file"]));
    assert_eq!(outcomes(&story), ["failed"]);
}

/// So does a command of it that lacked a path, which would fail in each run.
#[test]
fn a_command_without_its_path_fails_a_run_that_answered() {
    let story = Story::new_in(Path::new("/var/tmp"))
        .script([calls("exec", json!({ "command": "cat ~/notes.txt" })), says("It is not there.")]);
    let notes = story.home().join("notes.txt");
    write(&notes, b"mine\n");
    write_jobs(&story, &[python_job(&every_minute())]);
    let edit = format!("try: `nanobot cron edit {JOB_ID} --read=$HOME/notes.txt`");
    let result = story.run(SCHEDULED);
    assert!(result.error_text().contains(&edit), "{}", result.error_text());
    result.status(5).stdout("It is not there.\n");
    assert_eq!(outcomes(&story), ["failed"]);
}

#[test]
fn quiet_jobs_store_their_answer() {
    let story = Story::new().script([says("for the record")]);
    write_jobs(&story, &[python_job(&every_minute())]);
    write_terms(&story, &json!({ "v": 1, "quiet": true }));
    story.run(SCHEDULED);
    story.run(["cron", "logs", JOB_ID, "--output"]).stdout("for the record\n");
    // A filter of the list is refused, not ignored.
    story
        .run(["cron", "logs", JOB_ID, "--output", "--failed"])
        .status(2)
        .stderr_has("the argument '--output' cannot be used with '--failed'");
}

/// The silence of a job has a flag of its own; `-q` only concerns what `cron add` says.
#[test]
fn a_job_without_a_channel_stores_its_answer() {
    let story = Story::new();
    let quiet = |arguments: &[&str]| {
        story.run([&["cron"], arguments].concat()).stdout_has("✓").stderr("");
        story.run(["cron", "show", "a"]).text()
    };
    let add = ["add", "-n", "a", "-m", "x", "-e", "1h"];
    let stdout = quiet(&[&add[..], &["-q"]].concat());
    assert!(stdout.contains("  printed\n"), "{stdout}");
    let stdout = quiet(&["-q", "edit", "a", "--channel", "none"]);
    assert!(stdout.contains("saved, not printed"), "{stdout}");
    let stdout = quiet(&["-q", "edit", "a", "--channel", "file", "--to", "log"]);
    assert!(stdout.contains("appended to"), "{stdout}");
    let stdout = quiet(&["-q", "edit", "a", "--channel", "none"]);
    assert!(stdout.contains("saved, not printed"), "{stdout}");
    let stdout = quiet(&["-q", "edit", "a", "--channel", ""]);
    assert!(stdout.contains("  printed\n"), "{stdout}");
    story
        .run(["cron", "edit", "a", "--channel", "none", "--to", "x"])
        .status(2)
        .stderr_has("`--channel none` has no destination");
}

#[test]
fn missed_slots_are_caught_up_once_or_never() {
    let daily = json!({ "kind": "cron", "expr": "0 2 * * *", "tz": null });
    let mut job = python_job(&daily);
    job["createdAtMs"] = json!(CREATED_AT_MS - 5 * 86_400_000);
    let story = Story::new().script([says("late")]);
    write_jobs(&story, &[job]);
    // An hour late, with five missed slots.
    story.run(SCHEDULED);
    story.run(SCHEDULED);
    assert_eq!(outcomes(&story), ["missed"]);
    std::fs::remove_dir_all(job_dir(&story)).unwrap();
    write_terms(&story, &json!({ "v": 1, "catchUp": "once" }));
    story.run(SCHEDULED).stdout("late\n");
    story.run(SCHEDULED);
    assert_eq!(outcomes(&story), ["ok"]);
    assert_eq!(records(&story)[0]["slot"], "2026-01-02T02:00:00Z");
}

#[test]
fn a_slot_run_by_another_program_is_skipped() {
    let story = Story::new();
    let mut job = python_job(&every_minute());
    job["state"]["lastRunAtMs"] = json!(CREATED_AT_MS + 300_000);
    write_jobs(&story, &[job]);
    story.run(SCHEDULED);
    assert_eq!(outcomes(&story), ["elsewhere"]);
}

#[test]
fn a_clock_set_back_repeats_no_slot() {
    let story = Story::new().script([says("once")]);
    write_jobs(&story, &[python_job(&every_minute())]);
    story.run(SCHEDULED).stdout("once\n");
    let story = at_time(story, "2026-01-02T03:01:00Z");
    story.run(SCHEDULED);
    assert_eq!(outcomes(&story), ["ok"]);
    // A slot recorded a year in the future is ignored.
    let state =
        json!({ "v": 1, "handledMs": CREATED_AT_MS + 365 * 86_400_000_i64, "started": null });
    write(&job_dir(&story).join("state.json"), state.to_string().as_bytes());
    let story = story.script([says("again")]);
    story.run(SCHEDULED).stdout("again\n");
}

#[test]
fn an_interrupted_run_is_reported_and_not_repeated() {
    let story = Story::new().script([says("after")]);
    let mut job = python_job(&every_minute());
    job["createdAtMs"] = json!(CREATED_AT_MS - 3_600_000);
    write_jobs(&story, &[job]);
    let slot = CREATED_AT_MS + 300_000 - 5000;
    let cut_off = |after: i64| {
        let started = json!({ "atMs": slot + after, "slotMs": slot, "pid": 4_000_000 });
        let state = json!({ "v": 1, "handledMs": slot, "started": started });
        let path = job_dir(&story).join("state.json");
        write(&path, state.to_string().as_bytes());
    };
    cut_off(1000);
    let log = story.dir().join("told");
    write_terms(&story, &json!({ "v": 1, "onFailure": format!("cat > {}", log.display()) }));
    story.run(SCHEDULED).stderr_has(
        "the last run was interrupted: it began at 2026-01-02T03:04:01Z as process 4000000",
    );
    assert_eq!(outcomes(&story), ["unknown"]);
    assert!(log.exists());
    story.run(SCHEDULED);
    // Where the job allows it, the slot is run again.
    std::fs::remove_file(job_dir(&story).join("runs.jsonl")).unwrap();
    cut_off(2000);
    write_terms(&story, &json!({ "v": 1, "afterCrash": "again" }));
    story.run(SCHEDULED).stdout("after\n").stderr_has("was interrupted");
    assert_eq!(outcomes(&story), ["unknown", "ok"]);
    assert_eq!(records(&story)[1]["slot"], records(&story)[0]["slot"]);
}

#[test]
fn one_time_jobs_are_removed_after_their_run() {
    let once = json!({ "kind": "at", "atMs": CREATED_AT_MS + 60_000 });
    let mut first = python_job(&once);
    first["deleteAfterRun"] = json!(true);
    let story = Story::new().script([says("reminder"), fails(401, "no")]);
    write_jobs(&story, &[first.clone()]);
    story.run(SCHEDULED).stdout("reminder\n");
    assert_eq!(stored_job(&story), Value::Null);
    assert_eq!(outcomes(&story), ["ok"]);
    story.run(["cron", "logs", JOB_ID]).stdout_has("digest (0a1b2c3d)");
    // A failed job is kept and not run again.
    std::fs::remove_dir_all(job_dir(&story)).unwrap();
    write_jobs(&story, &[first]);
    let result = story.run(SCHEDULED).status(77);
    result.error_text();
    assert_eq!(stored_job(&story)["enabled"], false);
    story.run(SCHEDULED);
}

#[test]
fn jobs_that_cannot_run_are_reported() {
    let story = Story::new();
    let mut off = python_job(&every_minute());
    off["enabled"] = json!(false);
    write_jobs(&story, &[off]);
    story.run(SCHEDULED);
    let broken = json!({ "kind": "cron", "expr": "61 * * * *", "tz": null });
    write_jobs(&story, &[python_job(&broken)]);
    story.run(SCHEDULED).status(78).stderr_has("61");
    write_jobs(&story, &[]);
    story.run(SCHEDULED).status(66).stderr_has("nanobot cron sync");
    story.run(["cron", "run", "nightly"]).status(66).stderr_has("nanobot cron list --all");
}

#[test]
fn due_jobs_run_in_parallel() {
    let story = Story::new().script([says("x"), says("x")]);
    let mut second = python_job(&every_minute());
    second["id"] = json!("ffffffff");
    let mut not_due = python_job(&json!({ "kind": "cron", "expr": "0 0 1 7 *", "tz": null }));
    not_due["id"] = json!("eeeeeeee");
    write_jobs(&story, &[python_job(&every_minute()), second, not_due]);
    let taken = story.command(["cron", "sync"]).output().unwrap();
    assert!(taken.status.success(), "{taken:?}");
    story.run(["cron", "run", "--due"]).stdout("x\nx\n");
    story.run(["cron", "run", "--due"]);
}

#[test]
fn the_ledger_lists_the_cost_of_a_run_under_its_job() {
    let story = Story::new().script([says("x")]);
    write_jobs(&story, &[python_job(&every_minute())]);
    story.run(SCHEDULED).stdout("x\n");
    story.run(["usage", "--by", "job"]).stdout_has(JOB_ID);
}

#[test]
fn a_reminder_is_retried_after_a_transient_failure() {
    let mut once = python_job(&json!({ "kind": "at", "atMs": CREATED_AT_MS + 60_000 }));
    once["deleteAfterRun"] = json!(true);
    let down = || fails(503, "overloaded");
    let story = Story::new().script([down(), down(), down(), down(), says("at last")]);
    write_jobs(&story, &[once.clone()]);
    story.run(SCHEDULED).status(69).stderr("");
    assert_eq!(stored_job(&story)["enabled"], true);
    let state = std::fs::read(job_dir(&story).join("state.json")).unwrap();
    let state: Value = serde_json::from_slice(&state).unwrap();
    assert_eq!(state["retry"]["number"], 1);
    story.run(SCHEDULED);
    let mut later = story.command(SCHEDULED);
    later.env("NANOBOT_TEST_TIME", "2026-01-02T03:14:05Z");
    story.wait(later.spawn().unwrap()).stdout("at last\n");
    assert_eq!(stored_job(&story), Value::Null);
    assert_eq!(outcomes(&story), ["failed", "ok"]);
    // The number of retries is limited.
    std::fs::remove_dir_all(job_dir(&story)).unwrap();
    once["schedule"]["atMs"] = json!(CREATED_AT_MS - 3_600_000);
    once["createdAtMs"] = json!(CREATED_AT_MS - 7_200_000);
    let story = story.script([down(), down(), down(), down()]);
    write_jobs(&story, &[once]);
    write_terms(&story, &json!({ "v": 1, "catchUp": "once", "retry": 0 }));
    story.run(SCHEDULED).status(69).stderr_has("overloaded");
    assert_eq!(stored_job(&story)["enabled"], false);
}

#[test]
fn a_manual_run_consumes_no_slot() {
    let story = Story::new().script([fails(401, "no"), says("due")]);
    let mut job = python_job(&every_minute());
    job["createdAtMs"] = json!(CREATED_AT_MS - 3_600_000);
    write_jobs(&story, &[job]);
    story.run(["cron", "run", JOB_ID]).status(77).stderr_has("no");
    story.run(SCHEDULED).stdout("due\n");
    assert_eq!(outcomes(&story), ["failed", "ok"]);
}

#[test]
fn a_job_that_always_crashes_is_not_restarted_forever() {
    let story = Story::new();
    let mut job = python_job(&every_minute());
    job["createdAtMs"] = json!(CREATED_AT_MS - 3_600_000);
    write_jobs(&story, &[job]);
    write_terms(&story, &json!({ "v": 1, "afterCrash": "again" }));
    let slot = CREATED_AT_MS + 300_000 - 5000;
    let text = |time: i64| jiff::Timestamp::from_millisecond(time).unwrap().to_string();
    let before = json!({
        "version": 1, "job": JOB_ID, "name": "digest", "trigger": "schedule", "slot": text(slot), "start": text(slot),
        "end": text(slot), "outcome": "unknown", "status": 1, "cause": "failed",
    });
    write(&job_dir(&story).join("runs.jsonl"), format!("{before}\n").as_bytes());
    let started = json!({ "atMs": slot + 1000, "slotMs": slot, "pid": 4_000_000 });
    let state = json!({ "v": 1, "handledMs": slot, "started": started });
    write(&job_dir(&story).join("state.json"), state.to_string().as_bytes());
    story.run(SCHEDULED).stderr_has("was interrupted");
    assert_eq!(outcomes(&story), ["unknown", "unknown"]);
}

#[test]
fn an_answer_is_delivered_even_if_the_disk_is_full() {
    let story = Story::new().script([says("precious")]);
    write_jobs(&story, &[python_job(&every_minute())]);
    // A file blocks the directory of answers.
    write(&job_dir(&story).join("output"), b"");
    story.run(SCHEDULED).status(74).stdout("precious\n").stderr_has("the answer was not stored");
}

#[test]
fn a_job_changed_during_its_run_is_not_marked_as_done() {
    let story = Story::new();
    let mut once = python_job(&json!({ "kind": "at", "atMs": CREATED_AT_MS + 60_000 }));
    once["deleteAfterRun"] = json!(true);
    let path = story.workspace().join("cron/jobs.json");
    let mut other = once.clone();
    other["schedule"] = json!({ "kind": "at", "atMs": CREATED_AT_MS + 86_400_000 });
    let file = json!({ "version": 1, "jobs": [other] }).to_string();
    let story = story.script([Box::new(move |request: &crate::server::Request| {
        std::fs::write(&path, &file).unwrap();
        says("done")(request)
    }) as crate::server::Responder]);
    write_jobs(&story, &[once]);
    story.run(SCHEDULED).stdout("done\n");
    assert_eq!(stored_job(&story)["enabled"], true);
    // Cron works in whole minutes.
    assert_eq!(stored_job(&story)["state"]["nextRunAtMs"], CREATED_AT_MS + 86_400_000 + 55_000);
}

#[test]
fn job_state_dropped_by_another_program_during_a_run_is_preserved() {
    let story = Story::new();
    let path = story.workspace().join("cron/jobs.json");
    let empty = json!({ "version": 1, "jobs": [] }).to_string();
    let story = story.script([Box::new(move |request: &crate::server::Request| {
        std::fs::write(&path, &empty).unwrap();
        says("done")(request)
    }) as crate::server::Responder]);
    write_jobs(&story, &[python_job(&every_minute())]);
    write_terms(&story, &json!({ "v": 1 }));
    story.run(SCHEDULED).stdout("done\n");
    assert!(job_dir(&story).join("job.json").exists());
    assert_eq!(outcomes(&story), ["ok"]);
}

#[test]
fn a_timed_out_run_still_reports_its_failure() {
    let story = Story::new();
    write_jobs(&story, &[python_job(&every_minute())]);
    let log = story.dir().join("told");
    // Three seconds are more than the end of a run may take.
    let command = format!("sleep 3; cat > {}", log.display());
    write_terms(&story, &json!({ "v": 1, "timeout": 1, "when": "sleep 60", "onFailure": command }));
    story
        .run(SCHEDULED)
        .status(124)
        .stderr_has("nanobot: job `digest` (0a1b2c3d): stopped: `--timeout` expired");
    assert!(log.exists());
}

#[test]
fn a_followed_log_has_each_new_run() {
    let story = Story::new().script([says("1"), says("2"), says("3"), says("4")]);
    write_jobs(&story, &[python_job(&every_minute())]);
    let run = |time: &str, answer: &str| {
        let mut command = story.command(["cron", "run", JOB_ID]);
        command.env("NANOBOT_TEST_TIME", time);
        story.wait(command.spawn().unwrap()).stdout(answer);
    };
    run("2026-01-02T03:00:00Z", "1\n");
    let mut log = story.command(["cron", "logs", "--follow", "--json"]).spawn().unwrap();
    let mut lines = BufReader::new(log.stdout.take().unwrap()).lines();
    let mut next_start = || {
        let record: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        record["start"].clone()
    };
    assert_eq!(next_start(), "2026-01-02T03:00:00Z");
    // The second run ends at the same time. Before the third one, the clock is set back.
    let times = ["2026-01-02T03:00:00Z", "2026-01-02T02:00:00Z", "2026-01-02T03:01:00Z"];
    for (time, answer) in times.into_iter().zip(["2\n", "3\n", "4\n"]) {
        run(time, answer);
    }
    assert_eq!([next_start(), next_start(), next_start()], times);
    kill_process(Pid::from_child(&log), Signal::TERM).unwrap();
    assert_eq!(story.wait(log).signal(), Some(Signal::TERM.as_raw()));
}

#[test]
fn jobs_that_fail_or_are_overdue_are_reported() {
    let story = Story::new();
    story.crontab().set_table("");
    let at = |time: &str, arguments: &[&str]| {
        let mut command = story.command(arguments);
        command.env("NANOBOT_TEST_TIME", time);
        command.env_remove("NANOBOT_MEMORY__CONSOLIDATE");
        story.wait(command.spawn().unwrap())
    };
    let day = "2026-01-02T08:00:00Z";
    at(day, &["cron", "check"]).stdout("");
    let add = ["cron", "add", "--name", "digest", "--cron", "0 * * * *", "-m", "x"];
    drop(at(day, &add).status(0).text());
    let id = crate::cron::jobs(&story)[0]["id"].as_str().unwrap().to_owned();
    let run = |time: &str| at(time, &["cron", "run", &id, "--scheduled"]);

    story.server().script([says("ok")]);
    run("2026-01-02T09:00:00Z").stdout("ok\n");
    at("2026-01-02T09:30:00Z", &["cron", "check"]).stdout("");
    at("2026-01-02T10:04:00Z", &["cron", "check"]).stdout("");
    let late = at("2026-01-02T10:06:00Z", &["cron", "check"]).status(1);
    assert!(late.text().starts_with(&format!("digest ({id}): overdue since ")));
    drop(late);
    for time in ["2026-01-02T11:00:00Z", "2026-01-02T12:00:00Z"] {
        story.server().script([fails(401, "the key was revoked")]);
        run(time).status(77).stderr_has("digest");
    }
    let line = at("2026-01-02T12:30:00Z", &["cron", "check"]).status(1).text();
    assert!(line.starts_with(&format!("digest ({id}): failed 2 times since ")), "{line}");
    assert!(line.contains("key was revoked") && line.contains("; last success "), "{line}");
    let json = at("2026-01-02T12:30:00Z", &["cron", "check", "--json"]).status(1).json_lines();
    assert_eq!(json[0]["problem"], "failing");
    assert_eq!(json[0]["failures"], 2);
    assert_eq!(json[0]["last_success"], "2026-01-02T09:00:00Z");
    let listed = at("2026-01-02T12:30:00Z", &["cron", "list"]);
    assert!(listed.text().contains("failed (77) 2 times"), "{}", listed.text());
    drop(listed);
    let logs = |arguments: &[&str]| {
        let all = [&["cron", "logs", "--json"], arguments].concat();
        at("2026-01-03T12:30:00Z", &all).json_lines().len()
    };
    assert_eq!(logs(&[]), 3);
    assert_eq!(logs(&["--failed"]), 2);
    assert_eq!(logs(&["--since", "2026-01-03"]), 0);
    assert_eq!(logs(&["--since", "2026-01-02", "--failed"]), 2);

    // A success ends it; a disabled job has no problem.
    story.server().script([says("ok"), fails(401, "no")]);
    run("2026-01-02T13:00:00Z").stdout("ok\n");
    at("2026-01-02T13:30:00Z", &["cron", "check"]).stdout("");
    drop(run("2026-01-02T14:00:00Z").status(77).error_text());
    drop(at("2026-01-02T14:30:00Z", &["cron", "check"]).status(1).text());
    drop(at("2026-01-02T14:30:00Z", &["cron", "disable", &id]).text());
    at("2026-01-02T14:30:00Z", &["cron", "check"]).stdout("");
    // The crontab is part of it.
    drop(at("2026-01-02T14:30:00Z", &["cron", "enable", &id]).text());
    story.crontab().set_table("");
    let line =
        at("2026-01-02T14:30:00Z", &["cron", "check"]).status(1).stdout_has("nanobot cron sync");
    drop(line);
}

#[test]
fn the_state_of_jobs_is_printed_for_prometheus() {
    let story = Story::new()
        .set("budget.daily", json!(2.5))
        .set("models", json!({ "scripted": { "price": { "input": 0, "output": 1e6 / 7.0 } } }))
        .script([says("ok"), fails(401, "no")]);
    let mut job = python_job(&every_minute());
    job["name"] = json!("di\"gest");
    write_jobs(&story, &[job]);
    drop(story.command(["cron", "sync"]).output().unwrap());
    story.run(SCHEDULED).stdout("ok\n");
    let text = story.run(["status", "metrics"]).text();
    let has =
        |text: &str, line: &str| assert!(text.lines().any(|other| other == line), "{line}\n{text}");
    let labels = format!("{{job=\"{JOB_ID}\",name=\"di\\\"gest\"}}");
    has(&text, "# TYPE nanobot_job_last_run_status gauge");
    has(&text, &format!("nanobot_job_last_run_status{labels} 0"));
    has(&text, &format!("nanobot_job_problem{labels} 0"));
    has(&text, &format!("nanobot_job_last_run_output_tokens{labels} 7"));
    has(&text, &format!("nanobot_job_last_run_cost_dollars{labels} 1"));
    has(&text, "nanobot_cost_dollars{period=\"day\"} 1");
    has(&text, "nanobot_budget_dollars{period=\"day\"} 2.5");
    assert!(!text.contains("nanobot_budget_dollars{period=\"month\"}"));
    drop(story.run(["cron", "run", JOB_ID]).status(77).error_text());
    let text = story.run(["status", "metrics"]).text();
    has(&text, &format!("nanobot_job_problem{labels} 1"));
    has(&text, &format!("nanobot_job_failures{labels} 1"));
    has(&text, &format!("nanobot_job_last_run_status{labels} 77"));
    if require("promtool") {
        let path = story.dir().join("metrics");
        write(&path, text.as_bytes());
        let mut promtool = story.program("promtool");
        promtool.args(["check", "metrics"]);
        promtool.stdin(File::open(path).unwrap());
        story.wait(promtool.spawn().unwrap()).stdout("");
    }
    Story::new().run(["status", "metrics"]).stdout_has("nanobot_cost_dollars{period=\"day\"} 0");
}

/// A consolidation in the same process comes last, and what is reported before it is seen.
#[test]
fn the_end_of_a_job_is_reported_although_it_is_consolidated() {
    let story = Story::new()
        .workspace_file("sessions/cli_direct.jsonl", session_text("cli:direct", 120))
        .env("NANOBOT_MEMORY__CONSOLIDATE", "inline")
        .set(
            "hooks",
            json!({ "job_end": [{ "command": "echo no disk >&2; exit 1", "name": "h" }] }),
        )
        .script([says("Here."), calls_save_memory("[2026-01-01 10:00] Words.", "m")]);
    let id = add_job(&story, &["-n", "often", "-e", "1m", "--session", "cli:direct"]);
    story.run(["cron", "run", &id]).stdout("Here.\n").stderr_has("hook `h`");
    assert_eq!(story.requests().len(), 2);
}

/// A run can be looked at and repeated later: its calls, its conversation, its output and its input.
#[test]
fn a_run_is_shown_with_its_calls_and_repeated_with_its_input() {
    let story = Story::new().env("NANOBOT_TEST_ZONE", "UTC").file("in.txt", "three new\n");
    let input = story.dir().join("in.txt");
    let command = format!("grep . {}", input.display());
    let id = add_job(&story, &["-n", "count", "--every", "1h", "--when", &command]);
    let at = |time: &str, arguments: &[&str]| {
        let mut command = story.command(["cron"].iter().chain(arguments));
        command.env("NANOBOT_TEST_TIME", format!("2026-01-02T{time}:00Z"));
        story.wait(command.spawn().unwrap())
    };
    story.server().script([
        calls("list_dir", json!({ "path": "." })),
        calls("read_file", json!({ "path": "nosuch" })),
        says("Two files."),
        fails(401, "no"),
    ]);
    at("08:00", &["run", "count"]).stdout("Two files.\n");
    at("09:00", &["run", "count"]).status(77).stderr_has("no");
    write(&input, b"");
    at("10:00", &["run", "count"]).stdout("");
    let runs = at("10:01", &["logs", "count", "--json"]).json_lines();
    let [first, failed, unneeded] =
        [0, 1, 2].map(|index: usize| runs[index]["run"].as_str().unwrap());
    at("10:01", &["logs"]).stdout_has(&format!("{first}  Fri 2 Jan 08:00  count ({id})  ok"));

    let turn = runs[0]["turn"].as_str().unwrap();
    let show = format!("nanobot session show cron:{id} --turn {turn}");
    let output = at("10:01", &["logs", "--run", first]);
    for row in [
        &format!("run          {first}\njob          count ({id})\noutcome      ok\n"),
        &format!("turn         {show}\n"),
        "call         list_dir {\"path\":\".\"}\ncall         read_file {\"path\":\"nosuch\"} ✗\n",
        "output       ~/.nanobot/cron/",
    ] {
        assert!(output.text().contains(row), "{row}: {}", output.text());
    }
    drop(output);
    let conversation = story.run(show.split(' ').skip(1)).text();
    assert!(conversation.contains("Two files."), "{conversation}");
    assert_eq!(conversation.matches(" user, ").count(), 1, "{conversation}");
    story
        .run(["session", "show", &format!("cron:{id}"), "--turn", "nosuch"])
        .status(66)
        .stdout_has("# cron:")
        .stderr_has("has no turn `nosuch`");
    let line = at("10:01", &["logs", "--run", first, "--json"]).json();
    let failed_call =
        json!({ "name": "read_file", "arguments": { "path": "nosuch" }, "failed": true });
    assert_eq!(line["tool_calls"][1], failed_call);
    // Any output, not only the last one.
    at("10:01", &["logs", "--run", first, "--output"]).stdout("Two files.\n");
    at("10:01", &["logs", "--run", failed, "--output"]).status(66).stderr_has("had no output");
    at("10:01", &["logs", "--output"]).status(2).stderr_has("<JOB|--run <RUN>>");
    at("10:01", &["logs", "--run", "nosuch"]).status(66).stderr_has("there is no run `nosuch`");

    at("10:02", &["rerun", unneeded]).status(2).stderr_has("had no input: not needed");
    story.server().script([says("Three."), says("Again.")]);
    at("10:03", &["rerun", failed]).stdout("Three.\n").stderr("");
    let content = story.last_request().last_content();
    assert!(content.contains("do it\n\n<stdin>\nthree new\n</stdin>"), "{content}");
    let message = ["edit", "count", "-m", "count them"];
    let mut edit = story.command(["cron"].iter().chain(&message));
    edit.env("NANOBOT_TEST_TIME", "2026-01-02T10:04:00Z");
    drop(story.wait(edit.spawn().unwrap()).stdout_has("count"));
    let result = at("10:05", &["rerun", failed, "--json"]);
    assert_eq!(result.json()["trigger"], "hand");
    result.stderr_has("`count` was changed after that run: it runs as it is now");
    let content = story.last_request().last_content();
    assert!(content.contains("count them\n\n<stdin>\nthree new\n"), "{content}");

    drop(story.run(["session", "rm", &format!("cron:{id}")]).stderr_has("to the trash"));
    at("10:06", &["logs", "--run", first])
        .stdout_has("turn         no longer in the session cron:");
    at("10:06", &["remove", "count"]).stdout_has("Removed").error_text();
    at("10:06", &["rerun", failed]).status(66).stderr_has("there is no run");
}

/// A repeated run has the input of that run. Without it, it asks no model.
#[test]
fn a_run_is_not_repeated_without_its_input() {
    let story = Story::new().script([fails(401, "no")]);
    let records_of = |id: &str| {
        let path = crate::cron::job_dir(&story, id).join("runs.jsonl");
        let text = std::fs::read_to_string(path).unwrap();
        let ids = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        ids.map(|record| record["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    // It failed before there was one: the condition is checked again.
    let broken = add_job(&story, &["-n", "broken", "--every", "1h", "--when", "/nonexistent/x"]);
    story.run(["cron", "run", "broken"]).status(1).stderr_has("`--when` cannot be run");
    story.run(["cron", "rerun", &records_of(&broken)[0]]).status(1).stderr_has("cannot be run");
    assert!(story.requests().is_empty());
    // It is no longer stored.
    let full = add_job(&story, &["-n", "full", "--every", "1h", "--when", "echo 90%"]);
    story.run(["cron", "run", "full"]).status(77).stderr_has("no");
    std::fs::remove_dir_all(crate::cron::job_dir(&story, &full).join("output")).unwrap();
    let run = &records_of(&full)[0];
    story.run(["cron", "rerun", run]).status(66).stderr_has("is no longer stored");
    assert_eq!(story.requests().len(), 1);
    // Records of earlier releases have no id.
    let path = crate::cron::job_dir(&story, &full).join("runs.jsonl");
    let text = std::fs::read_to_string(&path).unwrap();
    write(&path, text.replace(&format!("\"id\":\"{run}\","), "").as_bytes());
    story.run(["cron", "rerun", ""]).status(66).stderr_has("there is no run ``");
}
