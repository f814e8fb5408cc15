use coppice_clusters_api::{ClusterRights, RoleRights};
use proptest::prelude::*;
use proptest::sample::subsequence;

use super::*;

fn words(all: &[&str]) -> Vec<String> {
    all.iter().map(|&word| word.to_owned()).collect()
}

fn rule(groups: &[&str], resources: &[&str], verbs: &[&str], names: &[&str]) -> Rule {
    Rule {
        api_groups: words(groups),
        resources: words(resources),
        verbs: words(verbs),
        resource_names: words(names),
    }
}

/// What is asked of an API server.
#[derive(Clone, Copy, Debug)]
struct Request<'a> {
    verb: &'a str,
    group: &'a str,
    resource: &'a str,
    name: &'a str,
}

/// The rules of RBAC for one request, as they are written in Kubernetes' documentation.
fn permits(rules: &[Rule], request: Request<'_>) -> bool {
    let is = |words: &[String], word: &str| words.iter().any(|w| w == "*" || w == word);
    let subresource = request.resource.split_once('/').map_or("", |(_, subresource)| subresource);
    rules.iter().any(|rule| {
        let of_every = || !subresource.is_empty() && rule.resources.contains(&format!("*/{subresource}"));
        let named = rule.resource_names.is_empty() || rule.resource_names.iter().any(|n| n == request.name);
        is(&rule.verbs, request.verb)
            && is(&rule.api_groups, request.group)
            && (is(&rule.resources, request.resource) || of_every())
            && named
    })
}

const VERBS: [&str; 3] = ["get", "list", "*"];
const GROUPS: [&str; 3] = ["", "apps", "*"];
const RESOURCES: [&str; 6] = ["pods", "pods/log", "nodes", "*/log", "*/scale", "*"];
const NAMES: [&str; 2] = ["a", "b"];

/// Every request that these words tell apart: each of them, and one that no rule names.
fn requests() -> Vec<Request<'static>> {
    let mut all = Vec::new();
    for verb in ["get", "list", "other"] {
        for group in ["", "apps", "other"] {
            for resource in ["pods", "pods/log", "nodes", "other/log", "other/scale", "other", "other/other"]
            {
                all.extend(["", "a", "b", "other"].map(|name| Request { verb, group, resource, name }));
            }
        }
    }
    all
}

fn rules() -> impl Strategy<Value = Vec<Rule>> {
    let one = (
        subsequence(VERBS.to_vec(), 1..=2),
        subsequence(GROUPS.to_vec(), 1..=2),
        subsequence(RESOURCES.to_vec(), 1..=3),
        subsequence(NAMES.to_vec(), 0..=2),
    );
    let one = one.prop_map(|(verbs, groups, resources, names)| rule(&groups, &resources, &verbs, &names));
    prop::collection::vec(one, 0..4)
}

proptest! {
    #[test]
    fn rules_are_covered_if_and_only_if_all_that_they_permit_is_permitted(asked in rules(), larger in rules()) {
        let covered = asked.iter().all(|rule| uncovered(rule, &larger).is_none());
        let more = requests().into_iter().find(|&of| permits(&asked, of) && !permits(&larger, of));
        prop_assert_eq!(covered, more.is_none(), "{:?}", more);
    }
}

#[test]
fn what_is_not_covered_is_said() {
    let larger =
        [rule(&[""], &["pods", "*/log"], &["get", "list"], &[]), rule(&["apps"], &["*"], &["*"], &["web"])];
    let says = |rule: &Rule| uncovered(rule, &larger).map(|probe| probe.to_string());
    assert_eq!(says(&rule(&[""], &["pods", "nodes/log"], &["list"], &["a"])), None);
    assert_eq!(says(&rule(&["apps"], &["deployments/scale"], &["patch", "*"], &["web"])), None);
    let secrets = rule(&[""], &["pods", "secrets"], &["get"], &[]);
    assert_eq!(says(&secrets).as_deref(), Some("get secrets"));
    // Each combination counts, and by one of the rules alone.
    let both = rule(&["", "apps"], &["pods"], &["get"], &["web"]);
    assert_eq!(says(&both), None);
    let all = rule(&["apps"], &["deployments"], &["get"], &[]);
    assert_eq!(says(&all).as_deref(), Some("get deployments.apps"));
    assert_eq!(says(&rule(&[""], &["pods"], &["*"], &[])).as_deref(), Some("* pods"));
}

