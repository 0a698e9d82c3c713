//! The HTTP client: builds requests, reads responses and keeps connections.

use super::buffers::{MAX_INPUT_BYTES, OUTPUT_BYTES};
use super::connector::{ProxyConnector, SignalConnector};
use super::error::{ConnectError, MAX_REDIRECTS, PermanentFailure, from_ureq};
use super::network::{CertificateProblem, Network, configured_proxy};
use super::resolver::PolicyResolver;
use super::ssrf::{AddressPolicy, SsrfFilter};
use super::stream::{self, LineStream};
use super::timeouts::{ExchangeLimits, HttpTimeouts};
use super::transport::with_read_end;
use crate::test_dns::TestHosts;
use crate::web_url::{is_loopback, redact_url, to_uri, without_brackets};
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_os::env::Env;
use nanobot_os::secret::Secret;
use nanobot_os::signal;
use nanobot_os::test_hooks;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io::Read;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use ureq::config::Config;
use ureq::http::{HeaderMap, Uri};
use ureq::tls::TlsConfig;
use ureq::typestate::WithBody;
use ureq::unversioned::resolver::Resolver as _;
use ureq::unversioned::transport::{
    ConnectProxyConnector, ConnectionDetails, Connector, RustlsConnector, SocksConnector, Transport,
};
use ureq::{Agent, Proxy, RequestBuilder, ResponseExt};
use url::Url;

/// The time that an idle connection is kept: a slow tool call should not cost a new handshake.
const MAX_IDLE_AGE: Duration = Duration::from_secs(90);

/// The longest response head that is accepted from an untrusted server.
const MAX_UNTRUSTED_HEAD_BYTES: usize = MAX_INPUT_BYTES;

/// An HTTP client.
pub struct Http {
    timeouts: HttpTimeouts,
    policy: AddressPolicy,
    /// The deadline of all exchanges, on the clock of [`signal::now`].
    deadline: Option<Duration>,
    user_agent: Option<String>,
    hosts: TestHosts,
    network: Network,
    /// The proxy of all requests, if any.
    proxy: Option<Proxy>,
    agents: Arc<Agents>,
}

/// The `ureq` agents of a client, created at their first use. Only the one for TLS needs certificates, which take time to load.
#[derive(Default)]
struct Agents {
    plain: OnceLock<Agent>,
    tls: OnceLock<Agent>,
}

/// Connections that outlive a client, for later clients with the same settings.
#[derive(Clone, Default)]
pub struct ConnectionPool(Arc<Mutex<HashMap<String, Arc<Agents>>>>);

/// A response: status, headers, and a body still to be read.
pub struct Response {
    /// The HTTP status code.
    pub status: u16,
    /// The final URL, after all redirects.
    pub url: String,
    headers: HeaderMap,
    /// The body, which is read from the connection on demand.
    pub body: Box<dyn Read + Send>,
}

impl Response {
    /// The value of a header, if present and visible ASCII.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Reads the next part of the body into `buffer`. With `end`, on the clock of [`signal::now`], it waits no longer
    /// than that.
    ///
    /// # Errors
    /// The errors of the connection; [`super::body_error_message`] describes them.
    pub fn read(&mut self, buffer: &mut [u8], end: Option<Duration>) -> std::io::Result<usize> {
        with_read_end(end, || self.body.read(buffer))
    }

    /// Reads the rest of the body, so that the connection can be reused. If the rest takes longer than `limit`, the
    /// connection is closed instead.
    pub fn drain(mut self, limit: Duration) {
        let end = signal::now() + limit;
        let mut buffer = [0; 1024];
        while signal::now() < end && self.read(&mut buffer, Some(end)).is_ok_and(|count| count > 0)
        {
        }
    }
}

impl Http {
    /// Creates a client for any address, or for loopback addresses only if `offline`.
    pub fn new(timeouts: HttpTimeouts, offline: bool, network: &Network) -> Self {
        let policy = if offline || network.is_offline() {
            AddressPolicy::Loopback
        } else {
            AddressPolicy::Any
        };
        Self::with_policy(policy, timeouts, network)
    }

