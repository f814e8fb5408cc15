//! `coppice plan`: what will happen, when and why.

use anyhow::Result;
use clap::Args;
use coppice_api::Reason;
use coppice_api::manager::Phase;
use jiff::Timestamp;
use serde::Serialize;

use crate::args::{ConnectionArgs, Format, OutputArgs, SourceArgs};
use crate::connect::connect;
use crate::facts::Manager;
use crate::lifecycle::{self, ResolvedPlan, Wanted, resolved_plan};
use crate::print::{self, Cell, Table};
use crate::write::resource_name;
use crate::{Exit, Io};

/// Show what will happen to namespaces, when and why
///
/// Decides as the operator does, by the same code, and does nothing. From the cluster, or with -f from YAML alone.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  coppice plan -A                                what will happen in all namespaces
  coppice plan -n team-a --at +24h               as it would be tomorrow
  coppice plan -f manager.yaml                   before it is applied, without a cluster
  kubectl get ns,pods,jobs,nsman,copcfg -A -o yaml | coppice plan -f -

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

/// What will happen to one manager.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Item {
    pub(crate) namespace: String,
    pub(crate) manager: String,
    pub(crate) phase: Option<Phase>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) action: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) policy: Option<String>,
    /// Whether the action is taken at once.
    pub(crate) now: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) due: Option<Timestamp>,
    /// When time alone can change the plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_check: Option<Timestamp>,
    pub(crate) reason: String,
    pub(crate) message: String,
    /// Whether it relies on something that could not be known.
    pub(crate) unknown: bool,
}

#[derive(Serialize)]
struct Report {
    at: Timestamp,
    items: Vec<Item>,
}

impl Item {
    /// What a forecast says of a manager.
    pub(crate) fn new(manager: &Manager, resolved_plan: &ResolvedPlan, at: Timestamp) -> Self {
        let plan = &resolved_plan.plan;
        let mut item = Self {
            namespace: manager.namespace().to_owned(),
            manager: manager.name().to_owned(),
            phase: plan.status.phase,
            action: None,
            policy: None,
            now: plan.step.is_some(),
            due: None,
            next_check: plan.next_check.filter(|next_check| *next_check > at),
            reason: String::new(),
            message: String::new(),
            unknown: resolved_plan.is_unknown(),
        };
        if manager.meta.deletion_timestamp.is_some() {
            item.phase = Some(Phase::Terminating);
            item.reason = Reason::NamespaceTerminating.to_string();
            "the manager itself is being deleted: it does nothing any more".clone_into(&mut item.message);
        } else if let Some(next) = &plan.status.next {
            item.action.clone_from(&next.action);
            item.policy.clone_from(&next.policy);
            item.due = next.due;
            item.reason.clone_from(&next.reason);
            item.message.clone_from(&next.message);
        }
        item
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
    let wanted = Wanted { namespace: namespace.as_deref(), name: None };
    let (cluster_snapshot, at) = lifecycle::read(&args.source, wanted, connection, io).await?;
    let items: Vec<Item> = cluster_snapshot
        .managers
        .iter()
        .map(|m| Item::new(m, &resolved_plan(&cluster_snapshot, m, at), at))
        .collect();
    let attention = items.iter().any(|i| i.unknown || i.phase == Some(Phase::Refused));
    if items.is_empty() {
        let place = namespace.map_or_else(String::new, |n| format!(" in namespace {n}"));
        io.print_note(&format!("No NamespaceManagers found{place}."))?;
    }
    write(args.output, &Report { at, items }, io)?;
    Ok(if attention { Exit::Attention } else { Exit::Ok })
}

fn write(output: OutputArgs, report: &Report, io: &mut Io<'_>) -> Result<()> {
    match output.output {
        Format::Json => return print::json(io.out, report),
        Format::Yaml => return print::yaml(io.out, report),
        Format::Name => {
            for item in &report.items {
                writeln!(io.screen(), "{}", resource_name(&item.manager))?;
            }
            return Ok(());
        }
        Format::Table | Format::Wide => {}
    }
    if report.items.is_empty() {
        return Ok(());
    }
    let wide = output.output == Format::Wide;
    let headers: &[&'static str] = if wide {
        &["NAMESPACE", "MANAGER", "PHASE", "ACTION", "DUE", "POLICY", "REASON", "NEXT CHECK", "WHY"]
    } else {
        &["NAMESPACE", "MANAGER", "PHASE", "ACTION", "DUE", "WHY"]
    };
    let mut table = Table::new(headers);
    let text = |text: &Option<String>| Cell::from(text.as_deref().unwrap_or("-"));
    for item in &report.items {
        let due = item.when(report.at);
        let due = if item.now { Cell::styled(due, print::ERROR) } else { due.into() };
        let mut cells = vec![
            item.namespace.as_str().into(),
            item.manager.as_str().into(),
            Cell::phase(item.phase),
            text(&item.action),
            due,
        ];
        if wide {
            let next_check = print::instant_or_dash(item.next_check, report.at);
            cells.extend([text(&item.policy), item.reason.as_str().into(), next_check.into()]);
        }
        cells.push(Cell::from(item.message.as_str()));
        table.row(cells);
    }
    table.write(&mut io.screen(), !output.no_headers)
}
