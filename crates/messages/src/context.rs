//! What templates can name. `NAMES` is what users read about it; a test compares both.

use std::collections::BTreeMap;

use coppice_api::health::HealthSource;
use coppice_api::{FailingObject, Losses};
use coppice_lifecycle::message::{DeletionContent, MessageContent, MessageLink};
use jiff::Timestamp;
use serde::Serialize;

use crate::escape::{cut, https};
use crate::words;

/// The most characters of a value.
const MAX_VALUE: usize = 600;
/// The most links.
const MAX_LINKS: usize = 8;
/// The most characters of a URL.
const MAX_URL: usize = 2048;

/// What a template gets. What there is not is `none` or an empty list, never undefined: undefined is what is misspelled.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Context {
    about: &'static str,
    what: String,
    when: Option<String>,
    why: String,
    observing: bool,
    observation: Option<String>,
    namespace: String,
    uid: String,
    cluster: Option<String>,
    manager: String,
    owner: Option<String>,
    deletion: Option<DeletionValues>,
    losses: Vec<String>,
    failing: Vec<Failing>,
    successor: Option<String>,
    links: Vec<LinkValues>,
    keep: Option<String>,
    limit_reached: bool,
    expires_at: Option<Timestamp>,
    given_at: Timestamp,
    now: Timestamp,
}

#[derive(Debug, Serialize)]
struct DeletionValues {
    policy: String,
    at: Timestamp,
    reason: String,
    losses: Option<DeletionLosses>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct DeletionLosses {
    volumes: Vec<VolumeValues>,
    load_balancers: Vec<LoadBalancerValues>,
    finalizers: Vec<FinalizerValues>,
    more: Option<u32>,
    unknown: Vec<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct VolumeValues {
    claim: String,
    volume: String,
    capacity: Option<String>,
    reclaim_policy: Option<String>,
}

#[derive(Debug, Serialize)]
struct LoadBalancerValues {
    service: String,
    addresses: Vec<String>,
}

#[derive(Debug, Serialize)]
struct FinalizerValues {
    finalizer: String,
    kind: String,
    name: String,
}

#[derive(Debug, Serialize)]
struct Failing {
    line: String,
    advice: Option<String>,
    kind: String,
    name: String,
    reason: String,
    message: String,
    source: HealthSource,
    since: Timestamp,
}

#[derive(Debug, Serialize)]
struct LinkValues {
    name: String,
    url: String,
}

impl Context {
    pub(crate) fn new(content: &MessageContent, now: Timestamp, cluster: Option<&str>) -> Self {
        let losses = content.deletion.as_ref().and_then(|deletion| deletion.losses.as_ref());
        Self {
            about: content.about.as_str(),
            what: words::what(content),
            when: words::when(content, now),
            why: value(&content.why),
            observing: content.observing,
            observation: words::observation(content),
            namespace: value(&content.namespace),
            uid: value(&content.uid),
            cluster: cluster.map(value),
            manager: value(&content.manager),
            owner: content.owner.as_deref().map(value),
            deletion: content.deletion.as_ref().map(DeletionValues::new),
            losses: losses.map(words::losses).unwrap_or_default(),
            failing: content.failing.iter().map(|one| Failing::new(one, &content.advice, now)).collect(),
            successor: content.successor.as_deref().map(value),
            links: content.links.iter().filter_map(LinkValues::harmless).take(MAX_LINKS).collect(),
            keep: content.keep.as_deref().map(value),
            limit_reached: content.limit_reached,
            expires_at: content.expires_at,
            given_at: content.given_at,
            now,
        }
    }
}

/// A text by others, of a length that keeps messages short.
fn value(text: &str) -> String {
    cut(text, MAX_VALUE)
}

fn values(texts: &[String]) -> Vec<String> {
    texts.iter().map(|text| value(text)).collect()
}

impl DeletionValues {
    fn new(deletion: &DeletionContent) -> Self {
        Self {
            policy: value(&deletion.policy),
            at: deletion.at,
            reason: value(&deletion.reason),
            losses: deletion.losses.as_ref().map(DeletionLosses::new),
        }
    }
}

impl DeletionLosses {
    fn new(losses: &Losses) -> Self {
        let volumes = losses.volumes.iter().map(|one| VolumeValues {
            claim: value(&one.claim),
            volume: value(&one.volume),
            capacity: one.capacity.as_deref().map(value),
            reclaim_policy: one.reclaim_policy.as_deref().map(value),
        });
        let load_balancers = losses.load_balancers.iter();
        let load_balancers = load_balancers.map(|one| LoadBalancerValues {
            service: value(&one.service),
            addresses: values(&one.addresses),
        });
        let finalizers = losses.finalizers.iter().map(|one| FinalizerValues {
            finalizer: value(&one.finalizer),
            kind: value(&one.kind),
            name: value(&one.name),
        });
        Self {
            volumes: volumes.collect(),
            load_balancers: load_balancers.collect(),
            finalizers: finalizers.collect(),
            more: losses.more,
            unknown: values(&losses.unknown),
        }
    }
}

impl Failing {
    fn new(one: &FailingObject, advice: &BTreeMap<String, String>, now: Timestamp) -> Self {
        Self {
            line: words::failing(one, now),
            advice: advice.get(&one.reason).map(|advice| value(advice)),
            kind: value(&one.kind),
            name: value(&one.name),
            reason: value(&one.reason),
            message: value(&one.message),
            source: one.source,
            since: one.since,
        }
    }
}

impl LinkValues {
    /// None if people had better not follow it. A URL that is cut leads nowhere, so that a long one is none.
    fn harmless(link: &MessageLink) -> Option<Self> {
        let url = https(&link.url).filter(|url| url.len() <= MAX_URL)?;
        Some(Self { name: value(&link.name), url })
    }
}
