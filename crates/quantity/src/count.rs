//! Numbers of things in messages.

use std::fmt::Display;

/// `1 workload`, `2 workloads`.
pub fn count<N: Copy + Display + PartialEq + From<u8>>(number: N, noun: &str) -> String {
    let plural = if number == N::from(1) { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_is_singular() {
        let counted = [0_usize, 1, 2, 21].map(|number| count(number, "workload"));
        assert_eq!(counted, ["0 workloads", "1 workload", "2 workloads", "21 workloads"]);
        assert_eq!(count(1_u32, "attempt"), "1 attempt");
    }
}
