//! `coppice create` and `coppice quota` against an API server that answers from a script.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::support::run;
use crate::support::server::{Script, against, list, status, status_of};
use serde_json::{Value, json};

const CREATE: &str = "POST /apis/coppice.dev/v1alpha1/namespaces/shop/subnamespaces";
const READ: &str = "GET /apis/coppice.dev/v1alpha1/namespaces/shop/subnamespaces/shop-web";
const PARENT: &str = "GET /api/v1/namespaces/shop";
const QUOTA: &str = "GET /api/v1/namespaces/shop/resourcequotas/coppice";
const QUOTAS: &str = "GET /api/v1/namespaces/shop-web/resourcequotas";
const RANGES: &str = "GET /api/v1/namespaces/shop/limitranges";
const TREE: &str = "GET /apis/coppice.dev/v1alpha1/namespacetrees/shop";
const TREES: &str = "GET /apis/coppice.dev/v1alpha1/namespacetrees";
const LINE: &str = "coppice create shop/shop-web --quota pods=5";

fn namespace(name: &str, above: &[&str]) -> Value {
    let names = std::iter::once(&name).chain(above.iter().rev()).enumerate();
    let labels: serde_json::Map<_, _> =
        names.map(|(depth, of)| (format!("{of}.tree.coppice.dev/depth"), json!(depth.to_string()))).collect();
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "uid": name, "labels": labels}})
}

/// What a namespace has, and what of that is used and given.
fn quota(namespace: &str, (has, used, given): (u32, u32, u32)) -> Value {
    let of = |pods: u32| json!({"pods": pods.to_string()});
    let ledger = json!({"allotment": of(has), "given": of(given)}).to_string();
    json!({
        "apiVersion": "v1", "kind": "ResourceQuota",
        "metadata": {
            "name": "coppice", "namespace": namespace, "labels": {"coppice.dev/tree": "shop"},
            "annotations": {"coppice.dev/ledger": ledger}
        },
        "spec": {"hard": of(has - given)}, "status": {"hard": of(has - given), "used": of(used)}
    })
}

fn tree(spec: &Value) -> Value {
    let mut all = json!({"root": "shop", "quota": {"hard": {"pods": "10"}}});
    all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    json!({
        "apiVersion": "coppice.dev/v1alpha1", "kind": "NamespaceTree", "metadata": {"name": "shop", "uid": "t"}, "spec": all,
        "status": {"namespaces": 1, "rootUid": "shop"}
    })
}

fn object(parent: &str, name: &str, status: &Value) -> Value {
    json!({
        "apiVersion": "coppice.dev/v1alpha1", "kind": "Subnamespace",
        "metadata": {"name": name, "namespace": parent, "uid": name, "generation": 1},
        "spec": {"quota": {"hard": {"pods": "5"}}}, "status": status
    })
}

fn state(phase: &str, conditions: &[(&str, &str, &str)]) -> Value {
    let conditions: Vec<Value> = conditions
        .iter()
        .map(|(kind, status, message)| {
            json!({"type": kind, "status": status, "reason": "R", "message": message, "lastTransitionTime": "2026-03-01T12:00:00Z"})
        })
        .collect();
    object("shop", "shop-web", &json!({"observedGeneration": 1, "phase": phase, "conditions": conditions}))
}

