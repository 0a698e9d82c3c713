//! The process of the proxy: accepts the connections of commands, each on a thread of its own, and relays those that are granted.

use super::client_hello::{self, ClientHello};
use super::grants::{CommandHosts, HostGrant};
use super::request::{self, ProxyRequest, RefusedRequest, Target};
use nanobot_net::http::{SsrfFilter, connect_filtered};
use nanobot_net::test_dns::TestHosts;
use nanobot_os::sync::IgnorePoison;
use nanobot_sandbox::process::helper::{HelperTask, receive_task};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The name (`argv[0]`) that makes this program a proxy.
pub(super) const PROXY_ARG0: &str = "nanobot-proxy";
/// The time that a client may take to send its request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// The time that a host may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum length of a request's head, in bytes.
const MAX_HEAD_BYTES: usize = 64 << 10;
/// Maximum number of bytes that are read before a TLS client has named its host.
const MAX_FIRST_BYTES: usize = 128 << 10;
/// Maximum number of connections at a time. Others wait until one ends.
const MAX_CONNECTIONS: usize = 128;
/// Interval at which the proxy, once full, checks whether a connection has ended.
const FULL_CHECK_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
/// Maximum number of hosts that are counted. Other hosts cannot be reached: a command could invent any number of names.
const MAX_HOSTS: usize = 1000;

/// The task of a proxy, as the run sends it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ProxyTask {
    pub(super) hosts: CommandHosts,
    /// The address of the proxy itself; it also listens at the forwarded addresses.
    pub(super) proxy: SocketAddr,
}

/// The connections of commands to a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostUsage {
    pub connections: u64,
    pub sent_bytes: u64,
    pub received_bytes: u64,
    /// Requests that were refused because the host is not granted.
    pub refused: u64,
}

/// Runs as a proxy if this program was started as one, and returns `None` otherwise. Returns true if the run has ended it.
pub fn become_proxy() -> Option<bool> {
    let task = receive_task(PROXY_ARG0)?;
    nanobot_sandbox::process::harden();
    // An error could only be reported to the run, which sees the end of the socket anyway.
    Some(
        task.and_then(|HelperTask { connection, message, descriptors }| {
            let task = serde_json::from_slice(&message).map_err(io::Error::other)?;
            let listeners: Vec<_> = descriptors.into_iter().map(TcpListener::from).collect();
            serve(connection, &task, &listeners)
        })
        .is_ok(),
    )
}

/// The state that the threads share.
struct Proxy {
    hosts: CommandHosts,
    test_hosts: TestHosts,
    usage: Mutex<BTreeMap<String, HostUsage>>,
    open: AtomicUsize,
}

fn serve(mut run: UnixStream, task: &ProxyTask, listeners: &[TcpListener]) -> io::Result<()> {
    let proxy = Arc::new(Proxy {
        hosts: task.hosts.clone(),
        test_hosts: TestHosts::from_text(task.hosts.test_hosts.as_deref().unwrap_or_default()),
        usage: Mutex::default(),
        open: AtomicUsize::new(0),
    });
    for listener in listeners {
        listener.set_nonblocking(true)?;
    }
    loop {
        let is_full = proxy.open.load(Ordering::SeqCst) >= MAX_CONNECTIONS;
        let accepting = if is_full { &[] } else { listeners };
        let mut fds = vec![PollFd::new(&run, PollFlags::IN)];
        fds.extend(accepting.iter().map(|listener| PollFd::new(listener, PollFlags::IN)));
        match poll(&mut fds, is_full.then_some(&FULL_CHECK_INTERVAL)) {
            Err(rustix::io::Errno::INTR) => continue,
            result => result?,
        };
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        if ready[0] {
            if run.read(&mut [0; 1])? == 0 {
                return Ok(());
            }
            let mut line = serde_json::to_vec(&*proxy.usage.lock().ignore_poison())
                .map_err(io::Error::other)?;
            line.push(b'\n');
            run.write_all(&line)?;
        }
        for (listener, _) in accepting.iter().zip(&ready[1..]).filter(|(_, is_ready)| **is_ready) {
            let local_address = listener.local_addr()?;
            // The client may be gone again.
            let Ok((client, _)) = listener.accept() else {
                continue;
            };
            proxy.open.fetch_add(1, Ordering::SeqCst);
            let thread_proxy = Arc::clone(&proxy);
            let is_forwarded = local_address != task.proxy;
            let thread = std::thread::Builder::new().spawn(move || {
                // Whatever goes wrong, both sides see the end of their connection.
                drop(if is_forwarded {
                    thread_proxy.forward(client, local_address)
                } else {
                    thread_proxy.answer(client)
                });
                thread_proxy.open.fetch_sub(1, Ordering::SeqCst);
            });
            if thread.is_err() {
                proxy.open.fetch_sub(1, Ordering::SeqCst);
            }
        }
    }
}

