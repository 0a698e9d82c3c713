//! The settings of chat channels, read only by the commands that use channels.

use super::key_node::KeyNode;
use super::key_type::KeyType;
use super::keys::{ConfigKey, config_key};
use super::layers::LayeredConfig;
use super::secret_form::secret_from;
use super::typed_reader::TypedReader;
use anyhow::Result;
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_os::secret::{LazySecret, Secret};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The channels with the keys that enable them, in the order of lists.
pub fn enabled_keys() -> impl Iterator<Item = (&'static str, &'static ConfigKey)> {
    let channels = KeyNode::at(&["channels"]).into_iter().flat_map(KeyNode::children);
    channels.filter_map(|(name, node)| Some((name, node.child("enabled")?.key()?)))
}

/// The keys `channels.NAME.…` of one channel, each with its value or its default.
#[derive(Clone, Debug)]
pub struct ChannelConfig {
    /// The channel's name, as in the config.
    pub name: &'static str,
    /// Values by the rest of the path, such as `allowFrom` or `dm.enabled`.
    values: BTreeMap<&'static str, ChannelValue>,
}

#[derive(Clone, Debug)]
enum ChannelValue {
    Plain(Value),
    Secret(LazySecret),
    SecretMap(Vec<(String, LazySecret)>),
}

/// The keys of `transcription`, and older ones of the Python program.
#[derive(Clone, Debug)]
pub struct TranscriptionSettings {
    pub is_enabled: bool,
    /// A command of the shell that prints the text of the file named by its first argument.
    pub command: Option<String>,
    /// The provider's name in snake_case.
    pub provider: String,
    pub model: Option<String>,
    /// A language code such as `de`; `None` to have it recognized.
    pub language: Option<String>,
    /// The longest recording that is transcribed, in seconds.
    pub max_seconds: u64,
    /// The largest recording that is transcribed, in bytes.
    pub max_bytes: u64,
}

impl TranscriptionSettings {
    /// Reads the keys.
    ///
    /// # Errors
    /// Status 78 for a value that cannot be used.
    pub fn read(layers: &LayeredConfig<'_>) -> Result<Self> {
        let values = TypedReader(layers);
        let count = |key: &'static ConfigKey| -> Result<u64> {
            Ok(values.get(key, None)?.as_u64().unwrap_or_default())
        };
        let text = |key: &'static ConfigKey| values.optional_text(key, None);
        // The newer key takes precedence.
        let first_text = |newer: &'static ConfigKey, older: &'static ConfigKey| {
            text(newer)?.map_or_else(|| text(older), |value| Ok(Some(value)))
        };
        Ok(Self {
            is_enabled: values.boolean(const { config_key("transcription.enabled") })?,
            command: text(const { config_key("transcription.command") })?,
            provider: first_text(
                const { config_key("transcription.provider") },
                const { config_key("channels.transcriptionProvider") },
            )?
            .unwrap_or_else(|| "groq".to_owned()),
            model: text(const { config_key("transcription.model") })?,
            language: first_text(
                const { config_key("transcription.language") },
                const { config_key("channels.transcriptionLanguage") },
            )?,
            max_seconds: count(const { config_key("transcription.maxDurationSec") })?,
            max_bytes: count(const { config_key("transcription.maxUploadMb") })?
                .saturating_mul(BYTES_PER_MEGABYTE),
        })
    }
}

/// The answers that are spoken besides their text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpokenAnswers {
    ToVoice,
    Always,
    Never,
}

/// The keys of `speech`.
#[derive(Clone, Debug)]
pub struct SpeechSettings {
    pub answers: SpokenAnswers,
    /// A command of the shell that reads a text, and prints a recording.
    pub command: Option<String>,
    /// The provider's name in snake_case.
    pub provider: Option<String>,
    pub model: Option<String>,
    pub voice: String,
    /// The format of the service's recordings, such as `opus`.
    pub format: String,
}

