//! The questions of onboarding. Nothing is written before the answers have been tested with a real request, so a user who leaves
//! at any question has changed nothing. If the test fails, the questions can be answered again.

use super::known_providers::{self, EXAMPLE_ADDRESSES};
use super::menu::{self, MenuItem, MenuMatch, MenuPage};
use crate::command::provider;
use crate::command::question::{self, Cancelled, ask_choice, ask_text, confirm};
use crate::ops::connection_test;
use crate::ops::context::Context;
use crate::ops::mcp_servers;
use crate::ops::model::{self, Endpoint};
use crate::ops::model_catalog::LIST_TIMEOUT;
use crate::ops::onboarding::{
    ConfigEdit, ProviderSection, allow_servers_edit, directory_edit, settings_after,
};
use anyhow::Result;
use nanobot_agent::report::Bar;
use nanobot_base::error::{Exit, Stop, exit_for, hint_for};
use nanobot_config::settings::{Config, Settings};
use nanobot_model::provider::login::{self, Vendor};
use nanobot_model::provider::registry::model_info::{self, MODELS};
use nanobot_model::provider::registry::{
    self, KeyLabel, PROVIDERS, ProviderConfig, ProviderInfo, ProviderKind, normalize_name,
};
use nanobot_net::http;
use nanobot_net::web_url;
use nanobot_os::terminal::{stderr_width, wrap_words};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

/// Timeout for the test request; a local server may have to load its model first.
const TEST_TIMEOUT: Duration = Duration::from_secs(90);
/// The answer that shows the next part of a list.
const MORE: &str = "more";

/// The error of the command, which says that nothing was written if the user left.
fn to_error(error: anyhow::Error) -> anyhow::Error {
    let hint = "`nanobot onboard` again, or with flags, which ask nothing";
    question::to_error(error, "nothing was written", hint)
}

/// The result of the questions.
pub(super) struct WizardAnswers {
    /// The changes to write.
    pub(super) edits: Vec<ConfigEdit>,
    /// The error of the last test, if the user wants the config written anyway.
    pub(super) test_error: Option<anyhow::Error>,
}

/// The questions. Each determines the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WizardStep {
    Provider,
    Address,
    Key,
    Model,
    Test,
}

/// The source of the API key.
#[derive(Clone, Debug)]
enum ApiKeyChoice {
    /// The key in the config, or none if the provider needs none.
    Unchanged,
    Variable(&'static str),
    Typed(String),
}

/// The list of providers.
#[derive(Debug, Default)]
struct ProviderMenu {
    entries: Vec<&'static ProviderInfo>,
    /// An item for each entry.
    items: Vec<MenuItem>,
    /// The number of entries at the beginning that need no further setup.
    ready_count: usize,
}

/// The answers so far.
struct Wizard<'a> {
    ctx: &'a Context,
    /// The config as it is on disk.
    config: &'a Config,
    /// The providers to choose from, in an order that no answer changes.
    providers: ProviderMenu,
    entry: &'static ProviderInfo,
    /// True if the user chose the provider, and false for the initial guess.
    is_chosen: bool,
    base_url: Option<String>,
    key: ApiKeyChoice,
    model: Option<String>,
    /// The models that the server listed.
    listed_models: Vec<String>,
}

