//! What is copied down a tree of namespaces, as its users see it: on a real API server, whose RBAC says who may do what.

use anyhow::{Context as _, ensure};
use coppice_plane::{ADMIN, ALICE, BOB};
use coppice_tests::{condition, on_own_plane};
use serde_json::{Value, json};

use crate::trees::{Setup, killed};
use crate::trees_access::{TREES, bind};

type Test = anyhow::Result<()>;

const FROM: &str = "coppice.dev/propagated-from";

impl Setup {
    async fn binding(&self, namespace: &str, name: &str) -> Option<Value> {
        self.test_cluster.get("rolebinding", namespace, name).await.ok()?
    }

    /// Waits until a namespace has this copy, which binds that.
    async fn copied(&self, namespace: &str, name: &str, (role, user): (&str, &str)) -> anyhow::Result<Value> {
        let what = format!("{namespace} has a copy {name} of {role} for {user}");
        let copied = async || {
            let found = self.binding(namespace, name).await?;
            let subject = &found["subjects"][0]["name"];
            let ours = found["metadata"]["labels"][FROM].is_string();
            (ours && found["roleRef"]["name"] == role && subject == user).then_some(found)
        };
        self.test_cluster.until(&what, copied).await
    }

    async fn not_there(&self, namespace: &str, name: &str) -> Test {
        let gone = async || {
            self.test_cluster.get("rolebinding", namespace, name).await.ok()?.is_none().then_some(())
        };
        self.test_cluster.until(&format!("{namespace} has no {name}"), gone).await
    }

    /// Waits until the condition of a Subnamespace has this reason; its message.
    async fn propagated(&self, parent: &str, name: &str, reason: &str) -> anyhow::Result<String> {
        let says = |object: &Value| condition(object, "Propagated")["reason"] == reason;
        let object = self.until(("sns", parent, name), reason, says).await?;
        Ok(condition(&object, "Propagated")["message"].as_str().unwrap_or_default().to_owned())
    }

    /// Waits until the copy in a namespace has the spec that its source has now.
    async fn has_spec(&self, (kind, from, name): (&str, &str, &str), to: &str) -> anyhow::Result<Value> {
        let copied = async || {
            let source = self.test_cluster.get(kind, from, name).await.ok()??;
            let copy = self.test_cluster.get(kind, to, name).await.ok()??;
            let ours =
                copy["metadata"]["annotations"]["coppice.dev/propagated-uid"] == source["metadata"]["uid"];
            (ours && copy["spec"] == source["spec"]).then_some(copy)
        };
        self.test_cluster.until(&format!("{to} has the {kind} {name} of {from}"), copied).await
    }

    async fn without(&self, (kind, namespace, name): (&str, &str, &str)) -> Test {
        let gone = async || self.test_cluster.get(kind, namespace, name).await.ok()?.is_none().then_some(());
        self.test_cluster.until(&format!("{namespace} has no {kind} {name}"), gone).await
    }

    async fn bind_role(&self, namespace: &str, name: &str, role: &str, user: &str) -> Test {
        let group = "rbac.authorization.k8s.io";
        let binding = json!({
            "apiVersion": format!("{group}/v1"), "kind": "RoleBinding",
            "metadata": {"name": name, "namespace": namespace, "labels": {"team": "a"}},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": group, "kind": "User", "name": user}]
        });
        self.test_cluster.admin().await?.create(&binding).await.map(drop)
    }

    async fn unbind(&self, namespace: &str, name: &str) -> Test {
        self.test_cluster.admin().await?.delete("rolebinding", namespace, name, &json!({})).await
    }

    async fn propagate(&self, tree: &str, rules: &Value) -> Test {
        let patch = json!({"spec": {"propagate": {"roleBindings": rules}}});
        self.test_cluster.admin().await?.patch("nstree", "", tree, &patch).await.map(drop)
    }

    /// Waits until a user may create a pod in a namespace, and creates it.
    async fn works_in(&self, user: &str, namespace: &str) -> Test {
        let user_requests = self.test_cluster.requests(user).await?;
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "works", "namespace": namespace},
            "spec": {"containers": [{"name": "c", "image": "busybox"}]}});
        let works = async || user_requests.create(&pod).await.ok();
        self.test_cluster.until(&format!("{user} creates a pod in {namespace}"), works).await.map(drop)
    }
}

