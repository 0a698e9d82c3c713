//! The configuration of one provider.

use crate::provider::cloud::aws::AwsSource;
use nanobot_os::secret::LazySecret;
use serde_json::{Map, Value};
use std::fmt;
use std::path::PathBuf;

/// The config of one provider.
#[derive(Clone, Debug, Default)]
pub struct ProviderConfig {
    pub key: Option<KeySource>,
    pub base_url: Option<String>,
    /// The wire format, as written.
    pub api_type: Option<String>,
    pub thinking_style: Option<String>,
    pub headers: Vec<(String, LazySecret)>,
    /// Extra fields of every request body.
    pub body: Map<String, Value>,
    pub query: Vec<(String, String)>,
    /// The region of a cloud.
    pub region: Option<String>,
    /// The profile of a cloud's own tools.
    pub profile: Option<String>,
}

/// The source of an API key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    Secret(LazySecret),
    File(PathBuf),
    /// A shell command that prints the key.
    Command(String),
    /// A stored login, by its vendor's name.
    Login(&'static str),
    /// Keys of AWS, which sign requests.
    Aws(AwsSource),
    /// A file with credentials of Google Cloud, which are exchanged for a token.
    Google(PathBuf),
}

/// The location of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyLabel {
    /// An environment variable.
    Variable(&'static str),
    /// Any other location, as a phrase.
    Phrase(String),
}

impl KeyLabel {
    /// The name of the variable, if the key is in one.
    pub fn variable(&self) -> Option<&'static str> {
        match self {
            Self::Variable(name) => Some(name),
            Self::Phrase(_) => None,
        }
    }

    /// The location for a table or JSON, where names of keys and files stand without backticks.
    pub fn plain_text(&self) -> String {
        self.to_string().replace('`', "")
    }
}

impl fmt::Display for KeyLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable(name) => write!(f, "${name}"),
            Self::Phrase(text) => f.write_str(text),
        }
    }
}
