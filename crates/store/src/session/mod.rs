//! Session logs: open, lock, repair, append.
//!
//! Each session is one append-only file in the format of nanobot 0.1.4. A turn holds a kernel lock on a lock file beside it; each
//! append locks the log itself for microseconds. Every line but the last is complete at any time, and the last is
//! repaired when the log is opened: no other recovery is needed.

use crate::history::compaction::CompactedHistory;
use crate::history::rejection::{self, leave_out, unanswered_turns};
use crate::history::{self, result_truncation};
use anyhow::Result;
use integrity::end_of_last_line;
use layout::SessionPath;
use line::ClosingLine;
use log::SessionLog;
use nanobot_base::message::token_estimate;
use nanobot_base::message::{Image, ImageSource, Message, MessagePart, Origin};
use nanobot_os::durable_file;
use nanobot_os::secret;
use std::borrow::Cow;
use std::path::Path;
use std::time::Duration;
use tail_reader::LogTail;

pub mod consolidation;
mod copy;
mod delivered;
mod diagnosis;
mod files;
mod import;
mod integrity;
mod layout;
mod line;
mod list;
mod lock;
mod log;
mod metadata;
mod metadata_update;
mod search;
mod search_pattern;
mod tail_reader;
mod trash;

pub use copy::{continue_renamed, fork, rename};
pub use delivered::DeliveredMessage;
pub use diagnosis::{RepairFinding, list_files, repair};
pub use files::{
    LoggedMessage, SessionEntry, not_found_error, open_raw, read_conversation_turns, read_entries,
    read_last_entries, read_model_choice,
};
pub use import::{ImportedConversation, TranscriptFormat, import, parse_conversation};
pub use layout::{SessionStore, SyncMode};
pub use list::{SessionListing, SessionSummary, list, summarize};
pub use lock::{lock_holder, session_path};
pub use metadata::{KnownDeliveries, ModelChoice, RecordedOrigin, SessionStats};
pub use metadata_update::{add_undo_note, set_missing_title, set_title};
pub use search::{MessageMatch, search};
pub use search_pattern::{MatchLine, SearchPattern};
pub use tail_reader::MessageWindow;
pub use trash::{
    FILTER_PREFIX, MAX_PRUNED_SESSIONS, REWOUND_PREFIX, SessionRemoval, TemporaryAges, TrashBatch,
    TrashedSession, begin_removal, is_temporary, list_trash, move_to_trash,
    move_to_trash_if_larger, prune_temporary_sessions, remove, remove_expired_trash, restore,
    trash_old_sessions,
};

/// Maximum number of rejected turns that a session remembers: more than most windows have turns.
const MAX_REJECTED_TURNS: usize = 100;

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
    /// Turns that the provider rejected, oldest first.
    rejected_turns: Vec<String>,
    /// Lines about what the user has undone since the last message.
    undo_notes: Vec<String>,
    /// The number of them that the message of this turn includes.
    sent_undo_notes: usize,
    /// Turns without an answer on which the server has failed.
    failing_turns: Vec<String>,
    /// The messages at the end of the log that are left out because of rejected turns.
    left_out: Vec<Message>,
    /// Maximum characters of a stored tool result.
    result_limit: usize,
    /// `None` if no earlier turn has recorded it.
    origin: Option<RecordedOrigin>,
    /// The working directory of this turn, or else of the last one.
    directory: Option<String>,
    /// The title that this turn gives the session.
    title: Option<String>,
    /// The messages of others to its chat that the log has.
    known_deliveries: KnownDeliveries,
    /// Number of messages in the log when the turn began.
    count_before_turn: usize,
    /// `None` for an ephemeral session.
    log: Option<SessionLog>,
}

