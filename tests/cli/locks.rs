//! Locked keys and limits of the system-wide config: no other spelling, variable, preset, flag, approval or file gets around them.

use crate::config_files::{with_system_config, write_system_config};
use crate::requirements::require_root;
use crate::screen::Key;
use crate::server::{calls, says};
use crate::story::{Story, write};
use serde_json::{Value, json};

/// False where the system-wide config of a story is not read.
fn can_lock() -> bool {
    require_root("only root's file is read as the system-wide config")
}

#[test]
fn a_locked_provider_is_the_same_in_every_spelling() {
    if !can_lock() {
        return;
    }
    let story = with_system_config(&json!({}));
    let provider = story.config_value()["providers"]["custom"].clone();
    let other = json!({ "apiBase": "http://127.0.0.1:1/v1", "apiKey": "sk-123456789012345678" });
    let check = |story: Story, locked: &str| {
        let system = json!({ "locked": [locked], "providers": { "custom": provider } });
        write_system_config(&story, &system);
        story.server().script([says("ok")]);
        story.run(["agent", "--ephemeral", "-m", "x"]).stdout("ok\n");
        story
    };
    let mut story = story;
    for spelling in ["custom", "Custom", "CUSTOM", "cus_tom", "cus-tom"] {
        story = story.set("providers", json!({ spelling: other }));
        story = check(story, "providers.custom");
    }
    story = check(story, "providers.Custom.api_base");
    story = check(story, "providers.*.apiBase");
    let origins = story.run(["config", "list", "--origin"]).text();
    assert_eq!(origins.matches(".apiBase = ").count(), 1, "{origins}");
    story
        .run(["config", "set", "providers.CUSTOM.apiBase", "https://example.org/v1"])
        .status(77)
        .stderr_has("`providers.custom.apiBase` is locked by ");
    let variable = json!({ "Custom": other }).to_string();
    let story = check(story.env("NANOBOT_PROVIDERS", &variable), "providers.custom");
    check(story.env("NANOBOT_PROVIDERS__CUSTOM__API_BASE", "http://127.0.0.1:1/v1"), "providers");
}

#[test]
fn a_budget_of_the_system_is_compared_with_what_a_variable_holds() {
    if !can_lock() {
        return;
    }
    let mut story = with_system_config(&json!({ "budget": { "daily": 3 } }));
    let own_file = story.home().join(".nanobot/nanobot.json");
    for (written, expect) in [
        (json!("${BIG}"), "3"),
        (json!(" 100"), "3"),
        (json!("100 "), "3"),
        (json!("${SMALL}"), "1"),
        (json!("${SMALL}0"), "3"),
        (json!(2), "2"),
    ] {
        write(&own_file, json!({ "budget": { "daily": written } }).to_string().as_bytes());
        let get = ["config", "get", "budget.daily"];
        let mut command = story.command(get);
        command.env("BIG", "100").env("SMALL", "1");
        let result = story.wait(story.start(&mut command));
        assert_eq!(result.text().trim().trim_end_matches(".0"), expect, "{written}");
    }
    // A limit that cannot be read is never replaced by a larger one.
    for written in ["${UNSET}", "much"] {
        write(&own_file, json!({ "budget": { "daily": written } }).to_string().as_bytes());
        story.run(["agent", "-m", "x"]).status(78).stderr_has("`budget.daily` ");
    }
    write(&own_file, b"{}");
    story = story.env("NANOBOT_BUDGET__DAILY", "${BIG}").env("BIG", "100");
    let origin = story.run(["config", "get", "budget.daily", "--origin"]).text();
    assert!(origin.starts_with('3') && origin.contains("etc/config.json"), "{origin}");
}

