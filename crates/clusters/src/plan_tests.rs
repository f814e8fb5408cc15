use coppice_api::condition::{self, READY};
use coppice_clusters_api::cluster_access::{REACHABLE, WRITTEN};
use coppice_clusters_api::{AccessPhase, ClusterAccessSpec, LastError, OutputRevision, TargetIdentity};
use jiff::SignedDuration;

use super::*;
use crate::observed::{ClusterFact, ManagedFact, Validity};
use crate::provider::GrantVerdict;
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

pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

pub(crate) fn new() -> AccessObservation {
    AccessObservation {
        uid: "u".to_owned(),
        generation: 1,
        deleting: false,
        has_finalizer: true,
        spec: spec(),
        status: ClusterAccessStatus::default(),
        kubeconfig: KubeconfigFact::Endpoint("e".to_owned()),
        managed: ManagedFact::NotNamed,
        cluster: ClusterFact::Unread,
        permission: Permission::Unread,
        grant: GrantVerdict::Settled,
        turn: Turn::Granted,
        min_forget_after: None,
        narrows: false,
        target: Some(cluster("c")),
        user_name: None,
        output: OutputFact::Watched(None),
        progress: Progress::Nothing,
    }
}

pub(crate) fn cluster(uid: &str) -> TargetIdentity {
    TargetIdentity { uid: uid.to_owned(), endpoint: "e".to_owned() }
}

pub(crate) fn validity() -> Validity {
    Validity { not_before: at(0), not_after: at(86_400) }
}

pub(crate) fn secret(credential: &str, revision: &str) -> OutputSecret {
    OutputSecret {
        revision: OutputRevision {
            uid: "s".to_owned(),
            resource_version: revision.to_owned(),
            sha256: format!("of {credential}"),
        },
        credential: Some(credential.to_owned()),
        validity: Some(validity()),
        obstacle: None,
    }
}

pub(crate) fn issuing(credential: &str, progress: IssueProgress) -> Progress {
    Progress::Issuing(credential.to_owned(), progress)
}

pub(crate) fn saved(step: AccessStep) -> ClusterAccessStatus {
    let AccessStep::SaveStatus(status) = step else { panic!("{step:?}") };
    *status
}

/// One that has its first credential, and nothing to do.
pub(crate) fn settled() -> AccessObservation {
    let mut observed = new();
    observed.status.target = Some(cluster("c"));
    observed.status = begun(&observed, Cause::First, at(0));
    let intent = observed.status.intent.clone().unwrap();
    observed.status = status::rights_applied(&observed, at(0));
    observed.status = adopted(&observed, &intent, (&secret("u-1", "7"), validity()), "e", at(0));
    observed.output = OutputFact::Watched(Some(("s".to_owned(), "7".to_owned())));
    observed
}

#[test]
fn a_first_credential_is_issued_step_by_step() {
    let mut observed = new();
    observed.has_finalizer = false;
    assert_eq!(plan(&observed, at(0)), AccessStep::AddFinalizer);
    observed.has_finalizer = true;
    assert_eq!(plan(&observed, at(0)), AccessStep::ReadOutput);
    observed.output = OutputFact::Absent;
    observed.status = saved(plan(&observed, at(0)));
    let intent = observed.status.intent.clone().unwrap();
    assert_eq!((intent.credential.as_str(), intent.cause), ("u-1", Cause::First));
    assert_eq!(observed.status.phase, Some(AccessPhase::Pending));
    // Which cluster it is, is durable before anything is done there.
    observed.target = None;
    assert_eq!(plan(&observed, at(0)), AccessStep::Identify);
    observed.target = Some(cluster("c"));
    observed.status = saved(plan(&observed, at(0)));
    assert_eq!(observed.status.target, Some(cluster("c")));
    assert_eq!(plan(&observed, at(0)), AccessStep::ApplyRights);
    observed.progress = Progress::RightsApplied;
    observed.status = saved(plan(&observed, at(0)));
    assert_eq!(observed.status.observed_generation, Some(1));
    assert_eq!(plan(&observed, at(0)), AccessStep::Request { credential: "u-1".to_owned() });
    observed.progress = issuing("u-1", IssueProgress::Requested);
    assert_eq!(plan(&observed, at(0)), AccessStep::Issue { credential: "u-1".to_owned() });
    observed.progress = issuing("u-1", IssueProgress::Issued(validity()));
    assert_eq!(plan(&observed, at(0)), AccessStep::Verify { credential: "u-1".to_owned() });
    observed.progress = issuing("u-1", IssueProgress::Verified(validity(), "of u-1".to_owned()));
    let write = AccessStep::WriteOutput { credential: "u-1".to_owned(), validity: validity(), on: None };
    assert_eq!(plan(&observed, at(0)), write);
    observed.output = OutputFact::Ours(secret("u-1", "7"));
    observed.status = saved(plan(&observed, at(0)));
    let status = &observed.status;
    assert_eq!((status.phase, status.credential.as_deref()), (Some(AccessPhase::Ready), Some("u-1")));
    assert_eq!(status.identity.as_deref(), Some("system:serviceaccount:coppice-access:coppice-u"));
    assert_eq!((status.observed_generation, &status.intent), (Some(1), &None));
    assert_eq!(plan(&observed, at(0)), AccessStep::Wait(status.next_rotation));
}

