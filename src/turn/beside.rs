//! Work that goes on beside a turn, and reports to it. The turn knows this interface only: it hears what has come in before
//! each request, and while a report is missing no text is its answer.

use super::Turn;
use super::ending::Tally;
use crate::error::Stop;
use crate::event::Event;
use crate::message::{Message, Reply};
use anyhow::Result;

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

impl Turn<'_, '_, '_> {
    /// Whether something beside the turn has yet to report.
    pub(super) fn is_accompanied(&self) -> bool {
        self.agent.beside.is_some_and(Beside::is_open)
    }

    /// Take in what has come; with `wait`, until everything beside the turn has reported.
    pub(super) fn hear(&mut self, wait: bool) -> Result<()> {
        while let Some(beside) = self.agent.beside
            && let Some(news) = beside.news(wait)?
        {
            match news {
                News::Said { call, text } => (self.sink)(Event::ToolOutput {
                    call: &call,
                    text: &text,
                })?,
                News::Notice(text) => (self.sink)(Event::Notice(&text))?,
                News::Report(Report { mark, words, tally }) => {
                    self.tally.take_in(tally);
                    self.add(words, &mark)?;
                }
            }
        }
        Ok(())
    }

    /// `reply` has no calls while reports are missing: it is no answer. All of them are waited for, and not each one: whoever
    /// calls nothing has nothing else to do, and each request sends the conversation once more.
    pub(super) fn await_reports(&mut self, reply: &Reply) -> Result<()> {
        if !reply.is_blank() {
            self.session.push(Message::Assistant(reply.clone()))?;
            self.tell(reply, false)?;
        }
        self.hear(true)
    }

    /// End what goes on beside the turn.
    pub(super) fn dismiss(&mut self) {
        if let Some(beside) = self.agent.beside {
            beside.stop();
        }
    }

    /// The turn is over: what was reported too late to be sent is on record all the same, also where nobody is left to tell.
    pub(super) fn leave(&mut self) -> Result<()> {
        let mut told = Ok(());
        while self.is_accompanied() {
            let heard = self.hear(false);
            told = told.and(heard);
        }
        told
    }
}
