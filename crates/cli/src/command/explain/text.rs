//! An explanation for people.

use anyhow::Result;
use coppice_api::losses::ForeignFinalizer;
use coppice_api::manager::{Firing, Notice, Phase, PodsSucceed, Verdict};
use coppice_api::names::FINALIZER;
use coppice_api::{Losses, ScaledWorkload};
use coppice_lifecycle::{PolicyAction, PolicyCondition, TtlEnd};
use jiff::Timestamp;

use super::{Explanation, PolicyExplanation};
use crate::Io;
use crate::print::{self, ERROR, HEADING, OK, WARNING, phase_style};
use crate::terminal::{PLAIN, Screen};

/// `after`: whether something stands above already.
pub(super) fn write(all: &[Explanation], after: bool, at: Timestamp, io: &mut Io<'_>) -> Result<()> {
    let to = &mut io.screen();
    for (index, one) in all.iter().enumerate() {
        if after || index > 0 {
            writeln!(to)?;
        }
        head(one, at, to)?;
        next(one, at, to)?;
        policies(one, at, to)?;
        why_not(one, to)?;
        stops(one, to)?;
        past(one, at, to)?;
    }
    Ok(())
}

pub(super) fn heading(to: &mut Screen<'_>, text: &str) -> Result<()> {
    writeln!(to)?;
    to.put(text, HEADING)?;
    Ok(writeln!(to)?)
}

fn head(one: &Explanation, at: Timestamp, to: &mut Screen<'_>) -> Result<()> {
    let item = &one.item;
    let name = format!("{}/{}", item.namespace, item.manager);
    to.put("NamespaceManager", HEADING)?;
    to.put(" ", PLAIN)?;
    to.put(&name, HEADING)?;
    writeln!(to)?;
    to.put("  Phase:      ", PLAIN)?;
    to.put(item.phase.map_or("-", Phase::as_str), phase_style(item.phase))?;
    writeln!(to)?;
    if let (Some(created), Some(uid)) = (one.namespace_created, &one.namespace_uid) {
        writeln!(to, "  Namespace:  created {}, uid {uid}", print::instant_from(created, at))?;
    } else {
        to.put("  Namespace:  ", PLAIN)?;
        to.put("could not be read", WARNING)?;
        writeln!(to)?;
    }
    if let Some(limits) = &one.limits {
        writeln!(to, "  Limits:     {limits}")?;
    }
    if let Some(until) = one.extended_until {
        writeln!(to, "  Extended:   no ttl ends before {}", print::instant_from(until, at))?;
    }
    Ok(())
}

fn next(one: &Explanation, at: Timestamp, to: &mut Screen<'_>) -> Result<()> {
    heading(to, "What will happen")?;
    let item = &one.item;
    let Some(action) = &item.action else {
        writeln!(to, "  Nothing: {} [{}]", item.message, item.reason)?;
        return Ok(());
    };
    let when = match (item.now, item.due) {
        (true, _) => " now".to_owned(),
        (false, Some(due)) => format!(" at {}", print::instant_from(due, at)),
        (false, None) if item.phase == Some(Phase::Pending) => {
            " as soon as nothing stands in the way".to_owned()
        }
        (false, None) => " when its condition holds".to_owned(),
    };
    let step = NextText {
        action,
        policy: item.policy.as_deref(),
        when: &when,
        now: item.now,
        message: &item.message,
        reason: &item.reason,
    };
    step.write(to)?;
    last_error(one.last_error.as_deref(), to)?;
    notice(one.notice.as_ref(), at, to)
}

/// What will be done.
pub(super) struct NextText<'a> {
    pub(super) action: &'a str,
    pub(super) policy: Option<&'a str>,
    /// As it continues the sentence.
    pub(super) when: &'a str,
    pub(super) now: bool,
    pub(super) message: &'a str,
    pub(super) reason: &'a str,
}

impl NextText<'_> {
    pub(super) fn write(&self, to: &mut Screen<'_>) -> Result<()> {
        let what = match self.action {
            "delete" => "The namespace is deleted",
            "scaleDown" => "Workloads are scaled down",
            "webhook" => "The webhook is called",
            "wake" => "Workloads are woken",
            other => other,
        };
        let policy = self.policy.map_or_else(String::new, |policy| format!(", by policy {policy:?}"));
        to.put(&format!("  {what}"), PLAIN)?;
        to.put(self.when, if self.now { ERROR } else { PLAIN })?;
        writeln!(to, "{policy}.")?;
        Ok(writeln!(to, "  Because: {} [{}]", self.message, self.reason)?)
    }
}

pub(super) fn last_error(error: Option<&str>, to: &mut Screen<'_>) -> Result<()> {
    let Some(error) = error else { return Ok(()) };
    to.put("  ", PLAIN)?;
    to.put("The last attempt failed:", ERROR)?;
    Ok(writeln!(to, " {error}")?)
}

