//! The header `Authentication-Results` (RFC 8601): what our own mail server has verified about the sender. No I/O.
//!
//! A sender can write this header too, so only the topmost one of a server that the config trusts is used. That server puts its own above
//! all that it received.

use super::settings::SenderVerification;

/// The results of one server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AuthenticationResults {
    /// The id of the server, in lower case.
    pub(super) server: String,
    results: Vec<MethodResult>,
}

/// The result of one method, such as `dkim=pass header.d=example.org`; all in lower case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct MethodResult {
    method: String,
    result: String,
    /// Such as `("header.d", "example.org")`.
    properties: Vec<(String, String)>,
}

impl AuthenticationResults {
    /// Parses the value of a header.
    pub(super) fn parse(value: &str) -> Self {
        let value = without_comments(value).to_ascii_lowercase();
        // The id comes first; a server that writes none cannot be trusted by it.
        let (server, results) = value.split_once(';').unwrap_or((&value, ""));
        let server = Some(server).filter(|server| !server.contains('='));
        let parts = results.split(';');
        let results = parts.map(|part| {
            let mut pairs = part.split_whitespace().filter_map(|word| {
                let (name, value) = word.split_once('=')?;
                Some((name.to_owned(), value.trim_matches('"').to_owned()))
            });
            let (method, result) = pairs.next().unwrap_or_default();
            // A method may have a version: `dkim/1`.
            let method = method.split('/').next().unwrap_or_default().to_owned();
            MethodResult { method, result, properties: pairs.collect() }
        });
        Self {
            // A version may follow the id.
            server: server
                .and_then(|server| server.split_whitespace().next())
                .unwrap_or_default()
                .to_owned(),
            results: results.collect(),
        }
    }

    fn passes(&self, method: &str, properties: &[&str], domain: &str) -> bool {
        self.results.iter().any(|result| {
            let is_of_domain = |(name, value): &(String, String)| {
                let value = value.rsplit('@').next().unwrap_or_default();
                properties.contains(&name.as_str()) && value == domain
            };
            result.method == method
                && result.result == "pass"
                && result.properties.iter().any(is_of_domain)
        })
    }
}

/// Checks that a trusted server has verified the domain of a sender. `headers` are the values of all
/// `Authentication-Results`, from the top. Returns true if it was verified by DMARC.
///
/// # Errors
/// The reason why it is not verified.
pub(super) fn verify(
    headers: &[impl AsRef<str>],
    address: &str,
    verification: &SenderVerification,
) -> Result<bool, String> {
    if !verification.is_required {
        return Ok(false);
    }
    let domain = address.rsplit('@').next().unwrap_or_default();
    let trusted: Vec<AuthenticationResults> = headers
        .iter()
        .map(|value| AuthenticationResults::parse(value.as_ref()))
        .filter(|results| verification.trusted_ids.contains(&results.server))
        .collect();
    let Some(topmost) = trusted.first() else {
        return Err("no trusted server has verified it".to_owned());
    };
    // A failure of the policy of the domain outweighs the rest, in any result of a trusted server.
    let is_failed_dmarc =
        |result: &MethodResult| result.method == "dmarc" && result.result == "fail";
    if trusted.iter().flat_map(|results| &results.results).any(is_failed_dmarc) {
        return Err(format!("DMARC failed for `{domain}`, as `{}` says", topmost.server));
    }
    if topmost.passes("dmarc", &["header.from"], domain) {
        return Ok(true);
    }
    let has_dkim =
        !verification.needs_dkim || topmost.passes("dkim", &["header.d", "header.i"], domain);
    let has_spf =
        !verification.needs_spf || topmost.passes("spf", &["smtp.mailfrom", "smtp.mail"], domain);
    if has_dkim && has_spf {
        Ok(false)
    } else {
        Err(format!(
            "`{}` has not verified it: neither DMARC nor SPF and DKIM passed for `{domain}`",
            topmost.server
        ))
    }
}

