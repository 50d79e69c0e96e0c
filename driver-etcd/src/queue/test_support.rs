//! Shared helpers of the unit tests of queues.

use etcd_client::{Txn, TxnOp};
use tenure_core::queue::QueueName;

use super::clock::Micros;
use super::turn::Turn;

pub(super) const SECOND: Micros = 1_000_000;

/// The queue that they work on.
pub(super) fn queue() -> QueueName {
    QueueName::new("jobs").unwrap()
}

impl Turn<'_> {
    /// Writes past the driver, as a foreign hand does.
    pub(super) async fn write(&self, operations: impl IntoIterator<Item = TxnOp>) {
        self.inner.txn(Txn::new().and_then(Vec::from_iter(operations))).await.unwrap();
    }
}
