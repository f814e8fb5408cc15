//! Which rights a `ClusterAccess` has in its target, as that says.

use coppice_clusters::rights::{Owner, TargetKind};
use coppice_clusters_api::names::account;
use coppice_clusters_api::{Bind, ClusterRights, Rights, RoleRights, Rule};
use serde_json::Value;

use super::{Failure, Target, Within, described};

impl Target {
    /// Its rights within these namespaces, by its bindings.
    pub(crate) async fn rights_of(
        &self,
        owner: Owner<'_>,
        within: Within<'_>,
    ) -> Result<Vec<Rights>, Failure> {
        let (mut all, mut binds) = (Vec::new(), Vec::new());
        for kind in [TargetKind::RoleBinding, TargetKind::ClusterRoleBinding] {
            for binding in self.list_ours(kind, owner, within).await? {
                let of = |at: &str| binding.pointer(at).and_then(Value::as_str).unwrap_or_default();
                let (namespace, role) = (of("/metadata/namespace"), of("/roleRef/name"));
                let is_role = of("/roleRef/kind") == "Role";
                if kind == TargetKind::ClusterRoleBinding {
                    let rules = self.rules_now(TargetKind::ClusterRole, "", role).await?;
                    let cluster_role = Some(ClusterRights { rules });
                    all.push(Rights { cluster_role, ..Rights::default() });
                } else if is_role && role == account(owner.uid) {
                    let rules = self.rules_now(TargetKind::Role, namespace, role).await?;
                    let role = Some(RoleRights { namespace: namespace.to_owned(), rules });
                    all.push(Rights { role, ..Rights::default() });
                } else {
                    bound(&mut binds, is_role, (namespace, role));
                }
            }
        }
        all.extend(binds.into_iter().map(|bind| Rights { bind: Some(bind), ..Rights::default() }));
        Ok(all)
    }

    /// The rules of a role; none if it is not there.
    async fn rules_now(&self, kind: TargetKind, namespace: &str, name: &str) -> Result<Vec<Rule>, Failure> {
        match self.rules_of(kind, namespace, name).await {
            Ok(rules) => Ok(rules),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
            Err(error) => Err(Failure::of(&format!("show the {} {name}", described(kind)), &error)),
        }
    }
}

/// One more namespace in which a role is bound.
fn bound(binds: &mut Vec<Bind>, is_role: bool, (namespace, name): (&str, &str)) {
    let name = Some(name.to_owned());
    let (role, cluster_role) = if is_role { (name, None) } else { (None, name) };
    match binds.iter_mut().find(|bind| bind.role == role && bind.cluster_role == cluster_role) {
        Some(bind) => bind.namespaces.push(namespace.to_owned()),
        None => binds.push(Bind { role, cluster_role, namespaces: vec![namespace.to_owned()] }),
    }
}
