//! The system calls that lead out of the sandbox, refused: sockets, other processes' memory, namespaces and mounts,
//! the terminal, the kernel itself. All others pass: what they may do to files is Landlock's to say.

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, sock_filter,
};
use std::collections::BTreeMap;
use std::io;
use std::sync::LazyLock;

/// The architecture that this program was built for, where its calls are known. Programs for another one die.
pub(super) const ARCHITECTURE: Option<TargetArch> = match () {
    #[cfg(target_arch = "x86_64")]
    () => Some(TargetArch::x86_64),
    #[cfg(target_arch = "aarch64")]
    () => Some(TargetArch::aarch64),
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    () => None,
};

/// Calls that are not there: who gets this answer takes another way, as for an older kernel.
const MISSING: &[i64] = &[
    // It takes its flags from memory, where no filter sees them; libraries then call `clone`.
    libc::SYS_clone3,
    // It makes sockets, and much else, without the calls for that.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
];

/// Calls that nobody may make.
const REFUSED: &[i64] = &[
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
    // The kernel's keyrings, which belong to the user's session.
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    // Ways into the kernel that had many holes, and that no everyday program needs.
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
    // It opens a file by number, past every directory.
    libc::SYS_open_by_handle_at,
    // The machine.
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

/// The same number everywhere; newer than the table of names.
const OPEN_TREE_ATTR: i64 = 467;

/// What `clone` makes a new namespace by.
const NEW: [libc::c_int; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

/// What types into a terminal, or moves the system's messages there.
const TERMINAL: [u64; 3] = [0x5412, 0x541c, 0x541d];

/// Put the filters on this thread.
///
/// # Errors
/// The kernel takes no filter.
pub(super) fn apply(net: bool) -> io::Result<()> {
    static ALONE: LazyLock<Option<Vec<BpfProgram>>> = LazyLock::new(|| programs(false));
    static NET: LazyLock<Option<Vec<BpfProgram>>> = LazyLock::new(|| programs(true));
    let programs = if net { &NET } else { &ALONE };
    let programs = programs
        .as_ref()
        .ok_or_else(|| io::Error::other("the filter of system calls cannot be made"))?;
    for program in programs {
        seccompiler::apply_filter(program).map_err(io::Error::other)?;
    }
    Ok(())
}

/// One for each answer. The kernel asks all of them, and the sternest answer holds.
fn programs(net: bool) -> Option<Vec<BpfProgram>> {
    let always = |calls: &[i64]| calls.iter().map(|call| (*call, Vec::new())).collect();
    let mut refused: BTreeMap<i64, Vec<SeccompRule>> = always(REFUSED);
    let new = NEW.iter().map(|flag| has_bits(0, *flag as u64));
    refused.insert(libc::SYS_clone, new.collect::<Option<_>>()?);
    let typing = TERMINAL.iter().map(|request| is(1, *request));
    refused.insert(libc::SYS_ioctl, typing.collect::<Option<_>>()?);
    refused.extend(others()?);
    Some(vec![
        program(always(MISSING), libc::ENOSYS)?,
        program(refused, libc::EPERM)?,
        program(sockets(net)?, libc::EAFNOSUPPORT)?,
        foreign(),
    ])
}

/// Calls that hamper other processes of the same user, who runs us: with no descriptor left to us, or no share of the
/// processor, we could not keep the command's deadline. Nobody but zero is oneself here.
fn others() -> Option<BTreeMap<i64, Vec<SeccompRule>>> {
    let is_other = |argument| condition(argument, SeccompCmpOp::Ne, 0);
    let sets = SeccompCondition::new(2, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, 0).ok()?;
    let limits = SeccompRule::new(vec![is_other(0)?, sets]).ok()?;
    let someone = |all_of_the_user: libc::c_int| {
        let who = SeccompRule::new(vec![is_other(1)?]).ok()?;
        Some(vec![who, is(0, all_of_the_user as u64)?])
    };
    Some(BTreeMap::from([
        (libc::SYS_prlimit64, vec![limits]),
        (
            libc::SYS_setpriority,
            someone(libc::PRIO_USER as libc::c_int)?,
        ),
        (libc::SYS_ioprio_set, someone(IOPRIO_WHO_USER)?),
    ]))
}

/// All processes of a user, for the priority of what they read and write.
const IOPRIO_WHO_USER: libc::c_int = 3;

/// The sockets that are refused.
fn sockets(net: bool) -> Option<BTreeMap<i64, Vec<SeccompRule>>> {
    let mut rules = BTreeMap::new();
    let of_kind = |kind: u64| condition(1, SeccompCmpOp::MaskedEq(0xf), kind);
    let not = |family: libc::c_int| condition(0, SeccompCmpOp::Ne, family as u64);
    let streams_and_datagrams = [libc::SOCK_STREAM as u64, libc::SOCK_DGRAM as u64];
    let socket = match net {
        false => Vec::new(),
        true => {
            let others = (0..16).filter(|kind| !streams_and_datagrams.contains(kind));
            let raw = others.map(|kind| SeccompRule::new(vec![of_kind(kind)?]).ok());
            let mut rules: Vec<SeccompRule> = raw.collect::<Option<_>>()?;
            rules.push(SeccompRule::new(vec![not(libc::AF_INET)?, not(libc::AF_INET6)?]).ok()?);
            rules
        }
    };
    rules.insert(libc::SYS_socket, socket);
    // A pair of sockets is a pipe, except one of datagrams: such a socket can be led to any address afterwards.
    let pairs = vec![
        SeccompRule::new(vec![not(libc::AF_UNIX)?]).ok()?,
        SeccompRule::new(vec![of_kind(libc::SOCK_DGRAM as u64)?]).ok()?,
        SeccompRule::new(vec![of_kind(libc::SOCK_RAW as u64)?]).ok()?,
    ];
    rules.insert(libc::SYS_socketpair, pairs);
    if !net {
        // Where there are no sockets, whatever is tried with one is a try to get out.
        for call in [libc::SYS_connect, libc::SYS_bind, libc::SYS_listen] {
            rules.insert(call, Vec::new());
        }
    }
    Some(rules)
}

/// Calls of the other kind that this processor has: numbers with a bit set, which no filter by number would see.
fn foreign() -> BpfProgram {
    let step = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    vec![
        // Load the number; from the bit on, the process dies; else the call passes.
        step(0x20, 0, 0, 0),
        step(0x35, 0, 1, 0x4000_0000),
        step(0x06, 0, 0, libc::SECCOMP_RET_KILL_PROCESS),
        step(0x06, 0, 0, libc::SECCOMP_RET_ALLOW),
    ]
}

fn program(rules: BTreeMap<i64, Vec<SeccompRule>>, errno: libc::c_int) -> Option<BpfProgram> {
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

fn is(argument: u8, value: u64) -> Option<SeccompRule> {
    SeccompRule::new(vec![condition(argument, SeccompCmpOp::Eq, value)?]).ok()
}

#[cfg(test)]
mod tests {
    use super::{ARCHITECTURE, programs};

    #[test]
    fn the_filters_can_be_made() {
        assert!(ARCHITECTURE.is_some());
        for net in [false, true] {
            let programs = programs(net).unwrap();
            assert_eq!(programs.len(), 4);
            assert!(programs.iter().map(Vec::len).sum::<usize>() < 1000);
        }
    }
}
