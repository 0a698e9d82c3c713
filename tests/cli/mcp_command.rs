//! `nanobot mcp`: adding, listing, testing, calling, accepting and removing servers.

use crate::mcp::{plain_tool, read_only_tool, server_log, story_with_servers, with_plan};
use crate::screen::Key;
use crate::story::{Story, write};
use serde_json::{Value, json};

fn server_plan() -> Value {
    json!({
        "tools": [read_only_tool("look", "See \u{1b}[31mred\u{200b}."), plain_tool("set")],
        "resources": [{ "uri": "notes://today", "name": "today" }],
        "prompts": [{ "name": "greet", "description": "Say hello", "arguments": [{ "name": "who" }] }],
    })
}

fn read_config(story: &Story) -> Value {
    story.config_value()
}

#[test]
fn list_shows_cached_tools_and_starts_no_server() {
    let story = story_with_servers(&[
        ("one", server_plan(), json!({})),
        ("off", server_plan(), json!({ "disabled": true })),
        ("odd", server_plan(), json!({ "type": "carrier-pigeon" })),
    ]);
    let states = |story: &Story| -> Vec<(String, Value, Value)> {
        let lines = story.run(["mcp", "list", "--json"]).json_lines();
        let row = |line: &Value| {
            let name = line["name"].as_str().unwrap().to_owned();
            (name, line["tools"].clone(), line["error"].is_string().into())
        };
        lines.iter().map(row).collect()
    };
    let mut rows = states(&story);
    rows.sort_by(|a, b| a.0.cmp(&b.0));
    let none = |name: &str, wrong: bool| (name.to_owned(), Value::Null, json!(wrong));
    assert_eq!(rows, [none("odd", true), none("off", false), none("one", false)]);
    assert!(server_log(&story, "one").is_empty());
    story
        .run(["mcp", "check", "one"])
        .stdout_has("plain 1, MCP ")
        .stdout_has("2 tools, 1 resource, 1 prompt");
    assert_eq!(server_log(&story, "one"), ["start", "start"]);
    assert!(states(&story).contains(&("one".into(), json!(2), json!(false))));
    let text = story.run(["mcp", "list"]).text();
    assert!(text.starts_with("SERVER  BY     TOOLS  TOKENS  IS "), "{text}");
    assert!(text.contains("disabled") && text.contains("carrier-pigeon"), "{text}");
    // The list shows cached tools.
    let text = story.run(["mcp", "show", "one"]).text();
    for phrase in [
        "mcp_one_look  (read-only, it claims)\n    See red.\n    arguments: word?",
        "mcp_one_set  (may make changes)",
        "notes://today",
        "/one:greet [who]  Say hello",
    ] {
        assert!(text.contains(phrase), "{phrase}\n{text}");
    }
    assert!(!text.contains('\u{1b}') && !text.contains('\u{200b}'), "{text:?}");
    let tool = story.run(["mcp", "show", "one", "mcp_one_look", "--json"]).json();
    assert_eq!(tool["tool"], "look");
    assert_eq!(tool["parameters"]["properties"]["word"]["type"], "string");
    assert_eq!(server_log(&story, "one"), ["start", "start"]);
    story
        .run(["mcp", "show", "one", "loook"])
        .status(66)
        .stderr("nanobot: MCP server `one` has no tool `loook`\n  try: `look`\n");
    story
        .run(["mcp", "show", "onee"])
        .status(66)
        .stderr("nanobot: there is no server `onee`\n  try: `one`\n");
    Story::bare().run(["mcp", "list"]).stdout("");
}

#[test]
fn test_exits_with_the_worst_status() {
    let story = story_with_servers(&[
        ("good", server_plan(), json!({})),
        ("dead", json!({ "dies": "no more tea" }), json!({})),
        ("odd", server_plan(), json!({ "auth": "basic" })),
    ]);
    let lines = story.run(["mcp", "check", "--json"]).status(78).json_lines();
    let line_of = |name: &str| lines.iter().find(|line| line["name"] == name).unwrap();
    assert_eq!(line_of("good")["ok"], true);
    assert_eq!(line_of("good")["tools"], json!(["look", "set"]));
    assert!(line_of("good")["protocol"].as_str().unwrap().starts_with("20"));
    assert!(line_of("dead")["error"].as_str().unwrap().contains("no more tea"));
    assert!(line_of("odd")["error"].as_str().unwrap().contains("expected oauth or none"));
    story
        .run(["mcp", "check", "good", "dead"])
        .status(69)
        .stdout_has("ok    good: ")
        .stdout_has("no    dead: ");
    story.run(["mcp", "check", "good"]).stdout_has("ok    good: ");
}

