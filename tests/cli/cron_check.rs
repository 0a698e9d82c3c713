//! `cron check` and `status metrics`: jobs that do not run, as a monitor sees them.

use crate::cron::{jobs, run_cron, run_cron_with_env};
use crate::server::says;
use crate::story::{RunResult, Story, write_program};
use serde_json::json;

/// Runs a command at another time.
fn at<'a>(story: &'a Story, time: &str, arguments: &[&str]) -> RunResult<'a> {
    let mut command = story.command(arguments);
    command.env("NANOBOT_TEST_TIME", time).env_remove("NANOBOT_MEMORY__CONSOLIDATE");
    story.wait(command.spawn().unwrap())
}

/// The value of a metric.
fn metric(story: &Story, time: &str, name: &str) -> String {
    let text = at(story, time, &["status", "metrics"]).text();
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(name));
    lines.next().unwrap_or_else(|| panic!("no {name} in {text}")).trim().to_owned()
}

#[test]
fn jobs_that_have_stopped_are_reported() {
    for catch_up in ["none", "once"] {
        let story = Story::new();
        let start = "2026-01-02T07:59:00Z";
        for (name, expression) in
            [("daily", "0 8 * * *"), ("hourly", "0 * * * *"), ("often", "* * * * *")]
        {
            let add =
                ["cron", "add", "-n", name, "-c", expression, "--catch-up", catch_up, "-m", "x"];
            at(&story, start, &add).stdout_has("Added job");
        }
        for job in jobs(&story) {
            let id = job["id"].as_str().unwrap();
            story.server().script([says("ok")]);
            at(&story, "2026-01-02T08:00:00Z", &["cron", "run", id, "--scheduled"]).stdout("ok\n");
        }
        // Cron dies after 08:04.
        at(&story, "2026-01-02T08:05:00Z", &["cron", "check"]).stdout("");
        for time in ["2026-01-04T09:00:00Z", "2026-01-09T09:00:00Z", "2026-02-16T09:00:00Z"] {
            let text = at(&story, time, &["cron", "check"]).status(1).text();
            let lines: Vec<&str> = text.lines().collect();
            assert_eq!(lines.len(), 3, "{text}");
            for (name, since) in [
                ("daily", "Sat 3 Jan 08:00"),
                ("hourly", "Fri 2 Jan 09:00"),
                ("often", "Fri 2 Jan 08:01"),
            ] {
                let is_reported = |line: &&str| {
                    line.starts_with(&format!("{name} ("))
                        && line.ends_with(&format!("overdue since {since}"))
                };
                assert!(lines.iter().any(is_reported), "{name}: {text}");
            }
            let metrics = at(&story, time, &["status", "metrics"]).text();
            let count = metrics
                .lines()
                .filter(|line| line.starts_with("nanobot_job_problem{") && line.ends_with(" 1"));
            assert_eq!(count.count(), 3, "{metrics}");
        }
        // A run, by hand too, is the end of it.
        story.server().script([says("ok"), says("ok"), says("ok")]);
        for name in ["daily", "hourly", "often"] {
            at(&story, "2026-01-09T09:00:00Z", &["cron", "run", name]).stdout("ok\n");
        }
        at(&story, "2026-01-09T09:01:00Z", &["cron", "check"]).stdout("");
    }
}

