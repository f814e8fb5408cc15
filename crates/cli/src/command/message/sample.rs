//! A message of a kind that time alone does not lead to: what it needs is made up, so that nothing in it contradicts another thing.

use anyhow::{Result, bail};
use coppice_api::cluster_manager::PolicyPhase;
use coppice_api::health::{FailingObject, HealthReason, HealthRecord, HealthSeen, HealthSource, HealthState};
use coppice_api::managed_namespace::Successor;
use coppice_api::notify::MessageAbout;
use coppice_api::steps::Notice;
use coppice_api::{ManagedNamespaceStatus, NamespacePhase, Reason};
use coppice_lifecycle::cluster::{ClusterCondition, ValidClusterPolicy};
use coppice_quantity::Duration;
use jiff::{SignedDuration, Timestamp};

use super::Subject;
use super::upcoming::Chosen;

/// How long something has been failing that is made up.
const FAILS_FOR: Duration = Duration::from_secs(600);
/// How long a ttl still runs that is made up, where no reminder says it.
const RUNS_FOR: Duration = Duration::from_secs(3600);

/// A message of this kind about a namespace with this status now.
///
/// # Errors
/// Where the cluster manager never sends such a message, whatever happens.
pub(super) fn sample(
    subject: &Subject,
    about: MessageAbout,
    status: ManagedNamespaceStatus,
    at: Timestamp,
) -> Result<Chosen> {
    let mut sample = Sample { subject, status, at, sent_at: at, made_up: Vec::new() };
    match about {
        MessageAbout::DeletionAnnounced => sample.announced("that its deletion is announced now")?,
        MessageAbout::Deleted => sample.announced("that it is deleted now")?,
        MessageAbout::NoticeWithdrawn => {
            sample.status.steps.notice = None;
            sample.made_up.push("that a deletion was announced".to_owned());
        }
        MessageAbout::Unstable => sample.fails(NamespacePhase::Unstable),
        MessageAbout::Failing => sample.fails(NamespacePhase::Failing),
        MessageAbout::Failed => sample.fails(NamespacePhase::Failed),
        MessageAbout::Stale => sample.expired(),
        MessageAbout::Superseded => {
            sample.superseded();
            sample.phase(NamespacePhase::Superseded);
        }
        MessageAbout::Recovered => {
            sample.status.failing.clear();
            sample.made_up.push("that something failed before".to_owned());
            sample.phase(NamespacePhase::Ok);
        }
        MessageAbout::Expiring => {
            sample.expires();
            sample.phase(NamespacePhase::Ok);
        }
    }
    let Sample { status, sent_at, made_up, .. } = sample;
    Ok(Chosen { about, status, given_at: sent_at, sent_at, is_sent: false, made_up })
}

/// A message in the making.
struct Sample<'a> {
    subject: &'a Subject,
    status: ManagedNamespaceStatus,
    at: Timestamp,
    sent_at: Timestamp,
    made_up: Vec<String>,
}