#[test]
fn whoever_is_admin_in_a_namespace_is_admin_below_it() -> Test {
    on_own_plane(async {
        let cluster = Setup::start().await?;
        let program = cluster.program().await?;
        let scenario = async {
            cluster.tree("shop", &json!({"pods": "10"})).await?;
            bind(&cluster.test_cluster, "shop", ALICE, "admin").await?;
            creator_works(&cluster).await?;
            put_right(&cluster).await?;
            foreign(&cluster).await?;
            modes(&cluster).await?;
            further_roles(&cluster).await?;
            revoked(&cluster).await?;
            limits(&cluster).await?;
            networks(&cluster).await?;
            exceptions(&cluster).await
        };
        scenario.await.with_context(|| program.last_lines())
    })
}

/// Whoever creates a namespace works in it, and creates others below it.
async fn creator_works(cluster: &Setup) -> Test {
    cluster.request(ALICE, "shop", "shop-web", &json!({"pods": "4"})).await?;
    cluster.works_in(ALICE, "shop-web").await?;
    cluster.request(ALICE, "shop-web", "shop-web-test", &json!({"pods": "1"})).await?;
    cluster.works_in(ALICE, "shop-web-test").await?;
    cluster.propagated("shop", "shop-web", "Reconciled").await?;
    let source = cluster.binding("shop", "alice-admin").await.context("the source")?;
    let copy = cluster.binding("shop-web-test", "alice-admin").await.context("the copy")?;
    ensure!(copy["metadata"]["labels"] == json!({FROM: "shop"}), "{copy:#}");
    let uid = &copy["metadata"]["annotations"]["coppice.dev/propagated-uid"];
    ensure!(*uid == source["metadata"]["uid"] && copy["subjects"] == source["subjects"], "{copy:#}");
    // Its quota was there before anybody had rights in it.
    let audit = cluster.test_cluster.plane.audit()?;
    let first = |resource: &str| {
        audit.iter().position(|event| {
            let created = event.user == TREES && event.verb == "create" && event.namespace == "shop-web";
            created && event.resource == resource
        })
    };
    let (quota, binding) = (first("resourcequotas"), first("rolebindings"));
    ensure!(quota.is_some() && quota < binding, "{quota:?}, {binding:?}");
    Ok(())
}

/// By administrators, whom no policy keeps from it.
async fn put_right(cluster: &Setup) -> Test {
    let admin = cluster.test_cluster.admin().await?;
    let group = "rbac.authorization.k8s.io";
    let subjects = json!({
        "metadata": {"labels": {"a": "b"}}, "subjects": [{"apiGroup": group, "kind": "User", "name": BOB}]
    });
    admin.patch("rolebinding", "shop-web", "alice-admin", &subjects).await?;
    cluster.copied("shop-web", "alice-admin", ("admin", ALICE)).await?;
    let before = cluster.binding("shop-web", "alice-admin").await.context("the copy")?;
    cluster.unbind("shop-web", "alice-admin").await?;
    let again = cluster.copied("shop-web", "alice-admin", ("admin", ALICE)).await?;
    ensure!(again["metadata"]["uid"] != before["metadata"]["uid"], "{again:#}");
    // A role cannot be changed: the source is another, and so are its copies.
    cluster.bind_role("shop", "bob", "view", BOB).await?;
    cluster.copied("shop-web-test", "bob", ("view", BOB)).await?;
    cluster.unbind("shop", "bob").await?;
    cluster.bind_role("shop", "bob", "edit", BOB).await?;
    cluster.copied("shop-web-test", "bob", ("edit", BOB)).await?;
    // Nearer to the namespace is another of that name.
    cluster.unbind("shop", "bob").await?;
    cluster.not_there("shop-web", "bob").await?;
    cluster.bind_role("shop-web", "bob", "view", BOB).await?;
    cluster.bind_role("shop", "bob", "edit", BOB).await?;
    let message = cluster.propagated("shop", "shop-web", "CopyNameTaken").await?;
    ensure!(message.contains("RoleBinding bob of namespace shop is not copied"), "{message}");
    cluster.copied("shop-web-test", "bob", ("view", BOB)).await?;
    cluster.unbind("shop", "bob").await?;
    cluster.unbind("shop-web", "bob").await?;
    cluster.not_there("shop-web-test", "bob").await?;
    cluster.propagated("shop", "shop-web", "Reconciled").await.map(drop)
}

