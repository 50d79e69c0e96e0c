//! Delay queues: messages ordered by time, moved by transactions.
//!
//! What stands in etcd, with prefix `shop` and the queue `jobs`; times are microseconds since 1970 and numbers are too,
//! both in sixteen hexadecimal digits:
//!
//! | key | what |
//! |---|---|
//! | `shop:queue/of/jobs/w/<due>/<number>` | a message that waits |
//! | `shop:queue/of/jobs/h/<due>/<number>` | a message that is due, and held back by its concurrency key |
//! | `shop:queue/of/jobs/l/<end>/<number>` | a message in flight, until the end of its lease |
//! | `shop:queue/of/jobs/d/<died>/<number>` | a dead letter |
//! | `shop:queue/of/jobs/p/<number>` | in which of these four places the message is |
//! | `shop:queue/of/jobs/b/<number>` | its payload, written once |
//! | `shop:queue/of/jobs/f/<key>` | that a message of the concurrency key is in flight |
//! | `shop:queue/of/jobs/k/<key>/<due>/<number>` | which messages the concurrency key holds back |
//! | `shop:queue/of/jobs/n/<id>` | the number of a message with a caller's id, or until when the id stays known |
//! | `shop:queue/of/jobs/s/<until>/<id>` | which ids are to be forgotten when |
//! | `shop:queue/of/jobs/paused` | that it is paused |
//! | `shop:queue/of/jobs/limits` | how much it hands out |
//! | `shop:queue/of/jobs/bucket` | when the bucket of its rate is full again |
//! | `shop:queue/name/<hexadecimal>` | that there is such a queue |
//! | `shop:queue/wake/jobs` | written whenever something becomes due sooner: when it will be; and what is left by whoever takes something |
//! | `shop:queue/wake/jobs/<place>` | that a client waits, on a lease |
//!
//! Every move is a transaction that fails if the message has moved since it was read, so a message is in one place, and
//! the clocks of clients decide *when* it moves, never whether it moves twice.

mod apart;
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
#[cfg(test)]
mod scene;
mod settle;
mod signals;
mod stand;
mod turn;

pub(crate) use clock::Clock;
pub(crate) use delivered::{Delivered, HeldLooks};
pub(crate) use keys::QueueSpace;
pub(crate) use signals::Signals;
