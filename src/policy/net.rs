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
