//! Children: each in a group of its own, with a deadline, its output drained and capped; and none that outlives the run.

pub mod resident;
mod warden;

pub use warden::become_warden;

use crate::error::Stop;
use crate::sys::sandbox::{Fence, Ours, Remembered};
use crate::sys::signal::{self, Patience};
use crate::sys::store;
use rustix::event::PollFlags;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, Signal};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, Once, PoisonError, TryLockError, mpsc};
use std::time::{Duration, Instant};

/// How long a child that was asked to end may take.
const GRACE: Duration = Duration::from_millis(200);
/// How long what was killed may take to be gone.
const GIVE_UP: Duration = Duration::from_secs(1);
/// How long the pipe of a shell that has ended may stay open: a child in the background holds it.
const HOLD: Duration = Duration::from_millis(100);
/// How often a running child is looked at, where it cannot be waited for.
const LOOK: Duration = Duration::from_millis(10);
/// The largest file that a fenced command may write, in bytes.
const LARGEST: u64 = 4 << 30;
/// How many tasks a fenced command may start beside those that the whole system has when it starts.
const TASKS: u64 = 4096;

/// First thing in `main`: no descriptor that we inherited reaches a child, and nobody reads our memory, on disk neither.
pub fn start() {
    close_fds::set_fds_cloexec(3, &[]);
    // Where the kernel refuses, keys are as safe as in any program.
    let _: Result<_, _> =
        rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    let _: Result<_, _> = rustix::process::setrlimit(Resource::Core, none);
}

/// The groups of the children that run: what is not among them is a stray. It is locked while a child starts.
static GROUPS: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

fn groups() -> MutexGuard<'static, Vec<Pid>> {
    GROUPS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether no child runs.
pub(super) fn is_alone() -> bool {
    groups().is_empty()
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
    /// What it may reach. `None` for all that we may.
    pub fence: Option<Fence>,
    /// What it can read; for commands without a fence.
    pub input: Option<Vec<u8>>,
}

/// Whether there is a terminal that a person may sit at, wherever the streams lead.
pub fn has_terminal() -> bool {
    File::open("/dev/tty").is_ok()
}

/// Whether a process of that number runs.
pub fn is_alive(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    // Somebody else's may not be asked, which shows that it is there.
    pid.is_some_and(|pid| !matches!(rustix::process::test_kill_process(pid), Err(Errno::SRCH)))
}

/// The process of this user and this `home` whose command line has the words `wanted`, where there is one. The first of them
/// may be a path.
pub fn running(wanted: &[&str], home: &Path) -> Option<u32> {
    let words = |path: PathBuf| -> Vec<String> {
        let bytes = std::fs::read(path).unwrap_or_default();
        let words = bytes.split(|byte| *byte == 0);
        words
            .map(|word| String::from_utf8_lossy(word).into_owned())
            .collect()
    };
    let is_it = |line: &[String]| {
        let last = |word: &str| word.rsplit('/').next() == wanted.first().copied();
        let rest = |words: &[String]| words.iter().zip(wanted).skip(1).all(|(a, b)| a == b);
        let mut runs = line.windows(wanted.len());
        runs.any(|words| last(&words[0]) && rest(words))
    };
    let home = format!("HOME={}", home.display());
    let entries = std::fs::read_dir("/proc").ok()?.flatten();
    let mut numbered = entries.filter_map(|entry| {
        let number = entry.file_name().to_str()?.parse::<u32>().ok()?;
        Some((number, entry.path()))
    });
    let found = numbered.find(|(_, path)| {
        // What is not ours cannot be asked for its environment.
        is_it(&words(path.join("cmdline"))) && words(path.join("environ")).contains(&home)
    });
    found.map(|(number, _)| number)
}

/// Where this program is, as whoever started it had it: a link stays one, so that it leads to the next release too. `path`
/// is what the variable says. Where that is another program, it is the file that runs.
pub fn program(path: Option<&str>) -> io::Result<PathBuf> {
    let own = std::env::current_exe()?;
    let same = |found: &PathBuf| match (std::fs::metadata(found), std::fs::metadata(&own)) {
        (Ok(found), Ok(own)) => (found.dev(), found.ino()) == (own.dev(), own.ino()),
        _ => false,
    };
    let typed = std::env::args_os().next().map(PathBuf::from);
    let Some(typed) = typed.filter(|typed| !typed.as_os_str().is_empty()) else {
        return Ok(own);
    };
    let found = match typed.components().count() {
        1 if !typed.starts_with("/") => {
            let folders = path.unwrap_or_default().split(':');
            folders
                .filter(|folder| folder.starts_with('/'))
                .map(|folder| Path::new(folder).join(&typed))
                .find(|found| found.is_file())
        }
        _ => Some(std::path::absolute(typed)?),
    };
    Ok(found.filter(same).unwrap_or(own))
}