impl Proxy {
    /// Relays a connection to an address of the machine's own loopback.
    fn forward(&self, client: TcpStream, address: SocketAddr) -> io::Result<()> {
        client.set_nonblocking(false)?;
        let name = address.to_string();
        let host = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT)?;
        self.count(&name, |usage| usage.connections += 1);
        self.relay(&name, client, &host, |_| Ok(Some(Vec::new())))
    }

    /// Answers the request of a client.
    fn answer(&self, mut client: TcpStream) -> io::Result<()> {
        client.set_nonblocking(false)?;
        let deadline = Instant::now() + REQUEST_TIMEOUT;
        let mut head = Vec::new();
        let end = loop {
            if let Some(start) = head.windows(4).position(|window| window == b"\r\n\r\n") {
                break start + 4;
            }
            if head.len() > MAX_HEAD_BYTES || !read_some(&mut client, &mut head, Some(deadline))? {
                return Ok(());
            }
        };
        let rest = head.split_off(end);
        let result = match request::parse(&head) {
            Ok(ProxyRequest::Tunnel(target)) => self.tunnel(&mut client, &target, rest, deadline),
            Ok(ProxyRequest::Plain { target, head, body_bytes }) => {
                self.send_plain(&mut client, &target, &head, &rest, body_bytes)
            }
            Err(refusal) => Err(refusal),
        };
        match result {
            Ok(()) => Ok(()),
            Err(RefusedRequest { status, reason }) => {
                let body = format!("nanobot: {reason}\n");
                let length = body.len();
                let head = format!(
                    "HTTP/1.1 {status}\r\ncontent-type: text/plain\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
                );
                client.write_all(format!("{head}{body}").as_bytes())
            }
        }
    }

    /// Relays a connection whose protocol is TLS for this host, or any protocol if the port was named.
    fn tunnel(
        &self,
        client: &mut TcpStream,
        target: &Target,
        mut first: Vec<u8>,
        deadline: Instant,
    ) -> Result<(), RefusedRequest> {
        let (host, grant) = self.connect(target)?;
        let accepted = client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n");
        // From here on no error can be sent, so a failure ends the connection.
        let result = accepted.and_then(|()| {
            let deadline = (grant == HostGrant::Web).then_some(deadline);
            let begin = |client: &mut TcpStream| {
                let is_granted = match read_first(client, &mut first, deadline)? {
                    FirstMessage::Tls(name) => target.is_named(name.as_deref()),
                    FirstMessage::Other => grant == HostGrant::Port,
                };
                Ok(is_granted.then_some(first))
            };
            self.relay(&name_of(target), client.try_clone()?, &host, begin)
        });
        // The client or the host has ended it.
        drop(result);
        Ok(())
    }

    /// Sends one plain request, with its body, and returns the answer. The connection ends with it.
    fn send_plain(
        &self,
        client: &mut TcpStream,
        target: &Target,
        head: &[u8],
        first: &[u8],
        body_bytes: u64,
    ) -> Result<(), RefusedRequest> {
        let (mut host, _) = self.connect(target)?;
        let name = name_of(target);
        self.count(&name, |usage| usage.sent_bytes += head.len() as u64);
        let mut carry = || -> io::Result<()> {
            client.set_read_timeout(None)?;
            host.write_all(head)?;
            // Only this one request is sent.
            let body = first.chain(client.try_clone()?).take(body_bytes);
            self.copy(body, &mut host, |usage, count| usage.sent_bytes += count, &name)?;
            self.copy(&host, client, |usage, count| usage.received_bytes += count, &name)?;
            client.shutdown(Shutdown::Both)
        };
        // The client or the host has ended it.
        drop(carry());
        Ok(())
    }

    /// Connects to a host that is granted.
    fn connect(&self, target: &Target) -> Result<(TcpStream, HostGrant), RefusedRequest> {
        let name = name_of(target);
        let may_count = {
            let usage = self.usage.lock().ignore_poison();
            usage.len() < MAX_HOSTS || usage.contains_key(&name)
        };
        let grant = if may_count { self.hosts.find_grant(target) } else { None };
        let Some(grant) = grant else {
            if may_count {
                self.count(&name, |usage| usage.refused += 1);
            }
            return Err(RefusedRequest {
                status: "403 Forbidden",
                reason: format!(
                    "`{name}` is not granted to commands in this run; the user can grant it with `--net={}`",
                    flag_value(target)
                ),
            });
        };
        let mut allowed_ranges = self.hosts.allowed_ranges.clone();
        // The exception is only for this literal address, not for names that resolve to it.
        let address = target.host.trim_matches(['[', ']']);
        let is_named =
            address.parse().is_ok_and(|address: IpAddr| self.hosts.names_address(address));
        if is_named && let Ok(range) = address.parse() {
            allowed_ranges.push(range);
        }
        let filter = SsrfFilter {
            allowed_ranges,
            allowed_ports: vec![(target.host.clone(), target.port)],
            offline: false,
        };
        let host =
            connect_filtered(&target.host, target.port, filter, &self.test_hosts, CONNECT_TIMEOUT);
        let host = host.map_err(|error| RefusedRequest {
            status: "502 Bad Gateway",
            reason: format!("`{name}` cannot be reached: {error:#}"),
        })?;
        self.count(&name, |usage| usage.connections += 1);
        Ok((host, grant))
    }

    fn count(&self, name: &str, change: impl FnOnce(&mut HostUsage)) {
        change(self.usage.lock().ignore_poison().entry(name.to_owned()).or_default());
    }

    /// Relays both directions until both have ended. `begin` reads the first bytes of the client, and returns them if they may be
    /// sent.
    fn relay(
        &self,
        name: &str,
        mut client: TcpStream,
        host: &TcpStream,
        begin: impl FnOnce(&mut TcpStream) -> io::Result<Option<Vec<u8>>> + Send,
    ) -> io::Result<()> {
        let (mut from_client, mut to_host) = (client.try_clone()?, host.try_clone()?);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let add_sent = |usage: &mut HostUsage, count| usage.sent_bytes += count;
                let send = || -> io::Result<()> {
                    let Some(first) = begin(&mut from_client)? else {
                        return to_host.shutdown(Shutdown::Both);
                    };
                    from_client.set_read_timeout(None)?;
                    self.count(name, |usage| add_sent(usage, first.len() as u64));
                    to_host.write_all(&first)?;
                    self.copy(&from_client, &mut to_host, add_sent, name)?;
                    to_host.shutdown(Shutdown::Write)
                };
                if send().is_err() {
                    drop(to_host.shutdown(Shutdown::Both));
                }
            });
            let add_received = |usage: &mut HostUsage, count| usage.received_bytes += count;
            let result = self.copy(host, &mut client, add_received, name);
            // The host no longer answers, so nothing more is sent to it.
            drop(client.shutdown(Shutdown::Both));
            drop(host.shutdown(Shutdown::Both));
            result
        })
    }

    /// Copies to the end of `from`. Bytes are counted before they are passed on.
    fn copy(
        &self,
        mut from: impl Read,
        to: &mut TcpStream,
        add: impl Fn(&mut HostUsage, u64),
        name: &str,
    ) -> io::Result<()> {
        let mut block = [0; 16 << 10];
        loop {
            let count = match from.read(&mut block) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                result => result?,
            };
            if count == 0 {
                return Ok(());
            }
            self.count(name, |usage| add(usage, count as u64));
            to.write_all(&block[..count])?;
        }
    }
}

