//! Labels and annotations of a namespace besides those about its tree: what it inherits, and what its `Subnamespace` sets. Pure.

use std::collections::{BTreeMap, BTreeSet};

use coppice_api::metadata::{MetadataKeys, MetadataSet, NamespaceMetadata};
use coppice_lifecycle::annotations::is_cut;
use coppice_lifecycle::facts::{AnnotationKeys, AnnotationNotRead, NamespaceFacts};

/// What has to change of a namespace. No value: it is removed.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct NamespaceChanges {
    pub(crate) labels: BTreeMap<String, Option<String>>,
    pub(crate) annotations: BTreeMap<String, Option<String>>,
}

impl NamespaceChanges {
    /// Of labels alone.
    pub(crate) fn labels(labels: BTreeMap<String, Option<String>>) -> Self {
        Self { labels, annotations: BTreeMap::new() }
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.annotations.is_empty()
    }

    /// These, too.
    pub(crate) fn extend(&mut self, more: Self) {
        self.labels.extend(more.labels);
        self.annotations.extend(more.annotations);
    }
}

/// What a namespace is to have.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct WantedMetadata {
    pub(crate) metadata: NamespaceMetadata,
    /// Annotations that are inherited, but too long.
    pub(crate) too_long: Vec<String>,
}

/// What is inherited from the namespace above, and over that what is asked for, all of which is allowed.
///
/// # Errors
/// If an annotation of the namespace above was not read: nothing is known then.
pub(crate) fn wanted<'a>(
    inherited: &'a MetadataKeys,
    above: &NamespaceFacts,
    asked: &NamespaceMetadata,
) -> Result<WantedMetadata, AnnotationNotRead<'a>> {
    let mut wanted = WantedMetadata::default();
    for key in &inherited.labels {
        if let Some(value) = above.labels.get(key) {
            wanted.metadata.labels.insert(key.clone(), value.to_owned());
        }
    }
    for key in &inherited.annotations {
        match above.annotations.get(key)? {
            Some(value) if is_cut(value) => wanted.too_long.push(key.clone()),
            Some(value) => drop(wanted.metadata.annotations.insert(key.clone(), value.to_owned())),
            None => {}
        }
    }
    wanted.too_long.retain(|key| !asked.annotations.contains_key(key));
    wanted.metadata.labels.extend(asked.labels.clone());
    wanted.metadata.annotations.extend(asked.annotations.clone());
    Ok(wanted)
}

/// What has to change for a namespace to have that. What it was given before (`set`) and is wanted no more is removed; whatever else it
/// has stays.
///
/// # Errors
/// If an annotation was not read: what has to change is not known then.
pub(crate) fn changes<'a>(
    namespace: &NamespaceFacts,
    wanted: &'a NamespaceMetadata,
    set: &'a MetadataSet,
) -> Result<NamespaceChanges, AnnotationNotRead<'a>> {
    let label = |key: &'a str| Ok(namespace.labels.get(key));
    let annotation = |key: &'a str| namespace.annotations.get(key);
    Ok(NamespaceChanges {
        labels: differing(&wanted.labels, &set.labels, label)?,
        annotations: differing(&wanted.annotations, &set.annotations, annotation)?,
    })
}

fn differing<'a, 'n>(
    wanted: &'a BTreeMap<String, String>,
    set: &'a [String],
    now: impl Fn(&'a str) -> Result<Option<&'n str>, AnnotationNotRead<'a>>,
) -> Result<BTreeMap<String, Option<String>>, AnnotationNotRead<'a>> {
    let mut changes = BTreeMap::new();
    for (key, value) in wanted {
        if now(key)? != Some(value) {
            changes.insert(key.clone(), Some(value.clone()));
        }
    }
    for key in set.iter().filter(|key| !wanted.contains_key(*key)) {
        if now(key)?.is_some() {
            changes.insert(key.clone(), None);
        }
    }
    Ok(changes)
}

/// The keys of these, and of those that were set before as long as they are still to be removed.
pub(crate) fn keys(wanted: &NamespaceMetadata, before: &MetadataSet, done: bool) -> MetadataSet {
    let all = |wanted: &BTreeMap<String, String>, before: &[String]| {
        let mut keys: BTreeSet<String> = wanted.keys().cloned().collect();
        if !done {
            keys.extend(before.iter().cloned());
        }
        keys.into_iter().collect()
    };
    MetadataSet {
        labels: all(&wanted.labels, &before.labels),
        annotations: all(&wanted.annotations, &before.annotations),
    }
}

/// Which annotations have to be read of namespaces: those that trees name, and those that were set.
pub(crate) fn annotations_to_read<'a>(
    named: impl IntoIterator<Item = &'a MetadataKeys>,
    set: impl IntoIterator<Item = &'a MetadataSet>,
) -> AnnotationKeys {
    let named = named.into_iter().flat_map(|keys| &keys.annotations);
    let set = set.into_iter().flat_map(|set| &set.annotations);
    AnnotationKeys::named(named.chain(set).map(String::as_str))
}

