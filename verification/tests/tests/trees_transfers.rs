//! Transfers of quota between namespaces of a tree, on a real API server, and with a program that is killed on their way.

use anyhow::{Context as _, ensure};
use coppice_plane::proxy::{FaultRule, Proxy, ProxyFault};
use coppice_plane::{ADMIN, ALICE, BOB};
use coppice_quantity::Quantity;
use coppice_tests::{condition, on_own_plane};
use serde_json::{Value, json};

use crate::cli::coppice;
use crate::trees::{Setup, killed, let_pass, writes};
use crate::trees_access::bind;

type Test = anyhow::Result<()>;

/// Of pods, asked for by a user and not approved.
fn transfer(user: &str, name: &str, (source, to, through): (&str, &str, &str), pods: &str) -> Value {
    json!({"apiVersion": "coppice.dev/v1alpha1", "kind": "QuotaTransfer", "metadata": {"name": name, "namespace": source},
        "spec": {"to": to, "through": through, "amount": {"pods": pods}, "reason": "load test", "requester": user}})
}

/// The same, approved by the one who asks.
pub(crate) fn approved(user: &str, name: &str, way: (&str, &str, &str), pods: &str) -> Value {
    let mut transfer = transfer(user, name, way, pods);
    transfer["spec"]["approvedBy"] = json!(user);
    transfer
}

impl Setup {
    pub(crate) async fn transfers(&self, user: &str, transfer: &Value) -> Test {
        self.test_cluster.requests(user).await?.create(transfer).await.map(drop)
    }

    /// Waits until a transfer has this phase; the reason and the message of its condition.
    pub(crate) async fn phase(
        &self,
        source: &str,
        name: &str,
        phase: &str,
    ) -> anyhow::Result<(String, String)> {
        let has = |object: &Value| object["status"]["phase"] == phase;
        let object = self.until(("qtr", source, name), phase, has).await?;
        let ready = condition(&object, "Ready");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Ok((text(&ready["reason"]), text(&ready["message"])))
    }

    /// A tree with 10 pods: `shop-a` and `shop-b` have 4 each.
    async fn siblings(&self) -> Test {
        self.tree("shop", &json!({"pods": "10"})).await?;
        for name in ["shop-a", "shop-b"] {
            self.request(ADMIN, "shop", name, &json!({"pods": "4"})).await?;
            self.ready("shop", name).await?;
            // The last that is written of it: whoever counts writes counts none of these.
            let complete = |object: &Value| condition(object, "Propagated")["status"] == "True";
            self.until(("sns", "shop", name), "Propagated", complete).await?;
        }
        Ok(())
    }

    /// Sees that these namespaces have these own quotas, and that no ledger has anything on its way.
    async fn own(&self, pods: &[(&str, &str)]) -> Test {
        for (namespace, pods) in pods {
            let quota = self.test_cluster.get("quota", namespace, "coppice").await?.context("no quota")?;
            ensure!(quota["spec"]["hard"]["pods"] == *pods, "{namespace} is to have {pods}: {quota:#}");
            let ledger = quota["metadata"]["annotations"]["coppice.dev/ledger"].as_str().unwrap_or_default();
            ensure!(!ledger.contains("held") && !ledger.contains("changes"), "{namespace}: {ledger}");
        }
        Ok(())
    }

    /// Starts the program through a proxy, and kills it once so many of its writes have taken effect.
    pub(crate) async fn writes(&self, effects: usize) -> Test {
        let proxy = Proxy::start(&self.test_cluster.plane, None).await?;
        let held = proxy.add(FaultRule::new(writes(), ProxyFault::HoldRequest));
        let mut program = self.next_life(&proxy.kubeconfig(&self.account)?).await?;
        let passed =
            tokio::time::timeout(std::time::Duration::from_mins(1), let_pass(&proxy, &held, effects));
        let passed = passed.await;
        program.kill().await?;
        held.discard();
        passed.with_context(|| format!("there were fewer than {effects} writes: {}", program.last_lines()))
    }
}

#[test]
fn quota_moves_to_whom_it_was_promised_with_approval_or_back() -> Test {
    on_own_plane(async {
        let cluster = Setup::start().await?;
        let program = cluster.program().await?;
        let scenario = async {
            cluster.siblings().await?;
            bind(&cluster.test_cluster, "shop", ALICE, "admin").await?;
            bind(&cluster.test_cluster, "shop-a", BOB, "admin").await?;
            is_tried(&cluster).await?;
            moves(&cluster).await?;
            needs_approval(&cluster).await?;
            returns(&cluster).await?;
            is_refused(&cluster).await?;
            keeps_to_partitions(&cluster).await?;
            names_what_is_required(&cluster).await
        };
        scenario.await.with_context(|| program.last_lines())?;
        cluster.quotas.never_beyond("10")
    })
}

