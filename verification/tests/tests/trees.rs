//! Trees of namespaces as their users hold them, on a real API server with its own quota admission, and with a program that is killed.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, ensure};
use coppice_plane::proxy::{Active, FaultRule, Match, Proxy, ProxyFault, TraceEntry};
use coppice_plane::{ADMIN, ALICE, BOB};
use coppice_tests::{Operator, TestCluster, condition, on_own_plane};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::cli::coppice;
use crate::trees_access::bind;
use crate::trees_quotas::Quotas;

type Test = anyhow::Result<()>;

/// Deletions of many namespaces at once: what is tried here is their quota.
const GENEROUS: &str = "{apiVersion: coppice.dev/v1alpha1, kind: CoppiceConfig, metadata: {name: coppice},
    spec: {governor: {perMinute: 1000, perHour: 1000, maxShare: 100%, atLeast: 1000}}}";

/// A cluster with the operator and with trees.
pub(crate) struct Setup {
    pub(crate) test_cluster: TestCluster,
    pub(crate) account: PathBuf,
    operator: Operator,
    pub(crate) quotas: Quotas,
}

impl Setup {
    pub(crate) async fn start() -> anyhow::Result<Self> {
        Self::on(TestCluster::start_with_trees().await?).await
    }

    async fn on(test_cluster: TestCluster) -> anyhow::Result<Self> {
        test_cluster.apply(GENEROUS).await?;
        let operator = Operator::start(&test_cluster).await?;
        let account = test_cluster.service_account("coppice-system", "coppice-trees").await?;
        let quotas = Quotas::watch(&test_cluster).await?;
        Ok(Self { test_cluster, account, operator, quotas })
    }

    /// Starts the program of trees.
    pub(crate) async fn program(&self) -> anyhow::Result<Operator> {
        Operator::spawn_by(&self.test_cluster, &self.account, &["trees"]).await
    }

    /// Starts it after another was killed, whose lease is taken away so that no test waits for it to expire.
    pub(crate) async fn next_life(&self, account: &Path) -> anyhow::Result<Operator> {
        self.test_cluster.remove_lease("coppice-system", "coppice-trees").await?;
        Operator::spawn_by(&self.test_cluster, account, &["trees"]).await
    }

    /// Creates a namespace, and a tree with it as its root.
    pub(crate) async fn tree(&self, root: &str, hard: &Value) -> Test {
        self.test_cluster.namespace(root).await?;
        let tree = json!({"apiVersion": "coppice.dev/v1alpha1", "kind": "NamespaceTree", "metadata": {"name": root},
            "spec": {"root": root, "quota": {"hard": hard}}});
        self.test_cluster.admin().await?.create(&tree).await.map(drop)
    }

    /// Waits until an object about trees is as described; returns it.
    pub(crate) async fn until(
        &self,
        (kind, namespace, name): (&str, &str, &str),
        what: &str,
        is: impl Fn(&Value) -> bool,
    ) -> anyhow::Result<Value> {
        let last = Mutex::new(Value::Null);
        let reached = async || {
            let object = self.test_cluster.get(kind, namespace, name).await.ok()??;
            let current = object["status"]["observedGeneration"] == object["metadata"]["generation"];
            if current && is(&object) {
                return Some(object);
            }
            *last.lock().unwrap_or_else(PoisonError::into_inner) = object;
            None
        };
        let found = self.test_cluster.until(&format!("{kind} {name}: {what}"), reached).await;
        found.with_context(|| {
            format!("its status is {:#}", last.lock().unwrap_or_else(PoisonError::into_inner)["status"])
        })
    }

    pub(crate) async fn ready(&self, parent: &str, name: &str) -> anyhow::Result<Value> {
        self.until(("sns", parent, name), "Ready", |object| object["status"]["phase"] == "Ready").await
    }

    /// Waits until a Subnamespace is refused; why.
    pub(crate) async fn refused(&self, parent: &str, name: &str) -> anyhow::Result<(String, String)> {
        let refused = |object: &Value| object["status"]["phase"] == "Refused";
        let object = self.until(("sns", parent, name), "Refused", refused).await?;
        let ready = condition(&object, "Ready");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Ok((text(&ready["reason"]), text(&ready["message"])))
    }

