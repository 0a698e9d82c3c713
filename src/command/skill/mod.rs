//! `nanobot skill`: lists, shows, checks, creates, adds, updates and removes skills.

use crate::cli::skill::{SkillCommand, SkillShowArgs};
use crate::ops::context::Context;
use crate::ops::{skill_lookup, skills};
use crate::options::turn::TurnOptions;
use anyhow::Result;
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_os::terminal::{Terminal, sanitize};
use nanobot_store::skill::folder::{EntryType, FolderEntry};
use nanobot_store::skill::{
    BuiltInSkill, MAX_DESCRIPTION_CHARS, install, is_valid_name, skill_template,
};

mod add;
mod check;
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
        SkillCommand::New { name, description } => create(ctx, name, description.as_deref()),
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

/// Runs `nanobot skill new`.
fn create(ctx: &Context, name: &str, description: Option<&str>) -> Result<Exit> {
    if !is_valid_name(name) {
        return Err(fail(Exit::Usage, format!("`{}` is not a valid skill name", sanitize(name)))
            .with_hint("lower-case letters, digits and single hyphens between them, 64 at most"));
    }
    let chars = description.map_or(0, |text| text.chars().count());
    if chars > MAX_DESCRIPTION_CHARS {
        let cause = format!(
            "the description has {chars} characters; at most {MAX_DESCRIPTION_CHARS} are allowed"
        );
        return Err(fail(Exit::Usage, cause));
    }
    let text = skill_template(name, description).into_bytes();
    let entry = FolderEntry {
        path: "SKILL.md".into(),
        entry_type: EntryType::File { size: text.len() as u64, is_executable: false },
    };
    let dir = ctx.settings()?.workspace.join("skills");
    if dir.join(name).symlink_metadata().is_ok() {
        let cause = format!("the workspace already has a skill `{name}`");
        let hint = format!("another name, or edit {}", dir.join(name).join("SKILL.md").display());
        return Err(fail(Exit::Failed, cause).with_hint(hint));
    }
    let skill_dir = install::install(&dir, name, &[(entry, text)], false)?;
    ctx.terminal.print(&format!("{}\n", skill_dir.join("SKILL.md").display()))?;
    Ok(Exit::Answered)
}
