//! `import kim`: objects of Kyma Infrastructure Manager as ours.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::support::{Ran, fixture, run};
use serde_json::{Value, json};

fn import(text: &str) -> Ran {
    run("coppice import kim -", text)
}

/// The documents of a text.
fn documents(text: &str) -> Vec<Value> {
    let parts = text.split("---\n").filter(|part| part.lines().any(|line| line.starts_with("apiVersion")));
    parts.map(|part| serde_yaml::from_str(part).unwrap()).collect()
}

/// The warnings about what has this in its name.
fn warnings<'a>(ran: &'a Ran, about: &str) -> Vec<&'a str> {
    ran.err.lines().filter(|line| line.starts_with("warning: ") && line.contains(about)).collect()
}

/// One warning, which says this.
fn warns(ran: &Ran, about: &str, says: &str) {
    let found = warnings(ran, about);
    assert!(found.iter().any(|line| line.contains(says)), "{about}: {says}: {found:#?}");
}

#[test]
fn each_gardener_cluster_becomes_an_access_with_the_secret_that_others_read() {
    let ran = import(&fixture("kim/kcp.yaml"));
    assert_eq!(ran.code, 3, "{}", ran.err);
    assert_eq!(documents(&ran.out), documents(&fixture("kim/expected.yaml")), "{}", ran.all());
    assert!(!ran.all().contains("SECRET-VALUE"), "no credential is shown: {}", ran.all());
    let quiet = run("coppice import kim -q -", &fixture("kim/kcp.yaml"));
    assert!(quiet.err.lines().all(|line| line.starts_with("warning: ")) && quiet.code == 3, "{}", quiet.err);
}

#[test]
fn what_is_not_taken_over_is_said_with_the_reason() {
    let ran = import(&fixture("kim/kcp.yaml"));
    for (about, says) in [
        ("kcp-system/33333333-cccc", "nothing is written for it: spec.shoot.name: required"),
        (
            "kcp-system/11111111-aaaa",
            "get onto the Secret, so that no other tool takes it for its own; left out: example.org/team",
        ),
        ("kcp-system/11111111-aaaa", "label kyma-project.io/subaccount-id: its Secret has \"sub-1\""),
        ("kcp-system/11111111-aaaa", "also has notes, which the first write takes away"),
        ("kcp-system/55555555-eeee", "writes the Secret kubeconfig-old, which it finds by its label"),
        ("Kyma kcp-system/99999999-9999", "has no GardenerCluster here"),
        (
            "Secret kcp-system/kubeconfig-77777777-0000",
            "was written for GardenerCluster 77777777-0000, which is not here",
        ),
        ("3 Secrets", "Apply this, stop Infrastructure Manager, and import again"),
    ] {
        warns(&ran, about, says);
    }
    // Nothing is left to do about these.
    for (about, says) in [
        ("kcp-system/66666666-ffff", "it is being deleted, and nothing is written for it"),
        ("kcp-system/22222222-bbbb", "the first one of the ClusterAccess is another one in any case"),
        ("kcp-system/22222222-bbbb", "has no kubeconfig at present"),
        ("left out, since", "1 ConfigMap"),
    ] {
        let mut notes = ran.err.lines().filter(|line| line.starts_with("note: ") && line.contains(about));
        assert!(notes.any(|line| line.contains(says)), "{about}: {says}: {}", ran.err);
        assert_eq!(warnings(&ran, about), [""; 0], "{about}");
    }
    assert_eq!(warnings(&ran, "kcp-system/44444444-dddd"), [""; 0]);
}

