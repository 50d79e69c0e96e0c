//! What the engine reports, with the feature `tracing`. Without it, nothing is compiled in.
//!
//! | name | kind | level | fields | when |
//! |---|---|---|---|---|
//! | `tenure.acquire` | span | debug | `driver`, `name` | around every acquisition |
//! | `tenure.granted` | event | debug | `name`, `fence`, `waited_ms` | a wait ended with the lock |
//! | `tenure.lost` | event | warn | `name`, `fence`, `reason` | a lease ended before its release |
//! | `tenure.renewal_failed` | event | warn | `name`, `error` | a renewal was not confirmed; it is retried |
//! | `tenure.wait_disturbed` | event | warn | `name`, `error` | the backend failed during a wait; it goes on |
//! | `tenure.waits_for_own_client` | event | warn | `name`, `waited_ms` | a wait has outlasted its ttl, and for at least the second half of it one and the same hold of this client was in the way: perhaps the waiter's own, and then it waits for ever. Once for each wait |
//! | `tenure.cleanup_retried` | event | debug | `name`, `error` | an undoing was not acknowledged; it is retried |
//! | `tenure.cleanup_given_up` | event | warn | `name`, `error` | an undoing cannot matter any more, unacknowledged |
//! | `tenure.node_unfit` | event | warn | `node`, `error` | redlock: a node refuses its votes for a reason that a person has to remove, and the others make up for it. Once, until it votes again |
//! | `tenure.push` | span | debug | `driver`, `queue`, `count` | around every push |
//! | `tenure.received` | event | debug | `queue`, `count` | a request brought messages |
//! | `tenure.healed` | event | warn | `queue`, `expired`, `dead`, `postponed`, `orphans` | a request found leases that had ended, or messages that are delivered no more |
//! | `tenure.settled` | event | debug | `queue`, `id`, `attempt`, `how`, `answer` | a settlement was answered |
//! | `tenure.dead_letter` | event | warn | `queue`, `id`, `attempt`, `reason` | a settlement moved a message to the dead letters, or left it waiting for a place there |
//! | `tenure.occurrence_passed_over` | event | warn | `queue`, `id`, `attempt`, `how` | an occurrence of a recurring message is not handled: it was missed, has no attempts left, or is not understood |
//! | `tenure.delivery_lost` | event | warn | `queue`, `id`, `attempt` | a lease ended before its message was settled |
//! | `tenure.queue_disturbed` | event | warn | `queue`, `error` | a request for messages or of settlements failed; who waits goes on waiting |
//! | `tenure.queue_unwatched` | event | warn | `queue`, `error` | there are no wake-ups; the queue is asked every two seconds until there are |
//! | `tenure.worker_started` | event | debug | `queue`, `concurrency` | a worker begins |
//! | `tenure.worker_refused` | event | error | `queue`, `error` | a worker stops, since the queue refuses it for good |
//! | `tenure.worker_stopped` | event | debug | `queue`, `handled`, `retried`, `dead`, `put_off`, `parked`, `returned`, `stale`, `unconfirmed`, `failed` | a worker has ended |
//!
//! No field holds an owner token, a credential or a payload.

#[cfg(not(feature = "tracing"))]
mod disabled;
#[cfg(feature = "tracing")]
mod enabled;

#[cfg(not(feature = "tracing"))]
pub(crate) use disabled::*;
#[cfg(feature = "tracing")]
pub(crate) use enabled::*;
