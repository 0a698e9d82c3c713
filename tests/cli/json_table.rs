//! The JSON of commands: each command that prints data has a description, and what it prints in a home with real data has every
//! field of the description and no other.

use crate::channel::{ANN, telegram_story};
use crate::cron::{add_job, job_dir, run_cron, run_cron_with_env};
use crate::cron_run::{every_minute, python_job, write_jobs};
use crate::mcp::{plain_tool, read_only_tool, story_with_servers};
use crate::memory::{calls_save_memory, session_text};
use crate::schema::violations;
use crate::server::{Responder, calls, calls_all, fails, says};
use crate::story::{Story, write, write_program};
use clap::Command;
use nanobot::cli::json_table::{
    COMMANDS, JsonField, JsonForm, JsonShape, JsonType, OBJECTS, definition_name, schema,
};
use nanobot::cli::pages::HelpLength;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// The commands whose JSON is that of a turn, in nanobot-events(5), or the request of a provider.
const TURNS: [&str; 5] =
    ["agent --json", "agent --output-format", "run --json", "run --output-format", "run --dry-run"];

/// Fields that no story here has: their causes need a machine or a moment that is tested elsewhere.
const UNSEEN_FIELDS: [&str; 3] = [
    "memory search PATTERN --json.score",
    "memory.write_error",
    "session search PATTERN --json.score",
];

/// The time of the stories.
const NOW_MS: i64 = 1_767_323_045_000;

fn object(name: &str) -> &'static JsonShape {
    OBJECTS
        .iter()
        .find(|object| object.name == name)
        .unwrap_or_else(|| panic!("no object `{name}`"))
}

/// The output of commands: the rows of the table that were seen, and the fields with a value that is not `null`.
#[derive(Default)]
struct SeenJson {
    commands: BTreeSet<&'static str>,
    fields: BTreeSet<String>,
    /// Differences from the descriptions, and commands that printed nothing.
    violations: Vec<String>,
}

impl SeenJson {
    /// Runs the command of the row `name` and checks what it prints. The first words of the row are the command's.
    #[track_caller]
    fn run(&mut self, story: &Story, name: &str, arguments: &[&str]) {
        self.run_at(story, "03:04:05", name, arguments);
    }

    /// Like [`Self::run`], at a time of 2026-01-02.
    #[track_caller]
    fn run_at(&mut self, story: &Story, time: &str, name: &str, arguments: &[&str]) {
        let row = COMMANDS.iter().find(|row| row.name == name);
        let row = row.unwrap_or_else(|| panic!("no row `{name}`"));
        assert_eq!(name.split(' ').next(), arguments.first().copied(), "{name}");
        let mut command = story.command(arguments);
        command.env("NANOBOT_TEST_TIME", format!("2026-01-02T{time}Z"));
        let result = story.wait(command.spawn().unwrap());
        let status = result.code();
        let (text, error) = (result.text(), result.error_text());
        let values: Vec<Value> = match row.form {
            JsonForm::Lines => {
                text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
            }
            JsonForm::Object | JsonForm::Array => {
                serde_json::from_str(&text).map(|value| vec![value]).unwrap_or_default()
            }
        };
        if values.is_empty() {
            self.violations.push(format!("{arguments:?}: status {status}\n{text}\n{error}"));
        }
        let root = schema();
        for value in &values {
            let messages = violations(&root["$defs"][definition_name(name)], value, &root, name);
            self.violations.extend(messages);
            for object in value.as_array().unwrap_or(&vec![value.clone()]) {
                self.record_shape(row, object);
            }
        }
        self.commands.insert(row.name);
    }

    fn record_shape(&mut self, shape: &'static JsonShape, value: &Value) {
        if let Some(base) = shape.base {
            self.record_shape(object(base), value);
        }
        self.record_fields(shape.name, shape.fields, value);
    }

    fn record_fields(&mut self, above: &str, fields: &'static [JsonField], value: &Value) {
        for (name, kind, _) in fields {
            let name = name.trim_end_matches('?');
            let path = format!("{above}.{name}");
            if !value[name].is_null() {
                self.record_type(&path, kind, &value[name]);
                self.fields.insert(path);
            }
        }
    }

