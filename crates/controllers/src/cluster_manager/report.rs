//! Reports what went wrong. What there is, is in status.

use super::apply::StatusError;

/// Logs that a status was not written.
pub(super) fn failed(error: &StatusError) {
    if error.is_race() {
        tracing::debug!(%error, "the status is decided again");
    } else {
        tracing::warn!(%error, "the status was not written");
    }
}
