//! The entries of `namespaces` of both controllers, with that system's defaults filled in.

use coppice_quantity::Duration;
use serde_json::Value;

use super::duration;
use super::input::ControllerSettings;
use super::matcher::Matcher;
use super::problems::{Noted, Problems, Reader};
use crate::import::Remarks;
use crate::import::fields::Fields;

const SETTLING: Duration = Duration::from_secs(300);
/// Of the model; the entry that the chart has by default says two minutes.
const GRACE: Duration = Duration::from_secs(60);
/// How often that system looks at a namespace, where nothing else is said or what is said is no interval.
const INTERVAL: Duration = Duration::from_secs(60);

/// When namespaces get which status.
#[derive(Debug)]
pub(super) struct CollectEntry {
    /// The path to it, for messages.
    pub(super) path: String,
    pub(super) matcher: Matcher,
    pub(super) ttl: Option<Duration>,
    pub(super) settling: Duration,
    pub(super) grace: Duration,
    pub(super) cancelled: bool,
    pub(super) superseded: bool,
}

/// The settings of the collect controller.
#[derive(Debug, Default)]
pub(super) struct Collect {
    pub(super) entries: Vec<CollectEntry>,
    /// Whether alerts say what fails.
    pub(super) prometheus: bool,
    /// The alerts that say nothing.
    pub(super) ignored_alerts: Vec<String>,
    /// Whether pipelines are looked up.
    pub(super) gitlab: bool,
}

/// What is done for one status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) delete: bool,
    pub(super) notify_on_delete: bool,
    pub(super) notify_on_status: bool,
}

const fn block(delete: bool, notify_on_delete: bool, notify_on_status: bool) -> Block {
    Block { delete, notify_on_delete, notify_on_status }
}

/// What each field of a block is that is written, and does not have it.
const PARTIAL: Block = block(true, true, false);
const DELETED: Block = block(true, true, false);
const NOTIFIED: Block = block(false, false, true);
const DELETED_AND_NOTIFIED: Block = block(true, false, true);
const ALL: Block = block(true, true, true);

/// What is done for each status.
#[derive(Debug)]
pub(super) struct ActionEntry {
    pub(super) path: String,
    pub(super) matcher: Matcher,
    pub(super) stale: Block,
    pub(super) failed: Block,
    pub(super) failing: Block,
    pub(super) unstable: Block,
    pub(super) cancelled: Block,
    pub(super) superseded: Block,
    /// By status, what a block that is written in part means there, where that is not the default of the status.
    pub(super) partial: Vec<(&'static str, String)>,
}

/// The settings of the action controller.
#[derive(Debug, Default)]
pub(super) struct ActionSettings {
    pub(super) entries: Vec<ActionEntry>,
    /// Whether there is a token to notify with.
    pub(super) token: bool,
}

/// Reads the settings of the collect controller.
pub(super) fn collect(
    config: &ControllerSettings,
    values: bool,
    remarks: &mut Remarks,
    problems: &mut Problems,
) -> Collect {
    let mut reader = Reader { place: &config.place, remarks, problems };
    let Some((fields, list)) = namespaces(config, values, &mut reader) else { return Collect::default() };
    let mut entries = Vec::new();
    for (index, entry) in list.iter().enumerate() {
        let path = format!("{}[{index}]", fields.path_of("namespaces"));
        if let Some(entry) = reader.keep(Fields::of(entry, &path)) {
            entries.extend(collect_entry(&entry, path, index, &mut reader));
        }
    }
    let mut read = Collect { entries, prometheus: true, ..Collect::default() };
    if let Some(prometheus) = reader.keep(fields.below("prometheus")) {
        let list = reader.keep(prometheus.list("whitelisted_alerts")).flatten().unwrap_or_default();
        let names = list.iter().map(|alert| {
            let wrong = "must be a list of names of alerts, which are strings";
            alert.as_str().map(str::to_owned).ok_or_else(|| prometheus.wrong("whitelisted_alerts", wrong))
        });
        read.ignored_alerts = reader.keep(names.collect()).unwrap_or_default();
        read.prometheus = reader.keep(prometheus.boolean("enabled")).flatten().unwrap_or(true);
        if read.prometheus && prometheus.is_null("whitelisted_alerts") {
            reader.remarks.differs(format!(
                "{}: null makes the check of every namespace with an alert fail there, so that none is ever failing or failed; here they \
                 are: compare before you enforce a policy for Failed",
                prometheus.path_of("whitelisted_alerts")
            ));
        }
    }
    if let Some(gitlab) = reader.keep(fields.below("gitlab")) {
        read.gitlab = reader.keep(gitlab.boolean("enabled")).flatten().unwrap_or(false);
    }
    read
}

/// Reads the settings of the action controller.
pub(super) fn action(
    config: &ControllerSettings,
    values: bool,
    remarks: &mut Remarks,
    problems: &mut Problems,
) -> ActionSettings {
    let mut reader = Reader { place: &config.place, remarks, problems };
    let Some((fields, list)) = namespaces(config, values, &mut reader) else {
        return ActionSettings::default();
    };
    let mut entries = Vec::new();
    for (index, entry) in list.iter().enumerate() {
        let path = format!("{}[{index}]", fields.path_of("namespaces"));
        if let Some(entry) = reader.keep(Fields::of(entry, &path)) {
            entries.push(action_entry(&entry, path, index, &mut reader));
        }
    }
    let notifier = reader.keep(fields.below("notifier"));
    let token = notifier.and_then(|notifier| reader.keep(notifier.text("token")).flatten());
    ActionSettings { entries, token: token.is_some_and(|token| !token.is_empty()) }
}

/// The entries of a controller. Without them nothing is known: what the chart has instead differs between its versions.
fn namespaces<'a>(
    config: &'a ControllerSettings,
    values: bool,
    reader: &mut Reader<'_>,
) -> Option<(Fields<'a>, &'a [Value])> {
    let ControllerSettings { path, value, .. } = config;
    let missing = if values {
        "missing, so that what the chart has by default applies, which differs between its versions: import what `helm get values \
         RELEASE --all -o yaml` prints"
    } else {
        "missing: that system does not start without it"
    };
    let empty = Value::Object(serde_json::Map::new());
    if value.is_null() {
        let fields = Fields::of(&empty, path);
        return reader
            .keep::<()>(fields.and_then(|fields| Err(fields.wrong("namespaces", missing))))
            .and(None);
    }
    let fields = reader.keep(Fields::of(value, path))?;
    match reader.keep(fields.list("namespaces"))? {
        Some(list) => Some((fields, list)),
        None => reader.keep::<()>(Err(fields.wrong("namespaces", missing))).and(None),
    }
}

