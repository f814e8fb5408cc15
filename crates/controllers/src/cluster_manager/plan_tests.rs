use coppice_api::CoppiceConfigSpec;
use coppice_kinds::ClusterManagers;
use coppice_lifecycle::PlatformSettings;
use coppice_lifecycle::cluster::census::{Census, Counts};
use coppice_runtime::decode;
use serde_json::{Value, json};

use super::*;

fn manager(spec: &Value, status: &Value) -> Arc<ClusterManager> {
    let metadata = json!({"name": "ci", "uid": "u", "generation": 2, "resourceVersion": "1"});
    let object = json!({"metadata": metadata, "spec": spec, "status": status}).to_string();
    Arc::new(decode::item::<ClusterManagers>(&object, &()).unwrap().object.unwrap())
}

fn observation(manager: Arc<ClusterManager>, recorded: u32) -> Observation {
    let namespaces = NamespaceCounts { selected: 4, governed: 3, recorded, ..NamespaceCounts::default() };
    let digest = manager.spec.as_ref().map(|spec| spec.digest().to_owned()).unwrap_or_default();
    let counts = Counts { digest, namespaces, ..Counts::default() };
    let managers = [("ci".to_owned(), counts)].into();
    let at = Timestamp::UNIX_EPOCH;
    let census = Census {
        at,
        managers,
        enforced: 0,
        per_hour: 0,
        successors: None,
        recreated: None,
        next_check: None,
    };
    let census = manager.spec.is_ok().then(|| Arc::new(census));
    let settings =
        Arc::new(PlatformSettings::new(CoppiceConfigSpec::default(), "coppice-system", Vec::new()));
    let annotations = AnnotationKeys::default();
    let refused = std::collections::BTreeMap::new();
    Observation { managers: vec![manager], census, annotations, refused, settings, now: at }
}

fn written(observation: &Observation) -> Option<(ClusterNamespaceManagerStatus, String)> {
    let write = plan(observation).writes.pop()?;
    let conditions = write.status.conditions.iter();
    let said = conditions.map(|c| format!("{} {} {}", c.type_, c.status, c.reason)).collect::<Vec<_>>();
    Some((*write.status, said.join(", ")))
}

#[test]
fn a_status_is_written_when_it_says_something_new() {
    let spec = json!({"selector": {"names": ["ci-*"]}});
    let (status, said) = written(&observation(manager(&spec, &json!({})), 2)).unwrap();
    assert_eq!(
        said,
        "Accepted True Accepted, Approved True ApprovalNotNeeded, BudgetSufficient True BudgetSufficient, Ready False RecordsPending"
    );
    assert_eq!((status.namespaces.governed, status.observed_generation), (3, Some(2)));
    assert!(status.policy_digest.as_ref().unwrap().starts_with("c1:"));
    let again = manager(&spec, &serde_json::to_value(&status).unwrap());
    assert!(written(&observation(Arc::clone(&again), 2)).is_none(), "nothing is new");
    let (_, said) = written(&observation(again, 3)).unwrap();
    assert!(said.ends_with("Ready True Reconciled"), "{said}");
}

#[test]
fn a_record_that_is_refused_says_why_in_the_condition_of_its_own_manager() {
    let spec = json!({"selector": {"names": ["ci-*"]}});
    let says = |recorded, manager_name: &str| {
        let mut observation = observation(manager(&spec, &json!({})), recorded);
        let why = "the API server refused: exceeded quota: records (403)".to_owned();
        let refused = super::super::observe::RefusedRecord { namespace: "ci-a".to_owned(), why };
        observation.refused.insert(manager_name.to_owned(), refused);
        let (status, _) = written(&observation).unwrap();
        let said = condition::find(&status.conditions, READY).unwrap();
        format!("{} {}: {}", said.status, said.reason, said.message)
    };
    let pending = "False RecordsPending: of 2 of the 3 namespaces that it governs the record does not say so yet; nothing is done \
                   to them before it does";
    assert_eq!(
        says(1, "ci"),
        format!(
            "{pending}. That of ci-a could not be written: the API server refused: exceeded quota: records (403)"
        )
    );
    assert_eq!(says(1, "other"), pending);
    assert_eq!(says(3, "ci"), "True Reconciled: every namespace that it governs has a record that says so");
}

