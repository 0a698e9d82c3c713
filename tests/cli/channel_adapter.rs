//! Channels of the library against servers on loopback, without the inbox.

use crate::matrix_server::BOT;
use crate::server::{Response, Server, calls, says, sends};
use crate::story::Story;
use nanobot_base::error::exit_for;
use nanobot_channel::access::AccessRules;
use nanobot_channel::setup::ChannelSetup;
use nanobot_channel::table;
use nanobot_channel::{
    Batch, Channel, ChannelError, Chat, Destination, Identity, InboundMessage, Part, PollRequest,
};
use nanobot_config::settings::Config;
use nanobot_config::settings::channels::ChannelConfig;
use nanobot_config::settings::layers::LayeredConfig;
use nanobot_net::http::Network;
use nanobot_os::clock::Clock;
use nanobot_os::env::Env;
use nanobot_os::paths::Paths;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// Creates a channel from its keys, with a clock that does not sleep.
pub(crate) fn open(name: &'static str, keys: &Value) -> anyhow::Result<Box<dyn Channel>> {
    let env: Env = [
        ("NANOBOT_TEST_TIME", "2026-03-01T12:00:00Z"),
        ("HOME", "/nowhere"),
        ("PATH", "/usr/bin:/bin"),
    ]
    .into_iter()
    .collect();
    let text = json!({ "channels": { name: keys } }).to_string();
    let config = Config::parse(Path::new("config.json"), &text)?;
    let layers = LayeredConfig::new(&config, &env);
    let config = ChannelConfig::read(&layers, name)?;
    let setup = ChannelSetup {
        access: AccessRules { allow_from: config.list("allowFrom"), ..AccessRules::default() },
        config,
        clock: Clock::from_env(&env)?,
        network: Network::default(),
        command_env: Vec::new(),
        paths: Paths::resolve(&env, None)?,
        max_attempts: 3,
    };
    let kind = table::find(name).expect("the channel is in the table");
    (kind.open)(&setup)
}

/// A reader of a channel, which keeps its position.
pub(crate) struct Reader<'c> {
    pub(crate) channel: &'c dyn Channel,
    pub(crate) cursor: Option<Value>,
}

impl<'c> Reader<'c> {
    /// A reader after its first look, which must find nothing.
    pub(crate) fn after_first_look(channel: &'c dyn Channel) -> Self {
        let mut reader = Self { channel, cursor: None };
        assert_eq!(reader.texts(), [""; 0]);
        reader
    }
    /// Polls once, without waiting.
    pub(crate) fn poll(&mut self) -> Vec<InboundMessage> {
        self.poll_for(Duration::ZERO).unwrap()
    }

    pub(crate) fn poll_for(&mut self, wait: Duration) -> anyhow::Result<Vec<InboundMessage>> {
        self.poll_as(BOT, wait)
    }

    /// Polls with the account of `user`.
    pub(crate) fn poll_as(
        &mut self,
        user: &str,
        wait: Duration,
    ) -> anyhow::Result<Vec<InboundMessage>> {
        let mut messages = Vec::new();
        let cursor = self.cursor.clone();
        let mut store_batch = |batch: Batch| {
            messages.extend(batch.messages);
            self.cursor = Some(batch.cursor);
            Ok(())
        };
        let identity = Identity { id: user.to_owned(), name: user.to_owned() };
        self.channel.poll(PollRequest {
            identity: &identity,
            cursor: cursor.as_ref(),
            wait,
            store_batch: &mut store_batch,
            report: &|text| panic!("{text}"),
            move_chat: &|moved| panic!("{moved:?}"),
        })?;
        Ok(messages)
    }

    /// Polls once, and returns the texts.
    pub(crate) fn texts(&mut self) -> Vec<String> {
        self.poll().into_iter().map(|it| it.text.as_str().to_owned()).collect()
    }

    /// The status of a poll that fails.
    #[track_caller]
    pub(crate) fn failure(&mut self) -> u8 {
        let failed = self.poll_for(Duration::ZERO);
        exit_for(&failed.expect_err("the poll fails")).code()
    }
}

pub(crate) fn text_part(text: &str) -> Part {
    Part { markup: format!("<p>{text}</p>"), plain: text.to_owned(), ..Part::default() }
}

pub(crate) fn to_chat(id: &str) -> Destination {
    Destination { chat: Chat { id: id.to_owned(), ..Chat::default() }, ..Destination::default() }
}

