//! The seccomp filters: they refuse system calls that lead out of the sandbox, such as sockets, other processes'
//! memory, signals to this program, namespaces and mounts, file modes, terminal injection and kernel administration.
//! All other calls pass; Landlock decides about file access.

use crate::sys::process_group::process_group;
use crate::sys::sync::IgnorePoison;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, sock_filter,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex};

/// The architecture that this program was built for, if its system calls are known. Programs for another architecture
/// are killed.
pub(super) const ARCHITECTURE: Option<TargetArch> = match () {
    #[cfg(target_arch = "x86_64")]
    () => Some(TargetArch::x86_64),
    #[cfg(target_arch = "aarch64")]
    () => Some(TargetArch::aarch64),
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    () => None,
};

/// Calls that return `ENOSYS`, so that programs fall back to older calls, as on an older kernel.
const ENOSYS_CALLS: &[i64] = &[
    // It takes its flags from memory, which no filter can read; libraries fall back to `clone`.
    libc::SYS_clone3,
    // It can create sockets, and do much else, without the system calls for that.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // It takes its mode from memory too; libraries fall back to `openat`.
    libc::SYS_openat2,
    // It accepts a descriptor of a directory in `/proc/PID`, and a filter cannot see which process that is.
    libc::SYS_pidfd_send_signal,
    // System V and POSIX IPC: shared by all programs of a user, by keys and names outside the file system.
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_semctl,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
];

/// Calls that change attributes. They return `EOPNOTSUPP`, as on a file system without attributes: access control lists
/// are attributes, equivalent to modes, and Landlock does not restrict them.
const ATTRIBUTE_CALLS: &[i64] = &[
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    SETXATTRAT,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    REMOVEXATTRAT,
    FILE_SETATTR,
];

/// Calls that always fail with `EPERM`.
const EPERM_CALLS: &[i64] = &[
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_process_mrelease,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_move_pages,
    libc::SYS_migrate_pages,
    // The kernel's keyrings, which belong to the user's login session.
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    // Kernel interfaces with a history of vulnerabilities that no everyday program needs.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_lookup_dcookie,
    libc::SYS_fanotify_init,
    libc::SYS_fanotify_mark,
    // Mounts and namespaces.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    OPEN_TREE_ATTR,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_chroot,
    // It opens a file by its handle, bypassing directory permissions.
    libc::SYS_open_by_handle_at,
    // System administration.
    libc::SYS_acct,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_reboot,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    libc::SYS_nfsservctl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
];

/// System call numbers that are the same on all architectures, and too new for the `libc` crate.
const OPEN_TREE_ATTR: i64 = 467;
const SETXATTRAT: i64 = 463;
const REMOVEXATTRAT: i64 = 466;
const FILE_SETATTR: i64 = 469;
const FCHMODAT2: i64 = 452;

/// The flags of `clone` that create a new namespace.
const NAMESPACE_FLAGS: [libc::c_int; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

/// The `ioctl` requests that inject terminal input (`TIOCSTI`), run console commands (`TIOCLINUX`) or redirect console
/// output (`TIOCCONS`).
const TERMINAL_REQUESTS: [u64; 3] = [0x5412, 0x541c, 0x541d];

/// The `ioctl` requests that set the process to be signalled at I/O on a file or socket (`FIOSETOWN`, `SIOCSPGRP`).
const OWNER_REQUESTS: [u64; 2] = [0x8901, 0x8902];

/// The types of `ioctl` requests that administer file systems, in the second byte of the request: those of btrfs, of all
/// Linux file systems (flags, encryption), of XFS and of F2FS. Landlock does not restrict them.
const FILE_SYSTEM_REQUESTS: [u64; 4] = [0x9400, 0x6600, 0x5800, 0xf500];

/// The requests of these types that only read, or that copy what was opened for that: `FICLONE`, `FICLONERANGE`,
/// `FIDEDUPERANGE`, `FS_IOC_GETFLAGS` (also of 32-bit programs), `FS_IOC_FIEMAP`, `FS_IOC_FSGETXATTR`.
const HARMLESS_REQUESTS: [u64; 7] = [
    0x4004_9409,
    0x4020_940d,
    0xc018_9436,
    0x8008_6601,
    0x8004_6601,
    0xc020_660b,
    0x801c_581f,
];

/// The most threads that are protected individually: the length of a filter is limited.
const MAX_THREADS: usize = 64;

/// The processes of this program, which no command may signal or hamper. Landlock itself enforces that for signals only
/// from Linux 6.12 on.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ProtectedPids {
    /// All threads: a thread id can stand for the process id in these calls.
    threads: Vec<i32>,
    groups: Vec<i32>,
}