    fn record_type(&mut self, path: &str, kind: &'static JsonType, value: &Value) {
        match kind {
            JsonType::Fields(fields) => self.record_fields(path, fields, value),
            JsonType::Shape(name) => self.record_shape(object(name), value),
            JsonType::OrNull(kind) => self.record_type(path, kind, value),
            JsonType::List(item) => {
                value
                    .as_array()
                    .unwrap()
                    .iter()
                    .for_each(|value| self.record_type(path, item, value));
            }
            _ => {}
        }
    }
}

/// The paths of all fields, as [`SeenJson`] has them.
fn all_fields() -> BTreeSet<String> {
    fn add(above: &str, fields: &'static [JsonField], all: &mut BTreeSet<String>) {
        for (name, kind, _) in fields {
            let path = format!("{above}.{}", name.trim_end_matches('?'));
            let mut kind = kind;
            while let JsonType::OrNull(inner) | JsonType::List(inner) = kind {
                kind = inner;
            }
            if let JsonType::Fields(fields) = kind {
                add(&path, fields, all);
            }
            all.insert(path);
        }
    }
    let mut all = BTreeSet::new();
    for shape in COMMANDS.iter().chain(OBJECTS) {
        add(shape.name, shape.fields, &mut all);
    }
    all
}

#[test]
fn what_commands_print_is_what_is_described() {
    let mut output = SeenJson::default();
    sessions(&mut output);
    memory(&mut output);
    jobs(&mut output);
    channels(&mut output);
    servers(&mut output);
    skills_and_tools(&mut output);
    config_and_models(&mut output);
    overview(&mut output);
    assert!(output.violations.is_empty(), "{:#?}", output.violations);
    let unseen: Vec<&str> = COMMANDS
        .iter()
        .map(|row| row.name)
        .filter(|name| !output.commands.contains(name))
        .collect();
    assert!(unseen.is_empty(), "no story runs {unseen:?}");
    let all = all_fields();
    let unseen: Vec<&str> = all.difference(&output.fields).map(String::as_str).collect();
    assert_eq!(unseen, UNSEEN_FIELDS, "fields without a value");
}

fn sessions(output: &mut SeenJson) {
    let reply = json!({ "role": "assistant", "content": "Done." });
    let story = Story::new()
        .file("notes.md", "buy milk\nand tea\n")
        .set("models", json!({ "scripted": { "price": { "input": 1, "output": 2 } } }))
        .workspace_file("memory/HISTORY.md", "[2026-01-01 10:00] Bought milk.\n\n")
        .workspace_file(
            "sessions/torn.jsonl",
            "{\"role\":\"user\",\"content\":\"old\",\"timestamp\":\"2025-11-01T10:00:00\"}\n{\"ro",
        )
        .script([
            calls("read_file", json!({ "path": "notes.md" })),
            crate::server::replies(reply, "stop"),
            says("Fine."),
        ]);
    story.run(["agent", "-m", "what milk?\nand tea?", "-s", "a"]).stdout("Done.\n");
    story.run(["agent", "-m", "and now?", "-s", "a"]).stdout("Fine.\n");
    story.run(["session", "title", "a", "Milk"]);
    output.run(&story, "session fork KEY NEW --json", &["session", "fork", "a", "b", "--json"]);
    output.run(&story, "session title KEY --json", &["session", "title", "a", "--json"]);
    output.run(&story, "session list --json", &["session", "list", "--json"]);
    output.run(&story, "session show KEY --json", &["session", "show", "a", "--json"]);
    output.run(
        &story,
        "session search PATTERN --json",
        &["session", "search", "milk", "-C", "1", "--json"],
    );
    output.run(
        &story,
        "session export KEY --format json",
        &["session", "export", "a", "--format", "json"],
    );
    output.run(&story, "session context KEY --json", &["session", "context", "a", "--json"]);
    let request = ["agent", "-m", "x", "-s", "a", "--dry-run=table-json"];
    output.run(&story, "agent --dry-run=table-json", &request);
    let raw = story.run(["session", "show", "a", "--raw"]).text();
    let story = story.file("a.jsonl", raw);
    output.run(
        &story,
        "session import FILE --json",
        &["session", "import", "a.jsonl", "c", "--json"],
    );
    output.run(&story, "session repair --json", &["session", "repair", "--all", "--json"]);
    let prune = ["session", "prune", "c", "--older-than", "0d", "--yes", "--json"];
    output.run_at(&story, "04:00:00", "session prune --json", &prune);
    output.run(&story, "session restore [KEY] --json", &["session", "restore", "--json"]);
    output.run(&story, "session restore [KEY] --json", &["session", "restore", "c", "--json"]);
}

