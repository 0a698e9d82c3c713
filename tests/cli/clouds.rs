//! Models of clouds, whose credentials are not a key: tokens that a command prints.

use crate::formats::Format;
use crate::server::{calls, fails, says};
use crate::story::Story;
use serde_json::{Value, json};

/// A story of one provider, at the story's server.
fn cloud_story(provider: &str, model: &str, path: &str, settings: Value) -> Story {
    let story = Story::bare();
    let base = format!("http://127.0.0.1:{}{path}", story.server().port);
    let mut config = json!({ "agents": { "defaults": { "model": model, "provider": provider } } });
    config["providers"][provider] = settings;
    config["providers"][provider]["apiBase"] = json!(base);
    story.config(&config)
}

/// The value of a header of each request, in order.
fn header_values(story: &Story, name: &str) -> Vec<String> {
    let requests = story.requests();
    requests.iter().map(|request| request.header(name).unwrap_or("none").to_owned()).collect()
}

/// A command that prints another token each time, and counts its runs.
const COUNTING_COMMAND: &str = "echo run >> ~/runs; echo eyJ-token-$(wc -l < ~/runs)";

#[test]
fn azure_gets_a_token_of_entra_in_another_header_than_a_key() {
    let check = |path: &str, settings: Value, header: &str, value: &str| {
        let story = cloud_story("azureOpenai", "gpt-of-mine", path, settings).script([says("x")]);
        story.run(["agent", "-m", "hi"]).stdout("x\n");
        let request = story.last_request();
        let names = ["authorization", "api-key", "x-api-key"];
        let sent = names.into_iter().filter_map(|name| Some((name, request.header(name)?)));
        assert_eq!(sent.collect::<Vec<_>>(), [(header, value)], "{path}");
        request
    };
    let key = || json!({ "apiKey": "key-of-the-resource" });
    let token = || json!({ "apiKeyCommand": "echo eyJ-token-of-entra" });
    let chat = Format::Chat.path();
    assert_eq!(
        check("", key(), "api-key", "key-of-the-resource").path,
        format!("/openai/v1{chat}")
    );
    check("/openai/v1", token(), "authorization", "Bearer eyJ-token-of-entra");
    // Foundry serves Anthropic's models in their own format.
    let path = "/anthropic/v1/messages";
    assert_eq!(check("/anthropic", key(), "x-api-key", "key-of-the-resource").path, path);
    assert_eq!(
        check("/anthropic/", token(), "authorization", "Bearer eyJ-token-of-entra").path,
        path
    );
}

#[test]
fn a_command_runs_again_when_the_server_rejects_its_token() {
    let settings = json!({ "apiKeyCommand": COUNTING_COMMAND });
    let story = cloud_story("azureOpenai", "gpt-of-mine", "", settings).script([
        calls("list_dir", json!({})),
        fails(401, "the access token has expired: eyJ-token-1"),
        says("x"),
    ]);
    story.run(["agent", "-m", "hi"]).stdout("x\n");
    let expect = [1, 1, 2].map(|number| format!("Bearer eyJ-token-{number}"));
    assert_eq!(header_values(&story, "authorization"), expect);
    // A new token that is rejected too is not followed by another one.
    story.server().script([fails(401, "wrong tenant"), fails(401, "wrong tenant")]);
    story.run(["agent", "-m", "hi"]).status(77).stderr_has(
        "wrong tenant (status 401); the key is from `providers.azure_openai.apiKeyCommand`",
    );
    assert_eq!(story.requests().len(), 5);
}

#[test]
fn a_command_without_another_token_ends_the_run() {
    let check = |command: &str, status: i32, message: &str| {
        let settings = json!({ "apiKeyCommand": command });
        let story = cloud_story("azureOpenai", "gpt-of-mine", "", settings)
            .script([fails(401, "the token has expired")]);
        story.run(["agent", "-m", "hi"]).status(status).stderr_has(message);
        assert_eq!(story.requests().len(), 1, "{command}");
    };
    check("echo eyJ-token-of-entra", 77, "the token has expired (status 401)");
    check(
        "echo run >> ~/runs; test $(wc -l < ~/runs) = 1 && echo eyJ-token",
        78,
        "the command failed: exit status: 1",
    );
}