    /// What the API server limits a namespace to.
    pub(crate) async fn limits(&self, namespace: &str) -> anyhow::Result<Value> {
        let quota = self.test_cluster.get("quota", namespace, "coppice").await?;
        Ok(quota.with_context(|| format!("{namespace} has no quota"))?["spec"]["hard"].clone())
    }

    pub(crate) async fn request(&self, user: &str, parent: &str, name: &str, hard: &Value) -> Test {
        self.test_cluster.requests(user).await?.create(&subnamespace(parent, name, hard)).await.map(drop)
    }

    pub(crate) async fn change(&self, parent: &str, name: &str, hard: &Value) -> Test {
        let patch = json!({"spec": {"quota": {"hard": hard}}});
        self.test_cluster.admin().await?.patch("sns", parent, name, &patch).await.map(drop)
    }

    pub(crate) async fn delete(&self, user: &str, parent: &str, name: &str) -> Test {
        self.test_cluster.requests(user).await?.delete("sns", parent, name, &json!({})).await
    }

    /// Waits until there is neither the Subnamespace nor its namespace.
    pub(crate) async fn gone(&self, parent: &str, name: &str) -> Test {
        self.test_cluster
            .until(&format!("{name} is gone"), async || {
                let object = self.test_cluster.get("sns", parent, name).await.ok()?;
                let namespace = self.test_cluster.get("namespace", "", name).await.ok()?;
                (object.is_none() && namespace.is_none()).then_some(())
            })
            .await
    }
}

/// Runs a test on the plane, with the program of trees, that tests share: each has trees of its own.
pub(crate) fn on_shared_trees(test: impl AsyncFnOnce(&Setup) -> Test) -> Test {
    static SHARED: OnceCell<(Setup, Operator)> = OnceCell::const_new();
    on_own_plane(async {
        let start = async || {
            let cluster = Setup::on(TestCluster::start_with_trees_at_once().await?).await?;
            let program = cluster.program().await?;
            anyhow::Ok((cluster, program))
        };
        let (cluster, program) = SHARED.get_or_try_init(start).await?;
        test(cluster).await.with_context(|| program.last_lines())
    })
}

pub(crate) fn subnamespace(parent: &str, name: &str, hard: &Value) -> Value {
    json!({"apiVersion": "coppice.dev/v1alpha1", "kind": "Subnamespace", "metadata": {"name": name, "namespace": parent},
        "spec": {"quota": {"hard": hard}}})
}

#[test]
fn a_team_grows_a_tree_inside_its_quota_and_learns_why_not() -> Test {
    on_own_plane(async {
        let cluster = Setup::start().await?;
        let program = cluster.program().await?;
        let scenario = async {
            cluster.tree("shop", &json!({"cpu": "10", "pods": "10"})).await?;
            let is_ready = |tree: &Value| condition(tree, "Ready")["status"] == "True";
            let tree = cluster.until(("nstree", "", "shop"), "Ready", is_ready).await?;
            ensure!(tree["status"]["allotted"] == "10 cpu, 10 pods", "{tree:#}");
            in_force(&cluster, "10").await?;
            raises(&cluster).await?;
            bind(&cluster.test_cluster, "shop", ALICE, "admin").await?;
            grows(&cluster).await?;
            shows(&cluster).await?;
            refusals(&cluster).await?;
            refuses_size(&cluster).await?;
            ends(&cluster).await?;
            is_no_quota(&cluster).await
        };
        scenario.await.with_context(|| program.last_lines())?;
        cluster.quotas.never_beyond("10")
    })
}

/// The API server limits the root to this many pods, and as many cores.
async fn in_force(cluster: &Setup, amount: &str) -> Test {
    let quota = cluster.test_cluster.get("quota", "shop", "coppice").await?.context("no quota")?;
    ensure!(quota["status"]["hard"] == json!({"cpu": amount, "pods": amount}), "{quota:#}");
    Ok(())
}

