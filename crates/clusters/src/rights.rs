//! As which objects the rights of a credential are written into its target.

use std::collections::BTreeSet;

use coppice_api::names::FIELD_MANAGER;
use coppice_clusters_api::names::{
    LABEL_ACCESS, LABEL_INSTALLATION, TARGET_NAMESPACE, account, bound_secret, signing_request,
};
use coppice_clusters_api::{Issuer, Rights, Rule};
use serde_json::{Value, json};

const RBAC: &str = "rbac.authorization.k8s.io";

/// A kind of the target that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TargetKind {
    /// A Secret that a token is bound to.
    Secret,
    /// A `CertificateSigningRequest` that a certificate is issued from.
    SigningRequest,
    /// A RoleBinding.
    RoleBinding,
    /// A `ClusterRoleBinding`.
    ClusterRoleBinding,
    /// A Role.
    Role,
    /// A ClusterRole.
    ClusterRole,
    /// The service account whose tokens the credentials are, if they are tokens.
    ServiceAccount,
}

impl TargetKind {
    /// What gives a credential its rights, in the order in which it is removed: what gives rights first.
    pub const OF_RIGHTS: [Self; 5] =
        [Self::RoleBinding, Self::ClusterRoleBinding, Self::Role, Self::ClusterRole, Self::ServiceAccount];

    /// The path of its objects, in one namespace or (empty) in all.
    pub fn collection(self, namespace: &str) -> String {
        let (group, resource) = match self {
            Self::Secret => ("/api/v1", "secrets"),
            Self::SigningRequest => ("/apis/certificates.k8s.io/v1", "certificatesigningrequests"),
            Self::ServiceAccount => ("/api/v1", "serviceaccounts"),
            Self::RoleBinding => ("/apis/rbac.authorization.k8s.io/v1", "rolebindings"),
            Self::ClusterRoleBinding => ("/apis/rbac.authorization.k8s.io/v1", "clusterrolebindings"),
            Self::Role => ("/apis/rbac.authorization.k8s.io/v1", "roles"),
            Self::ClusterRole => ("/apis/rbac.authorization.k8s.io/v1", "clusterroles"),
        };
        let within = if namespace.is_empty() { String::new() } else { format!("/namespaces/{namespace}") };
        format!("{group}{within}/{resource}")
    }

    const fn type_meta(self) -> (&'static str, &'static str) {
        match self {
            Self::Secret => ("v1", "Secret"),
            Self::SigningRequest => ("certificates.k8s.io/v1", "CertificateSigningRequest"),
            Self::ServiceAccount => ("v1", "ServiceAccount"),
            Self::RoleBinding => ("rbac.authorization.k8s.io/v1", "RoleBinding"),
            Self::ClusterRoleBinding => ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
            Self::Role => ("rbac.authorization.k8s.io/v1", "Role"),
            Self::ClusterRole => ("rbac.authorization.k8s.io/v1", "ClusterRole"),
        }
    }
}

/// An object as it is to be in the target.
#[derive(Clone, Debug, PartialEq)]
pub struct TargetObject {
    /// Its kind.
    pub kind: TargetKind,
    /// Its namespace; empty where the kind has none.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// All of it.
    pub body: Value,
}

/// Who a `ClusterAccess` is: where it is, its uid, who issues its credentials, and in which installation.
#[derive(Clone, Copy, Debug)]
pub struct Owner<'a> {
    /// Its namespace.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its uid.
    pub uid: &'a str,
    /// Who issues its credentials.
    pub issuer: Issuer,
    /// The [id](LABEL_INSTALLATION) of the installation that has it; empty: none is written.
    pub installation: &'a str,
}

