//! `config edit`: opens the files of the config in the user's editor. A text with an error that would stop every run does not
//! replace the file.

use crate::command::memory::run_external_editor;
use crate::command::question::{Cancelled, ask_choice};
use crate::ops::config_edit::{check_edit, move_added_keys, replace_text};
use crate::ops::context::{Context, report_error};
use crate::repl::editor::external_editor;
use anyhow::{Context as _, Result};
use nanobot_base::error::{Exit, fail_with_hint};
use nanobot_config::settings::own_keys::own_file_path;
use nanobot_os::durable_file;
use nanobot_os::terminal::Terminal;
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
    let own_path = own_file_path(path);
    if own_path.exists() { edit_file(ctx, &own_path) } else { Ok(None) }
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
        let Err(error) = check_edit(ctx, path, &original, &edited) else {
            match replace_text(ctx, path, &original, &edited) {
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
    let (_, path) = copy.keep().context("keep the edited text")?;
    ctx.terminal.eprint(&format!(
        "nanobot: the config is unchanged; the edited text is in {}",
        path.display()
    ));
    Ok(())
}
