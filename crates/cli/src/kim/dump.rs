//! What a dump has: the objects of Kyma Infrastructure Manager, those of ours that are there already, and of Secrets what is not secret.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, bail};
use serde_json::{Value, json};

use crate::files::Document;

/// The group of its kinds.
const GROUP: &str = "infrastructuremanager.kyma-project.io/";
/// The label by which it finds the Secret of a Shoot.
const SHOOT_NAME: &str = "kyma-project.io/shoot-name";
/// The label with the Kyma of a cluster.
const KYMA_NAME: &str = "operator.kyma-project.io/kyma-name";
/// The label with the id of a cluster.
const RUNTIME_ID: &str = "kyma-project.io/runtime-id";
/// The kind of what says which modules a cluster has.
pub(super) const KYMA: &str = "Kyma";

/// Namespace and name of an object.
pub(super) type NamespacedName = (String, String);

/// An object, and where it is.
#[derive(Debug)]
pub(super) struct Found {
    /// Where it is: `dump.yaml, document 1, items[3]`.
    pub(super) place: String,
    pub(super) kind: &'static str,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) value: Value,
}

impl Found {
    fn of(kind: &'static str, place: String, value: Value) -> Self {
        let (namespace, name) = key_of(&value);
        Self { place, kind, namespace, name, value }
    }

    /// What remarks on it begin with.
    pub(super) fn about(&self) -> String {
        let name = if self.name.is_empty() { "without a name" } else { &self.name };
        format!("{}: {} {}/{name}: ", self.place, self.kind, self.namespace)
    }

    /// Its labels; what is no text is none.
    pub(super) fn labels(&self) -> BTreeMap<String, String> {
        labels_of(&self.value)
    }

    /// Whether it is of one of the clusters with these names and ids.
    pub(super) fn is_one_of(&self, known: &BTreeSet<String>) -> bool {
        known.contains(&self.name) || self.labels().get(RUNTIME_ID).is_some_and(|id| known.contains(id))
    }

    pub(super) fn is_being_deleted(&self) -> bool {
        self.value.pointer("/metadata/deletionTimestamp").is_some_and(|at| !at.is_null())
    }
}

/// A Secret, without what is in it.
#[derive(Debug)]
pub(super) struct SecretFacts {
    pub(super) labels: BTreeMap<String, String>,
    /// The keys of its data that have a value.
    pub(super) keys: BTreeSet<String>,
    /// Whether it is Opaque, and not immutable.
    pub(super) is_writable: bool,
}

/// Everything in a dump that an import reads.
#[derive(Debug, Default)]
pub(super) struct Dump {
    /// The `GardenerClusters`, and one for each Kyma without.
    pub(super) clusters: Vec<Found>,
    pub(super) runtimes: Vec<Found>,
    pub(super) kymas: Vec<Found>,
    pub(super) shoots: Vec<Found>,
    pub(super) secrets: BTreeMap<NamespacedName, SecretFacts>,
    /// The Secrets with the label of a Shoot, by namespace and that label.
    by_shoot: BTreeMap<NamespacedName, Vec<NamespacedName>>,
    /// The `ClusterAccesses` that are there already.
    pub(super) accesses: BTreeMap<NamespacedName, Value>,
    /// The `ManagedClusters` that are there already.
    pub(super) managed: BTreeMap<NamespacedName, Value>,
    /// What is read of no object: how many of each kind.
    pub(super) others: BTreeMap<String, usize>,
}

impl Dump {
    /// Reads all documents. A version or kind of Infrastructure Manager that is not known is an error: it would be lost unseen.
    pub(super) fn read(documents: &[Document]) -> Result<Self> {
        let mut dump = Self::default();
        for document in documents {
            for (place, object) in document.objects() {
                dump.add(place, object)?;
            }
        }
        let known = dump.known();
        let is_new = |kyma: &&Found| !kyma.is_one_of(&known);
        let of_kymas: Vec<Found> =
            dump.kymas.iter().filter(is_new).filter_map(|kyma| dump.cluster_of(kyma)).collect();
        dump.clusters.extend(of_kymas);
        if dump.clusters.is_empty() && dump.runtimes.is_empty() {
            bail!(
                "there is no GardenerCluster and no Runtime: give what kubectl get gardenercluster,runtime,kyma,secret,clusteraccess -A -o yaml \
                 prints, and the Shoots of the Gardener project beside it"
            );
        }
        Ok(dump)
    }

