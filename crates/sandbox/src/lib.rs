//! The sandbox for commands and MCP servers, in three layers: namespaces with a root that holds only what is granted
//! (`namespaces`, `mounts`), Landlock for files, and seccomp for everything else that leads outside; no capabilities.
//!
//! The namespaces are entered by a supervisor, a process of its own. The other two layers are applied to a thread, which
//! then starts the command. The child inherits them, the rest of the program stays unrestricted, and no unsafe code is needed. Where a
//! system allows no namespaces, only these two apply, and commands may not change any file. A requested restriction is either enforced or
//! reported as an error; it is never silently weakened.
//!
//! The caller decides what a command may do, and says all of it in a [`SandboxSpec`]. Start there and with [`process`], which
//! runs commands, servers and helpers; `namespaces`, `mounts`, `landlock_rules` and `seccomp` are the layers, and the files
//! named `git_…` decide what of a git directory a command may change.

#![cfg_attr(
    test,
    allow(clippy::needless_pass_by_value, reason = "cases of a table read best as values")
)]

pub mod output_file;
pub mod process;
pub mod stored_secret;

mod config_copies;
mod config_mask;
mod directory_cache;
mod files_beneath;
mod git_config;
mod git_config_files;
mod git_config_rules;
mod git_history;
mod git_object_list;
mod git_objects;
pub mod git_paths;
mod git_repository;
mod hidden_paths;
mod landlock_rules;
mod local_sockets;
mod mounts;
pub mod namespaces;
mod network;
mod new_repository;
pub mod parser;
pub mod private_tmp;
pub mod project_file_rules;
mod project_files;
mod protected_state;
mod real_path;
mod repository_search;
mod restore;
mod seccomp;
mod seccomp_program;
pub mod self_test;
mod snapshot_entry;
mod spec;
mod start_directory;
pub mod system_paths;
mod tree_search;
mod undone_change;
mod visible_entries;
mod writable_roots;

pub use git_history::GitHistory;
pub use git_repository::is_in_git_dir;
pub use hidden_paths::HiddenPaths;
pub use mounts::EmptyRoot;
pub use network::{
    FailedAttempts, NetworkAccess, NetworkListeners, NetworkNamespace, SharedNetwork,
    is_listening_at,
};
pub use project_file_rules::{ProjectFileAccess, ProjectFiles};
pub use repository_search::{RepositoryLimits, find_repository};
pub use restore::PathSnapshot;
pub use seccomp::ProtectedPids;
pub use spec::{MemoryLimit, SandboxSpec};
pub use start_directory::StartDirectory;
pub use undone_change::{Remedy, UndoneChange};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset,
    RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope,
};
use landlock_rules::AccessRight;
use seccomp::{CallAccess, InternetSockets};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

/// The minimum Landlock ABI: version 3 is the first that can forbid truncating files outside the sandbox.
const MIN_ABI: ABI = ABI::V3;
/// The newest Landlock ABI whose features are used if the kernel has them.
const MAX_ABI: ABI = ABI::V9;

/// The reason that no sandbox is available.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SandboxError {
    #[error("Landlock is missing, disabled, or older than Linux 6.2")]
    Landlock,
    #[error("this kernel has no seccomp filters")]
    Seccomp,
    #[error(
        "no thread can be started; the limit of processes (`ulimit -u`, or that of a container) may be reached"
    )]
    Thread,
    #[error("this architecture is not supported")]
    Architecture,
}

/// Checks that commands can be sandboxed on this system. Tried once per process, on a thread that then ends.
///
/// # Errors
/// The missing kernel feature.
pub fn check_available() -> Result<(), SandboxError> {
    static RESULT: LazyLock<Result<(), SandboxError>> = LazyLock::new(|| {
        let checked = run_on_thread(|| {
            if seccomp_program::ARCHITECTURE.is_none() {
                return Err(SandboxError::Architecture);
            }
            let landlock = empty_ruleset(true).and_then(restrict);
            landlock.map_err(|_| SandboxError::Landlock)?;
            seccomp::apply(CallAccess::default(), Some(&ProtectedPids::current()))
                .map_err(|_| SandboxError::Seccomp)
        });
        checked.unwrap_or(Err(SandboxError::Thread))
    });
    *RESULT
}

impl SandboxSpec {
    /// Runs `work` on a sandboxed thread that ends with it. The thread cannot signal the processes in `protected`. In namespaces of its
    /// own, it does not see them.
    ///
    /// # Errors
    /// The errors of `work`. If any part of the sandbox cannot be applied, `work` is not run.
    pub(crate) fn run_inside<T: Send>(
        &self,
        protected: &ProtectedPids,
        work: impl FnOnce() -> io::Result<T> + Send,
    ) -> io::Result<T> {
        if !self.in_namespaces {
            check_available().map_err(io::Error::other)?;
        }
        let ruleset = self.ruleset()?;
        run_on_thread(|| {
            self.restrict_thread(ruleset, protected)?;
            work()
        })?
    }

