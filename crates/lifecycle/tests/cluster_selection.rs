//! Which cluster manager governs a namespace, why another does not, and what is counted of it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use coppice_api::cluster_manager::{DueCounts, GovernedBy, NamespaceCounts, PolicyDue};
use coppice_api::health::HealthReason;
use coppice_api::managed_namespace::GoverningManager;
use coppice_api::{CoppiceConfigSpec, DecodeError, Labels, ManagedNamespaceSpec, ManagedNamespaceStatus};
use coppice_lifecycle::PlatformSettings;
use coppice_lifecycle::cluster::census::{Counted, census};
use coppice_lifecycle::cluster::selection::{Criterion, Selection, SelectorPart, contest, selects};
use coppice_lifecycle::cluster::{ClusterManagerFacts, RecordFacts, ValidClusterManager};
use coppice_lifecycle::facts::{Annotations, NamespaceFacts};
use jiff::Timestamp;

fn manager(spec: &str) -> ValidClusterManager {
    serde_yaml::from_str(spec).unwrap()
}

fn namespace(name: &str, labels: &[(&str, &str)]) -> NamespaceFacts {
    NamespaceFacts {
        name: name.to_owned(),
        uid: "u".to_owned(),
        resource_version: "1".to_owned(),
        created: Timestamp::UNIX_EPOCH,
        labels: labels.iter().copied().collect::<Labels>(),
        annotations: Annotations::default(),
        terminating: false,
    }
}

#[test]
fn every_part_that_is_given_must_hold_and_the_first_that_does_not_is_named() {
    let spec =
        "{selector: {names: ['ci-*', dev], exclude: ['ci-keep-*'], labels: {matchLabels: {tier: ci}}}}";
    let manager = manager(spec);
    let ci = [("tier", "ci")];
    for (name, labels, expected) in [
        ("ci-42", &ci[..], None),
        ("dev", &ci, None),
        ("cilium-secrets", &ci, Some((SelectorPart::Names, "none of spec.selector.names matches its name"))),
        ("my-ci-42", &ci, Some((SelectorPart::Names, "none of spec.selector.names matches its name"))),
        (
            "ci-keep-1",
            &ci,
            Some((SelectorPart::Exclude, "\"ci-keep-*\" of spec.selector.exclude matches its name")),
        ),
        ("ci-42", &[], Some((SelectorPart::Labels, "spec.selector.labels does not match its labels"))),
    ] {
        let found = match selects(&manager, &namespace(name, labels)) {
            Selection::Not(mismatch) => Some((mismatch.part, mismatch.to_string())),
            Selection::Selected => None,
            Selection::Unknown(not_read) => panic!("{not_read}"),
        };
        assert_eq!(found, expected.map(|(part, text)| (part, text.to_owned())), "{name} {labels:?}");
    }
}

/// Who governs `ci-1` with the label `tier: ci`, and who does not, by what; whatever the order of the managers.
fn governs(managers: &[(&str, &str)]) -> (Option<String>, Vec<(String, Criterion)>) {
    let specs: Vec<_> = managers.iter().map(|(name, spec)| (*name, manager(spec))).collect();
    let facts = |(name, spec)| ClusterManagerFacts {
        name,
        uid: name,
        generation: 1,
        terminating: false,
        spec: Ok(spec),
    };
    let all: Vec<_> = specs.iter().map(|(name, spec)| facts((*name, spec))).collect();
    let result = |order: Vec<ClusterManagerFacts<'_>>| {
        let contest = contest(order, &namespace("ci-1", &[("tier", "ci")])).unwrap();
        let mut losers: Vec<_> =
            contest.losers.iter().map(|(loser, why)| (loser.name.to_owned(), *why)).collect();
        losers.sort_by(|a, b| a.0.cmp(&b.0));
        (contest.winner.map(|winner| winner.name.to_owned()), losers)
    };
    let (one, other) = (result(all.clone()), result(all.into_iter().rev().collect()));
    assert_eq!(one, other, "the order of the managers does not matter");
    one
}

