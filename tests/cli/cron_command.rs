//! Jobs without a model, and conditions by output: `--command` and `--when-output`.

use crate::channel::telegram_story;
use crate::cron::{add_job, job_dir, jobs, run_cron, run_cron_with_env};
use crate::server::says;
use crate::story::Story;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;

/// Adds a job that runs `command`; returns its id.
#[track_caller]
fn add_command(story: &Story, name: &str, command: &str, arguments: &[&str]) -> String {
    let flags = ["add", "-n", name, "--command", command, "--json"];
    let added = run_cron(story, &[&flags, arguments].concat()).json();
    added["id"].as_str().unwrap().to_owned()
}

fn last_record(story: &Story, id: &str) -> Value {
    let text = std::fs::read_to_string(job_dir(story, id).join("runs.jsonl")).unwrap();
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

#[test]
fn a_command_takes_the_place_of_the_model() {
    let (story, telegram) = telegram_story();
    let story = story.file("state", "disk: 91 %\n");
    let command = format!("cat {}/state 2>&1", story.dir().display());
    let chat = ["--every", "1h", "--channel", "telegram", "--to", "7"];
    let id = add_command(&story, "disk", &command, &chat);
    // Others read the job file, and the other program would send its message to a model.
    assert_eq!(jobs(&story)[0]["payload"]["message"], "");
    assert!(!jobs(&story)[0].to_string().contains("state 2>&1"));
    let mode = job_dir(&story, &id).join("job.json").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0);
    run_cron(&story, &["show", "disk"])
        .stdout_has("command      cat $DIR/state 2>&1")
        .stdout_has("sent to telegram 7");
    let job = run_cron(&story, &["show", "disk", "--json"]).json();
    assert_eq!(job["terms"]["kind"], "command");
    assert_eq!(job["terms"]["command"], "cat $DIR/state 2>&1");

    run_cron(&story, &["run", "disk"]).stdout("").stderr("");
    assert_eq!(telegram.sent().last().unwrap(), "disk: 91 %");
    let record = last_record(&story, &id);
    assert_eq!((&record["outcome"], &record["status"]), (&json!("ok"), &json!(0)));
    assert_eq!(record["usage"]["inputTokens"].as_u64().unwrap_or(0), 0);
    // No output is silence.
    std::fs::write(story.dir().join("state"), " \n").unwrap();
    run_cron(&story, &["run", "disk"]).stdout("").stderr("");
    assert_eq!(telegram.sent().len(), 1);
    assert_eq!(last_record(&story, &id)["outcome"], "nothing");
    // A failure is one, with what was printed.
    std::fs::remove_file(story.dir().join("state")).unwrap();
    run_cron(&story, &["run", "disk"])
        .status(1)
        .stderr_has("`--command` failed with exit status 1: cat:");
    assert_eq!(telegram.sent().len(), 1);
    assert_eq!(last_record(&story, &id)["outcome"], "failed");
    run_cron(&story, &["check"]).status(1).stdout_has("disk");
    assert_eq!(story.requests().len(), 0);
    // The command of an existing job can be changed.
    run_cron(&story, &["edit", "disk", "--command", "echo gone"]).stdout_has("Changed job 'disk'");
    run_cron(&story, &["run", "disk"]).stdout("");
    assert_eq!(telegram.sent().last().unwrap(), "gone");
}

#[test]
fn a_command_gets_the_answer_of_the_job_before() {
    let story = Story::new().script([says("News.")]);
    let digest = add_job(&story, &["-n", "digest", "--every", "1h"]);
    let log = story.dir().join("log");
    let command = format!("tr a-z A-Z | tee -a {}", log.display());
    let mail = add_command(&story, "mail", &command, &["--after", "digest"]);
    let later = [("NANOBOT_TEST_TIME", "2026-01-02T04:04:00Z")];
    run_cron_with_env(&story, &later, &["run", &digest]).stdout("News.\nNEWS.\n").stderr("");
    assert_eq!(std::fs::read_to_string(&log).unwrap(), "NEWS.\n");
    assert_eq!(last_record(&story, &mail)["trigger"], "schedule");
    // Again, with the same input.
    let run = last_record(&story, &mail)["id"].as_str().unwrap().to_owned();
    run_cron(&story, &["rerun", &run]).stdout("NEWS.\n").stderr("");
    assert_eq!(story.requests().len(), 1);
}

#[test]
fn a_command_is_stopped_at_the_time_limit_and_its_output_is_bounded() {
    let story = Story::bare();
    let slow = add_command(&story, "slow", "sleep 600", &["--every", "1h", "--timeout", "1s"]);
    run_cron(&story, &["run", &slow]).status(124).stderr_has("cron edit").stdout("");
    let flood = "head -c 2000000 /dev/zero | tr '\\0' x";
    let flood = add_command(&story, "flood", flood, &["--every", "1h"]);
    let output = run_cron(&story, &["run", &flood]).text();
    assert!(output.len() < 600_000, "{}", output.len());
    assert!(output.contains("bytes left out"));
    let killed = add_command(&story, "killed", "kill -9 $$", &["--every", "1h"]);
    run_cron(&story, &["run", &killed]).status(1).stderr_has("`--command` was killed by signal 9");
    let missing = add_command(&story, "missing", "/nonexistent/program", &["--every", "1h"]);
    run_cron(&story, &["run", &missing]).status(1).stderr_has("cannot be run (exit status 127)");
}

