//! The interactive line editor: editing, history, completion and hints. The only module that uses `rustyline`; the
//! caller supplies the completions.
//!
//! The terminal has its original settings while no line is being read. [`Editor`] restores them when dropped, and so
//! after any end of the run. After `kill -9` they remain as set for editing; shells then restore their own.

mod canonical_reader;
mod choice;
mod external_editor;
mod helper;
mod history;
mod line;
mod multiline;
mod paste_keys;
mod pasted;
mod question_reader;
mod reflow;
mod rustyline_reader;
mod type_ahead;
mod typing_guard;

pub use choice::Choice;
pub use external_editor::{EditedText, edit_text, external_editor};
pub use line::{Candidate, CompletionSource, EditorLine, LineKey, Prompt};
pub use typing_guard::TypingGuard;

use anyhow::{Context, Result};
use canonical_reader::CanonicalReader;
use choice::ChoiceInput;
use helper::HistoryEntries;
use history::{InputHistory, MAX_ENTRIES, SharedHistory};
use nanobot_base::error::{Exit, Stop, fail};
use nanobot_os::env::Env;
use nanobot_os::secret;
use nanobot_os::signal;
use nanobot_os::terminal::termios::{TerminalModes, restore_terminal};
use nanobot_os::terminal::{Terminal, sanitize};
use nanobot_sandbox::process::{self, TerminalCommand, TerminalCommandResult};
use parking_lot::Mutex;
use pasted::{FoldedPastes, SharedPastes};
use question_reader::QuestionReader;
use rustyline::EditMode;
use rustyline_reader::RustylineReader;
use signal_hook::SigId;
use signal_hook::consts::SIGCONT;
use signal_hook::low_level::{pipe, unregister};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use typing_guard::TypedKeys;

/// Terminals that cannot redraw a line.
const DUMB_TERMINALS: [&str; 3] = ["dumb", "cons25", "emacs"];

/// The line editor.
pub struct Editor {
    modes: TerminalModes,
    reader: LineReader,
    history: SharedHistory,
    /// All entries of the history.
    history_entries: HistoryEntries,
    /// A notice for the user, once.
    notice: Option<String>,
    typed_keys: Arc<Mutex<TypedKeys>>,
    pastes: SharedPastes,
    terminal: Terminal,
    /// Becomes readable when the process continues after a stop.
    resume_rx: UnixStream,
    resume_handler: SigId,
}

/// The method of reading a line.
enum LineReader {
    /// Editing with `rustyline`. Answers to questions have neither history nor completion.
    Rustyline(Box<RustylineReader>),
    /// The kernel's own line editing.
    Canonical(CanonicalReader),
}

impl Editor {
    /// Creates an editor. `history` is the history file, [`nanobot_os::paths::Paths::history`]; `completions` supplies
    /// completions; `uses_vi_keys` is true for the keys of vi, instead of those of emacs.
    ///
    /// # Errors
    /// Status 2 (usage) if standard input is not a terminal.
    pub fn new(
        env: &Env,
        terminal: Terminal,
        history: PathBuf,
        completions: Box<dyn CompletionSource>,
        uses_vi_keys: bool,
    ) -> Result<Self> {
        let Ok(modes) = TerminalModes::from_stdin(terminal.stdout_is_rich) else {
            return Err(fail(Exit::Usage, "standard input is not a terminal"));
        };
        let (history, entries, notice) = match InputHistory::open(history) {
            Ok((history, entries)) => (history, entries, None),
            Err(error) => {
                let notice = format!("input history is disabled: {error:#}");
                (InputHistory::default(), Vec::new(), Some(notice))
            }
        };
        let history_entries = HistoryEntries::default();
        let mut pastes = FoldedPastes::default();
        let entries: Vec<String> =
            entries.iter().map(|entry| pastes.fold_stored_entry(entry)).collect();
        let pastes = SharedPastes::new(Mutex::new(pastes));
        let is_dumb = env.get("TERM").is_some_and(|term| DUMB_TERMINALS.contains(&term));
        let reader = if is_dumb || !terminal.stdout_is_rich {
            LineReader::Canonical(CanonicalReader::default())
        } else {
            let reflows = reflow::is_reflowing(env);
            let edit_mode = if uses_vi_keys { EditMode::Vi } else { EditMode::Emacs };
            let mut reader = RustylineReader::new(reflows, edit_mode, MAX_ENTRIES)?;
            reader.bind_line_keys(completions, &history_entries, &pastes);
            for entry in &entries {
                reader.add_to_history(entry)?;
            }
            LineReader::Rustyline(Box::new(reader))
        };
        history_entries.lock().extend(entries);
        let what = || "set up the line editor";
        let (resume_rx, resume_tx) = UnixStream::pair().with_context(what)?;
        resume_rx.set_nonblocking(true).with_context(what)?;
        let resume_handler = pipe::register(SIGCONT, resume_tx).with_context(what)?;
        signal::prepare_for_deadly_signals(restore_terminal).with_context(what)?;
        let history = SharedHistory::new(Mutex::new(history));
        let keys =
            TypedKeys::new(&modes, &resume_rx, &pastes, &history, terminal).with_context(what)?;
        Ok(Self {
            modes,
            reader,
            history,
            history_entries,
            notice,
            typed_keys: Arc::new(Mutex::new(keys)),
            pastes,
            terminal,
            resume_rx,
            resume_handler,
        })
    }

