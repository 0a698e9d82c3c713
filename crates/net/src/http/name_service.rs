//! Resolves host names with the name services of the system (nsswitch.conf(5)).

use std::io::{Error, Result};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::OnceLock;

/// Resolves a host and a port. Returns `None` if the C library is to do it; no address for an unknown name.
pub type NameService = fn(&str, u16) -> Option<Vec<SocketAddr>>;

/// The name service that is queried before the C library.
static NAME_SERVICE: OnceLock<NameService> = OnceLock::new();

/// Makes lookups query `service` before the C library, from now on. The first service that is set stays.
pub fn set_name_service(service: NameService) {
    NAME_SERVICE.get_or_init(|| service);
}

/// Resolves `host`. It has no timeout of its own.
///
/// # Errors
/// An unknown name, or the system's message about a resolver that does not respond.
pub(super) fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>> {
    match NAME_SERVICE.get().and_then(|service| service(host, port)) {
        Some(addresses) if addresses.is_empty() => Err(no_address(host, "")),
        Some(addresses) => Ok(addresses),
        None => match (host, port).to_socket_addrs() {
            Ok(addresses) => Ok(addresses.collect()),
            Err(error) => Err(no_address(host, &error.to_string())),
        },
    }
}

/// The error for a host without an address. `message` is the message of the standard library.
fn no_address(host: &str, message: &str) -> Error {
    const PREFIX: &str = "failed to lookup address information: ";
    let reason = match message.strip_prefix(PREFIX).unwrap_or(message) {
        // The messages of glibc and of musl for an unknown name.
        "Name or service not known" | "Name does not resolve" => "",
        reason => reason,
    };
    Error::other(match reason {
        "" => format!("no address for the host `{host}`"),
        reason => format!("no address for the host `{host}`: {reason}"),
    })
}

#[cfg(test)]
mod tests {
    use super::{no_address, resolve};

    #[test]
    fn a_host_without_an_address_is_named() {
        let check = |message: &str, expect: &str| {
            assert_eq!(no_address("h.invalid", message).to_string(), expect);
        };
        let unknown = "failed to lookup address information: Name or service not known";
        check(unknown, "no address for the host `h.invalid`");
        check("", "no address for the host `h.invalid`");
        check(
            "failed to lookup address information: Temporary failure in name resolution",
            "no address for the host `h.invalid`: Temporary failure in name resolution",
        );
    }

    #[test]
    fn the_c_library_knows_this_host() {
        let addresses = resolve("localhost", 7).unwrap();
        assert!(addresses.iter().all(|address| address.ip().is_loopback()), "{addresses:?}");
        assert!(!addresses.is_empty());
    }
}
