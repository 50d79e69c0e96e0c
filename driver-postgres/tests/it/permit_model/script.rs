//! Scripts that are drawn at random.

use tenure_core::driver::Share;
use tenure_models::Rng;

use super::record::IMPOSSIBLE;

pub(super) const CLIENTS: usize = 6;
/// The client whose session does not listen.
pub(super) const DEAF: usize = 5;
const MOVES: usize = 60;

/// A request. Spans are in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(super) enum Op {
    /// With a presence and whether it takes a hold without asking, if it waits.
    Ask {
        who: usize,
        share: Share,
        ttl: i64,
        join: Option<(i64, bool)>,
        label: bool,
    },
    /// `back` is 0 for the next change, 1 to repeat the last one, 2 for one that arrives late.
    Resize {
        who: usize,
        to: Share,
        back: u32,
        presence: Option<i64>,
    },
    /// Of this client and of the next one.
    Renew {
        who: usize,
        ttl: i64,
        waits: bool,
    },
    Release(usize),
    Abandon {
        who: usize,
        anew: bool,
    },
    /// One of the fences of the holders, or the last one.
    Evict(usize),
    Inspect(i64),
}

/// A request, and the time before it in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Move {
    pub(super) after: i64,
    pub(super) op: Op,
}

#[derive(Clone, Debug)]
pub(super) struct Script {
    pub(super) moves: Vec<Move>,
}

impl Script {
    pub(super) fn draw(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let (kind, waiting) = (rng.below(5), rng.below(100));
        let hurries = rng.below(2) == 0;
        let moves = (0..MOVES).map(|_| {
            let after = match rng.below(200) {
                0 => 2 * 86_400_000,
                1..40 => 500,
                40..60 => 1_000,
                60..80 if !hurries => 2_000,
                80..90 if !hurries => 4_000,
                _ => 0,
            };
            Move { after, op: op(&mut rng, kind, waiting) }
        });
        Self { moves: moves.collect() }
    }
}

fn op(rng: &mut Rng, kind: u64, waiting: u64) -> Op {
    let who = rng.below(CLIENTS as u64) as usize;
    let spans = [1_000, 2_000, 3_000, 5_000, 8_000];
    match rng.below(100) {
        0..48 => {
            let joins = rng.below(100) < waiting.max(30);
            let join = joins.then(|| (rng.one_of(&[500, 1_500, 3_000, 6_000, 9_000]), rng.below(2) == 0));
            Op::Ask { who, share: share(rng, kind), ttl: rng.one_of(&spans), join, label: rng.below(3) == 0 }
        }
        48..66 => {
            let presence = (rng.below(3) > 0).then(|| rng.one_of(&spans));
            Op::Resize { who, to: share(rng, kind), back: rng.one_of(&[0, 0, 0, 0, 1, 2]), presence }
        }
        66..74 => Op::Renew { who, ttl: rng.one_of(&spans), waits: rng.below(2) == 0 },
        74..86 => Op::Release(who),
        86..92 => Op::Abandon { who, anew: rng.below(2) == 0 },
        92..97 => Op::Evict(rng.below(8) as usize),
        _ => Op::Inspect(rng.one_of(&[0, 1, 100])),
    }
}

fn share(rng: &mut Rng, kind: u64) -> Share {
    if rng.below(60) == 0 {
        return IMPOSSIBLE;
    }
    let weight = 1 + rng.below(4) as u32;
    match kind {
        0 => Share { weight: 1, capacity: 1 },
        1 => Share { weight, capacity: 5 },
        2 => Share { weight, capacity: rng.one_of(&[4, 6]) },
        3 => rng.one_of(&[Share::READER, Share::READER, Share::WRITER]),
        _ => rng.one_of(&[Share::READER, Share::UPGRADABLE, Share::WRITER]),
    }
}

/// The text of a token.
pub(super) fn text_of(bits: [u8; 16]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    // Four bits of zero behind the 128 make 22 characters of six bits.
    let number = u128::from_be_bytes(bits);
    let digit = |at: u32| if at == 0 { (number << 4) & 0x3f } else { (number >> (6 * at - 4)) & 0x3f };
    (0..22).rev().map(|at| char::from(ALPHABET[digit(at) as usize])).collect()
}
