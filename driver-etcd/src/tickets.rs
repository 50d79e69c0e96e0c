//! What this client remembers of its own tokens: which leases may exist for them, and which tokens were abandoned.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::{Error, ErrorKind, OwnerToken, Result};
use tokio::time::Instant;

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
    leases: Vec<i64>,
    place: Option<Place>,
    /// The lease of its hold.
    hold: Option<i64>,
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
        self.state().tickets.entry(*token).or_default().leases.push(lease);
        Ok(())
    }

    /// Strikes a lease that was revoked.
    pub(crate) fn end(&self, token: &OwnerToken, lease: i64) {
        let mut state = self.state();
        let Some(ticket) = state.tickets.get_mut(token) else { return };
        ticket.leases.retain(|id| *id != lease);
        ticket.place = ticket.place.filter(|place| place.lease != lease);
        ticket.hold = ticket.hold.filter(|id| *id != lease);
        if ticket.leases.is_empty() && ticket.place.is_none() && ticket.hold.is_none() {
            state.tickets.remove(token);
        }
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

    pub(crate) fn hold(&self, token: &OwnerToken) -> Option<i64> {
        self.state().tickets.get(token).and_then(|ticket| ticket.hold)
    }

    pub(crate) fn set_hold(&self, token: &OwnerToken, lease: i64) {
        let mut state = self.state();
        if let Some(ticket) = state.of_the_living(token) {
            ticket.hold = Some(lease);
            ticket.place = None;
        }
    }

    pub(crate) fn leases(&self, token: &OwnerToken) -> Vec<i64> {
        self.state().tickets.get(token).map(|ticket| ticket.leases.clone()).unwrap_or_default()
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
            state.graves.entry(*token).or_default().extend(ticket.leases);
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

impl State {
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
        tickets.set_hold(&token, 2);
        assert_eq!(tickets.hold(&token), Some(2));
        tickets.end(&token, 2);
        assert!(tickets.state().tickets.is_empty());
    }
}
