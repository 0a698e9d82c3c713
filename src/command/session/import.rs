//! `session import`: makes a session of a file of this program or another one.

use crate::ops::context::Context;
use anyhow::Result;
use nanobot_base::error::{exit_for, fail};
use nanobot_base::shell_quote::quote;
use nanobot_os::input;
use nanobot_store::session::{self, SessionStore};
use serde_json::json;
use std::path::Path;

/// Maximum size of a file in bytes.
const MAX_FILE_BYTES: usize = 256 << 20;
/// Maximum number of characters of a file's name that a key has.
const MAX_NAME_CHARS: usize = 64;

pub(super) fn run(
    ctx: &Context,
    store: &SessionStore,
    file: &Path,
    key: Option<&str>,
    as_json: bool,
) -> Result<()> {
    let name = file.display().to_string();
    let bytes = if name == "-" {
        input::read_file_or_stdin(file, MAX_FILE_BYTES)?.into_bytes()
    } else {
        input::read_file(file, &name, MAX_FILE_BYTES)?
    };
    let conversation = session::parse_conversation(&bytes)
        .map_err(|error| fail(exit_for(&error), format!("`{name}`: {error:#}")))?;
    let key = key.map_or_else(|| default_key(file), str::to_owned);
    let count = session::import(store, &key, &conversation)?;
    let program = conversation.format.program();
    if as_json {
        let object = json!({ "session": key, "messages": count, "format": program });
        return ctx.terminal.print_json(&object);
    }
    ctx.notice(&format!(
        "imported {count} messages of {program} as `{key}`; `nanobot agent -s {}` continues it",
        quote(&key)
    ));
    Ok(())
}

/// The key of a session that is made of `file`.
fn default_key(file: &Path) -> String {
    let file = if file == Path::new("-") { Path::new("stdin") } else { file };
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    let letters = stem.chars().map(|letter| if is_plain(letter) { letter } else { '-' });
    format!("import:{}", letters.take(MAX_NAME_CHARS).collect::<String>())
}
