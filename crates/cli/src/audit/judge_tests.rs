use super::*;

const ISSUER: &str = "system:serviceaccount:coppice-access-system:coppice-access";

fn judge() -> Judge {
    let installation = Installation::new("coppice-system", "coppice-access-system");
    let allowed = vec!["system:serviceaccount:argocd:*".to_owned()];
    let mut judge = Judge::new(installation, Filter { allowed, ..Filter::default() });
    judge.add_secrets([("team".to_owned(), "ci-kubeconfig".to_owned())]);
    judge
}

/// An event: who, verb, `GROUP/RESOURCE[/SUBRESOURCE]`, namespace, name, code.
fn event(user: &str, verb: &str, of: &str, (namespace, name): (&str, &str), code: u16) -> Event {
    let parts: Vec<&str> = of.split('/').collect();
    let object = serde_json::json!({"apiGroup": parts[0], "resource": parts[1], "subresource": parts.get(2).unwrap_or(&""),
        "namespace": namespace, "name": name});
    let event = serde_json::json!({"auditID": "1", "stage": "ResponseComplete", "requestURI": "/", "verb": verb,
        "user": {"username": user}, "objectRef": object, "responseStatus": {"code": code},
        "requestReceivedTimestamp": "2026-03-01T12:00:00Z"});
    serde_json::from_value(event).unwrap()
}

fn type_of(judge: &mut Judge, event: &Event) -> Option<FindingType> {
    match judge.judge(event) {
        Judgment::Found(finding) => Some(finding.type_),
        Judgment::Nothing | Judgment::Expected => None,
    }
}

#[test]
fn edits_of_our_objects_and_reads_of_credentials_by_others_are_found() {
    use FindingType::{CredentialEdited, CredentialRead, Edited, PodEntered, Refused, TokenIssued};
    let by_name = "rbac.authorization.k8s.io/clusterroles";
    for (verb, of, object, code, expected) in [
        ("patch", "coppice.dev/clusteraccesses", ("team", "ci"), 200, Some(Edited)),
        ("create", "coppice.dev/clusteraccesses", ("team", "ci"), 403, Some(Refused)),
        ("update", "coppice.dev/clusteraccesses/status", ("team", "ci"), 403, Some(Refused)),
        // After an error of the server it may have been done; after a conflict it was not.
        ("delete", "coppice.dev/coppiceconfigs", ("", "coppice"), 500, Some(Edited)),
        ("update", "coppice.dev/coppiceconfigs", ("", "coppice"), 409, None),
        ("get", "coppice.dev/clusteraccesses", ("team", "ci"), 200, None),
        ("get", "/secrets", ("team", "ci-kubeconfig"), 200, Some(CredentialRead)),
        ("get", "/secrets", ("team", "ci-kubeconfig"), 401, Some(Refused)),
        ("get", "/secrets", ("team", "ci-kubeconfig"), 404, None),
        ("list", "/secrets", ("team", ""), 200, Some(CredentialRead)),
        ("watch", "/secrets", ("", ""), 200, Some(CredentialRead)),
        ("delete", "/secrets", ("team", "ci-kubeconfig"), 200, Some(CredentialEdited)),
        ("get", "/secrets", ("team", "other"), 200, None),
        ("list", "/secrets", ("other", ""), 200, None),
        ("get", "/secrets", ("coppice-access-system", "shop"), 200, Some(CredentialRead)),
        (
            "create",
            "/serviceaccounts/token",
            ("coppice-access-system", "coppice-access"),
            201,
            Some(TokenIssued),
        ),
        ("create", "/serviceaccounts/token", ("team", "default"), 201, None),
        ("create", "/pods/exec", ("coppice-access-system", "a"), 101, Some(PodEntered)),
        ("get", "/pods/log", ("coppice-access-system", "a"), 200, None),
        ("patch", "apps/deployments", ("coppice-system", "coppice"), 200, Some(Edited)),
        ("create", "/events", ("coppice-system", "a"), 201, None),
        ("delete", by_name, ("", "coppice-access"), 200, Some(Edited)),
        ("delete", by_name, ("", "edit"), 200, None),
        ("deletecollection", by_name, ("", ""), 200, Some(Edited)),
        (
            "delete",
            "apiextensions.k8s.io/customresourcedefinitions",
            ("", "subnamespaces.coppice.dev"),
            200,
            Some(Edited),
        ),
        ("delete", "/namespaces", ("coppice-access-system", "coppice-access-system"), 200, Some(Edited)),
        ("delete", "/configmaps", ("team", "coppice"), 200, None),
        ("patch", "/resourcequotas", ("team", "coppice"), 200, Some(Edited)),
        ("patch", "/resourcequotas", ("team", "other"), 200, None),
    ] {
        let found = type_of(&mut judge(), &event("alice", verb, of, object, code));
        assert_eq!(found, expected, "{verb} {of} {object:?} {code}");
    }
}