pub(super) fn notice(notice: Option<&Notice>, at: Timestamp, to: &mut Screen<'_>) -> Result<()> {
    let Some(notice) = notice else { return Ok(()) };
    let given = print::instant_from(notice.given_at, at);
    let not_before = print::instant_from(notice.not_before, at);
    Ok(writeln!(to, "  Notice: given {given}; no deletion before {not_before}")?)
}

/// What is lost with the namespace, if that was looked at.
pub(super) fn losses(losses: Option<&Losses>, to: &mut Screen<'_>) -> Result<()> {
    let Some(losses) = losses else { return Ok(()) };
    heading(to, "What is lost with the namespace")?;
    if losses.is_empty() {
        return Ok(writeln!(
            to,
            "  no volume, no load balancer of a Service, and no finalizer of others delays its deletion; what other controllers keep outside \
             for objects in it is not known"
        )?);
    }
    for volume in &losses.volumes {
        let capacity = volume.capacity.as_ref().map_or_else(String::new, |capacity| format!(", {capacity}"));
        let fate = match volume.reclaim_policy.as_deref() {
            Some("Retain") => "stays without a claim (its reclaim policy is Retain)".to_owned(),
            Some(policy) => format!("is lost (its reclaim policy is {policy})"),
            None => "is lost, unless its reclaim policy, which is not known, is Retain".to_owned(),
        };
        writeln!(to, "  PersistentVolume {} (claim {}{capacity}) {fate}", volume.volume, volume.claim)?;
    }
    for balancer in &losses.load_balancers {
        let addresses = match balancer.addresses.as_slice() {
            [] => String::new(),
            addresses => format!(" ({})", addresses.join(", ")),
        };
        writeln!(to, "  the load balancer of Service {}{addresses}", balancer.service)?;
    }
    for finalizer in &losses.finalizers {
        writeln!(to, "  {}", what_delays(finalizer))?;
    }
    if let Some(more) = losses.more {
        writeln!(to, "  and {more} more of these")?;
    }
    for unknown in &losses.unknown {
        to.put("  not known: ", WARNING)?;
        writeln!(to, "{unknown}")?;
    }
    Ok(())
}

/// What a finalizer delays the deletion of a namespace for.
fn what_delays(ForeignFinalizer { finalizer, kind, name }: &ForeignFinalizer) -> String {
    let first = match kind.as_str() {
        "ManagedCluster" => "its cluster is deleted",
        "ClusterAccess" => "its credential is revoked",
        _ => "",
    };
    if finalizer == FINALIZER && !first.is_empty() {
        return format!("{kind} {name}: {first}, and the namespace is not gone before that");
    }
    format!(
        "{kind} {name} has the finalizer {finalizer}: the namespace is not gone before its owner removes it"
    )
}

/// What is scaled down, and the command that undoes it.
pub(super) fn scaled_down(workloads: &[ScaledWorkload], undo: &str, to: &mut Screen<'_>) -> Result<()> {
    if workloads.is_empty() {
        return Ok(());
    }
    heading(to, &format!("Scaled down (`{undo}` undoes it)"))?;
    for workload in workloads {
        let had = workload.replicas.map_or_else(
            || "was not suspended".to_owned(),
            |n| format!("had {}", print::count(usize::try_from(n).unwrap_or(0), "replica")),
        );
        let reverted = match usize::try_from(workload.reverted) {
            Ok(0) | Err(_) => String::new(),
            Ok(times) => format!("; something had scaled it up again {} before", print::count(times, "time")),
        };
        writeln!(to, "  {}/{}: {had}{reverted}", workload.kind, workload.name)?;
    }
    Ok(())
}

fn policies(one: &Explanation, at: Timestamp, to: &mut Screen<'_>) -> Result<()> {
    if one.policies.is_empty() {
        return Ok(());
    }
    heading(to, "Policies (in order; the first whose condition holds fires)")?;
    for (index, policy) in one.policies.iter().enumerate() {
        let (verdict, style) = match policy.result {
            Verdict::True => ("true", OK),
            Verdict::False => ("false", PLAIN),
            Verdict::Unknown => ("unknown", WARNING),
        };
        writeln!(
            to,
            "  {}. {:?}: {}, then {}",
            index + 1,
            policy.policy.name,
            when(&policy.policy.condition),
            then(&policy.policy.action)
        )?;
        let since =
            policy.since.map_or_else(String::new, |s| format!(", since {}", print::instant_from(s, at)));
        let due = due(policy, at);
        to.put("     ", PLAIN)?;
        to.put(verdict, style)?;
        writeln!(to, ": {} [{}]{since}{due}", policy.message, policy.reason)?;
    }
    Ok(())
}