#[test]
fn a_namespace_is_asked_for_with_its_quota() {
    let line = "coppice create shop/shop-web --quota requests.cpu=1500m,pods=5";
    let (ran, requests) = against(line, vec![(CREATE, 201, state("Pending", &[]))]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert_eq!(ran.out, "subnamespace.coppice.dev/shop-web created: below shop, with 1500m cpu, 5 pods\n");
    let [(_, uri, body), ..] = &*requests else { panic!("{requests:?}") };
    assert!(uri.contains("fieldManager=coppice-cli") && !uri.contains("dryRun"), "{uri}");
    assert_eq!(body["metadata"], json!({"name": "shop-web", "namespace": "shop"}));
    assert_eq!(body["spec"], json!({"quota": {"hard": {"cpu": "1500m", "pods": "5"}}}));
    let line = "coppice create shop/shop-web --label tier=web,stage= --annotation note=a,b=c";
    let (ran, requests) = against(line, vec![(CREATE, 201, state("Pending", &[]))]);
    let metadata = json!({"labels": {"tier": "web", "stage": ""}, "annotations": {"note": "a,b=c"}});
    assert_eq!((ran.code, &requests[0].2["spec"]), (0, &json!({"metadata": metadata})));
    let (ran, requests) = against("coppice create shop/shop-web", vec![(CREATE, 201, state("Pending", &[]))]);
    assert_eq!((ran.code, &requests[0].2["spec"]), (0, &json!({})));
    assert!(ran.out.ends_with("below shop, with nothing of what the tree limits\n"), "{}", ran.out);
}

#[test]
fn what_cannot_be_created_is_said_with_what_to_do() {
    let failed = |code: u16, body: Value| {
        let (ran, _) = against(LINE, vec![(CREATE, code, body)]);
        assert_eq!((ran.code, ran.out.as_str()), (1, ""));
        ran.err
    };
    let mut there = status_of("AlreadyExists");
    there["code"] = json!(409);
    assert_eq!(
        failed(409, there),
        "error: Subnamespace shop/shop-web exists already: `coppice tree shop-web` shows what it has; for another quota change its \
         spec.quota.hard (kubectl edit sns shop-web -n shop)\n"
    );
    assert_eq!(
        failed(403, status(403, "bob may not")),
        "error: Subnamespace shop/shop-web cannot be created: bob may not\n"
    );
    for (line, code, said) in [
        ("coppice create shop-web", 2, "write PARENT/NAME of a Subnamespace: two names of namespaces"),
        ("coppice create shop/Web", 2, "write PARENT/NAME of a Subnamespace: two names of namespaces"),
        ("coppice create shop/web --quota pods", 2, "write RESOURCE=AMOUNT, such as pods=5 or memory=2Gi"),
        ("coppice create shop/web --quota pods=-1", 2, "pods: -1 must not be negative: write 0 or more"),
        ("coppice create shop/web --quota pods=1,pods=2", 1, "--quota: pods is there twice"),
        ("coppice create shop/web --label tier", 2, "write KEY=VALUE, such as team=web; \"tier\" has no '='"),
        (
            "coppice create shop/web --annotation a=1 --annotation a=2",
            1,
            "--annotation: a is given twice, as 1 and as 2",
        ),
        ("coppice quota Shop", 2, "write a namespace's name"),
    ] {
        let ran = run(line, "");
        assert_eq!((ran.code, ran.out.as_str()), (code, ""), "{line}");
        assert!(ran.err.contains(said), "{line}: {}", ran.err);
    }
}

#[test]
fn a_dry_run_warns_of_what_the_controller_would_refuse() {
    let dry = |more: Script| {
        let mut script = vec![(CREATE, 201, state("Pending", &[]))];
        script.extend(more);
        let (ran, requests) = against(&format!("{LINE} --dry-run"), script);
        assert!(requests[0].1.contains("dryRun=All"), "{requests:?}");
        ran
    };
    let parent = || (PARENT, 200, namespace("shop", &[]));
    let trees = |spec: Value| (TREES, 200, list(&[tree(&spec)]));
    let good = dry(vec![parent(), (QUOTA, 200, quota("shop", (10, 2, 3))), trees(json!({}))]);
    assert_eq!((good.code, good.err.as_str()), (0, ""));
    assert_eq!(
        good.out,
        "subnamespace.coppice.dev/shop-web created (server dry run): below shop, with 5 pods\n\
         \x20 path              shop/shop-web\n\
         \x20 shop has free     5 pods\n\
         \x20 shop would keep   0 pods\n"
    );
    let refused = |more: Script, said: &[&str]| {
        let ran = dry(more);
        let lines: Vec<String> =
            said.iter().map(|said| format!("warning: it would be refused: {said}\n")).collect();
        assert_eq!((ran.code, ran.err), (3, lines.concat()));
    };
    refused(
        vec![parent(), (QUOTA, 200, quota("shop", (10, 4, 3))), trees(json!({"names": ["{root}-x*"]}))],
        &[
            "NamespaceTree shop permits no namespace shop-web in shop: name it by one of spec.names, here shop-x*",
            "pods: needs 5 more, and shop can give 3: 4 of its own 7 are used; ask for at most 3",
        ],
    );
    let required = json!({"quota": {"hard": {"pods": "10", "services": "1"}, "required": ["services"]}, "maxNamespaces": 1});
    refused(
        vec![parent(), (QUOTA, 200, quota("shop", (10, 0, 0))), trees(required)],
        &[
            "NamespaceTree shop has 1 namespace and permits 1 (spec.maxNamespaces): delete a Subnamespace that nobody needs",
            "spec.quota.hard does not name services, which NamespaceTree shop requires (spec.quota.required): write an amount of each, \
             0 for none of it",
        ],
    );
    refused(
        vec![(PARENT, 200, namespace("shop", &["a"])), (QUOTA, 200, quota("shop", (10, 0, 0))), {
            let mut tree = tree(&json!({"maxDepth": 1}));
            tree["spec"]["root"] = json!("a");
            (TREES, 200, list(&[tree]))
        }],
        &[
            "namespace shop-web would be 2 below the root, and NamespaceTree shop permits 1 (spec.maxDepth): create it further up",
        ],
    );
    let alone = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "uid": "shop"}});
    let outside = "namespace shop belongs to no tree: `coppice tree` shows the namespaces of trees";
    refused(vec![(PARENT, 200, alone)], &[outside]);
    // What may not be read is no verdict.
    let hidden =
        dry(vec![parent(), (QUOTA, 403, status(403, "not you")), (TREES, 403, status(403, "not you"))]);
    assert_eq!(hidden.code, 0, "{hidden:?}");
    assert_eq!(
        hidden.err,
        "warning: the quota of namespace shop is not known: not you: whether it has enough is not known\n\
         warning: the rules of the tree about names and depth cannot be read: not you\n"
    );
}

