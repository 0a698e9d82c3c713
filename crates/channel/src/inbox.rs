//! The inbox of a channel: a journal of inbound messages, turns, answers and deliveries.
//!
//! Every line is one step that is on disk before the next one is taken, so the replayed lines say where a killed
//! process was. A line that cannot be parsed, such as a torn last one, is skipped. An outbound message that answers
//! nothing is one that a job, a tool or the user sends: the inbox is the outbox too.

mod compaction;

use super::settlement::Settlement;
use super::{Destination, InboundMessage, MessageSource, Part, Sender};
use anyhow::{Context as _, Result};
use nanobot_base::message::Origin;
use nanobot_base::message::user_text::UserText;
use nanobot_os::age::Age;
use nanobot_os::durable_file;
use nanobot_os::file_lock::with_lock;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Size above which a journal is compacted, if that halves it. Each poll reads all of it and holds it in memory.
const COMPACTION_BYTES: u64 = 256 << 10;
/// Time for which the turns of a sender are counted, in milliseconds.
pub const HOUR_MILLIS: i64 = 3_600_000;
/// Maximum number of refused senders that are remembered.
const MAX_REFUSED_SENDERS: usize = 100;

/// The ages at which a journal forgets what is settled.
#[derive(Clone, Copy, Debug)]
pub struct InboxAges {
    pub settled: Age,
    /// That of messages of others to the chat of a session that has had no turn since.
    pub unread: Age,
}

/// One line of the journal. Times are in milliseconds since 1970.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum InboxRecord {
    /// A message from an allowed sender was received.
    In { message: InboundMessage, session: String, at: i64 },
    /// The sender has changed the text of a message that was not answered yet.
    Edited { id: String, text: UserText },
    /// A turn begins that answers these messages. With `ended`, the turn has ended without an answer, and another turn answers the
    /// messages.
    Turn {
        ids: Vec<String>,
        turn: String,
        at: i64,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        ended: bool,
    },
    /// The service has taken a draft of the answer to these messages.
    Draft { ids: Vec<String>, remote: String },
    /// An outbound message is complete.
    Out(OutboundMessage),
    /// The service has taken a part.
    Sent { key: String, part: usize, remote: String },
    /// An outbound message is settled, and with it the messages that it answers.
    Done { key: String, result: Settlement },
    /// Messages are settled without an answer.
    Dropped { ids: Vec<String>, result: Settlement },
    /// A dropped message is answered after all.
    Reopened { id: String, at: i64 },
    /// A sender who is not allowed was refused.
    Refused { sender: Sender, chat: String, at: i64 },
    /// Settled messages of earlier journals.
    Settled { ids: Vec<String>, at: i64 },
}

/// An inbound message and its state: its turns, its answer, its settlement.
#[derive(Clone, Debug)]
pub struct InboundEntry {
    pub message: InboundMessage,
    pub session: String,
    pub received_at: i64,
    /// The ids of the turns that were begun for it, with the messages that each answers.
    pub turns: Vec<BegunTurn>,
    /// The service's id of the draft of its answer.
    pub draft: Option<String>,
    /// The key of its answer.
    pub answer: Option<String>,
    pub settlement: Option<Settlement>,
}

impl InboundEntry {
    /// The ids of the messages.
    pub fn ids_of(entries: &[Self]) -> Vec<String> {
        entries.iter().map(|entry| entry.message.id.clone()).collect()
    }

    /// True if it is neither answered nor settled.
    pub fn is_unanswered(&self) -> bool {
        self.answer.is_none() && self.settlement.is_none()
    }

    /// True if it was dropped, and a retry can have it answered.
    pub fn is_dropped(&self) -> bool {
        self.answer.is_none() && self.settlement.is_some_and(Settlement::is_dropped)
    }

    /// Number of turns that were begun for it and whose end is not known: those that were killed.
    pub fn killed_turns(&self) -> usize {
        self.turns.iter().filter(|turn| !turn.ended).count()
    }
}