/// Each failure is reported once, however many jobs there are, and so is its end.
#[test]
fn failures_of_what_starts_the_jobs_are_reported_until_they_end() {
    let story = Story::new();
    for name in ["one", "two"] {
        run_cron(&story, &["add", "-n", name, "-e", "1h", "-m", "x"]).stdout_has("Added job");
    }
    let time = "2026-01-02T03:05:00Z";
    let check = |variables: &[(&str, &str)], kind: &str, phrase: &str| {
        let text = run_cron_with_env(&story, variables, &["check"]).status(1).text();
        assert!(text.contains(phrase) && text.lines().count() == 1, "{kind}: {text}");
        let lines =
            run_cron_with_env(&story, variables, &["check", "--json"]).status(1).json_lines();
        assert_eq!((lines.len(), &lines[0]["problem"]), (1, &json!(kind)), "{kind}");
        let mut command = story.command(["status", "metrics"]);
        command.envs(variables.iter().copied());
        let metrics = story.wait(command.spawn().unwrap()).text();
        let line = format!("nanobot_cron_problem{{kind=\"{kind}\"}} 1");
        assert!(metrics.contains(&line), "{kind}: {metrics}");
    };
    let check_end = |kind: &str| {
        run_cron(&story, &["check"]).stdout("");
        assert_eq!(metric(&story, time, &format!("nanobot_cron_problem{{kind=\"{kind}\"}}")), "0");
    };
    check_end("crontab");

    check(
        &[("PATH", "/nowhere")],
        "crontab",
        "cannot read the crontab: `crontab` is not installed",
    );
    check_end("crontab");

    let table = story.crontab().table().unwrap();
    story.crontab().set_table("");
    check(&[], "crontab", "the crontab does not match the jobs; run `nanobot cron sync`");
    story.crontab().set_table(&table);
    check_end("crontab");

    check(&[("NANOBOT_TEST_DAEMON", "no")], "daemon", "no cron daemon is running");
    check_end("daemon");

    // The program of the lines was moved, or does not run.
    let program = story.dir().join("nanobot-old");
    let line = table.lines().find(|line| line.contains(" cron run ")).unwrap();
    let own = line.split(' ').find(|word| word.ends_with("/nanobot")).unwrap();
    story.crontab().set_table(table.replace(own, program.to_str().unwrap()));
    check(&[], "program", "which cannot be run");
    write_program(&program, "#!/bin/sh\nexit 1\n");
    check(&[], "program", "which cannot be run");
    story.crontab().set_table(&table);
    check_end("program");

    // A file is in the place of the directory of sessions.
    let sessions = story.workspace().join("sessions");
    std::fs::write(&sessions, "").unwrap();
    check(&[], "disk", "cannot write sessions: ");
    std::fs::remove_file(&sessions).unwrap();
    check_end("disk");

    // Cronie takes the times of our lines in that zone; other programs do not.
    story.crontab().set_table(format!("CRON_TZ=Asia/Tokyo\n{table}"));
    check_end("time_zone");
    story.crontab().set_behavior("cronie");
    check(&[], "time_zone", "`CRON_TZ=Asia/Tokyo` in the crontab shifts the times");
    run_cron(&story, &["add", "-n", "three", "-e", "1h", "-m", "x"])
        .stdout_has("Added job")
        .stderr_has("move it below the lines of nanobot");
    let table = story.crontab().table().unwrap().replace("Asia/Tokyo", "Etc/UTC");
    story.crontab().set_table(table);
    check_end("time_zone");
}

/// `cron.scheduler` is `none`: systemd's timers, Kubernetes or `run --due` start the jobs.
#[test]
fn another_scheduler_needs_no_crontab() {
    let story = Story::new()
        .set("cron", json!({ "scheduler": "none" }))
        .file("jobs.yaml", "- {name: c, every: 2h, message: x}\n");
    let none = [("PATH", "/nowhere"), ("NANOBOT_TEST_DAEMON", "no")];
    let run = |arguments: &[&str]| run_cron_with_env(&story, &none, arguments);
    run(&["add", "-n", "a", "-e", "1h", "-m", "x"]).stdout_has("Added job 'a'");
    run(&["add", "-n", "once", "--at", "2026-01-02T03:10", "-m", "x"])
        .stdout_has("Added job 'once'");
    run(&["apply", "-f", "jobs.yaml"]).stdout_has("Added job 'c'");
    run(&["disable", "a"]).stdout_has("disabled");
    run(&["enable", "a"]).stdout_has("enabled");
    run(&["check"]).stdout("");
    run(&["sync"]).stdout("No line is needed: `cron.scheduler` is `none`.\n");
    run(&["list"]).stdout_has("once");
    run(&["remove", "c"]).stdout_has("Removed");
    // By its name, as a person writes it in a timer.
    story.server().script([says("done")]);
    let later = [&none[..], &[("NANOBOT_TEST_TIME", "2026-01-02T03:10:00Z")]].concat();
    run_cron_with_env(&story, &later, &["run", "once", "--scheduled"]).stdout("done\n");
    assert!(jobs(&story).iter().all(|job| job["name"] != "once"));
    run_cron_with_env(&story, &later, &["run", "once", "--scheduled"])
        .status(66)
        .stderr_has("job `once` no longer exists")
        .stderr_has("remove it from the scheduler that starts it");
    assert_eq!(story.crontab().calls(), Vec::<String>::new());
}

