//! Public MCP servers, as fetched by `.ci/fetch` into `target/mcp`: tools, calls, errors, images, progress and shutdown, all
//! in the sandbox. If they are not installed, the stories are skipped with a notice.

use crate::listener::unused_port;
use crate::requirements::skip;
use crate::server::{calls, says};
use crate::story::Story;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

fn servers_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("target/mcp")
}

/// The path of a fetched program; `None`, with a skip notice, if it was not fetched.
fn program_path(program: &str) -> Option<String> {
    let folder = servers_dir();
    let path = if program.contains('-') && folder.join("venv/bin").join(program).exists() {
        folder.join("venv/bin").join(program)
    } else {
        folder.join("node_modules/.bin").join(program)
    };
    let ready = folder.join("versions").exists() && path.exists();
    if !ready {
        skip(&format!("`.ci/fetch` has not fetched `{program}`"));
    }
    ready.then(|| path.to_str().unwrap().to_owned())
}

/// A story with the server `s`.
fn story_with_server(server: Value) -> Story {
    let mut server = server;
    // They are scripts whose interpreters may be in the user's home.
    if server["command"].is_string() {
        let mut read = vec![servers_dir().to_str().unwrap().to_owned()];
        let python =
            std::fs::read_to_string(servers_dir().join("venv/pyvenv.cfg")).unwrap_or_default();
        let home = python
            .lines()
            .find_map(|line| line.strip_prefix("home = "))
            .and_then(|home| Path::new(home).parent());
        read.extend(home.map(|home| home.to_str().unwrap().to_owned()));
        server["read"] = json!(read);
    }
    server["startTimeout"] = json!(60);
    server["sampling"] = json!("on");
    Story::new().set("tools.mcpServers.s", server)
}

/// `tool run` of a tool that succeeds.
#[track_caller]
fn call_tool(story: &Story, tool: &str, arguments: &Value) -> String {
    let result = story.run(["tool", "run", "s", tool, &arguments.to_string()]);
    let (output, complaints) = (result.text(), result.error_text());
    assert_eq!(result.code(), 0, "{output}{complaints}");
    output
}

/// `tool run` of a tool that fails.
#[track_caller]
fn call_tool_and_fail(story: &Story, tool: &str, arguments: &Value) -> String {
    let result = story.run(["tool", "run", "s", tool, &arguments.to_string()]);
    let stderr = result.text() + &result.error_text();
    assert_eq!(result.code(), 1, "{stderr}");
    stderr
}

/// The output of `mcp check` for a working server.
#[track_caller]
fn test_server(story: &Story) -> String {
    let result = story.run(["mcp", "check", "s"]);
    let stdout = result.text();
    assert_eq!(result.code(), 0, "{stdout}{}", result.error_text());
    result.error_text();
    assert_no_processes(story);
    stdout
}

/// Checks that no process of the story's home is left.
#[track_caller]
fn assert_no_processes(story: &Story) {
    let home = format!("HOME={}\0", story.home().display());
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let environ = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let is_left = String::from_utf8_lossy(&environ).contains(&home);
        assert!(!is_left, "{} is left", String::from_utf8_lossy(&line));
    }
}

