//! Digests of runs, so that a change that is to change no behaviour can show that it does not.
//!
//! A trace has the requests and when they were sent, without the texts in them: messages may be written better. The effects
//! are what people would notice: what was destroyed, scaled, sent or fired, and how the run ended.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

use crate::run::RunResult;

/// The digest of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest {
    /// Of the requests, and when they were sent.
    pub trace: u32,
    /// Of what people would notice.
    pub effects: u32,
}

/// So many seeds have one line, and one digest of their traces.
const ROW: usize = 10;

impl Digest {
    /// The digest of a run.
    pub fn of(outcome: &RunResult) -> Self {
        let trace = outcome.trace.lines().iter().fold(String::new(), |mut text, line| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{line}");
            text
        });
        Self { trace: short(&trace), effects: short(&format!("{:?}\n{:?}", outcome.effects, outcome.end)) }
    }

    /// The digests of seeds from 0 on, as the file of a suite has them: in each line ten seeds, the digest of their traces, and
    /// one of the effects of each.
    pub fn table(digests: &[Self]) -> String {
        let mut text = String::new();
        for (row, ten) in digests.chunks(ROW).enumerate() {
            let traces = ten.iter().fold(String::new(), |mut text, digest| {
                let _ = write!(text, "{:08x}", digest.trace);
                text
            });
            // Writing to a string cannot fail.
            let _ = write!(text, "{} {:08x}", row * ROW, short(&traces));
            for digest in ten {
                let _ = write!(text, " {:08x}", digest.effects);
            }
            text.push('\n');
        }
        text
    }

    /// What differs between two tables, in words; nothing if they are equal.
    pub fn differences(before: &str, now: &str) -> Vec<String> {
        let rows = |text: &str| -> Vec<Vec<String>> {
            text.lines().map(|line| line.split(' ').map(str::to_owned).collect()).collect()
        };
        let (before, now) = (rows(before), rows(now));
        let mut found = Vec::new();
        if before.len() != now.len() {
            found.push(format!("there are {} rows of seeds, and were {}", now.len(), before.len()));
        }
        for (row, (old, new)) in before.iter().zip(&now).enumerate() {
            let seeds = (2..old.len().max(new.len())).filter(|&n| old.get(n) != new.get(n));
            let seeds: Vec<String> = seeds.map(|n| (row * ROW + n - 2).to_string()).collect();
            if !seeds.is_empty() {
                found.push(format!("other effects of seeds {}", seeds.join(", ")));
            } else if old != new {
                found.push(format!(
                    "other traces, same effects, of seeds {} to {}",
                    row * ROW,
                    row * ROW + ROW - 1
                ));
            }
        }
        found
    }
}

fn short(text: &str) -> u32 {
    let hash: [u8; 32] = Sha256::digest(text).into();
    u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]])
}