#[cfg(test)]
mod tests {
    use coppice_lifecycle::facts::Annotations;
    use serde_json::json;

    use super::*;

    fn namespace(labels: &[(&str, &str)], annotations: &[(&str, &str)]) -> NamespaceFacts {
        NamespaceFacts {
            name: "shop".to_owned(),
            uid: String::new(),
            resource_version: String::new(),
            created: jiff::Timestamp::MAX,
            labels: labels.iter().copied().collect(),
            annotations: Annotations::of(
                &AnnotationKeys::named(["contact", "note"]),
                annotations.iter().copied(),
            ),
            terminating: false,
        }
    }

    fn metadata(value: serde_json::Value) -> NamespaceMetadata {
        serde_json::from_value(value).unwrap()
    }

    fn some(pairs: &[(&str, Option<&str>)]) -> BTreeMap<String, Option<String>> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), value.map(str::to_owned))).collect()
    }

    fn keys_of(labels: &[&str], annotations: &[&str]) -> MetadataKeys {
        let owned = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect();
        MetadataKeys { labels: owned(labels), annotations: owned(annotations) }
    }

    #[test]
    fn what_is_set_counts_over_what_is_inherited() {
        let above = namespace(&[("team", "shop"), ("tier", "web"), ("other", "x")], &[("contact", "ann")]);
        let inherited = keys_of(&["team", "tier", "missing"], &["contact", "note"]);
        let asked =
            metadata(json!({"labels": {"tier": "db", "stage": "test"}, "annotations": {"note": "n"}}));
        let wanted = wanted(&inherited, &above, &asked).unwrap();
        let expected = json!({
            "labels": {"team": "shop", "tier": "db", "stage": "test"},
            "annotations": {"contact": "ann", "note": "n"}
        });
        assert_eq!(wanted, WantedMetadata { metadata: metadata(expected), too_long: Vec::new() });
    }

    #[test]
    fn an_annotation_that_was_not_read_is_not_absent() {
        let here = namespace(&[], &[]);
        let inherited = keys_of(&[], &["unread"]);
        assert!(wanted(&inherited, &here, &NamespaceMetadata::default()).is_err());
        let asked = metadata(json!({"annotations": {"unread": "x"}}));
        assert!(changes(&here, &asked, &MetadataSet::default()).is_err());
        let set = MetadataSet { annotations: vec!["unread".to_owned()], ..MetadataSet::default() };
        assert!(changes(&here, &NamespaceMetadata::default(), &set).is_err());
    }

    #[test]
    fn an_annotation_that_was_cut_is_not_inherited() {
        let long = "x".repeat(300);
        let above = namespace(&[], &[("note", &long)]);
        let inherited = keys_of(&[], &["note"]);
        let none = wanted(&inherited, &above, &NamespaceMetadata::default()).unwrap();
        assert!(none.metadata.is_empty());
        assert_eq!(none.too_long, ["note"]);
        let own = wanted(&inherited, &above, &metadata(json!({"annotations": {"note": "n"}}))).unwrap();
        assert_eq!(own.too_long, [""; 0]);
    }

    #[test]
    fn only_what_was_set_is_removed() {
        let here = namespace(&[("team", "shop"), ("old", "1"), ("others", "x")], &[("note", "n")]);
        let wanted = metadata(json!({"labels": {"team": "web", "stage": "test"}}));
        let set = MetadataSet {
            labels: vec!["old".to_owned(), "gone".to_owned(), "team".to_owned()],
            annotations: vec!["note".to_owned()],
        };
        let changes = changes(&here, &wanted, &set).unwrap();
        assert_eq!(changes.labels, some(&[("team", Some("web")), ("stage", Some("test")), ("old", None)]));
        assert_eq!(changes.annotations, some(&[("note", None)]));
    }

    #[test]
    fn what_is_to_be_removed_is_remembered_until_it_is() {
        let wanted = metadata(json!({"labels": {"team": "web"}}));
        let before = MetadataSet { labels: vec!["old".to_owned()], annotations: vec!["note".to_owned()] };
        let expected = |labels: &[&str], annotations: &[&str]| {
            let MetadataKeys { labels, annotations } = keys_of(labels, annotations);
            MetadataSet { labels, annotations }
        };
        assert_eq!(keys(&wanted, &before, false), expected(&["old", "team"], &["note"]));
        assert_eq!(keys(&wanted, &before, true), expected(&["team"], &[]));
    }

    #[test]
    fn annotations_are_read_that_are_named_or_set() {
        let named = [keys_of(&["label"], &["a"]), keys_of(&[], &["b", "a"])];
        let set = [MetadataSet { annotations: vec!["c".to_owned()], labels: vec!["l".to_owned()] }];
        assert_eq!(annotations_to_read(&named, &set), AnnotationKeys::named(["a", "b", "c"]));
    }
}
