//! The client: builds requests, reads responses, keeps connections.

use super::connector::{ProxyConnector, SignalConnector};
use super::error::{MAX_REDIRECTS, to_error};
use super::resolver::GuardedResolver;
use super::ssrf::{AddressPolicy, SsrfGuard};
use super::timeouts::{Limits, Timeouts};
use crate::error::{Exit, fail};
use crate::sys::env::{self, Env};
use crate::sys::hosts::Hosts;
use crate::sys::secret::Secret;
use crate::sys::signal;
use crate::sys::sync::IgnorePoison;
use crate::sys::web_url::{is_loopback, to_uri};
use std::collections::HashMap;
use std::io::Read;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use ureq::http::{HeaderMap, Uri};
use ureq::tls::{RootCerts, TlsConfig};
use ureq::unversioned::transport::{
    ConnectProxyConnector, Connector, RustlsConnector, SocksConnector,
};
use ureq::{Agent, Proxy, RequestBuilder, ResponseExt};
use url::Url;

/// Bytes that are read and written at once. A head must fit; a stream comes in pieces of a few hundred.
const INPUT_BUFFER_BYTES: usize = 32 << 10;
const OUTPUT_BUFFER_BYTES: usize = 16 << 10;

/// How long an idle connection is kept: a slow tool call should not cost a new handshake.
const MAX_IDLE_AGE: Duration = Duration::from_secs(90);

/// Where systems keep their certificates; without any of them the compiled-in ones are used.
const CERTIFICATE_PATHS: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
    "/etc/ssl/certs",
];

/// The longest response head that is read from an untrusted server.
const MAX_UNTRUSTED_HEAD_BYTES: usize = INPUT_BUFFER_BYTES;

/// The client.
pub struct Http {
    timeouts: Timeouts,
    policy: AddressPolicy,
    /// When everything must have ended, as [`signal::now`] tells it.
    deadline: Option<Duration>,
    ignores_env_proxy: bool,
    user_agent: Option<String>,
    hosts: Hosts,
    /// The environment names certificates.
    own_certificates: bool,
    /// Instead of the one that the environment names.
    proxy: Option<Proxy>,
    agent: Arc<OnceLock<Agent>>,
}

/// Connections that outlast a client, for later clients with the same settings.
#[derive(Clone, Default)]
pub struct Connections(Arc<Mutex<HashMap<String, Arc<OnceLock<Agent>>>>>);

/// A response: status and headers, and a body that is still to be read.
pub struct Response {
    pub status: u16,
    /// Where it came from, at the end of all redirects.
    pub url: String,
    headers: HeaderMap,
    pub body: Box<dyn Read + Send>,
}

impl Response {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

impl Http {
    pub fn new(timeouts: Timeouts, offline: bool, env: &Env) -> Self {
        let policy = match offline {
            true => AddressPolicy::Loopback,
            false => AddressPolicy::Any,
        };
        Self::with_policy(policy, timeouts, env)
    }

    /// A client for addresses that may stand in anything: it reaches public ones only, over TLS, and follows redirects
    /// there. No proxy is used, since only a proxy would know then what is reached.
    pub fn public_only(timeouts: Timeouts, env: &Env) -> Self {
        let or_loopback = env.get(env::TEST_FETCH) == Some("loopback");
        Self::with_policy(AddressPolicy::Public { or_loopback }, timeouts, env).without_proxy()
    }

    /// A client for addresses that a model or a page may have written. Each host is resolved once, all it resolves to is
    /// checked, and nothing else is connected to. The total of `timeouts` counts from now on for all that it is asked.
    /// Redirects are not followed: whoever asked decides about each. [`Http::get`] is the way to use it.
    pub fn guarded(timeouts: Timeouts, guard: SsrfGuard, hosts: &Hosts, env: &Env) -> Self {
        Self {
            deadline: Some(signal::now().saturating_add(timeouts.total)),
            hosts: hosts.clone(),
            ..Self::with_policy(AddressPolicy::Guarded(guard), timeouts, env).without_proxy()
        }
    }

    /// Without the environment's proxy.
    pub fn without_proxy(mut self) -> Self {
        self.ignores_env_proxy = true;
        self
    }

    /// Under this `User-Agent`, where there is one.
    pub fn with_user_agent(mut self, user_agent: Option<String>) -> Self {
        self.user_agent = user_agent;
        self
    }

