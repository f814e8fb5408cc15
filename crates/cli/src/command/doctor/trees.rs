//! Do trees of namespaces work, and what in them has stalled?

use std::fmt::Debug;

use coppice_api::condition::{self, READY};
use coppice_api::names::TREES_ACCOUNT;
use coppice_api::{NamespaceTree, QuotaTransfer, Subnamespace, SubnamespacePhase, TransferPhase};
use coppice_quantity::Duration;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::admissionregistration::v1::{ValidatingWebhook, ValidatingWebhookConfiguration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;

use super::install::{Holder, lease};
use super::{Finding, MAX_NAMED, State};
use crate::connect::code;
use crate::live;
use crate::print::count;

/// Nothing where there is no tree, and nothing that belongs to one.
pub(super) async fn check(
    client: &Client,
    system: &str,
    older_than: Duration,
    now: Timestamp,
) -> Vec<Finding> {
    let (trees, subnamespaces, transfers) =
        futures::join!(listed::<NamespaceTree>(client), listed(client), listed(client));
    let since = now - SignedDuration::from_secs(older_than.as_secs_i64());
    let mut findings: Vec<Finding> = match trees {
        Ok(trees) => trees.iter().map(tree).collect(),
        Err(finding) => vec![finding],
    };
    findings.extend(standing(subnamespaces, "Subnamespaces", older_than, |object: &Subnamespace| {
        let status = object.status.as_ref()?;
        let phase = status.phase.filter(|phase| *phase != SubnamespacePhase::Ready)?;
        Some((phase.as_str(), still(&status.conditions, since)?))
    }));
    findings.extend(standing(transfers, "QuotaTransfers", older_than, |object: &QuotaTransfer| {
        let status = object.status.as_ref()?;
        // Those that wait for approval wait for people.
        let done = [TransferPhase::Completed, TransferPhase::Refused, TransferPhase::PendingApproval];
        let phase = status.phase.filter(|phase| !done.contains(phase))?;
        Some((phase.as_str(), still(&status.conditions, since)?))
    }));
    if !findings.is_empty() {
        let (lease, webhook) = futures::join!(lease(client, system, Holder::TREES, now), webhook(client));
        findings.splice(0..0, [lease, webhook]);
    }
    findings
}

/// Is what would be refused denied early?
async fn webhook(client: &Client) -> Finding {
    let about = format!("ValidatingWebhookConfiguration {TREES_ACCOUNT}");
    let late = "the API server admits what the status of the object refuses a moment later";
    match Api::<ValidatingWebhookConfiguration>::all(client.clone()).get_opt(TREES_ACCOUNT).await {
        Ok(Some(found)) => admission(about, late, &found),
        Ok(None) => Finding::new(State::Problem, about, format!("it does not exist: {late}"))
            .advise(Holder::TREES.install),
        Err(error) => Finding::unreadable(&about, &error),
    }
}

fn admission(about: String, late: &str, found: &ValidatingWebhookConfiguration) -> Finding {
    let trusts = |webhook: &ValidatingWebhook| {
        webhook.client_config.ca_bundle.as_ref().is_some_and(|bundle| !bundle.0.is_empty())
    };
    let webhooks = found.webhooks.as_deref().unwrap_or_default();
    if !webhooks.is_empty() && webhooks.iter().all(trusts) {
        return Finding::new(State::Ok, about, "what cannot be granted is denied when it is applied");
    }
    Finding::new(State::Problem, about, format!("it has no caBundle, so the API server trusts the authorities of its system alone: {late}")).advise(
        "the leader of coppice-trees writes caBundle within a minute: its log says what keeps it; with --admission-cert-dir the issuer of \
         the certificate writes it",
    )
}

/// All of a kind; none where the kind is not installed, which is said of its CRD.
async fn listed<K>(client: &Client) -> Result<Vec<K>, Finding>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    match live::list(&Api::<K>::all(client.clone()), None).await {
        Err(error) if code(&error) == Some(404) => Ok(Vec::new()),
        listed => listed.map_err(|error| Finding::unreadable(&K::plural(&()), &error)),
    }
}

fn tree(tree: &NamespaceTree) -> Finding {
    let about = format!("NamespaceTree {}", tree.name_any());
    let status = tree.status.clone().unwrap_or_default();
    match condition::find(&status.conditions, READY) {
        Some(ready) if ready.status == "True" && status.observed_generation == tree.metadata.generation => {
            let namespaces = count(usize::try_from(status.namespaces).unwrap_or(usize::MAX), "namespace");
            Finding::new(State::Ok, about, format!("{namespaces}, {}", status.allotted))
        }
        Some(ready) if ready.status != "True" => {
            Finding::new(State::Problem, about, format!("{} [{}]", ready.message, ready.reason))
        }
        _ => Finding::new(
            State::Problem,
            about,
            format!("{TREES_ACCOUNT} has not read the last change of spec"),
        )
        .advise("ask again in a moment; if it stays so, the log of that program says why"),
    }
}

/// The condition, if it has been what it is for so long.
fn still(conditions: &[Condition], since: Timestamp) -> Option<&Condition> {
    condition::find(conditions, READY).filter(|ready| ready.last_transition_time.0 <= since)
}

