//! `nanobot session`: listing, showing, searching, repairing, exporting and removing sessions.

use crate::server::{calls, says};
use crate::story::{RunResult, Story, write};
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, SystemTime};

#[test]
fn an_empty_output_is_explained_on_a_terminal_only() {
    let story = Story::new();
    for (command, phrase, status) in [
        (&["session", "list"][..], "no session is stored", 0),
        (&["memory", "show"], "the memory is empty", 0),
        (&["memory", "search", "x"], "nothing in the memory", 1),
        (&["cron", "heartbeat"], "has no tasks", 0),
    ] {
        story.run(command).status(status).stdout("");
        let mut screen = story.screen(24, 100).args(command);
        assert_eq!(screen.code(), status, "{command:?}");
        let screen_text = screen.text_with_scrollback();
        assert!(screen_text.contains(phrase), "{command:?}: {screen_text}");
    }
}

/// A session file in the format of the Python program: a metadata line and messages.
pub(crate) fn session_text(key: &str, messages: &[(&str, &str)]) -> String {
    let first = json!({
        "_type": "metadata", "key": key, "created_at": "2025-11-01T10:00:00.000000",
        "updated_at": "2025-11-01T10:00:00.000000", "metadata": {}, "last_consolidated": 0,
    });
    let line = |(role, text): &(&str, &str)| json!({ "role": role, "content": text, "timestamp": "2025-11-01T10:00:00.000000" });
    let lines = std::iter::once(first).chain(messages.iter().map(line));
    lines.map(|line| format!("{line}\n")).collect()
}

/// The stories' time minus this many days.
fn days_ago(days: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_767_323_045 - days * 86_400)
}

/// Sets the modification time of a file.
pub(crate) fn set_age(path: &Path, days: u64) {
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.set_modified(days_ago(days)).unwrap();
}

/// A closing line as written by this program; `before` is the content so far.
fn closing_line(key: &str, before: &str, messages: usize, metadata: &Value) -> String {
    let line = json!({
        "_type": "metadata", "key": key, "created_at": "2025-11-01T10:00:00.000000",
        "updated_at": "2025-12-23T03:04:05.000000", "metadata": { "nanobot": metadata }, "last_consolidated": 0,
        "turn": "t", "messages": messages, "at": before.len(), "ending": "answered",
    });
    format!("{line}\n")
}

fn closed_session_text(key: &str, messages: &[(&str, &str)], metadata: &Value) -> String {
    let text = session_text(key, messages);
    let last = closing_line(key, &text, messages.len(), metadata);
    text + &last
}

/// Three sessions of different ages and sizes.
fn story_with_three_sessions() -> Story {
    let stats = json!({ "stats": {
        "turns": 2, "steps": 5, "in": 1000, "out": 200, "agreed": 4, "succeeded": 3, "failed": 1, "rejected": 2,
        "context": 700, "speed": 41.6, "cost": 0.25,
    }});
    let story = Story::bare()
        .workspace_file(
            "sessions/work_1.jsonl",
            closed_session_text(
                "work:1",
                &[("user", "plan  the\nweek"), ("assistant", "Done.")],
                &stats,
            ),
        )
        .workspace_file(
            "sessions/cli_direct.jsonl",
            session_text("cli:direct", &[("user", "hello"), ("assistant", "Hi."), ("user", "bye")]),
        )
        .workspace_file("sessions/empty.jsonl", session_text("empty", &[]));
    set_age(&story.workspace().join("sessions/cli_direct.jsonl"), 3);
    set_age(&story.workspace().join("sessions/empty.jsonl"), 800);
    story
}

fn listed_keys(result: &RunResult<'_>) -> Vec<String> {
    let name = |line: &Value| line["key"].as_str().unwrap().to_owned();
    result.json_lines().iter().map(name).collect()
}

#[test]
fn list_describes_each_session() {
    story_with_three_sessions().run(["session", "list"]).stdout(
        "SESSION     AGE  MESSAGES  TOKENS     COST  TITLE\n\
         cli:direct   3d         3                   hello\n\
         work:1      10d         2    1200  $0.2500  plan the week\n\
         empty        2y         0\n",
    );
    Story::bare().run(["session", "list"]).stdout("");
}

#[test]
fn list_leaves_the_sessions_of_filters_out() {
    let story = Story::bare()
        .workspace_file("sessions/pipe_1.jsonl", session_text("pipe:1", &[("user", "sum up")]))
        .workspace_file("sessions/work.jsonl", session_text("work", &[("user", "hello")]));
    let list = |arguments: &[&str]| {
        let listed = story.run(["session", "list"].iter().chain(arguments)).text();
        (listed.contains("work"), listed.contains("pipe:1"))
    };
    assert_eq!(list(&[]), (true, false));
    assert_eq!(list(&["--all"]), (true, true));
    assert_eq!(list(&["pipe"]), (false, true));
    assert_eq!(list(&["--json"]), (true, true));
}

#[test]
fn list_can_be_sorted_and_filtered() {
    let story = story_with_three_sessions();
    let list = |arguments: &[&str]| {
        let all = ["session", "list", "--json"].iter().chain(arguments);
        listed_keys(&story.run(all.copied()))
    };
    assert_eq!(list(&[]), ["cli:direct", "work:1", "empty"]);
    assert_eq!(list(&["--sort", "oldest"]), ["empty", "work:1", "cli:direct"]);
    assert_eq!(list(&["--sort", "messages"]), ["cli:direct", "work:1", "empty"]);
    assert_eq!(list(&["--sort", "tokens", "-n", "1"]), ["work:1"]);
    assert_eq!(list(&["--sort", "cost", "-n", "1"]), ["work:1"]);
    assert_eq!(list(&["--sort", "key"]), ["cli:direct", "empty", "work:1"]);
    assert_eq!(list(&["--since", "7d"]), ["cli:direct"]);
    assert_eq!(list(&["--since", "2025-12-01"]), ["cli:direct", "work:1"]);
    assert_eq!(list(&["direct"]), ["cli:direct"]);
    assert_eq!(list(&["*:*", "-n", "5"]), ["cli:direct", "work:1"]);
    assert!(list(&["w"]) == ["work:1"] && list(&["w?"]).is_empty());
}