impl Sample<'_> {
    fn later(&self, by: Duration) -> Timestamp {
        self.at.saturating_add(SignedDuration::from_secs(by.as_secs_i64())).unwrap_or(Timestamp::MAX)
    }

    fn phase(&mut self, phase: NamespacePhase) {
        if self.status.phase != Some(phase) {
            (self.status.phase, self.status.phase_since) = (Some(phase), Some(self.at));
            self.made_up.push(format!("the phase {}", phase.as_str()));
        }
    }

    /// Something fails, and for so long that the namespace is in this phase.
    fn fails(&mut self, phase: NamespacePhase) {
        let since =
            self.at.saturating_sub(SignedDuration::from_secs(FAILS_FOR.as_secs_i64())).unwrap_or(self.at);
        if self.status.failing.is_empty() || self.status.health.is_none() {
            self.status.failing = vec![FailingObject {
                kind: "Deployment".to_owned(),
                name: "example".to_owned(),
                reason: HealthReason::CrashLoopBackOff.as_str().to_owned(),
                message: "container main restarts repeatedly with exit code 1 (Error)".to_owned(),
                source: HealthSource::Workloads,
                since,
            }];
            self.status.failing_more = None;
            self.made_up.push("what fails".to_owned());
        }
        self.status.health.get_or_insert_with(|| HealthRecord {
            state: HealthState::Failed,
            seen: HealthSeen::Failing,
            seen_since: since,
            failing_seconds: 0,
            recovery_seconds: 0,
            not_ok_since: Some(since),
            unstable_since: Some(since),
            failing_since: None,
            failed_since: None,
            spent: None,
            short: Vec::new(),
        });
        self.phase(phase);
    }

    /// A later namespace has taken its place.
    fn superseded(&mut self) {
        if self.status.superseded_by.is_none() {
            self.status.superseded_by = Some(Successor {
                namespace: format!("{}-later", self.subject.facts.name),
                uid: "example".to_owned(),
                created: self.at,
                since: self.at,
            });
            self.made_up.push("the namespace that has taken its place".to_owned());
        }
    }

    /// Its time to live is over: now, or when it ends.
    fn expired(&mut self) {
        if let Some(end) = self.status.expires_at {
            self.sent_at = self.at.max(end);
        } else {
            self.status.expires_at = Some(self.at);
            self.made_up.push("the end of its time to live".to_owned());
        }
        self.phase(NamespacePhase::Stale);
    }

    /// Its time to live ends soon.
    fn expires(&mut self) {
        if self.status.expires_at.is_none_or(|end| end <= self.at) {
            let reminders = self.subject.spec.notify.iter().flat_map(|notify| &notify.reminders);
            let before = reminders.min().copied().unwrap_or(RUNS_FOR);
            self.status.expires_at = Some(self.later(before));
            self.made_up.push("the end of its time to live".to_owned());
        }
    }

    /// A deletion by the policy that comes first, of which that is made up.
    fn announced(&mut self, made_up: &str) -> Result<()> {
        let deleting = || self.subject.spec.policies().iter().filter(|policy| policy.action.deletes());
        let next = self.status.next.as_ref().and_then(|next| next.policy.as_ref());
        let policy = deleting().find(|policy| Some(&policy.name) == next).or_else(|| deleting().next());
        let Some(policy) = policy.cloned() else {
            bail!("{} has no policy that deletes, so that no deletion is announced", self.subject.manager());
        };
        let notice = policy.action.notice();
        let reason = self.cause(&policy);
        let mut not_before = self.later(notice);
        if reason == Reason::TtlElapsed {
            let end = *self.status.expires_at.get_or_insert(not_before);
            not_before = not_before.max(end);
        }
        self.status.steps.notice = Some(Notice {
            policy: policy.name,
            uid: self.subject.facts.uid.clone(),
            given_at: self.at,
            not_before,
            reason: Some(reason.as_str().to_owned()),
            losses: None,
        });
        self.made_up.push(made_up.to_owned());
        Ok(())
    }

    /// Why a policy deletes: what the namespace is already, or else the first that the policy waits for.
    fn cause(&mut self, policy: &ValidClusterPolicy) -> Reason {
        let phases = match &policy.condition {
            ClusterCondition::Ttl(_) => return Reason::TtlElapsed,
            ClusterCondition::PodsSucceed(_) => return Reason::PodsSucceeded,
            ClusterCondition::Phase { phases, .. } => phases,
        };
        let is_now = |phase: &&PolicyPhase| self.status.phase == Some(namespace_phase(**phase));
        let phase = phases.iter().find(is_now).or_else(|| phases.first()).copied();
        match phase {
            None | Some(PolicyPhase::Stale) => Reason::TtlElapsed,
            Some(PolicyPhase::Superseded) => {
                self.superseded();
                Reason::Superseded
            }
            Some(phase) => {
                self.fails(namespace_phase(phase));
                Reason::Unhealthy
            }
        }
    }
}

const fn namespace_phase(phase: PolicyPhase) -> NamespacePhase {
    match phase {
        PolicyPhase::Stale => NamespacePhase::Stale,
        PolicyPhase::Superseded => NamespacePhase::Superseded,
        PolicyPhase::Unstable => NamespacePhase::Unstable,
        PolicyPhase::Failing => NamespacePhase::Failing,
        PolicyPhase::Failed => NamespacePhase::Failed,
    }
}
