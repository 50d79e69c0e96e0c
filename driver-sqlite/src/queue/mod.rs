//! Delay queues: rows of the tables `message`, `settled`, `queue` and `watcher`.

mod driver;
mod message;
mod rows;
mod turn;
