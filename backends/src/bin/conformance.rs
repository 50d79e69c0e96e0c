//! Runs the conformance suite on the workspace's own backends. `cargo xtask conformance` calls it.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use tenure_backends::{capabilities_page, cases_page, connect, ids, makers};
use tenure_conformance::{HarnessMaker, Options, Progress, all_cases, check_filters, list, run_all};

/// Runs the conformance suite on the workspace's own backends.
#[derive(clap::Parser)]
struct Arguments {
    /// Print the backends and the cases, and run nothing
    #[arg(long)]
    list: bool,
    /// Print a generated page: cases, capabilities, ids, backends or left-out
    #[arg(long, value_name = "NAME")]
    page: Option<String>,
    /// Serve the suite's worker protocol for the backend at this URL
    #[arg(long, value_name = "URL")]
    worker: Option<String>,
    /// A backend (may be repeated; default: all)
    #[arg(long = "backend", value_name = "ID")]
    backends: Vec<String>,
    /// A part of the ids of cases (may be repeated; default: all)
    #[arg(long = "filter", value_name = "TEXT")]
    filters: Vec<String>,
    /// Where the report of one backend is written
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Where a report of each backend is written
    #[arg(long, value_name = "FOLDER")]
    json_dir: Option<PathBuf>,
}

fn main() -> ExitCode {
    let arguments = <Arguments as clap::Parser>::parse();
    if let Some(url) = arguments.worker {
        return worker(&url);
    }
    match arguments.page.as_deref() {
        Some("cases") => print!("{}", cases_page()),
        Some("capabilities") => print!("{}", capabilities_page()),
        Some("ids") => print!("{}", ids()),
        Some("backends") => {
            makers().iter().filter(|maker| left_out(maker).is_none()).for_each(|maker| println!("{}", maker.id()))
        }
        Some("left-out") => makers().iter().filter_map(left_out).for_each(|line| println!("{line}")),
        Some(other) => return fail(&format!("there is no page \"{other}\"")),
        None if arguments.list => print_list(),
        None => return run(&arguments),
    }
    ExitCode::SUCCESS
}

/// A line about a backend on a server of another version that is not there. Any other backend has to run.
fn left_out(maker: &Arc<dyn HarnessMaker>) -> Option<String> {
    let missing = maker.configured().err().filter(|_| maker.id().contains('@'))?;
    Some(format!("{:<28}LEFT OUT: {missing}", maker.id()))
}

fn fail(why: &str) -> ExitCode {
    eprintln!("error: {why}");
    ExitCode::FAILURE
}

fn print_list() {
    println!("backends:");
    for maker in makers() {
        let state =
            maker.configured().map_or_else(|missing| format!(" (cannot run here: {missing})"), |()| String::new());
        let count = list(&*maker, &[]).len();
        println!("  {}: {count} cases{state}", maker.id());
    }
    println!("cases:");
    for case in all_cases() {
        println!("  {}: {} [{}]", case.id, case.proves, case.properties.join(" "));
    }
}

fn run(arguments: &Arguments) -> ExitCode {
    let all = makers();
    if let Err(why) = check_filters(arguments.filters.iter().map(String::as_str)) {
        return fail(&why);
    }
    for id in &arguments.backends {
        if !all.iter().any(|maker| maker.id() == id) {
            let known: Vec<&str> = all.iter().map(|maker| maker.id()).collect();
            return fail(&format!("there is no backend \"{id}\"; there are {}", known.join(", ")));
        }
    }
    let chosen: Vec<_> = all
        .into_iter()
        .filter(|maker| arguments.backends.is_empty() || arguments.backends.iter().any(|id| id == maker.id()))
        .collect();
    if arguments.json.is_some() && chosen.len() != 1 {
        return fail("--json is for one --backend; --json-dir takes a report for each");
    }
    let (mut passed, mut failed) = (0, 0);
    let mut all_green = true;
    for maker in chosen {
        let report = run_one(arguments, &maker);
        println!("\n{report}");
        passed += report.passed + report.refused;
        failed += report.failed;
        all_green &= report.is_green();
        let named = arguments
            .json_dir
            .as_ref()
            .map(|folder| folder.join(format!("{}.json", maker.id().replace(['/', '@'], "-"))));
        for file in arguments.json.iter().chain(&named) {
            if let Err(error) = std::fs::write(file, report.to_json()) {
                return fail(&format!("cannot write {}: {error}", file.display()));
            }
        }
    }
    println!("{passed} passed, {failed} failed");
    if all_green { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run_one(arguments: &Arguments, maker: &Arc<dyn HarnessMaker>) -> tenure_conformance::Report {
    let mut options = Options { only: arguments.filters.clone(), ..Options::default() };
    if options.required.iter().any(|required| required == "all") || arguments.backends.iter().any(|id| id == maker.id())
    {
        options.required.push(maker.id().to_owned());
    }
    options.progress = Some(Progress::new(|case, report| {
        eprintln!("  {:?} {} ({} ms)", report.outcome, case.id, report.ms);
    }));
    run_all(maker, &options)
}

/// Serves the suite's worker protocol for the backend at `url`.
fn worker(url: &str) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let served = runtime.map_err(|error| format!("{error:#}")).and_then(|runtime| {
        runtime.block_on(async {
            let backend = connect(url).await.map_err(|error| format!("{error:#}"))?;
            tenure_conformance::worker::serve(backend).await.map_err(|error| format!("{error:#}"))
        })
    });
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => fail(&why),
    }
}
