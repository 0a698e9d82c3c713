//! The seccomp filters: they refuse system calls that lead out of the sandbox, such as sockets, other processes'
//! memory, signals to this program, namespaces and mounts, file modes, terminal injection and kernel administration.
//! All other calls pass; Landlock decides about file access.

use super::seccomp_program::{self, Refusals};
use nanobot_os::process_group::process_group;
use parking_lot::Mutex;
use seccompiler::{BpfProgram, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

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

/// Calls that trace other processes, with the argument that holds the id. In a process namespace of its own, a command sees
/// no process but its own ones and the first, its supervisor.
const TRACING_CALLS: [(i64, u8); 3] =
    [(libc::SYS_ptrace, 1), (libc::SYS_process_vm_readv, 0), (libc::SYS_process_vm_writev, 0)];

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
/// The bits of the type in an `ioctl` request.
const REQUEST_TYPE_MASK: u64 = 0xff00;

/// The requests of these types that only read, or that copy between files that are open for that: `FICLONE`, `FICLONERANGE`,
/// `FIDEDUPERANGE`, `FS_IOC_GETFLAGS` (also of 32-bit programs), `FS_IOC_FIEMAP`, `FS_IOC_FSGETXATTR`.
const HARMLESS_REQUESTS: [u64; 7] =
    [0x4004_9409, 0x4020_940d, 0xc018_9436, 0x8008_6601, 0x8004_6601, 0xc020_660b, 0x801c_581f];

/// The id of the first process of a process namespace.
const FIRST_PROCESS: u64 = 1;

/// Maximum number of threads that are protected individually: the length of a filter is limited.
const MAX_THREADS: usize = 64;

/// The processes of this program, which no command may signal or hamper. Landlock itself enforces that for signals only
/// from Linux 6.12 on.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ProtectedPids {
    /// All threads: these calls accept a thread id in place of the process id.
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
        // Calls whose first argument is the id of a thread or a process.
        let calls = [
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
        for call in calls {
            let threads = self.threads.iter();
            let targets = threads.map(|thread| argument_equals(0, to_argument(*thread)));
            rules.insert(call, targets.collect::<Option<Vec<SeccompRule>>>()?);
        }
        let kill = rules.get_mut(&libc::SYS_kill)?;
        for group in &self.groups {
            kill.push(argument_equals(0, to_argument(-group))?);
        }
        // The id -1 means all processes.
        kill.push(argument_equals(0, to_argument(-1))?);
        Some(rules)
    }
}

/// A signed argument as the filter compares it.
fn to_argument(signed: i32) -> u64 {
    u64::from(signed.cast_unsigned())
}

/// The internet sockets that a command may open: streams and datagrams, never raw ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum InternetSockets {
    #[default]
    Nothing,
    /// In a network namespace that has only loopback: TCP and UDP, and queries of interfaces and addresses, which programs make
    /// before they listen.
    Own,
    /// On the network of the machine.
    OfMachine,
}

/// The calls that depend on where a command runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CallAccess {
    pub(super) internet: InternetSockets,
    /// Sockets within the machine. Their paths cannot be filtered, so this is only for processes that do not see those of
    /// others.
    pub(super) local: bool,
    /// It may trace the processes of its own process namespace. The kernel keeps it from the first one in two more ways:
    /// Landlock lets it trace only what is in the same sandbox, and that process is not dumpable.
    pub(super) traces: bool,
}

/// Applies the filters to this thread, including one for `protected`, which a thread in namespaces of its own does not
/// need.
///
/// # Errors
/// The kernel does not accept a filter.
pub(super) fn apply(access: CallAccess, protected: Option<&ProtectedPids>) -> io::Result<()> {
    static PROGRAMS: Mutex<BTreeMap<CallAccess, Arc<BpfProgram>>> = Mutex::new(BTreeMap::new());
    let cached = PROGRAMS.lock().get(&access).cloned();
    let program = match cached {
        Some(program) => program,
        None => {
            let program = refusals(access).and_then(seccomp_program::build).map(Arc::new);
            let program =
                program.ok_or_else(|| io::Error::other("cannot build the system call filter"))?;
            let mut programs = PROGRAMS.lock();
            Arc::clone(programs.entry(access).or_insert(program))
        }
    };
    let mut signal_filter = None;
    if let Some(protected) = protected {
        let rules = protected.seccomp_rules();
        let filter = rules.and_then(|rules| seccomp_program::build_filter(rules, libc::EPERM));
        signal_filter =
            Some(filter.ok_or_else(|| io::Error::other("cannot build the signal filter"))?);
    }
    for program in std::iter::once(&*program).chain(&signal_filter) {
        seccompiler::apply_filter(program).map_err(io::Error::other)?;
    }
    Ok(())
}