/// The condition of this type, when so many are newly due, and so many in an hour, with ten steps an hour.
fn condition(spec: &Value, type_: &str, newly_due: u32, per_hour: u32) -> String {
    condition_with_budget(10, spec, type_, (newly_due, per_hour))
}

/// The same, with so many steps an hour.
fn condition_with_budget(
    hourly_budget: u32,
    spec: &Value,
    type_: &str,
    (newly_due, per_hour): (u32, u32),
) -> String {
    let manager = manager(spec, &json!({}));
    let mut observation = observation(Arc::clone(&manager), 3);
    let census = Arc::make_mut(observation.census.as_mut().unwrap());
    let enforce = &mut census.managers.get_mut("ci").unwrap().enforce;
    (enforce.newly_due, enforce.per_hour, enforce.hourly_budget) = (newly_due, per_hour, hourly_budget);
    census.per_hour = if spec["mode"] == "Enforce" { per_hour } else { 0 };
    let (status, _) = written(&observation).unwrap();
    let one = condition::find(&status.conditions, type_).unwrap();
    format!("{} {}: {}", one.status, one.reason, one.message)
        .replace(manager.spec.as_ref().unwrap().enforcing_digest(), "ENFORCING")
}

#[test]
fn more_than_the_budget_needs_approval_and_says_what_to_write() {
    let spec = json!({"selector": {"names": ["ci-*"]}});
    assert!(condition(&spec, APPROVED, 10, 0).starts_with("True ApprovalNotNeeded: "));
    assert_eq!(
        condition(&spec, APPROVED, 11, 0),
        "False ApprovalNeeded: 11 namespaces were due before this spec had governed them for settle, more than the hourly \
         budget of 10, and there is no spec.approval: with mode Enforce they would wait. To approve it, set spec.approval to \
         {digest: \"ENFORCING\", namespaces: 11, validUntil: TIME}, with the time until which that is meant, such as tomorrow"
    );
    let digest = manager(&spec, &json!({})).spec.as_ref().unwrap().enforcing_digest().to_owned();
    let approved = |approval: Value| json!({"selector": {"names": ["ci-*"]}, "approval": approval});
    for (approval, namespaces, said) in [
        (
            json!({"digest": digest, "namespaces": 11, "validUntil": "1970-01-02T00:00:00Z"}),
            11,
            "True ApprovalGiven: ",
        ),
        (
            json!({"digest": digest, "namespaces": 11, "validUntil": "1970-01-02T00:00:00Z"}),
            12,
            "spec.approval is for 11 namespaces",
        ),
        (
            json!({"digest": "c1:0", "namespaces": 99, "validUntil": "1970-01-02T00:00:00Z"}),
            11,
            "spec.approval names the digest of another spec",
        ),
        (
            json!({"digest": digest, "namespaces": 99, "validUntil": "1970-01-01T00:00:00Z"}),
            11,
            "spec.approval was valid until 1970-01-01T00:00:00Z",
        ),
        (
            json!({"digest": digest, "namespaces": 99, "validUntil": "1970-01-01T00:00:01Z"}),
            11,
            "True ApprovalGiven: ",
        ),
    ] {
        let says = condition(&approved(approval), APPROVED, namespaces, 0);
        assert!(says.contains(said), "{says}");
    }
}

