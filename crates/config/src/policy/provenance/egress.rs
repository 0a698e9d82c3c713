//! Checks data that is sent to a third party that can make requests itself, such as an MCP server. After untrusted
//! content, that data must not hold addresses that the model composed.

use super::{AllowedHosts, ProvenanceTracker, Refusal};
use nanobot_base::message::addresses::{find_hosts, strip_delimiters, trim_punctuation};
use serde_json::Value;
use url::Url;

impl ProvenanceTracker {
    /// Decides whether `arguments` may be sent now. Every address in them must be one that may be requested, and is counted as a request.
    ///
    /// # Errors
    /// The refusal of the first address that may not be requested, with the flag that would grant it.
    pub fn admit_arguments(
        &self,
        arguments: &Value,
        allowed: &AllowedHosts,
    ) -> Result<(), Refusal> {
        if self.untrusted_content().is_none() {
            return Ok(());
        }
        match arguments {
            Value::String(text) => self.admit_text(text, allowed),
            Value::Array(items) => {
                items.iter().try_for_each(|item| self.admit_arguments(item, allowed))
            }
            Value::Object(members) => members.iter().try_for_each(|(name, member)| {
                self.admit_text(name, allowed)?;
                self.admit_arguments(member, allowed)
            }),
            Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
        }
    }

    fn admit_text(&self, text: &str, allowed: &AllowedHosts) -> Result<(), Refusal> {
        for candidates in find_sent_addresses(text) {
            let mut refusal = None;
            for url in &candidates {
                refusal = self.admit_request(url, allowed).err();
                if refusal.is_none() {
                    break;
                }
            }
            if let Some(refusal) = refusal {
                return Err(refusal);
            }
        }
        Ok(())
    }
}

/// The addresses that `text` names, each with every plausible end of it.
fn find_sent_addresses(text: &str) -> Vec<Vec<Url>> {
    let mut addresses: Vec<Vec<Url>> =
        text.match_indices("://").map(|(at, _)| parse_candidates(text, at)).collect();
    if addresses.is_empty() {
        addresses.extend(parse_host_address(text).map(|url| vec![url]));
    }
    addresses.retain(|candidates| !candidates.is_empty());
    addresses
}

/// The address whose scheme ends at `scheme_end`, with and without the punctuation after it.
fn parse_candidates(text: &str, scheme_end: usize) -> Vec<Url> {
    let is_in_scheme = |letter: char| letter.is_ascii_alphanumeric() || "+-.".contains(letter);
    let start = text[..scheme_end].trim_end_matches(is_in_scheme).len();
    let rest = &text[start..];
    let is_end =
        |letter: char| letter.is_whitespace() || letter.is_control() || "<>\"`".contains(letter);
    let address = &rest[..rest.find(is_end).unwrap_or(rest.len())];
    [address, trim_punctuation(address)].into_iter().filter_map(parse_remote_address).collect()
}

/// The address that the whole text is, if it is a host, with or without a path or query, as people write addresses.
fn parse_host_address(text: &str) -> Option<Url> {
    let text = strip_delimiters(text);
    if text.contains(char::is_whitespace) {
        return None;
    }
    // Some programs accept `//host/x` and `https:/host` as addresses.
    let is_scheme = |scheme: &&str| {
        let start = text.get(..scheme.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    };
    let scheme = ["https:", "http:"].into_iter().find(is_scheme).unwrap_or_default();
    let is_marked = !scheme.is_empty() || text.starts_with("//");
    let rest = text[scheme.len()..].trim_start_matches(['/', '\\']);
    let authority = &rest[..rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len())];
    let host = authority.rsplit('@').next().unwrap_or_default();
    let is_local = !is_marked && (text.starts_with(['/', '.', '~']) || text.contains('@'));
    let is_host = !host.is_empty() && (is_marked || !find_hosts(host).is_empty());
    if is_local || !is_host {
        return None;
    }
    parse_remote_address(&format!("https://{rest}"))
}

/// Parses `text` as the address of a host that could receive data through it.
fn parse_remote_address(text: &str) -> Option<Url> {
    let url = Url::parse(text).ok()?;
    let host = url.host_str().unwrap_or_default();
    (!host.is_empty() && url.scheme() != "file").then_some(url)
}

#[cfg(test)]
mod tests {
    use super::find_sent_addresses;

    #[test]
    fn sent_addresses() {
        let check = |text: &str, expect: &[&str]| {
            let actual: Vec<String> =
                find_sent_addresses(text).iter().map(|ways| ways[0].to_string()).collect();
            assert_eq!(actual, expect, "{text}");
        };
        check("https://a.example/x?y", &["https://a.example/x?y"]);
        check(
            "see HTTPS://a.example/x, or ftp://b.example",
            &["https://a.example/x,", "ftp://b.example/"],
        );
        check("https://a.example/x](y", &["https://a.example/x](y"]);
        check("`a.example/?d=1`", &["https://a.example/?d=1"]);
        check("//a.example/x", &["https://a.example/x"]);
        check("https:a.example", &["https://a.example/"]);
        check("secret.a.example", &["https://secret.a.example/"]);
        for plain in [
            "",
            "src/main.rs",
            "/etc/a.example",
            "./a.example",
            "main.rs",
            "what is a.example",
            "a@b.example",
            "file:///etc/passwd",
            "Europe/Berlin",
            "v1.2.3",
            "~/x.y/z",
            "://",
            "a: b",
        ] {
            check(plain, &[]);
        }
    }
}