/// Those that go on by themselves, and those that sit beside us: they are nobody's strays.
static DETACHED: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

/// Start this program once more, with `arguments`, without streams; nobody waits for it.
pub fn detach(arguments: &[OsString]) -> io::Result<()> {
    let mut command = Command::new(ourselves()?);
    // In a group of its own from its first instant on: a terminal's signals go to those in front, and when the terminal
    // itself goes away a moment later, one that had yet to start a session of its own would go with it.
    command.arg0("nanobot").args(arguments).process_group(0);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut detached = DETACHED.lock().unwrap_or_else(PoisonError::into_inner);
    detached.push(Pid::from_child(&command.spawn()?));
    Ok(())
}

/// Start this program once more, with `arguments` and our streams, but without input.
pub fn beside(arguments: &[OsString]) -> io::Result<std::process::Child> {
    let mut command = Command::new(ourselves()?);
    command.arg0("nanobot").args(arguments).stdin(Stdio::null());
    command.spawn()
}

/// Become the shell's `command` in `directory`, with `env` alone and without input. It returns only where that failed.
pub fn become_shell(command: &str, env: &[(String, String)], directory: &Path) -> io::Error {
    let mut shell = Command::new("/bin/sh");
    shell
        .args(["-c", command])
        .current_dir(directory)
        .env_clear();
    shell.envs(env.iter().map(|(name, value)| (name, value)));
    shell.stdin(Stdio::null()).exec()
}

/// The program that runs, also where another has taken its place on disk.
fn ourselves() -> io::Result<PathBuf> {
    let link = Path::new("/proc/self/exe");
    match link.exists() {
        true => Ok(link.to_owned()),
        false => std::env::current_exe(),
    }
}

/// Let a person work with `program`, a command for a shell, on the file at `path`. Whether it ended well.
pub fn edit(program: &str, path: &Path) -> io::Result<bool> {
    let mut command = Command::new("/bin/sh");
    // The terminal's keys reach the shell as well. It takes them, so that it waits on, and its child does not inherit that.
    command
        .args(["-c", &format!("trap : INT QUIT; {program} \"$1\""), program])
        .arg(path);
    Ok(command.status()?.success())
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
    pub strays: bool,
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
            strays: false,
            restored: Vec::new(),
        }
    }

    /// The signal that ended it.
    pub fn signal(&self) -> Option<i32> {
        self.status.and_then(|status| status.signal())
    }
}

/// How often somebody else's command is looked at that may change the same files: a blocking wait could not be given up.
const TURN: Duration = Duration::from_millis(20);

/// The right to change files where what was changed of [`Fence::kept`] is put back afterwards: one command's at a time,
/// since two would remember each other's changes as what is to be kept.
#[derive(Debug)]
struct Turn {
    _here: MutexGuard<'static, ()>,
    /// The writable directories and those above them, locked against other processes.
    _held: Vec<File>,
}

impl Turn {
    /// Wait for it, as long as `patience` lasts.
    ///
    /// # Errors
    /// The run is to end, or `patience` is over.
    fn take(fence: &Fence, mut patience: Patience) -> Result<Self, NoTurn> {
        static HERE: Mutex<()> = Mutex::new(());
        let mut wait = || {
            if patience.is_over() {
                return Err(NoTurn::Busy);
            }
            patience.spend(TURN);
            signal::pause(TURN).map_err(NoTurn::Stopped)
        };
        let here = loop {
            match HERE.try_lock() {
                Ok(here) => break here,
                Err(TryLockError::Poisoned(poisoned)) => break poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => wait()?,
            }
        };
        let mut held = Vec::new();
        for (file, exclusive) in places_of_turn(fence) {
            let kind = match exclusive {
                true => FlockOperation::NonBlockingLockExclusive,
                false => FlockOperation::NonBlockingLockShared,
            };
            loop {
                match rustix::fs::flock(&file, kind) {
                    Err(Errno::WOULDBLOCK) => wait()?,
                    Err(Errno::INTR) => {}
                    // Not every file system has locks for directories; then other processes are not waited for.
                    Ok(()) | Err(_) => break,
                }
            }
            held.push(file);
        }
        Ok(Self {
            _here: here,
            _held: held,
        })
    }
}

/// Why it is not somebody's turn.
enum NoTurn {
    Busy,
    Stopped(Stop),
}

