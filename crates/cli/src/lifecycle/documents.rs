//! The snapshot of files alone: no cluster is asked.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail};
use coppice_lifecycle::facts::{JobFacts, NamespaceFacts, PodFacts};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Governed, LifecycleSnapshot, TreeObjects, excess_managers, own_managers, settings};
use crate::args::SourceArgs;
use crate::by_namespace::ByNamespace;
use crate::facts::{self, ClusterManager, Config, Manager, NamespaceRecord};
use crate::files::Document;
use crate::print;
use crate::refused_pods::RefusedPods;
use crate::terminal::Paragraph;
use crate::trees::Subnamespace;
use crate::validate;

/// What files are read as.
#[derive(Clone, Copy)]
pub(crate) struct Reading<'a> {
    /// The installation, as the command line describes it.
    pub(crate) source: &'a SourceArgs,
    /// The namespace of objects that name none; also the only one whose managers are shown, if given.
    pub(crate) namespace: Option<&'a str>,
    /// Namespaces without a creation time are assumed to have been created then.
    pub(crate) assumed: Timestamp,
    /// Whether a cluster manager that is not among them waits for pods.
    pub(crate) further_need_pods: bool,
}

#[derive(Default)]
struct Collected {
    managers: Vec<Manager>,
    namespaces: BTreeMap<String, NamespaceFacts>,
    pods: ByNamespace<PodFacts>,
    jobs: ByNamespace<JobFacts>,
    cluster_managers: Vec<ClusterManager>,
    records: BTreeMap<String, NamespaceRecord>,
    refused_pods: BTreeMap<String, Vec<RefusedPods>>,
    config: Option<Config>,
    trees: TreeObjects,
    undated: Vec<String>,
    warnings: Vec<String>,
    problems: Vec<String>,
}

/// Makes a snapshot of documents. All problems in objects of our kinds are reported at once.
pub(crate) fn snapshot(documents: &[Document], reading: Reading<'_>) -> Result<LifecycleSnapshot> {
    let mut all = Collected::default();
    for (place, object) in documents.iter().flat_map(Document::objects) {
        collect(&mut all, &place, object, &reading)?;
    }
    problems(&mut all)?;
    assume_namespaces(&mut all, &reading);
    all.warnings.extend(all.trees.assume(&all.namespaces, reading.assumed));
    all.pods.sort_by(|p| &p.name);
    all.jobs.sort_by(|j| &j.name);
    warn_of_missing_pods(&mut all, reading.further_need_pods);
    let Reading { source, .. } = reading;
    let (settings, budget) =
        settings(all.config, &source.system_namespace, source.scale_kinds.clone(), &mut all.warnings);
    let mut managers = all.managers;
    all.cluster_managers.sort_by(|a, b| a.name().cmp(b.name()));
    let governed = Governed { managers: Ok(all.cluster_managers), records: all.records };
    let own_managers = own_managers(&managers);
    let excess_managers = excess_managers(&managers);
    managers.retain(|m| reading.namespace.is_none_or(|n| n == m.namespace()));
    managers.sort_by(|a, b| (a.namespace(), a.name()).cmp(&(b.namespace(), b.name())));
    Ok(LifecycleSnapshot {
        managers,
        excess_managers,
        namespaces: all.namespaces,
        pods: all.pods,
        jobs: all.jobs,
        governed,
        settings,
        budget,
        managed: own_managers.len() as u64,
        own_managers,
        census: None,
        refused_pods: all.refused_pods,
        trees: all.trees,
        warnings: all.warnings,
    })
}

/// The cluster managers of documents that hold nothing else. All problems in them are reported at once.
pub(crate) fn cluster_managers(documents: &[Document]) -> Result<Vec<ClusterManager>> {
    let mut all = Collected::default();
    for (place, object) in documents.iter().flat_map(Document::objects) {
        let kind = object["kind"].as_str().unwrap_or_default();
        if (object["apiVersion"].as_str(), kind) != (Some("coppice.dev/v1alpha1"), "ClusterNamespaceManager")
        {
            bail!(
                "{place}: not a ClusterNamespaceManager of coppice.dev/v1alpha1 but a {kind:?}: give what describes the cluster \
                 with --from"
            );
        }
        collect_cluster_manager(&mut all, &place, object);
    }
    problems(&mut all)?;
    if all.cluster_managers.is_empty() {
        bail!("the files hold no ClusterNamespaceManager");
    }
    Ok(all.cluster_managers)
}