/// None if something is wrong with it.
fn collect_entry(
    fields: &Fields<'_>,
    path: String,
    index: usize,
    reader: &mut Reader<'_>,
) -> Option<CollectEntry> {
    let matcher = Matcher::read(fields, index, reader);
    let ttl = ttl(fields, reader);
    let settling = required_duration(fields, "settling_period", SETTLING, reader);
    let grace = required_duration(fields, "grace_period", GRACE, reader);
    let checks = reader.keep(fields.below("checks"));
    let (mut cancelled, mut superseded) = (None, None);
    if let Some(checks) = checks {
        cancelled = reader.keep(checks.boolean("cancelled"));
        superseded = reader.keep(checks.boolean("superseded"));
    }
    let interval = interval(fields, reader)?;
    let (settling, grace) = by_looks((settling?, grace?), interval, &path, reader.remarks);
    Some(CollectEntry {
        matcher,
        ttl: ttl.ok()?,
        settling,
        grace,
        cancelled: cancelled?.unwrap_or(false),
        superseded: superseded?.unwrap_or(false),
        path,
    })
}

fn ttl(fields: &Fields<'_>, reader: &mut Reader<'_>) -> Result<Option<Duration>, Noted> {
    let ttl = duration_of(fields, "ttl", reader)?;
    if ttl.is_some_and(Duration::is_zero) {
        let wrong = "zero makes every namespace stale at once, and that system deletes it: write how long they live, or null for no limit";
        return reader.keep(Err(fields.wrong("ttl", wrong))).ok_or(Noted);
    }
    Ok(ttl)
}

/// How often that system looks at a namespace.
fn interval(fields: &Fields<'_>, reader: &mut Reader<'_>) -> Option<Duration> {
    let actions = reader.keep(fields.below("actions"))?;
    let check = reader.keep(actions.below("check-namespace"))?;
    let Some(schedule) = reader.keep(check.text("schedule"))? else { return Some(INTERVAL) };
    match duration::parse(&schedule) {
        Ok((interval, _)) if !interval.is_zero() => Some(interval),
        Ok(_) | Err(_) => {
            reader.remarks.note(format!(
                "{}: {schedule:?} is no interval: {INTERVAL} is taken, as there",
                check.path_of("schedule")
            ));
            Some(INTERVAL)
        }
    }
}

