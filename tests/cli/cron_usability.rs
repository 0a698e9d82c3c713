//! Typical input of a first-time user of `nanobot cron`, and the messages they get.

use crate::cron::{add_job, job_dir, jobs, run_cron};
use crate::server::says;
use crate::story::{Story, write};
use crate::usage::{NO_COLOR, run_on_terminal};
use serde_json::{Value, json};
use std::fs;

/// The schedule of the only job.
fn only_schedule(story: &Story) -> (Value, Value) {
    let schedule = &jobs(story)[0]["schedule"];
    (schedule["expr"].clone(), schedule["tz"].clone())
}

#[test]
fn an_edit_preserves_the_time_zone() {
    let story = Story::new();
    let id = add_job(&story, &["-c", "0 8 * * *", "--tz", "Europe/Paris"]);
    run_cron(&story, &["edit", &id, "-c", "30 7 * * *"])
        .stdout_has("at 07:30 each day, Europe/Paris time\n");
    assert_eq!(only_schedule(&story), ("30 7 * * *".into(), "Europe/Paris".into()));
    run_cron(&story, &["edit", &id, "--tz", "Europe/London"])
        .stdout_has("at 07:30 each day, Europe/London time\n");
    assert_eq!(only_schedule(&story), ("30 7 * * *".into(), "Europe/London".into()));
    run_cron(&story, &["edit", &id, "--tz", ""]).stdout_has("at 07:30 each day\n");
    assert_eq!(only_schedule(&story), ("30 7 * * *".into(), Value::Null));
    run_cron(&story, &["edit", &id, "--tz", "Mars/Olympus"])
        .status(2)
        .stderr_has("there is no time zone `Mars/Olympus`");
    run_cron(&story, &["edit", &id, "-e", "2h"]).stdout_has("every 2 hours\n");
    for (flags, hint) in [
        (&["--tz", "UTC"][..], "`--cron` with it"),
        (&["-e", "3h", "--tz", "UTC"], "the same without `--tz`"),
        (&["--at", "2099-01-01T08:00", "--tz", "UTC"], "an offset in the time"),
    ] {
        let result = run_cron(&story, &[&["edit", &id], flags].concat()).status(2);
        result.stderr_has("`--tz` can only be used with `--cron`").stderr_has(hint);
    }
    run_cron(&story, &["add", "-m", "x", "--tz", "UTC"])
        .status(2)
        .stderr_has("`--tz` can only be used with `--cron`");
}

/// Writes a record of a run of the job `id`.
fn write_record(story: &Story, id: &str, name: &str, more: &Value) {
    let mut record = json!({
        "version": 1, "id": "1a2b3c4d", "job": id, "name": name, "trigger": "schedule", "slot": "2026-01-01T09:00:00Z",
        "start": "2026-01-01T09:00:01.250Z", "end": "2026-01-01T09:00:31.5Z", "outcome": "ok", "status": 0,
        "cause": "answered", "session": "s", "turn": "t", "model": "m", "iterations": 2, "inputTokens": 1000,
        "outputTokens": 10, "costUsd": null,
    });
    let record_of = record.as_object_mut().unwrap();
    record_of.extend(more.as_object().unwrap().clone());
    let path = job_dir(story, id).join("runs.jsonl");
    write(&path, format!("{record}\n").as_bytes());
}

#[test]
fn a_reminder_that_failed_is_not_lost() {
    let story = Story::new();
    let id = add_job(&story, &["-n", "call", "--at", "2026-01-02T04:00"]);
    let cause = "the key was rejected by a server that has a great many words for that";
    let failed = json!({ "outcome": "failed", "status": 77, "cause": "refused", "error": cause });
    write_record(&story, &id, "call", &failed);
    let off = add_job(&story, &["-n", "off", "-e", "1h"]);
    run_cron(&story, &["disable", &id, &off]).stdout_has("✓ Job 'call' disabled\n");
    run_cron(&story, &["list"])
        .stdout(&format!(
            "ID        NAME  SCHEDULE                      NEXT           LAST                             COST\n\
             {id}  call  once, on 2026-01-02 at 04:00  never: failed  failed (77), Thu 1 Jan 09:00  unknown\n"
        ))
        .stderr("nanobot: 1 job is disabled; `--all` shows it\n");
    run_cron(&story, &["show", "call"])
        .stdout_has("last         failed (77), Thu 1 Jan 09:00\n")
        .stdout_has(&format!("cause        {cause}\n"))
        .stdout_has("runs         1\n");
    run_cron(&story, &["logs", "call", "--output"])
        .status(66)
        .stderr_has("the last run (failed (77), Thu 1 Jan 09:00) had no output")
        .stderr_has(&format!("`nanobot cron logs {id}`"));
}

