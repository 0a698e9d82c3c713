//! The line that a person types at a terminal: read with editing, history, completion and hints. The only contact with
//! `rustyline`; what is known to complete with comes from whoever reads.
//!
//! The terminal's settings are those that were found whenever nothing is read, and after any end: [`Editor`] puts them back
//! when it is dropped. After a `kill -9` they stay as they were for reading; shells put their own back.

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

/// How long a question is deaf: what is typed as it appears is kept for later.
const SURPRISE: Duration = Duration::from_millis(300);
/// Terminals on which no line can be drawn anew.
const DUMB: [&str; 3] = ["dumb", "cons25", "emacs"];

/// Reads lines.
pub struct Editor {
    modes: Modes,
    reading: Reading,
    history: History,
    /// All entries of the history.
    entries: Entries,
    notices: Vec<String>,
    keys: Arc<Mutex<Keys>>,
    /// Can be read after the process was stopped and goes on.
    resumed: UnixStream,
    resumes: SigId,
}

/// How a line is read.
enum Reading {
    /// Entries, and answers to questions, which have neither history nor completion.
    Rich(Box<Reader>),
    Plain(Plain),
}

impl Editor {
    /// `history` is the file of what was typed before: [`crate::sys::paths::Paths::history`].
    ///
    /// # Errors
    /// There is no terminal to read from.
    pub fn new(
        env: &Env,
        terminal: Terminal,
        history: PathBuf,
        known: Box<dyn CompletionSource>,
    ) -> Result<Self> {
        let Ok(modes) = Modes::of_stdin() else {
            return Err(fail(Exit::Usage, "standard input is no terminal"));
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
        let what = || "prepare to read lines";
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

    /// What a person is to be told, once: there is no history, say.
    pub fn notice(&mut self) -> Option<String> {
        let notices = std::mem::take(&mut self.notices);
        (!notices.is_empty()).then(|| notices.join("; "))
    }

    /// Read an entry, which may have many lines; `begun` stands in it already. What was typed meanwhile comes first.
    ///
    /// # Errors
    /// A signal ends the run; the terminal fails.
    pub fn read(&mut self, prompt: &str, begun: &str) -> Result<Line> {
        let mut keys = self.keys();
        let line = begun.is_empty().then(|| keys.ahead.next()).flatten();
        if let Some(line) = line {
            drop(keys);
            self.show(prompt, &line)?;
            return Ok(line);
        }
        let begun = format!("{begun}{}", keys.ahead.begun());
        drop(keys);
        unless_interrupted(match &mut self.reading {
            Reading::Rich(lines) => lines.read(&self.modes, &self.resumed, prompt, &begun),
            Reading::Plain(plain) => plain.read(&self.modes, prompt, &begun, true),
        })
    }

    /// Read the answer to a question: one line, without history and completion. What was typed before is kept for
    /// [`Self::read`], also where nobody else reads meanwhile.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn ask(&mut self, question: &str) -> Result<Line> {
        // Whoever types as the question appears did not read it.
        signal::pause(SURPRISE)?;
        let was_quiet = self.keys().end();
        let answer = unless_interrupted(match &mut self.reading {
            // A reader of its own: what another had taken in beyond its line answers no question.
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

    /// Let none of the lines that were typed ahead be sent by itself: they stand in the next one.
    pub fn hold_back(&mut self) {
        self.keys().ahead.hold_back();
    }

    fn keys(&self) -> MutexGuard<'_, Keys> {
        self.keys.lock().ignore_poison()
    }

    /// A line that was typed before it was asked for is shown as if it was typed now.
    fn show(&self, prompt: &str, line: &Line) -> Result<()> {
        let text = match line {
            Line::Text(text) => text,
            Line::Interrupted | Line::End => "",
        };
        let prompt = console::style(harmless(prompt)).bold();
        let text = harmless(&secret::mask(text));
        let shown = format!("{prompt}{text}\n");
        self.modes.say(shown.as_bytes()).context("show a line")
    }

    /// Take `text` into the history, unless it begins with a space, is what the last one was, or holds a key.
    ///
    /// # Errors
    /// It cannot be written. That is told once; from then on it is remembered as long as the program runs.
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

    /// Another program is to have the terminal, with the settings that were found.
    ///
    /// # Errors
    /// They cannot be set.
    pub fn hand_over(&self) -> Result<()> {
        self.modes.leave().context("set the terminal")
    }

    /// From now on until it is dropped, nobody reads: what is typed is not shown, and is kept for the next [`Self::read`].
    pub fn quiet(&self) -> Quiet {
        Quiet::begin(&self.keys)
    }
}

/// A Ctrl-C that was a signal, since it was pressed in the instant before the line was read, is one all the same.
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
        // A terminal that has gone has no settings.
        drop(self.modes.leave());
    }
}

fn unremembered(error: &anyhow::Error) -> String {
    format!("what is typed is not remembered: {error:#}")
}
