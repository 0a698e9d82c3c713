//! The conversation log: open, lock, repair, push.
//!
//! One file for a conversation, in the format of nanobot 0.1.4, and only ever appended to. A turn holds the kernel's lock
//! on a side file; an append holds one on the log for its microseconds. Every line is complete at any instant but the
//! last, and the last is mended when the log is opened: that is the whole of recovery.

use crate::history::compaction::Compaction;
use crate::history::ends::ends;
use crate::history::{self, ageing};
use crate::message::token_estimate;
use crate::message::{Message, Part, ToolResult, plain_text};
use crate::sys::{secret, store};
use anyhow::Result;
use integrity::end_of_last_line;
use line::Closing;
use log::Log;
use std::borrow::Cow;
use std::time::Duration;
use tail::Tail;

pub mod consolidation;
mod copy;
mod files;
mod find;
mod integrity;
mod kept;
mod line;
mod list;
mod lock;
mod log;
mod needle;
mod place;
mod repair;
mod tail;
mod trash;

pub use copy::{fork, rename};
pub use files::{Entry, Logged, entries, last_entries, raw};
pub use find::{Found, find};
pub use kept::Stats;
pub use list::{Listing, Summary, list, look};
pub use needle::{FoundLine, Needle};
pub use place::{Place, Sync};
pub use repair::{Finding, every, repair};
pub use trash::{Discarded, discard, empty_trash, prune, remove, restore, trash};

/// A conversation, as far as it is sent, and its log.
#[derive(Debug)]
pub struct Session {
    key: String,
    turn: String,
    messages: Vec<Message>,
    /// Tokens of the messages, as we estimate them.
    weight: u64,
    /// What stands for the messages before those, and is the first of them.
    summary: Option<Compaction>,
    outline: Outline,
    /// Its last turn has ended, as the log says.
    closed: bool,
    /// Characters that are kept of a tool result.
    result_limit: usize,
    /// `None` for a conversation that is not kept.
    log: Option<Log>,
}

/// Which part of a log is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outline {
    /// How many messages the log has.
    pub count: usize,
    /// How many of them are consolidated.
    pub consolidated: usize,
    /// The number of the first message that is sent as it is.
    pub start: usize,
    /// Messages before this one are sent with their long results shortened.
    pub aged: usize,
    /// Tokens that the provider counted for one of ours, as of the last reply; `None` before the first.
    pub ratio: Option<f64>,
}

impl Session {
    /// Open the session `key` for a turn: lock it, mend its end, read what is to be sent. A session that does not exist
    /// is made by its first message.
    ///
    /// # Errors
    /// Status 75 when another run keeps it for longer than `wait`.
    pub fn open(
        place: &Place,
        key: &str,
        wait: Duration,
        notice: &mut dyn FnMut(&str),
    ) -> Result<Self> {
        let (log, tail) = loop {
            let (path, exists) = place.home_of(key)?;
            let opened = Log::open(place, key, path.clone(), wait, notice)?;
            // Before we had the lock, another key of the same file name may have taken it.
            if exists || place.home_of(key)?.0 == path {
                break opened;
            }
        };
        let mut session = Self::of(key, tail, place.result_limit, Some(log));
        session.settle(notice)?;
        session.mend();
        Ok(session)
    }

    /// The session `key` as it is, for a turn that is not kept. Empty when there is none.
    pub fn read(place: &Place, key: &str, notice: &mut dyn FnMut(&str)) -> Result<Self> {
        let path = place.find(key)?;
        let Some(file) = store::open_existing(&path)? else {
            return Ok(Self::of(key, Tail::default(), place.result_limit, None));
        };
        let size = end_of_last_line(&file, &path)?;
        let tail = tail::read(&file, &path, size, place.window)?;
        tail.notices.iter().for_each(|text| notice(text));
        let mut session = Self::of(key, tail, place.result_limit, None);
        session.mend();
        Ok(session)
    }

    /// The same under another key.
    #[must_use]
    pub fn under(self, key: &str) -> Self {
        Self {
            key: key.to_owned(),
            ..self
        }
    }

    /// A conversation without a past that is not kept.
    pub fn ephemeral(key: &str, result_limit: usize) -> Self {
        Self::of(key, Tail::default(), result_limit, None)
    }

