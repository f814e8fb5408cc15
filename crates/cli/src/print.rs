//! Tables as kubectl prints them, times, colours.

use std::io::Write;

use anstyle::{AnsiColor, Style};
use anyhow::Result;
use coppice_api::NamespacePhase;
use coppice_api::manager::Phase;
pub(crate) use coppice_quantity::count;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use crate::terminal::{self, PLAIN, Screen, visible};

/// One cell, with its style.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cell {
    text: String,
    style: Style,
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::styled(text, PLAIN)
    }
}

impl Cell {
    /// A phase in its colour.
    pub(crate) fn phase(phase: Option<Phase>) -> Self {
        Self::styled(phase.map_or("-", Phase::as_str), phase_style(phase))
    }

    /// The text in this style.
    pub(crate) fn styled(text: impl Into<String>, style: Style) -> Self {
        // Here already, so that its width is that of what is shown.
        Self { text: visible(&text.into()).into_owned(), style }
    }

    /// Leaves out the middle: names that begin alike often differ at their end.
    fn shorten(&mut self, to: usize) {
        let length = self.text.chars().count();
        if length > to {
            let end = to.saturating_sub(1) / 2;
            let begin = to.saturating_sub(1) - end;
            let mut text: String = self.text.chars().take(begin).collect();
            text.push('…');
            text.extend(self.text.chars().skip(length - end));
            self.text = text;
        }
    }
}

/// The colour of a phase.
pub(crate) fn phase_style(phase: Option<Phase>) -> Style {
    let color = match phase {
        Some(Phase::Active) => AnsiColor::Green,
        Some(Phase::Pending | Phase::Terminating) => AnsiColor::Yellow,
        Some(Phase::Held | Phase::Suspended) => AnsiColor::Cyan,
        Some(Phase::Refused) => AnsiColor::Red,
        Some(Phase::Fired) | None => return Style::new(),
    };
    color.on_default()
}

/// The phase of a namespace in its colour.
pub(crate) fn namespace_phase(phase: Option<NamespacePhase>) -> Cell {
    Cell::styled(phase.map_or("-", NamespacePhase::as_str), namespace_phase_style(phase))
}

/// The colour of the phase of a namespace.
pub(crate) fn namespace_phase_style(phase: Option<NamespacePhase>) -> Style {
    let color = match phase {
        Some(NamespacePhase::Ok) => AnsiColor::Green,
        Some(_) => AnsiColor::Yellow,
        None => return Style::new(),
    };
    color.on_default()
}

/// The style of errors.
pub(crate) const ERROR: Style = AnsiColor::Red.on_default();
/// The style of what is in order.
pub(crate) const OK: Style = AnsiColor::Green.on_default();
/// The style of warnings.
pub(crate) const WARNING: Style = AnsiColor::Yellow.on_default();
/// The style of headings.
pub(crate) const HEADING: Style = Style::new().bold();

/// Between two columns.
const GAP: usize = 3;
/// No cell is shortened to less.
const MIN_WIDTH: usize = 12;

/// A table in kubectl's manner: columns as wide as their widest cell, three spaces between, the last one open.
pub(crate) struct Table {
    headers: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// An empty table with these columns.
    pub(crate) fn new(headers: &[&'static str]) -> Self {
        Self { headers: headers.to_vec(), rows: Vec::new() }
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    /// Has it fit into a terminal of this width: leaves out these columns, each only if the table is still too wide, and then shortens the
    /// cells of the first column.
    pub(crate) fn fit(&mut self, width: usize, with_headers: bool, optional: &[&str]) {
        for name in optional {
            if self.excess(width, with_headers) == 0 {
                return;
            }
            let Some(at) = self.headers.iter().position(|header| header == name) else { continue };
            self.headers.remove(at);
            for row in self.rows.iter_mut().filter(|row| at < row.len()) {
                row.remove(at);
            }
        }
        let excess = self.excess(width, with_headers);
        if excess == 0 {
            return;
        }
        let first = self.widths(with_headers).first().copied().unwrap_or(0);
        for row in &mut self.rows {
            if let Some(cell) = row.first_mut() {
                cell.shorten(first.saturating_sub(excess).max(MIN_WIDTH));
            }
        }
    }

    /// How much wider it is than that.
    fn excess(&self, width: usize, with_headers: bool) -> usize {
        let widths = self.widths(with_headers);
        (widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1)).saturating_sub(width)
    }

    /// Of each column its widest cell.
    fn widths(&self, with_headers: bool) -> Vec<usize> {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column)).map(|c| c.text.chars().count());
            cells.chain(with_headers.then_some(self.headers[column].len())).max().unwrap_or(0)
        };
        (0..self.headers.len()).map(width).collect()
    }

    /// Writes the table.
    pub(crate) fn write(&self, to: &mut Screen<'_>, with_headers: bool) -> Result<()> {
        let widths = self.widths(with_headers);
        let header: Vec<Cell> = self.headers.iter().map(|h| Cell::from(*h)).collect();
        for row in with_headers.then_some(&header).into_iter().chain(&self.rows) {
            // No spaces follow the last cell that is not empty.
            let mut padding = 0;
            for (cell, width) in row.iter().zip(&widths) {
                let text = cell.text.trim_end();
                if !text.is_empty() {
                    to.put(&" ".repeat(padding), PLAIN)?;
                    to.put(text, cell.style)?;
                    padding = 0;
                }
                padding += (*width).max(text.chars().count()) - text.chars().count() + GAP;
            }
            writeln!(to)?;
        }
        Ok(())
    }
}

