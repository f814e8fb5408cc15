//! What there is in both clusters, from one instant to the next.

use std::collections::{BTreeMap, BTreeSet};

use coppice_sim::run::RunRecord;
use coppice_sim::server::Change;
use coppice_sim::target::{IssuedCertificate, IssuedToken};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::held::certificate_in;

/// Which `ClusterAccess` something was made for, by its uid.
const LABEL: &str = "coppice.dev/access";
/// The names of accounts, roles and bindings begin so; the uid of the `ClusterAccess` follows.
const PREFIX: &str = "coppice-";

/// What there is at an instant.
pub(in crate::suite::access) struct RecordedState<'a> {
    /// The instant.
    pub(super) now: Timestamp,
    /// The `ClusterAccess`es that are there, by uid.
    pub(super) accesses: BTreeMap<&'a str, &'a Value>,
    /// The rights that each asks for or has asked for, by uid and generation.
    pub(super) asked: BTreeMap<&'a str, BTreeMap<i64, &'a Value>>,
    /// When those that are gone went, by uid.
    pub(super) gone: BTreeMap<&'a str, Timestamp>,
    /// The Secrets that were made for one, by namespace and name, as they were written last.
    pub(super) outputs: BTreeMap<(&'a str, &'a str), &'a Change>,
    /// What the target has, by plural, namespace and name, as it was written last.
    pub(super) target: BTreeMap<(&'a str, &'a str, &'a str), &'a Change>,
    /// The tokens that were issued until now.
    pub(in crate::suite::access) tokens: Vec<&'a IssuedToken>,
    /// The certificates that were signed until now.
    pub(super) certificates: Vec<&'a IssuedCertificate>,
    /// The revisions of Secrets by which each certificate that was in one came there.
    pub(super) handed_out: BTreeMap<String, BTreeSet<u64>>,
}

#[derive(Clone, Copy)]
enum Event<'a> {
    Access(&'a Change),
    Secret(&'a Change),
    Target(&'a Change),
    Issued(&'a IssuedToken),
    Signed(&'a IssuedCertificate),
    Expired,
}

/// Replays what happened in both clusters, and shows what there is after each instant. What there is in the end.
pub(in crate::suite::access) fn replay<'a>(
    record: &'a RunRecord<'_>,
    mut show: impl FnMut(&RecordedState<'a>),
) -> RecordedState<'a> {
    let lasted = SignedDuration::try_from(record.lasted).unwrap_or(SignedDuration::MAX);
    let end = record.began.saturating_add(lasted).unwrap_or(Timestamp::MAX);
    let mut state = RecordedState {
        now: record.began,
        accesses: BTreeMap::new(),
        asked: BTreeMap::new(),
        gone: BTreeMap::new(),
        outputs: BTreeMap::new(),
        target: BTreeMap::new(),
        tokens: Vec::new(),
        certificates: Vec::new(),
        handed_out: BTreeMap::new(),
    };
    for (now, events) in events(record, end) {
        state.now = now;
        for event in events {
            state.take(event);
        }
        show(&state);
    }
    state.now = end;
    state
}

/// What happened, by instant.
fn events<'a>(record: &'a RunRecord<'_>, end: Timestamp) -> BTreeMap<Timestamp, Vec<Event<'a>>> {
    let mut events: BTreeMap<Timestamp, Vec<Event<'a>>> = BTreeMap::new();
    let mut note = |at: Timestamp, event: Event<'a>| events.entry(at).or_default().push(event);
    for change in record.changes {
        match &*change.kind.plural {
            "clusteraccesses" => note(change.at, Event::Access(change)),
            "secrets" => note(change.at, Event::Secret(change)),
            _ => {}
        }
    }
    if let Some(target) = record.target {
        for change in target.changes() {
            note(change.at, Event::Target(change));
        }
        for token in target.tokens() {
            note(token.issued, Event::Issued(token));
            if token.expires <= end {
                note(token.expires, Event::Expired);
            }
        }
        for certificate in target.certificates() {
            note(certificate.issued, Event::Signed(certificate));
            if certificate.expires <= end {
                note(certificate.expires, Event::Expired);
            }
        }
    }
    events
}

impl<'a> RecordedState<'a> {
    fn take(&mut self, event: Event<'a>) {
        match event {
            Event::Access(change) => {
                let uid = &*change.uid;
                if let Some(access) = change.after.as_deref() {
                    self.accesses.insert(uid, access);
                    let generation = access["metadata"]["generation"].as_i64().unwrap_or(1);
                    self.asked.entry(uid).or_default().insert(generation, &access["spec"]["rights"]);
                } else {
                    self.accesses.remove(uid);
                    self.gone.insert(uid, change.at);
                }
            }
            Event::Secret(change) => {
                let place = (change.namespace(), change.name());
                let secret = change.after.as_deref().filter(|secret| owner_of(secret).is_some());
                let Some(secret) = secret else {
                    self.outputs.remove(&place);
                    return;
                };
                self.outputs.insert(place, change);
                if let Some((certificate, _)) = certificate_in(secret) {
                    self.handed_out.entry(certificate).or_default().insert(change.revision);
                }
            }
            Event::Target(change) => {
                let place = (&*change.kind.plural, change.namespace(), change.name());
                if change.after.is_some() {
                    self.target.insert(place, change);
                } else {
                    self.target.remove(&place);
                }
            }
            Event::Issued(token) => self.tokens.push(token),
            Event::Signed(certificate) => self.certificates.push(certificate),
            Event::Expired => {}
        }
    }

    /// Whether the target takes a token.
    pub(in crate::suite::access) fn is_valid(&self, token: &IssuedToken) -> bool {
        let is = |plural: &str, (name, uid): &(String, String)| {
            let found = self.target.get(&(plural, token.namespace.as_str(), name.as_str()));
            found.is_some_and(|change| *change.uid == **uid)
        };
        self.now < token.expires && is("serviceaccounts", &token.account) && is("secrets", &token.secret)
    }

    /// The `ClusterAccess`es that are there and not being deleted, with their uids.
    pub(super) fn kept(&self) -> impl Iterator<Item = (&'a str, &'a Value)> {
        let all = self.accesses.iter().map(|(uid, access)| (*uid, *access));
        all.filter(|(_, access)| access["metadata"]["deletionTimestamp"].is_null())
    }
}

/// The uid of the `ClusterAccess` that an object was made for.
pub(super) fn owner_of(object: &Value) -> Option<&str> {
    object["metadata"]["labels"][LABEL].as_str()
}

/// That of the `ClusterAccess` that a token was issued for.
pub(super) fn owner_of_token(token: &IssuedToken) -> &str {
    token.account.0.strip_prefix(PREFIX).unwrap_or_default()
}

/// The intent that a token was issued for.
pub(super) fn intent_of(token: &IssuedToken) -> &str {
    intent_named(&token.secret.0)
}

/// The intent of the object in the target that a credential is issued from.
pub(super) fn intent_named(object: &str) -> &str {
    object.strip_prefix(PREFIX).unwrap_or_default()
}

/// The name of the account of a `ClusterAccess`.
pub(super) fn account_of(uid: &str) -> String {
    format!("{PREFIX}{uid}")
}

/// The user of the certificates of a `ClusterAccess`.
pub(super) fn user_of(uid: &str) -> String {
    format!("coppice-access:{uid}")
}
