//! Session logs: open, lock, repair, append.
//!
//! Each session is one append-only file in the format of nanobot 0.1.4. A turn holds a kernel lock on a side file; each
//! append locks the log itself for microseconds. Every line but the last is complete at any time, and the last is
//! repaired when the log is opened: no other recovery is needed.

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

/// A session: the messages that are sent, and the log.
#[derive(Debug)]
pub struct Session {
    key: String,
    turn: String,
    messages: Vec<Message>,
    /// Estimated tokens of the messages.
    weight: u64,
    /// The summary of the compacted messages; if present, it is the first message.
    summary: Option<Compaction>,
    outline: Outline,
    /// True if the log says that the last turn has ended.
    closed: bool,
    /// Maximum characters of a stored tool result.
    result_limit: usize,
    /// `None` for an ephemeral session.
    log: Option<Log>,
}

/// The part of a log that is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outline {
    /// Number of messages in the log.
    pub count: usize,
    /// Number of messages, from the first, that are consolidated.
    pub consolidated: usize,
    /// Index of the first message that is sent verbatim.
    pub start: usize,
    /// Messages before this index are sent with long tool results shortened.
    pub aged: usize,
    /// Provider-counted tokens per estimated token, as of the last reply; `None` before the first.
    pub ratio: Option<f64>,
}

impl Session {
    /// Opens the session `key` for a turn: locks it, repairs its end, and reads the messages to send. The file of a new
    /// session is created with its first message.
    ///
    /// # Errors
    /// Status 75 if another run holds the lock for longer than `wait`.
    pub fn open(
        place: &Place,
        key: &str,
        wait: Duration,
        notice: &mut dyn FnMut(&str),
    ) -> Result<Self> {
        let (log, tail) = loop {
            let (path, exists) = place.home_of(key)?;
            let opened = Log::open(place, key, path.clone(), wait, notice)?;
            // Before the lock was taken, another key that maps to the same file name may have created the file.
            if exists || place.home_of(key)?.0 == path {
                break opened;
            }
        };
        let mut session = Self::of(key, tail, place.result_limit, Some(log));
        session.settle(notice)?;
        session.mend();
        Ok(session)
    }

    /// Reads the session `key` without locking it, for a turn that is not stored. Empty if there is no such session.
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

    /// The same session under another key.
    #[must_use]
    pub fn under(self, key: &str) -> Self {
        Self {
            key: key.to_owned(),
            ..self
        }
    }

    /// Creates an empty session that is not stored.
    pub fn ephemeral(key: &str, result_limit: usize) -> Self {
        Self::of(key, Tail::default(), result_limit, None)
    }

    /// Builds a session from the tail of its log.
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

    /// Pairs up calls and results in the messages to send, and estimates their tokens.
    fn mend(&mut self) {
        self.messages = history::sendable(std::mem::take(&mut self.messages));
        self.weight = token_estimate::of_messages(&self.messages);
    }

    /// The session's key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// True if it has a log.
    pub fn is_kept(&self) -> bool {
        self.log.is_some()
    }

    /// The id of the running turn; empty before [`Self::begin_turn`].
    pub fn turn(&self) -> &str {
        &self.turn
    }

    /// The messages to send: the repaired window of the log, and the messages pushed since.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Estimated tokens of the messages to send.
    pub fn weight(&self) -> u64 {
        self.weight
    }

    /// The part of the log that is sent.
    pub fn outline(&self) -> Outline {
        Outline {
            count: self
                .log
                .as_ref()
                .map_or(self.outline.count, |log| log.count),
            ..self.outline
        }
    }

    /// The summary of the compacted messages.
    pub fn summary(&self) -> Option<&Compaction> {
        self.summary.as_ref()
    }

    /// Stores the ratio of provider-counted tokens to our estimate.
    pub fn measured(&mut self, ratio: f64) {
        // A ratio beyond these bounds means that the provider counts something else. Two decimals keep the metadata
        // short.
        let ratio = (ratio.clamp(0.25, 4.0) * 100.0).round() / 100.0;
        self.outline.ratio = Some(ratio);
    }

    /// Begins a turn: messages pushed from now on carry its id. Images and documents of earlier turns become
    /// placeholders.
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

    /// Shortens long tool results among the first `count` messages from now on. True if there were any. The log keeps
    /// the full results.
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

    /// Replaces all messages but the last `keep_count`, which belong to this turn, by `summary`. The log keeps every
    /// message; the summary is appended to it as one more line.
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

    /// Appends `message` to the log, then to the messages. A long tool result is cut first, so that both are the same.
    pub fn push(&mut self, mut message: Message) -> Result<()> {
        match &mut message {
            Message::Tool(result) => cut(result, self.result_limit),
            // The tool runs with the arguments as the model sent them; the stored copy has our secrets masked.
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

    /// Adds a result for each call at the end that has none. The results are logged so that the Python program can send
    /// this session too.
    pub fn settle(&mut self, notice: &mut dyn FnMut(&str)) -> Result<()> {
        for lost in history::unanswered(&self.messages) {
            notice(&format!(
                "tool call `{}` was interrupted; it may or may not have taken effect",
                lost.name
            ));
            self.push(Message::Tool(lost))?;
        }
        Ok(())
    }

    /// Ends the turn: writes its closing line and syncs the log to disk.
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

    /// Starts a new conversation: earlier messages are no longer sent, but stay in the log.
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

    /// Keeps only the last turn in what is sent. Earlier messages stay in the log and are never consolidated.
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

    /// True if its last turn was interrupted.
    pub fn interrupted(&self) -> bool {
        let is_summary = self.messages.len() == 1 && self.summary.is_some();
        match is_summary {
            true => !self.closed,
            false => history::is_interrupted(&self.messages),
        }
    }
}

/// Keeps the beginning and the end of a result that is longer than `limit` characters.
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
