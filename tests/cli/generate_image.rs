//! The tool `generate_image`: pictures of a service or of a command, as files.

use crate::attach::png_image;
use crate::channel::telegram_story;
use crate::server::{Responder, Response, Server, calls, says, sends};
use crate::sound::ledger_lines;
use crate::story::Story;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustix::process::{Pid, Signal};
use serde_json::{Value, json};

/// A story with `settings` of the tool, and a service of `provider` that makes pictures.
fn picture_story(provider: &str, settings: &Value) -> (Story, Server) {
    let service = Server::start();
    let base = format!("http://127.0.0.1:{}/v1", service.port);
    let mut image_generation = json!({ "enabled": true, "provider": provider });
    for (name, value) in settings.as_object().unwrap() {
        image_generation[name] = value.clone();
    }
    let story = Story::new().set("tools.imageGeneration", image_generation).set(
        &format!("providers.{provider}"),
        json!({ "apiKey": "sk-picture-story", "apiBase": base }),
    );
    (story, service)
}

fn draws(path: &str) -> Responder {
    calls("generate_image", json!({ "prompt": "a red fox", "path": path, "aspect_ratio": "16:9" }))
}

fn picture(bytes: &[u8]) -> Response {
    let data = json!([{ "b64_json": STANDARD.encode(bytes) }]);
    let usage = json!({ "input_tokens": 10, "output_tokens": 1000 });
    Response::json(200, &json!({ "data": data, "usage": usage }))
}

#[test]
fn a_picture_is_written_paid_for_and_taken_back() {
    let (story, service) = picture_story("openai", &json!({ "model": "gpt-image-1" }));
    story.server().script([draws("fox.png"), says("Here.")]);
    let image = png_image(3, 2);
    service.script([sends(picture(&image))]);
    story.run(["agent", "-m", "draw", "--write"]).stdout("Here.\n");
    let request = &service.requests()[0];
    assert_eq!(request.path, "/v1/images/generations");
    assert_eq!(request.header("authorization"), Some("Bearer sk-picture-story"));
    let expect =
        json!({ "model": "gpt-image-1", "prompt": "a red fox", "n": 1, "size": "1536x1024" });
    assert_eq!(request.body, expect);
    assert_eq!(std::fs::read(story.dir().join("fox.png")).unwrap(), image);
    let result = &story.requests()[1].tool_results()[0];
    assert!(result.starts_with("created ") && result.contains("fox.png (image/png, "), "{result}");
    let lines = ledger_lines(&story, "image");
    assert_eq!((lines.len(), &lines[0]["usd"]), (1, &json!(0.04005)));
    story.run(["undo"]).stdout("removed fox.png\n").stderr_has("1 file");
    assert!(!story.dir().join("fox.png").exists());
}

#[test]
fn openrouter_sends_pictures_in_replies_and_a_command_prints_them() {
    let image = png_image(3, 2);
    let (story, service) = picture_story("openrouter", &json!({}));
    story.server().script([draws("fox.png"), says("Here.")]);
    let url = format!("data:image/png;base64,{}", STANDARD.encode(&image));
    let message = json!({ "content": "A fox.", "images": [{ "image_url": { "url": url } }] });
    let reply = json!({ "choices": [{ "message": message }], "usage": { "cost": 0.07 } });
    service.script([sends(Response::json(200, &reply))]);
    story.run(["agent", "-m", "draw", "--write"]).stdout("Here.\n");
    let request = &service.requests()[0];
    assert_eq!(request.path, "/v1/chat/completions");
    let config = json!({ "aspect_ratio": "16:9", "image_size": "1K" });
    assert_eq!(
        (&request.body["image_config"], &request.body["model"]),
        (&config, &json!("openai/gpt-5.4-image-2"))
    );
    assert_eq!(std::fs::read(story.dir().join("fox.png")).unwrap(), image);
    assert_eq!(ledger_lines(&story, "image")[0]["usd"], 0.07);

    let command = "cat > prompt; echo loading >&2; cat \"$HOME/made.png\""
        .replace("prompt", "\"$HOME/prompt\"");
    let story = Story::new()
        .set("tools.imageGeneration", json!({ "enabled": true, "command": command }))
        .script([draws("fox.png"), says("Here.")]);
    std::fs::write(story.home().join("made.png"), &image).unwrap();
    story.run(["agent", "-m", "draw", "--write"]).stdout("Here.\n");
    assert_eq!(std::fs::read(story.dir().join("fox.png")).unwrap(), image);
    assert_eq!(std::fs::read_to_string(story.home().join("prompt")).unwrap(), "a red fox");
}

