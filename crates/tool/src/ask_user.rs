//! The `ask_user` tool: asks the user a question. It exists only in interactive conversations; in any
//! other run the model must decide by itself, since no user can answer.

use super::function_tool::FunctionTool;
use super::{Approval, ApprovalRequest, CallEffect, ToolError, ToolOutput};
use nanobot_base::message::{ToolSpec, without_blanks};
use nanobot_config::policy::tool_names::ASK_USER;
use serde_json::Value;
use std::sync::Arc;

/// The user of the REPL or of an editor.
pub trait UserPrompt: Send + Sync {
    /// Asks `question` and returns the answer: one of `options` if there are any, or free text.
    ///
    /// # Errors
    /// The user did not answer.
    fn answer(&self, question: &str, options: &[String]) -> Result<String, ToolError>;

    /// Asks the user to approve a call.
    ///
    /// # Errors
    /// The user declined, with their reason if they gave one.
    fn approve(&self, request: &ApprovalRequest<'_>) -> Result<Approval, ToolError>;
}

/// Builds the `ask_user` tool. It is treated as a write, so that two questions are asked one after the other.
pub fn tool(prompt: Arc<dyn UserPrompt>) -> FunctionTool {
    FunctionTool::new(spec(), CallEffect::Writes, move |arguments| ask(&*prompt, arguments))
}

/// Returns the definition of the tool.
pub fn spec() -> ToolSpec {
    let parameters = const {
        &without_blanks(
            br#"{ "type": "object", "required": ["question"], "properties": {
        "question": { "type": "string", "minLength": 1 },
        "options": { "type": "array", "maxItems": 9, "items": { "type": "string" },
                     "description": "Suggested answers; another answer is possible" }
    } }"#,
        )
    };
    let description =
        "Ask the user one question and wait for the answer; only for decisions they must make";
    ToolSpec::new(ASK_USER, description, parameters)
}

fn ask(prompt: &dyn UserPrompt, arguments: &Value) -> Result<ToolOutput, ToolError> {
    let question = arguments["question"].as_str().unwrap_or_default();
    let options = arguments["options"].as_array().map_or(&[][..], Vec::as_slice);
    let options: Vec<String> =
        options.iter().filter_map(|option| option.as_str().map(str::to_owned)).collect();
    Ok(prompt.answer(question, &options)?.into())
}
