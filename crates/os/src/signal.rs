//! External causes that end a run: hang-up, Ctrl-C, termination, and `--timeout`. They are kept in one state, which
//! every wait in the program checks; no thread and no work in a signal handler.
//!
//! A signal is recorded and wakes all waits. The run then ends like any failing run: requests are dropped, children
//! ended, the log closed. Finally the process kills itself with the same signal, for the correct exit status in the
//! shell. A second Ctrl-C kills at once. A signal that was ignored at start, as under `nohup`, stays ignored.

use super::cancel;
use super::children;
use nanobot_base::error::{Exit, Stop};
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{
    SIGALRM, SIGCONT, SIGHUP, SIGINT, SIGPROF, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGVTALRM,
    SIGXCPU, SIGXFSZ,
};
use signal_hook::iterator::Signals;
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;
use signal_hook::{flag, low_level};
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The signals that end a run, with their exit statuses. If several arrived, the first in this list is reported: only a
/// Ctrl-C can be cleared ([`clear_interrupt`]), so it must not hide the others.
const ENDING_SIGNALS: [(i32, Exit); 3] =
    [(SIGHUP, Exit::HangUp), (SIGTERM, Exit::Terminated), (SIGINT, Exit::Interrupted)];

/// Length of a sleep that need not be divided. While the process sleeps it does not notice that it was stopped, so the
/// length is the maximum error in measuring for how long.
const WHOLE_WAIT_INTERVAL: Duration = Duration::from_secs(1);
/// The part of a longer time limit that one sleep takes at most: a tradeoff between that error and wakeups.
const WAIT_SHARE: u32 = 4;
/// Time that an ending run may still spend waiting, for example for a lock or a slow reader.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);

/// Flags for the signals of [`ENDING_SIGNALS`] that have arrived.
static RECEIVED: [AtomicBool; ENDING_SIGNALS.len()] =
    [const { AtomicBool::new(false) }; ENDING_SIGNALS.len()];
/// True if the next Ctrl-C kills the process.
static KILL_ON_INTERRUPT: AtomicBool = AtomicBool::new(false);
/// Set when the process continues after a stop, as by Ctrl-Z. (The monotonic clock does not advance while the machine
/// sleeps.)
static RESUMED: AtomicBool = AtomicBool::new(false);
/// Total time for which the process was stopped, in milliseconds, and that was left out.
static STOPPED_MILLIS: AtomicU64 = AtomicU64::new(0);
/// Time of the last call of [`update_stopped_time`], in milliseconds since [`CLOCK_START`].
static LAST_UPDATE_MILLIS: AtomicU64 = AtomicU64::new(0);
/// The origin of the clock of [`now`].
static CLOCK_START: OnceLock<Instant> = OnceLock::new();
/// The wake pipe: readable once a signal has arrived.
static WAKE_RX: OnceLock<&UnixStream> = OnceLock::new();
/// Deadline of `--timeout`, on the clock of [`now`].
static TIMEOUT_AT: OnceLock<Duration> = OnceLock::new();
/// Deadline of the work that follows the end of `--timeout`, on the clock of [`now`].
static EXTRA_TIME_END: OnceLock<Duration> = OnceLock::new();
/// Time at which the run began to end, on the clock of [`now`].
static ENDING_SINCE: Mutex<Option<Duration>> = Mutex::new(None);