/// What is locked for a turn: the directories that may be written, which are for one alone, and those above them, which
/// whoever writes all of one is not to share. In an order that is everybody's, so that no two wait for each other.
fn places_of_turn(fence: &Fence) -> Vec<(File, bool)> {
    let mut places: BTreeMap<(u64, u64), (File, bool)> = BTreeMap::new();
    // The last is the private one.
    let roots = fence.writes.iter().rev().skip(1);
    for (path, exclusive) in roots.flat_map(|root| {
        root.ancestors()
            .zip([true].into_iter().chain(std::iter::repeat(false)))
    }) {
        // A file's lock is for the programs that use it; the directory it is in will do.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(file) = rustix::fs::open(path, flags, Mode::empty()).map(File::from) else {
            continue;
        };
        let Ok(about) = file.metadata() else { continue };
        // Others could keep theirs locked.
        if !exclusive && about.uid() != rustix::process::geteuid().as_raw() {
            continue;
        }
        let place = places
            .entry((about.dev(), about.ino()))
            .or_insert((file, exclusive));
        place.1 |= exclusive;
    }
    places.into_values().collect()
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

/// What children need of us, once.
fn prepare() {
    static FIRST: Once = Once::new();
    FIRST.call_once(|| {
        // Whoever started us may have it ignored, and then the system takes leave of our children before we can.
        static ENDED: AtomicBool = AtomicBool::new(false);
        drop(signal_hook::flag::register(
            signal_hook::consts::SIGCHLD,
            &ENDED,
        ));
        // What a child leaves behind becomes ours, so that it can be ended. Not everywhere to be had, and then it is not.
        let _: Result<_, _> = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    });
}

/// Bytes that are kept of what a command complains of.
const COMPLAINTS: u64 = 16 << 10;

/// As [`run`], with what the command writes on standard error apart: the beginning of that, and all else in [`Finished`].
///
/// # Errors
/// It cannot be started.
pub fn run_apart(spec: &Spec) -> io::Result<(Finished, Vec<u8>)> {
    let (mut pipe, errors) = io::pipe()?;
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut said = Vec::new();
        // Where nobody can read any more, what was read is what there is; and whoever asked may be gone.
        drop(pipe.by_ref().take(COMPLAINTS).read_to_end(&mut said));
        drop(io::copy(&mut pipe, &mut io::sink()));
        drop(sender.send(said));
    });
    let finished = run_with(spec, Some(errors), &mut |_| ())?;
    // What it left behind has ended; what could not be ended is not waited for.
    Ok((finished, receiver.recv_timeout(GIVE_UP).unwrap_or_default()))
}

fn run_with(
    spec: &Spec,
    errors: Option<io::PipeWriter>,
    say: &mut dyn FnMut(&[u8]),
) -> io::Result<Finished> {
    prepare();
    let writing = spec.fence.as_ref().filter(|fence| fence.writes.len() > 1);
    let turn = match writing.map(|fence| Turn::take(fence, Patience::of(spec.timeout))) {
        None => None,
        Some(Ok(turn)) => Some(turn),
        Some(Err(NoTurn::Busy)) => return Err(io::ErrorKind::ResourceBusy.into()),
        Some(Err(NoTurn::Stopped(stop))) => return Ok(Finished::unstarted(stop)),
    };
    let remembered = match &spec.fence {
        Some(fence) if writing.is_some() || fence.hides => Some(fence.remember(lets_mount(fence))?),
        _ => None,
    };
    let (mut pipe, writer) = io::pipe()?;
    let mut child = spawn(spec, writer, errors)?;
    let mut kept = Kept {
        limit: spec.keep,
        ..Kept::default()
    };
    let mut block = vec![0; 64 << 10];
    // A kernel before 5.3 cannot tell when a child ends; then it is asked now and then.
    let pidfd = rustix::process::pidfd_open(child.group, PidfdFlags::empty()).ok();
    // A child that always has something to say is never waited for, and must end all the same.
    let end = signal::now().saturating_add(spec.timeout);
    let mut open = true;
    let (status, stopped) = loop {
        let mut fds = Vec::with_capacity(2);
        fds.extend(open.then(|| (pipe.as_fd(), PollFlags::IN)));
        fds.extend(pidfd.as_ref().map(|fd| (fd.as_fd(), PollFlags::IN)));
        let mut patience = Patience::until(end);
        if pidfd.is_none() {
            patience = patience.min(Patience::of(LOOK));
        }
        match signal::wait(&fds, &mut patience) {
            Ok(Some(0)) if open => open = take(&mut pipe, &mut block, &mut kept, say)? > 0,
            Ok(_) => {}
            Err(stop) => break (None, Some(stop)),
        }
        if let Some(status) = child.process.try_wait()? {
            break (Some(status), None);
        }
        if signal::now() >= end {
            break (None, None);
        }
    };
    // What a shell said before it ended is in the pipe; what it left behind may hold that open, and go on talking.
    if status.is_some() {
        let hold = signal::now() + HOLD;
        while open && may_read(&pipe, Patience::until(hold)) {
            open = take(&mut pipe, &mut block, &mut kept, say)? > 0;
            if signal::now() >= hold {
                break;
            }
        }
    }
    let strays = child.end(status.is_some());
    // The rest, now that nobody writes any more; or somebody who could not be ended, and then not for long.
    let hold = signal::now() + HOLD;
    while open && may_read(&pipe, Patience::of(Duration::ZERO)) && signal::now() < hold {
        open = take(&mut pipe, &mut block, &mut kept, &mut |_| {})? > 0;
    }
    let restored = remembered.map(Remembered::restore).unwrap_or_default();
    drop(turn);
    Ok(Finished {
        head: kept.head,
        tail: kept.tail,
        left_out: kept.left_out,
        status,
        stopped,
        strays,
        restored,
    })
}

