//! Finds the addresses of the machine itself in a command and in its output, which say what server it has not reached. No I/O.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The names of this machine on its own network, with their addresses.
const NAMES: &[(&str, &[IpAddr])] = &[
    ("localhost", &[IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)]),
    ("127.0.0.1", &[IpAddr::V4(Ipv4Addr::LOCALHOST)]),
    ("0.0.0.0", &[IpAddr::V4(Ipv4Addr::LOCALHOST)]),
    ("::1", &[IpAddr::V6(Ipv6Addr::LOCALHOST)]),
];

/// The addresses with ports that `text` names, line by line, in the forms of addresses and of messages of programs.
pub(super) fn find_loopback_addresses(text: &str) -> impl Iterator<Item = SocketAddr> {
    text.lines().flat_map(|line| NAMES.iter().map(move |name| (line, name))).flat_map(
        |(line, (name, addresses))| {
            let ports = line.match_indices(name).filter_map(move |(start, _)| {
                let (before, rest) = (&line[..start], &line[start + name.len()..]);
                let is_whole =
                    !before.ends_with(is_name_character) && !rest.starts_with(is_name_character);
                if is_whole { parse_port(rest) } else { None }
            });
            ports.flat_map(|port| addresses.iter().map(move |ip| SocketAddr::new(*ip, port)))
        },
    )
}

/// True for a character beside which a name would be part of another one. A colon comes before the port.
fn is_name_character(character: char) -> bool {
    character.is_alphanumeric() || ".-_".contains(character)
}

/// The port at the beginning of `text`, as in `:80`, ` port 80`, `', 80)` or `"), port=80`.
fn parse_port(text: &str) -> Option<u16> {
    let is_mark = |letter: char| !letter.is_alphanumeric();
    let text = text.trim_start_matches(is_mark);
    let text = text.strip_prefix("port").unwrap_or(text).trim_start_matches(is_mark);
    let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    // A number with a point after it is an address, unless the sentence ends there.
    let is_longer = rest.strip_prefix('.').unwrap_or(rest).starts_with(char::is_alphanumeric);
    digits.parse().ok().filter(|port| *port > 0 && !is_longer)
}

#[cfg(test)]
mod tests {
    use super::find_loopback_addresses;

    #[test]
    fn addresses_are_named_in_many_forms() {
        let check = |text: &str, expect: &[&str]| {
            let actual: Vec<String> =
                find_loopback_addresses(text).map(|address| address.to_string()).collect();
            assert_eq!(actual, expect, "{text}");
        };
        check("curl -sS http://127.0.0.1:18734/v1/models", &["127.0.0.1:18734"]);
        check("curl: (7) Failed to connect to 127.0.0.1 port 8000 after 0 ms", &["127.0.0.1:8000"]);
        check(
            "connection to server at \"localhost\" (127.0.0.1), port 5432 failed",
            &["127.0.0.1:5432"],
        );
        check("connect ECONNREFUSED ::1:3000", &["[::1]:3000"]);
        check("http://[::1]:3000/", &["[::1]:3000"]);
        check("HTTPConnectionPool(host='localhost', port=80): Max", &["127.0.0.1:80", "[::1]:80"]);
        check("nc -z 0.0.0.0 6379", &["127.0.0.1:6379"]);
        check("a localhost\nb 127.0.0.1:1\nc", &["127.0.0.1:1"]);
        for nothing in [
            "",
            "localhost",
            "http://localhost/ -m 3",
            "127.0.0.1:99999",
            "127.0.0.1:0",
            "127.0.0.10:80",
            "10.127.0.0.1:80",
            "mylocalhost:80",
            "localhost.example.org:80",
            "localhost refused port 80",
        ] {
            check(nothing, &[]);
        }
    }
}