#[test]
fn machine_readable_times_and_names_have_one_format() {
    let story = Story::new();
    let id = add_job(&story, &["-n", "digest", "-e", "1h"]);
    write_record(&story, &id, "digest", &json!({ "costUsd": 0.5 }));
    let mut run = run_cron(&story, &["logs", "--json"]).json_lines().remove(0);
    for (key, expect) in [
        ("start", json!("2026-01-01T09:00:01Z")),
        ("end", json!("2026-01-01T09:00:31Z")),
        ("slot", json!("2026-01-01T09:00:00Z")),
        ("input_tokens", json!(1000)),
        ("cost_usd", json!(0.5)),
    ] {
        assert_eq!(run[key], expect, "{key}");
    }
    let job = run_cron(&story, &["show", &id, "--json"]).json_lines().remove(0);
    run.as_object_mut().unwrap().remove("v");
    assert_eq!(job["last"], run);
    assert_eq!(job["created"], "2026-01-02T03:04:05Z");
    run_cron(&story, &["logs"]).stdout(&format!(
        "RUN       STARTED          JOB                OUTCOME   TOOK  TOKENS     COST  CAUSE OR DELIVERY\n\
         1a2b3c4d  Thu 1 Jan 09:00  digest ({id})  ok       30.2s    1010  $0.5000\n"
    ));
    run_cron(&story, &["logs", "-n", "0"]).stdout("");
}

#[test]
fn a_run_in_progress_differs_from_an_interrupted_one() {
    let story = Story::new();
    let id = add_job(&story, &["-n", "digest", "-e", "1h"]);
    let started = json!({ "atMs": 1_767_322_800_000_u64, "slotMs": null, "pid": 4_000_000 });
    let state = json!({ "v": 1, "handledMs": null, "started": started }).to_string();
    write(&job_dir(&story, &id).join("state.json"), state.as_bytes());
    let check = |phrase: &str| {
        let when = format!("{phrase}, Fri 2 Jan 03:00");
        run_cron(&story, &["list"]).stdout_has(&when);
        run_cron(&story, &["show", &id]).stdout_has(&format!("last         {when}\n"));
        run_cron(&story, &["logs"])
            .stdout_has(&format!("Fri 2 Jan 03:00  digest ({id})  {phrase}\n"));
        let line = run_cron(&story, &["show", &id, "--json"]).json_lines().remove(0);
        assert_eq!(line["running"], phrase == "running");
    };
    check("interrupted");
    assert!(!job_dir(&story, &id).join("lock").exists());
    let lock = fs::File::create(job_dir(&story, &id).join("lock")).unwrap();
    lock.lock().unwrap();
    check("running");
}

#[test]
fn jobs_with_a_missing_file_stay_in_the_crontab() {
    let story = Story::new();
    let id = add_job(&story, &["-n", "digest", "-e", "1h"]);
    let file = story.workspace().join("cron/jobs.json");
    let (text, table) = (fs::read(&file).unwrap(), story.crontab().table());
    fs::remove_file(&file).unwrap();
    let message =
        format!("the job file is missing; 1 of its jobs still has data and a crontab line: {id}");
    run_cron(&story, &["list"]).stdout("").stderr(&format!("nanobot: {message}\n"));
    for arguments in [&["sync"][..], &["sync", "--dry-run"], &["add", "-m", "x", "-e", "2h"]] {
        run_cron(&story, arguments).status(78).stderr_has(&message);
    }
    story
        .run(["status", "check", "--offline"])
        .status(78)
        .stdout_has(&format!("no    jobs         {message}\n"));
    assert!(!file.exists());
    assert_eq!(story.crontab().table(), table);
    // The job can be added again or discarded.
    write(&file, &text);
    run_cron(&story, &["sync"]).stdout("The crontab is up to date.\n");
    fs::remove_file(&file).unwrap();
    run_cron(&story, &["remove", &id]).stdout(&format!("✓ Removed job {id}\n"));
    assert_eq!(story.crontab().table(), None);
    run_cron(&story, &["add", "-m", "x", "-e", "2h"]).stdout_has("✓ Added");
}

#[test]
fn typos_are_reported_with_the_correct_form() {
    let story = Story::new();
    let check = |flags: &[&str], arguments: &str| {
        run_cron(&story, &[&["add", "-m", "x"], flags].concat()).status(2).stderr_has(arguments);
    };
    check(&["--at", "2026-02-30T08:00"], "`--at`: `2026-02-30T08:00`: February 2026 has 28 days");
    check(
        &["-c", "61 * * * *"],
        "nanobot: `--cron`: `61 * * * *`: `61` is not a valid minute: 0 to 59",
    );
    check(
        &["-e", "1h", "--channel", "fiel", "--to", "x"],
        "there is no channel `fiel`; did you mean `file`?",
    );
    check(&["-e", "1h", "--to", "x"], "`--channel file` or `--channel command`");
    run_cron(&story, &["add", "-m", "x", "-e", "1h", "--channel", "msteams", "--to", "7", "-d"])
        .stdout_has("✓ Added")
        .stderr_has("cannot deliver to `msteams`");
}