#[test]
fn list_as_json_has_exact_numbers() {
    let story = story_with_three_sessions();
    let line = story.run(["session", "list", "work", "--json"]).json();
    assert_eq!(line["messages"], 2);
    assert_eq!(line["used"], "2025-12-23T03:04:05Z");
    assert_eq!(line["first_words"], "plan the week");
    assert_eq!(line["statistics"]["cost_usd"], 0.25);
    assert_eq!(line["statistics"]["calls"]["rejected"], 2);
    let path = Path::new(line["path"].as_str().unwrap()).file_name();
    assert_eq!(path.unwrap(), "work_1.jsonl");
    let other = story.run(["session", "list", "direct", "--json"]).json();
    assert_eq!(other["statistics"], Value::Null);
}

#[test]
fn an_unreadable_file_does_not_hide_others() {
    let story = story_with_three_sessions();
    let path = story.workspace().join("sessions");
    std::os::unix::fs::symlink("loop.jsonl", path.join("loop.jsonl")).unwrap();
    std::fs::create_dir(path.join("folder.jsonl")).unwrap();
    let pipe = story.program("mkfifo").arg(path.join("pipe.jsonl")).status();
    assert!(pipe.unwrap().success());
    let result = story.run(["session", "list", "--json"]).status(74);
    assert_eq!(listed_keys(&result), ["cli:direct", "work:1", "empty"]);
    let stderr = result.error_text();
    assert!(stderr.contains("loop.jsonl") && stderr.lines().count() == 1, "{stderr}");
}

#[test]
fn show_prints_messages_and_totals() {
    let story = Story::new()
        .file("a", "x\ny\n")
        .script([calls("read_file", json!({ "path": "a" })), says("Read.")]);
    story.run(["agent", "-m", "look"]).stdout("Read.\n");
    let stdout = story.run(["session", "show"]).text();
    let (head, messages) = stdout.split_at(stdout.find("\n>").unwrap());
    assert!(head.lines().all(|line| line.starts_with("# ")), "{head}");
    assert!(head.contains("\n# messages 4, "), "{head}");
    assert_eq!(
        messages,
        "\n> 1 user, 2026-01-02 03:04\nlook\n\
         \n> 2 nanobot, 2026-01-02 03:04\n  ↳ read_file {\"path\":\"a\"} = 1| x (2 lines)\n\
         \n> 4 nanobot, 2026-01-02 03:04\nRead.\n"
    );
    let full = story.run(["session", "show", "--full"]).text();
    assert!(full.contains("\n  = 3 read_file\n    1| x\n    2| y\n"), "{full}");
    let last = story.run(["session", "show", "-n", "1"]).text();
    assert!(last.contains("> 4 nanobot") && !last.contains("look"), "{last}");
    let lines = story.run(["session", "show", "--json", "-n", "2"]).json_lines();
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[0]["number"], 3);
    assert_eq!(lines[1]["time"], "2026-01-02T03:04:05Z");
    assert_eq!(lines[1]["turn"], lines[0]["turn"]);
}

#[test]
fn show_prints_statistics_above_the_messages() {
    let stdout = story_with_three_sessions().run(["session", "show", "work:1", "-n", "0"]).text();
    let expect = "# turns 2, steps 5, tokens in 1000, out 200 at 42 a second, context 700, cost $0.2500\n\
                  # tool calls agreed 4, succeeded 3, failed 1, rejected 2\n";
    assert!(stdout.contains(expect), "{stdout}");
}

#[test]
fn unpaired_calls_and_results_are_shown() {
    let call = |id: &str| json!({ "id": id, "type": "function", "function": { "name": "exec", "arguments": "{}" } });
    let lines = [
        json!({ "role": "tool", "tool_call_id": "z", "name": "exec", "content": "orphan" }),
        json!({ "role": "assistant", "content": null, "tool_calls": [call("a"), call("b")] }),
        json!({ "role": "tool", "tool_call_id": "b", "name": "exec", "content": "", "failed": true }),
    ];
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let story = Story::bare().workspace_file("sessions/a.jsonl", text + "{\"role\": \"us\n");
    let result = story.run(["session", "show", "a"]);
    let stdout = result.text();
    assert!(stdout.contains("  ↳ exec (no matching call) = orphan\n"), "{stdout}");
    assert!(stdout.contains("  ↳ exec {} (no result)\n  ↳ exec {} ✗ (nothing)\n"), "{stdout}");
    result.stderr_has("cannot be read");
}

/// The last turn of a session may be interrupted, or still run.
#[test]
fn the_last_messages_of_a_session_without_a_closing_line_are_shown() {
    let messages = [("user", "one"), ("assistant", "two"), ("user", "three")];
    let story = Story::bare().workspace_file("sessions/k.jsonl", session_text("k", &messages));
    let stdout = story.run(["session", "show", "k", "--last", "2"]).text();
    assert!(
        stdout.contains("two") && stdout.contains("three") && !stdout.contains("one\n"),
        "{stdout}"
    );
}

#[test]
fn raw_prints_the_file_byte_for_byte() {
    let bytes = b"{\"_type\": \"metadata\"}\n\xff\x1b[31m odd \x00\r\n{\"torn".to_vec();
    let story = Story::bare().workspace_file("sessions/a.jsonl", &bytes);
    assert_eq!(story.run(["session", "show", "a", "--raw"]).bytes(), bytes);
}

#[test]
fn a_closed_pipe_is_not_a_failure() {
    let messages = vec![("user", "many words ".repeat(100)); 200];
    let messages: Vec<(&str, &str)> =
        messages.iter().map(|(role, text)| (*role, text.as_str())).collect();
    let story = Story::bare().workspace_file("sessions/a.jsonl", session_text("a", &messages));
    for how in ["show a", "show a --raw", "show a --json"] {
        let mut shell = story.program("/bin/sh");
        let line =
            format!("{{ {} session {how}; echo $? >&2; }} | head -c 10", crate::story::NANOBOT);
        shell.args(["-c", &line]);
        let result = story.wait(shell.spawn().unwrap()).stderr("0\n");
        assert_eq!(result.bytes().len(), 10);
    }
}

