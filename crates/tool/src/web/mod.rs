//! The common part of the web tools: which addresses may be requested, and how.
//!
//! Each address on the way is checked in the same way: by the policy's rules, by the provenance of its text, and by the
//! location of the host. The target of a redirect is chosen by the server. If the model wrote no part of the original
//! address, the redirect is followed, since it can disclose no more than the original request. If the model may have
//! composed the address, and only its host is allowed, the target must pass the check itself: many hosts redirect to any address in a
//! parameter, which could be used to disclose data. The number of requests to hosts that only untrusted content names is limited, redirects
//! and repetition included, because their sequence can spell out data; so a repeated address is answered from the run's cache.

use super::ToolError;
use crate::attach;
use nanobot_base::error::{Exit, NextStep, Stop, exit_for, next_step};
use nanobot_base::message::addresses;
use nanobot_base::shell_quote::quote;
use nanobot_config::policy::provenance::{AddressTrust, AllowedHosts, ProvenanceTracker};
use nanobot_config::policy::{Policy, PolicyDecision, Refusal};
use nanobot_net::http::{ConnectError, Http, HttpTimeouts, Network, Response, SsrfFilter};
use nanobot_net::ip_ranges::IpRange;
use nanobot_net::test_dns::TestHosts;
use nanobot_net::web_url;
use nanobot_os::env::Env;
use nanobot_os::input::image_type;
use nanobot_os::secret::{LazySecret, contains_key};
use nanobot_os::signal;
use page_cache::{FetchedContent, PageCache};
use reader::PageReader;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use url::Url;

pub mod article;
pub mod engine;
pub mod page_cache;
pub mod reader;

/// Maximum number of redirects.
const MAX_REDIRECTS: usize = 5;
/// Maximum bytes of a text, after decompression: more than is ever read of a page.
const MAX_TEXT_BYTES: usize = 2 << 20;
/// Maximum bytes of an image, a PDF or an office document, which are useless if cut.
const MAX_BINARY_BYTES: usize = 16 << 20;
/// The accepted content types, for servers that offer a page in several forms.
const ACCEPT: &str =
    "text/markdown, text/html;q=0.9, application/json;q=0.9, text/plain;q=0.9, */*;q=0.5";

const TIMEOUTS: HttpTimeouts = HttpTimeouts {
    connect: Duration::from_secs(10),
    first_byte: Duration::from_secs(30),
    idle: Duration::from_secs(30),
    total: Duration::from_secs(30),
};

/// The configuration and state of the web tools.
pub struct WebAccess {
    pub policy: Arc<Policy>,
    pub provenance: Arc<ProvenanceTracker>,
    pub allowed_hosts: AllowedHosts,
    /// Address ranges that may be reached although they are not public.
    pub allowed_ranges: Vec<IpRange>,
    /// True if only this machine may be reached.
    pub offline: bool,
    pub proxy: Option<LazySecret>,
    pub user_agent: Option<String>,
    /// Hosts whose addresses are known without a DNS query.
    pub test_dns: TestHosts,
    /// Maximum characters that the session keeps of a result.
    pub max_result_chars: usize,
    pub cache: PageCache,
    /// The CA certificates. The proxy is not used.
    pub network: Network,
    pub env: Env,
    /// The service that reads public pages, if the user has named one.
    pub reader: Option<PageReader>,
}

impl WebAccess {
    /// Fetches the address that the model wrote. If requests are limited and it was fetched before, there is no request.
    pub(crate) fn fetch(&self, address: &str) -> Result<Arc<FetchedContent>, ToolError> {
        let first_url =
            web_url::parse(addresses::strip_delimiters(address)).map_err(ToolError::NothingRead)?;
        self.check_rules(&first_url)?;
        // A long page is read in parts, also when the limit is reached meanwhile. Pages of hosts that the user named are fetched anew.
        if let Ok(AddressTrust::Verbatim) | Err(_) = self.check_provenance(&first_url)
            && let Some(page) = self.cache.find(&first_url)
        {
            return Ok(page);
        }
        let mut url = first_url.clone();
        self.fetch_following_redirects(&mut url)
            .map(|page| self.cache.insert(&first_url, page))
            .map_err(|failure| match failure {
                // The refusal names the target, which the server chose.
                ToolError::Denied(refusal) if url != first_url => {
                    let message =
                        format!("`{first_url}` redirects to another address: {}", refusal.message);
                    ToolError::DeniedDuringCall {
                        refusal: Refusal { message, ..refusal },
                        withheld: None,
                    }
                }
                ToolError::NothingRead(message) if url != first_url => ToolError::Failed(message),
                other => other,
            })
    }

