//! What is lost with a namespace outside of it, and what keeps it from going: recorded with the notice of its deletion.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// At most this many of each are listed.
pub const MAX_LISTED: usize = 16;
/// At most this many of each are named in a sentence.
const MAX_NAMED: usize = 3;

/// What the deletion of a namespace takes along besides the objects in it, and what delays it. Read when the deletion was
/// announced: what came later is not in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Losses {
    /// The volumes that are bound, by claim: the first sixteen. Atomic: they are those of one look at the namespace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub volumes: Vec<LostVolume>,
    /// The Services of type `LoadBalancer`, by name: the first sixteen. Atomic: they are those of one look.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub load_balancers: Vec<LostLoadBalancer>,
    /// Finalizers that are not Kubernetes' own: the namespace stays `Terminating` until their owners have removed them. Those
    /// of the namespace, its claims and its Services: the first sixteen. Atomic: they are those of one look.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub finalizers: Vec<ForeignFinalizer>,
    /// How many volumes, load balancers and finalizers there are besides; absent if none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub more: Option<u32>,
    /// What of this could not be read, and why. Atomic: it is what one look has left open.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(max = 1024)), extend("x-kubernetes-list-type" = "atomic"))]
    pub unknown: Vec<String>,
}

/// A volume that a claim in the namespace is bound to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LostVolume {
    /// The name of the `PersistentVolumeClaim`.
    #[schemars(length(max = 253))]
    pub claim: String,
    /// The name of the `PersistentVolume`.
    #[schemars(length(max = 253))]
    pub volume: String,
    /// Its capacity, such as `20Gi`; absent if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub capacity: Option<String>,
    /// What becomes of it without its claim: with `Delete` its data is gone, with `Retain` it stays. Absent if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub reclaim_policy: Option<String>,
}

/// A Service of type `LoadBalancer`: its addresses go with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LostLoadBalancer {
    /// The name of the Service.
    #[schemars(length(max = 253))]
    pub service: String,
    /// Its addresses or host names: the first four. Atomic, since their order is that of the Service.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4), inner(length(max = 253)), extend("x-kubernetes-list-type" = "atomic"))]
    pub addresses: Vec<String>,
}

/// A finalizer that is not one of Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ForeignFinalizer {
    /// The finalizer.
    #[schemars(length(max = 512))]
    pub finalizer: String,
    /// The kind of the object that carries it, such as `Namespace`.
    #[schemars(length(max = 253))]
    pub kind: String,
    /// The name of that object.
    #[schemars(length(max = 253))]
    pub name: String,
}

impl Losses {
    /// Whether there is nothing to say: nothing is lost outside of the namespace, nothing delays its deletion, and all of that is
    /// known.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// For people, as a part of a sentence; empty if there is nothing to say.
impl fmt::Display for Losses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        let gone: Vec<_> = self.volumes.iter().filter(|volume| !volume.stays()).collect();
        let stay: Vec<_> = self.volumes.iter().filter(|volume| volume.stays()).collect();
        if !gone.is_empty() || !self.load_balancers.is_empty() {
            let mut with_it = Vec::new();
            if !gone.is_empty() {
                with_it.push(named(&gone, "volume", "volumes"));
            }
            if !self.load_balancers.is_empty() {
                with_it.push(named(&self.load_balancers, "load balancer", "load balancers"));
            }
            parts.push(format!("lost with it: {}", with_it.join(" and ")));
        }
        if !stay.is_empty() {
            let verb = if stay.len() == 1 { "stays" } else { "stay" };
            parts.push(format!(
                "{} {verb} without a claim",
                named(&stay, "retained volume", "retained volumes")
            ));
        }
        if !self.finalizers.is_empty() {
            let what = named(&self.finalizers, "finalizer", "finalizers");
            parts.push(format!("it is not gone before their owners remove {what}"));
        }
        if let Some(more) = self.more {
            parts.push(format!("{more} more of these are not listed"));
        }
        if !self.unknown.is_empty() {
            parts.push(format!("what else is lost is not known: {}", self.unknown.join("; ")));
        }
        f.write_str(&parts.join("; "))
    }
}

/// So many of them, the first of them by name.
fn named<T: fmt::Display>(all: &[T], one: &str, many: &str) -> String {
    let mut names: Vec<_> = all.iter().take(MAX_NAMED).map(ToString::to_string).collect();
    if all.len() > MAX_NAMED {
        names.push("...".to_owned());
    }
    let noun = if all.len() == 1 { one } else { many };
    format!("{} {noun} ({})", all.len(), names.join(", "))
}

impl LostVolume {
    /// Whether it stays without its claim. What is not known is taken as lost.
    pub fn stays(&self) -> bool {
        self.reclaim_policy.as_deref() == Some("Retain")
    }
}

impl fmt::Display for LostVolume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.claim)?;
        if let Some(capacity) = &self.capacity {
            write!(f, " {capacity}")?;
        }
        match self.reclaim_policy {
            Some(_) => Ok(()),
            None => f.write_str(" unless its reclaim policy, which is not known, is Retain"),
        }
    }
}

impl fmt::Display for LostLoadBalancer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.service)?;
        match self.addresses.first() {
            Some(address) => write!(f, " {address}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for ForeignFinalizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} {}", self.finalizer, self.kind, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(claim: &str, policy: Option<&str>) -> LostVolume {
        LostVolume {
            claim: claim.to_owned(),
            volume: format!("pv-{claim}"),
            capacity: Some("20Gi".to_owned()),
            reclaim_policy: policy.map(str::to_owned),
        }
    }

    #[test]
    fn what_is_lost_reads_as_part_of_a_sentence() {
        assert_eq!(Losses::default().to_string(), "");
        let losses = Losses {
            volumes: vec![volume("a", Some("Delete")), volume("b", Some("Retain")), volume("c", None)],
            load_balancers: vec![LostLoadBalancer {
                service: "web".to_owned(),
                addresses: vec!["192.0.2.1".to_owned(), "192.0.2.2".to_owned()],
            }],
            finalizers: vec![ForeignFinalizer {
                finalizer: "example.com/cleanup".to_owned(),
                kind: "Service".to_owned(),
                name: "web".to_owned(),
            }],
            more: Some(2),
            unknown: vec!["volumes: forbidden".to_owned()],
        };
        assert_eq!(
            losses.to_string(),
            "lost with it: 2 volumes (a 20Gi, c 20Gi unless its reclaim policy, which is not known, is Retain) \
             and 1 load balancer (web 192.0.2.1); 1 retained volume (b 20Gi) stays without a claim; \
             it is not gone before their owners remove 1 finalizer (example.com/cleanup of Service web); \
             2 more of these are not listed; what else is lost is not known: volumes: forbidden"
        );
    }

    #[test]
    fn of_many_the_first_are_named() {
        let volumes = ["a", "b", "c", "d"].map(|claim| volume(claim, Some("Delete"))).to_vec();
        let losses = Losses { volumes, ..Losses::default() };
        assert_eq!(losses.to_string(), "lost with it: 4 volumes (a 20Gi, b 20Gi, c 20Gi, ...)");
    }
}
