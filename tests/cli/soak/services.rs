//! The chat services and the model of the household.

use super::network::{Fault, Relay};
use crate::chat_services::StandIn;
use crate::server::{Ending, Request, Responder, Response, calls, fails, says, sends};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Words of the answers to what could not be done.
pub(super) const GIVEN_UP: [&str; 3] = [
    "I could not answer this message",
    "the program was killed each time it answered this message",
    "No space left on device",
];

/// A chat service behind a network that breaks.
pub(super) struct Service {
    pub(super) stand_in: Box<dyn StandIn>,
    relays: Vec<Relay>,
    pub(super) is_broken: bool,
    /// The number of answers that were examined.
    pub(super) examined: usize,
}

impl Service {
    /// The stand-in, and the channel's keys with the addresses of its relays.
    pub(super) fn start(stand_in: Box<dyn StandIn>) -> (Self, Value) {
        let mut keys = stand_in.open_chats(1);
        let mut relays = BTreeMap::new();
        let mut relay_to = |port: u16| relays.entry(port).or_insert_with(|| Relay::to(port)).port;
        for (name, value) in keys.as_object_mut().unwrap() {
            if let Some((before, after)) = value.as_str().and_then(|it| it.split_once("127.0.0.1:"))
            {
                let digits = after.find(|letter: char| !letter.is_ascii_digit());
                let (port, rest) = after.split_at(digits.unwrap_or(after.len()));
                let port = relay_to(port.parse().unwrap());
                *value = json!(format!("{before}127.0.0.1:{port}{rest}"));
            } else if name.ends_with("Port") {
                *value = json!(relay_to(u16::try_from(value.as_u64().unwrap()).unwrap()));
            }
        }
        assert!(!relays.is_empty(), "{keys}");
        let relays = relays.into_values().collect();
        (Self { stand_in, relays, is_broken: false, examined: 0 }, keys)
    }

    pub(super) fn set(&mut self, fault: Fault) {
        self.is_broken = fault != Fault::None;
        self.relays.iter().for_each(|relay| relay.set(fault));
    }
}

/// A model that repeats what it was told to say, after a command if the message asks for one, and consolidates.
pub(super) fn model(fault: Arc<Mutex<Fault>>) -> Responder {
    Box::new(move |request: &Request| {
        let current = *fault.lock().unwrap();
        match current {
            Fault::None => {}
            Fault::Failing => return fails(503, "busy")(request),
            Fault::Closed | Fault::Cut => {
                return Response::events([": wait\n\n"]).ending(Ending::Disconnect);
            }
            Fault::Stalled => {
                while *fault.lock().unwrap() == Fault::Stalled {
                    std::thread::sleep(Duration::from_millis(5));
                }
                return sends(Response::events([": wait\n\n"]).ending(Ending::Disconnect))(request);
            }
        }
        if request.raw.contains("\"name\":\"save_memory\"") {
            let entry = json!({ "history_entry": "[2026-01-02 03:04] They talked.", "memory_update": "- a fact" });
            return calls("save_memory", entry)(request);
        }
        let messages = request.messages();
        let is_user = |message: &&Value| message["role"] == "user";
        let question = messages.iter().rfind(is_user).map(|it| it["content"].to_string());
        let question = question.unwrap_or_default();
        // The process that reads a mail may have been killed.
        if question.contains("this mail cannot be read") {
            return says(GIVEN_UP[0])(request);
        }
        let is_answered = messages.last().is_some_and(|last| last["role"] == "tool");
        if question.contains("with a command") && !is_answered {
            return calls("exec", json!({ "command": "echo here; sleep 0.02" }))(request);
        }
        let word = question.rsplit("say ").next().unwrap_or_default();
        let is_part = |letter: &char| letter.is_ascii_alphanumeric() || *letter == '-';
        let word: String = word.chars().take_while(is_part).collect();
        says(&format!("You said {word}."))(request)
    })
}
