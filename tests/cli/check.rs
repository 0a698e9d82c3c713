//! `status check`: its findings for healthy and broken setups. The check itself leaves nothing behind.

use crate::cron::{add_job, run_cron};
use crate::cron_run::{self, CREATED_AT_MS, JOB_ID, every_minute, python_job};
use crate::requirements::skip;
use crate::server::{Ending, Response, fails, says, sends};
use crate::story::write_program;
use crate::story::{NANOBOT, RunResult, Story, TIME, write};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

/// `status check` in a shell with the same environment as cron; sends no request to a provider.
fn check_command(story: &Story, arguments: &[&str]) -> Command {
    let mut command = story.command(["status", "check", "--offline"].iter().chain(arguments));
    command.env_remove("NANOBOT_MEMORY__CONSOLIDATE");
    command
}

fn run_check<'a>(story: &'a Story, variables: &[(&str, &str)]) -> RunResult<'a> {
    let mut command = check_command(story, &[]);
    command.envs(variables.iter().copied());
    story.wait(command.spawn().unwrap())
}

/// All findings of the check `name`, as `LEVEL: MESSAGE`; `variables` are those of the shell.
#[track_caller]
fn findings(story: &Story, variables: &[(&str, &str)], name: &str) -> Vec<String> {
    let mut command = check_command(story, &["--json"]);
    command.envs(variables.iter().copied());
    let result = story.wait(command.spawn().unwrap());
    let all = result.json();
    let rows = all.as_array().unwrap();
    let first = rows.iter().find(|row| row["ok"] == false);
    let status = first.map_or(0, |row| row["status"].as_i64().unwrap());
    assert_eq!(i64::from(result.code()), status, "{rows:?}");
    let named = rows.iter().filter(|row| row["name"] == name);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    named.map(|row| format!("{}: {}", text(&row["level"]), text(&row["detail"]))).collect()
}

/// Makes the home inaccessible to other users.
fn make_private(story: &Story) {
    let mode = |path: &Path, mode: u32| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        fs::set_permissions(path, mode).unwrap();
    };
    mode(&story.home(), 0o700);
    mode(&story.home().join(".nanobot/config.json"), 0o600);
}

/// A story with one hourly job.
fn story_with_job() -> (Story, String) {
    let story = Story::new();
    fs::create_dir_all(story.workspace()).unwrap();
    let id = add_job(&story, &["--name", "digest", "--cron", "0 * * * *"]);
    (story, id)
}

/// All files below `path`, with their contents.
fn read_tree(path: &Path) -> BTreeSet<(String, Vec<u8>)> {
    let mut files = BTreeSet::new();
    let mut folders = vec![path.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.display().to_string();
            if path.is_dir() {
                files.insert((name, Vec::new()));
                folders.push(path);
            } else {
                files.insert((name, fs::read(&path).unwrap()));
            }
        }
    }
    files
}

#[test]
fn a_healthy_setup_passes_every_check() {
    let (story, id) = story_with_job();
    make_private(&story);
    let before = read_tree(&story.home());
    let table = story.crontab().table();
    let version = env!("CARGO_PKG_VERSION");
    let text = run_check(&story, &[]).text();
    assert_eq!(text, format!(
        "ok    config       ~/.nanobot/config.json
ok    places       workspace `~/.nanobot/workspace`
ok    sessions     none yet
ok    memory       0 B
ok    skills       none besides the built-in ones
ok    sandbox      a command ran in namespaces of its own, under Landlock and seccomp
ok    provider     `scripted` of custom, key from providers.custom.apiKey; not contacted (--offline)
ok    jobs         1 job in `~/.nanobot/workspace/cron/jobs.json`
ok    schedules    every job has a valid schedule
ok    crontab      readable: 1 nanobot line
ok    lines        they match the jobs
ok    program      `{NANOBOT}`, nanobot {version}
ok    cron         running
ok    mail         cron can mail what jobs print
ok    keys         every job can reach a model
ok    probe        a demo job ran in cron's environment in less than 1 s; real jobs use `scripted` of custom, key from providers.custom.apiKey
ok    runs         no job failed in its last run
"
    ));
    // No request was sent, and no file is left.
    assert_eq!(read_tree(&story.home()), before);
    assert_eq!(story.crontab().table(), table);
    assert_eq!(story.requests().len(), 0);
    assert_eq!(story.crontab().calls().iter().filter(|call| *call != "-l").count(), 1);
    let jobs = story.wait(check_command(&story, &["--json"]).spawn().unwrap());
    let rows = jobs.json();
    let keys: Vec<&String> = rows[0].as_object().unwrap().keys().collect();
    let names = ["name", "ok", "level", "detail", "try", "jobs", "status"];
    assert_eq!(keys, names);
    drop(jobs);
    // A different PATH in the shell is not reported.
    let path = format!("/opt/x:{}", story.path());
    assert_eq!(findings(&story, &[("PATH", &path)], "lines"), ["ok: they match the jobs"]);
    run_cron(&story, &["remove", &id]).stdout_has("✓ Removed");
}