impl Owner<'_> {
    /// The selector of everything that is written for it.
    pub fn selector(&self) -> String {
        format!("{LABEL_ACCESS}={}", self.uid)
    }

    /// The user that the target's API server sees; empty where Gardener chooses it, and nothing is written for it.
    pub fn identity(&self) -> String {
        self.issuer.identity(self.uid).unwrap_or_default()
    }

    /// What its credentials are issued from, one object for each; none where Gardener issues them.
    pub const fn issued_from(&self) -> Option<TargetKind> {
        match self.issuer {
            Issuer::TokenRequest => Some(TargetKind::Secret),
            Issuer::ClientCertificate => Some(TargetKind::SigningRequest),
            Issuer::GardenerAdmin | Issuer::GardenerViewer => None,
        }
    }

    /// Whether it may have objects of this kind in its target: the user of the kubeconfig needs no rights about others.
    pub fn may_have(&self, kind: TargetKind) -> bool {
        match kind {
            TargetKind::Secret | TargetKind::ServiceAccount => self.issuer == Issuer::TokenRequest,
            TargetKind::SigningRequest => self.issuer == Issuer::ClientCertificate,
            TargetKind::RoleBinding
            | TargetKind::ClusterRoleBinding
            | TargetKind::Role
            | TargetKind::ClusterRole => !self.issuer.is_of_garden(),
        }
    }

    /// Without these objects no credential has any right: the service account of tokens, the bindings of certificates, also those within
    /// namespaces that rights were in before. By their names they are found whatever labels they have.
    pub fn essentials(&self, rights: &Rights, within: Option<&[String]>) -> Vec<TargetObject> {
        let is_essential = |kind: TargetKind| match self.issuer {
            Issuer::TokenRequest => kind == TargetKind::ServiceAccount,
            Issuer::ClientCertificate => {
                matches!(kind, TargetKind::RoleBinding | TargetKind::ClusterRoleBinding)
            }
            Issuer::GardenerAdmin | Issuer::GardenerViewer => false,
        };
        let objects = self.rights(rights).into_iter();
        let mut essentials: Vec<TargetObject> = objects.filter(|object| is_essential(object.kind)).collect();
        if is_essential(TargetKind::RoleBinding) {
            let (name, now) = (account(self.uid), namespaces(rights));
            let before = within.unwrap_or_default().iter().filter(|namespace| !now.contains(*namespace));
            essentials
                .extend(before.map(|namespace| {
                    self.binding(TargetKind::RoleBinding, namespace, "Role", name.as_str())
                }));
        }
        essentials
    }

    /// Whether an object that a target has is this access's: it has our label with exactly this uid, and the name that we give. Others
    /// may put that label on theirs, so that somebody else's `ClusterAccess` removes what they may not remove.
    pub fn is_ours(&self, kind: TargetKind, found: &Value) -> bool {
        let metadata = &found["metadata"];
        let name = metadata["name"].as_str().unwrap_or_default();
        let of_credential = |prefix: String| {
            let number = name.strip_prefix(&prefix).and_then(|rest| rest.strip_prefix('-'));
            number.is_some_and(|number| number.parse::<u64>().is_ok())
        };
        let is_named = match kind {
            TargetKind::Secret => of_credential(bound_secret(self.uid)),
            TargetKind::SigningRequest => of_credential(signing_request(self.uid)),
            _ => name == account(self.uid),
        };
        is_named && metadata["labels"][LABEL_ACCESS] == self.uid
    }

    pub(crate) fn object(
        &self,
        kind: TargetKind,
        namespace: &str,
        name: &str,
        fields: Value,
    ) -> TargetObject {
        let (api_version, kind_name) = kind.type_meta();
        let mut body = json!({
            "apiVersion": api_version, "kind": kind_name,
            "metadata": {
                "name": name,
                "labels": {LABEL_ACCESS: self.uid, "app.kubernetes.io/managed-by": FIELD_MANAGER},
                "annotations": {"coppice.dev/cluster-access": format!("{}/{}", self.namespace, self.name)},
            }
        });
        if !self.installation.is_empty() {
            body["metadata"]["labels"][LABEL_INSTALLATION] = json!(self.installation);
        }
        if !namespace.is_empty() {
            body["metadata"]["namespace"] = json!(namespace);
        }
        if let (Some(body), Value::Object(fields)) = (body.as_object_mut(), fields) {
            body.extend(fields);
        }
        TargetObject { kind, namespace: namespace.to_owned(), name: name.to_owned(), body }
    }

    /// The Secret that a token is bound to.
    pub fn bound_secret(&self, credential: &str) -> TargetObject {
        self.object(
            TargetKind::Secret,
            TARGET_NAMESPACE,
            &bound_secret(credential),
            json!({"type": "coppice.dev/bound-token"}),
        )
    }

    /// What the target has to have for these rights, in the order in which it is applied: the bindings last.
    pub fn rights(&self, rights: &Rights) -> Vec<TargetObject> {
        let name = account(self.uid);
        let mut objects = Vec::new();
        if self.issuer.is_of_garden() {
            return objects;
        }
        if self.may_have(TargetKind::ServiceAccount) {
            let fields = json!({"automountServiceAccountToken": false});
            objects.push(self.object(TargetKind::ServiceAccount, TARGET_NAMESPACE, &name, fields));
        }
        let role = |kind, namespace: &str, rules: &[Rule]| {
            self.object(kind, namespace, &name, json!({"rules": rules}))
        };
        if let Some(of) = &rights.role {
            objects.push(role(TargetKind::Role, &of.namespace, &of.rules));
            objects.push(self.binding(TargetKind::RoleBinding, &of.namespace, "Role", &name));
        }
        if let Some(of) = &rights.cluster_role {
            objects.push(role(TargetKind::ClusterRole, "", &of.rules));
            objects.push(self.binding(TargetKind::ClusterRoleBinding, "", "ClusterRole", &name));
        }
        if let Some(of) = &rights.bind {
            let (kind, bound) = match (&of.role, &of.cluster_role) {
                (Some(role), _) => ("Role", role),
                (None, Some(role)) => ("ClusterRole", role),
                (None, None) => return objects,
            };
            let bindings = of.namespaces.iter();
            objects.extend(
                bindings.map(|namespace| self.binding(TargetKind::RoleBinding, namespace, kind, bound)),
            );
        }
        objects
    }

    fn binding(&self, kind: TargetKind, namespace: &str, role: &str, bound: &str) -> TargetObject {
        let name = account(self.uid);
        let subject = match self.issuer {
            Issuer::TokenRequest => {
                json!({"kind": "ServiceAccount", "name": name, "namespace": TARGET_NAMESPACE})
            }
            _ => json!({"kind": "User", "name": self.identity(), "apiGroup": RBAC}),
        };
        let fields = json!({
            "roleRef": {"apiGroup": RBAC, "kind": role, "name": bound},
            "subjects": [subject]
        });
        self.object(kind, namespace, &name, fields)
    }
}

