use super::*;

/// A request: user, verb, `GROUP/RESOURCE[/SUBRESOURCE]`, namespace, name.
type Request<'a> = (&'a str, &'a str, &'a str, &'a str, &'a str);

/// The level that an API server takes: that of the first rule that fits.
fn level(rules: &Value, (user, verb, of, namespace, name): Request<'_>) -> String {
    let (group, resource) = of.split_once('/').unwrap();
    let has = |list: &Value, word: &str| list.as_array().is_none_or(|all| all.iter().any(|one| one == word));
    let fits_resource = |one: &Value| {
        one["group"] == group && has(&one["resources"], resource) && has(&one["resourceNames"], name)
    };
    let fits = |rule: &&Value| {
        has(&rule["users"], user)
            && has(&rule["verbs"], verb)
            && has(&rule["namespaces"], namespace)
            && rule["resources"].as_array().is_none_or(|all| all.iter().any(fits_resource))
    };
    let rule = rules.as_array().unwrap().iter().find(fits);
    rule.map_or("(theirs)", |rule| rule["level"].as_str().unwrap()).to_owned()
}

fn policy(secrets_in: &[&str], bodies: bool, rules_only: bool) -> Value {
    let installation = Installation::new("coppice-system", "coppice-access-system");
    let secrets_in: Vec<String> = secrets_in.iter().map(|&name| name.to_owned()).collect();
    let options = PolicyOptions { installation: &installation, secrets_in: &secrets_in, bodies, rules_only };
    serde_yaml::from_str(&text(&options).unwrap()).unwrap()
}

const ISSUER: &str = "system:serviceaccount:coppice-access-system:coppice-access";

#[test]
fn edits_and_credentials_are_logged_by_name_and_nothing_else_is() {
    let policy = policy(&[], false, false);
    assert_eq!((&policy["apiVersion"], &policy["kind"]), (&json!("audit.k8s.io/v1"), &json!("Policy")));
    for (request, expected) in [
        (("alice", "get", "/secrets", "team", "any"), "Metadata"),
        (("alice", "list", "/secrets", "", ""), "Metadata"),
        ((ISSUER, "update", "/secrets", "team", "ci"), "Metadata"),
        (("alice", "patch", "coppice.dev/clusteraccesses", "team", "ci"), "Metadata"),
        ((ISSUER, "update", "coppice.dev/clusteraccesses/status", "team", "ci"), "Metadata"),
        ((ISSUER, "watch", "coppice.dev/clusteraccesses", "", ""), "None"),
        ((ISSUER, "update", "coordination.k8s.io/leases", "coppice-access-system", "coppice-access"), "None"),
        (
            ("alice", "update", "coordination.k8s.io/leases", "coppice-access-system", "coppice-access"),
            "Metadata",
        ),
        (("alice", "get", "coppice.dev/clusteraccesses", "team", "ci"), "None"),
        (("alice", "create", "/serviceaccounts/token", "coppice-access", "coppice-1"), "Metadata"),
        (("alice", "create", "/serviceaccounts/token", "team", "default"), "None"),
        (("alice", "get", "/pods/exec", "coppice-access-system", "a"), "Metadata"),
        (("alice", "get", "/pods", "coppice-access-system", "a"), "None"),
        (("alice", "patch", "apps/deployments", "coppice-system", "coppice"), "Metadata"),
        (("alice", "create", "rbac.authorization.k8s.io/rolebindings", "team", ""), "Metadata"),
        (("alice", "delete", "/namespaces", "coppice-system", "coppice-system"), "Metadata"),
        (("alice", "delete", "/namespaces", "team", "team"), "None"),
        (("alice", "patch", "/resourcequotas", "team", "coppice"), "Metadata"),
        (("alice", "patch", "/resourcequotas", "team", "other"), "None"),
        (("alice", "patch", "apps/deployments", "team", "web"), "None"),
    ] {
        assert_eq!(level(&policy["rules"], request), expected, "{request:?}");
    }
}

#[test]
fn bodies_are_those_of_our_kinds_by_others_and_never_those_of_secrets() {
    let policy = policy(&["team"], true, false);
    for (request, expected) in [
        (("alice", "patch", "coppice.dev/clusteraccesses", "team", "ci"), "Request"),
        ((ISSUER, "update", "coppice.dev/clusteraccesses/status", "team", "ci"), "Metadata"),
        (("alice", "get", "/secrets", "team", "any"), "Metadata"),
        (("alice", "get", "/secrets", "coppice-access-system", "shop"), "Metadata"),
        // In all namespaces at once.
        (("alice", "list", "/secrets", "", ""), "Metadata"),
        (("alice", "get", "/secrets", "other", "any"), "None"),
    ] {
        assert_eq!(level(&policy["rules"], request), expected, "{request:?}");
    }
    for rule in policy["rules"].as_array().unwrap() {
        let about_kinds = rule["resources"] == json!([{"group": "coppice.dev"}]);
        assert!(about_kinds || rule["level"] == "Metadata" || rule["level"] == "None", "{rule:#}");
    }
}

#[test]
fn rules_alone_leave_everything_else_to_the_policy_that_they_are_written_into() {
    let rules = policy(&[], false, true);
    assert_eq!(level(&rules, ("alice", "get", "/pods", "team", "a")), "(theirs)");
    assert_eq!(level(&rules, ("alice", "get", "/secrets", "team", "a")), "Metadata");
    assert!(rules.as_array().unwrap().iter().all(|rule| rule["omitStages"] == json!(["RequestReceived"])));
}