/// The messages that a session sent before [`Session::leave_out_failing_turns`].
#[derive(Debug)]
pub struct EarlierMessages {
    messages: Vec<Message>,
    rejected_turns: Vec<String>,
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
            let SessionPath { path, exists } = store.path_for(key)?;
            if !exists && let Some(dir) = path.parent() {
                durable_file::create_dir(dir)?;
            }
            let (log, tail) = SessionLog::open(store, key, path.clone(), wait, notice)?;
            // Before the lock was taken, another key that maps to the same file name may have created the file.
            if exists || log.file.is_none() || store.path_for(key)?.path == path {
                break (log, tail);
            }
        };
        let mut session = Self::from_tail(key, tail, store.result_limit, Some(log));
        session.answer_interrupted_calls(true, notice)?;
        session.prepare_messages();
        Ok(session)
    }

    /// Reads the session `key` without locking it, for a turn that is not stored. Empty if there is no such session.
    pub fn read(store: &SessionStore, key: &str, notice: &mut dyn FnMut(&str)) -> Result<Self> {
        let session = Self::read_if_exists(store, key, notice)?;
        Ok(session.unwrap_or_else(|| Self::ephemeral(key, store.result_limit)))
    }

    /// As [`Self::read`]; `None` if there is no such session.
    pub fn read_if_exists(
        store: &SessionStore,
        key: &str,
        notice: &mut dyn FnMut(&str),
    ) -> Result<Option<Self>> {
        let path = store.find_path(key)?;
        let Some(file) = durable_file::open_existing(&path)? else {
            return Ok(None);
        };
        let size = end_of_last_line(&file, &path)?;
        let tail = tail_reader::read(&file, &path, size, store.window)?;
        tail.notices.iter().for_each(|text| notice(text));
        let mut session = Self::from_tail(key, tail, store.result_limit, None);
        session.prepare_messages();
        Ok(Some(session))
    }

    /// The same session under another key.
    #[must_use]
    pub fn with_key(self, key: &str) -> Self {
        Self { key: key.to_owned(), ..self }
    }

    /// Creates an empty session that is not stored.
    pub fn ephemeral(key: &str, result_limit: usize) -> Self {
        Self::from_tail(key, LogTail::default(), result_limit, None)
    }

    /// Builds a session from the tail of its log.
    fn from_tail(key: &str, tail: LogTail, result_limit: usize, log: Option<SessionLog>) -> Self {
        let session_metadata = tail.metadata.session_metadata();
        let is_mid_turn = tail.metadata.is_mid_turn;
        let window = HistoryWindow {
            count: tail.count,
            consolidated: tail.metadata.last_consolidated,
            start: tail.start,
            shortened_before: tail.shortened_before,
            token_ratio: session_metadata.token_ratio,
        };
        let summary = tail.summary.as_ref().map(CompactedHistory::to_message);
        let (mut messages, left_out) = leave_out(tail.messages, &session_metadata.rejected_turns);
        messages.splice(..0, summary);
        Self {
            key: key.to_owned(),
            turn: String::new(),
            messages,
            estimated_tokens: 0,
            summary: tail.summary,
            window,
            is_closed: tail.is_closed && !is_mid_turn,
            rejected_turns: session_metadata.rejected_turns,
            undo_notes: session_metadata.undo_notes,
            sent_undo_notes: 0,
            failing_turns: session_metadata.failing_turns,
            left_out,
            result_limit,
            origin: session_metadata
                .origin
                .or_else(|| (tail.count == 0).then(RecordedOrigin::default)),
            directory: Some(session_metadata.directory).filter(|directory| !directory.is_empty()),
            title: None,
            known_deliveries: session_metadata.known_deliveries,
            count_before_turn: tail.count,
            log,
        }
    }

    /// Pairs up calls and results in the messages to send, and estimates their tokens.
    fn prepare_messages(&mut self) {
        self.messages = history::to_sendable(std::mem::take(&mut self.messages));
        self.estimated_tokens = token_estimate::for_messages(&self.messages);
    }

    /// Lines about what the user has undone since the last message, for the next one.
    pub fn undo_notes(&self) -> &[String] {
        &self.undo_notes
    }

    /// The session's key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The path of its log, if it has one.
    pub fn path(&self) -> Option<&Path> {
        self.log.as_ref().map(|log| log.path.as_path())
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

    /// The recorded origin of the conversation since `/new`; `None` if no turn has recorded it.
    pub fn origin(&self) -> Option<&RecordedOrigin> {
        self.origin.as_ref()
    }

    /// True if the recorded origin covers every message: no turn was killed, and no other program wrote, after it.
    pub fn is_origin_complete(&self) -> bool {
        self.is_closed || self.count_before_turn == 0
    }

    /// Records that the conversation has content of `origin`, which is stored with the next closing line.
    pub fn record_origin(&mut self, origin: Origin, content: &str) {
        if self.origin.as_ref().is_none_or(|recorded| recorded.level < origin) {
            self.origin = Some(RecordedOrigin {
                level: origin,
                content: content.to_owned(),
                since: match origin {
                    Origin::User => 0,
                    _ => self.count_before_turn + 1,
                },
            });
        }
    }

    /// Records the working directory of the turn, which is stored with its closing line.
    pub fn record_directory(&mut self, directory: &Path) {
        self.directory = Some(directory.to_string_lossy().into_owned());
    }

    /// Records a title, which is stored with the turn's closing line; an empty one removes the earlier title.
    pub fn record_title(&mut self, title: &str) {
        self.title = Some(title.to_owned());
    }

    /// The working directory of the running turn, or else of the last one.
    pub fn directory(&self) -> Option<&Path> {
        self.directory.as_deref().map(Path::new)
    }

    /// The messages of the running turn among [`Self::messages`].
    pub fn turn_messages(&self) -> &[Message] {
        let start = self.messages.iter().rposition(Message::begins_turn).unwrap_or(0);
        &self.messages[start..]
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
        self.count_before_turn = self.history_window().count;
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
        let mut has_shortened = false;
        for message in &mut self.messages[..count] {
            let tokens = token_estimate::for_message(message);
            if result_truncation::truncate_result(message) {
                has_shortened = true;
                self.estimated_tokens =
                    self.estimated_tokens - tokens + token_estimate::for_message(message);
            }
        }
        self.window.shortened_before = self.log_index(count).max(self.window.shortened_before);
        has_shortened
    }

    /// The index in the log of the message to send at `index`, which is one of the last turn.
    fn log_index(&self, index: usize) -> usize {
        let after = self.messages.len() - index + self.left_out.len();
        self.history_window().count.saturating_sub(after)
    }

    /// Leaves the last turn out of what is sent by later runs, because the provider rejected it.
    pub fn reject_turn(&mut self) {
        let question = self.messages.iter().rfind(|message| message.begins_turn());
        // If the turn was resumed, its messages have the ids of several runs.
        let first_run = question.map(Message::turn_id).unwrap_or_default().to_owned();
        self.add_rejected_turns([first_run, self.turn.clone()]);
    }

    fn add_rejected_turns(&mut self, turns: impl IntoIterator<Item = String>) {
        for turn in turns {
            if !turn.is_empty() && !self.rejected_turns.contains(&turn) {
                self.rejected_turns.push(turn);
            }
        }
        let excess = self.rejected_turns.len().saturating_sub(MAX_REJECTED_TURNS);
        self.rejected_turns.drain(..excess);
    }

    /// Records that the server failed on what was sent. A message without an answer on which it has failed before is
    /// left out by later runs, if it has answered others. True if the last turn is left out.
    pub fn record_server_failure(&mut self) -> bool {
        let is_reply = |message: &Message| matches!(message, Message::Assistant(_) if !history::is_no_answer(message));
        let has_replied = self.summary.is_some() || self.messages.iter().any(is_reply);
        let mut failing = Vec::new();
        let mut rejected = Vec::new();
        let mut is_last_rejected = false;
        for turn in unanswered_turns(&self.messages) {
            is_last_rejected = has_replied && self.is_failing(&turn);
            let turns = if is_last_rejected { &mut rejected } else { &mut failing };
            turns.extend(turn.into_iter().map(str::to_owned));
        }
        if is_last_rejected {
            rejected.push(self.turn.clone());
        }
        self.add_rejected_turns(rejected);
        self.failing_turns = failing;
        is_last_rejected
    }

    /// True if the server has failed on a turn with these ids.
    fn is_failing(&self, turn: &[&str]) -> bool {
        self.failing_turns.iter().any(|failing| turn.contains(&failing.as_str()))
    }

    /// Leaves out the turns before the running one that have no answer and on which the server has failed before.
    /// Returns what was sent, to be put back if it fails without them too; `None` if there are no such turns.
    pub fn leave_out_failing_turns(&mut self) -> Option<EarlierMessages> {
        let turns = unanswered_turns(&self.messages);
        let (_, before) = turns.split_last()?;
        let failing = before.iter().filter(|turn| self.is_failing(turn)).flatten();
        let failing: Vec<String> = failing.map(|turn| (*turn).to_owned()).collect();
        if failing.is_empty() {
            return None;
        }
        let earlier = EarlierMessages {
            messages: self.messages.clone(),
            rejected_turns: self.rejected_turns.clone(),
        };
        self.add_rejected_turns(failing);
        let mut all = std::mem::take(&mut self.messages);
        all.retain(|message| !history::is_no_answer(message));
        self.leave_out_rejected_turns(all);
        Some(earlier)
    }

    /// Sends again what was sent before [`Self::leave_out_failing_turns`].
    pub fn put_back(&mut self, earlier: EarlierMessages) {
        self.messages = earlier.messages;
        self.rejected_turns = earlier.rejected_turns;
        self.prepare_messages();
    }

    /// Sets the messages to send: `all`, which begin with the summary if there is one, without the rejected turns.
    fn leave_out_rejected_turns(&mut self, mut all: Vec<Message>) {
        let summary = all.drain(..usize::from(self.summary.is_some())).next();
        let (messages, left_out) = leave_out(all, &self.rejected_turns);
        self.messages = summary.into_iter().chain(messages).collect();
        self.left_out = left_out;
        self.prepare_messages();
    }

    /// Sends the last turn again, if the provider rejected it.
    pub fn restore_rejected_turn(&mut self) {
        if self.left_out.is_empty() {
            return;
        }
        let begin = self.left_out.iter().rposition(Message::begins_turn);
        let last_turn = self.left_out[begin.unwrap_or(0)..].iter();
        let turns: Vec<&str> = last_turn.map(Message::turn_id).collect();
        self.rejected_turns.retain(|turn| !turns.contains(&turn.as_str()));
        let mut all = std::mem::take(&mut self.messages);
        all.append(&mut self.left_out);
        self.leave_out_rejected_turns(all);
    }

    /// Replaces all messages but the last `keep_count`, which belong to this turn, by `summary`. If it replaces only the
    /// earlier summary, they may be of any turn. The log keeps every message; the summary is appended to it as one more
    /// line.
    pub fn compact(&mut self, keep_count: usize, summary: CompactedHistory) -> Result<()> {
        let first_kept = self.messages.len() - keep_count;
        // In earlier turns, what is sent is not what the log has: notes are not logged, and rejected turns are not sent.
        let from = if first_kept == 1 && self.summary.is_some() {
            self.window.start
        } else {
            self.log_index(first_kept)
        };
        let summary = CompactedHistory { first_sent: from, ..summary };
        if let Some(log) = self.log.as_mut().filter(|log| log.file.is_some()) {
            let closing =
                ClosingLine { turn: &self.turn, ending: line::COMPACTED, summary: Some(&summary) };
            let origin = &self.origin;
            log.write_closing_line(&self.key, &[], &closing, &|metadata, _| {
                metadata.update_session_metadata(|session_metadata| {
                    session_metadata.origin.clone_from(origin);
                });
            })?;
        }
        let tail = self.messages.split_off(first_kept);
        self.messages = [summary.to_message()].into_iter().chain(tail).collect();
        self.estimated_tokens = token_estimate::for_messages(&self.messages);
        self.window.start = from;
        self.summary = Some(summary);
        Ok(())
    }

    /// Appends `message` to the log, then to the messages. Known keys are masked in the log, but not in the messages: a run
    /// with `--send-keys` sends those of its own.
    pub fn push(&mut self, message: Message) -> Result<()> {
        let message = self.prepare_to_store(message);
        self.add_notes_before(&message);
        match &mut self.log {
            Some(log) => {
                // The log gets the mask of a request.
                let masked = message.map_texts(secret::mask_for_request);
                let stored = masked.as_ref().unwrap_or(&message);
                let line = line::format_message(stored, &self.turn, &log.clock.local_timestamp());
                log.append(&self.key, 1, |_| line.clone())?;
            }
            None => self.window.count += 1,
        }
        self.add_message(message);
        Ok(())
    }

    /// Cuts a long tool result, which the toolbox has masked already, and masks our secrets in the arguments of calls.
    fn prepare_to_store(&self, mut message: Message) -> Message {
        match &mut message {
            Message::Tool(result) => result_truncation::limit_result(result, self.result_limit),
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
        message
    }

    /// Adds to the messages, but not to the log, what has to be sent before `message` if it begins a turn: a note about rejected
    /// turns, and that the message before it got no answer. The notes about undone changes are sent with it.
    fn add_notes_before(&mut self, message: &Message) {
        if message.begins_turn() && !self.left_out.is_empty() {
            self.add_message(rejection::note());
        }
        self.left_out.clear();
        if message.begins_turn() {
            self.sent_undo_notes = self.undo_notes.len();
        }
        if message.begins_turn() && self.is_unanswered() {
            history::close_unanswered(&mut self.messages, message);
            self.estimated_tokens = token_estimate::for_messages(&self.messages);
        }
    }

    fn add_message(&mut self, message: Message) {
        self.estimated_tokens += token_estimate::for_message(&message);
        self.messages.push(message);
    }

    /// Adds a result for each call at the end that has none. `has_begun` is true if the first of them may have been begun. The results
    /// are logged so that the Python program can send this session too.
    pub fn answer_interrupted_calls(
        &mut self,
        has_begun: bool,
        notice: &mut dyn FnMut(&str),
    ) -> Result<()> {
        let results = history::interrupted_results(&self.messages, has_begun).into_iter();
        for (index, result) in results.enumerate() {
            // The later ones had no effect.
            if has_begun && index == 0 {
                notice(&format!(
                    "tool call `{}` was interrupted; it may or may not have taken effect",
                    result.name
                ));
            }
            self.push(Message::Tool(result))?;
        }
        Ok(())
    }

    /// Ends the turn: appends `answer`, if there is one, and the closing line in one write, and syncs the log to disk.
    pub fn end_turn(
        &mut self,
        answer: Option<Message>,
        ending: &str,
        stats: &SessionStats,
    ) -> Result<()> {
        if answer.is_some() {
            self.failing_turns.clear();
        }
        // The provider's wrapper has masked the keys in the answer already.
        let answer = answer.map(|answer| self.prepare_to_store(answer));
        if let Some(answer) = &answer {
            self.add_notes_before(answer);
        }
        let sent_undo_notes = std::mem::take(&mut self.sent_undo_notes);
        let closing = ClosingLine { turn: &self.turn, ending, summary: None };
        match &mut self.log {
            Some(log) if answer.is_some() || log.file.is_some() => {
                let now = log.clock.local_timestamp();
                let format = |message: &Message| line::format_message(message, &self.turn, &now);
                let line: Vec<String> = answer.iter().map(format).collect();
                log.write_closing_line(&self.key, &line, &closing, &|metadata, _| {
                    metadata.update_session_metadata(|session_metadata| {
                        session_metadata.stats.add(stats);
                        session_metadata.origin.clone_from(&self.origin);
                        if let Some(directory) = &self.directory {
                            session_metadata.directory.clone_from(directory);
                        }
                        if let Some(title) = &self.title {
                            session_metadata.title.clone_from(title);
                        }
                        session_metadata.shortened_before = self.window.shortened_before;
                        session_metadata.token_ratio = self.window.token_ratio;
                        session_metadata.rejected_turns.clone_from(&self.rejected_turns);
                        session_metadata.failing_turns.clone_from(&self.failing_turns);
                        // Others may have been added during the turn.
                        let notes = &mut session_metadata.undo_notes;
                        notes.drain(..sent_undo_notes.min(notes.len()));
                    });
                })?;
            }
            Some(_) => {}
            None => self.window.count += usize::from(answer.is_some()),
        }
        answer.into_iter().for_each(|answer| self.add_message(answer));
        Ok(())
    }

    /// The messages of others to this chat that the log has.
    pub fn known_deliveries(&self) -> &KnownDeliveries {
        &self.known_deliveries
    }

    /// Appends messages that others have sent to this chat, with their origin and the new `known_deliveries`, in one
    /// write. They have the form of replies, since the user has seen them as such.
    ///
    /// # Errors
    /// The log cannot be written; it is then as before.
    pub fn append_delivered(
        &mut self,
        delivered: &[DeliveredMessage],
        known_deliveries: KnownDeliveries,
    ) -> Result<()> {
        // Without a recorded origin, that of the earlier messages is still unknown.
        let is_closed = self.is_origin_complete() && self.origin.is_some();
        let added = delivered::to_messages(delivered, &self.messages, self.is_interrupted());
        for message in delivered.iter().filter(|message| message.origin > Origin::User) {
            self.record_origin(message.origin, &format!("a message of {}", message.source));
        }
        self.known_deliveries = known_deliveries;
        match &mut self.log {
            Some(log) => {
                let now = log.clock.local_timestamp();
                let lines = added.iter().map(|message| line::format_message(message, "", &now));
                let lines: Vec<String> = lines.collect();
                let ending = if is_closed { line::DELIVERED } else { line::OPEN };
                let closing = ClosingLine { turn: "", ending, summary: None };
                log.write_closing_line(&self.key, &lines, &closing, &|metadata, _| {
                    metadata.update_session_metadata(|session_metadata| {
                        session_metadata.origin.clone_from(&self.origin);
                        session_metadata.known_deliveries.clone_from(&self.known_deliveries);
                    });
                })?;
            }
            None => self.window.count += added.len(),
        }
        self.is_closed = is_closed;
        self.left_out.clear();
        self.messages.extend(added);
        self.prepare_messages();
        Ok(())
    }

    /// Records the model that the user has chosen for this conversation.
    ///
    /// # Errors
    /// The log cannot be written; it is then as before.
    pub fn choose_model(&mut self, choice: &ModelChoice) -> Result<()> {
        let is_closed = self.is_origin_complete() && self.origin.is_some();
        let ending = if is_closed { line::DELIVERED } else { line::OPEN };
        let closing = ClosingLine { turn: "", ending, summary: None };
        let Some(log) = &mut self.log else {
            return Ok(());
        };
        log.write_closing_line(&self.key, &[], &closing, &|metadata, _| {
            metadata.update_session_metadata(|session_metadata| {
                session_metadata.origin.clone_from(&self.origin);
                session_metadata.model_choice.clone_from(choice);
            });
        })
    }

    /// Creates the file of a new session, without messages.
    ///
    /// # Errors
    /// The log cannot be written.
    pub fn create_file(&mut self) -> Result<()> {
        match &self.log {
            Some(log) if log.file.is_none() => self.choose_model(&ModelChoice::default()),
            _ => Ok(()),
        }
    }

    /// Starts a new conversation: earlier messages are no longer sent, but stay in the log.
    pub fn start_new_conversation(&mut self) -> Result<()> {
        self.messages.clear();
        self.left_out.clear();
        self.undo_notes.clear();
        self.estimated_tokens = 0;
        self.summary = None;
        self.origin = Some(RecordedOrigin::default());
        let count = self.history_window().count;
        self.window.consolidated = count;
        self.window.start = count;
        let closing = ClosingLine { turn: &self.turn, ending: line::NEW, summary: None };
        match &mut self.log {
            Some(log) if log.file.is_some() => {
                log.write_closing_line(&self.key, &[], &closing, &|metadata, count| {
                    let from = metadata.last_consolidated;
                    metadata.update_session_metadata(|session_metadata| {
                        session_metadata.begin_conversation(from, count);
                    });
                    metadata.set_consolidated(count);
                    metadata.summary_offset = None;
                })
            }
            _ => Ok(()),
        }
    }

    /// Keeps only the last turn in what is sent. Earlier messages stay in the log and are never consolidated.
    pub fn drop_earlier_turns(&mut self) -> Result<()> {
        let start = self.messages.iter().rposition(Message::begins_turn).unwrap_or(0);
        if start == 0 {
            return Ok(());
        }
        self.messages.drain(..start);
        self.estimated_tokens = token_estimate::for_messages(&self.messages);
        self.summary = None;
        let from = self.log_index(0);
        self.window.consolidated = from;
        self.window.start = from;
        let closing = ClosingLine { turn: &self.turn, ending: line::NEW, summary: None };
        match &mut self.log {
            Some(log) if log.file.is_some() => {
                log.write_closing_line(&self.key, &[], &closing, &|metadata, _| {
                    metadata.set_consolidated(from);
                    metadata.summary_offset = None;
                })
            }
            _ => Ok(()),
        }
    }

    /// The last text of the user, with that of its attachments.
    pub fn last_user_text(&self) -> Option<String> {
        self.messages.iter().rev().find_map(Message::user_text)
    }

    /// True if the user typed the whole last message.
    pub fn is_last_user_text_typed(&self) -> bool {
        let mut messages = self.messages.iter().rev();
        messages.find(|message| message.user_text().is_some()).is_some_and(Message::is_typed)
    }

    /// The last answer of a turn.
    pub fn last_answer(&self) -> Option<&str> {
        self.messages.iter().rev().find_map(Message::answer_text)
    }

    /// True if the last turn was interrupted before any part of its answer.
    fn is_unanswered(&self) -> bool {
        history::no_answer(&self.messages).is_some()
    }

    /// The texts of the messages without an answer that are sent before one of `parts`, oldest first. One that it repeats is not.
    pub fn unanswered_texts(&self, parts: &[MessagePart]) -> Vec<String> {
        history::unanswered_texts(&self.messages, parts)
    }

    /// True if its last turn was interrupted.
    pub fn is_interrupted(&self) -> bool {
        let is_summary = self.messages.len() == 1 && self.summary.is_some();
        if is_summary { !self.is_closed } else { history::is_interrupted(&self.messages) }
    }
}

#[cfg(test)]
mod tests {
    use super::Session;
    use crate::history::compaction::CompactedHistory;
    use nanobot_base::message::{Message, MessagePart, Reply, UserMessage};

    fn user(text: &str) -> Message {
        let parts = vec![MessagePart::Text(text.into())];
        Message::User(UserMessage { parts, ..UserMessage::default() })
    }

    #[test]
    fn a_new_summary_of_the_same_messages_keeps_those_after_it() {
        let mut session = Session::ephemeral("k", 100);
        session.push(user("one")).unwrap();
        session.push(Message::Assistant(Reply { text: "two".into(), ..Reply::default() })).unwrap();
        let summary = CompactedHistory::new("s", None, session.messages(), 100);
        session.compact(0, summary.clone()).unwrap();
        assert_eq!(session.history_window().start, 2);
        session.push(user("three")).unwrap();
        session.push(user("four")).unwrap();
        // The note that the third message got no answer is sent, but not stored.
        assert_eq!(session.messages().len(), 4);
        session.compact(3, summary).unwrap();
        assert_eq!((session.messages().len(), session.history_window().start), (4, 2));
    }
}