#[test]
fn without_jobs_the_probe_still_runs() {
    let story = Story::bare().workspace_file("x", "");
    let text = run_check(&story, &[]).status(78).text();
    for phrase in [
        "warn  config       no config file: all settings have their defaults\n                   try: `nanobot onboard`\n",
        "no    provider     no provider is configured\n                   try: ",
        "ok    jobs         no jobs\n",
        "warn  probe        a job started by cron has no model: no provider is configured\n                   try: ",
    ] {
        assert!(text.contains(phrase), "{phrase}: {text}");
    }
    // Problems with cron are not errors while there are no jobs.
    story.crontab().set_behavior("forbidden");
    let variables = [("NANOBOT_TEST_DAEMON", "no")];
    for name in ["crontab", "cron"] {
        assert!(
            findings(&story, &variables, name)[0].starts_with("ok: not needed: no enabled job"),
            "{name}"
        );
    }
}

#[test]
fn an_unreadable_crontab_is_reported() {
    let (story, id) = story_with_job();
    for (kind, message) in [
        ("forbidden", "this user is not allowed to use crontab: "),
        ("torn", "cannot use the crontab: crontab: input/output error"),
    ] {
        story.crontab().set_behavior(kind);
        let crontab = findings(&story, &[], "crontab");
        assert!(crontab[0].starts_with(&format!("no: {message}")), "{crontab:?}");
        assert_eq!(findings(&story, &[], "lines"), [""; 0]);
    }
    story.crontab().set_behavior("");
    assert_eq!(
        findings(&story, &[("PATH", "/nowhere")], "crontab"),
        ["no: `crontab` is not installed"]
    );
    run_check(&story, &[("PATH", "/nowhere")])
        .status(74)
        .stdout_has("try: `nanobot cron run --due` once a minute from another scheduler");
    // The crontab of another program does not affect our result.
    story.crontab().set_table("0 5 * * * backup\n");
    assert_eq!(
        findings(&story, &[], "lines"),
        [format!("no: not in the crontab: `digest` ({id})")]
    );
    run_cron(&story, &["sync"]).stdout_has("+ 0 * * * *");
    assert_eq!(findings(&story, &[], "lines"), ["ok: they match the jobs"]);
}

#[test]
fn crontab_lines_that_differ_from_the_jobs_are_reported() {
    let (story, id) = story_with_job();
    let table = story.crontab().table().unwrap();
    let stale = format!("no: outdated in the crontab: `digest` ({id})");
    for (from, to) in [
        ("\n0 * * * * ", "\n5 * * * * ".to_owned()),
        (" HOME=", " HOME=/elsewhere NANOBOT_HOME=".to_owned()),
        (" cron run ", " -w /elsewhere cron run ".to_owned()),
    ] {
        story.crontab().set_table(table.replace(from, &to));
        assert_eq!(findings(&story, &[], "lines"), std::slice::from_ref(&stale), "{to}");
    }
    let surplus = |line: &str| line.replace(&id, "ffffffff");
    let line = table.lines().find(|line| line.ends_with("--scheduled")).unwrap();
    story.crontab().set_table(table.replace(line, &format!("{line}\n{}", surplus(line))));
    assert_eq!(findings(&story, &[], "lines"), ["no: lines of removed or disabled jobs: ffffffff"]);
    run_cron(&story, &["sync"]).stdout_has("- 0 * * * *");
    run_check(&story, &[]).stdout_has("ok    lines");
}

