//! Web URLs as text: parsing, classification, redaction. No I/O; the `http` module resolves names.
//!
//! Untrusted URLs must go through [`parse`]. Its result is both checked and connected to. A URL that two parsers could
//! interpret differently is rejected.

use super::ip_ranges;
use ::http::Uri;
use std::net::IpAddr;
use url::{Host, Url};

/// The usual ports of web servers.
pub const WEB_PORTS: &[u16] = &[80, 443, 8080, 8443];

/// Maximum length of a URL in bytes; servers accept no more.
const MAX_URL_BYTES: usize = 8 << 10;
/// Maximum length of a host name in bytes (RFC 1035).
const MAX_HOST_BYTES: usize = 253;

/// Host name suffixes for this machine, the local network, or a cloud's internal network.
const LOCAL_SUFFIXES: &[&str] = &["localhost", "internal", "local", "localdomain", "home.arpa"];

/// Parses an untrusted URL into its canonical form: host in lower case and ASCII, IPv4 as four decimal numbers.
///
/// # Errors
/// The reason for rejecting it, as a text for the model.
pub fn parse(text: &str) -> Result<Url, String> {
    if text.len() > MAX_URL_BYTES {
        return Err(format!("a URL of {} bytes is too long", text.len()));
    }
    let is_forbidden =
        |character: char| character.is_control() || character.is_whitespace() || character == '\\';
    if let Some(character) = text.chars().find(|character| is_forbidden(*character)) {
        return Err(format!("invalid character {character:?} in a URL"));
    }
    let Some((scheme, rest)) = text.split_once("://") else {
        return Err(format!("`{text}` is not a URL; it must begin with `https://`"));
    };
    if !["http", "https"].contains(&scheme.to_ascii_lowercase().as_str()) {
        return Err(format!("`{scheme}` is not `http` or `https`"));
    }
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    // The URL parser would take the first path segment for the host.
    if authority.is_empty() {
        return Err(format!("`{text}` has no host"));
    }
    if authority.contains('@') {
        return Err("URLs with a user name or a password are not fetched".into());
    }
    if authority.contains("%00") {
        return Err("invalid NUL in a host name".into());
    }
    let mut url = Url::parse(text).map_err(|error| format!("`{text}` is not a URL: {error}"))?;
    // Percent-encoding makes the URL longer.
    if url.as_str().len() > MAX_URL_BYTES {
        return Err(format!("a URL of {} bytes is too long", url.as_str().len()));
    }
    if let Some(Host::Domain(name)) = url.host() {
        let host = name.trim_end_matches('.').to_owned();
        if host.is_empty() || host.len() > MAX_HOST_BYTES || host.split('.').any(str::is_empty) {
            return Err(format!("`{name}` is not a host name"));
        }
        if host != name {
            url.set_host(Some(&host)).map_err(|error| format!("`{text}` is not a URL: {error}"))?;
        }
    }
    Ok(url)
}

/// True if the host name `host` belongs to this machine or to a local network, and so to no public page.
pub(crate) fn is_local_name(host: &str) -> bool {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    is_within(&host, LOCAL_SUFFIXES)
}

/// True if `host` is one of `domains`, or beneath one.
pub fn is_within(host: &str, domains: &[&str]) -> bool {
    domains.iter().any(|domain| {
        host.strip_suffix(domain).is_some_and(|before| before.is_empty() || before.ends_with('.'))
    })
}

/// Converts `url` for the HTTP client; `None` if the client would find another host or port in it.
pub(crate) fn to_uri(url: &Url) -> Option<Uri> {
    let mut without_fragment = url.clone();
    without_fragment.set_fragment(None);
    let uri: Uri = without_fragment.as_str().parse().ok()?;
    let is_same = uri.scheme_str() == Some(url.scheme())
        && uri.host() == url.host_str()
        && uri.port_u16() == url.port()
        && uri.authority().is_some_and(|authority| !authority.as_str().contains('@'));
    is_same.then_some(uri)
}

