//! Our entry `nanobot` in the metadata of a log. Every Python release carries it over, even when it rewrites the file;
//! keys that a later release of this program adds to the entry are carried over as well.

use super::line::MetadataLine;
use nanobot_base::message::Origin;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The key within `metadata`.
const METADATA_KEY: &str = "nanobot";

/// The version of our log format, and the newest one that this program may append to. A release whose lines an older
/// one would misunderstand, or would corrupt by appending, writes a greater number as `v` into this entry. Until there
/// are such lines, no version is written. A log with a greater version is read as far as possible, and never written
/// to.
pub(super) const FORMAT_VERSION: u64 = 1;

/// Our data about a session. Messages are identified by their index in the log, from 0.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct SessionMetadata {
    #[serde(skip_serializing_if = "is_default")]
    pub(super) stats: SessionStats,
    /// Number of attempts to consolidate the next range; increased before an attempt is paid for.
    #[serde(rename = "tries", skip_serializing_if = "is_default")]
    pub(super) attempts: u32,
    /// Ranges (start, end) that `/new` has left and that are still to be consolidated.
    #[serde(rename = "left", skip_serializing_if = "is_default")]
    pub(super) ranges_left_by_new: Vec<(usize, usize)>,
    /// Messages before this index are sent with long tool results shortened.
    #[serde(rename = "aged", skip_serializing_if = "is_default")]
    pub(super) shortened_before: usize,
    /// Provider-counted tokens per estimated token, as of the last reply.
    #[serde(rename = "ratio", skip_serializing_if = "Option::is_none")]
    pub(super) token_ratio: Option<f64>,
    /// The origin of the conversation since `/new`; `None` in logs of other programs and earlier releases.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) origin: Option<RecordedOrigin>,
    /// The least trusted origin of the conversations in `ranges_left_by_new`.
    #[serde(rename = "left_origin", skip_serializing_if = "Option::is_none")]
    pub(super) origin_left_by_new: Option<RecordedOrigin>,
    /// Ids of turns that the provider rejected, oldest first.
    #[serde(rename = "rejected", skip_serializing_if = "is_default")]
    pub(super) rejected_turns: Vec<String>,
    /// Lines about turns that the user has undone since the last message. The next message includes them.
    #[serde(rename = "undone", skip_serializing_if = "is_default")]
    pub(super) undo_notes: Vec<String>,
    /// Ids of the unanswered turns on which the server has failed.
    #[serde(rename = "failing", skip_serializing_if = "is_default")]
    pub(super) failing_turns: Vec<String>,
    /// The title that the user has given.
    #[serde(skip_serializing_if = "is_default")]
    pub(super) title: String,
    /// The working directory of the last turn.
    #[serde(rename = "dir", skip_serializing_if = "is_default")]
    pub(super) directory: String,
    /// The messages from elsewhere to the chat that the log has.
    #[serde(rename = "sent", skip_serializing_if = "is_default")]
    pub(super) known_deliveries: KnownDeliveries,
    /// The model that the user has chosen for this conversation.
    #[serde(rename = "chosen", skip_serializing_if = "is_default")]
    pub(super) model_choice: ModelChoice,
    /// The key of the session that this one is a copy of.
    #[serde(skip_serializing_if = "is_default")]
    pub(super) fork_of: String,
    #[serde(flatten)]
    other_keys: Map<String, Value>,
}

/// The model of a conversation, where its user has chosen one in a chat.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ModelChoice {
    /// The name of a model or a preset; `None` for the configured one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The reasoning effort; `None` for the configured one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effort: Option<String>,
}

/// The origin of a conversation, as recorded in its session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RecordedOrigin {
    pub level: Origin,
    /// The first content of this origin, as a phrase. Empty if everything is the user's own.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub content: String,
    /// Number of the first message of the turn that had this content, counted from 1 in the log.
    #[serde(skip_serializing_if = "is_default")]
    pub since: usize,
}

