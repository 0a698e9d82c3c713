//! A virtual screen: runs the program on a pseudo-terminal, sends keys and reads the text that a user would see.
//!
//! It is a pseudo-terminal with its own session, and a terminal emulator that keeps the screen's content. A test waits for
//! text, never for time. The emulator replies to the queries that a real terminal answers: cursor position, status and
//! terminal type.

use crate::picture;
use crate::recorded::{assert_recorded, is_renewing};
use crate::story::{NANOBOT, Story};
use crate::wait::{self, DEADLINE};
use regex::Regex;
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::OpenptFlags;
use rustix::termios::{LocalModes, OptionalActions, Winsize, tcgetattr, tcsetattr, tcsetwinsize};
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read, Write as _};
use std::num::NonZeroU16;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use vt100::Color;

/// Poll interval for a process without output.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Time that a changed screen has to appear, when snapshots are renewed.
const RENEWAL_DELAY: Duration = Duration::from_secs(3);
/// A pause between keys, far longer than the keys of a terminal's escape sequence are apart.
const KEY_PAUSE: Duration = Duration::from_secs(1);
/// Rows of scrollback above the screen.
const SCROLLBACK_ROWS: usize = 10_000;
/// A mark that we write after the end of a process, to know that all its output has arrived.
const END_MARK: &[u8] = b"\x1b]7777;end\x07";

impl Story {
    /// A terminal of this size, on which a program can be started.
    pub(crate) fn screen(&self, rows: u16, columns: u16) -> ScreenBuilder<'_> {
        ScreenBuilder { story: self, size: (rows, columns), env: Vec::new() }
    }
}

/// A screen without a program.
pub(crate) struct ScreenBuilder<'a> {
    story: &'a Story,
    size: (u16, u16),
    env: Vec<(String, String)>,
}

impl<'a> ScreenBuilder<'a> {
    /// Adds a variable to the program's environment.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Starts our program with these arguments.
    pub(crate) fn args<S: AsRef<OsStr>>(
        self,
        arguments: impl IntoIterator<Item = S>,
    ) -> Screen<'a> {
        self.program(NANOBOT, arguments)
    }

    /// Starts another program, such as a shell that completes our command lines.
    pub(crate) fn program<S: AsRef<OsStr>>(
        self,
        program: &str,
        arguments: impl IntoIterator<Item = S>,
    ) -> Screen<'a> {
        // `setsid` creates a session with this terminal and executes the program.
        let mut command = self.story.program("setsid");
        command
            .args(["-c", "--", program])
            .args(arguments)
            .env("TERM", "xterm-256color")
            .env("LANG", "C.UTF-8")
            .envs(self.env);
        Screen::start(self.story, self.size, command)
    }
}

/// A key that is not a character.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Key {
    Enter,
    Tab,
    ShiftTab,
    Escape,
    Backspace,
    Delete,
    Up,
    Down,
    Left,
    Right,
    Home,
    End,
    /// With a lower-case letter, or one of `[\]^_@`.
    Ctrl(char),
    Alt(char),
}

impl Key {
    /// The bytes that a terminal sends for the key.
    fn bytes(self) -> Vec<u8> {
        let text = match self {
            Self::Enter => "\r",
            Self::Tab => "\t",
            Self::ShiftTab => "\u{1b}[Z",
            Self::Escape => "\u{1b}",
            Self::Backspace => "\u{7f}",
            Self::Delete => "\u{1b}[3~",
            Self::Up => "\u{1b}[A",
            Self::Down => "\u{1b}[B",
            Self::Right => "\u{1b}[C",
            Self::Left => "\u{1b}[D",
            Self::Home => "\u{1b}[H",
            Self::End => "\u{1b}[F",
            Self::Ctrl(letter) => {
                assert!(letter.is_ascii(), "{letter:?} has no control character");
                return vec![letter.to_ascii_uppercase() as u8 & 0x1f];
            }
            Self::Alt(letter) => return format!("\u{1b}{letter}").into_bytes(),
        };
        text.as_bytes().to_vec()
    }
}

/// The terminal settings, for comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TermiosSettings(String);

