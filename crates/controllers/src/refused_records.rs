//! Why records of namespaces are not written, for the condition `Ready` of the cluster manager that governs these namespaces: a record
//! that there is not cannot say it itself.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use coppice_lifecycle::record::truncate_text;
use coppice_runtime::write::WriteError;

use crate::status_writer::{Applied, StepError};

/// So many namespaces are remembered: of each cluster manager one is shown.
const MOST: usize = 1000;
/// Characters of a refusal that are kept.
const MAX_TEXT: usize = 512;

/// The namespaces whose record the API server refused when it was last written, with its words.
#[derive(Debug, Default)]
pub(crate) struct RefusedRecords(Mutex<BTreeMap<String, String>>);

impl RefusedRecords {
    /// Remembers why the record of a namespace is not written, until it is; true if that is new.
    pub(crate) fn note<O>(&self, namespace: &str, applied: &Applied<O>) -> bool {
        match applied {
            Applied::Failed(StepError::Write(WriteError::Refused(why))) => {
                return self.refused(namespace, &why.message);
            }
            Applied::Replan(_) | Applied::CheckAt(_) => self.remove(namespace),
            // Whether the next write is refused is not known yet.
            Applied::Failed(_) | Applied::CacheBehind => {}
        }
        false
    }

    fn refused(&self, namespace: &str, why: &str) -> bool {
        let mut why = why.to_owned();
        truncate_text(&mut why, MAX_TEXT);
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match known.get(namespace) {
            Some(before) if *before == why => return false,
            None if known.len() >= MOST => return false,
            Some(_) | None => {}
        }
        known.insert(namespace.to_owned(), why);
        true
    }

    /// Nothing of this namespace is refused any more, or there is no such namespace.
    pub(crate) fn remove(&self, namespace: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(namespace);
    }

    /// What is known, by the name of the namespace.
    pub(crate) fn all(&self) -> BTreeMap<String, String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_refusal_is_known_until_the_record_is_written() {
        let records = RefusedRecords::default();
        assert!(records.refused("a", "exceeded quota"));
        assert!(!records.refused("a", "exceeded quota"), "that is nothing new");
        assert!(records.refused("a", "denied by a policy"));
        assert!(records.refused("b", "exceeded quota"));
        records.remove("b");
        assert_eq!(records.all(), [("a".to_owned(), "denied by a policy".to_owned())].into());
        records.remove("a");
        assert!(records.refused("a", "denied by a policy"), "it was written in between");
    }

    #[test]
    fn a_write_that_ends_otherwise_decides_what_is_still_refused() {
        let refused = || Applied::Failed(StepError::Write(WriteError::refused("exceeded quota")));
        for (then, known) in [
            (Applied::Replan(()), false),
            (Applied::CheckAt(None), false),
            (Applied::CacheBehind, true),
            (Applied::Failed(StepError::Races), true),
            (Applied::Failed(StepError::Write(WriteError::Conflict)), true),
            (refused(), true),
        ] {
            let records = RefusedRecords::default();
            assert!(records.note("a", &refused()), "that is new");
            assert!(!records.note("a", &then), "that is not");
            assert_eq!(records.all().contains_key("a"), known);
        }
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let records = RefusedRecords::default();
        // Two bytes a character: it is cut between characters.
        assert!(records.refused("a", &"é".repeat(600)));
        let kept = &records.all()["a"];
        assert_eq!((kept.chars().count(), kept.ends_with("é...")), (512, true), "{kept}");
        for n in 1..1000 {
            assert!(records.refused(&format!("n-{n}"), "exceeded quota"), "{n}");
        }
        assert!(!records.refused("one-more", "exceeded quota"));
        assert!(records.refused("a", "exceeded quota"), "what is known is kept up to date");
        records.remove("a");
        assert!(records.refused("one-more", "exceeded quota"));
        assert_eq!(records.all().len(), 1000);
    }
}
