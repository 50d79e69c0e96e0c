//! Results, on standard output. A result that cannot be written is an error; a reader that has closed the pipe ends the work.

use std::io::{self, Write};
use std::time::Duration;

use anstyle::AnsiColor;
use serde::Serialize;

use crate::exit::Failure;
use crate::messages::flush;
use crate::printer::{ERROR, Format, Printer, WARNING};

/// How long a result waits for the messages before it.
const A_MOMENT: Duration = Duration::from_millis(100);

impl Printer {
    /// Prints a line of a result.
    pub(crate) fn print(self, line: &str) -> Result<(), Failure> {
        flush(A_MOMENT);
        written(writeln!(anstream::stdout(), "{line}"))
    }

    /// Prints bytes as they are.
    pub(crate) fn bytes(self, bytes: &[u8]) -> Result<(), Failure> {
        flush(A_MOMENT);
        written(io::stdout().write_all(bytes))
    }

    /// Prints a line of a result that begins with a word of `doctor`.
    pub(crate) fn print_coloured(self, word: &str, line: &str) -> Result<(), Failure> {
        let style = match word {
            "fine" => AnsiColor::Green.on_default(),
            "note" => WARNING,
            _ => ERROR,
        };
        written(writeln!(anstream::stdout(), "{style}{word:<8}{style:#}{line}"))
    }

    /// Prints a result for programs, in one line.
    pub(crate) fn json(self, value: &impl Serialize) -> Result<(), Failure> {
        written(serde_json::to_string(value).map_err(io::Error::from).and_then(|text| writeln!(io::stdout(), "{text}")))
    }

    /// Prints why the command failed, for programs too if they are asked for, and returns its exit code.
    pub(crate) fn fail(self, failure: &Failure) -> u8 {
        if failure.text.is_empty() {
            return failure.exit;
        }
        self.fail_for_programs(failure.exit, &failure.text);
        self.error(&failure.text);
        failure.exit
    }

    /// Prints a failure as a result, if results are for programs.
    pub(crate) fn fail_for_programs(self, exit: u8, text: &str) {
        if self.format == Format::Json {
            // Where it cannot be written, the exit code and standard error are left.
            let _ = self.json(&FailureView { error: ErrorView { exit, text } });
        }
    }
}

/// A failure, for programs.
#[derive(Debug, Serialize)]
struct FailureView<'a> {
    error: ErrorView<'a>,
}

#[derive(Debug, Serialize)]
struct ErrorView<'a> {
    exit: u8,
    text: &'a str,
}

/// Whether a result is written, up to its last byte.
pub(crate) fn written(result: io::Result<()>) -> Result<(), Failure> {
    result.and_then(|()| io::stdout().flush()).map_err(|error| Failure::unwritten("standard output", &error))
}
