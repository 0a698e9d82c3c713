//! `usage`: costs and token counts from the ledger.

use crate::server::{calls, says};
use crate::story::{NANOBOT, Story, write};
use serde_json::{Value, json};
use std::time::{Duration, SystemTime};

/// A ledger line of a call with this cost, modified by `changes`.
fn ledger_line(time: &str, turn: &str, usd: Option<f64>, changes: &Value) -> String {
    let mut entry = json!({
        "v": 1, "time": time, "day": &time[..10], "session": "cli:direct", "turn": turn, "job": null, "cause": "turn",
        "provider": "openai", "model": "gpt-5", "input": 1000, "cached": 400, "cache_write": 0, "output": 50,
        "reasoning": 10, "estimated": false, "usd": usd, "ms": 1200, "outcome": "ok", "day_usd": 0.75, "month_usd": 1.5,
    });
    for (key, value) in changes.as_object().unwrap() {
        entry[key] = value.clone();
    }
    format!("{entry}\n")
}

fn with_ledger(story: Story, text: &str) -> Story {
    write(&story.home().join(".nanobot/usage.jsonl"), text.as_bytes());
    story
}

/// Three turns on two days; the fixed time of stories is the second of January.
fn story_with_usage() -> Story {
    let local = json!({ "provider": "ollama", "model": "qwen3", "session": "b", "job": "digest" });
    let odd =
        json!({ "estimated": true, "outcome": "failed", "provider": "custom", "model": "mine" });
    let text = [
        ledger_line("2025-11-01T10:00:00Z", "t0", Some(7.0), &json!({})),
        ledger_line("2026-01-01T10:00:00Z", "t1", Some(0.5), &json!({})),
        ledger_line("2026-01-01T10:00:01Z", "t1", Some(0.25), &json!({})),
        ledger_line("2026-01-01T20:00:00Z", "t2", Some(0.0), &local),
        ledger_line("2026-01-02T03:00:00Z", "t3", None, &odd),
    ];
    with_ledger(Story::bare(), &text.concat())
}

const DAY_TABLE: &str = "\
DAY         RUNS  CALLS  INPUT  CACHED  OUTPUT        USD
2026-01-01     2      3   3000    1200     150   0.7500
2026-01-02     1      1   1000     400      50  unknown
TOTAL          3      4   4000    1600     200   0.7500?~
? at least $0.7500 (1 call without a price); set `models.NAME.price` in the config for later calls
~ calls with estimated tokens, because the server sent no usage: 1
";

#[test]
fn a_month_is_listed_by_day() {
    let story = story_with_usage();
    story.run(["usage"]).stdout(DAY_TABLE);
    // Colour is only used on terminals.
    story.run(["usage", "--color", "always"]).stdout(DAY_TABLE);
}

#[test]
fn usage_grouped_by_other_columns() {
    let story = story_with_usage();
    let names = |by: &str| -> Vec<String> {
        let text = story.run(["usage", "--by", by]).text();
        let name = |line: &str| line.split("  ").next().unwrap().to_owned();
        let rows = text.lines().take_while(|line| !line.starts_with("TOTAL"));
        rows.map(name).collect()
    };
    assert_eq!(names("model"), ["MODEL", "openai/gpt-5", "custom/mine", "ollama/qwen3"]);
    assert_eq!(names("session"), ["SESSION", "cli:direct", "b"]);
    assert_eq!(names("job"), ["JOB", "(no job)", "digest"]);
    story.run(["usage", "--by", "week"]).status(2).stderr_has("week");
}

#[test]
fn json_has_exact_numbers() {
    let story = story_with_usage();
    let lines = story.run(["usage", "--json"]).json_lines();
    let expect = [
        json!({ "v": 1, "day": "2026-01-01", "runs": 2, "calls": 3, "failed_calls": 0, "unpriced_calls": 0, "estimated_calls": 0,
                "input": 3000, "cached": 1200, "cache_write": 0, "output": 150, "reasoning": 30, "usd": 0.75 }),
        json!({ "v": 1, "day": "2026-01-02", "runs": 1, "calls": 1, "failed_calls": 1, "unpriced_calls": 1, "estimated_calls": 1,
                "input": 1000, "cached": 400, "cache_write": 0, "output": 50, "reasoning": 10, "usd": null }),
    ];
    assert_eq!(lines, expect);
    let first = |by: &str, key: &str| {
        let lines = story.run(["usage", "--json", "--by", by]).json_lines();
        lines[0][key].clone()
    };
    assert_eq!(first("model", "model"), "gpt-5");
    assert_eq!(first("model", "provider"), "openai");
    assert_eq!(first("session", "session"), "cli:direct");
    assert_eq!(first("job", "job"), Value::Null);
}

