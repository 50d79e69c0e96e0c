//! `tenure run`: a program under a lock.

mod acquire;
mod command;
mod family;
pub(crate) mod launcher;
mod result;
mod signals;
mod start;
mod supervise;
mod terminal;
mod watchdog;

pub(crate) use command::{Run, run};
