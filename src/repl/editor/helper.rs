//! The callbacks of `rustyline`: completion, hints, and the actions of a few keys.

use super::line::{Candidate, CompletionSource, LineKey};
use super::multiline::{Continuation, find_continuation};
use super::reflow::WidthTracker;
use nanobot_os::terminal::{sanitize, stderr_width};
use parking_lot::Mutex;
use rustyline::completion::{self, Completer};
use rustyline::highlight::{CmdKind, Highlighter};
use rustyline::hint::{Hint, Hinter};
use rustyline::validate::Validator;
use rustyline::{Cmd, ConditionalEventHandler, Context, Event, EventContext, Helper, RepeatCount};
use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use unicode_width::UnicodeWidthStr;

/// Maximum number of candidates shown; longer lists are of no use to a reader.
const MAX_CANDIDATES: usize = 200;

/// The helper that `rustyline` calls.
pub(super) struct EditorHelper {
    /// `None` for questions.
    pub(super) completions: Option<Box<dyn CompletionSource>>,
    /// True if colours are allowed, so that hints differ from input.
    pub(super) color: bool,
    /// True if the next completion must replace a backslash by a newline. No single key command does that, but a
    /// completion with one candidate is applied at once.
    pub(super) inserts_newline: Arc<AtomicBool>,
    pub(super) width: WidthTracker,
}

impl Helper for EditorHelper {}

impl Validator for EditorHelper {}

/// A candidate in the form that `rustyline` takes.
pub(super) struct FormattedCandidate {
    text: String,
    label: String,
}

impl completion::Candidate for FormattedCandidate {
    fn display(&self) -> &str {
        &self.label
    }

    fn replacement(&self) -> &str {
        &self.text
    }
}

impl Completer for EditorHelper {
    type Candidate = FormattedCandidate;

    fn complete(
        &self,
        line: &str,
        cursor: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<FormattedCandidate>)> {
        if self.inserts_newline.swap(false, Ordering::SeqCst) {
            let newline = FormattedCandidate { text: "\n".to_owned(), label: "\n".to_owned() };
            return Ok((cursor.saturating_sub(1), vec![newline]));
        }
        let Some(source) = &self.completions else {
            return Ok((cursor, Vec::new()));
        };
        let (start, mut candidates) = source.complete(line, cursor);
        candidates.truncate(MAX_CANDIDATES);
        Ok((start, format_candidates(candidates)))
    }
}

/// Formats the candidates, with their descriptions in a second column.
fn format_candidates(candidates: Vec<Candidate>) -> Vec<FormattedCandidate> {
    let name = |candidate: &Candidate| sanitize(candidate.text.trim_end());
    let max_width = candidates.iter().map(|candidate| name(candidate).width()).max().unwrap_or(0);
    // The list must not wrap, as `rustyline` counts its rows.
    let columns = stderr_width().saturating_sub(3);
    let format = |candidate: Candidate| {
        let mut label = name(&candidate);
        if !candidate.description.is_empty() {
            label.push_str(&" ".repeat(max_width - label.width() + 2));
            label.push_str(&sanitize(&candidate.description).replace('\n', " "));
        }
        FormattedCandidate {
            text: candidate.text,
            label: console::truncate_str(&label, columns, "…").into_owned(),
        }
    };
    candidates.into_iter().map(format).collect()
}

/// A dim hint after the line. The right arrow accepts its first word, unless the hint starts with a space and so only
/// names arguments that are still to be typed.
pub(super) struct DimHint(String);

impl Hint for DimHint {
    fn display(&self) -> &str {
        &self.0
    }

    fn completion(&self) -> Option<&str> {
        self.0.split(' ').next().filter(|word| !word.is_empty())
    }
}

impl Hinter for EditorHelper {
    type Hint = DimHint;

    fn hint(&self, line: &str, cursor: usize, _: &Context<'_>) -> Option<DimHint> {
        // Called before each time that the line is drawn.
        self.width.follow(&line[..cursor]);
        if !self.color {
            return None;
        }
        let hint = self.completions.as_ref()?.hint(line, cursor)?;
        Some(DimHint(sanitize(&hint).replace('\n', " ")))
    }
}

impl Highlighter for EditorHelper {
    fn highlight_char(&self, line: &str, cursor: usize, kind: CmdKind) -> bool {
        !matches!(kind, CmdKind::MoveCursor) && self.width.is_wrapped(&line[..cursor])
    }