#[test]
fn an_unknown_key_suggests_a_similar_one() {
    let story = story_with_three_sessions();
    story.run(["session", "show", "direct"]).status(66).stderr_has("`cli:direct`");
    story.run(["session", "show", "wrok:1"]).status(66).stderr_has("`work:1`");
    story
        .run(["session", "show", "zzz"])
        .status(66)
        .stderr("nanobot: there is no session `zzz`\n  try: nanobot session list\n");
    // A manual copy has the key of the original, and another file name.
    let text = std::fs::read_to_string(story.workspace().join("sessions/work_1.jsonl")).unwrap();
    let story = Story::new().workspace_file("sessions/copy.jsonl", text);
    let result = story.run(["session", "show", "work:1"]).status(66);
    result.stderr(
        "nanobot: there is no session `work:1`\n  try: nanobot session repair --all --dry-run\n",
    );
}

#[test]
fn sessions_of_every_release_are_listed_and_shown() {
    let id = "0123456789abcdef0123456789abcdef";
    let story = Story::bare();
    let root = story.home().join(".nanobot/sessions");
    let store = root.join(id);
    write(&story.workspace().join(".nanobot/workspace-id"), id.as_bytes());
    let workspace = story.workspace();
    write(&store.join(".workspace"), workspace.to_str().unwrap().as_bytes());
    // The oldest release stored no keys in files; the newest encodes them in file names.
    write(
        &root.join("cli_old.jsonl"),
        b"{\"_type\": \"metadata\"}\n{\"role\": \"user\", \"content\": \"caf\\u00e9\"}\n",
    );
    write(
        &workspace.join("sessions/cli_mid.jsonl"),
        session_text("cli:mid", &[("user", "two")]).as_bytes(),
    );
    write(
        &store.join("Y2xpOm5ldw.jsonl"),
        session_text("cli:new", &[("user", "three")]).as_bytes(),
    );
    // An older copy of a session in use.
    write(&root.join("cli_new.jsonl"), session_text("cli:new", &[("user", "stale")]).as_bytes());
    let listed = story.run(["session", "list", "--json", "--sort", "key"]);
    assert_eq!(listed_keys(&listed), ["cli:mid", "cli:new", "cli:old"]);
    for (key, expect) in [("cli:old", "café"), ("cli:mid", "two"), ("cli:new", "three")] {
        story.run(["session", "show", key]).stdout_has(expect);
    }
}

/// Needles in every searched field, at different times.
fn story_with_needles() -> Story {
    let tool = json!({ "role": "tool", "tool_call_id": "c", "name": "exec", "content": "one\ntwo needles\nthree\n", "timestamp": "2025-12-01T09:30:00.000000" });
    let old = "{\"_type\": \"metadata\"}\n{\"role\": \"user\", \"content\": \"caf\\u00e9 \\\"needle\\\"\", \"needle\": 1}\n";
    let story = Story::bare()
        .workspace_file("sessions/new.jsonl", session_text("new", &[("user", "a needle"), ("assistant", "none")]) + &format!("{tool}\n"))
        .workspace_file("sessions/cli_old.jsonl", old)
        .workspace_file("memory/HISTORY.md", "[2025-01-01 10:00] first\n\n[2025-02-01 10:00] a Needle\n")
        .workspace_file("memory/history.jsonl", "{\"cursor\": 1, \"timestamp\": \"2025-03-01 10:00\", \"content\": \"needles, too\"}\nodd\n");
    set_age(&story.workspace().join("sessions/new.jsonl"), 1);
    set_age(&story.workspace().join("sessions/cli_old.jsonl"), 9);
    story
}

#[test]
fn search_finds_text_in_any_message() {
    let story = story_with_needles();
    story.run(["session", "search", "needle"]).stdout(
        "new:1 2025-11-01 10:00 user: a needle\n\
         new:3 2025-12-01 09:30 tool: two needles\n\
         cli:old:1 user: café \"needle\"\n\
         memory/history.jsonl:1 2025-03-01 10:00: needles, too\n",
    );
    story.run(["session", "search", "-i", "a NEEDLE$"]).stdout(
        "new:1 2025-11-01 10:00 user: a needle\nmemory/HISTORY.md:3: [2025-02-01 10:00] a Needle\n",
    );
    story.run(["session", "search", "needle", "-l"]).stdout("new\ncli:old\nmemory/history.jsonl\n");
    story
        .run(["session", "search", "two", "-C", "1", "-s", "new"])
        .stdout("new-3 2025-12-01 09:30 tool- one\nnew:3 2025-12-01 09:30 tool: two needles\nnew-3 2025-12-01 09:30 tool- three\n");
    // Characters that older releases escaped, and file syntax that is not text.
    story
        .run(["session", "search", "-F", "é \"n", "-s", "cli:old"])
        .stdout("cli:old:1 user: café \"needle\"\n");
    story.run(["session", "search", "tool_call_id"]).status(1);
}

#[test]
fn search_as_json_has_positions() {
    let story = story_with_needles();
    let lines = story.run(["session", "search", "two", "--json", "-C", "1"]).json_lines();
    let expect = json!({
        "v": 1, "session": "new", "number": 3, "time": "2025-12-01T09:30:00Z", "role": "tool", "line": "two needles",
        "start": 0, "end": 3, "before": ["one"], "after": ["three"],
    });
    assert_eq!(lines, [expect]);
}

#[test]
fn search_exits_like_grep() {
    let story = story_with_needles();
    story.run(["session", "search", "nothing of the kind"]).status(1);
    story
        .run(["session", "search", "a(b"])
        .status(2)
        .stderr("nanobot: `a(b` is not a valid regular expression: unclosed group\n  try: `-F` to search for literal text\n");
    story
        .run(["session", "search", "x", "-s", "nwe"])
        .status(66)
        .stderr_has("there is no session `nwe`");
    std::os::unix::fs::symlink("loop.jsonl", story.workspace().join("sessions/loop.jsonl"))
        .unwrap();
    story
        .run(["session", "search", "two", "-l"])
        .status(74)
        .stdout("new\n")
        .stderr_has("loop.jsonl");
}

