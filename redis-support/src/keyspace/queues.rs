//! The keys of delay queues.

use std::ops::Range;

use tenure_core::queue::QueueName;

use super::{Keyspace, encode};
use crate::script::ArgList;
use crate::slot;

/// How many groups of queues there are in a cluster.
const GROUPS: u16 = 256;

impl Keyspace {
    /// All keys of a queue, in the order that its scripts take them.
    pub(crate) fn push_dq(&self, keys: &mut ArgList, queue: &QueueName) {
        let group = self.group(queue);
        b"tmrodishjncl".iter().for_each(|suffix| self.push_dq_key(keys, queue, group, *suffix));
        self.push_dq_index(keys, group);
    }

    /// Which list of names a queue is in.
    pub(crate) fn group(&self, queue: &QueueName) -> u16 {
        if !self.over_slots {
            return 0;
        }
        let mut name = Vec::new();
        encode(&mut name, queue.as_bytes());
        slot::of(&name) % GROUPS
    }

    /// All groups of queues.
    pub(crate) fn groups(&self) -> Range<u16> {
        0..if self.over_slots { GROUPS } else { 1 }
    }

    /// The keys of a queue that show whether it holds something, or is paused or limited.
    pub(crate) fn push_dq_signs(&self, keys: &mut ArgList, queue: &QueueName) {
        let group = self.group(queue);
        b"tdhn".iter().for_each(|suffix| self.push_dq_key(keys, queue, group, *suffix));
    }

    /// The names of the queues of a group.
    pub(crate) fn push_dq_index(&self, keys: &mut ArgList, group: u16) {
        keys.push(if self.over_slots { self.group_tag(group) } else { format!("{}:{{dq}}", self.prefix) });
    }

    fn group_tag(&self, group: u16) -> String {
        format!("{{{}:dq%-{group:02x}}}", self.prefix)
    }

    fn push_dq_key(&self, keys: &mut ArgList, queue: &QueueName, group: u16, suffix: u8) {
        keys.push_with(|out| {
            if self.over_slots {
                out.extend_from_slice(self.group_tag(group).as_bytes());
                out.push(b':');
                encode(out, queue.as_bytes());
            } else {
                out.push(b'{');
                out.extend_from_slice(self.prefix.as_bytes());
                out.extend_from_slice(b":dq:");
                encode(out, queue.as_bytes());
                out.push(b'}');
            }
            out.extend_from_slice(&[b':', suffix]);
        });
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::{LockName, OwnerToken};

    use super::*;
    use crate::keyspace::tests::{space, spelled};
    use crate::settings::FenceScope;

    #[test]
    fn queues_are_spelled_as_documented_and_meet_no_lock() {
        let space = space(FenceScope::Name);
        let queue = QueueName::new("a {b}").unwrap();
        let keys = spelled(|keys| space.push_dq(keys, &queue));
        let suffixes = "tmrodishjncl".chars().map(|suffix| format!("{{tenure:dq:a%20%7Bb%7D}}:{suffix}"));
        assert_eq!(keys, suffixes.chain(["tenure:{dq}".to_owned()]).collect::<Vec<_>>());
        let lock = LockName::new("dq:a {b}").unwrap();
        let locks = spelled(|keys| {
            space.push_lock(keys, &lock);
            space.push_queue(keys, &lock);
            space.push_fence(keys, &lock);
            space.push_tombstone(keys, &lock, &OwnerToken::random().expose());
        });
        assert!(keys.iter().all(|key| !locks.contains(key)));
        assert!(spelled(|keys| space.push_dq_signs(keys, &queue)).iter().all(|key| keys.contains(key)));
    }

    #[test]
    fn in_a_cluster_a_queue_shares_the_slot_of_a_list() {
        let space = space(FenceScope::Name).over_slots();
        for name in ["orders", "a {b}", "x", ":"] {
            let queue = QueueName::new(name).unwrap();
            let keys = spelled(|keys| space.push_dq(keys, &queue));
            let slots: Vec<u16> = keys.iter().map(|key| slot::of(key.as_bytes())).collect();
            assert!(slots.iter().all(|slot| *slot == slots[0]), "{keys:?}");
            let list = spelled(|keys| space.push_dq_index(keys, space.group(&queue)));
            assert_eq!(keys.last(), list.first());
            assert!(space.groups().contains(&space.group(&queue)));
        }
        let keys = spelled(|keys| space.push_dq(keys, &QueueName::new("orders").unwrap()));
        assert_eq!(keys[0], "{tenure:dq%-69}:orders:t", "all clients look for it there");
        let group = |number: u32| space.group(&QueueName::new(format!("q{number}")).unwrap());
        let used: std::collections::BTreeSet<u16> = (0..4_000).map(group).collect();
        assert_eq!((used.len(), used.first(), used.last(), space.groups()), (256, Some(&0), Some(&255), 0..256));
        assert_eq!(self::space(FenceScope::Node).groups(), 0..1);
    }
}
