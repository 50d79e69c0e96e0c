//! `docs/performance.md`: what stands between two markers is written from the JSON of a comparison.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::command::{Failure, Outcome};

const PAGE: &str = "docs/performance.md";
const NAMES: [&str; 2] = ["locks", "queue"];

/// Where the documented figures of a comparison are kept.
pub(super) fn source(name: &str) -> PathBuf {
    PathBuf::from(format!("docs/performance/{name}.json"))
}

pub(super) fn read(path: &Path) -> Outcome<Value> {
    let failed = |error: String| Failure(format!("cannot read {}: {error}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    serde_json::from_str(&text).map_err(|error| failed(error.to_string()))
}

/// The page as it is, and as it should be.
pub(crate) fn stale() -> Outcome<Option<String>> {
    let page = std::fs::read_to_string(PAGE).map_err(|error| Failure(format!("cannot read {PAGE}: {error}")))?;
    let mut fresh = page.clone();
    for name in NAMES {
        let tables = tables(&read(&source(name))?);
        fresh = between(&fresh, name, &tables).ok_or_else(|| Failure(format!("{PAGE} has no markers for {name}")))?;
    }
    Ok((fresh != page).then_some(fresh))
}

pub(crate) fn rewrite() -> Outcome {
    match stale()? {
        None => Ok(()),
        Some(fresh) => std::fs::write(PAGE, fresh).map_err(|error| Failure(format!("cannot write {PAGE}: {error}"))),
    }
}

/// The page with other text between the markers of `name`.
fn between(page: &str, name: &str, text: &str) -> Option<String> {
    let (begin, end) = (format!("<!-- begin {name} -->\n"), format!("<!-- end {name} -->"));
    let (head, rest) = page.split_once(&begin)?;
    let (_, tail) = rest.split_once(&end)?;
    Some(format!("{head}{begin}\n{text}\n{end}{tail}"))
}

/// The aims and all tables of a comparison.
pub(super) fn tables(report: &Value) -> String {
    let mut page = about(&report["about"]);
    page.push_str("\n| ratio | what it is | aim | measured | |\n|---|---|--:|--:|---|\n");
    for aim in list(&report["aims"]) {
        let met = match aim["met"].as_bool() {
            Some(true) => "met",
            Some(false) => "**missed**",
            None => "not measured",
        };
        let limit = format!("{} {}", text(&aim["bound"]), number(&aim["limit"]));
        let key = text(&aim["key"]);
        let _ = writeln!(page, "| `{key}` | {} | {limit} | {} | {met} |", text(&aim["what"]), number(&aim["value"]));
    }
    for (title, reasons) in [("Not measured", &report["not_measured"]), ("Left out", &report["left_out"])] {
        for (at, (name, why)) in reasons.as_object().into_iter().flatten().enumerate() {
            let _ = write!(page, "{}", if at == 0 { format!("\n{title}:\n\n") } else { String::new() });
            let _ = writeln!(page, "- `{name}`: {}", text(why));
        }
    }
    for section in list(&report["sections"]) {
        table(&mut page, section);
    }
    page
}

fn about(about: &Value) -> String {
    let words = about.as_object().into_iter().flatten().map(|(name, value)| {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        format!("{}: {value}", name.replace('_', " "))
    });
    format!("{}.\n", words.collect::<Vec<_>>().join("; "))
}

fn table(page: &mut String, section: &Value) {
    let _ = writeln!(page, "\n### {}\n", text(&section["title"]));
    let note = text(&section["note"]);
    if !note.is_empty() {
        let _ = writeln!(page, "{note}\n");
    }
    let columns = list(&section["columns"]);
    let heads: Vec<&str> = columns.iter().map(|column| text(&column["head"])).collect();
    let _ = writeln!(page, "| | {} | rounds |\n|---|{}--:|", heads.join(" | "), "--:|".repeat(heads.len()));
    for row in list(&section["rows"]) {
        let cells = columns.iter().map(|column| number(&row["median"][text(&column["metric"])]));
        let cells: Vec<String> = cells.collect();
        let _ = writeln!(page, "| {} | {} | {} |", text(&row["name"]), cells.join(" | "), list(&row["rounds"]).len());
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// With as many digits as it takes to compare.
fn number(value: &Value) -> String {
    match value.as_f64() {
        None => String::from("–"),
        Some(value) if value.fract() == 0.0 => format!("{value:.0}"),
        Some(value) if value.abs() >= 100.0 => format!("{value:.0}"),
        Some(value) if value.abs() >= 10.0 => format!("{value:.1}"),
        Some(value) if value.abs() >= 0.1 => format!("{value:.2}"),
        Some(value) => format!("{value:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn text_between_the_markers_is_replaced_and_nothing_else() {
        let page = "a\n<!-- begin x -->\nold\n<!-- end x -->\nb\n";
        let fresh = between(page, "x", "new").unwrap();
        assert_eq!(fresh, "a\n<!-- begin x -->\n\nnew\n<!-- end x -->\nb\n");
        assert_eq!(between(&fresh, "x", "new").as_deref(), Some(fresh.as_str()), "writing twice changes nothing");
        assert_eq!(between(page, "y", "new"), None);
    }

    #[test]
    fn an_aim_is_met_missed_or_not_measured() {
        let aim =
            |met: Value| json!({ "key": "k", "what": "w", "bound": "at most", "limit": 2.5, "value": 3.0, "met": met });
        let report = json!({ "about": {}, "aims": [aim(json!(true)), aim(json!(false)), aim(Value::Null)] });
        let page = tables(&report);
        assert!(page.contains("| `k` | w | at most 2.50 | 3 | met |"), "{page}");
        assert!(page.contains("**missed**") && page.contains("not measured"), "{page}");
    }
}
