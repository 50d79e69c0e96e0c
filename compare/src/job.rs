//! The lines of JSON between the conducting process and its workers. Peers in other languages read and write the same lines.

use std::io::{BufRead, Write};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Any error: this program prints it, or leaves the subject out.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

pub(crate) type Outcome<T = ()> = Result<T, Failure>;

/// What every message carries, in bytes, unless the job says otherwise.
pub(crate) const PAYLOAD: usize = 100;

/// One piece of work. A field that a piece does not need keeps its default.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Job {
    /// `pair`, `contend`, …: see `worker::run`.
    pub(crate) what: String,
    /// Whose code does it.
    pub(crate) subject: String,
    /// Where the servers listen on loopback.
    pub(crate) ports: Vec<u16>,
    /// A folder of the comparison, for subjects that use files.
    pub(crate) path: String,
    /// Locks or queues begin with this.
    pub(crate) name: String,
    /// How many tasks do it at once.
    pub(crate) workers: usize,
    /// For how long, in milliseconds.
    pub(crate) millis: u64,
    /// How many of them.
    pub(crate) count: usize,
    /// How many at a time.
    pub(crate) batch: usize,
    /// The size of a payload in bytes; 0 for `PAYLOAD`.
    pub(crate) bytes: usize,
    /// How many threads the runtime has; 0 for one that runs on the thread that waits for it.
    pub(crate) threads: usize,
}

impl Job {
    /// The size of each payload in bytes.
    pub(crate) fn payload(&self) -> usize {
        if self.bytes == 0 { PAYLOAD } else { self.bytes }
    }
}

/// One acquisition, in nanoseconds of the machine's monotonic clock: waiter, asked, got, gave back, and the fence (0 without
/// one).
pub(crate) type Event = (usize, u64, u64, u64, u64);

/// Says that the job is prepared, and waits for the word.
pub(crate) fn gate() -> Outcome {
    say(&json!({ "ready": true }))?;
    match read_line()?.as_deref() {
        Some("go") => Ok(()),
        other => Err(format!("expected go, got {other:?}").into()),
    }
}

pub(crate) fn read_line() -> Outcome<Option<String>> {
    let mut line = String::new();
    let length = std::io::stdin().lock().read_line(&mut line)?;
    Ok((length > 0).then(|| line.trim().to_owned()))
}

pub(crate) fn say(value: &Value) -> Outcome {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{value}")?;
    Ok(out.flush()?)
}