impl ProtectedPids {
    /// Returns the threads and the process group of this process. Threads that start later are not included.
    pub fn current() -> Self {
        let own = rustix::process::getpid().as_raw_nonzero().get();
        let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten();
        let tasks = tasks.flatten().filter_map(|task| {
            let name = task.file_name();
            name.to_str()?.parse::<i32>().ok()
        });
        let mut threads: Vec<i32> = std::iter::once(own).chain(tasks).collect();
        threads.sort_unstable();
        threads.dedup();
        threads.truncate(MAX_THREADS);
        Self {
            threads,
            groups: process_group(None)
                .map(|group| group.as_raw_nonzero().get())
                .into_iter()
                .collect(),
        }
    }

    /// Returns the processes of both. Those of `other` come first if there are too many threads.
    pub fn merged(mut self, other: &Self) -> Self {
        self.threads.splice(0..0, other.threads.iter().copied());
        self.threads.truncate(MAX_THREADS);
        self.groups.extend(&other.groups);
        self
    }

    /// The rules for calls that target this program, by the argument that holds the id.
    fn seccomp_rules(&self) -> Option<BTreeMap<i64, Vec<SeccompRule>>> {
        let targets_us = |argument| -> Option<Vec<SeccompRule>> {
            let all = self.threads.iter();
            all.map(|thread| argument_equals(argument, to_argument(*thread)))
                .collect()
        };
        let first = [
            libc::SYS_kill,
            libc::SYS_tkill,
            libc::SYS_tgkill,
            libc::SYS_rt_sigqueueinfo,
            libc::SYS_rt_tgsigqueueinfo,
            libc::SYS_pidfd_open,
            libc::SYS_sched_setaffinity,
            libc::SYS_sched_setscheduler,
            libc::SYS_sched_setparam,
            libc::SYS_sched_setattr,
        ];
        let mut rules = BTreeMap::new();
        for call in first {
            rules.insert(call, targets_us(0)?);
        }
        let kill = rules.get_mut(&libc::SYS_kill)?;
        for group in &self.groups {
            kill.push(argument_equals(0, to_argument(-group))?);
        }
        // All processes.
        kill.push(argument_equals(0, to_argument(-1))?);
        Some(rules)
    }
}

/// A signed argument as the filter compares it.
fn to_argument(signed: i32) -> u64 {
    u64::from(signed.cast_unsigned())
}

/// The kinds of sockets that a command may open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Sockets {
    /// Internet sockets: streams and datagrams.
    pub(super) internet: bool,
    /// Sockets within the machine. Their paths cannot be filtered, so this is only for processes that do not see those of
    /// others.
    pub(super) local: bool,
}

/// Applies the filters to this thread, including one for `protected`, which a thread in namespaces of its own does not
/// need.
///
/// # Errors
/// The kernel does not accept a filter.
pub(super) fn apply(sockets: Sockets, protected: Option<&ProtectedPids>) -> io::Result<()> {
    static BUILT: Mutex<BTreeMap<Sockets, Arc<BpfProgram>>> = Mutex::new(BTreeMap::new());
    let built = BUILT.lock().ignore_poison().get(&sockets).cloned();
    let program = match built {
        Some(program) => program,
        None => {
            let program = build_program(sockets).map(Arc::new);
            let program =
                program.ok_or_else(|| io::Error::other("cannot build the system call filter"))?;
            let mut built = BUILT.lock().ignore_poison();
            Arc::clone(built.entry(sockets).or_insert(program))
        }
    };
    let build = |protected: &ProtectedPids| {
        let rules = protected.seccomp_rules();
        rules
            .and_then(|rules| build_filter(rules, libc::EPERM))
            .ok_or_else(|| io::Error::other("cannot build the signal filter"))
    };
    let signal_filter = protected.map(build).transpose()?;
    for program in std::iter::once(&*program).chain(&signal_filter) {
        seccompiler::apply_filter(program).map_err(io::Error::other)?;
    }
    Ok(())
}