    /// Fetches `url`, and follows redirects. `url` is set to the last address reached.
    fn fetch_following_redirects(&self, url: &mut Url) -> Result<FetchedContent, ToolError> {
        let end = signal::now().saturating_add(TIMEOUTS.total);
        let mut trust = self.provenance.admit_request(url, &self.allowed_hosts)?;
        for _ in 0..=MAX_REDIRECTS {
            let remaining = end.saturating_sub(signal::now());
            if remaining.is_zero() {
                return Err(
                    format!("`{url}`: timed out after {} s", TIMEOUTS.total.as_secs()).into()
                );
            }
            let http = self.client(url, remaining)?;
            let response = http
                .get(url, &[("accept".into(), ACCEPT.into())])
                .map_err(|error| fetch_error(url, &error))?;
            match redirect_target(url, &response)? {
                Some(next) => {
                    let decision = self.check_rules(&next).and_then(|()| {
                        self.provenance.admit_redirect(&next, &self.allowed_hosts, trust)
                    });
                    trust = decision.map_err(|refusal| {
                        let message = format!("`{url}` redirects to `{next}`; {}", refusal.message);
                        ToolError::DeniedDuringCall {
                            refusal: Refusal { message, ..refusal },
                            withheld: None,
                        }
                    })?;
                    *url = next;
                }
                None => return self.read_page(url.clone(), response, trust),
            }
        }
        Err(format!("`{url}` redirects more than {MAX_REDIRECTS} times").into())
    }

    /// Reads the page at `url`, which has answered with `response`: by the reader service if it may have the address, else directly.
    fn read_page(
        &self,
        url: Url,
        response: Response,
        trust: AddressTrust,
    ) -> Result<FetchedContent, ToolError> {
        let Some(reader) = &self.reader else {
            return read_body(url, response, trust);
        };
        if !is_page(&response) || reader::has_credentials(&url) || !self.is_public(&url)? {
            return read_body(url, response, trust);
        }
        let http = self.configured_client(reader::TIMEOUT)?;
        let result = reader.read(&http, &url);
        if signal::check().is_err() {
            return Err("interrupted: the run is ending".into());
        }
        match result {
            Ok(text) => Ok(reader.content(url, text, trust.is_safe())),
            Err(cause) => read_body(url, response, trust).map(|content| FetchedContent {
                note: Some(format!("{cause}, so the page was read directly")),
                ..content
            }),
        }
    }

    /// True if all addresses of the host of `url` are public, whatever else the user allows.
    fn is_public(&self, url: &Url) -> Result<bool, ToolError> {
        let filter = SsrfFilter { allowed_ranges: Vec::new(), ..self.ssrf_filter(url) };
        let http = Http::with_ssrf_filter(TIMEOUTS, filter, &self.test_dns, &self.network);
        Ok(self.with_client_settings(http)?.check_addresses(url).is_ok())
    }

    /// Checks the address that the model wrote, without requesting it.
    pub fn check_address(&self, address: &str) -> Result<(), ToolError> {
        let url = web_url::parse(addresses::strip_delimiters(address))
            .map_err(|message| ToolError::Denied(Refusal::new(message)))?;
        self.check_rules(&url)?;
        self.check_provenance(&url)?;
        let result = self.ssrf_filter(&url).check_url(&url);
        result.map_err(|error| fetch_error(&url, &error))
    }

    /// Refuses `text` that would be sent out and contains an API key.
    pub fn check_secrets(text: &str) -> Result<(), Refusal> {
        if contains_key(text) {
            Err(Refusal::new("it contains an API key, which must not leave this machine"))
        } else {
            Ok(())
        }
    }

    /// Applies the policy's rules to `url`. The policy has checked the text that the model wrote; rules about hosts
    /// apply to the parsed address, and to the targets of redirects.
    fn check_rules(&self, url: &Url) -> Result<(), Refusal> {
        match self.policy.decide("web_fetch", &json!({ "url": url.as_str() })) {
            PolicyDecision::Deny(refusal) => Err(refusal),
            // The call has the approval that it needs, and a redirect belongs to the call.
            PolicyDecision::Allow(_) | PolicyDecision::Ask(_) => Self::check_secrets(url.as_str()),
        }
    }

    fn check_provenance(&self, url: &Url) -> Result<AddressTrust, Refusal> {
        self.provenance.check_address(url, &self.allowed_hosts)
    }

    /// The restrictions of a client for `url` and no other address.
    fn ssrf_filter(&self, url: &Url) -> SsrfFilter {
        let (host, port) = (url.host_str().unwrap_or_default(), url.port_or_known_default());
        let literal = host.trim_matches(['[', ']']);
        let is_explicit = port.is_some_and(|port| {
            let ip_address = literal.parse();
            ip_address.is_ok_and(|address| {
                self.policy.is_explicit_address(address, port, web_url::WEB_PORTS)
            })
        });
        let port = port.filter(|port| self.policy.net.grants_port(host, *port));
        let mut allowed_ranges = self.allowed_ranges.clone();
        // The exception is only for this literal address, not for names that resolve to it.
        if is_explicit && let Ok(range) = literal.parse() {
            allowed_ranges.push(range);
        }
        SsrfFilter {
            allowed_ranges,
            allowed_ports: port.map(|port| (host.to_owned(), port)).into_iter().collect(),
            offline: self.offline,
        }
    }

