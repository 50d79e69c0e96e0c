//! The driver type: a file, and the thread that owns it.

use std::sync::Arc;

use tenure_core::driver::{Backend, ErrorExt as _};
use tenure_core::{LockName, Result};

use crate::config::{Caps, SqliteConfig};
use crate::decide::{LockRule, decide};
use crate::error::Done;
use crate::worker::Worker;

/// What errors and spans call it.
pub(crate) const DRIVER: &str = "sqlite";

/// A driver for locks in an SQLite file, for the processes of one machine. A clone is the same client.
#[derive(Clone, Debug)]
pub struct SqliteDriver {
    worker: Arc<Worker>,
    pub(crate) config: Arc<SqliteConfig>,
}

impl SqliteDriver {
    /// Opens the file of a URL: `sqlite:PATH`, or `sqlite:` for the [user's](SqliteConfig::of_user).
    ///
    /// # Errors
    ///
    /// Those of [`SqliteConfig`] and of [`connect_with`](Self::connect_with).
    ///
    /// # Cancel safety
    ///
    /// Like [`connect_with`](Self::connect_with).
    pub async fn connect(url: &str) -> Result<Self> {
        Self::connect_with(url.parse()?).await
    }

    /// Opens the file, and creates it if it is missing.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Misconfigured`](tenure_core::ErrorKind::Misconfigured) when the folder is missing or on a network
    /// file system, or when the file cannot be written, belongs to another program or was written by a newer release;
    /// [`Damaged`](tenure_core::ErrorKind::Damaged) when the file is not a database or a damaged one;
    /// [`Denied`](tenure_core::ErrorKind::Denied) when a right is missing;
    /// [`Unavailable`](tenure_core::ErrorKind::Unavailable) when the disk is full or another program locks the file.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the file.
    pub async fn connect_with(config: SqliteConfig) -> Result<Self> {
        let worker = Worker::start(config.clone()).await?;
        Ok(Self { worker: Arc::new(worker), config: Arc::new(config) })
    }

    pub(crate) fn caps(&self) -> Caps {
        self.config.caps
    }

    pub(crate) fn worker(&self) -> &Worker {
        &self.worker
    }

    /// Does one request about a name in a transaction.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        operation: &'static str,
        name: &LockName,
        decision: impl FnOnce(&mut LockRule<'_, '_>) -> Done<T> + Send + 'static,
    ) -> Result<T> {
        let same = name.clone();
        let answer = self.worker.ask(move |turn| decide(turn, &same, decision)).await;
        answer.map_err(|error| error.during(DRIVER, operation, name))
    }
}

impl From<SqliteDriver> for Backend {
    fn from(driver: SqliteDriver) -> Self {
        let driver = Arc::new(driver);
        let backend = Self::new(driver.clone()).with_reentrant(driver.clone()).with_permits(driver.clone());
        backend
            .with_queue(driver.clone())
            .with_queue_admin(driver.clone())
            .with_census(driver.clone())
            .with_doctor(driver)
    }
}