/// One finding for all of a kind; none if there is none of it.
fn standing<K: Resource>(
    all: Result<Vec<K>, Finding>,
    kind: &str,
    older_than: Duration,
    waits: impl Fn(&K) -> Option<(&'static str, &Condition)>,
) -> Option<Finding> {
    let all = match all {
        Ok(all) if all.is_empty() => return None,
        Ok(all) => all,
        Err(finding) => return Some(finding),
    };
    let described = |object: &K| {
        let (phase, ready) = waits(object)?;
        let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
        Some(format!("{namespace}/{name}: {phase}: {} [{}]", ready.message, ready.reason))
    };
    let waiting: Vec<String> = all.iter().filter_map(described).collect();
    if waiting.is_empty() {
        let message = format!("none of {} has stalled for {older_than} (--older-than)", all.len());
        return Some(Finding::new(State::Ok, kind, message));
    }
    let message = format!("{} of {} stalled for {older_than} or longer", waiting.len(), all.len());
    let mut finding = Finding::new(State::Problem, kind, message);
    let more = waiting.len().saturating_sub(MAX_NAMED);
    finding.details = waiting.into_iter().take(MAX_NAMED).collect();
    if more > 0 {
        finding.details.push(format!("and {more} more"));
    }
    Some(finding)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn object<K: DeserializeOwned>(name: &str, spec: &Value, status: &Value) -> K {
        let metadata = json!({"name": name, "namespace": "shop", "generation": 2});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status})).unwrap()
    }

    fn conditions(status: &str, reason: &str, message: &str) -> Value {
        json!([{"type": "Ready", "status": status, "reason": reason, "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z"}])
    }

    #[test]
    fn a_tree_is_well_if_its_last_spec_is_in_force() {
        let spec = json!({"root": "shop", "quota": {"hard": {"pods": "1"}}});
        let of = |generation: i64, conditions: Value| {
            let status = json!({"observedGeneration": generation, "namespaces": 3, "allotted": "1 pods",
                "conditions": conditions});
            tree(&object("shop", &spec, &status))
        };
        let well = of(2, conditions("True", "Reconciled", "well"));
        assert_eq!((well.state, well.message.as_str()), (State::Ok, "3 namespaces, 1 pods"));
        let old = of(1, conditions("True", "Reconciled", "well"));
        assert_eq!(old.state, State::Problem);
        assert!(old.message.contains("has not read the last change"), "{}", old.message);
        let bad = of(2, conditions("False", "RootMissing", "there is no namespace shop"));
        assert_eq!(
            (bad.state, bad.message.as_str()),
            (State::Problem, "there is no namespace shop [RootMissing]")
        );
    }

    #[test]
    fn the_webhook_is_well_if_the_api_server_trusts_somebody() {
        let of = |webhooks: Value| {
            let found = json!({"metadata": {"name": TREES_ACCOUNT}, "webhooks": webhooks});
            admission("it".to_owned(), "it is late", &serde_json::from_value(found).unwrap())
        };
        let webhook = |client: Value| json!({"name": "trees.coppice.dev", "admissionReviewVersions": ["v1"], "sideEffects": "None", "clientConfig": client});
        assert_eq!(of(json!([webhook(json!({"caBundle": "Y2E="}))])).state, State::Ok);
        for without in [json!([]), json!([webhook(json!({}))]), json!([webhook(json!({"caBundle": ""}))])] {
            let finding = of(without);
            assert_eq!(
                (finding.state, &*finding.message),
                (
                    State::Problem,
                    "it has no caBundle, so the API server trusts the authorities of its system alone: it is late"
                )
            );
        }
    }

    #[test]
    fn what_waits_for_long_is_named_with_why() {
        let now: Timestamp = "2026-01-01T00:10:00Z".parse().unwrap();
        let waiting = |older_than: &str| {
            let older_than: Duration = older_than.parse().unwrap();
            let since = now - SignedDuration::from_secs(older_than.as_secs_i64());
            let children = conditions("False", "HasChildren", "shop-a has 1 namespace below it");
            let all: Vec<Subnamespace> = vec![
                object("shop-a", &json!({}), &json!({"phase": "Deleting", "conditions": children})),
                object(
                    "shop-b",
                    &json!({}),
                    &json!({"phase": "Ready", "conditions": conditions("True", "", "")}),
                ),
            ];
            standing(Ok(all), "Subnamespaces", older_than, |object: &Subnamespace| {
                let status = object.status.as_ref()?;
                let phase = status.phase.filter(|phase| *phase != SubnamespacePhase::Ready)?;
                Some((phase.as_str(), still(&status.conditions, since)?))
            })
            .unwrap()
        };
        let (long, short) = (waiting("1h"), waiting("5m"));
        assert_eq!((long.state, &*long.message), (State::Ok, "none of 2 has stalled for 1h (--older-than)"));
        assert_eq!((short.state, &*short.message), (State::Problem, "1 of 2 stalled for 5m or longer"));
        let expected = ["shop/shop-a: Deleting: shop-a has 1 namespace below it [HasChildren]"];
        assert_eq!(short.details, expected);
        let none = standing(Ok(Vec::<Subnamespace>::new()), "Subnamespaces", Duration::default(), |_| None);
        assert!(none.is_none());
    }
}
