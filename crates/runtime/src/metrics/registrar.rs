//! Registers metrics so that all of them can be described.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::atomic::AtomicU64;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::TypedMetric;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry, Unit};

/// A metric that can show its labels before anything is measured. A family without series is not encoded at all.
pub trait Describe: Metric {
    /// Gives the metric a series if it may have none.
    fn describe(&self);
}

impl Describe for Counter {
    fn describe(&self) {}
}

impl Describe for Gauge {
    fn describe(&self) {}
}

impl Describe for Gauge<f64, AtomicU64> {
    fn describe(&self) {}
}

impl Describe for Histogram {
    fn describe(&self) {}
}

impl<S> Describe for Info<S>
where
    S: EncodeLabelSet + Clone + Hash + Eq + Debug + Send + Sync + 'static,
{
    fn describe(&self) {}
}

impl<S, M, C> Describe for Family<S, M, C>
where
    S: EncodeLabelSet + Clone + Default + Hash + Eq + Debug + Send + Sync + 'static,
    M: EncodeMetric + TypedMetric + Debug + Send + Sync + 'static,
    C: MetricConstructor<M> + Debug + Send + Sync + 'static,
{
    fn describe(&self) {
        let _ = self.get_or_create(&S::default());
    }
}

/// Where metrics are registered, by [`Metrics::register`](super::Metrics::register).
#[derive(Debug)]
pub struct Registrar<'a> {
    registry: &'a mut Registry,
    described: bool,
}

impl<'a> Registrar<'a> {
    pub(super) fn new(registry: &'a mut Registry, described: bool) -> Self {
        Self { registry, described }
    }

    /// Registers a metric. The name is without prefix and without the suffix of its type; the help text is a sentence in
    /// Markdown without its full stop.
    pub fn register(&mut self, name: &str, help: &str, metric: impl Describe) {
        self.describe(&metric);
        self.registry.register(name, help, metric);
    }

    /// The same with a unit, which is appended to the name.
    pub fn register_with_unit(&mut self, name: &str, help: &str, unit: Unit, metric: impl Describe) {
        self.describe(&metric);
        self.registry.register_with_unit(name, help, unit, metric);
    }

    pub(super) fn register_collector(&mut self, collector: impl Collector) {
        self.registry.register_collector(Box::new(collector));
    }

    fn describe(&self, metric: &impl Describe) {
        if self.described {
            metric.describe();
        }
    }
}
