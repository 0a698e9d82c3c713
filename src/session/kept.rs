//! What we keep of a conversation in the metadata of its log, under `nanobot`. Every release of the Python program carries
//! that on, also where it writes the file anew; a key that a later release of ours puts there is carried on as well.

use super::line::Metadata;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The key under `metadata`.
const NAME: &str = "nanobot";

/// The version of what this program writes into a log, and the newest that it may add to. A release whose lines an older
/// one would misunderstand, or destroy by what it adds, writes a greater number as `v` beside the rest; as long as there
/// is no such line, no version is written. What has a greater one is read as well as can be, and never written to.
pub(super) const VERSION: u64 = 1;

/// What we keep of a conversation. Messages go by their number in the log, from 0.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Kept {
    #[serde(skip_serializing_if = "is_default")]
    pub(super) stats: Stats,
    /// How often it was tried to consolidate what comes next. It is counted before a try is paid for.
    #[serde(skip_serializing_if = "is_default")]
    pub(super) tries: u32,
    /// From and to of what `/new` put behind, and what is still to be consolidated.
    #[serde(skip_serializing_if = "is_default")]
    pub(super) left: Vec<(usize, usize)>,
    /// Messages before this one are sent with their long results shortened.
    #[serde(skip_serializing_if = "is_default")]
    pub(super) aged: usize,
    /// Tokens that a provider counted for one that we estimated, as of the last reply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ratio: Option<f64>,
    #[serde(flatten)]
    other: Map<String, Value>,
}

/// What all turns of a conversation came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stats {
    pub turns: u64,
    /// Requests to the model.
    pub steps: u64,
    /// Tokens that went in, cached ones included, and that came out.
    #[serde(rename = "in", skip_serializing_if = "is_default")]
    pub input: u64,
    #[serde(rename = "out", skip_serializing_if = "is_default")]
    pub output: u64,
    /// Calls of tools that were let run; of these, those that did what they were asked for, and those that did not.
    #[serde(skip_serializing_if = "is_default")]
    pub agreed: u64,
    #[serde(skip_serializing_if = "is_default")]
    pub succeeded: u64,
    #[serde(skip_serializing_if = "is_default")]
    pub failed: u64,
    /// Calls that were not let run.
    #[serde(skip_serializing_if = "is_default")]
    pub rejected: u64,
    /// Tokens of the last request and its reply: what the conversation weighs now.
    #[serde(skip_serializing_if = "is_default")]
    pub context: u64,
    /// Output tokens in a second, in the last turn.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "whole")]
    pub speed: Option<f64>,
    /// US dollars, as far as they are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
}

impl Stats {
    /// Add those of one more turn.
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
        // To the millionth of a cent: sums of doubles end in noise.
        let rounded = |cost: f64| (cost * 1e8).round() / 1e8;
        self.cost = match (self.cost, *cost) {
            (Some(before), Some(cost)) => Some(rounded(before + cost)),
            (before, cost) => before.or(cost.map(rounded)),
        };
    }
}

impl Kept {
    /// The log has only `count` messages any more, or never had more. What was put behind of others is not there.
    pub(super) fn cut(&mut self, count: usize) {
        self.left.retain(|(from, to)| from < to && *to <= count);
        self.aged = self.aged.min(count);
    }
}

impl Metadata {
    /// The version of what wrote the log.
    pub(super) fn version(&self) -> u64 {
        let kept = self.metadata.get(NAME);
        kept.and_then(|kept| kept["v"].as_u64()).unwrap_or(VERSION)
    }

    /// Whether a newer release of this program wrote the log, so that nothing may be written to it.
    pub(super) fn is_newer(&self) -> bool {
        self.version() > VERSION
    }

    /// What is kept. What cannot be read of it is as if it were not there: it is no reason to refuse a conversation.
    pub(super) fn kept(&self) -> Kept {
        self.metadata
            .get(NAME)
            .and_then(|kept| Kept::deserialize(kept).ok())
            .unwrap_or_default()
    }

    /// Forget what is kept of messages that are not there. What `/new` put behind is before the pointer; where another
    /// program took the pointer back, what comes after it is sent again, and is to be consolidated with the rest.
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

    pub(super) fn keep(&mut self, kept: &Kept) {
        let value = serde_json::to_value(kept).expect("plain values are JSON");
        match value.as_object().is_some_and(Map::is_empty) {
            true => drop(self.metadata.remove(NAME)),
            false => drop(self.metadata.insert(NAME.into(), value)),
        }
    }

    /// Change what is kept.
    pub(super) fn change(&mut self, change: impl FnOnce(&mut Kept)) {
        let mut kept = self.kept();
        change(&mut kept);
        self.keep(&kept);
    }
}

/// Without what is after its point: it is written with each turn.
fn whole<S: serde::Serializer>(number: &Option<f64>, to: S) -> Result<S::Ok, S::Error> {
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