#[test]
fn jobs_of_another_program_are_listed_without_failure() {
    let story = Story::new();
    let mut other = python_job(&json!({ "kind": "cron", "expr": "61 * * * *" }));
    other["id"] = json!("ffffffff");
    other["name"] = json!("odd");
    cron_run::write_jobs(&story, &[python_job(&every_minute()), other]);
    assert_eq!(
        findings(&story, &[], "lines"),
        [format!("warn: owned by another program, which runs them itself: `digest` ({JOB_ID})")]
    );
    let schedules = findings(&story, &[], "schedules");
    assert!(
        schedules[0].starts_with("warn: `odd` (ffffffff) never runs: invalid expression"),
        "{schedules:?}"
    );
    run_cron(&story, &["sync"]).stdout_has("+ * * * * *").stderr_has("`odd` is not in the crontab");
    assert_eq!(findings(&story, &[], "lines"), ["ok: they match the jobs"]);
    // From now on it depends on cron.
    let variables = [("NANOBOT_TEST_DAEMON", "no")];
    assert_eq!(
        findings(&story, &variables, "cron"),
        ["no: no cron daemon is running: nothing starts the jobs"]
    );
    story.crontab().set_table("");
    assert_eq!(
        findings(&story, &[], "lines"),
        [format!("no: not in the crontab: `digest` ({JOB_ID})")]
    );
}

#[test]
fn a_job_without_a_usable_id_has_a_hint_that_can_be_followed() {
    let story = Story::new();
    let mut job = python_job(&every_minute());
    job["id"] = json!("");
    (job["payload"]["deliver"], job["payload"]["channel"]) = (json!(true), json!("telegram"));
    job["payload"]["to"] = json!("7");
    cron_run::write_jobs(&story, &[job]);
    let text = run_check(&story, &[]).text();
    let hint = "never runs: its id may only contain letters, digits, `_` and `-`\n                   \
                try: change the id in the job file by hand\n";
    assert!(text.contains(hint), "{text}");
    assert!(!text.contains("cron edit"), "{text}");
}

#[test]
fn an_unreadable_job_file_is_reported_and_preserved() {
    let (story, _) = story_with_job();
    let folder = story.workspace().join("cron");
    fs::write(folder.join("jobs.json"), "{\"jobs\": [").unwrap();
    let jobs = findings(&story, &[], "jobs");
    assert!(jobs[0].contains("jobs.json` cannot be used: EOF"), "{jobs:?}");
    assert!(jobs[0].contains("jobs.json.corrupt-"), "{jobs:?}");
    // The lines cannot be checked, but the other checks still run.
    assert_eq!(findings(&story, &[], "lines"), [""; 0]);
    assert!(findings(&story, &[], "probe")[0].starts_with("ok: "));
    let text = fs::read_to_string(folder.join("jobs.json")).unwrap();
    assert_eq!(text, "{\"jobs\": [");
    // The summary in `status` does not fail.
    story.run(["status"]).stdout_has("cannot be used: EOF");
}

#[test]
fn schedules_that_never_fire_are_reported() {
    let (story, id) = story_with_job();
    let path = story.workspace().join("cron/jobs.json");
    let text = fs::read_to_string(&path).unwrap();
    let with_zone = text.replace("\"tz\": null", "\"tz\": \"Mars/Olympus\"");
    assert_ne!(with_zone, text);
    fs::write(&path, with_zone).unwrap();
    assert_eq!(
        findings(&story, &[], "schedules"),
        [format!(
            "no: `digest` ({id}) never runs: there is no time zone `Mars/Olympus` on this machine"
        )]
    );
    let lines = findings(&story, &[], "lines");
    assert!(lines[0].starts_with("no: outdated in the crontab"), "{lines:?}");
}

