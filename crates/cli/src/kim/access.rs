//! `GardenerClusters` as `ClusterAccesses`.
//!
//! The Secret keeps its name, its key and its labels, so that whoever reads it needs no change. It is not the `ClusterAccess`'s until an
//! administrator hands it over, by a label with the uid of that: Coppice writes no Secret that it has not made or been given.

use std::collections::{BTreeMap, BTreeSet};

use coppice_clusters_api::names::LABEL_ACCESS;
use serde_json::Value;

use super::Options;
use super::dump::{Dump, Found, NamespacedName, SecretFacts};
use super::objects::{self, NewAccess};
use crate::import::Remarks;
use crate::import::fields::{FieldError, Fields};
use crate::validate;

/// The domain of the labels by which others find Secrets.
const DOMAIN: &str = "kyma-project.io";
/// The labels that the form `Kyma` writes itself.
const WRITTEN: [&str; 2] = ["operator.kyma-project.io/managed-by", "operator.kyma-project.io/cluster-name"];
/// On a `GardenerCluster`: its kubeconfig is to be replaced at once.
const FORCED: &str = "operator.kyma-project.io/force-kubeconfig-rotation";

/// What was written so far: no two `ClusterAccesses` have one name, or one Secret.
#[derive(Default)]
pub(super) struct Taken {
    names: BTreeSet<NamespacedName>,
    secrets: BTreeSet<NamespacedName>,
}

/// A `ClusterAccess` that is to be created.
pub(super) struct ImportedAccess {
    pub(super) object: Value,
    pub(super) namespace: String,
    /// Whether its Secret exists, as far as the dump says.
    pub(super) has_secret: bool,
}

/// A `GardenerCluster`, as far as it is read.
struct GardenerCluster {
    shoot: String,
    /// Where the Secret is to be.
    secret: NamespacedName,
    data_key: String,
    is_forced: bool,
}

/// The Secret that is read by others.
struct CurrentSecret<'a> {
    key: NamespacedName,
    /// None if the dump does not have it.
    facts: Option<&'a SecretFacts>,
}

/// Translates one `GardenerCluster`; none if nothing is to be created for it, which the remarks explain.
pub(super) fn import(
    found: &Found,
    dump: &Dump,
    options: &Options,
    taken: &mut Taken,
    remarks: &mut Remarks,
) -> Result<Option<ImportedAccess>, FieldError> {
    if found.is_being_deleted() {
        remarks.note("it is being deleted, and nothing is written for it");
        return Ok(None);
    }
    let cluster = GardenerCluster::read(found)?;
    let secret = cluster.current_secret(dump, remarks);
    let key = (secret.key.0.clone(), found.name.clone());
    if !taken.names.insert(key.clone()) {
        remarks.differs(format!(
            "nothing is written for it: another GardenerCluster of this name has its Secret in namespace {}, too",
            key.0
        ));
        return Ok(None);
    }
    if !taken.secrets.insert(secret.key.clone()) {
        remarks.differs(format!(
            "nothing is written for it: another GardenerCluster has the Secret {}, and one ClusterAccess writes a Secret",
            secret.key.1
        ));
        return Ok(None);
    }
    if let Some(existing) = dump.accesses.get(&key) {
        next_step(existing, &key, &secret, remarks);
        return Ok(None);
    }
    cluster.explain(found, &secret, dump, remarks);
    let labels = labels(found, &secret, remarks);
    let new = NewAccess {
        key: &key,
        labels: &labels,
        shoot: &cluster.shoot,
        secret: &secret.key.1,
        data_key: &cluster.data_key,
    };
    let object = objects::access(&new, options);
    let problems = validate::check(&object);
    for problem in &problems {
        remarks.differs(format!("nothing is written for it: our API refuses the result: {problem}"));
    }
    let has_secret = secret.facts.is_some();
    Ok(problems.is_empty().then_some(ImportedAccess { object, namespace: key.0, has_secret }))
}

