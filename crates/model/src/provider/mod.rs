//! Model requests: the [`Provider`] trait with its one method, and its request and reply types.
//!
//! Each wire format is a pair of translations without I/O around one HTTP exchange. Retries, recording and replay are wrappers
//! around any provider. Sessions, tool implementations and terminals are left to other modules.

use nanobot_base::error::{
    Exit, NextStep, UserAction, WithHint, fail, fail_with_parts, fail_with_step,
};
use nanobot_base::event::Event;
use nanobot_base::message::{Message, Reply, ToolSpec, Usage};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

pub mod anthropic;
pub mod base_address;
mod body_text;
pub mod budget;
mod cassette;
pub mod chat;
pub mod cloud;
mod code_spans;
pub mod context_window;
pub mod credentials;
pub mod demo;
mod error_response;
mod failure_kind;
pub mod fallback;
mod finish_reason;
pub mod hour_cache;
pub mod http_provider;
pub mod login;
pub mod native_search;
pub mod path_names;
pub mod quirks;
pub mod rate_limit;
pub mod recording;
pub mod redact;
pub mod registry;
pub mod replay;
mod reply_draft;
mod reply_source;
pub mod request_body;
mod response;
pub mod responses;
pub mod retry;
mod split_surrogates;
mod text_event;
pub mod think_tags;
mod tool_call_ids;
mod tool_call_repair;
pub mod tool_choice_fallback;
pub mod wire_format;
mod written_calls;

/// A source of replies to a conversation: a model's server, a recording, or a wrapper.
pub trait Provider: Send + Sync {
    /// Sends one request. Passes pieces of the reply to `on_delta` as they arrive; an error from `on_delta` ends the exchange
    /// as [`ProviderError::Aborted`].
    fn reply(&self, request: &Request<'_>, on_delta: &mut DeltaSink<'_>) -> ProviderResult<Reply>;
}

impl<P: Provider + ?Sized> Provider for Arc<P> {
    fn reply(&self, request: &Request<'_>, on_delta: &mut DeltaSink<'_>) -> ProviderResult<Reply> {
        (**self).reply(request, on_delta)
    }
}

/// The callback that receives the pieces of a reply as they arrive.
pub type DeltaSink<'a> = dyn FnMut(Delta<'_>) -> anyhow::Result<()> + 'a;

/// One request to a model. It borrows its parts and is built anew for each exchange.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    pub system: &'a str,
    pub messages: &'a [Message],
    pub tools: &'a [ToolSpec],
    pub tool_choice: ToolChoice<'a>,
    pub model: &'a str,
    pub sampling: &'a Sampling,
    /// The id to give to the reply.
    pub reply_id: &'a str,
    /// The JSON schema for the final answer. Formats that cannot express it rely on the text of the messages.
    pub schema: Option<&'a Value>,
}

/// The tool choice: may the reply call tools?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolChoice<'a> {
    /// Tool calls are allowed.
    Auto,
    /// Tool calls are forbidden. The tool specs are still sent, to keep the prompt prefix unchanged.
    None,
    /// The named tool must be called. If the server or the model does not support that, calls are merely allowed.
    Required(&'a str),
}

/// Parameters of the model's reply.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sampling {
    /// Limit of the reply, in tokens, at least 1.
    pub max_tokens: u32,
    /// 0 to 2; `None` leaves it to the provider.
    pub temperature: Option<f64>,
    /// `minimal`, `low`, `medium`, `high` or another value that the model accepts.
    pub reasoning_effort: Option<String>,
    /// `low`, `medium` or `high`; not sent in Anthropic's format, which has no such field.
    pub verbosity: Option<String>,
}

