//! A command that runs to its end: in a group of its own, with a deadline, its output drained and capped. Nothing that it
//! started outlives it.

use super::children::{KILL_TIMEOUT, end_leftovers, groups, is_group_left, prepare, reap_group};
use super::output::{Kept, OutputPipe};
use super::sandboxed::{self, SandboxedCommand, lets_mount};
use super::write_lock::{LockError, WriteLock};
use crate::error::Stop;
use crate::sys::sandbox::{Fence, Ours, Remembered};
use crate::sys::signal::{self, Patience};
use crate::sys::store;
use rustix::event::PollFlags;
use rustix::process::{Pid, PidfdFlags, Signal};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How long a child that was asked to end may take.
const TERM_GRACE: Duration = Duration::from_millis(200);
/// How long the pipe of a shell that has ended may stay open: a child in the background holds it.
const PIPE_TIMEOUT: Duration = Duration::from_millis(100);
/// How often a running child is polled, where it cannot be waited for.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

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
    /// What it may reach. `None` for all that we may.
    pub fence: Option<Fence>,
    /// What it can read; for commands without a fence.
    pub input: Option<Vec<u8>>,
}

/// How it went.
#[derive(Debug)]
pub struct Finished {
    pub head: Vec<u8>,
    pub tail: Vec<u8>,
    /// Bytes between the two that were not kept.
    pub left_out: u64,
    /// `None` when the time ran out, or the run is to end.
    pub status: Option<ExitStatus>,
    /// Why the run is to end, where it is.
    pub stopped: Option<Stop>,
    /// Something it had left behind was ended.
    pub leftovers: bool,
    /// What it had changed of what [`Fence::kept`] names, and whether each is again as it was.
    pub restored: Vec<(PathBuf, io::Result<()>)>,
}

impl Finished {
    /// The run was to end before it was begun.
    fn unstarted(stop: Stop) -> Self {
        Self {
            head: Vec::new(),
            tail: Vec::new(),
            left_out: 0,
            status: None,
            stopped: Some(stop),
            leftovers: false,
            restored: Vec::new(),
        }
    }

    /// The signal that ended it.
    pub fn signal(&self) -> Option<i32> {
        self.status.and_then(|status| status.signal())
    }
}

/// Run a command to its end, or to its deadline. `say` takes its output as it comes, both streams in their true order.
///
/// When the run itself is to end, so does the command, and [`Finished::stopped`] says so. One that may change files waits
/// until others that may are done, as long again as it may take.
///
/// # Errors
/// It cannot be started; [`io::ErrorKind::ResourceBusy`] where others are not done in time.
pub fn run(spec: &Spec, say: &mut dyn FnMut(&[u8])) -> io::Result<Finished> {
    run_with(spec, None, say)
}

/// Bytes that are kept of standard error where it is apart.
const MAX_STDERR_BYTES: u64 = 16 << 10;

/// As [`run`], with what the command writes on standard error apart: the beginning of that, and all else in [`Finished`].
///
/// # Errors
/// It cannot be started.
pub fn run_split_stderr(spec: &Spec) -> io::Result<(Finished, Vec<u8>)> {
    let (mut pipe, errors) = io::pipe()?;
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut said = Vec::new();
        // Where nobody can read any more, what was read is what there is; and whoever asked may be gone.
        drop(pipe.by_ref().take(MAX_STDERR_BYTES).read_to_end(&mut said));
        drop(io::copy(&mut pipe, &mut io::sink()));
        drop(sender.send(said));
    });
    let finished = run_with(spec, Some(errors), &mut |_| ())?;
    // What it left behind has ended; what could not be ended is not waited for.
    Ok((
        finished,
        receiver.recv_timeout(KILL_TIMEOUT).unwrap_or_default(),
    ))
}

