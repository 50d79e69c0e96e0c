//! The cases, one theme a file.

mod bursts;
mod cancel;
mod census;
mod election;
mod entries;
mod errors;
mod exclusion;
mod fencing;
mod fifo;
mod hygiene;
mod idempotence;
mod inspection;
mod lease;
mod least;
mod limits;
mod loss;
mod meta;
mod permits;
#[cfg(unix)]
mod process;
mod queue;
mod reentry;
mod refusal;
mod relay;
mod release;
mod runtimes;
mod rw;
mod server;
mod several;
mod support;
mod vanished;
mod waiting;
mod window;

use crate::case::Case;

/// All cases.
pub fn all() -> impl Iterator<Item = &'static Case> {
    let themes: &'static [&'static [Case]] = &[
        bursts::CASES,
        cancel::CASES,
        census::CASES,
        election::CASES,
        entries::CASES,
        errors::CASES,
        exclusion::CASES,
        fencing::CASES,
        fifo::CASES,
        hygiene::CASES,
        idempotence::CASES,
        inspection::CASES,
        lease::CASES,
        least::CASES,
        limits::CASES,
        loss::CASES,
        meta::CASES,
        permits::CAPACITY,
        permits::CHANGE,
        permits::LEASE,
        permits::LINE,
        permits::OPERATE,
        permits::REPEAT,
        permits::ROOM,
        #[cfg(unix)]
        process::CASES,
        queue::BATCH,
        queue::DEAD,
        queue::ENGINE,
        queue::IDS,
        queue::KEYS,
        queue::LEASE,
        queue::LIMITED,
        queue::LIST,
        queue::LOCKED,
        queue::MODEL,
        queue::OCCURRENCE,
        queue::OPERATE,
        queue::PUSH,
        queue::RECUR,
        queue::RECURRING,
        queue::REFUSAL,
        queue::REPLACE,
        queue::SERVER,
        queue::TIME,
        queue::TRANSACTIONS,
        queue::TTL,
        queue::TURNS,
        queue::WAKE,
        queue::WORKER,
        queue::PARKED,
        reentry::CASES,
        refusal::CASES,
        relay::CASES,
        release::CASES,
        runtimes::CASES,
        rw::CHANGE,
        rw::SHARED,
        rw::TURNS,
        rw::UPGRADE,
        server::CASES,
        several::CASES,
        vanished::CASES,
        waiting::CASES,
        window::CASES,
    ];
    themes.iter().copied().flatten()
}
