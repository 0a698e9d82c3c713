//! `nanobot onboard`: a config and a workspace. What is there is kept; what is missing is added.

use crate::World;
use crate::cli::{Directory, Onboard as Arguments};
use crate::command::asker;
use crate::command::config::written;
use crate::error::{Exit, fail_hint};
use crate::ledger::Account;
use crate::message::{Message, Part, User};
use crate::provider::registry::{Entry, TABLE};
use crate::provider::{Calls, Provider, Request, Sampling};
use crate::settings::expand::is_name;
use crate::settings::keys::{KEYS, Stage, camel_case, snake_case};
use crate::settings::{Config, Overrides, Settings};
use crate::sys::terminal::harmless;
use crate::workspace::Workspace;
use anyhow::{Context, Result};
use console::Term;
use serde_json::Value;
use std::io::IsTerminal;
use std::sync::Arc;

/// What is to be written: a key, its value, and whether it replaces what is there.
struct Edit {
    path: String,
    value: Value,
    replaces: bool,
}

impl Edit {
    fn new(path: impl Into<String>, value: impl Into<Value>) -> Self {
        Self {
            path: path.into(),
            value: value.into(),
            replaces: true,
        }
    }
}

pub fn run(world: &World, arguments: &Arguments) -> Result<Exit> {
    let say = |text: &str| {
        if !world.shared.quiet {
            world.terminal.complain(text);
        }
    };
    let before = Config::load(&world.paths.config)?;
    let asks = is_bare(arguments) && is_attended();
    let edits = if asks {
        ask(world, &before)?
    } else {
        given(arguments, &before)?
    };
    let after = merged(&before, edits.into_iter().chain(defaults()))?;
    // Before anything is written: a config that cannot be used is not added to.
    let overrides = Overrides {
        workspace: world.shared.workspace.clone(),
        ..Overrides::default()
    };
    let settings = Settings::resolve(&after, &world.env, &overrides, &world.paths)?;

    let shown = world.paths.display(after.path());
    if after.text() == before.text() {
        say(&format!("kept {shown} as it is"));
    } else {
        after.save()?;
        let done = if before.exists() {
            "updated"
        } else {
            "created"
        };
        say(&format!("{done} {shown}"));
    }
    if let Some(model) = unlike(&before, &after, arguments) {
        say(&format!(
            "kept the model {model}; another provider may not have it, and `--model NAME` changes it"
        ));
    }
    let workspace = Workspace::new(&settings.workspace);
    let made = workspace.create()?;
    let place = world.paths.display(&workspace.root);
    say(&match made.is_empty() {
        true => format!("kept {place} as it is"),
        false => format!("created in {place}: {}", made.join(", ")),
    });
    try_out(world, &settings, asks, &say)
}

/// Say what is still missing, or, to a person, whether it works.
fn try_out(world: &World, settings: &Settings, asks: bool, say: &dyn Fn(&str)) -> Result<Exit> {
    let way = match asker::way(world, settings, &settings.asked[0], false, true) {
        Ok(way) => way,
        // A config without a key is a beginning all the same.
        Err(error) => {
            say(&format!("still missing: {error:#}"));
            if let Some(hint) = crate::error::hint_of(&error) {
                say(&format!("  try: {hint}"));
            }
            return Ok(Exit::Answered);
        }
    };
    if asks {
        let (provider, model) = (way.choice.provider.clone(), way.choice.model.clone());
        say(&format!(
            "asking {model} at {provider} once, to see that it works …"
        ));
        let account = Account {
            cause: "test",
            ..Account::default()
        };
        let answers = asker::metered(world, settings, way, &account, &Arc::default());
        match test(answers.as_ref(), &model, settings) {
            Ok(answer) => say(&format!("it answered: {}", answer.trim())),
            Err(error) => {
                say(&format!("it did not work: {error:#}"));
                say("  try: `nanobot onboard` again, or `nanobot config set KEY VALUE`");
                return Ok(crate::error::exit_of(&error));
            }
        }
    }
    say("ready; try: nanobot agent -m \"hello\"");
    Ok(Exit::Answered)
}

/// `config` with the edits made.
fn merged(config: &Config, edits: impl Iterator<Item = Edit>) -> Result<Config> {
    let mut config = config.clone();
    for Edit {
        path,
        value,
        replaces,
    } in edits
    {
        let present = written(&config, &path);
        if present.is_none() || replaces && present != Some(&value) {
            let names: Vec<&str> = path.split('.').collect();
            config.set(&names, &value)?;
        }
    }
    Ok(config)
}

