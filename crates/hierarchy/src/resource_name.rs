//! The names of resources that native quotas count, each in one spelling.

use std::fmt;
use std::str::FromStr;

use coppice_api::amounts::WrittenName;
use serde::{Deserialize, Serialize};

/// The name of a resource that `ResourceQuota` counts.
///
/// Where Kubernetes has two names for one amount, such as `cpu` and `requests.cpu`, both parse to the shorter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ResourceName(WrittenName);

/// Why a text is not the name of a resource that quotas count. The message says what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResourceNameError {
    /// No quota counts it.
    #[error(
        "{0:?} is not a resource that quotas count: write one such as cpu, limits.memory, requests.storage, pods, \
         count/deployments.apps or requests.example.com/gpu"
    )]
    Unknown(String),
    /// An extended resource without its prefix, which the API server accepts and never counts.
    #[error("quotas count {0:?} by its requests only: write requests.{0}")]
    WithoutRequests(String),
}

/// Where one amount has two names: what is in front of the longer one. With it a name of [`COMPUTE`] or [`HUGE_PAGES`] is the same.
const REQUESTS: &str = "requests.";
const COMPUTE: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];
const HUGE_PAGES: &str = "hugepages-";
/// The prefix of numbers of objects. With it a name of [`COUNTED`] is the same.
const COUNT: &str = "count";
/// Numbers of objects. `pods` is not among them: `count/pods` counts those that have ended, too.
const COUNTED: [&str; 6] = [
    "configmaps",
    "persistentvolumeclaims",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "services",
];
/// Other names that have no prefix.
const OTHER: [&str; 7] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "pods",
    "requests.storage",
    "services.loadbalancers",
    "services.nodeports",
];
/// How the prefix of a storage class ends.
const STORAGE_CLASS: &str = ".storageclass.storage.k8s.io";
/// How the prefix of a device class ends.
const DEVICE_CLASS: &str = ".deviceclass.resource.k8s.io";
/// The prefix of device classes that are requested as extended resources.
const REQUESTED_DEVICES: &str = "requests.deviceclass.resource.kubernetes.io";

impl ResourceName {
    /// The name in its one spelling, to be written into quotas.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// Whether only whole numbers of it are quotas.
    pub fn is_whole(&self) -> bool {
        let objects = ["pods", "services.loadbalancers", "services.nodeports"];
        let name = self.as_str();
        let prefixed = name.contains('/') && !name.starts_with(REQUESTS);
        prefixed || COUNTED.contains(&name) || objects.contains(&name)
    }
}

impl fmt::Display for ResourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl From<ResourceName> for String {
    fn from(name: ResourceName) -> Self {
        name.as_str().to_owned()
    }
}

impl TryFrom<String> for ResourceName {
    type Error = ResourceNameError;

    fn try_from(text: String) -> Result<Self, ResourceNameError> {
        text.parse()
    }
}

impl FromStr for ResourceName {
    type Err = ResourceNameError;

    fn from_str(text: &str) -> Result<Self, ResourceNameError> {
        let unknown = || ResourceNameError::Unknown(text.to_owned());
        let known = match text.split_once('/') {
            None => without_prefix(text).ok_or_else(unknown)?,
            Some((prefix, name)) if is_subdomain(prefix) && is_name(name) => match prefix {
                COUNT if COUNTED.contains(&name) => name,
                COUNT | REQUESTED_DEVICES => text,
                _ if counted_by_class(prefix, name) => text,
                _ if prefix.ends_with("kubernetes.io") => return Err(unknown()),
                _ if prefix.starts_with(REQUESTS) => text,
                _ => return Err(ResourceNameError::WithoutRequests(text.to_owned())),
            },
            Some(_) => return Err(unknown()),
        };
        Ok(Self(known.into()))
    }
}

fn without_prefix(text: &str) -> Option<&str> {
    let short = text.strip_prefix(REQUESTS).unwrap_or(text);
    if COMPUTE.contains(&short) || (short.starts_with(HUGE_PAGES) && is_name(text)) {
        return Some(short);
    }
    (OTHER.contains(&text) || COUNTED.contains(&text)).then_some(text)
}

/// Storage of one class, and devices of one class.
fn counted_by_class(prefix: &str, name: &str) -> bool {
    let storage = ["requests.storage", "persistentvolumeclaims"].contains(&name);
    (storage && prefix.ends_with(STORAGE_CLASS)) || (name == "devices" && prefix.ends_with(DEVICE_CLASS))
}

/// Lower-case labels with dots between them, as the API server demands of prefixes.
fn is_subdomain(text: &str) -> bool {
    let label = |label: &str| {
        let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        !label.is_empty() && !label.starts_with('-') && !label.ends_with('-') && label.bytes().all(inner)
    };
    text.len() <= 253 && text.split('.').all(label)
}

/// What the API server demands of names, behind the prefix or without one.
fn is_name(text: &str) -> bool {
    let end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    let inner = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    text.len() <= 63 && end(bytes.first()) && end(bytes.last()) && bytes.iter().all(inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_for_one_amount_are_one_name() {
        for (written, known) in [
            ("cpu", "cpu"),
            ("requests.cpu", "cpu"),
            ("requests.memory", "memory"),
            ("requests.ephemeral-storage", "ephemeral-storage"),
            ("limits.cpu", "limits.cpu"),
            ("requests.hugepages-2Mi", "hugepages-2Mi"),
            ("count/services", "services"),
            ("count/persistentvolumeclaims", "persistentvolumeclaims"),
            ("pods", "pods"),
            ("count/pods", "count/pods"),
            ("count/deployments.apps", "count/deployments.apps"),
            ("requests.storage", "requests.storage"),
            ("requests.nvidia.com/gpu", "requests.nvidia.com/gpu"),
            (
                "gold.storageclass.storage.k8s.io/requests.storage",
                "gold.storageclass.storage.k8s.io/requests.storage",
            ),
            ("gpu.deviceclass.resource.k8s.io/devices", "gpu.deviceclass.resource.k8s.io/devices"),
            (
                "requests.deviceclass.resource.kubernetes.io/gpu",
                "requests.deviceclass.resource.kubernetes.io/gpu",
            ),
        ] {
            assert_eq!(written.parse::<ResourceName>().unwrap().as_str(), known);
        }
    }

    #[test]
    fn what_no_quota_counts_is_refused_with_advice() {
        for text in [
            "",
            "CPU",
            "cpus",
            "storage",
            "requests.pods",
            "limits.storage",
            "count/",
            "/pods",
            "a b/c",
            "a/b/c",
            "hugepages-",
            "requests.kubernetes.io/x",
            "count/-x",
        ] {
            let error = text.parse::<ResourceName>().unwrap_err();
            assert_eq!(error, ResourceNameError::Unknown(text.to_owned()));
        }
        let error = "nvidia.com/gpu".parse::<ResourceName>().unwrap_err().to_string();
        assert!(error.ends_with("write requests.nvidia.com/gpu"), "{error}");
    }

    #[test]
    fn numbers_of_objects_are_whole() {
        let whole = |name: &str| name.parse::<ResourceName>().unwrap().is_whole();
        assert!(["pods", "services", "count/jobs.batch", "services.nodeports"].into_iter().all(whole));
        assert!(!["cpu", "requests.storage", "requests.nvidia.com/gpu"].into_iter().any(whole));
    }
}
