use coppice_clusters_api::{
    AccessPhase, Cause, ClusterSource, GardenerShoot, ProviderName, SupersededCertificate,
};
use serde_json::json;

use super::*;
use crate::plan::tests::{at, cluster, saved, settled, spec};
use crate::status::begun;
use crate::{AccessObservation, AccessStep, Turn, plan};

fn provider(allow: &serde_json::Value) -> ClusterProviderSpec {
    serde_json::from_value(json!({"credential": {"secret": "shop"}, "allow": allow})).unwrap()
}

fn view() -> serde_json::Value {
    json!({"namespaces": ["shop"], "clusterRoles": ["view"]})
}

/// What it says of an access that binds `view` in `shop` for a day.
fn says(provider: &ClusterProviderSpec, namespace: &str, labels: &Labels) -> Option<String> {
    match permission(("p", provider), (namespace, labels), &spec(), (None, at(0))) {
        Permission::Allowed => None,
        Permission::Refused(Reason::NotAllowed, message) => Some(message),
        other => panic!("{other:?}"),
    }
}

#[test]
fn nobody_is_allowed_by_default() {
    let none = provider(&json!([]));
    let message = says(&none, "team", &Labels::default()).unwrap();
    assert!(message.contains("does not allow the namespace team"), "{message}");
    assert!(!needs_labels(&none));
}

#[test]
fn a_namespace_is_allowed_by_its_name_or_its_labels() {
    let by_name = provider(&json!([{"namespaces": ["team"], "rights": view()}]));
    let none = Labels::default();
    assert_eq!(says(&by_name, "team", &none), None);
    assert!(says(&by_name, "team-2", &none).is_some());
    let by_labels =
        provider(&json!([{"namespaceSelector": {"matchLabels": {"ci": "yes"}}, "rights": view()}]));
    assert!(needs_labels(&by_labels) && !needs_labels(&by_name));
    let labels: Labels = [("ci", "yes")].into_iter().collect();
    assert_eq!(says(&by_labels, "any", &labels), None);
    assert!(says(&by_labels, "any", &none).is_some());
    let empty = provider(&json!([{"namespaceSelector": {}, "rights": view()}]));
    assert!(says(&empty, "any", &none).is_some(), "an empty selector selects nothing");
}

#[test]
fn one_entry_has_to_allow_all_of_it() {
    let none = Labels::default();
    let entry = |ttl: &str, role: &str| json!({"namespaces": ["team"], "maxTtl": ttl, "rights": {"namespaces": ["shop"], "clusterRoles": [role]}});
    let (short, other) = (entry("1h", "view"), entry("2d", "edit"));
    let message = says(&provider(&json!([short, other])), "team", &none).unwrap();
    assert_eq!(message, "spec.ttl: write at most 1h: ClusterProvider p allows no more to this namespace");
    let message = says(&provider(&json!([other])), "team", &none).unwrap();
    assert!(message.starts_with("spec.rights.bind.clusterRole: write one of: edit"), "{message}");
    assert_eq!(says(&provider(&json!([short, other, entry("1d", "view")])), "team", &none), None);
}

#[test]
fn certificates_are_allowed_only_where_an_entry_says_so() {
    let access = ClusterAccessSpec { issuer: Issuer::ClientCertificate, ..spec() };
    let ask = |provider: &ClusterProviderSpec, access: &ClusterAccessSpec| {
        permission(("p", provider), ("team", &Labels::default()), access, (None, at(0)))
    };
    let entry = json!({"namespaces": ["team"], "rights": view()});
    let mut with = entry.clone();
    with["issuers"] = json!(["ClientCertificate"]);
    let by_default = provider(&json!([entry]));
    assert_eq!(ask(&by_default, &spec()), Permission::Allowed);
    let message = "spec.issuer: write TokenRequest into a new ClusterAccess, since it cannot be changed: ClusterProvider p allows no more to this namespace";
    let refused = Permission::Refused(Reason::NotAllowed, message.to_owned());
    assert_eq!(ask(&by_default, &access), refused);
    assert_eq!(ask(&provider(&json!([entry, with])), &access), Permission::Allowed);
    assert!(matches!(ask(&provider(&json!([with])), &spec()), Permission::Refused(..)));
}

