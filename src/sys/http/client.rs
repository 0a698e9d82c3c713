//! HTTP: one client for a run, built at its first use, with its deadlines, proxy and roots of trust.
//!
//! Connections are kept between requests. TLS and its certificates are touched by `https` alone.

use crate::error::{Exit, Stop, fail, fail_hint};
use crate::sys::address::{Range, is_public};
use crate::sys::env::{self, Env};
use crate::sys::hosts::Hosts;
use crate::sys::secret::Secret;
use crate::sys::signal::{self, Patience};
use crate::sys::terminal::later;
use crate::sys::web;
use anyhow::Context;
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType};
use std::collections::HashMap;
use std::io::{Error, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};
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
use url::Url;

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

/// The key of the config that lets addresses be reached that are not public.
pub const SPARED: &str = "tools.ssrfWhitelist";

/// How many redirects are followed, where any are.
const REDIRECTS: u32 = 5;

/// The longest head of an answer that is read from whom nobody vouches for.
const STRANGERS_HEAD: usize = IN;

/// What binds a client whose addresses a model or a page may have written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// Addresses that may be reached though they are not public: the user says so.
    pub spared: Vec<Range>,
    /// Ports of hosts that may be reached besides [`web::PORTS`].
    pub ports: Vec<(String, u16)>,
    /// Nothing beyond this machine.
    pub offline: bool,
}

/// Whom a client may reach.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Reach {
    Anyone,
    Loopback,
    /// The public internet, over TLS.
    Public {
        /// And this machine, in any way: for tests.
        or_loopback: bool,
    },
    /// The public internet, its usual ports and no names of machines nearby.
    Bounded(Bounds),
}

/// The client.
pub struct Http {
    timeouts: Timeouts,
    reach: Reach,
    /// When everything must have ended, as [`signal::now`] tells it.
    until: Option<Duration>,
    /// The environment's proxy is not used.
    direct: bool,
    user_agent: Option<String>,
    hosts: Hosts,
    /// The environment names certificates.
    own_certificates: bool,
    /// Instead of the one that the environment names.
    proxy: Option<Proxy>,
    agent: Arc<OnceLock<Agent>>,
}