/// The filter for all commands with these sockets. The kernel evaluates a filter for each system call number when it is
/// loaded, and again when such a call is made. Most calls are allowed after a short search for their numbers; what
/// follows it decides about those with rules.
fn build_program(sockets: Sockets) -> Option<BpfProgram> {
    let refusals = refusals(sockets)?;
    let with_rules: Option<BTreeSet<u32>> = refusals
        .iter()
        .flat_map(|(rules, _)| rules.keys())
        .map(|call| u32::try_from(*call).ok())
        .collect();
    let mut program = allow_calls_without_rules(&with_rules?)?;
    program.extend(join(build_filters(refusals)?));
    Some(program)
}

/// The beginning of a program that allows the calls of this architecture whose numbers are not in `with_rules`.
fn allow_calls_without_rules(with_rules: &BTreeSet<u32>) -> Option<BpfProgram> {
    // The numbers at which a range with rules starts or ends.
    let mut bounds = Vec::new();
    for number in with_rules {
        if bounds.last() == Some(number) {
            bounds.pop();
        } else {
            bounds.push(*number);
        }
        bounds.push(number + 1);
    }
    bounds.push(X32_BIT);
    let mut program = vec![
        step(LOAD, 0, 0, ARCHITECTURE_OFFSET),
        step(JUMP_IF_EQUAL, 1, 0, audit_architecture()?),
        step(JUMP, 0, 0, 0),
        step(LOAD, 0, 0, NUMBER_OFFSET),
    ];
    program.extend(search(&bounds, false)?);
    let length = program.len();
    for (at, step) in program.iter_mut().enumerate() {
        if step.code == JUMP {
            step.k = u32::try_from(length - at - 1).ok()?;
        }
    }
    Some(program)
}

/// Searches for the loaded number among `bounds`, before which a range with or without rules begins. Allows a number
/// without rules; a jump without a distance stands for the others.
fn search(bounds: &[u32], has_rules: bool) -> Option<BpfProgram> {
    let middle = bounds.len() / 2;
    let Some(bound) = bounds.get(middle) else {
        return Some(vec![match has_rules {
            true => step(JUMP, 0, 0, 0),
            false => step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
        }]);
    };
    let below = search(&bounds[..middle], has_rules)?;
    let above = search(&bounds[middle + 1..], has_rules ^ (middle % 2 == 0))?;
    let mut steps = vec![step(
        JUMP_UNLESS_LESS,
        u8::try_from(below.len()).ok()?,
        0,
        *bound,
    )];
    steps.extend(below);
    steps.extend(above);
    Some(steps)
}

/// This architecture as the kernel names it to filters, after `AUDIT_ARCH_*` in its `include/uapi/linux/audit.h`: 64 bits,
/// little-endian.
fn audit_architecture() -> Option<u32> {
    let machine = match ARCHITECTURE? {
        TargetArch::x86_64 => libc::EM_X86_64,
        TargetArch::aarch64 => libc::EM_AARCH64,
        TargetArch::riscv64 => libc::EM_RISCV,
    };
    Some(0xc000_0000 | u32::from(machine))
}