#[test]
fn message_numbers_do_not_depend_on_the_file_size() {
    // Several blocks, with lines of many lengths across block borders, and invalid lines among them.
    let filler = "x".repeat(700_000);
    let mut text = session_text("big", &[]);
    for number in 1..40 {
        let long = &filler[..number * 17_000];
        text.push_str(&format!("{{\"role\": \"user\", \"content\": \"word{number}. {long}\"}}\n"));
        if number % 5 == 0 {
            text.push_str(
                "{\"role\": \"user\", \"cont{\"role\": \"user\", \"content\": \"torn\"}\n\n[]\n",
            );
        }
    }
    let story = Story::bare().workspace_file("sessions/big.jsonl", text);
    let lines = story.run(["session", "search", "word[0-9]+", "--json"]).json_lines();
    assert_eq!(lines.len(), 39);
    for (at, line) in lines.iter().enumerate() {
        assert_eq!(line["number"], at + 1);
        assert!(line["line"].as_str().unwrap().starts_with(&format!("word{}.", at + 1)));
    }
}

/// Holds the lock of a session until the story ends.
fn lock_session(story: &Story, name: &str) -> std::fs::File {
    let path = story.workspace().join(format!("sessions/{name}.jsonl.lock"));
    let file = std::fs::File::options().create(true).append(true).open(path).unwrap();
    file.lock().unwrap();
    file
}

fn session_file_text(story: &Story, name: &str) -> String {
    std::fs::read_to_string(story.workspace().join("sessions").join(name)).unwrap()
}

#[test]
fn a_suggested_command_quotes_the_key() {
    let story = story_with_three_sessions();
    story.run(["session", "rename", "empty", "my talk"]);
    story.run(["session", "rm", "my talk"]).stderr(
        "nanobot: moved `my talk` to the trash; `nanobot session restore 'my talk'` restores it\n",
    );
}

#[test]
fn a_removed_session_can_be_restored() {
    let story = story_with_three_sessions();
    let before = session_file_text(&story, "work_1.jsonl");
    write(&story.workspace().join("sessions/work_1.jsonl.torn-1"), b"{\"ro");
    story
        .run(["session", "rm", "work:1", "empty"])
        .stderr_has("`nanobot session restore work:1` restores it");
    story.run(["session", "show", "work:1"]).status(66).stderr_has("work:1");
    let trash = story.workspace().join("sessions/.trash");
    let names = |dir: &Path| -> Vec<String> {
        let entries = std::fs::read_dir(dir).unwrap();
        let name = |entry: std::io::Result<std::fs::DirEntry>| {
            entry.unwrap().file_name().into_string().unwrap()
        };
        let mut names: Vec<String> = entries.map(name).collect();
        names.sort();
        names
    };
    // No release may take the files in there for sessions.
    assert!(names(&trash).iter().all(|name| name.ends_with(".gone")), "{:?}", names(&trash));
    story.run(["session", "restore"]).stdout("2026-01-02 03:04  empty\n2026-01-02 03:04  work:1\n");
    story.run(["session", "restore", "work:1"]).stderr("nanobot: restored session `work:1`\n");
    assert_eq!(session_file_text(&story, "work_1.jsonl"), before);
    assert_eq!(session_file_text(&story, "work_1.jsonl.torn-1"), "{\"ro");
    story.run(["session", "restore", "work:1"]).status(66).stderr_has("in the trash");
    // A second session of the same name at the same time; the one removed last is restored.
    story.run(["session", "rm", "work:1", "-q"]).stderr("");
    write(
        &story.workspace().join("sessions/work_1.jsonl"),
        session_text("work:1", &[("user", "again")]).as_bytes(),
    );
    story.run(["session", "rm", "work:1", "-q"]).stderr("");
    story.run(["session", "restore", "work:1", "-q"]).stderr("");
    story.run(["session", "show", "work:1"]).stdout_has("again");
    story
        .run(["session", "restore", "work:1"])
        .status(2)
        .stderr_has("session `work:1` already exists");
    story.run(["session", "rm", "--for-good", "work:1"]).stderr("");
    story.run(["session", "restore"]).stdout("2026-01-02 03:04  empty\n");
    assert_eq!(names(&story.workspace().join("sessions")), [".trash", "cli_direct.jsonl"]);
}

/// A title replaces the first words in lists. It survives turns, and does not hide that a turn was interrupted.
#[test]
fn a_session_has_a_title() {
    let story = story_with_three_sessions();
    let title = |key: &str, text: &[&str]| story.run([&["session", "title", key], text].concat());
    title("work:1", &[]).stdout("");
    title("work:1", &["Plans of\u{1b}[2J 2026 "]).stdout("");
    title("work:1", &[]).stdout("Plans of\\u{1b}[2J 2026\n");
    let listed = |key: &str| story.run(["session", "list", key, "--json"]).json();
    assert_eq!(listed("work:1")["title"], "Plans of\u{1b}[2J 2026");
    assert_eq!(listed("work:1")["first_words"], "plan the week");
    assert_eq!(listed("cli:direct")["title"], Value::Null);
    assert_eq!(listed("work:1")["statistics"]["turns"], 2);
    title("work:1", &["Plans"]).stdout("");
    story.run(["session", "list", "work:1"]).stdout_has("$0.2500  Plans\n");
    story.run(["session", "show", "work:1"]).stdout_has("\n# Plans\n");
    title("work:1", &[""]).stdout("");
    title("work:1", &[]).stdout("");
    title("none", &["x"]).status(66).stderr_has("none");
    // The title of a newer Python release is read.
    let python_text = session_text("web:1", &[("user", "hi")]);
    let python_text =
        python_text.replacen("\"metadata\":{}", "\"metadata\":{\"title\":\"Greeting\"}", 1);
    write(&story.workspace().join("sessions/web_1.jsonl"), python_text.as_bytes());
    title("web:1", &[]).stdout("Greeting\n");
    title("web:1", &["Mine"]).stdout("");
    title("web:1", &[]).stdout("Mine\n");
}