impl GardenerCluster {
    fn read(found: &Found) -> Result<Self, FieldError> {
        let metadata = Fields::of(&found.value["metadata"], "metadata")?;
        if !validate::is_dns_subdomain(&found.name) {
            return Err(metadata.wrong("name", "is no name of an object"));
        }
        let spec = Fields::of(&found.value["spec"], "spec")?;
        let shoot = spec.below("shoot")?;
        let secret = spec.below("kubeconfig")?.below("secret")?;
        let data_key = secret.text("key")?.filter(|key| !key.is_empty());
        Ok(Self {
            shoot: name_in(&shoot, "name", validate::is_dns_label)?,
            secret: (
                name_in(&secret, "namespace", validate::is_dns_label)?,
                name_in(&secret, "name", validate::is_dns_subdomain)?,
            ),
            data_key: data_key.ok_or_else(|| secret.wrong("key", "required"))?,
            // Its presence is enough there.
            is_forced: metadata.below("annotations")?.get(FORCED).is_some(),
        })
    }

    /// The Secret that Infrastructure Manager writes: it looks for that by the label of the Shoot, and takes the name in the spec only where
    /// it finds none.
    fn current_secret<'a>(&self, dump: &'a Dump, remarks: &mut Remarks) -> CurrentSecret<'a> {
        let (namespace, name) = &self.secret;
        let labelled = dump.secrets_of(namespace, &self.shoot);
        let key = match labelled {
            [] => self.secret.clone(),
            [one] => one.clone(),
            several => {
                remarks.differs(format!(
                    "{} Secrets have its label kyma-project.io/shoot-name, for which Infrastructure Manager does nothing any more: delete those that \
                     nobody reads",
                    several.len()
                ));
                several.iter().find(|key| **key == self.secret).unwrap_or(&several[0]).clone()
            }
        };
        if key != self.secret {
            remarks.differs(format!(
                "spec.kubeconfig.secret.name is {name}, and Infrastructure Manager writes the Secret {}, which it finds by its label: that is taken over, \
                 since it is the one that is read",
                key.1
            ));
        }
        CurrentSecret { facts: dump.secrets.get(&key), key }
    }

    /// Says what is different for it.
    fn explain(&self, found: &Found, secret: &CurrentSecret<'_>, dump: &Dump, remarks: &mut Remarks) {
        if found.namespace != secret.key.0 {
            remarks.note(format!(
                "it is in namespace {}, and its Secret in {}: the ClusterAccess is where its Secret is",
                found.namespace, secret.key.0
            ));
        }
        if self.is_forced {
            remarks.note(format!(
                "the annotation {FORCED} asks for another kubeconfig: the first one of the ClusterAccess is another one in any case; the one before cannot \
                 be revoked, and is valid until it expires"
            ));
        }
        if !dump.shoots.is_empty() && !dump.shoots.iter().any(|shoot| shoot.name == self.shoot) {
            remarks.differs(format!(
                "the dump has Shoots, and not {}: where it is gone, delete this GardenerCluster and its Secret, and the ClusterAccess",
                self.shoot
            ));
        }
        let Some(facts) = secret.facts else { return };
        if !facts.is_writable {
            remarks.differs(format!(
                "its Secret {} is immutable or not Opaque, and nothing can be written into it: delete it when the ClusterAccess begins, and it is made \
                 again at once",
                secret.key.1
            ));
        }
        if !facts.keys.contains(&self.data_key) {
            remarks.note(format!(
                "its Secret {} has no kubeconfig at present, and has one as soon as the ClusterAccess begins",
                secret.key.1
            ));
        }
        let others: Vec<&str> =
            facts.keys.iter().map(String::as_str).filter(|key| *key != self.data_key).collect();
        if !others.is_empty() {
            remarks.differs(format!(
                "its Secret {} also has {}, which the first write takes away: have those who read that read another Secret before",
                secret.key.1,
                others.join(", ")
            ));
        }
    }
}

/// A name that has to be there.
fn name_in(of: &Fields<'_>, key: &str, is_good: fn(&str) -> bool) -> Result<String, FieldError> {
    let text = of.text(key)?.filter(|text| !text.is_empty()).ok_or_else(|| of.wrong(key, "required"))?;
    if is_good(&text) { Ok(text) } else { Err(of.wrong(key, &format!("{text:?} is no name of an object"))) }
}

