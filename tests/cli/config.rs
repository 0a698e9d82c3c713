//! The config file: its sources and precedence, error messages, and `onboard`.

use crate::server::{calls, says};
use crate::story::Story;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;

#[test]
fn flag_beats_variable_beats_file_beats_default() {
    let story = Story::new().script((0..4).map(|_| says("ok")));
    story.run(["agent", "-m", "x"]).stdout("ok\n");
    let story = story.env("NANOBOT_AGENTS__DEFAULTS__MODEL", "from-variable");
    story.run(["agent", "-m", "x"]).stdout("ok\n");
    story.run(["agent", "-m", "x", "--model", "from-flag"]).stdout("ok\n");
    let story = story.env("NANOBOT_AGENTS__DEFAULTS__MAXTOKENS", "77");
    story.run(["agent", "-m", "x"]).stdout("ok\n");
    let models: Vec<Value> =
        story.requests().iter().map(|request| request.body["model"].clone()).collect();
    assert_eq!(models, ["scripted", "from-variable", "from-flag", "from-variable"]);
    assert_eq!(story.requests()[0].body["max_tokens"], 8192);
    assert_eq!(story.requests()[3].body["max_tokens"], 77);
}

#[test]
fn a_named_config_must_exist() {
    let story = Story::new();
    for command in [
        &["agent", "-m", "x"][..],
        &["status"],
        &["session", "list"],
        &["config", "get", "agents.defaults.model"],
        &["config", "check"],
    ] {
        story
            .run([&["-c", "nowhere.json"], command].concat())
            .status(66)
            .stderr_has("there is no config file `")
            .stderr_has("nowhere.json`");
    }
    // Commands that create it.
    story.run(["-c", "a.json", "config", "set", "agents.defaults.model", "m"]).stdout("").status(0);
    story.run(["-c", "a.json", "config", "get", "agents.defaults.model"]).stdout("m\n");
    story.run(["-c", "b.json", "onboard", "--yes"]).stderr_has("created");
    assert!(story.dir().join("b.json").is_file());
}

#[test]
fn an_invalid_config_names_the_location() {
    let check = |text: &str, arguments: &[&str]| {
        let story = Story::bare().config_text(text);
        let error = story.run(["agent", "-m", "x"]).status(78).error_text();
        for word in arguments {
            assert!(error.contains(word), "no {word:?} in {error}");
        }
        let after = std::fs::read_to_string(story.home().join(".nanobot/config.json")).unwrap();
        assert_eq!(after, text, "it is left alone");
    };
    check("{\n  \"agents\": {", &["config.json"]);
    check(
        "{\n  \"agents\": {\"defaults\": {\"maxTokens\": \"many\"}}\n}",
        &["config.json:2:", "agents.defaults.maxTokens", "an integer from"],
    );
    check("{\"agents\": []}", &["agents"]);
    check(
        "{\"agents\": {\"defaults\": {\"provider\": \"custom\", \"model\": \"m\"}},\n \"providers\": {\"custom\": {\"apiKey\": \"${NOT_SET}\", \"apiBase\": \"http://127.0.0.1:9/v1\"}}}",
        &["NOT_SET", "providers.custom.apiKey", "config.json:2:"],
    );
}

#[test]
fn a_section_of_the_wrong_type_is_refused_and_nothing_is_sent() {
    let check = |pointer: &str, value: Value, message: &str| {
        let story = Story::new().set(pointer, value);
        let error = story.run(["agent", "-m", "x"]).status(78).error_text();
        assert!(error.contains("config.json:1:") && error.contains(message), "{pointer}: {error}");
        assert!(story.requests().is_empty());
    };
    check("providers", json!("openai"), "`providers` is a string, expected an object");
    check("agents", json!([]), "`agents` is a list");
    check("tools", json!(7), "`tools` is a number");
    check("channels", json!(true), "`channels` is true");
    check("providers.openai", json!("sk-x"), "`providers.openai` is a string");
    check("providers.openai", json!({ "apiKey": 5 }), "`providers.openai.apiKey` is 5");
    check("tools.exec", json!("off"), "`tools.exec` is a string");
    check(
        "channels.telegram",
        json!({ "allowFrom": "me" }),
        "`channels.telegram.allowFrom` is a string",
    );
    // Values that other releases write are accepted: `null`, numbers as strings, unknown channels, unset variables.
    let story = Story::new()
        .set(
            "channels",
            json!({ "sendProgress": null, "email": { "imapPort": "993" }, "unheardOf": 5 }),
        )
        .set("providers.openai", json!({ "apiKey": "${NOT_SET}", "extraHeaders": null }))
        .set("providers.groq", Value::Null)
        .script([says("ok")]);
    story
        .run(["agent", "-m", "x"])
        .stdout("ok\n")
        .stderr_has("unknown keys: `channels.unheardOf`, misspelt or of a newer nanobot;");
}