#[test]
fn pods_that_are_refused_for_what_they_do_not_state_are_warned_of() {
    let quota = || {
        let mut quota = quota("shop", (10, 0, 0));
        quota["metadata"]["annotations"]["coppice.dev/ledger"] =
            json!(r#"{"allotment": {"cpu": "4", "pods": "10"}, "given": {}}"#);
        quota["spec"]["hard"]["cpu"] = json!("4");
        quota
    };
    let range = |request: Value| {
        let limits = json!([{"type": "Container", "defaultRequest": request}]);
        let metadata = json!({"name": "defaults", "namespace": "shop"});
        (
            RANGES,
            200,
            list(&[
                json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": metadata, "spec": {"limits": limits}}),
            ]),
        )
    };
    let tree_of = |mode: &str| {
        let propagate = json!({"propagate": {"limitRanges": {"mode": mode}}});
        (TREE, 200, tree(&propagate))
    };
    let warned = |flag: &str, more: Script| {
        let mut script = vec![
            (CREATE, 201, state("Pending", &[])),
            (PARENT, 200, namespace("shop", &[])),
            (QUOTA, 200, quota()),
        ];
        script.extend(more);
        let (ran, _) = against(&format!("{LINE}{flag}"), script);
        assert_eq!(ran.code, 0, "{ran:?}");
        let lines: Vec<&str> = ran.err.lines().filter(|line| line.starts_with("warning: pods")).collect();
        lines.join(" ")
    };
    for flag in ["", " --dry-run"] {
        let none = warned(flag, vec![(RANGES, 200, list(&[]))]);
        assert_eq!(
            none,
            "warning: pods whose containers do not state cpu are refused in shop-web, unless a LimitRange there states it; none in \
             namespace shop does: state it in the pods, or ask the platform for a LimitRange (coppice doctor says which)"
        );
        let other = warned(flag, vec![range(json!({"memory": "1Gi"}))]);
        assert!(other.contains("do not state cpu are refused in shop-web"), "{other}");
        let kept = warned(flag, vec![range(json!({"cpu": "100m"})), tree_of("Ignore")]);
        let mode =
            "that of namespace shop is not copied (spec.propagate.limitRanges.mode of NamespaceTree shop)";
        assert!(kept.contains(mode), "{kept}");
        assert_eq!(warned(flag, vec![range(json!({"cpu": "100m"})), tree_of("Propagate")]), "");
        // What may not be read is no warning: who creates namespaces need not be able to read trees.
        let hidden = (TREE, 403, status(403, "not you"));
        assert_eq!(warned(flag, vec![range(json!({"cpu": "100m"})), hidden]), "");
        assert_eq!(warned(flag, vec![(RANGES, 403, status(403, "not you"))]), "");
    }
}

#[test]
fn waiting_ends_when_it_is_ready_with_its_rights_or_refused() {
    let waited = |line: &str, states: &[Value]| {
        let mut script = vec![(CREATE, 201, state("Pending", &[]))];
        script.extend(states.iter().map(|state| (READ, 200, state.clone())));
        let (ran, requests) = against(line, script);
        let last = ran.out.lines().last().unwrap_or_default().to_owned();
        let is_read = |method: &str, uri: &str| method == "GET" && uri.contains("/subnamespaces/shop-web");
        let reads = requests.iter().filter(|(method, uri, _)| is_read(method, uri));
        (ran.code, last, reads.count())
    };
    let line = format!("{LINE} --wait");
    let ready = |of: &str| {
        state("Ready", &[("Ready", "True", "it has"), ("Propagated", of, "no room for a RoleBinding")])
    };
    let mut old = state("Refused", &[("Ready", "False", "of before")]);
    old["status"]["observedGeneration"] = json!(0);
    let states = [old, state("Pending", &[]), state("Ready", &[("Ready", "True", "it has")]), ready("True")];
    assert_eq!(waited(&line, &states), (0, "subnamespace.coppice.dev/shop-web is Ready".to_owned(), 4));
    assert_eq!(
        waited(&line, &[ready("False")]),
        (3, "subnamespace.coppice.dev/shop-web is Ready: no room for a RoleBinding".to_owned(), 1)
    );
    let refused = state("Refused", &[("Ready", "False", "pods: needs 5 more")]);
    assert_eq!(
        waited(&line, &[refused]),
        (3, "subnamespace.coppice.dev/shop-web is Refused: pods: needs 5 more".to_owned(), 1)
    );
    let (code, last, _) = waited(&format!("{LINE} --wait=1s"), &[object("shop", "shop-web", &json!({}))]);
    assert_eq!(code, 3);
    assert!(
        last.contains("is not looked at yet: see whether coppice-trees runs")
            && last.ends_with("after 1s; `coppice tree shop` shows how it goes on"),
        "{last}"
    );
}

/// A tree of which this user may read everything: `shop` with `shop-web` (and `shop-web-a` below it) and `shop-api`.
fn whole() -> Script {
    let created = |parent: &str, name: &str| {
        object(parent, name, &json!({"namespaceUid": name, "phase": "Ready", "depth": 1}))
    };
    vec![
        ("GET /api/v1/namespaces/shop-web", 200, namespace("shop-web", &["shop"])),
        (TREES, 200, list(&[tree(&json!({}))])),
        (
            "GET /apis/coppice.dev/v1alpha1/subnamespaces",
            200,
            list(&[
                created("shop", "shop-web"),
                created("shop-web", "shop-web-a"),
                created("shop", "shop-api"),
            ]),
        ),
        (
            "GET /api/v1/resourcequotas",
            200,
            list(&[
                quota("shop", (10, 1, 8)),
                quota("shop-web", (5, 3, 2)),
                quota("shop-web-a", (2, 0, 0)),
                quota("shop-api", (3, 2, 0)),
            ]),
        ),
        (QUOTAS, 200, list(&[quota("shop-web", (5, 3, 2))])),
    ]
}

#[test]
fn other_quotas_and_what_is_used_beyond_the_own_one_are_shown() {
    let other = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "batch", "namespace": "shop-web"},
        "spec": {"hard": {"pods": "2", "requests.cpu": "1"}, "scopes": ["NotTerminating"]}, "status": {"used": {"pods": "2"}}
    });
    let script = || {
        let mut script = whole();
        script.retain(|(path, ..)| *path != QUOTAS && *path != "GET /api/v1/resourcequotas");
        script.push(("GET /api/v1/resourcequotas", 200, list(&[quota("shop-web", (5, 4, 2))])));
        script.push((QUOTAS, 200, list(&[quota("shop-web", (5, 4, 2)), other.clone()])));
        script
    };
    let (ran, _) = against("coppice quota shop-web", script());
    assert_eq!(
        (ran.code, ran.err.as_str()),
        (
            0,
            "warning: pods: 4 are used and 3 are its own: nothing more starts there until 1 of it are gone, or the namespace gets more\n\
             Nobody that you may read has anything to give.\n"
        )
    );
    assert!(
        ran.out.ends_with(
            "OTHER QUOTA   RESOURCE       HARD   USED   SCOPES\n\
             batch         pods           2      2      NotTerminating\n\
             batch         requests.cpu   1      -      NotTerminating\n"
        ),
        "{}",
        ran.out
    );
    let (ran, _) = against("coppice quota shop-web --resource pods -o json", script());
    let report: Value = serde_json::from_str(&ran.out).unwrap();
    let expected = json!([{"quota": "batch", "resource": "pods", "hard": "2", "used": "2", "scopes": ["NotTerminating"]}]);
    assert_eq!(report["otherQuotas"], expected);
}

