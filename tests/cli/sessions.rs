//! Session storage: format, resumption, locks, migration and pruning.

use crate::cron::add_job;
use crate::page_commands::run_line;
use crate::server::{calls, fails, says};
use crate::story::{Story, write};
use crate::wait::until_change_in;
use crate::web::{PageServer, page_response};
use serde_json::{Value, json};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;

const TIMESTAMP: &str = "2026-01-02T03:04:05.000000";

#[test]
fn a_variable_for_the_session_that_is_no_text_is_refused() {
    let story = Story::new();
    let mut command = story.command(["agent", "-m", "x"]);
    command.env("NANOBOT_SESSION", std::ffi::OsStr::from_bytes(b"caf\xe9"));
    story
        .wait(story.start(&mut command))
        .status(2)
        .stderr_has("the value of `NANOBOT_SESSION` is not UTF-8");
    assert!(!story.workspace().join("sessions/cli_direct.jsonl").exists());
}

#[test]
fn a_turn_is_stored_in_the_format_of_the_python_program() {
    let story = Story::new()
        .file("a", "x\n")
        .script([calls("read_file", json!({ "path": "a" })), says("Read.")]);
    story.run(["agent", "-m", "look"]).stdout("Read.\n");
    let text =
        std::fs::read_to_string(story.workspace().join("sessions/cli_direct.jsonl")).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[0],
        format!(
            "{{\"_type\": \"metadata\", \"key\": \"cli:direct\", \"created_at\": \"{TIMESTAMP}\", \"updated_at\": \"{TIMESTAMP}\", \"metadata\": {{}}, \"last_consolidated\": 0}}"
        )
    );
    let session = story.session("cli_direct.jsonl");
    assert_eq!(session[1]["role"], "user");
    assert_eq!(session[1]["content"], "look");
    assert_eq!(session[1]["timestamp"], TIMESTAMP);
    assert_eq!(session[2]["role"], "assistant");
    assert_eq!(session[2]["content"], Value::Null);
    assert_eq!(
        session[2]["tool_calls"][0]["function"],
        json!({ "name": "read_file", "arguments": "{\"path\":\"a\"}" })
    );
    assert_eq!(session[3]["role"], "tool");
    assert_eq!(session[3]["tool_call_id"], session[2]["tool_calls"][0]["id"]);
    assert_eq!(session[3]["name"], "read_file");
    assert_eq!(session[4]["content"], "Read.");
    assert_eq!(session[5]["_type"], "metadata");
    assert_eq!(session[5]["messages"], 4);
    assert_eq!(session[5]["ending"], "answered");
    assert_eq!(session[5]["at"], json!(text.len() - lines[5].len() - 1));
    assert_eq!(session.len(), 6);
    let mode = |path: &str| {
        std::fs::metadata(story.workspace().join(path)).unwrap().permissions().mode() & 0o777
    };
    assert_eq!(mode("sessions"), 0o700);
    assert_eq!(mode("sessions/cli_direct.jsonl"), 0o600);
}

#[test]
fn a_session_continues() {
    let story = Story::new().script([says("Hello Ada."), says("Ada.")]);
    story.run(["agent", "-m", "I am Ada"]).stdout("Hello Ada.\n");
    story.run(["agent", "-m", "who am I?"]).stdout("Ada.\n");
    let messages = story.requests()[1].messages();
    assert_eq!(messages.len(), 4);
    assert_eq!(messages[2], json!({ "role": "assistant", "content": "Hello Ada." }));
}

#[test]
fn after_new_no_old_message_is_sent() {
    let story = Story::new().script([says("1"), says("2"), says("3")]);
    story.run(["agent", "-m", "one"]).stdout("1\n");
    story.run(["agent", "-m", "two", "--new"]).stdout("2\n");
    story.run(["agent", "-m", "three"]).stdout("3\n");
    let requests = story.requests();
    assert_eq!(requests[1].messages().len(), 2);
    assert_eq!(requests[2].messages().len(), 4);
    assert!(story.session("cli_direct.jsonl").iter().any(|line| line["content"] == "one"));
}

