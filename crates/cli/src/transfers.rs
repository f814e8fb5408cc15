//! Transfers of quota between namespaces of a tree: what is asked for, the route it takes, and what is said of it.

mod amount;
pub(crate) mod live;
mod route;

use coppice_api::names::GROUP;
use coppice_api::{QuotaTransferSpec, QuotaTransferStatus, TransferPhase};
use coppice_hierarchy::{QuotaRefusal, ResourceName, Resources};
use coppice_quantity::Quantity;

pub(crate) use amount::{Amount, resources_of, transferable};
pub(crate) use route::{NoRoute, Route, path};

use crate::Exit;
use crate::facts::Object;
use crate::trees::NamespaceQuota;
use route::needs_approval;

/// A `QuotaTransfer`.
pub(crate) type QuotaTransfer = Object<QuotaTransferSpec, QuotaTransferStatus>;

/// How kubectl names a transfer.
pub(crate) fn resource_name(name: &str) -> String {
    format!("quotatransfer.{GROUP}/{name}")
}

/// Who has to approve a transfer that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TransferApproval {
    /// Nobody.
    NotNeeded,
    /// The user who asks may approve it, and does.
    Own(String),
    /// Somebody else.
    Waits,
}

impl TransferApproval {
    /// The state of a transfer that was just created.
    pub(crate) fn state(&self, route: &Route, name: &str) -> String {
        match self {
            Self::NotNeeded => "it needs no approval".to_owned(),
            Self::Own(user) => format!("approved by {user}"),
            Self::Waits => format!(
                "it waits for approval by {}: coppice transfer approve {}/{name}",
                route.approvers(),
                route.source()
            ),
        }
    }

    /// Who would have to approve it.
    pub(crate) fn forecast(&self, route: &Route) -> String {
        match self {
            Self::NotNeeded if route.through() == route.to() => {
                format!("not needed: {} is below {}", route.source(), route.to())
            }
            Self::NotNeeded => format!("not needed: {} is below {}", route.to(), route.source()),
            Self::Own(user) => format!("by yourself: {user} may create QuotaTransfers where that is needed"),
            Self::Waits => format!("by {}; you may not", route.approvers()),
        }
    }
}

/// The spec to create.
pub(crate) fn spec(
    route: &Route,
    amount: &Resources,
    reason: &str,
    (requester, approval): (&str, &TransferApproval),
) -> QuotaTransferSpec {
    QuotaTransferSpec {
        to: route.to().to_owned(),
        through: route.through().to_owned(),
        amount: amount.iter().map(|(name, amount)| (name.as_str().to_owned(), amount)).collect(),
        reason: reason.to_owned(),
        requester: requester.to_owned(),
        approved_by: match approval {
            TransferApproval::Own(user) => Some(user.clone()),
            TransferApproval::NotNeeded | TransferApproval::Waits => None,
        },
    }
}

/// How much the source has of what it is to give.
pub(crate) fn free(amount: &Resources, quota: &NamespaceQuota) -> Resources {
    let free = quota.own.minus(&quota.used);
    Resources::parse(amount.iter().map(|(name, _)| (name.as_str(), free.get(name)))).unwrap_or_default()
}

/// Why the source cannot give that at present, in the words of the controller; nothing if it can.
pub(crate) fn refusals(source: &str, amount: &Resources, quota: &NamespaceQuota) -> Vec<QuotaRefusal> {
    let (free, limited) = (free(amount, quota), &quota.ledger.allotment);
    let refusal = |(name, amount): (&ResourceName, Quantity)| {
        if !limited.names(name) {
            let known: Vec<&str> = limited.iter().map(|(name, _)| name.as_str()).collect();
            return Some(QuotaRefusal::NotInTree { name: name.clone(), known: known.join(", ") });
        }
        let unused = free.get(name);
        (amount > unused).then(|| QuotaRefusal::CannotGive {
            name: name.clone(),
            namespace: source.to_owned(),
            amount,
            own: quota.own.get(name),
            used: quota.used.get(name),
            unused,
        })
    };
    amount.iter().filter_map(refusal).collect()
}

/// How a transfer has ended, or that it waits for approval; none while it goes on.
pub(crate) fn end(status: &QuotaTransferStatus) -> Option<Exit> {
    match status.phase {
        Some(TransferPhase::Completed) if status.ended_at.is_some() => Some(Exit::Ok),
        Some(TransferPhase::PendingApproval) => Some(Exit::Attention),
        _ => status.ended_at.map(|_| Exit::Attention),
    }
}

