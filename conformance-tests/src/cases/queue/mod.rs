//! Cases of delay queues, one theme a file.

mod batch;
mod dead;
mod engine;
mod ids;
mod keys;
mod lease;
mod locked;
mod model;
mod operate;
mod parked;
mod refusal;
mod server;
mod support;
mod time;
mod turns;
mod wake;
mod worker;

pub(super) use batch::CASES as BATCH;
pub(super) use dead::CASES as DEAD;
pub(super) use engine::CASES as ENGINE;
pub(super) use ids::CASES as IDS;
pub(super) use keys::CASES as KEYS;
pub(super) use lease::CASES as LEASE;
pub(super) use locked::CASES as LOCKED;
pub(super) use model::CASES as MODEL;
pub(super) use operate::CASES as OPERATE;
pub(super) use parked::CASES as PARKED;
pub(super) use refusal::CASES as REFUSAL;
pub(super) use server::CASES as SERVER;
pub(super) use time::CASES as TIME;
pub(super) use turns::CASES as TURNS;
pub(super) use wake::CASES as WAKE;
pub(super) use worker::CASES as WORKER;
