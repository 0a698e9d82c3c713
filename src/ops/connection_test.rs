//! One small request that tests provider, key and model together. `onboard` and `status check` send it once, without
//! retries, because the user waits for the result.

use crate::ops::context::Context;
use crate::ops::jobs::time_format::to_one_line;
use crate::ops::model::{self, Endpoint};
use anyhow::Result;
use jiff::SignedDuration;
use nanobot_base::error::{Exit, fail};
use nanobot_base::format::format_dollars;
use nanobot_base::message::{Message, MessagePart, Usage, UserMessage};
use nanobot_config::settings::{ProviderTimeouts, Settings};
use nanobot_model::ledger::CallPurpose;
use nanobot_model::provider::{
    Delta, FailureKind, Provider, ProviderError, Request, Sampling, ToolChoice,
};
use nanobot_os::terminal::sanitize;
use std::sync::Arc;
use std::time::Duration;

/// Connect timeout. A reachable host answers almost at once.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Token limit of the reply. Some servers reject lower limits, and reasoning tokens count too.
const MAX_REPLY_TOKENS: u32 = 256;
/// Characters of the answer that are shown.
const MAX_SHOWN_CHARS: usize = 60;

/// The reply to the test request.
#[derive(Debug)]
pub(crate) struct TestReply {
    text: String,
    usage: Usage,
    cost: Option<f64>,
    duration: SignedDuration,
}

impl TestReply {
    /// The answer's text, shortened to one line.
    pub(crate) fn text(&self) -> String {
        let mut text = sanitize(&to_one_line(&self.text));
        if let Some((end, _)) = text.char_indices().nth(MAX_SHOWN_CHARS) {
            text.truncate(end);
            text.push('…');
        }
        text
    }

    /// The duration of the request.
    pub(crate) fn describe_duration(&self) -> String {
        format!("{:.1} s", self.duration.as_secs_f64())
    }

    /// Tokens and cost in US dollars.
    pub(crate) fn describe_cost(&self) -> String {
        let Usage { input, output, .. } = self.usage;
        let cost = match self.cost {
            Some(usd) => format!("${}", format_dollars(usd)),
            None => "price unknown".into(),
        };
        format!("{input} tokens in, {output} out, {cost}")
    }
}

/// Returns the settings with all timeouts capped at `max_timeout`.
pub(crate) fn with_short_timeouts(settings: &Settings, max_timeout: Duration) -> Settings {
    // Zero stands for no timeout.
    let cap = |timeout: Duration| {
        if timeout.is_zero() { max_timeout } else { timeout.min(max_timeout) }
    };
    let ProviderTimeouts { connect, first_byte, stream_idle, total } = settings.timeouts;
    let timeouts = ProviderTimeouts {
        connect: connect.min(CONNECT_TIMEOUT),
        first_byte: cap(first_byte),
        stream_idle: cap(stream_idle),
        total: cap(total),
    };
    Settings { timeouts, ..settings.clone() }
}

/// Sends the test request. `print` gets the notice that another address than the configured one answers.
///
/// # Errors
/// The errors of a turn: 78 if no model is configured, 77 if the key is rejected, 69 if the server does not answer.
pub(crate) fn send_test_request(
    ctx: &Context,
    settings: &Settings,
    endpoint: Endpoint,
    print: &dyn Fn(&str),
) -> Result<TestReply> {
    let purpose = CallPurpose { cause: "test", ..CallPurpose::default() };
    let model = endpoint.choice.model.clone();
    let provider = model::single_attempt(ctx, settings, endpoint, &purpose, &Arc::default(), false);
    let message = UserMessage {
        parts: vec![MessagePart::Text("Say hello in one short sentence.".into())],
        ..UserMessage::default()
    };
    let sampling = Sampling {
        max_tokens: settings.models[0].max_tokens.min(MAX_REPLY_TOKENS),
        ..Sampling::default()
    };
    let messages = [Message::User(message)];
    let request = Request {
        system: "You are nanobot. This is a connection test.",
        messages: &messages,
        tools: &[],
        tool_choice: ToolChoice::None,
        model: &model,
        sampling: &sampling,
        reply_id: "test",
        schema: None,
    };
    let start = ctx.clock.timestamp();
    let mut on_delta = |delta: Delta<'_>| {
        if let Delta::Notice(text) = delta {
            print(text);
        }
        Ok(())
    };
    let reply = provider.reply(&request, &mut on_delta).map_err(to_error)?;
    Ok(TestReply {
        text: reply.text,
        usage: reply.usage,
        cost: reply.cost,
        duration: ctx.clock.timestamp().duration_since(start),
    })
}

/// Converts the error of a provider, without the hints that only fit a turn.
pub(crate) fn to_error(error: ProviderError) -> anyhow::Error {
    match error {
        ProviderError::Failed { kind: FailureKind::ContextExceeded, message, .. } => {
            fail(Exit::BadInput, message)
        }
        error => error.into_failure(),
    }
}
