//! Reports what has happened: Events and log.

use coppice_api::Reason;
use coppice_clusters::valid_until;
use coppice_clusters_api::names::LABEL_ACCESS;
use coppice_clusters_api::{Cause, ClusterAccessStatus};
use coppice_runtime::object::reference;

use super::{AccessKey, ClusterAccessController};
use crate::kinds::{Access, ClusterAccesses};
use crate::metrics::blocked_by;

/// What Events say was being done.
const ACTION: &str = "KeepCredential";

/// Reports what a status that was written says and the one before did not.
pub(super) fn saved(controller: &ClusterAccessController, access: &Access, before: &ClusterAccessStatus) {
    let after = &access.status;
    controller.metrics.newly_blocked(why(before), why(after));
    if after.credential != before.credential
        && let (Some(credential), Some(not_after)) = (&after.credential, after.not_after)
    {
        let now = controller.now();
        let intent = before.intent.as_ref();
        let (cause, since) = intent.map_or((Cause::First, now), |intent| (intent.cause, intent.since));
        controller.metrics.issued(cause, now.duration_since(since));
        let first = before.credential.is_none();
        let reason = if first { Reason::CredentialIssued } else { Reason::CredentialRotated };
        let secret = access.spec.as_ref().map_or("", |spec| spec.output.secret.as_str());
        let message =
            format!("The Secret {secret} holds credential {credential}, which is valid until {not_after}");
        publish(controller, access, false, reason.as_str(), &message);
    }
    // With another credential none is revoked: one that has expired makes room for it.
    let is_replaced = after.credential.is_some() && after.credential != before.credential;
    for credential in before.superseded.iter().filter(|credential| !after.superseded.contains(credential)) {
        if is_replaced {
            expired(access, credential);
        } else {
            revoked(controller, access, credential);
        }
    }
    withdrawn(controller, access, before);
    let Some(error) = after.last_error.as_ref().filter(|_| after.last_error != before.last_error) else {
        return;
    };
    controller.metrics.failed(&error.reason);
    if let Some(other) = &error.other {
        controller.metrics.failed(&other.reason);
    }
    // The first attempt of several with this reason: the others are in status.
    let same = before.last_error.as_ref().is_some_and(|before| before.reason == error.reason);
    if error.attempts == 1 || !same {
        publish(controller, access, true, &error.reason, &error.message);
    }
}

/// Why nothing is issued, or what fails beside a credential that is valid.
fn why(status: &ClusterAccessStatus) -> Option<&str> {
    blocked_by(status.last_error.as_ref().map(|error| error.reason.as_str()), &status.conditions)
}

/// Reports what was taken away since its `ClusterProvider` does not allow it any more.
fn withdrawn(controller: &ClusterAccessController, access: &Access, before: &ClusterAccessStatus) {
    let after = &access.status;
    let Some(error) = &after.last_error else { return };
    let of_rights = before.observed_generation.is_some() && after.observed_generation.is_none();
    let of_credential = before.credential.is_some() && after.credential.is_none();
    for what in [
        of_rights.then_some("its roles and bindings in the target are removed"),
        of_credential.then_some("its credential is revoked"),
    ]
    .into_iter()
    .flatten()
    {
        controller.metrics.withdrawn();
        let message = format!("{what}, since they are not allowed any more: {}", error.message);
        publish(controller, access, true, Reason::NotAllowed.as_str(), &message);
    }
}

/// Reports that a superseded credential is not valid any more: once, when status says so, however often it was revoked until then.
fn revoked(controller: &ClusterAccessController, access: &Access, credential: &str) {
    controller.metrics.revoked();
    tracing::info!(namespace = %access.namespace, access = %access.name, credential, "the credential is revoked");
}

/// Reports that a superseded credential has expired, and is listed no more.
fn expired(access: &Access, credential: &str) {
    tracing::warn!(
        namespace = %access.namespace, access = %access.name, credential,
        "the credential has expired; the Secret that it was bound to could not be deleted, and stays in the target until the ClusterAccess is deleted"
    );
}

/// Reports the end of an access; if it could not be revoked, why, and until when certificates are valid that nobody can revoke.
pub(super) fn ended(controller: &ClusterAccessController, access: &Access, skipped: Option<&str>) {
    let is_of_garden = access.spec.as_ref().is_ok_and(|spec| spec.issuer.is_of_garden());
    let valid = valid_until(&access.status).filter(|until| *until > controller.now());
    if let Some(endings) = &controller.endings {
        endings.add(access, skipped, valid.filter(|_| is_of_garden || skipped.is_some()));
    }
    let until = valid.filter(|_| is_of_garden);
    let Some(why) = skipped else {
        let Some(until) = until else {
            tracing::info!(namespace = %access.namespace, access = %access.name, "its credential is revoked; it is gone");
            return;
        };
        let message = format!(
            "Its Secret is deleted. What Gardener issued for it cannot be revoked: the last certificate is valid until {until}"
        );
        return publish(controller, access, true, Reason::CertificatesRemain.as_str(), &message);
    };
    controller.metrics.skipped();
    let cluster = access.status.target.as_ref();
    let cluster =
        cluster.map_or(String::new(), |target| format!(" whose kube-system has the uid {}", target.uid));
    let message = format!(
        "It could not be revoked, or not completely, for as long as spec.forgetAfter says: {why}. What has the label {LABEL_ACCESS}={} in the cluster{cluster} stays, and \
         its credential is valid until it expires",
        access.uid
    );
    publish(controller, access, true, Reason::RevocationSkipped.as_str(), &message);
}

fn publish(
    controller: &ClusterAccessController,
    access: &Access,
    warning: bool,
    reason: &str,
    message: &str,
) {
    tracing::info!(namespace = %access.namespace, access = %access.name, reason, "{message}");
    let of = (reference::<ClusterAccesses>(access), access.generation);
    controller.events.publish_of_spec(of, warning, reason, ACTION, message);
}

/// Reports an object that is left alone because it was written by another version, or past the API server's checks.
pub(super) fn not_understood(key: &AccessKey, error: &str) {
    tracing::error!(access = %key, "{error}; nothing is done: correct it, or run the version of Coppice that wrote it");
}

/// Reports that something was not done.
pub(super) fn failed(key: &AccessKey, error: &str) {
    tracing::warn!(access = %key, error, "not done; it is tried again");
}
