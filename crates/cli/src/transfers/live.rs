//! What commands about transfers read of a cluster, and write to it.

use anyhow::{Result, anyhow, bail};
use coppice_api::names::{GROUP, TREE_QUOTA_NAME};
use coppice_api::{QuotaTransferSpec, QuotaTransferStatus};
use coppice_quantity::Duration;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::{Namespace, ResourceQuota};
use kube::api::{ApiResource, DynamicObject, PostParams};
use kube::{Api, Client};
use serde_json::json;

use super::route::{NoRoute, Target, path};
use super::{QuotaTransfer, Route, TransferApproval, end, resource_name, state};
use crate::connect::{code, failed};
use crate::trees::NamespaceQuota;
use crate::write::{FIELD_MANAGER, user_name};
use crate::{Exit, live, wait};

/// The transfers of a namespace, read without their type.
pub(crate) fn transfers(client: &Client, namespace: &str) -> Api<DynamicObject> {
    let resource = ApiResource::erase::<coppice_api::QuotaTransfer>(&());
    Api::namespaced_with(client.clone(), namespace, &resource)
}

/// One transfer, which must exist.
pub(crate) async fn existing(client: &Client, namespace: &str, name: &str) -> Result<QuotaTransfer> {
    let found = transfers(client, namespace).get_opt(name).await;
    let found = found.map_err(|e| failed(&format!("QuotaTransfer {namespace}/{name} cannot be read"), &e))?;
    let found = found.ok_or_else(|| {
        anyhow!(
            "there is no QuotaTransfer {name} in namespace {namespace}; `kubectl get quotatransfers -n {namespace}` shows those \
             that are there"
        )
    })?;
    Ok(QuotaTransfer::from_json(serde_json::to_value(found)?)?)
}

/// The names from the root down to the source, which this user has to be able to read.
pub(crate) async fn source(client: &Client, name: &str) -> Result<Vec<String>> {
    match live::namespace(client, name).await {
        Ok(found) => Ok(path(&living(found, name)?)?),
        Err(error) => Err(failed(&format!("namespace {name} cannot be read"), &error)),
    }
}

/// The route to a namespace of the same tree.
pub(crate) async fn route(client: &Client, from: &str, to: &str, through: Option<&str>) -> Result<Route> {
    if from == to {
        return Err(NoRoute::Itself(to.to_owned()).into());
    }
    let source = source(client, from).await?;
    // What is above is known without a right to read it.
    if let Some(route) = Route::to_ancestor(&source, to, through) {
        return Ok(route?);
    }
    let target = match live::namespace(client, to).await {
        Ok(found) => Target::Path(path(&living(found, to)?)?),
        Err(error) if code(&error) == Some(403) => Target::Unreadable(error_text(&error)),
        Err(error) => return Err(failed(&format!("namespace {to} cannot be read"), &error)),
    };
    Ok(Route::find(&source, to, &target, through)?)
}

fn error_text(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        _ => "you may not".to_owned(),
    }
}

fn living(found: Option<Namespace>, name: &str) -> Result<Namespace> {
    let Some(namespace) = found else {
        bail!("namespace {name} does not exist; `coppice tree` shows the namespaces of trees")
    };
    if namespace.metadata.deletion_timestamp.is_some() {
        bail!("namespace {name} is being deleted already: its quota returns to the namespace above it");
    }
    Ok(namespace)
}

/// Who asks, and who has to approve it.
pub(crate) async fn approval(client: &Client, route: &Route) -> Result<(String, TransferApproval)> {
    let requester = user_name(client, "spec.requester").await?;
    if !route.needs_approval() {
        return Ok((requester, TransferApproval::NotNeeded));
    }
    // The right in the source is needed to create it at all.
    let may = may_create(client, route.through()).await? || may_create(client, route.to()).await?;
    let approval = if may { TransferApproval::Own(requester.clone()) } else { TransferApproval::Waits };
    Ok((requester, approval))
}

/// Whether this user may create transfers in a namespace.
async fn may_create(client: &Client, namespace: &str) -> Result<bool> {
    let attributes = ResourceAttributes {
        group: Some(GROUP.to_owned()),
        resource: Some("quotatransfers".to_owned()),
        verb: Some("create".to_owned()),
        namespace: Some(namespace.to_owned()),
        ..ResourceAttributes::default()
    };
    let spec = SelfSubjectAccessReviewSpec {
        resource_attributes: Some(attributes),
        ..SelfSubjectAccessReviewSpec::default()
    };
    let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
    let reviewed = Api::<SelfSubjectAccessReview>::all(client.clone())
        .create(&PostParams::default(), &review)
        .await
        .map_err(|e| {
            failed(&format!("whether you may create QuotaTransfers in {namespace} is not known"), &e)
        })?;
    Ok(reviewed.status.is_some_and(|status| status.allowed))
}

/// The quota of a namespace; or why it is not known.
pub(crate) async fn quota(client: &Client, namespace: &str) -> Result<NamespaceQuota> {
    let quotas = Api::<ResourceQuota>::namespaced(client.clone(), namespace);
    let what = format!("the quota of namespace {namespace} is not known");
    match quotas.get_opt(TREE_QUOTA_NAME).await {
        Ok(Some(quota)) => {
            NamespaceQuota::of(&serde_json::to_value(quota)?).map_err(|why| anyhow!("{what}: {why}"))
        }
        Ok(None) => bail!("{what}: it has no ResourceQuota {TREE_QUOTA_NAME} yet"),
        Err(error) => Err(failed(&what, &error)),
    }
}

/// Creates a transfer in its source.
pub(crate) async fn create(
    client: &Client,
    route: &Route,
    name: &str,
    spec: &QuotaTransferSpec,
    dry_run: bool,
) -> Result<()> {
    let resource = ApiResource::erase::<coppice_api::QuotaTransfer>(&());
    let transfer = DynamicObject::new(name, &resource).within(route.source()).data(json!({ "spec": spec }));
    let params = PostParams { dry_run, field_manager: Some(FIELD_MANAGER.to_owned()) };
    let created = transfers(client, route.source()).create(&params, &transfer).await;
    let what = format!("the QuotaTransfer cannot be created in namespace {}", route.source());
    created.map(drop).map_err(|e| failed(&what, &e))
}

/// Waits until a transfer has ended or waits for approval: how, and in which words.
pub(crate) async fn wait(
    client: &Client,
    namespace: &str,
    name: &str,
    most: Duration,
) -> Result<(Exit, String)> {
    let shown = resource_name(name);
    let mut last = QuotaTransferStatus::default();
    let ended = wait::until(most, async || {
        let transfer = existing(client, namespace, name).await?;
        if let Some(error) = transfer.status_error {
            bail!("QuotaTransfer {namespace}/{name}: {error}");
        }
        last = transfer.status;
        Ok(end(&last))
    });
    if let Some(exit) = ended.await? {
        return Ok((exit, format!("{shown} is {}", state(&last))));
    }
    let goes_on = format!("`kubectl get quotatransfer {name} -n {namespace} -o wide` shows how it goes on");
    Ok((Exit::Attention, format!("after {most} {shown} is {}; {goes_on}", state(&last))))
}
