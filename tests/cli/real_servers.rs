//! Public MCP servers, as fetched by `.ci/mcp` into `target/mcp`: tools, calls, errors, images, progress and shutdown, all
//! in the sandbox. If they are not installed, the stories are skipped with a notice.

use crate::needs::skip;
use crate::server::{calls, says};
use crate::story::Story;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("target/mcp")
}

/// The path of a fetched program; `None`, with a skip notice, if it was not fetched.
fn fetched(program: &str) -> Option<String> {
    let folder = folder();
    let path = match program.contains('-') && folder.join("venv/bin").join(program).exists() {
        true => folder.join("venv/bin").join(program),
        false => folder.join("node_modules/.bin").join(program),
    };
    let ready = folder.join("versions").exists() && path.exists();
    if !ready {
        skip(&format!("`.ci/mcp` has not fetched `{program}`"));
    }
    ready.then(|| path.to_str().unwrap().to_owned())
}

/// A story with the server `s`.
fn story(server: Value) -> Story {
    let mut server = server;
    // They are scripts whose interpreters may be in the user's home.
    if server["command"].is_string() {
        let mut read = vec![folder().to_str().unwrap().to_owned()];
        let python = std::fs::read_to_string(folder().join("venv/pyvenv.cfg")).unwrap_or_default();
        let home = python
            .lines()
            .find_map(|line| line.strip_prefix("home = "))
            .and_then(|home| Path::new(home).parent());
        read.extend(home.map(|home| home.to_str().unwrap().to_owned()));
        server["read"] = json!(read);
    }
    server["startTimeout"] = json!(60);
    Story::new().set("tools.mcpServers.s", server)
}

/// `mcp call` of a tool that succeeds.
#[track_caller]
fn call(story: &Story, tool: &str, arguments: &Value) -> String {
    let ran = story.run(["mcp", "call", "s", tool, &arguments.to_string()]);
    let (output, complaints) = (ran.text(), ran.error_text());
    assert_eq!(ran.code(), 0, "{output}{complaints}");
    output
}

/// `mcp call` of a tool that fails.
#[track_caller]
fn fails(story: &Story, tool: &str, arguments: &Value) -> String {
    let ran = story.run(["mcp", "call", "s", tool, &arguments.to_string()]);
    let said = ran.text() + &ran.error_text();
    assert_eq!(ran.code(), 1, "{said}");
    said
}

/// The output of `mcp test` for a working server.
#[track_caller]
fn test(story: &Story) -> String {
    let ran = story.run(["mcp", "test", "s"]);
    let said = ran.text();
    assert_eq!(ran.code(), 0, "{said}{}", ran.error_text());
    ran.error_text();
    is_over(story);
    said
}

/// Checks that no process of the story's home is left.
#[track_caller]
fn is_over(story: &Story) {
    let home = format!("HOME={}\0", story.home().display());
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let environ = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let is_left = String::from_utf8_lossy(&environ).contains(&home);
        assert!(!is_left, "{} is left", String::from_utf8_lossy(&line));
    }
}

/// Checks all features of server-everything over any transport.
fn everything(story: &Story) {
    let said = test(story);
    assert!(said.contains("2025-11-25"), "{said}");
    assert!(call(story, "echo", &json!({ "message": "hi" })).contains("Echo: hi"));
    assert!(call(story, "get-sum", &json!({ "a": 2, "b": 3 })).contains('5'));
    assert!(fails(story, "get-sum", &json!({ "a": 2, "b": "x" })).contains("number"));
    let city = json!({ "location": "New York" });
    assert!(call(story, "get-structured-content", &city).contains("temperature"));
    let reference = json!({ "resourceType": "Text", "resourceId": 1 });
    let resource = call(story, "get-resource-reference", &reference);
    assert!(resource.contains("demo://resource/dynamic/text/1"));
    // A turn with an image for the model and progress notifications.
    story.server().script([
        calls("mcp_s_get-tiny-image", json!({})),
        calls(
            "mcp_s_trigger-long-running-operation",
            json!({ "duration": 1, "steps": 2 }),
        ),
        says("Seen."),
    ]);
    let ran = story
        .run(["agent", "-m", "look", "--json", "--new"])
        .status(0);
    assert_eq!(ran.json()["text"], "Seen.", "{}", ran.text());
    ran.error_text();
    let asked = story.asked();
    let raw = &asked[asked.len() - 2].raw;
    assert!(raw.contains("iVBORw0KGgo"), "no picture in {raw:.3000}");
    assert!(asked.last().unwrap().last().contains("completed"));
    is_over(story);
}

