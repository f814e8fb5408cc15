//! The explanation of a governed namespace for people.

use anyhow::Result;
use coppice_api::managed_namespace::Successor;
use coppice_api::notify::{MessageDelivery, MessageState};
use coppice_api::observed::ObservedOutcome;
use coppice_api::{HealthReason, NamespacePhase};
use jiff::Timestamp;

use super::governed::{ContestResult, Governing, NamespaceExplanation};
use super::text::{NextText, heading, last_error, last_firing, notice, scaled_down};
use crate::command::plan::GovernedItem;
use crate::print::{self, HEADING, OK, WARNING, namespace_phase_style};
use crate::refused_pods::RefusedPods;
use crate::terminal::{PLAIN, Screen};

pub(super) fn write(
    one: &NamespaceExplanation,
    name: &str,
    at: Timestamp,
    to: &mut Screen<'_>,
) -> Result<()> {
    to.put(&format!("Namespace {name}"), HEADING)?;
    writeln!(to)?;
    head(one, at, to)?;
    if let Some(plan) = &one.plan {
        next(one, plan, at, to)?;
    }
    notices(one, at, to)?;
    failing(one, at, to)?;
    contest(one, to)?;
    if let Some(governing) = &one.governing {
        policies(governing, at, to)?;
    }
    would_have_acted(one, at, to)?;
    if !one.stops.is_empty() {
        heading(to, "What stands in the way")?;
        for stop in &one.stops {
            writeln!(to, "  {} [{}]", stop.message, stop.reason)?;
        }
    }
    if let Some(firing) = &one.last_firing {
        last_firing(firing, one.firings, at, to)?;
    }
    scaled_down(&one.scaled_down, &format!("coppice wake {name}"), to)
}

fn would_have_acted(one: &NamespaceExplanation, at: Timestamp, to: &mut Screen<'_>) -> Result<()> {
    if one.would_have_acted.is_empty() {
        return Ok(());
    }
    heading(to, "What policies that observe would have done by now")?;
    for one in &one.would_have_acted {
        let became = match one.outcome {
            None => "it still would",
            Some(ObservedOutcome::Recovered) => "then the namespace recovered",
            Some(ObservedOutcome::Extended) => "then the namespace was extended",
            Some(ObservedOutcome::Held) => "then the namespace was put on hold",
        };
        let when =
            one.outcome_at.map_or_else(String::new, |then| format!(", {}", print::instant_from(then, at)));
        let acted = print::instant_from(one.at, at);
        writeln!(to, "  {:?} would have acted {acted} [{}]; {became}{when}", one.policy, one.reason)?;
    }
    Ok(())
}

fn head(one: &NamespaceExplanation, at: Timestamp, to: &mut Screen<'_>) -> Result<()> {
    let when = |instant| print::instant_from(instant, at);
    if let Some(plan) = &one.plan {
        to.put("  Phase:      ", PLAIN)?;
        to.put(plan.phase.map_or("-", NamespacePhase::as_str), namespace_phase_style(plan.phase))?;
        let since = one.phase_since.filter(|_| plan.phase.is_some());
        writeln!(to, "{}", since.map_or_else(String::new, |since| format!(", since {}", when(since))))?;
    }
    if let (Some(created), Some(uid)) = (one.created, &one.uid) {
        writeln!(to, "  Namespace:  created {}, uid {uid}", when(created))?;
    } else {
        to.put("  Namespace:  ", PLAIN)?;
        to.put("could not be read", WARNING)?;
        writeln!(to)?;
    }
    if let Some(owner) = &one.owner {
        writeln!(to, "  Owner:      {owner}")?;
    }
    match &one.governing {
        None if one.contest_unknown.is_some() => writeln!(to, "  Governed:   not known")?,
        None => writeln!(to, "  Governed:   by no cluster manager")?,
        Some(governing) => {
            let mode = governing.mode.map_or_else(String::new, |mode| format!(" ({})", mode.as_str()));
            writeln!(
                to,
                "  Governed:   by ClusterNamespaceManager {}{mode}, as it is now since {}",
                governing.name,
                when(governing.since)
            )?;
        }
    }
    expires(one, at, to)?;
    if let Some(Successor { namespace, uid, since, .. }) = &one.superseded_by {
        writeln!(to, "  Superseded: by namespace {namespace} (uid {uid}), since {}", when(*since))?;
    }
    if let Some(why) = &one.no_identity {
        writeln!(to, "  Identity:   {why}")?;
    }
    if let (Some(hold), Some(ends)) = (&one.hold, one.hold_ends) {
        writeln!(to, "  Held:       until {}{}", when(ends), by(hold.by.as_ref()))?;
    }
    if let (Some(extension), Some(until)) = (&one.extend_until, one.extended_until) {
        writeln!(to, "  Extended:   until {}{}", when(until), by(extension.by.as_ref()))?;
    }
    if let Some(exceeded) = &one.limit_exceeded {
        writeln!(to, "  Limits:     {exceeded}")?;
    }
    if let Some(settled_at) = one.governing.as_ref().and_then(|governing| governing.settled_at) {
        let text = if at < settled_at { "nothing is done before" } else { "over since" };
        writeln!(to, "  Settle:     {text} {}", when(settled_at))?;
    }
    if one.governing.is_none() {
        return Ok(());
    }
    if !one.recorded {
        writeln!(to, "  Record:     none yet: the operator creates it before it does anything")?;
    }
    let budget = &one.budget;
    writeln!(
        to,
        "  Budget:     {} of {} steps of this hour are used",
        budget.last_hour, budget.hourly_limit
    )?;
    Ok(())
}

