//! What is reported of an audit log.

use clap::ValueEnum;
use jiff::Timestamp;
use serde::Serialize;

use super::event::{Event, ObjectRef};

/// What somebody did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[value(rename_all = "PascalCase")]
pub(crate) enum FindingType {
    /// Changed an object of Coppice
    Edited,
    /// Changed a Secret with a credential
    CredentialEdited,
    /// Read a Secret with a credential, perhaps among others
    CredentialRead,
    /// Got a token of an account of Coppice
    TokenIssued,
    /// Got into a pod of Coppice, whose memory has credentials
    PodEntered,
    /// Was refused one of these
    Refused,
}

impl FindingType {
    /// As it is printed.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Edited => "Edited",
            Self::CredentialEdited => "CredentialEdited",
            Self::CredentialRead => "CredentialRead",
            Self::TokenIssued => "TokenIssued",
            Self::PodEntered => "PodEntered",
            Self::Refused => "Refused",
        }
    }
}

/// One request that is worth knowing.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Finding {
    pub(crate) when: Timestamp,
    pub(crate) who: String,
    /// As whom.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) impersonated: Option<String>,
    pub(crate) verb: String,
    /// What was answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) code: Option<u16>,
    pub(crate) group: String,
    pub(crate) resource: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) subresource: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) name: String,
    #[serde(rename = "type")]
    pub(crate) type_: FindingType,
    #[serde(rename = "sourceIPs")]
    pub(crate) source_ips: Vec<String>,
    pub(crate) user_agent: String,
    #[serde(rename = "auditID")]
    pub(crate) audit_id: String,
}

impl Finding {
    pub(super) fn new(event: &Event, object: &ObjectRef, type_: FindingType) -> Self {
        let ObjectRef { api_group, resource, subresource, namespace, name } = object.clone();
        Self {
            when: event.request_received_timestamp,
            who: event.user.username.clone(),
            impersonated: event.impersonated_user.as_ref().map(|user| user.username.clone()),
            verb: event.verb.clone(),
            code: event.code(),
            group: api_group,
            resource,
            subresource,
            namespace,
            name,
            type_,
            source_ips: event.source_ips.clone(),
            user_agent: event.user_agent.clone(),
            audit_id: event.audit_id.clone(),
        }
    }

    /// Who, for people.
    pub(crate) fn who(&self) -> String {
        let who = if self.who.is_empty() { "(not authenticated)" } else { &self.who };
        match &self.impersonated {
            Some(other) => format!("{who} as {other}"),
            None => who.to_owned(),
        }
    }

    /// The request, for people. An answer that leaves open what was done is named.
    pub(crate) fn what(&self) -> String {
        let gap = if self.subresource.is_empty() { "" } else { " " };
        let answer = match self.code {
            Some(..=399) => String::new(),
            Some(code) => format!(" ({code})"),
            None => " (no answer)".to_owned(),
        };
        format!("{}{gap}{}{answer}", self.verb, self.subresource)
    }

    /// The object, for people; `*` where the request was about all of them.
    pub(crate) fn object(&self) -> String {
        let dot = if self.group.is_empty() { "" } else { "." };
        let name = if self.name.is_empty() { "*" } else { &self.name };
        let of_namespace = !self.namespace.is_empty() && self.resource != "namespaces";
        let place = if of_namespace { format!("{}/", self.namespace) } else { String::new() };
        // All of the cluster, of what is in namespaces.
        let place =
            if self.namespace.is_empty() && self.resource == "secrets" { "*/".to_owned() } else { place };
        format!("{}{dot}{} {place}{name}", self.resource, self.group)
    }
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Counts {
    /// Events that were read, of any kind.
    pub(crate) events: usize,
    /// Lines that are none.
    pub(crate) malformed: usize,
    /// Requests that are reported.
    pub(crate) findings: usize,
    /// Requests for what is ours by Coppice's own accounts.
    pub(crate) by_coppice: usize,
    /// Those by Kubernetes itself, such as kubelets that mount Secrets.
    pub(crate) by_kubernetes: usize,
    /// Those by accounts that were allowed on the command line.
    pub(crate) by_allowed: usize,
}