    /// Creates a client for untrusted URLs: it reaches only public addresses over TLS, and follows redirects among
    /// these. It uses no proxy, because only the proxy would then know the actual address.
    pub fn public_only(timeouts: HttpTimeouts, network: &Network, env: &Env) -> Self {
        let or_loopback = test_hooks::FETCH.get(env) == Some("loopback");
        Self::with_policy(AddressPolicy::Public { or_loopback }, timeouts, network).without_proxy()
    }

    /// Creates a client for URLs that a model or a web page may have written. Each host is resolved once, all its
    /// addresses are checked, and no other address is connected to. The total timeout is a deadline for all requests of
    /// this client, counted from now. Redirects are not followed: the caller decides about each. Use it with
    /// [`Http::get`].
    pub fn with_ssrf_filter(
        timeouts: HttpTimeouts,
        filter: SsrfFilter,
        hosts: &TestHosts,
        network: &Network,
    ) -> Self {
        Self {
            deadline: Some(signal::now().saturating_add(timeouts.total)),
            hosts: hosts.clone(),
            ..Self::with_policy(AddressPolicy::Filtered(filter), timeouts, network).without_proxy()
        }
    }

    /// Uses no proxy.
    pub fn without_proxy(mut self) -> Self {
        self.proxy = None;
        self
    }

    /// Sets the `User-Agent`, if given.
    pub fn with_user_agent(mut self, user_agent: Option<String>) -> Self {
        self.user_agent = user_agent;
        self
    }

    fn with_policy(policy: AddressPolicy, timeouts: HttpTimeouts, network: &Network) -> Self {
        Self {
            timeouts,
            policy,
            deadline: None,
            user_agent: None,
            hosts: TestHosts::default(),
            network: network.clone(),
            proxy: network.proxy().cloned(),
            agents: Arc::default(),
        }
    }

    /// Uses `proxy`, if given, for all hosts. `setting` names it in messages.
    ///
    /// # Errors
    /// Status 78 if `proxy` is not a valid proxy URL.
    pub fn with_proxy(mut self, proxy: Option<&Secret>, setting: &str) -> anyhow::Result<Self> {
        if let Some(proxy) = proxy {
            self.proxy = Some(configured_proxy(proxy, &[], setting)?);
        }
        Ok(self)
    }

    /// Shares the connections to `base` in `pool` with clients of the same settings.
    #[must_use]
    pub fn with_pool(mut self, pool: &ConnectionPool, base: &str) -> Self {
        let proxy = self.proxy.as_ref().map(|proxy| proxy.uri().to_string());
        let key = format!("{base} {:?} {:?} {proxy:?}", self.timeouts, self.policy);
        let mut agents = pool.0.lock();
        self.agents = Arc::clone(agents.entry(key).or_default());
        drop(agents);
        self
    }

    /// The timeouts of each exchange.
    pub fn timeouts(&self) -> HttpTimeouts {
        self.timeouts
    }

    /// Sends a GET request to `url`, as parsed by [`crate::web_url::parse`].
    pub fn get(&self, url: &Url, headers: &[(String, String)]) -> anyhow::Result<Response> {
        self.exchange(&unambiguous(url)?, headers, HttpMethod::Get)
    }

    /// Resolves the host of `url` and checks its addresses, without a connection.
    ///
    /// # Errors
    /// This client may not reach one of them, or there is none.
    pub fn check_addresses(&self, url: &Url) -> anyhow::Result<()> {
        let uri = unambiguous(url)?;
        let result = self.resolver().resolve_checked(&uri, true);
        result.map(drop).map_err(|error| self.send_error(&error, &uri))
    }

    /// Sends a request. Every status is returned as a response. Redirects are not followed, so that a key does not leak to
    /// another server; only [`Http::public_only`], which has no key, follows them.
    ///
    /// # Errors
    /// A message for the user: no connection, a timeout, or a broken transfer. Status 78 for an invalid URL, 77 for an
    /// address that this client may not reach, 69 with `--offline`. A `Stop` error on cancellation.
    pub fn request(
        &self,
        url: &str,
        headers: &[(String, String)],
        method: HttpMethod<'_>,
    ) -> anyhow::Result<Response> {
        self.exchange(&parse_uri(url)?, headers, method)
    }

    /// Sends a request whose response head must have arrived at `end`, on the clock of [`signal::now`], however slowly its
    /// bytes come. [`Response::read`] takes the same end for the body.
    ///
    /// # Errors
    /// The errors of [`Http::request`].
    pub fn request_until(
        &self,
        url: &str,
        headers: &[(String, String)],
        method: HttpMethod<'_>,
        end: Duration,
    ) -> anyhow::Result<Response> {
        with_read_end(Some(end), || self.request(url, headers, method))
    }

