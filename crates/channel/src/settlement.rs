//! The end of a message of a channel, as its journal and the lists name it.

use serde::{Deserialize, Serialize};

/// The end of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Settlement {
    /// All parts were sent.
    Delivered,
    /// The recipient does not accept messages.
    Refused,
    /// The parts cannot be delivered, or could not be for a day.
    GivenUp,
    /// The message was too old to be answered.
    Stale,
    /// The sender had started too many turns.
    RateLimited,
    /// A daily budget of the sender or of the channel was used up.
    OverBudget,
    /// The sender stopped its turn.
    Stopped,
    /// The message was given up, and its other parts were sent as a new message.
    Retried,
    /// The user does not want to see it any more.
    Dismissed,
}

impl Settlement {
    /// The name in lists and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Refused => "refused",
            Self::GivenUp => "given_up",
            Self::Stale => "stale",
            Self::RateLimited => "rate_limited",
            Self::OverBudget => "over_budget",
            Self::Stopped => "stopped",
            Self::Retried => "retried",
            Self::Dismissed => "dismissed",
        }
    }

    /// True if an inbound message has no answer and a retry can give one.
    pub fn is_dropped(self) -> bool {
        matches!(self, Self::Stale | Self::RateLimited | Self::OverBudget)
    }
}
