//! `coppice transfer`, `coppice transfer approve` and `coppice give-back` against an API server that answers from a script.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::support::Ran;
use crate::support::server::{RecordedRequest, Script, against, status, status_of};
use serde_json::{Value, json};

const WHO: &str = "POST /apis/authentication.k8s.io/v1/selfsubjectreviews";
const MAY: &str = "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const WEB: &str = "GET /api/v1/namespaces/shop-web";
const API: &str = "GET /api/v1/namespaces/shop-api";
const QUOTA: &str = "GET /api/v1/namespaces/shop-web/resourcequotas/coppice";
const CREATE: &str = "POST /apis/coppice.dev/v1alpha1/namespaces/shop-web/quotatransfers";
const READ: &str = "GET /apis/coppice.dev/v1alpha1/namespaces/shop-web/quotatransfers/more";
const PATCH: &str = "PATCH /apis/coppice.dev/v1alpha1/namespaces/shop-web/quotatransfers/more";
const TO_API: &str = "coppice transfer shop-web --to shop-api --amount pods=5 --reason test --name more";

/// A namespace with its labels about its tree. `above`: the names from the root down to the one above it.
fn namespace(name: &str, above: &[&str]) -> Value {
    let mut labels = serde_json::Map::new();
    for (depth, of) in std::iter::once(&name).chain(above.iter().rev()).enumerate() {
        labels.insert(format!("{of}.tree.coppice.dev/depth"), json!(depth.to_string()));
    }
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "uid": name, "labels": labels}})
}

fn web() -> (&'static str, u16, Value) {
    (WEB, 200, namespace("shop-web", &["shop"]))
}

fn api() -> (&'static str, u16, Value) {
    (API, 200, namespace("shop-api", &["shop"]))
}

fn who(user: &str) -> (&'static str, u16, Value) {
    let status = json!({"userInfo": {"username": user}});
    (
        WHO,
        201,
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview", "metadata": {}, "status": status}),
    )
}

fn may(allowed: bool) -> (&'static str, u16, Value) {
    (MAY, 201, json!({"metadata": {}, "spec": {}, "status": {"allowed": allowed}}))
}

/// A transfer with this in its spec besides, and this status.
fn transfer(spec: &Value, status: &Value) -> Value {
    let mut all = json!({"to": "shop-api", "through": "shop", "amount": {"pods": "5"}, "reason": "test", "requester": "bob"});
    all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    json!({
        "apiVersion": "coppice.dev/v1alpha1", "kind": "QuotaTransfer",
        "metadata": {"name": "more", "namespace": "shop-web", "uid": "u-1", "resourceVersion": "7", "generation": 1},
        "spec": all, "status": status
    })
}

fn created() -> (&'static str, u16, Value) {
    (CREATE, 201, transfer(&json!({}), &json!({})))
}

/// A status with this phase.
fn phase(phase: &str, message: &str, ended: bool) -> Value {
    let ready = json!({"type": "Ready", "status": "False", "reason": "QuotaMoving", "message": message,
        "lastTransitionTime": "2026-03-01T12:00:00Z"});
    let mut status = json!({"phase": phase, "conditions": [ready]});
    if ended {
        status["endedAt"] = json!("2026-03-01T12:30:00Z");
    }
    status
}

fn read(status: &Value) -> (&'static str, u16, Value) {
    (READ, 200, transfer(&json!({}), status))
}

/// What was asked of this path.
fn sent<'a>(requests: &'a [RecordedRequest], path: &str) -> Vec<&'a RecordedRequest> {
    let (method, path) = path.split_once(' ').unwrap();
    let is = |(of, uri, _): &&RecordedRequest| of == method && uri.split('?').next() == Some(path);
    requests.iter().filter(is).collect()
}

/// The object that was created.
fn asked(requests: &[RecordedRequest]) -> Value {
    let [(_, uri, body)] = &*sent(requests, CREATE) else { panic!("{requests:?}") };
    assert!(uri.contains("fieldManager=coppice-cli"), "{uri}");
    body.clone()
}

/// Exit code and standard error of what is to create nothing.
fn nothing_created(line: &str, script: Script) -> (u8, String) {
    let (ran, requests) = against(line, script);
    assert!(sent(&requests, CREATE).is_empty() && ran.out.is_empty(), "{ran:?}: {requests:?}");
    (ran.code, ran.err)
}