/// A smaller total, and a larger one, are in force once the tree is ready with them.
async fn raises(cluster: &Setup) -> Test {
    let admin = cluster.test_cluster.admin().await?;
    for amount in ["4", "10"] {
        let hard = json!({"cpu": amount, "pods": amount});
        admin.patch("nstree", "", "shop", &json!({"spec": {"quota": {"hard": hard}}})).await?;
        let is_ready = |tree: &Value| {
            let ready = condition(tree, "Ready");
            ready["status"] == "True" && ready["observedGeneration"] == tree["metadata"]["generation"]
        };
        cluster.until(("nstree", "", "shop"), &format!("{amount} pods"), is_ready).await?;
        in_force(cluster, amount).await?;
    }
    Ok(())
}

/// A tenant creates namespaces, which have what leaves the root.
async fn grows(cluster: &Setup) -> Test {
    let create = ["create", "shop/shop-web", "--quota", "cpu=4,pods=4"];
    let (code, out, err) =
        coppice(&cluster.test_cluster, ALICE, &[&create[..], &["--dry-run"]].concat()).await?;
    ensure!(code == 0 && out.contains("shop would keep   6 cpu, 6 pods\n"), "{code}: {out}{err}");
    // The tree has no LimitRange.
    let unstated = "pods whose containers do not state cpu are refused in shop-web";
    ensure!(err.contains(unstated), "{err}");
    let (code, out, err) =
        coppice(&cluster.test_cluster, ALICE, &[&create[..], &["--wait"]].concat()).await?;
    ensure!(code == 0 && out.ends_with("subnamespace.coppice.dev/shop-web is Ready\n"), "{code}: {out}{err}");
    // What is ready is in force, and has its rights.
    let quota = cluster.test_cluster.get("quota", "shop-web", "coppice").await?.context("no quota")?;
    ensure!(quota["status"]["hard"] == json!({"cpu": "4", "pods": "4"}), "{quota:#}");
    let web = cluster.ready("shop", "shop-web").await?;
    ensure!(web["status"]["path"] == "shop/shop-web" && web["status"]["depth"] == 1, "{web:#}");
    ensure!(web["status"]["allotted"] == "4 cpu, 4 pods", "{web:#}");
    let namespace = cluster.test_cluster.get("namespace", "", "shop-web").await?.context("shop-web")?;
    ensure!(namespace["metadata"]["labels"]["shop.tree.coppice.dev/depth"] == "1", "{namespace:#}");
    ensure!(cluster.limits("shop").await? == json!({"cpu": "6", "pods": "6"}));
    ensure!(cluster.limits("shop-web").await? == json!({"cpu": "4", "pods": "4"}));
    // More, while something else becomes less: it leaves where it was first.
    cluster.change("shop", "shop-web", &json!({"cpu": "2", "pods": "6"})).await?;
    let changed = |object: &Value| object["status"]["request"]["hard"] == json!({"cpu": "2", "pods": "6"});
    cluster.until(("sns", "shop", "shop-web"), "granted", changed).await?;
    ensure!(cluster.limits("shop").await? == json!({"cpu": "8", "pods": "4"}));
    // Further down, from what the namespace above has.
    cluster.request(ADMIN, "shop-web", "shop-web-test", &json!({"pods": "2"})).await?;
    cluster.ready("shop-web", "shop-web-test").await?;
    ensure!(cluster.limits("shop-web").await? == json!({"cpu": "2", "pods": "4"}));
    ensure!(cluster.limits("shop-web-test").await? == json!({"cpu": "0", "pods": "2"}));
    ensure!(cluster.limits("shop").await? == json!({"cpu": "8", "pods": "4"}));
    Ok(())
}

