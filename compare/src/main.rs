//! `compare`: measures tenure beside other lock and queue libraries, in interleaved rounds on one machine.
//!
//! Called by `cargo xtask compare`, which also prints the tables. The measuring is done in child processes of this same
//! program (`compare worker`), so that every Rust subject runs in the same kind of process; Python and Node peers speak
//! the same protocol of JSON lines.

mod job;
mod measure;
mod run;
mod worker;

use std::process::ExitCode;

/// Whatever went wrong.
type Failure = Box<dyn std::error::Error + Send + Sync>;
type Outcome<T = ()> = Result<T, Failure>;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match args.first().map(String::as_str) {
        Some("worker") => worker::serve(),
        Some("locks" | "queue") => run::run(&args),
        _ => Err("usage: compare locks|queue [--quick] [--only <section>] [--json <file>]".into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("compare: {error}");
            ExitCode::FAILURE
        }
    }
}
