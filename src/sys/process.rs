//! Children: each in a group of its own, with a deadline, its output drained and capped; and none that outlives the run.

use crate::sys::signal;
use rustix::process::{Pid, Signal};
use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

/// How long a child that was asked to end may take.
const GRACE: Duration = Duration::from_millis(200);
/// How long the pipe of a shell that has ended may stay open: a child in the background holds it.
const HOLD: Duration = Duration::from_millis(100);
/// How often a running child is looked at, when it says nothing.
const LOOK: Duration = Duration::from_millis(10);

/// First thing in `main`: no descriptor that we inherited reaches a child, and nobody reads our memory.
pub fn start() {
    close_fds::set_fds_cloexec(3, &[]);
    // Where the kernel refuses, keys are as safe as in any program.
    let _: Result<_, _> =
        rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
}

/// The groups of the children that run, for a signal to end. It is locked while a child starts, so that none starts
/// behind the back of whoever ends them.
static GROUPS: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

pub(super) fn groups() -> MutexGuard<'static, Vec<Pid>> {
    GROUPS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A command to run.
#[derive(Clone, Debug)]
pub struct Spec {
    pub program: PathBuf,
    pub arguments: Vec<String>,
    pub directory: PathBuf,
    /// All of the child's environment.
    pub env: Vec<(String, String)>,
    pub timeout: Duration,
    /// Bytes that are kept of the output's beginning, and of its end.
    pub keep: usize,
}

/// How it went.
#[derive(Debug)]
pub struct Finished {
    pub head: Vec<u8>,
    pub tail: Vec<u8>,
    /// Bytes between the two that were not kept.
    pub left_out: u64,
    /// `None` when the time ran out.
    pub status: Option<ExitStatus>,
    /// Something it had left behind was ended.
    pub strays: bool,
}

impl Finished {
    /// The signal that ended it.
    pub fn signal(&self) -> Option<i32> {
        self.status.and_then(|status| status.signal())
    }
}

/// Run a command to its end, or to its deadline. `say` takes its output as it comes, both streams in their true order.
pub fn run(spec: &Spec, say: &mut dyn FnMut(&[u8])) -> io::Result<Finished> {
    static FIRST: Once = Once::new();
    FIRST.call_once(|| {
        signal::watch();
        // What a child leaves behind becomes ours, so that it can be ended. Not everywhere to be had, and then it is not.
        let _: Result<_, _> = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    });
    let (mut pipe, writer) = io::pipe()?;
    let mut child = spawn(spec, writer)?;
    let group = Pid::from_child(&child);
    let (send, receive) = sync_channel::<Vec<u8>>(16);
    // Not joined: a stray that cannot be ended must not keep us.
    std::thread::spawn(move || {
        let mut block = vec![0; 64 << 10];
        while let Ok(count @ 1..) = pipe.read(&mut block) {
            if send.send(block[..count].to_vec()).is_err() {
                return;
            }
        }
    });
    let mut kept = Kept {
        limit: spec.keep,
        head: Vec::new(),
        tail: Vec::new(),
        left_out: 0,
    };
    let deadline = Instant::now() + spec.timeout;
    let mut ended: Option<(ExitStatus, Instant)> = None;
    let mut open = true;
    let status = loop {
        if open {
            match receive.recv_timeout(LOOK) {
                Ok(bytes) => {
                    say(&bytes);
                    kept.add(&bytes);
                }
                Err(RecvTimeoutError::Disconnected) => open = false,
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
        if ended.is_none() {
            ended = child.try_wait()?.map(|status| (status, Instant::now()));
        }
        match ended {
            Some((status, _)) if !open => break Some(status),
            Some((status, since)) if since.elapsed() >= HOLD => break Some(status),
            None if Instant::now() >= deadline => break None,
            None if !open => std::thread::sleep(LOOK),
            _ => {}
        }
    };
    let strays = end(&mut child, group, status.is_some());
    // What was still on its way.
    while let Ok(bytes) = receive.try_recv() {
        kept.add(&bytes);
    }
    Ok(Finished {
        head: kept.head,
        tail: kept.tail,
        left_out: kept.left_out,
        status,
        strays,
    })
}

fn spawn(spec: &Spec, writer: io::PipeWriter) -> io::Result<Child> {
    let mut command = Command::new(&spec.program);
    command
        .args(&spec.arguments)
        .current_dir(&spec.directory)
        .env_clear();
    command
        .envs(spec.env.iter().map(|(name, value)| (name, value)))
        .process_group(0);
    command
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer);
    let mut groups = groups();
    let child = command.spawn()?;
    groups.push(Pid::from_child(&child));
    Ok(child)
}

/// End what is left of a child's group and of what it put outside. Whether there was anything.
fn end(child: &mut Child, group: Pid, has_ended: bool) -> bool {
    let mut strays = rustix::process::test_kill_process_group(group).is_ok() && has_ended;
    // Errors below mean that there is nobody left to signal, or to wait for.
    let _: Result<_, _> = rustix::process::kill_process_group(group, Signal::TERM);
    let asked = Instant::now();
    while rustix::process::test_kill_process_group(group).is_ok() && asked.elapsed() < GRACE {
        drop(child.try_wait());
        reap();
        std::thread::sleep(Duration::from_millis(2));
    }
    let _: Result<_, _> = rustix::process::kill_process_group(group, Signal::KILL);
    drop(child.wait());
    groups().retain(|other| *other != group);
    strays |= end_strays();
    strays
}

/// End every child of ours that we did not start: what children left behind, in whatever group or session.
fn end_strays() -> bool {
    let mut found = false;
    // Ending one can hand us its children in turn.
    for _ in 0..16 {
        let known = groups().clone();
        let strays: Vec<Pid> = children()
            .into_iter()
            .filter(|pid| !known.contains(pid))
            .collect();
        let living: Vec<Pid> = strays.into_iter().filter(|pid| !reaped(*pid)).collect();
        if living.is_empty() {
            break;
        }
        found = true;
        for pid in living {
            let _: Result<_, _> = rustix::process::kill_process(pid, Signal::KILL);
            let _: Result<_, _> =
                rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty());
        }
    }
    found
}

