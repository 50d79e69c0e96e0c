//! What the project wants to reach, from the table `aims.txt`.

use crate::job::Outcome;

const TABLE: &str = include_str!("aims.txt");

/// A bound of a figure.
pub(super) struct Aim {
    pub(super) key: &'static str,
    /// `at most`, `at least` or `exactly`.
    pub(super) bound: &'static str,
    pub(super) limit: f64,
    /// The table that has the figure.
    pub(super) table: &'static str,
    pub(super) metric: &'static str,
    pub(super) of: Of,
    pub(super) what: &'static str,
}

/// The rows that a figure is about.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Of {
    /// One row's over another's.
    Ratio(&'static str, &'static str),
    /// One row's over that of the best row that is not ours.
    OverBest(&'static str),
    /// The greatest of these.
    Rows(Vec<&'static str>),
    /// The sum over all rounds of all our rows.
    Sum,
}

impl Aim {
    pub(super) fn is_met(&self, value: f64) -> bool {
        match self.bound {
            "at most" => value <= self.limit,
            "at least" => value >= self.limit,
            _ => (value - self.limit).abs() < 0.01,
        }
    }
}

/// The aims of a comparison.
pub(super) fn of(comparison: &str) -> Outcome<Vec<Aim>> {
    let lines = TABLE.lines().filter(|line| line.split(" | ").next() == Some(comparison));
    lines.map(|line| aim(line).ok_or_else(|| format!("aims.txt: cannot read {line:?}").into())).collect()
}

fn aim(line: &'static str) -> Option<Aim> {
    let [_, key, bound, table, figure, what] = line.split(" | ").collect::<Vec<_>>()[..] else { return None };
    let (bound, limit) =
        bound.rsplit_once(' ').filter(|(bound, _)| ["at most", "at least", "exactly"].contains(bound))?;
    let (metric, rows) = figure.split_once(" of ")?;
    let (metric, of) = match (metric, rows.split_once(" / ")) {
        ("sum", _) => (rows, Of::Sum),
        (_, Some((row, "best other"))) => (metric, Of::OverBest(row)),
        (_, Some((row, other))) => (metric, Of::Ratio(row, other)),
        (_, None) => (metric, Of::Rows(rows.split(" & ").collect())),
    };
    Some(Aim { key, bound, limit: limit.parse().ok()?, table, metric, of, what })
}

#[cfg(test)]
mod tests {
    use super::super::{Comparison, locks, queue};
    use super::*;

    /// A row that an aim names and no table has would read as "not measured" for ever.
    #[test]
    fn aims_are_about_rows_that_there_are() {
        let comparisons: &[&Comparison] = &[
            &locks::LOCKS,
            &queue::QUEUE,
            #[cfg(feature = "sql")]
            &super::super::sql::SQL,
        ];
        for comparison in comparisons {
            let aims = of(comparison.name).unwrap();
            assert!(aims.len() > 10, "{}", comparison.name);
            for aim in aims {
                let table = comparison.tables.iter().find(|table| table.id == aim.table);
                let table = table.unwrap_or_else(|| panic!("{} is about no table", aim.key));
                let named = match aim.of {
                    Of::Ratio(row, other) => vec![row, other],
                    Of::OverBest(row) => vec![row],
                    Of::Rows(rows) => rows,
                    Of::Sum => Vec::new(),
                };
                for name in named {
                    assert!(table.rows.iter().any(|row| row.name == name), "{}: no row {name}", aim.key);
                }
            }
        }
    }

    #[test]
    fn a_line_is_read_or_an_error() {
        let aim = aim("locks | k | at least 2.5 | t | p50_us of a, b / c | w").unwrap();
        assert_eq!((aim.key, aim.table, aim.metric, aim.of), ("k", "t", "p50_us", Of::Ratio("a, b", "c")));
        assert!(super::aim("locks | k | about 2.5 | t | p50_us of a | w").is_none());
        assert!(super::aim("locks | k | at most x | t | p50_us of a | w").is_none());
    }
}
