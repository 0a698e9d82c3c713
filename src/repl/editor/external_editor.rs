//! Text entry with the user's own editor.

use anyhow::{Context, Result};
use nanobot_base::error::{Exit, fail_with_hint};
use nanobot_os::durable_file;
use nanobot_os::env::Env;
use nanobot_os::terminal::termios::TerminalModes;
use nanobot_sandbox::process;

/// The user's editor: `VISUAL`, else `EDITOR`, else `vi`.
pub fn external_editor(env: &Env) -> &str {
    ["VISUAL", "EDITOR"].iter().find_map(|name| env.get(name)).unwrap_or("vi")
}

/// Opens `VISUAL`, else `EDITOR`, else `vi`, with `initial` as the initial content, and returns the result. `None` if
/// it is blank.
///
/// # Errors
/// The editor cannot be run, or fails. In that case a changed text is kept, and its path is in the hint.
pub fn edit_text(env: &Env, initial: &str) -> Result<Option<String>> {
    let file = durable_file::create_temp_named(initial.as_bytes(), ".md")
        .context("create a temporary file")?;
    let editor = external_editor(env);
    let modes = TerminalModes::from_stdin(true).context("read the terminal settings")?;
    let result = process::run_editor(editor, file.path());
    // A crashed editor may have left the terminal in another mode.
    modes.restore_and_reset().context("restore the terminal settings")?;
    let text = durable_file::read(file.path())?.unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    if result.with_context(|| format!("run `{editor}`"))? {
        return Ok(Some(text.trim_end().to_owned()).filter(|text| !text.trim().is_empty()));
    }
    let mut hint = "another editor in `EDITOR`".to_owned();
    if text != initial {
        let (_, path) = file.keep().context("save the text")?;
        hint = format!("recover the text from `{}`", path.display());
    }
    Err(fail_with_hint(Exit::Failed, format!("`{editor}` failed"), hint))
}
