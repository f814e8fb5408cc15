//! Reports what has happened: Events and log.

use coppice_api::condition::{self, Condition, READY};
use coppice_clusters_api::ClusterProviderStatus;
use coppice_runtime::object::reference;

use super::ClusterProviderController;
use crate::kinds::{ClusterProviders, Provider};
use crate::metrics::blocked_by;

/// What Events say was being done.
const ACTION: &str = "CheckKubeconfig";

/// Reports that its kubeconfig can be used, or no longer, or why not any more.
pub(super) fn saved(
    controller: &ClusterProviderController,
    provider: &Provider,
    before: &ClusterProviderStatus,
) {
    let Some(ready) = condition::find(&provider.status.conditions, READY) else { return };
    controller.metrics.newly_blocked(blocked_by(None, &before.conditions), Some(&ready.reason));
    if condition::find(&before.conditions, READY).is_some_and(|before| says_the_same(before, ready)) {
        return;
    }
    tracing::info!(provider = %provider.name, reason = ready.reason.as_str(), "{}", ready.message);
    let warning = ready.status != "True";
    controller.events.publish_of_spec(
        (reference::<ClusterProviders>(provider), provider.generation),
        warning,
        &ready.reason,
        ACTION,
        &ready.message,
    );
}

/// Whether a condition says what was said before: why another spec cannot be used is something else.
fn says_the_same(before: &Condition, ready: &Condition) -> bool {
    let of_one_spec = before.observed_generation == ready.observed_generation;
    before.reason == ready.reason && (of_one_spec || ready.status == "True")
}

/// Reports an object that is left alone because it was written by another version, or past the API server's checks.
pub(super) fn not_understood(name: &str, error: &str) {
    tracing::error!(
        provider = name,
        "{error}; nothing is issued by it: correct it, or run the version of Coppice that wrote it"
    );
}

/// Reports a status that is left alone because it was written by another version. What its spec allows is issued.
pub(super) fn status_not_understood(name: &str, error: &str) {
    tracing::error!(
        provider = name,
        "{error}; it is left as it is, and says nothing new: run the version of Coppice that wrote it"
    );
}

/// Reports that its status could not be written.
pub(super) fn failed(name: &str, error: &str) {
    tracing::warn!(provider = name, error, "its status is not written; it is tried again");
}

#[cfg(test)]
mod tests {
    use coppice_api::Reason;
    use coppice_api::condition::ConditionState;

    use super::*;

    /// `Ready` of a spec of this generation.
    fn ready(status: &'static str, reason: Reason, generation: i64) -> Condition {
        let mut conditions = Vec::new();
        let state = ConditionState { status, reason: reason.to_string(), message: "m".to_owned() };
        condition::set(&mut conditions, READY, state, generation, jiff::Timestamp::UNIX_EPOCH);
        conditions.remove(0)
    }

    #[test]
    fn why_another_spec_cannot_be_used_is_said_and_that_it_can_is_said_once() {
        let missing = |generation| ready("False", Reason::KubeconfigMissing, generation);
        let usable = |generation| ready("True", Reason::KubeconfigUsable, generation);
        assert!(says_the_same(&missing(1), &missing(1)));
        assert!(!says_the_same(&missing(1), &missing(2)));
        assert!(!says_the_same(&missing(1), &ready("False", Reason::KubeconfigRefused, 1)));
        assert!(says_the_same(&usable(1), &usable(2)));
        assert!(!says_the_same(&usable(1), &missing(1)));
    }
}
