//! The stand-ins for chat services under one interface, for the stories that all services share (`channel_conformance`), and
//! for those about load, endurance and cron.

use crate::channel::ANN;
use crate::channel_ntfy::NtfyServer;
use crate::channel_weixin::WeixinServer;
use crate::discord_server::DiscordServer;
use crate::mail_server::{MailServer, verified};
use crate::matrix_server::MatrixServer;
use crate::mattermost_server::{self, MattermostServer};
use crate::mochat_server::MochatServer;
use crate::push_servers::PushServer;
use crate::slack_server::{self, SlackServer};
use crate::socket_server::Sockets;
use crate::story::Story;
use crate::telegram_server::{TOKEN, TelegramServer};
use mail_parser::MessageParser;
use serde_json::{Value, json};
use std::cell::Cell;
use std::collections::BTreeMap;

/// The senders of mail, of which each is answered a limited number of times in an hour.
const MAIL_SENDERS: usize = 50;
/// The usual interval of a gateway's heartbeats.
const HEARTBEAT_MILLIS: u64 = 41_250;
/// The time between two posts, for a server that writes down when they came.
const POST_MILLIS: u64 = 30_000;

/// A stand-in for a service, with direct chats, each of its own user. Chats are numbered from 0.
pub(crate) trait StandIn {
    fn facts(&self) -> ServiceFacts;
    /// Opens this number of direct chats. Returns the channel's keys, with which their users are answered.
    fn open_chats(&self, count: usize) -> Value;
    /// The user of a direct chat writes to us.
    fn write_in(&self, chat: usize, text: &str);
    /// Our texts in a direct chat, as the service shows them.
    fn answers_in(&self, chat: usize) -> Vec<String>;
    /// The user of a direct chat answers our last message there by a button or a reaction, while a poll follows.
    ///
    /// # Panics
    /// The service has neither.
    fn press(&self, _chat: usize, _answer: &str) {
        panic!("{} has no buttons", self.facts().name)
    }
    /// The user of a direct chat replies to our last message there.
    ///
    /// # Panics
    /// The stand-in has no replies.
    fn reply_in(&self, _chat: usize, _text: &str) {
        panic!("{} has no replies", self.facts().name)
    }
    /// The user of a direct chat changes the text of the last message there. Returns false for a service that does not tell of that.
    fn edit_in(&self, _chat: usize, _text: &str) -> bool {
        false
    }
    /// The number of requests that the service got, if they are HTTP and counted.
    fn request_count(&self) -> usize {
        0
    }
    /// Those of a service that tells of messages over WebSockets.
    fn sockets(&self) -> Option<&Sockets> {
        None
    }
}

/// The differences between services.
#[derive(Clone, Copy)]
pub(crate) struct ServiceFacts {
    /// The channel's name.
    pub(crate) name: &'static str,
    /// The key of the token or the password.
    pub(crate) secret_key: &'static str,
    /// `**Hello** Ann.` in the markup of the service.
    pub(crate) hello: &'static str,
    /// The session of the first direct chat, as its file is called.
    pub(crate) session_file: &'static str,
    /// True if the service keeps messages until they are fetched: those from before the first look are answered, too.
    pub(crate) keeps_messages: bool,
    /// True if the service shows a part once that is sent twice.
    pub(crate) knows_parts: bool,
    /// True if a question has buttons, or reactions for them.
    pub(crate) has_buttons: bool,
}

/// The facts about a service that is asked by position, and knows our parts.
pub(crate) const FACTS: ServiceFacts = ServiceFacts {
    name: "",
    secret_key: "token",
    hello: "**Hello** Ann.",
    session_file: "",
    keeps_messages: false,
    knows_parts: true,
    has_buttons: false,
};

/// Starts a stand-in.
pub(crate) type StartService = fn() -> Box<dyn StandIn>;

/// A stand-in of each service.
pub(crate) const ALL: [StartService; 14] = [
    || Box::new(TelegramServer::start()),
    || Box::new(MatrixServer::start()),
    || Box::new(MattermostServer::start()),
    || Box::new(SlackServer::start()),
    || Box::new(DiscordServer::start()),
    || Box::new(MailServer::start()),
    || Box::new(NtfyServer::start()),
    || Box::new(WeixinServer::start()),
    || Box::new(MochatServer::start()),
    || Box::new(PushServer::by_name("dingtalk")),
    || Box::new(PushServer::by_name("feishu")),
    || Box::new(PushServer::by_name("qq")),
    || Box::new(PushServer::by_name("wecom")),
    || Box::new(PushServer::by_name("whatsapp")),
];

