//! Do cluster managers work, and the records of the namespaces that they govern?

use coppice_api::Reason;
use coppice_api::condition::{self, APPROVED, READY};
use kube::Client;

use super::{Finding, MAX_NAMED, State};
use crate::facts::{ClusterManager, NamespaceRecord};
use crate::live;
use crate::print::count;

/// One finding for each cluster manager, and one for all records.
pub(super) async fn check(client: &Client) -> Vec<Finding> {
    let (managers, records) =
        futures::join!(live::cluster_managers(client), live::records(client, None, None));
    let managers = match managers {
        Ok(managers) => managers,
        Err(error) => return vec![Finding::unreadable("ClusterNamespaceManagers", &error)],
    };
    if managers.is_empty() {
        return vec![Finding::new(State::Ok, "ClusterNamespaceManagers", "there is none")];
    }
    let mut findings: Vec<_> = managers.iter().map(manager).collect();
    findings.push(match records {
        Ok(all) => self::records(&all),
        Err(error) => Finding::unreadable("ManagedNamespaces", &error),
    });
    findings
}

fn manager(manager: &ClusterManager) -> Finding {
    let about = format!("ClusterNamespaceManager {}", manager.name());
    let enforces = match &manager.spec {
        Ok(spec) => spec.enforces(),
        Err(why) => {
            let message =
                format!("its spec cannot be understood, so that no cluster manager does anything: {why}");
            return Finding::new(State::Problem, about, message).advise("correct or delete it");
        }
    };
    if manager.meta.generation.is_some() && manager.status.observed_generation != manager.meta.generation {
        let message = "the operator has not read the last change of spec";
        return Finding::new(State::Problem, about, message)
            .advise("ask again in a moment; if it stays so, the operator's log says why");
    }
    let status = &manager.status;
    let mode = if enforces { "enforces" } else { "observes" };
    let governed = usize::try_from(status.namespaces.governed).unwrap_or(usize::MAX);
    let message = format!("{mode}, governs {}, {} due", count(governed, "namespace"), status.enforce.due);
    let mut finding = Finding::new(State::Ok, about, message);
    for condition in status.conditions.iter().filter(|condition| condition.status != "True") {
        if condition.type_ == APPROVED && !enforces {
            // Nothing waits for it.
            continue;
        }
        let unknown = condition.status == "Unknown" && finding.state == State::Ok;
        finding.state = if unknown { State::Unknown } else { State::Problem };
        let (type_, status, message) = (&condition.type_, &condition.status, &condition.message);
        finding.details.push(format!("{type_} is {status}: {message} [{}]", condition.reason));
    }
    finding
}

fn records(all: &[NamespaceRecord]) -> Finding {
    let about = "ManagedNamespaces";
    let bad: Vec<_> = all
        .iter()
        .filter_map(|record| Some((record, condition::find(&record.status.conditions, READY)?)))
        .filter(|(_, ready)| ready.status != "True")
        .collect();
    if bad.is_empty() {
        return Finding::new(
            State::Ok,
            about,
            format!("{}, none of them not Ready", count(all.len(), "record")),
        );
    }
    let state =
        if bad.iter().all(|(_, ready)| ready.status == "Unknown") { State::Unknown } else { State::Problem };
    let message = format!("{} of {} are not Ready", bad.len(), count(all.len(), "record"));
    let mut finding = Finding::new(state, about, message);
    for (record, ready) in bad.iter().take(MAX_NAMED) {
        finding.details.push(format!(
            "namespace {}: {} [{}]",
            record.namespace(),
            ready.message,
            ready.reason
        ));
    }
    if bad.len() > MAX_NAMED {
        finding.details.push(format!("and {} more", bad.len() - MAX_NAMED));
    }
    if bad.iter().any(|(_, ready)| ready.reason == Reason::RecordTerminating.as_str()) {
        finding = finding.advise("`kubectl get mns -A -o yaml` shows the finalizers that keep records");
    }
    finding.advise("`coppice explain NAMESPACE` tells more")
}
