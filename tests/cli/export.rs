//! Jobs exported for other schedulers, checked with the schedulers' own tools.

use crate::json_schema::Validator;
use crate::requirements::require;
use crate::story::{Story, write};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use nanobot_cron::export::systemd::{self, CalendarLines};
use nanobot_cron::export::{ExportSettings, ScheduledJob};
use nanobot_cron::expression::Expression;
use nanobot_cron::job::{Delivery, Job, JobState};
use nanobot_cron::schedule::Schedule;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const SYSTEMD_ANALYZE: &str = "/usr/bin/systemd-analyze";
/// The highest rating of `systemd-analyze security`, in tenths.
const MAX_EXPOSURE: &str = "60";
/// The first line of each exported file.
const FILE_HEADER: &str = "# Made by `nanobot cron export`";

fn job(id: &str, name: &str, schedule: &Value) -> Value {
    json!({
        "id": id, "name": name, "enabled": true, "schedule": schedule,
        "payload": { "kind": "agent_turn", "message": "100% of 'it'\nOnCalendar=*:*\n" },
        "state": {}, "createdAtMs": 1_767_000_000_000_i64,
    })
}

/// A story with jobs of all kinds; those with terms are our own.
fn story() -> Story {
    let story = Story::new().set("providers.anthropic", json!({ "apiKeyFile": "/keys/anthropic" }));
    let jobs = [
        job(
            "a1b2c3d4",
            "digest",
            &json!({ "kind": "cron", "expr": "30 2 * * *", "tz": "Europe/Berlin" }),
        ),
        job(
            "odd",
            "100% \"odd\" $HOME\n[Service]\u{202e}\\",
            &json!({ "kind": "cron", "expr": "*/20 8-17 L,15W JAN-11 7" }),
        ),
        job("Every_90", "often", &json!({ "kind": "every", "everyMs": 5_400_000 })),
        job("once", "once", &json!({ "kind": "at", "atMs": 1_798_225_660_000_i64 })),
        job(
            "wild",
            "wild",
            &json!({ "kind": "cron", "expr": "*/30 * * * *", "tz": "Australia/Lord_Howe" }),
        ),
    ];
    let write_options = |id: &str, write_options: Value| {
        let path = story.home().join(".nanobot/cron").join(id).join("job.json");
        write(&path, write_options.to_string().as_bytes());
    };
    write_options(
        "a1b2c3d4",
        json!({ "v": 1, "catchUp": "once", "timeout": 90, "grants": { "write": ["/srv/my $notes %h"], "read": ["/srv/in"] } }),
    );
    write_options("Every_90", json!({ "v": 1, "when": "test -s ~/inbox" }));
    write_options("once", json!({ "v": 1, "catchUp": "once", "timeout": 0 }));
    write_options(
        "heartbeat",
        json!({ "v": 1, "kind": "heartbeat", "everyMs": 1_800_000, "sinceMs": 1_767_000_000_000_i64 }),
    );
    let jobs = json!({ "version": 1, "jobs": jobs }).to_string();
    story.workspace_file("cron/jobs.json", jobs)
}

fn export_arguments<'a>(format: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let mut arguments = vec!["cron", "export", "--format", format];
    arguments.extend(more);
    arguments
}

/// The files of a directory, by name.
fn read_files(directory: &Path) -> Vec<(String, String)> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    let read = |path: &PathBuf| (name(path), std::fs::read_to_string(path).unwrap());
    paths.iter().map(read).collect()
}

