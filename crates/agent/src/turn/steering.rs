//! Messages that the user sends into the running turn: they are added before its next request.

use super::Turn;
use anyhow::Result;
use nanobot_base::event::Event;
use nanobot_base::message::{Message, STEERING_SUFFIX, UserMessage};

impl Turn<'_, '_, '_> {
    /// Adds the messages that the user has sent into the turn since its last request.
    pub(super) fn accept_steering(&mut self) -> Result<()> {
        let Some(next_message) = self.agent.steering.filter(|_| self.stats.iterations > 0) else {
            return Ok(());
        };
        while let Some(message) = next_message() {
            self.steering_count += 1;
            let mark = format!("{STEERING_SUFFIX}{}", self.steering_count);
            let user = UserMessage { id: format!("{}-{mark}", self.session.turn()), ..message };
            self.session.push(Message::User(user.clone()))?;
            (self.sink)(Event::User(&user))?;
        }
        Ok(())
    }
}
