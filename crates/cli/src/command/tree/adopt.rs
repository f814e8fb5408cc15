//! `coppice tree adopt`: an existing namespace becomes one of a tree.
#![allow(clippy::doc_markdown, reason = "comments on arguments are the help that people read in a terminal")]

use anyhow::{Result, anyhow, bail};
use clap::Args;
use coppice_api::SubnamespacePhase;
use coppice_api::names::{
    LABEL_DEPTH_SUFFIX, LABEL_PARENT, LABEL_PROTECTED, LABEL_ROOT, LABEL_SUBNAMESPACE, LABEL_TREE,
    TREE_QUOTA_NAME, VERB_SET_TREE,
};
use coppice_hierarchy::Resources;
use k8s_openapi::api::core::v1::{Namespace, ResourceQuota};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;

use crate::args::{ConnectionArgs, Target, WriteArgs};
use crate::connect::{code, connect, failed};
use crate::trees::{Subnamespace, subnamespace};
use crate::write::{FIELD_MANAGER, MAX_ATTEMPTS, dry_run_suffix, overtaken};
use crate::{Exit, Io, with_progress};

/// Adopt an existing namespace into a tree
///
/// Somebody has created a Subnamespace with the name of a namespace that was there already, and it is refused (NameTaken). This
/// marks the namespace as the one of that Subnamespace: it gets the quota that spec.quota asks for, which limits what starts
/// there from then on, and copies of what is propagated down the tree. Nothing that runs there is stopped. From then on the
/// namespace is deleted with its Subnamespace. Only who has the verb set-tree on namespacetrees may do it: cluster
/// administrators.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kubectl apply -f shop-legacy.yaml           a Subnamespace shop-legacy in namespace shop, with the quota that it is to have
  coppice tree adopt shop/shop-legacy --dry-run
  coppice tree adopt shop/shop-legacy
  coppice tree shop-legacy                    what it has and uses; if it uses more than it has, nothing more starts there

Exit codes: 0 adopted, or already adopted; 1 error, 2 usage.")]
pub(super) struct AdoptArgs {
    /// A Subnamespace, in the namespace that the existing one is to be below
    #[arg(value_name = "PARENT/NAME", value_parser = Target::subnamespace)]
    target: Target,
    #[command(flatten)]
    write: WriteArgs,
}

pub(super) async fn run(args: &AdoptArgs, connection: &ConnectionArgs, io: &mut Io<'_>) -> Result<Exit> {
    let client = connect(connection, io).await?.client;
    let Target { namespace: parent, name } = &args.target;
    let mut shown = false;
    for _ in 0..MAX_ATTEMPTS {
        let reading = Box::pin(subnamespace(&client, &args.target));
        let Some(object) = with_progress("reading the Subnamespace", io, reading).await?? else {
            bail!(
                "there is no Subnamespace {}: create it first, with the quota that namespace {name} is to have",
                args.target
            );
        };
        let reading = Box::pin(read_namespace(&client, name));
        let namespace = with_progress("reading the namespace", io, reading).await??;
        let uid = object.meta.uid.as_deref().unwrap_or_default();
        if namespace.labels().get(LABEL_SUBNAMESPACE).is_some_and(|creator| creator == uid) {
            writeln!(io.screen(), "namespace/{name} belongs to Subnamespace {} already", args.target)?;
            return Ok(Exit::Ok);
        }
        may_be_adopted(&args.target, &object, &namespace)?;
        let reading = Box::pin(quota_is_free(&client, name));
        with_progress("reading the quota", io, reading).await??;
        if !std::mem::replace(&mut shown, true) {
            let spec =
                object.spec.as_ref().map_err(|error| anyhow!("Subnamespace {}: {error}", args.target))?;
            let asked = spec
                .quota
                .as_ref()
                .map_or_else(|| Ok(Resources::default()), |quota| Resources::of(&quota.hard));
            let asked =
                asked.map_err(|why| anyhow!("Subnamespace {}: spec.quota.hard: {why}", args.target))?;
            let quota = if asked.is_empty() {
                "nothing of what the tree limits".to_owned()
            } else {
                asked.to_string()
            };
            writeln!(io.screen(), "namespace {name} will be below namespace {parent}, limited to {quota}")?;
            writeln!(io.screen(), "it will be deleted with Subnamespace {}", args.target)?;
        }
        let marking = Box::pin(mark(&client, &namespace, parent, uid, args.write.dry_run));
        if with_progress("changing the namespace", io, marking).await?? {
            writeln!(io.screen(), "namespace/{name} adopted{}", dry_run_suffix(args.write.dry_run))?;
            return Ok(Exit::Ok);
        }
    }
    Err(overtaken(&format!("namespace {name}")))
}

