//! What clients were told of a queue, and what they believe, against the ledger.

use std::collections::HashSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::FutureExt as _;
use tenure_core::LockGuard;
use tenure_core::driver::{MessageState, QueueAdmin as _};
use tenure_core::queue::{Delivery, MessageId};
use tokio::task::unconstrained;
use tokio::time::Instant;

use super::{Ended, Ledger, Place, State};

/// Somebody waits for a message, until this is dropped.
pub(crate) struct Receiving(Arc<Ledger>);

/// A handler works, until this is dropped.
pub(crate) struct Handling {
    ledger: Arc<Ledger>,
    id: MessageId,
    fence: u64,
}

/// What clients were told, and believe.
impl Ledger {
    pub(crate) fn receives(self: &Arc<Self>) -> Receiving {
        self.look();
        let mut state = self.state();
        state.tally.waits += 1;
        state.receiving += 1;
        drop(state);
        Receiving(Arc::clone(self))
    }

    /// A client was told that this is stored.
    pub(crate) fn told_stored(&self, serial: u64) {
        if !self.state().stored.contains(&serial) {
            self.wrong(format!("push {serial} was reported as stored, and is not"));
        }
    }

    /// A client was told that its delivery ended in this way.
    pub(crate) fn told_ended(&self, fence: u64, reported: Ended) {
        let ended = self.state().ended.get(&fence).copied();
        if ended != Some(reported) && ended != Some(Ended::Recurs) {
            self.wrong(format!("the delivery {fence} was reported {reported:?}, and is {ended:?}"));
        }
    }

    /// A client was given this.
    pub(crate) fn received(&self, client: usize, delivery: &Arc<Delivery<Vec<u8>>>) {
        let (id, fence, lost) = (delivery.id(), delivery.fence().get(), delivery.is_lost());
        self.note(|| format!("{client}: received {id} with …{}, lost: {lost}", fence % 10_000));
        self.saw(id, fence, lost);
        self.state().deliveries.push((client, Arc::downgrade(delivery)));
        self.look();
    }

    fn saw(&self, id: &MessageId, fence: u64, lost: bool) {
        let mut state = self.state();
        state.tally.grants += 1;
        state.tally.lost += u64::from(lost);
        let last = state.seen.entry(id.clone()).or_default();
        let wrong = (fence <= *last && !lost).then(|| format!("{id} was received with {fence}, after {last}"));
        *last = fence.max(*last);
        drop(state);
        self.all_wrong(wrong.into_iter().collect());
    }

    /// Somebody does something under the lock.
    pub(crate) fn holds(&self, guard: &Arc<LockGuard>) {
        self.state().holders.push(Arc::downgrade(guard));
        self.look();
    }

    /// How many do something under the lock.
    fn holding(state: &mut State) -> usize {
        state.holders.retain(|guard| guard.strong_count() > 0);
        let guards: Vec<_> = state.holders.iter().filter_map(Weak::upgrade).collect();
        guards.iter().filter(|guard| guard.is_held()).count()
    }

    /// A handler begins.
    pub(crate) fn handles(self: &Arc<Self>, id: &MessageId, fence: u64) -> Handling {
        self.note(|| format!("a handler begins {id} with …{}", fence % 10_000));
        self.saw(id, fence, false);
        self.state().handlers.push((id.clone(), fence));
        Handling { ledger: Arc::clone(self), id: id.clone(), fence }
    }

    /// Compares what is believed with what is.
    pub(crate) fn look(&self) {
        let now = Instant::now();
        let mut wrong = Vec::new();
        let mut state = self.state();
        state.deliveries.retain(|(_, delivery)| delivery.strong_count() > 0);
        let believed: Vec<_> =
            state.deliveries.iter().filter_map(|(client, delivery)| Some((*client, delivery.upgrade()?))).collect();
        for (client, delivery) in &believed {
            let remaining = delivery.remaining();
            if remaining.is_zero() {
                continue;
            }
            let id = delivery.id();
            match state.messages.get(id).map(|message| message.place) {
                Some(Place::InFlight { receipt, until })
                    if state.receipts.get(&receipt).is_some_and(|(_, fence)| *fence == delivery.fence().get()) =>
                {
                    if until < now + remaining {
                        let left = until.saturating_duration_since(now);
                        wrong.push(format!("client {client} believes in {remaining:?} of {id}, which has {left:?}"));
                    }
                }
                place => wrong.push(format!("client {client} believes in a delivery of {id}, which is {place:?}")),
            }
        }
        let holding = Self::holding(&mut state);
        if holding > 1 {
            wrong.push(format!("{holding} hold the lock"));
        }
        let idle = self.idle(&mut state, now);
        drop(state);
        drop(believed);
        self.all_wrong(wrong);
        if let Some((id, idle)) = idle
            && self.is_ready(&id)
        {
            self.wrong(format!("{id} could be delivered for {idle:?}, and somebody received"));
        }
    }

