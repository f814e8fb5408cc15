//! How a run ends: what a scenario says, and what must be the same, whatever went wrong on the way.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// The line of an end for the number of destructive steps begins so. A scenario need not state it.
pub const STEPS: &str = "steps: ";

/// How a run ended, and what effects there were. Times, ids and revisions are left out: they may differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndState {
    /// What must not differ of each object that the suite compares, by place.
    pub objects: BTreeMap<String, Value>,
    /// How often the programs did what cannot be repeated, by what they did it to.
    pub effects: BTreeMap<String, usize>,
}

impl EndState {
    /// In which way another end differs from this one.
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let mut found = Vec::new();
        let places: BTreeSet<&String> = self.objects.keys().chain(other.objects.keys()).collect();
        for place in places {
            let (wanted, got) = (self.objects.get(place), other.objects.get(place));
            if wanted != got {
                let show = |value: Option<&Value>| value.map_or("not there".to_owned(), Value::to_string);
                found.push(format!("ALIKE: {place} should be {} and is {}", show(wanted), show(got)));
            }
        }
        let effects: BTreeSet<&String> = self.effects.keys().chain(other.effects.keys()).collect();
        for effect in effects {
            let count = |end: &Self| end.effects.get(effect).copied().unwrap_or(0);
            if count(self) != count(other) {
                found.push(format!(
                    "ALIKE: {effect} should happen {} times and did {}",
                    count(self),
                    count(other)
                ));
            }
        }
        found
    }
}

/// In which way an end, in lines, differs from what a scenario states. A line that ends in `*` leaves the rest open.
pub(crate) fn unlike(lines: &[String], stated: &[&str]) -> Vec<String> {
    let fits = |line: &str, stated: &str| match stated.strip_suffix('*') {
        Some(beginning) => line.starts_with(beginning),
        None => line == stated,
    };
    let missing = stated.iter().filter(|stated| !lines.iter().any(|line| fits(line, stated)));
    let mut found: Vec<String> =
        missing.map(|stated| format!("END: {stated:?} is not so, but {lines:?}")).collect();
    let other = lines
        .iter()
        .filter(|line| !line.starts_with(STEPS) && !stated.iter().any(|stated| fits(line, stated)));
    found.extend(other.map(|line| format!("END: {line:?} is not among {stated:?}")));
    found
}
