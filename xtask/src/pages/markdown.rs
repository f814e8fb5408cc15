//! What a page names: code spans, links, headings. No Markdown library: a page is prose, tables and fences here.

use std::collections::BTreeMap;

/// A page, read.
#[derive(Debug, Default)]
pub(super) struct Page {
    /// Code spans in order.
    pub(super) spans: Vec<Span>,
    /// Where links lead, and the line.
    pub(super) links: Vec<(usize, String)>,
    /// What a link to a heading of this page ends in.
    pub(super) anchors: Vec<String>,
}

/// A code span.
#[derive(Debug)]
pub(super) struct Span {
    pub(super) line: usize,
    pub(super) text: String,
    /// What is between the code span before and this one; none if that is in another paragraph.
    pub(super) gap: Option<String>,
    /// The code spans of the heading that it stands under.
    pub(super) heading: Vec<String>,
}

/// Reads a page.
pub(super) fn parse(text: &str) -> Page {
    let mut page = Page::default();
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut heading = Vec::new();
    let mut paragraph = Paragraph::default();
    let mut fence: Option<&str> = None;
    for (at, line) in text.lines().enumerate() {
        let start = line.trim_start();
        let marks = &start[..start.len() - start.trim_start_matches('`').len()];
        if let Some(open) = fence {
            fence = (!marks.starts_with(open)).then_some(open);
        } else if marks.len() >= 3 {
            paragraph.end(&heading, &mut page);
            fence = Some(marks);
        } else if line.starts_with('#') {
            paragraph.end(&heading, &mut page);
            let title = line.trim_start_matches('#').trim();
            page.anchors.push(anchor(title, &mut seen));
            heading = title.split('`').skip(1).step_by(2).map(str::to_owned).collect();
            paragraph.push(at + 1, line);
            paragraph.end(&heading, &mut page);
        } else if line.trim().is_empty() {
            paragraph.end(&heading, &mut page);
        } else {
            paragraph.push(at + 1, line);
        }
    }
    paragraph.end(&heading, &mut page);
    page
}

/// The lines of one paragraph or table: a code span may go on in the next line.
#[derive(Default)]
struct Paragraph {
    first: usize,
    text: String,
}

impl Paragraph {
    fn push(&mut self, number: usize, line: &str) {
        if self.text.is_empty() {
            self.first = number;
        }
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn end(&mut self, heading: &[String], page: &mut Page) {
        let text = std::mem::take(&mut self.text);
        let line = |at: usize| self.first + text[..at].matches('\n').count();
        let mut prose = String::new();
        let mut gap = None;
        let mut at = 0;
        while let Some(found) = text[at..].find('`') {
            let open = at + found;
            let marks = text[open..].len() - text[open..].trim_start_matches('`').len();
            let inside = open + marks;
            let Some(length) = closing(&text[inside..], marks) else {
                // Marks that nothing closes are marks.
                prose.push_str(&text[at..inside]);
                at = inside;
                continue;
            };
            prose.push_str(&text[at..open]);
            // Keeps the lines of links behind it right.
            prose.push_str(&"\n".repeat(text[inside..inside + length].matches('\n').count()));
            page.spans.push(Span {
                line: line(open),
                text: text[inside..inside + length].split_whitespace().collect::<Vec<_>>().join(" "),
                gap: gap.map(|from: usize| text[from..open].replace('\n', " ")),
                heading: heading.to_vec(),
            });
            at = inside + length + marks;
            gap = Some(at);
        }
        prose.push_str(&text[at..]);
        for (from, _) in prose.match_indices("](") {
            let target: String =
                prose[from + 2..].chars().take_while(|c| *c != ')' && !c.is_whitespace()).collect();
            page.links.push((self.first + prose[..from].matches('\n').count(), target));
        }
    }
}

/// Where the marks that close a code span begin: as many as opened it.
fn closing(text: &str, marks: usize) -> Option<usize> {
    let mut at = 0;
    while let Some(found) = text[at..].find('`') {
        let start = at + found;
        let run = text[start..].len() - text[start..].trim_start_matches('`').len();
        if run == marks {
            return Some(start);
        }
        at = start + run;
    }
    None
}

/// How GitHub names a heading in links.
fn anchor(title: &str, seen: &mut BTreeMap<String, usize>) -> String {
    let lower = title.to_lowercase();
    let kept = lower.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    let name: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
    let count = seen.entry(name.clone()).or_default();
    *count += 1;
    if *count == 1 { name } else { format!("{name}-{}", *count - 1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_may_go_on_in_the_next_line_and_end_with_their_paragraph() {
        let page = parse("# A `b/c`\n\nsee `x.rs` `kubectl\ndelete`, ``a`b``.\n\nodd ` mark\n\n`y`\n");
        let spans: Vec<_> =
            page.spans.iter().map(|s| (s.line, s.text.as_str(), s.gap.as_deref(), s.heading.len())).collect();
        assert_eq!(
            spans,
            [
                (1, "b/c", None, 1),
                (3, "x.rs", None, 1),
                (3, "kubectl delete", Some(" "), 1),
                (4, "a`b", Some(", "), 1),
                (8, "y", None, 1),
            ]
        );
    }

    #[test]
    fn fences_name_nothing() {
        let page = parse("````sh\n`a`\n```\n[x](y)\n````\n`b` [c](d.md#e)\n");
        assert_eq!(page.spans.len(), 1);
        assert_eq!(page.links, [(6, "d.md#e".to_owned())]);
    }

    #[test]
    fn links_behind_a_long_span_have_their_line() {
        let page = parse("`a\nb` and\n[c](d)\n");
        assert_eq!(page.links, [(3, "d".to_owned())]);
    }

    #[test]
    fn headings_have_the_anchors_of_github() {
        let page = parse("## The condition `Ready`\n### Bird's-eye view\n## A, b (c)\n## A, b (c)\n");
        assert_eq!(page.anchors, ["the-condition-ready", "birds-eye-view", "a-b-c", "a-b-c-1"]);
    }
}