impl SpeechSettings {
    /// Reads the keys.
    ///
    /// # Errors
    /// Status 78 for a value that cannot be used.
    pub fn read(layers: &LayeredConfig<'_>) -> Result<Self> {
        let values = TypedReader(layers);
        let text = |key: &'static ConfigKey| values.optional_text(key, None);
        Ok(Self {
            answers: match values.text(const { config_key("speech.when") })?.as_str() {
                "always" => SpokenAnswers::Always,
                "never" => SpokenAnswers::Never,
                _ => SpokenAnswers::ToVoice,
            },
            command: text(const { config_key("speech.command") })?,
            provider: text(const { config_key("speech.provider") })?,
            model: text(const { config_key("speech.model") })?,
            voice: values.text(const { config_key("speech.voice") })?,
            format: values.text(const { config_key("speech.format") })?,
        })
    }

    /// True if something can speak.
    pub fn is_configured(&self) -> bool {
        self.command.is_some() || self.provider.is_some()
    }
}

/// The keys of `channels` that apply to every channel.
#[derive(Clone, Debug)]
pub struct ChannelSettings {
    /// Give a pairing code to unknown senders.
    pub pairing: bool,
    /// Send the text that the model writes before it calls tools.
    pub send_progress: bool,
    /// Send the names of called tools.
    pub send_tool_hints: bool,
    /// Maximum number of turns at once.
    pub max_parallel: usize,
    /// Age in hours above which a message is not answered any more.
    pub(crate) max_age_hours: u64,
    /// Turns that one sender may start in an hour.
    pub per_sender_per_hour: usize,
    /// Maximum cost per day of a channel, in US dollars.
    pub daily_budget: Option<f64>,
    /// Maximum cost per day of a sender in a channel, in US dollars.
    pub sender_daily_budget: Option<f64>,
    /// Attempts at a request that fails for a temporary cause, at least one.
    pub send_max_attempts: u32,
    pub transcription: TranscriptionSettings,
}

const MILLIS_PER_HOUR: i64 = 3_600_000;
const BYTES_PER_MEGABYTE: u64 = 1_000_000;
/// Maximum of `channels.sendMaxRetries`.
const MAX_SEND_ATTEMPTS: u64 = 10;

impl ChannelSettings {
    /// The age above which a message is not answered any more, in milliseconds.
    pub fn max_age_millis(&self) -> i64 {
        let hours = i64::try_from(self.max_age_hours).unwrap_or(i64::MAX);
        hours.saturating_mul(MILLIS_PER_HOUR)
    }

    /// Reads the keys.
    ///
    /// # Errors
    /// Status 78 for a value that cannot be used.
    pub fn read(layers: &LayeredConfig<'_>) -> Result<Self> {
        let values = TypedReader(layers);
        let count = |key: &'static ConfigKey| -> Result<u64> {
            Ok(values.get(key, None)?.as_u64().unwrap_or_default())
        };
        let size = |key: &'static ConfigKey| -> Result<usize> {
            Ok(usize::try_from(count(key)?).unwrap_or(usize::MAX))
        };
        Ok(Self {
            transcription: TranscriptionSettings::read(layers)?,
            pairing: values.boolean(const { config_key("channels.pairing") })?,
            send_progress: values.boolean(const { config_key("channels.sendProgress") })?,
            send_tool_hints: values.boolean(const { config_key("channels.sendToolHints") })?,
            max_parallel: size(const { config_key("channels.maxParallel") })?,
            max_age_hours: count(const { config_key("channels.maxAgeHours") })?,
            per_sender_per_hour: size(const { config_key("channels.perSenderPerHour") })?,
            daily_budget: values.get(const { config_key("channels.dailyBudget") }, None)?.as_f64(),
            sender_daily_budget: values
                .get(const { config_key("channels.senderDailyBudget") }, None)?
                .as_f64(),
            send_max_attempts: u32::try_from(
                count(const { config_key("channels.sendMaxRetries") })?.clamp(1, MAX_SEND_ATTEMPTS),
            )?,
        })
    }
}

