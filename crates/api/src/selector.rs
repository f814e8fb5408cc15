//! Label selectors with one difference to upstream's: an explicit empty one is refused.
//!
//! In Kubernetes `{}` selects everything and a missing selector often selects nothing; where the consequence is that a
//! namespace is deleted, "everything by accident of emptiness" is not acceptable. Here a selector that is left out
//! means all, and one that is written says something.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// A label selector; `matchLabels` and `matchExpressions` must all hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "has(self.matchLabels) || has(self.matchExpressions)",
        "message": "an empty selector is not accepted: leave the selector out to select all, or write matchLabels or matchExpressions"
    },
    {
        "rule": "!has(self.matchLabels) || size(self.matchLabels) > 0",
        "message": "matchLabels is empty: leave it out, or write at least one label"
    },
    {
        "rule": "!has(self.matchExpressions) || size(self.matchExpressions) > 0",
        "message": "matchExpressions is empty: leave it out, or write at least one expression"
    }
]))]
pub struct Selector {
    /// Labels and the values they must have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::match_labels")]
    pub match_labels: Option<BTreeMap<String, String>>,
    /// Requirements on labels, as in any Kubernetes selector.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub match_expressions: Option<Vec<Requirement>>,
}

/// One requirement on a label.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "!(self.operator in ['In', 'NotIn']) || (has(self.values) && size(self.values) > 0)",
        "message": "operators In and NotIn need at least one entry in values"
    },
    {
        "rule": "!(self.operator in ['Exists', 'DoesNotExist']) || !has(self.values) || size(self.values) == 0",
        "message": "operators Exists and DoesNotExist take no values"
    }
]))]
pub struct Requirement {
    /// The label's key.
    #[schemars(schema_with = "schema::label_key")]
    pub key: String,
    /// How the label relates to the values.
    pub operator: LabelOperator,
    /// The values for `In` and `NotIn`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_values")]
    pub values: Option<Vec<String>>,
}

/// How a label relates to values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum LabelOperator {
    /// The label exists and its value is one of the values.
    In,
    /// The label is absent or its value is none of the values.
    NotIn,
    /// The label exists.
    Exists,
    /// The label is absent.
    DoesNotExist,
}

impl Selector {
    /// Whether the labels satisfy every requirement.
    pub fn matches(&self, labels: &Labels) -> bool {
        let equal = self.match_labels.iter().flatten().all(|(k, v)| labels.get(k) == Some(v.as_str()));
        equal && self.match_expressions.iter().flatten().all(|r| r.matches(labels))
    }

    /// The selector as the `labelSelector` parameter of a request writes it.
    pub fn to_query(&self) -> String {
        let equal = self.match_labels.iter().flatten().map(|(k, v)| format!("{k}={v}"));
        let rest = self.match_expressions.iter().flatten().map(Requirement::to_query);
        equal.chain(rest).collect::<Vec<_>>().join(",")
    }

    /// True when nothing is required: what the API server refuses, seen only in files that it has not checked.
    pub fn is_empty(&self) -> bool {
        self.match_labels.as_ref().is_none_or(BTreeMap::is_empty)
            && self.match_expressions.as_ref().is_none_or(Vec::is_empty)
    }
}

/// The labels of an object, held small: one string of `key NUL value NUL`, sorted by key, since there are many pods and
/// few labels each. (Neither a key nor a value can have a NUL: the API server refuses it.)
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels(Box<str>);

impl Labels {
    /// The value of a label.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.iter().find_map(|(k, v)| (k == key).then_some(v))
    }

    /// Every label with its value, sorted by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut words = self.0.split_terminator('\0');
        std::iter::from_fn(move || Some((words.next()?, words.next()?)))
    }
}

