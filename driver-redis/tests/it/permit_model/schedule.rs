//! The schedules: who takes part, and what they do.

use std::time::Duration;

use tenure_core::driver::{AcquireRequest, Family, Handing, PermitHold, PermitRequest, Queueing, Share, Ttl};
use tenure_core::{FenceFloor, Label, OwnerToken};
use tenure_redis::{Fences, RedisSettings};

use crate::common::name;
use tenure_models::Rng;

pub(crate) const NAME: &str = "m";
pub(crate) const CLIENTS: usize = 3;
/// The client that does not hear.
pub(crate) const DEAF: usize = 1;
/// How many may wait.
pub(crate) const MOST_WAITERS: u32 = 5;
/// How many may hold: a number that is put into the scripts.
pub(crate) const MOST_HOLDERS: u32 = 4;
const STEPS: u64 = 40;

/// What is shared.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Mutex,
    Semaphore,
    /// A semaphore whose clients name two capacities.
    TwoLimits,
    ReadWrite,
}

impl Kind {
    pub(crate) fn family(self) -> Family {
        if matches!(self, Self::ReadWrite) { Family::RwLock } else { Family::Semaphore }
    }

    fn share(self, rng: &mut Rng) -> Share {
        let some = |most: u64, capacity| move |rng: &mut Rng| Share { weight: 1 + rng.below(most) as u32, capacity };
        if rng.below(60) == 0 {
            return Share { weight: rng.one_of(&[0, 8]), capacity: 7 };
        }
        match self {
            Self::Mutex => Share { weight: 1, capacity: 1 },
            Self::Semaphore => some(3, 6)(rng),
            Self::TwoLimits => some(3, rng.one_of(&[3, 5, 6]))(rng),
            Self::ReadWrite => rng.one_of(&[Share::READER, Share::READER, Share::UPGRADABLE, Share::WRITER]),
        }
    }
}

/// How fences grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Growing {
    Clock,
    Counter,
}

impl Growing {
    pub(crate) const ALL: [Self; 2] = [Self::Clock, Self::Counter];

    pub(crate) fn settings(self) -> RedisSettings {
        let usual = RedisSettings::default().max_waiters(MOST_WAITERS).unwrap();
        match self {
            Self::Clock => usual,
            Self::Counter => usual.fences(Fences::Counter).fence_floor(FenceFloor::new(1_000).unwrap()),
        }
    }
}

/// One that wants a share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker {
    pub(crate) client: usize,
    pub(crate) share: Share,
    accepts: Handing,
    presence: u64,
    ttl: u64,
}

impl Asker {
    fn draw(rng: &mut Rng, kind: Kind) -> Self {
        let client = rng.below(CLIENTS as u64) as usize;
        let accepts = if client == 0 { Handing::Direct } else { rng.one_of(&[Handing::Direct, Handing::Asked]) };
        let (share, presence, ttl) = (kind.share(rng), rng.one_of(&[1, 3, 4, 9, 30]), rng.one_of(&[1, 2, 3, 4, 6, 90]));
        Self { client, share, accepts, presence, ttl }
    }

    pub(crate) fn request(&self, family: Family, token: OwnerToken, joins: bool) -> PermitRequest {
        let presence = Duration::from_secs(self.presence);
        let queue = if joins { Queueing::Join { presence, accepts: self.accepts } } else { Queueing::None };
        let label = (self.ttl > 3).then(|| Label::new("label;with;signs").unwrap());
        let lock = AcquireRequest::new(name(NAME), token, seconds(self.ttl)).with_queue(queue).with_label(label);
        PermitRequest::new(family, self.share, lock)
    }
}

pub(crate) fn seconds(number: u64) -> Ttl {
    Ttl::new(Duration::from_secs(number)).unwrap()
}

