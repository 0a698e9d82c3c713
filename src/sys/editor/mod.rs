//! The interactive line editor: editing, history, completion and hints. The only module that uses `rustyline`; the
//! caller supplies the completions.
//!
//! The terminal has its original settings while no line is being read. [`Editor`] restores them when dropped, and so
//! after any end of the run. After `kill -9` they remain as set for editing; shells then restore their own.

mod ahead;
mod assist;
mod completion;
mod compose;
mod entry;
mod history;
mod line;
mod modes;
mod plain;
mod quiet;
mod reader;

pub use completion::{Candidate, CompletionSource};
pub use compose::compose;
pub use line::Line;
pub use quiet::Quiet;

use crate::error::{Exit, Stop, fail};
use crate::sys::env::Env;
use crate::sys::sync::IgnorePoison;
use crate::sys::terminal::{Terminal, harmless};
use crate::sys::{secret, signal};
use anyhow::{Context, Result};
use assist::Entries;
use history::{History, MOST};
use modes::Modes;
use plain::Plain;
use quiet::Keys;
use reader::Reader;
use signal_hook::SigId;
use signal_hook::consts::SIGCONT;
use signal_hook::low_level::{pipe, unregister};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// Time during which a new question accepts no input: keys typed at that moment are kept for the next line.
const SURPRISE: Duration = Duration::from_millis(300);
/// Terminals that cannot redraw a line.
const DUMB: [&str; 3] = ["dumb", "cons25", "emacs"];

/// The line editor.
pub struct Editor {
    modes: Modes,
    reading: Reading,
    history: History,
    /// All entries of the history.
    entries: Entries,
    notices: Vec<String>,
    keys: Arc<Mutex<Keys>>,
    /// Becomes readable when the process continues after a stop.
    resumed: UnixStream,
    resumes: SigId,
}

/// The method of reading a line.
enum Reading {
    /// Editing with `rustyline`. Answers to questions have neither history nor completion.
    Rich(Box<Reader>),
    /// The kernel's own line editing.
    Plain(Plain),
}

impl Editor {
    /// Creates an editor. `history` is the history file, [`crate::sys::paths::Paths::history`]; `completions` supplies
    /// completions.
    ///
    /// # Errors
    /// Status 2 (usage) if standard input is not a terminal.
    pub fn new(
        env: &Env,
        terminal: Terminal,
        history: PathBuf,
        known: Box<dyn CompletionSource>,
    ) -> Result<Self> {
        let Ok(modes) = Modes::of_stdin() else {
            return Err(fail(Exit::Usage, "standard input is not a terminal"));
        };
        let mut notices = Vec::new();
        let (history, entries) = match History::open(history) {
            Ok(opened) => opened,
            Err(error) => {
                notices.push(unremembered(&error));
                (History::default(), Vec::new())
            }
        };
        let all = Entries::default();
        let is_dumb = env.get("TERM").is_some_and(|term| DUMB.contains(&term));
        let reading = if is_dumb || !terminal.out {
            Reading::Plain(Plain::default())
        } else {
            let mut lines = Reader::new(Some(known), &all, MOST)?;
            for entry in &entries {
                lines.add(entry)?;
            }
            Reading::Rich(Box::new(lines))
        };
        all.lock().ignore_poison().extend(entries);
        let what = || "set up the line editor";
        let (resumed, resumes) = UnixStream::pair().with_context(what)?;
        resumed.set_nonblocking(true).with_context(what)?;
        let resumes = pipe::register(SIGCONT, resumes).with_context(what)?;
        let keys = Keys::new(&modes, &resumed).with_context(what)?;
        Ok(Self {
            modes,
            reading,
            history,
            entries: all,
            notices,
            keys: Arc::new(Mutex::new(keys)),
            resumed,
            resumes,
        })
    }

    /// Returns a notice for the user, once: for example, that the history cannot be used.
    pub fn notice(&mut self) -> Option<String> {
        let notices = std::mem::take(&mut self.notices);
        (!notices.is_empty()).then(|| notices.join("; "))
    }

