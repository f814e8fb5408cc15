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

/// Whether one of the patterns of a NamespaceTree permits a Subnamespace of this name in namespace `parent`, below the root `root`.
pub fn permits(patterns: &[String], (root, parent): (&str, &str), name: &str) -> bool {
    let mut patterns =
        patterns.iter().map(|pattern| pattern.replace("{parent}", parent).replace("{root}", root));
    patterns.any(|pattern| matches(&pattern, name))
}

#[cfg(test)]
mod tests {
    use super::{matches, permits};

    #[test]
    fn names_of_subnamespaces_follow_those_above() {
        let patterns = |pattern: &str| vec!["other".to_owned(), pattern.to_owned()];
        for (pattern, name, expected) in [
            ("{parent}-*", "shop-web-a", true),
            ("{parent}-*", "shop-a", false),
            ("{root}-*", "shop-a", true),
            ("x-{root}", "x-shop-web", false),
        ] {
            assert_eq!(
                permits(&patterns(pattern), ("shop", "shop-web"), name),
                expected,
                "{pattern}: {name}"
            );
        }
        assert!(!permits(&[], ("shop", "shop-web"), "shop-web-a"));
    }

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