/// `coppice tree` shows the platform all of it, and a tenant what they may read.
async fn shows(cluster: &Setup) -> Test {
    let args = ["tree", "shop", "--no-headers", "--resource", "pods"];
    let (code, out, err) = coppice(&cluster.test_cluster, ADMIN, &args).await?;
    let all = "shop                  Ready   pods   10   10   6   0   4\n\
               └─ shop-web           Ready   pods   6    6    2   0   4\n   \
                  └─ shop-web-test   Ready   pods   2    2    0   0   2\n";
    ensure!(code == 0 && out == all && err.is_empty(), "{code}: {out}{err}");
    let (code, out, err) =
        coppice(&cluster.test_cluster, ALICE, &["quota", "shop-web", "--resource", "pods"]).await?;
    let more = "ask for up to 4 more in spec.quota.hard of Subnamespace shop/shop-web";
    ensure!(code == 0 && out.contains("pods       6          2       0      4\n"), "{code}: {out}{err}");
    ensure!(out.contains(more), "{out}{err}");
    // RoleBindings to other roles are not copied.
    let kubectl = async |args: &[&str]| cluster.test_cluster.kubectl(ADMIN, args).await.map(drop);
    let resources = "--resource=subnamespaces.coppice.dev,resourcequotas";
    kubectl(&["create", "clusterrole", "shop-reader", "--verb=get,list", resources]).await?;
    bind(&cluster.test_cluster, "shop", BOB, "shop-reader").await?;
    let (code, out, err) = coppice(&cluster.test_cluster, BOB, &args).await?;
    let his =
        "shop          -       pods   -   10   6   0   4\n└─ shop-web   Ready   pods   6   6    -   -   -\n";
    ensure!(code == 0 && out == his, "{code}: {out}{err}");
    ensure!(err.contains("warning: what is below namespace shop-web cannot be read"), "{err}");
    let (code, _, err) = coppice(&cluster.test_cluster, BOB, &["tree"]).await?;
    ensure!(code == 1 && err.contains("coppice tree NAMESPACE"), "{code}: {err}");
    Ok(())
}

/// Everything that is not given says why, and what would be.
async fn refusals(cluster: &Setup) -> Test {
    let expect = async |name: &str, hard: &Value, reason: &str, parts: &[&str]| -> Test {
        cluster.request(ALICE, "shop", name, hard).await?;
        let (why, message) = cluster.refused("shop", name).await?;
        ensure!(why == reason && parts.iter().all(|part| message.contains(part)), "{why}: {message}");
        ensure!(cluster.test_cluster.get("namespace", "", name).await?.is_none_or(|namespace| {
            namespace["metadata"]["labels"]["coppice.dev/subnamespace"].is_null()
        }));
        cluster.delete(ALICE, "shop", name).await?;
        let gone = async || cluster.test_cluster.get("sns", "shop", name).await.ok()?.is_none().then_some(());
        cluster.test_cluster.until(&format!("{name} is gone"), gone).await
    };
    let beyond = [
        "pods: needs 5 more",
        "shop can give 4",
        "ask for at most 4",
        "or have shop-web, which does not use 4, give 1 back",
        "coppice give-back shop-web --amount pods=1",
    ];
    expect("shop-api", &json!({"pods": "5"}), "QuotaRefused", &beyond).await?;
    let unknown = ["memory: the tree has no quota of it", "cpu, pods"];
    expect("shop-api", &json!({"memory": "1Gi"}), "QuotaRefused", &unknown).await?;
    expect("else", &json!({"pods": "1"}), "NameNotAllowed", &["here shop-*"]).await?;
    // Namespaces are never taken into a tree by their name.
    let uid = cluster.test_cluster.namespace("shop-old").await?;
    expect("shop-old", &json!({"pods": "1"}), "NameTaken", &["did not create"]).await?;
    ensure!(!cluster.test_cluster.is_deleted("shop-old", &uid).await);
    // What is in use stays.
    for n in 0..3 {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("p-{n}"), "namespace": "shop-web"},
            "spec": {"containers": [{"name": "c", "image": "busybox", "resources": {"requests": {"cpu": "100m"}}}]}});
        cluster.test_cluster.admin().await?.create(&pod).await?;
    }
    let counted = async || {
        let quota = cluster.test_cluster.get("quota", "shop-web", "coppice").await.ok()??;
        (quota["status"]["used"]["pods"] == "3").then_some(())
    };
    cluster.test_cluster.until("the pods are counted", counted).await?;
    cluster.change("shop", "shop-web", &json!({"cpu": "2", "pods": "4"})).await?;
    let (why, message) = cluster.refused("shop", "shop-web").await?;
    let numbers = "pods: shop-web uses 3 and gave 2 to its children: ask for at least 5";
    ensure!(why == "QuotaRefused" && message.contains(numbers), "{why}: {message}");
    ensure!(cluster.limits("shop-web").await? == json!({"cpu": "2", "pods": "4"}));
    tells_its_readers(cluster, numbers).await
}

