//! Files have at most 700 lines, and say at their top what they are. Why: a file is one idea.

use std::path::Path;

use crate::command::Findings;
use crate::command::{Failure, Outcome, output};

const MOST: usize = 700;

pub(super) fn check() -> Outcome<Findings> {
    let mut findings = Findings::new();
    for path in tracked("*.rs")? {
        let text = read(&path)?;
        let lines = text.lines().count();
        if lines > MOST {
            findings.push(format!("{path}: {lines} lines, the most is {MOST}"));
        }
        if !text.starts_with("//!") && !path.ends_with("build.rs") {
            findings.push(format!("{path}: does not begin with a //! line that says what it is"));
        }
    }
    Ok(findings)
}

pub(super) fn tracked(pattern: &str) -> Outcome<Vec<String>> {
    let mut git = std::process::Command::new("git");
    let list = output(git.args(["ls-files", "--cached", "--others", "--exclude-standard", "--", pattern]))?;
    Ok(list.lines().filter(|path| Path::new(path).exists()).map(String::from).collect())
}

pub(super) fn read(path: &str) -> Outcome<String> {
    std::fs::read_to_string(path).map_err(|error| Failure(format!("cannot read {path}: {error}")))
}
