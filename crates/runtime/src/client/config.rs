//! The address of the API server, and our credentials.

use std::path::{Path, PathBuf};

use kube::Config;
use kube::config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};

/// No configuration for the API server could be found.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A kubeconfig was named, and cannot be used.
    #[error("the kubeconfig {} cannot be used; check the file and the name of the context", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: Box<KubeconfigError>,
    },
    /// This is a pod, but its service account cannot be used.
    #[error(
        "this is a pod (KUBERNETES_SERVICE_HOST is set), but its service account cannot be used: mount its token \
         (automountServiceAccountToken), or name a kubeconfig with --kubeconfig"
    )]
    InCluster(#[source] Box<InClusterError>),
    /// There is neither a kubeconfig nor a service account.
    #[error(
        "no cluster is configured: no --kubeconfig was given, this is not a pod (KUBERNETES_SERVICE_HOST is not set), and neither \
         $KUBECONFIG nor ~/.kube/config can be used; name a kubeconfig with --kubeconfig"
    )]
    Nothing(#[source] Box<KubeconfigError>),
}

/// Where the configuration comes from.
#[derive(Debug, PartialEq, Eq)]
enum Source {
    File(PathBuf),
    InCluster,
    Default,
}

/// An explicit choice wins. In a pod, the pod's own cluster wins over a kubeconfig that happens to exist.
fn choose(kubeconfig: Option<PathBuf>, context: Option<&str>, in_pod: bool) -> Source {
    match (kubeconfig, context) {
        (Some(path), _) => Source::File(path),
        (None, None) if in_pod => Source::InCluster,
        (None, _) => Source::Default,
    }
}

/// The API server's address and our credentials: from `kubeconfig` if given; else, in a pod and unless a `context` is asked for, from
/// its service account; else from `$KUBECONFIG` or `~/.kube/config`. `context` names a context of the kubeconfig other than its current
/// one.
pub async fn load_config(
    kubeconfig: Option<PathBuf>,
    context: Option<String>,
) -> Result<Config, ConfigError> {
    let in_pod = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
    let source = choose(kubeconfig, context.as_deref(), in_pod);
    let options = KubeConfigOptions { context, ..KubeConfigOptions::default() };
    let config = match source {
        Source::File(path) => from_file(&path, &options)
            .await
            .map_err(|source| ConfigError::Kubeconfig { path, source: Box::new(source) })?,
        Source::InCluster => Config::incluster().map_err(|error| ConfigError::InCluster(Box::new(error)))?,
        Source::Default => {
            Config::from_kubeconfig(&options).await.map_err(|error| ConfigError::Nothing(Box::new(error)))?
        }
    };
    tracing::info!(url = %config.cluster_url, "the API server to work with");
    Ok(config)
}

async fn from_file(path: &Path, options: &KubeConfigOptions) -> Result<Config, KubeconfigError> {
    Config::from_custom_kubeconfig(Kubeconfig::read_from(path)?, options).await
}

#[cfg(test)]
mod tests {
    use super::{Source, choose, load_config};
    use std::path::PathBuf;

    #[test]
    fn an_explicit_choice_counts_most() {
        let file = || PathBuf::from("some/kubeconfig");
        assert_eq!(choose(Some(file()), None, true), Source::File(file()));
        assert_eq!(choose(None, None, true), Source::InCluster);
        assert_eq!(choose(None, Some("prod"), true), Source::Default);
        assert_eq!(choose(None, None, false), Source::Default);
    }

    #[tokio::test]
    async fn a_kubeconfig_that_is_not_there_is_named() {
        let error = load_config(Some(PathBuf::from("/no/such/kubeconfig")), None).await.unwrap_err();
        let text = crate::error::chain(&error);
        assert!(text.starts_with("the kubeconfig /no/such/kubeconfig cannot be used"), "{text}");
        assert!(text.contains("No such file"), "{text}");
    }
}