#[test]
fn an_administrator_of_shoots_is_allowed_by_name_alone() {
    let gardener = Some(GardenerShoot { provider: "p".to_owned(), shoot: "shop".to_owned() });
    let cluster = ClusterSource { gardener, ..ClusterSource::default() };
    let of =
        |issuer| ClusterAccessSpec { issuer, rights: Rights::default(), cluster: cluster.clone(), ..spec() };
    let says =
        |provider: &ClusterProviderSpec, access: &ClusterAccessSpec, until: Option<i64>| match permission(
            ("p", provider),
            ("team", &Labels::default()),
            access,
            (until.map(at), at(0)),
        ) {
            Permission::Allowed => String::new(),
            Permission::Refused(_, message) => message,
            Permission::Unread => "unread".to_owned(),
        };
    let mut garden =
        provider(&json!([{"namespaces": ["team"], "maxTtl": "1d", "issuers": ["GardenerViewer"]}]));
    garden.project = Some("dev".to_owned());
    let (admin, viewer) = (of(Issuer::GardenerAdmin), of(Issuer::GardenerViewer));
    assert!(says(&garden, &admin, None).starts_with("spec.issuer: write GardenerViewer"));
    assert_eq!(says(&garden, &viewer, None), "");
    // Those that were issued for longer, before that was not allowed any more, have no other rights than the next one.
    assert_eq!(says(&garden, &viewer, Some(30 * 86_400)), "");
    let longer = ClusterAccessSpec { ttl: coppice_quantity::Duration::from_secs(86_401), ..viewer.clone() };
    assert!(says(&garden, &longer, None).starts_with("spec.ttl: write at most 1d"));
    // The kubeconfig of a garden is not that of a cluster, nor the other way round.
    let provider_name = Some(ProviderName { name: "p".to_owned() });
    let cluster = ClusterSource { provider: provider_name, ..ClusterSource::default() };
    let in_garden = ClusterAccessSpec { cluster, ..spec() };
    assert!(says(&garden, &in_garden, None).contains("is for Shoots of a project of Gardener"));
    garden.project = None;
    assert!(says(&garden, &viewer, None).contains("has no project of Gardener"));
}

#[test]
fn what_one_entry_let_be_valid_for_long_does_not_get_the_rights_of_another() {
    let of = |ttl: &str, role: &str| json!({"namespaces": ["team"], "maxTtl": ttl, "rights": {"namespaces": ["shop"], "clusterRoles": [role]}});
    let provider = provider(&json!([of("30d", "view"), of("1h", "admin")]));
    let ask = |role: &str, valid_until: Option<i64>| {
        let mut access = spec();
        access.ttl = coppice_quantity::Duration::from_secs(3600);
        access.rights.bind.as_mut().unwrap().cluster_role = Some(role.to_owned());
        let validity = (valid_until.map(at), at(0));
        permission(("p", &provider), ("team", &Labels::default()), &access, validity)
    };
    let month = Some(30 * 86_400);
    assert_eq!(ask("view", month), Permission::Allowed);
    // Also where its ttl is short by now: what was issued before gets the rights at once.
    let refused = ask("admin", month);
    let Permission::Refused(Reason::NotAllowed, message) = &refused else { panic!("{refused:?}") };
    assert!(message.starts_with("spec.rights: create another ClusterAccess with these"), "{message}");
    assert!(
        message.contains("valid until 1970-01-31T00:00:00Z") && message.contains("for 1h at most"),
        "{message}"
    );
    assert_eq!(ask("admin", None), Permission::Allowed);
    // A certificate may be valid for a little longer than was asked for.
    assert_eq!(ask("admin", Some(3600 + 900)), Permission::Allowed);
    assert!(matches!(ask("admin", Some(3600 + 901)), Permission::Refused(..)));
}

