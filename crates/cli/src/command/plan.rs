//! `coppice plan`: what will happen, when and why.

mod subnamespaces;

use std::collections::BTreeSet;

use anyhow::Result;
use clap::Args;
use coppice_api::manager::{NextStep, Phase};
use coppice_api::steps::Action;
use coppice_api::{Losses, NamespacePhase, Reason, SubnamespacePhase};
use coppice_hierarchy::Resources;
use jiff::Timestamp;
use serde::Serialize;

use crate::args::{ConnectionArgs, OutputArgs, OutputFormat, SourceArgs};
use crate::connect::connect;
use crate::facts::Manager;
use crate::lifecycle::{
    self, GovernedPlan, JudgedManagers, LifecycleSnapshot, ManagerFilter, ResolvedPlan, resolved_plan,
};
use crate::print::{self, Cell, Table};
use crate::write::resource_name;
use crate::{Exit, Io, compute, losses, namespace_record, with_progress};
use subnamespaces::{TreeItem, Trees};

/// Show what will happen to namespaces, when and why
///
/// Decides as the operator does, by the same code, and does nothing. From the cluster, or with -f from YAML alone.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  coppice plan -A                                what will happen in all namespaces
  coppice plan -n team-a --at +24h               as it would be tomorrow
  coppice plan -f manager.yaml                   before it is applied, without a cluster
  kubectl get ns,pods,jobs,nsman,cnsman,mns,copcfg -A -o yaml | coppice plan -f -

A line for each manager, one for each namespace that a cluster manager governs (cnsman/NAME), and in trees one for each
Subnamespace that goes, waits with that, or moves (sns/NAME; of files too, if Subnamespaces are among them). Of a namespace
that is deleted it also says what is lost with it: volumes, load balancers; which finalizers of others delay that; and in a
tree, which quota returns to the namespace above.

Exit codes: 0 all is clear, 3 something is refused or unknown, 1 error, 2 usage.")]
pub(crate) struct PlanArgs {
    /// All namespaces
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    #[command(flatten)]
    source: SourceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// What will happen to one manager, to a namespace under a cluster manager, or to one of a tree with its Subnamespace.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PlannedItem<P = Phase> {
    pub(crate) namespace: String,
    /// Its name; empty while no cluster manager governs the namespace.
    pub(crate) manager: String,
    pub(crate) manager_kind: &'static str,
    pub(crate) phase: Option<P>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) action: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) policy: Option<String>,
    /// Whether the action is taken at once.
    pub(crate) now: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) due: Option<Timestamp>,
    /// When the time to live ends that a cluster manager gives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) expires_at: Option<Timestamp>,
    /// When time alone can change the plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_check: Option<Timestamp>,
    pub(crate) reason: String,
    pub(crate) message: String,
    /// Whether it relies on something that could not be known.
    pub(crate) unknown: bool,
    /// What is lost with the namespace; absent where it is not deleted, or was not looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) losses: Option<Losses>,
    /// The namespace above; absent where it is in no tree, or nothing returns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) parent: Option<String>,
    /// Which namespaces of the tree go before it, one after another; of one that goes with another one above it, the last of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) before: Vec<String>,
    /// Which quota returns to the namespace above with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) returns: Option<Resources>,
}

/// What becomes of a namespace under its cluster manager.
pub(crate) type GovernedItem = PlannedItem<NamespacePhase>;

/// One line of a plan.
#[derive(Serialize)]
#[serde(untagged)]
enum Line {
    Governed(GovernedItem),
    Manager(PlannedItem),
    Subnamespace(TreeItem),
}

#[derive(Serialize)]
struct Report {
    at: Timestamp,
    items: Vec<Line>,
}

impl PlannedItem {
    /// What a forecast says of a manager.
    pub(crate) fn new(manager: &Manager, resolved_plan: &ResolvedPlan, at: Timestamp) -> Self {
        let plan = &resolved_plan.plan;
        let mut item = Self {
            namespace: manager.namespace().to_owned(),
            manager: manager.name().to_owned(),
            manager_kind: "NamespaceManager",
            phase: plan.status.phase,
            action: None,
            policy: None,
            now: plan.step.is_some(),
            due: None,
            expires_at: None,
            next_check: plan.next_check.filter(|next_check| *next_check > at),
            reason: String::new(),
            message: String::new(),
            unknown: resolved_plan.is_unknown(),
            losses: None,
            parent: None,
            before: Vec::new(),
            returns: None,
        };
        if manager.meta.deletion_timestamp.is_some() {
            item.phase = Some(Phase::Terminating);
            item.reason = Reason::NamespaceTerminating.to_string();
            "the manager itself is being deleted: it does nothing any more".clone_into(&mut item.message);
        } else {
            item.take_over(plan.status.next.as_ref());
        }
        item
    }
}

