//! The annotations of namespaces, of which only those are read that a cluster manager names: whatever is not read is unknown,
//! and not absent. Of one other it is kept whether it is there: [`ARGO_CD_TRACKING`].

use std::collections::BTreeSet;
use std::sync::Arc;

use coppice_api::cluster_manager::MAX_ANNOTATION_VALUE;

/// By which Argo CD finds what it applies, unless it is set up to use a label.
pub const ARGO_CD_TRACKING: &str = "argocd.argoproj.io/tracking-id";

/// Which annotations are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnnotationKeys {
    /// Every one.
    All,
    /// Those with these keys.
    Named(Arc<BTreeSet<Arc<str>>>),
}

impl Default for AnnotationKeys {
    fn default() -> Self {
        Self::Named(Arc::default())
    }
}

impl AnnotationKeys {
    /// Those with these keys.
    pub fn named<'a>(keys: impl IntoIterator<Item = &'a str>) -> Self {
        Self::Named(Arc::new(keys.into_iter().map(Arc::from).collect()))
    }

    /// Whether all annotations that the other one reads are read.
    pub fn contains(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::All, _) => true,
            (Self::Named(_), Self::All) => false,
            (Self::Named(keys), Self::Named(others)) => others.is_subset(keys),
        }
    }

    /// The key, as it is kept; none if it is not read.
    fn find(&self, key: &str) -> Option<Arc<str>> {
        match self {
            Self::All => Some(key.into()),
            Self::Named(keys) => keys.get(key).cloned(),
        }
    }

    fn has(&self, key: &str) -> bool {
        match self {
            Self::All => true,
            Self::Named(keys) => keys.contains(key),
        }
    }
}

/// The annotations of a namespace, as far as they were read. They know themselves what was read, so that a namespace from an
/// older list or event is never taken for one without an annotation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Annotations {
    read: AnnotationKeys,
    /// Few, in no order that matters. Not as labels are held: a value may contain any character.
    values: Box<[(Arc<str>, Box<str>)]>,
    tracked_by_argo_cd: bool,
}

/// An annotation was not read: whether the namespace has it is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the annotation {key} of namespaces has not been read yet")]
pub struct AnnotationNotRead<'a> {
    /// Its key.
    pub key: &'a str,
}

impl Annotations {
    /// What is read of all annotations of a namespace. A value is cut after one character more than a selector can ask for.
    pub fn of<K: AsRef<str>, V: AsRef<str>>(
        read: &AnnotationKeys,
        all: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        let mut tracked_by_argo_cd = false;
        let kept = |(key, value): (K, V)| {
            tracked_by_argo_cd |= key.as_ref() == ARGO_CD_TRACKING;
            Some((read.find(key.as_ref())?, cut(value.as_ref()).into()))
        };
        let mut values: Vec<_> = all.into_iter().filter_map(kept).collect();
        values.sort_unstable();
        Self { read: read.clone(), values: values.into(), tracked_by_argo_cd }
    }

    /// The value of an annotation, cut if it is [too long](is_cut); none if the namespace does not have it.
    ///
    /// # Errors
    /// If it was not read.
    pub fn get<'k>(&self, key: &'k str) -> Result<Option<&str>, AnnotationNotRead<'k>> {
        if !self.read.has(key) {
            return Err(AnnotationNotRead { key });
        }
        Ok(self.values.iter().find(|(known, _)| **known == *key).map(|(_, value)| &**value))
    }

    /// Whether it has [`ARGO_CD_TRACKING`], whichever annotations were read. For people: nothing is decided by it.
    pub fn tracked_by_argo_cd(&self) -> bool {
        self.tracked_by_argo_cd
    }

    /// Bytes of text that are kept.
    pub fn bytes(&self) -> usize {
        self.values.iter().map(|(key, value)| key.len() + value.len()).sum()
    }
}

/// Whether a value was longer than any that a selector can ask for, so that only its beginning was read.
pub fn is_cut(value: &str) -> bool {
    value.chars().nth(MAX_ANNOTATION_VALUE as usize).is_some()
}

/// Whether this is the key of an annotation, as the schema of cluster managers has it.
pub fn is_annotation_key(key: &str) -> bool {
    let word = |word: &str, inner: &dyn Fn(u8) -> bool| {
        let ends = word.bytes().next().zip(word.bytes().last());
        let good = |byte: u8| inner(byte) && !b"-._".contains(&byte);
        ends.is_some_and(|(first, last)| good(first) && good(last))
            && word.bytes().all(|byte| inner(byte) || b"-.".contains(&byte))
    };
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let lower = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let any = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    key.len() <= 317 && prefix.is_none_or(|prefix| word(prefix, &lower)) && word(name, &any)
}