    fn exchange(
        &self,
        uri: &Uri,
        headers: &[(String, String)],
        method: HttpMethod<'_>,
    ) -> anyhow::Result<Response> {
        let is_local = uri.host().is_some_and(is_loopback);
        self.check_offline(uri)?;
        // Only the proxy knows the actual address, so the address that the name has here is checked instead.
        if self.proxy.is_some() && matches!(self.policy, AddressPolicy::Filtered(_)) {
            self.resolver().resolve_checked(uri, true).map_err(|error| from_ureq(&error))?;
        }
        let agent = self.agent(uri.scheme_str() == Some("https"));
        let send = |request: RequestBuilder<WithBody>, media_type: &str, body: &[u8]| {
            with_headers(request.header("content-type", media_type), headers, is_local).send(body)
        };
        let result = match method {
            HttpMethod::EmptyPost => with_headers(agent.post(uri), headers, is_local).send_empty(),
            HttpMethod::EmptyPut => with_headers(agent.put(uri), headers, is_local).send_empty(),
            HttpMethod::Post(media_type, body) => send(agent.post(uri), media_type, body),
            HttpMethod::Put(media_type, body) => send(agent.put(uri), media_type, body),
            HttpMethod::Patch(media_type, body) => send(agent.patch(uri), media_type, body),
            HttpMethod::Get => with_headers(agent.get(uri), headers, is_local).call(),
            HttpMethod::Delete => with_headers(agent.delete(uri), headers, is_local).call(),
        };
        let response = result.map_err(|error| self.send_error(&error, uri))?;
        let url = response.get_uri().to_string();
        let (head, body) = response.into_parts();
        let body = body.into_with_config().limit(u64::MAX).reader();
        Ok(Response {
            status: head.status.as_u16(),
            url,
            headers: head.headers,
            body: Box::new(body),
        })
    }

    /// Converts a failure to send a request to `uri`. If a retry cannot help, the error has a status and a hint.
    fn send_error(&self, error: &ureq::Error, uri: &Uri) -> anyhow::Error {
        let is_stopped = signal::check().is_err();
        let failure = if is_stopped { None } else { PermanentFailure::find(error) };
        let host = uri.host().unwrap_or_default();
        match failure {
            None => match (self.proxy_for(uri), from_ureq(error).downcast::<ConnectError>()) {
                (Some(proxy), Ok(error)) => error.through_proxy(proxy).into(),
                (None, Ok(error)) => error.into(),
                (_, Err(error)) => error,
            },
            Some(PermanentFailure::Certificate(cause)) => {
                match self.network.certificate_problem() {
                    Some(CertificateProblem { cause, hint }) => {
                        fail(Exit::Config, cause).with_hint(hint)
                    }
                    None => {
                        let source = self.network.certificate_source();
                        fail(Exit::Unavailable, format!("the certificate of `{host}` is not accepted: {cause} (CA certificates are from {source})"))
                            .with_hint("`SSL_CERT_FILE`, or `http.caFile` of the config, with the CA certificate of that server")
                    }
                }
            }
            Some(PermanentFailure::Proxy(cause)) => {
                let proxy = self.proxy.as_ref().map(|proxy| proxy.uri().to_string());
                let proxy = redact_url(proxy.unwrap_or_default().trim_end_matches('/'));
                fail(
                    Exit::Unavailable,
                    format!("the proxy `{proxy}` refuses to connect to `{host}`: {cause}"),
                )
                .with_hint("a proxy URL with a user and a password, or `NO_PROXY` with that host")
            }
            Some(PermanentFailure::Url(cause)) => {
                let url = redact_url(&uri.to_string());
                fail(Exit::Config, format!("invalid URL `{url}`: {cause}"))
            }
        }
    }

    /// The proxy of requests to `uri`, if they have one.
    fn proxy_for(&self, uri: &Uri) -> Option<&Proxy> {
        let is_local = uri.host().is_some_and(is_loopback);
        self.proxy.as_ref().filter(|proxy| !is_local && !proxy.is_no_proxy(uri))
    }

