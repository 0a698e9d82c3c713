//! Line input from a terminal without cursor control, or if the output goes elsewhere. The kernel provides the editing.

use super::line::{EditorLine, Prompt};
use super::multiline::continue_entry;
use super::type_ahead::CTRL_D;
use anyhow::{Context, Result};
use nanobot_os::signal::{self, Deadline};
use nanobot_os::terminal::sanitize;
use nanobot_os::terminal::termios::TerminalModes;
use rustix::io::Errno;

/// Input that was read beyond the end of a line.
#[derive(Default)]
pub(super) struct CanonicalReader {
    rest: Vec<u8>,
}

impl CanonicalReader {
    /// Reads an entry. With `is_multiline` false, for answers, it always ends with the line.
    pub(super) fn read(
        &mut self,
        modes: &TerminalModes,
        prompt: Prompt<'_>,
        initial: &str,
        is_multiline: bool,
    ) -> Result<EditorLine> {
        let what = || "read a line";
        let interrupt = modes.set_canonical().with_context(what)?;
        let text = sanitize(&format!("{}{initial}", prompt.text));
        let line = modes
            .write(text.as_bytes())
            .with_context(what)
            .and_then(|()| self.read_entry(modes, interrupt, initial, is_multiline));
        modes.restore().with_context(what)?;
        if matches!(line, Ok(EditorLine::Interrupted | EditorLine::End) | Err(_)) {
            modes.write(b"\n").with_context(what)?;
        }
        line
    }

    fn read_entry(
        &mut self,
        modes: &TerminalModes,
        interrupt: u8,
        initial: &str,
        is_multiline: bool,
    ) -> Result<EditorLine> {
        let mut text = initial.to_owned();
        loop {
            // Input typed before canonical mode was set contains raw key codes.
            let is_end = |byte: &u8| matches!(*byte, b'\n' | b'\r') || *byte == interrupt;
            if self.rest.first() == Some(&CTRL_D) && text.is_empty() {
                self.rest.remove(0);
                return Ok(EditorLine::End);
            }
            if let Some(end) = self.rest.iter().position(is_end) {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                if line[end] == interrupt {
                    return Ok(EditorLine::Interrupted);
                }
                text.push_str(&String::from_utf8_lossy(&line[..end]));
                if !is_multiline || !continue_entry(&mut text) {
                    return Ok(EditorLine::Text(text));
                }
                continue;
            }
            signal::wait_readable(modes.tty(), &mut Deadline::never())?;
            let mut block = [0; 4096];
            match rustix::io::read(modes.tty(), &mut block) {
                // Ctrl-D ends the entry if it is not empty, otherwise the input.
                Ok(0) | Err(Errno::IO) => {
                    text.push_str(&String::from_utf8_lossy(&std::mem::take(&mut self.rest)));
                    return Ok(if text.is_empty() {
                        EditorLine::End
                    } else {
                        EditorLine::Text(text)
                    });
                }
                Ok(count) => self.rest.extend_from_slice(&block[..count]),
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(error) => return Err(std::io::Error::from(error)).context("read a line"),
            }
        }
    }
}
