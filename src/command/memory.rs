//! `nanobot memory`: prints the memory and its history, and changes it.

use crate::cli::memory::{ConsolidateArgs, MemoryCommand};
use crate::ops::consolidation::consolidator::{
    ConsolidatedChunk, ConsolidationCost, Consolidator, MAX_ATTEMPTS,
};
use crate::ops::consolidation::deferred::DeferredConsolidation;
use crate::ops::consolidation::memory_edit::{self, LOCK_TIMEOUT, UndoResult, version_text};
use crate::ops::consolidation::run::{ConsolidationProgress, ConsolidationRun, DueSession};
use crate::ops::context::Context;
use crate::ops::embeddings;
use crate::options::turn::TurnOptions;
use crate::repl::editor::external_editor;
use anyhow::{Context as _, Result};
use nanobot_agent::report::columns::{Column, Side, format_table};
use nanobot_agent::report::{Bar, ProgressLevel};
use nanobot_base::diff::Diff;
use nanobot_base::error::{Exit, WithHint as _, fail};
use nanobot_os::durable_file::{self, format_size};
use nanobot_os::signal;
use nanobot_os::terminal::sanitize;
use nanobot_sandbox::process;
use nanobot_store::memory::{Memory, UpdateResult, Version, VersionCause};
use nanobot_store::session::SessionStore;
use regex::Regex;
use serde_json::json;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

/// Context lines around a difference.
const DIFF_CONTEXT_LINES: usize = 3;

/// Runs `nanobot memory`.
pub fn run(ctx: &Context, command: &MemoryCommand) -> Result<Exit> {
    let open = || memory_edit::open_memory(ctx);
    match command {
        MemoryCommand::Consolidate(arguments) => return consolidate(ctx, arguments),
        MemoryCommand::Search { pattern, meaning, json } => {
            return search(ctx, &open()?, pattern, *meaning, *json);
        }
        MemoryCommand::Show { json } => show(ctx, &open()?, *json)?,
        MemoryCommand::Edit => edit(ctx, &open()?)?,
        MemoryCommand::Accept => accept(ctx, &open()?)?,
        MemoryCommand::Log { json } => log(ctx, &open()?, *json)?,
        MemoryCommand::Diff { from, to, json } => diff(ctx, &open()?, *from, *to, *json)?,
        MemoryCommand::Undo { id } => undo(ctx, &open()?, *id)?,
    }
    Ok(Exit::Answered)
}

fn consolidate(ctx: &Context, arguments: &ConsolidateArgs) -> Result<Exit> {
    let ConsolidateArgs {
        session,
        all,
        dry_run,
        model,
        wait,
        offline,
        no_stream,
        detached,
        context,
        max_cost,
        max_total_tokens,
    } = arguments;
    if *detached {
        let deferred = DeferredConsolidation {
            key: session.clone().unwrap_or_default(),
            model: model.clone(),
            offline: *offline,
            no_stream: *no_stream,
            context_tokens: *context,
            max_cost: *max_cost,
            max_tokens: *max_total_tokens,
        };
        // A failure is stored, and `memory log` and `status` show it. The process does not wait for a locked memory: the session
        // is due again after the next turn, and each turn would leave another waiting process.
        drop(deferred.run(ctx, Duration::ZERO, ProgressLevel::Quiet));
        return Ok(Exit::Answered);
    }
    signal::install(None).context("wait for signals")?;
    let mut options = TurnOptions::default();
    options.limits.offline = *offline;
    options.model.no_stream = *no_stream;
    let consolidator = Consolidator::new(ctx, model.as_deref(), options, None)?;
    let mut run = ConsolidationRun::new(consolidator, *all || session.is_some());
    let sessions = run.due_sessions(session.as_deref())?;
    let lock_timeout = Duration::from_secs(*wait);
    if sessions.is_empty() {
        let mut cleared_error = None;
        if !*dry_run {
            run.finish_interrupted(lock_timeout)?;
            // The messages of a failed run were archived, or their session is gone. So no later run would clear the error.
            if session.is_none() {
                cleared_error = run.forget_error()?;
            }
        }
        ctx.notice(&match cleared_error {
            Some(error) => format!("nothing to consolidate; no longer reported: {error}"),
            None => "nothing to consolidate".to_owned(),
        });
    } else if *dry_run {
        let lines: String = sessions.iter().map(due_line).collect();
        ctx.terminal.print(&lines)?;
    } else {
        let mut progress = TerminalProgress { ctx, bar: None };
        let result = run.consolidate_all(&sessions, lock_timeout, &mut progress);
        drop(progress);
        if run.chunk_count > 1 {
            ctx.notice(&format!("{} in total", describe_cost(&run.cost)));
        }
        result?;
    }
    Ok(run.exit())
}

