//! The campaign finds bugs: an operator that has one, on purpose, does not get through it; and each is found by the rule that is about
//! it. With that rule switched off, what the bug does goes unnoticed, but for how the scenario ends and what people do in vain.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "shown on request")]

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use coppice_campaign::oracle::Rule;
use coppice_campaign::oracle::rule::{
    BREAKER, CLOCKS, INTENT_FIRST, LEASE, NOTICE, NOTICE_DATE, ONCE, PAUSED, PER_HOUR, PER_MINUTE,
    PRECONDITIONS, PROTECTED, QUIET, RECORDED, REQUESTED, SHARE,
};
use coppice_campaign::run::{RunPlan, run, run_without};
use coppice_campaign::suite::access::rule::{
    CREDENTIAL_RIGHTS, ONE_CREDENTIAL, OUTLIVES, SIGNING_REQUESTS, VALID,
};
use coppice_campaign::suite::cluster::rule::{
    AGREES, APPROVED, DELIVERED, GOVERNED, HEALTH, HOURS, JOINED, NOTIFIED, OBSERVES, ONE_DELETION, ONE_KEY,
    RECIPIENT, RECREATED, SUPERSEDED, WEBHOOKS_FIRST,
};
use coppice_campaign::suite::lifecycle::rule::{
    HELD, INITIAL_DELAY, JOBS, LIMITS, ORIGINAL_REPLICAS, PODS, REVERTED, SELECTED, SETTLE, SUSPENDED, TTL,
};
use coppice_campaign::suite::trees::rule::{
    AS_REQUESTED, ASKED_FOR, CHILDREN, CONSENT, CREATED_HERE, DENIED, LIMIT, MOVED_ONCE, NOTHING_LOST,
    REFUSED, RIGHTS, SETTLED, TREE_BUDGET, USED,
};
use coppice_campaign::suite::{self, Suite};
use coppice_mutants::Mutant;
use coppice_sim::scenario::Scenario;
use jiff::SignedDuration;