    /// Restricts this thread irrevocably.
    fn restrict_thread(
        &self,
        ruleset: RulesetCreated,
        protected: &ProtectedPids,
    ) -> io::Result<()> {
        drop_capabilities()?;
        restrict(ruleset)?;
        let is_contained_command = self.in_namespaces && !self.long_lived;
        let access = CallAccess {
            internet: match self.network {
                NetworkAccess::Machine => InternetSockets::OfMachine,
                NetworkAccess::Loopback { .. } if is_contained_command => InternetSockets::Own,
                NetworkAccess::Loopback { .. } | NetworkAccess::Nothing => InternetSockets::Nothing,
            },
            local: is_contained_command
                && (!self.network.is_machine() || are_abstract_sockets_scoped()),
            traces: is_contained_command,
        };
        seccomp::apply(access, (!self.in_namespaces).then_some(protected))
    }

    /// True if Landlock forbids connections over TCP: a second layer where seccomp refuses the sockets.
    fn is_closed_to_tcp(&self) -> bool {
        match self.network {
            NetworkAccess::Nothing => true,
            NetworkAccess::Loopback { .. } => !self.in_namespaces,
            NetworkAccess::Machine => false,
        }
    }

    /// Fills the root of this process with only what is granted, enters `directory`, and drops the capabilities. Returns the
    /// restrictions that its child still needs.
    ///
    /// # Errors
    /// The system refuses a part of this. The process must then not continue.
    pub(crate) fn fill_root(
        mut self,
        root: EmptyRoot,
        directory: Option<&StartDirectory>,
        is_long_lived: bool,
    ) -> io::Result<Self> {
        root.fill(&mut self, directory)?;
        drop_capabilities()?;
        // A cached ruleset refers to the mounts before this change.
        self.ruleset_cache = Arc::default();
        self.in_namespaces = true;
        self.long_lived = is_long_lived;
        if !is_long_lived {
            self.denied = Vec::new();
            self.covered = Vec::new();
        }
        Ok(self)
    }

    /// The rules for a command with a root of its own, in which denied paths that are not granted do not exist. In granted
    /// paths, the sockets of other processes are closed too: a command in namespaces may open local sockets, and a socket's
    /// mode does not tell whose it is. Sockets in the private directory, where only commands of the run bind them, stay open to
    /// it, and so do those that are bound later.
    pub(crate) fn for_own_root(mut self) -> Self {
        let granted = self.readable.iter().chain(&self.writable).map(PathBuf::as_path);
        let is_private =
            |path: &PathBuf| self.private().is_some_and(|private| path.starts_with(private));
        let mut sockets = local_sockets::find(granted);
        sockets.retain(|path| !is_private(path));
        let is_granted = |path: &PathBuf| {
            let mut granted = self.readable.iter().chain(&self.writable);
            granted.any(|root| path.starts_with(root))
        };
        self.denied.retain(is_granted);
        self.covered.extend(sockets);
        self.covered.retain(is_granted);
        self
    }

    /// The restrictions of a long-running child without namespaces: write access to protected paths is not granted.
    pub(crate) fn without_root(mut self) -> Self {
        self.split_parents = true;
        self.ruleset_cache = Arc::default();
        self
    }

    /// Removes the protection by mounts from the directories that git may remove as a whole: the git directories of linked worktrees, and
    /// repositories that earlier commands of the run created. Their files are checked after the command.
    pub fn without_mounts_in_removable_git_dirs(mut self) -> Self {
        let project_files = &self.project_files;
        self.protected.retain(|path| {
            !project_files.is_created(path) && !new_repository::is_in_linked_git_dir(path)
        });
        self
    }

    /// The same access without write access, except to the private directory.
    pub fn read_only(mut self) -> Self {
        self.readable.extend(self.shared_writable().map(Path::to_owned).collect::<Vec<_>>());
        self.writable = self.private.iter().cloned().collect();
        self.config_copies = None;
        self.protected = Vec::new();
        self.project_files = ProjectFiles::default();
        self.ruleset_cache = Arc::default();
        self
    }

    /// Closes further paths that exist.
    pub fn cover(&mut self, paths: Vec<PathBuf>) {
        if !paths.is_empty() {
            self.covered.extend(paths);
            self.ruleset_cache = Arc::default();
        }
    }

    /// Protects further paths that exist.
    pub fn protect(&mut self, paths: Vec<PathBuf>) {
        if !paths.is_empty() {
            self.protected.extend(paths);
            self.ruleset_cache = Arc::default();
        }
    }

    /// True if the writable paths are searched for project files.
    pub(crate) fn has_project_files(&self) -> bool {
        let mut writable = self.writable.iter();
        !self.project_files.names.is_empty()
            && writable.any(|root| !self.project_files.skipped.contains(root))
    }

