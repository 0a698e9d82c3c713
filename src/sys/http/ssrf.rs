//! The policy on reachable addresses: the defence against server-side request forgery (SSRF).
//!
//! A host with any non-public address is refused entirely, since an attacker may have mixed that address in.

use crate::error::{Exit, fail, fail_with_hint};
use crate::sys::ip_ranges::{IpRange, is_public};
use crate::sys::web_url::{self, port_or_default, to_uri, without_brackets};
use anyhow::Context;
use std::net::{IpAddr, SocketAddr};
use ureq::http::Uri;
use url::Url;

/// The config key that allows non-public addresses.
pub const SSRF_ALLOWLIST_KEY: &str = "tools.ssrfWhitelist";

/// The addresses that a client may reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AddressPolicy {
    Any,
    Loopback,
    /// The public internet, over TLS.
    Public {
        /// Also allow loopback addresses, with any scheme: for tests.
        or_loopback: bool,
    },
    /// The public internet on its usual ports, without names of nearby machines.
    Guarded(SsrfGuard),
}

/// Restrictions of a client for URLs that a model or a web page may have written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SsrfGuard {
    /// Non-public address ranges that the user has allowed.
    pub allowed_ranges: Vec<IpRange>,
    /// Allowed pairs of host and port, in addition to [`web_url::WEB_PORTS`].
    pub allowed_ports: Vec<(String, u16)>,
    /// Allow loopback addresses only.
    pub offline: bool,
}

/// The refusal of an address, with a message.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub(super) struct AddressError {
    pub(super) message: String,
    /// The flag or config key that would allow it.
    hint: Option<String>,
}

impl AddressError {
    pub(super) fn into_error(self) -> anyhow::Error {
        let Self {
            message,
            hint: grant,
        } = self;
        match grant {
            Some(grant) => fail_with_hint(Exit::Refused, message, grant),
            None => fail(Exit::Refused, message),
        }
    }

    /// The refusal contained in `error`, if any.
    pub(super) fn find(error: &ureq::Error) -> Option<&Self> {
        let ureq::Error::Other(inner) = error else {
            return None;
        };
        inner.downcast_ref()
    }
}

impl From<AddressError> for ureq::Error {
    fn from(refused: AddressError) -> Self {
        Self::Other(Box::new(refused))
    }
}

impl AddressPolicy {
    /// Checks that `uri` may be reached at `found`, the addresses of its host.
    pub(super) fn check(&self, uri: &Uri, found: &[SocketAddr]) -> Result<(), AddressError> {
        let or_loopback = match self {
            Self::Any | Self::Loopback => return Ok(()),
            Self::Public { or_loopback } => *or_loopback,
            Self::Guarded(guard) => return guard.check(uri, found),
        };
        let host = uri.host().unwrap_or_default();
        let is_allowed = |address: IpAddr| or_loopback && address.is_loopback();
        let mut found = found.iter().map(SocketAddr::ip);
        if let Some(address) = found.clone().find(|ip| !is_public(*ip) && !is_allowed(*ip)) {
            let alone = without_brackets(host).parse() == Ok(address);
            let message = match alone {
                true => format!("`{host}` is not a public address"),
                false => format!("`{host}` is at {address}, which is not a public address"),
            };
            return Err(AddressError {
                message,
                hint: None,
            });
        }
        match uri.scheme_str() == Some("https") || (or_loopback && found.all(is_allowed)) {
            true => Ok(()),
            false => Err(AddressError {
                message: format!("`{uri}` is not `https`"),
                hint: None,
            }),
        }
    }
}

impl SsrfGuard {
    /// Checks `url` without network access: its port, its name, and its address if it is an IP address.
    ///
    /// # Errors
    /// The error that a request for it would return.
    pub fn check_url(&self, url: &Url) -> anyhow::Result<()> {
        let uri = to_uri(url).context("parse the URL")?;
        let address = without_brackets(url.host_str().unwrap_or_default())
            .parse()
            .ok();
        let found: Vec<SocketAddr> = address
            .map(|address: IpAddr| SocketAddr::new(address, port_or_default(&uri)))
            .into_iter()
            .collect();
        self.check(&uri, &found).map_err(AddressError::into_error)
    }

