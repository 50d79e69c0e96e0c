//! What operators do with locks and servers.

mod ask;
mod bench;
mod conformance;
mod doctor;
mod force;
mod inspect;
mod ls;
mod ping;
mod schema;
mod watch;

pub(crate) use ask::{Consent, consent};
pub(crate) use bench::{Bench, bench};
pub(crate) use conformance::{Conformance, conformance};
pub(crate) use doctor::{Doctor, doctor};
pub(crate) use force::{ForceRelease, force_release};
pub(crate) use inspect::{Inspect, inspect};
pub(crate) use ls::{Ls, ls};
pub(crate) use ping::{Ping, ping};
pub(crate) use schema::{Schema, schema};
pub(crate) use watch::{Watch, watch};