/// Installs the signal handlers and starts `timeout`. Before this call the system's default handling applies. May be called
/// again: the first timeout stays, and further handlers do the same as the first.
///
/// # Errors
/// No file descriptors are left.
pub fn install(timeout: Option<Duration>) -> std::io::Result<()> {
    let start = now();
    if let Some(timeout) = timeout {
        TIMEOUT_AT.get_or_init(|| start.saturating_add(timeout));
    }
    flag::register(SIGCONT, &RESUMED)?;
    // A write beyond the limit of file sizes (`ulimit -f`) then fails with an error, instead of killing the process.
    // Children get the default handling back.
    static SIZE_EXCEEDED: AtomicBool = AtomicBool::new(false);
    flag::register(SIGXFSZ, &SIZE_EXCEEDED)?;
    let ignored = ignored_signals("self");
    let mut handled = Vec::with_capacity(ENDING_SIGNALS.len());
    for ((signal, _), received) in ENDING_SIGNALS.into_iter().zip(&RECEIVED) {
        if ignored & (1 << (signal - 1)) != 0 {
            continue;
        }
        if signal == SIGINT {
            flag::register_conditional_default(signal, &KILL_ON_INTERRUPT)?;
        }
        flag::register(signal, received)?;
        handled.push(signal);
    }
    let (wake_rx, wake_tx) = UnixStream::pair()?;
    // Never dropped, since that would remove the handlers. The bytes that it writes are never read, so the wake pipe
    // stays readable.
    let delivery = SignalDelivery::with_pipe(wake_rx, wake_tx, SignalOnly, &handled)?;
    let delivery: &'static SignalDelivery<_, _> = Box::leak(Box::new(delivery));
    WAKE_RX.get_or_init(|| delivery.get_read());
    Ok(())
}

/// Runs `work` while the user works in another program: Ctrl-C and Ctrl-\ are meant for that program. This process
/// handles them without effect instead of ignoring them, because an exec resets handlers but not ignored signals: the
/// other program thus has the default handling. Afterwards, [`install`] takes effect.
///
/// # Errors
/// The handlers cannot be installed, or no file descriptors are left.
pub fn with_foreground_child<T>(work: impl FnOnce() -> T) -> std::io::Result<T> {
    static IS_OVER: AtomicBool = AtomicBool::new(false);
    let ignored = ignored_signals("self");
    for signal in [SIGINT, SIGQUIT] {
        if ignored & (1 << (signal - 1)) == 0 {
            // These handlers are never removed. From `install` on, its own handler receives Ctrl-C.
            static NEVER: AtomicBool = AtomicBool::new(false);
            let default = if signal == SIGQUIT { &IS_OVER } else { &NEVER };
            flag::register_conditional_default(signal, default)?;
        }
    }
    let output = work();
    install(None)?;
    IS_OVER.store(true, Ordering::SeqCst);
    Ok(output)
}

/// Other signals whose default handling ends the process.
const DEADLY_SIGNALS: [i32; 7] = [SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGXCPU];

/// Starts a thread that calls `prepare` when one of the signals arrives that end the process at once, such as SIGQUIT, which Ctrl-\
/// sends; the signal then has its default effect.
///
/// # Errors
/// The handlers cannot be installed.
pub fn prepare_for_deadly_signals(prepare: fn()) -> std::io::Result<()> {
    // The kernel kills the first process of a container by none of them.
    if rustix::process::getpid().is_init() {
        return Ok(());
    }
    let ignored = ignored_signals("self");
    let is_handled = |signal: &&i32| ignored & (1 << (**signal - 1)) == 0;
    let mut signals = Signals::new(DEADLY_SIGNALS.iter().filter(is_handled))?;
    let handle = move || {
        for signal in signals.forever() {
            if signal == SIGQUIT && HAS_FOREGROUND_PROGRAM.load(Ordering::SeqCst) {
                continue;
            }
            prepare();
            // On success this does not return.
            drop(low_level::emulate_default_handler(signal));
        }
    };
    std::thread::Builder::new().name("deadly-signals".into()).spawn(handle).map(drop)
}

/// True while another program uses the terminal.
static HAS_FOREGROUND_PROGRAM: AtomicBool = AtomicBool::new(false);

/// Runs `work` while another program uses the terminal: a Ctrl-\ is meant for that program.
pub fn with_foreground_program<T>(work: impl FnOnce() -> T) -> T {
    HAS_FOREGROUND_PROGRAM.store(true, Ordering::SeqCst);
    let output = work();
    HAS_FOREGROUND_PROGRAM.store(false, Ordering::SeqCst);
    output
}

