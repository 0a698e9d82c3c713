//! Child processes: commands that run to their end (`run`) and servers that stay (`server`). Each has a process group of its
//! own, and nothing of it outlives this run.

pub(in crate::sys) mod children;
mod inspect;
mod output;
mod own_program;
mod run;
mod sandboxed;
pub mod server;
mod shell;
mod supervisor;
mod write_lock;

pub use inspect::{has_terminal, is_alive, running};
pub use own_program::{detach, program, spawn_self};
pub use run::{Finished, Spec, run, run_split_stderr};
pub use sandboxed::{become_command, lets_mount};
pub use shell::{become_shell, edit};
pub use supervisor::become_supervisor;

#[cfg(test)]
pub(crate) use run::tests;

use rustix::process::{Resource, Rlimit};

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
