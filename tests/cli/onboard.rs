//! `onboard` on a terminal: prompts, answers, errors, and the files that are left after an abort.

use crate::listener::unused_port;
use crate::screen::{Key, Screen};
use crate::server::{Ending, Responder, Response, fails, says, sends};
use crate::story::Story;
use crate::telegram_server::{TOKEN, TelegramServer};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;

/// A server's list of models.
fn lists_models(names: &[&str]) -> Responder {
    let data: Vec<Value> = names.iter().map(|name| json!({ "id": name })).collect();
    sends(Response::json(200, &json!({ "object": "list", "data": data })))
}

/// The URL of the scripted server.
fn base_url(story: &Story) -> String {
    format!("http://127.0.0.1:{}/v1", story.server().port)
}

fn read_config(story: &Story) -> Value {
    for name in ["config.json", "nanobot.json"] {
        let path = story.home().join(".nanobot").join(name);
        let mode = path.metadata().map(|metadata| metadata.permissions().mode() & 0o777);
        assert!(mode.is_err() && name == "nanobot.json" || mode.unwrap() == 0o600, "{name}");
    }
    story.config_value()
}

/// Answers the prompt that ends in `prompt`.
fn answer_prompt(screen: &mut Screen<'_>, prompt: &str, text: &str) {
    wait_for_prompt(screen, prompt);
    screen.type_(text).press(Key::Enter);
}

/// Waits until the screen ends in `prompt`: a prompt may be repeated.
#[track_caller]
fn wait_for_prompt(screen: &mut Screen<'_>, prompt: &str) {
    screen.until_text(&format!("{prompt:?} is not asked"), |text| text.ends_with(prompt));
}

#[track_caller]
fn assert_untouched(story: &Story) {
    assert!(!story.home().join(".nanobot/config.json").exists());
    assert!(!story.workspace().exists());
}

#[test]
fn a_first_run_completes() {
    let story = Story::bare().script([lists_models(&["small", "large"]), says("Hello there.")]);
    let mut screen = story.screen(40, 80).args(["onboard"]);
    answer_prompt(&mut screen, "or name [openrouter]:", "custom");
    answer_prompt(&mut screen, "Address [http://localhost:8000/v1]:", &base_url(&story));
    answer_prompt(&mut screen, "API key, not shown [none]:", "sk-very-secret-key");
    answer_prompt(&mut screen, "or name [small]:", "lar");
    answer_prompt(&mut screen, "request is sent. [y/N]", "");
    answer_prompt(&mut screen, "Conversation [one]:", "");
    answer_prompt(&mut screen, "Channel [none]:", "");
    assert_eq!(screen.code(), 0);
    let screen_text = screen.text_with_scrollback().replace(&base_url(&story), "$SERVER");
    screen.snapshot("onboard", &screen_text);
    screen.assert_restored();
    assert!(!String::from_utf8_lossy(&screen.raw()).contains("sk-very-secret-key"));
    let config = read_config(&story);
    assert_eq!(config["agents"]["defaults"]["model"], "large");
    assert_eq!(config["agents"]["defaults"]["provider"], "custom");
    assert_eq!(config["providers"]["custom"]["apiKey"], "sk-very-secret-key");
    assert_eq!(config["providers"]["custom"]["apiBase"], base_url(&story));
    let requests = story.requests();
    assert_eq!(requests[0].path, "/v1/models");
    assert_eq!(requests[1].header("authorization"), Some("Bearer sk-very-secret-key"));
    // The first answer of the agent.
    story.server().script([says("Hi.")]);
    story.run(["agent", "-m", "hello"]).stdout("Hi.\n");
}

/// Answers the prompts up to the key of a custom server.
fn answer_provider(screen: &mut Screen<'_>, base: &str) {
    answer_prompt(screen, "or name [openrouter]:", "custom");
    answer_prompt(screen, "Address [http://localhost:8000/v1]:", base);
}

/// Accepts the defaults from the model on.
fn accept_defaults(screen: &mut Screen<'_>) -> i32 {
    answer_prompt(screen, "or name [small]:", "");
    answer_prompt(screen, "request is sent. [y/N]", "");
    answer_prompt(screen, "Conversation [one]:", "");
    answer_prompt(screen, "Channel [none]:", "");
    screen.code()
}

#[test]
fn a_wrong_key_is_prompted_for_again() {
    let story =
        Story::bare().script([fails(401, "no such key"), lists_models(&["small"]), says("Hi.")]);
    let mut screen = story.screen(60, 80).args(["onboard"]);
    answer_provider(&mut screen, &base_url(&story));
    answer_prompt(&mut screen, "API key, not shown [none]:", "sk-of-another");
    answer_prompt(&mut screen, "What now? [k]:", "");
    answer_prompt(&mut screen, "API key, not shown [none]:", "sk-of-the-story");
    assert_eq!(accept_defaults(&mut screen), 0);
    let screen_text = screen.text_with_scrollback();
    screen.assert_restored();
    let (_, rest) = screen_text.split_once("-> Custom").unwrap();
    screen.snapshot("onboard-wrong-key", &rest.replace(&base_url(&story), "$SERVER"));
    assert_eq!(read_config(&story)["providers"]["custom"]["apiKey"], "sk-of-the-story");
}

