//! Network grants: the hosts that the user allowed with `--net`. Nothing here opens a connection.

use super::rule::Pattern;
// Address types only; this module does no I/O.
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use serde::{Deserialize, Serialize};

/// The user's network grant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredNet", into = "StoredNet")]
pub enum Net {
    /// Nothing beyond the default of every run.
    #[default]
    Default,
    /// These hosts as well.
    Hosts {
        hosts: Vec<Pattern>,
        /// Those of them that commands reach too, through a proxy.
        commands: Vec<Pattern>,
    },
    /// Every public host, from commands too.
    Any,
}

impl Net {
    /// True if the user granted `host` at `port`: by name for the web ports, else as `HOST:PORT`.
    pub fn grants(&self, host: &str, port: Option<u16>) -> bool {
        match self {
            Self::Default => false,
            Self::Any => true,
            Self::Hosts { hosts, .. } => {
                let host_and_port = port.map(|port| format!("{host}:{port}"));
                hosts.iter().any(|pattern| {
                    let pattern = Pattern::new(pattern.text().to_ascii_lowercase());
                    pattern.matches(host)
                        || host_and_port.as_ref().is_some_and(|text| pattern.matches(text))
                })
            }
        }
    }

    /// True if the user granted this port explicitly.
    pub fn grants_port(&self, host: &str, port: u16) -> bool {
        let names_port = |pattern: &Pattern| {
            pattern.text().ends_with(&format!(":{port}"))
                && Pattern::new(pattern.text().to_ascii_lowercase())
                    .matches(&format!("{host}:{port}"))
        };
        matches!(self, Self::Hosts { hosts, .. } if hosts.iter().any(names_port))
    }

    /// The hosts that commands reach through a proxy.
    pub fn command_hosts(&self) -> &[Pattern] {
        match self {
            Self::Hosts { commands, .. } => commands,
            Self::Default | Self::Any => &[],
        }
    }

    /// The intersection of both grants.
    pub fn intersection(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::Any, Self::Hosts { hosts, commands })
            | (Self::Hosts { hosts, commands }, Self::Any) => {
                // `Any` covers public hosts at the web ports only. Hosts at other ports must be named on both sides.
                let is_at_web_port = |host: &&Pattern| {
                    let port = host.text().rsplit_once(':').map(|(_, port)| port);
                    port.is_none_or(|port| port.parse::<u16>().is_err())
                };
                Self::Hosts {
                    hosts: hosts.iter().filter(is_at_web_port).cloned().collect(),
                    commands: commands.clone(),
                }
            }
            (Self::Any, net) | (net, Self::Any) => net.clone(),
            (
                Self::Hosts { hosts, commands },
                Self::Hosts { hosts: other_hosts, commands: other_commands },
            ) => {
                let common = |hosts: &[Pattern], other_hosts: &[Pattern]| {
                    hosts.iter().filter(|host| other_hosts.contains(host)).cloned().collect()
                };
                Self::Hosts {
                    hosts: common(hosts, other_hosts),
                    commands: common(commands, other_commands),
                }
            }
            _ => Self::Default,
        }
    }
}

/// A grant as it is stored. A list without hosts for commands is stored in the older form, `hosts`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "lowercase")]
enum StoredNet {
    Default,
    Hosts(Vec<Pattern>),
    Named { hosts: Vec<Pattern>, commands: Vec<Pattern> },
    Any,
}

impl From<Net> for StoredNet {
    fn from(net: Net) -> Self {
        match net {
            Net::Default => Self::Default,
            Net::Hosts { hosts, commands } if commands.is_empty() => Self::Hosts(hosts),
            Net::Hosts { hosts, commands } => Self::Named { hosts, commands },
            Net::Any => Self::Any,
        }
    }
}

impl From<StoredNet> for Net {
    fn from(stored: StoredNet) -> Self {
        match stored {
            StoredNet::Default => Self::Default,
            StoredNet::Hosts(hosts) => Self::Hosts { hosts, commands: Vec::new() },
            StoredNet::Named { hosts, commands } => Self::Hosts { hosts, commands },
            StoredNet::Any => Self::Any,
        }
    }
}