/// What somebody else has written stays as it is.
async fn foreign(cluster: &Setup) -> Test {
    cluster.bind_role("shop-web-test", "team", "view", BOB).await?;
    let before = cluster.binding("shop-web-test", "team").await.context("theirs")?;
    cluster.bind_role("shop", "team", "edit", BOB).await?;
    cluster.copied("shop-web", "team", ("edit", BOB)).await?;
    let message = cluster.propagated("shop-web", "shop-web-test", "CopyNameTaken").await?;
    ensure!(message.contains("namespace shop-web-test has a RoleBinding team that Coppice"), "{message}");
    let notified = async || {
        let events = cluster.test_cluster.events("shop-web", "shop-web-test", "CopyNameTaken").await.ok()?;
        (!events.is_empty()).then_some(())
    };
    cluster.test_cluster.until("an Event says so", notified).await?;
    ensure!(cluster.binding("shop-web-test", "team").await == Some(before));
    cluster.unbind("shop-web-test", "team").await?;
    cluster.copied("shop-web-test", "team", ("edit", BOB)).await?;
    cluster.propagated("shop-web", "shop-web-test", "Reconciled").await.map(drop)
}

async fn modes(cluster: &Setup) -> Test {
    cluster.propagate("shop", &json!({"mode": "Ignore"})).await?;
    let ignored = |object: &Value| {
        condition(object, "Propagated")["message"].as_str().is_some_and(|message| message.contains("left as"))
    };
    cluster.until(("sns", "shop", "shop-web"), "ignored", ignored).await?;
    cluster.unbind("shop", "team").await?;
    ensure!(cluster.binding("shop-web", "team").await.is_some(), "copies are left as they are");
    cluster.propagate("shop", &json!({"mode": "Remove"})).await?;
    for namespace in ["shop-web", "shop-web-test"] {
        for name in ["team", "alice-admin"] {
            cluster.not_there(namespace, name).await?;
        }
    }
    ensure!(cluster.binding("shop", "alice-admin").await.is_some(), "the source stays");
    cluster.propagate("shop", &json!({"mode": "Propagate"})).await?;
    cluster.copied("shop-web-test", "alice-admin", ("admin", ALICE)).await.map(drop)
}

/// What the API server refuses stops nothing else, and says what to do.
async fn further_roles(cluster: &Setup) -> Test {
    let create = async |args: &[&str]| cluster.test_cluster.kubectl(ADMIN, args).await.map(drop);
    create(&["create", "clusterrole", "deployer", "--verb=get", "--resource=secrets"]).await?;
    cluster.bind_role("shop", "bob", "deployer", BOB).await?;
    cluster.propagate("shop", &json!({"clusterRoles": ["admin", "deployer", "view"]})).await?;
    cluster.bind_role("shop", "viewers", "view", BOB).await?;
    cluster.copied("shop-web-test", "viewers", ("view", BOB)).await?;
    let message = cluster.propagated("shop", "shop-web", "CopyRefused").await?;
    ensure!(message.contains("Coppice may not bind ClusterRole deployer"), "{message}");
    ensure!(cluster.binding("shop-web", "bob").await.is_none());
    let verb = "--verb=bind";
    let role = ["create", "clusterrole", "bind-deployer", verb, "--resource=clusterroles"];
    create(&[&role[..], &["--resource-name=deployer"]].concat()).await?;
    let binding = ["create", "clusterrolebinding", "bind-deployer", "--clusterrole=bind-deployer"];
    create(&[&binding[..], &["--serviceaccount=coppice-system:coppice-trees"]].concat()).await?;
    cluster.copied("shop-web", "bob", ("deployer", BOB)).await?;
    cluster.propagated("shop", "shop-web", "Reconciled").await.map(drop)
}