/// Removes comments, which may be nested, and keeps quoted strings.
fn without_comments(value: &str) -> String {
    let mut text = String::new();
    let (mut depth, mut is_quoted, mut is_escaped) = (0_usize, false, false);
    for letter in value.chars() {
        let was_escaped = std::mem::take(&mut is_escaped);
        match letter {
            _ if was_escaped => {}
            '\\' => {
                is_escaped = true;
                continue;
            }
            '"' if depth == 0 => is_quoted = !is_quoted,
            '(' if !is_quoted => depth += 1,
            ')' if !is_quoted && depth > 0 => {
                depth -= 1;
                text.push(' ');
                continue;
            }
            _ => {}
        }
        // Separators within a quoted string are dropped: no value that is compared contains one.
        if depth == 0 && !(is_quoted && matches!(letter, ';' | ' ' | '=')) {
            text.push(letter);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{AuthenticationResults, verify};
    use crate::email::settings::SenderVerification;

    fn verification() -> SenderVerification {
        SenderVerification {
            is_required: true,
            needs_dkim: true,
            needs_spf: true,
            trusted_ids: vec!["mx.example.net".into()],
        }
    }

    #[track_caller]
    fn check(headers: &[&str], expect: bool) {
        let verified = verify(headers, "ann@example.org", &verification());
        assert_eq!(verified.is_ok(), expect, "{headers:?} {verified:?}");
    }

    #[test]
    fn the_domain_of_the_sender_must_pass() {
        let ours = |results: &str| format!("mx.example.net; {results}");
        let check = |results: &str, expect: bool| check(&[&ours(results)], expect);
        check("dmarc=pass header.from=example.org", true);
        check("dmarc=pass (p=NONE) header.from=Example.ORG", true);
        check("dmarc=pass", false);
        check("dmarc=pass header.from=evil.example", false);
        check("dmarc=fail header.from=example.org", false);
        check("dmarc=pass header.from=example.org; dmarc=fail header.from=example.org", false);
        check("dmarc=fail header.from=example.org; dmarc=pass header.from=example.org", false);
        check("dmarc=fail (dmarc=pass header.from=example.org)", false);
        check("x=\"; dmarc=pass header.from=example.org\"", false);
        check("none", false);
        check("dkim=pass header.d=example.org; spf=pass smtp.mailfrom=ann@example.org", true);
        check("dkim=pass header.i=@example.org; spf=pass smtp.mailfrom=example.org", true);
        check("dkim=pass header.d=example.org", false);
        check("spf=pass smtp.mailfrom=example.org", false);
        check("dkim=pass header.d=evil.example; spf=pass smtp.mailfrom=example.org", false);
        check(
            "dkim=pass header.d=example.org.evil.example; spf=pass smtp.mailfrom=example.org",
            false,
        );
        check(
            "dkim=pass header.d=example.org; spf=pass smtp.mailfrom=example.org; dmarc=fail",
            false,
        );
        check(
            "dkim/1=pass reason=\"a b; c\" header.d=example.org; spf=pass smtp.mailfrom=a@example.org",
            true,
        );
    }

    #[test]
    fn only_the_topmost_header_of_a_trusted_server_counts() {
        let pass = "mx.example.net; dmarc=pass header.from=example.org";
        let fail = "mx.example.net; dmarc=fail header.from=example.org";
        let other = "mx.evil.example; dmarc=pass header.from=example.org";
        check(&[pass], true);
        check(&[], false);
        check(&[other], false);
        check(&[other, pass], true);
        check(&[fail, pass], false);
        check(&[pass, fail], false);
        check(&["mx.example.net; none", pass], false);
        check(&["MX.example.net 1; dmarc=pass header.from=example.org"], true);
        check(&["mx.example.net.evil.example; dmarc=pass header.from=example.org"], false);
        let believes_all = SenderVerification::default();
        assert!(verify(&[""; 0], "ann@example.org", &believes_all).is_ok());
    }

    #[test]
    fn the_server_is_named() {
        let server = |value: &str| AuthenticationResults::parse(value).server;
        assert_eq!(server(" mx.google.com;\r\n dkim=pass"), "mx.google.com");
        assert_eq!(server("(a;b) Mail.Example 1; none"), "mail.example");
        assert_eq!(server(""), "");
        assert_eq!(server("spf=pass smtp.mailfrom=a; dkim=none"), "");
    }
}