    /// Records the state of protected paths that no mount protects.
    ///
    /// # Errors
    /// The errors of [`PathSnapshot::take`].
    pub fn take_snapshot(&self) -> io::Result<PathSnapshot> {
        // A denied path that does not exist yet must not be created either.
        let is_in_mount = |path: &Path| {
            let mut outer = self.protected.iter().filter(|outer| path.starts_with(outer));
            outer.any(|outer| !outer.ends_with(".git") && outer.is_dir())
        };
        let is_new = |path: &&PathBuf| {
            let is_writable = self.writable.iter().any(|root| path.starts_with(root));
            is_writable && !path.exists() && !is_in_mount(path)
        };
        let denied = self.denied.iter().chain(&self.covered).filter(is_new);
        let protected: Vec<PathBuf> = self.protected.iter().chain(denied).cloned().collect();
        let copies = self.config_copies.as_deref();
        PathSnapshot::take(&self.writable, &protected, copies, &self.project_files)
    }

    /// The Landlock ruleset, built once.
    fn ruleset(&self) -> io::Result<RulesetCreated> {
        if let Some(ruleset) = self.ruleset_cache.get() {
            return ruleset.try_clone();
        }
        let mut ruleset = empty_ruleset(self.is_closed_to_tcp())?;
        for rule in landlock_rules::build_rules(self)? {
            // A path that has disappeared or become a symbolic link is not granted.
            let Ok(fd) = landlock_rules::open_nofollow(&rule.path) else {
                continue;
            };
            let access = access_rights(rule.right, rule.is_directory);
            ruleset = ruleset.add_rule(PathBeneath::new(fd, access)).map_err(io::Error::other)?;
        }
        let clone = ruleset.try_clone()?;
        // If another thread was faster, its rules are the same.
        drop(self.ruleset_cache.set(ruleset));
        Ok(clone)
    }
}

/// An empty ruleset, which denies all access.
fn empty_ruleset(is_closed_to_tcp: bool) -> io::Result<RulesetCreated> {
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(MIN_ABI))
        .map(|ruleset| ruleset.set_compatibility(CompatLevel::BestEffort))
        .and_then(|ruleset| ruleset.handle_access(AccessFs::from_all(MAX_ABI)))
        .and_then(|ruleset| ruleset.scope(Scope::from_all(MAX_ABI)))
        .and_then(|ruleset| {
            if is_closed_to_tcp {
                // The seccomp filter is what blocks the network; for TCP this is a second layer.
                ruleset.handle_access(AccessNet::from_all(MAX_ABI))
            } else {
                Ok(ruleset)
            }
        })
        .and_then(|ruleset| ruleset.create());
    ruleset.map_err(io::Error::other)
}

/// True if Landlock can keep a command from abstract sockets of other programs, which share the network namespace of a
/// command with network.
fn are_abstract_sockets_scoped() -> bool {
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .scope(Scope::AbstractUnixSocket);
    ruleset.is_ok()
}

/// Applies the ruleset to this thread.
fn restrict(ruleset: RulesetCreated) -> io::Result<()> {
    let status = ruleset.restrict_self().map_err(io::Error::other)?;
    // Without Landlock the crate reports success and does nothing.
    match status.ruleset {
        RulesetStatus::NotEnforced => Err(io::Error::other(SandboxError::Landlock)),
        _ => Ok(()),
    }
}

fn access_rights(right: AccessRight, is_directory: bool) -> BitFlags<AccessFs> {
    let granted = match right {
        AccessRight::List => AccessFs::ReadDir.into(),
        AccessRight::Read => AccessFs::from_read(MAX_ABI),
        AccessRight::Device => {
            AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate | AccessFs::IoctlDev
        }
        // Creating device nodes is never granted.
        AccessRight::Write => {
            AccessFs::from_all(MAX_ABI) & !(AccessFs::MakeChar | AccessFs::MakeBlock)
        }
    };
    if is_directory { granted } else { granted & AccessFs::from_file(MAX_ABI) }
}

/// Drops all capabilities, so that even root is bound by file modes.
fn drop_capabilities() -> io::Result<()> {
    let none = rustix::thread::CapabilitySet::empty();
    let sets =
        rustix::thread::CapabilitySets { effective: none, permitted: none, inheritable: none };
    rustix::thread::set_no_new_privs(true)?;
    Ok(rustix::thread::set_capabilities(None, sets)?)
}

/// Runs `work` on a thread of its own. Restrictions that it applies to that thread end with the thread.
fn run_on_thread<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, work)?;
        thread.join().map_err(|_| io::Error::other("the thread of the command panicked"))
    })
}

#[cfg(test)]
mod tests {
    use super::SandboxSpec;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};

    #[test]
    fn sockets_are_closed_whatever_others_are_called() {
        let temp = tempfile::tempdir().unwrap();
        let directory = std::fs::canonicalize(temp.path()).unwrap();
        let path = directory.join("agent socket");
        let _socket = UnixListener::bind(&path).unwrap();
        // Its name is in the same table, and is not UTF-8.
        let name = [b"nanobot-\xff-", std::process::id().to_string().as_bytes()].concat();
        let _other =
            UnixListener::bind_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap();
        let sandbox = SandboxSpec { readable: vec![directory], ..SandboxSpec::default() };
        assert_eq!(sandbox.for_own_root().covered, [path]);
    }
}
