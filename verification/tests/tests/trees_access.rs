//! What the API server refuses about trees of namespaces, and to whom, while no program of ours runs: the policies and roles of
//! `deploy/trees.yaml`.

use anyhow::ensure;
use coppice_plane::{ADMIN, ALICE, BOB, OPERATOR, VIEWER};
use coppice_tests::{TestCluster, on_own_plane};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::access_control::raw_requests::{JSON, MERGE, PLAIN, Wire, WireResponse};

type Test = anyhow::Result<()>;

/// The account of trees.
pub(crate) const TREES: &str = "system:serviceaccount:coppice-system:coppice-trees";
/// Whoever has this group may do everything: what is refused all the same, is refused by policy.
const MASTERS: &[&str] = &["system:masters"];
const COPPICE: &str = "/apis/coppice.dev/v1alpha1";
const NAMESPACES: &str = "/api/v1/namespaces";

/// The plane that the tests here share, each with namespaces of its own, and who makes requests to it.
pub(crate) struct Trees {
    pub(crate) test_cluster: TestCluster,
    /// The account of trees, with exactly its rights.
    pub(crate) account: Wire,
    /// Its token, in the hands of somebody who has got it every right.
    pub(crate) stolen: Wire,
    pub(crate) admin: Wire,
    /// May do with namespaces what they want, as tools that apply files from a repository do.
    pub(crate) gitops: Wire,
    /// The same, and has the verb `set-tree`.
    pub(crate) restorer: Wire,
}

async fn start() -> anyhow::Result<Trees> {
    let test_cluster = TestCluster::start_with_trees_at_once().await?;
    let of_namespaces = ["--verb=*", "--resource=namespaces,namespaces/status"];
    let of_trees = ["--verb=set-tree", "--resource=namespacetrees.coppice.dev"];
    let of_subnamespaces =
        ["--verb=get,patch", "--resource=subnamespaces.coppice.dev,quotatransfers.coppice.dev"];
    for (role, users, rule) in [
        ("all-of-namespaces", &["gitops", "restorer"][..], of_namespaces),
        ("set-tree", &["restorer"], of_trees),
        ("finalizers", &["restorer"], of_subnamespaces),
    ] {
        test_cluster.kubectl(ADMIN, &[&["create", "clusterrole", role][..], &rule].concat()).await?;
        for user in users {
            let (name, role) = (format!("{user}-{role}"), format!("--clusterrole={role}"));
            let args = ["create", "clusterrolebinding", &name, &role, &format!("--user={user}")];
            test_cluster.kubectl(ADMIN, &args).await?;
        }
    }
    Ok(Trees {
        account: Wire::impersonating(&test_cluster, TREES, &[])?,
        stolen: Wire::impersonating(&test_cluster, TREES, MASTERS)?,
        admin: Wire::new(&test_cluster, ADMIN)?,
        gitops: Wire::impersonating(&test_cluster, "gitops", &[])?,
        restorer: Wire::impersonating(&test_cluster, "restorer", &[])?,
        test_cluster,
    })
}

pub(crate) fn on_trees(test: impl AsyncFnOnce(&Trees) -> Test) -> Test {
    static SHARED: OnceCell<Trees> = OnceCell::const_new();
    on_own_plane(async { test(SHARED.get_or_try_init(start).await?).await })
}

fn namespace(name: &str, labels: &Value, annotations: &Value) -> Value {
    let metadata = json!({"name": name, "labels": labels, "annotations": annotations});
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
}

/// Everything that Coppice writes at a namespace below `root`.
fn of_tree(name: &str) -> (Value, Value) {
    let labels = json!({
        "coppice.dev/subnamespace": "11111111-2222-3333-4444-555555555555", "coppice.dev/parent": "root", "coppice.dev/root": "root",
        "coppice.dev/has-children": "66666666-7777-8888-9999-000000000000",
        "root.tree.coppice.dev/depth": "1", format!("{name}.tree.coppice.dev/depth"): "0"
    });
    (labels, json!({"coppice.dev/path": format!("root/{name}")}))
}

