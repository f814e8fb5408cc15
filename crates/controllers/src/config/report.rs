//! Reports what is in force: metrics and logs.

use coppice_api::Reason;

use super::observe::Observation;
use crate::context::ControllerContext;

pub(super) fn report(shared: &ControllerContext, observation: &Observation) {
    let Some(config) = &observation.config else {
        let reason = Reason::SettingsMissing;
        tracing::error!(%reason, "CoppiceConfig/coppice does not exist: nothing is done until it is created again");
        shared.lifecycle_metrics.governor(0, 0);
        return;
    };
    let budget = &config.status.governor;
    shared.lifecycle_metrics.governor(budget.last_hour.into(), budget.hourly_limit.into());
    for condition in config.status.conditions.iter().filter(|c| c.status == "False") {
        tracing::warn!(reason = %condition.reason, "CoppiceConfig/coppice: {}", condition.message);
    }
}
