//! The series and labels that an expression names. Whether it is valid, `promtool` says.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, bail};

/// What stands before a list of labels.
const LABEL_LISTS: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];
/// Words that are no series.
const WORDS: [&str; 8] = ["and", "or", "unless", "bool", "offset", "atan2", "inf", "nan"];

/// What an expression names.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Named {
    /// Series with their matchers.
    pub(crate) selectors: Vec<Selector>,
    /// Labels by which it groups or matches.
    pub(crate) labels: BTreeSet<String>,
}

/// `name{label="value"}`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Selector {
    pub(crate) name: String,
    pub(crate) matchers: Vec<Matcher>,
}

/// `label="value"`, whatever the operator.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Matcher {
    pub(crate) label: String,
    pub(crate) value: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Name(String),
    Text(String),
    Sign(char),
}

/// Reads an expression.
pub(crate) fn named(expression: &str) -> Result<Named> {
    let tokens = tokens(expression)?;
    let mut named = Named::default();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        at += 1;
        let Token::Name(name) = token else {
            if *token == Token::Sign('{') {
                bail!("write the name of the series before the brace");
            }
            continue;
        };
        let next = tokens.get(at);
        if LABEL_LISTS.contains(&name.as_str()) {
            if next == Some(&Token::Sign('(')) {
                let (list, end) = until(&tokens, at + 1, ')')?;
                named.labels.extend(list.iter().filter_map(name_of).map(str::to_owned));
                at = end;
            }
        } else if !WORDS.contains(&name.to_ascii_lowercase().as_str()) && !is_call(next) {
            let mut matchers = Vec::new();
            if next == Some(&Token::Sign('{')) {
                let (list, end) = until(&tokens, at + 1, '}')?;
                matchers = read_matchers(list)?;
                at = end;
            }
            named.selectors.push(Selector { name: name.clone(), matchers });
        }
    }
    Ok(named)
}

/// A function has its arguments next, an aggregation also its labels.
fn is_call(next: Option<&Token>) -> bool {
    match next {
        Some(Token::Sign(sign)) => *sign == '(',
        Some(Token::Name(name)) => ["by", "without"].contains(&name.as_str()),
        _ => false,
    }
}

fn name_of(token: &Token) -> Option<&str> {
    match token {
        Token::Name(name) => Some(name),
        _ => None,
    }
}

/// The tokens up to a closing sign, and where to go on after it.
fn until(tokens: &[Token], from: usize, close: char) -> Result<(&[Token], usize)> {
    let length = tokens[from..].iter().position(|token| *token == Token::Sign(close));
    let length = length.with_context(|| format!("a {close} is missing"))?;
    Ok((&tokens[from..from + length], from + length + 1))
}

fn read_matchers(tokens: &[Token]) -> Result<Vec<Matcher>> {
    let mut matchers = Vec::new();
    for part in tokens.split(|token| *token == Token::Sign(',')).filter(|part| !part.is_empty()) {
        match part {
            [Token::Name(label), Token::Sign(_), .., Token::Text(value)] => {
                matchers.push(Matcher { label: label.clone(), value: value.clone() });
            }
            _ => bail!("a matcher is a label, an operator and a text in quotes"),
        }
    }
    Ok(matchers)
}

/// Without spaces, numbers, durations in brackets, and variables of Grafana.
fn tokens(text: &str) -> Result<Vec<Token>> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let end = match first {
            '"' | '\'' | '`' => {
                let length = rest[1..].find(first).context("a quote is missing")?;
                tokens.push(Token::Text(rest[1..=length].to_owned()));
                length + 2
            }
            '[' => rest.find(']').context("a ] is missing")? + 1,
            '$' => 1 + word(&rest[1..]),
            c if c.is_ascii_digit() => word(rest),
            c if c.is_ascii_alphabetic() || c == '_' || c == ':' => {
                let end = word(rest);
                tokens.push(Token::Name(rest[..end].to_owned()));
                end
            }
            c => {
                if !c.is_whitespace() {
                    tokens.push(Token::Sign(c));
                }
                c.len_utf8()
            }
        };
        rest = &rest[end..];
    }
    Ok(tokens)
}

fn word(text: &str) -> usize {
    text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':')).unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names of series with their matchers, then labels.
    fn read(expression: &str) -> String {
        let named = named(expression).unwrap();
        let matcher = |m: &Matcher| format!("{}={}", m.label, m.value);
        let selector = |s: &Selector| {
            [vec![s.name.clone()], s.matchers.iter().map(matcher).collect()].concat().join(" ")
        };
        let series: Vec<String> = named.selectors.iter().map(selector).collect();
        format!("{} | {}", series.join(", "), named.labels.into_iter().collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn series_matchers_and_labels_are_found_and_nothing_else() {
        for (expression, expected) in [
            ("up", "up | "),
            ("(sum(a_b) or vector(0)) < 1e3", "a_b | "),
            (r#"max by (source) (a{x!="y"} == 1 and on (instance) b == 1)"#, "a x=y, b | instance source"),
            (r#"sum(rate(a{r=~"A|B", s='t'}[5m])) without(le) > bool 0.5 * 2"#, "a r=A|B s=t | le"),
            ("histogram_quantile(0.9, sum by (le) (rate(a_bucket[$__rate_interval])))", "a_bucket | le"),
            ("time() - a > 90 or b == -Inf offset 5m", "a, b | "),
            ("a / on (i) group_left (v, w) b unless ignoring(x) c", "a, b, c | i v w x"),
            ("topk(3, a{}) + $var", "a | "),
            ("rate(a[1h:5m])", "a | "),
        ] {
            assert_eq!(read(expression), expected, "{expression}");
        }
    }

    #[test]
    fn what_names_no_series_is_an_error() {
        for expression in [r#"{__name__="a"}"#, "a{x}", "a{x=", "rate(a[5m", r#"a{x="y}"#] {
            assert!(named(expression).is_err(), "{expression}");
        }
    }
}
