//! Runs client processes over real servers that are harmed, and judges them. `cargo xtask chaos` calls it; with
//! `--client` it is one of those processes.

use std::process::ExitCode;

use tenure_backends::chaos::{self, Options};
use tenure_conformance::BoxError;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let outcome = runtime.map_err(BoxError::from).and_then(|runtime| match words.split_first() {
        Some((first, orders)) if first == "--client" => runtime.block_on(chaos::serve(orders)).map(|()| true),
        Some((first, _)) if first == "--list" => {
            chaos::backends().iter().for_each(|id| println!("{id}"));
            Ok(true)
        }
        _ => runtime.block_on(judged(&words)),
    });
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether the judge found nothing.
async fn judged(words: &[String]) -> Result<bool, BoxError> {
    let options = Options::parse(std::env::current_exe()?, words)?;
    let report = chaos::run(&options).await?;
    print!("{report}");
    Ok(report.is_clean())
}
