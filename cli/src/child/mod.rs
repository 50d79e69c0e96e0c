//! Programs that run under a lease, of a lock or of a message: how they are started, signalled and ended.

mod children;
mod family;
pub(crate) mod launcher;
mod signals;
mod start;
mod supervise;
mod terminal;
mod watchdog;

pub(crate) use children::{Attendance, ChildEnd, Children, kill_everything};
pub(crate) use family::{Kin, has_job_control};
pub(crate) use signals::{Heard, Signals, name as signal_name};
pub(crate) use start::Prepared;
pub(crate) use supervise::{Lease, OnExit, Order, Orders, Report, Supervised, Supervisor};
pub(crate) use terminal::Terminal;
pub(crate) use watchdog::Watchdog;
