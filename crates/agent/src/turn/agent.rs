//! The configuration of a turn: the model, its tools, its guards.

use super::background::BackgroundTasks;
use crate::turn::guard::Guard;
use nanobot_base::message::token_estimate;
use nanobot_base::message::{Message, ToolSpec, UserMessage};
use nanobot_model::provider::{Provider, Request, Sampling, ToolChoice};
use nanobot_store::session::Session;
use nanobot_tool::Toolbox;
use serde_json::Value;

/// All that a turn needs apart from its session.
pub struct Agent<'a> {
    pub system: &'a str,
    pub provider: &'a dyn Provider,
    pub toolbox: &'a Toolbox,
    pub guards: &'a mut [Box<dyn Guard>],
    pub model: &'a str,
    pub sampling: &'a Sampling,
    /// The user's own instructions for the summary in a compaction.
    pub summary_instructions: Option<&'a str>,
    /// The format that the answer must satisfy.
    pub answer_format: Option<&'a dyn AnswerFormat>,
    /// The user's hooks.
    pub hooks: Option<&'a dyn TurnHooks>,
    /// The command that decides when the task is done.
    pub until: Option<&'a UntilCommand>,
    /// The background work, if the turn may have any.
    pub background: Option<&'a dyn BackgroundTasks>,
    /// Returns the next message that the user has for the running turn, with its label as its id.
    pub steering: Option<&'a dyn Fn() -> Option<UserMessage>>,
}

/// A command that decides when the task of a turn is done, by `--until`.
#[derive(Clone, Debug)]
pub struct UntilCommand {
    /// Its text, for a shell.
    pub command: String,
    /// Maximum number of answers.
    pub max_rounds: u32,
    /// True if the message is sent even if the command succeeds before it.
    pub is_forced: bool,
}

/// The required format of an answer.
pub trait AnswerFormat {
    /// The format as a JSON schema, for providers that support schemas.
    fn schema(&self) -> &Value;
    /// Extracts the answer from the model's text.
    ///
    /// # Errors
    /// Describes for the model why the text is not valid.
    fn check(&self, text: &str) -> Result<String, String>;
}

/// The user's hooks within a turn.
pub trait TurnHooks {
    /// Called with an answer. `rejections` is the number of answers of this turn that hooks have rejected.
    ///
    /// # Errors
    /// A hook rejects the answer. The error is the text of the message that asks the model again.
    fn check_answer(&self, text: &str, rejections: u32) -> Result<(), String>;

    /// Called before a compaction, with the user's instructions for it. Returns further instructions.
    ///
    /// # Errors
    /// A hook forbids the compaction. The error is a phrase for the user.
    fn before_compaction(
        &self,
        is_automatic: bool,
        instructions: Option<&str>,
    ) -> Result<Option<String>, String>;
}

/// Estimates the tokens of a tool's definition.
pub fn tool_tokens(spec: &ToolSpec) -> u64 {
    token_estimate::for_text(&spec.name)
        + token_estimate::for_text(&spec.description)
        + token_estimate::for_text(spec.parameters.as_json())
}

impl Agent<'_> {
    /// Estimates the tokens of a request with `messages` apart from these.
    pub(crate) fn overhead_tokens(&self, messages: &[Message]) -> u64 {
        let tools: u64 = self.toolbox.requested_specs(messages).iter().map(tool_tokens).sum();
        token_estimate::for_text(self.system) + tools
    }

    /// Records the origin of the conversation in its session.
    pub fn record_origin(&self, session: &mut Session) {
        let origin = self.toolbox.origin(session.messages(), session.turn_messages());
        if let Some((origin, content)) = origin {
            session.record_origin(origin, &content);
        }
    }

    /// Builds the request without sending it, so that it can also be inspected. `tools` are those that the messages request.
    pub(crate) fn build_request<'a>(
        &'a self,
        messages: &'a [Message],
        tools: &'a [ToolSpec],
        may_call: bool,
        reply_id: &'a str,
    ) -> Request<'a> {
        let Self {
            system,
            toolbox: _,
            model,
            sampling,
            summary_instructions: _,
            answer_format,
            provider: _,
            guards: _,
            background: _,
            hooks: _,
            until: _,
            steering: _,
        } = self;
        Request {
            system,
            messages,
            tools,
            tool_choice: if may_call { ToolChoice::Auto } else { ToolChoice::None },
            model,
            sampling,
            reply_id,
            schema: answer_format.map(AnswerFormat::schema),
        }
    }
}
