//! Settings of the terminal. Only a run on a terminal reads them, when it needs one.

use super::keys::config_key;
use super::typed_reader::TypedReader;
use super::{Config, LayeredConfig};
use anyhow::Result;
use nanobot_os::env::{COLORFGBG, Env};
use nanobot_os::terminal::theme::Background;
use std::time::Duration;

/// The settings of the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalSettings {
    /// The background; `None` if it is unknown.
    pub background: Option<Background>,
    /// The duration of a turn after which its end, and a request for approval, ring the bell; `None` for never.
    pub bell: Option<Duration>,
    /// True for the keys of vi in the line editor, instead of those of emacs.
    pub uses_vi_keys: bool,
}

impl TerminalSettings {
    /// Resolves the settings from the config and the environment.
    ///
    /// # Errors
    /// Status 78 for an invalid value.
    pub fn resolve(config: &Config, env: &Env) -> Result<Self> {
        let layers = LayeredConfig::new(config, env);
        let values = TypedReader(&layers);
        let background = values.text(const { config_key("terminal.background") })?;
        let bell = values.get(const { config_key("terminal.bell") }, None)?;
        Ok(Self {
            background: match background.as_str() {
                "dark" => Some(Background::Dark),
                "light" => Some(Background::Light),
                _ => env.get(COLORFGBG).and_then(Background::parse_colorfgbg),
            },
            bell: bell.as_u64().map(Duration::from_secs),
            uses_vi_keys: values.text(const { config_key("terminal.editMode") })? == "vi",
        })
    }
}
