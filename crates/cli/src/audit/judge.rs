//! What an event means: whether it is about something of ours, and whether somebody other than Coppice did it.

use std::collections::{BTreeMap, BTreeSet};

use coppice_api::names::{GROUP, TREE_QUOTA_NAME};
use jiff::Timestamp;

use super::event::{Event, ObjectRef};
use super::finding::{Counts, Finding, FindingType};
use super::ours::{Installation, SecretName, is_kubernetes, is_our_name};

/// Subresources of pods by which somebody gets into one, or at what it serves inside.
pub(super) const ENTRIES: [&str; 5] = ["attach", "ephemeralcontainers", "exec", "portforward", "proxy"];
/// Groups whose objects in no namespace of ours are ours by their names.
const BY_NAME: [&str; 4] = [
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "certificates.k8s.io",
    "rbac.authorization.k8s.io",
];

/// Looks at events one after another. It keeps the names of Secrets, and which watches are under way, and no event.
#[derive(Debug)]
pub(crate) struct Judge {
    installation: Installation,
    filter: Filter,
    /// Secrets with credentials, by namespace.
    secrets: BTreeMap<String, BTreeSet<String>>,
    /// Requests whose answer has begun: their end says the same again.
    begun: BTreeSet<String>,
    counts: Counts,
}

/// What is not reported.
#[derive(Debug, Default)]
pub(crate) struct Filter {
    /// What these users do; with `*` at the end all whose names begin so.
    pub(crate) allowed: Vec<String>,
    /// What is in another namespace.
    pub(crate) within: Option<String>,
    /// What was requested before.
    pub(crate) since: Option<Timestamp>,
    /// All but these, unless there are none.
    pub(crate) only: Vec<FindingType>,
}

impl Filter {
    /// Whether it is looked at.
    fn covers(&self, event: &Event, object: &ObjectRef) -> bool {
        let elsewhere = |within: &String| !object.namespace.is_empty() && object.namespace != *within;
        let is_early = |since: Timestamp| event.request_received_timestamp < since;
        !self.within.as_ref().is_some_and(elsewhere) && !self.since.is_some_and(is_early)
    }
}

/// What an event means.
#[derive(Debug)]
pub(crate) enum Judgment {
    /// It is not about what is ours, has changed nothing, or says again what was said before.
    Nothing,
    /// Somebody did it who may.
    Expected,
    /// Somebody else did it, or was refused.
    Found(Box<Finding>),
}

/// What of ours an event is about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Subject {
    Object,
    Credential,
    Token,
    Pod,
}

impl Judge {
    pub(crate) fn new(installation: Installation, filter: Filter) -> Self {
        Self {
            installation,
            filter,
            secrets: BTreeMap::new(),
            begun: BTreeSet::new(),
            counts: Counts::default(),
        }
    }

    /// These Secrets have credentials, as all in namespaces of the installation do.
    pub(crate) fn add_secrets(&mut self, secrets: impl IntoIterator<Item = SecretName>) {
        for (namespace, name) in secrets {
            if !self.installation.namespaces.contains(&namespace) {
                self.secrets.entry(namespace).or_default().insert(name);
            }
        }
    }

    /// How many Secrets with credentials are known, outside of the namespaces of the installation.
    pub(crate) fn known_secrets(&self) -> usize {
        self.secrets.values().map(BTreeSet::len).sum()
    }

    /// What was counted so far.
    pub(crate) const fn counts(&self) -> Counts {
        self.counts
    }

    /// Counts a line that is no event.
    pub(crate) fn malformed(&mut self) {
        self.counts.malformed += 1;
    }

    /// What an event means.
    pub(crate) fn judge(&mut self, event: &Event) -> Judgment {
        self.counts.events += 1;
        let Some(object) = &event.object_ref else { return Judgment::Nothing };
        self.add_secret_of_issuer(event, object);
        if !self.filter.covers(event, object) {
            return Judgment::Nothing;
        }
        let Some(type_) = self.type_of(event, object) else { return Judgment::Nothing };
        let is_asked_for = self.filter.only.is_empty() || self.filter.only.contains(&type_);
        if !is_asked_for || !self.is_first_stage(event) {
            return Judgment::Nothing;
        }
        self.by_whom(event, object, type_)
    }

    /// A Secret that the issuer writes holds a credential, also when its `ClusterAccess` is gone by now.
    fn add_secret_of_issuer(&mut self, event: &Event, object: &ObjectRef) {
        let wrote = matches!(event.verb.as_str(), "create" | "update" | "patch")
            && matches!(event.code(), Some(200..=299))
            && event.user.username == self.installation.issuer;
        let is_secret = object.api_group.is_empty() && object.resource == "secrets";
        if wrote && is_secret && !object.name.is_empty() && object.subresource.is_empty() {
            self.add_secrets([(object.namespace.clone(), object.name.clone())]);
        }
    }

