//! Amounts of several resources.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use coppice_api::Amounts;
use coppice_quantity::Quantity;
use serde::{Deserialize, Serialize, Serializer};

use crate::resource_name::{ResourceName, ResourceNameError};

/// An amount of each of several resources. One that is not named is an amount of zero, and equal to it.
///
/// In the order of names, each once: a namespace of a tree has six of these in the caches, with a few resources, and a map would take half
/// a KiB for each.
#[derive(Clone, Debug, Default, Eq, Deserialize)]
#[serde(from = "BTreeMap<ResourceName, Quantity>")]
pub struct Resources(Box<[(ResourceName, Quantity)]>);

impl From<BTreeMap<ResourceName, Quantity>> for Resources {
    fn from(amounts: BTreeMap<ResourceName, Quantity>) -> Self {
        Self(amounts.into_iter().collect())
    }
}

impl Serialize for Resources {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

/// Why amounts cannot be a quota. The message says what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResourcesError {
    /// A name that no quota counts.
    #[error(transparent)]
    Name(#[from] ResourceNameError),
    /// Two names for one amount.
    #[error(
        "{0} is there twice: {0} and requests.{0}, or {0} and count/{0}, are one amount; write one of them"
    )]
    Twice(ResourceName),
    /// Less than nothing.
    #[error("{0}: {1} must not be negative: write 0 or more")]
    Negative(ResourceName, Quantity),
    /// A part of an object.
    #[error("{0}: {1} is not a whole number, and objects are counted: write one without a fraction")]
    Fraction(ResourceName, Quantity),
    /// What the API server would round up, and so give to somebody who does not have it.
    #[error("{0}: {1} is finer than quotas are: write a whole number of thousandths, such as 1m")]
    TooFine(ResourceName, Quantity),
}

/// What counts of an amount that is there under two names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TwoNames {
    /// As if the resource were not named.
    Neither,
    /// The smaller one.
    Smaller,
    /// The larger one.
    Larger,
}