#[test]
fn the_model_is_told_the_time_in_the_configured_zone() {
    let check = |zone: &str, expect: &str| {
        let story = Story::new().set("agents.defaults.timezone", json!(zone)).script([says("ok")]);
        story.run(["agent", "-m", "x"]).stdout("ok\n");
        let text = story.requests()[0].last_content();
        assert!(text.contains(expect), "{zone}: {text}");
    };
    check("Asia/Shanghai", "[Runtime: 2026-01-02 11:04 Friday (CST);");
    check("UTC", "[Runtime: 2026-01-02 03:04 Friday (UTC);");
    // Like the Python program, a name that does not exist is the local zone.
    check("Nowhere/Land", "[Runtime: 2026-01-02 03:04 Friday (UTC);");
}

#[test]
fn a_local_server_is_not_used_without_its_address() {
    let story = Story::bare().config(&json!({
        "agents": { "defaults": { "model": "m", "provider": "custom" } }, "providers": { "custom": { "apiKey": "" } },
    }));
    story.run(["agent", "-m", "x"]).status(78).stderr_has("no base URL for provider `custom`");
    // A local server that is named is used.
    let story = Story::with_provider("vllm", "m").script([says("ok")]);
    story.run(["agent", "-m", "x"]).stdout("ok\n");
}

#[test]
fn comments_snake_case_and_older_spellings_are_accepted() {
    let story = Story::new();
    let base = format!("http://127.0.0.1:{}/v1", story.server().port);
    let text = format!(
        "{{ // mine\n \"agents\": {{\"defaults\": {{\"model\": \"m\", \"provider\": \"custom\", \"max_tokens\": 5, \"maxIterations\": 1,}}}},\n \"providers\": {{\"custom\": {{\"api_key\": \"${{K}}\", \"api_base\": \"{base}\"}}}}}}"
    );
    let story = story
        .config_text(&text)
        .env("K", "from-variable")
        .script([crate::server::calls("list_dir", json!({})), says("ok")]);
    story.run(["agent", "-m", "x"]).stdout("ok\n").status(3).stderr_has("limit of 1 request");
    assert_eq!(story.requests()[0].body["max_tokens"], 5);
    assert_eq!(story.requests()[0].header("authorization"), Some("Bearer from-variable"));
}

#[test]
fn without_config_a_key_variable_selects_the_provider() {
    let story = Story::bare();
    let error = story.run(["agent", "-m", "x"]).status(78).error_text();
    assert!(error.contains("onboard") && error.contains("--replay demo"), "{error}");
    let story = story.env("OPENAI_API_KEY", "sk-of-the-story");
    let request = story.run(["agent", "-m", "x", "--dry-run"]).json();
    assert_eq!(request["model"], "gpt-6-luna");
    let curl = story.run(["agent", "-m", "x", "--dry-run=curl"]).text();
    assert!(
        curl.contains("https://api.openai.com/v1/responses") && !curl.contains("sk-of-the-story"),
        "{curl}"
    );
}