/// The origin of a session counts as complete only if its last turn has ended. A title is no end.
#[test]
fn a_title_does_not_end_an_interrupted_turn() {
    let metadata = json!({ "origin": { "level": "user" } });
    let text = closed_session_text("work:1", &[("user", "a"), ("assistant", "b")], &metadata);
    let text = text
        + &json!({ "role": "user", "content": "read" }).to_string()
        + "\n"
        + &json!({ "role": "assistant", "content": null, "tool_calls": [{ "id": "c", "type": "function",
            "function": { "name": "web_fetch", "arguments": "{\"url\": \"https://x.org\"}" } }] }).to_string()
        + "\n"
        + &json!({ "role": "tool", "tool_call_id": "c", "name": "web_fetch", "content": "page" }).to_string()
        + "\n";
    let story = Story::new().workspace_file("sessions/work_1.jsonl", text).script([says("ok")]);
    story.run(["session", "title", "work:1", "x"]).stdout("");
    story.run(["agent", "-s", "work:1", "-m", "x"]).stdout("ok\n").stderr_has("got no answer");
    story.run(["policy", "explain", "--session", "work:1"]).stdout_has("origin      external");
}

#[test]
fn a_session_in_use_is_not_removed() {
    let story = story_with_three_sessions();
    let lock = lock_session(&story, "work_1");
    story
        .run(["session", "rm", "work:1"])
        .status(75)
        .stderr("nanobot: session `work:1` is in use\n  try: again later\n");
    story.run(["session", "rename", "work:1", "x"]).status(75).stderr_has("in use");
    story.run(["session", "repair", "work:1"]).status(75).stderr_has("in use");
    story
        .run(["session", "prune", "--older-than", "1d", "--yes", "work"])
        .stdout_has("work:1")
        .stderr_has("kept `work:1`: session `work:1` is in use");
    drop(lock);
    assert!(story.workspace().join("sessions/work_1.jsonl").exists());
}

#[test]
fn prune_removes_old_sessions_after_confirmation() {
    let story = story_with_three_sessions();
    // A pattern alone does not imply an age.
    story.run(["session", "prune", "cli*", "--yes"]).status(2).stderr_has("--older-than");
    story.run(["session", "prune"]).status(2).stderr_has("--older-than");
    story
        .run(["session", "prune", "--older-than", "5"])
        .status(2)
        .stderr_has("as `30m`, `12h`, `30d`, `8w`");
    story
        .run(["session", "remove", "cli*"])
        .status(66)
        .stderr_has("try: nanobot session prune 'cli*' --older-than 0d");
    let stdout = story.run(["session", "prune", "--older-than", "1w", "--dry-run"]).text();
    assert!(
        stdout.contains("work:1") && stdout.contains("empty") && !stdout.contains("cli:direct"),
        "{stdout}"
    );
    story
        .run(["session", "prune", "--older-than", "1w"])
        .status(2)
        .stdout(&stdout)
        .stderr_has("`--yes`");
    story
        .run(["session", "prune", "--older-than", "1w", "--empty", "--yes"])
        .stdout_has("empty")
        .stderr_has("moved to the trash: 1");
    assert_eq!(listed_keys(&story.run(["session", "list", "--json"])), ["cli:direct", "work:1"]);
    story.run(["session", "prune", "--older-than", "1w", "--yes", "cli*"]).stdout("");
    story.run(["session", "restore"]).stdout("2026-01-02 03:04  empty\n");
    // A month later it is deleted from the trash.
    let story = story.env("NANOBOT_TEST_TIME", "2026-02-02T03:04:06Z");
    story
        .run(["session", "prune", "--empty"])
        .stderr("nanobot: removed from the trash after 30d: 1\n");
    story.run(["session", "restore"]).stdout("");
}

#[test]
fn a_fork_is_independent() {
    let story = Story::new().script([says("1"), says("2"), says("3"), says("4")]);
    story.run(["agent", "-m", "one"]).stdout("1\n");
    story.run(["agent", "-m", "two"]).stdout("2\n");
    let before = session_file_text(&story, "cli_direct.jsonl");
    story
        .run(["session", "fork", "cli:direct", "other:way", "--at", "2"])
        .stderr("nanobot: copied to `other:way`: 2 messages\n");
    story.run(["session", "fork", "cli:direct", "whole", "-q"]).stderr("");
    assert_eq!(session_file_text(&story, "cli_direct.jsonl"), before);
    let copied = session_file_text(&story, "other_way.jsonl");
    let lines: Vec<&str> = copied.lines().collect();
    let original: Vec<&str> = before.lines().collect();
    assert_eq!(lines[1..3], original[1..3]);
    assert_eq!(lines.len(), 4);
    let forks = story.run(["session", "list", "--json", "whole"]).json_lines();
    assert_eq!(forks[0]["fork_of"], "cli:direct");
    assert_eq!(forks[0]["created"], "2026-01-02T03:04:05Z");
    story.run(["session", "list", "whole"]).stdout_has("fork of cli:direct: one");
    story.run(["session", "title", "whole", "Tea"]).text();
    let titled = story.run(["session", "list", "whole"]).text();
    assert!(titled.contains(" Tea") && !titled.contains("fork of"), "{titled}");
    story.run(["agent", "-m", "again", "-s", "other:way"]).stdout("3\n");
    assert_eq!(story.requests()[2].messages().len(), 4);
    story.run(["agent", "-m", "more", "-s", "whole"]).stdout("4\n");
    assert_eq!(story.requests()[3].messages().len(), 6);
    // The copy was trusted: nothing was recounted or reported.
    story.run(["session", "repair", "--all"]).stderr("nanobot: sessions checked: 3, ok: 3\n");
    story
        .run(["session", "fork", "cli:direct", "whole"])
        .status(2)
        .stderr_has("session `whole` already exists");
    story
        .run(["session", "fork", "cli:direct", "x", "--at", "9"])
        .status(2)
        .stderr_has("has 4 messages");
    story.run(["session", "fork", "gone", "x"]).status(66).stderr_has("gone");
    assert!(!story.workspace().join("sessions/x.jsonl").exists());
}