/// The messages from elsewhere (jobs, commands, other runs) to the chat of a session that its log has, by their keys. A message and this
/// record are appended in one write, so the message is in the log once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KnownDeliveries {
    /// Every message up to this one is in the log, or was not delivered.
    pub through: String,
    /// Messages after it that are in the log, while others before them wait for their delivery.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub later: Vec<String>,
}

/// Sums over all turns of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SessionStats {
    pub turns: u64,
    /// Requests to the model.
    pub steps: u64,
    /// Input tokens, including cached ones, and output tokens.
    #[serde(rename = "in", skip_serializing_if = "is_default")]
    pub input: u64,
    #[serde(rename = "out", skip_serializing_if = "is_default")]
    pub output: u64,
    /// Tool calls that were allowed to run; then the successful and the failed ones among them.
    #[serde(rename = "agreed", skip_serializing_if = "is_default")]
    pub allowed: u64,
    #[serde(skip_serializing_if = "is_default")]
    pub succeeded: u64,
    #[serde(skip_serializing_if = "is_default")]
    pub failed: u64,
    /// Tool calls that were denied.
    #[serde(rename = "rejected", skip_serializing_if = "is_default")]
    pub denied: u64,
    /// Tokens of the last request and its reply: the current context size.
    #[serde(skip_serializing_if = "is_default")]
    pub context: u64,
    /// Output tokens per second in the last turn.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "serialize_rounded")]
    pub speed: Option<f64>,
    /// US dollars, as far as costs are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
}

impl SessionStats {
    /// Adds the numbers of one more turn.
    pub(super) fn add(&mut self, turn: &Self) {
        let Self {
            turns,
            steps,
            input,
            output,
            allowed,
            succeeded,
            failed,
            denied,
            context,
            speed,
            cost,
        } = turn;
        self.turns = self.turns.saturating_add(*turns);
        self.steps = self.steps.saturating_add(*steps);
        self.input = self.input.saturating_add(*input);
        self.output = self.output.saturating_add(*output);
        self.allowed = self.allowed.saturating_add(*allowed);
        self.succeeded = self.succeeded.saturating_add(*succeeded);
        self.failed = self.failed.saturating_add(*failed);
        self.denied = self.denied.saturating_add(*denied);
        if *context > 0 {
            self.context = *context;
        }
        self.speed = speed.or(self.speed);
        // Round to 1e-8 dollars, because sums of floats end in noise.
        let rounded = |cost: f64| (cost * 1e8).round() / 1e8;
        self.cost = match (self.cost, *cost) {
            (Some(before), Some(cost)) => Some(rounded(before + cost)),
            (before, cost) => before.or(cost.map(rounded)),
        };
    }
}

impl SessionMetadata {
    /// Ends the conversation. Its messages in `from..to` are still to be consolidated.
    pub(super) fn begin_conversation(&mut self, from: usize, to: usize) {
        self.undo_notes.clear();
        let ended = self.origin.replace(RecordedOrigin::default());
        let mut left_by_new = self.origin_left_by_new.take();
        if self.ranges_left_by_new.is_empty() {
            left_by_new = None;
        }
        self.origin_left_by_new =
            ended.into_iter().chain(left_by_new).max_by_key(|origin| origin.level);
        if from < to {
            self.ranges_left_by_new.push((from, to));
        }
    }

    /// Limits the data to the first `count` messages of the log. Ranges beyond them are removed.
    pub(super) fn truncate(&mut self, count: usize) {
        self.ranges_left_by_new.retain(|(from, to)| from < to && *to <= count);
        self.shortened_before = self.shortened_before.min(count);
    }
}

impl MetadataLine {
    /// The format version of the log.
    pub(super) fn format_version(&self) -> u64 {
        let entry = self.metadata.get(METADATA_KEY);
        entry.and_then(|entry| entry["v"].as_u64()).unwrap_or(FORMAT_VERSION)
    }

