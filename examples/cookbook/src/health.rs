//! A health check.

use tenure::{Client, ErrorKind};

/// What an orchestrator is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// The backend answers.
    Good,
    /// The backend is away: nothing is wrong with this process, and to restart it would lose its place in queues.
    Waiting,
    /// Somebody has to mend something: credentials, an eviction policy.
    Broken,
}

/// Asks the backend, with one request (on a quorum one to each node), within the client's `op_timeout`.
pub async fn health(client: &Client) -> Health {
    match client.ping().await.map_err(|error| error.kind()) {
        Ok(()) => Health::Good,
        Err(ErrorKind::Unavailable | ErrorKind::Indeterminate) => Health::Waiting,
        Err(_) => Health::Broken,
    }
}