/// Checks all features of server-everything over any transport.
fn check_everything_server(story: &Story) {
    let output = test_server(story);
    assert!(output.contains("2025-11-25"), "{output}");
    assert!(call_tool(story, "echo", &json!({ "message": "hi" })).contains("Echo: hi"));
    assert!(call_tool(story, "get-sum", &json!({ "a": 2, "b": 3 })).contains('5'));
    assert!(call_tool_and_fail(story, "get-sum", &json!({ "a": 2, "b": "x" })).contains("number"));
    let city = json!({ "location": "New York" });
    assert!(call_tool(story, "get-structured-content", &city).contains("temperature"));
    let reference = json!({ "resourceType": "Text", "resourceId": 1 });
    let resource = call_tool(story, "get-resource-reference", &reference);
    assert!(resource.contains("demo://resource/dynamic/text/1"));
    // A turn with an image for the model and progress notifications.
    story.server().script([
        calls("mcp_s_get-tiny-image", json!({})),
        calls("mcp_s_trigger-long-running-operation", json!({ "duration": 1, "steps": 2 })),
        says("Seen."),
    ]);
    let result = story.run(["agent", "-m", "look", "--json", "--new"]).status(0);
    assert_eq!(result.json()["text"], "Seen.", "{}", result.text());
    result.error_text();
    let requests = story.requests();
    let raw = &requests[requests.len() - 2].raw;
    assert!(raw.contains("iVBORw0KGgo"), "no picture in {raw:.3000}");
    assert!(requests.last().unwrap().last_content().contains("completed"));
    assert_no_processes(story);
    check_everything_content(story);
    // The server has a reply of the model.
    story.server().script([
        calls(
            "mcp_s_trigger-sampling-request",
            json!({ "prompt": "which drink?", "maxTokens": 20 }),
        ),
        says("It is tea."),
        says("Seen."),
    ]);
    let flags = ["--new", "--allow", "mcp_s_*"];
    let result = story.run([&["agent", "-m", "ask"], &flags[..]].concat());
    assert_eq!(result.text(), "Seen.\n", "{}", result.error_text());
    result.error_text();
    let requests = story.requests();
    assert!(requests[requests.len() - 2].last_content().contains("which drink?"));
    assert!(requests.last().unwrap().last_content().contains("It is tea."));
    assert_no_processes(story);
}

/// Attaches resources of server-everything, and uses its prompts.
fn check_everything_content(story: &Story) {
    let text = "mcp:s:demo://resource/dynamic/text/7";
    let blob = "mcp:s:demo://resource/dynamic/blob/8";
    story.server().script([says("Read.")]);
    story.run(["agent", "--new", "-m", "sum up", "-a", text, "-a", blob]).stdout("Read.\n");
    let request = story.last_request().last_content();
    assert!(request.contains("Resource 7: This is a plaintext resource"), "{request}");
    assert!(request.contains("Resource 8: This is a base64 blob"), "{request}");
    let missing = story.run(["agent", "-m", "x", "-a", "mcp:s:demo://resource/nowhere"]);
    missing.status(66).stderr_has("demo://resource/nowhere");
    let template = "mcp:s:demo://resource/dynamic/text/{resourceId}";
    story.run(["agent", "-m", "x", "-a", template]).status(2).error_text();
    let weather = |city: &str| format!("/s:args-prompt {city}");
    story.run(["agent", "-m", &weather("Rome")]).status(77).error_text();
    let accept = ["mcp", "accept", "s", "--yes", "--prompt", "args-prompt Rome"];
    story.run(accept).stdout("What's weather in Rome?\n").stderr_has("accepted");
    story.server().script([says("Hot."), says("Cold.")]);
    story.run(["agent", "--new", "-m", &weather("Rome")]).stdout("Hot.\n");
    story.run(["agent", "--new", "-m", &weather("Oslo")]).stdout("Cold.\n");
    assert!(story.last_request().last_content().contains("\nWhat's weather in Oslo?\n"));
    let accept = ["mcp", "accept", "s", "--yes", "--prompt", "resource-prompt Text 3"];
    story.run(accept).stdout_has("This prompt includes the Text resource with id: 3.").error_text();
    story.server().script([says("Read.")]);
    story.run(["agent", "--new", "-m", "/s:resource-prompt Text 4"]).stdout("Read.\n");
    assert!(story.last_request().last_content().contains("Resource 4: This is a plaintext"));
    assert_no_processes(story);
}

#[test]
fn server_everything_over_stdio() {
    if let Some(command) = program_path("mcp-server-everything") {
        let story = story_with_server(json!({ "command": command, "args": ["stdio"] }));
        check_everything_server(&story);
        let variables = call_tool(&story, "get-env", &json!({}));
        assert!(!variables.contains("NANOBOT_TEST"), "{variables}");
    }
}

/// An HTTP server, which is killed at the end of its story.
struct RemoteServer(Child);