    /// True if a newer release of this program wrote the log, so that nothing may be written to it.
    pub(super) fn is_newer(&self) -> bool {
        self.format_version() > FORMAT_VERSION
    }

    /// The title of the session: the one that the user has given, or else that of a newer Python release.
    pub(super) fn title(&self) -> Option<String> {
        let title = self.session_metadata().title;
        if !title.is_empty() {
            return Some(title);
        }
        let title = self.metadata.get("title")?.as_str()?;
        (!title.is_empty()).then(|| title.to_owned())
    }

    /// Reads our entry. An invalid entry gives the defaults, because it is no reason to refuse a session.
    pub(super) fn session_metadata(&self) -> SessionMetadata {
        self.metadata
            .get(METADATA_KEY)
            .and_then(|entry| SessionMetadata::deserialize(entry).ok())
            .unwrap_or_default()
    }

    /// Removes data about messages that do not exist. Ranges left by `/new` are before the pointer. If another program
    /// has moved the pointer back, messages after it are sent again and consolidated with the rest, so ranges are cut
    /// there.
    pub(super) fn clamp(&mut self, count: usize) {
        let before = self.session_metadata();
        let mut session_metadata = before.clone();
        session_metadata.truncate(count);
        for (_, to) in &mut session_metadata.ranges_left_by_new {
            *to = self.last_consolidated.min(*to);
        }
        session_metadata.ranges_left_by_new.retain(|(from, to)| from < to);
        if session_metadata != before {
            if session_metadata.ranges_left_by_new != before.ranges_left_by_new {
                session_metadata.attempts = 0;
            }
            self.set_session_metadata(&session_metadata);
        }
    }

    /// Stores our entry; an empty one is removed.
    pub(super) fn set_session_metadata(&mut self, session_metadata: &SessionMetadata) {
        let value = serde_json::to_value(session_metadata).expect("plain values are JSON");
        if value.as_object().is_some_and(Map::is_empty) {
            drop(self.metadata.remove(METADATA_KEY));
        } else {
            drop(self.metadata.insert(METADATA_KEY.into(), value));
        }
    }

    /// Updates our entry.
    pub(super) fn update_session_metadata(&mut self, change: impl FnOnce(&mut SessionMetadata)) {
        let mut session_metadata = self.session_metadata();
        change(&mut session_metadata);
        self.set_session_metadata(&session_metadata);
    }
}

/// Serializes without decimals: the value is written with each turn.
fn serialize_rounded<S: serde::Serializer>(
    number: &Option<f64>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    number.map(|number| number.round() as u64).serialize(serializer)
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[cfg(test)]
mod tests {
    use super::{MetadataLine, SessionMetadata, SessionStats};
    use serde_json::json;

    #[test]
    fn counts_of_a_server_do_not_overflow() {
        let mut stats = SessionStats { input: 1, ..SessionStats::default() };
        stats.add(&SessionStats { input: u64::MAX, ..SessionStats::default() });
        assert_eq!(stats.input, u64::MAX);
    }

    #[test]
    fn metadata_round_trips_and_foreign_keys_are_preserved() {
        let mut metadata = MetadataLine::default();
        metadata.metadata.insert("title".into(), "a".into());
        metadata.update_session_metadata(|_| {});
        assert_eq!(json!(metadata.metadata), json!({ "title": "a" }));
        metadata.metadata.insert("nanobot".into(), json!({ "later": 1, "tries": 2 }));
        metadata.update_session_metadata(|kept| kept.ranges_left_by_new.push((3, 5)));
        let expect =
            json!({ "title": "a", "nanobot": { "later": 1, "tries": 2, "left": [[3, 5]] } });
        assert_eq!(json!(metadata.metadata), expect);
        metadata.metadata.insert("nanobot".into(), json!("odd"));
        assert_eq!(metadata.session_metadata(), SessionMetadata::default());
    }
}
