//! Queues of the engine over drivers in memory with something wrong on their way: one program, as for the locks.

mod extensions;
mod lists;
mod outages;
mod panics;
mod parking;
mod push;
mod receivers;
mod recurring;
mod stage;
mod task;
mod turns;
mod worker;
