//! The hosts that commands may reach, and at which ports. No I/O.

use super::request::Target;
use nanobot_config::policy::net::literal_address;
use nanobot_config::policy::rule::Pattern;
use nanobot_net::ip_ranges::IpRange;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The ports of a host that is named without one.
const USUAL_PORTS: [u16; 2] = [80, 443];
/// The port of the proxy, if no host needs it: the usual one of proxies.
const PROXY_PORT: u16 = 3128;
/// Maximum number of addresses that are forwarded.
const MAX_FORWARDED_ADDRESSES: usize = 32;

/// The hosts that commands may reach.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CommandHosts {
    /// Names, patterns and addresses, as in `--net=HOSTS`.
    pub hosts: Vec<String>,
    /// Ranges of addresses that a name may lead to although they are not public.
    pub allowed_ranges: Vec<IpRange>,
    /// The addresses of hosts in tests.
    pub test_hosts: Option<String>,
}

/// The kind of grant by which a host may be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HostGrant {
    /// At a port of the web.
    Web,
    /// At a port that was named, whatever its protocol.
    Port,
}

impl CommandHosts {
    /// True if commands reach no other machine.
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    /// Decides whether commands may reach `target`.
    pub(super) fn find_grant(&self, target: &Target) -> Option<HostGrant> {
        let grant_of = |text: &String| {
            let (name, port) = split_port(text);
            if !Pattern::new(name.to_ascii_lowercase()).matches(&target.host) {
                return None;
            }
            match port {
                None => USUAL_PORTS.contains(&target.port).then_some(HostGrant::Web),
                Some(port) => {
                    let is_granted = port == "*" || port.parse() == Ok(target.port);
                    is_granted.then_some(HostGrant::Port)
                }
            }
        };
        // The grant of a named port permits any protocol, so it takes precedence over the grant of a web port.
        let mut grants: Vec<HostGrant> = self.hosts.iter().filter_map(grant_of).collect();
        grants.sort_by_key(|grant| *grant != HostGrant::Port);
        grants.first().copied()
    }

    /// True if the user named this address, with this port or one of the web, so that it need not be public.
    pub(super) fn names_address(&self, address: IpAddr, port: u16) -> bool {
        let literal = |text: &String| literal_address(&Pattern::new(text.as_str()));
        self.hosts.iter().filter_map(literal).any(|(named_address, named_port)| {
            let names_port = named_port
                .map_or_else(|| USUAL_PORTS.contains(&port), |named_port| named_port == port);
            named_address == address && names_port
        })
    }

    /// The loopback addresses of the machine that commands reach at the same address of their own network.
    pub fn forwarded(&self) -> Vec<SocketAddr> {
        let mut forwarded: Vec<SocketAddr> = Vec::new();
        for text in &self.hosts {
            let (name, port) = split_port(text);
            let addresses = match name.trim_matches(['[', ']']).parse::<IpAddr>() {
                Ok(address) if address.is_loopback() => vec![address],
                Err(_) if name.eq_ignore_ascii_case("localhost") => {
                    vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]
                }
                _ => continue,
            };
            let ports = match port.map(str::parse) {
                None => USUAL_PORTS.to_vec(),
                Some(Ok(port)) => vec![port],
                Some(Err(_)) => continue,
            };
            for address in addresses {
                forwarded.extend(ports.iter().map(|port| SocketAddr::new(address, *port)));
            }
        }
        forwarded.sort_unstable();
        forwarded.dedup();
        forwarded.truncate(MAX_FORWARDED_ADDRESSES);
        forwarded
    }

    /// The address of the proxy in the network of commands.
    pub(crate) fn proxy_address(&self) -> SocketAddr {
        let forwarded = self.forwarded();
        let is_taken = |port: &u16| forwarded.iter().any(|address| address.port() == *port);
        let port = (PROXY_PORT..).find(|port| !is_taken(port)).unwrap_or(PROXY_PORT);
        SocketAddr::from((Ipv4Addr::LOCALHOST, port))
    }

    /// The variables by which programs find the proxy.
    pub fn variables(&self) -> Vec<(String, String)> {
        if self.is_empty() {
            return Vec::new();
        }
        let proxy = format!("http://{}", self.proxy_address());
        let loopback = "localhost,127.0.0.1,::1";
        [
            ("http_proxy", proxy.as_str()),
            ("HTTP_PROXY", &proxy),
            ("https_proxy", &proxy),
            ("HTTPS_PROXY", &proxy),
            ("no_proxy", loopback),
            ("NO_PROXY", loopback),
            // Node uses the other variables only with this one.
            ("NODE_USE_ENV_PROXY", "1"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
    }
}

/// The name and the port of a host that the user named. The port may be `*`.
fn split_port(text: &str) -> (&str, Option<&str>) {
    let is_port = |port: &str| {
        port == "*" || (!port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()))
    };
    match text.rsplit_once(':') {
        Some((name, port)) if is_port(port) => (name, Some(port)),
        _ => (text, None),
    }
}

