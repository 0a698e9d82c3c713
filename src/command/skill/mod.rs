//! `nanobot skill`: what the agent can be taught; seen, tried, begun, taken over and taken away.

use crate::World;
use crate::cli::skill::{Show, Skill as Command};
use crate::error::{Exit, fail_hint};
use crate::settings::keys::nearest;
use crate::settings::{Config, Overrides, Settings};
use crate::skill::{self, BuiltIn, Found, Shelves, Skill, Source};
use crate::sys::terminal::Terminal;
use crate::trust::Trust;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::path::Path;

mod check;
mod install;
pub(super) mod list;
mod make;
pub(super) mod show;

pub fn run(world: &World, command: &Command) -> Result<Exit> {
    match command {
        Command::List { json } => list::run(world, *json),
        Command::Show(arguments) => show::run(world, arguments),
        Command::Check { name, json } => check::run(world, name.as_deref(), *json),
        Command::New { name, description } => make::run(world, name, description.as_deref()),
        Command::Install(arguments) => install::run(world, arguments),
        Command::Remove { name, yes } => install::remove(world, name, *yes),
    }
}

/// What a command of an agent may have of this: a file of a skill that comes with the program, which is no secret and takes
/// neither the network nor files. `None` for all else.
pub fn inside(command: &Command, terminal: Terminal) -> Option<Result<Exit>> {
    let Command::Show(Show {
        name,
        file: Some(file),
        ..
    }) = command
    else {
        return None;
    };
    let text = BuiltIn::named(name)?.file(file)?;
    Some(terminal.print(text).map(|()| Exit::Answered))
}

pub(super) fn settings(world: &World) -> Result<Settings> {
    let config = Config::load(&world.paths.config)?;
    let flags = Overrides {
        workspace: world.shared.workspace.clone(),
        ..Overrides::default()
    };
    Settings::resolve(&config, &world.env, &flags, &world.paths)
}

/// The skills of a run that works in `directory`.
pub(super) fn look(world: &World, settings: &Settings, directory: &Path) -> Result<Found> {
    let directory = std::fs::canonicalize(directory)
        .with_context(|| format!("look at `{}`", directory.display()))?;
    let around = Trust::load(&world.paths.trust())?.notes(&directory)?;
    Ok(skill::find(Shelves {
        workspace: &settings.workspace,
        further: &around.skills,
        disabled: &settings.skills.disabled,
        env: &world.env,
    }))
}

/// The skills of a run from here.
fn here(world: &World) -> Result<(Settings, Found)> {
    let settings = settings(world)?;
    let found = look(world, &settings, Path::new("."))?;
    Ok((settings, found))
}

/// The skill of that name.
///
/// # Errors
/// Status 66 where there is none, or none that can be read.
pub(super) fn named<'a>(found: &'a Found, name: &str) -> Result<&'a Skill> {
    let disabled = || {
        let mut hidden = found.hidden.iter();
        let hidden = hidden.find(|hidden| hidden.skill.name == name && hidden.by.is_none());
        hidden.map(|hidden| &hidden.skill)
    };
    if let Some(skill) = found.named(name).or_else(disabled) {
        return Ok(skill);
    }
    let mut unreadable = found.unreadable.iter();
    if let Some(unreadable) = unreadable.find(|unreadable| unreadable.name.as_deref() == Some(name))
    {
        let cause = format!("skill `{name}`: {}", unreadable.why);
        return Err(fail_hint(Exit::BadInput, cause, "nanobot skill check"));
    }
    let names = found.skills.iter().map(|skill| skill.name.as_str());
    let hint = match nearest(name, names) {
        Some(meant) => format!("nanobot skill show {meant}"),
        None => "nanobot skill list".into(),
    };
    Err(fail_hint(
        Exit::NoInput,
        format!("there is no skill `{name}`"),
        hint,
    ))
}

/// What there is, at a glance.
#[derive(Debug, Default)]
pub(super) struct Glance {
    /// How many do not come with the program.
    pub(super) own: usize,
    /// Those that lack something, with what that is.
    pub(super) lacking: Vec<String>,
    /// Tokens of the list that each request has, and those that it may have.
    tokens: (u64, u64),
    pub(super) is_cut: bool,
}

impl Glance {
    pub(super) fn of(found: &Found, settings: &Settings) -> Self {
        let budget = settings.skills.budget;
        let list = skill::summary(&found.skills, budget);
        let is_own = |skill: &&Skill| skill.source != Source::BuiltIn;
        let own = || found.skills.iter().filter(is_own);
        let lacking = own().filter(|skill| !skill.is_available());
        Self {
            own: own().count(),
            lacking: lacking
                .map(|skill| format!("`{}` ({})", skill.name, skill.missing.join(", ")))
                .collect(),
            tokens: (list.tokens, budget),
            is_cut: list.is_cut(),
        }
    }

    pub(super) fn words(&self) -> String {
        let own = match self.own {
            0 => "none".to_owned(),
            own => own.to_string(),
        };
        let (_, budget) = self.tokens;
        let cut = match self.is_cut {
            true => format!("; their list is cut to keep its {budget} tokens"),
            false => String::new(),
        };
        let lacking = match self.lacking.is_empty() {
            true => String::new(),
            false => format!("; something is missing for {}", self.lacking.join(", ")),
        };
        format!("{own} but the built-in ones{cut}{lacking}")
    }

    pub(super) fn json(&self) -> Value {
        let (tokens, budget) = self.tokens;
        json!({ "own": self.own, "lacking": self.lacking.len(), "tokens": tokens, "budget_tokens": budget, "cut": self.is_cut })
    }
}

/// Where a skill is from, in words.
fn from(world: &World, source: &Source) -> String {
    match source {
        Source::Workspace => "workspace".into(),
        Source::BuiltIn => "built-in".into(),
        Source::Directory(dir) => world.paths.display(dir),
    }
}

/// The same as a word or a path for programs.
fn source(source: &Source) -> String {
    match source {
        Source::Workspace => "workspace".into(),
        Source::BuiltIn => "built-in".into(),
        Source::Directory(dir) => dir.display().to_string(),
    }
}

/// Tell what was done, unless nothing is to be said.
fn notice(world: &World, text: &str) {
    if !world.shared.quiet {
        world.terminal.complain(&format!("nanobot: {text}"));
    }
}