fn run_with(
    spec: &Spec,
    errors: Option<io::PipeWriter>,
    say: &mut dyn FnMut(&[u8]),
) -> io::Result<Finished> {
    prepare();
    let writing = spec.fence.as_ref().filter(|fence| fence.writes.len() > 1);
    let lock = match writing.map(|fence| WriteLock::take(fence, Patience::of(spec.timeout))) {
        None => None,
        Some(Ok(lock)) => Some(lock),
        Some(Err(LockError::Busy)) => return Err(io::ErrorKind::ResourceBusy.into()),
        Some(Err(LockError::Stopped(stop))) => return Ok(Finished::unstarted(stop)),
    };
    let remembered = match &spec.fence {
        Some(fence) if writing.is_some() || fence.hides => Some(fence.remember(lets_mount(fence))?),
        _ => None,
    };
    let (pipe, writer) = io::pipe()?;
    let mut child = spawn(spec, writer, errors)?;
    let mut output = OutputPipe::new(pipe, spec.keep);
    let (status, stopped) = wait(&mut child, spec.timeout, &mut output, say)?;
    // What a shell said before it ended is in the pipe; what it left behind may hold that open, and go on talking.
    if status.is_some() {
        let end = signal::now() + PIPE_TIMEOUT;
        while output.is_readable(Patience::until(end)) {
            output.read(say)?;
            if signal::now() >= end {
                break;
            }
        }
    }
    let leftovers = child.end(status.is_some());
    // The rest, now that nobody writes any more; or somebody who could not be ended, and then not for long.
    let end = signal::now() + PIPE_TIMEOUT;
    while output.is_readable(Patience::of(Duration::ZERO)) && signal::now() < end {
        output.read(&mut |_| {})?;
    }
    let restored = remembered.map(Remembered::restore).unwrap_or_default();
    drop(lock);
    let Kept {
        head,
        tail,
        left_out,
        ..
    } = output.kept;
    Ok(Finished {
        head,
        tail,
        left_out,
        status,
        stopped,
        leftovers,
        restored,
    })
}

/// Read the output of `child` until it ends, or `timeout` is over, or the run is to end.
fn wait(
    child: &mut Running,
    timeout: Duration,
    output: &mut OutputPipe,
    say: &mut dyn FnMut(&[u8]),
) -> io::Result<(Option<ExitStatus>, Option<Stop>)> {
    // A kernel before 5.3 cannot tell when a child ends; then it is polled.
    let pidfd = rustix::process::pidfd_open(child.group, PidfdFlags::empty()).ok();
    // A child that always has something to say is never waited for, and must end all the same.
    let end = signal::now().saturating_add(timeout);
    loop {
        let mut fds = Vec::with_capacity(2);
        let pipe = output.pipe.as_ref();
        fds.extend(pipe.map(|pipe| (pipe.as_fd(), PollFlags::IN)));
        fds.extend(pidfd.as_ref().map(|fd| (fd.as_fd(), PollFlags::IN)));
        let mut patience = Patience::until(end);
        if pidfd.is_none() {
            patience = patience.min(Patience::of(POLL_INTERVAL));
        }
        match signal::wait(&fds, &mut patience) {
            Ok(Some(0)) if pipe.is_some() => output.read(say)?,
            Ok(_) => {}
            Err(stop) => return Ok((None, Some(stop))),
        }
        if let Some(status) = child.process.try_wait()? {
            return Ok((Some(status), None));
        }
        if signal::now() >= end {
            return Ok((None, None));
        }
    }
}

/// A child that runs. Whatever happens to us, a panic even, it does not outlive this.
struct Running {
    process: Child,
    group: Pid,
    ended: bool,
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.ended {
            self.end(false);
        }
    }
}

fn spawn(
    spec: &Spec,
    writer: io::PipeWriter,
    errors: Option<io::PipeWriter>,
) -> io::Result<Running> {
    let with_mounts = spec
        .fence
        .as_ref()
        .filter(|fence| fence.has_mounts(|| false));
    let mut command = match with_mounts {
        Some(fence) => sandboxed::command(&SandboxedCommand {
            fence: fence.clone(),
            ours: Ours::now(),
            program: spec.program.clone(),
            arguments: spec.arguments.clone(),
        })?,
        None => {
            let mut command = Command::new(&spec.program);
            let input = match &spec.input {
                // A file and no pipe: nobody has to write while it runs.
                Some(bytes) => store::temporary(bytes)?.reopen()?.into(),
                None => Stdio::null(),
            };
            command.args(&spec.arguments).stdin(input);
            command
        }
    };
    command.current_dir(&spec.directory).env_clear();
    command
        .envs(spec.env.iter().map(|(name, value)| (name, value)))
        .process_group(0);
    command.stdout(writer.try_clone()?);
    command.stderr(errors.unwrap_or(writer));
    let mut groups = groups();
    let process = match (&spec.fence, with_mounts) {
        (Some(fence), None) => fence.around(&Ours::now(), || command.spawn())?,
        _ => command.spawn()?,
    };
    if spec.fence.is_some() {
        sandboxed::limit(Pid::from_child(&process));
    }
    let group = Pid::from_child(&process);
    groups.push(group);
    Ok(Running {
        process,
        group,
        ended: false,
    })
}

