//! The form of a message's stored data. The scripts' part of the same name defines the same.

use std::time::Duration;

use tenure_core::driver::{Attempts, Cause, DeadCause, Due, LockTurn, NewMessage, Payload};
use tenure_core::queue::{ConcurrencyKey, MessageId, Reason, Recurrence};
use tenure_core::{Error, FencingToken, LockName, OwnerToken, Result};

use crate::call::unexpected;

/// Why a reply cannot be read.
fn damaged() -> Error {
    unexpected("a stored message is damaged")
}

/// Writes the record of a message. When its ttl ends is filled in by the script, which knows the time.
pub(super) fn write_record(out: &mut Vec<u8>, message: &NewMessage) {
    let name = message.id.as_ref().and_then(|named| named.id.as_name()).unwrap_or_default();
    let key = message.key.as_ref().map_or(&[][..], ConcurrencyKey::as_bytes);
    let lock = message.lock.as_ref().map_or(&[][..], LockName::as_bytes);
    let recurrence = message.recurrence.as_ref().map_or(&[][..], |recurrence| recurrence.as_str().as_bytes());
    let parked = matches!(message.due, Due::Parked { .. });
    let texts = [name, key, lock, recurrence];
    out.extend_from_slice(format!("{:04x}", message.attempts.get()).as_bytes());
    if texts.iter().all(|text| text.is_empty()) && !parked && message.ttl.is_none() {
        out.push(b'-');
    } else {
        let window = message.id.as_ref().map_or(0, |named| named.window.as_micros());
        let [name, key, lock, recurrence] = texts.map(<[u8]>::len);
        let cause = if parked { 'P' } else { 'F' };
        let head = format!("+{cause}{window:014x}{:014x}{name:02x}{key:02x}{lock:04x}{recurrence:04x}", 0);
        out.extend_from_slice(head.as_bytes());
        texts.iter().for_each(|text| out.extend_from_slice(text));
    }
    out.extend_from_slice(message.payload.as_bytes());
}

/// Writes a turn, as a state has it.
pub(super) fn write_turn(out: &mut Vec<u8>, turn: &LockTurn) {
    let LockTurn { lock, token, fence, .. } = turn;
    let (token, lock) = (token.expose(), lock.as_bytes());
    let head = format!("@{}{:016x}{:04x}", token.as_str(), fence.get(), lock.len());
    [head.as_bytes(), lock].iter().for_each(|part| out.extend_from_slice(part));
}

fn read_turn(rest: &mut &[u8]) -> Result<LockTurn> {
    let text = std::str::from_utf8(take(rest, 22)?).map_err(|_| damaged())?;
    let token = OwnerToken::parse(text).map_err(|_| damaged())?;
    let fence = FencingToken::new(hex(take(rest, 16)?)?).ok_or_else(damaged)?;
    let length = hex(take(rest, 4)?)?;
    let lock = LockName::new(take(rest, usize::try_from(length).map_err(|_| damaged())?)?)?;
    Ok(LockTurn::new(lock, token, fence))
}

/// A record, taken apart.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) attempts: Attempts,
    pub(super) name: Option<MessageId>,
    pub(super) key: Option<ConcurrencyKey>,
    pub(super) lock: Option<LockName>,
    pub(super) recurrence: Option<Recurrence>,
    /// Until when it may be delivered, on the queue's clock; 0 for ever.
    pub(super) expires: u64,
    pub(super) payload: Payload,
}

impl Record {
    pub(super) fn read(bytes: &[u8]) -> Result<Self> {
        let mut rest = bytes;
        let attempts = Attempts::new(u32::try_from(hex(take(&mut rest, 4)?)?).map_err(|_| damaged())?)?;
        let (mut name, mut key, mut lock, mut recurrence, mut expires) = (&[][..], &[][..], &[][..], &[][..], 0);
        if take(&mut rest, 1)? == b"+" {
            take(&mut rest, 15)?; // cause and window are the scripts' affair
            expires = hex(take(&mut rest, 14)?)?;
            let mut lengths = [0; 4];
            for (length, digits) in lengths.iter_mut().zip([2, 2, 4, 4]) {
                *length = usize::try_from(hex(take(&mut rest, digits)?)?).map_err(|_| damaged())?;
            }
            for (part, length) in [&mut name, &mut key, &mut lock, &mut recurrence].into_iter().zip(lengths) {
                *part = take(&mut rest, length)?;
            }
        }
        let some = |part: &[u8]| Some(part.to_vec()).filter(|part| !part.is_empty());
        let text = |part| String::from_utf8(part).map_err(|_| damaged()).and_then(Recurrence::new);
        Ok(Self {
            attempts,
            name: some(name).map(MessageId::named).transpose()?,
            key: some(key).map(ConcurrencyKey::new).transpose()?,
            lock: some(lock).map(LockName::new).transpose()?,
            recurrence: some(recurrence).map(text).transpose()?,
            expires,
            payload: Payload::new(rest)?,
        })
    }