/// What is only tried is shown, and changes nothing.
async fn is_tried(cluster: &Setup) -> Test {
    cluster.transfers(BOB, &transfer(BOB, "ask-first", ("shop-a", "shop-b", "shop"), "1")).await?;
    cluster.phase("shop-a", "ask-first", "PendingApproval").await?;
    for (args, shows) in [
        (
            "transfer shop-a --to shop-b --amount pods=2 --reason test --name tried",
            "quotatransfer.coppice.dev/tried created (server dry run): 2 pods from shop-a to shop-b\n\
             \x20 gives      2 pods\n\
             \x20 free       4 pods\n\
             \x20 path       shop-a, shop, shop-b\n\
             \x20 approval   by yourself: alice may create QuotaTransfers where that is needed\n",
        ),
        (
            "give-back shop-a --amount pods=1 --name tried",
            "quotatransfer.coppice.dev/tried created (server dry run): 1 pods from shop-a to shop\n\
             \x20 gives      1 pods\n\
             \x20 free       4 pods\n\
             \x20 path       shop-a, shop\n\
             \x20 approval   not needed: shop-a is below shop\n",
        ),
        (
            "transfer approve shop-a/ask-first",
            "QuotaTransfer shop-a/ask-first\n\
             \x20 amount      1 pods\n\
             \x20 from        shop-a\n\
             \x20 to          shop-b\n\
             \x20 through     shop\n\
             \x20 requester   bob\n\
             \x20 reason      load test\n\
             quotatransfer.coppice.dev/ask-first approved by alice (server dry run)\n",
        ),
    ] {
        let args: Vec<&str> = args.split(' ').chain(["--dry-run"]).collect();
        let (code, out, err) = coppice(&cluster.test_cluster, ALICE, &args).await?;
        ensure!(code == 0 && out == shows && err.is_empty(), "{code}: {out}{err}");
    }
    let transfers = cluster.test_cluster.list("qtr", "shop-a").await?;
    let [ask] = &transfers[..] else { anyhow::bail!("{transfers:#?}") };
    ensure!(ask["spec"]["approvedBy"].is_null() && ask["status"]["phase"] == "PendingApproval", "{ask:#}");
    cluster.own(&[("shop", "2"), ("shop-a", "4"), ("shop-b", "4")]).await?;
    cluster.test_cluster.requests(BOB).await?.delete("qtr", "shop-a", "ask-first", &json!({})).await
}

/// Whoever administers what both are below of transfers at once.
async fn moves(cluster: &Setup) -> Test {
    let args = "transfer shop-a --to shop-b --amount pods=2 --reason test --name more --wait";
    let (code, out, err) =
        coppice(&cluster.test_cluster, ALICE, &args.split(' ').collect::<Vec<_>>()).await?;
    let done =
        "quotatransfer.coppice.dev/more is Completed: namespace shop-b has 2 pods from namespace shop-a";
    ensure!(code == 0 && out.contains("approved by alice") && out.contains(done), "{code}: {out}{err}");
    let (reason, message) = cluster.phase("shop-a", "more", "Completed").await?;
    ensure!(
        reason == "QuotaMoved" && message == "namespace shop-b has 2 pods from namespace shop-a",
        "{message}"
    );
    cluster.own(&[("shop", "2"), ("shop-a", "2"), ("shop-b", "6")]).await?;
    for (name, pods) in [("shop-a", "2"), ("shop-b", "6")] {
        let has = |object: &Value| object["status"]["allotted"] == format!("{pods} pods");
        let object = cluster.until(("sns", "shop", name), "has what was transferred", has).await?;
        // What was asked for, and granted, is as it was: to apply it again takes nothing back.
        ensure!(object["status"]["phase"] == "Ready", "{object:#}");
        ensure!(object["status"]["request"]["hard"] == json!({"pods": "4"}), "{object:#}");
    }
    cluster.change("shop", "shop-a", &json!({"pods": "4"})).await?;
    let moved = cluster.test_cluster.get("qtr", "shop-a", "more").await?.context("more")?;
    ensure!(moved["status"]["at"].is_null() && moved["status"]["endedAt"].is_string(), "{moved:#}");
    ensure!(moved["metadata"]["finalizers"].is_null(), "{moved:#}");
    cluster.own(&[("shop-a", "2"), ("shop-b", "6")]).await?;
    // Applied again by a tool that found it gone, from a file that says nothing of an approval, and with one. There is as much left to give.
    let ends = ("shop-a", "shop-b", "shop");
    for again in [transfer(BOB, "more", ends, "2"), approved(ALICE, "more", ends, "2")] {
        cluster.test_cluster.admin().await?.delete("qtr", "shop-a", "more", &json!({})).await?;
        // Its finalizer goes a moment after its end.
        let gone =
            async || cluster.test_cluster.get("qtr", "shop-a", "more").await.ok()?.is_none().then_some(());
        cluster.test_cluster.until("the transfer is gone", gone).await?;
        let by = again["spec"]["requester"].as_str().unwrap_or_default();
        cluster.transfers(by, &again).await?;
        let (reason, message) = cluster.phase("shop-a", "more", "Completed").await?;
        let said = message.starts_with("namespace shop-b got 2 pods from namespace shop-a at 20");
        ensure!(
            reason == "AlreadyApplied" && said && message.contains("another name"),
            "{reason}: {message}"
        );
    }
    cluster.own(&[("shop", "2"), ("shop-a", "2"), ("shop-b", "6")]).await
}

