//! HTTP: one client for a run, built at its first use, with its deadlines, proxy and roots of trust.
//!
//! Connections are kept between requests. TLS and its certificates are touched by `https` alone.

use crate::error::{Exit, fail};
use crate::sys::env::Env;
use std::io::Read;
use std::sync::OnceLock;
use std::time::Duration;
use ureq::Agent;
use ureq::http::{HeaderMap, Uri};
use ureq::tls::{RootCerts, TlsConfig};
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, DefaultConnector, NextTimeout, Transport,
};

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

/// The client.
pub struct Http {
    timeouts: Timeouts,
    /// Reach nothing but loopback.
    offline: bool,
    /// The environment names certificates.
    own_certificates: bool,
    agent: OnceLock<Agent>,
}

/// What came back: status and headers, and a body that is still to be read.
pub struct Answer {
    pub status: u16,
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
        let own_certificates =
            env.get("SSL_CERT_FILE").is_some() || env.get("SSL_CERT_DIR").is_some();
        Self {
            timeouts,
            offline,
            own_certificates,
            agent: OnceLock::new(),
        }
    }

    /// Send `body` as JSON. Any status comes back as an answer; redirects are not followed, since a key must not be.
    ///
    /// # Errors
    /// In words for a person: no connection, a time-out, a broken transfer, an address that is none.
    pub fn post_json(
        &self,
        url: &str,
        headers: &[(String, String)],
        body: &[u8],
    ) -> anyhow::Result<Answer> {
        let uri: Uri = url
            .parse()
            .map_err(|error| fail(Exit::Config, format!("`{url}` is no address: {error}")))?;
        let local = uri.host().is_some_and(is_loopback);
        if self.offline && !local {
            let host = uri.host().unwrap_or(url);
            return Err(fail(
                Exit::Unavailable,
                format!("`--offline` forbids to reach `{host}`"),
            ));
        }
        let mut request = self
            .agent()
            .post(url)
            .header("content-type", "application/json");
        for (name, value) in headers {
            request = request.header(name, value);
        }
        if local {
            request = request.config().proxy(None).build();
        }
        let response = request
            .send(body)
            .map_err(|error| anyhow::Error::msg(words(&error)))?;
        let (head, body) = response.into_parts();
        let body = body.into_with_config().limit(u64::MAX).reader();
        Ok(Answer {
            status: head.status.as_u16(),
            headers: head.headers,
            body: Box::new(body),
        })
    }

    fn agent(&self) -> &Agent {
        self.agent.get_or_init(|| {
            let limit = |duration: Duration| (!duration.is_zero()).then_some(duration);
            let found = self.own_certificates
                || BUNDLES
                    .iter()
                    .any(|path| std::path::Path::new(path).exists());
            let roots = if found {
                RootCerts::PlatformVerifier
            } else {
                RootCerts::WebPki
            };
            let config = Agent::config_builder()
                .http_status_as_error(false)
                .max_redirects(0)
                .max_redirects_will_error(false)
                .user_agent(concat!("nanobot/", env!("CARGO_PKG_VERSION")))
                .max_idle_age(KEEP_IDLE)
                .timeout_connect(limit(self.timeouts.connect))
                .timeout_recv_response(limit(self.timeouts.first_byte))
                .timeout_global(limit(self.timeouts.total))
                .tls_config(TlsConfig::builder().root_certs(roots).build())
                .build();
            let connector = Listening {
                inner: DefaultConnector::default(),
                idle: limit(self.timeouts.idle),
            };
            Agent::with_parts(config, connector, DefaultResolver::default())
        })
    }
}

/// The client's own connector, with connections that know what they wait for.
#[derive(Debug)]
struct Listening {
    inner: DefaultConnector,
    idle: Option<Duration>,
}

impl Connector<()> for Listening {
    type Out = Wire;

    fn connect(
        &self,
        details: &ConnectionDetails,
        chained: Option<()>,
    ) -> Result<Option<Wire>, ureq::Error> {
        let transport = self.inner.connect(details, chained)?;
        Ok(transport.map(|inner| Wire {
            inner,
            idle: self.idle,
            asked: false,
        }))
    }
}

/// A connection that applies the idle limit only once an answer has begun. The client's own limit for each read would
/// also cut the wait for the first byte.
#[derive(Debug)]
struct Wire {
    inner: Box<dyn Transport>,
    idle: Option<Duration>,
    /// A request went out, and nothing has come back yet.
    asked: bool,
}

impl Transport for Wire {
    fn buffers(&mut self) -> &mut dyn Buffers {
        self.inner.buffers()
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), ureq::Error> {
        self.asked = true;
        self.inner.transmit_output(amount, timeout)
    }

    fn await_input(&mut self, mut timeout: NextTimeout) -> Result<bool, ureq::Error> {
        if let (false, Some(idle)) = (self.asked, self.idle) {
            timeout.per_read = Some(idle.into());
        }
        let more = self.inner.await_input(timeout)?;
        self.asked = false;
        Ok(more)
    }

    fn is_open(&mut self) -> bool {
        self.inner.is_open()
    }

    fn is_tls(&self) -> bool {
        self.inner.is_tls()
    }
}

/// Whether something accepts connections on this port of this machine.
pub fn listens(port: u16) -> bool {
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], port));
    std::net::TcpStream::connect_timeout(&address, Duration::from_millis(100)).is_ok()
}

/// Whether `host` is this machine.
pub fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare == "localhost"
        || bare
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

/// Whether `url` carries what it carries in the clear to another machine.
pub fn is_exposed(url: &str) -> bool {
    url.parse::<Uri>()
        .is_ok_and(|uri| uri.scheme_str() == Some("http") && !uri.host().is_some_and(is_loopback))
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
        ureq::Error::Io(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
            "nothing listens at that address".into()
        }
        ureq::Error::Io(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            "the connection broke".into()
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::{is_exposed, is_loopback};

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
    }
}