fn memory(output: &mut SeenJson) {
    let story = Story::new()
        .workspace_file("sessions/cli_direct.jsonl", session_text("cli:direct", 120))
        .workspace_file("memory/MEMORY.md", "Likes tea.\n")
        .script([calls_save_memory("[2026-01-01 10:00] Words.", "Likes coffee.\n")]);
    story.run(["memory", "consolidate"]).stdout_has("70 messages");
    output.run(&story, "status --json", &["status", "--json"]);
    story.run(["memory", "undo"]).stderr_has("restored");
    let log = story.workspace().join("memory/.versions/log.jsonl");
    let aside = json!({ "id": 9, "time": "2026-01-02T03:00:00", "cause": "consolidation", "bytes": 3, "aside": "too long", "untrusted": "a page" });
    let text = std::fs::read_to_string(&log).unwrap();
    write(&log, format!("{text}{aside}\n").as_bytes());
    write(&log.with_file_name("trouble"), b"2026-01-02 03:00: no");
    output.run(&story, "status --json", &["status", "--json"]);
    output.run(&story, "memory log --json", &["memory", "log", "--json"]);
    output.run(&story, "memory show --json", &["memory", "show", "--json"]);
    output.run(&story, "memory search PATTERN --json", &["memory", "search", "tea", "--json"]);
    output.run(&story, "memory diff --json", &["memory", "diff", "1", "2", "--json"]);
}

fn jobs(output: &mut SeenJson) {
    let story = Story::new().env("NANOBOT_TEST_ZONE", "UTC");
    let mut other = python_job(&every_minute());
    other["state"] =
        json!({ "lastRunAtMs": 1_767_322_745_000_i64, "lastStatus": "error", "lastError": "no" });
    let mut unusable = python_job(&json!({ "kind": "cron", "expr": "at dawn" }));
    unusable["id"] = json!("0badbad0");
    write_jobs(&story, &[other, unusable]);
    std::fs::copy(story.home().join(".nanobot/config.json"), story.dir().join("c.json")).unwrap();
    add_job(&story, &["--config", "c.json", "-n", "own", "--every", "5h"]);
    let news_flags =
        ["-n", "news", "--cron", "0 8 * * *", "--tz", "Europe/Berlin", "--channel", "file"];
    let news_id = add_job(&story, &[&news_flags[..], &["--to", "answers"]].concat());
    let flags = [
        ["--retry", "2"],
        ["--retry-on", "1"],
        ["--model", "scripted"],
        ["--when", "true"],
        ["--timeout", "60"],
        ["--max-cost", "1"],
        ["--on-failure", "true"],
        ["--on-success", "true"],
        ["--ping", "none"],
        ["--fallback", "other"],
        ["--until", "true"],
        ["--max-rounds", "3"],
    ];
    let job_id =
        add_job(&story, &[&["-n", "terms", "--every", "1d"], flags.as_flattened()].concat());
    add_job(&story, &["-n", "report", "--after", "news"]);
    add_job(&story, &["-n", "soon", "--in", "1h"]);
    let command = ["add", "-n", "date", "--command", "date", "--in", "1h"];
    run_cron(&story, &command).stdout_has("Added job 'date'");
    let bad = add_job(&story, &["-n", "bad", "--cron", "0 * * * *"]);
    let add = ["cron", "add", "-n", "new", "--every", "2h", "-m", "x", "--json"];
    output.run(&story, "cron add NAME --json", &add);
    output.run(&story, "cron edit JOB --json", &["cron", "edit", "new", "--every", "3h", "--json"]);
    let story = story.file("jobs.yaml", "- name: new\n  every: 3h\n  message: y\n");
    let apply = ["cron", "apply", "-f", "jobs.yaml", "--json"];
    output.run(&story, "cron apply -f FILE --json", &apply);
    output.run(&story, "cron heartbeat enable --json", &["cron", "heartbeat", "enable", "--json"]);
    let work: [Responder; 2] = [
        calls_all([
            ("list_dir", json!({})),
            ("write_file", json!({ "path": "/etc/x", "content": "" })),
        ]),
        says("News."),
    ];
    story.server().script(work);
    let scheduled = |time: &str, id: &str| {
        let time = format!("2026-01-02T{time}Z");
        let result =
            run_cron_with_env(&story, &[("NANOBOT_TEST_TIME", &time)], &["run", id, "--scheduled"]);
        result.code();
        (result.text(), result.error_text())
    };
    scheduled("07:00:00", &news_id);
    story.server().script([says("Well."), fails(401, "no")]);
    scheduled("08:00:00", &bad);
    scheduled("09:00:00", &bad);
    let write_state = |id: &str, state: &Value| {
        write(&job_dir(&story, id).join("state.json"), state.to_string().as_bytes());
    };
    let started = json!({ "atMs": NOW_MS, "slotMs": null, "pid": 1 });
    write_state(&bad, &json!({ "v": 1, "handledMs": NOW_MS, "started": started }));
    let retry = json!({ "slotMs": NOW_MS, "atMs": NOW_MS + 60_000, "number": 1 });
    write_state(&job_id, &json!({ "v": 1, "handledMs": NOW_MS, "started": null, "retry": retry }));
    for time in ["06:30:00", "12:00:00"] {
        output.run_at(&story, time, "cron list --json", &["cron", "list", "--all", "--json"]);
        output.run_at(&story, time, "cron check --json", &["cron", "check", "--json"]);
    }
    output.run(&story, "cron show JOB --json", &["cron", "show", "news", "--json"]);
    output.run(&story, "cron logs --json", &["cron", "logs", "--json"]);
    let run = run_cron(&story, &["logs", &news_id, "--json"]).json_lines()[0]["run"]
        .as_str()
        .unwrap()
        .to_owned();
    output.run(&story, "cron logs --json", &["cron", "logs", "--run", &run, "--json"]);
    output.run(&story, "cron rerun RUN --json", &["cron", "rerun", &run, "--json"]);
    output.run(&story, "cron run JOB --json", &["cron", "run", "news", "--json"]);
    output.run(&story, "cron heartbeat --json", &["cron", "heartbeat", "--json"]);
    output.run(&story, "status --json", &["status", "--json"]);
    output.run(&story, "status check --json", &["status", "check", "--offline", "--json"]);
}

