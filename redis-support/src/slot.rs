//! Slots of a cluster: which one a key is in, and which node serves it.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use crc16::{State, XMODEM};

use crate::config::Address;
use crate::error::ExecError;
use crate::executor::Reply;

/// How many slots a cluster has.
const SLOTS: u16 = 16_384;

/// All of them.
pub(crate) const ALL: RangeInclusive<u16> = 0..=SLOTS - 1;

/// The slot of a key: of what its first braces hold, if they hold anything, else of the whole.
pub(crate) fn of(key: &[u8]) -> u16 {
    let tag = key.iter().position(|&byte| byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        let length = rest.iter().position(|&byte| byte == b'}')?;
        (length > 0).then(|| &rest[..length])
    });
    State::<XMODEM>::calculate(tag.unwrap_or(key)) % SLOTS // the sum that the specification of clusters names
}

/// Which node serves which slots.
#[derive(Clone, Debug, Default)]
pub(crate) struct SlotMap {
    ranges: Vec<(u16, u16, Address)>,
    /// Slots that a node said have moved since.
    moved: HashMap<u16, Address>,
}

impl SlotMap {
    /// Reads the answer to `CLUSTER SLOTS` of the node at `asked`.
    pub(crate) fn read(reply: &Reply, asked: &Address) -> Result<Self, ExecError> {
        let bad = || ExecError::Protocol { message: "the cluster's map of slots has an unexpected form".into() };
        let Reply::Array(items) = reply else { return Err(bad()) };
        let range = |item: &Reply| -> Option<(u16, u16, Address)> {
            let Reply::Array(parts) = item else { return None };
            let [Reply::Int(from), Reply::Int(to), Reply::Array(primary), ..] = parts.as_slice() else { return None };
            let [host, Reply::Int(port), ..] = primary.as_slice() else { return None };
            let host = match host {
                Reply::Bytes(bytes) => std::str::from_utf8(bytes).ok()?,
                _ => "", // unknown to the node itself
            };
            let node = node(host, u16::try_from(*port).ok()?, asked)?;
            let (from, to) = (u16::try_from(*from).ok()?, u16::try_from(*to).ok()?);
            (from <= to && to < SLOTS).then_some((from, to, node))
        };
        let ranges = items.iter().map(range).collect::<Option<Vec<_>>>().ok_or_else(bad)?;
        if ranges.is_empty() {
            return Err(ExecError::NotSent { message: "the cluster serves no slots".into(), source: None });
        }
        Ok(Self { ranges, moved: HashMap::new() })
    }

    /// Who serves `slot`.
    pub(crate) fn node(&self, slot: u16) -> Option<&Address> {
        let range = || self.ranges.iter().find(|(from, to, _)| (*from..=*to).contains(&slot));
        self.moved.get(&slot).or_else(|| range().map(|(_, _, node)| node))
    }

    /// Notes that `slot` is served by `node` now.
    pub(crate) fn moved(&mut self, slot: u16, node: Address) {
        self.moved.insert(slot, node);
    }

    /// For every node that serves slots, some of those.
    pub(crate) fn homes(&self) -> Vec<(&Address, RangeInclusive<u16>)> {
        let mut all: Vec<(&Address, RangeInclusive<u16>)> = Vec::new();
        for (from, to, node) in &self.ranges {
            if !all.iter().any(|(known, _)| *known == node) {
                all.push((node, *from..=*to));
            }
        }
        all
    }

    /// Every node that serves slots, once.
    pub(crate) fn nodes(&self) -> Vec<Address> {
        let mut all: Vec<Address> = Vec::new();
        for node in self.ranges.iter().map(|(_, _, node)| node).chain(self.moved.values()) {
            if !all.contains(node) {
                all.push(node.clone());
            }
        }
        all
    }
}

/// The slot and the node of a redirection, `<slot> <host>:<port>`, by the node at `asked`.
pub(crate) fn redirection(message: &str, asked: &Address) -> Option<(u16, Address)> {
    let (slot, place) = message.trim().split_once(' ')?;
    let (host, port) = place.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let slot = slot.parse().ok().filter(|slot| *slot < SLOTS)?;
    let port = port.parse().ok().filter(|port| *port > 0)?;
    Some((slot, node(host, port, asked)?))
}

/// A node that does not know its own name is where it was asked. `None` for what is no name of a host.
fn node(host: &str, port: u16, asked: &Address) -> Option<Address> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:%".contains(&byte);
    match (asked, host) {
        (Address::Tcp { host: known, .. }, "" | "?") => Some(Address::tcp(known, port)),
        _ => (!host.is_empty() && host.bytes().all(fits)).then(|| Address::tcp(host, port)),
    }
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

    #[test]
    fn a_map_is_read() {
        let bytes = |text: &str| Reply::Bytes(text.as_bytes().to_vec());
        let node = |host, port| Reply::Array(vec![bytes(host), Reply::Int(port), bytes("id")]);
        let range = |from, to, primary| Reply::Array(vec![Reply::Int(from), Reply::Int(to), primary]);
        let reply = Reply::Array(vec![range(0, 99, node("a", 1)), range(100, 16383, node("", 2))]);
        let mut map = SlotMap::read(&reply, &Address::tcp("seed", 9)).unwrap();
        assert_eq!(map.node(99), Some(&Address::tcp("a", 1)));
        assert_eq!(map.node(100), Some(&Address::tcp("seed", 2)));
        assert_eq!(map.homes(), [(&Address::tcp("a", 1), 0..=99), (&Address::tcp("seed", 2), 100..=16383)]);
        map.moved(100, Address::tcp("b", 3));
        assert_eq!(map.node(100), Some(&Address::tcp("b", 3)));
        assert_eq!(map.nodes().len(), 3);
        assert!(SlotMap::read(&Reply::Nil, &Address::tcp("seed", 9)).is_err());
        assert!(SlotMap::read(&Reply::Array(vec![]), &Address::tcp("seed", 9)).is_err());
        // A key would be looked for that lies in the slots, for ever.
        for (from, to) in [(9, 8), (16384, 16384), (0, 16384)] {
            let reply = Reply::Array(vec![range(from, to, node("a", 1))]);
            assert!(SlotMap::read(&reply, &Address::tcp("seed", 9)).is_err(), "{from} {to}");
        }
    }

    #[test]
    fn a_redirection_is_read() {
        let asked = Address::tcp("h", 1);
        assert_eq!(redirection("3999 127.0.0.1:6381", &asked), Some((3999, Address::tcp("127.0.0.1", 6381))));
        assert_eq!(redirection("3999 :6381", &asked), Some((3999, Address::tcp("h", 6381))));
        assert_eq!(redirection("3999 ::1:6381", &asked), Some((3999, Address::tcp("::1", 6381))));
        for text in ["x", "16384 h:1", "1 h:0", "1 a\nb:1", "1 a b:1", "1 :1:"] {
            assert_eq!(redirection(text, &asked), None, "{text}");
        }
    }
}
