//! What becomes of Subnamespaces that are being deleted, of what is below them, and of what is below a namespace that goes. By the
//! functions by which the program of trees decides.

use std::collections::BTreeMap;

use coppice_api::names::LABEL_SUBNAMESPACE;
use coppice_api::steps::Action;
use coppice_api::{Reason, SubnamespacePhase};
use coppice_hierarchy::{
    CascadeStep, Descendant, Resources, bottom_up, consent, describe, next_below, order, share,
};
use coppice_lifecycle::circumstances::Circumstances;
use coppice_lifecycle::facts::NamespaceFacts;
use coppice_lifecycle::governor::Denied;
use coppice_quantity::time::ServerTime;
use jiff::Timestamp;

use super::PlannedItem;
use crate::facts::has_unknown_uid;
use crate::lifecycle::LifecycleSnapshot;
use crate::trees::Subnamespace;

/// No path has more names: a tree is at most 50 deep.
const MAX_PATH: usize = 64;

/// What becomes of a namespace with its Subnamespace.
pub(super) type TreeItem = PlannedItem<SubnamespacePhase>;

/// The Subnamespaces of a snapshot, by where they are.
pub(super) struct Trees<'a> {
    snapshot: &'a LifecycleSnapshot,
    at: Timestamp,
    /// By the namespace that they are in.
    children: BTreeMap<&'a str, Vec<&'a Subnamespace>>,
    /// By the namespace that they created.
    creators: BTreeMap<&'a str, &'a Subnamespace>,
}

/// What comes next, and why.
struct Next {
    action: Option<&'static str>,
    now: bool,
    due: Option<Timestamp>,
    check_at: Option<Timestamp>,
    before: Vec<String>,
    reason: Reason,
    message: String,
    /// Whether it relies on something that could not be known.
    unknown: bool,
}

/// What goes with one that is being deleted with all below it.
struct Cascade<'a> {
    /// Namespace and name of those that go, one after another.
    order: Vec<(&'a str, &'a str)>,
    /// The one that is deleted now.
    now: Option<(&'a str, &'a str)>,
}

impl Next {
    /// It waits for this.
    fn waits(reason: Reason, message: impl Into<String>) -> Self {
        let message = message.into();
        let (before, unknown) = (Vec::new(), false);
        Self { action: None, now: false, due: None, check_at: None, before, reason, message, unknown }
    }

    /// It cannot be said.
    fn unknown(reason: Reason, message: impl Into<String>) -> Self {
        Self { unknown: true, ..Self::waits(reason, message) }
    }

    /// It is deleted, though not at once.
    fn deleted(reason: Reason, message: impl Into<String>) -> Self {
        Self { action: Some(Action::Delete.as_str()), ..Self::waits(reason, message) }
    }

    /// Something stops all deletions of its kind for now.
    fn denied(denied: Denied) -> Self {
        let due = denied.date();
        let next = Self::deleted(denied.reason, denied.message);
        Self { due, check_at: denied.retry_at, ..next }
    }
}

impl<'a> Trees<'a> {
    pub(super) fn new(snapshot: &'a LifecycleSnapshot, at: Timestamp) -> Self {
        let mut objects: Vec<&Subnamespace> = snapshot.trees.subnamespaces.iter().collect();
        objects.sort_by(|a, b| (a.namespace(), a.name()).cmp(&(b.namespace(), b.name())));
        let mut trees = Self { snapshot, at, children: BTreeMap::new(), creators: BTreeMap::new() };
        for object in objects {
            trees.children.entry(object.namespace()).or_default().push(object);
            if trees.own(object).is_some() {
                trees.creators.insert(object.name(), object);
            }
        }
        trees
    }

    /// What becomes of those of which something does, in a namespace or of it; in all of them if none is named.
    pub(super) fn items(&self, namespace: Option<&str>) -> Vec<TreeItem> {
        let mut cascades = BTreeMap::new();
        let mut items = Vec::new();
        for object in self.children.values().flatten().copied() {
            if namespace.is_none_or(|name| name == object.namespace() || name == object.name()) {
                items.extend(self.item(object, &mut cascades));
            }
        }
        items
    }

    /// Adds what returns with a namespace that a policy deletes.
    pub(super) fn add_returns<P>(&self, item: &mut PlannedItem<P>) {
        let creator = self.creators.get(&*item.namespace).filter(|_| item.deletes());
        if let Some(object) = creator {
            item.parent = Some(object.namespace().to_owned());
            item.returns = allotment(object);
        }
    }

