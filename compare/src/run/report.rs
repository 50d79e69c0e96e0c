//! The report: medians of all rounds, and the figures that the aims are about.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::aims::{Aim, Of};
use super::heads::Head;
use crate::measure::median;

/// The figures of one subject in one round.
pub(super) type Sample = BTreeMap<String, f64>;

/// One table: subjects that were measured in the same rounds.
pub(super) struct Section {
    head: Head,
    rows: Vec<(String, Vec<Sample>)>,
}

impl Section {
    pub(super) fn new(head: Head) -> Self {
        Self { head, rows: Vec::new() }
    }

    /// Whether a metric is printed or drawn.
    pub(super) fn shows(&self, metric: &str) -> bool {
        let columns = self.head.columns.iter();
        let curves = self.head.charts.iter().flat_map(|chart| &chart.curves);
        (metric == "x" && !self.head.charts.is_empty()) || columns.chain(curves).any(|(shown, _)| *shown == metric)
    }

    pub(super) fn add(&mut self, subject: &str, sample: Sample) {
        match self.rows.iter_mut().find(|(name, _)| name == subject) {
            Some((_, samples)) => samples.push(sample),
            None => self.rows.push((subject.to_owned(), vec![sample])),
        }
    }

    fn values(&self, subject: &str, metric: &str) -> Vec<f64> {
        let samples = self.rows.iter().filter(|(name, _)| name == subject).flat_map(|(_, samples)| samples);
        samples.filter_map(|sample| sample.get(metric).copied()).filter(|value| value.is_finite()).collect()
    }

    fn median(&self, subject: &str, metric: &str) -> Option<f64> {
        let values = self.values(subject, metric);
        (!values.is_empty()).then(|| median(&values))
    }

    /// One subject's figure over another's, as the median over the rounds: each round has both, a moment apart.
    fn ratio(&self, one: &str, other: &str, metric: &str) -> Option<f64> {
        let (ones, others) = (self.values(one, metric), self.values(other, metric));
        if ones.len() != others.len() {
            return Some(self.median(one, metric)? / self.median(other, metric)?);
        }
        let ratios: Vec<f64> = ones.iter().zip(&others).map(|(one, other)| one / other).collect();
        (!ratios.is_empty()).then(|| median(&ratios))
    }

    /// The figure that an aim is about, and the subjects whose times are printed beside it.
    fn figure<'a>(&'a self, of: &'a Of, metric: &str) -> (Option<f64>, Vec<&'a str>) {
        match of {
            Of::Ratio(one, other) => (self.ratio(one, other, metric), vec![one, other]),
            Of::OverBest(one) => {
                let others = self.rows.iter().map(|(name, _)| name.as_str()).filter(|name| !name.starts_with("tenure"));
                let medians = others.filter_map(|other| Some((self.median(other, metric)?, other)));
                match medians.max_by(|one, other| one.0.total_cmp(&other.0)) {
                    Some((_, best)) => (self.ratio(one, best, metric), vec![one, best]),
                    None => (None, vec![one]),
                }
            }
            Of::Rows(rows) => {
                let medians: Option<Vec<f64>> = rows.iter().map(|row| self.median(row, metric)).collect();
                (medians.map(|medians| medians.into_iter().fold(f64::MIN, f64::max)), rows.clone())
            }
            Of::Sum => {
                let ours = self.rows.iter().filter(|(name, _)| name.starts_with("tenure"));
                (Some(ours.flat_map(|(name, _)| self.values(name, metric)).sum()), Vec::new())
            }
        }
    }

    /// What a subject used for one thing, in microseconds; nothing where it was not measured.
    fn times(&self, subject: &str) -> Value {
        let [server_us, client_us] = ["server_us", "client_us"].map(|metric| self.median(subject, metric).map(short));
        json!({ "subject": subject, "server_us": server_us, "client_us": client_us })
    }

    fn json(&self) -> Value {
        let rows = self.rows.iter().filter_map(|(name, samples)| {
            let metrics = samples.iter().flat_map(BTreeMap::keys).filter(|metric| self.shows(metric));
            let medians: BTreeMap<&str, Option<f64>> =
                metrics.map(|metric| (metric.as_str(), self.median(name, metric).map(short))).collect();
            (!medians.is_empty()).then(|| json!({ "name": name, "median": medians, "rounds": samples.len() }))
        });
        let columns = self.head.columns.iter().map(|(metric, head)| json!({ "metric": metric, "head": head }));
        let charts = self.head.charts.iter().map(|chart| {
            let curves = chart.curves.iter().map(|(metric, name)| json!({ "metric": metric, "name": name }));
            let curves: Vec<Value> = curves.collect();
            json!({ "id": chart.id, "title": chart.title, "x": chart.x, "y": chart.y, "curves": curves })
        });
        json!({
            "id": self.head.id,
            "title": self.head.title,
            "note": self.head.note,
            "columns": columns.collect::<Vec<_>>(),
            "rows": rows.collect::<Vec<_>>(),
            "charts": charts.collect::<Vec<_>>(),
        })
    }
}

