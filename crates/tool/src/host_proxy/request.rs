//! The request of a client to the proxy: its target, and the head that is sent on. No I/O.
//!
//! A request is parsed and written anew, so that no server reads another host, or a second request, out of it. Its path and
//! query are sent as they are, which RFC 9110, §7.7, requires; the parser refuses blanks and control characters in them.

use url::Url;

/// Maximum number of headers of a request.
const MAX_HEADERS: usize = 100;

/// Headers that concern one connection only, and headers that are written anew.
const DROPPED_HEADERS: &[&str] = &[
    "connection",
    "content-length",
    "host",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "upgrade",
];

/// The host and port that a client asks for. The host is in lower case and without a dot at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) host: String,
    pub(super) port: u16,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum ProxyRequest {
    /// A connection for a protocol that the proxy does not read, normally TLS.
    Tunnel(Target),
    /// One request over plain HTTP: what to send, and the length of the body that follows.
    Plain { target: Target, head: Vec<u8>, body_bytes: u64 },
}

/// A request that is not carried out: its status, and the reason.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RefusedRequest {
    pub(super) status: &'static str,
    pub(super) reason: String,
}

fn bad_request(reason: impl Into<String>) -> RefusedRequest {
    RefusedRequest { status: "400 Bad Request", reason: reason.into() }
}

/// Reads a request from its head, which ends with an empty line.
pub(super) fn parse(head: &[u8]) -> Result<ProxyRequest, RefusedRequest> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(head) {
        Ok(httparse::Status::Complete(length)) if length == head.len() => {}
        _ => return Err(bad_request("this is not a request of HTTP/1.1")),
    }
    let (Some(method), Some(path)) = (request.method, request.path) else {
        return Err(bad_request("this is not a request of HTTP/1.1"));
    };
    if method == "CONNECT" {
        let has_port = path.rsplit_once(':').is_some_and(|(_, port)| is_port(port));
        return match Target::parse(path, 443) {
            Some(target) if has_port => Ok(ProxyRequest::Tunnel(target)),
            _ => Err(bad_request(format!("`{path}` is not HOST:PORT"))),
        };
    }
    let Some(rest) = path.strip_prefix("http://") else {
        return Err(bad_request(format!("`{path}` is not an address that begins with `http://`")));
    };
    let (authority, path_and_query) =
        rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let Some(target) = Target::parse(authority, 80) else {
        return Err(bad_request(format!("`{authority}` is not HOST or HOST:PORT")));
    };
    let values_of = |name: &'static str| {
        let fields =
            request.headers.iter().filter(move |header| header.name.eq_ignore_ascii_case(name));
        fields.map(|header| std::str::from_utf8(header.value).unwrap_or_default().trim())
    };
    let hosts: Vec<&str> = values_of("host").collect();
    if hosts.len() > 1 || hosts.iter().any(|host| Target::parse(host, 80).as_ref() != Some(&target))
    {
        return Err(RefusedRequest {
            status: "403 Forbidden",
            reason: format!("the header `host` names another host than `{authority}`"),
        });
    }
    if values_of("transfer-encoding").next().is_some() {
        return Err(RefusedRequest {
            status: "411 Length Required",
            reason: "a body needs a `content-length` here".into(),
        });
    }
    let lengths: Vec<&str> = values_of("content-length").collect();
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let body_bytes = match lengths.as_slice() {
        [] => 0,
        [length] if is_number(length) => {
            length.parse().map_err(|_| bad_request("the `content-length` is not a length"))?
        }
        _ => return Err(bad_request("the `content-length` is not a length")),
    };
    let path_and_query = path_and_query.split('#').next().unwrap_or_default();
    let slash = if path_and_query.starts_with('/') { "" } else { "/" };
    // A server of HTTP/1.1 may answer in a form that a client of HTTP/1.0 cannot read.
    let minor_version = request.version.unwrap_or(1);
    let authority = match target.port {
        80 => target.host.clone(),
        port => format!("{}:{port}", target.host),
    };
    let mut head_to_send =
        format!("{method} {slash}{path_and_query} HTTP/1.{minor_version}\r\nhost: {authority}\r\n");
    head_to_send.push_str("connection: close\r\n");
    if !lengths.is_empty() {
        head_to_send.push_str(&format!("content-length: {body_bytes}\r\n"));
    }
    let mut head_to_send = head_to_send.into_bytes();
    // A recipient drops the headers that `connection` names (RFC 9110 §7.6.1), and so does the proxy.
    let connection_fields: Vec<String> = values_of("connection")
        .flat_map(|names| names.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .collect();
    for header in request.headers.iter() {
        let name = header.name.to_ascii_lowercase();
        if !DROPPED_HEADERS.contains(&name.as_str()) && !connection_fields.contains(&name) {
            head_to_send.extend([name.as_bytes(), b": ", header.value, b"\r\n"].concat());
        }
    }
    head_to_send.extend(b"\r\n");
    Ok(ProxyRequest::Plain { target, head: head_to_send, body_bytes })
}

impl Target {
    /// Reads `HOST` or `HOST:PORT`, without a user's name and without a path.
    pub(super) fn parse(text: &str, default_port: u16) -> Option<Self> {
        let is_plain = |letter: char| letter.is_ascii_graphic() && !"@/\\?#%".contains(letter);
        if text.is_empty() || !text.chars().all(is_plain) {
            return None;
        }
        let port = text.rsplit_once(':').map(|(_, port)| port).filter(|port| !port.ends_with(']'));
        let port = match port {
            Some(port) if is_port(port) => port.parse().ok()?,
            Some(_) => return None,
            None => default_port,
        };
        let url = Url::parse(&format!("http://{text}/")).ok()?;
        let host = url.host_str()?.trim_end_matches('.').to_ascii_lowercase();
        (!host.is_empty()).then_some(Self { host, port })
    }

