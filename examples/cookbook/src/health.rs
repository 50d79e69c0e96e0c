//! A health check.

use tenure::{Client, ErrorKind};

/// The answer to an orchestrator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// The backend answers.
    Good,
    /// The backend does not answer. The process itself is healthy, and would
    /// lose its place in queues by a restart.
    Waiting,
    /// A person has to act: credentials, an eviction policy.
    Broken,
}

/// Sends the backend one request (on a quorum one to each node), within the
/// client's `op_timeout`.
pub async fn health(client: &Client) -> Health {
    match client.ping().await.map_err(|error| error.kind()) {
        Ok(()) => Health::Good,
        Err(ErrorKind::Unavailable | ErrorKind::Indeterminate) => {
            Health::Waiting
        }
        Err(_) => Health::Broken,
    }
}
