//! Many polls and many messages at once, at the services that are asked by conversation.

use crate::discord_server::DiscordServer;
use crate::mattermost_server::{self, MattermostServer};
use crate::server::{Request, Responder, says};
use crate::slack_server::{self, SlackServer};
use crate::story::Story;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::process::Child;

const CHATS: usize = 100;
const MESSAGES: usize = 10_000;

/// Writes a text in a chat.
type WriteText = Box<dyn Fn(usize, &str)>;
/// Our texts in a chat.
type ReadAnswers = Box<dyn Fn(usize) -> Vec<String>>;

/// A stand-in with direct chats, each with a user of its own.
pub(crate) struct Service {
    pub(crate) name: &'static str,
    keys: Value,
    pub(crate) write: WriteText,
    pub(crate) answers: ReadAnswers,
}

pub(crate) fn services(chats: usize) -> [Service; 3] {
    let slack = SlackServer::start();
    let discord = DiscordServer::start();
    let mattermost = MattermostServer::start();
    let mut discord_keys = discord.keys();
    discord_keys["allowFrom"] = (0..chats).map(|chat| format!("5{chat}")).collect();
    for chat in 0..chats {
        slack.add_channel(&format!("D{chat}"));
        discord.add_direct(&format!("5{chat}"), &format!("6{chat}"));
        mattermost.add_channel(&format!("d{chat}"), "D", "");
    }
    let (slack, discord) = (std::rc::Rc::new(slack), std::rc::Rc::new(discord));
    let mattermost = std::rc::Rc::new(mattermost);
    [
        Service {
            name: "slack",
            keys: slack.keys(),
            write: Box::new({
                let server = slack.clone();
                move |chat, text| {
                    server.write(&format!("D{chat}"), slack_server::ANN, text);
                }
            }),
            answers: Box::new(move |chat| slack.answer_texts(&format!("D{chat}"))),
        },
        Service {
            name: "discord",
            keys: discord_keys,
            write: Box::new({
                let server = discord.clone();
                move |chat, text| {
                    server.write(&format!("6{chat}"), &format!("5{chat}"), text);
                }
            }),
            answers: Box::new(move |chat| discord.answer_texts(&format!("6{chat}"))),
        },
        Service {
            name: "mattermost",
            keys: mattermost.keys(),
            write: Box::new({
                let server = mattermost.clone();
                move |chat, text| {
                    server.write(&format!("d{chat}"), mattermost_server::ANN, text);
                }
            }),
            answers: Box::new(move |chat| mattermost.answer_texts(&format!("d{chat}"))),
        },
    ]
}

impl Service {
    /// A story after its first poll.
    pub(crate) fn story(&self) -> Story {
        let story = Story::new()
            .set("channels", json!({ self.name: self.keys, "perSenderPerHour": 100_000 }))
            .set("memory", json!({ "consolidate": "manual" }));
        story.run(["channel", "poll"]);
        story
    }
}

/// One of them works. The others end with status 75 without a word, or find nothing that is left to do.
#[test]
fn sixty_four_polls_at_once_answer_once() {
    for service in services(1) {
        let story = service.story();
        story.server().always(says("Hello."));
        (service.write)(0, "hi");
        let poll = |_| story.command(["channel", "poll"]).spawn().unwrap();
        let polls: Vec<Child> = (0..64).map(poll).collect();
        for poll in polls {
            let output = poll.wait_with_output().unwrap();
            let code = output.status.code().unwrap();
            assert!([0, 75].contains(&code), "{output:?}");
            assert!(output.stdout.is_empty() && output.stderr.is_empty(), "{output:?}");
        }
        assert_eq!((service.answers)(0), ["Hello."], "{}", service.name);
        assert_eq!(story.requests().len(), 1, "{}", service.name);
    }
}

/// A model that repeats the numbers in the message.
fn repeating_model() -> Responder {
    Box::new(|request: &Request| {
        let content = request.last_content();
        let numbers = content.split("number ").skip(1);
        let numbers = numbers.map(|rest| rest.split('.').next().unwrap());
        says(&numbers.collect::<Vec<_>>().join(" "))(request)
    })
}

/// Answers `messages` messages in `chats` chats: each once and in order.
fn answer_all(chats: usize, messages: usize) {
    for service in services(chats) {
        let story = service.story().set("channels.maxParallel", json!(8));
        story.server().always(repeating_model());
        for number in 0..messages {
            (service.write)(number % chats, &format!("number {number}."));
        }
        while !story.run(["channel", "poll"]).text().is_empty() {}
        let mut answered: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for chat in 0..chats {
            let numbers = (service.answers)(chat);
            let numbers = numbers.iter().flat_map(|text| text.split(' '));
            let numbers = numbers.map(|number| number.parse().unwrap());
            answered.insert(chat, numbers.collect());
        }
        for (chat, numbers) in answered {
            let expect: Vec<usize> = (chat..messages).step_by(chats).collect();
            assert_eq!(numbers, expect, "{} {chat}", service.name);
        }
    }
}

#[test]
fn messages_of_many_chats_are_answered_in_order() {
    answer_all(10, 200);
}

#[test]
#[ignore = "takes minutes; see tests/README.md"]
fn ten_thousand_messages_in_a_hundred_chats() {
    answer_all(CHATS, MESSAGES);
}
