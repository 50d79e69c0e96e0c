//! Generated pages are fresh, and claims name their proof. Why: a table that nobody regenerates lies, and so does a
//! promise that no case tries to break.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use super::lengths::read;
use crate::command::Findings;
use crate::command::{Failure, Outcome, output};
use crate::compare::page;
use crate::conformance;

/// What to do about a stale page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stale {
    Report,
    Rewrite,
}

const GENERATED: &[(&str, &str)] = &[("docs/cases.md", "cases"), ("docs/capabilities.md", "capabilities")];

pub(super) fn check(stale: Stale, suite: Option<&Path>) -> Outcome<Findings> {
    let backends = |args: &[&str]| output(suite.map_or_else(conformance::suite, Command::new).args(args));
    let mut findings = Findings::new();
    for (path, page) in GENERATED {
        let fresh = backends(&["--page", page])?;
        if std::fs::read_to_string(path).is_ok_and(|text| text == fresh) {
            continue;
        }
        match stale {
            Stale::Rewrite => std::fs::write(path, &fresh).map_err(|e| Failure(format!("cannot write {path}: {e}")))?,
            Stale::Report => findings.push(format!("{path}: stale; cargo xtask tidy --fix rewrites it")),
        }
    }
    match stale {
        Stale::Rewrite => page::rewrite()?,
        Stale::Report => findings.extend(
            page::stale()?.iter().map(|(path, _)| format!("{path}: stale; cargo xtask tidy --fix rewrites it")),
        ),
    }
    findings.extend(claims(&read("docs/guarantees.md")?, &backends(&["--page", "ids"])?));
    Ok(findings)
}

/// Every claim (a list item or a table row of the page) names at least one case or test, and every named case exists.
fn claims(page: &str, ids: &str) -> Findings {
    let known: BTreeSet<&str> = ids.lines().collect();
    let mut findings = Findings::new();
    let mut item = String::new();
    let mut items = Vec::new();
    for line in page.lines().chain([""]) {
        if line.starts_with("- ") || line.starts_with('#') || line.trim().is_empty() {
            items.extend(Some(std::mem::take(&mut item)).filter(|item| item.starts_with("- ")));
        }
        item.push_str(line);
        item.push(' ');
    }
    for item in items {
        let named: Vec<&str> = item.split('`').skip(1).step_by(2).filter(|word| looks_like_id(word)).collect();
        if named.is_empty() {
            findings.push(format!("docs/guarantees.md: no case behind \"{}\"", item.trim()));
        }
        for id in named.iter().filter(|id| !known.contains(**id) && !is_test(id)) {
            findings.push(format!("docs/guarantees.md: there is no case or test `{id}`"));
        }
    }
    findings
}

/// `theme/sentence-with-dashes` for a case, `path/to/file.rs#function` for a test.
fn looks_like_id(word: &str) -> bool {
    if word.contains(".rs#") {
        return true;
    }
    word.split_once('/').is_some_and(|(theme, rest)| {
        let plain = |text: &str| text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
        !theme.is_empty() && rest.contains('-') && plain(theme) && plain(rest)
    })
}

/// Whether `path/to/file.rs#function` is a test.
fn is_test(id: &str) -> bool {
    let Some((path, function)) = id.split_once('#') else { return false };
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let mut lines = text.lines().map(str::trim).skip_while(|line| !line.contains("test"));
    let signature = format!("fn {function}(");
    lines.any(|line| line.contains(&signature))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_without_a_case_is_found() {
        let page =
            "# Page\n\nProse is free.\n\n- proved `lock/a-b`\n  on two lines\n- not proved\n- unknown `lock/c-d`\n";
        let found = claims(page, "lock/a-b\n");
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("not proved") && found[1].contains("lock/c-d"));
    }
}
