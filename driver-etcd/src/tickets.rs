//! What this client remembers of its own tokens: which leases may exist for them, and which tokens were abandoned.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::{Error, ErrorKind, OwnerToken, Result};
use tokio::time::Instant;

use crate::grants::Lease;

/// For how long an abandoned token is refused.
pub(crate) const REMEMBERED: Duration = Duration::from_secs(60);

/// A place in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// In which revision it was made.
    pub(crate) revision: i64,
    pub(crate) lease: i64,
}

#[derive(Debug, Default)]
pub(crate) struct Tickets(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    tickets: HashMap<OwnerToken, Ticket>,
    graves: HashMap<OwnerToken, Vec<i64>>,
    burials: VecDeque<(Instant, OwnerToken)>,
}

#[derive(Debug, Default)]
struct Ticket {
    /// Every lease that may exist for the token.
    leases: Vec<Known>,
    place: Option<Place>,
    hold: Option<On>,
}

/// A lease that may exist.
#[derive(Debug)]
struct Known {
    id: i64,
    /// Once it is known to exist.
    made: Option<Lease>,
    /// How many requests that put something on it have not been answered.
    unanswered: u32,
}

/// What a hold is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct On {
    pub(crate) lease: i64,
    /// The revision in which it was granted, if this client saw it.
    pub(crate) granted: Option<i64>,
}

impl Tickets {
    /// Refuses a token that was abandoned.
    pub(crate) fn ensure_alive(&self, token: &OwnerToken) -> Result<()> {
        let mut state = self.state();
        state.forget_old(Instant::now());
        if state.graves.contains_key(token) {
            return Err(Error::new(ErrorKind::NotHeld, "this attempt was abandoned"));
        }
        Ok(())
    }

    /// Notes a lease before it is asked for.
    pub(crate) fn begin(&self, token: &OwnerToken, lease: i64) -> Result<()> {
        self.ensure_alive(token)?;
        let known = Known { id: lease, made: None, unanswered: 0 };
        self.state().tickets.entry(*token).or_default().leases.push(known);
        Ok(())
    }

    /// Notes that a lease exists.
    pub(crate) fn made(&self, token: &OwnerToken, lease: Lease) {
        self.state().known(token, lease.id, |known| known.made = Some(lease));
    }

    /// Notes that a request is about to leave that puts something on the lease.
    pub(crate) fn asks(&self, token: &OwnerToken, lease: i64) {
        self.state().known(token, lease, |known| known.unanswered += 1);
    }

    /// Notes that such a request was answered, whatever the answer.
    pub(crate) fn answered(&self, token: &OwnerToken, lease: i64) {
        self.state().known(token, lease, |known| known.unanswered = known.unanswered.saturating_sub(1));
    }

    /// The lease, if it is `wanted` for something else once nothing is on it: no request on its way can put anything on
    /// it.
    pub(crate) fn free(&self, token: &OwnerToken, lease: i64, wanted: impl FnOnce(&Lease) -> bool) -> Option<Lease> {
        let mut quiet = None;
        self.state().known(token, lease, |known| quiet = known.made.filter(|_| known.unanswered == 0));
        quiet.filter(wanted)
    }

    /// Strikes a lease that was revoked, or is parted with; `false` if it is not there.
    pub(crate) fn end(&self, token: &OwnerToken, lease: i64) -> bool {
        let mut state = self.state();
        let Some(ticket) = state.tickets.get_mut(token) else { return false };
        let known = ticket.leases.len();
        ticket.leases.retain(|known| known.id != lease);
        ticket.place = ticket.place.filter(|place| place.lease != lease);
        ticket.hold = ticket.hold.filter(|on| on.lease != lease);
        if ticket.leases.is_empty() && ticket.place.is_none() && ticket.hold.is_none() {
            state.tickets.remove(token);
            return known > 0;
        }
        ticket.leases.len() < known
    }

    pub(crate) fn place(&self, token: &OwnerToken) -> Option<Place> {
        self.state().tickets.get(token).and_then(|ticket| ticket.place)
    }

    pub(crate) fn set_place(&self, token: &OwnerToken, place: Option<Place>) {
        let mut state = self.state();
        if let Some(ticket) = state.of_the_living(token) {
            ticket.place = place;
        }
    }

    /// What the token's hold is on.
    pub(crate) fn hold(&self, token: &OwnerToken) -> Option<On> {
        self.state().tickets.get(token).and_then(|ticket| ticket.hold)
    }

