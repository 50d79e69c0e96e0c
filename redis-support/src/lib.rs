//! The common base of tenure's Redis drivers: scripts, key layout, replies and errors.
//!
//! A driver on a client library provides a [`Dialer`], which opens connections, sends commands on them, and reports
//! exactly how far a request got. [`Driver`] implements the driver traits of `tenure-core` on top of it. This crate uses
//! no client library, and no dialer knows a script, the name of a key, or the address of a primary.
//!
//! | module | what it alone knows |
//! |---|---|
//! | `scripts/*.lua`, `script` | the operations at the server, and the digests |
//! | `keyspace` | the spelling of keys and channels |
//! | `call` | the keys and arguments of each script, in their order, and the meaning of its answer |
//! | `error` | the meaning of a server's refusal, and its name in errors |
//! | `config`, `url` | how to reach servers, in code and as text |
//! | `connect` | how to connect, also on a connection that the caller opened |
//! | `servers`, `sentinel`, `cluster`, `slot` | the server that a request goes to |
//! | `link` | when to replace a connection |
//! | `lock`, `reentrant`, `voting` | the requests of locks, and which releases may be one command |
//! | `permit` | the requests of semaphores and read-write locks |
//! | `queue` | the requests of delay queues |
//! | `nodes`, `seats` | the servers of a quorum, of which some may be down |
//! | `check`, `doctor`, `census` | the check of a server before its first use, its health, and its held locks |

mod call;
mod census;
mod check;
mod cluster;
mod config;
mod connect;
mod damage;
mod doctor;
mod error;
mod keyspace;
mod link;
mod lock;
mod nodes;
mod permit;
#[cfg(test)]
mod properties;
mod queue;
mod reentrant;
mod script;
mod seats;
mod sentinel;
mod servers;
mod settings;
mod slot;
mod url;
mod voting;

pub use check::Notes;
pub use config::{Address, Endpoint, Identity, Login, Protocol, RedisConfig, Tls, Topology};
pub use error::ExecError;
pub use link::{Dialer, Heard, Listen, Socket};
pub use lock::Driver;
pub use script::{Reply, Request, scripts};
pub use settings::{Eviction, Fences, Prefix, RedisSettings};
