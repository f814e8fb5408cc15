//! A preview for people.

use anyhow::Result;

use super::Report;
use super::compare::{ManagerPreview, SpecChange};
use crate::print::{self, ERROR, HEADING, OK, WARNING};
use crate::terminal::{PLAIN, Screen};

/// So many names are shown, unless all are wanted.
const SAMPLE: usize = 10;

pub(super) fn write(report: &Report<'_>, all: bool, to: &mut Screen<'_>) -> Result<()> {
    for manager in report.managers {
        manager_text(manager, report, all, to)?;
        writeln!(to)?;
    }
    let due: Vec<&str> = report.becomes_due.iter().map(|due| due.namespace.as_str()).collect();
    let enforced: Vec<&str> = report.becomes_enforced.iter().map(|due| due.namespace.as_str()).collect();
    if due.is_empty() && enforced.is_empty() {
        to.put("Nothing becomes due.", OK)?;
        return Ok(writeln!(to)?);
    }
    if !due.is_empty() {
        to.put(&format!("Becomes due that is not due now: {}", counted(&due, all)), ERROR)?;
        writeln!(to)?;
    }
    if !enforced.is_empty() {
        to.put(&format!("Due now, and no longer only observed: {}", counted(&enforced, all)), ERROR)?;
        writeln!(to)?;
    }
    Ok(())
}

fn manager_text(one: &ManagerPreview, report: &Report<'_>, all: bool, to: &mut Screen<'_>) -> Result<()> {
    let change = match one.change {
        SpecChange::New => "new",
        SpecChange::Changed => "changed",
        SpecChange::Unchanged => "unchanged",
    };
    to.put(&format!("ClusterNamespaceManager {}", one.manager), HEADING)?;
    writeln!(to, " ({change}, {})", one.mode.as_str())?;
    let others: Vec<String> = one.governed_by.iter().map(|(name, count)| format!("{name} {count}")).collect();
    let others = if others.is_empty() {
        String::new()
    } else {
        format!("; governed by others: {}", others.join(", "))
    };
    writeln!(
        to,
        "  Selects:   {}, governs {}{others}",
        print::count(one.selected, "namespace"),
        one.governed
    )?;
    let won = one.won.iter().map(|won| with("from", &won.namespace, won.from.as_ref()));
    names("Wins:     ", &won.collect::<Vec<_>>(), all, to)?;
    let lost = one.lost.iter().map(|lost| with("to", &lost.namespace, lost.to.as_ref()));
    names("Loses:    ", &lost.collect::<Vec<_>>(), all, to)?;
    for policy in &one.due {
        let mode = if policy.enforces { "" } else { ", which observes" };
        let names = counted(&policy.namespaces, all);
        writeln!(to, "  Due now:   by policy {:?}{mode}: {names}", policy.policy)?;
    }
    if let Some(earliest) = one.earliest {
        let would =
            if one.mode == coppice_api::cluster_manager::Mode::Enforce { "" } else { " if it enforced" };
        writeln!(to, "  Acts:      not before {}{would}", print::instant_from(earliest, report.at))?;
    }
    if one.approval_needed {
        to.put("  Approval:  ", PLAIN)?;
        to.put(&format!("{} due at once by this spec need spec.approval", one.newly_due), WARNING)?;
        let (digest, count) = (&one.policy_digest, one.newly_due);
        writeln!(to, " (digest: {digest}, namespaces: {count}, validUntil): until then they wait")?;
    }
    let (needed, limit) = (one.hourly_budget_needed, usize::try_from(one.hourly_budget)?);
    if needed > 0 {
        to.put("  Budget:    ", PLAIN)?;
        let style = if needed > limit { WARNING } else { PLAIN };
        to.put(
            &format!(
                "{} in the first hour, of {limit} an hour that are allowed",
                print::count(needed, "deletion")
            ),
            style,
        )?;
        let wait = if needed > limit { format!(": {} wait", needed - limit) } else { String::new() };
        writeln!(to, "{wait}")?;
    }
    Ok(())
}

fn with(word: &str, namespace: &str, other: Option<&String>) -> String {
    other.map_or_else(|| namespace.to_owned(), |other| format!("{namespace} ({word} {other})"))
}

fn names(what: &str, names: &[String], all: bool, to: &mut Screen<'_>) -> Result<()> {
    if names.is_empty() {
        return Ok(());
    }
    Ok(writeln!(to, "  {what} {}", counted(names, all))?)
}

/// How many, and which: the first of them, or all.
fn counted<T: AsRef<str>>(names: &[T], all: bool) -> String {
    let shown = if all { names.len() } else { SAMPLE };
    let more = names.len().saturating_sub(shown);
    let sample: Vec<&str> = names.iter().take(shown).map(AsRef::as_ref).collect();
    let rest = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("{}: {}{rest}", names.len(), sample.join(", "))
}
