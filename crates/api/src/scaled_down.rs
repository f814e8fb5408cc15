//! What is scaled down: a list in status; in caches only its length.

use std::collections::BTreeSet;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer, ser};

/// A workload that was scaled down.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScaledWorkload {
    /// The kind's group and version.
    #[schemars(length(max = 317))]
    pub api_version: String,
    /// The kind.
    #[schemars(length(max = 63))]
    pub kind: String,
    /// The object's name.
    #[schemars(length(max = 253))]
    pub name: String,
    /// The object's uid: another object of the same name is left alone.
    #[schemars(length(max = 128))]
    pub uid: String,
    /// The replicas it had; absent for a `CronJob`, which was suspended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// The value of `status.firings` when it was scaled down; absent if a version did that which did not write it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firing: Option<i64>,
    /// How often something else had scaled it up again when it was scaled down last. Waking begins the count again.
    #[serde(default, skip_serializing_if = "never")]
    #[schemars(range(min = 0))]
    pub reverted: i32,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde passes it")]
const fn never(reverted: &i32) -> bool {
    *reverted == 0
}

/// The workloads that a manager has scaled down, up to 1 MiB of them; or, where that would be a waste, only how many.
///
/// Two lists are equal if their entries are; if one is only counted, if the numbers are.
#[derive(Clone, Debug)]
pub enum ScaledDown {
    /// Each of them.
    Listed(Vec<ScaledWorkload>),
    /// So many, at least one: what caches keep. It cannot be serialized, so that it never replaces a list.
    Counted(usize),
}

impl ScaledDown {
    /// How many there are.
    pub const fn len(&self) -> usize {
        match self {
            Self::Listed(all) => all.len(),
            Self::Counted(count) => *count,
        }
    }

    /// True if there is none.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Each of them; none if they are only counted.
    pub fn listed(&self) -> Option<&[ScaledWorkload]> {
        match self {
            Self::Listed(all) => Some(all),
            Self::Counted(_) => None,
        }
    }

    /// Keeps those for which the function says so, if they are listed.
    pub fn retain(&mut self, keep: impl FnMut(&ScaledWorkload) -> bool) {
        if let Self::Listed(all) = self {
            all.retain(keep);
        }
    }

    /// Takes back what an attempt at this firing recorded of workloads that it has not scaled down, if they are listed: those with
    /// these uids. One that something scaled up after earlier firings was recorded before, and how often that was stays known. To do
    /// so once more changes nothing: the answer to the write that did so may be lost.
    pub fn remove_unchanged(&mut self, unchanged: &BTreeSet<String>, firing: i64) {
        let Self::Listed(all) = self else { return };
        let is_unchanged =
            |entry: &ScaledWorkload| entry.firing == Some(firing) && unchanged.contains(&entry.uid);
        all.retain(|entry| !is_unchanged(entry) || entry.reverted > 0);
        for entry in all.iter_mut().filter(|entry| is_unchanged(entry)) {
            entry.reverted -= 1;
            entry.firing = entry.firing.map(|firing| firing - 1);
        }
    }

    /// Keeps only how many there are.
    pub fn count(&mut self) {
        if !self.is_empty() {
            *self = Self::Counted(self.len());
        }
    }
}

impl Default for ScaledDown {
    fn default() -> Self {
        Self::Listed(Vec::new())
    }
}

impl From<Vec<ScaledWorkload>> for ScaledDown {
    fn from(all: Vec<ScaledWorkload>) -> Self {
        Self::Listed(all)
    }
}

impl PartialEq for ScaledDown {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Listed(all), Self::Listed(others)) => all == others,
            _ => self.len() == other.len(),
        }
    }
}

impl Serialize for ScaledDown {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let all = self
            .listed()
            .ok_or_else(|| ser::Error::custom("which workloads are scaled down is not known here"))?;
        all.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ScaledDown {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::deserialize(deserializer).map(Self::Listed)
    }
}

impl JsonSchema for ScaledDown {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ScaledDown".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Vec::<ScaledWorkload>::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(names: &[&str]) -> ScaledDown {
        let one = |name: &&str| ScaledWorkload {
            api_version: "apps/v1".to_owned(),
            kind: "Deployment".to_owned(),
            name: (*name).to_owned(),
            uid: format!("uid-{name}"),
            replicas: Some(1),
            firing: None,
            reverted: 0,
        };
        names.iter().map(one).collect::<Vec<_>>().into()
    }

    #[test]
    fn an_attempt_that_changes_nothing_does_not_lose_how_often_something_was_reverted() {
        let ScaledDown::Listed(mut all) = listed(&["a", "b", "c", "d"]) else { unreachable!("it is listed") };
        // What the third firing records of one that is new, of one that something has scaled up after each of the first two, and of
        // one that it has scaled up once.
        for (entry, reverted) in all.iter_mut().zip([0, 2, 1]) {
            (entry.firing, entry.reverted) = (Some(2), reverted);
        }
        let mut scaled_down = ScaledDown::from(all);
        let unchanged = ["uid-a", "uid-b", "uid-c"].map(str::to_owned).into();
        for time in ["once", "again, since the answer was lost"] {
            scaled_down.remove_unchanged(&unchanged, 2);
            let left = scaled_down.listed().unwrap();
            let left: Vec<_> = left.iter().map(|one| (&*one.name, one.firing, one.reverted)).collect();
            assert_eq!(left, [("b", Some(1), 1), ("c", Some(1), 0), ("d", None, 0)], "{time}");
        }
    }

    #[test]
    fn what_is_only_counted_is_equal_by_its_number_and_never_written() {
        let (some, mut counted) = (listed(&["a", "b"]), listed(&["a", "b"]));
        counted.count();
        assert_eq!((counted.len(), counted.listed()), (2, None));
        assert_eq!(some, counted);
        assert_ne!(some, listed(&["a", "c"]));
        assert_ne!(counted, listed(&["a"]));
        assert_eq!(serde_json::to_value(&some).unwrap()[1]["name"], "b");
        assert!(serde_json::to_value(&counted).unwrap_err().to_string().contains("not known here"));
    }

    #[test]
    fn none_is_none_in_a_cache_too() {
        let mut none = ScaledDown::default();
        none.count();
        assert_eq!(none.listed(), Some(&[][..]));
        assert_eq!(serde_json::to_string(&none).unwrap(), "[]");
    }
}
