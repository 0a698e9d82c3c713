//! External causes that end a run: hang-up, Ctrl-C, termination, and `--timeout`. They are kept in one state, which
//! every wait in the program checks; no thread and no work in a signal handler.
//!
//! A signal is recorded and wakes all waits. The run then ends like any failing run: requests are dropped, children
//! ended, the log closed. Finally the process kills itself with the same signal, for the correct exit status in the
//! shell. A second Ctrl-C kills at once. A signal that was ignored at start, as under `nohup`, stays ignored.

use super::leash;
use super::process::children;
use crate::error::{Exit, Stop};
use crate::sys::sync::IgnorePoison;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;
use signal_hook::{flag, low_level};
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

/// The signals that end a run, with their exit statuses. If several came, the first in this list counts: only a Ctrl-C
/// can be forgiven, so it must not hide the others.
const ENDING: [(i32, Exit); 3] = [
    (SIGHUP, Exit::HangUp),
    (SIGTERM, Exit::Terminated),
    (SIGINT, Exit::Interrupted),
];

/// Maximum length of one sleep, and thus the maximum error in measuring how long the process was stopped.
const SLICE: Duration = Duration::from_secs(1);
/// Time that an ending run may still spend waiting, for example for a lock or a slow reader.
const LAST: Duration = Duration::from_secs(2);

/// Flags for the signals of [`ENDING_SIGNALS`] that have arrived.
static CAME: [AtomicBool; ENDING.len()] = [const { AtomicBool::new(false) }; ENDING.len()];
/// True if the next Ctrl-C kills the process.
static HARD: AtomicBool = AtomicBool::new(false);
/// Set when the process continues after a stop, as by Ctrl-Z. (The monotonic clock does not advance while the machine
/// sleeps.)
static RESUMED: AtomicBool = AtomicBool::new(false);
/// Total time for which the process was stopped, in milliseconds.
static STOPPED: AtomicU64 = AtomicU64::new(0);
/// Time of the last call of [`update_stopped_time`], in milliseconds since [`CLOCK_START`].
static LOOKED: AtomicU64 = AtomicU64::new(0);
/// The origin of the clock of [`now`].
static START: OnceLock<Instant> = OnceLock::new();
/// The wake pipe: readable once a signal has arrived.
static BELL: OnceLock<Option<UnixStream>> = OnceLock::new();
/// Deadline of `--timeout`, on the clock of [`now`].
static END: OnceLock<Duration> = OnceLock::new();
/// Deadline of the work that follows the end of `--timeout`, on the clock of [`now`].
static OVERTIME: OnceLock<Duration> = OnceLock::new();
/// Time at which the run began to end, on the clock of [`now`].
static ENDS: Mutex<Option<Duration>> = Mutex::new(None);

/// Installs the signal handlers and starts `timeout`. Before this call the system's default handling applies.
///
/// # Errors
/// No file descriptors are left.
pub fn arm(timeout: Option<Duration>) -> std::io::Result<()> {
    let start = now();
    if let Some(timeout) = timeout {
        END.get_or_init(|| start.saturating_add(timeout));
    }
    flag::register(SIGCONT, &RESUMED)?;
    let ignored = ignored();
    let mut handled = Vec::with_capacity(ENDING.len());
    for ((signal, _), came) in ENDING.into_iter().zip(&CAME) {
        if ignored & (1 << (signal - 1)) != 0 {
            continue;
        }
        if signal == SIGINT {
            flag::register_conditional_default(signal, &HARD)?;
        }
        flag::register(signal, came)?;
        handled.push(signal);
    }
    let (wake_rx, wake_tx) = UnixStream::pair()?;
    BELL.get_or_init(|| wake_rx.try_clone().ok());
    // Never dropped, since that would remove the handlers. The bytes that it writes are never read, so the wake pipe
    // stays readable.
    std::mem::forget(SignalDelivery::with_pipe(
        wake_rx, wake_tx, SignalOnly, &handled,
    )?);
    Ok(())
}

/// Runs `work` while the user works in another program: Ctrl-C and Ctrl-\ are meant for that program. This process
/// handles them without effect instead of ignoring them, because an exec resets handlers but not ignored signals: the
/// other program thus has the default handling. Afterwards, [`install`] takes effect.
///
/// # Errors
/// The handlers cannot be installed, or no file descriptors are left.
pub fn left_to_another<T>(work: impl FnOnce() -> T) -> std::io::Result<T> {
    static OVER: AtomicBool = AtomicBool::new(false);
    let ignored = ignored();
    for signal in [SIGINT, SIGQUIT] {
        if ignored & (1 << (signal - 1)) == 0 {
            // These handlers are never removed. From `install` on, its own handler receives Ctrl-C.
            static NEVER: AtomicBool = AtomicBool::new(false);
            let default = if signal == SIGQUIT { &OVER } else { &NEVER };
            flag::register_conditional_default(signal, default)?;
        }
    }
    let done = work();
    arm(None)?;
    OVER.store(true, Ordering::SeqCst);
    Ok(done)
}