#[test]
fn a_revocation_is_not_given_up_earlier_than_the_provider_says() {
    let provider = provider(&json!([{"namespaces": ["team"], "rights": view()}]));
    let minute = coppice_quantity::Duration::from_secs(60);
    let access = ClusterAccessSpec { forget_after: minute, ..spec() };
    let asked = permission(("p", &provider), ("team", &Labels::default()), &access, (None, at(0)));
    let message = "spec.forgetAfter: write at least 1h, as minForgetAfter of ClusterProvider p says";
    assert_eq!(asked, Permission::Refused(Reason::NotAllowed, message.to_owned()));
    // Nor by one that is written later.
    let mut observed = of_provider(Permission::Unread);
    (observed.deleting, observed.min_forget_after) = (true, Some(SignedDuration::from_hours(1)));
    observed.spec.forget_after = minute;
    observed.output = crate::OutputFact::Absent;
    observed.status = saved(plan(&observed, at(0)));
    observed.status = crate::failed(&observed, Reason::TargetUnreachable, "it is away", at(0));
    assert_eq!(plan(&observed, at(3599)), AccessStep::RevokeAll);
    assert_eq!(plan(&observed, at(3600)), AccessStep::RemoveFinalizer { skipped: true });
    observed.min_forget_after = None;
    assert_eq!(plan(&observed, at(60)), AccessStep::RemoveFinalizer { skipped: true });
}

#[test]
fn certificates_that_were_replaced_count_as_valid() {
    let mut observed = settled();
    assert_eq!(valid_until(&observed.status), Some(at(86_400)));
    let before = SupersededCertificate { credential: "u-0".to_owned(), not_after: at(90_000) };
    observed.status.superseded_certificates = vec![before];
    assert_eq!(valid_until(&observed.status), Some(at(90_000)));
    assert_eq!(valid_until(&ClusterAccessStatus::default()), None);
}

/// One whose kubeconfig the platform keeps.
fn of_provider(permission: Permission) -> AccessObservation {
    let provider = Some(ProviderName { name: "p".to_owned() });
    let mut observed = AccessObservation { permission, turn: Turn::Unasked, ..settled() };
    observed.spec.cluster = ClusterSource { provider, ..ClusterSource::default() };
    observed
}

#[test]
fn nothing_is_issued_and_no_rights_are_written_without_permission() {
    let refused = || Permission::Refused(Reason::NotAllowed, "no".to_owned());
    let due = of_provider(Permission::Unread).status.next_rotation.unwrap();
    assert_eq!(plan(&of_provider(Permission::Unread), due), AccessStep::ReadProvider);
    assert!(saved(plan(&of_provider(Permission::Allowed), due)).intent.is_some());
    let status = saved(plan(&of_provider(refused()), due));
    assert_eq!((status.phase, status.intent.as_ref()), (Some(AccessPhase::Refused), None));
    assert_eq!(
        condition::find(&status.conditions, READY).unwrap().status,
        "True",
        "what was issued is valid"
    );
    // It is said once, and looked at again whenever something changes.
    let mut observed = AccessObservation { status, ..of_provider(refused()) };
    let expiry = observed.status.not_after;
    assert_eq!(plan(&observed, due), AccessStep::Wait(expiry));
    observed.permission = Permission::Unread;
    assert_eq!(plan(&observed, due), AccessStep::ReadProvider);
    observed.permission = Permission::Allowed;
    let begun = saved(plan(&observed, due));
    assert!(begun.intent.is_some() && begun.last_error.is_none());
    // The same of other rights.
    let other = |permission| AccessObservation { generation: 2, ..of_provider(permission) };
    assert_eq!(plan(&other(Permission::Unread), at(1)), AccessStep::ReadProvider);
    assert_eq!(plan(&other(Permission::Allowed), at(1)), AccessStep::TakeTurn);
    let error = saved(plan(&other(refused()), at(1))).last_error.unwrap();
    assert_eq!((error.reason.as_str(), error.generation), ("NotAllowed", 2));
    // While nothing is to be done, and for a revocation, nobody is asked.
    assert!(matches!(plan(&of_provider(Permission::Unread), at(1)), AccessStep::Wait(Some(_))));
    let deleting = AccessObservation { deleting: true, ..of_provider(refused()) };
    let deleting = AccessObservation { status: saved(plan(&deleting, at(1))), ..deleting };
    assert_eq!(plan(&deleting, at(1)), AccessStep::RevokeAll);
}

#[test]
fn a_tenant_asks_for_the_cluster_before() {
    let observed = AccessObservation {
        generation: 2,
        target: Some(cluster("other")),
        turn: Turn::Granted,
        ..of_provider(Permission::Allowed)
    };
    let error = saved(plan(&observed, at(1))).last_error.unwrap();
    assert_eq!(error.reason, "TargetChanged");
    assert!(error.message.contains("ask the platform") && !error.message.contains("write"), "{error:?}");
}