#[test]
fn since_selects_the_start() {
    let story = story_with_usage();
    let count = |since: &str| -> u64 {
        let lines = story.run(["usage", "--json", "--since", since]).json_lines();
        lines.iter().filter_map(|line| line["calls"].as_u64()).sum()
    };
    for (since, expect) in [
        ("today", 1),
        ("1d", 1),
        ("2d", 4),
        ("month", 4),
        ("12h", 2),
        ("2025-11-01", 5),
        ("2025-11-02", 4),
        ("365d", 5),
    ] {
        assert_eq!(count(since), expect, "{since}");
    }
    for wrong in ["yesterday", "0d", "-1d", "7", "2026-02-30", "2026-1-1", ""] {
        let arguments = ["usage".to_owned(), format!("--since={wrong}")];
        let stderr = story.run(arguments).status(2).error_text();
        for form in ["`2026-11-01`", "`7d`", "`12h`", "`today`", "`month`"] {
            assert!(stderr.contains(form), "{stderr}");
        }
    }
    story
        .run(["usage", "--since", "2026-01-03"])
        .stderr("nanobot: no request was sent since 2026-01-03\n");
}

#[test]
fn an_empty_ledger_is_no_failure() {
    let message = "nanobot: the ledger is empty: no request was sent yet\n";
    let story = Story::bare();
    story.run(["usage"]).stderr(message);
    story.run(["usage", "--json"]).stderr(message);
    story.run(["-q", "usage"]).stdout("");
    assert!(!story.home().join(".nanobot").exists());
    with_ledger(Story::bare(), "").run(["usage"]).stderr(message);
}

#[test]
fn invalid_ledger_lines_are_skipped_and_counted() {
    let good = ledger_line("2026-01-02T03:00:00Z", "t", Some(1.0), &json!({}));
    let torn = good.trim_end().split_at(40).0.to_owned();
    let newer = ledger_line("2026-01-02T03:00:00Z", "t", Some(1.0), &json!({ "v": 2 }));
    let long = "x".repeat(200_000);
    let text = format!("{good}{{\"odd\": 1}}\n{long}\n\n{newer}\u{0}\n{good}{torn}");
    let story = with_ledger(Story::bare(), &text);
    let result = story.run(["usage", "--json"]);
    assert_eq!(result.json_lines()[0]["calls"], 2);
    result.stderr("nanobot: skipped invalid lines of the ledger: 5\n");
}

#[test]
fn the_cost_of_a_turn_is_shown_with_the_budgets() {
    let price = json!({ "scripted": { "price": { "input": 0, "output": 100_000 } } });
    let story = Story::new()
        .set("models", price)
        .set("budget", json!({ "daily": 5, "monthly": 20.5 }))
        .script([calls("list_dir", json!({ "path": "." })), says("ok")]);
    story.run(["agent", "-m", "x"]).stdout("ok\n");
    // Two replies of seven tokens, ten cents each.
    let text = story.run(["usage", "--by", "model"]).text();
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[1][..3], ["custom/scripted", "1", "2"]);
    assert_eq!(rows[1][5..], ["14", "1.4000"]);
    let budget = "budget: today $1.40 of $5.00, this month $1.40 of $20.50";
    assert_eq!(text.lines().last(), Some(budget));
    // A terminal gets meters.
    let meters = "today $1.40 of $5.00 ━━━─────── 28%, this month $1.40 of $20.50 ╸───────── 7%";
    let text = run_on_terminal(&story, 120, "usage", &NO_COLOR);
    let last = text.lines().last();
    assert_eq!(last, Some(format!("budget: {meters}").as_str()));
    let text = run_on_terminal(&story, 120, "status", &NO_COLOR);
    let meters = "$1.40 of $5.00 ━━━─────── 28% today, $1.40 of $20.50 ╸───────── 7% this month";
    assert!(text.contains(&format!("spent      {meters}\n")), "{text}");
}

