//! `docs/features.md`, the table of the facade's Cargo features, is what its manifest says. Why: a list of features by hand is
//! the first thing that a new feature forgets. The page is in the book and in the documentation of the crate.

use super::docs::Stale;
use super::lengths::read;
use crate::command::{Failure, Findings, Outcome};

const MANIFEST: &str = "Cargo.toml";
const PAGE: &str = "docs/features.md";

const HEAD: &str = "\
# Cargo features

The Cargo features of the crate `tenure`. `cargo add tenure --features redis,tls` adds the crate with two of them. Each feature only
adds: none changes the behaviour of the rest.

| feature | adds |
|---|---|
";

pub(super) fn check(stale: Stale) -> Outcome<Findings> {
    let fresh = match page(&read(MANIFEST)?) {
        Ok(fresh) => fresh,
        Err(undocumented) => {
            return Ok(vec![format!("{MANIFEST}: no line ## says what the feature {undocumented} adds")]);
        }
    };
    if std::fs::read_to_string(PAGE).is_ok_and(|text| text == fresh) {
        return Ok(Findings::new());
    }
    match stale {
        Stale::Report => Ok(vec![format!("{PAGE}: stale; cargo xtask tidy --fix rewrites it")]),
        Stale::Rewrite => std::fs::write(PAGE, fresh)
            .map(|()| Findings::new())
            .map_err(|error| Failure(format!("cannot write {PAGE}: {error}"))),
    }
}

/// The page of a manifest in which lines that begin with `##` are above each feature, or the first feature without one.
fn page(manifest: &str) -> Result<String, String> {
    let section =
        manifest.split_once("\n[features]\n").map_or("", |(_, rest)| rest.split("\n[").next().unwrap_or(rest));
    let default = section.lines().find_map(|line| line.strip_prefix("default = ")).unwrap_or_default();
    let (mut page, mut text) = (HEAD.to_owned(), Vec::new());
    for line in section.lines() {
        if let Some(more) = line.strip_prefix("##") {
            text.push(more.trim());
            continue;
        }
        let Some((name, _)) = line.split_once(" = ").filter(|(name, _)| *name != "default") else { continue };
        if text.is_empty() {
            return Err(name.to_owned());
        }
        let by_default = if default.contains(&format!("\"{name}\"")) { " (default)" } else { "" };
        page.push_str(&format!("| `{name}`{by_default} | {} |\n", text.join(" ")));
        text.clear();
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_feature_has_a_row_of_what_the_manifest_says_of_it() {
        let manifest = "[package]\nname = \"p\"\n\n[features]\ndefault = [\"a\"]\n## Adds `a`,\n## and more.\na = []\n## Adds b.\nb = [\n    \"a\",\n]\n\n[lib]\nc = 1\n";
        let rows = page(manifest).unwrap().replace(HEAD, "");
        assert_eq!(rows, "| `a` (default) | Adds `a`, and more. |\n| `b` | Adds b. |\n");
        assert_eq!(page("\n[features]\n## Adds a.\na = []\nb = []\n").unwrap_err(), "b");
    }
}
