//! Text that others wrote: names, reasons, messages and labels by tenants, answers by receivers of webhooks.

/// Whether a terminal does something else with a character than to show it: control characters (line breaks among them), invisible
/// ones, and those that end a line or change the direction of what follows.
pub fn acts_on_terminal(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{feff}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Text in XML, which has no control characters.
pub fn escape_xml(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            c if c.is_control() && c != '\n' => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::{acts_on_terminal, escape_xml};

    #[test]
    fn text_ends_no_element_and_no_attribute() {
        assert_eq!(escape_xml("a<b> & \"c\"\nd\u{1b}"), "a&lt;b&gt; &amp; &quot;c&quot;\nd\u{fffd}");
    }

    #[test]
    fn what_acts_on_a_terminal_is_known_and_what_is_only_shown_is_left() {
        for (what, range, acts) in [
            ("C0 controls, with escape and line breaks", '\0'..='\u{1f}', true),
            ("ASCII", ' '..='~', false),
            ("delete and C1 controls, with the 8-bit escape", '\u{7f}'..='\u{9f}', true),
            ("Latin letters", '\u{a0}'..='\u{ff}', false),
            ("the Arabic letter mark", '\u{61c}'..='\u{61c}', true),
            ("Arabic letters", '\u{61d}'..='\u{64a}', false),
            ("spaces of several widths", '\u{2000}'..='\u{200a}', false),
            ("invisible spaces and marks of direction", '\u{200b}'..='\u{200f}', true),
            ("dashes and quotes", '\u{2010}'..='\u{2027}', false),
            ("line and paragraph separator, embeddings and overrides", '\u{2028}'..='\u{202e}', true),
            ("the narrow space and further punctuation", '\u{202f}'..='\u{2065}', false),
            ("isolates", '\u{2066}'..='\u{2069}', true),
            ("Japanese", '\u{3041}'..='\u{9fff}', false),
            ("the byte order mark", '\u{feff}'..='\u{feff}', true),
            ("emoji", '\u{1f300}'..='\u{1f64f}', false),
        ] {
            for c in range {
                assert_eq!(acts_on_terminal(c), acts, "{what}: {:?} (U+{:04X})", c, u32::from(c));
            }
        }
    }
}
