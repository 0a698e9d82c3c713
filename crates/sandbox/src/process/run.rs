//! Runs a command to completion: in its own process group, with a timeout, and with its output drained and capped. No
//! process that it started outlives it.

use super::hiding_launcher::hiding_command;
use super::namespaced_supervisor::{are_namespaces_available, remember_namespaces};
use super::output::{HeadAndTail, OutputPipe};
use super::resource_limits::limited_command;
use super::standby;
use super::supervisor::{LaunchDirectory, LaunchKind, LaunchSpec, SupervisorReport};
use super::supervisor_connection::{SupervisorConnection, SupervisorProcess};
use super::write_lock::{LockError, WriteLock};
use crate::{
    FailedAttempts, HiddenPaths, PathSnapshot, ProtectedPids, SandboxSpec, StartDirectory,
    UndoneChange,
};
use nanobot_base::error::Stop;
use nanobot_os::children::{
    KILL_TIMEOUT, TERM_GRACE, groups, is_group_alive, kill_leftovers, leave_to_end, prepare,
    reap_ending, reap_group,
};
use nanobot_os::durable_file;
use nanobot_os::paths::find_program;
use nanobot_os::signal::{self, Deadline};
use rustix::event::PollFlags;
use rustix::process::{Pid, PidfdFlags, Signal};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Maximum time that the output is read after the command has ended: a process that it left behind can hold the pipe open.
const PIPE_TIMEOUT: Duration = Duration::from_millis(100);
/// Maximum time to hide paths. It normally takes milliseconds.
const HIDING_TIMEOUT: Duration = Duration::from_secs(20);
/// The polling interval for a running child if it cannot be waited for.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A command to run.
#[derive(Clone, Debug)]
pub struct CommandSpec {
    /// The program, by path or by name.
    pub program: PathBuf,
    /// Its arguments, without `argv[0]`.
    pub arguments: Vec<String>,
    /// Its working directory.
    pub directory: PathBuf,
    /// The child's entire environment.
    pub env: Vec<(String, String)>,
    /// The time after which it is ended.
    pub timeout: Duration,
    /// The number of bytes to keep of the output's beginning, and as many of its end.
    pub capture_bytes: usize,
    /// The sandbox. `None` for no restrictions.
    pub sandbox: Option<SandboxSpec>,
    /// The content of standard input; of a command in the background, its beginning.
    pub input: Option<Vec<u8>>,
}

impl CommandSpec {
    /// A command of the shell, without a sandbox and an environment, whose output is not kept.
    pub fn shell(command: impl Into<String>, timeout: Duration) -> Self {
        Self {
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), command.into()],
            directory: "/".into(),
            env: Vec::new(),
            timeout,
            capture_bytes: 0,
            sandbox: None,
            input: None,
        }
    }

    /// True if there is such a program.
    fn has_program(&self) -> bool {
        let path = self.env.iter().find(|(name, _)| name == "PATH");
        match self.program.to_str().filter(|name| !name.contains('/')) {
            Some(name) => find_program(name, path.map_or("", |(_, path)| path)).is_some(),
            None => self.program.exists(),
        }
    }

    /// Opens standard input: a file, not a pipe, so that no thread has to write while the command runs.
    fn open_input(&self) -> io::Result<File> {
        match &self.input {
            Some(bytes) => durable_file::create_temp(bytes)?.reopen(),
            None => File::open("/dev/null"),
        }
    }
}

/// The result of a command.
#[derive(Debug, Default)]
pub struct CommandResult {
    /// The beginning of the output.
    pub head: Vec<u8>,
    /// The end of the output.
    pub tail: Vec<u8>,
    /// The number of bytes between the two that were not kept.
    pub omitted_bytes: u64,
    /// The exit status. `None` after a timeout or cancellation.
    pub status: Option<ExitStatus>,
    /// The reason for cancellation, if the run was cancelled.
    pub stop: Option<Stop>,
    /// True if it left processes behind, which were then ended.
    pub had_leftovers: bool,
    /// The attempts of processes in its network, which has only loopback, to reach something meanwhile, if it failed.
    pub failed_attempts: FailedAttempts,
    /// Its changes of protected paths, which were undone.
    pub undone: Vec<UndoneChange>,
    /// Those of background commands, which were undone too.
    pub undone_in_background: Vec<UndoneChange>,
}