#[test]
fn slash_new_and_slash_help_as_messages() {
    let story = Story::new().script([says("1"), says("2")]);
    story.run(["agent", "-m", "one"]).stdout("1\n");
    story.run(["agent", "-m", "/new"]).stdout("New session started.\n");
    story.run(["agent", "-m", "two"]).stdout("2\n");
    assert_eq!(story.requests()[1].messages().len(), 2);
    story.run(["agent", "-m", "/help"]).stdout_has("/new");
    let story = Story::new().stdin("/new").script([says("piped text is no command")]);
    story.run(["agent"]).stdout("piped text is no command\n");
}

#[test]
fn an_ephemeral_run_stores_nothing() {
    let story = Story::new().script([says("1"), says("2"), says("3")]);
    story.run(["agent", "-m", "one", "--ephemeral"]).stdout("1\n");
    assert!(!story.workspace().join("sessions").exists());
    story.run(["agent", "-m", "two"]).stdout("2\n");
    let before = story.session("cli_direct.jsonl");
    story.run(["agent", "-m", "three", "--ephemeral", "-s", "cli:direct"]).stdout("3\n");
    assert_eq!(story.requests()[2].messages().len(), 4);
    assert_eq!(story.session("cli_direct.jsonl"), before);
}

#[test]
fn fork_copies_the_session_first() {
    let story = Story::new().script([says("1"), says("2"), says("3")]);
    story.run(["agent", "-m", "one"]).stdout("1\n");
    story.run(["agent", "-m", "two", "--fork", "cli:direct", "-s", "branch"]).stdout("2\n");
    assert_eq!(story.requests()[1].messages().len(), 4);
    story.run(["agent", "-m", "three"]).stdout("3\n");
    assert_eq!(story.requests()[2].messages().len(), 4, "the original does not see the branch");
    for unstored in [&[][..], &["--ephemeral"], &["--dry-run"], &["--replay", "demo"]] {
        story
            .run([&["agent", "-m", "x", "--fork", "nothing"], unstored].concat())
            .status(66)
            .stderr_has("there is no session `nothing`");
    }
    story
        .run(["agent", "-m", "x", "--fork", "cli:direct", "-s", "branch"])
        .status(2)
        .stderr_has("session `branch` already exists");
}

#[test]
fn a_run_without_a_message_changes_no_session() {
    let story = Story::new().script([says("1"), says("2")]);
    story.run(["agent", "-m", "one"]).stdout("1\n");
    let before = story.session("cli_direct.jsonl");
    for flags in [&["--new"][..], &["--fork", "cli:direct", "-s", "copy"]] {
        story.run([&["agent"], flags].concat()).status(66).stderr_has("no message");
    }
    assert_eq!(story.session("cli_direct.jsonl"), before);
    story.run(["agent", "-m", "two", "--fork", "cli:direct", "-s", "copy"]).stdout("2\n");
    assert_eq!(story.requests()[1].messages().len(), 4);
}

#[test]
fn an_interrupted_turn_is_resumed() {
    let story = Story::new().file("a", "x").script([
        calls("read_file", json!({ "path": "a" })),
        fails(400, "no"),
        says("Done."),
    ]);
    story.run(["agent", "-m", "look"]).status(1).stderr_has("no");
    story.run(["agent", "--resume"]).stdout("Done.\n");
    let messages = story.requests()[2].messages();
    assert_eq!(messages.len(), 4, "no call was made again");
    story
        .run(["agent", "--resume"])
        .status(66)
        .stderr("nanobot: session `cli:direct` has no interrupted turn\n  try: a new message with `-m`: the last turn is complete\n");
}

