//! `nanobot skill new`: creates the skeleton of a skill.

use crate::error::{Exit, fail, fail_hint};
use crate::ops::context::Context;
use crate::skill::folder::{Entry, Kind};
use crate::skill::{DESCRIPTION, draft, install, is_name};
use crate::sys::terminal::harmless;
use anyhow::Result;

/// Runs `nanobot skill new`.
pub(super) fn run(ctx: &Context, name: &str, description: Option<&str>) -> Result<Exit> {
    if !is_name(name) {
        return Err(fail_hint(
            Exit::Usage,
            format!("`{}` is not a valid skill name", harmless(name)),
            "lower-case letters, digits and single hyphens between them, 64 at most",
        ));
    }
    let letters = description.map_or(0, |text| text.chars().count());
    if letters > DESCRIPTION {
        let cause =
            format!("the description has {letters} characters; at most {DESCRIPTION} are allowed");
        return Err(fail(Exit::Usage, cause));
    }
    let text = draft(name, description).into_bytes();
    let entry = Entry {
        path: "SKILL.md".into(),
        kind: Kind::File {
            size: text.len() as u64,
            is_executable: false,
        },
    };
    let dir = ctx.settings()?.workspace.join("skills");
    if dir.join(name).symlink_metadata().is_ok() {
        let cause = format!("the workspace already has a skill `{name}`");
        let hint = format!(
            "another name, or edit {}",
            dir.join(name).join("SKILL.md").display()
        );
        return Err(fail_hint(Exit::Failed, cause, hint));
    }
    let place = install::put(&dir, name, &[(entry, text)], false)?;
    let path = place.join("SKILL.md");
    ctx.terminal.print(&format!("{}\n", path.display()))?;
    Ok(Exit::Answered)
}
