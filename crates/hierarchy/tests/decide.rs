//! What becomes of a request, step by step.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::support::{Amounts, Server, amounts, at, resources};
use coppice_hierarchy::{
    Child, Ledger, MAX_CHANGES, Parent, Quota, QuotaDecision, QuotaRefusal, QuotaStep, Record, Resources,
    Write, decide, decide_root,
};

/// A root, two children of it, and a child of the first.
fn tree() -> Server {
    let mut server = Server::new(&[0, 0, 1], [10, 40]);
    server.settle(&mut 0).unwrap();
    server
}

/// One that has got what it asked for.
fn with(wants: &[(usize, Amounts)]) -> Server {
    let mut server = tree();
    for (node, want) in wants {
        server.nodes[*node].want = *want;
        server.settle(&mut 0).unwrap();
        assert_eq!(server.nodes[*node].has, *want);
    }
    server
}

/// The decision about a namespace, whose write arrives.
fn step(server: &mut Server, node: usize, second: i64) -> QuotaDecision {
    let mut reading = server.read_parent(node);
    server.read_own(&mut reading);
    let (decision, message) = server.decided(&reading, at(second)).unwrap();
    if let Some(message) = message {
        assert!(server.deliver(message));
    }
    server.check().unwrap();
    decision
}

/// The steps that are written until there is nothing to write.
fn steps(server: &mut Server, node: usize, second: i64) -> (Vec<QuotaStep>, QuotaDecision) {
    let mut written = Vec::new();
    for _ in 0..20 {
        match step(server, node, second) {
            QuotaDecision::Write(step, _) => written.push(step),
            end => return (written, end),
        }
    }
    panic!("it does not come to an end: {written:?}")
}

fn quota(server: &Server, node: usize) -> &Quota {
    &server.nodes[node].quota.as_ref().unwrap().object
}

fn use_up(server: &mut Server, node: usize, used: Amounts) {
    server.update(node, |quota| quota.used = resources(used));
}