#[test]
fn it_is_offered_only_if_it_is_enabled_and_changes_are_allowed() {
    let story = Story::new().script([says("Hi.")]);
    story.run(["agent", "-m", "hi"]).stdout("Hi.\n");
    assert!(!story.requests()[0].tool_names().contains(&"generate_image".to_owned()));
    let (story, _) = picture_story("openai", &json!({}));
    story.server().script([says("Hi."), says("Hi.")]);
    story.run(["agent", "-m", "hi"]).stdout("Hi.\n");
    assert!(story.requests()[0].tool_names().contains(&"generate_image".to_owned()));
    story.run(["agent", "-m", "hi", "--profile", "plan"]).stdout("Hi.\n");
    assert!(!story.requests()[1].tool_names().contains(&"generate_image".to_owned()));
}

#[test]
fn what_may_not_be_written_is_not_paid_for() {
    for (path, flags) in
        [("fox.png", &[][..]), (".git/config", &["--write"]), ("/etc/fox.png", &["--write"])]
    {
        let (story, service) = picture_story("openai", &json!({}));
        story.server().script([draws(path), says("No.")]);
        let result = story.run([&["agent", "-m", "draw"], flags].concat());
        result.stdout("No.\n").stderr_has("denied: generate_image");
        assert!(service.requests().is_empty(), "{path}");
        assert!(!story.dir().join(path).exists(), "{path}");
    }
}

#[test]
fn a_service_that_fails_writes_nothing() {
    let error =
        |status: u16, text: &str| Response::json(status, &json!({ "error": { "message": text } }));
    let flood = Response::text(200, "application/json", &"x".repeat(49 << 20));
    for (response, count, message) in [
        (error(401, "bad key"), 1, "bad key (status 401)"),
        (error(429, "quota"), 3, "quota (status 429)"),
        (picture(b"<p>no image</p>"), 1, "the response has no picture"),
        (picture(b""), 1, "the response has no picture"),
        (Response::text(200, "text/html", "<p>welcome</p>"), 1, "the response has no picture"),
        (flood, 1, "the response is larger than 48 MB"),
    ] {
        let (story, service) = picture_story("openai", &json!({}));
        story.server().script([draws("fox.png"), says("No.")]);
        service.script((0..count).map(|_| sends(response.clone())));
        story.run(["agent", "-m", "draw", "--write"]).stdout("No.\n");
        let result = &story.requests()[1].tool_results()[0];
        assert!(result.contains("no picture was made: ") && result.contains(message), "{result}");
        assert_eq!(service.requests().len(), count, "{message}");
        assert!(!story.dir().join("fox.png").exists(), "{message}");
    }
    for (command, message) in [
        ("echo no memory >&2; exit 3", "exit status: 3: no memory"),
        ("true", "printed 0 bytes that are no image"),
        ("echo words", "printed 6 bytes that are no image"),
    ] {
        let settings = json!({ "enabled": true, "command": command });
        let story = Story::new().set("tools.imageGeneration", settings);
        let story = story.script([draws("fox.png"), says("No.")]);
        story.run(["agent", "-m", "draw", "--write"]).stdout("No.\n");
        let result = &story.requests()[1].tool_results()[0];
        assert!(result.contains(message), "{result}");
    }
}

