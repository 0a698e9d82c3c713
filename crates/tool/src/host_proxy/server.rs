//! The process of the proxy: accepts the connections of commands, each on a thread of its own, and relays those that are granted.

use super::client_hello::{self, ClientHello};
use super::grants::{CommandHosts, HostGrant};
use super::request::{self, ProxyRequest, RefusedRequest, Target};
use nanobot_net::http::{SsrfFilter, connect_filtered};
use nanobot_net::test_dns::TestHosts;
use nanobot_sandbox::process::helper::{HelperTask, receive_task};
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
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
/// The time that a client may send nothing after the host has ended, or that it may take to read a refusal.
const LINGER_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of bytes of a client that are read and dropped.
const MAX_DRAINED_BYTES: usize = 16 << 20;
/// Maximum number of hosts that are reached, and of hosts that are counted as refused: a command could invent any number of names.
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

/// Accepts connections until the run ends. The run asks for the counts by a byte on `run`, see [`super::ask`].
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
    let mut can_accept = true;
    loop {
        let is_full = proxy.open.load(Ordering::SeqCst) >= MAX_CONNECTIONS;
        let accepting = if is_full || !can_accept { &[] } else { listeners };
        let mut fds = vec![PollFd::new(&run, PollFlags::IN)];
        fds.extend(accepting.iter().map(|listener| PollFd::new(listener, PollFlags::IN)));
        match poll(&mut fds, accepting.is_empty().then_some(&FULL_CHECK_INTERVAL)) {
            Err(rustix::io::Errno::INTR) => continue,
            result => result?,
        };
        let is_ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
        let is_asked = is_ready(&fds[0]);
        let ready = accepting.iter().zip(&fds[1..]).filter(|(_, fd)| is_ready(fd));
        let ready: Vec<&TcpListener> = ready.map(|(listener, _)| listener).collect();
        drop(fds);
        if is_asked && !proxy.answer_run(&mut run)? {
            return Ok(());
        }
        can_accept = true;
        for listener in ready {
            can_accept &= proxy.accept(listener, task.proxy)?;
        }
    }
}

impl Proxy {
    /// Answers the question of the run for the counts. Returns false if the run has ended.
    fn answer_run(&self, run: &mut UnixStream) -> io::Result<bool> {
        if run.read(&mut [0; 1])? == 0 {
            return Ok(false);
        }
        let mut line = serde_json::to_vec(&*self.usage.lock()).map_err(io::Error::other)?;
        line.push(b'\n');
        run.write_all(&line)?;
        Ok(true)
    }

    /// Accepts a connection, and serves it on a thread of its own. `proxy_address` is that of the proxy; the other listeners forward.
    /// Returns false if nothing can be accepted now, such as without file descriptors.
    fn accept(
        self: &Arc<Self>,
        listener: &TcpListener,
        proxy_address: SocketAddr,
    ) -> io::Result<bool> {
        let local_address = listener.local_addr()?;
        let client = match listener.accept() {
            Ok((client, _)) => client,
            // The client is gone again.
            Err(error)
                if [ErrorKind::ConnectionAborted, ErrorKind::WouldBlock]
                    .contains(&error.kind()) =>
            {
                return Ok(true);
            }
            Err(_) => return Ok(false),
        };
        self.open.fetch_add(1, Ordering::SeqCst);
        let proxy = Arc::clone(self);
        let thread = std::thread::Builder::new().spawn(move || {
            // Whatever goes wrong, both sides see the end of their connection.
            drop(if local_address == proxy_address {
                proxy.answer(&client)
            } else {
                proxy.forward(&client, local_address)
            });
            proxy.open.fetch_sub(1, Ordering::SeqCst);
        });
        if thread.is_err() {
            self.open.fetch_sub(1, Ordering::SeqCst);
        }
        Ok(true)
    }