#[test]
fn a_credential_waits_for_the_budget_of_its_provider_and_a_revocation_does_not() {
    let mut observed = of_provider(Permission::Allowed);
    let due = observed.status.next_rotation.unwrap();
    observed.status = saved(plan(&observed, due));
    observed.output = crate::OutputFact::Ours(crate::plan::tests::secret("u-1", "7"));
    assert_eq!(plan(&observed, due), AccessStep::TakeTurn);
    let again = due + SignedDuration::from_secs(7);
    observed.turn = Turn::NotBefore(again);
    observed.status = saved(plan(&observed, due));
    assert_eq!(plan(&observed, due), AccessStep::Wait(Some(again)), "it is said once");
    observed.status.superseded = vec!["u-0".to_owned()];
    assert_eq!(plan(&observed, due), AccessStep::Revoke { credential: "u-0".to_owned() });
    // A cluster that has too many requests is asked for nothing. What is more urgent goes before the credential alone.
    let until = due + SignedDuration::from_secs(3);
    observed.turn = Turn::Throttled { until, asks_again: again };
    let mut throttled = AccessObservation { status: saved(plan(&observed, due)), ..observed.clone() };
    assert_eq!(plan(&throttled, due), AccessStep::Wait(Some(until)));
    assert_eq!(plan(&throttled, until), AccessStep::Revoke { credential: "u-0".to_owned() });
    throttled.status.superseded.clear();
    assert_eq!(plan(&throttled, due), AccessStep::Wait(Some(again)));
    observed.turn = Turn::Granted;
    assert_eq!(plan(&observed, due), AccessStep::ApplyRights);
}

#[test]
fn where_no_provider_leads_a_credential_waits_while_its_target_has_too_many_requests() {
    let mut observed = settled();
    let due = observed.status.next_rotation.unwrap();
    observed.status = saved(plan(&observed, due));
    observed.output = crate::OutputFact::Ours(crate::plan::tests::secret("u-1", "7"));
    assert_eq!(plan(&observed, due), AccessStep::ApplyRights, "nobody is asked");
    observed.turn = Turn::Unasked;
    let step = plan(&observed, due);
    assert_eq!(step, AccessStep::TakeTurn);
    assert!(step.waits_for_turn(&observed) && step.waits_for_place(&observed));
    let [until, again] = [3, 7].map(|seconds| due + SignedDuration::from_secs(seconds));
    observed.turn = Turn::Throttled { until, asks_again: again };
    observed.status = saved(plan(&observed, due));
    assert_eq!(plan(&observed, due), AccessStep::Wait(Some(again)), "it is said once");
    let ready = condition::find(&observed.status.conditions, READY).unwrap();
    let says = "The next credential waits, since its target has too many requests (429): it is asked for at ";
    assert!(ready.message.contains(says), "{}", ready.message);
    observed.turn = Turn::Granted;
    assert_eq!(plan(&observed, again), AccessStep::ApplyRights);
    let granted = crate::rights_applied(&observed, again);
    assert_eq!(granted.intent.unwrap().waits_until, None);
}

#[test]
fn a_change_of_rights_waits_for_the_budget_unless_it_only_takes_some_away() {
    let changed = |permission, turn, narrows| AccessObservation {
        generation: 2,
        turn,
        narrows,
        ..of_provider(permission)
    };
    let again = at(9);
    let mut waiting = changed(Permission::Allowed, Turn::NotBefore(again), false);
    assert_eq!(
        plan(&waiting, at(1)),
        AccessStep::Wait(Some(again)),
        "the target has what status says of the spec before"
    );
    let ready = condition::find(&waiting.status.conditions, READY).unwrap();
    let generations = [waiting.status.observed_generation, ready.observed_generation];
    assert_eq!((generations, &*ready.status), ([Some(1); 2], "True"));
    waiting.status.superseded = vec!["u-0".to_owned()];
    assert_eq!(plan(&waiting, at(1)), AccessStep::Revoke { credential: "u-0".to_owned() });
    assert_eq!(plan(&changed(Permission::Allowed, Turn::Granted, false), at(1)), AccessStep::ApplyRights);
    assert_eq!(plan(&changed(Permission::Allowed, Turn::Unasked, true), at(1)), AccessStep::ApplyRights);
    // While it waits nobody is asked whether it is allowed; what takes away goes on.
    for (narrows, expected) in [(false, true), (true, false)] {
        let changed = changed(Permission::Unread, Turn::Unasked, narrows);
        let step = plan(&changed, at(1));
        assert_eq!(step, AccessStep::ReadProvider);
        assert_eq!(step.waits_for_turn(&changed), expected);
    }
}