async fn read_namespace(client: &Client, name: &str) -> Result<Namespace> {
    let found = Api::<Namespace>::all(client.clone()).get_opt(name).await;
    let found = found.map_err(|error| failed(&format!("namespace {name} cannot be read"), &error))?;
    found.ok_or_else(|| anyhow!("there is no namespace {name}: the Subnamespace creates it"))
}

/// Whether the namespace belongs to nobody else, and the Subnamespace waits for it.
fn may_be_adopted(target: &Target, object: &Subnamespace, namespace: &Namespace) -> Result<()> {
    let name = &target.name;
    if let Some(error) = &object.status_error {
        bail!("Subnamespace {target}: {error}");
    }
    if object.meta.deletion_timestamp.is_some() {
        bail!("Subnamespace {target} is being deleted: create another one");
    }
    if object.status.namespace_uid.is_some() {
        bail!("Subnamespace {target} has a namespace of its own already, which is another one or gone");
    }
    if object.status.phase != Some(SubnamespacePhase::Refused) {
        bail!(
            "Subnamespace {target} has not been looked at yet: wait until its phase is Refused, because namespace {name} is there \
             (kubectl get sns -n {})",
            target.namespace
        );
    }
    if namespace.metadata.deletion_timestamp.is_some() {
        bail!("namespace {name} is being deleted");
    }
    let labels = namespace.labels();
    if labels.contains_key(LABEL_PROTECTED) {
        bail!(
            "namespace {name} is protected (label {LABEL_PROTECTED}), and a namespace of a tree is deleted with its Subnamespace: remove \
             the label first if that is meant"
        );
    }
    let of_tree = [LABEL_ROOT, LABEL_SUBNAMESPACE, LABEL_PARENT];
    let belongs = |key: &String| of_tree.contains(&key.as_str()) || key.ends_with(LABEL_DEPTH_SUFFIX);
    if let Some((key, value)) = labels.iter().find(|(key, _)| belongs(key)) {
        bail!("namespace {name} belongs to a tree already (label {key}={value})");
    }
    Ok(())
}

/// The quota of the tree needs its name.
async fn quota_is_free(client: &Client, namespace: &str) -> Result<()> {
    let found = Api::<ResourceQuota>::namespaced(client.clone(), namespace).get_opt(TREE_QUOTA_NAME).await;
    let found = found.map_err(|error| {
        failed(&format!("ResourceQuota {TREE_QUOTA_NAME} of namespace {namespace} cannot be read"), &error)
    })?;
    found.and_then(|quota| takes_its_name(&quota, namespace)).map_or(Ok(()), |why| Err(anyhow!(why)))
}

/// What is to be done about a ResourceQuota of that name; none if it is that of a tree.
fn takes_its_name(quota: &ResourceQuota, namespace: &str) -> Option<String> {
    let is_of_tree = quota.labels().contains_key(LABEL_TREE);
    (!is_of_tree).then(|| {
        format!(
            "namespace {namespace} has a ResourceQuota {TREE_QUOTA_NAME}, which is the name of that of the tree, and no object can be renamed: \
             delete it; if its limits are to hold besides, create a ResourceQuota of another name with the same spec first"
        )
    })
}

/// Marks the namespace, if it is as it was read; false if somebody else was faster.
async fn mark(client: &Client, read: &Namespace, parent: &str, uid: &str, dry_run: bool) -> Result<bool> {
    let params =
        PatchParams { dry_run, field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let patch = Patch::Merge(json!({"metadata": {
        "uid": read.metadata.uid, "resourceVersion": read.metadata.resource_version,
        "labels": {LABEL_SUBNAMESPACE: uid, LABEL_PARENT: parent},
    }}));
    let name = read.name_any();
    match Api::<Namespace>::all(client.clone()).patch(&name, &params, &patch).await {
        Ok(_) => Ok(true),
        Err(error) if code(&error) == Some(409) => Ok(false),
        Err(error) if code(&error) == Some(403) => Err(failed(
            &format!(
                "namespace {name} cannot be adopted: it takes the verb {VERB_SET_TREE} on namespacetrees.coppice.dev, which cluster \
                 administrators have"
            ),
            &error,
        )),
        Err(error) => Err(failed(&format!("namespace {name} cannot be changed"), &error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_that_takes_the_name_of_that_of_the_tree_is_to_be_deleted_and_not_renamed() {
        let mut quota = ResourceQuota::default();
        let why = takes_its_name(&quota, "shop").unwrap();
        for says in
            ["namespace shop has", "delete it", "create a ResourceQuota of another name with the same spec"]
        {
            assert!(why.contains(says), "{why}");
        }
        assert!(!why.contains("give it another name"), "{why}");
        quota.labels_mut().insert(LABEL_TREE.to_owned(), "team".to_owned());
        assert_eq!(takes_its_name(&quota, "shop"), None);
    }
}
