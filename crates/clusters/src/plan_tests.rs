use coppice_api::condition::{self, READY};
use coppice_clusters_api::cluster_access::{REACHABLE, WRITTEN};
use coppice_clusters_api::{AccessPhase, ClusterAccessSpec, LastError};
use jiff::SignedDuration;

use super::*;
use crate::status::adopted;

/// A spec with every default.
pub(crate) fn spec() -> ClusterAccessSpec {
    serde_json::from_value(serde_json::json!({
        "cluster": {"kubeconfigSecret": {"name": "target"}},
        "rights": {"bind": {"clusterRole": "view", "namespaces": ["shop"]}},
        "output": {"secret": "out"},
    }))
    .unwrap()
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn new() -> Observed {
    Observed {
        uid: "u".to_owned(),
        generation: 1,
        deleting: false,
        has_finalizer: true,
        spec: spec(),
        status: ClusterAccessStatus::default(),
        output: OutputFact::Watched(None),
        progress: Progress::Nothing,
    }
}

fn validity() -> Validity {
    Validity { not_before: at(0), not_after: at(86_400) }
}

fn secret(credential: &str, revision: &str) -> OutputSecret {
    OutputSecret {
        revision: OutputRevision {
            uid: "s".to_owned(),
            resource_version: revision.to_owned(),
            sha256: format!("of {credential}"),
        },
        credential: Some(credential.to_owned()),
        validity: Some(validity()),
    }
}

fn issuing(credential: &str, progress: IssueProgress) -> Progress {
    Progress::Issuing(credential.to_owned(), progress)
}

fn saved(step: Step) -> ClusterAccessStatus {
    let Step::SaveStatus(status) = step else { panic!("{step:?}") };
    *status
}

/// One that has its first credential, and nothing to do.
fn settled() -> Observed {
    let mut observed = new();
    let status = begun(&observed, Cause::First, at(0));
    let intent = status.intent.clone().unwrap();
    observed.status = status;
    observed.status = adopted(&observed, &intent, (&secret("u-1", "7"), validity()), true, at(0));
    observed.output = OutputFact::Watched(Some(("s".to_owned(), "7".to_owned())));
    observed
}

#[test]
fn a_first_credential_is_issued_step_by_step() {
    let mut observed = new();
    observed.has_finalizer = false;
    assert_eq!(plan(&observed, at(0)), Step::AddFinalizer);
    observed.has_finalizer = true;
    assert_eq!(plan(&observed, at(0)), Step::ReadOutput);
    observed.output = OutputFact::Absent;
    observed.status = saved(plan(&observed, at(0)));
    let intent = observed.status.intent.clone().unwrap();
    assert_eq!((intent.credential.as_str(), intent.cause), ("u-1", Cause::First));
    assert_eq!(observed.status.phase, Some(AccessPhase::Pending));
    assert_eq!(plan(&observed, at(0)), Step::ApplyRights);
    observed.progress = Progress::RightsApplied;
    assert_eq!(plan(&observed, at(0)), Step::Bind { credential: "u-1".to_owned() });
    observed.progress = issuing("u-1", IssueProgress::Bound);
    assert_eq!(plan(&observed, at(0)), Step::RequestToken { credential: "u-1".to_owned() });
    observed.progress = issuing("u-1", IssueProgress::Issued(validity()));
    assert_eq!(plan(&observed, at(0)), Step::Verify { credential: "u-1".to_owned() });
    observed.progress = issuing("u-1", IssueProgress::Verified(validity(), "of u-1".to_owned()));
    let write = Step::WriteOutput { credential: "u-1".to_owned(), validity: validity(), on: None };
    assert_eq!(plan(&observed, at(0)), write);
    observed.output = OutputFact::Ours(secret("u-1", "7"));
    observed.status = saved(plan(&observed, at(0)));
    let status = &observed.status;
    assert_eq!((status.phase, status.credential.as_deref()), (Some(AccessPhase::Ready), Some("u-1")));
    assert_eq!(status.identity.as_deref(), Some("system:serviceaccount:coppice-access:coppice-u"));
    assert_eq!((status.observed_generation, &status.intent), (Some(1), &None));
    assert_eq!(plan(&observed, at(0)), Step::Wait(status.next_rotation));
}

#[test]
fn while_nothing_is_due_there_is_no_request() {
    let observed = settled();
    let next = observed.status.next_rotation.unwrap();
    assert!(next <= at(51_840) && next >= at(46_656), "{next}");
    assert_eq!(plan(&observed, at(1)), Step::Wait(Some(next)));
    let before = next - SignedDuration::from_secs(1);
    assert_eq!(plan(&observed, before), Step::Wait(Some(next)));
    let status = saved(plan(&observed, next));
    let intent = status.intent.unwrap();
    assert_eq!((intent.credential.as_str(), intent.cause), ("u-2", Cause::Due));
    assert_eq!((status.phase, status.credential.as_deref()), (Some(AccessPhase::Rotating), Some("u-1")));
}

#[test]
fn the_one_before_is_revoked_when_status_names_the_new_one() {
    let mut observed = settled();
    observed.spec.rotate = Some("now".to_owned());
    observed.status = saved(plan(&observed, at(5)));
    assert_eq!(observed.status.intent.as_ref().map(|intent| intent.cause), Some(Cause::Requested));
    // A crash after the write of the Secret: what it holds is tried out first.
    observed.output = OutputFact::Ours(secret("u-2", "8"));
    assert_eq!(plan(&observed, at(5)), Step::VerifyWritten { credential: "u-2".to_owned() });
    observed.progress = issuing("u-2", IssueProgress::Proven);
    observed.status = saved(plan(&observed, at(5)));
    assert_eq!(observed.status.superseded, ["u-1"]);
    assert_eq!(observed.status.rotated.as_deref(), Some("now"));
    assert_eq!(plan(&observed, at(5)), Step::Revoke { credential: "u-1".to_owned() });
    observed.status = crate::revoked(&observed, "u-1", at(6));
    assert!(matches!(plan(&observed, at(6)), Step::Wait(Some(_))));
}

#[test]
fn what_the_secret_holds_of_a_crash_and_is_not_valid_is_issued_again() {
    let mut observed = settled();
    observed.spec.rotate = Some("now".to_owned());
    observed.status = saved(plan(&observed, at(5)));
    observed.output = OutputFact::Ours(secret("u-2", "8"));
    observed.progress = issuing("u-2", IssueProgress::Disproven);
    assert_eq!(plan(&observed, at(5)), Step::ApplyRights);
    // Another value for the same credential, such as a late write: it is written over, on its revision.
    observed.progress = Progress::RightsApplied;
    assert_eq!(plan(&observed, at(5)), Step::Bind { credential: "u-2".to_owned() });
    observed.progress = issuing("u-2", IssueProgress::Verified(validity(), "another".to_owned()));
    let on = Some(secret("u-2", "8").revision);
    let write = Step::WriteOutput { credential: "u-2".to_owned(), validity: validity(), on };
    assert_eq!(plan(&observed, at(5)), write);
}

#[test]
fn what_was_done_for_one_credential_says_nothing_of_the_next() {
    let mut observed = settled();
    observed.progress = issuing("u-1", IssueProgress::Verified(validity(), "of u-1".to_owned()));
    observed.output = OutputFact::Ours(secret("u-1", "7"));
    observed.spec.rotate = Some("now".to_owned());
    observed.status = saved(plan(&observed, at(5)));
    assert_eq!(plan(&observed, at(5)), Step::ApplyRights);
}

#[test]
fn a_secret_that_is_not_ours_is_left_alone() {
    let mut observed = new();
    observed.output = OutputFact::Foreign;
    observed.status = saved(plan(&observed, at(0)));
    assert_eq!(observed.status.phase, Some(AccessPhase::Refused));
    assert_eq!(observed.status.intent, None);
    let ready = condition::find(&observed.status.conditions, READY).unwrap();
    assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("False", "SecretNotOurs"));
    assert_eq!(plan(&observed, at(1)), Step::Wait(Some(at(60))));
    observed.deleting = true;
    observed.status = saved(plan(&observed, at(1)));
    assert_eq!(plan(&observed, at(1)), Step::RemoveFinalizer { skipped: false });
}