impl GovernedItem {
    /// What a forecast says of a namespace.
    pub(crate) fn governed(namespace: &str, plan: &GovernedPlan, at: Timestamp) -> Self {
        let status = &plan.status;
        let mut item = Self {
            namespace: namespace.to_owned(),
            manager: status.manager.as_ref().map(|manager| manager.name.clone()).unwrap_or_default(),
            manager_kind: "ClusterNamespaceManager",
            phase: status.phase,
            action: None,
            policy: None,
            now: plan.now,
            due: None,
            expires_at: status.expires_at,
            next_check: plan.next_check.filter(|next_check| *next_check > at),
            reason: String::new(),
            message: String::new(),
            unknown: plan.is_unknown(),
            losses: None,
            parent: None,
            before: Vec::new(),
            returns: None,
        };
        item.take_over(status.next.as_ref());
        item
    }

    /// Whether the cluster manager, or its policy, only observes.
    pub(crate) fn observes(&self) -> bool {
        self.reason == Reason::Observing.as_str()
    }
}

impl<P> PlannedItem<P> {
    /// What comes next, by a status.
    fn take_over(&mut self, next: Option<&NextStep>) {
        let Some(next) = next else { return };
        self.action.clone_from(&next.action);
        self.policy.clone_from(&next.policy);
        self.due = next.due;
        self.reason.clone_from(&next.reason);
        self.message.clone_from(&next.message);
    }

    /// Whether the namespace is or would be deleted.
    pub(crate) fn deletes(&self) -> bool {
        self.action.as_deref() == Some(Action::Delete.as_str())
    }

    /// Whether nothing goes on until somebody does something.
    fn waits_for_somebody(&self) -> bool {
        [Reason::HasChildren, Reason::NamespaceProtected].iter().any(|reason| reason.as_str() == self.reason)
    }

    /// A row of the table. `manager` and `action` as people read them.
    fn row(&self, (manager, phase, action): (String, Cell, String), wide: bool, at: Timestamp) -> Vec<Cell> {
        let due = self.when(at);
        let due = if self.now { Cell::styled(due, print::ERROR) } else { due.into() };
        let mut cells = vec![self.namespace.as_str().into(), manager.into(), phase, action.into(), due];
        if wide {
            let next_check = print::instant_or_dash(self.next_check, at);
            let policy = self.policy.as_deref().unwrap_or("-");
            cells.extend([policy.into(), self.reason.as_str().into(), next_check.into()]);
        }
        let losses = self.losses.as_ref().filter(|losses| !losses.is_empty());
        let losses = losses.map_or_else(String::new, |losses| format!("; {losses}"));
        let returns = self.returns.as_ref().filter(|returns| !returns.is_empty()).zip(self.parent.as_ref());
        let returns =
            returns.map_or_else(String::new, |(amount, parent)| format!("; returns {amount} to {parent}"));
        cells.push(format!("{}{returns}{losses}", self.message).into());
        cells
    }

    /// When, for people.
    pub(crate) fn when(&self, at: Timestamp) -> String {
        let waits_for_time =
            [Reason::InitialDelay, Reason::Settling].iter().any(|r| r.as_str() == self.reason);
        match (self.now, self.due, self.next_check) {
            (true, ..) => "now".to_owned(),
            (_, Some(due), _) => print::instant_from(due, at),
            (_, None, Some(next_check)) if waits_for_time => {
                format!("not before {}", print::instant_from(next_check, at))
            }
            _ => "-".to_owned(),
        }
    }
}

pub(crate) async fn run(args: &PlanArgs, connection: &ConnectionArgs, io: &mut Io<'_>) -> Result<Exit> {
    let offline = !args.source.files.is_empty();
    let namespace = match (&connection.namespace, args.all_namespaces) {
        (_, true) => None,
        (Some(namespace), false) => Some(namespace.clone()),
        (None, false) if offline => None,
        (None, false) => Some(connect(connection, io).await?.namespace),
    };
    let wanted = ManagerFilter { namespace: namespace.as_deref(), name: None, judged: JudgedManagers::All };
    let (mut cluster_snapshot, at) = lifecycle::read(&args.source, wanted, connection, io).await?;
    if !offline {
        let client = connect(connection, io).await?.client;
        let reading = Box::pin(cluster_snapshot.read_trees(&client, namespace.as_deref()));
        for warning in with_progress("reading the trees", io, reading).await? {
            io.print_note(&format!("warning: {warning}"))?;
        }
    }
    let of = namespace.clone();
    let mut items = compute("planning", io, move || lines(&cluster_snapshot, of.as_deref(), at)).await?;
    if !offline {
        add_losses(&mut items, connection, io).await?;
    }
    let attention = items.iter().any(|line| match line {
        Line::Governed(item) => item.unknown,
        Line::Manager(item) => item.unknown || item.phase == Some(Phase::Refused),
        Line::Subnamespace(item) => item.unknown || item.waits_for_somebody(),
    });
    if items.is_empty() {
        let place = namespace.map_or_else(String::new, |n| format!(" in namespace {n}"));
        io.print_note(&format!("No NamespaceManagers or governed namespaces found{place}."))?;
    }
    write(args.output, &Report { at, items }, io)?;
    Ok(if attention { Exit::Attention } else { Exit::Ok })
}

