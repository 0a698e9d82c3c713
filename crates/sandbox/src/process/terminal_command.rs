//! Runs a command of the user on their terminal: an editor, a pager, or any other program. It gets a pseudo-terminal. What it writes
//! there is passed on to the user's terminal and recorded; what the user types is passed to it.
//!
//! A helper leads the session of the pseudo-terminal, and starts the command in a process group of its own, as a shell with job
//! control does. So Ctrl-Z stops the command; this program then stops too, and both continue together.

use super::output::{CapturedText, HeadAndTail, SCREEN_LINES};
use super::own_program::helper_executable;
use anyhow::Context;
use nanobot_base::error::{Exit, Stop};
use nanobot_base::terminal_text::TerminalText;
use nanobot_os::children::{detached, kill_leftovers, prepare};
use nanobot_os::signal::{self, Deadline};
use nanobot_os::terminal::termios::TerminalModes;
use nanobot_os::utf8_stream::Utf8Decoder;
use rustix::event::PollFlags;
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions};
use rustix::pty::OpenptFlags;
use rustix::stdio::{dup2_stderr, dup2_stdout, stdin, stdout};
use signal_hook::SigId;
use signal_hook::consts::{SIGCONT, SIGWINCH};
use signal_hook::low_level::{pipe, unregister};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

/// The name (`argv[0]`) that makes this program the leader of a session. The argument is the command. Standard input is a socket,
/// the other streams are the pseudo-terminal.
const SESSION_ARG0: &str = "nanobot-terminal";

/// Maximum time to read the last output while a process that the command left behind holds the pseudo-terminal open.
const LAST_OUTPUT_TIMEOUT: Duration = Duration::from_millis(100);
/// The keys that send signals: Ctrl-C, Ctrl-Z and Ctrl-\. They are no input.
const SIGNAL_KEYS: [u8; 3] = [0x03, 0x1a, 0x1c];
/// The size of a block that is read at once, in bytes.
const BLOCK_BYTES: usize = 4096;
/// The longest sequence of [`is_full_screen`], in bytes.
const MAX_SEQUENCE_BYTES: usize = 16;

/// A command for the user's terminal.
pub struct TerminalCommand<'a> {
    /// The command, for `/bin/sh`.
    pub script: &'a str,
    pub directory: &'a Path,
    /// The command's entire environment.
    pub env: Vec<(String, String)>,
    /// The number of bytes to keep of the output's beginning, and as many of its end.
    pub capture_bytes: usize,
}

/// The result of a command on the terminal.
pub struct TerminalCommandResult {
    pub status: ExitStatus,
    /// Its output as text.
    pub output: CapturedText,
    /// True if the user typed something, which its output may repeat.
    pub was_typed_to: bool,
    /// True if it placed its output on the screen, so that it is no text.
    pub is_full_screen: bool,
    /// True if its last line has no end.
    pub leaves_line_open: bool,
}

/// Runs `command` on the terminal of `modes`, until it ends.
///
/// # Errors
/// It cannot be started, or the terminal fails; a [`Stop`] if a signal ends this run, and so the command.
pub fn run_on_terminal(
    command: &TerminalCommand<'_>,
    modes: &TerminalModes,
) -> anyhow::Result<TerminalCommandResult> {
    prepare();
    let mut session = TerminalSession::start(command, modes).context("start the command")?;
    let wakeups = Wakeups::register().context("wait for signals")?;
    let mut recording = Recording {
        decoder: Utf8Decoder::default(),
        screen: TerminalText::new(SCREEN_LINES),
        captured: HeadAndTail::new(command.capture_bytes),
        was_typed_to: false,
        is_full_screen: false,
        last_bytes: Vec::new(),
    };
    let pass_through = PassThrough::begin(modes).context("set up the terminal")?;
    let status = session.relay(modes, &wakeups, &mut recording)?;
    drop(pass_through);
    drop(session);
    let leaves_line_open = recording.last_bytes.last().is_some_and(|byte| *byte != b'\n');
    Ok(TerminalCommandResult {
        status,
        was_typed_to: recording.was_typed_to,
        is_full_screen: recording.is_full_screen,
        leaves_line_open,
        output: recording.finish(),
    })
}

