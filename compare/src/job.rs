//! The jobs of a worker process, one line of JSON each. Peers in other languages read the same lines.

use serde::{Deserialize, Serialize};

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
    /// The size of a payload in bytes; 0 for `worker::PAYLOAD`.
    pub(crate) bytes: usize,
    /// How many threads the runtime has; 0 for one that runs on the thread that waits for it.
    pub(crate) threads: usize,
}

/// One acquisition, in nanoseconds of the machine's monotonic clock: who, asked, got, gave back, with which fence
/// (0 without one).
pub(crate) type Event = (usize, u64, u64, u64, u64);