#[test]
fn who_enforces_comes_first_then_priority_then_the_selector_then_the_name() {
    let names = "{mode: Enforce, selector: {names: ['*']}}";
    let labels = "{mode: Enforce, selector: {labels: {matchLabels: {tier: ci}}}}";
    let both = "{mode: Enforce, selector: {names: ['*'], labels: {matchLabels: {tier: ci}}}}";
    let first = "{mode: Enforce, priority: 1, selector: {names: ['*']}}";
    let observing = "{priority: 9, selector: {labels: {matchLabels: {tier: ci}}}}";
    for (a, b, by) in [
        (names, observing, Criterion::Mode),
        (first, both, Criterion::Priority),
        (labels, names, Criterion::Selector),
        (both, labels, Criterion::Selector),
        (names, names, Criterion::Name),
        (observing, "{selector: {labels: {matchLabels: {tier: ci}}}}", Criterion::Priority),
    ] {
        let (winner, losers) = governs(&[("a", a), ("b", b)]);
        assert_eq!((winner.as_deref(), losers), (Some("a"), vec![("b".to_owned(), by)]), "{a} {b}");
    }
    assert_eq!(governs(&[("a", "{selector: {names: [other]}}")]), (None, vec![]));
    // One that is suspended keeps what it governs: to suspend it must not let another one act.
    let suspended = "{mode: Enforce, suspend: true, priority: 1, selector: {names: ['*']}}";
    assert_eq!(governs(&[("a", suspended), ("b", names)]).0.as_deref(), Some("a"));
}

#[test]
fn where_one_cannot_be_understood_nobody_knows_who_governs() {
    let good = manager("{selector: {names: ['*']}}");
    let bad = DecodeError::Spec { why: "bad".to_owned() };
    let facts =
        |spec, terminating| ClusterManagerFacts { name: "x", uid: "x", generation: 1, terminating, spec };
    let namespace = namespace("ci-1", &[]);
    let unknown = contest([facts(Ok(&good), false), facts(Err(&bad), false)], &namespace).unwrap_err();
    assert_eq!(
        unknown.to_string(),
        "which cluster manager governs the namespace is not known: ClusterNamespaceManager x cannot be understood: spec cannot be understood: bad"
    );
    let deleted = contest([facts(Err(&bad), true), facts(Ok(&good), true)], &namespace).unwrap();
    assert!(deleted.winner.is_none(), "the policies of one that is being deleted do not apply");
}

#[test]
fn what_the_api_server_would_refuse_is_refused_here_too() {
    let policy = "{name: p, when: {phase: {in: [Stale]}}, then: {delete: {}}}";
    for (spec, expected) in [
        ("{selector: {}}".to_owned(), "selector: select by names, labels, annotations or anyOf"),
        ("{selector: {exclude: [a]}}".to_owned(), "selector: select by names, labels, annotations or anyOf"),
        ("{selector: {names: []}}".to_owned(), "selector.names is empty"),
        ("{selector: {names: [a], labels: {}}}".to_owned(), "selector.labels is empty"),
        ("{selector: {names: [a]}, ttl: {after: 0s}}".to_owned(), "ttl.after must be at least 1s"),
        (
            format!("{{selector: {{names: [a]}}, policies: [{policy}, {policy}]}}"),
            "two policies are called \"p\"",
        ),
        (
            "{selector: {names: [a]}, policies: [{name: p, when: {}, then: {delete: {}}}]}".to_owned(),
            "policy \"p\": write exactly one condition in when",
        ),
        (
            "{selector: {names: [a]}, policies: [{name: p, when: {phase: {in: [Stale]}}, then: {}}]}"
                .to_owned(),
            "policy \"p\": write exactly one action in then",
        ),
    ] {
        let error = serde_yaml::from_str::<ValidClusterManager>(&spec).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{spec}: {error}");
    }
}

