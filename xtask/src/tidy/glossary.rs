//! Every name in the glossary of ARCHITECTURE.md is defined in the code. Why: a word that the code has left, or never had, sends a
//! reader on a search that finds nothing.

use std::collections::BTreeSet;

use super::lengths::{read, tracked};
use crate::command::Findings;
use crate::command::Outcome;

const PAGE: &str = "ARCHITECTURE.md";
const HEADING: &str = "## Glossary";
/// What a definition begins with.
const DEFINING: &[&str] = &["struct", "enum", "trait", "fn", "type", "const", "mod"];

pub(super) fn check() -> Outcome<Findings> {
    let names = names(&read(PAGE)?);
    if names.is_empty() {
        return Ok(vec![format!("{PAGE}: there is no glossary")]);
    }
    let mut defined = BTreeSet::new();
    for file in tracked("*.rs")?.iter().filter(|file| file.contains("src/")) {
        defined.extend(definitions(&read(file)?));
    }
    let missing = names.into_iter().filter(|name| !defined.contains(name));
    Ok(missing.map(|name| format!("{PAGE}: the glossary names `{name}`, which the code does not define")).collect())
}

/// The names between backticks in the last column of the table.
fn names(page: &str) -> Vec<String> {
    let section = page.split_once(HEADING).map_or("", |(_, rest)| rest.split("\n## ").next().unwrap_or(rest));
    let rows = section.lines().filter(|line| line.starts_with("| ") && line.contains('`'));
    rows.filter_map(|row| row.trim_end_matches('|').rsplit('|').next())
        .flat_map(|cell| cell.split('`').skip(1).step_by(2).map(String::from).collect::<Vec<_>>())
        .collect()
}

fn definitions(text: &str) -> Vec<String> {
    let words: Vec<&str> = text.split(|sign: char| !sign.is_alphanumeric() && sign != '_').collect();
    let defining = words.windows(2).filter(|pair| DEFINING.contains(&pair[0]) && !pair[1].is_empty());
    defining.map(|pair| pair[1].to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_column_names_what_the_code_has_to_define() {
        let page = "## Glossary\n\nUse `it`.\n\n| word | meaning | in the code |\n|---|---|---|\n| a, b | `no` | `A`, `B` |\n\n## Next\n| x | `C` |\n";
        assert_eq!(names(page), ["A", "B"]);
        assert_eq!(definitions("pub(crate) struct A<T>; impl A {} fn b() -> A"), ["A", "b"]);
    }
}
