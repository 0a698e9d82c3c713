//! Cost control: a wrapper that blocks requests that exceed a budget, and records the cost of each request in the
//! ledger. Every model request of the program passes through it, so the ledger is complete.

use super::registry::model_info::Prices;
use super::{Delta, DeltaSink, FailureKind, Provider, ProviderError, ProviderResult, Request};
use crate::ledger::{CallPurpose, Ledger, ModelCall, Reservation};
use nanobot_base::error::{Exit, NextStep, Stop, fail_with_step};
use nanobot_base::format::format_dollars;
use nanobot_base::limits::BudgetLimits;
use nanobot_base::message::{Message, MessagePart, Reply, ToolSpec, Usage};
use nanobot_os::signal;
use parking_lot::Mutex;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Minimum bytes of text per token, for upper bounds on cost: half the usual number.
const MIN_BYTES_PER_TOKEN: usize = 2;
/// Usual bytes of text per token.
const BYTES_PER_TOKEN: usize = 4;
/// Allowance for reasoning on top of the reply limit, in tokens.
const REASONING_ALLOWANCE_TOKENS: u32 = 32_768;
/// Context window of the largest models, in tokens.
const MAX_CONTEXT_TOKENS: usize = 1_000_000;
/// Estimated tokens of an image, if the server reports none.
const IMAGE_TOKENS: usize = 1600;
/// Minimum bytes of a recording per token: the smallest MP3 has 1 kB in a second, for which Gemini counts 32 tokens.
const MIN_BYTES_PER_AUDIO_TOKEN: usize = 30;
/// Poll interval while concurrent requests of this run hold the rest of the budget.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Forwards requests to `inner` within the budget, and records what they cost.
pub struct BudgetedProvider<P> {
    pub inner: P,
    pub ledger: Ledger,
    pub limits: BudgetLimits,
    pub purpose: CallPurpose,
    pub provider: String,
    /// `None` if the prices are unknown.
    pub prices: Option<Prices>,
    pub run: Arc<RunBudget>,
}

/// The budget and the spending of one run, shared by all its requests.
#[derive(Debug, Default)]
pub struct RunBudget {
    /// Limit in US dollars.
    max_cost: Option<f64>,
    /// Limit in tokens, input and output together.
    max_tokens: Option<u64>,
    state: Mutex<BudgetState>,
    /// The session's cost before this run, in US dollars.
    session_usd_before: OnceLock<f64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Spending {
    usd: f64,
    tokens: u64,
}

/// The amount spent, and the reservations of requests in flight.
#[derive(Debug, Default)]
struct BudgetState {
    spent: Spending,
    reserved: Spending,
    in_flight: u32,
}

/// Permission for one request. Its maximum cost is counted as spent until the permission is dropped.
#[derive(Debug)]
struct BudgetReservation<'a> {
    run: &'a RunBudget,
    max_spending: Spending,
}

impl Drop for BudgetReservation<'_> {
    fn drop(&mut self) {
        let mut state = self.run.state.lock();
        state.in_flight -= 1;
        state.reserved.usd -= self.max_spending.usd;
        state.reserved.tokens -= self.max_spending.tokens;
        if state.in_flight == 0 {
            // Sums of floating-point numbers leave rounding errors.
            state.reserved.usd = 0.0;
        }
    }
}

/// The rest of a budget for a subsequent run; `None` for no limit.
pub struct RemainingBudget {
    /// In US dollars.
    pub max_cost: Option<f64>,
    pub max_tokens: Option<u64>,
}

impl RunBudget {
    /// A run with limits in US dollars and in tokens.
    pub fn new(max_cost: Option<f64>, max_tokens: Option<u64>) -> Self {
        Self { max_cost, max_tokens, ..Self::default() }
    }

    /// True if the run has a limit in US dollars.
    pub fn has_cost_limit(&self) -> bool {
        self.max_cost.is_some()
    }

    fn has_limit(&self) -> bool {
        self.max_cost.is_some() || self.max_tokens.is_some()
    }