/// A namespace of a tree, as Coppice creates it.
pub(crate) async fn child(on: &Trees, name: &str) -> Test {
    let (labels, annotations) = of_tree(name);
    let created = on.account.send("POST", NAMESPACES, PLAIN, namespace(name, &labels, &annotations)).await?;
    ensure!(created.accepted(), "{created:?}");
    on.test_cluster.account(name).await
}

pub(crate) fn quota(name: &str, labels: &Value, pods: &str) -> Value {
    let metadata = json!({"name": name, "labels": labels, "annotations": {"coppice.dev/ledger": "{}"}});
    json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": {"pods": pods}}})
}

pub(crate) fn of(namespace: &str, resource: &str) -> String {
    let ours = ["subnamespaces", "quotatransfers"].iter().any(|kind| resource.starts_with(kind));
    let group = if ours { COPPICE } else { "/api/v1" };
    format!("{group}/namespaces/{namespace}/{resource}")
}

fn subnamespace(name: &str) -> Value {
    json!({"apiVersion": "coppice.dev/v1alpha1", "kind": "Subnamespace", "metadata": {"name": name}, "spec": {}})
}

/// Deletes what is there now and has not changed.
pub(crate) async fn delete_exactly(wire: &Wire, path: &str, dry: bool) -> anyhow::Result<WireResponse> {
    let metadata = wire.get(path).await?["metadata"].clone();
    let preconditions = json!({"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]});
    let mut options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions});
    if dry {
        options["dryRun"] = json!(["All"]);
    }
    wire.send("DELETE", path, PLAIN, options).await
}

