//! IP addresses: which of them belong to the public internet, and address ranges. Untrusted content must not direct a
//! request to this machine, to its local network, or to a cloud's internal services. No I/O.
//!
//! Host names are not checked here. They are resolved once, and the resolved address is checked.

use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// IPv4 networks outside the public internet, with their prefix length in bits (IANA special-purpose address registry).
const SPECIAL_IPV4: &[IpRange] = &[
    ipv4(Ipv4Addr::new(0, 0, 0, 0), 8),
    ipv4(Ipv4Addr::new(10, 0, 0, 0), 8),
    ipv4(Ipv4Addr::new(100, 64, 0, 0), 10),
    ipv4(Ipv4Addr::new(127, 0, 0, 0), 8),
    // Link-local; also the metadata service of most clouds.
    ipv4(Ipv4Addr::new(169, 254, 0, 0), 16),
    ipv4(Ipv4Addr::new(172, 16, 0, 0), 12),
    ipv4(Ipv4Addr::new(192, 0, 0, 0), 24),
    ipv4(Ipv4Addr::new(192, 0, 2, 0), 24),
    ipv4(Ipv4Addr::new(192, 31, 196, 0), 24),
    ipv4(Ipv4Addr::new(192, 52, 193, 0), 24),
    ipv4(Ipv4Addr::new(192, 88, 99, 0), 24),
    ipv4(Ipv4Addr::new(192, 168, 0, 0), 16),
    ipv4(Ipv4Addr::new(192, 175, 48, 0), 24),
    ipv4(Ipv4Addr::new(198, 18, 0, 0), 15),
    ipv4(Ipv4Addr::new(198, 51, 100, 0), 24),
    ipv4(Ipv4Addr::new(203, 0, 113, 0), 24),
    // A public address, but Azure's virtual machines reach a platform service there.
    ipv4(Ipv4Addr::new(168, 63, 129, 16), 32),
    ipv4(Ipv4Addr::new(224, 0, 0, 0), 4),
    ipv4(Ipv4Addr::new(240, 0, 0, 0), 4),
];

/// The only IPv6 block allocated for global unicast.
const GLOBAL_IPV6: IpRange = ipv6(Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);

/// Special-purpose networks inside [`GLOBAL_IPV6`]: Teredo, benchmarking, ORCHID, documentation, 6to4, AS112.
const SPECIAL_IPV6: &[IpRange] = &[
    ipv6(Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 32),
    ipv6(Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 0), 48),
    ipv6(Ipv6Addr::new(0x2001, 0x10, 0, 0, 0, 0, 0, 0), 28),
    ipv6(Ipv6Addr::new(0x2001, 0x20, 0, 0, 0, 0, 0, 0), 28),
    ipv6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    ipv6(Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16),
    ipv6(Ipv6Addr::new(0x2620, 0x4f, 0x8000, 0, 0, 0, 0, 0), 48),
    ipv6(Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
];

/// The NAT64 prefix: on IPv6-only networks, every IPv4 host is reached through such an address.
const NAT64: IpRange = ipv6(Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96);

const fn ipv4(network: Ipv4Addr, prefix_bits: u32) -> IpRange {
    IpRange { network: IpAddr::V4(network), prefix_bits }
}

const fn ipv6(network: Ipv6Addr, prefix_bits: u32) -> IpRange {
    IpRange { network: IpAddr::V6(network), prefix_bits }
}

/// True if `address` belongs to the public internet.
pub(crate) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(_) => !SPECIAL_IPV4.iter().any(|range| range.contains(address)),
        IpAddr::V6(ipv6) if NAT64.contains(address) => {
            let [.., a, b, c, d] = ipv6.octets();
            is_public(Ipv4Addr::new(a, b, c, d).into())
        }
        IpAddr::V6(ipv6) => {
            // ISATAP: an arbitrary IPv4 address embedded in an apparently global IPv6 address. Its flag bits can have
            // any value.
            let is_tunnelled = matches!(ipv6.segments(), [_, _, _, _, _, 0x5efe, _, _]);
            let is_special = SPECIAL_IPV6.iter().any(|range| range.contains(address));
            GLOBAL_IPV6.contains(address) && !is_special && !is_tunnelled
        }
    }
}

/// A range of addresses, written as `10.0.0.0/8`, or as `127.0.0.1` for a single address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IpRange {
    network: IpAddr,
    /// Length of the common prefix, in bits.
    prefix_bits: u32,
}

