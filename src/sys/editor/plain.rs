//! Line input from a terminal without cursor control, or if the output goes elsewhere. The kernel provides the editing.

use super::entry::end_line;
use super::line::Line;
use super::modes::Modes;
use crate::sys::signal::{self, Patience};
use crate::sys::terminal::harmless;
use anyhow::{Context, Result};
use rustix::io::Errno;

const CTRL_D: u8 = 4;

/// Input that was read beyond the end of a line.
#[derive(Default)]
pub(super) struct Plain {
    rest: Vec<u8>,
}

impl Plain {
    /// Reads an entry. With `is_multiline` false, for answers, it always ends with the line.
    pub(super) fn read(
        &mut self,
        modes: &Modes,
        prompt: &str,
        initial: &str,
        goes_on: bool,
    ) -> Result<Line> {
        let what = || "read a line";
        let interrupt = modes.lines().with_context(what)?;
        let shown = harmless(&format!("{prompt}{initial}"));
        let line = modes
            .say(shown.as_bytes())
            .with_context(what)
            .and_then(|()| self.entry(modes, interrupt, initial, goes_on));
        modes.restore().with_context(what)?;
        if matches!(line, Ok(Line::Interrupted | Line::End) | Err(_)) {
            modes.say(b"\n").with_context(what)?;
        }
        line
    }

    fn entry(
        &mut self,
        modes: &Modes,
        interrupt: u8,
        initial: &str,
        goes_on: bool,
    ) -> Result<Line> {
        let mut text = initial.to_owned();
        loop {
            // Input typed before canonical mode was set contains raw key codes.
            let ends = |byte: &u8| matches!(*byte, b'\n' | b'\r') || *byte == interrupt;
            if self.rest.first() == Some(&CTRL_D) && text.is_empty() {
                self.rest.remove(0);
                return Ok(Line::End);
            }
            if let Some(at) = self.rest.iter().position(ends) {
                let line: Vec<u8> = self.rest.drain(..=at).collect();
                if line[at] == interrupt {
                    return Ok(Line::Interrupted);
                }
                text.push_str(&String::from_utf8_lossy(&line[..at]));
                if !goes_on || !end_line(&mut text) {
                    return Ok(Line::Text(text));
                }
                continue;
            }
            signal::readable(modes.tty(), &mut Patience::endless())?;
            let mut block = [0; 4096];
            match rustix::io::read(modes.tty(), &mut block) {
                // Ctrl-D ends the entry if it is not empty, otherwise the input.
                Ok(0) | Err(Errno::IO) => {
                    text.push_str(&String::from_utf8_lossy(&std::mem::take(&mut self.rest)));
                    return Ok(match text.is_empty() {
                        true => Line::End,
                        false => Line::Text(text),
                    });
                }
                Ok(count) => self.rest.extend_from_slice(&block[..count]),
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(error) => return Err(std::io::Error::from(error)).context("read a line"),
            }
        }
    }
}