/// Whether there is something to read, and nothing else to do.
fn may_read(pipe: &io::PipeReader, mut patience: Patience) -> bool {
    matches!(signal::readable(pipe, &mut patience), Ok(true))
}

/// Read once what there is.
fn take(
    pipe: &mut io::PipeReader,
    block: &mut [u8],
    kept: &mut Kept,
    say: &mut dyn FnMut(&[u8]),
) -> io::Result<usize> {
    let count = match pipe.read(block) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(1),
        other => other?,
    };
    if count > 0 {
        say(&block[..count]);
        kept.add(&block[..count]);
    }
    Ok(count)
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
        Some(fence) => inner(&Order {
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
        limit(Pid::from_child(&process));
    }
    let group = Pid::from_child(&process);
    groups.push(group);
    Ok(Running {
        process,
        group,
        ended: false,
    })
}

/// The name by which this program, started by itself, knows that it is to fence itself in and become a command.
const INNER: &str = "nanobot-fence";

/// What it is told on its standard input.
#[derive(Serialize, Deserialize)]
struct Order {
    fence: Fence,
    /// Who starts it.
    ours: Ours,
    /// What it becomes. Empty for nothing: then it only tries.
    program: PathBuf,
    arguments: Vec<String>,
}

fn inner(order: &Order) -> io::Result<Command> {
    let (reader, mut writer) = io::pipe()?;
    let bytes = serde_json::to_vec(order).map_err(io::Error::other)?;
    // Nobody reads yet: what is more than a pipe holds would be waited for without end.
    rustix::pipe::fcntl_setpipe_size(&writer, bytes.len().max(1 << 16))?;
    writer.write_all(&bytes)?;
    let mut command = Command::new("/proc/self/exe");
    command.arg0(INNER).stdin(reader);
    Ok(command)
}

/// Whether commands behind `fence` get mounts of their own. It is tried once.
pub fn lets_mount(fence: &Fence) -> bool {
    fence.has_mounts(|| try_mounts(fence))
}

/// Whether this system lets commands have the mounts that `fence` is better kept by.
fn try_mounts(fence: &Fence) -> bool {
    let order = Order {
        fence: fence.clone(),
        ours: Ours::now(),
        program: PathBuf::new(),
        arguments: Vec::new(),
    };
    let tried = inner(&order).and_then(|mut command| {
        command.env_clear().stdout(Stdio::null());
        command.stderr(Stdio::null()).status()
    });
    tried.is_ok_and(|status| status.success())
}

/// First of all in `main`: whether this program was started by itself to become a command in mounts of its own, and then
/// why it did not become it. `Ok` where it was only to try.
pub fn become_command() -> Option<io::Result<()>> {
    let name = std::env::args_os().next();
    if name.is_none_or(|name| name != INNER) {
        return None;
    }
    let enter = || {
        close_fds::set_fds_cloexec(3, &[]);
        let mut bytes = Vec::new();
        io::stdin().read_to_end(&mut bytes)?;
        let order: Order = serde_json::from_slice(&bytes).map_err(io::Error::other)?;
        rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
        order.fence.close_with_mounts(&order.ours)?;
        match order.program.as_os_str().is_empty() {
            true => Ok(()),
            false => Err(Command::new(order.program).args(order.arguments).exec()),
        }
    };
    Some(enter())
}

