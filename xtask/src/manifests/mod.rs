//! Everything that an installation consists of, as the one source of `deploy/` and of the chart.
//!
//! Objects are JSON with comments (see [`crate::yaml`]); the API server checks their fields strictly when they are
//! applied, which the tests on a real control plane do.

mod access;
pub(crate) mod component;
pub(crate) mod crds;
mod job;
mod lifecycle;
mod pod;
mod replicas;
pub(crate) mod sample;
mod trees;

use coppice_api::names;
use serde_json::{Value, json};

use self::component::Component;

/// The registry of images. Its name is below the project's own domain: nobody else can offer an image there, as whoever
/// registers a free name at a public registry could.
const REGISTRY: &str = "registry.coppice.dev";

/// The components of an installation.
pub(crate) type Components = fn(&Install) -> Vec<Component>;

/// Every component of the product. Nothing else knows which there are.
pub(crate) fn components(install: &Install) -> Vec<Component> {
    vec![lifecycle::component(install), trees::component(install), access::component(install)]
}

/// What differs between one installation and another.
#[derive(Clone, Debug)]
pub(crate) struct Install {
    /// The namespace that Coppice runs in.
    pub(crate) namespace: String,
    /// The version of Coppice.
    pub(crate) version: String,
    /// The tool that installs.
    pub(crate) managed_by: String,
    /// `true` if who may edit a namespace may write managers there.
    pub(crate) aggregate_to_edit: String,
    /// Whether images, and what else installations choose, are those that the values of a chart name.
    pub(crate) by_values: bool,
}

impl Install {
    /// By `kubectl apply`.
    pub(crate) fn kubectl() -> Self {
        Self {
            namespace: names::SYSTEM_NAMESPACE.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            managed_by: "kubectl".to_owned(),
            aggregate_to_edit: "false".to_owned(),
            by_values: false,
        }
    }

    /// By Helm: what differs is left to the template.
    pub(crate) fn helm() -> Self {
        Self {
            namespace: "{{ .Release.Namespace }}".to_owned(),
            version: "{{ .Chart.AppVersion }}".to_owned(),
            managed_by: "{{ .Release.Service }}".to_owned(),
            aggregate_to_edit: "{{ .Values.rbac.aggregateToEdit }}".to_owned(),
            by_values: true,
        }
    }

    /// The same for a component that lives in another namespace.
    fn within(&self, namespace: &str) -> Self {
        Self { namespace: namespace.to_owned(), ..self.clone() }
    }

    /// The name by which the API server knows an account in the namespace.
    pub(crate) fn user(&self, account: &str) -> String {
        format!("system:serviceaccount:{}:{account}", self.namespace)
    }

    /// The image of a program. `values`: where the values of a chart have it, such as `history.image`.
    pub(crate) fn image(&self, values: &str, program: &str) -> String {
        if self.by_values {
            format!("{{{{ include `coppice.image` (list .Values.{values} $) }}}}")
        } else {
            format!("{REGISTRY}/{program}:{}", self.version)
        }
    }

    /// What the values of a chart have, such as `image.pullPolicy`, or this where there are none.
    pub(crate) fn value(&self, values: &str, otherwise: Value) -> Value {
        if self.by_values { json!(format!("{{{{ toJson .Values.{values} }}}}")) } else { otherwise }
    }

    /// Metadata of a cluster-scoped object.
    pub(crate) fn cluster(&self, name: &str) -> Value {
        json!({"name": name, "labels": self.labels()})
    }

    /// Metadata of an object in that namespace.
    pub(crate) fn local(&self, name: &str) -> Value {
        json!({"name": name, "namespace": self.namespace, "labels": self.labels()})
    }

    fn labels(&self) -> Value {
        names::installation_labels(&self.managed_by, &self.version).into_iter().collect()
    }
}

/// The namespace. Its pods need no privileges, and none can get any.
pub(crate) fn namespace(install: &Install) -> Value {
    let mut metadata = install.cluster(&install.namespace);
    metadata["labels"]["pod-security.kubernetes.io/enforce"] = json!("restricted");
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
}

/// What `deploy/install.yaml` installs, in the order in which it can be applied: CRDs, namespace, and the components that are
/// not optional.
pub(crate) fn always(install: &Install, components: &[Component]) -> anyhow::Result<Vec<Value>> {
    let mut objects = crds::objects(install)?;
    objects.push(namespace(install));
    let always = components.iter().filter(|component| !component.optional);
    objects.extend(always.flat_map(|component| component.objects(install)));
    Ok(objects)
}