/// True if the process `pid` ignores an interrupt: a shell without job control starts commands in the background so.
pub fn ignores_interrupt(pid: u32) -> bool {
    ignored_signals(&pid.to_string()) & (1 << (SIGINT - 1)) != 0
}

/// Returns the signals that `process`, an entry of `/proc`, ignores, as a bit mask.
fn ignored_signals(process: &str) -> u64 {
    // The file must be read in one go: its reported size is zero, and it can grow while being read.
    let mut status = [0; 8 << 10];
    let file = std::fs::File::open(format!("/proc/{process}/status"));
    let count = file.and_then(|mut file| file.read(&mut status));
    String::from_utf8_lossy(&status[..count.unwrap_or(0)])
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}

/// Succeeds while the run may continue.
///
/// # Errors
/// A signal arrived, `--timeout` expired, or this thread was cancelled. If the run is already ending, its closing work exceeds its time
/// limit.
pub fn check() -> Result<(), Stop> {
    update_stopped_time();
    // This does not end the run; the code that cancelled the thread knows the reason.
    if cancel::current().is_some_and(|token| token.is_cancelled()) {
        return Err(Stop(Exit::Interrupted));
    }
    if cancel::is_shielded() {
        return Ok(());
    }
    if let Some(left) = closing_time_left() {
        return if left.is_zero() { Err(Stop(ending_exit())) } else { Ok(()) };
    }
    match received_exit() {
        None if timeout_left().is_none_or(|left| !left.is_zero()) => Ok(()),
        None => Err(Stop(Exit::Timeout)),
        Some(exit) => {
            // While children run, the code that waits for them ends them first.
            if children::has_no_commands() {
                KILL_ON_INTERRUPT.store(true, Ordering::SeqCst);
            }
            Err(Stop(exit))
        }
    }
}

/// The remaining time for the closing work; `None` if the run is not ending.
fn closing_time_left() -> Option<Duration> {
    let since = (*ENDING_SINCE.lock())?;
    let mut end = since + SHUTDOWN_GRACE;
    if received_exit().is_none()
        && let Some(extra_time_end) = EXTRA_TIME_END.get()
    {
        end = *extra_time_end;
    }
    Some(end.saturating_sub(now()))
}

/// Returns the exit status of the signal that arrived, if any.
fn received_exit() -> Option<Exit> {
    let mut signals = ENDING_SIGNALS.into_iter().zip(&RECEIVED);
    signals.find_map(|((_, exit), received)| received.load(Ordering::SeqCst).then_some(exit))
}

/// Records a Ctrl-C, or clears it.
fn set_interrupted(is_interrupted: bool) {
    for ((signal, _), received) in ENDING_SIGNALS.into_iter().zip(&RECEIVED) {
        if signal == SIGINT {
            received.store(is_interrupted, Ordering::SeqCst);
        }
    }
}

/// Returns the exit status of an ending run.
fn ending_exit() -> Exit {
    received_exit().unwrap_or(Exit::Timeout)
}

/// If a signal has arrived or the time is over, lets waits work again for a limited time, for the final output of the run.
/// Otherwise, or if only this thread was cancelled, the run goes on. In any case the next Ctrl-C kills the process.
pub fn begin_shutdown_if_stopped() {
    KILL_ON_INTERRUPT.store(true, Ordering::SeqCst);
    if cancel::scope(None, check).is_err() {
        ENDING_SINCE.lock().get_or_insert_with(now);
    }
}

/// Clears a Ctrl-C, which ended one turn of a session that continues.
///
/// # Errors
/// Another signal ends the session too.
pub fn clear_interrupt() -> Result<(), Stop> {
    if let Some(exit) = received_exit().filter(|exit| *exit != Exit::Interrupted) {
        return Err(Stop(exit));
    }
    set_interrupted(false);
    KILL_ON_INTERRUPT.store(false, Ordering::SeqCst);
    *ENDING_SINCE.lock() = None;
    if let Some(wake_rx) = WAKE_RX.get() {
        let mut buffer = [0; 64];
        let flags = rustix::net::RecvFlags::DONTWAIT;
        while rustix::net::recv(wake_rx, &mut buffer, flags).is_ok_and(|(_, count)| count > 0) {}
    }
    // A signal that arrived meanwhile may have lost its wake-up byte; it is noticed here.
    match received_exit() {
        None => Ok(()),
        Some(Exit::Interrupted) => clear_interrupt(),
        Some(exit) => Err(Stop(exit)),
    }
}

