//! How much of its failure budget a namespace has spent: sixty parts of a window that moves with time.

use coppice_api::health::{FailureBudget, SpentBudget};
use jiff::Timestamp;

/// A window has so many parts.
const PARTS: usize = 60;
/// A part is counted in so many units.
const UNITS: u8 = 60;
/// No part of any window is as late as this.
const FAR: i64 = 1 << 40;
/// The letters of zero to sixty units.
const LETTERS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// What was spent, in units, the newest part first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Spent {
    newest: i64,
    parts: [u8; PARTS],
    /// The length of a part in seconds.
    length: i64,
}

impl Spent {
    /// What is recorded, for a budget with this window. What cannot be understood is nothing.
    pub(super) fn read(recorded: Option<&SpentBudget>, budget: FailureBudget) -> Self {
        let length = (budget.window.as_secs_i64() / 60).max(1);
        let mut spent = Self { newest: 0, parts: [0; PARTS], length };
        if let Some(recorded) = recorded.filter(|recorded| (0..FAR).contains(&recorded.newest)) {
            spent.newest = recorded.newest;
            for (part, letter) in spent.parts.iter_mut().zip(recorded.parts.bytes()) {
                let units = (0..=UNITS).find(|units| LETTERS[usize::from(*units)] == letter);
                *part = units.unwrap_or(0);
            }
        }
        spent
    }

    /// As it is recorded; none if nothing was spent.
    pub(super) fn recorded(&self) -> Option<SpentBudget> {
        let used = self.parts.iter().rposition(|part| *part > 0)? + 1;
        let letters = self.parts[..used].iter().map(|part| char::from(LETTERS[usize::from(*part)]));
        Some(SpentBudget { newest: self.newest, parts: letters.collect() })
    }

    /// Adds what lies between two instants, rounded down in each part.
    pub(super) fn add(&mut self, from: Timestamp, until: Timestamp) {
        let (from, until) = (from.as_second(), until.as_second());
        let newest = until.div_euclid(self.length);
        self.move_to(newest);
        for (number, part) in (0..=self.newest).rev().zip(&mut self.parts) {
            let begins = number * self.length;
            let seconds = until.min(begins + self.length) - from.max(begins);
            let units = seconds.max(0) * i64::from(UNITS) / self.length;
            *part = part.saturating_add(u8::try_from(units).unwrap_or(UNITS)).min(UNITS);
        }
    }

    /// What was spent within the window that ends now, in seconds.
    pub(super) fn total(&self, now: Timestamp) -> i64 {
        let newest = now.as_second().div_euclid(self.length);
        let parts = (0..=self.newest).rev().zip(self.parts);
        let within = parts.filter(|(number, _)| (newest - 59..=newest).contains(number));
        within.map(|(_, part)| i64::from(part)).sum::<i64>() * self.length / i64::from(UNITS)
    }

    /// Removes parts so that this one is the newest.
    fn move_to(&mut self, newest: i64) {
        let by = usize::try_from(newest.saturating_sub(self.newest)).unwrap_or(0);
        if by == 0 {
            return;
        }
        self.newest = newest;
        if by >= PARTS {
            self.parts = [0; PARTS];
        } else {
            self.parts.rotate_right(by);
            self.parts[..by].fill(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use coppice_quantity::Duration;

    use super::*;

    fn at(minute: i64, second: i64) -> Timestamp {
        Timestamp::from_second(minute * 60 + second).unwrap()
    }

    fn hour() -> FailureBudget {
        FailureBudget { window: Duration::from_secs(3600), max: Duration::from_secs(1200) }
    }

    #[test]
    fn minutes_are_counted_to_the_second_and_removed_after_an_hour() {
        let mut spent = Spent::read(None, hour());
        assert_eq!(spent.recorded(), None);
        spent.add(at(100, 50), at(102, 10));
        assert_eq!(spent.total(at(102, 10)), 80);
        let recorded = SpentBudget { newest: 102, parts: "AyA".to_owned() };
        assert_eq!(spent.recorded(), Some(recorded.clone()), "10 s, 60 s and 10 s, the newest first");
        assert_eq!(Spent::read(Some(&recorded), hour()), spent);
        spent.add(at(110, 0), at(110, 30));
        assert_eq!(spent.recorded().unwrap().parts, "U0000000AyA");
        assert_eq!(spent.total(at(110, 30)), 110);
        assert_eq!(spent.total(at(160, 0)), 100, "minute 100 is an hour ago");
        assert_eq!(spent.total(at(169, 59)), 30);
        assert_eq!(spent.total(at(170, 0)), 0);
        spent.add(at(500, 0), at(500, 1));
        assert_eq!(spent.recorded(), Some(SpentBudget { newest: 500, parts: "1".to_owned() }));
    }

    #[test]
    fn longer_and_shorter_windows_have_sixty_parts_as_well() {
        let day = FailureBudget { window: Duration::from_secs(86_400), ..hour() };
        let mut spent = Spent::read(None, day);
        spent.add(at(0, 0), at(60, 0));
        assert_eq!(spent.total(at(60, 0)), 3600, "two and a half parts of 24 minutes");
        let minute = FailureBudget { window: Duration::from_secs(60), ..hour() };
        let mut spent = Spent::read(None, minute);
        spent.add(at(0, 0), at(0, 30));
        assert_eq!((spent.total(at(0, 30)), spent.total(at(1, 10)), spent.total(at(1, 30))), (30, 19, 0));
    }

    #[test]
    fn what_is_recorded_and_makes_no_sense_is_bounded() {
        let odd = SpentBudget { newest: 5, parts: "z?é".to_owned() };
        assert_eq!(Spent::read(Some(&odd), hour()).total(at(5, 0)), 0);
        for newest in [i64::MIN, i64::MAX, FAR - 1] {
            let mut spent = Spent::read(Some(&SpentBudget { newest, parts: "y".to_owned() }), hour());
            spent.add(at(0, 0), at(1, 0));
            assert!(spent.total(at(1, 0)) <= 60, "{newest}");
        }
    }
}
