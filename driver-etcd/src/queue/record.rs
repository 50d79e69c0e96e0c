//! The record of a message: all of its data except the payload, as lines that `etcdctl get` shows.
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

use tenure_core::driver::{Attempts, Cause, DeadCause, Delay, Lifecycle, LockTurn, NamedId, NewMessage};
use tenure_core::queue::{ConcurrencyKey, MessageId, Reason, Recurrence};
use tenure_core::{FencingToken, LockName, OwnerToken};

use super::clock::{Micros, after};
use crate::keys::{decode, encode};

const HEADER: &str = "tenure-message/1";

#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) pushed: Micros,
    /// The length of the payload.
    pub(super) size: usize,
    pub(super) life: Lifecycle<Micros>,
    /// Deliveries made: names the last one.
    pub(super) serial: u64,
    pub(super) named: Option<NamedId>,
    pub(super) key: Option<ConcurrencyKey>,
    pub(super) lock: Option<LockName>,
    /// The hold that it was given since it was parked.
    pub(super) turn: Option<LockTurn>,
}

const CAUSES: &[(Cause, &str)] = &[
    (Cause::First, "first"),
    (Cause::Retried, "retried"),
    (Cause::Returned, "returned"),
    (Cause::Parked, "parked"),
    (Cause::LeaseExpired, "expired"),
    (Cause::Redriven, "redriven"),
];

const DOOMS: &[(DeadCause, &str)] = &[
    (DeadCause::Exhausted, "exhausted"),
    (DeadCause::Rejected, "rejected"),
    (DeadCause::Expired, "expired"),
    (DeadCause::Damaged, "damaged"),
];

/// The lines that every record has.
const REQUIRED: [&str; 6] = ["pushed", "size", "attempt", "attempts", "serial", "cause"];

impl Record {
    const EMPTY: Self = Self {
        pushed: 0,
        size: 0,
        life: Lifecycle {
            attempt: 0,
            attempts: Attempts::DEFAULT,
            cause: Cause::First,
            reason: None,
            recurrence: None,
            expires: None,
            doomed: None,
        },
        serial: 0,
        named: None,
        key: None,
        lock: None,
        turn: None,
    };

    pub(super) fn id(&self, number: u64) -> MessageId {
        self.named.as_ref().map_or_else(|| MessageId::assigned(number), |named| named.id.clone())
    }