#[test]
fn while_nothing_is_due_there_is_no_request() {
    let observed = settled();
    let next = observed.status.next_rotation.unwrap();
    assert!(next <= at(51_840) && next >= at(46_656), "{next}");
    assert_eq!(plan(&observed, at(1)), AccessStep::Wait(Some(next)));
    let before = next - SignedDuration::from_secs(1);
    assert_eq!(plan(&observed, before), AccessStep::Wait(Some(next)));
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
    assert_eq!(plan(&observed, at(5)), AccessStep::VerifyWritten { credential: "u-2".to_owned() });
    observed.progress = issuing("u-2", IssueProgress::Proven("e".to_owned()));
    observed.status = saved(plan(&observed, at(5)));
    assert_eq!(observed.status.superseded, ["u-1"]);
    assert_eq!(observed.status.rotated.as_deref(), Some("now"));
    assert_eq!(plan(&observed, at(5)), AccessStep::Revoke { credential: "u-1".to_owned() });
    observed.status = crate::revoked(&observed, "u-1", at(6));
    assert!(matches!(plan(&observed, at(6)), AccessStep::Wait(Some(_))));
}

#[test]
fn what_the_secret_holds_of_a_crash_and_is_not_valid_is_issued_again() {
    let mut observed = settled();
    observed.spec.rotate = Some("now".to_owned());
    observed.status = saved(plan(&observed, at(5)));
    observed.output = OutputFact::Ours(secret("u-2", "8"));
    observed.progress = issuing("u-2", IssueProgress::Disproven);
    assert_eq!(plan(&observed, at(5)), AccessStep::ApplyRights);
    // Another value for the same credential, such as a late write: it is written over, on its revision.
    observed.progress = observed.progress.with_rights();
    assert_eq!(plan(&observed, at(5)), AccessStep::Request { credential: "u-2".to_owned() });
    observed.progress = issuing("u-2", IssueProgress::Verified(validity(), "another".to_owned()));
    let on = Some(secret("u-2", "8").revision);
    let write = AccessStep::WriteOutput { credential: "u-2".to_owned(), validity: validity(), on };
    assert_eq!(plan(&observed, at(5)), write);
}

#[test]
fn what_was_done_for_one_credential_says_nothing_of_the_next() {
    let mut observed = settled();
    observed.progress = issuing("u-1", IssueProgress::Verified(validity(), "of u-1".to_owned()));
    observed.output = OutputFact::Ours(secret("u-1", "7"));
    observed.spec.rotate = Some("now".to_owned());
    observed.status = saved(plan(&observed, at(5)));
    assert_eq!(plan(&observed, at(5)), AccessStep::ApplyRights);
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
    assert_eq!(plan(&observed, at(1)), AccessStep::Wait(Some(at(60))));
    observed.deleting = true;
    observed.status = saved(plan(&observed, at(1)));
    assert_eq!(plan(&observed, at(1)), AccessStep::RemoveFinalizer { skipped: false });
}

#[test]
fn a_secret_that_was_handed_over_is_written_in_place() {
    // It has our label, and what others have written.
    let found = OutputSecret { credential: None, validity: None, ..secret("theirs", "3") };
    let mut observed = new();
    observed.output = OutputFact::Ours(found.clone());
    observed.status = saved(plan(&observed, at(0)));
    assert_eq!(observed.status.intent.as_ref().map(|intent| intent.cause), Some(Cause::First));
    observed.status.target = Some(cluster("c"));
    observed.status.observed_generation = Some(1);
    observed.progress = issuing("u-1", IssueProgress::Verified(validity(), "of u-1".to_owned()));
    let on = Some(found.revision);
    let write = AccessStep::WriteOutput { credential: "u-1".to_owned(), validity: validity(), on };
    assert_eq!(plan(&observed, at(0)), write);
}

