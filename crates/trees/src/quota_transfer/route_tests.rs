use std::sync::Arc;

use coppice_api::QuotaTransferSpec;
use coppice_kinds::{NamespaceTrees, Tree};
use coppice_runtime::kind::Kind;
use serde_json::json;

use super::*;

fn tree(name: &str) -> Arc<Tree> {
    let tree = json!({
        "metadata": {"name": name, "uid": name, "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"root": name, "quota": {"hard": {"pods": "10"}}, "partitions": ["gpu", "gone"]}
    });
    Arc::new(NamespaceTrees::project(serde_json::from_value(tree).unwrap(), &()).unwrap())
}

/// `shop` with `web` (and `web-a`, `web-b` below it), `data` and the partition `gpu` (and `gpu-a` below it); another tree `bank`; a namespace `free` in none; and `odd`.
fn place(name: &str) -> Place {
    let path: &[&str] = match name {
        "shop" => &["shop"],
        "web" | "data" | "gpu" => &["shop", name],
        "gpu-a" => &["shop", "gpu", name],
        "web-a" | "web-b" => &["shop", "web", name],
        "bank" => &["bank"],
        "odd" => return Place::Unknown("namespace odd is being set up".to_owned()),
        _ => return Place::Out,
    };
    let tree = tree(path[0]);
    Place::In(Position::new(
        &tree,
        tree.spec.as_ref().unwrap(),
        path.iter().map(|&name| name.into()).collect(),
    ))
}

fn find(source: &str, to: &str, through: &str) -> Result<Vec<String>, NoRoute> {
    let spec =
        QuotaTransferSpec { to: to.to_owned(), through: through.to_owned(), ..QuotaTransferSpec::default() };
    let spec = ValidTransfer::from(spec);
    let uid = |above: &str, name: &str| (name != "web-b").then(|| format!("{above}>{name}"));
    let route = route(source, &spec, place, uid)?;
    assert_eq!(route.tree, "shop");
    Ok(route.path.into_iter().map(|stop| format!("{} {}", stop.namespace, stop.uid)).collect())
}

#[test]
fn it_leads_up_to_the_nearest_that_both_are_below_of_and_down_again() {
    let ways: [(&str, &str, &str, &[&str]); 4] = [
        ("web", "data", "shop", &["web shop>web", "shop ", "data shop>data"]),
        ("web-a", "data", "shop", &["web-a web>web-a", "web shop>web", "shop ", "data shop>data"]),
        ("web-a", "shop", "shop", &["web-a web>web-a", "web shop>web", "shop "]),
        ("shop", "web-a", "shop", &["shop ", "web shop>web", "web-a web>web-a"]),
    ];
    for (source, to, through, way) in ways {
        assert_eq!(find(source, to, through).unwrap(), way, "{source} {to}");
    }
}

#[test]
fn there_is_none_for_what_is_not_in_one_tree_or_not_what_the_requester_thinks() {
    let never = |source, to, through, words: &str| match find(source, to, through) {
        Err(NoRoute::Never(why)) => assert!(why.contains(words), "{why}"),
        other => panic!("{other:?}"),
    };
    never("web", "web", "web", "namespace web itself");
    never("web", "free", "shop", "namespace free belongs to no tree");
    never("free", "web", "shop", "namespace free belongs to no tree");
    never("web", "bank", "shop", "NamespaceTree shop, and namespace bank to bank");
    never("web-a", "data", "web", "is shop: create the QuotaTransfer with through: shop");
    never("web-a", "web", "shop", "with through: web");
}

#[test]
fn between_a_partition_and_other_branches_there_is_none() {
    for (source, to) in [("web-a", "gpu"), ("gpu-a", "data"), ("gpu", "web"), ("web", "gpu-a")] {
        let Err(NoRoute::Never(why)) = find(source, to, "shop") else { panic!("{source} {to}") };
        let words = "namespace gpu is a partition of NamespaceTree shop (spec.partitions)";
        assert!(why.starts_with(words) && why.contains("give quota back to shop"), "{why}");
    }
    // Inside of it, and to and from the root.
    for (source, to, through) in [("gpu", "gpu-a", "gpu"), ("gpu-a", "shop", "shop"), ("shop", "gpu", "shop")]
    {
        assert!(find(source, to, through).is_ok(), "{source} {to}");
    }
}

#[test]
fn what_is_not_known_yet_is_waited_for() {
    for (source, to, through) in [("odd", "web", "shop"), ("web", "odd", "shop"), ("web-b", "data", "shop")] {
        assert!(matches!(find(source, to, through), Err(NoRoute::Unknown(_))), "{source} {to}");
    }
}
