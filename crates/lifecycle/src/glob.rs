//! Globs over whole names.

/// Whether a name matches a pattern in which `*` stands for any number of characters (also none). The pattern covers
/// the whole name: `ci-*` matches `ci-42` and never `cilium-secrets`.
pub fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    // `split` yields at least one part.
    let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn a_pattern_covers_the_whole_name() {
        for (pattern, name, expected) in [
            ("ci-*", "ci-42", true),
            ("ci-*", "ci-", true),
            ("ci-*", "cilium-secrets", false),
            ("ci-*", "my-ci-42", false),
            ("prod", "prod", true),
            ("prod", "prod-eu", false),
            ("*", "anything", true),
            ("*", "", true),
            ("*-prod", "eu-prod", true),
            ("*-prod", "eu-prod-2", false),
            ("a*b*c", "a1b2c", true),
            ("a*b*c", "abc", true),
            ("a*b*c", "acb", false),
            ("a*a", "a", false),
            ("", "", true),
            ("", "x", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }
}