/// What one does, and how many microseconds pass before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Move {
    pub(crate) after: u64,
    pub(crate) step: Step,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// Asks, and joins the line.
    Ask(usize),
    /// Asks, and leaves no trace.
    Try(usize),
    Release(usize),
    /// One of the holders gives its hold back. Few schedules would get far otherwise.
    ReleaseAny(u64),
    /// Undoes every request; the asker begins anew, or asks in vain.
    Abandon(usize, Then),
    /// Renews the holds of all for so many seconds.
    Renew(u64),
    Resize(usize, Change),
    /// One of the holders changes its hold.
    ResizeAny(u64, Change),
    /// Takes the hold with the last fence, the one before, ….
    Evict(usize),
    Pass(u64),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    pub(crate) to: Share,
    pub(crate) presence: Option<u64>,
    /// What is added to the number of the asker's last change.
    pub(crate) step: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    Anew,
    TheSame,
}

impl Step {
    fn draw(rng: &mut Rng, kind: Kind, askers: usize) -> Self {
        let who = rng.below(askers as u64) as usize;
        let change = |rng: &mut Rng| Change {
            to: kind.share(rng),
            presence: rng.one_of(&[None, Some(1), Some(4), Some(20)]),
            step: rng.one_of(&[1, 1, 1, 0, -1]),
        };
        match rng.below(44) {
            0..16 => Self::Ask(who),
            16..18 => Self::Try(who),
            18..20 => Self::Release(who),
            20..26 => Self::ReleaseAny(rng.below(4)),
            26..28 => Self::Abandon(who, Then::Anew),
            28 => Self::Abandon(who, Then::TheSame),
            29..31 => Self::Renew(1 + rng.below(8)),
            31 => Self::Resize(who, change(rng)),
            32..37 => Self::ResizeAny(rng.below(4), change(rng)),
            37 => Self::Evict(rng.below(4) as usize),
            38 => rng.one_of(&[Self::Pass(61), Self::Pass(130), Self::Pass(10)]),
            _ => Self::Pass(1 + rng.below(3)),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    pub(crate) kind: Kind,
    pub(crate) fences: Growing,
    pub(crate) askers: Vec<Asker>,
    pub(crate) moves: Vec<Move>,
}

impl Schedule {
    pub(crate) fn draw(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let kind = rng.one_of(&[Kind::Mutex, Kind::Semaphore, Kind::Semaphore, Kind::TwoLimits, Kind::ReadWrite]);
        let askers: Vec<_> = (0..2 + rng.below(9)).map(|_| Asker::draw(&mut rng, kind)).collect();
        let one = |_| Move { after: rng.one_of(&[0, 0, 1, 7, 100]), step: Step::draw(&mut rng, kind, askers.len()) };
        let moves = (0..STEPS).map(one).collect();
        let fences = rng.one_of(&[Growing::Clock, Growing::Clock, Growing::Counter]);
        Self { kind, fences, askers, moves }
    }
}

/// The askers, by the tokens that both sides know.
pub(crate) struct Cast {
    pub(crate) family: Family,
    pub(crate) askers: Vec<Asker>,
    pub(crate) tokens: Vec<OwnerToken>,
    /// The number of each one's last change.
    pub(crate) steps: Vec<i64>,
}

impl Cast {
    pub(crate) fn of(schedule: &Schedule) -> Self {
        let (family, askers) = (schedule.kind.family(), schedule.askers.clone());
        let (tokens, steps) = askers.iter().map(|_| (OwnerToken::random(), 0)).collect();
        Self { family, askers, tokens, steps }
    }

    pub(crate) fn begin_anew(&mut self, who: usize) {
        (self.tokens[who], self.steps[who]) = (OwnerToken::random(), 0);
    }

    pub(crate) fn who(&self, token: &OwnerToken) -> Option<usize> {
        self.tokens.iter().position(|known| known == token)
    }

    pub(crate) fn hold(&self, who: usize) -> PermitHold {
        PermitHold::new(self.family, name(NAME), self.tokens[who])
    }
}
