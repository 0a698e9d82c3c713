//! The configuration of one provider.

use crate::sys::secret::LazySecret;
use serde_json::{Map, Value};
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
}
