use coppice_api::condition::{self, READY};
use coppice_api::selector::Labels;
use coppice_clusters_api::{AccessPhase, ClusterProviderSpec, ClusterSource, Issuer, ProviderName, Rights};
use serde_json::json;

use super::*;
use crate::plan::tests::{at, saved, settled, spec};
use crate::{IssueProgress, OutputFact, grant_verdict, plan};

/// One that has its first credential by a kubeconfig of the platform, of whose rights and credential that is said, while what it asks for is
/// not allowed.
fn refused_with(grant: GrantVerdict) -> AccessObservation {
    let provider = Some(ProviderName { name: "p".to_owned() });
    let permission = Permission::Refused(Reason::NotAllowed, "no".to_owned());
    let mut observed = AccessObservation { permission, grant, turn: crate::Turn::Unasked, ..settled() };
    observed.spec.cluster = ClusterSource { provider, ..ClusterSource::default() };
    observed
}

fn message(status: &ClusterAccessStatus) -> &str {
    status.last_error.as_ref().map_or("", |error| &error.message)
}

#[test]
fn narrower_rights_wait_for_nothing_that_keeps_credentials_from_being_issued() {
    // Such as a ttl or an issuer that is not allowed any more.
    let narrower = |grant| AccessObservation { generation: 2, narrows: true, ..refused_with(grant) };
    for grant in [GrantVerdict::Allowed, GrantVerdict::CredentialNotAllowed, GrantVerdict::RightsNotAllowed] {
        assert_eq!(plan(&narrower(grant), at(1)), AccessStep::ApplyRights);
    }
    let applied = AccessObservation {
        progress: Progress::RightsApplied,
        narrows: false,
        ..narrower(GrantVerdict::Allowed)
    };
    assert_eq!(saved(plan(&applied, at(1))).observed_generation, Some(2));
    // After a restart the target has to say first whether they are narrower.
    assert_eq!(plan(&narrower(GrantVerdict::Unknown), at(1)), AccessStep::FindRights);
    let wider = AccessObservation { generation: 2, ..refused_with(GrantVerdict::Allowed) };
    assert_eq!(saved(plan(&wider, at(1))).observed_generation, Some(1), "the target has what it had");
}

#[test]
fn rights_go_at_once_and_the_credential_after_a_pause() {
    let mut observed = refused_with(GrantVerdict::RightsNotAllowed);
    assert_eq!(plan(&observed, at(1)), AccessStep::TakeRights);
    observed.status = rights_taken(&observed, at(1));
    assert_eq!(
        (observed.status.phase, observed.status.observed_generation),
        (Some(AccessPhase::Refused), None)
    );
    assert_eq!(observed.status.revokes_at, Some(at(601)));
    let said = "no; what was issued is revoked at 1970-01-01T00:10:01Z, unless it is allowed by then";
    assert_eq!(message(&observed.status), said);
    let ready = condition::find(&observed.status.conditions, READY).unwrap();
    assert!(ready.message.ends_with(said), "{}", ready.message);
    // Nothing is left there whose rights could be asked about.
    observed.grant = GrantVerdict::CredentialNotAllowed;
    assert_eq!(plan(&observed, at(2)), AccessStep::Wait(Some(at(601))));
    assert_eq!(plan(&observed, at(600)), AccessStep::Wait(Some(at(601))));
    assert_eq!(plan(&observed, at(601)), AccessStep::RevokeAll);
    observed.progress = Progress::AllRevoked;
    observed.status = saved(plan(&observed, at(601)));
    let status = &observed.status;
    assert_eq!((status.credential.as_ref(), status.not_after, status.revokes_at), (None, None, None));
    assert_eq!((status.phase, message(status)), (Some(AccessPhase::Refused), "no"));
    assert_eq!(condition::find(&status.conditions, READY).unwrap().status, "False");
    observed.progress = Progress::Nothing;
    assert_eq!(plan(&observed, at(602)), AccessStep::Wait(None));
    // It has rights and a credential again once it is allowed.
    (observed.permission, observed.grant) = (Permission::Allowed, GrantVerdict::Allowed);
    observed.status = saved(plan(&observed, at(700)));
    assert_eq!((observed.status.last_error.as_ref(), observed.status.sequence), (None, 1));
    observed.turn = crate::Turn::Granted;
    assert_eq!(plan(&observed, at(700)), AccessStep::ApplyRights);
    observed.progress = Progress::RightsApplied;
    observed.status = saved(plan(&observed, at(700)));
    observed.output = OutputFact::Absent;
    assert_eq!(saved(plan(&observed, at(700))).intent.unwrap().credential, "u-2");
}

