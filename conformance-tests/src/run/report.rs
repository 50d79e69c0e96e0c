//! The results of a run, for people and for programs.

use std::fmt;

use serde::Serialize;

/// The results of a run of the suite against one backend.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The backend.
    pub backend: String,
    /// The seed; `TENURE_SEED` replays it.
    pub seed: u64,
    /// Name and version of the server.
    pub server: String,
    /// Cases that passed.
    pub passed: usize,
    /// Refusal cases that passed: undeclared abilities were refused and changed nothing.
    pub refused: usize,
    /// Cases that did not run; each has its reason.
    pub ignored: usize,
    /// Cases that failed as a known issue says.
    pub expected_fail: usize,
    /// Cases that failed.
    pub failed: usize,
    /// Each case.
    pub cases: Vec<CaseReport>,
}

/// The result of one case.
#[derive(Clone, Debug, Serialize)]
pub struct CaseReport {
    /// Its name.
    pub id: &'static str,
    /// The outcome.
    pub outcome: Outcome,
    /// The reason why it was ignored, failed or expected to fail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The statement that it proves.
    pub proves: &'static str,
    /// The properties that it covers.
    pub properties: &'static [&'static str],
    /// Its duration, in milliseconds of the wall clock.
    pub ms: u64,
}

/// The outcome of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It ran and held.
    Passed,
    /// A refusal case that ran and held.
    Refused,
    /// It did not run.
    Ignored,
    /// It failed, as known.
    ExpectedFail,
    /// It failed, or passed although it was known to fail.
    Failed,
}

impl Report {
    pub(super) fn new(backend: &str, server: String, seed: u64, mut cases: Vec<CaseReport>) -> Self {
        cases.sort_by_key(|case| case.id);
        let count = |outcome| cases.iter().filter(|case| case.outcome == outcome).count();
        Self {
            backend: backend.to_owned(),
            seed,
            server,
            passed: count(Outcome::Passed),
            refused: count(Outcome::Refused),
            ignored: count(Outcome::Ignored),
            expected_fail: count(Outcome::ExpectedFail),
            failed: count(Outcome::Failed),
            cases,
        }
    }

    /// Whether no case failed and at least one ran.
    #[must_use]
    pub fn is_green(&self) -> bool {
        self.failed == 0 && self.passed > 0
    }

    /// The report as JSON.
    ///
    /// # Panics
    ///
    /// Never: all of the report's values have a JSON form.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("strings and numbers are JSON")
    }

    /// The case with this id, if it was listed.
    #[must_use]
    pub fn case(&self, id: &str) -> Option<&CaseReport> {
        self.cases.iter().find(|case| case.id == id)
    }
}

impl fmt::Display for Report {
    /// A table: the counts of each theme, then each case that did not pass with its reason.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} on {} (TENURE_SEED={})", self.backend, self.server, self.seed)?;
        writeln!(
            f,
            "  {:<14}{:>7}{:>9}{:>9}{:>15}{:>8}",
            "", "passed", "refused", "ignored", "expected fail", "failed"
        )?;
        let mut themes: Vec<&str> = self.cases.iter().map(|case| theme(case.id)).collect();
        themes.dedup();
        for name in themes {
            let row = |outcome| self.cases.iter().filter(|c| theme(c.id) == name && c.outcome == outcome).count();
            line(
                f,
                name,
                [Outcome::Passed, Outcome::Refused, Outcome::Ignored, Outcome::ExpectedFail, Outcome::Failed].map(row),
            )?;
        }
        line(f, "all", [self.passed, self.refused, self.ignored, self.expected_fail, self.failed])?;
        for (outcome, word) in
            [(Outcome::Ignored, "ignored"), (Outcome::ExpectedFail, "expected fail"), (Outcome::Failed, "FAILED")]
        {
            for case in self.cases.iter().filter(|case| case.outcome == outcome) {
                writeln!(f, "  {word}  {}: {}", case.id, case.reason.as_deref().unwrap_or("no reason"))?;
            }
        }
        Ok(())
    }
}

fn theme(id: &str) -> &str {
    id.split_once('/').map_or(id, |(theme, _)| theme)
}

fn line(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    [passed, refused, ignored, expected, failed]: [usize; 5],
) -> fmt::Result {
    writeln!(f, "  {name:<14}{passed:>7}{refused:>9}{ignored:>9}{expected:>15}{failed:>8}")
}
