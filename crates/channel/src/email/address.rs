//! Mail addresses. No I/O.

/// An address, with the name of its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MailAddress {
    pub(super) name: Option<String>,
    pub(super) address: String,
}

impl MailAddress {
    /// Parses `ADDRESS` or `NAME <ADDRESS>`. `None` if it is not an address that a command can contain.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (name, address) = match text.trim().strip_suffix('>') {
            Some(text) => text.split_once('<')?,
            None => ("", text.trim()),
        };
        let name = name.trim().trim_matches('"');
        is_address(address).then(|| Self {
            name: (!name.is_empty()).then(|| name.to_owned()),
            address: address.to_owned(),
        })
    }
}

/// True for `LOCAL@DOMAIN` without quotes, blanks and controls.
pub(super) fn is_address(text: &str) -> bool {
    let is_plain = |letter: char| {
        !letter.is_whitespace() && !letter.is_control() && !"<>()[]\\,;:\"".contains(letter)
    };
    let mut halves = text.split('@');
    let (local, domain, rest) = (halves.next(), halves.next(), halves.next());
    text.chars().all(is_plain)
        && text.len() <= 254
        && local.is_some_and(|local| !local.is_empty())
        && domain.is_some_and(|domain| !domain.is_empty())
        && rest.is_none()
}

#[cfg(test)]
mod tests {
    use super::{MailAddress, is_address};

    #[test]
    fn addresses_are_parsed() {
        let check = |text: &str, expect: Option<(&str, &str)>| {
            let actual = MailAddress::parse(text);
            let actual = actual
                .as_ref()
                .map(|address| (address.name.as_deref().unwrap_or(""), address.address.as_str()));
            assert_eq!(actual, expect, "{text}");
        };
        check("a@b.c", Some(("", "a@b.c")));
        check("\"Ann B\" <a@b.c>", Some(("Ann B", "a@b.c")));
        check("ann", None);
        check("", None);
        for text in ["a@b@c", "a b@c", "a@b>\r\nRCPT", "@b", "a@", "a@b,c@d"] {
            assert!(!is_address(text), "{text}");
        }
    }
}
