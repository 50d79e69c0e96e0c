//! What is printed around the rows of a section, from `sections.txt`.

use crate::job::Outcome;

const TEXTS: &str = include_str!("sections.txt");

/// Metrics, each with what it is called.
type Named = Vec<(&'static str, &'static str)>;

/// The texts of a section.
pub(super) struct Head {
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    pub(super) note: &'static str,
    pub(super) columns: Named,
    pub(super) charts: Vec<Chart>,
}

/// A picture of rows that are points: which metrics are drawn over the metric `x`.
pub(super) struct Chart {
    /// Its file is called so.
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    pub(super) x: &'static str,
    pub(super) y: &'static str,
    pub(super) curves: Named,
}

/// The sections of a comparison, in their order.
pub(super) fn of(comparison: &str) -> Outcome<Vec<Head>> {
    let blocks = TEXTS.split("\n\n").filter_map(|block| Some((block.strip_prefix('[')?.split_once('/')?, block)));
    let own = blocks.filter(|((name, _), _)| *name == comparison);
    own.map(|((_, rest), block)| head(rest).ok_or_else(|| format!("sections.txt: cannot read {block:?}").into()))
        .collect()
}

/// A block, from its id on.
fn head(block: &'static str) -> Option<Head> {
    let (first, rest) = block.split_once('\n')?;
    let (id, title) = first.split_once("] ")?;
    let mut head = Head { id, title, note: "", columns: Vec::new(), charts: Vec::new() };
    for line in rest.lines() {
        if let Some(columns) = line.strip_prefix("columns: ") {
            head.columns = match columns.strip_prefix("those of ") {
                Some(other) => {
                    let (_, other) = TEXTS.split_once(&format!("[{other}] "))?;
                    named(other.lines().find_map(|line| line.strip_prefix("columns: "))?)?
                }
                None => named(columns)?,
            };
        } else if let Some(chart) = line.strip_prefix("chart: ") {
            let mut parts = chart.splitn(5, " | ");
            let mut part = || parts.next();
            head.charts.push(Chart { id: part()?, title: part()?, x: part()?, y: part()?, curves: named(part()?)? });
        } else {
            head.note = line;
        }
    }
    (!head.columns.is_empty()).then_some(head)
}

fn named(list: &'static str) -> Option<Named> {
    list.split(" | ").map(|part| part.split_once(' ')).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{Comparison, growth, locks, queue};
    use super::*;

    #[test]
    fn every_section_has_its_texts_in_the_same_order() {
        let comparisons: &[&Comparison] = &[
            &locks::LOCKS,
            &queue::QUEUE,
            &growth::GROWTH,
            #[cfg(feature = "sql")]
            &super::super::sql::SQL,
        ];
        for comparison in comparisons {
            let heads: Vec<&str> = of(comparison.name).unwrap().into_iter().map(|head| head.id).collect();
            let curves = comparison.curves.iter().map(|curves| curves.id);
            assert_eq!(heads, comparison.tables.iter().map(|table| table.id).chain(curves).collect::<Vec<_>>());
        }
    }

    #[test]
    fn columns_may_be_those_of_another_section() {
        let heads = of("locks").unwrap();
        let columns = |id: &str| heads.iter().find(|head| head.id == id).map(|head| head.columns.clone()).unwrap();
        assert_eq!(columns("redlock"), columns("redlock-network"));
        assert_eq!(columns("memory"), [("p50_us", "p50 µs"), ("client_us", "CPU µs"), ("allocations", "allocations")]);
    }
}
