//! Homes of the measured runs: configs, jobs, MCP servers and old sessions.

use serde_json::{Value, json};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Creates a home with a config that names the server, which answers by `path`.
pub(crate) fn create_home(home: &Path, port: u16, path: &str) -> PathBuf {
    let workspace = home.join(".nanobot/workspace");
    std::fs::create_dir_all(workspace.join("sessions")).unwrap();
    // The server stands for a vendor's, which is not asked for its context window.
    let config = json!({
        "agents": { "defaults": { "contextWindowTokens": 256_000, "model": "m", "provider": "custom" } },
        "providers": { "custom": { "apiKey": "k", "apiBase": format!("http://127.0.0.1:{port}/{path}") } },
    });
    std::fs::write(home.join(".nanobot/config.json"), config.to_string()).unwrap();
    for number in 1..=READS {
        std::fs::write(workspace.join(format!("note{number}.txt")), "a short note\n").unwrap();
    }
    home.to_owned()
}

/// Creates a tree of 100,000 empty files, a hundred in each of its directories.
pub(crate) fn create_large_tree(tree: &Path) -> PathBuf {
    for number in 0..1000 {
        let directory = tree.join((number / 10).to_string()).join((number % 10).to_string());
        std::fs::create_dir_all(&directory).unwrap();
        for file in 0..100 {
            std::fs::File::create(directory.join(file.to_string())).unwrap();
        }
    }
    tree.to_owned()
}

pub(crate) const SERVERS: usize = 5;

/// A minimal MCP server. It records that it was started.
const SERVER: &str = r#"
echo started >> "$1"
reply() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
while read -r line; do
  id=${line#*'"id":'} id=${id%%[,\}]*}
  case $line in
    *'"initialize"'*) reply '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"minimal","version":"1"}}' ;;
    *'"tools/list"'*) reply "$TOOLS" ;;
    *'"tools/call"'*) reply '{"content":[{"type":"text","text":"done"}]}' ;;
  esac
done
"#;

/// Adds MCP servers with five tools each to the config.
pub(crate) fn add_servers(home: &Path) {
    let starts = home.join("starts");
    std::fs::write(&starts, "").unwrap();
    let script = home.join("server.sh");
    std::fs::write(&script, SERVER).unwrap();
    let property = json!({ "type": "string", "description": "The text to work on." });
    let tool = |number: usize| {
        json!({ "name": format!("work{number}"), "description": "Does some of the work.",
                "annotations": { "readOnlyHint": true },
                "inputSchema": { "type": "object", "properties": { "what": property } } })
    };
    let tools = json!({ "tools": (1..=5).map(tool).collect::<Vec<_>>() }).to_string();
    let path = home.join(".nanobot/config.json");
    let mut config: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    for number in 1..=SERVERS {
        config["tools"]["mcpServers"][format!("s{number}")] =
            json!({ "command": "sh", "args": [script, starts], "env": { "TOOLS": tools } });
    }
    std::fs::write(path, config.to_string()).unwrap();
}

/// Maximum calls in a turn that read a file, each of its own.
const READS: usize = 40;

/// The id of the job that is started.
pub(crate) const JOB: &str = "0a1b2c3d";

/// Writes a hundred jobs. The last one has this schedule, and is not due.
pub(crate) fn write_jobs(home: &Path, schedule: &Value) {
    let created_ms = 1_767_322_745_000_i64;
    let job = |number: usize| {
        let (id, schedule) = match number {
            99 => (JOB.to_owned(), schedule.clone()),
            _ => (format!("{number:08x}"), json!({ "kind": "cron", "expr": "0 8 * * 1-5" })),
        };
        json!({
            "id": id, "name": format!("job {number}"), "enabled": true, "schedule": schedule,
            "payload": { "kind": "agent_turn", "message": "What is new?", "deliver": false, "channel": null, "to": null },
            "state": { "nextRunAtMs": null, "lastRunAtMs": null, "lastStatus": null, "lastError": null },
            "createdAtMs": created_ms, "updatedAtMs": created_ms, "deleteAfterRun": false,
        })
    };
    let file = json!({ "version": 1, "jobs": (0..100).map(job).collect::<Vec<_>>() });
    let folder = home.join(".nanobot/workspace/cron");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("jobs.json"), serde_json::to_string_pretty(&file).unwrap()).unwrap();
    for number in 0..100 {
        let folder = home.join(".nanobot/cron").join(job(number)["id"].as_str().unwrap());
        std::fs::create_dir_all(&folder).unwrap();
        // Nothing was missed, however old the file is.
        let now_ms = jiff::Timestamp::now().as_millisecond();
        let options = json!({ "v": 1, "sinceMs": now_ms });
        std::fs::write(folder.join("job.json"), options.to_string()).unwrap();
        let state = json!({ "v": 1, "handledMs": now_ms, "started": null });
        std::fs::write(folder.join("state.json"), state.to_string()).unwrap();
    }
}

