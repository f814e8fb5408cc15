//! Medians, percentiles and spreads: few numbers that say how far a figure can be trusted.

use serde::Serialize;

/// Median, smallest and largest of the values of several runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The one in the middle; of an even number the mean of the two.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// How many values there were.
    pub runs: usize,
}

impl Spread {
    /// The spread of these values; none if there are none, or if one of them is not a number.
    pub fn of(values: &[f64]) -> Option<Self> {
        let sorted = sorted(values)?;
        let middle = sorted.len() / 2;
        let median = if sorted.len().is_multiple_of(2) {
            f64::midpoint(sorted[middle - 1], sorted[middle])
        } else {
            sorted[middle]
        };
        Some(Self { median, min: *sorted.first()?, max: *sorted.last()?, runs: sorted.len() })
    }
}

/// The ratio of each run's value to the other's value of the same run. Runs that only one of them has are left out, and
/// so are those whose divisor is zero.
pub fn ratios(ours: &[f64], theirs: &[f64]) -> Vec<f64> {
    let pairs = ours.iter().zip(theirs);
    pairs.filter(|(_, theirs)| **theirs > 0.0).map(|(ours, theirs)| ours / theirs).collect()
}

/// The smallest value that at least `percent` of all values do not exceed (nearest rank); none without values.
pub fn percentile(values: &[f64], percent: f64) -> Option<f64> {
    let sorted = sorted(values)?;
    let rank = (percent / 100.0 * count(sorted.len())).ceil().max(1.0);
    // The rank is at least 1 and at most the length, up to rounding, which `min` catches.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 1 and a length")]
    let rank = (rank as usize).min(sorted.len());
    Some(sorted[rank - 1])
}

/// At most so many of the values, in rising order and evenly by rank, with the smallest and the largest: enough for a plot
/// of their distribution.
pub(crate) fn thinned(values: &[f64], most: usize) -> Vec<f64> {
    let sorted = sorted(values).unwrap_or_default();
    if sorted.len() <= most || most < 2 {
        return sorted;
    }
    (0..most).map(|n| sorted[n * (sorted.len() - 1) / (most - 1)]).collect()
}

/// In rising order; none if there is nothing to order.
pub(crate) fn sorted(values: &[f64]) -> Option<Vec<f64>> {
    if values.is_empty() || values.iter().any(|value| value.is_nan()) {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    Some(sorted)
}

/// Memory of a process, in MiB.
#[expect(clippy::cast_precision_loss, reason = "memory of one process in KiB is far below 2^52")]
pub fn mib(kib: u64) -> f64 {
    kib as f64 / 1024.0
}

/// A count as a number to calculate with.
#[expect(clippy::cast_precision_loss, reason = "counts of objects and runs are far below 2^52")]
pub(crate) fn count(n: usize) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_the_middle_and_both_ends() {
        let spread = Spread::of(&[5.0, 1.0, 3.0]).unwrap();
        assert_eq!(spread, Spread { median: 3.0, min: 1.0, max: 5.0, runs: 3 });
        assert_eq!(Spread::of(&[4.0, 1.0, 2.0, 3.0]).map(|s| s.median), Some(2.5));
        assert_eq!(Spread::of(&[]), None);
        assert_eq!(Spread::of(&[1.0, f64::NAN]), None);
    }

    #[test]
    fn a_percentile_is_one_of_the_values() {
        let values: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        let at = |percent| percentile(&values, percent);
        assert_eq!(
            (at(0.0), at(50.0), at(99.0), at(100.0)),
            (Some(1.0), Some(50.0), Some(99.0), Some(100.0))
        );
        assert_eq!(percentile(&[7.0], 99.0), Some(7.0));
        assert_eq!(percentile(&[1.0, 2.0], 99.0), Some(2.0));
        assert_eq!(percentile(&[], 50.0), None);
    }

    #[test]
    fn few_of_many_values_keep_both_ends() {
        let values: Vec<f64> = (0..=1_000).rev().map(f64::from).collect();
        assert_eq!(thinned(&values, 5), [0.0, 250.0, 500.0, 750.0, 1_000.0]);
        assert_eq!(thinned(&[2.0, 1.0], 5), [1.0, 2.0]);
        assert_eq!(thinned(&[], 5), [0.0; 0]);
    }

    #[test]
    fn ratios_pair_runs_and_never_divide_by_zero() {
        assert_eq!(ratios(&[1.0, 4.0, 9.0], &[2.0, 4.0]), [0.5, 1.0]);
        assert_eq!(ratios(&[1.0, 1.0], &[0.0, 4.0]), [0.25]);
    }
}