#[test]
fn a_job_has_a_model_or_a_command() {
    let story = Story::new();
    let refuse = |arguments: &[&str], cause: &str| {
        run_cron(&story, arguments).status(2).stderr_has(cause);
    };
    let add = |more: &[&'static str]| {
        let flags = ["add", "-n", "x", "--every", "1h", "--command", "date"];
        [&flags, more].concat()
    };
    refuse(
        &["add", "--every", "1h", "--command", "date"],
        "a job that runs a command needs a name",
    );
    refuse(&["add", "-n", "x", "--every", "1h"], "--message");
    refuse(&add(&["-m", "hello"]), "cannot be used with");
    refuse(&add(&["--model", "gpt"]), "`--model` is for jobs that ask a model");
    refuse(&add(&["--net"]), "a permission flag is for jobs that ask a model");
    refuse(&add(&["--until", "true"]), "`--until` is for jobs that ask a model");
    refuse(&["add", "-n", "x", "--every", "1h", "--command", " "], "the command is empty");
    let both = ["add", "-n", "x", "--every", "1h", "-m", "x", "--when", "a", "--when-output", "b"];
    refuse(&both, "cannot be used with");
    assert!(!story.home().join(".nanobot/cron/jobs.json").exists());
    add_command(&story, "date", "date", &["--every", "1h"]);
    refuse(&["edit", "date", "-m", "hello"], "the job runs a command");
    refuse(&["edit", "date", "--max-cost", "1"], "`--max-cost` is for jobs that ask a model");
    refuse(&["edit", "date", "--command", ""], "the command is empty");
    add_job(&story, &["-n", "talk", "--every", "1h"]);
    refuse(&["edit", "talk", "--command", "date"], "the job asks a model");
    refuse(&["heartbeat", "enable", "--command", "date"], "unexpected argument");
    run_cron(&story, &["heartbeat", "enable"]).stderr_has("HEARTBEAT.md").text();
    refuse(&["edit", "heartbeat", "--command", "date"], "the job asks a model");
}

#[test]
fn a_list_of_jobs_may_have_commands() {
    let list = "- {name: date, every: 1h, command: echo now}\n\
                - {name: new, every: 1h, message: look, when-output: cat /dev/null}\n";
    let story = Story::new().file("jobs.yaml", list);
    run_cron(&story, &["apply", "-f", "jobs.yaml"]).stdout_has("Added job 'date'");
    run_cron(&story, &["apply", "-f", "jobs.yaml"]).stdout_has("is unchanged");
    run_cron(&story, &["run", "date"]).stdout("now\n");
    run_cron(&story, &["run", "new"]).stdout("");
    assert_eq!(story.requests().len(), 0);
}

#[test]
fn a_model_runs_only_if_the_command_prints_something() {
    let story = Story::new().script([says("Two new lines."), says("A difference.")]);
    let news_path = story.dir().join("news");
    let command = format!("cat {}", news_path.display());
    let id = add_job(&story, &["-n", "news", "--every", "1h", "--when-output", &command]);
    run_cron(&story, &["show", "news"]).stdout_has("only if      `cat $DIR/news` prints something");
    std::fs::write(&news_path, "").unwrap();
    run_cron(&story, &["run", "news"]).stdout("").stderr("");
    assert_eq!(last_record(&story, &id)["outcome"], "no");
    std::fs::write(&news_path, "one\ntwo\n").unwrap();
    run_cron(&story, &["run", "news"]).stdout("Two new lines.\n");
    assert!(story.requests()[0].last_content().contains("<stdin>\none\ntwo\n</stdin>"));
    // `diff` reports differences by its status too; `grep` that it has found nothing.
    let edit = |command: &str| {
        run_cron(&story, &["edit", "news", "--when-output", command]).stdout_has("Changed");
    };
    edit("printf '1c1\\n'; exit 1");
    run_cron(&story, &["run", "news"]).stdout("A difference.\n");
    edit("grep nosuch /etc/passwd");
    run_cron(&story, &["run", "news"]).stdout("").stderr("");
    // A warning beside output costs nothing, and a broken command is not silence.
    edit("echo warning >&2");
    run_cron(&story, &["run", "news"]).stdout("").stderr("");
    edit("echo 'cannot resolve host' >&2; exit 6");
    run_cron(&story, &["run", "news"])
        .status(1)
        .stderr_has("`--when-output` failed with exit status 6: cannot resolve host");
    run_cron(&story, &["edit", "news", "--when-output", ""]).stdout_has("Changed");
    let job = run_cron(&story, &["show", "news", "--json"]).json();
    assert_eq!(
        (&job["terms"]["when"], &job["terms"]["when_output"]),
        (&json!(null), &json!(false))
    );
    assert_eq!(story.requests().len(), 2);
}
