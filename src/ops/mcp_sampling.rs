//! Sampling: answers requests of MCP servers with the model of the turn whose call is in progress, within its budget. Such a request is
//! untrusted content: the model gets it without our tools, our prompt and the conversation, and only the server gets the reply.

use crate::ops::approval_text::SAMPLING;
use crate::ops::context::Context;
use crate::ops::model::{self, ModelHandle};
use anyhow::Result;
use nanobot_base::json_rpc::ErrorObject;
use nanobot_base::message::{FinishReason, Message, MessagePart, Reply, Usage, UserMessage};
use nanobot_base::message::{plain_text, token_estimate};
use nanobot_config::policy::Refusal;
use nanobot_config::policy::file_scope::FileScope;
use nanobot_config::settings::Settings;
use nanobot_config::settings::servers::{self, SamplingMode};
use nanobot_mcp::client::sampling::{
    SampledReply, Sampler, SamplingMessage, SamplingRequest, rejected,
};
use nanobot_mcp::protocol::ContentPart;
use nanobot_model::provider::{Delta, FailureKind, ProviderError, Request, Sampling, ToolChoice};
use nanobot_os::secret::random_hex;
use nanobot_tool::ApprovalRequest;
use nanobot_tool::ask_user::UserPrompt;
use nanobot_tool::attach::{self, AttachOptions, AttachmentOrigin};
use nanobot_tool::mcp::ChargedSampler;
use parking_lot::Mutex;
use serde_json::json;
use std::sync::{Arc, OnceLock};

/// The beginning of the system prompt, before the server's own.
const SYSTEM_PROMPT: &str = "You answer a request of a program, an MCP server. You have no tools, no files and no \
                             earlier conversation. Your reply goes to that program alone.";

/// The model of a turn, for the servers that its tools call.
pub(crate) struct TurnSampler {
    ctx: Context,
    settings: Settings,
    /// Approves requests; `None` in unattended runs.
    user_prompt: Option<Arc<dyn UserPrompt>>,
    /// Set when the turn begins. Until then there is no model.
    model: OnceLock<ModelHandle>,
    charges: Mutex<Vec<(Usage, Option<f64>)>>,
}

impl TurnSampler {
    /// Creates the sampler of a turn, if any server may use its model.
    pub(crate) fn new(
        ctx: &Context,
        settings: &Settings,
        user_prompt: Option<Arc<dyn UserPrompt>>,
    ) -> Option<Arc<Self>> {
        let mut servers = settings.servers.iter();
        servers.find(|server| !server.is_disabled && server.sampling != SamplingMode::Off)?;
        Some(Arc::new(Self {
            ctx: ctx.clone(),
            settings: settings.clone(),
            user_prompt,
            model: OnceLock::new(),
            charges: Mutex::default(),
        }))
    }

    /// Sets the model when the turn begins.
    pub(crate) fn set_model(&self, model: &ModelHandle) {
        self.model.get_or_init(|| model.clone());
    }

    /// The sampler of a sub-agent. It has a model of its own, and cannot ask the user.
    pub(crate) fn for_subagent(&self, model: &ModelHandle, settings: &Settings) -> Self {
        Self {
            ctx: self.ctx.clone(),
            settings: settings.clone(),
            user_prompt: None,
            model: OnceLock::from(model.clone()),
            charges: Mutex::default(),
        }
    }

