//! Managers that lived elsewhere than what they governed: cluster managers of one namespace each.

use coppice_api::cluster_manager::{ClusterNamespaceManagerSpec, ClusterPolicy, Mode, NamespaceSelector};
use serde::Serialize;

use super::{ConvertedManager, MAX_POLICIES, Metadata, Translated, failed, refusals, unique_names};
use crate::import::Remarks;
use crate::import::fields::FieldError;

#[derive(Serialize)]
struct ClusterSpec {
    mode: Mode,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    suspend: bool,
    selector: NamespaceSelector,
    policies: Vec<ClusterPolicy>,
}

/// What is different for each of them.
pub(super) fn remark(lived: &str, governed: &str, remarks: &mut Remarks) {
    remarks.differs(format!(
        "it lived in namespace {lived} and governed {governed}: it becomes a ClusterNamespaceManager of that namespace, which observes: \
         nothing is done before you set mode: Enforce, and then for five minutes more (settle)"
    ));
    remarks.differs(format!(
        "that operator deactivated the manager after it had fired; here each policy fires again when its condition has been \
         false in between, and in every later namespace {governed}: delete the ClusterNamespaceManager if that is not meant"
    ));
}

/// Puts the policies of all managers that govern one namespace from elsewhere into the first of them, because only one cluster
/// manager governs a namespace. Policies of a cluster manager are independent of each other, as those managers were.
pub(crate) fn merge(managers: &mut [Translated]) {
    for index in 1..managers.len() {
        let (before, rest) = managers.split_at_mut(index);
        let Some(later) = rest.first_mut().filter(|later| later.elsewhere && !later.policies.is_empty())
        else {
            continue;
        };
        let same = |first: &&mut Translated| {
            first.elsewhere && first.governed == later.governed && !first.policies.is_empty()
        };
        let Some(first) = before.iter_mut().find(same) else { continue };
        let sum = first.policies.len() + later.policies.len();
        if sum > MAX_POLICIES {
            later.policies.clear();
            later.explained = true;
            later.remarks.differs(format!(
                "one cluster manager governs a namespace, and together with those of {} there are {sum} policies, of which it has {MAX_POLICIES} at most: \
                 nothing of this one is written",
                first.ours
            ));
            continue;
        }
        join(first, later);
    }
}

fn join(first: &mut Translated, later: &mut Translated) {
    later.remarks.note(format!(
        "one cluster manager governs a namespace: its policies are in ClusterNamespaceManager {}, which governs {} already",
        first.ours, first.governed
    ));
    // What was deactivated goes on doing nothing beside what was not.
    if first.suspend != later.suspend {
        let inactive = if first.suspend { &mut *first } else { &mut *later };
        inactive.policies.iter_mut().for_each(|one| one.observes = true);
        inactive
            .remarks
            .note("it was deactivated, and others for the namespace were not: its policies observe");
        first.suspend = false;
    }
    if later.policies.iter().any(|one| one.policy.then.webhook.is_some()) {
        later.remarks.differs(format!(
            "its webhooks' bodies name the manager {}, which has its policies now",
            first.ours
        ));
    }
    later.explained = true;
    first.policies.append(&mut later.policies);
    unique_names(&mut first.policies, &mut later.remarks);
}

/// The cluster manager as YAML.
pub(super) fn write_cluster_manager(manager: &mut Translated) -> Result<String, FieldError> {
    let mut policies = Vec::new();
    for one in &manager.policies {
        let written = serde_json::to_value(&one.policy).map_err(|e| failed(&e))?;
        // The fields of a policy are those of a cluster manager's, which has more.
        let policy: ClusterPolicy = serde_json::from_value(written).map_err(|e| failed(&e))?;
        policies.push(ClusterPolicy { mode: one.observes.then_some(Mode::Observe), ..policy });
        if one.policy.then.webhook.is_some() {
            manager.remarks.differs(format!(
                "policy {:?}: the webhook's body names the manager's namespace, which is now the governed one",
                one.policy.name
            ));
        }
    }
    let selector = NamespaceSelector { names: Some(vec![manager.governed.clone()]), ..Default::default() };
    let spec = ClusterSpec { mode: Mode::Observe, suspend: manager.suspend, selector, policies };
    let ours = ConvertedManager {
        api_version: "coppice.dev/v1alpha1",
        kind: "ClusterNamespaceManager",
        metadata: Metadata::of(manager, None),
        spec,
    };
    let value = serde_json::to_value(&ours).map_err(|e| failed(&e))?;
    let yaml = crate::yaml::to_string(&ours).map_err(|e| failed(&e))?;
    let read = serde_json::from_value::<ClusterNamespaceManagerSpec>(value["spec"].clone());
    refusals(&value, read.err(), &mut manager.remarks);
    Ok(yaml)
}
