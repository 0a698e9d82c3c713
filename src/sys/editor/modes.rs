//! How the terminal treats keys: as it was found, as a line editor needs it, and while nobody reads.

use nix::sys::termios::{
    ControlFlags, FlushArg, InputFlags, LocalFlags, SetArg, SpecialCharacterIndices, Termios,
    tcflush, tcgetattr, tcsetattr,
};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};

/// Lets the terminal mark what is pasted.
pub(super) const MARKS_PASTE: &str = "\x1b[?2004h";
/// Ends that, and shows the cursor.
const USUAL: &[u8] = b"\x1b[?2004l\x1b[?25h";

/// A terminal and the settings that it was found with.
pub(super) struct Modes {
    tty: File,
    found: Termios,
}

impl Modes {
    /// Of the terminal that is standard input.
    pub(super) fn of_stdin() -> io::Result<Self> {
        let tty = File::from(io::stdin().as_fd().try_clone_to_owned()?);
        let found = tcgetattr(&tty)?;
        Ok(Self { tty, found })
    }

    pub(super) fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            tty: self.tty.try_clone()?,
            found: self.found.clone(),
        })
    }

    pub(super) fn tty(&self) -> BorrowedFd<'_> {
        self.tty.as_fd()
    }

    /// Whether it is ours to set: not while a shell has put us behind.
    pub(super) fn in_front(&self) -> bool {
        let front = rustix::termios::tcgetpgrp(&self.tty);
        front.map_or(true, |front| front == rustix::process::getpgrp())
    }

    fn set(&self, modes: &Termios) -> io::Result<()> {
        // Now and not when all is written: a terminal that was stopped would never have written all.
        Ok(tcsetattr(&self.tty, SetArg::TCSANOW, modes)?)
    }

    /// Everything as it was found.
    pub(super) fn restore(&self) -> io::Result<()> {
        if self.in_front() {
            self.set(&self.found)?;
        }
        Ok(())
    }

    /// As [`Self::restore`], with what the terminal itself was told taken back.
    pub(super) fn leave(&self) -> io::Result<()> {
        if self.in_front() {
            self.set(&self.found)?;
            self.say(USUAL)?;
        }
        Ok(())
    }

    /// As `rustyline` sets it.
    pub(super) fn edit(&self) -> io::Result<()> {
        let mut modes = self.found.clone();
        modes.input_flags &= !(InputFlags::BRKINT
            | InputFlags::ICRNL
            | InputFlags::INPCK
            | InputFlags::ISTRIP
            | InputFlags::IXON);
        modes.control_flags |= ControlFlags::CS8;
        modes.local_flags &=
            !(LocalFlags::ECHO | LocalFlags::ICANON | LocalFlags::IEXTEN | LocalFlags::ISIG);
        // As it is between two lines, where it matters.
        modes.local_flags |= LocalFlags::NOFLSH;
        at_once(&mut modes);
        self.set(&modes)
    }

    /// Keys are not shown and come one by one; those that are signals still are.
    pub(super) fn quiet(&self) -> io::Result<()> {
        let mut modes = self.found.clone();
        modes.input_flags &= !(InputFlags::ICRNL | InputFlags::INLCR | InputFlags::IGNCR);
        modes.local_flags &=
            !(LocalFlags::ECHO | LocalFlags::ECHONL | LocalFlags::ICANON | LocalFlags::IEXTEN);
        // Without the last one a Ctrl-C would take with it what was typed before.
        modes.local_flags |= LocalFlags::ISIG | LocalFlags::NOFLSH;
        at_once(&mut modes);
        match self.in_front() {
            true => self.set(&modes),
            false => Ok(()),
        }
    }

    /// Lines as the kernel edits them, which Ctrl-C ends like Enter.
    ///
    /// Returns what such a line ends with.
    pub(super) fn lines(&self) -> io::Result<u8> {
        let mut modes = self.found.clone();
        let letters = &mut modes.control_chars;
        let interrupt = letters[SpecialCharacterIndices::VINTR as usize];
        letters[SpecialCharacterIndices::VINTR as usize] = 0;
        letters[SpecialCharacterIndices::VEOL as usize] = interrupt;
        modes.local_flags |= LocalFlags::ICANON | LocalFlags::ECHO;
        modes.input_flags |= InputFlags::ICRNL;
        self.set(&modes)?;
        Ok(interrupt)
    }

    /// Forget what was typed and not read.
    pub(super) fn flush(&self) -> io::Result<()> {
        Ok(tcflush(&self.tty, FlushArg::TCIFLUSH)?)
    }

    pub(super) fn say(&self, bytes: &[u8]) -> io::Result<()> {
        // One that takes nothing is not waited for.
        let mut out = [rustix::event::PollFd::new(
            &self.tty,
            rustix::event::PollFlags::OUT,
        )];
        let soon = rustix::event::Timespec {
            tv_sec: 0,
            tv_nsec: 100_000_000,
        };
        match rustix::event::poll(&mut out, Some(&soon))? {
            0 => Ok(()),
            _ => (&self.tty).write_all(bytes),
        }
    }
}

fn at_once(modes: &mut Termios) {
    modes.control_chars[SpecialCharacterIndices::VMIN as usize] = 1;
    modes.control_chars[SpecialCharacterIndices::VTIME as usize] = 0;
}
