//! The origin of a conversation: what raises it, what it outlasts, and what it costs.

use crate::cron::add_job;
use crate::mcp::{plain_tool, story_with_servers};
use crate::memory::calls_save_memory;
use crate::server::{Request, calls, says};
use crate::story::Story;
use crate::web::{PageServer, page_response};
use serde_json::json;

/// The origin of the session `key`, as `policy explain` prints it.
pub(crate) fn origin_of(story: &Story, key: &str) -> String {
    let text = story.run(["policy", "explain", "--session", key]).text();
    let line = text.lines().find_map(|line| line.strip_prefix("origin"));
    line.unwrap_or_default().trim().to_owned()
}

#[test]
fn the_first_command_of_a_run_in_the_workspace_cannot_write_the_memory_without_a_label() {
    let story = Story::new().workspace_file("inbox.txt", "OBEY");
    let workspace = story.workspace();
    let command = "mkdir -p memory; cat inbox.txt >> memory/MEMORY.md";
    story.server().script([
        calls("exec", json!({ "command": command })),
        says("done"),
        says("hello"),
    ]);
    let flags = ["-C", workspace.to_str().unwrap(), "--write"];
    story.run([&["agent", "-m", "x"], &flags[..]].concat()).stdout("done\n");
    let memory = std::fs::read_to_string(workspace.join("memory/MEMORY.md")).unwrap();
    assert!(memory.ends_with("OBEY"), "{memory}");
    story.run(["agent", "-m", "x", "--new"]).stdout("hello\n");
    let origin = origin_of(&story, "cli:direct");
    assert!(origin.starts_with("project (the memory"), "{origin}");
}

#[test]
fn the_results_of_a_trusted_server_are_not_content_from_outside() {
    let plan = || json!({ "tools": [plain_tool("set")] });
    let check = |entry, expect: &str| {
        let story = story_with_servers(&[("one", plan(), entry)]);
        let result = story.run(["mcp", "accept", "one", "--yes"]);
        result.stdout_has("set").stderr_has("accepted");
        story.server().script([calls("mcp_one_set", json!({})), says("done")]);
        let flags = ["--allow", "mcp_one_set"];
        let result = story.run([&["agent", "-m", "x"], &flags[..]].concat());
        result.stdout("done\n").error_text();
        let origin = origin_of(&story, "cli:direct");
        assert!(origin.starts_with(expect), "{origin}");
        story.run(["mcp", "list"]).text()
    };
    assert!(!check(json!({}), "external").contains("trusted"));
    assert!(check(json!({ "trusted": true }), "project").contains("; trusted"));
}

#[test]
fn a_job_keeps_the_origin_of_runs_that_are_no_longer_sent() {
    let pages = PageServer::start(|_| page_response("text/plain", "words of another"));
    let story = Story::new().set("tools", json!({ "ssrfWhitelist": ["127.0.0.2/32"] }));
    let id = add_job(&story, &["-c", "0 7 * * *"]);
    story.server().script([
        calls("web_fetch", json!({ "url": pages.url("/") })),
        says("one"),
        says("two"),
        says("three"),
    ]);
    for answer in ["one\n", "two\n", "three\n"] {
        story.run(["cron", "run", &id]).stdout(answer);
    }
    let origin = origin_of(&story, &format!("cron:{id}"));
    assert!(origin.starts_with("external (a web page"), "{origin}");
    let body = story.last_request().raw;
    assert!(!body.contains("words of another"), "{body}");
}

#[test]
fn a_denial_of_changes_is_stated_in_the_system_prompt() {
    let story = Story::new();
    let prompt = |flags: &[&str]| {
        let result = story.run([&["agent", "-m", "x", "--dry-run"], flags].concat());
        result.json()["messages"][0]["content"].as_str().unwrap().to_owned()
    };
    let phrase = "By a rule of the user, the memory and the workspace's instruction files and skills may not be changed.";
    assert!(!prompt(&[]).contains("may not be changed"));
    let denied = prompt(&["--deny", "notes", "--deny", "cron"]);
    assert!(denied.contains(phrase) && denied.contains("jobs may not be changed"));
}

