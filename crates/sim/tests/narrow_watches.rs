//! A watch by labels, of metadata alone, on the API server in memory.
#![allow(clippy::unwrap_used, reason = "test code")]

use std::sync::Arc;
use std::time::Duration;

use coppice_runtime::client::Clients;
use coppice_runtime::clock::Clock;
use coppice_runtime::decode::{ObjectRef, Unreadable};
use coppice_runtime::intervals::ResyncIntervals;
use coppice_runtime::kind::{Kind, Meta};
use coppice_runtime::leader::Gate;
use coppice_runtime::metrics::Metrics;
use coppice_runtime::readiness::Readiness;
use coppice_runtime::server_clock::ServerClock;
use coppice_runtime::store::Store;
use coppice_runtime::watches::{WatchEnvironment, Watches};
use coppice_sim::http::Service;
use coppice_sim::server::Server;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tokio::sync::mpsc;

/// `ConfigMaps` of the label `tier=web`.
#[derive(Debug)]
struct WebConfigMaps;

/// One of them.
#[derive(Debug, PartialEq)]
struct WebConfigMap {
    name: Box<str>,
    /// Whether more than its metadata was sent.
    has_data: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ConfigMapWire {
    metadata: Meta,
    data: Option<IgnoredAny>,
}

impl Kind for WebConfigMaps {
    type Object = WebConfigMap;
    type Wire = ConfigMapWire;
    type Context = ();
    const RESOURCE: &'static str = "configmaps";
    const GROUP_PATH: &'static str = "/api/v1";
    const LABEL_SELECTOR: &'static str = "tier=web";
    const METADATA_ONLY: bool = true;

    fn object_ref(wire: &ConfigMapWire) -> ObjectRef {
        wire.metadata.object_ref()
    }

    fn project(wire: ConfigMapWire, (): &()) -> Result<WebConfigMap, Unreadable> {
        Ok(WebConfigMap { name: wire.metadata.name, has_data: wire.data.is_some() })
    }

    fn name(object: &WebConfigMap) -> &str {
        &object.name
    }
}

/// Sends a request to the API server.
async fn send(client: &kube::Client, method: &str, path: &str, body: Value) {
    let media_type = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let request = http::Request::builder().method(method).uri(path).header("Content-Type", media_type);
    client.request::<Value>(request.body(body.to_string().into_bytes()).unwrap()).await.unwrap();
}

#[tokio::test]
async fn an_object_that_leaves_the_selector_is_gone_and_one_that_enters_it_is_there() {
    let clock = Clock::system();
    let service = Service::bind("127.0.0.1:0".parse().unwrap(), Server::new(clock.now()), clock.clone());
    let service = service.await.unwrap();
    let config = kube::Config::new(format!("http://{}", service.address().unwrap()).parse().unwrap());
    let serving = tokio::spawn(service.serve());
    let (metrics, server_clock) = (Metrics::new("test"), ServerClock::new(clock.clone()));
    let clients = Clients::new(config, &server_clock, &metrics).unwrap();
    let permit = Gate::always(Duration::ZERO).permit().unwrap();
    let writes = permit.client(&clients);
    let config_maps = "/api/v1/namespaces/default/configmaps";
    let config_map = |name: &str, tier: &str| json!({"metadata": {"name": name, "labels": {"tier": tier}}, "data": {"k": "v"}});
    send(writes, "POST", config_maps, config_map("a", "web")).await;
    send(writes, "POST", config_maps, config_map("b", "db")).await;

    let (readiness, intervals) = (Readiness::new(), ResyncIntervals::default());
    let environment = WatchEnvironment {
        clients: clients.clone(),
        clock,
        metrics,
        readiness,
        intervals,
        seed: 0,
        on_collapse: Arc::new(|collapse| panic!("{collapse:?}")),
    };
    let (watches, runner) = Watches::new(environment);
    let running = tokio::spawn(runner.run());
    let store = Store::<WebConfigMaps>::default();
    let (changed, mut woken) = mpsc::unbounded_channel();
    let _watched = watches.subscribe(&store, move |_, _| changed.send(()).unwrap());
    let mut until = async |names: &[&str]| {
        let all = || store.list("default").iter().map(|found| found.name.to_string()).collect::<Vec<_>>();
        while all() != names {
            tokio::time::timeout(Duration::from_secs(30), woken.recv()).await.unwrap().unwrap();
        }
        assert!(store.list("default").iter().all(|found| !found.has_data), "metadata alone");
    };
    until(&["a"]).await;
    send(writes, "PATCH", &format!("{config_maps}/b"), json!({"metadata": {"labels": {"tier": "web"}}}))
        .await;
    until(&["a", "b"]).await;
    send(writes, "PATCH", &format!("{config_maps}/a"), json!({"metadata": {"labels": {"tier": "db"}}})).await;
    until(&["b"]).await;
    send(writes, "DELETE", &format!("{config_maps}/b"), Value::Null).await;
    until(&[]).await;
    running.abort();
    serving.abort();
}
