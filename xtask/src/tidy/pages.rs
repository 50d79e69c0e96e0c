//! Pages that list something list all of it: the kinds of errors, and the examples. Why: a new kind, or a new example, is forgotten
//! in a table by hand.

use std::collections::BTreeSet;

use super::lengths::{read, tracked};
use crate::command::{Findings, Outcome};
use crate::markdown;

const KINDS: &str = "core/src/value/error.rs";
const TROUBLESHOOTING: &str = "docs/troubleshooting.md";
const EXAMPLES: &str = "examples/README.md";

pub(super) fn check() -> Outcome<Findings> {
    let mut findings = kinds(&read(KINDS)?, &read(TROUBLESHOOTING)?);
    findings.extend(examples(&tracked("examples/*")?, &read(EXAMPLES)?));
    Ok(findings)
}

/// Each kind of error has a row, which begins with its name and with the words that its sentences begin with.
fn kinds(code: &str, page: &str) -> Findings {
    let words = code.split_once("fn as_str").map_or("", |(_, rest)| rest.split("\n    }\n").next().unwrap_or(rest));
    let arms = words.lines().filter_map(|line| line.trim().strip_prefix("Self::")?.split_once(" => "));
    let rows: Vec<String> =
        arms.map(|(kind, words)| format!("| `{kind}` | {} |", words.trim_matches([',', '"']))).collect();
    if rows.is_empty() {
        return vec![format!("{KINDS}: no kinds of errors are found in as_str")];
    }
    let missing = rows.iter().filter(|row| !page.lines().any(|line| line.starts_with(row.as_str())));
    missing.map(|row| format!("{TROUBLESHOOTING}: no row begins with {row}")).collect()
}

/// Each example, a file or a folder, has a link.
fn examples(files: &[String], index: &str) -> Findings {
    let known: BTreeSet<String> =
        files.iter().filter(|file| *file != EXAMPLES).filter_map(|file| example(file)).collect();
    let links = markdown::page(index).links;
    let linked: BTreeSet<String> =
        links.iter().filter_map(|link| example(&markdown::target(EXAMPLES, link)?.0)).collect();
    known.difference(&linked).map(|name| format!("{EXAMPLES}: does not list examples/{name}")).collect()
}

/// The name right below `examples/`.
fn example(file: &str) -> Option<String> {
    file.strip_prefix("examples/")?.split('/').next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_without_its_row_is_found() {
        let code = "fn as_str(self) {\n        match self {\n            Self::Lost => \"lease lost\",\n            Self::Closed => \"client closed\",\n        }\n    }\n Self::Other => 1,";
        let page = "| `Lost` | lease lost | run |\n| `Closed` | closed | any |\n";
        assert_eq!(kinds(code, page), [format!("{TROUBLESHOOTING}: no row begins with | `Closed` | client closed |")]);
        assert_eq!(kinds("", page).len(), 1, "code that has changed is noticed");
    }

    #[test]
    fn an_example_without_a_link_is_found() {
        let files = ["examples/README.md", "examples/a.rs", "examples/b/src/main.rs", "examples/c/src/lib.rs"];
        let found = examples(&files.map(String::from), "[a](a.rs) [b](b/Cargo.toml) [x](../docs/c/d.md)");
        assert_eq!(found, [format!("{EXAMPLES}: does not list examples/c")]);
    }
}
