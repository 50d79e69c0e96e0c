//! Quorums: of memory stores on a paused clock, and of servers.

mod live;
mod memory;

pub use live::RedlockMaker;
pub use memory::RedlockMemoryMaker;
