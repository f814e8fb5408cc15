//! The first answer in which two transcripts differ.

use std::fmt;

use serde_json::Value;

use super::known;
use super::mask::masked;
use super::step::{Exchange, SequenceStep, Transcript};

/// A step that two servers answered differently.
#[derive(Clone, Debug)]
pub struct Mismatch {
    /// Up to the step that was answered differently.
    pub steps: Vec<SequenceStep>,
    /// The real server's answer to the last of them, masked.
    pub real: Exchange,
    /// The answer of the server in memory.
    pub simulated: Exchange,
    /// Where they differ first, as a JSON pointer; `code` or `warnings` if it is not the body.
    pub at: String,
}

impl Mismatch {
    /// The same with nothing but the last step.
    #[must_use]
    pub fn last(mut self) -> Self {
        self.steps.drain(..self.steps.len().saturating_sub(1));
        self
    }
}

/// Compares two transcripts of the same steps, step by step.
pub fn compare(steps: &[SequenceStep], real: &Transcript, simulated: &Transcript) -> Option<Mismatch> {
    let pairs = masked(real).into_iter().zip(masked(simulated));
    for (at, (((_, mut real), (_, mut simulated)), step)) in pairs.zip(steps).enumerate() {
        known::normalize(&step.call, &mut real, &mut simulated);
        if let Some(difference_path) = difference(&real, &simulated) {
            return Some(Mismatch { steps: steps[..=at].to_vec(), real, simulated, at: difference_path });
        }
    }
    None
}

fn difference(real: &Exchange, simulated: &Exchange) -> Option<String> {
    if real.code != simulated.code {
        Some("code".to_owned())
    } else if real.body != simulated.body {
        Some(difference_path(&real.body, &simulated.body))
    } else if real.warnings != simulated.warnings {
        Some("warnings".to_owned())
    } else {
        None
    }
}

/// Where two values differ first.
fn difference_path(real: &Value, simulated: &Value) -> String {
    match (real, simulated) {
        (Value::Object(a), Value::Object(b)) => {
            let differs = a.iter().find(|(key, value)| b.get(*key) != Some(value)).map(|(key, _)| key);
            let key = differs.or_else(|| b.keys().find(|key| !a.contains_key(*key)));
            key.map_or(String::new(), |key| match (a.get(key), b.get(key)) {
                (Some(a), Some(b)) => format!("/{key}{}", difference_path(a, b)),
                _ => format!("/{key}"),
            })
        }
        (Value::Array(a), Value::Array(b)) => {
            let at = a.iter().zip(b).position(|(a, b)| a != b);
            at.map_or_else(
                || format!("/{}", a.len().min(b.len())),
                |at| format!("/{at}{}", difference_path(&a[at], &b[at])),
            )
        }
        _ => String::new(),
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for step in &self.steps {
            writeln!(f, "{step}")?;
        }
        writeln!(f, "differ at {}", self.at)?;
        writeln!(f, "  real server:      {}", Shown(&self.real))?;
        write!(f, "  server in memory: {}", Shown(&self.simulated))
    }
}

struct Shown<'a>(&'a Exchange);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.0.code, self.0.body)?;
        if self.0.warnings.is_empty() { Ok(()) } else { write!(f, " warnings {:?}", self.0.warnings) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::step::{Call, RequestSpec};
    use serde_json::json;

    fn transcript(bodies: &[Value]) -> Transcript {
        let exchanges = bodies.iter().enumerate();
        let exchanges = exchanges
            .map(|(id, body)| (id, Exchange { code: 200, warnings: Vec::new(), body: body.clone() }))
            .collect();
        Transcript { namespace: "n".to_owned(), exchanges }
    }

    #[test]
    fn the_first_difference_is_reported_with_the_steps_up_to_it() {
        let step =
            |id| SequenceStep { id, call: Call::RequestSpec(RequestSpec::new("GET", "/x", Value::Null)) };
        let steps = [step(0), step(1), step(2)];
        let real = transcript(&[json!({}), json!({"a": [{"b": 1}]}), json!(1)]);
        let simulated = transcript(&[json!({}), json!({"a": [{"b": 2}]}), json!(2)]);
        let found = compare(&steps, &real, &simulated).unwrap();
        assert_eq!((found.at.as_str(), found.steps.len()), ("/a/0/b", 2));
        assert!(compare(&steps, &real, &real).is_none());
        let longer = transcript(&[json!([1])]);
        assert_eq!(compare(&steps, &longer, &transcript(&[json!([1, 2])])).unwrap().at, "/1");
        assert_eq!(compare(&steps, &longer, &transcript(&[json!([])])).unwrap().at, "/0");
    }
}