impl CommandResult {
    /// The result of a command that was cancelled before it was started.
    fn not_started(stop: Stop) -> Self {
        Self { stop: Some(stop), ..Self::default() }
    }

    /// The signal that ended the command, if one did.
    pub fn signal(&self) -> Option<i32> {
        self.status.and_then(|status| status.signal())
    }
}

/// Runs a command to completion or until its timeout. `on_output` receives its output as it arrives, both streams in
/// their true order.
///
/// Cancelling the run ends the command too, and sets [`CommandResult::stop`]. A command that may change files first
/// waits for other such commands, at most for its own timeout.
///
/// # Errors
/// It cannot be started; [`io::ErrorKind::ResourceBusy`] if the other commands do not finish in time.
pub fn run(spec: &CommandSpec, on_output: &mut dyn FnMut(&[u8])) -> io::Result<CommandResult> {
    run_with(spec, SpawnOptions::default(), on_output)
}

/// The options of the start of a command, beside its description.
#[derive(Default)]
struct SpawnOptions<'a> {
    /// The pipe for standard error, if that does not go to standard output.
    stderr: Option<io::PipeWriter>,
    /// Paths that a command without a sandbox does not see.
    hidden_paths: Option<&'a HiddenPaths>,
}

/// Maximum bytes that are captured of a separate standard error.
const MAX_STDERR_BYTES: u64 = 16 << 10;

/// Runs a command as [`run`] does, but returns the beginning of standard error (at most 16 KiB) apart from the output
/// in [`CommandResult`].
pub fn run_split_stderr(spec: &CommandSpec) -> io::Result<(CommandResult, Vec<u8>)> {
    run_split(spec, None)
}

/// Runs a command without a sandbox as [`run_split_stderr`] does, so that it does not see `hidden_paths`. If they cannot be
/// hidden, it is not run, and standard error has the reason.
pub fn run_split_stderr_hiding(
    spec: &CommandSpec,
    hidden_paths: &HiddenPaths,
) -> io::Result<(CommandResult, Vec<u8>)> {
    run_split(spec, Some(hidden_paths))
}

/// Checks that the paths can be hidden from a program.
///
/// # Errors
/// The reason that they cannot.
pub fn check_hiding(hidden_paths: &HiddenPaths) -> Result<(), String> {
    let spec = CommandSpec {
        // Without a program, the launcher only hides the paths.
        program: PathBuf::new(),
        arguments: Vec::new(),
        directory: "/".into(),
        env: Vec::new(),
        timeout: HIDING_TIMEOUT,
        capture_bytes: 0,
        sandbox: None,
        input: None,
    };
    let (result, stderr) =
        run_split_stderr_hiding(&spec, hidden_paths).map_err(|error| error.to_string())?;
    if result.status.is_some_and(|status| status.success()) || result.stop.is_some() {
        return Ok(());
    }
    let reason = String::from_utf8_lossy(&stderr).trim().to_owned();
    Err(if reason.is_empty() { "the check of it did not end by itself".into() } else { reason })
}

fn run_split(
    spec: &CommandSpec,
    hidden_paths: Option<&HiddenPaths>,
) -> io::Result<(CommandResult, Vec<u8>)> {
    let (mut pipe, stderr) = io::pipe()?;
    let (sender, receiver) = mpsc::channel();
    std::thread::Builder::new().spawn(move || {
        let mut output = Vec::new();
        // If reading fails, what was read so far is returned. The rest is discarded, so that the command does not block. The
        // receiver may be gone.
        drop(pipe.by_ref().take(MAX_STDERR_BYTES).read_to_end(&mut output));
        drop(io::copy(&mut pipe, &mut io::sink()));
        drop(sender.send(output));
    })?;
    let options = SpawnOptions { stderr: Some(stderr), hidden_paths };
    let result = run_with(spec, options, &mut |_| ())?;
    // Its leftovers have been ended; processes that could not be ended are not waited for.
    Ok((result, receiver.recv_timeout(KILL_TIMEOUT).unwrap_or_default()))
}

