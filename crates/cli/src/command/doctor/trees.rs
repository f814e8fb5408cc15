//! Do trees of namespaces work, and what in them has stalled?

use std::fmt::Debug;

use coppice_api::condition::{self, READY};
use coppice_api::names::TREES_ACCOUNT;
use coppice_api::namespace_tree::PropagationMode;
use coppice_api::{NamespaceTree, QuotaTransfer, Subnamespace, SubnamespacePhase, TransferPhase};
use coppice_quantity::Duration;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::admissionregistration::v1::{ValidatingWebhook, ValidatingWebhookConfiguration};
use k8s_openapi::api::core::v1::LimitRange;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;

use super::install::{Holder, lease};
use super::{Finding, MAX_NAMED, State};
use crate::connect::code;
use crate::live;
use crate::print::count;
use crate::trees::pod_defaults::{limited, missing};

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
        Ok(trees) => each(client, &trees, subnamespaces.as_deref().ok()).await,
        Err(finding) => vec![finding],
    };
    findings.extend(stalled(subnamespaces, "Subnamespaces", older_than, |object: &Subnamespace| {
        let status = object.status.as_ref()?;
        let phase = status.phase.filter(|phase| *phase != SubnamespacePhase::Ready)?;
        Some((phase.as_str(), still(&status.conditions, since)?))
    }));
    findings.extend(stalled(transfers, "QuotaTransfers", older_than, |object: &QuotaTransfer| {
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

/// Every tree, with what its pods have to state, and which of its partitions are none of these Subnamespaces, if they could be read.
async fn each(
    client: &Client,
    trees: &[NamespaceTree],
    subnamespaces: Option<&[Subnamespace]>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for one in trees {
        let (mut finding, limited) = (tree(one), limited(one.spec.quota.hard.keys().map(String::as_str)));
        if let Some(subnamespaces) = subnamespaces {
            partitions(&mut finding, one, subnamespaces);
        }
        let mut unreadable = None;
        if finding.state == State::Ok && !limited.is_empty() {
            let root = &one.spec.root;
            match live::list(&Api::<LimitRange>::namespaced(client.clone(), root), None).await {
                Ok(ranges) => defaults(&mut finding, one, &limited, &ranges),
                Err(error) => {
                    unreadable = Some(Finding::unreadable(&format!("limitranges in {root}"), &error));
                }
            }
        }
        findings.push(finding);
        findings.extend(unreadable);
    }
    findings
}

/// Adds which partitions are no namespaces right below the root. One may be created later, or its name may be a slip.
fn partitions(finding: &mut Finding, tree: &NamespaceTree, subnamespaces: &[Subnamespace]) {
    let root = &tree.spec.root;
    let is_created = |name: &str| {
        subnamespaces.iter().any(|object| {
            let status = object.status.as_ref();
            object.metadata.name.as_deref() == Some(name)
                && object.metadata.namespace.as_deref() == Some(root.as_str())
                && status.is_some_and(|status| status.namespace_uid.is_some())
        })
    };
    let absent: Vec<&str> =
        tree.spec.partitions.iter().map(String::as_str).filter(|name| !is_created(name)).collect();
    if absent.is_empty() {
        return;
    }
    finding.details.push(format!(
        "spec.partitions names what is no namespace right below {root} yet: {}; QuotaTransfers to and from the branch that is meant are \
         not refused for it",
        absent.join(", ")
    ));
    finding.advice.push(format!(
        "correct the name in spec.partitions (kubectl get sns -n {root} shows those that are there), or create the Subnamespace"
    ));
}

/// Adds which pods are refused, and what to do if they are not to be.
fn defaults(finding: &mut Finding, tree: &NamespaceTree, limited: &[&'static str], ranges: &[LimitRange]) {
    let root = &tree.spec.root;
    let missing = missing(limited, ranges);
    let copied = tree.spec.propagate.limit_ranges.mode == PropagationMode::Propagate;
    if missing.is_empty() && copied {
        return;
    }
    let (pods, why) = if missing.is_empty() {
        (
            limited.join(", "),
            format!("that of namespace {root} is not copied (spec.propagate.limitRanges.mode)"),
        )
    } else {
        (missing.join(", "), format!("none in namespace {root} does"))
    };
    finding.details.push(format!(
        "pods whose containers do not state {pods} are refused, unless a LimitRange of their namespace states it; {why}"
    ));
    if !missing.is_empty() {
        finding.advice.push(format!(
            "if they are to be admitted: create a LimitRange of type Container in namespace {root}, with defaultRequest (cpu, memory) \
             and default (limits.cpu, limits.memory) of what is named above"
        ));
    }
    if !copied {
        finding.advice.push(format!(
            "to have it in all namespaces of the tree: kubectl patch nstree {} --type=merge -p \
             '{{\"spec\": {{\"propagate\": {{\"limitRanges\": {{\"mode\": \"Propagate\"}}}}}}}}'",
            tree.name_any()
        ));
    }
}

/// The condition, if it has been what it is for so long.
fn still(conditions: &[Condition], since: Timestamp) -> Option<&Condition> {
    condition::find(conditions, READY).filter(|ready| ready.last_transition_time.0 <= since)
}

/// What of one kind has stalled, as one finding; none if there is none of the kind.
fn stalled<K: Resource>(
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
    fn pods_that_state_no_requests_need_a_limit_range_that_is_copied() {
        let of = |hard: Value, mode: &str, ranges: Value| {
            let spec = json!({"root": "shop", "quota": {"hard": hard}, "propagate": {"limitRanges": {"mode": mode}}});
            let tree = object::<NamespaceTree>("shop", &spec, &json!({}));
            let ranges: Vec<LimitRange> = serde_json::from_value(ranges).unwrap();
            let mut finding = Finding::new(State::Ok, "it", "well");
            let limited = limited(tree.spec.quota.hard.keys().map(String::as_str));
            defaults(&mut finding, &tree, &limited, &ranges);
            (finding.details.join(" "), finding.advice.len())
        };
        let range = |type_: &str, given: Value| {
            let mut item = json!({"type": type_});
            item.as_object_mut().unwrap().extend(given.as_object().unwrap().clone());
            json!([{"metadata": {"name": "defaults"}, "spec": {"limits": [item]}}])
        };
        let hard = json!({"requests.cpu": "4", "limits.memory": "1Gi", "pods": "10"});
        let (none, advice) = of(hard.clone(), "Ignore", json!([]));
        assert!(none.contains("do not state cpu, limits.memory are refused") && advice == 2, "{none}");
        // What limits whole pods states nothing for containers.
        let (pods, _) = of(hard.clone(), "Propagate", range("Pod", json!({"max": {"cpu": "1"}})));
        assert!(pods.contains("none in namespace shop does"), "{pods}");
        let (one, advice) =
            of(hard.clone(), "Propagate", range("Container", json!({"defaultRequest": {"cpu": "1"}})));
        assert!(one.contains("do not state limits.memory are refused") && advice == 1, "{one}");
        let all = range("Container", json!({"defaultRequest": {"cpu": "1"}, "default": {"memory": "1Mi"}}));
        let (kept, advice) = of(hard.clone(), "Ignore", all.clone());
        assert!(kept.contains("that of namespace shop is not copied") && advice == 1, "{kept}");
        assert_eq!(of(hard, "Propagate", all), (String::new(), 0));
        // Pods as such need no requests.
        assert!(limited(["pods", "count/pods"].into_iter()).is_empty());
    }

    #[test]
    fn a_partition_that_is_no_namespace_right_below_the_root_is_named() {
        let of = |names: Value| {
            let spec = json!({"root": "shop", "quota": {"hard": {"pods": "1"}}, "partitions": names});
            let tree = object::<NamespaceTree>("shop", &spec, &json!({}));
            // All of them are in namespace shop.
            let below: Vec<Subnamespace> = vec![
                object("shop-gpu", &json!({}), &json!({"namespaceUid": "u"})),
                object("shop-arm", &json!({}), &json!({"phase": "Refused"})),
            ];
            let mut finding = Finding::new(State::Ok, "it", "well");
            partitions(&mut finding, &tree, &below);
            finding
        };
        assert_eq!(of(json!(["shop-gpu"])).details, Vec::<String>::new());
        let slip = of(json!(["shop-gpu", "shop-arm", "shop-gpus"]));
        let words = "no namespace right below shop yet: shop-arm, shop-gpus; QuotaTransfers";
        assert!(slip.state == State::Ok && slip.details[0].contains(words), "{slip:?}");
        assert!(slip.advice[0].contains("kubectl get sns -n shop"), "{slip:?}");
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
            stalled(Ok(all), "Subnamespaces", older_than, |object: &Subnamespace| {
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
        let none = stalled(Ok(Vec::<Subnamespace>::new()), "Subnamespaces", Duration::default(), |_| None);
        assert!(none.is_none());
    }
}
