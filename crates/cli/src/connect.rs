//! Connects to the API server as kubectl does.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::Io;
use crate::args::ConnectionArgs;

/// An API server and the namespace that is meant when none is named.
pub(crate) struct Connection {
    pub(crate) client: Client,
    pub(crate) namespace: String,
}

/// Finds the API server by the flags, the kubeconfig, or the pod's service account.
pub(crate) async fn connect(args: &ConnectionArgs, io: &Io<'_>) -> Result<Connection> {
    if let Some(client) = &io.client {
        let namespace = args.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
        return Ok(Connection { client: client.clone(), namespace });
    }
    let mut config = find(args).await?;
    adjust(&mut config, args)?;
    let namespace = args.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
    let url = config.cluster_url.clone();
    let client = Client::try_from(config).with_context(|| format!("no client can be made for {url}"))?;
    Ok(Connection { client, namespace })
}

/// The API server of another kubeconfig that the user names, by its current context, and the namespace of that.
pub(crate) async fn connect_by(file: &Path, args: &ConnectionArgs, io: &Io<'_>) -> Result<Connection> {
    if let Some(client) = &io.client {
        return Ok(Connection { client: client.clone(), namespace: client.default_namespace().to_owned() });
    }
    let mut config = of_file(file, &KubeConfigOptions::default()).await?;
    config.default_retry = false;
    set_timeout(&mut config, args);
    let (namespace, url) = (config.default_namespace.clone(), config.cluster_url.clone());
    let client = Client::try_from(config).with_context(|| format!("no client can be made for {url}"))?;
    Ok(Connection { client, namespace })
}

async fn of_file(path: &Path, options: &KubeConfigOptions) -> Result<Config> {
    let file = path.display();
    let kubeconfig = Kubeconfig::read_from(path)
        .map_err(|e| anyhow!("the kubeconfig {file} cannot be read: {}", chain(&e)))?;
    Config::from_custom_kubeconfig(kubeconfig, options)
        .await
        .map_err(|e| anyhow!("the kubeconfig {file} cannot be used: {}", chain(&e)))
}

async fn find(args: &ConnectionArgs) -> Result<Config> {
    let options = KubeConfigOptions {
        context: args.context.clone(),
        cluster: args.cluster.clone(),
        user: args.user.clone(),
    };
    if let Some(path) = &args.kubeconfig {
        return of_file(path, &options).await;
    }
    let error = match Config::from_kubeconfig(&options).await {
        Ok(config) => return Ok(config),
        Err(error) => error,
    };
    if let Some(server) = &args.server {
        return Ok(Config::new(server.parse().with_context(|| format!("--server {server:?} is not a URL"))?));
    }
    let chosen = options.context.is_some() || options.cluster.is_some() || options.user.is_some();
    if let (false, Ok(config)) = (chosen, Config::incluster()) {
        return Ok(config);
    }
    Err(anyhow!(
        "no API server: the kubeconfig cannot be used ({}); name one with --kubeconfig or KUBECONFIG, or a server with --server",
        chain(&error)
    ))
}

fn adjust(config: &mut Config, args: &ConnectionArgs) -> Result<()> {
    // A person waits: an error is reported at once instead of being retried in the background.
    config.default_retry = false;
    if let Some(server) = &args.server {
        config.cluster_url = server.parse().with_context(|| format!("--server {server:?} is not a URL"))?;
    }
    if args.insecure_skip_tls_verify {
        config.accept_invalid_certs = true;
    }
    if let Some(file) = &args.certificate_authority {
        let pem = std::fs::read(file)
            .with_context(|| format!("--certificate-authority {} cannot be read", file.display()))?;
        config.root_cert = Some(certificates(&pem).with_context(|| {
            format!("--certificate-authority {} holds no PEM certificate", file.display())
        })?);
        config.root_cert_file = None;
    }
    if args.tls_server_name.is_some() {
        config.tls_server_name.clone_from(&args.tls_server_name);
    }
    if let Some(token) = &args.token {
        let only_token: AuthInfo = serde_json::from_value(serde_json::json!({ "token": token }))?;
        let before = std::mem::replace(&mut config.auth_info, only_token);
        config.auth_info.impersonate = before.impersonate;
        config.auth_info.impersonate_groups = before.impersonate_groups;
    }
    if let Some(user) = &args.impersonate {
        config.auth_info.impersonate = Some(user.clone());
        config.auth_info.impersonate_groups =
            (!args.impersonate_groups.is_empty()).then(|| args.impersonate_groups.clone());
    }
    set_timeout(config, args);
    Ok(())
}

