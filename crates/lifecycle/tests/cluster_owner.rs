//! Who owns a governed namespace: shown, and decided by nothing.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use coppice_lifecycle::cluster::ValidClusterManager;
use coppice_lifecycle::facts::{AnnotationKeys, Annotations};

use crate::support::cluster::{Scene, spec};

const OWNER: &str =
    "mode: Enforce, owner: {annotations: [{key: ska, format: SKA}, {key: mail}], labels: [team]},";

/// The owner of a namespace with these annotations and labels.
fn owner(annotations: &[(&str, &str)], labels: &[(&str, &str)]) -> Option<String> {
    let mut scene = Scene::new(&spec(OWNER, ""));
    scene.namespace.annotations = Annotations::of(&AnnotationKeys::All, annotations.iter().copied());
    scene.namespace.labels = labels.iter().copied().collect();
    scene.settled(1);
    scene.status().owner.clone()
}

#[test]
fn the_first_that_can_be_understood_says_who_owns_a_namespace() {
    // base64 of "Ada Lovelace::U024BE7LH"
    let ada = "QWRhIExvdmVsYWNlOjpVMDI0QkU3TEg=";
    let mail = ("mail", "grace@example.org");
    let team = [("team", "compilers")];
    assert_eq!(owner(&[("ska", ada), mail], &team).as_deref(), Some("Ada Lovelace"));
    assert_eq!(owner(&[mail], &team).as_deref(), Some("grace@example.org"));
    assert_eq!(owner(&[], &team).as_deref(), Some("compilers"));
    assert_eq!(owner(&[], &[]), None);
    // One that cannot be understood spoils nothing else: no base64, no address, nothing but an address, no text, empty.
    for bad in ["%%%", "QWRh", "OjpVMDI0", "/////w==", ""] {
        assert_eq!(owner(&[("ska", bad), mail], &team).as_deref(), Some("grace@example.org"), "{bad}");
    }
    assert_eq!(owner(&[("mail", "  ")], &team).as_deref(), Some("compilers"));
    // "a::b::U1": what follows the last :: is the address.
    assert_eq!(owner(&[("ska", "YTo6Yjo6VTE=")], &[]).as_deref(), Some("a::b"));
    let long = "x".repeat(300);
    assert_eq!(owner(&[("mail", &long)], &[]).map(|owner| owner.chars().count()), Some(256));
}

#[test]
fn what_is_not_read_yet_changes_no_owner() {
    let mut scene = Scene::new(&spec(OWNER, ""));
    scene.namespace.annotations = Annotations::of(&AnnotationKeys::All, [("mail", "grace@example.org")]);
    scene.settled(1);
    scene.namespace.annotations = Annotations::default();
    scene.settled(2);
    assert_eq!(scene.status().owner.as_deref(), Some("grace@example.org"));
    scene.managers.clear();
    scene.settled(3);
    assert_eq!(scene.status().owner, None, "nobody governs it any more");
}

#[test]
fn an_owner_decides_nothing_and_is_in_the_evidence() {
    let digest = |spec: &str| serde_yaml::from_str::<ValidClusterManager>(spec).unwrap().digest().to_owned();
    assert_eq!(digest(&spec(OWNER, "")), digest(&spec("mode: Enforce,", "")), "it begins nothing again");
    let mut scene = Scene::new(&spec(OWNER, ""));
    scene.namespace.annotations = Annotations::of::<&str, &str>(&AnnotationKeys::All, []);
    scene.namespace.labels = [("team", "compilers")].into_iter().collect();
    assert_eq!((scene.reason(1), scene.reason(101)), ("TtlRunning".to_owned(), "delete".to_owned()));
    assert_eq!(scene.status().steps.intent.as_ref().unwrap().evidence["owner"], "compilers");
}

#[test]
fn what_names_no_annotation_is_refused() {
    let error =
        serde_yaml::from_str::<ValidClusterManager>(&spec("owner: {annotations: [{key: 'a b'}]},", ""));
    let error = error.unwrap_err().to_string();
    assert!(error.starts_with("owner.annotations has the key \"a b\": write an annotation's key"), "{error}");
}