#[test]
fn get_set_and_check() {
    let story = Story::new();
    story.run(["config", "path"]).stdout("$HOME/.nanobot/config.json\n");
    story.run(["config", "get", "agents.defaults.model"]).stdout("scripted\n");
    story.run(["config", "set", "agents.defaults.maxTokens", "99"]).stderr("");
    story.run(["config", "get", "agents.defaults.maxTokens"]).stdout("99\n");
    story.run(["config", "get", "providers.custom.apiKey"]).stdout("***\n");
    story
        .run(["config", "set", "agents.defaults.maxTokens", "-1"])
        .status(78)
        .stderr_has("is -1, expected an integer");
    story
        .run(["config", "set", "agents.defaults.maxTokens", "many"])
        .status(78)
        .stderr_has("an integer from 1");
    story
        .run(["config", "set", "agents.defaults.modle", "x"])
        .status(2)
        .stderr_has("agents.defaults.model");
    story.run(["config", "get", "model"]).status(2).stderr(
        "nanobot: there is no key `model`\n  try: `agents.defaults.model`, `transcription.model`, `speech.model`, `memory.model`, `memory.embeddings.model`, `tools.imageGeneration.model`\n",
    );
    story.run(["config", "get", "api_base"]).status(2).stderr_has("`providers.NAME.apiBase`");
    let mode =
        std::fs::metadata(story.home().join(".nanobot/config.json")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let schema = story.run(["config", "schema"]).json();
    assert_eq!(
        schema["properties"]["agents"]["properties"]["defaults"]["properties"]["maxTokens"]["minimum"],
        1
    );
    let story = story
        .config_text("{\n  // a comment\n  \"agents\": {\"defaults\": {\"modle\": \"x\"}}\n}\n");
    story.run(["config", "check"]).stdout_has("modle");
    story.run(["config", "set", "agents.defaults.model", "y"]).stderr("");
    let text = std::fs::read_to_string(story.home().join(".nanobot/config.json")).unwrap();
    assert!(
        text.contains("// a comment") && text.contains("modle") && text.contains("\"y\""),
        "{text}"
    );
}

#[test]
fn onboard_in_a_script() {
    let story = Story::bare();
    let arguments = [
        "onboard",
        "--provider",
        "openrouter",
        "--api-key-env",
        "OPENROUTER_API_KEY",
        "--model",
        "m",
        "--yes",
    ];
    story.run(arguments).status(78).stderr_has("refers to `OPENROUTER_API_KEY`, which is not set");
    let path = story.home().join(".nanobot/config.json");
    let text = std::fs::read_to_string(&path).unwrap();
    let config: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(config["agents"]["defaults"]["model"], "m");
    assert_eq!(config["providers"]["openrouter"]["apiKey"], "${OPENROUTER_API_KEY}");
    for name in [
        "AGENTS.md",
        "SOUL.md",
        "USER.md",
        "TOOLS.md",
        "IDENTITY.md",
        "HEARTBEAT.md",
        "memory/MEMORY.md",
        "memory/HISTORY.md",
        "skills",
        "sessions",
    ] {
        assert!(story.workspace().join(name).exists(), "{name}");
    }
    let story = story.workspace_file("SOUL.md", "mine");
    story.run(["onboard", "--yes"]).stderr_has("");
    assert_eq!(std::fs::read_to_string(story.workspace().join("SOUL.md")).unwrap(), "mine");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    story.run(["config", "check"]).status(78).stdout_has("OPENROUTER_API_KEY");
    let story = story.env("OPENROUTER_API_KEY", "sk-or-x");
    story.run(["config", "check"]).stdout("$HOME/.nanobot/config.json: no problems found\n");
}

#[test]
fn onboard_merges_new_keys_into_an_old_config() {
    let story = Story::bare().config_text("{\"agents\": {\"defaults\": {\"model\": \"old\"}}, \"channels\": {\"telegram\": {\"token\": \"t\"}}}");
    story.run(["onboard", "--yes"]).stderr_has("");
    let text = std::fs::read_to_string(story.home().join(".nanobot/config.json")).unwrap();
    let config: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(config["agents"]["defaults"]["model"], "old");
    assert_eq!(config["agents"]["defaults"]["maxTokens"], 8192);
    assert_eq!(config["channels"]["telegram"]["token"], "t");
}

#[test]
fn the_hello_request_is_lean() {
    let story = Story::bare().env("OPENAI_API_KEY", "sk-of-the-story");
    story
        .run(["onboard", "--provider", "openai", "--api-key-env", "OPENAI_API_KEY", "--yes"])
        .stderr_has("");
    let request = story.run(["agent", "-m", "hello", "--dry-run"]).text();
    assert!(
        request.len() / 4 < 2_500,
        "the first request of a hello has {} tokens: its tools and prompt have to say it in fewer words",
        request.len() / 4
    );
    let request: Value = serde_json::from_str(&request).unwrap();
    let tools = request["tools"].as_array().unwrap().iter();
    let names: String = tools.map(|tool| format!("{}\n", tool["name"].as_str().unwrap())).collect();
    crate::recorded::assert_recorded("tests/recorded/hello-tools.txt", &names);
}

#[test]
fn the_gateway_command_is_rejected() {
    Story::bare().run(["gateway"]).status(2).stderr_has("cron");
}

#[test]
fn config_get_shows_effective_values_despite_other_errors() {
    let story = Story::bare().config_text(
        r#"{"agents": {"defaults": {"temperature": "hot", "max_iterations": 7}},
            "providers": {"openai": {"apiKey": "${NOT_SET}"}},
            "modelPresets": {"fast": {"model": "m", "apiKey": "sk-1"}}}"#,
    );
    let all = story.run(["config", "get", "--origin"]).text();
    for line in [
        "agents.defaults.temperature = \"hot\"\tfile $HOME/.nanobot/config.json:1:41",
        "agents.defaults.maxTokens = 8192\tdefault",
        "agents.defaults.maxToolIterations = 7\tfile $HOME/.nanobot/config.json:1:66",
        "providers.openai.apiKey = \"***\"\tfile $HOME/.nanobot/config.json:2:48",
    ] {
        assert!(all.lines().any(|value| value == line), "no {line} in {all}");
    }
    let defaults = story.run(["config", "get", "agents.defaults"]).json();
    assert_eq!(defaults["memoryWindow"], 100);
    let providers = story.run(["config", "get", "providers"]).json();
    assert_eq!(providers["openai"]["apiKey"], "***");
    assert_eq!(providers["openai"]["apiType"], "auto");
    story
        .run(["config", "get", "modelPresets"])
        .stdout("{\"fast\":{\"model\":\"m\",\"apiKey\":\"***\"}}\n");
    story.run(["config", "get", "agents.defaults.maxIterations"]).stdout("7\n");
    for (key, status, message) in [
        ("agents.defaults.temperature", 78, "expected a number"),
        ("providers.openai.apiKey", 78, "NOT_SET"),
        ("agents.defaults.model.x", 2, "there is no key"),
    ] {
        story.run(["config", "get", key]).status(status).stderr_has(message);
    }
}