/// Returns the signals that were ignored at start, as a bit mask.
fn ignored() -> u64 {
    // The file must be read in one go: its reported size is zero, and it can grow while being read.
    let mut status = vec![0; 8 << 10];
    let read = std::fs::File::open("/proc/self/status").and_then(|mut file| file.read(&mut status));
    status.truncate(read.unwrap_or(0));
    let mask = String::from_utf8_lossy(&status);
    let mask = mask
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.unwrap_or(0)
}

/// Succeeds while the run may continue.
///
/// # Errors
/// A signal arrived, `--timeout` expired, or this thread was cancelled. If the run is already ending: its closing work
/// exceeds its time limit.
pub fn check() -> Result<(), Stop> {
    look();
    // This does not end the run; the code that cancelled the thread knows the reason.
    if leash::held().is_some_and(|token| token.is_cut()) {
        return Err(Stop(Exit::Interrupted));
    }
    let ends = *ends();
    if let Some(since) = ends {
        let over = OVERTIME.get().filter(|_| came().is_none());
        let waits = now() < *over.unwrap_or(&(since + LAST));
        return if waits { Ok(()) } else { Err(Stop(ending())) };
    }
    match came() {
        None if left().is_none_or(|left| !left.is_zero()) => Ok(()),
        None => Err(Stop(Exit::Timeout)),
        Some(exit) => {
            // While children run, the code that waits for them ends them first.
            if children::is_alone() {
                HARD.store(true, Ordering::SeqCst);
            }
            Err(Stop(exit))
        }
    }
}

/// Returns the exit status of the signal that arrived, if any.
fn came() -> Option<Exit> {
    let mut all = ENDING.into_iter().zip(&CAME);
    let found = all.find(|(_, came)| came.load(Ordering::SeqCst));
    found.map(|((_, exit), _)| exit)
}

/// Records a Ctrl-C, or clears it.
fn set_interrupted(value: bool) {
    for ((signal, _), came) in ENDING.into_iter().zip(&CAME) {
        if signal == SIGINT {
            came.store(value, Ordering::SeqCst);
        }
    }
}

/// Returns the exit status of an ending run.
fn ending() -> Exit {
    came().unwrap_or(Exit::Timeout)
}

/// Marks the run as ending, whatever the cause. Waits work again for a limited time, for final output.
pub fn last_words() {
    HARD.store(true, Ordering::SeqCst);
    if check().is_err() {
        ends().get_or_insert_with(now);
    }
}

fn ends() -> MutexGuard<'static, Option<Duration>> {
    ENDS.lock().ignore_poison()
}

/// Clears a Ctrl-C, which ended one turn of a session that continues.
///
/// # Errors
/// Another signal ends the session too.
pub fn forgive() -> Result<(), Stop> {
    if let Some(exit) = came().filter(|exit| *exit != Exit::Interrupted) {
        return Err(Stop(exit));
    }
    set_interrupted(false);
    HARD.store(false, Ordering::SeqCst);
    *ends() = None;
    if let Some(wake_rx) = BELL.get().and_then(Option::as_ref) {
        let mut buffer = [0; 64];
        let quiet = rustix::net::RecvFlags::DONTWAIT;
        while rustix::net::recv(wake_rx, &mut buffer, quiet).is_ok_and(|(_, count)| count > 0) {}
    }
    // A signal that arrived meanwhile may have lost its wake-up byte; it is noticed here.
    match came() {
        None => Ok(()),
        Some(Exit::Interrupted) => forgive(),
        Some(exit) => Err(Stop(exit)),
    }
}

/// Grants `limit` for the remaining work after `--timeout` has expired and has been reported. A signal ends this time
/// too.
pub fn overtime(limit: Duration) {
    OVERTIME.get_or_init(|| now().saturating_add(limit));
}

/// Records a Ctrl-C that was read from the terminal as a key.
pub fn interrupt() {
    set_interrupted(true);
}

/// Kills the process with the signal that `exit` stands for. Returns if it stands for none.
pub fn die_by(exit: Exit) {
    if let Some((signal, _)) = ENDING.into_iter().find(|(_, status)| *status == exit) {
        // On success this does not return; on failure, the exit status still reports the cause.
        drop(low_level::emulate_default_handler(signal));
    }
}

/// Returns the elapsed time of this process, excluding the time for which it was stopped.
pub fn now() -> Duration {
    let start = START.get_or_init(Instant::now);
    look();
    let stopped = Duration::from_millis(STOPPED.load(Ordering::Relaxed));
    start.elapsed().saturating_sub(stopped)
}

/// Updates the time accounting. Returns true if the process was stopped since the last call; that time does not count
/// towards any limit.
fn look() -> bool {
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let now = START.get().map_or(0, |start| millis(start.elapsed()));
    let before = LOOKED.swap(now, Ordering::Relaxed);
    let stopped = RESUMED.swap(false, Ordering::Relaxed);
    if stopped {
        STOPPED.fetch_add(now.saturating_sub(before), Ordering::Relaxed);
    }
    stopped
}