impl ChannelConfig {
    /// Reads all keys of the channel `name`.
    ///
    /// # Errors
    /// Status 78 for a value that cannot be used.
    pub fn read(layers: &LayeredConfig<'_>, name: &'static str) -> Result<Self> {
        let mut values = BTreeMap::new();
        let prefix_length = format!("channels.{name}.").len();
        let keys = KeyNode::at(&["channels", name]).map_or(&[][..], KeyNode::keys);
        for key in keys {
            let name = &key.path[prefix_length..];
            let value = layers.read_key(key)?.unwrap_or_else(|| key.default_value());
            if !key.kind.is_secret() {
                values.insert(name, ChannelValue::Plain(value));
                continue;
            }
            let value = match value {
                Value::String(text) => ChannelValue::Secret(LazySecret::new(text)),
                value if key.kind == KeyType::Secret && !value.is_null() => {
                    let secret = secret_from(layers.env(), key.path, &value);
                    ChannelValue::Secret(secret.unwrap_or_else(|| LazySecret::new("")))
                }
                Value::Object(members) => {
                    ChannelValue::SecretMap(layers.secrets_in(key.path, &members))
                }
                value => ChannelValue::Plain(value),
            };
            values.insert(name, value);
        }
        Ok(Self { name, values })
    }

    /// The text of a key, trimmed; `None` if it is blank or null.
    pub fn text(&self, key: &str) -> Option<String> {
        let text = self.plain(key)?.as_str()?.trim();
        (!text.is_empty()).then(|| text.to_owned())
    }

    /// The text of a key as it is written.
    pub fn raw_text(&self, key: &str) -> Option<String> {
        self.plain(key)?.as_str().map(str::to_owned)
    }

    /// The text of a key that must be set.
    ///
    /// # Errors
    /// Status 78 if it is blank; the hint has `example` as the value.
    pub fn required_text(&self, key: &str, example: &str) -> Result<String> {
        self.text(key).ok_or_else(|| self.missing(key, example))
    }

    /// The value of a secret that must be set. The hint is a command that asks for the value.
    ///
    /// # Errors
    /// Status 78 if it is empty or cannot be read.
    pub fn required_secret(&self, key: &str) -> Result<&Secret> {
        self.secret(key)?.ok_or_else(|| self.missing(key, "-"))
    }

    fn missing(&self, key: &str, example: &str) -> anyhow::Error {
        let path = format!("channels.{}.{key}", self.name);
        fail(Exit::Config, format!("`{path}` is not set"))
            .with_hint(format!("`nanobot config set {path} {example}`"))
    }

    /// The value of a key as JSON; null if it is secret or unknown.
    pub fn value(&self, key: &str) -> Value {
        self.plain(key).cloned().unwrap_or_default()
    }

    /// The value of a key that is true or false.
    pub fn flag(&self, key: &str) -> bool {
        self.plain(key) == Some(&Value::Bool(true))
    }

    /// True if the value of a key is true or false.
    pub fn is_flag(&self, key: &str) -> bool {
        self.plain(key).is_some_and(Value::is_boolean)
    }

    /// The value of a number.
    pub fn count(&self, key: &str) -> Option<u64> {
        self.plain(key)?.as_u64()
    }

    /// The texts of a list.
    pub fn list(&self, key: &str) -> Vec<String> {
        let items = self.plain(key).and_then(Value::as_array);
        let texts = items.into_iter().flatten().filter_map(Value::as_str);
        texts.map(str::to_owned).collect()
    }

    /// The value of a secret, which is read if it is kept elsewhere; `None` if it is empty.
    ///
    /// # Errors
    /// Status 78 if it cannot be read.
    pub fn secret(&self, key: &str) -> Result<Option<&Secret>> {
        match self.values.get(key) {
            Some(ChannelValue::Secret(secret)) if !secret.is_empty() => secret.resolve().map(Some),
            _ => Ok(None),
        }
    }

    /// True if a secret has a value. It is not read.
    pub fn has_secret(&self, key: &str) -> bool {
        matches!(self.values.get(key), Some(ChannelValue::Secret(secret)) if !secret.is_empty())
    }