/// Who may read a namespace and not the one above it learns why it does not get what is asked for it.
async fn tells_its_readers(cluster: &Setup, why: &str) -> Test {
    cluster.test_cluster.kubectl(ADMIN, &["delete", "rolebinding", "bob-shop-reader", "-n", "shop"]).await?;
    bind(&cluster.test_cluster, "shop-web", BOB, "view").await?;
    let shown = async || {
        let (_, out, err) = coppice(&cluster.test_cluster, BOB, &["explain", "shop-web"]).await.ok()?;
        let said = out.lines().find(|line| line.contains("last said of it"))?;
        // He cannot read the Subnamespace.
        let unread = err.contains("whether it is ready is not shown");
        (unread && said.contains(why) && said.contains("[QuotaRefused]")).then_some(())
    };
    cluster.test_cluster.until("its readers learn it", shown).await
}

/// The tree has three namespaces, the lowest of them two below the root: as deep and as many as administrators permit from now on.
async fn refuses_size(cluster: &Setup) -> Test {
    let permit = async |limits: Value| -> Test {
        let spec = json!({"spec": limits});
        cluster.test_cluster.admin().await?.patch("nstree", "", "shop", &spec).await?;
        cluster.until(("nstree", "", "shop"), "seen", |_| true).await.map(drop)
    };
    permit(json!({"maxDepth": 2, "maxNamespaces": 3})).await?;
    for (parent, name, reason, says) in [
        (
            "shop-web-test",
            "shop-web-test-a",
            "TooDeep",
            "would be 3 below the root, and NamespaceTree shop permits 2",
        ),
        ("shop", "shop-api", "TooManyNamespaces", "NamespaceTree shop has 3 namespaces and permits 3"),
    ] {
        cluster.request(ADMIN, parent, name, &json!({"pods": "1"})).await?;
        let (why, message) = cluster.refused(parent, name).await?;
        ensure!(why == reason && message.contains(says), "{why}: {message}");
        cluster.delete(ADMIN, parent, name).await?;
        cluster.gone(parent, name).await?;
    }
    permit(json!({"maxDepth": null, "maxNamespaces": null})).await
}

