//! `models` and `providers`: usable providers, their models, and the sources of their keys.

use crate::formats::Format;
use crate::server::{Responder, Response, fails, says, sends};
use crate::story::{NANOBOT, Story, write};
use serde_json::{Value, json};

fn find_by_name<'a>(lines: &'a [Value], name: &str) -> &'a Value {
    let row = lines.iter().find(|line| line["name"] == name);
    row.unwrap_or_else(|| panic!("no {name}"))
}

#[test]
fn models_lists_known_models() {
    let story = Story::bare();
    let text = story.run(["model", "list", "--provider", "openAI"]).text();
    let lines: Vec<Vec<&str>> =
        text.lines().map(|line| line.split_whitespace().collect()).collect();
    let head = ["PROVIDER", "NAME", "CONTEXT", "OUTPUT", "$IN", "$OUT", "TAKES"];
    assert_eq!(lines[0], head);
    let expect = ["openai", "gpt-4o-mini", "128000", "16384", "0.15", "0.6", "images,pdf"];
    assert!(lines.iter().any(|line| *line == expect), "{text}");
    assert!(text.lines().last().unwrap().starts_with("+ long requests"));

    let lines = story.run(["model", "list", "--json"]).json_lines();
    let price = |above, input, cached, written, output| json!({ "above": above, "input": input, "cached_input": cached, "cache_write": written, "output": output });
    let expect = json!({
        "v": 1, "provider": "gemini", "name": "gemini-2.5-pro", "context": 1_048_576, "output": 65_536, "images": true, "pdf": true, "audio": true,
        "reasoning": true,
        "prices": [price(0, 1.25, 0.125, 1.25, 10.0), price(200_000, 2.5, 0.25, 2.5, 15.0)],
    });
    assert_eq!(*find_by_name(&lines, "gemini-2.5-pro"), expect);
    assert!(lines.iter().any(|line| line["provider"] == "anthropic"));

    story
        .run(["model", "list", "--provider", "nobody"])
        .status(2)
        .stderr("nanobot: there is no provider `nobody`\n  try: nanobot model provider list\n");
    story
        .run(["model", "list", "--provider", "ollama"])
        .stderr("nanobot: no models of `ollama` are known; `--remote` asks the provider\n");
    assert!(!story.home().join(".nanobot").exists());
}

#[test]
fn models_shows_which_provider_would_be_used() {
    let story = Story::bare().env("OPENAI_API_KEY", "key-of-the-story");
    let expect = "\
provider   openai: OpenAI
address    https://api.openai.com/v1
format     OpenAI responses
model      gpt-5.4-mini
key        $OPENAI_API_KEY
context    272000 tokens (table)
output     128000 tokens (table)
images     yes (table)
pdf        yes (table)
audio      no (table)
reasoning  yes (table)
price      $0.75 in, $0.075 cached, $0.75 cache write, $4.5 out per million tokens (table)
quirk      no temperature is sent
";
    story.run(["model", "show", "openai/gpt-5.4-mini"]).stdout(expect);
    Story::bare()
        .run(["model", "show", "gpt-5"])
        .status(78)
        .stderr_has("no provider is configured");
}

#[test]
fn a_preset_is_shown_with_its_config_overrides() {
    let story = Story::new()
        .set(
            "modelPresets",
            json!({ "quick": { "model": "m", "provider": "custom", "fallbacks": ["n"], "contextWindowTokens": 9000 } }),
        )
        .set(
            "models",
            json!({ "m": { "images": false, "price": { "input": 1, "output": 2 } } }),
        );
    let job = story.run(["model", "show", "quick", "--json"]).json();
    let base = format!("http://127.0.0.1:{}/v1", story.server().port);
    let price = json!([{ "above": 0, "input": 1.0, "cached_input": 1.0, "cache_write": 1.0, "output": 2.0 }]);
    let expect = json!({
        "v": 1, "name": "quick", "provider": "custom", "label": "Custom (any OpenAI-compatible address)", "address": base,
        "format": "OpenAI chat completions", "model": "m", "key": "providers.custom.apiKey",
        "context": { "value": 9000, "from": "config" }, "output": null, "images": { "value": false, "from": "config" },
        "pdf": null, "audio": null, "reasoning": null, "prices": { "value": price, "from": "config" }, "quirks": ["JSON schemas are sent as text only"],
        "fallbacks": [{ "model": "n", "provider": "custom" }],
    });
    assert_eq!(job, expect);
    let text = story.run(["model", "show", "quick"]).text();
    assert!(text.contains("context    9000 tokens (config)\n"), "{text}");
    assert!(text.contains("output     unknown\n"), "{text}");
    assert!(text.contains("fallback   n of custom\n"), "{text}");
    assert!(!text.contains("key-of-the-story"), "{text}");
}

