//! A delay queue at a backend and in memory.

mod draw;
mod memory;
mod script;
mod side;

pub use draw::{Draw, Op, Target, UNIT, delay, keyed, lease};
pub use memory::{DEAD_LETTERS, InMemory, lock};
pub use script::{Move, Source, Wrong};
pub use side::{Side, apply, difference};
