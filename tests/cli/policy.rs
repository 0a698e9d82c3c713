//! Permissions of a run: profiles, permissions and rules, how they are shown, and the effects of a denial.

use crate::screen::Key;
use crate::server::{Ending, Response, calls, says, sends, tool_names};
use crate::story::{Story, write};
use crate::web::{PageServer, page_response};
use nanobot_config::policy::tool_names::BUILT_IN_TOOLS;
use serde_json::{Value, json};
use std::io::Write;

fn with_tools(story: Story, tools: Value) -> Story {
    story.set("tools", tools)
}

#[test]
fn tools_are_filtered_by_names_and_patterns() {
    let offered = |flags: &[&str]| -> Vec<String> {
        let story = Story::new();
        tool_names(&story.run([&["agent", "-m", "x", "--dry-run"], flags].concat()).json())
    };
    assert_eq!(offered(&["--tools", "read_*,grep"]), ["read_file", "grep"]);
    assert_eq!(
        offered(&["--tools", "*_file", "--disabled-tools", "write_file, delete_*"]),
        ["read_file", "edit_file"]
    );
    let rest = offered(&["--disabled-tools", "exec,web_*"]);
    assert!(rest.contains(&"read_file".to_owned()), "{rest:?}");
    assert!(!rest.iter().any(|name| name == "exec" || name.starts_with("web_")), "{rest:?}");
    // Patterns for the tools of servers match none where no server is configured.
    assert_eq!(offered(&["--tools", "glob,mcp_*"]), ["glob"]);
    let story = Story::new();
    let fails = |flags: [&str; 2], message: &str| {
        let result = story.run([&["agent", "-m", "x"], &flags[..]].concat());
        result.status(2).stderr_has(message);
    };
    fails(["--tools", "raed_*"], "there is no tool `raed_*`");
    fails(["--disabled-tools", "exce"], "did you mean `exec`?");
    fails(["--disabled-tools", "exec(rm *)"], "which `--deny` takes");
    // A profile lists patterns too.
    write(
        &story.home().join(".nanobot/profiles/reader.md"),
        b"---\ntools: [read_*, grep]\n---\nRead.\n",
    );
    let request = story.run(["agent", "-m", "x", "--dry-run", "--profile", "reader"]).json();
    assert_eq!(request["tools"].as_array().unwrap().len(), 2);
}

#[test]
fn a_denial_is_final_reported_once_and_names_its_flag() {
    let write = || calls("write_file", json!({ "path": "a", "content": "x" }));
    let story = Story::new().script([write(), write(), says("Not allowed.")]);
    let stderr = story.run(["agent", "-m", "x"]).stdout("Not allowed.\n").error_text();
    assert_eq!(stderr.matches("denied: write_file").count(), 1, "{stderr}");
    assert!(stderr.contains("--write"), "{stderr}");
    let result = story.requests()[1].last_content();
    assert!(result.contains("Tool call denied: ") && result.contains("final"), "{result}");
}

#[test]
fn the_same_denial_three_times_ends_the_turn() {
    // Another content, but the same call.
    let write = |text: &str| calls("write_file", json!({ "path": "a", "content": text }));
    let story = Story::new().script([write("1"), write("2"), write("3"), says("It is refused.")]);
    story
        .run(["agent", "-m", "x"])
        .stdout("It is refused.\n")
        .stderr_has(
            "stopped because the same call of `write_file` was repeatedly denied\n  try: `--write`\n",
        )
        .status(77);
    assert!(
        story.requests()[3].body["tools"].is_null()
            || story.requests()[3].body["tool_choice"] == "none"
    );
    assert!(!story.dir().join("a").exists());
}

/// A rule denies each of them, but they are not the same call.
#[test]
fn denials_of_different_commands_do_not_end_the_turn() {
    let run = |command: &str| calls("exec", json!({ "command": command }));
    let rule = ["agent", "-m", "x", "--deny", "exec(git push*)"];
    let different = [run("git push"), run("git push -f"), run("git push origin"), says("Refused.")];
    let story = Story::new().script(different);
    story.run(rule).stdout("Refused.\n").stderr_has("denied: exec");
    let same = [run("git push"), run("git push"), run("git push"), says("Refused.")];
    let story = Story::new().script(same);
    story.run(rule).stdout("Refused.\n").stderr_has("repeatedly denied").status(77);
}

#[test]
fn only_probable_accidents_are_refused_as_explain_says() {
    let story = Story::new().file("b/old", "x");
    let check = |command: &str, status: i32| {
        let arguments = json!({ "command": command }).to_string();
        for ask in [["policy", "explain"], ["tool", "run"]] {
            let result = story.run([&ask[..], &["exec", &arguments, "--write"]].concat());
            let result = result.status(status);
            let output = [result.text(), result.error_text()].concat();
            if status == 77 {
                assert!(output.contains(&format!("`{command}`")), "{output}");
            }
        }
    };
    check("cd b && rm -rf *", 0);
    assert!(!story.dir().join("b/old").exists());
    check("cat > notes.md <<E\nSteps:\nreboot the router\nE", 0);
    check("shutdown -h now", 77);
    // Different accidents are not the same call.
    let run = |command: &str| calls("exec", json!({ "command": command }));
    let accidents = [run("reboot"), run("halt"), run("poweroff"), says("All refused.")];
    story.server().script(accidents);
    let result = story.run(["agent", "-m", "x"]).stdout("All refused.\n");
    assert_eq!(result.error_text().matches("denied: exec").count(), 3);
}

#[test]
fn deny_rules_know_the_usual_globs() {
    let story = Story::new().file(".env", "KEY=1").file("sub/.env", "KEY=2");
    let whole = format!("{}/**/.env", story.dir().display());
    for glob in ["**/.env", &whole, "{.env,x}", "[.]env"] {
        for path in [".env", "sub/.env"] {
            let arguments = json!({ "path": path }).to_string();
            let rule = format!("read_file({glob})");
            story
                .run(["tool", "run", "read_file", &arguments, "--deny", &rule])
                .status(77)
                .stderr_has("is denied by the rule `read_file(");
        }
    }
}

