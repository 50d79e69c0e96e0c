//! The side that conducts: servers, processes, rounds in random order, and the report.

mod aims;
mod beanstalkd;
mod bench;
mod child;
mod language;
mod locks;
mod proxy;
mod queue;
mod redis;
mod report;

use std::path::PathBuf;

use crate::Outcome;
use bench::{Bench, Extent};

/// Runs one comparison and writes its report as JSON.
pub(crate) fn run(args: &[String]) -> Outcome {
    let (mut extent, mut json, mut only) = (Extent::Full, None, Vec::new());
    let mut rest = args[1..].iter();
    while let Some(arg) = rest.next() {
        let mut value = || rest.next().ok_or_else(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--quick" => extent = Extent::Quick,
            "--json" => json = Some(PathBuf::from(value()?)),
            "--only" => only.push(value()?.clone()),
            other => return Err(format!("there is no option {other:?}").into()),
        }
    }
    let (sections, aims) = match args[0].as_str() {
        "locks" => (locks::SECTIONS, aims::LOCKS),
        _ => (queue::SECTIONS, aims::QUEUE),
    };
    let mut bench = Bench::new(&args[0], extent)?;
    for (name, section) in sections {
        if !only.is_empty() && !only.iter().any(|wanted| wanted == name) {
            continue;
        }
        let begun = std::time::Instant::now();
        eprint!("{name} …");
        if let Err(error) = section(&mut bench) {
            bench.report.left_out(format!("section {name}"), error);
        }
        eprintln!(" {:.0} s", begun.elapsed().as_secs_f64());
    }
    let report = serde_json::to_string_pretty(&bench.report.json(aims))? + "\n";
    match json {
        Some(path) => std::fs::write(&path, report).map_err(|error| format!("{}: {error}", path.display()).into()),
        None => {
            print!("{report}");
            Ok(())
        }
    }
}
