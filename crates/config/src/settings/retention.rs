//! `retention.*`: the ages at which stored data is removed. The table of keys has the defaults.

use super::keys::{ConfigKey, config_key};
use super::typed_reader::TypedReader;
use anyhow::Result;
use nanobot_os::age::Age;

/// The ages at which stored data is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Sessions, which are moved to the trash.
    pub sessions: Age,
    /// Sessions of one run with piped input.
    pub pipe_sessions: Age,
    /// Removed sessions, and conversations as they were before a rewind.
    pub trash: Age,
    /// Attachments of chat messages, and pasted images.
    pub media: Age,
    /// Records and outputs of jobs.
    pub runs: Age,
    /// Lines of the ledger, and of the use of tools.
    pub ledger: Age,
    /// Changes of turns, for undo.
    pub undo: Age,
    /// Settled messages and answers of channels and named pipes.
    pub inbox: Age,
    /// True if the config has one of the keys: all data is then examined once a day. Else old data is removed where more of its kind is
    /// stored.
    pub is_configured: bool,
}

impl Retention {
    const DEFAULT: Self = Self {
        sessions: default_age("retention.sessions"),
        pipe_sessions: default_age("retention.pipeSessions"),
        trash: default_age("retention.trash"),
        media: default_age("retention.media"),
        runs: default_age("retention.runs"),
        ledger: default_age("retention.ledger"),
        undo: default_age("retention.undo"),
        inbox: default_age("retention.inbox"),
        is_configured: false,
    };

    /// Returns each kind of data, as its key names it, with its age.
    pub fn ages(&self) -> [(&'static str, Age); 8] {
        [
            ("sessions", self.sessions),
            ("pipeSessions", self.pipe_sessions),
            ("trash", self.trash),
            ("media", self.media),
            ("runs", self.runs),
            ("ledger", self.ledger),
            ("undo", self.undo),
            ("inbox", self.inbox),
        ]
    }

    pub(super) fn read(reader: &TypedReader<'_>) -> Result<Self> {
        // Most configs have no ages, so the search for each key is skipped.
        if reader.0.value()["retention"].is_null() {
            return Ok(Self::DEFAULT);
        }
        let age = |key: &'static ConfigKey| {
            let value = reader.get(key, None)?;
            let age = value.as_str().and_then(Age::parse);
            anyhow::Ok(age.expect("the table says that it is an age"))
        };
        Ok(Self {
            sessions: age(const { config_key("retention.sessions") })?,
            pipe_sessions: age(const { config_key("retention.pipeSessions") })?,
            trash: age(const { config_key("retention.trash") })?,
            media: age(const { config_key("retention.media") })?,
            runs: age(const { config_key("retention.runs") })?,
            ledger: age(const { config_key("retention.ledger") })?,
            undo: age(const { config_key("retention.undo") })?,
            inbox: age(const { config_key("retention.inbox") })?,
            is_configured: true,
        })
    }
}

/// The default of the key at `path`, which is `"never"` or a number of days such as `"30d"`.
const fn default_age(path: &str) -> Age {
    let text = config_key(path).default.as_bytes();
    let (mut index, mut days) = (1, 0);
    while text[index].is_ascii_digit() {
        days = days * 10 + (text[index] - b'0') as u64;
        index += 1;
    }
    Age::from_days(days)
}

#[cfg(test)]
mod tests {
    use super::Retention;
    use crate::settings::key_type::KeyType;
    use crate::settings::keys::KEYS;

    #[test]
    fn the_defaults_are_those_of_the_table() {
        let rows = KEYS.iter().filter(|key| key.kind == KeyType::Age);
        let rows: Vec<String> =
            rows.map(|key| format!("{} {}", key.path, key.default.replace('"', ""))).collect();
        let ages = Retention::DEFAULT.ages();
        assert_eq!(rows, ages.map(|(name, age)| format!("retention.{name} {age}")));
    }
}
