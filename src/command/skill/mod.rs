//! `nanobot skill`: lists, shows, checks, creates, adds, updates and removes skills.

use crate::cli::skill::{SkillCommand, SkillShowArgs};
use crate::ops::context::Context;
use crate::ops::{skill_lookup, skills};
use crate::options::turn::TurnOptions;
use anyhow::Result;
use nanobot_base::error::Exit;
use nanobot_os::terminal::Terminal;
use nanobot_store::skill::BuiltInSkill;

mod add;
mod check;
mod create;
mod describe;
mod list;
mod show;
mod update;

/// Runs `nanobot skill`.
pub fn run(ctx: &Context, command: &SkillCommand) -> Result<Exit> {
    match command {
        SkillCommand::List { pattern, json } => list::run(ctx, pattern.as_deref(), *json),
        SkillCommand::Show(arguments) => show::run(ctx, arguments),
        SkillCommand::Check { name, json } => check::run(ctx, name.as_deref(), *json),
        SkillCommand::New { name, description } => create::run(ctx, name, description.as_deref()),
        SkillCommand::Add(arguments) => add::run(ctx, arguments),
        SkillCommand::Update(arguments) => update::run(ctx, arguments),
        SkillCommand::Remove { name, yes } => add::remove(ctx, name, *yes),
    }
}

/// Prints a file of a built-in skill, if that is the command. It is the only part of `nanobot skill` that runs inside an
/// agent's sandbox: the file is not secret, and needs neither network nor other files. A skill of the workspace that hides
/// the built-in one is not seen there. `None` for everything else.
pub fn run_in_sandbox(command: &SkillCommand, terminal: Terminal) -> Option<Result<Exit>> {
    let SkillCommand::Show(SkillShowArgs { name, file: Some(file), .. }) = command else {
        return None;
    };
    let text = BuiltInSkill::by_name(name)?.file(file)?;
    Some(terminal.print(text).map(|()| Exit::Answered))
}

/// Prints the skill `name`, or all skills if the name is empty: those of the REPL's directory, of the workspace, and the
/// built-in ones.
pub(super) fn show_in_repl(ctx: &Context, name: &str, options: &TurnOptions) -> Result<()> {
    let skills = skills::for_turn(ctx, options)?;
    let width = ctx.terminal.stdout_width();
    ctx.terminal.print(&if name.is_empty() {
        list::table(ctx, &skills, width)
    } else {
        show::describe(ctx, skill_lookup::find_skill(&skills, name)?, width)
    })
}
