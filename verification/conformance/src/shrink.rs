//! Leaves out steps without which two servers still disagree.

use super::compare::Mismatch;
use super::step::SequenceStep;

/// A disagreement with fewer steps: each is left out if `check` still finds one without it, at the same place and with the same codes. `check`
/// plays steps on both sides; it is asked so often at most.
pub async fn smaller(
    found: Mismatch,
    mut attempts: usize,
    mut check: impl AsyncFnMut(&[SequenceStep]) -> Option<Mismatch>,
) -> Mismatch {
    let mut best = found;
    let mut size = best.steps.len() / 2;
    while size > 0 {
        let mut at = 0;
        // The last step is the one that is answered differently.
        while at + size < best.steps.len() && attempts > 0 {
            let mut fewer = best.steps.clone();
            fewer.drain(at..at + size);
            attempts -= 1;
            match check(&fewer).await {
                Some(less) if alike(&less, &best) => best = less,
                _ => at += size,
            }
        }
        size /= 2;
    }
    best
}

/// Whether it is likely the same mistake.
fn alike(one: &Mismatch, other: &Mismatch) -> bool {
    let codes = |d: &Mismatch| (d.real.code, d.simulated.code);
    one.at == other.at && codes(one) == codes(other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::step::{Call, Exchange};
    use serde_json::Value;

    fn found(ids: &[usize]) -> Mismatch {
        let answer = Exchange { code: 200, warnings: Vec::new(), body: Value::Null };
        let step = |id: &usize| SequenceStep { id: *id, call: Call::Clear { uri: String::new() } };
        let steps = ids.iter().map(step).collect();
        Mismatch { steps, real: answer.clone(), simulated: answer, at: "code".to_owned() }
    }

    #[tokio::test]
    async fn only_what_is_needed_is_left() {
        let all: Vec<usize> = (0..40).collect();
        let needed = [3, 17, 39];
        let small = smaller(found(&all), 1000, async |steps| {
            let ids: Vec<usize> = steps.iter().map(|s| s.id).collect();
            needed.iter().all(|id| ids.contains(id)).then(|| found(&ids))
        })
        .await;
        assert_eq!(small.steps.iter().map(|s| s.id).collect::<Vec<_>>(), needed);
    }

    #[tokio::test]
    async fn it_ends_when_the_attempts_are_used_up() {
        let mut asked = 0;
        smaller(found(&[1, 2, 3, 4]), 2, async |_| {
            asked += 1;
            None
        })
        .await;
        assert_eq!(asked, 2);
    }
}
