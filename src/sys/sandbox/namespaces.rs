//! Enters the namespaces of a sandboxed command: mounts, processes, IPC and, unless it has network, sockets. Ordinary
//! users need a user namespace around them, which only a single-threaded process can enter.

use rustix::thread::{CapabilitySet, UnshareFlags};
use std::io;
use std::path::Path;

/// Moves this process, which must have a single thread, into new namespaces in which it may mount. The process
/// namespace is that of its children: the first one becomes its init.
///
/// # Errors
/// The system refuses any of it.
pub fn enter(with_network: bool) -> io::Result<()> {
    let mut flags = UnshareFlags::NEWNS | UnshareFlags::NEWPID | UnshareFlags::NEWIPC;
    if !with_network {
        flags |= UnshareFlags::NEWNET;
    }
    #[expect(
        deprecated,
        reason = "its replacement is unsafe because of a flag that is not used here"
    )]
    let unshare = rustix::thread::unshare;
    if unshare(flags).is_ok() {
        return Ok(());
    }
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    unshare(flags | UnshareFlags::NEWUSER)?;
    let write = |name: &str, text: String| std::fs::write(format!("/proc/self/{name}"), text);
    write("setgroups", "deny".into())?;
    write("uid_map", format!("{0} {0} 1", user.as_raw()))?;
    write("gid_map", format!("{0} {0} 1", group.as_raw()))?;
    // An ordinary user's capabilities end with `exec`, unless they are ambient.
    let mut sets = rustix::thread::capabilities(None)?;
    sets.inheritable |= CapabilitySet::SYS_ADMIN;
    rustix::thread::set_capabilities(None, sets)?;
    Ok(rustix::thread::configure_capability_in_ambient_set(
        CapabilitySet::SYS_ADMIN,
        true,
    )?)
}

/// Tells what keeps this user from making namespaces, and how to change it.
pub fn explain_refusal() -> &'static str {
    let is = |name: &str, value: &str| {
        let setting = std::fs::read_to_string(Path::new("/proc/sys").join(name));
        setting.is_ok_and(|text| text.trim() == value)
    };
    if is("kernel/apparmor_restrict_unprivileged_userns", "1") {
        return "AppArmor restricts them: give the program a profile with `userns,`, or set \
                `sysctl kernel.apparmor_restrict_unprivileged_userns=0`";
    }
    if is("kernel/unprivileged_userns_clone", "0") {
        return "set `sysctl kernel.unprivileged_userns_clone=1`";
    }
    if is("user/max_user_namespaces", "0") {
        return "set `sysctl user.max_user_namespaces` to more than 0";
    }
    "a container must allow them, as `podman run --security-opt seccomp=unconfined --security-opt unmask=ALL` does"
}