    pub(crate) fn set_hold(&self, token: &OwnerToken, lease: i64, granted: Option<i64>) {
        let mut state = self.state();
        if let Some(ticket) = state.of_the_living(token) {
            ticket.hold = Some(On { lease, granted });
            ticket.place = None;
        }
    }

    pub(crate) fn leases(&self, token: &OwnerToken) -> Vec<i64> {
        self.state().tickets.get(token).map(Ticket::ids).unwrap_or_default()
    }

    pub(crate) fn forget(&self, token: &OwnerToken) {
        self.state().tickets.remove(token);
    }

    /// Refuses the token from now on; tells which leases are to be revoked, and whether anything was known of it.
    pub(crate) fn bury(&self, token: &OwnerToken) -> Option<Vec<i64>> {
        let mut state = self.state();
        let now = Instant::now();
        state.forget_old(now);
        if let Some(ticket) = state.tickets.remove(token) {
            state.graves.entry(*token).or_default().extend(ticket.ids());
            state.burials.push_back((now, *token));
        }
        let known = state.graves.get(token).cloned();
        if known.is_none() {
            state.graves.insert(*token, Vec::new());
            state.burials.push_back((now, *token));
        }
        known
    }

    /// Everything of an abandoned token is undone.
    pub(crate) fn settle(&self, token: &OwnerToken) {
        if let Some(leases) = self.state().graves.get_mut(token) {
            leases.clear();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ticket {
    fn ids(&self) -> Vec<i64> {
        self.leases.iter().map(|known| known.id).collect()
    }
}

impl State {
    fn known(&mut self, token: &OwnerToken, lease: i64, change: impl FnOnce(&mut Known)) {
        let ticket = self.tickets.get_mut(token);
        if let Some(known) = ticket.and_then(|ticket| ticket.leases.iter_mut().find(|known| known.id == lease)) {
            change(known);
        }
    }

    /// The ticket of a token that was not abandoned.
    fn of_the_living(&mut self, token: &OwnerToken) -> Option<&mut Ticket> {
        (!self.graves.contains_key(token)).then(|| self.tickets.entry(*token).or_default())
    }

    fn forget_old(&mut self, now: Instant) {
        while let Some((at, token)) = self.burials.front().copied() {
            if now.duration_since(at) < REMEMBERED {
                return;
            }
            self.burials.pop_front();
            self.graves.remove(&token);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_abandoned_token_is_refused_for_a_while() {
        let (tickets, token) = (Tickets::default(), OwnerToken::random());
        tickets.begin(&token, 7).unwrap();
        assert_eq!(tickets.bury(&token), Some(vec![7]));
        assert_eq!(tickets.begin(&token, 8).unwrap_err().kind(), ErrorKind::NotHeld);
        assert_eq!(tickets.bury(&token), Some(vec![7]), "until it is settled, a repetition has the same to do");
        tickets.settle(&token);
        assert_eq!(tickets.bury(&token), Some(vec![]));
        tokio::time::advance(REMEMBERED).await;
        assert!(tickets.begin(&token, 9).is_ok());
    }

    #[test]
    fn a_ticket_ends_with_its_last_lease() {
        let (tickets, token) = (Tickets::default(), OwnerToken::random());
        tickets.begin(&token, 1).unwrap();
        tickets.begin(&token, 2).unwrap();
        tickets.set_place(&token, Some(Place { revision: 5, lease: 1 }));
        tickets.end(&token, 1);
        assert_eq!((tickets.place(&token), tickets.leases(&token)), (None, vec![2]));
        tickets.set_hold(&token, 2, Some(9));
        assert_eq!(tickets.hold(&token), Some(On { lease: 2, granted: Some(9) }));
        tickets.end(&token, 2);
        assert!(tickets.state().tickets.is_empty());
    }
    #[tokio::test]
    async fn a_lease_that_a_request_is_on_its_way_to_is_not_free() {
        let (tickets, token) = (Tickets::default(), OwnerToken::random());
        let lease = Lease { id: 7, secs: 5, since: tenure_core::LeaseInstant::now(), term: None };
        tickets.begin(&token, 7).unwrap();
        assert_eq!(tickets.free(&token, 7, |_| true), None, "it may not exist");
        tickets.made(&token, lease);
        tickets.asks(&token, 7);
        tickets.asks(&token, 7);
        tickets.answered(&token, 7);
        assert_eq!(tickets.free(&token, 7, |_| true), None);
        tickets.answered(&token, 7);
        assert_eq!(tickets.free(&token, 7, |_| false), None);
        assert_eq!(tickets.free(&token, 7, |_| true), Some(lease));
    }
}
