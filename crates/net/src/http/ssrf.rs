//! Checks which addresses a client may connect to: the defence against server-side request forgery (SSRF).
//!
//! A host name is refused if any of its addresses is not allowed, even if others are: the owner of a name can make it
//! resolve to an internal address.

use crate::ip_ranges::{IpRange, is_public};
use crate::web_url::{self, is_loopback, port_or_default, to_uri, without_brackets};
use anyhow::Context;
use nanobot_base::error::{Exit, NextStep, fail, fail_with_step};
use std::net::{IpAddr, SocketAddr};
use ureq::http::Uri;
use url::Url;

/// The config key that allows non-public addresses.
const SSRF_ALLOWLIST_KEY: &str = "tools.ssrfWhitelist";

/// The addresses that a client may reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AddressPolicy {
    /// All addresses.
    Any,
    /// Loopback addresses. The client checks this itself, by the host of the URL.
    Loopback,
    /// Public addresses, over TLS.
    Public {
        /// Also allow loopback addresses, without TLS. For tests.
        or_loopback: bool,
    },
    /// Public addresses on web ports that do not belong to a local host name, and the additions of the filter.
    Filtered(SsrfFilter),
}

/// The address policy for URLs that a model or a web page may have written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SsrfFilter {
    /// Non-public address ranges that the user has allowed.
    pub allowed_ranges: Vec<IpRange>,
    /// Allowed pairs of host and port, in addition to [`web_url::WEB_PORTS`].
    pub allowed_ports: Vec<(String, u16)>,
    /// Refuse all addresses except loopback addresses.
    pub offline: bool,
}

/// The error for an address that the policy does not allow.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub(super) struct AddressError {
    pub(super) message: String,
    /// The step that would allow the address.
    next_step: Option<NextStep>,
}

impl AddressError {
    pub(super) fn into_error(self) -> anyhow::Error {
        match self.next_step {
            Some(step) => fail_with_step(Exit::Refused, self.message, step),
            None => fail(Exit::Refused, self.message),
        }
    }
}

impl From<AddressError> for ureq::Error {
    fn from(error: AddressError) -> Self {
        Self::Other(Box::new(error))
    }
}

impl AddressPolicy {
    /// Checks that a client may connect to `addresses`, to which the host of `uri` resolved.
    pub(super) fn check(&self, uri: &Uri, addresses: &[SocketAddr]) -> Result<(), AddressError> {
        let or_loopback = match self {
            Self::Any | Self::Loopback => return Ok(()),
            Self::Public { or_loopback } => *or_loopback,
            Self::Filtered(filter) => return filter.check(uri, addresses),
        };
        let host = uri.host().unwrap_or_default();
        let is_allowed = |address: IpAddr| or_loopback && address.is_loopback();
        let mut ips = addresses.iter().map(SocketAddr::ip);
        if let Some(address) = ips.clone().find(|ip| !is_public(*ip) && !is_allowed(*ip)) {
            let is_literal = without_brackets(host).parse() == Ok(address);
            let message = if is_literal {
                format!("`{host}` is not a public address")
            } else {
                format!("`{host}` resolves to {address}, which is not a public address")
            };
            return Err(AddressError { message, next_step: None });
        }
        if uri.scheme_str() == Some("https") || (or_loopback && ips.all(is_allowed)) {
            Ok(())
        } else {
            Err(AddressError { message: format!("`{uri}` does not use `https`"), next_step: None })
        }
    }
}

impl SsrfFilter {
    /// Checks `url` without network access: its port, its name, and its address if it is an IP address.
    ///
    /// # Errors
    /// The error that a request for it would return.
    pub fn check_url(&self, url: &Url) -> anyhow::Result<()> {
        let uri = to_uri(url).context("parse the URL")?;
        let address = without_brackets(url.host_str().unwrap_or_default()).parse().ok();
        let addresses: Vec<SocketAddr> = address
            .map(|address: IpAddr| SocketAddr::new(address, port_or_default(&uri)))
            .into_iter()
            .collect();
        self.check(&uri, &addresses).map_err(AddressError::into_error)
    }