#[test]
fn a_call_without_a_result_is_marked_as_possibly_executed() {
    let call = |id: &str| json!({ "id": id, "type": "function", "function": { "name": "exec", "arguments": "{\"command\": \"rm x\"}" } });
    let lines = [
        json!({ "_type": "metadata", "key": "cli:direct", "created_at": TIMESTAMP, "updated_at": TIMESTAMP, "metadata": {}, "last_consolidated": 0 }),
        json!({ "role": "user", "content": "clean up", "timestamp": TIMESTAMP }),
        json!({ "role": "assistant", "content": null, "tool_calls": [call("c1"), call("c2")], "timestamp": TIMESTAMP }),
    ];
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let story =
        Story::new().workspace_file("sessions/cli_direct.jsonl", text).script([says("Checked.")]);
    story
        .run(["agent", "--resume"])
        .stdout("Checked.\n")
        .stderr("nanobot: tool call `exec` was interrupted; it may or may not have taken effect\n");
    let lines = story.session("cli_direct.jsonl");
    let check = |line: usize, id: &str, text: &str| {
        assert_eq!(lines[line]["tool_call_id"], id);
        assert!(lines[line]["content"].as_str().unwrap().contains(text), "{}", lines[line]);
    };
    check(3, "c1", "may or may not have happened");
    check(4, "c2", "before this call was begun");
    assert!(story.requests()[0].last_content().ends_with("or while it only read"));
}

#[test]
fn an_incomplete_line_is_saved_aside() {
    let story = Story::new().script([says("1"), says("2")]);
    story.run(["agent", "-m", "one"]).stdout("1\n");
    let path = story.workspace().join("sessions/cli_direct.jsonl");
    let mut text = std::fs::read_to_string(&path).unwrap();
    text.push_str("{\"role\": \"user\", \"cont");
    write(&path, text.as_bytes());
    story
        .run(["agent", "-m", "two"])
        .stdout("2\n")
        .stderr_has("the last line of the session was incomplete");
    assert_eq!(story.requests()[1].messages().len(), 4);
    let aside = std::fs::read_dir(story.workspace().join("sessions")).unwrap();
    let aside = aside
        .map(|entry| entry.unwrap().path())
        .find(|path| path.to_str().unwrap().contains("torn"))
        .unwrap();
    assert_eq!(std::fs::read_to_string(aside).unwrap(), "{\"role\": \"user\", \"cont");
    assert!(
        std::fs::read_to_string(&path)
            .unwrap()
            .lines()
            .all(|line| serde_json::from_str::<Value>(line).is_ok())
    );
}

#[test]
fn orphaned_results_are_not_sent_and_the_window_starts_at_a_user_message() {
    let mut lines = vec![
        json!({ "_type": "metadata", "key": "cli:direct", "created_at": TIMESTAMP, "updated_at": TIMESTAMP, "metadata": {}, "last_consolidated": 2 }),
        json!({ "role": "user", "content": "old" }),
        json!({ "role": "assistant", "content": "old answer" }),
        json!({ "role": "tool", "tool_call_id": "lost", "name": "exec", "content": "orphan" }),
        json!({ "role": "assistant", "content": "leftover" }),
        json!({ "role": "user", "content": "kept" }),
        json!({ "role": "assistant", "content": "kept answer" }),
    ];
    lines.push(
        json!({ "role": "tool", "tool_call_id": "lost2", "name": "exec", "content": "orphan" }),
    );
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let story =
        Story::new().workspace_file("sessions/cli_direct.jsonl", &text).script([says("ok")]);
    story.run(["agent", "-m", "go on"]).stdout("ok\n");
    let contents: Vec<Value> = story.requests()[0].messages()[1..]
        .iter()
        .map(|message| message["content"].clone())
        .collect();
    assert_eq!(contents[..2], [json!("kept"), json!("kept answer")]);
    assert_eq!(contents.len(), 3);
    let after =
        std::fs::read_to_string(story.workspace().join("sessions/cli_direct.jsonl")).unwrap();
    assert!(after.starts_with(&text), "the file is only appended to");
}

#[test]
fn a_locked_session_is_waited_for_or_reported() {
    let story = Story::new().script([says("1")]);
    story.run(["agent", "-m", "one"]).stdout("1\n");
    let lock = std::fs::File::options()
        .write(true)
        .open(story.workspace().join("sessions/cli_direct.jsonl.lock"))
        .unwrap();
    lock.lock().unwrap();
    story.run(["agent", "-m", "two", "--wait", "0"]).status(75).stderr_has("cli:direct");
    // Not by closing it: a child that another test has just forked may still have the descriptor.
    lock.unlock().unwrap();
    story.server().script([says("2")]);
    story.run(["agent", "-m", "two", "--wait", "0"]).stdout("2\n");
}