/// Grants `limit` for the remaining work after `--timeout` has expired and has been reported. A signal ends this time
/// too.
pub fn grant_extra_time(limit: Duration) {
    EXTRA_TIME_END.get_or_init(|| now().saturating_add(limit));
}

/// Leaves `duration`, which has just passed, out of all time limits: it was spent on something that is not a part of the run.
pub fn leave_out(duration: Duration) {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    STOPPED_MILLIS.fetch_add(millis, Ordering::Relaxed);
}

/// Sends this process a Ctrl-C, for another key that stops a turn. A second one would kill the process, so nothing is sent while
/// one is being handled.
pub fn interrupt_once() {
    if received_exit() != Some(Exit::Interrupted) {
        // A process can always signal itself.
        let _: Result<_, _> =
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::INT);
    }
}

/// Records a Ctrl-C that was read from the terminal as a key.
pub fn record_interrupt() {
    set_interrupted(true);
}

/// Kills the process with the signal of the status `exit`. Returns if there is no such signal, and in the first process of a container,
/// which default handling never kills: the exit status then reports the signal.
pub fn kill_self_for(exit: Exit) {
    let mut signals = ENDING_SIGNALS.into_iter();
    if let Some((signal, _)) = signals.find(|(_, status)| *status == exit)
        && !rustix::process::getpid().is_init()
    {
        // On success this does not return; on failure, the exit status still reports the cause.
        drop(low_level::emulate_default_handler(signal));
    }
}

/// Returns the elapsed time of this process, excluding the time for which it was stopped.
pub fn now() -> Duration {
    let start = CLOCK_START.get_or_init(Instant::now);
    update_stopped_time();
    let stopped = Duration::from_millis(STOPPED_MILLIS.load(Ordering::Relaxed));
    start.elapsed().saturating_sub(stopped)
}

/// Updates the time accounting. Returns true if the process was stopped since the last call; that time is not part of any limit.
fn update_stopped_time() -> bool {
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let now = CLOCK_START.get().map_or(0, |start| millis(start.elapsed()));
    let before = LAST_UPDATE_MILLIS.swap(now, Ordering::Relaxed);
    let stopped = RESUMED.swap(false, Ordering::Relaxed);
    if stopped {
        STOPPED_MILLIS.fetch_add(now.saturating_sub(before), Ordering::Relaxed);
    }
    stopped
}

/// Returns the remaining time of `--timeout`.
pub fn timeout_left() -> Option<Duration> {
    Some(TIMEOUT_AT.get()?.saturating_sub(now()))
}

/// A remaining time limit. Only the time that the process actually waited is subtracted.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Option<Duration>);

impl Deadline {
    /// Creates a limit that expires when [`now`] reaches `end`.
    pub fn until(end: Duration) -> Self {
        Self::after(end.saturating_sub(now()))
    }

    /// Creates a limit that never expires.
    pub fn never() -> Self {
        Self(None)
    }

    /// Creates a limit of this duration.
    pub fn after(limit: Duration) -> Self {
        Self(Some(limit))
    }

    /// Creates a limit of this duration; zero means no limit, as in the config.
    pub fn after_or_never(limit: Duration) -> Self {
        Self((!limit.is_zero()).then_some(limit))
    }