#[test]
fn a_secret_that_is_gone_or_edited_is_issued_again_and_other_metadata_is_taken_note_of() {
    let mut observed = settled();
    observed.output = OutputFact::Watched(None);
    assert_eq!(plan(&observed, at(5)), Step::ReadOutput);
    observed.output = OutputFact::Absent;
    let status = saved(plan(&observed, at(5)));
    assert_eq!(status.intent.as_ref().map(|intent| intent.cause), Some(Cause::Lost));
    let of = |type_| condition::find(&status.conditions, type_).unwrap().status.clone();
    assert_eq!((of(READY), of(WRITTEN)), ("False".to_owned(), "False".to_owned()));
    let mut edited = secret("u-1", "9");
    edited.revision.sha256 = "edited".to_owned();
    observed.output = OutputFact::Ours(edited);
    assert_eq!(saved(plan(&observed, at(5))).intent.map(|intent| intent.cause), Some(Cause::Lost));
    observed.output = OutputFact::Ours(secret("u-1", "9"));
    let status = saved(plan(&observed, at(5)));
    assert_eq!((status.intent, status.output), (None, Some(secret("u-1", "9").revision)));
}

#[test]
fn while_the_target_is_away_the_old_credential_stays_and_expires_at_last() {
    let mut observed = settled();
    observed.status = failed(&observed, Reason::TargetUnreachable, "no answer", at(60_000));
    assert_eq!(observed.status.phase, Some(AccessPhase::Degraded));
    let state = |observed: &Observed, type_| {
        condition::find(&observed.status.conditions, type_).unwrap().status.clone()
    };
    assert_eq!(
        (state(&observed, READY), state(&observed, REACHABLE)),
        ("True".to_owned(), "False".to_owned())
    );
    assert_eq!(plan(&observed, at(60_001)), Step::Wait(Some(at(60_060))));
    observed.status = failed(&observed, Reason::TargetUnreachable, "no answer", at(86_390));
    assert_eq!(observed.status.last_error.as_ref().map(|error| error.attempts), Some(2));
    assert_eq!(plan(&observed, at(86_391)), Step::Wait(Some(at(86_400))));
    observed.status = saved(plan(&observed, at(86_400)));
    assert_eq!(state(&observed, READY), "False");
    // Another spec is tried at once.
    observed.generation = 2;
    assert!(saved(plan(&observed, at(86_401))).intent.is_some());
}