#[test]
fn the_list_has_what_differs_from_the_defaults() {
    // The Python program writes every key.
    let defaults = json!({
        "model": "m", "maxTokens": 8192, "temperature": 0.1, "modelPreset": null,
        "dream": { "enabled": true, "intervalH": 2 },
    });
    let config = json!({
        "agents": { "defaults": defaults },
        "providers": { "custom": { "apiBase": null, "apiKey": "" } },
        "tools": { "allow": [] },
    });
    // The environment of the stories changes it.
    let auto = ("NANOBOT_MEMORY__CONSOLIDATE", "auto");
    let story = Story::bare().config(&config).env("NANOBOT_BUDGET__DAILY", "2").env(auto.0, auto.1);
    story.run(["config", "ls"]).stdout("agents.defaults.model = \"m\"\nbudget.daily = 2.0\n");
    story
        .run(["config", "list", "--origin"])
        .stdout_has("budget.daily = 2.0\tvariable NANOBOT_BUDGET__DAILY");
    let all = story.run(["config", "list", "--all"]).text();
    assert!(all.contains("agents.defaults.maxTokens = 8192\n"), "{all}");
    story.run(["config", "get"]).stdout(&all);
    let story = Story::bare().env(auto.0, auto.1);
    story.run(["config", "list", "--json"]).stdout("");
    let mut screen = story.screen(24, 80).args(["config", "list"]);
    screen.until("every key has its default");
    assert_eq!(screen.code(), 0);
}

#[test]
fn config_set_reads_keys_from_a_pipe_and_removes_with_null() {
    let story = Story::bare().stdin("sk-piped\n");
    let config = || -> Value {
        let text = std::fs::read_to_string(story.home().join(".nanobot/config.json")).unwrap();
        serde_json::from_str(&text).unwrap()
    };
    let key = "providers.openai.apiKey";
    story.run(["config", "set", key, "-"]).stderr("");
    assert_eq!(config(), json!({"providers": {"openai": {"apiKey": "sk-piped"}}}));
    story.run(["config", "set", key, "${KEY}"]).stderr("");
    assert_eq!(config()["providers"]["openai"]["apiKey"], "${KEY}");
    story.run(["config", "set", key, "sk-argv"]).stderr_has("every process can see");
    assert_eq!(config()["providers"]["openai"]["apiKey"], "sk-argv");
    story.run(["config", "set", key, "null"]).stderr("");
    assert_eq!(config()["providers"]["openai"], Value::Null);
    story.run(["config", "unset", key]).status(66).stderr_has("is not set");
    story.run(["config", "set", "agents.defaults", "{}"]).status(2).stderr_has("holds other keys");
    story.run(["config", "set", "agents.defaults.max_iterations", "9"]).stderr("");
    assert_eq!(config()["agents"]["defaults"]["maxToolIterations"], 9);
}

#[test]
fn onboard_run_again_preserves_previous_choices() {
    let story = Story::bare();
    let config = || -> Value {
        let text = std::fs::read_to_string(story.home().join(".nanobot/config.json")).unwrap();
        serde_json::from_str(&text).unwrap()
    };
    let first = ["onboard", "--provider", "lm-studio", "--model", "mine"];
    story.run(first).stderr_has("created");
    assert_eq!(config()["agents"]["defaults"]["provider"], "lm_studio");
    let again = ["onboard", "--provider", "lmStudio"];
    story.run(again).stderr_has("kept ~/.nanobot/config.json");
    assert_eq!(config()["agents"]["defaults"]["model"], "mine");
    let other = ["onboard", "--provider", "openai"];
    story
        .run(other)
        .status(78)
        .stderr_has("  provider lm_studio → openai\n")
        .stderr_has("kept the model mine");
    let other = ["onboard", "--provider", "ollama", "--model", "small"];
    story
        .run(other)
        .stderr_has("  provider openai → ollama\n  model mine → small\n")
        .stderr_has("not tested; `nanobot status check` sends a request\n");
    let other = ["onboard", "--provider", "openai", "--model", "mine"];
    story.run(other).status(78).stderr_has("updated");
    assert_eq!(config()["agents"]["defaults"]["provider"], "openai");
    assert_eq!(config()["agents"]["defaults"]["model"], "mine");
}