    /// Reads an entry, which may have several lines; `initial` is its initial text. Input typed ahead comes first.
    ///
    /// # Errors
    /// A signal ends the run, or the terminal fails.
    pub fn read(&mut self, prompt: &str, initial: &str) -> Result<Line> {
        let mut keys = self.keys();
        let line = initial.is_empty().then(|| keys.ahead.next()).flatten();
        if let Some(line) = line {
            drop(keys);
            self.show(prompt, &line)?;
            return Ok(line);
        }
        let initial = format!("{initial}{}", keys.ahead.begun());
        drop(keys);
        unless_interrupted(match &mut self.reading {
            Reading::Rich(lines) => lines.read(&self.modes, &self.resumed, prompt, &initial),
            Reading::Plain(plain) => plain.read(&self.modes, prompt, &initial, true),
        })
    }

    /// Reads the answer to a question: one line, without history and completion. Input typed ahead is kept for
    /// [`Self::read`], also while a [`TypingGuard`] exists.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn ask(&mut self, question: &str) -> Result<Line> {
        // Keys typed while the question appears cannot be an answer to it.
        signal::pause(SURPRISE)?;
        let was_quiet = self.keys().end();
        let answer = unless_interrupted(match &mut self.reading {
            // A separate reader: input that another one has buffered beyond its line is not an answer.
            Reading::Rich(_) => Reader::new(None, &self.entries, 0)
                .and_then(|mut reader| reader.read(&self.modes, &self.resumed, question, "")),
            Reading::Plain(plain) => {
                *plain = Plain::default();
                plain.read(&self.modes, question, "", false)
            }
        });
        if was_quiet {
            self.keys().begin();
        }
        answer
    }

    /// Submits none of the lines that were typed ahead; they become the initial text of the next entry.
    pub fn hold_back(&mut self) {
        self.keys().ahead.hold_back();
    }

    fn keys(&self) -> MutexGuard<'_, Keys> {
        self.keys.lock().ignore_poison()
    }

    /// Shows a line that was typed ahead as if it were typed now.
    fn show(&self, prompt: &str, line: &Line) -> Result<()> {
        let text = match line {
            Line::Text(text) => text,
            Line::Interrupted | Line::End => "",
        };
        let prompt = console::style(harmless(prompt)).bold();
        let text = harmless(&secret::mask(text));
        let shown = format!("{prompt}{text}\n");
        self.modes
            .say(shown.as_bytes())
            .context("write to the terminal")
    }

    /// Adds `text` to the history, unless it begins with a space, repeats the last entry, or contains a key.
    ///
    /// # Errors
    /// The history file cannot be written. This is reported once; from then on the history is kept in memory only.
    pub fn remember(&mut self, text: &str) -> Result<()> {
        if !self.history.takes(text) {
            return Ok(());
        }
        let mut entries = self.entries.lock().ignore_poison();
        entries.insert(text.to_owned());
        drop(entries);
        if let Reading::Rich(lines) = &mut self.reading {
            lines.add(text)?;
        }
        self.history.append(text)
    }

    /// Restores the original terminal settings for another program.
    ///
    /// # Errors
    /// The settings cannot be changed.
    pub fn hand_over(&self) -> Result<()> {
        self.modes.leave().context("restore the terminal settings")
    }

    /// Starts collecting input without echo, until the returned value is dropped. The input goes to the next
    /// [`Self::read`].
    pub fn quiet(&self) -> Quiet {
        Quiet::begin(&self.keys)
    }
}

/// Converts a Ctrl-C that arrived as a signal, just before the line was read, into [`InputLine::Interrupted`].
fn unless_interrupted(line: Result<Line>) -> Result<Line> {
    let stop = line.as_ref().err().and_then(|error| error.downcast_ref());
    match stop {
        Some(Stop(Exit::Interrupted)) if signal::forgive().is_ok() => Ok(Line::Interrupted),
        _ => line,
    }
}

impl Drop for Editor {
    fn drop(&mut self) {
        unregister(self.resumes);
        // If the terminal is gone, there are no settings to restore.
        drop(self.modes.leave());
    }
}

fn unremembered(error: &anyhow::Error) -> String {
    format!("input history is disabled: {error:#}")
}
