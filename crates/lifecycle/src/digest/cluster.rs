//! A short name for all fields of a cluster manager that decide.
//!
//! Records of namespaces name it, and `settle` begins again where it changes. A version of Coppice that decides
//! differently on the same fields writes another [`VERSION`], so that what becomes due by it settles first.

use coppice_api::Selector;
use coppice_api::cluster_manager::{
    AnnotationRequirement, ClusterNamespaceManagerSpec, ClusterPolicy, ClusterThen, ClusterWebhook,
    ClusterWhen, Delete, Mode, NamespaceSelector, NamespaceTtl, PhaseCondition, SelectorAlternative,
};
use coppice_api::health::{FailureBudget, HealthReason, HealthSource, HealthSpec, IgnoreRule};
use coppice_api::identity::{IdentityKeys, Supersede};
use coppice_api::limits::Limits;
use coppice_quantity::Duration;

use super::canonical::{Encoder, pods_succeed, scale_down, select, ttl, webhook};
use super::{hex, shorten};

/// What these digests begin with.
const VERSION: &str = "c1:";

/// The digest of a spec: of every field but `suspend`, `approval`, `owner`, `notify`, `health.advice` and the limits of managers in namespaces. Where the order means nothing, it changes nothing.
pub(crate) fn digest(spec: &ClusterNamespaceManagerSpec) -> String {
    let ClusterNamespaceManagerSpec {
        mode,
        suspend: _,
        approval: _,
        priority,
        selector,
        settle,
        ttl,
        health,
        identity,
        supersede,
        owner: _,
        notify: _,
        policies,
        limits,
    } = spec;
    let mut out = Encoder(Vec::with_capacity(256));
    out.field("mode", mode.as_str());
    if *priority != 0 {
        out.field("priority", &priority.to_string());
    }
    let NamespaceSelector { names, exclude, labels, annotations, any_of } = selector;
    parts(&mut out, (names.as_deref(), exclude.as_deref()), labels.as_ref(), annotations.as_deref());
    alternatives(&mut out, any_of.as_deref());
    out.field("settle", &settle.as_secs().to_string());
    if let Some(NamespaceTtl { after, from_annotation }) = ttl {
        out.field("ttl", &after.as_secs().to_string());
        if let Some(key) = from_annotation {
            out.field("ttlFromAnnotation", key);
        }
    }
    if let Some(one) = health {
        out.within("health", |out| self::health(out, one));
    }
    // What a namespace was made for decides nothing by itself.
    if let Some(one) = supersede {
        out.within("supersede", |out| self::supersede(out, identity.as_ref(), one));
    }
    let mut policies: Vec<&ClusterPolicy> = policies.iter().collect();
    policies.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    for one in policies {
        out.within("policy", |out| policy(out, one));
    }
    // What it says of managers in namespaces decides about these alone.
    let Limits { max_ttl, max_hold, min_notice: _, tenant_actions: _, webhook_hosts: _ } =
        limits.clone().unwrap_or_default();
    for (name, limit) in [("maxTTL", max_ttl), ("maxHold", max_hold)] {
        if let Some(limit) = limit {
            out.field(name, &limit.as_secs().to_string());
        }
    }
    format!("{VERSION}{}", hex(&shorten(&out.0)))
}

fn supersede(out: &mut Encoder, identity: Option<&IdentityKeys>, rule: &Supersede) {
    let Supersede { by, wait_until_ready } = rule;
    let mut by: Vec<&str> = by.iter().map(|one| one.as_str()).collect();
    by.sort_unstable();
    for one in by {
        out.field("by", one);
    }
    out.field("waitUntilReady", if *wait_until_ready { "true" } else { "false" });
    let Some(keys) = identity else { return };
    // Links decide nothing.
    let IdentityKeys { project, environment, job, merge_request, branch, commit, pipeline, run, links: _ } =
        keys;
    out.field("project", project);
    for (name, key) in [
        ("environment", environment),
        ("job", job),
        ("mergeRequest", merge_request),
        ("branch", branch),
        ("commit", commit),
        ("pipeline", pipeline),
        ("run", run),
    ] {
        if let Some(key) = key {
            out.field(name, key);
        }
    }
}

