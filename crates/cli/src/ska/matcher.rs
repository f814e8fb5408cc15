//! Which namespaces an entry of that system's settings is about: alternatives, of which one is enough, each with a score.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::pattern;
use super::problems::Reader;
use crate::import::fields::{FieldError, Fields};

/// What to do where a selector has to be written by hand.
const BY_HAND: &str = "nothing is written for this entry; write a ClusterNamespaceManager for it by hand, or a pattern that is a name, \
                       a prefix (ci-.*), a suffix (.*-ci) or alternatives of these ((a|b)-.*), and import again";

/// One way to be matched: everything that is given has to hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Alternative {
    /// Globs, of which one has to match; none for any name.
    names: Vec<String>,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
}

/// Which namespaces an entry is about.
#[derive(Clone, Debug)]
pub(super) struct Matcher {
    pub(super) alternatives: Vec<Alternative>,
    /// Whether the alternatives match exactly what the entry does. Otherwise they match all of that, and more.
    pub(super) exact: bool,
    /// The least and the highest score of a namespace that it is about.
    score: (u8, u8),
    /// Its place in the list.
    index: usize,
}

impl Matcher {
    /// Reads `names`, `any` and `all` of an entry, and reports what cannot be expressed.
    pub(super) fn read(entry: &Fields<'_>, index: usize, reader: &mut Reader<'_>) -> Self {
        let mut matcher = Self { alternatives: Vec::new(), exact: true, score: (u8::MAX, 0), index };
        let names = matcher.names(entry, reader);
        if !names.is_empty() {
            matcher.add(1, vec![Alternative { names, ..Alternative::default() }]);
        }
        let any = matcher.conditions(entry, "any", reader);
        matcher.add(2, any);
        let all = matcher.conditions(entry, "all", reader);
        if !all.is_empty() {
            let together = all.iter().try_fold(Alternative::default(), Alternative::and);
            match together {
                Some(together) => matcher.add(4, vec![together]),
                None => reader.remarks.note(format!(
                    "{}: its conditions contradict each other, so that it matches no namespace: it is left out",
                    entry.path_of("all")
                )),
            }
        }
        matcher
    }

    fn add(&mut self, score: u8, alternatives: Vec<Alternative>) {
        if alternatives.is_empty() {
            return;
        }
        // A namespace that several kinds of selectors match has the sum of their scores.
        self.score = (self.score.0.min(score), self.score.1 + score);
        self.alternatives.extend(alternatives);
    }

    fn names(&mut self, entry: &Fields<'_>, reader: &mut Reader<'_>) -> Vec<String> {
        let mut names = Vec::new();
        let list = reader.keep(entry.list("names")).flatten().unwrap_or_default();
        for (at, expression) in list.iter().enumerate() {
            let path = format!("{}[{at}]", entry.path_of("names"));
            let Some(expression) = expression.as_str() else {
                reader.keep::<()>(Err(FieldError { path, message: "must be a string".to_owned() }));
                continue;
            };
            match pattern::globs(expression) {
                Ok(globs) if globs.is_empty() => reader.remarks.note(format!(
                    "{path}: '{expression}' matches no name that a namespace can have: it is left out"
                )),
                Ok(globs) => names.extend(globs),
                Err(why) => {
                    self.exact = false;
                    names.extend(pattern::wider_globs(expression));
                    reader
                        .remarks
                        .differs(format!("{path}: no glob expresses '{expression}': {why}; {BY_HAND}"));
                }
            }
        }
        names.sort();
        names.dedup();
        if self.exact && names.iter().any(|name| name == "*") {
            reader.remarks.note(format!(
                "{}: it matches every namespace; those that are protected stay",
                entry.path_of("names")
            ));
        }
        names
    }

