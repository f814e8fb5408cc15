//! Reports what is in force: metrics, Events and logs.

use coppice_api::Reason;
use coppice_api::config::Breaker;
use coppice_kinds::Configs;

use super::observe::Observation;
use crate::context::ControllerContext;
use crate::reference::reference;

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

/// Reports that the breaker of the ledger was opened or closed between two observations.
pub(super) fn breaker_changed(shared: &ControllerContext, before: &Observation, after: &Observation) {
    let (Some(old), Some(config)) = (&before.config, &after.config) else { return };
    let (known, now) = (old.status.governor.breaker.as_ref(), config.status.governor.breaker.as_ref());
    // Of settings that were deleted and created again, the breaker was not closed by anybody.
    if known == now || old.uid != config.uid {
        return;
    }
    let publish = |reason: Reason, note: String| {
        let warning = reason == Reason::BreakerOpen;
        tracing::warn!(%reason, "CoppiceConfig/coppice: {note}");
        shared.events.publish(reference::<Configs>(config), warning, reason.as_str(), "Govern", &note);
    };
    if let Some(Breaker { id, .. }) = known {
        publish(Reason::BreakerClosed, format!("{id} was acknowledged: it stops no step any more"));
    }
    if let Some(Breaker { id, message, .. }) = now {
        let note = format!("{message}; no step is taken until somebody runs `coppice acknowledge {id}`");
        publish(Reason::BreakerOpen, note);
    }
}