#[test]
fn whoever_may_approve_a_transfer_does_so_at_once() {
    for (answers, where_asked) in [(vec![true], vec!["shop"]), (vec![false, true], vec!["shop", "shop-api"])]
    {
        let mut script = vec![web(), api(), who("alice"), created()];
        script.extend(answers.into_iter().map(may));
        let (ran, requests) = against(TO_API, script);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""));
        assert_eq!(
            ran.out,
            "quotatransfer.coppice.dev/more created: 5 pods from shop-web to shop-api; approved by alice\n"
        );
        let transfer = asked(&requests);
        assert_eq!(transfer["metadata"], json!({"name": "more", "namespace": "shop-web"}));
        assert_eq!(
            transfer["spec"],
            json!({"to": "shop-api", "through": "shop", "amount": {"pods": "5"}, "reason": "test", "requester": "alice",
                "approvedBy": "alice"})
        );
        let reviews = sent(&requests, MAY);
        let namespaces: Vec<&Value> =
            reviews.iter().map(|(.., body)| &body["spec"]["resourceAttributes"]["namespace"]).collect();
        assert_eq!(namespaces, where_asked);
        assert_eq!(
            reviews[0].2["spec"],
            json!({"resourceAttributes": {"group": "coppice.dev", "resource": "quotatransfers", "verb": "create",
                "namespace": "shop"}})
        );
    }
}

#[test]
fn what_the_user_may_not_approve_waits_and_says_for_whom() {
    let line = format!("{TO_API} --amount requests.cpu=2000m,memory=2Gi");
    let (ran, requests) = against(&line, vec![web(), api(), who("bob"), may(false), created()]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert_eq!(
        ran.out,
        "quotatransfer.coppice.dev/more created: 2 cpu, 2Gi memory, 5 pods from shop-web to shop-api; it waits for approval by \
         somebody who may create QuotaTransfers in shop-web and shop-api, or in shop: coppice transfer approve shop-web/more\n"
    );
    let transfer = asked(&requests);
    assert_eq!(transfer["metadata"], json!({"name": "more", "namespace": "shop-web"}));
    assert_eq!(
        transfer["spec"],
        json!({"to": "shop-api", "through": "shop", "amount": {"cpu": "2", "memory": "2Gi", "pods": "5"}, "reason": "test",
            "requester": "bob"})
    );
}

#[test]
fn up_and_down_nobody_has_to_approve() {
    let below = ("GET /api/v1/namespaces/shop-web-x", 200, namespace("shop-web-x", &["shop", "shop-web"]));
    for (to, through, script) in [
        ("shop-web-x", "shop-web", vec![web(), below, who("bob"), created()]),
        // What is above is known without a right to read it.
        ("shop", "shop", vec![web(), who("bob"), created()]),
    ] {
        let line = format!("coppice transfer shop-web --to {to} --amount pods=5 --reason test --name more");
        let (ran, requests) = against(&line, script);
        let out = format!(
            "quotatransfer.coppice.dev/more created: 5 pods from shop-web to {to}; it needs no approval\n"
        );
        assert_eq!((ran.code, ran.out, ran.err.as_str()), (0, out, ""));
        assert!(sent(&requests, MAY).is_empty(), "{requests:?}");
        let spec = &asked(&requests)["spec"];
        assert_eq!(
            (&spec["to"], &spec["through"], &spec["approvedBy"]),
            (&json!(to), &json!(through), &Value::Null)
        );
    }
}

#[test]
fn give_back_goes_to_the_namespace_right_above() {
    let deep = ("GET /api/v1/namespaces/shop-web", 200, namespace("shop-web", &["shop", "shop-all"]));
    let (ran, requests) =
        against("coppice give-back shop-web --amount pods=5", vec![deep, who("bob"), created()]);
    let out = "quotatransfer.coppice.dev/to-shop-all-20260301-123000 created: 5 pods from shop-web to shop-all; it needs no approval\n";
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, out, ""));
    let transfer = asked(&requests);
    assert_eq!(transfer["metadata"]["name"], "to-shop-all-20260301-123000");
    assert_eq!(
        transfer["spec"],
        json!({"to": "shop-all", "through": "shop-all", "amount": {"pods": "5"}, "reason": "given back", "requester": "bob"})
    );
    let root = (WEB, 200, namespace("shop-web", &[]));
    assert_eq!(
        nothing_created("coppice give-back shop-web --amount pods=5", vec![root]),
        (
            1,
            "error: namespace shop-web is the root of its tree, and nothing is above it: make the quota of the tree smaller instead, \
             in spec.quota.hard of its NamespaceTree\n"
                .to_owned()
        )
    );
}

