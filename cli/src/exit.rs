//! With what the program ends: exit codes, and failures that carry one.

use std::fmt;

use tenure::{Error, ErrorKind};

/// Wrong usage: nothing was done.
pub(crate) const USAGE: u8 = 64;
/// The message will never be handled.
pub(crate) const DATA: u8 = 65;
/// The backend cannot be reached or cannot serve.
pub(crate) const UNAVAILABLE: u8 = 69;
/// A fault of this program.
pub(crate) const SOFTWARE: u8 = 70;
/// A result could not be written.
pub(crate) const IO: u8 = 74;
/// Another client has the lock: nothing was run.
pub(crate) const BUSY: u8 = 75;
/// The backend refuses this user.
pub(crate) const DENIED: u8 = 77;
/// The URL or the server's configuration is wrong.
pub(crate) const CONFIG: u8 = 78;
/// The lock was lost while the program ran.
pub(crate) const LOST: u8 = 79;
/// The program is there and cannot be run.
pub(crate) const CANNOT_RUN: u8 = 126;
/// There is no such program.
pub(crate) const NOT_FOUND: u8 = 127;

/// What a shell calls the death by a signal.
pub(crate) fn by_signal(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}

/// Why the program ends without having done its task.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: u8,
    pub(crate) text: String,
}

impl Failure {
    pub(crate) fn new(exit: u8, text: impl Into<String>) -> Self {
        Self { exit, text: text.into() }
    }

    pub(crate) fn system(error: &std::io::Error) -> Self {
        Self::new(UNAVAILABLE, format!("a system call failed: {error}"))
    }

    /// A result that could not be written. A pipe that was closed ends this program as SIGPIPE would, and without a word.
    pub(crate) fn unwritten(place: &str, error: &std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => Self::new(by_signal(13), ""),
            _ => Self::new(IO, format!("the result cannot be written to {place}: {error}")),
        }
    }

    /// What this program was built without, and the Cargo features that bring it.
    pub(crate) fn left_out(what: &str, features: &str) -> Self {
        let text = format!(
            "this program was built without {what}; install one that has them: cargo install --locked --path cli --features {features}"
        );
        Self::new(CONFIG, text)
    }

    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self::new(USAGE, text)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let exit = match error.kind() {
            ErrorKind::TimedOut | ErrorKind::LimitReached => BUSY,
            ErrorKind::Lost | ErrorKind::NotHeld => LOST,
            ErrorKind::Unsupported | ErrorKind::InvalidArgument => USAGE,
            ErrorKind::Misconfigured => CONFIG,
            ErrorKind::Denied => DENIED,
            _ => UNAVAILABLE,
        };
        Self::new(exit, format!("{error:#}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_errors_have_the_exit_codes_of_the_page() {
        for (kind, exit) in [
            (ErrorKind::TimedOut, 75),
            (ErrorKind::Lost, 79),
            (ErrorKind::Unavailable, 69),
            (ErrorKind::Indeterminate, 69),
            (ErrorKind::Denied, 77),
            (ErrorKind::Misconfigured, 78),
            (ErrorKind::InvalidArgument, 64),
        ] {
            assert_eq!(Failure::from(Error::new(kind, "text")).exit, exit, "{kind}");
        }
        assert_eq!((by_signal(9), by_signal(15)), (137, 143));
    }
}
