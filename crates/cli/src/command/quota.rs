//! `coppice quota`: what a namespace of a tree has, and who could give it more.
#![allow(clippy::doc_markdown, reason = "comments on arguments are the help that people read in a terminal")]

use std::fmt;

use anyhow::{Result, bail};
use clap::Args;
use coppice_api::NamespaceTreeSpec;
use coppice_api::names::LABEL_TREE;
use coppice_hierarchy::{ResourceName, Resources};
use coppice_quantity::Quantity as Amount;
use k8s_openapi::api::core::v1::ResourceQuota;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::{Api, Client, ResourceExt as _};
use serde::Serialize;
use serde_json::{Value, json};

use super::tree::resource;
use crate::args::{ConnectionArgs, OutputArgs, OutputFormat, namespace_name};
use crate::connect::{connect, failed};
use crate::live::list;
use crate::print::{self, Cell, Table};
use crate::trees::sources::{QuotaSource, Relation, Seen};
use crate::trees::{Node, TreeSnapshot, live};
use crate::{Exit, Io, transfers, with_progress};

/// As many sources of one resource are shown to people.
const MAX_SOURCES: usize = 5;

/// Show what quota a namespace of a tree has, and who could give it more
///
/// Of namespaces that you may not read nothing is shown: they may have more to give. Quotas in the namespace that are not its
/// tree's limit it besides, and are shown, too.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  coppice quota shop-web
  coppice quota shop-web --resource pods
  coppice quota shop-web -o json         with every namespace that could give something

Columns: ALLOTTED, what the namespace and all below it have; GIVEN, what of that those below it have; USED, what its own
workloads use; FREE, what these may use besides, or the namespace may give.

Exit codes: 0 shown, 1 error, 2 usage.")]
pub(crate) struct QuotaArgs {
    /// A namespace of a tree
    #[arg(value_name = "NAMESPACE", value_parser = namespace_name)]
    namespace: String,
    /// Only this resource, such as cpu or pods; may be repeated
    #[arg(long = "resource", value_name = "RESOURCE", value_parser = resource)]
    resources: Vec<ResourceName>,
    #[command(flatten)]
    output: OutputArgs,
}

/// A resource, and who could give the namespace more of it.
type Row = (ResourceName, Vec<QuotaSource>);

pub(crate) async fn run(args: &QuotaArgs, connection: &ConnectionArgs, io: &mut Io<'_>) -> Result<Exit> {
    let name = &args.namespace;
    let client = connect(connection, io).await?.client;
    let reading = Box::pin(transfers::live::source(&client, name));
    let path = with_progress("reading the namespace", io, reading).await??;
    let (top, snapshot) = with_progress("reading the tree", io, visible(&client, &path)).await??;
    for warning in &snapshot.warnings {
        io.print_note(&format!("warning: {warning}"))?;
    }
    if top > 0 {
        let hidden = path[..top].join(", ");
        io.print_note(&format!(
            "warning: you may not read {hidden}: who could give more there is not known"
        ))?;
    }
    let nodes = snapshot.nodes(Some(&path[top]));
    let Some(seen) = nodes.iter().find_map(|(_, node)| Seen::find(node, &path[..top], name)) else {
        bail!("namespace {name} is not among those below {}: ask again in a moment", path[top]);
    };
    let tree =
        snapshot.trees.iter().filter_map(|tree| tree.spec.as_ref().ok()).find(|tree| tree.root == path[0]);
    let rows = rows(&seen, tree, args)?;
    let others = match OtherLimit::read(&client, name, &args.resources).await {
        Ok(others) => others,
        Err(error) => {
            io.print_note(&format!("warning: {error:#}"))?;
            Vec::new()
        }
    };
    match args.output.output {
        OutputFormat::Json => print::json(io.out, &report(&seen, &rows, &others))?,
        OutputFormat::Yaml => print::yaml(io.out, &report(&seen, &rows, &others))?,
        OutputFormat::Name => {
            let mut names: Vec<&str> = rows
                .iter()
                .flat_map(|(_, sources)| sources.iter().map(|source| &*source.namespace))
                .collect();
            names.sort_unstable();
            names.dedup();
            for name in names {
                writeln!(io.screen(), "namespace/{name}")?;
            }
        }
        OutputFormat::Table | OutputFormat::Wide => {
            table(&seen, &rows, args, io)?;
            limits(&others, args, io)?;
        }
    }
    Ok(Exit::Ok)
}