    fn conditions(&mut self, entry: &Fields<'_>, key: &str, reader: &mut Reader<'_>) -> Vec<Alternative> {
        let mut conditions = Vec::new();
        let list = reader.keep(entry.list(key)).flatten().unwrap_or_default();
        for (at, value) in list.iter().enumerate() {
            let path = format!("{}[{at}]", entry.path_of(key));
            let Some(condition) = reader.keep(Fields::of(value, &path)) else { continue };
            let (labels, annotations) = (condition.texts("labels"), condition.texts("annotations"));
            let (Some(labels), Some(annotations)) = (reader.keep(labels), reader.keep(annotations)) else {
                continue;
            };
            if labels.is_empty() && annotations.is_empty() {
                self.exact = false;
                reader.remarks.differs(format!(
                    "{path}: a condition without labels and annotations holds for every namespace; nothing is written for this entry; \
                     take the condition out and import again (to mean every namespace, write names: [\".*\"])"
                ));
            }
            conditions.push(Alternative { names: Vec::new(), labels, annotations });
        }
        conditions
    }

    /// Whether it matches no namespace at all.
    pub(super) fn is_empty(&self) -> bool {
        self.alternatives.is_empty()
    }

    /// Whether namespaces have different scores by it.
    pub(super) fn is_mixed(&self) -> bool {
        self.score.0 != self.score.1
    }

    /// What entries are ordered by: the first comes first.
    pub(super) fn rank(&self) -> impl Ord + use<> {
        (u8::MAX - self.score.1, self.index)
    }

    /// Whether it wins every namespace that both match.
    pub(super) fn outranks(&self, other: &Self) -> bool {
        let tie = self.score == other.score && !self.is_mixed() && self.index < other.index;
        self.score.0 > other.score.1 || tie
    }

    /// Whether both can match one namespace, as far as is known.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        self.alternatives.iter().any(|one| other.alternatives.iter().any(|two| one.overlaps(two)))
    }

    /// Whether it matches every namespace that the other one does.
    pub(super) fn contains(&self, other: &Self) -> bool {
        self.exact
            && other.alternatives.iter().all(|two| self.alternatives.iter().any(|one| one.contains(two)))
    }

    /// What the names of its manager begin with.
    pub(super) fn title(&self) -> String {
        let name = self.alternatives.iter().flat_map(|one| &one.names).next();
        let words = name.map(|name| name.split('*').map(|part| part.trim_matches('-')));
        let words: Vec<_> = words.into_iter().flatten().filter(|word| !word.is_empty()).collect();
        if words.is_empty() { "ska".to_owned() } else { words.join("-") }
    }

    /// The selector, without what `exclude` names; `more` are requirements on labels besides.
    pub(super) fn selector(&self, exclude: &[String], more: Value) -> Value {
        let mut selector = match self.alternatives.as_slice() {
            [one] => one.selector(),
            all => json!({ "anyOf": all.iter().map(Alternative::selector).collect::<Vec<_>>() }),
        };
        if !exclude.is_empty() {
            selector["exclude"] = json!(exclude);
        }
        if !more.is_null() {
            selector["labels"]["matchExpressions"] = more;
        }
        selector
    }
}

impl Alternative {
    /// Both; none if they contradict each other.
    fn and(mut self, other: &Self) -> Option<Self> {
        if conflict(&self.labels, &other.labels) || conflict(&self.annotations, &other.annotations) {
            return None;
        }
        self.labels.extend(other.labels.clone());
        self.annotations.extend(other.annotations.clone());
        Some(self)
    }

    fn overlaps(&self, other: &Self) -> bool {
        let names = |one: &String| other.names.iter().any(|two| globs_overlap(one, two));
        let by_name = self.names.is_empty() || other.names.is_empty() || self.names.iter().any(names);
        by_name && !conflict(&self.labels, &other.labels) && !conflict(&self.annotations, &other.annotations)
    }

    fn contains(&self, other: &Self) -> bool {
        // A star of the other one is a character that only a star of this one matches.
        let narrower = |two: &String| self.names.iter().any(|one| coppice_lifecycle::glob::matches(one, two));
        let by_name = self.names.is_empty() || !other.names.is_empty() && other.names.iter().all(narrower);
        let all_in = |these: &BTreeMap<String, String>, those: &BTreeMap<String, String>| {
            these.iter().all(|(key, value)| those.get(key) == Some(value))
        };
        by_name && all_in(&self.labels, &other.labels) && all_in(&self.annotations, &other.annotations)
    }

