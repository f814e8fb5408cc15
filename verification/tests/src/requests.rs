//! Requests to a plane's API server, made in this process: a kubectl process costs a tenth of a second of a processor.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, anyhow, bail};
use futures::{Stream, StreamExt as _, TryStreamExt as _};
use http::{Method, Request};
use kube::Client;
use kube::api::WatchEvent;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde::Deserialize as _;
use serde_json::{Map, Value};

/// What requests of tests call themselves, so that they are not taken for the operator's where they are made in its name.
pub const USER_AGENT: &str = "coppice-tests";
/// Requests at once where there are many.
const AT_ONCE: usize = 16;
/// Asks for a row of a table instead of an object.
const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";
/// An object changes under our hands at most this often.
const ROUNDS: usize = 20;

/// Kinds that tests ask for: the kind, its plural and short name, where it is served, and whether it is in namespaces.
const KINDS: &[(&str, &str, &str, &str, bool)] = &[
    ("Namespace", "namespaces", "ns", "v1", false),
    ("Pod", "pods", "po", "v1", true),
    ("ConfigMap", "configmaps", "cm", "v1", true),
    ("Secret", "secrets", "secret", "v1", true),
    ("ServiceAccount", "serviceaccounts", "sa", "v1", true),
    ("Service", "services", "svc", "v1", true),
    ("PersistentVolumeClaim", "persistentvolumeclaims", "pvc", "v1", true),
    ("Deployment", "deployments", "deploy", "apps/v1", true),
    ("StatefulSet", "statefulsets", "sts", "apps/v1", true),
    ("DaemonSet", "daemonsets", "ds", "apps/v1", true),
    ("ReplicaSet", "replicasets", "rs", "apps/v1", true),
    ("Job", "jobs", "job", "batch/v1", true),
    ("CronJob", "cronjobs", "cj", "batch/v1", true),
    ("Lease", "leases", "lease", "coordination.k8s.io/v1", true),
    ("Event", "events", "ev", "events.k8s.io/v1", true),
    ("Role", "roles", "role", "rbac.authorization.k8s.io/v1", true),
    ("Cluster", "clusters", "cluster", "cluster.x-k8s.io/v1beta2", true),
    ("Shoot", "shoots", "shoot", "core.gardener.cloud/v1beta1", true),
    ("ClusterAccess", "clusteraccesses", "clacc", "coppice.dev/v1alpha1", true),
    ("ClusterProvider", "clusterproviders", "clprov", "coppice.dev/v1alpha1", false),
    ("ManagedCluster", "managedclusters", "mcl", "coppice.dev/v1alpha1", true),
    ("CertificateSigningRequest", "certificatesigningrequests", "csr", "certificates.k8s.io/v1", false),
    ("ClusterRole", "clusterroles", "clusterrole", "rbac.authorization.k8s.io/v1", false),
    ("RoleBinding", "rolebindings", "rolebinding", "rbac.authorization.k8s.io/v1", true),
    ("LimitRange", "limitranges", "limitrange", "v1", true),
    ("NetworkPolicy", "networkpolicies", "networkpolicy", "networking.k8s.io/v1", true),
    (
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
        "vwc",
        "admissionregistration.k8s.io/v1",
        false,
    ),
    ("CustomResourceDefinition", "customresourcedefinitions", "crd", "apiextensions.k8s.io/v1", false),
    ("NamespaceManager", "namespacemanagers", "nsman", "coppice.dev/v1alpha1", true),
    ("ClusterNamespaceManager", "clusternamespacemanagers", "cnsman", "coppice.dev/v1alpha1", false),
    ("ManagedNamespace", "managednamespaces", "mns", "coppice.dev/v1alpha1", true),
    ("CoppiceConfig", "coppiceconfigs", "coppiceconfig", "coppice.dev/v1alpha1", false),
    ("DeletedNamespace", "deletednamespaces", "delns", "coppice.dev/v1alpha1", false),
    ("NamespaceTree", "namespacetrees", "nstree", "coppice.dev/v1alpha1", false),
    ("Subnamespace", "subnamespaces", "sns", "coppice.dev/v1alpha1", true),
    ("QuotaTransfer", "quotatransfers", "qtr", "coppice.dev/v1alpha1", true),
    ("SubnamespaceAnchor", "subnamespaceanchors", "subnsanchor", "hnc.x-k8s.io/v1alpha2", true),
    (
        "ClusterRoleBinding",
        "clusterrolebindings",
        "clusterrolebinding",
        "rbac.authorization.k8s.io/v1",
        false,
    ),
    ("ResourceQuota", "resourcequotas", "quota", "v1", true),
    ("NamespaceExpiry", "namespaceexpiries", "namespaceexpiry", "sample.coppice.dev/v1alpha1", false),
    ("Widget", "widgets", "widget", "example.com/v1", true),
];

