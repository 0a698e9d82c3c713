//! How the terminal treats keys: as it was found, as a line editor needs it, and while nobody reads.

use nix::sys::termios::{
    ControlFlags, FlushArg, InputFlags, LocalFlags, OutputFlags, SetArg, SpecialCharacterIndices,
    Termios, tcflush, tcgetattr, tcsetattr,
};
use serde::{Deserialize, Serialize};
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

/// Settings as they are told to another process of ours.
#[derive(Serialize, Deserialize)]
pub(super) struct Told {
    input: u32,
    output: u32,
    control: u32,
    local: u32,
    letters: Vec<u8>,
}

impl Modes {
    /// Of the terminal that is standard input.
    pub(super) fn of_stdin() -> io::Result<Self> {
        Self::of(io::stdin().as_fd())
    }

    pub(super) fn of(tty: BorrowedFd<'_>) -> io::Result<Self> {
        let tty = File::from(tty.try_clone_to_owned()?);
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
        match self.in_front() {
            true => self.put_back(),
            false => Ok(()),
        }
    }

    /// As [`Self::leave`], whoever has the terminal.
    pub(super) fn put_back(&self) -> io::Result<()> {
        self.set(&self.found)?;
        self.say(USUAL)
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

    pub(super) fn told(&self) -> Told {
        Told {
            input: self.found.input_flags.bits(),
            output: self.found.output_flags.bits(),
            control: self.found.control_flags.bits(),
            local: self.found.local_flags.bits(),
            letters: self.found.control_chars.to_vec(),
        }
    }

    /// Take what another process found for what was found.
    pub(super) fn take(&mut self, told: &Told) {
        self.found.input_flags = InputFlags::from_bits_retain(told.input);
        self.found.output_flags = OutputFlags::from_bits_retain(told.output);
        self.found.control_flags = ControlFlags::from_bits_retain(told.control);
        self.found.local_flags = LocalFlags::from_bits_retain(told.local);
        for (letter, told) in self.found.control_chars.iter_mut().zip(&told.letters) {
            *letter = *told;
        }
    }

    /// Whether keys that are signals are none, as only a line editor wants it.
    pub(super) fn takes_signals_as_keys(&self) -> bool {
        tcgetattr(&self.tty).is_ok_and(|now| !now.local_flags.contains(LocalFlags::ISIG))
    }
}

fn at_once(modes: &mut Termios) {
    modes.control_chars[SpecialCharacterIndices::VMIN as usize] = 1;
    modes.control_chars[SpecialCharacterIndices::VTIME as usize] = 0;
}
