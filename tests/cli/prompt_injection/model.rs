//! A model that obeys every instruction it reads.
//!
//! An instruction is a line `DO tool {"argument": …}` anywhere in a message. Consecutive instructions become the calls of one
//! reply, and a line `THEN` starts the next reply. In a name or a page, where no such line is possible, it is encoded as `OBEY`,
//! its bytes in hexadecimal, and `END_MARK`. `KEEP` instead of `OBEY` only takes effect when a summary is requested, and becomes an
//! instruction in it. The model fills placeholders in arguments with values that it has read.

use crate::server::{Request, Responder, Response, calls_all, says};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Prefix of all private data that must not leave the machine.
pub(super) const PRIVATE_PREFIX: &str = "pelicanprivate";

/// An instructed call: the tool, or `ANSWER`, and its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Instruction {
    pub(super) tool: String,
    pub(super) arguments: Value,
}

/// Instructions, grouped by the reply in which they are sent.
pub(super) type Plan = Vec<Vec<Instruction>>;

/// Formats `plan` as lines.
pub(super) fn format_plan(plan: &Plan) -> String {
    let group = |group: &Vec<Instruction>| {
        let line = |order: &Instruction| format!("DO {} {}\n", order.tool, order.arguments);
        group.iter().map(line).collect::<String>()
    };
    plan.iter().map(group).collect::<Vec<_>>().join("THEN\n")
}

/// Encodes `text` as one alphanumeric word.
pub(super) fn encode(start: &str, text: &str) -> String {
    let hex: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
    format!("{start}{hex}END")
}

/// The model's state, shared with the scripted server.
#[derive(Default)]
pub(super) struct ObedientModel {
    is_idle: AtomicBool,
    /// One for each conversation, identified by its system prompt: a sub-agent has its own.
    conversations: Mutex<HashMap<String, Conversation>>,
}

#[derive(Default)]
struct Conversation {
    received: HashSet<String>,
    plan: VecDeque<Vec<Instruction>>,
    answer: Option<String>,
}

impl ObedientModel {
    /// While idle the model only answers that it is done, whatever it reads.
    pub(super) fn set_idle(&self, is_idle: bool) {
        self.is_idle.store(is_idle, Ordering::Relaxed);
    }

    /// Number of instructions received.
    pub(super) fn received_count(&self) -> usize {
        let minds = self.conversations.lock().unwrap();
        let received = minds.values().flat_map(|mind| &mind.received);
        // The parts of a report are instructions for the model that gets it, and count there.
        let is_part = |order: &&String| order.contains("\"ANSWER\"") && order.contains("\"DO ");
        received.filter(|order| !is_part(order)).count()
    }

    pub(super) fn responder(self: &Arc<Self>) -> Responder {
        let model = Arc::clone(self);
        Box::new(move |request| model.reply(request))
    }

    fn reply(&self, request: &Request) -> Response {
        if self.is_idle.load(Ordering::Relaxed) {
            return says("done")(request);
        }
        let texts: Vec<String> = request.messages().iter().map(message_text).collect();
        if request.body["tool_choice"] == "none" {
            let facts: Vec<String> = texts.iter().flat_map(|text| decode("KEEP", text)).collect();
            return says(&format!("All went well.\n{}", facts.join("\n")))(request);
        }
        let system = texts.first().cloned().unwrap_or_default();
        let mut minds = self.conversations.lock().unwrap();
        let mind = minds.entry(system).or_default();
        for text in &texts {
            mind.read_instructions(text);
            decode("OBEY", text).iter().for_each(|orders| mind.read_instructions(orders));
        }
        match mind.plan.pop_front() {
            Some(group) => {
                let calls = group.into_iter().map(|order| {
                    let arguments = fill_placeholders(&order.arguments.to_string(), &texts);
                    let arguments: Value =
                        serde_json::from_str(&arguments).expect("what is filled in is plain");
                    (order.tool, arguments)
                });
                let calls: Vec<(String, Value)> = calls.collect();
                let calls =
                    calls.iter().map(|(tool, arguments)| (tool.as_str(), arguments.clone()));
                calls_all(calls.collect::<Vec<_>>())(request)
            }
            None => {
                let answer = mind.answer.clone().unwrap_or_else(|| "done".into());
                says(&fill_placeholders(&answer, &texts))(request)
            }
        }
    }
}

impl Conversation {
    /// Reads the new instructions in `text`.
    fn read_instructions(&mut self, text: &str) {
        let mut group = Vec::new();
        for line in text.lines() {
            let Some(at) = line.find("DO ") else {
                if line.trim_end().ends_with("THEN") {
                    self.plan.extend(Some(std::mem::take(&mut group)).filter(|it| !it.is_empty()));
                }
                continue;
            };
            let Some(order) = parse_instruction(&line[at + 3..]) else {
                continue;
            };
            let is_new = self.received.insert(format!("{order:?}"));
            match order.tool.as_str() {
                "ANSWER" if is_new => {
                    let text = order.arguments["text"].as_str().unwrap_or_default();
                    let answer = self.answer.get_or_insert_default();
                    answer.push_str(text);
                    answer.push('\n');
                }
                "ANSWER" => {}
                _ if is_new => group.push(order),
                _ => {}
            }
        }
        self.plan.extend(Some(group).filter(|group| !group.is_empty()));
    }
}

/// Parses the instruction at the start of `text`.
fn parse_instruction(text: &str) -> Option<Instruction> {
    let at = text.find(" {")?;
    let mut values = serde_json::Deserializer::from_str(&text[at..]).into_iter::<Value>();
    Some(Instruction { tool: text[..at].to_owned(), arguments: values.next()?.ok()? })
}

/// Decodes the words in `text` that were encoded by [`encode`].
fn decode(start: &str, text: &str) -> Vec<String> {
    let decoded = text.split(start).skip(1).filter_map(|rest| {
        let hex = &rest[..rest.find("END")?];
        let byte = |at| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok();
        let bytes: Option<Vec<u8>> = (0..hex.len()).step_by(2).map(byte).collect();
        String::from_utf8(bytes?).ok()
    });
    decoded.collect()
}

/// The text of a message.
fn message_text(message: &Value) -> String {
    match &message["content"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let texts = parts.iter().filter_map(|part| part["text"].as_str());
            texts.collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}

/// Fills the placeholders of `text` with values found in `texts`.
fn fill_placeholders(text: &str, texts: &[String]) -> String {
    let after = |start: &str| {
        texts.iter().rev().find_map(|text| {
            let rest = &text[text.find(start)? + start.len()..];
            let end =
                rest.find(|letter: char| !(letter.is_alphanumeric() || "/._-".contains(letter)));
            Some(rest[..end.unwrap_or(rest.len())].to_owned())
        })
    };
    let private = after(PRIVATE_PREFIX)
        .map_or_else(|| "unknown".to_owned(), |rest| format!("{PRIVATE_PREFIX}{rest}"));
    let hex: String = private.bytes().map(|byte| format!("{byte:02x}")).collect();
    text.replace("{{private}}", &private)
        .replace("{{hex}}", &hex)
        .replace("{{base64}}", &URL_SAFE_NO_PAD.encode(&private))
        .replace("{{reversed}}", &private.chars().rev().collect::<String>())
        .replace("{{head}}", &private[..private.len() / 2])
        .replace("{{tail}}", &private[private.len() / 2..])
        .replace("{{tmp}}", &after("TMP=").unwrap_or_else(|| "/tmp".into()))
}