/// Where objects of a kind are.
#[derive(Clone, Copy)]
struct Kind {
    word: &'static str,
    plural: &'static str,
    version: &'static str,
    namespaced: bool,
}

impl Kind {
    /// By its name, plural or short name, with or without its group.
    fn named(name: &str) -> Option<Self> {
        let word = name.split('.').next().unwrap_or_default().to_lowercase();
        let is = |(kind, plural, short, ..): &&(&str, &str, &str, &str, bool)| {
            [kind.to_lowercase().as_str(), *plural, *short].contains(&word.as_str())
        };
        let &(word, plural, _, version, namespaced) = KINDS.iter().find(is)?;
        Some(Self { word, plural, version, namespaced })
    }

    /// Without a namespace: the objects of all namespaces.
    fn collection(self, namespace: &str) -> String {
        let Self { plural, version, .. } = self;
        let api = if version.contains('/') { "apis" } else { "api" };
        if self.namespaced && !namespace.is_empty() {
            format!("/{api}/{version}/namespaces/{namespace}/{plural}")
        } else {
            format!("/{api}/{version}/{plural}")
        }
    }

    fn object(self, namespace: &str, name: &str) -> String {
        let namespace = if namespace.is_empty() { "default" } else { namespace };
        format!("{}/{name}", self.collection(namespace))
    }
}

fn kind(name: &str) -> anyhow::Result<Kind> {
    Kind::named(name).with_context(|| format!("tests do not know the kind {name}: add it to KINDS"))
}

/// Whether a kind can be asked for here.
pub fn knows(name: &str) -> bool {
    Kind::named(name).is_some()
}

/// The documents of YAML, without empty ones.
pub fn documents(yaml: &str) -> anyhow::Result<Vec<Value>> {
    let documents = serde_yaml::Deserializer::from_str(yaml).map(Value::deserialize);
    let documents = documents.collect::<Result<Vec<_>, _>>().context("YAML of objects")?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}

/// A client for each user, made when it is first needed.
#[derive(Default)]
pub struct Clients(Mutex<BTreeMap<PathBuf, Client>>);

impl Clients {
    /// Requests in the name of a kubeconfig's user.
    pub async fn by(&self, kubeconfig: PathBuf) -> anyhow::Result<Requests> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&kubeconfig).cloned();
        if let Some(client) = known {
            return Ok(Requests(client));
        }
        let read = Kubeconfig::read_from(&kubeconfig)?;
        let mut config = kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
        config.headers.push((http::header::USER_AGENT, http::HeaderValue::from_static(USER_AGENT)));
        let client = Client::try_from(config)?;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(kubeconfig, client.clone());
        Ok(Requests(client))
    }
}

/// Requests of one user.
#[derive(Clone)]
pub struct Requests(pub Client);

fn is(error: &kube::Error, code: u16, reason: &str) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code && status.reason == reason)
}

/// What the API server said, without what kube makes of it.
fn status_error(error: kube::Error, what: &str) -> anyhow::Error {
    match error {
        kube::Error::Api(status) => anyhow!("{what}: {} ({})", status.message, status.reason),
        other => anyhow::Error::new(other).context(what.to_owned()),
    }
}

impl Requests {
    async fn send(&self, method: Method, uri: &str, body: Option<&Value>) -> Result<Value, kube::Error> {
        let media = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        let bytes = body.map(Value::to_string).unwrap_or_default().into_bytes();
        let request = Request::builder().method(method).uri(uri).header("content-type", media);
        self.0.request(request.body(bytes).map_err(kube::Error::HttpError)?).await
    }

