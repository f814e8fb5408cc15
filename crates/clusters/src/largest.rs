//! Whether the largest rights cover those that a `ClusterAccess` asks for.
//!
//! Rules cover others as in RBAC: what a rule permits is all combinations of its verbs, groups, resources and names, and one of the
//! covering rules alone has to permit each. A `*` is covered by a `*` only.

use coppice_clusters_api::largest_rights::{EVERYWHERE, LargestRights, MAX_RULES};
use coppice_clusters_api::names::TARGET_NAMESPACE;
use coppice_clusters_api::{Bind, Rights, Rule};

use crate::probe::Probe;

/// What of these rights the largest ones do not cover, and what to write instead; none if they cover all of them.
pub fn exceeded(rights: &Rights, largest: &LargestRights) -> Option<String> {
    let role = rights.role.as_ref().and_then(|role| {
        let place = ("spec.rights.role.namespace", role.namespace.as_str());
        outside(place, largest).or_else(|| beyond("spec.rights.role.rules", &role.rules, largest))
    });
    let cluster_role = || {
        let role = rights.cluster_role.as_ref()?;
        if !is_everywhere(largest) {
            let namespaces = largest.namespaces.join(", ");
            return Some(format!(
                "spec.rights.clusterRole: write role instead, for one of the namespaces: {namespaces}"
            ));
        }
        beyond("spec.rights.clusterRole.rules", &role.rules, largest)
    };
    let bind = || rights.bind.as_ref().and_then(|bind| not_bound(bind, largest));
    role.or_else(cluster_role).or_else(bind)
}

fn is_everywhere(largest: &LargestRights) -> bool {
    largest.namespaces.iter().any(|namespace| namespace == EVERYWHERE)
}

/// Why nothing may be asked for in a namespace.
fn outside((field, namespace): (&str, &str), largest: &LargestRights) -> Option<String> {
    if largest.namespaces.iter().any(|allowed| allowed == namespace) {
        return None;
    }
    if !is_everywhere(largest) {
        return Some(format!("{field}: write one of: {}", largest.namespaces.join(", ")));
    }
    // With a ClusterRole such as edit in this one somebody would have the tokens of all others, and perhaps that of the kubeconfig itself.
    (namespace == TARGET_NAMESPACE).then(|| {
        format!(
            "{field}: write another namespace than {TARGET_NAMESPACE}, which has the accounts of every ClusterAccess and is allowed only by its name"
        )
    })
}

/// Why a role may not be bound.
fn not_bound(bind: &Bind, largest: &LargestRights) -> Option<String> {
    let allowed = |field: &str, role: Option<&String>, allowed: &[String]| {
        let is_allowed = role.is_none_or(|role| allowed.contains(role));
        (!is_allowed).then(|| match allowed {
            [] => format!("spec.rights.bind.{field}: nothing of that kind may be bound"),
            allowed => format!("spec.rights.bind.{field}: write one of: {}", allowed.join(", ")),
        })
    };
    let place = |namespace: &String| outside(("spec.rights.bind.namespaces", namespace.as_str()), largest);
    allowed("clusterRole", bind.cluster_role.as_ref(), &largest.cluster_roles)
        .or_else(|| allowed("role", bind.role.as_ref(), &largest.roles))
        .or_else(|| bind.namespaces.iter().find_map(place))
}

fn beyond(field: &str, rules: &[Rule], largest: &LargestRights) -> Option<String> {
    let probe = rules.iter().find_map(|rule| uncovered(rule, &largest.rules))?;
    Some(format!("{field}: leave out what is not allowed: {probe}"))
}

/// Something that a rule permits and none of the larger ones does; none if they cover it. Of these more than [`MAX_RULES`] are not
/// looked at.
pub fn uncovered(rule: &Rule, larger: &[Rule]) -> Option<Probe> {
    let every = [String::new()];
    // Without names a rule is about all objects, also those that have no name yet.
    let names: &[String] = if rule.resource_names.is_empty() { &every } else { &rule.resource_names };
    let verbs = covering(&rule.verbs, larger, |larger, verb| has(&larger.verbs, verb));
    let groups = covering(&rule.api_groups, larger, |larger, group| has(&larger.api_groups, group));
    let resources = covering(&rule.resources, larger, has_resource);
    let names = covering(names, larger, |larger, name| {
        larger.resource_names.is_empty()
            || (!name.is_empty() && larger.resource_names.iter().any(|n| n == name))
    });
    for (of_verb, verb) in &verbs {
        for (of_group, group) in &groups {
            for (of_resource, resource) in &resources {
                for (of_name, name) in &names {
                    if of_verb & of_group & of_resource & of_name == 0 {
                        return Some(Probe {
                            verb: (*verb).to_owned(),
                            group: (*group).to_owned(),
                            resource: (*resource).to_owned(),
                            namespace: String::new(),
                            name: (*name).to_owned(),
                        });
                    }
                }
            }
        }
    }
    None
}

/// For words of a rule: which of the larger rules have them, a bit for each. Words that the same have are looked at once, since a rule may
/// have a million combinations.
fn covering<'a>(
    words: &'a [String],
    larger: &[Rule],
    has: impl Fn(&Rule, &str) -> bool,
) -> Vec<(u32, &'a str)> {
    let mut all: Vec<(u32, &str)> = Vec::new();
    for word in words {
        let bits = larger.iter().take(MAX_RULES).enumerate();
        let mask = bits.filter(|(_, rule)| has(rule, word)).fold(0_u32, |mask, (n, _)| mask | (1_u32 << n));
        if all.iter().all(|(known, _)| *known != mask) {
            all.push((mask, word.as_str()));
        }
    }
    all
}

fn has(words: &[String], word: &str) -> bool {
    words.iter().any(|w| w == "*" || w == word)
}

/// `*/scale` is that subresource of every resource.
fn has_resource(rule: &Rule, resource: &str) -> bool {
    let of_every = resource.split_once('/').map(|(_, subresource)| subresource);
    let is_of_every = |w: &String| of_every.is_some() && w.strip_prefix("*/") == of_every;
    has(&rule.resources, resource) || rule.resources.iter().any(is_of_every)
}

#[cfg(test)]
#[path = "largest_tests.rs"]
mod tests;
