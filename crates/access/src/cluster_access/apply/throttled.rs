//! What follows where a target or a garden has too many requests (429): for a while nothing more is asked of it, by nobody.

use super::Work;
use crate::target::{Failure, Target, wait_ends};
use crate::targets::Source;

impl Work<'_> {
    /// What status says of a failure. If it is that there are too many requests, the target of this kubeconfig is asked for nothing until it may be
    /// again, and the budget of its provider waits. A Shoot has requests of its own: the budget is that of its garden.
    pub(super) fn throttle(&self, (source, target): (&Source, &Target), failure: Failure) -> Failure {
        let Some(wait) = target.asks_to_wait(&failure) else { return failure };
        let (controller, until) = (self.controller, wait_ends(self.controller.now(), wait));
        controller.targets.throttle(source, wait);
        let provider = self.observed.spec.cluster.provider_name().filter(|_| source.shoot().is_none());
        if let Some(provider) = provider {
            controller.providers.budgets.throttle(provider, until);
        }
        let message = format!("{}; nothing is asked of it before {until}", failure.message);
        Failure { message, ..failure }
    }
}
