//! How a turn ends: with an answer, short of one, or with a failure; and what it cost.

use crate::error::{Exit, fail, fail_hint};
use crate::message::{Finish, Reply, Usage};
use std::collections::BTreeMap;

/// How a turn went.
#[derive(Debug, Default)]
pub struct Ending {
    pub cause: Cause,
    /// The answer; with a cause other than [`Cause::Answered`], what there is of one.
    pub text: String,
    pub tally: Tally,
    /// What went wrong. With a text, the answer was complete and something failed around it, such as the disk.
    pub error: Option<anyhow::Error>,
}

/// Why a turn ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cause {
    #[default]
    Answered,
    IterationLimit,
    OutputLimit,
    RepeatedFailure,
    Failed,
}

impl Cause {
    pub fn exit(self) -> Exit {
        match self {
            Self::Answered => Exit::Answered,
            Self::IterationLimit | Self::OutputLimit | Self::RepeatedFailure => Exit::Limit,
            Self::Failed => Exit::Failed,
        }
    }
}

/// What a turn cost.
#[derive(Debug, Default)]
pub struct Tally {
    pub iterations: u32,
    pub usage: Usage,
    /// By tool name: calls, and of these the failed ones.
    pub tools: BTreeMap<String, (u32, u32)>,
    /// The model that answered last, as the provider names it.
    pub model: String,
}

/// The failure of a turn whose last reply has nothing in it.
pub(super) fn answered_nothing(reply: &Reply) -> anyhow::Error {
    let limit = "the output limit was spent before the model said anything";
    match &reply.finish {
        Finish::Length => fail_hint(
            Exit::Limit,
            limit,
            "a higher `--max-tokens`, or a lower `--reasoning-effort`",
        ),
        Finish::Refusal => fail(
            Exit::Failed,
            "the model, or its provider's filter, declined to answer",
        ),
        _ => fail(Exit::Failed, "the model answered nothing"),
    }
}
