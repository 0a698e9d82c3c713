//! Creates and completes a config and a workspace.

use crate::ops::context::Context;
use crate::ops::mcp_servers;
use anyhow::{Context as _, Result};
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_config::settings::check::check_channels;
use nanobot_config::settings::key_spelling::{camel_case, format_path, parse_path, snake_case};
use nanobot_config::settings::keys::{KEYS, KeySupport};
use nanobot_config::settings::{Config, FlagOverrides, LayeredConfig, Settings};
use nanobot_model::provider::registry::{PROVIDERS, ProviderInfo, ProviderKind};
use nanobot_store::workspace::Workspace;
use serde_json::Value;

/// A change to the config.
#[derive(Clone)]
pub(crate) struct ConfigEdit {
    pub(crate) path: String,
    pub(crate) value: Value,
    /// True if it replaces an existing value.
    pub(crate) replaces: bool,
}

impl ConfigEdit {
    /// Creates a change that replaces an existing value.
    pub(crate) fn new(path: impl Into<String>, value: impl Into<Value>) -> Self {
        Self { path: path.into(), value: value.into(), replaces: true }
    }
}

/// Applies the edits to a copy of `config`.
fn apply_edits(config: &Config, edits: impl Iterator<Item = ConfigEdit>) -> Result<Config> {
    let mut config = config.clone();
    for ConfigEdit { path, value, replaces } in edits {
        let current = config.get_path(&path);
        let is_locked = config.lock_position(&parse_path(&path).unwrap_or_default()).is_some();
        let applies =
            if replaces { current != Some(&value) } else { current.is_none() && !is_locked };
        if applies {
            let names = parse_path(&path).with_context(|| format!("set `{path}`"))?;
            config.set(&names, &value)?;
        }
    }
    Ok(config)
}

/// The settings of a run if `edits` were made to `config`. Nothing is written.
///
/// # Errors
/// No run could use the config.
pub(crate) fn settings_after(
    ctx: &Context,
    config: &Config,
    edits: Vec<ConfigEdit>,
) -> Result<Settings> {
    let overrides = FlagOverrides { workspace: ctx.workspace.clone(), ..FlagOverrides::default() };
    let config = apply_edits(config, edits.into_iter().chain(default_edits()))?;
    Settings::resolve(&config, &ctx.env, &overrides, &ctx.paths)
}

/// Writes the config with `edits`, and the missing parts of the workspace. `print` gets a line for each change.
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
    let (old_config, new_config, settings) = Config::change(&ctx.paths, |config| {
        let old_config = config.clone();
        *config = apply_edits(&old_config, edits.into_iter().chain(default_edits()))?;
        // Check before anything is written: an unusable config must not be extended.
        let settings = Settings::resolve(config, &ctx.env, &overrides, &ctx.paths)?;
        Ok((old_config, config.clone(), settings))
    })?;
    for (old, new) in old_config.files().into_iter().zip(new_config.files()) {
        let path = ctx.paths.display(new.path());
        print(&match (old.text() == new.text(), old.exists()) {
            (true, false) => continue,
            (true, true) => format!("kept {path} unchanged"),
            (false, true) => format!("updated {path}"),
            (false, false) => format!("created {path}"),
        });
    }
    if old_config.exists() {
        for change in describe_changes(&old_config, &new_config) {
            print(&change);
        }
    }
    if let Some(model) = find_retained_model(&new_config) {
        print(&format!(
            "kept the model {model}, which the new provider may not have; `--model NAME` changes it"
        ));
    }
    let workspace = Workspace::new(&settings.workspace);
    let created = workspace.create()?;
    let root = ctx.paths.display(&workspace.root);
    print(&if created.is_empty() {
        format!("kept {root} unchanged")
    } else {
        format!("created in {root}: {}", created.join(", "))
    });
    let layers = LayeredConfig::new(&new_config, &ctx.env);
    for finding in check_channels(&layers, &settings) {
        print(&finding.to_string());
    }
    Ok(settings)
}

/// The values of the provider and the model that are replaced, as `  model a → b`.
fn describe_changes(old_config: &Config, new_config: &Config) -> Vec<String> {
    let change = |name: &&str| {
        let path = format!("agents.defaults.{name}");
        let text = |config: &Config| config.get_path(&path)?.as_str().map(str::to_owned);
        let (old, new) = (text(old_config)?, text(new_config)?);
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
    pub(crate) fn from_entry(provider: &'static ProviderInfo) -> Self {
        Self { name: snake_case(provider.name), entry: Some(provider) }
    }

    /// The section of the provider called `name`. A provider that is not in the table needs an address, from a flag or from
    /// the config.
    ///
    /// # Errors
    /// Status 2 if no run could use the provider.
    pub(crate) fn find(name: &str, has_base: bool, config: &Config) -> Result<Self> {
        let entry = PROVIDERS.iter().find(|provider| snake_case(provider.name) == snake_case(name));
        let section = Self { name: snake_case(name), entry };
        let cause = match section.entry {
            Some(entry) if entry.kind == ProviderKind::Unsupported => {
                Some(format!("{} is not supported by this release", entry.label))
            }
            None if name != "auto"
                && !has_base
                && config.get_path(&section.key("apiBase")).is_none() =>
            {
                Some(format!("there is no provider `{name}`"))
            }
            _ => None,
        };
        if let Some(cause) = cause {
            let names: Vec<&str> = PROVIDERS
                .iter()
                .filter(|provider| provider.kind != ProviderKind::Unsupported)
                .map(|provider| provider.name)
                .collect();
            return Err(fail(Exit::Usage, cause).with_hint(format!(
                "one of {}, or any name with `--api-base URL`",
                names.join(", ")
            )));
        }
        Ok(section)
    }

    /// The path of a key in the section.
    pub(crate) fn key(&self, key: &str) -> String {
        format_path(&["providers", &camel_case(&self.name), key])
    }
}

/// The setting of the working directory: `cwd` or `workspace`.
pub(crate) fn directory_edit(directory: &str) -> ConfigEdit {
    ConfigEdit::new("agents.defaults.directory", directory)
}

/// The rules for the servers whose tools are not allowed yet, after those of `config`; `None` if there are none.
pub(crate) fn allow_servers_edit(config: &Config, settings: &Settings) -> Option<ConfigEdit> {
    let missing = mcp_servers::missing_allow_rules(settings);
    // The list of the settings may have rules of the environment.
    let rules = config.get_path("tools.allow").and_then(Value::as_array).into_iter().flatten();
    let rules: Vec<Value> =
        rules.cloned().chain(missing.iter().map(|rule| rule.as_str().into())).collect();
    (!missing.is_empty()).then(|| ConfigEdit::new("tools.allow", rules))
}

/// The defaults that a config should spell out, added where it has no value.
fn default_edits() -> impl Iterator<Item = ConfigEdit> {
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