/// Who has no rights any more has none below either.
async fn revoked(cluster: &Setup) -> Test {
    // What another RoleBinding of hers gives stays.
    cluster.bind_role("shop", "alice-too", "view", ALICE).await?;
    for namespace in ["shop-web", "shop-web-test"] {
        cluster.copied(namespace, "alice-too", ("view", ALICE)).await?;
    }
    cluster.unbind("shop", "alice-admin").await?;
    cluster.not_there("shop-web", "alice-admin").await?;
    cluster.not_there("shop-web-test", "alice-admin").await?;
    let alice = cluster.test_cluster.requests(ALICE).await?;
    let no_admin = async || {
        let may = ["auth", "can-i", "create", "pods", "-n", "shop-web"];
        cluster.test_cluster.kubectl(ALICE, &may).await.is_err().then_some(())
    };
    cluster.test_cluster.until("alice is no admin below any more", no_admin).await?;
    alice
        .list("pods", "shop-web")
        .await
        .context("alice still reads what the other RoleBinding lets her read")?;
    cluster.unbind("shop", "alice-too").await?;
    for namespace in ["shop-web", "shop-web-test"] {
        cluster.not_there(namespace, "alice-too").await?;
    }
    let pods = async || alice.list("pods", "shop-web").await.is_err().then_some(());
    cluster.test_cluster.until("alice is refused", pods).await?;
    // Every deletion was of what had been read.
    let audit = cluster.test_cluster.plane.audit()?;
    let deletes =
        audit.iter().filter(|event| event.user == TREES && event.verb == "delete").collect::<Vec<_>>();
    ensure!(!deletes.is_empty() && deletes.iter().all(|event| event.resource == "rolebindings"));
    Ok(())
}

fn pod(namespace: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace},
        "spec": {"containers": [{"name": "c", "image": "busybox"}]}})
}

/// Where a tree limits `cpu`, pods without requests are refused until a `LimitRange` says what they request.
async fn limits(cluster: &Setup) -> Test {
    let admin = cluster.test_cluster.admin().await?;
    cluster.tree("depot", &json!({"cpu": "2", "pods": "10"})).await?;
    cluster.request(ADMIN, "depot", "depot-a", &json!({"cpu": "1", "pods": "4"})).await?;
    cluster.ready("depot", "depot-a").await?;
    let refused = admin.create(&pod("depot-a", "no-requests")).await.err().context("it is refused")?;
    ensure!(format!("{refused:#}").contains("must specify"), "{refused:#}");
    let limit = |cpu: &str| {
        json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "defaults", "namespace": "depot"},
            "spec": {"limits": [{"type": "Container", "defaultRequest": {"cpu": cpu}}]}})
    };
    admin.create(&limit("100m")).await?;
    let rules = json!({"spec": {"propagate": {"limitRanges": {"mode": "Propagate"}, "networkPolicies": {"mode": "Propagate"}}}});
    admin.patch("nstree", "", "depot", &rules).await?;
    let works = async || admin.create(&pod("depot-a", "defaulted")).await.ok();
    let created = cluster.test_cluster.until("a pod without requests is created", works).await?;
    let requests = &created["spec"]["containers"][0]["resources"]["requests"]["cpu"];
    ensure!(requests == "100m", "{created:#}");
    cluster.propagated("depot", "depot-a", "Reconciled").await?;
    // Changes arrive, and those of others do not stay.
    admin.patch("limitrange", "depot", "defaults", &json!({"spec": limit("200m")["spec"]})).await?;
    cluster.has_spec(("limitrange", "depot", "defaults"), "depot-a").await?;
    let edited = json!({"spec": {"limits": [{"type": "Container", "max": {"cpu": "1"}}]}});
    admin.patch("limitrange", "depot-a", "defaults", &edited).await?;
    cluster.has_spec(("limitrange", "depot", "defaults"), "depot-a").await.map(drop)
}

