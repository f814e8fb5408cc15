//! Into which namespaces an object is copied: what its annotation says. Pure.

use coppice_api::selector::{LabelOperator, Labels, Requirement, Selector};
use coppice_kinds::MAX_PROPAGATE_TO;
use coppice_lifecycle::annotations::is_annotation_key;

/// What the annotation says for: into none.
const NONE: &str = "none";

/// Why an annotation is no label selector: what it is or has, after its name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum InvalidSelector {
    #[error("is longer than {MAX_PROPAGATE_TO} characters")]
    TooLong,
    #[error("has {part:?}, where {key:?} is no key of a label")]
    Key { part: String, key: String },
    #[error("has {part:?}, where {value:?} is no value of a label")]
    Value { part: String, value: String },
    #[error("has {part:?}, without its last ')'")]
    Open { part: String },
    #[error("has {part:?}, where 'in' or 'notin' is missing before '('")]
    NoOperator { part: String },
}

/// Whether an object with this annotation is copied into a namespace with these labels; or what is wrong with the annotation.
pub(super) fn includes(annotation: Option<&str>, labels: &Labels) -> Result<bool, InvalidSelector> {
    match annotation.map(str::trim) {
        None => Ok(true),
        Some(NONE) => Ok(false),
        Some(text) => Ok(selector(text)?.matches(labels)),
    }
}

/// A label selector as kubectl takes it: `a=b,c!=d,e in (f,g),!h,i`.
fn selector(text: &str) -> Result<Selector, InvalidSelector> {
    if text.len() > MAX_PROPAGATE_TO {
        return Err(InvalidSelector::TooLong);
    }
    let requirements = parts(text).into_iter().map(requirement).collect::<Result<Vec<_>, _>>()?;
    Ok(Selector { match_labels: None, match_expressions: Some(requirements) })
}

/// What is between commas that are in no parentheses.
fn parts(text: &str) -> Vec<&str> {
    let mut inside = false;
    let split = text.split(|c| {
        inside = (inside || c == '(') && c != ')';
        c == ',' && !inside
    });
    split.map(str::trim).collect()
}

fn requirement(text: &str) -> Result<Requirement, InvalidSelector> {
    let part = || text.to_owned();
    let of = |key: &str, operator, values: Option<Vec<&str>>| {
        let key = key.trim();
        if !is_annotation_key(key) {
            return Err(InvalidSelector::Key { part: part(), key: key.to_owned() });
        }
        if let Some(value) = values.iter().flatten().find(|value| !is_label_value(value)) {
            return Err(InvalidSelector::Value { part: part(), value: (*value).to_owned() });
        }
        let values = values.map(|values| values.into_iter().map(str::to_owned).collect());
        Ok(Requirement { key: key.to_owned(), operator, values })
    };
    if let Some((head, set)) = text.split_once('(') {
        let values = set.strip_suffix(')').ok_or_else(|| InvalidSelector::Open { part: part() })?;
        let values = values.split(',').map(str::trim).collect();
        let (key, operator) = match head.trim_end().rsplit_once(char::is_whitespace) {
            Some((key, "in")) => (key, LabelOperator::In),
            Some((key, "notin")) => (key, LabelOperator::NotIn),
            _ => return Err(InvalidSelector::NoOperator { part: part() }),
        };
        return of(key, operator, Some(values));
    }
    if let Some(key) = text.strip_prefix('!') {
        return of(key, LabelOperator::DoesNotExist, None);
    }
    for (sign, operator) in
        [("!=", LabelOperator::NotIn), ("==", LabelOperator::In), ("=", LabelOperator::In)]
    {
        if let Some((key, value)) = text.split_once(sign) {
            return of(key, operator, Some(vec![value.trim()]));
        }
    }
    of(text, LabelOperator::Exists, None)
}

/// As the API server has it.
fn is_label_value(value: &str) -> bool {
    let alphanumeric = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    value.is_empty()
        || value.len() <= 63
            && value.chars().all(inner)
            && alphanumeric(value.chars().next())
            && alphanumeric(value.chars().next_back())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_are_as_kubectl_takes_them() {
        let labels: Labels =
            [("team", "a"), ("shop-web.tree.coppice.dev/depth", "1"), ("empty", "")].into_iter().collect();
        for (text, expected) in [
            ("team=a", true),
            ("team == a", true),
            ("team=b", false),
            ("team!=a", false),
            ("other!=a", true),
            ("team in (b, a)", true),
            ("team notin (a,b)", false),
            ("other notin (a,b)", true),
            ("team", true),
            ("!team", false),
            ("! other", true),
            ("empty=", true),
            ("team=", false),
            ("shop-web.tree.coppice.dev/depth", true),
            ("!shop-web.tree.coppice.dev/depth", false),
            ("team in (a,b), shop-web.tree.coppice.dev/depth=1", true),
            ("team in (a,b),!empty", false),
            ("none", false),
            (" none ", false),
        ] {
            assert_eq!(includes(Some(text), &labels), Ok(expected), "{text}");
        }
        assert_eq!(includes(None, &labels), Ok(true));
    }

    #[test]
    fn what_is_no_selector_is_said_with_the_place() {
        let long = "a,".repeat(MAX_PROPAGATE_TO);
        for (text, said) in [
            ("", r#"has "", where "" is no key"#),
            ("team=a,", r#"has "", where "" is no key"#),
            ("team in a", r#"has "team in a", where "team in a" is no key"#),
            ("team in (a", "without its last ')'"),
            ("team is (a)", "'in' or 'notin' is missing"),
            ("in (a)", "'in' or 'notin' is missing"),
            ("te am=a", r#""te am" is no key"#),
            ("team=a b", r#""a b" is no value"#),
            ("team=-a", r#""-a" is no value"#),
            ("team>3", r#""team>3" is no key"#),
            (&long, "longer than"),
        ] {
            let why = includes(Some(text), &Labels::default()).expect_err(text).to_string();
            assert!(why.contains(said), "{text}: {why}");
        }
    }
}
