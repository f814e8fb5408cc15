//! Cluster managers that select by annotations, and by alternatives.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use coppice_api::{CoppiceConfigSpec, DecodeError, Labels, Reason};
use coppice_lifecycle::PlatformSettings;
use coppice_lifecycle::cluster::census::{Counted, census};
use coppice_lifecycle::cluster::selection::{Criterion, Selection, SelectorPart, contest, selects};
use coppice_lifecycle::cluster::{ClusterManagerFacts, ValidClusterManager};
use coppice_lifecycle::facts::{AnnotationKeys, Annotations, NamespaceFacts};
use jiff::Timestamp;

fn manager(spec: &str) -> ValidClusterManager {
    serde_yaml::from_str(spec).unwrap()
}

fn facts<'a>(name: &'a str, spec: &'a ValidClusterManager) -> ClusterManagerFacts<'a> {
    ClusterManagerFacts { name, uid: name, generation: 1, terminating: false, spec: Ok(spec) }
}

/// `ci-1` with the label `tier: ci`, of which these annotations were read.
fn namespace(read: &AnnotationKeys, annotations: &[(&str, &str)]) -> NamespaceFacts {
    NamespaceFacts {
        name: "ci-1".to_owned(),
        uid: "u".to_owned(),
        resource_version: "1".to_owned(),
        created: Timestamp::UNIX_EPOCH,
        labels: [("tier", "ci")].into_iter().collect::<Labels>(),
        annotations: Annotations::of(read, annotations.iter().copied()),
        terminating: false,
    }
}

/// The part that does not hold and the sentence about it; none of both if all do.
fn said(spec: &str, annotations: &[(&str, &str)]) -> Option<(SelectorPart, String)> {
    match selects(&manager(spec), &namespace(&AnnotationKeys::All, annotations)) {
        Selection::Selected => None,
        Selection::Not(mismatch) => Some((mismatch.part, mismatch.to_string())),
        Selection::Unknown(not_read) => panic!("{not_read}"),
    }
}

#[test]
fn every_annotation_that_is_asked_for_must_be_there() {
    let both = "{selector: {annotations: [{key: example.org/ci, value: 'yes'}, {key: example.org/run}]}}";
    let run = ("example.org/run", "");
    let no_run =
        "spec.selector.annotations asks for example.org/run, which is no annotation of it".to_owned();
    let other =
        "spec.selector.annotations asks for example.org/ci: \"yes\", and its annotation has another value";
    let no_ci = "spec.selector.annotations asks for example.org/ci, which is no annotation of it".to_owned();
    let part = |text: String| Some((SelectorPart::Annotations, text));
    assert_eq!(said(both, &[("example.org/ci", "yes"), run]), None);
    assert_eq!(said(both, &[("example.org/ci", "yes")]), part(no_run));
    assert_eq!(said(both, &[("example.org/ci", "Yes"), run]), part(other.to_owned()));
    assert_eq!(said(both, &[run]), part(no_ci));
    let empty = "{selector: {annotations: [{key: a, value: ''}]}}";
    assert_eq!(said(empty, &[("a", "")]), None);
    assert!(said(empty, &[("a", " ")]).is_some());
    // A selector can ask for 256 characters: of more, the rest is not read, and must not be taken for equal.
    let long = "x".repeat(256);
    let spec = format!("{{selector: {{annotations: [{{key: a, value: {long}}}]}}}}");
    assert_eq!(said(&spec, &[("a", &long)]), None);
    assert!(said(&spec, &[("a", &format!("{long}x"))]).is_some());
    assert!(said(&spec, &[("a", &"x".repeat(1 << 20))]).is_some());
}