#[test]
fn a_target_that_may_not_be_read_needs_the_namespace_that_both_are_below_of() {
    let hidden = || vec![web(), (API, 403, status(403, "not you")), who("bob"), may(false), created()];
    assert_eq!(
        nothing_created(TO_API, hidden()),
        (
            1,
            "error: namespace shop-api cannot be read (not you): name the nearest namespace that shop-web and shop-api both are \
             or are below of: --through with one of shop-web, shop\n"
                .to_owned()
        )
    );
    assert_eq!(
        nothing_created(&format!("{TO_API} --through bank"), hidden()),
        (
            1,
            "error: --through: namespace shop-web is not below bank: write one of shop-web, shop\n"
                .to_owned()
        )
    );
    let (ran, requests) = against(&format!("{TO_API} --through shop"), hidden());
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(asked(&requests)["spec"]["through"], "shop");
    assert_eq!(
        nothing_created(&format!("{TO_API} --through shop-web"), vec![web(), api()]),
        (
            1,
            "error: --through: shop-web is not the nearest namespace that shop-web and shop-api both are or are below of, which is \
             shop: leave --through out\n"
                .to_owned()
        )
    );
}

#[test]
fn a_dry_run_shows_what_would_change_and_what_stands_against_it() {
    let quota = |used: &str| {
        let ledger = r#"{"allotment": {"pods": "8"}, "given": {}}"#;
        let quota = json!({
            "apiVersion": "v1", "kind": "ResourceQuota",
            "metadata": {"name": "coppice", "namespace": "shop-web", "annotations": {"coppice.dev/ledger": ledger}},
            "spec": {"hard": {"pods": "8"}}, "status": {"hard": {"pods": "8"}, "used": {"pods": used}}
        });
        (QUOTA, 200, quota)
    };
    let dry = |line: &str, more: Script| {
        let mut script = vec![web(), api(), who("bob"), created()];
        script.extend(more);
        let (ran, requests) = against(&format!("{line} --dry-run"), script);
        let [(_, uri, _)] = &*sent(&requests, CREATE) else { panic!("{requests:?}") };
        assert!(uri.contains("dryRun=All"), "{uri}");
        ran
    };
    let waits = dry(TO_API, vec![may(false), quota("3")]);
    assert_eq!((waits.code, waits.err.as_str()), (0, ""));
    assert_eq!(
        waits.out,
        "quotatransfer.coppice.dev/more created (server dry run): 5 pods from shop-web to shop-api\n\
         \x20 gives      5 pods\n\
         \x20 free       5 pods\n\
         \x20 path       shop-web, shop, shop-api\n\
         \x20 approval   by somebody who may create QuotaTransfers in shop-web and shop-api, or in shop; you may not\n"
    );
    let much = dry(TO_API, vec![may(true), quota("4")]);
    assert_eq!(
        (much.code, much.err.as_str()),
        (
            3,
            "warning: it would be refused: pods: shop-web can give 4: 4 of its own 8 are used; transfer at most 4 of the 5\n"
        )
    );
    assert!(much.out.contains("  free       4 pods\n"), "{}", much.out);
    assert!(
        much.out.ends_with("  approval   by yourself: bob may create QuotaTransfers where that is needed\n"),
        "{}",
        much.out
    );
    let hidden =
        dry("coppice give-back shop-web --amount pods=5", vec![(QUOTA, 403, status(403, "not you"))]);
    assert_eq!(
        (hidden.code, hidden.err.as_str()),
        (0, "warning: the quota of namespace shop-web is not known: not you\n")
    );
    assert!(hidden.out.contains("  free       not known\n"), "{}", hidden.out);
    assert!(hidden.out.ends_with("  approval   not needed: shop-web is below shop\n"), "{}", hidden.out);
}

/// What is said of a transfer that is waited for, with these states one after the other.
fn waited(line: &str, states: &[Value]) -> (Ran, usize) {
    let mut script = vec![web(), api(), who("bob"), may(true), created()];
    script.extend(states.iter().map(read));
    let (ran, requests) = against(line, script);
    let reads = sent(&requests, READ).len();
    (ran, reads)
}

