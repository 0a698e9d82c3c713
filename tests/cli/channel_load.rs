//! Many polls and many messages at once, at the services that are asked by conversation.

use crate::chat_services::{OF_CONVERSATIONS, StandIn, story_of};
use crate::server::{Request, Responder, says};
use crate::story::Story;
use serde_json::json;
use std::collections::BTreeMap;
use std::process::Child;

const CHATS: usize = 100;
const MESSAGES: usize = 10_000;

/// A story after its first look, whose senders may write as often as they like.
pub(crate) fn story_without_limit(service: &dyn StandIn, chats: usize) -> Story {
    story_of(service, chats).set("channels.perSenderPerHour", json!(100_000))
}

/// One of them works. The others end with status 75 without a word, or find nothing that is left to do.
#[test]
fn sixty_four_polls_at_once_answer_once() {
    for service in OF_CONVERSATIONS.map(|start| start()) {
        let story = story_without_limit(&*service, 1);
        story.server().always(says("Hello."));
        service.write_in(0, "hi");
        let poll = |_| story.command(["channel", "poll"]).spawn().unwrap();
        let polls: Vec<Child> = (0..64).map(poll).collect();
        for poll in polls {
            let output = poll.wait_with_output().unwrap();
            let code = output.status.code().unwrap();
            assert!([0, 75].contains(&code), "{output:?}");
            assert!(output.stdout.is_empty() && output.stderr.is_empty(), "{output:?}");
        }
        let name = service.facts().name;
        assert_eq!(service.answers_in(0), ["Hello."], "{name}");
        assert_eq!(story.requests().len(), 1, "{name}");
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
    for service in OF_CONVERSATIONS.map(|start| start()) {
        let story = story_without_limit(&*service, chats).set("channels.maxParallel", json!(8));
        story.server().always(repeating_model());
        for number in 0..messages {
            service.write_in(number % chats, &format!("number {number}."));
        }
        while !story.run(["channel", "poll"]).text().is_empty() {}
        let mut answers: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for chat in 0..chats {
            let numbers = service.answers_in(chat);
            let numbers = numbers.iter().flat_map(|text| text.split(' '));
            let numbers = numbers.map(|number| number.parse().unwrap());
            answers.insert(chat, numbers.collect());
        }
        for (chat, numbers) in answers {
            let expect: Vec<usize> = (chat..messages).step_by(chats).collect();
            assert_eq!(numbers, expect, "{} {chat}", service.facts().name);
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