    /// Checks as [`AddressPolicy::check`] does. If `found` is empty, checks that some result of a lookup could be
    /// allowed.
    pub(super) fn check(&self, uri: &Uri, found: &[SocketAddr]) -> Result<(), AddressError> {
        let Self {
            allowed_ranges,
            allowed_ports,
            offline,
        } = self;
        let host = uri.host().unwrap_or_default();
        let is_allowed =
            |at: &SocketAddr| allowed_ranges.iter().any(|range| range.contains(at.ip()));
        let may_be_allowed = match found.is_empty() {
            true => !allowed_ranges.is_empty(),
            false => found.iter().all(is_allowed),
        };
        let port = port_or_default(uri);
        let is_odd = !web_url::WEB_PORTS.contains(&port);
        let refuse = |message: String, grant: Option<String>| {
            Err(AddressError {
                message,
                hint: grant,
            })
        };
        // The address of a name is under the control of others, so only ranges of addresses can be granted.
        let by_range = || Some(SSRF_ALLOWLIST_KEY.to_owned());
        if web_url::is_local_name(host) && !may_be_allowed {
            let message = format!("`{host}` is a local host name");
            return refuse(message, by_range());
        }
        for at in found {
            let address = at.ip();
            if *offline && !address.is_loopback() {
                let message = format!("`--offline` forbids connecting to `{host}`");
                return refuse(message, None);
            }
            if !is_public(address) && !is_allowed(at) {
                return match without_brackets(host).parse() == Ok(address) {
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
        // The port of an IP address is checked once the address is in `found`: being non-public is the more important
        // reason.
        let waits = found.is_empty() && without_brackets(host).parse::<IpAddr>().is_ok();
        let granted = |(name, granted): &(String, u16)| name == host && *granted == port;
        if !waits && is_odd && !allowed_ports.iter().any(granted) && !may_be_allowed {
            let message = format!("port {port} of `{host}` is not a web port");
            return refuse(message, Some(format!("--net={host}:{port}")));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{AddressPolicy, SsrfGuard};
    use std::net::SocketAddr;
    use ureq::http::Uri;

    #[test]
    fn a_host_is_what_it_resolves_to() {
        let check = |url: &str, found: &[&str], or_loopback: bool, expect: bool| {
            let uri: Uri = url.parse().unwrap();
            let found: Vec<_> = found
                .iter()
                .map(|at| SocketAddr::new(at.parse().unwrap(), 1))
                .collect();
            let checked = AddressPolicy::Public { or_loopback }.check(&uri, &found);
            assert_eq!(checked.is_ok(), expect, "{url} {found:?}");
            assert!(AddressPolicy::Any.check(&uri, &found).is_ok());
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
    fn guarded_addresses() {
        let guard = SsrfGuard {
            allowed_ranges: vec!["127.0.0.0/8".parse().unwrap()],
            allowed_ports: vec![("a.example".into(), 9000)],
            offline: false,
        };
        let check = |guard: &SsrfGuard, url: &str, found: &[&str], expect: Result<(), &str>| {
            let uri: Uri = url.parse().unwrap();
            let found: Vec<_> = found
                .iter()
                .map(|at| SocketAddr::new(at.parse().unwrap(), 1))
                .collect();
            let checked = guard.check(&uri, &found).map_err(|error| error.to_string());
            match (&checked, expect) {
                (Ok(()), Ok(())) => {}
                (Err(message), Err(word)) => assert!(message.contains(word), "{url}: {message}"),
                _ => panic!("{url} {found:?}: {checked:?}"),
            }
        };
        let plain = SsrfGuard::default();
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
        check(
            &plain,
            "http://localhost/",
            &[],
            Err("is a local host name"),
        );
        check(
            &plain,
            "http://x.internal/",
            &["1.1.1.1"],
            Err("is a local host name"),
        );
        check(&guard, "http://a.example:9000/", &["1.1.1.1"], Ok(()));
        check(
            &guard,
            "http://b.example:9000/",
            &["1.1.1.1"],
            Err("port 9000"),
        );
        check(&guard, "http://b.example:9000/", &["127.0.0.1"], Ok(()));
        check(
            &guard,
            "http://b.example/",
            &["127.0.0.1", "10.0.0.1"],
            Err("10.0.0.1"),
        );
        check(&guard, "http://localhost:9000/", &["127.0.0.1"], Ok(()));
        check(
            &guard,
            "http://x.local/",
            &["127.0.0.1", "1.1.1.1"],
            Err("is a local host name"),
        );
        let offline = SsrfGuard {
            offline: true,
            ..guard
        };
        check(
            &offline,
            "http://a.example/",
            &["1.1.1.1"],
            Err("--offline"),
        );
        check(&offline, "http://a.example/", &["127.0.0.1"], Ok(()));
    }
}
