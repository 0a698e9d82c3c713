//! Which hosts may be reached, as the user said with `--net`.

use super::rule::Pattern;

/// What the user granted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Net {
    /// Nothing beyond what every run may.
    #[default]
    Default,
    /// These hosts too, by the web tools alone: neither layer of the sandbox sees names.
    Hosts(Vec<Pattern>),
    /// Every public host, by commands too.
    Any,
}

impl Net {
    /// Whether the user granted `host` at `port`: by its name for the ports of the web, else as `HOST:PORT`.
    pub fn grants(&self, host: &str, port: Option<u16>) -> bool {
        match self {
            Self::Default => false,
            Self::Any => true,
            Self::Hosts(hosts) => {
                let whole = |port| format!("{host}:{port}");
                hosts.iter().any(|granted| {
                    let granted = Pattern::new(granted.text().to_ascii_lowercase());
                    granted.matches(host) || port.is_some_and(|port| granted.matches(&whole(port)))
                })
            }
        }
    }

    /// Whether the user granted this very port.
    pub fn grants_port(&self, host: &str, port: u16) -> bool {
        let ends = |granted: &Pattern| {
            granted.text().ends_with(&format!(":{port}"))
                && Pattern::new(granted.text().to_ascii_lowercase())
                    .matches(&format!("{host}:{port}"))
        };
        matches!(self, Self::Hosts(hosts) if hosts.iter().any(ends))
    }

    /// What both allow.
    pub fn and(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::Any, net) | (net, Self::Any) => net.clone(),
            (Self::Hosts(ours), Self::Hosts(theirs)) => {
                let both = ours.iter().filter(|host| theirs.contains(host));
                Self::Hosts(both.cloned().collect())
            }
            _ => Self::Default,
        }
    }
}
