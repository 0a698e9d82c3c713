//! Text entry with the user's own editor.

use anyhow::{Context, Result};
use nanobot_os::durable_file;
use nanobot_os::env::Env;
use nanobot_os::terminal::termios::TerminalModes;
use nanobot_sandbox::process;
use std::time::SystemTime;

/// The user's editor: `VISUAL`, else `EDITOR`, else `vi`.
pub fn external_editor(env: &Env) -> &str {
    ["VISUAL", "EDITOR"].iter().find_map(|name| env.get(name)).unwrap_or("vi")
}

/// A text after the user's editor had it.
pub struct EditedText {
    pub text: String,
    /// True if the editor has written the file and reported no failure, as `:cq` of vi does.
    pub is_saved: bool,
}

/// Opens `VISUAL`, else `EDITOR`, else `vi`, with `initial` as the initial content, and returns the result.
///
/// # Errors
/// The editor cannot be run.
pub fn edit_text(env: &Env, initial: &str) -> Result<EditedText> {
    let file = durable_file::create_temp_named(initial.as_bytes(), ".md")
        .context("create a temporary file")?;
    // An editor that writes the file, even with the same content, sets another time.
    let old_time = SystemTime::UNIX_EPOCH;
    file.as_file().set_modified(old_time).context("prepare the temporary file")?;
    let editor = external_editor(env);
    let modes = TerminalModes::from_stdin(true).context("read the terminal settings")?;
    let result = process::run_editor(editor, file.path());
    // A crashed editor may have left the terminal in another mode.
    modes.restore_and_reset().context("restore the terminal settings")?;
    let has_succeeded = result.with_context(|| format!("run `{editor}`"))?;
    // An editor may have put another file in its place.
    let metadata = file.path().metadata().context("read the text")?;
    let is_written = metadata.modified().context("read the text")? != old_time;
    let bytes = durable_file::read(file.path())?.unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes).trim_end().to_owned();
    Ok(EditedText { text, is_saved: has_succeeded && is_written })
}
