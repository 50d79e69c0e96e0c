//! The decisions, with time and fences as plain arguments. No runtime, no clock.

mod bytes;
mod model;
mod table;

use std::collections::HashSet;
use std::convert::Infallible;
use std::time::Duration;

use super::Outside;
use crate::driver::{AcquireRequest, Handing, Queueing, Share, Ttl};
use crate::rules::locks::{Given, Heard};
use crate::{FencingToken, Label, LockName, OwnerToken};

/// The data that outlives a record, and the listeners.
#[derive(Debug, Default)]
struct World {
    fence: u64,
    /// The notified waiters, in order.
    signalled: Vec<(OwnerToken, Option<Given>)>,
    /// Waiters that can receive no wake-ups.
    deaf: HashSet<OwnerToken>,
    /// Waiters without a listener at the moment.
    absent: HashSet<OwnerToken>,
    buried: HashSet<OwnerToken>,
}

impl Outside for &mut World {
    type Error = Infallible;

    fn fence(&mut self) -> Result<FencingToken, Infallible> {
        self.fence += 1;
        Ok(FencingToken::new(self.fence).unwrap())
    }

    fn signal(&mut self, waiter: &OwnerToken, _client: u64, given: Option<Given>) -> Result<Heard, Infallible> {
        if self.deaf.contains(waiter) {
            return Ok(Heard::Never);
        }
        if self.absent.contains(waiter) {
            return Ok(Heard::ByNobody);
        }
        self.signalled.push((*waiter, given));
        Ok(Heard::Yes)
    }

    fn bury(&mut self, token: &OwnerToken) -> Result<(), Infallible> {
        self.buried.insert(*token);
        Ok(())
    }

    fn is_buried(&self, token: &OwnerToken) -> Result<bool, Infallible> {
        Ok(self.buried.contains(token))
    }
}

/// The token with this number.
fn token(number: u64) -> OwnerToken {
    OwnerToken::from_bits(u128::from(number).to_be_bytes())
}

const fn share(weight: u32, capacity: u32) -> Share {
    Share { weight, capacity }
}

fn request(name: &LockName, token: OwnerToken, ttl: Duration, queue: Queueing) -> AcquireRequest {
    AcquireRequest::new(name.clone(), token, Ttl::new(ttl).unwrap()).with_queue(queue)
}

const fn join(presence: Duration, accepts: Handing) -> Queueing {
    Queueing::Join { presence, accepts }
}

fn label(text: &str) -> Option<Label> {
    Some(Label::new(text).unwrap())
}
