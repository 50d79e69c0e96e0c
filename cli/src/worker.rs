//! This program as a client in another process, which the suite kills, stops and wakes.

use std::process::ExitCode;

use crate::backend::Backend;
use crate::exit::{self, Failure};

/// The first argument that makes this program a worker.
pub(crate) const COMMAND: &str = "__worker";

/// Serves the suite's protocol on standard input and output, on the backend of the variable.
pub(crate) fn serve() -> ExitCode {
    let served = async {
        let backend = Backend::of(None)?;
        let backend = tenure::connect_backend(backend.url()).await?;
        tenure_conformance::worker::serve(backend).await.map_err(|error| Failure::system(&error))
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime.map_err(|error| Failure::system(&error)).and_then(|runtime| runtime.block_on(served)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("tenure: {failure}");
            ExitCode::from(failure.exit.max(exit::USAGE))
        }
    }
}