/// Joins filters into one: what a filter allows is up to the next. The kernel prepares each filter of a process for all system
/// calls, and evaluates all of them for each call.
fn join(filters: Vec<BpfProgram>) -> BpfProgram {
    let mut left = filters.len();
    let mut joined = BpfProgram::new();
    for filter in filters {
        left -= 1;
        let length = filter.len();
        joined.extend(filter.into_iter().enumerate().map(|(at, step)| {
            let allows = step.code == RETURN && step.k == libc::SECCOMP_RET_ALLOW;
            match u32::try_from(length - at - 1) {
                Ok(distance) if allows && left > 0 => sock_filter {
                    code: JUMP,
                    k: distance,
                    ..step
                },
                _ => step,
            }
        }));
    }
    joined
}

/// Instructions of filters: the first loads a field of the call, the others skip steps or end the filter.
const LOAD: u16 = 0x20;
const JUMP: u16 = 0x05;
const JUMP_IF_EQUAL: u16 = 0x15;
const JUMP_UNLESS_LESS: u16 = 0x35;
const RETURN: u16 = 0x06;

/// The fields of `struct seccomp_data`.
const NUMBER_OFFSET: u32 = 0;
const ARCHITECTURE_OFFSET: u32 = 4;

/// The bit in the numbers of the x32 calls of x86-64.
const X32_BIT: u32 = 0x4000_0000;

/// An instruction that skips the next `jt` or `jf` ones, if it is a conditional jump.
fn step(code: u16, jt: u8, jf: u8, k: u32) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

/// The rules for calls that are refused, by the error that they return.
type Refusals = Vec<(BTreeMap<i64, Vec<SeccompRule>>, libc::c_int)>;

/// The filters, one for each error.
fn build_filters(refusals: Refusals) -> Option<Vec<BpfProgram>> {
    let filters = refusals.into_iter();
    let filters = filters.map(|(rules, errno)| build_filter(rules, errno));
    std::iter::once(Some(x32_filter())).chain(filters).collect()
}

fn refusals(sockets: Sockets) -> Option<Refusals> {
    let always = |calls: &[i64]| calls.iter().map(|call| (*call, Vec::new())).collect();
    let mut refused: BTreeMap<i64, Vec<SeccompRule>> = always(EPERM_CALLS);
    let new = NAMESPACE_FLAGS.iter().map(|flag| has_bits(0, *flag as u64));
    refused.insert(libc::SYS_clone, new.collect::<Option<_>>()?);
    let requests = TERMINAL_REQUESTS.iter().chain(&OWNER_REQUESTS);
    let requests = requests.map(|request| argument_equals(1, *request));
    let requests = requests.chain(FILE_SYSTEM_REQUESTS.map(file_system_requests));
    refused.insert(libc::SYS_ioctl, requests.collect::<Option<_>>()?);
    let owners = [libc::F_SETOWN, F_SETOWN_EX];
    let owners = owners.map(|request| argument_equals(1, to_argument(request)));
    refused.insert(libc::SYS_fcntl, owners.into_iter().collect::<Option<_>>()?);
    refused.extend(other_process_rules()?);
    refused.extend(file_mode_rules()?);
    Some(vec![
        (always(ENOSYS_CALLS), libc::ENOSYS),
        (always(ATTRIBUTE_CALLS), libc::EOPNOTSUPP),
        (refused, libc::EPERM),
        (socket_rules(sockets)?, libc::EAFNOSUPPORT),
    ])
}

/// Matches the requests of one type, but for the harmless ones.
fn file_system_requests(kind: u64) -> Option<SeccompRule> {
    let is_kind = condition(1, SeccompCmpOp::MaskedEq(0xff00), kind)?;
    let mut all = vec![is_kind];
    for request in HARMLESS_REQUESTS {
        all.push(condition(1, SeccompCmpOp::Ne, request)?);
    }
    SeccompRule::new(all).ok()
}