#[test]
fn a_stopped_cron_daemon_is_reported() {
    let (story, _) = story_with_job();
    let daemon = |word: &str| findings(&story, &[("NANOBOT_TEST_DAEMON", word)], "cron");
    assert_eq!(daemon("no"), ["no: no cron daemon is running: nothing starts the jobs"]);
    assert_eq!(daemon("unknown"), ["warn: cannot detect whether a cron daemon is running"]);
}

#[test]
fn a_missing_or_different_program_is_reported() {
    let (story, _) = story_with_job();
    let table = story.crontab().table().unwrap();
    let old = story.dir().join("an old nanobot");
    let started = |path: &Path| table.replace(NANOBOT, &format!("'{}'", path.display()));
    story.crontab().set_table(started(&old));
    let program = findings(&story, &[], "program");
    assert!(
        program[0].starts_with(
            "no: the lines start `$DIR/an old nanobot`, which cannot be run: No such file"
        ),
        "{program:?}"
    );
    write_program(&old, "#!/bin/sh\necho nanobot 0.0.9\n");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    fs::set_permissions(&old, mode).unwrap();
    let program = findings(&story, &[], "program");
    assert!(program[0].contains("Permission denied"), "{program:?}");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&old, mode).unwrap();
    let own = env!("CARGO_PKG_VERSION");
    assert_eq!(
        findings(&story, &[], "program"),
        [format!(
            "warn: the lines start `$DIR/an old nanobot`, which is nanobot 0.0.9; this is nanobot {own}"
        )]
    );
    // The lines themselves are correct.
    assert_eq!(findings(&story, &[], "lines"), ["ok: they match the jobs"]);
    run_cron(&story, &["sync"]).stdout_has(NANOBOT);
    run_check(&story, &[]).stdout_has("ok    program");
}

#[test]
fn a_key_missing_in_cron_is_reported() {
    let story = Story::bare().config(&json!({
        "agents": { "defaults": { "provider": "openrouter", "model": "a/b" } },
    }));
    fs::create_dir_all(story.workspace()).unwrap();
    let variables = [("OPENROUTER_API_KEY", "key-of-the-shell")];
    let message = "the API key is only in $OPENROUTER_API_KEY, which cron does not set";
    // Without jobs it is only a notice.
    assert_eq!(findings(&story, &variables, "probe"), [format!("warn: {message}")]);
    run_check(&story, &variables).status(0).stdout_has(
        "try: `printenv OPENROUTER_API_KEY | nanobot config set providers.openrouter.apiKey -`",
    );
    let mut add = story.command(["cron", "add", "-m", "x", "-n", "a", "-e", "1h"]);
    add.envs(variables).env_remove("NANOBOT_MEMORY__CONSOLIDATE");
    let result = story.wait(add.spawn().unwrap());
    result.stdout_has("✓ Added").stderr_has(message);
    assert_eq!(findings(&story, &variables, "probe"), [format!("no: {message}")]);
    run_check(&story, &variables).status(78).stdout_has(message);
    let keys = findings(&story, &variables, "keys");
    assert!(keys[0].ends_with(&format!("): {message}")), "{keys:?}");
    // A key command is run as cron would run it.
    let story =
        story.set("providers", json!({ "openrouter": { "apiKeyCommand": "echo k$SHELL" } }));
    let probe = findings(&story, &variables, "probe");
    assert!(probe[0].starts_with("ok: "), "{probe:?}");
    let story = story.set("providers", json!({ "openrouter": { "apiKeyCommand": "pass show x" } }));
    let probe = findings(&story, &variables, "probe");
    assert!(
        probe[0].starts_with("no: a job started by cron has no model: read the key from"),
        "{probe:?}"
    );
}

#[test]
fn settings_missing_outside_the_shell_are_reported() {
    let (story, _) = story_with_job();
    let proxy = [("HTTPS_PROXY", "http://127.0.0.1:9")];
    let variables = findings(&story, &proxy, "variables");
    assert!(
        variables[0].starts_with("warn: jobs will not have HTTPS_PROXY under cron: "),
        "{variables:?}"
    );
}

