//! The driver for locks within one process, with hooks to rehearse bad days. Feature `memory`.

pub use tenure_memory::{Faults, MemoryDriver, MemoryDriverBuilder, Operation, Residue, Wakeups};
