//! `config edit`: opens the files of the config in the user's editor. A text that would stop every run does not replace the
//! file.

use crate::command::memory::run_external_editor;
use crate::command::question::{Cancelled, ask_choice};
use crate::error::{Exit, fail, fail_with_hint};
use crate::ops::context::{Context, report_error};
use crate::ops::usable_config;
use crate::settings::Config;
use crate::settings::config_file::{ConfigFile, KeyPath, get_in};
use crate::settings::key_spelling::format_path;
use crate::settings::own_keys::own_file;
use crate::sys::durable_file;
use crate::sys::editor::external_editor;
use crate::sys::terminal::Terminal;
use anyhow::{Context as _, Result};
use std::path::Path;
use tempfile::NamedTempFile;

/// The answers to the question about a text that cannot be used.
const CHOICES: [&str; 3] = ["edit", "keep", "discard"];

/// Runs `config edit`. Returns the exit status if the user gave the edit up, and `None` if the file is to be checked.
pub(super) fn run(ctx: &Context) -> Result<Option<Exit>> {
    if !Terminal::is_interactive() {
        return Err(fail_with_hint(
            Exit::Usage,
            "an editor needs a terminal",
            "`nanobot config set KEY VALUE`",
        ));
    }
    let path = &ctx.paths.config;
    if let Some(exit) = edit_file(ctx, path)? {
        return Ok(Some(exit));
    }
    let own = own_file(path);
    if own.exists() { edit_file(ctx, &own) } else { Ok(None) }
}

/// Opens the file at `path`. Returns the exit status if the user gave the edit up.
fn edit_file(ctx: &Context, path: &Path) -> Result<Option<Exit>> {
    let original = durable_file::read(path)?.unwrap_or_default();
    let copy =
        durable_file::create_temp_named(&original, ".json").context("make a copy to edit")?;
    loop {
        run_external_editor(external_editor(&ctx.env), copy.path(), "the config is unchanged")?;
        let edited = durable_file::read(copy.path())?.unwrap_or_default();
        if edited == original {
            break;
        }
        let Err(error) = check_text(ctx, path, &original, &edited) else {
            match replace(ctx, path, &original, &edited) {
                Ok(()) => {
                    move_added_keys(ctx, &original)?;
                    break;
                }
                Err(error) => {
                    keep(ctx, copy)?;
                    return Err(error);
                }
            }
        };
        report_error(&error, ctx.terminal);
        let question = "the old file stays in place; [e]dit again, [k]eep the text elsewhere, [d]iscard it? [e] ";
        match ask_choice(ctx.terminal, question, "edit", &CHOICES) {
            Ok("edit") => {}
            Ok("discard") => {
                ctx.notice("the config is unchanged");
                return Ok(Some(Exit::Answered));
            }
            Err(error) if !error.is::<Cancelled>() => return Err(error),
            _ => {
                keep(ctx, copy)?;
                return Ok(Some(Exit::Config));
            }
        }
    }
    Ok(None)
}

/// Keeps the edited text, and says where.
fn keep(ctx: &Context, copy: NamedTempFile) -> Result<()> {
    let (_, kept) = copy.keep().context("keep the edited text")?;
    ctx.terminal.eprint(&format!(
        "nanobot: the config is unchanged; the edited text is in {}",
        kept.display()
    ));
    Ok(())
}

/// Checks that a run can use the text, as far as it could use the original.
fn check_text(ctx: &Context, path: &Path, original: &[u8], edited: &[u8]) -> Result<()> {
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
    // A text that is no config was not usable, but an edit is expected to make it so.
    let original = parse(original).unwrap_or_else(|_| ConfigFile::missing(path));
    // The other file is as it is; it is edited on its own.
    let [shared, own] = [ctx.paths.config.clone(), own_file(&ctx.paths.config)];
    let other = if path == shared { own } else { shared };
    let other = ConfigFile::load(&other).unwrap_or_else(|_| ConfigFile::missing(&other));
    let config = Config::missing(&ctx.paths.config).with_file(other);
    usable_config::check_change(ctx, &config.with_file(original), &config.with_file(edited))
}

/// Replaces the file, unless it was changed since it was read.
fn replace(ctx: &Context, path: &Path, original: &[u8], edited: &[u8]) -> Result<()> {
    let lock = durable_file::lock_for_change(&ctx.paths.config, "the config")?;
    let work = || {
        if durable_file::read(path)?.unwrap_or_default() == original {
            durable_file::replace(path, edited)
        } else {
            Err(fail_with_hint(
                Exit::TryAgain,
                "the config was changed meanwhile, so the edited text was not written",
                "nanobot config edit",
            ))
        }
    };
    let done = work();
    lock.remove()?;
    done
}

/// Moves the keys that were added to the config file, or changed there, to the file that they belong to. `original` is the
/// text before.
fn move_added_keys(ctx: &Context, original: &[u8]) -> Result<()> {
    let before = std::str::from_utf8(original).ok();
    let before = before.and_then(|text| ConfigFile::parse(&ctx.paths.config, text).ok());
    let moved = Config::change(&ctx.paths.config, |config| {
        let mut keys = config.misplaced_keys();
        let value = |file: &ConfigFile, key: &KeyPath| get_in(file.value(), key).cloned();
        let [shared, _] = config.files();
        keys.retain(|key| {
            before.as_ref().and_then(|before| value(before, key)) != value(shared, key)
        });
        config.move_keys(&keys)?;
        Ok(keys)
    })?;
    if !moved.is_empty() {
        let keys: Vec<String> = moved.iter().map(|key| format_path(key)).collect();
        let own = ctx.paths.display(&own_file(&ctx.paths.config));
        ctx.notice(&format!("moved to {own}: `{}`", keys.join("`, `")));
    }
    Ok(())
}