#[test]
fn two_keys_with_the_same_file_name_stay_separate() {
    let story = Story::new().script([says("1"), says("2"), says("3")]);
    story.run(["agent", "-m", "one", "-s", "a:b"]).stdout("1\n");
    story.run(["agent", "-m", "two", "-s", "a_b"]).stdout("2\n");
    assert_eq!(story.requests()[1].messages().len(), 2);
    assert!(story.workspace().join("sessions/YV9i.jsonl").exists());
    story.run(["agent", "-m", "three", "-s", "a_b"]).stdout("3\n");
    assert_eq!(story.requests()[2].messages().len(), 4);
}

#[test]
fn sessions_are_listed_shown_and_removed() {
    let story = Story::new().script([says("Hello."), says("x")]);
    story.run(["agent", "-m", "hi"]).stdout("Hello.\n");
    story.run(["agent", "-m", "hi", "-s", "work:1"]).stdout("x\n");
    let list = story.run(["session", "list"]).text();
    assert!(list.contains("cli:direct") && list.contains("work:1"), "{list}");
    let show = story.run(["session", "show", "cli:direct"]).text();
    assert!(show.contains("hi") && show.contains("Hello."), "{show}");
    story.run(["session", "rm", "work:1", "-q"]).stderr("");
    assert!(!story.run(["session", "list"]).text().contains("work:1"));
    story.run(["session", "rm", "work:1"]).status(66).stderr_has("work:1");
    story.run(["session", "show", "gone"]).status(66).stderr_has("gone");
    let lines = story.run(["session", "show", "cli:direct", "--json"]).json_lines();
    assert_eq!(lines[0]["role"], "user");
}

#[test]
fn the_store_of_newer_releases_is_used_if_present() {
    let id = "0123456789abcdef0123456789abcdef";
    let story = Story::new().script([says("2"), says("3")]);
    let store = story.home().join(".nanobot/sessions").join(id);
    write(&story.workspace().join(".nanobot/workspace-id"), id.as_bytes());
    write(&store.join(".workspace"), story.workspace().to_str().unwrap().as_bytes());
    write(&store.join(".session-files.lock"), b"");
    let lines = [
        json!({ "_type": "metadata", "key": "cli:direct", "created_at": TIMESTAMP, "updated_at": TIMESTAMP, "metadata": { "title": "t" }, "last_consolidated": 0, "last_archived": 0 }),
        json!({ "_type": "provider_state", "state": { "id": "x" } }),
        json!({ "role": "user", "content": "one", "timestamp": TIMESTAMP }),
        json!({ "role": "assistant", "content": "1", "timestamp": TIMESTAMP, "latency_ms": 5 }),
    ];
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let path = store.join("Y2xpOmRpcmVjdA.jsonl");
    write(&path, text.as_bytes());
    story.run(["agent", "-m", "two"]).stdout("2\n");
    story.run(["agent", "-m", "three"]).stdout("3\n");
    assert_eq!(story.requests()[1].messages().len(), 6);
    let after = std::fs::read_to_string(&path).unwrap();
    let added: Vec<Value> =
        after[text.len()..].lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds: Vec<&str> = added
        .iter()
        .map(|line| line["_type"].as_str().or(line["role"].as_str()).unwrap())
        .collect();
    let turn = ["user", "assistant"];
    assert_eq!(kinds, [&turn[..], &["provider_state", "metadata"], &turn, &["metadata"]].concat());
    assert_eq!(added[2]["state"], Value::Null);
    assert_eq!(added[3]["metadata"]["title"], "t");
    assert_eq!(added[3]["last_archived"], 0);
    assert!(!story.workspace().join("sessions").exists());
}