pub(crate) const NO_COLOR: [(&str, &str); 1] = [("NO_COLOR", "1")];

/// The output on a terminal with this many columns.
pub(crate) fn run_on_terminal(
    story: &Story,
    columns: usize,
    arguments: &str,
    env: &[(&str, &str)],
) -> String {
    let mut command = story.program("script");
    let shell = format!("stty cols {columns}; {NANOBOT} {arguments}");
    command.args(["-qec", &shell, "/dev/null"]);
    command.env("TERM", "xterm").envs(env.iter().copied());
    let text = story.wait(command.spawn().unwrap()).text();
    text.replace("\r\n", "\n")
}

#[test]
fn bars_fit_the_terminal_width() {
    let story = story_with_usage();
    let bar = |columns: usize| {
        let text = run_on_terminal(&story, columns, "usage", &NO_COLOR);
        assert!(!text.contains('\u{1b}'), "{text:?}");
        for line in text.lines().take(4) {
            assert!(line.chars().count() <= columns, "{columns}: {line:?}");
        }
        text.matches('█').count()
    };
    assert_eq!(bar(200), 40);
    let narrow = bar(80);
    assert!((8..40).contains(&narrow), "{narrow}");
    assert_eq!(bar(60), 0);
    let text = run_on_terminal(&story, 80, "usage", &[]);
    assert!(text.contains("\u{1b}[36m█"), "{text:?}");
    let text = run_on_terminal(&story, 80, "usage --color never", &[]);
    assert!(text.contains('█') && !text.contains('\u{1b}'), "{text:?}");
}

#[test]
fn bars_show_tokens_if_no_price_is_known() {
    let few = json!({ "input": 10, "model": "few", "output": 0 });
    let many = json!({ "input": 1000, "model": "many", "output": 0 });
    let time = "2026-01-02T03:00:00Z";
    let text = ledger_line(time, "a", None, &few) + &ledger_line(time, "b", None, &many);
    let story = with_ledger(Story::bare(), &text);
    let text = run_on_terminal(&story, 120, "usage --by model", &NO_COLOR);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[1].contains("openai/many") && lines[1].contains('█'));
    assert!(lines[2].contains("openai/few") && lines[2].ends_with('▍'), "{text}");
}

#[test]
fn names_are_sanitized() {
    let name = "a\u{1b}[2J\nb\u{202e}".repeat(5);
    let text = ledger_line("2026-01-02T03:00:00Z", "t", Some(1.0), &json!({ "session": name }));
    let story = with_ledger(Story::bare(), &text);
    let text = story.run(["usage", "--by", "session"]).text();
    assert_eq!(text.lines().count(), 3);
    assert!(!text.contains('\u{1b}') && !text.contains('\u{202e}'));
    let text = run_on_terminal(&story, 70, "usage --by session", &NO_COLOR);
    assert!(text.lines().all(|line| line.chars().count() <= 70), "{text}");
}

#[test]
fn a_closed_pipe_is_not_a_failure() {
    let story = story_with_usage();
    for arguments in ["usage", "usage --json", "model list", "provider list"] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = story.command(arguments.split(' '));
        let child = command.stdout(writer).spawn().unwrap();
        drop(command);
        story.wait(child).status(0);
    }
}

