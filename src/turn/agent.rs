//! Whom a turn is run with: the model, its tools, its guards.

use super::beside::Beside;
use crate::message::Message;
use crate::message::ToolSpec;
use crate::message::token_estimate;
use crate::provider::{Calls, Provider, Request, Sampling};
use crate::tool::Toolbox;
use crate::turn::guard::Guard;
use serde_json::Value;

/// All that a turn needs besides its conversation.
pub struct Agent<'a> {
    pub system: &'a str,
    pub provider: &'a dyn Provider,
    pub toolbox: &'a Toolbox,
    pub guards: &'a mut [Box<dyn Guard>],
    pub model: &'a str,
    pub sampling: &'a Sampling,
    /// What the answer is to satisfy.
    pub answer: Option<&'a dyn Answer>,
    /// What goes on beside the turn, where something may.
    pub beside: Option<&'a dyn Beside>,
}

/// What an answer must be.
pub trait Answer {
    /// As a JSON schema, for providers that can be told.
    fn schema(&self) -> &Value;
    /// The answer within what the model said.
    ///
    /// # Errors
    /// In words for the model: what is wrong with it.
    fn check(&self, text: &str) -> Result<String, String>;
}

/// Tokens of what the model is told of a tool, by our estimate.
pub fn weight_of(spec: &ToolSpec) -> u64 {
    token_estimate::of_text(&spec.name)
        + token_estimate::of_text(&spec.description)
        + token_estimate::of_value(&spec.parameters)
}

impl Agent<'_> {
    /// Tokens of what is sent besides the messages, by our estimate.
    pub fn weight(&self) -> u64 {
        let tools: u64 = self.toolbox.specs().iter().map(weight_of).sum();
        token_estimate::of_text(self.system) + tools
    }

    /// What is asked, as a value: whoever wants to see it without asking, can.
    pub fn request<'a>(
        &'a self,
        messages: &'a [Message],
        may_call: bool,
        reply_id: &'a str,
    ) -> Request<'a> {
        let Self {
            system,
            toolbox,
            model,
            sampling,
            answer,
            provider: _,
            guards: _,
            beside: _,
        } = self;
        Request {
            system,
            messages,
            tools: toolbox.specs(),
            calls: match may_call {
                true => Calls::May,
                false => Calls::MayNot,
            },
            model,
            sampling,
            reply_id,
            schema: answer.map(Answer::schema),
        }
    }
}
