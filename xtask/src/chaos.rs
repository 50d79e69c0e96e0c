//! Processes over servers that are harmed, and a judge: the program `chaos` of the package `tenure-backends`.

use crate::backends;
use crate::command::{self, Outcome};

/// Passes everything on.
pub(crate) fn run(args: &[String]) -> Outcome {
    command::run(backends::cargo_of("run", "chaos").arg("--").args(args))
}