    /// As the tail of its log has it.
    fn of(key: &str, tail: Tail, result_limit: usize, log: Option<Log>) -> Self {
        let kept = tail.metadata.kept();
        let is_compaction = tail.metadata.is_compaction;
        let outline = Outline {
            count: tail.count,
            consolidated: tail.metadata.last_consolidated,
            start: tail.start,
            aged: tail.aged,
            ratio: kept.ratio,
        };
        let summary = tail.summary.as_ref().map(Compaction::message);
        Self {
            key: key.to_owned(),
            turn: String::new(),
            messages: summary.into_iter().chain(tail.messages).collect(),
            weight: 0,
            summary: tail.summary,
            outline,
            closed: tail.is_closed && !is_compaction,
            result_limit,
            log,
        }
    }

    /// Let what is sent pair up, and weigh it.
    fn mend(&mut self) {
        self.messages = history::sendable(std::mem::take(&mut self.messages));
        self.weight = token_estimate::of_messages(&self.messages);
    }

    pub fn key(&self) -> &str {
        &self.key
    }

    /// Whether it has a log.
    pub fn is_kept(&self) -> bool {
        self.log.is_some()
    }

    /// The id of the running turn; empty before [`Self::begin`].
    pub fn turn(&self) -> &str {
        &self.turn
    }

    /// What is sent: the window of the log, mended, and what has been pushed since.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Tokens of what is sent, as we estimate them.
    pub fn weight(&self) -> u64 {
        self.weight
    }

    /// Which part of the log is sent.
    pub fn outline(&self) -> Outline {
        Outline {
            count: self
                .log
                .as_ref()
                .map_or(self.outline.count, |log| log.count),
            ..self.outline
        }
    }

    /// What stands for the messages that were compacted.
    pub fn summary(&self) -> Option<&Compaction> {
        self.summary.as_ref()
    }

    /// The provider counted `ratio` tokens for one that we had estimated.
    pub fn measured(&mut self, ratio: f64) {
        // Beyond these the provider counts something else; what is kept is short.
        let ratio = (ratio.clamp(0.25, 4.0) * 100.0).round() / 100.0;
        self.outline.ratio = Some(ratio);
    }

    /// A turn begins: what is pushed from now on carries its id. Pictures of earlier turns are not sent again.
    pub fn begin(&mut self, turn: &str) {
        turn.clone_into(&mut self.turn);
        for message in &mut self.messages {
            if let Message::User(user) = message
                && user.parts.iter().any(|part| !matches!(part, Part::Text(_)))
            {
                self.weight -= token_estimate::of_message(&Message::User(user.clone()));
                user.parts = vec![Part::Text(plain_text(&user.parts))];
                self.weight += token_estimate::of_message(&Message::User(user.clone()));
            }
        }
    }

    /// Send the long results among the first `count` messages shortened, from now on; whether there were any. The log
    /// keeps them whole.
    pub fn age(&mut self, count: usize) -> bool {
        let mut any = false;
        for message in &mut self.messages[..count] {
            let before = token_estimate::of_message(message);
            if ageing::shorten(message) {
                any = true;
                self.weight = self.weight - before + token_estimate::of_message(message);
            }
        }
        let younger = self.messages.len() - count;
        let aged = self.outline().count.saturating_sub(younger);
        self.outline.aged = aged.max(self.outline.aged);
        any
    }

    /// Let `summary` stand for all messages but the last `keep`, which are of this turn. The log keeps everything; the summary is one more line in it.
    pub fn compact(&mut self, keep: usize, summary: Compaction) -> Result<()> {
        let from = self.outline().count.saturating_sub(keep);
        let summary = Compaction { from, ..summary };
        if let Some(log) = self.log.as_mut().filter(|log| log.file.is_some()) {
            let closing = Closing {
                turn: &self.turn,
                ending: line::COMPACTED,
                summary: Some(&summary),
            };
            log.close(&self.key, &closing, &|_, _| {})?;
        }
        let tail = self.messages.split_off(self.messages.len() - keep);
        self.messages = [summary.message()].into_iter().chain(tail).collect();
        self.weight = token_estimate::of_messages(&self.messages);
        self.outline.start = from;
        self.summary = Some(summary);
        Ok(())
    }

    /// Log `message`, then remember it. A long tool result is cut first, so that log and memory agree.
    pub fn push(&mut self, mut message: Message) -> Result<()> {
        match &mut message {
            Message::Tool(result) => cut(result, self.result_limit),
            // What is called is called with what was said; what is kept of it holds no key of ours.
            Message::Assistant(reply) => {
                for call in &mut reply.calls {
                    if let Cow::Owned(clean) = secret::mask_json(&call.arguments) {
                        call.arguments = clean;
                    }
                }
            }
            Message::User(_) => {}
        }
        match &mut self.log {
            Some(log) => {
                let line = line::of_message(&message, &self.turn, &log.clock.stamp());
                log.append(&self.key, 1, |_| line.clone())?;
            }
            None => self.outline.count += 1,
        }
        self.weight += token_estimate::of_message(&message);
        self.messages.push(message);
        Ok(())
    }

