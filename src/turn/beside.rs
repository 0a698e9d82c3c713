//! The interface of background work that reports to a turn.

use super::ending::Tally;
use crate::error::Stop;

/// Something that works beside a turn.
pub trait Beside {
    /// The next that has come in. With `wait` it is waited for, until all is over and `None` says so; else `None` is that
    /// there is nothing yet.
    ///
    /// # Errors
    /// As [`crate::sys::signal::check`], and only with `wait`.
    fn news(&self, wait: bool) -> Result<Option<News>, Stop>;

    /// Whether a report has yet to be heard.
    fn is_open(&self) -> bool;

    /// End all of it, and wait until it has ended. What there is to report of it is news.
    fn stop(&self);
}

/// What comes from there.
#[derive(Debug)]
pub enum News {
    /// A line about what goes on, as the tool call `call` began it.
    Said {
        call: String,
        text: String,
    },
    Notice(String),
    Report(Report),
}

/// The last word of a piece of work.
#[derive(Debug)]
pub struct Report {
    /// The end of the id of the message that it becomes.
    pub mark: String,
    /// That message, for the model.
    pub words: String,
    /// What it cost, and what was done.
    pub tally: Tally,
}
