//! How operations are drawn.

use std::time::Duration;

use tenure_core::LockName;
use tenure_core::driver::{Attempts, Delay, Due, IfKnown, Lease, Listed, NamedId, NewMessage, Payload, Settlement};
use tenure_core::queue::{ConcurrencyKey, MessageId, QueueLimits, Rate, Reason, Recurrence};

use super::op::{Move, Op, Target, UNIT, delay, lease, lock};
use super::side::Side;
use crate::Rng;

/// How long one script is.
const STEPS: usize = 400;

/// Where operations come from.
#[derive(Debug)]
pub enum Source<'a> {
    /// From a seed.
    Drawn(Draw),
    /// These.
    Given(std::slice::Iter<'a, Move>),
}

impl<'a> Source<'a> {
    /// The operations of a seed.
    #[must_use]
    pub fn drawn(seed: u64) -> Self {
        Self::Drawn(Draw::new(seed))
    }

    /// These operations.
    #[must_use]
    pub fn given(moves: &'a [Move]) -> Self {
        Self::Given(moves.iter())
    }

    /// The next one; `model` says what there is that it can be about.
    pub fn next(&mut self, done: usize, model: &Side) -> Option<Move> {
        match self {
            Self::Drawn(_) if done == STEPS => None,
            Self::Drawn(draw) => Some(draw.next(model)),
            Self::Given(moves) => moves.next().cloned(),
        }
    }
}

/// Random values of queues.
impl Rng {
    fn delay(&mut self) -> Delay {
        delay(self.one_of(&[0, 0, 1, 2, 5]))
    }

    fn lease(&mut self) -> Lease {
        lease(1 + self.below(3) as u32)
    }

    /// One in six times what `draw` draws.
    fn seldom<T>(&mut self, draw: impl FnOnce(&mut Self) -> T) -> Option<T> {
        (self.below(6) == 0).then(|| draw(self))
    }

    fn recurrence(&mut self) -> Recurrence {
        Recurrence::new(["every day", "\u{e9}"][self.below(2) as usize]).unwrap()
    }

    fn limits(&mut self) -> QueueLimits {
        let places = QueueLimits::none().in_flight(3 + self.below(4) as u32).unwrap();
        let rate = Rate::new(3 + self.below(4) as u32, UNIT * 3).unwrap();
        match self.below(4) {
            0 => places,
            1 => QueueLimits::none().rate(rate),
            2 => places.rate(rate),
            _ => QueueLimits::none(),
        }
    }

    fn reason(&mut self) -> Option<Reason> {
        (self.below(2) == 0).then(|| Reason::new(["", "because"][self.below(2) as usize]).unwrap())
    }
}

/// The source of random operations.
#[derive(Debug)]
pub struct Draw {
    rng: Rng,
    lock: LockName,
    pushed: u64,
    /// Whether anything was pushed, and delivered.
    known: (bool, bool),
}

impl Draw {
    pub(super) fn new(seed: u64) -> Self {
        Self { rng: Rng::new(seed), lock: lock(), pushed: 0, known: (false, false) }
    }

    /// An operation, after a short time.
    pub(super) fn next(&mut self, side: &Side) -> Move {
        let after = Duration::from_micros(self.rng.one_of(&[1, 7, 100, 1_000]));
        Move { after, op: self.op(side) }
    }

    fn message(&mut self) -> NewMessage {
        let rng = &mut self.rng;
        self.pushed += 1;
        let due = match rng.below(6) {
            0 => Due::Parked { at_most: rng.delay() },
            _ => Due::After(rng.delay()),
        };
        let window = Delay::new(UNIT * [0, 2][rng.below(2) as usize]).unwrap();
        NewMessage::new(Payload::new(format!("message {}", self.pushed).into_bytes()).unwrap())
            .with_due(due)
            .with_id((rng.below(3) == 0).then(|| NamedId::new(name(rng), window)))
            .with_key(
                (rng.below(3) == 0)
                    .then(|| ConcurrencyKey::new(["a", "ab", "\0\u{ff}"][rng.below(3) as usize]).unwrap()),
            )
            .with_lock((rng.below(3) == 0).then(|| self.lock.clone()))
            .with_attempts(Attempts::new(1 + rng.below(3) as u32).unwrap())
            .with_ttl(rng.seldom(|rng| Delay::new(UNIT * [1, 3][rng.below(2) as usize]).unwrap()))
            .with_if_known([IfKnown::Keep, IfKnown::Keep, IfKnown::Replace][rng.below(3) as usize])
            .with_recurrence(rng.seldom(Rng::recurrence))
    }

