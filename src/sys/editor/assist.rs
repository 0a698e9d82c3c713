//! The callbacks of `rustyline`: completion, hints, and the actions of a few keys.

use super::completion::{Candidate, CompletionSource};
use super::entry::{GoesOn, goes_on};
use crate::sys::sync::IgnorePoison;
use crate::sys::terminal::harmless;
use rustyline::completion::{Candidate as Shown, Completer};
use rustyline::highlight::Highlighter;
use rustyline::hint::{Hint, Hinter};
use rustyline::validate::Validator;
use rustyline::{Cmd, ConditionalEventHandler, Context, Event, EventContext, Helper, RepeatCount};
use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Maximum number of candidates shown; longer lists are of no use to a reader.
const MOST: usize = 200;

/// The helper that `rustyline` calls.
pub(super) struct Assist {
    /// `None` for questions.
    pub(super) known: Option<Box<dyn CompletionSource>>,
    /// True if colours are allowed, so that hints differ from input.
    pub(super) color: bool,
    /// True if the next completion must replace a backslash by a newline. No single key command does that, but a
    /// completion with one candidate is applied at once.
    pub(super) breaks: Arc<AtomicBool>,
}

impl Helper for Assist {}

impl Validator for Assist {}

/// A candidate in the form that `rustyline` takes.
pub(super) struct Choice {
    text: String,
    shown: String,
}

impl Shown for Choice {
    fn display(&self) -> &str {
        &self.shown
    }

    fn replacement(&self) -> &str {
        &self.text
    }
}

impl Completer for Assist {
    type Candidate = Choice;

    fn complete(
        &self,
        line: &str,
        cursor: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Choice>)> {
        if self.breaks.swap(false, Ordering::SeqCst) {
            let newline = || "\n".to_owned();
            let choice = Choice {
                text: newline(),
                shown: newline(),
            };
            return Ok((cursor.saturating_sub(1), vec![choice]));
        }
        let Some(source) = &self.known else {
            return Ok((cursor, Vec::new()));
        };
        let (start, mut candidates) = source.complete(line, cursor);
        candidates.truncate(MOST);
        Ok((start, choices(candidates)))
    }
}

/// Formats the candidates, with their descriptions in a second column.
fn choices(candidates: Vec<Candidate>) -> Vec<Choice> {
    let name = |candidate: &Candidate| harmless(candidate.text.trim_end());
    let widths = candidates
        .iter()
        .map(|one| unicode_width::UnicodeWidthStr::width(name(one).as_str()));
    let widest = widths.max().unwrap_or(0);
    let choice = |candidate: Candidate| {
        let mut shown = name(&candidate);
        if !candidate.about.is_empty() {
            let width = unicode_width::UnicodeWidthStr::width(shown.as_str());
            shown.push_str(&" ".repeat(widest - width + 2));
            shown.push_str(&harmless(&candidate.about).replace('\n', " "));
        }
        Choice {
            text: candidate.text,
            shown,
        }
    };
    candidates.into_iter().map(choice).collect()
}

/// A dim hint after the line. The right arrow accepts its first word, unless the hint starts with a space and so only
/// names arguments that are still to be typed.
pub(super) struct Dim(String);

impl Hint for Dim {
    fn display(&self) -> &str {
        &self.0
    }

    fn completion(&self) -> Option<&str> {
        self.0.split(' ').next().filter(|word| !word.is_empty())
    }
}

impl Hinter for Assist {
    type Hint = Dim;

    fn hint(&self, line: &str, cursor: usize, _: &Context<'_>) -> Option<Dim> {
        let source = self.known.as_ref().filter(|_| self.color)?;
        source
            .hint(line, cursor)
            .map(|hint| Dim(harmless(&hint).replace('\n', " ")))
    }
}

impl Highlighter for Assist {
    fn highlight_hint<'h>(&self, hint: &'h str) -> Cow<'h, str> {
        console::style(hint).dim().to_string().into()
    }
}

/// The Enter key: starts another line if the entry continues.
pub(super) struct Enter {
    /// Shared with [`EditorHelper::inserts_newline`].
    pub(super) breaks: Arc<AtomicBool>,
}

impl ConditionalEventHandler for Enter {
    fn handle(&self, _: &Event, _: RepeatCount, _: bool, context: &EventContext) -> Option<Cmd> {
        match goes_on(context.line())? {
            GoesOn::Fence => Some(Cmd::Newline),
            GoesOn::Backslash if context.pos() == context.line().len() => {
                self.breaks.store(true, Ordering::SeqCst);
                Some(Cmd::Complete)
            }
            GoesOn::Backslash => None,
        }
    }
}

/// The entries of the history, to distinguish recalled text from typed text.
pub(super) type Entries = Arc<Mutex<HashSet<String>>>;

/// The Up and Down keys: search the history for entries that start with the text before the cursor, if there is any.
pub(super) struct Search {
    /// All entries of the history.
    pub(super) entries: Entries,
    /// True for Up, false for Down.
    pub(super) back: bool,
}

impl ConditionalEventHandler for Search {
    fn handle(&self, _: &Event, _: RepeatCount, _: bool, context: &EventContext) -> Option<Cmd> {
        let (line, cursor) = (context.line(), context.pos());
        // In multi-line text the arrows move the cursor. A recalled entry is replaced as a whole by the next one.
        let entries = self.entries.lock().ignore_poison();
        let is_whole = cursor == line.len() && entries.contains(line);
        if cursor == 0 || line.contains('\n') || is_whole {
            return None;
        }
        match self.back {
            true => Some(Cmd::HistorySearchBackward),
            false if cursor < line.len() => Some(Cmd::HistorySearchForward),
            false => None,
        }
    }
}
