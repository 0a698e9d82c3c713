//! HTTP: one client for a run, built at its first use, with its deadlines, proxy and roots of trust.
//!
//! Connections are kept between requests. TLS and its certificates are touched by `https` alone.

use crate::error::{Exit, Stop, fail};
use crate::sys::address::is_public;
use crate::sys::env::{self, Env};
use crate::sys::secret::Secret;
use crate::sys::signal::{self, Patience};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType};
use std::io::{Error, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::sync::{OnceLock, mpsc};
use std::time::Duration;
use ureq::config::Config;
use ureq::http::{HeaderMap, Uri};
use ureq::tls::{RootCerts, TlsConfig};
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{
    Buffers, ConnectProxyConnector, ConnectionDetails, Connector, Either, LazyBuffers, NextTimeout,
    RustlsConnector, SocksConnector, Transport,
};
use ureq::{Agent, Proxy, RequestBuilder, ResponseExt};

/// How long to wait. A zero waits for ever.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// For the connection, TLS included.
    pub connect: Duration,
    /// From the request to the first byte of the answer: a model may think for minutes.
    pub first_byte: Duration,
    /// From then on, between two bytes: a slow stream lives, a silent one ends.
    pub idle: Duration,
    /// For the whole exchange.
    pub total: Duration,
}

/// Bytes that are read and written at once. A head must fit; a stream comes in pieces of a few hundred.
const IN: usize = 32 << 10;
const OUT: usize = 16 << 10;

/// How long an idle connection is kept: a slow tool call should not cost a new handshake.
const KEEP_IDLE: Duration = Duration::from_secs(90);

/// Where systems keep their certificates; without any of them the compiled-in ones are used.
const BUNDLES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
    "/etc/ssl/certs",
];

/// How many redirects are followed, where any are.
const REDIRECTS: u32 = 5;

/// Whom a client may reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    Anyone,
    Loopback,
    /// The public internet, over TLS.
    Public {
        /// And this machine, in any way: for tests.
        or_loopback: bool,
    },
}

/// The client.
pub struct Http {
    timeouts: Timeouts,
    reach: Reach,
    /// The environment names certificates.
    own_certificates: bool,
    /// Instead of the one that the environment names.
    proxy: Option<Proxy>,
    agent: OnceLock<Agent>,
}

/// What came back: status and headers, and a body that is still to be read.
pub struct Answer {
    pub status: u16,
    /// Where it came from, at the end of all redirects.
    pub url: String,
    headers: HeaderMap,
    pub body: Box<dyn Read + Send>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

impl Http {
    pub fn new(timeouts: Timeouts, offline: bool, env: &Env) -> Self {
        let reach = match offline {
            true => Reach::Loopback,
            false => Reach::Anyone,
        };
        Self::reaching(reach, timeouts, env)
    }

    /// A client for addresses that may stand in anything: it reaches public ones only, over TLS, and follows redirects
    /// there. No proxy is used, since only a proxy would know then what is reached.
    pub fn public_only(timeouts: Timeouts, env: &Env) -> Self {
        let or_loopback = env.get(env::TEST_FETCH) == Some("loopback");
        Self::reaching(Reach::Public { or_loopback }, timeouts, env)
    }

    fn reaching(reach: Reach, timeouts: Timeouts, env: &Env) -> Self {
        let own_certificates =
            env.get("SSL_CERT_FILE").is_some() || env.get("SSL_CERT_DIR").is_some();
        Self {
            timeouts,
            reach,
            own_certificates,
            proxy: None,
            agent: OnceLock::new(),
        }
    }

    /// Go through `proxy`, where there is one, whatever the environment says.
    ///
    /// # Errors
    /// Status 78 for what is no proxy's address.
    pub fn through(mut self, proxy: Option<&Secret>) -> anyhow::Result<Self> {
        if let Some(proxy) = proxy {
            // The address can hold a password, so it is not shown.
            let proxy = Proxy::new(proxy.expose());
            let proxy = proxy
                .map_err(|_| fail(Exit::Config, "the provider's `proxy` is no proxy's address"))?;
            self.proxy = Some(proxy);
        }
        Ok(self)
    }

    /// Send `body` as JSON; see [`Http::send`].
    pub fn post_json(
        &self,
        url: &str,
        headers: &[(String, String)],
        body: &[u8],
    ) -> anyhow::Result<Answer> {
        self.send(url, headers, Some(("application/json", body)))
    }