/// What is deleted returns its quota; what has namespaces below it stays.
async fn ends(cluster: &Setup) -> Test {
    cluster.delete(ALICE, "shop", "shop-web").await?;
    let has_children = |object: &Value| condition(object, "Ready")["reason"] == "HasChildren";
    cluster.until(("sns", "shop", "shop-web"), "HasChildren", has_children).await?;
    let (code, out, err) =
        coppice(&cluster.test_cluster, ADMIN, &["doctor", "--older-than", "0s", "-o", "json"]).await?;
    ensure!(code == 3, "{code}: {out}{err}");
    let sections: Value = serde_json::from_str(&out).context(out)?;
    let sections = sections.as_array().context("no list")?;
    let trees = sections.iter().find(|section| section["title"] == "Trees").context("nothing of trees")?;
    let found = |about: &str, state: &str, words: &str| {
        let found = trees["findings"].as_array().into_iter().flatten().find(|found| found["about"] == about);
        found.is_some_and(|found| found["state"] == state && found.to_string().contains(words))
    };
    ensure!(found("Lease coppice-system/coppice-trees", "Ok", "held by"), "{trees:#}");
    // Test clusters are installed without it.
    ensure!(
        found("ValidatingWebhookConfiguration coppice-trees", "Problem", "install deploy/trees.yaml"),
        "{trees:#}"
    );
    ensure!(found("NamespaceTree shop", "Ok", "3 namespaces, 10 cpu, 10 pods"), "{trees:#}");
    ensure!(
        found("Subnamespaces", "Problem", "shop/shop-web: Deleting: namespace shop-web has"),
        "{trees:#}"
    );
    cluster.delete(ADMIN, "shop-web", "shop-web-test").await?;
    cluster.gone("shop-web", "shop-web-test").await?;
    cluster.gone("shop", "shop-web").await?;
    ensure!(cluster.limits("shop").await? == json!({"cpu": "10", "pods": "10"}));
    let settings = cluster.test_cluster.get("coppiceconfig", "", "coppice").await?.context("settings")?;
    let governor = &settings["status"]["governor"];
    let one_by_one = governor["treeBudgets"][0]["tree"] == "shop" && governor["treeReservations"].is_null();
    ensure!(
        one_by_one && governor["reservations"].is_null(),
        "of the budget of the tree alone: {governor:#}"
    );
    let records = cluster.test_cluster.list("delns", "").await?;
    let of_web =
        records.iter().find(|record| record["spec"]["namespace"] == "shop-web").context("no record")?;
    ensure!(of_web["spec"]["managerKind"] == "Subnamespace", "{of_web:#}");
    // The tree goes, and its namespace stays as it was before.
    let empty = |tree: &Value| tree["status"]["namespaces"] == 1;
    cluster.until(("nstree", "", "shop"), "only its root is left", empty).await?;
    cluster.test_cluster.admin().await?.delete("nstree", "", "shop", &json!({})).await?;
    let detached = async || {
        let tree = cluster.test_cluster.get("nstree", "", "shop").await.ok()?;
        let quota = cluster.test_cluster.get("quota", "shop", "coppice").await.ok()?;
        (tree.is_none() && quota.is_none()).then_some(())
    };
    cluster.test_cluster.until("the tree is gone", detached).await?;
    let root = cluster.test_cluster.get("namespace", "", "shop").await?.context("shop")?;
    ensure!(root["metadata"]["deletionTimestamp"].is_null(), "{root:#}");
    ensure!(!root["metadata"]["labels"].to_string().contains("coppice.dev/"), "{root:#}");
    Ok(())
}

/// What the API server stores and no quota can be, the tree says with what to write instead, and has once that is written.
async fn is_no_quota(cluster: &Setup) -> Test {
    cluster.tree("jobs", &json!({"pods": "0", "count/jobs.batch": "1.5"})).await?;
    let invalid = |tree: &Value| condition(tree, "Ready")["reason"] == "InvalidSpec";
    let tree = cluster.until(("nstree", "", "jobs"), "InvalidSpec", invalid).await?;
    let ready = condition(&tree, "Ready");
    let says = "spec.quota.hard: count/jobs.batch: 1500m is not a whole number, and objects are counted: write one without a fraction";
    ensure!(ready["status"] == "False" && ready["message"] == says, "{ready:#}");
    ensure!(cluster.test_cluster.get("quota", "jobs", "coppice").await?.is_none());
    let patch = json!({"spec": {"quota": {"hard": {"count/jobs.batch": "1"}}}});
    cluster.test_cluster.admin().await?.patch("nstree", "", "jobs", &patch).await?;
    let is_ready = |tree: &Value| condition(tree, "Ready")["status"] == "True";
    cluster.until(("nstree", "", "jobs"), "Ready", is_ready).await?;
    ensure!(cluster.limits("jobs").await? == json!({"pods": "0", "count/jobs.batch": "1"}));
    Ok(())
}

