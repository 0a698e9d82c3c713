//! Checks data that is sent to a third party that can make requests itself, such as an MCP server. After untrusted
//! content, that data must not hold addresses that the model composed.

use super::{AllowedHosts, ProvenanceTracker, Refusal};
use nanobot_base::message::addresses::{find_hosts, strip_delimiters, trim_punctuation};
use serde_json::Value;
use url::Url;

impl ProvenanceTracker {
    /// Decides if `arguments` may be sent now: every address in them must be one that could be requested, and counts as
    /// requested.
    ///
    /// # Errors
    /// The refusal of the first address that may not be requested, with the flag that would grant it.
    pub fn admit_arguments(
        &self,
        arguments: &Value,
        allowed: &AllowedHosts,
    ) -> Result<(), Refusal> {
        if self.untrusted().is_none() {
            return Ok(());
        }
        match arguments {
            Value::String(text) => self.admit_text(text, allowed),
            Value::Array(items) => {
                items.iter().try_for_each(|it| self.admit_arguments(it, allowed))
            }
            Value::Object(members) => members.iter().try_for_each(|(name, it)| {
                self.admit_text(name, allowed)?;
                self.admit_arguments(it, allowed)
            }),
            Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
        }
    }

    fn admit_text(&self, text: &str, allowed: &AllowedHosts) -> Result<(), Refusal> {
        for ways in find_sent_addresses(text) {
            let mut no = None;
            for url in &ways {
                no = self.admit_request(url, allowed).err();
                if no.is_none() {
                    break;
                }
            }
            if let Some(no) = no {
                return Err(no);
            }
        }
        Ok(())
    }
}

/// The addresses that `text` names, each with every plausible end of it: all that begin with a scheme, and the whole
/// text if it is a host, with or without a path or query, as people write addresses.
fn find_sent_addresses(text: &str) -> Vec<Vec<Url>> {
    let mut all: Vec<Vec<Url>> = text
        .match_indices("://")
        .map(|(at, _)| {
            let is_scheme = |letter: char| letter.is_ascii_alphanumeric() || "+-.".contains(letter);
            let scheme = text[..at].trim_end_matches(is_scheme).len();
            let rest = &text[scheme..];
            let ends = |letter: char| {
                letter.is_whitespace() || letter.is_control() || "<>\"`".contains(letter)
            };
            let whole = &rest[..rest.find(ends).unwrap_or(rest.len())];
            let ways = [whole, trim_punctuation(whole)];
            ways.iter().filter_map(|way| parse_remote_address(way)).collect()
        })
        .collect();
    let whole = strip_delimiters(text);
    if all.is_empty() && !whole.contains(char::is_whitespace) {
        // Some programs accept `//host/x` and `https:/host` as addresses.
        let is_web = |scheme: &&&str| {
            let start = whole.get(..scheme.len());
            start.is_some_and(|start| start.eq_ignore_ascii_case(scheme))
        };
        let rest = ["https:", "http:"].iter().find(is_web);
        let is_relative = whole.starts_with("//");
        let rest = &whole[rest.map_or(0, |scheme| scheme.len())..];
        let is_marked = is_relative || rest.len() < whole.len();
        let rest = rest.trim_start_matches(['/', '\\']);
        let host = &rest[..rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len())];
        let host = host.rsplit('@').next().unwrap_or_default();
        let is_local = !is_marked && (whole.starts_with(['/', '.', '~']) || whole.contains('@'));
        if !is_local && !host.is_empty() && (is_marked || !find_hosts(host).is_empty()) {
            all.push(parse_remote_address(&format!("https://{rest}")).into_iter().collect());
        }
    }
    all.retain(|ways| !ways.is_empty());
    all
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
            let found: Vec<String> =
                find_sent_addresses(text).iter().map(|ways| ways[0].to_string()).collect();
            assert_eq!(found, expect, "{text}");
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