/// A program on a terminal.
pub(crate) struct Screen<'a> {
    story: &'a Story,
    child: Child,
    exit_status: Option<ExitStatus>,
    /// The controller side of the pseudo-terminal.
    pty_controller: OwnedFd,
    /// The side used by programs. While it is open, the terminal outlives them.
    tty: File,
    keyboard: Sender<Vec<u8>>,
    output: Arc<TerminalOutput>,
    initial_settings: TermiosSettings,
}

/// The output received so far.
struct TerminalOutput {
    state: Mutex<TerminalState>,
    changed: Condvar,
}

struct TerminalState {
    emulator: vt100::Parser<TerminalReplies>,
    raw: Vec<u8>,
    /// True once the process has ended and all its output has arrived.
    is_complete: bool,
}

/// The terminal's replies to queries.
#[derive(Default)]
struct TerminalReplies(Vec<u8>);

impl vt100::Callbacks for TerminalReplies {
    fn unhandled_csi(
        &mut self,
        screen: &mut vt100::Screen,
        first: Option<u8>,
        _: Option<u8>,
        parameters: &[&[u16]],
        letter: char,
    ) {
        let (row, column) = screen.cursor_position();
        let reply = match (first, parameters, letter) {
            (None, [[6]], 'n') => format!("\u{1b}[{};{}R", row + 1, column + 1),
            (None, [[5]], 'n') => "\u{1b}[0n".into(),
            (None, [] | [[0]], 'c') => "\u{1b}[?62;22c".into(),
            _ => return,
        };
        self.0.extend_from_slice(reply.as_bytes());
    }
}

impl<'a> Screen<'a> {
    fn start(story: &'a Story, size: (u16, u16), mut command: Command) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let pty_controller = rustix::pty::openpt(flags).expect("a pty");
        rustix::pty::grantpt(&pty_controller).expect("it is ours");
        rustix::pty::unlockpt(&pty_controller).expect("it can be used");
        let line = rustix::pty::ioctl_tiocgptpeer(&pty_controller, flags).expect("its other side");
        let tty = File::from(line);
        tcsetwinsize(&pty_controller, winsize(size)).expect("it has a size");
        let initial_settings = read_settings(&pty_controller);
        let same = || tty.try_clone().expect("a file can be cloned");
        command.stdin(same()).stdout(same()).stderr(same());
        let child = command.spawn().expect("the program starts");
        let (rows, columns) = nonzero(size);
        let emulator = vt100::Parser::new_with_callbacks(
            rows,
            columns,
            SCROLLBACK_ROWS,
            TerminalReplies::default(),
        );
        let output = Arc::new(TerminalOutput {
            state: Mutex::new(TerminalState { emulator, raw: Vec::new(), is_complete: false }),
            changed: Condvar::new(),
        });
        let clone = || File::from(pty_controller.try_clone().expect("a file can be cloned"));
        let (keyboard, typed) = channel::<Vec<u8>>();
        let mut writer = clone();
        // If the program does not read its input, only this thread blocks.
        std::thread::spawn(move || {
            typed.iter().take_while(|bytes| writer.write_all(bytes).is_ok()).for_each(drop);
        });
        let (reader, sink, answers) = (clone(), Arc::clone(&output), keyboard.clone());
        std::thread::spawn(move || feed_emulator(reader, &sink, &answers));
        Self {
            story,
            child,
            exit_status: None,
            pty_controller,
            tty,
            keyboard,
            output,
            initial_settings,
        }
    }

    /// Types text, unchanged.
    pub(crate) fn type_(&mut self, text: &str) -> &mut Self {
        self.send(text.as_bytes().to_vec())
    }

    pub(crate) fn press(&mut self, key: Key) -> &mut Self {
        self.send(key.bytes())
    }

    /// Lets the user pause between two keys, for keys whose meaning depends on that. The program has read all before.
    pub(crate) fn pause(&mut self) -> &mut Self {
        wait::until("the keys were not read", || {
            rustix::io::ioctl_fionread(&self.tty).is_ok_and(|unread| unread == 0)
        });
        std::thread::sleep(KEY_PAUSE);
        self
    }

    /// Pastes text as a terminal in bracketed paste mode.
    pub(crate) fn paste(&mut self, text: &str) -> &mut Self {
        self.send(format!("\u{1b}[200~{text}\u{1b}[201~").into_bytes())
    }

