//! A label whose values come from the cluster, such as names of managers: bounded, and removed when nobody needs them.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::hash::Hash;
use std::ops::AddAssign;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::encoding::{
    EncodeLabel as _, EncodeLabelSet, EncodeMetric, LabelSetEncoder, MetricEncoder,
};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::{MetricType, TypedMetric};

use super::Describe;

/// How many values of the label have series of their own.
pub const MAX_VALUES: usize = 64;
/// The value that stands for all others.
pub const OTHER: &str = "other";

/// The other labels of a metric that has none.
pub type NoLabels = [(&'static str, &'static str); 0];

/// A metric with a label whose values come from the cluster, and labels `S` whose values are words from the source. Clones
/// share it.
///
/// The first [`MAX_VALUES`] values that come have series of their own; every further one is counted as [`OTHER`], also
/// later, until [`retain`](Self::retain) makes room. So which values have series depends on the order in which they come and
/// on nothing else. Replicas may differ in it; the sums over the label do not depend on it.
#[derive(Clone, Debug)]
pub struct DynamicFamily<S, M> {
    label: &'static str,
    family: Family<(DynamicLabel, S), M>,
    /// The values that have series, each with the other labels that it has come with.
    series: Arc<Mutex<BTreeMap<Arc<str>, HashSet<S>>>>,
}

/// A label with one of its values.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DynamicLabel {
    label: &'static str,
    value: Arc<str>,
}

impl EncodeLabelSet for DynamicLabel {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> Result<(), fmt::Error> {
        (self.label, &*self.value).encode(encoder.encode_label())
    }
}

impl<S: Clone + Eq + Hash, M: Default> DynamicFamily<S, M> {
    /// A metric without series, with a label of this name.
    pub fn new(label: &'static str) -> Self {
        Self { label, family: Family::default(), series: Arc::default() }
    }

    /// Counts something of a value. What is of [`OTHER`] is of several values: add to it rather than set it.
    pub fn with(&self, value: &str, others: S, count: impl FnOnce(&M)) {
        let mut series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        let value = match series.get_key_value(value) {
            Some((known, _)) => Arc::clone(known),
            None if value != OTHER && series.len() < MAX_VALUES => Arc::from(value),
            None => Arc::from(OTHER),
        };
        if *value != *OTHER {
            series.entry(Arc::clone(&value)).or_default().insert(others.clone());
        }
        // Under the lock, so that no series comes back that is being removed.
        count(&self.family.get_or_create(&(DynamicLabel { label: self.label, value }, others)));
    }

    /// Removes the values that are not to be kept: their series end, and others can take their places. What is counted of
    /// such a value later begins at zero; what was counted as [`OTHER`] stays there.
    pub fn retain(&self, keep: impl Fn(&str) -> bool) {
        let mut series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        series.retain(|value, all| {
            let kept = keep(value);
            if !kept {
                for others in all.drain() {
                    let label = DynamicLabel { label: self.label, value: Arc::clone(value) };
                    self.family.remove(&(label, others));
                }
            }
            kept
        });
    }
}

impl<S: Clone + Eq + Hash + Ord> DynamicFamily<S, Gauge> {
    /// Sets all that was counted, by value and other labels; what was not counted ends. The values with the most have series of
    /// their own, and the rest together is [`OTHER`].
    pub fn set_all(&self, counts: &BTreeMap<(String, S), i64>) {
        let mut totals: BTreeMap<&str, i64> = BTreeMap::new();
        for ((value, _), count) in counts {
            *totals.entry(value).or_default() += count;
        }
        self.replace(&totals, counts, |gauge, count| _ = gauge.set(count));
    }
}

impl<S: Clone + Eq + Hash + Ord> DynamicFamily<S, Gauge<f64, AtomicU64>> {
    /// The same for amounts, which say nothing of how much one value matters: `weights` do.
    pub fn set_amounts(&self, weights: &BTreeMap<&str, i64>, amounts: &BTreeMap<(String, S), f64>) {
        self.replace(weights, amounts, |gauge, amount| _ = gauge.set(amount));
    }
}

impl<S: Clone + Eq + Hash + Ord, M: Default> DynamicFamily<S, M> {
    fn replace<N: Copy + Default + AddAssign>(
        &self,
        weights: &BTreeMap<&str, i64>,
        all: &BTreeMap<(String, S), N>,
        set: impl Fn(&M, N),
    ) {
        let mut most: Vec<(&str, i64)> = weights.iter().map(|(value, weight)| (*value, *weight)).collect();
        most.sort_by_key(|(value, weight)| (-weight, *value));
        let own: HashSet<&str> = most.iter().take(MAX_VALUES).map(|(value, _)| *value).collect();
        let mut now: BTreeMap<(Arc<str>, S), N> = BTreeMap::new();
        for ((value, others), number) in all {
            let value = if own.contains(&**value) { value } else { OTHER };
            *now.entry((Arc::from(value), others.clone())).or_default() += *number;
        }
        let label = |value: &Arc<str>| DynamicLabel { label: self.label, value: Arc::clone(value) };
        let mut series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        for (value, all) in &*series {
            for others in
                all.iter().filter(|others| !now.contains_key(&(Arc::clone(value), (*others).clone())))
            {
                self.family.remove(&(label(value), others.clone()));
            }
        }
        series.clear();
        for ((value, others), number) in now {
            set(&*self.family.get_or_create(&(label(&value), others.clone())), number);
            series.entry(value).or_default().insert(others);
        }
    }
}

impl<S, M> EncodeMetric for DynamicFamily<S, M>
where
    S: EncodeLabelSet + Clone + Eq + Hash,
    M: EncodeMetric + TypedMetric,
{
    fn encode(&self, encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        self.family.encode(encoder)
    }

    fn metric_type(&self) -> MetricType {
        self.family.metric_type()
    }

    fn is_empty(&self) -> bool {
        self.family.is_empty()
    }
}

