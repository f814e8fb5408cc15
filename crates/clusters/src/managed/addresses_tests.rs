//! The addresses of zones: the table of the behaviour that users of Kyma Infrastructure Manager have, and that nothing ever moves.

use coppice_clusters_api::FailureClass;
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn names(count: usize) -> Vec<String> {
    (1..=count).map(|number| number.to_string()).collect()
}

#[test]
fn aws_divides_the_nodes_network_as_kyma_infrastructure_manager_does() {
    // network, zone, workers, public, internal
    for (nodes, zone, workers, public, internal) in [
        ("10.250.0.0/16", 1, "10.250.0.0/19", "10.250.32.0/20", "10.250.48.0/20"),
        ("10.250.0.0/16", 2, "10.250.64.0/19", "10.250.96.0/20", "10.250.112.0/20"),
        ("10.250.0.0/16", 3, "10.250.128.0/19", "10.250.160.0/20", "10.250.176.0/20"),
        ("10.250.0.0/16", 4, "10.250.192.0/22", "10.250.196.0/22", "10.250.200.0/22"),
        ("10.250.0.0/16", 8, "10.250.240.0/22", "10.250.244.0/22", "10.250.248.0/22"),
        ("10.250.0.0/22", 1, "10.250.0.0/25", "10.250.0.128/26", "10.250.0.192/26"),
        ("10.250.0.0/22", 4, "10.250.3.0/28", "10.250.3.16/28", "10.250.3.32/28"),
        ("10.250.0.0/24", 8, "10.250.0.240/30", "10.250.0.244/30", "10.250.0.248/30"),
    ] {
        let all = extended(Infrastructure::Aws, nodes, &[], &names(8)).unwrap();
        let found = &all[zone - 1];
        let expected = ZoneAddresses {
            zone: zone.to_string(),
            workers: workers.to_owned(),
            public: Some(public.to_owned()),
            internal: Some(internal.to_owned()),
        };
        assert_eq!(*found, expected, "{nodes}");
    }
}

#[test]
fn azure_divides_it_into_eighths() {
    let all = extended(Infrastructure::Azure, "10.250.0.0/16", &[], &names(3)).unwrap();
    let workers: Vec<&str> = all.iter().map(|zone| zone.workers.as_str()).collect();
    assert_eq!(workers, ["10.250.0.0/19", "10.250.32.0/19", "10.250.64.0/19"]);
    assert!(all.iter().all(|zone| zone.public.is_none() && zone.internal.is_none()));
    assert_eq!(extended(Infrastructure::Gcp, "10.250.0.0/16", &[], &names(3)), Ok(Vec::new()));
}

#[test]
fn networks_that_cannot_be_divided_are_refused_with_what_to_write() {
    for nodes in ["10.250.0.0/15", "10.250.0.0/25", "10.250.0.1/16", "10.250.0/16", "10.250.0.0", "::/16", ""]
    {
        let failure = extended(Infrastructure::Aws, nodes, &[], &names(1)).unwrap_err();
        assert!(failure.message.contains("such as 10.250.0.0/16"), "{nodes}: {failure:?}");
    }
    for infrastructure in [Infrastructure::Aws, Infrastructure::Azure] {
        let failure = extended(infrastructure, "10.250.0.0/16", &[], &names(9)).unwrap_err();
        let says = "spec.workers[].zones: leave out 9: a network is divided among 8 zones at most";
        assert!(failure.message.starts_with(says), "{infrastructure:?}: {failure:?}");
        assert_eq!(failure.class, FailureClass::Permanent, "{infrastructure:?}");
    }
}

