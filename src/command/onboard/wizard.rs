//! The questions of onboarding. Nothing is written before the answers have been tested with a real request, so leaving
//! at any question changes nothing. If the test fails, the questions can be answered again.

use super::edits::{Block, Edit, defaults, merged, where_to_work};
use super::menu::{self, Found, Row};
use super::question::{Left, confirm, question, to_error};
use crate::cli::onboard::Directory;
use crate::command::provider;
use crate::error::{Exit, Stop, exit_of, hint_of};
use crate::ops::connection_test;
use crate::ops::context::Context;
use crate::ops::model::{self, Endpoint};
use crate::provider::login::{self, Vendor};
use crate::provider::registry::facts::{self, MODELS};
use crate::provider::registry::{self, Entry, Kind, TABLE, plain};
use crate::settings::{Config, Overrides, Settings};
use crate::sys::http;
use crate::sys::terminal::folded;
use anyhow::Result;
use serde_json::Value;
use std::time::Duration;

/// Timeouts for listing a provider's models, and for the test request; a local server may have to load its model first.
const LIST: Duration = Duration::from_secs(15);
const HELLO: Duration = Duration::from_secs(90);
/// Maximum number of models shown at once.
const SHOWN: usize = 16;

/// The result of the questions.
pub(super) struct Answers {
    /// The changes to write.
    pub(super) edits: Vec<Edit>,
    /// The error of the last test, if the user wants the config written anyway.
    pub(super) trouble: Option<anyhow::Error>,
}

/// The questions. Each determines the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Provider,
    Address,
    Key,
    Model,
    Trial,
}

/// The source of the API key.
#[derive(Clone, Debug)]
enum Key {
    /// The key in the config, or none if the provider needs none.
    AsItIs,
    Variable(&'static str),
    Typed(String),
}

/// The answers so far.
struct Wizard<'a> {
    ctx: &'a Context,
    /// The config as it is on disk.
    config: &'a Config,
    entry: &'static Entry,
    /// True if the user chose the provider; false for our initial guess.
    is_chosen: bool,
    base: Option<String>,
    key: Key,
    model: Option<String>,
}

/// Asks until the test succeeds, or until the user accepts the config without it.
///
/// # Errors
/// The user leaves with Ctrl-C or Ctrl-D, or the existing config is invalid.
pub(super) fn ask(ctx: &Context, config: &Config) -> Result<Answers> {
    let mut wizard = Wizard {
        ctx,
        config,
        entry: registry::entry("openrouter").expect("the table has it"),
        is_chosen: false,
        base: None,
        key: Key::AsItIs,
        model: None,
    };
    // Fail on an invalid config before the first question.
    wizard.settings()?;
    wizard.say(
        "Press Enter to accept the default in [brackets]. Ctrl-C cancels; nothing is written until the end.\n",
    );
    let mut step = Step::Provider;
    let trouble = loop {
        let next = match step {
            Step::Provider => wizard.choose_provider(),
            Step::Address => wizard.choose_address(),
            Step::Key => wizard.choose_key(),
            Step::Model => wizard.choose_model(),
            Step::Trial => match wizard.try_out() {
                Ok(()) => break None,
                Err(error) => Err(error),
            },
        };
        step = match next {
            Ok(step) => step,
            Err(error) if error.is::<Stop>() || error.is::<Left>() => return Err(to_error(error)),
            Err(error) => match wizard.what_now(&error).map_err(to_error)? {
                Some(step) => step,
                None => break Some(error),
            },
        };
    };
    let mut edits = wizard.edits();
    edits.extend(wizard.choose_directory().map_err(to_error)?);
    Ok(Answers { edits, trouble })
}

