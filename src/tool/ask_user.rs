//! `ask_user`: a question to the person at the terminal. There is one in a conversation only: everywhere else nobody can
//! answer while the model works, and it has to settle what it can.

use super::{Case, Effect, Failure, Output, Tool};
use crate::message::ToolSpec;
use serde_json::{Value, json};
use std::sync::Arc;

/// Who sits at the terminal.
pub trait Person: Send + Sync {
    /// What they say to `question`; with `options` one of these, or words of their own.
    ///
    /// # Errors
    /// They do not answer.
    fn answer(&self, question: &str, options: &[String]) -> Result<String, Failure>;

    /// Whether a call may be made.
    ///
    /// # Errors
    /// No; in their words, where they have some.
    fn judge(&self, case: &Case<'_>) -> Result<(), Failure>;
}

/// Asks.
pub struct AskUser {
    spec: ToolSpec,
    person: Arc<dyn Person>,
}

impl AskUser {
    pub fn new(person: Arc<dyn Person>) -> Self {
        let spec = ToolSpec {
            name: "ask_user".into(),
            description:
                "Ask the user one question and wait for the answer; for what only they can decide"
                    .into(),
            parameters: json!({ "type": "object", "required": ["question"], "properties": {
                "question": { "type": "string", "minLength": 1 },
                "options": { "type": "array", "maxItems": 9, "items": { "type": "string" },
                             "description": "Answers to choose from; they may say something else" },
            } }),
        };
        Self { spec, person }
    }
}

impl Tool for AskUser {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    /// Two questions come one after the other.
    fn effect(&self, _: &Value) -> Effect {
        Effect::Writes
    }

    fn run(&self, arguments: &Value, _: &mut dyn FnMut(&str)) -> Result<Output, Failure> {
        let question = arguments["question"].as_str().unwrap_or_default();
        let options = arguments["options"]
            .as_array()
            .map_or(&[][..], Vec::as_slice);
        let options: Vec<String> = options
            .iter()
            .filter_map(|option| option.as_str().map(str::to_owned))
            .collect();
        Ok(self.person.answer(question, &options)?.into())
    }
}
