//! `nanobot memory`: what is remembered, and what it was.

use crate::cli::memory::{Consolidate, Memory as Arguments};
use crate::diff::Diff;
use crate::error::{Exit, Stop, fail, fail_hint};
use crate::memory::{Cause, Change, Done, Held, Memory, Version};
use crate::ops::consolidation::DeferredConsolidation;
use crate::ops::consolidation::{self as work, Made, Scribe, Spent, Step, TRIES, open_memory};
use crate::ops::context::Context;
use crate::ops::turn_options::TurnOptions;
use crate::report::columns::{Side, aligned};
use crate::report::{Bar, Level, Report};
use crate::session::{self, consolidation};
use crate::sys::store::{self, size_in_words};
use crate::sys::terminal::harmless;
use crate::sys::{process, signal};
use anyhow::{Context as _, Result};
use regex::Regex;
use serde_json::json;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

/// How long a change by hand waits for another one, which may be asking a model.
const PATIENCE: Duration = Duration::from_secs(600);

pub fn run(ctx: &Context, arguments: &Arguments) -> Result<Exit> {
    if let Arguments::Consolidate(arguments) = arguments {
        return consolidate(ctx, arguments);
    }
    let memory = open_memory(ctx)?;
    match arguments {
        Arguments::Consolidate(_) => unreachable!("it was looked at before"),
        Arguments::Show => ctx
            .terminal
            .print_bytes(&memory.read()?.unwrap_or_default())?,
        Arguments::Search { pattern, json } => return search(ctx, &memory, pattern, *json),
        Arguments::Edit => edit(ctx, &memory)?,
        Arguments::Log { json } => log(ctx, &memory, *json)?,
        Arguments::Diff { from, to } => diff(ctx, &memory, *from, *to)?,
        Arguments::Undo { id } => undo(ctx, &memory, *id)?,
    }
    Ok(Exit::Answered)
}

/// Take the memory's lock, and finish what was left.
fn hold(ctx: &Context, memory: &Memory, place: &session::Place, wait: Duration) -> Result<Held> {
    let mut advance = |key: &str, from, to| consolidation::advance(place, key, from, to).map(drop);
    let mut busy = || ctx.notice("waiting for another run that is changing the memory");
    memory.hold(wait, &mut busy, &mut advance)
}

fn consolidate(ctx: &Context, arguments: &Consolidate) -> Result<Exit> {
    let Consolidate {
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
        let later = DeferredConsolidation {
            key: session.clone().unwrap_or_default(),
            model: model.clone(),
            offline: *offline,
            no_stream: *no_stream,
            context: *context,
            max_cost: *max_cost,
            max_tokens: *max_total_tokens,
        };
        // There is nobody to tell; what went wrong is written down where `memory log` and `status` find it.
        // Where another one is at it, this is due again after the next turn: else each turn would leave one that waits.
        drop(later.make(ctx, Duration::ZERO, Level::Quiet));
        return Ok(Exit::Answered);
    }
    signal::arm(None).context("wait for signals")?;
    let asking = TurnOptions {
        offline: *offline,
        no_stream: *no_stream,
        ..TurnOptions::default()
    };
    let scribe = Scribe::new(ctx, model.as_deref(), asking, None)?;
    let mut failures = Failures::default();
    let keys = match session {
        // One that is not there is a mistake.
        Some(key) => {
            session::look(&scribe.place, key)?;
            vec![key.clone()]
        }
        None => all_keys(ctx, &scribe.place, &mut failures)?,
    };
    let even_if_not_due = *all || session.is_some();
    let mut due = Vec::new();
    for key in keys {
        match consolidation::next(&scribe.place, &key, &scribe.terms, even_if_not_due) {
            Ok(next) => due.extend(next.map(|next| (key, next))),
            Err(error) => drop(failures.add(ctx, error)?),
        }
    }
    if due.is_empty() {
        if !*dry_run && scribe.memory.is_unfinished() {
            let wait = Duration::from_secs(*wait);
            drop(hold(ctx, &scribe.memory, &scribe.place, wait)?);
        }
        ctx.notice("nothing is to be consolidated");
        return Ok(failures.exit());
    }
    if *dry_run {
        let line = |(key, next): &(String, consolidation::Next)| {
            let messages = next.limit - next.from;
            let tries = match next.tries {
                0 => String::new(),
                TRIES.. => "; they are archived as they are".into(),
                tries => format!("; tried {tries} of {TRIES} times"),
            };
            format!("{}: {messages} messages{tries}\n", harmless(key))
        };
        ctx.terminal
            .print(&due.iter().map(line).collect::<String>())?;
        return Ok(failures.exit());
    }
    let held = hold(
        ctx,
        &scribe.memory,
        &scribe.place,
        Duration::from_secs(*wait),
    )?;
    let mut report = work::quiet_report(
        ctx,
        if ctx.quiet {
            Level::Quiet
        } else {
            Level::Notices
        },
    );
    let total: usize = due.iter().map(|(_, next)| next.limit - next.from).sum();
    let bar = Bar::new(ctx.terminal, ctx.quiet, total);
    let mut spent = Spent::default();
    let mut pieces = 0;
    let out = (&mut spent, &mut report, &bar);
    let keys: Vec<&str> = due.iter().map(|(key, _)| key.as_str()).collect();
    let all = even_if_not_due;
    let done = work_off_all(
        &scribe,
        &held,
        &keys,
        all,
        &mut failures,
        (&mut pieces, out),
    );
    drop(bar);
    if pieces > 1 {
        ctx.notice(&format!("{} in all", price(&spent)));
    }
    done?;
    Ok(failures.exit())
}

