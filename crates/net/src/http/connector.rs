//! Opens connections that a signal can interrupt.

use super::error::{ConnectError, from_stop, from_ureq};
use super::resolver::PolicyResolver;
use super::ssrf::{AddressPolicy, SsrfFilter};
use super::timeouts::{ExchangeLimits, HttpTimeouts};
use super::transport::{Peer, Route, SignalTransport, Socket};
use crate::test_dns::TestHosts;
use crate::web_url::port_or_default;
use anyhow::Context;
use nanobot_os::signal::{self, Deadline};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use ureq::http::Uri;
use ureq::unversioned::transport::{ConnectionDetails, Connector, Either, Transport};

/// Opens a TCP connection, unless an earlier connector has made one.
#[derive(Debug)]
pub(super) struct SignalConnector(pub(super) ExchangeLimits);

impl<In: Transport> Connector<In> for SignalConnector {
    type Out = Either<In, SignalTransport<In>>;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        chained: Option<In>,
    ) -> Result<Option<Self::Out>, ureq::Error> {
        // A proxy connection already uses a transport of this module.
        if let Some(inner) = chained {
            return Ok(Some(Either::A(inner)));
        }
        let stream = dial(&details.addrs, &mut self.0.connect_deadline())?;
        let uri = details.uri;
        let server = format!("{}:{}", uri.host().unwrap_or_default(), port_or_default(uri));
        let route =
            Route::Direct(Socket::new(stream, Peer { server, expects_tls: details.needs_tls() }));
        Ok(Some(Either::B(SignalTransport::new(route, self.0))))
    }
}

/// Wraps a connection to a SOCKS proxy, which `ureq` opens itself.
#[derive(Debug)]
pub(super) struct ProxyConnector(pub(super) ExchangeLimits);

impl<In: Transport> Connector<In> for ProxyConnector {
    type Out = SignalTransport<In>;

    fn connect(
        &self,
        _: &ConnectionDetails<'_>,
        chained: Option<In>,
    ) -> Result<Option<SignalTransport<In>>, ureq::Error> {
        Ok(chained.map(|inner| SignalTransport::new(Route::Proxied(inner), self.0)))
    }
}

/// Connects to the first of `addresses` that accepts.
fn dial(addresses: &[SocketAddr], deadline: &mut Deadline) -> Result<TcpStream, ureq::Error> {
    let mut last_error = ureq::Error::ConnectionFailed;
    for (number, address) in addresses.iter().enumerate() {
        // An address that does not respond must leave time for the others.
        let rest = u32::try_from(addresses.len() - number).unwrap_or(1);
        let share = deadline.share(rest);
        let mut left = share;
        match dial_one(*address, &mut left) {
            Ok(stream) => return Ok(stream),
            Err(error) if signal::check().is_err() => return Err(error),
            Err(error) => last_error = error,
        }
        deadline.subtract(share.time_used(left));
    }
    Err(last_error)
}

fn dial_one(address: SocketAddr, deadline: &mut Deadline) -> Result<TcpStream, ureq::Error> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let to_error = |errno: Errno| ConnectError::new(&errno.into());
    let socket = net::socket_with(family, SocketType::STREAM, flags, None).map_err(to_error)?;
    match net::connect(&socket, &address) {
        Ok(()) => {}
        Err(Errno::INPROGRESS | Errno::INTR) => {
            if !signal::wait_writable(&socket, deadline).map_err(from_stop)? {
                return Err(ureq::Error::Timeout(ureq::Timeout::Connect));
            }
            net::sockopt::socket_error(&socket).map_err(to_error)?.map_err(to_error)?;
        }
        Err(errno) => return Err(to_error(errno).into()),
    }
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Connects to `port` of `host`, at one of its addresses. `filter` must allow all of them.
///
/// # Errors
/// Status 77 if the filter refuses an address. The host is unknown, or the connection failed.
pub fn connect_filtered(
    host: &str,
    port: u16,
    filter: SsrfFilter,
    test_hosts: &TestHosts,
    timeout: Duration,
) -> anyhow::Result<TcpStream> {
    let uri: Uri = format!("http://{host}:{port}/").parse().context("parse the host")?;
    let timeouts = HttpTimeouts {
        connect: timeout,
        first_byte: Duration::ZERO,
        idle: Duration::ZERO,
        total: Duration::ZERO,
    };
    let limits = ExchangeLimits { timeouts, deadline: None };
    let resolver = PolicyResolver {
        limits,
        policy: AddressPolicy::Filtered(filter),
        proxy: None,
        hosts: test_hosts.clone(),
    };
    let mut deadline = limits.connect_deadline();
    let stream = resolver
        .resolve_checked(&uri, true)
        .and_then(|addresses| dial(&addresses, &mut deadline))
        .map_err(|error| from_ureq(&error))?;
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// True if a program accepts connections on this port of the loopback interface within 100 ms.
pub fn is_listening(port: u16) -> bool {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    TcpStream::connect_timeout(&address, Duration::from_millis(100)).is_ok()
}