#[test]
fn a_deny_rule_through_a_link_denies_what_the_link_leads_to() {
    let story = Story::new()
        .file("data/secret/k", "THE SECRET")
        .file("data/open", "open")
        .file("real.env", "THE SECRET");
    let dir = story.dir();
    for (target, link) in [("data", "link"), ("real.env", ".env")] {
        std::os::unix::fs::symlink(target, dir.join(link)).unwrap();
    }
    std::os::unix::fs::symlink(dir.parent().unwrap(), story.home().join("up")).unwrap();
    let run = |rule: &str, tool: &str, arguments: serde_json::Value| {
        story.run(["tool", "run", tool, &arguments.to_string(), "--deny", rule])
    };
    let whole = dir.display().to_string();
    let name = dir.file_name().unwrap().to_str().unwrap();
    for rule in [
        format!("{whole}/link/secret/**"),
        "link/secret".to_owned(),
        "./link/sec*".to_owned(),
        format!("~/up/{name}/link/secret/k"),
        format!("$HOME/up/{name}/data/secret/"),
        format!("{whole}//data/./secret/**"),
        format!("{whole}/../{name}/data/secret/**"),
        format!("../{name}/data/secret/**"),
        "data//secret/k".to_owned(),
        "data/secret/.".to_owned(),
    ] {
        let rule = format!("read_file({rule})");
        for path in ["data/secret/k", "link/secret/k"] {
            run(&rule, "read_file", json!({ "path": path }))
                .status(77)
                .stderr_has("is denied by the rule `read_file(");
        }
        let command = "cat data/secret/k link/secret/k 2>&1; true";
        let stdout = run(&rule, "exec", json!({ "command": command })).text();
        assert!(!stdout.contains("THE SECRET"), "{rule}: {stdout}");
        run(&rule, "read_file", json!({ "path": "link/open" })).stdout_has("open");
        story
            .run(["policy", "explain", "read_file", "data/secret/k", "--deny", &rule])
            .status(77)
            .stdout_has("denied by the rule");
    }
    run("read_file(.env)", "read_file", json!({ "path": "real.env" }))
        .status(77)
        .stderr_has("denied");
    let write = |path: &str| json!({ "path": path, "content": "x" }).to_string();
    let deny = ["--write", "--deny", "write_file(link/**)"];
    let arguments = [write("data/new"), write("new")];
    let [denied, allowed] = arguments
        .each_ref()
        .map(|arguments| ["tool", "run", "write_file", arguments].into_iter().chain(deny));
    story.run(denied).status(77).stderr_has("denied");
    drop(story.run(allowed).text());
    for (rule, expect) in [
        ("~root/x", "begins with `~root`, which is not expanded"),
        ("$DIR/x", "begins with `$DIR`, which is not expanded"),
        ("*/../x", "has `..` after `*`"),
    ] {
        run(&format!("read_file({rule})"), "read_file", json!({ "path": "x" }))
            .status(2)
            .stderr_has(expect);
    }
}

#[test]
fn a_call_that_needs_approval_is_denied_unless_a_rule_allows_it() {
    let story = with_tools(Story::new(), json!({ "permissions": { "exec": "ask" } }));
    let run = || calls("exec", json!({ "command": "echo hi" }));
    story.server().script([run(), says("no"), run(), says("yes"), run(), says("yes")]);
    story.run(["agent", "-m", "x", "--new"]).stdout("no\n").stderr_has("--allow exec");
    assert!(story.requests()[1].last_content().contains("--allow exec"));
    story.run(["agent", "-m", "x", "--new", "--allow", "exec"]).stdout("yes\n");
    assert!(story.requests()[3].last_content().contains("hi"));
    story.run(["agent", "-m", "x", "--new", "--profile", "auto-approve"]).stdout("yes\n");
    assert!(story.requests()[5].last_content().contains("hi"));
}

#[test]
fn rules_are_stored_and_mistakes_in_them_are_reported() {
    let story = Story::new().file("a.key", "secret").file("b", "open").script([
        calls("read_file", json!({ "path": "a.key" })),
        calls("list_dir", json!({ "path": "." })),
        calls("read_file", json!({ "path": "link" })),
        says("done"),
    ]);
    std::os::unix::fs::symlink("a.key", story.dir().join("link")).unwrap();
    let result = story.run(["agent", "-m", "x", "--deny", "read_file(*.key)"]).stdout("done\n");
    assert_eq!(result.error_text().matches("read_file(*.key)").count(), 1);
    let requests = story.requests();
    assert!(requests[1].last_content().contains("rule `read_file(*.key)`"));
    assert!(
        requests[2].last_content().contains('b') && !requests[2].last_content().contains("a.key")
    );
    assert!(!requests[3].last_content().contains("secret"));
    let check = |flags: &[&str], message: &str| {
        let all = ["agent", "-m", "x"].iter().chain(flags).copied();
        story.run(all).status(2).stderr_has(message);
    };
    check(&["--allow", "exec(git *)"], "confined by the sandbox, not by their text");
    check(&["--deny", "exec("], "closing");
    check(&["--deny", "read_file([a)"], "is not a valid glob for paths");
    check(&["--deny", "exce"], "did you mean `exec`?");
    check(&["--allow", "Exec"], "did you mean `exec`?");
    for net in ["", "foo bar", "http://foo/", "1.2.3.4:99999", "a,,b", "example.org/path"] {
        check(&[&format!("--net={net}")], "try: `--net=example.org,*.example.com`");
    }
    check(&["--profile", "yolo"], "there is no profile `yolo`");
    check(&["--profile", "explore"], "for sub-agents");
    check(
        &["--profile", "plan", "--write"],
        "profile `plan` is read-only, so `--write` cannot be used with it",
    );
    check(
        &["--profile", "full", "--sandbox", "strict"],
        "has no sandbox, but `--sandbox strict` requires one",
    );
    check(&["-C", "b"], "`b` is not a directory");
    check(&["--write", "out dir"], "try: --write='out dir'\n");
    check(&["--net", "example.org"], "try: --net=example.org\n");
}