/// Whether the command line leaves everything open.
fn is_bare(arguments: &Arguments) -> bool {
    matches!(
        arguments,
        Arguments {
            provider: None,
            api_key_env: None,
            api_base: None,
            model: None,
            directory: None,
            yes: false,
        }
    )
}

/// Whether there is somebody to ask: both what is typed and what is asked go through a terminal.
fn is_attended() -> bool {
    std::io::stdin().is_terminal() && Term::stderr().features().is_attended()
}

/// The model that was kept although the flags chose another provider.
fn unlike(before: &Config, after: &Config, arguments: &Arguments) -> Option<String> {
    let provider = |config| written(config, "agents.defaults.provider").cloned();
    let model = written(before, "agents.defaults.model")?.as_str()?;
    let changed = before.exists() && provider(before) != provider(after);
    (changed && arguments.provider.is_some() && arguments.model.is_none()).then(|| model.to_owned())
}

/// What the flags say. What they say replaces what is there; what only follows from them does not.
fn given(arguments: &Arguments, config: &Config) -> Result<Vec<Edit>> {
    let Arguments {
        provider,
        api_key_env,
        api_base,
        model,
        directory,
        yes: _,
    } = arguments;
    let mut edits = Vec::new();
    let block = match provider {
        Some(name) => Some(Block::named(name, api_base.is_some(), config)?),
        None => None,
    };
    if let Some(Block { name, .. }) = &block {
        edits.push(Edit::new("agents.defaults.provider", name.as_str()));
    }
    let key = |flag: &str, key: &str| match &block {
        Some(block) => Ok(block.key(key)),
        None => Err(fail_hint(
            Exit::Usage,
            format!("`{flag}` needs to know whose it is"),
            "`--provider NAME` with it",
        )),
    };
    if let Some(variable) = api_key_env {
        if !is_name(variable) {
            // It may be the key itself, so it is not repeated.
            let cause = "what follows `--api-key-env` is no name of a variable";
            return Err(fail_hint(Exit::Usage, cause, "its name, as OPENAI_API_KEY"));
        }
        let path = key("--api-key-env", "apiKey")?;
        edits.push(Edit::new(path, format!("${{{variable}}}")));
    }
    if let Some(base) = api_base {
        edits.push(Edit::new(key("--api-base", "apiBase")?, base.as_str()));
    }
    match (model, &block) {
        (Some(model), _) => edits.push(Edit::new("agents.defaults.model", model.as_str())),
        (
            None,
            Some(Block {
                entry: Some(entry), ..
            }),
        ) => edits.push(Edit {
            replaces: false,
            ..Edit::new("agents.defaults.model", entry.model)
        }),
        (None, _) => {}
    }
    edits.extend(directory.map(where_to_work));
    Ok(edits)
}

/// A provider's part of the config.
struct Block {
    /// As values name it.
    name: String,
    entry: Option<&'static Entry>,
}

impl Block {
    /// The provider that was named. One that the table does not know needs an address, given now or before.
    fn named(name: &str, has_base: bool, config: &Config) -> Result<Self> {
        let block = Self {
            name: snake_case(name),
            entry: entry(name),
        };
        let known = block.entry.is_some()
            || name == "auto"
            || has_base
            || written(config, &block.key("apiBase")).is_some();
        if !known {
            let names: Vec<String> = TABLE.iter().map(|entry| snake_case(entry.name)).collect();
            return Err(fail_hint(
                Exit::Usage,
                format!("there is no provider `{name}`"),
                format!(
                    "one of {}, or any name with `--api-base URL`",
                    names.join(", ")
                ),
            ));
        }
        Ok(block)
    }

    /// The path of one of its keys.
    fn key(&self, key: &str) -> String {
        format!("providers.{}.{key}", camel_case(&self.name))
    }
}

fn where_to_work(directory: Directory) -> Edit {
    let word = match directory {
        Directory::Cwd => "cwd",
        Directory::Workspace => "workspace",
    };
    Edit::new("agents.defaults.directory", word)
}

fn entry(name: &str) -> Option<&'static Entry> {
    TABLE
        .iter()
        .find(|entry| snake_case(entry.name) == snake_case(name))
}

/// The defaults that a config should spell out, where it does not.
fn defaults() -> impl Iterator<Item = Edit> {
    let rows = KEYS
        .iter()
        .filter(|key| key.stage == Stage::Written && !key.path.contains('*'));
    rows.map(|key| Edit {
        path: key.path.into(),
        value: key.default_value(),
        replaces: false,
    })
    .filter(|edit| !edit.value.is_null())
}

