//! The interface between a turn and background work that reports to it.

use super::ending::Tally;
use crate::error::Stop;

/// Background work of a turn.
pub trait Beside {
    /// Returns the next news. With `wait`, blocks until there is some; `None` then means that all work has ended.
    /// Without `wait`, `None` means that there is nothing yet.
    ///
    /// # Errors
    /// Like [`crate::sys::signal::check`], and only with `wait`.
    fn news(&self, wait: bool) -> Result<Option<News>, Stop>;

    /// True if a report is pending.
    fn is_open(&self) -> bool;

    /// Stops all work and waits until it has ended. Its reports arrive as news.
    fn stop(&self);
}

/// A message from background work.
#[derive(Debug)]
pub enum News {
    /// A line of progress output of the work that the tool call `call_id` started.
    Said {
        call: String,
        text: String,
    },
    Notice(String),
    Report(Report),
}

/// The final report of a piece of work.
#[derive(Debug)]
pub struct Report {
    /// Suffix of the id of the message that it becomes.
    pub mark: String,
    /// The text of that message, for the model.
    pub words: String,
    /// Its cost and tool calls.
    pub tally: Tally,
}
