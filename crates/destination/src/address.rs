//! Addresses that a permitted name may not resolve to.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Why an address is special: it belongs to this machine or to its cloud provider, not to the name that resolved to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Special {
    /// `0.0.0.0/8` or `::`, which many systems connect to themselves.
    Unspecified,
    /// `127.0.0.0/8` or `::1`: Coppice's own pod.
    Loopback,
    /// `169.254.0.0/16` or `fe80::/10`: the node and its neighbours.
    LinkLocal,
    /// `224.0.0.0/4` or `ff00::/8`.
    Multicast,
    /// `255.255.255.255`.
    Broadcast,
    /// An address at which a cloud hands out credentials and settings of the machine.
    Metadata,
}

impl fmt::Display for Special {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unspecified => "an unspecified address",
            Self::Loopback => "a loopback address",
            Self::LinkLocal => "a link-local address",
            Self::Multicast => "a multicast address",
            Self::Broadcast => "the broadcast address",
            Self::Metadata => "a cloud metadata address",
        })
    }
}

/// IPv4 metadata services: AWS, Azure, GCP, Hetzner and others; AWS ECS and EKS; Scaleway; Tencent; Alibaba; Oracle
/// classic; Azure's wire server.
const METADATA_V4: [Ipv4Addr; 8] = [
    Ipv4Addr::new(169, 254, 169, 254),
    Ipv4Addr::new(169, 254, 170, 2),
    Ipv4Addr::new(169, 254, 170, 23),
    Ipv4Addr::new(169, 254, 42, 42),
    Ipv4Addr::new(169, 254, 0, 23),
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(192, 0, 0, 192),
    Ipv4Addr::new(168, 63, 129, 16),
];

/// IPv6 metadata services outside of `fe80::/10` and `fd00:ec2::/32`: GCP, Scaleway, Oracle.
const METADATA_V6: [Ipv6Addr; 3] = [
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42),
    Ipv6Addr::new(0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe),
];

/// What is special about an address, also about the IPv4 address that an IPv6 address carries; `None` for an ordinary one.
///
/// Private ranges are ordinary: that is where the cluster's own services live.
pub fn special(address: IpAddr) -> Option<Special> {
    match address {
        IpAddr::V4(address) => special_v4(address),
        IpAddr::V6(address) => special_v6(address),
    }
}

fn special_v4(address: Ipv4Addr) -> Option<Special> {
    if METADATA_V4.contains(&address) {
        Some(Special::Metadata)
    } else if address.octets()[0] == 0 {
        Some(Special::Unspecified)
    } else if address.is_loopback() {
        Some(Special::Loopback)
    } else if address.is_link_local() {
        Some(Special::LinkLocal)
    } else if address.is_multicast() {
        Some(Special::Multicast)
    } else if address.is_broadcast() {
        Some(Special::Broadcast)
    } else {
        None
    }
}

fn special_v6(address: Ipv6Addr) -> Option<Special> {
    let segments = address.segments();
    if METADATA_V6.contains(&address) || segments[..2] == [0xfd00, 0xec2] {
        Some(Special::Metadata)
    } else if address.is_unspecified() {
        Some(Special::Unspecified)
    } else if address.is_loopback() {
        Some(Special::Loopback)
    } else if address.is_unicast_link_local() {
        Some(Special::LinkLocal)
    } else if address.is_multicast() {
        Some(Special::Multicast)
    } else {
        embedded(address).and_then(special_v4)
    }
}

/// The IPv4 address that an IPv6 address leads to: IPv4-mapped, -compatible and -translated, NAT64 (the well-known prefix and the local one as
/// a /96), 6to4, Teredo.
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    match address.segments() {
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x64, 0xff9b, 1, _, _, _, high, low]
        | [0x2002, high, low, ..] => Some(v4(high, low)),
        // Teredo writes the client's address inverted.
        [0x2001, 0, .., high, low] => Some(v4(!high, !low)),
        _ => None,
    }
}

fn v4(high: u16, low: u16) -> Ipv4Addr {
    Ipv4Addr::from((u32::from(high) << 16) | u32::from(low))
}
