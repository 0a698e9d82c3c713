//! A small JSON file beside the channels that several processes read and change, such as the pairings.

use anyhow::Result;
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_os::durable_file;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::Path;

/// Reads the file at `path`; a missing one is the default. `hint` says what to do with a damaged file.
///
/// # Errors
/// Status 78 if it is damaged.
pub(crate) fn load<F: Default + DeserializeOwned>(path: &Path, hint: &str) -> Result<F> {
    let Some(text) = durable_file::read(path)? else {
        return Ok(F::default());
    };
    serde_json::from_slice(&text).map_err(|error| {
        let cause = format!("`{}` is damaged: {error}", path.display());
        fail(Exit::Config, cause).with_hint(hint)
    })
}

/// Reads the file with `load`, changes and replaces it, while no other process changes it. `subject` names it in messages.
///
/// # Errors
/// Those of `load`, and status 74.
pub(crate) fn change<F: Clone + PartialEq + Serialize, T>(
    path: &Path,
    subject: &str,
    load: impl FnOnce(&Path) -> Result<F>,
    change: impl FnOnce(&mut F) -> T,
) -> Result<T> {
    let lock = durable_file::lock_for_change(path, subject)?;
    let mut file = load(path)?;
    let original = file.clone();
    let output = change(&mut file);
    if file != original {
        let text = serde_json::to_string_pretty(&file)? + "\n";
        durable_file::replace(path, text.as_bytes())?;
    }
    drop(lock);
    Ok(output)
}