#[test]
fn killed_at_every_write_nothing_is_given_twice_and_nothing_is_lost() -> Test {
    on_own_plane(async {
        let cluster = Setup::start().await?;
        cluster.tree("shop", &json!({"pods": "10"})).await?;
        cluster.request(ADMIN, "shop", "shop-a", &json!({"pods": "4"})).await?;
        cluster.request(ADMIN, "shop", "shop-b", &json!({"pods": "6"})).await?;
        let phase = async |name: &str, hard: &Value| {
            let object = cluster.test_cluster.get("sns", "shop", name).await.ok()??;
            (object["status"]["request"]["hard"] == *hard && object["status"]["phase"] == "Ready")
                .then_some(())
        };
        killed(&cluster, async || {
            phase("shop-a", &json!({"pods": "4"})).await?;
            phase("shop-b", &json!({"pods": "6"})).await
        })
        .await?;
        // One can grow by what the other gives back alone.
        cluster.change("shop", "shop-b", &json!({"pods": "1"})).await?;
        killed(&cluster, async || phase("shop-b", &json!({"pods": "1"})).await).await?;
        cluster.change("shop", "shop-a", &json!({"pods": "9"})).await?;
        cluster.delete(ADMIN, "shop", "shop-b").await?;
        killed(&cluster, async || {
            phase("shop-a", &json!({"pods": "9"})).await?;
            cluster.test_cluster.get("sns", "shop", "shop-b").await.ok()?.is_none().then_some(())
        })
        .await?;
        ensure!(cluster.limits("shop").await? == json!({"pods": "1"}));
        ensure!(cluster.limits("shop-a").await? == json!({"pods": "9"}));
        let quota = cluster.test_cluster.get("quota", "shop", "coppice").await?.context("shop")?;
        let ledger = quota["metadata"]["annotations"]["coppice.dev/ledger"].as_str().unwrap_or_default();
        ensure!(!ledger.contains("changes"), "nothing is under way: {ledger}");
        ensure!(cluster.test_cluster.get("namespace", "", "shop-b").await?.is_none());
        cluster.quotas.never_beyond("10")?;
        drop(cluster.operator);
        Ok(())
    })
}

/// Kills the program after its first write, the next time after its second, and so on, until something is there; and sees
/// that this took several lives.
///
/// A deletion is begun again by each life, with its record and its reservation: one write in each would never get there.
pub(crate) async fn killed(cluster: &Setup, done: impl AsyncFn() -> Option<()>) -> Test {
    let proxy = Proxy::start(&cluster.test_cluster.plane, None).await?;
    let account = proxy.kubeconfig(&cluster.account)?;
    for life in 0..60 {
        let held = proxy.add(FaultRule::new(writes(), ProxyFault::HoldRequest));
        let mut program = cluster.next_life(&account).await?;
        let ended = tokio::select! {
            () = let_pass(&proxy, &held, life % 4 + 1) => Ok(false),
            done = cluster.test_cluster.until("one more write, or the end", &done) => done.map(|()| true),
        };
        program.kill().await?;
        held.discard();
        proxy.clear();
        if ended.with_context(|| format!("life {life}: {}", program.last_lines()))? {
            ensure!(life > 1, "killed {life} times");
            return Ok(());
        }
    }
    anyhow::bail!("60 lives were not enough: {:#?}", answers(&proxy.trace().entries()))
}

/// Lets held writes pass one by one until so many of them took effect, and ends when there is one more.
pub(crate) async fn let_pass(proxy: &Proxy, held: &Active, effects: usize) {
    let before = answers(&proxy.trace().entries()).len();
    for passed in 0.. {
        held.held(passed + 1).await;
        let new = answers(&proxy.trace().entries()).split_off(before);
        if new.iter().filter(|answer| answer.0 < 300).count() >= effects {
            return;
        }
        held.release_one();
        let answered = |entries: &[TraceEntry]| (answers(entries).len() > before + new.len()).then_some(());
        proxy.trace().wait_until(answered).await;
    }
}

/// Of the writes that were answered: the status, and what was written.
fn answers(entries: &[TraceEntry]) -> Vec<(u16, String)> {
    let answer = |entry: &TraceEntry| {
        Some((entry.status?, format!("{} {} {}", entry.verb, entry.resource, entry.name)))
    };
    entries.iter().filter(|entry| writes().selects(entry)).filter_map(answer).collect()
}

pub(crate) fn writes() -> Match {
    Match::writes().when(|entry| !["leases", "events"].contains(&entry.resource.as_str()))
}
