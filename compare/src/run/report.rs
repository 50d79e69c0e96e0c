//! The measurements: raw rounds, medians, and the ratios that the aims refer to.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::aims::{Aim, Bound};
use crate::measure::median;

/// The figures of one subject in one round.
pub(super) type Sample = BTreeMap<String, f64>;

/// The numbers of an answer.
pub(super) fn sample(answer: &Value) -> Sample {
    let numbers = answer.as_object().into_iter().flatten();
    numbers.filter_map(|(name, value)| Some((name.clone(), value.as_f64()?))).collect()
}

/// A figure that an aim speaks of, and beside it what the subjects that it is about have used.
#[derive(Default)]
pub(super) struct Ratio {
    value: Option<f64>,
    times: Vec<Times>,
}

/// Processor time per thing done, in microseconds; nothing where it was not measured.
struct Times {
    subject: String,
    server_us: Option<f64>,
    client_us: Option<f64>,
}

impl From<Option<f64>> for Ratio {
    fn from(value: Option<f64>) -> Self {
        Self { value, times: Vec::new() }
    }
}

impl Ratio {
    pub(super) fn map(self, change: impl FnOnce(f64) -> f64) -> Self {
        Self { value: self.value.map(change), ..self }
    }
}

impl Times {
    fn json(&self) -> Value {
        let [server_us, client_us] = [self.server_us, self.client_us].map(|us| us.map(short));
        json!({ "subject": self.subject, "server_us": server_us, "client_us": client_us })
    }
}

/// A picture of a section whose rows are points: which metrics are drawn over the metric `x`.
pub(super) struct Chart {
    /// Its file is called so.
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    pub(super) x: &'static str,
    pub(super) y: &'static str,
    /// The metric of each curve, and its name.
    pub(super) curves: &'static [(&'static str, &'static str)],
}

impl Chart {
    fn json(&self) -> Value {
        let curves: Vec<_> =
            self.curves.iter().map(|(metric, name)| json!({ "metric": metric, "name": name })).collect();
        json!({ "id": self.id, "title": self.title, "x": self.x, "y": self.y, "curves": curves })
    }
}

/// One table: subjects that were measured in the same rounds.
pub(super) struct Section {
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    pub(super) note: String,
    /// The metric's name and the column's head, in the order of the columns.
    pub(super) columns: &'static [(&'static str, &'static str)],
    pub(super) rows: Vec<(String, Vec<Sample>)>,
    pub(super) charts: &'static [Chart],
}

impl Section {
    pub(super) fn new(
        id: &'static str,
        title: &'static str,
        note: impl Into<String>,
        columns: &'static [(&'static str, &'static str)],
    ) -> Self {
        Self { id, title, note: note.into(), columns, rows: Vec::new(), charts: &[] }
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

    pub(super) fn median(&self, subject: &str, metric: &str) -> Option<f64> {
        let values = self.values(subject, metric);
        (!values.is_empty()).then(|| median(&values))
    }

    /// One subject's figure over another's, as the median over the rounds: each round has both, a moment apart.
    pub(super) fn ratio(&self, one: &str, other: &str, metric: &str) -> Ratio {
        let (ones, others) = (self.values(one, metric), self.values(other, metric));
        let value = if ones.len() == others.len() {
            let ratios: Vec<f64> = ones.iter().zip(&others).map(|(one, other)| one / other).collect();
            (!ratios.is_empty()).then(|| median(&ratios))
        } else {
            self.median(one, metric).zip(self.median(other, metric)).map(|(one, other)| one / other)
        };
        Ratio { value: value.filter(|value| value.is_finite()), times: vec![self.times(one), self.times(other)] }
    }

    /// A subject's figure by itself.
    pub(super) fn figure(&self, subject: &str, metric: &str) -> Ratio {
        Ratio { value: self.median(subject, metric), times: vec![self.times(subject)] }
    }

    fn times(&self, subject: &str) -> Times {
        let [server_us, client_us] = ["server_us", "client_us"].map(|metric| self.median(subject, metric));
        Times { subject: subject.to_owned(), server_us, client_us }
    }

    fn json(&self) -> Value {
        let rows = self.rows.iter().map(|(name, samples)| {
            let mut metrics: Vec<&String> = samples.iter().flat_map(BTreeMap::keys).collect();
            metrics.sort();
            metrics.dedup();
            let medians: BTreeMap<&str, Option<f64>> =
                metrics.into_iter().map(|metric| (metric.as_str(), self.median(name, metric).map(short))).collect();
            let rounds: Vec<BTreeMap<&String, f64>> = samples
                .iter()
                .map(|sample| sample.iter().map(|(name, value)| (name, short(*value))).collect())
                .collect();
            json!({ "name": name, "median": medians, "rounds": rounds })
        });
        let columns: Vec<_> =
            self.columns.iter().map(|(metric, head)| json!({ "metric": metric, "head": head })).collect();
        json!({
            "id": self.id,
            "title": self.title,
            "note": self.note,
            "columns": columns,
            "rows": rows.collect::<Vec<_>>(),
            "charts": self.charts.iter().map(Chart::json).collect::<Vec<_>>(),
        })
    }
}

/// The whole result of a comparison.
pub(super) struct Report {
    pub(super) about: Value,
    pub(super) sections: Vec<Section>,
    ratios: BTreeMap<&'static str, f64>,
    times: BTreeMap<&'static str, Vec<Times>>,
    reasons: BTreeMap<&'static str, String>,
    left_out: BTreeMap<String, String>,
}

impl Report {
    pub(super) fn new(about: Value) -> Self {
        let (ratios, times, reasons) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { about, sections: Vec::new(), ratios, times, reasons, left_out: BTreeMap::new() }
    }