/// Adds a Telegram channel without messages to the config.
pub(crate) fn add_channel(home: &Path, port: u16) {
    let path = home.join(".nanobot/config.json");
    let mut config: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    config["channels"]["telegram"] = json!({
        "enabled": true, "token": "123456:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "allowFrom": ["1"],
        "apiBase": format!("http://127.0.0.1:{port}/updates"),
    });
    std::fs::write(path, config.to_string()).unwrap();
}

pub(crate) fn session_path(home: &Path) -> PathBuf {
    home.join(".nanobot/workspace/sessions/cli_direct.jsonl")
}

const TIME: &str = "2026-01-02T03:04:05.000000";

/// A session of `size` messages of about 380 bytes, as the Python program writes it.
pub(crate) fn python_session(size: usize) -> String {
    let mut text = format!(
        "{{\"_type\": \"metadata\", \"key\": null, \"created_at\": \"{TIME}\", \"updated_at\": \"{TIME}\", \
         \"metadata\": {{}}, \"last_consolidated\": {}}}\n",
        size - 50
    );
    let text_part = "lorem ipsum ".repeat(27);
    for number in 0..size {
        let role = if number % 2 == 0 { "user" } else { "assistant" };
        writeln!(
            text,
            "{{\"role\": \"{role}\", \"content\": \"{number} {text_part}\", \"timestamp\": \"{TIME}\"}}"
        )
        .unwrap();
    }
    text
}

/// Writes a session of `size` messages as this program does: in each turn a question, a call, its result, an answer and a closing
/// line. All but the last messages are consolidated.
pub(crate) fn write_session(path: &Path, size: usize) {
    let mut file = BufWriter::new(File::create(path).unwrap());
    let mut length = 0;
    let mut push = |line: &Value| {
        let line = format_line(line);
        file.write_all(line.as_bytes()).unwrap();
        length += line.len();
        length
    };
    let mut end = push(&metadata(0));
    for turn in 0..size / 4 {
        let text = |count| format!("{turn} {}", "lorem ipsum ".repeat(count));
        let id = format!("c{turn}");
        let function = json!({ "name": "read_file", "arguments": "{\"path\":\"note.txt\"}" });
        let call = json!({ "id": id, "type": "function", "function": function });
        for mut line in [
            json!({ "role": "user", "content": text(15), "facts": "[Runtime Context]" }),
            json!({ "role": "assistant", "content": null, "tool_calls": [call] }),
            json!({ "role": "tool", "tool_call_id": id, "name": "read_file", "content": text(40) }),
            json!({ "role": "assistant", "content": text(20) }),
        ] {
            line["timestamp"] = TIME.into();
            line["turn"] = turn.to_string().into();
            if line["role"] != "tool" {
                line["id"] = turn.to_string().into();
            }
            if line["role"] == "assistant" {
                line["model"] = "m".into();
                line["usage"] = json!({ "input": 100, "cached": 0, "output": 5, "reasoning": 0 });
            }
            end = push(&line);
        }
        let count = (turn + 1) * 4;
        end = push(&closing_line(end, count, count.saturating_sub(52)));
    }
    file.into_inner().expect("all of it can be written");
}

/// Appends another closing line to a session of `size` messages.
pub(crate) fn close_session(path: &Path, size: usize, consolidated: usize) {
    let mut file = File::options().append(true).open(path).unwrap();
    let length = file.metadata().unwrap().len();
    let line = format_line(&closing_line(length.try_into().unwrap(), size, consolidated));
    file.write_all(line.as_bytes()).unwrap();
}

/// Formats a line with the separators of the program's own lines.
fn format_line(line: &Value) -> String {
    line.to_string().replace("\":", "\": ").replace(",\"", ", \"") + "\n"
}

fn closing_line(position: usize, messages: usize, consolidated: usize) -> Value {
    let mut line = metadata(consolidated);
    line["turn"] = "t".into();
    line["messages"] = messages.into();
    line["at"] = position.into();
    line["ending"] = "answered".into();
    line
}

fn metadata(consolidated: usize) -> Value {
    json!({ "_type": "metadata", "key": "cli:direct", "created_at": TIME, "updated_at": TIME, "metadata": {},
            "last_consolidated": consolidated })
}