async fn networks(cluster: &Setup) -> Test {
    let admin = cluster.test_cluster.admin().await?;
    let inside = json!({"namespaceSelector": {"matchExpressions": [
        {"key": "depot.tree.coppice.dev/depth", "operator": "Exists"}
    ]}});
    let policy = |spec: Value| {
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "spec": spec,
            "metadata": {"name": "inside", "namespace": "depot", "labels": {"team": "a"}}})
    };
    let spec = json!({"podSelector": {"matchLabels": {"a": "b", "c": "d"}}, "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"from": [inside]}], "egress": [{}]});
    admin.create(&policy(spec)).await?;
    cluster.request(ADMIN, "depot-a", "depot-a-test", &json!({"cpu": "100m", "pods": "1"})).await?;
    for namespace in ["depot-a", "depot-a-test"] {
        cluster.has_spec(("networkpolicy", "depot", "inside"), namespace).await?;
    }
    let copy =
        cluster.test_cluster.get("networkpolicy", "depot-a-test", "inside").await?.context("the copy")?;
    ensure!(copy["metadata"]["labels"] == json!({FROM: "depot"}), "{copy:#}");
    // What the source has not any more, copies have not either.
    let less = json!({"spec": {"podSelector": {"matchLabels": {"c": null}}, "egress": null, "policyTypes": ["Ingress"]}});
    admin.patch("networkpolicy", "depot", "inside", &less).await?;
    let copy = cluster.has_spec(("networkpolicy", "depot", "inside"), "depot-a-test").await?;
    ensure!(copy["spec"]["podSelector"] == json!({"matchLabels": {"a": "b"}}), "{copy:#}");
    ensure!(copy["spec"]["egress"].is_null(), "{copy:#}");
    // Deleted by somebody, it is there again; deleted with its source, it is gone.
    admin.delete("networkpolicy", "depot-a-test", "inside", &json!({})).await?;
    cluster.has_spec(("networkpolicy", "depot", "inside"), "depot-a-test").await?;
    admin.delete("networkpolicy", "depot", "inside", &json!({})).await?;
    for namespace in ["depot-a", "depot-a-test"] {
        cluster.without(("networkpolicy", namespace, "inside")).await?;
    }
    // The other kind stays.
    ensure!(cluster.test_cluster.get("limitrange", "depot-a-test", "defaults").await?.is_some());
    Ok(())
}

/// An object says where it is copied to.
async fn exceptions(cluster: &Setup) -> Test {
    const TO: &str = "coppice.dev/propagate-to";
    let admin = cluster.test_cluster.admin().await?;
    let to = async |value: Value| {
        let patch = json!({"metadata": {"annotations": {TO: value}}});
        admin.patch("limitrange", "depot", "defaults", &patch).await.map(drop)
    };
    to(json!("depot-a.tree.coppice.dev/depth,depot-a.tree.coppice.dev/depth!=0")).await?;
    cluster.without(("limitrange", "depot-a", "defaults")).await?;
    ensure!(cluster.test_cluster.get("limitrange", "depot-a-test", "defaults").await?.is_some());
    to(json!("team in")).await?;
    let message = cluster.propagated("depot-a", "depot-a-test", "CopyRefused").await?;
    let expected =
        "LimitRange defaults of namespace depot is not copied: its annotation coppice.dev/propagate-to";
    ensure!(message.starts_with(expected), "{message}");
    ensure!(cluster.test_cluster.get("limitrange", "depot-a-test", "defaults").await?.is_some());
    to(json!("none")).await?;
    cluster.without(("limitrange", "depot-a-test", "defaults")).await?;
    to(Value::Null).await?;
    for namespace in ["depot-a", "depot-a-test"] {
        cluster.has_spec(("limitrange", "depot", "defaults"), namespace).await?;
    }
    // With the mode Remove all copies go, and the source stays.
    let rules = json!({"spec": {"propagate": {"limitRanges": {"mode": "Remove"}}}});
    admin.patch("nstree", "", "depot", &rules).await?;
    for namespace in ["depot-a", "depot-a-test"] {
        cluster.without(("limitrange", namespace, "defaults")).await?;
    }
    ensure!(cluster.test_cluster.get("limitrange", "depot", "defaults").await?.is_some());
    Ok(())
}

#[test]
fn killed_at_every_write_what_is_copied_is_complete_and_what_is_revoked_is_gone() -> Test {
    on_own_plane(async {
        let cluster = Setup::start().await?;
        cluster.tree("shop", &json!({"pods": "10"})).await?;
        let program = cluster.program().await?;
        for name in ["shop-a", "shop-b"] {
            cluster.request(ADMIN, "shop", name, &json!({"pods": "1"})).await?;
            cluster.ready("shop", name).await.with_context(|| program.last_lines())?;
            cluster.propagated("shop", name, "Reconciled").await?;
        }
        let mut program = program;
        program.kill().await?;
        for (name, role) in [("one", "admin"), ("two", "view")] {
            cluster.bind_role("shop", name, role, BOB).await?;
        }
        let all = || {
            ["shop-a", "shop-b"].into_iter().flat_map(|namespace| [(namespace, "one"), (namespace, "two")])
        };
        killed(&cluster, async || {
            for (namespace, name) in all() {
                cluster.binding(namespace, name).await?;
            }
            Some(())
        })
        .await?;
        cluster.unbind("shop", "one").await?;
        cluster.unbind("shop", "two").await?;
        killed(&cluster, async || {
            for (namespace, name) in all() {
                let found = cluster.test_cluster.get("rolebinding", namespace, name).await.ok()?;
                found.is_none().then_some(())?;
            }
            Some(())
        })
        .await
    })
}