/// Those that are asked by conversation.
pub(crate) const OF_CONVERSATIONS: [StartService; 3] = [
    || Box::new(SlackServer::start()),
    || Box::new(DiscordServer::start()),
    || Box::new(MattermostServer::start()),
];

/// A story after its first look, with this number of direct chats.
pub(crate) fn story_of(service: &dyn StandIn, chats: usize) -> Story {
    let keys = service.open_chats(chats);
    let story = Story::new()
        .set("channels", json!({ service.facts().name: keys }))
        .set("memory", json!({ "consolidate": "manual" }));
    if !service.facts().keeps_messages {
        (0..chats).for_each(|chat| service.write_in(chat, "before the first look"));
        story.run(["channel", "poll"]);
    }
    story
}

/// A service that a poll listens to, and the chats in which a test writes.
pub(crate) struct ChatService {
    stand_in: Box<dyn StandIn>,
    pub(crate) keys: Value,
    chats: usize,
    written: Cell<usize>,
}

impl ChatService {
    pub(crate) fn new(stand_in: Box<dyn StandIn>, chats: usize) -> Self {
        Self { keys: stand_in.open_chats(chats), stand_in, chats, written: Cell::new(0) }
    }

    pub(crate) fn facts(&self) -> ServiceFacts {
        self.stand_in.facts()
    }

    /// Writes a message to us, in one chat after the other.
    pub(crate) fn write(&self, text: &str) {
        let number = self.written.replace(self.written.get() + 1);
        self.stand_in.write_in(number % self.chats, text);
    }

    pub(crate) fn count_answers(&self) -> usize {
        (0..self.chats).map(|chat| self.stand_in.answers_in(chat).len()).sum()
    }

    pub(crate) fn sockets(&self) -> Option<&Sockets> {
        self.stand_in.sockets()
    }
}

/// Five services, with the intervals of real ones.
pub(crate) fn chat_services() -> [ChatService; 5] {
    let discord = DiscordServer::start();
    discord.set_heartbeat_interval(HEARTBEAT_MILLIS);
    let mattermost = MattermostServer::start();
    mattermost.set_post_interval(POST_MILLIS);
    let mut slack = ChatService::new(Box::new(SlackServer::start()), 1);
    slack.keys["appToken"] = json!(slack_server::APP_TOKEN);
    [
        ChatService::new(Box::new(TelegramServer::start()), 1),
        slack,
        ChatService::new(Box::new(discord), 1),
        ChatService::new(Box::new(mattermost), 1),
        ChatService::new(Box::new(MailServer::start()), MAIL_SENDERS),
    ]
}

/// The texts of the numbers of chats.
fn numbered(count: usize, text: impl Fn(usize) -> String) -> Value {
    (0..count).map(text).collect()
}

impl StandIn for TelegramServer {
    fn facts(&self) -> ServiceFacts {
        ServiceFacts {
            name: "telegram",
            hello: "<b>Hello</b> Ann.",
            session_file: "telegram_7.jsonl",
            keeps_messages: true,
            knows_parts: false,
            has_buttons: true,
            ..FACTS
        }
    }

    fn open_chats(&self, count: usize) -> Value {
        json!({ "enabled": true, "token": TOKEN, "apiBase": self.base(),
            "allowFrom": numbered(count, |chat| telegram_user(chat).to_string()) })
    }

    fn write_in(&self, chat: usize, text: &str) {
        self.message(telegram_user(chat), text);
    }

    fn answers_in(&self, chat: usize) -> Vec<String> {
        let calls = self.calls("sendMessage").into_iter();
        let calls = calls.filter(|call| call.body["chat_id"] == telegram_user(chat));
        calls.map(|call| call.body["text"].as_str().unwrap().to_owned()).collect()
    }

    fn edit_in(&self, chat: usize, text: &str) -> bool {
        self.edit_last(telegram_user(chat), text);
        true
    }

    fn reply_in(&self, chat: usize, text: &str) {
        let user = telegram_user(chat);
        // The first message is number 1001.
        let id = 1000 + self.calls("sendMessage").len();
        self.add(json!({
            "from": { "id": user, "is_bot": false, "first_name": "A" }, "text": text,
            "chat": { "id": user, "type": "private" },
            "reply_to_message": { "message_id": id, "from": { "id": 4242 }, "text": "Tea." },
        }));
    }

