//! What can end a run from outside: hang-up, Ctrl-C, termination, and the end of `--timeout`. One state, which every
//! wait of the program looks at; no thread, and no work in a handler.
//!
//! A signal is remembered, and wakes whoever waits. The run then ends as any failing run does: requests are
//! dropped, children ended, the log closed; and last the process dies by the same signal, so that a shell sees the truth.
//! A second Ctrl-C ends it at once. A signal that was ignored when the program started, as under `nohup`, stays ignored.

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

/// The signals that end a run, and the status each stands for. Of several that came the first one here counts: only a Ctrl-C
/// can be forgiven, so it hides none of the others.
const ENDING: [(i32, Exit); 3] = [
    (SIGHUP, Exit::HangUp),
    (SIGTERM, Exit::Terminated),
    (SIGINT, Exit::Interrupted),
];

/// The longest single sleep, and so the most that a stop can be misjudged by.
const SLICE: Duration = Duration::from_secs(1);
/// What a run that is ending may still wait, for a lock or for a slow reader.
const LAST: Duration = Duration::from_secs(2);

/// Whether each of [`ENDING`] came.
static CAME: [AtomicBool; ENDING.len()] = [const { AtomicBool::new(false) }; ENDING.len()];
/// The next Ctrl-C kills.
static HARD: AtomicBool = AtomicBool::new(false);
/// The process was stopped, as by Ctrl-Z, and goes on. (While the machine sleeps, the clock that we use stands still.)
static RESUMED: AtomicBool = AtomicBool::new(false);
/// How long it was stopped in all, in milliseconds.
static STOPPED: AtomicU64 = AtomicU64::new(0);
/// When [`check`] was last asked, in milliseconds of [`START`].
static LOOKED: AtomicU64 = AtomicU64::new(0);
static START: OnceLock<Instant> = OnceLock::new();
static BELL: OnceLock<Option<UnixStream>> = OnceLock::new();
/// When `--timeout` ends, as [`now`] tells it.
static END: OnceLock<Duration> = OnceLock::new();
/// Until when what follows the end of `--timeout` may take, as [`now`] tells it.
static OVERTIME: OnceLock<Duration> = OnceLock::new();
/// Since when the run is ending, as [`now`] tells it.
static ENDS: Mutex<Option<Duration>> = Mutex::new(None);

/// From now on a signal ends the run in order, and so does the end of `timeout`. Before, the system's own way is right.
///
/// # Errors
/// No descriptors are left.
pub fn arm(timeout: Option<Duration>) -> std::io::Result<()> {
    let start = now();
    if let Some(timeout) = timeout {
        END.get_or_init(|| start.saturating_add(timeout));
    }
    flag::register(SIGCONT, &RESUMED)?;
    let ignored = ignored();
    let mut ours = Vec::with_capacity(ENDING.len());
    for ((signal, _), came) in ENDING.into_iter().zip(&CAME) {
        if ignored & (1 << (signal - 1)) != 0 {
            continue;
        }
        if signal == SIGINT {
            flag::register_conditional_default(signal, &HARD)?;
        }
        flag::register(signal, came)?;
        ours.push(signal);
    }
    let (bell, hammer) = UnixStream::pair()?;
    BELL.get_or_init(|| bell.try_clone().ok());
    // Never dropped: that would take the handlers back. What it writes is never read: the bell goes on ringing.
    std::mem::forget(SignalDelivery::with_pipe(bell, hammer, SignalOnly, &ours)?);
    Ok(())
}