#[test]
fn what_is_allowed_again_in_time_is_kept() {
    let mut observed = refused_with(GrantVerdict::CredentialNotAllowed);
    observed.status = saved(plan(&observed, at(1)));
    assert_eq!((observed.status.observed_generation, observed.status.revokes_at), (Some(1), Some(at(601))));
    assert_eq!(plan(&observed, at(2)), AccessStep::Wait(Some(at(601))), "it is said once");
    (observed.permission, observed.grant) = (Permission::Allowed, GrantVerdict::Allowed);
    observed.status = saved(plan(&observed, at(3)));
    assert_eq!((observed.status.revokes_at, observed.status.phase), (None, Some(AccessPhase::Ready)));
    assert!(matches!(plan(&observed, at(700)), AccessStep::Wait(Some(_))));
    // What is asked for is not allowed, and what was issued is: it stays.
    let mut observed = refused_with(GrantVerdict::Allowed);
    observed.status = saved(plan(&observed, at(1)));
    assert_eq!((observed.status.revokes_at, observed.status.phase), (None, Some(AccessPhase::Refused)));
    assert!(matches!(plan(&observed, at(700)), AccessStep::Wait(Some(until)) if until > at(700)));
}

#[test]
fn of_certificates_it_is_said_until_when_they_are_valid() {
    let mut observed = refused_with(GrantVerdict::CredentialNotAllowed);
    observed.spec.issuer = Issuer::ClientCertificate;
    observed.status = saved(plan(&observed, at(1)));
    assert_eq!(observed.status.revokes_at, None);
    let said = "no; what was issued cannot be revoked: the last certificate expires at 1970-01-02T00:00:00Z";
    assert_eq!(message(&observed.status), said);
    assert!(matches!(plan(&observed, at(700)), AccessStep::Wait(Some(_))));
    // Without their rights they are of no use.
    observed.grant = GrantVerdict::RightsNotAllowed;
    assert_eq!(plan(&observed, at(700)), AccessStep::TakeRights);
    assert_eq!(rights_taken(&observed, at(700)).revokes_at, None);
}

#[test]
fn what_is_not_known_takes_nothing_away() {
    let mut observed = refused_with(GrantVerdict::Settled);
    observed.permission = Permission::Unread;
    assert!(matches!(plan(&observed, at(1)), AccessStep::Wait(Some(_))));
    observed.grant = GrantVerdict::Unread;
    assert_eq!(plan(&observed, at(1)), AccessStep::ReadProvider);
    // It is gone, or cannot be understood.
    observed.permission = Permission::Refused(Reason::ProviderMissing, "gone".to_owned());
    observed.grant = GrantVerdict::Settled;
    for second in [1, 601] {
        assert!(matches!(plan(&observed, at(second)), AccessStep::Wait(Some(_))));
    }
    // Nothing was issued that anybody could have.
    let mut new = refused_with(GrantVerdict::CredentialNotAllowed);
    new.status = ClusterAccessStatus { sequence: 1, ..ClusterAccessStatus::default() };
    assert_eq!(saved(plan(&new, at(1))).revokes_at, None);
}

#[test]
fn a_target_that_is_away_hides_no_refusal() {
    let mut observed = refused_with(GrantVerdict::RightsNotAllowed);
    observed.status = failed(&observed, Reason::TargetUnreachable, "it is away", at(1));
    assert_eq!(observed.status.phase, Some(AccessPhase::Refused));
    let error = observed.status.last_error.as_ref().unwrap();
    assert_eq!((error.reason.as_str(), error.message.as_str()), ("NotAllowed", "no"));
    assert_eq!(error.other.as_ref().unwrap().reason, "TargetUnreachable");
    // It is tried again after the pause of any target that does not answer.
    assert_eq!(plan(&observed, at(2)), AccessStep::Wait(Some(at(61))));
    assert_eq!(plan(&observed, at(61)), AccessStep::TakeRights);
}