/// Gives a user a role in a namespace, and waits until it is in force there for Subnamespaces.
pub(crate) async fn bind(test_cluster: &TestCluster, namespace: &str, user: &str, role: &str) -> Test {
    let rbac = "rbac.authorization.k8s.io";
    let binding = json!({"apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding",
        "metadata": {"name": format!("{user}-{role}"), "namespace": namespace},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": rbac, "kind": "User", "name": user}]});
    test_cluster.admin().await?.create(&binding).await?;
    let user = test_cluster.requests(user).await?;
    let may_list = async || user.list("subnamespaces", namespace).await.ok().map(drop);
    test_cluster.until("the roles are added up", may_list).await
}

#[test]
fn where_a_namespace_is_in_a_tree_is_written_by_coppice_alone() -> Test {
    const REFUSED: &str = "Coppice alone writes it: create or delete a Subnamespace instead";
    on_trees(async |on| {
        let plain = namespace("labels-plain", &json!({}), &json!({}));
        let answer = on.gitops.send("POST", NAMESPACES, PLAIN, plain).await?;
        ensure!(answer.accepted(), "{answer:?}");
        child(on, "labels-child").await?;
        let (labels, annotations) = of_tree("labels-child");
        let keys = labels.as_object().into_iter().flatten().map(|(key, _)| ("labels", key));
        let keys =
            keys.chain(annotations.as_object().into_iter().flatten().map(|(key, _)| ("annotations", key)));
        let path = |name: &str| format!("{NAMESPACES}/{name}");
        for (field, key) in keys {
            let mut new = namespace("labels-new", &json!({}), &json!({}));
            new["metadata"][field][key] = json!("forged");
            let set = json!({"metadata": {field: {key: "forged"}}});
            let mut answers = on.gitops.every_write(&path("labels-plain"), &set).await?;
            answers.push(on.gitops.send("POST", NAMESPACES, PLAIN, new).await?);
            for (name, value) in [
                ("labels-plain", json!("forged")),
                ("labels-child", json!("forged")),
                ("labels-child", Value::Null),
            ] {
                let change = json!({"metadata": {field: {key: value}}});
                answers.push(on.gitops.send("PATCH", &path(name), MERGE, change.clone()).await?);
                let status = format!("{}/status", path(name));
                answers.push(on.gitops.send("PATCH", &status, MERGE, change).await?);
            }
            for answer in answers {
                ensure!(answer.refused(REFUSED) && answer.refused(key), "{key}: {answer:?}");
            }
        }
        // Everything else is theirs, in a tree, too.
        let change = json!({"metadata": {"labels": {"team": "a"}, "annotations": {"a": "b"}}});
        for name in ["labels-plain", "labels-child"] {
            let answer = on.gitops.send("PATCH", &path(name), MERGE, change.clone()).await?;
            ensure!(answer.accepted(), "{answer:?}");
        }
        // For restores; an administrator has every verb.
        let restored = namespace("labels-restored", &labels, &annotations);
        for wire in [&on.restorer, &on.admin] {
            let answer =
                wire.send("POST", &format!("{NAMESPACES}?dryRun=All"), PLAIN, restored.clone()).await?;
            ensure!(answer.accepted(), "{answer:?}");
        }
        let last = json!({"metadata": {"labels": {"coppice.dev/has-children": null}}});
        let answer = on.account.send("PATCH", &path("labels-child"), MERGE, last).await?;
        ensure!(answer.accepted(), "{answer:?}");
        Ok(())
    })
}

#[test]
fn a_stolen_token_changes_nothing_of_a_namespace_but_where_it_is_in_a_tree() -> Test {
    const OTHER: &str = "this request changes another one";
    on_trees(async |on| {
        child(on, "stolen-child").await?;
        on.test_cluster.namespace("stolen-plain").await?;
        let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "11111111-2222-3333-4444-555555555555"}]);
        // What a tree may allow, it sets on namespaces that a Subnamespace created.
        for change in [json!({"labels": {"team": "a"}}), json!({"annotations": {"example.org/a": "b"}})] {
            let change = json!({"metadata": change});
            let path = format!("{NAMESPACES}/stolen-child");
            let answer = on.stolen.send("PATCH", &path, MERGE, change.clone()).await?;
            ensure!(answer.accepted(), "{change}: {answer:?}");
            for answer in on.stolen.every_write(&format!("{NAMESPACES}/stolen-plain"), &change).await? {
                ensure!(answer.refused(OTHER), "{change}: {answer:?}");
            }
        }
        for (change, why) in [
            (json!({"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}), OTHER),
            (json!({"labels": {"coppice.dev/protected": "true"}}), OTHER),
            (json!({"labels": {"kubernetes.io/x": "a"}}), OTHER),
            (json!({"labels": {"shop.tree.hnc.x-k8s.io/depth": "0"}}), OTHER),
            (json!({"annotations": {"openshift.io/sa.scc.uid-range": "0/1"}}), OTHER),
            (json!({"annotations": {"field.cattle.io/projectId": "p"}}), OTHER),
            (json!({"annotations": {"scheduler.alpha.kubernetes.io/node-selector": "a=b"}}), OTHER),
            (json!({"finalizers": ["example.org/never"]}), "its finalizers or its owners"),
            (json!({"ownerReferences": owner}), "its finalizers or its owners"),
        ] {
            for name in ["stolen-child", "stolen-plain"] {
                let path = format!("{NAMESPACES}/{name}");
                for answer in on.stolen.every_write(&path, &json!({"metadata": change})).await? {
                    ensure!(answer.refused(why), "{change}: {answer:?}");
                }
                let status = on
                    .stolen
                    .send("PATCH", &format!("{path}/status"), MERGE, json!({"metadata": change}))
                    .await?;
                ensure!(status.refused("no subresource of a namespace"), "{change}");
            }
        }
        let found = on.stolen.get(&format!("{NAMESPACES}/stolen-child")).await?;
        let finalized =
            on.stolen.send("PUT", &format!("{NAMESPACES}/stolen-child/finalize"), PLAIN, found).await?;
        ensure!(finalized.refused("no subresource of a namespace"), "{finalized:?}");
        let create = async |name: &str, labels: Value| {
            on.stolen.send("POST", NAMESPACES, PLAIN, namespace(name, &labels, &json!({}))).await
        };
        let ours = json!({"coppice.dev/subnamespace": "u"});
        ensure!(create("stolen-new", json!({})).await?.refused("for a Subnamespace only"));
        let more =
            json!({"coppice.dev/subnamespace": "u", "pod-security.kubernetes.io/enforce": "privileged"});
        ensure!(create("stolen-new", more).await?.refused(OTHER));
        ensure!(create("kube-new", ours.clone()).await?.refused("are in no tree"));
        ensure!(create("stolen-new", ours).await?.accepted());
        let mark = json!({"metadata": {"labels": {"coppice.dev/root": "x"}}});
        for name in ["default", "kube-system", "coppice-system"] {
            let answer =
                on.stolen.send("PATCH", &format!("{NAMESPACES}/{name}"), MERGE, mark.clone()).await?;
            ensure!(answer.refused("are in no tree"), "{name}: {answer:?}");
        }
        // What binds every account of Coppice binds this one.
        let path = format!("{NAMESPACES}/stolen-plain");
        let by_name = on.stolen.send("DELETE", &path, PLAIN, json!({})).await?;
        ensure!(by_name.refused("with the uid and the resourceVersion"), "{by_name:?}");
        ensure!(delete_exactly(&on.stolen, &path, true).await?.accepted());
        on.test_cluster
            .kubectl(ADMIN, &["label", "namespace", "stolen-plain", "coppice.dev/protected="])
            .await?;
        ensure!(delete_exactly(&on.stolen, &path, true).await?.refused("is protected"));
        Ok(())
    })
}

#[test]
fn a_stolen_token_writes_no_quota_of_others() -> Test {
    on_trees(async |on| {
        child(on, "theirs-child").await?;
        on.test_cluster.namespace("theirs-plain").await?;
        let tree = json!({"coppice.dev/tree": "t"});
        // Of the quotas of others none, whatever they are called.
        for (name, labels) in [("other", &tree), ("coppice", &json!({}))] {
            let answer = on
                .stolen
                .send("POST", &of("theirs-child", "resourcequotas"), PLAIN, quota(name, labels, "1"))
                .await?;
            ensure!(answer.refused("no ResourceQuota but coppice with the label"), "{name}: {answer:?}");
        }
        let theirs = of("theirs-plain", "resourcequotas/coppice");
        let answer = on
            .admin
            .send("POST", &of("theirs-plain", "resourcequotas"), PLAIN, quota("coppice", &json!({}), "1"))
            .await?;
        ensure!(answer.accepted(), "{answer:?}");
        for answer in [
            on.stolen.send("PATCH", &theirs, MERGE, json!({"metadata": {"labels": tree}})).await?,
            on.stolen.send("PATCH", &theirs, MERGE, json!({"spec": {"hard": {"pods": "9"}}})).await?,
            on.stolen.send("DELETE", &theirs, PLAIN, json!({})).await?,
        ] {
            ensure!(answer.refused("no ResourceQuota but coppice with the label"), "{answer:?}");
        }
        // What limits is in status, which Kubernetes alone writes: of no quota, those of trees included.
        for namespace in ["theirs-plain", "theirs-child"] {
            let status = of(namespace, "resourcequotas/coppice/status");
            let more = json!({"status": {"hard": {"pods": "9"}}});
            let answer = on.account.send("PATCH", &status, MERGE, more).await?;
            ensure!(answer.code == 403 && answer.text.contains("cannot patch resource"), "{answer:?}");
        }
        Ok(())
    })
}

#[test]
fn a_stolen_token_writes_of_our_kinds_the_finalizer_alone() -> Test {
    on_trees(async |on| {
        child(on, "own-child").await?;
        on.test_cluster.namespace("own-plain").await?;
        let all = of("own-child", "subnamespaces");
        let mut without_finalizer = subnamespace("own-a");
        without_finalizer["metadata"]["annotations"] = json!({"coppice.dev/moved-from": "u"});
        for object in [subnamespace("own-a"), without_finalizer] {
            let answer = on.stolen.send("POST", &all, PLAIN, object).await?;
            ensure!(answer.refused("creates no Subnamespace but one that takes over"), "{answer:?}");
        }
        ensure!(on.admin.send("POST", &all, PLAIN, subnamespace("own-a")).await?.accepted());
        let path = format!("{all}/own-a");
        let trees = format!("{COPPICE}/namespacetrees");
        let tree = json!({"apiVersion": "coppice.dev/v1alpha1", "kind": "NamespaceTree", "metadata": {"name": "own-tree"},
            "spec": {"root": "own-plain", "quota": {"hard": {"pods": "1"}}}});
        ensure!(on.admin.send("POST", &trees, PLAIN, tree).await?.accepted());
        let tree = format!("{trees}/own-tree");
        for (path, change) in [
            (&path, json!({"spec": {"quota": {"hard": {"pods": "1"}}}})),
            (&path, json!({"metadata": {"labels": {"a": "b"}}})),
            (&path, json!({"metadata": {"annotations": {"a": "b"}}})),
            (&path, json!({"metadata": {"finalizers": ["example.org/never"]}})),
            (&tree, json!({"spec": {"maxDepth": 7}})),
            (&tree, json!({"metadata": {"labels": {"a": "b"}}})),
            (&tree, json!({"metadata": {"finalizers": ["example.org/never"]}})),
        ] {
            for answer in on.stolen.every_write(path, &change).await? {
                let nothing =
                    "nothing of a Subnamespace, a QuotaTransfer or a NamespaceTree but its finalizer";
                ensure!(answer.refused(nothing), "{change}: {answer:?}");
            }
        }
        // With the rights that it has.
        for path in [&path, &tree] {
            for finalizers in [json!(["coppice.dev/cleanup"]), json!([])] {
                let change = json!({"metadata": {"finalizers": finalizers}});
                let answer = on.account.send("PATCH", path, MERGE, change).await?;
                ensure!(answer.accepted(), "{answer:?}");
            }
        }
        let by_name = on.account.send("DELETE", &path, PLAIN, json!({})).await?;
        ensure!(by_name.refused("deletes a Subnamespace only with the uid"), "{by_name:?}");
        ensure!(delete_exactly(&on.account, &path, false).await?.accepted());
        let leases = "/apis/coordination.k8s.io/v1/namespaces/coppice-system/leases";
        let lease = |name: &str| json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}});
        ensure!(
            on.account
                .send("POST", leases, PLAIN, lease("coppice-operator"))
                .await?
                .refused("no Lease but coppice-trees")
        );
        ensure!(on.account.send("POST", leases, PLAIN, lease("coppice-trees")).await?.accepted());
        let event = |name: &str, reporter: &str| {
            json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": name, "namespace": "own-child"},
                "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": reporter, "reportingInstance": "i",
                "action": "a", "reason": "R", "type": "Normal", "regarding": {"kind": "ConfigMap", "namespace": "own-child", "name": "x"}})
        };
        let events = "/apis/events.k8s.io/v1/namespaces/own-child/events";
        let forged = on.account.send("POST", events, PLAIN, event("forged", "kubelet")).await?;
        ensure!(forged.refused("Coppice writes Events in its own name only"), "{forged:?}");
        ensure!(on.account.send("POST", events, PLAIN, event("ours", "coppice")).await?.accepted());
        Ok(())
    })
}

