//! Jobs as configuration: `cron add --replace` and `cron apply`.

use crate::cron::jobs;
use crate::story::{RunResult, Story};
use serde_json::Value;

fn story() -> Story {
    let story = Story::new();
    story.crontab().set_table("1 2 3 4 5 other\n");
    story
}

/// Runs a command that prints JSON lines. A change prints notices.
fn lines(story: &Story, arguments: &[&str]) -> Vec<Value> {
    let output = story.command(arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn changes(lines: &[Value]) -> Vec<&str> {
    lines.iter().map(|line| line["change"].as_str().unwrap()).collect()
}

fn quiet<'s>(story: &'s Story, arguments: &[&str]) -> RunResult<'s> {
    let mut command = story.command(arguments);
    command.env_remove("NANOBOT_MEMORY__CONSOLIDATE");
    story.wait(command.spawn().unwrap())
}

#[test]
fn a_job_is_replaced_only_if_it_differs() {
    let story = story();
    let add = |schedule: &str, message: &str| {
        let add = ["cron", "add", "--replace", "--json", "-n", "digest", "--cron"];
        lines(&story, &[&add as &[&str], &[schedule, "-m", message]].concat()).remove(0)
    };
    let first = add("0 8 * * *", "a");
    assert_eq!(first["change"], "added");
    assert_eq!(first["name"], "digest");
    let files = |story: &Story| {
        let id = first["id"].as_str().unwrap();
        let options = story.home().join(".nanobot/cron").join(id).join("job.json");
        (
            std::fs::read(story.workspace().join("cron/jobs.json")).unwrap(),
            std::fs::read(options).unwrap(),
            story.crontab().table().unwrap(),
        )
    };
    let before = files(&story);
    let same = add("0 8 * * *", "a");
    assert_eq!((&same["change"], &same["id"]), (&Value::from("unchanged"), &first["id"]));
    assert_eq!(files(&story), before);
    quiet(&story, &["cron", "add", "--replace", "-n", "digest", "--cron", "0 8 * * *", "-m", "a"])
        .stdout_has(&format!("✓ Job 'digest' ({}) is unchanged", first["id"].as_str().unwrap()));
    for (schedule, message) in [("0 8 * * *", "b"), ("0 9 * * *", "b")] {
        let changed = add(schedule, message);
        assert_eq!((&changed["change"], &changed["id"]), (&Value::from("changed"), &first["id"]));
    }
    assert!(story.crontab().table().unwrap().contains("0 9 * * * "));
    assert_eq!(jobs(&story).len(), 1);
    // It stays disabled, and the flags that are no longer given are gone.
    drop(quiet(&story, &["cron", "disable", "digest"]).text());
    let limited = ["cron", "edit", "digest", "--max-cost", "1"];
    drop(story.command(limited).output().unwrap());
    assert_eq!(add("0 9 * * *", "b")["change"], "changed");
    let output_lines = lines(&story, &["cron", "show", "digest", "--json"]).remove(0);
    assert_eq!(output_lines["enabled"], false);
    assert_eq!(output_lines["terms"]["max_cost_usd"], Value::Null);
    quiet(&story, &["cron", "add", "--replace", "--every", "1h", "-m", "x"])
        .status(2)
        .stderr_has("--name");
}

