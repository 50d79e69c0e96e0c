//! Links of the pages lead to files and headings that are there, and the book has every page. Why: a reader who follows a dead
//! link is lost, and a page that nothing leads to is not read.

use std::collections::{BTreeMap, BTreeSet};

use super::lengths::{read, tracked};
use crate::book::{self, SUMMARY};
use crate::command::{Findings, Outcome};
use crate::markdown::{self, Page};

/// The files of the repository, its pages, and which of them are chapters.
struct Shelf {
    files: BTreeSet<String>,
    pages: BTreeMap<String, Page>,
    chapters: Vec<String>,
}

pub(super) fn check() -> Outcome<Findings> {
    let files: BTreeSet<String> = tracked("*")?.into_iter().collect();
    let mut pages = BTreeMap::new();
    for path in files.iter().filter(|path| path.ends_with(".md")) {
        pages.insert(path.clone(), markdown::page(&read(path)?));
    }
    Ok(Shelf { files, pages, chapters: book::chapters(&read(SUMMARY)?) }.findings())
}

impl Shelf {
    fn findings(&self) -> Findings {
        let mut findings = Findings::new();
        for (path, page) in &self.pages {
            let dead = page.links.iter().filter_map(|link| Some((link, self.dead(path, link)?)));
            findings.extend(dead.map(|(link, why)| format!("{path}: the link {link} {why}")));
            if path.starts_with("docs/") && path != SUMMARY && !self.chapters.contains(path) {
                findings.push(format!("{path}: not in the book; name it in {SUMMARY}"));
            }
        }
        findings
    }

    /// Why a link of a page leads nowhere; nothing if it does lead somewhere.
    fn dead(&self, path: &str, link: &str) -> Option<&'static str> {
        let (file, fragment) = markdown::target(path, link)?;
        let is_chapter = self.chapters.iter().any(|chapter| chapter == path);
        if let Some(page) = self.pages.get(&file) {
            return match fragment {
                Some(fragment) if !page.anchors.contains(&fragment) => Some("names no heading of that page"),
                _ if is_chapter && !self.chapters.contains(&file) => Some("leads to a page that is not in the book"),
                _ => None,
            };
        }
        let folder = format!("{file}/");
        match self.files.contains(&file) {
            true => None,
            false if !self.files.iter().any(|known| known.starts_with(&folder)) => Some("leads nowhere"),
            false => is_chapter.then_some("leads to a folder, which the book cannot show: name a file in it"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shelf(pages: &[(&str, &str)]) -> Shelf {
        let files = pages.iter().map(|(path, _)| (*path).to_owned()).chain([String::from("core/src/lib.rs")]).collect();
        let pages = pages.iter().map(|(path, text)| ((*path).to_owned(), markdown::page(text))).collect();
        Shelf { files, pages, chapters: vec![String::from("docs/a.md"), String::from("docs/b.md")] }
    }

    #[test]
    fn links_to_what_is_there_are_good() {
        let a = "# A\n[b](b.md#some-b) [](#a) [](../core/src/lib.rs) [](https://example.com/x)";
        assert_eq!(shelf(&[("docs/a.md", a), ("docs/b.md", "## Some B")]).findings(), Findings::new());
    }

    #[test]
    fn links_that_lead_nowhere_or_out_of_the_book_are_found() {
        let a = "[](b.md#other) [](gone.md) [](../core) [](../c.md)";
        let found = shelf(&[("docs/a.md", a), ("docs/b.md", ""), ("c.md", "[](core)"), ("docs/d.md", "")]).findings();
        let expected = ["no heading", "leads nowhere", "a folder", "not in the book", "docs/d.md: not in the book"];
        assert_eq!(found.len(), expected.len(), "{found:?}");
        assert!(found.iter().zip(expected).all(|(found, expected)| found.contains(expected)), "{found:?}");
    }
}
