//! The driver for locks between the processes of one machine, in an SQLite file. Feature `sqlite`.

pub use tenure_sqlite::{SqliteConfig, SqliteDriver};