#[test]
fn the_context_window_of_a_local_server_is_the_one_that_it_reports() {
    let list = json!({ "object": "list", "data": [{ "id": "m", "max_model_len": 8192 }] });
    let named = json!({ "data": [{ "id": "m", "context_length": 8192 }, { "id": "n", "context_length": 1 }] });
    let props = json!({ "default_generation_settings": { "n_ctx": 8192 } });
    let response =
        json!({ "parameters": "num_ctx 8192", "model_info": { "llama.context_length": 131_072 } });
    for (provider, path, answer) in [
        ("vllm", "/v1/models", list),
        ("lmStudio", "/v1/models", named),
        ("llamaCpp", "/props", props.clone()),
        ("ollama", "/api/show", response),
        ("custom", "/props", props),
    ] {
        let story = Story::with_provider(provider, "m").script([says("1"), says("2"), says("3")]);
        story.server().describe_model(path, answer);
        story.run(["agent", "-m", "x"]).stdout("1\n");
        let question_count = story.server().model_questions().len();
        assert!(question_count > 0, "{provider}");
        // The answer may take half of it: with more, vLLM refuses the request.
        assert_eq!(story.requests()[0].body["max_tokens"], 4096, "{provider}");
        // It is asked once a day, and the report is used meanwhile.
        story.run(["agent", "-m", "x"]).stdout("2\n");
        story.run(["agent", "-m", "x", "--dry-run=table"]).stdout_has("; context window 8192\n");
        story.run(["model", "show", "m"]).stdout_has("context    8192 tokens (server)\n");
        assert_eq!(story.server().model_questions().len(), question_count, "{provider}");
        let story = story.env("NANOBOT_TEST_TIME", "2026-01-03T04:04:05Z");
        story.run(["agent", "-m", "x"]).stdout("3\n");
        assert_eq!(story.server().model_questions().len(), 2 * question_count, "{provider}");
    }
}

#[test]
fn a_context_window_is_asked_for_only_where_it_is_unknown() {
    // A server that does not know it is not asked again either.
    let story = Story::with_provider("vllm", "m").script([says("1"), says("2")]);
    story.run(["agent", "-m", "x"]).stdout("1\n");
    story.run(["agent", "-m", "x"]).stdout("2\n");
    assert_eq!(story.server().model_questions().len(), 3);
    story.run(["model", "show", "m"]).stdout_has("context    unknown\n");
    // Configured, for the model or for all unknown ones.
    for (key, value) in [
        ("models", json!({ "m": { "contextWindowTokens": 4096 } })),
        ("agents.defaults.contextWindowTokens", json!(4096)),
    ] {
        let story = Story::with_provider("vllm", "m").set(key, value).script([says("1")]);
        story.run(["agent", "-m", "x"]).stdout("1\n");
        assert_eq!(story.server().model_questions(), [""; 0], "{key}");
    }
    // Another machine's vendor.
    let story = Story::with_provider("mistral", "m").script([says("1")]);
    story.run(["agent", "-m", "x"]).stdout("1\n");
    assert_eq!(story.server().model_questions(), [""; 0]);
}

#[test]
fn models_are_fetched_from_the_server() {
    let list = json!({ "object": "list", "data": [{ "id": "one" }, { "id": "gpt-4o\u{1b}[2J" }] });
    let ask = || sends(Response::json(200, &list));
    let story = Story::new().script([ask(), ask()]);
    story.run(["model", "list", "--remote"]).stdout("one\ngpt-4o\\u{1b}[2J\n");
    let request = &story.requests()[0];
    assert_eq!(request.path, "/v1/models");
    assert_eq!(request.header("authorization"), Some("Bearer key-of-the-story"));
    let arguments = ["model", "list", "--remote", "--json", "--provider", "Custom"];
    let lines = story.run(arguments).json_lines();
    assert_eq!(find_by_name(&lines, "one")["context"], Value::Null);
}