    fn item(
        &self,
        object: &'a Subnamespace,
        cascades: &mut BTreeMap<(&'a str, &'a str), Cascade<'a>>,
    ) -> Option<TreeItem> {
        let next = self.next(object, cascades)?;
        let leaves = is_terminating(object) || self.own(object).is_some_and(|own| own.terminating);
        let deletes = next.action == Some(Action::Delete.as_str());
        Some(PlannedItem {
            namespace: object.name().to_owned(),
            manager: object.name().to_owned(),
            manager_kind: "Subnamespace",
            phase: if leaves { Some(SubnamespacePhase::Deleting) } else { object.status.phase },
            action: next.action.map(str::to_owned),
            policy: None,
            now: next.now,
            due: next.due,
            expires_at: None,
            next_check: next.check_at.filter(|check_at| *check_at > self.at),
            reason: next.reason.to_string(),
            message: next.message,
            unknown: next.unknown || object.spec.is_err(),
            losses: None,
            parent: Some(object.namespace().to_owned()),
            before: next.before,
            returns: allotment(object).filter(|_| deletes),
        })
    }

    fn next(
        &self,
        object: &'a Subnamespace,
        cascades: &mut BTreeMap<(&'a str, &'a str), Cascade<'a>>,
    ) -> Option<Next> {
        if object.status.phase == Some(SubnamespacePhase::Detached) {
            return None;
        }
        if let Some(error) = &object.status_error {
            let message = format!("{error}: what becomes of namespace {} is not known", object.name());
            return Some(Next::unknown(Reason::Undecodable, message));
        }
        let next = self.as_far_as_read(object, cascades)?;
        let Some(unread) = self.unread(object, next.reason) else { return Some(next) };
        let message = format!(
            "namespace {unread} could not be read: whether it is there, is being deleted or is protected is not known; if it is there and \
             neither of these: {}",
            next.message
        );
        Some(Next::unknown(Reason::NotSynced, message))
    }

    /// The same, where namespaces that could not be read are taken as there.
    fn as_far_as_read(
        &self,
        object: &'a Subnamespace,
        cascades: &mut BTreeMap<(&'a str, &'a str), Cascade<'a>>,
    ) -> Option<Next> {
        let (parent, name) = (object.namespace(), object.name());
        let Some(own) = self.own(object) else {
            let message = format!("there is no namespace {name} any more: the Subnamespace goes");
            return is_terminating(object).then(|| Next::waits(Reason::NamespaceTerminating, message));
        };
        if own.terminating {
            let message =
                format!("namespace {name} is being deleted: when it is gone, its Subnamespace goes");
            return Some(Next { now: true, ..Next::deleted(Reason::NamespaceTerminating, message) });
        }
        if self.namespace(parent).is_none_or(|parent| parent.terminating) {
            return Some(self.moves(object));
        }
        if is_terminating(object) {
            return Some(self.ends(object, own));
        }
        self.goes_with_one_above(object, cascades)
    }

