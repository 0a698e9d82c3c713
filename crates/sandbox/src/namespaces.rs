//! Enters the namespaces of a sandboxed command: mounts, processes, IPC and, unless it has network, sockets. Ordinary
//! users need a user namespace around them, which only a single-threaded process can enter.

use super::network::{NetworkNamespace, bring_up_loopback};
use rustix::thread::{CapabilitySet, UnshareFlags};
use std::io;
use std::path::Path;

/// The network of new namespaces.
#[derive(Debug)]
pub enum NewNetwork {
    /// The network of the machine.
    Machine,
    /// A network namespace in which every interface is down.
    Nothing,
    /// A network namespace with loopback.
    Loopback,
    /// An existing network namespace.
    Existing(NetworkNamespace),
}

/// Moves this process, which must have a single thread, into new namespaces in which it may mount. The process
/// namespace is that of its children: the first one becomes its init.
///
/// # Errors
/// The system refuses a part of this.
pub fn enter(network: &NewNetwork) -> io::Result<()> {
    let mut flags = UnshareFlags::NEWNS | UnshareFlags::NEWPID | UnshareFlags::NEWIPC;
    if matches!(network, NewNetwork::Nothing | NewNetwork::Loopback) {
        flags |= UnshareFlags::NEWNET;
    }
    if let NewNetwork::Existing(namespace) = network {
        let is_other_user_namespace = namespace.enter()?;
        unshare(flags)?;
        return if is_other_user_namespace { keep_capability() } else { Ok(()) };
    }
    let needs_loopback = matches!(network, NewNetwork::Loopback);
    if unshare(flags).is_ok() && (!needs_loopback || bring_up_loopback().is_ok()) {
        return Ok(());
    }
    unshare_with_user(flags)?;
    if needs_loopback {
        bring_up_loopback()?;
    }
    keep_capability()
}

/// Moves this process, which must have a single thread, into a mount namespace of its own, in which it may mount until it
/// executes a program.
///
/// # Errors
/// The system refuses it.
pub(super) fn enter_mounts() -> io::Result<()> {
    unshare(UnshareFlags::NEWNS).or_else(|_| unshare_with_user(UnshareFlags::NEWNS))
}

/// Moves this process, which must have a single thread, into namespaces in which there is no network and nothing to mount.
///
/// # Errors
/// The system refuses it.
pub(super) fn enter_for_parser() -> io::Result<()> {
    let flags = UnshareFlags::NEWNET | UnshareFlags::NEWIPC | UnshareFlags::NEWNS;
    unshare(flags).or_else(|_| unshare_with_user(flags))
}

/// Creates namespaces within a user namespace of its own, in which this user is the same one.
fn unshare_with_user(flags: UnshareFlags) -> io::Result<()> {
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    unshare(flags | UnshareFlags::NEWUSER)?;
    let write = |name: &str, text: String| std::fs::write(format!("/proc/self/{name}"), text);
    write("setgroups", "deny".into())?;
    write("uid_map", format!("{0} {0} 1", user.as_raw()))?;
    write("gid_map", format!("{0} {0} 1", group.as_raw()))
}

fn unshare(flags: UnshareFlags) -> rustix::io::Result<()> {
    #[expect(
        deprecated,
        reason = "its replacement is unsafe because of a flag that is not used here"
    )]
    rustix::thread::unshare(flags)
}

/// Keeps the capability to mount in the user namespace that this process has entered: an ordinary user's capabilities end
/// with `exec`, unless they are ambient.
fn keep_capability() -> io::Result<()> {
    let mut sets = rustix::thread::capabilities(None)?;
    sets.inheritable |= CapabilitySet::SYS_ADMIN;
    rustix::thread::set_capabilities(None, sets)?;
    Ok(rustix::thread::configure_capability_in_ambient_set(CapabilitySet::SYS_ADMIN, true)?)
}

/// Explains why this user cannot create namespaces, and how to change that.
pub fn explain_refusal() -> &'static str {
    // Mapping the user 0 takes this capability (user_namespaces(7)).
    let lacks_capability = rustix::process::geteuid().is_root()
        && rustix::thread::capabilities(None)
            .is_ok_and(|sets| !sets.effective.contains(CapabilitySet::SETFCAP));
    explain(lacks_capability, &|name| {
        std::fs::read_to_string(Path::new("/proc/sys").join(name)).ok()
    })
}

/// Explains which of the system's settings, as `read` returns them, keeps a user from creating namespaces, or that root lacks a
/// capability.
fn explain(lacks_capability: bool, read: &dyn Fn(&str) -> Option<String>) -> &'static str {
    let is_set = |name: &str, value: &str| read(name).is_some_and(|text| text.trim() == value);
    if is_set("kernel/apparmor_restrict_unprivileged_userns", "1") {
        return "AppArmor restricts them; this gives the program a profile: `printf 'abi <abi/4.0>,\\nprofile nanobot %s \
                flags=(unconfined) { userns, }\\n' \"$(command -v nanobot)\" | sudo tee /etc/apparmor.d/nanobot && sudo \
                apparmor_parser -r /etc/apparmor.d/nanobot`";
    }
    if is_set("kernel/unprivileged_userns_clone", "0") {
        return "set `sudo sysctl -w kernel.unprivileged_userns_clone=1`";
    }
    if is_set("user/max_user_namespaces", "0") {
        return "set `sudo sysctl -w user.max_user_namespaces=10000`";
    }
    if lacks_capability {
        return "root needs the capability CAP_SETFCAP for them: keep it in `CapabilityBoundingSet=` of the systemd unit or with \
                `--cap-add SETFCAP` of the container, or run as another user";
    }
    "a container must allow them, as `podman run --security-opt seccomp=unconfined --security-opt unmask=ALL` does"
}

#[cfg(test)]
mod tests {
    use super::explain;

    #[test]
    fn the_setting_that_restricts_namespaces_is_named_with_the_line_that_changes_it() {
        let check = |set: &[(&str, &str)], expect: &str| {
            let read = |name: &str| {
                let entry = set.iter().find(|(known, _)| name.ends_with(known));
                entry.map(|(_, value)| format!("{value}\n"))
            };
            let actual = explain(false, &read);
            assert!(actual.contains(expect), "{set:?}: {actual}");
        };
        check(
            &[("apparmor_restrict_unprivileged_userns", "1")],
            "sudo tee /etc/apparmor.d/nanobot",
        );
        check(&[("unprivileged_userns_clone", "0")], "kernel.unprivileged_userns_clone=1");
        check(&[("max_user_namespaces", "0")], "user.max_user_namespaces=");
        let usual = [
            ("apparmor_restrict_unprivileged_userns", "0"),
            ("unprivileged_userns_clone", "1"),
            ("max_user_namespaces", "1000"),
        ];
        check(&usual, "a container must allow them");
        check(&[], "a container must allow them");
        assert!(explain(true, &|_| None).contains("CAP_SETFCAP"));
    }
}