#[test]
fn anthropic_models_are_fetched_in_pages() {
    let page = |ids: &[&str], more: bool| {
        let items: Vec<Value> = ids.iter().map(|id| json!({ "id": id })).collect();
        let last = ids.last();
        let body = json!({ "data": items, "has_more": more, "first_id": ids[0], "last_id": last });
        sends(Response::json(200, &body))
    };
    let story = Story::new();
    let base = format!("http://127.0.0.1:{}", story.server().port);
    let block = json!({ "apiKey": "key-of-the-story", "apiBase": base });
    let story = story
        .set("providers.anthropic", block)
        .script([page(&["a", "claude/b"], true), page(&["claude-opus-5"], false)]);
    let arguments = ["model", "list", "--remote", "--provider", "anthropic", "--json"];
    let lines = story.run(arguments).json_lines();
    let names: Vec<&Value> = lines.iter().map(|line| &line["name"]).collect();
    assert_eq!(names, ["a", "claude/b", "claude-opus-5"]);
    assert_eq!(lines[2]["context"], 1_000_000);
    let requests = story.requests();
    assert_eq!(requests[0].path, "/v1/models?limit=1000");
    assert_eq!(requests[1].path, "/v1/models?limit=1000&after_id=claude%2Fb");
    assert_eq!(requests[1].header("x-api-key"), Some("key-of-the-story"));
    assert!(requests[1].header("anthropic-version").is_some());
}

#[test]
fn a_failed_fetch_exits_with_its_cause() {
    let check = |turn, status: i32, message: &str| {
        let ran_of = Story::new().script([turn]);
        let result = ran_of.run(["model", "list", "--remote"]);
        let stderr = result.status(status).error_text();
        assert!(stderr.contains(message), "{stderr}");
        assert!(!stderr.contains("key-of-the-story"), "{stderr}");
        assert!(!stderr.contains("--resume"), "{stderr}");
    };
    let nonsense = |text| sends(Response::text(200, "application/json", text));
    check(fails(401, "no key-of-the-story"), 77, "apiKey");
    check(fails(404, "not here"), 78, "not here");
    check(fails(429, "slowly"), 75, "slowly");
    check(fails(500, "down"), 69, "down");
    check(nonsense("<html>"), 69, "not a list of models");
    check(nonsense("{\"data\": 7}"), 69, "not a list of models");
}

/// A server whose API is below `/v1`, as Ollama's is.
fn answers_below_v1() -> Responder {
    Box::new(|request| {
        let respond = match request.path.as_str() {
            "/v1/models" => sends(Response::json(
                200,
                &json!({ "data": [{ "id": "small" }, { "id": "large" }] }),
            )),
            path if path.starts_with("/v1/") => says("Hello."),
            _ => sends(Response::text(404, "text/plain", "404 page not found")),
        };
        respond(request)
    })
}

#[test]
fn an_address_without_its_version_is_completed_and_kept() {
    for (format, path) in [(Format::Chat, ""), (Format::Responses, "/api")] {
        let story = Story::in_format(format, "scripted");
        let root = format!("http://127.0.0.1:{}", story.server().port);
        let story = story.set("providers.custom.apiBase", json!(format!("{root}{path}")));
        story.server().always(answers_below_v1());
        let notice =
            format!("nanobot: there is no API at {root}{path}; {root}/v1 is used instead\n");
        story.run(["agent", "-m", "hello"]).stdout("Hello.\n").stderr(&notice);
        let count = story.requests().len();
        story.run(["agent", "-m", "hello"]).stdout("Hello.\n").stderr("");
        assert!(story.requests()[count..].iter().all(|request| request.path.starts_with("/v1/")));
        story.run(["model", "list", "--remote"]).stdout("small\nlarge\n").stderr("");
    }
}

#[test]
fn an_address_that_is_completed_in_vain_is_reported_as_given() {
    let story = Story::new();
    let root = format!("http://127.0.0.1:{}", story.server().port);
    let story = story.set("providers.custom.apiBase", json!(root));
    story.server().always(sends(Response::text(404, "text/plain", "404 page not found")));
    let message = format!("nanobot: {root}: 404 page not found (status 404)\n");
    story.run(["model", "list", "--remote"]).status(78).stderr_has(&message);
    let paths: Vec<String> = story.requests().iter().map(|it| it.path.clone()).collect();
    assert_eq!(paths, ["/models", "/v1/models"]);
}

