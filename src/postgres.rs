//! The driver for locks and queues in a PostgreSQL database. Feature `postgres`.

pub use tenure_postgres::{Install, PostgresConfig, PostgresDriver, install_sql};
