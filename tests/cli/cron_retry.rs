//! Retries of jobs, delayed starts, the notification of results, and pings.

use crate::cron::{add_job, job_dir, records, run_cron, run_cron_at, start_at};
use crate::listener::unused_port;
use crate::server::{Responder, Response, Server, fails, says, sends};
use crate::story::Story;
use serde_json::{Value, json};

/// A rate limit, which ends a run at once with status 75.
fn busy() -> Responder {
    sends(
        Response::json(429, &json!({ "error": { "message": "too many" } }))
            .header("retry-after", "99"),
    )
}

/// The time fields of our crontab lines.
fn fields(story: &Story) -> Vec<String> {
    let table = story.crontab().table().unwrap_or_default();
    let lines = table.lines().filter(|line| line.ends_with(" --scheduled"));
    lines.map(|line| line.split_once(" /usr/bin/env ").unwrap().0.to_owned()).collect()
}

/// The outcome of each run, with the number of the retry.
fn tries(story: &Story, id: &str) -> Vec<String> {
    let records = records(story, id);
    let row = |record: &Value| {
        let retry = record["retry"].as_u64().unwrap_or_default();
        format!("{} {retry}", record["outcome"].as_str().unwrap())
    };
    records.iter().map(row).collect()
}

const DAILY: [&str; 6] = ["-n", "digest", "--cron", "0 8 * * *", "--tz", "UTC"];

fn add_daily(story: &Story, more: &[&str]) -> String {
    add_job(story, &[&DAILY, more].concat())
}

#[test]
fn a_temporary_failure_is_retried_after_the_delay() {
    let story =
        Story::new().script([busy(), busy(), says("Done.")]).env("NANOBOT_TEST_ZONE", "UTC");
    let id = add_daily(&story, &["--retry", "2", "--retry-delay", "5m"]);
    assert_eq!(fields(&story), ["0 8 * * *"]);
    // A failure that is retried is recorded, but not mailed.
    start_at(&story, "08:00:00", &id).status(75).stderr("");
    assert_eq!(fields(&story), ["0 8 * * *", "5 8 2 1 *"]);
    run_cron_at(&story, "08:01:00", &["list"]).stdout_has("Fri 2 Jan 08:05, retry 1 of 2");
    run_cron_at(&story, "08:01:00", &["show", &id])
        .stdout_has("waiting      for retry 1 of 2\n")
        .stdout_has("retry        at most 2 times, each after 5 min\n");
    let job = run_cron_at(&story, "08:01:00", &["show", &id, "--json"]).json();
    assert_eq!(job["retry"], json!({ "at": "2026-01-02T08:05:00Z", "number": 1 }));
    assert_eq!(job["next"], "2026-01-02T08:05:00Z");
    assert_eq!(job["crontab"], "there");
    run_cron_at(&story, "08:01:00", &["check"]).status(1).stdout_has("failed since");
    // Too early.
    start_at(&story, "08:04:59", &id).stdout("");
    run_cron_at(&story, "08:04:59", &["run", "--due"]).stdout("");
    assert_eq!(story.requests().len(), 1);
    start_at(&story, "08:05:00", &id).status(75).stderr("");
    assert_eq!(fields(&story), ["0 8 * * *", "10 8 2 1 *"]);
    run_cron_at(&story, "08:10:00", &["run", "--due"]).stdout("Done.\n");
    assert_eq!(fields(&story), ["0 8 * * *"]);
    assert_eq!(tries(&story, &id), ["failed 0", "failed 1", "ok 2"]);
    start_at(&story, "08:15:00", &id).stdout("");
}

#[test]
fn a_crontab_that_cannot_be_read_for_a_retry_is_reported() {
    let story = Story::new().script([busy()]).env("NANOBOT_TEST_ZONE", "UTC");
    let id = add_daily(&story, &["--retry", "2", "--retry-delay", "5m"]);
    story.crontab().set_behavior("torn");
    start_at(&story, "08:00:00", &id)
        .status(75)
        .stderr_has("the crontab was not updated for the retry")
        .stderr_has("input/output error");
}