    /// Returns a notice for the user, once: for example, that the history cannot be used.
    pub fn take_notice(&mut self) -> Option<String> {
        self.notice.take()
    }

    /// Reads an entry, which may have several lines; `initial` is its initial text. Input typed ahead comes first.
    ///
    /// # Errors
    /// A signal ends the run, or the terminal fails.
    pub fn read(&mut self, prompt: Prompt<'_>, initial: &str) -> Result<EditorLine> {
        let line = self.read_folded(prompt, initial)?;
        Ok(match line {
            EditorLine::Text(text) => EditorLine::Text(self.pastes.lock().unfold(&text)),
            EditorLine::Key(LineKey::Discard, text) => {
                EditorLine::Key(LineKey::Discard, self.pastes.lock().unfold(&text))
            }
            other => other,
        })
    }

    /// Like [`Self::read`]; the line has marks for long pastes.
    fn read_folded(&mut self, prompt: Prompt<'_>, initial: &str) -> Result<EditorLine> {
        let keys = self.typed_keys.lock();
        let mut type_ahead = keys.type_ahead.lock();
        let line = initial.is_empty().then(|| type_ahead.pop_line()).flatten();
        let initial = match line {
            Some(line) => {
                drop(type_ahead);
                drop(keys);
                self.echo_line(prompt, &line)?;
                return Ok(line);
            }
            None => format!("{initial}{}", type_ahead.take_partial()),
        };
        drop(type_ahead);
        drop(keys);
        interrupt_to_line(match &mut self.reader {
            LineReader::Rustyline(reader) => {
                reader.read(&self.modes, &self.resume_rx, prompt, &initial)
            }
            LineReader::Canonical(reader) => reader.read(&self.modes, prompt, &initial, true),
        })
    }

    /// Reads the answer to a question: one line, without history and completion. The Down and Up keys enter one of the
    /// `options`; Escape ends the input. Input typed ahead is kept for [`Self::read`], also while a [`TypingGuard`] exists.
    /// `is_new` is false for a later part of a question that the user is answering.
    ///
    /// # Errors
    /// The errors of [`Self::read`].
    pub fn prompt(
        &mut self,
        question: &str,
        options: &[String],
        is_new: bool,
    ) -> Result<EditorLine> {
        self.after_pause(is_new, |editor| match &mut editor.reader {
            // A separate reader: input that another one has buffered beyond its line is not an answer.
            LineReader::Rustyline(reader) => {
                let reader = RustylineReader::new(reader.reflows, reader.edit_mode, options.len())?;
                reader.read_answer(&editor.modes, &editor.resume_rx, question, options)
            }
            LineReader::Canonical(reader) => {
                *reader = CanonicalReader::default();
                reader.read(&editor.modes, question.into(), "", false)
            }
        })
    }

    /// Asks for one of `choices`, and returns its word: by a key alone where the terminal can do that. Escape is the choice
    /// `cancel`, or else `no`; Enter alone is the choice `default`. Without key by key input, the text of the line is returned if it is
    /// none of the choices. Input typed ahead is kept as for [`Self::prompt`].
    ///
    /// # Errors
    /// The errors of [`Self::read`].
    pub fn choose(
        &mut self,
        question: &str,
        choices: &[Choice],
        default: Option<usize>,
    ) -> Result<EditorLine> {
        self.after_pause(true, |editor| {
            let LineReader::Canonical(reader) = &mut editor.reader else {
                return editor.questions().read_choice(question, choices, default);
            };
            *reader = CanonicalReader::default();
            let line = reader.read(&editor.modes, question.into(), "", false)?;
            let EditorLine::Text(text) = &line else {
                return Ok(line);
            };
            let chosen = ChoiceInput::new(choices, default).parse_line(text);
            Ok(chosen.map_or(line, |index| EditorLine::Text(choices[index].word.to_owned())))
        })
    }

