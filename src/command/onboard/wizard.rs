//! The questions of onboarding. Nothing is written before the answers have been tested with a real request, so leaving
//! at any question changes nothing. If the test fails, the questions can be answered again.

use super::known_providers::{self, EXAMPLE_ADDRESSES};
use super::menu::{self, MenuItem, MenuMatch};
use crate::command::provider;
use crate::command::question::{self, Cancelled, ask_choice, ask_text, confirm};
use crate::ops::connection_test;
use crate::ops::context::Context;
use crate::ops::mcp_servers;
use crate::ops::model::{self, Endpoint};
use crate::ops::model_catalog::LIST_TIMEOUT;
use crate::ops::onboarding::{
    ConfigEdit, ProviderSection, allow_servers_edit, apply_edits, default_edits, directory_edit,
};
use anyhow::Result;
use nanobot_base::error::{Exit, Stop, exit_for, hint_for};
use nanobot_config::settings::{Config, FlagOverrides, Settings};
use nanobot_model::provider::login::{self, Vendor};
use nanobot_model::provider::registry::model_info::{self, MODELS};
use nanobot_model::provider::registry::{
    self, PROVIDERS, ProviderInfo, ProviderKind, normalize_name,
};
use nanobot_net::http;
use nanobot_os::terminal::wrap_words;
use serde_json::Value;
use std::time::Duration;

/// Timeout for the test request; a local server may have to load its model first.
const TEST_TIMEOUT: Duration = Duration::from_secs(90);
/// Maximum number of models shown at once.
const MAX_SHOWN_MODELS: usize = 16;

/// The error of the command, if the user left.
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
    rows: Vec<MenuItem>,
    /// The number of entries at the beginning that need no further setup.
    ready: usize,
}

/// The answers so far.
struct Wizard<'a> {
    ctx: &'a Context,
    /// The config as it is on disk.
    config: &'a Config,
    /// The providers to choose from, in an order that no answer changes.
    providers: ProviderMenu,
    entry: &'static ProviderInfo,
    /// True if the user chose the provider; false for our initial guess.
    is_chosen: bool,
    base: Option<String>,
    key: ApiKeyChoice,
    model: Option<String>,
}

/// Asks until the test succeeds, or until the user accepts the config without it.
///
/// # Errors
/// The user leaves with Ctrl-C or Ctrl-D, or the existing config is invalid.
pub(super) fn run(ctx: &Context, config: &Config) -> Result<WizardAnswers> {
    let mut wizard = Wizard {
        ctx,
        config,
        providers: ProviderMenu::default(),
        entry: registry::find_provider("openrouter").expect("the table has it"),
        is_chosen: false,
        base: None,
        key: ApiKeyChoice::Unchanged,
        model: None,
    };
    // Fail on an invalid config before the first question.
    wizard.providers = provider_menu(ctx, &wizard.settings()?);
    wizard.print(
        "Press Enter to accept the default in [brackets]. Ctrl-C cancels; nothing is written until a model has answered, or you save without that.\n",
    );
    let mut step = WizardStep::Provider;
    let trouble = loop {
        let next = match step {
            WizardStep::Provider => wizard.choose_provider(),
            WizardStep::Address => wizard.choose_address(),
            WizardStep::Key => wizard.choose_key(),
            WizardStep::Model => wizard.choose_model(),
            WizardStep::Test => match wizard.test_connection() {
                Ok(()) => break None,
                Err(error) => Err(error),
            },
        };
        step = match next {
            Ok(step) => step,
            Err(error) if error.is::<Stop>() || error.is::<Cancelled>() => {
                return Err(to_error(error));
            }
            Err(error) => match wizard.ask_next_step(&error).map_err(to_error)? {
                Some(step) => step,
                None => break Some(error),
            },
        };
    };
    let mut edits = wizard.edits();
    edits.extend(wizard.choose_directory().map_err(to_error)?);
    edits.extend(wizard.choose_server_rules().map_err(to_error)?);
    Ok(WizardAnswers { edits, test_error: trouble })
}