#[test]
fn a_locked_model_has_no_other_name() {
    if !can_lock() {
        return;
    }
    let model = json!({ "agents": { "defaults": { "model": "locked", "temperature": 0.5, "maxTokens": 100 } } });
    let with_locks = |keys: &[&str]| {
        let mut system = model.clone();
        system["locked"] = json!(keys);
        let defaults =
            json!({ "modelPreset": "p", "fallbackModels": ["other"], "provider": "custom" });
        let preset = json!({ "p": { "model": "evil", "maxTokens": 999, "temperature": 2, "provider": "openai" } });
        with_system_config(&system)
            .set("agents", json!({ "defaults": defaults }))
            .set("modelPresets", preset)
            .set("session", json!({ "titleModel": "p" }))
            .set("memory", json!({ "model": "p" }))
    };
    let story = with_locks(&["agents.defaults.model"]).script([says("ok")]);
    story.run(["agent", "-m", "x"]).stdout("ok\n");
    assert_eq!(story.requests().len(), 1, "no title is asked for");
    assert_eq!(story.requests()[0].body["model"], "locked");
    for key in ["agents.defaults.modelPreset", "session.titleModel", "memory.model"] {
        let text = story.run(["config", "check"]).text();
        assert!(text.contains(&format!("`{key}` has no effect")), "{key}: {text}");
        story.run(["config", "set", key, "p"]).status(77).stderr_has("is locked by ");
    }
    let keys = ["provider", "maxTokens", "temperature"].map(|key| format!("agents.defaults.{key}"));
    let story = with_locks(&keys.each_ref().map(String::as_str));
    // The locked provider has no value in the system's file, so it is found by the default, `auto`.
    story.server().script([says("ok")]);
    story.run(["agent", "--ephemeral", "-m", "x"]).stdout("ok\n");
    let body = &story.requests()[0].body;
    assert_eq!(
        (&body["model"], &body["max_tokens"], &body["temperature"]),
        (&json!("evil"), &json!(100), &json!(0.5))
    );
    let mut provider = story.config_value()["providers"]["custom"].clone();
    for (field, locked) in [("max_tokens", "maxTokens"), ("temperature", "temperature")] {
        provider["extraBody"] = json!({ field: 1 });
        write(
            &story.home().join(".nanobot/config.json"),
            json!({ "providers": { "custom": provider } }).to_string().as_bytes(),
        );
        story.run(["agent", "--ephemeral", "-m", "x"]).status(78).stderr_has(&format!(
            "`providers.custom.extraBody.{field}`: `agents.defaults.{locked}` is locked by "
        ));
    }
}

#[test]
fn every_command_that_uses_tools_refuses_flags_of_locked_keys() {
    if !can_lock() {
        return;
    }
    let story = with_system_config(&json!({ "locked": ["agents.defaults.profile", "tools"] }));
    let refused = |arguments: &[&str], flag: &str, key: &str| {
        story.run(arguments).status(77).stderr_has(&format!("`{flag}`: `{key}` is locked by "));
    };
    let write = r#"{"path":"w","content":"x"}"#;
    let exec = r#"{"command":"touch w"}"#;
    refused(&["tool", "run", "write_file", write, "--write"], "--write", "tools.write");
    refused(&["tool", "run", "exec", exec, "--sandbox", "off"], "--sandbox", "tools.sandbox");
    refused(&["tool", "run", "exec", exec, "--net"], "--net", "tools.net");
    refused(&["serve", "mcp", "--tools", "exec", "--sandbox", "off"], "--sandbox", "tools.sandbox");
    refused(
        &["policy", "explain", "--profile", "full", "exec", "id"],
        "--profile",
        "agents.defaults.profile",
    );
    refused(&["policy", "check", "--sandbox", "off"], "--sandbox", "tools.sandbox");
    refused(&["agent", "--tools", "sessions", "-m", "x"], "--tools sessions", "tools.allow");
    std::fs::write(
        story.dir().join("p.patch"),
        "diff --git a/w b/w\nnew file mode 100644\n--- /dev/null\n+++ b/w\n@@ -0,0 +1 @@\n+x\n",
    )
    .unwrap();
    story.run(["apply", "p.patch"]).status(77).stderr_has("`tools.write` is locked by ");
    std::fs::write(story.dir().join("mcp.json"), r#"{"mcpServers":{"s":{"command":"true"}}}"#)
        .unwrap();
    drop(story.run(["trust", "mcp.json"]).text());
    refused(&["agent", "--mcp", "mcp.json", "-m", "x"], "--mcp", "tools.mcpServers.s");
    assert!(!story.dir().join("w").exists());
    // What only narrows, and what changes nothing, is free.
    let arguments = ["tool", "run", "list_dir", "{}", "--deny", "exec", "--sandbox", "strict"];
    drop(story.run(arguments).text());
    drop(story.run(["policy", "explain", "--profile", "default", "read_file", "x"]).text());
}

#[test]
fn a_person_cannot_approve_what_is_locked() {
    if !can_lock() {
        return;
    }
    let write = |path: &str| calls("write_file", json!({ "path": path, "content": "1" }));
    let story = with_system_config(&json!({ "locked": ["tools.write", "tools.allow"] }))
        .script([write("w"), says("refused")]);
    let mut screen = story.screen(24, 100).args(["repl"]);
    screen.until_prompt("> ").type_("hi").press(Key::Enter).until("refused").until_prompt("> ");
    let screen_text = screen.text();
    assert!(!screen_text.contains("[y]es"), "{screen_text}");
    screen.press(Key::Ctrl('d'));
    assert!(!story.dir().join("w").exists());
    let result: Value = story.requests()[1].body.clone();
    assert!(result.to_string().contains("read-only"), "{result}");
}