    /// Relays a connection to an address of the machine's own loopback.
    fn forward(&self, client: &TcpStream, address: SocketAddr) -> io::Result<()> {
        client.set_nonblocking(false)?;
        let name = address.to_string();
        let host = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT)?;
        self.count(&name, |usage| usage.connections += 1);
        let relay = Relay::new(self, &name, client, &host);
        relay.run(|| relay.send_all(client))
    }

    /// Answers the request of a client.
    fn answer(&self, client: &TcpStream) -> io::Result<()> {
        client.set_nonblocking(false)?;
        let deadline = Instant::now() + REQUEST_TIMEOUT;
        let mut head = Vec::new();
        let end = loop {
            if let Some(start) = head.windows(4).position(|window| window == b"\r\n\r\n") {
                break start + 4;
            }
            if head.len() > MAX_HEAD_BYTES {
                let status = "431 Request Header Fields Too Large";
                let reason =
                    format!("the head of the request has more than {MAX_HEAD_BYTES} bytes");
                return refuse(client, &RefusedRequest { status, reason });
            }
            if !read_some(client, &mut head, Some(deadline))? {
                return Ok(());
            }
        };
        let rest = head.split_off(end);
        let result = match request::parse(&head) {
            Ok(ProxyRequest::Tunnel(target)) => self.tunnel(client, &target, rest, deadline),
            Ok(ProxyRequest::Plain { target, head, body_bytes }) => {
                self.send_plain(client, &target, &head, &rest, body_bytes)
            }
            Err(refusal) => Err(refusal),
        };
        result.or_else(|refused_request| refuse(client, &refused_request))
    }

    /// Relays a connection whose protocol is TLS for this host, or any protocol if the port was named.
    fn tunnel(
        &self,
        mut client: &TcpStream,
        target: &Target,
        mut first: Vec<u8>,
        deadline: Instant,
    ) -> Result<(), RefusedRequest> {
        let (host, grant) = self.connect(target)?;
        let name = name_of(target);
        let accepted = client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n");
        // From here on no error can be sent, so a failure ends the connection.
        let result = accepted.and_then(|()| {
            let relay = Relay::new(self, &name, client, &host);
            relay.run(|| {
                let deadline = (grant == HostGrant::Web).then_some(deadline);
                let is_granted = match read_first(client, &mut first, deadline)? {
                    FirstMessage::Tls(server_name) => {
                        self.check_server_name(target, server_name.as_deref())
                    }
                    FirstMessage::Other => grant == HostGrant::Port,
                };
                if is_granted {
                    relay.send_all(first.as_slice().chain(client))
                } else {
                    host.shutdown(Shutdown::Both)
                }
            })
        });
        // The client or the host has ended it.
        drop(result);
        Ok(())
    }

    /// True if a TLS client that names `server_name` means `target`. Another name is counted as refused.
    fn check_server_name(&self, target: &Target, server_name: Option<&str>) -> bool {
        let is_named = target.is_named(server_name);
        if !is_named
            && let Some(other) = server_name.and_then(|name| Target::parse(name, target.port))
        {
            self.count_refused(&name_of(&other));
        }
        is_named
    }

    /// Sends one plain request, with its body, and returns the answer, which may come before the end of the body. The connection ends
    /// with it.
    fn send_plain(
        &self,
        client: &TcpStream,
        target: &Target,
        head: &[u8],
        first: &[u8],
        body_bytes: u64,
    ) -> Result<(), RefusedRequest> {
        let (host, _) = self.connect(target)?;
        let name = name_of(target);
        let relay = Relay::new(self, &name, client, &host);
        // Only this one request is sent. Its length is in its head, so the host need not see the end of the stream.
        let request = head.chain(first.chain(client).take(body_bytes));
        // The client or the host has ended it.
        drop(relay.run(|| relay.send(request).map(drop)));
        Ok(())
    }

    /// Connects to a host that is granted.
    fn connect(&self, target: &Target) -> Result<(TcpStream, HostGrant), RefusedRequest> {
        let name = name_of(target);
        let Some(grant) = self.hosts.find_grant(target) else {
            self.count_refused(&name);
            return Err(RefusedRequest {
                status: "403 Forbidden",
                reason: format!(
                    "`{name}` is not granted to commands in this run; the user can grant it with `--net={}`",
                    flag_value(target)
                ),
            });
        };
        if !self.has_room_for(&name, |usage| usage.connections > 0) {
            return Err(RefusedRequest {
                status: "503 Service Unavailable",
                reason: format!(
                    "`{name}` is not reached: commands of this run have reached {MAX_HOSTS} hosts, the maximum"
                ),
            });
        }
        let mut allowed_ranges = self.hosts.allowed_ranges.clone();
        // The exception is only for this literal address, not for names that resolve to it.
        let address = target.host.trim_matches(['[', ']']);
        let is_exempt = address
            .parse()
            .is_ok_and(|address: IpAddr| self.hosts.names_address(address, target.port));
        if is_exempt && let Ok(range) = address.parse() {
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
        change(self.usage.lock().entry(name.to_owned()).or_default());
    }

    /// Counts a request for a host that is not granted.
    fn count_refused(&self, name: &str) {
        if self.has_room_for(name, |usage| usage.refused > 0) {
            self.count(name, |usage| usage.refused += 1);
        }
    }

    /// True if the host `name` can be counted among those for which `is_counted` is true. Refused hosts take no places of
    /// others.
    fn has_room_for(&self, name: &str, is_counted: impl Fn(&HostUsage) -> bool) -> bool {
        let usage = self.usage.lock();
        usage.get(name).is_some_and(&is_counted)
            || usage.values().filter(|usage| is_counted(usage)).count() < MAX_HOSTS
    }
}

