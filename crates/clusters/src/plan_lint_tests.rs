//! Each rule finds the step that breaks it. That no step breaks one, every other test shows.

use coppice_api::lint::PlanViolation::{
    self, Forbidden, HistoryChanged, NoPrecondition, NothingNew, OfAnotherGeneration, ReadyTooEarly,
    ReasonOutOfPlace, StepWithoutIntent, Unexplained,
};
use coppice_clusters_api::{ClusterSource, ProviderName};

use super::super::lint::lint;
use super::*;

/// What is found about this step.
fn found(observed: &AccessObservation, step: &AccessStep) -> Vec<PlanViolation> {
    lint(observed, step, at(5))
}

fn revoke(credential: &str) -> AccessStep {
    AccessStep::Revoke { credential: credential.to_owned() }
}

/// One whose second credential was tried out, and is to be written over the first one.
fn verified() -> AccessObservation {
    let mut observed = settled();
    observed.status = begun(&observed, Cause::Requested, at(5));
    observed.output = OutputFact::Ours(secret("u-1", "7"));
    observed.progress = issuing("u-2", IssueProgress::Verified(validity(), "of u-2".to_owned()));
    observed
}

fn write(on: Option<OutputRevision>) -> AccessStep {
    AccessStep::WriteOutput { credential: "u-2".to_owned(), validity: validity(), on }
}

#[test]
fn what_is_done_in_the_target_is_done_in_the_one_that_status_names() {
    let mut observed = settled();
    observed.status.superseded = vec!["u-0".to_owned()];
    assert_eq!(found(&observed, &revoke("u-0")), []);
    let moved = AccessObservation { target: Some(cluster("another")), ..observed.clone() };
    assert_eq!(found(&moved, &revoke("u-0")), [NoPrecondition]);
    let unknown = AccessObservation { target: None, ..observed.clone() };
    assert_eq!(found(&unknown, &revoke("u-0")), [NoPrecondition]);
    assert_eq!(found(&unknown, &AccessStep::FindAccount), [NoPrecondition]);
    // Nor is anything revoked but what is to be.
    assert_eq!(found(&observed, &revoke("u-9")), [StepWithoutIntent]);
    observed.status.superseded = vec!["u-1".to_owned()];
    assert_eq!(found(&observed, &revoke("u-1")), [StepWithoutIntent], "the Secret holds it");
    assert_eq!(found(&observed, &AccessStep::RevokeAll), [Forbidden]);
    assert_eq!(found(&observed, &AccessStep::RemoveRights), [Forbidden]);
    observed.status.namespaces = Some(Vec::new());
    assert_eq!(found(&observed, &AccessStep::ApplyRights), [StepWithoutIntent]);
}

#[test]
fn a_credential_is_that_of_the_intent_and_is_written_over_what_was_read_and_is_ours() {
    let request = AccessStep::Request { credential: "u-2".to_owned() };
    assert_eq!(found(&settled(), &request), [StepWithoutIntent]);
    assert_eq!(found(&verified(), &request), []);
    assert_eq!(found(&AccessObservation { deleting: true, ..verified() }, &request), [Forbidden]);
    assert_eq!(found(&AccessObservation { has_finalizer: false, ..verified() }, &request), [Forbidden]);
    let mut suspended = verified();
    suspended.spec.suspend = true;
    assert_eq!(found(&suspended, &request), [Forbidden]);
    let provider = Some(ProviderName { name: "p".to_owned() });
    let mut refused = verified();
    refused.spec.cluster = ClusterSource { provider, ..ClusterSource::default() };
    assert_eq!(found(&refused, &request), [Forbidden]);
    refused.permission = Permission::Allowed;
    assert_eq!(found(&refused, &request), []);

    let revision = secret("u-1", "7").revision;
    assert_eq!(found(&verified(), &write(Some(revision.clone()))), []);
    assert_eq!(found(&verified(), &write(None)), [Forbidden]);
    assert_eq!(
        found(&AccessObservation { output: OutputFact::Foreign, ..verified() }, &write(None)),
        [Forbidden]
    );
    let untried = AccessObservation { progress: Progress::RightsApplied, ..verified() };
    assert_eq!(found(&untried, &write(Some(revision))), [StepWithoutIntent]);
}