fn run_with(
    spec: &CommandSpec,
    options: SpawnOptions<'_>,
    on_output: &mut dyn FnMut(&[u8]),
) -> io::Result<CommandResult> {
    prepare();
    reap_ending();
    let writing_sandbox = spec.sandbox.as_ref().filter(|sandbox| sandbox.may_change_shared());
    let mut lock = None;
    if let Some(sandbox) = writing_sandbox {
        lock = match WriteLock::acquire(sandbox, Deadline::after(spec.timeout)) {
            Ok(lock) => Some(lock),
            Err(LockError::Stopped(stop)) => return Ok(CommandResult::not_started(stop)),
            Err(error) => return Err(error.into()),
        };
    }
    let snapshot = writing_sandbox.map(SandboxSpec::take_snapshot).transpose()?;
    let finished = run_to_end(spec, options, on_output);
    // The command has ended, so what it changed is undone, even if reading its output has failed.
    let undone = snapshot.as_ref().map(PathSnapshot::restore);
    let undone_in_background = lock.as_mut().map(WriteLock::restore_background);
    drop((snapshot, lock));
    let FinishedCommand { status, stop, had_leftovers, failed_attempts, output } = finished?;
    let HeadAndTail { head, tail, omitted_bytes, .. } = output;
    Ok(CommandResult {
        head,
        tail,
        omitted_bytes,
        status,
        stop,
        had_leftovers,
        failed_attempts,
        undone: undone.unwrap_or_default(),
        undone_in_background: undone_in_background.unwrap_or_default(),
    })
}

/// A command none of whose processes is left.
struct FinishedCommand {
    status: Option<ExitStatus>,
    stop: Option<Stop>,
    had_leftovers: bool,
    failed_attempts: FailedAttempts,
    output: HeadAndTail,
}

/// Starts a command, reads its output, and ends it, also if an error is returned.
fn run_to_end(
    spec: &CommandSpec,
    options: SpawnOptions<'_>,
    on_output: &mut dyn FnMut(&[u8]),
) -> io::Result<FinishedCommand> {
    let (pipe, stdout) = io::pipe()?;
    let mut child = spawn(spec, &stdout, &options)?;
    // Only the command holds its ends from then on.
    drop((stdout, options));
    let mut output = OutputPipe::new(pipe, spec.capture_bytes);
    let (status, stop) = wait(&mut child, spec.timeout, &mut output, on_output)?;
    // The shell's last output is in the pipe. Processes that it left behind may hold the pipe open and keep writing.
    if status.is_some() {
        let end = signal::now() + PIPE_TIMEOUT;
        while output.is_readable(Deadline::until(end)) {
            output.read(on_output)?;
            if signal::now() >= end {
                break;
            }
        }
    }
    let had_leftovers = child.terminate(status.is_some());
    // Read the rest: no process writes any more, unless it could not be ended, so the time is limited.
    let end = signal::now() + PIPE_TIMEOUT;
    while output.is_readable(Deadline::after(Duration::ZERO)) && signal::now() < end {
        output.read(on_output)?;
    }
    let failed_attempts =
        child.supervised.as_ref().map(|command| command.failed_attempts).unwrap_or_default();
    let output = output.captured.finish();
    Ok(FinishedCommand { status, stop, had_leftovers, failed_attempts, output })
}

/// Reads the output of `child` until it ends, `timeout` is over, or the run is cancelled.
fn wait(
    child: &mut RunningChild,
    timeout: Duration,
    output: &mut OutputPipe,
    on_output: &mut dyn FnMut(&[u8]),
) -> io::Result<(Option<ExitStatus>, Option<Stop>)> {
    // Kernels before 5.3 have no pidfd to wait for; then the child is polled.
    let pidfd = rustix::process::pidfd_open(child.group, PidfdFlags::empty()).ok();
    // A child that writes all the time is never waited for, but must respect the timeout too.
    let end = signal::now().saturating_add(timeout);
    loop {
        let mut fds = Vec::with_capacity(3);
        let pipe = output.pipe.as_ref();
        fds.extend(pipe.map(|pipe| (pipe.as_fd(), PollFlags::IN)));
        fds.extend(pidfd.as_ref().map(|fd| (fd.as_fd(), PollFlags::IN)));
        if let Some(supervised) = &child.supervised
            && supervised.has_more_reports
        {
            fds.push((supervised.connection.control.as_fd(), PollFlags::IN));
        }
        let mut deadline = Deadline::until(end);
        if pidfd.is_none() {
            deadline = deadline.min(Deadline::after(POLL_INTERVAL));
        }
        match signal::wait(&fds, &mut deadline) {
            Ok(Some(0)) if pipe.is_some() => output.read(on_output)?,
            Ok(_) => {}
            Err(stop) => return Ok((None, Some(stop))),
        }
        if let Some(status) = child.try_wait()? {
            return Ok((Some(status), None));
        }
        if signal::now() >= end {
            return Ok((None, None));
        }
    }
}