#[test]
fn the_last_failure_is_reported() {
    let story = Story::new()
        .script([busy(), busy(), says("By hand."), fails(401, "no")])
        .env("NANOBOT_TEST_ZONE", "UTC");
    let log = story.dir().join("told");
    let command = format!("cat >> {}", log.display());
    let id = add_daily(&story, &["--retry", "1", "--on-failure", &command]);
    start_at(&story, "08:00:00", &id).status(75).stderr("");
    assert!(!log.exists());
    start_at(&story, "08:10:00", &id).status(75).stderr_has("too many");
    assert!(std::fs::read_to_string(&log).unwrap().contains("too many"));
    assert_eq!(fields(&story), ["0 8 * * *"]);
    run_cron_at(&story, "08:12:00", &["run", &id]).stdout("By hand.\n");
    // A permanent cause is not retried.
    let mut command = story.command(["cron", "run", &id, "--scheduled"]);
    command.env("NANOBOT_TEST_TIME", "2026-01-03T08:00:00Z");
    story.wait(command.spawn().unwrap()).status(77).stderr_has("no");
    assert_eq!(tries(&story, &id), ["failed 0", "failed 1", "ok 0", "failed 0"]);
}

/// A failure that is not temporary is retried where the job says so, and no other is.
#[test]
fn other_failures_are_retried_if_the_job_says_so() {
    let story = Story::new()
        .script([fails(401, "no"), says("Done."), fails(400, "bad")])
        .env("NANOBOT_TEST_ZONE", "UTC");
    let id = add_daily(&story, &["--retry", "2", "--retry-on", "1, 77"]);
    run_cron_at(&story, "07:00:00", &["show", &id])
        .stdout_has("each after 10 min, also after status 1, 77\n");
    start_at(&story, "08:00:00", &id).status(77).stderr("");
    start_at(&story, "08:10:00", &id).stdout("Done.\n");
    assert_eq!(tries(&story, &id), ["failed 0", "ok 1"]);
    run_cron(&story, &["edit", &id, "--retry-on", ""]).stdout_has(&id);
    let job = run_cron_at(&story, "08:20:00", &["show", &id, "--json"]).json();
    assert_eq!(job["terms"]["retry_on"], json!([]));
    let mut command = story.command(["cron", "run", &id, "--scheduled"]);
    command.env("NANOBOT_TEST_TIME", "2026-01-03T08:00:00Z");
    story.wait(command.spawn().unwrap()).status(1).stderr_has("bad");
    for (arguments, message) in [
        (
            &["--retry-on", "1"][..],
            "`--retry-on` chooses the failures of `--retry`, which is missing",
        ),
        (&["--retry", "1", "--retry-on", "1,no"], "`no` is not the status of a failed run"),
        (&["--retry", "1", "--retry-on", "0"], "`0` is not the status of a failed run"),
    ] {
        let line = [&["add", "-m", "x", "--every", "1h"], arguments].concat();
        run_cron(&story, &line).status(2).stderr_has(message);
    }
}

/// A run that is repeated by hand is the retry of its own slot only.
#[test]
fn a_repeated_run_of_another_slot_leaves_the_retry() {
    let story = Story::new().env("NANOBOT_TEST_ZONE", "UTC");
    let answers = [says("Eight."), busy(), says("Eight again."), says("Nine.")];
    story.server().script(answers);
    let id =
        add_job(&story, &["-n", "h", "-c", "0 * * * *", "--retry", "2", "--retry-delay", "5m"]);
    start_at(&story, "08:00:00", &id).stdout("Eight.\n");
    start_at(&story, "09:00:00", &id).status(75).stderr("");
    let run = records(&story, &id)[0]["id"].as_str().unwrap().to_owned();
    run_cron_at(&story, "09:02:00", &["rerun", &run]).stdout("Eight again.\n");
    start_at(&story, "09:05:00", &id).stdout("Nine.\n");
    assert_eq!(tries(&story, &id), ["ok 0", "failed 0", "ok 0", "ok 1"]);
    // That of its own slot is the retry.
    story.server().script([busy(), says("Ten.")]);
    start_at(&story, "10:00:00", &id).status(75).stderr("");
    let run = records(&story, &id)[4]["id"].as_str().unwrap().to_owned();
    run_cron_at(&story, "10:02:00", &["rerun", &run]).stdout("Ten.\n");
    start_at(&story, "10:05:00", &id).stdout("");
}

