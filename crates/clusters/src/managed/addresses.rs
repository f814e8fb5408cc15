//! Which part of the nodes' network each zone has. What a zone has is never changed or given to another one: the provider permits no
//! change of a subnet, and machines live there.

use std::net::Ipv4Addr;

use coppice_api::Reason;
use coppice_clusters_api::managed_cluster::MAX_ZONES;
use coppice_clusters_api::names::LABEL_MANAGED_CLUSTER;
use coppice_clusters_api::{Infrastructure, ManagedClusterSpec, ZoneAddresses};
use serde_json::Value;

use super::{Failure, at, named, pool_zones};

/// An IPv4 prefix.
#[derive(Clone, Copy)]
struct Prefix {
    base: u32,
    bits: u32,
}

impl Prefix {
    fn parse(text: &str) -> Option<Self> {
        let (base, bits) = text.split_once('/')?;
        let base = u32::from(base.parse::<Ipv4Addr>().ok()?);
        let bits = bits.parse::<u32>().ok().filter(|bits| *bits <= 32)?;
        let host = u32::MAX.checked_shr(bits).unwrap_or(0);
        (base & host == 0).then_some(Self { base, bits })
    }

    /// Whether both have an address.
    fn overlaps(self, other: Self) -> bool {
        let mask = |bits: u32| u32::MAX.checked_shl(32 - bits).unwrap_or(0);
        let common = mask(self.bits.min(other.bits));
        self.base & common == other.base & common
    }

    /// The prefix of so many more bits that comes after so many of these.
    fn part(self, more: u32, at: u32) -> String {
        let bits = self.bits + more;
        let base = self.base + (at << (32 - bits));
        format!("{}/{bits}", Ipv4Addr::from(base))
    }
}

/// The zones of all pools, those that are live included, in the order of the pools.
pub fn zones(spec: &ManagedClusterSpec, live: &Value) -> Vec<String> {
    let mut zones: Vec<String> = Vec::new();
    for pool in &spec.workers {
        for zone in pool_zones(pool, named(live, "/spec/provider/workers", &pool.name)) {
            if !zones.contains(&zone) {
                zones.push(zone);
            }
        }
    }
    zones
}

/// The addresses that the zones of a Shoot have, which somebody else may have given to them.
pub fn of_live(live: &Value) -> Vec<ZoneAddresses> {
    let zones = at(live, "/spec/provider/infrastructureConfig/networks/zones").as_array();
    let of_zone = |zone: &Value| {
        let text = |field: &str| zone[field].as_str().map(str::to_owned);
        // Azure has numbers, and one prefix.
        let name = text("name").or_else(|| Some(zone["name"].as_u64()?.to_string()))?;
        let workers = text("workers").or_else(|| text("cidr"))?;
        Some(ZoneAddresses { zone: name, workers, public: text("public"), internal: text("internal") })
    };
    zones.into_iter().flatten().filter_map(of_zone).collect()
}

/// All prefixes of a zone.
fn prefixes(zone: &ZoneAddresses) -> Vec<Prefix> {
    let texts = [Some(&zone.workers), zone.public.as_ref(), zone.internal.as_ref()];
    texts.into_iter().flatten().filter_map(|text| Prefix::parse(text)).collect()
}

fn overlap(one: &ZoneAddresses, other: &ZoneAddresses) -> bool {
    let other = prefixes(other);
    prefixes(one).iter().any(|prefix| other.iter().any(|taken| prefix.overlaps(*taken)))
}

/// The addresses that zones have, and after these those of the zones that have none yet. Only AWS and Azure divide the nodes' network.
pub fn extended(
    infrastructure: Infrastructure,
    nodes: &str,
    has: &[ZoneAddresses],
    zones: &[String],
) -> Result<Vec<ZoneAddresses>, Failure> {
    let invalid = |message: String| Failure::permanent(Reason::InvalidSpec, message);
    if has.len() > MAX_ZONES {
        // It is not the spec that has to be changed.
        return Err(Failure::waiting(
            Reason::InvalidSpec,
            format!(
                "the Shoot that was handed over has addresses of {} zones, and a ManagedCluster has {MAX_ZONES} at most: take the label {LABEL_MANAGED_CLUSTER} off it",
                has.len()
            ),
        ));
    }
    let part = match infrastructure {
        Infrastructure::Aws => aws,
        Infrastructure::Azure => azure,
        Infrastructure::Gcp | Infrastructure::Openstack => return Ok(has.to_vec()),
    };
    let Some(prefix) = Prefix::parse(nodes).filter(|prefix| (16..=24).contains(&prefix.bits)) else {
        return Err(invalid(format!(
            "spec.networks.nodes: write an IPv4 prefix of 16 to 24 bits that begins at its first address, such as 10.250.0.0/16, and not {nodes}"
        )));
    };
    let mut all = has.to_vec();
    for zone in zones {
        if all.iter().any(|has| has.zone == *zone) {
            continue;
        }
        // The first part that nobody has: after those that were given here alone, the next one.
        let mut parts = (0_u32..).take(MAX_ZONES).map(|at| part(prefix, at, zone));
        let free = parts.find(|part| !all.iter().any(|taken| overlap(part, taken)));
        let Some(free) = free.filter(|_| all.len() < MAX_ZONES) else {
            return Err(invalid(format!(
                "spec.workers[].zones: leave out {zone}: a network is divided among {MAX_ZONES} zones at most, those that were taken away included"
            )));
        };
        all.push(free);
    }
    Ok(all)
}

/// Equal parts, one after the other.
fn azure(nodes: Prefix, at: u32, zone: &str) -> ZoneAddresses {
    ZoneAddresses { zone: zone.to_owned(), workers: nodes.part(3, at), public: None, internal: None }
}

/// The first three zones have a quarter each: half of it for workers, and the other half in two. The last quarter is divided among five more
/// zones, three equal parts each.
fn aws(nodes: Prefix, at: u32, zone: &str) -> ZoneAddresses {
    let (workers, public, internal) = if at < 3 {
        (nodes.part(3, 2 * at), nodes.part(4, 4 * at + 2), nodes.part(4, 4 * at + 3))
    } else {
        let first = 48 + 3 * (at - 3);
        (nodes.part(6, first), nodes.part(6, first + 1), nodes.part(6, first + 2))
    };
    ZoneAddresses { zone: zone.to_owned(), workers, public: Some(public), internal: Some(internal) }
}

#[cfg(test)]
#[path = "addresses_tests.rs"]
mod tests;