#[test]
fn a_namespace_at_its_limit_sees_who_could_give_it_more() {
    let (ran, _) = against("coppice quota shop-web", whole());
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert_eq!(
        ran.out,
        "RESOURCE   ALLOTTED   GIVEN   USED   FREE\n\
         pods       5          2       3      0\n\
         \n\
         RESOURCE   FROM         FREE   HOW\n\
         pods       shop         1      ask for up to 1 more in spec.quota.hard of Subnamespace shop/shop-web\n\
         pods       shop-web-a   2      coppice give-back shop-web-a --amount pods=2\n\
         pods       shop-api     1      coppice transfer shop-api --to shop-web --amount pods=1 --reason TEXT\n"
    );
    let (ran, _) = against("coppice quota shop-web -o json", whole());
    let report: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((&report["path"], &report["resources"][0]["free"]), (&json!("shop/shop-web"), &json!("0")));
    assert_eq!(
        report["resources"][0]["sources"][2],
        json!({"namespace": "shop-api", "relation": "Elsewhere", "free": "1"})
    );
    let (ran, _) = against("coppice quota shop-web --resource cpu", whole());
    assert_eq!(
        (ran.code, ran.err.as_str()),
        (1, "error: --resource: the tree has no quota of cpu: write one of pods\n")
    );
}

#[test]
fn a_tenant_sees_what_is_below_the_namespaces_that_it_may_read() {
    let no = || status(403, "not you");
    let (ran, _) = against(
        "coppice quota shop-web",
        vec![
            ("GET /api/v1/namespaces/shop-web", 200, namespace("shop-web", &["shop"])),
            (TREES, 403, no()),
            ("GET /apis/coppice.dev/v1alpha1/subnamespaces", 403, no()),
            ("GET /api/v1/resourcequotas", 403, no()),
            ("GET /apis/coppice.dev/v1alpha1/namespaces/shop/subnamespaces", 403, no()),
            ("GET /apis/coppice.dev/v1alpha1/namespaces/shop-web/subnamespaces", 200, list(&[])),
            ("GET /api/v1/namespaces/shop-web/resourcequotas/coppice", 200, quota("shop-web", (5, 3, 0))),
            (QUOTAS, 403, no()),
        ],
    );
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(
        ran.err,
        "warning: you may not read shop: who could give more there is not known\n\
         warning: other quotas in namespace shop-web cannot be read: not you\n\
         Nobody that you may read has anything to give.\n"
    );
    assert!(ran.out.contains("pods       5          0       3      2\n"), "{}", ran.out);
}