#[test]
fn failed_runs_are_reported() {
    let story = Story::new();
    cron_run::write_jobs(&story, &[python_job(&every_minute())]);
    cron_run::write_terms(&story, &json!({ "v": 1 }));
    let folder = cron_run::job_dir(&story);
    let runs = |outcomes: &[&str]| {
        let record = |outcome: &&str| {
            json!({
                "version": 1, "job": JOB_ID, "name": "digest", "trigger": "schedule", "slot": "2026-01-02T02:00:00Z",
                "start": TIME, "end": TIME, "outcome": outcome, "status": 77, "cause": "refused", "error": "no such key",
                "session": "", "turn": "", "model": "", "iterations": 0, "inputTokens": 0, "outputTokens": 0, "costUsd": null,
            })
            .to_string()
        };
        let lines: Vec<String> = outcomes.iter().map(record).collect();
        write(&folder.join("runs.jsonl"), (lines.join("\n") + "\n").as_bytes());
        findings(&story, &[], "runs").remove(0)
    };
    let of_job = format!("warn: `digest` ({JOB_ID})");
    assert_eq!(runs(&["ok", "failed"]), format!("{of_job} failed, Fri 2 Jan 03:04: no such key"));
    run_check(&story, &[]).status(1).stdout_has(&format!("try: `nanobot cron logs {JOB_ID}`"));
    // Runs by another process and overlapping runs do not count as failures.
    assert!(runs(&["failed", "busy", "elsewhere"]).contains("failed, Fri"));
    assert_eq!(runs(&["failed", "ok"]), "ok: no job failed in its last run");
    assert_eq!(runs(&["ok", "missed"]), format!("{of_job} missed its slot, Fri 2 Jan 02:00"));
    assert!(runs(&["unknown"]).contains("was interrupted, Fri 2 Jan 03:04:"));
    let began = |pid: u32| {
        let started = json!({ "atMs": CREATED_AT_MS, "slotMs": null, "pid": pid });
        let state = json!({ "v": 1, "handledMs": null, "started": started });
        write(&folder.join("state.json"), state.to_string().as_bytes());
        runs(&["ok"])
    };
    assert_eq!(
        began(4_000_000),
        format!("{of_job} was interrupted: its run began Fri 2 Jan 02:59 and left no result")
    );
    // A running job is not reported.
    assert_eq!(began(std::process::id()), "ok: no job failed in its last run");
}

#[test]
fn undeliverable_answers_are_reported() {
    let story = Story::new();
    let mut job = python_job(&every_minute());
    job["payload"]["deliver"] = json!(true);
    job["payload"]["channel"] = json!("msteams");
    job["payload"]["to"] = json!("1");
    cron_run::write_jobs(&story, &[job]);
    assert_eq!(
        findings(&story, &[], "delivery"),
        [
            "warn: this version cannot deliver to `msteams`: answers of `digest` are printed, and cron mails them"
        ]
    );
}

#[test]
fn an_invalid_config_ends_the_check() {
    let story = Story::bare().config_text("{\"agents\": {\"defaults\": {\"model\": 7}}}");
    let text = run_check(&story, &[]).status(78).text();
    assert!(text.starts_with("no    config       "), "{text}");
    assert_eq!(text.lines().filter(|line| !line.starts_with(' ')).count(), 1, "{text}");
}

#[test]
fn missing_directories_and_non_directories_are_reported() {
    let story = Story::new();
    assert_eq!(
        findings(&story, &[], "places"),
        [
            "warn: the workspace `~/.nanobot/workspace` does not exist: the first run creates it empty"
        ]
    );
    assert!(!story.workspace().exists());
    write(&story.home().join(".nanobot/cron"), b"in the way");
    assert_eq!(
        findings(&story, &[], "places"),
        [
            "no: cannot write job records: write in `$HOME/.nanobot/cron`: Not a directory (os error 20)"
        ]
    );
}

