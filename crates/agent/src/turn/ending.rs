//! The end of a turn: with an answer, without one, or with a failure; and its cost.

use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_base::event::{Denial, StopReason, ToolOutcome};
use nanobot_base::message::{FinishReason, Reply, Usage};
use nanobot_store::session::SessionStats;
use nanobot_tool::CompletedCall;
use std::collections::BTreeMap;
use std::time::Duration;

/// The result of a turn.
#[derive(Debug, Default)]
pub struct Ending {
    pub stop_reason: StopReason,
    /// The answer, or the part of it that was received.
    pub text: String,
    /// True if the text is not a complete answer.
    pub is_partial: bool,
    /// True if a tool has given the answer to the user: the text, which may be empty, need not be delivered.
    pub is_delivered: bool,
    pub stats: TurnStats,
    /// True if nothing was sent, because the command of `--until` succeeded before.
    pub is_unneeded: bool,
    /// The rounds of `--until`.
    pub rounds: Vec<Round>,
    /// True if later runs leave the message out, because the provider refused it.
    pub is_left_out: bool,
    /// The error, if any. With a complete `text`, something else failed, such as writing to disk.
    pub error: Option<anyhow::Error>,
}

/// A round of `--until`: an answer, and the run of the command after it.
#[derive(Clone, Debug)]
pub struct Round {
    /// The last line about the failure of the command; `None` if it succeeded.
    pub failure: Option<String>,
    /// The run time of the command.
    pub duration: Duration,
}

/// The costs and counts of a turn.
#[derive(Debug, Default)]
pub struct TurnStats {
    pub iterations: u32,
    /// Requests that were paid for, including summaries and failed ones.
    reply_count: u32,
    pub usage: Usage,
    /// US dollars; `None` if the cost of any request is unknown.
    pub cost: Option<f64>,
    /// Tokens of the last request and its reply: the current context size.
    pub context_tokens: u64,
    /// Time spent in model requests, without tools.
    pub(crate) request_time: Duration,
    /// Counts by tool name.
    pub tools: BTreeMap<String, ToolCallCounts>,
    pub denials: Vec<Denial>,
    /// Denials of background work; they do not count for the guards of this turn.
    background_denials: Vec<Denial>,
    /// The model that answered last, as the provider names it.
    pub model: String,
}

/// Call counts of a tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ToolCallCounts {
    pub count: u32,
    /// Unsuccessful calls, including denied and skipped ones, and commands that ended with another status than 0.
    pub failed: u32,
    /// Calls that the policy denied, and commands that failed because the sandbox refused them something: one for each denial.
    pub denied: u32,
    /// Calls that were not run, because the tool is unknown or its arguments are invalid.
    pub skipped: u32,
}

impl TurnStats {
    /// The stats in the form that the session stores.
    pub(crate) fn to_session_stats(&self) -> SessionStats {
        let mut stats = SessionStats {
            turns: 1,
            steps: self.iterations.into(),
            input: self.usage.input,
            output: self.usage.output,
            context: self.context_tokens,
            speed: self.tokens_per_second(),
            cost: self.cost,
            ..SessionStats::default()
        };
        for calls in self.tools.values() {
            let ToolCallCounts { count, failed, denied, skipped } = *calls;
            stats.allowed += u64::from(count - denied - skipped);
            stats.succeeded += u64::from(count - failed);
            stats.failed += u64::from(failed - denied);
            stats.denied += u64::from(denied);
        }
        stats
    }

    /// Output tokens per second of request time, rounded to a tenth; `None` without output.
    pub fn tokens_per_second(&self) -> Option<f64> {
        let rate = self.usage.output as f64 / self.request_time.as_secs_f64();
        (self.usage.output > 0 && rate.is_finite()).then(|| (rate * 10.0).round() / 10.0)
    }

    /// Adds the cost of a reply.
    pub(super) fn add_usage(&mut self, reply: &Reply) {
        self.add_charge(reply.usage, reply.cost);
        self.context_tokens = reply.usage.input.saturating_add(reply.usage.output);
    }

    /// Adds the cost of a request, which may have failed.
    pub(super) fn add_charge(&mut self, usage: Usage, cost: Option<f64>) {
        // The sum starts with the first reply; one reply of unknown cost makes the whole sum unknown.
        let sum = if self.reply_count == 0 { Some(0.0) } else { self.cost };
        self.reply_count += 1;
        self.cost = sum.zip(cost).map(|(sum, cost)| sum + cost);
        self.usage += usage;
    }