    /// The id of the message.
    pub(super) fn id(&self, number: u64) -> MessageId {
        self.name.clone().unwrap_or_else(|| MessageId::assigned(number))
    }
}

/// The readable parts of a message whose record and state may be damaged: then the payload is all that is there, up to the most
/// that a payload may be.
pub(super) fn read_or_guess(record: &[u8], state: &[u8]) -> (Record, State) {
    let state = State::read(state);
    let record = Record::read(record).map_err(|error| {
        let beginning = &record[..record.len().min(Payload::MAX_LEN)];
        (Payload::new(beginning).expect("short enough"), error)
    });
    let reason = |error: &Error| Some(damaged_because(error));
    match (record, state) {
        (Ok(record), Ok(state)) => (record, state),
        (Ok(record), Err(error)) => (record, State { reason: reason(&error), ..State::UNKNOWN }),
        (Err((payload, error)), state) => {
            let attempts = Attempts::new(1).expect("one is allowed");
            let record = Record { attempts, name: None, key: None, lock: None, recurrence: None, expires: 0, payload };
            let state = state.unwrap_or(State::UNKNOWN);
            (record, State { dead: DeadCause::Damaged, reason: state.reason.or(reason(&error)), ..state })
        }
    }
}

/// What dead letters say of a damaged message.
pub(super) fn damaged_because(error: &Error) -> Reason {
    Reason::beginning_of(&format!("damaged: {}", error.message()))
}

/// A state, taken apart.
#[derive(Debug)]
pub(super) struct State {
    pub(super) attempt: u32,
    pub(super) cause: Cause,
    pub(super) dead: DeadCause,
    pub(super) fence: u64,
    pub(super) turn: Option<LockTurn>,
    pub(super) reason: Option<Reason>,
}

impl State {
    const UNKNOWN: Self =
        Self { attempt: 0, cause: Cause::First, dead: DeadCause::Damaged, fence: 0, turn: None, reason: None };

    /// An empty text is the state of a message that was not delivered yet.
    pub(super) fn read(bytes: &[u8]) -> Result<Self> {
        if bytes.is_empty() {
            let dead = DeadCause::Exhausted;
            return Ok(Self { attempt: 0, cause: Cause::First, dead, fence: 0, turn: None, reason: None });
        }
        let mut rest = bytes;
        let attempt = u32::try_from(hex(take(&mut rest, 4)?)?).map_err(|_| damaged())?;
        take(&mut rest, 4)?;
        let cause = match take(&mut rest, 1)? {
            b"F" => Cause::First,
            b"T" => Cause::Retried,
            b"B" => Cause::Returned,
            b"P" => Cause::Parked,
            b"L" => Cause::LeaseExpired,
            b"D" => Cause::Redriven,
            _ => return Err(damaged()),
        };
        take(&mut rest, 1)?;
        let dead = match take(&mut rest, 1)? {
            b"R" => DeadCause::Rejected,
            b"T" => DeadCause::Expired,
            b"X" => DeadCause::Damaged,
            _ => DeadCause::Exhausted,
        };
        let fence = hex(take(&mut rest, 14)?)?;
        let turn = match rest.strip_prefix(b"@") {
            Some(after) => {
                rest = after;
                Some(read_turn(&mut rest)?)
            }
            None => None,
        };
        let reason = rest.strip_prefix(b"=").map(|text| Reason::beginning_of(&String::from_utf8_lossy(text)));
        Ok(Self { attempt, cause, dead, fence, turn, reason })
    }
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> Result<&'a [u8]> {
    let (part, after) = rest.split_at_checked(count).ok_or_else(damaged)?;
    *rest = after;
    Ok(part)
}

