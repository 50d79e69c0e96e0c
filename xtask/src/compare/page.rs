//! What is measured, on the pages: `docs/performance.md` and the table in the README. What is between two markers is written from
//! the JSON of a comparison.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::command::{Failure, Outcome};

const PAGE: &str = "docs/performance.md";
const README: &str = "README.md";
const NAMES: [&str; 3] = ["locks", "queue", "sql"];

/// The figures of the README: the comparison, the ratio, and what a stranger has to know of it.
const FIGURES: &[(&str, &str, &str)] = &[
    ("locks", "handover_gap_in_rtt", "from one holder's release to the next one running, in round trips"),
    ("locks", "handovers_vs_best_peer", "hand-overs per second, 16 waiters: times the fastest other library measured"),
    ("locks", "commands_per_handover_128", "commands that clients send per hand-over, 128 waiters"),
    ("locks", "jain_128", "fairness among 128 waiters (1: all get the same)"),
    ("locks", "dead_waiters_64_ms", "until the next grant after a process with 64 waiters was killed, in ms"),
    (
        "locks",
        "pair_1_speed_vs_rslock",
        "speed of an uncontended lock and release: times that of `rslock`, which has no fences and no line",
    ),
    ("locks", "server_bytes_per_lock", "the server's memory for a held lock, in bytes"),
    ("queue", "lateness_p99_ms", "delay queue: receipt after the due time, 99th percentile, in ms"),
    ("queue", "total_vs_bullmq", "delay queue: messages per second, eight at once: times BullMQ's"),
];

/// Where the documented figures of a comparison are kept.
pub(super) fn source(name: &str) -> PathBuf {
    PathBuf::from(format!("docs/performance/{name}.json"))
}

pub(super) fn read(path: &Path) -> Outcome<Value> {
    let failed = |error: String| Failure(format!("cannot read {}: {error}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    serde_json::from_str(&text).map_err(|error| failed(error.to_string()))
}

/// The pages that are not as they should be, and as they should be.
pub(crate) fn stale() -> Outcome<Vec<(&'static str, String)>> {
    let reports = NAMES.iter().map(|name| Ok((*name, read(&source(name))?))).collect::<Outcome<Vec<_>>>()?;
    let tables = reports.iter().map(|(name, report)| (*name, tables(report))).collect::<Vec<_>>();
    let pages = [(PAGE, tables), (README, vec![("figures", figures(&reports))])];
    let mut stale = Vec::new();
    for (path, texts) in pages {
        let page = std::fs::read_to_string(path).map_err(|error| Failure(format!("cannot read {path}: {error}")))?;
        let mut fresh = page.clone();
        for (name, text) in texts {
            fresh = between(&fresh, name, &text).ok_or_else(|| Failure(format!("{path} has no markers for {name}")))?;
        }
        if fresh != page {
            stale.push((path, fresh));
        }
    }
    Ok(stale)
}

pub(crate) fn rewrite() -> Outcome {
    for (path, fresh) in stale()? {
        std::fs::write(path, fresh).map_err(|error| Failure(format!("cannot write {path}: {error}")))?;
    }
    Ok(())
}

/// The table of the README.
fn figures(reports: &[(&str, Value)]) -> String {
    let rows = FIGURES.iter().map(|(name, key, what)| {
        let aims = reports.iter().filter(|(report, _)| report == name).flat_map(|(_, report)| list(&report["aims"]));
        let value = aims.filter(|aim| text(&aim["key"]) == *key).map(|aim| number(&aim["value"])).next();
        format!("| {what} | {} |\n", value.unwrap_or_else(|| number(&Value::Null)))
    });
    format!("| measured on Redis | |\n|---|--:|\n{}", rows.collect::<String>())
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
    fn the_readme_has_a_row_for_each_figure_also_if_it_was_not_measured() {
        let report = json!({ "aims": [{ "key": "jain_128", "value": 0.996 }] });
        let table = figures(&[("locks", report), ("queue", json!({}))]);
        assert_eq!(table.lines().count(), 2 + FIGURES.len());
        assert!(table.contains("same) | 1.00 |\n") && table.contains("BullMQ's | – |\n"), "{table}");
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
