//! The scripts: who takes part, and what they do.

use std::time::Duration;

use tenure_core::driver::{AcquireRequest, Handing, Queueing, Ttl};
use tenure_core::{FenceFloor, Label, OwnerId, OwnerToken};
use tenure_redis::{Fences, RedisSettings};

use crate::common::name;
use tenure_models::Rng;

pub(crate) const LOCK: &str = "m";
pub(crate) const CLIENTS: usize = 4;
/// The client that does not hear what it is told.
pub(crate) const DEAF: usize = 1;
const STEPS: u64 = 40;
const MOST_ASKERS: u64 = 8;

/// How somebody wants the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// It takes it without asking when its turn comes.
    Direct,
    /// It asks when its turn comes, as for a lease of fixed length.
    Asked,
    /// Re-entrantly, for one of two owners.
    For(usize),
}

/// Somebody who wants the lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker {
    pub(crate) client: usize,
    pub(crate) manner: Manner,
    accepts: Handing,
    presence: u64,
    ttl: u64,
}

impl Asker {
    fn draw(rng: &mut Rng) -> Self {
        let client = rng.below(CLIENTS as u64) as usize;
        let owner = Manner::For(rng.below(2) as usize);
        let manner = match client {
            0 => Manner::Direct,
            DEAF => rng.one_of(&[Manner::Direct, Manner::Asked, owner]),
            2 => owner,
            _ => Manner::Asked,
        };
        let accepts = match manner {
            Manner::Direct => Handing::Direct,
            Manner::Asked => Handing::Asked,
            Manner::For(_) => rng.one_of(&[Handing::Direct, Handing::Asked]), // a hold is never handed over
        };
        // With presences that differ, no key may depend on the end of another.
        Self { client, manner, accepts, presence: rng.one_of(&[1, 3, 4, 9, 30]), ttl: 1 + rng.below(6) }
    }

    pub(crate) fn request(&self, token: OwnerToken, joins: bool) -> AcquireRequest {
        let presence = Duration::from_secs(self.presence);
        let queue = if joins { Queueing::Join { presence, accepts: self.accepts } } else { Queueing::None };
        let label = (self.ttl > 3).then(|| Label::new("label;with;signs").unwrap());
        AcquireRequest::new(name(LOCK), token, seconds(self.ttl)).with_queue(queue).with_label(label)
    }
}

pub(crate) fn seconds(number: u64) -> Ttl {
    Ttl::new(Duration::from_secs(number)).unwrap()
}

/// What somebody does, and how many microseconds pass before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Move {
    pub(crate) after: u64,
    pub(crate) step: Step,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// Asks, and joins the queue.
    Ask(usize),
    /// Asks, and leaves no trace.
    Try(usize),
    /// Gives back what it has, and begins anew if it had something.
    Leave(usize),
    /// Whoever has the lock gives it back. Few scripts would get far otherwise.
    LeaveAny,
    /// Undoes whatever it asked for; then it begins anew, or asks in vain.
    Abandon(usize, Then),
    /// Makes what it has last for so many seconds.
    Renew(usize, u64),
    /// Takes the lock from whoever holds it; or from the hold with the last fence, the one before, ….
    Force(Option<usize>),
    /// The lease is gone, and nobody is told.
    Expire,
    /// The backend forgets everything.
    Flush,
    /// So many seconds pass.
    Pass(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    Anew,
    TheSame,
}

impl Step {
    fn draw(rng: &mut Rng, askers: usize) -> Self {
        let who = rng.below(askers as u64) as usize;
        match rng.below(40) {
            0..16 => Self::Ask(who),
            16 => Self::Try(who),
            17..19 => Self::Leave(who),
            19..26 => Self::LeaveAny,
            26..28 => Self::Abandon(who, Then::Anew),
            28 => Self::Abandon(who, Then::TheSame),
            29..31 => Self::Renew(who, 1 + rng.below(8)),
            31 => Self::Force(None),
            32 => Self::Force(Some(rng.below(2) as usize)),
            33..35 => Self::Expire,
            35 => rng.one_of(&[Self::Flush, Self::Pass(61), Self::Pass(10)]),
            _ => Self::Pass(1 + rng.below(3)),
        }
    }
}

/// The one key that lives for ever.
pub(crate) const ENDLESS: &str = "tenure:{fence}";

/// How the clients of a script are set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Setup {
    Usual,
    /// Fences count on from a floor.
    Counter,
    /// Each name has a counter of its own, which is forgotten some day.
    OfTheName,
}

/// How many may wait.
pub(crate) const MOST_WAITERS: u32 = 5;
/// What fences of a counter are greater than.
const FLOOR: u64 = 1_000;

impl Setup {
    pub(crate) const ALL: [Self; 3] = [Self::Usual, Self::Counter, Self::OfTheName];

    pub(crate) fn settings(self) -> RedisSettings {
        let usual = RedisSettings::default().max_waiters(MOST_WAITERS).unwrap();
        match self {
            Self::Usual => usual,
            Self::Counter => usual.fences(Fences::Counter).fence_floor(FenceFloor::new(FLOOR).unwrap()),
            Self::OfTheName => usual.fence_per_name(),
        }
    }

    /// Where the counter is.
    pub(crate) fn counter(self) -> &'static str {
        match self {
            Self::Usual | Self::Counter => ENDLESS,
            Self::OfTheName => "{tenure:m}:f",
        }
    }

    /// What the first fence is greater than.
    pub(crate) fn floor(self) -> u64 {
        if self == Self::Counter { FLOOR } else { 0 }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Script {
    pub(crate) setup: Setup,
    pub(crate) askers: Vec<Asker>,
    pub(crate) moves: Vec<Move>,
}

impl Script {
    pub(crate) fn draw(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let askers: Vec<_> = (0..2 + rng.below(MOST_ASKERS - 1)).map(|_| Asker::draw(&mut rng)).collect();
        let one = |_| Move { after: rng.one_of(&[0, 1, 7, 100]), step: Step::draw(&mut rng, askers.len()) };
        let moves = (0..STEPS).map(one).collect();
        let setup = rng.one_of(&[Setup::Usual, Setup::Usual, Setup::Counter, Setup::OfTheName]);
        Self { setup, askers, moves }
    }
}

/// Who asks, by the names that both sides know.
pub(crate) struct Cast {
    pub(crate) askers: Vec<Asker>,
    pub(crate) tokens: Vec<OwnerToken>,
    pub(crate) owners: [OwnerId; 2],
}

impl Cast {
    pub(crate) fn of(script: &Script) -> Self {
        let tokens = script.askers.iter().map(|_| OwnerToken::random()).collect();
        Self { askers: script.askers.clone(), tokens, owners: [OwnerId::new(), OwnerId::new()] }
    }

    pub(crate) fn owner(&self, who: usize) -> Option<OwnerId> {
        match self.askers[who].manner {
            Manner::For(owner) => Some(self.owners[owner]),
            Manner::Direct | Manner::Asked => None,
        }
    }

    pub(crate) fn who(&self, token: &str) -> Option<usize> {
        self.tokens.iter().position(|known| known.expose().as_str() == token)
    }

    pub(crate) fn hears(&self, who: usize) -> bool {
        self.askers[who].client != DEAF
    }
}
