//! What the quotas of a tree let its namespaces have together, at every revision.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::ensure;
use coppice_quantity::Quantity;
use coppice_tests::TestCluster;
use futures::StreamExt as _;
use kube::api::WatchEvent;
use serde_json::Value;

type Test = anyhow::Result<()>;

/// The most pods that the namespaces of a tree may have together, at every revision since it was watched.
pub(crate) struct Quotas {
    seen: Arc<Mutex<Seen>>,
    watching: tokio::task::JoinHandle<()>,
}

#[derive(Default)]
struct Seen {
    /// The tree whose quotas are looked at; none: all quotas are.
    tree: Option<&'static str>,
    /// Of each namespace: the larger of what is asked for and what is in force.
    own: BTreeMap<String, Quantity>,
    /// The largest sum, and of what.
    most: (Quantity, String),
    revisions: usize,
    error: Option<String>,
}

impl Seen {
    fn see(&mut self, event: WatchEvent<Value>) {
        let (quota, deleted) = match event {
            WatchEvent::Added(quota) | WatchEvent::Modified(quota) => (quota, false),
            WatchEvent::Deleted(quota) => (quota, true),
            WatchEvent::Bookmark(_) => return,
            WatchEvent::Error(error) => return self.error = Some(error.to_string()),
        };
        if self.tree.is_some_and(|tree| quota["metadata"]["labels"]["coppice.dev/tree"] != tree) {
            return;
        }
        let namespace = quota["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
        let amount = |part: &str| quota[part]["hard"]["pods"].as_str().and_then(|text| text.parse().ok());
        let own: Quantity = amount("spec").max(amount("status")).unwrap_or(Quantity::ZERO);
        if deleted {
            self.own.remove(&namespace);
        } else {
            self.own.insert(namespace, own);
        }
        self.revisions += 1;
        let sum = self.own.values().try_fold(Quantity::ZERO, |sum, own| sum.checked_add(*own));
        if let Some(sum) = sum.filter(|sum| *sum > self.most.0) {
            self.most = (sum, format!("{:?}", self.own));
        }
    }
}

impl Quotas {
    pub(crate) async fn watch(test_cluster: &TestCluster) -> anyhow::Result<Self> {
        Self::seen_by(Seen::default(), test_cluster).await
    }

    /// Of one tree, where there are others.
    pub(crate) async fn of_tree(tree: &'static str, test_cluster: &TestCluster) -> anyhow::Result<Self> {
        Self::seen_by(Seen { tree: Some(tree), ..Seen::default() }, test_cluster).await
    }

    async fn seen_by(seen: Seen, test_cluster: &TestCluster) -> anyhow::Result<Self> {
        let mut events = test_cluster.admin().await?.watch("quota").await?.boxed();
        let seen = Arc::new(Mutex::new(seen));
        let watching = tokio::spawn({
            let seen = Arc::clone(&seen);
            async move {
                while let Some(event) = events.next().await {
                    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                    match event {
                        Ok(event) => seen.see(event),
                        Err(error) => seen.error = Some(error.to_string()),
                    }
                }
            }
        });
        Ok(Self { seen, watching })
    }

    /// Whether at no revision there was more than that, and at one there was as much: then all of it had been seen.
    pub(crate) fn never_beyond(&self, pods: &str) -> Test {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        ensure!(seen.error.is_none() && !self.watching.is_finished(), "not all was seen: {:?}", seen.error);
        ensure!(
            seen.most.0 == pods.parse()?,
            "{} pods: {} of {} revisions",
            seen.most.0,
            seen.most.1,
            seen.revisions
        );
        Ok(())
    }
}