#[test]
fn a_rule_of_a_million_combinations_is_judged_at_once() {
    let many = |prefix: &str| -> Vec<String> { (0..32).map(|n| format!("{prefix}{n}")).collect() };
    let huge =
        Rule { api_groups: many("g"), resources: many("r"), verbs: many("v"), resource_names: many("n") };
    let larger = vec![huge.clone(); MAX_RULES];
    assert_eq!(uncovered(&huge, &larger), None);
    let none = uncovered(&huge, &[]);
    assert_eq!(none.map(|probe| probe.to_string()).as_deref(), Some("v0 r0.g0 n0"));
}

#[test]
fn rights_are_covered_in_the_namespaces_and_with_the_roles_that_are_allowed() {
    let pods = vec![rule(&[""], &["pods"], &["get"], &[])];
    let largest = LargestRights {
        namespaces: words(&["shop", "web"]),
        rules: pods.clone(),
        cluster_roles: words(&["view", "edit"]),
        roles: Vec::new(),
    };
    let role = |namespace: &str, rules: &[Rule]| Rights {
        role: Some(RoleRights { namespace: namespace.to_owned(), rules: rules.to_vec() }),
        ..Rights::default()
    };
    let cluster = Rights { cluster_role: Some(ClusterRights { rules: pods.clone() }), ..Rights::default() };
    let bind = |role: Option<&str>, cluster_role: Option<&str>, namespaces: &[&str]| Rights {
        bind: Some(Bind {
            role: role.map(str::to_owned),
            cluster_role: cluster_role.map(str::to_owned),
            namespaces: words(namespaces),
        }),
        ..Rights::default()
    };
    let secrets = [rule(&[""], &["secrets"], &["get"], &[])];
    let anywhere = LargestRights { namespaces: words(&["*"]), ..largest.clone() };
    for (rights, largest, says) in [
        (role("shop", &pods), &largest, None),
        (role("kube-system", &pods), &largest, Some("role.namespace: write one of: shop, web")),
        (role("kube-system", &pods), &anywhere, None),
        (role("shop", &secrets), &largest, Some("role.rules: leave out what is not allowed: get secrets")),
        (cluster.clone(), &largest, Some("clusterRole: write role instead")),
        (cluster, &anywhere, None),
        (bind(None, Some("view"), &["shop", "web"]), &largest, None),
        (
            bind(None, Some("view"), &["shop", "other"]),
            &largest,
            Some("bind.namespaces: write one of: shop, web"),
        ),
        (bind(None, Some("admin"), &["shop"]), &largest, Some("bind.clusterRole: write one of: view, edit")),
        (bind(Some("view"), None, &["shop"]), &largest, Some("bind.role: nothing of that kind")),
    ] {
        let found = exceeded(&rights, largest);
        match says {
            None => assert_eq!(found, None, "{rights:?}"),
            Some(says) => assert!(found.as_ref().is_some_and(|found| found.contains(says)), "{found:?}"),
        }
    }
    // The schema refuses both at once; nothing is permitted by that.
    let both = Rights { bind: bind(None, Some("admin"), &["shop"]).bind, ..role("shop", &pods) };
    assert!(exceeded(&both, &largest).is_some());
}

#[test]
fn everywhere_is_not_where_the_accounts_of_all_accesses_are() {
    let bind = |namespace: &str| Rights {
        bind: Some(Bind {
            cluster_role: Some("edit".to_owned()),
            namespaces: words(&[namespace]),
            ..Bind::default()
        }),
        ..Rights::default()
    };
    let of = |namespaces: &[&str]| LargestRights {
        namespaces: words(namespaces),
        cluster_roles: words(&["edit"]),
        rules: vec![rule(&["*"], &["*"], &["*"], &[])],
        ..LargestRights::default()
    };
    assert_eq!(exceeded(&bind("shop"), &of(&["*"])), None);
    let says = exceeded(&bind("coppice-access"), &of(&["*"])).unwrap();
    assert!(says.contains("write another namespace than coppice-access"), "{says}");
    let role = Rights {
        role: Some(RoleRights {
            namespace: "coppice-access".to_owned(),
            rules: vec![rule(&[""], &["secrets"], &["get"], &[])],
        }),
        ..Rights::default()
    };
    assert!(exceeded(&role, &of(&["*"])).is_some());
    for rights in [role, bind("coppice-access")] {
        assert_eq!(exceeded(&rights, &of(&["*", "coppice-access"])), None, "whoever names it means it");
    }
}
