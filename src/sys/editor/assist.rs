//! What `rustyline` asks of us while it edits: completion, hints, and what a few keys do.

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

/// How many candidates are shown at most: more would be searched and not read.
const MOST: usize = 200;

pub(super) struct Assist {
    /// `None` at questions.
    pub(super) known: Option<Box<dyn CompletionSource>>,
    /// Whether hints can be told from what is typed.
    pub(super) color: bool,
    /// A backslash is to become a newline: no key's command does that alone, and one candidate for it is completed at once.
    pub(super) breaks: Arc<AtomicBool>,
}

impl Helper for Assist {}

impl Validator for Assist {}

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
        let Some(known) = &self.known else {
            return Ok((cursor, Vec::new()));
        };
        let (start, mut candidates) = known.complete(line, cursor);
        candidates.truncate(MOST);
        Ok((start, choices(candidates)))
    }
}

/// The candidates, with what they are in a column of its own.
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

/// Dim words after the line; the right arrow takes those that are not names of what is still to be said.
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
        let known = self.known.as_ref().filter(|_| self.color)?;
        known
            .hint(line, cursor)
            .map(|hint| Dim(harmless(&hint).replace('\n', " ")))
    }
}

impl Highlighter for Assist {
    fn highlight_hint<'h>(&self, hint: &'h str) -> Cow<'h, str> {
        console::style(hint).dim().to_string().into()
    }
}

/// Enter: another line where the entry goes on.
pub(super) struct Enter {
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

/// Entries of the history, to tell what came from it from what was typed.
pub(super) type Entries = Arc<Mutex<HashSet<String>>>;

/// Up and Down: through the history by what was typed before the cursor, where that is something.
pub(super) struct Search {
    pub(super) entries: Entries,
    pub(super) back: bool,
}

impl ConditionalEventHandler for Search {
    fn handle(&self, _: &Event, _: RepeatCount, _: bool, context: &EventContext) -> Option<Cmd> {
        let (line, cursor) = (context.line(), context.pos());
        // In a text of many lines the arrows move; one that was taken as a whole is passed as a whole.
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
