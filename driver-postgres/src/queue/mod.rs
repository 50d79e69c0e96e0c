//! Delay queues: rows of the tables `message`, `settled`, `queue` and `watcher`. What happens to them is in
//! `sql/queue.sql`; here requests become parameters, and rows become answers.

mod driver;
mod read;
mod write;

pub(crate) use driver::PostgresQueue;
