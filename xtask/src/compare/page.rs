//! The measurements on the pages: `docs/performance.md`, `docs/growth.md` and the table in the README. The text between two
//! markers is written from the JSON of a comparison, and so are the pictures.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::growth;
use super::table::{about, list, number, table, text};
use crate::command::{Failure, Outcome};

const PAGE: &str = "docs/performance.md";
const README: &str = "README.md";
const NAMES: [&str; 3] = ["locks", "queue", "sql"];

/// The figures of the README: the comparison, the ratio, and what a stranger has to know of it.
const FIGURES: &[(&str, &str, &str)] = &[
    ("locks", "handover_gap_in_rtt", "from one holder's release to the next holder's start, in round trips"),
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

/// The pages and pictures that are not as they should be, and as they should be.
pub(crate) fn stale() -> Outcome<Vec<(String, String)>> {
    let reports = NAMES.iter().map(|name| Ok((*name, read(&source(name))?))).collect::<Outcome<Vec<_>>>()?;
    let tables = reports.iter().map(|(name, report)| (String::from(*name), tables(report))).collect();
    let grown = read(&source(growth::NAME))?;
    let pages = [
        (PAGE, tables),
        (README, vec![(String::from("figures"), figures(&reports))]),
        (growth::PAGE, growth::texts(&grown)),
    ];
    let mut stale = Vec::new();
    for (path, texts) in pages {
        let page = std::fs::read_to_string(path).map_err(|error| Failure(format!("cannot read {path}: {error}")))?;
        let mut fresh = page.clone();
        for (name, text) in texts {
            fresh =
                between(&fresh, &name, &text).ok_or_else(|| Failure(format!("{path} has no markers for {name}")))?;
        }
        if fresh != page {
            stale.push((path.to_owned(), fresh));
        }
    }
    let pictures = growth::pictures(&grown).into_iter();
    stale.extend(pictures.filter(|(path, fresh)| std::fs::read_to_string(path).ok().as_ref() != Some(fresh)));
    Ok(stale)
}

pub(crate) fn rewrite() -> Outcome {
    for (path, fresh) in stale()? {
        std::fs::write(&path, fresh).map_err(|error| Failure(format!("cannot write {path}: {error}")))?;
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
    let aims = list(&report["aims"]);
    // Reports of before have no times.
    let timed = aims.iter().any(|aim| aim.get("times").is_some());
    if !aims.is_empty() {
        let (heads, lines) = if timed { (" server µs | client µs |", "--:|--:|") } else { ("", "") };
        let _ = writeln!(page, "\n| ratio | what it is | aim | measured |{heads} |\n|---|---|--:|--:|{lines}---|");
    }
    for aim in aims {
        let met = match aim["met"].as_bool() {
            Some(true) => "met",
            Some(false) => "**missed**",
            None => "not measured",
        };
        let limit = format!("{} {}", text(&aim["bound"]), number(&aim["limit"]));
        let (key, what, value) = (text(&aim["key"]), text(&aim["what"]), number(&aim["value"]));
        let times = ["server_us", "client_us"].map(|metric| format!(" {} |", times(aim, metric)));
        let times = if timed { times.concat() } else { String::new() };
        let _ = writeln!(page, "| `{key}` | {what} | {limit} | {value} |{times} {met} |");
    }
    for (title, reasons) in [("Not measured", &report["not_measured"]), ("Left out", &report["left_out"])] {
        for (at, (name, why)) in reasons.as_object().into_iter().flatten().enumerate() {
            let _ = write!(page, "{}", if at == 0 { format!("\n{title}:\n\n") } else { String::new() });
            let _ = writeln!(page, "- `{name}`: {}", text(why));
        }
    }
    for section in list(&report["sections"]) {
        let _ = writeln!(page, "\n### {}\n\n{}", text(&section["title"]), table(section).trim_end());
    }
    page
}

/// What the subjects of a ratio used for one thing, in microseconds: ours first.
fn times(aim: &Value, metric: &str) -> String {
    let mut subjects: Vec<&Value> = list(&aim["times"]).iter().collect();
    subjects.sort_by_key(|subject| !text(&subject["subject"]).starts_with("tenure"));
    if subjects.iter().all(|subject| subject[metric].is_null()) {
        return String::from("–");
    }
    let times: Vec<String> = subjects.into_iter().map(|subject| number(&subject[metric])).collect();
    times.join(" / ")
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
    fn the_times_of_a_ratio_are_beside_it_ours_first() {
        let subject =
            |subject: &str, server: f64| json!({ "subject": subject, "server_us": server, "client_us": null });
        let aim = |times: Value| json!({ "key": "k", "what": "w", "bound": "at most", "limit": 2, "value": 1, "times": times });
        let several = json!([subject("rslock", 11.5), subject("tenure-redis", 16.4)]);
        let page = tables(&json!({ "about": {}, "aims": [aim(several), aim(json!([]))] }));
        assert!(page.contains("| measured | server µs | client µs | |"), "{page}");
        assert!(
            page.contains("| 1 | 16.4 / 11.5 | – | not measured |") && page.contains("| 1 | – | – | not"),
            "{page}"
        );
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