#[test]
fn waiting_ends_with_the_transfer() {
    let line = format!("{TO_API} --wait");
    let moving = || phase("Moving", "the quota moves to namespace shop-api, and is in namespace shop", false);
    let last = |ran: &Ran| ran.out.lines().last().unwrap_or_default().to_owned();
    let done = phase("Completed", "namespace shop-api has 5 pods from namespace shop-web", true);
    let (ran, reads) = waited(&line, &[json!({}), moving(), done]);
    assert_eq!((ran.code, reads), (0, 3), "{ran:?}");
    assert_eq!(ran.err, "quotatransfer.coppice.dev/more: waiting until it has ended ...\n");
    assert_eq!(
        ran.out,
        "quotatransfer.coppice.dev/more created: 5 pods from shop-web to shop-api; approved by bob\n\
         quotatransfer.coppice.dev/more is Completed: namespace shop-api has 5 pods from namespace shop-web\n"
    );
    let (ran, _) = waited(&line, &[phase("Refused", "pods: shop-web can give 4", true)]);
    assert_eq!(ran.code, 3, "{ran:?}");
    assert_eq!(last(&ran), "quotatransfer.coppice.dev/more is Refused: pods: shop-web can give 4");
    let (ran, _) = waited(&line, &[phase("PendingApproval", "it has to be approved", false)]);
    assert_eq!(ran.code, 3, "{ran:?}");
    assert_eq!(last(&ran), "quotatransfer.coppice.dev/more is PendingApproval: it has to be approved");
    let short = format!("{TO_API} --wait=1s");
    let (ran, reads) = waited(&short, &[moving()]);
    assert!(ran.code == 3 && reads > 1, "{reads}: {ran:?}");
    assert_eq!(
        last(&ran),
        "after 1s quotatransfer.coppice.dev/more is Moving: the quota moves to namespace shop-api, and is in namespace shop; \
         `kubectl get quotatransfer more -n shop-web -o wide` shows how it goes on"
    );
    let (ran, _) = waited(&short, &[json!({})]);
    assert!(ran.code == 3 && last(&ran).contains("see whether coppice-trees runs"), "{ran:?}");
    let (ran, reads) = waited(TO_API, &[moving()]);
    assert_eq!((ran.code, reads), (0, 0), "nothing is waited for: {ran:?}");
}

#[test]
fn an_approval_shows_what_it_is_about_and_has_the_revision_read() {
    let waits = phase("PendingApproval", "it has to be approved", false);
    let script =
        || vec![read(&waits), who("alice"), (PATCH, 409, status(409, "changed")), (PATCH, 200, json!({}))];
    let shown = "QuotaTransfer shop-web/more\n\
                 \x20 amount      5 pods\n\
                 \x20 from        shop-web\n\
                 \x20 to          shop-api\n\
                 \x20 through     shop\n\
                 \x20 requester   bob\n\
                 \x20 reason      test\n";
    let approve = "coppice transfer approve shop-web/more";
    let (ran, requests) = against(approve, script());
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "again after a conflict");
    assert_eq!(ran.out, format!("{shown}quotatransfer.coppice.dev/more approved by alice\n"));
    let (_, uri, body) = requests.last().unwrap();
    assert_eq!(
        *body,
        json!({"metadata": {"resourceVersion": "7", "uid": "u-1"}, "spec": {"approvedBy": "alice"}})
    );
    assert!(!uri.contains("dryRun"), "{uri}");
    let (ran, requests) = against(&format!("{approve} --dry-run"), script());
    let out = format!("{shown}quotatransfer.coppice.dev/more approved by alice (server dry run)\n");
    assert_eq!((ran.code, ran.out), (0, out));
    assert!(
        requests
            .iter()
            .filter(|(method, ..)| method == "PATCH")
            .all(|(_, uri, _)| uri.contains("dryRun=All"))
    );
    let denied = status(422, "bob may not approve this QuotaTransfer");
    let (ran, _) = against(approve, vec![read(&waits), who("bob"), (PATCH, 422, denied)]);
    assert_eq!(
        (ran.code, ran.err.as_str()),
        (1, "error: QuotaTransfer shop-web/more cannot be changed: bob may not approve this QuotaTransfer\n")
    );
}