#[test]
fn the_comment_has_the_provider_that_lets_the_accesses_begin() {
    let shoot = "---\napiVersion: core.gardener.cloud/v1beta1\nkind: Shoot\nmetadata: {name: c-11, namespace: garden-kyma}\n";
    let line = "coppice import kim --provider landscape --ttl 12h --rotate-at 50 -";
    let ran = run(line, &format!("{}{shoot}", fixture("kim/kcp.yaml")));
    let head: Vec<&str> = ran.out.lines().filter_map(|line| line.strip_prefix("#   ")).collect();
    let head = head.join("\n");
    let provider: Value = serde_yaml::from_str(&head).unwrap();
    let spec = json!({
        "project": "kyma",
        "credential": {"secret": "gardener-credentials"},
        "allow": [{"namespaces": ["kcp-system"], "issuers": ["GardenerAdmin"]}],
    });
    assert_eq!((&provider["metadata"]["name"], &provider["spec"]), (&json!("landscape"), &spec));
    for access in documents(&ran.out) {
        let spec = &access["spec"];
        assert_eq!(spec["cluster"]["gardener"]["provider"], "landscape");
        assert_eq!((&spec["ttl"], &spec["rotateAt"]), (&json!("12h"), &json!(50)));
    }
    warns(&ran, "kcp-system/22222222-bbbb", "the dump has Shoots, and not c-22");
    // All of it is as our API has it.
    let plan = run("coppice plan -A -f -", &format!("{}---\n{head}\n", ran.out));
    assert!(plan.code != 1 && !plan.err.contains("ClusterAccess"), "{}", plan.all());
}

#[test]
fn a_second_run_leaves_what_is_there_and_says_its_next_step() {
    let first = import(&fixture("kim/kcp.yaml"));
    let mut accesses = documents(&first.out);
    for access in &mut accesses {
        let uid = format!("uid-of-{}", access["spec"]["output"]["secret"].as_str().unwrap());
        access["metadata"]["uid"] = json!(uid);
    }
    let again = |accesses: &[Value], dump: &str| {
        let accesses = json!({"apiVersion": "v1", "kind": "List", "items": accesses});
        import(&format!("{dump}\n---\n{accesses}\n"))
    };
    let dump = fixture("kim/kcp.yaml");
    let second = again(&accesses, &dump);
    assert_eq!((documents(&second.out), second.code), (vec![], 3), "{}", second.all());
    let hand_over = "kubectl label secret kubeconfig-11111111-aaaa -n kcp-system coppice.dev/access=uid-of-kubeconfig-11111111-aaaa";
    warns(&second, "kcp-system/11111111-aaaa", hand_over);
    let begin = "kubectl patch clusteraccess 44444444-dddd -n kcp-system --type=merge -p '{\"spec\":{\"suspend\":false}}'";
    warns(&second, "kcp-system/44444444-dddd", begin);
    warns(
        &second,
        "kcp-system/44444444-dddd",
        "if there is no Secret kubeconfig-44444444-dddd, which the dump",
    );

    // The Secret was handed over, and another one by mistake.
    let label = "      operator.kyma-project.io/cluster-name: ";
    let handed = dump
        .replace(
            &format!("{label}11111111-aaaa\n"),
            &format!("{label}11111111-aaaa\n      coppice.dev/access: uid-of-kubeconfig-11111111-aaaa\n"),
        )
        .replace(
            &format!("{label}55555555-eeee\n"),
            &format!("{label}55555555-eeee\n      coppice.dev/access: uid-of-another\n"),
        );
    accesses[2]["spec"]["suspend"] = json!(false);
    let third = again(&accesses, &handed);
    warns(&third, "kcp-system/11111111-aaaa", "may begin: kubectl patch clusteraccess 11111111-aaaa");
    warns(&third, "kcp-system/55555555-eeee", "is not its uid");
    assert_eq!(warnings(&third, "kcp-system/44444444-dddd"), [""; 0], "{}", third.err);

    // What is missing is written.
    let one = again(&accesses[1..], &dump);
    let names: Vec<Value> =
        documents(&one.out).iter().map(|access| access["metadata"]["name"].clone()).collect();
    assert_eq!(names, ["11111111-aaaa"]);
    // Where all of them have begun, nothing is left to do for them.
    let all: Vec<Value> = accesses
        .iter()
        .cloned()
        .map(|mut access| {
            access["spec"]["suspend"] = json!(false);
            access
        })
        .collect();
    let own = "apiVersion: infrastructuremanager.kyma-project.io/v1\nkind: GardenerCluster\n\
               metadata: {name: 44444444-dddd, namespace: kcp-system}\nspec:\n  shoot: {name: c-44}\n  \
               kubeconfig: {secret: {name: kubeconfig-44444444-dddd, namespace: kcp-system, key: config}}\n";
    let done = again(&all, own);
    assert_eq!((done.code, documents(&done.out)), (0, vec![]), "{}", done.all());
}

