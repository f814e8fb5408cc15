//! Plots as SVG, by hand: bars with whiskers from the smallest to the largest run, and shares of all values below a value.

use std::fmt::Write as _;

use coppice_api::text::escape_xml;

use super::markdown::number;
use super::{POINTS, Part, Samples, Subject};
use crate::stats::{self, Spread, count};

const WIDTH: f64 = 760.0;
const LEFT: f64 = 210.0;
const RIGHT: f64 = 90.0;
const BAR: f64 = 18.0;
const TEXT: &str = "font-family=\"system-ui, sans-serif\" font-size=\"12\" fill=\"#57606a\"";
const LINE: &str = "stroke=\"#8c959f\" stroke-width=\"1\"";

const fn colour(subject: Subject) -> &'static str {
    match subject {
        Subject::Coppice => "#2da44e",
        Subject::Peer => "#0969da",
        Subject::PeerStripped => "#8250df",
        Subject::Bare => "#6e7781",
    }
}

/// Names of files with their content.
pub(super) fn of_part(part: &Part) -> Vec<(String, String)> {
    let mut plots = Vec::new();
    if !part.bars.is_empty() {
        plots.push((format!("{}-bars.svg", part.name), bars(part)));
    }
    let mut named: Vec<&str> = Vec::new();
    for samples in &part.samples {
        if !named.contains(&samples.what.as_str()) {
            named.push(&samples.what);
            let together: Vec<&Samples> = part.samples.iter().filter(|s| s.what == samples.what).collect();
            let name = format!("{}-{}.svg", part.name, samples.what.replace(' ', "-"));
            plots.push((name, shares(&samples.what, samples.unit, &together)));
        }
    }
    plots
}

fn label(x: f64, y: f64, anchor: &str, text: &str) -> String {
    format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" {TEXT}>{}</text>\n", escape_xml(text))
}

fn line(x1: f64, y1: f64, x2: f64, y2: f64) -> String {
    format!("<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" {LINE}/>\n")
}

fn svg(title: &str, height: f64, content: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">\n<title>{}</title>\n{content}</svg>\n",
        escape_xml(title)
    )
}

/// The part's figures that are meant to be plotted, a bar for each subject.
fn bars(part: &Part) -> String {
    let rows: Vec<_> = part
        .bars
        .iter()
        .flat_map(|what| Subject::ALL.iter().filter_map(move |subject| part.figure(what, *subject)))
        .filter_map(|figure| Some((figure, Spread::of(&figure.values)?)))
        .collect();
    let most = rows.iter().map(|(_, spread)| spread.max).fold(f64::MIN_POSITIVE, f64::max);
    let scale = (WIDTH - LEFT - RIGHT) / most;
    let (mut content, mut y, mut before) = (String::new(), 10.0, "");
    for (figure, spread) in &rows {
        if figure.what != before {
            content += &label(10.0, y + BAR, "start", &format!("{} ({})", figure.what, figure.unit));
            y += BAR * 1.5;
            before = &figure.what;
        }
        let middle = y + BAR / 2.0;
        content += &label(LEFT - 8.0, middle + 4.0, "end", figure.subject.label());
        let _ = writeln!(
            content,
            "<rect x=\"{LEFT}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{BAR}\" fill=\"{}\"/>",
            spread.median * scale,
            colour(figure.subject)
        );
        let (from, to) = (LEFT + spread.min * scale, LEFT + spread.max * scale);
        content += &line(from, middle, to, middle);
        content += &line(from, y + 4.0, from, y + BAR - 4.0);
        content += &line(to, y + 4.0, to, y + BAR - 4.0);
        content += &label(to + 6.0, middle + 4.0, "start", &number(spread.median));
        y += BAR * 1.4;
    }
    svg(part.title, y + 10.0, &content)
}

/// For each subject the share of values that are at most so much; the scale of values is logarithmic.
fn shares(what: &str, unit: &str, together: &[&Samples]) -> String {
    const HEIGHT: f64 = 300.0;
    const BOTTOM: f64 = 250.0;
    const TOP: f64 = 20.0;
    const BEGIN: f64 = 60.0;
    let positive = together.iter().flat_map(|s| &s.values).copied().filter(|value| *value > 0.0);
    let (least, most) = positive.fold((f64::MAX, f64::MIN_POSITIVE), |(a, b), v| (a.min(v), b.max(v)));
    let (from, to) = (least.log10().floor(), most.log10().ceil());
    let width = (WIDTH - BEGIN - 30.0) / (to - from).max(1.0);
    let x = |value: f64| BEGIN + (value.max(least).log10() - from) * width;
    let y = |share: f64| BOTTOM - share * (BOTTOM - TOP);
    let mut content = String::new();
    for percent in [0.0, 0.5, 0.9, 0.99, 1.0] {
        content += &label(BEGIN - 8.0, y(percent) + 4.0, "end", &format!("{:.0} %", percent * 100.0));
        content += &line(BEGIN, y(percent), WIDTH - 30.0, y(percent));
    }
    let mut power = from;
    while power <= to {
        content += &label(x(10_f64.powf(power)), BOTTOM + 18.0, "middle", &number(10_f64.powf(power)));
        power += 1.0;
    }
    content += &label(WIDTH / 2.0, BOTTOM + 38.0, "middle", &format!("{what}, {unit}"));
    for (n, samples) in together.iter().enumerate() {
        let sorted = stats::thinned(&samples.values, POINTS);
        let total = count(sorted.len());
        let points = sorted
            .iter()
            .enumerate()
            .map(|(n, value)| format!("{:.1},{:.1}", x(*value), y((count(n) + 1.0) / total)));
        let (points, colour) = (points.collect::<Vec<_>>().join(" "), colour(samples.subject));
        let _ = writeln!(
            content,
            "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>"
        );
        let at = TOP + 20.0 + count(n) * 18.0;
        let _ = writeln!(
            content,
            "<rect x=\"70\" y=\"{:.1}\" width=\"12\" height=\"12\" fill=\"{colour}\"/>",
            at - 10.0
        );
        content += &label(88.0, at, "start", samples.subject.label());
    }
    svg(what, HEIGHT, &content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_long_as_its_share_of_the_longest() {
        let mut part = Part { name: "memory", bars: vec!["steady".to_owned()], ..Part::default() };
        part.add("steady", "MiB", Subject::Coppice, None, 50.0);
        part.add("steady", "MiB", Subject::Peer, None, 200.0);
        part.add("peak", "MiB", Subject::Peer, None, 300.0);
        let [(name, svg)] = of_part(&part).try_into().unwrap();
        assert_eq!(name, "memory-bars.svg");
        let longest = WIDTH - LEFT - RIGHT;
        for width in [longest, longest / 4.0] {
            assert!(svg.contains(&format!("width=\"{width:.1}\"")), "{svg}");
        }
        assert!(!svg.contains("peak"));
    }

    #[test]
    fn the_smallest_value_is_on_the_left_and_the_last_at_one_hundred_percent() {
        let samples = Samples {
            what: "latency".to_owned(),
            unit: "ms",
            subject: Subject::Coppice,
            values: vec![100.0, 1.0, 10.0],
        };
        let svg = shares("latency", "ms", &[&samples]);
        assert!(svg.contains("points=\"60.0,173.3 395.0,96.7 730.0,20.0\""), "{svg}");
    }
}