#[test]
fn the_quota_of_a_tree_is_written_by_coppice_alone_and_goes_with_its_namespace() -> Test {
    const REFUSED: &str = "Coppice alone writes it: change spec.quota of the Subnamespace";
    on_trees(async |on| {
        child(on, "quota-child").await?;
        let all = of("quota-child", "resourcequotas");
        let path = format!("{all}/coppice");
        let tree = json!({"coppice.dev/tree": "t"});
        // Not even before it is there.
        for labels in [&json!({}), &tree] {
            let taken = on.admin.send("POST", &all, PLAIN, quota("coppice", labels, "9")).await?;
            ensure!(taken.refused("give yours another name") || taken.refused(REFUSED), "{taken:?}");
        }
        ensure!(on.account.send("POST", &all, PLAIN, quota("coppice", &tree, "5")).await?.accepted());
        let raise = json!({"spec": {"hard": {"pods": "6"}}, "metadata": {"annotations": {"coppice.dev/ledger": "{\"a\": 1}"}}});
        ensure!(on.account.send("PATCH", &path, MERGE, raise).await?.accepted());
        let in_force =
            async || (on.admin.get(&path).await.ok()?["status"]["hard"]["pods"] == "6").then_some(());
        on.test_cluster.until("the quota controller has written status", in_force).await?;
        for change in [
            json!({"spec": {"hard": {"pods": "7"}}}),
            json!({"metadata": {"annotations": {"coppice.dev/ledger": "{}"}}}),
            json!({"metadata": {"labels": {"coppice.dev/tree": "other"}}}),
            json!({"metadata": {"finalizers": ["example.org/never"]}}),
        ] {
            for answer in on.admin.every_write(&path, &change).await? {
                ensure!(answer.refused(REFUSED), "{change}: {answer:?}");
            }
        }
        let unlabel = json!([{"op": "remove", "path": "/metadata/labels/coppice.dev~1tree"}]);
        for answer in [
            on.admin.send("PATCH", &path, JSON, unlabel).await?,
            on.admin.send("DELETE", &path, PLAIN, json!({})).await?,
            on.admin.send("DELETE", &all, PLAIN, json!({})).await?,
        ] {
            ensure!(answer.refused(REFUSED), "{answer:?}");
        }
        // The API server's own accounting goes on, and so does what changes nothing.
        let status = json!({"status": {"hard": {"pods": "6"}, "used": {"pods": "0"}}});
        let answer = on.admin.send("PATCH", &format!("{path}/status"), MERGE, status).await?;
        ensure!(answer.accepted(), "{answer:?}");
        let found = on.admin.get(&path).await?;
        ensure!(on.admin.send("PUT", &path, PLAIN, found).await?.accepted());
        // Further quotas are everybody's, and elsewhere the name is free, but not the label.
        ensure!(on.admin.send("POST", &all, PLAIN, quota("theirs", &json!({}), "1")).await?.accepted());
        on.test_cluster.namespace("quota-plain").await?;
        let plain = of("quota-plain", "resourcequotas");
        ensure!(on.admin.send("POST", &plain, PLAIN, quota("coppice", &tree, "1")).await?.refused(REFUSED));
        ensure!(on.admin.send("POST", &plain, PLAIN, quota("coppice", &json!({}), "1")).await?.accepted());
        let last = json!({"metadata": {"labels": {"coppice.dev/has-children": null}}});
        let namespace = format!("{NAMESPACES}/quota-child");
        ensure!(on.account.send("PATCH", &namespace, MERGE, last).await?.accepted());
        // Held up, so that it is there while its namespace is being deleted: then it holds nobody up.
        let finalizers = |list: Value| json!({"metadata": {"finalizers": list}});
        let hold = finalizers(json!(["example.org/hold"]));
        ensure!(on.account.send("PATCH", &path, MERGE, hold).await?.accepted());
        ensure!(on.admin.send("PATCH", &path, MERGE, finalizers(json!([]))).await?.refused(REFUSED));
        ensure!(on.gitops.send("DELETE", &namespace, PLAIN, json!({})).await?.accepted());
        let going = async || {
            on.admin.get(&path).await.ok()?["metadata"]["deletionTimestamp"].is_string().then_some(())
        };
        on.test_cluster.until("the namespace controller deletes the quota", going).await?;
        let answer = on.admin.send("PATCH", &path, MERGE, finalizers(json!([]))).await?;
        ensure!(answer.accepted(), "{answer:?}");
        on.test_cluster
            .until("the namespace is gone with its quota", async || {
                on.test_cluster.get("namespace", "", "quota-child").await.ok()?.is_none().then_some(())
            })
            .await
    })
}

