//! The configuration of one provider.

use crate::sys::secret::Secret;
use serde_json::{Map, Value};
use std::path::PathBuf;

/// What the config says of one provider.
#[derive(Clone, Debug, Default)]
pub struct ProviderConfig {
    pub key: Option<KeySource>,
    pub base: Option<String>,
    /// The wire format, as written.
    pub api_type: Option<String>,
    pub thinking_style: Option<String>,
    pub headers: Vec<(String, String)>,
    /// Fields that every request has as well.
    pub body: Map<String, Value>,
    pub query: Vec<(String, String)>,
}

/// Where a key is to be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    Text(Secret),
    File(PathBuf),
    /// Its output is the key.
    Command(String),
    /// An account, by the name that it is logged in to with.
    Login(&'static str),
}
