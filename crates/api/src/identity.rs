//! What a namespace was made for, and by which run: where a cluster manager reads it from, and what it follows from it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// Which labels or annotations say what a namespace was made for. A label comes before an annotation of the same key.
///
/// Only namespaces of one cluster manager and one project are compared. An admission policy lets nobody change these labels and
/// annotations who may not create namespaces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct IdentityKeys {
    /// The project, such as `cicd.skao.int/projectId`. A namespace without it has no identity.
    #[schemars(schema_with = "schema::annotation_key")]
    pub project: String,
    /// The environment. If written, namespaces of different environments are never compared, and one without it has no
    /// identity. Default: none, for projects that have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::annotation_key")]
    pub environment: Option<String>,
    /// The name of the CI job that makes the namespace. If written, namespaces of different jobs are never compared, and one
    /// without it has no identity. Default: none, for pipelines that make one namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::annotation_key")]
    pub job: Option<String>,
    /// The merge or pull request. Default: none, so that nothing is compared by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::annotation_key")]
    pub merge_request: Option<String>,
    /// The branch. Default: none, so that nothing is compared by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::annotation_key")]
    pub branch: Option<String>,
    /// The commit. Default: none, so that nothing is compared by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::annotation_key")]
    pub commit: Option<String>,
    /// The number of the pipeline, by which namespaces are ordered. If written, a namespace whose value is no number has no
    /// identity. Default: none, and the run decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::annotation_key")]
    pub pipeline: Option<String>,
    /// The number of the run of the job, by which namespaces of one pipeline are ordered; those of one run stand or fall
    /// together. If written, a namespace whose value is no number has no identity. Default: none: each namespace is a run of its
    /// own, and the later one is that which was created later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::annotation_key")]
    pub run: Option<String>,
    /// Annotations with links for the owner. They decide nothing. Default: none, since not every CI system has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub links: Option<LinkKeys>,
}

/// Annotations with URLs that messages to owners show. Only `https` URLs are shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LinkKeys {
    /// Where the CI job is, such as `cicd.skao.int/jobUrl`. Default: none, so that messages show no such link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::annotation_key")]
    pub job: Option<String>,
    /// Where the pipeline is. Default: none, so that messages show no such link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::annotation_key")]
    pub pipeline: Option<String>,
}

impl LinkKeys {
    /// What each link leads to, and its key.
    pub fn keys(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let Self { job, pipeline } = self;
        let all = [("job", job), ("pipeline", pipeline)];
        all.into_iter().filter_map(|(name, key)| Some((name, key.as_deref()?)))
    }
}

impl IdentityKeys {
    /// Every key that says what a namespace was made for.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        let Self { project, environment, job, merge_request, branch, commit, pipeline, run, links: _ } = self;
        let optional = [environment, job, merge_request, branch, commit, pipeline, run];
        std::iter::once(&**project).chain(optional.into_iter().flatten().map(|key| &**key))
    }
}

/// When a namespace takes the place of an older one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Supersede {
    /// What two namespaces have to have in common, besides project, environment and job: one of these is enough.
    #[schemars(length(min = 1, max = 3), extend("x-kubernetes-list-type" = "set"))]
    pub by: Vec<SupersedeBy>,
    /// Whether the later one has to be `Ok`, and to have had all of its pods ready once. Otherwise it is enough that it exists and
    /// is neither `Failed`, `Stale`, `Superseded` nor being deleted. Default: true, so that nobody is left without an
    /// environment.
    #[serde(default = "wait_until_ready")]
    pub wait_until_ready: bool,
}

const fn wait_until_ready() -> bool {
    true
}

/// What two namespaces have in common of which the later one supersedes the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum SupersedeBy {
    /// The merge or pull request.
    MergeRequest,
    /// The branch.
    Branch,
    /// The commit.
    Commit,
}

impl SupersedeBy {
    /// As it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MergeRequest => "MergeRequest",
            Self::Branch => "Branch",
            Self::Commit => "Commit",
        }
    }
}
