//! What a namespace was made for, and by which run.

use std::fmt;

use coppice_api::identity::{IdentityKeys, Supersede, SupersedeBy};
use jiff::Timestamp;

use super::selection::annotation;
use crate::annotations::is_cut;
use crate::facts::{AnnotationNotRead, NamespaceFacts};

/// When a namespace takes the place of an older one, validated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidSupersede {
    /// Where the identity is read from.
    keys: IdentityKeys,
    /// What two namespaces have to have in common, besides project, environment and job, with the key that has it; one is enough.
    by: Vec<(SupersedeBy, String)>,
    /// Whether the later one has to be ready.
    pub wait_until_ready: bool,
}

/// What is wrong with the rule by which a namespace is superseded, and what to write instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SupersedeError {
    /// It compares what is not read.
    #[error(
        "supersede.by names what spec.identity does not read: write there the key of the label or annotation that has it, such as \
         branch: example.com/branch"
    )]
    NoKey,
    /// It compares nothing.
    #[error("supersede.by is empty: write at least one of MergeRequest, Branch and Commit")]
    Nothing,
    /// It waits for what is not looked at.
    #[error(
        "supersede.waitUntilReady needs to know when a namespace is ready: write spec.health, such as {{}}, or waitUntilReady: false"
    )]
    NoHealth,
}

impl ValidSupersede {
    /// Keys and rule together.
    pub(super) fn new(
        keys: Option<&IdentityKeys>,
        rule: Supersede,
        health: bool,
    ) -> Result<Self, SupersedeError> {
        let Supersede { by, wait_until_ready } = rule;
        if by.is_empty() {
            return Err(SupersedeError::Nothing);
        }
        if wait_until_ready && !health {
            return Err(SupersedeError::NoHealth);
        }
        let keys = keys.ok_or(SupersedeError::NoKey)?;
        let by = by.into_iter().map(|one| {
            let key = match one {
                SupersedeBy::MergeRequest => &keys.merge_request,
                SupersedeBy::Branch => &keys.branch,
                SupersedeBy::Commit => &keys.commit,
            };
            key.clone().map(|key| (one, key)).ok_or(SupersedeError::NoKey)
        });
        let by = by.collect::<Result<_, SupersedeError>>()?;
        Ok(Self { keys: keys.clone(), by, wait_until_ready })
    }

    /// The keys of labels and annotations that it rests on.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.keys.keys()
    }
}

/// What a namespace was made for, as far as it is compared with others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity<'a> {
    project: &'a str,
    environment: Option<&'a str>,
    job: Option<&'a str>,
    pub(super) order: Order,
    in_common: Vec<(SupersedeBy, &'a str)>,
}

/// When a namespace was made, in the order of its CI: the numbers of the pipeline and of the run, then its creation. All
/// namespaces of a cluster manager have the same numbers or none, so that no three of them follow each other in a circle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Order {
    pipeline: Option<u128>,
    run: Option<u128>,
    created: Timestamp,
}

/// A group of namespaces, of which later ones supersede earlier ones: what all of them have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct GroupKey<'a> {
    project: &'a str,
    environment: Option<&'a str>,
    job: Option<&'a str>,
    in_common: (SupersedeBy, &'a str),
}

impl<'a> Identity<'a> {
    /// The groups that it is in.
    pub(super) fn groups(&self) -> impl Iterator<Item = GroupKey<'a>> + '_ {
        let Self { project, environment, job, .. } = *self;
        self.in_common.iter().map(move |in_common| GroupKey {
            project,
            environment,
            job,
            in_common: *in_common,
        })
    }

    /// The run that made it, with its pipeline; none if runs have no numbers: then it is a run of its own.
    pub(super) fn run(&self) -> Option<(&'a str, Option<u128>, u128)> {
        self.order.run.map(|run| (self.project, self.order.pipeline, run))
    }

    /// Whether it takes the place of an older one, as far as their identities say: they have a group in common, this one is later,
    /// and another run made it.
    pub(super) fn follows(&self, older: &Identity<'_>) -> bool {
        let same_run = self.run().is_some() && self.run() == older.run();
        let in_common = self.groups().any(|group| older.groups().any(|other| group == other));
        !same_run && older.order < self.order && in_common
    }
}

