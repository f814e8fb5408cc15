//! What makes a `Shoot` of Gardener (`core.gardener.cloud/v1beta1`).

#![allow(clippy::unnecessary_wraps, reason = "extenders may fail")]

use coppice_api::Reason;
use coppice_clusters_api::names::ANNOTATION_AUTHENTICATION;
use coppice_clusters_api::{FailureTolerance, ManagedClusterSpec, Oidc, ShootTemplate, WorkerPool};
use serde_json::{Value, json};

use super::patch::hash;
use super::{
    Extender, Failure, Settings, at, infrastructure, later, named, numbers, object, pool_zones, texts,
};

/// In this order.
pub const EXTENDERS: [Extender; 8] = [
    ("project", project),
    ("networks", networks),
    ("version", version),
    ("highAvailability", high_availability),
    ("oidc", oidc),
    ("auditPolicy", audit_policy),
    ("infrastructure", infrastructure::infrastructure),
    ("workers", workers),
];

/// From this version on issuers are in a `ConfigMap`; before they are in the Shoot.
const STRUCTURED: [u64; 2] = [1, 30];

fn project(spec: &ManagedClusterSpec, _: &Value, _: &Settings) -> Result<Value, Failure> {
    let ShootTemplate { cloud_profile, credentials_binding, purpose, .. } = gardener(spec)?;
    Ok(json!({"spec": object([
        ("cloudProfile", json!({"kind": "CloudProfile", "name": cloud_profile})),
        ("credentialsBindingName", json!(credentials_binding)),
        ("purpose", json!(purpose)),
        ("region", json!(spec.region)),
    ])}))
}

fn networks(spec: &ManagedClusterSpec, _: &Value, _: &Settings) -> Result<Value, Failure> {
    let networks = spec.networks.clone().unwrap_or_default();
    Ok(json!({"spec": {"networking": object([
        ("type", json!(gardener(spec)?.network)),
        ("nodes", json!(networks.nodes)),
        ("pods", json!(networks.pods)),
        ("services", json!(networks.services)),
    ])}}))
}

fn version(spec: &ManagedClusterSpec, live: &Value, _: &Settings) -> Result<Value, Failure> {
    let has = at(live, "/spec/kubernetes/version").as_str().unwrap_or_default();
    Ok(json!({"spec": {"kubernetes": {"version": later(&spec.version, has)}}}))
}

fn high_availability(spec: &ManagedClusterSpec, _: &Value, _: &Settings) -> Result<Value, Failure> {
    let survives = match spec.high_availability {
        None => return Ok(json!({})),
        Some(FailureTolerance::Node) => "node",
        Some(FailureTolerance::Zone) => "zone",
    };
    Ok(json!({"spec": {"controlPlane": {"highAvailability": {"failureTolerance": {"type": survives}}}}}))
}

fn oidc(spec: &ManagedClusterSpec, _: &Value, settings: &Settings) -> Result<Value, Failure> {
    let Some(oidc) = &spec.oidc else { return Ok(json!({})) };
    let server = if numbers(&spec.version).is_some_and(|version| version[..] < STRUCTURED[..]) {
        json!({"oidcConfig": object([
            ("issuerURL", json!(oidc.issuer_url)),
            ("clientID", json!(oidc.client_id)),
            ("usernameClaim", json!(oidc.username_claim)),
            ("usernamePrefix", json!(oidc.username_prefix)),
            ("groupsClaim", json!(oidc.groups_claim)),
            ("groupsPrefix", if oidc.groups_claim.is_some() { json!(oidc.groups_prefix) } else { Value::Null }),
        ])})
    } else {
        json!({"structuredAuthentication": {"configMapName": authentication_name(&settings.name)}})
    };
    let mut fields = json!({"spec": {"kubernetes": {"kubeAPIServer": server}}});
    if let Some(configuration) = authentication(spec) {
        // The digest of a Shoot is another one with another configuration, which is beside it.
        let digest = hash(&configuration);
        fields["metadata"]["annotations"] = json!({ANNOTATION_AUTHENTICATION: digest});
    }
    Ok(fields)
}

/// The `ConfigMap` with the issuers of a Shoot.
pub fn authentication_name(shoot: &str) -> String {
    format!("structured-auth-config-{shoot}")
}