    fn press(&self, chat: usize, answer: &str) {
        let (id, payloads) = self.last_buttons();
        let user = telegram_user(chat);
        self.press(&json!({
            "id": format!("{user}{}", self.calls("answerCallbackQuery").len()), "chat_instance": "1",
            "from": { "id": user, "is_bot": false, "first_name": "A" },
            "message": { "message_id": id, "date": 1, "chat": { "id": user, "type": "private" } },
            "data": payloads.iter().find(|it| it.starts_with(answer)).unwrap(),
        }));
    }
}

fn telegram_user(chat: usize) -> i64 {
    ANN + i64::try_from(chat).unwrap()
}

impl StandIn for MatrixServer {
    fn facts(&self) -> ServiceFacts {
        ServiceFacts {
            name: "matrix",
            secret_key: "accessToken",
            hello: "Hello Ann.",
            session_file: "matrix_!r0_h.jsonl",
            has_buttons: true,
            ..FACTS
        }
    }

    fn open_chats(&self, count: usize) -> Value {
        (0..count).for_each(|chat| self.add_room(&matrix_room(chat), 2));
        self.keys()
    }

    fn write_in(&self, chat: usize, text: &str) {
        self.write(&matrix_room(chat), "@ann:h", text);
    }

    fn answers_in(&self, chat: usize) -> Vec<String> {
        let answers = self.answers(&matrix_room(chat)).into_iter();
        answers.map(|it| it["body"].as_str().unwrap().to_owned()).collect()
    }

    fn edit_in(&self, chat: usize, text: &str) -> bool {
        self.edit_last(&matrix_room(chat), "@ann:h", text);
        true
    }

    fn reply_in(&self, chat: usize, text: &str) {
        let room_id = matrix_room(chat);
        let replied = json!({ "m.in_reply_to": { "event_id": self.last_answer_id(&room_id) } });
        let content = json!({ "msgtype": "m.text", "body": text, "m.relates_to": replied });
        self.push(&room_id, "m.room.message", "@ann:h", content);
    }

    fn press(&self, chat: usize, answer: &str) {
        let (room_id, key) = (matrix_room(chat), if answer == "yes" { "✅" } else { "❌" });
        self.react(&room_id, "@ann:h", &self.last_answer_id(&room_id), key);
    }

    fn request_count(&self) -> usize {
        self.http.requests().len()
    }
}

fn matrix_room(chat: usize) -> String {
    format!("!r{chat}:h")
}

impl StandIn for SlackServer {
    fn facts(&self) -> ServiceFacts {
        ServiceFacts {
            name: "slack",
            secret_key: "botToken",
            session_file: "slack_D0.jsonl",
            has_buttons: true,
            ..FACTS
        }
    }

    fn open_chats(&self, count: usize) -> Value {
        (0..count).for_each(|chat| self.add_channel(&format!("D{chat}")));
        self.keys()
    }

    fn write_in(&self, chat: usize, text: &str) {
        self.write(&format!("D{chat}"), slack_server::ANN, text);
    }

    fn answers_in(&self, chat: usize) -> Vec<String> {
        self.answer_texts(&format!("D{chat}"))
    }

    fn edit_in(&self, _chat: usize, text: &str) -> bool {
        self.edit_last(text);
        true
    }

    fn reply_in(&self, chat: usize, text: &str) {
        let channel = format!("D{chat}");
        let stamp = self.answers(&channel).pop().unwrap()["ts"].clone();
        self.add(json!({ "channel": channel, "user": slack_server::ANN, "text": text, "thread_ts": stamp }));
    }

    fn press(&self, chat: usize, answer: &str) {
        self.press(&self.press_payload(&format!("D{chat}"), slack_server::ANN, answer));
    }

    fn request_count(&self) -> usize {
        self.http.requests().len()
    }

    fn sockets(&self) -> Option<&Sockets> {
        Some(&self.sockets)
    }
}

impl StandIn for DiscordServer {
    fn facts(&self) -> ServiceFacts {
        ServiceFacts {
            name: "discord",
            session_file: "discord_60.jsonl",
            has_buttons: true,
            ..FACTS
        }
    }

    fn open_chats(&self, count: usize) -> Value {
        (0..count).for_each(|chat| self.add_direct(&format!("5{chat}"), &format!("6{chat}")));
        let mut keys = self.keys();
        keys["allowFrom"] = numbered(count, |chat| format!("5{chat}"));
        keys
    }

    fn write_in(&self, chat: usize, text: &str) {
        self.write(&format!("6{chat}"), &format!("5{chat}"), text);
    }