/// Every conversation that this release may write to.
fn all_keys(ctx: &Context, place: &session::Place, failures: &mut Failures) -> Result<Vec<String>> {
    let listing = session::list(place)?;
    for error in listing.failures {
        failures.add(ctx, error)?;
    }
    let mut keys = Vec::new();
    for session in listing.sessions {
        match session.is_newer {
            true => ctx.notice(&format!(
                "`{}` is left as it is, since a newer nanobot wrote it",
                harmless(&session.key)
            )),
            false => keys.push(session.key),
        }
    }
    Ok(keys)
}

/// What went wrong with some conversations, which is no reason to leave the others: the first of it.
#[derive(Default)]
struct Failures(Option<Exit>);

impl Failures {
    /// Tell of one.
    ///
    /// # Errors
    /// The run is to end.
    fn add(&mut self, ctx: &Context, error: anyhow::Error) -> Result<Exit> {
        if error.is::<Stop>() {
            return Err(error);
        }
        let exit = crate::ops::context::report_error(&error, ctx.terminal);
        self.0.get_or_insert(exit);
        Ok(exit)
    }

    fn exit(&self) -> Exit {
        self.0.unwrap_or(Exit::Answered)
    }
}

/// Make memory of each of `keys`, until it is plain that it will go no better with the next one.
fn work_off_all(
    scribe: &Scribe<'_>,
    held: &Held,
    keys: &[&str],
    all: bool,
    failures: &mut Failures,
    (pieces, (total, report, bar)): Work<'_>,
) -> Result<()> {
    let mut outages = 0;
    for (number, key) in keys.iter().enumerate() {
        let out = (&mut *total, &mut *report, bar);
        let Err(error) = work_off(scribe, held, key, all, (&mut *pieces, out)) else {
            outages = 0;
            continue;
        };
        let exit = failures.add(scribe.ctx, error)?;
        // One server may fail over one conversation.
        outages = match exit {
            Exit::Unavailable | Exit::TryAgain => outages + 1,
            _ => 0,
        };
        let is_hopeless = matches!(exit, Exit::Budget | Exit::Refused | Exit::Config);
        let left = keys.len() - number - 1;
        if left > 0 && (is_hopeless || outages > 1) {
            let words = format!("conversations left for another time: {left}");
            scribe.ctx.notice(&words);
            break;
        }
    }
    Ok(())
}