/// Returns the port of `uri`, explicit or the default of its scheme.
pub(crate) fn port_or_default(uri: &Uri) -> u16 {
    let default = match uri.scheme_str() {
        Some("https") => 443,
        _ => 80,
    };
    uri.port_u16().unwrap_or(default)
}

/// True if `host` is this machine.
pub fn is_loopback(host: &str) -> bool {
    host == "localhost"
        || without_brackets(host).parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// True if `url` leads to this machine or to a private network. Names are not resolved; only their form is checked.
pub fn is_private_server(url: &str) -> bool {
    let Ok(uri) = url.parse::<Uri>() else {
        return false;
    };
    uri.host().is_some_and(|host| match without_brackets(host).parse::<IpAddr>() {
        Ok(address) => !ip_ranges::is_public(address.to_canonical()),
        Err(_) => is_local_name(host),
    })
}

/// Returns the target of a redirect from `url` to `location`, if it has the same origin: scheme, host and port.
pub fn redirect_within_origin(url: &str, location: &str) -> Option<String> {
    let source = Url::parse(url).ok()?;
    let mut target = source.join(location).ok()?;
    if source.origin() != target.origin() {
        return None;
    }
    target.set_username(source.username()).ok()?;
    target.set_password(source.password()).ok()?;
    target.set_fragment(None);
    Some(target.into())
}

/// Removes the brackets around an IPv6 address in a URL.
pub(crate) fn without_brackets(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}

/// True if requests to `url` go over an unencrypted connection to another machine.
pub fn is_remote_cleartext(url: &str) -> bool {
    url.parse::<Uri>()
        .is_ok_and(|uri| uri.scheme_str() == Some("http") && !uri.host().is_some_and(is_loopback))
}

/// True if requests to `url` go over an unencrypted connection to this machine.
pub fn is_local_cleartext(url: &str) -> bool {
    url.parse::<Uri>()
        .is_ok_and(|uri| uri.scheme_str() == Some("http") && uri.host().is_some_and(is_loopback))
}

/// Checks that the HTTP client can send requests to `url`, the address of a server that the user configured. It may be
/// local, and contain a password.
///
/// # Errors
/// The reason, to follow the URL.
pub fn check_server(url: &str) -> Result<(), String> {
    let is_web = |scheme| ["http", "https"].contains(&scheme);
    let host = url.split_once("://").map(|(_, rest)| rest);
    if host.is_some_and(|host| host.is_empty() || host.starts_with(['/', ':'])) {
        return Err("has no host".into());
    }
    if url.contains(char::is_whitespace) {
        return Err("has a blank in it".into());
    }
    match url.parse::<Uri>() {
        Err(error) if host.is_some() => Err(format!("is not a URL: {error}")),
        Ok(uri)
            if uri.scheme_str().is_some_and(is_web)
                && uri.host().is_some_and(|host| !host.is_empty()) =>
        {
            if has_port(&uri) {
                Ok(())
            } else {
                Err("needs a port from 1 to 65535 after its `:`".into())
            }
        }
        _ => Err("is not a URL that begins with `http://` or `https://`".into()),
    }
}

/// True if the port of `uri` exists, or if it names none. The parser takes every number.
fn has_port(uri: &Uri) -> bool {
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    let (_, port) = authority.rsplit_once(':').unwrap_or_default();
    let names_none = port.is_empty() || port.ends_with(']') || port.contains('@');
    names_none || uri.port_u16().is_some_and(|port| port > 0)
}

/// Returns the scheme and the host of `address`, with its port.
pub fn origin(address: &str) -> String {
    let (scheme, rest) = address.split_once("://").unwrap_or(("", address));
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    format!("{scheme}://{host}")
}

/// Returns `url` without its user information and its query, which may contain keys. It need not be valid.
pub fn redact_url(url: &str) -> String {
    let start = url.find("://").map_or(0, |at| at + "://".len());
    let (scheme, rest) = url.split_at(start);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let is_port =
        |text: &str| text.ends_with(']') || text.bytes().all(|byte| byte.is_ascii_digit());
    // A `/`, `?` or `#` in a password, which is not encoded, ends the authority too early.
    let is_cut = !authority.contains('@')
        && authority.rsplit_once(':').is_some_and(|(_, port)| !is_port(port));
    let part = if is_cut { rest } else { authority };
    let (user, host) = match part.rfind('@') {
        Some(at) => ("***@", &rest[at + 1..]),
        None => ("", rest),
    };
    match host.split_once('?') {
        Some((address, _)) => format!("{scheme}{user}{address}?***"),
        None => format!("{scheme}{user}{host}"),
    }
}

/// Percent-encodes `text` as a part of a query.
pub fn percent_encode(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte));
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::{
        check_server, is_local_cleartext, is_local_name, is_loopback, is_remote_cleartext, parse,
        redact_url, redirect_within_origin,
    };

    #[test]
    fn addresses_of_servers() {
        let check =
            |url: &str, expect: bool| assert_eq!(check_server(url).is_ok(), expect, "{url}");
        check("https://api.example.org/v1", true);
        check("HTTP://[::1]:8000/v1?api-version=1", true);
        check("http://user:password@localhost/v1", true);
        check("localhost:8000/v1", false);
        check("example.org/v1", false);
        check("ftp://example.org/", false);
        check("http://", false);
        check("http://a b/", false);
        check(" http://localhost/", false);
        check("http://[::1/v1", false);
        check("http://[::1]/v1", true);
        check("http://user:password@localhost:65535", true);
        check("http://localhost:99999/v1", false);
        check("http://[::1]:0/", false);
        check("https://", false);
        check("https:///v1", false);
        check("", false);
    }

    #[test]
    fn a_url_is_shown_without_its_secrets() {
        let check = |url: &str, expect: &str| assert_eq!(redact_url(url), expect, "{url}");
        check("https://a.example/v1", "https://a.example/v1");
        check("https://a.example/v1?key=1", "https://a.example/v1?***");
        check("https://u:p@a.example:8000/@b?key=1", "https://***@a.example:8000/@b?***");
        check("http://[::1]:80/@b", "http://[::1]:80/@b");
        check("http://[::1]/@b", "http://[::1]/@b");
        check("u:p@a.example", "***@a.example");
        // Passwords that are not encoded.
        check("https://u:p@ss@a.example/", "https://***@a.example/");
        check("https://u:p/ss@a.example/v1?key=1", "https://***@a.example/v1?***");
        check("https://u:p?ss@a.example/", "https://***@a.example/");
        check("https://u:p#ss@a.example/", "https://***@a.example/");
    }

    #[test]
    fn redirects_stay_within_an_origin() {
        let check = |location: &str, expect: Option<&str>| {
            let target = redirect_within_origin("https://u:p@a.example/v1/x?k=1", location);
            assert_eq!(target.as_deref(), expect, "{location}");
        };
        check("/v2/x?k=1", Some("https://u:p@a.example/v2/x?k=1"));
        check("y", Some("https://u:p@a.example/v1/y"));
        let same = "https://o:q@A.example:443/z#f";
        check(same, Some("https://u:p@a.example/z"));
        check("http://a.example/z", None);
        check("https://a.example:8443/z", None);
        check("https://a.example.evil.example/z", None);
        check("//evil.example/z", None);
        check("\\\\evil.example/z", None);
        check("data:x", None);
        check("https://", None);
    }

    #[test]
    fn canonical_form() {
        let check = |text: &str, expect: &str| {
            assert_eq!(parse(text).map(String::from).as_deref(), Ok(expect), "{text}");
        };
        check("https://Example.ORG", "https://example.org/");
        check("HTTP://example.org:80/a?b#c", "http://example.org/a?b#c");
        check("https://example.org./a", "https://example.org/a");
        check("https://bücher.example/ä", "https://xn--bcher-kva.example/%C3%A4");
        check("http://ｅｘａｍｐｌｅ.org/", "http://example.org/");
        for loopback in [
            "http://2130706433/",
            "http://0177.0.0.1/",
            "http://0x7f.1/",
            "http://0x7f000001/",
            "http://017700000001/",
            "http://127.1/",
            "http://127.0.1/",
            "http://127.0.0.1./",
            "http://127%2e0.0.1/",
            "http://１２７.0.0.1/",
            "http://127。0。0。1/",
        ] {
            check(loopback, "http://127.0.0.1/");
        }
        check("http://0/", "http://0.0.0.0/");
        check("http://[::ffff:127.0.0.1]/", "http://[::ffff:7f00:1]/");
        check("http://[0:0:0:0:0:0:0:1]/", "http://[::1]/");
    }

    #[test]
    fn rejected_urls() {
        let check = |text: &str, word: &str| {
            let error = parse(text).unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        };
        check("example.org", "must begin with `https://`");
        check("http:example.org", "must begin with `https://`");
        check("//example.org/", "not a URL");
        check("file:///etc/passwd", "not `http` or `https`");
        check("ftp://example.org/", "not `http` or `https`");
        check("gopher://example.org/", "not `http` or `https`");
        check("javascript://example.org/%0aalert(1)", "not `http`");
        check("http:///example.org/", "has no host");
        check("http://", "has no host");
        check("http://?a", "has no host");
        check("http://user@example.org/", "user name or a password");
        check("http://user:pass@example.org/", "user name or a password");
        check("http://@example.org/", "user name or a password");
        check("http://example.org@127.0.0.1/", "user name or a password");
        check("http://exa mple.org/", "' '");
        check("http://example.org/\r\nHost: x", r"'\r'");
        check("http://example.org\t/", r"'\t'");
        check("http://example.org/\0", r"'\0'");
        check("http://evil.example\\@example.org/", r"'\\'");
        check("http://evil%00.example.org/", "NUL");
        check("http://evil%0a.example.org/", "not a URL");
        check("http://[fe80::1%25eth0]/", "not a URL");
        check("http://[::1/", "not a URL");
        check("http://example.org:99999/", "not a URL");
        check("http://1.2.3.4.5/", "not a URL");
        check("http://256.1.1.1/", "not a URL");
        check("http://a..b/", "is not a host name");
        check("http://../", "is not a host name");
        check(&format!("http://{}.org/", "a.".repeat(130)), "is not a host name");
        check(&format!("http://example.org/{}", "a".repeat(9000)), "too long");
        check(&format!("http://example.org/{}", "ä".repeat(3000)), "too long");
    }

    #[test]
    fn local_host_names() {
        for name in [
            "localhost",
            "a.localhost",
            "LOCALHOST",
            "localhost.",
            "metadata.google.internal",
            "internal",
            "printer.local",
            "router.home.arpa",
            "localhost.localdomain",
        ] {
            assert!(is_local_name(name), "{name}");
        }
        for name in ["localhost.org", "notlocal", "internal.example", "thelocal.se", ""] {
            assert!(!is_local_name(name), "{name}");
        }
    }

    #[test]
    fn loopback_in_its_spellings() {
        for host in ["localhost", "127.0.0.1", "127.9.9.9", "::1", "[::1]"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["localhost.evil", "128.0.0.1", "0.0.0.0", "10.0.0.1", "example.org", ""] {
            assert!(!is_loopback(host), "{host}");
        }
        assert!(
            is_remote_cleartext("http://10.0.0.1/v1")
                && is_remote_cleartext("http://example.org/v1")
        );
        assert!(
            !is_remote_cleartext("http://localhost:11434/v1")
                && !is_remote_cleartext("https://example.org/v1")
        );
        assert!(
            is_local_cleartext("http://127.0.0.1:8000") && is_local_cleartext("http://[::1]:1/x")
        );
        assert!(
            !is_local_cleartext("http://127.0.0.1@example.org/")
                && !is_local_cleartext("https://localhost/")
        );
    }
}