    /// Answer the calls at the end that have no result. It is written down, so that the Python program too can send this
    /// conversation.
    pub fn settle(&mut self, notice: &mut dyn FnMut(&str)) -> Result<()> {
        for lost in history::unanswered(&self.messages) {
            notice(&format!(
                "a call of `{}` was interrupted; it may or may not have happened",
                lost.name
            ));
            self.push(Message::Tool(lost))?;
        }
        Ok(())
    }

    /// The turn is over: write its closing line, and bring everything to the disk.
    pub fn close(&mut self, ending: &str, stats: &Stats) -> Result<()> {
        let Outline { aged, ratio, .. } = self.outline;
        let closing = Closing {
            turn: &self.turn,
            ending,
            summary: None,
        };
        match &mut self.log {
            Some(log) if log.file.is_some() => log.close(&self.key, &closing, &|metadata, _| {
                metadata.change(|kept| {
                    kept.stats.add(stats);
                    (kept.aged, kept.ratio) = (aged, ratio);
                });
            }),
            _ => Ok(()),
        }
    }

    /// Send nothing of what was said so far. It stays in the log.
    pub fn start_afresh(&mut self) -> Result<()> {
        self.messages.clear();
        (self.weight, self.summary) = (0, None);
        let count = self.outline().count;
        (self.outline.consolidated, self.outline.start) = (count, count);
        let closing = Closing {
            turn: &self.turn,
            ending: "new",
            summary: None,
        };
        match &mut self.log {
            Some(log) if log.file.is_some() => {
                log.close(&self.key, &closing, &|metadata, count| {
                    let left = (metadata.last_consolidated, count);
                    if left.0 < left.1 {
                        metadata.change(|kept| kept.left.push(left));
                    }
                    metadata.consolidated(count);
                    metadata.summary_at = None;
                })
            }
            _ => Ok(()),
        }
    }

    /// Send of what was said so far the last turn alone, from now on. The log keeps the rest, of which no memory is made.
    pub fn keep_last_turn(&mut self) -> Result<()> {
        let begins = |message: &Message| matches!(message, Message::User(user) if !user.injected);
        let Some(at) = self.messages.iter().rposition(begins) else {
            return Ok(());
        };
        if at == 0 {
            return Ok(());
        }
        self.messages.drain(..at);
        self.weight = token_estimate::of_messages(&self.messages);
        self.summary = None;
        let from = self.outline().count.saturating_sub(self.messages.len());
        (self.outline.consolidated, self.outline.start) = (from, from);
        let closing = Closing {
            turn: &self.turn,
            ending: "new",
            summary: None,
        };
        match &mut self.log {
            Some(log) if log.file.is_some() => log.close(&self.key, &closing, &|metadata, _| {
                metadata.consolidated(from);
                metadata.summary_at = None;
            }),
            _ => Ok(()),
        }
    }

    /// Whether its last turn stopped in the middle.
    pub fn interrupted(&self) -> bool {
        let is_summary = self.messages.len() == 1 && self.summary.is_some();
        match is_summary {
            true => !self.closed,
            false => history::is_interrupted(&self.messages),
        }
    }
}

/// Keep the beginning and the end of a result that is longer than `limit` characters.
fn cut(result: &mut ToolResult, limit: usize) {
    let text_only = result
        .parts
        .iter()
        .all(|part| matches!(part, Part::Text(_)));
    if !text_only {
        return;
    }
    let gap = |count: usize| format!("[… {count} characters left out …]");
    let text = plain_text(&result.parts);
    let Some(cut) = ends(&text, limit - limit / 4, limit / 4, gap) else {
        return;
    };
    result.parts = vec![Part::Text(cut)];
}

#[cfg(test)]
mod tests {
    use super::cut;
    use crate::message::{Part, ToolResult, plain_text};

    #[test]
    fn long_results_keep_both_ends() {
        let check = |text: &str, limit: usize, expect: &str| {
            let parts = vec![Part::Text(text.into())];
            let mut result = ToolResult {
                call: String::new(),
                name: String::new(),
                parts,
                failed: false,
            };
            cut(&mut result, limit);
            assert_eq!(plain_text(&result.parts), expect);
        };
        check("short", 8, "short");
        check("12345678", 8, "12345678");
        check("123456789", 8, "123456\n[… 1 characters left out …]\n89");
        check("éééééééééé", 4, "ééé\n[… 6 characters left out …]\né");
    }
}