    /// The `ureq` agent for requests with or without TLS.
    fn agent(&self, tls: bool) -> &Agent {
        let agent = if tls { &self.agents.tls } else { &self.agents.plain };
        agent.get_or_init(|| {
            let config = self.config(tls, self.proxy.clone());
            Agent::with_parts(config, self.connector(), self.resolver())
        })
    }

    fn config(&self, tls: bool, proxy: Option<Proxy>) -> Config {
        let nonzero = |duration: Duration| (!duration.is_zero()).then_some(duration);
        let roots = self.network.root_certificates(tls);
        let is_public = matches!(self.policy, AddressPolicy::Public { .. });
        let mut config = Agent::config_builder();
        config = config.proxy(proxy);
        if matches!(self.policy, AddressPolicy::Filtered(_)) {
            config = config.max_response_header_size(MAX_UNTRUSTED_HEAD_BYTES);
        }
        let default_agent = concat!("nanobot/", env!("CARGO_PKG_VERSION"));
        config
            .http_status_as_error(false)
            .max_redirects(if is_public { MAX_REDIRECTS } else { 0 })
            .max_redirects_will_error(is_public)
            // Nor does a redirect lead from TLS to plain text.
            .https_only(is_public && tls)
            .user_agent(self.user_agent.as_deref().unwrap_or(default_agent))
            .max_idle_age(MAX_IDLE_AGE)
            // The buffers of TLS, and of the handshake with a proxy.
            .input_buffer_size(MAX_INPUT_BYTES)
            .output_buffer_size(OUTPUT_BYTES)
            // These timeouts are for the work that `ureq` does itself: proxies and handshakes. `SignalTransport` applies all other
            // timeouts, since it does not count the time that the process was stopped.
            .timeout_connect(nonzero(self.timeouts.connect))
            .tls_config(TlsConfig::builder().root_certs(roots).build())
            .build()
    }

    fn connector(&self) -> impl Connector<(), Out: Transport> {
        ().chain(SocksConnector::default())
            .chain(ProxyConnector(self.limits()))
            .chain(ConnectProxyConnector::default())
            .chain(SignalConnector(self.limits()))
            .chain(RustlsConnector::default())
    }

    /// Opens a connection for another protocol than HTTP, to be used with the timeouts of this client. With `tls`, it is
    /// encrypted from the start.
    ///
    /// # Errors
    /// The errors of [`Http::request`].
    pub fn open_stream(&self, host: &str, port: u16, tls: bool) -> anyhow::Result<LineStream> {
        let uri = stream_uri(host, port, tls)?;
        self.check_offline(&uri)?;
        let proxy = self.proxy_for(&uri).cloned();
        let resolver = self.resolver();
        let is_resolved = proxy.as_ref().is_none_or(Proxy::resolve_target);
        let addresses =
            if is_resolved { resolver.resolve_checked(&uri, true) } else { Ok(resolver.empty()) };
        let config = self.config(tls, proxy);
        let connector = Arc::new(self.connector());
        let transport = addresses.and_then(|addrs| {
            let details = ConnectionDetails {
                run_connector: Arc::new(move |details: &ConnectionDetails<'_>| {
                    stream::run_connector(&*connector, details)
                }),
                ..stream::connection_details(&uri, addrs, &config, &resolver)
            };
            (details.run_connector)(&details)
        });
        transport.map(LineStream::new).map_err(|error| self.send_error(&error, &uri))
    }

    /// Encrypts a connection that was opened without TLS, once the server has agreed to it.
    ///
    /// # Errors
    /// The handshake fails, or the server has sent more than its consent: a program that can write into the connection
    /// could otherwise inject text into the encrypted part (CVE-2011-0411).
    pub fn start_tls(
        &self,
        stream: LineStream,
        host: &str,
        port: u16,
    ) -> anyhow::Result<LineStream> {
        let uri = stream_uri(host, port, true)?;
        let transport = stream.into_transport()?;
        let resolver = self.resolver();
        let config = self.config(true, None);
        let details = stream::connection_details(&uri, resolver.empty(), &config, &resolver);
        RustlsConnector::default()
            .connect(&details, Some(transport))
            .and_then(|transport| transport.ok_or(ureq::Error::ConnectionFailed))
            .map(|transport| LineStream::new(transport.boxed()))
            .map_err(|error| self.send_error(&error, &uri))
    }

    fn check_offline(&self, uri: &Uri) -> anyhow::Result<()> {
        let host = uri.host().unwrap_or_default();
        if self.policy == AddressPolicy::Loopback && !is_loopback(host) {
            Err(fail(Exit::Unavailable, format!("`--offline` forbids connecting to `{host}`")))
        } else {
            Ok(())
        }
    }

    fn limits(&self) -> ExchangeLimits {
        ExchangeLimits { timeouts: self.timeouts, deadline: self.deadline }
    }

    fn resolver(&self) -> PolicyResolver {
        PolicyResolver {
            limits: self.limits(),
            policy: self.policy.clone(),
            proxy: self.proxy.as_ref().map(|proxy| proxy.uri().clone()),
            hosts: self.hosts.clone(),
        }
    }
}

