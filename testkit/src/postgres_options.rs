//! How a PostgreSQL server is to be started.

use std::path::PathBuf;
use std::sync::Arc;

use crate::certificates::Certificates;

/// Options of a [`PostgresServer`](crate::PostgresServer); by default no passwords, data in memory where there is plenty, and
/// the server's own settings but for its memory and its connections.
#[derive(Clone, Debug, Default)]
pub struct PostgresOptions {
    pub(crate) folder: Option<PathBuf>,
    pub(crate) on_disk: bool,
    pub(crate) movable_clock: bool,
    pub(crate) password: Option<String>,
    pub(crate) tls: Option<Arc<Certificates>>,
    pub(crate) settings: Vec<(String, String)>,
}

impl PostgresOptions {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts the programs of this folder, in place of the newest in `/usr/lib/postgresql` (or what `TENURE_POSTGRES_BIN`
    /// names).
    #[must_use]
    pub fn programs(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = Some(folder.into());
        self
    }

    /// Keeps the data on the disk, whose flushes the server waits for: for measurements.
    #[must_use]
    pub fn on_disk(mut self) -> Self {
        self.on_disk = true;
        self
    }

    /// Requires passwords (SCRAM) on the TCP port; this one of the user `postgres`. The unix socket stays open to all.
    #[must_use]
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.password = Some(password.into());
        self
    }

    /// Speaks only TLS on the TCP port. Clients need no certificate. The unix socket stays as it is.
    #[must_use]
    pub fn tls(mut self, certificates: Arc<Certificates>) -> Self {
        self.tls = Some(certificates);
        self
    }

    /// Lets [`set_clock_offset`](crate::PostgresServer::set_clock_offset) move the server's wall clock.
    #[must_use]
    pub fn movable_clock(mut self) -> Self {
        self.movable_clock = true;
        self
    }

    /// One more setting, as in `postgresql.conf`: `setting("synchronous_commit", "off")`.
    #[must_use]
    pub fn setting(mut self, name: &str, value: impl Into<String>) -> Self {
        self.settings.push((name.to_owned(), value.into()));
        self
    }
}