fn due_line(session: &DueSession) -> String {
    let messages = session.range.end - session.range.from;
    let attempts = match session.range.attempts {
        0 => String::new(),
        MAX_ATTEMPTS.. => "; to be archived unchanged".into(),
        attempts => format!("; tried {attempts} of {MAX_ATTEMPTS} times"),
    };
    format!("{}: {messages} messages{attempts}\n", sanitize(&session.key))
}

/// Shows a progress bar, and prints a line for each chunk.
struct TerminalProgress<'a> {
    ctx: &'a Context,
    bar: Option<Bar>,
}

impl ConsolidationProgress for TerminalProgress<'_> {
    fn begin(&mut self, messages: usize) {
        self.bar = Some(Bar::new(self.ctx.terminal, self.ctx.quiet, messages));
    }

    fn begin_session(&mut self, key: &str) {
        if let Some(bar) = &self.bar {
            bar.set_item(key);
        }
    }

    fn end_chunk(
        &mut self,
        key: &str,
        chunk: &ConsolidatedChunk,
        cost: &ConsolidationCost,
    ) -> Result<()> {
        if let Some(bar) = &self.bar {
            bar.advance(chunk.message_count);
        }
        let line = format!("{}: {}\n", sanitize(key), describe_chunk(chunk, cost));
        self.ctx.terminal.print(&line)
    }
}

/// Describes a consolidated chunk, for people.
fn describe_chunk(chunk: &ConsolidatedChunk, cost: &ConsolidationCost) -> String {
    let messages = chunk.message_count;
    let cost = describe_cost(cost);
    if chunk.is_raw {
        return format!("{messages} messages archived unchanged, {cost}");
    }
    let (bytes_before, bytes) = chunk.memory_bytes;
    let size = format_size(bytes as u64);
    let memory = match &chunk.rejection_reason {
        Some(why) => format!("memory unchanged, because {why} (the version is in `memory log`)"),
        None if bytes_before == bytes => format!("memory {size}"),
        None => format!("memory {size}, was {}", format_size(bytes_before as u64)),
    };
    format!("{messages} messages, {memory}, {cost}")
}

fn describe_cost(cost: &ConsolidationCost) -> String {
    let tokens = cost.usage.input + cost.usage.output;
    match cost.cost_usd {
        Some(usd) => format!("{tokens} tokens, ${}", nanobot_model::ledger::round_usd(usd)),
        None if tokens > 0 => format!("{tokens} tokens, cost unknown"),
        None => format!("{tokens} tokens"),
    }
}

fn show(ctx: &Context, memory: &Memory, as_json: bool) -> Result<()> {
    let bytes = memory.read()?.unwrap_or_default();
    if bytes.is_empty() && !as_json {
        ctx.explain_empty(
            "the memory is empty; `nanobot memory consolidate` fills it from sessions",
        );
    }
    if as_json {
        ctx.terminal.print_json(&json!({
            "path": memory.path().display().to_string(), "bytes": bytes.len(), "text": String::from_utf8_lossy(&bytes),
        }))
    } else {
        // The output of a pipe is sanitized too, since a pager may pass it on to a terminal.
        ctx.terminal.print(&sanitize(&String::from_utf8_lossy(&bytes)))
    }
}