/// The rules for commands with this access, by the error that the refused calls return.
pub(super) fn refusals(access: CallAccess) -> Option<Refusals> {
    let always = |calls: &[i64]| calls.iter().map(|call| (*call, Vec::new())).collect();
    let mut refused: BTreeMap<i64, Vec<SeccompRule>> = always(EPERM_CALLS);
    for (call, argument) in TRACING_CALLS {
        let rules = if access.traces {
            vec![argument_equals(argument, FIRST_PROCESS)?]
        } else {
            Vec::new()
        };
        refused.insert(call, rules);
    }
    let namespaces = NAMESPACE_FLAGS.iter().map(|flag| has_bits(0, *flag as u64));
    refused.insert(libc::SYS_clone, namespaces.collect::<Option<_>>()?);
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
        (socket_rules(access)?, libc::EAFNOSUPPORT),
    ])
}

/// Matches the requests of one type, but for the harmless ones.
fn file_system_requests(kind: u64) -> Option<SeccompRule> {
    let mut conditions = vec![condition(1, SeccompCmpOp::MaskedEq(REQUEST_TYPE_MASK), kind)?];
    for request in HARMLESS_REQUESTS {
        conditions.push(condition(1, SeccompCmpOp::Ne, request)?);
    }
    SeccompRule::new(conditions).ok()
}

/// Calls that hamper other processes of the same user, including this program: without descriptors or processor time it
/// could not enforce the command's timeout. Only id 0, the caller itself, is accepted.
fn other_process_rules() -> Option<BTreeMap<i64, Vec<SeccompRule>>> {
    let is_other = |argument| condition(argument, SeccompCmpOp::Ne, 0);
    // The argument of `prlimit` with the new limit is a pointer.
    let sets_limit = SeccompCondition::new(2, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, 0).ok()?;
    let limits = SeccompRule::new(vec![is_other(0)?, sets_limit]).ok()?;
    let other_target = |all_of_user: libc::c_int| {
        let is_other_process = SeccompRule::new(vec![is_other(1)?]).ok()?;
        Some(vec![is_other_process, argument_equals(0, all_of_user as u64)?])
    };
    Some(BTreeMap::from([
        (libc::SYS_prlimit64, vec![limits]),
        (libc::SYS_setpriority, other_target(libc::PRIO_USER as libc::c_int)?),
        (libc::SYS_ioprio_set, other_target(IOPRIO_WHO_USER)?),
    ]))
}

