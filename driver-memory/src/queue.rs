//! Who waits for one name, in order of arrival.

use std::collections::VecDeque;
use std::time::Duration;

use tenure_core::{Label, OwnerToken};
use tokio::time::Instant;

/// How long a waiter that was woken for a free lock keeps others from passing it.
pub(crate) const CLAIM_WINDOW: Duration = Duration::from_secs(2);

/// The queue of one name. A waiter that stopped asking lapses; [`Queue::settle`] drops it.
#[derive(Debug, Default)]
pub(crate) struct Queue(VecDeque<Waiter>);

#[derive(Debug)]
struct Waiter {
    token: OwnerToken,
    present_until: Instant,
    terms: Option<Terms>,
}

/// What a waiter is given that takes the lock without asking.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) ttl: Duration,
    pub(crate) label: Option<Label>,
    pub(crate) fences: u32,
}

impl Queue {
    /// Drops the waiters whose presence has ended.
    pub(crate) fn settle(&mut self, now: Instant) {
        if self.0.iter().any(|waiter| waiter.present_until <= now) {
            self.0.retain(|waiter| waiter.present_until > now);
        }
    }

    pub(crate) fn len(&self) -> u32 {
        u32::try_from(self.0.len()).expect("the cap on waiters is a u32")
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many are before the waiter.
    pub(crate) fn position(&self, token: &OwnerToken) -> Option<u32> {
        let at = self.0.iter().position(|waiter| waiter.token == *token)?;
        Some(u32::try_from(at).expect("the cap on waiters is a u32"))
    }

    /// Adds the waiter at the end, or renews the presence that it has.
    pub(crate) fn join(&mut self, token: OwnerToken, present_until: Instant, terms: Option<Terms>) {
        match self.0.iter_mut().find(|waiter| waiter.token == token) {
            Some(waiter) => waiter.present_until = present_until,
            None => self.0.push_back(Waiter { token, present_until, terms }),
        }
    }

    /// Takes the waiter out; tells whether it was the first.
    pub(crate) fn leave(&mut self, token: &OwnerToken) -> Left {
        match self.position(token) {
            None => Left::Absent,
            Some(at) => {
                self.0.remove(at as usize);
                if at == 0 { Left::Head } else { Left::Middle }
            }
        }
    }

    /// How long the first waiter still counts as present.
    pub(crate) fn head_lapses_in(&self, now: Instant) -> Option<Duration> {
        self.0.front().map(|head| head.present_until.saturating_duration_since(now))
    }

    /// The first waiter, to be told that the lock is free, and on which terms it takes it without asking. From now on it has
    /// the claim window to ask.
    pub(crate) fn call_head(&mut self, now: Instant) -> Option<(OwnerToken, Option<Terms>)> {
        let head = self.0.front_mut()?;
        head.present_until = head.present_until.min(now + CLAIM_WINDOW);
        Some((head.token, head.terms.clone()))
    }

    /// Whether the first waiter has no more than the claim window left, because it was told or would lapse anyway.
    pub(crate) fn head_is_called(&self, now: Instant) -> bool {
        self.head_lapses_in(now).is_none_or(|left| left <= CLAIM_WINDOW)
    }

    /// Everybody, and for how long each still counts as present.
    pub(crate) fn line(&self, now: Instant) -> Vec<(OwnerToken, Duration)> {
        self.0.iter().map(|waiter| (waiter.token, waiter.present_until.saturating_duration_since(now))).collect()
    }

    /// The waiter behind this one.
    pub(crate) fn behind(&self, token: &OwnerToken) -> Option<OwnerToken> {
        let at = self.0.iter().position(|waiter| waiter.token == *token)?;
        self.0.get(at + 1).map(|waiter| waiter.token)
    }

    /// The first waiter.
    pub(crate) fn head(&self) -> Option<OwnerToken> {
        self.0.front().map(|head| head.token)
    }
}

/// What a waiter that left was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    Absent,
    Head,
    Middle,
}
