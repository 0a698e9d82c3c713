//! Creates and completes a config and a workspace.

use crate::ops::context::Context;
use crate::ops::mcp_servers;
use anyhow::{Context as _, Result};
use nanobot_base::error::{Exit, fail_with_hint};
use nanobot_config::settings::check::check_channels;
use nanobot_config::settings::key_spelling::{camel_case, format_path, parse_path, snake_case};
use nanobot_config::settings::keys::{KEYS, KeySupport};
use nanobot_config::settings::{Config, FlagOverrides, LayeredConfig, Settings};
use nanobot_model::provider::registry::{PROVIDERS, ProviderInfo, ProviderKind};
use nanobot_store::workspace::Workspace;
use serde_json::Value;

/// A change to the config: a key, its value, and whether it replaces an existing value.
pub(crate) struct ConfigEdit {
    pub(crate) path: String,
    pub(crate) value: Value,
    pub(crate) replaces: bool,
}

impl ConfigEdit {
    /// Creates a change that replaces an existing value.
    pub(crate) fn new(path: impl Into<String>, value: impl Into<Value>) -> Self {
        Self { path: path.into(), value: value.into(), replaces: true }
    }
}

/// Applies the edits to a copy of `config`.
pub(crate) fn apply_edits(
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

/// Writes the config with `edits`, and the missing parts of the workspace. `print` gets what was done.
///
/// # Errors
/// No run could use the config, or a file cannot be written.
pub(crate) fn apply(
    ctx: &Context,
    edits: Vec<ConfigEdit>,
    print: &dyn Fn(&str),
    find_retained_model: &dyn Fn(&Config) -> Option<String>,
) -> Result<Settings> {
    let overrides = FlagOverrides { workspace: ctx.workspace.clone(), ..FlagOverrides::default() };
    let (before, after, settings) = Config::change(&ctx.paths.config, |config| {
        let before = config.clone();
        *config = apply_edits(&before, edits.into_iter().chain(default_edits()))?;
        // Check before anything is written: an unusable config must not be extended.
        let settings = Settings::resolve(config, &ctx.env, &overrides, &ctx.paths)?;
        Ok((before, config.clone(), settings))
    })?;
    for (old, new) in before.files().into_iter().zip(after.files()) {
        let shown = ctx.paths.display(new.path());
        print(&match (old.text() == new.text(), old.exists()) {
            (true, false) => continue,
            (true, true) => format!("kept {shown} unchanged"),
            (false, true) => format!("updated {shown}"),
            (false, false) => format!("created {shown}"),
        });
    }
    if before.exists() {
        describe_changes(&before, &after).iter().for_each(|words| print(words));
    }
    if let Some(model) = find_retained_model(&after) {
        print(&format!(
            "kept the model {model}, which the new provider may not have; `--model NAME` changes it"
        ));
    }
    let workspace = Workspace::new(&settings.workspace);
    let made = workspace.create()?;
    let place = ctx.paths.display(&workspace.root);
    print(&if made.is_empty() {
        format!("kept {place} unchanged")
    } else {
        format!("created in {place}: {}", made.join(", "))
    });
    let layers = LayeredConfig::new(&after, &ctx.env);
    for finding in check_channels(&layers, &settings) {
        print(&finding.to_string());
    }
    Ok(settings)
}

/// The values of the provider and the model that are replaced, as `  model a → b`.
fn describe_changes(before: &Config, after: &Config) -> Vec<String> {
    let change = |name: &&str| {
        let path = format!("agents.defaults.{name}");
        let text = |config: &Config| config.get_path(&path)?.as_str().map(str::to_owned);
        let (old, new) = (text(before)?, text(after)?);
        (old != new).then(|| format!("  {name} {old} → {new}"))
    };
    ["provider", "model"].iter().filter_map(change).collect()
}

/// The section of a provider in the config.
pub(crate) struct ProviderSection {
    /// The provider's name as config values refer to it.
    pub(crate) name: String,
    pub(crate) entry: Option<&'static ProviderInfo>,
}

impl ProviderSection {
    /// The section of a provider in the built-in table.
    pub(crate) fn from_entry(entry: &'static ProviderInfo) -> Self {
        Self { name: snake_case(entry.name), entry: Some(entry) }
    }

    /// The section of the provider called `name`. A provider that is not in the table needs an address, given now or
    /// present in the config.
    pub(crate) fn find(name: &str, has_base: bool, config: &Config) -> Result<Self> {
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
    pub(crate) fn key(&self, key: &str) -> String {
        format_path(&["providers", &camel_case(&self.name), key])
    }
}

/// The setting of the working directory: `cwd` or `workspace`.
pub(crate) fn directory_edit(directory: &str) -> ConfigEdit {
    ConfigEdit::new("agents.defaults.directory", directory)
}

/// The rules for the servers whose tools are not allowed yet; `None` if there are none.
pub(crate) fn allow_servers_edit(settings: &Settings) -> Option<ConfigEdit> {
    let missing = mcp_servers::missing_allow_rules(settings);
    let rules = [settings.tools.allow.clone(), missing.clone()].concat();
    (!missing.is_empty()).then(|| ConfigEdit::new("tools.allow", rules))
}

fn find_entry(name: &str) -> Option<&'static ProviderInfo> {
    PROVIDERS.iter().find(|entry| snake_case(entry.name) == snake_case(name))
}

/// The defaults that a config should spell out, added where it has no value.
pub(crate) fn default_edits() -> impl Iterator<Item = ConfigEdit> {
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