fn set_timeout(config: &mut Config, args: &ConnectionArgs) {
    let timeout = args.request_timeout.map_or(Duration::from_secs(30), Duration::from);
    config.read_timeout = (!timeout.is_zero()).then_some(timeout);
    config.reset_reader_on_write = true;
}

/// A client by a kubeconfig that was read from a cluster, which must neither run a program here nor send a file of this machine anywhere.
/// No error has anything of it.
pub(crate) async fn by_kubeconfig(kubeconfig: &[u8], args: &ConnectionArgs) -> Result<Client> {
    let text = std::str::from_utf8(kubeconfig).context("the kubeconfig is no text")?;
    let kubeconfig = Kubeconfig::from_yaml(text).map_err(|_| anyhow!("the kubeconfig cannot be read"))?;
    let mut users = kubeconfig.auth_infos.iter().filter_map(|user| user.auth_info.as_ref());
    if users.any(|user| user.exec.is_some() || user.auth_provider.is_some()) {
        bail!(
            "the kubeconfig would run a program, which no kubeconfig of Coppice does: somebody has edited it"
        );
    }
    if names_files(&kubeconfig) {
        bail!(
            "the kubeconfig names files of this machine, which no kubeconfig of Coppice does: somebody has edited it"
        );
    }
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let mut config = config.map_err(|_| anyhow!("the kubeconfig cannot be used"))?;
    config.default_retry = false;
    set_timeout(&mut config, args);
    let url = config.cluster_url.clone();
    Client::try_from(config).with_context(|| format!("no client can be made for {url}"))
}

/// Whether something of it is in files, such as a token that its server would get.
fn names_files(kubeconfig: &Kubeconfig) -> bool {
    let mut users = kubeconfig.auth_infos.iter().filter_map(|user| user.auth_info.as_ref());
    let mut clusters = kubeconfig.clusters.iter().filter_map(|cluster| cluster.cluster.as_ref());
    users.any(|user| {
        [&user.token_file, &user.client_certificate, &user.client_key].iter().any(|file| file.is_some())
    }) || clusters.any(|cluster| cluster.certificate_authority.is_some())
}

/// The DER of every certificate in a PEM file.
fn certificates(pem: &[u8]) -> Option<Vec<Vec<u8>>> {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    found.ok().filter(|c| !c.is_empty()).map(|c| c.iter().map(|der| der.to_vec()).collect())
}

/// An error of the API server as a sentence: what was wanted, and why it failed.
pub(crate) fn failed(what: &str, error: &kube::Error) -> anyhow::Error {
    match error {
        kube::Error::Api(status) => anyhow!("{what}: {}", status_message(status)),
        kube::Error::Service(_) | kube::Error::HyperError(_) => {
            anyhow!("{what}: the API server cannot be reached: {}", chain(error))
        }
        other => anyhow!("{what}: {}", chain(other)),
    }
}

fn status_message(status: &kube::core::Status) -> String {
    match (status.code, status.message.as_str()) {
        (401, _) => "the API server does not accept these credentials: log in again or check the kubeconfig".to_owned(),
        (404, "" | "404 page not found") => {
            "the API server does not know this kind; `coppice crds | kubectl apply --server-side -f -` installs it".to_owned()
        }
        (code, "") => format!("the API server answered {code} {}", status.reason),
        (_, message) => message.to_owned(),
    }
}

/// The HTTP code of the API server's answer, if it answered.
pub(crate) fn code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

/// An error with its causes, none twice.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        cause = error.source();
    }
    text
}