/// The method of a request, with the body to send.
#[derive(Clone, Copy, Debug)]
pub enum HttpMethod<'b> {
    Get,
    /// The media type and the body.
    Post(&'b str, &'b [u8]),
    /// A POST without a body.
    EmptyPost,
    /// The media type and the body.
    Put(&'b str, &'b [u8]),
    /// A PUT without a body.
    EmptyPut,
    /// The media type and the body.
    Patch(&'b str, &'b [u8]),
    Delete,
}

/// The address of a connection, in the form in which connectors take it.
fn stream_uri(host: &str, port: u16, tls: bool) -> anyhow::Result<Uri> {
    let scheme = if tls { "https" } else { "http" };
    let host = without_brackets(host);
    if host.contains(':') {
        parse_uri(&format!("{scheme}://[{host}]:{port}/"))
    } else {
        parse_uri(&format!("{scheme}://{host}:{port}/"))
    }
}

fn unambiguous(url: &Url) -> anyhow::Result<Uri> {
    to_uri(url).ok_or_else(|| fail(Exit::Refused, format!("`{url}` is ambiguous")))
}

fn parse_uri(url: &str) -> anyhow::Result<Uri> {
    // A wrong URL may have a password or a key in it, too.
    let invalid = |error| fail(Exit::Config, format!("invalid URL `{}`: {error}", redact_url(url)));
    url.parse().map_err(invalid)
}

/// Adds headers to `request`. Loopback addresses are never reached through a proxy.
fn with_headers<Body>(
    mut request: RequestBuilder<Body>,
    headers: &[(String, String)],
    is_local: bool,
) -> RequestBuilder<Body> {
    for (name, value) in headers {
        request = request.header(name, value);
    }
    if is_local {
        request = request.config().proxy(None).build();
    }
    request
}

#[cfg(test)]
mod tests {
    use super::{Http, parse_uri};
    use crate::http::{ConnectError, HttpMethod, HttpTimeouts, Network};
    use std::time::Duration;

    const NO_TIMEOUTS: HttpTimeouts = HttpTimeouts::within(Duration::ZERO);

    /// A request without TLS loads no certificates; a later one with TLS does.
    #[test]
    fn certificates_do_not_depend_on_earlier_requests() {
        let http = Http::new(NO_TIMEOUTS, false, &Network::default());
        let roots = |tls| format!("{:?}", http.agent(tls).config().tls_config().root_certs());
        let fresh = Http::new(NO_TIMEOUTS, false, &Network::default());
        roots(false);
        let expect = format!("{:?}", fresh.agent(true).config().tls_config().root_certs());
        assert_eq!(roots(true), expect);
    }

    /// The limited broadcast address takes no connections, and the label is longer than DNS permits.
    #[test]
    fn an_address_or_a_name_that_leads_nowhere_is_a_failure_to_connect() {
        let http = Http::new(NO_TIMEOUTS, false, &Network::default());
        for host in ["255.255.255.255", &"a".repeat(64)] {
            let result = http.request(&format!("http://{host}/"), &[], HttpMethod::Get);
            let error = result.err().unwrap();
            assert!(error.is::<ConnectError>(), "{host}: {error:?}");
        }
    }

    #[test]
    fn a_wrong_url_is_shown_without_its_keys() {
        for url in ["https://h.example/mcp?key=SEC RET", "https://user:SEC RET@h.example/"] {
            let error = format!("{:#}", parse_uri(url).unwrap_err());
            assert!(error.contains("h.example") && !error.contains("SEC"), "{error}");
        }
    }
}