/// A number in hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> Result<u64> {
    // The parser takes a sign as well.
    let text = std::str::from_utf8(bytes).ok().filter(|text| !text.starts_with('+')).ok_or_else(damaged)?;
    u64::from_str_radix(text, 16).map_err(|_| damaged())
}

/// From `earlier` to `later`, in microseconds of the queue's clock; zero if it is not later.
pub(super) fn span(earlier: u64, later: u64) -> Duration {
    Duration::from_micros(later.saturating_sub(earlier))
}

#[cfg(test)]
mod tests {
    use tenure_core::ErrorKind;
    use tenure_core::driver::{Delay, NamedId};

    use super::*;

    fn message(payload: &[u8]) -> NewMessage {
        NewMessage::new(Payload::new(payload).unwrap())
    }

    fn there_and_back(message: &NewMessage) -> (Vec<u8>, Record) {
        let mut bytes = Vec::new();
        write_record(&mut bytes, message);
        let record = Record::read(&bytes).unwrap();
        (bytes, record)
    }

    #[test]
    fn a_plain_message_costs_five_bytes() {
        let (bytes, record) = there_and_back(&message(b"+\0payload"));
        assert_eq!(bytes, b"000a-+\0payload");
        assert_eq!(record.payload.as_bytes(), b"+\0payload");
        assert_eq!(record.id(7), MessageId::assigned(7));
    }

    #[test]
    fn everything_comes_back_byte_by_byte() {
        let full = message(b"")
            .with_id(Some(NamedId::new(
                MessageId::named([b'n'; MessageId::MAX_LEN]).unwrap(),
                Delay::new(Delay::MAX).unwrap(),
            )))
            .with_key(Some(ConcurrencyKey::new([0xff; ConcurrencyKey::MAX_LEN]).unwrap()))
            .with_lock(Some(LockName::new([0; LockName::MAX_LEN]).unwrap()))
            .with_due(Due::Parked { at_most: Delay::ZERO })
            .with_recurrence(Some(Recurrence::new("x".repeat(Recurrence::MAX_LEN)).unwrap()));
        let (bytes, record) = there_and_back(&full);
        assert!(bytes.starts_with(b"000a+P"));
        assert_eq!(record.name.as_ref(), full.id.as_ref().map(|named| &named.id));
        assert_eq!((record.key, record.lock, record.recurrence), (full.key, full.lock, full.recurrence));
        assert_eq!(record.expires, 0);
        assert!(record.payload.is_empty());
    }

    #[test]
    fn a_state_has_its_turn_before_the_reason() {
        let turn = LockTurn::new(
            LockName::new([b'@'; LockName::MAX_LEN]).unwrap(),
            OwnerToken::random(),
            FencingToken::new(u64::MAX).unwrap(),
        );
        let mut bytes = b"0000000aP--00000000000000".to_vec();
        write_turn(&mut bytes, &turn);
        let cut = State::read(&bytes[..bytes.len() - 1]).unwrap_err();
        bytes.extend_from_slice(b"=@why");
        let state = State::read(&bytes).unwrap();
        assert_eq!((state.turn, state.reason.unwrap().as_str()), (Some(turn), "@why"));
        assert_eq!(cut.kind(), ErrorKind::Protocol);
        assert!(State::read(b"0003000aT--00000000000000=@").unwrap().turn.is_none());
    }

    #[test]
    fn damage_is_told() {
        for bytes in
            [b"".as_slice(), b"00", b"0000-", b"000a+F", b"zzzz-", b"000a+F0000000000000000000000000000ff0000000000"]
        {
            assert!(matches!(
                Record::read(bytes).unwrap_err().kind(),
                ErrorKind::Protocol | ErrorKind::InvalidArgument
            ));
        }
        assert!(State::read(b"0001000aX--00000000000000").is_err());
        let state = State::read(b"0003000aT-R0000000000002a=why").unwrap();
        assert_eq!((state.attempt, state.cause, state.fence), (3, Cause::Retried, 42));
        assert_eq!((state.dead, state.reason.unwrap().as_str()), (DeadCause::Rejected, "why"));
        assert!(State::read(b"0003000aT--00000000000000").unwrap().reason.is_none());
    }
}