#[test]
fn a_secret_that_is_gone_or_edited_is_issued_again_and_other_metadata_is_taken_note_of() {
    let mut observed = settled();
    observed.output = OutputFact::Watched(None);
    assert_eq!(plan(&observed, at(5)), AccessStep::ReadOutput);
    observed.output = OutputFact::Absent;
    let status = saved(plan(&observed, at(5)));
    assert_eq!(status.intent.as_ref().map(|intent| intent.cause), Some(Cause::Lost));
    assert_eq!(status.restored.as_ref().map(|restored| restored.times), Some(1));
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
    let state = |observed: &AccessObservation, type_| {
        condition::find(&observed.status.conditions, type_).unwrap().status.clone()
    };
    assert_eq!(
        (state(&observed, READY), state(&observed, REACHABLE)),
        ("True".to_owned(), "False".to_owned())
    );
    assert_eq!(plan(&observed, at(60_001)), AccessStep::Wait(Some(at(60_060))));
    observed.status = failed(&observed, Reason::TargetUnreachable, "no answer", at(86_390));
    assert_eq!(observed.status.last_error.as_ref().map(|error| error.attempts), Some(2));
    assert_eq!(plan(&observed, at(86_391)), AccessStep::Wait(Some(at(86_400))));
    observed.status = saved(plan(&observed, at(86_400)));
    assert_eq!(state(&observed, READY), "False");
    // Another spec is tried at once.
    observed.generation = 2;
    assert_eq!(plan(&observed, at(86_401)), AccessStep::ApplyRights);
    observed.progress = Progress::RightsApplied;
    observed.status = saved(plan(&observed, at(86_401)));
    assert!(saved(plan(&observed, at(86_401))).intent.is_some());
}

#[test]
fn other_rights_are_applied_without_another_credential() {
    let mut observed = settled();
    observed.generation = 2;
    assert_eq!(plan(&observed, at(5)), AccessStep::ApplyRights);
    observed.progress = Progress::RightsApplied;
    observed.status = saved(plan(&observed, at(5)));
    assert_eq!(observed.status.observed_generation, Some(2));
    assert_eq!(observed.status.credential.as_deref(), Some("u-1"));
    assert!(matches!(plan(&observed, at(5)), AccessStep::Wait(Some(_))));
}

#[test]
fn suspended_nothing_is_issued_and_deletion_still_revokes() {
    let mut observed = settled();
    observed.spec.suspend = true;
    assert_eq!(plan(&observed, at(80_000)), AccessStep::Wait(Some(at(86_400))));
    let mut fresh = new();
    fresh.spec.suspend = true;
    fresh.status = saved(plan(&fresh, at(0)));
    assert_eq!(condition::find(&fresh.status.conditions, READY).unwrap().reason, "Suspended");
    assert_eq!(plan(&fresh, at(0)), AccessStep::Wait(None));
    observed.deleting = true;
    observed.status = saved(plan(&observed, at(5)));
    assert_eq!(plan(&observed, at(5)), AccessStep::RevokeAll);
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
    assert_eq!(plan(&observed, at(5)), AccessStep::RevokeAll);
    observed.progress = Progress::AllRevoked;
    assert_eq!(plan(&observed, at(5)), AccessStep::RemoveRights);
    observed.progress = Progress::RightsRemoved;
    assert_eq!(plan(&observed, at(5)), AccessStep::ReadOutput);
    observed.output = OutputFact::Ours(secret("u-1", "7"));
    assert_eq!(plan(&observed, at(5)), AccessStep::DeleteOutput(secret("u-1", "7").revision));
    observed.output = OutputFact::Absent;
    assert_eq!(plan(&observed, at(5)), AccessStep::RemoveFinalizer { skipped: false });
    observed.has_finalizer = false;
    assert_eq!(plan(&observed, at(5)), AccessStep::Wait(None));
}

