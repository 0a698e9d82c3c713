//! The common part of the web tools: which addresses may be requested, and how.
//!
//! Each address on the way is checked in the same way: by the policy's rules, by the provenance of its text, and by the
//! location of the host. The target of a redirect is chosen by the server. If the model wrote no part of the original
//! address, the redirect is followed, since it can send out no more than the request did. If the model may have
//! composed the address, and only its host is allowed, the target must pass the check itself: many hosts redirect to
//! any address that a parameter names, which would be a way to send data out.

use super::Failure;
use crate::attach::pdf;
use crate::error::{Exit, Stop, exit_of, hint_of};
use crate::policy::seen::addresses;
use crate::policy::seen::{Free, Grounds, LEADS_ON, Seen};
use crate::policy::{Decision, Policy, Refusal};
use crate::shell_quote::quoted;
use crate::sys::address::Range;
use crate::sys::env::Env;
use crate::sys::hosts::Hosts;
use crate::sys::http::{Http, Response, SSRF_ALLOWLIST_KEY, SsrfGuard, Timeouts, read_failure};
use crate::sys::input::image_type;
use crate::sys::secret::{Secret, leaks};
use crate::sys::{signal, web_url};
use serde_json::json;
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;
use url::Url;

pub(super) mod article;
pub(super) mod engine;

/// Maximum number of redirects.
const REDIRECTS: usize = 5;
/// Maximum bytes taken of a text, counted after decompression: more than is ever read of a page.
const LIMIT: usize = 2 << 20;
/// Maximum bytes of an image or a PDF, which are useless if cut.
const WHOLE: usize = 16 << 20;
/// The accepted content types, for servers that offer a page in several forms.
const ACCEPT: &str =
    "text/markdown, text/html;q=0.9, application/json;q=0.9, text/plain;q=0.9, */*;q=0.5";

const TIMEOUTS: Timeouts = Timeouts {
    connect: Duration::from_secs(10),
    first_byte: Duration::from_secs(30),
    idle: Duration::from_secs(30),
    total: Duration::from_secs(30),
};

/// The configuration and state of the web tools.
pub struct Web {
    pub policy: Arc<Policy>,
    pub seen: Arc<Seen>,
    pub free: Free,
    /// Address ranges that may be reached although they are not public.
    pub spared: Vec<Range>,
    /// True if only this machine may be reached.
    pub offline: bool,
    pub proxy: Option<Secret>,
    pub user_agent: Option<String>,
    /// Hosts whose addresses are known without a DNS query.
    pub hosts: Hosts,
    /// Maximum characters that the session keeps of a result.
    pub limit: usize,
    pub env: Env,
}

/// The content fetched from an address.
pub(super) struct Fetched {
    /// The address after all redirects.
    pub(super) url: Url,
    /// The server's `content-type`, in lower case.
    pub(super) kind: String,
    pub(super) bytes: Vec<u8>,
    /// True if the content was longer and has been cut.
    pub(super) cut: bool,
}

impl Web {
    /// Fetches the address that the model wrote.
    pub(super) fn fetch(&self, given: &str) -> Result<Fetched, Failure> {
        let first = web_url::parse(addresses::bare(given))?;
        let mut url = first.clone();
        self.follow(&mut url).map_err(|failure| match failure {
            // The refusal names the target, which the server chose. Say that it was a redirect, so that the target
            // cannot be taken for our own text.
            Failure::Denied(refusal) if url != first && !refusal.words.contains(LEADS_ON) => {
                let message = format!("`{first}`{LEADS_ON}another address: {}", refusal.words);
                Refusal {
                    words: message,
                    ..refusal
                }
                .into()
            }
            other => other,
        })
    }

    /// Fetches `url`, and follows redirects. `url` is set to the last address reached.
    fn follow(&self, url: &mut Url) -> Result<Fetched, Failure> {
        let end = signal::now().saturating_add(TIMEOUTS.total);
        let mut grounds = self.judge(url)?;
        for _ in 0..=REDIRECTS {
            let left = end.saturating_sub(signal::now());
            if left.is_zero() {
                return Err(
                    format!("`{url}`: timed out after {} s", TIMEOUTS.total.as_secs()).into(),
                );
            }
            let http = self.client(url, left)?;
            let answer = http
                .get(url, &[("accept".into(), ACCEPT.into())])
                .map_err(|error| failed(url, &error))?;
            match next(url, &answer)? {
                Some(next) => {
                    self.rules(&next)?;
                    if !grounds.vouch() {
                        grounds = self.consider(&next).map_err(|refusal| Refusal {
                            words: format!("`{url}`{LEADS_ON}`{next}`; {}", refusal.words),
                            ..refusal
                        })?;
                    }
                    *url = next;
                }
                None => return taken(url.clone(), answer),
            }
        }
        Err(format!("`{url}` redirects more than {REDIRECTS} times").into())
    }

    /// Checks the address that the model wrote, without requesting it.
    pub(super) fn foresee(&self, given: &str) -> Result<(), Failure> {
        let url = web_url::parse(addresses::bare(given))
            .map_err(|message| Failure::Denied(Refusal::of(message)))?;
        self.judge(&url)?;
        let judged = self.ssrf_guard(&url).check_url(&url);
        judged.map_err(|error| failed(&url, &error))
    }

    /// Refuses `text` that is to be sent out and contains a key of ours.
    pub(super) fn keeps_secrets(text: &str) -> Result<(), Refusal> {
        match leaks(text) {
            true => Err(Refusal::of(
                "it contains an API key, which must not leave this machine",
            )),
            false => Ok(()),
        }
    }

