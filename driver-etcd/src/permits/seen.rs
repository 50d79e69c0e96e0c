//! A name as one transaction read it, and the decisions over it: those of core's rule.

use etcd_client::{KeyValue, TxnResponse};
use tenure_core::driver::Share;
use tenure_core::{Error, ErrorKind, OwnerToken, Result};

use crate::answer::{HoldSeen, hold_of};
use crate::keys::{NameKeys, Spot};
use crate::link::{odd, reads, revision};
use crate::record::{Part, share_of, share_text};
use crate::tickets::Place;

/// The most holders of one name: each request reads all of them.
pub(super) const MOST_HOLDERS: usize = 128;
/// The waiters that a request reads: no more than these can fit at once.
pub(super) const FRONT: usize = MOST_HOLDERS;

const HEADER: &str = "tenure/1\n";

/// A name at one revision, as one token sees it.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) revision: i64,
    pub(super) holds: Vec<Held>,
    pub(super) growth: Option<Growing>,
    /// The revision in which that key was written, also if its hold has ended; 0 if it is not there.
    pub(super) grow_written: i64,
    /// The first waiters.
    pub(super) front: Vec<Waiter>,
    /// The number of all waiters.
    pub(super) waiters: u32,
    pub(super) own: Option<Own>,
}

/// The token's own place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Own {
    pub(super) place: Place,
    pub(super) share: Share,
    /// The number of waiters before it.
    pub(super) ahead: u32,
}

#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) token: OwnerToken,
    pub(super) part: Part,
    pub(super) seen: HoldSeen,
}

/// The hold that waits to weigh more, if it is still held.
#[derive(Clone, Copy, Debug)]
pub(super) struct Growing {
    pub(super) token: OwnerToken,
    pub(super) to: Share,
    pub(super) written: i64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Waiter {
    pub(super) place: Place,
    pub(super) share: Share,
}

/// The value of a place.
pub(super) fn place_value(share: Share) -> String {
    format!("{HEADER}{}", share_text(share))
}

/// The value of the key of a hold that waits to weigh more.
pub(super) fn grow_value(to: Share, token: &OwnerToken) -> String {
    format!("{HEADER}{}entry={}\n", share_text(to), token.expose().as_str())
}

/// Reads either of the two.
pub(super) fn read_value(value: &[u8]) -> Option<(Share, Option<OwnerToken>)> {
    let text = std::str::from_utf8(value).ok()?.strip_prefix(HEADER)?;
    let mut lines = text.lines();
    let share = share_of(lines.next()?.strip_prefix("share=")?)?;
    let token = lines.next().and_then(|line| OwnerToken::parse(line.strip_prefix("entry=")?).ok());
    Some((share, token))
}

impl Held {
    pub(super) fn of(key: &KeyValue) -> Option<Self> {
        let seen = hold_of(key);
        let record = seen.record.as_ref()?;
        let (part, token) = (record.permit?, *record.entries.first()?);
        Some(Self { token, part, seen })
    }

    pub(super) const fn weight(&self) -> u64 {
        self.part.share.weight as u64
    }
}

impl Growing {
    fn of(key: &KeyValue) -> Option<Self> {
        let (to, token) = read_value(key.value())?;
        Some(Self { token: token?, to, written: key.mod_revision() })
    }
}

impl Waiter {
    fn of(key: &KeyValue, keys: &NameKeys) -> Option<Self> {
        let spot: Spot = keys.whose(key.key()).filter(|_| key.lease() != 0)?;
        let share = read_value(key.value())?.0;
        Some(Self { place: Place { spot, revision: key.create_revision(), lease: key.lease() }, share })
    }
}

/// What a look found; the last of `also` further reads of the answer are for the caller.
pub(super) fn seen(answer: &TxnResponse, keys: &NameKeys, token: &OwnerToken, before: usize) -> Result<Seen> {
    let revision = revision(answer)?;
    let reads = reads(answer);
    let form = || odd("an answer of an unexpected form");
    let [holders, line, rest @ ..] = reads.get(before..).ok_or_else(form)? else { return Err(form()) };
    let (mut holds, mut growth) = (Vec::new(), None);
    for key in holders.kvs() {
        match Held::of(key) {
            Some(held) => holds.push(held),
            None if key.key().ends_with(b"/grow") => growth = Growing::of(key),
            None => {
                let text = format!("{} is not a hold of permits; nothing was granted", key.key().escape_ascii());
                return Err(Error::new(ErrorKind::Damaged, text));
            }
        }
    }
    let grow_written = growth.map_or(0, |growth: Growing| growth.written);
    let growth = growth.filter(|growth| holds.iter().any(|held| held.token == growth.token));
    let front: Vec<Waiter> = line.kvs().iter().filter_map(|key| Waiter::of(key, keys)).collect();
    let at = front.iter().position(|waiter| waiter.place.spot.token == *token);
    let own = match (at, rest) {
        (Some(at), _) => {
            let Waiter { place, share } = front[at];
            Some(Own { place, share, ahead: u32::try_from(at).unwrap_or(u32::MAX) })
        }
        (None, [own, ahead, ..]) => own.kvs().first().and_then(|key| Waiter::of(key, keys)).map(|waiter| Own {
            place: waiter.place,
            share: waiter.share,
            ahead: u32::try_from(ahead.count()).unwrap_or(u32::MAX),
        }),
        (None, _) => None,
    };
    let waiters = u32::try_from(line.count()).unwrap_or(u32::MAX);
    Ok(Seen { revision, holds, growth, grow_written, front, waiters, own })
}

impl Seen {
    pub(super) fn used(&self) -> u64 {
        self.holds.iter().map(Held::weight).sum()
    }

    pub(super) fn hold_of(&self, token: &OwnerToken) -> Option<&Held> {
        self.holds.iter().find(|held| held.token == *token)
    }

    /// Whether all waiters were read.
    pub(super) fn is_whole(&self) -> bool {
        self.waiters as usize <= FRONT
    }

    /// Whether a share fits beside the holds and behind so many waiters, and they still fit afterwards.
    pub(super) fn fits(&self, before: u32, share: Share) -> bool {
        let before = before as usize;
        if self.growth.is_some() || before > self.front.len() || self.holds.len() + before + 1 > MOST_HOLDERS {
            return false;
        }
        let (mut used, mut least) = (self.used() + u64::from(share.weight), share.capacity);
        for waiter in &self.front[..before] {
            (used, least) = (used + u64::from(waiter.share.weight), least.min(waiter.share.capacity));
        }
        used <= u64::from(least)
    }

    /// Whether a hold with this share fits beside the others.
    pub(super) fn fits_grown(&self, held: &Held, to: Share) -> bool {
        self.used() - held.weight() + u64::from(to.weight) <= u64::from(to.capacity)
    }
}
