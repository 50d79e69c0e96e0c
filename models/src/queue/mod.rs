//! A delay queue at a backend and in memory.

mod draw;
mod memory;
mod op;
mod side;

pub use draw::{Draw, Source};
pub use memory::InMemory;
pub use op::{Move, Op, Target, UNIT, Wrong, delay, keyed, lease, lock};
pub use side::{Side, apply, apply_fully, difference};