/// Each bug, the scenario that shows it, and the rule that has to find it.
const CASES: [(Mutant, &str, Rule); 130] = [
    (Mutant::InitialDelayIgnored, "delay", INITIAL_DELAY),
    (Mutant::SettleIgnored, "settling", SETTLE),
    (Mutant::GapIgnored, "settling", SETTLE),
    (Mutant::PodSelectorIgnored, "evidence", PODS),
    (Mutant::MinPodsIgnored, "evidence", PODS),
    (Mutant::JobsIgnored, "evidence", JOBS),
    (Mutant::TerminatingPodsIgnored, "evidence", PODS),
    (Mutant::FailedPodsIgnored, "evidence", PODS),
    (Mutant::UnreadableIsEmpty, "list-fails", PODS),
    (Mutant::ExtensionIgnored, "extended", TTL),
    (Mutant::HoldIgnored, "held", HELD),
    (Mutant::SuspendIgnored, "held", SUSPENDED),
    (Mutant::NoticeSkipped, "notice", NOTICE),
    (Mutant::ExpiryNoticeIgnored, "expiry-shortened", NOTICE),
    (Mutant::NoticeMovedEarlier, "notice-shortened", NOTICE_DATE),
    (Mutant::ProtectionIgnored, "ttl-fires", PROTECTED),
    (Mutant::DormancyIgnored, "rearm", ONCE),
    (Mutant::RearmNeverExpires, "rearm", ONCE),
    (Mutant::PauseIgnored, "paused", PAUSED),
    (Mutant::BreakerIgnored, "collapse", BREAKER),
    (Mutant::BreakerDropped, "collapse", BREAKER),
    (Mutant::PerMinuteIgnored, "budget", PER_MINUTE),
    (Mutant::PerHourIgnored, "hourly", PER_HOUR),
    (Mutant::ShareIgnored, "share", SHARE),
    (Mutant::ReservationNotRecorded, "budget", PER_MINUTE),
    (Mutant::ClockSkewIgnored, "ttl-fires", CLOCKS),
    (Mutant::NoPreconditions, "ttl-fires", PRECONDITIONS),
    (Mutant::DeletionNotRecorded, "ttl-fires", RECORDED),
    (Mutant::RecordWithdrawnAtOnce, "ttl-fires", RECORDED),
    (Mutant::DeletedUnread, "ttl-fires", RECORDED),
    (Mutant::NoRevision, "ttl-fires", PRECONDITIONS),
    (Mutant::NoScalePreconditions, "scaled-down", PRECONDITIONS),
    (Mutant::WorkloadSelectorIgnored, "recreated-workload", SELECTED),
    (Mutant::WrongReplicasRecorded, "scaled-down", ORIGINAL_REPLICAS),
    (Mutant::WokenByName, "recreated-workload", ORIGINAL_REPLICAS),
    (Mutant::DeleteByCaches, "list-fails", PODS),
    (Mutant::ScaleByCaches, "list-fails", PODS),
    (Mutant::ScaleDecidedOnce, "many-held", HELD),
    (Mutant::ScaleDecidedOnce, "many-paused", PAUSED),
    (Mutant::LeaseIgnored, "ttl-fires", LEASE),
    (Mutant::KeyedByName, "ttl-fires", QUIET),
    (Mutant::ActBeforeSync, "unreadable", PODS),
    (Mutant::OutcomeBeforeEffect, "ttl-fires", INTENT_FIRST),
    (Mutant::StatusEveryLoop, "ttl-fires", QUIET),
    (Mutant::Polling, "ttl-fires", QUIET),
    (Mutant::ObserveIgnored, "cluster-observed", OBSERVES),
    (Mutant::GovernedSettleIgnored, "cluster-settles", GOVERNED),
    (Mutant::ApprovalIgnored, "cluster-unapproved", APPROVED),
    (Mutant::ApprovalIgnored, "cluster-holds-end", APPROVED),
    (Mutant::RecreationIgnored, "cluster-recreated-often", RECREATED),
    (Mutant::FiredAgain, "cluster-scaled-down", ONCE),
    (Mutant::WrongReplicasRecorded, "cluster-scaled-down", ORIGINAL_REPLICAS),
    (Mutant::RevertedForEver, "cluster-reverted", REVERTED),
    (Mutant::ExtensionIgnored, "cluster-extended", TTL),
    (Mutant::HoldIgnored, "cluster-held", HELD),
    (Mutant::SuspendIgnored, "cluster-suspended", SUSPENDED),
    (Mutant::NoticeSkipped, "cluster-announced", NOTICE),
    (Mutant::ProtectionIgnored, "cluster-enforced", PROTECTED),
    (Mutant::DeletionNotRecorded, "cluster-enforced", RECORDED),
    (Mutant::HealthClocksIgnored, "cluster-failed", HEALTH),
    (Mutant::HealthClocksIgnored, "cluster-budget-spent", HEALTH),
    (Mutant::RecoveryIgnored, "cluster-recovers", HEALTH),
    (Mutant::WorkloadsByCaches, "cluster-recovers", HEALTH),
    (Mutant::WorkloadsByCaches, "cluster-pods-run-again", PODS),
    (Mutant::GapsUnseen, "cluster-pods-unfollowed", HEALTH),
    (Mutant::NoticeSkipped, "cluster-pods-succeed", NOTICE),
    (Mutant::DeletedBeforeWebhooks, "cluster-webhooks-first", WEBHOOKS_FIRST),
    (Mutant::WebhooksLost, "cluster-tenant-webhooks-first", WEBHOOKS_FIRST),
    (Mutant::SuccessorNotReady, "cluster-never-ready", SUPERSEDED),
    (Mutant::UnknownIsReady, "cluster-readiness-unknown", SUPERSEDED),
    (Mutant::SupersededSupersedes, "cluster-superseded-in-turn", SUPERSEDED),
    (Mutant::SuccessorByCaches, "cluster-successor-goes", SUPERSEDED),
    (Mutant::DeletedUnnotified, "cluster-notified", NOTIFIED),
    (Mutant::DeletedUnnotified, "cluster-unnotified", NOTIFIED),
    (Mutant::NoticeKeyChanges, "cluster-notified", ONE_KEY),
    (Mutant::NoticeKeyChanges, "cluster-notified-in-slack-at-work", ONE_KEY),
    (Mutant::JoinedDropped, "cluster-notified-of-many-again", ONE_KEY),
    (Mutant::NotificationLost, "cluster-notified-gone", DELIVERED),
    (Mutant::UnsentIsDelivered, "cluster-notified-withdrawn-late", DELIVERED),
    (Mutant::FailedNoticeDropped, "cluster-notified-withdrawn-late", DELIVERED),
    (Mutant::SupersededUnlisted, "cluster-proceeds", DELIVERED),
    (Mutant::DeletedUnnotified, "cluster-notified-another", NOTIFIED),
    (Mutant::FallbackFirst, "cluster-notified-fallback", RECIPIENT),
    (Mutant::NothingJoined, "cluster-notified-of-many", JOINED),
    (Mutant::HoursIgnored, "cluster-notified-at-work", HOURS),
    (Mutant::HoursIgnored, "cluster-notified-in-slack-at-work", HOURS),
    (Mutant::UnreadIsAbsent, "cluster-newly-named", GOVERNED),
    (Mutant::ShortenedTtlAtOnce, "cluster-ttl-shortened", GOVERNED),
    (Mutant::TenantLimitsIgnored, "limited-notice", NOTICE),
    (Mutant::TenantLimitsIgnored, "limited-actions", LIMITS),
    (Mutant::HoldLimitedAtOnce, "cluster-limited", HELD),
    (Mutant::UnselectedDeleted, "cluster-unselected-late", REQUESTED),
    (Mutant::GovernedForEver, "cluster-unselected", AGREES),
    (Mutant::ExpiryKept, "cluster-extended", AGREES),
    (Mutant::PhaseKept, "cluster-recovers", AGREES),
    (Mutant::PhaseKept, "cluster-extended-late", AGREES),
    (Mutant::OtherDeletionIgnored, "cluster-two-sources", ONE_DELETION),
    (Mutant::PerHourIgnored, "cluster-hourly", PER_HOUR),
    (Mutant::GapIgnored, "cluster-pods-unfollowed", HEALTH),
    (Mutant::QuotaGivenAtOnce, "tree-siblings", LIMIT),
    (Mutant::TransferAtOnce, "tree-pods-and-transfer", USED),
    (Mutant::AppliedIgnored, "tree-transferred-again", MOVED_ONCE),
    (Mutant::QuotaReturnedAtOnce, "tree-slow-deletion", LIMIT),
    (Mutant::UsedQuotaTaken, "tree-pods", USED),
    (Mutant::UsedQuotaTaken, "tree-cpu", USED),
    (Mutant::QuotaNotReturned, "tree-deep", NOTHING_LOST),
    (Mutant::ChildrenIgnored, "tree-child-in-the-way", CHILDREN),
    (Mutant::ConsentIgnored, "tree-cascade-over", CONSENT),
    (Mutant::ArrivingUncounted, "tree-parent-goes-away", LIMIT),
    (Mutant::ParentEndIgnored, "tree-leaf-outlives-parent", ASKED_FOR),
    (Mutant::NamespaceTakenUp, "tree-name-taken", CREATED_HERE),
    (Mutant::OtherRoleBound, "tree-bindings", RIGHTS),
    (Mutant::EndingKeepsQuota, "tree-transfer-to-ending", NOTHING_LOST),
    (Mutant::RefusedForEver, "tree-refused-until-free", REFUSED),
    (Mutant::NewRequestIgnored, "tree-resized", AS_REQUESTED),
    (Mutant::ReviewReserves, "tree-tried", DENIED),
    (Mutant::DeniedByCaches, "tree-denied", DENIED),
    (Mutant::AdmittedUnchecked, "tree-admitted-together", LIMIT),
    (Mutant::TransferDoubled, "tree-transferred-again", LIMIT),
    (Mutant::EarlierRequestStands, "tree-asked-back", AS_REQUESTED),
    (Mutant::FinalizerKept, "tree-namespace-deleted", SETTLED),
    (Mutant::TransferUnended, "tree-transfer-to-empty", SETTLED),
    (Mutant::TreeBudgetIgnored, "tree-flooded", TREE_BUDGET),
    (Mutant::TreesShareBudget, "tree-flooded", SETTLED),
    (Mutant::RevokedFirst, "access-requested", VALID),
    (Mutant::BoundSecretsLeft, "access-rotated", OUTLIVES),
    (Mutant::RightsKept, "access-narrowed", CREDENTIAL_RIGHTS),
    (Mutant::BoundSecretReused, "access-rotated", ONE_CREDENTIAL),
    (Mutant::SigningRequestLeft, "access-certificate-requested", SIGNING_REQUESTS),
    (Mutant::CertificateUnlisted, "access-certificate-requested", ONE_CREDENTIAL),
];