impl IpRange {
    /// True if the range contains `address`. An IPv4 address does not match its IPv4-mapped IPv6 form.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.network, address) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let different_bits = u32::from(network) ^ u32::from(address);
                self.prefix_bits == 0 || different_bits >> (32 - self.prefix_bits) == 0
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                let different_bits = u128::from(network) ^ u128::from(address);
                self.prefix_bits == 0 || different_bits >> (128 - self.prefix_bits) == 0
            }
            _ => false,
        }
    }

    /// True if the range is wider than the widest private network, and so effectively covers all networks.
    pub fn is_wide(&self) -> bool {
        // `10.0.0.0/8` and `fc00::/7`.
        let private_bits = if self.network.is_ipv4() { 8 } else { 7 };
        self.prefix_bits < private_bits
    }
}

impl FromStr for IpRange {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (network, length) = match text.trim().split_once('/') {
            Some((network, length)) => (network, Some(length)),
            None => (text.trim(), None),
        };
        let network: IpAddr = network.parse().map_err(drop)?;
        let address_bits = if network.is_ipv4() { 32 } else { 128 };
        let prefix_bits = match length {
            Some(digits) if digits.bytes().all(|digit| digit.is_ascii_digit()) => {
                digits.parse().map_err(drop)?
            }
            Some(_) => return Err(()),
            None => address_bits,
        };
        if prefix_bits > address_bits {
            return Err(());
        }
        Ok(Self { network, prefix_bits })
    }
}

#[cfg(test)]
mod tests {
    use super::{IpRange, is_public};

    #[test]
    fn ranges() {
        let check = |range: &str, address: &str, expect: Option<bool>| {
            let range: Option<IpRange> = range.parse().ok();
            let holds = range.map(|range| range.contains(address.parse().unwrap()));
            assert_eq!(holds, expect, "{range:?} {address}");
        };
        check("10.0.0.0/8", "10.255.0.1", Some(true));
        check("10.0.0.0/8", "11.0.0.1", Some(false));
        check("10.1.2.3/8", "10.0.0.1", Some(true));
        check(" 127.0.0.1 ", "127.0.0.1", Some(true));
        check("127.0.0.1/32", "127.0.0.2", Some(false));
        check("127.0.0.1/32", "::ffff:127.0.0.1", Some(false));
        check("0.0.0.0/0", "1.2.3.4", Some(true));
        check("0.0.0.0/0", "::1", Some(false));
        check("fd00::/8", "fd12::1", Some(true));
        check("fd00::/8", "fe80::1", Some(false));
        check("::/0", "2001::", Some(true));
        check("::1", "::1", Some(true));
        for wrong in ["", "/", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/+8", "10/8", "::/129", "a"] {
            check(wrong, "10.0.0.1", None);
        }
    }

    #[test]
    fn special_addresses_in_their_spellings() {
        for address in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "10.255.255.255",
            "100.64.0.1",
            "100.100.100.200",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.255.255",
            "168.63.129.16",
            "169.254.0.1",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.1",
            "192.0.2.1",
            "192.31.196.1",
            "192.52.193.1",
            "192.88.99.1",
            "192.168.0.1",
            "192.175.48.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::8.8.8.8",
            "::ffff:127.0.0.1",
            "::ffff:8.8.8.8",
            "::ffff:0:8.8.8.8",
            "64:ff9b::127.0.0.1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b::10.0.0.1",
            "64:ff9b:1::8.8.8.8",
            "100::1",
            "100:0:0:1::1",
            "2001::1",
            "2001:2::1",
            "2001:10::1",
            "2001:20::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "2002:808:808::",
            "2606:4700::5efe:127.0.0.1",
            "2606:4700::200:5efe:8.8.8.8",
            "2606:4700::300:5efe:8.8.8.8",
            "2620:4f:8000::1",
            "3fff::1",
            "4000::1",
            "5f00::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!is_public(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn public_addresses_next_to_special_ranges() {
        for address in [
            "1.1.1.1",
            "8.8.8.8",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "168.63.129.15",
            "169.253.255.255",
            "169.255.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.0",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "64:ff9b::8.8.8.8",
            "2001:4860:4860::8888",
            "2001:200::1",
            "2003::1",
            "2606:4700:4700::1111",
            "2a00:1450:4001:80b::200e",
            "3ffe::1",
        ] {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
    }
}
