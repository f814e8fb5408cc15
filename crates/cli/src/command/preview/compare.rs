//! The cluster with and without the cluster managers of some files.

use std::collections::BTreeMap;

use anyhow::{Result, anyhow};
use coppice_api::cluster_manager::Mode;
use coppice_api::steps::Action;
use coppice_lifecycle::cluster::approval::ApprovalState;
use coppice_lifecycle::cluster::census::{Census, Counted, census_of_one};
use coppice_lifecycle::governor;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use crate::facts::ClusterManager;
use crate::lifecycle::LifecycleSnapshot;

const HOUR: SignedDuration = SignedDuration::from_hours(1);

/// What would change.
pub(super) struct Preview {
    pub(super) managers: Vec<ManagerPreview>,
    pub(super) becomes_due: Vec<NamespaceDue>,
    pub(super) becomes_enforced: Vec<NamespaceDue>,
}

/// One cluster manager, as it would be.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ManagerPreview {
    pub(super) manager: String,
    pub(super) mode: Mode,
    pub(super) change: SpecChange,
    /// How many namespaces its selector selects.
    pub(super) selected: usize,
    /// How many of them it governs.
    pub(super) governed: usize,
    /// Who governs the others, and how many.
    pub(super) governed_by: BTreeMap<String, usize>,
    /// What it governs and did not before.
    pub(super) won: Vec<Won>,
    /// What it governed before and does not any more.
    pub(super) lost: Vec<LostNamespace>,
    /// What is due now, by policy.
    pub(super) due: Vec<PolicyPreview>,
    /// When it acts at the earliest, or would if it enforced: settle and notice are over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) earliest: Option<Timestamp>,
    /// How many of them the files make due, and not time. More than the hourly budget need approval.
    pub(super) newly_due: u32,
    /// Whether that needs `spec.approval`, and has none that covers it: then nothing of it is done.
    pub(super) approval_needed: bool,
    /// The digest that an approval has to name.
    pub(super) policy_digest: String,
    /// How many namespaces it would delete within an hour from `earliest`, if all of them could be.
    pub(super) hourly_budget_needed: usize,
    /// How many steps an hour all managers may take together.
    pub(super) hourly_budget: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) enum SpecChange {
    /// There was none of this name.
    New,
    /// Its spec is another.
    Changed,
    /// Its spec is the same, or it is not in the files.
    Unchanged,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Won {
    pub(super) namespace: String,
    /// Who governed it before; absent if nobody did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) from: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LostNamespace {
    pub(super) namespace: String,
    /// Who governs it then; absent if nobody does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) to: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PolicyPreview {
    pub(super) policy: String,
    pub(super) enforces: bool,
    pub(super) namespaces: Vec<String>,
}

/// A namespace that is due.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NamespaceDue {
    pub(super) namespace: String,
    pub(super) manager: String,
}

/// What the cluster managers are for one namespace.
#[derive(Default)]
struct Judged {
    selected_by: Vec<String>,
    governing: Option<String>,
    /// The policies that are true.
    due: Vec<String>,
    /// What they do, and whether one of them acts.
    actions: BTreeMap<Action, bool>,
}

/// Puts the proposed cluster managers into the snapshot, and compares.
pub(super) fn compare(
    mut snapshot: LifecycleSnapshot,
    proposed: Vec<ClusterManager>,
    at: Timestamp,
) -> Result<Preview> {
    let before = judge(&snapshot, at)?;
    let changes = replace(&mut snapshot, proposed);
    snapshot.assume_failing(at);
    snapshot.count(at);
    snapshot.assume_looked_at(at);
    let after = judge(&snapshot, at)?;
    let mut preview = Preview { managers: Vec::new(), becomes_due: Vec::new(), becomes_enforced: Vec::new() };
    for (namespace, now) in &after {
        let Some(manager) = &now.governing else { continue };
        let due = || NamespaceDue { namespace: namespace.clone(), manager: manager.clone() };
        // By action: a policy may be called otherwise, and who is scaled down today is not deleted for that.
        let acted = |action: &Action| before.get(namespace).and_then(|was| was.actions.get(action)).copied();
        if now.actions.keys().any(|action| acted(action).is_none()) {
            preview.becomes_due.push(due());
        } else if now.actions.iter().any(|(action, acts)| *acts && acted(action) == Some(false)) {
            preview.becomes_enforced.push(due());
        }
    }
    let managers = snapshot.governed.managers.as_deref().unwrap_or_default();
    for manager in managers {
        let change = changes.get(manager.name()).copied();
        let one = manager_preview(&snapshot, manager, (&before, &after), at);
        // The others, where they govern other namespaces because of the files.
        preview.managers.extend(
            one.map(|one| ManagerPreview { change: change.unwrap_or(SpecChange::Unchanged), ..one })
                .filter(|one| change.is_some() || !one.won.is_empty() || !one.lost.is_empty()),
        );
    }
    Ok(preview)
}

/// Replaces cluster managers as the API server would: one of the same name keeps its uid.
fn replace(snapshot: &mut LifecycleSnapshot, proposed: Vec<ClusterManager>) -> BTreeMap<String, SpecChange> {
    let mut managers = std::mem::replace(&mut snapshot.governed.managers, Ok(Vec::new())).unwrap_or_default();
    let mut changes = BTreeMap::new();
    for mut manager in proposed {
        let change = match managers.iter().position(|known| known.name() == manager.name()) {
            None => {
                manager.meta.uid = Some(format!("preview-of-{}", manager.name()));
                manager.meta.generation = Some(1);
                SpecChange::New
            }
            Some(place) => {
                let known = managers.remove(place);
                let change =
                    if known.spec == manager.spec { SpecChange::Unchanged } else { SpecChange::Changed };
                let generation = known.meta.generation.unwrap_or_default();
                manager.meta = known.meta;
                manager.meta.generation = Some(generation + i64::from(change == SpecChange::Changed));
                change
            }
        };
        changes.insert(manager.name().to_owned(), change);
        managers.push(manager);
    }
    managers.sort_by(|a, b| a.name().cmp(b.name()));
    snapshot.governed.managers = Ok(managers);
    changes
}