    /// Like [`AddressPolicy::check`]. Before the host is resolved, `addresses` is empty. An error then means that no address would be
    /// allowed.
    pub(super) fn check(&self, uri: &Uri, addresses: &[SocketAddr]) -> Result<(), AddressError> {
        let Self { allowed_ranges, allowed_ports, offline } = self;
        let host = uri.host().unwrap_or_default();
        let is_allowed =
            |address: &SocketAddr| allowed_ranges.iter().any(|range| range.contains(address.ip()));
        let may_be_allowed = if addresses.is_empty() {
            !allowed_ranges.is_empty()
        } else {
            addresses.iter().all(is_allowed)
        };
        let port = port_or_default(uri);
        let is_other_port = !web_url::WEB_PORTS.contains(&port);
        let refuse = |message, next_step| Err(AddressError { message, next_step });
        let is_here = || {
            // A lookup would tell another name to other machines.
            is_loopback(host) && addresses.iter().all(|address| address.ip().is_loopback())
        };
        if *offline && !is_here() {
            return refuse(format!("`--offline` forbids connecting to `{host}`"), None);
        }
        // The owner of a name controls its addresses, so the hint for a name is a range of addresses and not `--net`.
        let add_to_list = || Some(NextStep::AddToConfig(SSRF_ALLOWLIST_KEY));
        if web_url::is_local_name(host) && !may_be_allowed {
            let message = format!("`{host}` is a local host name");
            return refuse(message, add_to_list());
        }
        for socket_address in addresses {
            let address = socket_address.ip();
            if !is_public(address) && !is_allowed(socket_address) {
                return if without_brackets(host).parse() == Ok(address) {
                    refuse(
                        format!("`{host}` is not a public address"),
                        Some(NextStep::GrantHost(if is_other_port {
                            format!("{host}:{port}")
                        } else {
                            host.to_owned()
                        })),
                    )
                } else {
                    refuse(
                        format!("`{host}` resolves to {address}, which is not a public address"),
                        add_to_list(),
                    )
                };
            }
        }
        // The port of an IP address is checked only together with the address: that the address is not public is the
        // more important reason.
        let is_port_deferred =
            addresses.is_empty() && without_brackets(host).parse::<IpAddr>().is_ok();
        let is_granted = |(name, granted): &(String, u16)| name == host && *granted == port;
        if !is_port_deferred
            && is_other_port
            && !allowed_ports.iter().any(is_granted)
            && !may_be_allowed
        {
            let message = format!("port {port} of `{host}` is not a web port");
            return refuse(message, Some(NextStep::GrantHost(format!("{host}:{port}"))));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{AddressPolicy, SsrfFilter};
    use std::net::SocketAddr;
    use ureq::http::Uri;

    #[test]
    fn every_resolved_address_must_be_public() {
        let check = |url: &str, addresses: &[&str], or_loopback: bool, expect: bool| {
            let uri: Uri = url.parse().unwrap();
            let addresses: Vec<_> = addresses
                .iter()
                .map(|address| SocketAddr::new(address.parse().unwrap(), 1))
                .collect();
            let result = AddressPolicy::Public { or_loopback }.check(&uri, &addresses);
            assert_eq!(result.is_ok(), expect, "{url} {addresses:?}");
            assert!(AddressPolicy::Any.check(&uri, &addresses).is_ok());
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
    fn names_addresses_and_ports_are_checked() {
        let filter = SsrfFilter {
            allowed_ranges: vec!["127.0.0.0/8".parse().unwrap()],
            allowed_ports: vec![("a.example".into(), 9000)],
            offline: false,
        };
        let check = |filter: &SsrfFilter,
                     url: &str,
                     addresses: &[&str],
                     expect: Result<(), &str>| {
            let uri: Uri = url.parse().unwrap();
            let addresses: Vec<_> = addresses
                .iter()
                .map(|address| SocketAddr::new(address.parse().unwrap(), 1))
                .collect();
            let result = filter.check(&uri, &addresses).map_err(|error| error.to_string());
            match (&result, expect) {
                (Ok(()), Ok(())) => {}
                (Err(message), Err(part)) => assert!(message.contains(part), "{url}: {message}"),
                _ => panic!("{url} {addresses:?}: {result:?}"),
            }
        };
        let default_filter = SsrfFilter::default();
        check(&default_filter, "http://a.example/", &[], Ok(()));
        check(&default_filter, "https://a.example:8443/", &["1.1.1.1", "2606:4700::1"], Ok(()));
        check(
            &default_filter,
            "http://a.example/",
            &["1.1.1.1", "10.0.0.1"],
            Err("resolves to 10.0.0.1"),
        );
        check(
            &default_filter,
            "http://10.0.0.1/",
            &["10.0.0.1"],
            Err("`10.0.0.1` is not a public"),
        );
        check(&default_filter, "http://a.example:9000/", &[], Err("port 9000"));
        check(&default_filter, "http://a.example:22/", &[], Err("port 22"));
        check(&default_filter, "http://localhost/", &[], Err("is a local host name"));
        check(&default_filter, "http://x.internal/", &["1.1.1.1"], Err("is a local host name"));
        check(&filter, "http://a.example:9000/", &["1.1.1.1"], Ok(()));
        check(&filter, "http://b.example:9000/", &["1.1.1.1"], Err("port 9000"));
        check(&filter, "http://b.example:9000/", &["127.0.0.1"], Ok(()));
        check(&filter, "http://b.example/", &["127.0.0.1", "10.0.0.1"], Err("10.0.0.1"));
        check(&filter, "http://localhost:9000/", &["127.0.0.1"], Ok(()));
        check(&filter, "http://x.local/", &["127.0.0.1", "1.1.1.1"], Err("is a local host name"));
        let offline = SsrfFilter { offline: true, ..filter };
        check(&offline, "http://a.example/", &[], Err("--offline"));
        check(&offline, "http://1.1.1.1/", &["1.1.1.1"], Err("--offline"));
        check(&offline, "http://localhost/", &["127.0.0.1"], Ok(()));
        check(&offline, "http://localhost/", &["1.1.1.1"], Err("--offline"));
    }
}