/// A pseudo-terminal, and the helper that leads its session. Dropping this ends both, and what is left of the command.
struct TerminalSession {
    /// The side of the pseudo-terminal that a terminal has.
    controller: OwnedFd,
    /// The connection to the helper, which writes the wait status of the command (an `i32`) when that stops or ends, and continues it
    /// when it gets a byte.
    control: UnixStream,
    /// Dropped last: it ends when the connection is closed, or by the hang-up of its terminal.
    _helper: HelperProcess,
}

struct HelperProcess(Child);

impl Drop for HelperProcess {
    fn drop(&mut self) {
        // It is our child, so this cannot fail.
        drop(self.0.wait());
        let helper = Pid::from_child(&self.0);
        detached().retain(|pid| *pid != helper);
        kill_leftovers();
    }
}

impl TerminalSession {
    fn start(command: &TerminalCommand<'_>, modes: &TerminalModes) -> io::Result<Self> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let controller = rustix::pty::openpt(flags)?;
        rustix::pty::grantpt(&controller)?;
        rustix::pty::unlockpt(&controller)?;
        let line = rustix::pty::ioctl_tiocgptpeer(&controller, flags)?;
        modes.copy_to(&line)?;
        rustix::fs::fcntl_setfl(&controller, OFlags::RDWR | OFlags::NONBLOCK)?;
        let (control, helper_end) = UnixStream::pair()?;
        let mut helper = Command::new(helper_executable()?);
        helper.arg0(SESSION_ARG0).arg(command.script).current_dir(command.directory);
        helper.env_clear().envs(command.env.iter().map(|(name, value)| (name, value)));
        helper.stdin(OwnedFd::from(helper_end)).stdout(line.try_clone()?).stderr(line);
        let helper = {
            let mut detached_pids = detached();
            let helper = helper.spawn()?;
            detached_pids.push(Pid::from_child(&helper));
            helper
        };
        Ok(Self { controller, control, _helper: HelperProcess(helper) })
    }

    /// Passes keys and output on until the command ends. Returns its status.
    fn relay(
        &mut self,
        modes: &TerminalModes,
        wakeups: &Wakeups,
        recording: &mut Recording,
    ) -> anyhow::Result<ExitStatus> {
        let (controller, control) = (&self.controller, &mut self.control);
        let mut keys = Vec::new();
        let mut block = [0; BLOCK_BYTES];
        let status = loop {
            let key_event = if keys.is_empty() {
                (modes.tty(), PollFlags::IN)
            } else {
                (controller.as_fd(), PollFlags::OUT)
            };
            let fds = [
                (control.as_fd(), PollFlags::IN),
                (wakeups.rx.as_fd(), PollFlags::IN),
                key_event,
                (controller.as_fd(), PollFlags::IN),
            ];
            match signal::wait(&fds, &mut Deadline::never())? {
                Some(0) => {
                    let mut raw = [0; size_of::<i32>()];
                    control.read_exact(&mut raw).context("start the command")?;
                    let status = ExitStatus::from_raw(i32::from_ne_bytes(raw));
                    if status.stopped_signal().is_none() {
                        break status;
                    }
                    // The output from before the stop is still shown.
                    read_output(controller, modes, recording, &mut block)?;
                    suspend(modes).context("stop for the shell")?;
                    modes.copy_size_to(controller).context("set the window's size")?;
                    control.write_all(&[0]).context("continue the command")?;
                }
                Some(1) => wakeups.handle(modes, controller).context("set up the terminal")?,
                Some(2) if keys.is_empty() => {
                    let count = match rustix::io::read(modes.tty(), &mut block) {
                        Ok(0) | Err(Errno::IO) => return Err(Stop(Exit::HangUp).into()),
                        Err(Errno::INTR | Errno::AGAIN) => 0,
                        result => result.map_err(io::Error::from).context("read a key")?,
                    };
                    keys.extend_from_slice(&block[..count]);
                    let is_input = |key: &u8| !SIGNAL_KEYS.contains(key);
                    recording.was_typed_to |= keys.iter().any(is_input);
                }
                Some(2) => match rustix::io::write(controller, &keys) {
                    Ok(count) => drop(keys.drain(..count)),
                    Err(Errno::INTR | Errno::AGAIN) => {}
                    // Nothing takes keys any more.
                    Err(_) => keys.clear(),
                },
                _ => drop(read_output(controller, modes, recording, &mut block)?),
            }
        };
        let mut deadline = Deadline::after(LAST_OUTPUT_TIMEOUT);
        while signal::wait_readable(controller, &mut deadline)?
            && read_output(controller, modes, recording, &mut block)?
        {}
        Ok(status)
    }
}

