//! `config edit`: opens the files of the config in the user's editor. A text with an error that would stop every run does not
//! replace the file.

use crate::command::memory::run_external_editor;
use crate::command::question::{Cancelled, ask_choice};
use crate::ops::config_edit::{check_edit, move_added_keys, replace_text};
use crate::ops::context::{Context, report_error};
use crate::repl::editor::external_editor;
use anyhow::{Context as _, Result};
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_config::settings::own_keys::own_file_path;
use nanobot_os::durable_file;
use nanobot_os::signal;
use nanobot_os::terminal::{Terminal, stderr_width, wrap_words};
use std::path::Path;
use tempfile::NamedTempFile;

/// The answers to the question about a text that cannot be used.
const CHOICES: [&str; 3] = ["edit", "keep", "discard"];

/// The outcome of editing a file.
pub(super) enum EditOutcome {
    /// The user changed nothing.
    Unchanged,
    /// The file has the edited text.
    Saved,
    /// The file was not replaced, and the edited text is in a file of its own.
    SavedElsewhere,
    /// The file was not replaced, and the edited text is gone.
    Discarded,
}

/// Runs `config edit`. Our own file is edited after the shared one, unless the user gave that edit up. Returns the outcome of both
/// together: if one was saved and the edit of the other discarded, something was saved.
pub(super) fn run(ctx: &Context) -> Result<EditOutcome> {
    if !Terminal::is_interactive() {
        return Err(fail(Exit::Usage, "an editor needs a terminal")
            .with_hint("`nanobot config set KEY VALUE`"));
    }
    let shared_path = &ctx.paths.config;
    let own_path = own_file_path(shared_path);
    // If keys that were added to the shared file create it, it need not be edited at once.
    let has_own_file = own_path.exists();
    let original = durable_file::read(shared_path)?.unwrap_or_default();
    let outcome = edit_file(ctx, shared_path, &original)?;
    match outcome {
        EditOutcome::Unchanged => {}
        EditOutcome::Saved => move_added_keys(ctx, &original)?,
        EditOutcome::SavedElsewhere | EditOutcome::Discarded => return Ok(outcome),
    }
    if !has_own_file {
        return Ok(outcome);
    }
    let original = durable_file::read(&own_path)?.unwrap_or_default();
    let own_outcome = edit_file(ctx, &own_path, &original)?;
    Ok(match (outcome, own_outcome) {
        (EditOutcome::Saved, EditOutcome::Discarded) => EditOutcome::Saved,
        (_, own_outcome) => own_outcome,
    })
}

/// Opens a copy of the file at `path` in the editor. The copy is kept if the edited text is not saved, unless the user
/// discards it.
fn edit_file(ctx: &Context, path: &Path, original: &[u8]) -> Result<EditOutcome> {
    let copy = durable_file::create_temp_named(original, ".json").context("make a copy to edit")?;
    let outcome = edit_copy(ctx, path, original, copy.path());
    if matches!(outcome, Ok(EditOutcome::SavedElsewhere) | Err(_))
        && let Err(error) = keep_if_edited(ctx, path, copy, original)
    {
        if outcome.is_ok() {
            return Err(error);
        }
        // The error of the edit is the status.
        report_error(&error, ctx.terminal);
    }
    outcome
}

/// Lets the user edit the copy at `copy_path` until the text can be used, and replaces the text of the file at `path`.
fn edit_copy(ctx: &Context, path: &Path, original: &[u8], copy_path: &Path) -> Result<EditOutcome> {
    let unchanged = format!("{} is unchanged", ctx.paths.display(path));
    loop {
        run_external_editor(external_editor(&ctx.env), copy_path, &unchanged)?;
        let edited = durable_file::read(copy_path)?.unwrap_or_default();
        if edited == original {
            return Ok(EditOutcome::Unchanged);
        }
        match check_edit(ctx, path, original, &edited) {
            Ok(()) => {
                replace_text(ctx, path, original, &edited)?;
                return Ok(EditOutcome::Saved);
            }
            Err(error) => {
                report_error(&error, ctx.terminal);
            }
        }
        let question =
            format!("{unchanged}; [e]dit again, [k]eep the text elsewhere, [d]iscard it? [e] ");
        let question = wrap_words(&question, stderr_width(), 0);
        match ask_choice(ctx.terminal, &question, "edit", &CHOICES) {
            Ok("keep") => return Ok(EditOutcome::SavedElsewhere),
            Ok("discard") => {
                ctx.notice(&unchanged);
                return Ok(EditOutcome::Discarded);
            }
            Ok(_) => {}
            Err(error) if error.is::<Cancelled>() => return Ok(EditOutcome::SavedElsewhere),
            Err(error) => return Err(error),
        }
    }
}

/// Keeps the edited text of the file at `path` if it differs from the original, and says where.
fn keep_if_edited(ctx: &Context, path: &Path, copy: NamedTempFile, original: &[u8]) -> Result<()> {
    if durable_file::read(copy.path())?.unwrap_or_default() == original {
        return Ok(());
    }
    let (_, kept_path) = copy.keep().context("keep the edited text")?;
    // After a signal, the message would not be written otherwise.
    signal::begin_shutdown_if_stopped();
    ctx.terminal.eprint(&format!(
        "nanobot: {} was not replaced; the edited text is in {}",
        ctx.paths.display(path),
        kept_path.display()
    ));
    Ok(())
}
