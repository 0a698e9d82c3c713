//! The networks of commands. Commands with loopback share a network namespace with the others of their run, so that one can reach
//! a server that another one has started in the background. The first of them creates the namespace; the run holds a descriptor
//! of it, and passes it to the supervisors of the others.

use parking_lot::{Mutex, MutexGuard};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::thread::LinkNameSpaceType;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// The network of a sandboxed command or server.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub enum NetworkAccess {
    /// No internet sockets.
    #[default]
    Nothing,
    /// Loopback in a network namespace of its own, which it shares with all that have a copy of this value. No network where the system
    /// allows no namespaces.
    Loopback {
        #[serde(skip)]
        shared: Arc<SharedNetwork>,
    },
    /// The network of the machine.
    Machine,
}

impl NetworkAccess {
    /// True if it reaches other machines.
    pub fn is_machine(&self) -> bool {
        matches!(self, Self::Machine)
    }

    /// The namespace that it shares with others, if it does.
    pub fn shared(&self) -> Option<&Arc<SharedNetwork>> {
        match self {
            Self::Loopback { shared } => Some(shared),
            Self::Nothing | Self::Machine => None,
        }
    }

    /// True if a process in one of them is in the network of the other as well.
    pub fn is_same(&self, other: &Self) -> bool {
        match (self.shared(), other.shared()) {
            (Some(left), Some(right)) => Arc::ptr_eq(left, right),
            (None, None) => self.is_machine() == other.is_machine(),
            _ => false,
        }
    }
}

/// The network namespace of several commands, once the first of them has created it.
#[derive(Debug, Default)]
pub struct SharedNetwork {
    namespace: Mutex<Option<NetworkNamespace>>,
    listeners: Option<NetworkListeners>,
}

/// Sockets that listen in a network namespace, for a process outside of it.
pub struct NetworkListeners {
    /// The addresses that the sockets listen at. A socket that cannot be created is left out.
    pub addresses: Vec<SocketAddr>,
    /// Called with the sockets when the namespace has been created.
    pub on_open: Box<dyn Fn(Vec<OwnedFd>) + Send + Sync>,
}

impl std::fmt::Debug for NetworkListeners {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("NetworkListeners").field(&self.addresses).finish()
    }
}

impl SharedNetwork {
    /// A network in which a process outside of it listens.
    pub fn with_listeners(listeners: NetworkListeners) -> Self {
        Self { namespace: Mutex::default(), listeners: Some(listeners) }
    }

    /// The namespace. The caller that finds none holds the lock until it has created one.
    pub fn lock(&self) -> MutexGuard<'_, Option<NetworkNamespace>> {
        self.namespace.lock()
    }

    pub fn listeners(&self) -> Option<&NetworkListeners> {
        self.listeners.as_ref()
    }
}

/// A network namespace, with the user namespace that it belongs to. It exists as long as this value does.
#[derive(Debug)]
pub struct NetworkNamespace {
    pub network: OwnedFd,
    pub user: OwnedFd,
}

impl NetworkNamespace {
    /// The namespaces of this process.
    pub fn current() -> io::Result<Self> {
        let open = |name: &str| File::open(format!("/proc/self/ns/{name}")).map(OwnedFd::from);
        Ok(Self { network: open("net")?, user: open("user")? })
    }

    /// Moves this process, which must have a single thread, into it. Returns true if it was in another user namespace
    /// before, and so has all capabilities in this one.
    ///
    /// # Errors
    /// The system refuses it.
    pub(super) fn enter(&self) -> io::Result<bool> {
        let current = rustix::fs::fstat(File::open("/proc/self/ns/user")?)?;
        let target = rustix::fs::fstat(&self.user)?;
        let is_other = (current.st_dev, current.st_ino) != (target.st_dev, target.st_ino);
        let enter = rustix::thread::move_into_link_name_space;
        if is_other {
            enter(self.user.as_fd(), Some(LinkNameSpaceType::User))?;
        }
        enter(self.network.as_fd(), Some(LinkNameSpaceType::Network))?;
        Ok(is_other)
    }
}