/// Rules against two file modes, also by way of the mask for new files. An owner can change the mode of any of their files, and
/// Landlock does not restrict that, so a command could make files outside the sandbox unreadable. A set-user-ID program would let
/// other users run code as this user, even after the run. (Set-group-ID is allowed: shared directories use it.)
fn file_mode_rules() -> Option<BTreeMap<i64, Vec<SeccompRule>>> {
    let sets_user_id =
        |mode| condition(mode, SeccompCmpOp::MaskedEq(SET_USER_ID_BIT), SET_USER_ID_BIT);
    let is_unreadable = |mode| condition(mode, SeccompCmpOp::MaskedEq(OWNER_READ_BIT), 0);
    let rule = |condition: Option<SeccompCondition>| SeccompRule::new(vec![condition?]).ok();
    let mut rules = BTreeMap::new();
    for (call, mode) in [
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_chmod, 1),
        (libc::SYS_fchmod, 1),
        (libc::SYS_fchmodat, 2),
        (FCHMODAT2, 2),
    ] {
        rules.insert(call, vec![rule(sets_user_id(mode))?, rule(is_unreadable(mode))?]);
    }
    for (call, mode) in [
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_creat, 1),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_mknod, 1),
        (libc::SYS_mknodat, 2),
    ] {
        rules.insert(call, vec![rule(sets_user_id(mode))?]);
    }
    // The check after the command has to read every directory.
    for (call, mode) in [
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_mkdir, 1),
        (libc::SYS_mkdirat, 2),
    ] {
        rules.insert(call, vec![rule(is_unreadable(mode))?]);
    }
    rules.insert(libc::SYS_umask, vec![has_bits(0, OWNER_READ_BIT)?]);
    for (call, flags) in [
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_open, 1),
        (libc::SYS_openat, 2),
    ] {
        // If no file is created, the mode argument is undefined.
        let create_rules = CREATE_FLAGS.map(|flag| {
            let creates = condition(flags, SeccompCmpOp::MaskedEq(flag), flag)?;
            SeccompRule::new(vec![creates, sets_user_id(flags + 1)?]).ok()
        });
        rules.insert(call, create_rules.into_iter().collect::<Option<_>>()?);
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

/// The protocols of streams and datagrams in a network namespace of one's own: the default of each, TCP, UDP, and TCP over
/// several paths, which falls back to TCP.
const OWN_PROTOCOLS: [libc::c_int; 4] =
    [0, libc::IPPROTO_TCP, libc::IPPROTO_UDP, libc::IPPROTO_MPTCP];

/// The bits of the type in the second argument of `socket`; others are flags.
const SOCKET_TYPE_MASK: u64 = 0xf;

/// The rules for sockets that are refused.
fn socket_rules(access: CallAccess) -> Option<BTreeMap<i64, Vec<SeccompRule>>> {
    let has_type = |kind: u64| condition(1, SeccompCmpOp::MaskedEq(SOCKET_TYPE_MASK), kind);
    let not = |family: libc::c_int| condition(0, SeccompCmpOp::Ne, family as u64);
    let has_protocol = |operator, protocol: libc::c_int| condition(2, operator, protocol as u64);
    let is_own = access.internet == InternetSockets::Own;
    let mut families = Vec::new();
    if access.internet != InternetSockets::Nothing {
        families.extend([libc::AF_INET, libc::AF_INET6]);
    }
    if is_own {
        families.push(libc::AF_NETLINK);
    }
    if access.local {
        families.push(libc::AF_UNIX);
    }
    let mut socket = Vec::new();
    if !families.is_empty() {
        let others = families.into_iter().map(not).collect::<Option<_>>()?;
        socket.push(SeccompRule::new(others).ok()?);
        let streams_and_datagrams = [libc::SOCK_STREAM as u64, libc::SOCK_DGRAM as u64];
        for kind in (0..=SOCKET_TYPE_MASK).filter(|kind| !streams_and_datagrams.contains(kind)) {
            let raw = vec![has_type(kind)?, not(libc::AF_UNIX)?, not(libc::AF_NETLINK)?];
            socket.push(SeccompRule::new(raw).ok()?);
        }
    }
    if is_own {
        let mut others = vec![not(libc::AF_UNIX)?, not(libc::AF_NETLINK)?];
        for protocol in OWN_PROTOCOLS {
            others.push(has_protocol(SeccompCmpOp::Ne, protocol)?);
        }
        socket.push(SeccompRule::new(others).ok()?);
        let is_netlink = condition(0, SeccompCmpOp::Eq, libc::AF_NETLINK as u64)?;
        // To change anything takes a capability, which no command has.
        let not_route = has_protocol(SeccompCmpOp::Ne, libc::NETLINK_ROUTE)?;
        socket.push(SeccompRule::new(vec![is_netlink, not_route]).ok()?);
    }
    let mut pairs = vec![SeccompRule::new(vec![not(libc::AF_UNIX)?]).ok()?];
    if !access.local {
        // A socket pair is as harmless as a pipe, unless it is of datagrams: such a socket can be connected to any
        // address later.
        for kind in [libc::SOCK_DGRAM, libc::SOCK_RAW] {
            pairs.push(SeccompRule::new(vec![has_type(kind as u64)?]).ok()?);
        }
    }
    let mut rules = BTreeMap::from([(libc::SYS_socket, socket), (libc::SYS_socketpair, pairs)]);
    if access.internet == InternetSockets::Nothing && !access.local {
        // Without sockets, any of these calls is an attempt to leave the sandbox.
        for call in [libc::SYS_connect, libc::SYS_bind, libc::SYS_listen] {
            rules.insert(call, Vec::new());
        }
    }
    Some(rules)
}

fn condition(argument: u8, operator: SeccompCmpOp, value: u64) -> Option<SeccompCondition> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value).ok()
}

fn has_bits(argument: u8, bits: u64) -> Option<SeccompRule> {
    SeccompRule::new(vec![condition(argument, SeccompCmpOp::MaskedEq(bits), bits)?]).ok()
}

fn argument_equals(argument: u8, value: u64) -> Option<SeccompRule> {
    SeccompRule::new(vec![condition(argument, SeccompCmpOp::Eq, value)?]).ok()
}

#[cfg(test)]
mod tests {
    use super::{CallAccess, ProtectedPids, apply};
    use rustix::io::Errno;
    use rustix::process::{Pid, PidfdFlags};

    /// Tests seccomp alone: on a newer kernel Landlock would mask a failure.
    #[test]
    fn protected_processes_cannot_be_signalled() {
        let _alone = nanobot_os::children::serialize_tests();
        let us = rustix::process::getpid();
        let thread = rustix::thread::gettid();
        let group = rustix::process::getpgrp();
        let processors = rustix::thread::sched_getaffinity(None).unwrap();
        let try_calls = |pid: Pid| {
            [
                rustix::process::test_kill_process(pid),
                rustix::process::pidfd_open(pid, PidfdFlags::empty()).map(drop),
                rustix::thread::sched_setaffinity(Some(pid), &processors),
            ]
        };
        assert_eq!(try_calls(us), [Ok(()); 3]);
        let protected = ProtectedPids::current();
        let child = std::process::Command::new("/bin/sleep").arg("60").spawn();
        let mut child = child.unwrap();
        let check_restricted = || {
            rustix::thread::set_no_new_privs(true).unwrap();
            apply(CallAccess::default(), Some(&protected)).unwrap();
            assert_eq!(try_calls(us), [Err(Errno::PERM); 3]);
            assert_eq!(rustix::process::test_kill_process(thread), Err(Errno::PERM));
            assert_eq!(rustix::process::test_kill_process_group(group), Err(Errno::PERM));
            assert_eq!(try_calls(Pid::from_child(&child)), [Ok(()); 3]);
        };
        std::thread::scope(|scope| scope.spawn(check_restricted).join().unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
