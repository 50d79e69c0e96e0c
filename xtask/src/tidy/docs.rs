//! Generated pages are fresh, and claims name their proof. Why: a table that is not regenerated lies, and so does a
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

/// What a link to all cases of a theme begins with.
const THEMES: &str = "cases.md#";

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

/// Every claim (a list item of the page) names a proof, and every proof that the page names exists.
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
    for item in items.iter().filter(|item| proofs(item).next().is_none()) {
        findings.push(format!("docs/guarantees.md: no case and no test behind \"{}\"", item.trim()));
    }
    for proof in proofs(page).filter(|proof| !exists(proof, &known)) {
        findings.push(format!("docs/guarantees.md: there is no case or test `{proof}`"));
    }
    findings
}

/// The proofs that a text names: cases and tests between backticks, and links to a theme of the suite or to a file of tests.
fn proofs(text: &str) -> impl Iterator<Item = &str> {
    let between_ticks = text.split('`').skip(1).step_by(2).filter(|word| looks_like_id(word));
    let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    between_ticks.chain(links.filter(|link| link.starts_with(THEMES) || link.ends_with(".rs")))
}

/// `theme/sentence-with-dashes` for a case, `theme/beginning-*` for several, `path/to/file.rs#function` for a test.
fn looks_like_id(word: &str) -> bool {
    if word.contains(".rs#") {
        return true;
    }
    let word = word.strip_suffix('*').unwrap_or(word);
    word.split_once('/').is_some_and(|(theme, rest)| {
        let plain = |text: &str| text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
        !theme.is_empty() && rest.contains('-') && plain(theme) && plain(rest)
    })
}

fn exists(proof: &str, known: &BTreeSet<&str>) -> bool {
    if let Some(theme) = proof.strip_prefix(THEMES) {
        return known.iter().any(|id| id.split_once('/').is_some_and(|(its, _)| its == theme));
    }
    match proof.strip_suffix('*') {
        Some(beginning) => known.iter().any(|id| id.starts_with(beginning)),
        None => known.contains(proof) || is_test(proof) || has_tests(proof),
    }
}

/// Whether `path/to/file.rs#function` is a test.
fn is_test(id: &str) -> bool {
    let Some((path, function)) = id.split_once('#') else { return false };
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let mut lines = text.lines().map(str::trim).skip_while(|line| !line.contains("test"));
    let signature = format!("fn {function}(");
    lines.any(|line| line.contains(&signature))
}

/// Whether the file that the page links to, `../path/to/file.rs`, has a test.
fn has_tests(link: &str) -> bool {
    let text = link.strip_prefix("../").and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default();
    let attributes = text.lines().filter_map(|line| line.trim().strip_prefix("#["));
    let mut named = attributes.map(|attribute| attribute.split(['(', ']']).next().unwrap_or_default());
    named.any(|name| name == "test" || name.ends_with("::test"))
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

    #[test]
    fn themes_beginnings_and_files_of_tests_are_proofs_if_they_exist() {
        let known = BTreeSet::from(["lock/a-b"]);
        for (proof, is_there) in [
            ("cases.md#lock", true),
            ("cases.md#loc", false),
            ("lock/a-*", true),
            ("lock/b-*", false),
            ("../src/tidy/docs.rs", true),
            ("../src/command.rs#none", false),
            ("../src/gone.rs", false),
        ] {
            let page = format!("- claim [a]({proof}) `{proof}`\n");
            assert!(proofs(&page).any(|named| named == proof), "{proof}");
            assert_eq!(exists(proof, &known), is_there, "{proof}");
        }
    }
}
