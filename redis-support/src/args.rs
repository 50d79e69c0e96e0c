//! Lists of byte strings in one allocation.

use std::fmt::{self, Write};

/// Keys or arguments of a command: byte strings, side by side in one buffer.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ArgList {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl ArgList {
    /// An empty list with room for `count` short strings.
    #[must_use]
    pub fn with_capacity(count: usize) -> Self {
        Self { bytes: Vec::with_capacity(count * 24), ends: Vec::with_capacity(count) }
    }

    /// Adds a string of bytes.
    pub fn push(&mut self, arg: impl AsRef<[u8]>) {
        self.bytes.extend_from_slice(arg.as_ref());
        self.ends.push(self.bytes.len());
    }

    /// Adds what `build` writes, as one string.
    pub(crate) fn push_with(&mut self, build: impl FnOnce(&mut Vec<u8>)) {
        build(&mut self.bytes);
        self.ends.push(self.bytes.len());
    }

    /// Adds a number, in decimal.
    pub fn push_number(&mut self, number: u64) {
        let mut text = Decimal(&mut self.bytes);
        let _ = write!(text, "{number}"); // writing to memory does not fail
        self.ends.push(self.bytes.len());
    }

    /// How many strings there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The strings, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        (0..self.ends.len()).map(|i| {
            let start = if i == 0 { 0 } else { self.ends[i - 1] };
            &self.bytes[start..self.ends[i]]
        })
    }
}

impl fmt::Debug for ArgList {
    /// How many, not which: arguments hold the secrets of leases.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ArgList({} strings)", self.len())
    }
}

struct Decimal<'a>(&'a mut Vec<u8>);

impl Write for Decimal<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_strings_apart() {
        let mut list = ArgList::with_capacity(4);
        list.push("a");
        list.push("");
        list.push_number(1042);
        list.push_with(|bytes| bytes.extend_from_slice(b"\0\xff"));
        let all: Vec<&[u8]> = list.iter().collect();
        assert_eq!(all, [b"a".as_slice(), b"", b"1042", b"\0\xff"]);
        assert_eq!(format!("{list:?}"), "ArgList(4 strings)");
    }
}