/// What a bug breaks besides, by its nature: who asked for less and keeps more is beyond what was asked for, a transfer that nobody can
/// give back has no end, and what a namespace that is gone does not return, those above it lack.
const BESIDES: [(Mutant, Rule); 4] = [
    (Mutant::QuotaNotReturned, AS_REQUESTED),
    (Mutant::NewRequestIgnored, LIMIT),
    (Mutant::EarlierRequestStands, LIMIT),
    (Mutant::EndingKeepsQuota, SETTLED),
];

/// A scenario without faults, then with faults by chance.
fn plans(mutant: Mutant, suite: Suite, scenario: Scenario) -> impl Iterator<Item = RunPlan> {
    let without_faults = suite.without_faults(scenario.clone(), 0);
    let random = (0..2000).map(move |seed| suite.random_of(scenario.clone(), seed));
    [without_faults].into_iter().chain(random).map(move |mut plan| {
        plan.mutant = Some(mutant);
        if mutant == Mutant::ClockSkewIgnored {
            plan.replicas.iter_mut().for_each(|replica| replica.clock_error = SignedDuration::from_mins(10));
        }
        plan
    })
}

/// What is wrong with a hunt; none if the bug is found as it should be.
fn check_mutant(mutant: Mutant, scenario: &str, rule: Rule) -> Option<String> {
    let by = |sentence: &String| sentence.starts_with(&format!("{rule}: "));
    let (suite, found) = suite::find(suite::ALL, scenario).unwrap();
    let mut others = Vec::new();
    for (n, plan) in plans(mutant, suite, found).enumerate() {
        let found = run(&suite, &plan).unwrap().violations;
        if !found.iter().any(by) {
            others.extend(found);
            continue;
        }
        println!("{mutant:?}: found in run {} of {scenario}: {}", n + 1, found.join("; "));
        let mut without = run_without(&suite, &plan, Some(rule)).unwrap().violations;
        let besides = BESIDES.iter().filter(|(other, _)| *other == mutant).map(|(_, rule)| rule.to_string());
        let expected: Vec<String> =
            besides.chain(["SCRIPT".to_owned()]).map(|rule| format!("{rule}: ")).collect();
        without.retain(|sentence| !expected.iter().any(|rule| sentence.starts_with(rule)));
        let found_too = || format!("{mutant:?} is found without {rule}, too: {}", without.join("; "));
        return (!without.is_empty()).then(found_too);
    }
    others.dedup();
    others.truncate(5);
    Some(format!("{mutant:?} is not found by {rule} in {scenario}, but {others:?}"))
}

#[test]
fn every_mutant_is_found_by_its_rule_and_by_no_other() {
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, Into::into) {
            scope.spawn(|| {
                while let Some((mutant, scenario, rule)) = CASES.get(next.fetch_add(1, Ordering::Relaxed)) {
                    // Not under the lock, which would make one wait for the other.
                    let found = check_mutant(*mutant, scenario, *rule);
                    wrong.lock().unwrap().extend(found);
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