/// A turn that was begun for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BegunTurn {
    pub turn: String,
    pub ids: Vec<String>,
    pub at: i64,
    /// True if it has ended without an answer: it was not killed.
    pub ended: bool,
}

/// An outbound message in the form that the service takes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OutboundMessage {
    /// Identifies the message in each attempt to send it: the id of the turn for an answer, `re.`, `old.`, `limit.` or `pair.` and an id for a
    /// notice. Its parts add `.N`. That a message is answered once does not depend on it: its entry has the answer.
    pub key: String,
    /// The ids of the messages that it answers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<String>,
    pub session: String,
    pub destination: Destination,
    pub parts: Vec<Part>,
    /// The service's id of a draft, in whose place the first part comes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draft: Option<String>,
    /// The time of its creation, in milliseconds since 1970.
    pub at: i64,
    /// The sender, if the session does not have the message from its own turns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<MessageSource>,
    /// The origin of an answer of the session; `None` if it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
}

/// An outbound message and its state: its sent parts and its settlement.
#[derive(Clone, Debug, Default)]
pub struct OutboundEntry {
    pub message: OutboundMessage,
    /// The service's ids of the parts that it has taken.
    pub sent: BTreeMap<usize, String>,
    /// True if no process has tried to send a part.
    pub is_untried: bool,
    pub settlement: Option<Settlement>,
}

impl OutboundEntry {
    /// The key of a part, which is the same whenever the part is sent.
    pub fn part_key(&self, part: usize) -> String {
        format!("{}.{part}", self.message.key)
    }

    /// The origin of the text; `None` if it is unknown.
    pub fn origin(&self) -> Option<Origin> {
        self.message.source.as_ref().map(|source| source.origin).or(self.message.origin)
    }

    /// The text of the parts that the service has taken, with the names of files.
    pub fn sent_text(&self) -> String {
        let mut lines = Vec::new();
        for number in self.sent.keys() {
            let Some(part) = self.message.parts.get(*number) else {
                continue;
            };
            if !part.plain.trim().is_empty() {
                lines.push(part.plain.trim_end().to_owned());
            }
            for file in part.file.iter().chain(&part.attached) {
                let name = file.file_name().unwrap_or_default();
                lines.push(format!("[file: {}]", name.to_string_lossy()));
            }
        }
        lines.join("\n")
    }
}

/// A sender who was refused.
#[derive(Clone, Debug)]
pub struct RefusedSender {
    pub sender: Sender,
    pub chat: String,
    pub last_at: i64,
}

/// The state of a channel's messages, replayed from the journal. No I/O.
#[derive(Clone, Debug, Default)]
pub struct InboxState {
    /// By id, in the order of arrival.
    pub inbound: Vec<InboundEntry>,
    /// In the order of creation.
    pub outbound: Vec<OutboundEntry>,
    pub refused: Vec<RefusedSender>,
    inbound_index: HashMap<String, usize>,
    outbound_index: HashMap<String, usize>,
    settled_ids: HashSet<String>,
    settled_order: Vec<(String, i64)>,
}

impl InboxState {
    /// Replays the lines of a journal.
    pub fn replay(text: &[u8]) -> Self {
        let mut state = Self::default();
        state.replay_lines(text);
        state
    }

    /// The state after the `records`, which replace the journal. The facts that only this process knows are kept.
    fn reduced_to(&self, records: Vec<InboxRecord>) -> Self {
        let mut state = Self::default();
        records.into_iter().for_each(|record| state.apply(record));
        for entry in self.outbound.iter().filter(|entry| entry.is_untried) {
            if let Some(entry) = state.outbound_mut(&entry.message.key) {
                entry.is_untried = true;
            }
        }
        state
    }

    fn replay_lines(&mut self, text: &[u8]) {
        for line in text.split(|byte| *byte == b'\n') {
            if let Ok(record) = serde_json::from_slice(line) {
                self.apply(record);
            }
        }
    }

