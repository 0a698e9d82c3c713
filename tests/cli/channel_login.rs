//! `channel login`: asks for a token, tries it, and stores it.

use crate::mail_server::{BOT, MailServer, PASSWORD};
use crate::matrix_server::MatrixServer;
use crate::screen::{Key, Screen};
use crate::server::says;
use crate::story::Story;
use crate::telegram_server::{TOKEN, TelegramServer};
use serde_json::{Value, json};

fn channels(story: &Story) -> Value {
    let path = story.home().join(".nanobot/config.json");
    let text = std::fs::read_to_string(path).unwrap();
    serde_json::from_str::<Value>(&text).unwrap()["channels"].take()
}

/// A story whose config has an address for Telegram only.
fn story_without_token(telegram: &TelegramServer) -> Story {
    let address = json!({ "telegram": { "apiBase": telegram.base() } });
    Story::new().set("channels", address)
}

#[track_caller]
fn answer(screen: &mut Screen<'_>, question: &str, text: &str) {
    screen.until_text(&format!("{question:?} is not asked"), |text| {
        text.trim_end().ends_with(question)
    });
    screen.type_(text).press(Key::Enter);
}

#[test]
fn a_token_is_asked_for_until_the_service_accepts_it() {
    let telegram = TelegramServer::start();
    let story = story_without_token(&telegram).script([says("Hi.")]);
    let mut screen = story.screen(24, 80).args(["channel", "login", "telegram"]);
    answer(&mut screen, "Telegram, not shown:", "4242:wrong-token");
    screen.until("is not accepted");
    answer(&mut screen, "Telegram, not shown:", TOKEN);
    assert_eq!(screen.code(), 0);
    let screen_text = screen.text_with_scrollback();
    assert!(!screen_text.contains(TOKEN) && !screen_text.contains("wrong-token"), "{screen_text}");
    screen.snapshot("channel-login", &screen_text);
    screen.assert_restored();
    let [menu] = &telegram.calls("setMyCommands")[..] else { panic!("one call") };
    let menu = menu.body["commands"].as_array().unwrap();
    let names: Vec<&str> = menu.iter().map(|it| it["command"].as_str().unwrap()).collect();
    assert!(["new", "undo", "grants"].iter().all(|name| names.contains(name)), "{names:?}");
    assert!(!names.contains(&"paste"), "a command of terminals: {names:?}");
    let stored = &channels(&story)["telegram"];
    assert_eq!(stored["token"], TOKEN);
    assert_eq!(stored["enabled"], true);
    // The rest is as it says.
    telegram.message(7, "hi");
    story.run(["channel", "poll"]);
    let pairing = story.run(["channel", "pair", "list"]).text();
    let code = pairing.split(' ').next().unwrap();
    story.run(["channel", "pair", "approve", code]).stdout("✓ 7 may write in telegram\n");
    telegram.message(7, "hi");
    story.run(["channel", "poll"]);
    assert_eq!(telegram.sent().last().unwrap(), "Hi.");
    // With a token nothing is asked.
    story
        .run(["channel", "login", "telegram"])
        .stdout("@story_bot (4242); the command menu is set\n");
}

#[test]
fn a_login_that_is_left_changes_nothing() {
    let telegram = TelegramServer::start();
    let story = story_without_token(&telegram);
    let before = channels(&story);
    let mut screen = story.screen(24, 80).args(["channel", "login", "telegram"]);
    screen.until("not shown:").press(Key::Ctrl('d'));
    assert_eq!(screen.code(), 66);
    screen.assert_restored();
    assert_eq!(channels(&story), before);
    // Without a terminal there is no question, and a service that is down is no reason to ask again.
    story.run(["channel", "login", "telegram"]).status(78).stderr(
        "nanobot: `channels.telegram.token` is not set\n  try: `nanobot config set channels.telegram.token -`\n",
    );
    telegram.fail(
        "getMe",
        400,
        json!({ "ok": false, "error_code": 400, "description": "Bad Request" }),
    );
    let mut screen = story.screen(24, 80).args(["channel", "login", "telegram"]);
    answer(&mut screen, "not shown:", TOKEN);
    assert_eq!(screen.code(), 65);
    assert_eq!(channels(&story), before);
}

#[test]
fn every_value_that_a_channel_needs_is_asked_for() {
    let matrix = MatrixServer::start();
    let story = Story::new();
    let mut screen = story.screen(24, 80).args(["channel", "login", "matrix"]);
    answer(
        &mut screen,
        "Homeserver [https://matrix.org]:",
        matrix.keys()["homeserver"].as_str().unwrap(),
    );
    answer(&mut screen, "account, not shown:", matrix.keys()["accessToken"].as_str().unwrap());
    assert_eq!(screen.code(), 0);
    story.run(["channel", "check", "matrix"]).stdout("@bot:h (@bot:h)\n");
    let stored = channels(&story);
    assert_eq!(stored["matrix"]["homeserver"], matrix.keys()["homeserver"]);
}

#[test]
fn a_mailbox_needs_the_consent_of_its_owner() {
    let server = MailServer::start();
    let keys = server.keys();
    let ports = json!({ "imapPort": keys["imapPort"], "smtpPort": keys["smtpPort"], "imapUseSsl": false,
        "smtpUseTls": false, "allowFrom": ["ann@example.org"] });
    let story = Story::new().set("channels", json!({ "email": ports }));
    let uid = server.receive("x", "from before");
    let log_in = |consent: &str| {
        let mut screen = story.screen(24, 100).args(["channel", "login", "email"]);
        answer(&mut screen, "[y/N]", "true");
        screen.until("Please answer yes or no.");
        answer(&mut screen, "[y/N]", consent);
        answer(&mut screen, "IMAP server:", "127.0.0.1");
        answer(&mut screen, "User name there:", BOT);
        answer(&mut screen, "Password there, not shown:", PASSWORD);
        answer(&mut screen, "SMTP server:", "127.0.0.1");
        answer(&mut screen, "User name there:", BOT);
        answer(&mut screen, "Password there, not shown:", PASSWORD);
        answer(&mut screen, "is not one:", "");
        screen
    };
    let mut screen = log_in("no");
    assert_eq!(screen.code(), 78);
    assert!(server.commands().is_empty());
    let mut screen = log_in("yes");
    assert_eq!(screen.code(), 0);
    let screen_text = screen.text_with_scrollback();
    assert!(screen_text.contains("trustedAuthservIds"), "{screen_text}");
    let stored = &channels(&story)["email"];
    assert_eq!(stored["consentGranted"], true);
    assert_eq!(stored["enabled"], true);
    assert!(server.mails().iter().all(|mail| mail.uid == uid && mail.flags.is_empty()));
    story.run(["channel", "login", "email"]).stdout_has("still to do");
}
