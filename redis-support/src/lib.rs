//! The one Redis brain: scripts, key layout, replies and errors that every Redis driver of tenure shares.
//!
//! A driver on a client library brings a [`RedisExecutor`], which sends scripts and tells honestly how far a request
//! got, and feeds a [`WakeLink`]. [`RedisLocks`] makes the driver traits of `tenure-core` out of it. Nothing here knows
//! a client library or a socket, and no driver knows a script or the name of a key.
//!
//! | module | what it alone knows |
//! |---|---|
//! | `scripts/*.lua`, `script` | what happens at the server, and the digests |
//! | `keyspace` | how keys and channels are spelled |
//! | `call` | which keys and arguments a script takes, in which order |
//! | `reply` | what a script's answer means |
//! | `error` | what a server's refusal means, and how to name it |
//! | `check` | what a server must be like before it is trusted |
//! | `queue` | the same for delay queues |

mod args;
mod call;
mod check;
mod error;
mod executor;
mod keyspace;
mod lock;
mod queue;
mod reentrant;
mod reply;
mod script;
mod settings;
mod wake;

pub use args::ArgList;
pub use check::Notes;
pub use error::ExecError;
pub use executor::{RedisExecutor, Reply, ScriptCall};
pub use keyspace::{ClientId, FenceScope, Keyspace, Prefix};
pub use lock::RedisLocks;
pub use script::{SCRIPTS, Script};
pub use settings::{Eviction, Fences, RedisSettings};
pub use wake::WakeLink;