/// Why a namespace has no identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoIdentity<'a> {
    /// It has neither label nor annotation of this key, or an empty one, or one that is too long.
    Missing(&'a str),
    /// The value of this key is no number.
    NoNumber(&'a str),
    /// It has nothing in common with any other.
    NothingInCommon,
}

impl fmt::Display for NoIdentity<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(key) => write!(f, "it has no label and no annotation {key}"),
            Self::NoNumber(key) => write!(f, "its {key} is no number"),
            Self::NothingInCommon => f.write_str("it has none of what spec.supersede.by compares"),
        }
    }
}

/// Why the identity of a namespace is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unidentified<'a> {
    /// It depends on an annotation that was not read.
    NotRead(AnnotationNotRead<'a>),
    /// It has none.
    None(NoIdentity<'a>),
}

impl<'a> From<AnnotationNotRead<'a>> for Unidentified<'a> {
    fn from(not_read: AnnotationNotRead<'a>) -> Self {
        Self::NotRead(not_read)
    }
}

impl<'a> From<NoIdentity<'a>> for Unidentified<'a> {
    fn from(why: NoIdentity<'a>) -> Self {
        Self::None(why)
    }
}

/// The identity of a namespace.
///
/// # Errors
/// Why it is not known. What was not read comes before what is missing.
pub fn identity_of<'a>(
    supersede: &'a ValidSupersede,
    namespace: &'a NamespaceFacts,
) -> Result<Identity<'a>, Unidentified<'a>> {
    let value = |key: &'a str| -> Result<Option<&'a str>, AnnotationNotRead<'a>> {
        let value = match namespace.labels.get(key) {
            Some(label) => Some(label),
            None => annotation(namespace, key)?,
        };
        // Of a part of it nothing can be said.
        Ok(value.filter(|value| !value.is_empty() && !is_cut(value)))
    };
    let read =
        |key: &'a str| -> Result<KeyedValue<'a>, AnnotationNotRead<'a>> { Ok(KeyedValue(key, value(key)?)) };
    let optional = |key: &'a Option<String>| key.as_deref().map(read).transpose();
    let IdentityKeys { project, environment, job, pipeline, run, .. } = &supersede.keys;
    let (project, environment, job) = (read(project)?, optional(environment)?, optional(job)?);
    let (pipeline, run) = (optional(pipeline)?, optional(run)?);
    let mut in_common = Vec::with_capacity(supersede.by.len());
    for (by, key) in &supersede.by {
        in_common.extend(value(key)?.map(|value| (*by, value)));
    }
    let (project, environment, job) = (
        project.present()?,
        environment.map(KeyedValue::present).transpose()?,
        job.map(KeyedValue::present).transpose()?,
    );
    let pipeline = pipeline.map(KeyedValue::number).transpose()?;
    let run = run.map(KeyedValue::number).transpose()?;
    if in_common.is_empty() {
        return Err(NoIdentity::NothingInCommon.into());
    }
    let order = Order { pipeline, run, created: namespace.created };
    Ok(Identity { project, environment, job, order, in_common })
}

/// The identity of a namespace; none if it has none.
///
/// # Errors
/// If that depends on an annotation that was not read.
pub(super) fn identity_if_any<'a>(
    supersede: &'a ValidSupersede,
    namespace: &'a NamespaceFacts,
) -> Result<Option<Identity<'a>>, AnnotationNotRead<'a>> {
    match identity_of(supersede, namespace) {
        Ok(identity) => Ok(Some(identity)),
        Err(Unidentified::None(_)) => Ok(None),
        Err(Unidentified::NotRead(not_read)) => Err(not_read),
    }
}

/// A key, and what the namespace has of it.
struct KeyedValue<'a>(&'a str, Option<&'a str>);

impl<'a> KeyedValue<'a> {
    fn present(self) -> Result<&'a str, NoIdentity<'a>> {
        self.1.ok_or(NoIdentity::Missing(self.0))
    }

    fn number(self) -> Result<u128, NoIdentity<'a>> {
        let key = self.0;
        number(self.present()?).ok_or(NoIdentity::NoNumber(key))
    }
}

/// A number as CI systems count; none if it is none, or larger than any of them.
fn number(text: &str) -> Option<u128> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    if digits { text.parse().ok() } else { None }
}