/// Passes on what the command has written. False after the end of its output.
fn read_output(
    controller: &OwnedFd,
    modes: &TerminalModes,
    recording: &mut Recording,
    block: &mut [u8],
) -> anyhow::Result<bool> {
    match rustix::io::read(controller, &mut *block) {
        // While no process has it open, reading fails.
        Ok(0) | Err(Errno::IO) => Ok(false),
        Err(Errno::INTR | Errno::AGAIN) => Ok(true),
        Ok(count) => {
            recording.add(&block[..count]);
            modes.pass_through(&block[..count])?;
            Ok(true)
        }
        Err(error) => Err(io::Error::from(error)).context("read the output of the command"),
    }
}

/// Stops this process, as Ctrl-Z does, until its shell continues it. Without such a shell it goes on.
fn suspend(modes: &TerminalModes) -> io::Result<()> {
    modes.restore_and_reset()?;
    rustix::process::kill_current_process_group(Signal::TSTP)?;
    modes.set_pass_through()
}

/// The output of a command so far.
struct Recording {
    decoder: Utf8Decoder,
    screen: TerminalText,
    captured: HeadAndTail,
    was_typed_to: bool,
    is_full_screen: bool,
    /// The end of the output, in which a sequence may have begun.
    last_bytes: Vec<u8>,
}

impl Recording {
    fn add(&mut self, bytes: &[u8]) {
        let text = self.screen.feed(&self.decoder.feed(bytes));
        self.captured.push(text.as_bytes());
        self.last_bytes.extend_from_slice(bytes);
        self.is_full_screen |= is_full_screen(&self.last_bytes);
        let excess = self.last_bytes.len().saturating_sub(MAX_SEQUENCE_BYTES);
        self.last_bytes.drain(..excess);
    }

    fn finish(mut self) -> CapturedText {
        let text = self.screen.feed(&self.decoder.finish()) + &self.screen.flush();
        self.captured.push(text.as_bytes());
        let HeadAndTail { head, tail, omitted_bytes, .. } = self.captured.finish();
        CapturedText { head, tail, omitted_bytes, file: None }
    }
}

/// True if `output` uses the screen as a whole: it changes to the alternate screen (`ESC [ ? 1049 h`), or places the cursor
/// (`ESC [ 1 ; 1 H`). Movements from line to line, as those of progress bars, are text.
fn is_full_screen(output: &[u8]) -> bool {
    let rests = (0..output.len()).filter_map(|start| output[start..].strip_prefix(b"\x1b["));
    rests.into_iter().any(|rest| {
        let end = rest.iter().position(|byte| matches!(byte, 0x40..=0x7e));
        let Some(end) = end.filter(|end| *end < MAX_SEQUENCE_BYTES) else {
            return false;
        };
        match (&rest[..end], rest[end]) {
            (b"?47" | b"?1047" | b"?1049", b'h') => true,
            (parameters, b'H' | b'f') => !parameters.starts_with(b"?"),
            _ => false,
        }
    })
}

/// The terminal while its keys and its output are passed through. Dropping this restores it.
struct PassThrough<'m>(&'m TerminalModes);

impl<'m> PassThrough<'m> {
    fn begin(modes: &'m TerminalModes) -> io::Result<Self> {
        let pass_through = Self(modes);
        modes.set_pass_through()?;
        Ok(pass_through)
    }
}

