//! Rotations of tokens: the program is killed at each request of one, others are due by time meanwhile, and what has a target whose clock is
//! wrong is not replaced for that. All of it is a part of a test of `access.rs`.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use coppice_plane::proxy::{Active, Date, FaultRule, Match, Proxy, ProxyFault, TraceEntry};
use coppice_tests::condition;
use coppice_tests::fault_injection::with_timeout;
use coppice_tests::program::Program;
use coppice_tests::requests::Requests;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::access::{Clusters, access, is_settled, let_pass, writes};

type Test = anyhow::Result<()>;

/// What a rotation asks of the cluster that the program is in (`here`) and of its target (`there`), and how often at least: one rotation is killed
/// at each of them, before it arrives.
const REQUESTS: [(&str, usize); 10] = [
    ("there patch serviceaccounts", 1),
    ("there patch roles", 1),
    ("there patch rolebindings", 1),
    ("there create secrets", 1),
    ("there create serviceaccounts/token", 1),
    ("there create selfsubjectreviews", 1),
    // One right that is granted, and one that is not.
    ("there create selfsubjectaccessreviews", 2),
    ("here update secrets", 1),
    ("there delete secrets", 1),
    // The target has the rights; the intent; the Secret has the new credential; the one before is revoked.
    ("here update clusteraccesses/status", 4),
];
/// More requests than a rotation has.
const MANY: u64 = 30;

/// Rotates `ci` once for each request of a rotation, killed at that request; then some more, killed when a request has arrived and its answer has
/// not. Others are rotated by time meanwhile.
pub(crate) async fn killed_at_each_request(clusters: &Clusters, proxies: [&Proxy; 2]) -> Test {
    let [here, there] = proxies;
    let account = here.kubeconfig(&clusters.account)?;
    let program = clusters.next_life(&account).await?;
    let mut rotations = Rotations { clusters, proxies, account, program, replaced: Vec::new() };
    let others = Others::begin(clusters).await.with_context(|| rotations.program.last_lines())?;
    let mut requests = Vec::new();
    for number in 1..MANY {
        let Some(request) = rotations.killed_at(number).await? else { break };
        requests.push(request);
    }
    for (request, times) in REQUESTS {
        let found = requests.iter().filter(|found| *found == request).count();
        ensure!(found >= times, "killed {found} times at {request}, of {requests:#?}");
    }
    let token = Match::verb("create").resource("serviceaccounts").subresource("token");
    rotations.killed_after("token", there, token).await?;
    let output = Match::verb("update").resource("secrets").name("ci-kubeconfig");
    rotations.killed_after("output", here, output).await?;
    rotations.killed_after("revocation", there, Match::verb("delete").resource("secrets")).await?;
    for old in &rotations.replaced {
        clusters.dead(old).await?;
    }
    others.end(clusters).await.with_context(|| rotations.program.last_lines())?;
    rotations.program.kill().await
}

/// One rotation of `ci` after the other.
struct Rotations<'a> {
    clusters: &'a Clusters,
    /// Before the cluster that the program is in, and before its target.
    proxies: [&'a Proxy; 2],
    /// The kubeconfig of the program, through the first of them.
    account: PathBuf,
    program: Program,
    /// Who has a credential that was replaced. That none of them is valid is seen at the end, for all at once: an API server remembers for ten seconds
    /// that it was.
    replaced: Vec<Requests>,
}