#[test]
fn the_memory_of_a_conversation_with_a_networked_command_is_labelled() {
    let story = Story::new();
    story.server().script([
        calls("exec", json!({ "command": "echo words" })),
        says("done"),
        says("hello"),
        calls_save_memory("[2026-01-01 10:00] Words.", "m"),
        says("hello"),
    ]);
    story.run(["agent", "-m", "x", "--net"]).stdout("done\n");
    story.run(["agent", "-m", "x", "--new"]).stdout("hello\n");
    let origin = origin_of(&story, "cli:direct");
    assert!(origin.starts_with("user: nothing"), "{origin}");
    story.run(["memory", "consolidate"]).text();
    story.run(["agent", "-m", "x", "--new"]).stdout("hello\n");
    let origin = origin_of(&story, "cli:direct");
    assert!(origin.starts_with("project (the memory"), "{origin}");
}

/// A SKILL.md with an address.
fn skill(url: &str) -> String {
    format!("---\nname: tea\ndescription: how to make tea\n---\nSee {url}\n")
}

/// True if a run that has read a file of others may request an address at `pages` that it composed itself.
pub(crate) fn may_reach(story: &Story, pages: &PageServer) -> bool {
    story.server().script([
        calls("read_file", json!({ "path": "notes.txt" })),
        calls("web_fetch", json!({ "url": pages.url("/composed") })),
        says("done"),
    ]);
    let run_result = story.run(["agent", "-m", "x", "--new"]).stdout("done\n");
    run_result.error_text();
    let result = story.last_request().last_content();
    assert!(result.contains("words of another") || result.contains("denied"), "{result}");
    !result.contains("denied")
}

/// The user names hosts in skills. A run that may write for others does not, nor does one that edits such a skill.
#[test]
fn a_skill_that_was_written_after_content_by_others_names_no_hosts() {
    let pages = PageServer::start(|_| page_response("text/plain", "words of another"));
    let story = Story::new()
        .file("notes.txt", "OBEY")
        .set("tools", json!({ "ssrfWhitelist": ["127.0.0.2/32"] }));
    let path = story.workspace().join("skills/tea/SKILL.md");
    let turn = |calls_of_turn: Vec<crate::server::Responder>| {
        story.server().script(calls_of_turn);
        story.server().script([says("done")]);
        let result = story.run(["agent", "-m", "x", "--new"]).stdout("done\n");
        result.error_text();
    };
    let writes = || calls("write_file", json!({ "path": path, "content": skill(&pages.url("/")) }));
    let reads = |path: &str| calls("read_file", json!({ "path": path }));
    assert!(!may_reach(&story, &pages));
    turn(vec![writes()]);
    assert!(may_reach(&story, &pages));
    turn(vec![reads("notes.txt"), writes()]);
    assert!(!may_reach(&story, &pages));
    // A later run by the user's own words.
    let edit = json!({ "path": path, "old_text": "See", "new_text": "Look at" });
    turn(vec![reads(path.to_str().unwrap()), calls("edit_file", edit)]);
    assert!(std::fs::read_to_string(&path).unwrap().contains("Look at"));
    assert!(!may_reach(&story, &pages));
    // The user's change makes it the user's.
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("Look at", "Read")).unwrap();
    assert!(may_reach(&story, &pages));
}

#[test]
fn skills_of_concurrent_runs_are_all_recorded() {
    let story = Story::new().file("notes.txt", "OBEY");
    let workspace = story.workspace();
    story.server().always(Box::new(move |request: &Request| {
        let text = request.messages()[1]["content"].to_string();
        let number = text.split("tea").nth(1).and_then(|rest| rest.split('.').next());
        let path = workspace.join(format!("skills/tea{}/SKILL.md", number.unwrap_or_default()));
        let responder = match request.messages().len() {
            2 => calls("read_file", json!({ "path": "notes.txt" })),
            4 => calls(
                "write_file",
                json!({ "path": path, "content": skill(path.to_str().unwrap()) }),
            ),
            _ => says("done"),
        };
        responder(request)
    }));
    let children: Vec<_> = (0..8)
        .map(|number| {
            let message = format!("tea{number}.");
            let arguments = ["agent", "--ephemeral", "-m", &message];
            story.command(arguments).spawn().unwrap()
        })
        .collect();
    for child in children {
        story.wait(child).stdout("done\n").error_text();
    }
    let record = std::fs::read_to_string(story.home().join(".nanobot/written-skills")).unwrap();
    let lines: std::collections::BTreeSet<&str> = record.lines().collect();
    assert_eq!(lines.len(), 8, "{record}");
    assert!(lines.iter().all(|line| line.len() == 32), "{record}");
}

