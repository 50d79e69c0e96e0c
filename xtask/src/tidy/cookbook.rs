//! The cookbook shows code that is compiled and tested. Why: a recipe that nobody runs is where bugs are copied from.

use std::path::Path;

use super::docs::Stale;
use super::lengths::read;
use crate::command::Findings;
use crate::command::{Failure, Outcome};

const PAGE: &str = "docs/cookbook.md";

/// What stands before a block of code that is the file named here, from its first line of code on.
const MARK: (&str, &str) = ("<!-- the code of ", " -->");

pub(super) fn check(stale: Stale) -> Outcome<Findings> {
    let page = read(PAGE)?;
    let fresh = shown(&page, |path| read(path).map(|text| code(&text)))?;
    match stale {
        _ if fresh == page => Ok(missing(&page)?),
        Stale::Report => Ok(vec![format!("{PAGE}: not the code that is tested; cargo xtask tidy --fix takes it over")]),
        Stale::Rewrite => {
            std::fs::write(PAGE, fresh).map_err(|error| Failure(format!("cannot write {PAGE}: {error}")))?;
            Ok(missing(&page)?)
        }
    }
}

/// The page with each marked block replaced by the code of its file.
fn shown(page: &str, code_of: impl Fn(&str) -> Outcome<String>) -> Outcome<String> {
    let (mut fresh, mut lines) = (String::new(), page.lines());
    while let Some(line) = lines.next() {
        fresh.push_str(line);
        fresh.push('\n');
        let Some(path) = line.strip_prefix(MARK.0).and_then(|rest| rest.strip_suffix(MARK.1)) else { continue };
        if lines.next() != Some("```rust") || !lines.any(|line| line == "```") {
            return Err(Failure(format!("{PAGE}: no block of code after the mark of {path}")));
        }
        fresh.push_str(&format!("```rust\n{}\n```\n", code_of(path)?));
    }
    Ok(fresh)
}

/// A file without the comment at its head.
fn code(text: &str) -> String {
    let lines: Vec<&str> = text.lines().skip_while(|line| line.starts_with("//!") || line.is_empty()).collect();
    lines.join("\n")
}

/// Recipes that the page leaves out.
fn missing(page: &str) -> Outcome<Findings> {
    let folder = Path::new("examples/cookbook/src");
    let entries = std::fs::read_dir(folder).map_err(|error| Failure(format!("cannot list the cookbook: {error}")))?;
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let left_out =
        names.filter(|name| name != "lib.rs" && !page.contains(&format!("{}/{name}{}", folder.display(), MARK.1)));
    Ok(left_out.map(|name| format!("{PAGE}: does not show {name}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_replaced_by_the_code_of_its_file() {
        let page = "# Page\n\n<!-- the code of a.rs -->\n```rust\nold();\n\nolder();\n```\n\n```sql\nSELECT 1\n```\n";
        let fresh = shown(page, |path| Ok(code(&format!("//! Head.\n\n{path}();\n")))).unwrap();
        assert_eq!(fresh, page.replace("old();\n\nolder();", "a.rs();"));
        assert!(shown("<!-- the code of a.rs -->\n\n", |_| Ok(String::new())).is_err());
    }
}
