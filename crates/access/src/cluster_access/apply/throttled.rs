//! What follows where a target or a garden has too many requests (429): for a while nothing more is asked of it, by nobody.

use super::Work;
use crate::target::{Failure, Target, wait_ends};
use crate::targets::Source;

impl Work<'_> {
    /// What status says of a failure. If it is that there are too many requests, the target of this kubeconfig is asked for nothing until it may be
    /// again, and the budget of its provider waits, or, without one, that of the target: so that the most urgent go first then. A Shoot has requests
    /// of its own: the budget is that of its garden.
    pub(super) fn throttle(&self, (source, target): (&Source, &Target), failure: Failure) -> Failure {
        let Some(wait) = target.asks_to_wait(&failure) else { return failure };
        let (controller, until) = (self.controller, wait_ends(self.controller.now(), wait));
        controller.targets.throttle(source, wait);
        match self.observed.spec.cluster.provider_name() {
            Some(provider) if source.shoot().is_none() => {
                controller.providers.budgets.throttle(provider, until);
            }
            Some(_) => {}
            None => controller.targets.turns.throttle(source, until),
        }
        let message = format!("{}; nothing is asked of it before {until}", failure.message);
        Failure { message, ..failure }
    }
}
