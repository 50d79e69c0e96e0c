//! The side that conducts: servers, processes, rounds in random order, and the report.

mod aims;
mod bench;
mod child;
#[cfg(feature = "sql")]
mod databases;
mod growth;
mod heads;
mod history;
mod locks;
mod machine;
mod proxy;
mod queue;
mod report;
mod server;
mod servers;
#[cfg(feature = "sql")]
mod sql;
mod table;

use std::path::PathBuf;
use std::time::Instant;

use crate::job::Outcome;
use bench::Bench;
use table::Comparison;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Less of everything: at most ten minutes
    #[arg(long)]
    quick: bool,
    /// Write the figures there, not to standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The sections whose names begin with it (may be repeated)
    #[arg(long, value_name = "SECTION")]
    only: Vec<String>,
}

/// Compares locks and writes the report as JSON.
pub(crate) fn locks(options: &Options) -> Outcome {
    run(&locks::LOCKS, options)
}

/// Compares delay queues and writes the report as JSON.
pub(crate) fn queue(options: &Options) -> Outcome {
    run(&queue::QUEUE, options)
}

/// Compares locks and delay queues of databases and writes the report as JSON.
#[cfg(feature = "sql")]
pub(crate) fn sql(options: &Options) -> Outcome {
    run(&sql::SQL, options)
}

#[cfg(not(feature = "sql"))]
pub(crate) fn sql(_options: &Options) -> Outcome {
    Err("built without the feature sql".into())
}

/// Measures how cost grows and writes the report as JSON.
pub(crate) fn growth(options: &Options) -> Outcome {
    run(&growth::GROWTH, options)
}

fn run(comparison: &Comparison, options: &Options) -> Outcome {
    let chosen = chosen(comparison, &options.only)?;
    let (aims, heads) = (aims::of(comparison.name)?, heads::of(comparison.name)?);
    let mut bench = Bench::new(comparison.name, options.quick)?;
    for head in heads.into_iter().filter(|head| chosen.contains(&head.id)) {
        let (id, begun) = (head.id, Instant::now());
        if let Some(table) = comparison.tables.iter().find(|table| table.id == id) {
            bench.table(table, head);
        } else if let Some(curves) = comparison.curves.iter().find(|curves| curves.id == id) {
            bench.curves(curves, head);
        }
        eprintln!("{id}: {:.0} s", begun.elapsed().as_secs_f64());
    }
    let report = report::laid_out(&bench.report.json(&aims), "") + "\n";
    match &options.json {
        Some(path) => std::fs::write(path, report).map_err(|error| format!("{}: {error}", path.display()).into()),
        None => {
            print!("{report}");
            Ok(())
        }
    }
}

/// The sections of these names, or whose names begin with them: `pg` is `pg-pair` and `pg-queue`. All of them if none is
/// named.
fn chosen(comparison: &Comparison, only: &[String]) -> Outcome<Vec<&'static str>> {
    let curves = comparison.curves.iter().map(|curves| curves.id);
    let ids: Vec<&str> = comparison.tables.iter().map(|table| table.id).chain(curves).collect();
    let is = |id: &str, name: &str| id.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'));
    if let Some(unknown) = only.iter().find(|name| !ids.iter().any(|id| is(id, name))) {
        return Err(format!("there is no section {unknown:?}; the sections are {}", ids.join(", ")).into());
    }
    Ok(ids.into_iter().filter(|id| only.is_empty() || only.iter().any(|name| is(id, name))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_are_chosen_by_name_and_an_unknown_name_is_an_error() {
        let chosen = |comparison: &Comparison, only: &[&str]| {
            chosen(comparison, &only.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        assert_eq!(chosen(&queue::QUEUE, &["idle", "late"]).unwrap(), ["late", "idle"]);
        assert_eq!(chosen(&queue::QUEUE, &[]).unwrap().len(), queue::QUEUE.tables.len());
        assert_eq!(chosen(&locks::LOCKS, &["pair"]).unwrap(), ["pair"]);
        assert_eq!(chosen(&locks::LOCKS, &["pairs"]).unwrap(), ["pairs", "pairs-apart", "pairs-threads"]);
        let error = chosen(&queue::QUEUE, &["late", "pair"]).unwrap_err().to_string();
        assert!(error.starts_with("there is no section \"pair\"; the sections are throughput, "), "{error}");
    }
}
