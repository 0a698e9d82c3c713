//! A text that a person writes with an editor of their own.

use super::modes::Modes;
use crate::error::{Exit, fail_hint};
use crate::sys::env::Env;
use crate::sys::{process, store};
use anyhow::{Context, Result};
use std::io::Write;

/// Let a person write a text with `VISUAL`, else `EDITOR`, beginning with `text`. `None` where nothing is left of it.
///
/// # Errors
/// The editor cannot be run, or fails; what was written is kept then, and named.
pub fn compose(env: &Env, text: &str) -> Result<Option<String>> {
    let what = || "make a file to edit";
    let mut named = tempfile::Builder::new();
    let mut file = named
        .prefix("nanobot-")
        .suffix(".md")
        .tempfile()
        .with_context(what)?;
    file.write_all(text.as_bytes()).with_context(what)?;
    let editor = ["VISUAL", "EDITOR"]
        .iter()
        .find_map(|name| env.get(name))
        .unwrap_or("vi");
    let modes = Modes::of_stdin().context("look at the terminal")?;
    let done = process::edit(editor, file.path());
    // It may have died with the terminal in its hands.
    modes.leave().context("restore the terminal")?;
    let written = store::read(file.path())?.unwrap_or_default();
    let written = String::from_utf8_lossy(&written).into_owned();
    if done.with_context(|| format!("run `{editor}`"))? {
        let written = written.trim_end().to_owned();
        return Ok(Some(written).filter(|text| !text.trim().is_empty()));
    }
    let mut hint = "another editor in `EDITOR`".to_owned();
    if written != text {
        let (_, path) = file.keep().context("keep the text")?;
        hint = format!("`{}` has what was written", path.display());
    }
    Err(fail_hint(Exit::Failed, format!("`{editor}` failed"), hint))
}
