//! Trees as a picture: for each resource a bar for each namespace, as wide as what it has, below that of the namespace above. Pure.

use std::fmt::Write as _;

use coppice_api::text::escape_xml;
use coppice_hierarchy::{ResourceName, Resources};

use super::Node;
use crate::terminal::visible;

/// Of the widest bar, in pixels; of all others its part.
const WIDTH: f64 = 960.0;
const LEFT: f64 = 10.0;
/// Of a bar, with the space below it.
const ROW: f64 = 24.0;
const BAR: f64 = 20.0;
/// Of the line above the bars of one resource.
const TITLE: f64 = 26.0;
/// About that of one letter, and the least of a bar that has a name.
const LETTER: f64 = 6.5;

const GIVEN: &str = "#e3e8ee";
const USED: &str = "#4f8f4f";
const FREE: &str = "#cfe6cf";
const BEYOND: &str = "#c4423f";
const UNKNOWN: &str = "#bbbbbb";

/// Draws trees, with the resources that are asked for.
pub(crate) fn svg(nodes: &[&Node], asked: &[ResourceName]) -> String {
    let mut body = String::new();
    let mut y = 8.0;
    for node in nodes {
        for name in resources(node, asked) {
            y = tree(&mut body, node, &name, y);
        }
    }
    if body.is_empty() {
        y = text(&mut body, y, "There are no namespaces with a quota here.");
    }
    legend(&mut body, y + 14.0);
    let (width, height) = (WIDTH + 2.0 * LEFT, y + 28.0);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n{body}</svg>\n"
    )
}

/// What the namespace at the top has, as far as it is asked for.
fn resources(node: &Node, asked: &[ResourceName]) -> Vec<ResourceName> {
    let names = node.allotted.iter().flat_map(Resources::iter).map(|(name, _)| name.clone());
    names.filter(|name| asked.is_empty() || asked.contains(name)).collect()
}

/// One resource of one tree; where the next begins.
fn tree(svg: &mut String, node: &Node, name: &ResourceName, y: f64) -> f64 {
    let has = amount(node.allotted.as_ref(), name);
    let title = format!("{} · {name}: {}", node.namespace, shown(node.allotted.as_ref(), name));
    let top = text(svg, y, &title);
    let pixels = if has > 0.0 { WIDTH / has } else { 0.0 };
    bar(svg, node, name, (LEFT, top, pixels));
    top + ROW * f64::from(depth(node)) + 10.0
}

fn depth(node: &Node) -> u32 {
    1 + node.children.iter().map(depth).max().unwrap_or(0)
}

/// The bar of a namespace at this place, and below it those of the namespaces below.
fn bar(svg: &mut String, node: &Node, name: &ResourceName, (x, y, pixels): (f64, f64, f64)) {
    let width = amount(node.allotted.as_ref(), name) * pixels;
    // Writing to a string cannot fail, here and below.
    let _ = writeln!(svg, "<g><title>{}</title>", escape(&tip(node, name)));
    let mut part = |from: f64, width: f64, color: &str| {
        if width > 0.0 {
            let _ = writeln!(
                svg,
                "<rect x=\"{from:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{BAR}\" fill=\"{color}\"/>"
            );
        }
    };
    match (&node.given, &node.used, &node.free) {
        (Some(given), Some(used), Some(free)) => {
            let of = |amounts: &Resources| amounts.get(name).as_f64() * pixels;
            let (given, used, free) = (of(given).min(width), of(used), of(free));
            let own = width - given;
            part(x, given, GIVEN);
            part(x + given, used.min(own), if used > own + 0.5 { BEYOND } else { USED });
            part(x + given + used, free.min(own - used), FREE);
        }
        _ => part(x, width, UNKNOWN),
    }
    let _ = writeln!(
        svg,
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{BAR}\" fill=\"none\" stroke=\"#667788\" stroke-width=\"0.7\"/>",
        width.max(1.0)
    );
    let letters = ((width - 8.0) / LETTER).max(0.0);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small number of letters")]
    let label: String = node.namespace.chars().take(letters as usize).collect();
    if !label.is_empty() {
        let _ = writeln!(svg, "<text x=\"{:.1}\" y=\"{:.1}\">{}</text>", x + 4.0, y + 14.0, escape(&label));
    }
    svg.push_str("</g>\n");
    let mut from = x;
    for child in &node.children {
        bar(svg, child, name, (from, y + ROW, pixels));
        from += amount(child.allotted.as_ref(), name) * pixels;
    }
}