/// Calls that hamper other processes of the same user, including this program: without descriptors or processor time it
/// could not enforce the command's timeout. Only id 0, the caller itself, is accepted.
fn other_process_rules() -> Option<BTreeMap<i64, Vec<SeccompRule>>> {
    let is_other = |argument| condition(argument, SeccompCmpOp::Ne, 0);
    let sets = SeccompCondition::new(2, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, 0).ok()?;
    let limits = SeccompRule::new(vec![is_other(0)?, sets]).ok()?;
    let other_target = |all_of_the_user: libc::c_int| {
        let who = SeccompRule::new(vec![is_other(1)?]).ok()?;
        Some(vec![who, argument_equals(0, all_of_the_user as u64)?])
    };
    Some(BTreeMap::from([
        (libc::SYS_prlimit64, vec![limits]),
        (
            libc::SYS_setpriority,
            other_target(libc::PRIO_USER as libc::c_int)?,
        ),
        (libc::SYS_ioprio_set, other_target(IOPRIO_WHO_USER)?),
    ]))
}

/// Rules against two file modes, also by way of the mask for new files. An owner can change a file's mode anywhere, and Landlock does not restrict that, so a
/// command could make files outside the sandbox unreadable. A set-user-ID program would remain a way for others to run
/// code as this user. (Set-group-ID is allowed: shared directories use it.)
fn file_mode_rules() -> Option<BTreeMap<i64, Vec<SeccompRule>>> {
    let runs_as_owner = |mode| {
        condition(
            mode,
            SeccompCmpOp::MaskedEq(SET_USER_ID_BIT),
            SET_USER_ID_BIT,
        )
    };
    let unreadable = |mode| condition(mode, SeccompCmpOp::MaskedEq(OWNER_READ_BIT), 0);
    let mut rules = BTreeMap::new();
    for (call, mode) in [
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_chmod, 1),
        (libc::SYS_fchmod, 1),
        (libc::SYS_fchmodat, 2),
        (FCHMODAT2, 2),
    ] {
        let given = SeccompRule::new(vec![runs_as_owner(mode)?]).ok()?;
        let taken = SeccompRule::new(vec![unreadable(mode)?]).ok()?;
        rules.insert(call, vec![given, taken]);
    }
    for (call, mode) in [
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_creat, 1),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_mknod, 1),
        (libc::SYS_mknodat, 2),
    ] {
        let made = SeccompRule::new(vec![runs_as_owner(mode)?]).ok()?;
        rules.insert(call, vec![made]);
    }
    // The check after the command has to read every directory.
    for (call, mode) in [
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_mkdir, 1),
        (libc::SYS_mkdirat, 2),
    ] {
        let taken = SeccompRule::new(vec![unreadable(mode)?]).ok()?;
        rules.insert(call, vec![taken]);
    }
    rules.insert(libc::SYS_umask, vec![has_bits(0, OWNER_READ_BIT)?]);
    for (call, flags) in [
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_open, 1),
        (libc::SYS_openat, 2),
    ] {
        // If no file is created, the mode argument is undefined.
        let made = CREATE_FLAGS.map(|flag| {
            let makes = condition(flags, SeccompCmpOp::MaskedEq(flag), flag)?;
            SeccompRule::new(vec![makes, runs_as_owner(flags + 1)?]).ok()
        });
        rules.insert(call, made.into_iter().collect::<Option<_>>()?);
    }
    Some(rules)
}

const SET_USER_ID_BIT: u64 = 0o4000;
const OWNER_READ_BIT: u64 = 0o400;
/// The flags that create a file: `O_CREAT` and the bit of `O_TMPFILE`.
const CREATE_FLAGS: [u64; 2] = [0o100, 0o20_000_000];

/// The variant of `F_SETOWN` that can name one thread.
const F_SETOWN_EX: libc::c_int = 15;

/// Selects all processes of a user in `ioprio_set`.
const IOPRIO_WHO_USER: libc::c_int = 3;

