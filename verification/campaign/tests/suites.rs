//! The suites are what their files say: names, digests, the webhook that is installed, and trees against a model of sums.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use coppice_campaign::digest::Digest;
use coppice_campaign::suite::ALL;
use coppice_campaign::suite::trees::{CONFIGURATION, against_sums};
use serde::Deserialize as _;
use serde_json::{Value, json};

/// So many seeds are compared with the model of sums.
const SEEDS: u64 = 10;

#[test]
fn differences_name_the_seeds() {
    let one = |trace, effects| Digest { trace, effects };
    let mut digests = vec![one(1, 1); 25];
    let before = Digest::table(&digests);
    assert_eq!(before.lines().count(), 3);
    assert!(Digest::differences(&before, &before).is_empty());
    digests[3] = one(2, 1);
    digests[12] = one(2, 2);
    digests[24] = one(1, 2);
    assert_eq!(
        Digest::differences(&before, &Digest::table(&digests)),
        [
            "other traces, same effects, of seeds 0 to 9",
            "other effects of seeds 12",
            "other effects of seeds 24"
        ]
    );
    assert_eq!(Digest::differences(&before, &Digest::table(&digests[..10])).len(), 2);
}

#[test]
fn names_are_unique_and_digests_are_in_the_folder_of_their_suite() {
    let mut names = BTreeSet::new();
    for suite in ALL {
        assert!(names.insert(suite.name), "two suites are called {}", suite.name);
        let generated = suite.generated.iter().map(|generated| (generated.of_seed)(0));
        for scenario in suite.all_scenarios().into_iter().chain(generated) {
            assert!(names.insert(scenario.name), "two scenarios are called {}", scenario.name);
        }
        assert_eq!(suite.digests, format!("src/suite/{}/digests.txt", suite.name));
        assert!(Path::new(suite.digests).is_file(), "there is no file {}", suite.digests);
    }
}

#[test]
fn the_webhook_is_asked_what_the_installed_one_is_asked() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/trees.yaml");
    let manifests = std::fs::read_to_string(path).unwrap();
    let objects = serde_yaml::Deserializer::from_str(&manifests);
    let mut objects = objects.map(|object| Value::deserialize(object).unwrap());
    let installed = objects.find(|object| object["kind"] == "ValidatingWebhookConfiguration").unwrap();
    let webhook = &installed["webhooks"][0];
    let rules: Vec<Value> = CONFIGURATION
        .rules
        .iter()
        .map(|rule| {
            let operations: Vec<&str> = rule.operations.iter().map(|one| one.as_str()).collect();
            json!({
                "apiGroups": [rule.group], "apiVersions": ["v1alpha1"], "operations": operations,
                "resources": [rule.resource], "scope": "Namespaced"
            })
        })
        .collect();
    assert_eq!(webhook["rules"], json!(rules));
    assert_eq!(webhook["name"], CONFIGURATION.name);
    assert_eq!(webhook["timeoutSeconds"], CONFIGURATION.timeout.as_secs());
    assert_eq!(webhook["failurePolicy"], "Ignore");
}

#[test]
fn after_each_of_many_operations_everybody_has_what_sums_say() {
    let mut outcomes = BTreeMap::new();
    for seed in 0..SEEDS {
        let of_seed = against_sums(seed).unwrap();
        assert_eq!(of_seed.differences, [""; 0], "seed {seed}");
        for (outcome, times) in of_seed.outcomes {
            *outcomes.entry(outcome).or_default() += times;
        }
    }
    let both = ["create", "change", "transfer"].into_iter().flat_map(|what| [(what, true), (what, false)]);
    let granted = ["delete", "delete a parent", "change the total"].into_iter().map(|what| (what, true));
    for outcome in both.chain(granted) {
        assert!(outcomes.get(&outcome).is_some_and(|times: &u32| *times > 1), "{outcome:?}: {outcomes:?}");
    }
}