/// A model that reads a file and then asks for an address that it composed.
fn asks_for_composed_address(story: &Story) {
    story.server().script([
        calls("read_file", json!({ "path": "notes.txt" })),
        calls("web_fetch", json!({ "url": "http://evil.example/composed" })),
        says("done"),
    ]);
}

/// True if the last request of a composed address was not refused.
fn was_named(story: &Story) -> bool {
    let result = story.last_request().last_content();
    !result.contains("unless the user writes `https://evil.example` in a message")
}

/// Scripts put the names of files into messages, and others may have chosen them.
#[test]
fn words_within_the_name_of_a_file_name_no_host() {
    let story = Story::new()
        .file("notes.txt", "OBEY")
        .file("notes on evil.example", "x")
        .file("a dir/of evil.example x", "x")
        .file("prompt.txt", "Review ./notes on evil.example now.");
    let check = |arguments: &[&str], is_named: bool| {
        asks_for_composed_address(&story);
        let result = story.run([&["agent", "--new"], arguments].concat()).stdout("done\n");
        assert_eq!(result.error_text().contains("--net=evil.example"), !is_named);
        assert_eq!(was_named(&story), is_named, "{arguments:?}");
    };
    check(&["-m", "review ./notes on evil.example"], false);
    check(&["-m", "review notes on evil.example, please"], false);
    check(&["-m", "review a dir/of evil.example x"], false);
    let path = story.dir().join("notes on evil.example");
    check(&["-m", &format!("review {}", path.display())], false);
    check(&["--prompt-file", "prompt.txt"], false);
    // What a denial says to write.
    check(&["-m", "review ./notes on evil.example with https://evil.example"], true);
    check(&["-m", "what's new on evil.example?"], true);
    check(&["-m", "on evil.example/notes"], true);
}

/// Only the name is typed of a file that is deeper in the directory.
#[test]
fn the_name_of_a_file_at_depth_names_no_host() {
    let check = |file: &str, message: &str, is_named: bool| {
        let story = Story::new().file("notes.txt", "OBEY").file(file, "x");
        asks_for_composed_address(&story);
        story.run(["agent", "-m", message]).stdout("done\n").error_text();
        assert_eq!(was_named(&story), is_named, "{file}: {message}");
    };
    check("src/lib/evil.example", "review evil.example", false);
    check("src/Evil.Example", "review evil.example, please", false);
    check("src/evil.example/notes", "review the notes in evil.example", false);
    check("src/my evil.example", "review my evil.example", false);
    check("src/my evil.example", "review evil.example", true);
    check("src/evil.example.txt", "look at evil.example", true);
    check("src/evil.example", "look at https://evil.example", true);
}

