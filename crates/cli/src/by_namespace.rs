//! Objects of one kind by their namespace, as far as they could be read.

use std::collections::BTreeMap;

use coppice_api::Reason;
use coppice_lifecycle::facts::{Fact, ObjectSlice};
use jiff::Timestamp;

/// Objects of one kind, as far as they could be read.
#[derive(Debug)]
pub(crate) struct ByNamespace<T> {
    known: BTreeMap<String, Vec<T>>,
    /// The first object of a namespace that cannot be decoded; of one that does not say where it is, `""`.
    odd: BTreeMap<String, String>,
    /// Why nothing is known, if so.
    unknown: Option<(Reason, String)>,
}

impl<T> Default for ByNamespace<T> {
    fn default() -> Self {
        Self { known: BTreeMap::new(), odd: BTreeMap::new(), unknown: None }
    }
}

impl<T> ByNamespace<T> {
    /// Nothing is known, and why.
    pub(crate) fn unknown(reason: Reason, message: String) -> Self {
        Self { unknown: Some((reason, message)), ..Self::default() }
    }

    /// Adds an object.
    pub(crate) fn add(&mut self, namespace: &str, object: T) {
        self.known.entry(namespace.to_owned()).or_default().push(object);
    }

    /// Records an object that cannot be decoded, with a warning about it.
    pub(crate) fn add_odd(&mut self, namespace: &str, message: String) {
        self.odd.entry(namespace.to_owned()).or_insert(message);
    }

    /// Whether there is any object in the namespace.
    pub(crate) fn is_empty(&self, namespace: &str) -> bool {
        self.known.get(namespace).is_none_or(Vec::is_empty)
    }

    /// Whether there is no object in any namespace.
    pub(crate) fn is_nowhere(&self) -> bool {
        self.known.values().all(Vec::is_empty)
    }

    /// Sorts what is known, so that messages name the same objects as the operator's.
    pub(crate) fn sort_by(&mut self, name: impl Fn(&T) -> &str) {
        self.known.values_mut().for_each(|all| all.sort_by(|a, b| name(a).cmp(name(b))));
    }

    /// What is known of a namespace. How long the operator has followed it cannot be known here; what it recorded in
    /// status is trusted.
    pub(crate) fn fact(&self, namespace: &str) -> Fact<ObjectSlice<'_, T>> {
        if let Some((reason, message)) = &self.unknown {
            return Fact::Unknown { reason: *reason, message: message.clone() };
        }
        if let Some(message) = self.odd.get(namespace).or_else(|| self.odd.get("")) {
            return Fact::Unknown { reason: Reason::Undecodable, message: message.clone() };
        }
        let value = self.known.get(namespace).map_or(ObjectSlice::EMPTY, |all| ObjectSlice::Slice(all));
        Fact::Known { value, since: Timestamp::MIN }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_not_be_read_is_unknown_and_never_empty() {
        let pods = ByNamespace::<u8>::unknown(Reason::Forbidden, "no".to_owned());
        assert!(matches!(pods.fact("a"), Fact::Unknown { reason: Reason::Forbidden, .. }));
        let none = ByNamespace::<u8>::default();
        assert!(matches!(none.fact("a"), Fact::Known { value, .. } if value.iter().next().is_none()));
        let mut jobs = ByNamespace::<u8>::default();
        let of = |jobs: &ByNamespace<u8>, namespace| match jobs.fact(namespace) {
            Fact::Known { .. } => None,
            Fact::Unknown { reason, message } => Some((reason, message)),
        };
        for message in ["first", "second"] {
            jobs.add_odd("a", message.to_owned());
        }
        assert_eq!(of(&jobs, "a"), Some((Reason::Undecodable, "first".to_owned())));
        assert_eq!(of(&jobs, "b"), None, "elsewhere all is known");
        jobs.add_odd("", "nowhere".to_owned());
        assert_eq!(of(&jobs, "b"), Some((Reason::Undecodable, "nowhere".to_owned())));
    }
}