/// The rules for sockets that are refused.
fn socket_rules(sockets: Sockets) -> Option<BTreeMap<i64, Vec<SeccompRule>>> {
    let of_kind = |kind: u64| condition(1, SeccompCmpOp::MaskedEq(0xf), kind);
    let not = |family: libc::c_int| condition(0, SeccompCmpOp::Ne, family as u64);
    let mut families = Vec::new();
    if sockets.internet {
        families.extend([libc::AF_INET, libc::AF_INET6]);
    }
    if sockets.local {
        families.push(libc::AF_UNIX);
    }
    let mut socket = Vec::new();
    if !families.is_empty() {
        let others = families.into_iter().map(not).collect::<Option<_>>()?;
        socket.push(SeccompRule::new(others).ok()?);
        let streams_and_datagrams = [libc::SOCK_STREAM as u64, libc::SOCK_DGRAM as u64];
        for kind in (0..16).filter(|kind| !streams_and_datagrams.contains(kind)) {
            let raw = vec![of_kind(kind)?, not(libc::AF_UNIX)?];
            socket.push(SeccompRule::new(raw).ok()?);
        }
    }
    let mut pairs = vec![SeccompRule::new(vec![not(libc::AF_UNIX)?]).ok()?];
    if !sockets.local {
        // A socket pair is as harmless as a pipe, unless it is of datagrams: such a socket can be connected to any
        // address later.
        for kind in [libc::SOCK_DGRAM, libc::SOCK_RAW] {
            pairs.push(SeccompRule::new(vec![of_kind(kind as u64)?]).ok()?);
        }
    }
    let mut rules = BTreeMap::from([(libc::SYS_socket, socket), (libc::SYS_socketpair, pairs)]);
    if !sockets.internet && !sockets.local {
        // Without sockets, any of these calls is an attempt to leave the sandbox.
        for call in [libc::SYS_connect, libc::SYS_bind, libc::SYS_listen] {
            rules.insert(call, Vec::new());
        }
    }
    Some(rules)
}

/// A filter that kills programs that make x32 calls, whose numbers filters by number would miss.
fn x32_filter() -> BpfProgram {
    vec![
        step(LOAD, 0, 0, NUMBER_OFFSET),
        step(JUMP_UNLESS_LESS, 0, 1, X32_BIT),
        step(RETURN, 0, 0, libc::SECCOMP_RET_KILL_PROCESS),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ]
}

fn build_filter(rules: BTreeMap<i64, Vec<SeccompRule>>, errno: libc::c_int) -> Option<BpfProgram> {
    let answer = SeccompAction::Errno(errno as u32);
    SeccompFilter::new(rules, SeccompAction::Allow, answer, ARCHITECTURE?)
        .ok()?
        .try_into()
        .ok()
}

fn condition(argument: u8, operator: SeccompCmpOp, value: u64) -> Option<SeccompCondition> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value).ok()
}

fn has_bits(argument: u8, bits: u64) -> Option<SeccompRule> {
    SeccompRule::new(vec![condition(
        argument,
        SeccompCmpOp::MaskedEq(bits),
        bits,
    )?])
    .ok()
}

fn argument_equals(argument: u8, value: u64) -> Option<SeccompRule> {
    SeccompRule::new(vec![condition(argument, SeccompCmpOp::Eq, value)?]).ok()
}

#[cfg(test)]
mod tests {
    use super::{
        ARCHITECTURE_OFFSET, JUMP, JUMP_IF_EQUAL, JUMP_UNLESS_LESS, LOAD, NUMBER_OFFSET,
        ProtectedPids, RETURN, Sockets, X32_BIT, apply, audit_architecture, build_filters,
        build_program, refusals,
    };
    use rustix::io::Errno;
    use rustix::process::{Pid, PidfdFlags};
    use seccompiler::sock_filter;

    /// The result of a filter for a call, as the kernel evaluates it, with all arguments set to `argument`.
    fn evaluate(program: &[sock_filter], architecture: u32, number: u32, argument: u32) -> u32 {
        let (mut at, mut value) = (0, 0);
        loop {
            let step = &program[at];
            at += 1;
            let holds = match step.code {
                LOAD => {
                    value = match step.k {
                        NUMBER_OFFSET => number,
                        ARCHITECTURE_OFFSET => architecture,
                        // The upper halves of the arguments.
                        offset if offset % 8 == 4 => 0,
                        _ => argument,
                    };
                    continue;
                }
                0x54 => {
                    value &= step.k;
                    continue;
                }
                RETURN => return step.k,
                JUMP => {
                    at += step.k as usize;
                    continue;
                }
                JUMP_IF_EQUAL => value == step.k,
                JUMP_UNLESS_LESS => value >= step.k,
                0x25 => value > step.k,
                code => panic!("unknown instruction {code:#x}"),
            };
            at += usize::from(if holds { step.jt } else { step.jf });
        }
    }