    /// Post a body of some media type, or get what is at `url` where there is none. Any status comes back as an answer;
    /// redirects are not followed, since a key must not be, but by a client that has none: [`Http::public_only`].
    ///
    /// # Errors
    /// In words for a person: no connection, a time-out, a broken transfer; status 78 for an address that is none, 77 for
    /// one that this client may not reach, 69 with `--offline`. A [`Stop`] when the run is to end.
    pub fn send(
        &self,
        url: &str,
        headers: &[(String, String)],
        body: Option<(&str, &[u8])>,
    ) -> anyhow::Result<Answer> {
        let uri: Uri = url
            .parse()
            .map_err(|error| fail(Exit::Config, format!("`{url}` is no address: {error}")))?;
        let local = uri.host().is_some_and(is_loopback);
        if self.reach == Reach::Loopback && !local {
            let host = uri.host().unwrap_or(url);
            return Err(fail(
                Exit::Unavailable,
                format!("`--offline` forbids to reach `{host}`"),
            ));
        }
        let agent = self.agent(uri.scheme_str() == Some("https"));
        let sent = match body {
            Some((kind, body)) => {
                let request = agent.post(url).header("content-type", kind);
                prepared(request, headers, local).send(body)
            }
            None => prepared(agent.get(url), headers, local).call(),
        };
        let response = sent.map_err(|error| match (signal::check(), forbidden(&error)) {
            (Err(stop), _) => stop.into(),
            (Ok(()), Some(words)) => fail(Exit::Refused, words),
            (Ok(()), None) => anyhow::Error::msg(words(&error)),
        })?;
        let url = response.get_uri().to_string();
        let (head, body) = response.into_parts();
        let body = body.into_with_config().limit(u64::MAX).reader();
        Ok(Answer {
            status: head.status.as_u16(),
            url,
            headers: head.headers,
            body: Box::new(body),
        })
    }

