//! Is Coppice installed, and does it work?

use coppice_api::Reason;
use coppice_api::condition::{self, READY};
use coppice_api::config::Blocked;
use coppice_api::manager::Phase;
use coppice_api::names::{CONFIG_NAME, LEASE_NAME, TREES_ACCOUNT};
use coppice_lifecycle::breaker;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client, ResourceExt as _};

use super::{Finding, MAX_NAMED, State, cluster_managers};
use crate::facts::{Config, Manager};
use crate::live;
use crate::print::{self, count};

/// The label of what the installation consists of.
const COMPONENT_SELECTOR: &str = "app.kubernetes.io/name=coppice";
/// What `webhookHosts` was by default in earlier versions: defaults are stored with the object.
const OLD_DEFAULT_HOSTS: [&str; 2] = ["*.svc", "*.svc.cluster.local"];

pub(super) async fn check(client: &Client, system: &str, now: Timestamp) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut served = true;
    for crd in coppice_api::crds() {
        let finding = definition(client, &crd).await;
        served &= finding.state != State::Problem;
        findings.push(finding);
    }
    let lease = lease(client, system, Holder::OPERATOR, now).await;
    let alive = lease.state == State::Ok;
    findings.push(lease);
    findings.extend(deployments(client, system, alive).await);
    if served {
        findings.push(config(client, now).await);
        findings.push(managers(client).await);
        findings.extend(cluster_managers::check(client).await);
    }
    findings
}

async fn definition(client: &Client, ours: &CustomResourceDefinition) -> Finding {
    let name = ours.name_any();
    let about = format!("CRD {name}");
    let install = "`coppice crds | kubectl apply --server-side -f -` installs it";
    let found = match Api::<CustomResourceDefinition>::all(client.clone()).get_opt(&name).await {
        Ok(Some(found)) => found,
        Ok(None) => return Finding::new(State::Problem, about, "it is not installed").advise(install),
        Err(error) => return Finding::unreadable(&about, &error),
    };
    let wanted = ours.spec.versions.first().map_or("", |v| v.name.as_str());
    if !found.spec.versions.iter().any(|v| v.name == wanted && v.served) {
        return Finding::new(State::Problem, about, format!("version {wanted} is not served"))
            .advise(install);
    }
    let conditions = found.status.and_then(|s| s.conditions).unwrap_or_default();
    let bad = conditions
        .iter()
        .find(|c| ["Established", "NamesAccepted"].contains(&c.type_.as_str()) && c.status != "True");
    if let Some(bad) = bad {
        let message = bad.message.as_deref().unwrap_or_default();
        return Finding::new(State::Problem, about, format!("{} is {}: {message}", bad.type_, bad.status));
    }
    Finding::new(State::Ok, about, format!("served as {wanted}"))
}

/// A program that holds a Lease.
#[derive(Clone, Copy)]
pub(super) struct Holder {
    lease: &'static str,
    /// What it is called, after "no" or "the".
    program: &'static str,
    /// How to get it.
    pub(super) install: &'static str,
}

impl Holder {
    const OPERATOR: Self = Self { lease: LEASE_NAME, program: "operator", install: "install the operator" };
    pub(super) const TREES: Self = Self {
        lease: TREES_ACCOUNT,
        program: "program of trees",
        install: "install deploy/trees.yaml, or the chart with trees.enabled",
    };
}