#[test]
fn a_retry_gives_way_to_the_next_slot_and_to_changes_of_the_job() {
    let story =
        Story::new().script([busy(), busy(), says("By hand.")]).env("NANOBOT_TEST_ZONE", "UTC");
    // The next slot would come first.
    let often = add_job(&story, &["--cron", "*/10 * * * *", "--retry", "3"]);
    start_at(&story, "08:00:00", &often).status(75).stderr_has("too many");
    run_cron(&story, &["remove", &often]).stdout_has("Removed").stderr_has("trash");
    // A job that was disabled meanwhile does not catch up.
    let id = add_daily(&story, &["--retry", "3"]);
    start_at(&story, "08:00:00", &id).status(75).stderr("");
    run_cron_at(&story, "08:01:00", &["disable", &id]).stdout_has("disabled");
    run_cron_at(&story, "08:02:00", &["enable", &id]).stdout_has("enabled");
    assert_eq!(fields(&story), ["0 8 * * *"]);
    start_at(&story, "08:10:00", &id).stdout("");
    run_cron(&story, &["remove", &id]).stdout_has("Removed").stderr_has("trash");
    // A success by hand ends it too.
    let id = add_daily(&story, &["--retry", "3"]);
    start_at(&story, "08:10:00", &id).status(75).stderr("");
    run_cron_at(&story, "08:15:00", &["run", &id]).stdout("By hand.\n");
    start_at(&story, "08:20:00", &id).stdout("");
    // Within the time of a rate limit nothing is sent.
    assert_eq!(story.requests().len(), 3);
}

#[test]
fn retries_and_delays_are_checked_and_applied_from_a_file() {
    let story = Story::new();
    let usage = |arguments: &[&str], message: &str| {
        let result = run_cron(&story, &[&["add", "-m", "x", "-e", "1h"], arguments].concat());
        result.status(2).stderr_has(message);
    };
    usage(&["--retry", "101"], "101");
    usage(&["--retry-delay", "30s"], "`--retry-delay` is 30 seconds, expected from 60 to 86400");
    usage(&["--jitter", "25h"], "expected from 0 to 86400");
    let list = json!([{
        "name": "digest", "cron": "0 8 * * *", "tz": "UTC", "message": "x", "retry": 3, "retry-delay": "5m",
        "jitter": "10m", "on-success": "true", "notify": "change",
    }]);
    let story = story.file("jobs.json", list.to_string());
    run_cron(&story, &["apply", "-f", "jobs.json"]).stdout_has("Added job 'digest'");
    run_cron(&story, &["apply", "-f", "jobs.json"]).stdout_has("nchanged");
    let job = run_cron(&story, &["show", "digest", "--json"]).json();
    let options = &job["terms"];
    assert_eq!(options["retry"], 3);
    assert_eq!(options["retry_delay_s"], 300);
    assert_eq!(options["jitter_s"], 600);
    assert_eq!(options["on_success"], "true");
    assert_eq!(options["notify"], "change");
    run_cron(&story, &["edit", "digest", "--retry", "0", "--jitter", "0", "--notify", "always"])
        .stdout_has("digest");
    let job = run_cron(&story, &["show", "digest", "--json"]).json();
    assert_eq!(job["terms"]["retry"], 0);
    assert_eq!(job["terms"]["jitter_s"], 0);
}