#[test]
fn providers_shows_the_source_of_each_key() {
    let credentials = tempfile::tempdir().unwrap();
    write(&credentials.path().join("GROQ_API_KEY"), b"secret-1");
    let config = json!({ "providers": {
        "openai": { "apiKey": "secret-2" },
        "mistral": { "apiKeyFile": "~/mistral.key" },
        "deepseek": { "apiKeyCommand": "echo secret-3" },
        "xai": { "apiKey": "${NOT_SET}" },
        "ollama": { "apiBase": "http://user:secret-4@localhost:11434/v1" },
        "mine": { "apiBase": "http://localhost:9/v1?k=secret-5" },
    } });
    let story = Story::bare()
        .config(&config)
        .env("CREDENTIALS_DIRECTORY", credentials.path().to_str().unwrap())
        .env("GEMINI_API_KEY", "secret-6");
    let result = story.run(["model", "provider", "list", "--json"]);
    assert!(!result.text().contains("secret-"), "{}", result.text());
    let lines = result.json_lines();
    let check = |name: &str, usable: bool, key: &str, name_start: &str| {
        let line = find_by_name(&lines, name);
        let text = |field: &str| line[field].as_str().unwrap_or("-").to_owned();
        assert_eq!(line["usable"], usable, "{line}");
        assert_eq!((text("key").as_str(), text("key_place").as_str()), (key, name_start), "{line}");
    };
    check("openai", true, "config", "providers.openai.apiKey");
    check("mistral", true, "file", "$HOME/mistral.key");
    check("deepseek", true, "command", "providers.deepseek.apiKeyCommand");
    check("groq", true, "credential", "the credential GROQ_API_KEY");
    check("gemini", true, "variable", "$GEMINI_API_KEY");
    check("openrouter", false, "-", "-");
    check("xai", false, "-", "-");
    check("ollama", true, "-", "-");
    check("lmStudio", false, "-", "-");
    check("openaiCodex", false, "-", "-");
    check("assemblyai", false, "-", "-");
    check("mine", true, "-", "-");
    assert!(find_by_name(&lines, "xai")["problem"].as_str().unwrap().contains("NOT_SET"));
    let expect = "http://***@localhost:11434/v1";
    assert_eq!(find_by_name(&lines, "ollama")["address"], expect);
    let keys: Vec<&String> = lines[0].as_object().unwrap().keys().collect();
    let expect = [
        "v",
        "name",
        "label",
        "kind",
        "usable",
        "key",
        "key_place",
        "address",
        "token_until",
        "problem",
    ];
    assert_eq!(keys, expect);

    let result = story.run(["model", "provider", "list"]);
    let (text, stderr) = (result.text(), result.error_text());
    assert!(!text.contains("secret-") && !stderr.contains("secret-"));
    assert!(stderr.contains("NOT_SET"), "{stderr}");
    assert!(text.lines().nth(1).unwrap().starts_with("custom "), "in the table's order");
}

#[test]
fn on_a_terminal_usable_providers_are_listed_first() {
    let story = Story::bare().env("XAI_API_KEY", "key-of-the-story");
    let show = |env: &[(&str, &str)]| {
        let mut command = story.program("script");
        let shell = format!("stty cols 60; {NANOBOT} provider list");
        command.args(["-qec", &shell, "/dev/null"]);
        command.env("TERM", "xterm").envs(env.iter().copied());
        story.wait(command.spawn().unwrap()).text()
    };
    let text = show(&[("NO_COLOR", "1")]);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("  NAME"), "{text}");
    assert!(lines[1].starts_with("* xai "), "{text}");
    assert!(lines[2].starts_with("  custom "), "{text}");
    assert!(lines.iter().all(|line| line.chars().count() <= 60), "{text}");
    assert!(show(&[]).contains("\u{1b}[32m*"), "{text}");
}

#[test]
fn a_model_is_used_by_default() {
    let list = json!({ "object": "list", "data": [{ "id": "small" }, { "id": "thinker" }] });
    let lists = || sends(Response::json(200, &list));
    let story = Story::new()
        .script([lists(), says("a"), lists(), says("b"), lists(), fails(404, "no list")])
        .set("modelPresets.deep", json!({ "model": "thinker" }));
    story.run(["model", "use", "small"]).stderr("nanobot: runs use small of custom\n");
    story.run(["agent", "-m", "x"]).stdout("a\n");
    assert_eq!(story.requests()[1].body["model"], "small");
    story.run(["model", "use", "deep"]).stderr("nanobot: runs use thinker of custom\n");
    story.run(["agent", "-m", "x"]).stdout("b\n");
    assert_eq!(story.requests()[3].body["model"], "thinker");
    story.run(["model", "use", "smal"]).stderr(
        "nanobot: runs use smal of custom\n\
         nanobot: `smal` is not in the list of custom, which `nanobot model list --remote` shows\n",
    );
    // Not every server has a list.
    story.run(["model", "use", "small"]).stderr("nanobot: runs use small of custom\n");
    story.run(["config", "get", "agents.defaults.modelPreset"]).stdout("\n");
}