#[test]
fn a_session_removed_during_a_turn_is_recreated() {
    let story = Story::new().script([says("1")]);
    story.run(["agent", "-m", "one"]).stdout("1\n");
    let path = story.workspace().join("sessions/cli_direct.jsonl");
    story.server().script([Box::new(move |request: &crate::server::Request| {
        std::fs::remove_file(&path).unwrap();
        says("2")(request)
    }) as crate::server::Responder]);
    story.run(["agent", "-m", "two"]).stdout("2\n");
    let lines = story.session("cli_direct.jsonl");
    assert_eq!(lines.len(), 3);
    assert_eq!((&lines[0]["key"], &lines[1]["content"]), (&json!("cli:direct"), &json!("2")));
    assert_eq!(lines[2]["messages"], 1);
}

#[test]
fn old_sessions_of_piped_input_are_pruned() {
    let story = Story::new().stdin("x").script([says("1"), says("2")]);
    story.run(["agent"]).stdout("1\n");
    let sessions = story.workspace().join("sessions");
    let names = || -> Vec<String> {
        let all = std::fs::read_dir(&sessions).unwrap().map(|entry| entry.unwrap().file_name());
        let mut all: Vec<String> = all.map(|name| name.into_string().unwrap()).collect();
        all.sort();
        all
    };
    let first = names();
    assert_eq!(first.len(), 2);
    // At that distance a file written just now is old, and so is the session of the run itself, except for its lock.
    let story = story.env("NANOBOT_TEST_TIME", "2100-01-01T00:00:00Z");
    story.run(["agent"]).stdout("2\n");
    let remaining = names();
    assert!(remaining.len() == 2 && remaining != first, "{first:?} {remaining:?}");
}

#[test]
fn a_session_replaced_by_a_python_run_is_followed() {
    let story = Story::new();
    let path = story.workspace().join("sessions/cli_direct.jsonl");
    let other = path.with_extension("other");
    let replaced = path;
    // While the model works, another program replaces the file.
    story.server().script([says("1")]);
    story.run(["agent", "-m", "one"]).stdout("1\n");
    story.server().script([Box::new(move |request: &crate::server::Request| {
        let mut text = std::fs::read_to_string(&replaced).unwrap();
        text.push_str(&format!("{}\n", json!({ "role": "user", "content": "theirs" })));
        write(&other, text.as_bytes());
        std::fs::rename(&other, &replaced).unwrap();
        says("2")(request)
    }) as crate::server::Responder]);
    story.run(["agent", "-m", "two"]).stdout("2\n");
    let lines = story.session("cli_direct.jsonl");
    let contents: Vec<&str> = lines.iter().filter_map(|line| line["content"].as_str()).collect();
    assert_eq!(contents, ["one", "1", "two", "theirs", "2"]);
    assert_eq!(lines.last().unwrap()["messages"], 5);
}

#[test]
fn a_turn_longer_than_the_window_is_resumed_and_consolidated() {
    let story = Story::new()
        .set("agents.defaults", json!({ "model": "m", "provider": "custom", "memoryWindow": 4 }));
    let again = || calls("list_dir", json!({}));
    let story =
        story.script([again(), again(), again(), fails(400, "no"), says("Done."), says("Yes.")]);
    story.run(["agent", "-m", "the task"]).status(1).stderr_has("no");
    story.run(["agent", "--resume"]).stdout("Done.\n");
    assert_eq!(story.requests()[4].messages().len(), 8);
    story.run(["agent", "-m", "done?"]).stdout("Yes.\n");
    assert!(story.requests()[5].raw.contains("the task"));
}

#[test]
fn a_session_named_like_a_piped_one_is_not_pruned() {
    let story = Story::new().script([says("1"), says("2")]);
    story.run(["agent", "-m", "x", "-s", "pipe_mine"]).stdout("1\n");
    let story = story.env("NANOBOT_TEST_TIME", "2100-01-01T00:00:00Z").stdin("x");
    story.run(["agent"]).stdout("2\n");
    assert!(story.workspace().join("sessions/pipe_mine.jsonl").exists());
}