/// What a quota in the namespace that is not its tree's limits it to.
#[derive(Debug, Serialize)]
pub(crate) struct OtherLimit {
    quota: String,
    resource: String,
    hard: String,
    used: Option<String>,
    /// Of which pods or claims it is about, if not of all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    scopes: Vec<String>,
}

impl OtherLimit {
    /// All of a namespace, or those of these resources.
    async fn read(client: &Client, namespace: &str, asked: &[ResourceName]) -> Result<Vec<Self>> {
        let quotas = list(&Api::<ResourceQuota>::namespaced(client.clone(), namespace), None).await;
        let what = format!("other quotas in namespace {namespace} cannot be read");
        let quotas = quotas.map_err(|error| failed(&what, &error))?;
        let others = quotas.iter().filter(|quota| !quota.labels().contains_key(LABEL_TREE));
        Ok(others.flat_map(|quota| Self::of(quota, asked)).collect())
    }

    /// What it limits, or those of these resources.
    pub(crate) fn of(quota: &ResourceQuota, asked: &[ResourceName]) -> Vec<Self> {
        let Some(spec) = &quota.spec else { return Vec::new() };
        let used = quota.status.as_ref().and_then(|status| status.used.as_ref());
        let selected =
            spec.scope_selector.iter().flat_map(|selector| selector.match_expressions.iter().flatten());
        let scopes: Vec<String> =
            spec.scopes.iter().flatten().cloned().chain(selected.map(|one| one.scope_name.clone())).collect();
        let is_asked = |name: &str| {
            asked.is_empty() || name.parse::<ResourceName>().is_ok_and(|name| asked.contains(&name))
        };
        let hard = spec.hard.iter().flatten().filter(|(name, _)| is_asked(name));
        let limit = |(name, hard): (&String, &Quantity)| Self {
            quota: quota.name_any(),
            resource: name.clone(),
            hard: hard.0.clone(),
            used: used.and_then(|used| used.get(name)).map(|used| used.0.clone()),
            scopes: scopes.clone(),
        };
        hard.map(limit).collect()
    }

    /// The name of the quota.
    pub(crate) fn quota(&self) -> &str {
        &self.quota
    }

    /// Whether it limits all that there is of this resource.
    pub(crate) fn is_of(&self, resource: &ResourceName) -> bool {
        self.scopes.is_empty() && self.resource.parse::<ResourceName>().is_ok_and(|name| name == *resource)
    }

    /// What it leaves, if that is counted.
    pub(crate) fn free(&self) -> Option<Amount> {
        let (hard, used): (Amount, Amount) = (self.hard.parse().ok()?, self.used.as_ref()?.parse().ok()?);
        Some(hard.checked_sub(used)?.max(Amount::ZERO))
    }
}

impl fmt::Display for OtherLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { quota, resource, hard, used, scopes } = self;
        let scopes = if scopes.is_empty() { String::new() } else { format!(" ({})", scopes.join(", ")) };
        match used {
            Some(used) => write!(f, "ResourceQuota {quota}{scopes}: {resource}: {used} of {hard} used"),
            None => write!(f, "ResourceQuota {quota}{scopes}: {resource}: {hard} at most"),
        }
    }
}

fn limits(others: &[OtherLimit], args: &QuotaArgs, io: &mut Io<'_>) -> Result<()> {
    if others.is_empty() {
        return Ok(());
    }
    writeln!(io.screen())?;
    let mut table = Table::new(&["OTHER QUOTA", "RESOURCE", "HARD", "USED", "SCOPES"]);
    for OtherLimit { quota, resource, hard, used, scopes } in others {
        let (used, scopes) = (used.as_deref().unwrap_or("-"), scopes.join(", "));
        table.row([quota.as_str(), resource, hard, used, &scopes].map(Cell::from).into());
    }
    table.write(&mut io.screen(), !args.output.no_headers)
}

/// What is used beyond what the namespace has for itself.
fn overdrafts(node: &Node, rows: &[Row]) -> Vec<String> {
    let (Some(allotted), Some(given), Some(used)) = (&node.allotted, &node.given, &node.used) else {
        return Vec::new();
    };
    let own = allotted.minus(given);
    let beyond = used.minus(&own);
    let rows = rows.iter().map(|(name, _)| name).filter(|name| !beyond.get(name).is_zero());
    rows.map(|name| {
        format!(
            "{name}: {} are used and {} are its own: nothing more starts there until {} of it are gone, or the namespace gets more",
            used.get(name),
            own.get(name),
            beyond.get(name)
        )
    })
    .collect()
}