#[test]
fn a_target_that_is_away_for_too_long_is_given_up() {
    let mut observed = settled();
    observed.deleting = true;
    observed.status = saved(plan(&observed, at(100)));
    observed.status = failed(&observed, Reason::TargetUnreachable, "no answer", at(100));
    assert_eq!(observed.status.phase, Some(AccessPhase::Revoking));
    assert_eq!(plan(&observed, at(101)), AccessStep::Wait(Some(at(160))));
    let week = 7 * 86_400;
    let late = LastError { attempts: 9, at: at(week), ..observed.status.last_error.clone().unwrap() };
    observed.status.last_error = Some(late);
    assert_eq!(plan(&observed, at(week + 10)), AccessStep::Wait(Some(at(week + 100))));
    observed.output = OutputFact::Ours(secret("u-1", "7"));
    assert_eq!(plan(&observed, at(week + 100)), AccessStep::DeleteOutput(secret("u-1", "7").revision));
    observed.output = OutputFact::Absent;
    assert_eq!(plan(&observed, at(week + 100)), AccessStep::RemoveFinalizer { skipped: true });
}

#[test]
fn nothing_is_done_or_revoked_in_another_cluster() {
    let mut observed = settled();
    observed.target = Some(cluster("another"));
    let mut steps = Vec::new();
    // To be issued.
    observed.spec.rotate = Some("now".to_owned());
    observed.status = saved(plan(&observed, at(5)));
    observed.output = OutputFact::Ours(secret("u-1", "7"));
    steps.push(plan(&observed, at(5)));
    // To be revoked.
    let mut revoking = settled();
    revoking.target = Some(cluster("another"));
    revoking.status.superseded = vec!["u-0".to_owned()];
    steps.push(plan(&revoking, at(5)));
    // With other rights.
    revoking.generation = 2;
    steps.push(plan(&revoking, at(5)));
    for step in steps {
        let status = saved(step);
        assert_eq!(status.phase, Some(AccessPhase::Refused));
        assert_eq!(status.target, Some(cluster("c")), "the one that it was issued in");
        let reachable = condition::find(&status.conditions, REACHABLE).unwrap();
        assert_eq!((reachable.status.as_str(), reachable.reason.as_str()), ("False", "TargetChanged"));
        // What the Secret holds is valid where it was issued.
        assert_eq!(condition::find(&status.conditions, READY).unwrap().status, "True");
    }
    assert_eq!(revoking.status.superseded, ["u-0"]);
}

#[test]
fn a_deletion_with_the_kubeconfig_of_another_cluster_claims_no_revocation() {
    let mut observed = settled();
    observed.deleting = true;
    observed.target = Some(cluster("another"));
    observed.status = saved(plan(&observed, at(100)));
    observed.status = saved(plan(&observed, at(100)));
    assert_eq!(observed.status.last_error.as_ref().unwrap().reason, "TargetChanged");
    let week = 7 * 86_400;
    assert!(matches!(plan(&observed, at(101)), AccessStep::Wait(Some(_))));
    observed.output = OutputFact::Absent;
    assert_eq!(plan(&observed, at(week + 100)), AccessStep::RemoveFinalizer { skipped: true });
    // With that of the cluster before it is revoked there.
    observed.target = Some(cluster("c"));
    assert_eq!(plan(&observed, at(week)), AccessStep::RevokeAll);
}

#[test]
fn where_nothing_was_done_in_a_target_nothing_has_to_be_revoked() {
    let mut observed = new();
    observed.status = begun(&observed, Cause::First, at(0));
    observed.status = failed(&observed, Reason::TargetUnreachable, "no answer", at(0));
    observed.deleting = true;
    observed.status = saved(plan(&observed, at(5)));
    observed.output = OutputFact::Absent;
    assert_eq!(plan(&observed, at(5)), AccessStep::RemoveFinalizer { skipped: false });
}

#[test]
fn another_address_of_the_same_cluster_is_written_at_once() {
    let mut observed = settled();
    observed.kubeconfig = KubeconfigFact::Unread;
    assert_eq!(plan(&observed, at(5)), AccessStep::ReadKubeconfig);
    observed.kubeconfig = KubeconfigFact::Unusable;
    assert!(matches!(plan(&observed, at(5)), AccessStep::Wait(Some(_))));
    observed.kubeconfig = KubeconfigFact::Endpoint("f".to_owned());
    let moved = TargetIdentity { uid: "c".to_owned(), endpoint: "f".to_owned() };
    observed.target = Some(moved.clone());
    observed.status = saved(plan(&observed, at(5)));
    let intent = observed.status.intent.clone().unwrap();
    assert_eq!(intent.cause, Cause::Moved);
    observed.status = adopted(&observed, &intent, (&secret("u-2", "8"), validity()), "f", at(6));
    assert_eq!(observed.status.target, Some(moved));
    observed.status = crate::revoked(&observed, "u-1", at(6));
    observed.output = OutputFact::Watched(Some(("s".to_owned(), "8".to_owned())));
    assert!(matches!(plan(&observed, at(7)), AccessStep::Wait(Some(_))));
}