    /// Applies one record. A record that repeats an earlier one has no effect.
    pub fn apply(&mut self, record: InboxRecord) {
        match record {
            InboxRecord::In { message, session, at } => self.add_inbound(message, session, at),
            InboxRecord::Edited { id, text } => {
                let entry = self.inbound_mut(&id).filter(|entry| entry.is_unanswered());
                if let Some(entry) = entry {
                    entry.message.text = text;
                }
            }
            InboxRecord::Turn { ids, turn, at, ended } => {
                self.for_each_inbound(&ids, |entry| {
                    match entry.turns.iter_mut().find(|begun| begun.turn == turn) {
                        Some(begun) => {
                            begun.ended |= ended;
                            begun.ids.clone_from(&ids);
                        }
                        None => entry.turns.push(BegunTurn {
                            turn: turn.clone(),
                            ids: ids.clone(),
                            at,
                            ended,
                        }),
                    }
                });
            }
            InboxRecord::Draft { ids, remote } => {
                self.for_each_inbound(&ids, |entry| entry.draft = Some(remote.clone()));
            }
            InboxRecord::Out(message) => self.add_outbound(message),
            InboxRecord::Sent { key, part, remote } => {
                if let Some(entry) = self.outbound_mut(&key) {
                    entry.sent.insert(part, remote);
                }
            }
            InboxRecord::Done { key, result } => self.settle_outbound(&key, result),
            InboxRecord::Dropped { ids, result } => {
                self.for_each_inbound(&ids, |entry| entry.settlement = Some(result));
            }
            InboxRecord::Reopened { id, at } => {
                if let Some(entry) = self.inbound_mut(&id) {
                    (entry.settlement, entry.received_at) = (None, at);
                }
            }
            InboxRecord::Refused { sender, chat, at } => self.add_refused(sender, chat, at),
            InboxRecord::Settled { ids, at } => {
                for id in ids {
                    if self.settled_ids.insert(id.clone()) {
                        self.settled_order.push((id, at));
                    }
                }
            }
        }
    }

    fn add_inbound(&mut self, message: InboundMessage, session: String, at: i64) {
        if self.has_seen(&message.id) {
            return;
        }
        self.inbound_index.insert(message.id.clone(), self.inbound.len());
        self.inbound.push(InboundEntry {
            message,
            session,
            received_at: at,
            turns: Vec::new(),
            draft: None,
            answer: None,
            settlement: None,
        });
    }

    fn add_outbound(&mut self, message: OutboundMessage) {
        if self.outbound_index.contains_key(&message.key) {
            return;
        }
        self.for_each_inbound(&message.answers, |entry| entry.answer = Some(message.key.clone()));
        self.outbound_index.insert(message.key.clone(), self.outbound.len());
        self.outbound.push(OutboundEntry { message, ..OutboundEntry::default() });
    }

    fn settle_outbound(&mut self, key: &str, settlement: Settlement) {
        let Some(entry) = self.outbound_mut(key) else {
            return;
        };
        entry.settlement = Some(settlement);
        let answers = entry.message.answers.clone();
        self.for_each_inbound(&answers, |entry| entry.settlement = Some(settlement));
    }

    fn add_refused(&mut self, sender: Sender, chat: String, at: i64) {
        self.refused.retain(|earlier| !earlier.sender.is_same(&sender));
        self.refused.push(RefusedSender { sender, chat, last_at: at });
        let excess = self.refused.len().saturating_sub(MAX_REFUSED_SENDERS);
        self.refused.drain(..excess);
    }

    /// True if the message was received before, here or in an earlier journal.
    pub fn has_seen(&self, id: &str) -> bool {
        self.inbound_index.contains_key(id) || self.settled_ids.contains(id)
    }

    /// The entry of an inbound message.
    pub fn inbound(&self, id: &str) -> Option<&InboundEntry> {
        Some(&self.inbound[*self.inbound_index.get(id)?])
    }

    /// The service's id of the draft of the answer to an inbound message.
    pub fn draft_of(&self, id: &str) -> Option<String> {
        self.inbound(id)?.draft.clone()
    }