/// A connection of a client to a host.
struct Relay<'a> {
    proxy: &'a Proxy,
    /// The name under which it is counted.
    name: &'a str,
    client: &'a TcpStream,
    host: &'a TcpStream,
    /// The bytes that the host has taken.
    sent_bytes: AtomicU64,
}

/// The end of a stream that is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CopyEnd {
    /// All of it was passed on.
    Complete,
    /// The recipient takes no more.
    Rejected,
}

impl<'a> Relay<'a> {
    fn new(proxy: &'a Proxy, name: &'a str, client: &'a TcpStream, host: &'a TcpStream) -> Self {
        Self { proxy, name, client, host, sent_bytes: AtomicU64::new(0) }
    }

    /// Relays both directions until both have ended, or until the host has ended and the client sends nothing for
    /// [`LINGER_TIMEOUT`]. `send` sends what the client sends. If it fails, the connection ends.
    fn run(&self, send: impl FnOnce() -> io::Result<()> + Send) -> io::Result<()> {
        let (ended_tx, ended_rx) = mpsc::channel();
        std::thread::scope(|scope| {
            let sender = move || {
                if send().is_err() {
                    drop(self.host.shutdown(Shutdown::Both));
                }
                drop::<Sender<()>>(ended_tx);
            };
            std::thread::Builder::new().spawn_scoped(scope, sender)?;
            let end = self.copy(self.host, self.client, |count| {
                self.proxy.count(self.name, |usage| usage.received_bytes += count);
            });
            if !matches!(end, Ok(CopyEnd::Rejected)) {
                // The client may still send, such as the rest of an upload.
                drop(self.client.shutdown(Shutdown::Write));
                self.wait_for_sender(&ended_rx);
            }
            drop(self.client.shutdown(Shutdown::Both));
            drop(self.host.shutdown(Shutdown::Both));
            end.map(drop)
        })
    }

    /// Waits for the end of the sender, as long as it makes progress.
    fn wait_for_sender(&self, ended_rx: &Receiver<()>) {
        let mut last_bytes = self.sent_bytes.load(Ordering::Relaxed);
        while ended_rx.recv_timeout(LINGER_TIMEOUT) == Err(RecvTimeoutError::Timeout) {
            let bytes = self.sent_bytes.load(Ordering::Relaxed);
            if bytes == last_bytes {
                return;
            }
            last_bytes = bytes;
        }
    }

    /// Sends a stream of the client, and then its end.
    fn send_all(&self, stream: impl Read) -> io::Result<()> {
        match self.send(stream)? {
            CopyEnd::Complete => self.host.shutdown(Shutdown::Write),
            CopyEnd::Rejected => Ok(()),
        }
    }

    /// Sends a stream of the client. If the host takes no more of it, the rest is dropped, and the answer can still come.
    fn send(&self, stream: impl Read) -> io::Result<CopyEnd> {
        self.client.set_read_timeout(None)?;
        let end = self.copy(stream, self.host, |count| {
            self.proxy.count(self.name, |usage| usage.sent_bytes += count);
            self.sent_bytes.fetch_add(count, Ordering::Relaxed);
        })?;
        if end == CopyEnd::Rejected {
            drain(self.client)?;
        }
        Ok(end)
    }