/// What a person answers on the terminal, on standard error as all that is no answer. Enter keeps what is there.
fn ask(world: &World, config: &Config) -> Result<Vec<Edit>> {
    let term = Term::stderr();
    let there = |path: &str| written(config, path).and_then(Value::as_str);
    let entry = ask_provider(&term, there("agents.defaults.provider"))?;
    let block = Block {
        name: snake_case(entry.name),
        entry: Some(entry),
    };
    let mut edits = vec![Edit::new("agents.defaults.provider", block.name.as_str())];

    let old_base = there(&block.key("apiBase")).filter(|base| !base.is_empty());
    let base = question(&term, "Address", old_base.unwrap_or(entry.base))?;
    let told = base != entry.base || entry.is_local() || old_base.is_some();
    if told && !base.is_empty() {
        edits.push(Edit::new(block.key("apiBase"), base));
    }

    let has_key = there(&block.key("apiKey")).is_some_and(|key| !key.is_empty());
    let mut variables = entry.key_variables.iter();
    let variable = variables.find(|name| world.env.get(name).is_some());
    let hint = match (has_key, variable, entry.is_keyless()) {
        (true, _, _) => " [the one in the config]".into(),
        (_, Some(variable), _) => format!(" [the one in {variable}]"),
        (_, _, true) => " [none]".into(),
        _ => String::new(),
    };
    term.write_str(&format!("Key (not shown){hint}: "))
        .context("write to the terminal")?;
    let key = term.read_secure_line().context("read from the terminal")?;
    match key.trim() {
        "" => {
            if let Some(variable) = variable.filter(|_| !has_key) {
                edits.push(Edit::new(block.key("apiKey"), format!("${{{variable}}}")));
            }
        }
        key => edits.push(Edit::new(block.key("apiKey"), key)),
    }

    // A model belongs to its provider: with another one, that one's own is proposed.
    let same = there("agents.defaults.provider").is_some_and(|name| snake_case(name) == block.name);
    let old_model = there("agents.defaults.model").filter(|model| same && !model.is_empty());
    let model = question(&term, "Model", old_model.unwrap_or(entry.model))?;
    edits.push(Edit::new("agents.defaults.model", model));

    // The Python program, which writes these out whatever they hold, always works in its workspace.
    let is_python = ["channels", "gateway"]
        .iter()
        .any(|part| written(config, part).is_some());
    if is_python && there("agents.defaults.directory").is_none() {
        let words = "Work in the current directory (c), or always in the workspace (w)?";
        let workspace = question(&term, words, "c")?.starts_with(['w', 'W']);
        edits.push(where_to_work(if workspace {
            Directory::Workspace
        } else {
            Directory::Cwd
        }));
    }
    Ok(edits)
}

/// Let a person choose a provider; `known` is the configured one.
fn ask_provider(term: &Term, known: Option<&str>) -> Result<&'static Entry> {
    let line = |text: &str| term.write_line(text).context("write to the terminal");
    line("Who answers?")?;
    for (number, entry) in TABLE.iter().enumerate() {
        line(&format!("  {}  {}", number + 1, entry.label))?;
    }
    let default = known
        .and_then(entry)
        .or_else(|| entry("openrouter"))
        .map_or("custom", |entry| entry.name);
    loop {
        let answer = question(term, "Number or name", default)?;
        let number = answer.parse::<usize>().ok();
        let found = match number {
            Some(number) => number.checked_sub(1).and_then(|index| TABLE.get(index)),
            None => entry(&answer),
        };
        match found {
            Some(entry) => return Ok(entry),
            None => line("That is none of them.")?,
        }
    }
}

/// What is answered; `default` when that is nothing.
fn question(term: &Term, words: &str, default: &str) -> Result<String> {
    term.write_str(&format!("{words} [{}]: ", harmless(default)))
        .context("write to the terminal")?;
    let answer = term.read_line().context("read from the terminal")?;
    let answer = answer.trim();
    Ok(if answer.is_empty() { default } else { answer }.to_owned())
}

/// One request, to see that everything fits.
fn test(wire: &dyn Provider, model: &str, settings: &Settings) -> Result<String> {
    let hello = User {
        parts: vec![Part::Text("Say hello in one short sentence.".into())],
        ..User::default()
    };
    let sampling = Sampling {
        max_tokens: settings.asked[0].max_tokens.min(1024),
        temperature: None,
        reasoning_effort: None,
    };
    let messages = [Message::User(hello)];
    let request = Request {
        system: "You are nanobot, and are being set up.",
        messages: &messages,
        tools: &[],
        calls: Calls::MayNot,
        model,
        sampling: &sampling,
        reply_id: "onboard",
        schema: None,
    };
    let reply = wire
        .reply(&request, &mut |_| Ok(()))
        .map_err(crate::provider::ProviderError::into_failure)?;
    Ok(reply.text)
}
