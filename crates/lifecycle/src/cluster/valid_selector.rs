//! Which namespaces a cluster manager selects, checked once.

use std::fmt;

use coppice_api::Selector;
use coppice_api::cluster_manager::{
    AnnotationRequirement, MAX_ANNOTATION_VALUE, NamespaceSelector, SelectorAlternative,
};

use crate::annotations::{is_annotation_key, is_cut};

/// A selector: its parts must hold, and one of its alternatives if there are any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidSelector {
    /// What must hold.
    pub parts: SelectorParts,
    /// Alternatives; empty: none is needed.
    pub any_of: Vec<SelectorParts>,
}

/// Parts of a selector, all of which must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectorParts {
    /// Globs, one of which must match the name; none: any name.
    pub names: Option<Vec<String>>,
    /// Globs, none of which may match the name.
    pub exclude: Vec<String>,
    /// The labels of the namespace; none: any.
    pub labels: Option<Selector>,
    /// The annotations that it must have.
    pub annotations: Vec<AnnotationRequirement>,
}

/// What is wrong with a selector, and what to write instead. Continues after its path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSelector {
    /// It selects by nothing.
    #[error(": select by names, labels, annotations or anyOf; to mean every namespace, write names: [\"*\"]")]
    SelectsByNothing,
    /// One of its alternatives selects by nothing.
    #[error(".anyOf[{0}]: select by names, labels or annotations, or leave the entry out")]
    EmptyAlternative(usize),
    /// A part is empty.
    #[error(".{0} is empty: leave it out, or write at least one entry")]
    EmptyPart(SelectorPlace),
    /// A key is none.
    #[error(".{place} has the key {key:?}: write an annotation's key, such as example.com/ttl")]
    BadKey {
        /// Where.
        place: SelectorPlace,
        /// The key.
        key: String,
    },
    /// A value is too long.
    #[error(
        ".{0} asks for a value of more than {MAX_ANNOTATION_VALUE} characters: shorten it, or leave it out"
    )]
    LongValue(SelectorPlace),
    /// An annotation is named twice.
    #[error(".{place} names {key} twice: write each annotation once")]
    SameKey {
        /// Where.
        place: SelectorPlace,
        /// Its key.
        key: String,
    },
}

/// A part of a selector, or of one of its alternatives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SelectorPlace {
    /// The number of the alternative.
    pub alternative: Option<usize>,
    /// The part, as it is written.
    pub part: &'static str,
}

impl fmt::Display for SelectorPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(n) = self.alternative {
            write!(f, "anyOf[{n}].")?;
        }
        f.write_str(self.part)
    }
}

impl ValidSelector {
    /// The keys of all annotations that it asks for.
    pub fn annotation_keys(&self) -> impl Iterator<Item = &str> {
        let parts = std::iter::once(&self.parts).chain(&self.any_of);
        parts.flat_map(|parts| &parts.annotations).map(|annotation| &*annotation.key)
    }

    /// Whether a part has to hold, whichever alternative does: by that a selector is more specific than another.
    fn demands(&self, part: impl Fn(&SelectorParts) -> bool) -> bool {
        part(&self.parts) || !self.any_of.is_empty() && self.any_of.iter().all(part)
    }

    /// How specific it is: by labels, by annotations, by names. The greater is the more specific.
    pub fn specificity(&self) -> (bool, bool, bool) {
        (
            self.demands(|parts| parts.labels.is_some()),
            self.demands(|parts| !parts.annotations.is_empty()),
            self.demands(|parts| parts.names.is_some()),
        )
    }
}

impl TryFrom<NamespaceSelector> for ValidSelector {
    type Error = InvalidSelector;

    fn try_from(selector: NamespaceSelector) -> Result<Self, InvalidSelector> {
        let NamespaceSelector { names, exclude, labels, annotations, any_of } = selector;
        if names.is_none() && labels.is_none() && annotations.is_none() && any_of.is_none() {
            return Err(InvalidSelector::SelectsByNothing);
        }
        if any_of.as_ref().is_some_and(Vec::is_empty) {
            return Err(InvalidSelector::EmptyPart(SelectorPlace { alternative: None, part: "anyOf" }));
        }
        let parts = parts(SelectorAlternative { names, exclude, labels, annotations }, None)?;
        let alternatives = any_of.into_iter().flatten().enumerate();
        let any_of = alternatives.map(|(n, alternative)| {
            let SelectorAlternative { names, labels, annotations, .. } = &alternative;
            if names.is_none() && labels.is_none() && annotations.is_none() {
                return Err(InvalidSelector::EmptyAlternative(n));
            }
            self::parts(alternative, Some(n))
        });
        Ok(Self { parts, any_of: any_of.collect::<Result<_, _>>()? })
    }
}

fn parts(written: SelectorAlternative, alternative: Option<usize>) -> Result<SelectorParts, InvalidSelector> {
    let SelectorAlternative { names, exclude, labels, annotations } = written;
    let place = |part| SelectorPlace { alternative, part };
    let is_empty = |part: &Option<Vec<String>>| part.as_ref().is_some_and(Vec::is_empty);
    let empty = [
        ("names", is_empty(&names)),
        ("exclude", is_empty(&exclude)),
        ("labels", labels.as_ref().is_some_and(Selector::is_empty)),
        ("annotations", annotations.as_ref().is_some_and(Vec::is_empty)),
    ];
    if let Some((part, _)) = empty.into_iter().find(|(_, empty)| *empty) {
        return Err(InvalidSelector::EmptyPart(place(part)));
    }
    let annotations = annotations.unwrap_or_default();
    for (n, one) in annotations.iter().enumerate() {
        if !is_annotation_key(&one.key) {
            return Err(InvalidSelector::BadKey { place: place("annotations"), key: one.key.clone() });
        }
        if one.value.as_deref().is_some_and(is_cut) {
            return Err(InvalidSelector::LongValue(place("annotations")));
        }
        if annotations[..n].iter().any(|other| other.key == one.key) {
            return Err(InvalidSelector::SameKey { place: place("annotations"), key: one.key.clone() });
        }
    }
    Ok(SelectorParts { names, exclude: exclude.unwrap_or_default(), labels, annotations })
}