#[test]
fn an_unwritable_home_is_reported() {
    let (story, _) = story_with_job();
    // The file system itself refuses, so that root is refused too.
    let script = "mount --bind \"$HOME\" \"$HOME\" && mount -o remount,bind,ro \"$HOME\" && exec \"$0\" \"$@\"";
    let within = |program: &str, arguments: &[&str]| {
        let mut command = story.program("unshare");
        command.args(["-Urm", "sh", "-c", script, program]).args(arguments);
        command.env_remove("NANOBOT_MEMORY__CONSOLIDATE");
        story.wait(command.spawn().unwrap())
    };
    let tried = within("true", &[]);
    let (code, stderr) = (tried.code(), tried.error_text());
    drop(tried);
    if code != 0 {
        skip(&format!("there are no namespaces of mounts: {stderr}"));
        return;
    }
    let text = within(NANOBOT, &["status", "check", "--offline"]).status(74).text();
    assert!(
        text.contains("no    places       cannot write the usage ledger: write in `$HOME/.nanobot`: Read-only file system"),
        "{text}"
    );
    // The probe needs no files there.
    assert!(text.contains("ok    probe"), "{text}");
}

#[test]
fn the_probe_runs_the_command_of_a_crontab_line() {
    let (story, _) = story_with_job();
    // A directory in the home with the name of the demo is not taken for a recording.
    write(&story.home().join("demo"), b"x");
    assert!(findings(&story, &[], "probe")[0].starts_with("ok: "));
    let story = story.set("agents.defaults.profile", json!("careful"));
    let probe = findings(&story, &[], "probe").join("\n");
    assert!(probe.contains("there is no profile `careful`"), "{probe}");
    write(
        &story.home().join(".nanobot/profiles/careful.md"),
        b"---\nextends: default\n---\nBe careful.\n",
    );
    assert!(findings(&story, &[], "probe")[0].starts_with("ok: "));
}

