//! Puts objects straight into etcd, through its JSON gateway: two orders of magnitude faster than through the API server,
//! which reads them as if it had written them itself, and tells its watchers.

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::{StreamExt as _, TryStreamExt as _};
use serde_json::{Value, json};

use super::objects::Entry;

/// Objects in one transaction: etcd takes 128 operations and 1.5 MiB.
const BATCH: usize = 100;
const CONNECTIONS: usize = 4;

/// Writes every object; returns how many there were.
pub(super) async fn seed(etcd: &str, entries: impl Iterator<Item = Entry>) -> anyhow::Result<usize> {
    let client = reqwest::Client::builder().no_proxy().build()?;
    let mut entries = entries.peekable();
    let batches = std::iter::from_fn(|| {
        entries.peek()?;
        Some(entries.by_ref().take(BATCH).collect::<Vec<_>>())
    });
    let written = futures::stream::iter(batches).map(|batch| put(&client, etcd, batch));
    written.buffer_unordered(CONNECTIONS).try_fold(0, async |sum, n| Ok(sum + n)).await
}

async fn put(client: &reqwest::Client, etcd: &str, batch: Vec<Entry>) -> anyhow::Result<usize> {
    let puts: Vec<Value> = batch
        .iter()
        .map(|(key, object)| json!({"requestPut": {"key": STANDARD.encode(key), "value": STANDARD.encode(object.to_string())}}))
        .collect();
    let body = json!({"success": puts}).to_string();
    let answer = client.post(format!("{etcd}/v3/kv/txn")).body(body).send().await.context("etcd")?;
    let status = answer.status();
    let text = answer.text().await?;
    anyhow::ensure!(status.is_success(), "etcd answered {status}: {text}");
    Ok(batch.len())
}
