//! Amounts of resources in status, held small: of each namespace of a tree two are in the caches, most of them with few resources.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::hash::{Hash, Hasher};

use coppice_quantity::Quantity;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The names that most quotas have: they are in the program once.
static COMMON: [&str; 26] = [
    "configmaps",
    "count/cronjobs.batch",
    "count/deployments.apps",
    "count/ingresses.networking.k8s.io",
    "count/jobs.batch",
    "count/pods",
    "count/replicasets.apps",
    "count/statefulsets.apps",
    "cpu",
    "ephemeral-storage",
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "memory",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
    "requests.storage",
    "resourcequotas",
    "secrets",
    "services",
    "services.loadbalancers",
    "services.nodeports",
];

/// The name of a resource, as it was written: what it means is not known here. A common one needs no memory of its own.
#[derive(Clone)]
pub struct WrittenName(Name);

#[derive(Clone)]
enum Name {
    /// One of [`COMMON`].
    Common(&'static &'static str),
    /// Any other.
    Other(Box<str>),
}

impl WrittenName {
    /// The text.
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Name::Common(name) => name,
            Name::Other(name) => name,
        }
    }
}

impl From<&str> for WrittenName {
    fn from(text: &str) -> Self {
        let common = COMMON.iter().find(|name| **name == text);
        Self(common.map_or_else(|| Name::Other(text.into()), Name::Common))
    }
}

impl AsRef<str> for WrittenName {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl PartialEq for WrittenName {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for WrittenName {}

impl PartialOrd for WrittenName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for WrittenName {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_str().cmp(other.as_str())
    }
}

impl Hash for WrittenName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl fmt::Debug for WrittenName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl<'de> Deserialize<'de> for WrittenName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = WrittenName;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a resource")
            }

            fn visit_str<E>(self, text: &str) -> Result<WrittenName, E> {
                Ok(text.into())
            }
        }
        deserializer.deserialize_str(Text)
    }
}

/// Amounts by the names of their resources, on the wire a map of texts: in the order of names, each once. A map would have room for eleven,
/// which is 640 bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Amounts(Box<[(WrittenName, Quantity)]>);

impl Amounts {
    /// Each with its name, in the order of names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Quantity)> {
        self.0.iter().map(|(name, amount)| (name.as_str(), *amount))
    }

    /// The amount of this name, if there is one.
    pub fn get(&self, name: &str) -> Option<Quantity> {
        self.iter().find_map(|(known, amount)| (known == name).then_some(amount))
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Of equal names the last counts, as in a map.
impl<N: AsRef<str>> FromIterator<(N, Quantity)> for Amounts {
    fn from_iter<I: IntoIterator<Item = (N, Quantity)>>(amounts: I) -> Self {
        let amounts = amounts.into_iter().map(|(name, amount)| (WrittenName::from(name.as_ref()), amount));
        let mut amounts: Vec<_> = amounts.collect();
        // Among equals the last comes first then, and the first of them stays.
        amounts.reverse();
        amounts.sort_by(|(name, _), (other, _)| name.cmp(other));
        amounts.dedup_by(|(name, _), (other, _)| name == other);
        Self(amounts.into_boxed_slice())
    }
}

impl From<Amounts> for BTreeMap<String, Quantity> {
    fn from(amounts: Amounts) -> Self {
        amounts.iter().map(|(name, amount)| (name.to_owned(), amount)).collect()
    }
}

impl Serialize for Amounts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for Amounts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Amounts;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of amounts")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Amounts, A::Error> {
                let mut amounts = Vec::new();
                while let Some(amount) = map.next_entry::<WrittenName, Quantity>()? {
                    amounts.push(amount);
                }
                Ok(amounts.into_iter().collect())
            }
        }
        deserializer.deserialize_map(Pairs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the fields of status had before.
    type Map = BTreeMap<String, Quantity>;

    #[test]
    fn they_are_read_and_written_as_a_map_is() {
        for json in [
            "{}",
            r#"{"pods":"3"}"#,
            r#"{"pods":"3","cpu":"1500m","memory":"1Gi"}"#,
            r#"{"requests.example.com/gpu":"1","cpu":2,"requests.cpu":"1e3"}"#,
            r#"{"cpu":"1","pods":"2","cpu":"3"}"#,
        ] {
            let (amounts, map): (Amounts, Map) =
                (serde_json::from_str(json).unwrap(), serde_json::from_str(json).unwrap());
            assert_eq!(
                serde_json::to_string(&amounts).unwrap(),
                serde_json::to_string(&map).unwrap(),
                "{json}"
            );
            assert_eq!(Map::from(amounts.clone()), map, "{json}");
            assert_eq!(map.into_iter().collect::<Amounts>(), amounts, "{json}");
        }
        let text =
            serde_json::to_string(&serde_json::from_str::<Amounts>(r#"{"pods":"3","cpu":"0.5"}"#).unwrap());
        assert_eq!(
            text.unwrap(),
            r#"{"cpu":"500m","pods":"3"}"#,
            "in the order of names, as the API server prints them"
        );
    }

    #[test]
    fn what_a_map_refuses_is_refused() {
        for json in ["[]", "null", "1", r#"{"cpu":"x"}"#, r#"{"cpu":null}"#] {
            assert!(serde_json::from_str::<Map>(json).is_err(), "{json}");
            assert!(serde_json::from_str::<Amounts>(json).is_err(), "{json}");
        }
    }

    #[test]
    fn amounts_are_equal_however_they_are_written_and_in_whatever_order() {
        let of = |json: &str| serde_json::from_str::<Amounts>(json).unwrap();
        assert_eq!(of(r#"{"pods":"3","cpu":"1"}"#), of(r#"{"cpu":"1000m","pods":"3"}"#));
        assert_ne!(of(r#"{"cpu":"1"}"#), of(r#"{"requests.cpu":"1"}"#), "which are one is not known here");
        assert_ne!(of(r#"{"cpu":"1"}"#), of(r#"{"cpu":"1","pods":"0"}"#));
        let (has, none) = (of(r#"{"pods":"3"}"#), Amounts::default());
        assert_eq!((has.get("pods"), has.get("cpu")), (Some(Quantity::from(3_u32)), None));
        assert!(none.is_empty() && !has.is_empty());
    }

    #[test]
    fn common_names_are_kept_once_and_compare_as_their_texts() {
        let names = ["cpu", "zebras.example.com/z", "pods", "a.example.com/a"].map(WrittenName::from);
        assert!(matches!(names[0].0, Name::Common(_)) && matches!(names[1].0, Name::Other(_)));
        let mut sorted = names.clone();
        sorted.sort();
        let texts = sorted.each_ref().map(WrittenName::as_str);
        assert_eq!(texts, ["a.example.com/a", "cpu", "pods", "zebras.example.com/z"]);
        assert_eq!(format!("{:?}", sorted[1]), "\"cpu\"");
        let mut unique = COMMON.to_vec();
        unique.dedup();
        assert!(unique.len() == COMMON.len() && COMMON.is_sorted());
        assert_eq!(size_of::<(WrittenName, Quantity)>(), 32);
    }
}
