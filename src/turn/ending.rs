//! How a turn ends: with an answer, short of one, or with a failure; and what it cost.

use crate::error::{Exit, fail, fail_hint};
use crate::event::{Denial, Outcome, StopReason};
use crate::message::{Finish, Reply, Usage};
use crate::session::Stats;
use crate::tool::Done;
use std::collections::BTreeMap;
use std::time::Duration;

/// How a turn went.
#[derive(Debug, Default)]
pub struct Ending {
    pub cause: StopReason,
    /// The answer, or what there is of one.
    pub text: String,
    /// The text is not a whole answer.
    pub partial: bool,
    pub tally: Tally,
    /// What went wrong. With a text, the answer was complete and something failed around it, such as the disk.
    pub error: Option<anyhow::Error>,
}

/// What a turn cost.
#[derive(Debug, Default)]
pub struct Tally {
    pub iterations: u32,
    /// Replies that were paid for, summaries included.
    replies: u32,
    pub usage: Usage,
    /// US dollars; `None` where the cost of a request is not known.
    pub cost: Option<f64>,
    /// Tokens of the last request and its reply: what the conversation weighs now.
    pub context: u64,
    /// Time that requests took, tools not included.
    pub asking: Duration,
    /// By tool name.
    pub tools: BTreeMap<String, Calls>,
    pub denials: Vec<Denial>,
    /// What others were denied, which says nothing of how the turn goes.
    denials_beside: Vec<Denial>,
    /// The model that answered last, as the provider names it.
    pub model: String,
}

/// How often a tool was called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    pub count: u32,
    /// Of these, the ones that did not do what they were asked for, the denied ones included.
    pub failed: u32,
    pub denied: u32,
    /// Those that were not run, since there is no such tool or its arguments made no sense.
    pub skipped: u32,
}

impl Tally {
    /// As the session keeps it.
    pub fn stats(&self) -> Stats {
        let mut stats = Stats {
            turns: 1,
            steps: self.iterations.into(),
            input: self.usage.input,
            output: self.usage.output,
            context: self.context,
            speed: self.speed(),
            cost: self.cost,
            ..Stats::default()
        };
        for calls in self.tools.values() {
            let Calls {
                count,
                failed,
                denied,
                skipped,
            } = *calls;
            stats.agreed += u64::from(count - denied - skipped);
            stats.succeeded += u64::from(count - failed);
            stats.failed += u64::from(failed - denied);
            stats.rejected += u64::from(denied);
        }
        stats
    }

    /// Output tokens in a second of asking, to a tenth; nothing where nothing was said.
    pub fn speed(&self) -> Option<f64> {
        let rate = self.usage.output as f64 / self.asking.as_secs_f64();
        (self.usage.output > 0 && rate.is_finite()).then(|| (rate * 10.0).round() / 10.0)
    }

    /// Count what a reply has cost.
    pub(super) fn pay(&mut self, reply: &Reply) {
        // With the first request the sum begins; one of unknown cost makes all of it unknown.
        let before = if self.replies == 0 {
            Some(0.0)
        } else {
            self.cost
        };
        self.replies += 1;
        self.cost = before.zip(reply.cost).map(|(before, cost)| before + cost);
        self.usage += reply.usage;
        self.context = reply.usage.input + reply.usage.output;
    }

    /// Count what work beside the turn has cost and done; its calls are among the tools of the result. The turn's own requests, and what its conversation weighs, stay
    /// what they are.
    pub(super) fn take_in(&mut self, other: Self) {
        let before = match (self.replies, other.replies) {
            (_, 0) => None,
            (0, _) => Some(other.cost),
            _ => Some(
                self.cost
                    .zip(other.cost)
                    .map(|(ours, theirs)| ours + theirs),
            ),
        };
        self.cost = before.unwrap_or(self.cost);
        self.replies += other.replies;
        self.usage += other.usage;
        self.asking += other.asking;
        for (name, calls) in other.tools {
            let Calls {
                count,
                failed,
                denied,
                skipped,
            } = calls;
            let sum = self.tools.entry(name).or_default();
            sum.count += count;
            sum.failed += failed;
            sum.denied += denied;
            sum.skipped += skipped;
        }
        self.denials_beside.extend(other.denials);
    }

    /// All of it, once the turn is over.
    pub(super) fn whole(mut self) -> Self {
        let mut denials = std::mem::take(&mut self.denials_beside);
        denials.append(&mut self.denials);
        Self { denials, ..self }
    }

    /// Count a call that has ended.
    pub(super) fn count(&mut self, done: &Done) {
        let calls = self.tools.entry(done.result.name.clone()).or_default();
        calls.count += 1;
        calls.failed += u32::from(done.outcome != Outcome::Ok);
        calls.skipped += u32::from(done.outcome == Outcome::Skipped);
        if let Some(refusal) = &done.refusal {
            calls.denied += 1;
            self.denials.push(Denial {
                call: done.result.call.clone(),
                tool: done.result.name.clone(),
                words: refusal.words.clone(),
                grant: refusal.grant.clone(),
            });
        }
    }
}

/// What the model is told of an answer that does not satisfy its schema.
pub(super) fn objection(wrong: &str) -> String {
    format!(
        "[nanobot] This answer does not satisfy the schema: {wrong}. Give the whole answer again, as JSON alone."
    )
}

/// The failure of a turn whose answer is to satisfy a schema, and was cut or declined: it would be no other one the next
/// time.
pub(super) fn unfinished(finish: &Finish) -> anyhow::Error {
    match finish {
        Finish::Refusal => fail(Exit::Failed, DECLINED),
        _ => fail_hint(
            Exit::Limit,
            "the answer was cut by the output limit",
            "a higher `--max-tokens`",
        ),
    }
}

/// The failure of a turn whose answers do not satisfy its schema.
pub(super) fn unfit(wrong: &str) -> anyhow::Error {
    fail_hint(
        Exit::BadInput,
        format!("no answer satisfied the schema: {wrong}"),
        "a simpler schema, or a stronger model",
    )
}

/// What is said of an answer that was not given, or not all of it.
pub const DECLINED: &str = "the model, or its provider's filter, declined to answer";

/// The failure of a turn whose last reply has nothing in it.
pub(super) fn answered_nothing(reply: &Reply) -> anyhow::Error {
    let limit = "the output limit was spent before the model said anything";
    match &reply.finish {
        Finish::Length => fail_hint(
            Exit::Limit,
            limit,
            "a higher `--max-tokens`, or a lower `--reasoning-effort`",
        ),
        Finish::Refusal => fail(Exit::Failed, DECLINED),
        Finish::Other(reason) => {
            let reason: String = reason
                .chars()
                .filter(|letter| !letter.is_control())
                .take(80)
                .collect();
            fail(
                Exit::Failed,
                format!("the model answered nothing, and stopped for `{reason}`"),
            )
        }
        _ => fail(Exit::Failed, "the model answered nothing"),
    }
}

/// The exit status of a turn that stopped for `reason`.
pub fn exit_status(reason: StopReason) -> Exit {
    match reason {
        StopReason::Answered => Exit::Answered,
        StopReason::IterationLimit | StopReason::OutputLimit | StopReason::RepeatedFailure => {
            Exit::Limit
        }
        StopReason::Refused => Exit::Refused,
        StopReason::Declined | StopReason::Failed => Exit::Failed,
    }
}
