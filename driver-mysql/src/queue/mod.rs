//! Delay queues: turns requests into statements, and rows into answers.

mod driver;
mod read;
mod write;

pub(crate) use driver::MysqlQueue;