fn search(
    ctx: &Context,
    memory: &Memory,
    text: &str,
    is_by_meaning: bool,
    as_json: bool,
) -> Result<Exit> {
    let (matches, if_empty) = if is_by_meaning {
        (embeddings::search_memory(ctx, memory, text)?, "the memory is empty")
    } else {
        let pattern = Regex::new(text).map_err(|error| {
            fail(Exit::Usage, format!("`{text}` is not a valid regular expression: {error}"))
        })?;
        (memory.search(&pattern)?, "nothing in the memory matches")
    };
    if as_json {
        ctx.terminal.print_json_lines(matches.iter().map(|line| {
            let path = line.path.display().to_string();
            let mut object = json!({ "path": path, "line": line.line, "text": line.text });
            if let Some(score) = line.score {
                object["score"] = score.into();
            }
            object
        }))?;
    } else {
        let lines = matches.iter().map(|line| {
            format!("{}:{}: {}\n", ctx.paths.display(&line.path), line.line, sanitize(&line.text))
        });
        ctx.terminal.print(&lines.collect::<String>())?;
        if matches.is_empty() {
            ctx.explain_empty(if_empty);
        }
    }
    Ok(if matches.is_empty() { Exit::Failed } else { Exit::Answered })
}

fn log(ctx: &Context, memory: &Memory, as_json: bool) -> Result<()> {
    if let Err(error) = memory_edit::record_outside_change(ctx, memory) {
        ctx.notice(&format!("the memory cannot be recorded as a version: {error:#}"));
    }
    let mut versions = memory.versions()?;
    versions.reverse();
    let current = versions.iter().find(|version| version.aside_reason.is_none());
    let current = current.map(|version| version.id);
    if as_json {
        return ctx.terminal.print_json_lines(versions.iter().map(|version| {
            json!({
                "id": version.id, "time": ctx.clock.to_rfc3339(&version.time), "cause": version.cause.name(),
                "session": version.session, "bytes": version.bytes, "aside": version.aside_reason,
                "untrusted": version.untrusted, "of": version.restored, "current": current == Some(version.id),
            })
        }));
    }
    let columns: [Column<'_, Version>; 5] = [
        ("VERSION", Side::Right, &|version| {
            let mark = if current == Some(version.id) { "*" } else { "" };
            format!("{mark}{}", version.id)
        }),
        ("TIME", Side::Left, &|version| version.time.clone()),
        ("SIZE", Side::Right, &|version| format_size(version.bytes)),
        ("SESSION", Side::Left, &|version| sanitize(version.session.as_deref().unwrap_or("-"))),
        ("CAUSE", Side::Left, &describe_cause),
    ];
    ctx.terminal.print(&format_table(&versions, &columns, None))?;
    if let Some(error) = memory.last_error()? {
        ctx.notice(&format!("the last consolidation failed: {error}"));
    }
    Ok(())
}

fn describe_cause(version: &Version) -> String {
    let cause = match (version.restored, &version.aside_reason) {
        (Some(id), _) => format!("undo to version {id}"),
        (None, Some(why)) => format!("{}, rejected: {why}", version.cause.name()),
        (None, None) => version.cause.name().to_owned(),
    };
    match &version.untrusted {
        Some(content) => format!("{cause}; the session contained untrusted content: {content}"),
        None => cause,
    }
}