    fn answers_in(&self, chat: usize) -> Vec<String> {
        self.answer_texts(&format!("6{chat}"))
    }

    fn edit_in(&self, _chat: usize, text: &str) -> bool {
        self.edit_last(text);
        true
    }

    fn reply_in(&self, chat: usize, text: &str) {
        let channel = format!("6{chat}");
        let replied = self.answers(&channel).pop().unwrap();
        let reference = json!({ "message_id": replied["id"], "channel_id": channel });
        self.add(
            json!({ "channel_id": channel, "author": { "id": format!("5{chat}") }, "content": text,
            "type": 19, "message_reference": reference, "referenced_message": replied }),
        );
    }

    fn press(&self, chat: usize, answer: &str) {
        let label = if answer == "yes" { "Yes" } else { "No" };
        self.press(&format!("6{chat}"), &format!("5{chat}"), label);
    }

    fn request_count(&self) -> usize {
        self.http.requests().len()
    }

    fn sockets(&self) -> Option<&Sockets> {
        Some(&self.sockets)
    }
}

impl StandIn for MattermostServer {
    fn facts(&self) -> ServiceFacts {
        ServiceFacts { name: "mattermost", session_file: "mattermost_d0.jsonl", ..FACTS }
    }

    fn open_chats(&self, count: usize) -> Value {
        (0..count).for_each(|chat| self.add_channel(&format!("d{chat}"), "D", ""));
        self.keys()
    }

    fn write_in(&self, chat: usize, text: &str) {
        self.write(&format!("d{chat}"), mattermost_server::ANN, text);
    }

    fn reply_in(&self, chat: usize, text: &str) {
        let channel = format!("d{chat}");
        let root = self.answers(&channel).pop().unwrap()["id"].clone();
        self.add(json!({ "channel_id": channel, "user_id": mattermost_server::ANN, "message": text, "root_id": root }));
    }

    fn answers_in(&self, chat: usize) -> Vec<String> {
        self.answer_texts(&format!("d{chat}"))
    }

    fn request_count(&self) -> usize {
        self.http.requests().len()
    }

    fn sockets(&self) -> Option<&Sockets> {
        Some(&self.sockets)
    }
}

impl StandIn for MailServer {
    fn facts(&self) -> ServiceFacts {
        ServiceFacts {
            name: "email",
            hello: "Hello Ann.",
            secret_key: "imapPassword",
            session_file: "email_ann0@example.org.jsonl",
            knows_parts: false,
            ..FACTS
        }
    }

    fn open_chats(&self, count: usize) -> Value {
        let mut keys = self.keys();
        keys["allowFrom"] = numbered(count, mail_address);
        keys
    }

    fn write_in(&self, chat: usize, text: &str) {
        let (sender, number) = (mail_address(chat), self.mails().len());
        let header = format!(
            "{}\nFrom: {sender}\nSubject: Question\nMessage-ID: <m{number}@example.org>",
            verified()
        );
        self.add(&header, text);
    }

    fn reply_in(&self, chat: usize, text: &str) {
        let (sender, number) = (mail_address(chat), self.mails().len());
        let sent = self.sent().into_iter().rfind(|mail| mail.to == sender).unwrap();
        let replied =
            MessageParser::new().parse(&sent.raw).unwrap().message_id().unwrap().to_owned();
        let header = format!(
            "{}\nFrom: {sender}\nSubject: Re: Tea.\nMessage-ID: <m{number}@example.org>\nIn-Reply-To: <{replied}>",
            verified()
        );
        self.add(&header, text);
    }

    /// An answer that comes twice does so under one `Message-ID`.
    fn answers_in(&self, chat: usize) -> Vec<String> {
        let mails = self.sent().into_iter().filter(|mail| mail.to == mail_address(chat));
        let mut ids = BTreeMap::new();
        let texts = mails.map(|mail| {
            let parsed = MessageParser::new().parse(&mail.raw).unwrap();
            let id = parsed.message_id().unwrap().to_owned();
            let text = parsed.body_text(0).unwrap().trim().to_owned();
            if let Some(answered_id) = parsed.in_reply_to().as_text() {
                let entry = ids.entry((answered_id.to_owned(), text.clone()));
                assert_eq!(*entry.or_insert_with(|| id.clone()), id);
            }
            text
        });
        texts.collect()
    }
}

fn mail_address(chat: usize) -> String {
    format!("ann{chat}@example.org")
}

