//! `tenure run`: a program under a lock.

mod acquire;
mod command;
mod describe;
mod result;
mod target;

pub(crate) use command::{Run, run};
pub(crate) use describe::{describe, describe_holder};
