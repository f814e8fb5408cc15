//! What has to be seen, and where to look.

use coppice_api::NamespaceManager;
use coppice_api::manager::Phase;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};

use crate::receiver::Receiver;

/// One thing that has to be seen.
pub(super) struct ExpectedOutcome {
    pub(super) namespace: &'static str,
    pub(super) what: &'static str,
    kind: Kind,
}

enum Kind {
    Deleted,
    ScaledDown,
    WebhookReceived,
    Held,
    Extended,
}

impl ExpectedOutcome {
    pub(super) fn all() -> Vec<Self> {
        let outcome = |namespace, kind, what| Self { namespace, what, kind };
        vec![
            outcome("example-01", Kind::Deleted, "deleted when its ttl had elapsed"),
            outcome("example-02", Kind::Deleted, "deleted when its tests had succeeded"),
            outcome("example-03", Kind::ScaledDown, "the chosen workloads are at 0, the others as they were"),
            outcome("example-04", Kind::WebhookReceived, "its receiver got one webhook, signed"),
            outcome("example-05", Kind::Held, "still there though its ttl has elapsed: it is held"),
            outcome("example-06", Kind::Extended, "still there though its ttl has elapsed: it was extended"),
        ]
    }

    /// Whether it is seen now.
    pub(super) async fn seen(&self, client: &Client, receiver: &Receiver) -> anyhow::Result<bool> {
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let namespace = namespaces.get_opt(self.namespace).await?;
        let there = namespace.as_ref().is_some_and(|n| n.metadata.deletion_timestamp.is_none());
        Ok(match self.kind {
            Kind::Deleted => !there,
            Kind::ScaledDown => there && self.scaled_down(client).await?,
            Kind::WebhookReceived => {
                self.phase(client).await? == Some(Phase::Fired) && receiver.ids().len() == 1
            }
            Kind::Held => there && self.elapsed(client, Some(Phase::Held)).await?,
            Kind::Extended => there && self.elapsed(client, Some(Phase::Active)).await?,
        })
    }

    async fn manager(&self, client: &Client) -> anyhow::Result<Option<NamespaceManager>> {
        let api: Api<NamespaceManager> = Api::namespaced(client.clone(), self.namespace);
        Ok(api.list(&ListParams::default()).await?.into_iter().next())
    }

    async fn phase(&self, client: &Client) -> anyhow::Result<Option<Phase>> {
        Ok(self.manager(client).await?.and_then(|m| m.status?.phase))
    }

    /// The manager is in this phase, and the ttl by itself would have ended at least five seconds ago.
    #[allow(clippy::disallowed_methods, reason = "a program for people, not a decision")]
    async fn elapsed(&self, client: &Client, phase: Option<Phase>) -> anyhow::Result<bool> {
        let Some(manager) = self.manager(client).await? else { return Ok(false) };
        let ttl = manager.spec.policies.iter().find_map(|p| p.when.ttl.as_ref()?.after);
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let created = namespaces.get(self.namespace).await?.creation_timestamp();
        let (Some(ttl), Some(created)) = (ttl, created) else { return Ok(false) };
        let age = Timestamp::now().duration_since(created.0).as_secs();
        Ok(manager.status.and_then(|s| s.phase) == phase && age > ttl.as_secs_i64() + 5)
    }

    async fn scaled_down(&self, client: &Client) -> anyhow::Result<bool> {
        if self.phase(client).await? != Some(Phase::Fired) {
            return Ok(false);
        }
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), self.namespace);
        let sets: Api<StatefulSet> = Api::namespaced(client.clone(), self.namespace);
        let chosen = |labels: &std::collections::BTreeMap<String, String>| {
            labels.get("isScaleDown").is_some_and(|value| value == "yes")
        };
        let (mut down, mut up) = (true, true);
        for deployment in deployments.list(&ListParams::default()).await? {
            let replicas = deployment.spec.as_ref().and_then(|s| s.replicas);
            if chosen(deployment.labels()) {
                down &= replicas == Some(0);
            } else {
                up &= replicas != Some(0);
            }
        }
        for set in sets.list(&ListParams::default()).await? {
            down &= set.spec.and_then(|s| s.replicas) == Some(0);
        }
        Ok(down && up)
    }
}
