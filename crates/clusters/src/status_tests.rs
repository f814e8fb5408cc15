use coppice_clusters_api::ClusterAccessSpec;
use coppice_quantity::Duration;

use super::*;
use crate::plan::tests::{at, cluster, issuing, new, saved, secret, settled};
use crate::{AccessStep, Progress, plan};

/// Status, reason and message of a condition.
fn condition<'a>(status: &'a ClusterAccessStatus, type_: &str) -> (&'a str, &'a str, &'a str) {
    let found = condition::find(&status.conditions, type_).unwrap();
    (&found.status, &found.reason, &found.message)
}

/// What a crash leaves between the write of the Secret, which holds a credential until second 90,000, and that of status.
fn written(mut observed: AccessObservation) -> AccessObservation {
    let credential = observed.status.intent.clone().unwrap().credential;
    let mut written = secret(&credential, "8");
    written.validity = Some(Validity { not_before: at(5), not_after: at(90_000) });
    observed.output = OutputFact::Ours(written);
    observed
}

/// The same of the first credential.
fn first_written() -> AccessObservation {
    let mut observed = new();
    observed.status.target = Some(cluster("c"));
    observed.status = begun(&observed, Cause::First, at(0));
    observed.status = rights_applied(&observed, at(0));
    written(observed)
}

/// The same of the second one.
fn rotation_written() -> AccessObservation {
    let mut observed = settled();
    observed.status = begun(&observed, Cause::Requested, at(5));
    written(observed)
}

#[test]
fn what_a_crash_left_in_the_secret_counts_until_it_was_tried_out() {
    for mut observed in [first_written(), rotation_written()] {
        assert!(matches!(plan(&observed, at(6)), AccessStep::VerifyWritten { .. }));
        let read = observed.output.clone();
        observed.status = failed(&observed, Reason::TargetUnreachable, "no answer", at(6));
        let (ready, _, message) = condition(&observed.status, READY);
        assert_eq!(ready, "True");
        assert!(message.contains("1970-01-02T01:00:00Z; no answer"), "{message}");
        assert_eq!(condition(&observed.status, WRITTEN).0, "True");
        assert_eq!(condition(&observed.status, REACHABLE).0, "False");
        // As long as nobody reads it again.
        observed.output = OutputFact::Watched(Some(("s".to_owned(), "8".to_owned())));
        assert!(matches!(plan(&observed, at(7)), AccessStep::Wait(Some(_))));
        let later = failed(&observed, Reason::TargetUnreachable, "no answer", at(66));
        assert_eq!(condition(&later, READY).0, "True");
        let expired = failed(&observed, Reason::TargetUnreachable, "no answer", at(90_000));
        assert_eq!(condition(&expired, READY).0, "False");
        // What was tried out and is not valid does not count, nor what others wrote there.
        let credential = observed.status.intent.clone().unwrap().credential;
        observed.output = read;
        observed.progress = issuing(&credential, IssueProgress::Disproven);
        let disproven = failed(&observed, Reason::TargetRefused, "no", at(66));
        assert_eq!(condition(&disproven, READY).0, "False");
        assert_eq!(disproven.intent.unwrap().written_until, None);
        (observed.output, observed.progress) = (OutputFact::Foreign, Progress::Nothing);
        let foreign = failed(&observed, Reason::SecretNotOurs, "not ours", at(66));
        assert_eq!(condition(&foreign, READY).0, "False");
    }
}

#[test]
fn what_a_crash_left_in_the_secret_is_adopted_while_nothing_is_issued() {
    let mut observed = rotation_written();
    observed.spec.suspend = true;
    let read = observed.output.clone();
    observed.output = OutputFact::Watched(Some(("s".to_owned(), "8".to_owned())));
    assert_eq!(plan(&observed, at(6)), AccessStep::ReadOutput);
    observed.output = read;
    let disproven =
        AccessObservation { progress: issuing("u-2", IssueProgress::Disproven), ..observed.clone() };
    assert_eq!(saved(plan(&disproven, at(6))).last_error.unwrap().reason, "VerificationFailed");
    assert_eq!(plan(&observed, at(6)), AccessStep::VerifyWritten { credential: "u-2".to_owned() });
    observed.progress = issuing("u-2", IssueProgress::Proven("e".to_owned()));
    observed.status = saved(plan(&observed, at(6)));
    assert_eq!(
        (observed.status.credential.as_deref(), observed.status.not_after),
        (Some("u-2"), Some(at(90_000)))
    );
    // Without anything of it in the Secret nothing is read or tried.
    let mut observed = settled();
    observed.status = begun(&observed, Cause::Requested, at(5));
    observed.spec.suspend = true;
    assert!(matches!(plan(&observed, at(6)), AccessStep::Wait(_)));
}

