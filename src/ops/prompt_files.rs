//! The files that the config names to replace built-in prompts. The section about permissions is added to such a system
//! prompt too.

use crate::ops::context::Context;
use anyhow::Result;
use nanobot_base::error::{Exit, fail};

/// Reads the file at `path`, which `agents.defaults.promptFiles.NAME` names. A relative path starts at the user's data
/// directory, never at the working directory, whose files configure nothing.
///
/// # Errors
/// Status 78 if the file cannot be read or is empty.
pub(crate) fn read(ctx: &Context, name: &str, path: Option<&str>) -> Result<Option<String>> {
    let Some(path) = path else {
        return Ok(None);
    };
    let path = ctx.paths.root.join(ctx.paths.expand(path));
    let file_error = |error: &str| {
        let key = format!("agents.defaults.promptFiles.{name}");
        fail(Exit::Config, format!("`{key}`: read `{}`: {error}", path.display()))
    };
    let text = std::fs::read_to_string(&path).map_err(|error| file_error(&error.to_string()))?;
    match text.trim() {
        "" => Err(file_error("the file is empty")),
        text => Ok(Some(text.to_owned())),
    }
}