    fn send(&mut self, bytes: Vec<u8>) -> &mut Self {
        self.keyboard.send(bytes).expect("the keyboard works");
        self
    }

    /// Resizes the terminal; its foreground process group gets SIGWINCH.
    pub(crate) fn resize(&mut self, rows: u16, columns: u16) -> &mut Self {
        let size = nonzero((rows, columns));
        self.state().emulator.set_size(size.0, size.1);
        tcsetwinsize(&self.pty_controller, winsize((rows, columns))).expect("it has a size");
        self
    }

    /// Like [`Self::resize`], for a terminal that reflows its rows, as most do. The scrollback is lost.
    pub(crate) fn resize_with_reflow(&mut self, rows: u16, columns: u16) -> &mut Self {
        let size = nonzero((rows, columns));
        let mut state = self.state();
        let (before, after) = logical_lines(state.emulator.screen());
        state.emulator.screen_mut().set_size(size.0, size.1);
        let text = format!("\u{1b}[m\u{1b}[H\u{1b}[2J{before}\u{1b}7{after}\u{1b}8");
        state.emulator.process(text.as_bytes());
        drop(state);
        tcsetwinsize(&self.pty_controller, winsize((rows, columns))).expect("it has a size");
        self
    }

    /// Like [`Self::resize`], while the program is stopped right after drawing: otherwise the terminal could wrap a line
    /// that was drawn for the old size.
    pub(crate) fn resize_between_frames(&mut self, rows: u16, columns: u16) -> &mut Self {
        let stat = format!("/proc/{}/stat", self.pid());
        self.wait_for_change();
        self.signal(Signal::STOP);
        wait::until("the program is not stopped", || {
            std::fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") T "))
        });
        self.tty.write_all(END_MARK).expect("a terminal can be written");
        let state = self.output.state.lock().expect("the lock is not poisoned");
        let all =
            self.output.changed.wait_timeout_while(state, DEADLINE, |state| !state.is_complete);
        let (mut state, timeout) = all.expect("the lock is not poisoned");
        assert!(!timeout.timed_out(), "the output does not end");
        state.is_complete = false;
        drop(state);
        self.resize(rows, columns).signal(Signal::CONT)
    }

    /// Waits until `expected` is on the visible screen.
    #[track_caller]
    pub(crate) fn until(&mut self, expected: &str) -> &mut Self {
        self.until_text(&format!("{expected:?} did not appear"), |text| text.contains(expected))
    }

    /// Waits until `unexpected` is no longer on the visible screen.
    #[track_caller]
    pub(crate) fn until_gone(&mut self, unexpected: &str) -> &mut Self {
        self.until_text(&format!("{unexpected:?} did not disappear"), |text| {
            !text.contains(unexpected)
        })
    }

    /// Waits until the screen ends with a line that contains only `prompt`.
    #[track_caller]
    pub(crate) fn until_prompt(&mut self, prompt: &str) -> &mut Self {
        self.until_text("no prompt", |text| text.lines().next_back() == Some(prompt.trim_end()))
    }

    /// Types text and waits until the last line of the screen ends with `line`, which is what is typed so far: the same
    /// text may stand further up.
    #[track_caller]
    pub(crate) fn type_to(&mut self, text: &str, line: &str) -> &mut Self {
        self.type_(text).until_text(&format!("{line:?} is not typed"), |screen_text| {
            screen_text.lines().next_back().is_some_and(|last| last.ends_with(line))
        })
    }

    /// Waits for something that is not on the screen.
    #[track_caller]
    pub(crate) fn wait_for_some<T>(&self, find: impl Fn() -> Option<T>) -> T {
        let mut value = None;
        wait::until("nothing was found", || {
            value = find();
            value.is_some()
        });
        value.expect("it was found")
    }

    /// Waits until `view` of the screen equals `tests/screens/NAME.txt`, since a redraw may be seen half done.
    #[track_caller]
    pub(crate) fn until_snapshot(
        &mut self,
        name: &str,
        view: impl Fn(&Self) -> String,
    ) -> &mut Self {
        let path = format!("{}/tests/screens/{name}.txt", env!("CARGO_MANIFEST_DIR"));
        let expect = std::fs::read_to_string(path).unwrap_or_default();
        // A new view is taken once it had time to appear.
        let timeout = if is_renewing() { RENEWAL_DELAY } else { DEADLINE };
        let deadline = Instant::now() + timeout;
        loop {
            let text = view(self);
            let is_there = format!("{}\n", mask_times(&text)) == expect;
            if is_there || Instant::now() > deadline {
                self.snapshot(name, &text);
                return self;
            }
            self.wait_for_change();
        }
    }

    /// Waits until `condition` is true for the visible text.
    #[track_caller]
    pub(crate) fn until_text(
        &mut self,
        failure: &str,
        condition: impl Fn(&str) -> bool,
    ) -> &mut Self {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let (text, is_complete) = self.wait_for_change();
            if condition(&text) {
                return self;
            }
            if !is_complete && Instant::now() <= deadline {
                self.check_exit();
                continue;
            }
            let why = if is_complete { ", and the program has ended" } else { "" };
            panic!("{failure}{why}:\n{}", frame(&text));
        }
    }

    /// The text after the next change or a short time, and whether no more output can follow.
    fn wait_for_change(&self) -> (String, bool) {
        let state = self.state();
        let text = self.normalize(&visible_rows(state.emulator.screen()));
        let (is_complete, length) = (state.is_complete, state.raw.len());
        drop(state);
        if !is_complete {
            let state = self.state();
            if state.raw.len() == length {
                let waited = self.output.changed.wait_timeout(state, POLL_INTERVAL);
                drop(waited.expect("the lock is not poisoned"));
            }
        }
        (text, is_complete)
    }

    /// Writes the end mark if the process has ended.
    fn check_exit(&mut self) -> Option<ExitStatus> {
        if self.exit_status.is_none() {
            self.exit_status = self.child.try_wait().expect("waiting for a child works");
            if self.exit_status.is_some() {
                self.tty.write_all(END_MARK).expect("a terminal can be written");
            }
        }
        self.exit_status
    }

    /// The visible screen without trailing blanks and empty rows; paths as in [`Story::normalize_paths`].
    pub(crate) fn text(&self) -> String {
        let rows = visible_rows(self.state().emulator.screen());
        self.normalize(&rows)
    }

    /// The visible part of a conversation from its first prompt on, without what depends on the length of temporary
    /// paths: the lines before it, and the numbers of tokens that are sent.
    pub(crate) fn conversation(&self) -> String {
        let text = self.text();
        let start = text.find("\n> ").map_or(0, |at| at + 1);
        let counts = Regex::new(r"\d+% context · [\d.]+k in").expect("it is a pattern");
        counts.replace_all(&text[start..], "9% context · 9k in").into_owned()
    }

    /// The visible rows that the terminal has wrapped, because the program did not.
    pub(crate) fn wrapped_rows(&self) -> Vec<String> {
        let state = self.state();
        let screen = state.emulator.screen();
        let rows = visible_rows(screen).into_iter().zip(0..);
        rows.filter(|(_, number)| screen.row_wrapped(*number)).map(|(text, _)| text).collect()
    }

    /// Like [`Self::text`], with the scrollback before it.
    pub(crate) fn text_with_scrollback(&self) -> String {
        let mut state = self.state();
        let screen = state.emulator.screen_mut();
        let mut rows = Vec::new();
        screen.set_scrollback(usize::MAX);
        for above in (1..=screen.scrollback()).rev() {
            screen.set_scrollback(above);
            rows.extend(screen.rows(0, u16::MAX).next());
        }
        screen.set_scrollback(0);
        rows.extend(visible_rows(screen));
        drop(state);
        self.normalize(&rows)
    }

    /// Like [`Self::text`], with marks around coloured or bold text: `«bold red:words»`.
    pub(crate) fn styled(&self) -> String {
        let state = self.state();
        let screen = state.emulator.screen();
        let (rows, columns) = screen.size();
        let row = |row| {
            let cells = (0..columns.get()).filter_map(move |column| screen.cell(row, column));
            mark_styles(cells)
        };
        let rows: Vec<String> = (0..rows.get()).map(row).collect();
        drop(state);
        self.normalize(&rows)
    }

    fn normalize(&self, rows: &[String]) -> String {
        let rows: Vec<&str> = rows.iter().map(|row| row.trim_end()).collect();
        let text = self.story.normalize_paths(&rows.join("\n"));
        text.trim_end().to_owned()
    }

    /// All received bytes, unchanged.
    pub(crate) fn raw(&self) -> Vec<u8> {
        self.state().raw.clone()
    }

    /// The row and the column of the cursor, from 0.
    pub(crate) fn cursor(&self) -> (u16, u16) {
        self.state().emulator.screen().cursor_position()
    }

    /// Compares `text` with `tests/screens/NAME.txt`, and where it has styles, its picture with `NAME.svg`. `.ci/renew`
    /// writes both anew.
    #[track_caller]
    pub(crate) fn snapshot(&self, name: &str, text: &str) {
        compare(name, text);
    }

    /// The current terminal settings.
    pub(crate) fn settings(&self) -> TermiosSettings {
        read_settings(&self.pty_controller)
    }

    /// Sets cooked mode: the kernel echoes and edits input, as a shell expects when it starts another program.
    pub(crate) fn set_cooked_mode(&self) {
        let mut settings = tcgetattr(&self.pty_controller).expect("it is a terminal");
        settings.local_modes |= LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG;
        tcsetattr(&self.pty_controller, OptionalActions::Now, &settings).expect("it is ours");
    }

    /// Asserts that the terminal is as before the start: its settings, and the modes that a program can set.
    #[track_caller]
    pub(crate) fn assert_restored(&self) {
        assert_eq!(self.settings(), self.initial_settings, "the terminal's settings");
        let state = self.state();
        let screen = state.emulator.screen();
        assert!(!screen.hide_cursor(), "the cursor is hidden");
        assert!(!screen.bracketed_paste(), "bracketed paste is on");
        assert!(!screen.alternate_screen(), "the alternate screen is on");
        assert!(!screen.application_cursor(), "application cursor keys are on");
        assert!(!screen.application_keypad(), "the application keypad is on");
        assert_eq!(
            screen.mouse_protocol_mode(),
            vt100::MouseProtocolMode::None,
            "mouse reporting is on"
        );
        assert_eq!(screen.attributes_formatted(), "\u{1b}[m", "a style is left on");
    }

    /// The process id of the program.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal to the program only.
    pub(crate) fn signal(&mut self, signal: Signal) -> &mut Self {
        kill_process(Pid::from_child(&self.child), signal).expect("it is ours");
        self
    }

    /// Kills the program with SIGKILL.
    pub(crate) fn kill(&mut self) -> ExitStatus {
        self.signal(Signal::KILL);
        self.exit()
    }

    /// Waits until the program has ended and all its output has arrived.
    #[track_caller]
    pub(crate) fn exit(&mut self) -> ExitStatus {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let ended = self.check_exit();
            let (text, is_complete) = self.wait_for_change();
            match ended {
                Some(status) if is_complete => return status,
                _ if Instant::now() > deadline => {
                    panic!("the program does not end:\n{}", frame(&text))
                }
                _ => {}
            }
        }
    }

    /// Like [`Self::exit`], as an exit status of a shell: 128 plus the number of a signal.
    #[track_caller]
    pub(crate) fn code(&mut self) -> i32 {
        let status = self.exit();
        let signal = status.signal().map(|signal| 128 + signal);
        status.code().or(signal).expect("it has ended")
    }

    /// Exits the REPL, and asserts that it leaves the terminal as it was.
    #[track_caller]
    pub(crate) fn exit_with_ctrl_d(&mut self) {
        self.press(Key::Ctrl('d'));
        assert_eq!(self.code(), 0, "{}", self.text_with_scrollback());
        self.assert_restored();
    }

    fn state(&self) -> MutexGuard<'_, TerminalState> {
        self.output.state.lock().expect("the lock is not poisoned")
    }
}