impl<K: Into<Box<str>>, V: Into<Box<str>>> FromIterator<(K, V)> for Labels {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        let mut pairs: Vec<(Box<str>, Box<str>)> =
            pairs.into_iter().map(|(k, v)| (k.into(), v.into())).collect();
        pairs.sort();
        // As in any JSON object, the last of two equal keys would win; objects from the API server have none.
        pairs.dedup_by(|a, b| a.0 == b.0);
        let length = pairs.iter().map(|(k, v)| k.len() + v.len() + 2).sum();
        let mut text = String::with_capacity(length);
        for part in pairs.iter().flat_map(|(key, value)| [key, "\0", value, "\0"]) {
            text.push_str(part);
        }
        Self(text.into_boxed_str())
    }
}

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Labels;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a map of labels")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Labels, A::Error> {
                let mut pairs = Vec::with_capacity(map.size_hint().unwrap_or(0));
                while let Some(pair) = map.next_entry::<Box<str>, Box<str>>()? {
                    pairs.push(pair);
                }
                Ok(pairs.into_iter().collect())
            }

            fn visit_unit<E>(self) -> Result<Labels, E> {
                Ok(Labels::default())
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl Requirement {
    fn matches(&self, labels: &Labels) -> bool {
        let value = labels.get(&self.key);
        let listed = || value.is_some_and(|v| self.values.iter().flatten().any(|x| x.as_str() == v));
        match self.operator {
            LabelOperator::In => listed(),
            LabelOperator::NotIn => !listed(),
            LabelOperator::Exists => value.is_some(),
            LabelOperator::DoesNotExist => value.is_none(),
        }
    }

    fn to_query(&self) -> String {
        let values = || self.values.iter().flatten().map(String::as_str).collect::<Vec<_>>().join(",");
        match self.operator {
            LabelOperator::In => format!("{} in ({})", self.key, values()),
            LabelOperator::NotIn => format!("{} notin ({})", self.key, values()),
            LabelOperator::Exists => self.key.clone(),
            LabelOperator::DoesNotExist => format!("!{}", self.key),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().copied().collect()
    }

    fn selector(yaml: &str) -> Selector {
        serde_yaml::from_str(yaml).unwrap()
    }

    #[test]
    fn every_operator_follows_upstream() {
        let main = labels(&[("component", "main"), ("type", "test")]);
        let none = labels(&[]);
        for (yaml, on_main, on_none) in [
            ("{matchLabels: {component: main}}", true, false),
            ("{matchLabels: {component: main, type: other}}", false, false),
            ("{matchExpressions: [{key: component, operator: In, values: [main, x]}]}", true, false),
            ("{matchExpressions: [{key: component, operator: NotIn, values: [main]}]}", false, true),
            ("{matchExpressions: [{key: component, operator: NotIn, values: [x]}]}", true, true),
            ("{matchExpressions: [{key: component, operator: Exists}]}", true, false),
            ("{matchExpressions: [{key: component, operator: DoesNotExist}]}", false, true),
            (
                "{matchLabels: {type: test}, matchExpressions: [{key: component, operator: DoesNotExist}]}",
                false,
                false,
            ),
        ] {
            let selector = selector(yaml);
            assert_eq!((selector.matches(&main), selector.matches(&none)), (on_main, on_none), "{yaml}");
        }
    }

    #[test]
    fn labels_are_found_also_where_they_are_empty() {
        let labels = labels(&[("b", ""), ("a", "1"), ("c", "a")]);
        assert_eq!(labels.iter().collect::<Vec<_>>(), [("a", "1"), ("b", ""), ("c", "a")]);
        assert_eq!((labels.get("b"), labels.get("1"), labels.get("")), (Some(""), None, None));
        assert_eq!(Labels::default().iter().count(), 0);
    }

    #[test]
    fn the_query_form_is_kubectls() {
        let selector = selector(
            "{matchLabels: {a: b}, matchExpressions: [{key: c, operator: In, values: [d, e]}, {key: f, operator: DoesNotExist}]}",
        );
        assert_eq!(selector.to_query(), "a=b,c in (d,e),!f");
    }
}