    fn add(&mut self, place: String, object: Value) -> Result<()> {
        let text = |key: &str| object[key].as_str().unwrap_or_default().to_owned();
        let (version, kind) = (text("apiVersion"), text("kind"));
        match (&*version, &*kind) {
            ("", _) | (_, "") => bail!("{place}: apiVersion or kind is missing"),
            ("infrastructuremanager.kyma-project.io/v1", "GardenerCluster") => {
                self.clusters.push(Found::of("GardenerCluster", place, object));
            }
            ("infrastructuremanager.kyma-project.io/v1", "Runtime") => {
                self.runtimes.push(Found::of("Runtime", place, object));
            }
            (other, kind) if other.starts_with(GROUP) => {
                bail!(
                    "{place}: {other} {kind} is not known; only GardenerCluster and Runtime of {GROUP}v1 are"
                )
            }
            (other, "Kyma") if other.starts_with("operator.kyma-project.io/") => {
                self.kymas.push(Found::of(KYMA, place, object));
            }
            (other, "Shoot") if other.starts_with("core.gardener.cloud/") => {
                self.shoots.push(Found::of("Shoot", place, object));
            }
            ("v1", "Secret") => self.add_secret(&object),
            (other, "ClusterAccess") if other.starts_with("coppice.dev/") => {
                self.accesses.insert(key_of(&object), object);
            }
            (other, "ManagedCluster") if other.starts_with("coppice.dev/") => {
                self.managed.insert(key_of(&object), object);
            }
            _ => *self.others.entry(kind.clone()).or_default() += 1,
        }
        Ok(())
    }

    /// Keeps what is not secret.
    fn add_secret(&mut self, object: &Value) {
        let key = key_of(object);
        let labels = labels_of(object);
        if let Some(shoot) = labels.get(SHOOT_NAME) {
            self.by_shoot.entry((key.0.clone(), shoot.clone())).or_default().push(key.clone());
        }
        let has_value = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
        let data = object["data"].as_object().into_iter().flatten();
        let keys = data.filter(|(_, value)| has_value(value)).map(|(key, _)| key.clone()).collect();
        let is_opaque = object["type"].as_str().is_none_or(|of| of == "Opaque");
        let is_writable = is_opaque && object["immutable"] != Value::Bool(true);
        self.secrets.insert(key, SecretFacts { labels, keys, is_writable });
    }

    /// By which names and ids the clusters are known.
    pub(super) fn known(&self) -> BTreeSet<String> {
        let names = |cluster: &Found| {
            let mut labels = cluster.labels();
            [labels.remove(KYMA_NAME), labels.remove(RUNTIME_ID), Some(cluster.name.clone())]
        };
        self.clusters.iter().flat_map(names).flatten().collect()
    }

    /// The `GardenerCluster` that a Kyma does not have: of the Shoot of its label or of its Runtime, with the Secret that the broker names. None if
    /// its Shoot is not known.
    fn cluster_of(&self, kyma: &Found) -> Option<Found> {
        if kyma.name.is_empty() {
            return None;
        }
        let mut labels = kyma.labels();
        let id = labels.remove(RUNTIME_ID).unwrap_or_else(|| kyma.name.clone());
        let of_runtime = || {
            let runtime = self.runtimes.iter().find(|runtime| runtime.name == id)?;
            Some(runtime.value.pointer("/spec/shoot/name")?.as_str()?.to_owned())
        };
        let shoot = labels.remove(SHOOT_NAME).or_else(of_runtime)?;
        let mut metadata = kyma.value["metadata"].clone();
        metadata["name"] = json!(id);
        let secret =
            json!({"name": format!("kubeconfig-{id}"), "namespace": kyma.namespace, "key": "config"});
        let spec = json!({"shoot": {"name": shoot}, "kubeconfig": {"secret": secret}});
        Some(Found::of(KYMA, kyma.place.clone(), json!({"metadata": metadata, "spec": spec})))
    }

    /// The Secrets that Infrastructure Manager takes for those of a Shoot, whatever `spec.kubeconfig.secret` names.
    pub(super) fn secrets_of(&self, namespace: &str, shoot: &str) -> &[NamespacedName] {
        self.by_shoot.get(&(namespace.to_owned(), shoot.to_owned())).map(Vec::as_slice).unwrap_or_default()
    }

    /// The Gardener project that all Shoots of the dump are in, if it is one.
    pub(super) fn project(&self) -> Option<&str> {
        let mut namespaces = self.shoots.iter().map(|shoot| &*shoot.namespace);
        let first = namespaces.next()?;
        let project = first.strip_prefix("garden-")?;
        namespaces.all(|other| other == first).then_some(project)
    }
}

fn key_of(object: &Value) -> NamespacedName {
    let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
    (text("/metadata/namespace"), text("/metadata/name"))
}

fn labels_of(object: &Value) -> BTreeMap<String, String> {
    let labels = object.pointer("/metadata/labels").and_then(Value::as_object).into_iter().flatten();
    labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}