/// The first bytes of a client.
enum FirstMessage {
    /// A TLS client, with the host that it names.
    Tls(Option<String>),
    Other,
}

/// Reads the first bytes of a client into `first`.
fn read_first(
    client: &mut TcpStream,
    first: &mut Vec<u8>,
    deadline: Option<Instant>,
) -> io::Result<FirstMessage> {
    loop {
        // A client could send other records without end.
        if first.len() > MAX_FIRST_BYTES {
            return Err(ErrorKind::InvalidData.into());
        }
        if !first.is_empty() && !client_hello::may_be_tls(first) {
            return Ok(FirstMessage::Other);
        }
        match client_hello::parse(first) {
            ClientHello::Complete(name) => return Ok(FirstMessage::Tls(name)),
            ClientHello::Invalid => return Err(ErrorKind::InvalidData.into()),
            ClientHello::Incomplete if read_some(client, first, deadline)? => {}
            ClientHello::Incomplete => return Ok(FirstMessage::Other),
        }
    }
}

/// Reads the bytes that have arrived. Returns false at the end of the stream, and at the deadline.
fn read_some(
    client: &mut TcpStream,
    buffer: &mut Vec<u8>,
    deadline: Option<Instant>,
) -> io::Result<bool> {
    let timeout = deadline.map(|end| end.saturating_duration_since(Instant::now()));
    if timeout == Some(Duration::ZERO) {
        return Ok(false);
    }
    client.set_read_timeout(timeout)?;
    let mut block = [0; 4096];
    let count = client.read(&mut block)?;
    buffer.extend_from_slice(&block[..count]);
    Ok(count > 0)
}

fn name_of(target: &Target) -> String {
    format!("{}:{}", target.host, target.port)
}

/// The host as the user would name it.
fn flag_value(target: &Target) -> String {
    match target.port {
        80 | 443 => target.host.clone(),
        _ => name_of(target),
    }
}
