//! What became of the mistakes, as a table and as data.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::path::Path;

use super::edit::Mutant;
use super::hunt::{Fate, shown};
use super::tree::write_if_other;
use crate::command::{self, Outcome};

/// The mistakes that no test can notice, and why: a table of a file, a function, a change and a reason.
pub(crate) const EQUIVALENT: &str = "docs/equivalent-mutants.md";

/// A mistake that changes nothing that anybody can see.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Equivalent {
    file: String,
    function: String,
    change: String,
}

impl Equivalent {
    pub(crate) fn of(mutant: &Mutant) -> Self {
        Self { file: mutant.file.clone(), function: mutant.function.clone(), change: mutant.change().trim().to_owned() }
    }

    pub(crate) fn new(file: &str, function: &str, change: &str) -> Self {
        Self { file: file.to_owned(), function: function.to_owned(), change: change.trim().to_owned() }
    }

    /// Those of the page.
    pub(crate) fn read() -> HashSet<Self> {
        let text = std::fs::read_to_string(command::root().join(EQUIVALENT)).unwrap_or_default();
        text.lines().filter_map(Self::row).collect()
    }

    pub(crate) fn row(line: &str) -> Option<Self> {
        let cells: Vec<String> = line.replace("\\|", "\u{0}").split('|').map(|cell| plain(cell.trim())).collect();
        match &cells[..] {
            [_, file, function, change, _, _] if file.ends_with(".rs") || file.ends_with(".lua") => {
                Some(Self { file: file.clone(), function: function.clone(), change: change.clone() })
            }
            _ => None,
        }
    }
}

fn plain(cell: &str) -> String {
    cell.trim_matches('`').trim().replace('\u{0}', "|")
}

/// How many there are of each.
#[derive(Debug, Default)]
struct Counts {
    noticed: usize,
    hang: usize,
    survived: usize,
    equivalent: usize,
    unreached: usize,
}

/// Writes what is known of these mistakes, and returns it in a few lines.
pub(crate) fn write(
    folder: &Path,
    package: &str,
    mutants: &[&Mutant],
    dropped: &HashSet<u32>,
    fates: &HashMap<u32, Fate>,
) -> Outcome<String> {
    let equivalent = Equivalent::read();
    let mut counts = Counts::default();
    let mut rows = String::new();
    let mut data = Vec::new();
    for mutant in mutants {
        let Some(fate) = fates.get(&mutant.id) else { continue };
        let is_equivalent = equivalent.contains(&Equivalent::of(mutant));
        match fate {
            Fate::Noticed(_) => counts.noticed += 1,
            Fate::Hangs(_) => counts.hang += 1,
            Fate::Survived | Fate::Unreached if is_equivalent => counts.equivalent += 1,
            Fate::Survived => counts.survived += 1,
            Fate::Unreached => counts.unreached += 1,
        }
        data.push(serde_json::json!({
            "id": mutant.id, "file": mutant.file, "line": mutant.line, "function": mutant.function,
            "change": mutant.change(), "fate": fate, "equivalent": is_equivalent,
        }));
        if matches!(fate, Fate::Survived | Fate::Unreached) && !is_equivalent {
            let change = mutant.change().replace('|', "\\|");
            let Mutant { id, file, line, function, .. } = mutant;
            let _ = writeln!(rows, "| {id} | `{file}:{line}` | `{function}` | `{change}` | {} |", shown(fate));
        }
    }
    let Counts { noticed, hang, survived, equivalent, unreached } = counts;
    let not_built = mutants.iter().filter(|mutant| dropped.contains(&mutant.id)).count();
    let summary = format!(
        "{package}: {} mutants, {not_built} do not compile, {noticed} noticed, {hang} hang, {survived} survived, \
         {equivalent} equivalent, {unreached} not reached",
        mutants.len()
    );
    let page = format!("{summary}\n\n| id | where | function | mutation | |\n|---|---|---|---|---|\n{rows}");
    write_if_other(&folder.join("result.md"), page.as_bytes())?;
    write_if_other(&folder.join("result.json"), serde_json::json!(data).to_string().as_bytes())?;
    Ok(summary)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_the_page_is_read() {
        let row = Equivalent::row("| `a/src/b.rs` | `T::f` | `a \\|\\| b → true` | because |").unwrap();
        let expected =
            Equivalent { file: "a/src/b.rs".into(), function: "T::f".into(), change: "a || b → true".into() };
        assert_eq!(row, expected);
        assert_eq!(Equivalent::row("| File | Function | Mutation | Why |"), None);
        assert_eq!(Equivalent::row("|---|---|---|---|"), None);
    }
}