fn channels(output: &mut SeenJson) {
    let (story, telegram) = telegram_story();
    telegram.message(8, "let me in");
    story.run(["channel", "poll"]);
    output.run(&story, "channel show NAME --json", &["channel", "show", "telegram", "--json"]);
    let body = json!({ "ok": false, "error_code": 429, "description": "Too Many Requests", "parameters": { "retry_after": 600 } });
    telegram.fail("sendMessage", 429, body);
    let to = ANN.to_string();
    story.run(["channel", "send", "telegram", &to, "later"]).status(75).error_text();
    let workspace = story.workspace().with_file_name("kids");
    let bind = ["channel", "bind", "telegram", "--sender", "8", "-w", workspace.to_str().unwrap()];
    let limits = ["--profile", "plan", "--model", "scripted", "--budget", "1"];
    story.run([&bind[..], &limits].concat()).error_text();
    output.run(&story, "channel list --json", &["channel", "list", "--json"]);
    output.run(&story, "channel inbox --json", &["channel", "inbox", "--json"]);
    let denied = json!({ "ok": false, "error_code": 401, "description": "Unauthorized" });
    telegram.fail("getUpdates", 401, denied);
    story.run(["channel", "poll"]).status(77).error_text();
    output.run(&story, "channel list --json", &["channel", "list", "--json"]);
    output.run(&story, "cron check --json", &["cron", "check", "--json"]);
    let story = story.set("channels.telegram.allowFrom", json!([]));
    telegram.message(9, "and me?");
    story.run(["channel", "poll"]).code();
    output.run(&story, "channel pair list --json", &["channel", "pair", "list", "--json"]);
}

