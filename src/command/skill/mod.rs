//! `nanobot skill`: lists, shows, checks, creates, installs and removes skills.

use crate::cli::skill::{SkillCommand as Command, SkillShowArgs};
use crate::ops::context::Context;
use crate::ops::{skill_lookup, skills};
use crate::options::turn::TurnOptions;
use anyhow::Result;
use nanobot_base::error::Exit;
use nanobot_os::terminal::Terminal;
use nanobot_store::skill::BuiltInSkill;

mod check;
mod create;
mod describe;
mod install;
mod list;
mod show;

/// Runs `nanobot skill`.
pub fn run(ctx: &Context, command: &Command) -> Result<Exit> {
    match command {
        Command::List { pattern, json } => list::run(ctx, pattern.as_deref(), *json),
        Command::Show(arguments) => show::run(ctx, arguments),
        Command::Check { name, json } => check::run(ctx, name.as_deref(), *json),
        Command::New { name, description } => create::run(ctx, name, description.as_deref()),
        Command::Install(arguments) => install::run(ctx, arguments),
        Command::Remove { name, yes } => install::remove(ctx, name, *yes),
    }
}

/// Runs the part of this command that is available inside an agent's sandbox: printing a file of a built-in skill,
/// which is not secret and needs neither network nor files. `None` for everything else.
pub fn run_in_sandbox(command: &Command, terminal: Terminal) -> Option<Result<Exit>> {
    let Command::Show(SkillShowArgs { name, file: Some(file), .. }) = command else {
        return None;
    };
    let text = BuiltInSkill::by_name(name)?.file(file)?;
    Some(terminal.print(text).map(|()| Exit::Answered))
}

/// Prints all skills of the REPL's directory, or the one called `name`.
pub(super) fn show_in_repl(ctx: &Context, name: &str, options: &TurnOptions) -> Result<()> {
    let found = skills::for_turn(ctx, options)?;
    let width = ctx.terminal.stdout_width();
    ctx.terminal.print(&match name {
        "" => list::table(ctx, &found, width),
        name => show::describe(ctx, skill_lookup::find_skill(&found, name)?, width),
    })
}
