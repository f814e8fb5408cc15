//! What the API server refuses about the copies of objects in trees, and to whom, while no program of ours runs.

use anyhow::ensure;
use coppice_plane::ADMIN;
use serde_json::{Value, json};

use crate::access_control::raw_requests::{JSON, MERGE, PLAIN, Wire};
use crate::trees_access::{Trees, child, delete_exactly, on_trees};

type Test = anyhow::Result<()>;

const GROUP: &str = "rbac.authorization.k8s.io";
const FROM: &str = "coppice.dev/propagated-from";
const UID: &str = "coppice.dev/propagated-uid";

pub(crate) fn all(namespace: &str) -> String {
    format!("/apis/{GROUP}/v1/namespaces/{namespace}/rolebindings")
}

fn binding(name: &str, role: (&str, &str), metadata: &Value) -> Value {
    let mut all = json!({"name": name});
    for (key, value) in metadata.as_object().into_iter().flatten() {
        all[key] = value.clone();
    }
    json!({"apiVersion": format!("{GROUP}/v1"), "kind": "RoleBinding", "metadata": all,
        "roleRef": {"apiGroup": GROUP, "kind": role.0, "name": role.1},
        "subjects": [{"apiGroup": GROUP, "kind": "User", "name": "somebody"}]})
}

/// As Coppice writes it into a namespace below `root`.
pub(crate) fn copy(name: &str) -> Value {
    let metadata = json!({"labels": {FROM: "root"}, "annotations": {UID: "u"}});
    binding(name, ("ClusterRole", "view"), &metadata)
}

pub(crate) fn subject(name: &str) -> Value {
    json!({"subjects": [{"apiGroup": GROUP, "kind": "User", "name": name}]})
}

#[test]
fn a_copy_is_written_by_coppice_alone_and_goes_with_its_namespace() -> Test {
    const REFUSED: &str = "Coppice alone writes it: change the one there";
    on_trees(async |on| {
        child(on, "copies-child").await?;
        let of_child = all("copies-child");
        let path = format!("{of_child}/team");
        // With the rights that it has.
        ensure!(on.account.send("POST", &of_child, PLAIN, copy("team")).await?.accepted());
        ensure!(on.account.send("PATCH", &path, MERGE, subject("other")).await?.accepted());
        on.test_cluster
            .kubectl(
                ADMIN,
                &[
                    "create",
                    "rolebinding",
                    "tenants",
                    "-n",
                    "copies-child",
                    "--clusterrole=admin",
                    "--user=tenant",
                ],
            )
            .await?;
        let tenant = Wire::impersonating(&on.test_cluster, "tenant", &[])?;
        let plain = binding("plain", ("ClusterRole", "view"), &json!({}));
        let may = async || {
            tenant.send("POST", &of_child, PLAIN, plain.clone()).await.ok()?.accepted().then_some(())
        };
        on.test_cluster.until("the role is in force", may).await?;
        let unlabel =
            json!([{"op": "remove", "path": format!("/metadata/labels/{}", FROM.replace('/', "~1"))}]);
        let mut answers = vec![
            tenant.send("PATCH", &path, MERGE, subject("tenant")).await?,
            tenant.send("PATCH", &path, JSON, unlabel).await?,
            tenant.send("DELETE", &path, PLAIN, json!({})).await?,
            tenant.send("DELETE", &of_child, PLAIN, json!({})).await?,
            tenant.send("POST", &of_child, PLAIN, copy("forged")).await?,
        ];
        for change in [
            json!({"metadata": {"labels": {FROM: "elsewhere"}}}),
            json!({"metadata": {"annotations": {UID: "forged"}}}),
            json!({"metadata": {"finalizers": ["example.org/never"]}}),
        ] {
            answers.extend(tenant.every_write(&path, &change).await?);
        }
        let label = json!({"metadata": {"labels": {FROM: "root"}}});
        answers.extend(tenant.every_write(&format!("{of_child}/tenants"), &label).await?);
        for answer in answers {
            ensure!(answer.refused(REFUSED), "{answer:?}");
        }
        // What changes nothing passes, and what is theirs is theirs.
        let found = tenant.get(&path).await?;
        ensure!(found["subjects"][0]["name"] == "other", "{found:#}");
        ensure!(tenant.send("PUT", &path, PLAIN, found).await?.accepted());
        let theirs = format!("{of_child}/tenants");
        ensure!(
            tenant
                .send("PATCH", &theirs, MERGE, json!({"metadata": {"labels": {"a": "b"}}}))
                .await?
                .accepted()
        );
        // An administrator has every verb, and so set-tree.
        let restored = format!("{of_child}?dryRun=All");
        ensure!(on.admin.send("POST", &restored, PLAIN, copy("restored")).await?.accepted());
        let last = json!({"metadata": {"labels": {"coppice.dev/has-children": null}}});
        let namespace = "/api/v1/namespaces/copies-child";
        ensure!(on.account.send("PATCH", namespace, MERGE, last).await?.accepted());
        ensure!(on.gitops.send("DELETE", namespace, PLAIN, json!({})).await?.accepted());
        let gone =
            async || on.test_cluster.get("namespace", "", "copies-child").await.ok()?.is_none().then_some(());
        on.test_cluster.until("the namespace is gone with its copies", gone).await
    })
}