#[test]
fn onboard_rejects_invalid_values() {
    let check = |text: &str, arguments: &[&str], status: i32, message: &str| {
        let story = Story::bare().config_text(text);
        story.run([&["onboard", "--yes"], arguments].concat()).status(status).stderr_has(message);
        let after = std::fs::read_to_string(story.home().join(".nanobot/config.json")).unwrap();
        assert_eq!(after, text);
        assert!(!story.workspace().exists());
    };
    check("{}", &["--provider", "opnai"], 2, "openrouter");
    check("{}", &["--provider", "assemblyai"], 2, "(speech only) is not supported by this release");
    let auto = ["--provider", "auto", "--api-key-env", "OPENAI_API_KEY"];
    check("{}", &auto, 2, "`--api-key-env` needs a provider");
    let key = ["--provider", "openai", "--api-key-env", "sk-secret"];
    check("{}", &key, 2, "is not a variable name");
    check("{}", &["--api-key-env", "KEY"], 2, "--provider NAME");
    let wrong = "{\"agents\": {\"defaults\": {\"temperature\": \"hot\"}}}";
    check(wrong, &[], 78, "expected a number");
    check("{\"agents\": ", &[], 78, "config.json:1:");
}

#[test]
fn a_value_that_would_break_every_run_is_not_written() {
    let story = Story::new();
    let check = |key: &str, value: &str, message: &str| {
        story.run(["config", "set", key, value]).status(78).stderr_has(message);
    };
    let check_key = |key: &str, value: &str, message: &str| {
        story.run(["config", "set", key, value]).status(2).stderr_has(message);
    };
    check("tools.permissions.exec", "sometimes", "`always`, `ask` or");
    check("tools.permissions.exce", "never", "did you mean `exec`?");
    check("tools.allow", "[\"foo(\"]", "closing");
    check("tools.exec.denyPatterns", "[\"(\"]", "is not a valid regular expression");
    check("tools.net", "[\"a b\"]", "is not a host");
    check("agents.defaults.provider", "opnai", "try: `openai`");
    check("agents.defaults.provider", "nope", "there is no provider `nope`");
    check("agents.defaults.model", "", "try: nanobot config unset agents.defaults.model");
    check("models", "{\"m\": {\"contextWindow\": 1}}", "did you mean `contextWindowTokens`?");
    check_key("models.m.pdff", "true", "did you mean `pdf`?");
    check("models", "5", "`models` is 5, expected an object");
    check("agents.defaults.fallbackModels", "other", "is a string, expected a list");
    check_key("agents.defaults.fallbackModels.0", "other", "try: `agents.defaults.fallbackModels`");
    story.run(["config", "set", "providers.mine.extraBody", r#"{"stop": ["a"]}"#]).stdout("");
    check_key(
        "providers.mine.extraBody.stop.0",
        "b",
        "`providers.mine.extraBody.stop` is a list, which can only be set as a whole\n  try: `nanobot config set providers.mine.extraBody.stop '[…]'`",
    );
    story.run(["config", "get", "providers.mine.extraBody"]).stdout_has("\"a\"");
    story.run(["config", "set", "providers.mine.apiBase", "http://127.0.0.1:9/v1"]).stdout("");
    for provider in ["mine", "lm-studio", "auto"] {
        story.run(["config", "set", "agents.defaults.provider", provider]).stdout("");
    }
    story
        .run(["config", "set", "tools.ssrfWhitelist", "[\"0.0.0.0/0\"]"])
        .stderr_has("could direct the agent to almost any reachable host");
    story
        .run(["config", "check"])
        .stdout_has("warning: ")
        .stdout_has("could direct the agent to almost any reachable host");
    story
        .run(["config", "set", "agents.defaults.timezone", "Mars/X"])
        .stderr_has("`Mars/X`, which is no time zone here, so the system's is used");
    story.run(["config", "check"]).stdout_has("`Mars/X`, which is no time zone here");
}

#[test]
fn a_change_that_would_stop_every_run_leaves_the_file_alone() {
    let story = Story::new();
    let text = || std::fs::read_to_string(story.home().join(".nanobot/config.json")).unwrap();
    let fails_with = |status: i32, arguments: &[&str], message: &str| {
        let before = text();
        let result = story.run(["config"].iter().chain(arguments).copied());
        result.status(status).stderr_has(message);
        assert_eq!(text(), before, "{arguments:?}");
    };
    let refused = |arguments: &[&str], phrase: &str| fails_with(78, arguments, phrase);
    let set = |key: &str, value: &str, phrase: &str| refused(&["set", key, value], phrase);
    set("models.gpt-5.price.input", "2", "`input` and `output`");
    set("models.gpt-5.images", "maybe", "is not true or false");
    set("agents.defaults.modelPreset", "nosuch", "no such preset");
    set("agents.defaults.fallbackModels", "[\"x\",5]", "fallbackModels.1");
    set("agents.defaults.profile", "nosuch", "there is no profile");
    set("agents.defaults.profile", "full", "cannot be the default");
    set("agents.defaults.promptFiles.system", "/nonexist", "No such file");
    for address in ["notaurl", "ftp://example.org/"] {
        set("providers.custom.apiBase", address, "is not a URL");
    }
    set("providers.custom.apiBase", "http://", "`http://` has no host");
    set("providers.custom.apiBase", "http://a b/", "has a blank in it");
    fails_with(2, &["set", "providers.custom.extraHeaders.X-A.B", "v2"], "no key");
    fails_with(2, &["set", "tools.mcpServers.s.env.A.B", "1"], "no key");
    let accepted = |arguments: &[&str]| {
        story.run(["config"].iter().chain(arguments).copied()).stdout("");
    };
    accepted(&["set", "modelPresets.fast.model", "m"]);
    accepted(&["set", "agents.defaults.modelPreset", "fast"]);
    refused(
        &["unset", "modelPresets"],
        "unset `modelPresets`: `agents.defaults.modelPreset` is `fast`",
    );
    // A variable that is not set here may be set where runs start.
    accepted(&["set", "agents.defaults.model", "${NOT_SET}"]);
    // A config that no run can use is mended in steps.
    accepted(&["set", "agents.defaults.modelPreset", "nosuch"]);
    accepted(&["unset", "agents.defaults.model"]);
    accepted(&["unset", "agents.defaults.modelPreset"]);
    refused(&["set", "agents.defaults.modelPreset", "nosuch"], "no such preset");
}

#[test]
fn the_check_finds_what_stops_every_run() {
    let check = |key: &str, value: &str, finding: &str, run: &str| {
        let story = Story::new().set(key, json!(value));
        let result = story.run(["config", "check"]).status(78);
        assert_eq!(result.text().matches("error: ").count(), 1, "{}", result.text());
        result.stdout_has(finding);
        story.run(["agent", "-m", "hi"]).status(78).stderr_has(run);
    };
    let unknown = "there is no profile `nosuch`";
    check("agents.defaults.profile", "nosuch", unknown, unknown);
    for name in ["system", "compaction", "consolidation"] {
        let key = format!("agents.defaults.promptFiles.{name}");
        let story = Story::new().set(&key, json!("/nonexist"));
        story
            .run(["config", "check"])
            .status(78)
            .stdout_has(&format!("error: `{key}`: read `/nonexist`"));
    }
    check(
        "providers.custom.apiBase",
        "notaurl",
        "`providers.custom.apiBase`: `notaurl` is not a URL",
        "invalid URL",
    );
}

#[test]
fn a_name_with_a_dot_is_quoted() {
    let story = Story::new();
    // It may as well be a wrong name of a key.
    story
        .run(["config", "set", "models.m.inputPrice", "1"])
        .status(2)
        .stderr_has("try: one of contextWindowTokens, ")
        .stderr_has(", price, or `'models.\"m.inputPrice\"'`");
    let read = || -> Value {
        let text = std::fs::read_to_string(story.home().join(".nanobot/config.json"));
        serde_json::from_str(&text.unwrap()).unwrap()
    };
    let before = read();
    let config = |arguments: &[&str]| story.run(["config"].iter().chain(arguments).copied());
    for (key, value, shown_value) in [
        ("models.\"gpt-4.1\".price", r#"{"input":2,"output":8}"#, r#"{"input":2,"output":8}"#),
        ("modelPresets.\"v1.5\".model", "x", "x"),
        ("providers.custom.extraHeaders.\"X-A.B\"", "v", "***"),
        ("providers.\"my.own\".apiBase", "http://127.0.0.1:9/v1", "http://127.0.0.1:9/v1"),
        ("tools.mcpServers.\"s.t\".command", "true", "true"),
    ] {
        let bare = key.replace('"', "");
        config(&["set", &bare, value])
            .status(2)
            .stderr_has(&format!("  try: `'{key}'`: a name with a dot is quoted\n"));
        assert_eq!(read(), before, "{key}");
        config(&["get", &bare]).status(2).stderr_has(key);
        config(&["unset", &bare]).status(2).stderr_has(key);
        let result = config(&["set", key, value]);
        match shown_value {
            "***" => drop(result.stderr_has(&format!("`nanobot config set '{key}' -`"))),
            _ => drop(result.stdout("")),
        }
        config(&["get", key]).stdout(&format!("{shown_value}\n"));
        config(&["unset", key]).stdout("");
        assert_eq!(read(), before, "{key}");
    }
    for (key, message) in [
        ("models.m.pdff", "did you mean `pdf`?\n"),
        ("models.m.pric.input", "`models.m.pric`; did you mean `price`?\n"),
        ("modelPresets.m.modle", "did you mean `model`?\n"),
        ("providers.custom.apiKye", "try: `providers.*.apiKey`\n"),
    ] {
        config(&["set", key, "1"]).status(2).stderr_has(message);
    }
    config(&["set", "models.\"gpt", "{}"]).status(2).stderr_has("there is no key `models.\"gpt`");
    let story = story.set("providers", json!({ "my.own": { "apiBase": "http://x.example/" } }));
    let listed = story.run(["config", "list"]).text();
    let line = "providers.\"my.own\".apiBase = \"http://x.example/\"\n";
    assert!(listed.contains(line), "{listed}");
}

#[test]
fn a_provider_with_a_dot_in_its_name_is_set_up() {
    let story = Story::bare();
    story
        .run(["onboard", "--yes", "--provider", "my.own", "--model", "m"])
        .status(2)
        .stderr_has("there is no provider `my.own`");
    let arguments = "onboard --yes --provider my.own --model m --api-base http://127.0.0.1:9/v1";
    story.run(arguments.split(' ')).stderr_has("created");
    story.run(["config", "get", "providers.\"my.own\".apiBase"]).stdout("http://127.0.0.1:9/v1\n");
    story.run(["config", "check"]).stdout_has("no problems found");
}

#[test]
fn a_misspelt_limit_stops_every_run() {
    let check = |key: &str, value: Value| {
        let story = Story::new().set(key, value);
        for command in [&["agent", "-m", "x"] as &[&str], &["status"], &["cron", "list"]] {
            story
                .run(command.iter().copied())
                .status(78)
                .stderr_has(&format!("unknown key `{key}`"));
        }
        let line = format!("unknown key `{key}`");
        story.run(["config", "check"]).status(78).stdout_has(&line);
    };
    check("budget.dayly", json!(1.0));
    check("budget.anything", json!(1.0));
    check("bugdet", json!({ "daily": 1.0 }));
    check("tool", json!({ "restrict_to_workspace": true }));
    check("hook", json!({ "pre_tool": [{ "command": "./forbid" }] }));
    check("tools.denny", json!(["exec"]));
    check("tools.permission", json!({ "exec": "never" }));
    check("tools.restrictToWorkspce", json!(true));
    check("tools.exec.denyPattern", json!(["rm"]));
    check("tools.mcpServers.one.disabledTools", json!(["x"]));
    let story = Story::new().env("NANOBOT_BUDGET__DAILLY", "1");
    let meant =
        "NANOBOT_BUDGET__DAILLY: does not match any config key; did you mean `budget.daily`?";
    story.run(["agent", "-m", "x"]).status(78).stderr_has(meant);
    story.run(["config", "check"]).status(78).stdout_has(meant);
}

#[test]
fn a_key_of_another_program_with_a_similar_name_stops_no_run() {
    let story = Story::new()
        .set("badge", json!({ "color": "green", "text": "ok" }))
        .set("fools", json!(["april"]))
        .set("hookah", json!({ "coals": 3 }))
        .script([says("1")]);
    story.run(["agent", "-m", "x"]).stdout("1\n").stderr_has("unknown keys: `badge`, `fools`");
    let status = story.run(["status"]);
    assert_eq!(status.code(), 0, "{}", status.error_text());
    drop(status.text());
    story.run(["config", "check"]).stdout_has("warning: ").stdout_has("unknown key `badge`");
}

#[test]
fn other_unknown_keys_are_one_notice() {
    let story = Story::new()
        .set("agents.defaults.modle", json!("x"))
        .set("mine", json!(1))
        .set("_comment", json!("why"))
        .set("tools.mcpServers.one.autoApprove", json!([]))
        .set("tools.mcpServers.one.disabled", json!(true))
        .script([says("1"), says("2")]);
    story.run(["agent", "-m", "x"]).stdout("1\n").stderr(
        "nanobot: the config has unknown keys: `agents.defaults.modle`, `mine`, `tools.mcpServers.one.autoApprove`, misspelt or of a newer nanobot; `nanobot config check` shows their positions\n",
    );
    story.run(["agent", "-q", "-m", "x"]).stdout("2\n");
    assert!(story.run(["config", "check"]).text().contains("warning: "));
    story.run(["config", "check", "--strict"]).status(78).stdout_has("warning: ");
    Story::bare()
        .config_text("{}")
        .run(["config", "check", "--strict"])
        .stdout_has("no problems found");
}

#[test]
fn an_empty_config_file_is_refused_and_an_empty_device_is_not() {
    for text in ["", "\n \n"] {
        let story = Story::bare().config_text(text);
        story
            .run(["agent", "-m", "x"])
            .status(78)
            .stderr("nanobot: config `$HOME/.nanobot/config.json` is empty\n  try: restore the file, or write `{}` for an empty config\n");
    }
    Story::bare()
        .run(["config", "check", "-c", "/dev/null"])
        .stdout("/dev/null: no problems found\n");
}

/// The config decides what runs, so a run says who else can change it.
#[test]
fn a_config_that_others_can_change_is_told() {
    let story = Story::new().script((0..3).map(|_| says("ok")));
    let path = story.home().join(".nanobot/config.json");
    let set_mode = |mode| std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
    for mode in [0o600, 0o664] {
        set_mode(mode);
        story.run(["agent", "-m", "x"]).stdout("ok\n");
    }
    set_mode(0o666);
    story
        .run(["agent", "-m", "x"])
        .stdout("ok\n")
        .stderr_has("every user can change it (mode 0666): `chmod go-w ");
    story.run(["config", "check"]).stdout_has("every user can change it (mode 0666)");
    if !rustix::process::getuid().is_root() {
        return;
    }
    set_mode(0o600);
    std::os::unix::fs::chown(&path, Some(65534), None).unwrap();
    story.server().script([says("ok")]);
    story
        .run(["agent", "-m", "x"])
        .stdout("ok\n")
        .stderr_has("it belongs to another user (65534), who can change it: `sudo chown 0 ");
}

/// The argument after a flag that names a secret is one.
#[test]
fn secrets_in_the_arguments_of_a_server_are_masked() {
    let args =
        json!(["--verbose", "--api-key", "abcdefgh-1234", "--auth-token=ijklmnop-5678", "notes",]);
    let story = Story::new()
        .set("tools", json!({ "mcpServers": { "one": { "command": "server", "args": args } } }))
        .file("cmdline", "server --api-key abcdefgh-1234 --auth-token=ijklmnop-5678 notes")
        .script([calls("read_file", json!({ "path": "cmdline" })), says("ok")]);
    for arguments in [&["config", "get", "tools.mcpServers.one.args"][..], &["config", "list"]] {
        let text = story.run(arguments).text();
        assert!(!text.contains("abcdefgh") && !text.contains("ijklmnop"), "{text}");
        assert!(text.contains("--auth-token=***") && text.contains("notes"), "{text}");
    }
    // A process list that a command prints shows them to the model.
    // The server does not exist, which is reported.
    let result = story.run(["agent", "-m", "x"]).stdout("ok\n");
    drop(result.stderr_has("one"));
    let requests = story.requests();
    let body = &requests.last().unwrap().raw;
    assert!(body.contains("--verbose") || body.contains("--auth-token=***"), "{body}");
    assert!(!body.contains("abcdefgh-1234") && !body.contains("ijklmnop-5678"), "{body}");
}

#[test]
fn the_check_covers_the_provider_and_profiles_and_the_python_program_where_it_is() {
    let path = |story: &Story, name: &str| story.home().join(".nanobot").join(name);
    let story =
        Story::new().set("agents.defaults.provider", json!("nope")).set("terminal.bell", json!(10));
    let bad = path(&story, "profiles/bad.md");
    crate::story::write(&bad, b"---\nextends: nothing\n---\n");
    crate::story::write(&path(&story, "profiles/good.md"), b"Be good.\n");
    let text = story.run(["config", "check"]).status(78).text();
    assert!(text.contains("there is no provider `nope`"), "{text}");
    assert!(text.contains("profiles/bad.md"), "{text}");
    assert!(!text.contains("good"), "{text}");
    assert!(!text.contains("Python"), "{text}");
    let python = "or drops them: `terminal.bell`; `nanobot config check --fix` moves them to ";
    story.run(["config", "check", "--strict"]).status(78).stdout_has(python);
    crate::story::write(&path(&story, "history/cli_history"), b"");
    story.run(["config", "check"]).status(78).stdout_has(python);
}

#[test]
fn an_unset_key_takes_the_object_that_it_leaves_empty_along() {
    let story = Story::new();
    let before = story.config_value();
    story.run(["config", "set", "terminal.bell", "10"]).stdout("");
    assert_ne!(story.config_value(), before);
    story.run(["config", "unset", "terminal.bell"]).stdout("");
    assert_eq!(story.config_value(), before);
}