fn servers(output: &mut SeenJson) {
    let mut tool = read_only_tool("look", "See.");
    tool["title"] = json!("Look");
    tool["annotations"] = json!({ "readOnlyHint": true, "destructiveHint": false, "idempotentHint": true, "openWorldHint": false });
    let resource = json!({ "type": "resource", "resource": { "uri": "notes://x", "mimeType": "text/plain", "text": "tea" } });
    let link =
        json!({ "type": "resource_link", "uri": "notes://y", "name": "y", "description": "more" });
    let gives = json!({ "structuredContent": { "a": 1 }, "content": [
        { "type": "image", "mimeType": "image/png", "data": "aGk=" }, { "type": "audio", "mimeType": "audio/wav", "data": "aGk=" }, resource, link,
    ] });
    let draw = json!({ "name": "draw", "description": "Draw.", "inputSchema": { "type": "object" }, "gives": gives });
    let plan = json!({
        "tools": [tool, plain_tool("set"), draw], "instructions": "Look first.",
        "resources": [{ "uri": "notes://today", "name": "today", "mimeType": "text/plain" }],
        "prompts": [{ "name": "greet", "description": "Say hello", "arguments": [{ "name": "who", "description": "whom", "required": true }] }],
    });
    let environment = json!({ "env": { "TOKEN": "${TOKEN_OF_THE_SHELL}" } });
    let story = story_with_servers(&[
        ("one", plan, environment),
        ("dead", json!({ "dies": "no tea" }), json!({})),
    ])
    .env("TOKEN_OF_THE_SHELL", "abcd1234");
    output.run(&story, "mcp check --json", &["mcp", "check", "--json"]);
    output.run(&story, "mcp list --json", &["mcp", "list", "--json"]);
    output.run(&story, "mcp show SERVER --json", &["mcp", "show", "one", "--json"]);
    output.run(&story, "mcp show SERVER TOOL --json", &["mcp", "show", "one", "look", "--json"]);
    output.run(&story, "tool run NAME --json", &["tool", "run", "one", "draw", "--json"]);
    output.run(&story, "tool run NAME --json", &["tool", "run", "one", "notes://today", "--json"]);
    output.run(&story, "status --json", &["status", "--json"]);
}

fn skills_and_tools(output: &mut SeenJson) {
    let skill = "---\ndescription: how to make tea\nlicense: MIT\ncompatibility: any\nallowed-tools: exec\nmetadata: {nanobot: {requires: {bins: [no-such-program]}}}\n---\nBoil water.\n";
    let spec = "#!/bin/sh\nif [ \"$1\" = --spec ]; then echo '{\"description\": \"Tides\", \"parameters\": {\"type\": \"object\"}}'; exit; fi\ncat\n";
    let story = Story::new()
        .set("tools", json!({ "programs": ["tides"] }))
        .set("agents.defaults.disabledSkills", json!(["cron"]))
        .workspace_file("skills/tea/SKILL.md", skill)
        .workspace_file("skills/tea/run.sh", "echo")
        .workspace_file("skills/weather/SKILL.md", "---\ndescription: mine\n---\nLook.\n")
        .workspace_file("skills/odd/SKILL.md/x", "")
        .script([calls("write_file", json!({ "path": "a", "content": "x" })), says("Done.")]);
    write_program(&story.home().join(".nanobot/tools/tides"), spec);
    write_program(&story.home().join(".nanobot/tools/broken"), "#!/bin/sh\nexit 1\n");
    std::os::unix::fs::symlink("run.sh", story.workspace().join("skills/tea/link")).unwrap();
    output.run(&story, "skill list --json", &["skill", "list", "--json"]);
    output.run(&story, "skill show NAME --json", &["skill", "show", "tea", "--json"]);
    output.run(&story, "skill check --json", &["skill", "check", "--json"]);
    output.run(&story, "tool list --json", &["tool", "list", "--json"]);
    output.run(&story, "tool show NAME --json", &["tool", "show", "tool_tides", "--json"]);
    output.run(&story, "tool check --json", &["tool", "check", "--json"]);
    output.run(&story, "tool run NAME --json", &["tool", "run", "tides", "{}", "--json"]);
    output.run(&story, "policy explain --json", &["policy", "explain", "--json"]);
    let refused = ["policy", "explain", "write_file", "/etc/x", "--json"];
    output.run(&story, "policy explain TOOL [ARGUMENTS] --json", &refused);
    output.run(&story, "policy check --json", &["policy", "check", "--json"]);
    story.run(["trust", "-q"]);
    output.run(&story, "trust --list --json", &["trust", "--list", "--json"]);
    story.run(["agent", "-m", "x", "--write"]).stdout("Done.\n").error_text();
    story.run(["undo"]).stdout_has("a").error_text();
    output.run(&story, "undo --list --json", &["undo", "--list", "--json"]);
}