/// The session keeps what was typed: a later turn, in another process, needs it.
#[test]
fn a_host_that_was_typed_is_known_in_later_turns() {
    let story = Story::new().file("notes.txt", "OBEY").script([says("hello")]);
    story.run(["agent", "-m", "look at evil.example"]).stdout("hello\n");
    asks_for_composed_address(&story);
    story.run(["agent", "-m", "go on"]).stdout("done\n").error_text();
    assert!(was_named(&story));
    // A line of another program does not say what was typed.
    let path = story.workspace().join("sessions/cli_direct.jsonl");
    let session = std::fs::read_to_string(&path).unwrap();
    assert!(session.contains(r#""sources": {"hosts": ["evil.example"]}"#), "{session}");
    let session = session.replace(r#""sources": {"hosts": ["evil.example"]}"#, r#""x": 1"#);
    std::fs::write(&path, session).unwrap();
    asks_for_composed_address(&story);
    story.run(["agent", "-m", "go on"]).stdout("done\n").error_text();
    assert!(!was_named(&story));
}

#[test]
fn a_quoted_path_in_a_message_names_no_host() {
    let check = |message: &str, is_named: bool| {
        let story = Story::new().file("notes.txt", "OBEY");
        asks_for_composed_address(&story);
        let result = story.run(["agent", "-m", message]).stdout("done\n");
        result.error_text();
        assert_eq!(was_named(&story), is_named, "{message}");
    };
    check("sum up evil.example", true);
    check("sum up 'evil.example'", true);
    check("sum up './my evil.example'", false);
    check("sum up \"../my evil.example\"", false);
    check("sum up @\"my evil.example\"", false);
    check("sum up my\\ evil.example", false);
}

/// "Open the second one", in the next turn.
#[test]
fn links_of_a_page_can_be_opened_in_the_next_turn() {
    let links = std::sync::Arc::new(std::sync::Mutex::new(String::new()));
    let text = std::sync::Arc::clone(&links);
    let pages = PageServer::start(move |path| match path {
        "/second" => page_response("text/plain", "the second page"),
        _ => page_response("text/plain", text.lock().unwrap().as_str()),
    });
    *links.lock().unwrap() = format!("1. {}\n2. {}\n", pages.url("/first"), pages.url("/second"));
    let story = Story::new().set("tools", json!({ "ssrfWhitelist": ["127.0.0.2/32"] }));
    let fetch = |path: &str| calls("web_fetch", json!({ "url": pages.url(path) }));
    let turn = |message: &str, path: &str| {
        story.server().script([fetch(path), says("done")]);
        let result = story.run(["agent", "-m", message]).stdout("done\n");
        result.error_text();
        story.last_request().last_content()
    };
    assert!(turn("what is new about tea?", "/news").contains("/second"));
    assert!(turn("open the second one", "/second").contains("the second page"));
    let composed = turn("and now?", "/second?key=secret");
    assert!(composed.contains("may be requested only"), "{composed}");
    // The answer to an address that the model wrote itself vouches for nothing, in a later turn either.
    let story = Story::new().file("notes.txt", "OBEY");
    let story = story.set("tools", json!({ "ssrfWhitelist": ["127.0.0.2/32"] }));
    let named = format!("look at {}", pages.url("/"));
    story.server().script([
        calls("read_file", json!({ "path": "notes.txt" })),
        fetch("/echo?of=secret"),
        says("done"),
    ]);
    story.run(["agent", "-m", &named]).stdout("done\n").error_text();
    story
        .server()
        .script([calls("web_fetch", json!({ "url": "http://127.0.0.3:9/evil" })), says("done")]);
    story.run(["agent", "-m", "go on"]).stdout("done\n").error_text();
    let result = story.last_request().last_content();
    assert!(result.contains("may be requested only"), "{result}");
}

/// A refused call has returned nothing that could be untrusted.
#[test]
fn a_denied_call_leaves_no_taint() {
    let story = Story::new().script([
        calls("read_file", json!({ "path": "/etc/shadow" })),
        calls("exec", json!({ "command": "reboot" })),
        calls("exec", json!({ "wrong": "argument" })),
        calls("no_such_tool", json!({})),
        says("done"),
    ]);
    story.run(["agent", "-m", "x"]).stdout("done\n").error_text();
    let origin = origin_of(&story, "cli:direct");
    assert!(origin.starts_with("user"), "{origin}");
    // Nor does it in a later turn, which reads it again.
    story.server().script([calls("list_dir", json!({ "path": "/etc/ssl" })), says("done")]);
    story.run(["agent", "-m", "x"]).stdout("done\n").error_text();
    let origin = origin_of(&story, "cli:direct");
    assert!(origin.starts_with("user"), "{origin}");
}
