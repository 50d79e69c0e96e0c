//! Subjects of commits read `area: verb object`, are short, and are in plain words. Why: the list of subjects is the
//! first thing that a reader of the history sees, and one line of it has to be enough.

use super::words;
use crate::command::{Failure, Findings, Outcome};

/// Earlier subjects are as they are.
const SINCE: &str = "2026-11-30T00:00:00Z";
const LONGEST: usize = 72;

pub(super) fn check() -> Outcome<Findings> {
    let since = format!("--since={SINCE}");
    let git = std::process::Command::new("git").args(["log", "--no-merges", "--format=%s", &since]).output();
    let output = git.map_err(|error| Failure(format!("cannot run git log: {error}")))?;
    if !output.status.success() {
        return Err(Failure(format!("git log failed: {}", String::from_utf8_lossy(&output.stderr))));
    }
    let subjects = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(subjects.lines().filter_map(fault).chain(words::of_subjects(subjects.lines())).collect())
}

fn fault(subject: &str) -> Option<String> {
    let is_plain = |sign: char| sign.is_ascii_lowercase() || sign.is_ascii_digit() || " ,-_./".contains(sign);
    let has_form = subject.split_once(": ").is_some_and(|(area, rest)| {
        !area.is_empty() && area.chars().all(is_plain) && rest.starts_with(|sign: char| sign.is_lowercase())
    });
    let reason = match subject.chars().count() {
        length if length > LONGEST => format!("has {length} characters; at most {LONGEST} fit"),
        _ if has_form => return None,
        _ => "is not `area: verb object`".to_owned(),
    };
    Some(format!("commit subject {subject:?} {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_has_an_area_and_fits() {
        for good in ["core: end a wait at its limit", "mysql, postgres: name the table", "driver-etcd: close once"] {
            assert_eq!(fault(good), None);
        }
        for bad in ["end a wait", "Core: end a wait", ": end", "core: End a wait", &format!("core: {}", "x".repeat(70))]
        {
            assert!(fault(bad).is_some(), "{bad}");
        }
    }
}