    /// One object; none if there is no such object.
    pub async fn get(&self, of: &str, namespace: &str, name: &str) -> anyhow::Result<Option<Value>> {
        let uri = kind(of)?.object(namespace, name);
        match self.send(Method::GET, &uri, None).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if is(&error, 404, "NotFound") => Ok(None),
            Err(error) => Err(status_error(error, &format!("{of} {namespace}/{name}"))),
        }
    }

    /// The objects of a kind in a namespace, or in all.
    pub async fn list(&self, of: &str, namespace: &str) -> anyhow::Result<Vec<Value>> {
        let kind = kind(of)?;
        let list = self.send(Method::GET, &kind.collection(namespace), None).await;
        let mut list = list.map_err(|error| status_error(error, of))?;
        let items = list["items"].as_array_mut().map(std::mem::take).unwrap_or_default();
        let whole = |mut item: Value| {
            item["kind"] = kind.word.into();
            item
        };
        Ok(items.into_iter().map(whole).collect())
    }

    /// What happens to the objects of a kind, wherever they are, in the order in which it happens: first those that are there.
    pub async fn watch(
        &self,
        of: &str,
    ) -> anyhow::Result<impl Stream<Item = kube::Result<WatchEvent<Value>>> + use<>> {
        let uri = format!("{}?watch=true&timeoutSeconds=3600", kind(of)?.collection(""));
        let events = self.0.request_events(Request::get(uri).body(Vec::new())?).await;
        events.map_err(|error| status_error(error, of))
    }

    /// Creates an object.
    pub async fn create(&self, object: &Value) -> anyhow::Result<Value> {
        let (kind, namespace, name) = place(object)?;
        let what = format!("{} {namespace}/{name}", kind.word);
        self.post(kind, namespace, object).await.map_err(|error| status_error(error, &what))
    }

    /// Creates an object and does not ask for what has become of it: that takes a while where it is large.
    pub async fn create_unseen(&self, object: &Value) -> anyhow::Result<()> {
        let (kind, namespace, name) = place(object)?;
        let what = format!("{} {namespace}/{name}", kind.word);
        let uri = format!("{}?fieldValidation=Strict&includeObject=None", kind.collection(namespace));
        let request = Request::post(uri).header("content-type", "application/json").header("accept", TABLE);
        let request = request.body(object.to_string().into_bytes())?;
        self.0.request_text(request).await.map(drop).map_err(|error| status_error(error, &what))
    }

    /// Creates many objects at once, in no particular order.
    pub async fn create_all(&self, objects: &[Value]) -> anyhow::Result<()> {
        let created = futures::stream::iter(objects).map(|object| self.create(object));
        created.buffer_unordered(AT_ONCE).try_fold((), async |(), _| Ok(())).await
    }

    async fn post(&self, kind: Kind, namespace: &str, object: &Value) -> Result<Value, kube::Error> {
        let namespace = if namespace.is_empty() { "default" } else { namespace };
        let uri = format!("{}?fieldValidation=Strict", kind.collection(namespace));
        self.send(Method::POST, &uri, Some(object)).await
    }

    /// Creates an object, or makes the one that is there the same: as `kubectl apply`, and with its strictness.
    pub async fn apply(&self, object: &Value) -> anyhow::Result<String> {
        let (kind, namespace, name) = place(object)?;
        let what = format!("{} {namespace}/{name}", kind.word);
        match self.post(kind, namespace, object).await {
            Ok(_) => return Ok(format!("{what} created\n")),
            Err(error) if is(&error, 409, "AlreadyExists") => {}
            Err(error) => return Err(status_error(error, &what)),
        }
        let uri = kind.object(namespace, name);
        for _ in 0..ROUNDS {
            let live =
                self.send(Method::GET, &uri, None).await.map_err(|error| status_error(error, &what))?;
            let wanted = replaced(&live, object);
            if wanted == live {
                return Ok(format!("{what} unchanged\n"));
            }
            match self.send(Method::PUT, &format!("{uri}?fieldValidation=Strict"), Some(&wanted)).await {
                Ok(_) => return Ok(format!("{what} configured\n")),
                Err(error) if is(&error, 409, "Conflict") => {}
                Err(error) => return Err(status_error(error, &what)),
            }
        }
        bail!("{what} changed {ROUNDS} times while it was applied")
    }

    /// Changes an object by a merge patch.
    pub async fn patch(&self, of: &str, namespace: &str, name: &str, patch: &Value) -> anyhow::Result<Value> {
        let uri = kind(of)?.object(namespace, name);
        let patched = self.send(Method::PATCH, &uri, Some(patch)).await;
        patched.map_err(|error| status_error(error, &format!("{of} {namespace}/{name}")))
    }

    /// Asks for an object's deletion, with these options.
    pub async fn delete(&self, of: &str, namespace: &str, name: &str, options: &Value) -> anyhow::Result<()> {
        let uri = kind(of)?.object(namespace, name);
        let deleted = self.send(Method::DELETE, &uri, Some(options)).await;
        deleted.map(drop).map_err(|error| status_error(error, &format!("{of} {namespace}/{name}")))
    }
}

/// Kind, namespace and name of an object.
fn place(object: &Value) -> anyhow::Result<(Kind, &str, &str)> {
    let word = object["kind"].as_str().context("an object without kind")?;
    let kind = kind(word)?;
    let metadata = &object["metadata"];
    let name = metadata["name"].as_str().with_context(|| format!("a {word} without a name"))?;
    Ok((kind, metadata["namespace"].as_str().unwrap_or_default(), name))
}

/// A live object with what was applied in its place. Labels and annotations of others stay.
fn replaced(live: &Value, object: &Value) -> Value {
    let mut wanted = live.clone();
    let fields = |value: &Value| value.as_object().cloned().unwrap_or_default();
    for (field, value) in fields(object) {
        if field != "metadata" {
            wanted[field] = value;
            continue;
        }
        for (field, value) in fields(&value) {
            match field.as_str() {
                "labels" | "annotations" => {
                    let mut all: Map<String, Value> = fields(&wanted["metadata"][&field]);
                    all.extend(fields(&value));
                    wanted["metadata"][field] = all.into();
                }
                _ => wanted["metadata"][field] = value,
            }
        }
    }
    wanted
}
