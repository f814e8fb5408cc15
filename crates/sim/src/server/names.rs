//! Which names, labels and annotations are well-formed, and what is said about those that are not.

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const NAME_PART: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

const NOT_QUALIFIED: &str = "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";

fn is_label(text: &str) -> bool {
    let inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    let bytes = text.as_bytes();
    !bytes.is_empty()
        && bytes.iter().all(|c| inner(*c))
        && [bytes.first(), bytes.last()].iter().all(|c| *c != Some(&b'-'))
}

fn is_qualified_part(text: &str) -> bool {
    let bytes = text.as_bytes();
    let inner = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
    let end = |c: Option<&u8>| c.is_some_and(u8::is_ascii_alphanumeric);
    bytes.iter().all(|c| inner(*c)) && end(bytes.first()) && end(bytes.last())
}

/// What is wrong with the name of most objects: a DNS subdomain.
pub(super) fn subdomain_problems(name: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if name.len() > 253 {
        problems.push("must be no more than 253 bytes".to_owned());
    }
    if !name.split('.').all(is_label) {
        problems.push(SUBDOMAIN.to_owned());
    }
    problems
}

/// What is wrong with the name of a namespace: a DNS label.
pub(super) fn label_problems(name: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if name.len() > 63 {
        problems.push("must be no more than 63 bytes".to_owned());
    }
    if !is_label(name) {
        let dots = name.split('.').all(is_label);
        problems.push(if dots { "must not contain dots" } else { LABEL }.to_owned());
    }
    problems
}

/// What is wrong with a name that is only a segment of a path, such as that of a role.
pub(super) fn path_segment_problems(name: &str) -> Vec<String> {
    if name == "." || name == ".." {
        return vec![format!("may not be '{name}'")];
    }
    ["/", "%"].into_iter().filter(|c| name.contains(c)).map(|c| format!("may not contain '{c}'")).collect()
}

/// All that is wrong with the key of a label or annotation, which is what Kubernetes calls a qualified name (`IsLabelKey`).
pub(super) fn label_key_problems(key: &str) -> Vec<String> {
    let (prefix, name) = match key.split_once('/') {
        Some((_, name)) if name.contains('/') => return vec![NOT_QUALIFIED.to_owned()],
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    let mut problems = match prefix {
        Some("") => vec!["prefix part must be non-empty".to_owned()],
        Some(prefix) => {
            subdomain_problems(prefix).into_iter().map(|why| format!("prefix part {why}")).collect()
        }
        None => Vec::new(),
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        problems.push("name part must be no more than 63 bytes".to_owned());
    }
    if !is_qualified_part(name) {
        problems.push(NAME_PART.to_owned());
    }
    problems
}

/// All that is wrong with the value of a label.
pub(super) fn label_value_problems(value: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if value.len() > 63 {
        problems.push("must be no more than 63 bytes".to_owned());
    }
    if !value.is_empty() && !is_qualified_part(value) {
        problems.push(LABEL_VALUE.to_owned());
    }
    problems
}
