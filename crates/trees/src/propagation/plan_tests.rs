use coppice_api::Labels;
use coppice_kinds::{LimitRanges, NamespaceTrees, NetworkPolicies, RoleBindings};
use coppice_lifecycle::facts::{Annotations, NamespaceFacts};
use coppice_runtime::kind::Kind;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::position::Position;

fn read<K: Kind<Context = ()>>(object: Value) -> Arc<K::Object> {
    Arc::new(K::project(serde_json::from_value(object).unwrap(), &()).unwrap())
}

/// A `RoleBinding` of a user; a copy says of what.
fn binding(namespace: &str, name: &str, role: &str, user: &str, of: Option<(&str, &str)>) -> Arc<Propagated> {
    let kind = if role == "own" { "Role" } else { "ClusterRole" };
    let mut metadata = json!({"name": name, "namespace": namespace, "uid": format!("{namespace}/{name}/{role}"),
        "resourceVersion": "1"});
    if let Some((namespace, uid)) = of {
        metadata["labels"] = json!({"coppice.dev/propagated-from": namespace});
        metadata["annotations"] = json!({"coppice.dev/propagated-uid": uid});
    }
    read::<RoleBindings>(json!({"metadata": metadata, "roleRef": {"kind": kind, "name": role},
        "subjects": [{"kind": "User", "name": user}]}))
}

fn source(namespace: &str, name: &str, role: &str, user: &str) -> Arc<Propagated> {
    binding(namespace, name, role, user, None)
}

/// A faithful copy in the namespace that is looked at.
fn copy(of: &Propagated) -> Arc<Propagated> {
    let here: Box<str> = "a-b-c".into();
    let origin = Some(Origin { namespace: of.namespace.clone(), uid: of.uid.clone() });
    Arc::new(Propagated { namespace: here, uid: format!("copy-of-{}", of.uid).into(), origin, ..of.clone() })
}

fn in_tree(propagate: &Value) -> Place {
    let metadata = json!({"name": "t", "uid": "t", "resourceVersion": "1"});
    let spec = json!({"root": "a", "quota": {"hard": {"pods": "1"}}, "propagate": propagate});
    let tree = read::<NamespaceTrees>(json!({"metadata": metadata, "spec": spec}));
    assert!(tree.decoded().is_ok(), "{:?}", tree.spec);
    Place::In(Position::new(
        &tree,
        tree.spec.as_ref().unwrap(),
        vec!["a".into(), "a-b".into(), "a-b-c".into()],
    ))
}

/// A namespace with two above it.
fn observation(above: [Vec<Arc<Propagated>>; 2], own: Vec<Arc<Propagated>>) -> Observation {
    let namespace = NamespaceFacts {
        name: "a-b-c".to_owned(),
        uid: "u".to_owned(),
        resource_version: "1".to_owned(),
        created: jiff::Timestamp::UNIX_EPOCH,
        labels: [("", ""); 0].into_iter().collect::<Labels>(),
        annotations: Annotations::default(),
        terminating: false,
    };
    Observation {
        namespace: Some(Arc::new(namespace)),
        place: in_tree(&json!({})),
        creator: None,
        limited: true,
        above: above.into(),
        own,
        stale: None,
    }
}

fn steps(observation: &Observation) -> Vec<Step> {
    plan(observation).steps
}

/// Status, reason and message.
fn said(observation: &Observation) -> Option<(&'static str, String, String)> {
    plan(observation).state().map(|state| (state.status, state.reason, state.message))
}

#[test]
fn role_bindings_to_the_roles_of_the_tree_are_copied_and_no_others() {
    let (admin, view) = (source("a", "admins", "admin", "alice"), source("a-b", "viewers", "view", "bob"));
    let others = [source("a", "x", "cluster-admin", "eve"), source("a-b", "y", "own", "eve")];
    let above = [vec![view.clone(), others[1].clone()], vec![admin.clone(), others[0].clone()]];
    let before = observation(above.clone(), Vec::new());
    let wanted = [Step::Create(admin.clone()), Step::Create(view.clone())];
    assert_eq!(steps(&before), wanted);
    let after = observation(above, vec![copy(&admin), copy(&view)]);
    assert_eq!(steps(&after), []);
    assert_eq!(said(&after).unwrap().0, "True");
    // With other roles, others.
    let place = in_tree(&json!({"roleBindings": {"clusterRoles": ["cluster-admin"]}}));
    let other = Observation { place, ..after };
    let step_of = |step: &Step| matches!(step, Step::Delete(copy) if copy.origin.is_some());
    let planned = steps(&other);
    assert_eq!(planned[0], Step::Create(others[0].clone()));
    assert!(planned.len() == 3 && planned[1..].iter().all(step_of), "{planned:?}");
}