#[test]
fn a_shoot_with_more_zones_than_status_takes_is_refused() {
    let mut has = extended(Infrastructure::Aws, "10.250.0.0/16", &[], &names(8)).unwrap();
    assert_eq!(extended(Infrastructure::Aws, "10.250.0.0/16", &has, &names(8)), Ok(has.clone()));
    has.push(ZoneAddresses { zone: "9".to_owned(), ..has[0].clone() });
    let failure = extended(Infrastructure::Aws, "10.250.0.0/16", &has, &names(8)).unwrap_err();
    assert!(failure.message.contains("9 zones"), "{failure:?}");
    assert_eq!(failure.class, FailureClass::WaitingForInput, "the spec is not what has to be changed");
}

#[test]
fn zones_of_a_shoot_that_is_there_keep_what_they_have_and_others_get_what_is_free() {
    let networks = json!({"zones": [
        {"name": "b", "workers": "10.250.0.0/19", "public": "10.250.32.0/20", "internal": "10.250.48.0/20"},
        {"name": "c", "workers": "10.250.192.0/19"},
    ]});
    let live = json!({"spec": {"provider": {"infrastructureConfig": {"networks": networks}}}});
    let has = of_live(&live);
    let zones: Vec<String> = ["a", "b", "c", "d"].map(str::to_owned).into();
    let all = extended(Infrastructure::Aws, "10.250.0.0/16", &has, &zones).unwrap();
    let workers: Vec<(&str, &str)> =
        all.iter().map(|zone| (zone.zone.as_str(), zone.workers.as_str())).collect();
    assert_eq!(
        workers,
        [("b", "10.250.0.0/19"), ("c", "10.250.192.0/19"), ("a", "10.250.64.0/19"), ("d", "10.250.128.0/19")]
    );
    let azure = json!({"spec": {"provider": {"infrastructureConfig": {"networks": {"zones": [{"name": 2, "cidr": "10.250.0.0/19"}]}}}}});
    assert_eq!(
        (of_live(&azure)[0].zone.as_str(), of_live(&azure)[0].workers.as_str()),
        ("2", "10.250.0.0/19")
    );
    assert_eq!(of_live(&Value::Null).len(), 0);
}

/// From its first to its last address.
fn range(text: &str) -> (u64, u64) {
    let (base, bits) = text.split_once('/').unwrap();
    let base = u64::from(u32::from(base.parse::<Ipv4Addr>().unwrap()));
    let size = 1_u64 << (32 - bits.parse::<u32>().unwrap());
    assert_eq!(base % size, 0, "{text}");
    (base, base + size - 1)
}

fn ranges(all: &[ZoneAddresses]) -> Vec<(u64, u64)> {
    let texts =
        all.iter().flat_map(|zone| [Some(&zone.workers), zone.public.as_ref(), zone.internal.as_ref()]);
    texts.flatten().map(|text| range(text)).collect()
}

proptest! {
    /// Whichever zones come, in whatever order, and go again: what a zone has stays, is inside the network, and is nobody else's.
    #[test]
    fn addresses_are_only_appended_to_inside_and_disjoint(
        bits in 16_u32..=24,
        second in 0_u32..256,
        azure in any::<bool>(),
        rounds in prop::collection::vec(prop::collection::vec(0_usize..8, 0..5), 1..6),
    ) {
        let infrastructure = if azure { Infrastructure::Azure } else { Infrastructure::Aws };
        let nodes = format!("10.{second}.0.0/{bits}");
        let mut has: Vec<ZoneAddresses> = Vec::new();
        for round in rounds {
            let zones: Vec<String> = round.iter().map(|zone| format!("z{zone}")).collect();
            let next = extended(infrastructure, &nodes, &has, &zones).unwrap();
            prop_assert_eq!(&next[..has.len()], &has[..]);
            prop_assert!(zones.iter().all(|zone| next.iter().any(|has| has.zone == *zone)));
            has = next;
        }
        let network = range(&nodes);
        let mut all = ranges(&has);
        all.sort_unstable();
        prop_assert!(all.iter().all(|(first, last)| *first >= network.0 && *last <= network.1));
        prop_assert!(all.windows(2).all(|pair| pair[0].1 < pair[1].0));
    }
}