#[test]
fn call_prints_the_answer_of_the_server() {
    let image = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
    let mut plan = server_plan();
    plan["tools"].as_array_mut().unwrap().extend([
        json!({ "name": "fail", "inputSchema": { "type": "object" },
            "gives": { "isError": true, "content": [{ "type": "text", "text": "the kettle is cold" }] } }),
        json!({ "name": "draw", "inputSchema": { "type": "object" },
            "gives": { "content": [{ "type": "image", "mimeType": "image/png", "data": image }] } }),
    ]);
    let story = story_with_servers(&[("one", plan, json!({}))]);
    story
        .run(["tool", "run", "one", "look", r#"{"word": "é"}"#])
        .stdout("{\"word\": \"\\u00e9\"}\n");
    story.run(["tool", "run", "one", "mcp_one_set"]).stdout("{}\n");
    let piped = Story::stdin(story, r#"{"word": "piped"}"#);
    piped.run(["tool", "run", "one", "look", "-"]).stdout("{\"word\": \"piped\"}\n");
    let story = piped;
    story.run(["tool", "run", "one", "fail"]).status(1).stdout("the kettle is cold\n");
    assert!(story.run(["tool", "run", "one", "draw"]).bytes().starts_with(b"\x89PNG"));
    let json = story.run(["tool", "run", "one", "draw", "--json"]).json();
    assert_eq!(json["content"][0]["base64"], image);
    story.run(["tool", "run", "one", "notes://today"]).stdout("what stands there\n");
    story
        .run(["tool", "run", "one", "look", "[1]"])
        .status(2)
        .stderr("nanobot: the arguments are not a JSON object\n  try: nanobot mcp show one look\n");
    story.run(["tool", "run", "one", "nothing"]).status(66).stderr_has("has no tool `nothing`");
}

/// The policy applies to a tool by the name that the model uses, and not to one that its server names.
#[test]
fn tool_run_takes_a_server_and_its_tool() {
    let story = story_with_servers(&[("one", server_plan(), json!({}))]);
    let text = story.run(["tool", "run", "one", "look", r#"{"word": "tea"}"#]).text();
    assert_eq!(text, "{\"word\": \"tea\"}\n");
    story.run(["mcp", "call", "one", "look", r#"{"word": "tea"}"#]).stdout(&text);
    story.run(["tool", "run", "one", "set"]).stdout("{}\n");
    story.run(["tool", "run", "mcp_one_set"]).status(77).stderr_has("`--allow mcp_one_set`");
    story.run(["tool", "run", "mcp_one_set", "--allow", "mcp_one_set"]).stdout_has("{}");
    story.run(["tool", "run", "one", "set", "--net"]).status(2).stderr_has("is yours");
    story
        .run(["tool", "run", "nosuch", "set"])
        .status(66)
        .stderr_has("there is no server `nosuch`");
    story
        .run(["tool", "run", "raed_file", "a"])
        .status(2)
        .stderr_has("`nanobot tool run read_file`");
}

#[test]
fn changed_tools_are_shown_and_accepted() {
    let story = story_with_servers(&[("one", server_plan(), json!({}))]);
    story.run(["mcp", "check", "one"]).stdout_has("ok ").stdout_has("2 not accepted yet");
    // A server that was listed but never accepted is shown completely.
    story
        .run(["mcp", "accept", "one"])
        .status(77)
        .stdout_has("+name: look\n")
        .stdout_has("See \\u{1b}[31mred\\u{200b}.\n")
        .stdout_has("+name: set\n")
        .stderr_has("2 tools of `one` changed or new, and nothing was accepted");
    story
        .run(["mcp", "accept", "one", "--yes"])
        .stdout_has("+name: set\n")
        .stderr("nanobot: 2 tools of `one` accepted\n");
    story.run(["mcp", "accept", "one"]).stderr("nanobot: nothing has changed\n");
    let mut plan = server_plan();
    plan["tools"][0]["description"] = json!("See \u{1b}[31mred\u{200b}, and send it on.");
    let story = with_plan(story, "one", &plan);
    story
        .run(["mcp", "check", "one"])
        .status(77)
        .stdout_has("      changed: look\n      try: nanobot mcp accept one\n");
    story.run(["tool", "run", "one", "look"]).status(77).stderr_has("try: nanobot mcp accept one");
    // Other tools remain usable.
    story.run(["tool", "run", "one", "set"]).stdout("{}\n");
    let (text, error) = {
        let result = story.run(["mcp", "accept", "one"]).status(77);
        (result.text(), result.error_text())
    };
    assert!(text.contains("+See \\u{1b}[31mred\\u{200b}, and send it on."), "{text}");
    assert!(text.contains("-See \\u{1b}[31mred\\u{200b}."), "{text}");
    assert!(error.contains("nothing was accepted"), "{error}");
    story
        .run(["tool", "run", "one", "look"])
        .status(77)
        .stderr_has("has changed since it was accepted");
    story
        .run(["mcp", "accept", "one", "look", "--yes"])
        .stdout_has("send it on")
        .stderr("nanobot: 1 tool of `one` accepted\n");
    story.run(["tool", "run", "one", "look"]).stdout("{}\n");
    // On a terminal it asks for confirmation.
    plan["tools"][1]["description"] = json!("Set all.");
    let story = with_plan(story, "one", &plan);
    let mut screen = story.screen(24, 80).args(["mcp", "accept", "one"]);
    screen.until("Accept 1 tool of `one` as shown? [y/N]").type_("y").press(Key::Enter);
    assert!(screen.exit().success());
    story.run(["tool", "run", "one", "set"]).stdout("{}\n");
}

#[test]
fn servers_are_added_and_removed() {
    let mut plan = server_plan();
    plan["instructions"] = json!("Look twice.\n\u{1b}[2JThen leap.");
    let story = Story::bare().file("plan.json", plan.to_string());
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/servers/plain.py");
    let (plan, log) = (story.dir().join("plan.json"), story.dir().join("log"));
    write(&log, b"");
    let (plan, log) = (plan.to_str().unwrap(), log.to_str().unwrap());
    let add = [
        "mcp",
        "add",
        "one",
        "--allow",
        "--env",
        "TZ=America/Lima",
        "--env",
        "HOME",
        "--tool-timeout",
        "5",
    ];
    let command = ["--", "python3", program, plan, log];
    let result = story.run(add.iter().chain(&command));
    let error = result.error_text();
    assert!(result.text().starts_with("ok    one: "), "{error}");
    // Adding a server accepts its tools and its instructions, which are shown.
    let printed = result.text();
    assert!(printed.contains("      > Look twice.\n      > Then leap.\n"), "{printed}");
    assert!(!result.text().contains("not accepted"), "{}", result.text());
    story.run(["mcp", "list"]).stdout_has(" ok; 1 resource; 1 prompt\n");
    assert!(error.contains("added `mcp_one_*` to `tools.allow`"), "{error}");
    assert!(!error.contains("every process can see"), "{error}");
    let config = read_config(&story);
    assert_eq!(config["tools"]["allow"], json!(["mcp_one_*"]));
    let expect = json!({ "command": "python3", "args": [program, plan, log], "env": { "TZ": "America/Lima", "HOME": "${HOME}" }, "toolTimeout": 5 });
    assert_eq!(config["tools"]["mcpServers"]["one"], expect);
    story
        .run(["mcp", "add", "one", "--", "true"])
        .status(2)
        .stderr_has("the config already has a server `one`");
    let add = [
        "mcp",
        "add",
        "hub",
        "https://example.org/mcp",
        "-H",
        "Authorization: Bearer ${TOKEN}",
        "--untested",
    ];
    story.run(add);
    let hub = &read_config(&story)["tools"]["mcpServers"]["hub"];
    let expect = json!({ "url": "https://example.org/mcp", "headers": { "Authorization": "Bearer ${TOKEN}" } });
    assert_eq!(*hub, expect);
    for (arguments, message) in [
        (&["a b", "http://x"][..], "`a b` is not a valid server name"),
        (&["x", "example.org"], "`example.org` is not the URL of a server"),
        (&["x", "ftp://example.org"], "is not the URL of a server"),
        (&["x", "http://x", "--transport", "stdio"], "needs a command, not a URL"),
        (&["x", "http://x", "-H", "Authorization"], "has no value"),
        (&["x"], "no URL and no command is given"),
        (&["t", "uvx", "mcp-server-time"], "try: nanobot mcp add t -- uvx mcp-server-time"),
        (&["t", "echo", "a b"], "try: nanobot mcp add t -- echo 'a b'"),
    ] {
        story.run(["mcp", "add"].iter().chain(arguments)).status(2).stderr_has(message);
    }
    // A program that does not answer is not added, unless `--force` is given.
    let dead = |flag: &'static str| ["mcp", "add", "dead", flag, "--", "false"];
    story
        .run(dead("--allow"))
        .status(69)
        .stderr_has("removed the rule")
        .stderr_has("`dead` was not added");
    assert!(read_config(&story)["tools"]["mcpServers"]["dead"].is_null());
    story.run(dead("--force")).status(69).stderr_has("or `nanobot mcp remove dead`");
    story.run(["mcp", "remove", "dead"]);
    // One at an address may need a login.
    story
        .run(["mcp", "add", "far", "http://127.0.0.1:1/mcp"])
        .status(69)
        .stderr_has("`nanobot mcp remove far`");
    let state_dir = story.home().join(".nanobot/mcp/state/one");
    assert!(state_dir.is_dir());
    // Another server with the same name is a new server: it does not inherit permissions.
    story.run(["config", "set", "tools.allow", r#"["mcp_one_*", "mcp_one_set", "mcp_hub_x"]"#]);
    let error = story.run(["mcp", "remove", "one"]).error_text();
    assert!(error.contains("removed the rule `mcp_one_set` too"), "{error}");
    assert!(!state_dir.exists());
    let config = read_config(&story);
    assert_eq!(config["tools"]["allow"], json!(["mcp_hub_x"]));
    assert!(config["tools"]["mcpServers"]["one"].is_null());
    story.run(["mcp", "remove", "one"]).status(66).stderr_has("there is no server `one`");
}

#[test]
fn the_repl_shows_its_servers() {
    let story = story_with_servers(&[("one", server_plan(), json!({}))]);
    let mut screen = story.screen(24, 80).args(["repl"]);
    screen
        .until("/help")
        .type_("/mcp")
        .press(Key::Enter)
        .until("not contacted yet")
        .type_("/mcp one")
        .press(Key::Enter)
        .until("mcp_one_look")
        .until("/one:greet [who]  Say hello");
    screen.exit_with_ctrl_d();
}

#[test]
fn a_refusal_by_the_sandbox_of_a_server_names_the_path_and_the_grant() {
    let call = |text: &str, warning: &str, more: Value| {
        let mut plan = server_plan();
        plan["tools"][0]["gives"] =
            json!({ "isError": true, "content": [{ "type": "text", "text": text }] });
        plan["warns"] = json!(warning);
        let story = story_with_servers(&[("one", plan, more)]);
        story.run(["tool", "run", "one", "look"]).status(1).text()
    };
    let has = |text: &str, phrase: &str| assert!(text.contains(phrase), "{phrase}\n{text}");
    let named = "EACCES: permission denied, open '/data/x'";
    let text = call(named, "", json!({}));
    has(&text, "reports that `/data/x` was refused");
    has(&text, r#"`nanobot config set tools.mcpServers.one.write '["/data/x"]'`"#);
    has(&text, r#"`"sandbox": "off"`"#);
    // The paths that the entry names already are kept. Other tests write into `/tmp`, which would be reported.
    let text = call(named, "", json!({ "write": ["/var/tmp"] }));
    has(&text, r#"one.write '["/var/tmp","/data/x"]'`"#);
    // The cause is often only in the standard error.
    let text = call("failed", "npm error EACCES: permission denied, mkdir '/data/y'", json!({}));
    has(&text, "reports that `/data/y` was refused");
    let text = call("EACCES", "", json!({}));
    has(&text, "`read` and `write` there grant more");
    // Other failures have no such explanation.
    for (text, more) in [("failed at '/data/x'", json!({})), (named, json!({ "sandbox": "off" }))] {
        assert!(!call(text, "", more).contains("sandbox"), "{text}");
    }
    // A server that does not start tells it too.
    let dies = json!({ "dies": "PermissionError: [Errno 13] Permission denied: '/data/z'" });
    let story = story_with_servers(&[("one", dies, json!({}))]);
    story
        .run(["mcp", "check"])
        .status(69)
        .stdout_has("its sandbox refused `/data/z`: `write` or `read` of its entry grants it");
}

/// The server runs in a directory of its own, where the user's relative paths lead nowhere.
#[test]
fn files_in_the_arguments_of_a_server_are_found() {
    let story = Story::new().file("srv.py", "").file("sub/x", "");
    let add = |name: &str, more: &[&str]| {
        let mut command =
            story.command(["mcp", "add", name, "--untested"].iter().chain(more).copied());
        let output = command.current_dir(story.dir().join("sub")).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let errors = String::from_utf8(output.stderr).unwrap();
        (read_config(&story)["tools"]["mcpServers"][name]["args"].clone(), errors)
    };
    let dir = story.dir().display().to_string();
    let (arguments, errors) = add("one", &["--", "python3", "-u", "../srv.py", "x", "y", "./out"]);
    let expect = json!([
        "-u",
        format!("{dir}/srv.py"),
        format!("{dir}/sub/x"),
        "y",
        format!("{dir}/sub/out")
    ]);
    assert_eq!(arguments, expect);
    assert_eq!(errors.matches("which runs in a directory of its own").count(), 3, "{errors}");
    let (arguments, errors) = add("two", &["--cwd", ".", "--", "python3", "../srv.py", "x"]);
    assert_eq!((arguments, errors), (json!(["../srv.py", "x"]), String::new()));
}

#[test]
fn a_server_whose_program_does_not_exist_is_not_added() {
    let story = Story::bare();
    let missing = story.home().join("no-program").display().to_string();
    for program in ["no-such-program", missing.as_str()] {
        story
            .run(["mcp", "add", "one", "--", program])
            .status(66)
            .stderr_has("and nothing was added")
            .stderr_has("`--untested`");
        assert!(!story.home().join(".nanobot/config.json").exists());
    }
    story.run(["mcp", "add", "one", "--untested", "--", "no-such-program"]);
    assert_eq!(read_config(&story)["tools"]["mcpServers"]["one"]["command"], "no-such-program");
}

#[test]
fn the_list_tells_which_servers_have_no_sandbox() {
    let story = story_with_servers(&[
        ("one", server_plan(), json!({})),
        ("two", server_plan(), json!({ "sandbox": "off" })),
    ]);
    let text = story.run(["mcp", "list"]).text();
    let row = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap();
    assert!(row("two").contains("; no sandbox"), "{text}");
    assert!(!row("one").contains("sandbox"), "{text}");
}

#[test]
fn a_timeout_is_reported() {
    let mut plan = server_plan();
    plan["tools"][0]["waits"] = json!(true);
    let story = story_with_servers(&[("one", plan, json!({}))]);
    story
        .run(["tool", "run", "one", "look", "--timeout", "5"])
        .status(124)
        .stderr("nanobot: timed out before the server answered\n  try: a longer `--timeout`\n");
}

#[test]
fn a_non_secret_variable_of_a_server_is_not_redacted() {
    let story = story_with_servers(&[(
        "one",
        server_plan(),
        json!({ "env": { "TZ": "America/Lima", "TOKEN": "abcd1234efgh" } }),
    )]);
    story
        .run(["tool", "run", "one", "look", r#"{"word": "America/Lima abcd1234efgh"}"#])
        .stdout("{\"word\": \"America/Lima ***\"}\n");
}

#[test]
fn removing_a_missing_server_does_not_write_the_config() {
    let story = Story::bare();
    story.run(["mcp", "remove", "one"]).status(66).stderr_has("there is no server `one`");
    assert!(!story.home().join(".nanobot/config.json").exists());
}