fn config_and_models(output: &mut SeenJson) {
    let fallbacks = json!([{ "model": "other", "provider": "custom" }]);
    let story =
        Story::new().set("notKnown", json!(1)).set("agents.defaults.fallbackModels", fallbacks);
    output.run(
        &story,
        "config get [KEY] --json",
        &["config", "get", "agents.defaults.model", "--json"],
    );
    output.run(&story, "config list --json", &["config", "list", "--all", "--json"]);
    output.run(&story, "config check --json", &["config", "check", "--json"]);
    let story = story.file("f.json", "{\"budget\": {\"daily\": 5}}");
    output.run(
        &story,
        "config apply -f FILE --json",
        &["config", "apply", "-f", "f.json", "--json"],
    );
    let story = story.file("f.json", "{\"budget\": {\"daily\": 6}}");
    output.run(
        &story,
        "config apply -f FILE --json",
        &["config", "apply", "-f", "f.json", "--json"],
    );
    output.run(&story, "model list --json", &["model", "list", "--json"]);
    output.run(&story, "model show NAME --json", &["model", "show", "gpt-5", "--json"]);
    let login =
        json!({ "token": "t", "expires": "2026-01-02T04:00:00Z", "renewal": "r", "account": "a" });
    write(&story.home().join(".nanobot/auth/openai-codex.json"), login.to_string().as_bytes());
    let story = story.set("providers.openai", json!({ "apiKey": "${NO_SUCH_VARIABLE}" }));
    output.run(&story, "model provider list --json", &["model", "provider", "list", "--json"]);
    output.run(
        &story,
        "model provider show NAME --json",
        &["model", "provider", "show", "custom", "--json"],
    );
    story.run(["run", "--save", "sum", "-m", "Sum up."]).error_text();
    output.run(&story, "run --list --json", &["run", "--list", "--json"]);
}

fn overview(output: &mut SeenJson) {
    let used = json!({
        "v": 1, "time": "2026-01-01T10:00:00Z", "day": "2026-01-01", "session": "s", "turn": "t", "requests": 2,
        "tools": { "mcp_clock_now": { "count": 3, "failed": 1 } }, "skills": ["tea"], "told": { "": 900, "clock": 40 },
    });
    let call = |day: &str, usd: Value| {
        let entry = json!({
            "v": 1, "time": format!("{day}T10:00:00Z"), "day": day, "session": "cli:direct", "turn": "t", "job": "digest", "cause": "turn",
            "provider": "openai", "model": "gpt-5", "input": 1000, "cached": 400, "cache_write": 0, "output": 50, "reasoning": 10,
            "estimated": false, "usd": usd, "ms": 1200, "outcome": "ok", "day_usd": 0.75, "month_usd": 1.5,
        });
        format!("{entry}\n")
    };
    let story = Story::new();
    write(&story.home().join(".nanobot/tools.jsonl"), format!("{used}\n").as_bytes());
    let ledger = [call("2026-01-01", json!(0.5)), call("2026-01-05", json!(null))].concat();
    write(&story.home().join(".nanobot/usage.jsonl"), ledger.as_bytes());
    for by in ["day", "model", "session", "job"] {
        output.run(&story, "usage --json", &["usage", "--by", by, "--json"]);
    }
    for by in ["tool", "server", "skill"] {
        output.run(&story, "usage --by tool|server|skill --json", &["usage", "--by", by, "--json"]);
    }
    let story = story.script([says("Hi.")]).workspace_file("cron/jobs.json", "{");
    story.run(["agent", "-m", "hello"]).stdout("Hi.\n");
    output.run(&story, "status --json", &["status", "--json"]);
    let story = story.set("agents.defaults.provider", json!("openai"));
    output.run(&story, "status --json", &["status", "--json"]);
    output.run(&story, "status check --json", &["status", "check", "--offline", "--json"]);
}

/// The command lines that print JSON: each command with each of its flags that says so.
fn json_flags(command: &Command, path: &str, lines: &mut Vec<(String, String)>) {
    for arg in command.get_arguments() {
        let Some(long) = arg.get_long() else { continue };
        let takes_json = arg.get_action().takes_values()
            && arg.get_possible_values().iter().any(|value| value.get_name().contains("json"));
        if long == "json" || takes_json {
            lines.push((path.trim().to_owned(), format!("--{long}")));
        }
    }
    for sub in command.get_subcommands() {
        json_flags(sub, &format!("{path} {}", sub.get_name()), lines);
    }
}

