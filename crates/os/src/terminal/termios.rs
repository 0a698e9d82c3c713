//! Terminal modes: the original ones, those for line editing, and those for the time in which no line is read.

use super::streams::write_all;
use crate::process_group::process_group;
use anyhow::Result;
use nix::sys::termios::{
    ControlFlags, FlushArg, InputFlags, LocalFlags, SetArg, SpecialCharacterIndices, Termios,
    cfmakeraw, tcflush, tcgetattr, tcsetattr,
};
use parking_lot::Mutex;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};

/// Enables bracketed paste mode.
pub const ENABLE_BRACKETED_PASTE: &str = "\x1b[?2004h";
/// Disables bracketed paste mode, and shows the cursor.
const RESET_SEQUENCES: &[u8] = b"\x1b[?2004l\x1b[?25h";

/// The terminal whose settings were changed, for the panic hook.
static CHANGED: Mutex<Option<TerminalModes>> = Mutex::new(None);

/// Restores the settings of the terminal, if they were changed, unless another thread is about to.
pub fn restore_terminal() {
    if let Some(Some(modes)) = CHANGED.try_lock().as_deref() {
        // A terminal that is gone needs nothing.
        drop(modes.restore_and_reset());
    }
}

/// A terminal and its original settings.
pub struct TerminalModes {
    tty: File,
    original: Termios,
    /// True if the terminal takes escape sequences.
    takes_sequences: bool,
}

impl TerminalModes {
    /// Records the settings of the terminal that is standard input.
    pub fn from_stdin(takes_sequences: bool) -> io::Result<Self> {
        let tty = File::from(io::stdin().as_fd().try_clone_to_owned()?);
        let original = tcgetattr(&tty)?;
        let modes = Self { tty, original, takes_sequences };
        *CHANGED.lock() = Some(modes.try_clone()?);
        Ok(modes)
    }

