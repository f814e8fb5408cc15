//! The namespaces of a forecast over time, as SVG: one line for each, ending where the namespace ends.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use coppice_api::text::escape_xml;
use jiff::{SignedDuration, Timestamp};

use super::{Forecast, ManagerForecast, TimelineEntry};

/// Of a line, in pixels.
const ROW: usize = 18;
/// Where time begins, and how wide it is.
const LEFT: usize = 230;
const WIDTH: usize = 900;
const TOP: usize = 54;
/// Steps of the scale that are tried, in hours; the first that gives few enough lines is taken.
const STEPS: [i64; 8] = [1, 3, 6, 12, 24, 48, 168, 720];
const MAX_LINES: i64 = 12;

/// Draws a forecast.
pub fn svg(forecast: &Forecast) -> String {
    let mut lines: BTreeMap<&str, Vec<&ManagerForecast>> = BTreeMap::new();
    for manager in &forecast.managers {
        lines.entry(&manager.namespace).or_default().push(manager);
    }
    let height = TOP + lines.len().max(1) * ROW + 40;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"10\" y=\"18\" font-size=\"14\">What Coppice would do from {:.0} to {:.0}</text>\n",
        LEFT + WIDTH + 30,
        forecast.began,
        forecast.until,
    );
    let scale = Scale { began: forecast.began, until: forecast.until };
    scale.draw(&mut svg, height - 40);
    let mut entries: BTreeMap<&str, Vec<&TimelineEntry>> = BTreeMap::new();
    for entry in &forecast.timeline {
        entries.entry(&entry.namespace).or_default().push(entry);
    }
    for (n, (namespace, managers)) in lines.iter().enumerate() {
        let of_namespace = entries.get(namespace).map(Vec::as_slice).unwrap_or_default();
        line(&mut svg, &scale, TOP + n * ROW, managers, of_namespace);
    }
    if lines.is_empty() {
        let _ = writeln!(svg, "<text x=\"10\" y=\"{}\">There are no managers.</text>", TOP + 12);
    }
    legend(&mut svg, height - 14);
    svg.push_str("</svg>\n");
    svg
}

struct Scale {
    began: Timestamp,
    until: Timestamp,
}

impl Scale {
    fn x(&self, at: Timestamp) -> f64 {
        let whole = self.until.duration_since(self.began).as_secs_f64().max(1.0);
        let part = at.duration_since(self.began).as_secs_f64().clamp(0.0, whole);
        #[expect(clippy::cast_precision_loss, reason = "pixels")]
        let (left, width) = (LEFT as f64, WIDTH as f64);
        left + width * part / whole
    }

    fn draw(&self, svg: &mut String, bottom: usize) {
        let hours = self.until.duration_since(self.began).as_hours().max(1);
        let step = STEPS.into_iter().find(|step| hours / step <= MAX_LINES).unwrap_or(hours / MAX_LINES);
        for n in 0..=hours / step {
            let after = SignedDuration::from_hours(n * step);
            let x = self.x(self.began.saturating_add(after).unwrap_or(self.until));
            let label =
                if step % 24 == 0 { format!("+{}d", n * step / 24) } else { format!("+{}h", n * step) };
            // Writing to a string cannot fail, here and below.
            let _ = writeln!(
                svg,
                "<line x1=\"{x:.1}\" y1=\"44\" x2=\"{x:.1}\" y2=\"{bottom}\" stroke=\"#dddddd\"/>\
                 <text x=\"{x:.1}\" y=\"40\" text-anchor=\"middle\" fill=\"#555555\">{label}</text>"
            );
        }
    }
}

fn line(
    svg: &mut String,
    scale: &Scale,
    y: usize,
    managers: &[&ManagerForecast],
    entries: &[&TimelineEntry],
) {
    let Some(first) = managers.first() else { return };
    let ends = managers.iter().find_map(|manager| manager.deleted);
    let (from, to) = (scale.x(first.created), scale.x(ends.unwrap_or(scale.until)));
    let phase = managers.iter().map(|manager| manager.phase.as_str()).find(|phase| *phase == "Refused");
    let color = match (ends, phase) {
        (Some(_), _) => "#c4423f",
        (None, Some(_)) => "#9a9a9a",
        (None, None) => "#4f8f4f",
    };
    let why: Vec<String> = managers
        .iter()
        .map(|manager| format!("{}: {} {}", manager.manager, manager.phase, manager.message))
        .collect();
    let shown: String = first.namespace.chars().take(34).collect();
    let _ = writeln!(
        svg,
        "<g><title>{}</title><text x=\"10\" y=\"{}\">{}</text>\
         <rect x=\"{from:.1}\" y=\"{}\" width=\"{:.1}\" height=\"8\" rx=\"2\" fill=\"{color}\" fill-opacity=\"0.65\"/></g>",
        escape_xml(&why.join("\n")),
        y + 9,
        escape_xml(&shown),
        y + 2,
        (to - from).max(1.0),
    );
    for entry in entries {
        let color = mark(&entry.reason);
        let _ = writeln!(
            svg,
            "<circle cx=\"{:.1}\" cy=\"{}\" r=\"4\" fill=\"{color}\"><title>{:.0} {}: {}</title></circle>",
            scale.x(entry.at),
            y + 6,
            entry.at,
            escape_xml(&entry.reason),
            escape_xml(&entry.message),
        );
    }
}

/// The colour of an entry.
fn mark(reason: &str) -> &'static str {
    match reason {
        "NamespaceDeleted" => "#8c1c1a",
        "DeletionAnnounced" => "#e0a030",
        "ScaledDown" | "Woken" => "#3b6fb6",
        "WebhookDelivered" => "#7a4fa0",
        _ => "#666666",
    }
}

fn legend(svg: &mut String, y: usize) {
    let marks = [
        ("deleted", "NamespaceDeleted"),
        ("announced", "DeletionAnnounced"),
        ("scaled down", "ScaledDown"),
        ("webhook", "WebhookDelivered"),
        ("else", ""),
    ];
    for (n, (label, reason)) in marks.iter().enumerate() {
        let x = LEFT + n * 110;
        let _ = writeln!(
            svg,
            "<circle cx=\"{x}\" cy=\"{}\" r=\"4\" fill=\"{}\"/><text x=\"{}\" y=\"{y}\">{label}</text>",
            y - 4,
            mark(reason),
            x + 9,
        );
    }
}
