//! `nanobot onboard`: a config and a workspace. What is there is kept; what is missing is added.

use crate::World;
use crate::cli::{Directory, Onboard as Arguments};
use crate::command::agent::wire;
use crate::command::config::written;
use crate::error::{Exit, fail_hint};
use crate::message::{Message, Part, User};
use crate::provider::registry::{Entry, TABLE};
use crate::provider::{Provider, Request, Sampling};
use crate::settings::keys::{KEYS, Stage, snake_case};
use crate::settings::{Config, Overrides, Settings};
use crate::workspace::Workspace;
use anyhow::{Context, Result};
use console::Term;
use serde_json::Value;

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
    let mut config = Config::load(&world.paths.config)?;
    let existed = config.exists();
    let term = Term::stdout();
    let asks = !arguments.yes
        && arguments.provider.is_none()
        && term.is_term()
        && term.features().is_attended();
    let mut edits = if asks {
        ask(world, &config, &term)?
    } else {
        given(arguments)?
    };
    edits.extend(defaults());
    let mut changed = false;
    for Edit {
        path,
        value,
        replaces,
    } in edits
    {
        if replaces || written(&config, &path).is_none() {
            let names: Vec<&str> = path.split('.').collect();
            changed |= written(&config, &path) != Some(&value);
            config.set(&names, &value)?;
        }
    }
    let shown = world.paths.display(config.path());
    if changed {
        config.save()?;
        say(&format!(
            "{} {shown}",
            if existed { "updated" } else { "created" }
        ));
    } else {
        say(&format!("kept {shown} as it is"));
    }
    let overrides = Overrides {
        workspace: world.shared.workspace.clone(),
        ..Overrides::default()
    };
    let settings = Settings::resolve(&config, &world.env, &overrides, &world.paths)?;
    let workspace = Workspace::new(&settings.workspace);
    let made = workspace.create()?;
    let place = world.paths.display(&workspace.root);
    say(&match made.is_empty() {
        true => format!("kept {place} as it is"),
        false => format!("created in {place}: {}", made.join(", ")),
    });
    match wire(world, &settings, false, true) {
        // What is missing is named; a config without a key is a beginning all the same.
        Err(error) => {
            say(&format!("still missing: {error:#}"));
            if let Some(hint) = crate::error::hint_of(&error) {
                say(&format!("  try: {hint}"));
            }
        }
        Ok(((provider, model), wire)) if asks => {
            say(&format!(
                "asking {model} at {provider} once, to see that it works …"
            ));
            match test(&wire, &model, &settings) {
                Ok(answer) => say(&format!("it answered: {}", answer.trim())),
                Err(error) => {
                    say(&format!("it did not work: {error:#}"));
                    say("  try: `nanobot onboard` again, or `nanobot config set KEY VALUE`");
                    return Ok(crate::error::exit_of(&error));
                }
            }
            say("ready; try: nanobot agent -m \"hello\"");
        }
        Ok(_) => say("ready; try: nanobot agent -m \"hello\""),
    }
    Ok(Exit::Answered)
}

