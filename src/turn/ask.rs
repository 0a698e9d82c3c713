//! One request of a turn: sending it, retrying when it is too long, objecting to an invalid answer, counting its cost.

use super::Turn;
use super::agent::Agent;
use super::compact::Made;
use super::ending::{Tally, objection};
use crate::event::Sink;
use crate::message::{Message, Part, Reply, Usage, User};
use crate::provider::{Delta, ProviderError};
use crate::session::Session;
use anyhow::Result;
use std::borrow::Cow;
use std::time::Instant;

impl<'a, 'b, 's> Turn<'a, 'b, 's> {
    /// Creates a turn that has not made a request yet.
    pub(super) fn new(
        agent: &'a mut Agent<'b>,
        session: &'a mut Session,
        sink: &'a mut Sink<'s>,
    ) -> Self {
        Self {
            overhead: agent.weight(),
            agent,
            session,
            sink,
            tally: Tally::default(),
            heard: String::new(),
            summaries: 0,
            full: false,
        }
    }

    /// Sends one request, and shortens the conversation if the server rejects it as too long. `closing_message` ends
    /// the turn: it is sent as the last message, and tool calls are not allowed.
    pub(super) fn ask(&mut self, closing: Option<&str>) -> Result<Reply> {
        self.tally.iterations += 1;
        let mut made = Made::default();
        loop {
            match self.ask_once(closing) {
                Err(ProviderError::TooLong(_)) if self.make_fit(&mut made)? => {}
                answer => return answer.map_err(ProviderError::into_failure),
            }
        }
    }

    /// Tells the model what is wrong with its answer, so that it answers again.
    pub(super) fn object(&mut self, reply: &Reply, wrong: &str, round: u32) -> Result<()> {
        self.session.push(Message::Assistant(reply.clone()))?;
        self.tell(reply, false)?;
        self.add(objection(wrong), &format!("r{round}"))
    }

    fn ask_once(&mut self, closing: Option<&str>) -> Result<Reply, ProviderError> {
        let id = format!("{}-{}", self.session.turn(), self.tally.iterations);
        let may_call = closing.is_none();
        let mut messages = Cow::Borrowed(self.session.messages());
        if let Some(words) = closing {
            messages.to_mut().push(Message::User(User {
                parts: vec![Part::Text(words.to_owned())],
                injected: true,
                ..User::default()
            }));
        }
        let request = self.agent.request(&messages, may_call, &id);
        let before = std::mem::take(&mut self.heard);
        let mut tell = |delta: Delta<'_>| {
            if let Delta::Text(text) = delta {
                self.heard.push_str(text);
            }
            (self.sink)(delta.event(&id))
        };
        let started = Instant::now();
        let answer = self.agent.provider.reply(&request, &mut tell);
        if matches!(answer, Err(ProviderError::Spent(_))) {
            // No request was sent, so the text of the previous reply remains the partial answer.
            self.heard = before;
        }
        let reply = answer?;
        let Usage {
            input, estimated, ..
        } = reply.usage;
        if input > 0 && !estimated {
            self.session.measured(input as f64 / self.estimate() as f64);
        }
        self.tally.asking += started.elapsed();
        self.tally.pay(&reply);
        self.tally.model.clone_from(&reply.model);
        Ok(reply)
    }
}
