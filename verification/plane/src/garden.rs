//! Gardener's own API server, aggregated into a plane, which is a garden then: with Projects and Shoots, and without the controllers that would
//! make clusters of them.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use serde_json::{Value, json};

use crate::{
    api::Api,
    config,
    error::{Result, io},
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

/// A running API server of Gardener. It ends with this value, and with the process; let its plane live longer.
#[derive(Debug)]
pub struct Garden {
    _process: Process,
    dir: PathBuf,
}

impl Garden {
    /// Starts it beside a plane, and returns when the plane serves its kinds: in a few seconds, or minutes if the binary has to be built first.
    pub async fn start(plane: &Plane) -> Result<Self> {
        let binary = tokio::task::spawn_blocking(tools::gardener).await??;
        let dir = plane.dir().join("garden");
        fs::create_dir_all(&dir).map_err(io(format!("create {}", dir.display())))?;
        let (port, listener) = free_port()?;
        drop(listener);
        let log = plane.dir().join("log").join(format!("{SERVER}.log"));
        let mut process = Process::spawn(SERVER, &binary, args(plane, &dir, port), &dir, &log)?;
        let api = Api::new(plane.ca_pem(), plane.token(config::ADMIN)?)?;
        for (url, object) in registration(plane.url(), port) {
            until(&mut process, || api.create(url.clone(), &object)).await?;
        }
        for (group, version) in APIS {
            let url = format!("{}/apis/{group}/{version}", plane.url());
            until(&mut process, || api.get(url.clone())).await?;
        }
        Ok(Self { _process: process, dir })
    }

    /// A key that is made for this garden alone: RSA, in the form PKCS#1, in PEM, as Gardener has those of authorities. It is that of its
    /// server, which nobody checks here.
    pub fn rsa_key(&self) -> Result<String> {
        let path = self.dir.join("apiserver.key");
        fs::read_to_string(&path).map_err(io(format!("read {}", path.display())))
    }
}

fn args(plane: &Plane, dir: &Path, port: u16) -> Vec<String> {
    let kubeconfig = plane.admin_kubeconfig();
    let kubeconfig = kubeconfig.display();
    vec![
        format!("--etcd-servers={}", plane.etcd_url()),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={port}"),
        // Where it finds no certificate there it makes one.
        format!("--cert-dir={}", dir.display()),
        format!("--kubeconfig={kubeconfig}"),
        format!("--authentication-kubeconfig={kubeconfig}"),
        format!("--authorization-kubeconfig={kubeconfig}"),
        "--cluster-identity=plane".to_owned(),
    ]
}

/// Polls until the probe succeeds, or the process ends.
async fn until<T, F>(process: &mut Process, mut probe: impl FnMut() -> F) -> Result<()>
where
    F: Future<Output = Result<T, String>>,
{
    let since = Instant::now();
    while let Err(last) = probe().await {
        process.check()?;
        if since.elapsed() > READY_TIMEOUT {
            return Err(process.not_ready(READY_TIMEOUT, last));
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