    /// Copies to the end of `from`. Bytes are counted before they are passed on.
    ///
    /// # Errors
    /// `from` fails.
    fn copy(
        &self,
        mut from: impl Read,
        mut to: &TcpStream,
        count_bytes: impl Fn(u64),
    ) -> io::Result<CopyEnd> {
        let mut block = [0; 16 << 10];
        loop {
            let count = match from.read(&mut block) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                result => result?,
            };
            if count == 0 {
                return Ok(CopyEnd::Complete);
            }
            count_bytes(count as u64);
            if to.write_all(&block[..count]).is_err() {
                return Ok(CopyEnd::Rejected);
            }
        }
    }
}

/// Sends the reason why a request is not carried out.
fn refuse(mut client: &TcpStream, refused_request: &RefusedRequest) -> io::Result<()> {
    let RefusedRequest { status, reason } = refused_request;
    let body = format!("nanobot: {reason}\n");
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
    );
    client.write_all(format!("{head}{body}").as_bytes())?;
    client.shutdown(Shutdown::Write)?;
    drain(client)
}

/// Reads and drops what a client still sends, within limits. If a connection is closed while bytes of the client are unread, the kernel
/// resets it, and the client may lose an answer that it has not read yet (RFC 9112 §9.6).
fn drain(client: &TcpStream) -> io::Result<()> {
    let deadline = Instant::now() + LINGER_TIMEOUT;
    let mut drained_bytes = 0;
    let mut buffer = Vec::new();
    while drained_bytes < MAX_DRAINED_BYTES && read_some(client, &mut buffer, Some(deadline))? {
        drained_bytes += buffer.len();
        buffer.clear();
    }
    Ok(())
}

/// The first bytes of a client.
enum FirstMessage {
    /// A TLS client, with the host that it names.
    Tls(Option<String>),
    Other,
}

/// Reads the first bytes of a client into `first`.
fn read_first(
    client: &TcpStream,
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
            ClientHello::Incomplete => {
                if !read_some(client, first, deadline)? {
                    return Ok(FirstMessage::Other);
                }
            }
        }
    }
}