#[test]
fn an_incomplete_line_of_another_program_does_not_corrupt_our_lines() {
    let story = Story::new().script([says("1")]);
    story.run(["agent", "-m", "one"]).stdout("1\n");
    let path = story.workspace().join("sessions/cli_direct.jsonl");
    story.server().script([Box::new(move |request: &crate::server::Request| {
        let mut text = std::fs::read(&path).unwrap();
        text.extend_from_slice(b"{\"role\": \"us");
        std::fs::write(&path, text).unwrap();
        says("2")(request)
    }) as crate::server::Responder]);
    story.run(["agent", "-m", "two"]).stdout("2\n");
    assert!(story.session("cli_direct.jsonl").iter().any(|line| line["content"] == "2"));
}

#[test]
fn a_removed_session_does_not_reappear_from_an_older_location() {
    let line = |text: &str| format!("{}\n", json!({ "role": "user", "content": text }));
    let story = Story::new().workspace_file("sessions/a.jsonl", line("new"));
    write(&story.home().join(".nanobot/sessions/a.jsonl"), line("secret").as_bytes());
    story.run(["session", "rm", "a", "-q"]).stderr("");
    story.run(["session", "show", "a"]).status(66).stderr_has("there is no session `a`");
}

#[test]
fn sessions_left_in_the_workspace_move_to_the_newer_store() {
    let id = "0123456789abcdef0123456789abcdef";
    let story = Story::new().script([says("2"), says("3")]);
    let text = "{\"_type\": \"metadata\", \"key\": \"cli:direct\"}\n{\"role\": \"user\", \"content\": \"one\"}\n\
                {\"role\": \"assistant\", \"content\": \"1\"}\n";
    let left = story.workspace().join("sessions/cli_direct.jsonl");
    write(&left, text.as_bytes());
    let store = story.home().join(".nanobot/sessions").join(id);
    write(&story.workspace().join(".nanobot/workspace-id"), id.as_bytes());
    write(&store.join(".workspace"), story.workspace().to_str().unwrap().as_bytes());
    // Reading does not move files.
    story.run(["session", "show", "cli:direct"]).stdout_has("one");
    assert!(left.exists());
    story.run(["agent", "-m", "two"]).stdout("2\n");
    let now = store.join("Y2xpOmRpcmVjdA.jsonl");
    assert!(!left.exists() && now.exists());
    assert!(std::fs::read_to_string(now).unwrap().starts_with(text));
    assert_eq!(story.requests()[0].messages().len(), 4);
    story.run(["agent", "-m", "three"]).stdout("3\n");
    assert_eq!(story.requests()[1].messages().len(), 6);
    // Old sessions of piped input are pruned there too.
    let old = store.join("cGlwZTphYmM.jsonl");
    write(&old, b"{\"_type\": \"metadata\", \"key\": \"pipe:abc\"}\n");
    let long_ago =
        std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_700_000_000);
    std::fs::File::options().write(true).open(&old).unwrap().set_modified(long_ago).unwrap();
    // So are those before a `/rewind`, after a longer time.
    let [rewound, recent] = [("cmV3aW5kOmEtMQ", "rewind:a-1"), ("cmV3aW5kOmEtMg", "rewind:a-2")]
        .map(|(name, key)| {
            let path = store.join(format!("{name}.jsonl"));
            write(&path, format!("{{\"_type\": \"metadata\", \"key\": \"{key}\"}}\n").as_bytes());
            path
        });
    std::fs::File::options().write(true).open(&rewound).unwrap().set_modified(long_ago).unwrap();
    let story = story.script([says("4")]).stdin("four");
    story.run(["agent"]).stdout("4\n");
    assert!(!old.exists() && !rewound.exists() && recent.exists());
}

