//! Delay queues: rows of the tables `message`, `settled`, `queue` and `watcher`.

mod deliver;
mod driver;
mod message;
mod operate;
mod settle;
mod state;
