//! Waiting for a condition, with a deadline instead of a guess.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

/// How long [`eventually`] and the start of a server wait: long enough for a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Asks `condition` every 5 ms until it yields a value.
///
/// # Errors
///
/// [`io::ErrorKind::TimedOut`], naming `what`, when it did not within [`PATIENCE`].
pub fn eventually<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> io::Result<T> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = condition() {
            return Ok(value);
        }
        if Instant::now() >= deadline {
            return Err(io::Error::new(io::ErrorKind::TimedOut, format!("{what}: not within {PATIENCE:?}")));
        }
        thread::sleep(Duration::from_millis(5));
    }
}
