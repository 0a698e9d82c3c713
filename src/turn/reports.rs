//! Takes in the reports of background work before each request. A turn has no answer while a report is pending.

use super::Turn;
use super::beside::{Beside, News, Report};
use crate::event::Event;
use crate::message::{Message, Reply};
use anyhow::Result;

impl Turn<'_, '_, '_> {
    /// Whether something beside the turn has yet to report.
    pub(super) fn has_pending_reports(&self) -> bool {
        self.agent.beside.is_some_and(Beside::is_open)
    }

    /// Take in what has come; with `wait`, until everything beside the turn has reported.
    pub(super) fn poll_background(&mut self, wait: bool) -> Result<()> {
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
    pub(super) fn wait_for_reports(&mut self, reply: &Reply) -> Result<()> {
        if !reply.is_blank() {
            self.session.push(Message::Assistant(reply.clone()))?;
            self.tell(reply, false)?;
        }
        self.poll_background(true)
    }

    /// End what goes on beside the turn.
    pub(super) fn stop_background(&mut self) {
        if let Some(beside) = self.agent.beside {
            beside.stop();
        }
    }

    /// The turn is over: what was reported too late to be sent is on record all the same, also where nobody is left to tell.
    pub(super) fn drain_reports(&mut self) -> Result<()> {
        let mut told = Ok(());
        while self.has_pending_reports() {
            let heard = self.poll_background(false);
            told = told.and(heard);
        }
        told
    }
}