#[test]
fn an_address_without_its_version_is_completed() {
    let story = Story::bare().script([
        sends(Response::text(404, "text/plain", "404 page not found")),
        lists_models(&["small", "large"]),
        says("Hi."),
    ]);
    let base = base_url(&story);
    let mut screen = story.screen(60, 80).args(["onboard"]);
    answer_provider(&mut screen, base.strip_suffix("/v1").unwrap());
    answer_prompt(&mut screen, "API key, not shown [none]:", "");
    assert_eq!(accept_defaults(&mut screen), 0);
    assert!(screen.text_with_scrollback().contains("Note: there is no API at"));
    assert_eq!(read_config(&story)["providers"]["custom"]["apiBase"], base);
}

#[test]
fn questions_fit_on_a_small_screen() {
    let names: Vec<String> =
        (1..=40).map(|number| format!("model-{number:02}-of-this-server")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let stall = || sends(Response::events([""]).ending(Ending::Stall));
    let story = Story::bare().script([lists_models(&names), stall()]);
    let mut screen = story.screen(24, 80).args(["onboard"]);
    wait_for_prompt(&mut screen, "or name [openrouter]:");
    let screen_text = screen.text();
    assert!(screen_text.starts_with("Press Enter to accept the default"), "{screen_text}");
    assert!(screen_text.contains(" 12  custom "), "{screen_text}");
    assert!(screen_text.contains("  and 35 others: `more` shows them,"), "{screen_text}");
    answer_prompt(&mut screen, "or name [openrouter]:", "more");
    screen.until(" 47  zhipu");
    assert!(screen.text().contains(" 13  aihubmix "));
    answer_provider(&mut screen, &base_url(&story));
    answer_prompt(&mut screen, "API key, not shown [none]:", "");
    wait_for_prompt(&mut screen, "or name [model-01-of-this-server]:");
    let screen_text = screen.text();
    assert!(screen_text.contains("Which model?\n  1  model-01-of-this-server"), "{screen_text}");
    assert!(screen_text.contains("  and 16 others: `more` shows them,"), "{screen_text}");
    answer_prompt(&mut screen, "or name [model-01-of-this-server]:", "more");
    screen.until("40  model-40-of-this-server");
    answer_prompt(&mut screen, "or name [model-01-of-this-server]:", "40");
    screen.until("Testing model-40-of-this-server of custom");
    assert_eq!(screen.press(Key::Ctrl('c')).code(), 130);
    screen.assert_restored();
    // The next step is the last line.
    let story = Story::bare().script([lists_models(&["small"]), says("Hi.")]);
    let mut screen = story.screen(24, 80).args(["onboard"]);
    answer_provider(&mut screen, &base_url(&story));
    answer_prompt(&mut screen, "API key, not shown [none]:", "");
    assert_eq!(accept_defaults(&mut screen), 0);
    let screen_text = screen.text();
    assert!(screen_text.contains("\nready; try: nanobot repl"), "{screen_text}");
}

#[test]
fn no_model_is_suggested_that_the_server_may_not_have() {
    let story = Story::bare().script([fails(404, "no list"), says("Hi.")]);
    let mut screen = story.screen(60, 80).args(["onboard"]);
    answer_provider(&mut screen, &base_url(&story));
    answer_prompt(&mut screen, "API key, not shown [none]:", "");
    answer_prompt(&mut screen, "Number or name:", "");
    answer_prompt(&mut screen, "Number or name:", "mine");
    answer_prompt(&mut screen, "request is sent. [y/N]", "");
    answer_prompt(&mut screen, "Conversation [one]:", "");
    answer_prompt(&mut screen, "Channel [none]:", "");
    assert_eq!(screen.code(), 0);
    assert_eq!(read_config(&story)["agents"]["defaults"]["model"], "mine");
}

#[test]
fn a_failed_test_can_be_retried_or_saved_anyway() {
    // A server that is down; then one without the model; then one that rejects the request.
    let story = Story::bare().script([
        lists_models(&["small", "gone"]),
        fails(404, "no such model"),
        lists_models(&["small", "gone"]),
        fails(403, "not for you"),
    ]);
    let nowhere = format!("http://127.0.0.1:{}/v1", unused_port());
    let mut screen = story.screen(140, 80).args(["onboard"]);
    answer_provider(&mut screen, &nowhere);
    answer_prompt(&mut screen, "API key, not shown [none]:", "");
    answer_prompt(&mut screen, "What now? [a]:", "p");
    answer_prompt(&mut screen, "or name [custom]:", "");
    let default = format!("Address [{nowhere}]:");
    answer_prompt(&mut screen, &default, "example.com");
    screen.until("is not a URL");
    answer_prompt(&mut screen, &default, &base_url(&story));
    answer_prompt(&mut screen, "API key, not shown [none]:", "no key at all");
    screen.until("cannot contain blanks");
    answer_prompt(&mut screen, "API key, not shown [none]:", "");
    answer_prompt(&mut screen, "or name [small]:", "other");
    answer_prompt(&mut screen, "Use it anyway? [y/N]", "what");
    screen.until("Please answer yes or no.");
    answer_prompt(&mut screen, "Use it anyway? [y/N]", "");
    answer_prompt(&mut screen, "or name [small]:", "2");
    answer_prompt(&mut screen, "What now? [m]:", "");
    answer_prompt(&mut screen, "or name [small]:", "small");
    answer_prompt(&mut screen, "What now? [k]:", "x");
    screen.until("Please answer k, m, p, a or s.");
    answer_prompt(&mut screen, "What now? [k]:", "s");
    assert_eq!(screen.code(), 77);
    let screen_text = screen.text_with_scrollback();
    assert!(screen_text.ends_with("or `nanobot status check`"), "{screen_text}");
    let reason = "`example.com` is not a URL that begins with `http://` or `https://`.";
    assert!(screen_text.contains(reason), "{screen_text}");
    assert!(screen_text.contains("Please answer yes or no."), "{screen_text}");
    let reason = "Please answer k, m, p, a or s.";
    assert!(screen_text.contains(reason), "{screen_text}");
    // The list is the same the second time, although `custom` has an address by then.
    let numbered = |line: &&str| line.contains("  custom  ") && !line.contains('[');
    let lines: Vec<&str> = screen_text.lines().filter(numbered).collect();
    assert_eq!(lines.len(), 2, "{screen_text}");
    assert_eq!(lines[0], lines[1]);
    assert!(screen_text.contains("An API key cannot contain blanks"), "{screen_text}");
    screen.assert_restored();
    let config = read_config(&story);
    assert_eq!(config["agents"]["defaults"]["model"], "small");
    assert_eq!(config["providers"]["custom"]["apiBase"], base_url(&story));
}

/// Nothing listens at the default address, which is configured all the same.
#[test]
fn the_default_address_is_accepted() {
    let story = Story::bare();
    let mut screen = story.screen(50, 80).args(["onboard"]);
    answer_provider(&mut screen, "");
    answer_prompt(&mut screen, "API key, not shown [none]:", "");
    screen.until("That did not work: ");
    wait_for_prompt(&mut screen, "What now? [a]:");
    assert!(!screen.text().contains("no base URL"));
    screen.type_("s").press(Key::Enter);
    // No server has answered.
    assert_eq!(screen.code(), 69);
    let config = read_config(&story);
    assert_eq!(config["providers"]["custom"]["apiBase"], "http://localhost:8000/v1");
}

/// The prompts of a successful run, and their answers.
fn prompts_and_answers(story: &Story) -> [(&'static str, String); 7] {
    [
        ("or name [openrouter]:", "custom".into()),
        ("Address [http://localhost:8000/v1]:", base_url(story)),
        ("API key, not shown [none]:", "sk-of-the-story".into()),
        ("or name [small]:", String::new()),
        ("request is sent. [y/N]", String::new()),
        ("Conversation [one]:", String::new()),
        ("Channel [none]:", String::new()),
    ]
}

#[test]
fn an_aborted_run_leaves_no_files() {
    for (key, code) in [('c', 130), ('d', 66)] {
        for count in 0..4 {
            let story = Story::bare();
            story.server().script([lists_models(&["small"])].into_iter().take(count / 3));
            let mut screen = story.screen(50, 80).args(["onboard"]);
            let all = prompts_and_answers(&story);
            for (prompt, text) in &all[..count] {
                answer_prompt(&mut screen, prompt, text);
            }
            wait_for_prompt(&mut screen, all[count].0);
            assert_eq!(screen.press(Key::Ctrl(key)).code(), code, "{count}");
            screen.assert_restored();
            let screen_text = screen.text();
            assert!(!screen_text.contains("sk-of"), "{screen_text}");
            assert_eq!(screen_text.contains("nothing was written"), key == 'd', "{screen_text}");
            assert_untouched(&story);
        }
    }
    // Keys that would leave the terminal without its echo do nothing at a hidden prompt.
    let story = Story::bare().script([lists_models(&["small"])]);
    let mut screen = story.screen(50, 80).args(["onboard"]);
    answer_provider(&mut screen, &base_url(&story));
    wait_for_prompt(&mut screen, "API key, not shown [none]:");
    screen.press(Key::Ctrl('\\')).press(Key::Ctrl('z'));
    screen.press(Key::Ctrl('u')).press(Key::Enter);
    wait_for_prompt(&mut screen, "or name [small]:");
    assert_eq!(screen.signal(Signal::TERM).code(), 143);
    screen.assert_restored();
    assert_untouched(&story);
    // Terminated while nothing is printed, and aborted, which does not count as an answer.
    let story = Story::bare();
    let mut screen = story.screen(50, 80).args(["onboard"]);
    answer_provider(&mut screen, &base_url(&story));
    wait_for_prompt(&mut screen, "API key, not shown [none]:");
    assert_eq!(screen.signal(Signal::TERM).code(), 143);
    screen.assert_restored();
    assert_untouched(&story);
    // While a server stalls.
    let story = Story::bare().script([sends(Response::events([""]).ending(Ending::Stall))]);
    let mut screen = story.screen(50, 80).args(["onboard"]);
    answer_provider(&mut screen, &base_url(&story));
    answer_prompt(&mut screen, "API key, not shown [none]:", "");
    story.server().wait_for_requests(1);
    screen.until(&format!("Asking {} for its models", base_url(&story)));
    assert_eq!(screen.press(Key::Ctrl('c')).code(), 130);
    screen.assert_restored();
    assert_untouched(&story);
    // At an optional step everything else is already saved.
    for (key, code) in [('c', 130), ('d', 0)] {
        let story = Story::bare().script([lists_models(&["small"]), says("Hi.")]);
        let mut screen = story.screen(50, 80).args(["onboard"]);
        for (prompt, text) in &prompts_and_answers(&story)[..4] {
            answer_prompt(&mut screen, prompt, text);
        }
        screen.until("do its tasks?");
        screen.press(Key::Ctrl(key));
        if key == 'd' {
            answer_prompt(&mut screen, "Conversation [one]:", "");
            answer_prompt(&mut screen, "Channel [none]:", "");
        }
        assert_eq!(screen.code(), code);
        screen.assert_restored();
        assert_eq!(read_config(&story)["agents"]["defaults"]["model"], "small");
    }
}

#[test]
fn a_second_run_preserves_existing_settings() {
    let story = Story::bare();
    let text = format!(
        "{{\n  // mine\n  \"agents\": {{\"defaults\": {{\"model\": \"large\", \"provider\": \"custom\", \"maxTokens\": 77}}}},\n  \
         \"providers\": {{\"custom\": {{\"apiBase\": \"{}\", \"apiKey\": \"sk-of-old\"}}}},\n  \"mine\": 1\n}}\n",
        base_url(&story)
    );
    let story = story.config_text(&text);
    story.run(["onboard", "--yes"]).stderr_has("updated");
    let path = story.home().join(".nanobot/config.json");
    let before = std::fs::read_to_string(&path).unwrap();
    assert!(before.contains("// mine"), "{before}");
    story.server().script([lists_models(&["small", "large"]), says("Hi.")]);
    let mut screen = story.screen(50, 80).args(["onboard"]);
    answer_prompt(&mut screen, "or name [custom]:", "");
    answer_prompt(&mut screen, &format!("Address [{}]:", base_url(&story)), "");
    answer_prompt(&mut screen, "API key, not shown [the one in the config]:", "");
    answer_prompt(&mut screen, "or name [large]:", "");
    screen.until("do its tasks?").type_("y").press(Key::Enter);
    answer_prompt(&mut screen, "Conversation [one]:", "");
    answer_prompt(&mut screen, "Channel [none]:", "");
    assert_eq!(screen.code(), 0);
    let screen_text = screen.text_with_scrollback();
    assert!(screen_text.contains("kept ~/.nanobot/config.json unchanged"), "{screen_text}");
    assert!(screen_text.contains("✓ Heartbeat enabled"), "{screen_text}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), before);
    assert!(story.crontab().table().unwrap().contains("heartbeat"));
    // Existing parts are not offered again, and only answered settings change.
    story.server().script([lists_models(&["small", "large"]), says("Hi.")]);
    let mut screen = story.screen(50, 80).args(["onboard"]);
    answer_prompt(&mut screen, "or name [custom]:", "");
    answer_prompt(&mut screen, &format!("Address [{}]:", base_url(&story)), "");
    answer_prompt(&mut screen, "API key, not shown [the one in the config]:", "");
    answer_prompt(&mut screen, "or name [large]:", "small");
    answer_prompt(&mut screen, "Conversation [one]:", "");
    answer_prompt(&mut screen, "Channel [none]:", "");
    assert_eq!(screen.code(), 0);
    let after = std::fs::read_to_string(&path).unwrap();
    assert_eq!(after, before.replace("\"large\"", "\"small\""));
}

#[test]
fn a_key_in_the_environment_is_named_and_not_copied() {
    let story = Story::bare()
        .env("AZURE_OPENAI_API_KEY", "sk-of-the-shell")
        .script([lists_models(&["gpt-6-luna"]), says("Hi.")]);
    let mut screen = story.screen(50, 80).args(["onboard"]);
    screen.until("key from $AZURE_OPENAI_API_KEY");
    answer_prompt(&mut screen, "or name [azureOpenai]:", "");
    answer_prompt(&mut screen, "Address:", &base_url(&story));
    answer_prompt(&mut screen, "API key, not shown [the one in $AZURE_OPENAI_API_KEY]:", "");
    screen.until("  default");
    answer_prompt(&mut screen, "or name [gpt-6-luna]:", "");
    answer_prompt(&mut screen, "request is sent. [y/N]", "");
    answer_prompt(&mut screen, "Conversation [one]:", "");
    answer_prompt(&mut screen, "Channel [none]:", "");
    assert_eq!(screen.code(), 0);
    assert_eq!(
        read_config(&story)["providers"]["azureOpenai"]["apiKey"],
        "${AZURE_OPENAI_API_KEY}"
    );
    assert_eq!(story.requests()[1].header("api-key"), Some("sk-of-the-shell"));
}

#[test]
fn a_small_and_dumb_terminal_is_enough() {
    let story = Story::bare().script([lists_models(&["small"]), says("Hi.")]);
    let screen = story.screen(24, 40).env("TERM", "dumb");
    let mut screen = screen.env("NO_COLOR", "1").args(["onboard"]);
    for (prompt, text) in &prompts_and_answers(&story)[..4] {
        answer_prompt(&mut screen, prompt, text);
    }
    answer_prompt(&mut screen, "[y/N]", "n");
    answer_prompt(&mut screen, "Conversation [one]:", "");
    answer_prompt(&mut screen, "Channel [none]:", "");
    assert_eq!(screen.code(), 0);
    // The URL is wrapped at the end of the row.
    let port = story.server().port.to_string();
    screen.snapshot("onboard-40", &screen.text_with_scrollback().replace(&port, "PORT"));
    assert!(!screen.raw().contains(&0x1b));
    screen.assert_restored();
}

/// Accepts provider, address, key and model as configured.
fn keep_configured_provider(screen: &mut Screen<'_>, story: &Story) {
    answer_prompt(screen, "or name [custom]:", "");
    answer_prompt(screen, &format!("Address [{}]:", base_url(story)), "");
    answer_prompt(screen, "API key, not shown [the one in the config]:", "");
    answer_prompt(screen, "or name [scripted]:", "");
}

#[test]
fn over_a_python_install_it_asks_for_the_workspace() {
    let story = Story::new().set("channels", json!({}));
    story.server().script([lists_models(&["scripted"]), says("Hi.")]);
    let mut screen = story.screen(50, 80).args(["onboard"]);
    keep_configured_provider(&mut screen, &story);
    answer_prompt(&mut screen, "Working directory? [c]:", "both");
    answer_prompt(&mut screen, "Working directory? [c]:", "w");
    answer_prompt(&mut screen, "request is sent. [y/N]", "");
    answer_prompt(&mut screen, "Conversation [one]:", "");
    answer_prompt(&mut screen, "Channel [none]:", "");
    assert_eq!(screen.code(), 0);
    assert_eq!(read_config(&story)["agents"]["defaults"]["directory"], "workspace");
}

#[test]
fn over_a_python_install_the_tools_of_its_servers_stay_allowed() {
    let servers =
        json!({ "notes": { "command": "true" }, "off": { "command": "true", "disabled": true } });
    let take_over = |allow: Value| {
        let story = Story::new().set("channels", json!({}));
        story.set("tools", json!({ "mcpServers": servers, "allow": allow }))
    };
    let story = take_over(json!(["exec"]));
    story.server().script([lists_models(&["scripted"]), says("Hi.")]);
    let mut screen = story.screen(50, 80).args(["onboard"]);
    keep_configured_provider(&mut screen, &story);
    answer_prompt(&mut screen, "Working directory? [c]:", "");
    answer_prompt(&mut screen, "here too? [Y/n]", "");
    answer_prompt(&mut screen, "request is sent. [y/N]", "");
    answer_prompt(&mut screen, "Conversation [one]:", "");
    answer_prompt(&mut screen, "Channel [none]:", "");
    assert_eq!(screen.code(), 0);
    let rules = |story: &Story| read_config(story)["tools"]["allow"].clone();
    assert_eq!(rules(&story), json!(["exec", "mcp_notes_*"]));
    // Without a terminal it is a flag, and a warning without it.
    let story = take_over(json!([]));
    story.run(["onboard", "--yes"]).stderr_has("refused in `agent`; `--allow-servers` allows them");
    assert_eq!(rules(&story), json!([]));
    // A rule of the environment does not become permanent.
    let story = story.env("NANOBOT_TOOLS__ALLOW", "[\"exec\"]");
    story.run(["onboard", "--allow-servers"]).stderr_has("updated");
    assert_eq!(rules(&story), json!(["mcp_notes_*"]));
    // A rule for one of its tools is the user's choice.
    let story = take_over(json!(["mcp_notes_read"]));
    let text = story.run(["onboard", "--yes"]).error_text();
    assert!(!text.contains("--allow-servers"), "{text}");
}

#[test]
fn an_invalid_config_is_reported_at_once() {
    let text = "{\"agents\": {\"defaults\": {\"temperature\": \"hot\"}}}";
    let story = Story::bare().config_text(text);
    let mut screen = story.screen(24, 80).args(["onboard"]);
    assert_eq!(screen.code(), 78);
    let screen_text = screen.text();
    assert!(screen_text.starts_with("nanobot: "), "{screen_text}");
}

#[test]
fn onboard_works_with_flags_only() {
    let story = Story::bare().script([says("Hello.")]);
    let base = base_url(&story);
    let flags = ["onboard", "--provider", "custom", "--api-base", &base];
    let more = ["--api-key-stdin", "--model", "m", "--test", "--heartbeat"];
    let story = story.stdin("sk-of-the-pipe\n");
    let result = story.run(flags.iter().chain(&more));
    result
        .stdout_has("✓ Heartbeat enabled")
        .stderr_has("m of custom answered in 0.0 s: ")
        .stderr_has("ready; try: nanobot agent");
    assert_eq!(read_config(&story)["providers"]["custom"]["apiKey"], "sk-of-the-pipe");
    assert!(story.crontab().table().unwrap().contains("heartbeat"));
    story.server().script([fails(401, "no such key")]);
    story.run(["onboard", "--test"]).status(77).stderr_has("no such key");
    let both = ["--api-key-env", "X"];
    story.run(flags.iter().chain(&more).chain(&both)).status(2).stderr_has("cannot be used with");
    story.run(["onboard", "--api-key-stdin"]).status(2).stderr_has("needs a provider");
    // Without a terminal there are no prompts, and nothing unusable is reported as ready.
    let story = Story::bare();
    story.run(["onboard", "--test"]).status(78).stderr_has("no provider is configured");
}

#[test]
fn an_address_without_a_scheme_is_refused() {
    let check = |address: &str, cause: &str, hint: &str| {
        let story = Story::bare();
        let flags = ["onboard", "--yes", "--provider", "custom", "--api-base", address];
        let error = story.run(flags).status(2).error_text();
        assert_eq!(error, format!("nanobot: `--api-base`: `{address}` {cause}\n{hint}"));
        assert_untouched(&story);
    };
    let cause = "is not a URL that begins with `http://` or `https://`";
    check("localhost:9", cause, "  try: `--api-base http://localhost:9`\n");
    check("llm.example/v1", cause, "  try: `--api-base https://llm.example/v1`\n");
    check("ftp://llm.example", cause, "");
    check("http://a b", "has a blank in it", "");
    check("https://", "has no host", "");
    check("", cause, "");
}

#[test]
fn flags_that_leave_the_setup_incomplete_are_no_success() {
    let story = Story::bare();
    let check = |arguments: &[&str], prompt: &str| {
        let result = story.run([&["onboard", "-q"], arguments].concat()).status(78);
        result.stderr_has("nanobot: setup is not complete: ").stderr_has(prompt);
    };
    check(&["--provider", "openai", "--yes"], "no API key for provider `openai`\n  try: ");
    // The files are there all the same.
    assert_eq!(read_config(&story)["agents"]["defaults"]["provider"], "openai");
    assert!(story.workspace().join("AGENTS.md").exists());
    let named = ["--provider", "openai", "--api-key-env", "MY_KEY"];
    check(&named, "`providers.openai.apiKey` refers to `MY_KEY`, which is not set");
    check(&["--provider", "openaiCodex"], "try: nanobot model provider login");
    let story = story.env("MY_KEY", "sk-of-the-story");
    story.run([&["onboard"], &named[..]].concat()).stderr_has("not tested; ");
    // Files alone are what these flags ask for.
    story.run(["onboard", "--yes"]).stderr_has("kept ~/.nanobot/config.json unchanged");
    let story = Story::bare();
    story.run(["onboard", "--yes"]).stderr_has("still missing: no provider is configured\n  try: ");
}

#[test]
fn a_config_is_not_replaced_by_one_whose_test_fails() {
    let story = Story::bare().script([says("Hello.")]);
    let base = base_url(&story);
    let run = |address: &str| {
        let flags = ["onboard", "--provider", "custom", "--model", "m", "--test", "--api-base"];
        story.run(flags.iter().chain(&[address]))
    };
    let failed = run("http://127.0.0.1:1/v1").status(69).error_text();
    assert!(failed.starts_with("nanobot: nothing was written: "), "{failed}");
    assert_untouched(&story);
    run(&base).stderr_has("ready; try: ");
    let config = read_config(&story);
    assert_eq!(config["providers"]["custom"]["apiBase"], json!(base));
    run("http://127.0.0.1:1/v1").status(69).stderr_has("nothing was written: ");
    story.server().script([fails(401, "no such key")]);
    run(&base).status(77).stderr_has("nothing was written: ");
    let flags = ["onboard", "--provider", "anthropic", "--test"];
    story.run(flags).status(78).stderr_has("nothing was written: ");
    run("http://127.0.0.1:99999/v1").status(2).stderr_has("needs a port from 1 to 65535");
    assert_eq!(read_config(&story), config);
}

#[test]
fn an_answer_in_the_wrong_place_is_asked_for_again() {
    let story = Story::bare().script([
        lists_models(&["small", "large"]),
        fails(404, "the model `other` does not exist"),
        lists_models(&["small", "large"]),
        says("Hello."),
    ]);
    let mut screen = story.screen(40, 80).args(["onboard"]);
    answer_prompt(&mut screen, "or name [openrouter]:", "custom");
    answer_prompt(&mut screen, "Address [http://localhost:8000/v1]:", &base_url(&story));
    answer_prompt(&mut screen, "API key, not shown [none]:", &base_url(&story));
    screen.until("That is an address, not an API key.");
    answer_prompt(&mut screen, "API key, not shown [none]:", "");
    answer_prompt(&mut screen, "or name [small]:", "other");
    answer_prompt(&mut screen, "Use it anyway? [y/N]", "y");
    // The refused model is no default.
    answer_prompt(&mut screen, "What now? [m]:", "");
    answer_prompt(&mut screen, "or name [small]:", "");
    answer_prompt(&mut screen, "request is sent. [y/N]", "");
    answer_prompt(&mut screen, "Conversation [one]:", "");
    answer_prompt(&mut screen, "Channel [none]:", "");
    assert_eq!(screen.code(), 0);
    assert_eq!(read_config(&story)["agents"]["defaults"]["model"], "small");
}

#[test]
fn a_test_names_the_address_that_answers() {
    let story = Story::bare()
        .script([sends(Response::text(404, "text/plain", "404 page not found")), says("Hi.")]);
    let base = base_url(&story);
    let configured = base.strip_suffix("/v1").unwrap();
    let flags = ["onboard", "--provider", "custom", "--model", "m", "--test", "--api-base"];
    story
        .run(flags.iter().chain(&[configured]))
        .stderr_has(&format!("there is no API at {configured}; {base} is used instead\n"))
        .stderr_has("m of custom answered in ");
}

#[test]
fn completions_are_written_where_the_shell_loads_them() {
    let story = Story::bare().script([lists_models(&["small"]), says("Hi.")]);
    let path = story.home().join(".config/fish/completions/nanobot.fish");
    let script = story.run(["completions", "fish"]).bytes();
    let screen = story.screen(50, 80).env("SHELL", "/usr/bin/fish");
    let mut screen = screen.args(["onboard"]);
    for (prompt, text) in &prompts_and_answers(&story)[..4] {
        answer_prompt(&mut screen, prompt, text);
    }
    answer_prompt(&mut screen, "(~/.config/fish/completions/nanobot.fish)? [Y/n]", "");
    answer_prompt(&mut screen, "request is sent. [y/N]", "");
    answer_prompt(&mut screen, "Conversation [one]:", "");
    answer_prompt(&mut screen, "Channel [none]:", "");
    assert_eq!(screen.code(), 0);
    assert_eq!(std::fs::read(&path).unwrap(), script);
    // Existing parts are not offered again.
    story.server().script([lists_models(&["small"]), says("Hi.")]);
    let screen = story.screen(50, 80).env("SHELL", "/usr/bin/fish");
    let mut screen = screen.args(["onboard"]);
    answer_prompt(&mut screen, "or name [custom]:", "");
    answer_prompt(&mut screen, &format!("Address [{}]:", base_url(&story)), "");
    answer_prompt(&mut screen, "API key, not shown [the one in the config]:", "");
    answer_prompt(&mut screen, "or name [small]:", "");
    answer_prompt(&mut screen, "request is sent. [y/N]", "");
    answer_prompt(&mut screen, "Conversation [one]:", "");
    answer_prompt(&mut screen, "Channel [none]:", "");
    assert_eq!(screen.code(), 0);
    assert!(!screen.text_with_scrollback().contains("fish"));
    // With a flag, and for a shell that needs an additional step.
    let story = Story::bare().env("SHELL", "/bin/zsh");
    story.run(["onboard", "--yes", "--completions"]).stderr_has(
        "wrote ~/.local/share/zsh/site-functions/_nanobot\n  start a new shell to load it; requires `fpath+=(",
    );
    let story = Story::bare().env("SHELL", "/bin/dash");
    story
        .run(["onboard", "--yes", "--completions"])
        .status(2)
        .stderr_has("`nanobot completions SHELL`, which prints them");
}

#[test]
fn completions_of_other_programs_are_not_overwritten() {
    let story = Story::bare().env("SHELL", "/usr/bin/fish");
    let path = story.home().join(".config/fish/completions/nanobot.fish");
    let script = story.run(["completions", "fish"]).bytes();
    let own = story.dir().join("own.fish");
    let refused = |cause: &str| {
        story
            .run(["onboard", "--yes", "--completions"])
            .status(74)
            .stderr_has("~/.config/fish/completions/nanobot.fish")
            .stderr_has(cause)
            .stderr_has("try: `nanobot completions fish > ~/.config/fish");
        assert_eq!(std::fs::read(&path).unwrap(), b"complete -c nanobot\n");
    };
    crate::story::write(&path, b"complete -c nanobot\n");
    refused("not nanobot's");
    std::fs::rename(&path, &own).unwrap();
    std::os::unix::fs::symlink(&own, &path).unwrap();
    refused("it is a symbolic link");
    // A file of an earlier release is replaced.
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "# Completion of nanobot for fish: an older one.\n").unwrap();
    story.run(["onboard", "--yes", "--completions"]).stderr_has("wrote ~/.config/fish");
    assert_eq!(std::fs::read(&path).unwrap(), script);
}

#[test]
fn a_chat_channel_can_be_skipped_after_all() {
    let story = Story::bare().script([lists_models(&["small"]), says("Hi.")]);
    let mut screen = story.screen(60, 80).args(["onboard"]);
    for (prompt, text) in &prompts_and_answers(&story)[..4] {
        answer_prompt(&mut screen, prompt, text);
    }
    answer_prompt(&mut screen, "request is sent. [y/N]", "maybe");
    answer_prompt(&mut screen, "request is sent. [y/N]", "n");
    answer_prompt(&mut screen, "Conversation [one]:", "");
    answer_prompt(&mut screen, "Channel [none]:", "icq");
    answer_prompt(&mut screen, "Channel [none]:", "tele");
    answer_prompt(&mut screen, "Telegram, not shown:", "");
    assert_eq!(screen.code(), 0);
    let screen_text = screen.text_with_scrollback();
    assert!(screen_text.contains("Please answer yes or no."), "{screen_text}");
    let reason = "Please answer telegram, matrix, mattermost, slack, discord, ntfy, feishu,";
    assert!(screen_text.contains(reason), "{screen_text}");
    assert!(screen_text.contains("telegram is not set up"), "{screen_text}");
    assert!(screen_text.contains("ready; try:"), "{screen_text}");
    assert_eq!(read_config(&story)["channels"], Value::Null);
}

#[test]
fn a_chat_channel_is_offered() {
    let telegram = TelegramServer::start();
    let config = json!({ "channels": { "telegram": { "apiBase": telegram.base() } } });
    let story = Story::bare().config(&config).script([lists_models(&["small"]), says("Hi.")]);
    let mut screen = story.screen(60, 80).args(["onboard"]);
    for (prompt, text) in &prompts_and_answers(&story)[..4] {
        answer_prompt(&mut screen, prompt, text);
    }
    // The section could be of the Python program.
    answer_prompt(&mut screen, "Working directory? [c]:", "");
    answer_prompt(&mut screen, "request is sent. [y/N]", "");
    answer_prompt(&mut screen, "Conversation [one]:", "each");
    answer_prompt(&mut screen, "Conversation [one]:", "none");
    answer_prompt(&mut screen, "Channel [none]:", "telegram");
    answer_prompt(&mut screen, "Telegram, not shown:", TOKEN);
    assert_eq!(screen.code(), 0);
    screen.assert_restored();
    // Each message on its own, which is not asked again.
    let config = read_config(&story);
    assert_eq!(config["agents"]["defaults"]["session"], "none");
    let telegram = &config["channels"]["telegram"];
    assert_eq!(telegram["token"], TOKEN);
    assert_eq!(telegram["enabled"], true);
    story.run(["channel", "check", "telegram"]).stdout("story_bot (4242)\n");
}
