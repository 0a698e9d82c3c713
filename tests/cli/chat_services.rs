//! The services that a poll can listen to, each with one conversation.

use crate::channel::ANN;
use crate::discord_server::{self, DiscordServer};
use crate::mail_server::{MailServer, verified};
use crate::mattermost_server::{self, MattermostServer};
use crate::slack_server::{self, SlackServer};
use crate::socket_server::Sockets;
use crate::telegram_server::{TOKEN, TelegramServer};
use serde_json::{Value, json};
use std::rc::Rc;

/// The senders of mail, of which each is answered a limited number of times in an hour.
const MAIL_SENDERS: usize = 50;
/// The usual interval of a gateway's heartbeats.
const HEARTBEAT_MILLIS: u64 = 41_250;
/// The time between two posts, for a server that writes down when they came.
const POST_MILLIS: u64 = 30_000;

/// A stand-in with one conversation.
pub(crate) struct ChatService {
    pub(crate) name: &'static str,
    pub(crate) keys: Value,
    /// Writes a message to us.
    pub(crate) write: Box<dyn Fn(&str)>,
    pub(crate) count_answers: Box<dyn Fn() -> usize>,
    /// Those of a service that tells of messages over WebSockets.
    pub(crate) sockets: Option<Sockets>,
}

/// Starts a stand-in of each service.
pub(crate) fn chat_services() -> [ChatService; 5] {
    let telegram = Rc::new(TelegramServer::start());
    let slack = Rc::new(SlackServer::start());
    let mut slack_keys = slack.keys();
    slack_keys["appToken"] = json!(slack_server::APP_TOKEN);
    let discord = Rc::new(DiscordServer::start());
    discord.set_heartbeat_interval(HEARTBEAT_MILLIS);
    let mattermost = Rc::new(MattermostServer::start());
    mattermost.set_post_interval(POST_MILLIS);
    let telegram_keys = json!({ "enabled": true, "token": TOKEN, "allowFrom": [ANN.to_string()],
        "apiBase": telegram.base() });
    let mail = Rc::new(MailServer::start());
    // No sender of mail is answered more than 20 times in an hour.
    let sender = |number: usize| format!("ann{}@example.org", number % MAIL_SENDERS);
    let mut mail_keys = mail.keys();
    mail_keys["allowFrom"] = (0..MAIL_SENDERS).map(sender).collect();
    [
        ChatService {
            name: "telegram",
            keys: telegram_keys,
            write: Box::new({
                let server = Rc::clone(&telegram);
                move |text| server.message(ANN, text)
            }),
            count_answers: Box::new(move || telegram.sent().len()),
            sockets: None,
        },
        ChatService {
            name: "slack",
            keys: slack_keys,
            write: Box::new({
                let server = Rc::clone(&slack);
                move |text| drop(server.write("D1", slack_server::ANN, text))
            }),
            count_answers: Box::new({
                let server = Rc::clone(&slack);
                move || server.answers("D1").len()
            }),
            sockets: Some(slack.sockets.clone()),
        },
        ChatService {
            name: "discord",
            keys: discord.keys(),
            write: Box::new({
                let server = Rc::clone(&discord);
                move |text| {
                    let (chat, sender) = (discord_server::DIRECT, discord_server::ANN);
                    server.write(chat, sender, text);
                }
            }),
            count_answers: Box::new({
                let server = Rc::clone(&discord);
                move || server.answers(discord_server::DIRECT).len()
            }),
            sockets: Some(discord.sockets.clone()),
        },
        ChatService {
            name: "mattermost",
            keys: mattermost.keys(),
            write: Box::new({
                let server = Rc::clone(&mattermost);
                move |text| drop(server.write("direct", mattermost_server::ANN, text))
            }),
            count_answers: Box::new({
                let server = Rc::clone(&mattermost);
                move || server.answers("direct").len()
            }),
            sockets: Some(mattermost.sockets.clone()),
        },
        ChatService {
            name: "email",
            keys: mail_keys,
            write: Box::new({
                let server = Rc::clone(&mail);
                move |text| {
                    let number = server.mails().len();
                    let header = format!(
                        "{}\nFrom: {}\nSubject: Question\nMessage-ID: <m{number}@example.org>",
                        verified(),
                        sender(number)
                    );
                    server.add(&header, text);
                }
            }),
            count_answers: Box::new(move || mail.sent().len()),
            sockets: None,
        },
    ]
}
