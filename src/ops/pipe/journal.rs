//! The journal of a named pipe: messages and answers on disk, so that each id is answered once, even after a crash.
//!
//! A message is on disk before it is queued, the turn's id before the turn begins, and the answer before it is printed.
//! The key of an answer is the id of its message.

use super::message::PipeMessage;
use crate::ops::channel::persona::Persona;
use crate::ops::context::Context;
use crate::ops::inbound::answer::MAX_ATTEMPTS;
use crate::ops::inbound::turn_recovery::{self, EarlierTurn};
use crate::ops::retention::inbox_ages;
use anyhow::Result;
use nanobot_base::message::user_text::UserText;
use nanobot_channel::inbox::{ChannelInbox, InboundEntry, InboxRecord, OutboundMessage};
use nanobot_channel::settlement::Settlement;
use nanobot_channel::{InboundMessage, Part};
use nanobot_config::settings::Settings;
use nanobot_os::durable_file;
use nanobot_os::file_lock::FileLock;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::time::Duration;

/// The journal of a pipe, which this process has locked.
pub(super) struct PipeJournal<'a> {
    ctx: &'a Context,
    settings: Settings,
    inbox: Mutex<ChannelInbox>,
    _lock: FileLock,
}

/// The journal's answer to a message whose turn is about to begin.
pub(super) enum EarlierAnswer {
    /// The line of the answer, without its line break. It may have been printed.
    Stored(String),
    /// The state of the turns that were begun for the message.
    Turn(EarlierTurn),
    /// Several turns were killed.
    GivenUp,
}

impl<'a> PipeJournal<'a> {
    /// Opens the journal of the pipe `name`, which is created if it is missing.
    ///
    /// # Errors
    /// Status 75 if another process has it, 74 if it cannot be read and written.
    pub(super) fn open(ctx: &'a Context, name: &str) -> Result<Self> {
        let directory = ctx.paths.pipes().join(name);
        durable_file::create_dir(&directory)?;
        let lock = FileLock::acquire(
            &directory.join("lock"),
            &format!("the pipe `{name}`"),
            Some(&ctx.clock.local_timestamp()),
            Duration::ZERO,
            &mut |_| {},
        )?;
        let settings = ctx.settings()?;
        let mut inbox = ChannelInbox::open(&directory)?;
        let now = ctx.clock.timestamp().as_millisecond();
        inbox.compact_if_due(now, inbox_ages(&settings.retention), true)?;
        Ok(Self { ctx, settings, inbox: Mutex::new(inbox), _lock: lock })
    }

    /// Ids and lines of answers that an earlier run stored and possibly did not print.
    pub(super) fn unprinted(&self) -> Vec<(Value, String)> {
        let inbox = self.inbox.lock();
        let ids = inbox.state().undelivered().map(|entry| &entry.message.key);
        ids.filter_map(|id| Some((to_id(id), stored_answer(&inbox, id)?))).collect()
    }

    /// Messages that an earlier run did not answer.
    pub(super) fn unanswered(&self) -> Vec<PipeMessage> {
        let inbox = self.inbox.lock();
        inbox.state().unanswered().map(to_message).collect()
    }

    /// Stores a message. If its id was stored before, the stored message is returned, so that its session is the same.
    ///
    /// # Errors
    /// Status 74.
    pub(super) fn store_message(&self, message: PipeMessage) -> Result<PipeMessage> {
        let id = &journal_key(&message.id);
        let mut inbox = self.inbox.lock();
        if inbox.state().outbound(id).is_some() {
            return Ok(message);
        }
        if let Some(entry) = inbox.state().inbound(id) {
            return Ok(to_message(entry));
        }
        inbox.append(InboxRecord::In {
            message: InboundMessage {
                id: id.to_owned(),
                text: UserText::label(message.text.as_str()),
                reply_facts: json!({
                    "facts": message.facts,
                    "files": message.files,
                    "approve": message.approve,
                }),
                ..InboundMessage::default()
            },
            session: message.session.clone(),
            at: self.now(),
        })?;
        Ok(message)
    }