/// What is below the highest namespace above that this user may read: its place in the path, and the snapshot.
async fn visible(client: &Client, path: &[String]) -> Result<(usize, TreeSnapshot)> {
    let mut last = None;
    for (top, name) in path.iter().enumerate() {
        match live(client, Some(name)).await {
            Ok(snapshot) => return Ok((top, snapshot)),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| anyhow::anyhow!("the namespace is in no tree")))
}

fn rows(seen: &Seen<'_>, tree: Option<&NamespaceTreeSpec>, args: &QuotaArgs) -> Result<Vec<Row>> {
    let limited = seen.node.allotted.clone().unwrap_or_default();
    if let Some(name) = args.resources.iter().find(|name| !limited.names(name)) {
        let known: Vec<&str> = limited.iter().map(|(name, _)| name.as_str()).collect();
        bail!("--resource: the tree has no quota of {name}: write one of {}", known.join(", "));
    }
    let asked = |name: &ResourceName| args.resources.is_empty() || args.resources.contains(name);
    let names = limited.iter().map(|(name, _)| name).filter(|name| asked(name));
    Ok(names.map(|name| (name.clone(), seen.sources(name, tree))).collect())
}

fn table(seen: &Seen<'_>, rows: &[Row], args: &QuotaArgs, io: &mut Io<'_>) -> Result<()> {
    let mut table = Table::new(&["RESOURCE", "ALLOTTED", "GIVEN", "USED", "FREE"]);
    for (name, _) in rows {
        let mut cells: Vec<Cell> = vec![name.as_str().into()];
        let amount = |of: &Option<Resources>| {
            of.as_ref().map_or_else(|| "-".to_owned(), |of| of.get(name).to_string())
        };
        let node = seen.node;
        cells.extend([&node.allotted, &node.given, &node.used, &node.free].map(|of| amount(of).into()));
        table.row(cells);
    }
    table.write(&mut io.screen(), !args.output.no_headers)?;
    for overdraft in overdrafts(seen.node, rows) {
        io.print_note(&format!("warning: {overdraft}"))?;
    }
    writeln!(io.screen())?;
    if rows.iter().all(|(_, sources)| sources.is_empty()) {
        return Ok(io.print_note("Nobody that you may read has anything to give.")?);
    }
    let mut table = Table::new(&["RESOURCE", "FROM", "FREE", "HOW"]);
    let mut further = Vec::new();
    for (name, sources) in rows {
        for source in sources.iter().take(MAX_SOURCES) {
            let how = how(seen, name, source);
            let free = source.free.to_string();
            table.row(vec![name.as_str().into(), source.namespace.as_str().into(), free.into(), how.into()]);
        }
        let more = sources.len().saturating_sub(MAX_SOURCES);
        if more > 0 {
            further.push(format!("{more} more have {name} to give (-o json)"));
        }
    }
    table.write(&mut io.screen(), !args.output.no_headers)?;
    for line in further {
        io.print_note(&line)?;
    }
    Ok(())
}

/// What to do to get it.
fn how(seen: &Seen<'_>, name: &ResourceName, source: &QuotaSource) -> String {
    let (this, other, free) = (&seen.node.namespace, &source.namespace, source.free);
    match source.relation {
        Relation::Parent => {
            format!("ask for up to {free} more in spec.quota.hard of Subnamespace {other}/{this}")
        }
        Relation::Child => format!("coppice give-back {other} --amount {name}={free}"),
        Relation::Above | Relation::Below | Relation::Elsewhere => {
            format!("coppice transfer {other} --to {this} --amount {name}={free} --reason TEXT")
        }
    }
}

/// For programs.
fn report(seen: &Seen<'_>, rows: &[Row], others: &[OtherLimit]) -> Value {
    let amount = |of: &Option<Resources>, name: &ResourceName| of.as_ref().map(|of| json!(of.get(name)));
    let node = seen.node;
    let items: Vec<Value> = rows
        .iter()
        .map(|(name, sources)| {
            let sources = sources.iter().map(|source| {
                json!({"namespace": source.namespace, "relation": source.relation.as_str(), "free": source.free})
            });
            json!({
                "resource": name.as_str(), "allotted": amount(&node.allotted, name), "given": amount(&node.given, name),
                "used": amount(&node.used, name), "free": amount(&node.free, name), "sources": sources.collect::<Vec<_>>()
            })
        })
        .collect();
    json!({"namespace": node.namespace, "path": seen.path.join("/"), "resources": items, "otherQuotas": others})
}