/// What it has as `config.yaml`, as JSON, which is YAML; none if there is to be none.
pub fn authentication(spec: &ManagedClusterSpec) -> Option<Value> {
    spec.provider.gardener.as_ref()?;
    let is_structured = numbers(&spec.version).is_none_or(|version| version[..] >= STRUCTURED[..]);
    spec.oidc.as_ref().filter(|_| is_structured).map(configuration)
}

/// The key of that configuration in the `ConfigMap`.
pub const AUTHENTICATION_KEY: &str = "config.yaml";

/// Takes the digest of that configuration off a Shoot which does not have it beside it, so that it counts as changed by others: whoever changes
/// it decides who administers the Shoot. Of the `ConfigMap`, if there is one.
pub fn compare_authentication(live: &mut Value, spec: &ManagedClusterSpec, found: Option<&Value>) {
    let Some(written) = authentication(spec) else { return };
    let is_so = found.is_some_and(|found| {
        found["data"][AUTHENTICATION_KEY].as_str() == Some(written.to_string().as_str())
    });
    let annotations = live.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
    if let Some(annotations) = annotations.filter(|_| !is_so) {
        annotations.remove(ANNOTATION_AUTHENTICATION);
    }
}

fn configuration(oidc: &Oidc) -> Value {
    let groups = oidc
        .groups_claim
        .as_ref()
        .map_or(Value::Null, |claim| json!({"claim": claim, "prefix": oidc.groups_prefix}));
    json!({
        "apiVersion": "apiserver.config.k8s.io/v1beta1",
        "kind": "AuthenticationConfiguration",
        "jwt": [{
            "issuer": {"url": oidc.issuer_url, "audiences": [oidc.client_id]},
            "claimMappings": object([
                ("username", json!({"claim": oidc.username_claim, "prefix": oidc.username_prefix})),
                ("groups", groups),
            ]),
        }],
    })
}

fn audit_policy(spec: &ManagedClusterSpec, _: &Value, _: &Settings) -> Result<Value, Failure> {
    let Some(name) = &spec.audit_policy else { return Ok(json!({})) };
    let policy = json!({"auditPolicy": {"configMapRef": {"name": name}}});
    Ok(json!({"spec": {"kubernetes": {"kubeAPIServer": {"auditConfig": policy}}}}))
}

fn workers(spec: &ManagedClusterSpec, live: &Value, _: &Settings) -> Result<Value, Failure> {
    let pool = |pool: &WorkerPool| worker(pool, named(live, "/spec/provider/workers", &pool.name));
    let all: Vec<Value> = spec.workers.iter().map(pool).collect();
    Ok(if all.is_empty() { json!({}) } else { json!({"spec": {"provider": {"workers": all}}}) })
}

fn worker(pool: &WorkerPool, live: &Value) -> Value {
    let image = pool.image.as_ref().map_or(Value::Null, |image| {
        let has = at(live, "/machine/image");
        // A later version of the same image was given to it by Gardener.
        let version = image.version.as_ref().map(|version| {
            let has = has["version"].as_str().filter(|_| has["name"] == image.name);
            later(version, has.unwrap_or_default())
        });
        object([("name", json!(image.name)), ("version", json!(version))])
    });
    let zones = pool_zones(pool, live);
    object([
        ("name", json!(pool.name)),
        ("machine", object([("type", json!(pool.machine)), ("image", image)])),
        (
            "volume",
            pool.volume.as_ref().map_or(Value::Null, |volume| {
                object([("type", json!(volume.type_)), ("size", json!(gibibytes(&volume.size)))])
            }),
        ),
        ("minimum", json!(pool.min)),
        ("maximum", json!(pool.max)),
        ("zones", if zones.is_empty() { Value::Null } else { json!(zones) }),
        ("labels", texts(&pool.labels)),
        ("annotations", texts(&pool.annotations)),
        ("taints", if pool.taints.is_empty() { Value::Null } else { json!(pool.taints) }),
    ])
}

/// The size of a volume as Gardener takes it, in Gi alone.
fn gibibytes(size: &str) -> String {
    let number = size.strip_suffix("Ti").and_then(|number| number.parse::<u64>().ok());
    let gibibytes = number.and_then(|number| number.checked_mul(1024));
    gibibytes.map_or_else(|| size.to_owned(), |number| format!("{number}Gi"))
}

/// What is asked of Gardener.
pub(super) fn gardener(spec: &ManagedClusterSpec) -> Result<&ShootTemplate, Failure> {
    let none = || Failure::permanent(Reason::InvalidSpec, "spec.provider: write clusterAPI or gardener");
    spec.provider.gardener.as_ref().ok_or_else(none)
}
