//! The tests of this driver: against servers that each test starts.

mod common;
mod defaults;
mod given;
mod interop;
mod nested;
mod reconnected;