/// Whoever has rights at the source alone waits for somebody else.
async fn needs_approval(cluster: &Setup) -> Test {
    let mut ask = "transfer shop-a --to shop-b --amount pods=1 --reason test --name ask --wait"
        .split(' ')
        .collect::<Vec<_>>();
    // He may not read the other namespace.
    let (code, out, err) = coppice(&cluster.test_cluster, BOB, &ask).await?;
    ensure!(code == 1 && err.contains("--through with one of shop-a, shop"), "{code}: {out}{err}");
    ask.extend(["--through", "shop"]);
    let (code, out, err) = coppice(&cluster.test_cluster, BOB, &ask).await?;
    let waits =
        "it waits for approval by somebody who may create QuotaTransfers in shop-a and shop-b, or in shop";
    ensure!(code == 3 && out.contains(waits) && out.contains("ask is PendingApproval"), "{code}: {out}{err}");
    let (reason, message) = cluster.phase("shop-a", "ask", "PendingApproval").await?;
    let who = "by somebody who may create QuotaTransfers in shop-a and shop-b, or in shop";
    ensure!(reason == "PendingApproval" && message.contains(who), "{message}");
    let approve = ["transfer", "approve", "shop-a/ask"];
    let (code, out, err) = coppice(&cluster.test_cluster, BOB, &approve).await?;
    ensure!(code == 1 && err.contains("may not approve this QuotaTransfer"), "{code}: {out}{err}");
    cluster.own(&[("shop-a", "2"), ("shop-b", "6")]).await?;
    let (code, out, err) = coppice(&cluster.test_cluster, ALICE, &approve).await?;
    ensure!(code == 0, "{code}: {out}{err}");
    cluster.phase("shop-a", "ask", "Completed").await?;
    cluster.own(&[("shop", "2"), ("shop-a", "1"), ("shop-b", "7")]).await?;
    // One that nobody approves goes when it is deleted.
    cluster.transfers(BOB, &transfer(BOB, "never", ("shop-a", "shop-b", "shop"), "1")).await?;
    cluster.phase("shop-a", "never", "PendingApproval").await?;
    cluster.test_cluster.requests(BOB).await?.delete("qtr", "shop-a", "never", &json!({})).await?;
    let gone =
        async || cluster.test_cluster.get("qtr", "shop-a", "never").await.ok()?.is_none().then_some(());
    cluster.test_cluster.until("the transfer is gone", gone).await
}

/// What is given back, or to a namespace below, needs nobody's approval.
async fn returns(cluster: &Setup) -> Test {
    let (code, out, err) =
        coppice(&cluster.test_cluster, BOB, &["give-back", "shop-a", "--amount", "pods=1", "--wait"]).await?;
    ensure!(code == 0, "{code}: {out}{err}");
    cluster.own(&[("shop", "3"), ("shop-a", "0"), ("shop-b", "7")]).await?;
    let args = ["transfer", "shop", "--to", "shop-a", "--amount", "pods=2", "--reason", "again", "--wait"];
    let (code, out, err) = coppice(&cluster.test_cluster, ALICE, &args).await?;
    ensure!(code == 0, "{code}: {out}{err}");
    cluster.own(&[("shop", "1"), ("shop-a", "2"), ("shop-b", "7")]).await
}