#[test]
fn usage_of_the_offered_tools_is_counted() {
    let story = Story::new()
        .workspace_file(
            "skills/tea/SKILL.md",
            "---\ndescription: how to make tea\n---\nBoil water.",
        )
        .script([
            calls("read_file", json!({ "path": "~/.nanobot/workspace/skills/tea/SKILL.md" })),
            calls("write_file", json!({ "path": "a", "content": "x" })),
            says("Done."),
        ]);
    story.run(["agent", "-m", "tea"]).stdout("Done.\n").stderr_has("`--write`");
    let lines = story.run(["usage", "--by", "tool", "--json"]).json_lines();
    let expect = [
        json!({ "v": 1, "tool": "read_file", "runs": 1, "calls": 1, "failed_calls": 0, "denied_calls": 0 }),
        json!({ "v": 1, "tool": "write_file", "runs": 1, "calls": 1, "failed_calls": 1, "denied_calls": 1 }),
    ];
    assert_eq!(lines, expect);
    let text = story.run(["usage", "--by", "skill"]).text();
    assert_eq!(text, "SKILL  RUNS\ntea       1\n");
    story
        .run(["usage", "--by", "server"])
        .stderr("nanobot: nothing was offered or used since 2025-12-04\n");
    Story::bare()
        .run(["usage", "--by", "tool"])
        .stderr("nanobot: no usage yet: no turn has called a tool\n");
}

#[test]
fn unused_tools_are_reported() {
    let line_of = |day: &str, number: u32, tools: &Value| {
        let line = json!({
            "v": 1, "time": format!("{day}T10:00:00Z"), "day": day, "session": "s", "turn": format!("t{number}"),
            "requests": 2, "tools": tools, "told": { "": 900, "clock": 40, "hub": 200 },
        });
        format!("{line}\n")
    };
    let line = |number: u32, tools: &Value| line_of("2026-01-01", number, tools);
    let none = json!({});
    let mut text: String = (0..11).map(|number| line(number, &none)).collect();
    text += &line(11, &json!({ "mcp_clock_now": { "count": 3, "failed": 1 } }));
    text += "torn";
    let story = Story::new().set(
        "tools",
        json!({ "mcpServers": {
            "clock": { "command": "clock" }, "hub": { "url": "http://127.0.0.1:1/mcp" },
            "off": { "command": "off", "disabled": true },
        } }),
    );
    let path = story.home().join(".nanobot/tools.jsonl");
    write(&path, text.as_bytes());
    let skill = |name: &str, day: u64| {
        let text = format!("---\nname: {name}\ndescription: d\n---\nBody.\n");
        let path = story.workspace().join(format!("skills/{name}/SKILL.md"));
        write(&path, text.as_bytes());
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(day * 86_400);
        std::fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
    };
    // On 2025-12-01, and on 2026-01-01.
    for (name, day) in [("old", 20_423), ("named", 20_423), ("asked", 20_423), ("new", 20_454)] {
        skill(name, day);
    }
    // Servers and skills that were added within the last 30 days are not called unused.
    let status = story.run(["status", "--json"]).json();
    assert_eq!(status["offered"]["unused"]["servers"], json!([]));
    assert_eq!(status["offered"]["unused"]["skills"], json!([]));
    write(&path, (line_of("2025-12-01", 99, &none) + &text).as_bytes());
    // A skill that the user names is used.
    story.server().script([says("One."), says("Two.")]);
    story.run(["agent", "--offline", "--skill", "named", "-m", "x"]).stdout("One.\n").error_text();
    story.run(["agent", "--offline", "-m", "/asked now"]).stdout("Two.\n").error_text();
    let status = story.run(["status", "--json"]).json();
    assert_eq!(status["offered"]["unused"]["skills"], json!(["old"]));
    assert_eq!(status["offered"]["servers"], json!(["clock", "hub"]));
    assert_eq!(status["offered"]["unused"]["servers"], json!(["hub"]));
    assert_eq!(status["offered"]["unused"]["runs"], 14);
    let text = story.run(["status"]).text();
    assert!(text.contains("the server hub (200 tokens of each request)"), "{text}");
    assert!(!text.contains("the server clock"), "{text}");
    let servers = story.run(["usage", "--by", "server", "--json"]).json_lines();
    let expect = [
        json!({ "v": 1, "server": "clock", "runs": 1, "offered_runs": 12, "calls": 3, "failed_calls": 1, "denied_calls": 0, "told_tokens": 960 }),
        json!({ "v": 1, "server": "hub", "runs": 0, "offered_runs": 12, "calls": 0, "failed_calls": 0, "denied_calls": 0, "told_tokens": 4800 }),
    ];
    assert_eq!(servers, expect);
}
