//! What a Secret in the form of Kyma has besides: the labels and the annotation by which Kyma Infrastructure Manager marks its
//! kubeconfigs, and others find them.

use std::collections::BTreeMap;

use jiff::Timestamp;

/// The annotation with the instant of the last write.
pub const LAST_SYNC: &str = "operator.kyma-project.io/last-sync";
/// The label with the name of the object that it was written for.
const CLUSTER_NAME: &str = "operator.kyma-project.io/cluster-name";
/// The label with who writes it.
const MANAGED_BY: &str = "operator.kyma-project.io/managed-by";
/// Whom those expect who look for such Secrets.
const MANAGER: &str = "infrastructure-manager";
/// Labels of this domain, and of those below it, say which runtime it is.
const DOMAIN: &str = "kyma-project.io";
/// No value of a label is longer.
const MAX_VALUE: usize = 63;

/// The labels, of an access with this name and these labels. Those that other tools put on it stay there: by them they would take the
/// Secret for theirs.
pub fn labels(access: &str, of_access: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let is_of_kyma = |key: &str| {
        let domain = key.split_once('/').map_or("", |(domain, _)| domain);
        domain.strip_suffix(DOMAIN).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    let mut labels: BTreeMap<String, String> = of_access
        .iter()
        .filter(|(key, _)| is_of_kyma(key))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    if access.len() <= MAX_VALUE {
        labels.insert(CLUSTER_NAME.to_owned(), access.to_owned());
    }
    labels
}

/// The value of [`LAST_SYNC`] for a write at this instant.
pub fn last_sync(now: Timestamp) -> String {
    // In whole seconds, as Kyma writes it.
    Timestamp::from_second(now.as_second()).unwrap_or(now).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
        entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn labels_of_kyma_are_taken_over_and_those_of_other_tools_are_not() {
        let of_access = map(&[
            ("kyma-project.io/shoot-name", "c-1234"),
            ("operator.kyma-project.io/kyma-name", "one"),
            ("operator.kyma-project.io/managed-by", "lifecycle-manager"),
            ("argocd.argoproj.io/instance", "app"),
            ("notkyma-project.io/a", "b"),
            ("plain", "c"),
        ]);
        let expected = map(&[
            ("kyma-project.io/shoot-name", "c-1234"),
            ("operator.kyma-project.io/kyma-name", "one"),
            ("operator.kyma-project.io/managed-by", "infrastructure-manager"),
            ("operator.kyma-project.io/cluster-name", "ci"),
        ]);
        assert_eq!(labels("ci", &of_access), expected);
        // One that is no value of a label is left out.
        let long = "a".repeat(64);
        assert_eq!(labels(&long, &BTreeMap::new()), map(&[(MANAGED_BY, MANAGER)]));
    }

    #[test]
    fn the_last_write_is_written_in_whole_seconds_of_utc() {
        let now: Timestamp = "2026-01-02T03:04:05.678Z".parse().unwrap();
        assert_eq!(last_sync(now), "2026-01-02T03:04:05Z");
    }
}
