//! Gardener's own API server, aggregated into a plane, which is a garden then: with Projects and Shoots, and without the controllers that would
//! make clusters of them.

use std::{fs, path::Path, process::Command, time::Instant};

use serde_json::{Value, json};

use crate::{
    api::Api,
    config,
    error::{Error, ProbeError, Result, io},
    plane::{POLL, Plane, READY_TIMEOUT, free_port},
    process::Process,
    tools,
};

const SERVER: &str = "gardener-apiserver";
/// The namespace of the Service by which the API server of the plane finds it.
const NAMESPACE: &str = "gardener-system";
/// What it serves: groups and versions.
const APIS: [(&str, &str); 6] = [
    ("core.gardener.cloud", "v1"),
    ("core.gardener.cloud", "v1beta1"),
    ("operations.gardener.cloud", "v1alpha1"),
    ("security.gardener.cloud", "v1alpha1"),
    ("seedmanagement.gardener.cloud", "v1alpha1"),
    ("settings.gardener.cloud", "v1alpha1"),
];

/// A running API server of Gardener. It ends with this value, and with the process.
#[derive(Debug)]
pub struct Garden {
    _process: Process,
    authority: ClientAuthority,
}

/// The authority that Gardener signs the client certificates of a Shoot by, in PEM.
#[derive(Clone, Debug)]
pub struct ClientAuthority {
    /// Its certificate, which the API server of the Shoot has to have as `--client-ca-file`.
    pub certificate: String,
    /// Its key.
    pub key: String,
}

impl ClientAuthority {
    /// One that is made in this folder.
    fn make(binaries: &Path, dir: &Path) -> Result<Self> {
        let action = "make the authority of a Shoot";
        let output = Command::new(binaries.join("shoot-authority")).arg(dir).output().map_err(io(action))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(io(action)(std::io::Error::other(said)));
        }
        let read = |name: &str| fs::read_to_string(dir.join(name)).map_err(io(action));
        Ok(Self { certificate: read("ca.crt")?, key: read("ca.key")? })
    }
}

impl Garden {
    /// Starts it beside a plane, and returns when the plane serves its kinds: in a few seconds, or minutes if the binary has to be built first.
    pub async fn start(plane: &Plane) -> Result<Self> {
        let dir = plane.dir().join("garden");
        fs::create_dir_all(&dir).map_err(io(format!("create {}", dir.display())))?;
        let here = dir.clone();
        let made = tokio::task::spawn_blocking(move || {
            let binaries = tools::gardener()?;
            let authority = ClientAuthority::make(&binaries, &here)?;
            Ok::<_, Error>((binaries.join(SERVER), authority))
        });
        let (binary, authority) = made.await??;
        let (port, listener) = free_port()?;
        drop(listener);
        let log = plane.dir().join("log").join(format!("{SERVER}.log"));
        let mut process = Process::spawn(SERVER, &binary, args(plane, port), &dir, &log)?;
        let api = Api::new(plane.ca_pem(), plane.token(config::ADMIN)?)?;
        for (url, object) in registration(plane.url(), port) {
            until(&mut process, || api.create(url.clone(), &object)).await?;
        }
        for (group, version) in APIS {
            let url = format!("{}/apis/{group}/{version}", plane.url());
            until(&mut process, || api.get(url.clone())).await?;
        }
        Ok(Self { _process: process, authority })
    }

    /// An authority for its Shoots.
    pub fn authority(&self) -> &ClientAuthority {
        &self.authority
    }
}

fn args(plane: &Plane, port: u16) -> Vec<String> {
    let pki = plane.dir().join("pki");
    let pki = pki.display();
    let kubeconfig = plane.admin_kubeconfig();
    let kubeconfig = kubeconfig.display();
    vec![
        format!("--etcd-servers={}", plane.etcd_url()),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={port}"),
        format!("--tls-cert-file={pki}/server.crt"),
        format!("--tls-private-key-file={pki}/server.key"),
        format!("--kubeconfig={kubeconfig}"),
        format!("--authentication-kubeconfig={kubeconfig}"),
        format!("--authorization-kubeconfig={kubeconfig}"),
        "--cluster-identity=plane".to_owned(),
    ]
}

/// Polls until the probe succeeds, or the process ends.
async fn until<T, F>(process: &mut Process, mut probe: impl FnMut() -> F) -> Result<()>
where
    F: Future<Output = Result<T, ProbeError>>,
{
    let since = Instant::now();
    while let Err(last) = probe().await {
        process.check()?;
        if since.elapsed() > READY_TIMEOUT {
            return Err(process.not_ready(READY_TIMEOUT, &last));
        }
        tokio::time::sleep(POLL).await;
    }
    Ok(())
}

/// What has the API server of a plane pass these kinds on to that port: where each object is created.
fn registration(url: &str, port: u16) -> Vec<(String, Value)> {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    // Its name leads to loopback without a network of pods.
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": SERVER, "namespace": NAMESPACE},
        "spec": {"type": "ExternalName", "externalName": "localhost"}
    });
    let mut objects = vec![
        (format!("{url}/api/v1/namespaces"), namespace),
        (format!("{url}/api/v1/namespaces/{NAMESPACE}/services"), service),
    ];
    objects.extend(APIS.map(|(group, version)| {
        let api = json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": format!("{version}.{group}")},
            "spec": {
                "group": group, "version": version, "groupPriorityMinimum": 9000, "versionPriority": 10,
                "insecureSkipTLSVerify": true, "service": {"name": SERVER, "namespace": NAMESPACE, "port": port}
            }
        });
        (format!("{url}/apis/apiregistration.k8s.io/v1/apiservices"), api)
    }));
    objects
}
