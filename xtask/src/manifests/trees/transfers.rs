//! What the API server refuses about QuotaTransfers.

use coppice_api::names::GROUP;
use serde_json::{Value, json};

use super::policies::{by_others, resources, spec};
use crate::manifests::Install;
use crate::manifests::component::{validation, variable};

/// Status, Events and the audit of a platform rest on the two names. Who may create QuotaTransfers in a namespace may give its quota
/// away, and take some for it: that needs the right at both ends, or in the namespace whose quota it stays.
pub(super) fn transfers(install: &Install) -> Value {
    let may = |namespace: &str| {
        format!(
            "authorizer.group('{GROUP}').resource('quotatransfers').namespace({namespace}).check('create').allowed()"
        )
    };
    let user = "request.userInfo.username";
    let approved = |object: &str| format!("{object}.spec.?approvedBy.orValue('')");
    let newly = format!("{} != (oldObject == null ? '' : {})", approved("object"), approved("oldObject"));
    let right = "that takes the right to create QuotaTransfers";
    spec(
        &[resources(GROUP, &["CREATE", "UPDATE"], &["quotatransfers"])],
        &[by_others(install), json!({"name": "has-spec", "expression": "has(object.spec)"})],
        // Each of its own: one expression may not ask three times, which would cost more than the API server allows.
        &[
            variable("newlyApproved", &newly),
            variable("maySource", &may("request.namespace")),
            variable("mayTo", &may("object.spec.to")),
            variable("mayThrough", &may("object.spec.through")),
        ],
        &[
            json!({
                "expression": format!("request.operation != 'CREATE' || object.spec.requester == {user}"),
                "message": "Write your own name as spec.requester: whoever transfers quota does so in their own name.",
                "messageExpression": format!(
                    "'spec.requester is ' + object.spec.requester + ', and you are ' + {user} +\n\
                     ': whoever transfers quota does so in their own name. Write spec.requester: ' + {user} + '.'"
                ),
            }),
            json!({
                "expression": format!("!variables.newlyApproved || {} == {user}", approved("object")),
                "message": "Write your own name as spec.approvedBy: whoever approves a QuotaTransfer does so in their own name.",
                "messageExpression": format!(
                    "'spec.approvedBy is ' + {} + ', and you are ' + {user} +\n\
                     ': whoever approves a QuotaTransfer does so in their own name.'",
                    approved("object")
                ),
            }),
            json!({
                "expression":
                    "!variables.newlyApproved || variables.mayThrough || variables.maySource && variables.mayTo",
                "message": format!("You may not approve this QuotaTransfer: {right} in its namespace and spec.to, or in spec.through."),
                "messageExpression": format!(
                    "{user} + ' may not approve this QuotaTransfer: {right} in ' + request.namespace + ' and ' +\n\
                     object.spec.to + ', or in ' + object.spec.through + '.'"
                ),
            }),
            validation(
                "request.operation != 'UPDATE' || !variables.newlyApproved || !oldObject.?status.?endedAt.hasValue()",
                "The QuotaTransfer has ended, and cannot be approved any more: create another one.",
            ),
        ],
    )
}