    /// What waits for too long though somebody receives.
    fn idle(&self, state: &mut State, now: Instant) -> Option<(MessageId, Duration)> {
        if !state.has_room(&self.limits, now) {
            state.idle_since = None;
            return None;
        }
        let busy: HashSet<_> = state
            .messages
            .values()
            .filter(|message| message.is_in_flight(now))
            .filter_map(|message| message.key.as_ref())
            .collect();
        let ready = state.messages.iter().filter_map(|(id, message)| {
            let free = message.key.as_ref().is_none_or(|key| !busy.contains(key));
            let dies = message.attempt >= message.attempts || message.expires.is_some_and(|end| end < now);
            let since = message.ready_since(now).filter(|_| free && !dies)?;
            Some((since, id))
        });
        let oldest = ready.min().map(|(since, id)| (since, id.clone()));
        let Some((since, id)) = oldest.filter(|_| state.receiving > 0) else {
            state.idle_since = None;
            return None;
        };
        let since = state.idle_since.get_or_insert(now).max(&mut { since }).max(&mut { self.storm_until }).to_owned();
        let idle = now.saturating_duration_since(since);
        (idle > self.idle).then_some((id, idle))
    }

    /// Whether the store itself says that it is due: a receive may have moved it to the dead letters.
    fn is_ready(&self, id: &MessageId) -> bool {
        self.stands(id).is_some_and(|state| state == MessageState::Ready)
    }

    fn stands(&self, id: &MessageId) -> Option<MessageState> {
        let looked = unconstrained(self.memory.get(&self.queue, id)).now_or_never();
        looked.expect("nothing delays the store itself").expect("it answers").map(|info| info.state)
    }

    /// Messages that come again and again.
    pub(crate) fn recurring(&self) -> Vec<MessageId> {
        self.state().messages.iter().filter(|(_, message)| message.recurs).map(|(id, _)| id.clone()).collect()
    }

    /// What is in flight though all clients are closed.
    pub(crate) fn nothing_is_in_hand(&self) {
        let now = Instant::now();
        let left =
            self.state().messages.iter().find(|(_, message)| message.is_in_flight(now)).map(|(id, _)| id.clone());
        if let Some(id) = left {
            self.wrong(format!("{id} is in hand, and all clients are closed"));
        }
    }

    /// Everything that was stored was settled, cancelled, or is dead for a reason.
    pub(crate) fn nothing_is_lost(&self) {
        let wrong = {
            let state = self.state();
            state.messages.iter().find_map(|(id, message)| {
                let stands = self.stands(id);
                let gone = matches!(message.place, Place::Settled { .. } | Place::Cancelled);
                let may_die = message.place == Place::Dead
                    || message.attempt >= message.attempts
                    || message.expires.is_some_and(|end| end < Instant::now());
                let right = match stands {
                    None => gone,
                    Some(MessageState::Dead) => may_die && !gone,
                    Some(_) => false,
                };
                (!right).then(|| format!("{id} is {stands:?} in the end, and was {:?}", message.place))
            })
        };
        self.all_wrong(wrong.into_iter().collect());
    }
}

impl Handling {
    /// A handler that goes on has a message whose lease lasts.
    pub(crate) fn goes_on(&self) {
        let mut state = self.ledger.state();
        let place = state.messages.get(&self.id).map(|message| message.place);
        let now = Instant::now();
        let right = matches!(place, Some(Place::InFlight { receipt, until }) if until > now
            && state.receipts.get(&receipt).is_some_and(|(_, fence)| *fence == self.fence));
        let locked = |id: &MessageId| state.messages.get(id).is_some_and(|message| message.locked);
        let others = state.handlers.iter().filter(|(id, fence)| locked(id) && *fence != self.fence).count();
        let alone = !locked(&self.id) || others + Ledger::holding(&mut state) == 0;
        drop(state);
        if !alone {
            self.ledger.wrong(format!("a handler of {} is not alone under its lock", self.id));
        }
        if !right {
            self.ledger.wrong(format!("a handler of {} goes on, and that is {place:?}", self.id));
        }
    }
}

impl Drop for Handling {
    fn drop(&mut self) {
        self.ledger.state().handlers.retain(|(id, fence)| (id, *fence) != (&self.id, self.fence));
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        self.0.state().receiving -= 1;
        self.0.look();
    }
}