#[test]
fn units_are_accepted_by_systemd() {
    let story = story();
    let directory = story.dir().join("units");
    let stdout = story.run(export_arguments("systemd", &["-o", "units"])).text();
    assert!(
        stdout.starts_with(
            "wrote units/nanobot-a1b2c3d4.service\nwrote units/nanobot-a1b2c3d4.timer\n"
        ),
        "{stdout}"
    );
    assert!(stdout.ends_with("then: systemctl --user daemon-reload && systemctl --user enable --now nanobot-a1b2c3d4.timer nanobot-odd.timer nanobot-Every_90.timer nanobot-once.timer nanobot-wild.timer nanobot-heartbeat.timer\n"), "{stdout}");
    let files = read_files(&directory);
    assert_eq!(files.len(), 12, "{stdout}");
    for (name, text) in &files {
        assert!(text.starts_with(FILE_HEADER), "{text}");
        assert!(!text.contains("OnCalendar=*:*") && !text.contains("100% of"), "a message: {text}");
        let mode = std::fs::metadata(directory.join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o644);
    }
    let text = |name: &str| &files.iter().find(|(other, _)| other == name).unwrap().1;
    expect_test::expect![[r#"
        # Made by `nanobot cron export`: changes here are lost when it is made again.
        [Unit]
        Description=nanobot: digest (job a1b2c3d4)

        [Timer]
        # at 02:30 each day, Europe/Berlin time
        OnCalendar=*-*-* 02:30:00 Europe/Berlin
        # For the days of clock changes.
        OnCalendar=*-03-25..31 01:00:00 UTC
        Persistent=true
        AccuracySec=1s
        Unit=nanobot-a1b2c3d4.service

        [Install]
        WantedBy=timers.target
    "#]]
    .assert_eq(text("nanobot-a1b2c3d4.timer"));
    let service = text("nanobot-a1b2c3d4.service");
    for line in [
        "RuntimeMaxSec=210\n",
        "\nReadWritePaths=\"-/srv/my $notes %%h\"\n",
        "\n#LoadCredential=ANTHROPIC_API_KEY:%h/.config/nanobot/ANTHROPIC_API_KEY\n",
        "\nSuccessExitStatus=75\nRestartForceExitStatus=75\n",
        " cron run a1b2c3d4 --scheduled\n",
        "\nProtectSystem=strict\n",
    ] {
        assert!(service.contains(line), "no {line:?} in {service}");
    }
    assert!(!service.contains("/srv/in"), "{service}");
    assert!(
        text("nanobot-odd.timer")
            .contains(r#"Description=nanobot: $'100%% "odd" $HOME [Service]\u202e\\' (job odd)"#)
    );
    // Commands of the user run without the sandbox.
    let service = text("nanobot-Every_90.service");
    assert!(!service.contains("Protect") && !service.contains("NoNewPrivileges"), "{service}");
    assert!(text("nanobot-once.service").contains("RuntimeMaxSec=infinity\n"));
    assert!(
        text("nanobot-once.timer")
            .contains("OnCalendar=2026-12-25 19:08:00 UTC\nPersistent=true\n")
    );
    verify_units(&directory);
}

/// With systemd the unit of a job starts the jobs after it. A CronJob cannot.
#[test]
fn the_unit_of_a_job_starts_those_after_it() {
    let story = Story::new().env("NANOBOT_TEST_ZONE", "UTC");
    let first = crate::cron::add_job(&story, &["-n", "first", "--every", "1h"]);
    let second = crate::cron::add_job(&story, &["-n", "second", "--after", "first"]);
    let third =
        crate::cron::add_job(&story, &["-n", "third", "--after", "second", "--catch-up", "none"]);
    let result = story.run(export_arguments("systemd", &["-o", "units"]));
    assert!(result.text().ends_with(&format!(" nanobot-{first}.timer nanobot-{second}.timer\n")));
    let directory = story.dir().join("units");
    let read = |name: String| std::fs::read_to_string(directory.join(name)).unwrap();
    let service = read(format!("nanobot-{first}.service"));
    assert!(service.contains(&format!(")\nOnSuccess=nanobot-{second}.service\n\n[Service]")));
    assert!(service.contains(&format!(" cron run {first} --scheduled --no-after\n")), "{service}");
    let timer = read(format!("nanobot-{second}.timer"));
    assert!(timer.contains("# after job "), "{timer}");
    assert!(timer.contains("\nOnCalendar=*-*-* *:04..54/10:00 UTC\n"), "{timer}");
    let last = read(format!("nanobot-{third}.service"));
    assert!(last.contains("--scheduled\n") && !last.contains("OnSuccess"), "{last}");
    verify_units(&directory);
    story.run(export_arguments("kubernetes", &[])).status(1).stdout_has("--no-after").stderr_has(
        "job second cannot be exported: it runs after another job, and a CronJob only has times",
    );
}

/// The exposure is systemd's rating of what a service could do to the machine, up to 10. Without these settings it is 9.6.
#[test]
fn a_hardened_unit_has_a_low_exposure() {
    if !require("systemd-analyze") {
        return;
    }
    let story = story();
    drop(story.run(export_arguments("systemd", &["-o", "units"])).text());
    drop(story.run(["channel", "export", "--format", "systemd", "-o", "units"]).text());
    for name in ["nanobot-a1b2c3d4.service", "nanobot-channels.service"] {
        let unit = story.dir().join("units").join(name);
        let rate = |threshold: &str| {
            let mut command = Command::new(SYSTEMD_ANALYZE);
            command.args(["security", "--offline=true", "--no-pager"]);
            let output = command.args(["--threshold", threshold]).arg(&unit).output();
            let output = output.unwrap();
            (output.status.success(), String::from_utf8(output.stdout).unwrap())
        };
        let (is_low, table) = rate(MAX_EXPOSURE);
        assert!(is_low, "{table}");
        assert!(!rate("1").0, "the tool can say no: {table}");
    }
}

#[test]
fn the_service_of_the_channels_is_exported() {
    let story = story().set("tools", json!({ "write": [".", "~/notes"] }));
    let export = |format: &str, more: &[&str]| {
        let mut arguments = vec!["channel", "export", "--format", format];
        arguments.extend(more);
        story.run(arguments)
    };
    export("systemd", &["-o", "units", "telegram", "slack"]).stdout(
        "wrote units/nanobot-channels.service\nthen: systemctl --user daemon-reload && systemctl --user enable --now nanobot-channels.service\n",
    );
    let directory = story.dir().join("units");
    let service = std::fs::read_to_string(directory.join("nanobot-channels.service")).unwrap();
    for line in [
        "\nDescription=nanobot: telegram, slack\n",
        "\nType=notify\n",
        "\nWatchdogSec=60\n",
        " channel poll --follow telegram slack\n",
        "\nSuccessExitStatus=143\n# 78: the config is invalid, which another start does not change.\nRestartPreventExitStatus=78\nRestart=on-failure\n",
        "/home/notes\n",
        "\nCapabilityBoundingSet=CAP_SETFCAP\nProtectSystem=strict\n",
        "\n[Install]\nWantedBy=default.target\n",
    ] {
        assert!(service.contains(line), "no {line:?} in {service}");
    }
    verify_units(&directory);
    // It is none of a job that no longer exists, and it is replaced.
    story.run(export_arguments("systemd", &["-o", "units"])).stdout_has("wrote units/nanobot-once");
    export("systemd", &["-o", "units"]).stdout_has("wrote units/nanobot-channels.service\n");
    export("systemd", &["telegrm"]).status(2).stderr_has("telegrm");
    let documents = parse_yaml_documents(&export("kubernetes", &["--image", "r/n:1"]).text());
    let [volume, deployment] = &documents[..] else { panic!("{documents:?}") };
    validate_manifest(volume).unwrap();
    assert_eq!(
        (&deployment["kind"], &deployment["spec"]["replicas"]),
        (&json!("Deployment"), &json!(1))
    );
    let template = &deployment["spec"]["template"];
    validate(template, "io.k8s.api.core.v1.PodTemplateSpec").unwrap();
    let container = &template["spec"]["containers"][0];
    assert_eq!(container["command"], json!(["nanobot", "channel", "poll", "--follow"]));
    assert_eq!(template["metadata"]["labels"], deployment["spec"]["selector"]["matchLabels"]);
}

#[test]
fn the_service_of_the_channels_may_do_what_their_turns_and_programs_do() {
    let mut story = Story::new()
        .set("agents.defaults.profile", json!("mine"))
        .set(
            "tools",
            json!({ "mcpServers": { "s": { "command": "true", "write": ["~/of-server"] } } }),
        )
        .set("channels", json!({ "telegram": { "enabled": true, "token": "1:t" } }))
        .set("notify", json!({ "target": "telegram:1" }));
    write(&story.home().join(".nanobot/profiles/mine.md"), b"---\nwrite: ~/drafts\n---\n");
    let unit = |story: &Story| story.run(["channel", "export", "--format", "systemd"]).text();
    let text = unit(&story);
    for line in ["/of-server\n", "/drafts\n", "\nProtectSystem=strict\n"] {
        assert!(text.contains(line), "no {line:?} in {text}");
    }
    let own = "\n# Not hardened: it runs your own commands";
    let programs = [
        ("channels.program", json!({ "enabled": true, "command": "prog" })),
        ("transcription", json!({ "command": "hear" })),
        ("speech", json!({ "command": "say" })),
        ("notify", json!({ "target": "command:cat" })),
        ("hooks", json!({ "post_turn": [{ "command": "cat >> ~/log" }] })),
    ];
    let before = story.config_value();
    for (key, value) in programs {
        story = story.config(&before).set(key, value);
        let text = unit(&story);
        assert!(text.contains(own), "{key}: {text}");
    }
    story = story.config(&before).set("channels.program", json!({ "command": "prog" }));
    assert!(!unit(&story).contains(own), "a channel that is not enabled");
}

/// Checks that `systemd-analyze verify` reports nothing about the units.
fn verify_units(directory: &Path) {
    if !require("systemd-analyze") {
        return;
    }
    let units = read_files(directory);
    let output = Command::new(SYSTEMD_ANALYZE)
        .args(["verify", "--man=no"])
        .args(units.iter().map(|(name, _)| directory.join(name)))
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && stderr.is_empty(), "{stderr}");
}

#[test]
fn unusual_paths_are_quoted_correctly() {
    let story = story();
    let workspace = story.dir().join("w %h \"$HOME\" \\n é");
    let from = story.workspace().join("cron/jobs.json");
    write(&workspace.join("cron/jobs.json"), &std::fs::read(from).unwrap());
    let workspace = workspace.to_str().unwrap();
    story
        .run(export_arguments("systemd", &["-o", "units", "-w", workspace, "digest"]))
        .stdout_has("wrote units/nanobot-a1b2c3d4.timer\n");
    let directory = story.dir().join("units");
    let service = std::fs::read_to_string(directory.join("nanobot-a1b2c3d4.service")).unwrap();
    assert!(
        service.contains(r#" -w "#) && service.contains(r#"/w %%h \"$HOME\" \\n é" cron run"#),
        "{service}"
    );
    assert!(service.contains("\nExecStart=:/"), "a `$` is none of systemd's: {service}");
    verify_units(&directory);
    // A pod has no such directory and needs none.
    let result = story.run(export_arguments("kubernetes", &["-w", workspace, "digest"]));
    assert!(!result.text().contains("w %h"));
}

#[test]
fn manifests_match_the_kubernetes_schema() {
    let story = story();
    let result =
        story.run(export_arguments("kubernetes", &["--image", "registry.example/nanobot:1.2"]));
    let mut names = BTreeSet::new();
    for manifest in parse_yaml_documents(&result.text()) {
        validate_manifest(&manifest).unwrap_or_else(|wrong| panic!("{wrong} in {manifest}"));
        let name = manifest["metadata"]["name"].as_str().unwrap().to_owned();
        let is_plain =
            |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
        assert!(name.len() <= 52 && name.chars().all(is_plain), "{name}");
        assert!(names.insert((manifest["kind"].to_string(), name)), "twice: {manifest}");
        if manifest["kind"] != "CronJob" {
            continue;
        }
        let spec = &manifest["spec"];
        let fields = spec["schedule"].as_str().unwrap();
        Expression::parse(fields).unwrap();
        assert!(!fields.split(' ').next_back().unwrap().contains('7'), "{fields}");
        let pod = &spec["jobTemplate"]["spec"]["template"]["spec"];
        assert_eq!(pod["containers"][0]["image"], "registry.example/nanobot:1.2");
        let volumes: BTreeSet<&str> = pod["volumes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|volume| volume["name"].as_str().unwrap())
            .collect();
        let mounts = pod["containers"][0]["volumeMounts"].as_array().unwrap();
        assert!(mounts.iter().all(|mount| volumes.contains(mount["name"].as_str().unwrap())));
    }
    let deadlines: Vec<String> = parse_yaml_documents(&result.text())
        .iter()
        .filter(|manifest| manifest["kind"] == "CronJob")
        .map(|manifest| {
            let spec = &manifest["spec"];
            format!(
                "{}: {} {} within {} for {}",
                manifest["metadata"]["name"].as_str().unwrap(),
                spec["schedule"].as_str().unwrap(),
                spec["timeZone"].as_str().unwrap(),
                spec["startingDeadlineSeconds"],
                spec["jobTemplate"]["spec"]["activeDeadlineSeconds"],
            )
        })
        .collect();
    expect_test::expect![[r#"
        nanobot-a1b2c3d4: 30 2 * * * Europe/Berlin within 2592000 for 210
        nanobot-a1b2c3d4-2: 0 1 25-31 3 * Etc/UTC within 2592000 for 210
        nanobot-odd: */20 8-17 28-31,13-17 JAN-11 0 Etc/UTC within 600 for 3720
        nanobot-every-90-b5bbee31: 20,50 0,1,3,4,6,7,9,10,12,13,15,16,18,19,21,22 * * * Etc/UTC within 600 for 3720
        nanobot-once: 8 19 25 12 * Etc/UTC within 2592000 for null
        nanobot-wild: */30 * * * * Australia/Lord_Howe within 600 for 3720
        nanobot-heartbeat: 20,50 * * * * Etc/UTC within 600 for 3720"#]]
    .assert_eq(&deadlines.join("\n"));
    let text = result.text();
    assert!(
        text.contains(
            "# The job is granted '/srv/my $notes %h', which the container has only if you mount it.\n"
        ),
        "{text}"
    );
    assert!(text.contains("--from-file=ANTHROPIC_API_KEY=/dev/stdin\n"), "{text}");
    assert!(!text.contains("key-of-the-story") && !text.contains("100% of"), "{text}");
}

/// The documents of a YAML text, without those that only have comments.
pub(crate) fn parse_yaml_documents(text: &str) -> Vec<Value> {
    let parts = text.split("---\n").map(|part| serde_saphyr::from_str(part).unwrap());
    parts.filter(|value: &Value| !value.is_null()).collect()
}

/// Validates a manifest against the Kubernetes schema.
fn validate_manifest(manifest: &Value) -> Result<(), String> {
    let kind = manifest["kind"].as_str().unwrap_or_default();
    let name = kubernetes_schema()["kinds"][kind].as_str().map(str::to_owned);
    validate(manifest, &name.ok_or(format!("`{kind}` is no kind"))?)
}

/// Validates `value` against this type of the Kubernetes schema.
fn validate(value: &Value, name: &str) -> Result<(), String> {
    let schema = kubernetes_schema();
    let own = json!({ "$schema": schema["$schema"], "$defs": schema["$defs"], "$ref": format!("#/$defs/{name}") });
    Validator::new(&own).validate(value)
}

fn kubernetes_schema() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/schemas/kubernetes.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn the_schema_rejects_invalid_manifests() {
    let result = story();
    let result = result.run(export_arguments("kubernetes", &["digest"]));
    let manifest = parse_yaml_documents(&result.text()).pop().unwrap();
    validate_manifest(&manifest).unwrap();
    for (pointer, value) in [
        ("/spec/schedul", json!("* * * * *")),
        ("/spec/jobTemplate/spec/template/spec/containers/0/image", json!(7)),
        ("/spec/jobTemplate/spec/template/spec/container", json!([])),
        ("/spec/startingDeadlineSeconds", Value::Null),
        ("/metadata/annotations/x", json!(1)),
    ] {
        let mut bad = manifest.clone();
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        bad.pointer_mut(parent).unwrap()[key] = value;
        assert!(validate_manifest(&bad).is_err(), "{pointer}");
    }
}

#[test]
fn a_kubernetes_export_requires_a_time_zone() {
    let story = story().env("NANOBOT_TEST_ZONE", "Europe/Berlin");
    story
        .run(export_arguments("kubernetes", &["odd", "once"]))
        .status(1)
        .stdout_has("name: nanobot-once\n")
        .stderr_has(
            "set one with `nanobot cron edit odd --cron '*/20 8-17 L,15W JAN-11 7' --tz Europe/Berlin`",
        );
    let text = story.run(export_arguments("systemd", &["odd"])).text();
    let expect = ", in the system's time zone, Europe/Berlin at the time of export
OnCalendar=*-01..11~01 08..17:00..40/20:00
OnCalendar=Mon..Fri *-01..11-13..17 08..17:00..40/20:00
OnCalendar=Sun *-01..11-* 08..17:00..40/20:00
# For the days of clock changes.
OnCalendar=*-03-25..31 01:00:00 UTC
Persistent=false
";
    assert!(text.contains(expect), "{text}");
}

#[test]
fn an_exported_crontab_has_the_lines_that_sync_writes() {
    let story = story();
    story.run(["cron", "sync"]).stdout_has("+ ");
    let table = story.crontab().table().unwrap();
    story.run(export_arguments("crontab", &[])).stdout(&format!(
        "{FILE_HEADER}: changes here are lost when it is made again.\n{}",
        story.normalize_paths(&table)
    ));
}

#[test]
fn files_of_others_are_not_overwritten() {
    let story = story();
    let output_dir = story.dir().join("out");
    write(&output_dir.join("nanobot-once.timer"), b"[Timer]\nOnCalendar=hourly\n");
    let result = story.run(export_arguments("systemd", &["-o", "out"]));
    let result = result.status(1);
    assert_eq!(
        result.error_text(),
        "nanobot: not overwriting `out/nanobot-once.timer`: it was not created by this program\n"
    );
    assert!(!result.text().contains("nanobot-once.timer"), "{}", result.text());
    assert_eq!(
        std::fs::read(output_dir.join("nanobot-once.timer")).unwrap(),
        b"[Timer]\nOnCalendar=hourly\n"
    );
    std::fs::remove_file(output_dir.join("nanobot-once.timer")).unwrap();
    // Exported again, with one job less.
    story.run(["cron", "disable", "once"]).stdout("✓ Job 'once' disabled\n");
    story
        .run(export_arguments("systemd", &["-o", "out"]))
        .stdout_has("wrote out/nanobot-wild.timer\n")
        .stderr("nanobot: files of jobs that no longer exist: nanobot-once.service; disable and remove them\n");
    story.run(export_arguments("systemd", &["once"])).stdout_has("# nanobot-once.timer\n").stderr(
        "nanobot: job once is disabled: it does not run until `nanobot cron enable once`\n",
    );
}

#[test]
fn unexportable_jobs_are_reported() {
    let story = Story::new().workspace_file(
        "cron/jobs.json",
        json!({ "version": 1, "jobs": [
            job("good", "good", &json!({ "kind": "cron", "expr": "0 8 * * *" })),
            job("bad", "bad", &json!({ "kind": "cron", "expr": "0 0 8 * * *" })),
            job("nowhere", "nowhere", &json!({ "kind": "cron", "expr": "0 8 * * *", "tz": "Mars/Olympus" })),
            job("past", "past", &json!({ "kind": "at", "atMs": 1_700_000_000_000_i64 })),
            job("../up", "up", &json!({ "kind": "cron", "expr": "0 8 * * *" })),
        ] })
        .to_string(),
    );
    for format in ["systemd", "kubernetes", "crontab"] {
        let result = story.run(export_arguments(format, &[])).status(1);
        let (out, err) = (result.text(), result.error_text());
        assert!(out.contains("good") && !out.contains("nowhere") && !out.contains("past"), "{out}");
        for (name, why) in [
            ("bad", "six fields"),
            ("nowhere", "Mars/Olympus"),
            ("past", "its time has passed"),
            ("up", "its id"),
        ] {
            let line = err.lines().find(|line| {
                line.starts_with(&format!("nanobot: job {name} cannot be exported: "))
            });
            assert!(line.is_some_and(|line| line.contains(why)), "{name}: {err}");
        }
    }
    story
        .run(export_arguments("systemd", &["nobody"]))
        .status(66)
        .stderr_has("there is no job `nobody`");
    Story::new().run(export_arguments("systemd", &[])).status(66).stderr_has("no enabled jobs");
    story.run(["cron", "export"]).status(2).stderr_has("--format");
}

/// A deterministic pseudo-random generator.
struct Random(u64);

impl Random {
    fn next_below(&mut self, end: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn pick<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.next_below(choices.len() as u64) as usize]
    }

    fn random_field(&mut self, low: u64, high: u64) -> String {
        let mut value = || low + self.next_below(high - low + 1);
        let (a, b, c) = (value(), value(), value());
        match self.next_below(8) {
            0..=2 => "*".into(),
            3 => a.to_string(),
            4 => format!("{a},{b},{c}"),
            5 => format!("{}-{}", a.min(b), a.max(b)),
            6 => format!("*/{}", 2 + self.next_below((high - low) / 2)),
            _ => format!("{}-{}/{}", a.min(b), a.max(b), 1 + self.next_below(5)),
        }
    }

    fn random_expression(&mut self) -> String {
        let minute = self.random_field(0, 59);
        // Often at hours in which clocks change.
        let hour = match self.next_below(3) {
            0 => self.random_field(0, 23),
            _ => self.pick(&["*", "0", "1", "2", "3", "1,2", "0-3", "*/2"]).into(),
        };
        let day = match self.next_below(4) {
            0 => self.random_field(1, 31),
            1 => self.pick(&["L", "15W", "LW", "1,L", "31", "1-7"]).into(),
            _ => "*".into(),
        };
        let month = match self.next_below(4) {
            0 => self.random_field(1, 12),
            _ => "*".into(),
        };
        let weekday = match self.next_below(4) {
            0 => self.random_field(0, 6),
            1 => self.pick(&["1-5", "0", "7", "5#2", "L5", "FRI-MON", "6,0"]).into(),
            _ => "*".into(),
        };
        format!("{minute} {hour} {day} {month} {weekday}")
    }
}

/// The first `count` start times of `line` after `base` according to systemd, and whether its search failed then.
fn systemd_times(line: &str, base: Timestamp, count: usize) -> (Vec<Timestamp>, bool) {
    let output = Command::new(SYSTEMD_ANALYZE)
        .env("TZ", "UTC")
        .arg("calendar")
        .arg(format!("--base-time=@{}", base.as_second()))
        .arg(format!("--iterations={count}"))
        .arg(line)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    // A bug in systemd near clock changes.
    let failed = stderr.contains("Resource deadlock avoided");
    assert!(output.status.success() || failed, "{line}: {stderr}");
    let mut times = Vec::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let Some((label, time)) = line.trim_start().split_once(": ") else {
            continue;
        };
        // `Fri 2026-11-27 09:00:00 UTC`
        let parts: Vec<&str> = time.split(' ').collect();
        if let ([_, date, clock, "UTC"], true) =
            (&parts[..], label == "Next elapse" || label.starts_with("Iter. #"))
        {
            times.push(format!("{date}T{clock}Z").parse().unwrap());
        }
    }
    (times, failed)
}

/// The first start times after `base` of a timer with this line. If systemd's search fails, it is repeated after another
/// line has started the job: one of `more` does so right after the clock change.
fn timer_times(
    line: &str,
    more: &[String],
    zone: &TimeZone,
    base: Timestamp,
    count: usize,
) -> Vec<Timestamp> {
    let (mut times, mut failed) = systemd_times(line, base, count);
    while failed {
        let last = times.last().copied().unwrap_or(base);
        let change = zone.following(last).next().unwrap().timestamp();
        let before = change - SignedDuration::from_secs(1);
        let wakes = more.iter().any(|line| systemd_times(line, before, 1).0 == [change]);
        assert!(wakes, "{line}: nothing starts the timer at {change}: {more:?}");
        let (rest, again) = systemd_times(line, change, count - times.len());
        times.extend(rest);
        failed = again;
    }
    times
}

/// Checks that a timer elapses at each slot of `schedule` after `base` and, if it `is_exact`, at no other time except around
/// clock changes.
fn compare_with_systemd(schedule: &Schedule, zone: &TimeZone, base: Timestamp, is_exact: bool) {
    const COUNT: usize = 24;
    let job = Job {
        id: "a".into(),
        name: "a".into(),
        enabled: true,
        schedule: Ok(schedule.clone()),
        message: String::new(),
        delivery: Delivery::default(),
        session: None,
        created: "2026-01-01T10:07:08Z".parse().unwrap(),
        state: JobState::default(),
        delete_after_run: false,
        predecessor: None,
        options: None,
    };
    let root = Path::new("/");
    let site = ExportSettings {
        home: root,
        root,
        is_root_set: false,
        path: None,
        program: root,
        workspace: root,
        keys: &[],
        has_key_command: false,
        system_zone: &TimeZone::UTC,
        system_zone_name: Some("UTC"),
        now: base,
    };
    let planned =
        ScheduledJob { job: &job, schedule, zone, config: None, workspace: None, followers: &[] };
    let what = || format!("{schedule:?} after {base}");
    let CalendarLines { regular: lines, clock_changes: more } =
        systemd::calendar_lines(&planned, &site).unwrap();
    let both: Vec<String> = lines.iter().chain(&more).cloned().collect();
    let times_of = |line: &String| timer_times(line, &more, zone, base, COUNT);
    let times: Vec<Vec<Timestamp>> = both.iter().map(times_of).collect();
    // Up to the last one that both know.
    let ends = times.iter().filter(|times| times.len() == COUNT).map(|times| times[COUNT - 1]);
    let end = ends.min().unwrap_or(base + SignedDuration::from_hours(24 * 365 * 20));
    let all: BTreeSet<Timestamp> = times.iter().flatten().copied().collect();
    let mut slots = BTreeSet::new();
    let mut time = base;
    while let Some(slot) =
        schedule.next(time, job.created, zone).filter(|slot| *slot <= end && slots.len() < COUNT)
    {
        assert!(all.contains(&slot), "{}: systemd has no {slot} in {both:?}", what());
        slots.insert(slot);
        time = slot;
    }
    let near = |time: Timestamp| {
        let day = SignedDuration::from_hours(24);
        zone.following(time - day).next().is_some_and(|change| change.timestamp() < time + day)
    };
    if is_exact && let Some(last) = slots.last() {
        for time in times[..lines.len()].iter().flatten() {
            assert!(
                time > last || near(*time) || slots.contains(time),
                "{}: {time} is no slot: {lines:?}",
                what()
            );
        }
    }
}

#[test]
fn systemd_timers_elapse_at_the_slots() {
    if !require("systemd-analyze") {
        return;
    }
    let mut dice = Random(7);
    let zones = [
        "UTC",
        "Europe/Berlin",
        "America/New_York",
        "Australia/Lord_Howe",
        "Asia/Kolkata",
        "America/Santiago",
        "Africa/Casablanca",
        "Pacific/Chatham",
    ];
    // `NANOBOT_FUZZ=5000` tries that many.
    let requested = std::env::var("NANOBOT_FUZZ").ok();
    let count = requested.and_then(|count| count.parse().ok()).unwrap_or(24);
    let mut tried = 0;
    while tried < count {
        let (text, name) = (dice.random_expression(), dice.pick(&zones));
        let Ok(expression) = Expression::parse(&text) else {
            continue;
        };
        tried += 1;
        let zone = TimeZone::get(name).unwrap();
        let start: Timestamp = "2026-06-01T00:00:00Z".parse().unwrap();
        let mut base = start + SignedDuration::from_mins(dice.next_below(1_500_000) as i64);
        // Often in the hours before a clock change.
        if let Some(change) = zone.following(base).next().filter(|_| dice.next_below(3) > 0) {
            base = change.timestamp() - SignedDuration::from_mins(dice.next_below(300) as i64);
        }
        let is_exact = !text.contains('W') && !text.contains('L');
        let schedule = Schedule::Cron { expression, zone: Some(name.into()) };
        compare_with_systemd(&schedule, &zone, base, is_exact);
    }
    for minutes in [1, 7, 15, 45, 50, 60, 90, 120, 300, 720, 1440, 2160, 10_080, 20_160] {
        let base = "2026-10-24T20:00:00Z".parse().unwrap();
        let is_exact = 1440 % minutes == 0 || minutes == 10_080;
        let period = Duration::from_secs(minutes * 60);
        compare_with_systemd(&Schedule::Every(period), &TimeZone::UTC, base, is_exact);
    }
    let base = "2026-10-24T20:00:00Z".parse().unwrap();
    compare_with_systemd(&Schedule::Every(Duration::from_secs(3601)), &TimeZone::UTC, base, false);
    let time = "2026-12-24T18:00:01Z".parse().unwrap();
    compare_with_systemd(&Schedule::At(time), &TimeZone::UTC, base, true);
}