    /// # Errors
    /// Status 4 once a limit is reached. One request can exceed it, because the cost is known only with the response.
    fn check_limits(&self, spending: Spending) -> anyhow::Result<()> {
        let exceeded = match (self.max_cost, self.max_tokens) {
            (Some(limit), _) if spending.usd >= limit => {
                Some((format!("${limit} (${} spent)", format_dollars(spending.usd)), "--max-cost"))
            }
            (_, Some(limit)) if spending.tokens >= limit => {
                Some((format!("{limit} tokens"), "--max-total-tokens"))
            }
            _ => None,
        };
        match exceeded {
            None => Ok(()),
            Some((limit, flag)) => Err(fail_with_step(
                Exit::Budget,
                format!("stopped by the budget of {limit}"),
                NextStep::RaiseBudget(flag),
            )),
        }
    }

    /// Waits until a request that uses at most `max_spending` fits: the sum of all requests in flight must stay below each
    /// limit. A single request may exceed a limit by its own cost, so the last one never waits. `session_limit` is the limit of the
    /// session, which includes the cost before this run.
    ///
    /// # Errors
    /// Status 4 as in [`Self::check_limits`], and the errors of [`signal::check`].
    fn reserve(
        &self,
        max_spending: Spending,
        session_limit: Option<f64>,
    ) -> anyhow::Result<BudgetReservation<'_>> {
        let usd_before = self.session_usd_before.get().copied().unwrap_or(0.0);
        let session_limit = session_limit.map(|limit| limit - usd_before);
        loop {
            {
                let mut state = self.state.lock();
                let BudgetState { spent, reserved, .. } = *state;
                self.check_limits(spent)?;
                let usd = spent.usd + reserved.usd;
                let tokens = spent.tokens.saturating_add(reserved.tokens);
                let fits = self.max_cost.is_none_or(|limit| usd < limit)
                    && session_limit.is_none_or(|limit| usd < limit)
                    && self.max_tokens.is_none_or(|limit| tokens < limit);
                if fits || state.in_flight == 0 {
                    state.in_flight += 1;
                    state.reserved.usd += max_spending.usd;
                    state.reserved.tokens += max_spending.tokens;
                    return Ok(BudgetReservation { run: self, max_spending });
                }
            }
            signal::sleep(POLL_INTERVAL)?;
        }
    }

    /// The rest of both limits, for a subsequent run; `None` once one of them is reached.
    pub fn remaining(&self) -> Option<RemainingBudget> {
        let spent = self.state.lock().spent;
        self.check_limits(spent).ok()?;
        Some(RemainingBudget {
            max_cost: self.max_cost.map(|limit| limit - spent.usd),
            max_tokens: self.max_tokens.map(|limit| limit - spent.tokens),
        })
    }

    /// # Errors
    /// Status 4 once a limit is reached.
    pub fn check(&self) -> anyhow::Result<()> {
        let spent = self.state.lock().spent;
        self.check_limits(spent)
    }

    /// Adds the cost of a request that was not made to a model, in US dollars.
    pub fn add_cost(&self, usd: f64) {
        self.state.lock().spent.usd += usd;
    }

    fn record_usage(&self, usage: Usage, usd: Option<f64>) {
        let spent = &mut self.state.lock().spent;
        spent.usd += usd.unwrap_or(0.0);
        spent.tokens += usage.input + usage.output;
    }
}