#[test]
fn a_stolen_token_binds_nobody_but_in_namespaces_that_were_created_in_a_tree() -> Test {
    const BELOW: &str = "into those that were created below it, and into no others";
    const UNLABELLED: &str = "or RoleBinding without the label coppice.dev/propagated-from";
    on_trees(async |on| {
        child(on, "bound-child").await?;
        on.test_cluster.namespace("bound-plain").await?;
        let (of_child, of_plain) = (all("bound-child"), all("bound-plain"));
        let labelled = |from: &str| json!({"labels": {FROM: from}});
        let view = ("ClusterRole", "view");
        let more = |key: &str, value: Value| {
            let mut metadata = labelled("root");
            metadata[key] = value;
            binding("b", view, &metadata)
        };
        let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "11111111-2222-3333-4444-555555555555"}]);
        for (path, object, why) in [
            (&of_plain, copy("b"), BELOW),
            (&of_child, binding("b", view, &labelled("bound-child")), BELOW),
            (&of_child, binding("b", view, &labelled("elsewhere")), BELOW),
            (&of_child, binding("b", view, &json!({})), UNLABELLED),
            (&of_child, binding("b", ("Role", "view"), &labelled("root")), "no RoleBindings to Roles"),
            (&of_child, more("labels", json!({FROM: "root", "a": "b"})), "nothing of the metadata"),
            (&of_child, more("annotations", json!({"a": "b"})), "nothing of the metadata"),
            (&of_child, more("finalizers", json!(["example.org/never"])), "nothing of the metadata"),
            (&of_child, more("ownerReferences", owner), "nothing of the metadata"),
        ] {
            let answer = on.stolen.send("POST", path, PLAIN, object.clone()).await?;
            ensure!(answer.refused(why), "{object}: {answer:?}");
        }
        // No namespace that exists is taken into a tree to bind somebody there.
        let label = json!({"metadata": {"labels": {"coppice.dev/subnamespace": "u"}}});
        for answer in on.stolen.every_write("/api/v1/namespaces/bound-plain", &label).await? {
            ensure!(answer.refused("on none that exists"), "{answer:?}");
        }
        // Others' are left alone.
        for path in [&of_child, &of_plain] {
            let theirs = binding("theirs", view, &json!({}));
            ensure!(on.admin.send("POST", path, PLAIN, theirs).await?.accepted());
            let theirs = format!("{path}/theirs");
            for answer in [
                on.stolen.send("PATCH", &theirs, MERGE, subject("thief")).await?,
                on.stolen.send("PATCH", &theirs, MERGE, json!({"metadata": labelled("root")})).await?,
                delete_exactly(&on.stolen, &theirs, false).await?,
            ] {
                ensure!(answer.refused(UNLABELLED), "{answer:?}");
            }
        }
        // With its own rights, it binds three roles.
        let high = binding("high", ("ClusterRole", "cluster-admin"), &labelled("root"));
        let answer = on.account.send("POST", &of_child, PLAIN, high).await?;
        ensure!(answer.refused("attempting to grant RBAC permissions not currently held"), "{answer:?}");
        for role in ["admin", "edit", "view"] {
            let object = binding(role, ("ClusterRole", role), &labelled("root"));
            let answer = on.account.send("POST", &of_child, PLAIN, object).await?;
            ensure!(answer.accepted(), "{answer:?}");
        }
        let path = format!("{of_child}/view");
        let by_name = on.account.send("DELETE", &path, PLAIN, json!({})).await?;
        ensure!(by_name.refused("deletes a copy only with the uid"), "{by_name:?}");
        let answer = delete_exactly(&on.account, &path, false).await?;
        ensure!(answer.accepted(), "{answer:?}");
        Ok(())
    })
}

/// A kind whose copies limit those who work in a namespace.
struct Limiting {
    group: &'static str,
    resource: &'static str,
    kind: &'static str,
    spec: Value,
    /// What Coppice, and what a tenant, would change it to.
    changes: [Value; 2],
}

impl Limiting {
    fn both() -> [Self; 2] {
        let labelled = |key: &str| json!({"podSelector": {"matchLabels": {key: "b"}}});
        [
            Self {
                group: "/apis/networking.k8s.io/v1",
                resource: "networkpolicies",
                kind: "NetworkPolicy",
                spec: json!({"podSelector": {}, "policyTypes": ["Ingress"]}),
                changes: [labelled("ours"), labelled("theirs")],
            },
            Self {
                group: "/api/v1",
                resource: "limitranges",
                kind: "LimitRange",
                spec: json!({"limits": []}),
                changes: [json!({"limits": [{"type": "Pod", "max": {"cpu": "1"}}]}), json!({"limits": []})],
            },
        ]
    }