impl Drop for PassThrough<'_> {
    fn drop(&mut self) {
        // If the terminal is gone, there are no settings to restore.
        drop(self.0.restore_and_reset());
        drop(self.0.set_no_echo());
    }
}

/// Becomes readable when the window changes its size, and when this process continues after a stop.
struct Wakeups {
    rx: UnixStream,
    handlers: Vec<SigId>,
}

impl Wakeups {
    fn register() -> io::Result<Self> {
        let (rx, tx) = UnixStream::pair()?;
        rx.set_nonblocking(true)?;
        let mut wakeups = Self { rx, handlers: Vec::new() };
        for signal in [SIGWINCH, SIGCONT] {
            wakeups.handlers.push(pipe::register(signal, tx.try_clone()?)?);
        }
        Ok(wakeups)
    }

    fn handle(&self, modes: &TerminalModes, controller: &OwnedFd) -> io::Result<()> {
        // One read is enough for several signals.
        drop((&self.rx).read(&mut [0; 64]));
        if modes.is_foreground() {
            modes.set_pass_through()?;
        }
        modes.copy_size_to(controller)
    }
}

impl Drop for Wakeups {
    fn drop(&mut self) {
        for handler in &self.handlers {
            unregister(*handler);
        }
    }
}

/// Leads the session of a pseudo-terminal and runs the command, if this program was started for that, and returns `None` otherwise.
pub(super) fn become_session_leader() -> Option<bool> {
    let mut arguments = std::env::args_os();
    if arguments.next().is_none_or(|name| name != SESSION_ARG0) {
        return None;
    }
    let script = arguments.next().unwrap_or_default();
    Some(lead_session(&script).is_ok())
}

fn lead_session(script: &OsStr) -> io::Result<()> {
    close_fds::set_fds_cloexec(3, &[]);
    rustix::process::setsid()?;
    rustix::process::ioctl_tiocsctty(stdout())?;
    let mut control = UnixStream::from(stdin().try_clone_to_owned()?);
    let mut shell = Command::new("/bin/sh");
    shell.arg("-c").arg(script).process_group(0);
    let shell = shell.stdin(Stdio::from(stdout().try_clone_to_owned()?)).spawn()?;
    let shell = Pid::from_child(&shell);
    rustix::termios::tcsetpgrp(stdout(), shell)?;
    loop {
        let Some((_, status)) = rustix::process::waitpid(Some(shell), WaitOptions::UNTRACED)?
        else {
            continue;
        };
        let stop = status.stopping_signal();
        if stop == Some(Signal::TTIN.as_raw()) || stop == Some(Signal::TTOU.as_raw()) {
            // It used the terminal before its group was made the foreground group.
            rustix::process::kill_process_group(shell, Signal::CONT)?;
            continue;
        }
        if stop.is_none() {
            // The output ends when no process has the pseudo-terminal open.
            let null = File::options().write(true).open("/dev/null")?;
            dup2_stdout(&null)?;
            dup2_stderr(&null)?;
        }
        control.write_all(&status.as_raw().to_ne_bytes())?;
        // Until the command is to continue, or until the end.
        if control.read(&mut [0])? == 0 {
            return Ok(());
        }
        rustix::process::kill_process_group(shell, Signal::CONT)?;
    }
}

#[cfg(test)]
mod tests {
    use super::is_full_screen;

    #[test]
    fn full_screens_are_told_from_text() {
        for (output, expect) in [
            ("plain \x1b[31mred\x1b[0m\r\n", false),
            ("50%\r\x1b[K100%\x1b[2A\x1b[?25l\x1b[?1h\x1b=", false),
            ("\x1b]0;title\x07 [H", false),
            ("\x1b[?1049h", true),
            ("a\x1b[?47hb", true),
            ("\x1b[H\x1b[2J", true),
            ("\x1b[12;1Hx", true),
            ("\x1b[12;1", false),
        ] {
            assert_eq!(is_full_screen(output.as_bytes()), expect, "{output:?}");
        }
    }
}