impl<S, M> Describe for DynamicFamily<S, M>
where
    S: EncodeLabelSet + Clone + Default + Eq + Hash + fmt::Debug + Send + Sync + 'static,
    M: EncodeMetric + TypedMetric + Default + fmt::Debug + Send + Sync + 'static,
{
    fn describe(&self) {
        self.with("", S::default(), |_| {});
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::counter::Counter;

    use super::*;
    use crate::metrics::Metrics;

    #[derive(Clone, Debug, Default, Hash, PartialEq, PartialOrd, Ord, Eq, EncodeLabelSet)]
    struct ByAction {
        action: &'static str,
    }

    /// Every series of the metric, without its name.
    fn shown(metrics: &Metrics) -> Vec<String> {
        let text = metrics.encode();
        let lines = text.lines().filter_map(|line| line.strip_prefix("coppice_tries_total"));
        let mut lines: Vec<_> = lines.map(str::to_owned).collect();
        lines.sort();
        lines
    }

    fn registered<S>(label: &'static str) -> (DynamicFamily<S, Counter>, Metrics)
    where
        S: EncodeLabelSet + Clone + Default + Eq + Hash + fmt::Debug + Send + Sync + 'static,
    {
        let (family, metrics) = (DynamicFamily::new(label), Metrics::new("test"));
        metrics.register(|registry| registry.register("tries", "Tries", family.clone()));
        (family, metrics)
    }

    #[test]
    fn a_value_is_shown_until_it_is_removed() {
        let (tries, metrics) = registered("manager");
        for (manager, action) in [("a", "delete"), ("a", "wake"), ("a", "delete"), ("quote\"", "wake")] {
            tries.with(manager, ByAction { action }, |count| {
                count.inc();
            });
        }
        let a = [r#"{manager="a",action="delete"} 2"#, r#"{manager="a",action="wake"} 1"#];
        let quote = r#"{manager="quote\"",action="wake"} 1"#;
        assert_eq!(shown(&metrics), [a[0], a[1], quote]);
        tries.retain(|manager| manager != "a");
        assert_eq!(shown(&metrics), [quote]);
        tries.clone().with("a", ByAction { action: "wake" }, |count| {
            count.inc();
        });
        assert_eq!(shown(&metrics), [a[1], quote], "it begins at zero");
    }

    #[test]
    fn a_described_registry_shows_its_labels() {
        let (tries, metrics) = (DynamicFamily::<ByAction, Counter>::new("manager"), Metrics::described());
        metrics.register(|registry| registry.register("tries", "Tries", tries));
        assert_eq!(shown(&metrics), [r#"{manager="",action=""} 0"#]);
    }

    proptest::proptest! {
            /// Whatever is counted and removed in which order: a model of the first that came, and a bounded number of series.
            #[test]
            fn the_first_values_have_series_and_all_others_share_one(
                steps in proptest::collection::vec((0_u16..100, proptest::bool::weighted(0.02)), 1..400)
            ) {
                let (tries, metrics) = registered::<NoLabels>("manager");
                let (mut own, mut other) = (BTreeMap::<String, u64>::new(), 0_u64);
                for (n, remove) in steps {
                    let value = if n == 0 { OTHER.to_owned() } else { format!("m{n}") };
                    if remove {
                        tries.retain(|value| value.ends_with(['0', '5']));
                        own.retain(|value, _| value.ends_with(['0', '5']));
                        continue;
                    }
                    tries.with(&value, [], |count| {
     count.inc();
    });
                    if value != OTHER && (own.contains_key(&value) || own.len() < MAX_VALUES) {
                        *own.entry(value).or_default() += 1;
                    } else {
                        other += 1;
                    }
                }
                let others = (other > 0).then(|| (OTHER.to_owned(), other));
                let expected = own.into_iter().chain(others).map(|(v, n)| format!("{{manager=\"{v}\"}} {n}"));
                let mut expected: Vec<_> = expected.collect();
                expected.sort();
                proptest::prop_assert!(expected.len() <= MAX_VALUES + 1);
                proptest::prop_assert_eq!(shown(&metrics), expected);
            }
        }

    #[test]
    fn what_is_counted_again_is_set_and_the_most_have_series_of_their_own() {
        let (gauges, metrics) = (DynamicFamily::<ByAction, Gauge>::new("owner"), Metrics::new("test"));
        metrics.register(|registry| registry.register("owned", "help", gauges.clone()));
        let by = |action| ByAction { action };
        let mut counts: BTreeMap<_, _> =
            (0..70).map(|n| ((format!("o-{n:02}"), by("a")), if n >= 60 { 2 } else { 1 })).collect();
        counts.insert(("o-60".to_owned(), by("b")), 5);
        gauges.set_all(&counts);
        let text = metrics.encode();
        assert!(text.contains("coppice_owned{owner=\"o-60\",action=\"b\"} 5"), "{text}");
        assert!(text.contains("coppice_owned{owner=\"o-69\",action=\"a\"} 2"), "the most come first: {text}");
        assert!(text.contains("coppice_owned{owner=\"other\",action=\"a\"} 6"), "{text}");
        assert_eq!(text.lines().filter(|line| line.starts_with("coppice_owned{")).count(), MAX_VALUES + 2);
        gauges.set_all(&BTreeMap::from([(("o-60".to_owned(), by("a")), 3)]));
        let text = metrics.encode();
        let series: Vec<_> = text.lines().filter(|line| line.starts_with("coppice_owned{")).collect();
        assert_eq!(series, ["coppice_owned{owner=\"o-60\",action=\"a\"} 3"]);
    }
}
