//! The commands of the README: each is run as it stands there, against a scripted provider.

use crate::channel::telegram_story;
use crate::page_commands::{
    CommandRow, answers, elsewhere, leave, prints, run_line, run_page, types,
};
use crate::requirements::require;
use crate::server::{calls, says};
use crate::story::{Story, write};
use serde_json::json;

fn readme() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/README.md");
    std::fs::read_to_string(path).unwrap()
}

/// Commands of a developer, and of the installation.
fn rows_of_other_tests() -> [CommandRow; 9] {
    let onboard = "readme::commands_of_the_readme_that_configure";
    [
        elsewhere("cargo run ", ".ci/program"),
        elsewhere("cargo test ", ".ci/run"),
        // With a program that is built already.
        elsewhere("cargo install ", ".ci/package/try"),
        elsewhere("sudo apt install ", ".ci/package/try"),
        elsewhere("sudo dnf install ", ".ci/package/build"),
        elsewhere("tar xzf ", ".ci/package/try"),
        elsewhere("printenv ", onboard),
        elsewhere("nanobot onboard --provider", onboard),
        elsewhere("nanobot onboard", "onboard::a_first_run_completes"),
    ]
}

#[test]
fn commands_of_the_readme_do_what_it_says() {
    if !(require("git") && require("jq") && require("make")) {
        return;
    }
    let (story, telegram) = telegram_story();
    for (name, text) in [
        ("bill.txt", "Tea, 3 euros\n"),
        ("notes.txt", "Tea at four.\n"),
        ("syslog", "started\nfailed\n"),
        ("a.md", "# A\n"),
        ("b.md", "# B\n"),
        ("Makefile", "test:\n\ttest -f code\n"),
    ] {
        write(&story.dir().join(name), text.as_bytes());
    }
    std::fs::create_dir(story.home().join("inbox")).unwrap();
    let git = "git init -q && git config user.name Ada && git config user.email ada@example.org && git add notes.txt";
    run_line(&story, git, &[]);
    telegram.message(7, "hi");
    let fix = calls("write_file", json!({"path": "fixed.txt", "content": "x"}));
    let repair = calls("write_file", json!({"path": "code", "content": "x"}));
    let notes = json!({"path": "notes.txt", "content": "Tea at four, sharp.\n"});
    let mention = calls("write_file", notes);
    let bill = says(r#"{"name": "Tea", "amount": 3, "tags": ["drink"]}"#);
    let reviews = ["Good."; 3].map(says);
    let mut rows = Vec::from(rows_of_other_tests());
    rows.extend([
        answers("write a commit message", [says("tea: add notes")], "tea: add notes"),
        answers("fix the failing test", [fix, says("Fixed.")], "Fixed.\n"),
        prints("nanobot undo", "removed fixed.txt\n"),
        types("nanobot repl", leave),
        answers("which of these lines matter?", [says("The second.")], ""),
        prints("cron add", "✓"),
        answers("--until", [says("Fine."), repair, says("Repaired.")], "Repaired.\n"),
        answers("--propose", [mention, says("Mentioned.")], "Mentioned.\n"),
        prints("nanobot apply", "changed notes.txt\n"),
        answers("--bare -x", [says("```awk\n{ sum += $3 }\n```")], ""),
        answers("| jq .amount", [bill], "3\n"),
        answers("xargs", reviews, ""),
        answers("--record talk.jsonl", [says("Nearly.")], "Nearly.\n"),
        prints("--replay talk.jsonl", "Nearly.\n"),
        prints("channel login", "the command menu is set\n"),
        answers("channel poll", [says("Hello, Ann.")], ""),
        prints("channel send", "\n"),
    ]);
    let replaced = [("/var/log/syslog", "syslog"), ("* * * * * ", ""), ("--wait 60", "")];
    run_page(&story, &readme(), &replaced, rows);
    let (log, _) = run_line(&story, "git log --format=%s", &[]);
    assert_eq!(log, "tea: add notes\n");
    let report = std::fs::read_to_string(story.dir().join("report.md"));
    assert_eq!(report.unwrap(), "The second.\n");
    let review = std::fs::read_to_string(story.dir().join("a.md.review"));
    assert_eq!(review.unwrap(), "Good.\n");
    let messages = telegram.sent();
    assert_eq!(messages[0], "Hello, Ann.");
    assert!(messages[1].contains("Filesystem"), "{messages:?}");
    let table = story.crontab().table().unwrap();
    assert_eq!(table.matches(" --scheduled\n").count(), 3, "{table}");
}

/// The line of the README that begins with `start`.
fn line_of_the_readme(start: &str) -> String {
    let text = readme();
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("    "));
    lines.find(|line| line.starts_with(start)).unwrap().to_owned()
}

#[test]
fn the_watched_folder_is_sorted_and_an_unchanged_one_costs_nothing() {
    let story = Story::new();
    let inbox = story.home().join("inbox");
    write(&inbox.join("bill.txt"), b"Tea, 3 euros\n");
    run_line(&story, &line_of_the_readme("nanobot cron add -n sort"), &[]);
    let sort = format!("cd {0} && mkdir bills && mv bill.txt bills", inbox.display());
    story.server().script([calls("exec", json!({ "command": sort })), says("Sorted.")]);
    story.run(["cron", "run", "sort"]).stdout("Sorted.\n");
    assert!(inbox.join("bills/bill.txt").exists());
    assert!(story.requests()[0].last_content().contains("inbox/bill.txt"));
    story.run(["cron", "run", "sort"]);
    assert_eq!(story.requests().len(), 2);
}

#[test]
fn commands_of_the_readme_that_configure() {
    let find = line_of_the_readme;
    let story = Story::bare();
    story.server().script([says("Hello there.")]);
    story.server().allow_extra_keys(&["reasoning", "usage"]);
    let base = format!("http://127.0.0.1:{}/v1", story.server().port);
    let variables = [
        ("OPENROUTER_API_KEY", "key-of-the-story"),
        ("NANOBOT_PROVIDERS__OPENROUTER__API_BASE", &base),
    ];
    let (stdout, stderr) = run_line(&story, &find("printenv"), &variables);
    assert!(stderr.contains("answered in") || stdout.contains("answered in"), "{stdout}{stderr}");
    let config = story.run(["config", "get", "providers.openrouter.apiKey"]);
    assert!(!config.text().is_empty());
    let story = Story::bare();
    run_line(&story, &find("nanobot onboard --provider"), &[]);
    story.run(["config", "get", "agents.defaults.model"]).stdout("qwen3\n");
}
