//! Resolves host names with the name services of the system (nsswitch.conf(5)).
//!
//! A static C library has the services `files` and `dns` built in. It loads any other one as a shared library, which must
//! be of the same version: it may crash after an upgrade of the system. Then getent(1) resolves the name.

use std::io::{Error, Result};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::process::{Command, Stdio};

/// Resolves `host`, and may take as long as the services do.
///
/// # Errors
/// The system's message: an unknown name differs from a resolver that does not respond.
pub(super) fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>> {
    if cfg!(static_glibc) && needs_shared_libraries() {
        let output = Command::new("getent")
            .args(["ahosts", "--", host])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output();
        // Without getent the built-in services are better than nothing.
        if let Ok(output) = output {
            let addresses = parse_getent(&String::from_utf8_lossy(&output.stdout), port);
            return match addresses.is_empty() {
                true => Err(Error::other(
                    "failed to lookup address information: Name or service not known",
                )),
                false => Ok(addresses),
            };
        }
    }
    Ok((host, port).to_socket_addrs()?.collect())
}

fn needs_shared_libraries() -> bool {
    std::fs::read_to_string("/etc/nsswitch.conf")
        .is_ok_and(|text| !has_only_built_in_services(&text))
}

/// Returns true if the line `hosts` of nsswitch.conf(5) names no service but `files` and `dns`.
fn has_only_built_in_services(text: &str) -> bool {
    let lines = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default());
    let services = lines.filter_map(|line| line.trim().strip_prefix("hosts:"));
    services
        .flat_map(without_actions)
        .all(|service| matches!(service, "files" | "dns"))
}

/// The services of a line, without the actions between them, such as `[NOTFOUND=return]`.
fn without_actions(line: &str) -> impl Iterator<Item = &str> {
    let parts = line.split('[').enumerate();
    let names = parts.map(|(index, part)| match index {
        0 => part,
        _ => part.split_once(']').map_or("", |(_, names)| names),
    });
    names.flat_map(str::split_whitespace)
}

/// Parses the lines `ADDRESS TYPE [NAME]` of `getent ahosts`. Each address has one line for each type of socket.
fn parse_getent(text: &str, port: u16) -> Vec<SocketAddr> {
    let mut addresses = Vec::new();
    for line in text.lines() {
        let address = line
            .split_whitespace()
            .next()
            .and_then(|word| word.parse::<IpAddr>().ok());
        let address = address.map(|address| SocketAddr::new(address, port));
        addresses.extend(address.filter(|address| !addresses.contains(address)));
    }
    addresses
}

#[cfg(test)]
mod tests {
    use super::{has_only_built_in_services, parse_getent, resolve};

    #[test]
    fn other_services_than_files_and_dns_are_found() {
        for (line, expect) in [
            ("hosts: files dns", true),
            ("hosts:\tdns [!UNAVAIL=return] files", true),
            ("passwd: files systemd\nhosts: files dns # mdns4", true),
            ("", true),
            ("hosts: files mdns4_minimal [NOTFOUND=return] dns", false),
            (
                "hosts: files myhostname resolve [!UNAVAIL=return] dns",
                false,
            ),
            ("hosts: dns [NOTFOUND=return]\n hosts: resolve", false),
        ] {
            assert_eq!(has_only_built_in_services(line), expect, "{line}");
        }
    }

    #[test]
    fn each_address_of_getent_is_taken_once() {
        let text = "::1             STREAM localhost\n::1             DGRAM\n127.0.0.1       STREAM\nnonsense\n";
        let addresses: Vec<_> = parse_getent(text, 80)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(addresses, ["[::1]:80", "127.0.0.1:80"]);
    }

    #[test]
    fn getent_prints_what_is_parsed() {
        let output = std::process::Command::new("getent")
            .args(["ahosts", "--", "localhost"])
            .output()
            .unwrap();
        let addresses = parse_getent(&String::from_utf8(output.stdout).unwrap(), 7);
        assert!(addresses.iter().any(|address| address.ip().is_loopback()));
        for address in resolve("localhost", 7).unwrap() {
            assert!(address.ip().is_loopback(), "{address}");
        }
    }
}