    /// The members of an object of secrets, which are read if they are kept elsewhere.
    ///
    /// # Errors
    /// Status 78 if one cannot be read.
    pub fn secrets(&self, key: &str) -> Result<Vec<(String, Secret)>> {
        let members = match self.values.get(key) {
            Some(ChannelValue::SecretMap(members)) => &members[..],
            _ => &[],
        };
        members.iter().map(|(name, secret)| Ok((name.clone(), secret.resolve()?.clone()))).collect()
    }

    /// True if values of a key are secret, whether it is set or not.
    pub fn is_secret(&self, key: &str) -> bool {
        let path: Vec<&str> = ["channels", self.name].into_iter().chain(key.split('.')).collect();
        KeyNode::kind_at(&path).is_some_and(KeyType::is_secret)
    }

    /// All keys with their values; a secret that is set is `***`.
    pub fn to_json(&self) -> Map<String, Value> {
        let to_json = |value: &ChannelValue| match value {
            ChannelValue::Plain(value) => value.clone(),
            ChannelValue::Secret(secret) if secret.is_empty() => "".into(),
            ChannelValue::Secret(secret) => secret.to_string().into(),
            ChannelValue::SecretMap(members) => {
                let members = members.iter();
                members.map(|(name, secret)| (name.clone(), secret.to_string())).collect()
            }
        };
        self.values.iter().map(|(key, value)| ((*key).to_owned(), to_json(value))).collect()
    }

    /// A text that differs between configs with different secrets or addresses, for a digest. It holds the secrets, which
    /// are read if they are kept elsewhere.
    ///
    /// # Errors
    /// Status 78 if one cannot be read.
    pub fn fingerprint_text(&self) -> Result<String> {
        let mut values = BTreeMap::new();
        for (key, value) in &self.values {
            let value = match value {
                ChannelValue::Plain(value) => Cow::Borrowed(value),
                ChannelValue::Secret(secret) => Cow::Owned(secret.resolve()?.expose().into()),
                ChannelValue::SecretMap(members) => {
                    let members = members.iter().map(|(name, secret)| -> Result<_> {
                        Ok((name.clone(), secret.resolve()?.expose().to_owned()))
                    });
                    Cow::Owned(members.collect::<Result<Value>>()?)
                }
            };
            values.insert(*key, value);
        }
        Ok(serde_json::to_string(&values)?)
    }

    fn plain(&self, key: &str) -> Option<&Value> {
        match self.values.get(key)? {
            ChannelValue::Plain(value) => Some(value),
            ChannelValue::Secret(_) | ChannelValue::SecretMap(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ChannelConfig;
    use crate::settings::Config;
    use crate::settings::layers::LayeredConfig;
    use nanobot_os::env::Env;
    use std::path::Path;

    #[test]
    fn a_key_without_a_value_is_secret_by_its_type() {
        let config = Config::parse(Path::new("c.json"), "{}").unwrap();
        let env = Env::default();
        let layers = LayeredConfig::new(&config, &env);
        let check = |channel: &'static str, key: &str, expect: bool| {
            let channel = ChannelConfig::read(&layers, channel).unwrap();
            assert_eq!(channel.is_secret(key), expect, "{key}");
        };
        check("telegram", "token", true);
        check("telegram", "proxy", true);
        check("program", "env", true);
        check("program", "env.NAME", true);
        check("telegram", "enabled", false);
        check("telegram", "unknown", false);
        check("discord", "proxyUsername", false);
    }

    #[test]
    fn a_stored_key_is_part_of_the_fingerprint() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        std::fs::write(&file, "123:abc\n").unwrap();
        let text = format!(r#"{{"channels": {{"telegram": {{"token": {{"file": {file:?}}}}}}}}}"#);
        let config = Config::parse(Path::new("c.json"), &text).unwrap();
        let env: Env = [("HOME", "/h")].into_iter().collect();
        let layers = LayeredConfig::new(&config, &env);
        let channel = ChannelConfig::read(&layers, "telegram").unwrap();
        assert!(channel.fingerprint_text().unwrap().contains("123:abc"));
    }
}