impl Drop for Screen<'_> {
    fn drop(&mut self) {
        // A program that still runs is killed, and its session ends with its terminal.
        if self.exit_status.is_none() && self.child.kill().is_ok() {
            drop(self.child.wait());
        }
    }
}

/// Stores the output, and replies to terminal queries.
fn feed_emulator(mut reader: File, screen_output: &TerminalOutput, keyboard: &Sender<Vec<u8>>) {
    let mut bytes = [0; 64 << 10];
    // Reading fails once the last program has ended.
    while let Ok(count @ 1..) = reader.read(&mut bytes) {
        let mut state = screen_output.state.lock().expect("the lock is not poisoned");
        state.emulator.process(&bytes[..count]);
        state.raw.extend_from_slice(&bytes[..count]);
        let from = state.raw.len().saturating_sub(count + END_MARK.len());
        if let Some(at) = memchr::memmem::find(&state.raw[from..], END_MARK) {
            // Output of processes that outlive the program is preserved.
            state.raw.drain(from + at..from + at + END_MARK.len());
            state.is_complete = true;
        }
        let replies = std::mem::take(&mut state.emulator.callbacks_mut().0);
        drop(state);
        screen_output.changed.notify_all();
        if !replies.is_empty() && keyboard.send(replies).is_err() {
            return;
        }
    }
}