#[test]
fn a_start_is_delayed_by_the_same_time_each_day() {
    let story = Story::new()
        .script([says("Waited."), says("Due."), says("At once."), says("After a miss.")])
        .env("NANOBOT_TEST_ZONE", "UTC");
    let id = add_daily(&story, &["--jitter", "30m"]);
    let job = run_cron(&story, &["show", &id, "--json"]).json();
    let next: jiff::Timestamp = job["next"].as_str().unwrap().parse().unwrap();
    let slot: jiff::Timestamp = "2026-01-02T08:00:00Z".parse().unwrap();
    let delay = next.duration_since(slot).as_secs();
    assert!((5..1800).contains(&delay), "{delay}");
    run_cron(&story, &["show", &id]).stdout_has("jitter       less than 30 min; on this machine ");
    assert_eq!(fields(&story), ["0 8 * * *"]);
    // The start of the crontab line waits.
    start_at(&story, "08:00:00", &id).stdout("Waited.\n");
    start_at(&story, "08:31:00", &id).stdout("");
    // Other starts find it due after the delay, and it is not late then.
    let day = |time: &str| {
        let mut command = story.command(["cron", "run", "--due"]);
        command.env("NANOBOT_TEST_TIME", format!("2026-01-03T{time}Z"));
        story.wait(command.spawn().unwrap())
    };
    day("08:00:00").stdout("");
    day("08:30:00").stdout("Due.\n");
    // systemd delays the start itself.
    let mut command = story.command(["cron", "run", &id, "--scheduled", "--no-jitter"]);
    command.env("NANOBOT_TEST_TIME", "2026-01-04T08:00:00Z");
    story.wait(command.spawn().unwrap()).stdout("At once.\n");
    // The machine was off the day before: that slot is recorded, and this one starts after its delay.
    let mut command = story.command(["cron", "run", &id, "--scheduled"]);
    command.env("NANOBOT_TEST_TIME", "2026-01-06T08:00:00Z");
    story.wait(command.spawn().unwrap()).stdout("After a miss.\n");
    assert_eq!(tries(&story, &id), ["ok 0", "ok 0", "ok 0", "missed 0", "ok 0"]);
    run_cron(&story, &["export", "--format", "systemd"])
        .stdout_has("RandomizedDelaySec=1800\nFixedRandomDelay=true\n")
        .stdout_has(&format!("cron run {id} --scheduled --no-jitter\n"));
}

#[test]
fn results_are_reported_always_or_on_changes() {
    let check = |notify: &str, expect_told: &str, expect_errors: usize| {
        let script = [says("one"), fails(401, "no"), fails(401, "no"), says("four"), says("five")];
        let story = Story::new().script(script);
        let log = story.dir().join("told");
        let command_of =
            |word: &str| format!("echo \"{word} $(cat | head -c4)\" | tee -a {}", log.display());
        let (bad, good) = (command_of("failure"), command_of("success"));
        let id = add_job(
            &story,
            &["-e", "1h", "--on-failure", &bad, "--on-success", &good, "--notify", notify],
        );
        let mut errors = 0;
        for minute in 0..5 {
            let result = run_cron_at(&story, &format!("08:0{minute}:00"), &["run", &id]);
            errors += usize::from(result.error_text().contains("failure"));
            result.code();
            result.text();
            drop(result);
        }
        assert_eq!(std::fs::read_to_string(&log).unwrap(), expect_told);
        assert_eq!(errors, expect_errors);
        // The output of the commands is stored beside the answers.
        let stored = std::fs::read_dir(job_dir(&story, &id).join("output")).unwrap();
        let stored: Vec<String> =
            stored.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        assert!(stored.iter().any(|name| name.ends_with("-on-failure.txt")), "{stored:?}");
    };
    check("always", "success one\nfailure http\nfailure http\nsuccess four\nsuccess five\n", 2);
    check("change", "failure http\nsuccess four\n", 1);
}