/// Asks until the test succeeds, or until the user accepts the config without it.
///
/// # Errors
/// The user cancels with Ctrl-C or Ctrl-D, or the existing config is invalid.
pub(super) fn run(ctx: &Context, config: &Config) -> Result<WizardAnswers> {
    let mut wizard = Wizard {
        ctx,
        config,
        providers: ProviderMenu::default(),
        entry: registry::find_provider("openrouter").expect("the table has it"),
        is_chosen: false,
        base_url: None,
        key: ApiKeyChoice::Unchanged,
        model: None,
        listed_models: Vec::new(),
    };
    // Fail on an invalid config before the first question.
    wizard.providers = provider_menu(ctx, &wizard.settings()?);
    wizard.print(
        "Press Enter to accept the default in [brackets]. Ctrl-C cancels; nothing is written until a model has answered, or you save without that.\n",
    );
    let mut step = WizardStep::Provider;
    let test_error = loop {
        let result = match step {
            WizardStep::Provider => wizard.choose_provider(),
            WizardStep::Address => wizard.choose_address(),
            WizardStep::Key => wizard.choose_key(),
            WizardStep::Model => wizard.choose_model(),
            WizardStep::Test => match wizard.test_connection() {
                Ok(()) => break None,
                Err(error) => Err(error),
            },
        };
        step = match result {
            Ok(step) => step,
            Err(error) if error.is::<Stop>() || error.is::<Cancelled>() => {
                return Err(to_error(error));
            }
            Err(error) => match wizard.ask_next_step(&error).map_err(to_error)? {
                Some(step) => {
                    if step == WizardStep::Model {
                        // The server has refused it.
                        wizard.model = None;
                    }
                    step
                }
                None => break Some(error),
            },
        };
    };
    let mut edits = wizard.edits();
    edits.extend(wizard.choose_directory().map_err(to_error)?);
    edits.extend(wizard.choose_server_rules().map_err(to_error)?);
    Ok(WizardAnswers { edits, test_error })
}