/// The status of a channel that cannot be created.
#[track_caller]
pub(crate) fn open_failure(name: &'static str, keys: &Value) -> u8 {
    let failed = open(name, keys).err();
    exit_for(&failed.expect("the channel cannot be opened")).code()
}

#[test]
fn a_webhook_gets_each_part_with_its_key() {
    let server = Server::start();
    let down = sends(Response::text(503, "text/plain", "busy"));
    server.script([down, sends(Response::text(200, "text/plain", "ok"))]);
    let url = format!("http://127.0.0.1:{}/in?a=1", server.port);
    let channel = open("webhook", &json!({ "url": url, "secret": "s3cret" })).unwrap();
    let ids = channel.send(&to_chat("ops"), &text_part("hello"), "k1").unwrap();
    assert_eq!(ids, "k1");
    let requests = server.requests();
    assert_eq!(requests.len(), 2);
    for request in &requests {
        assert_eq!(request.path, "/in?a=1");
        assert_eq!(request.header("authorization"), Some("Bearer s3cret"));
        assert_eq!(request.header("idempotency-key"), Some("k1"));
        let expect = json!({ "v": 1, "id": "k1", "to": "ops", "text": "<p>hello</p>" });
        assert_eq!(request.body, expect);
    }
    server.script([sends(Response::text(403, "text/plain", "no"))]);
    let failed = channel.send(&to_chat("ops"), &text_part("hello"), "k2");
    assert!(matches!(failed, Err(ChannelError::TokenRejected(_))));
}

#[test]
fn a_webhook_has_an_address_over_tls() {
    assert_eq!(open_failure("webhook", &json!({})), 78);
    assert_eq!(open_failure("webhook", &json!({ "url": "ftp://x" })), 78);
    assert_eq!(open_failure("webhook", &json!({ "url": "http://example.org/in" })), 78);
}

#[test]
fn a_webhook_only_sends() {
    let server = Server::start();
    let url = format!("http://127.0.0.1:{}/in", server.port);
    let story = Story::new().set("channels", json!({ "webhook": { "enabled": true, "url": url } }));
    let send = ["channel", "send", "webhook", "ops", "**Done**", "--key", "k"];
    let down = || sends(Response::text(503, "text/plain", "busy"));
    server.script([down(), down(), down()]);
    story.run(send).status(69).stderr_has("waits to be sent");
    server.script([sends(Response::text(200, "text/plain", "ok"))]);
    story.run(["channel", "poll"]);
    story.run(["channel", "poll"]);
    story.run(send).stdout("send.k.0\n");
    let requests = server.requests();
    assert_eq!(requests.len(), 4);
    assert_eq!(requests[3].body["text"], "**Done**");
}

/// The refusal names the key that allows the chat, for each channel.
#[test]
fn a_chat_becomes_known_by_the_key_that_the_refusal_names() {
    let server = Server::start();
    let address = format!("http://127.0.0.1:{}", server.port);
    for (channel, keys) in [
        ("telegram", json!({ "token": "1:x", "apiBase": address })),
        ("matrix", json!({ "accessToken": "x", "homeserver": address })),
        ("ntfy", json!({ "topic": "in", "server": address })),
        ("webhook", json!({ "url": address })),
    ] {
        let message = json!({ "content": "Done", "channel": channel, "chat_id": "ops" });
        let story = Story::new()
            .set("channels", json!({ channel: keys }))
            .set(&format!("channels.{channel}.enabled"), json!(true))
            .script([calls("message", message), says("No.")]);
        let key = format!("channels.{channel}.recipients");
        let result = story.run(["agent", "-m", "tell them"]).stdout("No.\n");
        result.stderr_has(&format!("can add it to `{key}`"));
        story.run(["config", "set", &key, "[\"ops\"]"]);
        story.run(["config", "get", &key]).stdout("[\"ops\"]\n");
    }
    let story = Story::new()
        .set(
            "channels",
            json!({ "webhook": { "enabled": true, "url": address, "recipients": ["ops"] } }),
        )
        .script([
            calls("message", json!({ "content": "Done", "channel": "webhook", "chat_id": "ops" })),
            says("Sent."),
        ]);
    server.script([sends(Response::text(200, "text/plain", "ok"))]);
    story.run(["agent", "-m", "tell them"]).stdout("Sent.\n");
    assert_eq!(server.requests()[0].body["text"], "Done");
}