/// One with narrower rights, and a credential that was superseded.
fn withdrawing() -> AccessObservation {
    let mut observed = settled();
    observed.generation = 2;
    observed.status.superseded = vec!["u-0".to_owned()];
    observed
}

#[test]
fn rights_and_revocations_wait_neither_for_suspend_nor_for_the_secret() {
    let foreign = AccessObservation { output: OutputFact::Foreign, ..withdrawing() };
    let mut immutable = secret("u-1", "9");
    immutable.obstacle = Some(Obstacle::Immutable);
    let unusable = AccessObservation { output: OutputFact::Ours(immutable), ..withdrawing() };
    let mut suspended = withdrawing();
    suspended.spec.suspend = true;
    for (mut observed, ends) in
        [(foreign, Some("SecretNotOurs")), (unusable, Some("SecretUnusable")), (suspended, None)]
    {
        assert_eq!(plan(&observed, at(5)), AccessStep::ApplyRights, "{ends:?}");
        observed.progress = Progress::RightsApplied;
        observed.status = saved(plan(&observed, at(5)));
        assert_eq!(observed.status.observed_generation, Some(2));
        assert_eq!(plan(&observed, at(5)), AccessStep::Revoke { credential: "u-0".to_owned() });
        observed.status = crate::revoked(&observed, "u-0", at(5));
        match (plan(&observed, at(5)), ends) {
            (AccessStep::SaveStatus(status), Some(reason)) => {
                assert_eq!(status.last_error.unwrap().reason, reason);
            }
            (AccessStep::Wait(_), None) => {}
            (step, _) => panic!("{ends:?}: {step:?}"),
        }
    }
    // Also while a credential is being issued that the Secret keeps from being written.
    let mut issuing = withdrawing();
    issuing.status.intent = begun(&issuing, Cause::Requested, at(5)).intent;
    issuing.output = OutputFact::Foreign;
    assert_eq!(plan(&issuing, at(5)), AccessStep::ApplyRights);
}

#[test]
fn rights_that_fail_and_revocations_that_fail_take_turns() {
    let mut observed = withdrawing();
    assert_eq!(plan(&observed, at(0)), AccessStep::ApplyRights);
    observed.status = failed(&observed, Reason::TargetRefused, "no", at(0));
    let revoke = AccessStep::Revoke { credential: "u-0".to_owned() };
    assert_eq!(plan(&observed, at(60)), revoke);
    observed.status = failed(&observed, Reason::TargetRefused, "no", at(60));
    assert_eq!(plan(&observed, at(180)), AccessStep::ApplyRights);
    // Other rights are applied at once.
    observed.generation = 3;
    assert_eq!(plan(&observed, at(61)), AccessStep::ApplyRights);
}

#[test]
fn a_secret_that_cannot_be_written_is_refused_with_what_to_do_and_made_again_when_it_is_gone() {
    for (obstacle, says) in [(Obstacle::Immutable, "is immutable"), (Obstacle::OtherType, "another type")] {
        let mut observed = settled();
        let mut unusable = secret("u-1", "9");
        unusable.obstacle = Some(obstacle);
        observed.output = OutputFact::Ours(unusable);
        observed.status = saved(plan(&observed, at(5)));
        assert_eq!(observed.status.phase, Some(AccessPhase::Refused));
        let error = observed.status.last_error.clone().unwrap();
        assert!(error.message.contains(says) && error.message.contains("delete it"), "{error:?}");
        // It holds the credential still.
        assert_eq!(condition::find(&observed.status.conditions, READY).unwrap().status, "True");
        assert_eq!(plan(&observed, at(6)), AccessStep::Wait(Some(at(65))));
        observed.output = OutputFact::Watched(None);
        assert_eq!(plan(&observed, at(7)), AccessStep::ReadOutput);
        observed.output = OutputFact::Absent;
        assert_eq!(saved(plan(&observed, at(7))).intent.map(|intent| intent.cause), Some(Cause::Lost));
    }
}