fn diff(
    ctx: &Context,
    memory: &Memory,
    from: Option<u64>,
    to: Option<u64>,
    as_json: bool,
) -> Result<()> {
    let current = memory.read()?.unwrap_or_default();
    let from = match from {
        Some(from) => Some(from),
        None => memory_edit::version_before_last_change(memory, &current)?,
    };
    let Some(from) = from else {
        ctx.explain_empty("the memory was never changed");
        return Ok(());
    };
    let old = version_text(memory, from)?;
    let old_name = format!("version {from}");
    let (new, new_name) = match to {
        Some(to) => (version_text(memory, to)?, format!("version {to}")),
        None => (current, "now".to_owned()),
    };
    let text = Diff::new(&String::from_utf8_lossy(&old), &String::from_utf8_lossy(&new))
        .unified_with_header(DIFF_CONTEXT_LINES, &old_name, &new_name);
    if as_json {
        let object = json!({ "from": old_name, "to": new_name, "diff": text });
        ctx.terminal.print_json(&object)
    } else {
        // As in `show`.
        ctx.terminal.print(&sanitize(&text))
    }
}

fn undo(ctx: &Context, memory: &Memory, id: Option<u64>) -> Result<()> {
    let line = match memory_edit::undo(ctx, memory, id)? {
        UndoResult::Restored(version) => format!("restored version {version} of the memory"),
        UndoResult::Unchanged(version) => {
            format!("the memory is already at version {version}")
        }
    };
    ctx.notice(&line);
    Ok(())
}

fn edit(ctx: &Context, memory: &Memory) -> Result<()> {
    if !ctx.terminal.stdout_is_tty || !ctx.terminal.stderr_is_tty {
        let path = memory.path();
        return Err(fail(Exit::Usage, "an editor needs a terminal")
            .with_hint(format!("edit `{}` directly; every change is detected", path.display())));
    }
    let store = ctx.session_store(&ctx.settings()?)?;
    let original = memory_edit::lock(ctx, memory, &store, LOCK_TIMEOUT)?.read_and_record()?;
    let copy = durable_file::create_temp(&original).context("make a copy to edit")?;
    let result = edit_copy(ctx, memory, &store, &original, copy.path());
    let is_edited = || {
        durable_file::read(copy.path()).is_ok_and(|text| text.is_some_and(|text| text != original))
    };
    // The typed text is kept after any error.
    if result.is_err() && is_edited() {
        let (_, path) = copy.keep().context("keep the text")?;
        let path = sanitize(&path.display().to_string());
        ctx.terminal.eprint(&format!("nanobot: your text is in `{path}`"));
    }
    memory_edit::require_applied(memory, result?)
}

fn accept(ctx: &Context, memory: &Memory) -> Result<()> {
    let store = ctx.session_store(&ctx.settings()?)?;
    let locked_memory = memory_edit::lock(ctx, memory, &store, LOCK_TIMEOUT)?;
    ctx.notice(if locked_memory.accept()? {
        "the memory is accepted as yours"
    } else {
        "the memory has no content from outside"
    });
    Ok(())
}

/// Opens the file at `path` in the user's `editor`.
///
/// # Errors
/// The editor cannot be run, or fails: status 1, with `consequence`.
pub(super) fn run_external_editor(editor: &str, path: &Path, consequence: &str) -> Result<()> {
    let result = signal::with_foreground_child(|| process::run_editor(editor, path)).flatten();
    let cause = match result {
        Ok(true) => return Ok(()),
        Ok(false) => format!("`{editor}` failed; {consequence}"),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            format!("there is no program `{editor}`; {consequence}")
        }
        Err(error) => return Err(error).with_context(|| format!("run `{editor}`")),
    };
    let hint = "another editor in `EDITOR`";
    Err(fail(Exit::Failed, cause).with_hint(hint))
}

/// Lets the user edit the copy at `path`, and replaces the memory with it.
fn edit_copy(
    ctx: &Context,
    memory: &Memory,
    store: &SessionStore,
    original: &[u8],
    path: &Path,
) -> Result<UpdateResult> {
    let editor = external_editor(&ctx.env);
    run_external_editor(editor, path, "the memory is unchanged")?;
    let text = durable_file::read(path)?.unwrap_or_default();
    if text == original {
        return Ok(UpdateResult::Applied);
    }
    let locked_memory = memory_edit::lock(ctx, memory, store, LOCK_TIMEOUT)?;
    memory_edit::replace(&locked_memory, original, text, VersionCause::Edit, None)
}