/// A new command with such a flag needs a row, and a row needs such a command.
#[test]
fn every_command_with_json_is_described() {
    let mut tree = nanobot::command::tree::command_tree_with_help(HelpLength::Long);
    tree.build();
    let mut lines = Vec::new();
    json_flags(&tree, "", &mut lines);
    assert!(lines.len() > 50, "{lines:?}");
    for (path, flag) in &lines {
        let is_turn = TURNS.contains(&format!("{path} {flag}").as_str());
        let is_row = |row: &JsonShape| {
            let rest = row.name.strip_prefix(path.as_str()).unwrap_or_default();
            let has_flag = rest.split([' ', '=']).any(|word| word == flag);
            // The words behind the command are arguments or flags, not another command.
            has_flag && !rest.trim_start().starts_with(|letter: char| letter.is_lowercase())
        };
        assert!(
            is_turn || COMMANDS.iter().any(is_row),
            "`{path} {flag}` has no row in src/cli/json_table.rs"
        );
    }
    for row in COMMANDS {
        let is_line = |(path, flag): &(String, String)| {
            row.name.starts_with(path.as_str())
                && row.name.split([' ', '=']).any(|word| word == flag)
        };
        assert!(lines.iter().any(is_line), "there is no command `{}`", row.name);
    }
}

#[test]
fn the_schema_is_printed_and_has_no_loose_ends() {
    let json = Story::bare().run(["config", "schema", "--commands"]).json();
    assert_eq!(json, schema());
    let definitions = json["$defs"].as_object().unwrap();
    assert_eq!(definitions.len(), 1 + COMMANDS.len() + OBJECTS.len(), "each has a name of its own");
    let text = json.to_string();
    for (name, _) in definitions {
        let is_used = text.contains(&format!("\"#/$defs/{name}\""));
        assert!(is_used || COMMANDS.iter().any(|row| definition_name(row.name) == *name), "{name}");
    }
    let names = text.split("\"#/$defs/").skip(1).map(|rest| rest.split('"').next().unwrap());
    names.for_each(|name| assert!(definitions.contains_key(name), "{name}"));
}

/// Data commands of a home without any data print nothing or a whole object, and no error as data.
#[test]
fn a_home_without_data_is_valid_json_too() {
    for story in [Story::new(), Story::bare()] {
        for row in COMMANDS
            .iter()
            .filter(|row| row.name.split(' ').all(|word| !word.contains(char::is_uppercase)))
        {
            let command_line = row.name.replace("tool|server|skill", "tool");
            // Nothing is sent or started.
            if ["policy check", "cron heartbeat", "agent "]
                .iter()
                .any(|name| command_line.starts_with(name))
            {
                continue;
            }
            let result = story.run(command_line.split(' '));
            let (status, text) = (result.code(), result.text());
            drop(result.error_text());
            let values = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
            let root = schema();
            for value in values {
                let value = value.unwrap_or_else(|error| panic!("{command_line}: {error}: {text}"));
                let wrong = violations(
                    &root["$defs"][definition_name(row.name)],
                    &value,
                    &root,
                    &command_line,
                );
                assert!(wrong.is_empty(), "{wrong:#?}\n{value:#}");
            }
            assert!([0, 1, 2, 66, 69, 78].contains(&status), "{command_line}: {status}");
        }
    }
}

#[test]
fn a_path_that_is_not_utf8_is_printed_in_json() {
    let name = OsStr::from_bytes(b"w\xffx");
    let story = Story::new().script([says("Hi.")]);
    let workspace = story.dir().join(name);
    write(&workspace.join("skills/tea/SKILL.md"), b"---\ndescription: tea\n---\nBoil.\n");
    write_program(&workspace.join("tides"), "#!/bin/sh\nexit 1\n");
    let run = |arguments: &[&str]| {
        let mut command = story.command(arguments);
        command.arg("--workspace").arg(&workspace);
        let result = story.wait(command.spawn().unwrap());
        assert!([0, 1].contains(&result.code()), "{arguments:?}: {}", result.error_text());
        result.error_text();
        result.text()
    };
    run(&["agent", "-m", "hello"]);
    for arguments in ["memory show", "status", "skill list", "skill show tea", "session list"] {
        let arguments: Vec<&str> = arguments.split(' ').chain(["--json"]).collect();
        let text = run(&arguments);
        assert!(text.contains("w\u{fffd}x"), "{arguments:?}: {text}");
    }
    let mut check = story.command(["tool", "check", "--json"]);
    let child = check.arg(workspace.join("tides")).spawn().unwrap();
    story.wait(child).status(1).stdout_has("w\u{fffd}x");
}