#[test]
fn a_fork_resets_statistics_and_pointers() {
    let metadata = json!({ "stats": { "turns": 9, "steps": 9 }, "left": [[0, 1], [2, 3]], "aged": 3, "later": "x" });
    let messages = [("user", "a"), ("assistant", "b"), ("user", "c")];
    let before = closed_session_text("a", &messages, &metadata)
        .replace("\"last_consolidated\":0", "\"last_consolidated\":2");
    let story = Story::bare().workspace_file("sessions/a.jsonl", before);
    story.run(["session", "fork", "a", "b", "--at", "1", "-q"]).stderr("");
    let last = story.session("b.jsonl").pop().unwrap();
    assert_eq!(last["metadata"]["nanobot"], json!({ "fork_of": "a", "aged": 1, "later": "x" }));
    assert_eq!((&last["last_consolidated"], &last["messages"]), (&json!(0), &json!(1)));
}

#[test]
fn rename_changes_the_key_and_preserves_the_content() {
    let story = Story::new().script([says("1"), says("2")]);
    story.run(["agent", "-m", "one", "-s", "old:key"]).stdout("1\n");
    let path = story.workspace().join("sessions/old_key.jsonl");
    let mut before = std::fs::read_to_string(&path).unwrap();
    before.push_str("odd\n{\"role\": \"us");
    write(&path, before.as_bytes());
    story.run(["session", "rename", "old:key", "a/new one"]).stderr("");
    assert!(!path.exists() && !path.with_extension("jsonl.lock").exists());
    let after = session_file_text(&story, "a_new one.jsonl");
    let (first, rest) = after.split_once('\n').unwrap();
    assert!(first.contains("\"key\": \"a/new one\""), "{first}");
    let whole = before.strip_suffix("{\"role\": \"us").unwrap();
    assert!(rest.starts_with(whole.split_once('\n').unwrap().1), "{rest}");
    let names: Vec<String> = std::fs::read_dir(path.parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(names.iter().any(|name| name.starts_with("a_new one.jsonl.torn-")), "{names:?}");
    let result = story.run(["agent", "-m", "two", "-s", "a/new one"]).stdout("2\n");
    result.error_text();
    assert_eq!(story.requests()[1].messages().len(), 4);
    story.run(["session", "show", "old:key"]).status(66).stderr_has("old:key");
    write(&path, session_text("old:key", &[]).as_bytes());
    story
        .run(["session", "rename", "a/new one", "old:key"])
        .status(2)
        .stderr_has("session `old:key` already exists");
}

#[test]
fn rename_works_in_the_directory_of_each_release() {
    let id = "0123456789abcdef0123456789abcdef";
    let story = Story::bare();
    let workspace = story.workspace();
    let root = story.home().join(".nanobot/sessions");
    let bare = b"{\"_type\": \"metadata\"}\n{\"role\": \"user\", \"content\": \"x\"}\n";
    write(&root.join("cli_a.jsonl"), bare);
    write(
        &workspace.join("sessions/cli_b.jsonl"),
        session_text("cli:b", &[("user", "x")]).as_bytes(),
    );
    story.run(["session", "rename", "cli:a", "to:a"]).stderr("");
    assert!(root.join("to_a.jsonl").exists());
    // A name that the workspace already uses for another key.
    story.run(["session", "rename", "to:a", "cli_b"]).stderr("");
    assert!(workspace.join("sessions/Y2xpX2I.jsonl").exists());
    story.run(["session", "rename", "cli_b", "to:a"]).stderr("");
    write(&root.join("to_a.jsonl"), bare);
    story.run(["session", "rename", "to:a", "to:c"]).stderr(
        "nanobot: an older session `to:a` is visible again, in `~/.nanobot/sessions/to_a.jsonl`\n",
    );
    let store = root.join(id);
    write(&workspace.join(".nanobot/workspace-id"), id.as_bytes());
    write(&store.join(".workspace"), workspace.to_str().unwrap().as_bytes());
    write(
        &store.join("Y2xpOm5ldw.jsonl"),
        session_text("cli:new", &[("user", "three")]).as_bytes(),
    );
    story.run(["session", "rename", "cli:new", "to:n"]).stderr("");
    assert!(store.join("dG86bg.jsonl").exists());
    story.run(["session", "rename", "to:c", "to:d"]).stderr("");
    story.run(["session", "rename", "to:a", "to:e"]).stderr("");
    let listed = story.run(["session", "list", "--json", "--sort", "key"]);
    assert_eq!(listed_keys(&listed), ["cli:b", "to:d", "to:e", "to:n"]);
    for key in ["cli:b", "to:d", "to:e", "to:n"] {
        story.run(["session", "show", key]).stdout_has("user");
    }
}

#[test]
fn repair_reports_and_fixes_without_changing_messages() {
    let call =
        json!({ "id": "a", "type": "function", "function": { "name": "exec", "arguments": "{}" } });
    let odd = [
        json!({ "role": "user", "content": "x" }).to_string(),
        "what is this".to_owned(),
        json!({ "role": "tool", "tool_call_id": "z", "name": "exec", "content": "orphan" })
            .to_string(),
        json!({ "role": "assistant", "content": null, "tool_calls": [call] }).to_string(),
    ];
    let mut before = session_text("a", &[]) + &odd.join("\n") + "\n";
    let bad = before.find("what is this").unwrap();
    let last = closing_line("a", &before, 7, &json!({ "aged": 5 }));
    before.push_str(&last.replace("\"last_consolidated\":0", "\"last_consolidated\":9"));
    let torn = before.len();
    let story =
        Story::bare().workspace_file("sessions/a.jsonl", format!("{before}{{\"role\": \"us"));
    let path = story.workspace().join("sessions/a.jsonl");
    let mode = |mode: u32| {
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode))
            .unwrap();
    };
    mode(0o644);
    let expect = format!(
        "a: the last line is incomplete (12 bytes at byte {torn}); would be moved to a side file\n\
         a: unreadable line at byte {bad}; not repaired: it stays, and is skipped\n\
         a: tool result without its call: message 2; not sent\n\
         a: tool call without its result: message 3; sent as interrupted\n\
         a: the closing line counts 7 messages, but there are 3; would be recounted\n\
         a: 9 of 3 messages are marked as consolidated; would be reset to 0, so that all are sent\n\
         a: the metadata refers to messages that do not exist; would be limited to those that do\n\
         a: other users can access the file (mode 0644); would be set to 0600\n"
    );
    let counted = "nanobot: sessions checked: 1, ok: 0\n";
    let repair = |flags: &[&str], expect: &str| {
        let result = story.run([&["session", "repair"], flags].concat());
        result.status(1).stdout(expect).stderr(counted);
    };
    repair(&["--dry-run", "--all"], &expect);
    assert_eq!(session_file_text(&story, "a.jsonl").len(), torn + 12);
    repair(&["a"], &expect.replace("would be ", ""));
    let after = session_file_text(&story, "a.jsonl");
    let added = after.strip_prefix(&before).expect("what was there stays");
    let line: Value = serde_json::from_str(added).unwrap();
    assert_eq!(line["messages"], 3);
    assert_eq!(line["last_consolidated"], 0);
    assert_eq!(line["at"], before.len());
    assert_eq!(line["ending"], "repaired");
    // The rest cannot be repaired and is reported again; nothing more is written.
    let expect_after: String = expect
        .lines()
        .filter(|line| !line.contains("would"))
        .map(|line| format!("{line}\n"))
        .collect();
    repair(&["a"], &expect_after);
    assert_eq!(session_file_text(&story, "a.jsonl"), after);
}

