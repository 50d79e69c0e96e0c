//! `tenure run`: a program under a lock.

mod acquire;
mod command;
mod result;
mod target;

pub(crate) use acquire::{describe, describe_holder};
pub(crate) use command::{Run, run};
