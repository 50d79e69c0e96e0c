//! Client processes that take locks from real servers while clients, servers and connections are harmed, and a judge of
//! their logs. `src/bin/chaos.rs` runs it; `docs/chaos.md` lists the rules and their limits.
//!
//! | module | what |
//! |---|---|
//! | `options`, `profile` | what to run, and what differs between the backends |
//! | `client` | a client process, and its log of `event`s |
//! | `processes`, `servers`, `nemesis` | the processes, the servers, and what harms them: `fault`s |
//! | `judge` | the rules, over logs alone |
//! | `jobs` | the queue mode: what differs from that of locks |
//! | `run`, `report` | all of it, and what it came to |

mod client;
mod event;
mod fault;
mod jobs;
mod judge;
mod nemesis;
mod options;
mod processes;
mod profile;
mod report;
mod run;
mod servers;

pub use client::serve;
pub use fault::Data;
pub use options::{Harm, Options, Subject};
pub use report::Report;
pub use run::run;

/// The backends that it knows.
#[must_use]
pub fn backends() -> Vec<&'static str> {
    profile::Profile::ids()
}
