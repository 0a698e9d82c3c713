//! Child processes: commands that run to completion (`run`) or in the background (`background`), and long-running servers
//! (`server`). Each has a process group of its own, and namespaces of its own where it is sandboxed and the system allows them
//! (`namespaced_supervisor`). None of its processes outlives this run.

pub mod background;
pub mod helper;
mod hiding_launcher;
mod inspect;
pub mod isolated_parser;
pub mod line_program;
mod memory_cgroup;
mod namespaced_supervisor;
mod output;
mod own_program;
mod resource_limits;
mod run;
pub mod server;
pub mod server_environment;
mod shell;
mod signing_client;
mod signing_listener;
mod standby;
mod supervisor;
mod supervisor_connection;
mod terminal_command;
mod write_lock;

pub use inspect::{find_process, has_terminal, interrupt, is_alive};
pub use memory_cgroup::{memory_limit, remove_memory_cgroup};
pub use namespaced_supervisor::{check_namespaces, require_namespaces, test_sandbox};
pub use output::{CapturedText, TextOutput};
pub use own_program::{program_path, spawn_detached, spawn_self};
pub use resource_limits::describe_start_error;
pub use run::{
    CommandResult, CommandSpec, check_hiding, run, run_split_stderr, run_split_stderr_hiding,
};
pub use shell::{CommandShell, become_shell, run_editor, run_pager};
pub use signing_client::SigningProgram;
pub use signing_listener::SigningListener;
pub use standby::end_standby;
pub use terminal_command::{TerminalCommand, TerminalCommandResult, run_on_terminal};
pub use write_lock::guard_changes;

use rustix::process::{Resource, Rlimit};

/// Runs this process as a helper if its name (`argv[0]`) or its environment asks for one: a signer for git, the supervisor of
/// a server or of a command, the process that creates namespaces for a supervisor, the one that hides paths from a
/// program, or the session leader of a command on the terminal. Returns `None` in an ordinary process, and otherwise true if the helper succeeded. A program has to call this
/// first in `main`: without it no helper can be started.
pub fn become_helper() -> Option<bool> {
    own_program::enable_helpers();
    signing_client::become_signing_client()
        .or_else(supervisor::become_supervisor)
        .or_else(namespaced_supervisor::become_namespace_parent)
        .or_else(hiding_launcher::become_hiding_program)
        .or_else(terminal_command::become_session_leader)
}

/// Hardens this process; called in `main` once it is known to be no helper, since a supervisor needs to write its own files
/// in `/proc`. Inherited descriptors become close-on-exec, and other processes cannot read our memory, neither directly nor
/// from a core dump.
pub fn harden() {
    close_fds::set_fds_cloexec(3, &[]);
    // If the kernel refuses, keys in memory are protected as in any other program.
    let _: Result<_, _> =
        rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
    let no_core_dump = Rlimit { current: Some(0), maximum: Some(0) };
    let _: Result<_, _> = rustix::process::setrlimit(Resource::Core, no_core_dump);
}