fn refusal(decision: &QuotaDecision) -> String {
    match decision {
        QuotaDecision::Refused(refusal) => refusal.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_child_gets_its_allotment_when_the_parents_smaller_quota_is_in_force() {
    let mut server = tree();
    server.nodes[1].want = [4, 10];
    assert_eq!(steps(&mut server, 1, 0), (vec![QuotaStep::Begin], QuotaDecision::Wait(Some(at(30)))));
    let parent = quota(&server, 0);
    assert_eq!((amounts(&parent.hard), amounts(&parent.enforced)), ([6, 30], [10, 40]));
    assert_eq!((amounts(&parent.own()), server.nodes[1].has), ([10, 40], [0, 0]), "the larger one counts");
    server.mirror(0);
    assert_eq!(
        steps(&mut server, 1, 1),
        (vec![QuotaStep::Decide, QuotaStep::Report, QuotaStep::End], QuotaDecision::Done)
    );
    assert_eq!((server.nodes[1].has, amounts(&quota(&server, 1).hard)), ([4, 10], [4, 10]));
    server.mirror(1);
    server.check_settled().unwrap();
}

#[test]
fn a_namespace_without_a_quota_gets_one_of_nothing_first() {
    let mut server = Server::new(&[0], [10, 40]);
    server.nodes[1].want = [1, 1];
    assert_eq!(steps(&mut server, 1, 0).0, [QuotaStep::Establish, QuotaStep::Begin]);
    assert!(quota(&server, 1).hard.limits_like(&resources([0, 0])), "zero is a limit");
}

#[test]
fn what_a_child_does_not_ask_for_is_limited_to_nothing() {
    let server = tree();
    let (record, below) = (Record::default(), resources([0, 0]));
    let parent = Parent { name: "team", quota: quota(&server, 0), siblings: &[] };
    let own = Some(quota(&server, 1));
    let child =
        Child { id: "1", name: "ci", exists: true, ends: false, quota: own, record: &record, below: &below };
    let want = Resources::parse([("requests.cpu", "4".parse().unwrap())]).unwrap();
    let QuotaDecision::Write(QuotaStep::Begin, Write::Parent(ledger)) = decide(&parent, &child, &want, at(0))
    else {
        panic!("begun")
    };
    assert!(ledger.changes["1"].to.limits_like(&resources([4, 0])));
}

#[test]
fn what_a_tree_limits_later_is_limited_to_nothing_in_its_namespaces() {
    let mut server = with(&[(1, [4, 10])]);
    let pods = Resources::parse([("pods", "7".parse().unwrap())]).unwrap();
    let ledger = Ledger { allotment: pods.larger(&resources([10, 40])), ..quota(&server, 0).ledger.clone() };
    server.update(0, |quota| *quota = Quota { hard: ledger.own(), ledger, ..quota.clone() });
    server.mirror(0);
    let (written, end) = steps(&mut server, 1, 0);
    assert_eq!(
        (written, end),
        (vec![QuotaStep::Begin, QuotaStep::Decide, QuotaStep::Report, QuotaStep::End], QuotaDecision::Done)
    );
    assert_eq!(quota(&server, 1).hard.to_string(), "4 cpu, 10 memory, 0 pods");
    assert_eq!(quota(&server, 0).hard.to_string(), "6 cpu, 30 memory, 7 pods");
}

#[test]
fn what_a_child_gives_back_leaves_it_first() {
    let mut server = with(&[(1, [4, 10])]);
    server.nodes[1].want = [1, 10];
    assert_eq!(
        steps(&mut server, 1, 0),
        (vec![QuotaStep::Begin, QuotaStep::Lower], QuotaDecision::Wait(Some(at(30))))
    );
    assert_eq!((amounts(&quota(&server, 1).hard), server.nodes[1].has), ([1, 10], [4, 10]));
    assert_eq!(amounts(&quota(&server, 0).hard), [6, 30]);
    server.mirror(1);
    assert_eq!(step(&mut server, 1, 1), decided(&server, 1));
    assert_eq!(amounts(&quota(&server, 0).hard), [6, 30], "on its way");
    assert_eq!(steps(&mut server, 1, 1), (vec![QuotaStep::Report, QuotaStep::End], QuotaDecision::Done));
    assert_eq!((amounts(&quota(&server, 0).hard), server.nodes[1].has), ([9, 30], [1, 10]));
}

#[test]
fn what_was_being_lowered_when_the_quota_above_was_lost_is_raised_back() {
    let mut server = with(&[(1, [4, 10])]);
    server.nodes[1].want = [1, 10];
    steps(&mut server, 1, 0);
    assert_eq!(amounts(&quota(&server, 1).hard), [1, 10]);
    // That quota is made again as recorded, without the change.
    server.update(0, |quota| quota.ledger.changes.clear());
    server.nodes[1].want = [4, 10];
    server.settle(&mut 0).unwrap();
    assert_eq!((amounts(&quota(&server, 1).hard), server.nodes[1].has), ([4, 10], [4, 10]));
    assert_eq!(amounts(&quota(&server, 0).hard), [6, 30]);
}

/// The write by which the newest ledger came about.
fn decided(server: &Server, node: usize) -> QuotaDecision {
    let ledger = quota(server, node).ledger.clone();
    QuotaDecision::Write(QuotaStep::Decide, Write::Own(ledger))
}

#[test]
fn a_request_for_more_of_one_and_less_of_another_gives_back_first() {
    let mut server = with(&[(1, [4, 10])]);
    server.nodes[1].want = [6, 5];
    assert_eq!(steps(&mut server, 1, 0).0, [QuotaStep::Begin, QuotaStep::Lower]);
    assert_eq!(amounts(&quota(&server, 1).hard), [4, 5]);
    server.settle(&mut 0).unwrap();
    assert_eq!(server.nodes[1].has, [6, 5]);
}

#[test]
fn what_is_gone_returns_when_its_namespace_is() {
    let mut server = with(&[(1, [4, 10])]);
    server.nodes[1].quota = None;
    server.nodes[1].terminating = true;
    server.settle(&mut 0).unwrap_err();
    assert_eq!(amounts(&quota(&server, 0).hard), [6, 30], "while it is being deleted nothing returns");
    (server.nodes[1].exists, server.nodes[1].has) = (false, [0, 0]);
    assert_eq!(
        steps(&mut server, 1, 0),
        (vec![QuotaStep::Begin, QuotaStep::Report, QuotaStep::End], QuotaDecision::Done)
    );
    assert_eq!(amounts(&quota(&server, 0).hard), [10, 40]);
}

#[test]
fn a_namespace_that_goes_while_it_grows_returns_all_of_it() {
    let mut server = with(&[(1, [4, 10])]);
    server.nodes[1].want = [5, 10];
    steps(&mut server, 1, 0);
    (server.nodes[1].exists, server.nodes[1].quota, server.nodes[1].has) = (false, None, [0, 0]);
    assert_eq!(steps(&mut server, 1, 0), (vec![QuotaStep::Report, QuotaStep::End], QuotaDecision::Done));
    assert_eq!(amounts(&quota(&server, 0).hard), [10, 40]);
}

#[test]
fn who_ends_a_change_that_was_decided_late_leaves_nothing_with_a_namespace_that_is_gone() {
    let mut server = tree();
    server.nodes[1].want = [4, 10];
    steps(&mut server, 1, 0);
    server.mirror(0);
    for expected in [QuotaStep::Decide, QuotaStep::Report] {
        assert!(matches!(step(&mut server, 1, 0), QuotaDecision::Write(step, _) if step == expected));
    }
    let mut late = server.read_parent(1);
    server.read_own(&mut late);
    let (_, settlement) = server.decided(&late, at(0)).unwrap();
    (server.nodes[1].exists, server.nodes[1].quota, server.nodes[1].has) = (false, None, [0, 0]);
    let mut known = server.read_parent(1);
    server.read_own(&mut known);
    let (_, first) = server.decided(&known, at(0)).unwrap();
    server.deliver(first.unwrap());
    server.deliver(settlement.unwrap());
    assert_eq!(steps(&mut server, 1, 0).1, QuotaDecision::Done);
    assert_eq!(amounts(&quota(&server, 0).hard), [10, 40]);
}

#[test]
fn what_is_used_meanwhile_is_not_given_and_the_quota_is_raised_back() {
    let mut server = tree();
    server.nodes[1].want = [4, 10];
    steps(&mut server, 1, 0);
    use_up(&mut server, 0, [8, 0]);
    server.mirror(0);
    assert_eq!(steps(&mut server, 1, 29), (vec![], QuotaDecision::Wait(Some(at(30)))));
    let QuotaDecision::Write(QuotaStep::Refuse(refusal), _) = step(&mut server, 1, 30) else {
        panic!("refused")
    };
    assert_eq!(
        refusal.to_string(),
        "cpu: 0 still uses 8 of the 6 that it would keep; the quota is what it was, ask again when less is used"
    );
    let (written, end) = steps(&mut server, 1, 30);
    assert_eq!(written, [QuotaStep::Report, QuotaStep::End]);
    assert_eq!(amounts(&quota(&server, 0).hard), [10, 40]);
    let expected = "cpu: needs 4 more, and 0 can give 2: 8 of its own 10 are used; ask for at most 2";
    assert_eq!(self::refusal(&end), expected);
}

#[test]
fn of_what_is_not_asked_for_more_may_be_used_than_there_is() {
    let mut server = tree();
    use_up(&mut server, 0, [0, 45]);
    server.nodes[1].want = [4, 0];
    server.settle(&mut 0).unwrap();
    assert_eq!(server.nodes[1].has, [4, 0]);
}

#[test]
fn a_quota_that_nobody_puts_into_force_is_raised_back() {
    let mut server = tree();
    server.nodes[1].want = [4, 10];
    steps(&mut server, 1, 0);
    let QuotaDecision::Write(QuotaStep::Refuse(refusal), _) = step(&mut server, 1, 30) else {
        panic!("refused")
    };
    assert!(refusal.to_string().contains("kube-controller-manager"), "{refusal}");
}

#[test]
fn a_request_that_changes_before_it_is_carried_out_takes_nothing_from_anybody() {
    let mut server = tree();
    server.nodes[1].want = [4, 10];
    steps(&mut server, 1, 0);
    server.nodes[1].want = [2, 10];
    server.mirror(0);
    let (written, _) = steps(&mut server, 1, 1);
    let refused = QuotaStep::Refuse(Box::new(QuotaRefusal::Superseded));
    assert_eq!(written, [refused, QuotaStep::Report, QuotaStep::End, QuotaStep::Begin]);
    assert_eq!((amounts(&quota(&server, 0).hard), server.nodes[1].has), ([8, 30], [0, 0]));
}

#[test]
fn children_that_wait_together_share_one_shrink() {
    let mut server = tree();
    server.nodes[1].want = [4, 10];
    server.nodes[2].want = [5, 10];
    for child in [1, 2] {
        assert_eq!(steps(&mut server, child, 0).0, [QuotaStep::Begin]);
    }
    assert_eq!(amounts(&quota(&server, 0).hard), [1, 20]);
    server.mirror(0);
    for child in [1, 2] {
        assert_eq!(
            steps(&mut server, child, 0),
            (vec![QuotaStep::Decide, QuotaStep::Report, QuotaStep::End], QuotaDecision::Done)
        );
    }
    assert_eq!((server.nodes[1].has, server.nodes[2].has), ([4, 10], [5, 10]));
}

#[test]
fn refusals_have_numbers_and_a_way_out() {
    let server = with(&[(1, [4, 10]), (2, [5, 10]), (3, [1, 2])]);
    let ask = |node: usize, want: Resources| {
        let record = &server.nodes[node].record.object;
        let siblings = [("web".to_owned(), resources([2, 0])), ("db".to_owned(), resources([3, 0]))];
        let parent = Parent { name: "team", quota: quota(&server, 0), siblings: &siblings };
        let (id, own) = (node.to_string(), Some(quota(&server, node)));
        let child = Child {
            id: &id,
            name: "ci",
            exists: true,
            ends: false,
            quota: own,
            record,
            below: &resources([0, 0]),
        };
        refusal(&decide(&parent, &child, &want, at(0)))
    };
    assert_eq!(
        ask(1, resources([6, 10])),
        "cpu: needs 2 more, and team can give 1: 0 of its own 1 are used; ask for at most 5, or have db, which does \
         not use 3, give 1 back (coppice give-back db --amount cpu=1)"
    );
    assert_eq!(
        ask(1, resources([0, 10])),
        "cpu: ci uses 0 and gave 1 to its children: ask for at least 1, or remove some of it first"
    );
    let pods = Resources::parse([("pods", "5".parse().unwrap())]).unwrap();
    assert_eq!(
        ask(1, pods),
        "pods: the tree has no quota of it: remove it, or ask for one of these: cpu, memory"
    );
}

#[test]
fn who_has_read_the_parent_before_a_change_and_the_child_after_it_changes_nothing() {
    let mut server = with(&[(1, [4, 10])]);
    let mut late = server.read_parent(1);
    server.nodes[1].want = [6, 10];
    steps(&mut server, 1, 0);
    server.mirror(0);
    assert!(matches!(step(&mut server, 1, 0), QuotaDecision::Write(QuotaStep::Decide, _)));
    // The child has more than is recorded of it, and the parent that was read knows of no change.
    server.read_own(&mut late);
    let (_, message) = server.decided(&late, at(0)).unwrap();
    assert!(!server.deliver(message.unwrap()));
    server.settle(&mut 0).unwrap();
    assert_eq!(server.nodes[1].has, [6, 10]);
}

#[test]
fn what_somebody_else_has_written_is_put_right() {
    let mut server = with(&[(1, [4, 10])]);
    server.update(0, |quota| quota.hard = resources([10, 40]));
    let mut reading = server.read_parent(1);
    server.read_own(&mut reading);
    let (decision, message) = server.decided(&reading, at(0)).unwrap();
    assert!(matches!(decision, QuotaDecision::Write(QuotaStep::Repair, _)), "{decision:?}");
    assert!(server.deliver(message.unwrap()));
    assert_eq!(amounts(&quota(&server, 0).hard), [6, 30]);
    // A limit that was removed is no limit of zero.
    let only_cpu = Resources::parse([("cpu", "6".parse().unwrap())]).unwrap();
    server.update(0, |quota| quota.hard = only_cpu);
    assert!(!quota(&server, 0).is_as_recorded());
}

#[test]
fn a_quota_that_was_lost_is_made_again_as_recorded() {
    let mut server = with(&[(1, [4, 10])]);
    server.nodes[1].quota = None;
    assert_eq!(steps(&mut server, 1, 0), (vec![QuotaStep::Establish], QuotaDecision::Done));
    let ledger = &quota(&server, 1).ledger;
    assert_eq!(
        (amounts(&ledger.allotment), ledger.decided),
        ([4, 10], server.nodes[1].record.object.decided)
    );
}

#[test]
fn a_root_gets_less_when_its_smaller_quota_is_in_force() {
    let mut server = with(&[(1, [4, 10])]);
    server.nodes[0].want = [6, 40];
    assert_eq!(steps(&mut server, 0, 0), (vec![QuotaStep::Lower], QuotaDecision::Wait(Some(at(30)))));
    assert_eq!((amounts(&quota(&server, 0).hard), server.nodes[0].has), ([2, 30], [10, 40]));
    server.mirror(0);
    assert_eq!(steps(&mut server, 0, 1), (vec![QuotaStep::Decide], QuotaDecision::Done));
    server.nodes[0].want = [3, 40];
    let refused = steps(&mut server, 0, 1).1;
    assert_eq!(
        refusal(&refused),
        "cpu: 0 uses 0 and gave 4 to its children: ask for at least 4, or remove some of it first"
    );
    server.nodes[0].want = [20, 40];
    assert_eq!(steps(&mut server, 0, 1), (vec![QuotaStep::Decide], QuotaDecision::Done));
    assert_eq!(amounts(&quota(&server, 0).hard), [16, 30]);
}

#[test]
fn a_root_whose_smaller_quota_is_not_in_force_in_time_keeps_what_it_has() {
    let mut server = tree();
    server.nodes[0].want = [6, 40];
    steps(&mut server, 0, 0);
    use_up(&mut server, 0, [7, 0]);
    server.mirror(0);
    let QuotaDecision::Write(QuotaStep::Refuse(_), _) = step(&mut server, 0, 30) else { panic!("refused") };
    assert_eq!(amounts(&quota(&server, 0).hard), [10, 40]);
    let lowered = quota(&server, 0);
    assert!(matches!(
        decide_root("0", Some(lowered), &resources([6, 40]), &Resources::default(), at(31)),
        QuotaDecision::Refused(_)
    ));
}

#[test]
fn a_root_whose_quota_was_lost_has_what_its_children_do_not_have() {
    let (total, below) = (resources([10, 40]), resources([4, 50]));
    let made = decide_root("0", None, &total, &below, at(0));
    let QuotaDecision::Write(QuotaStep::Establish, Write::Own(ledger)) = made else { panic!("{made:?}") };
    assert_eq!(amounts(&ledger.own()), [6, 0]);
    assert_eq!((amounts(&ledger.allotment), amounts(&ledger.given)), ([10, 50], [4, 50]));
    // They have more than the tree: it has that, too, until they return some.
    let hard = ledger.own();
    let made = Quota { hard: hard.clone(), enforced: hard, ledger, ..Quota::default() };
    let next = decide_root("0", Some(&made), &total, &below, at(1));
    assert!(matches!(next, QuotaDecision::Refused(_)), "{next:?}");
}

#[test]
fn a_root_limits_a_resource_that_it_has_nothing_of() {
    let server = tree();
    let none = Resources::parse([("pods", "0".parse().unwrap())]).unwrap();
    let total = resources([10, 40]).plus(&none).unwrap();
    let QuotaDecision::Write(QuotaStep::Decide, Write::Own(ledger)) =
        decide_root("0", Some(quota(&server, 0)), &total, &Resources::default(), at(0))
    else {
        panic!("it is not limited")
    };
    assert_eq!(ledger.own().to_string(), "10 cpu, 40 memory, 0 pods");
}

#[test]
fn a_parent_changes_a_bounded_number_of_children_at_once() {
    let mut ledger = Ledger::new(resources([10, 40]), resources([0, 0]));
    let server = tree();
    let (record, below) = (Record::default(), resources([0, 0]));
    for at_place in 0..=MAX_CHANGES {
        let (id, now) = (at_place.to_string(), at(0));
        let hard = ledger.own();
        let parent = Quota { hard: hard.clone(), enforced: hard, ledger: ledger.clone(), ..Quota::default() };
        let parent = Parent { name: "team", quota: &parent, siblings: &[] };
        let own = Some(quota(&server, 2));
        let child = Child {
            id: &id,
            name: "ci",
            exists: true,
            ends: false,
            quota: own,
            record: &record,
            below: &below,
        };
        let small = Resources::parse([("memory", "1m".parse().unwrap())]).unwrap();
        match decide(&parent, &child, &small, now) {
            QuotaDecision::Write(QuotaStep::Begin, Write::Parent(begun)) => ledger = begun,
            other => assert_eq!((at_place, other), (MAX_CHANGES, QuotaDecision::Wait(None))),
        }
    }
    assert_eq!(ledger.given.to_string(), "0 cpu, 64m memory");
}

#[test]
fn free_is_what_neither_it_nor_its_children_have() {
    let mut server = with(&[(1, [4, 10])]);
    assert_eq!(amounts(&quota(&server, 0).free()), [0, 0]);
    assert_eq!(amounts(&quota(&server, 0).unused()), [6, 30]);
    server.update(0, |quota| quota.ledger.allotment = resources([12, 40]));
    assert_eq!(amounts(&quota(&server, 0).free()), [2, 0]);
}

/// What is stored must be understood after an upgrade.
#[test]
fn a_ledger_is_written_as_it_always_was() {
    let json = r#"{"allotment":{"cpu":"10","memory":"8Gi"},"given":{"cpu":"1500m"},"decided":3,"lowering":{"to":{"cpu":"9","memory":"8Gi"},"since":"2026-09-21T14:13:20Z"},"changes":{"5f0c":{"number":7,"from":{"cpu":"1"},"to":{"cpu":"1500m"},"since":"2026-09-21T14:13:20Z"}}}"#;
    let ledger: Ledger = serde_json::from_str(json).unwrap();
    assert_eq!(serde_json::to_string(&ledger).unwrap(), json);
    assert_eq!(ledger.own().to_string(), "7500m cpu, 8Gi memory");
    let least: Ledger = serde_json::from_str(r#"{"allotment":{},"given":{}}"#).unwrap();
    assert_eq!(least, Ledger::default());
}