#[test]
fn other_rights_are_applied_without_another_credential() {
    let mut observed = settled();
    observed.generation = 2;
    assert_eq!(plan(&observed, at(5)), Step::ApplyRights);
    observed.progress = Progress::RightsApplied;
    observed.status = saved(plan(&observed, at(5)));
    assert_eq!(observed.status.observed_generation, Some(2));
    assert_eq!(observed.status.credential.as_deref(), Some("u-1"));
    assert!(matches!(plan(&observed, at(5)), Step::Wait(Some(_))));
}

#[test]
fn suspended_nothing_is_issued_and_deletion_still_revokes() {
    let mut observed = settled();
    observed.spec.suspend = true;
    assert_eq!(plan(&observed, at(80_000)), Step::Wait(Some(at(86_400))));
    let mut fresh = new();
    fresh.spec.suspend = true;
    fresh.status = saved(plan(&fresh, at(0)));
    assert_eq!(condition::find(&fresh.status.conditions, READY).unwrap().reason, "Suspended");
    assert_eq!(plan(&fresh, at(0)), Step::Wait(None));
    observed.deleting = true;
    observed.status = saved(plan(&observed, at(5)));
    assert_eq!(plan(&observed, at(5)), Step::RevokeAll);
}

#[test]
fn a_deletion_revokes_then_removes_the_rights_then_the_secret() {
    let mut observed = settled();
    observed.deleting = true;
    observed.status = saved(plan(&observed, at(5)));
    assert_eq!(
        (observed.status.phase, observed.status.revoking_since),
        (Some(AccessPhase::Revoking), Some(at(5)))
    );
    assert_eq!(plan(&observed, at(5)), Step::RevokeAll);
    observed.progress = Progress::AllRevoked;
    assert_eq!(plan(&observed, at(5)), Step::RemoveRights);
    observed.progress = Progress::RightsRemoved;
    assert_eq!(plan(&observed, at(5)), Step::ReadOutput);
    observed.output = OutputFact::Ours(secret("u-1", "7"));
    assert_eq!(plan(&observed, at(5)), Step::DeleteOutput(secret("u-1", "7").revision));
    observed.output = OutputFact::Absent;
    assert_eq!(plan(&observed, at(5)), Step::RemoveFinalizer { skipped: false });
    observed.has_finalizer = false;
    assert_eq!(plan(&observed, at(5)), Step::Wait(None));
}

#[test]
fn a_target_that_is_away_for_too_long_is_given_up() {
    let mut observed = settled();
    observed.deleting = true;
    observed.status = saved(plan(&observed, at(100)));
    observed.status = failed(&observed, Reason::TargetUnreachable, "no answer", at(100));
    assert_eq!(observed.status.phase, Some(AccessPhase::Revoking));
    assert_eq!(plan(&observed, at(101)), Step::Wait(Some(at(160))));
    let week = 7 * 86_400;
    let late = LastError { attempts: 9, at: at(week), ..observed.status.last_error.clone().unwrap() };
    observed.status.last_error = Some(late);
    assert_eq!(plan(&observed, at(week + 10)), Step::Wait(Some(at(week + 100))));
    observed.output = OutputFact::Ours(secret("u-1", "7"));
    assert_eq!(plan(&observed, at(week + 100)), Step::DeleteOutput(secret("u-1", "7").revision));
    observed.output = OutputFact::Absent;
    assert_eq!(plan(&observed, at(week + 100)), Step::RemoveFinalizer { skipped: true });
}