impl<P: Provider> Provider for BudgetedProvider<P> {
    fn reply(&self, request: &Request<'_>, on_delta: &mut DeltaSink<'_>) -> ProviderResult<Reply> {
        let session_limit = self.session_limit()?;
        let has_limit = !self.limits.is_unlimited() || self.run.has_limit();
        let max_spending = if has_limit { self.max_spending(request) } else { Spending::default() };
        let run_reservation =
            self.run.reserve(max_spending, session_limit).map_err(to_provider_error)?;
        let ledger_reservation = self.reserve_in_ledger(max_spending, on_delta)?;
        let started = Instant::now();
        let mut output_bytes = 0;
        let mut reply = self.inner.reply(request, &mut |delta| {
            if let Delta::Text(text) | Delta::Reasoning(text) = delta {
                output_bytes += text.len();
            }
            on_delta(delta)
        });
        let (usage, usd, failed) = match &mut reply {
            Ok(reply) => {
                if reply.usage.input == 0 && reply.usage.output == 0 {
                    reply.usage = estimate_usage(request, reply_bytes(reply));
                }
                reply.cost = reply.cost.or_else(|| self.cost(&reply.usage));
                (reply.usage, reply.cost, false)
            }
            // Requests that were refused or never arrived are free. Cancelled or truncated ones may be charged, even if
            // no output arrived: models reason, and generate tool calls, without streaming text.
            Err(error) if output_bytes == 0 && !is_charged(error) => return reply,
            Err(_) => {
                let usage = estimate_usage(request, output_bytes);
                (usage, self.cost(&usage), true)
            }
        };
        self.run.record_usage(usage, usd);
        drop(run_reservation);
        let model = reply.as_ref().map_or("", |reply| reply.model.as_str());
        let call = ModelCall {
            purpose: &self.purpose,
            provider: &self.provider,
            model: if model.is_empty() { request.model } else { model },
            usage,
            usd,
            duration: started.elapsed(),
            failed,
        };
        // The reply is already paid for, so a ledger failure is only reported. If a budget depends on the ledger, the
        // run ends before its next request.
        if let Err(error) = self.ledger.record(&call, ledger_reservation) {
            let notice = format!("the cost was not recorded: {error:#}");
            on_delta(Delta::Notice(&notice)).map_err(ProviderError::Aborted)?;
        }
        let Err(error) = reply else {
            return reply;
        };
        let received = on_delta(Delta::Charged { usage, cost: usd });
        // A receiver that fails has usually ended the exchange itself, so the first error is the cause.
        Err(match (error, received) {
            (error @ ProviderError::Aborted(_), _) | (error, Ok(())) => error,
            (_, Err(error)) => ProviderError::Aborted(error),
        })
    }
}

impl<P> BudgetedProvider<P> {
    fn cost(&self, usage: &Usage) -> Option<f64> {
        self.prices.as_ref().map(|prices| usage_cost(usage, prices))
    }

    /// Upper bound on the usage of a request.
    fn max_spending(&self, request: &Request<'_>) -> Spending {
        let input = (request_bytes(request) / MIN_BYTES_PER_TOKEN) as u64;
        let usage = Usage {
            input,
            // Input that is written to a cache can cost more than other input.
            cache_write: input,
            output: u64::from(
                request.sampling.max_tokens.saturating_add(REASONING_ALLOWANCE_TOKENS),
            ),
            ..Usage::default()
        };
        Spending { usd: self.cost(&usage).unwrap_or(0.0), tokens: usage.input + usage.output }
    }

    /// The session's limit, if it has one. The first call determines the cost before this run.
    fn session_limit(&self) -> ProviderResult<Option<f64>> {
        if self.limits.per_session.is_some() && self.run.session_usd_before.get().is_none() {
            // The ledger is read once per run, before the first request. The run's own spending is known here.
            let session_usd = self.ledger.session_cost(&self.purpose.session);
            let session_usd = session_usd.map_err(ProviderError::BudgetExceeded)?;
            let run_usd = self.run.state.lock().spent.usd;
            self.run.session_usd_before.get_or_init(|| session_usd - run_usd);
        }
        Ok(self.limits.per_session)
    }

    /// Reserves `max_spending` in the ledger; `None` if no limit depends on it.
    fn reserve_in_ledger(
        &self,
        max_spending: Spending,
        on_delta: &mut DeltaSink<'_>,
    ) -> ProviderResult<Option<Reservation>> {
        if self.limits.is_unlimited() {
            return Ok(None);
        }
        let usd_before = self.run.session_usd_before.get().copied().unwrap_or(0.0);
        let session_usd = usd_before + self.run.state.lock().spent.usd;
        let mut on_notice = |text: &str| on_delta(Delta::Notice(text));
        self.ledger
            .reserve(&self.limits, session_usd, max_spending.usd, &mut on_notice)
            .map(Some)
            .map_err(to_provider_error)
    }
}