/// The uid of the `ClusterAccess` that an installation has made an object of a target for; none if others did, or an earlier version,
/// which did not write down which installation it was.
pub fn owner_uid<'a>(installation: &str, kind: TargetKind, found: &'a Value) -> Option<&'a str> {
    let labels = &found["metadata"]["labels"];
    let uid = labels[LABEL_ACCESS].as_str()?;
    if installation.is_empty() || uid.is_empty() || labels[LABEL_INSTALLATION] != installation {
        return None;
    }
    let owner = Owner { namespace: "", name: "", uid, issuer: Issuer::TokenRequest, installation };
    owner.is_ours(kind, found).then_some(uid)
}

/// The namespaces of a target that these rights are in.
pub(crate) fn namespaces(rights: &Rights) -> BTreeSet<String> {
    let of_role = rights.role.iter().map(|role| &role.namespace);
    let bound = rights.bind.iter().flat_map(|bind| &bind.namespaces);
    of_role.chain(bound).cloned().collect()
}

/// Whether an object of ours that the target has can stay: it is among those that it is to have, with the same role, which cannot be
/// changed.
pub fn is_wanted(kind: TargetKind, found: &Value, wanted: &[TargetObject]) -> bool {
    let of = |field: &str| found["metadata"][field].as_str().unwrap_or_default();
    wanted.iter().any(|object| {
        object.kind == kind
            && object.name == of("name")
            && object.namespace == of("namespace")
            && (found["roleRef"] == object.body["roleRef"])
    })
}