impl Wizard<'_> {
    fn say(&self, text: &str) {
        let terminal = self.ctx.terminal;
        terminal.complain(&folded(text, terminal.breadth(), 0));
    }

    fn there(&self, path: &str) -> Option<&str> {
        let text = self.config.get_path(path).and_then(Value::as_str);
        text.filter(|text| !text.is_empty())
    }

    fn block(&self) -> Block {
        Block::from_entry(self.entry)
    }

    /// The changes that follow from the answers so far.
    fn edits(&self) -> Vec<Edit> {
        let block = self.block();
        let mut edits = vec![Edit::new("agents.defaults.provider", block.name.as_str())];
        if let Some(base) = &self.base {
            edits.push(Edit::new(block.key("apiBase"), base.as_str()));
        }
        match &self.key {
            Key::AsItIs => {}
            Key::Variable(name) => {
                edits.push(Edit::new(block.key("apiKey"), format!("${{{name}}}")));
            }
            Key::Typed(key) => edits.push(Edit::new(block.key("apiKey"), key.as_str())),
        }
        if let Some(model) = &self.model {
            edits.push(Edit::new("agents.defaults.model", model.as_str()));
        }
        edits
    }

    /// The settings after these changes.
    fn settings(&self) -> Result<Settings> {
        let Context { env, paths, .. } = self.ctx;
        let config = merged(self.config, self.edits().into_iter().chain(defaults()))?;
        let flags = Overrides {
            workspace: self.ctx.workspace.clone(),
            ..Overrides::default()
        };
        Settings::resolve(&config, env, &flags, paths)
    }

    /// Resolves the endpoint that would be used, with timeouts of at most `limit`.
    fn way(&self, limit: Duration) -> Result<(Settings, Endpoint)> {
        let settings = connection_test::with_short_timeouts(&self.settings()?, limit);
        let endpoint =
            model::resolve_endpoint(self.ctx, &settings, &settings.asked[0], false, true)?;
        Ok((settings, endpoint))
    }

    fn choose_provider(&mut self) -> Result<Step> {
        let (entries, rows, ready) = providers(self.ctx, &self.settings()?);
        self.say("Which provider? Part of the name is enough.");
        let known = self
            .there("agents.defaults.provider")
            .and_then(registry::entry);
        // Many users have set the Hugging Face variable only for downloads, so it is no reason to choose that provider.
        let first = entries[..ready]
            .iter()
            .find(|entry| entry.name != "huggingface");
        let default = match self.is_chosen {
            true => self.entry,
            false => known.or(first.copied()).unwrap_or(self.entry),
        };
        let places: Vec<usize> = (0..rows.len()).collect();
        self.list(&rows, &places);
        let place = loop {
            let answer = question(self.ctx.terminal, "Number or name", default.name)?;
            match menu::find(&rows, &answer) {
                Found::One(place) => break place,
                Found::Several(places) => self.list(&rows, &places),
                Found::Nothing => self.say("No match."),
            }
        };
        let entry = entries[place];
        self.say(&format!("-> {}\n", entry.label));
        if entry.name != self.entry.name {
            (self.base, self.key, self.model) = (None, Key::AsItIs, None);
        }
        (self.entry, self.is_chosen) = (entry, true);
        Ok(Step::Address)
    }

    fn list(&self, rows: &[Row], places: &[usize]) {
        let terminal = self.ctx.terminal;
        for line in menu::lines(rows, places, terminal.breadth()) {
            terminal.complain(&line);
        }
    }

    /// Asks for the address if there is no default, or if no server listens there.
    fn choose_address(&mut self) -> Result<Step> {
        let Entry { base, kind, .. } = *self.entry;
        let old = self.there(&self.block().key("apiBase"));
        let answers = || port(base).is_some_and(http::is_listening);
        let is_usual = match kind {
            Kind::Local => old.is_none() && answers(),
            Kind::Direct => false,
            _ => old.is_none() && !base.is_empty(),
        };
        let address = match is_usual {
            true => base.to_owned(),
            false => {
                let default = self.base.as_deref().or(old).unwrap_or(base).to_owned();
                loop {
                    let answer = question(self.ctx.terminal, "Address", &default)?;
                    if answer.starts_with("https://") || answer.starts_with("http://") {
                        break answer;
                    }
                    self.say("An address begins with https:// or http://.");
                }
            }
        };
        // A local server counts as configured only if its address is in the config.
        if address != base || self.entry.is_local() || old.is_some() {
            self.base = Some(address);
        }
        Ok(Step::Key)
    }

    fn choose_key(&mut self) -> Result<Step> {
        let block = self.block();
        if self.entry.kind == Kind::Login {
            self.log_in()?;
            return Ok(Step::Model);
        }
        // Do not ask for a key that a command or a file provides.
        let is_elsewhere = ["apiKeyCommand", "apiKeyFile"]
            .iter()
            .any(|name| self.there(&block.key(name)).is_some());
        if is_elsewhere {
            return Ok(Step::Model);
        }
        let has_key = self.there(&block.key("apiKey")).is_some();
        let mut variables = self.entry.key_variables.iter();
        let variable = variables
            .find(|name| self.ctx.env.get(name).is_some())
            .copied();
        let default = match (has_key, variable, self.entry.is_keyless()) {
            (true, ..) => Some((Key::AsItIs, "the one in the config".to_owned())),
            (_, Some(name), _) => Some((Key::Variable(name), format!("the one in ${name}"))),
            (_, _, true) => Some((Key::AsItIs, "none".to_owned())),
            _ => None,
        };
        // Do not ask for the key of a local server, which usually needs none.
        if self.entry.is_local() && !has_key {
            self.key = Key::AsItIs;
            return Ok(Step::Model);
        }
        let words = match &default {
            Some((_, words)) => format!("API key, not shown [{words}]: "),
            None => "API key, not shown: ".into(),
        };
        self.key = loop {
            let typed = self.ctx.terminal.ask_hidden(&words)?.ok_or(Left)?;
            match (typed.trim(), &default) {
                ("", Some((key, _))) => break key.clone(),
                ("", None) => self.say("An API key is required."),
                (text, _) if text.chars().any(|c| c.is_control() || c.is_whitespace()) => {
                    self.say("An API key cannot contain blanks or control characters.");
                }
                (text, _) => break Key::Typed(text.to_owned()),
            }
        };
        Ok(Step::Model)
    }

    fn log_in(&self) -> Result<()> {
        let vendor = Vendor::named(self.entry.name)?;
        match login::expiry(vendor, &self.ctx.paths.auth())? {
            Some(_) => Ok(()),
            None => provider::log_in(self.ctx, vendor),
        }
    }

    fn choose_model(&mut self) -> Result<Step> {
        let names = self.models()?;
        let same = self
            .there("agents.defaults.provider")
            .is_some_and(|name| plain(name) == plain(self.entry.name));
        let old = self.there("agents.defaults.model").filter(|_| same);
        let own = self.entry.model;
        let is_there = |name: &str| names.iter().any(|other| other == name);
        let first = names.iter().find(|name| !name.contains("embed"));
        let default = match (&self.model, old) {
            (Some(model), _) => model.clone(),
            (None, Some(model)) => model.to_owned(),
            // A local server may not have the default model, so use one that it has.
            (None, None) if self.entry.is_keyless() && !is_there(own) => {
                first.cloned().unwrap_or_else(|| own.to_owned())
            }
            (None, None) => own.to_owned(),
        };
        let rows = models(self.entry, &names, &default);
        let places: Vec<usize> = (0..rows.len().min(SHOWN)).collect();
        self.say("Which model?");
        self.list(&rows, &places);
        match rows.len() - places.len() {
            0 => {}
            more => self.say(&format!(
                "  and {more} more; type part of a name to find them"
            )),
        }
        let model = loop {
            let answer = question(self.ctx.terminal, "Number or name", &default)?;
            if answer == default {
                break answer;
            }
            match menu::find(&rows, &answer) {
                Found::One(place) => break rows[place].name.clone(),
                Found::Several(places) => {
                    self.list(&rows, &places[..places.len().min(SHOWN)]);
                    match places.len().saturating_sub(SHOWN) {
                        0 => {}
                        more => self.say(&format!("  and {more} more")),
                    }
                }
                Found::Nothing if names.is_empty() => break answer,
                Found::Nothing => {
                    let words = format!("`{answer}` is not in the list. Use it anyway?");
                    if confirm(self.ctx, &words, false)? {
                        break answer;
                    }
                }
            }
        };
        self.say(&format!("-> {model}\n"));
        self.model = Some(model);
        Ok(Step::Trial)
    }

    /// Lists the provider's models; empty if it does not support that.
    fn models(&self) -> Result<Vec<String>> {
        let (_, endpoint) = self.way(LIST)?;
        match endpoint.wire.models().map_err(connection_test::failure) {
            Ok(names) => Ok(names),
            Err(error) if error.is::<Stop>() => Err(error),
            // Not every server has a list. But one that rejects the key, or is unreachable, will not answer other
            // requests either.
            Err(error) if matches!(exit_of(&error), Exit::Refused | Exit::Unavailable) => {
                Err(error)
            }
            Err(_) => Ok(Vec::new()),
        }
    }

    fn try_out(&self) -> Result<()> {
        let (settings, endpoint) = self.way(HELLO)?;
        let (provider, model) = (&endpoint.choice.provider, &endpoint.choice.model);
        self.say(&format!("Testing {model} of {provider} …"));
        let reply = connection_test::ask(self.ctx, &settings, endpoint)?;
        self.say(&format!(
            "It works: \"{}\"\n  {}, {}\n",
            reply.text(),
            reply.seconds(),
            reply.cost()
        ));
        Ok(())
    }

    /// Reports the error and asks which question to repeat; `None` to accept the config as it is.
    fn what_now(&self, error: &anyhow::Error) -> Result<Option<Step>> {
        self.say(&format!("That did not work: {error:#}"));
        if let Some(hint) = hint_of(error) {
            self.say(&format!("  try: {hint}"));
        }
        let is_login = self.entry.kind == Kind::Login;
        let default = match exit_of(error) {
            Exit::Refused if !is_login => "k",
            Exit::Config => "m",
            _ => "a",
        };
        self.say(
            "  k  another key\n  m  another model\n  p  another provider or address\n  a  try again\n  s  save anyway",
        );
        loop {
            let answer = question(self.ctx.terminal, "What now?", default)?;
            let step = match answer.to_lowercase().as_str() {
                "k" => Step::Key,
                "m" => Step::Model,
                "p" => Step::Provider,
                "a" if self.model.is_some() => Step::Trial,
                "a" => Step::Model,
                "s" => return Ok(None),
                _ => continue,
            };
            return Ok(Some(step));
        }
    }

    /// Asks for the working directory if the config is from the Python program, which writes these sections into every
    /// config and always works in its workspace.
    fn choose_directory(&self) -> Result<Option<Edit>> {
        let is_python = ["channels", "gateway"]
            .iter()
            .any(|part| self.config.get_path(part).is_some());
        if !is_python || self.there("agents.defaults.directory").is_some() {
            return Ok(None);
        }
        self.say(
            "This config is from the Python program, which always works in its workspace.\n  c  work in the current directory, like other command-line tools\n  w  work in the workspace, as before",
        );
        loop {
            let answer = question(self.ctx.terminal, "Working directory?", "c")?;
            match answer.to_lowercase().as_str() {
                "c" => return Ok(Some(where_to_work(Directory::Cwd))),
                "w" => return Ok(Some(where_to_work(Directory::Workspace))),
                _ => {}
            }
        }
    }
}