/// Converts a failure of the budget or the ledger. It is not retried with another model, which would fail too.
fn to_provider_error(error: anyhow::Error) -> ProviderError {
    if error.is::<Stop>() {
        ProviderError::Aborted(error)
    } else {
        ProviderError::BudgetExceeded(error)
    }
}

/// True if a call that failed without output is assumed to be charged.
fn is_charged(error: &ProviderError) -> bool {
    match error {
        ProviderError::Failed { kind, .. } => *kind == FailureKind::Interrupted,
        ProviderError::Aborted(error) => error.is::<Stop>(),
        ProviderError::BudgetExceeded(_) => false,
    }
}

/// The cost of `usage`, in US dollars.
pub(super) fn usage_cost(usage: &Usage, prices: &Prices) -> f64 {
    let price = prices.for_input_tokens(usage.input);
    let fresh = usage.input.saturating_sub(usage.cached + usage.cache_write);
    let million = |tokens: u64, price: f64| tokens as f64 * price / 1e6;
    million(fresh, price.input)
        + million(usage.cached, price.cached)
        + million(usage.cache_write, price.cache_write)
        + million(usage.output, price.output)
}

/// Estimates the usage of a call if the server reports none.
pub(super) fn estimate_usage(request: &Request<'_>, output_bytes: usize) -> Usage {
    Usage {
        input: (request_bytes(request) / BYTES_PER_TOKEN) as u64,
        output: output_bytes.div_ceil(BYTES_PER_TOKEN) as u64,
        estimated: true,
        ..Usage::default()
    }
}

/// Bytes of text in a request. Images are counted as the equivalent of their tokens.
fn request_bytes(request: &Request<'_>) -> usize {
    let parts_bytes = |parts: &[MessagePart]| -> usize {
        parts
            .iter()
            .map(|part| match part {
                MessagePart::Text(text) => text.len(),
                MessagePart::Image(_) => IMAGE_TOKENS * BYTES_PER_TOKEN,
                MessagePart::Document(document) if document.is_audio() => {
                    document.bytes.len() / MIN_BYTES_PER_AUDIO_TOKEN * BYTES_PER_TOKEN
                }
                // Pages are a compressed mix of text and images and cannot be estimated. No context window holds more
                // than this.
                MessagePart::Document(document) => {
                    document.bytes.len().min(MAX_CONTEXT_TOKENS) * BYTES_PER_TOKEN
                }
            })
            .sum()
    };
    let message_bytes = |message: &Message| match message {
        Message::User(user) => parts_bytes(&user.parts) + user.runtime_facts.len(),
        Message::Assistant(reply) => reply_bytes(reply),
        Message::Tool(result) => parts_bytes(&result.parts),
    };
    let tool_bytes = |tool: &ToolSpec| {
        tool.name.len() + tool.description.len() + tool.parameters.as_json().len()
    };
    request.system.len()
        + request.tools.iter().map(tool_bytes).sum::<usize>()
        + request.messages.iter().map(message_bytes).sum::<usize>()
}

/// Bytes of the model's output.
fn reply_bytes(reply: &Reply) -> usize {
    let calls = reply.tool_calls.iter();
    let calls: usize = calls.map(|call| call.name.len() + call.arguments.to_string().len()).sum();
    reply.text.len() + reply.reasoning.len() + calls
}

#[cfg(test)]
mod tests {
    use super::usage_cost;
    use crate::provider::registry::model_info::{Prices, TokenPrice};
    use nanobot_base::message::Usage;

    #[test]
    fn each_kind_of_token_has_its_price() {
        let price =
            Prices::flat(TokenPrice { input: 10.0, cached: 1.0, cache_write: 12.5, output: 50.0 });
        let usage = Usage {
            input: 1_000_000,
            cached: 500_000,
            cache_write: 100_000,
            output: 10_000,
            ..Usage::default()
        };
        assert!((usage_cost(&usage, &price) - (4.0 + 0.5 + 1.25 + 0.5)).abs() < 1e-9);
    }
}
