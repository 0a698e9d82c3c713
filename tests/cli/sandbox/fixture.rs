//! The fixture for sandbox tests: a story whose model calls `exec` with many commands at once, as the current or another
//! user.

use crate::requirements::require;
use crate::server::{calls_all, says};
use crate::story::copy_program;
use crate::story::{NANOBOT, Story, write};
use serde_json::json;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

/// The system call that creates namespaces.
const UNSHARE: i64 = if cfg!(target_arch = "aarch64") {
    97
} else {
    272
};

/// The UID of the unprivileged user on every Linux system.
const NOBODY_UID: u32 = 65534;

/// The user of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum User {
    /// The user who runs the tests.
    Current,
    /// An unprivileged user, if root runs the tests.
    Nobody,
}

/// All users for which tests can run here.
pub(super) fn available_users() -> Vec<User> {
    let is_root = rustix::process::getuid().is_root();
    match is_root && require("setpriv") {
        true => vec![User::Current, User::Nobody],
        false => vec![User::Current],
    }
}

/// Prints a count for the reader of the test output.
#[expect(clippy::print_stdout, reason = "counts")]
pub(crate) fn print_count(line: &str) {
    println!("sandbox: {line}");
}

pub(super) struct SandboxFixture {
    pub(super) story: Story,
    user: User,
    /// The number of a missing system call.
    missing_syscall: Option<i64>,
    /// The command that starts the program.
    wrapper: Vec<String>,
}

/// Python script that executes its remaining arguments on a kernel without the system call in the first one.
const BLOCK_SYSCALL_SCRIPT: &str = "
import ctypes, os, struct, sys
call = int(sys.argv[1])
steps = [(0x20,0,0,0), (0x15,0,1,call), (0x06,0,0,0x50000|38), (0x06,0,0,0x7fff0000)]
code = b''.join(struct.pack('HBBI', *step) for step in steps)
place = ctypes.create_string_buffer(code)
program = struct.pack('HxxxxxxQ', len(steps), ctypes.addressof(place))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0, ctypes.get_errno()
os.execvp(sys.argv[2], sys.argv[2:])
";

/// A wrapper that simulates a kernel without this system call; `None` if that is impossible.
pub(super) fn wrapper_without_syscall(call: i64) -> Option<Vec<String>> {
    if !require("python3") {
        return None;
    }
    Some(
        ["python3", "-c", BLOCK_SYSCALL_SCRIPT, &call.to_string()]
            .map(str::to_owned)
            .into(),
    )
}

impl SandboxFixture {
    pub(super) fn new(user: User) -> Self {
        let story = Story::new();
        // Not every machine allows all users to write to the system's temporary directory.
        let temporary = story.home().parent().unwrap().join("tmp");
        std::fs::create_dir(&temporary).unwrap();
        let story = story.env("TMPDIR", temporary.to_str().unwrap());
        // The toolchain of the tests may be in another user's home.
        let cargo = Path::new(env!("CARGO")).parent().unwrap().display();
        let path = format!("{cargo}:/usr/local/bin:/usr/bin:/bin");
        let story = story.env("PATH", &path);
        Self {
            story,
            user,
            missing_syscall: None,
            wrapper: Vec::new(),
        }
    }

    /// Simulates a system that allows no namespaces.
    pub(super) fn without_namespaces(mut self) -> Self {
        self.missing_syscall = Some(UNSHARE);
        self
    }

    /// Starts the program with a wrapper that takes it as its last arguments.
    pub(super) fn with_wrapper(mut self, wrapper: &[&str]) -> Self {
        self.wrapper = wrapper.iter().map(|word| (*word).to_owned()).collect();
        self
    }

    /// A directory next to home and working directory, outside of the run's scope.
    pub(super) fn outside_dir(&self) -> PathBuf {
        self.story.home().parent().unwrap().join("outside")
    }

    pub(super) fn write_file(&self, path: &Path, text: &str) {
        write(path, text.as_bytes());
    }

    /// The tool result of each command.
    pub(super) fn run_commands<S: AsRef<str>>(
        &self,
        flags: &[&str],
        commands: &[S],
    ) -> Vec<String> {
        let calls = commands.iter().map(|command| {
            (
                "exec",
                json!({ "command": command.as_ref(), "timeout": 60 }),
            )
        });
        self.story
            .server()
            .script([calls_all(calls.collect::<Vec<_>>()), says("done")]);
        let before = self.story.requests().len();
        let child = self.command(flags).spawn().expect("the program starts");
        let ran = self.story.wait(child);
        // Restored files are reported there.
        let errors = ran.error_text();
        ran.stdout("done\n");
        let requests = self.story.requests();
        assert_eq!(requests.len(), before + 2, "{errors}");
        let messages = requests[before + 1].messages();
        let told = messages.iter().rev().take(commands.len()).rev();
        let told: Vec<String> = told
            .map(|message| message["content"].as_str().unwrap_or_default().to_owned())
            .collect();
        assert_eq!(told.len(), commands.len());
        told
    }

    /// The command for the fixture's user, who owns all files of the story from now on.
    pub(super) fn command(&self, flags: &[&str]) -> Command {
        let mut arguments = vec!["agent", "-m", "go", "--ephemeral"];
        arguments.extend(flags);
        let mut words: Vec<String> = Vec::new();
        if self.user == User::Nobody {
            give_to_nobody(self.story.home().parent().unwrap());
            words.push("setpriv".into());
            words.extend([
                format!("--reuid={NOBODY_UID}"),
                format!("--regid={NOBODY_UID}"),
                "--clear-groups".into(),
            ]);
        }
        words.extend(self.wrapper.iter().cloned());
        words.extend(
            self.missing_syscall
                .and_then(wrapper_without_syscall)
                .unwrap_or_default(),
        );
        words.push(match self.user {
            User::Current => NANOBOT.into(),
            User::Nobody => SHARED_PROGRAM.display().to_string(),
        });
        let mut command = self.story.program(&words[0]);
        command.args(&words[1..]).args(arguments);
        command
    }
}

/// A copy of the program that every user can execute.
static SHARED_PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| {
    let mut path = PathBuf::from(NANOBOT);
    let is_open = |path: &Path| {
        std::fs::metadata(path).is_ok_and(|about| about.permissions().mode() & 0o5 == 0o5)
    };
    if path.ancestors().all(is_open) {
        return path;
    }
    let dir = std::env::temp_dir().join(format!("nanobot-tests-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o755)).unwrap();
    path = dir.join("nanobot");
    copy_program(NANOBOT, &path);
    path
});

fn give_to_nobody(path: &Path) {
    std::os::unix::fs::lchown(path, Some(NOBODY_UID), Some(NOBODY_UID)).unwrap();
    if path.is_dir() && !path.is_symlink() {
        for entry in std::fs::read_dir(path).unwrap().flatten() {
            give_to_nobody(&entry.path());
        }
    }
}
