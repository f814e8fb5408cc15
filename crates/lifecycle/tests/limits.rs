//! Managers work within the limits of the cluster manager that governs their namespace.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::support::{Scene, at, yaml};
use coppice_api::condition::ACCEPTED;
use coppice_api::manager::Phase;
use coppice_api::{DecodeError, Reason, condition};
use coppice_lifecycle::cluster::ValidClusterManager;
use coppice_lifecycle::plan::Step;
use coppice_lifecycle::record::StepOutcome;

/// A ttl of an hour under a cluster manager with this spec.
fn under(then: &str, cluster_manager: &str) -> Scene {
    let mut scene = Scene::policy("{ttl: {after: 1h}}", then);
    scene.cluster_managers = vec![("ci".to_owned(), Ok(yaml(cluster_manager)))];
    scene
}

fn limited(then: &str, limits: &str) -> Scene {
    under(then, &format!("{{mode: Enforce, selector: {{names: ['team-*']}}, limits: {limits}}}"))
}

fn accepted(scene: &Scene) -> (String, String, String) {
    let known = condition::find(&scene.status.conditions, ACCEPTED).unwrap();
    (known.status.clone(), known.reason.clone(), known.message.clone())
}

#[test]
fn a_deletion_is_announced_for_as_long_as_it_has_to_be() {
    for then in ["{delete: {}}", "{delete: {notice: 1m}}"] {
        let mut scene = limited(then, "{minNotice: 15m}");
        assert_eq!(scene.settle(10).next_check, Some(at(2701)), "15 minutes before 1 h and 1 s");
        let said = "spec is valid and permitted by the platform settings; deletions are announced for 15m at least \
                    (spec.limits.minNotice of ClusterNamespaceManager ci)";
        assert_eq!(accepted(&scene), ("True".to_owned(), "Accepted".to_owned(), said.to_owned()));
        scene.settle(2701);
        assert_eq!(scene.event_reasons(), [Reason::DeletionAnnounced]);
        assert_eq!(scene.settle(3600).step, None);
        assert!(scene.settle(3601).step.is_some());
    }
    let mut longer = limited("{delete: {notice: 30m}}", "{minNotice: 15m}");
    assert_eq!(longer.settle(10).next_check, Some(at(1801)));
    assert_eq!(accepted(&longer).2, "spec is valid and permitted by the platform settings");
}

#[test]
fn a_limit_that_comes_while_a_deletion_is_under_way_gives_it_up_and_notice() {
    let mut scene = Scene::policy("{ttl: {after: 1h}}", "{delete: {}}");
    assert!(scene.settle(3601).step.is_some());
    scene.event_reasons();
    scene.cluster_managers = limited("{delete: {}}", "{minNotice: 15m}").cluster_managers;
    assert_eq!(scene.settle(3602).step, None);
    assert_eq!(scene.event_reasons(), [Reason::Abandoned, Reason::DeletionAnnounced]);
    assert!(scene.settle(3602 + 900).step.is_some());
    // The same where it was announced with a shorter notice, which has run.
    let mut scene = Scene::policy("{ttl: {after: 1h}}", "{delete: {notice: 1m}}");
    scene.settle(3541);
    assert!(scene.settle(3601).step.is_some());
    scene.event_reasons();
    scene.cluster_managers = limited("{delete: {}}", "{minNotice: 15m}").cluster_managers;
    assert_eq!(scene.settle(3602).step, None);
    assert_eq!(scene.event_reasons(), [Reason::Abandoned, Reason::DeletionAnnounced]);
    assert_eq!(scene.settle(3602 + 899).step, None);
    assert!(scene.settle(3602 + 900).step.is_some());
    // One that is announced with a shorter notice is announced for longer.
    let mut scene = Scene::policy("{ttl: {after: 1h}}", "{delete: {notice: 1m}}");
    scene.settle(3541);
    scene.cluster_managers = limited("{delete: {}}", "{minNotice: 15m}").cluster_managers;
    scene.settle(3550);
    assert_eq!(scene.status.steps.notice.as_ref().unwrap().not_before, at(3541 + 900));
}

