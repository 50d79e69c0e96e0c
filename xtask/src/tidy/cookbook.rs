//! The pages of the book show code that is compiled and tested. Why: bugs are copied from recipes that never run.

use std::path::Path;

use super::docs::Stale;
use super::lengths::{read, tracked};
use crate::command::Findings;
use crate::command::{Failure, Outcome};

/// The marker before a block of code that is the file named here, from its first line of code on.
const MARK: (&str, &str) = ("<!-- the code of ", " -->");

/// The recipes, each of which some page has to show.
const RECIPES: &str = "examples/cookbook/src";

pub(super) fn check(stale: Stale) -> Outcome<Findings> {
    let (mut findings, mut all) = (Findings::new(), String::new());
    for path in tracked("docs/*.md")? {
        let page = read(&path)?;
        let fresh = shown(&path, &page, |file| read(file).map(|text| code(&text)))?;
        findings
            .extend(untested(&page).map(|line| {
                format!("{path}:{line}: Rust that no test compiles; show a file by {}…{}", MARK.0, MARK.1)
            }));
        if fresh != page {
            match stale {
                Stale::Report => {
                    findings.push(format!("{path}: not the code that is tested; cargo xtask tidy --fix takes it over"))
                }
                Stale::Rewrite => {
                    std::fs::write(&path, &fresh).map_err(|error| Failure(format!("cannot write {path}: {error}")))?;
                }
            }
        }
        all.push_str(&fresh);
    }
    findings.extend(missing(&all)?);
    Ok(findings)
}

/// The page with each marked block replaced by the code of its file.
fn shown(path: &str, page: &str, code_of: impl Fn(&str) -> Outcome<String>) -> Outcome<String> {
    let (mut fresh, mut lines) = (String::new(), page.lines());
    while let Some(line) = lines.next() {
        fresh.push_str(line);
        fresh.push('\n');
        let Some(file) = line.strip_prefix(MARK.0).and_then(|rest| rest.strip_suffix(MARK.1)) else { continue };
        if lines.next() != Some("```rust") || !lines.any(|line| line == "```") {
            return Err(Failure(format!("{path}: no block of code after the mark of {file}")));
        }
        fresh.push_str(&format!("```rust\n{}\n```\n", code_of(file)?));
    }
    Ok(fresh)
}

/// The lines where Rust begins that is no file's.
fn untested(page: &str) -> impl Iterator<Item = usize> + '_ {
    let before = std::iter::once("").chain(page.lines());
    let begins = before.zip(page.lines()).enumerate();
    begins
        .filter(|(_, (before, line))| line.starts_with("```rust") && !before.starts_with(MARK.0))
        .map(|(at, _)| at + 1)
}

/// A file without the comment at its head.
fn code(text: &str) -> String {
    let lines: Vec<&str> = text.lines().skip_while(|line| line.starts_with("//!") || line.is_empty()).collect();
    lines.join("\n")
}

/// Recipes that the pages leave out.
fn missing(pages: &str) -> Outcome<Findings> {
    let entries = std::fs::read_dir(Path::new(RECIPES));
    let entries = entries.map_err(|error| Failure(format!("cannot list the cookbook: {error}")))?;
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let left_out = names.filter(|name| name != "lib.rs" && !pages.contains(&format!("{RECIPES}/{name}{}", MARK.1)));
    Ok(left_out.map(|name| format!("{RECIPES}/{name}: no page in docs/ shows it")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_replaced_by_the_code_of_its_file() {
        let page = "# Page\n\n<!-- the code of a.rs -->\n```rust\nold();\n\nolder();\n```\n\n```sql\nSELECT 1\n```\n";
        let fresh = shown("p.md", page, |path| Ok(code(&format!("//! Head.\n\n{path}();\n")))).unwrap();
        assert_eq!(fresh, page.replace("old();\n\nolder();", "a.rs();"));
        assert!(shown("p.md", "<!-- the code of a.rs -->\n\n", |_| Ok(String::new())).is_err());
    }

    #[test]
    fn rust_that_is_no_files_is_found() {
        let page =
            "# Page\n\n<!-- the code of a.rs -->\n```rust\na();\n```\n\n```rust,no_run\nb();\n```\n\n```sql\n```\n";
        assert_eq!(untested(page).collect::<Vec<_>>(), [8]);
    }
}