    /// Adds the stats of background work. Its tool calls are included in `tools`. The turn's own iterations and context
    /// size do not change.
    pub(super) fn merge(&mut self, other: Self) {
        self.cost = match (self.reply_count, other.reply_count) {
            (_, 0) => self.cost,
            (0, _) => other.cost,
            _ => self.cost.zip(other.cost).map(|(sum, cost)| sum + cost),
        };
        self.reply_count += other.reply_count;
        self.usage += other.usage;
        self.request_time += other.request_time;
        for (name, calls) in other.tools {
            let ToolCallCounts { count, failed, denied, skipped } = calls;
            let sum = self.tools.entry(name).or_default();
            sum.count += count;
            sum.failed += failed;
            sum.denied += denied;
            sum.skipped += skipped;
        }
        self.background_denials.extend(other.denials);
    }

    /// The complete stats at the end of the turn, with the denials of background work.
    pub(super) fn with_background_denials(mut self) -> Self {
        let mut denials = std::mem::take(&mut self.background_denials);
        denials.append(&mut self.denials);
        Self { denials, ..self }
    }

    /// Counts a finished tool call.
    pub(super) fn count_call(&mut self, call: &CompletedCall) {
        let counts = self.tools.entry(call.result.name.clone()).or_default();
        counts.count += 1;
        counts.failed += u32::from(call.outcome != ToolOutcome::Ok || call.command_failed);
        counts.skipped += u32::from(call.outcome == ToolOutcome::Skipped);
        if let Some(denial) = &call.denial {
            counts.denied += 1;
            self.denials.push(denial.clone());
        }
        for (usage, cost) in &call.charges {
            self.add_charge(*usage, *cost);
        }
    }
}

/// Creates the error for an answer that is not complete, according to its finish reason.
pub fn incomplete_answer_error(finish: &FinishReason) -> anyhow::Error {
    match finish {
        FinishReason::Refusal => fail(Exit::Failed, DECLINED),
        FinishReason::Other(word) => fail(Exit::Failed, format!("the answer may be incomplete: it has {}", unknown_reason(word)))
            .with_hint("the documentation of the server for this word"),
        FinishReason::ToolCalls => fail(Exit::Failed, "the answer is not complete: the model wants to call a tool, but the server sent no call")
            .with_hint(TOOL_PARSER_HINT),
        _ => fail(Exit::Limit, "the answer was truncated by the output limit")
            .with_hint("a higher `--max-tokens`"),
    }
}

/// The next step if a server does not recognize the model's tool calls.
const TOOL_PARSER_HINT: &str = "the server's option for the model's tool calls (vLLM: `--enable-auto-tool-choice --tool-call-parser`; \
     SGLang: `--tool-call-parser`; llama.cpp: `--jinja`), or `--no-tools`";

/// Describes a finish reason that is not in the table of any known API.
pub(super) fn unknown_reason(word: &str) -> String {
    let word: String = word.chars().filter(|character| !character.is_control()).take(80).collect();
    format!("the unknown finish reason `{word}`")
}

/// Creates the error for answers that do not satisfy the schema.
pub(super) fn schema_mismatch(error: &str) -> anyhow::Error {
    fail(Exit::BadInput, format!("no answer satisfied the schema: {error}"))
        .with_hint("a simpler schema, or a stronger model")
}

/// Error text for an answer that was declined in full or in part.
pub const DECLINED: &str = "the model or its provider's content filter declined to answer";

/// Creates the error for a turn whose last reply is empty.
pub(super) fn empty_reply_error(reply: &Reply) -> anyhow::Error {
    let limit = "the output limit was reached before the model wrote any text";
    match &reply.finish_reason {
        FinishReason::Length => fail(Exit::Limit, limit)
            .with_hint("a higher `--max-tokens`, or a lower `--reasoning-effort`"),
        FinishReason::Refusal => fail(Exit::Failed, DECLINED),
        FinishReason::Other(word) => fail(
            Exit::Failed,
            format!("the model returned an empty reply with {}", unknown_reason(word)),
        ),
        _ => fail(Exit::Failed, "the model returned an empty reply"),
    }
}

/// The exit status of a turn that stopped for `reason`.
pub fn exit_status(reason: StopReason) -> Exit {
    match reason {
        StopReason::Answered => Exit::Answered,
        StopReason::IterationLimit
        | StopReason::OutputLimit
        | StopReason::RoundLimit
        | StopReason::RepeatedFailure
        | StopReason::RepeatedCall => Exit::Limit,
        StopReason::RepeatedDenial => Exit::Refused,
        StopReason::Declined | StopReason::Failed => Exit::Failed,
    }
}
