//! What users ask for a namespace as a whole: the spec of its record, `ManagedNamespace/coppice`.

use anyhow::{Result, bail};
use coppice_api::managed_namespace::RecordHold;
use coppice_api::names::MANAGED_NAMESPACE_NAME;
use coppice_lifecycle::cluster::selection::contest;
use coppice_lifecycle::cluster::{held, hold_end};
use coppice_lifecycle::facts::NamespaceFacts;
use jiff::Timestamp;
use kube::Client;

use crate::connect::{code, failed};
use crate::facts::{self, Manager, NamespaceRecord};
use crate::write::{Edit, MAX_ATTEMPTS, create_record, merge, overtaken, user_name};
use crate::{Io, live, print, with_progress};

/// What the record of a namespace is called in messages.
pub(crate) fn record_of(namespace: &str) -> String {
    format!("ManagedNamespace {namespace}/{MANAGED_NAMESPACE_NAME}")
}

/// How kubectl names a record.
pub(crate) fn resource_name() -> String {
    format!("managednamespace.{}/{MANAGED_NAMESPACE_NAME}", coppice_api::names::GROUP)
}

/// The name by which the API server knows this user.
pub(crate) async fn requester(client: &Client, io: &mut Io<'_>) -> Result<String> {
    with_progress("asking who you are", io, user_name(client, "`by` in the record")).await?
}

/// Computes a change of what users ask for a namespace and writes it into its record, which is created if there is none;
/// again if somebody else was faster. Gives back what was computed last, and remarks for the user.
pub(crate) async fn change<T>(
    client: &Client,
    namespace: &str,
    command: (&str, bool),
    compute: impl Fn(Option<&NamespaceRecord>) -> Result<Edit<T>>,
    io: &mut Io<'_>,
) -> Result<(T, Vec<String>)> {
    let changing = Box::pin(change_record(client, namespace, command, compute));
    with_progress("changing the record of the namespace", io, changing).await?
}

async fn change_record<T>(
    client: &Client,
    namespace: &str,
    (command, dry_run): (&str, bool),
    compute: impl Fn(Option<&NamespaceRecord>) -> Result<Edit<T>>,
) -> Result<(T, Vec<String>)> {
    let known = living(client, namespace).await?;
    let managers = live::managers(client, Some(namespace), None).await.unwrap_or_default();
    for _ in 0..MAX_ATTEMPTS {
        let record = live::record(client, namespace).await?;
        let mut notes = match &record {
            Some(_) => Vec::new(),
            None => vec![without_record(client, namespace, known.as_ref(), &managers, command).await?],
        };
        if let Some(record) = &record {
            if record.meta.deletion_timestamp.is_some() {
                bail!("{} is being deleted itself: try again in a moment", record_of(namespace));
            }
            if record.status.manager.is_none() && record.status.next.is_some() {
                notes.push(NOT_GOVERNED.to_owned());
            }
            notes.extend(independent(namespace, &managers, command));
        }
        let (spec, result) = match compute(record.as_ref())? {
            Edit::Patch(spec, result) => (spec, result),
            Edit::Nothing(result) => return Ok((result, Vec::new())),
        };
        let written = match &record {
            Some(record) => {
                let api = live::records_api(client, Some(namespace));
                merge(&api, &record_of(namespace), &record.meta, &spec, dry_run).await?
            }
            None => create_record(client, namespace, &spec, dry_run).await?,
        };
        if written {
            return Ok((result, notes));
        }
    }
    Err(overtaken(&record_of(namespace)))
}

/// What to say of a hold until this instant, if less of it counts: as its record says, which it may not do yet.
pub(crate) fn hold_limit(
    record: Option<&NamespaceRecord>,
    until: Timestamp,
    now: Timestamp,
) -> Option<String> {
    let status = &record?.status;
    let max = status.limits?.max_hold?;
    let hold = RecordHold { until, reason: None, by: None };
    let so_far = held(status.held.as_ref(), Some(&hold), now);
    let ends = hold_end(status.limits.as_ref(), so_far.as_ref(), &hold);
    if max.is_zero() {
        return Some("it does not count: its ClusterNamespaceManager permits no hold".to_owned());
    }
    (ends < until).then(|| {
        let since = so_far.map(|held| held.since).filter(|since| *since < now);
        let since = since.map_or_else(String::new, |since| {
            format!(", from {} on, when the first of its holds began", print::instant_from(since, now))
        });
        format!(
            "it counts until {} only: its ClusterNamespaceManager permits {max}{since}",
            print::instant_from(ends, now)
        )
    })
}