#[test]
fn all_jobs_are_disabled_and_enabled_together() {
    let story = Story::new();
    let (one, two) = (add_daily(&story, &[]), add_job(&story, &["-e", "1h"]));
    let past = add_job(&story, &["--in", "1m"]);
    assert_eq!(fields(&story).len(), 4);
    let all = |verb: &str, time: &str, count: usize| {
        let text = run_cron_at(&story, time, &[verb, "--all"]).text();
        assert_eq!(text.lines().count(), count, "{text}");
    };
    all("disable", "03:05:00", 3);
    assert!(fields(&story).is_empty());
    all("disable", "03:05:00", 0);
    // The time of the third has passed meanwhile.
    all("enable", "04:00:00", 2);
    let listed = run_cron(&story, &["list", "--all", "--json"]).json_lines();
    let enabled = |id: &str| {
        let job = listed.iter().find(|job| job["id"] == id).unwrap();
        job["enabled"].as_bool().unwrap()
    };
    assert!(enabled(&one) && enabled(&two) && !enabled(&past));
    run_cron(&story, &["disable"]).status(2).stderr_has("JOB");
    run_cron(&story, &["disable", "--all", &one]).status(2).stderr_has("--all");
}

/// A server that watches jobs, and its address for a job.
fn watcher(status: u16) -> (Server, String) {
    let server = Server::start();
    server.always(sends(Response::text(status, "text/plain", "OK")));
    let address = format!("http://127.0.0.1:{}/KEY/{{job}}", server.port);
    (server, address)
}

/// A story whose jobs may ask servers of this machine.
fn watched_story() -> Story {
    Story::new()
        .env("NANOBOT_TEST_ZONE", "UTC")
        .set("tools", json!({ "ssrfWhitelist": ["127.0.0.0/8"] }))
}

/// The paths that were asked, without the id of the run, which is the same for the requests of each run.
fn pings(server: &Server) -> Vec<String> {
    let mut ids = Vec::new();
    let requests = server.requests();
    let paths = requests.iter().map(|request| {
        assert_eq!((request.method.as_str(), request.raw.as_str()), ("GET", ""));
        let (path, id) = request.path.split_once("rid=").unwrap();
        assert_eq!(id.len(), 36, "{id}");
        ids.push(id.to_owned());
        path.trim_end_matches(['?', '&']).to_owned()
    });
    let paths = paths.collect();
    assert!(ids.chunks(2).all(|run| run[0] == run[run.len() - 1]), "{ids:?}");
    ids.dedup();
    assert_eq!(ids.len(), requests.len().div_ceil(2), "{ids:?}");
    paths
}

#[test]
fn a_service_learns_how_each_run_ends() {
    let (server, address) = watcher(200);
    let story = watched_story().script([says("Done."), fails(401, "no"), busy()]);
    let address = format!("{address}?create=1");
    let id = add_daily(&story, &["--ping", &address, "--retry", "1"]);
    start_at(&story, "08:00:00", &id).stdout("Done.\n").stderr("");
    assert_eq!(pings(&server), ["/KEY/digest/start?create=1", "/KEY/digest?create=1"]);
    run_cron_at(&story, "09:00:00", &["run", &id]).status(77).stderr_has("no");
    assert_eq!(pings(&server)[2..], ["/KEY/digest/start?create=1", "/KEY/digest/fail?create=1"]);
    run_cron_at(&story, "09:00:00", &["show", &id]).stdout_has(&format!("ping         {address}"));
    // A check that finds nothing to do is a run too.
    run_cron(&story, &["edit", &id, "--when", "false"]).stdout_has(&id);
    run_cron_at(&story, "10:00:00", &["run", &id]).stdout("");
    assert_eq!(pings(&server)[4..], ["/KEY/digest/start?create=1", "/KEY/digest?create=1"]);
    // A job without an address asks none.
    run_cron(&story, &["edit", &id, "--when", "", "--ping", ""]).stdout_has(&id);
    run_cron_at(&story, "11:00:00", &["run", &id]).status(75).stderr_has("too many");
    assert_eq!(server.requests().len(), 6);
}

