//! What `docs/from-ska.md` says of the import is so.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeSet;

use crate::support::{fixture, run};
use serde_json::Value;

/// What stands in the tables and is no field of the settings.
const NO_FIELDS: [&str; 2] = ["null", "get-owner-info"];

/// What stands in the settings of a component and has no row: the list of entries, and of what conditions consist.
const NO_ROWS: [&str; 4] = ["namespaces", "labels", "annotations", "a"];

/// The page, from one heading to another.
fn section(from: &str, to: &str) -> String {
    let page = std::fs::read_to_string("../../docs/from-ska.md").unwrap();
    let (_, rest) = page.split_once(from).unwrap();
    rest.split_once(to).unwrap().0.to_owned()
}

/// The names in the first column of the tables.
fn names(text: &str) -> BTreeSet<&str> {
    let rows = text.lines().filter_map(|line| line.strip_prefix("| "));
    let cells = rows.filter_map(|row| row.split(" | ").next());
    let spans = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    let is_field = |name: &&str| name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
    spans.filter(|name| is_field(name) && !name.starts_with('-') && !NO_FIELDS.contains(name)).collect()
}

/// Every key, wherever it is.
fn keys<'a>(value: &'a Value, found: &mut BTreeSet<&'a str>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| {
            found.insert(key);
            keys(value, found);
        }),
        Value::Array(items) => items.iter().for_each(|item| keys(item, found)),
        _ => {}
    }
}

#[test]
fn every_field_that_the_page_names_is_accepted() {
    let text = fixture("ska/every-field.yaml");
    let values: Value = serde_yaml::from_str(&text).unwrap();
    let mut known = BTreeSet::new();
    keys(&values, &mut known);
    let settings = section("\n## Settings\n", "\n### Durations\n");
    let named = names(&settings);
    assert!(named.len() > 30 && named.contains("gitlab.enabled"), "{named:?}");
    let missing: Vec<_> =
        named.iter().filter(|name| name.split('.').any(|part| !known.contains(part))).collect();
    assert_eq!(missing, Vec::<&&str>::new(), "they are not in the fixture");
    let ran = run("coppice import ska -", &text);
    assert!(!ran.err.starts_with("error: ") && ran.code != 1, "{}", ran.err);
    assert!(!ran.all().contains("-secret"), "{}", ran.all());
}

#[test]
fn every_setting_that_is_accepted_is_named_on_the_page() {
    let values: Value = serde_yaml::from_str(&fixture("ska/every-field.yaml")).unwrap();
    let mut fields = BTreeSet::new();
    for component in ["api", "collectController", "actionController"] {
        keys(&values[component]["config"], &mut fields);
    }
    assert!(fields.len() > 40 && fields.contains("whitelisted_alerts"), "{fields:?}");
    let settings = section("\n## Settings\n", "\n### Durations\n");
    let named: BTreeSet<&str> = names(&settings).into_iter().flat_map(|name| name.split('.')).collect();
    let missing: Vec<&str> =
        fields.into_iter().filter(|field| !named.contains(field) && !NO_ROWS.contains(field)).collect();
    assert_eq!(missing, [""; 0], "they are not in the tables");
}