/// A running child. Dropping this ends it, even during a panic.
struct RunningChild {
    process: Child,
    group: Pid,
    /// The command, if `process` is that of its supervisor.
    supervised: Option<SupervisedCommand>,
    is_ended: bool,
}

/// A command of a supervisor, as the reports say.
struct SupervisedCommand {
    connection: SupervisorConnection,
    has_more_reports: bool,
    phase: CommandPhase,
    had_leftovers: bool,
    failed_attempts: FailedAttempts,
}

#[derive(Clone, Copy)]
enum CommandPhase {
    Starting,
    Running,
    Ended(ExitStatus),
    /// Only the supervisor is left, which is about to end.
    Finished(ExitStatus),
}

impl Drop for RunningChild {
    fn drop(&mut self) {
        if !self.is_ended {
            self.terminate(false);
        }
    }
}

fn spawn(
    spec: &CommandSpec,
    stdout: &io::PipeWriter,
    options: &SpawnOptions<'_>,
) -> io::Result<RunningChild> {
    let stderr = options.stderr.as_ref().unwrap_or(stdout);
    // Read only once: another thread may find it out meanwhile.
    let has_namespaces = are_namespaces_available();
    if let Some(sandbox) = &spec.sandbox
        && has_namespaces != Some(false)
    {
        let streams = [stdout.try_clone()?, stderr.try_clone()?];
        if let Some(child) = spawn_supervised(spec, sandbox, has_namespaces.is_some(), streams)? {
            return Ok(child);
        }
    }
    let hidden_paths = options.hidden_paths;
    let process = spawn_unsupervised(spec, hidden_paths, stdout.try_clone()?, stderr.try_clone()?)?;
    Ok(RunningChild::new(process))
}

/// Starts a command in namespaces of its own, with standard output and standard error. Returns `None` if the system allows none.
fn spawn_supervised(
    spec: &CommandSpec,
    sandbox: &SandboxSpec,
    has_tried_namespaces: bool,
    [stdout, stderr]: [io::PipeWriter; 2],
) -> io::Result<Option<RunningChild>> {
    let launch = LaunchSpec {
        program: spec.program.clone(),
        arguments: spec.arguments.clone(),
        directory: LaunchDirectory::Shared(StartDirectory::find(&spec.directory)?),
        env: spec.env.clone(),
        sandbox: Some(sandbox.clone().for_own_root()),
        kind: LaunchKind::Command,
        self_test: None,
        protected: ProtectedPids::default(),
    };
    let streams = [spec.open_input()?.into(), stdout.into(), stderr.into()];
    // The supervisor changes the directory itself, so that its start needs no copy of this process (`vfork`).
    let SupervisorProcess { process, mut connection } = standby::take_or_start(sandbox)?;
    let launched = connection.launch(&launch, streams);
    let mut child = RunningChild::new(process);
    let supervised = child.supervised.insert(SupervisedCommand {
        connection,
        has_more_reports: true,
        phase: CommandPhase::Starting,
        had_leftovers: false,
        failed_attempts: FailedAttempts::default(),
    });
    launched?;
    if has_tried_namespaces {
        // A run with a second command is likely to have more.
        standby::start_next(sandbox);
        return Ok(Some(child));
    }
    match supervised.connection.wait_for_start() {
        Ok(SupervisorReport::NoNamespaces(reason)) => {
            child.terminate(false);
            return match remember_namespaces(Err(reason.clone())) {
                // Another thread got them, so the sandbox of this command is the cause.
                Ok(()) => Err(io::Error::other(reason)),
                Err(_) => Ok(None),
            };
        }
        Ok(SupervisorReport::Started(_)) => {
            supervised.phase = CommandPhase::Running;
            drop(remember_namespaces(Ok(())));
        }
        // The run was cancelled, which the caller sees next.
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
        Ok(report) => return Err(report.into_error()),
        Err(error) => return Err(error),
    }
    Ok(Some(child))
}

