//! The book: the chapters that `docs/book/SUMMARY.md` names, from wherever they are in the repository, and the files that they
//! link to, copied to a folder that `mdbook` builds. So a page is at one place, and its links work in the repository and in the
//! book alike.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{Failure, Outcome, on_path};
use crate::markdown;
use crate::setup::target;
use crate::steps;

pub(crate) const SUMMARY: &str = "docs/book/SUMMARY.md";
const SETTINGS: &str = "docs/book/book.toml";

/// The pages that the summary names, from the root of the repository on.
pub(crate) fn chapters(summary: &str) -> Vec<String> {
    let links = markdown::page(summary).links;
    links.iter().filter_map(|link| markdown::target(SUMMARY, link)).map(|(file, _)| file).collect()
}

/// Copies the book together, and builds it if `mdbook` is on the PATH.
pub(crate) fn build() -> Outcome {
    let folder = target().join("book");
    steps::within("the pages of the book", || assemble(&folder))?;
    let mut mdbook = Command::new("mdbook");
    mdbook.arg("build").arg(&folder);
    if on_path("mdbook") {
        return steps::run(&mut mdbook).map(drop);
    }
    steps::left_out("mdbook build target/book", "cargo install --locked mdbook");
    Ok(())
}

fn assemble(folder: &Path) -> Outcome {
    let src = folder.join("src");
    let _ = std::fs::remove_dir_all(&src); // pages that are no longer named
    let summary = read(SUMMARY)?;
    let chapters = chapters(&summary);
    let mut files: BTreeSet<String> = chapters.iter().cloned().collect();
    for chapter in &chapters {
        let links = markdown::page(&read(chapter)?).links;
        let linked = links.iter().filter_map(|link| markdown::target(chapter, link)).map(|(file, _)| file);
        files.extend(linked.filter(|file| Path::new(file).is_file()));
    }
    for file in &files {
        copy(Path::new(file), &src.join(file))?;
    }
    copy(Path::new(SETTINGS), &folder.join("book.toml"))?;
    let summary = from_the_root(&summary);
    std::fs::write(src.join("SUMMARY.md"), summary).map_err(|error| failed(&src.join("SUMMARY.md"), &error))
}

/// The summary with its links as they are from the root of the repository.
fn from_the_root(summary: &str) -> String {
    let mut parts = summary.split("](");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (link, rest) = part.split_once(')').unwrap_or((part, ""));
        let file = markdown::target(SUMMARY, link).map_or_else(|| link.to_owned(), |(file, _)| file);
        text.push_str(&format!("]({file}){rest}"));
    }
    text
}

fn copy(from: &Path, to: &Path) -> Outcome {
    let folder = to.parent().map(PathBuf::from).unwrap_or_default();
    std::fs::create_dir_all(&folder).map_err(|error| failed(&folder, &error))?;
    std::fs::copy(from, to).map(drop).map_err(|error| failed(from, &error))
}

fn read(path: &str) -> Outcome<String> {
    std::fs::read_to_string(path).map_err(|error| failed(Path::new(path), &error))
}

fn failed(path: &Path, error: &std::io::Error) -> Failure {
    Failure(format!("cannot copy {} into the book: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_names_pages_wherever_they_are() {
        let summary = "# Summary\n\n- [A](../a.md)\n  - [B](../../core/README.md)\n- [C]()\n";
        assert_eq!(chapters("- [A](../a.md)\n  - [B](../../core/README.md)\n"), ["docs/a.md", "core/README.md"]);
        assert!(from_the_root(summary).contains("[A](docs/a.md)\n  - [B](core/README.md)"));
    }

    #[test]
    fn the_decisions_are_one_folded_chapter() {
        let (summary, settings) =
            (include_str!("../../docs/book/SUMMARY.md"), include_str!("../../docs/book/book.toml"));
        assert!(settings.contains("[output.html.fold]\nenable = true\nlevel = 1\n"));
        let decisions = summary.lines().filter(|line| line.contains("](../adr/0"));
        let folded = decisions.filter(|line| line.starts_with("    - ")); // below the level that is open
        assert_eq!(folded.count(), summary.matches("](../adr/0").count());
        assert_eq!(summary.matches("](../adr/README.md)").count(), 1);
    }
}