    /// Asks the user, if the server's config says so.
    fn require_consent(&self, server: &str, request: &SamplingRequest) -> Result<(), ErrorObject> {
        let mut servers = self.settings.servers.iter();
        let config = servers.find(|config| config.name == server);
        match config.map(|config| config.sampling).unwrap_or_default() {
            SamplingMode::On => return Ok(()),
            SamplingMode::Off => return Err(rejected("this server may not use the model")),
            SamplingMode::Ask => {}
        }
        let Some(prompt) = &self.user_prompt else {
            return Err(rejected(
                "its user has to approve each request to the model, and cannot be asked in this run",
            ));
        };
        let messages = request.messages.iter().map(describe_message);
        let messages = messages.collect::<Vec<_>>().join("\n");
        let arguments = match &request.system {
            Some(system) => json!({ "server": server, "system": system, "messages": messages }),
            None => json!({ "server": server, "messages": messages }),
        };
        let key = servers::quoted_key(server, &["sampling"]);
        let refusal = Refusal {
            message: "the server wants the model to answer this, at your cost".into(),
            suggested_flag: Some(format!("nanobot config set {key} on")),
            names_flag: false,
        };
        let approval = prompt.approve(&ApprovalRequest {
            tool: SAMPLING,
            arguments: &arguments,
            refusal: &refusal,
            is_retry: false,
            withheld: &[],
            file_scope: &FileScope::default(),
        });
        approval.map(drop).map_err(|_| rejected("the user declined"))
    }

    /// Converts a message of the request. Images are converted to a form that the model takes.
    fn to_message(
        &self,
        server: &str,
        message: &SamplingMessage,
        number: usize,
    ) -> Result<Message, ErrorObject> {
        let parts = message
            .parts
            .iter()
            .map(|part| match part {
                ContentPart::Text(text) => Ok(MessagePart::Text(text.clone())),
                ContentPart::Image { bytes, .. } => self.to_image(server, bytes),
                _ => Err(ErrorObject::invalid_params("content is text or an image")),
            })
            .collect::<Result<Vec<_>, ErrorObject>>()?;
        let id = format!("sampling-{number}");
        if !message.is_assistant {
            let user = UserMessage { id, parts, ..UserMessage::default() };
            return Ok(Message::User(user));
        }
        let is_text = |part: &MessagePart| matches!(part, MessagePart::Text(_));
        if parts.iter().all(is_text) {
            Ok(Message::Assistant(Reply { id, text: plain_text(&parts), ..Reply::default() }))
        } else {
            Err(ErrorObject::invalid_params("a message of the assistant has an image"))
        }
    }

    fn to_image(&self, server: &str, bytes: &[u8]) -> Result<MessagePart, ErrorObject> {
        let (accepts, image_limits) = model::accepted_attachments(&self.ctx, &self.settings);
        let env = &self.ctx.env;
        let options = AttachOptions { accepts, image_limits, network: None, transcribe: None, env };
        let origin = AttachmentOrigin::Page(server);
        match attach::media_part(bytes, origin, &options, &mut |_| {}) {
            Ok(Some(image @ MessagePart::Image(_))) => Ok(image),
            Ok(_) => Err(ErrorObject::invalid_params("an image has no known format")),
            Err(_) if !accepts.images => {
                Err(ErrorObject::invalid_params("the model takes no images"))
            }
            Err(_) => Err(ErrorObject::invalid_params("an image cannot be used")),
        }
    }

    /// The parameters of the request to `model`, with the output that fits beside an input of `input_tokens`.
    ///
    /// # Errors
    /// The input alone is too long.
    fn sampling(
        &self,
        model: &ModelHandle,
        input_tokens: u64,
        request: &SamplingRequest,
    ) -> Result<Sampling, ErrorObject> {
        let mut sampling = model::sampling(&self.settings.models[0], model.context_tokens);
        let max_tokens = sampling.max_tokens.min(request.max_tokens);
        sampling.max_tokens = fitting_output_tokens(model.context_tokens, input_tokens, max_tokens)
            .ok_or_else(|| ErrorObject::invalid_params("the request is too long for the model"))?;
        sampling.temperature = request.temperature.or(sampling.temperature);
        Ok(sampling)
    }

    /// Sends the request to `model`.
    fn ask_model(
        &self,
        model: &ModelHandle,
        system: &str,
        messages: &[Message],
        sampling: &Sampling,
    ) -> Result<Reply, ErrorObject> {
        let mut charges = Vec::new();
        let result = model.provider.reply(
            &Request {
                system,
                messages,
                tools: &[],
                tool_choice: ToolChoice::Auto,
                model: &model.model,
                sampling,
                reply_id: &format!("sampling-{}", random_hex(4)),
                schema: None,
            },
            &mut |delta| {
                match delta {
                    Delta::Charged { usage, cost } => charges.push((usage, cost)),
                    Delta::Notice(text) => log::warn!(target: "mcp", "{text}"),
                    _ => {}
                }
                Ok(())
            },
        );
        charges.extend(result.iter().map(|reply| (reply.usage, reply.cost)));
        self.charges.lock().extend(charges);
        result.map_err(|error| {
            log::warn!(target: "mcp", "the model did not answer a server: {error}");
            to_answer(&error)
        })
    }
}