#[test]
fn a_kyma_without_a_gardener_cluster_becomes_an_access_by_its_labels_or_its_runtime() {
    let kyma = |labels: &str| {
        format!(
            "---\napiVersion: operator.kyma-project.io/v1beta2\nkind: Kyma\nmetadata: {{name: k, namespace: kcp-system, labels: {{{labels}}}}}\n"
        )
    };
    let id = "kyma-project.io/runtime-id: 88888888-8888";
    let runtime = "---\napiVersion: infrastructuremanager.kyma-project.io/v1\nkind: Runtime\n\
                   metadata: {name: 88888888-8888, namespace: kcp-system}\nspec: {shoot: {name: c-88}}\n";
    let by_label = kyma(&format!("{id}, kyma-project.io/shoot-name: c-88"));
    for dump in [by_label.clone(), format!("{}{runtime}", kyma(id))] {
        let ran = import(&dump);
        let found = documents(&ran.out);
        assert_eq!((ran.code, found.len()), (3, 1), "{}", ran.all());
        let (metadata, spec) = (&found[0]["metadata"], &found[0]["spec"]);
        assert_eq!(metadata["name"], "88888888-8888");
        assert_eq!(metadata["namespace"], "kcp-system");
        assert_eq!(metadata["labels"]["kyma-project.io/runtime-id"], "88888888-8888");
        assert_eq!(spec["cluster"]["gardener"]["shoot"], "c-88");
        assert_eq!(spec["output"], json!({"secret": "kubeconfig-88888888-8888", "format": "Kyma"}));
        assert_eq!(spec["suspend"], true);
        warns(&ran, "Kyma kcp-system/88888888-8888", "it has no GardenerCluster");
    }
    let own = "---\napiVersion: infrastructuremanager.kyma-project.io/v1\nkind: GardenerCluster\n\
               metadata: {name: 88888888-8888, namespace: kcp-system}\nspec:\n  shoot: {name: c-88}\n  \
               kubeconfig: {secret: {name: own, namespace: kcp-system, key: config}}\n";
    let ran = import(&format!("{by_label}{own}"));
    let found = documents(&ran.out);
    assert_eq!((found.len(), &found[0]["spec"]["output"]["secret"]), (1, &json!("own")), "{}", ran.all());
}

#[test]
fn one_secret_has_one_access() {
    let cluster = |name: &str, namespace: &str, secret: &str| {
        format!(
            "---\napiVersion: infrastructuremanager.kyma-project.io/v1\nkind: GardenerCluster\nmetadata: {{name: {name}, namespace: {namespace}}}\n\
             spec: {{shoot: {{name: {name}}}, kubeconfig: {{secret: {{name: {secret}, namespace: kcp-system, key: config}}}}}}\n"
        )
    };
    let ran =
        import(&[cluster("a", "x", "s"), cluster("b", "kcp-system", "s"), cluster("a", "y", "t")].concat());
    assert_eq!((ran.code, documents(&ran.out).len()), (3, 1), "{}", ran.all());
    warns(&ran, "kcp-system/b", "another GardenerCluster has the Secret s");
    warns(&ran, "y/a", "another GardenerCluster of this name has its Secret in namespace kcp-system, too");
    assert!(ran.err.contains("it is in namespace x, and its Secret in kcp-system"), "{}", ran.err);
}

#[test]
fn what_is_not_known_is_an_error_and_nothing_is_written() {
    let other = "apiVersion: infrastructuremanager.kyma-project.io/v2\nkind: GardenerCluster\n";
    for (text, says) in [
        (other, "infrastructuremanager.kyma-project.io/v2 GardenerCluster is not known"),
        ("kind: GardenerCluster\n", "apiVersion or kind is missing"),
        ("apiVersion: v1\nkind: List\nitems: []\n", "there is no GardenerCluster and no Runtime"),
    ] {
        let ran = import(text);
        assert!(ran.code == 1 && ran.out.is_empty() && ran.err.contains(says), "{}", ran.all());
    }
    for wrong in ["--rotate-at 95", "--provider A_B"] {
        let usage = run(&format!("coppice import kim {wrong} -"), "");
        assert_eq!(usage.code, 2, "{}", usage.all());
    }
}