/// Connections that outlast a client, for those that come after it and are like it.
#[derive(Clone, Default)]
pub struct Connections(Arc<Mutex<HashMap<String, Arc<OnceLock<Agent>>>>>);

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
        Self::reaching(Reach::Public { or_loopback }, timeouts, env).directly()
    }

    /// A client for addresses that a model or a page may have written. Each host is resolved once, all it resolves to is
    /// checked, and nothing else is connected to. The total of `timeouts` counts from now on for all that it is asked.
    /// Redirects are not followed: whoever asked decides about each. [`Http::get`] is the way to use it.
    pub fn bounded(timeouts: Timeouts, bounds: Bounds, hosts: &Hosts, env: &Env) -> Self {
        Self {
            until: Some(signal::now().saturating_add(timeouts.total)),
            hosts: hosts.clone(),
            ..Self::reaching(Reach::Bounded(bounds), timeouts, env).directly()
        }
    }

    /// Without the environment's proxy.
    pub fn directly(mut self) -> Self {
        self.direct = true;
        self
    }

    /// Under this name.
    pub fn named(mut self, user_agent: Option<String>) -> Self {
        self.user_agent = user_agent;
        self
    }

    fn reaching(reach: Reach, timeouts: Timeouts, env: &Env) -> Self {
        let own_certificates =
            env.get("SSL_CERT_FILE").is_some() || env.get("SSL_CERT_DIR").is_some();
        Self {
            timeouts,
            reach,
            until: None,
            direct: false,
            user_agent: None,
            hosts: Hosts::default(),
            own_certificates,
            proxy: None,
            agent: Arc::default(),
        }
    }

    /// Go through `proxy`, where there is one, whatever the environment says. `whose` names it in messages.
    ///
    /// # Errors
    /// Status 78 for what is no proxy's address.
    pub fn through(mut self, proxy: Option<&Secret>, whose: &str) -> anyhow::Result<Self> {
        if let Some(proxy) = proxy {
            // The address can hold a password, so it is not shown.
            let proxy = Proxy::new(proxy.expose());
            let proxy =
                proxy.map_err(|_| fail(Exit::Config, format!("{whose} is no proxy's address")))?;
            self.proxy = Some(proxy);
        }
        Ok(self)
    }

    /// Over the connections to `base` that clients like this one have left among `connections`.
    #[must_use]
    pub fn over(mut self, connections: &Connections, base: &str) -> Self {
        let proxy = self.proxy.as_ref().map(|proxy| proxy.uri().to_string());
        let likeness = format!("{base} {:?} {:?} {proxy:?}", self.timeouts, self.reach);
        let mut all = connections.0.lock().unwrap_or_else(PoisonError::into_inner);
        self.agent = Arc::clone(all.entry(likeness).or_default());
        drop(all);
        self
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

    /// What is at `url`, which [`web::read`] has read.
    ///
    /// # Errors
    /// As [`Http::send`].
    pub fn get(&self, url: &Url, headers: &[(String, String)]) -> anyhow::Result<Answer> {
        let uri = uri_of(url)
            .ok_or_else(|| fail(Exit::Refused, format!("`{url}` can be read in two ways")))?;
        self.exchange(&uri, headers, Method::Get)
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
        let method = match body {
            Some((kind, body)) => Method::Post(kind, body),
            None => Method::Get,
        };
        self.exchange(&parsed(url)?, headers, method)
    }

    /// Ask that what is at `url` be deleted.
    ///
    /// # Errors
    /// As [`Http::send`].
    pub fn delete(&self, url: &str, headers: &[(String, String)]) -> anyhow::Result<Answer> {
        self.exchange(&parsed(url)?, headers, Method::Delete)
    }

    fn exchange(
        &self,
        uri: &Uri,
        headers: &[(String, String)],
        method: Method<'_>,
    ) -> anyhow::Result<Answer> {
        let local = uri.host().is_some_and(is_loopback);
        if self.reach == Reach::Loopback && !local {
            let host = uri.host().unwrap_or_default();
            return Err(fail(
                Exit::Unavailable,
                format!("`--offline` forbids to reach `{host}`"),
            ));
        }
        // Only the proxy knows then what is reached; so what the name means here has to do.
        if self.proxy.is_some() && matches!(self.reach, Reach::Bounded(_)) {
            self.names().find(uri, true).map_err(|error| told(&error))?;
        }
        let agent = self.agent(uri.scheme_str() == Some("https"));
        let sent = match method {
            Method::Post(kind, body) => {
                let request = agent.post(uri).header("content-type", kind);
                prepared(request, headers, local).send(body)
            }
            Method::Get => prepared(agent.get(uri), headers, local).call(),
            Method::Delete => prepared(agent.delete(uri), headers, local).call(),
        };
        let response = sent.map_err(|error| told(&error))?;
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
            if self.direct || self.proxy.is_some() {
                config = config.proxy(self.proxy.clone());
            }
            if matches!(self.reach, Reach::Bounded(_)) {
                config = config.max_response_header_size(STRANGERS_HEAD);
            }
            let ours = concat!("nanobot/", env!("CARGO_PKG_VERSION"));
            let config = config
                .http_status_as_error(false)
                .max_redirects(if public { REDIRECTS } else { 0 })
                .max_redirects_will_error(public)
                .user_agent(self.user_agent.as_deref().unwrap_or(ours))
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
                    until: self.until,
                })
                .chain(ConnectProxyConnector::default())
                .chain(Lines {
                    timeouts: self.timeouts,
                    until: self.until,
                })
                .chain(RustlsConnector::default());
            Agent::with_parts(config, connector, self.names())
        })
    }

    fn names(&self) -> Names {
        Names {
            connect: self.timeouts.connect,
            until: self.until,
            reach: self.reach.clone(),
            proxy: self.proxy.as_ref().map(|proxy| proxy.uri().clone()),
            hosts: self.hosts.clone(),
        }
    }
}