#[test]
fn a_revocation_that_fails_does_not_hide_that_the_secret_is_not_ours() {
    let mut observed = settled();
    observed.status.superseded = vec!["u-0".to_owned()];
    observed.output = OutputFact::Foreign;
    let revoke = AccessStep::Revoke { credential: "u-0".to_owned() };
    assert_eq!(plan(&observed, at(5)), revoke);
    observed.status = failed(&observed, Reason::TargetUnreachable, "no answer", at(5));
    let status = &observed.status;
    assert_eq!(status.phase, Some(AccessPhase::Refused));
    let error = status.last_error.clone().unwrap();
    assert_eq!((error.reason.as_str(), error.attempts), ("SecretNotOurs", 1));
    assert_eq!(error.other.unwrap().reason, "TargetUnreachable");
    let (ready, reason, message) = condition(status, READY);
    assert_eq!((ready, reason), ("False", "SecretNotOurs"));
    assert!(message.contains("is left as it is") && message.contains("no answer"), "{message}");
    assert_eq!(condition(status, WRITTEN).1, "SecretNotOurs");
    assert_eq!(condition(status, REACHABLE), ("False", "TargetUnreachable", "no answer"));
    // At the next attempt it is looked at again, and it is said no longer than it is so.
    observed.output = OutputFact::Watched(None);
    assert_eq!(plan(&observed, at(65)), AccessStep::ReadOutput);
    observed.output = OutputFact::Foreign;
    assert_eq!(plan(&observed, at(65)), revoke);
    let again = failed(&observed, Reason::TargetRefused, "no", at(65));
    assert_eq!(again.last_error.unwrap().reason, "SecretNotOurs");
    observed.output = OutputFact::Absent;
    let gone = failed(&observed, Reason::TargetRefused, "no", at(65)).last_error.unwrap();
    assert_eq!((gone.reason.as_str(), gone.other), ("TargetRefused", None));
}

#[test]
fn what_is_done_here_alone_waits_for_no_place_in_the_target() {
    let waits = |observed: &AccessObservation, now: Timestamp| plan(observed, now).waits_for_place(observed);
    let mut observed = AccessObservation { target: None, ..new() };
    observed.has_finalizer = false;
    assert_eq!(plan(&observed, at(0)), AccessStep::AddFinalizer);
    assert!(!waits(&observed, at(0)));
    observed.has_finalizer = true;
    assert!(!waits(&observed, at(0)), "whether it is ours is said before anything is issued");
    observed.output = OutputFact::Foreign;
    assert!(matches!(plan(&observed, at(0)), AccessStep::SaveStatus(_)));
    assert!(!waits(&observed, at(0)));
    observed.output = OutputFact::Absent;
    observed.status = saved(plan(&observed, at(0)));
    assert_eq!(plan(&observed, at(0)), AccessStep::Identify);
    assert!(waits(&observed, at(0)));
    // A credential is to be issued: the Secret is read when there is a place.
    let mut observed = AccessObservation { target: None, ..settled() };
    observed.status = saved(plan(&observed, observed.status.next_rotation.unwrap()));
    assert_eq!(plan(&observed, at(80_000)), AccessStep::ReadOutput);
    assert!(waits(&observed, at(80_000)));
    // One that is given up ends, although its target is busy.
    observed.deleting = true;
    observed.status = saved(plan(&observed, at(0)));
    observed.status = failed(&observed, Reason::TargetUnreachable, "no answer", at(0));
    let week = at(7 * 86_400 + 1);
    assert_eq!(plan(&observed, week), AccessStep::ReadOutput);
    assert!(!waits(&observed, week));
}

/// One whose status an earlier version wrote, which had neither `target` nor what came with it.
fn of_earlier_version() -> AccessObservation {
    let status = serde_json::json!({
        "observedGeneration": 1, "phase": "Ready", "credential": "u-1", "sequence": 1,
        "notBefore": "1970-01-01T00:00:00Z", "notAfter": "1970-01-02T00:00:00Z",
        "output": {"uid": "s", "resourceVersion": "7", "sha256": "of u-1"},
    });
    let status = serde_json::from_value(status).unwrap();
    let output = OutputFact::Watched(Some(("s".to_owned(), "7".to_owned())));
    AccessObservation { status, output, ..new() }
}

