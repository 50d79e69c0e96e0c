//! Delay queues: rows of the tables `message`, `settled`, `queue` and `watcher`. `sql/queue.sql` contains the
//! operations on them; this module turns requests into parameters, and rows into answers.

mod driver;
mod read;
mod write;

pub(crate) use driver::PostgresQueue;