impl Wizard<'_> {
    fn print(&self, text: &str) {
        let terminal = self.ctx.terminal;
        terminal.eprint(&wrap_words(text, terminal.stderr_width(), 0));
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
        let block = self.section();
        let mut edits = vec![ConfigEdit::new("agents.defaults.provider", block.name.as_str())];
        if let Some(base) = &self.base {
            edits.push(ConfigEdit::new(block.key("apiBase"), base.as_str()));
        }
        match &self.key {
            ApiKeyChoice::Unchanged => {}
            ApiKeyChoice::Variable(name) => {
                edits.push(ConfigEdit::new(block.key("apiKey"), format!("${{{name}}}")));
            }
            ApiKeyChoice::Typed(key) => {
                edits.push(ConfigEdit::new(block.key("apiKey"), key.as_str()));
            }
        }
        if let Some(model) = &self.model {
            edits.push(ConfigEdit::new("agents.defaults.model", model.as_str()));
        }
        edits
    }

    /// The settings after these changes.
    fn settings(&self) -> Result<Settings> {
        let Context { env, paths, .. } = self.ctx;
        let config = apply_edits(self.config, self.edits().into_iter().chain(default_edits()))?;
        let flags =
            FlagOverrides { workspace: self.ctx.workspace.clone(), ..FlagOverrides::default() };
        Settings::resolve(&config, env, &flags, paths)
    }

    /// Resolves the endpoint that would be used, with timeouts of at most `limit`.
    fn resolve_endpoint(&self, limit: Duration) -> Result<(Settings, Endpoint)> {
        let settings = connection_test::with_short_timeouts(&self.settings()?, limit);
        let endpoint =
            model::resolve_endpoint(self.ctx, &settings, &settings.models[0], false, true)?;
        Ok((settings, endpoint))
    }

    fn choose_provider(&mut self) -> Result<WizardStep> {
        let ProviderMenu { entries, rows, ready } = &self.providers;
        self.print("Which provider? Part of the name is enough.");
        let known = self.configured("agents.defaults.provider").and_then(registry::find_provider);
        // Many users have set the Hugging Face variable only for downloads, so it is no reason to choose that provider.
        let first = entries[..*ready].iter().find(|entry| entry.name != "huggingface");
        let default = if self.is_chosen {
            self.entry
        } else {
            known.or(first.copied()).unwrap_or(self.entry)
        };
        let places: Vec<usize> = (0..rows.len()).collect();
        self.print_items(rows, &places);
        let place = loop {
            let answer = ask_text(self.ctx.terminal, "Number or name", default.name)?;
            match menu::find(rows, &answer) {
                MenuMatch::One(place) => break place,
                MenuMatch::Several(places) => self.print_items(rows, &places),
                MenuMatch::Nothing => {
                    self.print("No match; please answer with a number or a part of a name.");
                }
            }
        };
        let entry = entries[place];
        self.print(&format!("-> {}\n", entry.label));
        if entry.name != self.entry.name {
            (self.base, self.key, self.model) = (None, ApiKeyChoice::Unchanged, None);
        }
        (self.entry, self.is_chosen) = (entry, true);
        Ok(WizardStep::Address)
    }

    fn print_items(&self, rows: &[MenuItem], places: &[usize]) {
        let terminal = self.ctx.terminal;
        for line in menu::format_items(rows, places, terminal.stderr_width()) {
            terminal.eprint(&line);
        }
    }

    /// Asks for the address if there is no default, or if no server listens there.
    fn choose_address(&mut self) -> Result<WizardStep> {
        let ProviderInfo { base_url: base, kind, .. } = *self.entry;
        let old = self.configured(&self.section().key("apiBase"));
        let answers = || local_port(base).is_some_and(http::is_listening);
        let is_usual = match kind {
            ProviderKind::Local => old.is_none() && answers(),
            ProviderKind::Direct => false,
            _ => old.is_none() && !base.is_empty(),
        };
        let address = if is_usual {
            base.to_owned()
        } else {
            let default = self.base.as_deref().or(old).unwrap_or(base).to_owned();
            let mut examples = EXAMPLE_ADDRESSES.iter();
            if let Some((_, example)) = examples.find(|(name, _)| *name == self.entry.name) {
                self.print(&format!("The address has the form {example}"));
            }
            loop {
                let answer = ask_text(self.ctx.terminal, "Address", &default)?;
                if answer.starts_with("https://") || answer.starts_with("http://") {
                    break answer;
                }
                self.print("An address begins with https:// or http://.");
            }
        };
        // A local server counts as configured only if its address is in the config.
        if address != base || self.entry.is_local() || old.is_some() {
            self.base = Some(address);
        }
        Ok(WizardStep::Key)
    }

    fn choose_key(&mut self) -> Result<WizardStep> {
        let block = self.section();
        if self.entry.kind == ProviderKind::Login {
            self.log_in()?;
            return Ok(WizardStep::Model);
        }
        // Do not ask for a key that a command or a file provides.
        let is_elsewhere = ["apiKeyCommand", "apiKeyFile"]
            .iter()
            .any(|name| self.configured(&block.key(name)).is_some());
        if is_elsewhere {
            return Ok(WizardStep::Model);
        }
        let has_key = self.configured(&block.key("apiKey")).is_some();
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
        // Do not ask for the key of a local server, which usually needs none.
        if self.entry.is_local() && !has_key {
            self.key = ApiKeyChoice::Unchanged;
            return Ok(WizardStep::Model);
        }
        if let (None, Some(page)) = (&default, known_providers::key_page(self.entry.name)) {
            self.print(&format!("Keys are made at {page}"));
        }
        let words = match &default {
            Some((_, words)) => format!("API key, not shown [{words}]: "),
            None => "API key, not shown: ".into(),
        };
        self.key = loop {
            let typed = self.ctx.terminal.prompt_hidden(&words)?.ok_or(Cancelled)?;
            match (typed.trim(), &default) {
                ("", Some((key, _))) => break key.clone(),
                ("", None) => self.print("An API key is required."),
                (text, _) if text.chars().any(|c| c.is_control() || c.is_whitespace()) => {
                    self.print("An API key cannot contain blanks or control characters.");
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
        let same = self
            .configured("agents.defaults.provider")
            .is_some_and(|name| normalize_name(name) == normalize_name(self.entry.name));
        let old = self.configured("agents.defaults.model").filter(|_| same);
        let own = self.entry.default_model;
        let is_there = |name: &str| names.iter().any(|other| other == name);
        let first = names.iter().find(|name| !name.contains("embed"));
        let default = match (&self.model, old) {
            (Some(model), _) => model.clone(),
            (None, Some(model)) => model.to_owned(),
            // A local server may not have the default model, so use one that it has.
            (None, None) if self.entry.is_users_own() && !is_there(own) => {
                first.cloned().unwrap_or_default()
            }
            (None, None) => own.to_owned(),
        };
        let rows = model_items(self.entry, &names, &default);
        let places: Vec<usize> = (0..rows.len().min(MAX_SHOWN_MODELS)).collect();
        self.print("Which model?");
        self.print_items(&rows, &places);
        match rows.len() - places.len() {
            0 => {}
            more => self.print(&format!("  and {more} more; type part of a name to find them")),
        }
        let model = loop {
            let answer = ask_text(self.ctx.terminal, "Number or name", &default)?;
            if answer.is_empty() {
                self.print("The server does not list its models: the name of one is needed.");
                continue;
            }
            if answer == default {
                break answer;
            }
            match menu::find(&rows, &answer) {
                MenuMatch::One(place) => break rows[place].name.clone(),
                MenuMatch::Several(places) => {
                    self.print_items(&rows, &places[..places.len().min(MAX_SHOWN_MODELS)]);
                    match places.len().saturating_sub(MAX_SHOWN_MODELS) {
                        0 => {}
                        more => self.print(&format!("  and {more} more")),
                    }
                }
                MenuMatch::Nothing if names.is_empty() => break answer,
                MenuMatch::Nothing => {
                    let words = format!("`{answer}` is not in the list. Use it anyway?");
                    if confirm(self.ctx, &words, false)? {
                        break answer;
                    }
                }
            }
        };
        self.print(&format!("-> {model}\n"));
        self.model = Some(model);
        Ok(WizardStep::Test)
    }

    /// Lists the provider's models; empty if it does not support that.
    fn list_models(&mut self) -> Result<Vec<String>> {
        let (_, endpoint) = self.resolve_endpoint(LIST_TIMEOUT)?;
        let server = &endpoint.http_provider;
        let listed = server.list_models(&mut |text| self.print(&format!("Note: {text}.")));
        // The address that answered, which may be a longer one than the user gave.
        let base = server.address.current();
        if listed.is_ok() && base != endpoint.choice.base_url {
            self.base = Some(base);
        }
        match listed.map_err(connection_test::to_error) {
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
        self.print(&format!("Testing {model} of {provider} …"));
        let reply = connection_test::send_test_request(self.ctx, &settings, endpoint)?;
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
            Exit::Config => "m",
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
        sections.any(|part| self.config.get_path(part).is_some())
    }

    /// Asks if the tools of MCP servers are allowed, as in the Python program.
    fn choose_server_rules(&self) -> Result<Option<ConfigEdit>> {
        let settings = self.settings()?;
        let Some(edit) = allow_servers_edit(&settings).filter(|_| self.is_python_config()) else {
            return Ok(None);
        };
        let rules = mcp_servers::missing_allow_rules(&settings).join("`, `");
        let words = format!(
            "The Python program lets the agent call every tool of your MCP servers. Allow `{rules}` here too?"
        );
        Ok(confirm(self.ctx, &words, true)?.then_some(edit))
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
fn local_port(base: &str) -> Option<u16> {
    let (_, rest) = base.split_once("://localhost:")?;
    rest.split('/').next()?.parse().ok()
}

/// The providers: those that are ready (by a key, a login, or a running local server), then well-known ones, then the
/// rest by name.
fn provider_menu(ctx: &Context, settings: &Settings) -> ProviderMenu {
    let blocks = model::provider_configs(ctx, settings);
    let ready = |entry: &ProviderInfo| -> Option<String> {
        if let Ok(vendor) = Vendor::from_name(entry.name) {
            let until = login::expiry(vendor, &ctx.paths.auth()).ok().flatten();
            return until.map(|_| "you are logged in".into());
        }
        let standing = registry::provider_status(entry.name, &blocks, &ctx.env);
        if let Some((_, place)) = standing.key {
            return Some(format!("key from {}", place.replace('`', "")));
        }
        let port =
            local_port(entry.base_url).filter(|port| entry.is_local() && http::is_listening(*port));
        port.map(|port| format!("listening on port {port}"))
    };
    let built = PROVIDERS.iter().filter(|entry| entry.kind != ProviderKind::Unsupported);
    let mut all: Vec<(Option<String>, &'static ProviderInfo)> =
        built.map(|entry| (ready(entry), entry)).collect();
    all.sort_by_key(|(about, entry)| match about {
        // Ready providers stay in the order of the table, which is that of preference.
        Some(_) => (0, 0, String::new()),
        None => match known_providers::position(entry.name) {
            Some(place) => (1, place, String::new()),
            None => (2, 0, entry.name.to_lowercase()),
        },
    });
    let ready = all.iter().take_while(|(about, _)| about.is_some()).count();
    let rows = all.iter().map(|(about, entry)| MenuItem {
        name: entry.name.into(),
        label: entry.label.into(),
        description: about.clone().unwrap_or_else(|| known_providers::describe(entry.name)),
    });
    ProviderMenu {
        rows: rows.collect(),
        entries: all.iter().map(|(_, entry)| *entry).collect(),
        ready,
    }
}

/// The models to choose from: the default first, then those with known prices, then the others by name. If the provider
/// does not list its models, those in the table are used.
fn model_items(entry: &ProviderInfo, names: &[String], default: &str) -> Vec<MenuItem> {
    let mut names = names.to_vec();
    if names.is_empty() && !entry.is_keyless() {
        let known = MODELS
            .iter()
            .filter(|facts| normalize_name(facts.vendor) == normalize_name(entry.name));
        names.extend(known.map(|facts| facts.name.to_owned()));
    }
    if !default.is_empty() && !names.iter().any(|name| name == default) {
        names.push(default.to_owned());
    }
    let price = |name: &str| {
        let prices = model_info::find_prices(Some(entry), name)?;
        let price = prices.for_input_tokens(0);
        Some(format!("${} in, ${} out per million tokens", price.input, price.output))
    };
    let about = |name: &str| match (name == entry.default_model, price(name)) {
        (true, Some(price)) => format!("default; {price}"),
        (true, None) => "default".into(),
        (false, price) => price.unwrap_or_default(),
    };
    let mut rows: Vec<MenuItem> = names
        .into_iter()
        .map(|name| MenuItem { description: about(&name), label: String::new(), name })
        .collect();
    rows.sort_by_key(|row| {
        (row.name != default, row.description.is_empty(), row.name.to_lowercase())
    });
    rows.dedup_by(|one, other| one.name == other.name);
    rows
}