fn cut(value: &str) -> &str {
    let end = value.char_indices().nth(MAX_ANNOTATION_VALUE as usize + 1);
    end.map_or(value, |(end, _)| &value[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_read_is_not_absent() {
        let keys = AnnotationKeys::named(["example.org/ttl", "example.org/ci"]);
        let all = [("example.org/ttl", "2h"), ("example.org/other", "x"), ("", "")];
        let some = Annotations::of(&keys, all);
        assert_eq!(some.get("example.org/ttl"), Ok(Some("2h")));
        assert_eq!(some.get("example.org/ci"), Ok(None));
        assert_eq!(some.get("example.org/other"), Err(AnnotationNotRead { key: "example.org/other" }));
        assert_eq!(Annotations::default().get("a"), Err(AnnotationNotRead { key: "a" }));
        let every = Annotations::of(&AnnotationKeys::All, all);
        assert_eq!((every.get("example.org/other"), every.get("a")), (Ok(Some("x")), Ok(None)));
    }

    #[test]
    fn whether_argo_cd_tracks_it_is_kept_whatever_is_read() {
        for keys in
            [AnnotationKeys::default(), AnnotationKeys::named([ARGO_CD_TRACKING]), AnnotationKeys::All]
        {
            let tracked = Annotations::of(&keys, [("a", "b"), (ARGO_CD_TRACKING, "web:/Namespace:/shop")]);
            assert!(tracked.tracked_by_argo_cd(), "{keys:?}");
            assert!(!Annotations::of(&keys, [("argocd.argoproj.io/sync-wave", "1")]).tracked_by_argo_cd());
        }
        let unread = Annotations::of(&AnnotationKeys::default(), [(ARGO_CD_TRACKING, "web")]);
        assert_eq!(unread.get(ARGO_CD_TRACKING), Err(AnnotationNotRead { key: ARGO_CD_TRACKING }));
        assert_eq!(unread.bytes(), 0);
    }

    #[test]
    fn a_value_with_odd_characters_is_no_other_annotation() {
        let all = [("a", "1\u{0}b\u{0}2"), ("c", "")];
        let annotations = Annotations::of(&AnnotationKeys::All, all);
        assert_eq!((annotations.get("a"), annotations.get("b")), (Ok(Some("1\u{0}b\u{0}2")), Ok(None)));
        assert_eq!(annotations.get("c"), Ok(Some("")));
    }

    #[test]
    fn of_a_long_value_the_beginning_is_read() {
        let most = MAX_ANNOTATION_VALUE as usize;
        for (length, kept, too_long) in
            [(most, most, false), (most + 1, most + 1, true), (1 << 20, most + 1, true)]
        {
            for (character, size) in [("x", 1), ("\u{1F333}", 4)] {
                let value = character.repeat(length);
                let annotations = Annotations::of(&AnnotationKeys::All, [("k", value)]);
                let read = annotations.get("k").unwrap_or_default().unwrap_or_default();
                assert_eq!((read.len(), is_cut(read)), (kept * size, too_long), "{length} {character}");
            }
        }
    }

    #[test]
    fn a_key_is_a_qualified_name() {
        for good in ["a", "A_b-c.D", "example.org/ttl", "1/2", "a-b.c/d_e", &"k".repeat(317)] {
            assert!(is_annotation_key(good), "{good}");
        }
        for bad in
            ["", "/", "a/", "/a", "a/b/c", "-a", "a-", "_a", "Example.org/a", "a_b/c", "a b", "ä", "a\n"]
        {
            assert!(!is_annotation_key(bad), "{bad:?}");
        }
        assert!(!is_annotation_key(&"k".repeat(318)));
    }

    #[test]
    fn which_keys_contain_which() {
        let (none, one) = (AnnotationKeys::default(), AnnotationKeys::named(["a"]));
        let two = AnnotationKeys::named(["b", "a"]);
        for (keys, others, expected) in [
            (&AnnotationKeys::All, &two, true),
            (&two, &AnnotationKeys::All, false),
            (&two, &one, true),
            (&one, &two, false),
            (&one, &none, true),
            (&none, &none, true),
        ] {
            assert_eq!(keys.contains(others), expected, "{keys:?} {others:?}");
        }
    }
}