    /// Duplicates the file descriptor, with the same original settings.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            tty: self.tty.try_clone()?,
            original: self.original.clone(),
            takes_sequences: self.takes_sequences,
        })
    }

    /// Returns the terminal's file descriptor.
    pub fn tty(&self) -> BorrowedFd<'_> {
        self.tty.as_fd()
    }

    /// True if this process is in the foreground. In the background, the settings belong to the shell.
    pub fn is_foreground(&self) -> bool {
        let foreground_group = rustix::termios::tcgetpgrp(&self.tty);
        let (Ok(foreground_group), Some(own_group)) = (foreground_group, process_group(None))
        else {
            return true;
        };
        foreground_group == own_group
    }

    fn apply(&self, modes: &Termios) -> io::Result<()> {
        // Set at once instead of after pending output: a stopped terminal would never finish its output.
        Ok(tcsetattr(&self.tty, SetArg::TCSANOW, modes)?)
    }

    /// Restores the original settings.
    pub fn restore(&self) -> io::Result<()> {
        if self.is_foreground() {
            self.apply(&self.original)?;
        }
        Ok(())
    }

    /// Like [`Self::restore`], and also resets bracketed paste and the cursor.
    pub fn restore_and_reset(&self) -> io::Result<()> {
        if self.is_foreground() {
            self.apply(&self.original)?;
            self.write_sequence(RESET_SEQUENCES)?;
        }
        Ok(())
    }

    /// Writes an escape sequence, if the terminal takes them.
    pub fn write_sequence(&self, sequence: &[u8]) -> io::Result<()> {
        if self.takes_sequences { self.write(sequence) } else { Ok(()) }
    }

    /// Sets the modes of the line editor: those of the library rustyline.
    pub fn set_raw(&self) -> io::Result<()> {
        let mut modes = self.original.clone();
        modes.input_flags &= !(InputFlags::BRKINT
            | InputFlags::ICRNL
            | InputFlags::INPCK
            | InputFlags::ISTRIP
            | InputFlags::IXON);
        modes.control_flags |= ControlFlags::CS8;
        modes.local_flags &=
            !(LocalFlags::ECHO | LocalFlags::ICANON | LocalFlags::IEXTEN | LocalFlags::ISIG);
        // As in `set_no_echo`, so that changing between the two does not change this flag.
        modes.local_flags |= LocalFlags::NOFLSH;
        set_immediate_reads(&mut modes);
        self.apply(&modes)
    }

    /// Sets the modes for collecting keys: no echo, one key at a time; keys that send signals still do.
    pub fn set_no_echo(&self) -> io::Result<()> {
        let mut modes = self.original.clone();
        modes.input_flags &= !(InputFlags::ICRNL | InputFlags::INLCR | InputFlags::IGNCR);
        modes.local_flags &=
            !(LocalFlags::ECHO | LocalFlags::ECHONL | LocalFlags::ICANON | LocalFlags::IEXTEN);
        // Without `NOFLSH`, a Ctrl-C would discard the input before it.
        modes.local_flags |= LocalFlags::ISIG | LocalFlags::NOFLSH;
        set_immediate_reads(&mut modes);
        if self.is_foreground() { self.apply(&modes) } else { Ok(()) }
    }

    /// Sets raw mode, in which keys go to another program's terminal as they are.
    pub fn set_pass_through(&self) -> io::Result<()> {
        let mut modes = self.original.clone();
        cfmakeraw(&mut modes);
        self.apply(&modes)
    }

    /// Gives another terminal the original settings, and the size of the window.
    pub fn copy_to(&self, tty: impl AsFd) -> io::Result<()> {
        tcsetattr(&tty, SetArg::TCSANOW, &self.original)?;
        self.copy_size_to(tty)
    }

    /// Gives another terminal the size of the window.
    pub fn copy_size_to(&self, tty: impl AsFd) -> io::Result<()> {
        Ok(rustix::termios::tcsetwinsize(tty, rustix::termios::tcgetwinsize(&self.tty)?)?)
    }

    /// Writes the output of another program, which uses the terminal, as it is.
    ///
    /// # Errors
    /// The terminal is gone, or a signal ends the run.
    pub fn pass_through(&self, output: &[u8]) -> Result<()> {
        write_all(self.tty.as_fd(), output, "the terminal")
    }

    /// Sets canonical mode, in which Ctrl-C ends a line like Enter. Returns the character that Ctrl-C puts at the end of
    /// such a line.
    pub fn set_canonical(&self) -> io::Result<u8> {
        let mut modes = self.original.clone();
        let control_chars = &mut modes.control_chars;
        let interrupt = control_chars[SpecialCharacterIndices::VINTR as usize];
        control_chars[SpecialCharacterIndices::VINTR as usize] = 0;
        control_chars[SpecialCharacterIndices::VEOL as usize] = interrupt;
        modes.local_flags |= LocalFlags::ICANON | LocalFlags::ECHO;
        modes.input_flags |= InputFlags::ICRNL;
        self.apply(&modes)?;
        Ok(interrupt)
    }

    /// Discards input that was typed and not read.
    pub fn discard_input(&self) -> io::Result<()> {
        Ok(tcflush(&self.tty, FlushArg::TCIFLUSH)?)
    }

    /// Writes to the terminal, unless it accepts no output for 100 ms.
    pub fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let mut fds = [rustix::event::PollFd::new(&self.tty, rustix::event::PollFlags::OUT)];
        let timeout = rustix::event::Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        match rustix::event::poll(&mut fds, Some(&timeout))? {
            0 => Ok(()),
            _ => (&self.tty).write_all(bytes),
        }
    }
}

fn set_immediate_reads(modes: &mut Termios) {
    modes.control_chars[SpecialCharacterIndices::VMIN as usize] = 1;
    modes.control_chars[SpecialCharacterIndices::VTIME as usize] = 0;
}