impl Resources {
    /// What is written as a quota.
    pub fn parse<'a>(written: impl IntoIterator<Item = (&'a str, Quantity)>) -> Result<Self, ResourcesError> {
        let mut amounts = BTreeMap::new();
        for (name, amount) in written {
            let name: ResourceName = name.parse()?;
            if amount.is_negative() {
                return Err(ResourcesError::Negative(name, amount));
            }
            if name.is_whole() && !amount.is_whole() {
                return Err(ResourcesError::Fraction(name, amount));
            }
            if !amount.is_in_thousandths() {
                return Err(ResourcesError::TooFine(name, amount));
            }
            if amounts.insert(name.clone(), amount).is_some() {
                return Err(ResourcesError::Twice(name));
            }
        }
        Ok(amounts.into())
    }

    /// The same, of what an object of our own kinds has.
    pub fn of(written: &BTreeMap<String, Quantity>) -> Result<Self, ResourcesError> {
        Self::parse(written.iter().map(|(name, amount)| (name.as_str(), *amount)))
    }

    /// The same, of what a status has.
    pub fn recorded(written: &Amounts) -> Result<Self, ResourcesError> {
        Self::parse(written.iter())
    }

    /// The amounts of a native quota, which anybody may have written: also one of them under both of its names.
    pub fn of_quota(
        written: &BTreeMap<String, Quantity>,
        two_names: TwoNames,
    ) -> Result<Self, ResourceNameError> {
        let mut amounts: BTreeMap<ResourceName, Quantity> = BTreeMap::new();
        let mut neither: BTreeSet<ResourceName> = BTreeSet::new();
        for (name, amount) in written {
            let name: ResourceName = name.parse()?;
            let Some(other) = amounts.get(&name).copied() else {
                amounts.insert(name, *amount);
                continue;
            };
            match two_names {
                TwoNames::Smaller => amounts.insert(name, other.min(*amount)),
                TwoNames::Larger => amounts.insert(name, other.max(*amount)),
                TwoNames::Neither => {
                    neither.insert(name);
                    None
                }
            };
        }
        amounts.retain(|name, _| !neither.contains(name));
        Ok(amounts.into())
    }

    /// The amount of one resource.
    pub fn get(&self, name: &ResourceName) -> Quantity {
        self.find(name).unwrap_or_default()
    }

    fn find(&self, name: &ResourceName) -> Option<Quantity> {
        let at = self.0.binary_search_by(|(known, _)| known.cmp(name)).ok()?;
        Some(self.0[at].1)
    }

    /// Every resource that is named with its amount, in the order of names.
    pub fn iter(&self) -> impl Iterator<Item = (&ResourceName, Quantity)> {
        self.0.iter().map(|(name, amount)| (name, *amount))
    }

    /// Whether no resource is named.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a resource is named, if only with an amount of zero.
    pub fn names(&self, name: &ResourceName) -> bool {
        self.find(name).is_some()
    }

    /// The same names with an amount of zero each.
    #[must_use]
    pub fn emptied(&self) -> Self {
        Self(self.0.iter().map(|(name, _)| (name.clone(), Quantity::ZERO)).collect())
    }

    /// Both together. Nothing if an amount is larger than any quantity.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Option<Self> {
        self.combined(other, Quantity::checked_add)
    }

    /// These without the others: zero where the others are larger.
    #[must_use]
    pub fn minus(&self, other: &Self) -> Self {
        let rest = |left: Quantity, right| left.checked_sub(right).map(|rest| rest.max(Quantity::ZERO));
        // Two amounts that are not negative: the difference is a quantity.
        self.combined(other, rest).unwrap_or_default()
    }

    /// The larger amount of each.
    #[must_use]
    pub fn larger(&self, other: &Self) -> Self {
        self.combined(other, |left, right| Some(left.max(right))).unwrap_or_default()
    }

    /// The smaller amount of each.
    #[must_use]
    pub fn smaller(&self, other: &Self) -> Self {
        self.combined(other, |left, right| Some(left.min(right))).unwrap_or_default()
    }

    /// Whether no amount is larger than that of the others.
    pub fn within(&self, limit: &Self) -> bool {
        self.beyond(limit).is_none()
    }

    /// The first resource of which this is more.
    pub fn beyond(&self, limit: &Self) -> Option<&ResourceName> {
        self.0.iter().find(|(name, amount)| *amount > limit.get(name)).map(|(name, _)| name)
    }

    /// Whether the same resources are named with the same amounts: in a quota zero is a limit, and no name is none.
    pub fn limits_like(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    fn combined(&self, other: &Self, of: impl Fn(Quantity, Quantity) -> Option<Quantity>) -> Option<Self> {
        let more = other.0.iter().filter(|(name, _)| !self.names(name));
        let mut names: Vec<&ResourceName> = self.0.iter().chain(more).map(|(name, _)| name).collect();
        names.sort_unstable();
        names
            .into_iter()
            .map(|name| Some((name.clone(), of(self.get(name), other.get(name))?)))
            .collect::<Option<_>>()
            .map(Self)
    }
}

impl PartialEq for Resources {
    fn eq(&self, other: &Self) -> bool {
        self.within(other) && other.within(self)
    }
}