    #[test]
    fn the_program_decides_as_the_filters_do_one_after_another() {
        let ours = audit_architecture().unwrap();
        for (internet, local) in [(false, false), (true, false), (false, true), (true, true)] {
            let sockets = Sockets { internet, local };
            let filters = build_filters(refusals(sockets).unwrap()).unwrap();
            assert_eq!(filters.len(), 5);
            let program = build_program(sockets).unwrap();
            assert!(program.len() < 1500);
            let numbers = (0..600).chain([X32_BIT - 1, X32_BIT, X32_BIT + 41, u32::MAX]);
            let calls = numbers.flat_map(|number| [0, 1, 2, 0o400, 0o4100].map(|it| (number, it)));
            let mut refused = 0;
            for (number, argument) in calls {
                for architecture in [ours, 0x4000_0003] {
                    let results = filters
                        .iter()
                        .map(|filter| evaluate(filter, architecture, number, argument));
                    let is_refused = |result: &u32| *result != libc::SECCOMP_RET_ALLOW;
                    let expected = results.into_iter().find(is_refused);
                    refused += u32::from(expected.is_some());
                    assert_eq!(
                        evaluate(&program, architecture, number, argument),
                        expected.unwrap_or(libc::SECCOMP_RET_ALLOW),
                        "{sockets:?}: {number} {argument:#o} {architecture:#x}"
                    );
                }
            }
            assert!(refused > 3000, "{refused}");
        }
    }

    /// The number of steps is what the kernel spends on each number when a command starts.
    #[test]
    fn a_call_without_rules_is_allowed_in_a_few_steps() {
        let program = build_program(Sockets::default()).unwrap();
        let read = u32::try_from(libc::SYS_read).unwrap();
        let mut steps = 0;
        let mut at = 0;
        while program[at].code != RETURN {
            let step = &program[at];
            let holds = match (step.code, at) {
                (JUMP_IF_EQUAL, _) => true,
                (JUMP_UNLESS_LESS, _) => read >= step.k,
                _ => false,
            };
            at += 1 + usize::from(if holds { step.jt } else { step.jf });
            steps += 1;
        }
        assert_eq!(program[at].k, libc::SECCOMP_RET_ALLOW);
        assert!(steps < 12, "{steps}");
    }

    /// Tests seccomp alone: on a newer kernel Landlock would mask a failure.
    #[test]
    fn protected_processes_cannot_be_signalled() {
        let _alone = crate::sys::process::tests::serialize();
        let us = rustix::process::getpid();
        let thread = rustix::thread::gettid();
        let group = rustix::process::getpgrp();
        let processors = rustix::thread::sched_getaffinity(None).unwrap();
        let reach = |pid: Pid| {
            [
                rustix::process::test_kill_process(pid),
                rustix::process::pidfd_open(pid, PidfdFlags::empty()).map(drop),
                rustix::thread::sched_setaffinity(Some(pid), &processors),
            ]
        };
        assert_eq!(reach(us), [Ok(()); 3]);
        let protected = ProtectedPids::current();
        let child = std::process::Command::new("/bin/sleep").arg("60").spawn();
        let mut child = child.unwrap();
        let fenced = || {
            rustix::thread::set_no_new_privs(true).unwrap();
            apply(Sockets::default(), Some(&protected)).unwrap();
            assert_eq!(reach(us), [Err(Errno::PERM); 3]);
            assert_eq!(rustix::process::test_kill_process(thread), Err(Errno::PERM));
            assert_eq!(
                rustix::process::test_kill_process_group(group),
                Err(Errno::PERM)
            );
            assert_eq!(reach(Pid::from_child(&child)), [Ok(()); 3]);
        };
        std::thread::scope(|scope| scope.spawn(fenced).join().unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
