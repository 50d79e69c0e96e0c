//! The assignment of servers to the nodes of a quorum: no server is two nodes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tenure_core::{Error, ErrorKind, Result};

/// The seats of one quorum that have been taken: run ids of servers, and the names of the nodes that they are.
#[derive(Debug, Default)]
pub(crate) struct Seats(Mutex<HashMap<String, String>>);

/// The seat of one node.
#[derive(Debug)]
pub(crate) struct Seat {
    all: Arc<Seats>,
    node: String,
}

impl Seat {
    pub(crate) fn new(all: Arc<Seats>, node: String) -> Self {
        Self { all, node }
    }

    /// Takes the seat for the server with this run id, unless it has another one. May be called again.
    pub(crate) fn take(&self, run_id: &str) -> Result<()> {
        let mut all = self.all.0.lock().unwrap_or_else(PoisonError::into_inner);
        let sits_at = all.entry(run_id.to_owned()).or_insert_with(|| self.node.clone());
        if *sits_at == self.node {
            return Ok(());
        }
        let text = format!("{} and {sits_at} are the same server, and no server votes twice", self.node);
        Err(Error::new(ErrorKind::Misconfigured, text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_has_one_seat() {
        let all = Arc::new(Seats::default());
        let [one, other] = ["a:1", "b:1"].map(|node| Seat::new(Arc::clone(&all), node.into()));
        one.take("x").unwrap();
        one.take("x").unwrap();
        let error = other.take("x").unwrap_err();
        assert!(error.kind() == ErrorKind::Misconfigured, "{error}");
        assert!(error.message().contains("a:1") && error.message().contains("b:1"), "{error}");
        other.take("y").unwrap();
    }
}