/// Parses a host of `--net=HOSTS`: `example.org`, `*.example.org` or an address, with `:PORT` if it is not a web port.
///
/// # Errors
/// A phrase to append to the text: it is not a host, with examples of the form.
pub fn parse_host(text: &str) -> Result<Pattern, String> {
    const FORM: &str =
        "is not a host; expected `example.org`, `*.example.org` or `example.org:8000`";
    let text = text.trim();
    if text.is_empty() {
        return Err(FORM.into());
    }
    if text.parse::<Ipv6Addr>().is_ok() {
        return Ok(Pattern::new(format!("[{text}]")));
    }
    let (name, port) = match text.rsplit_once(':') {
        Some((name, port)) => (name, Some(port)),
        None => (text, None),
    };
    let is_port = |port: &str| {
        let digits = port.bytes().all(|digit| digit.is_ascii_digit());
        digits && port.parse::<u16>().is_ok_and(|port| port > 0)
    };
    if port.is_some_and(|port| port != "*" && !is_port(port)) {
        return Err(if name.contains(':') || name.is_empty() || text.contains('/') {
            FORM.into()
        } else {
            "needs a port from 1 to 65535 after its `:`".into()
        });
    }
    let bare = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let is_address = bare.is_some_and(|bare| bare.parse::<Ipv6Addr>().is_ok())
        || name.parse::<Ipv4Addr>().is_ok();
    let is_label = |label: &str| {
        let mut letters = label.chars();
        !label.is_empty()
            && letters.all(|letter| letter.is_ascii_alphanumeric() || "-_*?".contains(letter))
    };
    // A name that ends in a number would be parsed as an address, and this one is not a valid address.
    let is_number = |label: &str| label.bytes().all(|digit| digit.is_ascii_digit());
    let is_name =
        name.split('.').all(is_label) && !name.split('.').next_back().is_some_and(is_number);
    if is_address || is_name {
        Ok(Pattern::new(text))
    } else if !name.is_ascii() {
        Err("is not a host; write its name in ASCII, as `xn--…`".into())
    } else {
        Err(FORM.into())
    }
}

/// The address and the port, if `host_pattern` is an address and not a name.
pub fn literal_address(host_pattern: &Pattern) -> Option<(IpAddr, Option<u16>)> {
    let text = host_pattern.text();
    let parse = |address: &str| address.trim_matches(['[', ']']).parse().ok();
    if let Some(address) = parse(text) {
        return Some((address, None));
    }
    let (address, port) = text.rsplit_once(':')?;
    Some((parse(address)?, Some(port.parse().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::{literal_address, parse_host};

    #[test]
    fn addresses_in_hosts() {
        let check = |text: &str, expect: Option<(&str, Option<u16>)>| {
            let expect = expect.map(|(address, port)| (address.parse().unwrap(), port));
            assert_eq!(literal_address(&parse_host(text).unwrap()), expect, "{text}");
        };
        check("127.0.0.1", Some(("127.0.0.1", None)));
        check("127.0.0.1:80", Some(("127.0.0.1", Some(80))));
        check("::1", Some(("::1", None)));
        check("[::1]:80", Some(("::1", Some(80))));
        check("localhost:80", None);
        check("*", None);
        check("127.0.0.*", None);
    }

    #[test]
    fn hosts_as_written() {
        let check = |text: &str, expect: Result<&str, &str>| match (parse_host(text), expect) {
            (Ok(host), Ok(shown)) => assert_eq!(host.text(), shown),
            (Err(message), Err(part)) => assert!(message.contains(part), "{text}: {message}"),
            (actual, _) => panic!("{text}: {actual:?}"),
        };
        check("example.org", Ok("example.org"));
        check(" example.org ", Ok("example.org"));
        check("*.example.org", Ok("*.example.org"));
        check("*", Ok("*"));
        check("*:8000", Ok("*:8000"));
        check("localhost:8000", Ok("localhost:8000"));
        check("1.2.3.4", Ok("1.2.3.4"));
        check("1.2.3.4:80", Ok("1.2.3.4:80"));
        check("::1", Ok("[::1]"));
        check("[::1]:80", Ok("[::1]:80"));
        check("", Err("is not a host"));
        check("foo bar", Err("is not a host"));
        check("http://foo/", Err("is not a host"));
        check("http://foo", Err("is not a host"));
        check("example.org/path", Err("is not a host"));
        check("1.2.3.4:99999", Err("65535"));
        check("a:0", Err("65535"));
        check("a:", Err("65535"));
        check(":80", Err("is not a host"));
        check("1.2.3", Err("is not a host"));
        check("a..b", Err("is not a host"));
        check("user@host", Err("is not a host"));
        check("bücher.example", Err("xn--"));
    }
}