/// The same of an extension.
pub(crate) fn extension_limit(
    record: Option<&NamespaceRecord>,
    until: Timestamp,
    now: Timestamp,
) -> Option<String> {
    let latest = record?.status.limits?.latest_end.filter(|latest| *latest < until)?;
    Some(format!(
        "it counts until {} only: its ClusterNamespaceManager permits no later end",
        print::instant_from(latest, now)
    ))
}

/// Prints the remarks on a change.
pub(crate) fn print_notes(notes: &[String], io: &mut Io<'_>) -> Result<()> {
    notes.iter().try_for_each(|note| Ok(io.print_note(&format!("note: {note}"))?))
}

const NOT_GOVERNED: &str =
    "no ClusterNamespaceManager governs the namespace at present: this counts as soon as one does";

/// The namespace, which must exist and stay; none if this user may not read it.
async fn living(client: &Client, name: &str) -> Result<Option<NamespaceFacts>> {
    let namespace = match live::namespace(client, name).await {
        Ok(Some(namespace)) => facts::namespace(namespace, Timestamp::MAX),
        Ok(None) => {
            bail!("namespace {name} does not exist; `coppice explain {name}` says whether Coppice deleted it")
        }
        Err(error) if code(&error) == Some(403) => return Ok(None),
        Err(error) => return Err(failed(&format!("namespace {name} cannot be read"), &error)),
    };
    if namespace.terminating {
        bail!("namespace {name} is being deleted already, which nothing stops");
    }
    Ok(Some(namespace))
}

/// Whether a namespace without a record is one of a cluster manager: what to say about the record that is made for it.
async fn without_record(
    client: &Client,
    namespace: &str,
    known: Option<&NamespaceFacts>,
    managers: &[Manager],
    command: &str,
) -> Result<String> {
    let created = format!("{} did not exist and is created by this", record_of(namespace));
    let governed = match (live::cluster_managers(client).await, known) {
        (Ok(all), Some(known)) => match contest(all.iter().map(|m| m.facts()), known) {
            Ok(contest) => Ok(contest.winner.map(|winner| winner.name.to_owned())),
            Err(unknown) => Err(unknown.to_string()),
        },
        (Ok(_), None) => Err("the namespace cannot be read".to_owned()),
        (Err(error), _) => Err(format!("{:#}", failed("cluster managers cannot be listed", &error))),
    };
    if let Ok(Some(manager)) = &governed {
        return Ok(format!("{created}; ClusterNamespaceManager {manager} governs the namespace"));
    }
    if let Some(first) = managers.first() {
        let names: Vec<&str> = managers.iter().map(Manager::name).collect();
        let why = match governed {
            Err(why) => format!("whether a ClusterNamespaceManager selects it is not known ({why})"),
            Ok(_) => "no ClusterNamespaceManager selects it".to_owned(),
        };
        bail!(
            "namespace {namespace} has no record, and {why}: name its NamespaceManager ({}), such as `coppice {command} \
             {namespace}/{}`",
            names.join(", "),
            first.name()
        );
    }
    Ok(match governed {
        Err(why) => {
            format!("{created}; it counts if a ClusterNamespaceManager selects the namespace ({why})")
        }
        Ok(_) => format!("{created}; {NOT_GOVERNED}"),
    })
}

/// What the record does not change.
fn independent(namespace: &str, managers: &[Manager], command: &str) -> Option<String> {
    let first = managers.first()?;
    let names: Vec<&str> = managers.iter().map(Manager::name).collect();
    Some(format!(
        "NamespaceManagers in it decide for themselves ({}): `coppice {command} {namespace}/{}` is for one of them",
        names.join(", "),
        first.name()
    ))
}