#[test]
fn pictures_count_for_the_limits_of_a_turn() {
    let settings = json!({ "model": "gpt-image-1", "maxImagesPerTurn": 1 });
    let (story, service) = picture_story("openai", &settings);
    story.server().script([draws("a.png"), draws("b.png"), says("One.")]);
    service.script([sends(picture(&png_image(3, 2)))]);
    story.run(["agent", "-m", "draw two", "--write"]).stdout("One.\n");
    let result = &story.requests()[2].tool_results()[1];
    assert!(result.contains("`tools.imageGeneration.maxImagesPerTurn`"), "{result}");
    assert_eq!(service.requests().len(), 1);
    service.script([sends(picture(&png_image(3, 2)))]);
    story.server().script([draws("c.png")]);
    let arguments = ["agent", "-m", "again", "--write", "--max-cost", "0.01"];
    story.run(arguments).status(4).stderr_has("--max-cost");
}

#[test]
fn a_picture_without_a_price_is_not_made_within_a_budget() {
    let (story, service) = picture_story("openai", &json!({ "model": "gpt-image-9" }));
    // This address does not look like one of this machine, whose models are free.
    let base = format!("http://127.1:{}/v1", service.port);
    let story = story.set("providers.openai.apiBase", json!(base));
    story.server().script([draws("a.png"), says("None.")]);
    story.run(["agent", "-m", "draw", "--write", "--max-cost", "1"]).stdout("None.\n").error_text();
    let result = &story.requests()[1].tool_results()[0];
    let expect = "the price of `gpt-image-9` is unknown, so `--max-cost` cannot be enforced";
    assert!(result.contains(expect) && service.requests().is_empty(), "{result}");
    // The price of a token says nothing about a picture, unless it is free.
    let within = ["agent", "-m", "draw", "--write", "--max-cost", "1"];
    let price = |usd: u32| json!({ "gpt-image-9": { "price": { "input": usd, "output": usd } } });
    let story = story.set("models", price(1));
    story.server().script([draws("a.png"), says("None.")]);
    story.run(within).stdout("None.\n").error_text();
    let result = &story.last_request().tool_results()[0];
    assert!(result.contains(expect) && !result.contains("config set models"), "{result}");
    assert!(service.requests().is_empty());
    let story = story.set("models", price(0));
    story.server().script([draws("a.png"), says("Here.")]);
    service.script([sends(picture(&png_image(3, 2)))]);
    story.run(within).stdout("Here.\n").error_text();
    // A response that is of no use is paid for.
    let (story, service) = picture_story("openai", &json!({ "model": "dall-e-3" }));
    story.server().script([draws("a.png"), says("None.")]);
    service.script([sends(picture(b"<p>no image</p>"))]);
    story.run(["agent", "-m", "draw", "--write"]).stdout("None.\n");
    assert_eq!(ledger_lines(&story, "image")[0]["usd"], 0.04);
    // So may be one that the run does not wait for.
    let (story, service) = picture_story("openai", &json!({ "model": "dall-e-3" }));
    story.server().script([draws("a.png")]);
    let (_sender, response) = Response::streaming();
    service.script([sends(response)]);
    let child = story.start(&mut story.command(["agent", "-m", "draw", "--write"]));
    service.wait_for_requests(1);
    rustix::process::kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(story.wait(child).signal(), Some(Signal::INT.as_raw()));
    assert_eq!(ledger_lines(&story, "image")[0]["usd"], 0.04);
}

#[test]
fn a_picture_is_sent_to_the_chat() {
    let (story, telegram) = telegram_story();
    let path = story.workspace().join("fox.png");
    let path = path.to_str().unwrap();
    let image = png_image(3, 2);
    let story = story.set(
        "tools.imageGeneration",
        json!({ "enabled": true, "command": "cat \"$HOME/made.png\"" }),
    );
    std::fs::write(story.home().join("made.png"), &image).unwrap();
    let send = calls("message", json!({ "content": "", "media": [path] }));
    story.server().script([draws(path), send, says("A fox.")]);
    telegram.message(7, "draw me a fox");
    story.run(["channel", "poll"]);
    assert_eq!(telegram.calls("sendPhoto").len(), 1);
    assert_eq!(telegram.sent(), ["A fox."]);
}
