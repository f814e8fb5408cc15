//! What a credential permits, and what was asked for: each right by itself, so that both can be compared.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::recorded_state::{RecordedState, account_of, user_of};
use super::{Requests, is_late};

/// Namespace (empty for all), verb, group, resource, and name (empty for any).
type Right = [String; 5];

/// What is permitted now beyond what may be, of each `ClusterAccess` that is there, in words. `last`: no more may be than its spec asks
/// for; else also what it asked for since the generation that status says is applied.
pub(super) fn beyond(state: &RecordedState<'_>, requests: &Requests, last: bool) -> Vec<String> {
    let mut found = Vec::new();
    for (uid, access) in &state.accesses {
        let generation = access["metadata"]["generation"].as_i64().unwrap_or(1);
        let applied = access["status"]["observedGeneration"].as_i64().unwrap_or(1);
        let from = if last { generation } else { applied };
        let none = BTreeMap::new();
        let asked = state.asked.get(uid).unwrap_or(&none);
        let may: BTreeSet<Right> = asked.range(from..).flat_map(|(_, rights)| of_spec(rights)).collect();
        for right in permitted(state, uid, requests) {
            if !may.contains(&right) {
                let [namespace, verb, group, resource, name] = right;
                found.push(format!("{verb} {resource}.{group} {name} in {namespace:?} is permitted"));
            }
        }
    }
    found
}

/// What a spec asks for.
fn of_spec(rights: &Value) -> BTreeSet<Right> {
    let (role, cluster_role) = (&rights["role"], &rights["clusterRole"]);
    let mut all = each(role["namespace"].as_str().unwrap_or_default(), &role["rules"]);
    all.extend(each("", &cluster_role["rules"]));
    all
}

/// What the target permits the account of a `ClusterAccess`, and the user of its certificates.
fn permitted(state: &RecordedState<'_>, uid: &str, requests: &Requests) -> BTreeSet<Right> {
    let (account, user, mut all) = (account_of(uid), user_of(uid), BTreeSet::new());
    for ((plural, namespace, _), change) in &state.target {
        let Some(binding) = change.after.as_deref() else { continue };
        let is_subject = |subject: &Value| {
            let is_account = subject["kind"] == "ServiceAccount"
                && subject["name"] == account.as_str()
                && subject["namespace"] == "coppice-access";
            is_account || subject["kind"] == "User" && subject["name"] == user.as_str()
        };
        let mut subjects = binding["subjects"].as_array().into_iter().flatten();
        if !["rolebindings", "clusterrolebindings"].contains(plural)
            || !subjects.any(is_subject)
            || is_late(requests, change)
        {
            continue;
        }
        let name = binding["roleRef"]["name"].as_str().unwrap_or_default();
        let role = match binding["roleRef"]["kind"].as_str() {
            Some("Role") => state.target.get(&("roles", *namespace, name)),
            _ => state.target.get(&("clusterroles", "", name)),
        };
        if let Some(role) = role.filter(|role| !is_late(requests, role))
            && let Some(object) = role.after.as_deref()
        {
            all.extend(each(namespace, &object["rules"]));
        }
    }
    all
}

/// Each right of rules.
fn each(namespace: &str, rules: &Value) -> BTreeSet<Right> {
    let words = |rule: &Value, field: &str| -> Vec<String> {
        let words = rule[field].as_array().into_iter().flatten();
        words.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let mut all = BTreeSet::new();
    for rule in rules.as_array().into_iter().flatten() {
        let mut names = words(rule, "resourceNames");
        if names.is_empty() {
            names.push(String::new());
        }
        for verb in words(rule, "verbs") {
            for group in words(rule, "apiGroups") {
                for resource in words(rule, "resources") {
                    all.extend(names.iter().map(|name| {
                        [namespace.to_owned(), verb.clone(), group.clone(), resource.clone(), name.clone()]
                    }));
                }
            }
        }
    }
    all
}
