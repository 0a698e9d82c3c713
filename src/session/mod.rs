//! Session logs: open, lock, repair, append.
//!
//! Each session is one append-only file in the format of nanobot 0.1.4. A turn holds a kernel lock on a side file; each
//! append locks the log itself for microseconds. Every line but the last is complete at any time, and the last is
//! repaired when the log is opened: no other recovery is needed.

use crate::history::compaction::CompactedHistory;
use crate::history::head_and_tail::head_and_tail;
use crate::history::{self, result_truncation};
use crate::message::token_estimate;
use crate::message::{Image, ImageSource, Message, MessagePart, ToolResult, plain_text};
use crate::sys::{durable_file, secret};
use anyhow::Result;
use integrity::end_of_last_line;
use line::ClosingLine;
use log::SessionLog;
use std::borrow::Cow;
use std::time::Duration;
use tail_reader::LogTail;

pub mod consolidation;
mod copy;
mod files;
mod image_sources;
mod integrity;
mod layout;
mod line;
mod line_fields;
mod list;
mod lock;
mod log;
mod metadata;
mod repair;
mod search;
mod search_pattern;
mod tail_reader;
mod trash;

pub use copy::{fork, rename};
pub use files::{LoggedMessage, SessionEntry, open_raw, read_entries, read_last_entries};
pub use layout::{SessionStore, SyncMode};
pub use list::{SessionListing, SessionSummary, list, summarize};
pub use metadata::SessionStats;
pub use repair::{RepairFinding, list_files, repair};
pub use search::{MessageMatch, search};
pub use search_pattern::{MatchLine, SearchPattern};
pub use tail_reader::MessageWindow;
pub use trash::{
    TrashedSession, empty_trash, list_trash, move_to_trash, prune_pipe_sessions, remove, restore,
};

/// A session: the messages that are sent, and the log.
#[derive(Debug)]
pub struct Session {
    key: String,
    turn: String,
    messages: Vec<Message>,
    /// Estimated tokens of the messages.
    estimated_tokens: u64,
    /// The summary of the compacted messages; if present, it is the first message.
    summary: Option<CompactedHistory>,
    window: HistoryWindow,
    /// True if the log says that the last turn has ended.
    is_closed: bool,
    /// Maximum characters of a stored tool result.
    result_limit: usize,
    /// `None` for an ephemeral session.
    log: Option<SessionLog>,
}

/// The part of a log that is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HistoryWindow {
    /// Number of messages in the log.
    pub count: usize,
    /// Number of messages, from the first, that are consolidated.
    pub consolidated: usize,
    /// Index of the first message that is sent verbatim.
    pub start: usize,
    /// Messages before this index are sent with long tool results shortened.
    pub shortened_before: usize,
    /// Provider-counted tokens per estimated token, as of the last reply; `None` before the first.
    pub token_ratio: Option<f64>,
}

impl Session {
    /// Opens the session `key` for a turn: locks it, repairs its end, and reads the messages to send. The file of a new
    /// session is created with its first message.
    ///
    /// # Errors
    /// Status 75 if another run holds the lock for longer than `wait`.
    pub fn open(
        store: &SessionStore,
        key: &str,
        wait: Duration,
        notice: &mut dyn FnMut(&str),
    ) -> Result<Self> {
        let (log, tail) = loop {
            let (path, exists) = store.path_for(key)?;
            let opened = SessionLog::open(store, key, path.clone(), wait, notice)?;
            // Before the lock was taken, another key that maps to the same file name may have created the file.
            if exists || opened.0.file.is_none() || store.path_for(key)?.0 == path {
                break opened;
            }
        };
        let mut session = Self::from_tail(key, tail, store.result_limit, Some(log));
        session.answer_interrupted_calls(notice)?;
        session.prepare_messages();
        Ok(session)
    }

