//! Maps failed exchanges to messages for the user.

use super::ssrf::AddressError;
use crate::web_url::redact_url;
use nanobot_base::error::{Exit, Stop, WithHint, fail};
use nanobot_os::signal;
use std::io::{Error, ErrorKind};
use ureq::{Proxy, Timeout};

/// Maximum number of redirects that a client follows, if it follows any.
pub(super) const MAX_REDIRECTS: u32 = 5;

/// Returns the error of type `T` that `error` carries through `ureq`, if any.
pub(super) fn find_own<T: std::error::Error + 'static>(error: &ureq::Error) -> Option<&T> {
    match error {
        ureq::Error::Other(inner) => inner.downcast_ref(),
        _ => None,
    }
}

/// No connection was made, so nothing was sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConnectError(String);

impl From<ConnectError> for ureq::Error {
    fn from(error: ConnectError) -> Self {
        Self::Other(Box::new(error))
    }
}

impl ConnectError {
    /// The error of a name lookup, or of opening a socket. Only there it is certain that no connection was made: an
    /// established connection can fail with the same error.
    pub(super) fn new(error: &Error) -> Self {
        Self(io_message(error))
    }

    /// The error of a connection through `proxy`, which may be the cause.
    pub(super) fn through_proxy(self, proxy: &Proxy) -> Self {
        let url = proxy.uri().to_string();
        let url = redact_url(url.trim_end_matches('/'));
        let Self(cause) = self;
        Self(format!("{cause} (through the proxy `{url}`)"))
    }
}

/// The first byte of the server shows that it speaks TLS where plain text is expected, or the other way round.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}", if *speaks_tls { format!("`{server}` speaks TLS") } else { format!("`{server}` does not speak TLS") })]
pub(super) struct TlsMismatch {
    /// The host and the port.
    pub(super) server: String,
    pub(super) speaks_tls: bool,
}

impl TlsMismatch {
    fn into_error(self) -> anyhow::Error {
        let hint = if self.speaks_tls {
            "`https://` in its address, or its port for unencrypted connections"
        } else {
            "`http://` in its address, if it is your own server, or its port for TLS"
        };
        fail(Exit::Unavailable, self.to_string()).with_hint(hint)
    }
}

impl From<TlsMismatch> for ureq::Error {
    fn from(mismatch: TlsMismatch) -> Self {
        Self::Other(Box::new(mismatch))
    }
}

/// The server has not responded in time to a request that it has received.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ResponseTimeout(String);

/// Converts an error of `ureq`. A pending cancellation takes precedence.
pub(super) fn from_ureq(error: &ureq::Error) -> anyhow::Error {
    if let Err(stop) = signal::check() {
        return stop.into();
    }
    if let Some(address_error) = find_own::<AddressError>(error) {
        return address_error.clone().into_error();
    }
    if let Some(mismatch) = find_own::<TlsMismatch>(error) {
        return mismatch.clone().into_error();
    }
    if let Some(connect_error) = find_own::<ConnectError>(error) {
        return connect_error.clone().into();
    }
    match error {
        error if is_unconnected(error) => ConnectError(message(error)).into(),
        ureq::Error::Timeout(Timeout::RecvResponse) => ResponseTimeout(message(error)).into(),
        error => anyhow::Error::msg(message(error)),
    }
}

/// A failure to connect that a retry cannot change.
pub(super) enum PermanentFailure {
    /// The server's certificate is not accepted.
    Certificate(String),
    /// The proxy refuses to connect; holds its response.
    Proxy(String),
    /// The URL cannot be used.
    Url(String),
}

impl PermanentFailure {
    /// Returns the permanent failure in `error`, if any.
    pub(super) fn find(error: &ureq::Error) -> Option<Self> {
        match error {
            ureq::Error::BadUri(cause) => Some(Self::Url(cause.clone())),
            // "proxy server responded 407/407"
            ureq::Error::ConnectProxyFailed(cause) => {
                let (_, status) = cause.rsplit_once('/')?;
                matches!(status, "403" | "407").then(|| Self::Proxy(format!("status {status}")))
            }
            other => {
                let text = other.to_string();
                let (_, cause) = text.split_once("invalid peer certificate: ")?;
                Some(Self::Certificate(cause.to_owned()))
            }
        }
    }
}

/// Wraps a cancellation for `ureq`. How `ureq` reports it does not matter: the caller checks [`signal::check`].
pub(super) fn from_stop(stop: Stop) -> ureq::Error {
    ureq::Error::Io(Error::other(stop))
}

/// Returns the message for an error while a body is read.
pub fn body_error_message(error: &Error) -> String {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<ureq::Error>()) {
        Some(error) => message(error),
        None => io_message(error),
    }
}

fn is_unconnected(error: &ureq::Error) -> bool {
    match error {
        ureq::Error::Timeout(Timeout::Connect | Timeout::Resolve)
        | ureq::Error::HostNotFound
        | ureq::Error::ConnectionFailed => true,
        // Of a SOCKS proxy, which `ureq` connects to itself.
        ureq::Error::Io(error) => error.kind() == ErrorKind::ConnectionRefused,
        _ => false,
    }
}

fn message(error: &ureq::Error) -> String {
    match error {
        ureq::Error::Timeout(Timeout::PerRead) => "timed out waiting for more data".into(),
        ureq::Error::Timeout(Timeout::Connect | Timeout::Resolve) => "connection timed out".into(),
        ureq::Error::Timeout(Timeout::RecvResponse) => "timed out waiting for a response".into(),
        ureq::Error::Timeout(_) => "the request timed out".into(),
        ureq::Error::HostNotFound => "host not found".into(),
        ureq::Error::ConnectionFailed => "connection failed".into(),
        ureq::Error::TooManyRedirects => format!("more than {MAX_REDIRECTS} redirects"),
        ureq::Error::Io(error) => io_message(error),
        other => other.to_string(),
    }
}

fn io_message(error: &Error) -> String {
    match error.kind() {
        ErrorKind::ConnectionRefused => "connection refused".into(),
        ErrorKind::UnexpectedEof => "connection closed unexpectedly".into(),
        _ => error.to_string(),
    }
}