#[test]
fn a_file_of_jobs_is_applied_twice_without_a_second_change() {
    let story = story().file(
        "jobs.yaml",
        "# two jobs\n\
         - name: digest\n  cron: \"0 8 * * 1-5\"\n  read: [.]\n  message: |\n    two\n    lines % and 'quotes'\n\
         - {name: check, every: 2h, max-cost: 0.5, message: \"-n is no flag\"}\n",
    );
    let apply = ["cron", "apply", "-f", "jobs.yaml", "--json"];
    assert_eq!(changes(&lines(&story, &apply)), ["added", "added"]);
    let stored_jobs = jobs(&story);
    assert_eq!(stored_jobs[0]["payload"]["message"], "two\nlines % and 'quotes'\n");
    assert_eq!(stored_jobs[1]["payload"]["message"], "-n is no flag");
    let table = story.crontab().table().unwrap();
    assert!(table.contains("0 8 * * 1-5 ") && table.contains("1 2 3 4 5 other\n"));
    assert_eq!(changes(&lines(&story, &apply)), ["unchanged", "unchanged"]);
    assert_eq!(story.crontab().table().unwrap(), table);

    // `--prune` removes only jobs that an earlier file listed.
    let own = ["cron", "add", "-n", "own", "--every", "1h", "-m", "x", "--json"];
    assert_eq!(changes(&lines(&story, &own)), ["added"]);
    std::fs::write(
        story.dir().join("jobs.yaml"),
        r#"[{"name": "check", "every": "3h", "message": "x"}]"#,
    )
    .unwrap();
    assert_eq!(changes(&lines(&story, &apply)), ["changed"]);
    assert_eq!(jobs(&story).len(), 3);
    let prune = [&apply as &[&str], &["--prune"]].concat();
    assert_eq!(changes(&lines(&story, &prune)), ["unchanged", "removed"]);
    let names: Vec<Value> = jobs(&story).iter().map(|job| job["name"].clone()).collect();
    assert_eq!(names, ["check", "own"]);
}

#[test]
fn what_all_jobs_will_lack_is_told_once() {
    let story = story().file(
        "jobs.yaml",
        "- {name: a, every: 1h, message: x}\n- {name: b, every: 2h, message: y}\n",
    );
    let mut apply = story.command(["cron", "apply", "-f", "jobs.yaml"]);
    let output = apply.env("SSL_CERT_FILE", "/etc/ca.pem").output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(text.matches("SSL_CERT_FILE under cron").count(), 1, "{text}");
}

#[test]
fn nothing_is_changed_if_an_item_is_wrong() {
    let check = |text: &str, message: &str| {
        let story = story().file("jobs.yaml", text);
        quiet(&story, &["cron", "apply", "-f", "jobs.yaml"]).status(65).stderr_has(message);
        assert!(!story.workspace().join("cron/jobs.json").exists(), "{text}");
        assert_eq!(story.crontab().table().unwrap(), "1 2 3 4 5 other\n");
    };
    let good = "- {name: a, every: 1h, message: x}\n";
    check(&format!("{good}- {{name: b, every: 1h}}\n"), "item 2 of `jobs.yaml`: ");
    check(
        &format!("{good}- {{every: 1h, message: x}}\n"),
        "item 2 of `jobs.yaml`: it has no `name`",
    );
    check(
        &format!("{good}- {{name: b, evry: 1h, message: x}}\n"),
        "there is no key `evry`; `every` is one",
    );
    check(&format!("{good}- text\n"), "it is not a map of flags");
    check(&format!("{good}{good}"), "item 2 of `jobs.yaml`: an earlier item has the same name");
    check(
        &format!("{good}- {{name: b, every: 1h, message: x, config: c.json}}\n"),
        "item 2 of `jobs.yaml`: `json`, `replace` and `config` are flags of the command",
    );
    // The value of a key does not matter.
    for item in [
        "{name: b, every: 1h, message: x, enabld: false}",
        "{name: b, every: 1h, message: x, retri: null}",
    ] {
        check(&format!("{good}- {item}\n"), "item 2 of `jobs.yaml`: there is no key `");
    }
    check(
        &format!("{good}- {{name: b, every: 1h, message: x, enabled: maybe}}\n"),
        "item 2 of `jobs.yaml`: `enabled` is `true` or `false`",
    );
    check("jobs: [{name: a}]\n", "a list of maps, without a key above it");
    check("- [\n", "is not YAML or JSON");
    let story = story().file("jobs.yaml", "- {name: a, cron: \"61 * * * *\", message: x}\n");
    quiet(&story, &["cron", "apply", "-f", "jobs.yaml"])
        .status(2)
        .stderr_has("item 1 of `jobs.yaml`: ");
    quiet(&story, &["cron", "apply", "-f", "missing"]).status(66).stderr_has("missing");
    // What depends on the system is checked for all items too, before the first is saved.
    let story = self::story().file(
        "jobs.yaml",
        format!("{good}- {{name: b, every: 1h, message: x, channel: file, to: /nowhere/x}}\n"),
    );
    quiet(&story, &["cron", "apply", "-f", "jobs.yaml"])
        .status(66)
        .stderr_has("item 2 of `jobs.yaml`: ");
    assert!(!story.workspace().join("cron/jobs.json").exists());
    // The limit of a file is that of a pipe too.
    let story = self::story().stdin(format!("{good}#{}", "x".repeat(1 << 20)));
    story
        .run(["cron", "apply", "-f", "-"])
        .status(65)
        .stderr("nanobot: standard input is longer than 1.0 MB\n");
}