/// The whole result of a comparison.
pub(super) struct Report {
    about: Value,
    pub(super) sections: Vec<Section>,
    left_out: BTreeMap<String, String>,
}

impl Report {
    pub(super) fn new(about: Value) -> Self {
        Self { about, sections: Vec::new(), left_out: BTreeMap::new() }
    }

    /// Notes what server is measured.
    pub(super) fn about(&mut self, key: &str, value: impl Into<Value>) {
        if let Some(about) = self.about.as_object_mut() {
            about.insert(key.to_owned(), value.into());
        }
    }

    /// Notes that a subject could not be measured. The first reason is kept.
    pub(super) fn left_out(&mut self, subject: impl Into<String>, why: impl ToString) {
        let subject = subject.into();
        if !self.left_out.contains_key(&subject) {
            let why = why.to_string();
            eprintln!("left out: {subject}: {why}");
            self.left_out.insert(subject, why);
        }
    }

    pub(super) fn json(&self, aims: &[Aim]) -> Value {
        let (mut missing, mut found) = (BTreeMap::new(), Vec::new());
        for aim in aims {
            let section = self.sections.iter().find(|section| section.head.id == aim.table);
            let (value, subjects) = section.map_or((None, Vec::new()), |section| section.figure(&aim.of, aim.metric));
            let value = value.filter(|value| value.is_finite());
            if value.is_none() {
                let why = match section {
                    Some(_) => "what it compares was not measured; see left_out",
                    None => "its section did not run",
                };
                missing.insert(aim.key, why);
            }
            let times = section.filter(|_| value.is_some()).into_iter();
            let times = times.flat_map(|section| subjects.iter().map(|subject| section.times(subject)));
            found.push(json!({
                "key": aim.key, "what": aim.what, "bound": aim.bound, "limit": aim.limit, "value": value.map(short),
                "met": value.map(|value| aim.is_met(value)), "times": times.collect::<Vec<_>>(),
            }));
        }
        json!({
            "about": self.about,
            "not_measured": missing,
            "left_out": self.left_out,
            "aims": found,
            "sections": self.sections.iter().filter(|section| !section.rows.is_empty()).map(Section::json).collect::<Vec<_>>(),
        })
    }
}

/// JSON with a line for each aim, each row and each list of columns.
pub(super) fn laid_out(value: &Value, indent: &str) -> String {
    let (depth, deeper) = (depth(value), format!("{indent}  "));
    let lines = |parts: Vec<String>, open: &str, close: &str| {
        let parts: Vec<String> = parts.into_iter().map(|part| format!("{deeper}{part}")).collect();
        format!("{open}\n{}\n{indent}{close}", parts.join(",\n"))
    };
    match value {
        Value::Object(parts) if depth > 3 => {
            lines(parts.iter().map(|(key, part)| format!("{key:?}: {}", laid_out(part, &deeper))).collect(), "{", "}")
        }
        Value::Array(parts) if depth > 2 => lines(parts.iter().map(|part| laid_out(part, &deeper)).collect(), "[", "]"),
        other => other.to_string(),
    }
}