    fn selector(&self) -> Value {
        let mut selector = json!({});
        if !self.names.is_empty() {
            selector["names"] = json!(self.names);
        }
        if !self.labels.is_empty() {
            selector["labels"] = json!({ "matchLabels": self.labels });
        }
        if !self.annotations.is_empty() {
            let annotations =
                self.annotations.iter().map(|(key, value)| json!({ "key": key, "value": value }));
            selector["annotations"] = annotations.collect();
        }
        selector
    }
}

/// Whether two sets ask for different values of one key.
fn conflict(one: &BTreeMap<String, String>, two: &BTreeMap<String, String>) -> bool {
    one.iter().any(|(key, value)| two.get(key).is_some_and(|other| other != value))
}

/// Whether one name matches both globs.
fn globs_overlap(one: &str, two: &str) -> bool {
    let (one, two) = (one.as_bytes(), two.as_bytes());
    // together[i][j]: whether one text matches the first i characters of the one and the first j of the other.
    let mut together = vec![vec![false; two.len() + 1]; one.len() + 1];
    for i in 0..=one.len() {
        for j in 0..=two.len() {
            together[i][j] = match (i.checked_sub(1), j.checked_sub(1)) {
                (None, None) => true,
                (Some(left), None) => one[left] == b'*' && together[left][j],
                (None, Some(up)) => two[up] == b'*' && together[i][up],
                (Some(left), Some(up)) => {
                    let star = one[left] == b'*' || two[up] == b'*';
                    star && (together[left][j] || together[i][up])
                        || one[left] == two[up] && together[left][up]
                }
            };
        }
    }
    together[one.len()][two.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::Remarks;
    use crate::ska::problems::Problems;

    #[test]
    fn globs_overlap_if_one_name_matches_both() {
        for (one, two, expected) in [
            ("ci-*", "dev-*", false),
            ("ci-*", "ci-a-*", true),
            ("ci-*", "*-x", true),
            ("ci", "ci", true),
            ("ci", "c*", true),
            ("ci", "ci-*", false),
            ("*", "a", true),
            ("a*b", "a*c", false),
            ("a*b*", "*c", true),
            ("*a*", "*b*", true),
        ] {
            assert_eq!(globs_overlap(one, two), expected, "{one} {two}");
            assert_eq!(globs_overlap(two, one), expected, "{two} {one}");
        }
    }

    /// An entry as it is read.
    fn matcher(index: usize, entry: &Value) -> Matcher {
        let fields = Fields::of(entry, "e").unwrap();
        let (mut remarks, mut problems) = (Remarks::default(), Problems::default());
        let mut reader = Reader { place: "p", remarks: &mut remarks, problems: &mut problems };
        let matcher = Matcher::read(&fields, index, &mut reader);
        assert!(problems.is_empty(), "{problems:?}");
        matcher
    }

    #[test]
    fn an_entry_contains_what_asks_for_more() {
        let of = |entry: Value| matcher(0, &entry);
        let wide = of(json!({ "names": ["ci-.*"], "all": [{ "labels": { "a": "b" } }] }));
        assert!(wide.contains(&of(json!({ "names": ["ci-x-.*", "ci-y"] }))));
        assert!(wide.contains(&of(json!({ "any": [{ "labels": { "a": "b", "c": "d" } }] }))));
        assert!(!wide.contains(&of(json!({ "names": ["ci-x", "dev"] }))));
        assert!(!wide.contains(&of(json!({ "any": [{ "labels": { "a": "c" } }] }))));
        assert!(!of(json!({ "names": ["ci-.*", "a{2}"] })).contains(&of(json!({ "names": ["ci-x"] }))));
    }

    #[test]
    fn scores_decide_and_the_first_of_equals_wins() {
        let (name, label) = (json!({ "names": ["a"] }), json!({ "any": [{ "labels": { "a": "b" } }] }));
        let both = json!({ "names": ["a"], "all": [{ "labels": { "a": "b" } }] });
        let [first, second, any] = [matcher(0, &name), matcher(1, &name), matcher(2, &label)];
        let mixed = matcher(3, &both);
        assert!(first.outranks(&second) && !second.outranks(&first) && any.outranks(&first));
        assert!(!mixed.outranks(&any) && !any.outranks(&mixed), "by its name it has 1, by both 5");
        assert!(!mixed.outranks(&first) && !first.outranks(&mixed));
    }
}
