//! Mistakes in settings: reading goes on after each, so that all of them are shown at once.

use anyhow::{Result, anyhow};

use crate::import::Remarks;
use crate::import::fields::FieldError;
use crate::print::count;
use crate::terminal::Paragraph;

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