#[test]
fn what_becomes_due_or_is_allowed_once_is_spoken_of_as_one() {
    let spec = json!({"mode": "Enforce", "selector": {"names": ["ci-*"]}});
    let says = condition_with_budget(0, &spec, APPROVED, (1, 0));
    assert!(says.contains(" 1 namespace was due before this spec had governed it for settle"), "{says}");
    assert!(says.contains(": nothing is done to it. "), "{says}");
    let says = condition_with_budget(0, &spec, BUDGET_SUFFICIENT, (0, 1));
    assert!(says.contains(" 1 namespace becomes due in an hour by "), "{says}");
    let says = condition_with_budget(1, &spec, BUDGET_SUFFICIENT, (0, 2));
    assert!(says.contains(", and the budget is 1 destructive step: raise "), "{says}");
}

#[test]
fn a_budget_below_what_becomes_due_says_what_to_raise() {
    let spec = json!({"mode": "Enforce", "selector": {"names": ["ci-*"]}});
    assert!(condition(&spec, BUDGET_SUFFICIENT, 0, 10).starts_with("True BudgetSufficient: "));
    assert_eq!(
        condition(&spec, BUDGET_SUFFICIENT, 0, 400),
        "False BudgetBelowArrivals: 400 namespaces become due in an hour by the cluster managers that enforce, and the \
         budget is 10 destructive steps: raise perHour to 400 or more and maxShare, or atLeast to 400 or more in \
         spec.governor of CoppiceConfig/coppice"
    );
    let observing = json!({"selector": {"names": ["ci-*"]}});
    let says = condition(&observing, BUDGET_SUFFICIENT, 0, 11);
    assert!(
        says.contains("by it, if it enforced, and those that do") && says.contains("atLeast to 11"),
        "{says}"
    );
}

#[test]
fn one_whose_annotations_are_not_read_says_so_and_the_others_stay_as_they_are() {
    let spec = json!({"selector": {"annotations": [{"key": "example.org/run"}]}});
    let unread = |status: Value| Observation { census: None, ..observation(manager(&spec, &status), 0) };
    let (status, said) = written(&unread(json!({}))).unwrap();
    assert_eq!(said, "Accepted True Accepted, Ready Unknown AnnotationsNotRead");
    assert_eq!((status.namespaces.selected, status.observed_generation), (0, Some(2)));
    let counted = |digest: &str| json!({"policyDigest": digest, "namespaces": {"selected": 4, "governed": 3, "recorded": 3}});
    let same = written(&unread(counted(status.policy_digest.as_ref().unwrap()))).unwrap().0;
    assert_eq!(same.namespaces.selected, 4, "after a restart it is what it was");
    let approved = json!([{"type": "Approved", "status": "False", "reason": "ApprovalNeeded", "message": "m",
        "lastTransitionTime": "1970-01-01T00:00:00Z"}]);
    let mut before = counted(status.policy_digest.as_ref().unwrap());
    before["conditions"] = approved;
    let (_, said) = written(&unread(before.clone())).unwrap();
    assert_eq!(
        said, "Accepted True Accepted, Ready Unknown AnnotationsNotRead",
        "it may have been approved since"
    );
    before["observedGeneration"] = 2.into();
    let (_, said) = written(&unread(before.clone())).unwrap();
    let ready = "Accepted True Accepted, Approved False ApprovalNeeded, Ready Unknown AnnotationsNotRead";
    assert_eq!(said, ready, "what was counted stays, and its Event does not come again");
    before["policyDigest"] = "c1:0".into();
    let (_, said) = written(&unread(before)).unwrap();
    assert_eq!(said, "Accepted True Accepted, Ready Unknown AnnotationsNotRead");
    let other = written(&unread(counted("c1:0"))).unwrap().0;
    assert_eq!(other.namespaces.selected, 0, "that was another spec");
    let read = Observation { annotations: AnnotationKeys::named(["example.org/run"]), ..unread(json!({})) };
    assert!(written(&read).is_none(), "another manager names what was not read");
    let by_names = observation(manager(&json!({"selector": {"names": ["a"]}}), &json!({})), 0);
    assert!(written(&Observation { census: None, ..by_names }).is_none());
}