/// What cannot be done says why, with the numbers, and takes nothing.
async fn is_refused(cluster: &Setup) -> Test {
    cluster.test_cluster.namespace("apart").await?;
    cluster.tree("bank", &json!({"pods": "0"})).await?;
    let set_up = |tree: &Value| condition(tree, "Ready")["status"] == "True";
    cluster.until(("nstree", "", "bank"), "Ready", set_up).await?;
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "shop-b"},
        "spec": {"containers": [{"name": "c", "image": "busybox"}]}});
    cluster.test_cluster.admin().await?.create(&pod).await?;
    let counted = async || {
        let quota = cluster.test_cluster.get("quota", "shop-b", "coppice").await.ok()??;
        (quota["status"]["used"]["pods"] == "1").then_some(())
    };
    cluster.test_cluster.until("the pod is counted", counted).await?;
    let memory = |mut transfer: Value| {
        transfer["spec"]["amount"] = json!({"memory": "1Gi"});
        transfer
    };
    let of = |name: &str, to: &str, through: &str, pods: &str| {
        approved(ADMIN, name, ("shop-b", to, through), pods)
    };
    for (name, transfer, parts) in [
        ("much", of("much", "shop-a", "shop", "7"), &["pods", "shop-b", "6"][..]),
        ("way", of("way", "shop-a", "shop-b", "1"), &["spec.through is shop-b", "with through: shop"]),
        ("itself", of("itself", "shop-b", "shop-b", "1"), &["namespace shop-b itself"]),
        ("out", of("out", "apart", "shop", "1"), &["namespace apart belongs to no tree"]),
        ("tree", of("tree", "bank", "shop", "1"), &["NamespaceTree shop", "bank"]),
        ("unknown", memory(of("unknown", "shop-a", "shop", "1")), &["memory", "pods"]),
    ] {
        cluster.transfers(ADMIN, &transfer).await?;
        let (reason, message) = cluster.phase("shop-b", name, "Refused").await?;
        let all = parts.iter().all(|part| message.contains(part));
        ensure!(reason == "TransferRefused" && all, "{name}: {reason}: {message}");
    }
    cluster.own(&[("shop", "1"), ("shop-a", "2"), ("shop-b", "7")]).await
}

/// Quota of a partition goes to the root, and to nobody beside it.
async fn keeps_to_partitions(cluster: &Setup) -> Test {
    let admin = cluster.test_cluster.admin().await?;
    admin.patch("nstree", "", "shop", &json!({"spec": {"partitions": ["shop-a", "shop-gpu"]}})).await?;
    // One may be created later, or be a slip.
    let absent = |tree: &Value| {
        let ready = condition(tree, "Ready");
        let message = ready["message"].as_str().unwrap_or_default();
        ready["status"] == "True" && message.ends_with("no namespace right below shop yet: shop-gpu")
    };
    cluster.until(("nstree", "", "shop"), "without one of its partitions", absent).await?;
    cluster.request(ADMIN, "shop", "shop-gpu", &json!({"pods": "0"})).await?;
    cluster.ready("shop", "shop-gpu").await?;
    let whole =
        |tree: &Value| condition(tree, "Ready")["message"] == "the tree has the quota that spec gives it";
    cluster.until(("nstree", "", "shop"), "with its partitions", whole).await?;
    let way = ("shop-b", "shop-a", "shop");
    cluster.transfers(ADMIN, &approved(ADMIN, "in", way, "1")).await?;
    let (reason, message) = cluster.phase("shop-b", "in", "Refused").await?;
    let said = message.starts_with("namespace shop-a is a partition of NamespaceTree shop (spec.partitions)");
    ensure!(reason == "TransferRefused" && said, "{reason}: {message}");
    cluster.transfers(ADMIN, &approved(ADMIN, "up", ("shop-a", "shop", "shop"), "1")).await?;
    cluster.phase("shop-a", "up", "Completed").await?;
    cluster.own(&[("shop", "2"), ("shop-a", "1"), ("shop-b", "7")]).await
}

/// A new request names what the tree requires.
async fn names_what_is_required(cluster: &Setup) -> Test {
    let admin = cluster.test_cluster.admin().await?;
    let unknown = json!({"spec": {"quota": {"required": ["memory"]}}});
    let refused = admin.patch("nstree", "", "shop", &unknown).await.err().context("it is refused")?;
    ensure!(format!("{refused:#}").contains("has to be one that the tree limits"), "{refused:#}");
    admin.patch("nstree", "", "shop", &json!({"spec": {"quota": {"required": ["pods"]}}})).await?;
    cluster.until(("nstree", "", "shop"), "with what it requires", |_| true).await?;
    let nothing = json!({"apiVersion": "coppice.dev/v1alpha1", "kind": "Subnamespace", "spec": {},
        "metadata": {"name": "shop-c", "namespace": "shop"}});
    admin.create(&nothing).await?;
    let unnamed = |object: &Value| condition(object, "Ready")["reason"] == "InvalidSpec";
    let object = cluster.until(("sns", "shop", "shop-c"), "InvalidSpec", unnamed).await?;
    let message = &condition(&object, "Ready")["message"];
    let said = message.as_str().unwrap_or_default().starts_with("spec.quota.hard does not name pods");
    ensure!(said && cluster.test_cluster.get("namespace", "", "shop-c").await?.is_none(), "{message}");
    cluster.change("shop", "shop-c", &json!({"pods": "1"})).await?;
    cluster.ready("shop", "shop-c").await?;
    // Those that were granted something before have it.
    cluster.ready("shop", "shop-a").await.map(drop)
}