#[test]
fn what_an_earlier_version_issued_goes_on_in_the_cluster_that_has_its_account() {
    let mut observed = of_earlier_version();
    // What it did not say is said, and nothing is asked of the target.
    observed.status = saved(plan(&observed, at(5)));
    assert_eq!(condition(&observed.status, READY).0, "True");
    assert!(matches!(plan(&observed, at(5)), AccessStep::Wait(Some(_))));
    // A rotation.
    observed.spec.rotate = Some("now".to_owned());
    observed.status = saved(plan(&observed, at(5)));
    observed.output = OutputFact::Ours(secret("u-1", "7"));
    assert_eq!(plan(&observed, at(5)), AccessStep::FindAccount);
    observed.progress = Progress::AccountFound(true);
    observed.status = saved(plan(&observed, at(5)));
    assert_eq!(observed.status.target, Some(cluster("c")));
    assert_eq!(plan(&observed, at(5)), AccessStep::ApplyRights);
    // A deletion.
    let mut observed = AccessObservation { deleting: true, ..of_earlier_version() };
    observed.status = saved(plan(&observed, at(5)));
    assert_eq!(plan(&observed, at(5)), AccessStep::FindAccount);
    observed.progress = Progress::AccountFound(true);
    observed.status = saved(plan(&observed, at(5)));
    assert_eq!(plan(&observed, at(5)), AccessStep::RevokeAll);
}

#[test]
fn what_an_earlier_version_issued_is_not_revoked_in_a_cluster_without_its_account() {
    let mut observed = of_earlier_version();
    observed.status.superseded = vec!["u-0".to_owned()];
    assert_eq!(plan(&observed, at(5)), AccessStep::FindAccount);
    observed.progress = Progress::AccountFound(false);
    observed.status = saved(plan(&observed, at(5)));
    assert_eq!(observed.status.last_error.as_ref().unwrap().reason, "TargetChanged");
    assert_eq!((&observed.status.superseded, &observed.status.target), (&vec!["u-0".to_owned()], &None));
    assert_eq!(condition(&observed.status, READY).0, "True", "the Secret holds what it held");
    // With a kubeconfig of the cluster before it goes on.
    observed.progress = Progress::Nothing;
    assert_eq!(plan(&observed, at(65)), AccessStep::FindAccount);
    observed.progress = Progress::AccountFound(true);
    observed.status = saved(plan(&observed, at(65)));
    assert_eq!(plan(&observed, at(65)), AccessStep::Revoke { credential: "u-0".to_owned() });
    // Deleted, it ends when forgetAfter is over, and claims no revocation.
    let mut observed = AccessObservation { deleting: true, ..of_earlier_version() };
    observed.status = saved(plan(&observed, at(5)));
    observed.progress = Progress::AccountFound(false);
    observed.status = saved(plan(&observed, at(5)));
    assert!(matches!(plan(&observed, at(6)), AccessStep::Wait(Some(_))));
    observed.output = OutputFact::Absent;
    assert_eq!(plan(&observed, at(7 * 86_400 + 6)), AccessStep::RemoveFinalizer { skipped: true });
}

#[test]
fn rights_that_an_earlier_version_applied_are_removed_although_nothing_was_issued() {
    let mut observed = AccessObservation { deleting: true, ..new() };
    observed.status.observed_generation = Some(1);
    observed.status = saved(plan(&observed, at(5)));
    assert_eq!(plan(&observed, at(5)), AccessStep::FindAccount);
}

#[test]
fn status_names_each_namespace_before_rights_are_applied_there() {
    let mut observed = new();
    observed.status = begun(&observed, Cause::First, at(0));
    observed.status = saved(plan(&observed, at(0)));
    let named = |status: &ClusterAccessStatus| status.namespaces.clone().map(|all| all.join(" "));
    assert_eq!(named(&observed.status).as_deref(), Some("shop"));
    assert_eq!(plan(&observed, at(0)), AccessStep::ApplyRights);
    // In another one: the one before is looked at until another credential is issued.
    let mut observed = settled();
    observed.generation = 2;
    observed.spec.rights.bind.as_mut().unwrap().namespaces = vec!["stage".to_owned()];
    observed.status = saved(plan(&observed, at(5)));
    assert_eq!(named(&observed.status).as_deref(), Some("shop stage"));
    assert_eq!(plan(&observed, at(5)), AccessStep::ApplyRights);
    observed.status = rights_applied(&observed, at(5));
    assert_eq!(named(&observed.status).as_deref(), Some("shop stage"));
    observed.status = begun(&observed, Cause::Due, at(6));
    let intent = observed.status.intent.clone().unwrap();
    let adopted = adopted(
        &observed,
        &intent,
        (&secret("u-2", "8"), Validity { not_before: at(6), not_after: at(90_000) }),
        "e",
        at(7),
    );
    assert_eq!(named(&adopted).as_deref(), Some("stage"));
    // Too many for status, or an earlier version has not named them: any of them.
    observed.generation = 3;
    observed.status.namespaces = Some((0..64).map(|n| n.to_string()).collect());
    observed.status = saved(plan(&observed, at(7)));
    assert_eq!(observed.status.namespaces, None);
    assert_eq!(plan(&observed, at(7)), AccessStep::ApplyRights);
    let mut observed = of_earlier_version();
    observed.generation = 2;
    observed.progress = Progress::AccountFound(true);
    observed.status = saved(plan(&observed, at(5)));
    assert_eq!((&observed.status.namespaces, observed.status.target.is_some()), (&None, true));
    assert_eq!(plan(&observed, at(5)), AccessStep::ApplyRights);
}

