//! `nanobot cron`: adding, listing, editing and removing jobs, and the crontab lines they produce.

use crate::server::says;
use crate::story::{RunResult, Story, write};
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// A `cron` command in a shell whose variables cron's environment has as well.
fn cron_command(story: &Story, arguments: &[&str]) -> Command {
    let mut command = story.command(["cron"].iter().chain(arguments));
    command.env_remove("NANOBOT_MEMORY__CONSOLIDATE");
    command
}

pub(crate) fn run_cron<'a>(story: &'a Story, arguments: &[&str]) -> RunResult<'a> {
    story.wait(cron_command(story, arguments).spawn().unwrap())
}

/// Like [`run_cron`], with additional variables.
pub(crate) fn run_cron_with_env<'a>(
    story: &'a Story,
    variables: &[(&str, &str)],
    arguments: &[&str],
) -> RunResult<'a> {
    let mut command = cron_command(story, arguments);
    command.envs(variables.iter().copied());
    story.wait(command.spawn().unwrap())
}

/// Runs `nanobot cron …` at a time of 2026-01-02, as `08:00:00`.
pub(crate) fn run_cron_at<'a>(story: &'a Story, time: &str, arguments: &[&str]) -> RunResult<'a> {
    let mut command = story.command(["cron"].iter().chain(arguments));
    command.env("NANOBOT_TEST_TIME", format!("2026-01-02T{time}Z"));
    story.wait(command.spawn().unwrap())
}

/// Starts a job as its line of the crontab does, at a time of that day.
pub(crate) fn start_at<'a>(story: &'a Story, time: &str, id: &str) -> RunResult<'a> {
    run_cron_at(story, time, &["run", id, "--scheduled"])
}

/// The records of the runs of the job.
pub(crate) fn records(story: &Story, id: &str) -> Vec<Value> {
    let text = fs::read_to_string(job_dir(story, id).join("runs.jsonl")).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).expect("a record is JSON")).collect()
}

pub(crate) fn outcomes(story: &Story, id: &str) -> Vec<String> {
    let outcome = |record: &Value| record["outcome"].as_str().unwrap().to_owned();
    records(story, id).iter().map(outcome).collect()
}

fn run_heartbeat<'a>(story: &'a Story, arguments: &[&str]) -> RunResult<'a> {
    let mut command = story.command(["cron", "heartbeat"].iter().chain(arguments));
    command.env_remove("NANOBOT_MEMORY__CONSOLIDATE");
    story.wait(command.spawn().unwrap())
}

fn job_file(story: &Story) -> PathBuf {
    story.workspace().join("cron/jobs.json")
}

fn read_json(path: &PathBuf) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// The jobs in the workspace's job file.
pub(crate) fn jobs(story: &Story) -> Vec<Value> {
    read_json(&job_file(story))["jobs"].as_array().unwrap().clone()
}

/// Adds a job without output; returns its id.
#[track_caller]
pub(crate) fn add_job(story: &Story, arguments: &[&str]) -> String {
    let text = run_cron(story, &[&["add", "-m", "do it"], arguments].concat()).text();
    let (_, id) = text.lines().next().unwrap().rsplit_once('(').unwrap();
    id.trim_end_matches(')').to_owned()
}

/// The job options that only this program stores.
fn job_terms(story: &Story, id: &str) -> Value {
    read_json(&job_dir(story, id).join("job.json"))
}

pub(crate) fn job_dir(story: &Story, id: &str) -> PathBuf {
    story.home().join(".nanobot/cron").join(id)
}

/// The lines of our crontab block, without the shared header.
fn crontab_lines(story: &Story) -> Vec<String> {
    let table = story.crontab().table().unwrap_or_default();
    let lines = table.lines().filter(|line| line.ends_with(" --scheduled"));
    let short = |line: &str| {
        let (fields, rest) = line.split_once(" /usr/bin/env ").unwrap();
        let (_, id) = rest.rsplit_once(" cron run ").unwrap();
        format!("{fields} {}", id.trim_end_matches(" --scheduled"))
    };
    lines.map(short).collect()
}

/// A job file as written by the Python program.
fn python_job_file(jobs: &Value) -> Vec<u8> {
    let file = json!({ "version": 1, "jobs": jobs });
    serde_json::to_vec_pretty(&file).unwrap()
}

fn python_job(id: &str, name: &str) -> Value {
    json!({
        "id": id, "name": name, "enabled": true,
        "schedule": { "kind": "cron", "atMs": null, "everyMs": null, "expr": "0 9 * * *", "tz": null },
        "payload": { "kind": "agent_turn", "message": "hi", "deliver": false, "channel": null, "to": null },
        "state": { "nextRunAtMs": null, "lastRunAtMs": 1_767_258_000_000_u64, "lastStatus": "ok", "lastError": null },
        "createdAtMs": 1_767_000_000_000_u64, "updatedAtMs": 1_767_000_000_000_u64, "deleteAfterRun": false,
    })
}