#[test]
fn a_namespace_with_subnamespaces_is_deleted_by_administrators_of_trees_alone() -> Test {
    on_trees(async |on| {
        child(on, "parent").await?;
        let path = format!("{NAMESPACES}/parent");
        let refused = "Namespace parent has subnamespaces: delete these Subnamespaces first (kubectl get subnamespaces -n parent).";
        let operator = Wire::impersonating(&on.test_cluster, OPERATOR, MASTERS)?;
        let platform = Wire::impersonating(&on.test_cluster, "platform", &[])?;
        for (name, role) in
            [("platform-trees", "coppice-tree-admin"), ("platform-namespaces", "all-of-namespaces")]
        {
            let role = format!("--clusterrole={role}");
            on.test_cluster
                .kubectl(ADMIN, &["create", "clusterrolebinding", name, &role, "--user=platform"])
                .await?;
        }
        for wire in [&on.gitops, &operator, &on.account, &on.stolen] {
            let answer = delete_exactly(wire, &path, true).await?;
            ensure!(answer.refused(refused), "{answer:?}");
        }
        let may = async || delete_exactly(&platform, &path, true).await.ok()?.accepted().then_some(());
        on.test_cluster.until("the role is in force", may).await?;
        ensure!(delete_exactly(&on.admin, &path, true).await?.accepted());
        let last = json!({"metadata": {"labels": {"coppice.dev/has-children": null}}});
        ensure!(on.account.send("PATCH", &path, MERGE, last).await?.accepted());
        for wire in [&on.gitops, &on.account] {
            let answer = delete_exactly(wire, &path, true).await?;
            ensure!(answer.accepted(), "{answer:?}");
        }
        Ok(())
    })
}