fn by(by: Option<&String>) -> String {
    by.map_or_else(String::new, |by| format!(" by {by}"))
}

/// When it expires, and how that has changed.
fn expires(one: &NamespaceExplanation, at: Timestamp, to: &mut Screen<'_>) -> Result<()> {
    let when = |instant| print::instant_from(instant, at);
    match one.plan.as_ref().and_then(|plan| plan.expires_at) {
        Some(expires) => writeln!(to, "  Expires:    {}{}", when(expires), made_of(one, expires))?,
        None if one.expiry_changes.is_empty() => return Ok(()),
        None => writeln!(to, "  Expires:    never")?,
    }
    for change in &one.expiry_changes {
        let date = |date: Option<Timestamp>| date.map_or_else(|| "never".to_owned(), print::instant);
        writeln!(
            to,
            "              moved from {} to {}{}, seen {}: {} [{}]",
            date(change.from),
            date(change.to),
            by(change.by.as_ref()),
            when(change.at),
            change.message,
            change.reason
        )?;
    }
    Ok(())
}

/// What an expiry comes from.
fn made_of(one: &NamespaceExplanation, expires: Timestamp) -> String {
    if one.extended_until == Some(expires) {
        return ": by the extension".to_owned();
    }
    let Some(ttl) = one.governing.as_ref().and_then(|governing| governing.ttl) else { return String::new() };
    let source = one.governing.as_ref().and_then(|governing| governing.ttl_source.as_ref());
    let source = source.map_or_else(String::new, |source| format!(" ({source})"));
    format!(": {ttl} after its creation{source}")
}

fn next(one: &NamespaceExplanation, plan: &GovernedItem, at: Timestamp, to: &mut Screen<'_>) -> Result<()> {
    heading(to, "What will happen")?;
    let act = plan.action.is_some() && (plan.now || plan.due.is_some() || !plan.observes());
    if !act || plan.observes() {
        writeln!(to, "  Nothing: {} [{}]", plan.message, plan.reason)?;
    } else {
        let when = match (plan.now, plan.due) {
            (true, _) => " now".to_owned(),
            (false, Some(due)) => format!(" at {}", print::instant_from(due, at)),
            (false, None) => " as soon as nothing stands in the way".to_owned(),
        };
        let step = NextText {
            action: plan.action.as_deref().unwrap_or_default(),
            policy: plan.policy.as_deref(),
            when: &when,
            now: plan.now,
            message: &plan.message,
            reason: &plan.reason,
        };
        step.write(to)?;
    }
    last_error(one.last_error.as_deref(), to)?;
    notice(one.notice.as_ref(), at, to)
}