    fn inbound_mut(&mut self, id: &str) -> Option<&mut InboundEntry> {
        let index = *self.inbound_index.get(id)?;
        self.inbound.get_mut(index)
    }

    fn for_each_inbound(&mut self, ids: &[String], mut change: impl FnMut(&mut InboundEntry)) {
        for id in ids {
            if let Some(entry) = self.inbound_mut(id) {
                change(entry);
            }
        }
    }

    /// The entry of an outbound message.
    pub fn outbound(&self, key: &str) -> Option<&OutboundEntry> {
        Some(&self.outbound[*self.outbound_index.get(key)?])
    }

    fn outbound_mut(&mut self, key: &str) -> Option<&mut OutboundEntry> {
        let index = *self.outbound_index.get(key)?;
        self.outbound.get_mut(index)
    }

    /// Messages that are neither answered nor settled.
    pub fn unanswered(&self) -> impl Iterator<Item = &InboundEntry> {
        self.inbound.iter().filter(|entry| entry.is_unanswered())
    }

    /// Outbound messages that are not settled.
    pub fn undelivered(&self) -> impl Iterator<Item = &OutboundEntry> {
        let waits = |entry: &&OutboundEntry| entry.settlement.is_none();
        self.outbound.iter().filter(waits)
    }

    /// Messages to the chat of `session` that are not from its own turns, in the order of creation.
    pub fn from_others<'a>(&'a self, session: &'a str) -> impl Iterator<Item = &'a OutboundEntry> {
        self.outbound
            .iter()
            .filter(move |entry| entry.message.source.is_some() && entry.message.session == session)
    }

    /// True if the outbound message is there and not settled.
    pub fn waits(&self, key: &str) -> bool {
        self.outbound(key).is_some_and(|entry| entry.settlement.is_none())
    }

    /// Number of messages that wait for an answer or a delivery.
    pub fn waiting(&self) -> usize {
        self.unanswered().count() + self.undelivered().count()
    }

    /// Number of turns begun for `sender` since `since`, in milliseconds since 1970. A turn that has
    /// ended without an answer is not counted, because another one follows it.
    pub fn turns_since(&self, sender: &str, since: i64) -> usize {
        let entries = self.inbound.iter().filter(|entry| entry.message.from.id == sender);
        let turns: HashSet<&str> = entries
            .flat_map(|entry| &entry.turns)
            .filter(|turn| turn.at >= since && !turn.ended)
            .map(|turn| turn.turn.as_str())
            .collect();
        turns.len()
    }
}

fn to_lines(records: &[InboxRecord]) -> Result<Vec<u8>> {
    let mut lines = Vec::new();
    for record in records {
        serde_json::to_writer(&mut lines, record)?;
        lines.push(b'\n');
    }
    Ok(lines)
}

/// The journal on disk, with its state.
#[derive(Debug)]
pub struct ChannelInbox {
    path: PathBuf,
    log: File,
    state: InboxState,
    /// The size of the journal up to which `state` has its records.
    replayed_bytes: u64,
    /// The size above which compaction is tried.
    compaction_bytes: u64,
}

impl ChannelInbox {
    /// The name of the journal in a channel's directory.
    pub const FILE_NAME: &'static str = "inbox.jsonl";

    /// Opens the journal in `directory`, which is created if it is missing.
    ///
    /// # Errors
    /// Status 74 if it cannot be read and written.
    pub fn open(directory: &Path) -> Result<Self> {
        durable_file::create_dir(directory)?;
        let path = directory.join(Self::FILE_NAME);
        let is_new = !path.exists();
        let log = durable_file::open_line_log(&path)?;
        if is_new {
            durable_file::sync_dir(directory)?;
        }
        let mut inbox = Self {
            path,
            log,
            state: InboxState::default(),
            replayed_bytes: 0,
            compaction_bytes: COMPACTION_BYTES,
        };
        inbox.refresh()?;
        Ok(inbox)
    }

