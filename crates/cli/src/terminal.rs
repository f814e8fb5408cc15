//! What people read in a terminal, and what must not act on it.
//!
//! Tenants write reasons, names of policies and messages; escape sequences in them could change colours and titles, move the cursor over
//! what was printed before, or make one line look like two. So everything for people goes through a [`Screen`], which makes such
//! characters visible as kubectl does; only [`Screen::put`] adds a style. What is for programs is quoted by its own format.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::io::{self, Write};

use anstyle::Style;

/// No style.
pub(crate) const PLAIN: Style = Style::new();

/// A terminal, or a file that is looked at in one later.
pub(crate) struct Screen<'a> {
    to: &'a mut dyn Write,
    color: bool,
}

impl<'a> Screen<'a> {
    /// Writes to this; with colours, if they are wanted.
    pub(crate) fn new(to: &'a mut dyn Write, color: bool) -> Self {
        Self { to, color }
    }

    /// Writes one line, for `writeln!`: the line break at its end is the only one.
    pub(crate) fn write_fmt(&mut self, line: fmt::Arguments<'_>) -> io::Result<()> {
        let line = line.to_string();
        writeln!(self.to, "{}", visible(line.strip_suffix('\n').unwrap_or(&line)))
    }

    /// Writes the beginning or the middle of a line in a style.
    pub(crate) fn put(&mut self, text: &str, style: Style) -> io::Result<()> {
        let text = visible(text);
        if self.color && style != PLAIN {
            write!(self.to, "{style}{text}{style:#}")
        } else {
            write!(self.to, "{text}")
        }
    }
}

/// Text in which nothing acts on a terminal or breaks the line; kubectl writes escape and carriage return in the same way.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '\u{1b}' => safe.push_str("^["),
            c if acts(c) => safe.extend(c.escape_default()),
            c => safe.push(c),
        }
    }
    Cow::Owned(safe)
}

/// The same for text of several lines; all but the first are set in, so that none can pass for the first line of something else.
pub(crate) fn paragraph(text: &str) -> String {
    let mut lines = text.lines().map(visible);
    let mut all = lines.next().unwrap_or_default().into_owned();
    for line in lines {
        all.push_str(if line.is_empty() || line.starts_with("  ") { "\n" } else { "\n  " });
        all.push_str(&line);
    }
    all
}

/// JSON, or YAML with JSON's strings, in which what JSON may hold but a terminal acts on is escaped. It occurs in strings only.
pub(crate) fn json(text: &str) -> Cow<'_, str> {
    // Control characters that JSON has to escape are not there; line breaks are the format's own.
    let open = |c: char| acts(c) && !matches!(c, '\n' | '\t');
    if !text.contains(open) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if open(c) {
            // Writing to a String cannot fail. All of them have at most four digits.
            let _ = write!(safe, "\\u{:04x}", u32::from(c));
        } else {
            safe.push(c);
        }
    }
    Cow::Owned(safe)
}

/// Whether a terminal does something else with a character than to show it: control characters, and those that end a line or change the
/// direction of what follows.
pub(crate) fn acts(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{feff}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_acts_on_a_terminal_becomes_visible() {
        for (text, shown) in [
            ("plain, über, 日本", "plain, über, 日本"),
            ("\u{1b}[31mred\u{1b}[0m", "^[[31mred^[[0m"),
            ("a\r\nb\tc", "a\\r\\nb\\tc"),
            ("\u{7}\u{8}\u{7f}", "\\u{7}\\u{8}\\u{7f}"),
            ("\u{9b}31m\u{85}", "\\u{9b}31m\\u{85}"),
            ("abc\u{202e}fed\u{2066}", "abc\\u{202e}fed\\u{2066}"),
        ] {
            assert_eq!(visible(text), shown);
        }
    }

    #[test]
    fn a_line_stays_one_line_and_styles_are_ours_alone() {
        let mut out = Vec::new();
        let mut screen = Screen::new(&mut out, true);
        screen.put("a\u{1b}[0m", Style::new().bold()).unwrap();
        let theirs = "b\n  Phase: Active\n";
        writeln!(screen, ": {theirs}").unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "\u{1b}[1ma^[[0m\u{1b}[0m: b\\n  Phase: Active\\n\n");
    }

    #[test]
    fn later_lines_of_a_paragraph_are_set_in() {
        assert_eq!(paragraph("2 problems:\n  a\u{7}\nerror: b"), "2 problems:\n  a\\u{7}\n  error: b");
    }

    #[test]
    fn json_stays_what_it_says() {
        let text = "\u{9b}31m\u{7f}\u{202e}\u{1b}";
        let quoted = serde_json::to_string_pretty(&[text]).unwrap();
        let safe = json(&quoted);
        assert!(!safe.contains(|c| acts(c) && c != '\n'), "{safe}");
        assert_eq!(serde_json::from_str::<[String; 1]>(&safe).unwrap(), [text]);
    }
}
