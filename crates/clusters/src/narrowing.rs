//! Whether other rights only take away from those that a target has.

use coppice_clusters_api::{Rights, Rule};

use crate::largest::uncovered;

/// Whether rights add nothing to those that a target may have, and take some of them away.
pub fn narrows(rights: &Rights, before: &[&Rights]) -> bool {
    before.iter().any(|before| covers(before, rights)) && before.iter().any(|before| !covers(rights, before))
}

/// Whether rights permit all that others do. What a role of the target permits is not known: it covers itself alone.
fn covers(larger: &Rights, rights: &Rights) -> bool {
    let everywhere = |rules: &[Rule]| larger.cluster_role.as_ref().is_some_and(|of| permit(&of.rules, rules));
    let role = rights.role.as_ref().is_none_or(|role| {
        let within = larger.role.as_ref().filter(|of| of.namespace == role.namespace);
        within.is_some_and(|of| permit(&of.rules, &role.rules)) || everywhere(&role.rules)
    });
    let cluster_role = rights.cluster_role.as_ref().is_none_or(|of| everywhere(&of.rules));
    let bind = rights.bind.as_ref().is_none_or(|bind| {
        let of_same =
            larger.bind.as_ref().filter(|of| of.role == bind.role && of.cluster_role == bind.cluster_role);
        of_same.is_some_and(|of| bind.namespaces.iter().all(|namespace| of.namespaces.contains(namespace)))
    });
    role && cluster_role && bind
}

/// Whether rules permit all that others do: each by one of them alone, since of many rules together only some are looked at, or by all.
fn permit(larger: &[Rule], rules: &[Rule]) -> bool {
    let is_permitted = |rule: &Rule| {
        let by_one = larger.iter().any(|of| uncovered(rule, std::slice::from_ref(of)).is_none());
        by_one || uncovered(rule, larger).is_none()
    };
    rules.iter().all(is_permitted)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn rights(of: &Value) -> Rights {
        serde_json::from_value(of.clone()).unwrap()
    }

    fn bind(role: &str, namespaces: &[&str]) -> Rights {
        rights(&json!({"bind": {"clusterRole": role, "namespaces": namespaces}}))
    }

    fn rules(namespace: &str, verbs: &[&str]) -> Rights {
        let rule = json!({"apiGroups": [""], "resources": ["pods"], "verbs": verbs});
        rights(&json!({"role": {"namespace": namespace, "rules": [rule]}}))
    }

    #[test]
    fn what_only_takes_away_narrows() {
        let both = bind("view", &["shop", "test"]);
        assert!(narrows(&bind("view", &["shop"]), &[&both]));
        assert!(narrows(&rules("shop", &["get"]), &[&rules("shop", &["get", "list"])]));
        let rule = json!({"apiGroups": [""], "resources": ["*"], "verbs": ["get"]});
        let everywhere = rights(&json!({"clusterRole": {"rules": [rule]}}));
        assert!(narrows(&rules("shop", &["get"]), &[&everywhere]));
        // One of more rules than the largest rights may have.
        let many = |n: u32| -> Rights {
            let rule =
                |n| json!({"apiGroups": [""], "resources": [format!("r{n}")], "verbs": ["get", "list"]});
            rights(&json!({"role": {"namespace": "shop", "rules": (0..n).map(rule).collect::<Vec<_>>()}}))
        };
        assert!(narrows(&many(15), &[&many(16)]) && !narrows(&many(16), &[&many(16)]));
        // What was begun and not applied to the end may be there.
        let (before, wider) = (bind("view", &["shop"]), both);
        assert!(narrows(&before, &[&before, &wider]) && !narrows(&before, &[&before]));
    }

    #[test]
    fn what_adds_something_or_changes_nothing_does_not() {
        let before = bind("view", &["shop"]);
        assert!(!narrows(&before, &[&before]));
        assert!(!narrows(&bind("view", &["test"]), &[&before]));
        assert!(!narrows(&bind("edit", &["shop"]), &[&before]));
        assert!(!narrows(&rules("shop", &["get"]), &[&before]));
        assert!(!narrows(&rules("test", &["get"]), &[&rules("shop", &["get", "list"])]));
        // The same in another order.
        assert!(!narrows(&rules("shop", &["list", "get"]), &[&rules("shop", &["get", "list"])]));
    }
}