    /// Reads the session `key` without locking it, for a turn that is not stored. Empty if there is no such session.
    pub fn read(store: &SessionStore, key: &str, notice: &mut dyn FnMut(&str)) -> Result<Self> {
        let path = store.find_path(key)?;
        let Some(file) = durable_file::open_existing(&path)? else {
            return Ok(Self::from_tail(
                key,
                LogTail::default(),
                store.result_limit,
                None,
            ));
        };
        let size = end_of_last_line(&file, &path)?;
        let tail = tail_reader::read(&file, &path, size, store.window)?;
        tail.notices.iter().for_each(|text| notice(text));
        let mut session = Self::from_tail(key, tail, store.result_limit, None);
        session.prepare_messages();
        Ok(session)
    }

    /// The same session under another key.
    #[must_use]
    pub fn with_key(self, key: &str) -> Self {
        Self {
            key: key.to_owned(),
            ..self
        }
    }

    /// Creates an empty session that is not stored.
    pub fn ephemeral(key: &str, result_limit: usize) -> Self {
        Self::from_tail(key, LogTail::default(), result_limit, None)
    }

    /// Builds a session from the tail of its log.
    fn from_tail(key: &str, tail: LogTail, result_limit: usize, log: Option<SessionLog>) -> Self {
        let kept = tail.metadata.session_metadata();
        let is_compaction = tail.metadata.is_compaction;
        let window = HistoryWindow {
            count: tail.count,
            consolidated: tail.metadata.last_consolidated,
            start: tail.start,
            shortened_before: tail.shortened_before,
            token_ratio: kept.token_ratio,
        };
        let summary = tail.summary.as_ref().map(CompactedHistory::to_message);
        Self {
            key: key.to_owned(),
            turn: String::new(),
            messages: summary.into_iter().chain(tail.messages).collect(),
            estimated_tokens: 0,
            summary: tail.summary,
            window,
            is_closed: tail.is_closed && !is_compaction,
            result_limit,
            log,
        }
    }

    /// Pairs up calls and results in the messages to send, and estimates their tokens.
    fn prepare_messages(&mut self) {
        self.messages = history::to_sendable(std::mem::take(&mut self.messages));
        self.estimated_tokens = token_estimate::for_messages(&self.messages);
    }