fn winsize((rows, columns): (u16, u16)) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

fn nonzero((rows, columns): (u16, u16)) -> (NonZeroU16, NonZeroU16) {
    let size = |number| NonZeroU16::new(number).expect("a screen has a size");
    (size(rows), size(columns))
}

fn read_settings(glass: &OwnedFd) -> TermiosSettings {
    TermiosSettings(format!("{:#?}", tcgetattr(glass).expect("it is a terminal")))
}

fn visible_rows(screen: &vt100::Screen) -> Vec<String> {
    screen.rows(0, u16::MAX).collect()
}

/// The text of the screen before and after the cursor, with line ends only where the program has written some.
fn logical_lines(screen: &vt100::Screen) -> (String, String) {
    let (rows, columns) = screen.size();
    let (row, column) = screen.cursor_position();
    let text = |from: (u16, u16), to: (u16, u16)| {
        let mut text = String::new();
        for row in from.0..=to.0 {
            let start = if row == from.0 { from.1 } else { 0 };
            let end = if row == to.0 { to.1 } else { columns.get() };
            let part: String =
                screen.rows(start, end.saturating_sub(start)).nth(row.into()).unwrap_or_default();
            text.push_str(&part);
            if row < to.0 && !screen.row_wrapped(row) {
                text.push_str("\r\n");
            }
        }
        text
    };
    let before = text((0, 0), (row, column));
    let after = text((row, column), (rows.get() - 1, columns.get()));
    (before, after.trim_end().to_owned())
}