#[test]
fn status_summarizes_cron() {
    let (story, id) = story_with_job();
    let glance = |story: &Story| {
        let text = story.run(["status"]).text();
        let lines = text.lines().filter(|line| {
            ["cron ", "failed ", "heartbeat "].iter().any(|name| line.starts_with(name))
        });
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(
        glance(&story),
        ["cron       1 job, next `digest` Fri 2 Jan 04:00 (in 55 min)", "heartbeat  off"]
    );
    let result = story.run(["cron", "heartbeat", "enable"]).stdout_has("✓ Heartbeat enabled");
    result.error_text();
    drop(result);
    let off = add_job(&story, &["--name", "off", "-e", "1h"]);
    run_cron(&story, &["disable", &off]).stdout_has("disabled");
    let path = story.workspace().join("cron/jobs.json");
    let mut file: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    file["jobs"][0]["state"] =
        json!({ "lastRunAtMs": CREATED_AT_MS, "lastStatus": "error", "lastError": "no such\nkey" });
    fs::write(&path, file.to_string()).unwrap();
    assert_eq!(
        glance(&story),
        [
            "cron       2 jobs, 1 disabled, next `digest` Fri 2 Jan 04:00 (in 55 min)",
            "failed     `digest`, Fri 2 Jan 02:59: no such key",
            "heartbeat  every 30 minutes, next Fri 2 Jan 03:34 (in 29 min)"
        ]
    );
    let calls = story.crontab().calls().len();
    let cron = story.run(["status", "--json"]).json()["cron"].clone();
    assert_eq!(
        cron,
        json!({
            "jobs": 2, "enabled": 1, "error": null,
            "next": { "id": id, "name": "digest", "time": "2026-01-02T04:00:00Z" },
            "last_failure": { "id": id, "name": "digest", "time": "2026-01-02T02:59:05Z", "error": "no such\nkey" },
            "heartbeat": { "every_s": 1800, "next": "2026-01-02T03:34:00Z" },
        })
    );
    assert_eq!(story.crontab().calls().len(), calls, "a glance starts nothing");
}

#[test]
fn the_provider_check_reports_the_reply_or_the_failure() {
    let story = Story::new().script([says("Hello.")]);
    let run = |arguments: &[&str]| {
        let mut command = story.command(["status", "check"].iter().chain(arguments));
        command.env_remove("NANOBOT_MEMORY__CONSOLIDATE");
        story.wait(command.spawn().unwrap())
    };
    run(&[]).stdout_has(
        "ok    provider     `scripted` of custom, key from providers.custom.apiKey: answered in 0.0 s, ",
    );
    assert_eq!(story.requests().len(), 1);
    // One attempt, which is counted like any other request.
    for (turn, status, expect) in [
        (fails(401, "no such key"), 77, "no such key"),
        (fails(404, "no such model"), 78, "no such model"),
        (fails(503, "not now"), 69, "not now"),
        (fails(429, "slower"), 75, "slower"),
    ] {
        story.server().script([turn]);
        run(&[]).status(status).stdout_has("no    provider     ").stdout_has(expect);
    }
    assert_eq!(story.requests().len(), 5);
    let ledger = fs::read_to_string(story.home().join(".nanobot/usage.jsonl")).unwrap();
    assert!(ledger.contains("\"cause\":\"test\""), "{ledger}");
    // The exit status is that of the first failure.
    story.server().script([fails(401, "no such key")]);
    write(&story.home().join(".nanobot/cron"), b"in the way");
    run(&[]).status(74).stdout_has("no such key");
    fs::remove_file(story.home().join(".nanobot/cron")).unwrap();
    // A budget needs a price.
    let story = story
        .set("budget", json!({ "daily": 1.0 }))
        .set("providers.custom.apiBase", json!("https://models.example/v1"));
    let mut command = story.command(["status", "check", "--offline"]);
    command.env_remove("NANOBOT_MEMORY__CONSOLIDATE");
    story
        .wait(command.spawn().unwrap())
        .status(78)
        .stdout_has("the price of `scripted` is unknown");
    story.run(["status", "--offline"]).status(2).stderr_has("try: nanobot status --help");
}

#[test]
fn an_unresponsive_server_times_out() {
    let story = Story::new()
        .env("NANOBOT_LLM_TIMEOUT_S", "1")
        .script([sends(Response::events([""]).ending(Ending::Stall))]);
    let mut command = story.command(["status", "check"]);
    command.env_remove("NANOBOT_MEMORY__CONSOLIDATE");
    let result = story.wait(command.spawn().unwrap());
    result.status(69).stdout_has("no    provider     ");
}

#[test]
fn a_setup_without_a_crontab_can_pass() {
    let (story, _) = story_with_job();
    make_private(&story);
    let variables = [("PATH", "/nowhere"), ("NANOBOT_TEST_DAEMON", "no")];
    let mut command = check_command(&story, &["--no-crontab"]);
    command.envs(variables);
    story.wait(command.spawn().unwrap()).stdout_has(
        "ok    crontab      skipped, with the checks that depend on it (--no-crontab)\n",
    );
    // Without jobs it is not needed.
    let story = Story::new();
    fs::create_dir_all(story.workspace()).unwrap();
    make_private(&story);
    run_check(&story, &variables).status(0).stdout_has(
        "ok    crontab      not needed: no enabled job uses cron (`crontab` is not installed",
    );
}

#[test]
fn stored_data_is_checked() {
    let (story, _) = story_with_job();
    make_private(&story);
    let sessions = story.workspace().join("sessions");
    let line = "{\"role\": \"user\", \"content\": \"x\"}\n";
    write(&sessions.join("cli_torn.jsonl"), format!("{line}{{\"role\": \"us").as_bytes());
    write(&sessions.join("cli_sound.jsonl"), line.as_bytes());
    assert_eq!(findings(&story, &[], "sessions"), ["warn: repairable problems in `cli:torn`"]);
    story.run(["session", "repair", "--all"]).stdout_has("cli:torn").stderr_has("sessions checked");
    assert_eq!(findings(&story, &[], "sessions"), ["ok: 2, no problems"]);
    fs::remove_file(sessions.join("cli_sound.jsonl")).unwrap();
    fs::create_dir(sessions.join("cli_sound.jsonl")).unwrap();
    assert!(!findings(&story, &[], "sessions")[0].contains("2, no problems"));
    let story =
        story.workspace_file("memory/MEMORY.md", "x".repeat(50_000)).file("AGENTS.md", "Be brief.");
    assert!(findings(&story, &[], "memory")[0].starts_with("warn: exceeds its budget of 4000"));
    assert_eq!(
        findings(&story, &[], "trust"),
        ["warn: not read, because their directory is not trusted: `$DIR/AGENTS.md`"]
    );
    story.run(["trust", "."]).stdout_has("trusted");
    assert_eq!(findings(&story, &[], "trust"), [""; 0]);
}

#[test]
fn permissions_readable_by_others_are_reported() {
    let (story, _) = story_with_job();
    make_private(&story);
    assert_eq!(findings(&story, &[], "others"), [""; 0]);
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(story.home(), open).unwrap();
    let all_closed = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    fs::set_permissions(story.home().join(".nanobot"), all_closed).unwrap();
    assert_eq!(findings(&story, &[], "others"), [""; 0]);
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(story.home().join(".nanobot"), open).unwrap();
    // Only if all parent directories are accessible as well.
    let others = findings(&story, &[], "others");
    let is_open = story.home().ancestors().all(|path| {
        let metadata = path.metadata().unwrap();
        std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o011 != 0
    });
    let message = "warn: other users of this machine can read `~/.nanobot`";
    assert_eq!(others, vec![message; usize::from(is_open)]);
}

#[test]
fn a_running_python_gateway_is_reported() {
    let (story, _) = story_with_job();
    let mut other = story
        .program("sh")
        .args(["-c", "while :; do sleep 1; done", "/opt/bin/nanobot", "gateway"])
        .spawn()
        .unwrap();
    let gateway = findings(&story, &[], "gateway");
    other.kill().unwrap();
    other.wait().unwrap();
    let phrase =
        format!("warn: the Python program's gateway is running (process {}): ", other.id());
    assert!(gateway[0].starts_with(&phrase), "{gateway:?}");
    assert_eq!(findings(&story, &[], "gateway"), [""; 0]);
}

#[test]
fn completions_are_checked_where_the_shell_loads_them() {
    let (story, _) = story_with_job();
    let shell = [("SHELL", "/usr/bin/fish")];
    assert_eq!(findings(&story, &[], "completions"), [""; 0]);
    assert_eq!(findings(&story, &shell, "completions"), ["ok: optional; none for fish"]);
    let path = ".config/fish/completions/nanobot.fish";
    write(&story.home().join(path), b"x");
    assert_eq!(findings(&story, &shell, "completions"), ["ok: installed for fish"]);
    // In bash, completions are loaded by a separate package, which is not installed everywhere.
    let path = ".local/share/bash-completion/completions/nanobot";
    write(&story.home().join(path), b"x");
    let loads = std::path::Path::new("/usr/share/bash-completion/bash_completion").exists();
    let expect = if loads {
        "ok: bash has them"
    } else {
        "warn: installed for bash, but bash-completion is not"
    };
    let shell = [("SHELL", "/bin/bash")];
    assert_eq!(findings(&story, &shell, "completions"), [expect]);
}

#[test]
fn status_and_check_fit_on_a_screen() {
    let (story, _) = story_with_job();
    make_private(&story);
    // On other machines the paths would have different lengths.
    let variable = ("NANOBOT_AGENTS__DEFAULTS__DIRECTORY", "workspace");
    let screen = story.screen(24, 80).env(variable.0, variable.1);
    let mut screen = screen.args(["status"]);
    assert_eq!(screen.code(), 0);
    assert_eq!(screen.text(), screen.text_with_scrollback(), "more than a screen");
    screen.snapshot("status", &screen.styled());
    let story = Story::bare();
    let screen = story.screen(24, 40).env(variable.0, variable.1);
    let mut screen = screen.args(["status"]);
    assert_eq!(screen.code(), 0);
    screen.snapshot("status-new", &screen.styled());
    let mut screen = story.screen(40, 80).args(["status", "check", "--offline"]);
    assert_eq!(screen.code(), 78);
    let screen_text = screen.styled();
    assert!(screen_text.contains("red:no"), "{screen_text}");
    screen.assert_restored();
}
