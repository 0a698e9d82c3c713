//! Name services of the system (nsswitch.conf(5)) for a static program.
//!
//! A static C library has the services `files` and `dns` built in. It loads any other one as a shared library, which must
//! be of the same version: it may crash after an upgrade of the system. Then getent(1) resolves the name.

use nanobot_sandbox::process::{self, CommandSpec};
use std::io::{Error, Result};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// The program that asks all services. Its path is fixed, so that `PATH` cannot name another program.
const GETENT: &str = "/usr/bin/getent";
/// Time after which getent is killed. Callers have shorter limits of their own.
const GETENT_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum size of the output of getent.
const MAX_OUTPUT_BYTES: usize = 64 << 10;

/// Makes the HTTP client ask this module for addresses, if this program is static.
pub(crate) fn configure() {
    if cfg!(static_glibc) {
        nanobot_net::http::set_name_service(resolve);
    }
}

/// Resolves `host` with getent(1), if the system needs it. Returns `None` if the C library can do it. It also returns `None` if
/// getent fails, since the services that are built in are better than nothing.
fn resolve(host: &str, port: u16) -> Option<Vec<SocketAddr>> {
    if !needs_shared_libraries() {
        return None;
    }
    query_getent(host, port).ok()
}

/// The status of getent(1) for an unknown name.
const GETENT_NOT_FOUND: i32 = 2;

/// The addresses that getent(1) prints. There are none for an unknown name.
fn query_getent(host: &str, port: u16) -> Result<Vec<SocketAddr>> {
    let spec = CommandSpec {
        program: GETENT.into(),
        arguments: ["ahosts", "--", host].map(str::to_owned).into(),
        directory: "/".into(),
        env: Vec::new(),
        timeout: GETENT_TIMEOUT,
        capture_bytes: MAX_OUTPUT_BYTES,
        sandbox: None,
        input: None,
    };
    let result = process::run(&spec, &mut |_| {})?;
    let status = result.status.and_then(|status| status.code());
    if !matches!(status, Some(0 | GETENT_NOT_FOUND)) {
        return Err(Error::other("getent failed"));
    }
    Ok(parse_getent(&String::from_utf8_lossy(&result.head), port))
}

fn needs_shared_libraries() -> bool {
    std::fs::read_to_string("/etc/nsswitch.conf")
        .is_ok_and(|text| !has_only_built_in_services(&text))
}

/// Returns true if the line `hosts` of nsswitch.conf(5) names no service but `files` and `dns`.
fn has_only_built_in_services(text: &str) -> bool {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    let services = lines.filter_map(|line| line.trim().strip_prefix("hosts:"));
    services.flat_map(without_actions).all(|service| matches!(service, "files" | "dns"))
}

/// The services of a line, without the actions between them, such as `[NOTFOUND=return]`.
fn without_actions(line: &str) -> impl Iterator<Item = &str> {
    let (first, rest) = line.split_once('[').unwrap_or((line, ""));
    // Each later part begins within an action.
    let after_actions = rest.split('[').filter_map(|part| Some(part.split_once(']')?.1));
    std::iter::once(first).chain(after_actions).flat_map(str::split_whitespace)
}

/// Parses the lines `ADDRESS TYPE [NAME]` of `getent ahosts`. Each address has one line for each type of socket.
fn parse_getent(text: &str, port: u16) -> Vec<SocketAddr> {
    let mut addresses = Vec::new();
    let columns = text.lines().filter_map(|line| line.split_whitespace().next());
    for ip in columns.filter_map(|column| column.parse::<IpAddr>().ok()) {
        let address = SocketAddr::new(ip, port);
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    addresses
}

#[cfg(test)]
mod tests {
    use super::{has_only_built_in_services, parse_getent, query_getent};

    #[test]
    fn other_services_than_files_and_dns_are_found() {
        for (line, expect) in [
            ("hosts: files dns", true),
            ("hosts:\tdns [!UNAVAIL=return] files", true),
            ("passwd: files systemd\nhosts: files dns # mdns4", true),
            ("", true),
            ("hosts: files mdns4_minimal [NOTFOUND=return] dns", false),
            ("hosts: files myhostname resolve [!UNAVAIL=return] dns", false),
            ("hosts: dns [NOTFOUND=return]\n hosts: resolve", false),
        ] {
            assert_eq!(has_only_built_in_services(line), expect, "{line}");
        }
    }

    #[test]
    fn each_address_of_getent_is_taken_once() {
        let text = "::1             STREAM localhost\n::1             DGRAM\n127.0.0.1       STREAM\nnonsense\n";
        let addresses: Vec<_> = parse_getent(text, 80).iter().map(ToString::to_string).collect();
        assert_eq!(addresses, ["[::1]:80", "127.0.0.1:80"]);
    }

    #[test]
    fn getent_prints_what_is_parsed() {
        let addresses = query_getent("localhost", 7).unwrap();
        assert!(!addresses.is_empty());
        for address in addresses {
            assert!(address.ip().is_loopback(), "{address}");
        }
        assert!(query_getent("name.invalid", 7).unwrap().is_empty());
    }
}
