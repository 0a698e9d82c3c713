//! The journal of a named pipe: its ids and answers outlast the process.
//!
//! A message is in it before its turn begins, the turn's id before the turn, the answer before it is written. So an id that
//! comes again gets the same answer without a model, and a killed run is taken up by the next one.

use super::message::PipeMessage;
use crate::channel::inbox::{BegunTurn, ChannelInbox, InboundEntry, InboxRecord, Settlement};
use crate::channel::{Destination, InboundMessage, Part};
use crate::error::{Exit, fail, fail_with_hint};
use crate::ops::context::Context;
use crate::sys::durable_file;
use crate::sys::file_lock::FileLock;
use crate::sys::sync::IgnorePoison;
use anyhow::Result;
use serde_json::json;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// The journal of one run, which no other run may use meanwhile.
pub(super) struct PipeJournal<'a> {
    ctx: &'a Context,
    inbox: Mutex<ChannelInbox>,
    _lock: FileLock,
}

/// The state of a message that has arrived.
pub(super) enum Arrival {
    /// It is to be answered.
    New,
    /// It waits for its turn, or is being answered.
    Waiting,
    /// Its answer, as it was written before.
    Answered(String),
}

impl<'a> PipeJournal<'a> {
    /// Opens the journal `name`, which is created if it is missing.
    ///
    /// # Errors
    /// Status 2 for an unusable name, 75 if another run uses the journal, 74 if it cannot be written.
    pub(super) fn open(ctx: &'a Context, name: &str) -> Result<Self> {
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
        if name.is_empty() || !name.chars().all(is_plain) {
            return Err(fail_with_hint(
                Exit::Usage,
                format!("`--name {name}` is not a name"),
                "letters, digits, `-` and `_`",
            ));
        }
        let directory = ctx.paths.pipes().join(name);
        durable_file::create_dir(&directory)?;
        let lock = FileLock::acquire(
            &directory.join("lock"),
            &format!("the pipe `{name}`"),
            &ctx.clock.local_timestamp(),
            Duration::ZERO,
            &mut |_| {},
        )?;
        let mut inbox = ChannelInbox::open(&directory)?;
        inbox.compact_if_large(ctx.clock.timestamp().as_millisecond(), true)?;
        Ok(Self {
            ctx,
            inbox: Mutex::new(inbox),
            _lock: lock,
        })
    }

    fn lock(&self) -> MutexGuard<'_, ChannelInbox> {
        self.inbox.lock().ignore_poison()
    }

    fn now(&self) -> i64 {
        self.ctx.clock.timestamp().as_millisecond()
    }

    /// The messages that an earlier run has not answered, in order.
    pub(super) fn unanswered(&self) -> Vec<PipeMessage> {
        let inbox = self.lock();
        let to_message = |entry: &InboundEntry| {
            let InboundMessage {
                id,
                text,
                reply_facts,
                ..
            } = &entry.message;
            let files = reply_facts["files"].as_array().into_iter().flatten();
            PipeMessage {
                id: id.as_str().into(),
                session: entry.session.clone(),
                text: text.clone(),
                files: files
                    .filter_map(|path| Some(path.as_str()?.into()))
                    .collect(),
                facts: reply_facts["facts"].clone(),
            }
        };
        inbox.state().unanswered().map(to_message).collect()
    }

    /// The answers that an earlier run may not have written, in order, with their keys.
    pub(super) fn unwritten(&self) -> Vec<(String, String)> {
        let inbox = self.lock();
        let entries = inbox.state().undelivered();
        let answers = entries.map(|entry| {
            let parts = entry.parts.iter();
            let lines: String = parts.map(|part| part.plain.as_str()).collect();
            (entry.key.clone(), lines)
        });
        answers.collect()
    }

    /// Stores a message, unless its id was received before.
    ///
    /// # Errors
    /// Status 65 for a message without an id, 74 if the journal cannot be written.
    pub(super) fn receive(&self, message: &PipeMessage) -> Result<Arrival> {
        let Some(id) = message.id.as_str() else {
            return Err(fail(
                Exit::BadInput,
                "`id` is missing, which `--name` needs",
            ));
        };
        let mut inbox = self.lock();
        if inbox.state().has_seen(id) {
            let mut answers = inbox.state().outbound.iter();
            let answer = answers.find(|entry| entry.answers.iter().any(|it| it == id));
            let text = answer.map(|entry| entry.parts.iter().map(|part| part.plain.as_str()));
            return Ok(text.map_or(Arrival::Waiting, |parts| Arrival::Answered(parts.collect())));
        }
        let files = message.files.iter().map(|path| path.to_string_lossy());
        let files: Vec<_> = files.collect();
        inbox.append(InboxRecord::In {
            message: InboundMessage {
                id: id.to_owned(),
                text: message.text.clone(),
                reply_facts: json!({ "facts": message.facts, "files": files }),
                ..InboundMessage::default()
            },
            session: message.session.clone(),
            at: self.now(),
        })?;
        Ok(Arrival::New)
    }

    /// The turns that were begun for a message.
    pub(super) fn begun_turns(&self, message: &PipeMessage) -> Vec<BegunTurn> {
        let inbox = self.lock();
        let id = message.id.as_str().unwrap_or_default();
        let entry = inbox.state().inbound(id);
        entry.map(|entry| entry.turns.clone()).unwrap_or_default()
    }

    /// Records that `turn` begins.
    ///
    /// # Errors
    /// Status 74.
    pub(super) fn begin(&self, message: &PipeMessage, turn: &str) -> Result<()> {
        self.lock().append(InboxRecord::Turn {
            ids: message.id.as_str().map(str::to_owned).into_iter().collect(),
            turn: turn.to_owned(),
            at: self.now(),
        })
    }

    /// Stores the answer of `turn`, before it is written.
    ///
    /// # Errors
    /// Status 74.
    pub(super) fn store_answer(
        &self,
        message: &PipeMessage,
        turn: &str,
        lines: &str,
    ) -> Result<()> {
        self.lock().append(InboxRecord::Out {
            key: turn.to_owned(),
            answers: message.id.as_str().map(str::to_owned).into_iter().collect(),
            session: message.session.clone(),
            destination: Destination::default(),
            parts: vec![Part {
                plain: lines.to_owned(),
                ..Part::default()
            }],
            at: self.now(),
        })
    }

    /// Records that the answer `key` was written.
    ///
    /// # Errors
    /// Status 74.
    pub(super) fn note_written(&self, key: &str) -> Result<()> {
        self.lock().append(InboxRecord::Done {
            key: key.to_owned(),
            result: Settlement::Delivered,
        })
    }
}