fn spawn_unsupervised(
    spec: &CommandSpec,
    hidden_paths: Option<&HiddenPaths>,
    stdout: io::PipeWriter,
    stderr: io::PipeWriter,
) -> io::Result<Child> {
    let mut command = match (hidden_paths, &spec.sandbox) {
        (Some(hidden_paths), _) => hiding_command(&spec.program, &spec.directory, hidden_paths)?,
        (None, Some(sandbox)) if spec.has_program() => {
            let mut command = limited_command(sandbox, &spec.program);
            command.current_dir(&spec.directory);
            command
        }
        (None, Some(_)) => return Err(io::ErrorKind::NotFound.into()),
        (None, None) => {
            let mut command = Command::new(&spec.program);
            command.current_dir(&spec.directory);
            command
        }
    };
    let input = Stdio::from(spec.open_input()?);
    command
        .args(&spec.arguments)
        .env_clear()
        .envs(spec.env.iter().map(|(name, value)| (name, value)))
        .process_group(0);
    command.stdin(input).stdout(stdout).stderr(stderr);
    let mut groups = groups();
    let process = match &spec.sandbox {
        Some(sandbox) => sandbox.run_inside(&ProtectedPids::current(), || command.spawn())?,
        None => command.spawn()?,
    };
    groups.push(Pid::from_child(&process));
    Ok(process)
}

impl SupervisedCommand {
    /// The command's exit status, once it has ended. Its supervisor may have ended.
    ///
    /// # Errors
    /// It could not be started.
    fn try_wait(&mut self, has_supervisor_ended: bool) -> io::Result<Option<ExitStatus>> {
        self.read_reports()?;
        match self.phase {
            CommandPhase::Finished(status) => Ok(Some(status)),
            _ if !has_supervisor_ended => Ok(None),
            CommandPhase::Ended(status) => Ok(Some(status)),
            CommandPhase::Running => Ok(Some(killed())),
            CommandPhase::Starting => Err(io::Error::other("its sandbox could not be set up")),
        }
    }

    fn read_reports(&mut self) -> io::Result<()> {
        self.has_more_reports = self.connection.read_reports();
        while let Some(report) = self.connection.next_report() {
            match report {
                SupervisorReport::Entered => {}
                SupervisorReport::Started(_) => self.phase = CommandPhase::Running,
                SupervisorReport::Ended { status, signal, failed_attempts } => {
                    self.failed_attempts = failed_attempts;
                    // The format of wait(2): a signal, or the exit code in the second byte.
                    let raw = status.map_or(signal.unwrap_or_default(), |code| code << 8);
                    self.phase = CommandPhase::Ended(ExitStatus::from_raw(raw));
                }
                SupervisorReport::Leftovers => self.had_leftovers = true,
                SupervisorReport::Finished => {
                    self.phase = CommandPhase::Finished(match self.phase {
                        CommandPhase::Ended(status) => status,
                        _ => killed(),
                    });
                }
                other => return Err(other.into_error()),
            }
        }
        Ok(())
    }
}

/// The status of a command whose end was not reported: its supervisor was killed, and the command with it.
fn killed() -> ExitStatus {
    ExitStatus::from_raw(Signal::KILL.as_raw())
}

impl RunningChild {
    fn new(process: Child) -> Self {
        Self { group: Pid::from_child(&process), process, supervised: None, is_ended: false }
    }