/// Only the end of a slot counts: the retry that succeeds.
#[test]
fn a_run_that_is_retried_is_no_failure_for_the_service() {
    let (server, address) = watcher(200);
    let story =
        watched_story().script([busy(), says("Done.")]).set("cron", json!({ "ping": address }));
    let id = add_daily(&story, &["--retry", "1"]);
    start_at(&story, "08:00:00", &id).status(75).stderr("");
    start_at(&story, "08:10:00", &id).stdout("Done.\n");
    let paths: Vec<String> = server.requests().iter().map(|request| request.path.clone()).collect();
    let paths: Vec<&str> = paths.iter().map(|path| path.split('?').next().unwrap()).collect();
    assert_eq!(paths, ["/KEY/digest/start", "/KEY/digest/start", "/KEY/digest"]);
    // A job can go without the address of the config.
    run_cron(&story, &["edit", &id, "--ping", "none", "--when", "false"]).stdout_has(&id);
    run_cron_at(&story, "11:00:00", &["run", &id]).stdout("");
    assert_eq!(server.requests().len(), 3);
}

/// The service is down, refuses, does not answer, or may not be reached: the job runs all the same.
#[test]
fn a_ping_never_fails_a_job() {
    let closed = format!("http://127.0.0.1:{}/x", unused_port());
    let (_refusing, refused) = watcher(404);
    let silent = Server::start();
    silent
        .always(sends(Response::text(200, "text/plain", "").ending(crate::server::Ending::Stall)));
    let silent_address = format!("http://127.0.0.1:{}/x", silent.port);
    for address in [&closed, &refused, &silent_address] {
        let story = watched_story().script([says("Done.")]);
        // A silent service costs the job none of its time.
        let id = add_daily(&story, &["--ping", address, "--timeout", "4"]);
        start_at(&story, "08:00:00", &id).stdout("Done.\n").stderr("");
    }
    // An address in the private network, which nothing allows.
    let (server, address) = watcher(200);
    let story = Story::new().script([says("Done."), says("Done.")]).env("NANOBOT_TEST_ZONE", "UTC");
    let id = add_daily(&story, &[]);
    let refused = "`127.0.0.1` is not a public address";
    run_cron(&story, &["edit", &id, "--ping", &address]).stdout_has(&id).stderr_has(refused);
    run_cron_at(&story, "07:00:00", &["check"])
        .status(1)
        .stdout_has(&format!("({id}): its pings are not sent: {refused}; `tools.ssrfWhitelist`"));
    let checked = run_cron_at(&story, "07:00:00", &["check", "--json"]).status(1).json_lines();
    assert_eq!(checked[0]["problem"], "unwatched");
    let ran = story.run(["status", "check", "--offline", "--no-crontab"]);
    ran.stdout_has("its pings are not sent").code();
    start_at(&story, "08:00:00", &id).stdout("Done.\n").stderr("");
    run_cron_at(&story, "09:00:00", &["run", &id]).stdout("Done.\n").stderr_has(refused);
    assert_eq!(server.requests().len(), 0);
    // A mistake in the config is reported, since no service would raise the alarm.
    let story = watched_story().script([says("Done.")]);
    let id = add_daily(&story, &[]);
    let story = story.set("cron", json!({ "ping": "hc.example" }));
    story.run(["config", "check"]).status(78).stdout_has("`cron.ping`: `hc.example`");
    run_cron_at(&story, "07:00:00", &["check"]).status(1).stdout_has("the address to ping: ");
    start_at(&story, "08:00:00", &id).stdout("Done.\n").stderr_has("the address to ping: ");
    run_cron(&story, &["add", "-m", "x", "-e", "1h", "--ping", "hc.example"])
        .status(2)
        .stderr_has("the address to ping");
    let story = Story::new();
    for address in ["ftp://hc.example", "hc.example"] {
        story
            .run(["config", "set", "cron.ping", address])
            .status(78)
            .stderr_has(&format!("`cron.ping`: `{}", address.split(':').next().unwrap()));
    }
    for address in ["https://hc.example/{job}", "none"] {
        story.run(["config", "set", "cron.ping", address]).stdout("");
    }
}
