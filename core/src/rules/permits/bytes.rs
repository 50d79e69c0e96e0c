//! A record as bytes.
//!
//! | part | bytes |
//! |---|---|
//! | version | 1 |
//! | base: the earliest time of the record | a number |
//! | holds, waiters, upgrades that wait (0 or 1) | a number each |
//! | hold | flags, token, weight, capacity, fence, since, until, ttl, step, perhaps a label |
//! | waiter | flags, token, weight, capacity, client, present, perhaps a ttl and a label |
//! | upgrade | flags, token, weight, capacity, client, present |
//! | check: FNV-1a of all before | 8, big-endian |
//!
//! A number has seven bits a byte, the lowest first; all bytes but the last have the highest bit (LEB128, which
//! Protocol Buffers use as well). A token has 16 bytes. Times are nanoseconds since the base, `until` since `since`. A
//! label is its length and UTF-8.

use std::hash::Hasher;
use std::time::Duration;

use fnv::FnvHasher;

use super::state::{Growth, Hold, PermitState, Terms, Waiter};
use crate::driver::Share;
use crate::value::error::{Error, ErrorKind, Label};
use crate::value::token::{FencingToken, OwnerToken};

const VERSION: u8 = 1;
const CHECK: usize = 8;
const TOKEN: usize = 16;
/// The fewest bytes of a hold, a waiter or an upgrade: flags, a token, and three numbers.
const SHORTEST: usize = 1 + TOKEN + 3;

/// Set for a hold that was handed over, and for a waiter or an upgrade that was called.
const MARKED: u8 = 1;
/// Set if there is a label.
const LABELLED: u8 = 2;
/// Set for a waiter that takes a hold without asking.
const DIRECT: u8 = 4;

impl PermitState {
    /// Returns the record as bytes, in version 1 of the format: about 40 for a hold or a waiter, and its label.
    ///
    /// A time more than 584 years after the origin of the store's clock is kept as that.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let starts = self.holds.iter().map(|hold| hold.since);
        let ends = self.line.iter().map(|waiter| waiter.present);
        let ends = ends.chain(self.growth.iter().map(|growth| growth.present));
        let base = starts.chain(ends).map(nanos).min().unwrap_or(0);
        let mut out = Writer { bytes: vec![VERSION], base };
        out.number(base);
        for count in [self.holds.len(), self.line.len(), usize::from(self.growth.is_some())] {
            out.number(count as u64);
        }
        self.holds.iter().for_each(|hold| out.hold(hold));
        self.line.iter().for_each(|waiter| out.waiter(waiter));
        if let Some(Growth { token, client, to, present, called }) = &self.growth {
            out.head(flag(*called, MARKED), token, *to);
            out.number(*client);
            out.time(*present);
        }
        let check = check(&out.bytes);
        out.bytes.extend(check);
        out.bytes
    }

    /// Reads the output of [`to_bytes`](Self::to_bytes).
    ///
    /// Never panics, and allocates no more than a small multiple of the length of `bytes`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Damaged`] if the bytes are of another version, or not such an output. Every change of a single
    /// byte is noticed, and other damage but for one case in 2⁶⁴.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        match bytes.first() {
            Some(&VERSION) => {}
            Some(version) => {
                let text =
                    format!("a record of permits has version {version}, and this library reads version {VERSION}");
                return Err(Error::new(ErrorKind::Damaged, text));
            }
            None => return Err(damaged("it is empty")),
        }
        let Some((body, expected)) = bytes.split_last_chunk::<CHECK>() else { return Err(damaged("it is cut off")) };
        if check(body) != *expected {
            return Err(damaged("its check does not fit"));
        }
        read(body).ok_or_else(|| damaged("a value is outside its limits"))
    }
}

fn damaged(reason: &str) -> Error {
    Error::new(ErrorKind::Damaged, format!("a record of permits cannot be read: {reason}"))
}