#[test]
fn what_ends_is_revoked_before_it_is_given_up_and_unknown_is_no_verdict() {
    let ends = AccessObservation { deleting: true, output: OutputFact::Absent, ..settled() };
    let remove = |skipped| AccessStep::RemoveFinalizer { skipped };
    assert_eq!(found(&ends, &remove(false)), [Forbidden]);
    assert_eq!(found(&ends, &remove(true)), [StepWithoutIntent], "nothing has failed");
    let over = AccessObservation { progress: Progress::RightsRemoved, ..ends.clone() };
    assert_eq!(found(&over, &remove(false)), []);
    assert_eq!(found(&AccessObservation { deleting: false, ..over }, &remove(false)), [Forbidden]);
    assert_eq!(found(&ends, &AccessStep::RevokeAll), [StepWithoutIntent], "since when is not said");
    let read = AccessObservation { output: OutputFact::Ours(secret("u-1", "7")), ..ends };
    assert_eq!(found(&read, &AccessStep::DeleteOutput(secret("u-1", "7").revision)), []);
    assert_eq!(found(&read, &AccessStep::DeleteOutput(secret("u-1", "8").revision)), [Forbidden]);
    assert_eq!(found(&read, &AccessStep::ReadOutput), [Forbidden], "it was read");
    assert_eq!(found(&settled(), &AccessStep::TakeRights), [Forbidden]);
    assert_eq!(found(&settled(), &AccessStep::AddFinalizer), [Forbidden]);
}

/// What is found where this status is saved.
fn saving(observed: &AccessObservation, change: impl FnOnce(&mut ClusterAccessStatus)) -> Vec<PlanViolation> {
    let mut status = observed.status.clone();
    change(&mut status);
    found(observed, &AccessStep::SaveStatus(Box::new(status)))
}

#[test]
fn a_status_says_something_new_that_is_so_and_of_the_spec_that_there_is() {
    let observed = settled();
    assert_eq!(saving(&observed, |_| {}), [NothingNew]);
    assert_eq!(saving(&observed, |status| status.rotated = Some("now".to_owned())), []);
    assert_eq!(saving(&observed, |status| status.observed_generation = Some(2)), [OfAnotherGeneration]);
    assert_eq!(saving(&observed, |status| status.output = None), [ReadyTooEarly]);
    let odd = |status: &mut ClusterAccessStatus| {
        let ready = status.conditions.iter_mut().find(|condition| condition.type_ == READY);
        "Reconciled".clone_into(&mut ready.unwrap().reason);
    };
    assert_eq!(saving(&observed, odd), [ReasonOutOfPlace]);
    let silent = |status: &mut ClusterAccessStatus| {
        let failed = failed(&observed, Reason::TargetUnreachable, "", at(5));
        status.last_error = failed.last_error;
    };
    assert_eq!(saving(&observed, silent), [ReasonOutOfPlace]);
}

#[test]
fn a_status_forgets_nothing_that_may_be_valid_and_counts_what_is_begun() {
    let mut observed = settled();
    observed.status.superseded = vec!["u-0".to_owned()];
    assert_eq!(saving(&observed, |status| status.superseded.clear()), [HistoryChanged]);
    assert_eq!(saving(&observed, |status| status.target = None), [HistoryChanged]);
    let replaced = |status: &mut ClusterAccessStatus| status.credential = Some("u-2".to_owned());
    assert_eq!(saving(&observed, replaced), [HistoryChanged]);
    let superseded = |status: &mut ClusterAccessStatus| {
        replaced(status);
        status.superseded.push("u-1".to_owned());
    };
    assert_eq!(saving(&observed, superseded), []);
    let intent = begun(&observed, Cause::Requested, at(5)).intent;
    let uncounted = |status: &mut ClusterAccessStatus| status.intent.clone_from(&intent);
    assert_eq!(saving(&observed, uncounted), [Unexplained]);
    let counted = |status: &mut ClusterAccessStatus| {
        uncounted(status);
        status.sequence += 1;
    };
    assert_eq!(saving(&observed, counted), []);
}
