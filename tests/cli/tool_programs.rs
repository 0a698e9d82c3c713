//! Programs of the user as tools: how they describe themselves, how they are called, and what they cannot do.

use crate::server::{Request, calls, says, tool_names};
use crate::story::{Story, write_program};
use serde_json::json;

/// A tool that prints its arguments, or runs `body`.
fn tool(description: &str, body: &str) -> String {
    format!(
        "#!/bin/sh\nif [ \"$1\" = --spec ]; then\necho '{{\"description\": \"{description}\", \"parameters\": {{\"type\": \
         \"object\", \"properties\": {{\"place\": {{\"type\": \"string\"}}}}, \"required\": [\"place\"]}}}}'\nexit\nfi\n{body}\n"
    )
}

fn with_tool(name: &str, body: &str) -> Story {
    let story = Story::new();
    let path = story.home().join(".nanobot/tools").join(name);
    write_program(&path, &tool("Times of the tides", body));
    story.set("tools", json!({ "programs": [name] }))
}

fn offered(story: &Story, flags: &[&str]) -> Vec<String> {
    tool_names(&story.run([&["agent", "-m", "x", "--dry-run"], flags].concat()).json())
}

#[test]
fn a_program_is_a_tool() {
    let story = with_tool("tides.sh", "echo \"high water: $(cat)\"")
        .script([calls("tool_tides", json!({ "place": "Brest" })), says("Soon.")]);
    story.run(["agent", "-m", "x"]).stdout("Soon.\n");
    let requests = story.requests();
    let tools = requests[0].body["tools"].as_array().unwrap();
    let offered_tool = tools.iter().find(|tool| tool["function"]["name"] == "tool_tides");
    let function = &offered_tool.unwrap()["function"];
    assert_eq!(function["description"], "Times of the tides");
    assert_eq!(function["parameters"]["required"], json!(["place"]));
    assert_eq!(requests[1].last_content(), "high water: {\"place\":\"Brest\"}");
    story
        .run(["tool", "run", "tides", r#"{"place": "Brest"}"#])
        .stdout("high water: {\"place\":\"Brest\"}\n");
    story.run(["tool", "run", "tides", "{}"]).status(2).stderr_has("place");
}

#[test]
fn a_link_to_a_program_that_the_run_may_change_is_no_tool() {
    let story = Story::new().set("tools", json!({ "programs": ["tides"] }));
    write_program(&story.dir().join("tides"), &tool("Times of the tides", "cat"));
    let tools = story.home().join(".nanobot/tools");
    std::fs::create_dir_all(&tools).unwrap();
    std::os::unix::fs::symlink(story.dir().join("tides"), tools.join("tides")).unwrap();
    let is_offered = |flags: &[&str], reason: &str| {
        let result = story.run([&["agent", "-m", "x", "--dry-run"], flags].concat());
        let text = result.text();
        drop(if reason.is_empty() { result } else { result.stderr_has(reason) });
        text.contains("tool_tides")
    };
    assert!(is_offered(&[], ""));
    assert!(!is_offered(&["--write"], "which this run may change"));
    // What lies in the directory of the tools is closed to a run that may change the home.
    let story = with_tool("tides", "cat");
    let home = format!("--write={}", story.home().display());
    assert!(offered(&story, &[&home]).contains(&"tool_tides".to_owned()));
}

#[test]
fn a_first_tool_is_made_before_anything_else() {
    let story = Story::bare();
    let arguments = ["tool", "new", "tides", "-l", "sh", "-d", "Times"];
    story.run(arguments).text();
    // The directory around the home is readable, and what is closed in it stays closed.
    let home = story.home();
    let parent = home.parent().unwrap();
    let mut command = story.command(["tool", "check"]);
    let child = command.current_dir(parent).spawn().unwrap();
    story.wait(child).stdout("ok    tool_tides: Times\n");
}

#[test]
fn a_failure_is_a_result_for_the_model() {
    let story = with_tool("tides", "echo 'no such place' >&2; exit 3")
        .script([calls("tool_tides", json!({ "place": "x" })), says("No.")]);
    story.run(["agent", "-m", "x"]).stdout("No.\n");
    let result = story.requests()[1].last_content();
    assert!(result.contains("no such place") && result.contains("Exit code: 3"), "{result}");
    story.run(["tool", "run", "tides", r#"{"place": "x"}"#]).status(1).stdout_has("Exit code: 3");
}

#[test]
fn a_program_runs_in_the_sandbox_of_commands() {
    let body = "touch made 2>&1; cat \"$HOME/.nanobot/config.json\" 2>&1; echo \"key: $TEST_KEY\"; echo x 2>&1 >> \"$0\" || true";
    let story = with_tool("tides", body).env("TEST_KEY", "sk-secret");
    let call = ["tool", "run", "tides", r#"{"place": "x"}"#];
    let text = story.run(call).text();
    assert!(text.contains("key: \n") || text.ends_with("key:\n"), "{text}");
    assert!(!text.contains("apiBase") && !story.dir().join("made").exists(), "{text}");
    let result = story.run([&call[..], &["--write"]].concat());
    result.text();
    assert!(story.dir().join("made").exists());
    let program = std::fs::read_to_string(story.home().join(".nanobot/tools/tides")).unwrap();
    assert!(!program.ends_with("x\n"), "the program was changed");
}

#[test]
fn a_program_is_under_the_policy() {
    let story = with_tool("tides", "echo yes");
    assert!(offered(&story, &[]).contains(&"tool_tides".to_owned()));
    assert_eq!(offered(&story, &["--tools", "tool_*"]), ["tool_tides"]);
    assert!(!offered(&story, &["--tools", "glob"]).contains(&"tool_tides".to_owned()));
    assert!(!offered(&story, &["--deny", "tool_tides"]).contains(&"tool_tides".to_owned()));
    let story = story
        .set("tools", json!({ "programs": ["*"], "permissions": { "tool_tides": "ask" } }))
        .script([calls("tool_tides", json!({ "place": "x" })), says("No.")]);
    story.run(["agent", "-m", "x"]).stdout("No.\n").stderr_has("--allow tool_tides");
}

#[test]
fn a_description_is_asked_for_once_and_again_after_a_change() {
    let story = Story::new();
    let path = story.home().join(".nanobot/tools/tides");
    // In its sandbox it can leave no trace, so the count is in the description.
    write_program(&path, &tool("first", "echo 1"));
    let story = story.set("tools", json!({ "programs": ["tides"] }));
    let describe = |story: &Story| {
        story.run(["tool", "show", "tool_tides", "--json"]).json()["description"].clone()
    };
    story.run(["tool", "run", "tides", r#"{"place": "x"}"#]).stdout("1\n");
    let cache = story.home().join(".nanobot/tools/.specs.json");
    let cached = std::fs::read_to_string(&cache).unwrap();
    std::fs::write(&cache, cached.replace("first", "from the cache")).unwrap();
    assert_eq!(describe(&story), "from the cache");
    write_program(&path, &tool("second", "echo 2"));
    assert_eq!(describe(&story), "second");
    // A damaged cache is made anew.
    std::fs::write(&cache, "{").unwrap();
    story.run(["tool", "run", "tides", r#"{"place": "x"}"#]).stdout("2\n");
    assert!(std::fs::read_to_string(&cache).unwrap().contains("second"));
}

#[test]
fn programs_that_cannot_be_tools_are_left_out_with_the_reason() {
    let check = |text: &str, reason: &str| {
        let story = Story::new();
        write_program(&story.home().join(".nanobot/tools/odd"), text);
        let story = story.set("tools", json!({ "programs": ["odd"] })).script([says("Hi.")]);
        story
            .run(["agent", "-m", "x"])
            .stdout("Hi.\n")
            .stderr_has("the tool `~/.nanobot/tools/odd` is not offered: ");
        story.run(["tool", "check"]).status(1).stdout_has(reason);
        assert!(!story.home().join(".nanobot/made").exists());
    };
    check("#!/bin/sh\necho hello\n", "printed no JSON object");
    check("#!/bin/sh\nexit 1\n", "`$HOME/.nanobot/tools/odd --spec` failed");
    check("#!/bin/sh\necho '{\"description\": \"x\", \"parameters\": []}'\n", "not a schema");
    check("#!/nowhere/sh\n", "--spec` failed");
    check("#!/bin/sh\nhead -c 100000 /dev/zero | tr '\\0' a\n", "printed");
    // A description has no side effects: what it may write is its own.
    check("#!/bin/sh\ntouch \"$HOME/.nanobot/made\"; exit 1\n", "--spec` failed");

    // One that is missing does not stand in the way of the others.
    let story = with_tool("tides", "cat").set("tools", json!({ "programs": ["missing", "tides"] }));
    let ran = story
        .run(["agent", "-m", "x", "--dry-run"])
        .stderr_has("`tools.programs` names `missing`, which is not an executable file");
    assert!(ran.text().contains("tool_tides"));
}

/// A program that hangs is waited for once, not in every run, until it changes or `tool check` succeeds.
#[test]
fn a_description_that_takes_too_long_is_not_asked_for_again() {
    let path = |story: &Story| story.home().join(".nanobot/tools/odd");
    let story = Story::new().set("tools", json!({ "programs": ["odd"] }));
    write_program(&path(&story), "#!/bin/sh\nexec sleep 600\n");
    let run = || {
        story.server().script([says("Hi.")]);
        story.run(["agent", "-m", "x"]).stdout("Hi.\n").error_text()
    };
    assert!(run().contains("Timed out after 10 seconds"));
    let remembered = "`--spec` took longer than 10 s; `nanobot tool check odd` tries it again";
    assert!(run().contains(remembered));
    let check = story.run(["status", "check", "--offline", "--no-crontab"]);
    assert!(check.text().contains(remembered));
    check.code();
    write_program(&path(&story), &tool("first", "echo 1"));
    assert_eq!(
        offered(&story, &["--allow", "tool_odd"]).iter().filter(|it| *it == "tool_odd").count(),
        1
    );
}

#[test]
fn a_program_that_others_may_change_is_not_offered() {
    use std::os::unix::fs::PermissionsExt;
    let story = with_tool("tides", "echo yes").script([says("Hi.")]);
    let path = story.home().join(".nanobot/tools/tides");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).unwrap();
    story.run(["agent", "-m", "x"]).stdout("Hi.\n").stderr_has("is world-writable");
}

#[test]
fn a_directory_offers_its_tools_only_while_they_are_as_they_were_trusted() {
    let story = Story::new();
    let path = story.dir().join(".nanobot/tools/tides");
    write_program(&path, &tool("Of the project", "echo project"));
    let has = |story: &Story| offered(story, &[]).contains(&"tool_tides".to_owned());
    assert!(!has(&story));
    story.run(["trust"]).stdout_has(".nanobot/tools/tides");
    assert!(has(&story));
    story.run(["tool", "run", "tides", r#"{"place": "x"}"#]).stdout("project\n");
    write_program(&path, &tool("Another tool", "echo other"));
    let result = story.run(["agent", "-m", "x", "--dry-run"]);
    result.stderr_has("tides` not read: it changed or was added").text();
    story.run(["trust", "-q"]);
    story.run(["tool", "run", "tides", r#"{"place": "x"}"#]).stdout("other\n");
    write_program(&story.dir().join(".nanobot/tools/new"), &tool("New", "echo new"));
    let result = story.run(["agent", "-m", "x", "--dry-run"]);
    result.stderr_has("new` not read").text();
}

#[test]
fn a_program_that_changes_during_the_run_is_not_run() {
    let story = Story::new();
    let path = story.dir().join(".nanobot/tools/tides");
    write_program(&path, &tool("Of the project", "echo project"));
    story.run(["trust", "-q"]);
    let story = story.script([
        Box::new(move |request: &Request| {
            // Another process changes it while the model thinks.
            std::fs::write(&path, "#!/bin/sh\necho evil\n").unwrap();
            calls("tool_tides", json!({ "place": "x" }))(request)
        }),
        says("No."),
    ]);
    story.run(["agent", "-m", "x"]).stdout("No.\n");
    let result = story.requests()[1].last_content();
    assert!(result.contains("has changed since this run began"), "{result}");
}

#[test]
fn a_new_program_is_enabled_and_works() {
    let story = Story::new().set("tools", json!({}));
    story
        .run(["tool", "new", "my-tides", "-d", "Times of \"high water\""])
        .stdout("$HOME/.nanobot/tools/my-tides\n");
    story.run(["tool", "check"]).stdout("ok    tool_my_tides: Times of \"high water\"\n");
    story.run(["tool", "run", "my_tides", r#"{"text": "Brest"}"#]).stdout("Brest\n");
    story.run(["tool", "new", "my-tides"]).status(1).stderr_has("exists already");
    for name in ["../evil", "a b", ".hidden", "9lives", ""] {
        story.run(["tool", "new", name]).status(2).stderr_has("cannot be the name of a tool");
    }
    let other = story.home().join("elsewhere");
    write_program(&other, &tool("Elsewhere", "echo x"));
    story
        .run(["tool", "check", other.to_str().unwrap()])
        .stdout("ok    tool_elsewhere: Elsewhere\n");
}
