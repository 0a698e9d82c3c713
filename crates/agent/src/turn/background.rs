//! The interface between a turn and background work that reports to it.

use super::ending::TurnStats;
use nanobot_base::error::Stop;

/// Background work of a turn.
pub trait BackgroundTasks {
    /// Returns the next event. With `wait`, blocks until there is one; `None` then means that all work has ended. Without
    /// `wait`, `None` means that there is none yet.
    ///
    /// # Errors
    /// The errors of [`nanobot_os::signal::check`], only with `wait`.
    fn next_event(&self, wait: bool) -> Result<Option<BackgroundEvent>, Stop>;

    /// True if a report is pending.
    fn has_pending_reports(&self) -> bool;

    /// Stops all work and waits until it has ended. Its reports arrive as events.
    fn stop(&self);
}

/// A message from background work.
#[derive(Debug)]
pub enum BackgroundEvent {
    /// A line of progress output of the work that the tool call `call_id` started.
    Progress {
        call_id: String,
        text: String,
    },
    Notice(String),
    Report(BackgroundReport),
}

/// The final report of background work.
#[derive(Debug)]
pub struct BackgroundReport {
    /// Suffix of the id of the message that it becomes.
    pub id_suffix: String,
    /// The text of that message, for the model.
    pub text: String,
    /// Its cost and tool calls.
    pub stats: TurnStats,
}