/// All problems as one error, if there are some.
fn problems(all: &mut Collected) -> Result<()> {
    if all.problems.is_empty() {
        return Ok(());
    }
    let first = format!("{} found:", print::count(all.problems.len(), "problem"));
    Err(Paragraph { first, below: std::mem::take(&mut all.problems) }.into())
}

/// What to say if the files have no settings.
pub(crate) fn defaults_assumed(documents: &[Document]) -> Option<&'static str> {
    let mut objects = documents.iter().flat_map(Document::objects);
    let known = objects.any(|(_, object)| {
        object["kind"] == "CoppiceConfig" && object["apiVersion"] == "coppice.dev/v1alpha1"
    });
    (!known).then_some("note: no CoppiceConfig/coppice in the files: the defaults are assumed")
}

fn collect(all: &mut Collected, place: &str, mut object: Value, reading: &Reading<'_>) -> Result<()> {
    let api_version = object["apiVersion"].as_str().unwrap_or_default().to_owned();
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    let namespace = object.pointer("/metadata/namespace").and_then(Value::as_str);
    let namespace = namespace.or(reading.namespace).unwrap_or("default").to_owned();
    match (api_version.as_str(), kind.as_str()) {
        ("", _) | (_, "") => bail!("{place}: apiVersion or kind is missing"),
        ("v1", "Namespace") => {
            let read = parse_as::<Namespace>(place, object)?;
            if read.metadata.creation_timestamp.is_none() {
                all.undated.push(read.metadata.name.clone().unwrap_or_default());
            }
            let facts = facts::namespace(read, reading.assumed);
            all.namespaces.insert(facts.name.clone(), facts);
        }
        ("v1", "Pod") => all.pods.add(&namespace, facts::pod(parse_as(place, object)?)),
        ("v1", "Event") => {
            if let Some(refused) = RefusedPods::of(parse_as(place, object)?) {
                all.refused_pods.entry(namespace).or_default().push(refused);
            }
        }
        ("batch/v1", "Job") => all.jobs.add(&namespace, facts::job(parse_as(place, object)?)),
        ("coppice.dev/v1alpha1", "NamespaceManager") => {
            report(all, place, &object);
            if let Some(metadata) = object["metadata"].as_object_mut() {
                metadata.insert("namespace".to_owned(), namespace.into());
            }
            // What cannot be read has been reported.
            if let Ok(manager) = Manager::from_json(object) {
                add_manager(all, place, manager);
            }
        }
        ("coppice.dev/v1alpha1", "CoppiceConfig") => {
            report(all, place, &object);
            all.config = Config::from_json(object).ok().or(all.config.take());
        }
        ("coppice.dev/v1alpha1", "ClusterNamespaceManager") => {
            collect_cluster_manager(all, place, object);
        }
        ("coppice.dev/v1alpha1", "ManagedNamespace") => {
            report(all, place, &object);
            if let Some(metadata) = object["metadata"].as_object_mut() {
                metadata.insert("namespace".to_owned(), namespace.clone().into());
            }
            if let Ok(record) = NamespaceRecord::from_json(object)
                && all.records.insert(namespace.clone(), record).is_some()
            {
                all.problems.push(format!("{place}: the ManagedNamespace of {namespace} is there twice"));
            }
        }
        // What is gone changes no plan; only the operator writes these.
        ("coppice.dev/v1alpha1", "DeletedNamespace") => {}
        ("coppice.dev/v1alpha1", "Subnamespace") => collect_subnamespace(all, place, object, namespace),
        // No manager acts on these.
        (
            "coppice.dev/v1alpha1",
            "ClusterAccess" | "ClusterProvider" | "ManagedCluster" | "NamespaceTree" | "QuotaTransfer",
        ) => report(all, place, &object),
        (other, kind) if other.starts_with("coppice.dev/") => {
            all.problems.push(format!("{place}: this version knows no kind {kind} of {other}"));
        }
        ("k8s.consol.de/v1beta1", "NamespaceManager") => all.warnings.push(format!(
            "{place}: a manager of the ConSol k8s-namespace-manager is left out; `coppice import consol` makes it ours"
        )),
        _ => {}
    }
    Ok(())
}

fn report(all: &mut Collected, place: &str, object: &Value) {
    let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or("without a name");
    let kind = object["kind"].as_str().unwrap_or_default();
    let found = validate::check(object);
    all.problems.extend(found.iter().map(|problem| format!("{place} ({kind} {name}): {problem}")));
}

