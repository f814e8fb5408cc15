//! How long the admission webhook takes, called straight at its port as the API server calls it: over TLS, on connections that stay.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use coppice_tests::Operator;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use serde_json::{Value, json};
use tokio::time::MissedTickBehavior;

/// Requests that are under way are waited for so long.
const TIMEOUT: Duration = Duration::from_secs(10);

/// What is sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// Requests a second, whether those before were answered or not.
    pub(super) per_second: u32,
    /// For how long, in seconds.
    pub(super) seconds: u32,
    /// Whether there is room for what they ask for.
    pub(super) admitted: bool,
}

/// Sends it; how long each took from when it was due, in seconds.
///
/// # Errors
/// If anything else is answered than is to be.
pub(super) async fn measure(
    program: &Operator,
    load: Load,
    parent: impl Fn(usize) -> String,
) -> anyhow::Result<Vec<f64>> {
    let address = program.admission().context("the program serves no webhook")?;
    let client = reqwest::Client::builder().no_proxy().danger_accept_invalid_certs(true).build()?;
    let url = format!("https://{address}/validate");
    // Not measured: connections that are opened.
    for n in 0..4 {
        ask(&client, &url, &review(&parent(n), n, load.admitted), load.admitted).await?;
    }
    let count = usize::try_from(load.per_second * load.seconds)?;
    let mut due = tokio::time::interval(Duration::from_secs(1) / load.per_second);
    due.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let (mut under_way, mut times) = (FuturesUnordered::new(), Vec::new());
    for n in 0..count {
        let at = loop {
            tokio::select! {
                at = due.tick() => break at.into_std(),
                Some(time) = under_way.next() => times.push(time?),
            }
        };
        let (client, url, body) = (client.clone(), url.clone(), review(&parent(n), n, load.admitted));
        under_way.push(async move {
            ask(&client, &url, &body, load.admitted).await?;
            anyhow::Ok(Instant::now().saturating_duration_since(at).as_secs_f64())
        });
    }
    let rest = async {
        while let Some(time) = under_way.next().await {
            times.push(time?);
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(TIMEOUT, rest).await.context("not all were answered")??;
    Ok(times)
}

async fn ask(client: &reqwest::Client, url: &str, body: &str, admitted: bool) -> anyhow::Result<()> {
    let answer = client.post(url).body(body.to_owned()).send().await?.error_for_status()?;
    let answer: Value = serde_json::from_slice(&answer.bytes().await?)?;
    ensure!(answer["response"]["allowed"] == admitted, "{answer}");
    Ok(())
}

/// The creation of a Subnamespace, as the API server sends it.
fn review(parent: &str, n: usize, admitted: bool) -> String {
    let pods = if admitted { "1" } else { "1000000" };
    let (name, uid) = (format!("{parent}-asked-{n}"), format!("00000000-0000-4000-8000-{n:012}"));
    let object = json!({
        "apiVersion": "coppice.dev/v1alpha1", "kind": "Subnamespace",
        "metadata": {
            "name": name, "namespace": parent, "uid": uid, "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z"
        },
        "spec": {"quota": {"hard": {"pods": pods}}}
    });
    let resource = json!({"group": "coppice.dev", "version": "v1alpha1", "resource": "subnamespaces"});
    let request = json!({
        "uid": uid, "operation": "CREATE", "name": name, "namespace": parent, "object": object, "oldObject": null,
        "resource": resource, "requestResource": resource, "dryRun": false, "options": {"kind": "CreateOptions"},
        "kind": {"group": "coppice.dev", "version": "v1alpha1", "kind": "Subnamespace"},
        "userInfo": {"username": "system:serviceaccount:team:ci", "groups": ["system:authenticated"]}
    });
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).to_string()
}