#[test]
fn a_tree_with_namespaces_is_not_deleted_and_a_subnamespace_returns_its_quota() -> Test {
    on_trees(async |on| {
        on.test_cluster.namespace("kept").await?;
        bind(&on.test_cluster, "kept", ALICE, "admin").await?;
        let tree = json!({"apiVersion": "coppice.dev/v1alpha1", "kind": "NamespaceTree", "metadata": {"name": "kept"},
            "spec": {"root": "kept", "quota": {"hard": {"pods": "10"}}}});
        ensure!(on.admin.send("POST", &format!("{COPPICE}/namespacetrees"), PLAIN, tree).await?.accepted());
        let path = format!("{COPPICE}/namespacetrees/kept");
        // Its status is written with the rights of the account, and by nobody else.
        let counted = async |wire: &Wire, namespaces: u32| {
            let mut tree = wire.get(&path).await?;
            tree["status"] = json!({"namespaces": namespaces});
            wire.send("PUT", &format!("{path}/status"), PLAIN, tree).await
        };
        ensure!(counted(&on.admin, 1).await?.refused("Only Coppice writes status"));
        ensure!(counted(&on.account, 3).await?.accepted());
        let answer = on.admin.send("DELETE", &path, PLAIN, json!({})).await?;
        ensure!(
            answer.refused(
                "delete their Subnamespaces first (kubectl get subnamespaces -n kept), or keep them without it (coppice tree detach kept): it \
                 has 3 namespaces"
            ),
            "{answer:?}"
        );
        ensure!(counted(&on.account, 1).await?.accepted());
        let answer = on.admin.send("DELETE", &path, PLAIN, json!({})).await?;
        ensure!(answer.accepted(), "{answer:?}");

        let alice = Wire::new(&on.test_cluster, ALICE)?;
        let all = of("kept", "subnamespaces");
        let path = format!("{all}/kept-a");
        ensure!(alice.send("POST", &all, PLAIN, subnamespace("kept-a")).await?.accepted());
        let status = json!({"status": {"phase": "Ready"}});
        let forged = on.admin.send("PATCH", &format!("{path}/status"), MERGE, status).await?;
        ensure!(forged.refused("Only Coppice writes status"), "{forged:?}");
        let mut written = on.account.get(&path).await?;
        written["status"] = json!({"phase": "Ready", "depth": 1, "children": 0});
        ensure!(on.account.send("PUT", &format!("{path}/status"), PLAIN, written).await?.accepted());
        let finalizers = |list: Value| json!({"metadata": {"finalizers": list}});
        let ours = finalizers(json!(["coppice.dev/cleanup"]));
        ensure!(on.account.send("PATCH", &path, MERGE, ours).await?.accepted());
        let own = finalizers(json!(["coppice.dev/cleanup", "example.org/own"]));
        for (change, accepted) in [
            (own, true),
            (json!({"spec": {"quota": {"hard": {"pods": "2"}}}}), true),
            (finalizers(json!(["example.org/own"])), false),
            (finalizers(json!(["coppice.dev/cleanup"])), true),
            (finalizers(json!([])), false),
        ] {
            for answer in alice.every_write(&path, &change).await? {
                let refused =
                    answer.refused("The finalizer coppice.dev/cleanup returns the quota of the Subnamespace");
                // By server-side apply a list of finalizers is added to.
                ensure!(
                    if accepted {
                        answer.accepted()
                    } else {
                        refused || answer.accepted() && has_ours(&answer)
                    },
                    "{change}: {answer:?}"
                );
            }
        }
        ensure!(alice.send("DELETE", &path, PLAIN, json!({})).await?.accepted());
        let waits = alice.get(&path).await?;
        ensure!(waits["metadata"]["deletionTimestamp"].is_string(), "{waits:#}");
        ensure!(!alice.send("PATCH", &path, MERGE, finalizers(json!([]))).await?.accepted());
        ensure!(on.restorer.send("PATCH", &path, MERGE, finalizers(json!([]))).await?.accepted());
        ensure!(alice.get(&path).await?["code"] == 404);
        Ok(())
    })
}