#[test]
fn what_is_not_permitted_is_refused_and_names_the_cluster_manager() {
    let cases = [
        (
            "{delete: {}}",
            "{tenantActions: [scaleDown, webhook]}",
            Reason::ActionNotAllowed,
            "policy \"p\": the action delete is not among tenantActions (spec.limits of ClusterNamespaceManager ci)",
        ),
        ("{scaleDown: {}}", "{tenantActions: []}", Reason::ActionNotAllowed, "the action scaleDown"),
        (
            "{webhook: {url: 'http://a.team-a.svc/x'}}",
            "{webhookHosts: ['ci.example.org']}",
            Reason::HostNotAllowed,
            "policy \"p\": the webhook host \"a.team-a.svc\" is not on the list of permitted hosts; the entry \"a.team-a.svc:80\" \
             in spec.limits.webhookHosts of that ClusterNamespaceManager would permit it (spec.limits of ClusterNamespaceManager ci)",
        ),
        // Permitted here, and not by the settings: nothing is widened.
        (
            "{webhook: {url: 'http://ci.example.org/x'}}",
            "{webhookHosts: ['ci.example.org']}",
            Reason::HostNotAllowed,
            "in spec.tenants.webhookHosts of CoppiceConfig/coppice would permit it",
        ),
    ];
    for (then, limits, reason, message) in cases {
        let mut scene = limited(then, limits);
        assert_eq!(scene.settle(7200).step, None, "{then} {limits}");
        let (status, said, why) = accepted(&scene);
        assert_eq!((&*status, &*said), ("False", reason.as_str()), "{then} {limits}");
        assert!(why.contains(message), "{why}");
        scene.cluster_managers.clear();
        assert_eq!(scene.settle(7201).step.is_some(), !message.contains("CoppiceConfig"));
    }
}

#[test]
fn a_webhook_carries_where_it_may_go() {
    let mut scene = limited("{webhook: {url: 'http://a.team-a.svc/x'}}", "{webhookHosts: ['*.team-a.svc']}");
    let Some(Step::Webhook(_, message)) = scene.settle(7200).step else { panic!("no webhook") };
    let refused = |url: &str| {
        let destination = coppice_destination::Destination::parse(url).unwrap();
        message.limits.as_ref().unwrap().permits_host(&destination, "team-a").is_err()
    };
    assert!(refused("http://b.other.svc/") && !refused("http://b.team-a.svc/"));
}

#[test]
fn only_an_enforcing_cluster_manager_that_governs_the_namespace_limits_it() {
    for spec in [
        "{mode: Observe, selector: {names: ['team-*']}, limits: {tenantActions: []}}",
        "{mode: Enforce, selector: {names: ['other']}, limits: {tenantActions: []}}",
        "{mode: Enforce, selector: {names: ['team-*']}, limits: {maxTTL: 1s, maxHold: 1s}}",
    ] {
        assert!(under("{delete: {}}", spec).settle(7200).step.is_some(), "{spec}");
    }
    // The one that governs counts, whatever others say; also while it is suspended.
    let mut scene = limited("{delete: {}}", "{tenantActions: [delete]}");
    let spec =
        "{mode: Enforce, priority: 9, suspend: true, selector: {names: ['*']}, limits: {tenantActions: []}}";
    scene.cluster_managers.push(("all".to_owned(), Ok(yaml(spec))));
    assert_eq!(scene.settle(7200).step, None);
    assert!(accepted(&scene).2.ends_with("(spec.limits of ClusterNamespaceManager all)"));
}

#[test]
fn while_limits_are_not_known_nothing_is_done() {
    for then in ["{delete: {}}", "{scaleDown: {}}", "{webhook: {url: 'http://a.team-a.svc/x'}}"] {
        let mut scene = Scene::policy("{ttl: {after: 1h}}", then);
        scene.cluster_managers = unknown();
        assert_eq!(scene.settle(7200).step, None, "{then}");
        assert_eq!(scene.next_reason(), "LimitsUnknown");
        assert_eq!(scene.condition(ACCEPTED), ("Unknown", "LimitsUnknown"));
        assert_eq!(scene.ready(), ("Unknown", "LimitsUnknown"));
        assert!(accepted(&scene).2.ends_with(
            "is not known: which cluster manager governs the namespace is not known: ClusterNamespaceManager new cannot be \
             understood: spec cannot be understood: unknown field `later`"
        ));
        scene.cluster_managers.clear();
        assert!(scene.settle(7201).step.is_some(), "{then}");
        // What was decided before waits, too.
        scene.cluster_managers = unknown();
        assert_eq!(scene.settle(7202).step, None, "{then}");
        assert_eq!(scene.next_reason(), "LimitsUnknown");
        assert!(scene.status.steps.intent.is_some());
    }
}