    /// Of a message that is pushed now, and due then.
    pub(super) fn of(message: &NewMessage, now: Micros, due: Micros) -> Self {
        Self {
            pushed: now,
            size: message.payload.len(),
            life: Lifecycle::new(message, message.ttl.map(|ttl| after(due, ttl.get()))),
            named: message.id.clone(),
            key: message.key.clone(),
            lock: message.lock.clone(),
            ..Self::EMPTY
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut text = format!(
            "{HEADER}\npushed={}\nsize={}\nattempt={}\nattempts={}\nserial={}\ncause={}\n",
            self.pushed,
            self.size,
            self.life.attempt,
            self.life.attempts.get(),
            self.serial,
            word(CAUSES, self.life.cause),
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
        if let Some(LockTurn { lock, token, fence, .. }) = &self.turn {
            let token = token.expose();
            line(&format!("turn={},{fence},", String::from_utf8_lossy(token.as_ref())), lock.as_bytes());
        }
        if let Some(reason) = &self.life.reason {
            line("reason=", reason.as_str().as_bytes());
        }
        if let Some(expires) = self.life.expires {
            line("expires=", expires.to_string().as_bytes());
        }
        if let Some(recurrence) = &self.life.recurrence {
            line("recurrence=", recurrence.as_str().as_bytes());
        }
        if let Some(doomed) = self.life.doomed {
            line("doomed=", word(DOOMS, doomed).as_bytes());
        }
        text
    }

    /// Of a damaged one what can be read, and that it is damaged: such a message is not delivered.
    pub(super) fn decode(value: &[u8]) -> Self {
        let mut record = Self::EMPTY;
        if let Some(what) = record.read(value) {
            record.is_damaged(what);
        }
        record
    }

    /// A message is not delivered of which something cannot be read.
    pub(super) fn is_damaged(&mut self, what: &str) {
        self.life.doomed = Some(DeadCause::Damaged);
        self.life.reason = Some(Reason::beginning_of(&format!("damaged: {what}")));
    }

    /// Reads all whole lines that it can; returns the fault, if there is one.
    fn read(&mut self, value: &[u8]) -> Option<&'static str> {
        let whole = value.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        let text = std::str::from_utf8(&value[..whole]).ok();
        let Some(text) = text.and_then(|text| text.strip_prefix(HEADER)?.strip_prefix('\n')) else {
            return Some("its record is not of this version");
        };
        let mut wanted = REQUIRED.to_vec();
        let mut odd = false;
        for line in text.lines() {
            match line.split_once('=').and_then(|(field, value)| self.set(field, value).map(|()| field)) {
                Some(field) => wanted.retain(|wanted| *wanted != field),
                None => odd = true,
            }
        }
        if whole < value.len() || !wanted.is_empty() {
            return Some("its record is cut off");
        }
        odd.then_some("its record has an invalid line")
    }

    fn set(&mut self, field: &str, value: &str) -> Option<()> {
        match field {
            "pushed" => self.pushed = value.parse().ok()?,
            "size" => self.size = value.parse().ok()?,
            "attempt" => self.life.attempt = value.parse().ok()?,
            "attempts" => self.life.attempts = Attempts::new(value.parse().ok()?).ok()?,
            "serial" => self.serial = value.parse().ok().filter(|serial| *serial < u64::MAX)?,
            "cause" => self.life.cause = meant(CAUSES, value)?,
            "name" => {
                let id = MessageId::named(decode(value.as_bytes())?).ok()?;
                self.named = Some(NamedId::new(id, Delay::ZERO));
            }
            "window" => self.named.as_mut()?.window = Delay::new(Duration::from_micros(value.parse().ok()?)).ok()?,
            "key" => self.key = Some(ConcurrencyKey::new(decode(value.as_bytes())?).ok()?),
            "lock" => self.lock = Some(LockName::new(decode(value.as_bytes())?).ok()?),
            "turn" => self.turn = Some(read_turn(value)?),
            "reason" => self.life.reason = Some(Reason::new(String::from_utf8(decode(value.as_bytes())?).ok()?).ok()?),
            "expires" => self.life.expires = Some(value.parse().ok()?),
            "recurrence" => {
                self.life.recurrence = Some(Recurrence::new(String::from_utf8(decode(value.as_bytes())?).ok()?).ok()?);
            }
            "doomed" => self.life.doomed = Some(meant(DOOMS, value)?),
            _ => {} // a later version's
        }
        Some(())
    }
}

/// Token, fence and lock.
fn read_turn(value: &str) -> Option<LockTurn> {
    let mut parts = value.splitn(3, ',');
    let token = OwnerToken::parse(parts.next()?).ok()?;
    let fence = FencingToken::new(parts.next()?.parse().ok()?)?;
    let lock = LockName::new(decode(parts.next()?.as_bytes())?).ok()?;
    Some(LockTurn::new(lock, token, fence))
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
            life: Lifecycle {
                attempt: 3,
                attempts: Attempts::new(4).unwrap(),
                cause: Cause::Parked,
                reason: Some(Reason::new("it \u{fc}\nfailed").unwrap()),
                recurrence: Some(Recurrence::new("every=1d\n\u{fc}").unwrap()),
                expires: Some(u64::MAX),
                doomed: Some(DeadCause::Expired),
            },
            serial: 5,
            named: Some(NamedId::new(id.clone(), Delay::new(Duration::from_secs(6)).unwrap())),
            key: Some(ConcurrencyKey::new([255, 10]).unwrap()),
            lock: Some(LockName::new([0, 255]).unwrap()),
            turn: Some(LockTurn::new(
                LockName::new("a\nb").unwrap(),
                OwnerToken::random(),
                FencingToken::new(u64::MAX).unwrap(),
            )),
        };
        let back = Record::decode(&record.encode());
        assert_eq!(format!("{back:?}"), format!("{record:?}"));
        assert_eq!(back.turn, record.turn, "the whole token");
        let mut plain = Record::EMPTY;
        (plain.life.attempts, plain.life.cause) = (record.life.attempts, record.life.cause);
        let back = Record::decode(&plain.encode());
        assert_eq!(format!("{back:?}"), format!("{plain:?}"));
        assert_eq!((back.id(7), back.life.doom()), (MessageId::assigned(7), None));
    }

    #[test]
    fn a_damaged_record_is_never_delivered_and_keeps_what_can_be_read() {
        let whole = "tenure-message/1\npushed=1\nsize=2\nattempt=3\nattempts=4\nserial=5\ncause=first\nkey=k\n";
        assert_eq!(Record::decode(whole.as_bytes()).life.doom(), None);
        for cut in 0..whole.len() - "key=k\n".len() {
            let record = Record::decode(&whole.as_bytes()[..cut]);
            assert_eq!(record.life.doom(), Some(DeadCause::Damaged), "{cut}");
            assert!(record.life.reason.unwrap().as_str().starts_with("damaged: its record is"), "{cut}");
        }
        for cut in whole.len() - "ey=k\n".len()..whole.len() {
            let record = Record::decode(&whole.as_bytes()[..cut]);
            assert_eq!(record.life.doom(), Some(DeadCause::Damaged), "{cut}");
        }
        let odd = Record::decode(whole.replace("key=k", "key=%").as_bytes());
        assert_eq!(odd.life.doom(), Some(DeadCause::Damaged));
        assert_eq!(odd.life.reason.unwrap().as_str(), "damaged: its record has an invalid line");
        let odd = Record::decode(whole.replace("attempt=3", "attempt=x").as_bytes());
        assert_eq!((odd.life.doom(), odd.key), (Some(DeadCause::Damaged), Some(ConcurrencyKey::new("k").unwrap())));
        for foreign in [&b""[..], b"x", &[255; 40], b"tenure-message/2\n"] {
            assert_eq!(Record::decode(foreign).life.doom(), Some(DeadCause::Damaged), "{foreign:?}");
        }
        let last = whole.replace("serial=5", &format!("serial={}", u64::MAX));
        assert_eq!(Record::decode(last.as_bytes()).life.doom(), Some(DeadCause::Damaged), "there is none after it");
    }
}