impl fmt::Display for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (name, amount)) in self.0.iter().enumerate() {
            write!(f, "{}{amount} {name}", if at == 0 { "" } else { ", " })?;
        }
        if self.is_empty() { f.write_str("nothing") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resources(written: &[(&str, &str)]) -> Resources {
        Resources::parse(written.iter().map(|(name, amount)| (*name, amount.parse().unwrap()))).unwrap()
    }

    #[test]
    fn what_cannot_be_a_quota_is_refused_with_advice() {
        let refusal = |written: &[(&str, &str)]| {
            let written = written.iter().map(|(name, amount)| (*name, amount.parse().unwrap()));
            Resources::parse(written).unwrap_err().to_string()
        };
        assert!(refusal(&[("cpu", "1"), ("requests.cpu", "1")]).starts_with("cpu is there twice"));
        assert_eq!(refusal(&[("memory", "-1Gi")]), "memory: -1Gi must not be negative: write 0 or more");
        assert!(refusal(&[("pods", "1500m")]).starts_with("pods: 1500m is not a whole number"));
        assert!(refusal(&[("cpu", "1500u")]).ends_with("write a whole number of thousandths, such as 1m"));
        assert!(refusal(&[("storage", "1")]).contains("requests.storage"));
    }

    #[test]
    fn what_is_not_named_is_zero_and_in_a_quota_no_limit() {
        let (none, zero) = (resources(&[("cpu", "1")]), resources(&[("cpu", "1000m"), ("memory", "0")]));
        assert_eq!(none, zero);
        assert!(!none.limits_like(&zero));
        assert!(resources(&[("requests.cpu", "1")]).limits_like(&none));
    }

    #[test]
    fn sums_are_exact_and_differences_end_at_zero() {
        let (one, other) = (resources(&[("cpu", "100m"), ("memory", "1Gi")]), resources(&[("cpu", "0.2")]));
        assert_eq!(one.plus(&other).unwrap().to_string(), "300m cpu, 1Gi memory");
        assert_eq!(one.minus(&other), resources(&[("memory", "1Gi")]));
        assert_eq!(
            (one.larger(&other), one.smaller(&other).to_string()),
            (resources(&[("cpu", "200m"), ("memory", "1Gi")]), "100m cpu, 0 memory".to_owned())
        );
        assert_eq!(other.beyond(&one).unwrap().as_str(), "cpu");
        assert_eq!(resources(&[("cpu", "600E")]).plus(&resources(&[("cpu", "600E")])), None);
        assert_eq!(Resources::default().to_string(), "nothing");
    }

    #[test]
    fn json_is_a_map_of_texts() {
        let json = r#"{"cpu":"1500m","requests.memory":"1Gi"}"#;
        let read: Resources = serde_json::from_str(json).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), r#"{"cpu":"1500m","memory":"1Gi"}"#);
    }

    #[test]
    fn of_a_native_quota_an_amount_may_have_two_names() {
        let written = [("cpu", "4"), ("requests.cpu", "3"), ("pods", "2"), ("count/services", "1")];
        let written: BTreeMap<String, Quantity> =
            written.map(|(name, amount)| (name.to_owned(), amount.parse().unwrap())).into();
        let read = |two_names| Resources::of_quota(&written, two_names).unwrap().to_string();
        assert_eq!(read(TwoNames::Smaller), "3 cpu, 2 pods, 1 services");
        assert_eq!(read(TwoNames::Larger), "4 cpu, 2 pods, 1 services");
        assert_eq!(read(TwoNames::Neither), "2 pods, 1 services");
        let unknown = BTreeMap::from([("cpus".to_owned(), Quantity::ZERO)]);
        assert!(Resources::of_quota(&unknown, TwoNames::Smaller).is_err());
    }

    #[test]
    fn the_order_in_which_they_are_written_does_not_matter() {
        let read: Resources = serde_json::from_str(r#"{"pods":"3","cpu":"1","memory":"2"}"#).unwrap();
        let amounts = ["cpu", "memory", "pods"].map(|name| read.get(&name.parse().unwrap()).to_string());
        assert_eq!(amounts, ["1", "2", "3"]);
        assert!(!read.names(&"services".parse().unwrap()));
        let twice: Resources =
            serde_json::from_str(r#"{"requests.cpu":"2","memory":"1","cpu":"1"}"#).unwrap();
        assert_eq!(twice.to_string(), "1 cpu, 1 memory", "one amount, however often it is written");
        let more = read.plus(&resources(&[("services", "4"), ("configmaps", "5"), ("memory", "1")])).unwrap();
        assert_eq!(more.to_string(), "5 configmaps, 1 cpu, 3 memory, 3 pods, 4 services");
    }
}