    fn all(&self, namespace: &str) -> String {
        format!("{}/namespaces/{namespace}/{}", self.group, self.resource)
    }

    fn object(&self, metadata: &Value) -> Value {
        let version = self.group.trim_start_matches("/apis/").trim_start_matches("/api/");
        json!({"apiVersion": version, "kind": self.kind, "metadata": metadata, "spec": self.spec})
    }

    fn copy(&self, name: &str) -> Value {
        self.object(&json!({"name": name, "labels": {FROM: "root"}, "annotations": {UID: "u"}}))
    }
}

#[test]
fn copies_of_what_limits_a_namespace_are_guarded_as_those_of_rights() -> Test {
    on_trees(async |on| {
        child(on, "limited-child").await?;
        on.test_cluster.namespace("limited-plain").await?;
        let create = async |what: &str| {
            let args: Vec<&str> = ["create"].into_iter().chain(what.split(' ')).collect();
            on.test_cluster.kubectl(ADMIN, &args).await.map(drop)
        };
        create("rolebinding tenants -n limited-child --clusterrole=admin --user=limited").await?;
        // The role admin of Kubernetes reads LimitRanges only.
        create("role limits -n limited-child --verb=* --resource=limitranges").await?;
        create("rolebinding limits -n limited-child --role=limits --user=limited").await?;
        let tenant = Wire::impersonating(&on.test_cluster, "limited", &[])?;
        for kind in Limiting::both() {
            let path = format!("{}/deny", kind.all("limited-child"));
            let created =
                on.account.send("POST", &kind.all("limited-child"), PLAIN, kind.copy("deny")).await?;
            ensure!(created.accepted(), "{created:?}");
            let updated = on.account.send("PATCH", &path, MERGE, json!({"spec": kind.changes[0]})).await?;
            ensure!(updated.accepted(), "{updated:?}");
            the_tenants_own_are_theirs(on, &tenant, &kind, &path).await?;
            the_account_has_its_copies_alone(on, &kind).await?;
            let by_name = on.account.send("DELETE", &path, PLAIN, json!({})).await?;
            ensure!(by_name.refused("deletes a copy only with the uid"), "{by_name:?}");
            ensure!(delete_exactly(&on.account, &path, false).await?.accepted());
        }
        Ok(())
    })
}

/// And what they make of a copy is refused.
async fn the_tenants_own_are_theirs(on: &Trees, tenant: &Wire, kind: &Limiting, copy: &str) -> Test {
    let all = kind.all("limited-child");
    let own = kind.object(&json!({"name": "theirs"}));
    let may = async || tenant.send("POST", &all, PLAIN, own.clone()).await.ok()?.accepted().then_some(());
    on.test_cluster.until("the role is in force", may).await?;
    let mut answers = vec![
        tenant.send("POST", &all, PLAIN, kind.copy("forged")).await?,
        tenant.send("PATCH", copy, MERGE, json!({"spec": kind.changes[1]})).await?,
        tenant.send("PATCH", copy, MERGE, json!({"metadata": {"labels": {FROM: null}}})).await?,
        tenant.send("DELETE", copy, PLAIN, json!({})).await?,
    ];
    let label = json!({"metadata": {"labels": {FROM: "root"}}});
    answers.extend(tenant.every_write(&format!("{all}/theirs"), &label).await?);
    for answer in answers {
        ensure!(answer.refused("Coppice alone writes it: change the one there"), "{answer:?}");
    }
    let found = tenant.get(copy).await?;
    ensure!(tenant.send("PUT", copy, PLAIN, found).await?.accepted(), "what changes nothing passes");
    Ok(())
}

/// Whatever rights its token has.
async fn the_account_has_its_copies_alone(on: &Trees, kind: &Limiting) -> Test {
    const UNLABELLED: &str = "or RoleBinding without the label";
    let all = kind.all("limited-child");
    let more = json!({"name": "x", "labels": {FROM: "root", "a": "b"}});
    for (path, object, why) in [
        (
            kind.all("limited-plain"),
            kind.copy("x"),
            "into those that were created below it, and into no others",
        ),
        (all.clone(), kind.object(&json!({"name": "x"})), UNLABELLED),
        (all.clone(), kind.object(&more), "nothing of the metadata"),
    ] {
        let answer = on.stolen.send("POST", &path, PLAIN, object).await?;
        ensure!(answer.refused(why), "{answer:?}");
    }
    let theirs = format!("{all}/theirs");
    for answer in [
        on.stolen.send("PATCH", &theirs, MERGE, json!({"spec": kind.changes[0]})).await?,
        delete_exactly(&on.stolen, &theirs, false).await?,
    ] {
        ensure!(answer.refused(UNLABELLED), "{answer:?}");
    }
    Ok(())
}