#[test]
fn a_runtime_becomes_a_managed_cluster_with_what_its_shoot_has() {
    let dump = fixture("kim/runtime.yaml");
    let without = import(&dump);
    assert_eq!((without.code, &*without.out), (0, ""), "{}", without.all());
    assert!(without.err.contains("2 Runtimes are read and not written"), "{}", without.err);
    let ran = run("coppice import kim --managed-clusters -", &dump);
    let spec = json!({
        "provider": {"gardener": {
            "clusterProvider": "gardener", "cloudProfile": "aws", "credentialsBinding": "hyperscaler-11",
            "infrastructure": "aws", "purpose": "production", "network": "cilium",
        }},
        "version": "1.32.4",
        "region": "eu-central-1",
        "networks": {"nodes": "10.250.0.0/16", "pods": "10.96.0.0/13", "services": "10.104.0.0/13"},
        "workers": [
            {
                "name": "cpu-worker-0", "machine": "m6i.large", "image": {"name": "gardenlinux", "version": "1592.1.0"},
                "volume": {"type": "gp3", "size": "80Gi"}, "min": 3, "max": 20,
                "zones": ["eu-central-1b", "eu-central-1a", "eu-central-1c"],
            },
            {
                "name": "gpu", "machine": "g6.xlarge", "image": {"name": "gardenlinux", "version": "1592.4.0"},
                "volume": {"type": "gp3", "size": "50Gi"}, "min": 0, "max": 2, "zones": ["eu-central-1b"],
                "labels": {"example.org/gpu": "true"},
                "taints": [{"key": "example.org/gpu", "value": "true", "effect": "NoSchedule"}],
            },
        ],
        "highAvailability": "Zone",
        "oidc": {
            "issuerURL": "https://login.example.org", "clientID": "kyma", "usernameClaim": "email", "usernamePrefix": "",
            "groupsClaim": "groups", "groupsPrefix": "",
        },
        "auditPolicy": "audit-policy",
    });
    let metadata = json!({
        "name": "c-11", "namespace": "kcp-system",
        "labels": {"kyma-project.io/runtime-id": "11111111-aaaa", "kyma-project.io/region": "eu-central-1"},
    });
    let expected = json!({"apiVersion": "coppice.dev/v1alpha1", "kind": "ManagedCluster", "metadata": metadata, "spec": spec});
    assert_eq!((documents(&ran.out), ran.code), (vec![expected], 3), "{}", ran.all());
    let one = "kcp-system/11111111-aaaa";
    for (about, says) in [
        (one, "its version is 1.33, and that of its Shoot is still 1.32.4"),
        (one, "pool cpu-worker-0: a ManagedCluster has no field for maxSurge"),
        (one, "oidcConfig: a ManagedCluster has no field for signingAlgs"),
        (one, "of spec.shoot.licenceType, spec.security.networking.filter stays"),
        (one, "the ClusterRoleBindings of 2 administrators stay"),
        (one, "suspend-patch-reconciliation keeps its Shoot from being changed there"),
        ("kcp-system/22222222-bbbb", "its Shoot c-22 is not in the dump"),
        ("ManagedClusters", "a Shoot is made where there is none of its name"),
    ] {
        warns(&ran, about, says);
    }
    // The second run leaves it as it is.
    let again = run(
        "coppice import kim --managed-clusters -",
        &format!("{dump}---\n{}", ran.out.trim_start_matches("---\n")),
    );
    assert!(
        again.out.is_empty() && again.err.contains("ManagedCluster kcp-system/c-11 exists and is left"),
        "{}",
        again.all()
    );
}

#[test]
fn each_demand_rule_and_weakness_has_a_row_that_says_what_shows_it() {
    let page = std::fs::read_to_string("../../docs/from-kim.md").unwrap();
    let ids = [("R-", 1..=20, 2), ("B-", 1..=23, 2), ("D-", 1..=21, 0)];
    for (prefix, numbers, width) in ids {
        for number in numbers {
            let id = format!("{prefix}{number:0width$}");
            let rows: Vec<&str> =
                page.lines().filter(|line| line.starts_with(&format!("| {id} |"))).collect();
            let [row] = &*rows else { panic!("{id}: {rows:#?}") };
            let says = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
            // A test, that there is none yet, another row, or a page.
            let shown = [".rs`", "ot yet", "As R-", "As B-", "](", "None", "`.ci/run`"];
            assert!(shown.iter().any(|word| says.contains(word)), "{id}: {says}");
        }
    }
}