    fn settlement(&mut self) -> Settlement {
        let rng = &mut self.rng;
        match rng.below(10) {
            0..4 => Settlement::Ack,
            4..6 => Settlement::Retry { after: rng.delay(), reason: rng.reason() },
            6 => Settlement::Return { after: rng.delay() },
            7 => Settlement::Recur { after: rng.delay(), recurrence: rng.recurrence(), reason: rng.reason() },
            8 => Settlement::Park { lock: self.lock.clone(), at_most: rng.delay() },
            _ => Settlement::Dead { reason: rng.reason() },
        }
    }

    /// Receipts of the last deliveries mostly, of old ones sometimes.
    fn settlements(&mut self, side: &Side, most: u64) -> Vec<(usize, Settlement)> {
        let count = if self.known.1 { self.rng.below(most + 1) } else { 0 };
        (0..count).map(|_| (self.recent(side), self.settlement())).collect()
    }

    fn recent(&mut self, side: &Side) -> usize {
        let all = side.receipts.len();
        let lately = if self.rng.below(8) == 0 { 100 } else { 8 };
        all - 1 - self.rng.below((all as u64).min(lately)) as usize
    }

    fn target(&mut self, side: &Side) -> Target {
        match self.rng.below(3) {
            0 => Target::Named(name(&mut self.rng)),
            _ => Target::Index(side.ids.len() - 1 - self.rng.below((side.ids.len() as u64).min(20)) as usize),
        }
    }

    fn op(&mut self, side: &Side) -> Op {
        self.known = (!side.ids.is_empty(), !side.receipts.is_empty());
        if self.rng.below(8) == 0 {
            return Op::Pass(UNIT * (1 + self.rng.below(2) as u32));
        }
        if self.rng.below(400) == 0 {
            return Op::Flush;
        }
        let (max, delay) = (1 + self.rng.below(4) as usize, self.rng.delay());
        match self.rng.below(100) {
            0..15 => Op::Push((0..max).map(|_| self.message()).collect()),
            15..44 => Op::Receive(vec![], max, self.rng.lease()),
            44..56 => Op::Receive(self.settlements(side, 3), max, self.rng.lease()),
            56..68 if self.known.1 => Op::Settle(self.settlements(side, 4)),
            68..73 if self.known.1 => Op::Extend(self.recent(side), self.rng.lease()),
            0..82 if !self.known.0 => Op::Stats,
            73..77 => Op::Cancel(self.target(side)),
            77..82 => Op::Reschedule(self.target(side), delay),
            82..85 if self.known.0 => Op::Get(self.target(side)),
            85 if self.rng.below(2) == 0 => Op::Limit(self.rng.limits()),
            86 => Op::Limit(QueueLimits::none()),
            87 => Op::Messages([Listed::Waiting, Listed::InFlight][self.rng.below(2) as usize], max),
            88 => Op::DeadList((self.rng.below(2) == 0).then_some(max), max),
            89 if self.known.0 => Op::Redrive((0..max).map(|_| self.target(side)).collect(), delay),
            90 => Op::RedriveOldest(max, delay),
            91..94 => Op::DeadPurge(max * 5),
            94 => Op::Purge(max * 5),
            95 => Op::Pause,
            96..98 => Op::Resume,
            98 => Op::List,
            _ => Op::Stats,
        }
    }
}

fn name(rng: &mut Rng) -> MessageId {
    MessageId::named(format!("n{}", rng.below(6))).unwrap()
}
