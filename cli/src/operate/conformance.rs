//! `tenure conformance`: the published suite, on the backend of a URL.

#[cfg(feature = "conformance")]
mod suite;

use crate::backend::Backend;
use crate::exit::Failure;
use crate::printer::Printer;

/// What `--help` says below the options.
const AFTER_HELP: &str = "\
The suite writes thousands of locks and messages, and keeps the server busy for
minutes: use a server for the suite alone, or a separate prefix in the URL.
Exit codes: 0 all passed, 1 something failed or nothing ran, 69 not reached.";

/// Run the conformance suite, which writes, on this backend
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
#[cfg_attr(not(feature = "conformance"), allow(dead_code, reason = "read by the suite only"))]
pub(crate) struct Conformance {
    /// Run cases with this in their names only (may be repeated)
    #[arg(long = "filter", value_name = "TEXT")]
    filters: Vec<String>,
    /// Print the cases for this backend, and run nothing
    #[arg(long)]
    list: bool,
    /// How many cases run at a time
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u16).range(1..=64))]
    jobs: u16,
}

/// Runs the suite.
#[cfg(feature = "conformance")]
pub(crate) async fn conformance(command: &Conformance, backend: &Backend, printer: Printer) -> Result<u8, Failure> {
    let order = if command.list { suite::Order::List } else { suite::Order::Run(command.jobs.into()) };
    suite::run(&command.filters, order, backend, printer).await
}

/// Says that the suite is not in this program.
#[cfg(not(feature = "conformance"))]
pub(crate) async fn conformance(_: &Conformance, _: &Backend, _: Printer) -> Result<u8, Failure> {
    let text = "the suite is not in this program; build it with the Cargo feature \"conformance\"";
    Err(Failure::usage(text))
}
