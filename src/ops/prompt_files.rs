//! The files that replace built-in prompts, as the config names them. The permissions in force are added to each system
//! prompt all the same.

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
    let fault = |words: &str| {
        let key = format!("agents.defaults.promptFiles.{name}");
        let cause = format!("`{key}`: read `{}`: {words}", path.display());
        fail(Exit::Config, cause)
    };
    let text = std::fs::read_to_string(&path).map_err(|error| fault(&error.to_string()))?;
    match text.trim() {
        "" => Err(fault("the file is empty")),
        text => Ok(Some(text.to_owned())),
    }
}