fn add_manager(all: &mut Collected, place: &str, manager: Manager) {
    let same = |m: &&Manager| (m.namespace(), m.name()) == (manager.namespace(), manager.name());
    if all.managers.iter().any(|m| same(&m)) {
        let (namespace, name) = (manager.namespace(), manager.name());
        all.problems.push(format!("{place}: NamespaceManager {namespace}/{name} is there twice"));
    }
    all.managers.push(manager);
}

fn collect_cluster_manager(all: &mut Collected, place: &str, object: Value) {
    report(all, place, &object);
    // What cannot be read has been reported.
    let Ok(manager) = ClusterManager::from_json(object) else { return };
    if all.cluster_managers.iter().any(|other| other.name() == manager.name()) {
        all.problems.push(format!("{place}: ClusterNamespaceManager {} is there twice", manager.name()));
    }
    all.cluster_managers.push(manager);
}

fn collect_subnamespace(all: &mut Collected, place: &str, mut object: Value, namespace: String) {
    report(all, place, &object);
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.insert("namespace".to_owned(), namespace.into());
    }
    // What cannot be read has been reported.
    all.trees.subnamespaces.extend(Subnamespace::from_json(object));
}

fn parse_as<T: DeserializeOwned>(place: &str, object: Value) -> Result<T> {
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    serde_json::from_value(object).with_context(|| format!("{place}: not a {kind}"))
}

/// Managers whose namespace is not in the files, or has no creation time, as one that is about to be applied.
fn assume_namespaces(all: &mut Collected, reading: &Reading<'_>) {
    let created = print::instant(reading.assumed);
    for name in &all.undated {
        all.warnings.push(format!(
            "namespace {name} has no creation time in the files: assumed to be created at {created}"
        ));
    }
    for manager in &all.managers {
        let steps = &manager.status.steps;
        let announced = steps.notice.as_ref().map(|notice| &notice.uid);
        let uid = steps.intent.as_ref().map(|intent| &intent.uid).or(announced);
        assume_namespace(&mut all.namespaces, &mut all.warnings, manager.namespace(), uid, reading.assumed);
    }
    for (name, record) in &all.records {
        let uid = record.status.namespace_uid.as_ref();
        assume_namespace(&mut all.namespaces, &mut all.warnings, name, uid, reading.assumed);
    }
    if !all.cluster_managers.is_empty() && all.namespaces.is_empty() {
        all.warnings.push(
            "no Namespaces are in the files, so that cluster managers select nothing; `kubectl get ns,mns -A -o yaml` dumps \
             them"
                .to_owned(),
        );
    }
}

fn assume_namespace(
    namespaces: &mut BTreeMap<String, NamespaceFacts>,
    warnings: &mut Vec<String>,
    name: &str,
    uid: Option<&String>,
    assumed: Timestamp,
) {
    if namespaces.contains_key(name) {
        return;
    }
    let created = print::instant(assumed);
    warnings.push(format!(
        "namespace {name} is not in the files: assumed to be created at {created}, without labels"
    ));
    let mut object = Namespace::default();
    object.metadata.name = Some(name.to_owned());
    let mut facts = facts::namespace(object, assumed);
    if let Some(uid) = uid {
        facts.uid.clone_from(uid);
    }
    namespaces.insert(name.to_owned(), facts);
}

fn warn_of_missing_pods(all: &mut Collected, further_need_pods: bool) {
    for manager in &all.managers {
        let Ok(spec) = &manager.spec else { continue };
        let namespace = manager.namespace();
        if spec.needs_pods() && all.pods.is_empty(namespace) && all.jobs.is_empty(namespace) {
            all.warnings.push(format!(
                "no Pods and Jobs of namespace {namespace} are in the files: taken as none; \
                 `kubectl get pods,jobs -n {namespace} -o yaml` dumps them"
            ));
        }
    }
    let by_cluster_managers =
        further_need_pods || all.cluster_managers.iter().any(ClusterManager::needs_pods);
    if by_cluster_managers && all.pods.is_nowhere() && all.jobs.is_nowhere() {
        all.warnings.push(
            "no Pods and Jobs are in the files, and a cluster manager waits for them: taken as none; \
             `kubectl get pods,jobs -A -o yaml` dumps them"
                .to_owned(),
        );
    }
    all.warnings.dedup();
}
