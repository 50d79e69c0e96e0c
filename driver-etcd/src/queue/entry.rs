//! A message at its place, the transactions that move it, and how messages are found.

use etcd_client::{Compare, CompareOp, GetResponse, KeyValue, Txn, TxnOp};
use tenure_core::driver::{Cause, DeadCause, Payload};
use tenure_core::{Error, ErrorKind, Result};

use super::clock::Micros;
use super::keys::{Location, QueueKeys};
use super::record::Record;

/// How many messages one transaction moves. etcd takes 128 operations at each level of a transaction by default; the
/// remainder serves the operations inside.
pub(super) const BATCH: usize = 100;

/// How many bytes of payloads one answer has, and how many one request to move messages.
pub(super) const MOST_BYTES: usize = 1024 * 1024;

/// How many keys one message has in a request, those of its concurrency key included. Its record is there twice: leased, and
/// held back if that cannot be.
const MOST_KEYS: usize = 14;

/// How often a request starts over when messages move under it.
pub(super) const MOST_STARTS: usize = 32;

/// A message, as read from etcd, without its payload.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) number: u64,
    pub(super) place: Location,
    pub(super) record: Record,
    pub(super) key: Vec<u8>,
    /// The revision in which it was last written.
    written: i64,
}

/// Where a message goes that should be dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Burial {
    Dead,
    Postponed,
}

impl Entry {
    /// `None` for a key that is no place of a message.
    pub(super) fn read(keys: &QueueKeys, found: &KeyValue) -> Option<Self> {
        let (place, number) = keys.parse_place(found.key())?;
        let record = Record::decode(found.value());
        Some(Self { number, place, record, key: found.key().to_vec(), written: found.mod_revision() })
    }

    /// A message of which only the pointer is left, and what that says.
    pub(super) fn without_place(keys: &QueueKeys, place: Location, number: u64) -> Self {
        let mut record = Record::decode(&[]);
        record.is_damaged("its place is missing");
        Self { number, place, record, key: keys.place(place, number), written: 0 }
    }

    /// With its payload, for a caller that inspects messages; a missing payload is empty, and the record says so.
    pub(super) fn with(mut self, payload: Option<Payload>) -> Result<(Self, Payload)> {
        let payload = match payload {
            Some(payload) => payload,
            None => {
                self.record.is_damaged("its payload is missing");
                Payload::new([])?
            }
        };
        Ok((self, payload))
    }

    /// How many of these messages, the first ones, have payloads that fit into one answer, and can be moved by one request;
    /// one at least.
    pub(super) fn fitting(entries: &[Self]) -> usize {
        let (mut answer, mut request) = (0_usize, 0);
        let fits = |entry: &&Self| {
            answer = answer.saturating_add(entry.record.size);
            request += MOST_KEYS * entry.key.len() + 2 * entry.record.encode().len();
            answer <= MOST_BYTES && request <= MOST_BYTES
        };
        entries.iter().take_while(fits).count().max(1).min(entries.len())
    }

    pub(super) fn is_damaged(&self) -> bool {
        self.record.life.doomed == Some(DeadCause::Damaged)
    }

    /// The same message after a move in this revision.
    pub(super) fn moved(&self, keys: &QueueKeys, to: Location, record: Record, revision: i64) -> Self {
        Self { number: self.number, place: to, record, key: keys.place(to, self.number), written: revision }
    }

    /// These operations, unless the message has moved.
    pub(super) fn step(&self, operations: Vec<TxnOp>) -> TxnOp {
        TxnOp::txn(Txn::new().when([self.unmoved()]).and_then(operations))
    }

    pub(super) fn unmoved(&self) -> Compare {
        Compare::mod_revision(self.key.as_slice(), CompareOp::Equal, self.written)
    }
}

/// The payload in the answer to a get; the beginning of one that is longer than there are.
pub(super) fn payload(answer: &GetResponse) -> Option<Payload> {
    let found = answer.kvs().first()?.value();
    Payload::new(&found[..found.len().min(Payload::MAX_LEN)]).ok()
}

/// Which message has the caller's id, by the value of the id's key.
pub(super) fn stored_as(value: &[u8]) -> Option<u64> {
    std::str::from_utf8(value).ok()?.strip_prefix("number=")?.parse().ok()
}

/// Until when the id of an acknowledged message stays known.
pub(super) fn known_until(value: &[u8]) -> Option<Micros> {
    std::str::from_utf8(value).ok()?.strip_prefix("until=")?.parse().ok()
}

/// The cause of the next delivery of a message that is taken from where it is.
pub(super) fn cause_of(entry: &Entry) -> Cause {
    match entry.place {
        Location::Leased(_) => Cause::LeaseExpired,
        _ => entry.record.life.cause,
    }
}

/// The value of the key of a name, or of a concurrency key, that leads to this message.
pub(super) fn naming(number: u64) -> String {
    format!("number={number}")
}

/// Others were always faster.
pub(super) fn moving() -> Error {
    Error::new(ErrorKind::Unavailable, "other clients kept moving the same messages")
}

#[cfg(test)]
mod tests {
    use tenure_core::queue::{QueueName, Reason};

    use super::super::keys::QueueSpace;
    use super::*;

    fn entry(size: usize, reason: &str) -> Entry {
        let keys = QueueSpace::new("tenure").of(&QueueName::new("q".repeat(200)).unwrap());
        let mut entry = Entry::without_place(&keys, Location::Waiting(7), 1);
        entry.record.life.reason = (!reason.is_empty()).then(|| Reason::beginning_of(reason));
        entry.record.size = size;
        entry
    }

    #[test]
    fn as_many_payloads_fit_as_one_answer_has_room_for_and_one_always() {
        let fitting = |sizes: &[usize]| Entry::fitting(&sizes.iter().map(|size| entry(*size, "")).collect::<Vec<_>>());
        let half = MOST_BYTES / 2;
        for (sizes, fit) in [
            (&[][..], 0),
            (&[0], 1),
            (&[0, 0, 0], 3),
            (&[half, half, 0], 3),
            (&[half, half + 1, 0], 1),
            (&[half, half, 1], 2),
            (&[usize::MAX, 1], 1),
            (&[MOST_BYTES + 1, 0], 1),
            (&[0, usize::MAX], 1),
        ] {
            assert_eq!(fitting(sizes), fit, "{sizes:?}");
        }
    }

    #[test]
    fn as_many_are_moved_as_one_request_has_room_for() {
        for reason in ["", "r", &"r".repeat(500)] {
            let one = entry(0, reason);
            let bytes = 14 * one.key.len() + 2 * one.record.encode().len();
            let most = MOST_BYTES / bytes;
            let entries = vec![one; most + 3];
            assert_eq!(Entry::fitting(&entries), most, "of {bytes} bytes each");
            assert_eq!(Entry::fitting(&entries[..most - 1]), most - 1);
        }
    }

    #[test]
    fn what_a_key_says_of_a_name_is_read_back() {
        assert_eq!(stored_as(naming(17).as_bytes()), Some(17));
        assert_eq!(known_until(b"until=18"), Some(18));
        assert_eq!(
            [stored_as(b"until=18"), known_until(b"number=17"), stored_as(b"number="), stored_as(b"")],
            [None; 4]
        );
    }
}
