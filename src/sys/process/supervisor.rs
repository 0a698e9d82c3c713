//! The supervisor of a server: this program once more. It starts the server in its sandbox, waits, and ends the whole tree of
//! its processes when the server ends, when it is asked to, or when we are gone, even after a `kill -9`.
//!
//! It reads what to start from a socket whose other end we alone hold, and gets the server's streams with that, so that
//! nothing of it stands on a command line or in an environment. The end of that socket is the order to end. Whatever the
//! server leaves behind in other groups and sessions becomes the supervisor's child, and is ended.

use super::children::{KILL_TIMEOUT, children};
use super::sandboxed::limit;
use crate::sys::sandbox::{Fence, Ours};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use rustix::process::{DumpableBehavior, Pid, Signal, WaitOptions};
use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
use std::fs::File;
use std::io::{self, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The name (`argv[0]`) that tells this program to be a supervisor.
pub(super) const SUPERVISOR: &str = "nanobot-warden";

/// How long a server may take to end by itself once its input has ended, and as long again once it was asked to.
pub const SHUTDOWN_GRACE: Duration = Duration::from_millis(500);

/// What is to be started. Its length goes before it, in eight bytes, and the three streams with those.
#[derive(Serialize, Deserialize)]
pub(super) struct LaunchSpec {
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<String>,
    pub(super) directory: PathBuf,
    pub(super) env: Vec<(String, String)>,
    pub(super) fence: Option<Fence>,
    /// The fence is kept by mounts too.
    pub(super) with_mounts: bool,
    /// Who starts it, and is not to be signalled from within the fence.
    pub(super) ours: Ours,
}

/// What is told of it: a line of JSON each.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Report {
    Started(i32),
    /// It could not be started: the system's number for why, where it has one, and words.
    Failed(Option<i32>, String),
    /// Its status, or the signal that ended it.
    Ended(Option<i32>, Option<i32>),
}

/// Whether this program was started to be a supervisor, which it has been then; and whether nothing was left.
pub fn become_supervisor() -> Option<bool> {
    let name = std::env::args_os().next();
    if name.is_none_or(|name| name != SUPERVISOR) {
        return None;
    }
    close_fds::set_fds_cloexec(3, &[]);
    // There is nobody to tell of an error but who gave the order, and he sees the end.
    Some(watch().unwrap_or(false))
}

/// Take the order from standard input, and see to the server until it has ended. Whether nothing of it is left.
///
/// # Errors
/// The order cannot be read, or no descriptors are left.
pub(super) fn watch() -> io::Result<bool> {
    let mut control = UnixStream::from(rustix::stdio::stdin().try_clone_to_owned()?);
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let wake = WakePipe::new()?;
    let (order, streams) = receive(&mut control)?;
    let server = match start(order, streams) {
        Ok(server) => server,
        Err(error) => {
            tell(
                &mut control,
                &Report::Failed(error.raw_os_error(), error.to_string()),
            );
            return Ok(true);
        }
    };
    // Last, since whoever makes namespaces needs its own entry in `/proc`. The server shall not read the order from here.
    let _: Result<_, _> = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
    tell(&mut control, &Report::Started(server.as_raw_pid()));
    let mut watch = Watch {
        server,
        has_ended: false,
        control,
        wake,
    };
    Ok(watch.see_out())
}

fn tell(control: &mut UnixStream, report: &Report) {
    let mut line = serde_json::to_vec(report).unwrap_or_default();
    line.push(b'\n');
    // Who is gone needs no report.
    drop(control.write_all(&line));
}

fn receive(control: &mut UnixStream) -> io::Result<(LaunchSpec, [OwnedFd; 3])> {
    let mut length = [0; 8];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut with = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut length)];
    let received = rustix::net::recvmsg(&*control, &mut parts, &mut with, RecvFlags::CMSG_CLOEXEC)?;
    let streams: Vec<OwnedFd> = with
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(streams) => Some(streams),
            _ => None,
        })
        .flatten()
        .collect();
    let streams = <[OwnedFd; 3]>::try_from(streams);
    let (8, Ok(streams)) = (received.bytes, streams) else {
        return Err(io::ErrorKind::UnexpectedEof.into());
    };
    let mut bytes = Vec::new();
    let length = u64::from_le_bytes(length);
    (&*control).take(length).read_to_end(&mut bytes)?;
    let order = serde_json::from_slice(&bytes).map_err(io::Error::other)?;
    Ok((order, streams))
}