#[cfg(test)]
mod tests {
    use coppice_clusters_api::{Bind, ClusterRights, RoleRights};

    use super::*;

    const OWNER: Owner<'_> =
        Owner { namespace: "team", name: "ci", uid: "1-2", issuer: Issuer::TokenRequest, installation: "i" };
    const OF_CERTIFICATES: Owner<'_> = Owner { issuer: Issuer::ClientCertificate, ..OWNER };

    fn pods() -> Vec<Rule> {
        let words = |word: &str| vec![word.to_owned()];
        vec![Rule {
            api_groups: words(""),
            resources: words("pods"),
            verbs: words("get"),
            resource_names: Vec::new(),
        }]
    }

    fn names(rights: &Rights) -> Vec<String> {
        let objects = OWNER.rights(rights);
        objects.iter().map(|o| format!("{}/{}", o.kind.collection(&o.namespace), o.name)).collect()
    }

    #[test]
    fn each_right_is_a_role_and_a_binding_to_one_account() {
        let account = "/api/v1/namespaces/coppice-access/serviceaccounts/coppice-1-2";
        let role = Rights {
            role: Some(RoleRights { namespace: "shop".to_owned(), rules: pods() }),
            ..Rights::default()
        };
        let rbac = "/apis/rbac.authorization.k8s.io/v1";
        let expected = [
            account.to_owned(),
            format!("{rbac}/namespaces/shop/roles/coppice-1-2"),
            format!("{rbac}/namespaces/shop/rolebindings/coppice-1-2"),
        ];
        assert_eq!(names(&role), expected);
        let rules = &OWNER.rights(&role)[1].body["rules"];
        assert_eq!(*rules, json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]));
        let cluster = Rights { cluster_role: Some(ClusterRights { rules: pods() }), ..Rights::default() };
        let expected = [
            account.to_owned(),
            format!("{rbac}/clusterroles/coppice-1-2"),
            format!("{rbac}/clusterrolebindings/coppice-1-2"),
        ];
        assert_eq!(names(&cluster), expected);
        let bind = Rights {
            bind: Some(Bind {
                cluster_role: Some("view".to_owned()),
                namespaces: vec!["a".to_owned(), "b".to_owned()],
                ..Bind::default()
            }),
            ..Rights::default()
        };
        let expected = [
            account.to_owned(),
            format!("{rbac}/namespaces/a/rolebindings/coppice-1-2"),
            format!("{rbac}/namespaces/b/rolebindings/coppice-1-2"),
        ];
        assert_eq!(names(&bind), expected);
        for object in OWNER.rights(&bind) {
            assert_eq!(object.body["metadata"]["labels"]["coppice.dev/access"], "1-2");
        }
    }

    #[test]
    fn certificates_have_no_account_and_their_bindings_name_the_user() {
        let rights = Rights {
            role: Some(RoleRights { namespace: "shop".to_owned(), rules: pods() }),
            ..Rights::default()
        };
        let objects = OF_CERTIFICATES.rights(&rights);
        let kinds: Vec<TargetKind> = objects.iter().map(|object| object.kind).collect();
        assert_eq!(kinds, [TargetKind::Role, TargetKind::RoleBinding]);
        let subject = &objects[1].body["subjects"][0];
        assert_eq!((&subject["kind"], &subject["name"]), (&json!("User"), &json!("coppice-access:1-2")));
        assert!(subject["namespace"].is_null(), "a user has none: {subject}");
        let names = |objects: &[TargetObject]| -> Vec<(TargetKind, String)> {
            objects.iter().map(|object| (object.kind, object.name.clone())).collect()
        };
        let account = "coppice-1-2".to_owned();
        let within = ["shop".to_owned(), "before".to_owned()];
        let binding = (TargetKind::RoleBinding, account.clone());
        assert_eq!(names(&OF_CERTIFICATES.essentials(&rights, None)), std::slice::from_ref(&binding));
        let essentials = OF_CERTIFICATES.essentials(&rights, Some(&within[..]));
        assert_eq!(names(&essentials), [binding.clone(), binding]);
        assert_eq!([&*essentials[0].namespace, &*essentials[1].namespace], ["shop", "before"]);
        assert_eq!(
            names(&OWNER.essentials(&rights, Some(&within[..]))),
            [(TargetKind::ServiceAccount, account)]
        );
        // Nothing is asked of the target about kinds that it does not have.
        assert!(!OF_CERTIFICATES.may_have(TargetKind::ServiceAccount));
        assert!(!OF_CERTIFICATES.may_have(TargetKind::Secret));
        assert!(!OWNER.may_have(TargetKind::SigningRequest));
    }

    #[test]
    fn what_others_label_and_what_is_of_another_access_is_not_ours() {
        let found =
            |name: &str, uid: &str| json!({"metadata": {"name": name, "labels": {LABEL_ACCESS: uid}}});
        let ours = |kind, name: &str, uid: &str| OWNER.is_ours(kind, &found(name, uid));
        assert!(ours(TargetKind::RoleBinding, "coppice-1-2", "1-2"));
        assert!(ours(TargetKind::Secret, "coppice-1-2-17", "1-2"));
        assert!(ours(TargetKind::SigningRequest, "coppice-1-2-17", "1-2"));
        assert!(!ours(TargetKind::SigningRequest, "csr-of-a-node", "1-2"));
        // Labeled as ours by somebody who may not delete it themselves.
        assert!(!ours(TargetKind::ClusterRoleBinding, "cluster-admin", "1-2"));
        assert!(!ours(TargetKind::Secret, "database", "1-2"));
        assert!(!ours(TargetKind::Secret, "coppice-1-2-x", "1-2"));
        // Of an access whose uid begins as ours does, and of another one in our name.
        assert!(!ours(TargetKind::Secret, "coppice-1-2-3-4", "1-2-3"));
        assert!(!ours(TargetKind::RoleBinding, "coppice-1-2", "1-2-3"));
        assert!(!OWNER.is_ours(TargetKind::RoleBinding, &json!({"metadata": {"name": "coppice-1-2"}})));
    }

    #[test]
    fn what_an_installation_has_made_is_known_by_its_id_and_its_name() {
        let account = OWNER.rights(&Rights::default()).remove(0).body;
        assert_eq!(owner_uid("i", TargetKind::ServiceAccount, &account), Some("1-2"));
        let bound = OWNER.bound_secret("1-2-3").body;
        assert_eq!(owner_uid("i", TargetKind::Secret, &bound), Some("1-2"));
        // Of another installation, of a version without ids, and named by others.
        assert_eq!(owner_uid("other", TargetKind::ServiceAccount, &account), None);
        let before = Owner { installation: "", ..OWNER }.rights(&Rights::default()).remove(0).body;
        assert_eq!(owner_uid("i", TargetKind::ServiceAccount, &before), None);
        assert_eq!(owner_uid("", TargetKind::ServiceAccount, &before), None);
        let labels = json!({LABEL_ACCESS: "1-2", LABEL_INSTALLATION: "i"});
        let by_others = json!({"metadata": {"name": "cluster-admin", "labels": labels}});
        assert_eq!(owner_uid("i", TargetKind::ClusterRoleBinding, &by_others), None);
    }

    #[test]
    fn a_binding_to_another_role_or_elsewhere_has_to_go() {
        let bind = |role: &str, namespace: &str| {
            let bind = Bind {
                cluster_role: Some(role.to_owned()),
                namespaces: vec![namespace.to_owned()],
                ..Bind::default()
            };
            OWNER.rights(&Rights { bind: Some(bind), ..Rights::default() })
        };
        let found = &bind("view", "a")[1].body;
        let wanted = |all: &[TargetObject]| is_wanted(TargetKind::RoleBinding, found, all);
        assert!(wanted(&bind("view", "a")));
        assert!(!wanted(&bind("edit", "a")));
        assert!(!wanted(&bind("view", "b")));
        assert!(!wanted(&[]));
    }
}