    /// `tls` whether certificates will be needed.
    fn agent(&self, tls: bool) -> &Agent {
        self.agent.get_or_init(|| {
            let limit = |duration: Duration| (!duration.is_zero()).then_some(duration);
            let exists = |path: &&str| std::path::Path::new(path).exists();
            let found = self.own_certificates || (tls && BUNDLES.iter().any(exists));
            let roots = if found {
                RootCerts::PlatformVerifier
            } else {
                RootCerts::WebPki
            };
            let public = matches!(self.reach, Reach::Public { .. });
            let mut config = Agent::config_builder();
            if public || self.proxy.is_some() {
                config = config.proxy(self.proxy.clone());
            }
            let config = config
                .http_status_as_error(false)
                .max_redirects(if public { REDIRECTS } else { 0 })
                .max_redirects_will_error(public)
                .user_agent(concat!("nanobot/", env!("CARGO_PKG_VERSION")))
                .max_idle_age(KEEP_IDLE)
                .input_buffer_size(IN)
                .output_buffer_size(OUT)
                // For what the client does itself: a proxy, the handshake. All else is timed by `Line`, which knows
                // when the process was stopped.
                .timeout_connect(limit(self.timeouts.connect))
                .tls_config(TlsConfig::builder().root_certs(roots).build())
                .build();
            let connector = ()
                .chain(SocksConnector::default())
                .chain(Detours {
                    timeouts: self.timeouts,
                })
                .chain(ConnectProxyConnector::default())
                .chain(Lines {
                    timeouts: self.timeouts,
                })
                .chain(RustlsConnector::default());
            let names = Names {
                connect: self.timeouts.connect,
                reach: self.reach,
            };
            Agent::with_parts(config, connector, names)
        })
    }
}

/// `request` with its headers; nothing on this machine is reached through a proxy.
fn prepared<Body>(
    mut request: RequestBuilder<Body>,
    headers: &[(String, String)],
    local: bool,
) -> RequestBuilder<Body> {
    for (name, value) in headers {
        request = request.header(name, value);
    }
    if local {
        request = request.config().proxy(None).build();
    }
    request
}

/// An address that the client may not reach, in words.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Forbidden(String);

impl From<Forbidden> for ureq::Error {
    fn from(forbidden: Forbidden) -> Self {
        Self::Other(Box::new(forbidden))
    }
}

/// Why an address may not be reached, where that is what `error` is about.
fn forbidden(error: &ureq::Error) -> Option<String> {
    let ureq::Error::Other(inner) = error else {
        return None;
    };
    Some(inner.downcast_ref::<Forbidden>()?.to_string())
}

impl Reach {
    /// Whether `uri` may be reached at `found`, which is what its host resolved to. A host with one address that is not
    /// public has none that is: somebody may have put it there.
    fn check(self, uri: &Uri, found: &[SocketAddr]) -> Result<(), Forbidden> {
        let Self::Public { or_loopback } = self else {
            return Ok(());
        };
        let host = uri.host().unwrap_or_default();
        let spared = |address: IpAddr| or_loopback && address.is_loopback();
        let mut found = found.iter().map(SocketAddr::ip);
        if let Some(address) = found.clone().find(|ip| !is_public(*ip) && !spared(*ip)) {
            let alone = bare(host).parse() == Ok(address);
            return Err(Forbidden(match alone {
                true => format!("`{host}` is not a public address"),
                false => format!("`{host}` is at {address}, which is not a public address"),
            }));
        }
        match uri.scheme_str() == Some("https") || (or_loopback && found.all(spared)) {
            true => Ok(()),
            false => Err(Forbidden(format!("`{uri}` is not `https`"))),
        }
    }
}

/// Finds addresses, and says which of them may not be reached: what it gives is what is connected to, for each redirect
/// anew. Those that are written out need no asking; the system is asked in a thread, since its answer cannot be waited
/// for together with a signal.
#[derive(Debug)]
struct Names {
    connect: Duration,
    reach: Reach,
}

impl Resolver for Names {
    fn resolve(
        &self,
        uri: &Uri,
        _: &Config,
        _: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        // What no answer would allow is not asked for.
        self.reach.check(uri, &[])?;
        let host = uri.host().unwrap_or_default();
        let default = if uri.scheme_str() == Some("https") {
            443
        } else {
            80
        };
        let port = uri.port_u16().unwrap_or(default);
        let mut found = self.empty();
        if let Ok(address) = bare(host).parse::<IpAddr>() {
            found.push(SocketAddr::new(address, port));
            self.reach.check(uri, &found)?;
            return Ok(found);
        }
        let (host, (bell, hammer)) = (host.to_owned(), UnixStream::pair()?);
        let (send, receive) = mpsc::sync_channel(1);
        std::thread::Builder::new().spawn(move || {
            // Whoever asked may have gone.
            drop(send.send((host.as_str(), port).to_socket_addrs()));
            drop(hammer);
        })?;
        if !signal::readable(&bell, &mut Patience::unless_zero(self.connect)).map_err(ended)? {
            return Err(ureq::Error::Timeout(ureq::Timeout::Resolve));
        }
        let addresses = receive.recv().map_err(|_| ureq::Error::HostNotFound)?;
        // With the system's own words: a name that does not exist is not a resolver that does not answer.
        let addresses = addresses?;
        // As many as the client's list holds.
        addresses.take(16).for_each(|address| found.push(address));
        self.reach.check(uri, &found)?;
        match found.is_empty() {
            true => Err(ureq::Error::HostNotFound),
            false => Ok(found),
        }
    }
}

/// Makes connections that a signal can end, and that know what they wait for.
#[derive(Debug)]
struct Lines {
    timeouts: Timeouts,
}

impl<In: Transport> Connector<In> for Lines {
    type Out = Either<In, Line<In>>;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        chained: Option<In>,
    ) -> Result<Option<Self::Out>, ureq::Error> {
        // Through a proxy, and so already over a line of ours.
        if let Some(inner) = chained {
            return Ok(Some(Either::A(inner)));
        }
        let mut patience = Patience::unless_zero(self.timeouts.connect);
        let config = &details.config;
        let buffers = LazyBuffers::new(config.input_buffer_size(), config.output_buffer_size());
        let way = Way::Direct(Wire {
            stream: dial(&details.addrs, &mut patience)?,
            buffers,
            held: Vec::new(),
        });
        Ok(Some(Either::B(Line::new(way, self.timeouts))))
    }
}

/// Makes a line of a connection that the client made by its own means.
#[derive(Debug)]
struct Detours {
    timeouts: Timeouts,
}

