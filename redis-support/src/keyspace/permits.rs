//! The keys of semaphores and read-write locks.

use tenure_core::driver::Family;
use tenure_core::{LockName, TokenText};

use super::Keyspace;
use crate::script::ArgList;

/// The keys of a name, as the scripts take them: record, ends of leases, fences, line, presence, terms.
const KEYS: &[u8; 6] = b"rhgqwa";

impl Keyspace {
    /// Record, ends of leases, fences, line, presence and terms.
    pub(crate) fn push_permits(&self, keys: &mut ArgList, family: Family, name: &LockName) {
        KEYS.iter().for_each(|key| self.push_permit_key(keys, family, name, *key));
    }

    /// The holds: record, ends of leases and fences.
    pub(crate) fn push_permit_holds(&self, keys: &mut ArgList, family: Family, name: &LockName) {
        KEYS[..3].iter().for_each(|key| self.push_permit_key(keys, family, name, *key));
    }

    /// The waiters by the end of their presence.
    pub(crate) fn push_permit_presence(&self, keys: &mut ArgList, family: Family, name: &LockName) {
        self.push_permit_key(keys, family, name, KEYS[4]);
    }

    /// The counter that the fences of this name and family come from.
    pub(crate) fn push_permit_fence(&self, keys: &mut ArgList, family: Family, name: &LockName) {
        self.push_permit_key(keys, family, name, b'f');
    }

    /// The memory that `token` was abandoned.
    pub(crate) fn push_permit_tombstone(&self, keys: &mut ArgList, family: Family, name: &LockName, token: &TokenText) {
        keys.push_with(|out| {
            self.side(out, name, &suffix(family, b'x'));
            out.push(b':');
            out.extend_from_slice(token.as_ref());
        });
    }

    fn push_permit_key(&self, keys: &mut ArgList, family: Family, name: &LockName, key: u8) {
        self.push_side(keys, name, &suffix(family, key));
    }
}

const fn suffix(family: Family, key: u8) -> [u8; 4] {
    [b':', family.code() as u8, b':', key]
}

#[cfg(test)]
mod tests {
    use tenure_core::OwnerToken;

    use super::*;
    use crate::keyspace::tests::{space, spelled};
    use crate::settings::FenceScope;

    #[test]
    fn permits_are_spelled_as_documented_and_share_the_slot_of_the_name() {
        let space = space(FenceScope::Name);
        let (name, token) = (LockName::new("n").unwrap(), OwnerToken::parse("AAAAAAAAAAAAAAAAAAAAAA").unwrap());
        let keys = |family| {
            spelled(|keys| {
                space.push_permits(keys, family, &name);
                space.push_permit_fence(keys, family, &name);
                space.push_permit_tombstone(keys, family, &name, &token.expose());
            })
        };
        let tail = ["r", "h", "g", "q", "w", "a", "f", "x:AAAAAAAAAAAAAAAAAAAAAA"];
        assert_eq!(keys(Family::Semaphore), tail.map(|end| format!("{{tenure:n}}:s:{end}")));
        assert_eq!(keys(Family::RwLock), tail.map(|end| format!("{{tenure:n}}:r:{end}")));
        let holds = spelled(|keys| space.push_permit_holds(keys, Family::Semaphore, &name));
        assert_eq!(holds, keys(Family::Semaphore)[..3]);
        let presence = spelled(|keys| space.push_permit_presence(keys, Family::Semaphore, &name));
        assert_eq!(presence, keys(Family::Semaphore)[4..5]);
    }
}