#[test]
fn the_server_that_shows_everything() {
    if let Some(command) = fetched("mcp-server-everything") {
        let story = story(json!({ "command": command, "args": ["stdio"] }));
        everything(&story);
        let variables = call(&story, "get-env", &json!({}));
        assert!(!variables.contains("NANOBOT_TEST"), "{variables}");
    }
}

/// An HTTP server, which is killed at the end of its story.
struct Remote(Child);

impl Drop for Remote {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Starts server-everything as a listening server; returns it and its port.
fn listening(command: &str, way: &str) -> (Remote, u16) {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    // Not only by closing it: a process that another test is about to start may still share it.
    rustix::net::shutdown(&free, rustix::net::Shutdown::Both).unwrap();
    drop(free);
    let mut server = Command::new(command)
        .arg(way)
        .env("PORT", port.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(server.stderr.take().unwrap()).lines();
    let is_ready = |line: std::io::Result<String>| line.unwrap().contains("on port");
    assert!(lines.by_ref().any(is_ready), "it does not listen");
    // The server keeps printing and would block if nobody read its output.
    std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
    (Remote(server), port)
}

#[test]
fn the_same_over_http() {
    if let Some(command) = fetched("mcp-server-everything") {
        let (_remote, port) = listening(&command, "streamableHttp");
        everything(&story(
            json!({ "url": format!("http://127.0.0.1:{port}/mcp") }),
        ));
    }
}

#[test]
fn the_same_in_the_older_way() {
    if let Some(command) = fetched("mcp-server-everything") {
        let (_remote, port) = listening(&command, "sse");
        everything(&story(
            json!({ "url": format!("http://127.0.0.1:{port}/sse") }),
        ));
    }
}

#[test]
fn a_server_of_files() {
    let Some(command) = fetched("mcp-server-filesystem") else {
        return;
    };
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("notes.md"), "buy milk\n").unwrap();
    // The directory is in the server's arguments, which grants write access to it.
    let story = story(json!({ "command": command, "args": [place.path()] }));
    assert!(test(&story).contains("2025-"));
    let read = call(
        &story,
        "read_text_file",
        &json!({ "path": path("notes.md") }),
    );
    assert!(read.contains("buy milk"), "{read}");
    let new = json!({ "path": path("new.md"), "content": "and bread\n" });
    call(&story, "write_file", &new);
    assert_eq!(
        std::fs::read_to_string(path("new.md")).unwrap(),
        "and bread\n"
    );
    let denied = fails(&story, "read_text_file", &json!({ "path": "/etc/passwd" }));
    assert!(denied.contains("denied"), "{denied}");
    is_over(&story);
}

#[test]
fn a_server_that_remembers() {
    let Some(command) = fetched("mcp-server-memory") else {
        return;
    };
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("memory.jsonl");
    let story = story(
        json!({ "command": command, "env": { "MEMORY_FILE_PATH": file },
                              "write": [place.path()] }),
    );
    let ada = json!({ "name": "Ada", "entityType": "person", "observations": ["likes milk"] });
    call(&story, "create_entities", &json!({ "entities": [ada] }));
    let known = call(&story, "read_graph", &json!({}));
    assert!(known.contains("likes milk"), "{known}");
    assert!(std::fs::read_to_string(file).unwrap().contains("Ada"));
    is_over(&story);
}

#[test]
fn a_server_of_time() {
    let Some(command) = fetched("mcp-server-time") else {
        return;
    };
    let story = story(json!({ "command": command }));
    assert!(test(&story).contains("2025-"));
    let berlin = json!({ "timezone": "Europe/Berlin" });
    let time = call(&story, "get_current_time", &berlin);
    assert!(time.contains("Europe/Berlin"), "{time}");
    let nowhere = json!({ "timezone": "Nowhere" });
    assert!(fails(&story, "get_current_time", &nowhere).contains("Nowhere"));
    is_over(&story);
}

#[test]
fn a_server_of_git() {
    let Some(command) = fetched("mcp-server-git") else {
        return;
    };
    let place = tempfile::tempdir().unwrap();
    let made = Command::new("git")
        .args(["init", "--quiet"])
        .arg(place.path())
        .status();
    assert!(made.unwrap().success());
    std::fs::write(place.path().join("notes.md"), "buy milk\n").unwrap();
    let story = story(json!({ "command": command, "args": ["--repository", place.path()] }));
    let here = json!({ "repo_path": place.path() });
    let status = call(&story, "git_status", &here);
    assert!(status.contains("notes.md"), "{status}");
    let add = json!({ "repo_path": place.path(), "files": ["notes.md"] });
    call(&story, "git_add", &add);
    assert!(call(&story, "git_status", &here).contains("to be committed"));
    fails(&story, "git_status", &json!({ "repo_path": "/" }));
    is_over(&story);
}
