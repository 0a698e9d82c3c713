//! Resolves host names and refuses addresses that the client may not reach.
//!
//! Exactly the returned addresses are connected to; each redirect is resolved again. IP addresses in URLs need no
//! lookup. The system's resolver runs in a thread, since its result cannot be waited for together with a signal.

use super::error::{ConnectError, from_stop};
use super::name_service;
use super::ssrf::AddressPolicy;
use super::timeouts::ExchangeLimits;
use crate::test_dns::TestHosts;
use crate::web_url::{port_or_default, without_brackets};
use nanobot_os::signal;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

/// The capacity of `ureq`'s address list.
const MAX_ADDRESSES: usize = 16;

/// A resolver that checks each address of a host against the policy.
#[derive(Debug)]
pub(super) struct PolicyResolver {
    pub(super) limits: ExchangeLimits,
    pub(super) policy: AddressPolicy,
    /// The URI of the proxy itself, which is not checked, since the user chose it.
    pub(super) proxy: Option<Uri>,
    pub(super) hosts: TestHosts,
}

impl Resolver for PolicyResolver {
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
        self.resolve_checked(uri, !is_proxy)
    }
}

impl PolicyResolver {
    /// The addresses of `uri`. If `is_checked`, fails unless all of them may be reached.
    pub(super) fn resolve_checked(
        &self,
        uri: &Uri,
        is_checked: bool,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let check = |addresses: &[SocketAddr]| {
            if is_checked { self.policy.check(uri, addresses) } else { Ok(()) }
        };
        // A name whose addresses would all be refused is not looked up.
        check(&[])?;
        let host = uri.host().unwrap_or_default();
        let port = port_or_default(uri);
        let candidates = if let Ok(address) = without_brackets(host).parse::<IpAddr>() {
            vec![SocketAddr::new(address, port)]
        } else if let Some(test_addresses) = self.hosts.next_addresses(host) {
            test_addresses.into_iter().map(|address| SocketAddr::new(address, port)).collect()
        } else {
            self.query_system(host, port)?
        };
        let mut addresses = self.empty();
        for address in candidates.into_iter().take(MAX_ADDRESSES) {
            addresses.push(address);
        }
        check(&addresses)?;
        if addresses.is_empty() { Err(ureq::Error::HostNotFound) } else { Ok(addresses) }
    }

    /// Queries the system's resolver.
    fn query_system(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, ureq::Error> {
        let (host, (done_rx, done_tx)) = (host.to_owned(), UnixStream::pair()?);
        let (send, receive) = mpsc::sync_channel(1);
        std::thread::Builder::new().spawn(move || {
            // The caller may have given up.
            drop(send.send(name_service::resolve(&host, port)));
            drop(done_tx);
        })?;
        let mut deadline = self.limits.connect_deadline();
        if !signal::wait_readable(&done_rx, &mut deadline).map_err(from_stop)? {
            return Err(ureq::Error::Timeout(ureq::Timeout::Resolve));
        }
        let result = receive.recv().map_err(|_| ureq::Error::HostNotFound)?;
        Ok(result.map_err(|error| ConnectError::new(&error))?)
    }
}

#[cfg(test)]
mod tests {
    use super::PolicyResolver;
    use crate::http::error::find_own;
    use crate::http::ssrf::{AddressError, AddressPolicy, SsrfFilter};
    use crate::http::timeouts::{ExchangeLimits, HttpTimeouts};
    use crate::ip_ranges::is_public;
    use crate::test_dns::TestHosts;
    use crate::web_url::{self, to_uri, without_brackets};
    use nanobot_os::env::Env;
    use nanobot_os::test_hooks;
    use std::net::IpAddr;
    use std::time::Duration;
    use ureq::http::Uri;
    use url::Host;

    /// A resolver with which every name resolves to `addresses`.
    fn resolver(addresses: &str) -> PolicyResolver {
        let env: Env = [(test_hooks::HOSTS.name(), format!("*={addresses}"))].into_iter().collect();
        let second = Duration::from_secs(1);
        let timeouts =
            HttpTimeouts { connect: second, first_byte: second, idle: second, total: second };
        PolicyResolver {
            limits: ExchangeLimits { timeouts, deadline: None },
            policy: AddressPolicy::Filtered(SsrfFilter::default()),
            proxy: None,
            hosts: TestHosts::from_env(&env),
        }
    }

    #[test]
    fn each_lookup_is_checked() {
        let resolver = resolver("1.1.1.1|127.0.0.1");
        let uri: Uri = "http://a.example/".parse().unwrap();
        let first = resolver.resolve_checked(&uri, true).unwrap();
        assert_eq!(first[..], ["1.1.1.1:80".parse().unwrap()]);
        for _ in 0..1_000 {
            let error = resolver.resolve_checked(&uri, true).unwrap_err();
            assert!(find_own::<AddressError>(&error).unwrap().message.contains("127.0.0.1"));
        }
    }

    #[test]
    fn fuzz_only_checked_addresses_are_connected_to() {
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
        nanobot_base::fuzz::check(seeds, |input, random| {
            let text = nanobot_base::fuzz::lossy_text(input);
            let Ok(url) = web_url::parse(&text) else {
                return;
            };
            assert!(!url.as_str().contains(['\r', '\n', '\0', ' ', '\\']), "{url}");
            let again = web_url::parse(url.as_str()).expect("a parsed URL can be parsed again");
            assert_eq!(again, url);
            let Some(uri) = to_uri(&url) else { return };
            // The host name that is sent and resolved is the one that was checked.
            assert_eq!(uri.host(), url.host_str());
            let host = uri.host().expect("a parsed URL has a host");
            match url.host() {
                Some(Host::Ipv4(address)) => {
                    assert_eq!(without_brackets(host).parse(), Ok(IpAddr::V4(address)));
                }
                Some(Host::Ipv6(address)) => {
                    assert_eq!(without_brackets(host).parse(), Ok(IpAddr::V6(address)));
                }
                // No resolver may parse it as a number.
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
            let Ok(found) = resolver(answer).resolve_checked(&uri, true) else {
                refused += 1;
                return;
            };
            approved += 1;
            for at in found.iter() {
                assert!(is_public(at.ip()), "{url} leads to {at}");
                assert_eq!(Some(at.port()), url.port_or_known_default());
                assert!(web_url::WEB_PORTS.contains(&at.port()));
            }
        });
        // Otherwise the test exercised nothing.
        assert!(approved > 0 && refused > 0, "{read} {approved} {refused}");
    }
}