impl Rotations<'_> {
    /// Kills the program at the request of that number, before it arrives, and has the next life finish the rotation. Which request it was; none if
    /// the rotation was over before.
    async fn killed_at(&mut self, number: u64) -> anyhow::Result<Option<String>> {
        let before = self.before().await?;
        let [here, there] = self.proxies;
        let seen = self.proxies.map(|proxy| proxy.trace().last());
        let held = [
            here.add(FaultRule::new(of_ci(), ProxyFault::HoldRequest)),
            there.add(FaultRule::new(of_target(), ProxyFault::HoldRequest)),
        ];
        let id = json!({"rotate": format!("request-{number}")});
        self.clusters.change("ci", &id).await?;
        let over = tokio::select! {
            () = let_pass(&held, number - 1) => None,
            over = self.clusters.until("ci", "one more request, or the end", is_settled) => Some(over),
        };
        if let Some(over) = over {
            drop(held);
            let after = over.with_context(|| self.program.last_lines())?;
            is_rotated(&before, &after)?;
            one_credential(self.clusters, "ci").await?;
            return Ok(None);
        }
        let request = self.held(seen)?;
        self.program.kill().await?;
        held.iter().for_each(Active::discard);
        drop(held);
        self.finished(&request, &before).await?;
        Ok(Some(request))
    }

    /// Kills the program once such a request has arrived, and its answer is lost.
    async fn killed_after(&mut self, id: &str, proxy: &Proxy, request: Match) -> Test {
        let before = self.before().await?;
        let held = proxy.add(FaultRule::new(request, ProxyFault::HoldResponse).once());
        self.clusters.change("ci", &json!({"rotate": id})).await?;
        with_timeout(id, held.held(1)).await.with_context(|| self.program.last_lines())?;
        self.program.kill().await?;
        held.discard();
        drop(held);
        self.finished(id, &before).await
    }

    /// The access before the next rotation.
    async fn before(&mut self) -> anyhow::Result<Value> {
        let before = self.clusters.until("ci", "settled", is_settled).await;
        let before = before.with_context(|| self.program.last_lines())?;
        self.replaced.push(self.clusters.holder("ci-kubeconfig").await?);
        Ok(before)
    }

    /// The request that is held, of those after these of each proxy: one comes after the other.
    fn held(&self, seen: [u64; 2]) -> anyhow::Result<String> {
        for ((side, proxy), seen) in ["here", "there"].into_iter().zip(self.proxies).zip(seen) {
            let is_held = |entry: &TraceEntry| {
                let waits = entry.faults.contains(&ProxyFault::HoldRequest.name()) && entry.status.is_none();
                waits && entry.seq > seen
            };
            if let Some(entry) = proxy.trace().entries().into_iter().find(is_held) {
                let TraceEntry { verb, resource, subresource, .. } = entry;
                let slash = if subresource.is_empty() { "" } else { "/" };
                return Ok(format!("{side} {verb} {resource}{slash}{subresource}"));
            }
        }
        bail!("no request is held")
    }

    /// Without the program the Secret holds a credential that is valid. Its next life finishes the rotation.
    async fn finished(&mut self, killed_at: &str, before: &Value) -> Test {
        let valid = self.clusters.holder("ci-kubeconfig").await?.list("configmap", "shop").await;
        valid.with_context(|| format!("killed at {killed_at}"))?;
        self.program = self.clusters.next_life(&self.account).await?;
        let after = self.clusters.until("ci", "rotated", is_settled).await;
        let after = after.with_context(|| format!("killed at {killed_at}: {}", self.program.last_lines()))?;
        let ended = is_rotated(before, &after).and(one_credential(self.clusters, "ci").await);
        ended.with_context(|| format!("killed at {killed_at}"))
    }
}

/// Whether there is another credential, of one intent.
fn is_rotated(before: &Value, after: &Value) -> Test {
    let [before, after] = [before, after].map(|access| &access["status"]);
    ensure!(after["credential"] != before["credential"], "{after:#}");
    let next = before["sequence"].as_u64().map(|sequence| sequence + 1);
    ensure!(after["sequence"].as_u64() == next, "{after:#}, before {before:#}");
    Ok(())
}

/// What changes something for `ci` in the cluster that the program is in.
fn of_ci() -> Match {
    writes().when(|entry| ["ci", "ci-kubeconfig"].contains(&entry.name.as_str()))
}

/// What changes something in its target, and what tries a credential out. The others get there by other ways.
fn of_target() -> Match {
    Match::any().when(|entry| entry.resource.starts_with("selfsubject") || writes().selects(entry))
}

/// Accesses beside `ci`.
struct Others {
    /// The one that is due about a minute after it was issued, as it was then, and who has that credential.
    timed: (Value, Requests),
    skewed: Vec<Skewed>,
}

/// An access whose target tells a wrong time.
struct Skewed {
    name: &'static str,
    /// As it was when it was issued.
    issued: Value,
    wrong: Active,
    _proxy: Proxy,
}

impl Others {
    async fn begin(clusters: &Clusters) -> anyhow::Result<Self> {
        let direct = clusters.there.plane.admin_kubeconfig();
        create(clusters, "timed", &direct, &json!({"ttl": "10m", "rotateAt": 10})).await?;
        let timed = clusters.until("timed", "settled", is_settled).await?;
        is_granted(clusters, &timed, 600).await?;
        let holder = clusters.holder("timed-kubeconfig").await?;
        holder.list("configmap", "shop").await?;
        let mut skewed = Vec::new();
        for (name, minutes) in [("ahead", 10), ("behind", -10)] {
            let proxy = Proxy::start(&clusters.there.plane, None).await?;
            let date = Date::Shifted(SignedDuration::from_mins(minutes));
            let wrong = proxy.add(FaultRule::new(Match::any(), ProxyFault::Date(date)));
            create(clusters, name, &proxy.kubeconfig(&direct)?, &json!({})).await?;
            let issued = clusters.until(name, "settled", is_settled).await?;
            is_granted(clusters, &issued, 3600).await?;
            skewed.push(Skewed { name, issued, wrong, _proxy: proxy });
        }
        Ok(Self { timed: (timed, holder), skewed })
    }