#[cfg(test)]
mod tests {
    use super::{CommandHosts, HostGrant, Target};

    fn hosts(hosts: &[&str]) -> CommandHosts {
        CommandHosts {
            hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
            ..CommandHosts::default()
        }
    }

    #[test]
    fn only_named_hosts_and_ports_are_granted() {
        let check = |named: &[&str], target: &str, expect: Option<HostGrant>| {
            let target = Target::parse(target, 443).unwrap();
            assert_eq!(hosts(named).find_grant(&target), expect, "{named:?} {target:?}");
        };
        let (web, port) = (Some(HostGrant::Web), Some(HostGrant::Port));
        check(&["a.example"], "a.example:443", web);
        check(&["A.example"], "a.EXAMPLE.:80", web);
        check(&["a.example"], "a.example:22", None);
        check(&["a.example"], "a.example:8080", None);
        check(&["a.example:22"], "a.example:22", port);
        check(&["a.example:22"], "a.example:443", None);
        check(&["a.example", "a.example:443"], "a.example:443", port);
        check(&["a.example:*"], "a.example:5432", port);
        check(&["*.example"], "a.example:443", web);
        check(&["*.a.example"], "a.example:443", None);
        check(&["a.example"], "b.a.example:443", None);
        check(&["a.example"], "a.example.evil.test:443", None);
        check(&["[::1]:8000"], "[::1]:8000", port);
        check(&["[::1]"], "[::1]:80", web);
        check(&["1.2.3.4"], "1.2.3.4:443", web);
        check(&[], "a.example:443", None);
    }

    #[test]
    fn an_address_is_named_for_its_port() {
        let check = |named: &str, port: u16, expect: bool| {
            let address = "10.0.0.5".parse().unwrap();
            assert_eq!(hosts(&[named]).names_address(address, port), expect, "{named} {port}");
        };
        check("10.0.0.5:22", 22, true);
        check("10.0.0.5:22", 80, false);
        check("10.0.0.5", 80, true);
        check("10.0.0.5", 22, false);
        check("10.0.0.6", 80, false);
    }

    #[test]
    fn named_loopback_addresses_are_forwarded() {
        let check = |named: &[&str], expect: &[&str], proxy: &str| {
            let hosts = hosts(named);
            let actual: Vec<String> = hosts.forwarded().iter().map(ToString::to_string).collect();
            assert_eq!(actual, expect, "{named:?}");
            assert_eq!(hosts.proxy_address().to_string(), proxy);
        };
        check(&["a.example", "10.0.0.1:5432", "localhost:*"], &[], "127.0.0.1:3128");
        check(&["127.0.0.1:8080"], &["127.0.0.1:8080"], "127.0.0.1:3128");
        check(&["localhost:3128"], &["127.0.0.1:3128", "[::1]:3128"], "127.0.0.1:3129");
        check(&["[::1]", "[::1]:80"], &["[::1]:80", "[::1]:443"], "127.0.0.1:3128");
    }
}