    fn highlight_hint<'h>(&self, hint: &'h str) -> Cow<'h, str> {
        console::style(hint).dim().to_string().into()
    }
}

/// The Enter key: starts another line if the entry continues.
pub(super) struct EnterKey {
    /// Shared with [`EditorHelper::inserts_newline`].
    pub(super) inserts_newline: Arc<AtomicBool>,
}

impl ConditionalEventHandler for EnterKey {
    fn handle(&self, _: &Event, _: RepeatCount, _: bool, context: &EventContext) -> Option<Cmd> {
        match find_continuation(context.line())? {
            Continuation::OpenCodeFence => Some(Cmd::Newline),
            Continuation::Backslash if context.pos() == context.line().len() => {
                self.inserts_newline.store(true, Ordering::SeqCst);
                Some(Cmd::Complete)
            }
            Continuation::Backslash => None,
        }
    }
}

/// The key that has ended the line, if it was not Enter.
pub(super) type PressedKey<K> = Arc<Mutex<Option<K>>>;

/// A key that ends the line: one with an effect of its own, or Escape in an answer.
pub(super) struct AcceptKey<K> {
    pub(super) key: K,
    pub(super) pressed: PressedKey<K>,
}

impl<K: Copy + Send + Sync> ConditionalEventHandler for AcceptKey<K> {
    fn handle(&self, _: &Event, _: RepeatCount, _: bool, _: &EventContext) -> Option<Cmd> {
        *self.pressed.lock() = Some(self.key);
        Some(Cmd::AcceptLine)
    }
}

/// Ctrl-C: after text it ends the line, whose text is then known, unlike that of an interrupted one.
pub(super) struct DiscardKey {
    pub(super) pressed: PressedKey<LineKey>,
}

impl ConditionalEventHandler for DiscardKey {
    fn handle(&self, _: &Event, _: RepeatCount, _: bool, context: &EventContext) -> Option<Cmd> {
        if context.line().is_empty() {
            return None;
        }
        *self.pressed.lock() = Some(LineKey::Discard);
        Some(Cmd::AcceptLine)
    }
}

/// Two Escape keys within this time have a meaning.
const DOUBLE_ESCAPE_WINDOW: Duration = Duration::from_millis(1500);

/// The Escape key where nothing is typed: the second one ends the line.
pub(super) struct DoubleEscapeKey {
    pub(super) pressed: PressedKey<LineKey>,
    pub(super) last: Mutex<Option<Instant>>,
}

impl ConditionalEventHandler for DoubleEscapeKey {
    fn handle(&self, _: &Event, _: RepeatCount, _: bool, context: &EventContext) -> Option<Cmd> {
        let mut last = self.last.lock();
        let is_double = last.take().is_some_and(|time| time.elapsed() < DOUBLE_ESCAPE_WINDOW);
        if !context.line().is_empty() {
            return None;
        }
        if !is_double {
            *last = Some(Instant::now());
            return None;
        }
        *self.pressed.lock() = Some(LineKey::Rewind);
        Some(Cmd::AcceptLine)
    }
}

/// The entries of the history, with marks for long pastes, to distinguish recalled text from typed text.
pub(super) type HistoryEntries = Arc<Mutex<HashSet<String>>>;

/// The Up and Down keys: search the history for entries that start with the text before the cursor, if there is any.
pub(super) struct HistorySearchKey {
    /// All entries of the history.
    pub(super) entries: HistoryEntries,
    /// True for Up, false for Down.
    pub(super) is_backward: bool,
}

impl ConditionalEventHandler for HistorySearchKey {
    fn handle(&self, _: &Event, _: RepeatCount, _: bool, context: &EventContext) -> Option<Cmd> {
        let (line, cursor) = (context.line(), context.pos());
        // In multi-line text the arrows move the cursor. A recalled entry is replaced as a whole by the next one.
        let entries = self.entries.lock();
        let is_whole = cursor == line.len() && entries.contains(line);
        if cursor == 0 || line.contains('\n') || is_whole {
            return None;
        }
        if self.is_backward {
            Some(Cmd::HistorySearchBackward)
        } else {
            (cursor < line.len()).then_some(Cmd::HistorySearchForward)
        }
    }
}
