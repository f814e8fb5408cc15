//! What is different after an import: what people read about it on standard error and at the head of the output.

use super::entries::{ActionEntry, ActionSettings, Collect, CollectEntry};
use super::input::Installation;
use super::manager::{CHANNEL, NOTICE, Written, kept_for_ever};
use super::{DOCUMENTED_NAMESPACE, Options, notifies};
use crate::import::Remarks;

/// Reports what is different for the namespaces of an entry, and what the action controller does to them. `acts`: whether there are
/// settings of the action controller.
pub(super) fn entry(
    entry: &CollectEntry,
    action: Option<&ActionEntry>,
    acts: bool,
    gitlab: bool,
    remarks: &mut Remarks,
) {
    let Some(action) = action else {
        if acts {
            remarks.note(format!(
                "{}: no entry of the action controller is about its namespaces, so that nothing is done to them there: its manager has no \
                 policies",
                entry.path
            ));
        }
        return;
    };
    // Whatever else is written about a status that no namespace has is about nothing.
    let possible = |status: &str| match status {
        "stale" => entry.ttl.is_some(),
        "superseded" => entry.superseded,
        "cancelled" => false,
        _ => true,
    };
    for (status, meaning) in action.partial.iter().filter(|(status, _)| possible(status)) {
        remarks.note(format!(
            "{}.{status}: what it leaves out is not the default of {status} there, but {meaning}: that is carried over; write all three \
             fields if it is not meant",
            action.path
        ));
    }
    let blocks = [("stale", action.stale), ("failed", action.failed), ("superseded", action.superseded)];
    let kept: Vec<&str> = blocks
        .iter()
        .filter(|(status, block)| possible(status) && !block.delete)
        .map(|(status, _)| *status)
        .collect();
    if !kept.is_empty() {
        remarks.note(format!(
            "{}: delete is false for {}: no policy is written that deletes a namespace for that",
            action.path,
            kept.join(" and ")
        ));
    }
    stays(entry, action, gitlab, remarks);
    cancelled(entry, action, gitlab, remarks);
}

/// What is kept indefinitely there.
fn stays(entry: &CollectEntry, action: &ActionEntry, gitlab: bool, remarks: &mut Remarks) {
    let deletes = entry.ttl.is_some() && action.stale.delete
        || action.failed.delete
        || entry.superseded && action.superseded.delete;
    for status in kept_for_ever(entry, action, gitlab).into_iter().filter(|_| deletes) {
        remarks.differs(format!(
            "{}.{status}.delete: false keeps what is {status} indefinitely there, since it is never stale or failed after that; here its ttl \
             and its failures count. So that nothing of it is deleted, the policies for {} have mode: Observe, which stays when their \
             manager enforces; take that out if what is {status} may be deleted by them",
            action.path, entry.path
        ));
    }
}

/// What pipelines decide there.
fn cancelled(entry: &CollectEntry, action: &ActionEntry, gitlab: bool, remarks: &mut Remarks) {
    let block = action.cancelled;
    if !entry.cancelled || !gitlab || !block.delete && !block.notify_on_status {
        return;
    }
    let observed = !kept_for_ever(entry, action, gitlab).is_empty();
    let end = match (block.delete, entry.ttl.is_some() && action.stale.delete) {
        (false, _) => "",
        (true, true) if observed => ", and stays for as long as its policies observe",
        (true, true) => {
            ", and is deleted when its ttl is over and not at once; let the pipeline delete its namespace, or annotate it with a shorter ttl \
             (spec.ttl.fromAnnotation)"
        }
        (true, false) => {
            ", and stays, because nothing else deletes it for its age; let the pipeline delete its namespace, or give the manager a ttl"
        }
    };
    let silent = if block.notify_on_status { ", and its owner is not notified of that" } else { "" };
    remarks.differs(format!(
        "{}.checks.cancelled: pipelines are not looked up here: a namespace whose pipeline is cancelled goes on{silent}{end}",
        entry.path
    ));
}

/// Reports what of the settings is different, or has no counterpart.
pub(super) fn settings(
    collect: &Collect,
    action: Option<&ActionSettings>,
    installation: &Installation,
    written: &[Written],
    options: &Options,
    remarks: &mut Remarks,
) {
    if action.is_none() {
        remarks.differs(
            "there are no settings of the action controller, which say what is done: the managers have no policies and notify nobody; \
             give both files",
        );
    }
    secrets(installation, remarks);
    if collect.prometheus {
        remarks.differs(
            "prometheus: the health is judged by the workloads, and not by alerts: an alert of your own makes no namespace fail, and what \
             fails without an alert does; compare status.failing of the ManagedNamespaces while the managers observe",
        );
    }
    if written.is_empty() {
        return;
    }
    own_namespace(installation, remarks);
    modes(written, remarks);
    health(collect, remarks);
    superseded(collect, remarks);
    notifications(action, installation, written, options, remarks);
    remarks.note(
        "left out, because Coppice has its own: how that system runs (replicas, leader_election, metrics, heartbeat, people_api, \
         prometheus.url, gitlab); docs/from-ska.md has each setting",
    );
    if installation.api {
        remarks.note("api: there is no counterpart: metrics are at the operator's /metrics, and people are not looked up");
    }
}