#[test]
fn the_nearest_of_a_name_wins_and_a_copy_is_no_source() {
    let (far, near) = (source("a", "team", "admin", "alice"), source("a-b", "team", "admin", "bob"));
    let passed_on = binding("a-b", "other", "admin", "alice", Some(("a", "gone")));
    let above = [vec![near.clone(), passed_on], vec![far.clone()]];
    assert_eq!(steps(&observation(above.clone(), Vec::new())), [Step::Create(near.clone())]);
    let own = copy(&far);
    let update = Step::Update { copy: own.clone(), source: near };
    assert_eq!(steps(&observation(above, vec![own])), [update]);
}

#[test]
fn what_somebody_made_of_a_copy_is_put_right() {
    let admin = source("a", "team", "admin", "alice");
    let above = || [Vec::new(), vec![admin.clone()]];
    let subjects = Arc::new(Propagated {
        content: source("a", "team", "admin", "eve").content.clone(),
        ..(*copy(&admin)).clone()
    });
    let update = Step::Update { copy: subjects.clone(), source: admin.clone() };
    assert_eq!(steps(&observation(above(), vec![subjects])), [update]);
    // The role of a RoleBinding cannot be changed.
    let role = Arc::new(Propagated { cluster_role: Some("edit".into()), ..(*copy(&admin)).clone() });
    let replaced = observation(above(), vec![Arc::new(Propagated { content: None, ..(*role).clone() })]);
    assert!(matches!(&steps(&replaced)[..], [Step::Delete(_)]), "{:?}", plan(&replaced));
    assert_eq!(said(&replaced), None, "it is not done yet");
    // Another of the same name has taken the place of the source.
    let again = Arc::new(Propagated { uid: "again".into(), ..(*admin).clone() });
    let planned = steps(&observation([Vec::new(), vec![again]], vec![copy(&admin)]));
    assert!(matches!(&planned[..], [Step::Update { .. }]), "{planned:?}");
}

/// A `LimitRange` or a `NetworkPolicy`.
fn limiting(kind: CopiedKind, namespace: &str, name: &str, spec: &Value) -> Arc<Propagated> {
    let uid = format!("{namespace}/{name}/{}", kind.as_str());
    let metadata = json!({"name": name, "namespace": namespace, "uid": uid, "resourceVersion": "1"});
    let object = json!({"metadata": metadata, "spec": spec});
    match kind {
        CopiedKind::LimitRange => read::<LimitRanges>(object),
        CopiedKind::NetworkPolicy => read::<NetworkPolicies>(object),
        CopiedKind::RoleBinding => unreachable!("it has no spec"),
    }
}

