//! `nanobot skill new`: creates the skeleton of a skill.

use crate::ops::context::Context;
use anyhow::Result;
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_os::terminal::sanitize;
use nanobot_store::skill::folder::{EntryType, FolderEntry};
use nanobot_store::skill::{MAX_DESCRIPTION_CHARS, install, is_valid_name, skill_template};

/// Runs `nanobot skill new`.
pub(super) fn run(ctx: &Context, name: &str, description: Option<&str>) -> Result<Exit> {
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
