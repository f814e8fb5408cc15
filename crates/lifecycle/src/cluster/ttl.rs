//! The time to live of one namespace: by its cluster manager, or by whoever created it.

use coppice_api::Reason;
use coppice_api::condition::ConditionState;
use coppice_api::managed_namespace::{RecordedTtl, ShorterTtl};
use coppice_mutants::{Mutant, active};
use coppice_quantity::{Duration, DurationError};
use jiff::Timestamp;

use super::phase::RunningTtl;
use super::selection::annotation;
use crate::condition::{later, whole_second_after};
use crate::facts::{AnnotationNotRead, NamespaceFacts};

/// A time to live, as a cluster manager asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidTtl {
    /// Of namespaces that do not say anything themselves.
    pub after: Duration,
    /// The key of the annotation by which a namespace says something else.
    pub from_annotation: Option<String>,
    /// The longest that a namespace can ask for, if there is a limit.
    pub max: Option<Duration>,
}

/// The time to live of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectiveTtl {
    /// From its creation on.
    pub after: Duration,
    /// What it comes from; none where the manager names no annotation.
    pub source: Option<TtlSource>,
    /// What its annotation asks for, where that is more than its manager permits.
    pub asked: Option<Duration>,
}

/// What the time to live of a namespace comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TtlSource {
    /// Its annotation.
    Annotation,
    /// The manager: it does not have the annotation.
    Manager,
    /// The manager: its annotation is no time to live. What is wrong with it, and what to write instead.
    NotUnderstood(InvalidTtl),
}

/// So many characters may a duration have, as in a spec.
const MAX_LENGTH: usize = 32;

/// Why an annotation is no time to live. The message says what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTtl {
    /// Longer than any in a spec.
    #[error("it has more than {MAX_LENGTH} characters: write a duration, such as 90s, 2h or 7d")]
    TooManyCharacters,
    /// No duration.
    #[error(transparent)]
    Duration(#[from] DurationError),
    /// No time at all.
    #[error("{0:?} would expire the namespace at once: write at least 1s")]
    Zero(String),
}

/// The time to live of a namespace: the one place where it is decided.
///
/// # Errors
/// If it depends on an annotation that was not read.
pub fn ttl_of<'a>(
    ttl: &'a ValidTtl,
    namespace: &NamespaceFacts,
) -> Result<EffectiveTtl, AnnotationNotRead<'a>> {
    let Some(key) = &ttl.from_annotation else {
        return Ok(EffectiveTtl { after: ttl.after, source: None, asked: None });
    };
    let (own, source) = match annotation(namespace, key)?.map(parse) {
        None => (ttl.after, TtlSource::Manager),
        Some(Ok(own)) => (own, TtlSource::Annotation),
        Some(Err(why)) => (ttl.after, TtlSource::NotUnderstood(why)),
    };
    let max = ttl.max.filter(|max| source == TtlSource::Annotation && *max < own);
    Ok(EffectiveTtl { after: max.unwrap_or(own), source: Some(source), asked: max.map(|_| own) })
}

/// Reads it as a spec's would be read.
fn parse(text: &str) -> Result<Duration, InvalidTtl> {
    if text.chars().nth(MAX_LENGTH).is_some() {
        return Err(InvalidTtl::TooManyCharacters);
    }
    let own: Duration = text.parse()?;
    if own.is_zero() {
        return Err(InvalidTtl::Zero(text.to_owned()));
    }
    Ok(own)
}

impl EffectiveTtl {
    /// What the record says of it, given what it says already under the same spec; none where the manager names no annotation,
    /// so that only its spec can change it. A longer ttl counts at once, and a shorter one when it has settled.
    pub(super) fn recorded(
        &self,
        known: Option<&RecordedTtl>,
        settle: Duration,
        now: Timestamp,
    ) -> Option<RecordedTtl> {
        self.source.as_ref()?;
        let after = self.after;
        let Some(known) = known else { return Some(RecordedTtl { after, first: after, shorter: None }) };
        let same = known.shorter.filter(|shorter| shorter.after == after);
        let from = same.map_or_else(|| later(whole_second_after(now), settle), |shorter| shorter.from);
        let counts = known.after <= after || from <= now || active(Mutant::ShortenedTtlAtOnce);
        Some(if counts {
            // One that became longer under this spec is none of the spec any more.
            RecordedTtl { after, first: known.first.max(after), shorter: None }
        } else {
            RecordedTtl { shorter: Some(ShorterTtl { after, from }), ..*known }
        })
    }

    /// The one that counts, given what is recorded of it.
    pub(super) fn running(&self, recorded: Option<&RecordedTtl>) -> RunningTtl {
        let same = RunningTtl { after: self.after, first: self.after };
        recorded.map_or(same, |recorded| RunningTtl { after: recorded.after, first: recorded.first })
    }

    /// What it comes from: an enumerated reason, and the same for people.
    pub(super) fn source_text(&self, written: &ValidTtl, manager: &str) -> (Reason, String) {
        let after = self.after;
        let (Some(key), Some(source)) = (&written.from_annotation, &self.source) else {
            let message = format!("the ttl is {after}, that of ClusterNamespaceManager {manager}");
            return (Reason::TtlByManager, message);
        };
        match source {
            TtlSource::Annotation => {
                let cut = self.asked.map_or_else(String::new, |asked| format!(" ({asked}, cut by maxTTL)"));
                let message = format!("the ttl is {after}, by annotation {key} of the namespace{cut}");
                (Reason::TtlByAnnotation, message)
            }
            TtlSource::Manager => {
                let message = format!(
                    "the namespace has no annotation {key}: the ttl is {after}, that of ClusterNamespaceManager {manager}"
                );
                (Reason::TtlByManager, message)
            }
            TtlSource::NotUnderstood(why) => {
                let message = format!(
                    "annotation {key} of the namespace is not understood: {why}; until then the ttl is {after}, that of \
                     ClusterNamespaceManager {manager}"
                );
                (Reason::TtlNotUnderstood, message)
            }
        }
    }

    /// Whether the annotation is understood, as the record says it; none where the manager names no annotation.
    pub(super) fn condition(
        &self,
        written: &ValidTtl,
        manager: &str,
        recorded: Option<&RecordedTtl>,
    ) -> Option<ConditionState> {
        self.source.as_ref()?;
        let (reason, message) = self.source_text(written, manager);
        let status = if reason == Reason::TtlNotUnderstood { "False" } else { "True" };
        let settles = recorded.and_then(|recorded| Some((recorded.after, recorded.shorter?.from)));
        let message = match settles {
            Some((before, from)) => {
                format!(
                    "{message}; it is shorter than before, and counts from {from:.0} on (settle): until then it is {before}"
                )
            }
            None => message,
        };
        Some(ConditionState { status, reason: reason.to_string(), message })
    }
}