/// Compares `text` as [`Screen::snapshot`] does.
#[track_caller]
pub(crate) fn compare(name: &str, text: &str) {
    let text = format!("{}\n", mask_times(text));
    assert_recorded(&format!("tests/screens/{name}.txt"), &text);
    if text.contains('«') {
        assert_recorded(&format!("tests/screens/{name}.svg"), &picture::render(&text));
    }
}

/// Text with a left border, for failure messages.
fn frame(text: &str) -> String {
    text.lines().map(|row| format!("  | {row}\n")).collect()
}

/// Text with `9 s` for each duration.
pub(crate) fn mask_times(text: &str) -> String {
    let times = Regex::new(r"\b(\d+ min )?\d+(\.\d+)? (ms|s)\b").expect("it is a pattern");
    times.replace_all(text, "9 s").into_owned()
}

/// A row with style marks.
fn mark_styles<'c>(cells: impl Iterator<Item = &'c vt100::Cell>) -> String {
    let (mut row, mut open) = (String::new(), String::new());
    for cell in cells.filter(|cell| !cell.is_wide_continuation()) {
        let style = style_of(cell);
        if style != open {
            row.push_str(if open.is_empty() { "" } else { "»" });
            if !style.is_empty() {
                write!(row, "«{style}:").expect("writing to a string cannot fail");
            }
            open = style;
        }
        row.push_str(if cell.has_contents() { cell.contents() } else { " " });
    }
    row.push_str(if open.is_empty() { "" } else { "»" });
    row
}

fn style_of(cell: &vt100::Cell) -> String {
    let flags = [
        (cell.bold(), "bold"),
        (cell.dim(), "dim"),
        (cell.italic(), "italic"),
        (cell.underline(), "underlined"),
        (cell.inverse(), "inverse"),
    ];
    let flags = flags.iter().filter(|(is, _)| *is);
    let mut names: Vec<String> = flags.map(|(_, name)| (*name).to_owned()).collect();
    names.extend(color_of(cell.fgcolor()));
    names.extend(color_of(cell.bgcolor()).map(|color| format!("on {color}")));
    names.join(" ")
}