    fn with_policy(policy: AddressPolicy, timeouts: Timeouts, env: &Env) -> Self {
        let own_certificates =
            env.get("SSL_CERT_FILE").is_some() || env.get("SSL_CERT_DIR").is_some();
        Self {
            timeouts,
            policy,
            deadline: None,
            ignores_env_proxy: false,
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
    pub fn with_proxy(mut self, proxy: Option<&Secret>, whose: &str) -> anyhow::Result<Self> {
        if let Some(proxy) = proxy {
            // The address can hold a password, so it is not shown.
            let proxy = Proxy::new(proxy.expose());
            let proxy =
                proxy.map_err(|_| fail(Exit::Config, format!("{whose} is no proxy's address")))?;
            self.proxy = Some(proxy);
        }
        Ok(self)
    }

    /// Over the connections to `base` that clients with the same settings have left in `connections`.
    #[must_use]
    pub fn with_pool(mut self, connections: &Connections, base: &str) -> Self {
        let proxy = self.proxy.as_ref().map(|proxy| proxy.uri().to_string());
        let key = format!("{base} {:?} {:?} {proxy:?}", self.timeouts, self.policy);
        let mut all = connections.0.lock().ignore_poison();
        self.agent = Arc::clone(all.entry(key).or_default());
        drop(all);
        self
    }

    /// Send `body` as JSON; see [`Http::send`].
    pub fn post_json(
        &self,
        url: &str,
        headers: &[(String, String)],
        body: &[u8],
    ) -> anyhow::Result<Response> {
        self.send(url, headers, Some(("application/json", body)))
    }

    /// Get what is at `url`, as [`crate::sys::web_url::parse`] has parsed it.
    ///
    /// # Errors
    /// As [`Http::send`].
    pub fn get(&self, url: &Url, headers: &[(String, String)]) -> anyhow::Result<Response> {
        let uri = to_uri(url)
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
    ) -> anyhow::Result<Response> {
        let method = match body {
            Some((kind, body)) => Method::Post(kind, body),
            None => Method::Get,
        };
        self.exchange(&parse_uri(url)?, headers, method)
    }

    /// Ask that what is at `url` be deleted.
    ///
    /// # Errors
    /// As [`Http::send`].
    pub fn delete(&self, url: &str, headers: &[(String, String)]) -> anyhow::Result<Response> {
        self.exchange(&parse_uri(url)?, headers, Method::Delete)
    }

    fn exchange(
        &self,
        uri: &Uri,
        headers: &[(String, String)],
        method: Method<'_>,
    ) -> anyhow::Result<Response> {
        let local = uri.host().is_some_and(is_loopback);
        if self.policy == AddressPolicy::Loopback && !local {
            let host = uri.host().unwrap_or_default();
            return Err(fail(
                Exit::Unavailable,
                format!("`--offline` forbids to reach `{host}`"),
            ));
        }
        // Only the proxy knows then what is reached; so what the name means here has to do.
        if self.proxy.is_some() && matches!(self.policy, AddressPolicy::Guarded(_)) {
            self.resolver()
                .find(uri, true)
                .map_err(|error| to_error(&error))?;
        }
        let agent = self.agent(uri.scheme_str() == Some("https"));
        let sent = match method {
            Method::Post(kind, body) => {
                let request = agent.post(uri).header("content-type", kind);
                with_headers(request, headers, local).send(body)
            }
            Method::Get => with_headers(agent.get(uri), headers, local).call(),
            Method::Delete => with_headers(agent.delete(uri), headers, local).call(),
        };
        let response = sent.map_err(|error| to_error(&error))?;
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

    /// The client of `ureq`; `tls` tells whether certificates will be needed.
    fn agent(&self, tls: bool) -> &Agent {
        self.agent.get_or_init(|| {
            let limit = |duration: Duration| (!duration.is_zero()).then_some(duration);
            let exists = |path: &&str| std::path::Path::new(path).exists();
            let found = self.own_certificates || (tls && CERTIFICATE_PATHS.iter().any(exists));
            let roots = if found {
                RootCerts::PlatformVerifier
            } else {
                RootCerts::WebPki
            };
            let public = matches!(self.policy, AddressPolicy::Public { .. });
            let mut config = Agent::config_builder();
            if self.ignores_env_proxy || self.proxy.is_some() {
                config = config.proxy(self.proxy.clone());
            }
            if matches!(self.policy, AddressPolicy::Guarded(_)) {
                config = config.max_response_header_size(MAX_UNTRUSTED_HEAD_BYTES);
            }
            let ours = concat!("nanobot/", env!("CARGO_PKG_VERSION"));
            let config = config
                .http_status_as_error(false)
                .max_redirects(if public { MAX_REDIRECTS } else { 0 })
                .max_redirects_will_error(public)
                .user_agent(self.user_agent.as_deref().unwrap_or(ours))
                .max_idle_age(MAX_IDLE_AGE)
                .input_buffer_size(INPUT_BUFFER_BYTES)
                .output_buffer_size(OUTPUT_BUFFER_BYTES)
                // For what the client does itself: a proxy, the handshake. All else is timed by `SignalTransport`, which knows
                // when the process was stopped.
                .timeout_connect(limit(self.timeouts.connect))
                .tls_config(TlsConfig::builder().root_certs(roots).build())
                .build();
            let connector =
                ().chain(SocksConnector::default())
                    .chain(ProxyConnector(self.limits()))
                    .chain(ConnectProxyConnector::default())
                    .chain(SignalConnector(self.limits()))
                    .chain(RustlsConnector::default());
            Agent::with_parts(config, connector, self.resolver())
        })
    }

    fn limits(&self) -> Limits {
        Limits {
            timeouts: self.timeouts,
            deadline: self.deadline,
        }
    }

    fn resolver(&self) -> GuardedResolver {
        GuardedResolver {
            limits: self.limits(),
            policy: self.policy.clone(),
            proxy: self.proxy.as_ref().map(|proxy| proxy.uri().clone()),
            hosts: self.hosts.clone(),
        }
    }
}

/// The method of a request, with its body.
#[derive(Clone, Copy)]
enum Method<'b> {
    Get,
    /// A body of that media type.
    Post(&'b str, &'b [u8]),
    Delete,
}

fn parse_uri(url: &str) -> anyhow::Result<Uri> {
    url.parse()
        .map_err(|error| fail(Exit::Config, format!("`{url}` is no address: {error}")))
}

/// `request` with its headers; nothing on this machine is reached through a proxy.
fn with_headers<Body>(
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
