//! Addresses of the web that somebody else may have written. One parser reads them, for what is checked and for what is
//! connected to; what two programs could read in two ways is refused. Pure: where a name leads, `http` finds out.

use url::{Host, Url};

/// The ports of the web.
pub const PORTS: &[u16] = &[80, 443, 8080, 8443];

/// The longest address: servers take no more, and nobody types it.
const LONGEST: usize = 8 << 10;
/// The longest name of a host.
const LONGEST_NAME: usize = 253;

/// Ends of names that mean this machine, its network, or the inside of a cloud.
const NEARBY: &[&str] = &["localhost", "internal", "local", "localdomain", "home.arpa"];

/// The address in `text`, spelled in one way: a host in lower case and in ASCII, numbers as four of them.
///
/// # Errors
/// In words for the model: what is wrong with it.
pub fn read(text: &str) -> Result<Url, String> {
    if text.len() > LONGEST {
        return Err(format!("an address of {} bytes is too long", text.len()));
    }
    let odd = |letter: char| letter.is_control() || letter.is_whitespace() || letter == '\\';
    if let Some(letter) = text.chars().find(|letter| odd(*letter)) {
        return Err(format!("an address has no {letter:?} in it"));
    }
    let Some((scheme, rest)) = text.split_once("://") else {
        return Err(format!(
            "`{text}` is no address; one begins with `https://`"
        ));
    };
    if !["http", "https"].contains(&scheme.to_ascii_lowercase().as_str()) {
        return Err(format!("`{scheme}` is not `http` or `https`"));
    }
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    // The parser would take the first name of the path for it.
    if authority.is_empty() {
        return Err(format!("`{text}` names no host"));
    }
    if authority.contains('@') {
        return Err("an address with a user or a password in it is not fetched".into());
    }
    if authority.contains("%00") {
        return Err("a host has no NUL in its name".into());
    }
    let mut url = Url::parse(text).map_err(|error| format!("`{text}` is no address: {error}"))?;
    // Letters that are hidden grow.
    if url.as_str().len() > LONGEST {
        return Err(format!(
            "an address of {} bytes is too long",
            url.as_str().len()
        ));
    }
    if let Some(Host::Domain(name)) = url.host() {
        let bare = name.trim_end_matches('.').to_owned();
        if bare.is_empty() || bare.len() > LONGEST_NAME || bare.split('.').any(str::is_empty) {
            return Err(format!("`{name}` is no name of a host"));
        }
        if bare != name {
            url.set_host(Some(&bare))
                .map_err(|error| format!("`{text}` is no address: {error}"))?;
        }
    }
    Ok(url)
}

/// Whether the name `host` is one for machines nearby: no stranger's page is there.
pub fn is_nearby(host: &str) -> bool {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    NEARBY.iter().any(|end| {
        host.strip_suffix(end)
            .is_some_and(|before| before.is_empty() || before.ends_with('.'))
    })
}

#[cfg(test)]
mod tests {
    use super::{is_nearby, read};

    #[test]
    fn one_spelling() {
        let check = |text: &str, expect: &str| {
            assert_eq!(
                read(text).map(String::from).as_deref(),
                Ok(expect),
                "{text}"
            );
        };
        check("https://Example.ORG", "https://example.org/");
        check("HTTP://example.org:80/a?b#c", "http://example.org/a?b#c");
        check("https://example.org./a", "https://example.org/a");
        check(
            "https://bücher.example/ä",
            "https://xn--bcher-kva.example/%C3%A4",
        );
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
    fn what_is_refused() {
        let check = |text: &str, word: &str| {
            let error = read(text).unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        };
        check("example.org", "begins with `https://`");
        check("http:example.org", "begins with `https://`");
        check("//example.org/", "no address");
        check("file:///etc/passwd", "not `http` or `https`");
        check("ftp://example.org/", "not `http` or `https`");
        check("gopher://example.org/", "not `http` or `https`");
        check("javascript://example.org/%0aalert(1)", "not `http`");
        check("http:///example.org/", "names no host");
        check("http://", "names no host");
        check("http://?a", "names no host");
        check("http://user@example.org/", "user or a password");
        check("http://user:pass@example.org/", "user or a password");
        check("http://@example.org/", "user or a password");
        check("http://example.org@127.0.0.1/", "user or a password");
        check("http://exa mple.org/", "' '");
        check("http://example.org/\r\nHost: x", r"'\r'");
        check("http://example.org\t/", r"'\t'");
        check("http://example.org/\0", r"'\0'");
        check("http://evil.example\\@example.org/", r"'\\'");
        check("http://evil%00.example.org/", "NUL");
        check("http://evil%0a.example.org/", "no address");
        check("http://[fe80::1%25eth0]/", "no address");
        check("http://[::1/", "no address");
        check("http://example.org:99999/", "no address");
        check("http://1.2.3.4.5/", "no address");
        check("http://256.1.1.1/", "no address");
        check("http://a..b/", "no name of a host");
        check("http://../", "no name of a host");
        check(
            &format!("http://{}.org/", "a.".repeat(130)),
            "no name of a host",
        );
        check(
            &format!("http://example.org/{}", "a".repeat(9000)),
            "too long",
        );
        check(
            &format!("http://example.org/{}", "ä".repeat(3000)),
            "too long",
        );
    }

    #[test]
    fn names_of_machines_nearby() {
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
            assert!(is_nearby(name), "{name}");
        }
        for name in [
            "localhost.org",
            "notlocal",
            "internal.example",
            "thelocal.se",
            "",
        ] {
            assert!(!is_nearby(name), "{name}");
        }
    }
}
