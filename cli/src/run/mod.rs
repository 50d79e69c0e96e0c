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

pub(crate) use acquire::describe;
pub(crate) use command::{Run, run};
pub(crate) use signals::{Signals, name as signal_name};
pub(crate) use start::Prepared;
pub(crate) use supervise::ChildEnd;
pub(crate) use watchdog::{Act, Watchdog};
