//! Settings of the SKA Namespace Manager (0.3) as cluster managers.
//!
//! ```text
//! values, files, Secrets ─ input ─▶ settings of both controllers ─ entries ─▶ their entries ─ pairing ─▶ what goes with what
//!                                                                                  ─ manager ─▶ ClusterNamespaceManagers
//!                                                                                  ─ report ──▶ what is different
//! ```
//! What a selector cannot express exactly is not written: one that is too wide deletes. Where Coppice does something in its own way,
//! what is written is the variant that keeps more namespaces, and a note says so; what is not carried over is a warning. What is a
//! mistake is an error, and all of them are shown.

mod alerts;
mod duration;
mod entries;
mod input;
mod kept;
mod known;
mod manager;
mod matcher;
mod pairing;
mod pattern;
mod problems;
mod report;

use std::collections::BTreeSet;

use anyhow::Result;

use crate::files::Document;
use crate::import::{Remark, Remarks};
use entries::{ActionEntry, ActionSettings, Collect, CollectEntry};
use input::{Component, Installation};
use manager::{Common, Written};
use pairing::Paired;
use problems::{NotWritten, Problems};

/// The namespace in which the examples of that system's documentation run it. Its chart has no default of its own.
const DOCUMENTED_NAMESPACE: &str = "ska-ser-namespace-manager";

/// What is asked for besides the settings.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    /// The namespace that the system runs in, where the settings do not say it.
    pub(crate) namespace: Option<String>,
    /// Whether owners are not to be notified yet.
    pub(crate) without_notify: bool,
}

/// What an installation becomes.
pub(crate) struct ImportedInstallation {
    /// Comments at the head.
    pub(crate) head: Vec<String>,
    /// Objects as YAML, each with the lines of a comment.
    pub(crate) objects: Vec<(Vec<String>, String)>,
    pub(crate) remarks: Vec<Remark>,
}

/// Translates the settings of one installation.
pub(crate) fn import(documents: &[Document], options: &Options) -> Result<ImportedInstallation> {
    let (mut remarks, mut problems) = (Remarks::default(), Problems::default());
    let mut installation = input::read(documents, &mut remarks, &mut problems);
    installation.own_namespaces.extend(options.namespace.clone());
    let values = installation.values;
    let collect = installation.collect.as_ref();
    let collect = collect.map(|config| entries::collect(config, values, &mut remarks, &mut problems));
    let action = installation.action.as_ref();
    let action = action.map(|config| entries::action(config, values, &mut remarks, &mut problems));
    if collect.is_none() && problems.is_empty() {
        problems.add(
            "there are no settings of the collect controller, which say which namespaces are managed: give the values of the chart, or \
             the configuration files or Secrets of both controllers",
        );
    }
    problems.none()?;
    let collect = collect.unwrap_or_default();
    let written = managers(&collect, action.as_ref(), &installation, options, &mut remarks);
    report::settings(&collect, action.as_ref(), &installation, &written, options, &mut remarks);
    let mut objects = Vec::new();
    for one in &written {
        objects.push((one.comment.clone(), one.yaml()?));
    }
    let notifies = written.iter().any(|one| one.notifies);
    Ok(ImportedInstallation {
        head: if notifies { report::channel() } else { Vec::new() },
        objects,
        remarks: remarks.0,
    })
}

/// Whether owners are notified there: the token may be in a Secret that was not given.
fn notifies(action: Option<&ActionSettings>, installation: &Installation) -> bool {
    let elsewhere = installation.missing_secrets.iter().any(|(component, _)| *component == Component::Action);
    action.is_some_and(|action| action.token) || action.is_some() && elsewhere
}

/// What becomes of an entry of the collect controller.
#[derive(Default)]
struct Made<'a> {
    managers: Vec<Written>,
    /// What the action controller does to its namespaces; none if nothing.
    action: Option<&'a ActionEntry>,
}

impl Made<'_> {
    fn deletes(&self) -> bool {
        self.managers.iter().any(Written::deletes)
    }

    fn has_policies(&self) -> bool {
        self.managers.iter().any(Written::has_policies)
    }
}

