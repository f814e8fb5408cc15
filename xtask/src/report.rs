//! What checks have found, printed as it is found and summed up at the end.

/// The findings of all checks so far.
#[derive(Default)]
pub(crate) struct Report {
    checks: usize,
    findings: usize,
}

impl Report {
    /// Tells what one check has found.
    pub(crate) fn add(&mut self, check: &str, findings: Vec<String>) {
        self.checks += 1;
        self.findings += findings.len();
        if findings.is_empty() {
            println!("ok    {check}");
        }
        for finding in findings {
            println!("FAIL  {check}: {finding}");
        }
    }

    /// Whether nothing was found.
    pub(crate) const fn is_clean(&self) -> bool {
        self.findings == 0
    }

    /// The last line.
    pub(crate) fn summary(&self) -> String {
        let verdict = if self.is_clean() { "passed" } else { "FAILED" };
        format!("xtask {verdict}: {} checks, {} findings", self.checks, self.findings)
    }
}

#[cfg(test)]
mod tests {
    use super::Report;

    #[test]
    fn one_finding_fails_the_whole() {
        let mut report = Report::default();
        report.add("first", Vec::new());
        assert!(report.is_clean());
        report.add("second", vec!["bad".to_owned()]);
        report.add("third", Vec::new());
        assert!(!report.is_clean());
        assert_eq!(report.summary(), "xtask FAILED: 3 checks, 1 findings");
    }
}