/// What is asked of a server.
#[derive(Clone, Copy)]
enum Method<'b> {
    Get,
    /// A body of that media type.
    Post(&'b str, &'b [u8]),
    Delete,
}

fn parsed(url: &str) -> anyhow::Result<Uri> {
    url.parse()
        .map_err(|error| fail(Exit::Config, format!("`{url}` is no address: {error}")))
}

/// There was no connection, so nothing was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unconnected(String);

/// `url` as the client takes it; `None` where it would read another host or port there.
fn uri_of(url: &Url) -> Option<Uri> {
    let mut bare = url.clone();
    bare.set_fragment(None);
    let uri: Uri = bare.as_str().parse().ok()?;
    let same = uri.scheme_str() == Some(url.scheme())
        && uri.host() == url.host_str()
        && uri.port_u16() == url.port()
        && uri
            .authority()
            .is_some_and(|whole| !whole.as_str().contains('@'));
    same.then_some(uri)
}

/// Why an exchange failed.
fn told(error: &ureq::Error) -> anyhow::Error {
    match (signal::check(), forbidden(error)) {
        (Err(stop), _) => stop.into(),
        (Ok(()), Some(forbidden)) => forbidden.clone().told(),
        (Ok(()), None) if is_unconnected(error) => Unconnected(words(error)).into(),
        (Ok(()), None) => anyhow::Error::msg(words(error)),
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
#[derive(Clone, Debug, thiserror::Error)]
#[error("{words}")]
struct Forbidden {
    words: String,
    /// The flag, or the key of the config, that would let it be reached.
    grant: Option<String>,
}

impl Forbidden {
    fn told(self) -> anyhow::Error {
        let Self { words, grant } = self;
        match grant {
            Some(grant) => fail_hint(Exit::Refused, words, grant),
            None => fail(Exit::Refused, words),
        }
    }
}

impl From<Forbidden> for ureq::Error {
    fn from(forbidden: Forbidden) -> Self {
        Self::Other(Box::new(forbidden))
    }
}

/// Why an address may not be reached, where that is what `error` is about.
fn forbidden(error: &ureq::Error) -> Option<&Forbidden> {
    let ureq::Error::Other(inner) = error else {
        return None;
    };
    inner.downcast_ref()
}

impl Reach {
    /// Whether `uri` may be reached at `found`, which is what its host resolved to. A host with one address that is not
    /// public has none that is: somebody may have put it there.
    fn check(&self, uri: &Uri, found: &[SocketAddr]) -> Result<(), Forbidden> {
        let or_loopback = match self {
            Self::Anyone | Self::Loopback => return Ok(()),
            Self::Public { or_loopback } => *or_loopback,
            Self::Bounded(bounds) => return bounds.check(uri, found),
        };
        let host = uri.host().unwrap_or_default();
        let spared = |address: IpAddr| or_loopback && address.is_loopback();
        let mut found = found.iter().map(SocketAddr::ip);
        if let Some(address) = found.clone().find(|ip| !is_public(*ip) && !spared(*ip)) {
            let alone = bare(host).parse() == Ok(address);
            let words = match alone {
                true => format!("`{host}` is not a public address"),
                false => format!("`{host}` is at {address}, which is not a public address"),
            };
            return Err(Forbidden { words, grant: None });
        }
        match uri.scheme_str() == Some("https") || (or_loopback && found.all(spared)) {
            true => Ok(()),
            false => Err(Forbidden {
                words: format!("`{uri}` is not `https`"),
                grant: None,
            }),
        }
    }
}

impl Bounds {
    /// What can be said against `url` without the network: its port, its name, and its address where that is written out.
    ///
    /// # Errors
    /// As a request for it would fail.
    pub fn judge(&self, url: &Url) -> anyhow::Result<()> {
        let uri = uri_of(url).context("read the address")?;
        let address = bare(url.host_str().unwrap_or_default()).parse().ok();
        let found: Vec<SocketAddr> = address
            .map(|address: IpAddr| SocketAddr::new(address, port_of(&uri)))
            .into_iter()
            .collect();
        self.check(&uri, &found).map_err(Forbidden::told)
    }

    /// As [`Reach::check`]; without anything found it says what no answer would allow.
    fn check(&self, uri: &Uri, found: &[SocketAddr]) -> Result<(), Forbidden> {
        let Self {
            spared,
            ports,
            offline,
        } = self;
        let host = uri.host().unwrap_or_default();
        let is_spared = |at: &SocketAddr| spared.iter().any(|range| range.holds(at.ip()));
        let may_be_spared = match found.is_empty() {
            true => !spared.is_empty(),
            false => found.iter().all(is_spared),
        };
        let port = port_of(uri);
        let is_odd = !web::PORTS.contains(&port);
        let refuse = |words: String, grant: Option<String>| Err(Forbidden { words, grant });
        // A name leads where somebody else says: only addresses are granted.
        let by_range = || Some(SPARED.to_owned());
        if web::is_nearby(host) && !may_be_spared {
            let words = format!("`{host}` is a name for machines nearby");
            return refuse(words, by_range());
        }
        for at in found {
            let address = at.ip();
            if *offline && !address.is_loopback() {
                let words = format!("`--offline` forbids to reach `{host}`");
                return refuse(words, None);
            }
            if !is_public(address) && !is_spared(at) {
                return match bare(host).parse() == Ok(address) {
                    true => refuse(
                        format!("`{host}` is not a public address"),
                        Some(match is_odd {
                            true => format!("--net={host}:{port}"),
                            false => format!("--net={host}"),
                        }),
                    ),
                    false => refuse(
                        format!("`{host}` is at {address}, which is not a public address"),
                        by_range(),
                    ),
                };
            }
        }
        // One that is written out is judged as such; what is wrong with its port matters less.
        let waits = found.is_empty() && bare(host).parse::<IpAddr>().is_ok();
        let granted = |(name, granted): &(String, u16)| name == host && *granted == port;
        if !waits && is_odd && !ports.iter().any(granted) && !may_be_spared {
            let words = format!("port {port} of `{host}` is not one of the web");
            return refuse(words, Some(format!("--net={host}:{port}")));
        }
        Ok(())
    }
}

/// The port that `uri` means.
fn port_of(uri: &Uri) -> u16 {
    let default = match uri.scheme_str() {
        Some("https") => 443,
        _ => 80,
    };
    uri.port_u16().unwrap_or(default)
}

/// Finds addresses, and says which of them may not be reached: what it gives is what is connected to, for each redirect
/// anew. Those that are written out need no asking; the system is asked in a thread, since its answer cannot be waited
/// for together with a signal.
#[derive(Debug)]
struct Names {
    connect: Duration,
    until: Option<Duration>,
    reach: Reach,
    /// The proxy's own address, which the user chose.
    proxy: Option<Uri>,
    hosts: Hosts,
}

impl Resolver for Names {
    fn resolve(
        &self,
        uri: &Uri,
        _: &Config,
        _: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let is_proxy = self
            .proxy
            .as_ref()
            .is_some_and(|proxy| proxy.host() == uri.host() && proxy.port_u16() == uri.port_u16());
        self.find(uri, !is_proxy)
    }
}

impl Names {
    /// The addresses of `uri`; where it is `bound`, only if all of them may be reached.
    fn find(&self, uri: &Uri, bound: bool) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let check = |found: &[SocketAddr]| match bound {
            true => self.reach.check(uri, found),
            false => Ok(()),
        };
        // What no answer would allow is not asked for.
        check(&[])?;
        let host = uri.host().unwrap_or_default();
        let port = port_of(uri);
        let mut found = self.empty();
        if let Ok(address) = bare(host).parse::<IpAddr>() {
            found.push(SocketAddr::new(address, port));
            check(&found)?;
            return Ok(found);
        }
        match self.hosts.find(host) {
            Some(known) => known
                .into_iter()
                .take(16)
                .for_each(|address| found.push(SocketAddr::new(address, port))),
            None => self.ask(host, port, &mut found)?,
        }
        check(&found)?;
        match found.is_empty() {
            true => Err(ureq::Error::HostNotFound),
            false => Ok(found),
        }
    }

    /// Ask the system.
    fn ask(
        &self,
        host: &str,
        port: u16,
        found: &mut ResolvedSocketAddrs,
    ) -> Result<(), ureq::Error> {
        let (host, (bell, hammer)) = (host.to_owned(), UnixStream::pair()?);
        let (send, receive) = mpsc::sync_channel(1);
        std::thread::Builder::new().spawn(move || {
            // Whoever asked may have gone.
            drop(send.send((host.as_str(), port).to_socket_addrs()));
            drop(hammer);
        })?;
        let mut patience = Patience::unless_zero(self.connect).min(left(self.until));
        if !signal::readable(&bell, &mut patience).map_err(ended)? {
            return Err(ureq::Error::Timeout(ureq::Timeout::Resolve));
        }
        let addresses = receive.recv().map_err(|_| ureq::Error::HostNotFound)?;
        // With the system's own words: a name that does not exist is not a resolver that does not answer.
        let addresses = addresses?;
        // As many as the client's list holds.
        addresses.take(16).for_each(|address| found.push(address));
        Ok(())
    }
}

/// What is left of the time until `end`.
fn left(end: Option<Duration>) -> Patience {
    end.map_or_else(Patience::endless, Patience::until)
}

/// Makes connections that a signal can end, and that know what they wait for.
#[derive(Debug)]
struct Lines {
    timeouts: Timeouts,
    until: Option<Duration>,
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
        let mut patience = Patience::unless_zero(self.timeouts.connect).min(left(self.until));
        let config = &details.config;
        let buffers = LazyBuffers::new(config.input_buffer_size(), config.output_buffer_size());
        let way = Way::Direct(Wire {
            stream: dial(&details.addrs, &mut patience)?,
            buffers,
            held: Vec::new(),
        });
        Ok(Some(Either::B(Line::new(way, self.timeouts, self.until))))
    }
}