#[test]
fn killed_at_every_write_of_a_transfer_nothing_is_given_twice_and_nothing_is_lost() -> Test {
    on_own_plane(async {
        let cluster = Setup::start().await?;
        let mut program = cluster.program().await?;
        cluster.siblings().await?;
        cluster.request(ADMIN, "shop-a", "shop-a-x", &json!({"pods": "3"})).await?;
        cluster.ready("shop-a", "shop-a-x").await?;
        program.kill().await?;
        cluster.transfers(ADMIN, &approved(ADMIN, "far", ("shop-a-x", "shop-b", "shop"), "2")).await?;
        killed(&cluster, async || {
            let object = cluster.test_cluster.get("qtr", "shop-a-x", "far").await.ok()??;
            let ended =
                object["status"]["phase"] == "Completed" && object["metadata"]["finalizers"].is_null();
            ended.then_some(())
        })
        .await?;
        cluster.own(&[("shop", "2"), ("shop-a", "1"), ("shop-a-x", "1"), ("shop-b", "6")]).await?;
        cluster.quotas.never_beyond("10")
    })
}

#[test]
fn a_transfer_that_is_deleted_on_its_way_leaves_all_quota_in_use() -> Test {
    on_own_plane(async {
        let cluster = Setup::start().await?;
        let mut program = cluster.program().await?;
        cluster.siblings().await?;
        program.kill().await?;
        for effects in [1, 3, 4, 6, 8, 11] {
            let name = format!("after-{effects}");
            cluster.transfers(ADMIN, &approved(ADMIN, &name, ("shop-a", "shop-b", "shop"), "1")).await?;
            cluster.writes(effects).await?;
            cluster.test_cluster.admin().await?.delete("qtr", "shop-a", &name, &json!({})).await?;
            let mut program = cluster.next_life(&cluster.account).await?;
            let gone =
                async || cluster.test_cluster.get("qtr", "shop-a", &name).await.ok()?.is_none().then_some(());
            let gone = cluster.test_cluster.until("the transfer is gone", gone).await;
            gone.with_context(|| program.last_lines())?;
            program.kill().await?;
            let a = cluster.limits("shop-a").await?["pods"].clone();
            let (a, b) = if a == "4" { ("4", "4") } else { ("3", "5") };
            cluster
                .own(&[("shop", "2"), ("shop-a", a), ("shop-b", b)])
                .await
                .with_context(|| name.clone())?;
            // Once it has arrived it stays, and is given back for the next round.
            if a == "3" {
                ensure!(effects > 8, "{name} was deleted before it had arrived");
            }
        }
        cluster.quotas.never_beyond("10")
    })
}

#[test]
fn what_is_held_for_a_transfer_that_somebody_forced_away_is_free_again() -> Test {
    on_own_plane(async {
        let cluster = Setup::start().await?;
        let mut program = cluster.program().await?;
        cluster.siblings().await?;
        program.kill().await?;
        cluster.transfers(ADMIN, &approved(ADMIN, "lost", ("shop-a", "shop-b", "shop"), "3")).await?;
        // The finalizer, where it goes, and the quota of its source.
        cluster.writes(3).await?;
        ensure!(cluster.limits("shop-a").await? == json!({"pods": "1"}), "it was taken");
        let admin = cluster.test_cluster.admin().await?;
        admin.delete("qtr", "shop-a", "lost", &json!({})).await?;
        admin.patch("qtr", "shop-a", "lost", &json!({"metadata": {"finalizers": null}})).await?;
        let _program = cluster.next_life(&cluster.account).await?;
        let free = async || {
            let pods = cluster.limits("shop-a").await.ok()?["pods"].as_str()?.parse::<Quantity>().ok()?;
            (pods == "4".parse().ok()?).then_some(())
        };
        cluster.test_cluster.until("the source has what was held", free).await?;
        cluster.own(&[("shop", "2"), ("shop-a", "4"), ("shop-b", "4")]).await?;
        cluster.quotas.never_beyond("10")
    })
}
