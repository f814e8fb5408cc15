//! Who may have Shoots made by a `ClusterProvider`.

use coppice_api::Reason;
use coppice_clusters_api::{ClusterProviderSpec, MadeCluster, ManagedClusterStatus};

use super::Failure;

/// The project in which a namespace may have Shoots made by the `ClusterProvider` of that name; what was made before may be deleted even so.
pub fn project<'a>(
    (name, provider): (&str, Option<&'a ClusterProviderSpec>),
    namespace: &str,
    deleting: bool,
) -> Result<&'a str, Failure> {
    let Some(provider) = provider else {
        return Err(Failure::waiting(
            Reason::ProviderMissing,
            format!(
                "spec.provider.gardener: ClusterProvider {name} does not exist or cannot be understood: ask the platform to create it"
            ),
        ));
    };
    let Some(project) = &provider.project else {
        return Err(Failure::waiting(
            Reason::NotAllowed,
            format!(
                "spec.provider.gardener: ClusterProvider {name} has no project of Gardener: write the name of one that has"
            ),
        ));
    };
    if !deleting && !provider.managed_clusters.iter().any(|allowed| allowed == namespace) {
        return Err(Failure::waiting(
            Reason::NotAllowed,
            format!(
                "ClusterProvider {name} does not let the namespace {namespace} have Shoots made: ask the platform for it in its spec.managedClusters"
            ),
        ));
    }
    Ok(project)
}

/// Why what is in this namespace, of the project of this uid, says nothing about the object that was made; none if that was made there, or
/// nothing was made.
pub fn made_elsewhere(
    status: &ManagedClusterStatus,
    namespace: &str,
    project: Option<&str>,
) -> Option<Failure> {
    let MadeCluster { kind, name, namespace: before, project: of, .. } = status.cluster.as_ref()?;
    let is_same_project = of.is_none() || of.as_deref() == project;
    if before == namespace && is_same_project {
        return None;
    }
    Some(Failure::waiting(
        Reason::TargetChanged,
        format!(
            "the {kind} {name} was made in the namespace {before}, and the ClusterProvider leads to another project or another garden by now: ask the platform to \
             write the project before, and the kubeconfig of its garden, into it again"
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_are_named_have_shoots_made_and_everybody_may_have_theirs_deleted() {
        let provider = |text: &str| -> ClusterProviderSpec {
            serde_yaml::from_str(&format!("{{credential: {{secret: garden}}, {text}}}")).unwrap()
        };
        let of_garden = provider("project: dev, managedClusters: [team]");
        assert_eq!(project(("g", Some(&of_garden)), "team", false), Ok("dev"));
        assert_eq!(project(("g", Some(&of_garden)), "other", true), Ok("dev"));
        let plain = provider("callsPerMinute: 1");
        for (provider, reason, says) in [
            (Some(&of_garden), Reason::NotAllowed, "does not let the namespace other"),
            (Some(&plain), Reason::NotAllowed, "has no project"),
            (None, Reason::ProviderMissing, "does not exist"),
        ] {
            let failure = project(("g", provider), "other", false).unwrap_err();
            assert!(failure.reason == reason && failure.message.contains(says), "{failure:?}");
        }
    }
}
