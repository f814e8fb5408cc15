//! The readable report.

use std::fmt::Write as _;

use super::{Goal, Part, Report, Subject};
use crate::stats::Spread;

/// The whole report; `plots` are names of parts with names of files.
pub(super) fn report(report: &Report, plots: &[(&str, String)]) -> String {
    let mut text = head(report);
    for part in &report.parts {
        let _ = write!(text, "\n## {}\n\n{}\n\n", part.title, part.method);
        if let Some(why) = &part.broken {
            let _ = write!(text, "**Not whole**, after {} s: {why}\n\n", part.seconds);
        }
        text.push_str(&table(part));
        for (_, name) in plots.iter().filter(|(of, _)| *of == part.name) {
            let _ = write!(text, "\n![{}]({name})\n", name.trim_end_matches(".svg").replace('-', " "));
        }
        let missed = part.missed();
        if !missed.is_empty() {
            text.push_str("\nMissed:\n\n");
        }
        for sentence in missed {
            let _ = writeln!(text, "- {sentence}");
        }
        if !part.remarks.is_empty() {
            text.push('\n');
        }
        for remark in &part.remarks {
            let _ = writeln!(text, "- {remark}");
        }
        if !part.tried.is_empty() {
            let _ = write!(text, "\n### What was tried\n\n{}\n", part.tried.trim());
        }
    }
    text
}

fn head(report: &Report) -> String {
    let machine = &report.machine;
    let environment = if machine.environment.is_empty() {
        "what the manifests set".to_owned()
    } else {
        machine.environment.iter().map(|variable| format!("`{variable}`")).collect::<Vec<_>>().join(", ")
    };
    let quick =
        if report.quick { "**A quick call, with small sizes: these figures are no results.** " } else { "" };
    format!(
        "# Benchmarks\n\n{quick}{} runs. Each figure is their median, with the smallest and the largest in parentheses. Ratios \
         are made run by run: Coppice to the peer that was measured right after it on the same plane.\n\n\
         - Machine: {}, {} processors, {} MiB, Linux {}\n\
         - One-minute load: {} before anything was started, {} at the end. Everything runs on this machine, the control \
         plane too: times are what is left of it.\n\
         - Commit {}, begun {}: `{}`\n\
         - Builds: {}\n\
         - Environment of the operators: {environment}\n",
        report.runs,
        machine.processor,
        machine.processors,
        machine.memory_mib,
        machine.kernel,
        machine.load_before,
        machine.load_after,
        machine.commit,
        machine.date,
        machine.command,
        machine.build,
    )
}

/// A row for each quantity, a column for each subject that was measured.
fn table(part: &Part) -> String {
    let measured = |subject: &Subject| part.figures.iter().any(|f| f.subject == *subject);
    let subjects: Vec<Subject> = Subject::ALL.into_iter().filter(measured).collect();
    let peers: Vec<Subject> = subjects.iter().copied().filter(|s| *s != Subject::Coppice).collect();
    let mut head = vec![String::new()];
    head.extend(subjects.iter().map(|s| s.label().to_owned()));
    head.extend(peers.iter().map(|s| format!("times the {}", s.label())));
    head.extend(["goal".to_owned(), "met".to_owned()]);
    let rule = std::iter::once("---").chain(std::iter::repeat_n("---:", head.len() - 2)).chain(["---"]);
    let mut text = format!("| {} |\n| {} |\n", head.join(" | "), rule.collect::<Vec<_>>().join(" | "));
    let mut named: Vec<&str> = Vec::new();
    for figure in &part.figures {
        if named.contains(&figure.what.as_str()) {
            continue;
        }
        named.push(&figure.what);
        let unit = if figure.unit.is_empty() { String::new() } else { format!(", {}", figure.unit) };
        let mut cells = vec![format!("{}{unit}", figure.what)];
        cells.extend(subjects.iter().map(|s| {
            let values = part.figure(&figure.what, *s).map(|f| f.values.as_slice()).unwrap_or_default();
            Spread::of(values).map_or_else(String::new, |s| spread(&s))
        }));
        let mut goals: Vec<(String, bool)> = Vec::new();
        if let Some(ours) = part.figure(&figure.what, Subject::Coppice)
            && let (Some(goal), Some(spread)) = (ours.goal, Spread::of(&ours.values))
        {
            goals.push((bound(goal), goal.met(&spread)));
        }
        for peer in &peers {
            let ratio = part.ratios(*peer).into_iter().find(|r| r.what == figure.what);
            cells.push(ratio.as_ref().map_or_else(String::new, |r| spread(&r.spread)));
            if let Some((ratio, bound)) = ratio.as_ref().and_then(|r| Some((r, r.at_most?))) {
                goals.push((format!("{} x {}", number(bound), peer.label()), ratio.spread.median <= bound));
            }
        }
        cells.push(goals.iter().map(|(text, _)| text.as_str()).collect::<Vec<_>>().join("; "));
        let met = goals.iter().map(|(_, met)| if *met { "yes" } else { "**no**" });
        cells.push(met.collect::<Vec<_>>().join("; "));
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    text
}

fn bound(goal: Goal) -> String {
    match goal {
        Goal::AtMost(bound) => number(bound),
        Goal::NeverAbove(bound) => format!("never above {}", number(bound)),
    }
}

fn spread(spread: &Spread) -> String {
    if spread.runs == 1 {
        return number(spread.median);
    }
    format!("{} ({}–{})", number(spread.median), number(spread.min), number(spread.max))
}

/// Three digits are enough for anything measured here; counts are whole.
pub(super) fn number(value: f64) -> String {
    let whole = (value - value.round()).abs() < f64::EPSILON;
    match value.abs() {
        _ if whole => thousands(value),
        size if size >= 100.0 => thousands(value),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.095 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

/// Rounded to a whole number, with commas.
fn thousands(value: f64) -> String {
    let plain = format!("{value:.0}");
    let (sign, digits) = plain.strip_prefix('-').map_or(("", plain.as_str()), |digits| ("-", digits));
    let mut text = String::new();
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    format!("{sign}{text}")
}

#[cfg(test)]
mod tests {
    use super::super::RatioGoal;
    use super::*;

    #[test]
    fn numbers_have_as_many_digits_as_they_deserve() {
        let cases = [
            (0.0, "0"),
            (7.0, "7"),
            (0.331_6, "0.33"),
            (0.012_34, "0.0123"),
            (12.345, "12.3"),
            (1_234.5, "1,234"),
            (-1_234_567.0, "-1,234,567"),
            (1.0, "1"),
        ];
        for (value, text) in cases {
            assert_eq!(number(value), text, "{value}");
        }
    }

    #[test]
    fn a_row_has_every_subject_its_ratio_and_whether_each_goal_is_met() {
        let mut part = Part::default();
        for (ours, theirs) in [(1.0, 10.0), (3.0, 10.0)] {
            part.add("steady", "MiB", Subject::Coppice, Some(Goal::AtMost(1.5)), ours);
            part.add("steady", "MiB", Subject::Peer, None, theirs);
        }
        part.ratio_goals = vec![RatioGoal { what: "steady".to_owned(), peer: Subject::Peer, at_most: 0.25 }];
        let text = table(&part);
        let row =
            "| steady, MiB | 2 (1–3) | 10 (10–10) | 0.20 (0.10–0.30) | 1.50; 0.25 x Go peer | **no**; yes |";
        assert!(text.ends_with(&format!("{row}\n")), "{text}");
        let columns = |line: &str| line.matches('|').count();
        assert!(text.lines().all(|line| columns(line) == columns(row)), "{text}");
    }
}