/// Run `work`, during which a person sits at another program: Ctrl-C and Ctrl-\ mean that one and not us. We take them
/// and do nothing, instead of ignoring them, since only that ends with an exec: the other program has the system's own way
/// with them. After it, what [`arm`] does is right.
///
/// # Errors
/// The system takes no handler, or no descriptors are left.
pub fn left_to_another<T>(work: impl FnOnce() -> T) -> std::io::Result<T> {
    static OVER: AtomicBool = AtomicBool::new(false);
    let ignored = ignored();
    for signal in [SIGINT, SIGQUIT] {
        if ignored & (1 << (signal - 1)) == 0 {
            // What is taken once is never given back; Ctrl-C is told to `arm` then.
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

/// The signals that were ignored when the program started, a bit for each.
fn ignored() -> u64 {
    // In one read: the file says of itself that it is empty, and grows while it is read.
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

/// Whether the run is to go on.
///
/// # Errors
/// A signal came, or the time is up, or this thread's leash was cut; also, once the run is ending, when its last words take
/// too long.
pub fn check() -> Result<(), Stop> {
    look();
    // No word of the run's: whoever cut it knows why.
    if leash::held().is_some_and(|leash| leash.is_cut()) {
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
            // While children run, whoever waits for them ends them first.
            if children::is_alone() {
                HARD.store(true, Ordering::SeqCst);
            }
            Err(Stop(exit))
        }
    }
}

/// The status of the signal that came.
fn came() -> Option<Exit> {
    let mut all = ENDING.into_iter().zip(&CAME);
    let found = all.find(|(_, came)| came.load(Ordering::SeqCst));
    found.map(|((_, exit), _)| exit)
}

/// Note that a Ctrl-C came, or forget it.
fn set_interrupted(value: bool) {
    for ((signal, _), came) in ENDING.into_iter().zip(&CAME) {
        if signal == SIGINT {
            came.store(value, Ordering::SeqCst);
        }
    }
}

/// Why the run ends.
fn ending() -> Exit {
    came().unwrap_or(Exit::Timeout)
}

/// The run is ending, for whatever cause: waits work again, for a moment, so that it can say its last words.
pub fn last_words() {
    HARD.store(true, Ordering::SeqCst);
    if check().is_err() {
        ends().get_or_insert_with(now);
    }
}

fn ends() -> MutexGuard<'static, Option<Duration>> {
    ENDS.lock().ignore_poison()
}

/// What came so far ended one turn of a conversation, which goes on: a Ctrl-C is forgotten.
///
/// # Errors
/// What came ends the conversation too.
pub fn forgive() -> Result<(), Stop> {
    if let Some(exit) = came().filter(|exit| *exit != Exit::Interrupted) {
        return Err(Stop(exit));
    }
    set_interrupted(false);
    HARD.store(false, Ordering::SeqCst);
    *ends() = None;
    if let Some(bell) = BELL.get().and_then(Option::as_ref) {
        let mut rung = [0; 64];
        let quiet = rustix::net::RecvFlags::DONTWAIT;
        while rustix::net::recv(bell, &mut rung, quiet).is_ok_and(|(_, count)| count > 0) {}
    }
    // One that came meanwhile has lost its bell, and is seen here.
    match came() {
        None => Ok(()),
        Some(Exit::Interrupted) => forgive(),
        Some(exit) => Err(Stop(exit)),
    }
}

/// The time of `--timeout` is over, and what ends the run has told so: what is still to be done has so much time. A signal ends
/// that too.
pub fn overtime(limit: Duration) {
    OVERTIME.get_or_init(|| now().saturating_add(limit));
}

/// As if a Ctrl-C had come: whoever reads the terminal itself has seen one.
pub fn interrupt() {
    set_interrupted(true);
}

/// Die by the signal that `exit` stands for. Returns when it stands for none.
pub fn die_by(exit: Exit) {
    if let Some((signal, _)) = ENDING.into_iter().find(|(_, stands)| *stands == exit) {
        // It does not return; and if it did, the status would tell.
        drop(low_level::emulate_default_handler(signal));
    }
}

/// Time that has passed for this process: it stands still while the process is stopped.
pub fn now() -> Duration {
    let start = START.get_or_init(Instant::now);
    look();
    let stopped = Duration::from_millis(STOPPED.load(Ordering::Relaxed));
    start.elapsed().saturating_sub(stopped)
}

/// Take the time. Whether the process was stopped since this was done last; that time counts for no limit.
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

/// What is left of `--timeout`.
fn left() -> Option<Duration> {
    Some(END.get()?.saturating_sub(now()))
}

/// How long something may take, in time that the process really waited.
#[derive(Clone, Copy, Debug)]
pub struct Patience(Option<Duration>);

impl Patience {
    /// Until [`now`] is `end`.
    pub fn until(end: Duration) -> Self {
        Self::of(end.saturating_sub(now()))
    }

    /// Without end.
    pub fn endless() -> Self {
        Self(None)
    }

    pub fn of(limit: Duration) -> Self {
        Self(Some(limit))
    }

    /// A zero, which stands for no limit in the config.
    pub fn unless_zero(limit: Duration) -> Self {
        Self((!limit.is_zero()).then_some(limit))
    }

    pub fn is_over(self) -> bool {
        self.0.is_some_and(|left| left.is_zero())
    }

    /// The smaller one of both.
    pub fn min(self, other: Self) -> Self {
        Self(self.0.into_iter().chain(other.0).min())
    }

    /// An equal part of it for each of `parts`.
    pub fn share(self, parts: u32) -> Self {
        Self(self.0.map(|left| left / parts.max(1)))
    }

    /// What has been used of it when `rest` is left.
    pub fn used(self, rest: Self) -> Duration {
        let both = self.0.zip(rest.0);
        both.map_or(Duration::ZERO, |(before, now)| before.saturating_sub(now))
    }

    /// Take `spent` off.
    pub fn spend(&mut self, spent: Duration) {
        self.0 = self.0.map(|left| left.saturating_sub(spent));
    }
}

static BEFORE_WAIT: OnceLock<fn() -> Option<Duration>> = OnceLock::new();

/// Have `hook` called before each wait of this process; the wait is no longer than the time that it returns. The first hook
/// stays.
pub(super) fn set_before_wait(hook: fn() -> Option<Duration>) {
    BEFORE_WAIT.get_or_init(|| hook);
}

fn before_wait() -> Option<Duration> {
    BEFORE_WAIT.get().and_then(|hook| hook())
}

/// Wait until one of `fds` is ready: `Some` of its number, or `None` when `patience` is over. What was waited is spent.
///
/// # Errors
/// As [`check`].
pub fn wait(
    fds: &[(BorrowedFd<'_>, PollFlags)],
    patience: &mut Patience,
) -> Result<Option<usize>, Stop> {
    let leash = leash::held();
    loop {
        check()?;
        let mut slice = patience.0.unwrap_or(SLICE).min(SLICE);
        slice = slice.min(before_wait().unwrap_or(slice));
        let mut all: Vec<PollFd<'_>> = Vec::with_capacity(fds.len() + 2);
        all.extend(
            fds.iter()
                .map(|(fd, flags)| PollFd::from_borrowed_fd(*fd, *flags)),
        );
        if ends().is_none() {
            slice = slice.min(left().unwrap_or(slice));
            let bell = BELL.get().and_then(Option::as_ref);
            all.extend(bell.map(|bell| PollFd::new(bell, PollFlags::IN)));
        }
        let bell = leash.as_deref().map(|leash| &leash.bell);
        all.extend(bell.map(|bell| PollFd::new(bell, PollFlags::IN)));
        let timeout = Timespec::try_from(slice).expect("a second fits a timespec");
        let before = Instant::now();
        // Should it fail for want of memory, the caller's own call will tell.
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
        // Not more than was asked for: the rest was no waiting.
        patience.spend(if woken == Ok(0) {
            slice
        } else {
            waited.min(slice)
        });
        if patience.is_over() {
            return Ok(None);
        }
    }
}

/// Wait until `fd` can be read.
///
/// # Errors
/// As [`check`].
pub fn readable(fd: impl AsFd, patience: &mut Patience) -> Result<bool, Stop> {
    Ok(wait(&[(fd.as_fd(), PollFlags::IN)], patience)?.is_some())
}

/// Wait until `fd` takes something.
///
/// # Errors
/// As [`check`].
pub fn writable(fd: impl AsFd, patience: &mut Patience) -> Result<bool, Stop> {
    Ok(wait(&[(fd.as_fd(), PollFlags::OUT)], patience)?.is_some())
}

/// Sleep.
///
/// # Errors
/// As [`check`].
pub fn pause(duration: Duration) -> Result<(), Stop> {
    wait(&[], &mut Patience::of(duration)).map(drop)
}