    /// Runs `read` after a pause in typing. Keys typed before it go to the next line.
    fn after_pause(
        &mut self,
        is_new: bool,
        read: impl FnOnce(&mut Self) -> Result<EditorLine>,
    ) -> Result<EditorLine> {
        let was_collecting = self.typed_keys.lock().stop();
        let pause = self.questions().wait_for_pause(is_new);
        let answer = interrupt_to_line(pause.and_then(|()| read(self)));
        if was_collecting {
            self.typed_keys.lock().start();
        }
        answer
    }

    fn questions(&self) -> QuestionReader<'_> {
        QuestionReader {
            modes: &self.modes,
            resume_rx: &self.resume_rx,
            type_ahead: self.typed_keys.lock().type_ahead(),
            redraws: matches!(self.reader, LineReader::Rustyline(_)),
        }
    }

    /// Submits none of the lines that were typed ahead; they become the initial text of the next entry.
    pub fn hold_type_ahead(&mut self) {
        self.typed_keys.lock().type_ahead.lock().merge_lines();
    }

    /// Returns `text` for the next input, with a mark for what is long.
    pub fn fold(&self, text: &str) -> String {
        self.pastes.lock().fold_entry(text)
    }

    /// Shows a line that was typed ahead as if it were typed now.
    fn echo_line(&self, prompt: Prompt<'_>, line: &EditorLine) -> Result<()> {
        let text = match line {
            EditorLine::Text(text) => text,
            EditorLine::Interrupted | EditorLine::End | EditorLine::Key(..) => "",
        };
        let text = sanitize(&secret::redact_known(text));
        let row = format!("{}{text}\n", prompt.styled());
        self.modes.write(row.as_bytes()).context("write to the terminal")
    }

    /// Adds `text` to the history, unless it begins with a space, repeats the last entry, or contains a key.
    ///
    /// # Errors
    /// The history file cannot be written. This is reported once; from then on the history is kept in memory only.
    pub fn add_to_history(&mut self, text: &str) -> Result<()> {
        if !self.history.lock().accept(text) {
            return Ok(());
        }
        let folded = self.pastes.lock().fold_entry(text);
        if let LineReader::Rustyline(reader) = &mut self.reader {
            reader.add_to_history(&folded)?;
        }
        self.history_entries.lock().insert(folded);
        self.history.lock().append(text)
    }

    /// Restores the original terminal settings for another program.
    ///
    /// # Errors
    /// The settings cannot be changed.
    pub fn restore_terminal(&self) -> Result<()> {
        self.modes.restore_and_reset().context("restore the terminal settings")
    }

    /// Runs `command` on the terminal.
    ///
    /// # Errors
    /// The errors of [`process::run_on_terminal`].
    pub fn run_on_terminal(&self, command: &TerminalCommand<'_>) -> Result<TerminalCommandResult> {
        process::run_on_terminal(command, &self.modes)
    }

    /// Starts collecting input, which is shown below the output, until the returned value is dropped. The input goes to
    /// the next [`Self::read`].
    pub fn guard_typing(&self) -> TypingGuard {
        TypingGuard::new(&self.typed_keys, self.terminal)
    }
}

/// Converts a Ctrl-C that arrived as a signal, just before the line was read, into [`EditorLine::Interrupted`].
fn interrupt_to_line(result: Result<EditorLine>) -> Result<EditorLine> {
    let stop = result.as_ref().err().and_then(|error| error.downcast_ref());
    match stop {
        Some(Stop(Exit::Interrupted)) if signal::clear_interrupt().is_ok() => {
            Ok(EditorLine::Interrupted)
        }
        _ => result,
    }
}

impl Drop for Editor {
    fn drop(&mut self) {
        unregister(self.resume_handler);
        // If the terminal is gone, there are no settings to restore.
        drop(self.modes.restore_and_reset());
    }
}