#[test]
fn one_alternative_must_hold_besides_every_other_part() {
    let spec = "{selector: {exclude: [ci-2], anyOf: [{names: ['dev-*']}, {labels: {matchLabels: {tier: ci}}, \
                annotations: [{key: run}]}, {annotations: [{key: keep, value: 'no'}]}]}}";
    for annotations in [&[("run", "7")][..], &[("keep", "no")], &[("run", ""), ("keep", "yes")]] {
        assert_eq!(said(spec, annotations), None, "{annotations:?}");
    }
    let expected = "none of spec.selector.anyOf holds: none of anyOf[0].names matches its name; anyOf[1].annotations asks \
                    for run, which is no annotation of it; anyOf[2].annotations asks for keep: \"no\", and its annotation \
                    has another value";
    assert_eq!(said(spec, &[("keep", "yes")]), Some((SelectorPart::AnyOf, expected.to_owned())));
    let names: Vec<_> = (0..8).map(|n| format!("{{names: [n{n}]}}")).collect();
    let many = format!("{{selector: {{anyOf: [{}]}}}}", names.join(", "));
    let expected = "none of spec.selector.anyOf holds: none of anyOf[0].names matches its name; none of anyOf[1].names matches \
                    its name; none of anyOf[2].names matches its name; none of anyOf[3].names matches its name; and 4 more";
    assert_eq!(said(&many, &[]), Some((SelectorPart::AnyOf, expected.to_owned())));
    let also = "{selector: {names: [dev], anyOf: [{names: ['*']}]}}";
    assert_eq!(said(also, &[]).unwrap().0, SelectorPart::Names, "the other parts must hold, too");
}

#[test]
fn labels_come_before_annotations_and_these_before_names() {
    let labels = "{selector: {labels: {matchLabels: {tier: ci}}}}";
    let annotations = "{selector: {annotations: [{key: run}]}}";
    let names = "{selector: {names: ['*']}}";
    let annotations_and_names = "{selector: {names: ['*'], annotations: [{key: run}]}}";
    // What an alternative asks for counts if every one of them does.
    let each_by_labels =
        "{selector: {anyOf: [{labels: {matchLabels: {tier: ci}}}, {labels: {matchLabels: {tier: x}}}]}}";
    let some_by_labels =
        "{selector: {anyOf: [{labels: {matchLabels: {tier: ci}}}, {annotations: [{key: run}]}]}}";
    for (winner, loser, by) in [
        (labels, annotations, Criterion::Selector),
        (labels, annotations_and_names, Criterion::Selector),
        (annotations, names, Criterion::Selector),
        (annotations_and_names, annotations, Criterion::Selector),
        (each_by_labels, annotations_and_names, Criterion::Selector),
        (names, some_by_labels, Criterion::Selector),
        (each_by_labels, labels, Criterion::Name),
    ] {
        let (a, b) = (manager(winner), manager(loser));
        let namespace = namespace(&AnnotationKeys::All, &[("run", "7")]);
        for order in [[facts("a", &a), facts("b", &b)], [facts("b", &b), facts("a", &a)]] {
            let contest = contest(order, &namespace).unwrap();
            let lost: Vec<_> = contest.losers.iter().map(|(loser, why)| (loser.name, *why)).collect();
            assert_eq!((contest.winner.unwrap().name, lost), ("a", vec![("b", by)]), "{winner} {loser}");
            assert!(contest.complete);
        }
    }
}