/// Judges every namespace by itself.
fn judge(snapshot: &LifecycleSnapshot, at: Timestamp) -> Result<BTreeMap<String, Judged>> {
    let managers = snapshot.governed.facts().unwrap_or_default();
    let records = snapshot.judged_records(at);
    let compared = snapshot.census.as_ref().and_then(|census| census.successors.as_ref());
    let (none, mut judged) = (BTreeMap::new(), BTreeMap::new());
    for namespace in snapshot.namespaces.values() {
        let counted = Counted { managed: false, ..snapshot.counted(namespace, &records) };
        let compared = compared.unwrap_or(&none);
        let Some(counts) = census_of_one(counted, &managers, &snapshot.settings, compared, at) else {
            let why = snapshot.contest(&namespace.name).and_then(Result::err);
            return Err(anyhow!("{}", why.map_or_else(String::new, |why| why.to_string())));
        };
        judged.insert(namespace.name.clone(), judged_of(snapshot, &counts));
    }
    Ok(judged)
}

fn judged_of(snapshot: &LifecycleSnapshot, counts: &Census) -> Judged {
    let mut judged = Judged::default();
    for (name, counts) in counts.managers.iter().filter(|(_, counts)| counts.namespaces.selected > 0) {
        judged.selected_by.push(name.clone());
        if counts.namespaces.governed == 0 {
            continue;
        }
        judged.governing = Some(name.clone());
        judged.due = counts.enforce.policies.iter().map(|policy| policy.name.clone()).collect();
        let managers = snapshot.governed.managers.as_deref().unwrap_or_default();
        let spec = managers.iter().find(|manager| manager.name() == name).and_then(|m| m.spec.as_ref().ok());
        let Some(spec) = spec else { continue };
        for policy in spec.policies().iter().filter(|policy| judged.due.contains(&policy.name)) {
            *judged.actions.entry(policy.action.kind()).or_default() |= policy.enforces && !spec.suspend;
        }
    }
    judged
}

type Judgements = BTreeMap<String, Judged>;

fn manager_preview(
    snapshot: &LifecycleSnapshot,
    manager: &ClusterManager,
    (before, after): (&Judgements, &Judgements),
    at: Timestamp,
) -> Option<ManagerPreview> {
    let spec = manager.spec.as_ref().ok()?;
    let name = manager.name();
    let hourly_budget = governor::hourly_limit(&snapshot.settings.config.governor, snapshot.managed);
    let counts = snapshot.census.as_ref().and_then(|census| census.managers.get(name));
    let governs = |judged: Option<&Judged>| judged.is_some_and(|j| j.governing.as_deref() == Some(name));
    let mut one = ManagerPreview {
        manager: name.to_owned(),
        mode: spec.mode,
        change: SpecChange::Unchanged,
        selected: 0,
        governed: 0,
        governed_by: BTreeMap::new(),
        won: Vec::new(),
        lost: Vec::new(),
        due: Vec::new(),
        earliest: None,
        newly_due: counts.map_or(0, |counts| counts.enforce.newly_due),
        approval_needed: matches!(
            ApprovalState::of(spec, counts, hourly_budget, at),
            ApprovalState::Missing(_)
        ),
        policy_digest: spec.enforcing_digest().to_owned(),
        hourly_budget_needed: 0,
        hourly_budget,
    };
    let mut due: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut acts = Vec::new();
    for (namespace, now) in after {
        let was = before.get(namespace);
        one.selected += usize::from(now.selected_by.iter().any(|by| by == name));
        if governs(Some(now)) {
            one.governed += 1;
            if !governs(was) {
                let from = was.and_then(|was| was.governing.clone());
                one.won.push(Won { namespace: namespace.clone(), from });
            }
            for policy in &now.due {
                due.entry(policy).or_default().push(namespace.clone());
            }
            acts.extend(acts_at(snapshot, namespace, at));
        } else {
            if governs(was) {
                one.lost.push(LostNamespace { namespace: namespace.clone(), to: now.governing.clone() });
            }
            if let (Some(other), true) = (&now.governing, now.selected_by.iter().any(|by| by == name)) {
                *one.governed_by.entry(other.clone()).or_default() += 1;
            }
        }
    }
    one.due = spec
        .policies()
        .iter()
        .filter_map(|policy| {
            let namespaces = due.remove(policy.name.as_str())?;
            Some(PolicyPreview { policy: policy.name.clone(), enforces: policy.enforces, namespaces })
        })
        .collect();
    one.earliest = acts.iter().min().copied();
    let within = |first: &Timestamp| acts.iter().filter(|at| at.duration_since(*first) < HOUR).count();
    one.hourly_budget_needed = one.earliest.as_ref().map_or(0, within);
    Some(one)
}

/// When something is done to a namespace, or would be if its policy enforced.
fn acts_at(snapshot: &LifecycleSnapshot, namespace: &str, at: Timestamp) -> Option<Timestamp> {
    let plan = snapshot.governed_plan(namespace, at)?;
    if plan.now {
        return Some(at);
    }
    let next = plan.status.next?;
    next.action.and(next.due).map(|due| due.max(at))
}
