//! The side of the rule: the record, and what is outside of it.

use std::collections::HashMap;
use std::convert::Infallible;
use std::time::Duration;

use tenure_core::driver::{ForceReleased, PermitInspection, PermitRequest, Released, Renewed, Share, Ttl};
use tenure_core::rules::locks::{Given, Heard};
use tenure_core::rules::permits::{Caps, Outside, PermitState, Rule};
use tenure_core::{FencingToken, OwnerToken};

use super::lab::{Answer, Signal};
use super::schedule::{MOST_HOLDERS, MOST_WAITERS};

/// As the scripts keep tombstones.
const TOMBSTONE: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(crate) struct World {
    fence: u64,
    pub(crate) deaf: Vec<OwnerToken>,
    pub(crate) signals: Vec<Signal>,
    buried: HashMap<OwnerToken, Duration>,
    now: Duration,
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
        self.signals.push((*waiter, given.map(|given| (given.fence, given.ttl))));
        Ok(Heard::Yes)
    }

    fn bury(&mut self, token: &OwnerToken) -> Result<(), Infallible> {
        self.buried.insert(*token, self.now + TOMBSTONE);
        Ok(())
    }

    fn is_buried(&self, token: &OwnerToken) -> Result<bool, Infallible> {
        Ok(self.buried.get(token).is_some_and(|until| *until > self.now))
    }
}

#[derive(Default)]
pub(crate) struct Model {
    pub(crate) state: PermitState,
    pub(crate) world: World,
}

fn sure<T>(answer: Result<T, Infallible>) -> T {
    answer.unwrap_or_else(|never| match never {})
}

impl Model {
    fn rule(&mut self, now: Duration) -> Rule<'_, &mut World> {
        self.world.now = now;
        let caps = Caps { waiters: MOST_WAITERS, holders: MOST_HOLDERS };
        Rule::new(&mut self.state, now, caps, &mut self.world)
    }

    pub(crate) fn acquire(&mut self, now: Duration, request: &PermitRequest) -> Answer {
        sure(self.rule(now).acquire(request.share, &request.lock)).map_err(Into::into)
    }

    pub(crate) fn resize(
        &mut self,
        now: Duration,
        token: &OwnerToken,
        to: Share,
        step: u32,
        presence: Option<Duration>,
    ) -> Answer {
        sure(self.rule(now).resize(token, to, step, presence)).map_err(Into::into)
    }

    pub(crate) fn release(&mut self, now: Duration, token: &OwnerToken) -> Released {
        sure(self.rule(now).release(token))
    }

    pub(crate) fn abandon(&mut self, now: Duration, token: &OwnerToken) {
        sure(self.rule(now).abandon(token));
    }

    pub(crate) fn evict(&mut self, now: Duration, fence: FencingToken) -> ForceReleased {
        sure(self.rule(now).evict(fence))
    }

    pub(crate) fn renew(&mut self, now: Duration, ttl: Ttl, tokens: &[OwnerToken]) -> Vec<Renewed> {
        tokens.iter().map(|token| self.state.renew(now, token, ttl.get())).collect()
    }

    pub(crate) fn inspect(&self, now: Duration, most: usize) -> PermitInspection {
        self.state.inspect(now, most)
    }
}