#[test]
fn the_digest_is_of_what_decides() {
    let policies = "policies: [{name: a, when: {phase: {in: [Stale]}}, then: {delete: {}}}, \
                    {name: b, when: {phase: {in: [Stale], for: 1h}}, then: {delete: {notice: 5m}}}]";
    let spec = |more: &str| {
        manager(&format!("{{selector: {{names: [a, b]}}, ttl: {{after: 2h}}, {policies}{more}}}"))
    };
    let digest = spec("").digest().to_owned();
    // Written to records: another digest makes every namespace settle again.
    assert_eq!(digest, "c1:b6a67a04e5e1a2e7");
    assert_eq!(spec(", suspend: true").digest(), digest, "suspend decides nothing");
    assert_eq!(spec(", settle: 300s, mode: Observe, priority: 0").digest(), digest, "defaults");
    let reordered = "{selector: {names: [b, a]}, ttl: {after: 120m}, \
                     policies: [{name: b, when: {phase: {in: [Stale], for: 60m}}, then: {delete: {notice: 300s}}}, \
                     {name: a, when: {phase: {in: [Stale]}}, then: {delete: {}}}]}";
    assert_eq!(manager(reordered).digest(), digest, "the order means nothing");
    let written = spec(
        ", health: {sources: [Workloads], settlingPeriod: 7m, gracePeriod: 2m, recoveryPeriod: 1m, failureBudget: {window: 1h, max: \
         20m}}",
    );
    let partly = spec(", health: {settlingPeriod: 7m}");
    let advising =
        spec(", health: {settlingPeriod: 7m, advice: [{reason: OOMKilled, text: ask the platform team}]}");
    assert_eq!(partly.digest(), advising.digest(), "advice decides nothing");
    let advice = |spec: &ValidClusterManager, reason: HealthReason| {
        spec.health.as_ref().map(|health| health.advice(reason).to_owned()).unwrap_or_default()
    };
    assert_eq!(advice(&advising, HealthReason::OOMKilled), "ask the platform team");
    assert_eq!(advice(&advising, HealthReason::VolumeLost), HealthReason::VolumeLost.advice());
    assert_eq!(advice(&partly, HealthReason::OOMKilled), HealthReason::OOMKilled.advice());
    assert_eq!(partly.digest(), written.digest(), "what is not written of a block has its own default");
    for change in [", mode: Enforce", ", priority: 1", ", settle: 6m"] {
        assert_ne!(spec(change).digest(), digest, "{change}");
    }
    let mut all = std::collections::BTreeSet::from([digest]);
    for other in [
        format!("{{selector: {{names: [a]}}, ttl: {{after: 2h}}, {policies}}}"),
        format!("{{selector: {{names: [a, b], exclude: [c]}}, ttl: {{after: 2h}}, {policies}}}"),
        format!(
            "{{selector: {{names: [a, b], labels: {{matchLabels: {{c: d}}}}}}, ttl: {{after: 2h}}, {policies}}}"
        ),
        format!("{{selector: {{names: [a, b]}}, ttl: {{after: 3h}}, {policies}}}"),
        "{selector: {names: [a, b]}, ttl: {after: 2h}}".to_owned(),
        policies_of("mode: Observe, "),
        policies_of("mode: Enforce, "),
    ] {
        assert!(all.insert(manager(&other).digest().to_owned()), "{other}");
    }
}

fn policies_of(mode: &str) -> String {
    format!(
        "{{selector: {{names: [a, b]}}, ttl: {{after: 2h}}, policies: [{{name: a, {mode}when: {{phase: {{in: [Stale]}}}}, \
         then: {{delete: {{}}}}}}]}}"
    )
}

/// Four namespaces that `ci` governs with a ttl of 100 s, one of them with a hold, one protected; one that `dev` governs
/// although `ci` selects it, too; and one that neither selects.
#[test]
fn each_manager_is_counted_what_it_selects_governs_and_finds_due() {
    let policies = "policies: [{name: end, when: {phase: {in: [Stale]}}, then: {delete: {}}}, \
                    {name: much later, when: {phase: {in: [Stale], for: 1h}}, then: {delete: {}}}]";
    let ci = manager(&format!("{{selector: {{names: ['ci-*']}}, ttl: {{after: 100s}}, {policies}}}"));
    let dev =
        manager(&format!("{{mode: Enforce, selector: {{names: [ci-dev]}}, ttl: {{after: 1h}}, {policies}}}"));
    let facts = |name, spec| ClusterManagerFacts {
        name,
        uid: name,
        generation: 1,
        terminating: false,
        spec: Ok(spec),
    };
    let managers = [facts("ci", &ci), facts("dev", &dev)];
    let at = |seconds| Timestamp::from_second(seconds).unwrap();
    let manager = GoverningManager {
        name: "ci".to_owned(),
        uid: "ci".to_owned(),
        digest: ci.digest().to_owned(),
        generation: 1,
        since: at(0),
    };
    let status = ManagedNamespaceStatus { manager: Some(manager), ..ManagedNamespaceStatus::default() };
    let spec = serde_yaml::from_str("{hold: {until: '1970-01-01T00:05:00Z'}}").unwrap();
    let (free, held): (ManagedNamespaceSpec, ManagedNamespaceSpec) = (ManagedNamespaceSpec::default(), spec);
    let record =
        |spec| RecordFacts { uid: "r", generation: 1, terminating: false, spec: Ok(spec), status: &status };
    let protected = [("coppice.dev/protected", "")];
    let all = [
        (namespace("ci-1", &[]), Some(&free)),
        (namespace("ci-2", &[]), Some(&held)),
        (namespace("ci-3", &protected), Some(&free)),
        (namespace("ci-4", &[]), None),
        (namespace("ci-dev", &[]), None),
        (namespace("other", &[]), None),
    ];
    let settings = PlatformSettings::new(CoppiceConfigSpec::default(), "coppice-system", Vec::new());
    let counted = |now| {
        let namespaces = all.iter().map(|(namespace, spec)| Counted {
            namespace,
            record: spec.map(record),
            managed: &*namespace.name == "ci-1",
        });
        census(namespaces, &managers, &settings, 0, now).unwrap()
    };
    let before = counted(at(100));
    assert_eq!((before.managers["ci"].enforce.due, before.next_check), (0, Some(at(101))));
    let after = counted(at(101));
    let governed_by = vec![GovernedBy { name: "dev".to_owned(), namespaces: 1 }];
    let expected =
        NamespaceCounts { selected: 5, governed: 4, recorded: 3, governed_by, ..NamespaceCounts::default() };
    assert_eq!(after.managers["ci"].namespaces, expected);
    let due = DueCounts {
        due: 2,
        newly_due: 0,
        per_hour: 0,
        hourly_budget: 10,
        policies: vec![PolicyDue { name: "end".to_owned(), due: 2 }],
        sample: vec!["ci-1".to_owned(), "ci-4".to_owned()],
    };
    assert_eq!(after.managers["ci"].enforce, due);
    assert_eq!(after.next_check, Some(at(300)), "the hold ends");
    let dev = &after.managers["dev"];
    assert_eq!((dev.namespaces.selected, dev.namespaces.governed, dev.enforce.due), (1, 1, 0));
    assert_eq!(after.enforced, 1, "only what an enforcing manager governs counts for the budget");
}