/// What is counted of the work, and where it is told.
type Work<'a> = (&'a mut usize, (&'a mut Spent, &'a mut Report, &'a Bar));

/// Make memory of one conversation, piece by piece, until there is nothing left to do; `pieces` are counted.
fn work_off(
    scribe: &Scribe<'_>,
    held: &Held,
    key: &str,
    all: bool,
    (pieces, (total, report, bar)): Work<'_>,
) -> Result<()> {
    let ctx = scribe.ctx;
    bar.at(key);
    loop {
        signal::check()?;
        let mut spent = Spent::default();
        let step = scribe.step(held, key, all, &mut spent, report);
        total.join(&spent);
        match step? {
            Step::Idle => return Ok(()),
            Step::Failed(words) => {
                let words = format!("{}: {words}; it is tried again", harmless(key));
                ctx.notice(&words);
            }
            Step::Made(made) => {
                *pieces += 1;
                bar.add(made.messages);
                let line = format!("{}: {}\n", harmless(key), told(&made, &spent));
                ctx.terminal.print(&line)?;
            }
        }
    }
}

/// What was made of a piece, in words.
fn told(made: &Made, spent: &Spent) -> String {
    let Made {
        messages,
        raw,
        bytes,
        aside,
    } = made;
    if *raw {
        return format!("{messages} messages archived as they are, {}", price(spent));
    }
    let memory = match (aside, bytes.0 == bytes.1) {
        (Some(why), _) => format!("memory unchanged, since {why} (`memory log` has the version)"),
        (None, true) => format!("memory {}", size_in_words(bytes.1 as u64)),
        (None, false) => format!(
            "memory {}, was {}",
            size_in_words(bytes.1 as u64),
            size_in_words(bytes.0 as u64)
        ),
    };
    format!("{messages} messages, {memory}, {}", price(spent))
}

fn price(spent: &Spent) -> String {
    let tokens = spent.usage.input + spent.usage.output;
    match spent.usd {
        Some(usd) => format!("{tokens} tokens, ${}", crate::ledger::rounded(usd)),
        None => format!("{tokens} tokens"),
    }
}

fn search(ctx: &Context, memory: &Memory, pattern: &str, as_json: bool) -> Result<Exit> {
    let pattern = Regex::new(pattern).map_err(|error| {
        fail(
            Exit::Usage,
            format!("`{pattern}` is no regular expression: {error}"),
        )
    })?;
    let found = memory.search(&pattern)?;
    let mut text = String::new();
    for line in &found {
        let path = line.path.display().to_string();
        text.push_str(&match as_json {
            true => format!(
                "{}\n",
                json!({ "path": path, "line": line.line, "text": line.text })
            ),
            false => format!(
                "{}:{}: {}\n",
                ctx.paths.display(&line.path),
                line.line,
                line.text
            ),
        });
    }
    match as_json {
        true => ctx.terminal.print_json_text(&text)?,
        false => ctx.terminal.print(&text)?,
    }
    Ok(if found.is_empty() {
        Exit::Failed
    } else {
        Exit::Answered
    })
}

fn log(ctx: &Context, memory: &Memory, as_json: bool) -> Result<()> {
    let versions = memory.versions()?;
    let current = versions
        .iter()
        .rev()
        .find(|version| version.aside.is_none());
    let current = current.map(|version| version.id);
    if as_json {
        let line = |version: &Version| {
            let Version {
                id,
                time,
                cause,
                session,
                bytes,
                aside,
                untrusted,
                of,
                parent: _,
            } = version;
            let line = json!({ "id": id, "time": time, "cause": cause.name(), "session": session, "bytes": bytes,
                               "aside": aside, "untrusted": untrusted, "of": of, "current": current == Some(*id) });
            format!("{line}\n")
        };
        return ctx
            .terminal
            .print_json_text(&versions.iter().rev().map(line).collect::<String>());
    }
    let row = |version: &Version| {
        let cause = match (version.of, &version.aside) {
            (Some(of), _) => format!("undo, as version {of}"),
            (None, Some(why)) => format!("{}, kept aside: {why}", version.cause.name()),
            (None, None) => version.cause.name().to_owned(),
        };
        let cause = match &version.untrusted {
            Some(what) => format!("{cause}; the conversation held text of strangers: {what}"),
            None => cause,
        };
        let mark = if current == Some(version.id) { "*" } else { "" };
        vec![
            format!("{mark}{}", version.id),
            version.time.clone(),
            size_in_words(version.bytes),
            harmless(version.session.as_deref().unwrap_or("-")),
            cause,
        ]
    };
    let rows: Vec<Vec<String>> = versions.iter().rev().map(row).collect();
    let columns = [
        ("VERSION", Side::Right),
        ("TIME", Side::Left),
        ("SIZE", Side::Right),
        ("SESSION", Side::Left),
        ("CAUSE", Side::Left),
    ];
    let lines = aligned(&columns, &rows).into_iter();
    ctx.terminal
        .print(&lines.map(|line| format!("{line}\n")).collect::<String>())?;
    if let Some(trouble) = memory.trouble()? {
        ctx.notice(&format!("the last consolidation failed: {trouble}"));
    }
    Ok(())
}

/// The text of a version.
fn text(memory: &Memory, id: u64) -> Result<Vec<u8>> {
    let known = memory.versions()?.iter().any(|version| version.id == id);
    let text = if known { memory.version(id)? } else { None };
    text.ok_or_else(|| {
        fail_hint(
            Exit::NoInput,
            format!("there is no version {id} of the memory"),
            "nanobot memory log",
        )
    })
}

fn diff(ctx: &Context, memory: &Memory, from: Option<u64>, to: Option<u64>) -> Result<()> {
    let now = memory.read()?.unwrap_or_default();
    let (old, new) = match (from, to) {
        (Some(from), Some(to)) => {
            let names = (format!("version {from}"), format!("version {to}"));
            ((names.0, text(memory, from)?), (names.1, text(memory, to)?))
        }
        (Some(from), None) => (
            (format!("version {from}"), text(memory, from)?),
            ("now".into(), now),
        ),
        (None, _) => match last_change(memory, &now)? {
            Some(id) => (
                (format!("version {id}"), text(memory, id)?),
                ("now".into(), now),
            ),
            None => return Ok(()),
        },
    };
    let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (one, other) = (shown(&old.1), shown(&new.1));
    let text = Diff::between(&one, &other).titled(3, &old.0, &new.0);
    ctx.terminal.print_bytes(text.as_bytes())
}

/// The version that the last change was made to: that in force where somebody has written since, else the one before it.
fn last_change(memory: &Memory, now: &[u8]) -> Result<Option<u64>> {
    let versions = memory.versions()?;
    let mut in_force = versions
        .iter()
        .rev()
        .filter(|version| version.aside.is_none());
    let Some(last) = in_force.next() else {
        return Ok(None);
    };
    let is_known = memory.version(last.id)?.as_deref() == Some(now);
    Ok(if is_known {
        in_force.next()
    } else {
        Some(last)
    }
    .map(|version| version.id))
}

fn undo(ctx: &Context, memory: &Memory, id: Option<u64>) -> Result<()> {
    let place = ctx.session_place(&ctx.settings()?)?;
    let held = hold(ctx, memory, &place, PATIENCE)?;
    let seen = held.look()?;
    let id = match id {
        Some(id) => id,
        None => held.previous()?.map(|version| version.id).ok_or_else(|| {
            fail_hint(
                Exit::NoInput,
                "there is no version of the memory before this one",
                "nanobot memory log",
            )
        })?,
    };
    let versions = memory.versions()?;
    let found = versions.iter().find(|version| version.id == id);
    // An undo stands for the version that it brought back.
    let of = found.map_or(id, Version::position);
    let text = text(memory, id)?;
    if text == seen {
        ctx.notice(&format!("the memory is that of version {of} already"));
        return Ok(());
    }
    settle(memory, change(&held, (&seen, text), Cause::Undo, Some(of))?)?;
    ctx.notice(&format!("the memory is that of version {of} again"));
    Ok(())
}

fn edit(ctx: &Context, memory: &Memory) -> Result<()> {
    if !ctx.terminal.out || !ctx.terminal.err {
        let path = memory.path();
        return Err(fail_hint(
            Exit::Usage,
            "an editor needs a terminal",
            format!(
                "change `{}` by other means; every change is noticed",
                path.display()
            ),
        ));
    }
    let place = ctx.session_place(&ctx.settings()?)?;
    let seen = hold(ctx, memory, &place, PATIENCE)?.look()?;
    let copy = store::temporary(&seen).context("make a copy to edit")?;
    let edited = edit_copy(ctx, memory, &place, &seen, copy.path());
    let is_new =
        || store::read(copy.path()).is_ok_and(|text| text.is_some_and(|text| text != seen));
    // What was typed is not lost, whatever went wrong then.
    if edited.is_err() && is_new() {
        let (_, path) = copy.keep().context("keep the text")?;
        let path = harmless(&path.display().to_string());
        ctx.terminal
            .complain(&format!("nanobot: your text is in `{path}`"));
    }
    settle(memory, edited?)
}

/// Let the copy at `path` be edited, and put it in the place of the memory.
fn edit_copy(
    ctx: &Context,
    memory: &Memory,
    place: &session::Place,
    seen: &[u8],
    path: &Path,
) -> Result<Done> {
    let editor = ["VISUAL", "EDITOR"]
        .iter()
        .find_map(|name| ctx.env.get(name))
        .unwrap_or("vi");
    let what = || format!("run `{editor}`");
    let done = signal::left_to_another(|| process::edit(editor, path)).and_then(|done| done);
    let done = match done {
        Ok(done) => done,
        Err(error) if error.kind() == ErrorKind::NotFound => false,
        Err(error) => return Err(error).with_context(what),
    };
    if !done {
        return Err(fail_hint(
            Exit::Failed,
            format!("`{editor}` failed, and the memory is as it was"),
            "another editor in `EDITOR`",
        ));
    }
    let text = store::read(path)?.unwrap_or_default();
    if text == seen {
        return Ok(Done::All);
    }
    let held = hold(ctx, memory, place, PATIENCE)?;
    change(&held, (seen, text), Cause::Edit, None)
}

/// Put a text in the place of the memory.
fn change(
    held: &Held,
    (seen, text): (&[u8], Vec<u8>),
    cause: Cause,
    of: Option<u64>,
) -> Result<Done> {
    let change = Change {
        memory: Some(text),
        of,
        ..Change::default()
    };
    held.apply(seen, cause, change, &mut |_, _, _| Ok(()))
}

/// # Errors
/// Somebody else changed the memory meanwhile, and the text is kept aside.
fn settle(memory: &Memory, done: Done) -> Result<()> {
    if done == Done::All {
        return Ok(());
    }
    let id = memory.versions()?.last().map_or(0, |version| version.id);
    Err(fail_hint(
        Exit::TryAgain,
        format!("the memory was changed meanwhile; your text is version {id}"),
        format!("nanobot memory diff {id}"),
    ))
}