/// Makes a line of a connection that the client made by its own means.
#[derive(Debug)]
struct Detours {
    timeouts: Timeouts,
    until: Option<Duration>,
}

impl<In: Transport> Connector<In> for Detours {
    type Out = Line<In>;

    fn connect(
        &self,
        _: &ConnectionDetails<'_>,
        chained: Option<In>,
    ) -> Result<Option<Line<In>>, ureq::Error> {
        Ok(chained.map(|inner| Line::new(Way::Through(inner), self.timeouts, self.until)))
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
    /// When this exchange must have ended, and when every exchange must, as [`signal::now`] tells it.
    end: Option<Duration>,
    until: Option<Duration>,
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
    fn new(way: Way<In>, timeouts: Timeouts, until: Option<Duration>) -> Self {
        Self {
            way,
            timeouts,
            end: None,
            until,
            asked: false,
        }
    }

    /// A server that takes nothing any more is as silent as one that says nothing.
    fn patience_to_send(&self) -> Patience {
        Patience::unless_zero(self.timeouts.first_byte).min(self.left())
    }

    /// What is left of the time for the exchange.
    fn left(&self) -> Patience {
        left(self.end).min(left(self.until))
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
                    later::catch_up();
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

fn is_unconnected(error: &ureq::Error) -> bool {
    match error {
        ureq::Error::Timeout(ureq::Timeout::Connect | ureq::Timeout::Resolve)
        | ureq::Error::HostNotFound
        | ureq::Error::ConnectionFailed => true,
        ureq::Error::Io(error) => error.kind() == ErrorKind::ConnectionRefused,
        _ => false,
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
    use super::{Bounds, Names, Reach, bare, forbidden, is_exposed, is_local, is_loopback, uri_of};
    use crate::sys::address::is_public;
    use crate::sys::env::{Env, TEST_HOSTS};
    use crate::sys::hosts::Hosts;
    use crate::sys::web;
    use std::net::{IpAddr, SocketAddr};
    use std::time::Duration;
    use ureq::http::Uri;
    use url::Host;

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

    #[test]
    fn bounds() {
        let bounds = Bounds {
            spared: vec!["127.0.0.0/8".parse().unwrap()],
            ports: vec![("a.example".into(), 9000)],
            offline: false,
        };
        let check = |bounds: &Bounds, url: &str, found: &[&str], expect: Result<(), &str>| {
            let uri: Uri = url.parse().unwrap();
            let found: Vec<_> = found
                .iter()
                .map(|at| SocketAddr::new(at.parse().unwrap(), 1))
                .collect();
            let checked = bounds
                .check(&uri, &found)
                .map_err(|error| error.to_string());
            match (&checked, expect) {
                (Ok(()), Ok(())) => {}
                (Err(words), Err(word)) => assert!(words.contains(word), "{url}: {words}"),
                _ => panic!("{url} {found:?}: {checked:?}"),
            }
        };
        let plain = Bounds::default();
        check(&plain, "http://a.example/", &[], Ok(()));
        check(
            &plain,
            "https://a.example:8443/",
            &["1.1.1.1", "2606:4700::1"],
            Ok(()),
        );
        check(
            &plain,
            "http://a.example/",
            &["1.1.1.1", "10.0.0.1"],
            Err("is at 10.0.0.1"),
        );
        check(
            &plain,
            "http://10.0.0.1/",
            &["10.0.0.1"],
            Err("`10.0.0.1` is not a public"),
        );
        check(&plain, "http://a.example:9000/", &[], Err("port 9000"));
        check(&plain, "http://a.example:22/", &[], Err("port 22"));
        check(&plain, "http://localhost/", &[], Err("machines nearby"));
        check(
            &plain,
            "http://x.internal/",
            &["1.1.1.1"],
            Err("machines nearby"),
        );
        check(&bounds, "http://a.example:9000/", &["1.1.1.1"], Ok(()));
        check(
            &bounds,
            "http://b.example:9000/",
            &["1.1.1.1"],
            Err("port 9000"),
        );
        check(&bounds, "http://b.example:9000/", &["127.0.0.1"], Ok(()));
        check(
            &bounds,
            "http://b.example/",
            &["127.0.0.1", "10.0.0.1"],
            Err("10.0.0.1"),
        );
        check(&bounds, "http://localhost:9000/", &["127.0.0.1"], Ok(()));
        check(
            &bounds,
            "http://x.local/",
            &["127.0.0.1", "1.1.1.1"],
            Err("machines nearby"),
        );
        let offline = Bounds {
            offline: true,
            ..bounds
        };
        check(
            &offline,
            "http://a.example/",
            &["1.1.1.1"],
            Err("--offline"),
        );
        check(&offline, "http://a.example/", &["127.0.0.1"], Ok(()));
    }

    /// Names that resolve to `addresses`, whatever they are.
    fn names(addresses: &str) -> Names {
        let env: Env = [(TEST_HOSTS, format!("*={addresses}"))]
            .into_iter()
            .collect();
        Names {
            connect: Duration::from_secs(1),
            until: None,
            reach: Reach::Bounded(Bounds::default()),
            proxy: None,
            hosts: Hosts::of(&env),
        }
    }

    #[test]
    fn a_name_is_asked_for_each_time_and_checked_each_time() {
        let names = names("1.1.1.1|127.0.0.1");
        let uri: Uri = "http://a.example/".parse().unwrap();
        let first = names.find(&uri, true).unwrap();
        assert_eq!(first[..], ["1.1.1.1:80".parse().unwrap()]);
        for _ in 0..1_000 {
            let error = names.find(&uri, true).unwrap_err();
            assert!(forbidden(&error).unwrap().words.contains("127.0.0.1"));
        }
    }

    #[test]
    fn fuzz_what_is_checked_is_what_is_connected_to() {
        let seeds: &[&[u8]] = &[
            b"https://example.org/a?b=c#d",
            b"http://user:pass@127.0.0.1:8080/x",
            b"http://2130706433/",
            b"http://0x7f.0.0.1:80/",
            b"http://0177.1/",
            b"http://[::ffff:127.0.0.1]:8443/",
            b"http://[64:ff9b::10.0.0.1]/",
            b"http://[fe80::1%25eth0]/",
            b"http://1.1.1.1.nip.example/",
            "http://\u{ff11}\u{ff12}\u{ff17}\u{3002}0.0.1/".as_bytes(),
            "https://b\u{fc}cher.example:443/\u{e4}?\u{f6}".as_bytes(),
            b"http://evil%00.example.org\\@10.0.0.1:22//..%2f",
            b"http://a.example./#@b.example/",
            b"http://xn--bcher-kva.example/`{|}^\"<>",
        ];
        const ANSWERS: &[&str] = &[
            "1.1.1.1",
            "1.1.1.1,2606:4700::1111",
            "8.8.8.8,10.0.0.1",
            "127.0.0.1",
            "::1",
            "::ffff:1.1.1.1",
            "64:ff9b::a9fe:a9fe",
            "2606:4700::5efe:127.0.0.1",
        ];
        let (mut read, mut approved, mut refused) = (0, 0, 0);
        crate::fuzz::hold(seeds, |input, random| {
            let text = crate::fuzz::text(input);
            let Ok(url) = web::read(&text) else { return };
            assert!(
                !url.as_str().contains(['\r', '\n', '\0', ' ', '\\']),
                "{url}"
            );
            let again = web::read(url.as_str()).expect("what was read can be read again");
            assert_eq!(again, url);
            let Some(uri) = uri_of(&url) else { return };
            // What is sent as the name of the host, and what is resolved, is what was checked.
            assert_eq!(uri.host(), url.host_str());
            let host = uri.host().expect("a web address has one");
            match url.host() {
                Some(Host::Ipv4(address)) => {
                    assert_eq!(bare(host).parse(), Ok(IpAddr::V4(address)));
                }
                Some(Host::Ipv6(address)) => {
                    assert_eq!(bare(host).parse(), Ok(IpAddr::V6(address)));
                }
                // No resolver may take it for a number.
                Some(Host::Domain(name)) => {
                    let last = name.rsplit('.').next().unwrap_or_default();
                    let number = last.bytes().all(|byte| byte.is_ascii_digit())
                        || last
                            .strip_prefix("0x")
                            .is_some_and(|hex| u64::from_str_radix(hex, 16).is_ok());
                    assert!(!number && host.parse::<IpAddr>().is_err(), "{host}");
                }
                None => panic!("{url} has no host"),
            }
            read += 1;
            let answer = ANSWERS[random.below(ANSWERS.len())];
            let Ok(found) = names(answer).find(&uri, true) else {
                refused += 1;
                return;
            };
            approved += 1;
            for at in found.iter() {
                assert!(is_public(at.ip()), "{url} leads to {at}");
                assert_eq!(Some(at.port()), url.port_or_known_default());
                assert!(web::PORTS.contains(&at.port()));
            }
        });
        // Otherwise nothing was tried.
        assert!(approved > 0 && refused > 0, "{read} {approved} {refused}");
    }
}