/// The port of an address on localhost.
fn port(base: &str) -> Option<u16> {
    let (_, rest) = base.split_once("://localhost:")?;
    rest.split('/').next()?.parse().ok()
}

/// The providers, those that are ready first (by a key, a login, or a running local server), and the number of these.
fn providers(ctx: &Context, settings: &Settings) -> (Vec<&'static Entry>, Vec<Row>, usize) {
    let blocks = model::blocks(ctx, settings);
    let ready = |entry: &Entry| -> Option<String> {
        if let Ok(vendor) = Vendor::named(entry.name) {
            let until = login::expiry(vendor, &ctx.paths.auth()).ok().flatten();
            return until.map(|_| "you are logged in".into());
        }
        let standing = registry::standing(entry.name, &blocks, &ctx.env);
        if let Some((_, place)) = standing.key {
            return Some(format!("key from {}", place.replace('`', "")));
        }
        let port = port(entry.base).filter(|port| entry.is_local() && http::is_listening(*port));
        port.map(|port| format!("listening on port {port}"))
    };
    let built = TABLE.iter().filter(|entry| entry.kind != Kind::Unbuilt);
    let mut all: Vec<(Option<String>, &'static Entry)> =
        built.map(|entry| (ready(entry), entry)).collect();
    all.sort_by_key(|(about, entry)| match about {
        // Ready providers stay in the order of the table, which is that of preference.
        Some(_) => (false, String::new()),
        None => (true, entry.name.to_lowercase()),
    });
    let count = all.iter().take_while(|(about, _)| about.is_some()).count();
    let rows = all.iter().map(|(about, entry)| Row {
        name: entry.name.into(),
        label: entry.label.into(),
        about: about.clone().unwrap_or_default(),
    });
    let rows = rows.collect();
    let entries = all.into_iter().map(|(_, entry)| entry).collect();
    (entries, rows, count)
}

/// The models to choose from: the default first, then those with known prices, then the others by name. If the provider
/// does not list its models, those in the table are used.
fn models(entry: &Entry, names: &[String], default: &str) -> Vec<Row> {
    let mut names = names.to_vec();
    if names.is_empty() && !entry.is_keyless() {
        let known = MODELS
            .iter()
            .filter(|facts| plain(facts.vendor) == plain(entry.name));
        names.extend(known.map(|facts| facts.name.to_owned()));
    }
    if !names.iter().any(|name| name == default) {
        names.push(default.to_owned());
    }
    let price = |name: &str| {
        let prices = facts::prices(Some(entry), name)?;
        let price = prices.at(0);
        Some(format!(
            "${} in, ${} out per million tokens",
            price.input, price.output
        ))
    };
    let about = |name: &str| match (name == entry.model, price(name)) {
        (true, Some(price)) => format!("default; {price}"),
        (true, None) => "default".into(),
        (false, price) => price.unwrap_or_default(),
    };
    let mut rows: Vec<Row> = names
        .into_iter()
        .map(|name| Row {
            about: about(&name),
            label: String::new(),
            name,
        })
        .collect();
    rows.sort_by_key(|row| {
        (
            row.name != default,
            row.about.is_empty(),
            row.name.to_lowercase(),
        )
    });
    rows.dedup_by(|one, other| one.name == other.name);
    rows
}