    /// Reads the journal in `directory` without creating it.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read(directory: &Path) -> Result<InboxState> {
        let text = durable_file::read(&directory.join(Self::FILE_NAME))?;
        Ok(InboxState::replay(&text.unwrap_or_default()))
    }

    /// Replays the records that other processes have appended.
    ///
    /// # Errors
    /// Status 74.
    pub fn refresh(&mut self) -> Result<()> {
        self.append_all(Vec::new())
    }

    /// The state as of the last record of this process, or the last [`Self::refresh`].
    pub fn state(&self) -> &InboxState {
        &self.state
    }

    /// Appends a record, and returns when it is on disk.
    ///
    /// # Errors
    /// Status 74; the record then has no effect.
    pub fn append(&mut self, record: InboxRecord) -> Result<()> {
        self.append_all(vec![record])
    }

    /// Appends records in one write, and returns when they are on disk.
    ///
    /// # Errors
    /// The errors of [`Self::append`].
    pub fn append_all(&mut self, records: Vec<InboxRecord>) -> Result<()> {
        let mut lines = to_lines(&records)?;
        let Self { path, log, state, replayed_bytes, compaction_bytes: _ } = self;
        with_lock(log, path, || {
            let size = durable_file::size(log, path)?;
            // The lines of other processes since the last call.
            let mut appended = vec![0; usize::try_from(size.saturating_sub(*replayed_bytes))?];
            log.read_exact_at(&mut appended, *replayed_bytes)
                .with_context(|| format!("read `{}`", path.display()))?;
            state.replay_lines(&appended);
            *replayed_bytes = size;
            if lines.is_empty() {
                return Ok(());
            }
            // The torn line of a killed process gets its newline, so that ours is not a part of it.
            if appended.last().is_some_and(|last| *last != b'\n') {
                lines.insert(0, b'\n');
            }
            durable_file::append_to(log, path, size, &lines)?;
            *replayed_bytes += lines.len() as u64;
            Ok(())
        })?;
        if !records.is_empty() {
            durable_file::sync(log, path)?;
        }
        for record in records {
            let new_key = match &record {
                InboxRecord::Out(message) => Some(message.key.clone()),
                _ => None,
            };
            state.apply(record);
            if let Some(entry) = new_key.and_then(|key| state.outbound_mut(&key)) {
                entry.is_untried = true;
            }
        }
        Ok(())
    }

    /// The entry of an outbound message. It is marked as tried.
    pub fn begin_delivery(&mut self, key: &str) -> Option<OutboundEntry> {
        let entry = self.state.outbound_mut(key)?;
        let begun = entry.clone();
        entry.is_untried = false;
        Some(begun)
    }

    /// True if [`Self::compact_if_due`] may write the journal anew at `now`, in milliseconds since 1970.
    pub fn is_due(&self, now: i64, ages: InboxAges) -> bool {
        self.is_large() || self.state.has_expired(now, ages)
    }

    fn is_large(&self) -> bool {
        self.replayed_bytes >= self.compaction_bytes
    }

    /// Writes the journal anew without what has been settled for longer than `ages`, if it is large and mostly settled, or has entries
    /// that are a day older than that. With `keeps_answers`, the text of answers is kept as long as their ids. No other process may
    /// append meanwhile.
    ///
    /// # Errors
    /// Status 74; the journal is then as before.
    pub fn compact_if_due(&mut self, now: i64, ages: InboxAges, keeps_answers: bool) -> Result<()> {
        let has_expired = self.state.has_expired(now, ages);
        if !self.is_large() && !has_expired {
            return Ok(());
        }
        let records = self.state.compacted(now, ages, keeps_answers);
        let lines = to_lines(&records)?;
        let compacted_size = lines.len() as u64;
        self.compaction_bytes = COMPACTION_BYTES.max(2 * compacted_size);
        if !has_expired && compacted_size > self.replayed_bytes / 2 {
            return Ok(());
        }
        durable_file::replace(&self.path, &lines)?;
        self.log = durable_file::open_line_log(&self.path)?;
        self.state = self.state.reduced_to(records);
        self.replayed_bytes = compacted_size;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{
        ChannelInbox, HOUR_MILLIS, InboxAges, InboxRecord, InboxState, OutboundMessage, Settlement,
    };
    use crate::{InboundMessage, MessageSource, Part};
    use nanobot_base::message::Origin;
    use nanobot_base::message::user_text::UserText;
    use nanobot_os::age::Age;
    use std::io::Write;
    use std::time::Duration;

    const NEVER: InboxAges = InboxAges { settled: Age::Never, unread: Age::Never };

    fn inbound(id: &str) -> InboxRecord {
        InboxRecord::In {
            message: InboundMessage {
                id: id.into(),
                text: UserText::typed("hello"),
                ..InboundMessage::default()
            },
            session: "t:1".into(),
            at: 1000,
        }
    }

    fn answer(key: &str, ids: &[&str]) -> InboxRecord {
        InboxRecord::Out(OutboundMessage {
            key: key.into(),
            answers: ids.iter().map(|id| (*id).to_owned()).collect(),
            session: "t:1".into(),
            parts: vec![Part::default(), Part::default()],
            at: 2000,
            ..OutboundMessage::default()
        })
    }

    fn lines(records: &[InboxRecord]) -> Vec<u8> {
        let line = |record| serde_json::to_string(record).unwrap() + "\n";
        records.iter().map(line).collect::<String>().into_bytes()
    }

    /// The state in words: what waits, and what is settled.
    fn describe(state: &InboxState) -> String {
        let unanswered: Vec<&str> =
            state.unanswered().map(|entry| entry.message.id.as_str()).collect();
        let undelivered: Vec<String> = state
            .undelivered()
            .map(|entry| format!("{}/{}", entry.message.key, entry.sent.len()))
            .collect();
        let settled = state.inbound.iter().filter(|entry| entry.settlement.is_some());
        format!(
            "unanswered {unanswered:?}, undelivered {undelivered:?}, {} settled",
            settled.count()
        )
    }

    #[test]
    fn replay_finds_the_place_of_a_killed_process() {
        let turn = InboxRecord::Turn {
            ids: vec!["1".into(), "2".into()],
            turn: "abc".into(),
            at: 1500,
            ended: false,
        };
        let sent = InboxRecord::Sent { key: "a".into(), part: 0, remote: "77".into() };
        let done = InboxRecord::Done { key: "a".into(), result: Settlement::Delivered };
        let all = [inbound("1"), inbound("2"), turn, answer("a", &["1", "2"]), sent, done];
        let check = |count: usize, expect: &str| {
            let state = InboxState::replay(&lines(&all[..count]));
            assert_eq!(describe(&state), expect, "after {count} records");
        };
        check(0, "unanswered [], undelivered [], 0 settled");
        check(2, r#"unanswered ["1", "2"], undelivered [], 0 settled"#);
        check(3, r#"unanswered ["1", "2"], undelivered [], 0 settled"#);
        check(4, r#"unanswered [], undelivered ["a/0"], 0 settled"#);
        check(5, r#"unanswered [], undelivered ["a/1"], 0 settled"#);
        check(6, "unanswered [], undelivered [], 2 settled");
    }

    #[test]
    fn replay_skips_torn_and_foreign_lines_and_repetitions() {
        let mut text = b"{\"type\":\"later\"}\nnonsense\n\xff\xfe\n".to_vec();
        text.extend(lines(&[inbound("1"), inbound("1")]));
        text.extend(b"{\"type\":\"in\",\"mess");
        let state = InboxState::replay(&text);
        assert_eq!(describe(&state), r#"unanswered ["1"], undelivered [], 0 settled"#);
    }

    #[test]
    fn a_compacted_journal_still_knows_ids_and_keys() {
        let folder = tempfile::tempdir().unwrap();
        let mut inbox = ChannelInbox::open(folder.path()).unwrap();
        let large = InboxRecord::In {
            message: InboundMessage {
                id: "large".into(),
                text: UserText::typed("x".repeat(2 << 20)),
                ..InboundMessage::default()
            },
            session: "t:1".into(),
            at: 1000,
        };
        inbox.append_all(vec![large, answer("a", &["large"])]).unwrap();
        inbox.compact_if_due(3000, NEVER, false).unwrap();
        assert_eq!(inbox.state().waiting(), 1, "nothing is lost while it waits");
        let mut inbox = ChannelInbox::open(folder.path()).unwrap();
        for part in 0..2 {
            let remote = format!("remote-{part}");
            let sent = InboxRecord::Sent { key: "a".into(), part, remote };
            inbox.append(sent).unwrap();
        }
        inbox.append(InboxRecord::Done { key: "a".into(), result: Settlement::Delivered }).unwrap();
        inbox.compact_if_due(3000, NEVER, false).unwrap();
        let mut other = ChannelInbox::open(folder.path()).unwrap();
        other.append(inbound("2")).unwrap();
        // The end of a killed process, after which each append is a line of its own.
        let path = folder.path().join(ChannelInbox::FILE_NAME);
        let journal = nanobot_os::durable_file::open_append(&path).unwrap();
        (&journal).write_all(b"{\"type\":\"in\",\"mess").unwrap();
        inbox.append(inbound("4")).unwrap();
        assert!(inbox.state().has_seen("2") && !other.state().has_seen("4"));
        other.refresh().unwrap();
        assert!(other.state().has_seen("4"));
        drop(inbox);
        let state = ChannelInbox::read(folder.path()).unwrap();
        assert!(state.has_seen("large") && state.has_seen("2") && !state.has_seen("3"));
        let sent = &state.outbound("a").unwrap().sent;
        assert_eq!(sent.values().collect::<Vec<_>>(), ["remote-0", "remote-1"]);
        let size = std::fs::metadata(folder.path().join(ChannelInbox::FILE_NAME)).unwrap();
        assert!(size.len() < 2000, "{size:?}");
    }

    #[test]
    fn a_compacted_journal_keeps_the_draft_of_an_answer_that_is_to_come() {
        let draft = InboxRecord::Draft { ids: vec!["1".into(), "2".into()], remote: "d".into() };
        let done = InboxRecord::Done { key: "a".into(), result: Settlement::Delivered };
        let mut state = InboxState::default();
        for record in [inbound("1"), inbound("2"), draft, answer("a", &["2"]), done] {
            state.apply(record);
        }
        let text = lines(&state.compacted(3000, NEVER, false));
        let state = InboxState::replay(&text);
        assert_eq!((state.draft_of("1").as_deref(), state.draft_of("2")), (Some("d"), None));
        assert!(state.has_seen("2"));
    }

    #[test]
    fn a_compacted_journal_keeps_what_can_be_retried_and_the_turns_of_an_hour() {
        let turn = |id: &str, at| InboxRecord::Turn {
            ids: vec![id.into()],
            turn: format!("t{id}"),
            at,
            ended: false,
        };
        let from = |id: &str| {
            let mut record = inbound(id);
            if let InboxRecord::In { message, .. } = &mut record {
                message.from.id = "ann".into();
            }
            record
        };
        let done = |key: &str, result| InboxRecord::Done { key: key.into(), result };
        let mut state = InboxState::default();
        for record in [
            from("1"),
            turn("1", 1000),
            answer("a", &["1"]),
            done("a", Settlement::GivenUp),
            from("2"),
            turn("2", HOUR_MILLIS),
            answer("b", &["2"]),
            done("b", Settlement::Delivered),
        ] {
            state.apply(record);
        }
        // Twice, since the next compaction reads what the first one left.
        for _ in 0..2 {
            let mut compacted = InboxState::default();
            for record in state.compacted(HOUR_MILLIS + 2000, NEVER, false) {
                compacted.apply(record);
            }
            state = compacted;
            assert_eq!(state.turns_since("ann", 2000), 1);
            assert_eq!(state.waiting(), 0);
            assert!(state.has_seen("1") && state.has_seen("2"));
            assert!(!state.outbound("a").unwrap().message.parts.is_empty());
            assert!(state.outbound("b").unwrap().message.parts.is_empty());
        }
    }

    #[test]
    fn a_compacted_journal_keeps_what_waits_and_the_answers_that_are_given_again() {
        let folder = tempfile::tempdir().unwrap();
        let mut inbox = ChannelInbox::open(folder.path()).unwrap();
        let done = |key: &str| InboxRecord::Done { key: key.into(), result: Settlement::Delivered };
        let turn = InboxRecord::Turn {
            ids: vec!["2".into(), "3".into()],
            turn: "abc".into(),
            at: 1500,
            ended: false,
        };
        let begun = [inbound("1"), answer("1", &["1"]), done("1"), inbound("2")];
        inbox.append_all(begun.to_vec()).unwrap();
        inbox.append_all(vec![inbound("3"), turn]).unwrap();
        let mut large = inbound("large");
        if let InboxRecord::In { message, .. } = &mut large {
            message.text = UserText::label("x".repeat(2 << 20));
        }
        let late = [large, answer("large", &["large"]), done("large")];
        inbox.append_all(late.to_vec()).unwrap();
        inbox.compact_if_due(3000, NEVER, true).unwrap();
        let path = folder.path().join(ChannelInbox::FILE_NAME);
        assert!(std::fs::metadata(path).unwrap().len() < 3000);
        let state = ChannelInbox::read(folder.path()).unwrap();
        assert_eq!(describe(&state), r#"unanswered ["2", "3"], undelivered [], 0 settled"#);
        assert_eq!(state.outbound("1").unwrap().message.parts.len(), 2);
        let turns: Vec<usize> = state.unanswered().map(|entry| entry.turns.len()).collect();
        assert_eq!(turns, [1, 1]);
    }

    #[test]
    fn what_is_old_is_forgotten_unless_its_session_has_not_read_it() {
        let day = 24 * HOUR_MILLIS;
        let days = |count: u64| Age::After(Duration::from_secs(count * 86_400));
        let ages = InboxAges { settled: days(7), unread: days(30) };
        let notice = |key: &str, at: i64| {
            let InboxRecord::Out(message) = answer(key, &[]) else { unreachable!("it is one") };
            let source =
                Some(MessageSource { name: "a job".into(), origin: Origin::Project, job: None });
            InboxRecord::Out(OutboundMessage { source, at, ..message })
        };
        let done = |key: &str| InboxRecord::Done { key: key.into(), result: Settlement::Delivered };
        let turn = InboxRecord::Turn {
            ids: vec!["1".into()],
            turn: "t".into(),
            at: 2 * day,
            ended: false,
        };
        let mut state = InboxState::default();
        let records = [
            notice("read", day),
            done("read"),
            inbound("1"),
            turn,
            answer("re", &["1"]),
            done("re"),
            notice("unread", 3 * day),
            done("unread"),
            inbound("2"),
        ];
        records.into_iter().for_each(|record| state.apply(record));
        let keys = |now: i64| -> Vec<String> {
            let mut compacted = InboxState::default();
            state
                .compacted(now, ages, false)
                .into_iter()
                .for_each(|record| compacted.apply(record));
            assert!(compacted.inbound("2").is_some(), "it waits");
            assert!(!compacted.has_expired(now, ages));
            compacted.outbound.into_iter().map(|entry| entry.message.key).collect()
        };
        assert!(!state.has_expired(7 * day, ages));
        assert!(state.has_expired(9 * day + 1, ages));
        assert_eq!(keys(9 * day), ["unread"]);
        assert_eq!(keys(33 * day), ["unread"]);
        assert_eq!(keys(33 * day + 1), [""; 0]);
    }
}
