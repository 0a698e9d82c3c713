//! Our entry `nanobot` in the metadata of a log. Every Python release carries it over, even when it rewrites the file;
//! keys that a later release of this program adds to the entry are carried over as well.

use super::line::Metadata;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The key within `metadata`.
const NAME: &str = "nanobot";

/// The version of our log format, and the newest one that this program may append to. A release whose lines an older
/// one would misunderstand, or would corrupt by appending, writes a greater number as `v` into this entry. Until there
/// are such lines, no version is written. A log with a greater version is read as far as possible, and never written
/// to.
pub(super) const VERSION: u64 = 1;

/// Our data about a session. Messages are identified by their index in the log, from 0.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Kept {
    #[serde(skip_serializing_if = "is_default")]
    pub(super) stats: Stats,
    /// Number of attempts to consolidate the next range; increased before an attempt is paid for.
    #[serde(rename = "tries", skip_serializing_if = "is_default")]
    pub(super) tries: u32,
    /// Ranges (start, end) that `/new` has left and that are still to be consolidated.
    #[serde(rename = "left", skip_serializing_if = "is_default")]
    pub(super) left: Vec<(usize, usize)>,
    /// Messages before this index are sent with long tool results shortened.
    #[serde(rename = "aged", skip_serializing_if = "is_default")]
    pub(super) aged: usize,
    /// Provider-counted tokens per estimated token, as of the last reply.
    #[serde(rename = "ratio", skip_serializing_if = "Option::is_none")]
    pub(super) ratio: Option<f64>,
    #[serde(flatten)]
    other: Map<String, Value>,
}

/// Sums over all turns of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stats {
    pub turns: u64,
    /// Requests to the model.
    pub steps: u64,
    /// Input tokens, including cached ones, and output tokens.
    #[serde(rename = "in", skip_serializing_if = "is_default")]
    pub input: u64,
    #[serde(rename = "out", skip_serializing_if = "is_default")]
    pub output: u64,
    /// Tool calls that were allowed to run; of these, the successful and the failed ones.
    #[serde(rename = "agreed", skip_serializing_if = "is_default")]
    pub agreed: u64,
    #[serde(skip_serializing_if = "is_default")]
    pub succeeded: u64,
    #[serde(skip_serializing_if = "is_default")]
    pub failed: u64,
    /// Tool calls that were denied.
    #[serde(rename = "rejected", skip_serializing_if = "is_default")]
    pub rejected: u64,
    /// Tokens of the last request and its reply: the current context size.
    #[serde(skip_serializing_if = "is_default")]
    pub context: u64,
    /// Output tokens per second in the last turn.
    #[serde(
        skip_serializing_if = "Option::is_none",
        serialize_with = "serialize_rounded"
    )]
    pub speed: Option<f64>,
    /// US dollars, as far as costs are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
}

impl Stats {
    /// Adds the numbers of one more turn.
    pub(super) fn add(&mut self, turn: &Self) {
        let Self {
            turns,
            steps,
            input,
            output,
            agreed,
            succeeded,
            failed,
            rejected,
            context,
            speed,
            cost,
        } = turn;
        self.turns += turns;
        self.steps += steps;
        self.input += input;
        self.output += output;
        self.agreed += agreed;
        self.succeeded += succeeded;
        self.failed += failed;
        self.rejected += rejected;
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

impl Kept {
    /// Limits the data to the first `count` messages of the log. Ranges beyond them are removed.
    pub(super) fn cut(&mut self, count: usize) {
        self.left.retain(|(from, to)| from < to && *to <= count);
        self.aged = self.aged.min(count);
    }
}

impl Metadata {
    /// The format version of the log.
    pub(super) fn version(&self) -> u64 {
        let kept = self.metadata.get(NAME);
        kept.and_then(|kept| kept["v"].as_u64()).unwrap_or(VERSION)
    }

    /// True if a newer release of this program wrote the log, so that nothing may be written to it.
    pub(super) fn is_newer(&self) -> bool {
        self.version() > VERSION
    }

    /// Reads our entry. An invalid entry gives the defaults, because it is no reason to refuse a session.
    pub(super) fn kept(&self) -> Kept {
        self.metadata
            .get(NAME)
            .and_then(|kept| Kept::deserialize(kept).ok())
            .unwrap_or_default()
    }

    /// Removes data about messages that do not exist. Ranges left by `/new` are before the pointer. If another program
    /// has moved the pointer back, messages after it are sent again and consolidated with the rest, so ranges are cut
    /// there.
    pub(super) fn settle(&mut self, count: usize) {
        let before = self.kept();
        let mut kept = before.clone();
        kept.cut(count);
        for left in &mut kept.left {
            left.1 = left.1.min(self.last_consolidated);
        }
        kept.left.retain(|(from, to)| from < to);
        if kept != before {
            if kept.left != before.left {
                kept.tries = 0;
            }
            self.keep(&kept);
        }
    }

    /// Stores our entry; an empty one is removed.
    pub(super) fn keep(&mut self, kept: &Kept) {
        let value = serde_json::to_value(kept).expect("plain values are JSON");
        match value.as_object().is_some_and(Map::is_empty) {
            true => drop(self.metadata.remove(NAME)),
            false => drop(self.metadata.insert(NAME.into(), value)),
        }
    }

    /// Updates our entry.
    pub(super) fn change(&mut self, change: impl FnOnce(&mut Kept)) {
        let mut kept = self.kept();
        change(&mut kept);
        self.keep(&kept);
    }
}

/// Serializes without decimals: the value is written with each turn.
fn serialize_rounded<S: serde::Serializer>(number: &Option<f64>, to: S) -> Result<S::Ok, S::Error> {
    number.map(|number| number.round() as u64).serialize(to)
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[cfg(test)]
mod tests {
    use super::{Kept, Metadata};
    use serde_json::json;

    #[test]
    fn what_is_kept_is_read_back_and_what_others_keep_stays() {
        let mut metadata = Metadata::default();
        metadata.metadata.insert("title".into(), "a".into());
        metadata.change(|_| {});
        assert_eq!(json!(metadata.metadata), json!({ "title": "a" }));
        metadata
            .metadata
            .insert("nanobot".into(), json!({ "later": 1, "tries": 2 }));
        metadata.change(|kept| kept.left.push((3, 5)));
        let expect =
            json!({ "title": "a", "nanobot": { "later": 1, "tries": 2, "left": [[3, 5]] } });
        assert_eq!(json!(metadata.metadata), expect);
        metadata.metadata.insert("nanobot".into(), json!("odd"));
        assert_eq!(metadata.kept(), Kept::default());
    }
}