#[test]
fn a_job_is_added_to_the_file_and_to_the_crontab() {
    let story = Story::new();
    story.crontab().set_table("MAILTO=me\n5 4 * * * backup\n");
    let result =
        run_cron(&story, &["add", "-n", "digest", "-m", "what is new?", "-c", "0 8 * * 1-5"]);
    let id = jobs(&story)[0]["id"].as_str().unwrap().to_owned();
    assert!(id.len() == 8 && id.chars().all(|letter| letter.is_ascii_hexdigit()));
    result.stdout(&format!(
        "✓ Added job 'digest' ({id})\n\
         at 08:00 on Monday to Friday\n\
         next: Fri 2 Jan 08:00 (in 4 h 55 min), Mon 5 Jan 08:00, Tue 6 Jan 08:00\nanswer: printed, and cron mails it to you\n\
         directory: ~/.nanobot/workspace; `-C DIR` sets another\n"
    ));
    let now = 1_767_323_045_000_u64;
    assert_eq!(
        read_json(&job_file(&story)),
        json!({ "version": 1, "jobs": [{
            "id": id, "name": "digest", "enabled": true,
            "schedule": { "kind": "cron", "atMs": null, "everyMs": null, "expr": "0 8 * * 1-5", "tz": null },
            "payload": { "kind": "agent_turn", "message": "what is new?", "deliver": false, "channel": null, "to": null },
            "state": { "nextRunAtMs": 1_767_340_800_000_u64, "lastRunAtMs": null, "lastStatus": null, "lastError": null },
            "createdAtMs": now, "updatedAtMs": now, "deleteAfterRun": false,
        }] })
    );
    let table = story.normalize_paths(&story.crontab().table().unwrap());
    assert_eq!(
        table,
        format!(
            "MAILTO=me\n5 4 * * * backup\n\
             # >>> nanobot cron: $HOME/.nanobot/workspace (made by `nanobot cron`; changes here are lost)\n\
             0 8 * * 1-5 /usr/bin/env HOME=$HOME PATH=$BIN:/usr/local/bin:/usr/bin:/bin {} cron run {id} --scheduled\n\
             # <<< nanobot cron: $HOME/.nanobot/workspace\n",
            crate::story::NANOBOT
        )
    );
    // Job messages are not readable by other users.
    for path in [job_file(&story), job_dir(&story, &id).join("job.json")] {
        let mode =
            std::os::unix::fs::PermissionsExt::mode(&fs::metadata(path).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
    }
}

#[test]
fn a_dry_run_shows_the_job_and_changes_nothing() {
    let story = Story::new();
    story.crontab().set_table("MAILTO=me\n");
    let flags =
        ["add", "--dry-run", "-n", "digest", "-m", "hi", "-c", "0 8 * * 1-5", "--net", "-C"];
    let dir = story.dir().display().to_string();
    let text = run_cron(&story, &[&flags[..], &[&dir]].concat()).text();
    for phrase in [
        "would add job 'digest'\nat 08:00 on Monday to Friday\nnext: Fri 2 Jan 08:00",
        "\nanswer: printed, and cron mails it to you\ndirectory: $DIR\n",
        "\nflags: --directory=$DIR --net\n",
        "\nnetwork: commands: that of the machine",
        "\n+ 0 8 * * 1-5 /usr/bin/env ",
        " --scheduled\n",
    ] {
        assert!(text.contains(phrase), "{phrase}: {text}");
    }
    assert_eq!(story.crontab().table().unwrap(), "MAILTO=me\n");
    assert!(!job_file(&story).exists());
    // A dry run refuses the same as `add`.
    run_cron(&story, &["add", "--dry-run", "-m", "hi", "-c", "0 25 * * *"]).status(2).error_text();
    // A job of that name would be replaced.
    run_cron(&story, &["add", "-n", "digest", "-m", "hi", "-e", "1h"]).text();
    let table = story.crontab().table().unwrap();
    let replace = ["add", "--dry-run", "--replace", "-n", "digest", "-m", "ho", "-c", "0 9 * * *"];
    run_cron(&story, &replace).stdout_has("would change job 'digest'").stdout_has("\n- ");
    assert_eq!(story.crontab().table().unwrap(), table);
    assert_eq!(jobs(&story)[0]["payload"]["message"], "hi");
}

#[test]
fn schedules_are_accepted_in_every_form() {
    let story = Story::new();
    let check = |flags: &[&str], kind: &str, phrase: &str, next: &str, own: &[&str]| {
        let text = run_cron(&story, &[&["add", "-m", "x"], flags].concat()).text();
        let lines: Vec<&str> = text.lines().skip(1).collect();
        let answer = "answer: printed, and cron mails it to you";
        assert_eq!(lines[..3], [phrase, &format!("next: {next}"), answer], "{flags:?}");
        let job = jobs(&story).pop().unwrap();
        assert_eq!(job["schedule"]["kind"], kind, "{flags:?}");
        assert_eq!(job["deleteAfterRun"], kind == "at", "{flags:?}");
        let id = job["id"].as_str().unwrap();
        let mine: Vec<String> = crontab_lines(&story)
            .into_iter()
            .filter_map(|line| line.strip_suffix(&format!(" {id}")).map(str::to_owned))
            .collect();
        assert_eq!(mine, own, "{flags:?}");
        job["schedule"].clone()
    };
    check(
        &["--cron", "*/15 * * * *"],
        "cron",
        "every 15 minutes",
        "Fri 2 Jan 03:15 (in 10 min), Fri 2 Jan 03:30, Fri 2 Jan 03:45",
        &["*/15 * * * *"],
    );
    let every = check(
        &["-e", "5400"],
        "every",
        "every 90 minutes",
        "Fri 2 Jan 04:34 (in 1 h 29 min), Fri 2 Jan 06:04, Fri 2 Jan 07:34",
        &["4,34 * * * *"],
    );
    assert_eq!(every["everyMs"], 5_400_000);
    check(
        &["--every", "1d"],
        "every",
        "every day",
        "Sat 3 Jan 03:04 (in 23 h 59 min), Sun 4 Jan 03:04, Mon 5 Jan 03:04",
        &["4 * * * *"],
    );
    let at = check(
        &["--at", "2026-12-24T18:00"],
        "at",
        "once, on 2026-12-24 at 18:00",
        "Thu 24 Dec 18:00 (in 356 days 14 h)",
        &["0 18 24 12 *", "4,14,24,34,44,54 * * * *"],
    );
    assert_eq!(at["atMs"], 1_798_135_200_000_u64);
    check(
        &["--in", "2h", "--catch-up", "none"],
        "at",
        "once, on 2026-01-02 at 05:05",
        "Fri 2 Jan 05:05 (in 2 h)",
        &["5 5 2 1 *"],
    );
    check(
        &["-c", "0 8 * * *", "--catch-up", "once"],
        "cron",
        "at 08:00 each day",
        "Fri 2 Jan 08:00 (in 4 h 55 min), Sat 3 Jan 08:00, Sun 4 Jan 08:00",
        &["0 8 * * *", "4,14,24,34,44,54 * * * *"],
    );
}

#[test]
fn mistakes_are_reported_with_the_correct_form_and_add_nothing() {
    let story = Story::new();
    let check = |arguments: &[&str], status: i32, message: &str| {
        run_cron(&story, &[&["add"], arguments].concat()).status(status).stderr_has(message);
    };
    let m = |flags: &[&'static str]| -> Vec<&'static str> { [&["-m", "x"], flags].concat() };
    check(&m(&[]), 2, "the job has no schedule");
    check(
        &m(&[]),
        2,
        "`--cron '0 8 * * 1-5'`, `--every 90m`, `--at 2026-12-24T18:00`, `--in 2h`, or `--after JOB`",
    );
    check(&m(&["-c", "0 0 8 * * 1-5"]), 2, "six fields");
    check(&m(&["-c", "61 * * * *"]), 2, "`--cron`: `61 * * * *`");
    check(&m(&["-c", "0 0 31 2 *"]), 2, "31");
    check(&m(&["-c", ""]), 2, "`--cron`");
    check(&m(&["-c", "@reboot"]), 2, "@reboot");
    check(
        &m(&["-e", "30"]),
        2,
        "`30` is less than a minute; the minimum is `1m`, or 60 as a bare number",
    );
    check(&m(&["-e", "-5"]), 2, "'-5'");
    check(&m(&["--every=-5"]), 2, "`--every`");
    check(&m(&["-e", "soon"]), 2, "--every 90m");
    check(&m(&["--at", "2025-01-01T00:00"]), 2, "is in the past: it is 2026-01-02T03:04 now");
    check(&m(&["--at", "18:00"]), 2, "2026-01-02T18:00");
    check(&m(&["--at", "tomorrow"]), 2, "T18:00");
    check(&m(&["--in=-2h"]), 2, "`--in`");
    check(&m(&["-c", "0 8 * * *", "--tz", "Europe/Berlim"]), 2, "`Europe/Berlin`");
    check(&m(&["-e", "90m", "--tz", "Europe/Berlin"]), 2, "--cron");
    check(&m(&["-e", "90m", "-c", "0 8 * * *"]), 2, "cannot be used with");
    check(&["-m", " \n", "-e", "90m"], 2, "the message is empty");
    check(&["-e", "90m"], 2, "--message");
    check(&m(&["-e", "90m", "--profile", "nobody"]), 2, "there is no profile `nobody`");
    check(&m(&["-e", "90m", "--allow", "("]), 2, "--allow");
    check(&m(&["-e", "90m", "--read", "nowhere"]), 66, "no such file or directory: `$DIR/nowhere`");
    check(&m(&["-e", "90m", "-C", "nowhere"]), 66, "nowhere");
    check(&m(&["-e", "90m", "--deliver"]), 2, "`--deliver` needs a destination");
    check(
        &m(&["-e", "90m", "--deliver", "--channel", "telegram"]),
        2,
        "on `telegram` needs a recipient",
    );
    check(&m(&["-e", "90m", "--channel", "telegram"]), 2, "on `telegram` needs a recipient");
    check(&m(&["-e", "90m", "--channel", "file"]), 2, "`--to FILE`");
    check(&m(&["-e", "90m", "--channel", "file", "--to", "."]), 2, "is a directory");
    check(
        &m(&["-e", "90m", "--channel", "file", "--to", "no/f"]),
        66,
        "there is no directory `$DIR/no`",
    );
    check(&m(&["-e", "90m", "--channel", "command"]), 2, "`--to CMD`");
    assert!(!job_file(&story).exists());
    assert!(!story.home().join(".nanobot/cron").exists());
    assert_eq!(story.crontab().calls(), [""; 0]);
}

#[test]
fn a_message_with_any_characters_is_preserved() {
    let story = Story::new().stdin("100 % of \"it\"\n'quoted' \\ $HOME `x` 🦀\n");
    let mut command = cron_command(&story, &["add", "-m", "-", "--every", "1h"]);
    command.stdin(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    let text = "100 % of \"it\"\n'quoted' \\ $HOME `x` 🦀\n";
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), text.as_bytes()).unwrap();
    story.wait(child).stdout_has("✓ Added job '100 % of \"it\" 'quoted' \\ $HOME' (");
    let job = &jobs(&story)[0];
    assert_eq!(job["payload"]["message"], text.trim_end());
    // The crontab has only the id of the job, not its message.
    let table = story.crontab().table().unwrap();
    assert!(!table.contains('%') && !table.contains("quoted"), "{table}");
    let id = job["id"].as_str().unwrap();
    run_cron(&story, &["show", id])
        .stdout_has("message      100 % of \"it\"\n             'quoted' \\ $HOME `x` 🦀\n");
    run_cron(&story, &["add", "-m", "-x is no flag", "--every", "1h"])
        .stdout_has("'-x is no flag'");
    drop(story);
}

#[test]
fn the_time_zone_defaults_to_the_system_zone() {
    let story = Story::new();
    let zone = || jobs(&story).pop().unwrap()["schedule"]["tz"].clone();
    let add = ["add", "-m", "x", "-c", "0 8 * * *"];
    let berlin = ("NANOBOT_TEST_ZONE", "Europe/Berlin");
    // The system's time zone.
    run_cron_with_env(&story, &[berlin], &add).stdout_has(
        "at 08:00 each day\nnext: Fri 2 Jan 08:00 (in 3 h 55 min), Sat 3 Jan 08:00, Sun 4 Jan 08:00\n",
    );
    assert_eq!(zone(), Value::Null);
    // In a shell with another zone, times are in that zone.
    run_cron_with_env(&story, &[berlin, ("TZ", "Asia/Tokyo")], &add)
        .stdout_has("at 08:00 each day, Asia/Tokyo time\nnext: Sat 3 Jan 08:00 (in 19 h 55 min)")
        .stderr("nanobot: the job uses this shell's time zone Asia/Tokyo; `--tz Europe/Berlin` selects the system's\n");
    assert_eq!(zone(), "Asia/Tokyo");
    // An empty variable is UTC, as in the C library.
    run_cron_with_env(&story, &[berlin, ("TZ", "")], &add)
        .stdout_has("at 08:00 each day, UTC time\n")
        .stderr_has("the job uses this shell's time zone UTC; `--tz Europe/Berlin`");
    assert_eq!(zone(), "UTC");
    // Another name for the same zone is not a different zone.
    run_cron_with_env(&story, &[berlin, ("TZ", ":Europe/Paris")], &add)
        .stdout_has("at 08:00 each day\n");
    assert_eq!(zone(), Value::Null);
    run_cron_with_env(&story, &[berlin, ("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")], &add)
        .stdout_has("at 08:00 each day\n")
        .stderr_has("TZ=`CET-1CEST,M3.5.0,M10.5.0/3` is not a time zone name; `--tz` sets another");
    assert_eq!(zone(), Value::Null);
    // The time zone is stored and not repeated in output.
    let named = [&add[..], &["--tz", "America/New_York"]].concat();
    run_cron_with_env(&story, &[berlin, ("TZ", "Asia/Tokyo")], &named)
        .stdout_has("at 08:00 each day, America/New_York time\nnext: Fri 2 Jan 22:00");
    assert_eq!(zone(), "America/New_York");
    // A time is read in the time zone of the user's shell.
    run_cron_with_env(
        &story,
        &[("TZ", "Asia/Tokyo")],
        &["add", "-m", "x", "--at", "2026-01-03T09:00"],
    )
    .stdout_has(
        "once, on 2026-01-03 at 09:00, Asia/Tokyo time\nnext: Sat 3 Jan 09:00 (in 20 h 55 min)",
    );
    assert_eq!(jobs(&story).pop().unwrap()["schedule"]["atMs"], 1_767_398_400_000_u64);
}

/// The config's zone, which the model receives, is that of all times that name none.
#[test]
fn times_without_a_zone_are_in_the_zone_of_the_config() {
    struct Case {
        zone: &'static str,
        flags: &'static [&'static str],
        /// The stored zone and instant.
        stored: (Value, Option<&'static str>),
        expected: &'static str,
        fields: &'static str,
    }
    let case = |zone, flags, tz: Value, at, expected, fields| Case {
        zone,
        flags,
        stored: (tz, at),
        expected,
        fields,
    };
    let null = || Value::Null;
    let nine = &["-c", "0 9 * * *"][..];
    let quarters = "0,15,30,45 * * * * ";
    let cases = [
        case(
            "Asia/Tokyo",
            nine,
            json!("Asia/Tokyo"),
            None,
            "at 09:00 each day, Asia/Tokyo time\nnext: Sat 3 Jan 09:00 (in 20 h 55 min)",
            quarters,
        ),
        // A line of its own zone is not needed where another name of the same zone is the system's.
        case(
            "Etc/UTC",
            nine,
            json!("Etc/UTC"),
            None,
            "at 09:00 each day, Etc/UTC time\nnext: Fri 2 Jan 09:00 (in 5 h 55 min)",
            "0 9 * * * ",
        ),
        case(
            "Asia/Tokyo",
            &["-c", "0 9 * * *", "--tz", "Europe/Berlin"],
            json!("Europe/Berlin"),
            None,
            "at 09:00 each day, Europe/Berlin time\nnext: Fri 2 Jan 17:00 (in 4 h 55 min)",
            quarters,
        ),
        // An empty name is the system's zone.
        case(
            "Asia/Tokyo",
            &["-c", "0 9 * * *", "--tz", ""],
            null(),
            None,
            "at 09:00 each day\nnext: Fri 2 Jan 18:00",
            "0 9 * * * ",
        ),
        case(
            "Asia/Tokyo",
            &["--at", "2026-01-02T15:00"],
            null(),
            Some("2026-01-02T06:00:00Z"),
            "once, on 2026-01-02 at 15:00, Asia/Tokyo time\nnext: Fri 2 Jan 15:00 (in 2 h 55 min)",
            "0 6 2 1 * ",
        ),
        case(
            "Asia/Tokyo",
            &["--at", "2026-01-02T15:00Z"],
            null(),
            Some("2026-01-02T15:00:00Z"),
            "once, on 2026-01-03 at 00:00, Asia/Tokyo time",
            "0 15 2 1 * ",
        ),
        // 02:30 does not exist on that day, and 03:30 exists twice on the other.
        case(
            "Europe/Berlin",
            &["--at", "2026-03-29T02:30"],
            null(),
            Some("2026-03-29T01:00:00Z"),
            "once, on 2026-03-29 at 03:00, Europe/Berlin time",
            "0 1 29 3 * ",
        ),
        case(
            "Europe/Berlin",
            &["--at", "2026-10-25T02:30"],
            null(),
            Some("2026-10-25T00:30:00Z"),
            "once, on 2026-10-25 at 02:30, Europe/Berlin time",
            "30 0 25 10 * ",
        ),
        case(
            "Asia/Tokyo",
            &["--every", "2h"],
            null(),
            None,
            "every 2 hours\nnext: Fri 2 Jan 14:04",
            "4 * * * * ",
        ),
        case(
            "Nowhere/Land",
            nine,
            null(),
            None,
            "at 09:00 each day\nnext: Fri 2 Jan 09:00",
            "0 9 * * * ",
        ),
    ];
    for Case { zone, flags, stored, expected, fields } in cases {
        let story = Story::new().set("agents.defaults.timezone", json!(zone));
        let add = [&["add", "-m", "x"], flags].concat();
        // The config is stronger than the shell.
        let shell = if zone == "Nowhere/Land" { "UTC" } else { "America/Lima" };
        let added = run_cron_with_env(&story, &[("TZ", shell)], &add).stdout_has(expected);
        if zone == "Nowhere/Land" {
            added.stderr_has("because `agents.defaults.timezone` (`Nowhere/Land`) is not a time zone name; `--tz` sets another");
        } else {
            drop(added);
        }
        let schedule = jobs(&story)[0]["schedule"].clone();
        assert_eq!(schedule["tz"], stored.0, "{zone} {flags:?}");
        let at = schedule["atMs"].as_i64();
        let expect = stored.1.map(|time| time.parse::<jiff::Timestamp>().unwrap().as_millisecond());
        assert_eq!(at, expect, "{zone} {flags:?}");
        let table = story.crontab().table().unwrap();
        assert!(table.lines().any(|line| line.starts_with(fields)), "{zone} {flags:?}: {table}");
    }
}

#[test]
fn jobs_are_shown_in_the_zone_of_the_config() {
    let story = Story::new()
        .set("agents.defaults.timezone", json!("Asia/Tokyo"))
        .file("jobs.yaml", "- {name: a, at: '2026-01-02T15:00', message: x}\n")
        .script([says("done")]);
    run_cron(&story, &["apply", "-f", "jobs.yaml"]).stdout_has("Added job 'a'");
    run_cron(&story, &["list"])
        .stdout_has("on 2026-01-02 at 15:00, Asia/Tok")
        .stdout_has("  Fri 2 Jan 15:00");
    run_cron(&story, &["show", "a"]).stdout_has("next         Fri 2 Jan 15:00 (in 2 h 55 min)");
    run_cron(&story, &["edit", "a", "--at", "2026-01-02T16:00"])
        .stdout_has("next: Fri 2 Jan 16:00 (in 3 h 55 min)");
    run_cron(&story, &["run", "a"]).stdout("done\n");
    run_cron(&story, &["logs"]).stdout_has("Fri 2 Jan 12:04");
    // It is the third of January in Tokyo already.
    let evening = [("NANOBOT_TEST_TIME", "2026-01-02T16:00:00Z")];
    run_cron_with_env(&story, &evening, &["logs", "--since", "today"])
        .stdout("No runs since then.\n");
    run_cron(&story, &["logs", "--failed"]).stdout("No failed runs.\n");
    run_cron(&story, &["logs", "--failed", "--since", "today"])
        .stdout("No failed runs since then.\n");
}

#[test]
fn permissions_of_a_job_are_stored_with_absolute_paths_at_creation() {
    let priced = json!({ "other": { "price": { "input": 1.0, "output": 2.0 } } });
    let story = Story::new().file("in/a", "a").file("out/a", "a").set("models", priced);
    fs::create_dir_all(story.workspace()).unwrap();
    let flags = [
        "--every",
        "1h",
        "--read",
        "in",
        "--write=out",
        "--net=example.org",
        "--deny",
        "exec(rm *)",
        "--model",
        "other",
        "--when",
        "test -e x",
        "--timeout",
        "90s",
        "--max-cost",
        "0.5",
        "--on-failure",
        "mail me",
        "--session",
        "work",
        "--after-crash",
        "again",
        "--catch-up",
        "once",
    ];
    let id = add_job(&story, &flags);
    let options = job_terms(&story, &id);
    let path = |name: &str| fs::canonicalize(story.dir()).unwrap().join(name);
    let grants = &options["grants"];
    assert_eq!(grants["read"], json!([path("in")]));
    assert_eq!(grants["write"], json!([path("out")]));
    assert_eq!(grants["net"], json!(["example.org"]));
    assert_eq!(grants["deny"], json!(["exec(rm *)"]));
    for (name, value) in [
        ("model", json!("other")),
        ("when", json!("test -e x")),
        ("timeout", json!(90)),
        ("maxCost", json!(0.5)),
        ("onFailure", json!("mail me")),
        ("afterCrash", json!("again")),
        ("catchUp", json!("once")),
        ("byModel", json!(false)),
        ("quiet", json!(false)),
        ("v", json!(1)),
    ] {
        assert_eq!(options[name], value, "{name}");
    }
    assert!(options["policy"]["policy"].is_object());
    assert_eq!(jobs(&story)[0]["payload"]["sessionKey"], "work");
    run_cron(&story, &["show", &id]).stdout_has(
        "flags        --write=$DIR/out --read=$DIR/in --net=example.org --deny='exec(rm *)'",
    );
    // The directory is the workspace, independent of the current directory.
    run_cron(&story, &["add", "-m", "x", "-e", "1h", "--write"])
        .stdout_has("✓ Added")
        .stderr("nanobot: `--write` applies to `~/.nanobot/workspace`, the working directory of jobs; `-C DIR` sets another\n");
    let id = add_job(&story, &["-e", "1h", "--write", "-C", "."]);
    assert_eq!(
        self::job_terms(&story, &id)["grants"]["directory"],
        json!(path("")).as_str().unwrap().trim_end_matches('/')
    );
    run_cron(&story, &["show", &id]).stdout_has("directory    $DIR\n").text();
}

#[test]
fn a_restricted_workspace_also_restricts_jobs() {
    let story = Story::new().set("tools.restrictToWorkspace", json!(true));
    run_cron(&story, &["add", "-m", "x", "-e", "1h", "-C", "."])
        .status(77)
        .stderr_has("allows no paths outside the workspace");
    assert!(!job_file(&story).exists());
    add_job(&story, &["-e", "1h", "--write"]);
}

#[test]
fn answers_go_to_files_and_commands_and_other_channels_are_unsupported() {
    let story = Story::new().set("channels.telegram.token", json!("1:x"));
    let delivery = || {
        let payload = jobs(&story).pop().unwrap()["payload"].clone();
        json!([payload["deliver"], payload["channel"], payload["to"]])
    };
    let out = story.dir().join("out.txt");
    let id = add_job(&story, &["-e", "1h", "--channel", "file", "--to", "out.txt"]);
    assert_eq!(delivery(), json!([true, "file", out]));
    assert_eq!(job_terms(&story, &id)["sink"], json!({ "file": out }));
    let id = add_job(&story, &["-e", "1h", "--channel", "file", "--to", "~/out"]);
    assert_eq!(job_terms(&story, &id)["sink"], json!({ "file": story.home().join("out") }));
    let id = add_job(&story, &["-e", "1h", "-d", "--channel", "command", "--to", "mail 'me'"]);
    assert_eq!(delivery(), json!([true, "command", null]));
    assert_eq!(job_terms(&story, &id)["sink"], json!({ "command": "mail 'me'" }));
    // With and without the flag of the Python program.
    let chat = json!({ "chat": { "channel": "telegram", "to": "123" } });
    let to_chat = ["-e", "1h", "--to", "123", "--channel", "telegram", "-d"];
    for flags in [&to_chat[..6], &to_chat] {
        let id = add_job(&story, flags);
        assert_eq!(delivery(), json!([true, "telegram", "123"]));
        assert_eq!(job_terms(&story, &id)["sink"], chat);
        run_cron(&story, &["show", &id]).stdout_has("sent to telegram 123");
    }
    let id = add_job(&story, &["-e", "1h"]);
    run_cron(&story, &["edit", &id, "--channel", "telegram", "--to", "123"])
        .stdout_has("✓ Changed");
    assert_eq!(job_terms(&story, &id)["sink"], chat);
    run_cron(&story, &["edit", &id, "--no-deliver"]).stdout_has("✓ Changed");
    assert_eq!(delivery(), json!([false, "telegram", "123"]));
    assert_eq!(job_terms(&story, &id)["sink"], Value::Null);
    let message = "nanobot: this version cannot deliver to `msteams`: answers of `far` are printed, and cron mails them\n";
    run_cron(
        &story,
        &["add", "-n", "far", "-m", "x", "-e", "1h", "-d", "--to", "123", "--channel", "msteams"],
    )
    .stdout_has("✓ Added job 'far'")
    .stderr(message);
    assert_eq!(delivery(), json!([true, "msteams", "123"]));
    run_cron(&story, &["list"]).stdout_has("far").stderr(message);
}

#[test]
fn a_missing_cron_environment_is_reported() {
    let add = ["add", "-m", "x", "-e", "1h"];
    let check = |story: &Story, variables: &[(&str, &str)], message: &str| {
        run_cron_with_env(story, variables, &add).stdout_has("✓ Added").stderr(message);
    };
    let config = |value: Value| Story::bare().config(&value);
    check(
        &config(
            json!({ "agents": { "defaults": { "model": "gpt-6-luna", "provider": "openai" } } }),
        ),
        &[("OPENAI_API_KEY", "key-of-the-story")],
        "nanobot: the API key is only in $OPENAI_API_KEY, which cron does not set: `printenv OPENAI_API_KEY | nanobot config set \
         providers.openai.apiKey -` stores it in the config file\n",
    );
    let block = json!({ "providers": { "openai": { "apiKey": "${MY_KEY}" } } });
    let story = config(block);
    let result =
        run_cron_with_env(&story, &[("MY_KEY", "key-of-the-story")], &add).stdout_has("✓ Added");
    result.stderr_has("runs started by cron will fail").stderr_has("MY_KEY");
    let story = Story::bare();
    run_cron_with_env(&story, &[], &add).stdout_has("✓ Added").stderr_has("runs will fail: ");
    // The provider selected by the remaining key differs from the one in this shell.
    check(
        &config(json!({ "providers": { "deepseek": { "apiKey": "key-of-the-story" } } })),
        &[
            ("NANOBOT_AGENTS__DEFAULTS__MODEL", "deepseek-chat"),
            ("HTTPS_PROXY", "http://127.0.0.1:1"),
        ],
        "nanobot: jobs will not have HTTPS_PROXY, NANOBOT_AGENTS__DEFAULTS__MODEL under cron: put settings for jobs in the config file (`nanobot config set`: http.proxy)\n\
         nanobot: under cron the job uses `deepseek-flash` of deepseek, not `deepseek-chat` of deepseek as in this shell\n",
    );
    // A variable with a value in the config is not missing, and a log filter has no effect on a job.
    check(
        &Story::new()
            .set("http.proxy", json!("http://127.0.0.1:2"))
            .set("http.firstByteTimeout", json!(30)),
        &[
            ("https_proxy", "http://127.0.0.1:1"),
            ("NO_PROXY", "a.example"),
            ("SSL_CERT_DIR", "/certs"),
            ("NANOBOT_LLM_TIMEOUT_S", "20"),
            ("NANOBOT_STREAM_IDLE_TIMEOUT_S", "20"),
            ("NANOBOT_LOG", "/tmp/events.jsonl"),
        ],
        "nanobot: jobs will not have NANOBOT_LOG, NANOBOT_STREAM_IDLE_TIMEOUT_S, NO_PROXY, SSL_CERT_DIR under cron: put settings \
         for jobs in the config file (`nanobot config set`: http.noProxy, http.caFile, http.streamIdleTimeout, log.events)\n",
    );
    check(&Story::new(), &[("NANOBOT_LOG", "off")], "");
    // Nothing is missing; and with `--quiet` nothing is printed.
    check(&Story::new(), &[], "");
    let story = Story::bare();
    let id = add_job(&story, &["-e", "1h", "-q"]);
    assert_eq!(job_terms(&story, &id)["quiet"], false);
}

#[test]
fn the_suggested_command_makes_the_key_available_to_cron() {
    let story = Story::bare().config(
        &json!({ "agents": { "defaults": { "model": "gpt-6-luna", "provider": "openai" } } }),
    );
    let key = ("OPENAI_API_KEY", "key-of-the-story");
    let stderr = run_cron_with_env(&story, &[key], &["add", "-m", "x", "-e", "1h"])
        .stdout_has("✓ Added")
        .error_text();
    let line = stderr.split('`').nth(1).unwrap().replace("nanobot", crate::story::NANOBOT);
    let mut shell = story.program("/bin/sh");
    shell.args(["-c", &line]).env(key.0, key.1);
    story.wait(shell.spawn().unwrap());
    run_cron_with_env(&story, &[key], &["add", "-m", "x", "-e", "1h"]).stdout_has("✓ Added");
}

#[test]
fn without_a_crontab_the_job_is_stored_with_a_notice() {
    let check = |kind: &str, message: &str| {
        let story = Story::new();
        story.crontab().set_table("1 2 3 4 5 other\n");
        story.crontab().set_behavior(kind);
        run_cron(&story, &["add", "-m", "x", "-e", "1h"])
            .status(1)
            .stdout_has("✓ Added job 'x'")
            .stderr_has(message)
            .stderr_has("the job is saved, but cron does not start it")
            .stderr_has("try: `nanobot cron run --due` once a minute from another scheduler");
        assert_eq!(jobs(&story).len(), 1, "{kind}");
        assert_eq!(story.crontab().table().unwrap(), "1 2 3 4 5 other\n", "{kind}");
        let result = run_cron(&story, &["list"]).stdout_has("every hour");
        result.error_text();
        drop(result);
        // Once the crontab works again, one command updates it.
        story.crontab().set_behavior("");
        run_cron(&story, &["list"])
            .stdout_has("every hour")
            .stderr("nanobot: the crontab does not match the jobs; run `nanobot cron sync`\n");
        run_cron(&story, &["sync"]).stdout_has("+ 4 * * * * /usr/bin/env");
        run_cron(&story, &["list"]).stdout_has("every hour");
    };
    check("forbidden", "not allowed to use this program");
    check("failing", "bad minute");
    check("mute", "cannot use the crontab");
    check("torn", "input/output error");
    let story = Story::new();
    run_cron_with_env(&story, &[("PATH", "/nowhere")], &["add", "-m", "x", "-e", "1h"])
        .status(1)
        .stdout_has("✓ Added")
        .stderr_has("`crontab` is not installed");
    run_cron_with_env(&story, &[("PATH", "/nowhere")], &["list"])
        .stdout_has("every hour")
        .stderr("nanobot: cannot read the crontab: `crontab` is not installed\n");
    // A removal takes effect in the job file.
    story.crontab().set_behavior("forbidden");
    run_cron(&story, &["remove", "x"])
        .status(1)
        .stdout_has("✓ Removed job")
        .stderr_has("the jobs are removed: remaining crontab lines");
    assert_eq!(jobs(&story), [Value::Null; 0]);
}

#[test]
fn a_machine_without_cron_is_reported() {
    let story = Story::new();
    run_cron_with_env(&story, &[("NANOBOT_TEST_DAEMON", "no")], &["add", "-m", "x", "-e", "1h"])
        .stdout_has("✓ Added")
        .stderr("nanobot: no cron daemon is running: nothing starts the jobs until one does\n");
    // Removing a line needs no daemon. Variables that all jobs lack are reported with a new job only.
    let add = ["add", "-n", "y", "-m", "y", "-e", "2h"];
    let variables = [("NANOBOT_TEST_DAEMON", "no"), ("SSL_CERT_DIR", "/certs")];
    run_cron_with_env(&story, &variables, &add).stdout_has("✓ Added").stderr_has("SSL_CERT_DIR");
    run_cron_with_env(&story, &variables, &["edit", "y", "-m", "z"]).stdout_has("✓ Changed");
    run_cron_with_env(&story, &variables, &["remove", "y"]).stdout_has("✓ Removed");
}

#[test]
fn the_list_shows_the_next_run_and_last_result() {
    let story = Story::new();
    run_cron(&story, &["list"]).stdout("");
    run_cron(&story, &["list", "--json"]).stdout("");
    let late = add_job(&story, &["-n", "late", "-c", "0 9 * * *"]);
    let soon = add_job(&story, &["-n", "soon", "-e", "1h"]);
    let off = add_job(&story, &["-n", "off", "-c", "0 7 * * *"]);
    run_cron(&story, &["disable", &off]).stdout("✓ Job 'off' disabled\n");
    let record = |outcome: &str, status: u8, cause: &str, error: Value| {
        let mut record = json!({
            "version": 1, "job": late, "name": "late", "trigger": "schedule", "slot": "2026-01-01T09:00:00Z",
            "start": "2026-01-01T09:00:01Z", "end": "2026-01-01T09:00:31Z", "outcome": outcome, "status": status,
            "cause": cause, "session": "s", "turn": "t", "model": "m", "iterations": 2, "inputTokens": 1000,
            "outputTokens": 10, "costUsd": 0.0123,
        });
        record["error"] = error;
        write(&job_dir(&story, &late).join("runs.jsonl"), format!("{record}\n").as_bytes());
    };
    record("failed", 77, "refused", json!("key rejected by\n\u{1b}[2Jserver"));
    run_cron(&story, &["list"])
        .stdout(&format!(
            "ID        NAME  SCHEDULE           NEXT             LAST                             COST\n\
             {soon}  soon  every hour         Fri 2 Jan 04:04\n\
             {late}  late  at 09:00 each day  Fri 2 Jan 09:00  failed (77), Thu 1 Jan 09:00  $0.0123\n"
        ))
        .stderr("nanobot: 1 job is disabled; `--all` shows it\n");
    record("ok", 0, "answered", Value::Null);
    let text = run_cron(&story, &["list", "--all"]).text();
    assert!(text.contains("ok, Thu 1 Jan 09:00  $0.0123\n"), "{text}");
    assert!(text.contains(&format!("{off}  off   at 07:00 each day  disabled\n")), "{text}");
    let lines = run_cron(&story, &["list", "--json"]).json_lines();
    assert_eq!(lines.len(), 2);
    let late_line = &lines[1];
    for (pointer, expect) in [
        ("/id", json!(late)),
        ("/next", json!("2026-01-02T09:00:00Z")),
        ("/schedule/expr", json!("0 9 * * *")),
        ("/last/outcome", json!("ok")),
        ("/cost_usd", json!(0.0123)),
        ("/crontab", json!("there")),
        ("/foreign", json!(false)),
        ("/terms/grants/write", json!([])),
        ("/session", json!(format!("cron:{late}"))),
        ("/enabled", json!(true)),
        ("/due", Value::Null),
    ] {
        assert_eq!(late_line.pointer(pointer), Some(&expect), "{pointer}");
    }
    run_cron(&story, &["show", "late"])
        .stdout_has("took         30 s, 1010 tokens, $0.0123\n")
        .stdout_has("runs         1, $0.0123 in total\n");
    // A job that is due and has not run yet is due now.
    let later = ("NANOBOT_TEST_TIME", "2026-01-02T04:06:00Z");
    let result = run_cron_with_env(&story, &[later], &["list"])
        .stdout_has(&format!("{soon}  soon  every hour         now\n"));
    result.error_text();
    // Missing and unexpected lines are reported.
    drop(result);
    let table = story.crontab().table().unwrap();
    story.crontab().set_table(table.replace("0 9 * * *", "1 9 * * *"));
    let message = "the crontab does not match the jobs; run `nanobot cron sync`";
    run_cron(&story, &["list", "-a"]).stdout_has("late").stderr_has(message);
    run_cron(&story, &["show", "late"])
        .stdout_has("state        enabled, outdated in the crontab\n");
    story.crontab().set_table(table.replace(&late, "12345678"));
    run_cron(&story, &["list", "-a"]).stdout_has("late").stderr_has(message);
    story.crontab().set_table(table);
    run_cron(&story, &["list", "-a"]).stdout_has("late");
}

#[test]
fn a_missing_job_and_an_ambiguous_name_are_reported() {
    let story = Story::new();
    // Their names follow from the message.
    let one = add_job(&story, &["-e", "1h"]);
    let other = add_job(&story, &["-e", "2h"]);
    for arguments in [
        ["show", "nobody"],
        ["enable", "nobody"],
        ["disable", "nobody"],
        ["remove", "nobody"],
        ["edit", "nobody"],
    ] {
        run_cron(&story, &arguments).status(66).stderr(
            "nanobot: there is no job `nobody`\n  try: `nanobot cron list --all` for the ids\n",
        );
    }
    for arguments in [&["remove", "do it"][..], &["logs", "do it"]] {
        run_cron(&story, arguments)
            .status(2)
            .stderr(&format!("nanobot: 2 jobs are named `do it`\n  try: an id: {one}, {other}\n"));
    }
    assert_eq!(jobs(&story).len(), 2);
}

#[test]
fn an_edit_changes_only_the_given_options() {
    let story = Story::new().set("providers.custom.apiBase", json!("https://models.example/v1"));
    let id = add_job(
        &story,
        &[
            "-n",
            "digest",
            "-c",
            "0 8 * * *",
            "--when",
            "true",
            "--write",
            "-C",
            ".",
            "--session",
            "work",
        ],
    );
    let later = ("NANOBOT_TEST_TIME", "2026-01-02T09:00:00Z");
    run_cron_with_env(&story, &[later], &["edit", "digest", "-c", "30 9 * * *", "--max-cost", "1"])
        .stdout(&format!(
            "✓ Changed job 'digest' ({id})\nat 09:30 each day\n\
         next: Fri 2 Jan 09:30 (in 30 min), Sat 3 Jan 09:30, Sun 4 Jan 09:30\nanswer: printed, and cron mails it to you\n\
         directory: $DIR\n"
        ))
        .stderr_has("the price of `scripted` is unknown, so `--max-cost` cannot be enforced");
    let options = || job_terms(&story, &id);
    assert_eq!(options()["when"], "true");
    assert_eq!(options()["maxCost"], 1.0);
    assert_eq!(options()["grants"]["write"], json!(["."]));
    // Slots before the job was enabled do not count as missed.
    assert_eq!(options()["sinceMs"], 1_767_344_400_000_u64);
    assert_eq!(crontab_lines(&story), [format!("30 9 * * * {id}")]);
    assert_eq!(jobs(&story)[0]["createdAtMs"], 1_767_323_045_000_u64);
    // Empty values unset options; grants are replaced as a whole, but for the directory and the denials.
    run_cron(&story, &["edit", &id, "--when", "", "--session", "", "--read", "."])
        .stdout_has("✓ Changed")
        .stderr(
            "nanobot: its earlier permission flags `--directory=$DIR --write` are replaced: it now has \
             `--directory=$DIR --read=$DIR`\n",
        );
    assert_eq!(options()["when"], Value::Null);
    assert_eq!(options()["grants"]["write"], json!([]));
    for (flags, expect) in [
        (&["--deny", "exec"][..], json!(["exec"])),
        (&["--read", "."][..], json!(["exec"])),
        (&["--read", ".", "--deny", ""][..], json!([])),
    ] {
        run_cron(&story, &[&["edit", id.as_str()], flags].concat())
            .stdout_has("✓ Changed")
            .stderr_has("are replaced: it now has `--directory=");
        assert_eq!(options()["grants"]["deny"], expect, "{flags:?}");
    }
    assert_eq!(jobs(&story)[0]["payload"]["sessionKey"], Value::Null);
    run_cron(&story, &["edit", &id, "--at", "2026-02-01T10:00", "-m", "once", "-n", "single"])
        .stdout_has("✓ Changed job 'single'");
    let job = &jobs(&story)[0];
    assert_eq!(
        (&job["deleteAfterRun"], &job["payload"]["message"]),
        (&json!(true), &json!("once"))
    );
    assert_eq!(options()["catchUp"], "once");
    run_cron(&story, &["edit", &id, "-e", "2h"]).stdout_has("every 2 hours");
    assert_eq!(options()["catchUp"], "none");
    assert_eq!(jobs(&story)[0]["deleteAfterRun"], false);
    // Delivery enabled, disabled and removed.
    run_cron(&story, &["edit", &id, "--channel", "file", "--to", "f"]).stdout_has("✓ Changed");
    assert!(options()["sink"].is_object());
    run_cron(&story, &["edit", &id, "--no-deliver"]).stdout_has("✓ Changed");
    assert_eq!(options()["sink"], Value::Null);
    assert_eq!(jobs(&story)[0]["payload"]["channel"], "file");
    run_cron(&story, &["edit", &id, "--deliver"])
        .status(2)
        .stderr_has("both `--channel` and `--to`");
    run_cron(&story, &["edit", &id, "--channel", "command", "--to", "cat"]).stdout_has("✓ Changed");
    run_cron(&story, &["edit", &id, "--to", "tee log"]).stdout_has("✓ Changed");
    assert_eq!(options()["sink"], json!({ "command": "tee log" }));
    // A recipient of one channel is none of another, and a command stays out of the job file.
    for channel in ["file", "telegram"] {
        run_cron(&story, &["edit", &id, "--channel", channel]).status(2).stderr_has("needs a");
    }
    run_cron(&story, &["edit", &id, "--no-deliver"]).stdout_has("✓ Changed");
    assert_eq!(jobs(&story)[0]["payload"]["to"], Value::Null);
    run_cron(&story, &["edit", &id, "--channel", "", "--to", "x"])
        .status(2)
        .stderr_has("`--to x` needs a channel");
    run_cron(&story, &["edit", &id, "--channel", "", "--to", "x"])
        .status(2)
        .stderr_has("needs a channel");
    run_cron(&story, &["edit", &id, "--channel", ""]).stdout_has("✓ Changed");
    assert_eq!(options()["sink"], Value::Null);
    assert_eq!(
        jobs(&story)[0]["payload"],
        json!({
            "kind": "agent_turn", "message": "once", "deliver": false, "channel": null, "to": null, "sessionKey": null
        })
    );
    // Invalid edits change nothing.
    let before = read_json(&job_file(&story));
    for (flags, status) in
        [(["-m", ""], 2), (["-n", " "], 2), (["-e", "5"], 2), (["--read", "nowhere"], 66)]
    {
        run_cron(&story, &[&["edit", &id], &flags[..]].concat()).status(status).error_text();
    }
    assert_eq!(read_json(&job_file(&story)), before);
}

#[test]
fn a_name_is_that_of_one_job() {
    let story = Story::new();
    let first = add_job(&story, &["-n", "digest", "-c", "0 8 * * *"]);
    let second = ["add", "-n", "digest", "-m", "other", "-c", "0 9 * * *"];
    run_cron(&story, &second)
        .status(2)
        .stderr_has(&format!("there is a job `digest` already: {first}"))
        .stderr_has("`--replace`");
    assert_eq!(jobs(&story).len(), 1);
    run_cron(&story, &[&second[..], &["--replace"]].concat()).stdout_has("digest");
    assert_eq!(jobs(&story).len(), 1);
    // Names that follow from equal messages are no reason to refuse a job.
    let unnamed = ["add", "-m", "water the plants", "-c", "0 9 * * *"];
    for _ in 0..2 {
        run_cron(&story, &unnamed).stdout_has("water the plants");
    }
    assert_eq!(jobs(&story).len(), 3);
    // Nor does an edit make two of one.
    let other = add_job(&story, &["-n", "other", "-e", "1h"]);
    run_cron(&story, &["edit", "other", "-n", "digest"]).status(2).stderr(&format!(
        "nanobot: there is a job `digest` already: {first}\n  try: another `--name`\n"
    ));
    run_cron(&story, &["edit", &other, "-n", "other", "-m", "more"]).stdout_has("✓ Changed");
    run_cron(&story, &["edit", "other", "-n", "third"]).stdout_has("✓ Changed job 'third'");
}

/// A job whose answers could not be sent is reported when it is made, and does not run at the model's price.
#[test]
fn a_chat_service_that_is_not_set_up_is_reported_before_it_costs() {
    let story = Story::new();
    let flags =
        ["add", "-n", "digest", "-m", "x", "-e", "1h", "--channel", "telegram", "--to", "1"];
    let cause = "its answers cannot be sent: `channels.telegram.token` is not set";
    run_cron(&story, &flags)
        .stdout_has("✓ Added job 'digest'")
        .stderr_has(&format!("nanobot: `digest` does not run: {cause}"));
    let id = jobs(&story)[0]["id"].as_str().unwrap().to_owned();
    run_cron(&story, &["check"])
        .status(1)
        .stdout_has(&format!("digest ({id}): never runs: {cause}\n"));
    let result = story.run(["status", "--check"]);
    result.code();
    assert!(result.text().contains(cause));
    drop(result);
    let count = story.requests().len();
    run_cron(&story, &["run", &id])
        .status(78)
        .stderr_has("the answer could not be sent: `channels.telegram.token` is not set");
    assert_eq!(story.requests().len(), count);
    let story = story.set("channels.telegram.token", json!("1:x"));
    run_cron(&story, &["edit", &id, "-m", "y"]).stdout_has("✓ Changed").stderr("");
    let checked = run_cron(&story, &["check"]).status(1).text();
    assert!(!checked.contains("never runs"), "{checked}");
}

#[test]
fn jobs_can_be_disabled_and_enabled() {
    let story = Story::new();
    let one = add_job(&story, &["-n", "one", "-c", "0 8 * * *"]);
    let two = add_job(&story, &["-n", "two", "-c", "0 9 * * *"]);
    run_cron(&story, &["disable", "one", "nobody", &two])
        .status(66)
        .stdout("✓ Job 'one' disabled\n✓ Job 'two' disabled\n")
        .stderr_has("there is no job `nobody`");
    // The crontab has no line of ours; an empty crontab is removed.
    assert_eq!(story.crontab().table(), None);
    assert_eq!(jobs(&story)[0]["enabled"], false);
    assert_eq!(jobs(&story)[0]["state"]["nextRunAtMs"], Value::Null);
    let later = ("NANOBOT_TEST_TIME", "2026-01-05T08:01:00Z");
    run_cron_with_env(&story, &[later], &["enable", "one"]).stdout("✓ Job 'one' enabled\n");
    assert_eq!(job_terms(&story, &one)["sinceMs"], 1_767_600_060_000_u64);
    let result = run_cron_with_env(&story, &[later], &["list"]).stdout_has("Tue 6 Jan 08:00");
    result.stderr_has("1 job is disabled");
    run_cron(&story, &["enable", "--disable", "one"]).stdout("✓ Job 'one' disabled\n");
    // A one-time job in the past is not added again.
    let past = add_job(&story, &["-n", "past", "--at", "2026-01-03T00:00"]);
    run_cron(&story, &["disable", &past]).stdout("✓ Job 'past' disabled\n");
    run_cron_with_env(&story, &[later], &["enable", &past])
        .stdout("✓ Job 'past' enabled\n")
        .stderr_has("the time of `past` has passed");
    let result = run_cron_with_env(&story, &[later], &["list"]).stdout_has(" past\n");
    result.error_text();
}

#[test]
fn a_removed_job_leaves_no_files() {
    let story = Story::new().script([says("Done.")]);
    story.crontab().set_table("5 4 * * * backup");
    let id = add_job(&story, &["-n", "one", "-e", "1h"]);
    let shared = add_job(&story, &["-n", "two", "-e", "1h", "-s", "work"]);
    let key = format!("cron:{id}");
    story.run(["agent", "-m", "x", "-s", &key]).stdout("Done.\n");
    // What jobs leave in the trash is removed after a month.
    let trash = story.workspace().join("sessions/.trash");
    let old = trash.join("20251130000000000000-cron_old.jsonl.gone");
    let recent = trash.join("20251215000000000000-cron_new.jsonl.gone");
    for path in [&old, &recent] {
        crate::story::write(path, b"");
    }
    run_cron(&story, &["remove", "one", "nobody", "two"])
        .status(66)
        .stdout(&format!("✓ Removed job {id} ('one')\n✓ Removed job {shared} ('two')\n"))
        .stderr_has(&format!(
            "nanobot: moved the session of `one` to the trash; restore it with `nanobot session restore {key}`\n"
        ))
        .stderr_has("there is no job `nobody`");
    assert!(!old.exists() && recent.exists());
    assert_eq!(jobs(&story), [Value::Null; 0]);
    assert!(!job_dir(&story, &id).exists() && !job_dir(&story, &shared).exists());
    assert_eq!(story.crontab().table().unwrap(), "5 4 * * * backup\n");
    story.run(["session", "restore", &key, "-q"]);
    story.run(["session", "show", &key]).stdout_has("Done.");
}

#[test]
fn a_running_job_can_be_removed_and_its_run_continues() {
    let story = Story::new();
    let id = add_job(&story, &["-n", "one", "-e", "1h"]);
    let lock = fs::File::create(job_dir(&story, &id).join("lock")).unwrap();
    lock.lock().unwrap();
    run_cron(&story, &["remove", "one"])
        .stdout(&format!("✓ Removed job {id} ('one')\n"))
        .stderr("nanobot: `one` is running: the current run continues to its end\n");
    assert!(job_dir(&story, &id).exists());
    assert_eq!(jobs(&story), [Value::Null; 0]);
    assert_eq!(story.crontab().table(), None);
}

#[test]
fn jobs_of_the_python_program_are_listed_and_adopted_by_sync() {
    let story = Story::new();
    let mut event = python_job("ffffffff", "dream");
    event["payload"]["kind"] = json!("system_event");
    let mut broken = python_job("bbbbbbbb", "broken");
    broken["schedule"]["expr"] = json!("every day");
    let mut odd = python_job("a b", "odd");
    odd["schedule"]["tz"] = json!("Europe/Berlin");
    let mut nowhere = python_job("cccccccc", "nowhere");
    nowhere["schedule"]["tz"] = json!("Mars/Olympus");
    let mut past = python_job("dddddddd", "past");
    past["schedule"] = json!({ "kind": "at", "atMs": 1_700_000_000_000_u64 });
    let python_jobs = json!([python_job("aaaaaaaa", "theirs"), event, broken, odd, nowhere, past]);
    write(&job_file(&story), &python_job_file(&python_jobs));
    let own_id = add_job(&story, &["-n", "ours", "-c", "0 8 * * *"]);
    assert_eq!(crontab_lines(&story), [format!("0 8 * * * {own_id}")]);
    let list = run_cron(&story, &["list"]);
    let text = list.text();
    list.stderr(
        "nanobot: some jobs belong to another program; `nanobot cron sync` adds them to the crontab\n",
    );
    assert!(text.contains("aaaaaaaa  theirs   at 09:00 each day"), "{text}");
    assert!(text.contains("not in the crontab  ok elsewhere, Thu 1 Jan 09:00\n"), "{text}");
    assert!(text.contains("ffffffff  dream    never: it is an internal job of the Pyt"), "{text}");
    fn assert_skipped(result: RunResult<'_>) {
        result.stderr_has("`dream` is not in the crontab: it is an internal job of the Python program (`system_event`)")
            .stderr_has("`broken` is not in the crontab: invalid expression: `every day`")
            .stderr_has("`odd` is not in the crontab: its id may only contain letters, digits, `_` and `-`")
            .stderr_has("`nowhere` is not in the crontab: there is no time zone `Mars/Olympus` on this machine")
            .stderr_has("`past` is not in the crontab: its time has passed");
    }
    let before = story.crontab().table();
    assert_skipped(
        run_cron(&story, &["sync", "--dry-run"]).stdout_has("+ 0 9 * * * /usr/bin/env "),
    );
    assert_eq!(story.crontab().table(), before);
    assert_skipped(run_cron(&story, &["sync"]).stdout_has(" cron run aaaaaaaa --scheduled\n"));
    assert_eq!(
        crontab_lines(&story),
        ["0 9 * * * aaaaaaaa".to_owned(), format!("0 8 * * * {own_id}")]
    );
    // The job has no grants and stays in the crontab when other jobs change.
    assert!(!job_dir(&story, "aaaaaaaa").join("job.json").exists());
    run_cron(&story, &["remove", "ours"]).stdout_has("✓ Removed");
    assert_eq!(crontab_lines(&story), ["0 9 * * * aaaaaaaa"]);
    assert_skipped(run_cron(&story, &["sync"]).stdout("The crontab is up to date.\n"));
    run_cron(&story, &["disable", "theirs"]).stdout("✓ Job 'theirs' disabled\n").error_text();
    assert_eq!(crontab_lines(&story), [""; 0]);
    // The job stays adopted; after an edit it is our own.
    run_cron(&story, &["enable", "theirs"]).stdout("✓ Job 'theirs' enabled\n").error_text();
    assert_eq!(crontab_lines(&story), ["0 9 * * * aaaaaaaa"]);
    run_cron(&story, &["edit", "theirs", "-m", "better"]).stdout_has("✓ Changed").error_text();
    assert_eq!(crontab_lines(&story), ["0 9 * * * aaaaaaaa"]);
    assert_eq!(job_terms(&story, "aaaaaaaa")["sinceMs"], 1_767_323_045_000_u64);
}

#[test]
fn an_edit_does_not_adopt_a_delivery_from_the_job_file() {
    let story = Story::new();
    let mut job = python_job("aaaaaaaa", "theirs");
    job["payload"]["deliver"] = json!(true);
    job["payload"]["channel"] = json!("command");
    job["payload"]["to"] = json!("touch /tmp/x");
    write(&job_file(&story), &python_job_file(&json!([job])));
    run_cron(&story, &["edit", "theirs", "--deliver"])
        .status(2)
        .stderr_has("the destination comes from the job file");
    run_cron(&story, &["edit", "theirs", "-n", "renamed"])
        .stdout_has("✓ Changed")
        .stderr_has("`renamed` delivers nothing: its destination was set by another program");
    assert_eq!(job_terms(&story, "aaaaaaaa")["sink"], Value::Null);
}

#[test]
fn sync_repairs_external_changes_to_the_crontab() {
    let story = Story::new();
    let one = add_job(&story, &["-n", "one", "-c", "0 8 * * *"]);
    let two = add_job(&story, &["-n", "two", "-c", "0 9 * * *"]);
    let whole = story.crontab().table().unwrap();
    let foreign = "# mine\r\nMAILTO=\"a % b\"\n\n";
    let line = |id: &str| whole.lines().find(|line| line.contains(id)).unwrap();
    let torn = whole.replace(&format!("{}\n", line(&one)), "").replace("0 9 * * *", "1 1 * * *");
    story.crontab().set_table(format!("{foreign}{torn}tail"));
    let (stale, new) = (line(&two).replace("0 9 * * *", "1 1 * * *"), [line(&one), line(&two)]);
    let change = format!("- {stale}\n+ {}\n+ {}\n", new[0], new[1]);
    run_cron(&story, &["sync", "--dry-run"]).stdout(&story.normalize_paths(&change));
    run_cron(&story, &["sync"]).stdout(&story.normalize_paths(&change));
    let mended = story.crontab().table().unwrap();
    assert_eq!(mended, format!("{foreign}{whole}tail\n"));
    run_cron(&story, &["sync"]).stdout("The crontab is up to date.\n");
    story.crontab().set_table(foreign);
    run_cron(&story, &["sync"]).stdout_has("+ 0 8 * * * ");
    // Directories without a job are removed.
    write(&job_file(&story), &python_job_file(&json!([])));
    run_cron(&story, &["sync"]).stdout_has("- 0 8 * * * ");
    assert_eq!(story.crontab().table().unwrap(), foreign);
}

#[test]
fn both_job_files_are_read_and_each_job_is_changed_in_its_own_file() {
    let story = Story::new();
    let older = story.home().join(".nanobot/cron/jobs.json");
    write(&older, &python_job_file(&json!([python_job("aaaaaaaa", "older")])));
    // While there is no second file, new jobs are added to this one, too.
    let own_id = add_job(&story, &["-n", "ours", "-e", "1h"]);
    assert!(!job_file(&story).exists());
    assert_eq!(read_json(&older)["jobs"][1]["id"], json!(own_id));
    write(&job_file(&story), &python_job_file(&json!([python_job("bbbbbbbb", "newer")])));
    let own_id = add_job(&story, &["-n", "here", "-e", "1h"]);
    assert_eq!(jobs(&story)[1]["id"], json!(own_id));
    let result = run_cron(&story, &["list"]);
    let text = result.text();
    result.error_text();
    for name in ["older", "newer", "ours", "here"] {
        assert!(text.contains(&format!("  {name} ")), "{name} in {text}");
    }
    run_cron(&story, &["disable", "older"]).stdout("✓ Job 'older' disabled\n");
    assert_eq!(read_json(&older)["jobs"][0]["enabled"], false);
    // The jobs belong to the workspace of the config, however it is named.
    let workspace = story.workspace();
    let workspace = workspace.to_str().unwrap();
    run_cron(&story, &["list", "-w", workspace]).stdout_has("  ours ").error_text();
    assert_eq!(crontab_lines(&story).len(), 2);
    run_cron(&story, &["remove", "here", "-w", workspace]).stdout_has("✓ Removed");
    assert_eq!(crontab_lines(&story).len(), 1);
    assert!(!story.crontab().table().unwrap().contains(" -w "));
    let link = story.dir().join("link");
    std::os::unix::fs::symlink(workspace, &link).unwrap();
    add_job(&story, &["-e", "1h", "-w", link.to_str().unwrap()]);
    let table = story.crontab().table().unwrap();
    assert_eq!(table.matches("# >>> nanobot cron: ").count(), 1, "{table}");
    assert!(!table.contains(" -w "), "{table}");
    // They belong to no other workspace.
    let other = story.dir().join("other");
    run_cron(&story, &["list", "-w", other.to_str().unwrap()])
        .stdout("")
        .stderr("nanobot: there is no workspace `$DIR/other` yet\n");
}

#[test]
fn each_workspace_has_its_own_crontab_block() {
    let story = Story::new();
    let one = add_job(&story, &["-e", "1h"]);
    std::fs::create_dir(story.dir().join("other")).unwrap();
    let two = add_job(&story, &["-e", "1h", "-w", "other"]);
    let by_variable = ("NANOBOT_AGENTS__DEFAULTS__WORKSPACE", story.dir().join("third"));
    let result = run_cron_with_env(
        &story,
        &[(by_variable.0, by_variable.1.to_str().unwrap())],
        &["add", "-m", "x", "-e", "1h"],
    );
    result.stdout_has("✓ Added").stderr_has("NANOBOT_AGENTS__DEFAULTS__WORKSPACE");
    let table = story.normalize_paths(&story.crontab().table().unwrap());
    assert!(table.contains(&format!("nanobot cron run {one} --scheduled")), "{table}");
    assert!(
        table.contains(&format!("nanobot -w $DIR/other cron run {two} --scheduled")),
        "{table}"
    );
    assert!(table.contains("nanobot -w $DIR/third cron run "), "{table}");
    assert_eq!(table.matches("# >>> nanobot cron: ").count(), 3);
    run_cron(&story, &["remove", &two, "-w", "other"]).stdout_has("✓ Removed");
    assert_eq!(story.crontab().table().unwrap().matches("# >>> nanobot cron: ").count(), 2);
}

#[test]
fn unknown_keys_in_the_job_file_are_preserved() {
    let story = Story::new();
    let job = json!({
        "id": "aaaaaaaa", "name": "snake", "enabled": true, "colour": { "a": [1, 2.5, null] },
        "schedule": { "kind": "every", "every_ms": "5400000", "jitter": 3 },
        "payload": { "kind": "agent_turn", "message": "hi", "channel_meta": { "x": 1 }, "originChatId": "7" },
        "state": { "last_run_at_ms": "1767258000000", "last_status": "error", "last_error": "boom", "run_history": [{ "runAtMs": 1 }] },
        "created_at_ms": "1767000000000",
    });
    let before = json!({ "version": 1, "extra": [true], "jobs": [job, 7, "odd"] });
    write(&job_file(&story), before.to_string().as_bytes());
    let result = run_cron(&story, &["list"]).stdout_has("every 90 minutes");
    result.stdout_has("error elsewhere, Thu 1 Jan 09:00").error_text();
    run_cron(&story, &["disable", "snake"]).stdout_has("disabled");
    let after = read_json(&job_file(&story));
    assert_eq!(after["extra"], json!([true]));
    assert_eq!(after["jobs"][1], 7);
    assert_eq!(after["jobs"][2], "odd");
    let job = &after["jobs"][0];
    assert_eq!(job["enabled"], false);
    assert_eq!(job["colour"], json!({ "a": [1, 2.5, null] }));
    assert_eq!(job["schedule"]["every_ms"], 5_400_000);
    assert_eq!(job["schedule"]["jitter"], 3);
    assert!(job["schedule"].get("everyMs").is_none());
    assert_eq!(job["payload"]["channel_meta"], json!({ "x": 1 }));
    assert_eq!(job["payload"]["originChatId"], "7");
    assert_eq!(job["state"]["run_history"], json!([{ "runAtMs": 1 }]));
    assert_eq!(job["state"]["last_run_at_ms"], 1_767_258_000_000_u64);
    assert_eq!(job["state"]["last_error"], "boom");
    assert_eq!(job["created_at_ms"], 1_767_000_000_000_u64);
    add_job(&story, &["-e", "1h"]);
    run_cron(&story, &["edit", "snake", "-m", "new"]).stdout_has("✓ Changed");
    let after = read_json(&job_file(&story));
    assert_eq!(after["jobs"][0]["payload"]["channel_meta"], json!({ "x": 1 }));
    assert_eq!(after["jobs"][0]["payload"]["message"], "new");
    assert_eq!(after["jobs"].as_array().unwrap().len(), 4);
    run_cron(&story, &["remove", "snake"]).stdout_has("✓ Removed");
    assert_eq!(read_json(&job_file(&story))["jobs"].as_array().unwrap().len(), 3);
}

#[test]
fn an_invalid_job_file_is_preserved_and_nothing_is_changed() {
    let commands: [&[&str]; 8] = [
        &["list"],
        &["add", "-m", "x", "-e", "1h"],
        &["show", "x"],
        &["edit", "x", "-m", "y"],
        &["enable", "x"],
        &["disable", "x"],
        &["remove", "x"],
        &["sync"],
    ];
    for (text, is_copied) in [
        ("{\"version\": 1, \"jobs\": [{\"id\": \"aaaaaaaa\", ", true),
        ("", true),
        ("[]", true),
        ("{\"jobs\": {}}", true),
        ("\u{0}\u{0}", true),
        ("{\"version\": 2, \"jobs\": []}", false),
    ] {
        let story = Story::new();
        write(&job_file(&story), text.as_bytes());
        story.crontab().set_table("1 2 3 4 5 other\n");
        for command in commands {
            run_cron(&story, command)
                .status(78)
                .stderr_has("$HOME/.nanobot/workspace/cron/jobs.json");
            assert_eq!(fs::read_to_string(job_file(&story)).unwrap(), text, "{command:?}");
        }
        let folder = job_file(&story).with_file_name("");
        let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
        let copies: Vec<PathBuf> = names
            .map(PathBuf::from)
            .filter(|name| name.to_str().unwrap().starts_with("jobs.json.corrupt-"))
            .collect();
        assert_eq!(
            copies.len(),
            usize::from(is_copied),
            "{text:?}: one copy, however often it is looked at"
        );
        for copy in copies {
            assert_eq!(fs::read_to_string(job_file(&story).with_file_name(copy)).unwrap(), text);
        }
        assert_eq!(story.crontab().table().unwrap(), "1 2 3 4 5 other\n");
        assert!(!story.home().join(".nanobot/cron").join("aaaaaaaa").exists());
    }
    let story = Story::new();
    fs::create_dir_all(job_file(&story)).unwrap();
    run_cron(&story, &["add", "-m", "x", "-e", "1h"]).status(74).stderr_has("jobs.json`");
}

#[test]
fn short_option_c_is_the_expression_in_add_and_the_config_elsewhere() {
    let story =
        Story::new().file("other.json", "{\"agents\": {\"defaults\": {\"profile\": \"plan\"}}}");
    // The program uses the config given on the command line; this one is invalid.
    let broken = Story::new().file("broken.json", "{");
    for command in [
        &["add", "-m", "x", "-c", "0 8 * * *", "--config", "broken.json"][..],
        &["list", "-c", "broken.json"],
        &["edit", "x", "--config", "broken.json"],
    ] {
        run_cron(&broken, command).status(78).stderr_has("broken.json");
    }
    let result = run_cron(
        &story,
        &["add", "-n", "a", "-m", "x", "-c", "0 8 * * *", "--config", "other.json"],
    );
    result.stdout_has("at 08:00 each day").error_text();
    // Each job keeps its own value, whichever command rewrites the block.
    add_job(&story, &["-n", "b", "-c", "0 9 * * *"]);
    let table = story.normalize_paths(&story.crontab().table().unwrap());
    let line_of = |fields: &str| table.lines().find(|line| line.starts_with(fields)).unwrap();
    assert!(line_of("0 8 ").contains("nanobot -c $DIR/other.json cron run "), "{table}");
    assert!(line_of("0 9 ").contains("nanobot cron run "), "{table}");
    run_cron(&story, &["show", "a"]).stdout_has("profile      plan: ").text();
    run_cron(&story, &["show", "b"]).stdout_has("profile      default: ").text();
    let mut before = story.command(["-c", "other.json", "cron", "add", "-m", "x", "-e", "1h"]);
    before.env_remove("NANOBOT_MEMORY__CONSOLIDATE");
    let result = story.wait(before.spawn().unwrap());
    result.stdout_has("✓ Added").error_text();
    assert_eq!(story.crontab().table().unwrap().matches("other.json cron run").count(), 2);
}

#[test]
fn stories_have_a_crontab_of_their_own() {
    let story = Story::new().env("PATH", "/usr/local/bin:/usr/bin:/bin");
    let added = story.run(["cron", "add", "-m", "x", "-e", "1h"]);
    added.stdout_has("✓").error_text();
    assert!(story.crontab().table().unwrap().contains("cron run"));
}

#[test]
fn the_crontab_uses_the_invoked_program_path() {
    let story = Story::new();
    let link = story.dir().join("bin/nanobot");
    fs::create_dir(story.dir().join("bin")).unwrap();
    std::os::unix::fs::symlink(crate::story::NANOBOT, &link).unwrap();
    let check = |script: &str, expect: &str| {
        let mut shell = story.program("/bin/sh");
        let path = format!("{}:{}", story.dir().join("bin").display(), story.path());
        shell.args(["-c", script]).env("PATH", path);
        shell.env_remove("NANOBOT_MEMORY__CONSOLIDATE");
        let result = story.wait(shell.spawn().unwrap()).stdout_has("✓ Added");
        drop(result);
        let table = story.normalize_paths(&story.crontab().table().unwrap());
        assert!(table.contains(&format!(" {expect} cron run ")), "{script}: {table}");
        run_cron(&story, &["remove", "x"]).stdout_has("✓ Removed");
    };
    let add = "cron add -m x -e 1h";
    check(&format!("nanobot {add}"), "$DIR/bin/nanobot");
    check(&format!("bin/nanobot {add}"), "$DIR/bin/nanobot");
    check(&format!("cd bin && ./nanobot {add}"), "$DIR/bin/nanobot");
    // A program that runs under another name is written with its real file name.
    let program = crate::story::NANOBOT;
    check(&format!("bash -c 'exec -a sh {program} {add}'"), program);
}

#[test]
fn path_entries_that_do_not_fit_a_crontab_line_are_reported() {
    let story = Story::new();
    let long: Vec<String> =
        (0..60).map(|number| format!("/opt/some/long/directory/{number}")).collect();
    let path = format!("{}:rel:{}", story.path(), long.join(":"));
    run_cron_with_env(&story, &[("PATH", &path)], &["add", "-m", "x", "-e", "1h"])
        .stdout_has("✓ Added")
        .stderr_has("the PATH in the crontab omits, for lack of space: /opt/some/long/directory/")
        .stderr_has(" more\n");
    let table = story.crontab().table().unwrap();
    // Limit of cron for the command after the five fields.
    let lines = table.lines().filter(|line| !line.starts_with('#'));
    let commands: Vec<&str> = lines.filter_map(|line| line.splitn(6, ' ').nth(5)).collect();
    assert!(!commands.is_empty());
    assert!(commands.iter().all(|command| command.len() <= 998), "{commands:?}");
}

#[test]
fn the_heartbeat_is_an_ordinary_crontab_line() {
    let story = Story::new().workspace_file("HEARTBEAT.md", "- look\n");
    run_heartbeat(&story, &["enable"]).stdout(
        "✓ Heartbeat enabled\nevery 30 minutes\n\
         next: Fri 2 Jan 03:34 (in 29 min), Fri 2 Jan 04:04, Fri 2 Jan 04:34\nanswer: printed, and cron mails it to you\n\
         directory: ~/.nanobot/workspace; `-C DIR` sets another\n",
    );
    assert_eq!(crontab_lines(&story), ["4,34 * * * * heartbeat"]);
    assert!(!job_file(&story).exists());
    run_cron(&story, &["list"])
        .stdout_has("heartbeat  heartbeat  every 30 minutes  Fri 2 Jan 03:34");
    run_heartbeat(&story, &["enable", "-e", "2h", "--max-cost", "1"]).stdout_has("every 2 hours");
    run_heartbeat(&story, &["enable", "--channel", "file", "--to", "out"])
        .stdout_has("every 2 hours");
    let options = || job_terms(&story, "heartbeat");
    assert_eq!((&options()["maxCost"], &options()["kind"]), (&json!(1.0), &json!("heartbeat")));
    assert_eq!(options()["sink"], json!({ "file": story.dir().join("out") }));
    run_cron(&story, &["edit", "heartbeat", "--every", "1h"]).stdout_has("every hour");
    assert_eq!(options()["everyMs"], 3_600_000);
    for arguments in [
        &["enable", "-s", "x"][..],
        &["enable", "-e", "5"],
        &["enable", "--channel", "msteams", "--to", "1"],
    ] {
        run_heartbeat(&story, arguments).status(2).error_text();
    }
    for arguments in [
        &["edit", "heartbeat", "-m", "x"][..],
        &["edit", "heartbeat", "-c", "0 8 * * *"],
        &["disable", "heartbeat"],
    ] {
        run_cron(&story, arguments).status(2).stderr_has("the heartbeat");
    }
    run_heartbeat(&story, &["disable"]).stdout("✓ Heartbeat disabled\n");
    assert_eq!(story.crontab().table(), None);
    assert!(!job_dir(&story, "heartbeat").exists());
    run_heartbeat(&story, &["disable"]).stderr("nanobot: the heartbeat was not enabled\n");
    fs::remove_file(story.workspace().join("HEARTBEAT.md")).unwrap();
    run_heartbeat(&story, &["enable"])
        .stdout_has("✓ Heartbeat enabled")
        .stderr_has("`~/.nanobot/workspace/HEARTBEAT.md`");
    run_cron(&story, &["remove", "heartbeat"]).stdout("✓ Removed job heartbeat\n");
}

#[test]
fn concurrent_additions_are_all_stored() {
    let story = Story::new();
    let foreign = "# mine\nMAILTO=x\r\n1 2 3 4 5 echo '100\\%'\n";
    story.crontab().set_table(foreign);
    let old: Vec<String> = (0..32).map(|number| format!("old{number}")).collect();
    let mut python_jobs: Vec<Value> = old.iter().map(|name| self::python_job(name, name)).collect();
    python_jobs.push(self::python_job("stays", "stays"));
    write(&job_file(&story), &python_job_file(&json!(python_jobs)));
    run_cron(&story, &["sync"]).stdout_has("cron run stays --scheduled");
    let add = |number: usize| {
        let (name, expression) = (format!("new{number}"), format!("{number} 8 * * *"));
        cron_command(&story, &["add", "-n", &name, "-m", "x", "-c", &expression]).spawn().unwrap()
    };
    let children: Vec<_> = (0..32)
        .flat_map(|number| {
            [add(number), cron_command(&story, &["remove", &old[number]]).spawn().unwrap()]
        })
        .collect();
    for child in children {
        let result = story.wait(child);
        result.text();
    }
    let mut names: Vec<String> =
        jobs(&story).iter().map(|job| job["name"].as_str().unwrap().to_owned()).collect();
    names.sort();
    let mut expect: Vec<String> = (0..32).map(|number| format!("new{number}")).collect();
    expect.push("stays".into());
    expect.sort();
    assert_eq!(names, expect);
    let id_of = |job: &Value| job["id"].as_str().unwrap().to_owned();
    let mut expect: Vec<String> = jobs(&story)
        .iter()
        .map(|job| format!("{} {}", job["schedule"]["expr"].as_str().unwrap(), id_of(job)))
        .collect();
    let mut lines = crontab_lines(&story);
    expect.sort();
    lines.sort();
    assert_eq!(lines, expect);
    let table = story.crontab().table().unwrap();
    assert!(table.starts_with(foreign), "{table}");
    assert_eq!(table.matches("nanobot cron: ").count(), 2);
    run_cron(&story, &["sync"]).stdout("The crontab is up to date.\n");
}

/// System calls that change something outside of the program or wait for other processes.
const TRACED_CALLS: &[&str] = &[
    "write",
    "fsync",
    "fdatasync",
    "rename",
    "renameat",
    "renameat2",
    "mkdir",
    "unlink",
    "unlinkat",
    "flock",
    "clone",
    "clone3",
    "vfork",
];

/// Kills `cron add` at the `n`-th such call. Returns whether there was one, and whether the job was in the job file but not
/// yet in the crontab.
fn kill_add_at(call: &str, n: usize) -> (bool, bool) {
    let foreign = "# mine\n1 2 3 4 5 other\n";
    let story = Story::new();
    story.crontab().set_table(foreign);
    add_job(&story, &["-n", "first", "-c", "0 7 * * *"]);
    let before = story.crontab().table().unwrap();
    let trace = story.home().join("trace");
    let mut command = story.program("strace");
    // Child processes are traced as well, so they have ended when strace ends.
    command.args(["-f", "-qq", "-o", trace.to_str().unwrap()]);
    command.args(["-e", &format!("trace={call}")]);
    command.args(["-e", &format!("inject={call}:signal=SIGKILL:when={n}")]);
    command.arg(crate::story::NANOBOT);
    command.env_remove("NANOBOT_MEMORY__CONSOLIDATE");
    command.args(["cron", "add", "-n", "second", "-m", "x", "-c", "0 8 * * *"]);
    let result = story.wait(command.spawn().unwrap());
    result.code();
    result.text();
    result.error_text();
    drop(result);
    let traced = fs::read_to_string(trace).unwrap();
    let at = || format!("{call} {n}");
    let names: Vec<Value> = jobs(&story).iter().map(|job| job["name"].clone()).collect();
    let is_new = names == ["first", "second"];
    assert!(is_new || names == ["first"], "{}: {names:?}", at());
    let times = || -> Vec<String> {
        crontab_lines(&story).iter().map(|line| line[..9].to_owned()).collect()
    };
    let table = story.crontab().table().unwrap();
    let (old, new) = (&["0 7 * * *"][..], &["0 7 * * *", "0 8 * * *"][..]);
    assert!(table.starts_with(foreign), "{}: {table}", at());
    assert!(table == before || times() == new, "{}: {table}", at());
    let is_half = is_new && times() == old;
    run_cron(&story, &["sync"]).text();
    assert_eq!(times(), if is_new { new } else { old }, "{}", at());
    (traced.contains("+++ killed by SIGKILL"), is_half)
}

#[test]
fn a_kill_at_any_system_call_leaves_the_old_or_new_state_and_sync_repairs_the_rest() {
    if !crate::fault_injection::can_inject() {
        return;
    }
    let (mut calls, mut halves) = (0, 0);
    for call in TRACED_CALLS {
        calls += crate::fault_injection::inject_at_calls(|n| {
            let (is_killed, is_half) = kill_add_at(call, n);
            halves += usize::from(is_half);
            is_killed
        });
    }
    assert!(calls > 20, "only {calls} calls were there to be killed at");
    assert!(halves > 0, "none was between the file and the crontab");
}