/// What a pointer over a bar shows.
fn tip(node: &Node, name: &ResourceName) -> String {
    let phase = node.phase.map_or_else(String::new, |phase| format!(" ({phase})"));
    let why = if node.message.is_empty() { String::new() } else { format!("\n{}", node.message) };
    format!(
        "{}{phase}: {name}\nallotted {}, given {}, used {}, free {}{why}",
        node.namespace,
        shown(node.allotted.as_ref(), name),
        shown(node.given.as_ref(), name),
        shown(node.used.as_ref(), name),
        shown(node.free.as_ref(), name)
    )
}

fn amount(of: Option<&Resources>, name: &ResourceName) -> f64 {
    of.map_or(0.0, |of| of.get(name).as_f64())
}

fn shown(of: Option<&Resources>, name: &ResourceName) -> String {
    of.map_or_else(|| "-".to_owned(), |of| of.get(name).to_string())
}

fn text(svg: &mut String, y: f64, text: &str) -> f64 {
    let _ =
        writeln!(svg, "<text x=\"{LEFT}\" y=\"{:.1}\" font-size=\"14\">{}</text>", y + 16.0, escape(text));
    y + TITLE
}

fn legend(svg: &mut String, y: f64) {
    let all = [
        ("given to those below", GIVEN),
        ("used", USED),
        ("free", FREE),
        ("used beyond its quota", BEYOND),
        ("not known", UNKNOWN),
    ];
    let mut x = LEFT;
    for (label, color) in all {
        let _ = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"{:.1}\" width=\"10\" height=\"10\" fill=\"{color}\"/><text x=\"{}\" y=\"{y:.1}\">{label}</text>",
            y - 9.0,
            x + 14.0
        );
        x += 160.0;
    }
}

/// Text in XML, which may be printed to a terminal.
fn escape(text: &str) -> String {
    let lines: Vec<_> = text.lines().map(visible).collect();
    escape_xml(&lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pods(amount: u32) -> Option<Resources> {
        serde_json::from_value(serde_json::json!({ "pods": amount.to_string() })).ok()
    }

    fn node(name: &str, [allotted, given, used, free]: [u32; 4], children: Vec<Node>) -> Node {
        let (allotted, given, used, free) = (pods(allotted), pods(given), pods(used), pods(free));
        Node { allotted, given, used, free, children, ..Node::empty(name) }
    }

    /// Where a bar of this colour begins, and how wide it is.
    fn bars<'a>(svg: &'a str, color: &str) -> Vec<(&'a str, &'a str)> {
        let value = |line: &'a str, key: &str| {
            line.split(key).nth(1).and_then(|rest| rest.split('"').next()).unwrap()
        };
        let of_color = svg.lines().filter(|line| line.contains(&format!("height=\"20\" fill=\"{color}\"")));
        of_color.map(|line| (value(line, " x=\""), value(line, " width=\""))).collect()
    }

    #[test]
    fn a_namespace_is_as_wide_as_its_part_and_below_the_one_above() {
        let web = node("web", [6, 0, 3, 3], vec![]);
        let api = node("api", [2, 0, 3, 0], vec![]);
        let hidden = Node { allotted: pods(1), ..Node::empty("<b>") };
        let top = node("shop", [12, 9, 1, 2], vec![api, web, hidden]);
        let svg = svg(&[&top], &[]);
        // 80 pixels for each pod.
        assert_eq!(bars(&svg, GIVEN), [("10.0", "720.0")]);
        assert_eq!(bars(&svg, USED), [("730.0", "80.0"), ("170.0", "240.0")]);
        assert_eq!(bars(&svg, FREE), [("810.0", "160.0"), ("410.0", "240.0")]);
        assert_eq!(bars(&svg, BEYOND), [("10.0", "160.0")]);
        assert_eq!(bars(&svg, UNKNOWN), [("650.0", "80.0")]);
        assert!(
            svg.contains("shop · pods: 12") && svg.contains("&lt;b&gt;") && !svg.contains("<b>"),
            "{svg}"
        );
        assert!(svg.contains("web: pods\nallotted 6, given 0, used 3, free 3"), "{svg}");
    }

    #[test]
    fn nothing_and_what_is_not_asked_for_are_no_bars() {
        let empty = node("shop", [0, 0, 0, 0], vec![]);
        assert!(bars(&svg(&[&empty], &[]), USED).is_empty());
        let asked = ["cpu".parse().unwrap()];
        assert!(svg(&[&empty], &asked).contains("There are no namespaces with a quota here."));
    }
}
