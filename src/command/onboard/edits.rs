//! Changes to the config made by onboarding.

use crate::cli::onboard::DirectoryArg;
use crate::error::{Exit, fail_with_hint};
use crate::ops::mcp_servers;
use crate::provider::registry::{PROVIDERS, ProviderInfo, ProviderKind};
use crate::settings::key_spelling::{camel_case, format_path, parse_path, snake_case};
use crate::settings::keys::{KEYS, KeySupport};
use crate::settings::{Config, Settings};
use anyhow::{Context, Result};
use serde_json::Value;

/// A change to the config: a key, its value, and whether it replaces an existing value.
pub(super) struct ConfigEdit {
    pub(super) path: String,
    pub(super) value: Value,
    pub(super) replaces: bool,
}

impl ConfigEdit {
    /// Creates a change that replaces an existing value.
    pub(super) fn new(path: impl Into<String>, value: impl Into<Value>) -> Self {
        Self { path: path.into(), value: value.into(), replaces: true }
    }
}

/// Applies the edits to a copy of `config`.
pub(super) fn apply_edits(
    config: &Config,
    edits: impl Iterator<Item = ConfigEdit>,
) -> Result<Config> {
    let mut config = config.clone();
    for ConfigEdit { path, value, replaces } in edits {
        let present = config.get_path(&path);
        if present.is_none() || replaces && present != Some(&value) {
            let names = parse_path(&path).with_context(|| format!("set `{path}`"))?;
            config.set(&names, &value)?;
        }
    }
    Ok(config)
}

/// The section of a provider in the config.
pub(super) struct ProviderSection {
    /// The provider's name as config values refer to it.
    pub(super) name: String,
    pub(super) entry: Option<&'static ProviderInfo>,
}

impl ProviderSection {
    /// The section of a provider in the built-in table.
    pub(super) fn from_entry(entry: &'static ProviderInfo) -> Self {
        Self { name: snake_case(entry.name), entry: Some(entry) }
    }

    /// The section of the provider called `name`. A provider that is not in the table needs an address, given now or
    /// present in the config.
    pub(super) fn find(name: &str, has_base: bool, config: &Config) -> Result<Self> {
        let block = Self { name: snake_case(name), entry: find_entry(name) };
        let known = block.entry.is_some()
            || name == "auto"
            || has_base
            || config.get_path(&block.key("apiBase")).is_some();
        if !known {
            let names: Vec<&str> = PROVIDERS
                .iter()
                .filter(|entry| entry.kind != ProviderKind::Unsupported)
                .map(|entry| entry.name)
                .collect();
            return Err(fail_with_hint(
                Exit::Usage,
                format!("there is no provider `{name}`"),
                format!("one of {}, or any name with `--api-base URL`", names.join(", ")),
            ));
        }
        Ok(block)
    }

    /// The path of one of its keys.
    pub(super) fn key(&self, key: &str) -> String {
        format_path(&["providers", &camel_case(&self.name), key])
    }
}

/// The setting of the working directory.
pub(super) fn directory_edit(directory: DirectoryArg) -> ConfigEdit {
    let word = match directory {
        DirectoryArg::Cwd => "cwd",
        DirectoryArg::Workspace => "workspace",
    };
    ConfigEdit::new("agents.defaults.directory", word)
}

/// The rules for the servers whose tools are not allowed yet; `None` if there are none.
pub(super) fn allow_servers_edit(settings: &Settings) -> Option<ConfigEdit> {
    let missing = mcp_servers::missing_allow_rules(settings);
    let rules = [settings.tools.allow.clone(), missing.clone()].concat();
    (!missing.is_empty()).then(|| ConfigEdit::new("tools.allow", rules))
}

fn find_entry(name: &str) -> Option<&'static ProviderInfo> {
    PROVIDERS.iter().find(|entry| snake_case(entry.name) == snake_case(name))
}

/// The defaults that a config should spell out, added where it has no value.
pub(super) fn default_edits() -> impl Iterator<Item = ConfigEdit> {
    let rows = KEYS
        .iter()
        .filter(|key| key.support == KeySupport::UsedAndWritten && !key.path.contains('*'));
    rows.map(|key| ConfigEdit {
        path: key.path.into(),
        value: key.default_value(),
        replaces: false,
    })
    .filter(|edit| !edit.value.is_null())
}