#[test]
fn limit_ranges_and_network_policies_are_copied_where_the_tree_says_so_and_before_anybody_has_rights() {
    let limits = limiting(CopiedKind::LimitRange, "a", "team", &json!({"limits": []}));
    let network = limiting(CopiedKind::NetworkPolicy, "a-b", "team", &json!({"podSelector": {}}));
    let admin = source("a", "team", "admin", "alice");
    let above = || [vec![network.clone()], vec![admin.clone(), limits.clone()]];
    // By default they stay where they are; and what has been copied does, too.
    assert_eq!(steps(&observation(above(), vec![copy(&limits)])), [Step::Create(admin.clone())]);
    let place =
        || in_tree(&json!({"limitRanges": {"mode": "Propagate"}, "networkPolicies": {"mode": "Propagate"}}));
    let new = Observation { place: place(), ..observation(above(), Vec::new()) };
    let created = [&limits, &network, &admin].map(|source| Step::Create(source.clone()));
    assert_eq!(steps(&new), created, "one name, three kinds, rights last");
    let limited = Observation { limited: false, ..new };
    assert_eq!(steps(&limited), created[..2], "without a quota there are limits, and no rights");
    assert_eq!(said(&limited), None, "it is not all there");
    let all = vec![copy(&limits), copy(&network), copy(&admin)];
    let there = Observation { place: place(), ..observation(above(), all) };
    assert_eq!((steps(&there).len(), said(&there).unwrap().0), (0, "True"));
    let message = said(&there).unwrap().2;
    assert_eq!(
        message,
        "the namespace has the LimitRanges, NetworkPolicies, RoleBindings that are copied from those above it"
    );
    // Each kind by itself.
    let place =
        in_tree(&json!({"limitRanges": {"mode": "Remove"}, "networkPolicies": {"mode": "Propagate"}}));
    let removed = Observation { place, ..there };
    assert_eq!(steps(&removed), [Step::Delete(copy(&limits))]);
    let message = said(&removed).unwrap().2;
    let expected = "no copies of LimitRanges (spec.propagate.limitRanges of the NamespaceTree: Remove)";
    assert!(message.contains(expected), "{message}");
}

#[test]
fn an_object_says_into_which_namespaces_it_is_copied() {
    let to = |source: &Arc<Propagated>, text: &str| {
        Arc::new(Propagated { propagate_to: Some(text.into()), ..(**source).clone() })
    };
    let (near, far) = (source("a-b", "team", "admin", "alice"), source("a", "team", "admin", "bob"));
    let observed = |near: &Arc<Propagated>, own: &[Arc<Propagated>]| {
        let mut observed = observation([vec![near.clone()], vec![far.clone()]], own.to_vec());
        let namespace = NamespaceFacts {
            labels: [("stage", "test"), ("web.tree.coppice.dev/depth", "1")].into_iter().collect(),
            ..(**observed.namespace.as_ref().unwrap()).clone()
        };
        observed.namespace = Some(Arc::new(namespace));
        observed
    };
    let below = "web.tree.coppice.dev/depth,!web-test.tree.coppice.dev/depth,!web-old.tree.coppice.dev/depth";
    for text in ["stage=test", "stage", "!other", below] {
        let near = to(&near, text);
        assert_eq!(steps(&observed(&near, &[])), [Step::Create(near.clone())], "{text}");
    }
    // What is not for this namespace does not hide one further up.
    for text in ["stage!=test", "none", "!api.tree.coppice.dev/depth,!web.tree.coppice.dev/depth"] {
        assert_eq!(steps(&observed(&to(&near, text), &[])), [Step::Create(far.clone())], "{text}");
        let without =
            Observation { above: vec![vec![to(&near, text)], Vec::new()], ..observed(&near, &[copy(&near)]) };
        assert_eq!(steps(&without), [Step::Delete(copy(&near))], "{text}");
    }
    // Unknown is no verdict: nothing is copied, nothing is deleted, and it is said.
    let unclear = to(&near, "stage in test");
    for own in [vec![], vec![copy(&near)]] {
        let observed = observed(&unclear, &own);
        assert_eq!(steps(&observed), []);
        let (status, reason, message) = said(&observed).unwrap();
        assert_eq!((status, reason.as_str()), ("False", "CopyRefused"));
        let expected = "RoleBinding team of namespace a-b is not copied: its annotation coppice.dev/propagate-to has \"stage in test\"";
        assert!(message.starts_with(expected) && message.contains("write a label selector"), "{message}");
    }
}

#[test]
fn of_a_spec_that_was_made_too_large_a_new_copy_is_made() {
    let network = limiting(CopiedKind::NetworkPolicy, "a", "team", &json!({"podSelector": {}}));
    let place = || in_tree(&json!({"networkPolicies": {"mode": "Propagate"}}));
    let of = |own: Arc<Propagated>| Observation {
        place: place(),
        ..observation([Vec::new(), vec![network.clone()]], vec![own])
    };
    let edited = Propagated { content: Some("{}".into()), ..(*copy(&network)).clone() };
    assert!(matches!(&steps(&of(Arc::new(edited)))[..], [Step::Update { .. }]));
    let large = Arc::new(Propagated { content: None, ..(*copy(&network)).clone() });
    assert_eq!(steps(&of(large.clone())), [Step::Delete(large.clone())]);
    assert_eq!(said(&of(large)), None, "it is not done yet");
}

