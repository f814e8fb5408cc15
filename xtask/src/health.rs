//! What the pages of the kinds say of the health of namespaces, from the tables that the operator uses: the diagram of the
//! phases, and the reasons with their advice.
//!
//! It stands between `<!-- generated: phases of health -->` and `<!-- end of generated -->`.

use std::fmt::Write as _;

use anyhow::{Result, bail};
use coppice_api::{HealthReason, HealthState};
use coppice_lifecycle::cluster::phase::PHASES_BEFORE;
use coppice_lifecycle::health::EDGES;

use crate::reasons::cell;

const BEGIN: &str = "<!-- generated: ";
const BEGIN_ENDS: &str = " -->";
const END: &str = "<!-- end of generated -->";

/// The page with its generated parts as they have to be.
pub(crate) fn fill(path: &str, text: &str) -> Result<String> {
    let mut out = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        out.push_str(line);
        out.push('\n');
        let Some(part) = line.strip_prefix(BEGIN).and_then(|line| line.strip_suffix(BEGIN_ENDS)) else {
            continue;
        };
        let new = match part {
            "phases of health" => diagram(),
            "reasons of health" => reasons(),
            other => bail!("{path}: {line}: nothing is generated under the name {other:?}"),
        };
        if !lines.by_ref().any(|line| line == END) {
            bail!("{path}: {line}: the line {END} is missing");
        }
        // Writing to a String cannot fail.
        let _ = write!(out, "\n{new}\n{END}\n");
    }
    Ok(out)
}

/// The phases and what leads from one to another: those of the health within one that stands for all of them.
fn diagram() -> String {
    let mut out = String::from("```mermaid\nstateDiagram-v2\n    [*] --> Health\n    state Health {\n");
    let _ = writeln!(out, "        [*] --> {:?}", HealthState::Ok);
    for edge in EDGES {
        let _ = writeln!(out, "        {:?} --> {:?}: {}", edge.from, edge.to, edge.cause.as_str());
    }
    out.push_str("    }\n");
    for one in PHASES_BEFORE {
        let phase = one.phase.as_str();
        let _ = writeln!(out, "    Health --> {phase}: {}", one.begins);
        let _ = match one.ends {
            Some(ends) => writeln!(out, "    {phase} --> Health: {ends}"),
            None => writeln!(out, "    {phase} --> [*]"),
        };
    }
    out + "```\n"
}

/// Every reason.
fn reasons() -> String {
    let mut out = String::from("| Reason | Meaning | What to look at first |\n| --- | --- | --- |\n");
    for reason in HealthReason::ALL {
        let (meaning, advice) = (cell(reason.meaning()), cell(reason.advice()));
        let _ = writeln!(out, "| `{}` | {meaning} | {advice} |", reason.as_str());
    }
    out
}

#[cfg(test)]
mod tests {
    use coppice_api::NamespacePhase;

    use super::*;

    #[test]
    fn what_is_between_the_marks_is_written_and_nothing_else() {
        let page = "a\n<!-- generated: phases of health -->\nold\n<!-- end of generated -->\nb\n";
        let filled = fill("p.md", page).unwrap();
        assert!(filled.starts_with("a\n<!-- generated: phases of health -->\n\n```mermaid\n"), "{filled}");
        assert!(
            filled.ends_with("```\n\n<!-- end of generated -->\nb\n") && !filled.contains("old"),
            "{filled}"
        );
        assert!(filled.contains("\n        Failing --> Failed: still so after gracePeriod\n"), "{filled}");
        let stale =
            "\n    Health --> Stale: its time to live is over\n    Stale --> Health: it has more time\n";
        assert!(filled.contains(stale), "{filled}");
        assert_eq!(fill("p.md", &filled).unwrap(), filled);
        assert!(fill("p.md", "<!-- generated: phases of health -->\n").is_err());
        assert!(fill("p.md", "<!-- generated: other -->\n<!-- end of generated -->\n").is_err());
    }

    #[test]
    fn every_phase_is_in_the_diagram() {
        let diagram = diagram();
        for phase in NamespacePhase::ALL {
            let arrow = format!(" --> {}", phase.as_str());
            assert!(diagram.lines().any(|line| line.contains(&arrow)), "{arrow}: {diagram}");
        }
    }

    #[test]
    fn every_reason_has_one_row_with_advice() {
        let table = reasons();
        assert_eq!(table.lines().count(), 2 + HealthReason::ALL.len());
        assert!(table.lines().all(|row| row.split(" | ").count() == 3), "{table}");
    }
}