#[test]
fn the_budget_counts_what_a_policy_may_act_upon() {
    const POLICY: &str = "policies: [{name: end, when: {phase: {in: [Stale]}}, then: {delete: {}}}]";
    let enforced = |spec: &str, labels: &[(&str, &str)], terminating: bool| {
        let manager = manager(&format!("{{selector: {{names: ['*']}}, ttl: {{after: 1h}}, {spec}}}"));
        let facts = ClusterManagerFacts {
            name: "all",
            uid: "u",
            generation: 1,
            terminating: false,
            spec: Ok(&manager),
        };
        let namespace = NamespaceFacts { terminating, ..namespace("ci-1", labels) };
        let settings = PlatformSettings::new(CoppiceConfigSpec::default(), "coppice-system", Vec::new());
        let counted = [Counted { namespace: &namespace, record: None, managed: false }];
        let census = census(counted, &[facts], &settings, 0, Timestamp::UNIX_EPOCH).unwrap();
        (census.enforced, census.managers["all"].namespaces.governed)
    };
    assert_eq!(enforced(&format!("mode: Enforce, {POLICY}"), &[], false), (1, 1));
    assert_eq!(enforced(POLICY, &[], false), (0, 1), "it observes");
    assert_eq!(enforced("mode: Enforce", &[], false), (0, 1), "it has no policy");
    assert_eq!(enforced(&format!("mode: Enforce, suspend: true, {POLICY}"), &[], false), (0, 1));
    let protected = [("coppice.dev/protected", "")];
    assert_eq!(enforced(&format!("mode: Enforce, {POLICY}"), &protected, false), (0, 1));
    assert_eq!(enforced(&format!("mode: Enforce, {POLICY}"), &[], true), (0, 0), "it is going already");
    let parent = [("coppice.dev/has-children", "")];
    assert_eq!(enforced(&format!("mode: Enforce, {POLICY}"), &parent, false), (0, 1), "it has subnamespaces");
    let scale_down = POLICY.replace("delete", "scaleDown");
    assert_eq!(enforced(&format!("mode: Enforce, {scale_down}"), &parent, false), (1, 1));
}

#[test]
fn a_field_that_this_version_does_not_know_is_refused() {
    for spec in [
        "{selector: {names: ['*'], namespaces: [a]}}",
        "{selector: {names: ['*']}, notify: {channels: [a], by: mail}}",
        "{selector: {names: ['*']}, ttl: {after: 1h, from: a}}",
        "{selector: {names: ['*']}, ttl: {after: 1h}, policies: [{name: a, when: {phase: {in: [Stale]}, idle: {}}, then: {delete: {}}}]}",
    ] {
        let decoded = serde_yaml::from_str::<ValidClusterManager>(spec);
        assert!(decoded.is_err_and(|error| error.to_string().contains("unknown field")), "{spec}");
    }
    let zero = serde_yaml::from_str::<ValidClusterManager>("{selector: {names: ['*']}, settle: 0s}");
    assert!(zero.is_err_and(|error| error.to_string().contains("settle must be at least 1s")));
}