#[test]
fn what_others_wrote_is_left_alone_and_said() {
    let admin = source("a", "team", "admin", "alice");
    let viewers = source("a", "viewers", "view", "bob");
    let theirs = source("a-b-c", "team", "own", "carol");
    let above = [Vec::new(), vec![admin, viewers.clone()]];
    let observed = observation(above, vec![theirs, source("a-b-c", "more", "admin", "carol")]);
    assert_eq!(steps(&observed), [Step::Create(viewers)]);
    let (status, reason, message) = said(&observed).unwrap();
    assert_eq!((status, reason.as_str()), ("False", "CopyNameTaken"));
    assert!(message.contains("RoleBinding team of namespace a ") && message.contains("a-b-c"), "{message}");
}

/// One reason does not hide another.
#[test]
fn of_many_problems_the_first_three_are_said_and_how_many_more_there_are() {
    let names = ["n1", "n2", "n3", "n4", "n5"];
    let sources: Vec<_> = names.iter().map(|name| source("a", name, "admin", "alice")).collect();
    // As many of these names others have taken.
    let taken = |count: usize| -> Vec<Arc<Propagated>> {
        names[..count].iter().map(|name| source("a-b-c", name, "own", "carol")).collect()
    };
    let said_of = |sources: &[Arc<Propagated>], count: usize| {
        said(&observation([Vec::new(), sources.to_vec()], taken(count))).unwrap()
    };
    let (status, reason, message) = said_of(&sources, 3);
    assert_eq!((status, reason.as_str()), ("False", "CopyNameTaken"));
    assert_eq!(message.matches("is not copied").count(), 3, "{message}");
    assert!(!message.contains(" more"), "{message}");
    let (_, _, message) = said_of(&sources, 5);
    let is_said = |name: &str| message.contains(&format!("RoleBinding {name} of namespace a "));
    assert_eq!(names.map(is_said), [true, true, true, false, false], "{message}");
    assert!(message.ends_with("; and 2 more"), "{message}");
    let unclear = Propagated { propagate_to: Some("stage in test".into()), ..(*sources[1]).clone() };
    let (_, _, message) = said_of(&[sources[0].clone(), Arc::new(unclear)], 1);
    for expected in ["RoleBinding n1 of namespace a is not copied", "its annotation coppice.dev/propagate-to"]
    {
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn a_role_binding_is_copied_with_all_of_its_subjects_whoever_is_the_first() {
    let metadata = json!({"name": "team", "namespace": "a", "uid": "u", "resourceVersion": "1"});
    for first in [
        json!({"kind": "Group", "name": "system:authenticated"}),
        json!({"kind": "Group", "name": "system:serviceaccounts:a"}),
        json!({"kind": "ServiceAccount", "name": "builder", "namespace": "a"}),
    ] {
        let subjects = json!([first, {"kind": "User", "name": "alice"}]);
        let role = json!({"kind": "ClusterRole", "name": "admin"});
        let source =
            read::<RoleBindings>(json!({"metadata": metadata, "roleRef": role, "subjects": subjects}));
        let content: Value = serde_json::from_str(source.content.as_deref().unwrap()).unwrap();
        assert_eq!(content["subjects"], subjects);
        let observed = observation([Vec::new(), vec![source.clone()]], Vec::new());
        assert_eq!(steps(&observed), [Step::Create(source)], "{first}");
    }
}

#[test]
fn a_copy_goes_with_its_source_and_with_the_tree() {
    let admin = source("a", "team", "admin", "alice");
    let delete = vec![Step::Delete(copy(&admin))];
    assert_eq!(steps(&observation([Vec::new(), Vec::new()], vec![copy(&admin)])), delete);
    let out = Observation {
        place: Place::Out,
        above: Vec::new(),
        ..observation([Vec::new(), Vec::new()], vec![copy(&admin), source("a-b-c", "own", "admin", "bob")])
    };
    assert_eq!(steps(&out), delete);
    for (mode, planned, status) in [("Remove", delete, "True"), ("Ignore", Vec::new(), "True")] {
        let place = in_tree(&json!({"roleBindings": {"mode": mode}}));
        let above = [Vec::new(), vec![admin.clone(), source("a", "new", "admin", "bob")]];
        let observed = Observation { place, ..observation(above, vec![copy(&admin)]) };
        assert_eq!(steps(&observed), planned, "{mode}");
        assert_eq!(said(&observed).unwrap().0, status);
    }
}

#[test]
fn in_a_tree_that_is_being_detached_copies_become_objects_as_any_other() {
    let (wanted, other) = (source("a", "admins", "admin", "alice"), source("a", "gone", "view", "bob"));
    let foreign = source("a-b-c", "own", "admin", "carol");
    let metadata =
        json!({"name": "t", "uid": "t", "resourceVersion": "1", "deletionTimestamp": "2026-01-01T00:00:00Z"});
    let tree = |policy: &str| {
        let spec = json!({"root": "a", "quota": {"hard": {"pods": "1"}}, "deletionPolicy": policy});
        let tree = read::<NamespaceTrees>(json!({"metadata": metadata, "spec": spec}));
        Place::In(Position::new(
            &tree,
            tree.spec.as_ref().unwrap(),
            vec!["a".into(), "a-b".into(), "a-b-c".into()],
        ))
    };
    let own = vec![copy(&wanted), copy(&other), foreign];
    let observed = observation([Vec::new(), vec![wanted, source("a", "new", "admin", "dave")]], own.clone());
    let detaching = Observation { place: tree("Detach"), ..observed };
    // Also one that would be deleted otherwise; and none is made.
    assert_eq!(steps(&detaching), [Step::Release(own[0].clone()), Step::Release(own[1].clone())]);
    assert_eq!(said(&detaching), None);
    let kept = Observation { place: tree("Refuse"), ..detaching };
    assert!(!steps(&kept).iter().any(|step| matches!(step, Step::Release(_))));
}

#[test]
fn unknown_is_no_reason_to_do_anything() {
    let gone = copy(&source("a", "team", "admin", "alice"));
    let new = source("a", "new", "admin", "bob");
    let observed = || observation([Vec::new(), vec![new.clone()]], vec![gone.clone()]);
    assert_eq!(steps(&observed()).len(), 2);
    let unknown = Place::Unknown("namespace a is missing".to_owned());
    let stale = Some((Reason::Stale, "no update has been received".to_owned()));
    let mut terminating = observed();
    terminating.namespace = terminating
        .namespace
        .map(|namespace| Arc::new(NamespaceFacts { terminating: true, ..(*namespace).clone() }));
    for observed in [
        Observation { stale, ..observed() },
        Observation { place: unknown, ..observed() },
        Observation { namespace: None, place: Place::Out, ..observed() },
        terminating,
    ] {
        assert_eq!((steps(&observed), said(&observed)), (Vec::new(), None));
    }
}

#[test]
fn nobody_has_rights_in_a_namespace_before_it_has_its_quota() {
    let admin = source("a", "team", "admin", "alice");
    let observed =
        Observation { limited: false, ..observation([Vec::new(), vec![admin.clone()]], Vec::new()) };
    assert_eq!((steps(&observed), said(&observed)), (Vec::new(), None));
    // What is there is kept right all the same.
    let observed =
        Observation { limited: false, ..observation([Vec::new(), Vec::new()], vec![copy(&admin)]) };
    assert_eq!(steps(&observed).len(), 1);
}

#[test]
fn what_is_too_large_is_not_copied_and_said() {
    let large = Arc::new(Propagated { content: None, ..(*source("a", "team", "admin", "alice")).clone() });
    let observed = observation([Vec::new(), vec![large.clone()]], Vec::new());
    let (status, reason, message) = said(&observed).unwrap();
    assert_eq!((steps(&observed).len(), status, reason.as_str()), (0, "False", "CopyRefused"));
    assert!(message.contains("8 KiB"), "{message}");
    let old = copy(&source("a", "team", "admin", "alice"));
    let observed = observation([Vec::new(), vec![large]], vec![old.clone()]);
    assert_eq!(steps(&observed), [Step::Delete(old)], "who is no subject any more has no role any more");
}

/// What there is after a plan was carried out.
fn carried_out(mut observation: Observation) -> Observation {
    for step in steps(&observation) {
        let own = &mut observation.own;
        match step {
            Step::Create(source) => {
                assert!(own.iter().all(|object| object.name != source.name), "{} is taken", source.name);
                own.push(copy(&source));
            }
            Step::Update { copy: old, source } => {
                let at = own.iter().position(|object| *object == old).expect("it is there");
                assert_eq!(own[at].cluster_role, source.cluster_role, "a role cannot be changed");
                own[at] = copy(&source);
            }
            Step::Delete(old) => {
                let at = own.iter().position(|object| *object == old).expect("it is there");
                own.remove(at);
            }
            Step::Release(_) => panic!("the tree is not being detached"),
        }
    }
    observation
}

/// Of few names, so that they meet.
fn objects(namespace: &'static str, copies: bool) -> impl Strategy<Value = Vec<Arc<Propagated>>> {
    let roles = prop::sample::select(vec!["admin", "view", "cluster-admin", "own"]);
    let users = prop::sample::select(vec!["alice", "bob"]);
    let of = prop::option::of(prop::sample::select(vec![
        ("a", "a/n0/admin"),
        ("a-b", "a-b/n1/view"),
        ("elsewhere", "u"),
    ]));
    let objects = prop::collection::btree_map(0..4_u8, (roles, users, of), 0..4);
    objects.prop_map(move |objects| {
        let of_names = objects.into_iter();
        of_names
            .map(|(n, (role, user, of))| {
                binding(namespace, &format!("n{n}"), role, user, of.filter(|_| copies))
            })
            .collect()
    })
}

proptest! {
    #[test]
    fn whatever_there_is_two_plans_lead_to_what_stays_and_nothing_foreign_is_touched(
        near in objects("a-b", true),
        far in objects("a", true),
        own in objects("a-b-c", true),
        seed in any::<usize>(),
    ) {
        let foreign = |own: &[Arc<Propagated>]| -> Vec<Arc<Propagated>> {
            own.iter().filter(|object| object.origin.is_none()).cloned().collect()
        };
        let before = observation([near.clone(), far.clone()], own.clone());
        let theirs = foreign(&own);
        for step in steps(&before) {
            match step {
                Step::Create(source) => prop_assert!(source.origin.is_none()),
                Step::Update { copy, source } => {
                    prop_assert!(copy.origin.is_some() && source.origin.is_none());
                }
                Step::Delete(copy) | Step::Release(copy) => prop_assert!(copy.origin.is_some()),
            }
        }
        // In whatever order they are.
        let turned = |all: &[Arc<Propagated>]| {
            let mut all = all.to_vec();
            let by = seed % all.len().max(1);
            all.rotate_left(by);
            all
        };
        let sorted = |mut plan: PropagationPlan| {
            plan.steps.sort_by_key(|step| format!("{step:?}"));
            plan.problems.sort();
            plan
        };
        let other = observation([turned(&near), turned(&far)], turned(&own));
        prop_assert_eq!(sorted(plan(&before)), sorted(plan(&other)));
        // A role that changed takes a second one.
        let after = carried_out(carried_out(before));
        prop_assert_eq!(steps(&after), Vec::new());
        prop_assert_eq!(foreign(&after.own), theirs);
        let qualify = |object: &&Arc<Propagated>| {
            object.origin.is_none() && matches!(object.cluster_role.as_deref(), Some("admin" | "view"))
        };
        for source in far.iter().filter(qualify) {
            let nearer = near.iter().filter(qualify).find(|nearer| nearer.name == source.name);
            let wanted = nearer.unwrap_or(source);
            let found = after.own.iter().find(|object| object.name == source.name).expect("it is there");
            prop_assert!(found.origin.is_none() || found.content == wanted.content);
        }
        for object in after.own.iter().filter(|object| object.origin.is_some()) {
            let of = near.iter().chain(&far).filter(qualify).find(|source| source.name == object.name);
            prop_assert_eq!(of.map(|source| &source.content), Some(&object.content));
        }
    }
}

#[path = "plan_lint_tests.rs"]
mod lint;