/// Start it. Its streams are its own from then on: what it closes is closed.
fn start(order: LaunchSpec, [input, output, errors]: [OwnedFd; 3]) -> io::Result<Pid> {
    let mut command = Command::new(&order.program);
    command
        .args(&order.arguments)
        .current_dir(&order.directory)
        .env_clear();
    command
        .envs(order.env.iter().map(|(name, value)| (name, value)))
        .process_group(0);
    command.stdin(input).stdout(output).stderr(errors);
    let server = match order.fence {
        None => Pid::from_child(&command.spawn()?),
        Some(fence) => {
            let fence = fence.for_long(order.with_mounts)?;
            let ours = order.ours.and(&Ours::now());
            let server = fence.around(&ours, || command.spawn())?;
            let server = Pid::from_child(&server);
            limit(server);
            server
        }
    };
    Ok(server)
}

/// Wakes the supervisor at a signal.
struct WakePipe(UnixStream);

/// A signal asked for the end.
static ASKED: AtomicBool = AtomicBool::new(false);

impl WakePipe {
    fn new() -> io::Result<Self> {
        let (wake_rx, wake_tx) = UnixStream::pair()?;
        wake_rx.set_nonblocking(true)?;
        for signal in [SIGTERM, SIGINT, SIGHUP] {
            signal_hook::flag::register(signal, &ASKED)?;
        }
        for signal in [SIGCHLD, SIGTERM, SIGINT, SIGHUP] {
            signal_hook::low_level::pipe::register(signal, wake_tx.try_clone()?)?;
        }
        Ok(Self(wake_rx))
    }

    fn drain(&mut self) {
        let mut block = [0; 64];
        while self.0.read(&mut block).is_ok_and(|count| count > 0) {}
    }
}

struct Watch {
    /// It leads its group.
    server: Pid,
    /// It has ended and was taken leave of, so its number may be somebody else's by now.
    has_ended: bool,
    control: UnixStream,
    wake: WakePipe,
}

impl Watch {
    /// Whether nothing is left in the end.
    fn see_out(&mut self) -> bool {
        let mut is_ordered = false;
        loop {
            self.reap();
            if self.has_ended || ASKED.load(Ordering::SeqCst) || is_ordered {
                break;
            }
            is_ordered = self.wait(None, true);
        }
        // Its input has ended too then, unless it is a signal that says so.
        if is_ordered {
            self.wait_until(SHUTDOWN_GRACE, |watch| {
                watch.reap();
                watch.has_ended
            });
        }
        if self.reap() {
            return true;
        }
        self.signal(Signal::TERM);
        if self.wait_until(SHUTDOWN_GRACE, Self::reap) {
            return true;
        }
        // Ending one can hand us its children in turn.
        let killed = Instant::now();
        while killed.elapsed() < KILL_TIMEOUT {
            self.signal(Signal::KILL);
            if self.wait_until(Duration::from_millis(10), Self::reap) {
                return true;
            }
        }
        false
    }

    /// Take leave of all that has ended. Whether nobody is left.
    fn reap(&mut self) -> bool {
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == self.server && !self.has_ended => {
                    self.has_ended = true;
                    let ended = Report::Ended(status.exit_status(), status.terminating_signal());
                    tell(&mut self.control, &ended);
                }
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => return false,
                Err(_) => return true,
            }
        }
    }

    /// To the server's group, and to whatever came to us from elsewhere.
    fn signal(&self, signal: Signal) {
        let group = (!self.has_ended).then_some(self.server);
        // Errors mean that there is nobody left to signal, or that we may not.
        if let Some(group) = group {
            let _: Result<_, _> = rustix::process::kill_process_group(group, signal);
        }
        for child in children() {
            if group.is_none() || rustix::process::getpgid(Some(child)).ok() != group {
                let _: Result<_, _> = rustix::process::kill_process(child, signal);
            }
        }
    }

    fn wait_until(&mut self, limit: Duration, mut is_done: impl FnMut(&mut Self) -> bool) -> bool {
        let end = Instant::now() + limit;
        loop {
            if is_done(self) {
                return true;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            self.wait(Some(left), false);
        }
    }

    /// Until something happens. Whether the end was ordered, where that is `heard`.
    fn wait(&mut self, limit: Option<Duration>, heard: bool) -> bool {
        let timeout = limit.and_then(|limit| Timespec::try_from(limit).ok());
        let mut fds = vec![PollFd::from_borrowed_fd(self.wake.0.as_fd(), PollFlags::IN)];
        if heard {
            fds.push(PollFd::new(&self.control, PollFlags::IN));
        }
        // Should it be interrupted, whoever waits looks again.
        let _: Result<_, _> = poll(&mut fds, timeout.as_ref());
        let is_spoken_to = fds.get(1).is_some_and(|fd| !fd.revents().is_empty());
        self.wake.drain();
        let mut word = [0; 1];
        is_spoken_to && !self.control.read(&mut word).is_ok_and(|count| count > 0)
    }
}