/// The parts of a selector, or of one alternative.
fn parts(
    out: &mut Encoder,
    (names, exclude): (Option<&[String]>, Option<&[String]>),
    labels: Option<&Selector>,
    annotations: Option<&[AnnotationRequirement]>,
) {
    sorted(out, "names", names.into_iter().flatten());
    sorted(out, "exclude", exclude.into_iter().flatten());
    select(out, labels);
    let mut annotations: Vec<_> = annotations.into_iter().flatten().collect();
    annotations.sort_unstable_by(|a, b| (&a.key, &a.value).cmp(&(&b.key, &b.value)));
    for AnnotationRequirement { key, value } in annotations {
        out.within("annotation", |out| {
            out.field("key", key);
            if let Some(value) = value {
                out.field("value", value);
            }
        });
    }
}

/// The alternatives of a selector, of which one must hold.
fn alternatives(out: &mut Encoder, any_of: Option<&[SelectorAlternative]>) {
    let mut each: Vec<_> = any_of
        .into_iter()
        .flatten()
        .map(|alternative| {
            let SelectorAlternative { names, exclude, labels, annotations } = alternative;
            let mut one = Encoder(Vec::with_capacity(64));
            one.within("alternative", |out| {
                parts(out, (names.as_deref(), exclude.as_deref()), labels.as_ref(), annotations.as_deref());
            });
            one.0
        })
        .collect();
    each.sort_unstable();
    for one in each {
        out.0.extend(one);
    }
}

/// Every field that decides, whether it was written or is a default.
fn health(out: &mut Encoder, health: &HealthSpec) {
    let HealthSpec {
        sources,
        settling_period,
        grace_period,
        recovery_period,
        failure_budget,
        ignore,
        advice: _,
    } = health;
    let words = sources.iter().map(|source| match source {
        HealthSource::Workloads => "Workloads",
    });
    sorted(out, "sources", words);
    let FailureBudget { window, max } = failure_budget;
    for (name, period) in [
        ("settlingPeriod", settling_period),
        ("gracePeriod", grace_period),
        ("recoveryPeriod", recovery_period),
        ("window", window),
        ("max", max),
    ] {
        out.field(name, &period.as_secs().to_string());
    }
    for IgnoreRule { kind, name, reason } in ignore {
        out.within("ignore", |out| {
            let reason = reason.map(HealthReason::as_str);
            for (field, text) in [("kind", kind.as_deref()), ("name", name.as_deref()), ("reason", reason)] {
                if let Some(text) = text {
                    out.field(field, text);
                }
            }
        });
    }
}

fn policy(out: &mut Encoder, policy: &ClusterPolicy) {
    let ClusterPolicy { name, mode, when, then } = policy;
    out.field("name", name);
    if let Some(mode) = mode {
        out.field("mode", Mode::as_str(*mode));
    }
    let ClusterWhen { phase, ttl: time, pods_succeed: pods } = when;
    if let Some(PhaseCondition { phases, lasting }) = phase {
        out.within("phase", |out| {
            sorted(out, "in", phases.iter().map(|phase| phase.as_str()));
            out.seconds("for", *lasting, Duration::ZERO);
        });
    }
    if let Some(time) = time {
        ttl(out, time);
    }
    if let Some(pods) = pods {
        pods_succeed(out, pods);
    }
    let ClusterThen { delete, scale_down: workloads, webhook: receiver } = then;
    if let Some(Delete { notice }) = delete {
        out.within("delete", |out| out.seconds("notice", *notice, Duration::ZERO));
    }
    if let Some(workloads) = workloads {
        scale_down(out, workloads);
    }
    if let Some(ClusterWebhook { url, format }) = receiver {
        webhook(out, url, *format);
    }
}

/// The digest of one policy.
pub(crate) fn policy_digest(one: &ClusterPolicy) -> String {
    let mut out = Encoder(Vec::with_capacity(64));
    policy(&mut out, one);
    format!("{VERSION}{}", hex(&shorten(&out.0)))
}

/// A set, by its name.
fn sorted(out: &mut Encoder, name: &str, words: impl Iterator<Item = impl AsRef<str>>) {
    let mut words: Vec<_> = words.collect();
    if words.is_empty() {
        return;
    }
    words.sort_unstable_by(|a, b| a.as_ref().cmp(b.as_ref()));
    out.within(name, |out| words.iter().for_each(|word| out.word(word.as_ref())));
}
