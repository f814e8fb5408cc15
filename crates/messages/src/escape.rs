//! Texts by others, made harmless for where they go.

use coppice_api::text::acts_on_terminal;
use url::Url;

use crate::Part;

/// A character as it may be shown: what breaks lines or separates is a space, other control characters are nothing.
fn shown(c: char) -> Option<char> {
    match c {
        '\n' | '\r' | '\t' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}' => Some(' '),
        c if acts_on_terminal(c) => None,
        c => Some(c),
    }
}

/// A value of at most so many characters, without control characters.
pub(crate) fn cut(value: &str, most: usize) -> String {
    let mut chars = value.chars().filter_map(shown);
    let mut text: String = chars.by_ref().take(most).collect();
    if chars.next().is_some() {
        text.pop();
        text.push('…');
    }
    text
}

/// One line of at most so many characters, without repeated spaces.
pub(crate) fn one_line(text: &str, most: usize) -> String {
    let shown: String = text.chars().filter_map(shown).collect();
    cut(&shown.split_whitespace().collect::<Vec<_>>().join(" "), most)
}

/// Writes a value into a part of a message.
pub(crate) fn write(out: &mut impl std::fmt::Write, part: Part, value: &str) -> std::fmt::Result {
    let (markup, quotes) = match part {
        Part::Html => (true, true),
        Part::Slack => (true, false),
        Part::Subject | Part::Text => (false, false),
    };
    for c in value.chars().filter_map(shown) {
        match c {
            '&' if markup => out.write_str("&amp;")?,
            '<' if markup => out.write_str("&lt;")?,
            '>' if markup => out.write_str("&gt;")?,
            '"' if quotes => out.write_str("&quot;")?,
            '\'' if quotes => out.write_str("&#39;")?,
            c => out.write_str(c.encode_utf8(&mut [0; 4]))?,
        }
    }
    Ok(())
}

/// A URL as it is linked to: https alone, and without a user, behind whom the host would hide.
pub(crate) fn https(url: &str) -> Option<String> {
    let url = Url::parse(url).ok()?;
    let harmless = url.scheme() == "https" && url.username().is_empty() && url.password().is_none();
    // In Slack `|` ends the URL of a link.
    harmless.then(|| url.as_str().replace('|', "%7C"))
}

/// Without empty lines at the ends, and at most one of them in between: conditions of templates leave many.
pub(crate) fn tidy(text: &str) -> String {
    let mut tidy = String::with_capacity(text.len());
    for line in text.trim().lines().map(str::trim_end) {
        if line.is_empty() && (tidy.is_empty() || tidy.ends_with("\n\n")) {
            continue;
        }
        tidy.push_str(line);
        tidy.push('\n');
    }
    tidy
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_https_is_linked_to() {
        assert_eq!(
            https("https://ci.example.org/a?b=1&c=2").as_deref(),
            Some("https://ci.example.org/a?b=1&c=2")
        );
        assert_eq!(
            https("https://ci.example.org/a|b>c").as_deref(),
            Some("https://ci.example.org/a%7Cb%3Ec")
        );
        for url in
            ["http://ci.example.org", "javascript:alert(1)", "https://bank.example@evil.example", "/a", ""]
        {
            assert_eq!(https(url), None, "{url}");
        }
    }

    #[test]
    fn what_is_too_long_is_cut_where_it_says_so() {
        assert_eq!(cut("abcd", 4), "abcd");
        assert_eq!(cut("abcde", 4), "abc…");
        assert_eq!(cut("a\u{1b}[31m\nb\u{202e}", 10), "a[31m b");
        assert_eq!(one_line(" a\r\n\tb  c ", 10), "a b c");
    }

    #[test]
    fn empty_lines_are_joined() {
        assert_eq!(tidy("\n\na\n\n \n\nb\nc\n\n"), "a\n\nb\nc\n");
    }
}
