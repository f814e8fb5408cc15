//! An entry of that system's settings as a cluster manager.

use coppice_api::cluster_manager::{ClusterNamespaceManagerSpec, Mode};
use coppice_lifecycle::cluster::ValidClusterManager;
use coppice_quantity::Duration;
use serde::Serialize;
use serde_json::{Value, json};

use super::entries::{ActionEntry, Block, CollectEntry};
use super::problems::NotWritten;
use crate::validate;

/// The channel that the managers name.
pub(super) const CHANNEL: &str = "slack";
/// How long before a deletion its owner is notified, who is notified of it afterwards there.
pub(super) const NOTICE: Duration = Duration::from_secs(300);
/// There, one look that finds nothing failing is enough: the least here.
const RECOVERY: &str = "1s";
/// A failure budget that is never spent: there is none there.
const NEVER: &str = "7d";

/// What all managers of an import have in common.
pub(super) struct Common<'a> {
    /// Namespaces that are never selected.
    pub(super) exclude: &'a [String],
    /// What is no failure.
    pub(super) ignore: Vec<Value>,
    /// Whether owners are notified.
    pub(super) notify: bool,
    /// Whether that is left out for the time being: then everything else is as with it.
    pub(super) without_notify: bool,
    /// Whether pipelines are looked up there.
    pub(super) gitlab: bool,
}

/// A cluster manager, ready to be written.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) name: String,
    /// Which entries it comes from, and what there is to know about it: lines of a comment.
    pub(super) comment: Vec<String>,
    pub(super) notifies: bool,
    spec: ClusterNamespaceManagerSpec,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Object<'a> {
    api_version: &'static str,
    kind: &'static str,
    metadata: Metadata<'a>,
    spec: &'a ClusterNamespaceManagerSpec,
}

#[derive(Serialize)]
struct Metadata<'a> {
    name: &'a str,
}

/// What a manager compares namespaces by, to find which one supersedes which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    Nothing,
    MergeRequest,
    Branch,
}

/// The managers for an entry and what the action controller does to its namespaces: one, or two where namespaces supersede each
/// other, because namespaces of merge requests and of branches are not compared with each other there.
pub(super) fn managers(
    collect: &CollectEntry,
    action: Option<&ActionEntry>,
    priority: usize,
    common: &Common<'_>,
) -> Result<Vec<Written>, NotWritten> {
    let lines: &[Line] =
        if collect.superseded { &[Line::MergeRequest, Line::Branch] } else { &[Line::Nothing] };
    lines.iter().map(|line| manager(collect, action, priority, common, *line)).collect()
}

fn manager(
    collect: &CollectEntry,
    action: Option<&ActionEntry>,
    priority: usize,
    common: &Common<'_>,
    line: Line,
) -> Result<Written, NotWritten> {
    let labelled = |operator: &str| json!([{ "key": "cicd.skao.int/mrId", "operator": operator }]);
    let (suffix, requirement) = match line {
        Line::Nothing => ("", Value::Null),
        Line::MergeRequest => ("-merge-requests", labelled("Exists")),
        Line::Branch => ("-branches", labelled("DoesNotExist")),
    };
    let notify = action.filter(|_| common.notify).and_then(|action| notify(collect, action));
    let policies = action.map(|action| policies(collect, action, common.gitlab, notify.is_some()));
    let mut spec = json!({
        "mode": "Observe",
        "priority": priority,
        "selector": collect.matcher.selector(common.exclude, requirement),
        "health": {
            "settlingPeriod": collect.settling,
            "gracePeriod": collect.grace,
            "recoveryPeriod": RECOVERY,
            "failureBudget": { "window": NEVER, "max": NEVER },
            "ignore": common.ignore,
        },
        "owner": {
            "annotations": [{ "key": "cicd.skao.int/notificationAddress", "format": "SKA" }],
            "labels": ["cicd.skao.int/author", "cicd.skao.int/team"],
        },
        "policies": policies.unwrap_or_default(),
    });
    if let Some(ttl) = collect.ttl {
        spec["ttl"] = json!({ "after": ttl });
    }
    let notifies = notify.is_some() && !common.without_notify;
    if let Some(notify) = notify {
        spec["notify"] = if notifies { notify } else { Value::Null };
        spec["identity"] =
            json!({ "project": "cicd.skao.int/projectId", "links": { "job": "cicd.skao.int/jobUrl" } });
    }
    let by = match line {
        Line::Nothing => None,
        Line::MergeRequest => Some(("mergeRequest", "cicd.skao.int/mrId", "MergeRequest")),
        Line::Branch => Some(("branch", "cicd.skao.int/branch", "Branch")),
    };
    if let Some((key, label, by)) = by {
        let identity = &mut spec["identity"];
        identity["project"] = "cicd.skao.int/projectId".into();
        identity["job"] = "cicd.skao.int/job".into();
        identity[key] = label.into();
        // The numbers of these, and not the creation, say which namespace is the later one.
        identity["pipeline"] = "cicd.skao.int/pipelineId".into();
        identity["run"] = "cicd.skao.int/jobId".into();
        spec["supersede"] = json!({ "by": [by], "waitUntilReady": true });
    }
    let name = format!("{}{suffix}", collect.matcher.title());
    let origin = match action {
        Some(action) => format!("{}, {}", collect.path, action.path),
        None => collect.path.clone(),
    };
    Ok(Written { spec: accepted(&name, spec)?, name, comment: vec![origin], notifies })
}