    fn client(&self, url: &Url, timeout: Duration) -> Result<Http, ToolError> {
        let filter = self.ssrf_filter(url);
        let timeouts = HttpTimeouts { total: timeout, ..TIMEOUTS };
        self.with_client_settings(Http::with_ssrf_filter(
            timeouts,
            filter,
            &self.test_dns,
            &self.network,
        ))
    }

    /// A client for an address that the user has configured, wherever it is.
    pub(crate) fn configured_client(&self, total: Duration) -> Result<Http, ToolError> {
        let timeouts = HttpTimeouts { total, ..TIMEOUTS };
        self.with_client_settings(Http::new(timeouts, self.offline, &self.network).without_proxy())
    }

    fn with_client_settings(&self, http: Http) -> Result<Http, ToolError> {
        let proxy = self.proxy.as_ref().map(LazySecret::resolve).transpose();
        let client = proxy.and_then(|proxy| {
            http.with_user_agent(self.user_agent.clone()).with_proxy(proxy, "`tools.web.proxy`")
        });
        client.map_err(|error| format!("{error:#}").into())
    }
}

/// The target of a redirect from `url`; `None` if `response` is not one.
fn redirect_target(url: &Url, response: &Response) -> Result<Option<Url>, ToolError> {
    if ![301, 302, 303, 307, 308].contains(&response.status) {
        return Ok(None);
    }
    // A `location` header that is not ASCII is treated as missing.
    let location = response.header("location");
    let Some(target) = location.and_then(|location| url.join(location).ok()) else {
        return Err(format!("`{url}` redirects without a valid address").into());
    };
    let next = web_url::parse(target.as_str())
        .map_err(|error| format!("`{url}` redirects to an unsupported address: {error}"))?;
    if url.scheme() == "https" && next.scheme() == "http" {
        return Err(format!(
            "`{url}` redirects to `{next}` without encryption, which is not followed"
        )
        .into());
    }
    Ok(Some(next))
}

/// True if a reader service may do better with what has answered: a page in HTML, or a server that turns programs away.
fn is_page(response: &Response) -> bool {
    let content_type = response.header("content-type").unwrap_or_default();
    let is_success = (200..300).contains(&response.status);
    is_success && attach::charset::is_html(&content_type.to_ascii_lowercase())
        || [403, 429, 503].contains(&response.status)
}

/// Reads the body of `response`, whose request was allowed because of `trust`.
fn read_body(
    url: Url,
    mut response: Response,
    trust: AddressTrust,
) -> Result<FetchedContent, ToolError> {
    if !(200..300).contains(&response.status) {
        return Err(format!("the server returned {} for `{url}`", response.status).into());
    }
    let mut bytes = Vec::new();
    let mut read = |bytes: &mut Vec<u8>, limit: usize| {
        let result = response.read_more(bytes, limit as u64 + 1, None);
        result.map_err(|error| format!("`{url}`: {error:#}"))
    };
    read(&mut bytes, MAX_TEXT_BYTES)?;
    let mut limit = MAX_TEXT_BYTES;
    if attach::is_document(&bytes) || image_type(&bytes).is_some() {
        limit = MAX_BINARY_BYTES;
        read(&mut bytes, MAX_BINARY_BYTES)?;
        if bytes.len() > MAX_BINARY_BYTES {
            return Err(format!("`{url}` is larger than {} MiB", MAX_BINARY_BYTES >> 20).into());
        }
    }
    let content_type = response.header("content-type").unwrap_or_default();
    let content_type = content_type.to_ascii_lowercase();
    let is_truncated = bytes.len() > limit;
    bytes.truncate(limit);
    Ok(FetchedContent {
        url,
        content_type,
        bytes,
        is_truncated,
        is_safe_address: trust.is_safe(),
        note: None,
    })
}

/// The failure of a request, as text for the model.
fn fetch_error(url: &Url, error: &anyhow::Error) -> ToolError {
    if error.is::<Stop>() {
        return "interrupted: the run is ending".into();
    }
    if exit_for(error) != Exit::Refused {
        let message = format!("`{url}` cannot be fetched: {error:#}");
        return if error.is::<ConnectError>() {
            ToolError::NothingRead(message)
        } else {
            ToolError::Failed(message)
        };
    }
    let message = format!("`{url}` is not fetched: {error:#}");
    ToolError::Denied(match next_step(error) {
        Some(NextStep::AddToConfig(key)) => Refusal::new(format!(
            "{message}; to allow it, the user adds its address to `{key}` in the config file"
        )),
        Some(NextStep::GrantHost(host)) => {
            let suggested_flag = Some(format!("--net={}", quote(host)));
            Refusal { message, suggested_flag, names_flag: false }
        }
        _ => Refusal::new(message),
    })
}
