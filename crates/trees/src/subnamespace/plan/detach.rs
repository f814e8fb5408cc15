//! A tree is being detached: each namespace below its root stays, with its quota and what was copied into it, and without anything
//! that Coppice knows it by. From the bottom up, so that the namespace above still says where it is. Pure.

use std::collections::BTreeMap;

use coppice_api::condition::{self, READY};
use coppice_api::names::{ANNOTATION_PATH, LABEL_ROOT, LABEL_SUBNAMESPACE};
use coppice_api::{Reason, SubnamespacePhase};
use coppice_kinds::SubnamespaceObject;
use coppice_lifecycle::facts::NamespaceFacts;

use super::super::moving::MoveTarget;
use super::super::observe::Observation;
use super::moving::parent_ends;
use super::{State, Step, SubnamespacePlan, allotment, count, is_created_by};
use crate::metadata::NamespaceChanges;
use crate::position::{Position, label_changes};

impl SubnamespacePlan {
    /// The next step; none where the namespace is going or gone, so that its quota returns as ever, or is taken up first.
    pub(super) fn detach(&mut self, observation: &Observation) -> Option<State> {
        let object = &observation.object;
        if !observation.parent_position.as_ref().is_ok_and(Position::is_detaching) {
            return None;
        }
        // What has begun to move comes to its end first.
        let moves = object.terminating
            && matches!(observation.moving, Some(MoveTarget::Found(_)) | None)
            && parent_ends(observation);
        if moves || object.annotations.moved_from.is_some() && object.status.namespace_uid.is_none() {
            return None;
        }
        let namespace = match (observation.own_namespace(), observation.namespace.as_deref()) {
            (Some(own), _) if own.terminating => return None,
            (Some(own), _) => Some(&**own),
            (None, _) if object.status.namespace_uid.is_some() => return None,
            (None, Some(marked)) if is_created_by(marked, object) => {
                if marked.terminating || marked.labels.get(LABEL_ROOT).is_some() {
                    return None;
                }
                // An administrator has marked it for adoption, which has not begun.
                Some(marked)
            }
            (None, _) => None,
        };
        if let Some(namespace) = namespace
            && let Some(state) = self.release(observation, namespace)
        {
            return Some(state);
        }
        self.status.namespace_uid = None;
        let message = match &observation.namespace {
            Some(namespace) => format!("namespace {} is in no tree any more, and stays", namespace.name),
            None => "the tree is being detached: no namespace is created in it".to_owned(),
        };
        Some(State { phase: SubnamespacePhase::Detached, reason: Reason::Detaching, message })
    }

    /// What has to be done before the namespace is one as any other.
    fn release(&mut self, observation: &Observation, namespace: &NamespaceFacts) -> Option<State> {
        let (object, now) = (&observation.object, observation.time.now());
        let waits = |what: String| Some(State::pending(Reason::Detaching, what));
        if !observation.children.is_empty() {
            let children = count(observation.children.len());
            return waits(format!("the tree is being detached: {children} below this namespace first"));
        }
        // What one that is gone has left here is soon the namespace's own again.
        let quota = observation.quota.as_deref().and_then(|quota| quota.quota.as_ref().ok());
        let transfers = observation.transfers.max(quota.map_or(0, |quota| quota.ledger.held.len()));
        if transfers > 0 {
            return waits(format!(
                "the tree is being detached: QuotaTransfers that have begun end first ({transfers})"
            ));
        }
        let ours = |quota: &coppice_kinds::TreeQuota| quota.tree.is_some();
        let released = observation.quota.as_deref().is_some_and(|quota| !ours(quota));
        let labelled = namespace.labels.get(LABEL_SUBNAMESPACE).is_some();
        // Where all namespaces above are being deleted, or the root is another one, what was on its way between them went with their quotas.
        let nowhere =
            matches!(observation.moving, Some(MoveTarget::Nowhere(_))) || root_is_another(observation);
        if labelled && !released && !(nowhere && observation.parent_quota.is_none()) {
            // What was begun is ended first: on its way it is in nobody's quota.
            let has = allotment(object).unwrap_or_default();
            if let Some(state) = self.quota_step(observation, &has, now) {
                return Some(state);
            }
        }
        if observation.copies > 0 {
            let copies = match observation.copies {
                1 => "1 copy becomes".to_owned(),
                more => format!("{more} copies become"),
            };
            return waits(format!("the tree is being detached: {copies} the namespace's own first"));
        }
        if observation.quota.as_deref().is_some_and(ours) {
            self.step = Step::ReleaseQuota;
            return waits("the tree is being detached: the quota becomes the namespace's own".to_owned());
        }
        let labels = label_changes(&namespace.labels, &BTreeMap::new(), 0);
        if labels.is_empty() {
            return None;
        }
        let path = BTreeMap::from([(ANNOTATION_PATH.to_owned(), None)]);
        self.step = Step::Label(NamespaceChanges { labels, annotations: path });
        waits("the tree is being detached: the labels of the tree are being removed".to_owned())
    }

    /// The namespace is in no tree any more: the object goes, and nothing else.
    pub(super) fn detached(&mut self, object: &SubnamespaceObject) -> State {
        if !object.terminating {
            self.step = Step::DeleteObject;
        } else if object.has_finalizer {
            self.step = Step::RemoveFinalizer;
        }
        // As it was said when that was decided.
        let said = condition::find(&object.status.conditions, READY).map(|ready| ready.message.clone());
        State {
            phase: SubnamespacePhase::Detached,
            reason: Reason::Detaching,
            message: said.unwrap_or_default(),
        }
    }
}

/// Whether the namespace above has the name of the root, and is not the one that the tree was set up with.
fn root_is_another(observation: &Observation) -> bool {
    let Ok(position) = &observation.parent_position else { return false };
    let root = position.tree.status.root_uid.as_deref();
    position.depth() == 0 && observation.parent.as_ref().is_some_and(|parent| root != Some(&*parent.uid))
}