    /// The command's exit status, once it has ended.
    ///
    /// # Errors
    /// It could not be started.
    fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        let ended = self.process.try_wait()?;
        match &mut self.supervised {
            None => Ok(ended),
            Some(supervised) => supervised.try_wait(ended.is_some()),
        }
    }

    /// Ends what is left of its group and the processes that it moved out of it. Returns true if there were any.
    fn terminate(&mut self, has_ended: bool) -> bool {
        self.is_ended = true;
        let group = self.group;
        let supervised = self.supervised.as_ref();
        let mut had_leftovers = supervised.is_some_and(|supervised| supervised.had_leftovers);
        if matches!(supervised.map(|it| it.phase), Some(CommandPhase::Finished(_))) {
            leave_to_end(group);
            return had_leftovers;
        }
        had_leftovers |= has_ended && is_group_alive(group, TERM_GRACE);
        // Errors below mean that no process is left to signal or to wait for.
        let _: Result<_, _> = rustix::process::kill_process_group(group, Signal::TERM);
        let started = Instant::now();
        while rustix::process::test_kill_process_group(group).is_ok()
            && started.elapsed() < TERM_GRACE
        {
            if !reap_group(group) {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        let _: Result<_, _> = rustix::process::kill_process_group(group, Signal::KILL);
        // The wait is limited: another user's process cannot be killed, nor one that waits for a dead disk.
        let killed = Instant::now();
        while matches!(self.process.try_wait(), Ok(None)) && killed.elapsed() < KILL_TIMEOUT {
            std::thread::sleep(Duration::from_millis(2));
        }
        groups().retain(|other| *other != group);
        had_leftovers |= kill_leftovers();
        had_leftovers
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{CommandResult, CommandSpec, run};
    use nanobot_os::children::serialize_tests;
    use std::time::Duration;

    fn sh(command: &str, seconds: u64) -> (CommandResult, String) {
        let _alone = serialize_tests();
        let spec = CommandSpec {
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), command.into()],
            directory: "/".into(),
            env: vec![("PATH".into(), "/usr/bin:/bin".into())],
            timeout: Duration::from_secs(seconds),
            capture_bytes: 1000,
            sandbox: None,
            input: None,
        };
        let mut output = Vec::new();
        let finished = run(&spec, &mut |bytes| output.extend_from_slice(bytes)).unwrap();
        (finished, String::from_utf8_lossy(&output).into_owned())
    }

    /// True if a process with this mark in its arguments runs.
    pub(in crate::process) fn is_process_running(mark: &str) -> bool {
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        all.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok())
            .any(|line| String::from_utf8_lossy(&line).contains(mark))
    }

    #[test]
    fn output_is_in_order_and_status_is_reported() {
        let (finished, output) = sh("echo one; echo two >&2; echo three; exit 3", 10);
        assert_eq!(output, "one\ntwo\nthree\n");
        assert_eq!(finished.head, output.as_bytes());
        assert_eq!(finished.status.unwrap().code(), Some(3));
        assert!(!finished.had_leftovers);
        assert_eq!(sh("kill -9 $$", 10).0.signal(), Some(9));
    }

    #[test]
    fn large_output_is_drained_and_capped() {
        // A command that writes all the time has a timeout too, and so do its leftovers.
        assert!(sh("yes", 1).0.status.is_none());
        assert!(sh("yes & exit 0", 60).0.had_leftovers);
        let (finished, _) = sh("yes | head -c 5000000; echo; echo end", 60);
        assert!(finished.head.len() == 1000 && finished.tail.ends_with(b"end\n"));
        assert_eq!(
            finished.head.len() as u64 + finished.tail.len() as u64 + finished.omitted_bytes,
            5_000_005
        );
    }

    #[test]
    fn an_exiting_process_is_not_a_leftover() {
        // The reader ends when the writer's files are closed; nothing waits for the writer itself.
        let command = "d=$(mktemp -d); mkfifo $d/f; (exec > $d/f) & cat $d/f; rm -r $d; exec true";
        for _ in 0..nanobot_base::fuzz::by_depth(10, 50) {
            let (finished, _) = sh(command, 60);
            assert!(finished.status.unwrap().success() && !finished.had_leftovers);
        }
        // A process that has ended stays in the group until it is reaped.
        let (finished, _) = sh("true & exec sleep 0.01", 60);
        assert!(!finished.had_leftovers);
    }

    #[test]
    fn nothing_outlives_a_command() {
        // A mark unique to this run: processes left behind by another run prove nothing.
        let mark = format!("{}.", 200_000 + std::process::id());
        let (finished, output) = sh(
            &format!(
                "sleep {mark}1 & setsid sleep {mark}2 & (trap '' TERM; sleep {mark}3) & echo on"
            ),
            10,
        );
        assert_eq!(output, "on\n");
        assert!(finished.had_leftovers && finished.status.unwrap().success());
        let (finished, _) = sh(&format!("trap '' TERM; setsid sleep {mark}4 & sleep {mark}5"), 1);
        assert!(finished.status.is_none());
        for number in 1..=5 {
            assert!(!is_process_running(&format!("sleep\0{mark}{number}")), "{number}");
        }
    }

    #[test]
    fn chains_of_processes_that_replace_each_other_end_with_their_command() {
        let mark = format!("chain-{}", std::process::id());
        let hop = format!(
            "if [ $1 -gt 0 ]; then setsid sh -c \"$0\" \"$0\" $(($1-1)) {mark} >/dev/null 2>&1 & exit; fi; exec sleep 60 {mark}"
        );
        for round in 0..nanobot_base::fuzz::by_depth(6, 60) {
            let start =
                format!("for n in 1 2 3 4; do sh -c '{hop}' '{hop}' 200 {mark} & done; sleep 0.01");
            sh(&start, 10);
            assert!(!is_process_running(&mark), "{round}");
        }
    }
}
