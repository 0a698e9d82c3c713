//! The interface of hooks around tool calls. A hook can forbid a call, change its arguments, ask for approval, and add
//! comments to the result. It cannot allow what the policy forbids: the policy decides after the hooks, on the changed arguments.

use super::call_result::{ToolError, ToolOutput};
use nanobot_base::message::{MessagePart, ToolCall};
use nanobot_config::policy::Refusal;
use serde_json::Value;
use std::time::Duration;

/// Runs the user's hooks around tool calls.
pub trait CallHooks: Send + Sync {
    /// Called before the policy decides. `check` casts arguments to the tool's schema and checks them.
    ///
    /// # Errors
    /// A hook forbids the call, or the arguments from a hook do not satisfy the schema.
    fn before_call(
        &self,
        call: &ToolCall,
        arguments: &Value,
        check: &dyn Fn(&Value) -> Result<Value, String>,
    ) -> Result<CallAmendment, ToolError>;

    /// Called after the tool has run, with its result.
    fn after_call(
        &self,
        call: &ToolCall,
        arguments: &Value,
        executed: &ExecutedCall<'_>,
    ) -> ResultAmendment;
}

/// The changes that hooks made to a call.
#[derive(Debug, Default)]
pub struct CallAmendment {
    /// The arguments that replace the model's.
    pub arguments: Option<Value>,
    /// Text for the model, which follows the result.
    pub comments: Vec<String>,
    /// The reason why the user must approve the call: the text of the question, and of the denial if there is no user.
    pub refusal_unless_approved: Option<Refusal>,
}

/// An executed call, in the form that hooks receive.
#[derive(Clone, Copy, Debug)]
pub struct ExecutedCall<'a> {
    pub text: &'a str,
    pub failed: bool,
    pub duration: Duration,
}

/// The changes of a result by hooks.
#[derive(Debug, Default)]
pub struct ResultAmendment {
    /// The text that replaces the result.
    pub output: Option<String>,
    /// Text for the model, which follows the result.
    pub comments: Vec<String>,
}

impl ResultAmendment {
    /// Applies the changes to the result of a call.
    pub(super) fn apply(self, result: &mut Result<ToolOutput, ToolError>) {
        let Self { output, comments } = self;
        if let Err(ToolError::NothingRead(text)) = result
            && (output.is_some() || !comments.is_empty())
        {
            // It is no longer the text of this program alone.
            *result = Err(ToolError::Failed(std::mem::take(text)));
        }
        let replace = |parts: &mut Vec<MessagePart>| {
            if let Some(text) = output {
                *parts = vec![MessagePart::Text(text)];
            }
            parts.extend(comments.into_iter().map(MessagePart::Text));
        };
        match result {
            Ok(output) => replace(&mut output.parts),
            Err(
                ToolError::Failed(text)
                | ToolError::Declined(text)
                | ToolError::DeniedDuringCall { refusal: Refusal { message: text, .. }, .. },
            ) => {
                let mut parts = vec![MessagePart::Text(std::mem::take(text))];
                replace(&mut parts);
                *text = nanobot_base::message::plain_text(&parts);
            }
            Err(ToolError::NothingRead(_) | ToolError::Denied(_) | ToolError::Rejected(_)) => {}
        }
    }
}