#[test]
fn of_a_later_spec_it_is_ready_once_the_target_has_its_rights() {
    let generation = |status: &ClusterAccessStatus, type_: &str| {
        let found = condition::find(&status.conditions, type_).unwrap();
        (found.status.clone(), found.observed_generation)
    };
    let is_true = |generation| ("True".to_owned(), Some(generation));
    let mut observed = settled();
    assert_eq!(generation(&observed.status, READY), is_true(1));
    observed.generation = 2;
    observed.spec.rights.bind.as_mut().unwrap().namespaces = vec!["stage".to_owned()];
    // The namespace is named in status first; the rights are not there yet, nor if they are refused.
    observed.status = saved(plan(&observed, at(5)));
    assert_eq!(generation(&observed.status, READY), is_true(1));
    observed.status = failed(&observed, Reason::TargetRefused, "no", at(5));
    assert_eq!(generation(&observed.status, READY), is_true(1));
    assert_eq!(plan(&observed, at(65)), AccessStep::ApplyRights);
    observed.status = rights_applied(&observed, at(65));
    assert_eq!(generation(&observed.status, READY), is_true(2));
    // With these rights no credential was tried out before the next one is issued.
    assert_eq!(generation(&observed.status, VERIFIED), is_true(1));
    let next = AccessObservation { status: begun(&observed, Cause::Due, at(66)), ..observed.clone() };
    let intent = next.status.intent.clone().unwrap();
    let validity = Validity { not_before: at(66), not_after: at(86_400) };
    let next = adopted(&next, &intent, (&secret("u-2", "8"), validity), "e", at(66));
    assert_eq!(generation(&next, VERIFIED), is_true(2));
    // Nor is it so of one whose rights were taken away, though the credential is valid still.
    observed.generation = 3;
    observed.status.observed_generation = None;
    let refused = failed(&observed, Reason::NotAllowed, "not allowed", at(70));
    assert_eq!(generation(&refused, READY), is_true(2));
    // What is wrong is so of the spec as it is now.
    let expired = failed(&observed, Reason::NotAllowed, "not allowed", at(86_400));
    assert_eq!(generation(&expired, READY), ("False".to_owned(), Some(3)));
}

#[test]
fn a_change_that_is_about_no_rights_is_ready_as_well_once_they_are_applied() {
    let changes: [fn(&mut ClusterAccessSpec); 5] = [
        |spec| spec.ttl = Duration::from_secs(7200),
        |spec| spec.rotate_at = 50,
        |spec| spec.rotate = Some("now".to_owned()),
        |spec| spec.suspend = true,
        |spec| spec.forget_after = Duration::from_secs(600),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let mut observed = settled();
        observed.generation = 2;
        change(&mut observed.spec);
        assert_eq!(plan(&observed, at(5)), AccessStep::ApplyRights, "{number}");
        observed.status = rights_applied(&observed, at(5));
        let ready = condition::find(&observed.status.conditions, READY).unwrap();
        assert_eq!((&*ready.status, ready.observed_generation), ("True", Some(2)), "{number}");
    }
}

#[test]
fn one_that_is_suspended_does_not_say_what_was_refused_to_the_spec_before() {
    let mut observed = new();
    observed.output = OutputFact::Foreign;
    observed.status = saved(plan(&observed, at(0)));
    assert_eq!(condition(&observed.status, READY).1, "SecretNotOurs");
    observed.generation = 2;
    observed.spec.suspend = true;
    observed.status = saved(plan(&observed, at(1)));
    assert_eq!(condition(&observed.status, READY).1, "Suspended");
    assert_eq!(observed.status.phase, Some(AccessPhase::Pending));
    assert_eq!(plan(&observed, at(1)), AccessStep::Wait(None));
}

#[test]
fn what_may_be_valid_is_in_the_secret_to_be_revoked_or_being_issued() {
    let mut observed = settled();
    observed.status.superseded = vec!["u-0".to_owned()];
    observed.status = begun(&observed, Cause::Requested, at(5));
    assert_eq!(observed.status.credentials(), ["u-1", "u-0", "u-2"]);
}
