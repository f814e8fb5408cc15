//! What of a `Shoot` depends on the infrastructure. What others have chosen there stays, such as a VPC that was there before.

use coppice_api::Reason;
use coppice_clusters_api::{Infrastructure, ManagedClusterSpec, OpenStack, ZoneAddresses};
use serde_json::{Value, json};

use super::shoot::gardener;
use super::{Failure, Settings, addresses, at, object};

/// For so long a NAT gateway of Azure keeps connections that nothing is sent on.
const IDLE_MINUTES: u32 = 4;

/// An extender.
pub(super) fn infrastructure(
    spec: &ManagedClusterSpec,
    live: &Value,
    settings: &Settings,
) -> Result<Value, Failure> {
    let of = gardener(spec)?;
    let nodes = spec.networks.as_ref().and_then(|networks| networks.nodes.as_deref()).unwrap_or_default();
    let zones = &settings.addresses;
    let config = at(live, "/spec/provider/infrastructureConfig");
    let name = of.infrastructure.as_str();
    let (networks, controls) = match of.infrastructure {
        Infrastructure::Aws => (aws(nodes, zones, config)?, json!({})),
        Infrastructure::Azure => (azure(nodes, zones, config)?, json!({})),
        Infrastructure::Gcp => {
            (json!({"networks": {"workers": nodes}}), json!({"zone": first_zone(spec, live)?}))
        }
        Infrastructure::Openstack => openstack(nodes, of.openstack.as_ref())?,
    };
    let typed = |kind: &str, mut fields: Value| {
        fields["apiVersion"] = json!(format!("{name}.provider.extensions.gardener.cloud/v1alpha1"));
        fields["kind"] = json!(kind);
        fields
    };
    Ok(json!({"spec": {"provider": {
        "type": name,
        "infrastructureConfig": typed("InfrastructureConfig", networks),
        "controlPlaneConfig": typed("ControlPlaneConfig", controls),
    }}}))
}

fn aws(nodes: &str, zones: &[ZoneAddresses], live: &Value) -> Result<Value, Failure> {
    if zones.is_empty() {
        return Err(no_zone("AWS"));
    }
    let zones: Vec<Value> = zones
        .iter()
        .map(|zone| {
            object([
                ("name", json!(zone.zone)),
                ("workers", json!(zone.workers)),
                ("public", json!(zone.public)),
                ("internal", json!(zone.internal)),
            ])
        })
        .collect();
    // A VPC that was there before has its own network.
    let own = at(live, "/networks/vpc/id").is_null();
    let vpc = if own { json!({"cidr": nodes}) } else { Value::Null };
    Ok(json!({"networks": object([("vpc", vpc), ("zones", json!(zones))])}))
}

/// That an infrastructure takes no cluster without a zone.
fn no_zone(infrastructure: &str) -> Failure {
    let message = format!("spec.workers[].zones: write at least one zone, which {infrastructure} needs");
    Failure::permanent(Reason::InvalidSpec, message)
}

fn azure(nodes: &str, zones: &[ZoneAddresses], live: &Value) -> Result<Value, Failure> {
    let own = at(live, "/networks/vnet/name").is_null();
    let vnet = if own { json!({"cidr": nodes}) } else { Value::Null };
    if zones.is_empty() {
        return Ok(json!({"networks": object([("vnet", vnet), ("workers", json!(nodes))])}));
    }
    let mut all = Vec::new();
    for ZoneAddresses { zone, workers, .. } in zones {
        let Ok(number) = zone.parse::<u32>() else {
            return Err(Failure::permanent(
                Reason::InvalidSpec,
                format!(
                    "spec.workers[].zones: write the number of a zone of Azure, such as 1, and not {zone}"
                ),
            ));
        };
        let gateway = json!({"enabled": true, "idleConnectionTimeoutMinutes": IDLE_MINUTES});
        all.push(json!({"name": number, "cidr": workers, "natGateway": gateway}));
    }
    Ok(json!({"networks": object([("vnet", vnet), ("zones", json!(all))]), "zoned": true}))
}

/// The zone of a control plane on Google Cloud: the one that it has, or the first of all pools.
fn first_zone(spec: &ManagedClusterSpec, live: &Value) -> Result<String, Failure> {
    if let Some(zone) = at(live, "/spec/provider/controlPlaneConfig/zone").as_str() {
        return Ok(zone.to_owned());
    }
    addresses::zones(spec, live).into_iter().next().ok_or_else(|| no_zone("Google Cloud"))
}

fn openstack(nodes: &str, of: Option<&OpenStack>) -> Result<(Value, Value), Failure> {
    let none = || Failure::permanent(Reason::InvalidSpec, "spec.provider.gardener: write openstack");
    let OpenStack { floating_pool, load_balancer } = of.ok_or_else(none)?;
    let networks = json!({"floatingPoolName": floating_pool, "networks": {"workers": nodes}});
    Ok((networks, json!({"loadBalancerProvider": load_balancer})))
}
