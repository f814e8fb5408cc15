//! Files that the processes read: users, kubeconfigs, the node.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use crate::error::Result;
use crate::pki;

/// The user of the product under test; it may do only what the shipped RBAC grants.
pub const OPERATOR: &str = "system:serviceaccount:coppice-system:coppice";
/// A member of `system:masters`, who may do everything.
pub const ADMIN: &str = "admin";
/// A user with no rights, for a first tenant.
pub const ALICE: &str = "alice";
/// A user with no rights, for a second tenant.
pub const BOB: &str = "bob";
/// A user with no rights, for one who only looks.
pub const VIEWER: &str = "viewer";
/// The name of the fake node.
pub const NODE: &str = "fake";

pub(crate) const CONTROLLER_MANAGER: &str = "system:kube-controller-manager";
pub(crate) const SCHEDULER: &str = "system:kube-scheduler";
pub(crate) const KWOK: &str = "system:kwok";
const MASTERS: &str = "system:masters";

/// A user whom the API server knows by a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The name, as RBAC subjects have it.
    pub name: String,
    /// The groups, as RBAC subjects have them; `system:authenticated` comes by itself.
    pub groups: Vec<String>,
}

impl User {
    /// A user in `groups`.
    pub fn new(name: impl Into<String>, groups: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { name: name.into(), groups: groups.into_iter().map(Into::into).collect() }
    }
}

/// A user with the token made for this plane.
pub(crate) struct Account {
    pub(crate) user: User,
    pub(crate) token: String,
}

/// The accounts of a plane: its own processes, the fixed users, and those that the caller declares.
pub(crate) fn accounts(declared: &[User]) -> Result<Vec<Account>> {
    let nobody = [""; 0];
    let fixed = [
        User::new(ADMIN, [MASTERS]),
        User::new(KWOK, [MASTERS]),
        User::new(CONTROLLER_MANAGER, nobody),
        User::new(SCHEDULER, nobody),
        User::new(OPERATOR, ["system:serviceaccounts", "system:serviceaccounts:coppice-system"]),
        User::new(ALICE, nobody),
        User::new(BOB, nobody),
        User::new(VIEWER, nobody),
    ];
    let users = fixed.into_iter().chain(declared.iter().cloned());
    users.map(|user| Ok(Account { user, token: pki::token()? })).collect()
}

/// The API server's token file: `token,user,uid,"group,group"`.
pub(crate) fn token_file(accounts: &[Account]) -> String {
    let line = |account: &Account| {
        let User { name, groups } = &account.user;
        format!("{},\"{name}\",\"{name}\",\"{}\"\n", account.token, groups.join(","))
    };
    accounts.iter().map(line).collect()
}

pub(crate) fn kubeconfig(server: &str, ca_pem: &str, account: &Account) -> String {
    let (name, token, ca) = (&account.user.name, &account.token, STANDARD.encode(ca_pem));
    format!(
        r#"apiVersion: v1
kind: Config
current-context: plane
clusters:
- name: plane
  cluster:
    server: {server}
    certificate-authority-data: {ca}
users:
- name: "{name}"
  user:
    token: "{token}"
contexts:
- name: plane
  context:
    cluster: plane
    user: "{name}"
"#
    )
}

/// The fake node: big enough for whatever is scheduled.
pub(crate) fn node() -> Value {
    let resources = json!({"cpu": "10k", "memory": "100Ti", "ephemeral-storage": "100Ti", "pods": "1M"});
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": NODE,
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {"kubernetes.io/hostname": NODE, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"},
        },
        "status": {"capacity": resources, "allocatable": resources},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_one_quoted_field() {
        let account = Account { user: User::new("a:b", ["x", "y"]), token: "t".to_owned() };
        assert_eq!(token_file(&[account]), "t,\"a:b\",\"a:b\",\"x,y\"\n");
    }
}
