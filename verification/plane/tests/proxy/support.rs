//! A plane for all tests of a binary, and for each a proxy, a namespace and clients.

use std::{path::Path, time::Duration};

use coppice_plane::{
    ADMIN, HISTORY_ARGS, Options, Plane,
    proxy::{Proxy, TraceEntry},
};
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::{
    Api, Client, Config, Error,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use tokio::{sync::OnceCell, task::JoinHandle, time::timeout};

static PLANE: OnceCell<Plane> = OnceCell::const_new();

/// It ends with the process, and its folder is removed by the next plane that starts.
pub(crate) async fn plane() -> &'static Plane {
    let start = || async {
        let apiserver_args = HISTORY_ARGS.map(str::to_owned).to_vec();
        Plane::start(Options { apiserver_args, ..Options::default() }).await.unwrap()
    };
    PLANE.get_or_init(start).await
}

pub(crate) async fn proxy(trace_file: Option<&Path>) -> Proxy {
    Proxy::start(plane().await, trace_file).await.unwrap()
}

/// Generous, as nothing depends on it.
pub(crate) async fn with_timeout<T>(what: &str, future: impl Future<Output = T>) -> T {
    timeout(Duration::from_mins(1), future).await.unwrap_or_else(|_| panic!("not in time: {what}"))
}

pub(crate) fn secret(name: &str) -> Secret {
    Secret {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        ..Secret::default()
    }
}

/// The status of a refusal by the API server, or in its name.
pub(crate) fn code(error: &Error) -> u16 {
    let Error::Api(status) = error else { panic!("{error:?}") };
    status.code
}

/// A client without the retries that kube makes by default.
pub(crate) async fn client(kubeconfig: &Path) -> Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

pub(crate) struct TestProxy {
    pub(crate) namespace: String,
    pub(crate) proxy: Proxy,
    /// As administrator, through the proxy.
    pub(crate) through: Api<Secret>,
    /// As administrator, not through the proxy.
    pub(crate) direct: Api<Secret>,
    pub(crate) dir: tempfile::TempDir,
}

impl TestProxy {
    pub(crate) async fn new(namespace: &str) -> Self {
        let plane = plane().await;
        let direct = client(&plane.admin_kubeconfig()).await;
        let object = Namespace {
            metadata: ObjectMeta { name: Some(namespace.to_owned()), ..ObjectMeta::default() },
            ..Namespace::default()
        };
        Api::all(direct.clone()).create(&PostParams::default(), &object).await.unwrap();
        let proxy = proxy(None).await;
        let through = client(&proxy.kubeconfig(&plane.admin_kubeconfig()).unwrap()).await;
        Self {
            namespace: namespace.to_owned(),
            proxy,
            through: Api::namespaced(through, namespace),
            direct: Api::namespaced(direct, namespace),
            dir: tempfile::tempdir().unwrap(),
        }
    }

    /// A user's client through the proxy.
    pub(crate) async fn client(&self, user: &str) -> Client {
        client(&self.proxy.kubeconfig(&plane().await.kubeconfig(user).unwrap()).unwrap()).await
    }

    /// Another client of the administrator through the proxy.
    pub(crate) async fn again(&self) -> Api<Secret> {
        Api::namespaced(self.client(ADMIN).await, &self.namespace)
    }

    pub(crate) async fn create(&self, name: &str) -> kube::Result<Secret> {
        self.through.create(&PostParams::default(), &secret(name)).await
    }

    pub(crate) fn create_task(&self, name: &str) -> JoinHandle<kube::Result<Secret>> {
        let (api, secret) = (self.through.clone(), secret(name));
        tokio::spawn(async move { api.create(&PostParams::default(), &secret).await })
    }

    pub(crate) fn patch(&self, name: &str, body: serde_json::Value) -> JoinHandle<kube::Result<Secret>> {
        let (api, name) = (self.through.clone(), name.to_owned());
        tokio::spawn(async move { api.patch(&name, &PatchParams::default(), &Patch::Merge(body)).await })
    }

    /// What the object really has under a key.
    pub(crate) async fn value(&self, name: &str, key: &str) -> String {
        let data = self.direct.get(name).await.unwrap().data.unwrap();
        String::from_utf8(data[key].0.clone()).unwrap()
    }
    /// Waits until the proxy has this many open watches.
    pub(crate) async fn opened(&self, count: usize) {
        let open = |entry: &&TraceEntry| {
            entry.verb == "watch"
                && entry.event.is_none()
                && entry.status == Some(200)
                && entry.done.is_none()
        };
        let all = |entries: &[TraceEntry]| (entries.iter().filter(open).count() == count).then_some(());
        with_timeout("the watches are open", self.proxy.trace().wait_until(all)).await;
    }
}
