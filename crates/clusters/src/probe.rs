//! By which two questions a credential is tried out: one right that it is to have, and one that it is not to have.

use coppice_clusters_api::{Issuer, Rights, Rule};
use serde_json::{Value, json};

/// A request that the target is asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The verb.
    pub verb: String,
    /// The API group.
    pub group: String,
    /// The resource, with a subresource after `/`.
    pub resource: String,
    /// The namespace; empty for the whole cluster.
    pub namespace: String,
    /// The object's name; empty for any.
    pub name: String,
}

impl Probe {
    /// A verb, a group and a resource in the whole cluster.
    fn of((verb, group, resource): (&str, &str, &str)) -> Self {
        Self {
            verb: verb.to_owned(),
            group: group.to_owned(),
            resource: resource.to_owned(),
            namespace: String::new(),
            name: String::new(),
        }
    }

    /// The body of a `SelfSubjectAccessReview`.
    pub fn review(&self) -> Value {
        let (resource, subresource) = self.resource.split_once('/').unwrap_or((&self.resource, ""));
        json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {
                "verb": self.verb, "group": self.group, "resource": resource, "subresource": subresource,
                "namespace": self.namespace, "name": self.name
            }}
        })
    }
}

impl std::fmt::Display for Probe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [verb, group, resource, namespace, name] =
            [&self.verb, &self.group, &self.resource, &self.namespace, &self.name].map(|word| shown(word));
        let dot = if group.is_empty() { "" } else { "." };
        let space = if name.is_empty() { "" } else { " " };
        write!(f, "{verb} {resource}{dot}{group}{space}{name}")?;
        if namespace.is_empty() { Ok(()) } else { write!(f, " in namespace {namespace}") }
    }
}

