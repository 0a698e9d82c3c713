//! The programs of MCP servers as version managers install them, and the environment that cron gives them.

use crate::mcp::{plain_tool, story_with_servers};
use crate::story::{Story, copy_program, write, write_program};
use serde_json::{Value, json};
use std::os::unix::fs::symlink;

/// The environment that cron gives a command.
fn in_cron(story: Story) -> Story {
    story.env("PATH", "/usr/bin:/bin")
}

fn plan() -> Value {
    json!({ "tools": [plain_tool("set")] })
}

/// A story whose server `one` is started by the program at `path` in the home.
fn story_with_program(path: &str) -> Story {
    let story = story_with_servers(&[("one", plan(), json!({}))]);
    let program = story.home().join(path);
    in_cron(story.set("tools.mcpServers.one.command", json!(program)))
}

/// Runs the program, `opt/node/bin/x`, as a copy of the shell that reads a file of its installation first.
fn install_interpreter(story: &Story, prefix: &str, name: &str) {
    let dir = story.home().join(prefix);
    write(&dir.join("lib/boot"), b"exec python3 \"$@\"\n");
    std::fs::create_dir_all(dir.join("bin")).unwrap();
    copy_program("/bin/sh", &dir.join("bin").join(name));
}

#[test]
fn a_server_may_read_all_that_runs_it() {
    // A link to a script of a virtual environment, whose interpreter is a link into an installation.
    let story = story_with_program("apps/server");
    let home = story.home();
    install_interpreter(&story, "opt/dist", "python9");
    std::fs::create_dir_all(home.join("opt/env/bin")).unwrap();
    std::fs::create_dir_all(home.join("apps")).unwrap();
    symlink("../../dist/bin/python9", home.join("opt/env/bin/python")).unwrap();
    let script = format!("#!{0}/opt/env/bin/python\n. {0}/opt/dist/lib/boot\n", home.display());
    write_program(&home.join("opt/tool/bin/server"), &script);
    symlink("../opt/tool/bin/server", home.join("apps/server")).unwrap();
    story.run(["mcp", "check"]).stdout_has("ok    one: ");

    // A shim, whose programs are in directories beside it.
    let story = story_with_program("opt/manager/shims/tool");
    let program = story.home().join("opt/manager");
    install_interpreter(&story, "opt/manager/versions/9", "python9");
    for (path, next) in
        [("shims/tool", "libexec/manager"), ("libexec/manager", "versions/9/bin/tool")]
    {
        let next = program.join(next);
        let text = format!("#!/usr/bin/env sh\nexec {} \"$@\"\n", next.display());
        write_program(&program.join(path), &text);
    }
    let version = program.join("versions/9");
    let text = format!("#!{0}/bin/python9\n. {0}/lib/boot\n", version.display());
    write_program(&version.join("bin/tool"), &text);
    story.run(["mcp", "check"]).stdout_has("ok    one: ");

    // A package whose interpreter is beside the link to it, and not on cron's PATH.
    let story = story_with_program("opt/node/bin/npx");
    let node = story.home().join("opt/node");
    install_interpreter(&story, "opt/node", "node9");
    let text = format!("#!/usr/bin/env node9\n. {}/lib/boot\n", node.display());
    write_program(&node.join("lib/node_modules/npm/bin/npx.js"), &text);
    symlink("../lib/node_modules/npm/bin/npx.js", node.join("bin/npx")).unwrap();
    story.run(["mcp", "check"]).stdout_has("ok    one: ");
}

#[test]
fn a_program_does_not_open_the_home_around_it() {
    let story = story_with_program("server");
    let home = story.home();
    write(&home.join("diary.txt"), b"secret");
    let script =
        format!("#!/bin/sh\ncat {0}/diary.txt && exit 9\nexec python3 \"$@\"\n", home.display());
    write_program(&home.join("server"), &script);
    story.run(["mcp", "check"]).stdout_has("ok    one: ");
}

#[test]
fn a_missing_interpreter_is_named() {
    let story = story_with_program("server");
    write_program(&story.home().join("server"), "#!/usr/bin/env node9\n");
    story
        .run(["mcp", "check"])
        .status(78)
        .stdout_has("is run by `node9`, which is not on the PATH");
    write_program(&story.home().join("server"), "#!/opt/node9/bin/node\n");
    story
        .run(["mcp", "check"])
        .status(78)
        .stdout_has("is run by `/opt/node9/bin/node`, which does not exist");
}

#[test]
fn servers_are_tested_in_the_environment_of_cron_too() {
    let story = story_with_servers(&[
        ("one", plan(), json!({ "env": { "TOKEN": "${TOKEN_OF_THE_SHELL}" } })),
        ("two", plan(), json!({})),
    ]);
    let story = story.env("TOKEN_OF_THE_SHELL", "abcd1234");
    story
        .run(["mcp", "check"])
        .stdout_has("ok    one: ")
        .stdout_has("ok    two: ")
        .stdout_has("warn  one: in a job started by cron: ")
        .stdout_has("TOKEN_OF_THE_SHELL");
    let lines = story.run(["mcp", "check", "--json"]).json_lines();
    let cron: Vec<&Value> = lines.iter().filter(|line| line["environment"] == "cron").collect();
    assert_eq!(cron.len(), 1, "{lines:?}");
    assert_eq!((&cron[0]["name"], &cron[0]["ok"]), (&json!("one"), &json!(false)));
    let result = story.run(["status", "check", "--offline"]);
    result.code();
    let text = result.text();
    assert!(text.contains("one: in a job started by cron: "), "{text}");
    assert!(!text.contains("two: in a job"), "{text}");
}

#[test]
fn the_check_offers_the_rules_for_tools_that_would_be_refused() {
    let check = |story: &Story| {
        let result = story.run(["status", "check", "--offline"]);
        result.code();
        result.text()
    };
    let story = story_with_servers(&[("one", plan(), json!({})), ("two", plan(), json!({}))]);
    let story = story.set("tools.allow", json!(["exec", "mcp_two_*"]));
    let text = check(&story);
    let line = r#"`nanobot config set tools.allow '["exec","mcp_two_*","mcp_one_*"]'`"#;
    assert!(text.contains("one: tools that do not claim to be read-only are refused"), "{text}");
    assert!(text.contains(line), "{text}");
    let story = story.set("tools.allow", json!(["mcp_*"]));
    let text = check(&story);
    assert!(!text.contains("are refused"), "{text}");
}
