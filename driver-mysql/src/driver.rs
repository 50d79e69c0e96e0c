//! The driver type: connections, and the properties of the database.

use std::sync::Arc;
use std::time::Duration;

use mysql_async::{Row, Value};
use tenure_core::driver::{Backend, ErrorExt as _};
use tenure_core::{LockName, Result};
use tokio::time::timeout;

use crate::config::{Caps, MysqlConfig};
use crate::connection::{Connections, DRIVER};
use crate::dial::Dialler;
use crate::queue::MysqlQueue;
use crate::schema;

/// A driver for locks and queues in a MySQL or MariaDB database. A clone is the same client.
#[derive(Clone, Debug)]
pub struct MysqlDriver {
    pub(crate) connections: Arc<Connections>,
}

impl MysqlDriver {
    /// Connects to the database of a URL, `mysql://user:password@host/database`; see [`MysqlConfig`].
    ///
    /// # Errors
    ///
    /// Those of [`MysqlConfig`] and of [`connect_with`](Self::connect_with).
    ///
    /// # Cancel safety
    ///
    /// Like [`connect_with`](Self::connect_with).
    pub async fn connect(url: &str) -> Result<Self> {
        Self::connect_with(url.parse()?).await
    }

    /// Connects, creates tables and procedures if that is [configured](MysqlConfig::migrate), and checks that this
    /// release can work with them.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Misconfigured`](tenure_core::ErrorKind::Misconfigured) when the database does not exist, tables and
    /// procedures are missing or of another version, the server is read-only, or its certificate is not trusted;
    /// [`Denied`](tenure_core::ErrorKind::Denied) for a wrong password or a missing right;
    /// [`Unavailable`](tenure_core::ErrorKind::Unavailable) when the server cannot be reached.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes all connections that it opened. The next client that [migrates](MysqlConfig::migrate)
    /// completes a partial installation: MySQL creates tables outside of transactions.
    pub async fn connect_with(config: MysqlConfig) -> Result<Self> {
        let dialler = Dialler::new(config)?;
        let (mut conn, config) = (dialler.dial().await?, &dialler.config);
        if config.migrate {
            schema::install(&mut conn).await.map_err(|error| error.at(config.place()))?;
        }
        schema::look(&mut conn).await.map_err(|error| error.at(config.place()))?;
        let _ = timeout(Duration::from_secs(1), conn.disconnect()).await;
        Ok(Self { connections: Arc::new(Connections::new(dialler)) })
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
        statement: &'static str,
        parameters: Vec<Value>,
    ) -> Result<Vec<Row>> {
        let rows = self.connections.ask(name.as_bytes(), statement, parameters).await;
        rows.map_err(|error| error.during(DRIVER, operation, name))
    }
}

impl From<MysqlDriver> for Backend {
    fn from(driver: MysqlDriver) -> Self {
        let driver = Arc::new(driver);
        let queue = Arc::new(MysqlQueue::new(driver.connections.clone()));
        Self::new(driver.clone())
            .with_reentrant(driver.clone())
            .with_permits(driver.clone())
            .with_queue(queue.clone())
            .with_queue_admin(queue)
            .with_census(driver.clone())
            .with_doctor(driver)
    }
}