impl Drop for RemoteServer {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Starts server-everything as a listening server; returns it and its port.
fn start_everything_server(command: &str, transport: &str) -> (RemoteServer, u16) {
    let port = unused_port();
    let mut server = Command::new(command)
        .arg(transport)
        .env("PORT", port.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(server.stderr.take().unwrap()).lines();
    let is_ready = |line: std::io::Result<String>| line.unwrap().contains("on port");
    assert!(lines.by_ref().any(is_ready), "it does not listen");
    // The server keeps printing and would block if its output were not read.
    std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
    (RemoteServer(server), port)
}

#[test]
fn server_everything_over_http() {
    if let Some(command) = program_path("mcp-server-everything") {
        let (_remote, port) = start_everything_server(&command, "streamableHttp");
        check_everything_server(&story_with_server(
            json!({ "url": format!("http://127.0.0.1:{port}/mcp") }),
        ));
    }
}

#[test]
fn server_everything_over_sse() {
    if let Some(command) = program_path("mcp-server-everything") {
        let (_remote, port) = start_everything_server(&command, "sse");
        check_everything_server(&story_with_server(
            json!({ "url": format!("http://127.0.0.1:{port}/sse") }),
        ));
    }
}

#[test]
fn server_filesystem() {
    let Some(command) = program_path("mcp-server-filesystem") else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("notes.md"), "buy milk\n").unwrap();
    // The directory is in the server's arguments, which grants write access to it.
    let story = story_with_server(json!({ "command": command, "args": [dir.path()] }));
    assert!(test_server(&story).contains("2025-"));
    let read = call_tool(&story, "read_text_file", &json!({ "path": path("notes.md") }));
    assert!(read.contains("buy milk"), "{read}");
    let new = json!({ "path": path("new.md"), "content": "and bread\n" });
    call_tool(&story, "write_file", &new);
    assert_eq!(std::fs::read_to_string(path("new.md")).unwrap(), "and bread\n");
    let denied = call_tool_and_fail(&story, "read_text_file", &json!({ "path": "/etc/passwd" }));
    assert!(denied.contains("denied"), "{denied}");
    assert_no_processes(&story);
}

#[test]
fn server_memory() {
    let Some(command) = program_path("mcp-server-memory") else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("memory.jsonl");
    // As its README configures it: the file does not exist yet.
    let story =
        story_with_server(json!({ "command": command, "env": { "MEMORY_FILE_PATH": file } }));
    let ada = json!({ "name": "Ada", "entityType": "person", "observations": ["likes milk"] });
    call_tool(&story, "create_entities", &json!({ "entities": [ada] }));
    let result = call_tool(&story, "read_graph", &json!({}));
    assert!(result.contains("likes milk"), "{result}");
    assert!(std::fs::read_to_string(file).unwrap().contains("Ada"));
    assert_no_processes(&story);
}

#[test]
fn server_time() {
    let Some(command) = program_path("mcp-server-time") else {
        return;
    };
    let story = story_with_server(json!({ "command": command }));
    assert!(test_server(&story).contains("2025-"));
    let berlin = json!({ "timezone": "Europe/Berlin" });
    let time = call_tool(&story, "get_current_time", &berlin);
    assert!(time.contains("Europe/Berlin"), "{time}");
    let nowhere = json!({ "timezone": "Nowhere" });
    assert!(call_tool_and_fail(&story, "get_current_time", &nowhere).contains("Nowhere"));
    assert_no_processes(&story);
}

#[test]
fn server_git() {
    let Some(command) = program_path("mcp-server-git") else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let git_status = Command::new("git").args(["init", "--quiet"]).arg(dir.path()).status();
    assert!(git_status.unwrap().success());
    std::fs::write(dir.path().join("notes.md"), "buy milk\n").unwrap();
    let story =
        story_with_server(json!({ "command": command, "args": ["--repository", dir.path()] }));
    let here = json!({ "repo_path": dir.path() });
    let status = call_tool(&story, "git_status", &here);
    assert!(status.contains("notes.md"), "{status}");
    let add = json!({ "repo_path": dir.path(), "files": ["notes.md"] });
    call_tool(&story, "git_add", &add);
    assert!(call_tool(&story, "git_status", &here).contains("to be committed"));
    call_tool_and_fail(&story, "git_status", &json!({ "repo_path": "/" }));
    assert_no_processes(&story);
}