pub(super) async fn lease(client: &Client, system: &str, holder: Holder, now: Timestamp) -> Finding {
    let Holder { lease: name, program, install } = holder;
    let about = format!("Lease {system}/{name}");
    let lease = match Api::<Lease>::namespaced(client.clone(), system).get_opt(name).await {
        Ok(Some(lease)) => lease.spec.unwrap_or_default(),
        Ok(None) => {
            let message = format!("it does not exist: no {program} has ever run here");
            return Finding::new(State::Problem, about, message)
                .advise(format!("{install}, or name its namespace with --system-namespace"));
        }
        Err(error) => return Finding::unreadable(&about, &error),
    };
    let holder = lease.holder_identity.unwrap_or_default();
    let renewed = lease.renew_time.map(|t| t.0);
    let length = SignedDuration::from_secs(lease.lease_duration_seconds.unwrap_or(15).into());
    match renewed.filter(|_| !holder.is_empty()) {
        None => {
            let message = format!("no {program} holds it: nothing is decided or done");
            Finding::new(State::Problem, about, message)
                .advise(format!("look at the pods of the {program}: `kubectl get pods -n {system}`"))
        }
        Some(at) if now.duration_since(at) > length => {
            let when = print::relative(at, now);
            Finding::new(
                State::Problem,
                about,
                format!("{holder} renewed it last {when}: the {program} does not run or cannot write"),
            )
            .advise(format!(
                "look at the log of the {program}: `kubectl logs -n {system} -l {COMPONENT_SELECTOR}`"
            ))
        }
        Some(at) => {
            Finding::new(State::Ok, about, format!("held by {holder}, renewed {}", print::relative(at, now)))
        }
    }
}

async fn deployments(client: &Client, system: &str, alive: bool) -> Vec<Finding> {
    let about = format!("operator in namespace {system}");
    let found =
        match live::list(&Api::<Deployment>::namespaced(client.clone(), system), Some(COMPONENT_SELECTOR))
            .await
        {
            Ok(found) => found,
            Err(error) => return vec![Finding::unreadable(&about, &error)],
        };
    if found.is_empty() {
        let message = format!("there is no Deployment with the label {COMPONENT_SELECTOR}");
        return vec![if alive {
            Finding::new(
                State::Ok,
                about,
                format!("{message}; the Lease shows that an operator runs elsewhere"),
            )
        } else {
            Finding::new(State::Problem, about, message)
                .advise("install the chart, or name its namespace with --system-namespace")
        }];
    }
    let mut findings = Vec::new();
    for deployment in found {
        let wanted = deployment.spec.as_ref().and_then(|s| s.replicas).unwrap_or(1);
        let available = deployment.status.as_ref().and_then(|s| s.available_replicas).unwrap_or(0);
        let about = format!("Deployment {system}/{}", deployment.name_any());
        let state = if available > 0 && available >= wanted { State::Ok } else { State::Problem };
        let mut finding =
            Finding::new(state, about, format!("{available} of {wanted} replicas are available"));
        if state == State::Problem {
            finding.details = pods(client, system).await;
            finding = finding
                .advise(format!("`kubectl describe pods -n {system} -l {COMPONENT_SELECTOR}` tells more"));
        }
        findings.push(finding);
    }
    findings
}

/// What the operator's pods wait for.
async fn pods(client: &Client, system: &str) -> Vec<String> {
    let Ok(pods) =
        live::list(&Api::<Pod>::namespaced(client.clone(), system), Some(COMPONENT_SELECTOR)).await
    else {
        return Vec::new();
    };
    let mut lines = Vec::new();
    for pod in pods {
        let name = pod.name_any();
        let status = pod.status.unwrap_or_default();
        let phase = status.phase.unwrap_or_default();
        let containers = status.container_statuses.unwrap_or_default();
        let waiting = containers.iter().filter_map(|c| c.state.as_ref()?.waiting.as_ref()?.reason.clone());
        let restarts: i32 = containers.iter().map(|c| c.restart_count).sum();
        let reasons: Vec<String> = waiting.collect();
        let why = if reasons.is_empty() { String::new() } else { format!(", {}", reasons.join(", ")) };
        lines.push(format!(
            "pod {name}: {phase}{why}, {}",
            count(usize::try_from(restarts).unwrap_or(0), "restart")
        ));
    }
    lines
}

