//! The sentences of messages: written once here, laid out by the templates.

use coppice_api::losses::{LostLoadBalancer, LostVolume};
use coppice_api::notify::MessageAbout;
use coppice_api::{FailingObject, Losses};
use coppice_lifecycle::message::MessageContent;
use jiff::Timestamp;

use crate::escape::cut;
use crate::times;

/// The most lines about losses.
const MAX_LINES: usize = 20;
/// The most characters of a line.
const MAX_LINE: usize = 400;

/// What happens.
pub(crate) fn what(content: &MessageContent) -> String {
    let namespace = &content.namespace;
    match (content.about, &content.successor) {
        (MessageAbout::DeletionAnnounced, _) if content.observing => {
            format!("Namespace {namespace} would be deleted")
        }
        (MessageAbout::DeletionAnnounced, _) => format!("Namespace {namespace} will be deleted"),
        (MessageAbout::NoticeWithdrawn, _) => {
            format!("Namespace {namespace} will not be deleted as announced")
        }
        (MessageAbout::Unstable, _) => format!("Namespace {namespace} has failing workloads"),
        (MessageAbout::Failing, _) => format!("Namespace {namespace} is failing"),
        (MessageAbout::Failed, _) => format!("Namespace {namespace} has failed"),
        (MessageAbout::Stale, _) => format!("Namespace {namespace} has expired"),
        (MessageAbout::Superseded, Some(successor)) => {
            format!("Namespace {successor} has taken the place of namespace {namespace}")
        }
        (MessageAbout::Superseded, None) => {
            format!("A later namespace has taken the place of namespace {namespace}")
        }
        (MessageAbout::Recovered, _) => format!("Nothing fails in namespace {namespace} any more"),
        (MessageAbout::Expiring, _) => format!("Namespace {namespace} expires soon"),
        (MessageAbout::Deleted, _) => format!("Namespace {namespace} has been deleted"),
    }
}

/// When that happens; none where it has no time of its own.
pub(crate) fn when(content: &MessageContent, now: Timestamp) -> Option<String> {
    match content.about {
        // Notice runs from the delivery of this message, so that the deletion may come later.
        MessageAbout::DeletionAnnounced => {
            let deletion = content.deletion.as_ref()?;
            Some(format!("not before {}", times::both(deletion.at, now)))
        }
        MessageAbout::Deleted => Some(times::both(content.deletion.as_ref()?.at, now)),
        MessageAbout::Stale | MessageAbout::Expiring => Some(times::both(content.expires_at?, now)),
        MessageAbout::NoticeWithdrawn
        | MessageAbout::Unstable
        | MessageAbout::Failing
        | MessageAbout::Failed
        | MessageAbout::Superseded
        | MessageAbout::Recovered => None,
    }
}

/// That nothing will be deleted, if that is so.
pub(crate) fn observation(content: &MessageContent) -> Option<String> {
    let manager = &content.manager;
    content.observing.then(|| {
        format!("Nothing will be deleted: cluster manager {manager} deletes no namespaces at present")
    })
}

/// What fails, why and for how long.
pub(crate) fn failing(one: &FailingObject, now: Timestamp) -> String {
    let mut line = format!("{} {}: {}", one.kind, one.name, one.reason);
    if let Some(lasted) = times::lasted(one.since, now) {
        line.push_str(" for ");
        line.push_str(&lasted);
    }
    if !one.message.is_empty() {
        line.push_str(": ");
        line.push_str(&one.message);
    }
    cut(&line, MAX_LINE)
}

/// What becomes of what is outside of the namespace, line by line.
pub(crate) fn losses(losses: &Losses) -> Vec<String> {
    let volumes = losses.volumes.iter().map(volume);
    let load_balancers = losses.load_balancers.iter().map(load_balancer);
    let finalizers = losses.finalizers.iter().map(|one| {
        let owner = "the namespace stays Terminating until the owner of the finalizer removes it";
        format!("finalizer {} of {} {}: {owner}", one.finalizer, one.kind, one.name)
    });
    let mut lines: Vec<_> = volumes.chain(load_balancers).chain(finalizers).collect();
    let unlisted = lines.len().saturating_sub(MAX_LINES);
    lines.truncate(MAX_LINES);
    let more = u64::from(losses.more.unwrap_or(0)).saturating_add(unlisted as u64);
    if more > 0 {
        lines.push(format!("{more} more that this message does not list"));
    }
    if !losses.unknown.is_empty() {
        lines.push(format!("what else is lost is not known: {}", losses.unknown.join("; ")));
    }
    lines.iter().map(|line| cut(line, MAX_LINE)).collect()
}

fn volume(one: &LostVolume) -> String {
    let capacity = one.capacity.as_ref().map(|capacity| format!(" ({capacity})")).unwrap_or_default();
    let end = match (one.stays(), &one.reclaim_policy) {
        (true, _) => {
            return format!("volume {} of claim {}{capacity}: retained", one.volume, one.claim);
        }
        (false, Some(_)) => "",
        (false, None) => ", unless its reclaim policy, which is not known, is Retain",
    };
    format!("volume of claim {}{capacity}: deleted with its data{end}", one.claim)
}

fn load_balancer(one: &LostLoadBalancer) -> String {
    if one.addresses.is_empty() {
        return format!("load balancer of Service {}: removed", one.service);
    }
    format!(
        "load balancer of Service {}: removed with its addresses: {}",
        one.service,
        one.addresses.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use coppice_api::losses::ForeignFinalizer;

    use super::*;

    #[test]
    fn each_loss_says_what_becomes_of_it() {
        let volume = |claim: &str, policy: Option<&str>| LostVolume {
            claim: claim.to_owned(),
            volume: format!("pv-{claim}"),
            capacity: Some("20Gi".to_owned()),
            reclaim_policy: policy.map(str::to_owned),
        };
        let web = |addresses: &[&str]| LostLoadBalancer {
            service: "web".to_owned(),
            addresses: addresses.iter().map(|&address| address.to_owned()).collect(),
        };
        let all = Losses {
            volumes: vec![volume("a", Some("Delete")), volume("b", Some("Retain")), volume("c", None)],
            load_balancers: vec![web(&["192.0.2.1", "192.0.2.2"]), web(&[])],
            finalizers: vec![ForeignFinalizer {
                finalizer: "example.com/cleanup".to_owned(),
                kind: "Service".to_owned(),
                name: "web".to_owned(),
            }],
            more: Some(2),
            unknown: vec!["volumes: forbidden".to_owned()],
        };
        assert_eq!(
            losses(&all),
            [
                "volume of claim a (20Gi): deleted with its data",
                "volume pv-b of claim b (20Gi): retained",
                "volume of claim c (20Gi): deleted with its data, unless its reclaim policy, which is not known, is Retain",
                "load balancer of Service web: removed with its addresses: 192.0.2.1, 192.0.2.2",
                "load balancer of Service web: removed",
                "finalizer example.com/cleanup of Service web: the namespace stays Terminating until the owner of the finalizer removes it",
                "2 more that this message does not list",
                "what else is lost is not known: volumes: forbidden",
            ]
        );
        assert!(losses(&Losses::default()).is_empty());
    }

    #[test]
    fn many_losses_are_counted() {
        let one = LostLoadBalancer { service: "web".to_owned(), addresses: Vec::new() };
        let many = Losses { load_balancers: vec![one; MAX_LINES + 3], more: Some(4), ..Losses::default() };
        let lines = losses(&many);
        assert_eq!(lines.len(), MAX_LINES + 1);
        assert_eq!(lines.last().map(String::as_str), Some("7 more that this message does not list"));
    }
}
