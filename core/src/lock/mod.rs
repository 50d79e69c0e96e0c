//! Plain locks: one at a time, or several at once.

mod all;
mod free;
mod guard;
mod options;
mod plain;

pub use all::{LockAll, MultiGuard};
pub(crate) use guard::guard_methods;
pub use guard::{Detached, LockGuard};
pub(crate) use options::{Options, option_setters};
pub use plain::Lock;