#[test]
fn a_limit_that_comes_or_goes_arms_nothing() {
    let mut scene = Scene::policy("{ttl: {after: 1h}}", "{delete: {}}");
    scene.settle(3601);
    scene.outcome(&StepOutcome::Deleted, 3602);
    scene.settle(3603);
    assert_eq!(scene.next_reason(), "Dormant");
    let digest = scene.status.policies_digest.clone();
    scene.cluster_managers = limited("{delete: {}}", "{minNotice: 15m}").cluster_managers;
    for seconds in [3700, 9000] {
        assert_eq!(scene.settle(seconds).step, None);
        assert_eq!((scene.next_reason(), &scene.status.policies_digest), ("Dormant", &digest));
        scene.cluster_managers.clear();
    }
}

fn unknown() -> Vec<(String, Result<ValidClusterManager, DecodeError>)> {
    vec![("new".to_owned(), Err(DecodeError::Spec { why: "unknown field `later`".to_owned() }))]
}

#[test]
fn limits_that_are_not_known_for_a_moment_change_nothing() {
    // What waits says nothing of it.
    let mut scene = limited("{delete: {}}", "{minNotice: 15m}");
    scene.settle(10);
    let (known, status) = (scene.cluster_managers.clone(), scene.status.clone());
    scene.cluster_managers = unknown();
    scene.settle(11);
    assert_eq!(scene.status, status);
    // What was announced by them stays so.
    scene.cluster_managers = known.clone();
    scene.settle(2701);
    let notice = scene.status.steps.notice.clone();
    scene.event_reasons();
    scene.cluster_managers = unknown();
    scene.settle(2800);
    assert_eq!((scene.status.steps.notice.clone(), scene.event_reasons()), (notice, vec![]));
    scene.cluster_managers = known;
    assert!(scene.settle(3601).step.is_some());
    // What was refused by them stays so, and says so once.
    let mut scene = limited("{delete: {}}", "{tenantActions: []}");
    scene.settle(10);
    assert_eq!(scene.event_reasons(), [Reason::ActionNotAllowed]);
    let (known, status) = (scene.cluster_managers.clone(), scene.status.clone());
    scene.cluster_managers = unknown();
    scene.settle(7200);
    scene.cluster_managers = known;
    scene.settle(7201);
    assert_eq!(scene.event_reasons(), []);
    assert_eq!(scene.status, status);
}

#[test]
fn a_spec_is_not_refused_for_what_the_one_before_asked_for() {
    let mut scene = limited("{delete: {}}", "{tenantActions: [scaleDown]}");
    scene.settle(10);
    assert_eq!((scene.phase(), scene.status.observed_generation), (Phase::Refused, Some(1)));
    // Nothing is known of its namespace when it is changed, and after that not of the limits.
    scene.edit(|s| s.policies[0].then = yaml("{scaleDown: {}}"));
    scene.unseen = true;
    scene.settle(11);
    assert_eq!((scene.condition(ACCEPTED).0, scene.status.observed_generation), ("Unknown", Some(1)));
    (scene.unseen, scene.cluster_managers) = (false, unknown());
    scene.settle(12);
    assert_eq!((scene.phase(), scene.status.observed_generation), (Phase::Active, Some(2)));
    assert_eq!(scene.condition(ACCEPTED), ("Unknown", "LimitsUnknown"));
}

#[test]
fn that_a_namespace_is_not_known_is_said_of_the_first_spec() {
    let mut scene = limited("{delete: {}}", "{tenantActions: [scaleDown]}");
    scene.unseen = true;
    scene.settle(10);
    assert_eq!((scene.condition(ACCEPTED).0, scene.status.observed_generation), ("Unknown", Some(1)));
}

#[test]
fn no_deletion_is_announced_while_limits_are_not_known() {
    let mut scene = limited("{delete: {notice: 1m}}", "{minNotice: 30m}");
    let known = std::mem::replace(&mut scene.cluster_managers, unknown());
    assert_eq!(scene.settle(3550).step, None);
    assert_eq!(scene.event_reasons(), []);
    assert_eq!((scene.next_reason(), &scene.status.steps.notice), ("LimitsUnknown", &None));
    scene.cluster_managers = known;
    assert_eq!(scene.settle(3600).step, None);
    assert_eq!(scene.event_reasons(), [Reason::DeletionAnnounced]);
    let not_before = scene.status.steps.notice.as_ref().unwrap().not_before;
    assert!(
        not_before >= at(3600 + 1800),
        "{not_before}: the notice that is asked for, from when it was given"
    );
}
