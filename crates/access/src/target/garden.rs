//! A garden: the API server of Gardener, which issues kubeconfigs for Shoots. They are certificates of an administrator or a viewer, and nobody
//! can revoke them.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use coppice_api::Reason;
use coppice_clusters::Validity;
use coppice_clusters::kubeconfig::{self, Kubeconfig, Unencrypted, User};
use coppice_clusters_api::Issuer;
use coppice_runtime::leader::Permit;
use http::Method;
use serde::Deserialize;
use serde_json::json;

use super::certificate::validity;
use super::{Failure, FoundMeta, MAX_CREDENTIAL, Target, encoded};

/// The API of projects and Shoots.
const CORE: &str = "/apis/core.gardener.cloud/v1beta1";
/// So many times as long as a credential a kubeconfig may be: it has each address of the Shoot.
const MAX_KUBECONFIG: usize = 4 * MAX_CREDENTIAL;
/// No uid is longer.
const MAX_UID: usize = 128;

/// A Shoot, and as whom it is reached.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Shoot {
    /// The project that it is in.
    pub(crate) project: String,
    /// Its name.
    pub(crate) name: String,
    /// Whether as somebody who may only read.
    pub(crate) as_viewer: bool,
}

impl Shoot {
    /// As whom its credentials are made with this issuer: as no more than that takes.
    pub(crate) fn new(project: &str, name: &str, issuer: Issuer) -> Self {
        let as_viewer = issuer == Issuer::GardenerViewer;
        Self { project: project.to_owned(), name: name.to_owned(), as_viewer }
    }

    /// Who issues the kubeconfig by which it is reached.
    pub(crate) const fn issuer(&self) -> Issuer {
        if self.as_viewer { Issuer::GardenerViewer } else { Issuer::GardenerAdmin }
    }

    const fn request(&self) -> (&'static str, &'static str) {
        if self.as_viewer {
            ("viewerkubeconfig", "ViewerKubeconfigRequest")
        } else {
            ("adminkubeconfig", "AdminKubeconfigRequest")
        }
    }
}

/// A project of a garden.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Project {
    /// Its uid, which no other has, in whatever garden.
    pub(crate) uid: String,
    /// The namespace that its Shoots are in, which is mostly `garden-PROJECT`.
    pub(crate) namespace: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct FoundProject {
    metadata: FoundMeta,
    spec: FoundProjectSpec,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct FoundProjectSpec {
    namespace: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Issued {
    status: IssuedStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct IssuedStatus {
    kubeconfig: String,
}

/// Of a garden.
impl Target {
    /// Has it issue a kubeconfig for a Shoot; and from when until when the certificate in it is valid, as that says itself: a garden grants less
    /// than was asked for without a word.
    pub(crate) async fn kubeconfig_of_shoot(
        &self,
        permit: &Permit,
        shoot: &Shoot,
        seconds: u64,
    ) -> Result<(Kubeconfig, Validity), Failure> {
        let Shoot { project, name, .. } = shoot;
        let namespace = self.project(project).await?.namespace;
        let (resource, kind) = shoot.request();
        let path = format!("{CORE}/namespaces/{}/shoots/{}/{resource}", encoded(&namespace), encoded(name));
        let body = json!({
            "apiVersion": "authentication.gardener.cloud/v1alpha1", "kind": kind,
            "spec": {"expirationSeconds": seconds}
        });
        let issued = self.write::<Issued>(permit, Method::POST, &path, &body).await;
        let issued = issued.map_err(|error| not_issued(shoot, resource, &error))?.status.kubeconfig;
        let unusable = |why: &str| {
            let message =
                format!("the garden issued a kubeconfig for the Shoot {name} that is not used: {why}");
            Failure::new(Reason::TargetRefused, message)
        };
        let text = Some(issued).filter(|issued| issued.len() <= MAX_KUBECONFIG);
        let text = text.and_then(|issued| BASE64_STANDARD.decode(issued).ok());
        let text = text.ok_or_else(|| unusable("it is no base64, or too long"))?;
        let kubeconfig = kubeconfig::parse(&text, Unencrypted::Nowhere);
        let kubeconfig = kubeconfig.map_err(|error| unusable(&error.to_string()))?;
        let certificate = match &kubeconfig.user {
            User::Certificate { certificate, .. } => BASE64_STANDARD.decode(certificate).ok(),
            User::Token(_) => None,
        };
        let validity = certificate.and_then(|pem| validity(&pem));
        let validity = validity.ok_or_else(|| unusable("it has no certificate"))?;
        Ok((kubeconfig, validity))
    }

    /// The project of that name.
    pub(crate) async fn project(&self, name: &str) -> Result<Project, Failure> {
        let found = self.get::<FoundProject>(&format!("{CORE}/projects/{}", encoded(name))).await;
        let (found, code) = match found {
            Ok(found) => (found, None),
            Err(kube::Error::Api(status)) if status.code == 404 => (FoundProject::default(), Some(404)),
            Err(error) => return Err(Failure::by("the garden", &format!("show its project {name}"), &error)),
        };
        let FoundProject { metadata: FoundMeta { uid }, spec: FoundProjectSpec { namespace } } = found;
        // These become a part of paths, and are shown in status.
        if !is_namespace(&namespace) || uid.len() > MAX_UID {
            let message = format!(
                "the garden has no project {name} with a namespace: ask the platform to write the name of another one into spec.project of the \
                 ClusterProvider"
            );
            return Err(Failure { code, ..Failure::new(Reason::TargetRefused, message) });
        }
        Ok(Project { uid, namespace })
    }
}

/// Whether a text may be the name of a namespace.
fn is_namespace(name: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&name.len()) && name.bytes().all(is_part)
}

/// Why a garden did not issue a kubeconfig.
fn not_issued(shoot: &Shoot, resource: &str, error: &kube::Error) -> Failure {
    let Shoot { project, name, .. } = shoot;
    let code = if let kube::Error::Api(status) = error { status.code } else { 0 };
    if code == 404 {
        let message = format!(
            "the project {project} has no Shoot {name}: create it, or write the name of another one into a new ClusterAccess"
        );
        return Failure::new(Reason::TargetRefused, message).with_code(code);
    }
    let failure = Failure::by("the garden", &format!("create shoots/{resource} for the Shoot {name}"), error);
    match code {
        // It says so where the Shoot has no address or no authorities yet, and answers others meanwhile.
        422 | 500 => {
            let message =
                format!("{}: look whether the control plane of the Shoot is there", failure.message);
            Failure { reason: Reason::TargetRefused, message, ..failure }
        }
        _ => failure,
    }
}

#[cfg(test)]
#[path = "garden_tests.rs"]
mod tests;
