//! `nanobot memory`: prints the memory and its history, and changes it.

use crate::cli::memory::{ConsolidateArgs, MemoryCommand as Arguments};
use crate::ops::consolidation::consolidator::{
    ConsolidatedChunk, ConsolidationCost, Consolidator, MAX_TRIES,
};
use crate::ops::consolidation::deferred::DeferredConsolidation;
use crate::ops::consolidation::memory_edit::{self, LOCK_TIMEOUT, UndoResult, version_text};
use crate::ops::consolidation::run::{ConsolidationProgress, ConsolidationRun, DueSession};
use crate::ops::context::Context;
use crate::options::turn::TurnOptions;
use crate::repl::editor::external_editor;
use anyhow::{Context as _, Result};
use nanobot_agent::report::columns::{Column, Side, format_table};
use nanobot_agent::report::{Bar, ProgressLevel};
use nanobot_base::diff::Diff;
use nanobot_base::error::{Exit, fail, fail_with_hint};
use nanobot_os::durable_file::{self, format_size};
use nanobot_os::signal;
use nanobot_os::terminal::sanitize;
use nanobot_sandbox::process;
use nanobot_store::memory::{Memory, UpdateResult, Version, VersionCause};
use nanobot_store::session;
use regex::Regex;
use serde_json::json;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

/// Runs `nanobot memory`.
pub fn run(ctx: &Context, arguments: &Arguments) -> Result<Exit> {
    if let Arguments::Consolidate(arguments) = arguments {
        return consolidate(ctx, arguments);
    }
    let memory = memory_edit::open_memory(ctx)?;
    match arguments {
        Arguments::Consolidate(_) => unreachable!("handled above"),
        Arguments::Show { json } => show(ctx, &memory, *json)?,
        Arguments::Search { pattern, json } => return search(ctx, &memory, pattern, *json),
        Arguments::Edit => edit(ctx, &memory)?,
        Arguments::Accept => accept(ctx, &memory)?,
        Arguments::Log { json } => log(ctx, &memory, *json)?,
        Arguments::Diff { from, to, json } => diff(ctx, &memory, (*from, *to), *json)?,
        Arguments::Undo { id } => undo(ctx, &memory, *id)?,
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
        // A failure is stored, and `memory log` and `status` show it. Do not wait for a locked memory: the session is
        // due again after the next turn, and each turn would leave another waiting process.
        drop(deferred.run(ctx, Duration::ZERO, ProgressLevel::Quiet));
        return Ok(Exit::Answered);
    }
    signal::install(None).context("wait for signals")?;
    let mut options = TurnOptions::default();
    options.limits.offline = *offline;
    options.model.no_stream = *no_stream;
    let consolidator = Consolidator::new(ctx, model.as_deref(), options, None)?;
    let mut drain = ConsolidationRun::new(consolidator, *all || session.is_some());
    let due = drain.due_sessions(session.as_deref())?;
    let wait = Duration::from_secs(*wait);
    if due.is_empty() {
        let mut settled = None;
        if !*dry_run {
            drain.finish_interrupted(wait)?;
            // What failed was archived, or its session is gone: nothing will succeed later that would clear the error.
            if session.is_none() {
                settled = drain.forget_error()?;
            }
        }
        ctx.notice(&match settled {
            Some(message) => format!("nothing to consolidate; no longer reported: {message}"),
            None => "nothing to consolidate".to_owned(),
        });
    } else if *dry_run {
        let lines: String = due.iter().map(due_line).collect();
        ctx.terminal.print(&lines)?;
    } else {
        let mut progress = TerminalProgress { ctx, bar: None };
        let done = drain.consolidate_all(&due, wait, &mut progress);
        drop(progress);
        if drain.chunk_count > 1 {
            ctx.notice(&format!("{} in total", describe_cost(&drain.cost)));
        }
        done?;
    }
    Ok(drain.exit())
}

