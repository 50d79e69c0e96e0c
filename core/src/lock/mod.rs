//! Plain locks: one at a time, or several at once.

mod all;
mod guard;
mod handle;
mod options;

pub use all::{LockAll, MultiGuard};
pub(crate) use guard::guard_methods;
pub use guard::{Detached, LockGuard};
pub use handle::Lock;
pub(crate) use options::{Options, option_setters};

use crate::value::error::Result;

/// What became of work that was done under a lock: its output, unless the release finds that the lock had been lost. One that
/// fails otherwise goes on in the background.
pub(crate) fn unless_lost<R, T>(released: Result<R>, output: T) -> Result<T> {
    match released {
        Err(error) if error.is_lost() => Err(error),
        Ok(_) | Err(_) => Ok(output),
    }
}
