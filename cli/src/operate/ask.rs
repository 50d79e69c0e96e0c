//! Nothing that others are at work with is taken away before somebody has agreed.

use std::io::{IsTerminal as _, Write as _, stdin};

use crate::exit::Failure;

/// What somebody said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Consent {
    Given,
    Refused,
}

/// Asks on the terminal, unless the command line has answered already.
///
/// # Errors
///
/// Where there is nobody to ask.
pub(crate) fn consent(yes: bool, question: &str) -> Result<Consent, Failure> {
    if yes {
        return Ok(Consent::Given);
    }
    if !stdin().is_terminal() {
        return Err(Failure::usage(format!("{question} There is no terminal to ask on: say --yes")));
    }
    eprint!("tenure: {question} [y/N] ");
    let _ = std::io::stderr().flush();
    let mut answer = String::new();
    let read = stdin().read_line(&mut answer);
    let given = read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes");
    Ok(if given { Consent::Given } else { Consent::Refused })
}