#[test]
fn a_turn_after_a_kill_reads_only_the_end_of_the_file() {
    // 60 MB before the last closing line, and lines of a killed turn after it: fast to read if only the end is read.
    let story = Story::new().script([says("fine")]);
    let path = story.workspace().join("sessions/cli_direct.jsonl");
    let line = format!("{{\"role\": \"user\", \"content\": \"{}\"}}\n", "x".repeat(600_000));
    let mut text = line.repeat(100);
    let at = text.len();
    text.push_str(&format!("{{\"_type\": \"metadata\", \"key\": \"cli:direct\", \"last_consolidated\": 100, \"messages\": 100, \"at\": {at}}}\n"));
    text.push_str("{\"role\": \"user\", \"content\": \"killed\"}\n");
    write(&path, text.as_bytes());
    let out = story.dir().join("reads");
    let mut command = story.program("strace");
    command.args([
        "-qq",
        "-o",
        out.to_str().unwrap(),
        "-e",
        "trace=read,pread64",
        "-P",
        path.to_str().unwrap(),
    ]);
    let child = command.arg(crate::story::NANOBOT).args(["agent", "-m", "x"]).spawn();
    let Ok(child) = child else {
        return;
    };
    story.wait(child).stdout("fine\n").stderr_has("marked as interrupted");
    let read: u64 = std::fs::read_to_string(out)
        .unwrap()
        .lines()
        .filter_map(|line| line.rsplit_once("= ")?.1.parse::<u64>().ok())
        .sum();
    assert!(read < 2 << 20, "{read} bytes were read");
    assert!(story.requests()[0].raw.contains("killed"));
}

#[test]
fn the_default_session_is_configurable() {
    let check = |config: &str, variable: Option<&str>, expect: [&str; 3]| {
        let mut story = Story::new().set("agents.defaults.session", json!(config)).script([
            says("1"),
            says("2"),
            says("3"),
        ]);
        if let Some(value) = variable {
            story = story.env("NANOBOT_SESSION", value);
        }
        std::fs::create_dir_all(story.dir().join("sub")).unwrap();
        for arguments in [&[] as &[&str], &[], &["-C", "sub"]] {
            let run = ["agent", "--json", "-m", "x"].iter().chain(arguments);
            let output = story.command(run).output().unwrap();
            let result: Value = serde_json::from_slice(&output.stdout).unwrap();
            let key = result["session"].as_str().unwrap().to_owned();
            let number = result["text"].as_str().unwrap().parse::<usize>().unwrap();
            assert!(key.starts_with(expect[number - 1]), "{config}: {key}");
        }
        let counts: Vec<usize> =
            story.requests().iter().map(|request| request.messages().len()).collect();
        counts
    };
    let same = ["work:notes"; 3];
    assert_eq!(check("work:notes", None, same), [2, 4, 6]);
    assert_eq!(check("cli:direct", Some("work:notes"), same), [2, 4, 6]);
    assert_eq!(check("", None, ["cli:direct"; 3]), [2, 4, 6]);
    assert_eq!(check("cli:direct", Some("none"), ["pipe:"; 3]), [2, 2, 2]);
    assert_eq!(check("none", None, ["pipe:"; 3]), [2, 2, 2]);
    let by_directory = ["cli:", "cli:", "cli:sub-"];
    assert_eq!(check("directory", None, by_directory), [2, 4, 2]);
}

#[test]
fn continue_takes_the_last_session_of_a_person() {
    let story = Story::new();
    story.run(["agent", "--continue", "-m", "x"]).status(66).stderr_has("no session to continue");
    story.server().script(["a", "b", "c", "d", "e"].map(says));
    story.run(["agent", "-s", "work", "-m", "apples"]).stdout("a\n");
    story.run(["agent", "-s", "telegram:7", "-m", "pears"]).stdout("b\n");
    let (sum, _) = run_line(&story, "echo text | nanobot agent -m 'sum up'", &[]);
    assert_eq!(sum, "c\n");
    story.run(["agent", "--continue", "-m", "three"]).stdout("d\n");
    let messages = story.requests()[3].messages();
    assert!(messages.iter().any(|message| message.to_string().contains("apples")), "{messages:?}");
    assert!(!messages.iter().any(|message| message.to_string().contains("pears")), "{messages:?}");
    // Another one, which cannot be read, may be the one that is meant.
    let path = story.workspace().join("sessions/loop.jsonl");
    std::os::unix::fs::symlink("loop.jsonl", path).unwrap();
    story.run(["agent", "--continue", "-m", "four"]).stdout("e\n").stderr_has("loop.jsonl");
}