fn has_ours(answer: &WireResponse) -> bool {
    let object: Value = serde_json::from_str(&answer.text).unwrap_or_default();
    object["metadata"]["finalizers"].as_array().into_iter().flatten().any(|f| f == "coppice.dev/cleanup")
}

#[test]
fn admins_of_a_namespace_write_subnamespaces_and_its_readers_read_them() -> Test {
    on_trees(async |on| {
        on.test_cluster.namespace("tree-roles").await?;
        for (user, role) in [(ALICE, "admin"), (BOB, "edit"), (VIEWER, "view")] {
            bind(&on.test_cluster, "tree-roles", user, role).await?;
        }
        let all = of("tree-roles", "subnamespaces");
        let [alice, bob, viewer] = [ALICE, BOB, VIEWER].map(|user| Wire::new(&on.test_cluster, user));
        let (alice, bob, viewer) = (alice?, bob?, viewer?);
        ensure!(alice.send("POST", &all, PLAIN, subnamespace("roles-a")).await?.accepted());
        let path = format!("{all}/roles-a");
        for wire in [&bob, &viewer] {
            ensure!(wire.get(&path).await?["kind"] == "Subnamespace");
            for answer in [
                wire.send("POST", &all, PLAIN, subnamespace("roles-b")).await?,
                wire.send("PATCH", &path, MERGE, json!({"spec": {"quota": {"hard": {"pods": "1"}}}})).await?,
                wire.send("DELETE", &path, PLAIN, json!({})).await?,
            ] {
                ensure!(answer.code == 403, "{answer:?}");
            }
        }
        // Trees are the platform's.
        let tree = json!({"apiVersion": "coppice.dev/v1alpha1", "kind": "NamespaceTree", "metadata": {"name": "roles"},
            "spec": {"root": "tree-roles", "quota": {"hard": {"pods": "10"}}}});
        ensure!(alice.send("POST", &format!("{COPPICE}/namespacetrees"), PLAIN, tree).await?.code == 403);
        ensure!(alice.send("DELETE", &path, PLAIN, json!({})).await?.accepted());
        Ok(())
    })
}