    /// One was replaced when its time had come, whoever was killed then, and the others were not.
    async fn end(self, clusters: &Clusters) -> Test {
        let (first, old) = &self.timed;
        let is_another = |o: &Value| o["status"]["credential"] != first["status"]["credential"];
        clusters.until("timed", "replaced by time", is_another).await?;
        // The last one is there for some minutes.
        clusters.change("timed", &json!({"rotateAt": 90})).await?;
        let last = clusters.until("timed", "settled", is_settled).await?;
        ensure!(last["spec"]["rotate"].is_null() && is_another(&last), "{last:#}");
        ensure!(at(&last, "notBefore")? >= at(first, "nextRotation")?, "{last:#}, at first {first:#}");
        one_credential(clusters, "timed").await?;
        clusters.dead(old).await?;
        for Skewed { name, issued, wrong, .. } in &self.skewed {
            ensure!(wrong.count() > 0, "{name}: no answer had a wrong time");
            let last = clusters.here.get("clacc", "team", name).await?.context(*name)?;
            for field in ["phase", "sequence", "credential", "notBefore", "notAfter", "nextRotation"] {
                let [issued, last] = [issued, &last].map(|access| &access["status"][field]);
                ensure!(last == issued, "{name}: {field} is {last}, and was {issued}");
            }
            one_credential(clusters, name).await?;
        }
        for name in ["timed", "ahead", "behind"] {
            clusters.here.admin().await?.delete("clacc", "team", name, &json!({})).await?;
            clusters.gone(name).await?;
        }
        Ok(())
    }
}

/// Creates an access with these fields besides, by a kubeconfig of its own.
async fn create(clusters: &Clusters, name: &str, kubeconfig: &Path, spec: &Value) -> Test {
    let admin = clusters.here.admin().await?;
    let secret = format!("{name}-target");
    let text = BASE64_STANDARD.encode(std::fs::read_to_string(kubeconfig)?);
    let object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": secret, "namespace": "team"},
        "data": {"kubeconfig": text}});
    admin.create(&object).await?;
    let mut access = access(name, &format!("{name}-kubeconfig"));
    access["spec"]["cluster"]["kubeconfigSecret"]["name"] = json!(secret);
    for (field, value) in spec.as_object().into_iter().flatten() {
        access["spec"][field] = value.clone();
    }
    admin.create(&access).await.map(drop)
}

/// Whether the first credential of an access is valid for so many seconds, from a time between the creations of the access and of its Secret. That is
/// by the API server here, which the program may take to be some seconds behind.
async fn is_granted(clusters: &Clusters, access: &Value, seconds: i64) -> Test {
    let (from, until) = (at(access, "notBefore")?, at(access, "notAfter")?);
    ensure!(until.duration_since(from).as_secs() == seconds, "{access:#}");
    let output = access["spec"]["output"]["secret"].as_str().context("no output")?;
    let secret = clusters.here.get("secret", "team", output).await?.context("no Secret")?;
    let (began, written) = (created(access)?, created(&secret)?);
    let is_now = (began - 5..=written).contains(&from.as_second());
    ensure!(is_now && access["status"]["sequence"] == 1, "{access:#}, {secret:#}");
    Ok(())
}

/// When an object was created, in seconds.
fn created(object: &Value) -> anyhow::Result<i64> {
    let text = object["metadata"]["creationTimestamp"].as_str().context("it was not created")?;
    Ok(text.parse::<Timestamp>()?.as_second())
}

/// An instant of a status.
fn at(access: &Value, field: &str) -> anyhow::Result<Timestamp> {
    let text = access["status"][field].as_str().with_context(|| format!("no {field}: {access:#}"))?;
    Ok(text.parse()?)
}

/// While the target is away the Secret holds what it held, and another spec is tried at once when it is back.
pub(crate) async fn away(clusters: &Clusters, there: &Proxy) -> Test {
    let secret = async || clusters.here.get("secret", "team", "ci-kubeconfig").await?.context("no Secret");
    let before = secret().await?;
    there.cut();
    let program = clusters.next_life(&clusters.account).await?;
    clusters.change("ci", &json!({"rotate": "away"})).await?;
    let degraded = clusters.until("ci", "Degraded", |o| o["status"]["phase"] == "Degraded").await;
    let degraded = degraded.with_context(|| program.last_lines())?;
    ensure!(condition(&degraded, "Ready")["status"] == "True", "{degraded:#}");
    ensure!(condition(&degraded, "Reachable")["reason"] == "TargetUnreachable", "{degraded:#}");
    ensure!(secret().await?["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]);
    there.heal();
    clusters.change("ci", &json!({"ttl": "90m"})).await?;
    let settled = clusters.until("ci", "settled", is_settled).await;
    settled.with_context(|| program.last_lines())?;
    one_credential(clusters, "ci").await
}

/// The Secret of an access holds its credential, which works, and the target knows no other of it.
pub(crate) async fn one_credential(clusters: &Clusters, name: &str) -> Test {
    let output = format!("{name}-kubeconfig");
    clusters.holder(&output).await?.list("configmap", "shop").await?;
    let access = clusters.here.get("clacc", "team", name).await?.with_context(|| name.to_owned())?;
    let credential = access["status"]["credential"].as_str().context("no credential")?;
    let secret = clusters.here.get("secret", "team", &output).await?.context("no Secret")?;
    ensure!(secret["metadata"]["annotations"]["coppice.dev/credential"] == credential, "{secret:#}");
    let mut bound = clusters.in_target("secret").await?;
    bound.retain(|one| one["metadata"]["labels"]["coppice.dev/access"] == access["metadata"]["uid"]);
    let [bound] = bound.as_slice() else { anyhow::bail!("{bound:#?}") };
    ensure!(bound["metadata"]["name"] == format!("coppice-{credential}"), "{bound:#}");
    Ok(())
}