/// A piece of a streamed reply, or an event of the exchange.
#[derive(Clone, Copy, Debug)]
pub enum Delta<'a> {
    Text(&'a str),
    Reasoning(&'a str),
    /// The exchange failed, and restarts after `wait`: earlier pieces are void. `attempt` counts from 1.
    Retry {
        attempt: u32,
        wait: Duration,
        cause: &'a str,
    },
    /// The model is unavailable, and a fallback model is used: earlier pieces are void.
    Fallback {
        from: &'a str,
        to: &'a str,
        cause: &'a str,
    },
    /// The request waits until others have ended, or for `wait` if that is known.
    Wait {
        wait: Option<Duration>,
        cause: &'a str,
    },
    /// A failed request may be charged: its estimated usage, and the cost in US dollars if the price is known.
    Charged {
        usage: Usage,
        cost: Option<f64>,
    },
    /// A remark about the exchange that is not a failure.
    Notice(&'a str),
}

impl<'a> Delta<'a> {
    /// True if it is a piece of the reply.
    pub(crate) fn is_piece(&self) -> bool {
        matches!(self, Self::Text(_) | Self::Reasoning(_))
    }

    /// The corresponding event of the turn. `message_id` is the id of the reply.
    pub fn into_event(self, message_id: &'a str) -> Event<'a> {
        match self {
            Self::Text(text) => Event::Text { message_id, text },
            Self::Reasoning(text) => Event::Reasoning { message_id, text },
            Self::Retry { attempt, wait, cause } => Event::Retry { attempt, wait, cause },
            Self::Fallback { from, to, cause } => Event::Fallback { from, to, cause },
            Self::Wait { wait, cause } => Event::Wait { wait, cause },
            Self::Charged { usage, cost } => Event::Usage { message_id, usage, cost },
            Self::Notice(text) => Event::Notice(text),
        }
    }
}

/// The result of a request.
pub type ProviderResult<T> = Result<T, ProviderError>;

/// The failure of a request.
#[derive(Debug, thiserror::Error)]
pub enum ProviderError {
    /// The server or the connection to it failed.
    #[error("{message}")]
    Failed {
        kind: FailureKind,
        message: String,
        /// The delay before a retry that the server has named.
        retry_after: Option<Duration>,
    },
    /// A budget forbids the request, or the ledger that it depends on cannot be read.
    #[error("{0}")]
    BudgetExceeded(anyhow::Error),
    /// The exchange ended on our side: its receiver or a signal cancelled it, there is no usable key, or a recording does
    /// not fit. Holds the error that ends the run.
    #[error(transparent)]
    Aborted(anyhow::Error),
}

/// The kind of a failure, which decides what callers do. Recordings have its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// Rate limit or overload.
    Busy,
    /// No connection, a broken or silent connection, or a conflict that passes.
    Unavailable,
    /// An error of the server itself (5xx). It is down, or something in the conversation makes it fail.
    ServerFailed,
    /// The response broke off before it was complete. The partial response is charged.
    Interrupted,
    /// The conversation exceeds the model's context window.
    ContextExceeded,
    /// The key is missing or wrong, or lacks permission.
    KeyRejected,
    /// The account has no credit left, or no way to pay.
    OutOfCredit,
    /// The server forbids the request and does not say why: it may be the key or the content.
    Forbidden,
    /// The server rejects this request; a retry is pointless.
    Refused,
    /// The model does not take what the conversation contains, such as an image, or moderation flags it. Another model
    /// may take it.
    NotAccepted,
    /// The model does not exist.
    #[serde(rename = "not_found")]
    ModelNotFound,
    /// The server says that there is no such API at the address.
    NoSuchAddress,
}

/// The degree to which the last message of a conversation may be the cause of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageFault {
    /// The message is not the cause: another cause is known.
    None,
    /// The server failed. The message is the cause if it fails again while others succeed.
    Possible,
    /// The server refused the request and named no other cause. Any request with this message fails.
    Assumed,
}

impl ProviderError {
    /// A failure without a delay named by the server.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self::Failed { kind, message: message.into(), retry_after: None }
    }

    /// The kind of the failure; `None` if no server has failed.
    pub fn kind(&self) -> Option<FailureKind> {
        match self {
            Self::Failed { kind, .. } => Some(*kind),
            Self::BudgetExceeded(_) | Self::Aborted(_) => None,
        }
    }

    /// The degree to which the last message may be the cause of this failure.
    pub fn message_fault(&self) -> MessageFault {
        match self.kind() {
            Some(
                FailureKind::ContextExceeded
                | FailureKind::Forbidden
                | FailureKind::Refused
                | FailureKind::NotAccepted
                | FailureKind::NoSuchAddress,
            ) => MessageFault::Assumed,
            Some(FailureKind::ServerFailed) => MessageFault::Possible,
            _ => MessageFault::None,
        }
    }

    /// The failure as the error that ends the run: with exit status and hint.
    pub fn into_failure(self) -> anyhow::Error {
        let (kind, cause) = match self {
            Self::Failed { kind, message, .. } => (kind, message),
            Self::Aborted(error) | Self::BudgetExceeded(error) => return error,
        };
        match kind {
            FailureKind::Busy => {
                fail_with_parts(Exit::TryAgain, cause, [UserAction::RepeatLater.into()])
            }
            FailureKind::Unavailable | FailureKind::ServerFailed | FailureKind::Interrupted => {
                fail(Exit::Unavailable, cause)
            }
            FailureKind::ContextExceeded => {
                fail_with_step(Exit::BadInput, cause, NextStep::ShortenInput)
            }
            FailureKind::KeyRejected | FailureKind::Forbidden => {
                fail(Exit::Refused, cause).with_hint("a valid key; `nanobot status check` tries it")
            }
            FailureKind::OutOfCredit => fail(Exit::Refused, cause)
                .with_hint("credit or a payment method for the account at the provider, or another model"),
            FailureKind::ModelNotFound => fail_with_parts(
                Exit::Config,
                cause,
                [UserAction::ListModels.into(), " for the models of the provider".into()],
            ),
            FailureKind::NoSuchAddress => fail(Exit::Config, cause)
                .with_hint("another `--model`, or the address that the provider documents: `nanobot status` shows the current one"),
            FailureKind::NotAccepted => {
                fail(Exit::Failed, cause).with_hint("another `--model`, which may accept it")
            }
            FailureKind::Refused => fail(Exit::Failed, cause),
        }
    }
}