/// `crontab` is not installed, and something else starts `cron run --due`, as the message about it says.
#[test]
fn a_job_that_is_done_needs_no_crontab() {
    let story = Story::new().script([says("done")]);
    let none = [("PATH", "/nowhere"), ("NANOBOT_TEST_DAEMON", "no")];
    run_cron_with_env(&story, &none, &["add", "-n", "once", "--at", "2026-01-02T03:10", "-m", "x"])
        .status(1)
        .stdout_has("Added job 'once'")
        .stderr_has("`nanobot cron run --due` once a minute from another scheduler");
    let later = [&none[..], &[("NANOBOT_TEST_TIME", "2026-01-02T03:10:00Z")]].concat();
    run_cron_with_env(&story, &later, &["run", "--due"]).stdout("done\n");
    assert!(jobs(&story).is_empty());
}

#[test]
fn lines_are_removed_when_another_scheduler_is_named() {
    let story = Story::new();
    run_cron(&story, &["add", "-n", "a", "-e", "1h", "-m", "x"]).stdout_has("Added job 'a'");
    let story = story.set("cron", json!({ "scheduler": "none" }));
    let text = run_cron(&story, &["check"]).status(1).text();
    assert!(
        text.starts_with("the crontab starts jobs too, though `cron.scheduler` is `none`"),
        "{text}"
    );
    run_cron(&story, &["sync", "--dry-run"]).stdout_has("- ");
    run_cron(&story, &["sync"]).stdout_has("- ");
    assert_eq!(story.crontab().table().unwrap_or_default(), "");
    run_cron(&story, &["check"]).stdout("");
}

/// Cron drops what a job prints if the machine cannot send mail.
#[test]
fn answers_that_cron_drops_are_told_later() {
    let story = Story::new().script([says("first"), says("second"), says("hello")]);
    let variables = [("NANOBOT_TEST_MAILER", "no")];
    let add = ["add", "-n", "digest", "-c", "* * * * *", "-m", "x"];
    run_cron_with_env(&story, &variables, &add)
        .stdout_has("answer: printed, but this machine has no mailer (`sendmail`)");
    run_cron(&story, &["add", "-n", "other", "-e", "1h", "-m", "x"])
        .stdout_has("answer: printed, and cron mails it to you\n");
    run_cron(&story, &["add", "-n", "quiet", "-e", "1h", "-m", "x", "--channel", "none"])
        .stdout_has("answer: saved, not printed\n");
    let mut command = story.command(["status", "check", "--offline", "--json"]);
    command.envs(variables);
    let findings = story.wait(command.spawn().unwrap());
    findings.code();
    let findings = findings.text();
    assert!(
        findings
            .contains("there is no mailer (`sendmail`), so cron drops what jobs print: `digest`"),
        "{findings}"
    );
    assert!(!findings.contains("`quiet`"), "{findings}");
    for time in ["2026-01-02T03:05:00Z", "2026-01-02T03:06:00Z"] {
        let mut command =
            story.command(["cron", "run", jobs(&story)[0]["id"].as_str().unwrap(), "--scheduled"]);
        command.envs(variables).env("NANOBOT_TEST_TIME", time);
        story.wait(command.spawn().unwrap()).text();
    }
    // A script does not take it from the person.
    for _ in 0..2 {
        story.run(["status"]).stdout_has(
            "2 answers of jobs were not mailed, the last of `digest` (2026-01-02T03:06:00Z)",
        );
    }
    let mut screen = story.screen(24, 120).args(["agent", "-m", "hi"]);
    screen.until("hello").until("2 answers of jobs were not mailed");
    assert_eq!(screen.code(), 0);
    let is_reported = || story.run(["status"]).text().contains("not mailed");
    assert!(!is_reported());
    // The answer of a job that is removed is gone with it.
    story.server().script([says("third")]);
    let id = jobs(&story)[0]["id"].as_str().unwrap().to_owned();
    let mut command = story.command(["cron", "run", &id, "--scheduled"]);
    command.envs(variables).env("NANOBOT_TEST_TIME", "2026-01-02T03:07:00Z");
    story.wait(command.spawn().unwrap()).text();
    assert!(is_reported());
    story.run(["cron", "remove", "digest", "-q"]).text();
    assert!(!is_reported());
}