#[test]
fn one_that_cannot_be_understood_says_so() {
    let broken = manager(&json!({"selector": {}}), &json!({}));
    let (status, said) = written(&observation(broken, 0)).unwrap();
    assert_eq!(said, "Accepted False InvalidSpec, Ready False InvalidSpec");
    let message = &status.conditions[0].message;
    assert!(message.contains("select by names, labels, annotations or anyOf"), "{message}");
    let unreadable = manager(&json!({"selector": {"names": ["a"]}}), &json!({"namespaces": 3}));
    assert!(written(&observation(unreadable, 3)).is_none(), "the status of another version is left as it is");
}

#[test]
fn conditions_show_the_share_of_namespaces_that_do_not_say_whose_or_what_for_they_are() {
    let spec = json!({
        "selector": {"names": ["ci-*"]}, "owner": {"labels": ["team"]}, "health": {},
        "identity": {"project": "p", "branch": "b"}, "supersede": {"by": ["Branch"]},
    });
    let says = |without_owner, without_identity, type_: &str| {
        let mut observation = observation(manager(&spec, &json!({})), 3);
        let census = Arc::make_mut(observation.census.as_mut().unwrap());
        let counts = &mut census.managers.get_mut("ci").unwrap().namespaces;
        (counts.without_owner, counts.without_identity) = (Some(without_owner), Some(without_identity));
        let (status, _) = written(&observation).unwrap();
        let said = condition::find(&status.conditions, type_).unwrap();
        format!("{} {}: {}", said.status, said.reason, said.message)
    };
    let all = "every governed namespace says it";
    assert_eq!(says(0, 0, OWNERS_KNOWN), format!("True OwnersKnown: {all}"));
    assert_eq!(says(0, 0, IDENTITIES_KNOWN), format!("True IdentitiesKnown: {all}"));
    let owners = "False OwnersMissing: 2 of 3 governed namespaces (66 %) do not say who owns them";
    assert_eq!(says(2, 0, OWNERS_KNOWN), owners);
    let identities =
        "False IdentitiesMissing: 1 of 3 governed namespaces (33 %) does not say what they were made for";
    assert_eq!(says(0, 1, IDENTITIES_KNOWN), identities);
    // Where nobody reads them there is nothing to say.
    let (status, said) =
        written(&observation(manager(&json!({"selector": {"names": ["a"]}}), &json!({})), 3)).unwrap();
    assert!(!said.contains("OwnersKnown") && status.namespaces.without_owner.is_none(), "{said}");
}

#[test]
fn a_channel_that_there_is_not_is_named() {
    let spec = json!({"selector": {"names": ["ci-*"]}, "notify": {"channels": ["mail", "slack"]}});
    let says = |channels: serde_json::Value| {
        let mut observation = observation(manager(&spec, &json!({})), 3);
        let mut settings = (*observation.settings).clone();
        settings.config.channels = serde_json::from_value(channels).unwrap();
        observation.settings = Arc::new(settings);
        let (status, _) = written(&observation).unwrap();
        let said = condition::find(&status.conditions, CHANNELS_KNOWN).unwrap();
        format!("{} {}: {}", said.status, said.reason, said.message)
    };
    let channel = |name: &str| json!({"name": name, "webhook": {"url": "https://ci.example.org/hook"}});
    assert_eq!(
        says(json!([channel("slack"), channel("mail")])),
        "True ChannelsKnown: CoppiceConfig/coppice has every channel that spec.notify names"
    );
    assert_eq!(
        says(json!([channel("mail"), channel("hook")])),
        "False ChannelsMissing: CoppiceConfig/coppice has no channel slack; it has mail, hook. By a channel that there is not nobody is notified"
    );
    assert!(says(json!([])).contains("has no channel mail, slack; it has none."));
    let silent = observation(manager(&json!({"selector": {"names": ["a"]}}), &json!({})), 3);
    assert!(!written(&silent).unwrap().1.contains("ChannelsKnown"), "where nobody is notified");
}

#[path = "plan_lint_tests.rs"]
mod lint;