fn due_line(due: &DueSession) -> String {
    let messages = due.next.limit - due.next.from;
    let tries = match due.next.attempts {
        0 => String::new(),
        MAX_TRIES.. => "; to be archived unchanged".into(),
        tries => format!("; tried {tries} of {MAX_TRIES} times"),
    };
    format!("{}: {messages} messages{tries}\n", sanitize(&due.key))
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
        self.bar.iter().for_each(|bar| bar.set_item(key));
    }

    fn end_chunk(
        &mut self,
        key: &str,
        chunk: &ConsolidatedChunk,
        spent: &ConsolidationCost,
    ) -> Result<()> {
        self.bar.iter().for_each(|bar| bar.advance(chunk.message_count));
        let line = format!("{}: {}\n", sanitize(key), describe_chunk(chunk, spent));
        self.ctx.terminal.print(&line)
    }
}

/// Describes a consolidated chunk, for people.
fn describe_chunk(chunk: &ConsolidatedChunk, spent: &ConsolidationCost) -> String {
    let (messages, bytes) = (chunk.message_count, chunk.memory_bytes);
    if chunk.is_raw {
        return format!("{messages} messages archived unchanged, {}", describe_cost(spent));
    }
    let memory = match (&chunk.rejection_reason, bytes.0 == bytes.1) {
        (Some(why), _) => {
            format!("memory unchanged, because {why} (the version is in `memory log`)")
        }
        (None, true) => format!("memory {}", format_size(bytes.1 as u64)),
        (None, false) => {
            format!("memory {}, was {}", format_size(bytes.1 as u64), format_size(bytes.0 as u64))
        }
    };
    format!("{messages} messages, {memory}, {}", describe_cost(spent))
}

fn describe_cost(spent: &ConsolidationCost) -> String {
    let tokens = spent.usage.input + spent.usage.output;
    match spent.cost_usd {
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
        "path": memory.path(), "bytes": bytes.len(), "text": String::from_utf8_lossy(&bytes),
        }))
    } else {
        // A pager may pass it on to a terminal.
        ctx.terminal.print(&sanitize(&String::from_utf8_lossy(&bytes)))
    }
}

fn search(ctx: &Context, memory: &Memory, pattern: &str, as_json: bool) -> Result<Exit> {
    let pattern = Regex::new(pattern).map_err(|error| {
        fail(Exit::Usage, format!("`{pattern}` is not a valid regular expression: {error}"))
    })?;
    let found = memory.search(&pattern)?;
    if as_json {
        ctx.terminal.print_json_lines(found.iter().map(|line| {
            json!({ "path": line.path.display().to_string(), "line": line.line, "text": line.text })
        }))?;
    } else {
        let lines = found.iter().map(|line| {
            format!("{}:{}: {}\n", ctx.paths.display(&line.path), line.line, sanitize(&line.text))
        });
        ctx.terminal.print(&lines.collect::<String>())?;
        if found.is_empty() {
            ctx.explain_empty("nothing in the memory matches");
        }
    }
    Ok(if found.is_empty() { Exit::Failed } else { Exit::Answered })
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
    if let Some(trouble) = memory.last_error()? {
        ctx.notice(&format!("the last consolidation failed: {trouble}"));
    }
    Ok(())
}

fn describe_cause(version: &Version) -> String {
    let cause = match (version.restored, &version.aside_reason) {
        (Some(of), _) => format!("undo to version {of}"),
        (None, Some(why)) => format!("{}, rejected: {why}", version.cause.name()),
        (None, None) => version.cause.name().to_owned(),
    };
    match &version.untrusted {
        Some(what) => format!("{cause}; the session contained untrusted content: {what}"),
        None => cause,
    }
}

