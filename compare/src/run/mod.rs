//! The side that conducts: servers, processes, rounds in random order, and the report.

mod aims;
mod beanstalkd;
mod bench;
mod child;
mod counters;
mod etcd;
mod growth;
mod language;
mod locks;
mod proxy;
mod queue;
mod redis;
mod report;
mod sql;

use std::path::PathBuf;

use crate::failure::Outcome;
use aims::Aim;
use bench::{Bench, Extent, Section};

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Less of everything: at most ten minutes
    #[arg(long)]
    quick: bool,
    /// Write the figures there, not to standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// One section (may be repeated)
    #[arg(long, value_name = "SECTION")]
    only: Vec<String>,
}

/// Compares locks and writes the report as JSON.
pub(crate) fn locks(options: &Options) -> Outcome {
    run("locks", locks::SECTIONS, aims::LOCKS, options)
}

/// Compares delay queues and writes the report as JSON.
pub(crate) fn queue(options: &Options) -> Outcome {
    run("queue", queue::SECTIONS, aims::QUEUE, options)
}

/// Compares locks and delay queues of databases and writes the report as JSON.
pub(crate) fn sql(options: &Options) -> Outcome {
    run("sql", sql::SECTIONS, aims::SQL, options)
}

/// Measures how cost grows and writes the report as JSON.
pub(crate) fn growth(options: &Options) -> Outcome {
    run("growth", growth::SECTIONS, &[], options)
}

fn run(what: &str, sections: &[(&str, Section)], aims: &[Aim], options: &Options) -> Outcome {
    let wanted = wanted(sections, &options.only)?;
    let mut bench = Bench::new(what, if options.quick { Extent::Quick } else { Extent::Full })?;
    for (name, section) in wanted {
        let begun = std::time::Instant::now();
        eprint!("{name} …");
        if let Err(error) = section(&mut bench) {
            bench.report.left_out(format!("section {name}"), error);
        }
        eprintln!(" {:.0} s", begun.elapsed().as_secs_f64());
    }
    let report = serde_json::to_string_pretty(&bench.report.json(aims))? + "\n";
    match &options.json {
        Some(path) => std::fs::write(path, report).map_err(|error| format!("{}: {error}", path.display()).into()),
        None => {
            print!("{report}");
            Ok(())
        }
    }
}

/// The sections of these names, in their own order; all of them if none is named.
fn wanted<'a>(sections: &[(&'a str, Section)], only: &[String]) -> Outcome<Vec<(&'a str, Section)>> {
    let names: Vec<&str> = sections.iter().map(|(name, _)| *name).collect();
    if let Some(unknown) = only.iter().find(|name| !names.contains(&name.as_str())) {
        return Err(format!("there is no section {unknown:?}; the sections are {}", names.join(", ")).into());
    }
    let chosen = |name: &str| only.is_empty() || only.iter().any(|wanted| wanted == name);
    Ok(sections.iter().filter(|(name, _)| chosen(name)).copied().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_are_chosen_by_name_and_an_unknown_name_is_an_error() {
        let chosen = |only: &[&str]| {
            let only: Vec<String> = only.iter().map(ToString::to_string).collect();
            let names = wanted(queue::SECTIONS, &only)?.into_iter().map(|(name, _)| name);
            Ok::<_, crate::failure::Failure>(names.collect::<Vec<_>>())
        };
        assert_eq!(chosen(&["idle", "late"]).unwrap(), ["late", "idle"]);
        assert_eq!(chosen(&[]).unwrap().len(), queue::SECTIONS.len());
        let error = chosen(&["late", "pair"]).unwrap_err().to_string();
        assert!(error.starts_with("there is no section \"pair\"; the sections are throughput, "), "{error}");
    }
}