    /// The session's key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// True if it has a log.
    pub fn is_stored(&self) -> bool {
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
    pub fn estimated_tokens(&self) -> u64 {
        self.estimated_tokens
    }

    /// The part of the log that is sent.
    pub fn history_window(&self) -> HistoryWindow {
        HistoryWindow {
            count: self.log.as_ref().map_or(self.window.count, |log| log.count),
            ..self.window
        }
    }

    /// The summary of the compacted messages.
    pub fn summary(&self) -> Option<&CompactedHistory> {
        self.summary.as_ref()
    }

    /// Stores the ratio of provider-counted tokens to our estimate.
    pub fn set_token_ratio(&mut self, ratio: f64) {
        // A ratio beyond these bounds means that the provider counts something else. Two decimals keep the metadata
        // short.
        let ratio = (ratio.clamp(0.25, 4.0) * 100.0).round() / 100.0;
        self.window.token_ratio = Some(ratio);
    }

    /// Begins a turn: messages pushed from now on carry its id.
    pub fn begin_turn(&mut self, turn: &str) {
        turn.clone_into(&mut self.turn);
    }

    /// True if images of earlier turns may be restored.
    pub fn has_images(&self) -> bool {
        let has_images =
            |message: &Message| matches!(message, Message::User(user) if !user.images.is_empty());
        self.messages.iter().any(has_images)
    }

    /// Replaces the placeholders of images of earlier turns by what `load` returns for their names and sources, newest
    /// message first.
    pub fn restore_images(&mut self, load: &mut dyn FnMut(&str, &ImageSource) -> Option<Image>) {
        for message in self.messages.iter_mut().rev() {
            let Message::User(user) = message else {
                continue;
            };
            for (index, source) in std::mem::take(&mut user.images) {
                if let Some(part) = user.parts.get_mut(index)
                    && let MessagePart::Text(text) = part
                    && let Some(name) = text.strip_prefix("[image: ")
                    && let Some(image) = load(name.trim_end_matches(']'), &source)
                {
                    *part = MessagePart::Image(image);
                }
            }
        }
        self.estimated_tokens = token_estimate::for_messages(&self.messages);
    }

    /// Shortens long tool results among the first `count` messages from now on. True if there were any. The log keeps
    /// the full results.
    pub fn shorten_old_results(&mut self, count: usize) -> bool {
        let mut any = false;
        for message in &mut self.messages[..count] {
            let before = token_estimate::for_message(message);
            if result_truncation::truncate_result(message) {
                any = true;
                self.estimated_tokens =
                    self.estimated_tokens - before + token_estimate::for_message(message);
            }
        }
        let younger = self.messages.len() - count;
        let aged = self.history_window().count.saturating_sub(younger);
        self.window.shortened_before = aged.max(self.window.shortened_before);
        any
    }

    /// Replaces all messages but the last `keep_count`, which belong to this turn, by `summary`. The log keeps every
    /// message; the summary is appended to it as one more line.
    pub fn compact(&mut self, keep_count: usize, summary: CompactedHistory) -> Result<()> {
        let from = self.history_window().count.saturating_sub(keep_count);
        let summary = CompactedHistory {
            first_sent: from,
            ..summary
        };
        if let Some(log) = self.log.as_mut().filter(|log| log.file.is_some()) {
            let closing = ClosingLine {
                turn: &self.turn,
                ending: line::COMPACTED,
                summary: Some(&summary),
            };
            log.write_closing_line(&self.key, &closing, &|_, _| {})?;
        }
        let tail = self.messages.split_off(self.messages.len() - keep_count);
        self.messages = [summary.to_message()].into_iter().chain(tail).collect();
        self.estimated_tokens = token_estimate::for_messages(&self.messages);
        self.window.start = from;
        self.summary = Some(summary);
        Ok(())
    }

    /// Appends `message` to the log, then to the messages. A long tool result is cut first, so that both are the same.
    pub fn push(&mut self, mut message: Message) -> Result<()> {
        match &mut message {
            Message::Tool(result) => truncate_result(result, self.result_limit),
            // The tool runs with the arguments as the model sent them; the stored copy has our secrets masked.
            Message::Assistant(reply) => {
                for call in &mut reply.tool_calls {
                    if let Cow::Owned(clean) = secret::redact_known_json(&call.arguments) {
                        call.arguments = clean;
                    }
                }
            }
            Message::User(_) => {}
        }
        match &mut self.log {
            Some(log) => {
                let line = line::format_message(&message, &self.turn, &log.clock.local_timestamp());
                log.append(&self.key, 1, |_| line.clone())?;
            }
            None => self.window.count += 1,
        }
        self.estimated_tokens += token_estimate::for_message(&message);
        self.messages.push(message);
        Ok(())
    }

    /// Adds a result for each call at the end that has none. The results are logged so that the Python program can send
    /// this session too.
    pub fn answer_interrupted_calls(&mut self, notice: &mut dyn FnMut(&str)) -> Result<()> {
        for lost in history::interrupted_results(&self.messages) {
            notice(&format!(
                "tool call `{}` was interrupted; it may or may not have taken effect",
                lost.name
            ));
            self.push(Message::Tool(lost))?;
        }
        Ok(())
    }

    /// Ends the turn: writes its closing line and syncs the log to disk.
    pub fn end_turn(&mut self, ending: &str, stats: &SessionStats) -> Result<()> {
        let HistoryWindow {
            shortened_before: aged,
            token_ratio: ratio,
            ..
        } = self.window;
        let closing = ClosingLine {
            turn: &self.turn,
            ending,
            summary: None,
        };
        match &mut self.log {
            Some(log) if log.file.is_some() => {
                log.write_closing_line(&self.key, &closing, &|metadata, _| {
                    metadata.update_session_metadata(|kept| {
                        kept.stats.add(stats);
                        (kept.shortened_before, kept.token_ratio) = (aged, ratio);
                    });
                })
            }
            _ => Ok(()),
        }
    }

    /// Starts a new conversation: earlier messages are no longer sent, but stay in the log.
    pub fn start_new_conversation(&mut self) -> Result<()> {
        self.messages.clear();
        (self.estimated_tokens, self.summary) = (0, None);
        let count = self.history_window().count;
        (self.window.consolidated, self.window.start) = (count, count);
        let closing = ClosingLine {
            turn: &self.turn,
            ending: "new",
            summary: None,
        };
        match &mut self.log {
            Some(log) if log.file.is_some() => {
                log.write_closing_line(&self.key, &closing, &|metadata, count| {
                    let left = (metadata.last_consolidated, count);
                    if left.0 < left.1 {
                        metadata.update_session_metadata(|kept| kept.ranges_left_by_new.push(left));
                    }
                    metadata.set_consolidated(count);
                    metadata.summary_offset = None;
                })
            }
            _ => Ok(()),
        }
    }

    /// Keeps only the last turn in what is sent. Earlier messages stay in the log and are never consolidated.
    pub fn drop_earlier_turns(&mut self) -> Result<()> {
        let begins = |message: &Message| matches!(message, Message::User(user) if !user.injected);
        let Some(at) = self.messages.iter().rposition(begins) else {
            return Ok(());
        };
        if at == 0 {
            return Ok(());
        }
        self.messages.drain(..at);
        self.estimated_tokens = token_estimate::for_messages(&self.messages);
        self.summary = None;
        let from = self
            .history_window()
            .count
            .saturating_sub(self.messages.len());
        (self.window.consolidated, self.window.start) = (from, from);
        let closing = ClosingLine {
            turn: &self.turn,
            ending: "new",
            summary: None,
        };
        match &mut self.log {
            Some(log) if log.file.is_some() => {
                log.write_closing_line(&self.key, &closing, &|metadata, _| {
                    metadata.set_consolidated(from);
                    metadata.summary_offset = None;
                })
            }
            _ => Ok(()),
        }
    }

    /// True if its last turn was interrupted.
    pub fn is_interrupted(&self) -> bool {
        let is_summary = self.messages.len() == 1 && self.summary.is_some();
        match is_summary {
            true => !self.is_closed,
            false => history::is_interrupted(&self.messages),
        }
    }
}

/// Keeps the beginning and the end of a result that is longer than `limit` characters.
fn truncate_result(result: &mut ToolResult, limit: usize) {
    let text_only = result
        .parts
        .iter()
        .all(|part| matches!(part, MessagePart::Text(_)));
    if !text_only {
        return;
    }
    let gap = |count: usize| format!("[… {count} characters left out …]");
    let text = plain_text(&result.parts);
    let Some(cut) = head_and_tail(&text, limit - limit / 4, limit / 4, gap) else {
        return;
    };
    result.parts = vec![MessagePart::Text(cut)];
}

#[cfg(test)]
mod tests {
    use super::truncate_result;
    use crate::message::{MessagePart, ToolResult, plain_text};

    #[test]
    fn long_results_retain_both_ends() {
        let check = |text: &str, limit: usize, expect: &str| {
            let parts = vec![MessagePart::Text(text.into())];
            let mut result = ToolResult {
                call_id: String::new(),
                name: String::new(),
                parts,
                failed: false,
            };
            truncate_result(&mut result, limit);
            assert_eq!(plain_text(&result.parts), expect);
        };
        check("short", 8, "short");
        check("12345678", 8, "12345678");
        check("123456789", 8, "123456\n[… 1 characters left out …]\n89");
        check("éééééééééé", 4, "ééé\n[… 6 characters left out …]\né");
    }
}