impl Wizard<'_> {
    fn print(&self, text: &str) {
        let terminal = self.ctx.terminal;
        terminal.eprint(&wrap_words(text, stderr_width(), 0));
    }

    fn configured(&self, path: &str) -> Option<&str> {
        let text = self.config.get_path(path).and_then(Value::as_str);
        text.filter(|text| !text.is_empty())
    }

    fn section(&self) -> ProviderSection {
        ProviderSection::from_entry(self.entry)
    }

    /// The changes that follow from the answers so far.
    fn edits(&self) -> Vec<ConfigEdit> {
        let section = self.section();
        let mut edits = vec![ConfigEdit::new("agents.defaults.provider", section.name.as_str())];
        if let Some(base_url) = &self.base_url {
            edits.push(ConfigEdit::new(section.key("apiBase"), base_url.as_str()));
        }
        match &self.key {
            ApiKeyChoice::Unchanged => {}
            ApiKeyChoice::Variable(name) => {
                edits.push(ConfigEdit::new(section.key("apiKey"), format!("${{{name}}}")));
            }
            ApiKeyChoice::Typed(key) => {
                edits.push(ConfigEdit::new(section.key("apiKey"), key.as_str()));
            }
        }
        if let Some(model) = &self.model {
            edits.push(ConfigEdit::new("agents.defaults.model", model.as_str()));
        }
        edits
    }

    /// The settings after these changes.
    fn settings(&self) -> Result<Settings> {
        settings_after(self.ctx, self.config, self.edits())
    }

    /// Resolves the endpoint that would be used, with timeouts of at most `limit`.
    fn resolve_endpoint(&self, limit: Duration) -> Result<(Settings, Endpoint)> {
        let settings = connection_test::with_short_timeouts(&self.settings()?, limit);
        let mut endpoint =
            model::resolve_endpoint(self.ctx, &settings, &settings.models[0], false, true)?;
        if matches!(self.key, ApiKeyChoice::Typed(_)) {
            // It is not in the config yet, so a message must not name its place there.
            endpoint.http_provider.key.source_label = KeyLabel::Phrase("your answer".into());
        }
        Ok((settings, endpoint))
    }

    fn choose_provider(&mut self) -> Result<WizardStep> {
        let ProviderMenu { entries, items, ready_count } = &self.providers;
        self.print("Which provider? Part of the name is enough.");
        let configured =
            self.configured("agents.defaults.provider").and_then(registry::find_provider);
        // Many users have set the Hugging Face variable only for downloads, so it is no reason to choose that provider.
        let ready = entries[..*ready_count].iter().find(|entry| entry.name != "huggingface");
        let default = if self.is_chosen {
            self.entry
        } else {
            configured.or(ready.copied()).unwrap_or(self.entry)
        };
        let mut hidden = self.print_items(items, (0..items.len()).collect());
        let index = loop {
            let answer = ask_text(self.ctx.terminal, "Number or name", default.name)?;
            if answer == MORE {
                hidden = self.print_more(items, hidden);
                continue;
            }
            match menu::find(items, &answer) {
                MenuMatch::One(index) => break index,
                MenuMatch::Several(indexes) => hidden = self.print_items(items, indexes),
                MenuMatch::Nothing => {
                    self.print("No match; please answer with a number or a part of a name.");
                }
            }
        };
        let entry = entries[index];
        self.print(&format!("-> {}\n", entry.label));
        if entry.name != self.entry.name {
            self.base_url = None;
            self.key = ApiKeyChoice::Unchanged;
            self.model = None;
        }
        self.entry = entry;
        self.is_chosen = true;
        Ok(WizardStep::Address)
    }

    /// Prints the next of the items, of which those at the indexes `hidden` were not printed; after the last ones the first ones again.
    fn print_more(&self, items: &[MenuItem], hidden: Vec<usize>) -> Vec<usize> {
        let is_end = hidden.is_empty();
        self.print_items(items, if is_end { (0..items.len()).collect() } else { hidden })
    }

    /// Prints the first of the items at `indexes`, and returns the indexes of those that are left.
    fn print_items(&self, items: &[MenuItem], mut indexes: Vec<usize>) -> Vec<usize> {
        let terminal = self.ctx.terminal;
        let MenuPage { lines, item_count } = menu::format_page(items, &indexes, stderr_width());
        for line in lines {
            terminal.eprint(&line);
        }
        let hidden = indexes.split_off(item_count);
        if !hidden.is_empty() {
            self.print(&format!(
                "  and {} others: `{MORE}` shows them, a part of a name finds one",
                hidden.len()
            ));
        }
        hidden
    }

    /// Shows that the wizard waits for a server, until the spinner is dropped.
    fn show_wait(&self, work: &str) -> Bar {
        let terminal = self.ctx.terminal;
        if !terminal.stderr_is_tty {
            self.print(&format!("{work} …"));
        }
        Bar::spinner(terminal, work)
    }

    /// Asks for the address if there is no default, or if no server listens there.
    fn choose_address(&mut self) -> Result<WizardStep> {
        let ProviderInfo { base_url, kind, .. } = *self.entry;
        let configured = self.configured(&self.section().key("apiBase"));
        let is_listening = || local_port(base_url).is_some_and(http::is_listening);
        let takes_default = match kind {
            ProviderKind::Local => configured.is_none() && is_listening(),
            ProviderKind::Direct => false,
            _ => configured.is_none() && !base_url.is_empty(),
        };
        let address = if takes_default {
            base_url.to_owned()
        } else {
            let default = self.base_url.as_deref().or(configured).unwrap_or(base_url).to_owned();
            let mut examples = EXAMPLE_ADDRESSES.iter();
            if let Some((_, example)) = examples.find(|(name, _)| *name == self.entry.name) {
                self.print(&format!("The address has the form {example}"));
            }
            loop {
                let answer = ask_text(self.ctx.terminal, "Address", &default)?;
                match web_url::check_server(&answer) {
                    Ok(()) => break answer,
                    Err(reason) => self.print(&format!("`{answer}` {reason}.")),
                }
            }
        };
        // A local server, or one at any address, is configured only if its address is in the config.
        let needs_address = self.entry.is_local() || kind == ProviderKind::Direct;
        if address != base_url || needs_address || configured.is_some() {
            self.base_url = Some(address);
        }
        Ok(WizardStep::Key)
    }

    fn choose_key(&mut self) -> Result<WizardStep> {
        let section = self.section();
        if self.entry.kind == ProviderKind::Login {
            self.log_in()?;
            return Ok(WizardStep::Model);
        }
        // A key that a command or a file provides is not asked for.
        let has_key_source = ["apiKeyCommand", "apiKeyFile"]
            .iter()
            .any(|name| self.configured(&section.key(name)).is_some());
        if has_key_source {
            return Ok(WizardStep::Model);
        }
        let has_key = self.configured(&section.key("apiKey")).is_some();
        let mut variables = self.entry.key_variables.iter();
        let variable = variables.find(|name| self.ctx.env.get(name).is_some()).copied();
        let default = match (has_key, variable, self.entry.is_keyless()) {
            (true, ..) => Some((ApiKeyChoice::Unchanged, "the one in the config".to_owned())),
            (_, Some(name), _) => {
                Some((ApiKeyChoice::Variable(name), format!("the one in ${name}")))
            }
            (_, _, true) => Some((ApiKeyChoice::Unchanged, "none".to_owned())),
            _ => None,
        };
        // The key of a local server is not asked for, since most need none.
        if self.entry.is_local() && !has_key {
            self.key = ApiKeyChoice::Unchanged;
            return Ok(WizardStep::Model);
        }
        if let (None, Some(page)) = (&default, known_providers::key_page(self.entry.name)) {
            self.print(&format!("Keys are made at {page}"));
        }
        let prompt = match &default {
            Some((_, source)) => format!("API key, not shown [{source}]: "),
            None => "API key, not shown: ".into(),
        };
        self.key = loop {
            let answer = self.ctx.terminal.prompt_hidden(&prompt)?.ok_or(Cancelled)?;
            match (answer.trim(), &default) {
                ("", Some((key, _))) => break key.clone(),
                ("", None) => self.print("An API key is required."),
                (text, _) if text.chars().any(|c| c.is_control() || c.is_whitespace()) => {
                    self.print("An API key cannot contain blanks or control characters.");
                }
                (text, _) if text.starts_with("http://") || text.starts_with("https://") => {
                    self.print("That is an address, not an API key.");
                }
                (text, _) => break ApiKeyChoice::Typed(text.to_owned()),
            }
        };
        // A new key after a failed test keeps the model.
        Ok(match self.model {
            Some(_) => WizardStep::Test,
            None => WizardStep::Model,
        })
    }

    fn log_in(&self) -> Result<()> {
        let vendor = Vendor::from_name(self.entry.name)?;
        match login::expiry(vendor, &self.ctx.paths.auth())? {
            Some(_) => Ok(()),
            None => provider::log_in(self.ctx, vendor),
        }
    }

    fn choose_model(&mut self) -> Result<WizardStep> {
        let names = self.list_models()?;
        let is_configured_provider = self
            .configured("agents.defaults.provider")
            .is_some_and(|name| normalize_name(name) == normalize_name(self.entry.name));
        let configured =
            if is_configured_provider { self.configured("agents.defaults.model") } else { None };
        let default_model = self.entry.default_model;
        let default = match (&self.model, configured) {
            (Some(model), _) => model.clone(),
            (None, Some(model)) => model.to_owned(),
            // The user's own server may not have the default model. Then its first model that can answer is the default.
            (None, None)
                if self.entry.is_users_own() && !names.iter().any(|name| name == default_model) =>
            {
                let first = names.iter().find(|name| !name.contains("embed"));
                first.cloned().unwrap_or_default()
            }
            (None, None) => default_model.to_owned(),
        };
        let items = model_items(self.entry, &names, &default);
        self.print("Which model?");
        let mut hidden = self.print_items(&items, (0..items.len()).collect());
        let model = loop {
            let answer = ask_text(self.ctx.terminal, "Number or name", &default)?;
            if answer.is_empty() {
                self.print("The server does not list its models: the name of one is needed.");
                continue;
            }
            if answer == default {
                break answer;
            }
            if answer == MORE {
                hidden = self.print_more(&items, hidden);
                continue;
            }
            match menu::find(&items, &answer) {
                MenuMatch::One(index) => break items[index].name.clone(),
                MenuMatch::Several(indexes) => hidden = self.print_items(&items, indexes),
                MenuMatch::Nothing if names.is_empty() => break answer,
                MenuMatch::Nothing => {
                    let question = format!("`{answer}` is not in the list. Use it anyway?");
                    if confirm(self.ctx, &question, false)? {
                        break answer;
                    }
                }
            }
        };
        self.print(&format!("-> {model}\n"));
        self.model = Some(model);
        self.listed_models = names;
        Ok(WizardStep::Test)
    }

    /// Lists the provider's models; empty if it does not support that.
    fn list_models(&mut self) -> Result<Vec<String>> {
        let (_, endpoint) = self.resolve_endpoint(LIST_TIMEOUT)?;
        let server = &endpoint.http_provider;
        let address = web_url::redact_url(&endpoint.choice.base_url);
        let _spinner = self.show_wait(&format!("Asking {address} for its models"));
        let result = server.list_models(&mut |text| self.print(&format!("Note: {text}.")));
        // The address that answered. It may be longer than the one that the user gave.
        let base_url = server.address.current();
        if result.is_ok() && base_url != endpoint.choice.base_url {
            self.base_url = Some(base_url);
        }
        match result.map_err(connection_test::to_error) {
            Ok(names) => Ok(names),
            Err(error) if error.is::<Stop>() => Err(error),
            // Not every server has a list. But one that rejects the key, or is unreachable, will not answer other
            // requests either.
            Err(error) if matches!(exit_for(&error), Exit::Refused | Exit::Unavailable) => {
                Err(error)
            }
            Err(_) => Ok(Vec::new()),
        }
    }

    fn test_connection(&self) -> Result<()> {
        let (settings, endpoint) = self.resolve_endpoint(TEST_TIMEOUT)?;
        let (provider, model) = (&endpoint.choice.provider, &endpoint.choice.model);
        let spinner = self.show_wait(&format!("Testing {model} of {provider}"));
        let print = |text: &str| self.print(&format!("Note: {text}."));
        let reply = connection_test::send_test_request(self.ctx, &settings, endpoint, &print)?;
        drop(spinner);
        if !self.listed_models.is_empty() {
            self.resolve_endpoint(LIST_TIMEOUT)?.1.store_models(self.ctx, &self.listed_models);
        }
        self.print(&format!(
            "It works: \"{}\"\n  {}, {}\n",
            reply.text(),
            reply.describe_duration(),
            reply.describe_cost()
        ));
        Ok(())
    }

    /// Reports the error and asks which question to repeat; `None` to accept the config as it is.
    fn ask_next_step(&self, error: &anyhow::Error) -> Result<Option<WizardStep>> {
        self.print(&format!("That did not work: {error:#}"));
        if let Some(hint) = hint_for(error) {
            self.print(&format!("  try: {hint}"));
        }
        let is_login = self.entry.kind == ProviderKind::Login;
        let default = match exit_for(error) {
            Exit::Refused if !is_login => "k",
            Exit::Config if self.model.is_some() => "m",
            Exit::Config => "p",
            _ => "a",
        };
        self.print(
            "  k  another key\n  m  another model\n  p  another provider or address\n  a  try again\n  s  save anyway",
        );
        let prompt = format!("What now? [{default}]: ");
        let choices = ["k", "m", "p", "a", "s"];
        Ok(match ask_choice(self.ctx.terminal, &prompt, default, &choices)? {
            "k" => Some(WizardStep::Key),
            "m" => Some(WizardStep::Model),
            "p" => Some(WizardStep::Provider),
            "s" => None,
            _ if self.model.is_some() => Some(WizardStep::Test),
            _ => Some(WizardStep::Model),
        })
    }

    /// True if the config is from the Python program, which writes these sections into every config.
    fn is_python_config(&self) -> bool {
        let mut sections = ["channels", "gateway"].iter();
        sections.any(|section| self.config.get_path(section).is_some())
    }

    /// Asks whether the tools of MCP servers are allowed, as in the Python program.
    fn choose_server_rules(&self) -> Result<Option<ConfigEdit>> {
        let settings = self.settings()?;
        if !self.is_python_config() {
            return Ok(None);
        }
        let Some(edit) = allow_servers_edit(self.config, &settings) else {
            return Ok(None);
        };
        let rules = mcp_servers::missing_allow_rules(&settings).join("`, `");
        let question = format!(
            "The Python program lets the agent call every tool of your MCP servers. Allow `{rules}` here too?"
        );
        Ok(confirm(self.ctx, &question, true)?.then_some(edit))
    }

    /// Asks for the working directory if the config is from the Python program, which always works in its workspace.
    fn choose_directory(&self) -> Result<Option<ConfigEdit>> {
        if !self.is_python_config() || self.configured("agents.defaults.directory").is_some() {
            return Ok(None);
        }
        self.print(
            "This config is from the Python program, which always works in its workspace.\n  c  work in the current directory, like other command-line tools\n  w  work in the workspace, as before",
        );
        let prompt = "Working directory? [c]: ";
        let directory = match ask_choice(self.ctx.terminal, prompt, "c", &["c", "w"])? {
            "w" => "workspace",
            _ => "cwd",
        };
        Ok(Some(directory_edit(directory)))
    }
}

