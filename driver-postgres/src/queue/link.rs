//! What the queues need of the connections.

use std::fmt::Debug;

use async_trait::async_trait;
use tenure_core::driver::QueueRouter;
use tenure_core::queue::QueueName;
use tenure_core::{FenceFloor, Result};
use tokio_postgres::Row;

use crate::connection::Connections;
pub(super) use crate::connection::Parameter;

/// Requests and wake-ups of one client.
#[async_trait]
pub(crate) trait QueueLink: Debug + Send + Sync + 'static {
    /// Runs one statement about a queue as a transaction of its own. Requests of one queue may overtake each other.
    ///
    /// # Errors
    ///
    /// As drivers report them: what was certainly not applied, and what may have been.
    async fn ask(&self, queue: Option<&QueueName>, statement: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>>;

    /// Returns once notifications to this client arrive at the [router](Self::router). After every gap it wakes all watchers.
    ///
    /// # Errors
    ///
    /// Those of connecting.
    async fn listen(&self) -> Result<()>;

    /// By which number notifications find this client.
    fn client(&self) -> i64;

    /// Where a notification `q QUEUE` (hexadecimal) goes.
    fn router(&self) -> &QueueRouter;

    /// The most dead letters of a queue.
    fn max_dead_letters(&self) -> u64;

    /// What fences of deliveries are greater than.
    fn fence_floor(&self) -> FenceFloor;
}

/// The connections of the driver, which locks use as well.
#[async_trait]
impl QueueLink for Connections {
    async fn ask(&self, queue: Option<&QueueName>, statement: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>> {
        Connections::ask(self, queue.map_or(&[], QueueName::as_bytes), statement, parameters).await
    }

    async fn listen(&self) -> Result<()> {
        Connections::listen(self).await
    }

    fn client(&self) -> i64 {
        self.ear.id()
    }

    fn router(&self) -> &QueueRouter {
        self.ear.queues()
    }

    fn max_dead_letters(&self) -> u64 {
        self.config().caps.max_dead_letters
    }

    fn fence_floor(&self) -> FenceFloor {
        self.config().fence_floor
    }
}