    /// True if the limit has expired.
    pub fn is_expired(self) -> bool {
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
    pub fn time_used(self, rest: Self) -> Duration {
        let both = self.0.zip(rest.0);
        both.map_or(Duration::ZERO, |(whole, rest)| whole.saturating_sub(rest))
    }

    /// Subtracts `spent`.
    pub fn subtract(&mut self, spent: Duration) {
        self.0 = self.0.map(|left| left.saturating_sub(spent));
    }
}

static BEFORE_WAIT: OnceLock<fn() -> Option<Duration>> = OnceLock::new();

/// Sets a hook that is called before each wait of this process; the wait lasts at most the returned duration. The first
/// hook stays.
pub(crate) fn set_before_wait(hook: fn() -> Option<Duration>) {
    BEFORE_WAIT.get_or_init(|| hook);
}

fn run_before_wait() -> Option<Duration> {
    BEFORE_WAIT.get().and_then(|hook| hook())
}

/// Waits until one of `fds` is ready and returns its index; `None` if `deadline` expired. The time waited is subtracted
/// from `deadline`.
///
/// # Errors
/// The errors of [`check`].
pub fn wait(
    fds: &[(BorrowedFd<'_>, PollFlags)],
    deadline: &mut Deadline,
) -> Result<Option<usize>, Stop> {
    let token = cancel::current();
    loop {
        check()?;
        let left = deadline.0.unwrap_or(Duration::MAX);
        let mut timeout = left.min(WHOLE_WAIT_INTERVAL.max(left / WAIT_SHARE));
        timeout = timeout.min(run_before_wait().unwrap_or(timeout));
        let mut poll_fds: Vec<PollFd<'_>> = Vec::with_capacity(fds.len() + 2);
        poll_fds.extend(fds.iter().map(|(fd, flags)| PollFd::from_borrowed_fd(*fd, *flags)));
        match closing_time_left() {
            _ if cancel::is_shielded() => {}
            // A signal, which may shorten the closing time, wakes only the thread that receives it.
            Some(left) => timeout = timeout.min(left).min(WHOLE_WAIT_INTERVAL),
            None => {
                timeout = timeout.min(timeout_left().unwrap_or(timeout));
                let wake_rx = WAKE_RX.get();
                poll_fds.extend(wake_rx.map(|wake_rx| PollFd::new(wake_rx, PollFlags::IN)));
            }
        }
        let wake_rx = token.as_deref().map(|token| &token.wake_rx);
        poll_fds.extend(wake_rx.map(|wake_rx| PollFd::new(wake_rx, PollFlags::IN)));
        // A duration that does not fit into a timespec means no limit.
        let timespec = Timespec::try_from(timeout).ok();
        let started = Instant::now();
        // If `poll` fails for lack of memory, the caller's own system call reports it.
        let ready_count = poll(&mut poll_fds, timespec.as_ref());
        let waited = started.elapsed();
        let stopped = update_stopped_time();
        // At most the requested time is subtracted; the process did not wait for the rest. A wait that succeeds is subtracted too: a
        // peer that sends a byte now and then does not extend the deadline of a whole request.
        if !stopped {
            deadline.subtract(if ready_count == Ok(0) { timeout } else { waited.min(timeout) });
        }
        let mut poll_fds = poll_fds[..fds.len()].iter();
        if let Some(index) = poll_fds.position(|fd| !fd.revents().is_empty()) {
            return Ok(Some(index));
        }
        if !stopped && deadline.is_expired() {
            return Ok(None);
        }
    }
}

/// Waits until `fd` is readable; false if `deadline` expired.
///
/// # Errors
/// The errors of [`check`].
pub fn wait_readable(fd: impl AsFd, deadline: &mut Deadline) -> Result<bool, Stop> {
    Ok(wait(&[(fd.as_fd(), PollFlags::IN)], deadline)?.is_some())
}

/// Waits until `fd` is writable; false if `deadline` expired.
///
/// # Errors
/// The errors of [`check`].
pub fn wait_writable(fd: impl AsFd, deadline: &mut Deadline) -> Result<bool, Stop> {
    Ok(wait(&[(fd.as_fd(), PollFlags::OUT)], deadline)?.is_some())
}

/// Sleeps for `duration`.
///
/// # Errors
/// The errors of [`check`].
pub fn sleep(duration: Duration) -> Result<(), Stop> {
    wait(&[], &mut Deadline::after(duration)).map(drop)
}
