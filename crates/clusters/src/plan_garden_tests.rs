use coppice_clusters_api::{ClusterSource, GardenerShoot, Issuer, Rights, TargetIdentity};

use super::tests::{at, issuing, saved, secret, settled, validity};
use super::*;

/// One that has an administrator's certificate for a Shoot.
fn of_shoot() -> AccessObservation {
    let mut observed =
        AccessObservation { permission: Permission::Allowed, turn: Turn::Granted, ..settled() };
    let gardener = Some(GardenerShoot { provider: "dev".to_owned(), shoot: "shop".to_owned() });
    observed.spec.cluster = ClusterSource { gardener, ..ClusterSource::default() };
    (observed.spec.issuer, observed.spec.rights) = (Issuer::GardenerAdmin, Rights::default());
    observed.kubeconfig = KubeconfigFact::OfGarden;
    observed.status = complete(&observed, observed.status.clone(), at(0));
    observed
}

#[test]
fn a_certificate_of_gardener_is_of_the_user_that_it_names_and_is_listed_once_it_is_replaced() {
    let mut observed = of_shoot();
    let due = observed.status.next_rotation.unwrap();
    observed.status = saved(plan(&observed, due));
    observed.output = OutputFact::Ours(secret("u-1", "7"));
    observed.progress = Progress::RightsApplied;
    assert_eq!(plan(&observed, due), AccessStep::Request { credential: "u-2".to_owned() });
    // Gardener issues it in one step.
    observed.progress = issuing("u-2", IssueProgress::Issued(validity()));
    assert_eq!(plan(&observed, due), AccessStep::Verify { credential: "u-2".to_owned() });
    observed.progress = issuing("u-2", IssueProgress::Verified(validity(), "of u-2".to_owned()));
    observed.output = OutputFact::Ours(secret("u-2", "8"));
    observed.user_name = Some("x1y2:robot".to_owned());
    let status = saved(plan(&observed, due));
    assert_eq!((status.identity.as_deref(), status.superseded.len()), (Some("x1y2:robot"), 0));
    let listed: Vec<&str> = status.superseded_certificates.iter().map(|of| of.credential.as_str()).collect();
    assert_eq!(listed, ["u-1"]);
    // The user is that of the Secret, whatever else is read later.
    (observed.status, observed.user_name) = (status, None);
    let failed = failed(&observed, Reason::TargetUnreachable, "it is away", due);
    assert_eq!(failed.identity.as_deref(), Some("x1y2:robot"));
}

#[test]
fn which_cluster_a_shoot_is_comes_before_its_first_credential() {
    let of = of_shoot();
    let mut observed = AccessObservation { status: ClusterAccessStatus::default(), target: None, ..of };
    observed.output = OutputFact::Absent;
    observed.status = saved(plan(&observed, at(0)));
    assert_eq!(plan(&observed, at(0)), AccessStep::Identify);
    observed.target = Some(TargetIdentity { uid: "c".to_owned(), endpoint: "e".to_owned() });
    observed.status = saved(plan(&observed, at(0)));
    assert_eq!(observed.status.target, observed.target);
    observed.status = saved(plan(&observed, at(0)));
    assert_eq!(observed.status.observed_generation, Some(1));
    // There is nothing to apply.
    assert_eq!(plan(&observed, at(0)), AccessStep::ApplyRights);
    observed.progress = Progress::RightsApplied;
    assert_eq!(plan(&observed, at(0)), AccessStep::Request { credential: "u-1".to_owned() });
}

#[test]
fn nothing_is_done_in_a_shoot_for_what_has_the_rights_of_gardener() {
    // Another spec has no other rights.
    let mut observed = of_shoot();
    (observed.generation, observed.target) = (2, None);
    assert_eq!(saved(plan(&observed, at(1))).observed_generation, Some(2));
    // Nor is there anything to revoke, whether or not the Shoot still is there.
    observed.deleting = true;
    observed.status = saved(plan(&observed, at(1)));
    assert_eq!(plan(&observed, at(1)), AccessStep::ReadOutput);
    let found = secret("u-1", "7");
    observed.output = OutputFact::Ours(found.clone());
    assert_eq!(plan(&observed, at(1)), AccessStep::DeleteOutput(found.revision));
    observed.output = OutputFact::Absent;
    assert_eq!(plan(&observed, at(1)), AccessStep::RemoveFinalizer { skipped: false });
    // Tokens of a Shoot are revoked there as everywhere.
    observed.spec.issuer = Issuer::TokenRequest;
    assert_eq!(plan(&observed, at(1)), AccessStep::Identify);
    observed.target = observed.status.target.clone();
    assert_eq!(plan(&observed, at(1)), AccessStep::RevokeAll);
}

#[test]
fn another_shoot_of_that_name_is_not_the_same_cluster() {
    let mut observed = of_shoot();
    let due = observed.status.next_rotation.unwrap();
    observed.status = saved(plan(&observed, due));
    observed.output = OutputFact::Ours(secret("u-1", "7"));
    observed.target = Some(TargetIdentity { uid: "other".to_owned(), endpoint: "e".to_owned() });
    let error = saved(plan(&observed, due)).last_error.unwrap();
    assert_eq!(error.reason, "TargetChanged");
    assert!(error.message.contains("delete this ClusterAccess, since its Shoot was replaced"), "{error:?}");
}

#[test]
fn where_a_shoot_is_now_is_asked_of_nobody_while_nothing_is_due() {
    let observed = of_shoot();
    assert!(matches!(plan(&observed, at(1)), AccessStep::Wait(Some(_))));
    let unread = AccessObservation { kubeconfig: KubeconfigFact::Unread, ..observed };
    assert_eq!(plan(&unread, at(1)), AccessStep::ReadKubeconfig);
}