/// What becomes of governed namespaces, of managers and of Subnamespaces, by namespace.
fn lines(snapshot: &LifecycleSnapshot, namespace: Option<&str>, at: Timestamp) -> Vec<Line> {
    let wanted = snapshot.known_namespaces().into_iter().filter(|name| namespace.is_none_or(|n| n == *name));
    let governed = wanted.filter_map(|name| {
        let plan = snapshot.governed_plan(name, at).filter(|plan| !plan.is_not_governed())?;
        Some(Line::Governed(PlannedItem::governed(name, &plan, at)))
    });
    let managers = snapshot.managers.iter();
    let managers = managers.map(|m| Line::Manager(PlannedItem::new(m, &resolved_plan(snapshot, m, at), at)));
    let trees = Trees::new(snapshot, at);
    let of_trees = trees.items(namespace).into_iter().map(Line::Subnamespace);
    let mut lines: Vec<Line> = governed.chain(managers).chain(of_trees).collect();
    for line in &mut lines {
        match line {
            Line::Governed(item) => trees.add_returns(item),
            Line::Manager(item) => trees.add_returns(item),
            Line::Subnamespace(_) => {}
        }
    }
    lines.sort_by(|a, b| a.namespace().cmp(b.namespace()));
    lines
}

/// Adds to what deletes a namespace what is lost with it.
async fn add_losses(lines: &mut [Line], connection: &ConnectionArgs, io: &mut Io<'_>) -> Result<()> {
    let deleted = lines.iter().filter(|line| line.deletes()).map(|line| line.namespace().to_owned());
    let deleted: BTreeSet<String> = deleted.collect();
    if deleted.is_empty() {
        return Ok(());
    }
    let client = connect(connection, io).await?.client;
    let reading = Box::pin(losses::of_namespaces(&client, &deleted));
    let found = with_progress("reading what is lost with namespaces", io, reading).await?;
    for line in lines.iter_mut().filter(|line| line.deletes()) {
        let losses = found.get(line.namespace()).cloned();
        match line {
            Line::Governed(item) => item.losses = losses,
            Line::Manager(item) => item.losses = losses,
            Line::Subnamespace(item) => item.losses = losses,
        }
    }
    Ok(())
}

impl Line {
    fn deletes(&self) -> bool {
        match self {
            Self::Governed(item) => item.deletes(),
            Self::Manager(item) => item.deletes(),
            Self::Subnamespace(item) => item.deletes(),
        }
    }

    fn namespace(&self) -> &str {
        match self {
            Self::Governed(item) => &item.namespace,
            Self::Manager(item) => &item.namespace,
            Self::Subnamespace(item) => &item.namespace,
        }
    }

    fn row(&self, wide: bool, at: Timestamp) -> Vec<Cell> {
        let action = |action: &Option<String>| action.clone().unwrap_or_else(|| "-".to_owned());
        match self {
            Self::Governed(item) => {
                let manager =
                    if item.manager.is_empty() { "-".to_owned() } else { format!("cnsman/{}", item.manager) };
                let would = if item.observes() && item.action.is_some() { "would " } else { "" };
                let action = format!("{would}{}", action(&item.action));
                item.row((manager, print::namespace_phase(item.phase), action), wide, at)
            }
            Self::Manager(item) => {
                item.row((item.manager.clone(), Cell::phase(item.phase), action(&item.action)), wide, at)
            }
            Self::Subnamespace(item) => {
                let phase = item.phase.map_or("-", SubnamespacePhase::as_str);
                let phase = Cell::styled(phase, print::WARNING);
                item.row((format!("sns/{}", item.manager), phase, action(&item.action)), wide, at)
            }
        }
    }
}

fn write(output: OutputArgs, report: &Report, io: &mut Io<'_>) -> Result<()> {
    match output.output {
        OutputFormat::Json => return print::json(io.out, report),
        OutputFormat::Yaml => return print::yaml(io.out, report),
        OutputFormat::Name => {
            for item in &report.items {
                let name = match item {
                    Line::Governed(_) => namespace_record::resource_name(),
                    Line::Manager(item) => resource_name(&item.manager),
                    Line::Subnamespace(item) => format!("subnamespace.coppice.dev/{}", item.manager),
                };
                writeln!(io.screen(), "{name}")?;
            }
            return Ok(());
        }
        OutputFormat::Table | OutputFormat::Wide => {}
    }
    if report.items.is_empty() {
        return Ok(());
    }
    let wide = output.output == OutputFormat::Wide;
    let headers: &[&'static str] = if wide {
        &["NAMESPACE", "MANAGER", "PHASE", "ACTION", "DUE", "POLICY", "REASON", "NEXT CHECK", "WHY"]
    } else {
        &["NAMESPACE", "MANAGER", "PHASE", "ACTION", "DUE", "WHY"]
    };
    let mut table = Table::new(headers);
    report.items.iter().for_each(|line| table.row(line.row(wide, report.at)));
    table.write(&mut io.screen(), !output.no_headers)
}
