//! Plain locks: one at a time, or several at once.

mod all;
mod guard;
mod handle;
mod options;

pub use all::{LockAll, LockAllGuard};
pub use guard::{Detached, LockGuard};
pub(crate) use guard::{guard_methods, unless_lost};
pub use handle::Lock;
pub(crate) use options::{Options, option_setters};
