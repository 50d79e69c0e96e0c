//! The slots of a cluster: computes the slot of a key.

use std::ops::RangeInclusive;

use crc16::{State, XMODEM};

/// How many slots a cluster has.
pub(crate) const COUNT: u16 = 16_384;

/// All of them.
pub(crate) const ALL: RangeInclusive<u16> = 0..=COUNT - 1;

/// The slot of a key: of what its first braces hold, if they hold anything, else of the whole.
pub(crate) fn of(key: &[u8]) -> u16 {
    let tag = key.iter().position(|&byte| byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        let length = rest.iter().position(|&byte| byte == b'}')?;
        (length > 0).then(|| &rest[..length])
    });
    State::<XMODEM>::calculate(tag.unwrap_or(key)) % COUNT // the sum that the specification of clusters names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(of(b"123456789"), 0x31C3);
        assert_eq!(of(b"foo"), 12182);
        assert_eq!(of(b"{user1000}.following"), of(b"{user1000}.followers"));
        assert_eq!(of(b"foo{}{bar}"), 8_363);
        assert_eq!(of(b"foo{{bar}}zap"), 4_015);
        assert_eq!(of(b"tenure:orders/42"), of(b"{tenure:orders/42}:q"));
    }
}
