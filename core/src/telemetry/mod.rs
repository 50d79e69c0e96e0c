//! What the engine reports, with the feature `tracing`. Without it, nothing is compiled in.
//!
//! | name | kind | level | fields | when |
//! |---|---|---|---|---|
//! | `tenure.acquire` | span | debug | `driver`, `name` | around every acquisition |
//! | `tenure.granted` | event | debug | `name`, `fence`, `waited_ms` | a wait ended with the lock |
//! | `tenure.lost` | event | warn | `name`, `fence`, `reason` | a lease ended before its release |
//! | `tenure.renewal_failed` | event | warn | `name`, `error` | a renewal was not confirmed; it is retried |
//! | `tenure.wait_disturbed` | event | warn | `name`, `error` | the backend failed during a wait; it goes on |
//! | `tenure.cleanup_retried` | event | debug | `name`, `error` | an undoing was not acknowledged; it is retried |
//! | `tenure.cleanup_given_up` | event | warn | `name`, `error` | an undoing cannot matter any more, unacknowledged |
//!
//! No field holds an owner token or a credential.

#[cfg(not(feature = "tracing"))]
mod disabled;
#[cfg(feature = "tracing")]
mod enabled;

#[cfg(not(feature = "tracing"))]
pub(crate) use disabled::*;
#[cfg(feature = "tracing")]
pub(crate) use enabled::*;
