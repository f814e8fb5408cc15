//! A `QuotaTransfer`, and the quotas around where its amount is: from caches, or straight from the API server.

use std::collections::BTreeMap;
use std::sync::Arc;

use coppice_api::Reason;
use coppice_api::names::TREE_QUOTA_NAME;
use coppice_hierarchy::{Record, Transfer};
use coppice_kinds::{
    QuotaTransferObject, QuotaTransfers, SubnamespaceObject, Subnamespaces, TreeQuota, TreeQuotas,
};
use coppice_quantity::time::ServerTime;
use coppice_runtime::read::{self, ListError};

use super::QuotaTransferKey;
use super::plan::{awaits_approval, progress, top};
use super::route::{self, NoRoute, Route};
use crate::allotment::recorded;
use crate::context::{TreeContext, Why};
use crate::reads;

/// What a plan is made from.
pub(super) struct Observation {
    pub(super) object: Arc<QuotaTransferObject>,
    /// The way that it has to take.
    pub(super) route: Result<Route, NoRoute>,
    /// By its place on the way, what is known of a namespace near the amount.
    pub(super) near: BTreeMap<usize, Near>,
    /// The quota of the source, which remembers what it gave, while the transfer waits for approval.
    pub(super) source: Option<Arc<TreeQuota>>,
    /// Why the caches cannot be trusted.
    pub(super) stale: Option<Why>,
    pub(super) time: ServerTime,
}

/// A namespace near the amount.
#[derive(Default)]
pub(super) struct Near {
    /// Its quota; none if the namespace that was on the way is gone.
    pub(super) quota: Option<Arc<TreeQuota>>,
    /// What its Subnamespace says that it has.
    pub(super) record: Record,
}

impl Observation {
    /// The revisions of all that was read: if they are the same after it, all of it was so at one time.
    pub(super) fn revisions(&self) -> Vec<Option<&str>> {
        let quotas = self.near.values().map(|near| near.quota.as_ref().map(|quota| &*quota.resource_version));
        std::iter::once(Some(&*self.object.resource_version)).chain(quotas).collect()
    }
}

/// The places near the amount, the nearest to the namespace where the way turns first; and the namespace above each.
fn places(object: &QuotaTransferObject) -> Vec<(usize, Option<&str>)> {
    let path = &object.status.path;
    let Some(top) = top(object).filter(|_| object.status.ended_at.is_none()) else { return Vec::new() };
    let mut places = Transfer::places(progress(object), path.len());
    places.sort_by_key(|place| place.abs_diff(top));
    let above = |place: usize| match place.cmp(&top) {
        std::cmp::Ordering::Less => Some(place + 1),
        std::cmp::Ordering::Equal => None,
        std::cmp::Ordering::Greater => Some(place - 1),
    };
    places
        .into_iter()
        .map(|place| (place, above(place).map(|above| path[above].namespace.as_str())))
        .collect()
}

/// What is known of a place, if it still is the one that was on the way.
fn near(uid: &str, subnamespace: Option<&SubnamespaceObject>, quota: Option<Arc<TreeQuota>>) -> Near {
    match subnamespace {
        None if uid.is_empty() => Near { quota, record: Record::default() },
        Some(subnamespace) if *subnamespace.uid == *uid => Near { quota, record: recorded(subnamespace) },
        _ => Near::default(),
    }
}

/// What the caches know; none if there is no such object.
pub(super) fn cached(context: &TreeContext, key: &QuotaTransferKey) -> Option<Observation> {
    Some(cached_around(context, context.transfers.get(&key.source, &key.name)?))
}

/// What the caches know besides this object.
pub(super) fn cached_around(context: &TreeContext, object: Arc<QuotaTransferObject>) -> Observation {
    let seen = places(&object).into_iter().map(|(place, above)| {
        let stop = &object.status.path[place];
        let subnamespace = above.and_then(|above| context.subnamespaces.get(above, &stop.namespace));
        let quota = context.quotas.get(&stop.namespace, TREE_QUOTA_NAME);
        (place, near(&stop.uid, subnamespace.as_deref(), quota))
    });
    let seen = seen.collect();
    let source = awaits_approval(&object).then(|| context.quotas.get(&object.namespace, TREE_QUOTA_NAME));
    observation(context, object, seen, source.flatten())
}

/// The same from fresh reads; none if there is no such object, or it has changed meanwhile. A quota that is nearer to where the way turns is
/// read first, each before the record of its namespace, and the object again after all of them: what it says has not been done yet
/// had not been done when they were read. The way of one that has not begun is read, too: that there is none is final, and caches that
/// are behind would say so of namespaces that were created a moment ago.
pub(super) async fn fresh(
    context: &TreeContext,
    key: &QuotaTransferKey,
) -> Result<Option<Observation>, ListError> {
    let client = &context.shared.clients.reads;
    let get = || read::get::<QuotaTransfers>(client, &key.source, &key.name);
    let Some(object) = get().await? else { return Ok(None) };
    let began = !places(&object).is_empty();
    let observation = fresh_around(context, Arc::new(object)).await?;
    if began {
        let again = get().await?;
        let again = again.filter(|again| again.resource_version == observation.object.resource_version);
        return Ok(again.map(|_| observation));
    }
    Ok(Some(observation))
}

/// The same of an object as it is here, which is not read.
pub(super) async fn fresh_around(
    context: &TreeContext,
    object: Arc<QuotaTransferObject>,
) -> Result<Observation, ListError> {
    let client = &context.shared.clients.reads;
    let mut seen = BTreeMap::new();
    for (place, above) in places(&object) {
        let stop = &object.status.path[place];
        let quota = read::get::<TreeQuotas>(client, &stop.namespace, TREE_QUOTA_NAME).await?;
        let subnamespace = match above {
            Some(above) => read::get::<Subnamespaces>(client, above, &stop.namespace).await?,
            None => None,
        };
        seen.insert(place, near(&stop.uid, subnamespace.as_ref(), quota.map(Arc::new)));
    }
    let way = match object.decoded() {
        Ok(spec) if object.status.path.is_empty() && object.status.ended_at.is_none() => {
            let (source, to) = (&*object.namespace, &*spec.to);
            let (from, target) = (reads::place(context, source).await?, reads::place(context, to).await?);
            let place = |name: &str| if name == source { from.place.clone() } else { target.place.clone() };
            let uid = |above: &str, name: &str| {
                let mut creators = from.creators.iter().chain(&target.creators);
                let found = creators.find(|one| &*one.namespace == above && &*one.name == name);
                found.map(|one| one.uid.to_string())
            };
            Some(route::route(source, spec, place, uid))
        }
        _ => None,
    };
    let source = if awaits_approval(&object) {
        read::get::<TreeQuotas>(client, &object.namespace, TREE_QUOTA_NAME).await?.map(Arc::new)
    } else {
        None
    };
    let observation = observation(context, object, seen, source);
    Ok(Observation { route: way.unwrap_or(observation.route), ..observation })
}

fn observation(
    context: &TreeContext,
    object: Arc<QuotaTransferObject>,
    near: BTreeMap<usize, Near>,
    source: Option<Arc<TreeQuota>>,
) -> Observation {
    let uid = |above: &str, name: &str| Some(context.subnamespaces.get(above, name)?.uid.to_string());
    let route = match object.decoded() {
        Ok(spec) => route::route(&object.namespace, spec, |name| context.place(name), uid),
        Err(why) => Err(NoRoute::Unknown((Reason::InvalidSpec, why.to_string()))),
    };
    Observation { route, near, source, stale: context.stale(), time: context.shared.time(), object }
}
