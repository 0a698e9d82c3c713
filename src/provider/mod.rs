//! Asking a model: one trait with one method, and what it takes and gives.
//!
//! One file per wire format, each a pair of pure translations around one HTTP exchange. Retrying, recording and
//! replaying wrap any provider. Nothing here knows of sessions, tools' code or terminals.

use crate::error::{Exit, fail, fail_hint};
use crate::event::Event;
use crate::message::{Message, Reply, ToolSpec};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

pub mod anthropic;
mod cassette;
pub mod chat;
pub mod demo;
pub mod discreet;
mod failure;
pub mod fallback;
mod ids;
pub mod keys;
pub mod login;
pub mod meter;
pub mod pace;
pub mod quirks;
mod reading;
pub mod record;
pub mod registry;
pub mod replay;
pub mod responses;
pub mod retry;
pub mod think;
pub mod unforce;
pub mod wire;

/// Something that answers a conversation.
pub trait Provider: Send + Sync {
    /// Ask once. Pieces of the reply are told as they arrive; an error from `tell` ends the exchange as
    /// [`ProviderError::Aborted`].
    fn reply(&self, request: &Request<'_>, tell: &mut Tell<'_>) -> Result<Reply, ProviderError>;
}

impl<P: Provider + ?Sized> Provider for Arc<P> {
    fn reply(&self, request: &Request<'_>, tell: &mut Tell<'_>) -> Result<Reply, ProviderError> {
        (**self).reply(request, tell)
    }
}

impl<P: Provider + ?Sized> Provider for Box<P> {
    fn reply(&self, request: &Request<'_>, tell: &mut Tell<'_>) -> Result<Reply, ProviderError> {
        (**self).reply(request, tell)
    }
}

/// Where the pieces of a reply go while it arrives.
pub type Tell<'a> = dyn FnMut(Delta<'_>) -> anyhow::Result<()> + 'a;

/// One request to a model. Borrowed, built fresh for each exchange, dropped after it.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    pub system: &'a str,
    pub messages: &'a [Message],
    pub tools: &'a [ToolSpec],
    pub calls: Calls<'a>,
    pub model: &'a str,
    pub sampling: &'a Sampling,
    /// The id that the reply is to carry.
    pub reply_id: &'a str,
    /// The JSON schema that the last answer is to satisfy. Where a format cannot say so, the words of the messages do.
    pub schema: Option<&'a Value>,
}

/// What a reply is to do about tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls<'a> {
    /// It may call them.
    May,
    /// It may not. Their specs are sent all the same, so that the prefix stays the same.
    MayNot,
    /// It is to call this one. Where a server or a model cannot be told so, it may.
    Must(&'a str),
}

/// How the model is to answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// Limit of the reply, in tokens, at least 1.
    pub max_tokens: u32,
    /// 0 to 2; `None` leaves it to the provider.
    pub temperature: Option<f64>,
    /// `minimal`, `low`, `medium`, `high` or what else the model takes.
    pub reasoning_effort: Option<String>,
}

/// A piece of a reply, or news about getting it.
#[derive(Clone, Copy, Debug)]
pub enum Delta<'a> {
    Text(&'a str),
    Reasoning(&'a str),
    /// The exchange failed with nothing told yet, and starts again after `wait`. `attempt` counts from 1.
    Retry {
        attempt: u32,
        wait: Duration,
        cause: &'a str,
    },
    /// The model cannot be asked, and another one is.
    Fallback {
        from: &'a str,
        to: &'a str,
        cause: &'a str,
    },
    /// Something odd about the exchange that is no failure.
    Notice(&'a str),
}

impl<'a> Delta<'a> {
    /// What a watcher of the turn hears of it; `message` is the id of the reply it belongs to.
    pub fn event(self, message: &'a str) -> Event<'a> {
        match self {
            Self::Text(text) => Event::Text { message, text },
            Self::Reasoning(text) => Event::Reasoning { message, text },
            Self::Retry {
                attempt,
                wait,
                cause,
            } => Event::Retry {
                attempt,
                wait,
                cause,
            },
            Self::Fallback { from, to, cause } => Event::Fallback { from, to, cause },
            Self::Notice(text) => Event::Notice(text),
        }
    }
}

/// Why there is no reply. The variants are those that somebody handles apart.
#[derive(Debug, thiserror::Error)]
pub enum ProviderError {
    /// Rate limit or overload; the server may have said how long to wait.
    #[error("{message}")]
    Busy {
        message: String,
        wait: Option<Duration>,
    },
    /// No connection, a connection that broke or fell silent, or a server's own failure.
    #[error("{0}")]
    Unavailable(String),
    /// An answer had begun, and broke off before it was whole: what there was of it is paid for.
    #[error("{0}")]
    Broken(String),
    /// The conversation does not fit the model.
    #[error("{0}")]
    TooLong(String),
    /// The key is missing, wrong, without credit or without the right.
    #[error("{0}")]
    KeyRejected(String),
    /// The server will not take this request, however often it is sent.
    #[error("{0}")]
    Refused(String),
    /// The model or the address does not exist.
    #[error("{0}")]
    NotFound(String),
    /// A budget forbids to ask, or the account that it hangs on cannot be read.
    #[error("{0}")]
    Spent(anyhow::Error),
    /// Whoever listened gave up; the cause is theirs.
    #[error(transparent)]
    Aborted(anyhow::Error),
}

impl ProviderError {
    /// The failure as the run ends with it: its status, and the next step.
    pub fn into_failure(self) -> anyhow::Error {
        let cause = self.to_string();
        match self {
            Self::Aborted(error) | Self::Spent(error) => error,
            Self::Busy { .. } => fail_hint(Exit::TryAgain, cause, "the same again later"),
            Self::Unavailable(_) | Self::Broken(_) => fail_hint(
                Exit::Unavailable,
                cause,
                "`--resume` goes on where this stopped",
            ),
            Self::TooLong(_) => fail_hint(
                Exit::BadInput,
                cause,
                "a shorter input, `--new`, or a model with a larger context",
            ),
            Self::KeyRejected(_) => fail(Exit::Refused, cause),
            Self::NotFound(_) => fail_hint(
                Exit::Config,
                cause,
                "`nanobot config get agents.defaults.model`",
            ),
            Self::Refused(_) => fail(Exit::Failed, cause),
        }
    }
}
