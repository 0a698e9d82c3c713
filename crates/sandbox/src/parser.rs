//! The sandbox of a process that parses an untrusted document: only system calls for memory and for its answer are allowed.
//! Landlock and namespaces of its own are further layers, where the system has them.

use super::seccomp_program::ARCHITECTURE;
use super::{drop_capabilities, empty_ruleset, namespaces, restrict};
use rustix::process::{Resource, Rlimit};
use seccompiler::{
    SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use std::io;

/// The calls that a parser needs without conditions: for memory, locks, its answer and its end.
const ALLOWED_CALLS: &[i64] = &[
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_close,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    libc::SYS_madvise,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_yield,
    libc::SYS_sigaltstack,
    libc::SYS_tgkill,
    libc::SYS_write,
];

/// The calls that a parser may make unless their argument [`PROTECTION_ARGUMENT`] asks for executable memory.
const MAPPING_CALLS: &[i64] = &[libc::SYS_mmap, libc::SYS_mprotect];
/// The index of the memory protection among the arguments of `mmap` and `mprotect`.
const PROTECTION_ARGUMENT: u8 = 2;

/// Limits the memory of this process to `memory_bytes`, and keeps it from writing files. Called while it has one thread.
/// Layers that the system does not have are left out. The essential layer is [`restrict_parser_calls`].
///
/// # Errors
/// A limit cannot be set.
pub(crate) fn limit_parser(memory_bytes: u64) -> io::Result<()> {
    let limit = |resource, value| {
        let limit = Rlimit { current: Some(value), maximum: Some(value) };
        rustix::process::setrlimit(resource, limit)
    };
    limit(Resource::As, memory_bytes)?;
    limit(Resource::Fsize, 0)?;
    drop(namespaces::enter_for_parser());
    rustix::thread::set_no_new_privs(true)?;
    drop(drop_capabilities());
    drop(empty_ruleset(true).and_then(restrict));
    Ok(())
}

/// Refuses all calls to all threads of this process but those that a parser needs.
///
/// # Errors
/// The system has no seccomp.
pub(crate) fn restrict_parser_calls() -> io::Result<()> {
    let architecture = ARCHITECTURE.ok_or(io::ErrorKind::Unsupported)?;
    let not_executable = SeccompCondition::new(
        PROTECTION_ARGUMENT,
        SeccompCmpArgLen::Dword,
        SeccompCmpOp::MaskedEq(libc::PROT_EXEC as u64),
        0,
    );
    let not_executable = SeccompRule::new(vec![not_executable.map_err(io::Error::other)?]);
    let not_executable = not_executable.map_err(io::Error::other)?;
    let allowed = ALLOWED_CALLS.iter().map(|call| (*call, Vec::new()));
    let mapping = MAPPING_CALLS.iter().map(|call| (*call, vec![not_executable.clone()]));
    let refused = SeccompAction::Errno(libc::EPERM as u32);
    let filter = SeccompFilter::new(
        allowed.chain(mapping).collect(),
        refused,
        SeccompAction::Allow,
        architecture,
    );
    let program = filter.and_then(seccompiler::BpfProgram::try_from);
    seccompiler::apply_filter_all_threads(&program.map_err(io::Error::other)?)
        .map_err(io::Error::other)
}