#[test]
fn repair_lists_unexpected_files() {
    let story = Story::bare()
        .workspace_file("sessions/moved.jsonl", session_text("a:b", &[]))
        .workspace_file("sessions/bare.jsonl", "{\"role\": \"user\", \"content\": \"x\"}\n");
    write(&story.home().join(".nanobot/sessions/bare.jsonl"), b"{\"_type\": \"metadata\"}\n");
    let stdout = story.run(["session", "repair", "--all", "--dry-run", "-q"]).text();
    for message in [
        "a:b: not found by its key: the file of session `a:b` would be `$HOME/.nanobot/workspace/sessions/a_b.jsonl`",
        "bare: the first line is not metadata: other releases do not list the session",
        "bare: not in use: session `bare` is in `$HOME/.nanobot/workspace/sessions/bare.jsonl`",
    ] {
        assert!(stdout.contains(message), "{stdout}");
    }
    // Reading leaves no files behind, not even a lock file.
    let folder = std::fs::read_dir(story.workspace().join("sessions")).unwrap();
    assert_eq!(folder.count(), 2);
}

#[test]
fn sessions_of_a_newer_release_are_read_and_never_written() {
    let newer = closed_session_text(
        "a",
        &[("user", "from the future")],
        &json!({ "v": 2, "stats": { "turns": 1 } }),
    );
    // Also if its last line is incomplete: only the newer release may repair it.
    for end in ["", "{\"role\": \"us"] {
        let before = format!("{newer}{end}");
        let story = Story::new().workspace_file("sessions/a.jsonl", &before);
        let path = story.workspace().join("sessions/a.jsonl");
        set_age(&path, 100);
        let show =
            story.run(["session", "show", "a"]).stdout_has("written by a newer nanobot: read-only");
        assert_eq!(show.error_text().is_empty(), end.is_empty());
        assert_eq!(story.run(["session", "list", "--json"]).json()["read_only"], true);
        story.run(["session", "search", "future", "-l"]).stdout("a\n");
        let export = story.run(["session", "export", "a"]).stdout_has("from the future");
        assert_eq!(export.error_text().is_empty(), end.is_empty());
        story.run(["agent", "-m", "x", "-s", "a"]).status(78).stderr_has("a newer nanobot");
        story.run(["session", "rename", "a", "b"]).status(78).stderr_has("a newer nanobot");
        story.run(["session", "fork", "a", "b"]).status(78).stderr_has("a newer nanobot");
        story
            .run(["session", "prune", "--older-than", "1d", "--yes"])
            .stderr_has("kept `a`: written by a newer nanobot");
        story
            .run(["session", "repair", "a", "-q"])
            .stdout("a: written by a newer nanobot, read-only for this one\n");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), before);
    }
}

#[test]
fn an_export_is_one_document() {
    let story = Story::new()
        .file("a", "```\nrm -rf\n")
        .script([calls("read_file", json!({ "path": "a" })), says("**Read.**")]);
    story.run(["agent", "-m", "look"]).stdout("**Read.**\n");
    story.run(["session", "export", "cli:direct"]).stdout(
        "# cli:direct\n\n2026-01-02 03:04 to 2026-01-02 03:04\n\
         \n## 1 User, 2026-01-02 03:04\n\nlook\n\
         \n## 2 nanobot, 2026-01-02 03:04\n\nCalls `read_file`:\n\n```json\n{\n  \"path\": \"a\"\n}\n```\n\
         \n## 3 Result of `read_file`, 2026-01-02 03:04\n\n````\n1| ```\n2| rm -rf\n````\n\
         \n## 4 nanobot, 2026-01-02 03:04\n\n**Read.**\n",
    );
    story.run(["session", "export", "cli:direct", "--format", "json", "-o", "out.json"]).stdout("");
    let text = std::fs::read_to_string(story.dir().join("out.json")).unwrap();
    let document: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(document["key"], "cli:direct");
    assert_eq!(document["messages"].as_array().unwrap().len(), 4);
    assert_eq!(document["messages"][2]["text"], "1| ```\n2| rm -rf");
    assert_eq!(document["messages"][3]["time"], "2026-01-02T03:04:05Z");
    // The extension of the file says the format.
    for (name, start) in [("o.JSON", "{"), ("o.html", "<!DOCTYPE html>"), ("o.txt", "# cli:direct")]
    {
        story.run(["session", "export", "cli:direct", "-o", name]);
        let text = std::fs::read_to_string(story.dir().join(name)).unwrap();
        let text = text.to_lowercase();
        assert!(text.starts_with(&start.to_lowercase()), "{name}: {text}");
    }
    let empty = story.workspace_file("sessions/e.jsonl", session_text("e", &[]));
    assert_eq!(
        empty.run(["session", "export", "e", "--format", "json"]).json()["messages"],
        json!([])
    );
    empty.run(["session", "export", "e", "-o", "none/such"]).status(74).stderr_has("none/such");
}

