//! What people read in a terminal, and what must not act on it.
//!
//! Tenants write reasons, names of policies and messages; escape sequences in them could change colours and titles, move the cursor over
//! what was printed before, or make one line look like two. So everything for people goes through a [`Screen`], which makes such
//! characters visible as kubectl does; only [`Screen::put`] adds a style. What is for programs is quoted by its own format.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::io::{self, Write};

use anstyle::Style;
use coppice_api::text::acts_on_terminal as is_unsafe_for_terminal;

/// No style.
pub(crate) const PLAIN: Style = Style::new();

/// A terminal, or a file that is shown in one later.
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
    if !text.contains(is_unsafe_for_terminal) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '\u{1b}' => safe.push_str("^["),
            c if is_unsafe_for_terminal(c) => safe.extend(c.escape_default()),
            c => safe.push(c),
        }
    }
    Cow::Owned(safe)
}

/// An error of several lines. Each is one line, whatever tenants wrote into it, and all but the first are set in; every other error is
/// printed on one line.
#[derive(Debug)]
pub(crate) struct Paragraph {
    /// What the lines below are.
    pub(crate) first: String,
    /// One line each.
    pub(crate) below: Vec<String>,
}

impl fmt::Display for Paragraph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&visible(&self.first))?;
        self.below.iter().try_for_each(|line| write!(f, "\n  {}", visible(line)))
    }
}

impl std::error::Error for Paragraph {}

/// An error with its causes, as people read it. Only a [`Paragraph`] breaks lines.
pub(crate) fn error(error: &anyhow::Error) -> String {
    let one = |cause: &(dyn std::error::Error + 'static)| {
        let text = cause.to_string();
        if cause.is::<Paragraph>() { text } else { visible(&text).into_owned() }
    };
    let causes: Vec<String> = error.chain().map(one).collect();
    format!("error: {}", causes.join(": "))
}

/// JSON, or YAML with JSON's strings, in which what JSON may hold but a terminal acts on is escaped. It occurs in strings only.
pub(crate) fn json(text: &str) -> Cow<'_, str> {
    // Control characters that JSON has to escape are not there; line breaks are the format's own.
    let open = |c: char| is_unsafe_for_terminal(c) && !matches!(c, '\n' | '\t');
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
    fn errors_break_lines_only_where_we_do() {
        let theirs = "a\u{7}\n  b\nerror: c".to_owned();
        let below = vec![theirs.clone(), "d".to_owned()];
        let several = Paragraph { first: "2 problems:".to_owned(), below };
        assert_eq!(error(&several.into()), "error: 2 problems:\n  a\\u{7}\\n  b\\nerror: c\n  d");
        let one = anyhow::anyhow!(theirs).context("it failed\n  as well");
        assert_eq!(error(&one), "error: it failed\\n  as well: a\\u{7}\\n  b\\nerror: c");
    }

    #[test]
    fn json_stays_what_it_says() {
        let text = "\u{9b}31m\u{7f}\u{202e}\u{1b}";
        let quoted = serde_json::to_string_pretty(&[text]).unwrap();
        let safe = json(&quoted);
        assert!(!safe.contains(|c| is_unsafe_for_terminal(c) && c != '\n'), "{safe}");
        assert_eq!(serde_json::from_str::<[String; 1]>(&safe).unwrap(), [text]);
    }
}