/// The port of an address on localhost.
fn local_port(base_url: &str) -> Option<u16> {
    let (_, rest) = base_url.split_once("://localhost:")?;
    rest.split('/').next()?.parse().ok()
}

/// The providers: those that are ready, then well-known ones, then the rest by name.
fn provider_menu(ctx: &Context, settings: &Settings) -> ProviderMenu {
    let configs = model::provider_configs(ctx, settings);
    let supported = PROVIDERS.iter().filter(|entry| entry.kind != ProviderKind::Unsupported);
    let mut providers: Vec<(Option<String>, &'static ProviderInfo)> =
        supported.map(|entry| (describe_readiness(ctx, &configs, entry), entry)).collect();
    providers.sort_by_key(|(readiness, entry)| match readiness {
        // Ready providers stay in the order of the table, which is the order of preference.
        Some(_) => (0, 0, String::new()),
        None => match known_providers::position(entry.name) {
            Some(position) => (1, position, String::new()),
            None => (2, 0, entry.name.to_lowercase()),
        },
    });
    let ready_count = providers.iter().take_while(|(readiness, _)| readiness.is_some()).count();
    let items = providers.iter().map(|(readiness, entry)| MenuItem {
        name: entry.name.into(),
        label: entry.label.into(),
        description: readiness.clone().unwrap_or_else(|| known_providers::describe(entry.name)),
    });
    ProviderMenu {
        items: items.collect(),
        entries: providers.iter().map(|(_, entry)| *entry).collect(),
        ready_count,
    }
}

/// The login, the key or the running local server that makes a provider ready. `None` if it needs further setup.
fn describe_readiness(
    ctx: &Context,
    configs: &BTreeMap<String, ProviderConfig>,
    entry: &ProviderInfo,
) -> Option<String> {
    if let Ok(vendor) = Vendor::from_name(entry.name) {
        let expiry = login::expiry(vendor, &ctx.paths.auth()).ok().flatten();
        return expiry.map(|_| "you are logged in".into());
    }
    if let Some((_, source)) = registry::provider_status(entry.name, configs, &ctx.env).key {
        return Some(format!("key from {}", source.replace('`', "")));
    }
    let port = local_port(entry.base_url)?;
    (entry.is_local() && http::is_listening(port)).then(|| format!("listening on port {port}"))
}

/// The models to choose from: the default first, then those with known prices, then the others by name. If the provider
/// does not list its models, those in the table are used.
fn model_items(entry: &ProviderInfo, names: &[String], default: &str) -> Vec<MenuItem> {
    let mut names = names.to_vec();
    if names.is_empty() && !entry.is_keyless() {
        let models = MODELS
            .iter()
            .filter(|model| normalize_name(model.vendor) == normalize_name(entry.name));
        names.extend(models.map(|model| model.name.to_owned()));
    }
    if !default.is_empty() && !names.iter().any(|name| name == default) {
        names.push(default.to_owned());
    }
    let price = |name: &str| {
        let prices = model_info::find_prices(entry, name)?;
        let price = prices.for_input_tokens(0);
        Some(format!("${} in, ${} out per million tokens", price.input, price.output))
    };
    let describe = |name: &str| match (name == entry.default_model, price(name)) {
        (true, Some(price)) => format!("default; {price}"),
        (true, None) => "default".into(),
        (false, price) => price.unwrap_or_default(),
    };
    let mut items: Vec<MenuItem> = names
        .into_iter()
        .map(|name| MenuItem { description: describe(&name), label: String::new(), name })
        .collect();
    items.sort_by_key(|item| {
        (item.name != default, item.description.is_empty(), item.name.to_lowercase())
    });
    items.dedup_by(|item, previous| item.name == previous.name);
    items
}