async fn config(client: &Client, now: Timestamp) -> Finding {
    let about = format!("CoppiceConfig {CONFIG_NAME}");
    let mut warnings = Vec::new();
    let Some(config) = live::config(client, &mut warnings).await.found() else {
        let warning = warnings.pop().unwrap_or_default();
        let message = warning.split_once(": ").map_or(warning.as_str(), |(_, message)| message);
        return Finding::new(State::Unknown, about, message);
    };
    let mut finding = Finding::new(State::Ok, about, budget(&config));
    let bad = |finding: &mut Finding, detail: String| {
        finding.state = State::Problem;
        finding.details.push(detail);
    };
    if let Err(error) = &config.spec {
        bad(&mut finding, format!("{error}; no destructive step is taken"));
    }
    for condition in config.status.conditions.iter().filter(|c| c.status != "True") {
        bad(
            &mut finding,
            format!(
                "{} is {}: {} [{}]",
                condition.type_, condition.status, condition.message, condition.reason
            ),
        );
    }
    if config.spec.as_ref().is_ok_and(|s| s.governor.paused) {
        bad(
            &mut finding,
            "Coppice is paused: nothing is deleted or scaled down (spec.governor.paused)".to_owned(),
        );
    }
    let governor = &config.status.governor;
    if let Some(open) =
        config.spec.as_ref().map_or(governor.breaker.as_ref(), |s| breaker::open(&s.governor, governor))
    {
        let since = print::instant_from(open.since, now);
        bad(
            &mut finding,
            format!("the breaker is open since {since}: {}; nothing is deleted or scaled down", open.message),
        );
        finding = finding.advise(format!("find out why, then run `coppice acknowledge {}`", open.id));
    }
    if config.spec.as_ref().is_ok_and(|s| s.tenants.webhook_hosts == OLD_DEFAULT_HOSTS) {
        bad(
            &mut finding,
            "spec.tenants.webhookHosts is the default of an earlier version: webhooks of every tenant may go to Services of every namespace".to_owned(),
        );
        finding = finding.advise(
            "permit the Services of the manager's own namespace only: `kubectl patch coppiceconfig coppice --type=merge -p \
             '{\"spec\":{\"tenants\":{\"webhookHosts\":[\"*.{namespace}.svc\",\"*.{namespace}.svc.cluster.local\"]}}}'`, with the hosts \
             of receivers that several namespaces share, such as \"hook.ci.svc\"",
        );
    }
    let by_breaker = |blocked: &&Blocked| blocked.reason == Reason::BreakerOpen.as_str();
    if let Some(blocked) = governor.blocked.as_ref().filter(|blocked| !by_breaker(blocked)) {
        let since = print::instant_from(blocked.since, now);
        bad(
            &mut finding,
            format!("the governor stopped a step at {since}: {} [{}]", blocked.message, blocked.reason),
        );
    }
    if config.meta.generation.is_some() && config.status.observed_generation != config.meta.generation {
        bad(&mut finding, "the operator has not read the last change of spec".to_owned());
    }
    finding
}

fn budget(config: &Config) -> String {
    let governor = &config.status.governor;
    let version = config.status.version.as_deref().unwrap_or("unknown");
    format!(
        "operator version {version}; {} of {} destructive steps in the last hour",
        governor.last_hour, governor.hourly_limit
    )
}

async fn managers(client: &Client) -> Finding {
    let about = "NamespaceManagers";
    let all = match live::managers(client, None, None).await {
        Ok(all) => all,
        Err(error) => return Finding::new(State::Unknown, about, format!("{error:#}")),
    };
    let bad: Vec<&Manager> = all.iter().filter(|m| !is_ready(m)).collect();
    if bad.is_empty() {
        return Finding::new(State::Ok, about, format!("{}, each Ready", count(all.len(), "manager")));
    }
    let mut finding = Finding::new(
        State::Problem,
        about,
        format!("{} of {} are not Ready", bad.len(), count(all.len(), "manager")),
    );
    for manager in bad.iter().take(MAX_NAMED) {
        let phase = manager.status.phase.map_or("not looked at", Phase::as_str);
        let ready = condition::find(&manager.status.conditions, READY);
        let why = ready.map_or_else(String::new, |c| format!(": {} [{}]", c.message, c.reason));
        finding.details.push(format!("{}/{} ({phase}){why}", manager.namespace(), manager.name()));
    }
    if bad.len() > MAX_NAMED {
        finding.details.push(format!("and {} more", bad.len() - MAX_NAMED));
    }
    finding.advise("`coppice explain NAMESPACE/NAME` tells more")
}

fn is_ready(manager: &Manager) -> bool {
    condition::find(&manager.status.conditions, READY).is_some_and(|ready| ready.status == "True")
}
