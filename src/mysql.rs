//! The driver for locks and queues in a MySQL or MariaDB database. Feature `mysql`.

pub use tenure_mysql::{MysqlConfig, MysqlDriver, install_sql};