/// Reads the bytes that have arrived. Returns false at the end of the stream, and at the deadline.
fn read_some(
    mut client: &TcpStream,
    buffer: &mut Vec<u8>,
    deadline: Option<Instant>,
) -> io::Result<bool> {
    let mut block = [0; 4096];
    loop {
        let timeout = deadline.map(|end| end.saturating_duration_since(Instant::now()));
        if timeout == Some(Duration::ZERO) {
            return Ok(false);
        }
        client.set_read_timeout(timeout)?;
        match client.read(&mut block) {
            Ok(count) => {
                buffer.extend_from_slice(&block[..count]);
                return Ok(count > 0);
            }
            Err(error)
                if [ErrorKind::Interrupted, ErrorKind::WouldBlock].contains(&error.kind()) => {}
            Err(error) => return Err(error),
        }
    }
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

#[cfg(test)]
mod tests {
    use super::{HostUsage, MAX_HOSTS, Proxy, Target};
    use crate::host_proxy::CommandHosts;
    use nanobot_net::test_dns::TestHosts;
    use parking_lot::Mutex;
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::sync::atomic::AtomicUsize;
    use std::thread;
    use std::time::Duration;

    fn proxy_for(hosts: &[String]) -> Proxy {
        Proxy {
            hosts: CommandHosts { hosts: hosts.to_vec(), ..CommandHosts::default() },
            test_hosts: TestHosts::from_text(""),
            usage: Mutex::default(),
            open: AtomicUsize::new(0),
        }
    }

    /// A connection, as its client and its server see it.
    fn connection() -> [TcpStream; 2] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        [client, listener.accept().unwrap().0]
    }

    /// Reads until `text` has arrived.
    fn read_until(stream: &mut TcpStream, text: &str) {
        let mut bytes = Vec::new();
        while !bytes.ends_with(text.as_bytes()) {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            bytes.extend(byte);
        }
    }

    /// Runs a client of the proxy against a `host`. The client gets the head of a request with a body of `body_bytes`.
    fn exchange(
        body_bytes: usize,
        host: impl FnOnce(TcpStream) + Send,
        client: impl FnOnce(TcpStream, &str),
    ) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let proxy = proxy_for(&[address.to_string()]);
        let [client_stream, proxy_stream] = connection();
        thread::scope(|scope| {
            scope.spawn(|| host(listener.accept().unwrap().0));
            scope.spawn(|| {
                drop(proxy.answer(&proxy_stream));
                drop(proxy_stream);
            });
            let head = format!(
                "POST http://{address}/ HTTP/1.1\r\ncontent-length: {body_bytes}\r\nexpect: 100-continue\r\n\r\n"
            );
            client(client_stream, &head);
        });
    }

    fn read_answer(mut client: TcpStream) -> String {
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn a_client_goes_on_sending_after_the_host_has_ended() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let proxy = proxy_for(&[]);
        let [mut client, proxy_stream] = connection();
        thread::scope(|scope| {
            scope.spawn(|| proxy.forward(&proxy_stream, address).unwrap());
            let (mut host, _) = listener.accept().unwrap();
            host.shutdown(Shutdown::Write).unwrap();
            assert_eq!(client.read(&mut [0]).unwrap(), 0);
            let received = scope.spawn(move || {
                let mut received = Vec::new();
                host.read_to_end(&mut received).unwrap();
                received.len()
            });
            client.write_all(&vec![7; 4 << 20]).unwrap();
            client.shutdown(Shutdown::Write).unwrap();
            assert_eq!(received.join().unwrap(), 4 << 20);
        });
    }

    #[test]
    fn an_answer_comes_before_the_end_of_the_body() {
        let answer = "HTTP/1.1 413 Content Too Large\r\n\r\n";
        let host = |mut host: TcpStream| {
            read_until(&mut host, "\r\n\r\n");
            host.write_all(answer.as_bytes()).unwrap();
        };
        exchange(8 << 20, host, |mut client, head| {
            client.write_all(head.as_bytes()).unwrap();
            client.write_all(&vec![7; 8 << 20]).unwrap();
            assert_eq!(read_answer(client), answer);
        });
    }

    #[test]
    fn a_client_may_wait_before_it_sends_the_body() {
        let host = |mut host: TcpStream| {
            read_until(&mut host, "\r\n\r\n");
            host.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").unwrap();
            read_until(&mut host, "body");
            host.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
        };
        exchange(4, host, |mut client, head| {
            client.write_all(head.as_bytes()).unwrap();
            read_until(&mut client, "100 Continue\r\n\r\n");
            client.write_all(b"body").unwrap();
            assert_eq!(read_answer(client), "HTTP/1.1 200 OK\r\n\r\n");
        });
    }

    #[test]
    fn a_refusal_arrives_although_the_body_is_not_read() {
        let check = |head: &str, expect: &str| {
            let [mut client, proxy_stream] = connection();
            thread::scope(|scope| {
                scope.spawn(|| {
                    proxy_for(&[]).answer(&proxy_stream).unwrap();
                    drop(proxy_stream);
                });
                client.write_all(head.as_bytes()).unwrap();
                client.write_all(&vec![b'x'; 8 << 20]).unwrap();
                client.shutdown(Shutdown::Write).unwrap();
                let answer = read_answer(client);
                assert!(answer.starts_with(expect) && answer.ends_with('\n'), "{answer}");
            });
        };
        check("POST http://a.example/ HTTP/1.1\r\ncontent-length: 8388608\r\n\r\n", "HTTP/1.1 403");
        check("GET http://a.example/ HTTP/1.1\r\nlong: ", "HTTP/1.1 431");
    }

    #[test]
    fn many_refused_hosts_are_not_a_reason_to_refuse_another() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let proxy = proxy_for(std::slice::from_ref(&address));
        let status = |address: &str| {
            let target = Target::parse(address, 80).unwrap();
            proxy.connect(&target).map_or_else(|refusal| refusal.status, |_| "connected")
        };
        for number in 0..=MAX_HOSTS {
            assert_eq!(status(&format!("{number}.example")), "403 Forbidden");
        }
        assert_eq!(proxy.usage.lock().len(), MAX_HOSTS);
        assert_eq!(status(&address), "connected");
        let reached = HostUsage { connections: 1, ..HostUsage::default() };
        let others = (0..MAX_HOSTS).map(|number| (format!("{number}.reached"), reached.clone()));
        proxy.usage.lock().extend(others);
        // A host that was reached before is reached again.
        assert_eq!(status(&address), "connected");
        proxy.usage.lock().remove(&address);
        assert_eq!(status(&address), "503 Service Unavailable");
    }
}