    /// A namespace that could not be read, on which it depends what becomes of this one.
    fn unread(&self, object: &'a Subnamespace, reason: Reason) -> Option<&'a str> {
        let unread = &self.snapshot.trees.unread;
        if unread.is_empty() {
            return None;
        }
        let mut names = vec![object.name(), object.namespace()];
        match reason {
            Reason::MovedToAncestor => {
                names.extend(self.creators_above(object).into_iter().map(Subnamespace::namespace));
            }
            Reason::CascadingDeletion => {
                names.extend(self.below(object.name()).into_iter().map(Subnamespace::name));
            }
            _ => {}
        }
        names.into_iter().find(|name| unread.contains(*name))
    }

    /// The namespace above goes, and nobody has asked for the deletion of this one.
    fn moves(&self, object: &Subnamespace) -> Next {
        let (parent, name) = (object.namespace(), object.name());
        let is_there = |name: &&str| self.namespace(name).is_some_and(|namespace| !namespace.terminating);
        let stays = self.creators_above(object).into_iter().map(Subnamespace::namespace).find(is_there);
        match stays {
            Some(above) => {
                let message = format!(
                    "namespace {parent} above it is being deleted: namespace {name} moves with its quota and all below it to namespace \
                     {above}, the nearest above that stays"
                );
                Next { action: Some("move"), now: true, ..Next::waits(Reason::MovedToAncestor, message) }
            }
            None => Next::waits(
                Reason::NamespaceTerminating,
                format!(
                    "namespace {parent} above it is being deleted, and none above that stays: namespace {name} stays until somebody deletes it"
                ),
            ),
        }
    }

    /// The Subnamespace is being deleted.
    fn ends(&self, object: &Subnamespace, own: &NamespaceFacts) -> Next {
        let (parent, name) = (object.namespace(), object.name());
        let all = if cascade_until(object).is_some() { self.below(name) } else { Vec::new() };
        if let Some(next) = undecodable(&all) {
            return next;
        }
        let children = self.children.get(name).map_or(0, Vec::len);
        let until = if children == 0 { None } else { Some(consent(cascade_until(object), self.at)) };
        if let Some(Err(none)) = &until {
            let next = Next::waits(Reason::HasChildren, none.has_children(parent, name, children));
            return Next { check_at: none.from, ..next };
        }
        let settings = &self.snapshot.settings;
        if let Some(refusal) = settings.protection(own) {
            return Next::waits(refusal.reason, refusal.message);
        }
        let denied = self.block(object);
        let Some(Ok(until)) = until else {
            let message = format!("namespace {name} is being deleted, and its quota returned");
            let goes = || Next { now: true, ..Next::deleted(Reason::NamespaceTerminating, message) };
            return denied.map_or_else(goes, Next::denied);
        };
        let below: Vec<Descendant<'_>> = all.iter().copied().map(|one| self.descendant(one)).collect();
        let before: Vec<String> =
            order(&below, settings).into_iter().map(|at| below[at].name.to_owned()).collect();
        if let Some(denied) = denied {
            return Next { before, ..Next::denied(denied) };
        }
        let going = match next_below(&below, settings) {
            CascadeStep::Delete(at) | CascadeStep::Wait(at) => format!("{} is next", below[at].name),
            CascadeStep::Going => "the lowest of these are being deleted".to_owned(),
            CascadeStep::Protected(refusal) => {
                return Next::waits(refusal.reason, format!("below namespace {name}: {}", refusal.message));
            }
        };
        let message = describe(name, &below, settings, until, &going);
        let next = if before.len() == below.len() {
            Next::deleted(Reason::CascadingDeletion, message)
        } else {
            Next::waits(Reason::CascadingDeletion, message)
        };
        Next { check_at: Some(until), before, ..next }
    }

    /// One above is being deleted with all below it; none if this one stays.
    fn goes_with_one_above(
        &self,
        object: &'a Subnamespace,
        cascades: &mut BTreeMap<(&'a str, &'a str), Cascade<'a>>,
    ) -> Option<Next> {
        let (top, until) = self.cascading_above(object)?;
        let cascade = cascades.entry(key(top)).or_insert_with(|| self.cascade(top));
        let place = cascade.order.iter().position(|one| *one == key(object))?;
        let now = cascade.now == Some(key(object));
        let last = place.checked_sub(1).map(|last| cascade.order[last].1);
        let message = format!(
            "namespace {name} is deleted with namespace {top} above it, which spec.cascadeUntil of Subnamespace {parent}/{top} allows until \
             {until}: number {number} of {all}{after}",
            name = object.name(),
            top = top.name(),
            parent = top.namespace(),
            number = place + 1,
            all = cascade.order.len(),
            after = last.map(|last| format!(", after {last}")).unwrap_or_default(),
        );
        let next = Next::deleted(Reason::DeletedWithAncestor, message);
        Some(Next {
            now,
            check_at: Some(until),
            before: last.map(str::to_owned).into_iter().collect(),
            ..next
        })
    }

    fn cascade(&self, top: &'a Subnamespace) -> Cascade<'a> {
        let settings = &self.snapshot.settings;
        let all = self.below(top.name());
        let below: Vec<Descendant<'_>> = all.iter().copied().map(|one| self.descendant(one)).collect();
        let now = match next_below(&below, settings) {
            CascadeStep::Delete(at) if self.block(top).is_none() && undecodable(&all).is_none() => {
                Some(key(all[at]))
            }
            _ => None,
        };
        Cascade { order: order(&below, settings).into_iter().map(|at| key(all[at])).collect(), now }
    }

    /// The uppermost Subnamespace above that is being deleted with all below it, and until when that may go on.
    fn cascading_above(&self, object: &Subnamespace) -> Option<(&'a Subnamespace, Timestamp)> {
        let mut found = None;
        for creator in self.creators_above(object) {
            let goes =
                |own: &NamespaceFacts| !own.terminating && self.snapshot.settings.protection(own).is_none();
            let stays = self.namespace(creator.namespace()).is_some_and(|parent| !parent.terminating);
            let begun = is_terminating(creator) && stays && self.own(creator).is_some_and(goes);
            let until = consent(cascade_until(creator), self.at).ok().filter(|_| begun);
            found = until.map(|until| (creator, until)).or(found);
        }
        found
    }

    /// What stops the deletion of its namespace, or of those below it.
    fn block(&self, object: &Subnamespace) -> Option<Denied> {
        let snapshot = self.snapshot;
        let cascades =
            |object: &Subnamespace| is_terminating(object) && consent(cascade_until(object), self.at).is_ok();
        let tree = object.status.tree.as_str();
        let created = || {
            let all = snapshot.trees.subnamespaces.iter();
            all.filter(|object| object.status.namespace_uid.is_some())
        };
        let in_tree = created().filter(|object| object.status.tree == tree).count();
        let in_tree = u32::try_from(in_tree).unwrap_or(u32::MAX).saturating_add(1);
        let in_cascade = cascades(object) || self.cascading_above(object).is_some();
        let circumstances = Circumstances {
            settings: &snapshot.settings,
            budget: &snapshot.budget,
            share: share(in_cascade, tree, in_tree, created().count() as u64),
            stale: None,
            other: None,
            webhook: None,
            unknown_limits: None,
            time: ServerTime::certain(self.at),
        };
        circumstances.block(Action::Delete)
    }

    fn namespace(&self, name: &str) -> Option<&'a NamespaceFacts> {
        self.snapshot.namespaces.get(name).or_else(|| self.snapshot.trees.namespaces.get(name))
    }

    /// The namespace that it created.
    fn own(&self, object: &Subnamespace) -> Option<&'a NamespaceFacts> {
        let uid = object.status.namespace_uid.as_deref()?;
        self.namespace(object.name()).filter(|own| own.uid == uid || has_unknown_uid(own))
    }