/// The attempts to connect that have failed in a network namespace in which only loopback is up, as the kernel counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedAttempts {
    /// Those to reach another machine, or a name server. Each lookup and each connection has no route, or meets a port of loopback at
    /// which no name server listens.
    pub elsewhere: u64,
    /// TCP connections to ports of loopback at which nothing listens.
    pub loopback: u64,
}

impl FailedAttempts {
    /// Counts those of all processes of this network namespace so far.
    pub(super) fn count() -> Self {
        let read = |name: &str| std::fs::read_to_string(format!("/proc/self/net/{name}"));
        let (snmp, snmp6) = (read("snmp").unwrap_or_default(), read("snmp6").unwrap_or_default());
        let elsewhere = [
            find_counter(&snmp, "Ip:", "OutNoRoutes"),
            find_counter(&snmp, "Udp:", "NoPorts"),
            find_counter6(&snmp6, "Ip6OutNoRoutes"),
            find_counter6(&snmp6, "Udp6NoPorts"),
        ];
        Self {
            elsewhere: elsewhere.into_iter().flatten().sum(),
            // It is for both families.
            loopback: find_counter(&snmp, "Tcp:", "AttemptFails").unwrap_or_default(),
        }
    }

    /// Those after the count `earlier`.
    pub(super) fn since(self, earlier: Self) -> Self {
        Self {
            elsewhere: self.elsewhere.saturating_sub(earlier.elsewhere),
            loopback: self.loopback.saturating_sub(earlier.loopback),
        }
    }
}

/// True if a program of this process's network listens for TCP connections at `address`, as the kernel lists them (`/proc/net/tcp`,
/// proc_pid_net(5)).
pub fn is_listening_at(address: SocketAddr) -> bool {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/self/net/{name}"));
    let tables = [read("tcp"), read("tcp6")];
    tables.into_iter().flatten().any(|table| has_listener(&table, address))
}

/// True if a line of the `table` is about a socket that listens at `address`, or at all addresses. `0A` is the state of such a socket.
fn has_listener(table: &str, address: SocketAddr) -> bool {
    let mut listeners = table.lines().filter_map(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let local = fields.next()?;
        (fields.nth(1)? == "0A").then(|| parse_table_address(local)).flatten()
    });
    listeners.any(|listener| {
        let takes_all = listener.ip().is_unspecified()
            && (listener.is_ipv6() || listener.is_ipv4() == address.is_ipv4());
        listener.port() == address.port() && (takes_all || listener.ip() == address.ip())
    })
}

/// An address of `/proc/net/tcp`: words of 32 bits in the machine's byte order, and the port, both in hexadecimal digits.
fn parse_table_address(text: &str) -> Option<SocketAddr> {
    let (digits, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let groups = digits.as_bytes().chunks(8).map(|group| {
        let group = u32::from_str_radix(std::str::from_utf8(group).ok()?, 16).ok()?;
        Some(group.to_ne_bytes())
    });
    let bytes = groups.collect::<Option<Vec<[u8; 4]>>>()?.concat();
    let ip = match <[u8; 4]>::try_from(bytes.as_slice()) {
        Ok(bytes) => IpAddr::from(bytes),
        Err(_) => IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?).to_canonical(),
    };
    Some(SocketAddr::new(ip, port))
}

/// A counter in `/proc/net/snmp`: the names and the values of `protocol` are two lines.
fn find_counter(text: &str, protocol: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(protocol));
    let (names, values) = (lines.next()?, lines.next()?);
    let mut counters = names.split_whitespace().zip(values.split_whitespace());
    counters.find(|(other, _)| *other == name)?.1.parse().ok()
}

/// A counter in `/proc/net/snmp6`, which has a line for each.
fn find_counter6(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    value.trim().parse().ok()
}

/// The types of the message that changes an interface, `RTM_NEWLINK` (rtnetlink(7)), and of its answer, `NLMSG_ERROR`.
const NEW_LINK: u16 = 16;
const ERROR: u16 = 2;
/// The flags `NLM_F_REQUEST` and `NLM_F_ACK` (netlink(7)).
const REQUEST_WITH_ANSWER: u16 = 1 | 4;
/// The flag `IFF_UP` (netdevice(7)).
const INTERFACE_UP: u32 = 1;
/// The index of the loopback interface in every network namespace.
const LOOPBACK_INDEX: i32 = 1;
/// The length of `struct nlmsghdr`.
const HEADER_BYTES: usize = 16;