#[test]
fn a_secret_that_is_edited_again_and_again_is_written_after_a_pause() {
    let mut observed = settled();
    for times in 1..=3 {
        observed.output = OutputFact::Absent;
        observed.status = saved(plan(&observed, at(5)));
        let intent = observed.status.intent.clone().unwrap();
        let credential = intent.credential.clone();
        assert_eq!(observed.status.restored.as_ref().map(|restored| restored.times), Some(times));
        observed.status = adopted(&observed, &intent, (&secret(&credential, "8"), validity()), "e", at(5));
        observed.status.superseded.clear();
    }
    observed.status = saved(plan(&observed, at(5)));
    let error = observed.status.last_error.clone().unwrap();
    assert_eq!((error.reason.as_str(), &observed.status.intent), ("RestoredTooOften", &None));
    assert_eq!(condition::find(&observed.status.conditions, WRITTEN).unwrap().reason, "RestoredTooOften");
    assert_eq!(plan(&observed, at(6)), AccessStep::Wait(Some(at(65))));
    assert_eq!(saved(plan(&observed, at(65))).intent.map(|intent| intent.cause), Some(Cause::Lost));
}

#[test]
fn no_superseded_credential_is_forgotten_and_none_is_issued_while_there_are_too_many() {
    let mut observed = settled();
    observed.status.superseded = (0..16).map(|n| format!("old-{n}")).collect();
    observed.spec.rotate = Some("now".to_owned());
    let revoke = AccessStep::Revoke { credential: "old-0".to_owned() };
    assert_eq!(plan(&observed, at(5)), revoke);
    observed.status = failed(&observed, Reason::TargetRefused, "may not delete", at(5));
    let error = observed.status.last_error.clone().unwrap();
    assert_eq!(error.reason, "TooManySuperseded");
    assert!(
        error.message.contains("16 credentials") && error.message.contains("may not delete"),
        "{error:?}"
    );
    assert_eq!(observed.status.superseded.len(), 16);
    assert_eq!(plan(&observed, at(65)), revoke);
    observed.status = crate::revoked(&observed, "old-0", at(65));
    let status = saved(plan(&observed, at(65)));
    let intent = status.intent.clone().unwrap();
    observed.status = status;
    observed.status = adopted(&observed, &intent, (&secret("u-2", "8"), validity()), "e", at(66));
    assert_eq!(observed.status.superseded.len(), 16);
    assert_eq!(observed.status.superseded.last().map(String::as_str), Some("u-1"));
}

#[test]
fn that_the_target_is_away_is_said_also_while_too_many_wait_to_be_revoked() {
    let mut observed = settled();
    observed.status.superseded = (0..16).map(|n| format!("old-{n}")).collect();
    let failed = failed(&observed, Reason::TargetUnreachable, "no answer", at(5));
    assert_eq!(failed.last_error.as_ref().unwrap().reason, "TargetUnreachable");
    assert_eq!(condition::find(&failed.conditions, REACHABLE).unwrap().status, "False");
}

#[test]
fn a_rotation_waits_for_no_revocation_that_keeps_failing() {
    let mut observed = settled();
    observed.status.superseded = vec!["old".to_owned()];
    let due = observed.status.next_rotation.unwrap().as_second();
    observed.status = failed(&observed, Reason::TargetRefused, "may not delete", at(due - 5));
    let error = observed.status.last_error.clone().unwrap();
    assert_eq!(plan(&observed, at(due - 1)), AccessStep::Wait(Some(at(due))));
    assert!(next_attempt(&error) > at(due), "{error:?}");
    let status = saved(plan(&observed, at(due)));
    assert_eq!(status.intent.map(|intent| intent.cause), Some(Cause::Due));
    // What fails when it is due waits as everything else does.
    observed.status = failed(&observed, Reason::TargetUnreachable, "no answer", at(due));
    let next = next_attempt(observed.status.last_error.as_ref().unwrap());
    assert_eq!(plan(&observed, at(due + 1)), AccessStep::Wait(Some(next)));
}

#[test]
fn what_was_revoked_in_time_is_not_said_to_be_skipped() {
    let mut observed = settled();
    observed.deleting = true;
    observed.output = OutputFact::Absent;
    observed.status = saved(plan(&observed, at(0)));
    observed.status = failed(&observed, Reason::TargetUnreachable, "no answer", at(5));
    observed.progress = Progress::RightsRemoved;
    let week = 7 * 86_400;
    assert_eq!(plan(&observed, at(week + 1)), AccessStep::RemoveFinalizer { skipped: false });
    observed.progress = Progress::AllRevoked;
    assert_eq!(plan(&observed, at(week + 1)), AccessStep::RemoveFinalizer { skipped: true });
}

#[path = "plan_lint_tests.rs"]
mod lint;
