//! The one Redis brain: scripts, key layout, replies and errors that every Redis driver of tenure shares.
//!
//! A driver on a client library brings a [`Dialer`], which opens connections and sends commands on them, and tells
//! honestly how far a request got. [`RedisLocks`] makes the driver traits of `tenure-core` out of it. Nothing here knows
//! a client library, and no driver knows a script, the name of a key, or where a primary is.
//!
//! | module | what it alone knows |
//! |---|---|
//! | `scripts/*.lua`, `script` | what happens at the server, and the digests |
//! | `keyspace` | how keys and channels are spelled |
//! | `call` | which keys and arguments a script takes, in which order, and what its answer means |
//! | `error` | what a server's refusal means, and how to name it |
//! | `config`, `url` | how to reach servers, in code and as text |
//! | `link` | when a connection is to be replaced |
//! | `sentinel`, `cluster`, `slot` | which server a request goes to |
//! | `given` | what is to be checked of a connection that somebody else opened |
//! | `voting`, `nodes` | the servers of a quorum, of which some may be down |
//! | `check` | what a server must be like before it is trusted |
//! | `values` | which releases may be one command, and of which value |
//! | `queue` | the same for delay queues |

mod call;
mod census;
mod check;
mod cluster;
mod config;
mod damage;
mod doctor;
mod error;
mod given;
mod keyspace;
mod link;
mod lock;
mod nodes;
#[cfg(test)]
mod properties;
mod queue;
mod reentrant;
mod remote;
mod script;
mod seats;
mod sentinel;
mod settings;
mod slot;
mod url;
mod voting;

pub use check::Notes;
pub use config::{Address, Endpoint, Identity, Login, Protocol, RedisConfig, Tls, Topology};
pub use error::ExecError;
pub use keyspace::{ClientId, Keyspace};
pub use link::{Dialer, Heard, Listen, Socket, WakeLink};
pub use lock::RedisLocks;
pub use nodes::connect_nodes;
pub use remote::{Placement, RedisExecutor, Remote};
pub use script::{ArgList, Reply, Request, SCRIPTS, Script, ScriptCall};
pub use settings::{Eviction, FenceScope, Fences, Prefix, RedisSettings};