impl<In: Transport> Connector<In> for Detours {
    type Out = Line<In>;

    fn connect(
        &self,
        _: &ConnectionDetails<'_>,
        chained: Option<In>,
    ) -> Result<Option<Line<In>>, ureq::Error> {
        Ok(chained.map(|inner| Line::new(Way::Through(inner), self.timeouts)))
    }
}

/// Connect to the first of `addresses` that answers.
fn dial(addresses: &[SocketAddr], patience: &mut Patience) -> Result<TcpStream, ureq::Error> {
    let mut last = ureq::Error::ConnectionFailed;
    for (number, address) in addresses.iter().enumerate() {
        // An address that is silent must leave time for those that are not.
        let rest = u32::try_from(addresses.len() - number).unwrap_or(1);
        let share = patience.share(rest);
        let mut left = share;
        match dial_one(*address, &mut left) {
            Ok(stream) => return Ok(stream),
            Err(error) if signal::check().is_err() => return Err(error),
            Err(error) => last = error,
        }
        patience.spend(share.used(left));
    }
    Err(last)
}

fn dial_one(address: SocketAddr, patience: &mut Patience) -> Result<TcpStream, ureq::Error> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let socket = net::socket_with(family, SocketType::STREAM, flags, None).map_err(Error::from)?;
    match net::connect(&socket, &address) {
        Ok(()) => {}
        Err(Errno::INPROGRESS | Errno::INTR) => {
            if !signal::writable(&socket, patience).map_err(ended)? {
                return Err(ureq::Error::Timeout(ureq::Timeout::Connect));
            }
            let outcome = net::sockopt::socket_error(&socket).map_err(Error::from)?;
            outcome.map_err(Error::from)?;
        }
        Err(error) => return Err(Error::from(error).into()),
    }
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// The run is to end. What the client makes of it does not matter: whoever called it asks [`signal::check`].
fn ended(stop: Stop) -> ureq::Error {
    ureq::Error::Io(Error::other(stop))
}

/// A connection.
#[derive(Debug)]
struct Line<In> {
    way: Way<In>,
    timeouts: Timeouts,
    /// When the exchange must have ended, as [`signal::now`] tells it.
    end: Option<Duration>,
    /// A request went out, and nothing has come back yet.
    asked: bool,
}

#[derive(Debug)]
enum Way<In> {
    Direct(Wire),
    /// Through a SOCKS proxy, by the client's own means.
    Through(In),
}

/// A socket of ours.
#[derive(Debug)]
struct Wire {
    stream: TcpStream,
    buffers: LazyBuffers,
    /// Sent when there is much of it, or when an answer is waited for: the client gives head and body apart, and a
    /// server should wake once for both.
    held: Vec<u8>,
}

/// What is held at most before it is sent.
const HELD: usize = 64 << 10;

