//! When a job runs.

use super::expression::Expression;
use jiff::Timestamp;
use std::time::Duration;

/// When a job runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// At the minutes of an expression, by the clock of a zone; `None` for the system's.
    Cron {
        expression: Expression,
        zone: Option<String>,
    },
    /// Each time this much has passed since the job was made.
    Every(Duration),
    /// Once.
    At(Timestamp),
}

/// What becomes of a time that was missed, because the machine was off or asleep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CatchUp {
    /// It is run later, once, however many times were missed.
    Once,
    #[default]
    None,
}