fn diff(
    ctx: &Context,
    memory: &Memory,
    (from, to): (Option<u64>, Option<u64>),
    as_json: bool,
) -> Result<()> {
    let now = memory.read()?.unwrap_or_default();
    let (old, new) = match (from, to) {
        (Some(from), Some(to)) => {
            let names = (format!("version {from}"), format!("version {to}"));
            ((names.0, version_text(memory, from)?), (names.1, version_text(memory, to)?))
        }
        (Some(from), None) => {
            ((format!("version {from}"), version_text(memory, from)?), ("now".into(), now))
        }
        (None, _) => match memory_edit::version_before_last_change(memory, &now)? {
            Some(id) => ((format!("version {id}"), version_text(memory, id)?), ("now".into(), now)),
            None => {
                ctx.explain_empty("the memory was never changed");
                return Ok(());
            }
        },
    };
    let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (one, other) = (shown(&old.1), shown(&new.1));
    let text = Diff::new(&one, &other).unified_with_header(3, &old.0, &new.0);
    if as_json {
        let object = json!({ "from": old.0, "to": new.0, "diff": text });
        ctx.terminal.print_json(&object)
    } else {
        ctx.terminal.print_bytes(text.as_bytes())
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
        return Err(fail_with_hint(
            Exit::Usage,
            "an editor needs a terminal",
            format!("edit `{}` directly; every change is detected", path.display()),
        ));
    }
    let place = ctx.session_store(&ctx.settings()?)?;
    let original = memory_edit::lock(ctx, memory, &place, LOCK_TIMEOUT)?.read_and_record()?;
    let copy = durable_file::create_temp(&original).context("make a copy to edit")?;
    let edited = edit_copy(ctx, memory, &place, &original, copy.path());
    let is_new = || {
        durable_file::read(copy.path()).is_ok_and(|text| text.is_some_and(|text| text != original))
    };
    // Keep the typed text, whatever the error.
    if edited.is_err() && is_new() {
        let (_, path) = copy.keep().context("keep the text")?;
        let path = sanitize(&path.display().to_string());
        ctx.terminal.eprint(&format!("nanobot: your text is in `{path}`"));
    }
    memory_edit::require_applied(memory, edited?)
}

fn accept(ctx: &Context, memory: &Memory) -> Result<()> {
    let sessions = ctx.session_store(&ctx.settings()?)?;
    let locked = memory_edit::lock(ctx, memory, &sessions, LOCK_TIMEOUT)?;
    ctx.notice(if locked.accept()? {
        "the memory is accepted as yours"
    } else {
        "the memory has no content from outside"
    });
    Ok(())
}

/// Opens the file at `path` in the user's `editor`.
///
/// # Errors
/// It cannot be run, or fails: status 1, with `consequence`.
pub(super) fn run_external_editor(editor: &str, path: &Path, consequence: &str) -> Result<()> {
    let done =
        signal::with_foreground_child(|| process::run_editor(editor, path)).and_then(|done| done);
    let cause = match done {
        Ok(true) => return Ok(()),
        Ok(false) => format!("`{editor}` failed; {consequence}"),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            format!("there is no program `{editor}`; {consequence}")
        }
        Err(error) => return Err(error).with_context(|| format!("run `{editor}`")),
    };
    let hint = "another editor in `EDITOR`";
    Err(fail_with_hint(Exit::Failed, cause, hint))
}

/// Lets the user edit the copy at `path`, and replaces the memory with it.
fn edit_copy(
    ctx: &Context,
    memory: &Memory,
    place: &session::SessionStore,
    original: &[u8],
    path: &Path,
) -> Result<UpdateResult> {
    let editor = external_editor(&ctx.env);
    run_external_editor(editor, path, "the memory is unchanged")?;
    let text = durable_file::read(path)?.unwrap_or_default();
    if text == original {
        return Ok(UpdateResult::Applied);
    }
    let locked = memory_edit::lock(ctx, memory, place, LOCK_TIMEOUT)?;
    memory_edit::replace(&locked, (original, text), VersionCause::Edit, None)
}
