//! The live table: time, namespace, what, why.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::time::Instant;

use coppice_api::manager::NextStep;
use coppice_api::{ManagedNamespace, NamespaceManager};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};

use super::screen::Screen;

/// Prints a row for everything that changes.
pub(super) struct Table {
    screen: Screen,
    /// The namespaces that it is about begin so.
    prefix: &'static str,
    start: Instant,
    colours: bool,
    said: BTreeMap<String, (String, String)>,
    namespaces: BTreeMap<String, bool>,
}

impl Table {
    /// One about the namespaces whose names begin so.
    pub(super) fn new(screen: &Screen, prefix: &'static str) -> Self {
        let colours = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        screen.say(&format!("{:>6}  {:<14} {:<26} WHY", "TIME", "NAMESPACE", "WHAT"));
        let (screen, start) = (screen.clone(), Instant::now());
        Self { screen, prefix, start, colours, said: BTreeMap::new(), namespaces: BTreeMap::new() }
    }

    pub(super) fn row(&self, namespace: &str, what: &str, why: &str) {
        let seconds = self.start.elapsed().as_secs_f32();
        let colour = match what {
            "as expected" => "\x1b[32m",
            "is being deleted" => "\x1b[31m",
            _ => "",
        };
        let (on, off) = if self.colours && !colour.is_empty() { (colour, "\x1b[0m") } else { ("", "") };
        self.screen.say(&format!("{seconds:>5.1}s  {namespace:<14} {on}{what:<26}{off} {why}"));
    }

    /// What comes next in a namespace, if that is new.
    fn next(&mut self, namespace: String, phase: &str, next: &NextStep) {
        if !namespace.starts_with(self.prefix) {
            return;
        }
        let what = match &next.action {
            Some(action) => format!("{phase}, next: {action}"),
            None => phase.to_owned(),
        };
        let said = (what, next.message.clone());
        if self.said.get(&namespace) != Some(&said) {
            self.row(&namespace, &said.0, &said.1);
            self.said.insert(namespace, said);
        }
    }

    /// Looks at managers, records and namespaces, and prints what is new.
    pub(super) async fn update(&mut self, client: &Client) -> anyhow::Result<()> {
        let managers: Api<NamespaceManager> = Api::all(client.clone());
        for manager in managers.list(&ListParams::default()).await? {
            let namespace = manager.namespace().unwrap_or_default();
            let Some(next) = manager.status.as_ref().and_then(|s| s.next.as_ref()) else { continue };
            let phase = manager.status.as_ref().and_then(|s| s.phase).map_or("", |p| p.as_str());
            self.next(namespace, phase, next);
        }
        let records: Api<ManagedNamespace> = Api::all(client.clone());
        for record in records.list(&ListParams::default()).await? {
            let namespace = record.namespace().unwrap_or_default();
            let Some(next) = record.status.as_ref().and_then(|s| s.next.as_ref()) else { continue };
            let phase = record.status.as_ref().and_then(|s| s.phase).map_or("", |p| p.as_str());
            self.next(namespace, phase, next);
        }
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let mut now = BTreeMap::new();
        for namespace in namespaces.list(&ListParams::default()).await? {
            if namespace.name_any().starts_with(self.prefix) {
                now.insert(namespace.name_any(), namespace.metadata.deletion_timestamp.is_some());
            }
        }
        for (name, terminating) in &now {
            if *terminating && self.namespaces.get(name) != Some(&true) {
                self.row(name, "is being deleted", "the API server has accepted the deletion");
            }
        }
        for name in self.namespaces.keys().filter(|name| !now.contains_key(*name)) {
            self.row(name, "is gone", "with everything in it");
        }
        self.namespaces = now;
        Ok(())
    }
}
