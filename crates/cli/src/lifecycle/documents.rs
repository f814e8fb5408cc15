//! The snapshot of files alone: no cluster is asked.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail};
use coppice_lifecycle::facts::{JobFacts, NamespaceFacts, PodFacts};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{LifecycleSnapshot, excess_managers, managed_namespaces, settings};
use crate::args::SourceArgs;
use crate::by_namespace::ByNamespace;
use crate::facts::{self, Config, Manager};
use crate::files::Document;
use crate::print;
use crate::terminal::Paragraph;
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
}

#[derive(Default)]
struct Collected {
    managers: Vec<Manager>,
    namespaces: BTreeMap<String, NamespaceFacts>,
    pods: ByNamespace<PodFacts>,
    jobs: ByNamespace<JobFacts>,
    config: Option<Config>,
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
    if !all.problems.is_empty() {
        let first = format!("{} found:", print::count(all.problems.len(), "problem"));
        return Err(Paragraph { first, below: all.problems }.into());
    }
    assume_namespaces(&mut all, &reading);
    all.pods.sort_by(|p| &p.name);
    all.jobs.sort_by(|j| &j.name);
    warn_of_missing_pods(&mut all);
    let Reading { source, .. } = reading;
    let (settings, budget) =
        settings(all.config, &source.system_namespace, source.scale_kinds.clone(), &mut all.warnings);
    let mut managers = all.managers;
    let managed = managed_namespaces(&managers);
    let excess_managers = excess_managers(&managers);
    managers.retain(|m| reading.namespace.is_none_or(|n| n == m.namespace()));
    managers.sort_by(|a, b| (a.namespace(), a.name()).cmp(&(b.namespace(), b.name())));
    Ok(LifecycleSnapshot {
        managers,
        excess_managers,
        namespaces: all.namespaces,
        pods: all.pods,
        jobs: all.jobs,
        settings,
        budget,
        managed,
        warnings: all.warnings,
    })
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
            report(all, place, &object);
            let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or("without a name");
            all.warnings.push(format!(
                "{place}: ClusterNamespaceManager {name} is checked and left out: what cluster managers do is in the \
                 ManagedNamespace of each namespace, for a new one while its mode is Observe"
            ));
        }
        // They decide nothing about managers of namespaces.
        ("coppice.dev/v1alpha1", "ManagedNamespace") => report(all, place, &object),
        // What is gone changes no plan; only the operator writes these.
        ("coppice.dev/v1alpha1", "DeletedNamespace") => {}
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
        let name = manager.namespace();
        if all.namespaces.contains_key(name) {
            continue;
        }
        all.warnings.push(format!(
            "namespace {name} is not in the files: assumed to be created at {created}, without labels"
        ));
        let mut object = Namespace::default();
        object.metadata.name = Some(name.to_owned());
        let mut facts = facts::namespace(object, reading.assumed);
        let steps = &manager.status.steps;
        let announced = steps.notice.as_ref().map(|notice| &notice.uid);
        if let Some(uid) = steps.intent.as_ref().map(|intent| &intent.uid).or(announced) {
            facts.uid.clone_from(uid);
        }
        all.namespaces.insert(name.to_owned(), facts);
    }
}

fn warn_of_missing_pods(all: &mut Collected) {
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
    all.warnings.dedup();
}
