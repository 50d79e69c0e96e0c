//! The driver type: connections, and the properties of the database.

use std::sync::Arc;

use tenure_core::driver::{Backend, ErrorExt as _};
use tenure_core::{LockName, Result};
use tokio_postgres::Row;

use crate::config::{Caps, PostgresConfig};
use crate::connection::{Connections, DRIVER, Parameter};
use crate::queue::PostgresQueue;
use crate::schema::{self, Installed};

/// A driver for locks and queues in a PostgreSQL database. A clone is the same client.
#[derive(Clone, Debug)]
pub struct PostgresDriver {
    pub(crate) connections: Arc<Connections>,
    pub(crate) installed: Installed,
}

impl PostgresDriver {
    /// Connects to the database of a URL, `postgres://user:password@host/database`; see [`PostgresConfig`].
    ///
    /// # Errors
    ///
    /// Those of [`PostgresConfig`] and of [`connect_with`](Self::connect_with).
    ///
    /// # Cancel safety
    ///
    /// Like [`connect_with`](Self::connect_with).
    pub async fn connect(url: &str) -> Result<Self> {
        Self::connect_with(url.parse()?).await
    }

    /// Connects, creates the schema if that is [configured](PostgresConfig::migrate), and checks that this release can
    /// work with it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Misconfigured`](tenure_core::ErrorKind::Misconfigured) when the database does not exist, the schema
    /// is missing or of another version, or the server is a standby; [`Denied`](tenure_core::ErrorKind::Denied) for a
    /// wrong password or a missing right; [`Unavailable`](tenure_core::ErrorKind::Unavailable) when the server cannot
    /// be reached.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes all connections that it opened. The schema is created as a whole, or not at all.
    pub async fn connect_with(config: PostgresConfig) -> Result<Self> {
        let connections = Connections::new(config);
        let client = connections.first().await?;
        if let Some(install) = connections.config().install {
            schema::install(&client, install).await?;
        }
        let installed = schema::look(&client).await?;
        drop(client);
        Ok(Self { connections: Arc::new(connections), installed })
    }

    pub(crate) fn caps(&self) -> Caps {
        self.connections.config().caps
    }

    /// What all fences are greater than.
    pub(crate) fn floor(&self) -> i64 {
        self.connections.config().fence_floor.get().cast_signed()
    }

    /// Runs one statement about a name.
    pub(crate) async fn ask(
        &self,
        operation: &'static str,
        name: &LockName,
        statement: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>> {
        let rows = self.connections.ask(name.as_bytes(), statement, parameters).await;
        rows.map_err(|error| error.during(DRIVER, operation, name))
    }
}

impl From<PostgresDriver> for Backend {
    fn from(driver: PostgresDriver) -> Self {
        let driver = Arc::new(driver);
        let queue = Arc::new(PostgresQueue::new(driver.connections.clone()));
        Self::new(driver.clone())
            .with_reentrant(driver.clone())
            .with_permits(driver.clone())
            .with_queue(queue.clone())
            .with_queue_admin(queue)
            .with_census(driver.clone())
            .with_doctor(driver)
    }
}