/// Returns the remaining time of `--timeout`.
fn left() -> Option<Duration> {
    Some(END.get()?.saturating_sub(now()))
}

/// A remaining time limit, which counts only time that the process actually waited.
#[derive(Clone, Copy, Debug)]
pub struct Patience(Option<Duration>);

impl Patience {
    /// Creates a limit that expires when [`now`] reaches `end`.
    pub fn until(end: Duration) -> Self {
        Self::of(end.saturating_sub(now()))
    }

    /// Creates a limit that never expires.
    pub fn endless() -> Self {
        Self(None)
    }

    /// Creates a limit of this duration.
    pub fn of(limit: Duration) -> Self {
        Self(Some(limit))
    }

    /// Creates a limit of this duration; zero means no limit, as in the config.
    pub fn unless_zero(limit: Duration) -> Self {
        Self((!limit.is_zero()).then_some(limit))
    }

    /// True if the limit has expired.
    pub fn is_over(self) -> bool {
        self.0.is_some_and(|left| left.is_zero())
    }

    /// Returns the smaller of the two limits.
    pub fn min(self, other: Self) -> Self {
        Self(self.0.into_iter().chain(other.0).min())
    }

    /// Returns an equal share for each of `parts`.
    pub fn share(self, parts: u32) -> Self {
        Self(self.0.map(|left| left / parts.max(1)))
    }

    /// Returns the time used when `rest` is left.
    pub fn used(self, rest: Self) -> Duration {
        let both = self.0.zip(rest.0);
        both.map_or(Duration::ZERO, |(before, now)| before.saturating_sub(now))
    }

    /// Subtracts `spent`.
    pub fn spend(&mut self, spent: Duration) {
        self.0 = self.0.map(|left| left.saturating_sub(spent));
    }
}

static BEFORE_WAIT: OnceLock<fn() -> Option<Duration>> = OnceLock::new();

/// Sets a hook that is called before each wait of this process; the wait lasts at most the returned duration. The first
/// hook stays.
pub(super) fn set_before_wait(hook: fn() -> Option<Duration>) {
    BEFORE_WAIT.get_or_init(|| hook);
}

fn before_wait() -> Option<Duration> {
    BEFORE_WAIT.get().and_then(|hook| hook())
}

/// Waits until one of `fds` is ready and returns its index; `None` if `deadline` expired. The time waited is subtracted
/// from `deadline`.
///
/// # Errors
/// As [`check`].
pub fn wait(
    fds: &[(BorrowedFd<'_>, PollFlags)],
    deadline: &mut Patience,
) -> Result<Option<usize>, Stop> {
    let token = leash::held();
    loop {
        check()?;
        let mut slice = deadline.0.unwrap_or(SLICE).min(SLICE);
        slice = slice.min(before_wait().unwrap_or(slice));
        let mut all: Vec<PollFd<'_>> = Vec::with_capacity(fds.len() + 2);
        all.extend(
            fds.iter()
                .map(|(fd, flags)| PollFd::from_borrowed_fd(*fd, *flags)),
        );
        if ends().is_none() {
            slice = slice.min(left().unwrap_or(slice));
            let wake_rx = BELL.get().and_then(Option::as_ref);
            all.extend(wake_rx.map(|wake_rx| PollFd::new(wake_rx, PollFlags::IN)));
        }
        let wake_rx = token.as_deref().map(|token| &token.bell);
        all.extend(wake_rx.map(|wake_rx| PollFd::new(wake_rx, PollFlags::IN)));
        let timeout = Timespec::try_from(slice).expect("a second fits a timespec");
        let before = Instant::now();
        // If `poll` fails for lack of memory, the caller's own system call reports it.
        let woken = poll(&mut all, Some(&timeout));
        let waited = before.elapsed();
        let stopped = look();
        let mut all = all[..fds.len()].iter();
        if let Some(ready) = all.position(|fd| !fd.revents().is_empty()) {
            return Ok(Some(ready));
        }
        if stopped {
            continue;
        }
        // At most the requested time counts; the process did not wait for the rest.
        deadline.spend(if woken == Ok(0) {
            slice
        } else {
            waited.min(slice)
        });
        if deadline.is_over() {
            return Ok(None);
        }
    }
}

/// Waits until `fd` is readable; false if `deadline` expired.
///
/// # Errors
/// As [`check`].
pub fn readable(fd: impl AsFd, deadline: &mut Patience) -> Result<bool, Stop> {
    Ok(wait(&[(fd.as_fd(), PollFlags::IN)], deadline)?.is_some())
}

/// Waits until `fd` is writable; false if `deadline` expired.
///
/// # Errors
/// As [`check`].
pub fn writable(fd: impl AsFd, deadline: &mut Patience) -> Result<bool, Stop> {
    Ok(wait(&[(fd.as_fd(), PollFlags::OUT)], deadline)?.is_some())
}

/// Sleeps for `duration`.
///
/// # Errors
/// As [`check`].
pub fn pause(duration: Duration) -> Result<(), Stop> {
    wait(&[], &mut Patience::of(duration)).map(drop)
}
