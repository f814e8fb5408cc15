//! What was measured: figures with their spread over runs, goals, and ratios to the peer.

mod machine;
mod markdown;
mod plot;
mod writer;

use std::path::Path;

use anyhow::Context as _;
use serde::Serialize;

pub use machine::Machine;
pub use writer::ReportWriter;

use crate::stats::{self, Spread};

/// Who was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Subject {
    /// Coppice's operator.
    Coppice,
    /// The Go peer with controller-runtime's default cache.
    Peer,
    /// The same, whose cache drops `managedFields`.
    PeerStripped,
    /// A client that only sends requests, where that is what is compared with.
    Bare,
}

impl Subject {
    /// All of them, in the order of tables.
    pub const ALL: [Self; 4] = [Self::Coppice, Self::Peer, Self::PeerStripped, Self::Bare];

    /// As tables and plots have it.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Coppice => "Coppice",
            Self::Peer => "Go peer",
            Self::PeerStripped => "Go peer, stripped",
            Self::Bare => "bare client",
        }
    }
}

/// What a figure has to be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Goal {
    /// So much at most, by the median of the runs.
    AtMost(f64),
    /// So much at most, in every run.
    NeverAbove(f64),
}

impl Goal {
    /// Whether these values meet it.
    pub const fn met(self, spread: &Spread) -> bool {
        match self {
            Self::AtMost(bound) => spread.median <= bound,
            Self::NeverAbove(bound) => spread.max <= bound,
        }
    }
}

/// One quantity of one subject, with a value for each run.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// What was measured. Figures of several subjects with the same words are compared.
    pub what: String,
    /// Such as `ms` or `MiB`.
    pub unit: &'static str,
    /// Who was measured.
    pub subject: Subject,
    /// The value of each run.
    pub values: Vec<f64>,
    /// What it has to be; none if it is for information.
    pub goal: Option<Goal>,
}

/// At most so many times what a peer needs, by the median of the runs' ratios.
#[derive(Clone, Debug, Serialize)]
pub struct RatioGoal {
    /// The figure's words.
    pub what: String,
    /// Who is compared with.
    pub peer: Subject,
    /// The bound.
    pub at_most: f64,
}

/// All single values of a subject, for a plot of their distribution.
#[derive(Clone, Debug, Serialize)]
pub struct Samples {
    /// What is plotted together.
    pub what: String,
    /// Such as `ms`.
    pub unit: &'static str,
    /// Who was measured.
    pub subject: Subject,
    /// The values of all runs; the files have [`POINTS`] of them.
    #[serde(serialize_with = "thinned")]
    pub values: Vec<f64>,
}

/// More points of a distribution than these show nothing more.
const POINTS: usize = 500;

fn thinned<S: serde::Serializer>(values: &[f64], to: S) -> Result<S::Ok, S::Error> {
    stats::thinned(values, POINTS).serialize(to)
}

/// One benchmark's results.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Part {
    /// The word by which it is asked for.
    pub name: &'static str,
    /// For people.
    pub title: &'static str,
    /// How it was measured, in sentences.
    pub method: String,
    /// What was measured.
    pub figures: Vec<Figure>,
    /// Goals of ratios.
    pub ratio_goals: Vec<RatioGoal>,
    /// Distributions.
    pub samples: Vec<Samples>,
    /// The words of figures that are plotted as bars.
    pub bars: Vec<String>,
    /// What a reader has to know beside the figures.
    pub remarks: Vec<String>,
    /// How long it took.
    pub seconds: u64,
    /// Whether it has all its figures, whatever happens to what is measured together with it.
    pub whole: bool,
    /// Why it is not whole, if so.
    pub broken: Option<String>,
    /// What was tried where a goal is missed, in Markdown, from `verification/bench/notes`.
    pub tried: String,
}

/// A ratio of Coppice to a peer.
#[derive(Clone, Debug, Serialize)]
pub struct Ratio {
    /// The figure's words.
    pub what: String,
    /// Who is compared with.
    pub peer: Subject,
    /// Over the runs.
    pub spread: Spread,
    /// The bound, if there is one.
    pub at_most: Option<f64>,
}

impl Part {
    /// Adds a value of one run to a figure.
    pub fn add(&mut self, what: &str, unit: &'static str, subject: Subject, goal: Option<Goal>, value: f64) {
        // Goals are Coppice's; the peer has none.
        let goal = goal.filter(|_| subject == Subject::Coppice);
        if let Some(figure) = self.figures.iter_mut().find(|f| f.what == what && f.subject == subject) {
            figure.values.push(value);
        } else {
            self.figures.push(Figure { what: what.to_owned(), unit, subject, values: vec![value], goal });
        }
    }

    /// Adds single values of one run to a distribution.
    pub fn sample(&mut self, what: &str, unit: &'static str, subject: Subject, values: &[f64]) {
        if let Some(samples) = self.samples.iter_mut().find(|s| s.what == what && s.subject == subject) {
            samples.values.extend(values);
        } else {
            self.samples.push(Samples { what: what.to_owned(), unit, subject, values: values.to_vec() });
        }
    }

    /// Notes that something of it could not be measured.
    pub fn fails(&mut self, why: &str) {
        match &mut self.broken {
            Some(before) => before.extend(["; ", why]),
            none => *none = Some(why.to_owned()),
        }
    }

