//! The situations that the program runs in: as which user, and with or without namespaces.

use crate::requirements::require;
use crate::story::{NANOBOT, Story, copy_program};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

/// The system call that creates namespaces.
const UNSHARE: i64 = if cfg!(target_arch = "aarch64") { 97 } else { 272 };

/// The UID of the unprivileged user on every Linux system.
const NOBODY_UID: u32 = 65534;

/// The user of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum User {
    /// The user who runs the tests.
    Current,
    /// An unprivileged user, if root runs the tests.
    Nobody,
}

/// All users for which tests can run here.
pub(crate) fn available_users() -> Vec<User> {
    let is_root = rustix::process::getuid().is_root();
    if is_root && require("setpriv") {
        vec![User::Current, User::Nobody]
    } else {
        vec![User::Current]
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Situation {
    pub(crate) user: User,
    /// The system allows namespaces.
    pub(crate) has_namespaces: bool,
}

impl Situation {
    /// The command that starts the program, with `wrapper` before it, for the situation's user, who owns all files of the
    /// story from now on.
    pub(crate) fn command(self, story: &Story, wrapper: &[String]) -> Command {
        let mut parts: Vec<String> = Vec::new();
        if self.user == User::Nobody {
            give_to_nobody(story.home().parent().unwrap());
            parts.push("setpriv".into());
            parts.extend([
                format!("--reuid={NOBODY_UID}"),
                format!("--regid={NOBODY_UID}"),
                "--clear-groups".into(),
            ]);
        }
        parts.extend(wrapper.iter().cloned());
        if !self.has_namespaces {
            parts.extend(wrapper_without_syscall(UNSHARE).unwrap_or_default());
        }
        parts.push(match self.user {
            User::Current => NANOBOT.into(),
            User::Nobody => SHARED_PROGRAM.display().to_string(),
        });
        let mut command = story.program(&parts[0]);
        command.args(&parts[1..]);
        command
    }
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
pub(crate) fn wrapper_without_syscall(call: i64) -> Option<Vec<String>> {
    if !require("python3") {
        return None;
    }
    Some(["python3", "-c", BLOCK_SYSCALL_SCRIPT, &call.to_string()].map(str::to_owned).into())
}

/// A copy of the program that every user can execute.
static SHARED_PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| {
    let mut path = PathBuf::from(NANOBOT);
    let is_open = |path: &Path| {
        std::fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o5 == 0o5)
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