/// What owners are notified of; none if they are of nothing.
fn notify(collect: &CollectEntry, action: &ActionEntry) -> Option<Value> {
    let ActionEntry { stale, failed, failing, unstable, superseded, .. } = action;
    let deleting = [(stale, collect.ttl.is_some()), (failed, true), (superseded, collect.superseded)];
    let deleting = || deleting.iter().filter(|(block, possible)| *possible && block.delete);
    let notifies = deleting().any(|(block, _)| block.notify_on_delete);
    let on = [
        ("Unstable", unstable.notify_on_status),
        ("Failing", failing.notify_on_status),
        ("Superseded", collect.superseded && superseded.notify_on_status),
        // Whatever it is deleted for: that is not said for each status.
        ("Deleted", notifies && deleting().all(|(block, _)| block.notify_on_delete)),
    ];
    let on: Vec<&str> = on.into_iter().filter(|(_, wanted)| *wanted).map(|(status, _)| status).collect();
    // Anyone who cannot be notified keeps nothing alive there.
    (notifies || !on.is_empty()).then(
        || json!({ "channels": [CHANNEL], "on": on, "undelivered": { "after": "30m", "then": "Proceed" } }),
    )
}

/// The statuses in which a namespace stays indefinitely there, whatever its ttl and its health: those that nothing follows, where nothing is
/// deleted for them. Here the ttl and the health go on.
pub(super) fn kept_for_ever(collect: &CollectEntry, action: &ActionEntry, gitlab: bool) -> Vec<&'static str> {
    let all = [
        ("cancelled", collect.cancelled && gitlab && !action.cancelled.delete),
        ("superseded", collect.superseded && !action.superseded.delete),
    ];
    all.into_iter().filter(|(_, kept)| *kept).map(|(status, _)| status).collect()
}

fn policies(collect: &CollectEntry, action: &ActionEntry, gitlab: bool, notifies: bool) -> Vec<Value> {
    // By them a namespace would go that stays there: which of them it is, is not known here.
    let mode = (!kept_for_ever(collect, action, gitlab).is_empty()).then_some("Observe");
    let of = |phase: &str, block: &Block, possible: bool| {
        let notice = if notifies && block.notify_on_delete { NOTICE } else { Duration::ZERO };
        (possible && block.delete).then(|| {
            json!({
                "name": format!("delete the {}", phase.to_lowercase()),
                "mode": mode,
                "when": { "phase": { "in": [phase] } },
                "then": { "delete": { "notice": notice } },
            })
        })
    };
    let all = [
        of("Stale", &action.stale, collect.ttl.is_some()),
        of("Failed", &action.failed, true),
        of("Superseded", &action.superseded, collect.superseded),
    ];
    all.into_iter().flatten().collect()
}

/// The spec, if the API and the operator accept it.
fn accepted(name: &str, spec: Value) -> Result<ClusterNamespaceManagerSpec, NotWritten> {
    let read: ClusterNamespaceManagerSpec = serde_json::from_value(spec)?;
    let problems = validate::check(&serde_json::to_value(object(name, &read))?);
    if !problems.is_empty() {
        return Err(NotWritten::Refused(problems));
    }
    ValidClusterManager::try_from(read.clone())?;
    Ok(read)
}

fn object<'a>(name: &'a str, spec: &'a ClusterNamespaceManagerSpec) -> Object<'a> {
    Object {
        api_version: "coppice.dev/v1alpha1",
        kind: "ClusterNamespaceManager",
        metadata: Metadata { name },
        spec,
    }
}

impl Written {
    /// Whether it deletes anything once it enforces.
    pub(super) fn deletes(&self) -> bool {
        self.spec.policies.iter().any(|policy| policy.mode != Some(Mode::Observe))
    }

    /// Whether it has a policy.
    pub(super) fn has_policies(&self) -> bool {
        !self.spec.policies.is_empty()
    }

    /// Lets it come before managers of lower priority that enforce.
    pub(super) fn enforce(&mut self) {
        self.spec.mode = Mode::Enforce;
    }

    /// The object as YAML.
    pub(super) fn yaml(&self) -> anyhow::Result<String> {
        crate::yaml::to_string(&object(&self.name, &self.spec))
    }
}