/// Set the child's limits: they are a process's and not a thread's, so that it cannot inherit them from the thread that
/// starts it. It is in its first instant, before a shell could have read its command; and they guard against accidents.
fn limit(child: Pid) {
    let set = |resource, most: u64| {
        let now = rustix::process::getrlimit(resource);
        let least = |limit: Option<u64>| Some(limit.map_or(most, |limit| limit.min(most)));
        let limit = Rlimit {
            current: least(now.current),
            maximum: least(now.maximum),
        };
        // It may have ended already.
        let _: Result<_, _> = rustix::process::prlimit(Some(child), resource, limit);
    };
    set(Resource::Fsize, LARGEST);
    // The user's other processes count too. (Root's are not limited by this at all.)
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let tasks = load
        .split_whitespace()
        .find_map(|word| word.split_once('/')?.1.parse::<u64>().ok());
    if let Some(tasks) = tasks {
        set(Resource::Nproc, tasks + TASKS);
    }
}

impl Running {
    /// End what is left of its group and of what it put outside. Whether there was anything.
    fn end(&mut self, has_ended: bool) -> bool {
        self.ended = true;
        let group = self.group;
        let mut strays = rustix::process::test_kill_process_group(group).is_ok() && has_ended;
        // Errors below mean that there is nobody left to signal, or to wait for.
        let _: Result<_, _> = rustix::process::kill_process_group(group, Signal::TERM);
        let asked = Instant::now();
        while rustix::process::test_kill_process_group(group).is_ok() && asked.elapsed() < GRACE {
            drop(self.process.try_wait());
            reap();
            std::thread::sleep(Duration::from_millis(2));
        }
        let _: Result<_, _> = rustix::process::kill_process_group(group, Signal::KILL);
        // What may not be killed, such as another user's, or what waits for a dead disk, is not waited for.
        let killed = Instant::now();
        while matches!(self.process.try_wait(), Ok(None)) && killed.elapsed() < GIVE_UP {
            std::thread::sleep(Duration::from_millis(2));
        }
        groups().retain(|other| *other != group);
        strays |= end_strays();
        strays
    }
}

/// End every child of ours that we did not start: what children left behind, in whatever group or session.
fn end_strays() -> bool {
    let mut found = false;
    // Ending one can hand us its children in turn.
    for _ in 0..16 {
        let mut strays: Vec<Pid> = {
            // Locked while they are listed: what starts meanwhile is not theirs.
            let known = groups();
            let all = children().into_iter();
            all.filter(|pid| !is_known(*pid, &known) && !reaped(*pid))
                .collect()
        };
        if strays.is_empty() {
            break;
        }
        found = true;
        for pid in &strays {
            let _: Result<_, _> = rustix::process::kill_process(*pid, Signal::KILL);
        }
        let killed = Instant::now();
        loop {
            strays.retain(|pid| !reaped(*pid));
            if strays.is_empty() {
                break;
            }
            if killed.elapsed() >= GIVE_UP {
                return found;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    found
}

/// Take leave of strays that have ended by themselves.
fn reap() {
    let known = groups();
    for pid in children().into_iter().filter(|pid| !is_known(*pid, &known)) {
        reaped(pid);
    }
}

fn reaped(pid: Pid) -> bool {
    matches!(
        rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::NOHANG),
        Ok(Some(_))
    )
}

/// Whether `pid` belongs to a child that runs: it is that child, or in its group.
fn is_known(pid: Pid, known: &[Pid]) -> bool {
    let group = rustix::process::getpgid(Some(pid));
    let detached = DETACHED.lock().unwrap_or_else(PoisonError::into_inner);
    detached.contains(&pid)
        || known.contains(&pid)
        || group.is_ok_and(|group| known.contains(&group))
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
#[derive(Default)]
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
pub(crate) mod tests {
    use super::{Finished, Spec, run};
    use std::sync::{Mutex, MutexGuard, PoisonError};
    use std::time::{Duration, Instant};

    /// What one test leaves behind would be another one's stray: they share a process, as no two commands of a run do.
    pub(crate) fn alone() -> MutexGuard<'static, ()> {
        static ALONE: Mutex<()> = Mutex::new(());
        ALONE.lock().unwrap_or_else(PoisonError::into_inner)
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
    pub(super) fn lives(mark: &str) -> bool {
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
        // One that never falls silent has a deadline too, and so has what it leaves behind.
        let started = Instant::now();
        assert!(sh("yes", 1).0.status.is_none());
        assert!(sh("yes & exit 0", 60).0.strays);
        assert!(started.elapsed() < Duration::from_secs(10));
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
