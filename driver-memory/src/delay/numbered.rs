//! A map by message numbers, which the store assigns in sequence.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

pub(super) type Numbered<T> = HashMap<u64, T, BuildHasherDefault<InOrder>>;

/// Keeps neighbours together: messages are mostly used in the order of their numbers.
#[derive(Debug, Default)]
pub(super) struct InOrder(u64);

impl Hasher for InOrder {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(self.0 << 8 | u64::from(*byte)));
    }

    /// The lower bits choose the place, the upper ones distinguish the numbers that share it.
    fn write_u64(&mut self, number: u64) {
        self.0 = number ^ number << 57;
    }
}