    /// Records that `turn` begins in the session with the key `session`, unless the message already has an answer.
    ///
    /// # Errors
    /// Status 74, or the session cannot be read.
    pub(super) fn begin_turn(
        &self,
        message: &PipeMessage,
        session: &str,
        turn: &str,
    ) -> Result<EarlierAnswer> {
        let id = &journal_key(&message.id);
        let (turns, killed_turns) = {
            let inbox = self.inbox.lock();
            if let Some(line) = stored_answer(&inbox, id) {
                return Ok(EarlierAnswer::Stored(line));
            }
            let entry = inbox.state().inbound(id);
            entry.map(|entry| (entry.turns.clone(), entry.killed_turns())).unwrap_or_default()
        };
        let earlier_turn = if turns.is_empty() {
            EarlierTurn::NotResumable
        } else {
            // A binding that cannot be used is reported when the turn is to begin.
            match Persona::of_session(self.ctx, session) {
                Ok(Some(persona)) => {
                    turn_recovery::find(&persona.ctx, &persona.settings, session, &turns)?.state
                }
                Ok(None) => turn_recovery::find(self.ctx, &self.settings, session, &turns)?.state,
                Err(_) => EarlierTurn::NotResumable,
            }
        };
        if matches!(earlier_turn, EarlierTurn::Answered(..)) {
            return Ok(EarlierAnswer::Turn(earlier_turn));
        }
        if killed_turns >= MAX_ATTEMPTS {
            return Ok(EarlierAnswer::GivenUp);
        }
        self.append_turn(id, turn, false)?;
        Ok(EarlierAnswer::Turn(earlier_turn))
    }

    /// Records that `turn` has ended without an answer: the sender repeats the message.
    ///
    /// # Errors
    /// Status 74.
    pub(super) fn end_turn(&self, message: &PipeMessage, turn: &str) -> Result<()> {
        self.append_turn(&journal_key(&message.id), turn, true)
    }

    fn append_turn(&self, id: &str, turn: &str, ended: bool) -> Result<()> {
        self.inbox.lock().append(InboxRecord::Turn {
            ids: vec![id.to_owned()],
            turn: turn.to_owned(),
            at: self.now(),
            ended,
        })
    }

    /// Stores the line of an answer, which may then be printed.
    ///
    /// # Errors
    /// Status 74.
    pub(super) fn store_answer(&self, message: &PipeMessage, line: &str) -> Result<()> {
        let id = &journal_key(&message.id);
        self.inbox.lock().append(InboxRecord::Out(OutboundMessage {
            key: id.to_owned(),
            answers: vec![id.to_owned()],
            session: message.session.clone(),
            parts: vec![Part { plain: line.to_owned(), ..Part::default() }],
            at: self.now(),
            ..OutboundMessage::default()
        }))
    }

    /// Records that an answer was printed.
    ///
    /// # Errors
    /// Status 74.
    pub(super) fn settle(&self, id: &Value) -> Result<()> {
        let id = &journal_key(id);
        let mut inbox = self.inbox.lock();
        let answer = inbox.state().outbound(id);
        if answer.is_none_or(|entry| entry.settlement.is_some()) {
            return Ok(());
        }
        inbox.append(InboxRecord::Done { key: id.to_owned(), result: Settlement::Delivered })?;
        inbox.compact_if_due(self.now(), inbox_ages(&self.settings.retention), true)
    }

    fn now(&self) -> i64 {
        self.ctx.clock.timestamp().as_millisecond()
    }
}

/// The start of the keys of ids that are numbers: `1` is another id than the text `"1"`.
const NUMBER_MARK: &str = "number:";

/// The key of a message and its answer. A journal takes no message without an id.
pub(super) fn journal_key(id: &Value) -> String {
    match id {
        Value::String(text) => text.clone(),
        number => format!("{NUMBER_MARK}{number}"),
    }
}

/// The id with this key.
fn to_id(key: &str) -> Value {
    let number = key.strip_prefix(NUMBER_MARK).and_then(|digits| digits.parse().ok());
    number.map_or_else(|| Value::from(key), Value::Number)
}

fn stored_answer(inbox: &ChannelInbox, id: &str) -> Option<String> {
    let entry = inbox.state().outbound(id)?;
    Some(entry.message.parts.first()?.plain.clone())
}

fn to_message(entry: &InboundEntry) -> PipeMessage {
    let InboundMessage { id, text, reply_facts, .. } = &entry.message;
    let files = reply_facts["files"].as_array().into_iter().flatten();
    PipeMessage {
        id: to_id(id),
        session: entry.session.clone(),
        text: text.as_str().to_owned(),
        files: files.filter_map(|path| Some(path.as_str()?.into())).collect(),
        approve: reply_facts["approve"].as_str().map(str::to_owned),
        facts: reply_facts["facts"].clone(),
    }
}