    /// Decides if `url` may be requested, and on what grounds.
    fn judge(&self, url: &Url) -> Result<Grounds, Refusal> {
        self.rules(url)?;
        self.consider(url)
    }

    /// Applies the policy's rules to `url`. The policy has checked the text that the model wrote; rules about hosts
    /// apply to the parsed address, and to the targets of redirects.
    fn rules(&self, url: &Url) -> Result<(), Refusal> {
        match self
            .policy
            .decide("web_fetch", &json!({ "url": url.as_str() }))
        {
            Decision::Deny(refusal) => Err(refusal),
            _ => Self::keeps_secrets(url.as_str()),
        }
    }

    fn consider(&self, url: &Url) -> Result<Grounds, Refusal> {
        self.seen.allows(url, &self.free)
    }

    /// The restrictions of a client for `url` and no other address.
    fn ssrf_guard(&self, url: &Url) -> SsrfGuard {
        let (host, port) = (
            url.host_str().unwrap_or_default(),
            url.port_or_known_default(),
        );
        let bare = host.trim_matches(['[', ']']);
        let typed = port.is_some_and(|port| {
            let found = bare.parse();
            found.is_ok_and(|address| self.policy.has_typed(address, port, web_url::PORTS))
        });
        let port = port.filter(|port| self.policy.net.grants_port(host, *port));
        let mut spared = self.spared.clone();
        // The exception is for this literal address only; it does not extend to names that resolve to it.
        spared.extend(bare.parse::<Range>().ok().filter(|_| typed));
        SsrfGuard {
            allowed_ranges: spared,
            allowed_ports: port
                .map(|port| (host.to_owned(), port))
                .into_iter()
                .collect(),
            offline: self.offline,
        }
    }

    fn client(&self, url: &Url, left: Duration) -> Result<Http, Failure> {
        let guard = self.ssrf_guard(url);
        let timeouts = Timeouts {
            total: left,
            ..TIMEOUTS
        };
        self.dressed(Http::guarded(timeouts, guard, &self.hosts, &self.env))
    }

    /// A client for an address that the user has configured, wherever it is.
    pub(super) fn own_client(&self, total: Duration) -> Result<Http, Failure> {
        let timeouts = Timeouts { total, ..TIMEOUTS };
        self.dressed(Http::new(timeouts, self.offline, &self.env).without_proxy())
    }

    fn dressed(&self, http: Http) -> Result<Http, Failure> {
        http.with_user_agent(self.user_agent.clone())
            .with_proxy(self.proxy.as_ref(), "`tools.web.proxy`")
            .map_err(|error| error.to_string().into())
    }
}

/// The target of a redirect from `url`; `None` if `answer` is not one.
fn next(url: &Url, answer: &Response) -> Result<Option<Url>, Failure> {
    if ![301, 302, 303, 307, 308].contains(&answer.status) {
        return Ok(None);
    }
    // A `location` header that is not ASCII counts as missing.
    let place = answer.header("location");
    let Some(whole) = place.and_then(|place| url.join(place).ok()) else {
        return Err(format!("`{url}` redirects without a valid address").into());
    };
    let next = web_url::parse(whole.as_str())
        .map_err(|error| format!("`{url}` redirects to an unsupported address: {error}"))?;
    if url.scheme() == "https" && next.scheme() == "http" {
        return Err(format!(
            "`{url}` redirects to `{next}` without encryption, which is not followed"
        )
        .into());
    }
    Ok(Some(next))
}

/// Reads the body of `answer`.
fn taken(url: Url, mut answer: Response) -> Result<Fetched, Failure> {
    if !(200..300).contains(&answer.status) {
        return Err(format!("the server returned {} for `{url}`", answer.status).into());
    }
    let mut bytes = Vec::new();
    let mut read = |bytes: &mut Vec<u8>, limit: usize| {
        let more = (limit + 1).saturating_sub(bytes.len()) as u64;
        let read = answer.body.by_ref().take(more).read_to_end(bytes);
        read.map_err(|error| format!("`{url}`: {}", read_failure(&error)))
    };
    read(&mut bytes, LIMIT)?;
    let mut limit = LIMIT;
    if pdf::is_one(&bytes) || image_type(&bytes).is_some() {
        limit = WHOLE;
        read(&mut bytes, WHOLE)?;
        if bytes.len() > WHOLE {
            return Err(format!("`{url}` is larger than {} MiB", WHOLE >> 20).into());
        }
    }
    let kind = answer.header("content-type").unwrap_or_default();
    let kind = kind.to_ascii_lowercase();
    let cut = bytes.len() > limit;
    bytes.truncate(limit);
    Ok(Fetched {
        url,
        kind,
        bytes,
        cut,
    })
}

/// The failure of a request, as text for the model.
fn failed(url: &Url, error: &anyhow::Error) -> Failure {
    if error.is::<Stop>() {
        return "interrupted: the run is ending".into();
    }
    if exit_of(error) != Exit::Refused {
        return format!("`{url}` cannot be fetched: {error:#}").into();
    }
    let message = format!("`{url}` is not fetched: {error:#}");
    Failure::Denied(match hint_of(error) {
        Some(SSRF_ALLOWLIST_KEY) => Refusal::of(format!(
            "{message}; to allow it, the user adds its address to `{SSRF_ALLOWLIST_KEY}` in the config file"
        )),
        flag => Refusal {
            words: message,
            grant: flag.map(|flag| match flag.split_once('=') {
                Some((name, host)) => format!("{name}={}", quoted(host)),
                None => flag.to_owned(),
            }),
        },
    })
}