/// The cluster managers, in the order of the entries. An entry that is not written is reported with the reason.
fn managers(
    collect: &Collect,
    action: Option<&ActionSettings>,
    installation: &Installation,
    options: &Options,
    remarks: &mut Remarks,
) -> Vec<Written> {
    let mut exclude: Vec<String> = installation.own_namespaces.iter().cloned().collect();
    if exclude.is_empty() {
        exclude.push(DOCUMENTED_NAMESPACE.to_owned());
    }
    let ignore = if collect.prometheus {
        let path = installation.collect.as_ref().map_or("", |config| config.path);
        let path = if path.is_empty() { String::new() } else { format!("{path}.") };
        alerts::ignored(&collect.ignored_alerts, &format!("{path}prometheus.whitelisted_alerts"), remarks)
    } else {
        alerts::of_workloads()
    };
    let common = Common {
        exclude: &exclude,
        ignore,
        notify: notifies(action, installation),
        without_notify: options.without_notify,
        gitlab: collect.gitlab,
    };
    let mut order: Vec<usize> = (0..collect.entries.len()).collect();
    order.sort_by_key(|at| collect.entries.get(*at).map(|entry| entry.matcher.rank()));
    let (mut made, mut failed) = (Vec::new(), Vec::new());
    for (at, entry) in collect.entries.iter().enumerate() {
        let place = order.iter().position(|other| *other == at).unwrap_or_default();
        // One manager needs no priority.
        let priority = if order.len() > 1 { 10 * (order.len() - place) } else { 0 };
        let (one, why) = match entry_managers(entry, collect, action, priority, &common, remarks) {
            Ok(one) => (one, None),
            Err(why) => (Made::default(), Some(why)),
        };
        made.push(one);
        failed.push(why);
    }
    pairing::withhold(&collect.entries, &mut failed);
    for ((entry, one), why) in collect.entries.iter().zip(&mut made).zip(failed) {
        let Some(why) = why else { continue };
        one.managers.clear();
        // What of its matcher cannot be expressed has been reported with its place.
        if entry.matcher.exact {
            remarks.differs(format!("{}: nothing is written for this entry: {why}", entry.path));
        }
    }
    keep_others_away(&collect.entries, &mut made, remarks);
    for (entry, one) in collect.entries.iter().zip(&made).filter(|(_, one)| !one.managers.is_empty()) {
        report::entry(entry, one.action, action.is_some(), collect.gitlab, remarks);
    }
    let mut written = made.into_iter().flat_map(|one| one.managers).collect::<Vec<_>>();
    name_apart(&mut written);
    written
}

/// What the managers are that an entry becomes.
fn entry_managers<'a>(
    entry: &CollectEntry,
    collect: &Collect,
    action: Option<&'a ActionSettings>,
    priority: usize,
    common: &Common<'_>,
    remarks: &mut Remarks,
) -> Result<Made<'a>, NotWritten> {
    if entry.matcher.is_empty() {
        remarks.note(format!("{}: it matches no namespace, and is left out", entry.path));
        return Ok(Made::default());
    }
    if !entry.matcher.exact {
        return Err(NotWritten::Inexpressible);
    }
    if let Some(winner) = pairing::winner(entry, &collect.entries) {
        remarks
            .note(format!("{}: {} wins all of its namespaces, and it is left out", entry.path, winner.path));
        return Ok(Made::default());
    }
    if let Some(why) = pairing::unclear_rank(entry, &collect.entries) {
        return Err(why);
    }
    let paired = match action.map(|action| pairing::paired(entry, &collect.entries, action)) {
        None | Some(Paired::Nothing) => None,
        Some(Paired::With(action)) => Some(action),
        Some(Paired::Unclear(why)) => return Err(why),
    };
    Ok(Made { managers: manager::managers(entry, paired, priority, common)?, action: paired })
}

/// A manager that deletes nothing has to keep its namespaces from those of lower priority. These come before it as soon as they
/// enforce and it does not; and nobody would think of letting one enforce that does nothing.
fn keep_others_away(entries: &[CollectEntry], made: &mut [Made<'_>], remarks: &mut Remarks) {
    // Also those whose policies observe, until somebody takes that out.
    let with_policies = entries.iter().zip(made.iter()).filter(|(_, one)| one.has_policies());
    let with_policies: Vec<&CollectEntry> = with_policies.map(|(entry, _)| entry).collect();
    for (entry, one) in entries.iter().zip(made.iter_mut()) {
        if one.managers.is_empty() || one.deletes() {
            continue;
        }
        let below = with_policies
            .iter()
            .filter(|other| entry.matcher.overlaps(&other.matcher) && entry.matcher.outranks(&other.matcher));
        let below: Vec<&str> = below.map(|other| other.path.as_str()).collect();
        for manager in &mut one.managers {
            manager.comment.push(
                match (manager.has_policies(), below.is_empty()) {
                    (true, _) => {
                        "Its policies observe, so that what stays there stays here: see the warning about it."
                    }
                    (false, true) => "It deletes nothing, as there.",
                    (false, false) => "It deletes nothing, as there, and enforces just that.",
                }
                .to_owned(),
            );
            if !below.is_empty() {
                manager.comment.push(format!(
                    "mode: Enforce keeps its namespaces from what {} becomes: of managers that select a namespace, those that enforce \
                     come first.",
                    below.join(", ")
                ));
                manager.enforce();
            }
        }
        if !below.is_empty() {
            remarks.note(format!(
                "{}: what it becomes deletes nothing, and has mode: Enforce from the beginning; otherwise what {} becomes would govern its \
                 namespaces, and delete them, as soon as you let that enforce",
                entry.path,
                below.join(", ")
            ));
        }
    }
}

/// Names are unique in a cluster.
fn name_apart(written: &mut [Written]) {
    let mut taken = BTreeSet::new();
    for one in written {
        // Among one more candidates than there are names, one is free.
        let others = (2..=taken.len() + 2).map(|n| format!("{}-{n}", one.name));
        let free = std::iter::once(one.name.clone()).chain(others).find(|name| !taken.contains(name));
        one.name = free.unwrap_or_default();
        taken.insert(one.name.clone());
    }
}
