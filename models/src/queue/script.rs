use std::time::Duration;

use super::draw::{Draw, Op};
use super::side::Side;

/// How long one script is.
const STEPS: usize = 400;

/// An operation, and how much time passes before. It is never none: what is put at a time is put there later than what an
/// earlier operation put there, so that the orders agree.
#[derive(Clone, Debug)]
pub struct Move {
    /// How much time.
    pub after: Duration,
    /// What is done then.
    pub op: Op,
}

/// What went wrong, and the operations until then.
#[derive(Debug)]
pub struct Wrong {
    /// The last one is the one that did.
    pub moves: Vec<Move>,
    /// For people.
    pub what: String,
}

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