    /// What was done, whoever did it; none if that is of no interest.
    fn type_of(&self, event: &Event, object: &ObjectRef) -> Option<FindingType> {
        let is_dry_run = event.is_dry_run();
        let type_ = match (self.subject(object, &event.verb)?, event.is_edit()) {
            (Subject::Object, true) if is_dry_run => return None,
            // Its answer has the Secret with all that it holds.
            (Subject::Credential, true) if is_dry_run => FindingType::CredentialRead,
            (Subject::Credential, true) => FindingType::CredentialEdited,
            (Subject::Credential, false) => FindingType::CredentialRead,
            (Subject::Object, true) => FindingType::Edited,
            (Subject::Token, true) => FindingType::TokenIssued,
            (Subject::Object | Subject::Token, false) => return None,
            (Subject::Pod, _) => FindingType::PodEntered,
        };
        match event.code() {
            Some(401 | 403) => Some(FindingType::Refused),
            // It failed without any effect, such as a conflict, or a name that does not exist.
            Some(400..=499) => None,
            // After an error of the server it may have been done.
            _ => Some(type_),
        }
    }

    fn subject(&self, object: &ObjectRef, verb: &str) -> Option<Subject> {
        let ObjectRef { api_group, resource, subresource, namespace, name } = object;
        let is_inside = self.installation.namespaces.contains(namespace);
        match (api_group.as_str(), resource.as_str(), subresource.as_str()) {
            ("", "secrets", _) => self.has_credentials(object).then_some(Subject::Credential),
            ("", "serviceaccounts", "token") => is_inside.then_some(Subject::Token),
            ("", "pods", entry) if ENTRIES.contains(&entry) => is_inside.then_some(Subject::Pod),
            // They say what happened, and decide nothing.
            ("" | "events.k8s.io", "events", _) => None,
            (GROUP, ..) => Some(Subject::Object),
            // What a namespace of a tree has is written down in it.
            ("", "resourcequotas", "") if name == TREE_QUOTA_NAME => Some(Subject::Object),
            _ if is_inside => Some(Subject::Object),
            ("", "namespaces", _) => self.installation.namespaces.contains(name).then_some(Subject::Object),
            (group, ..) if BY_NAME.contains(&group) => {
                // One request that deletes all of them has no name.
                let all = verb == "deletecollection";
                (is_our_name(name) || all).then_some(Subject::Object)
            }
            _ => None,
        }
    }

    /// Whether a request for Secrets is about one with a credential. Without a name it is about all of a namespace, or of the cluster.
    fn has_credentials(&self, secret: &ObjectRef) -> bool {
        let (namespace, name) = (&secret.namespace, &secret.name);
        if namespace.is_empty() || self.installation.namespaces.contains(namespace) {
            return true;
        }
        let known = self.secrets.get(namespace);
        known.is_some_and(|names| if name.is_empty() { !names.is_empty() } else { names.contains(name) })
    }

    /// Whether no earlier stage of the request was looked at. A watch is known when its answer begins: it may last for long.
    fn is_first_stage(&mut self, event: &Event) -> bool {
        match event.stage.as_str() {
            "ResponseStarted" => self.begun.insert(event.audit_id.clone()),
            "ResponseComplete" | "Panic" => !self.begun.remove(&event.audit_id),
            // `RequestReceived`: what comes of it is logged later.
            _ => false,
        }
    }

    /// An impersonated user is not the one who did it.
    fn by_whom(&mut self, event: &Event, object: &ObjectRef, type_: FindingType) -> Judgment {
        let (user, before) = (event.user.username.as_str(), self.counts.findings);
        let count = if is_kubernetes(user) {
            &mut self.counts.by_kubernetes
        } else if type_ == FindingType::Refused {
            // Also of Coppice's own accounts: then something is not installed as it has to be.
            &mut self.counts.findings
        } else if self.installation.accounts.iter().any(|account| account == user) {
            &mut self.counts.by_coppice
        } else if self.filter.allowed.iter().any(|allowed| fits(allowed, user)) {
            &mut self.counts.by_allowed
        } else {
            &mut self.counts.findings
        };
        *count += 1;
        if self.counts.findings == before {
            return Judgment::Expected;
        }
        Judgment::Found(Box::new(Finding::new(event, object, type_)))
    }
}

/// Whether a user is meant.
fn fits(allowed: &str, user: &str) -> bool {
    allowed.strip_suffix('*').map_or(allowed == user, |begin| user.starts_with(begin))
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
