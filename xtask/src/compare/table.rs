//! Tables of Markdown from the JSON of a comparison.

use std::fmt::Write as _;

use serde_json::Value;

/// Where and how it was measured.
pub(super) fn about(about: &Value) -> String {
    let words = about.as_object().into_iter().flatten().map(|(name, value)| {
        let value = match value {
            Value::String(text) => text.clone(),
            Value::Number(_) => number(value),
            other => other.to_string(),
        };
        format!("{}: {value}", name.replace('_', " "))
    });
    format!("{}.\n", words.collect::<Vec<_>>().join("; "))
}

/// The note and the rows of a section.
pub(super) fn table(section: &Value) -> String {
    let mut page = String::new();
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
        let _ = writeln!(page, "| {} | {} | {} |", text(&row["name"]), cells.join(" | "), row["rounds"]);
    }
    page
}

pub(super) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// With as many digits as it takes to compare.
pub(super) fn number(value: &Value) -> String {
    match value.as_f64() {
        None => String::from("–"),
        Some(value) if value.fract() == 0.0 => format!("{value:.0}"),
        Some(value) if value.abs() >= 100.0 => format!("{value:.0}"),
        Some(value) if value.abs() >= 10.0 => format!("{value:.1}"),
        Some(value) if value.abs() >= 0.1 => format!("{value:.2}"),
        Some(value) => format!("{value:.4}"),
    }
}