/// The periods as they are there, where a namespace goes one step at each look, once its period is over.
fn by_looks(
    (settling, grace): (Duration, Duration),
    interval: Duration,
    path: &str,
    remarks: &mut Remarks,
) -> (Duration, Duration) {
    // Below a minute it makes no difference that anybody sees.
    let rounded = |period: Duration| {
        let (period, interval) = (period.as_secs(), interval.as_secs());
        let looks = if interval > INTERVAL.as_secs() { period.div_ceil(interval) * interval } else { period };
        Duration::from_secs(looks.max(interval))
    };
    let periods = (rounded(settling), rounded(grace));
    let of = |name: &str, old: Duration, new: Duration| {
        (old != new).then(|| format!("{name} {old} becomes {new}"))
    };
    let changed: Vec<String> =
        [of("settling_period", settling, periods.0), of("grace_period", grace, periods.1)]
            .into_iter()
            .flatten()
            .collect();
    if !changed.is_empty() {
        remarks.note(format!(
            "{path}: {}, since that system looks every {interval} (actions.check-namespace.schedule) and goes one step at each look",
            changed.join(" and ")
        ));
    }
    if interval > INTERVAL {
        remarks.differs(format!(
            "{path}.actions.check-namespace.schedule: that system looks every {interval}, and Coppice watches: what fails between two looks \
             is not seen there, and is here; and a ttl that is over is noticed up to {interval} later there"
        ));
    }
    periods
}

fn duration_of(fields: &Fields<'_>, key: &str, reader: &mut Reader<'_>) -> Result<Option<Duration>, Noted> {
    let text = match fields.get(key) {
        None => return Ok(None),
        Some(Value::String(text)) => text.clone(),
        // A number has no unit; anything else is no duration either.
        Some(other) => other.to_string(),
    };
    let read = duration::parse(&text).map_err(|why| fields.wrong(key, &why.to_string()));
    let (duration, rounded) = reader.keep(read).ok_or(Noted)?;
    if rounded {
        let path = fields.path_of(key);
        reader.remarks.note(format!("{path}: {text:?} becomes {duration}, in whole seconds"));
    }
    Ok(Some(duration))
}

fn required_duration(
    fields: &Fields<'_>,
    key: &str,
    default: Duration,
    reader: &mut Reader<'_>,
) -> Option<Duration> {
    if fields.is_null(key) {
        let wrong = format!(
            "null makes every check of that system fail: write a duration, or take it out for {default}"
        );
        return reader.keep(Err(fields.wrong(key, &wrong)));
    }
    duration_of(fields, key, reader).ok().map(|written| written.unwrap_or(default))
}

fn action_entry(fields: &Fields<'_>, path: String, index: usize, reader: &mut Reader<'_>) -> ActionEntry {
    let matcher = Matcher::read(fields, index, reader);
    let mut partial = Vec::new();
    let mut of = |status: &'static str, default: Block, counts: Block| {
        let (block, surprising) = block_of(fields, status, default, counts, reader);
        if !surprising.is_empty() {
            partial.push((status, surprising.join(", ")));
        }
        block
    };
    ActionEntry {
        stale: of("stale", DELETED, DELETED),
        failed: of("failed", DELETED, DELETED),
        failing: of("failing", NOTIFIED, NOTIFIED),
        unstable: of("unstable", NOTIFIED, NOTIFIED),
        cancelled: of("cancelled", DELETED_AND_NOTIFIED, ALL),
        superseded: of("superseded", DELETED_AND_NOTIFIED, ALL),
        matcher,
        path,
        partial,
    }
}

/// What is done for a status. A block that is written has defaults of its own for what it leaves out, and not those of its status:
/// which, is returned, too. `counts` says what of it that system ever looks at.
fn block_of(
    fields: &Fields<'_>,
    status: &str,
    default: Block,
    counts: Block,
    reader: &mut Reader<'_>,
) -> (Block, Vec<String>) {
    let (mut surprising, mut without_effect) = (Vec::new(), Vec::new());
    let written = reader.keep(fields.below(status)).filter(|_| fields.get(status).is_some());
    let Some(written) = written else { return (default, surprising) };
    let mut of = |key: &str, partial: bool, meant: bool, counts: bool| -> bool {
        let value = reader.keep(written.boolean(key)).flatten();
        match value {
            None if counts && partial != meant => surprising.push(format!("{key}: {partial}")),
            Some(true) if !counts => without_effect.push(key.to_owned()),
            _ => {}
        }
        counts && value.unwrap_or(partial)
    };
    let block = Block {
        delete: of("delete", PARTIAL.delete, default.delete, counts.delete),
        notify_on_delete: of(
            "notify_on_delete",
            PARTIAL.notify_on_delete,
            default.notify_on_delete,
            counts.notify_on_delete,
        ),
        notify_on_status: of(
            "notify_on_status",
            PARTIAL.notify_on_status,
            default.notify_on_status,
            counts.notify_on_status,
        ),
    };
    if !without_effect.is_empty() {
        let path = fields.path_of(status);
        let all = without_effect.join(", ");
        reader.remarks.note(format!("{path}: {all} never had an effect there, and is left out"));
    }
    (block, surprising)
}
