//! `coppice tree`: the namespaces of trees, what each of them has, and why one is not ready.
#![allow(clippy::doc_markdown, reason = "comments on arguments are the help that people read in a terminal")]

mod adopt;
mod delete;
mod detach;

use std::path::PathBuf;

use anstyle::{AnsiColor, Style};
use anyhow::{Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use coppice_hierarchy::{ResourceName, ResourceNameError, Resources};
use serde_json::{Value, json};

use crate::args::ConnectionArgs;
use crate::connect::connect;
use crate::print::{self, Cell, Table};
use crate::trees::{Node, TreeSnapshot, live, picture};
use crate::{Exit, Io, files, with_progress};

/// Show the namespaces of trees, and what each of them was given, gave and uses
///
/// If you may read only one namespace of a tree, name it: you see what is below it.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "Examples:
  coppice tree                       every tree (needs the right to list Subnamespaces of all namespaces)
  coppice tree shop                  the tree shop, or the namespace shop with all below it
  coppice tree shop --resource cpu   one resource alone
  coppice tree shop -o svg > shop.svg   a picture: who has how much of each resource, and uses it
  kubectl get nstree,sns,quota -A -o yaml | coppice tree -f -
  coppice tree adopt shop/shop-legacy   an existing namespace becomes one of the tree
  coppice tree delete shop/shop-web --cascade --dry-run   a namespace goes, with all below it
  coppice tree detach shop --dry-run    the tree goes, and its namespaces stay

Columns: REQUESTED, what spec asks for; ALLOTTED, what the namespace and all below it have; GIVEN, what of that those below it
have; USED, what its own workloads use; FREE, what these may use besides, or the namespace may give. A terminal that is too narrow
shows neither GIVEN nor, if need be, REQUESTED, and long names without their middle; `-o wide` and a pipe have all.

Exit codes: 0 every namespace is ready, 1 error, 2 usage, 3 one is not ready: why is below the table.")]
pub(crate) struct TreeArgs {
    #[command(subcommand)]
    command: Option<TreeCommand>,
    /// A tree, or a namespace in one
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Only this resource, such as cpu or pods; may be repeated
    #[arg(long = "resource", value_name = "RESOURCE", value_parser = resource)]
    resources: Vec<ResourceName>,
    /// Read NamespaceTrees, Subnamespaces and ResourceQuotas from files or directories (`-` for standard input) instead of a
    /// cluster; may be repeated
    #[arg(short = 'f', long = "filename", value_name = "FILE", num_args = 1..)]
    files: Vec<PathBuf>,
    /// With -f: also directories below directories
    #[arg(short = 'R', long, requires = "files")]
    recursive: bool,
    /// How to print
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    output: TreeOutput,
    /// Without the line of column names
    #[arg(long)]
    no_headers: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum TreeOutput {
    /// For people
    #[default]
    Table,
    /// For people with a wide terminal
    Wide,
    /// For programs
    Json,
    /// For programs and people
    Yaml,
    /// Only the names
    Name,
    /// A picture: for each resource a bar for each namespace, as wide as what it has
    Svg,
}

#[derive(Debug, Subcommand)]
enum TreeCommand {
    Adopt(adopt::AdoptArgs),
    Delete(delete::DeleteArgs),
    Detach(detach::DetachArgs),
}

pub(super) fn resource(text: &str) -> Result<ResourceName, ResourceNameError> {
    text.parse()
}

pub(crate) async fn run(args: &TreeArgs, connection: &ConnectionArgs, io: &mut Io<'_>) -> Result<Exit> {
    match &args.command {
        Some(TreeCommand::Adopt(args)) => return adopt::run(args, connection, io).await,
        Some(TreeCommand::Delete(args)) => return delete::run(args, connection, io).await,
        Some(TreeCommand::Detach(args)) => return detach::run(args, connection, io).await,
        None => {}
    }
    let name = args.name.as_deref();
    let snapshot = if args.files.is_empty() {
        let api = connect(connection, io).await?;
        with_progress("reading the trees", io, live(&api.client, name)).await??
    } else {
        TreeSnapshot::of_documents(&files::read(&args.files, args.recursive, io.stdin)?)?
    };
    for warning in &snapshot.warnings {
        io.print_note(&format!("warning: {warning}"))?;
    }
    let nodes = snapshot.nodes(name);
    if let (Some(name), true) = (name, nodes.is_empty()) {
        bail!(
            "there is no tree {name}, and no namespace {name} in one: `coppice tree` shows those that there are"
        );
    }
    let mut ready = true;
    for (_, node) in &nodes {
        node.walk("", &mut |node, _| {
            ready &= node.message.is_empty() && node.phase.is_none_or(|phase| phase == "Ready");
        });
    }
    match args.output {
        TreeOutput::Json => print::json(io.out, &report(&nodes, args))?,
        TreeOutput::Yaml => print::yaml(io.out, &report(&nodes, args))?,
        TreeOutput::Name => {
            for (_, node) in &nodes {
                let mut names = Vec::new();
                node.walk("", &mut |node, _| names.push(&node.namespace));
                for name in names {
                    writeln!(io.screen(), "namespace/{name}")?;
                }
            }
        }
        TreeOutput::Svg => {
            let nodes: Vec<&Node> = nodes.iter().map(|(_, node)| node).collect();
            write!(io.out, "{}", picture::svg(&nodes, &args.resources))?;
        }
        TreeOutput::Table | TreeOutput::Wide => table(&nodes, args, io)?,
    }
    Ok(if ready { Exit::Ok } else { Exit::Attention })
}

fn table(nodes: &[(Option<&str>, Node)], args: &TreeArgs, io: &mut Io<'_>) -> Result<()> {
    if nodes.is_empty() {
        return Ok(io.print_note("No trees found: an administrator creates a NamespaceTree.")?);
    }
    let wide = args.output == TreeOutput::Wide;
    let mut headers =
        vec!["NAMESPACE", "PHASE", "RESOURCE", "REQUESTED", "ALLOTTED", "GIVEN", "USED", "FREE"];
    if wide {
        headers.extend(["TREE", "DEPTH"]);
    }
    let mut table = Table::new(&headers);
    for (tree, node) in nodes {
        rows(
            &mut table,
            node,
            Drawn { before: "", branch: "" },
            &|node| {
                if wide {
                    vec![tree.unwrap_or("-").into(), node.depth.to_string().into()]
                } else {
                    Vec::new()
                }
            },
            args,
        );
    }
    if let Some(width) = io.width.filter(|_| !wide) {
        table.fit(width, !args.no_headers, &["GIVEN", "REQUESTED"]);
    }
    table.write(&mut io.screen(), !args.no_headers)?;
    let mut why = Vec::new();
    for (_, node) in nodes {
        node.walk("", &mut |node, path| {
            if !node.message.is_empty() {
                let reason =
                    if node.reason.is_empty() { String::new() } else { format!("{}: ", node.reason) };
                why.push(format!("{path}: {reason}{}", node.message));
            }
        });
    }
    if !why.is_empty() {
        writeln!(io.screen())?;
        for line in why {
            writeln!(io.screen(), "{line}")?;
        }
    }
    Ok(())
}

/// The lines that lead to a namespace.
#[derive(Clone, Copy)]
struct Drawn<'a> {
    /// Before those of the namespaces below it,
    before: &'a str,
    /// and right before it.
    branch: &'a str,
}

/// One row for each resource; the first has the name.
fn rows(
    table: &mut Table,
    node: &Node,
    drawn: Drawn<'_>,
    further: &impl Fn(&Node) -> Vec<Cell>,
    args: &TreeArgs,
) {
    let bar = if node.children.is_empty() { "" } else { "│" };
    let mut lines: Vec<Option<ResourceName>> = names(node, args).into_iter().map(Some).collect();
    if lines.is_empty() {
        lines.push(None);
    }
    for (at, name) in lines.iter().enumerate() {
        let amount = |of: &Option<Resources>| {
            let amount = of.as_ref().zip(name.as_ref()).map(|(of, name)| of.get(name).to_string());
            Cell::from(amount.unwrap_or_else(|| "-".to_owned()))
        };
        let mut cells: Vec<Cell> = if at == 0 {
            vec![format!("{}{}", drawn.branch, node.namespace).into(), phase(node.phase)]
        } else {
            vec![format!("{}{bar}", drawn.before).into(), "".into()]
        };
        cells.push(name.as_ref().map_or("-", ResourceName::as_str).into());
        let amounts = [&node.requested, &node.allotted, &node.given, &node.used, &node.free];
        cells.extend(amounts.map(amount));
        if at == 0 {
            cells.extend(further(node));
        }
        table.row(cells);
    }
    let last = node.children.len().saturating_sub(1);
    for (at, child) in node.children.iter().enumerate() {
        let (branch, before) = if at == last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        let (branch, before) = (format!("{}{branch}", drawn.before), format!("{}{before}", drawn.before));
        rows(table, child, Drawn { before: &before, branch: &branch }, further, args);
    }
}

/// The resources that one of its amounts names, as far as they are asked for.
fn names(node: &Node, args: &TreeArgs) -> Vec<ResourceName> {
    let all = [&node.requested, &node.allotted, &node.given, &node.used, &node.free];
    let mut names: Vec<ResourceName> =
        all.into_iter().flatten().flat_map(|of| of.iter().map(|(name, _)| name.clone())).collect();
    names.sort();
    names.dedup();
    names.retain(|name| args.resources.is_empty() || args.resources.contains(name));
    names
}

fn phase(phase: Option<&str>) -> Cell {
    let color = match phase {
        Some("Ready") => AnsiColor::Green,
        Some("Refused" | "NotReady") => AnsiColor::Red,
        Some(_) => AnsiColor::Yellow,
        None => return Cell::styled("-", Style::new()),
    };
    Cell::styled(phase.unwrap_or_default(), color.on_default())
}

/// For programs.
fn report(nodes: &[(Option<&str>, Node)], args: &TreeArgs) -> Value {
    let mut items = Vec::new();
    for (tree, node) in nodes {
        node.walk("", &mut |node, path| {
            let amounts = |of: &Option<Resources>| {
                let of = of.as_ref()?;
                let wanted = names(node, args);
                let of = of.iter().filter(|(name, _)| wanted.contains(name));
                Some(of.map(|(name, amount)| (name.as_str().to_owned(), json!(amount))).collect::<serde_json::Map<_, _>>())
            };
            items.push(json!({
                "tree": tree, "namespace": node.namespace, "path": path, "depth": node.depth, "phase": node.phase,
                "reason": Some(&node.reason).filter(|text| !text.is_empty()),
                "message": Some(&node.message).filter(|text| !text.is_empty()),
                "requested": amounts(&node.requested), "allotted": amounts(&node.allotted), "given": amounts(&node.given),
                "used": amounts(&node.used), "free": amounts(&node.free)
            }));
        });
    }
    json!({ "items": items })
}
