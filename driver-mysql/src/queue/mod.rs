//! Delay queues: requests to statements, rows to answers.

mod driver;
mod read;
mod write;

pub(crate) use driver::MysqlQueue;
