//! A `Subnamespace`, its namespace, the namespace above and the quotas of both: from caches, or straight from the API server.

use std::sync::Arc;
use std::time::Duration;

use coppice_actions::decision::FreshFacts;
use coppice_actions::governor::Reservation;
use coppice_api::Reason;
use coppice_api::config::GovernorStatus;
use coppice_api::names::{LABEL_CHILDREN, TREE_QUOTA_NAME};
use coppice_hierarchy::{Resources, share};
use coppice_kinds::{CopiedKind, Namespaces, SubnamespaceObject, Subnamespaces, TreeQuota, TreeQuotas};
use coppice_lifecycle::PlatformSettings;
use coppice_lifecycle::circumstances::Circumstances;
use coppice_lifecycle::facts::NamespaceFacts;
use coppice_lifecycle::governor::Share;
use coppice_mutants::{Mutant, active};
use coppice_quantity::time::ServerTime;
use coppice_runtime::read::{self, ListError};
use tokio::time::Instant;

use super::SubnamespaceKey;
use super::moving::{self, MoveTarget};
use super::plan::is_cascading;
use crate::allotment::{Children, allotment};
use crate::context::{Below, TreeContext, Why};
use crate::copies::listed;
use crate::index::cascades;
use crate::position::Position;

/// As many siblings are looked at for the way out of a refusal, however many there are: it names the one that has most to give.
const MAX_SIBLINGS: usize = 64;

/// So long a run of writes goes on with what was read before the first of them.
const KNOWN_FOR: Duration = Duration::from_secs(1);

/// What a plan is made from.
pub(super) struct Observation {
    pub(super) object: Arc<SubnamespaceObject>,
    /// Where the namespace above is.
    pub(super) parent_position: Result<Position, Why>,
    /// The namespace above.
    pub(super) parent: Option<Arc<NamespaceFacts>>,
    /// Its quota.
    pub(super) parent_quota: Option<Arc<TreeQuota>>,
    /// The namespace of the object's name, whoever created it.
    pub(super) namespace: Option<Arc<NamespaceFacts>>,
    /// The quota in it.
    pub(super) quota: Option<Arc<TreeQuota>>,
    /// The Subnamespaces in it.
    pub(super) children: Children,
    /// Where its namespace may be deleted with all below it, or with one above it: the Subnamespaces there, each after all below it, with
    /// the namespaces that they created. Otherwise nobody asks.
    pub(super) below: Vec<Below>,
    /// The Subnamespaces above that are being deleted and may take all below with them, from the root down, each with the namespace that
    /// it created.
    pub(super) above: Vec<Below>,
    /// What the siblings do not use.
    pub(super) siblings: Vec<(String, Resources)>,
    /// How many objects in its namespace are copies, and how many transfers of the tree have begun and not ended: while the tree is
    /// being detached; otherwise nobody asks.
    pub(super) copies: usize,
    pub(super) transfers: usize,
    /// Where its namespace goes, while that of the parent is being deleted and with it the Subnamespace. Caches do not say that.
    pub(super) moving: Option<MoveTarget>,
    /// Whether the Subnamespace that this one takes over from is still there, before anything else was read.
    pub(super) predecessor: bool,
    /// How many namespaces the tree has, with those that are being created for others.
    pub(super) tree_size: u32,
    /// Why the caches cannot be trusted.
    pub(super) stale: Option<Why>,
    pub(super) settings: Arc<PlatformSettings>,
    pub(super) budget: GovernorStatus,
    /// How many namespaces Subnamespaces have created: the budget an hour that trees have in common is a share of them.
    pub(super) managed: u64,
    pub(super) time: ServerTime,
    /// When the first read was sent: nothing in here is older.
    pub(super) started: Instant,
}

