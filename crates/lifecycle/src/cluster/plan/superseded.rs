//! Whether a later namespace has taken the place of one, in its record.

use coppice_api::condition::{self, ConditionState, IDENTIFIED};
use coppice_api::health::HealthSeen;
use coppice_api::managed_namespace::Successor;
use coppice_api::{HealthState, Reason};

use super::decide::CENSUS_INTERVAL;
use super::{Builder, HealthFacts, SuccessorFacts};
use crate::cluster::ValidSupersede;
use crate::cluster::identity::{Unidentified, identity_of};
use crate::cluster::phase::Superseded;
use crate::cluster::selection::SelectingManager;
use crate::cluster::supersede::{Eligibility, supersedes};
use crate::condition::{later, whole_second_after};
use crate::facts::NamespaceFacts;
use crate::health;

impl Builder<'_> {
    /// Writes down which namespace has taken the place of this one, and what this one was made for. What is not known at present
    /// changes nothing, and nothing is done by it.
    pub(super) fn say_superseded(
        &mut self,
        manager: &SelectingManager<'_>,
        namespace: &NamespaceFacts,
    ) -> Option<Superseded> {
        let Some(supersede) = &manager.spec.supersede else {
            self.clear_superseded();
            return None;
        };
        self.note_ready(supersede);
        self.say_identified(supersede, namespace);
        let recorded = self.status.superseded_by.take();
        // None where that is not known.
        let found = match &self.observed.successor {
            SuccessorFacts::None => Some(None),
            SuccessorFacts::Found { namespace: later, record, workloads } => {
                let facts = (workloads.as_deref(), self.now);
                match supersedes(supersede, manager, namespace, (later, *record), facts) {
                    Ok(Eligibility::Yes) => Some(Some(*later)),
                    Ok(Eligibility::No) => Some(None),
                    Ok(Eligibility::Unknown) | Err(_) => None,
                }
            }
            SuccessorFacts::Unknown | SuccessorFacts::AsRecorded => None,
        };
        let confirmed = found.is_some() || matches!(self.observed.successor, SuccessorFacts::AsRecorded);
        let now = whole_second_after(self.now);
        let since = recorded.as_ref().map_or(now, |by| by.since);
        let successor = |later: &NamespaceFacts| Successor {
            namespace: later.name.clone(),
            uid: later.uid.clone(),
            created: later.created,
            since,
        };
        let by = found.map_or(recorded, |found| found.map(successor));
        let superseded = by.as_ref().map(|by| Superseded {
            since: by.since,
            both_exist_since: by.created.max(namespace.created),
            confirmed,
        });
        if superseded.is_some() && !confirmed {
            self.check_no_later_than(Some(later(self.now, CENSUS_INTERVAL)));
        }
        self.status.superseded_by = by;
        superseded
    }

    /// Writes down whether it is known what the namespace was made for. What was not read yet changes nothing.
    fn say_identified(&mut self, supersede: &ValidSupersede, namespace: &NamespaceFacts) {
        let (status, reason, message) = match identity_of(supersede, namespace) {
            Ok(_) => ("True", Reason::Identified, "what the namespace was made for is known".to_owned()),
            Err(Unidentified::None(why)) => {
                let message = format!("{why}: the namespace supersedes no other, and none supersedes it");
                ("False", Reason::NoIdentity, message)
            }
            Err(Unidentified::NotRead(_)) => return,
        };
        let state = ConditionState { status, reason: reason.to_string(), message };
        let (generation, now) = (self.record.generation, self.now);
        condition::set(&mut self.status.conditions, IDENTIFIED, state, generation, now);
    }

    /// Writes down when everything was ready for the first time since the namespace was last anything but `Ok`, `Unknown` included,
    /// or empty.
    fn note_ready(&mut self, supersede: &ValidSupersede) {
        let health = self.status.health.as_ref();
        let well = health
            .is_some_and(|health| health.state == HealthState::Ok && health.seen != HealthSeen::Unknown);
        let scaled_down = !self.status.steps.scaled_down.is_empty();
        if !supersede.wait_until_ready || !well || scaled_down {
            self.status.ready_at = None;
        } else if let HealthFacts::Known { workloads, .. } = &self.observed.health {
            if !health::any_runs(workloads) {
                self.status.ready_at = None;
            } else if self.status.ready_at.is_none() && health::is_ready(workloads) {
                self.status.ready_at = Some(whole_second_after(self.now));
            }
        }
    }

    /// Nobody compares the namespace with others any more.
    pub(super) fn clear_superseded(&mut self) {
        (self.status.superseded_by, self.status.ready_at) = (None, None);
        self.status.conditions.retain(|known| known.type_ != IDENTIFIED);
    }
}