/// A word as it is shown. The rules of a role of the target are the target's: what does not look like a word of theirs, and may be
/// a credential, is not repeated.
fn shown(word: &str) -> &str {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-./*:_".contains(&byte);
    if word.len() <= 63 && word.bytes().all(is_plain) { word } else { "…" }
}

/// The namespace that rights are for; empty for the whole cluster.
pub fn namespace_of(rights: &Rights) -> &str {
    match (&rights.role, &rights.bind) {
        (Some(role), _) => &role.namespace,
        (None, Some(bind)) => bind.namespaces.first().map_or("", String::as_str),
        (None, None) => "",
    }
}

/// What a credential is tried out by: what the target is asked, and what it is to answer.
pub fn questions(issuer: Issuer, rights: &Rights, rules: &[Rule]) -> Vec<(Probe, bool)> {
    match issuer {
        Issuer::TokenRequest | Issuer::ClientCertificate => {
            let granted = granted(rights, rules).map(|probe| (probe, true));
            granted.into_iter().chain(refused(rights, rules).map(|probe| (probe, false))).collect()
        }
        Issuer::GardenerAdmin => vec![(Probe::of(CANDIDATES[0]), true)],
        Issuer::GardenerViewer => {
            let never = CANDIDATES[..2].iter().map(|candidate| (Probe::of(*candidate), false));
            std::iter::once((Probe::of(("list", "", "namespaces")), true)).chain(never).collect()
        }
    }
}

/// A right that a credential with these rules is to have; none if they permit nothing that can be asked about.
pub fn granted(rights: &Rights, rules: &[Rule]) -> Option<Probe> {
    let first = |words: &[String]| words.first().cloned();
    rules.iter().find_map(|rule| {
        Some(Probe {
            verb: first(&rule.verbs)?,
            group: first(&rule.api_groups)?,
            resource: first(&rule.resources)?,
            namespace: namespace_of(rights).to_owned(),
            name: first(&rule.resource_names).unwrap_or_default(),
        })
    })
}

/// What few credentials are to have, in the whole cluster: the most dangerous first.
const CANDIDATES: [(&str, &str, &str); 7] = [
    ("create", "rbac.authorization.k8s.io", "clusterrolebindings"),
    ("get", "", "secrets"),
    ("impersonate", "", "users"),
    ("delete", "", "namespaces"),
    ("create", "apps", "deployments"),
    ("update", "", "nodes"),
    ("list", "", "configmaps"),
];

/// A right that a credential with these rules is not to have; none if they permit too much to tell.
pub fn refused(rights: &Rights, rules: &[Rule]) -> Option<Probe> {
    // Rules in a namespace permit nothing in the whole cluster.
    let rules = if namespace_of(rights).is_empty() { rules } else { &[] };
    let candidate = CANDIDATES.iter().find(|candidate| !rules.iter().any(|rule| permits(rule, candidate)));
    candidate.map(|candidate| Probe::of(*candidate))
}

fn permits(rule: &Rule, &(verb, group, resource): &(&str, &str, &str)) -> bool {
    let has = |words: &[String], word: &str| words.iter().any(|w| w == "*" || w == word);
    rule.resource_names.is_empty()
        && has(&rule.verbs, verb)
        && has(&rule.api_groups, group)
        && has(&rule.resources, resource)
}

#[cfg(test)]
mod tests {
    use coppice_clusters_api::{ClusterRights, RoleRights};

    use super::*;

    fn rule(groups: &[&str], resources: &[&str], verbs: &[&str], names: &[&str]) -> Rule {
        let all = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
        Rule {
            api_groups: all(groups),
            resources: all(resources),
            verbs: all(verbs),
            resource_names: all(names),
        }
    }

    fn cluster(rules: &[Rule]) -> Rights {
        Rights { cluster_role: Some(ClusterRights { rules: rules.to_vec() }), ..Rights::default() }
    }

    #[test]
    fn one_right_is_asked_for_with_its_name_and_subresource() {
        let rules = [rule(&["apps"], &["deployments/scale"], &["patch", "get"], &["web"])];
        let rights = Rights {
            role: Some(RoleRights { namespace: "shop".to_owned(), rules: rules.to_vec() }),
            ..Rights::default()
        };
        let probe = granted(&rights, &rules).unwrap();
        assert_eq!(probe.to_string(), "patch deployments/scale.apps web in namespace shop");
        let attributes = &probe.review()["spec"]["resourceAttributes"];
        assert_eq!(
            (&attributes["resource"], &attributes["subresource"]),
            (&json!("deployments"), &json!("scale"))
        );
        assert_eq!(granted(&rights, &[]), None);
    }

    #[test]
    fn who_has_rights_of_gardener_is_asked_for_those() {
        let asked = |issuer| -> Vec<(String, bool)> {
            let questions = questions(issuer, &Rights::default(), &[]);
            questions.into_iter().map(|(probe, expected)| (probe.to_string(), expected)).collect()
        };
        let bind = "create clusterrolebindings.rbac.authorization.k8s.io".to_owned();
        assert_eq!(asked(Issuer::GardenerAdmin), [(bind.clone(), true)]);
        let viewer = [("list namespaces".to_owned(), true), (bind, false), ("get secrets".to_owned(), false)];
        assert_eq!(asked(Issuer::GardenerViewer), viewer);
        let rules = [rule(&[""], &["pods"], &["get"], &[])];
        let asked = questions(Issuer::TokenRequest, &cluster(&rules), &rules);
        assert_eq!(asked.iter().map(|(_, expected)| *expected).collect::<Vec<_>>(), [true, false]);
    }

    #[test]
    fn nothing_that_may_be_a_credential_is_shown() {
        let token = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIi";
        let rules = [rule(&[""], &["pods"], &["get"], &[token])];
        assert_eq!(granted(&cluster(&rules), &rules).unwrap().to_string(), "get pods …");
        let long = "a".repeat(64);
        let rules = [rule(&[""], &[&long], &["get"], &[])];
        assert_eq!(granted(&cluster(&rules), &rules).unwrap().to_string(), "get …");
    }

    #[test]
    fn what_is_to_be_refused_is_never_what_the_rules_permit() {
        let ask = |rules: &[Rule]| refused(&cluster(rules), rules).map(|probe| probe.to_string());
        let first = "create clusterrolebindings.rbac.authorization.k8s.io";
        assert_eq!(ask(&[rule(&[""], &["pods"], &["get"], &[])]).as_deref(), Some(first));
        assert_eq!(ask(&[rule(&["*"], &["*"], &["create"], &[])]).as_deref(), Some("get secrets"));
        assert_eq!(ask(&[rule(&["*"], &["*"], &["*"], &["one"])]).as_deref(), Some(first));
        assert_eq!(ask(&[rule(&["*"], &["*"], &["*"], &[])]), None);
        // Everything in one namespace is nothing in the whole cluster.
        let everything = vec![rule(&["*"], &["*"], &["*"], &[])];
        let rights = Rights {
            role: Some(RoleRights { namespace: "shop".to_owned(), rules: everything.clone() }),
            ..Rights::default()
        };
        assert_eq!(refused(&rights, &everything).unwrap().to_string(), first);
    }
}
