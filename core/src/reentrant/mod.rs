//! Re-entrant locks: the same owner may enter again.

mod guard;
mod handle;

pub use guard::ReentrantGuard;
pub use handle::Reentrant;