pub(super) fn check(bytes: &[u8]) -> [u8; CHECK] {
    let mut hasher = FnvHasher::default();
    hasher.write(bytes);
    hasher.finish().to_be_bytes()
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

const fn flag(is_set: bool, flag: u8) -> u8 {
    if is_set { flag } else { 0 }
}

struct Writer {
    bytes: Vec<u8>,
    base: u64,
}

impl Writer {
    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.bytes.push(number as u8 | 0x80); // its lowest seven bits
            number >>= 7;
        }
        self.bytes.push(number as u8); // less than 0x80
    }

    fn time(&mut self, time: Duration) {
        self.number(nanos(time) - self.base);
    }

    fn head(&mut self, flags: u8, token: &OwnerToken, share: Share) {
        self.bytes.push(flags);
        self.bytes.extend(token.to_bits());
        self.number(share.weight.into());
        self.number(share.capacity.into());
    }

    fn label(&mut self, label: Option<&Label>) {
        if let Some(label) = label {
            self.number(label.as_str().len() as u64);
            self.bytes.extend(label.as_str().as_bytes());
        }
    }

    fn hold(&mut self, hold: &Hold) {
        self.head(flag(hold.handed, MARKED) | flag(hold.label.is_some(), LABELLED), &hold.token, hold.share);
        self.number(hold.fence.get());
        self.time(hold.since);
        self.number(nanos(hold.until).saturating_sub(nanos(hold.since)));
        self.number(nanos(hold.ttl));
        self.number(hold.step.into());
        self.label(hold.label.as_ref());
    }

    fn waiter(&mut self, waiter: &Waiter) {
        let label = waiter.terms.as_ref().and_then(|terms| terms.label.as_ref());
        let flags =
            flag(waiter.called, MARKED) | flag(waiter.terms.is_some(), DIRECT) | flag(label.is_some(), LABELLED);
        self.head(flags, &waiter.token, waiter.share);
        self.number(waiter.client);
        self.time(waiter.present);
        if let Some(terms) = &waiter.terms {
            self.number(nanos(terms.ttl));
        }
        self.label(label);
    }
}

fn read(body: &[u8]) -> Option<PermitState> {
    let mut input = Reader { rest: body.get(1..)?, base: 0 };
    input.base = input.number()?;
    let (holds, waiters, upgrades) = (input.number()?, input.number()?, input.number()?);
    let most = (input.rest.len() / SHORTEST) as u64;
    if holds > most || waiters > most || upgrades > 1 {
        return None;
    }
    let holds = (0..holds).map(|_| input.hold()).collect::<Option<Vec<_>>>()?;
    let line = (0..waiters).map(|_| input.waiter()).collect::<Option<_>>()?;
    let growth = if upgrades == 1 { Some(input.growth()?) } else { None };
    let used = holds.iter().map(|hold| u64::from(hold.share.weight)).sum();
    input.rest.is_empty().then_some(PermitState { holds, line, growth, used })
}

struct Reader<'a> {
    rest: &'a [u8],
    base: u64,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for at in 0..10 {
            let byte = self.take(1)?[0];
            let bits = u64::from(byte & 0x7f);
            if at == 9 && bits > 1 {
                return None; // more than 64 bits
            }
            number |= bits << (7 * at);
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn small(&mut self) -> Option<u32> {
        self.number()?.try_into().ok()
    }

    fn span(&mut self) -> Option<Duration> {
        self.number().map(Duration::from_nanos)
    }

    fn time(&mut self) -> Option<Duration> {
        self.number()?.checked_add(self.base).map(Duration::from_nanos)
    }

    fn head(&mut self, known: u8) -> Option<(u8, OwnerToken, Share)> {
        let flags = self.take(1)?[0];
        let token = OwnerToken::from_bits(self.take(TOKEN)?.try_into().ok()?);
        let share = Share { weight: self.small()?, capacity: self.small()? };
        (flags & !known == 0 && share.is_possible()).then_some((flags, token, share))
    }

    /// The label, or that there is none.
    fn label(&mut self, flags: u8) -> Option<Option<Label>> {
        if flags & LABELLED == 0 {
            return Some(None);
        }
        let length = usize::try_from(self.number()?).ok()?;
        let text = std::str::from_utf8(self.take(length)?).ok()?;
        Label::new(text).ok().map(Some)
    }

    fn hold(&mut self) -> Option<Hold> {
        let (flags, token, share) = self.head(MARKED | LABELLED)?;
        let fence = FencingToken::new(self.number()?)?;
        let since = self.time()?;
        let (until, ttl, step) = (since + self.span()?, self.span()?, self.small()?);
        let label = self.label(flags)?;
        Some(Hold { token, share, fence, since, until, ttl, label, handed: flags & MARKED != 0, step })
    }

    fn waiter(&mut self) -> Option<Waiter> {
        let (flags, token, share) = self.head(MARKED | LABELLED | DIRECT)?;
        let (client, present) = (self.number()?, self.time()?);
        let terms = match flags & DIRECT {
            0 if flags & LABELLED != 0 => return None,
            0 => None,
            _ => Some(Terms { ttl: self.span()?, label: self.label(flags)? }),
        };
        Some(Waiter { token, client, share, present, called: flags & MARKED != 0, terms })
    }

    fn growth(&mut self) -> Option<Growth> {
        let (flags, token, to) = self.head(MARKED)?;
        let (client, present) = (self.number()?, self.time()?);
        Some(Growth { token, client, to, present, called: flags & MARKED != 0 })
    }
}
