//! `tenure run`: a program under a lock.

mod acquire;
mod command;
mod result;

pub(crate) use acquire::describe;
pub(crate) use command::{Run, run};