/// How many containers are within each other.
fn depth(value: &Value) -> usize {
    match value {
        Value::Object(parts) => 1 + parts.values().map(depth).max().unwrap_or(0),
        Value::Array(parts) => 1 + parts.iter().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// Four digits are more than any of this is good for.
fn short(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let scale = 10_f64.powi(4 - value.abs().log10().ceil() as i32);
    (value * scale).round() / scale
}

/// A number as rows are called by it: with commas between thousands.
pub(super) fn label(x: f64) -> String {
    if x.fract() != 0.0 {
        return x.to_string();
    }
    let digits = format!("{x:.0}");
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().filter_map(|group| std::str::from_utf8(group).ok()).collect();
    groups.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(figures: &[(&str, f64)]) -> Sample {
        figures.iter().map(|(metric, value)| ((*metric).to_owned(), *value)).collect()
    }

    fn section() -> Section {
        let mut section =
            Section::new(Head { id: "s", title: "S", note: "", columns: vec![("m", "M")], charts: Vec::new() });
        for (one, other) in [(2.0, 1.0), (9.0, 3.0), (4.0, 1.0)] {
            section.add("tenure-one", sample(&[("m", one), ("hidden", 1.0)]));
            section.add("other", sample(&[("m", other)]));
        }
        section
    }

    fn aim(key: &'static str, table: &'static str, of: Of) -> Aim {
        Aim { key, bound: "at most", limit: 1.0, table, metric: "m", of, what: "" }
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        let section = section();
        let figure = |of: Of| section.figure(&of, "m").0;
        assert_eq!(figure(Of::Ratio("tenure-one", "other")), Some(3.0));
        assert_eq!(figure(Of::Ratio("tenure-one", "none")), None);
        assert_eq!(figure(Of::OverBest("tenure-one")), Some(3.0));
        assert_eq!(figure(Of::Rows(vec!["tenure-one", "other"])), Some(4.0));
        assert_eq!(figure(Of::Rows(vec!["tenure-one", "none"])), None);
        assert_eq!(figure(Of::Sum), Some(15.0));
        assert_eq!(section.figure(&Of::OverBest("tenure-one"), "hidden").0, None);
    }

    #[test]
    fn a_ratio_has_the_times_of_both_beside_it() {
        let mut section = section();
        for (server, client) in [(8.0, 5.0), (9.0, 6.0), (12.0, 9.0)] {
            section.add("tenure-one", sample(&[("server_us", server), ("client_us", client)]));
        }
        let mut report = Report::new(Value::Null);
        report.sections.push(section);
        let aims = report.json(&[aim("k", "s", Of::Ratio("tenure-one", "other"))])["aims"].take();
        assert_eq!(aims[0]["times"][0], json!({ "subject": "tenure-one", "server_us": 9.0, "client_us": 6.0 }));
        assert_eq!(aims[0]["times"][1], json!({ "subject": "other", "server_us": null, "client_us": null }));
    }

    #[test]
    fn an_aim_without_a_figure_has_a_reason() {
        let mut report = Report::new(Value::Null);
        report.sections.push(section());
        let json = report.json(&[aim("a", "s", Of::Rows(vec!["none"])), aim("b", "t", Of::Sum)]);
        assert_eq!(json["not_measured"]["a"], "what it compares was not measured; see left_out");
        assert_eq!(json["not_measured"]["b"], "its section did not run");
        assert!(json["aims"][0]["met"].is_null());
    }

    #[test]
    fn only_medians_of_what_is_shown_are_kept_with_a_line_for_each_row() {
        let mut report = Report::new(Value::Null);
        report.sections.push(section());
        let text = laid_out(&report.json(&[]), "");
        assert!(text.contains("\n        {\"median\":{\"m\":4.0},\"name\":\"tenure-one\",\"rounds\":3},\n"), "{text}");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), report.json(&[]));
    }

    #[test]
    fn numbers_are_short_and_rows_are_called_by_theirs() {
        assert_eq!([12_345.678, 1.234_56, 0.0].map(short), [12_350.0, 1.235, 0.0]);
        assert_eq!([1.0, 0.5, 100.0, 1_000.0, 1_000_000.0].map(label), ["1", "0.5", "100", "1,000", "1,000,000"]);
    }
}
