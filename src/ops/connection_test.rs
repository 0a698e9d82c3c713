//! One small request that tests provider, key and model together. `onboard` and `status --check` send it once, without
//! retries, because the user is waiting for the result.

use crate::error::{Exit, fail};
use crate::format::dollars;
use crate::ledger::Account;
use crate::message::{Message, Part, Usage, User};
use crate::ops::context::Context;
use crate::ops::jobs::time_format::one_line;
use crate::ops::model::{self, Endpoint};
use crate::provider::{Calls, Provider, ProviderError, Request, Sampling};
use crate::settings::{Settings, Timeouts};
use crate::sys::terminal::harmless;
use anyhow::Result;
use jiff::SignedDuration;
use std::sync::Arc;
use std::time::Duration;

/// Connect timeout. A reachable host answers almost at once.
const CONNECT: Duration = Duration::from_secs(5);
/// Token limit of the reply. Some servers reject lower limits, and reasoning tokens count too.
const TOKENS: u32 = 256;
/// Characters of the answer that are shown.
const SHOWN: usize = 60;

/// The reply to the test request.
#[derive(Debug)]
pub(crate) struct TestReply {
    text: String,
    usage: Usage,
    cost: Option<f64>,
    took: SignedDuration,
}

impl TestReply {
    /// The answer's text, shortened to one line.
    pub(crate) fn text(&self) -> String {
        let mut text = harmless(&one_line(&self.text));
        if let Some((at, _)) = text.char_indices().nth(SHOWN) {
            text.truncate(at);
            text.push('…');
        }
        text
    }

    /// The duration of the request.
    pub(crate) fn seconds(&self) -> String {
        format!("{:.1} s", self.took.as_secs_f64())
    }

    /// Tokens and cost in US dollars.
    pub(crate) fn cost(&self) -> String {
        let Usage { input, output, .. } = self.usage;
        let cost = match self.cost {
            Some(usd) => format!("${}", dollars(usd)),
            None => "price unknown".into(),
        };
        format!("{input} tokens in, {output} out, {cost}")
    }
}

/// Returns the settings with all timeouts capped at `max_timeout`.
pub(crate) fn with_short_timeouts(settings: &Settings, limit: Duration) -> Settings {
    let sooner = |time: Duration| match time.is_zero() {
        true => limit,
        false => time.min(limit),
    };
    let Timeouts {
        connect,
        first_byte,
        stream_idle,
        total,
    } = settings.timeouts;
    let timeouts = Timeouts {
        connect: connect.min(CONNECT),
        first_byte: sooner(first_byte),
        stream_idle: sooner(stream_idle),
        total: sooner(total),
    };
    Settings {
        timeouts,
        ..settings.clone()
    }
}

/// Sends the test request.
///
/// # Errors
/// Those of a turn: 78 if no model is configured, 77 if the key is rejected, 69 if the server does not answer.
pub(crate) fn ask(ctx: &Context, settings: &Settings, way: Endpoint) -> Result<TestReply> {
    let account = Account {
        cause: "test",
        ..Account::default()
    };
    let model = way.choice.model.clone();
    let provider = model::single_attempt(ctx, settings, way, &account, &Arc::default());
    let hello = User {
        parts: vec![Part::Text("Say hello in one short sentence.".into())],
        ..User::default()
    };
    let sampling = Sampling {
        max_tokens: settings.asked[0].max_tokens.min(TOKENS),
        temperature: None,
        reasoning_effort: None,
    };
    let messages = [Message::User(hello)];
    let request = Request {
        system: "You are nanobot. This is a connection test.",
        messages: &messages,
        tools: &[],
        calls: Calls::MayNot,
        model: &model,
        sampling: &sampling,
        reply_id: "test",
        schema: None,
    };
    let begun = ctx.clock.timestamp();
    let reply = provider.reply(&request, &mut |_| Ok(())).map_err(failure)?;
    Ok(TestReply {
        text: reply.text,
        usage: reply.usage,
        cost: reply.cost,
        took: ctx.clock.timestamp().duration_since(begun),
    })
}

/// Turns a provider's error into an error, without the hints that only fit a turn.
pub(crate) fn failure(error: ProviderError) -> anyhow::Error {
    match error {
        ProviderError::Unavailable(cause) | ProviderError::Broken(cause) => {
            fail(Exit::Unavailable, cause)
        }
        ProviderError::TooLong(cause) => fail(Exit::BadInput, cause),
        other => other.into_failure(),
    }
}