/// End every child that is left, when the run itself ends. The registry of groups is locked by then.
///
/// The kernel hands us a child's children only once it is gone, so this is done until nobody is left; what cannot be
/// ended within a second, such as a process that waits for a dead disk, is left to the system.
pub(super) fn end_children() {
    for _ in 0..500 {
        let living: Vec<Pid> = children().into_iter().filter(|pid| !reaped(*pid)).collect();
        if living.is_empty() && children().is_empty() {
            return;
        }
        for pid in living {
            let _: Result<_, _> = rustix::process::kill_process(pid, Signal::KILL);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Take leave of strays that have ended by themselves.
fn reap() {
    let known = groups().clone();
    for pid in children().into_iter().filter(|pid| !known.contains(pid)) {
        reaped(pid);
    }
}

fn reaped(pid: Pid) -> bool {
    matches!(
        rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::NOHANG),
        Ok(Some(_))
    )
}

/// Our children: those of every thread.
fn children() -> Vec<Pid> {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else {
        return Vec::new();
    };
    let lists = threads
        .flatten()
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    lists
        .flat_map(|list| {
            list.split_whitespace()
                .filter_map(|pid| pid.parse().ok())
                .collect::<Vec<i32>>()
        })
        .filter_map(Pid::from_raw)
        .collect()
}

/// The beginning and the end of an output.
struct Kept {
    limit: usize,
    head: Vec<u8>,
    tail: Vec<u8>,
    left_out: u64,
}

impl Kept {
    fn add(&mut self, bytes: &[u8]) {
        let room = self.limit.saturating_sub(self.head.len()).min(bytes.len());
        self.head.extend_from_slice(&bytes[..room]);
        self.tail.extend_from_slice(&bytes[room..]);
        // Cut only now and then, so that each byte is moved a few times at most.
        if self.tail.len() > self.limit * 4 {
            self.cut();
        }
    }

    fn cut(&mut self) {
        let excess = self.tail.len().saturating_sub(self.limit);
        self.tail.drain(..excess);
        self.left_out += excess as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::{Finished, Spec, run};
    use std::time::{Duration, Instant};

    fn sh(command: &str, seconds: u64) -> (Finished, String) {
        let spec = Spec {
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), command.into()],
            directory: "/".into(),
            env: vec![("PATH".into(), "/usr/bin:/bin".into())],
            timeout: Duration::from_secs(seconds),
            keep: 1000,
        };
        let mut said = Vec::new();
        let finished = run(&spec, &mut |bytes| said.extend_from_slice(bytes)).unwrap();
        (finished, String::from_utf8_lossy(&said).into_owned())
    }

    /// Whether a process with this mark in its arguments runs.
    fn lives(mark: &str) -> bool {
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        all.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok())
            .any(|line| String::from_utf8_lossy(&line).contains(mark))
    }

    #[test]
    fn output_comes_in_order_and_status_is_told() {
        let (finished, said) = sh("echo one; echo two >&2; echo three; exit 3", 10);
        assert_eq!(said, "one\ntwo\nthree\n");
        assert_eq!(finished.head, said.as_bytes());
        assert_eq!(finished.status.unwrap().code(), Some(3));
        assert!(!finished.strays);
        assert_eq!(sh("kill -9 $$", 10).0.signal(), Some(9));
    }

    #[test]
    fn much_output_is_drained_and_capped() {
        let (finished, _) = sh("yes | head -c 50000000; echo; echo end", 60);
        assert!(finished.head.len() == 1000 && finished.tail.ends_with(b"end\n"));
        assert_eq!(
            finished.head.len() as u64 + finished.tail.len() as u64 + finished.left_out,
            50_000_005
        );
    }

    #[test]
    fn nothing_outlives_a_command() {
        // A mark of this very run: what another left behind proves nothing.
        let mark = format!("{}.", 200_000 + std::process::id());
        let started = Instant::now();
        let (finished, said) = sh(
            &format!(
                "sleep {mark}1 & setsid sleep {mark}2 & (trap '' TERM; sleep {mark}3) & echo on"
            ),
            10,
        );
        assert_eq!(said, "on\n");
        assert!(finished.strays && finished.status.unwrap().success());
        let (finished, _) = sh(
            &format!("trap '' TERM; setsid sleep {mark}4 & sleep {mark}5"),
            1,
        );
        assert!(finished.status.is_none());
        assert!(started.elapsed() < Duration::from_secs(8));
        for number in 1..=5 {
            assert!(!lives(&format!("sleep\0{mark}{number}")), "{number}");
        }
    }
}
