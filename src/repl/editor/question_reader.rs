//! Questions during a turn. Text typed before a question was shown belongs to the draft, as does text that the user continues to type
//! without a pause.

use super::choice::{Choice, ChoiceInput, ChoiceOutcome};
use super::line::{EditorLine, Prompt};
use super::type_ahead::TypeAhead;
use anyhow::{Context, Result};
use nanobot_os::signal::{self, Deadline};
use nanobot_os::terminal::termios::{ENABLE_BRACKETED_PASTE, TerminalModes};
use nanobot_os::terminal::{sanitize, stderr_width};
use parking_lot::Mutex;
use rustix::event::PollFlags;
use rustix::io::Errno;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time during which a new question accepts no input: keys typed at that moment are kept for the draft.
const ANSWER_DELAY: Duration = Duration::from_millis(300);
/// A pause in typing after which a key can be an answer.
const TYPING_PAUSE: Duration = Duration::from_millis(800);
/// The note after a draft that is being typed before a question.
const DRAFT_NOTE: &str = "  the question waits for a pause";

/// Reads the keys that are typed before and during a question.
pub(super) struct QuestionReader<'e> {
    pub(super) modes: &'e TerminalModes,
    pub(super) resume_rx: &'e UnixStream,
    pub(super) type_ahead: Arc<Mutex<TypeAhead>>,
    /// True if the terminal can redraw a row.
    pub(super) redraws: bool,
}

/// The event that ended a wait.
enum QuestionEvent {
    Keys(Vec<u8>),
    /// The process continues after a stop.
    Resumed,
    TimedOut,
    /// The terminal is gone.
    Disconnected,
}

impl QuestionReader<'_> {
    /// Adds typed text to the draft until there is a pause. For a new question, unlike for a later part of one, it first waits until the
    /// user can have read it.
    pub(super) fn wait_for_pause(&self, is_new: bool) -> Result<()> {
        let shown_since = Instant::now();
        loop {
            let delay = if is_new { ANSWER_DELAY } else { Duration::ZERO };
            let last_key = self.type_ahead.lock().last_key;
            let end = last_key.map_or(shown_since, |last| last + TYPING_PAUSE);
            let remaining = end.max(shown_since + delay).saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                break;
            }
            match self.wait(Some(remaining))? {
                QuestionEvent::Keys(typed) => self.add_to_draft(&typed)?,
                QuestionEvent::Resumed | QuestionEvent::TimedOut => {}
                QuestionEvent::Disconnected => break,
            }
        }
        self.type_ahead.lock().feed(&[], true);
        self.draw("")
    }

    /// Reads the choice; returns its word. Enter alone is the choice `default`.
    pub(super) fn read_choice(
        &self,
        question: &str,
        choices: &[Choice],
        default: Option<usize>,
    ) -> Result<EditorLine> {
        let line = self.read_choice_in_row(question, choices, default);
        // The row of the question ends, also if a signal ends the question.
        self.write("\n")?;
        line
    }

    fn read_choice_in_row(
        &self,
        question: &str,
        choices: &[Choice],
        default: Option<usize>,
    ) -> Result<EditorLine> {
        self.modes.set_no_echo().context("set up the terminal")?;
        let mut input = ChoiceInput::new(choices, default);
        let prompt = Prompt::from(question).styled();
        loop {
            let (text, note) = input.display_text();
            // The row must not wrap, since it is drawn again.
            let used = console::measure_text_width(question) + text.len();
            let max_width = stderr_width().saturating_sub(used + 1);
            let note = sanitize(&note);
            let note = console::style(console::truncate_str(&note, max_width, "…")).dim();
            self.draw(&format!("{prompt}{}{note}", sanitize(text)))?;
            let outcome = match self.wait(input.timeout())? {
                QuestionEvent::Keys(typed) => input.feed(&typed),
                QuestionEvent::TimedOut => input.pause(),
                QuestionEvent::Resumed => None,
                QuestionEvent::Disconnected => Some(ChoiceOutcome::End),
            };
            let line = match outcome {
                None => continue,
                Some(ChoiceOutcome::Draft(typed)) => {
                    self.add_to_draft(&typed)?;
                    self.wait_for_pause(false)?;
                    continue;
                }
                Some(ChoiceOutcome::Chosen(index)) => {
                    let word = choices[index].word;
                    self.draw(&format!("{prompt}{word}"))?;
                    EditorLine::Text(word.to_owned())
                }
                Some(ChoiceOutcome::End) => EditorLine::End,
            };
            let rest = input.take_rest();
            if !rest.is_empty() {
                self.type_ahead.lock().add_keys(&rest);
            }
            return Ok(line);
        }
    }

    fn add_to_draft(&self, typed: &[u8]) -> Result<()> {
        let mut draft = self.type_ahead.lock();
        draft.add_keys(typed);
        let width = stderr_width().saturating_sub(DRAFT_NOTE.len() + 6).max(20);
        let partial = draft.describe_partial(width);
        drop(draft);
        let row = partial.map(|partial| {
            let note = console::style(DRAFT_NOTE).dim();
            format!("  > {}▏{note}", sanitize(&partial))
        });
        self.draw(&row.unwrap_or_default())
    }

    /// Replaces the row of the question.
    fn draw(&self, row: &str) -> Result<()> {
        if self.redraws { self.write(&format!("\r\x1b[J{row}")) } else { Ok(()) }
    }

    fn write(&self, text: &str) -> Result<()> {
        self.modes.write(text.as_bytes()).context("write to the terminal")
    }

    /// Waits for keys, at most for `limit`.
    fn wait(&self, limit: Option<Duration>) -> Result<QuestionEvent> {
        let fds = [(self.modes.tty(), PollFlags::IN), (self.resume_rx.as_fd(), PollFlags::IN)];
        let mut deadline = limit.map_or(Deadline::never(), Deadline::after);
        match signal::wait(&fds, &mut deadline)? {
            Some(0) => self.read(),
            Some(_) => {
                // One read is enough for several stops.
                drop((&*self.resume_rx).read(&mut [0; 64]));
                if self.modes.is_foreground() {
                    let what = || "set up the terminal";
                    self.modes.set_no_echo().with_context(what)?;
                    let enable = ENABLE_BRACKETED_PASTE.as_bytes();
                    self.modes.write_sequence(enable).with_context(what)?;
                }
                Ok(QuestionEvent::Resumed)
            }
            None => Ok(QuestionEvent::TimedOut),
        }
    }

    fn read(&self) -> Result<QuestionEvent> {
        let mut block = [0; 4096];
        match rustix::io::read(self.modes.tty(), &mut block) {
            Ok(0) | Err(Errno::IO) => Ok(QuestionEvent::Disconnected),
            Ok(count) => Ok(QuestionEvent::Keys(block[..count].to_vec())),
            Err(Errno::INTR | Errno::AGAIN) => Ok(QuestionEvent::Keys(Vec::new())),
            Err(error) => Err(std::io::Error::from(error)).context("read an answer"),
        }
    }
}