fn due(policy: &PolicyExplanation, at: Timestamp) -> String {
    // Of a policy that is true, the message has named the date.
    let due = policy.due.filter(|_| policy.result != Verdict::True);
    due.map_or_else(String::new, |due| format!(", {}", print::relative(due, at)))
}

fn why_not(one: &Explanation, to: &mut Screen<'_>) -> Result<()> {
    if one.policies.iter().all(|p| p.why_not.is_none()) {
        return Ok(());
    }
    heading(to, "Why not now")?;
    for policy in &one.policies {
        if let Some(why) = &policy.why_not {
            writeln!(to, "  {:?}: {why}", policy.policy.name)?;
        }
    }
    Ok(())
}

fn stops(one: &Explanation, to: &mut Screen<'_>) -> Result<()> {
    if one.stops.is_empty() {
        return Ok(());
    }
    heading(to, "What stands in the way")?;
    for stop in &one.stops {
        writeln!(to, "  {} [{}]", stop.message, stop.reason)?;
    }
    Ok(())
}

pub(super) fn last_firing(firing: &Firing, number: i64, at: Timestamp, to: &mut Screen<'_>) -> Result<()> {
    heading(to, "Last firing")?;
    writeln!(
        to,
        "  Number {number}, {} by policy {:?} at {}",
        firing.action,
        firing.policy,
        print::instant_from(firing.at, at)
    )?;
    let message = firing.message.as_deref().unwrap_or("-");
    writeln!(to, "  Result:    {message} [{}]", firing.result)?;
    writeln!(to, "  Because:   {}", firing.reason)?;
    let evidence: Vec<String> = firing.evidence.iter().map(|(k, v)| format!("{k}: {v}")).collect();
    if !evidence.is_empty() {
        writeln!(to, "  Evidence:  {}", evidence.join("; "))?;
    }
    Ok(writeln!(to, "  Decision:  {}", firing.id)?)
}

fn past(one: &Explanation, at: Timestamp, to: &mut Screen<'_>) -> Result<()> {
    if let Some(firing) = &one.last_firing {
        last_firing(firing, one.firings, at, to)?;
    }
    let undo = format!("coppice wake {}/{}", one.item.namespace, one.item.manager);
    scaled_down(&one.scaled_down, &undo, to)
}

/// A condition in one line.
fn when(condition: &PolicyCondition) -> String {
    match condition {
        PolicyCondition::Ttl(TtlEnd::After(after)) => format!("ttl of {after}"),
        PolicyCondition::Ttl(TtlEnd::Until(until)) => format!("ttl until {}", print::instant(*until)),
        PolicyCondition::PodsSucceed(pods) => when_pods_succeed(pods),
    }
}

/// The success of pods, as a condition.
pub(super) fn when_pods_succeed(pods: &PodsSucceed) -> String {
    let which = pods
        .selector
        .as_ref()
        .map_or_else(|| "every pod".to_owned(), |s| format!("pods with {}", s.to_query()));
    let mut text =
        format!("when {which} succeeded (initial delay {}, at least {}", pods.initial_delay, pods.min_pods);
    if !pods.settle.is_zero() {
        text = format!("{text}, settled for {}", pods.settle);
    }
    format!("{text})")
}

/// An action in one line.
fn then(action: &PolicyAction) -> String {
    match action {
        PolicyAction::Delete { notice } if notice.is_zero() => "delete the namespace".to_owned(),
        PolicyAction::Delete { notice } => format!("delete the namespace after a notice of {notice}"),
        PolicyAction::ScaleDown(scale) => match &scale.selectors {
            None => "scale down every Deployment and StatefulSet".to_owned(),
            Some(selectors) => {
                let one = |s: &coppice_api::manager::WorkloadSelector| {
                    let labels =
                        s.selector.as_ref().map_or_else(String::new, |l| format!(" with {}", l.to_query()));
                    format!("{}s{labels}", s.kind)
                };
                format!("scale down {}", selectors.iter().map(one).collect::<Vec<_>>().join(", "))
            }
        },
        PolicyAction::Webhook(webhook) => format!("call {}", webhook.url),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_our_finalizers_it_is_said_what_goes_first() {
        let delays = |kind: &str, finalizer: &str| {
            let (kind, finalizer, name) = (kind.to_owned(), finalizer.to_owned(), "shop".to_owned());
            what_delays(&ForeignFinalizer { finalizer, kind, name })
        };
        let cluster =
            "ManagedCluster shop: its cluster is deleted, and the namespace is not gone before that";
        assert_eq!(delays("ManagedCluster", FINALIZER), cluster);
        let of_others =
            "has the finalizer example.com/wait: the namespace is not gone before its owner removes it";
        assert_eq!(delays("ManagedCluster", "example.com/wait"), format!("ManagedCluster shop {of_others}"));
        assert_eq!(delays("ConfigMap", "example.com/wait"), format!("ConfigMap shop {of_others}"));
    }
}