/// An instant in UTC, whole seconds.
pub(crate) fn instant(at: Timestamp) -> String {
    format!("{at:.0}")
}

/// An instant, and how far away it is: `2026-03-01T12:00:00Z (in 2h)`.
pub(crate) fn instant_from(at: Timestamp, now: Timestamp) -> String {
    format!("{} ({})", instant(at), relative(at, now))
}

/// The same for a cell of a table: `-` if there is none.
pub(crate) fn instant_or_dash(at: Option<Timestamp>, now: Timestamp) -> String {
    at.map_or_else(|| "-".to_owned(), |at| instant_from(at, now))
}

/// How far away an instant is: `in 2h`, `3m ago`, `now`.
pub(crate) fn relative(at: Timestamp, now: Timestamp) -> String {
    // To the nearest second: "in 1h" for something requested a moment ago.
    let seconds = at.duration_since(now).as_millis().saturating_add(500).div_euclid(1000);
    match i64::try_from(seconds).unwrap_or(i64::MAX) {
        0 => "now".to_owned(),
        ahead @ 1.. => format!("in {}", span(ahead)),
        behind => format!("{} ago", span(-behind)),
    }
}

/// A length of time in short, as kubectl writes ages.
pub(crate) fn age(of: SignedDuration) -> String {
    span(of.as_secs().max(0))
}

fn span(seconds: i64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    let pair = |a: i64, x: &str, b: i64, y: &str| {
        if b == 0 { format!("{a}{x}") } else { format!("{a}{x}{b}{y}") }
    };
    match seconds {
        ..120 => format!("{seconds}s"),
        120..600 => pair(minutes, "m", seconds % 60, "s"),
        600..10_800 if minutes % 60 != 0 || hours == 0 => {
            if hours == 0 {
                format!("{minutes}m")
            } else {
                pair(hours, "h", minutes % 60, "m")
            }
        }
        600..28_800 => pair(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => pair(days, "d", hours % 24, "h"),
        _ if days < 730 => format!("{days}d"),
        _ => pair(days / 365, "y", days % 365, "d"),
    }
}

/// Writes a value as JSON.
pub(crate) fn json(to: &mut dyn Write, value: &impl Serialize) -> Result<()> {
    Ok(writeln!(to, "{}", terminal::json(&serde_json::to_string_pretty(value)?))?)
}

/// Writes a value as YAML.
pub(crate) fn yaml(to: &mut dyn Write, value: &impl Serialize) -> Result<()> {
    Ok(write!(to, "{}", crate::yaml::to_string(value)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_short() {
        for (seconds, text) in [
            (0, "0s"),
            (59, "59s"),
            (119, "119s"),
            (120, "2m"),
            (330, "5m30s"),
            (600, "10m"),
            (3600, "1h"),
            (5400, "1h30m"),
            (7200, "2h"),
            (10_800, "3h"),
            (86_400, "24h"),
            (180_000, "2d2h"),
            (864_000, "10d"),
            (94_608_000, "3y"),
        ] {
            assert_eq!(span(seconds), text, "{seconds}");
        }
    }

    #[test]
    fn instants_say_how_far_away_they_are() {
        let now: Timestamp = "2026-03-01T12:00:00.4Z".parse().unwrap();
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        assert_eq!(instant_from(at("2026-03-01T14:00:00Z"), now), "2026-03-01T14:00:00Z (in 2h)");
        assert_eq!(relative(at("2026-03-01T11:59:00Z"), now), "60s ago");
        assert_eq!(relative(at("2026-03-01T12:00:00Z"), now), "now");
    }

    #[test]
    fn columns_are_aligned_and_the_last_is_open() {
        let mut table = Table::new(&["A", "LONGER", "C"]);
        table.row(vec!["ä".into(), "x".into(), "the rest".into()]);
        table.row(vec!["wide one".into(), "".into(), "".into()]);
        let mut out = Vec::new();
        table.write(&mut Screen::new(&mut out, false), true).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "A          LONGER   C\nä          x        the rest\nwide one\n");
    }
}
