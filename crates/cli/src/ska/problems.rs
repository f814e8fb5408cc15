//! Mistakes in settings: reading goes on after each, so that all of them are shown at once.

use anyhow::{Result, anyhow};
use coppice_lifecycle::cluster::InvalidClusterManager;
use thiserror::Error;

use crate::import::Remarks;
use crate::import::fields::FieldError;
use crate::print::count;
use crate::terminal::Paragraph;
use crate::validate::Problem;

/// What is wrong, one line each, with its place.
#[derive(Debug, Default)]
pub(super) struct Problems(Vec<String>);

impl Problems {
    pub(super) fn add(&mut self, problem: impl Into<String>) {
        self.0.push(problem.into());
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them as one error, if there are some.
    pub(super) fn none(mut self) -> Result<()> {
        match self.0.len() {
            0 => Ok(()),
            1 => Err(anyhow!(self.0.remove(0))),
            all => {
                let first = format!("{}, and nothing is written:", count(all, "problem"));
                Err(Paragraph { first, below: self.0 }.into())
            }
        }
    }
}

/// Why nothing is written for an entry.
#[derive(Debug, Error)]
pub(super) enum NotWritten {
    #[error("it cannot be expressed")]
    Inexpressible,
    #[error(
        "which of it and {other} wins a namespace that both match depends on how many kinds of selectors match: give each kind (names, any, \
         all) an entry of its own, and import again"
    )]
    UnclearRank { other: String },
    #[error(
        "it cannot be said for all of its namespaces which entry of the action controller decides about them ({}): give both controllers \
         entries with the same names, any and all, and import again",
        .candidates.join(", ")
    )]
    UnclearAction { candidates: Vec<String> },
    #[error("it would govern namespaces of {winner}, which is not written")]
    WouldGovern { winner: String },
    #[error(transparent)]
    Encoding(#[from] serde_json::Error),
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Refused(Vec<Problem>),
    #[error(transparent)]
    Invalid(#[from] InvalidClusterManager),
}

/// A mistake that has been written down.
#[derive(Clone, Copy, Debug)]
pub(super) struct Noted;

/// Reads the settings of one place.
pub(super) struct Reader<'a> {
    /// Where they are, for messages.
    pub(super) place: &'a str,
    pub(super) remarks: &'a mut Remarks,
    pub(super) problems: &'a mut Problems,
}

impl Reader<'_> {
    /// What was read; none if that is a mistake, which is written down.
    pub(super) fn keep<T>(&mut self, read: Result<T, FieldError>) -> Option<T> {
        read.map_err(|wrong| self.problems.add(format!("{}: {wrong}", self.place))).ok()
    }
}