/// What the flags say.
fn given(arguments: &Arguments) -> Result<Vec<Edit>> {
    let Arguments {
        provider,
        api_key_env,
        api_base,
        model,
        directory,
        yes: _,
    } = arguments;
    let mut edits = Vec::new();
    let entry = provider.as_deref().and_then(entry);
    if let Some(name) = provider {
        edits.push(Edit::new("agents.defaults.provider", name.as_str()));
    }
    let block = |key: &str| -> Result<String> {
        let name = provider.as_deref().ok_or_else(|| {
            fail_hint(
                Exit::Usage,
                format!("`{key}` needs to know whose it is"),
                "`--provider NAME` with it",
            )
        })?;
        Ok(format!(
            "providers.{}",
            entry.map_or(name, |entry| entry.name)
        ))
    };
    if let Some(variable) = api_key_env {
        edits.push(Edit::new(
            format!("{}.apiKey", block("--api-key-env")?),
            format!("${{{variable}}}"),
        ));
    }
    if let Some(base) = api_base {
        edits.push(Edit::new(
            format!("{}.apiBase", block("--api-base")?),
            base.as_str(),
        ));
    }
    let model = model.as_deref().or(entry.map(|entry| entry.model));
    edits.extend(model.map(|model| Edit::new("agents.defaults.model", model)));
    edits.extend(directory.map(where_to_work));
    Ok(edits)
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

/// What a person answers, on the terminal.
fn ask(world: &World, config: &Config, term: &Term) -> Result<Vec<Edit>> {
    let line = |text: &str| term.write_line(text).context("write to the terminal");
    let question = |prompt: &str| -> Result<String> {
        term.write_str(prompt).context("write to the terminal")?;
        Ok(term
            .read_line()
            .context("read from the terminal")?
            .trim()
            .to_owned())
    };
    line("Who answers?")?;
    for (number, entry) in TABLE.iter().enumerate() {
        line(&format!("  {}  {}", number + 1, entry.label))?;
    }
    let known = written(config, "agents.defaults.provider")
        .and_then(Value::as_str)
        .unwrap_or("openrouter");
    let default = TABLE
        .iter()
        .position(|entry| snake_case(entry.name) == snake_case(known))
        .unwrap_or(1);
    let entry = loop {
        let answer = question(&format!("Number or name [{}]: ", default + 1))?;
        let number = answer
            .parse::<usize>()
            .ok()
            .and_then(|number| TABLE.get(number.checked_sub(1)?));
        let found = if answer.is_empty() {
            TABLE.get(default)
        } else {
            number.or_else(|| entry(&answer))
        };
        match found {
            Some(entry) => break entry,
            None => line("That is none of them.")?,
        }
    };
    let mut edits = vec![Edit::new("agents.defaults.provider", entry.name)];
    let base = question(&format!("Address [{}]: ", entry.base))?;
    let block = format!("providers.{}", entry.name);
    if !base.is_empty() || entry.local {
        edits.push(Edit::new(
            format!("{block}.apiBase"),
            if base.is_empty() { entry.base } else { &base },
        ));
    }
    let in_variable = !entry.key_variable.is_empty() && world.env.get(entry.key_variable).is_some();
    let hint = match (in_variable, entry.local) {
        (true, _) => format!(" [the one in {}]", entry.key_variable),
        (_, true) => " [none]".into(),
        _ => String::new(),
    };
    term.write_str(&format!("Key (not shown){hint}: "))
        .context("write to the terminal")?;
    let key = term.read_secure_line().context("read from the terminal")?;
    match (key.trim(), in_variable) {
        ("", true) => edits.push(Edit::new(
            format!("{block}.apiKey"),
            format!("${{{}}}", entry.key_variable),
        )),
        ("", false) => {}
        (key, _) => edits.push(Edit::new(format!("{block}.apiKey"), key)),
    }
    let model = question(&format!("Model [{}]: ", entry.model))?;
    edits.push(Edit::new(
        "agents.defaults.model",
        if model.is_empty() {
            entry.model
        } else {
            &model
        },
    ));
    // Over an install of the Python program, whose agent always works in its workspace.
    if config.exists() && written(config, "agents.defaults.directory").is_none() {
        let answer =
            question("Work in the current directory, or always in the workspace? [c/w, c]: ")?;
        edits.push(where_to_work(if answer.starts_with(['w', 'W']) {
            Directory::Workspace
        } else {
            Directory::Cwd
        }));
    }
    Ok(edits)
}

/// One request, to see that everything fits.
fn test(wire: &dyn Provider, model: &str, settings: &Settings) -> Result<String> {
    let hello = User {
        parts: vec![Part::Text("Say hello in one short sentence.".into())],
        ..User::default()
    };
    let sampling = Sampling {
        max_tokens: settings.max_tokens.min(1024),
        temperature: None,
        reasoning_effort: None,
    };
    let messages = [Message::User(hello)];
    let request = Request {
        system: "You are nanobot, and are being set up.",
        messages: &messages,
        tools: &[],
        may_call: false,
        model,
        sampling: &sampling,
        reply_id: "onboard",
    };
    let reply = wire
        .reply(&request, &mut |_| Ok(()))
        .map_err(crate::provider::ProviderError::into_failure)?;
    Ok(reply.text)
}