#[test]
fn a_quoted_tilde_expands_to_the_home() {
    let story = Story::new();
    let inbox = story.home().join("inbox");
    fs::create_dir(&inbox).unwrap();
    let id = add_job(&story, &["-e", "1h", "--read", "~/inbox"]);
    let read = || -> Value {
        let text = fs::read(job_dir(&story, &id).join("job.json")).unwrap();
        let options: Value = serde_json::from_slice(&text).unwrap();
        options["grants"].clone()
    };
    assert_eq!(read()["read"], json!([inbox]));
    run_cron(&story, &["edit", &id, "--write=~/inbox"])
        .stdout_has("✓ Changed")
        .stderr_has("its earlier permission flags `--read=");
    assert_eq!(read()["write"], json!([inbox]));
    // A directory that stays is no flag that is replaced.
    let id = add_job(&story, &["-e", "1h", "-C", "."]);
    run_cron(&story, &["edit", &id, "--write"]).stdout_has("✓ Changed");
}

#[test]
fn synonyms_are_accepted() {
    let story = Story::new();
    let id = add_job(&story, &["-n", "digest", "-e", "1h"]);
    run_cron(&story, &["pause", "digest"]).stdout("✓ Job 'digest' disabled\n");
    run_cron(&story, &["resume", "digest"]).stdout("✓ Job 'digest' enabled\n");
    run_cron(&story, &["update", "digest", "-e", "2h"]).stdout_has("every 2 hours\n");
    run_cron(&story, &["edit", "digest"])
        .stdout_has("✓ Changed job 'digest'")
        .stderr(
            "nanobot: nothing else changed: the job's permissions are fixed again from the current config\n",
        );
    run_cron(&story, &["delete", "digest"]).stdout(&format!("✓ Removed job {id} ('digest')\n"));
}

#[test]
fn a_different_path_variable_is_reported_briefly() {
    let story = Story::new();
    add_job(&story, &["-n", "one", "-e", "1h"]);
    let table = story.crontab().table().unwrap();
    let path = table.split(" PATH=").nth(1).unwrap();
    let path = path.split(' ').next().unwrap();
    let old = || {
        let table = story.crontab().table().unwrap();
        story.crontab().set_table(table.replace(path, "/usr/bin"));
    };
    old();
    run_cron(&story, &["sync", "--dry-run"]).stdout_has("- 4 * * * *");
    run_cron(&story, &["sync"]).stdout("1 line changed (PATH)\n");
    assert_eq!(story.crontab().table().unwrap(), table);
    old();
    story.run(["-q", "cron", "sync"]);
    assert_eq!(story.crontab().table().unwrap(), table);
    old();
    run_cron(&story, &["add", "-m", "x", "-e", "2h"])
        .stdout_has("✓ Added")
        .stderr("nanobot: this shell's PATH now applies to 1 other job too\n");
}

#[test]
fn the_list_is_as_wide_as_the_terminal() {
    let story = Story::new();
    let id = add_job(&story, &["-n", "a name of some length", "-c", "0 8 * * 1-5"]);
    assert_eq!(
        run_on_terminal(&story, 60, "cron list", &NO_COLOR),
        format!(
            "ID        NAME         SCHEDULE  NEXT             LAST  COST\n\
             {id}  a name of …  at 08:0…  Fri 2 Jan 08:00\n"
        )
    );
    // The outcome of the last run stays; its time does not.
    let failed = json!({ "outcome": "failed", "status": 77, "cause": "refused", "error": "no" });
    write_record(&story, &id, "a name of some length", &failed);
    let table = run_on_terminal(&story, 80, "cron list", &NO_COLOR);
    let expect = format!(
        "{id}  a name of some l…  at 08:00 on…  Fri 2 Jan 08:00  failed (77)  unknown
"
    );
    assert!(table.contains(&expect), "{table}");
}

#[test]
fn a_manual_run_without_output_explains_why() {
    let story = Story::new().script([says("NOTHING_TO_REPORT")]);
    let id = add_job(&story, &["-e", "1h"]);
    let output = run_on_terminal(&story, 60, &format!("cron run {id}"), &NO_COLOR);
    assert!(output.ends_with("nanobot: nothing to report\n"), "{output:?}");
    run_cron(&story, &["edit", &id, "--when", "false"]).stdout_has("✓ Changed");
    let output = run_on_terminal(&story, 60, &format!("cron run {id}"), &NO_COLOR);
    assert!(output.ends_with("nanobot: the `--when` condition is not met\n"), "{output:?}");
    // Cron has no terminal, and there is nothing to mail.
    run_cron(&story, &["run", &id]);
}
