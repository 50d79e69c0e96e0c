//! Lists of byte strings in one allocation.

use std::fmt::{self, Write};

/// Keys or arguments of a command: byte strings, side by side in one buffer.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ArgList {
    /// Each string behind its length.
    bytes: Vec<u8>,
    count: usize,
}

/// What the length of a string is kept in.
const LENGTH: usize = size_of::<u32>();

impl ArgList {
    /// An empty list with room for `count` short strings.
    #[must_use]
    pub fn with_capacity(count: usize) -> Self {
        Self { bytes: Vec::with_capacity(count * (LENGTH + 44)), count: 0 }
    }

    /// Adds a string of bytes.
    pub fn push(&mut self, arg: impl AsRef<[u8]>) {
        self.push_with(|bytes| bytes.extend_from_slice(arg.as_ref()));
    }

    /// Adds what `build` writes, as one string.
    ///
    /// # Panics
    ///
    /// When it is longer than 4 GiB, eight times of what Redis takes.
    pub(crate) fn push_with(&mut self, build: impl FnOnce(&mut Vec<u8>)) {
        let head = self.bytes.len();
        self.bytes.extend_from_slice(&[0; LENGTH]);
        build(&mut self.bytes);
        let length = self.bytes.len() - head - LENGTH;
        let length = u32::try_from(length).expect("no string is that long");
        self.bytes[head..head + LENGTH].copy_from_slice(&length.to_ne_bytes());
        self.count += 1;
    }

    /// Adds a number, in decimal.
    pub fn push_number(&mut self, number: u64) {
        self.push_format(format_args!("{number}"));
    }

    /// Adds a formatted text, as one string.
    pub(crate) fn push_format(&mut self, text: fmt::Arguments<'_>) {
        self.push_with(|bytes| {
            let _ = Text(bytes).write_fmt(text); // writing to memory does not fail
        });
    }

    /// How many strings there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How many bytes they are together.
    #[must_use]
    pub fn total(&self) -> usize {
        self.bytes.len() - LENGTH * self.count
    }

    /// The strings, in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = self.bytes.as_slice();
        std::iter::from_fn(move || {
            let (length, behind) = rest.split_first_chunk::<LENGTH>()?;
            let (one, more) = behind.split_at(u32::from_ne_bytes(*length) as usize);
            rest = more;
            Some(one)
        })
    }
}

impl fmt::Debug for ArgList {
    /// How many, not which: arguments hold the secrets of leases.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ArgList({} strings)", self.len())
    }
}

struct Text<'a>(&'a mut Vec<u8>);

impl Write for Text<'_> {
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
        assert_eq!((list.len(), list.total()), (4, 7));
        assert_eq!(format!("{list:?}"), "ArgList(4 strings)");
    }
}