/// The state of a transfer, and why: `Refused: pods: ...`.
pub(crate) fn state(status: &QuotaTransferStatus) -> String {
    let Some(phase) = status.phase else {
        return "not looked at yet: see whether coppice-trees runs (kubectl -n coppice-system get deployment coppice-trees)"
            .to_owned();
    };
    let ready = coppice_api::condition::find(&status.conditions, coppice_api::condition::READY);
    let why = ready.map(|ready| ready.message.as_str()).filter(|why| !why.is_empty());
    why.map_or_else(|| phase.as_str().to_owned(), |why| format!("{}: {why}", phase.as_str()))
}

/// Why a transfer is not approved, if there is nothing to approve.
pub(crate) fn settled(transfer: &QuotaTransfer, spec: &QuotaTransferSpec) -> Option<String> {
    let status = &transfer.status;
    if let Some(user) = &spec.approved_by {
        return Some(match status.ended_at {
            None => format!("was approved before, by {user}"),
            Some(_) => format!("was approved before, by {user}, and has ended: {}", state(status)),
        });
    }
    if needs_approval(transfer.namespace(), &spec.to, &spec.through) {
        return None;
    }
    Some(match status.ended_at {
        None => "needs no approval".to_owned(),
        Some(_) => format!("needed no approval, and has ended: {}", state(status)),
    })
}

#[cfg(test)]
mod tests {
    use super::route::Target;
    use super::*;

    fn amount(text: &str) -> Resources {
        let amounts: Vec<Amount> = text.split(',').map(|one| one.parse().unwrap()).collect();
        resources_of(&amounts).unwrap()
    }

    fn quota(own: &str, used: &str) -> NamespaceQuota {
        let ledger = r#"{"allotment": {"pods": "10", "cpu": "4"}, "given": {}}"#;
        let read = |text: &str| serde_json::from_str(text).unwrap();
        NamespaceQuota {
            tree: "shop".to_owned(),
            own: read(own),
            used: read(used),
            ledger: serde_json::from_str(ledger).unwrap(),
        }
    }

    #[test]
    fn what_a_source_cannot_give_is_said_with_the_numbers() {
        let quota = quota(r#"{"pods": "8", "cpu": "4"}"#, r#"{"pods": "5", "cpu": "1"}"#);
        let refusals = |text: &str| {
            let refusals = refusals("web", &amount(text), &quota);
            refusals.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(refusals("pods=3,cpu=3"), Vec::<String>::new());
        assert_eq!(free(&amount("pods=4"), &quota).to_string(), "3 pods");
        assert_eq!(
            refusals("pods=4,cpu=3001m,memory=1Gi"),
            [
                "cpu: web can give 3: 1 of its own 4 are used; transfer at most 3 of the 3001m",
                "memory: the tree has no quota of it: remove it, or ask for one of these: cpu, pods",
                "pods: web can give 3: 5 of its own 8 are used; transfer at most 3 of the 4",
            ]
        );
    }

    fn names(name: &str) -> Vec<String> {
        ["shop", name].map(str::to_owned).into()
    }

    #[test]
    fn only_who_may_approve_approves_at_once() {
        let route = Route::find(&names("web"), "api", &Target::Path(names("api")), None).unwrap();
        let spec = |approval| spec(&route, &amount("requests.cpu=2000m"), "test", ("bob", &approval));
        let own = spec(TransferApproval::Own("bob".to_owned()));
        assert_eq!(
            serde_json::to_value(&own).unwrap(),
            serde_json::json!({"to": "api", "through": "shop", "amount": {"cpu": "2"}, "reason": "test", "requester": "bob",
                "approvedBy": "bob"})
        );
        assert_eq!(spec(TransferApproval::Waits).approved_by, None);
        assert_eq!(spec(TransferApproval::NotNeeded).approved_by, None);
    }

    #[test]
    fn a_transfer_ends_when_its_status_says_so() {
        let status = |phase, ended: bool| QuotaTransferStatus {
            phase: Some(phase),
            ended_at: ended.then_some(jiff::Timestamp::UNIX_EPOCH),
            ..QuotaTransferStatus::default()
        };
        for (phase, ended, exit) in [
            (TransferPhase::Completed, true, Some(Exit::Ok)),
            (TransferPhase::Refused, true, Some(Exit::Attention)),
            (TransferPhase::PendingApproval, false, Some(Exit::Attention)),
            (TransferPhase::Pending, false, None),
            (TransferPhase::Moving, false, None),
            (TransferPhase::Reversing, false, None),
        ] {
            assert_eq!(end(&status(phase, ended)), exit, "{phase:?}");
        }
        assert_eq!(end(&QuotaTransferStatus::default()), None);
        assert!(state(&QuotaTransferStatus::default()).starts_with("not looked at yet"));
        assert_eq!(state(&status(TransferPhase::Moving, false)), "Moving");
    }
}