/// The Secrets that were not given.
fn secrets(installation: &Installation, remarks: &mut Remarks) {
    for (component, names) in &installation.missing_secrets {
        remarks.differs(format!(
            "{}.extraConfigSecrets: that system lays files of other Secrets over these settings, and they are not here: {}; what they \
             set is not carried over: import again with them beside the values (kubectl get secrets -n NAMESPACE -o yaml), or with the \
             files that they have",
            component.key(),
            names.join(", ")
        ));
    }
}

fn own_namespace(installation: &Installation, remarks: &mut Remarks) {
    if installation.own_namespaces.is_empty() {
        remarks.differs(format!(
            "that system never deletes the namespace that it runs in, and nothing here says which that is: {DOCUMENTED_NAMESPACE} is \
             excluded, as in its documentation; if it runs in another one, import again with --namespace"
        ));
    }
}

fn modes(written: &[Written], remarks: &mut Remarks) {
    remarks.note(
        "every manager that deletes observes: nothing is deleted before you have compared it with what that system does (coppice \
         preview), stopped that system, and set mode: Enforce; then nothing is done for five minutes more (settle)",
    );
    if written.len() > 1 {
        remarks.note(
            "the higher priority governs a namespace that several managers select, as the higher score does there; but a manager that \
             enforces comes before all that observe: enforce the one with the highest priority first",
        );
    }
}

fn health(collect: &Collect, remarks: &mut Remarks) {
    remarks.note(
        "health: phases follow from what is watched, and not from looks at an interval, so that each comes up to one interval \
         (actions.check-namespace.schedule) earlier than there; a failure is over after 1s (recoveryPeriod) and the failureBudget is never \
         spent, which is closest to that system; take both out for the defaults, by which a namespace that fails again and again is \
         Failing, too",
    );
    if !collect.prometheus {
        remarks.note(
            "prometheus.enabled: false: failures of Pods, Jobs, DaemonSets and PersistentVolumeClaims, and pods that are not created, as \
             when a quota refuses them, are ignored (health.ignore), because that system looks at the pods that Deployments, StatefulSets \
             and ReplicaSets have, and at nothing else",
        );
    }
}

fn superseded(collect: &Collect, remarks: &mut Remarks) {
    let comparing = collect.entries.iter().filter(|entry| entry.superseded).count();
    if comparing == 0 {
        return;
    }
    remarks.note(
        "checks.superseded: what is later is decided by the numbers of pipeline and job (labels pipelineId and jobId), not by the creation, \
         and it has to be ready; a namespace without these labels supersedes nothing and is not superseded; namespaces of merge requests \
         and of branches are not compared, as there, and so have a manager each; add identity.environment: cicd.skao.int/environmentTier \
         if every namespace has that label",
    );
    if comparing > 1 {
        remarks.note(
            "checks.superseded: namespaces of different entries are compared there, and not here, where a manager compares those that it \
             governs",
        );
    }
}

fn notifications(
    action: Option<&ActionSettings>,
    installation: &Installation,
    written: &[Written],
    options: &Options,
    remarks: &mut Remarks,
) {
    if written.iter().any(|one| one.notifies) {
        remarks.note(format!(
            "notifier: owners are notified by the channel {CHANNEL:?}, which CoppiceConfig/coppice needs (see the comment at the head of the \
             output); where notify_on_delete is true, they are {NOTICE} before the deletion, and also after it (notify.on: Deleted) where it is true \
             for each status that is deleted",
        ));
        remarks.note(
            "notify.undelivered: a namespace whose owner has no address, or cannot be reached, is deleted half an hour later all the \
             same, as it is there at once; write then: Wait to keep it",
        );
        remarks.note(
            "while that system's action controller runs, too, owners get the messages of both, also of managers that observe: import with \
             --without-notify until you stop it, and again without that afterwards; notify alone begins nothing again",
        );
        addresses(installation, remarks);
    } else if options.without_notify && notifies(action, installation) {
        remarks.note(
            "notify is left out, as --without-notify asks for; notices are as with it, so that nothing begins again when you apply what \
             an import without it writes",
        );
    } else if action.is_some_and(|action| !action.token) {
        remarks.note(
            "notifier.token is not there, without which that system notifies nobody: no notify is written, and deletions have no notice; \
             if the token is in another Secret, give that, too",
        );
    }
}

/// Who says to whom messages go.
fn addresses(installation: &Installation, remarks: &mut Remarks) {
    let text = "owner: messages go to the address in the annotation cicd.skao.int/notificationAddress, as there. CI asks that system's API \
                for it (/api/people), which nobody answers once it is uninstalled: have CI write the address itself, in that annotation or in \
                one that you add to owner.annotations (format: Slack, or format: Email and a channel for mail, for which \
                cicd.skao.int/authorEmail serves), and name in owner.fallback who is notified where there is none";
    match installation.people {
        Some(true) => remarks.differs(text),
        Some(false) | None => remarks.note(text),
    }
}

/// The comments that say which channel the managers name.
pub(super) fn channel() -> Vec<String> {
    [
        &*format!("These managers notify owners by the channel {CHANNEL}. Add it to CoppiceConfig/coppice:"),
        "  spec:",
        "    channels:",
        &*format!("    - {{name: {CHANNEL}, slack: {{tokenFile: slack-token}}}}"),
        "and the token of the bot (notifier.token there) as the key slack-token to the Secret coppice-channels beside the operator.",
    ]
    .map(str::to_owned)
    .to_vec()
}
