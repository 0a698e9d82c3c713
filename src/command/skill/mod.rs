//! `nanobot skill`: what the agent can be taught; seen, tried, begun, taken over and taken away.

use crate::cli::skill::{Show, Skill as Command};
use crate::error::{Exit, fail_hint};
use crate::ops::context::Context;
use crate::ops::skills;
use crate::ops::turn_options::TurnOptions;
use crate::settings::Settings;
use crate::settings::keys::nearest;
use crate::skill::{BuiltIn, Found, Skill, Source};
use crate::sys::terminal::Terminal;
use anyhow::Result;
use std::path::Path;

mod check;
mod install;
pub(super) mod list;
mod make;
pub(super) mod show;

pub fn run(ctx: &Context, command: &Command) -> Result<Exit> {
    match command {
        Command::List { json } => list::run(ctx, *json),
        Command::Show(arguments) => show::run(ctx, arguments),
        Command::Check { name, json } => check::run(ctx, name.as_deref(), *json),
        Command::New { name, description } => make::run(ctx, name, description.as_deref()),
        Command::Install(arguments) => install::run(ctx, arguments),
        Command::Remove { name, yes } => install::remove(ctx, name, *yes),
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

/// The skills of a run from here.
fn here(ctx: &Context) -> Result<(Settings, Found)> {
    let settings = ctx.settings()?;
    let found = skills::find(ctx, &settings, Path::new("."))?;
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

/// Where a skill is from, in words.
fn from(ctx: &Context, source: &Source) -> String {
    match source {
        Source::Workspace => "workspace".into(),
        Source::BuiltIn => "built-in".into(),
        Source::Directory(dir) => ctx.paths.display(dir),
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

/// All skills of the REPL's directory, or the one of that name.
pub(super) fn show_in_repl(ctx: &Context, name: &str, options: &TurnOptions) -> Result<()> {
    let found = skills::of_turn(ctx, options)?;
    let width = ctx.terminal.width();
    ctx.terminal.print(&match name {
        "" => list::table(ctx, &found, width),
        name => show::text(ctx, named(&found, name)?, width),
    })
}