impl Wire {
    /// Send what is held.
    fn flush(&mut self, patience: &mut Patience) -> Result<(), ureq::Error> {
        let mut rest = self.held.as_slice();
        while !rest.is_empty() {
            match self.stream.write(rest) {
                Ok(count) => rest = &rest[count..],
                Err(error) if not_now(&error) => {
                    if !signal::writable(&self.stream, patience).map_err(ended)? {
                        return Err(ureq::Error::Timeout(ureq::Timeout::SendBody));
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.held.clear();
        Ok(())
    }
}

impl<In> Line<In> {
    fn new(way: Way<In>, timeouts: Timeouts) -> Self {
        Self {
            way,
            timeouts,
            end: None,
            asked: false,
        }
    }

    /// A server that takes nothing any more is as silent as one that says nothing.
    fn patience_to_send(&self) -> Patience {
        Patience::unless_zero(self.timeouts.first_byte).min(self.left())
    }

    /// What is left of the time for the exchange.
    fn left(&self) -> Patience {
        self.end.map_or_else(Patience::endless, Patience::until)
    }
}

impl<In: Transport> Way<In> {
    /// Read once: whether anything came before the end; `None` when `patience` is over.
    fn read(
        &mut self,
        mut timeout: NextTimeout,
        patience: &mut Patience,
    ) -> Result<Option<bool>, ureq::Error> {
        loop {
            match self {
                Self::Direct(wire) => {
                    if !signal::readable(&wire.stream, patience).map_err(ended)? {
                        return Ok(None);
                    }
                    match wire.stream.read(wire.buffers.input_append_buf()) {
                        Ok(count) => {
                            wire.buffers.input_appended(count);
                            return Ok(Some(count > 0));
                        }
                        Err(error) if not_now(&error) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                Self::Through(inner) => {
                    signal::check().map_err(ended)?;
                    timeout.per_read = Some(STEP.into());
                    match inner.await_input(timeout) {
                        Err(ureq::Error::Timeout(ureq::Timeout::PerRead)) => {
                            patience.spend(STEP);
                            if patience.is_over() {
                                return Ok(None);
                            }
                        }
                        other => return other.map(Some),
                    }
                }
            }
        }
    }
}

fn not_now(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// How long the client's own transports wait at once: a signal is seen between two such waits.
const STEP: Duration = Duration::from_millis(250);

impl<In: Transport> Transport for Line<In> {
    fn buffers(&mut self) -> &mut dyn Buffers {
        match &mut self.way {
            Way::Direct(wire) => &mut wire.buffers,
            Way::Through(inner) => inner.buffers(),
        }
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), ureq::Error> {
        signal::check().map_err(ended)?;
        if !std::mem::replace(&mut self.asked, true) {
            let total = Some(self.timeouts.total).filter(|total| !total.is_zero());
            self.end = total.map(|total| signal::now().saturating_add(total));
        }
        let mut patience = self.patience_to_send();
        match &mut self.way {
            Way::Through(inner) => inner.transmit_output(amount, timeout),
            Way::Direct(wire) => {
                wire.held
                    .extend_from_slice(&wire.buffers.output()[..amount]);
                match wire.held.len() < HELD {
                    true => Ok(()),
                    false => wire.flush(&mut patience),
                }
            }
        }
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, ureq::Error> {
        let (limit, reason) = match (timeout.reason, self.asked) {
            // A proxy's word or the handshake: what the client itself has left for it.
            (ureq::Timeout::Connect, _) => {
                let left = timeout.not_zero().map(|left| Patience::of(*left));
                (left.unwrap_or_else(Patience::endless), timeout.reason)
            }
            (_, true) => (
                Patience::unless_zero(self.timeouts.first_byte),
                ureq::Timeout::RecvResponse,
            ),
            (_, false) => (
                Patience::unless_zero(self.timeouts.idle),
                ureq::Timeout::PerRead,
            ),
        };
        let mut to_send = self.patience_to_send();
        if let (true, Way::Direct(wire)) = (self.asked, &mut self.way) {
            wire.flush(&mut to_send)?;
            // A server that sends head and body apart waits for our word that the head has come; the system would keep
            // that back for 40 ms, in the hope of something to send it with. Where this is not to be had, it is slower.
            let _: Result<_, _> = net::sockopt::set_tcp_quickack(&wire.stream, true);
        }
        let more = self.way.read(timeout, &mut limit.min(self.left()))?;
        match more {
            None if self.left().is_over() => Err(ureq::Error::Timeout(ureq::Timeout::Global)),
            None => Err(ureq::Error::Timeout(reason)),
            Some(more) => {
                self.asked = false;
                Ok(more)
            }
        }
    }

    fn is_open(&mut self) -> bool {
        match &mut self.way {
            // Nothing was asked, so there must be nothing to read, not even the end.
            Way::Direct(wire) => {
                matches!(wire.stream.peek(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
            }
            Way::Through(inner) => inner.is_open(),
        }
    }

    fn is_tls(&self) -> bool {
        match &self.way {
            Way::Direct(..) => false,
            Way::Through(inner) => inner.is_tls(),
        }
    }
}

/// Whether something accepts connections on this port of this machine.
pub fn listens(port: u16) -> bool {
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], port));
    std::net::TcpStream::connect_timeout(&address, Duration::from_millis(100)).is_ok()
}

/// Whether `host` is this machine.
pub fn is_loopback(host: &str) -> bool {
    host == "localhost"
        || bare(host)
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

/// An address without the brackets that it has in a URL.
fn bare(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}

/// Whether `url` carries what it carries in the clear to another machine.
pub fn is_exposed(url: &str) -> bool {
    url.parse::<Uri>()
        .is_ok_and(|uri| uri.scheme_str() == Some("http") && !uri.host().is_some_and(is_loopback))
}

/// Whether `url` reaches this machine, in the clear, and no other.
pub fn is_local(url: &str) -> bool {
    url.parse::<Uri>()
        .is_ok_and(|uri| uri.scheme_str() == Some("http") && uri.host().is_some_and(is_loopback))
}

/// An error while a body is read, in words.
pub fn read_failure(error: &std::io::Error) -> String {
    match error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<ureq::Error>())
    {
        Some(error) => words(error),
        None if error.kind() == std::io::ErrorKind::UnexpectedEof => "the connection broke".into(),
        None => error.to_string(),
    }
}

fn words(error: &ureq::Error) -> String {
    match error {
        ureq::Error::Timeout(ureq::Timeout::PerRead) => "the server fell silent".into(),
        ureq::Error::Timeout(ureq::Timeout::Connect | ureq::Timeout::Resolve) => {
            "no connection in time".into()
        }
        ureq::Error::Timeout(ureq::Timeout::RecvResponse) => {
            "the server did not begin to answer in time".into()
        }
        ureq::Error::Timeout(_) => "the exchange took too long".into(),
        ureq::Error::HostNotFound => "the host is not known".into(),
        ureq::Error::ConnectionFailed => "no connection".into(),
        ureq::Error::TooManyRedirects => format!("it leads on more than {REDIRECTS} times"),
        ureq::Error::Io(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
            "nothing listens at that address".into()
        }
        ureq::Error::Io(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            "the connection broke".into()
        }
        other => other.to_string(),
    }
}

/// An address as it may be shown: without a password in it, or keys behind it.
pub fn shown(base: &str) -> String {
    let (base, query) = match base.split_once('?') {
        Some((base, _)) => (base, "?***"),
        None => (base, ""),
    };
    let (scheme, rest) = base.split_once("://").unwrap_or(("", base));
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    match host.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}://***@{host}{path}{query}"),
        None => format!("{base}{query}"),
    }
}

/// `text` as a part of a query.
pub fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                escaped.push(char::from(byte));
            }
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::{Reach, is_exposed, is_local, is_loopback};
    use std::net::SocketAddr;
    use ureq::http::Uri;

    #[test]
    fn loopback_in_its_spellings() {
        for host in ["localhost", "127.0.0.1", "127.9.9.9", "::1", "[::1]"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in [
            "localhost.evil",
            "128.0.0.1",
            "0.0.0.0",
            "10.0.0.1",
            "example.org",
            "",
        ] {
            assert!(!is_loopback(host), "{host}");
        }
        assert!(is_exposed("http://10.0.0.1/v1") && is_exposed("http://example.org/v1"));
        assert!(!is_exposed("http://localhost:11434/v1") && !is_exposed("https://example.org/v1"));
        assert!(is_local("http://127.0.0.1:8000") && is_local("http://[::1]:1/x"));
        assert!(!is_local("http://127.0.0.1@example.org/") && !is_local("https://localhost/"));
    }

    #[test]
    fn a_host_is_what_it_resolves_to() {
        let check = |url: &str, found: &[&str], or_loopback: bool, expect: bool| {
            let uri: Uri = url.parse().unwrap();
            let found: Vec<_> = found
                .iter()
                .map(|at| SocketAddr::new(at.parse().unwrap(), 1))
                .collect();
            let checked = Reach::Public { or_loopback }.check(&uri, &found);
            assert_eq!(checked.is_ok(), expect, "{url} {found:?}");
            assert!(Reach::Anyone.check(&uri, &found).is_ok());
        };
        check("https://a/", &[], false, true);
        check("https://a/", &["1.1.1.1", "2606:4700::1"], false, true);
        check("https://a/", &["1.1.1.1", "10.0.0.1"], false, false);
        check("https://a/", &["1.1.1.1", "::ffff:1.1.1.1"], false, false);
        check("https://a/", &["127.0.0.1"], false, false);
        check("http://a/", &[], false, false);
        check("http://a/", &["1.1.1.1"], false, false);
        check("ftp://a/", &["1.1.1.1"], false, false);
        check("http://a/", &["127.0.0.1", "::1"], true, true);
        check("http://a/", &["127.0.0.1", "1.1.1.1"], true, false);
        check("https://a/", &["10.0.0.1"], true, false);
    }
}
