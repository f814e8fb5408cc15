//! Clients for the targets, made when they are needed; a few are kept.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use coppice_api::Reason;
use coppice_clusters::kubeconfig::{self, Kubeconfig};
use coppice_clusters_api::SecretKey;
use coppice_runtime::client::Clients;
use coppice_runtime::clock::Clock;
use coppice_runtime::error::chain;
use coppice_runtime::metrics::Metrics;
use coppice_runtime::server_clock::ServerClock;
use kube::config::KubeConfigOptions;

use crate::output::read_secret;
use crate::target::{Failure, Target};

/// So many targets have clients at once.
const MAX_KEPT: usize = 64;

/// The clients.
pub(crate) struct Targets {
    clock: Clock,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    /// By namespace, Secret and key.
    targets: BTreeMap<(String, String, String), Entry>,
    uses: u64,
}

struct Entry {
    /// Of the kubeconfig that the clients were made of.
    sha256: String,
    target: Target,
    last_use: u64,
}

impl Targets {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, kept: Mutex::default() }
    }

    /// The target whose kubeconfig is in this Secret. `even_if_gone`: if the Secret is gone, by the kubeconfig that it had, if that is
    /// known: the Secrets of a namespace that is being deleted may be deleted before what has to be revoked.
    pub(crate) async fn of(
        &self,
        clients: &Clients,
        namespace: &str,
        source: &SecretKey,
        even_if_gone: bool,
    ) -> Result<Target, Failure> {
        let SecretKey { name, key } = source;
        let at = (namespace.to_owned(), name.clone(), key.clone());
        let secret = read_secret(clients, namespace, name).await.map_err(|error| {
            Failure::new(
                Reason::KubeconfigMissing,
                format!("the Secret {name} could not be read: {}", chain(&error)),
            )
        })?;
        let missing =
            |what: &str| Failure::new(Reason::KubeconfigMissing, format!("there is no {what}: create it"));
        let Some(secret) = secret else {
            let known = even_if_gone.then(|| self.known(&at, None)).flatten();
            return known.ok_or_else(|| missing(&format!("Secret {name}")));
        };
        let value = secret.value(key).ok_or_else(|| missing(&format!("key {key} in the Secret {name}")))?;
        let sha256 = kubeconfig::sha256(&value);
        if let Some(target) = self.known(&at, Some(&sha256)) {
            return Ok(target);
        }
        let refused = |why: String| {
            Failure::new(Reason::KubeconfigRefused, format!("{key} in the Secret {name}: {why}"))
        };
        let text = String::from_utf8(value).map_err(|_| refused("it is no text".to_owned()))?;
        let kubeconfig = kubeconfig::parse(&text).map_err(refused)?;
        let target = Target { clients: self.clients(&kubeconfig).await?, kubeconfig };
        self.keep(at, sha256, target.clone());
        Ok(target)
    }

    /// Clients with deadlines, clock and backpressure of their own. What they are asked is in no metric: nothing there names a target.
    pub(crate) async fn clients(&self, kubeconfig: &Kubeconfig) -> Result<Clients, Failure> {
        let refused = |error: &(dyn std::error::Error + 'static)| {
            Failure::new(
                Reason::KubeconfigRefused,
                format!("the kubeconfig cannot be used: {}", chain(error)),
            )
        };
        // Of the fields that are used alone: nothing else reaches the client.
        let parsed =
            kube::config::Kubeconfig::from_yaml(&kubeconfig.text()).map_err(|error| refused(&error))?;
        let config = kube::Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default()).await;
        let config = config.map_err(|error| refused(&error))?;
        let metrics = Metrics::new(env!("CARGO_PKG_VERSION"));
        Clients::new(config, &ServerClock::new(self.clock.clone()), &metrics).map_err(|error| refused(&error))
    }

    fn known(&self, at: &(String, String, String), sha256: Option<&str>) -> Option<Target> {
        let mut kept = self.kept();
        kept.uses += 1;
        let uses = kept.uses;
        let entry =
            kept.targets.get_mut(at).filter(|entry| sha256.is_none_or(|sha256| entry.sha256 == sha256))?;
        entry.last_use = uses;
        Some(entry.target.clone())
    }

    fn keep(&self, at: (String, String, String), sha256: String, target: Target) {
        let mut kept = self.kept();
        kept.uses += 1;
        let last_use = kept.uses;
        kept.targets.insert(at, Entry { sha256, target, last_use });
        while kept.targets.len() > MAX_KEPT {
            let oldest =
                kept.targets.iter().min_by_key(|(_, entry)| entry.last_use).map(|(at, _)| at.clone());
            let Some(oldest) = oldest else { return };
            kept.targets.remove(&oldest);
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        // Every change is one assignment: a panic leaves valid data.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
