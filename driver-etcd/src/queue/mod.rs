//! Delay queues: messages ordered by time, moved by transactions.
//!
//! These are the keys in etcd, with prefix `shop` and the queue `jobs`. Times are microseconds since 1970; times and
//! numbers are written in sixteen hexadecimal digits:
//!
//! | key | what |
//! |---|---|
//! | `shop:queue/of/jobs/w/<due>/<number>` | a waiting message |
//! | `shop:queue/of/jobs/h/<due>/<number>` | a message that is due, and held back by its concurrency key |
//! | `shop:queue/of/jobs/l/<end>/<number>` | a message in flight, until the end of its lease |
//! | `shop:queue/of/jobs/d/<died>/<number>` | a dead letter |
//! | `shop:queue/of/jobs/p/<number>` | which of these four places the message is in |
//! | `shop:queue/of/jobs/b/<number>` | its payload, written once |
//! | `shop:queue/of/jobs/f/<key>` | a message of the concurrency key is in flight |
//! | `shop:queue/of/jobs/k/<key>/<due>/<number>` | a message that the concurrency key holds back |
//! | `shop:queue/of/jobs/n/<id>` | the number of a message with a caller's id, or until when the id stays known |
//! | `shop:queue/of/jobs/s/<until>/<id>` | an id, and when to forget it |
//! | `shop:queue/of/jobs/paused` | the queue is paused |
//! | `shop:queue/of/jobs/limits` | the limits of the queue |
//! | `shop:queue/of/jobs/bucket` | when the bucket of its rate is full again |
//! | `shop:queue/name/<hexadecimal>` | the queue exists |
//! | `shop:queue/wake/jobs` | the new due time, when a message becomes due sooner; the remaining messages, when a client takes some |
//! | `shop:queue/wake/jobs/<place>` | a waiting client, on a lease |
//!
//! Every move is a transaction that fails if the message has moved since it was read. So a message is in one place; the
//! clients' clocks decide *when* it moves, and cannot make it move twice.

mod batch;
mod clock;
mod dead;
mod delivered;
mod driver;
mod entry;
mod keyed;
mod keys;
mod limits;
mod line;
mod list;
#[cfg(test)]
mod model;
mod operate;
#[cfg(test)]
mod properties;
mod push;
mod receive;
mod record;
mod repair;
mod settle;
mod signals;
#[cfg(test)]
mod test_support;
mod turn;
mod waiting;

pub(crate) use clock::Clock;
pub(crate) use delivered::{Delivered, HeldLooks};
pub(crate) use keys::QueueSpace;
pub(crate) use signals::Signals;
