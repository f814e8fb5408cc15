//! `PersistentVolumeClaim`s without a volume.

use coppice_lifecycle::health::facts::ClaimFacts;
use coppice_runtime::decode::{ObjectRef, Unreadable};
use coppice_runtime::kind::Kind;
use serde::Deserialize;

use super::WorkloadMeta;

/// Every `PersistentVolumeClaim` without a volume.
#[derive(Debug)]
pub struct Claims;

/// A claim on the wire.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ClaimWire {
    metadata: WorkloadMeta,
    status: StatusWire,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct StatusWire {
    phase: ClaimPhase,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
enum ClaimPhase {
    Bound,
    Lost,
    #[default]
    #[serde(other)]
    Pending,
}

impl Kind for Claims {
    type Object = ClaimFacts;
    type Wire = ClaimWire;
    type Context = ();
    const RESOURCE: &'static str = "persistentvolumeclaims";
    const GROUP_PATH: &'static str = "/api/v1";
    const BULK: bool = true;
    const CAN_COLLAPSE: bool = false;

    fn object_ref(wire: &ClaimWire) -> ObjectRef {
        wire.metadata.object_ref()
    }

    fn keep(wire: &ClaimWire, (): &()) -> bool {
        wire.status.phase != ClaimPhase::Bound && wire.metadata.deletion_timestamp.is_none()
    }

    fn project(wire: ClaimWire, (): &()) -> Result<ClaimFacts, Unreadable> {
        let created_at = wire.metadata.created_at();
        Ok(ClaimFacts { name: wire.metadata.name, created_at, lost: wire.status.phase == ClaimPhase::Lost })
    }

    fn name(object: &ClaimFacts) -> &str {
        &object.name
    }
}