#[test]
fn an_export_closes_the_code_that_an_answer_leaves_open() {
    let messages = [("user", "how?"), ("assistant", "So:\n\n```sh\nls"), ("user", "go on")];
    let story = Story::new().workspace_file("sessions/e.jsonl", session_text("e", &messages));
    story.run(["session", "export", "e"]).stdout_has("So:\n\n```sh\nls\n```\n\n## 3 User");
}

/// A pipe may lead to a pager that passes control characters on.
#[test]
fn listings_have_no_control_characters_in_a_pipe() {
    let story = Story::new()
        .script([says("red \u{1b}[31m\u{1b}]0;title\u{7} text")])
        .workspace_file("memory/MEMORY.md", "a red \u{1b}[31m note\n");
    story.run(["agent", "-m", "say it"]).text();
    for arguments in [
        &["session", "show", "cli:direct"][..],
        &["session", "search", "red"],
        &["memory", "search", "red"],
    ] {
        let text = story.run(arguments).text();
        assert!(text.contains("red "), "{arguments:?}: {text}");
        assert!(!text.contains('\u{1b}') && !text.contains('\u{7}'), "{arguments:?}: {text:?}");
    }
}

#[test]
fn prune_lists_and_syncs_the_directory_once() {
    if !crate::fault_injection::can_inject() {
        return;
    }
    let calls_of_prune = |count: usize| {
        let story = Story::new();
        for number in 0..count {
            let key = format!("old:{number}");
            let path = story.workspace().join(format!("sessions/old_{number}.jsonl"));
            write(&path, session_text(&key, &[("user", "hi")]).as_bytes());
            set_age(&path, 30);
        }
        let trace = story.dir().join("trace");
        let mut strace = story.program("strace");
        strace.args(["-f", "-qq", "-e", "trace=fsync,fdatasync,getdents64", "-o"]);
        strace.arg(&trace).arg(crate::story::NANOBOT);
        strace.args(["session", "prune", "--older-than", "1w", "--yes", "-q"]);
        let result = story.wait(strace.spawn().unwrap());
        assert_eq!(result.code(), 0);
        result.text();
        drop(result);
        let trash = std::fs::read_dir(story.workspace().join("sessions/.trash")).unwrap();
        assert_eq!(trash.count(), count);
        std::fs::read_to_string(trace).unwrap().lines().count()
    };
    assert_eq!(calls_of_prune(2), calls_of_prune(40));
}

/// A pager may pass the text on to a terminal.
#[test]
fn what_people_read_has_no_escape_sequences_in_a_pipe_either() {
    let evil = "\u{1b}]0;title\u{7}\u{1b}[2Jplum";
    let story = Story::new().script([says(evil)]);
    assert!(story.run(["agent", "-s", "work", "-m", evil]).text().contains("plum"));
    std::fs::create_dir_all(story.workspace().join("memory")).unwrap();
    std::fs::write(story.workspace().join("memory/MEMORY.md"), evil).unwrap();
    let commands = [
        &["session", "show", "work"][..],
        &["session", "search", "plum"],
        &["memory", "show"],
        &["memory", "search", "plum"],
    ];
    for command in commands {
        let text = story.run(command).text();
        assert!(text.contains("plum") && !text.contains('\u{1b}'), "{command:?}: {text:?}");
        assert!(!text.contains('\u{7}'), "{command:?}: {text:?}");
    }
    // Programs get all of it.
    assert!(story.run(["session", "show", "work", "--json"]).text().contains("\\u001b]0;title"));
    assert!(story.run(["memory", "show", "--json"]).text().contains("\\u001b]0;title"));
}

#[test]
fn a_list_without_entries_is_explained_on_a_terminal_only() {
    let story = Story::new();
    let check = |arguments: &[&str], status: i32, phrase: &str| {
        story.run(arguments).status(status).stdout("");
        let mut screen = story.screen(24, 80).args(arguments);
        assert_eq!(screen.code(), status, "{arguments:?}");
        assert_eq!(screen.text(), format!("nanobot: {phrase}"), "{arguments:?}");
    };
    check(&["cron", "list"], 0, "no jobs are scheduled");
    check(&["cron", "check"], 0, "no job and no channel has a problem");
    check(&["trust", "--list"], 0, "no directory is trusted");
    check(&["memory", "diff"], 0, "the memory was never changed");
    check(&["undo", "--list"], 0, "no turn has changed a file");
    check(&["session", "restore"], 0, "the trash is empty");
    check(&["session", "prune", "--empty"], 0, "no session matches");
    check(&["session", "search", "zzz"], 1, "no message matches, and nothing in the memory");
    check(&["mcp", "list"], 0, "there are no MCP servers; see `nanobot mcp add --help`");
    check(&["skill", "list", "zzz"], 0, "no skill matches");
    check(&["model", "provider", "list", "zzz"], 0, "no provider matches");
    check(&["cron", "list", "zzz"], 0, "no scheduled job matches");
    check(&["model", "list", "zzz"], 0, "no known model matches; `--remote` asks the provider");
}

#[test]
fn every_list_takes_a_pattern() {
    let story = Story::new();
    for name in ["digest", "backup"] {
        story
            .run(["cron", "add", "-n", name, "-e", "1h", "-m", "x"])
            .stdout_has("Added")
            .stderr_has("under cron");
    }
    let check = |arguments: &[&str], key: &str, expect: &[&str]| {
        let lines = story.run([arguments, &["--json"]].concat()).json_lines();
        let names: Vec<&str> = lines.iter().map(|line| line[key].as_str().unwrap()).collect();
        assert_eq!(names, expect, "{arguments:?}");
    };
    check(&["cron", "list", "dig"], "name", &["digest"]);
    check(&["cron", "list", "*k*"], "name", &["backup"]);
    check(&["model", "provider", "list", "ollama"], "name", &["ollama"]);
    check(&["model", "provider", "list", "*aw"], "name", &[]);
    check(&["skill", "list", "memor"], "name", &["memory"]);
    let models = story.run(["model", "list", "claude-*", "--json"]).json_lines();
    assert!(models.len() > 1);
    assert!(models.iter().all(|it| it["provider"] == "anthropic"));
}