#[test]
fn a_job_of_a_file_can_be_disabled() {
    let item = |enabled: &str| format!("- {{name: a, every: 1h, message: x{enabled}}}\n");
    let story = story().file("jobs.yaml", item(", enabled: false"));
    let apply = ["cron", "apply", "-f", "jobs.yaml", "--json"];
    let added = lines(&story, &apply);
    assert_eq!((&added[0]["change"], &added[0]["next"]), (&Value::from("added"), &Value::Null));
    let check = |enabled: bool| {
        assert_eq!(jobs(&story)[0]["enabled"], enabled);
        let table = story.crontab().table().unwrap();
        assert_eq!(table.contains(" cron run "), enabled, "{table}");
    };
    check(false);
    assert_eq!(changes(&lines(&story, &apply)), ["unchanged"]);
    for (enabled, change, is_enabled) in [
        (", enabled: true", "changed", true),
        // Without the key it stays as it is.
        ("", "unchanged", true),
        (", enabled: false", "changed", false),
        ("", "unchanged", false),
    ] {
        std::fs::write(story.dir().join("jobs.yaml"), item(enabled)).unwrap();
        assert_eq!(changes(&lines(&story, &apply)), [change], "{enabled}");
        check(is_enabled);
    }
}

/// A reader that has ended does not leave half of the jobs.
#[test]
fn all_jobs_are_saved_before_anything_is_printed() {
    let items: String =
        (0..50).map(|n| format!("- {{name: job{n}, every: 1h, message: x}}\n")).collect();
    let story = story().file("jobs.yaml", items);
    let command = format!("{} cron apply -f jobs.yaml | true", crate::story::NANOBOT);
    let result = story.wait(story.program("/bin/sh").args(["-c", &command]).spawn().unwrap());
    result.text();
    result.error_text();
    drop(result);
    assert_eq!(jobs(&story).len(), 50);
    let table = story.crontab().table().unwrap();
    assert_eq!(table.matches(" cron run ").count(), 50);
}

/// The cost of a repeated `apply` grows with the number of jobs, not with its square.
#[test]
fn two_hundred_unchanged_jobs_cost_little() {
    if !crate::fault_injection::can_inject() {
        return;
    }
    let calls = |count: usize| {
        let items: String = (0..count)
            .map(|n| format!("- {{name: job{n}, every: 1h, message: x, read: [.]}}\n"))
            .collect();
        let story = story().file("jobs.yaml", items);
        assert_eq!(lines(&story, &["cron", "apply", "-f", "jobs.yaml", "--json"]).len(), count);
        let before = story.crontab().calls().len();
        let trace = story.dir().join("calls");
        let mut strace = story.program("strace");
        // Without children: `crontab` is a shell script here.
        strace.args(["-qq", "-o"]).arg(&trace).arg(crate::story::NANOBOT);
        let result = strace.args(["cron", "apply", "-f", "jobs.yaml", "--json"]).output().unwrap();
        assert!(result.status.success(), "{result:?}");
        let text = String::from_utf8(result.stdout).unwrap();
        assert_eq!(text.matches("\"unchanged\"").count(), count, "{text}");
        assert_eq!(&story.crontab().calls()[before..], ["-l"]);
        std::fs::read_to_string(trace).unwrap().lines().count()
    };
    let (few, many) = (calls(10), calls(200));
    assert!(many - few < 124 * 190, "{few} system calls for 10 jobs, {many} for 200");
}
