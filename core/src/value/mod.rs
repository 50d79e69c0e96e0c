//! Values: what drivers, the engine and users speak of. They know of nothing above them.

pub(crate) mod clock;
pub(crate) mod error;
pub(crate) mod queue;
pub(crate) mod token;
pub(crate) mod ttl;
