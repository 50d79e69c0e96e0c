//! Plain locks: one at a time, or several at once; and what every kind of lock can be asked for.

mod all;
mod held;
mod plain;

pub(crate) use crate::engine::ask::Options;
pub use all::{LockAll, LockAllGuard};
pub use held::HeldLocks;
pub use plain::{Detached, Lock, LockGuard};
pub(crate) use plain::{guard_methods, unless_lost};

/// The setters over [`Options`], for a type with a field `options`.
macro_rules! option_setters {
    () => {
        /// A lease of this length, renewed at a third of it for as long as the guard lives. Default: the client's ttl.
        ///
        /// When the process dies, the lock is free after at most `ttl`. Checked when the lock is asked for:
        /// [`Ttl::MIN`](crate::driver::Ttl::MIN) to [`Ttl::MAX`](crate::driver::Ttl::MAX), whole milliseconds, and the driver's range.
        #[must_use]
        pub fn ttl(mut self, ttl: std::time::Duration) -> Self {
            self.options.ttl = Some((ttl, $crate::engine::lease::Upkeep::Renewed));
            self
        }

        /// A lease of this length that is not renewed: it ends by itself.
        #[must_use]
        pub fn fixed_ttl(mut self, ttl: std::time::Duration) -> Self {
            self.options.ttl = Some((ttl, $crate::engine::lease::Upkeep::Fixed));
            self
        }

        /// The longest time to hold the lock, renewed or not; then it is lost
        /// ([`LostReason::MaxHold`](crate::LostReason::MaxHold)) and given back. Default: none.
        ///
        /// Without it, a task that hangs (or a guard that is forgotten) holds the lock as long as the process lives.
        #[must_use]
        pub fn max_hold(mut self, most: std::time::Duration) -> Self {
            self.options.max_hold = Some(most);
            self
        }

        /// A note for operators, visible to everybody who can inspect the lock; at most
        /// [`Label::MAX_LEN`](crate::Label::MAX_LEN) bytes. Default: none.
        #[must_use]
        pub fn label(mut self, label: impl Into<String>) -> Self {
            self.options.label = Some(label.into());
            self
        }
    };
}
pub(crate) use option_setters;