#[test]
fn who_may_is_counted_and_whom_they_impersonate_does_not_matter() {
    let mut judge = judge();
    let edit = |user: &str| event(user, "patch", "coppice.dev/clusteraccesses", ("team", "ci"), 200);
    let kubelet = event("system:node:a", "get", "/secrets", ("team", "ci-kubeconfig"), 200);
    for expected in [edit(ISSUER), edit("system:serviceaccount:argocd:server"), kubelet] {
        assert!(matches!(judge.judge(&expected), Judgment::Expected), "{expected:?}");
    }
    let counts = judge.counts();
    assert_eq!((counts.by_coppice, counts.by_allowed, counts.by_kubernetes, counts.findings), (1, 1, 1, 0));
    let mut as_the_issuer = edit("mallory");
    as_the_issuer.impersonated_user = Some(super::super::event::User { username: ISSUER.to_owned() });
    let Judgment::Found(finding) = judge.judge(&as_the_issuer) else { panic!("not found") };
    assert_eq!(finding.who(), format!("mallory as {ISSUER}"));
    // What Coppice itself is refused says that something is not installed as it has to be.
    let refused = event(ISSUER, "create", "/secrets", ("team", "ci-kubeconfig"), 403);
    assert_eq!(type_of(&mut judge, &refused), Some(FindingType::Refused));
    assert_eq!(judge.counts().findings, 2);
}

#[test]
fn a_secret_that_the_issuer_has_written_holds_a_credential_from_then_on() {
    let mut judge = judge();
    let read = event("alice", "get", "/secrets", ("shop", "new"), 200);
    assert_eq!(type_of(&mut judge, &read), None);
    judge.judge(&event(ISSUER, "create", "/secrets", ("shop", "new"), 201));
    assert_eq!((type_of(&mut judge, &read), judge.known_secrets()), (Some(FindingType::CredentialRead), 2));
}

#[test]
fn a_watch_is_found_once() {
    let mut judge = judge();
    let mut watch = event("alice", "watch", "/secrets", ("team", ""), 200);
    for (stage, found) in [
        ("RequestReceived", false),
        ("ResponseStarted", true),
        ("ResponseComplete", false),
        // Another one, whose beginning is not logged.
        ("ResponseComplete", true),
    ] {
        stage.clone_into(&mut watch.stage);
        assert_eq!(type_of(&mut judge, &watch).is_some(), found, "{stage}");
    }
}

#[test]
fn a_dry_run_hides_no_read_and_no_deletion() {
    use FindingType::{CredentialEdited, CredentialRead, Edited, TokenIssued};
    let credential = ("team", "ci-kubeconfig");
    for (verb, of, object, expected) in [
        ("patch", "coppice.dev/clusteraccesses", ("team", "ci"), None),
        // Its answer has the Secret.
        ("patch", "/secrets", credential, Some(CredentialRead)),
        // Reads have no such parameter.
        ("get", "/secrets", credential, Some(CredentialRead)),
        ("list", "/secrets", ("team", ""), Some(CredentialRead)),
        // With a body the parameter does not count.
        ("delete", "/secrets", credential, Some(CredentialEdited)),
        ("delete", "coppice.dev/clusteraccesses", ("team", "ci"), Some(Edited)),
        ("create", "/serviceaccounts/token", ("coppice-access-system", "coppice-access"), Some(TokenIssued)),
    ] {
        let mut dry = event("alice", verb, of, object, 200);
        "/somewhere?fieldManager=a&dryRun=All".clone_into(&mut dry.request_uri);
        assert_eq!(type_of(&mut judge(), &dry), expected, "{verb} {of}");
    }
}

#[test]
fn what_is_not_asked_for_is_not_found() {
    let found = |filter: Filter| {
        let installation = Installation::new("coppice-system", "coppice-access-system");
        let mut judge = Judge::new(installation, filter);
        let edit = |namespace| event("alice", "patch", "coppice.dev/clusteraccesses", (namespace, "ci"), 200);
        ["team", "shop"].map(|namespace| type_of(&mut judge, &edit(namespace)).is_some())
    };
    assert_eq!(found(Filter::default()), [true, true]);
    assert_eq!(found(Filter { within: Some("team".to_owned()), ..Filter::default() }), [true, false]);
    assert_eq!(found(Filter { only: vec![FindingType::Refused], ..Filter::default() }), [false, false]);
    let since = |at: &str| Filter { since: Some(at.parse().unwrap()), ..Filter::default() };
    assert_eq!(found(since("2026-03-01T12:00:00Z")), [true, true]);
    assert_eq!(found(since("2026-03-01T12:00:01Z")), [false, false]);
}

#[test]
fn people_read_who_did_what_with_which_object() {
    let mut judge = judge();
    let mut shown = |event: &Event| {
        let Judgment::Found(finding) = judge.judge(event) else { panic!("{event:?}") };
        [finding.who(), finding.what(), finding.object()]
    };
    let list = event("alice", "list", "/secrets", ("", ""), 200);
    assert_eq!(shown(&list), ["alice", "list", "secrets */*"]);
    let token = event("", "create", "/serviceaccounts/token", ("coppice-system", "coppice"), 401);
    assert_eq!(
        shown(&token),
        ["(not authenticated)", "create token (401)", "serviceaccounts coppice-system/coppice"]
    );
    let mut unanswered = event("bob", "delete", "coppice.dev/clusterproviders", ("", "shop"), 200);
    unanswered.response_status = None;
    assert_eq!(shown(&unanswered), ["bob", "delete (no answer)", "clusterproviders.coppice.dev shop"]);
    let namespace = event("bob", "delete", "/namespaces", ("coppice-system", "coppice-system"), 200);
    assert_eq!(shown(&namespace)[2], "namespaces coppice-system");
}
