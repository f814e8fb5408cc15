//! Deletions of namespaces that take too long, and why.

use coppice_quantity::Duration;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Namespace, NamespaceCondition};
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::{Api, Client, ResourceExt as _};

use super::{Finding, State, remaining};
use crate::{live, print};

/// The finalizer that Kubernetes itself puts on every namespace.
const KUBERNETES: &str = "kubernetes";

/// API services that do not answer: while one is unavailable, no namespace can be emptied for certain.
pub(super) async fn api_services(client: &Client) -> Vec<Finding> {
    let all = match live::list(&Api::<APIService>::all(client.clone()), None).await {
        Ok(all) => all,
        Err(error) => return vec![Finding::unreadable("APIServices", &error)],
    };
    let mut findings = Vec::new();
    for service in &all {
        let conditions = service.status.iter().flat_map(|s| s.conditions.iter().flatten());
        let Some(bad) = conditions.into_iter().find(|c| c.type_ == "Available" && c.status != "True") else {
            continue;
        };
        let message = bad.message.as_deref().or(bad.reason.as_deref()).unwrap_or("it does not answer");
        let backend = service.spec.as_ref().and_then(|s| s.service.as_ref());
        let advice = backend.map_or_else(
            || format!("repair it, or remove it if its software is gone: `kubectl delete apiservice {}`", service.name_any()),
            |b| format!(
                "repair the Service {}/{} behind it, or remove it if its software is gone: `kubectl delete apiservice {}`",
                b.namespace.as_deref().unwrap_or_default(),
                b.name.as_deref().unwrap_or_default(),
                service.name_any()
            ),
        );
        findings.push(
            Finding::new(State::Problem, format!("APIService {}", service.name_any()), message)
                .advise(advice),
        );
    }
    if findings.is_empty() {
        findings.push(Finding::new(State::Ok, "APIServices", format!("all {} are available", all.len())));
    }
    findings
}

pub(super) async fn check(
    client: &Client,
    older_than: Duration,
    services: &[Finding],
    now: Timestamp,
) -> Vec<Finding> {
    let all = match live::list(&Api::<Namespace>::all(client.clone()), None).await {
        Ok(all) => all,
        Err(error) => return vec![Finding::unreadable("namespaces", &error)],
    };
    let limit = SignedDuration::from_secs(older_than.as_secs_i64());
    let mut findings = Vec::new();
    for namespace in &all {
        let Some(since) = namespace.metadata.deletion_timestamp.as_ref().map(|t| t.0) else { continue };
        let about = format!("namespace {}", namespace.name_any());
        let age = now.duration_since(since);
        if age < limit {
            let message =
                format!("is being deleted since {}, less than {older_than} (--older-than)", print::age(age));
            findings.push(Finding::new(State::Ok, about, message));
            continue;
        }
        let message = format!("its deletion was asked for {} and is stuck", print::instant_from(since, now));
        let mut finding = Finding::new(State::Problem, about, message);
        diagnose(client, namespace, services, &mut finding).await;
        findings.push(finding);
    }
    if findings.is_empty() {
        findings.push(Finding::new(
            State::Ok,
            "namespaces",
            format!("none of {} is being deleted", all.len()),
        ));
    }
    findings
}

async fn diagnose(client: &Client, namespace: &Namespace, services: &[Finding], finding: &mut Finding) {
    let name = namespace.name_any();
    for finalizer in namespace.finalizers() {
        finding.details.push(format!("metadata.finalizers: {finalizer}"));
        finding.advice.push(owner_of(finalizer));
    }
    let spec = namespace.spec.as_ref().and_then(|s| s.finalizers.as_deref()).unwrap_or_default();
    for finalizer in spec.iter().filter(|f| *f != KUBERNETES) {
        finding.details.push(format!("spec.finalizers: {finalizer}"));
        finding.advice.push(owner_of(finalizer));
    }
    let conditions = namespace.status.iter().flat_map(|s| s.conditions.iter().flatten());
    let bad: Vec<&NamespaceCondition> = conditions.filter(|c| c.status == "True").collect();
    for condition in &bad {
        let message = condition.message.as_deref().unwrap_or_default();
        finding.details.push(format!("{}: {message}", condition.type_));
        finding.advice.extend(advice(condition, services));
    }
    for (resource, group) in
        bad.iter().flat_map(|c| remaining::parse(c.message.as_deref().unwrap_or_default()))
    {
        finding.details.extend(remaining::objects(client, &name, &resource, &group).await);
    }
    if bad.is_empty() && spec.iter().any(|f| f == KUBERNETES) {
        finding.details.push("Kubernetes has not said yet what is left in it".to_owned());
        finding.advice.push("check that kube-controller-manager runs: it empties namespaces".to_owned());
    }
    finding.advice.dedup();
}

fn owner_of(finalizer: &str) -> String {
    format!(
        "find out which software owns the finalizer {finalizer} and whether it runs; take the finalizer away by hand only \
         if that software is gone for good"
    )
}

fn advice(condition: &NamespaceCondition, services: &[Finding]) -> Option<String> {
    let message = condition.message.as_deref().unwrap_or_default();
    Some(match condition.type_.as_str() {
        "NamespaceDeletionDiscoveryFailure" | "NamespaceDeletionGroupVersionParsingFailure" => {
            let broken = services.iter().filter(|s| s.state == State::Problem);
            let named: Vec<&str> = broken.map(|s| s.about.as_str()).collect();
            if named.is_empty() {
                "an API group cannot be asked what is left; its API service answers again by now: the deletion should go on soon".to_owned()
            } else {
                format!("an API group cannot be asked what is left: repair or remove {} (below)", named.join(", "))
            }
        }
        "NamespaceDeletionContentFailure" => {
            "something in it cannot be deleted: an admission webhook may refuse it; the message names the resource".to_owned()
        }
        "NamespaceFinalizersRemaining" => match remaining::finalizers(message).as_slice() {
            [] => return None,
            named => format!(
                "the software that owns {} must finish its work: check that it runs; take a finalizer away by hand only if \
                 that software is gone for good",
                named.join(", ")
            ),
        },
        // The list of what is left says enough.
        _ => return None,
    })
}