#[test]
fn what_needs_no_approval_any_more_is_left_as_it_is() {
    let approve = |spec: Value, status: Value, leaves: bool| {
        let mut object = transfer(&spec, &status);
        if leaves {
            object["metadata"]["deletionTimestamp"] = json!("2026-03-01T12:30:00Z");
        }
        let (ran, requests) =
            against("coppice transfer approve shop-web/more", vec![(READ, 200, object), who("alice")]);
        assert!(requests.iter().all(|(method, ..)| method == "GET"), "{requests:?}");
        let said =
            if ran.err.is_empty() { ran.out.lines().last().unwrap_or_default() } else { ran.err.trim_end() };
        (ran.code, said.to_owned())
    };
    let moving = || phase("Moving", "it moves", false);
    for (spec, status, leaves, code, said) in [
        (
            json!({"approvedBy": "carol"}),
            moving(),
            false,
            0,
            "quotatransfer.coppice.dev/more was approved before, by carol",
        ),
        (
            json!({"approvedBy": "carol"}),
            phase("Completed", "it has them", true),
            false,
            0,
            "quotatransfer.coppice.dev/more was approved before, by carol, and has ended: Completed: it has them",
        ),
        (json!({"to": "shop"}), moving(), false, 0, "quotatransfer.coppice.dev/more needs no approval"),
        (
            json!({"through": "shop-web"}),
            phase("Refused", "too little", true),
            false,
            0,
            "quotatransfer.coppice.dev/more needed no approval, and has ended: Refused: too little",
        ),
        (
            json!({}),
            phase("Refused", "too little", true),
            false,
            1,
            "error: QuotaTransfer shop-web/more has ended (Refused: too little): create another one",
        ),
        (
            json!({}),
            phase("PendingApproval", "it waits", false),
            true,
            1,
            "error: QuotaTransfer shop-web/more is being deleted: create another one",
        ),
    ] {
        assert_eq!(approve(spec, status, leaves), (code, said.to_owned()));
    }
    let (ran, _) =
        against("coppice transfer approve shop-web/more", vec![(READ, 404, status_of("NotFound"))]);
    assert_eq!(
        (ran.code, ran.err.as_str()),
        (
            1,
            "error: there is no QuotaTransfer more in namespace shop-web; `kubectl get quotatransfers -n shop-web` shows those \
             that are there\n"
        )
    );
}

#[test]
fn namespaces_without_a_way_between_them_are_named() {
    let outside = |name: &str| json!({"metadata": {"name": name, "uid": "u"}});
    let mut leaves = namespace("shop-api", &["shop"]);
    leaves["metadata"]["deletionTimestamp"] = json!("2026-03-01T12:30:00Z");
    let mut unclear = namespace("shop-api", &["shop"]);
    unclear["metadata"]["labels"]["shop.tree.coppice.dev/depth"] = json!("3");
    for (script, said) in [
        (
            vec![(WEB, 200, outside("shop-web"))],
            "namespace shop-web belongs to no tree: quota is transferred between namespaces of one tree; `coppice tree` shows those \
             that there are",
        ),
        (
            vec![web(), (API, 200, outside("shop-api"))],
            "namespace shop-api belongs to no tree: quota is transferred between namespaces of one tree; `coppice tree` shows those \
             that there are",
        ),
        (
            vec![web(), (API, 200, namespace("shop-api", &["bank"]))],
            "namespace shop-web belongs to the tree of namespace shop, and namespace shop-api to that of bank: quota is transferred \
             between namespaces of one tree",
        ),
        (
            vec![web(), (API, 200, unclear)],
            "the labels of namespace shop-api about its tree do not fit together: see whether coppice-trees runs (kubectl -n \
             coppice-system get deployment coppice-trees), and try again",
        ),
        (
            vec![web(), (API, 200, leaves)],
            "namespace shop-api is being deleted already: its quota returns to the namespace above it",
        ),
        (
            vec![web(), (API, 404, status_of("NotFound"))],
            "namespace shop-api does not exist; `coppice tree` shows the namespaces of trees",
        ),
        (vec![(WEB, 403, status(403, "not you"))], "namespace shop-web cannot be read: not you"),
        (
            vec![web(), api(), (WHO, 403, status(403, "not you"))],
            "who you are (spec.requester) cannot be read: not you",
        ),
        (
            vec![web(), api(), who("bob"), (MAY, 403, status(403, "not you"))],
            "whether you may create QuotaTransfers in shop is not known: not you",
        ),
    ] {
        assert_eq!(nothing_created(TO_API, script), (1, format!("error: {said}\n")));
    }
    let itself = "coppice transfer shop-web --to shop-web --amount pods=5 --reason test";
    let said = "error: namespace shop-web is both the source and the target: name another one with --to\n";
    assert_eq!(nothing_created(itself, Vec::new()), (1, said.to_owned()));
    let script = vec![web(), api(), who("bob"), may(false), (CREATE, 403, status(403, "not you"))];
    let (ran, _) = against(TO_API, script);
    let said = "error: the QuotaTransfer cannot be created in namespace shop-web: not you\n";
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (1, "", said));
}