fn notices(one: &NamespaceExplanation, at: Timestamp, to: &mut Screen<'_>) -> Result<()> {
    if one.notices.is_empty() {
        return Ok(());
    }
    heading(to, "What its owner is notified of")?;
    for notice in &one.notices {
        to.put("  ", PLAIN)?;
        notice_line(notice, at, to)?;
    }
    Ok(())
}

/// A message to the owner, and where its delivery stands.
pub(super) fn notice_line(notice: &MessageDelivery, at: Timestamp, to: &mut Screen<'_>) -> Result<()> {
    let to_whom = notice.to.as_ref().map_or_else(String::new, |to| format!(" to {to}"));
    let (style, outcome) = match notice.state {
        MessageState::Delivered => (OK, notice.delivered_at.map(|then| print::instant_from(then, at))),
        MessageState::Failed => (WARNING, notice.last_error.clone()),
        MessageState::Pending => {
            let attempts = print::count(notice.attempts as usize, "attempt");
            let next = notice.next_attempt.filter(|next| at < *next);
            let next =
                next.map_or_else(String::new, |next| format!(", the next {}", print::instant_from(next, at)));
            let error = notice.last_error.as_ref().map_or_else(String::new, |error| format!(": {error}"));
            (PLAIN, Some(format!("{attempts}{next}{error}")))
        }
    };
    to.put(&format!("{} by {}{to_whom}: ", notice.about, notice.channel), PLAIN)?;
    to.put(notice.state.as_str(), style)?;
    writeln!(to, "{}", outcome.map_or_else(String::new, |outcome| format!(", {outcome}")))?;
    Ok(())
}

fn failing(one: &NamespaceExplanation, at: Timestamp, to: &mut Screen<'_>) -> Result<()> {
    if one.failing.is_empty() {
        return Ok(());
    }
    heading(to, "What fails")?;
    for object in &one.failing {
        let since = print::instant_from(object.since, at);
        writeln!(
            to,
            "  {}/{}: {} [{}], since {since}",
            object.kind, object.name, object.message, object.reason
        )?;
        let about =
            |refused: &&RefusedPods| (&*refused.kind, &*refused.name) == (&*object.kind, &*object.name);
        let lacks = object.reason == HealthReason::PodsNotCreated.as_str();
        if let Some(refused) = one.refused_pods.iter().find(about).filter(|_| lacks) {
            let seen =
                refused.at.map_or_else(String::new, |seen| format!(", {}", print::instant_from(seen, at)));
            writeln!(to, "    its latest Event{seen}: {}", refused.message)?;
        }
    }
    if let Some(more) = one.failing_more {
        writeln!(to, "  and {more} more")?;
    }
    for (reason, advice) in &one.advice {
        writeln!(to, "  {reason}: {advice}")?;
    }
    Ok(())
}

fn contest(one: &NamespaceExplanation, to: &mut Screen<'_>) -> Result<()> {
    heading(to, "Which cluster manager governs it")?;
    if let Some(why) = &one.contest_unknown {
        to.put("  not known: ", WARNING)?;
        return Ok(writeln!(to, "{why}")?);
    }
    for contestant in &one.contest {
        let (says, style) = match contestant.result {
            ContestResult::Governs => ("governs it", OK),
            ContestResult::Loses => ("selects it, too", PLAIN),
            ContestResult::NotSelected => ("does not select it", PLAIN),
            ContestResult::LeftOut => ("is left out", WARNING),
        };
        to.put(&format!("  {} ", contestant.manager), PLAIN)?;
        to.put(says, style)?;
        writeln!(to, ": {}", contestant.message)?;
    }
    if one.contest.is_empty() {
        writeln!(to, "  there is none")?;
    }
    Ok(())
}

fn policies(governing: &Governing, at: Timestamp, to: &mut Screen<'_>) -> Result<()> {
    if governing.policies.is_empty() {
        return Ok(());
    }
    heading(to, "Its policies (independent of each other)")?;
    for policy in &governing.policies {
        let mode = if policy.enforces { "" } else { " (observes)" };
        let fired = policy.fired.map_or_else(String::new, |fired| {
            format!("; fired {}, and not again while that lasts", print::instant_from(fired, at))
        });
        writeln!(to, "  {:?}: {}, {}{mode}{fired}", policy.name, policy.when, policy.then)?;
    }
    Ok(())
}