/// The labels of the `ClusterAccess`, which get onto its Secret: those of Kyma, as the `GardenerCluster` has them now, and what the Secret
/// has besides.
fn labels(found: &Found, secret: &CurrentSecret<'_>, remarks: &mut Remarks) -> BTreeMap<String, String> {
    let (mut labels, others): (BTreeMap<_, _>, BTreeMap<_, _>) =
        found.labels().into_iter().partition(|(key, _)| is_of_kyma(key));
    if !others.is_empty() {
        remarks.differs(format!(
            "only labels of {DOMAIN} get onto the Secret, so that no other tool takes it for its own; left out: {}",
            others.into_keys().collect::<Vec<_>>().join(", ")
        ));
    }
    for (key, value) in secret.facts.into_iter().flat_map(|facts| &facts.labels) {
        if !is_of_kyma(key) || WRITTEN.contains(&key.as_str()) {
            continue;
        }
        match labels.get(key) {
            None => drop(labels.insert(key.clone(), value.clone())),
            Some(current) if current == value => {}
            Some(current) => remarks.differs(format!(
                "label {key}: its Secret has {value:?} from when it was made, and the GardenerCluster {current:?}, which the Secret gets: look who \
                 finds it by the old value"
            )),
        }
    }
    labels
}

/// Whether a label is one of Kyma.
pub(super) fn is_of_kyma(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    domain.strip_suffix(DOMAIN).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// What is left to do for a `ClusterAccess` that exists. It is left as it is.
fn next_step(existing: &Value, key: &NamespacedName, secret: &CurrentSecret<'_>, remarks: &mut Remarks) {
    let (namespace, name) = key;
    let spec = &existing["spec"];
    let written = spec.pointer("/output/secret").and_then(Value::as_str).unwrap_or_default();
    if written != secret.key.1 {
        remarks.differs(format!(
            "ClusterAccess {namespace}/{name} exists, is left as it is, and writes the Secret {written:?}, and not {}: delete it and import again, or \
             have those who read the one read the other",
            secret.key.1
        ));
        return;
    }
    let is_uid = |uid: &&str| !uid.is_empty() && uid.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    let uid = existing.pointer("/metadata/uid").and_then(Value::as_str).filter(is_uid);
    let label = secret.facts.and_then(|facts| facts.labels.get(LABEL_ACCESS)).map(String::as_str);
    match (secret.facts, label, uid) {
        (Some(_), Some(label), uid) if uid != Some(label) => remarks.differs(format!(
            "ClusterAccess {namespace}/{name} exists, and the label {LABEL_ACCESS} of the Secret {} is not its uid: it is that of another one, or of \
             one that was deleted: take it off, and import again",
            secret.key.1
        )),
        (Some(_), None, Some(uid)) => remarks.differs(format!(
            "ClusterAccess {namespace}/{name} exists. With Infrastructure Manager stopped, hand its Secret over: kubectl label secret {} -n {namespace} \
             {LABEL_ACCESS}={uid}",
            secret.key.1
        )),
        (Some(_), None, None) => remarks.differs(format!(
            "ClusterAccess {namespace}/{name} has no uid: give it as kubectl get clusteraccess -A -o yaml prints it"
        )),
        _ if spec["suspend"] == Value::Bool(true) => {
            // A dump without its Secret does not say that it was handed over.
            let unseen = match secret.facts {
                Some(_) => String::new(),
                None => format!(" if there is no Secret {}, which the dump does not have", secret.key.1),
            };
            remarks.differs(format!(
                "ClusterAccess {namespace}/{name} exists, and may begin{unseen}: kubectl patch clusteraccess {name} -n {namespace} --type=merge -p \
                 '{{\"spec\":{{\"suspend\":false}}}}'"
            ));
        }
        _ => remarks.note(format!("ClusterAccess {namespace}/{name} exists and is left as it is")),
    }
}