#[test]
fn who_waits_for_the_budget_says_until_when() {
    let waits = "callsPerMinute of ClusterProvider p is used up: it is asked for at 1970-01-01T00:00:09Z";
    let ready = |status: &ClusterAccessStatus| {
        let ready = condition::find(&status.conditions, READY).unwrap();
        (ready.status.clone(), ready.message.clone())
    };
    for (has_one, expected) in [(false, "False"), (true, "True")] {
        let mut observed = of_provider(Permission::Allowed);
        observed.output = crate::OutputFact::Absent;
        if !has_one {
            (observed.status.credential, observed.status.output) = (None, None);
        }
        observed.status = begun(&observed, Cause::Requested, at(1));
        // A moment before, so that it is said in whole seconds.
        observed.turn = Turn::NotBefore(at(9) - SignedDuration::from_millis(1));
        observed.status = saved(plan(&observed, at(2)));
        let (status, message) = ready(&observed.status);
        assert_eq!(status, expected);
        assert!(message.contains(waits), "{message}");
        // It is not forgotten by whoever has not asked, and ends with its turn.
        let with = |turn| AccessObservation { turn, ..observed.clone() };
        let unasked = crate::rights_applied(&with(Turn::Unasked), at(3));
        assert_eq!(unasked.intent.as_ref().unwrap().waits_until, Some(at(9)));
        let granted = crate::rights_applied(&with(Turn::Granted), at(9));
        assert_eq!(granted.intent.as_ref().unwrap().waits_until, None);
        assert!(!ready(&granted).1.contains("callsPerMinute"));
        // For another reason, which is not forgotten, either.
        let throttled =
            crate::rights_applied(&with(Turn::Throttled { until: at(5), asks_again: at(9) }), at(3));
        let unasked =
            crate::rights_applied(&AccessObservation { status: throttled, ..with(Turn::Unasked) }, at(4));
        let (_, message) = ready(&unasked);
        assert!(
            message.contains("too many requests (429): it is asked for at 1970-01-01T00:00:09Z"),
            "{message}"
        );
    }
}

#[test]
fn a_status_changes_only_when_there_is_something_to_say() {
    let before = ClusterProviderStatus::default();
    let usage = || {
        let mut usage = Usage { waiting: 1, ..Usage::default() };
        usage.add("team", "ci");
        usage.add_cluster("team", "shop");
        usage
    };
    let ready = provider_status((&before, 1), usage(), Ok(()), at(0));
    assert_eq!((ready.accesses, ready.waiting), (Some(1), Some(1)));
    assert_eq!(ready.used_by, ["team/ci"]);
    assert_eq!((ready.managed_clusters, ready.used_by_clusters.len()), (Some(1), 1));
    assert_eq!(condition::find(&ready.conditions, READY).unwrap().status, "True");
    assert_eq!(provider_status((&ready, 1), usage(), Ok(()), at(60)), ready);
    let missing = Err((Reason::KubeconfigMissing, "there is no Secret".to_owned()));
    let missing = provider_status((&ready, 1), usage(), missing, at(60));
    let condition = condition::find(&missing.conditions, READY).unwrap();
    assert_eq!((condition.status.as_str(), condition.reason.as_str()), ("False", "KubeconfigMissing"));
}

#[test]
fn all_that_name_a_provider_are_counted_and_the_first_are_named() {
    let mut usage = Usage::default();
    for n in (10..22).rev() {
        usage.add("team", &format!("ci-{n}"));
        usage.add_cluster("team", &format!("ci-{n}"));
    }
    assert_eq!((usage.accesses, usage.managed_clusters), (12, 12));
    let expected: BTreeSet<String> = (10..20).map(|n| format!("team/ci-{n}")).collect();
    assert_eq!((&usage.used_by, &usage.used_by_clusters), (&expected, &expected));
}
