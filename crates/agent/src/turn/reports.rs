//! Receives the reports of background work before each request. A turn has no answer while a report is pending.

use super::Turn;
use super::background::{BackgroundEvent, BackgroundReport, BackgroundTasks};
use anyhow::Result;
use nanobot_base::event::Event;
use nanobot_base::message::{Message, Reply};

impl Turn<'_, '_, '_> {
    /// True if a report of background work is pending.
    pub(super) fn has_pending_reports(&self) -> bool {
        self.agent.background.is_some_and(BackgroundTasks::has_pending_reports)
    }

    /// Processes the events that have arrived. With `wait`, continues until all background work has reported.
    pub(super) fn poll_background(&mut self, wait: bool) -> Result<()> {
        while let Some(background) = self.agent.background
            && let Some(event) = background.next_event(wait)?
        {
            match event {
                BackgroundEvent::Progress { call_id, text } => {
                    (self.sink)(Event::ToolOutput { call_id: &call_id, text: &text })?;
                }
                BackgroundEvent::Notice(text) => (self.sink)(Event::Notice(&text))?,
                BackgroundEvent::Report(BackgroundReport { id_suffix, text, stats }) => {
                    self.stats.merge(stats);
                    self.inject_message(text, &id_suffix)?;
                }
            }
        }
        Ok(())
    }

    /// Handles a `reply` without calls while reports are pending. It is therefore not the answer. Waits for all
    /// reports rather than the next one: the model has nothing else to do, and each request sends the whole
    /// conversation again.
    pub(super) fn wait_for_reports(&mut self, reply: &Reply) -> Result<()> {
        if !reply.is_blank() {
            self.session.push(Message::Assistant(reply.clone()))?;
            self.emit_reply(reply, false)?;
        }
        self.poll_background(true)
    }

    /// Stops the background work.
    pub(super) fn stop_background(&mut self) {
        if let Some(background) = self.agent.background {
            background.stop();
        }
    }

    /// Logs the reports that arrive after the last request, even if the sink fails.
    pub(super) fn drain_reports(&mut self) -> Result<()> {
        let mut result = Ok(());
        while self.has_pending_reports() {
            let polled = self.poll_background(false);
            result = result.and(polled);
        }
        result
    }
}