impl Running {
    /// End what is left of its group and of what it put outside. Whether there was anything.
    fn end(&mut self, has_ended: bool) -> bool {
        self.ended = true;
        let group = self.group;
        let mut leftovers = has_ended && is_group_left(group, TERM_GRACE);
        // Errors below mean that there is nobody left to signal, or to wait for.
        let _: Result<_, _> = rustix::process::kill_process_group(group, Signal::TERM);
        let asked = Instant::now();
        while rustix::process::test_kill_process_group(group).is_ok()
            && asked.elapsed() < TERM_GRACE
        {
            if !reap_group(group) {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        let _: Result<_, _> = rustix::process::kill_process_group(group, Signal::KILL);
        // What may not be killed, such as another user's, or what waits for a dead disk, is not waited for.
        let killed = Instant::now();
        while matches!(self.process.try_wait(), Ok(None)) && killed.elapsed() < KILL_TIMEOUT {
            std::thread::sleep(Duration::from_millis(2));
        }
        groups().retain(|other| *other != group);
        leftovers |= end_leftovers();
        leftovers
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{Finished, Spec, run};
    use crate::sys::sync::IgnorePoison;
    use std::sync::{Mutex, MutexGuard};
    use std::time::Duration;

    /// What one test leaves behind would be another one's stray: they share a process, as no two commands of a run do.
    pub(crate) fn alone() -> MutexGuard<'static, ()> {
        static ALONE: Mutex<()> = Mutex::new(());
        ALONE.lock().ignore_poison()
    }

    fn sh(command: &str, seconds: u64) -> (Finished, String) {
        let _alone = alone();
        let spec = Spec {
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), command.into()],
            directory: "/".into(),
            env: vec![("PATH".into(), "/usr/bin:/bin".into())],
            timeout: Duration::from_secs(seconds),
            keep: 1000,
            fence: None,
            input: None,
        };
        let mut said = Vec::new();
        let finished = run(&spec, &mut |bytes| said.extend_from_slice(bytes)).unwrap();
        (finished, String::from_utf8_lossy(&said).into_owned())
    }

    /// Whether a process with this mark in its arguments runs.
    pub(in crate::sys::process) fn lives(mark: &str) -> bool {
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
        assert!(!finished.leftovers);
        assert_eq!(sh("kill -9 $$", 10).0.signal(), Some(9));
    }

    #[test]
    fn much_output_is_drained_and_capped() {
        // One that never falls silent has a deadline too, and so has what it leaves behind.
        assert!(sh("yes", 1).0.status.is_none());
        assert!(sh("yes & exit 0", 60).0.leftovers);
        let (finished, _) = sh("yes | head -c 50000000; echo; echo end", 60);
        assert!(finished.head.len() == 1000 && finished.tail.ends_with(b"end\n"));
        assert_eq!(
            finished.head.len() as u64 + finished.tail.len() as u64 + finished.left_out,
            50_000_005
        );
    }

    #[test]
    fn a_process_that_is_ending_is_no_leftover() {
        // The reader ends when the writer's files are closed, and does not wait for the writer.
        let command = "d=$(mktemp -d); mkfifo $d/f; (exec > $d/f) & cat $d/f; rm -r $d; exec true";
        for _ in 0..50 {
            let (finished, _) = sh(command, 60);
            assert!(finished.status.unwrap().success() && !finished.leftovers);
        }
        // One that has ended is in the group until it is reaped.
        let (finished, _) = sh("true & exec sleep 0.01", 60);
        assert!(!finished.leftovers);
    }

    #[test]
    fn nothing_outlives_a_command() {
        // A mark of this very run: what another left behind proves nothing.
        let mark = format!("{}.", 200_000 + std::process::id());
        let (finished, said) = sh(
            &format!(
                "sleep {mark}1 & setsid sleep {mark}2 & (trap '' TERM; sleep {mark}3) & echo on"
            ),
            10,
        );
        assert_eq!(said, "on\n");
        assert!(finished.leftovers && finished.status.unwrap().success());
        let (finished, _) = sh(
            &format!("trap '' TERM; setsid sleep {mark}4 & sleep {mark}5"),
            1,
        );
        assert!(finished.status.is_none());
        for number in 1..=5 {
            assert!(!lives(&format!("sleep\0{mark}{number}")), "{number}");
        }
    }
}