/// The output, in tokens, that fits beside the input, up to `max_tokens`; `None` if there is no space for any.
fn fitting_output_tokens(context_tokens: u32, input_tokens: u64, max_tokens: u32) -> Option<u32> {
    let free_tokens = u64::from(context_tokens).saturating_sub(input_tokens);
    let free_tokens = u32::try_from(free_tokens).ok().filter(|tokens| *tokens > 0)?;
    Some(free_tokens.min(max_tokens))
}

/// A message of a request, for the user who approves it.
fn describe_message(message: &SamplingMessage) -> String {
    let role = if message.is_assistant { "assistant" } else { "user" };
    let parts = message.parts.iter().map(|part| match part {
        ContentPart::Text(text) => text.as_str(),
        _ => "[image]",
    });
    format!("{role}: {}", parts.collect::<Vec<_>>().join("\n"))
}

/// The error for the server. It does not quote the provider, whose message may contain private data.
fn to_answer(error: &ProviderError) -> ErrorObject {
    match error {
        ProviderError::BudgetExceeded(_) => rejected("the budget for the model is used up"),
        ProviderError::Failed { kind: FailureKind::ContextExceeded, .. } => {
            ErrorObject::invalid_params("the request is too long for the model")
        }
        ProviderError::Aborted(_) => rejected("the call has ended"),
        ProviderError::Failed { .. } => ErrorObject::failure("the model did not answer"),
    }
}

impl Sampler for TurnSampler {
    fn sample(&self, server: &str, request: &SamplingRequest) -> Result<SampledReply, ErrorObject> {
        let Some(model) = self.model.get() else {
            return Err(rejected("the call is not part of a turn, so there is no model"));
        };
        let mut messages = Vec::new();
        for (number, message) in request.messages.iter().enumerate() {
            messages.push(self.to_message(server, message, number)?);
        }
        let system = match &request.system {
            Some(system) => format!("{SYSTEM_PROMPT}\n\n{system}"),
            None => SYSTEM_PROMPT.to_owned(),
        };
        let input_tokens =
            token_estimate::for_text(&system) + token_estimate::for_messages(&messages);
        let sampling = self.sampling(model, input_tokens, request)?;
        // The user is asked last, and only about a request that the model can get.
        self.require_consent(server, request)?;
        let reply = self.ask_model(model, &system, &messages, &sampling)?;
        if reply.text.trim().is_empty() {
            return Err(ErrorObject::failure("the model returned an empty reply"));
        }
        if matches!(reply.finish_reason, FinishReason::Refusal | FinishReason::Other(_)) {
            return Err(ErrorObject::failure("the model did not complete its reply"));
        }
        Ok(SampledReply {
            is_cut: reply.finish_reason == FinishReason::Length,
            model: if reply.model.is_empty() { model.model.clone() } else { reply.model },
            text: reply.text,
        })
    }
}

impl ChargedSampler for TurnSampler {
    fn take_charges(&self) -> Vec<(Usage, Option<f64>)> {
        std::mem::take(&mut self.charges.lock())
    }
}

#[cfg(test)]
mod tests {
    use super::fitting_output_tokens;

    #[test]
    fn output_gets_the_space_beside_the_input() {
        assert_eq!(fitting_output_tokens(8192, 4200, 4096), Some(3992));
        assert_eq!(fitting_output_tokens(8192, 100, 4096), Some(4096));
        assert_eq!(fitting_output_tokens(8192, 8191, 4096), Some(1));
        assert_eq!(fitting_output_tokens(8192, 8192, 4096), None);
        assert_eq!(fitting_output_tokens(8192, u64::MAX, 4096), None);
    }
}