#[test]
fn an_annotation_that_was_not_read_is_not_absent() {
    let other = AnnotationKeys::named(["example.org/other"]);
    let selection = |spec: &str, annotations: &[(&str, &str)]| match selects(
        &manager(spec),
        &namespace(&other, annotations),
    ) {
        Selection::Selected => "selected".to_owned(),
        Selection::Not(mismatch) => format!("{:?}", mismatch.part),
        Selection::Unknown(not_read) => not_read.key.to_owned(),
    };
    for (spec, expected) in [
        ("{selector: {annotations: [{key: run}]}}", "run"),
        ("{selector: {annotations: [{key: run, value: x}, {key: ci}]}}", "run"),
        // What is known is enough.
        ("{selector: {names: [dev], annotations: [{key: run}]}}", "Names"),
        ("{selector: {annotations: [{key: run}, {key: example.org/other}]}}", "Annotations"),
        ("{selector: {labels: {matchLabels: {tier: x}}, annotations: [{key: run}]}}", "Labels"),
        ("{selector: {annotations: [{key: run}], anyOf: [{names: [dev]}]}}", "AnyOf"),
        ("{selector: {annotations: [{key: run}], anyOf: [{names: ['*']}]}}", "run"),
        ("{selector: {anyOf: [{annotations: [{key: run}]}, {names: ['*']}]}}", "selected"),
        ("{selector: {anyOf: [{annotations: [{key: run}]}, {names: [dev]}]}}", "run"),
    ] {
        // Though it has the annotation, that is not known.
        assert_eq!(selection(spec, &[("run", "7")]), expected, "{spec}");
    }
}

#[test]
fn who_governs_is_known_if_what_was_not_read_cannot_change_it() {
    let by_names = manager("{selector: {names: ['*']}}");
    let before = manager("{priority: 1, selector: {annotations: [{key: run}]}}");
    let after = manager("{priority: -1, selector: {annotations: [{key: run}]}}");
    let (unread, read) = (AnnotationKeys::default(), AnnotationKeys::named(["run"]));
    for order in [[facts("a", &by_names), facts("b", &before)], [facts("b", &before), facts("a", &by_names)]]
    {
        let unknown = contest(order, &namespace(&unread, &[])).unwrap_err();
        assert_eq!(unknown.reason(), Reason::AnnotationsNotRead);
        assert_eq!(
            unknown.to_string(),
            "which cluster manager governs the namespace is not known: ClusterNamespaceManager b selects by an annotation, and \
             the annotation run of namespaces has not been read yet"
        );
        let winner =
            |annotations| contest(order, &namespace(&read, annotations)).unwrap().winner.unwrap().name;
        assert_eq!((winner(&[("run", "")]), winner(&[])), ("b", "a"));
    }
    let one = [facts("a", &by_names), facts("b", &after)];
    let known = contest(one, &namespace(&unread, &[])).unwrap();
    assert_eq!((known.winner.unwrap().name, known.complete), ("a", false), "it would come after the winner");
    assert!(contest([facts("b", &after)], &namespace(&unread, &[])).is_err(), "it may govern");
    let bad = DecodeError::Spec { why: "bad".to_owned() };
    let broken = ClusterManagerFacts { spec: Err(&bad), ..facts("c", &by_names) };
    let unknown = contest([facts("b", &before), broken], &namespace(&unread, &[])).unwrap_err();
    assert_eq!(unknown.reason(), Reason::InvalidSpec);
}

#[test]
fn nothing_is_counted_before_all_is_read() {
    let (by_names, after) = (
        manager("{selector: {names: ['*']}}"),
        manager("{priority: -1, selector: {annotations: [{key: run}]}}"),
    );
    let managers = [facts("a", &by_names), facts("b", &after)];
    let settings = PlatformSettings::new(CoppiceConfigSpec::default(), "", Vec::new());
    let count = |read: &AnnotationKeys| {
        let namespace = namespace(read, &[("run", "")]);
        let counted = Counted { namespace: &namespace, record: None, managed: false };
        let census = census([counted], &managers, &settings, 0, Timestamp::UNIX_EPOCH)?;
        Some(census.managers["b"].namespaces.selected)
    };
    assert_eq!(count(&AnnotationKeys::default()), None, "as many as it may select");
    assert_eq!(count(&AnnotationKeys::named(["run"])), Some(1));
}