fn color_of(color: Color) -> Option<String> {
    const NAMES: [&str; 8] =
        ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];
    match color {
        Color::Default => None,
        Color::Idx(number @ 0..8) => Some(NAMES[usize::from(number)].into()),
        Color::Idx(number @ 8..16) => Some(format!("bright {}", NAMES[usize::from(number - 8)])),
        Color::Idx(number) => Some(format!("color {number}")),
        Color::Rgb(red, green, blue) => Some(format!("#{red:02x}{green:02x}{blue:02x}")),
    }
}

fn shell_screen<'a>(story: &'a Story, script: &str) -> Screen<'a> {
    story.screen(5, 20).program("sh", ["-c", script])
}

#[test]
fn a_screen_shows_output_and_sends_input() {
    let story = Story::bare();
    let mut screen = shell_screen(&story, "printf 'name? '; read name; echo \"hello $name\"; pwd");
    screen.until("name?").type_("Ada").press(Key::Enter);
    assert_eq!(screen.code(), 0);
    assert_eq!(screen.text(), "name? Ada\nhello Ada\n$DIR");
    screen.assert_restored();
    let mut screen = shell_screen(&story, "seq 9");
    screen.exit();
    assert_eq!(screen.text(), "6\n7\n8\n9");
    assert_eq!(screen.text_with_scrollback(), "1\n2\n3\n4\n5\n6\n7\n8\n9");
    assert_eq!(screen.cursor(), (4, 0));
    assert!(screen.raw().starts_with(b"1\r\n2\r\n"));
}

#[test]
fn our_program_restores_the_terminal() {
    let story = Story::bare();
    let mut screen = story.screen(24, 80).args(["--version"]);
    assert_eq!(screen.code(), 0);
    assert!(screen.text().starts_with("nanobot "), "{}", screen.text());
    screen.assert_restored();
}

#[test]
fn a_screen_has_colours_and_reports_its_cursor() {
    let story = Story::bare();
    let script = r"stty -icanon -echo; printf 'a \033[1;31mb c\033[0m 日本 \033[38;5;200;4md\033[m\033[6n'; head -c 6 | od -An -c";
    let mut screen = shell_screen(&story, script);
    screen.exit();
    screen.snapshot("screen", &screen.styled());
    assert_ne!(screen.settings(), screen.initial_settings);
    assert_eq!(mask_times("in 0.3 s, 12 ms, 1 min 2 s"), "in 9 s, 9 s, 9 s");
}

#[test]
fn a_screen_is_the_controlling_terminal() {
    let story = Story::bare();
    let watch = "trap 'stty size; exit 7' WINCH; trap 'echo int' INT; echo ready; while :; do sleep 0.01; done";
    let mut screen = shell_screen(&story, watch);
    screen.until("ready").press(Key::Ctrl('c'));
    screen.until("int").resize(7, 30);
    assert_eq!(screen.code(), 7);
    assert!(screen.text().ends_with("7 30"), "{}", screen.text());
    let mut screen = shell_screen(&story, "echo ready; tput clear; echo steady; exec sleep 1000");
    screen.until("steady").until_gone("ready");
    assert_eq!(screen.kill().signal(), Some(9));
    let mut screen =
        story.screen(30, 40).env("WORD", "two").program("sh", ["-c", "echo $WORD; exec cat -A"]);
    screen.until("two").paste("x\ny\n").until("^[[201~");
    for (key, sequence) in [
        (Key::Up, "^[[A"),
        (Key::Down, "^[[B"),
        (Key::Right, "^[[C"),
        (Key::Left, "^[[D"),
        (Key::Home, "^[[H"),
        (Key::End, "^[[F"),
        (Key::Delete, "^[[3~"),
        (Key::Alt('b'), "^[b"),
        (Key::Escape, "^["),
        (Key::Ctrl('a'), "^A"),
    ] {
        let line = format!("[{sequence}]$");
        screen.type_("[").press(key).type_("]").press(Key::Enter);
        screen.until(&line);
    }
    screen.type_("ab").press(Key::Backspace).press(Key::Tab);
    screen.type_("c").press(Key::Enter).until("a^Ic$");
    assert_eq!(screen.signal(Signal::TERM).code(), 128 + 15);
}
