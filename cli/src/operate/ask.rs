//! Asks the user before a command takes away something that others are working with.

use std::io::{IsTerminal as _, stdin};
use std::time::Duration;

use crate::exit::Failure;
use crate::messages::{flush, say};

/// The user's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Consent {
    Given,
    Refused,
}

/// Asks on the terminal, unless the command line has answered already.
///
/// # Errors
///
/// Where there is no terminal to ask on.
pub(crate) fn consent(yes: bool, question: &str) -> Result<Consent, Failure> {
    if yes {
        return Ok(Consent::Given);
    }
    if !stdin().is_terminal() {
        return Err(Failure::usage(format!("{question} There is no terminal for the answer: use --yes")));
    }
    say(format!("tenure: {question} [y/N] "));
    flush(Duration::from_secs(1));
    let mut answer = String::new();
    let read = stdin().read_line(&mut answer);
    let given = read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes");
    Ok(if given { Consent::Given } else { Consent::Refused })
}
