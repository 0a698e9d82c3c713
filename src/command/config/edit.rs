//! `config edit`: opens the config in the user's editor. A text that would stop every run does not replace the file.

use crate::command::memory::run_external_editor;
use crate::command::question::{Cancelled, ask_choice};
use crate::error::{Exit, fail, fail_with_hint};
use crate::ops::context::{Context, report_error};
use crate::ops::usable_config;
use crate::settings::Config;
use crate::sys::durable_file;
use crate::sys::editor::external_editor;
use crate::sys::terminal::Terminal;
use anyhow::{Context as _, Result};
use tempfile::NamedTempFile;

/// The answers to the question about a text that cannot be used.
const CHOICES: [&str; 3] = ["edit", "keep", "discard"];

/// Runs `config edit`. Returns the exit status if the user gave the edit up, and `None` if the file is to be checked.
pub(super) fn run(ctx: &Context) -> Result<Option<Exit>> {
    let path = &ctx.paths.config;
    if !Terminal::is_interactive() {
        return Err(fail_with_hint(
            Exit::Usage,
            "an editor needs a terminal",
            "`nanobot config set KEY VALUE`",
        ));
    }
    let original = durable_file::read(path)?.unwrap_or_default();
    let copy =
        durable_file::create_temp_named(&original, ".json").context("make a copy to edit")?;
    loop {
        run_external_editor(external_editor(&ctx.env), copy.path(), "the config is unchanged")?;
        let edited = durable_file::read(copy.path())?.unwrap_or_default();
        if edited == original {
            break;
        }
        let Err(error) = check_text(ctx, &original, &edited) else {
            match replace(ctx, &original, &edited) {
                Ok(()) => break,
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
fn check_text(ctx: &Context, original: &[u8], edited: &[u8]) -> Result<()> {
    let path = &ctx.paths.config;
    let parse = |bytes: &[u8]| -> Result<Config> {
        let text =
            std::str::from_utf8(bytes).map_err(|_| fail(Exit::Config, "the text is not UTF-8"))?;
        match text.trim().is_empty() {
            true => Err(fail(Exit::Config, "the text is empty")),
            false => Config::parse(path, text),
        }
    };
    let edited = parse(edited)?;
    // A text that is no config was not usable, but an edit is expected to make it so.
    let original = parse(original).unwrap_or_else(|_| Config::missing(path));
    usable_config::check_change(ctx, &original, &edited)
}

/// Replaces the file, unless it was changed since it was read.
fn replace(ctx: &Context, original: &[u8], edited: &[u8]) -> Result<()> {
    let path = &ctx.paths.config;
    let lock = durable_file::lock_for_change(path, "the config")?;
    let work = || match durable_file::read(path)?.unwrap_or_default() == original {
        true => durable_file::replace(path, edited),
        false => Err(fail_with_hint(
            Exit::TryAgain,
            "the config was changed meanwhile, so the edited text was not written",
            "nanobot config edit",
        )),
    };
    let done = work();
    lock.remove()?;
    done
}
