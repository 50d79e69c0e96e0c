//! Code on pages is at most 80 columns wide, and its comments are above their lines. Why: the boxes of the book, and of a page on a
//! phone, cut longer lines.

use super::lengths::{read, tracked};
use crate::command::{Findings, Outcome};

const MOST: usize = 80;

pub(super) fn check() -> Outcome<Findings> {
    let mut findings = Findings::new();
    for path in &tracked("*.md")? {
        findings.extend(of_page(path, &read(path)?));
    }
    Ok(findings)
}

fn of_page(path: &str, page: &str) -> Findings {
    let mut findings = Findings::new();
    let mut language: Option<&str> = None;
    for (at, line) in page.lines().enumerate() {
        if let Some(fence) = line.trim_start().strip_prefix("```") {
            language = if language.is_some() { None } else { Some(fence) };
            continue;
        }
        let Some(language) = language else { continue };
        let (columns, place) = (line.chars().count(), format!("{path}:{}", at + 1));
        if columns > MOST {
            findings.push(format!("{place}: code of {columns} columns, the most is {MOST}"));
        }
        if language.starts_with("rust") && has_trailing_comment(line) {
            findings.push(format!("{place}: a comment after the code of its line, which belongs above it"));
        }
    }
    findings
}

fn has_trailing_comment(line: &str) -> bool {
    line.split_once(" // ").is_some_and(|(code, _)| !code.trim().is_empty() && !code.trim_start().starts_with("//"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_code_and_comments_after_code_are_found_and_prose_is_not() {
        let wide = "x".repeat(MOST + 1);
        let page = format!(
            "{wide}\n\n```rust,no_run\n// a // b\na(); // b\n    // c\n```\n\n```sh\n{wide}\na // b\n```\n\na(); // b\n"
        );
        let found = of_page("p.md", &page);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("p.md:5: a comment") && found[1].starts_with("p.md:10: code of 81 columns"));
    }
}