#[test]
fn what_the_api_server_would_refuse_is_refused_here_too() {
    let long = "x".repeat(257);
    let long = format!("{{annotations: [{{key: a, value: {long}}}]}}");
    for (selector, expected) in [
        ("{annotations: []}", "selector.annotations is empty: leave it out"),
        ("{anyOf: []}", "selector.anyOf is empty: leave it out"),
        ("{names: [a], anyOf: [{}]}", "selector.anyOf[0]: select by names, labels or annotations"),
        (
            "{anyOf: [{names: [a]}, {exclude: [b]}]}",
            "selector.anyOf[1]: select by names, labels or annotations",
        ),
        ("{anyOf: [{names: []}]}", "selector.anyOf[0].names is empty"),
        ("{anyOf: [{names: [a], annotations: []}]}", "selector.anyOf[0].annotations is empty"),
        ("{annotations: [{key: a}, {key: a, value: b}]}", "selector.annotations names a twice"),
        ("{annotations: [{key: ''}]}", "selector.annotations has the key \"\": write an annotation's key"),
        ("{anyOf: [{annotations: [{key: a b}]}]}", "selector.anyOf[0].annotations has the key \"a b\""),
        (&*long, "selector.annotations asks for a value of more than 256 characters"),
        ("{names: [a], anyOf: [{anyOf: [{names: [a]}]}]}", "selector.anyOf[0]: unknown field `anyOf`"),
    ] {
        let spec = format!("{{selector: {selector}}}");
        let error = serde_yaml::from_str::<ValidClusterManager>(&spec).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{spec}: {error}");
    }
}

#[test]
fn digests_of_selectors_stay_the_same_across_versions() {
    // Another digest makes every namespace settle again, at an upgrade.
    for (spec, expected) in [
        ("{selector: {names: ['ci-*']}}", "c1:2de1cbf6e248fecb"),
        ("{selector: {names: [b, a], exclude: [c]}, settle: 1h}", "c1:72a579b06958a201"),
        (
            "{mode: Enforce, selector: {labels: {matchLabels: {tier: ci}}}, ttl: {after: 2h}}",
            "c1:69b46974ea12a946",
        ),
        ("{selector: {annotations: [{key: a, value: b}, {key: c}]}}", "c1:0830c1f25411bc36"),
        (
            "{selector: {anyOf: [{names: [a]}, {annotations: [{key: c}], exclude: [b]}]}}",
            "c1:8c027e3c187d1864",
        ),
        (
            "{selector: {names: [a]}, policies: [{name: p, when: {podsSucceed: {settle: 1m}}, then: {webhook: {url: 'https://x.example', \
             format: consol}}}]}",
            "c1:7692a1ac65cb5aec",
        ),
    ] {
        assert_eq!(manager(spec).digest(), expected, "{spec}");
    }
    let same = [
        "{selector: {names: [x], annotations: [{key: a}, {key: b, value: c}], anyOf: [{names: [a, b]}, {names: [c]}]}}",
        "{selector: {names: [x], annotations: [{key: b, value: c}, {key: a}], anyOf: [{names: [c]}, {names: [b, a]}]}}",
    ];
    assert_eq!(manager(same[0]).digest(), manager(same[1]).digest(), "the order means nothing");
    let different = [
        "{selector: {names: [a]}}",
        "{selector: {anyOf: [{names: [a]}]}}",
        "{selector: {names: [a], anyOf: [{names: [a]}]}}",
        "{selector: {anyOf: [{names: [a]}, {names: [b]}]}}",
        "{selector: {anyOf: [{names: [a, b]}]}}",
        "{selector: {annotations: [{key: a}]}}",
        "{selector: {annotations: [{key: a, value: ''}]}}",
        "{selector: {annotations: [{key: a, value: b}]}}",
        "{selector: {annotations: [{key: a}, {key: b}]}}",
        "{selector: {anyOf: [{annotations: [{key: a}, {key: b}]}]}}",
        "{selector: {anyOf: [{annotations: [{key: a}]}, {annotations: [{key: b}]}]}}",
    ];
    let digests: std::collections::BTreeSet<_> =
        different.map(|spec| manager(spec).digest().to_owned()).into();
    assert_eq!(digests.len(), different.len());
}