#[test]
fn a_cheap_model_names_new_sessions() {
    let story = || {
        let story = Story::new().env("NANOBOT_MEMORY__CONSOLIDATE", "inline");
        story.set("session.titleModel", json!("small"))
    };
    let title = |story: &Story, key: &str| story.run(["session", "title", key]).text();
    let named = story();
    named.server().script([says("Two euros."), says("\"Milk\u{1b}[2J  prices.\"\nMore.")]);
    named.run(["agent", "-m", "price of milk?"]).stdout("Two euros.\n").stderr("");
    assert_eq!(title(&named, "cli:direct"), "Milk prices\n");
    let request = &named.requests()[1];
    assert_eq!(request.body["model"], "small");
    assert!(request.body.get("tools").is_none(), "{}", request.body);
    let content = request.last_content();
    assert_eq!(content, "<message>\nprice of milk?\n</message>\n<answer>\nTwo euros.\n</answer>");
    let ledger = std::fs::read_to_string(named.home().join(".nanobot/usage.jsonl")).unwrap();
    assert!(ledger.contains("\"cause\":\"title\""), "{ledger}");
    // Only the first turn, and not the session that has a title.
    named.server().script([says("Three."), says("Four.")]);
    named.run(["agent", "-m", "and tea?"]).stdout("Three.\n");
    named.run(["agent", "-s", "b", "--title", "Mine", "-m", "x"]).stdout("Four.\n");
    assert_eq!((named.requests().len(), title(&named, "b")), (4, "Mine\n".to_owned()));
    // What fails is not asked again, and changes nothing.
    for bad in [fails(500, "down"), says(&"x".repeat(10_000)), says("")] {
        let story = story().script([says("A."), bad]);
        story.run(["agent", "-v", "-m", "x"]).status(0).stdout("A.\n").stderr_has("got no title");
        assert_eq!((story.requests().len(), title(&story, "cli:direct").as_str()), (2, ""));
        story.server().script([says("B."), fails(500, "down")]);
        story.run(["agent", "-s", "c", "-m", "x"]).status(0).stdout("B.\n").stderr("");
    }
    // Not where nothing keeps it, no list shows it, or nothing is left to pay it with.
    let quiet = story();
    let job = add_job(&quiet, &["--every", "1h", "--session", "work"]);
    quiet.server().always(says("A."));
    for flags in [
        &["--ephemeral"][..],
        &["--bare"],
        &["--offline"],
        &["-s", "pipe:1"],
        &["-s", "budget", "--max-total-tokens", "1"],
    ] {
        quiet.run([&["agent", "-m", "x"], flags].concat()).stdout("A.\n").error_text();
    }
    quiet.run(["cron", "run", &job]).stdout("A.\n");
    assert_eq!(quiet.requests().len(), 6);
}

#[test]
fn a_title_of_a_conversation_with_content_from_outside_has_none_of_it() {
    let pages = PageServer::start(|_| page_response("text/plain", "words of another"));
    let story = Story::new()
        .set("tools", json!({ "ssrfWhitelist": ["127.0.0.2/32"] }))
        .set("session.titleModel", json!("small"))
        .env("NANOBOT_MEMORY__CONSOLIDATE", "detached")
        .script([
            calls("web_fetch", json!({ "url": pages.url("/") })),
            says("It says: words of another."),
            says("A page"),
        ]);
    let url = pages.url("/");
    story.run(["agent", "--net", "-m", &format!("look at {url}")]).text();
    // A process of its own asks for it.
    story.server().wait_for_requests(3);
    let content = story.requests()[2].last_content();
    assert_eq!(content, format!("<message>\nlook at {url}\n</message>"));
    until_change_in(&story.workspace().join("sessions"), || {
        story.run(["session", "title", "cli:direct"]).text() == "A page\n"
    });
}
