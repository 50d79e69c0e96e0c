//! What stands beside a message's place: everything but its payload, as lines that `etcdctl get` shows.
//!
//! ```text
//! tenure-message/1
//! pushed=1700000000000000
//! size=11
//! attempt=1
//! attempts=10
//! serial=1
//! cause=first
//! name=order%2F42
//! window=60000000
//! ```

use std::time::Duration;

use tenure_core::driver::{Cause, DeadCause, NamedId};
use tenure_core::{Attempts, ConcurrencyKey, Delay, LockName, MessageId, Reason};

use super::clock::Micros;
use crate::keys::{decode, encode};

const HEADER: &str = "tenure-message/1";

#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) pushed: Micros,
    /// The length of the payload.
    pub(super) size: usize,
    /// Deliveries counted.
    pub(super) attempt: u32,
    pub(super) attempts: Attempts,
    /// Deliveries made: names the last one.
    pub(super) serial: u64,
    /// Why the next delivery will happen.
    pub(super) cause: Cause,
    pub(super) named: Option<NamedId>,
    pub(super) key: Option<ConcurrencyKey>,
    pub(super) lock: Option<LockName>,
    pub(super) reason: Option<Reason>,
    /// Set when it is, or should be, among the dead letters.
    pub(super) doomed: Option<DeadCause>,
}

const CAUSES: &[(Cause, &str)] = &[
    (Cause::First, "first"),
    (Cause::Retried, "retried"),
    (Cause::Returned, "returned"),
    (Cause::Parked, "parked"),
    (Cause::LeaseExpired, "expired"),
    (Cause::Redriven, "redriven"),
];

const DOOMS: &[(DeadCause, &str)] = &[(DeadCause::Exhausted, "exhausted"), (DeadCause::Rejected, "rejected")];

impl Record {
    pub(super) fn id(&self, number: u64) -> MessageId {
        self.named.as_ref().map_or_else(|| MessageId::assigned(number), |named| named.id.clone())
    }

    /// Why it must not be delivered again, if so.
    pub(super) fn doom(&self) -> Option<DeadCause> {
        self.doomed.or((self.attempt >= self.attempts.get()).then_some(DeadCause::Exhausted))
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut text = format!(
            "{HEADER}\npushed={}\nsize={}\nattempt={}\nattempts={}\nserial={}\ncause={}\n",
            self.pushed,
            self.size,
            self.attempt,
            self.attempts.get(),
            self.serial,
            word(CAUSES, self.cause),
        )
        .into_bytes();
        let mut line = |field: &str, value: &[u8]| {
            text.extend_from_slice(field.as_bytes());
            encode(value, &mut text);
            text.push(b'\n');
        };
        if let Some(named) = &self.named {
            line("name=", named.id.as_name().unwrap_or_default());
            line("window=", named.window.as_micros().to_string().as_bytes());
        }
        if let Some(key) = &self.key {
            line("key=", key.as_bytes());
        }
        if let Some(lock) = &self.lock {
            line("lock=", lock.as_bytes());
        }
        if let Some(reason) = &self.reason {
            line("reason=", reason.as_str().as_bytes());
        }
        if let Some(doomed) = self.doomed {
            line("doomed=", word(DOOMS, doomed).as_bytes());
        }
        text
    }

    /// `None` if somebody else wrote it.
    pub(super) fn decode(value: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(value).ok()?.strip_prefix(HEADER)?.strip_prefix('\n')?;
        let mut record = Self {
            pushed: 0,
            size: 0,
            attempt: 0,
            attempts: Attempts::DEFAULT,
            serial: 0,
            cause: Cause::First,
            named: None,
            key: None,
            lock: None,
            reason: None,
            doomed: None,
        };
        for line in text.lines() {
            let (field, value) = line.split_once('=')?;
            match field {
                "pushed" => record.pushed = value.parse().ok()?,
                "size" => record.size = value.parse().ok()?,
                "attempt" => record.attempt = value.parse().ok()?,
                "attempts" => record.attempts = Attempts::new(value.parse().ok()?).ok()?,
                "serial" => record.serial = value.parse().ok()?,
                "cause" => record.cause = meant(CAUSES, value)?,
                "name" => {
                    let id = MessageId::named(decode(value.as_bytes())?).ok()?;
                    record.named = Some(NamedId { id, window: Delay::ZERO });
                }
                "window" => {
                    record.named.as_mut()?.window = Delay::new(Duration::from_micros(value.parse().ok()?)).ok()?;
                }
                "key" => record.key = Some(ConcurrencyKey::new(decode(value.as_bytes())?).ok()?),
                "lock" => record.lock = Some(LockName::new(decode(value.as_bytes())?).ok()?),
                "reason" => record.reason = Some(Reason::new(String::from_utf8(decode(value.as_bytes())?).ok()?).ok()?),
                "doomed" => record.doomed = Some(meant(DOOMS, value)?),
                _ => {} // a later version's
            }
        }
        Some(record)
    }
}

fn word<T: PartialEq + Copy>(words: &[(T, &'static str)], value: T) -> &'static str {
    words.iter().find(|(known, _)| *known == value).map_or("other", |(_, word)| word)
}

fn meant<T: Copy>(words: &[(T, &'static str)], word: &str) -> Option<T> {
    words.iter().find(|(_, known)| *known == word).map(|(value, _)| *value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_back() {
        let id = MessageId::named("a\nb=c").unwrap();
        let record = Record {
            pushed: 1,
            size: 2,
            attempt: 3,
            attempts: Attempts::new(4).unwrap(),
            serial: 5,
            cause: Cause::Parked,
            named: Some(NamedId { id: id.clone(), window: Delay::new(Duration::from_secs(6)).unwrap() }),
            key: Some(ConcurrencyKey::new([255, 10]).unwrap()),
            lock: Some(LockName::new([0, 255]).unwrap()),
            reason: Some(Reason::new("it \u{fc}\nfailed").unwrap()),
            doomed: Some(DeadCause::Rejected),
        };
        let back = Record::decode(&record.encode()).unwrap();
        assert_eq!(format!("{back:?}"), format!("{record:?}"));
        let plain = Record { named: None, key: None, lock: None, reason: None, doomed: None, ..record };
        let back = Record::decode(&plain.encode()).unwrap();
        assert_eq!(format!("{back:?}"), format!("{plain:?}"));
        assert_eq!((back.id(7), back.doom()), (MessageId::assigned(7), None));
        for foreign in ["", "x", "tenure-message/1", "tenure-message/1\nx", "tenure-message/1\nattempt=x\n"] {
            assert!(Record::decode(foreign.as_bytes()).is_none(), "{foreign}");
        }
    }
}
