//! What there was at each revision.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use coppice_sim::run::RunRecord;
use coppice_sim::server::Change;

/// Kind (its plural), namespace and name.
type ObjectId = (String, String, String);

/// The revision from which on an object was so, or was not there.
pub(crate) type Version = (u64, Option<Arc<Value>>);

/// What became of each object, by revision.
pub struct History {
    objects: BTreeMap<ObjectId, Vec<Version>>,
    /// Those that have had an intent in their status.
    intended: BTreeSet<ObjectId>,
    times: Vec<(u64, Duration)>,
}

impl History {
    pub(super) fn of(record: &RunRecord<'_>) -> Self {
        let mut objects: BTreeMap<ObjectId, Vec<_>> = BTreeMap::new();
        let mut times = Vec::with_capacity(record.changes.len());
        let mut intended = BTreeSet::new();
        for change in record.changes {
            if change.after.as_deref().is_some_and(|after| after["status"]["intent"].is_object()) {
                intended.insert(place(change));
            }
            objects.entry(place(change)).or_default().push((change.revision, change.after.clone()));
            times.push((change.revision, since(record.began, change.at)));
        }
        Self { objects, intended, times }
    }

    /// An object as it was at a revision.
    pub fn at(&self, kind: &str, namespace: &str, name: &str, revision: u64) -> Option<&Arc<Value>> {
        self.versions(kind, namespace, name)
            .rfind(|(r, _)| *r <= revision)
            .and_then(|(_, object)| object.as_ref())
    }

    /// Everything that an object has been, in order; none while it was not there.
    pub(crate) fn versions(
        &self,
        kind: &str,
        namespace: &str,
        name: &str,
    ) -> impl DoubleEndedIterator<Item = &Version> {
        self.objects
            .get(&(kind.to_owned(), namespace.to_owned(), name.to_owned()))
            .map(Vec::as_slice)
            .unwrap_or_default()
            .iter()
    }

    /// Everything that each object has been.
    pub(super) fn everything(&self) -> impl Iterator<Item = &Vec<Version>> {
        self.objects.values()
    }

    /// Everything that each object of a kind has been.
    pub(crate) fn all(&self, kind: &str) -> impl Iterator<Item = &Vec<Version>> {
        let places = self.objects.range((kind.to_owned(), String::new(), String::new())..);
        places.take_while(move |(place, _)| place.0 == kind).map(|(_, versions)| versions)
    }

    /// The settings at a revision.
    pub fn settings(&self, revision: u64) -> Option<&Value> {
        self.at("coppiceconfigs", "", "coppice", revision).map(|settings| &**settings)
    }

    /// The objects of a kind in a namespace at a revision.
    pub fn list(&self, kind: &str, namespace: &str, revision: u64) -> Vec<&Arc<Value>> {
        let places = self.objects.range((kind.to_owned(), namespace.to_owned(), String::new())..);
        places
            .take_while(|(place, _)| place.0 == kind && place.1 == namespace)
            .filter_map(|(_, versions)| versions.iter().rfind(|(r, _)| *r <= revision)?.1.as_ref())
            .collect()
    }

    /// The uid that a namespace had at a revision.
    pub fn uid_of(&self, namespace: &str, revision: u64) -> Option<&Value> {
        self.at("namespaces", "", namespace, revision).map(|namespace| &namespace["metadata"]["uid"])
    }

    /// The intents that stood at a revision in the status of the objects in a namespace, of those that are in none, and of those that
    /// have its name and are in the namespace above.
    pub fn intents(&self, namespace: &str, revision: u64) -> impl Iterator<Item = &Value> {
        let about = move |place: &&ObjectId| {
            place.1.is_empty() || place.1 == namespace || place.0 == "subnamespaces" && place.2 == namespace
        };
        let places = self.intended.iter().filter(about);
        let versions = places.filter_map(|place| self.objects.get(place));
        let objects =
            versions.filter_map(move |versions| versions.iter().rfind(|(r, _)| *r <= revision)?.1.as_ref());
        objects.map(|object| &object["status"]["intent"]).filter(|intent| intent.is_object())
    }

    /// The newest revision at a time.
    pub fn revision_at(&self, time: Duration) -> u64 {
        let after = self.times.partition_point(|(_, at)| *at <= time);
        after.checked_sub(1).map_or(0, |last| self.times[last].0)
    }

    /// When a revision was made.
    pub fn time_of(&self, revision: u64) -> Duration {
        let at = self.times.partition_point(|(r, _)| *r < revision);
        self.times.get(at).map_or(Duration::ZERO, |(_, time)| *time)
    }

    /// Every revision that was the newest one at some moment between two times.
    pub fn revisions_between(&self, from: Duration, to: Duration) -> impl Iterator<Item = u64> {
        self.revision_at(from)..=self.revision_at(to)
    }
}

fn place(change: &Change) -> ObjectId {
    (change.kind.plural.to_string(), change.namespace().to_owned(), change.name().to_owned())
}

/// How long after the beginning something was.
pub(crate) fn since(began: Timestamp, at: Timestamp) -> Duration {
    Duration::try_from(at.duration_since(began)).unwrap_or(Duration::ZERO)
}

/// An instant in an object.
pub(crate) fn instant(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}
