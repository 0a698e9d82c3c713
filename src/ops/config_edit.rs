//! The edited text of a config file: checks it, replaces the file, and moves the keys that belong to the other file.

use crate::ops::context::Context;
use crate::ops::usable_config;
use anyhow::Result;
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_config::settings::Config;
use nanobot_config::settings::config_file::{ConfigFile, KeyPath, get_in};
use nanobot_config::settings::key_spelling::format_path;
use nanobot_config::settings::own_keys::own_file_path;
use nanobot_os::durable_file;
use std::path::Path;

/// Checks that a run can use the edited text of the file at `path`. Errors that the original also has are ignored.
///
/// # Errors
/// Status 78 if it cannot.
pub(crate) fn check_edit(ctx: &Context, path: &Path, original: &[u8], edited: &[u8]) -> Result<()> {
    let parse = |bytes: &[u8]| -> Result<ConfigFile> {
        let text =
            std::str::from_utf8(bytes).map_err(|_| fail(Exit::Config, "the text is not UTF-8"))?;
        if text.trim().is_empty() {
            Err(fail(Exit::Config, "the text is empty"))
        } else {
            ConfigFile::parse(path, text)
        }
    };
    let edited = parse(edited)?;
    // An original that is not a config is treated as missing, so that the edited text is checked fully.
    let original = parse(original).unwrap_or_else(|_| ConfigFile::missing(path));
    // The other file is not checked; it is edited on its own.
    let shared_path = &ctx.paths.config;
    let own_path = own_file_path(shared_path);
    let other_path = if path == shared_path { &own_path } else { shared_path };
    let other_file =
        ConfigFile::load(other_path).unwrap_or_else(|_| ConfigFile::missing(other_path));
    let config = Config::missing(shared_path).with_file(other_file);
    usable_config::check_change(ctx, &config.with_file(original), &config.with_file(edited))
}

/// Replaces the text of the file at `path`, unless it was changed since it was read.
///
/// # Errors
/// Status 75 if it was changed; the file cannot be written.
pub(crate) fn replace_text(
    ctx: &Context,
    path: &Path,
    original: &[u8],
    edited: &[u8],
) -> Result<()> {
    let lock = durable_file::lock_for_change(&ctx.paths.config, "the config")?;
    let result = durable_file::read(path).and_then(|current| {
        if current.unwrap_or_default() == original {
            durable_file::replace(path, edited)
        } else {
            let cause = "the config was changed meanwhile, so the edited text was not written";
            Err(fail(Exit::TryAgain, cause).with_hint("nanobot config edit"))
        }
    });
    let removal = lock.remove();
    result?;
    removal
}

/// Moves the keys that were added or changed in the shared file to our own, if they belong there. `original` is the text
/// of the shared file before the edit.
///
/// # Errors
/// A file cannot be read or written.
pub(crate) fn move_added_keys(ctx: &Context, original: &[u8]) -> Result<()> {
    let original_file = std::str::from_utf8(original)
        .ok()
        .and_then(|text| ConfigFile::parse(&ctx.paths.config, text).ok());
    let (moved_keys, overridden_keys) = Config::change(&ctx.paths, |config| {
        let mut keys = config.misplaced_keys();
        let value = |file: &ConfigFile, key: &KeyPath| get_in(file.value(), key).cloned();
        let [shared, _] = config.files();
        keys.retain(|key| {
            original_file.as_ref().and_then(|file| value(file, key)) != value(shared, key)
        });
        let overridden_keys = config.move_keys(&keys)?;
        Ok((keys, overridden_keys))
    })?;
    report_moved_keys(ctx, &moved_keys, &overridden_keys);
    Ok(())
}

/// Reports the keys that were moved to our own file. Those in `overridden_keys` had another value there, which applies.
pub(crate) fn report_moved_keys(
    ctx: &Context,
    moved_keys: &[KeyPath],
    overridden_keys: &[KeyPath],
) {
    let file = ctx.paths.display(&own_file_path(&ctx.paths.config));
    let shared_file = ctx.paths.display(&ctx.paths.config);
    let report = |label: &str, keys: &[&KeyPath]| {
        if !keys.is_empty() {
            let keys: Vec<String> = keys.iter().map(|key| format_path(key)).collect();
            ctx.notice(&format!("{label}: `{}`", keys.join("`, `")));
        }
    };
    let (overridden, moved): (Vec<&KeyPath>, Vec<&KeyPath>) =
        moved_keys.iter().partition(|key| overridden_keys.contains(key));
    report(&format!("moved to {file}"), &moved);
    report(
        &format!("removed from {shared_file}, since {file} has another value, which applies"),
        &overridden,
    );
}