#[test]
fn what_is_withdrawn_waits_for_nothing_else_that_failed() {
    let mut observed = refused_with(GrantVerdict::Settled);
    observed.status = failed(&observed, Reason::SecretNotOurs, "it is another one", at(1));
    assert_eq!(plan(&observed, at(2)), AccessStep::Wait(Some(at(61))));
    let with = |permission, grant| AccessObservation { permission, grant, ..observed.clone() };
    assert_eq!(plan(&with(Permission::Unread, GrantVerdict::Unread), at(2)), AccessStep::ReadProvider);
    let allowed = with(Permission::Allowed, GrantVerdict::Allowed);
    assert_eq!(plan(&allowed, at(2)), AccessStep::Wait(Some(at(61))));
    // What it asks for is not allowed, and what it has is: that can wait.
    let refused = |grant| with(Permission::Refused(Reason::NotAllowed, "no".to_owned()), grant);
    assert_eq!(plan(&refused(GrantVerdict::Allowed), at(2)), AccessStep::Wait(Some(at(61))));
    let mut withdrawn = refused(GrantVerdict::RightsNotAllowed);
    assert_eq!(plan(&withdrawn, at(2)), AccessStep::TakeRights);
    assert_eq!(saved(plan(&refused(GrantVerdict::CredentialNotAllowed), at(2))).revokes_at, Some(at(602)));
    // The target is not asked again and again for that, whatever is said first.
    for output in [withdrawn.output.clone(), OutputFact::Foreign] {
        withdrawn.output = output;
        let status = failed(&withdrawn, Reason::TargetUnreachable, "it is away", at(2));
        let failed = AccessObservation { status, ..withdrawn.clone() };
        assert!(matches!(plan(&failed, at(2)), AccessStep::Wait(Some(until)) if until > at(61)));
    }
}

#[test]
fn what_a_crash_left_in_the_secret_is_to_go_as_well() {
    let mut observed = refused_with(GrantVerdict::CredentialNotAllowed);
    observed.status.credential = None;
    observed.status = crate::status::begun(&observed, coppice_clusters_api::Cause::First, at(1));
    let mut found = crate::plan::tests::secret("u-2", "8");
    found.validity = Some(crate::plan::tests::validity());
    observed.output = OutputFact::Ours(found);
    observed.progress = Progress::Issuing("u-2".to_owned(), IssueProgress::Proven("e".to_owned()));
    observed.status.intent.as_mut().unwrap().written_until = Some(at(86_400));
    assert_eq!(saved(plan(&observed, at(1))).revokes_at, Some(at(601)));
}

#[test]
fn an_entry_has_to_allow_all_of_what_was_given() {
    let entry = |namespaces: &[&str], ttl: &str, role: &str| json!({"namespaces": namespaces, "maxTtl": ttl, "rights": {"namespaces": ["shop"], "clusterRoles": [role]}});
    let says = |entries: &[serde_json::Value],
                access: &coppice_clusters_api::ClusterAccessSpec,
                rights: &[&Rights]| {
        let provider: ClusterProviderSpec =
            serde_json::from_value(json!({"credential": {"secret": "shop"}, "allow": entries})).unwrap();
        grant_verdict(
            ("p", &provider),
            ("team", &Labels::default()),
            access,
            rights,
            (Some(at(86_400)), at(0)),
        )
    };
    let mut access = spec();
    access.cluster = refused_with(GrantVerdict::Settled).spec.cluster;
    let view = spec().rights;
    assert_eq!(says(&[entry(&["team"], "1d", "view")], &access, &[&view]), GrantVerdict::Allowed);
    assert_eq!(says(&[entry(&["team"], "1d", "edit")], &access, &[&view]), GrantVerdict::RightsNotAllowed);
    assert_eq!(says(&[entry(&["other"], "1d", "view")], &access, &[&view]), GrantVerdict::RightsNotAllowed);
    // Without rights the credential alone is left.
    assert_eq!(says(&[entry(&["other"], "1d", "view")], &access, &[]), GrantVerdict::CredentialNotAllowed);
    assert_eq!(says(&[entry(&["team"], "1d", "edit")], &access, &[]), GrantVerdict::Allowed);
    // It is valid for longer than an entry allows with these rights.
    let short = [entry(&["team"], "1h", "view"), entry(&["team"], "1d", "edit")];
    assert_eq!(says(&short, &access, &[&view]), GrantVerdict::CredentialNotAllowed);
    access.issuer = Issuer::ClientCertificate;
    assert_eq!(
        says(&[entry(&["team"], "1d", "view")], &access, &[&view]),
        GrantVerdict::CredentialNotAllowed
    );
    access.issuer = Issuer::GardenerAdmin;
    assert_eq!(says(&[], &access, &[]), GrantVerdict::Allowed);
}