impl StandIn for PushServer {
    fn facts(&self) -> ServiceFacts {
        let push = ServiceFacts { name: self.name, keeps_messages: true, ..FACTS };
        match self.name {
            "dingtalk" => ServiceFacts {
                secret_key: "clientSecret",
                session_file: "dingtalk_ann0.jsonl",
                knows_parts: false,
                ..push
            },
            "feishu" => {
                ServiceFacts { secret_key: "appSecret", session_file: "feishu_ann0.jsonl", ..push }
            }
            "qq" => ServiceFacts {
                secret_key: "secret",
                hello: "Hello Ann.",
                session_file: "qq_ann0.jsonl",
                ..push
            },
            "whatsapp" => ServiceFacts {
                secret_key: "bridgeToken",
                hello: "*Hello* Ann.",
                session_file: "whatsapp_ann0@s.whatsapp.net.jsonl",
                ..push
            },
            _ => ServiceFacts { secret_key: "secret", session_file: "wecom_ann0.jsonl", ..push },
        }
    }

    fn open_chats(&self, count: usize) -> Value {
        let mut keys = self.keys();
        keys["allowFrom"] = numbered(count, push_user);
        keys
    }

    fn write_in(&self, chat: usize, text: &str) {
        self.write(&self.next_id(), &push_user(chat), text);
    }

    fn answers_in(&self, chat: usize) -> Vec<String> {
        let user = push_user(chat);
        let is_of_chat = |name: &str| name == user || name == format!("{user}@s.whatsapp.net");
        let answers = self.answers().into_iter().filter(|(name, _)| is_of_chat(name));
        answers.map(|(_, text)| text).collect()
    }

    fn request_count(&self) -> usize {
        self.http.requests().len()
    }

    fn sockets(&self) -> Option<&Sockets> {
        Some(&self.sockets)
    }
}

fn push_user(chat: usize) -> String {
    format!("ann{chat}")
}

impl StandIn for MochatServer {
    fn facts(&self) -> ServiceFacts {
        ServiceFacts {
            name: "mochat",
            secret_key: "clawToken",
            hello: "Hello Ann.",
            session_file: "mochat_session_0.jsonl",
            knows_parts: false,
            ..FACTS
        }
    }

    fn open_chats(&self, count: usize) -> Value {
        // A session is known from its first message.
        (0..count).for_each(|chat| self.write_in(chat, "before the first look"));
        self.keys()
    }

    fn write_in(&self, chat: usize, text: &str) {
        let number = self.message_count();
        self.write(&format!("session_{chat}"), &format!("m{number}"), "ann", text);
    }

    fn answers_in(&self, chat: usize) -> Vec<String> {
        let name = format!("session_{chat}");
        let answers = self.answers().into_iter().filter(|(chat, _)| *chat == name);
        answers.map(|(_, text)| text).collect()
    }

    fn request_count(&self) -> usize {
        self.http.requests().len()
    }
}

impl StandIn for WeixinServer {
    fn facts(&self) -> ServiceFacts {
        ServiceFacts {
            name: "weixin",
            hello: "Hello Ann.",
            session_file: "weixin_ann0@im.wechat.jsonl",
            keeps_messages: true,
            ..FACTS
        }
    }

    fn open_chats(&self, count: usize) -> Value {
        let mut keys = self.keys();
        keys["allowFrom"] = numbered(count, weixin_user);
        keys
    }

    fn write_in(&self, chat: usize, text: &str) {
        self.write(&weixin_user(chat), &json!([{ "type": 1, "text_item": { "text": text } }]));
    }

    fn answers_in(&self, chat: usize) -> Vec<String> {
        self.texts_to(&weixin_user(chat))
    }

    fn request_count(&self) -> usize {
        self.http.requests().len()
    }
}

fn weixin_user(chat: usize) -> String {
    format!("ann{chat}@im.wechat")
}

/// It has one topic, which anyone may write to, and another one for the answers.
impl StandIn for NtfyServer {
    fn facts(&self) -> ServiceFacts {
        ServiceFacts {
            name: "ntfy",
            hello: "Hello Ann.",
            session_file: "ntfy_in.jsonl",
            knows_parts: false,
            ..FACTS
        }
    }

    fn open_chats(&self, count: usize) -> Value {
        assert_eq!(count, 1);
        let mut keys = self.keys();
        keys["answerTopic"] = json!("out");
        keys
    }

    fn write_in(&self, _chat: usize, text: &str) {
        self.publish("in", text);
    }

    fn answers_in(&self, _chat: usize) -> Vec<String> {
        self.texts("out")
    }

    fn request_count(&self) -> usize {
        self.http.requests().len()
    }
}