    /// The figure of these words and this subject.
    pub fn figure(&self, what: &str, subject: Subject) -> Option<&Figure> {
        self.figures.iter().find(|f| f.what == what && f.subject == subject)
    }

    /// Coppice's figures to those of this peer, wherever both have been measured.
    pub fn ratios(&self, peer: Subject) -> Vec<Ratio> {
        let ours = self.figures.iter().filter(|f| f.subject == Subject::Coppice);
        ours.filter_map(|ours| {
            let theirs = self.figure(&ours.what, peer)?;
            let spread = Spread::of(&stats::ratios(&ours.values, &theirs.values))?;
            let goal = self.ratio_goals.iter().find(|g| g.what == ours.what && g.peer == peer);
            Some(Ratio { what: ours.what.clone(), peer, spread, at_most: goal.map(|g| g.at_most) })
        })
        .collect()
    }

    /// Every goal that is missed, as a sentence.
    pub fn missed(&self) -> Vec<String> {
        let figures = self.figures.iter().filter_map(|f| {
            let (goal, spread) = (f.goal?, Spread::of(&f.values)?);
            let (bound, how) = match goal {
                Goal::AtMost(bound) => (bound, spread.median),
                Goal::NeverAbove(bound) => (bound, spread.max),
            };
            let (how, bound) = (markdown::number(how), markdown::number(bound));
            (!goal.met(&spread)).then(|| format!("{}: {how} {}, goal {bound}", f.what, f.unit))
        });
        let ratios = [Subject::Peer, Subject::PeerStripped, Subject::Bare]
            .into_iter()
            .flat_map(|peer| self.ratios(peer));
        let ratios = ratios.filter_map(|ratio| {
            let bound = ratio.at_most.filter(|bound| ratio.spread.median > *bound)?;
            let (how, bound) = (markdown::number(ratio.spread.median), markdown::number(bound));
            Some(format!("{}: {how} times the {}, goal {bound}", ratio.what, ratio.peer.label()))
        });
        figures.chain(ratios).collect()
    }
}

/// Everything of one call.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Where it was measured.
    pub machine: Machine,
    /// How often everything was measured.
    pub runs: usize,
    /// Whether sizes were small: figures of a quick call are no results.
    pub quick: bool,
    /// The benchmarks.
    pub parts: Vec<Part>,
}

impl Report {
    /// Writes `report.json`, `report.md` and a plot for each chart into a folder, which is made if need be.
    pub fn write(&self, folder: &Path) -> anyhow::Result<()> {
        std::fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
        let put = |name: &str, text: String| {
            let path = folder.join(name);
            std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))
        };
        let mut plots = Vec::new();
        for part in &self.parts {
            for (name, svg) in plot::of_part(part) {
                put(&name, svg)?;
                plots.push((part.name, name));
            }
        }
        put("report.json", serde_json::to_string_pretty(self)? + "\n")?;
        put("report.md", markdown::report(self, &plots))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part() -> Part {
        let mut part = Part { name: "reaction", title: "Reaction", ..Part::default() };
        for (ours, theirs) in [(30.0, 10.0), (12.0, 10.0), (11.0, 10.0)] {
            part.add("p50", "ms", Subject::Coppice, Some(Goal::AtMost(20.0)), ours);
            part.add("p50", "ms", Subject::Peer, Some(Goal::AtMost(20.0)), theirs);
        }
        part
    }

    #[test]
    fn goals_are_coppices_and_checked_by_median_or_by_every_run() {
        let mut part = part();
        assert_eq!(part.figure("p50", Subject::Peer).unwrap().goal, None);
        assert_eq!(part.missed(), Vec::<String>::new());
        for figure in &mut part.figures {
            figure.goal = figure.goal.map(|_| Goal::NeverAbove(20.0));
        }
        assert_eq!(part.missed(), ["p50: 30 ms, goal 20"]);
    }

    #[test]
    fn ratios_are_of_the_same_run() {
        let mut part = part();
        let [ratio] = part.ratios(Subject::Peer).try_into().unwrap();
        assert_eq!((ratio.spread.median, ratio.spread.max, ratio.at_most), (1.2, 3.0, None));
        assert!(part.ratios(Subject::PeerStripped).is_empty());
        part.ratio_goals = vec![RatioGoal { what: "p50".to_owned(), peer: Subject::Peer, at_most: 1.1 }];
        assert_eq!(part.missed(), ["p50: 1.20 times the Go peer, goal 1.10"]);
    }

    #[test]
    fn a_report_is_json_text_and_plots() {
        let folder = tempfile::tempdir().unwrap();
        let mut part = part();
        part.bars = vec!["p50".to_owned()];
        part.sample("latency", "ms", Subject::Coppice, &[3.0, 1.0, 2.0]);
        let machine = Machine::default();
        let report = Report { machine, runs: 3, quick: true, parts: vec![part] };
        report.write(&folder.path().join("new")).unwrap();
        let read = |name: &str| std::fs::read_to_string(folder.path().join("new").join(name)).unwrap();
        let json: serde_json::Value = serde_json::from_str(&read("report.json")).unwrap();
        assert_eq!(json["parts"][0]["figures"][0]["values"][0], 30.0);
        let text = read("report.md");
        for svg in ["reaction-bars.svg", "reaction-latency.svg"] {
            assert!(read(svg).starts_with("<svg "), "{svg}");
            assert!(text.contains(svg), "{text}");
        }
    }
}
