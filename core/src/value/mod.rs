//! Values: what drivers, the engine and users speak of. They know of nothing above them.

pub(crate) mod error;
pub(crate) mod queue;
pub(crate) mod time;
pub(crate) mod token;