    /// The Subnamespaces that created the namespace that it is in, and those above that, from there up.
    fn creators_above(&self, object: &Subnamespace) -> Vec<&'a Subnamespace> {
        let above = |of: &Subnamespace| self.creators.get(of.namespace()).copied();
        std::iter::successors(above(object), |creator| above(creator)).take(MAX_PATH).collect()
    }

    /// Those below a namespace, each after all below it.
    fn below(&self, namespace: &str) -> Vec<&'a Subnamespace> {
        let children = |name: &str| self.children.get(name).cloned().unwrap_or_default();
        let own = |object: &&Subnamespace| self.own(object).map(|own| own.name.clone());
        bottom_up(namespace, children, own)
    }

    fn descendant(&self, object: &'a Subnamespace) -> Descendant<'a> {
        Descendant {
            parent: object.namespace(),
            name: object.name(),
            created: object.status.namespace_uid.is_some(),
            terminating: is_terminating(object),
            namespace: self.own(object).or_else(|| self.marked(object)),
        }
    }

    /// The namespace that is marked as its own before its status names one: it is created or adopted, or may not be adopted.
    fn marked(&self, object: &Subnamespace) -> Option<&'a NamespaceFacts> {
        let uid = object.meta.uid.as_deref().filter(|_| object.status.namespace_uid.is_none())?;
        self.namespace(object.name())
            .filter(|namespace| namespace.labels.get(LABEL_SUBNAMESPACE) == Some(uid))
    }
}

/// What a cascade waits for where a status below cannot be understood: which namespace that Subnamespace has created is not known.
fn undecodable(below: &[&Subnamespace]) -> Option<Next> {
    let (one, error) = below.iter().find_map(|one| Some((one, one.status_error.as_ref()?)))?;
    let message = format!(
        "Subnamespace {}/{}: {error}; run the version of Coppice that wrote it",
        one.namespace(),
        one.name()
    );
    Some(Next::unknown(Reason::Undecodable, message))
}

/// Namespace and name.
fn key(object: &Subnamespace) -> (&str, &str) {
    (object.namespace(), object.name())
}

fn is_terminating(object: &Subnamespace) -> bool {
    object.meta.deletion_timestamp.is_some()
}

fn cascade_until(object: &Subnamespace) -> Option<Timestamp> {
    object.spec.as_ref().ok().and_then(|spec| spec.cascade_until)
}

/// What it has.
fn allotment(object: &Subnamespace) -> Option<Resources> {
    Resources::recorded(&object.status.allotment.as_ref()?.hard).ok()
}