    /// Notes a ratio; without a value, that it was not measured.
    pub(super) fn ratio(&mut self, key: &'static str, ratio: impl Into<Ratio>) {
        let Ratio { value, times } = ratio.into();
        match value.filter(|value| value.is_finite()) {
            Some(value) => {
                self.ratios.insert(key, value);
                self.times.insert(key, times);
            }
            None => self.unmeasured(key, "what it compares was not measured; see left_out"),
        }
    }

    /// Notes why a ratio is missing. The first reason is kept.
    pub(super) fn unmeasured(&mut self, key: &'static str, why: impl Into<String>) {
        self.reasons.entry(key).or_insert_with(|| why.into());
    }

    /// Notes that a subject could not be measured.
    pub(super) fn left_out(&mut self, subject: impl Into<String>, why: impl ToString) {
        let (subject, why) = (subject.into(), why.to_string());
        eprintln!("left out: {subject}: {why}");
        self.left_out.entry(subject).or_insert(why);
    }

    pub(super) fn json(&self, aims: &[Aim]) -> Value {
        let missing = aims.iter().filter(|aim| !self.ratios.contains_key(aim.key)).map(|aim| {
            let why = self.reasons.get(aim.key).map_or("its section did not run", String::as_str);
            (aim.key, why)
        });
        let missing: BTreeMap<&str, &str> = missing.collect();
        let aims: Vec<Value> = aims.iter().map(|aim| self.aim(aim)).collect();
        let ratios: BTreeMap<&str, f64> = self.ratios.iter().map(|(key, value)| (*key, short(*value))).collect();
        json!({
            "about": self.about,
            "ratios": ratios,
            "not_measured": missing,
            "left_out": self.left_out,
            "aims": aims,
            "sections": self.sections.iter().map(Section::json).collect::<Vec<_>>(),
        })
    }

    fn aim(&self, aim: &Aim) -> Value {
        let value = self.ratios.get(aim.key).copied();
        let (bound, limit, met) = match aim.bound {
            Bound::Most(limit) => ("at most", limit, value.map(|value| value <= limit)),
            Bound::Least(limit) => ("at least", limit, value.map(|value| value >= limit)),
            Bound::Exactly(limit) => ("exactly", limit, value.map(|value| (value - limit).abs() < 0.01)),
        };
        let times: Vec<Value> = self.times.get(aim.key).into_iter().flatten().map(Times::json).collect();
        let value = value.map(short);
        json!({
            "key": aim.key, "what": aim.what, "bound": bound, "limit": limit, "value": value, "met": met, "times": times,
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    fn section() -> Section {
        let mut section = Section::new("s", "S", "", &[]);
        for (one, other) in [(2.0, 1.0), (9.0, 3.0), (4.0, 1.0)] {
            section.add("one", Sample::from([("m".to_owned(), one)]));
            section.add("other", Sample::from([("m".to_owned(), other)]));
        }
        section
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        assert_eq!(section().ratio("one", "other", "m").value, Some(3.0));
        assert_eq!(section().ratio("one", "nobody", "m").value, None);
    }

    #[test]
    fn a_ratio_has_the_times_of_both_beside_it() {
        const AIMS: &[Aim] = &[Aim { key: "k", bound: Bound::Most(1.0), what: "" }];
        let mut section = section();
        let used = |server, client| Sample::from([("server_us".to_owned(), server), ("client_us".to_owned(), client)]);
        section.add("one", used(8.0, 5.0));
        section.add("one", used(9.0, 6.0));
        section.add("one", used(12.0, 9.0));
        let mut report = Report::new(Value::Null);
        report.ratio("k", section.ratio("one", "other", "m"));
        let aims = report.json(AIMS)["aims"].take();
        assert_eq!(aims[0]["times"][0], json!({ "subject": "one", "server_us": 9.0, "client_us": 6.0 }));
        assert_eq!(aims[0]["times"][1], json!({ "subject": "other", "server_us": null, "client_us": null }));
    }

    #[test]
    fn what_was_not_measured_has_no_ratio_but_a_reason() {
        const AIMS: &[Aim] = &[Aim { key: "k", bound: Bound::Most(1.0), what: "" }];
        let mut report = Report::new(Value::Null);
        report.unmeasured("k", "because");
        let json = report.json(AIMS);
        assert!(json["ratios"].get("k").is_none());
        assert_eq!(json["not_measured"]["k"], "because");
        assert!(json["aims"][0]["met"].is_null());
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(short(12_345.678), 12_350.0);
        assert_eq!(short(1.234_56), 1.235);
        assert_eq!(short(0.0), 0.0);
    }
}