#[test]
fn every_tool_of_a_run_is_known_by_name() {
    let story = Story::new()
        .set("channels.webhook.enabled", json!(true))
        .set("tools.imageGeneration.enabled", json!(true))
        .script([says("ok")]);
    story.run(["agent", "-m", "x", "--model", "gpt-5", "--allow", "sessions"]).stdout("ok\n");
    let body = &story.requests()[0].body;
    let mut offered: Vec<&str> = body["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["function"]["name"].as_str().unwrap())
        .collect();
    let mut tool_names: Vec<&str> = BUILT_IN_TOOLS.iter().map(|tool| tool.name).collect();
    offered.sort_unstable();
    tool_names.sort_unstable();
    assert_eq!(offered, tool_names);
}

#[test]
fn names_and_hosts_of_the_config_are_checked() {
    let check = |tools: Value, message: &str| {
        let story = with_tools(Story::new(), tools);
        story.run(["agent", "-m", "x"]).status(78).stderr_has(message);
        story.run(["config", "check"]).status(78).stdout_has(message);
    };
    check(json!({ "deny": ["exce"] }), "did you mean `exec`?");
    check(json!({ "allow": ["foo("] }), "closing");
    check(json!({ "permissions": { "exec": "sometimes" } }), "expected `always`, `ask` or `never`");
    check(json!({ "permissions": { "read": "never" } }), "is not a tool");
    check(json!({ "net": ["http://x/"] }), "is not a host");
    check(json!({ "exec": { "denyPatterns": ["("] } }), "is not a valid regular expression");
    // Variables are written in capitals.
    let story = Story::new().env("NANOBOT_TOOLS__PERMISSIONS__EXEC", "never").script([says("ok")]);
    story.run(["agent", "-m", "x", "--tools", "exec, read_file"]).stdout("ok\n");
    let tools = story.requests()[0].body["tools"].to_string();
    assert!(tools.contains("read_file") && !tools.contains("exec"), "{tools}");
}

#[test]
fn patterns_of_the_python_program_have_the_same_meaning() {
    let run = |command: &str| calls("exec", json!({ "command": command }));
    let tools =
        json!({ "exec": { "denyPatterns": ["\\bcurl\\b"], "allowPatterns": ["^echo", "curl"] } });
    let story = with_tools(Story::new(), tools).script([
        run("CURL x"),
        run("ls"),
        run("echo hi"),
        says("done"),
    ]);
    story.run(["agent", "-m", "x"]).stdout("done\n").stderr_has("denyPatterns");
    let requests = story.requests();
    assert!(requests[1].last_content().contains("denyPatterns"));
    assert!(requests[2].last_content().contains("allowPatterns"));
    assert!(requests[3].last_content().contains("hi"));
}

#[test]
fn the_plan_profile_offers_no_changing_tools_and_reports_it_once() {
    let story =
        Story::new().script([says("a plan"), says("still planning"), says("acting"), says("more")]);
    story.run(["agent", "-m", "x", "--profile", "plan"]).stdout("a plan\n");
    story.run(["agent", "-m", "y", "--profile", "plan"]).stdout("still planning\n");
    story.run(["agent", "-m", "z"]).stdout("acting\n");
    story.run(["agent", "-m", "z"]).stdout("more\n");
    let requests = story.requests();
    let count = |number: usize, phrase: &str| {
        requests[number].body["messages"].to_string().matches(phrase).count()
    };
    assert_eq!([0, 1, 2, 3].map(|number| count(number, "Plan mode: ")), [1, 1, 1, 1]);
    assert_eq!([0, 1, 2, 3].map(|number| count(number, "Plan mode is over")), [0, 0, 1, 1]);
    let names = |number: usize| requests[number].body["tools"].to_string();
    assert!(!names(0).contains("write_file") && names(0).contains("read_file"));
    assert!(names(2).contains("write_file"));
}

#[test]
fn custom_profiles_set_prompt_tools_rules_and_model() {
    let story = Story::new().script([says("ok")]);
    let path = story.home().join(".nanobot/profiles/reviewer.md");
    let text = "---\ndescription: reviews\nextends: plan\nmodel: other\ntools: [read_file, exec]\n---\nYou review code.\n";
    crate::story::write(&path, text.as_bytes());
    story.run(["agent", "-m", "x", "--profile", "reviewer"]).stdout("ok\n");
    let body = &story.requests()[0].body;
    assert_eq!(body["model"], "other");
    let system = body["messages"][0]["content"].as_str().unwrap();
    assert!(system.contains("# Profile: reviewer\n\nYou review code."), "{system}");
    let names: Vec<&str> = body["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["function"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["read_file", "exec", "process"]);
    crate::story::write(&path, b"---\nsandbox: off\n---\n");
    story
        .run(["agent", "-m", "x", "--profile", "reviewer"])
        .status(78)
        .stderr_has("unknown field `sandbox`");
    let wrong = |text: &[u8], message: &str| {
        crate::story::write(&path, text);
        story.run(["agent", "-m", "x", "--profile", "reviewer"]).status(78).stderr_has(message);
    };
    wrong(b"\n---\nextends: plan\n---\n", "does not begin with one");
    wrong(b"--- \nextends: plan\n---\n", "does not begin with one");
    wrong(b"---\nextends: plan\n", "no closing line `---`");
    wrong(b"---\nextends: plan\n---\n\xff", "not valid UTF-8");
    wrong(b"---\nmodel: 5\n---\n", "put it in quotes");
    wrong(b"---\ndeny: exce\n---\n", "did you mean `exec`?");
    wrong(b"---\nnet: ['a b']\n---\n", "is not a host");
    let named = story.home().join(".nanobot/profiles/plan.md");
    crate::story::write(&named, b"---\nnet: true\n---\n");
    story
        .run(["agent", "-m", "x", "--profile", "plan"])
        .status(78)
        .stderr_has("the name of a built-in profile");
    let story = story.env("NANOBOT_AGENTS__DEFAULTS__PROFILE", "full");
    story.run(["agent", "-m", "x"]).status(78).stderr_has("must be given on each run");
}

#[test]
fn the_policy_explains_itself() {
    let story = Story::new();
    let explain = |arguments: &[&str], status: i32| {
        let all = ["policy", "explain"].iter().chain(arguments).copied();
        story.run(all).status(status).text()
    };
    let text = explain(&[], 0);
    assert!(text.contains("profile     default") && text.contains("sandbox"), "{text}");
    assert!(text.contains("jobs        may be changed; after content from outside"));
    for arguments in [
        &["--profile", "plan"][..],
        &["--profile", "plan", "--allow", "cron"],
        &["--deny", "cron(add)"],
        &["--deny", "cron"],
    ] {
        let text = explain(arguments, 0);
        assert!(text.contains("jobs        may not be changed"), "{text}");
    }
    assert!(
        explain(&["write_file", "{\"path\": \"a\", \"content\": \"x\"}"], 77)
            .contains("grant: --write")
    );
    assert!(explain(&["write_file", "a", "--write"], 0).starts_with("allowed: "));
    assert!(
        explain(&["exec", "rm x", "--deny", "exec(rm *)"], 77)
            .contains("rule `exec(rm *)` (--deny)")
    );
    let line: Value =
        serde_json::from_str(&explain(&["read_file", "/etc/passwd", "--json"], 77)).unwrap();
    assert_eq!(
        (line["decision"].as_str(), line["grant"].as_str()),
        (Some("refused"), Some("--read /etc/passwd"))
    );
}

#[test]
fn the_tool_commands_have_the_tools_of_a_turn() {
    let story = Story::new();
    let names = |arguments: &[&str]| -> Vec<String> {
        let lines = story.run(["tool", "list", "--json"].iter().chain(arguments)).json_lines();
        let name = |line: &Value| line["name"].as_str().unwrap().to_owned();
        lines.iter().map(name).collect()
    };
    for tool in ["spawn", "cron"] {
        assert!(names(&[]).iter().any(|name| name == tool), "{tool}");
    }
    assert_eq!(names(&["--tools", "cron"]), ["cron"]);
    story.run(["tool", "run", "cron", r#"{"action": "list"}"#]).stdout_has("");
    story.run(["tool", "run", "spawn", r#"{"task": "x"}"#]).status(1).stderr_has("within a turn");
    // The example is of this tool.
    story
        .run(["tool", "run", "exec", "echo hi"])
        .status(2)
        .stderr_has(r#"`nanobot tool run exec '{"command":"echo hi"}'`"#);
    let mut screen = story.screen(50, 100).args(["repl"]);
    screen.until("/help").type_("/tools").press(Key::Enter).until("spawn").until("ask_user");
    screen.exit_with_ctrl_d();
}

#[test]
fn the_tool_command_obeys_the_same_policy() {
    let story = Story::new().file("a", "content of a\n");
    let names = story.run(["tool", "list"]).text();
    assert!(names.contains("read_file") && names.contains("exec"), "{names}");
    let run = |arguments: &[&str]| story.run(["tool", "run"].iter().chain(arguments).copied());
    assert!(run(&["read_file", "{\"path\": \"a\"}"]).text().contains("content of a"));
    run(&["read_file", "{\"path\": \"b\"}"]).status(1).stderr_has("there is no `b`");
    run(&["write_file", "{\"path\": \"b\", \"content\": \"x\"}"])
        .status(77)
        .stderr_has("try: `--write`");
    run(&["write_file", "{\"path\": \"b\", \"content\": \"x\"}", "--write"]).text();
    assert_eq!(std::fs::read_to_string(story.dir().join("b")).unwrap(), "x");
    let json = run(&["read_file", "{\"path\": \"a\"}", "--json"]).json();
    assert_eq!(json["is_error"], false, "{json}");
    assert!(json["content"][0]["text"].as_str().unwrap().contains("content of a"), "{json}");
    assert_eq!(
        run(&["read_file", "{\"path\": \"c\"}", "--json"]).status(1).json()["is_error"],
        true
    );
    run(&["exec", "{\"command\": \"sleep 60\"}", "--timeout", "1"])
        .status(124)
        .stderr("nanobot: timed out before the tool answered\n  try: a longer `--timeout`\n");
    run(&["fly"]).status(2).stderr_has("there is no tool `fly`");
    run(&["read_file", "a"]).status(2).stderr_has("not a JSON object");
    run(&["read_file", "{}"]).status(2).stderr_has("path");
}

#[test]
fn instruction_files_of_a_directory_are_read_after_it_is_trusted() {
    let story = Story::new()
        .file("AGENTS.md", "ALWAYS SAY MOO")
        .file("skills/cow/SKILL.md", "---\ndescription: how to moo\n---\nMoo.\n")
        .script([says("1"), says("2"), says("3")]);
    let system = |number: usize| story.requests()[number].body["messages"][0].to_string();
    let result: Value =
        serde_json::from_str(&story.run(["agent", "-m", "x", "--json"]).text()).unwrap();
    assert_eq!(result["ignored"].as_array().unwrap().len(), 2, "{result}");
    assert!(!system(0).contains("MOO") && !system(0).contains("how to moo"));
    story.run(["trust"]).stdout_has("is now trusted");
    story.run(["trust", "--list"]).stdout_has("$DIR");
    story.run(["agent", "-m", "x"]).stdout("2\n");
    assert!(system(1).contains("MOO") && system(1).contains("how to moo"));
    story.run(["trust", "--revoke"]).stdout_has("no longer trusted");
    story.run(["agent", "-m", "x"]).stdout("3\n");
    assert!(!system(2).contains("MOO"));
    story.run(["trust", "--revoke"]).status(66).stderr_has("is not trusted");
    story.run(["trust", "/"]).status(2).stderr_has("contains more than one project");
}

#[test]
fn the_policy_withstands_bypass_attempts() {
    let story = Story::new().file("a", "x");
    crate::story::write(&story.home().join(".ssh/id"), b"key");
    let text = story.run(["policy", "check"]).text();
    assert!(text.starts_with("commands run in namespaces of their own"), "{text}");
    let lines = text.lines().skip(1).count();
    assert_eq!(text.matches("ok  ").count(), lines, "{text}");
    for phrase in ["another program over TCP", ".ssh", "config.json", "create a file in `$DIR`"] {
        assert!(text.contains(phrase), "{phrase}: {text}");
    }
    // Granted operations are not tried.
    assert!(!story.run(["policy", "check", "--write"]).text().contains("`$DIR`"));
    let entry_count = std::fs::read_dir(story.dir()).unwrap().count();
    assert_eq!(entry_count, 1);
    story.run(["policy", "check", "--sandbox", "off"]).status(1).stderr_has("nothing to test");
}

/// A story with a page from outside, at the returned address.
fn story_with_page() -> (Story, String, PageServer) {
    let pages = PageServer::start(|_| page_response("text/plain", "words of another"));
    let story = Story::new().set("tools", json!({ "ssrfWhitelist": ["127.0.0.2/32"] }));
    (story, pages.url("/page"), pages)
}

#[test]
fn instruction_files_are_changed_after_content_from_outside_only_with_permission() {
    let (story, page, _pages) = story_with_page();
    let story = story
        .file("AGENTS.md", "mine")
        .file("skills/cow/SKILL.md", "---\ndescription: moo\n---\nMoo.\n")
        .workspace_file("SOUL.md", "soul");
    story.run(["trust", "-q"]);
    let write = |path: &str| calls("write_file", json!({ "path": path, "content": "evil" }));
    let soul = story.workspace().join("SOUL.md");
    let skill = story.workspace().join("skills/x/SKILL.md");
    let script = |soul: &str, skill: &str| {
        [
            calls("web_fetch", json!({ "url": page })),
            write("AGENTS.md"),
            write("sub/AGENTS.md"),
            write("skills/cow/SKILL.md"),
            write(soul),
            write(skill),
            calls(
                "exec",
                json!({ "command": "echo evil >> AGENTS.md; echo evil >> skills/cow/SKILL.md; echo fine > other" }),
            ),
            says("done"),
        ]
    };
    let script = || script(soul.to_str().unwrap(), skill.to_str().unwrap());
    story.server().script(script());
    let stderr = story.run(["agent", "-m", "x", "--write"]).stdout("done\n").error_text();
    assert_eq!(stderr.matches("instructs later runs").count(), 5, "{stderr}");
    assert!(stderr.contains("--allow notes") && stderr.contains("--allow startup"), "{stderr}");
    let text = |name: &str| std::fs::read_to_string(story.dir().join(name)).unwrap();
    assert_eq!(text("AGENTS.md"), "mine");
    assert!(
        text("skills/cow/SKILL.md").contains("Moo")
            && !text("skills/cow/SKILL.md").contains("evil")
    );
    assert_eq!(text("other"), "fine\n");
    assert_eq!(std::fs::read_to_string(&soul).unwrap(), "soul");
    assert!(!skill.exists() && !story.dir().join("sub/AGENTS.md").exists());

    story.server().script(script());
    let result = story.run(["agent", "-m", "x", "--write", "--allow", "notes"]);
    let stderr = result.stdout("done\n").error_text();
    assert_eq!(stderr.matches("instructs later runs and").count(), 3, "{stderr}");
    let changed = "changed what instructs later runs: `~/.nanobot/workspace/SOUL.md`, ";
    assert_eq!(stderr.matches(changed).count(), 1, "{stderr}");
    assert_eq!(std::fs::read_to_string(&soul).unwrap(), "evil");
    assert_eq!(text("AGENTS.md"), "mine");
    // A denial wins, in every conversation.
    story.server().script([write(soul.to_str().unwrap()), says("no")]);
    let flags = ["--new", "--allow", "notes", "--deny", "notes"];
    story
        .run([&["agent", "-m", "x"], &flags[..]].concat())
        .stdout("no\n")
        .stderr_has("`notes` is denied by a rule");
}

#[test]
fn the_memory_is_among_the_notes_that_a_rule_denies() {
    let old = "- likes tea\n";
    let story = Story::new().workspace_file("memory/MEMORY.md", old);
    let workspace = story.workspace();
    let path = workspace.join("memory/MEMORY.md");
    let memory = || std::fs::read_to_string(&path).unwrap();
    let edit = |old: &str, new: &str| {
        calls("edit_file", json!({ "path": path, "old_text": old, "new_text": new }))
    };
    let run = |command: &str| calls("exec", json!({ "command": command }));
    let changed = "nanobot: changed the memory, which later runs read: `~/.nanobot/workspace/memory/MEMORY.md`; `nanobot memory undo` takes it back\n";
    // By the user's own words alone.
    story.server().script([edit("tea", "coffee"), says("noted")]);
    story.run(["agent", "-m", "I like coffee now"]).stdout("noted\n").stderr("");
    // What was piped, a file, or a command may have asked for it.
    story.server().script([edit("coffee", "mate"), says("done")]);
    let pipe = |arguments: &[&str]| {
        let mut command = story.command(arguments);
        let mut child = command.stdin(std::process::Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"OBEY").unwrap();
        story.wait(child)
    };
    pipe(&["agent", "-m", "x"]).stdout("done\n").stderr(changed);
    assert_eq!(memory(), "- likes mate\n");
    let versions = story.run(["memory", "log", "--json"]).json_lines();
    let causes: Vec<_> = versions.iter().map(|line| (&line["cause"], &line["session"])).collect();
    let (turn, manual) = (&json!("turn"), (&json!("manual"), &Value::Null));
    assert_eq!(causes[1..], [(turn, &json!("cli:direct")), manual]);
    assert!(causes[0].0 == turn && causes[0].1.as_str().unwrap().starts_with("pipe:"));
    let log = story.workspace().join("memory/HISTORY.md");
    story.server().script([
        edit("mate", "OBEY"),
        calls("write_file", json!({ "path": workspace.join("MEMORY.md"), "content": "OBEY" })),
        calls("write_file", json!({ "path": log, "content": "OBEY" })),
        calls("delete_file", json!({ "path": path })),
        run(&format!("echo OBEY > {}", path.display())),
        says("no"),
    ]);
    let grant = format!("--write={}", path.display());
    let errors = pipe(&["agent", "-m", "x", "--deny", "notes", &grant]).stdout("no\n").error_text();
    assert_eq!(errors.matches("`notes` is denied by a rule").count(), 4, "{errors}");
    assert!(!errors.contains("changed the memory"), "{errors}");
    assert!(story.last_request().last_content().contains("Read-only file system"));
    // A run in the workspace, such as a job.
    story
        .server()
        .script([run("echo OBEY > memory/MEMORY.md; rm -r memory; echo x > y"), says("no")]);
    let flags = ["-C", workspace.to_str().unwrap(), "--write", "--deny", "notes"];
    let result = story.run([&["agent", "-m", "x"], &flags[..]].concat()).stdout("no\n");
    assert!(!result.error_text().contains("changed the memory"));
    assert!(workspace.join("y").exists());
    assert_eq!(memory(), "- likes mate\n");
}

/// Commands have the workspace only as their directory, so no flag is named that would not help.
#[test]
fn a_command_that_cannot_change_the_workspace_names_the_file_tools() {
    let story = Story::new().workspace_file("SOUL.md", "soul");
    let workspace = story.workspace();
    let path = workspace.join("plan.md");
    let command = format!("echo x > {}", path.display());
    story.server().script([
        calls("exec", json!({ "command": command })),
        calls("write_file", json!({ "path": path, "content": "x" })),
        says("done"),
    ]);
    let flag = format!("--write={}", workspace.display());
    story.run(["agent", "-m", "x", &flag]).stdout("done\n").stderr("");
    let content = story.requests()[1].last_content();
    let message = "in this run: the file tools change the workspace)";
    assert!(content.contains(message) && !content.contains("--write"), "{content}");
    assert!(path.exists());
}

#[test]
fn the_agents_own_notes_are_changed_after_daily_work() {
    let story = Story::new().file("plan.md", "the plan").workspace_file("SOUL.md", "soul");
    let soul = story.workspace().join("SOUL.md");
    story.server().script([
        calls("read_file", json!({ "path": "plan.md" })),
        calls("exec", json!({ "command": "date" })),
        calls("write_file", json!({ "path": soul, "content": "new" })),
        says("done"),
    ]);
    let result = story.run(["agent", "--strict", "-m", "x"]).stdout("done\n");
    result.stderr("nanobot: changed what instructs later runs: `~/.nanobot/workspace/SOUL.md`; `nanobot undo` takes it back\n");
    assert_eq!(std::fs::read_to_string(&soul).unwrap(), "new");
}

#[test]
fn explain_shows_the_origin_of_a_session() {
    let (story, page, _pages) = story_with_page();
    let story = story.file("plan.md", "the plan").script([
        says("hello"),
        calls("read_file", json!({ "path": "plan.md" })),
        says("read"),
        calls("web_fetch", json!({ "url": page })),
        says("fetched"),
    ]);
    let explain = |expect: &str| {
        let result = story.run(["policy", "explain", "--session", "cli:direct"]);
        result.stdout_has(expect);
    };
    story.run(["agent", "-m", "x"]).stdout("hello\n");
    explain("origin      user: nothing is restricted\n");
    story.run(["agent", "-m", "x"]).stdout("read\n");
    explain("origin      project (`plan.md`, since message 3): ");
    let message = format!("look at {page}");
    story.run(["agent", "-m", &message]).stdout("fetched\n");
    explain("origin      external (a web page, since message 7): ");
    story.run(["agent", "-m", "/new"]).stderr_has("").stdout_has("");
    explain("origin      user: nothing is restricted\n");
    story
        .run(["policy", "explain", "--session", "other"])
        .status(66)
        .stderr_has("there is no session `other`");
}

#[test]
fn a_killed_turn_does_not_lose_the_origin_of_what_it_has_read() {
    let (story, page, _pages) = story_with_page();
    let stalls = sends(Response::events([": wait\n\n"]).ending(Ending::Stall));
    story.server().script([says("hello"), calls("web_fetch", json!({ "url": page })), stalls]);
    story.run(["agent", "-m", "hello"]).stdout("hello\n");
    let mut run = story.command(["agent", "-m", "read it"]).spawn().unwrap();
    story.server().wait_for_requests(3);
    run.kill().unwrap();
    run.wait().unwrap();
    // A turn without calls, which need not look at the earlier ones for itself.
    story.server().script([says("later")]);
    let result = story.run(["agent", "-m", "and now?"]).stdout("later\n");
    drop(result.error_text());
    story
        .run(["policy", "explain", "--session", "cli:direct"])
        .stdout_has("origin      external (a web page, since message ");
}

#[test]
fn memory_from_outside_stays_labelled_until_it_is_accepted() {
    let (story, page, _pages) = story_with_page();
    let story = story.workspace_file("memory/MEMORY.md", "likes tea\n");
    let memory = story.workspace().join("memory/MEMORY.md");
    let soul = story.workspace().join("SOUL.md");
    let write =
        |path: &std::path::Path| calls("write_file", json!({ "path": path, "content": "do evil" }));
    story.server().script([
        calls("web_fetch", json!({ "url": page })),
        write(&memory),
        says("day one"),
        write(&soul),
        says("day two"),
        says("day three"),
    ]);
    let result = story.run(["agent", "-m", "x", "-s", "one"]);
    result.stdout("day one\n").stderr_has("changed the memory, which later runs read");
    story.run(["memory", "log"]).stdout_has("the session contained untrusted content");
    let origin = |key: &str, expect: &str| {
        story.run(["policy", "explain", "--session", key]).stdout_has(expect);
    };
    // The next run begins as one that has read others' content, and daily work goes on.
    let result = story.run(["agent", "-m", "x", "-s", "two"]).stdout("day two\n");
    result.stderr_has("changed what instructs later runs: `~/.nanobot/workspace/SOUL.md`");
    assert!(soul.exists());
    origin("two", "origin      project (the memory, which has content from outside");
    story.run(["memory", "accept"]).stderr_has("").stdout_has("");
    story.run(["agent", "-m", "x", "-s", "three"]).stdout("day three\n");
    origin("three", "origin      user");
    // An earlier version can still be restored.
    story.run(["memory", "undo"]).stderr_has("");
    assert_eq!(std::fs::read_to_string(&memory).unwrap(), "likes tea\n");
}

#[test]
fn a_denial_names_its_file_and_a_flag_to_copy() {
    let story = Story::new();
    let read =
        |path: &str| story.run(["tool", "run", "read_file", &json!({ "path": path }).to_string()]);
    read("/tmp/no such/f").status(77).stderr_has("try: `--read '/tmp/no such/f'`\n");
    let error = read("/tmp/a\n  try: rm -rf ~").status(77).error_text();
    assert!(error.contains("\n  | "), "{error}");
    assert_eq!(error.matches("\n  try: ").count(), 1, "{error}");
    assert!(error.contains("try: `--read $'/tmp/a\\n  try: rm -rf ~'`"), "{error}");
    let story =
        story.script([calls("write_file", json!({ "path": "a.txt", "content": "x" })), says("no")]);
    let stderr = story.run(["agent", "-m", "x"]).stdout("no\n").error_text();
    assert!(stderr.contains("denied: write_file: `$DIR/a.txt` is read-only"), "{stderr}");
    assert!(stderr.ends_with("; `--write` would allow it\n"), "{stderr}");
    // That hint is for a model.
    assert!(!stderr.contains("show the change"), "{stderr}");
    assert!(
        story.requests()[1]
            .last_content()
            .contains("show the change instead, and say that `--write`")
    );
}

#[test]
fn write_in_the_home_directory_explains_itself() {
    let story = Story::new().script([says("ok"), says("ok")]);
    let home = story.home();
    for (flags, message) in [
        (&["--write"][..], "`--write` applies to `~/.nanobot/workspace`:"),
        (&["--write=."], "only with `-C .`"),
    ] {
        let child = story
            .command(["agent", "-m", "x"].iter().chain(flags).copied())
            .current_dir(&home)
            .spawn()
            .unwrap();
        story.wait(child).stdout("ok\n").stderr_has(message);
    }
}

#[test]
fn the_workspace_takes_the_place_of_a_deleted_directory_and_says_so() {
    let story = Story::new().script([says("one"), says("two")]);
    for (flag, message) in [
        (
            "--write",
            "`--write` applies to `~/.nanobot/workspace`: the current directory cannot be found",
        ),
        ("--json", "working in `~/.nanobot/workspace`: the current directory cannot be found"),
    ] {
        let mut command = story.in_deleted_directory(&["agent", "-m", "x", "--new", flag]);
        let result = story.wait(command.spawn().unwrap());
        drop(result.stderr_has(message).text());
    }
}

#[test]
fn the_workspace_takes_the_place_of_the_home_directory_and_says_so() {
    let story = Story::new().script([says("one"), says("two"), says("three"), says("four")]);
    let message = "working in `~/.nanobot/workspace`: the home directory is used as working directory only with `-C .`";
    let start = |more: &[&str]| {
        let arguments = [&["agent", "-m", "x"], more].concat();
        let child = story.command(arguments).current_dir(story.home()).spawn().unwrap();
        story.wait(child)
    };
    start(&["--json", "-s", "work"]).stdout_has("\"one\"").stderr_has(message);
    // Once for each conversation; not in a script that prints text, and not where `-C` says what is meant.
    start(&["--json", "-s", "work"]).stdout_has("\"two\"");
    start(&["-s", "other"]).stdout("three\n");
    // The flag and the tools would mean two directories.
    std::fs::create_dir(story.home().join("inbox")).unwrap();
    for flag in ["--write=inbox", "--read=inbox"] {
        let result = start(&[flag]).status(2);
        result
            .stderr_has("`inbox` is relative, and the tools work in `~/.nanobot/workspace`")
            .stderr_has("try: `~/inbox`");
    }
    start(&["--json", "-s", "third", "-C", "."]).stdout_has("\"four\"");
    // Again where the conversation comes back from another directory.
    story.server().script([says("five"), says("six"), says("seven")]);
    story.run(["agent", "-m", "x", "-s", "work"]).stdout("five\n");
    start(&["--json", "-s", "work"]).stdout_has("\"six\"").stderr_has(message);
    let above =
        "`/` contains the home directory, and is used as working directory only with `-C .`";
    let mut at_root = story.command(["agent", "-m", "x", "--json", "-s", "fourth"]);
    let result = story.wait(at_root.current_dir("/").spawn().unwrap());
    result.stdout_has("\"seven\"").stderr_has(above);
}

#[test]
fn a_run_without_a_provider_leaves_nothing_behind() {
    let story = Story::bare();
    for more in [&[][..], &["--new"], &["-s", "work"], &["--json"]] {
        let result = story.run([&["agent", "-m", "hi"], more].concat()).status(78);
        let result = match more {
            ["--json"] => result.stdout_has("\"config\""),
            _ => result,
        };
        result.stderr_has("no provider is configured");
        assert!(!story.home().join(".nanobot").exists(), "{more:?}");
    }
}

#[test]
fn a_tool_is_shown_with_the_schema_of_its_arguments() {
    let story = Story::new();
    let stdout = story.run(["tool", "show", "read_file"]).text();
    assert!(stdout.starts_with("read_file\n\n"), "{stdout}");
    assert!(stdout.contains("\"required\""), "{stdout}");
    let line = story.run(["tool", "show", "read_file", "--json"]).json();
    assert_eq!(line["parameters"]["required"][0], "path");
    story
        .run(["tool", "show", "raed_file"])
        .status(2)
        .stderr_has("try: nanobot tool show read_file");
}

#[test]
fn undo_of_an_unknown_turn_is_refused() {
    let story = Story::new();
    for turn in ["abc", "55"] {
        story
            .run(["undo", turn])
            .status(66)
            .stderr_has(&format!("there is no turn {turn} to undo"));
    }
}

#[test]
fn explain_matches_a_run() {
    let story = Story::new();
    let explain = |arguments: &[&str], status: i32, message: &str| {
        let all = ["policy", "explain"].iter().chain(arguments).copied();
        let result = story.run(all).status(status);
        match status {
            2 => result.stderr_has(message),
            _ => result.stdout_has(message),
        };
    };
    // No call at all.
    explain(&["exec"], 2, "command");
    explain(&["exec", "{bad"], 2, "not a JSON object");
    explain(&["read_file", ""], 2, "not a JSON object");
    explain(&["read_file", "{\"pth\": 1}"], 2, "path");
    explain(&["fly", "x"], 2, "`fly` is not a tool");
    explain(&["exce", "x"], 2, "did you mean `exec`?");
    // The decision for the web tools.
    for (url, message) in [
        ("http://127.0.0.1/", "is not a public address"),
        ("http://10.0.0.1/", "grant: --net=10.0.0.1"),
        ("http://localhost/", "tools.ssrfWhitelist"),
        ("http://example.org:22/", "grant: --net=example.org:22"),
        ("file:///etc/passwd", "is not `http` or `https`"),
    ] {
        explain(&["web_fetch", url], 77, message);
    }
    explain(&["web_fetch", "https://example.org/"], 0, "allowed: ");
    explain(&["web_fetch", "http://127.0.0.1:8000/", "--net=127.0.0.1:8000"], 0, "allowed: ");
    // The effective command policy.
    explain(
        &["exec", "ls"],
        0,
        "in the sandbox: writes only a private $TMPDIR, no network but loopback of its own",
    );
    explain(&["exec", "ls", "--sandbox", "off"], 0, "not sandboxed");
    // The reason why a tool is missing.
    let absent = |arguments: &[&str], phrase: &str| {
        explain(arguments, 77, phrase);
        explain(&[arguments, &["--json"]].concat(), 77, phrase);
    };
    absent(&["write_file", "a", "--deny", "write_file"], "the rule `write_file` (--deny)");
    absent(&["exec", "ls", "--tools", "read_file"], "`--tools` leaves it out");
    absent(&["exec", "ls", "--no-tools"], "`--no-tools` offers none");
    absent(&["write_file", "a", "--profile", "plan"], "is read-only");
    absent(
        &["web_fetch", "https://a/", "--profile", "auto-approve"],
        "never allowed: the permission of `web_fetch`",
    );
    explain(&["spawn", "x"], 0, "in a turn of `agent`");
    explain(&["cron", "add"], 0, "with `--allow cron`");
    explain(&["cron", "list", "--profile", "plan"], 0, "allowed: ");
    absent(&["cron", "add", "--profile", "plan"], "changes jobs");
    absent(&["cron", "remove", "--deny", "cron(remove)"], "by the rule `cron(remove)` (--deny)");
    explain(&["cron", "edit"], 2, "must be one of");
    // The overview.
    explain(&["--sandbox", "off"], 0, "commands: unrestricted");
    explain(&["--deny", "exec(git *)"], 0, "exec(git *) (--deny): not a security boundary");
    let story = with_tools(
        story,
        json!({ "ssrfWhitelist": ["10.0.0.0/8"], "exec": { "denyPatterns": ["curl"] }, "read": ["/etc"] }),
    );
    let text = story.run(["policy", "explain", "--read", "/etc"]).text();
    for phrase in ["10.0.0.0/8 (tools.ssrfWhitelist)", "`curl` (tools.exec.denyPatterns)"] {
        assert!(text.contains(phrase), "{text}");
    }
    let mut lines: Vec<&str> = text.lines().collect();
    let count = lines.len();
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines.len(), count, "{text}");
}

#[test]
fn a_missing_path_in_the_config_is_not_fatal() {
    let read = || calls("read_file", json!({ "path": "~/gone.md" }));
    let story = Story::new().script([read(), says("Refused."), read(), says("It is back.")]);
    let missing_file = story.home().join("gone.md");
    let paths = json!([missing_file, "notes/no/such"]);
    let story = with_tools(story, json!({ "read": paths, "write": paths }));
    story.run(["agent", "-m", "x"]).stdout("Refused.\n").stderr_has("denied: read_file");
    std::fs::write(&missing_file, "milk").unwrap();
    story.run(["agent", "-m", "x"]).stdout("It is back.\n");
    assert!(story.requests()[3].last_content().contains("milk"));
    // A path argument refers to the file that exists now.
    std::fs::remove_file(&missing_file).unwrap();
    for flag in ["--read", "--write"] {
        story
            .run(["agent", "-m", "x", &format!("{flag}={}", missing_file.display())])
            .status(66)
            .stderr_has("no such file or directory: `");
    }
    story
        .run(["agent", "-m", "x", "--write=new"])
        .status(66)
        .stderr_has("try: `mkdir` it first, or `touch` it for a file\n");
}

#[test]
fn a_granted_link_is_reached_under_its_name() {
    let story = Story::new();
    let home = story.home();
    write(&home.join("real/inbox/f.txt"), b"NEWS");
    std::os::unix::fs::symlink("real/inbox", home.join("inbox")).unwrap();
    let inbox = home.join("inbox").display().to_string();
    let run = |tool: &str, arguments: serde_json::Value, flag: &str| {
        story.run(["tool", "run", tool, &arguments.to_string(), flag])
    };
    let read = format!("--read={inbox}");
    let whole = format!("{inbox}/f.txt");
    for path in ["~/inbox/f.txt", &whole, "~/real/inbox/f.txt"] {
        run("read_file", json!({ "path": path }), &read).stdout_has("NEWS");
        let command = json!({ "command": format!("cat {path}") });
        run("exec", command, &read).stdout_has("NEWS");
        run("read_file", json!({ "path": path }), &format!("--read={whole}")).stdout_has("NEWS");
    }
    run("list_dir", json!({ "path": inbox }), &read).stdout_has("f.txt");
    run("read_file", json!({ "path": "~/real/other" }), &read)
        .status(77)
        .stderr_has("outside the paths");
    let grant = format!("--write={inbox}");
    drop(run("write_file", json!({ "path": "~/inbox/new", "content": "x" }), &grant).text());
    drop(run("exec", json!({ "command": "echo x > ~/inbox/made" }), &grant).text());
    assert!(home.join("real/inbox/new").exists() && home.join("real/inbox/made").exists());
    let denied = ["tool", "run", "read_file", r#"{"path":"~/inbox/f.txt"}"#, &read];
    let deny = ["--deny", "read_file(~/inbox/**)"];
    story.run(denied.into_iter().chain(deny)).status(77).stderr_has("denied");
    let story = with_tools(story, json!({ "read": ["~/inbox"] }));
    story.run(["tool", "run", "read_file", r#"{"path":"~/inbox/f.txt"}"#]).stdout_has("NEWS");
}