    /// True if a TLS client that names `server_name` means this host. An address has no name.
    pub(super) fn is_named(&self, server_name: Option<&str>) -> bool {
        let is_address = self.host.trim_matches(['[', ']']).parse::<core::net::IpAddr>().is_ok();
        match server_name {
            Some(name) => name.trim_end_matches('.').eq_ignore_ascii_case(&self.host),
            None => is_address,
        }
    }
}

fn is_port(text: &str) -> bool {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    is_number && text.parse::<u16>().is_ok_and(|port| port > 0)
}

#[cfg(test)]
mod tests {
    use super::{ProxyRequest, Target, parse};

    fn shown(head: &str) -> String {
        match parse(head.as_bytes()) {
            Ok(ProxyRequest::Tunnel(target)) => format!("tunnel {}:{}", target.host, target.port),
            Ok(ProxyRequest::Plain { target, head, body_bytes }) => {
                let head = String::from_utf8(head).unwrap().replace("\r\n", "|");
                format!("{}:{} {body_bytes} {head}", target.host, target.port)
            }
            Err(refused) => refused.status[..3].to_owned(),
        }
    }

    #[test]
    fn tunnels_lead_to_one_host_and_port() {
        let check = |target: &str, expect: &str| {
            let actual = shown(&format!("CONNECT {target} HTTP/1.1\r\nhost: other\r\n\r\n"));
            assert_eq!(actual, expect, "{target}");
        };
        check("a.example:443", "tunnel a.example:443");
        check("A.Example.:443", "tunnel a.example:443");
        check("[::1]:5432", "tunnel [::1]:5432");
        // An address in any notation is that address.
        check("0x7f.1:443", "tunnel 127.0.0.1:443");
        check("2130706433:443", "tunnel 127.0.0.1:443");
        for target in [
            "a.example",
            "a.example:",
            "a.example:0",
            "a.example:x",
            "a.example:99999",
            ":443",
            "/",
            "u@a.example:443",
            "a.example:443@b.example:443",
            "a.example/:443",
            "a.example%2e:443",
            "a.example#b:443",
            "a.example\\b:443",
            "http://a.example:443",
            ".:443",
        ] {
            check(target, "400");
        }
    }

    #[test]
    fn plain_requests_are_written_anew() {
        let check = |lines: &[&str], expect: &str| {
            let actual = shown(&format!("{}\r\n\r\n", lines.join("\r\n")));
            assert_eq!(actual, expect, "{lines:?}");
        };
        check(
            &["GET http://a.example/x?y HTTP/1.1", "Host: a.example", "Accept: */*"],
            "a.example:80 0 GET /x?y HTTP/1.1|host: a.example|connection: close|accept: */*||",
        );
        check(
            &["POST http://a.example:8000 HTTP/1.1", "Host: A.example:8000", "Content-Length: 3"],
            "a.example:8000 3 POST / HTTP/1.1|host: a.example:8000|connection: close|content-length: 3||",
        );
        check(
            &[
                "GET http://a.example/ HTTP/1.1",
                "Connection: x-a, close",
                "X-A: 1",
                "Proxy-Authorization: z",
            ],
            "a.example:80 0 GET / HTTP/1.1|host: a.example|connection: close||",
        );
        for path in ["/?q='y'", "/a/../b", "/{id}", "/a\\b", "//x", "/%7bid%7d?%20"] {
            let sent =
                format!("a.example:80 0 GET {path} HTTP/1.1|host: a.example|connection: close||");
            check(&[&format!("GET http://a.example{path} HTTP/1.1")], &sent);
        }
        check(
            &["GET http://a.example?q#f HTTP/1.0"],
            "a.example:80 0 GET /?q HTTP/1.0|host: a.example|connection: close||",
        );
        check(&["GET http://a.example/ HTTP/1.1", "Host: b.example"], "403");
        check(&["GET http://a.example/ HTTP/1.1", "Host: a.example", "Host: a.example"], "403");
        check(&["GET http://a.example/ HTTP/1.1", "Host: a.example:81"], "403");
        check(&["GET http://a.example/ HTTP/1.1", "Transfer-Encoding: chunked"], "411");
        for length in ["-1", "+3", "3, 3", "0x3", "99999999999999999999"] {
            let header = format!("Content-Length: {length}");
            check(&["POST http://a.example/ HTTP/1.1", &header], "400");
        }
        check(
            &["POST http://a.example/ HTTP/1.1", "Content-Length: 1", "Content-Length: 2"],
            "400",
        );
        check(&["GET http://a.example/ HTTP/1.1", " folded: x"], "400");
        check(&["GET http://a.example/ HTTP/1.1", "Host : b.example"], "400");
        for path in [
            "/",
            "https://a.example/",
            "ftp://a.example/",
            "http://u:p@a.example/",
            "http://a.example@b.example/",
            "http:///x",
            "http://a.example:x/",
            "*",
        ] {
            check(&[&format!("GET {path} HTTP/1.1")], "400");
        }
    }

    #[test]
    fn the_name_that_a_client_asks_for_is_the_host() {
        let target = |host: &str| Target { host: host.into(), port: 443 };
        assert!(target("a.example").is_named(Some("A.example.")));
        assert!(!target("a.example").is_named(Some("b.example")));
        assert!(!target("a.example").is_named(None));
        assert!(target("1.2.3.4").is_named(None) && target("[::1]").is_named(None));
        assert!(!target("1.2.3.4").is_named(Some("b.example")));
    }
}