/// What one of our own writes has made of an object, as the API server has answered it.
pub(super) enum Written {
    Object(SubnamespaceObject),
    /// The namespace, which was not there before: there is nothing in it yet.
    NewNamespace(NamespaceFacts),
    ParentQuota(TreeQuota),
    OwnQuota(TreeQuota),
    /// Of which too little is answered.
    Other,
}

/// What was read of the objects themselves.
struct Objects {
    object: Arc<SubnamespaceObject>,
    parent: Option<Arc<NamespaceFacts>>,
    parent_quota: Option<Arc<TreeQuota>>,
    namespace: Option<Arc<NamespaceFacts>>,
    quota: Option<Arc<TreeQuota>>,
    children: Children,
    predecessor: bool,
}

/// Why something could not be read again.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    #[error("{}", coppice_runtime::error::chain(.0))]
    Get(#[from] kube::Error),
    #[error("the Subnamespaces in its namespace: {0}")]
    List(#[from] ListError),
}

/// What the caches know; none if there is no such object.
pub(super) fn cached(context: &TreeContext, key: &SubnamespaceKey) -> Option<Observation> {
    Some(cached_around(context, context.subnamespaces.get(&key.parent, &key.name)?))
}

/// What the caches know besides this object.
pub(super) fn cached_around(context: &TreeContext, object: Arc<SubnamespaceObject>) -> Observation {
    let (parent, name) = (&*object.namespace, &*object.name);
    let quota = context.quotas.get(name, TREE_QUOTA_NAME);
    let objects = Objects {
        predecessor: moving::predecessor(context, &object),
        parent: context.shared.namespaces.get("", parent),
        parent_quota: context.quotas.get(parent, TREE_QUOTA_NAME),
        namespace: context.shared.namespaces.get("", name),
        children: known_children(context, name, quota.is_none()),
        quota,
        object,
    };
    observation(context, objects, Instant::now())
}

/// The Subnamespaces in a namespace, as the caches know them. `lost`: whether its quota is not there.
fn known_children(context: &TreeContext, namespace: &str, lost: bool) -> Children {
    if lost {
        context.subnamespaces.list(namespace).into()
    } else {
        Children::counted(context.subnamespaces.count(namespace))
    }
}

/// The same from fresh reads, the quota of the namespace above first: while it has no change of this one, nobody changes what is read
/// after it, so a write to it at the revision that was read proves all of them.
pub(super) async fn fresh(
    context: &TreeContext,
    key: &SubnamespaceKey,
) -> Result<Option<Observation>, ReadError> {
    let (started, client) = (Instant::now(), &context.shared.clients.reads);
    let (parent, name) = (&*key.parent, &*key.name);
    let parent_quota = read::get::<TreeQuotas>(client, parent, TREE_QUOTA_NAME).await?;
    let Some(object) = read::get::<Subnamespaces>(client, parent, name).await? else { return Ok(None) };
    around(context, Arc::new(object), parent_quota, started).await.map(Some)
}

/// The same of an object that is not stored yet, or not as it is here.
pub(super) async fn fresh_around(
    context: &TreeContext,
    object: Arc<SubnamespaceObject>,
) -> Result<Observation, ReadError> {
    let started = Instant::now();
    let client = &context.shared.clients.reads;
    let parent_quota = read::get::<TreeQuotas>(client, &object.namespace, TREE_QUOTA_NAME).await?;
    around(context, object, parent_quota, started).await
}

async fn around(
    context: &TreeContext,
    object: Arc<SubnamespaceObject>,
    parent_quota: Option<TreeQuota>,
    started: Instant,
) -> Result<Observation, ReadError> {
    let client = &context.shared.clients.reads;
    let annotations = context.shared.namespaces.current_context();
    // First: once that is gone, nobody says on the namespace any more whose it is.
    let predecessor = moving::predecessor(context, &object);
    let (parent, name) = (&*object.namespace, &*object.name);
    // After the object: what its status says is there was created before that was said.
    let (namespace, quota, above) = tokio::try_join!(
        read::get_with::<Namespaces>(client, "", name, &annotations),
        read::get::<TreeQuotas>(client, name, TREE_QUOTA_NAME),
        read::get_with::<Namespaces>(client, "", parent, &annotations),
    )?;
    let quota = quota.filter(|_| namespace.is_some());
    // What its children have counts where its quota has to be made again; and whether there are any where it is deleted, or where
    // its label no longer says so: whoever creates one marks the namespace after that, so its revision is another then.
    let known = known_children(context, name, quota.is_none());
    let marked = |namespace: &NamespaceFacts| namespace.labels.get(LABEL_CHILDREN).is_some();
    let detaching = context.position(parent).as_ref().is_ok_and(Position::is_detaching);
    let must_be_certain = |namespace: &NamespaceFacts| {
        detaching || quota.is_none() || object.terminating || known.is_empty() && marked(namespace)
    };
    let children = if namespace.as_ref().is_some_and(must_be_certain) {
        let all = read::list::<Subnamespaces>(client, name).await?;
        Children::from(all.into_iter().map(Arc::new).collect::<Vec<_>>())
    } else {
        known
    };
    let mut copies = 0;
    if detaching {
        for kind in CopiedKind::ALL {
            let objects = listed(client, kind, name).await?;
            copies += objects.iter().filter(|object| object.origin.is_some()).count();
        }
    }
    let own = |namespace: &NamespaceFacts| object.status.namespace_uid.as_ref() == Some(&namespace.uid);
    let ends = object.terminating && above.as_ref().is_none_or(|above| above.terminating);
    let mut namespace = namespace;
    let mut moving = None;
    if namespace.as_ref().is_some_and(|namespace| ends && own(namespace)) {
        moving = Some(moving::read(context, &object).await?);
        // After the quota there: once it is being deleted, others may have taken out of it what this one would take out with it.
        namespace = read::get_with::<Namespaces>(client, "", name, &annotations).await?;
    }
    let objects = Objects {
        object,
        predecessor,
        parent: above.map(Arc::new),
        parent_quota: parent_quota.map(Arc::new),
        namespace: namespace.map(Arc::new),
        quota: quota.map(Arc::new),
        children,
    };
    Ok(Observation { copies, moving, ..observation(context, objects, started) })
}

fn observation(context: &TreeContext, objects: Objects, started: Instant) -> Observation {
    let shared = &context.shared;
    let Objects { object, parent, parent_quota, namespace, quota, children, predecessor } = objects;
    let parent_position = context.position(&object.namespace);
    let detaching = parent_position.as_ref().ok().filter(|position| position.is_detaching());
    let (mut copies, mut transfers) = (0, 0);
    if let Some(position) = detaching {
        let of = |kind| context.copies.decoded(kind, &object.name).unwrap_or_default();
        let own = CopiedKind::ALL.into_iter().flat_map(of);
        copies = own.filter(|object| object.origin.is_some()).count();
        context.transfers.for_each(|transfer| {
            let status = &transfer.status;
            let begun = status.tree == *position.tree.name && !status.path.is_empty();
            transfers += usize::from(begun && status.ended_at.is_none());
        });
    }
    let above =
        parent_position.as_ref().map(|position| cascading_above(context, position)).unwrap_or_default();
    let asked = cascades(&object) || !above.is_empty();
    let below = if asked { context.bottom_up(&object.name) } else { Vec::new() };
    let unreadable = || {
        // One below that is not known may be protected, and above others.
        let of_below = below.iter().map(|(one, _)| &one.name);
        let mut names = [&object.name, &object.namespace].into_iter().chain(of_below);
        let unreadable = names.find_map(|name| shared.namespaces.unreadable_object(name))?;
        Some((unreadable.reason, format!("a namespace is not known: {unreadable}")))
    };
    // Nor is it known which namespace such a one has created.
    let undecodable = || {
        let found = below.iter().find_map(|(one, _)| Some((one, one.status_error.as_ref()?)));
        let (one, error) = found?;
        let message = format!(
            "Subnamespace {}/{}: {error}; run the version of Coppice that wrote it",
            one.namespace, one.name
        );
        Some((Reason::Undecodable, message))
    };
    let stale = context.stale().or_else(unreadable).or_else(undecodable);
    let size = |position: &Position| context.size_beside(&position.tree.name, &object);
    let tree_size = parent_position.as_ref().map_or(0, size);
    let (settings, budget) = shared.settings();
    Observation {
        below,
        above,
        moving: None,
        predecessor,
        siblings: siblings(context, &object, parent_quota.as_deref()),
        stale: stale.or_else(|| detaching.and_then(|_| context.stale_besides())),
        copies,
        transfers,
        parent_position,
        parent,
        parent_quota,
        namespace,
        quota,
        children,
        tree_size,
        settings,
        budget,
        managed: context.created(),
        time: shared.time(),
        started,
        object,
    }
}

/// Those on the way down to a namespace that are being deleted and may take all below with them. One that goes with the namespace above it
/// takes nothing along.
fn cascading_above(context: &TreeContext, position: &Position) -> Vec<Below> {
    let names = position.names();
    let pairs = names.iter().zip(names.iter().skip(1));
    let cascading = pairs.filter_map(|(parent, name)| {
        let object = context.subnamespaces.get(parent, name).filter(|object| cascades(object))?;
        let stays = context.shared.namespaces.get("", parent).is_some_and(|parent| !parent.terminating);
        stays.then(|| context.with_own(object))
    });
    cascading.collect()
}

/// Whether more is asked for than the quota above has left.
pub(super) fn asks_for_too_much(object: &SubnamespaceObject, above: Option<&TreeQuota>) -> bool {
    let Some(Ok(above)) = above.map(|above| &above.quota) else { return false };
    let Ok(spec) = object.decoded() else { return false };
    let Ok(asked) = spec.asked() else { return false };
    let has = allotment(object).filter(|_| object.status.namespace_uid.is_some()).unwrap_or_default();
    !asked.minus(&has).within(&above.unused())
}

/// What the siblings do not use, as far as the caches know: for people, as the way out where too little is left above. Nobody asks otherwise.
fn siblings(
    context: &TreeContext,
    object: &SubnamespaceObject,
    above: Option<&TreeQuota>,
) -> Vec<(String, Resources)> {
    if !asks_for_too_much(object, above) {
        return Vec::new();
    }
    // The object itself may be among them.
    let all = context.subnamespaces.first(&object.namespace, MAX_SIBLINGS + 1);
    let others = all.iter().filter(|other| other.uid != object.uid).take(MAX_SIBLINGS);
    let unused = |other: &Arc<SubnamespaceObject>| {
        let quota = context.quotas.get(&other.name, TREE_QUOTA_NAME)?;
        Some((other.name.to_string(), quota.quota.as_ref().ok()?.unused()))
    };
    others.filter_map(unused).collect()
}

impl Observation {
    /// Whether what is known of the namespace's quota lets only this Subnamespace change what it has.
    pub(super) fn is_fenced_for(&self, uid: &str) -> bool {
        let quota = self.quota.as_deref().and_then(|quota| quota.quota.as_ref().ok());
        quota.is_some_and(|quota| quota.ledger.changed_by.as_deref() == Some(uid))
    }

    /// Whether a change of what the namespace has is under way; none if the quota of the namespace above does not say that.
    pub(super) fn is_being_changed(&self) -> Option<bool> {
        let parent = self.parent_quota.as_deref().and_then(|quota| quota.quota.as_ref().ok())?;
        Some(parent.ledger.changes.contains_key(&*self.object.uid))
    }

    /// Whether no change of what the namespace has is under way, and its quota is not in force.
    pub(super) fn waits_for_its_quota(&self) -> bool {
        let own = self.quota.as_deref().and_then(|quota| quota.quota.as_ref().ok());
        self.is_being_changed() == Some(false) && own.is_some_and(|own| !own.enforced.limits_like(&own.hard))
    }

    /// Of one that takes over: whether the namespace may still come. Also where the one before is gone: a late write may have given it to
    /// another one for now.
    pub(super) fn may_come(&self) -> bool {
        self.predecessor
            || self.object.annotations.moved_from.is_some() && self.is_fenced_for(&self.object.uid)
    }

    /// The namespace, if it is the one that this object has created.
    pub(super) fn own_namespace(&self) -> Option<&Arc<NamespaceFacts>> {
        let uid = self.object.status.namespace_uid.as_deref()?;
        let gone = |namespace: &NamespaceFacts| namespace.terminating && active(Mutant::QuotaReturnedAtOnce);
        self.namespace.as_ref().filter(|namespace| namespace.uid == uid && !gone(namespace))
    }

    /// The same after one of our own writes; none where everything has to be read again: where something ends, or what was read is old.
    /// What others have changed meanwhile the next write finds, since each is made at the revision that is known here.
    pub(super) fn after(self, context: &TreeContext, written: Written) -> Option<Self> {
        let ends = self.object.terminating
            || self.object.annotations.moved_from.is_some() && self.object.status.namespace_uid.is_none()
            || self.parent_position.as_ref().map_or(true, Position::is_detaching)
            || self.object.status.namespace_uid.is_some()
                && self.own_namespace().is_none_or(|namespace| namespace.terminating);
        if ends || self.age() > KNOWN_FOR {
            return None;
        }
        let Self { object, parent, parent_quota, namespace, quota, children, predecessor, started, .. } =
            self;
        let mut objects = Objects { object, parent, parent_quota, namespace, quota, children, predecessor };
        match written {
            Written::Object(object) => objects.object = Arc::new(object),
            Written::NewNamespace(namespace) => {
                objects.namespace = Some(Arc::new(namespace));
                (objects.quota, objects.children) = (None, Children::default());
            }
            Written::ParentQuota(quota) => objects.parent_quota = Some(Arc::new(quota)),
            Written::OwnQuota(quota) => objects.quota = Some(Arc::new(quota)),
            Written::Other => return None,
        }
        Some(observation(context, objects, started))
    }

    /// The same, under the settings and the budget that were reserved under.
    pub(super) fn under(mut self, context: &TreeContext, reservation: &Reservation) -> Self {
        (self.settings, self.budget) = context.shared.reserved(reservation);
        self
    }

    /// What stops steps, whatever asks for them.
    pub(super) fn circumstances(&self) -> Circumstances<'_> {
        Circumstances {
            time: self.time,
            stale: self.stale.as_ref(),
            other: None,
            webhook: None,
            unknown_limits: None,
            settings: &self.settings,
            budget: &self.budget,
            share: self.share(),
        }
    }

    /// Whose budget the deletion of its namespace takes from: what users delete one by one is counted for their tree alone. Not so where
    /// all below it goes with it, or where it goes with one above it.
    pub(super) fn share(&self) -> Share<'_> {
        let consents = |object: &SubnamespaceObject| is_cascading(object, self.time.now());
        let in_cascade = consents(&self.object) || self.above.iter().any(|(above, _)| consents(above));
        let tree =
            self.parent_position.as_ref().map_or(&*self.object.status.tree, |position| &*position.tree.name);
        share(in_cascade, tree, self.tree_size, self.managed)
    }
}

impl FreshFacts for Observation {
    fn namespace(&self) -> Option<&NamespaceFacts> {
        self.own_namespace().map(|namespace| &**namespace)
    }

    fn settings(&self) -> &PlatformSettings {
        &self.settings
    }

    fn age(&self) -> Duration {
        self.started.elapsed()
    }
}
