//! Scale-downs that something else reverts: after three of a workload there is no fourth. A GitOps tool that restores replicas
//! would otherwise be at odds with Coppice for ever, and every round stops and starts pods.

use std::collections::BTreeSet;

use coppice_api::names::FIELD_MANAGER;
use coppice_api::{ScaledWorkload, Steps};
use coppice_lifecycle::record::StepOutcome;
use coppice_mutants::{Mutant, active};
use coppice_runtime::client::Clients;
use coppice_runtime::read;
use http::header;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::core::{ObjectList, PartialObjectMeta};
use serde_json::Value;

use crate::scale::{self, CRON_JOB, Location, Workload};
use crate::scale_down::ScaleDownCandidate;

/// A workload whose scale-down was reverted so often is left alone.
const MAX_REVERTED: i32 = 3;
/// Of more of them than this no field manager is asked for.
const MAX_NAMED: usize = 3;

/// What status is to record about a workload that is to be scaled down, as it is now.
///
/// One that is recorded and runs was scaled up again by something else: surely so if this run has scaled it down (`done`), or
/// an earlier firing, which removed what it did not change. What an interrupted attempt at this firing recorded, it may not have
/// changed.
pub(crate) fn entry(workload: &Workload, steps: &Steps, done: &BTreeSet<String>) -> ScaledWorkload {
    let known = steps.scaled_down.listed().unwrap_or_default();
    let known = known.iter().find(|entry| entry.uid == workload.uid && entry.kind == workload.kind.kind);
    let earlier = known.is_some_and(|known| known.firing.is_some_and(|firing| firing != steps.firings));
    let again = earlier || known.is_some() && done.contains(&workload.uid);
    ScaledWorkload {
        api_version: workload.kind.api_version.clone(),
        kind: workload.kind.kind.clone(),
        name: workload.name.clone(),
        uid: workload.uid.clone(),
        replicas: workload.scale.replicas().map(|n| n + i32::from(active(Mutant::WrongReplicasRecorded))),
        firing: Some(steps.firings),
        reverted: known.map_or(0, |known| known.reverted).saturating_add(i32::from(again)),
    }
}

/// The outcome, if scale-downs of some of these workloads were reverted too often.
pub(crate) async fn outcome(
    clients: &Clients,
    namespace: &str,
    candidates: &[ScaleDownCandidate],
) -> Option<StepOutcome> {
    let too_often =
        |entry: &ScaledWorkload| entry.reverted >= MAX_REVERTED && !active(Mutant::RevertedForEver);
    let left_alone: Vec<_> = candidates.iter().filter(|candidate| too_often(&candidate.entry)).collect();
    if left_alone.is_empty() {
        return None;
    }
    let mut named = Vec::new();
    for ScaleDownCandidate { workload, .. } in left_alone.iter().take(MAX_NAMED) {
        let by = field_manager(clients, namespace, workload).await;
        named.push(format!("{} {} ({by})", workload.kind.kind, workload.name));
    }
    if left_alone.len() > MAX_NAMED {
        named.push(format!("{} more", left_alone.len() - MAX_NAMED));
    }
    let message = format!(
        "something has scaled {} up again after each of {MAX_REVERTED} scale-downs, so nothing is scaled down: leave it out with \
         selectors of the policy, or let that field manager leave its replicas alone",
        named.join(", ")
    );
    Some(StepOutcome::Reverted { message })
}

/// Who has set the size of a workload last, by its `managedFields`; or why that is not known.
async fn field_manager(clients: &Clients, namespace: &str, workload: &Workload) -> String {
    let found = match managed_fields(clients, namespace, workload).await {
        Ok(fields) => fields,
        Err(error) => return format!("by which field manager is not known: {error}"),
    };
    let fields = match scale::location(clients, &workload.kind).await {
        Ok(Location::Path(fields)) => fields,
        _ if workload.kind.kind == CRON_JOB => vec!["suspend".to_owned()],
        _ => vec!["replicas".to_owned()],
    };
    let last = last_owner(&found, &fields).and_then(|entry| entry.manager.as_ref());
    last.map_or_else(
        || "the API server names no field manager".to_owned(),
        |manager| format!("field manager {manager:?}"),
    )
}

/// By a list of one, since the operator may list workloads, and not get them.
async fn managed_fields(
    clients: &Clients,
    namespace: &str,
    workload: &Workload,
) -> Result<Vec<ManagedFieldsEntry>, kube::Error> {
    const METADATA: &str =
        "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json";
    let path = scale::path(namespace, &workload.kind);
    let mut request = read::request(&format!("{path}?fieldSelector=metadata.name%3D{}", workload.name))?;
    request.headers_mut().insert(header::ACCEPT, header::HeaderValue::from_static(METADATA));
    let found: ObjectList<PartialObjectMeta> = clients.reads.request(request).await?;
    let same = found.items.into_iter().find(|one| one.metadata.uid.as_deref() == Some(&workload.uid));
    Ok(same.and_then(|one| one.metadata.managed_fields).unwrap_or_default())
}

/// The entry of whoever set this field of `spec` last, other than Coppice.
fn last_owner<'a>(entries: &'a [ManagedFieldsEntry], fields: &[String]) -> Option<&'a ManagedFieldsEntry> {
    let owns = |entry: &&ManagedFieldsEntry| {
        let all = entry.fields_v1.as_ref().map_or(&Value::Null, |all| &all.0);
        let mut path = std::iter::once("spec").chain(fields.iter().map(String::as_str));
        path.try_fold(all, |value, field| value.get(format!("f:{field}"))).is_some()
    };
    let others = entries.iter().filter(|entry| entry.manager.as_deref() != Some(FIELD_MANAGER));
    others.filter(owns).max_by_key(|entry| entry.time.as_ref().map(|time| time.0))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_last_owner_of_the_size_is_named_and_nobody_else() {
        let entry = |manager: &str, minute: u32, fields: Value| {
            json!({"manager": manager, "operation": "Update", "time": format!("2026-01-01T00:{minute:02}:00Z"),
                   "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": fields}})
        };
        let replicas = json!({"f:replicas": {}});
        let entries: Vec<ManagedFieldsEntry> = serde_json::from_value(json!([
            entry("helm", 1, replicas.clone()),
            entry("argocd-controller", 2, replicas.clone()),
            entry(FIELD_MANAGER, 3, replicas),
            entry("kubectl-set", 4, json!({"f:template": {}})),
            entry("rollouts", 5, json!({"f:size": {"f:replicas": {}}})),
            {"manager": "old", "operation": "Update"},
        ]))
        .unwrap();
        let owner = |fields: &[&str]| {
            let fields: Vec<_> = fields.iter().map(|field| (*field).to_owned()).collect();
            last_owner(&entries, &fields).and_then(|entry| entry.manager.as_deref())
        };
        assert_eq!(owner(&["replicas"]), Some("argocd-controller"));
        assert_eq!(owner(&["size", "replicas"]), Some("rollouts"));
        assert_eq!(owner(&["suspend"]), None);
    }
}