/// Brings up the loopback interface of this process's network namespace.
///
/// # Errors
/// This process lacks the capability.
pub(super) fn bring_up_loopback() -> io::Result<()> {
    // The protocol 0 is `NETLINK_ROUTE`.
    let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
    let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    // `struct ifinfomsg`: the family, padding and the type are 0.
    let mut interface = vec![0; 4];
    interface.extend(LOOPBACK_INDEX.to_ne_bytes());
    interface.extend([INTERFACE_UP.to_ne_bytes(), INTERFACE_UP.to_ne_bytes()].concat());
    let length = u32::try_from(HEADER_BYTES + interface.len()).map_err(io::Error::other)?;
    let mut message = length.to_ne_bytes().to_vec();
    message.extend([NEW_LINK.to_ne_bytes(), REQUEST_WITH_ANSWER.to_ne_bytes()].concat());
    // The number of the message and the sender, which the kernel fills in.
    message.extend([0; 8]);
    message.extend(interface);
    rustix::net::send(&socket, &message, SendFlags::empty())?;
    let mut answer = [0; 1024];
    let (received, _) = rustix::net::recv(&socket, &mut answer, RecvFlags::empty())?;
    // The header has the type after the length; `struct nlmsgerr` begins with the error, 0 for success.
    let is_error = answer[4..6] == ERROR.to_ne_bytes();
    let end = HEADER_BYTES + 4;
    let [a, b, c, d] = answer[HEADER_BYTES..end] else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    if !is_error || received < end {
        return Err(io::ErrorKind::InvalidData.into());
    }
    match i32::from_ne_bytes([a, b, c, d]) {
        0 => Ok(()),
        number => Err(Errno::from_raw_os_error(-number).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::{find_counter, find_counter6, has_listener};

    #[test]
    fn counters_have_their_names_in_another_line_or_before_them() {
        let snmp = "Ip: Forwarding OutNoRoutes FragOKs\nIp: 2 7 0\nUdp: InDatagrams NoPorts\nUdp: 1 3\nUdpLite: NoPorts\nUdpLite: 9\n";
        assert_eq!(find_counter(snmp, "Ip:", "OutNoRoutes"), Some(7));
        assert_eq!(find_counter(snmp, "Udp:", "NoPorts"), Some(3));
        assert_eq!(find_counter(snmp, "Tcp:", "InSegs"), None);
        let snmp6 = "Ip6InReceives                   \t0\nIp6OutNoRoutes                  \t4\n";
        assert_eq!(find_counter6(snmp6, "Ip6OutNoRoutes"), Some(4));
        assert_eq!(find_counter6(snmp6, "Udp6NoPorts"), None);
    }

    #[test]
    fn a_listener_takes_connections_to_its_address_or_to_all() {
        let table = |local: &str, state: &str| {
            format!(
                "  sl  local_address rem_address   st\n   0: {local} 00000000:0000 {state} 0 1\n"
            )
        };
        let word = |bytes: [u8; 4]| format!("{:08X}", u32::from_ne_bytes(bytes));
        let zeros = word([0; 4]);
        let check = |local: &str, address: &str, expect: bool| {
            assert_eq!(
                has_listener(&table(local, "0A"), address.parse().unwrap()),
                expect,
                "{local}"
            );
        };
        let loopback = format!("{}:1F90", word([127, 0, 0, 1]));
        check(&loopback, "127.0.0.1:8080", true);
        check(&loopback, "127.0.0.1:8081", false);
        check(&loopback, "[::1]:8080", false);
        check(&format!("{zeros}:1F90"), "127.0.0.1:8080", true);
        check(&format!("{zeros}:1F90"), "[::1]:8080", false);
        let loopback6 = format!("{zeros}{zeros}{zeros}{}:1F90", word([0, 0, 0, 1]));
        check(&loopback6, "[::1]:8080", true);
        check(&loopback6, "127.0.0.1:8080", false);
        check(&format!("{}:1F90", zeros.repeat(4)), "127.0.0.1:8080", true);
        check("no address", "127.0.0.1:8080", false);
        // A connection is not a listener.
        assert!(!has_listener(&table(&loopback, "01"), "127.0.0.1:8080".parse().unwrap()));
    }
}
