//! This client's memory of its own tokens: the leases that may exist for them, and the abandoned tokens.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::{Error, ErrorKind, OwnerToken, Result};
use tokio::time::Instant;

use crate::grants::{Lease, seconds};
use crate::keys::Spot;

/// How long a ticket outlasts its leases, and what it has without one.
const UNTOUCHED: Duration = Duration::from_secs(120);

/// With fewer tickets than this, no search for untouched ones is made.
const FEW: usize = 1024;

/// For how long an abandoned token is refused.
pub(crate) const REMEMBERED: Duration = Duration::from_secs(60);

/// A place in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) spot: Spot,
    /// In which revision it was made.
    pub(crate) revision: i64,
    pub(crate) lease: i64,
}

/// A place that a token has or has asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) spot: Spot,
    pub(crate) lease: i64,
    /// In which revision it was made; `None` while it is not known whether it was.
    pub(crate) revision: Option<i64>,
}

/// The leases and the place that an abandoned token leaves behind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LeftBehind {
    pub(crate) leases: Vec<i64>,
    pub(crate) waiting: Option<Waiting>,
}

impl Waiting {
    fn place(self) -> Option<Place> {
        Some(Place { spot: self.spot, revision: self.revision?, lease: self.lease })
    }
}

impl From<Place> for Waiting {
    fn from(place: Place) -> Self {
        Self { spot: place.spot, lease: place.lease, revision: Some(place.revision) }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Tickets(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    tickets: HashMap<OwnerToken, Ticket>,
    /// How many there may be before a search for those untouched for long.
    sweep_at: usize,
    abandoned: HashMap<OwnerToken, LeftBehind>,
    forget_at: VecDeque<(Instant, OwnerToken)>,
}

#[derive(Debug)]
struct Ticket {
    /// Every lease that may exist for the token.
    leases: Vec<Known>,
    waiting: Option<Waiting>,
    hold: Option<On>,
    touched: Instant,
}

/// A lease that may exist.
#[derive(Debug)]
struct Known {
    id: i64,
    secs: i64,
    /// Once it is known to exist.
    made: Option<Lease>,
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
        if state.abandoned.contains_key(token) {
            return Err(Error::new(ErrorKind::NotHeld, "this attempt was abandoned before its request arrived"));
        }
        Ok(())
    }

    /// Notes a lease of so many seconds before it is asked for.
    pub(crate) fn begin(&self, token: &OwnerToken, lease: i64, secs: i64) -> Result<()> {
        self.ensure_alive(token)?;
        let known = Known { id: lease, secs, made: None };
        self.state().open(token).leases.push(known);
        Ok(())
    }

    /// Notes that a lease exists.
    pub(crate) fn made(&self, token: &OwnerToken, lease: Lease) {
        self.state().known(token, lease.id, |known| known.made = Some(lease));
    }

    /// The lease, if it is known to exist and is `wanted` for something else. The caller has nothing on it any more,
    /// and has received the answers to all requests that put something on it: one that fails ends its attempt, which
    /// keeps nothing.
    pub(crate) fn free(&self, token: &OwnerToken, lease: i64, wanted: impl FnOnce(&Lease) -> bool) -> Option<Lease> {
        let mut made = None;
        self.state().known(token, lease, |known| made = known.made);
        made.filter(wanted)
    }

    /// Strikes a lease that was revoked, or is parted with; `false` if it is not there.
    pub(crate) fn end(&self, token: &OwnerToken, lease: i64) -> bool {
        let mut state = self.state();
        let Some(ticket) = state.ticket(token) else { return false };
        let known = ticket.leases.len();
        ticket.leases.retain(|known| known.id != lease);
        ticket.hold = ticket.hold.filter(|on| on.lease != lease);
        if ticket.is_empty() {
            state.tickets.remove(token);
            return known > 0;
        }
        ticket.leases.len() < known
    }

    /// The place that the token has, as far as is known.
    pub(crate) fn place(&self, token: &OwnerToken) -> Option<Place> {
        self.waiting(token).and_then(Waiting::place)
    }

    /// The place that the token has or may have.
    pub(crate) fn waiting(&self, token: &OwnerToken) -> Option<Waiting> {
        self.state().ticket(token).and_then(|ticket| ticket.waiting)
    }

    /// Notes a place before it is asked for, and once it is known.
    pub(crate) fn set_waiting(&self, waiting: Waiting) -> Result<()> {
        self.ensure_alive(&waiting.spot.token)?;
        let mut state = self.state();
        // An abandonment may come after the check: then nothing is noted, and the request undoes what it has made.
        if let Some(ticket) = state.of_the_living(&waiting.spot.token) {
            ticket.waiting = Some(waiting);
        }
        Ok(())
    }

    /// Notes that the token has no place, nor will get the one that it asked for.
    pub(crate) fn waits_no_more(&self, token: &OwnerToken) {
        let mut state = self.state();
        if let Some(ticket) = state.ticket(token) {
            ticket.waiting = None;
            if ticket.is_empty() {
                state.tickets.remove(token);
            }
        }
    }

    /// What the token's hold is on.
    pub(crate) fn hold(&self, token: &OwnerToken) -> Option<On> {
        self.state().ticket(token).and_then(|ticket| ticket.hold)
    }

    pub(crate) fn set_hold(&self, token: &OwnerToken, lease: i64, granted: Option<i64>) {
        let mut state = self.state();
        if let Some(ticket) = state.of_the_living(token) {
            ticket.hold = Some(On { lease, granted });
        }
    }

    /// A lease of the token that is known to exist.
    pub(crate) fn lease(&self, token: &OwnerToken, lease: i64) -> Option<Lease> {
        let state = self.state();
        let known = state.tickets.get(token)?.leases.iter().find(|known| known.id == lease)?;
        known.made
    }

    pub(crate) fn leases(&self, token: &OwnerToken) -> Vec<i64> {
        self.state().ticket(token).map(|ticket| ticket.ids()).unwrap_or_default()
    }

    /// Whether something of the token may stand, as far as this client knows.
    pub(crate) fn know(&self, token: &OwnerToken) -> bool {
        self.state().tickets.contains_key(token)
    }

    pub(crate) fn forget(&self, token: &OwnerToken) {
        self.state().tickets.remove(token);
    }

    /// Refuses the token from now on; returns what of it is to be undone, if anything was known of it.
    pub(crate) fn bury(&self, token: &OwnerToken) -> Option<LeftBehind> {
        let mut state = self.state();
        let now = Instant::now();
        state.forget_old(now);
        if let Some(ticket) = state.tickets.remove(token) {
            // Kept until `settle`: a repeated abandonment has the same to undo.
            let remains = state.abandoned.entry(*token).or_default();
            remains.leases.extend(ticket.ids());
            remains.waiting = ticket.waiting;
            state.forget_at.push_back((now, *token));
        }
        let known = state.abandoned.get(token).cloned();
        if known.is_none() {
            state.abandoned.insert(*token, LeftBehind::default());
            state.forget_at.push_back((now, *token));
        }
        known
    }

    /// Everything of an abandoned token is undone.
    pub(crate) fn settle(&self, token: &OwnerToken) {
        if let Some(remains) = self.state().abandoned.get_mut(token) {
            *remains = LeftBehind::default();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ticket {
    fn touched(&mut self) -> &mut Self {
        self.touched = Instant::now();
        self
    }

    fn is_empty(&self) -> bool {
        self.leases.is_empty() && self.waiting.is_none() && self.hold.is_none()
    }

    /// Whether none of its leases can exist any more, unless another client keeps them alive.
    fn is_over_at(&self, now: Instant) -> bool {
        let longest = self.leases.iter().map(|known| seconds(known.secs)).max().unwrap_or_default();
        now.saturating_duration_since(self.touched) > 2 * longest + UNTOUCHED
    }

    fn ids(&self) -> Vec<i64> {
        self.leases.iter().map(|known| known.id).collect()
    }
}

impl State {
    fn ticket(&mut self, token: &OwnerToken) -> Option<&mut Ticket> {
        self.tickets.get_mut(token).map(Ticket::touched)
    }

    /// The ticket of the token, a new one if need be. Those whose holds went to another client, to be ended there, are
    /// struck in time.
    fn open(&mut self, token: &OwnerToken) -> &mut Ticket {
        let now = Instant::now();
        if self.tickets.len() >= self.sweep_at.max(FEW) {
            self.tickets.retain(|_, ticket| !ticket.is_over_at(now));
            self.sweep_at = self.tickets.len() * 2;
        }
        let fresh = || Ticket { leases: Vec::new(), waiting: None, hold: None, touched: now };
        self.tickets.entry(*token).or_insert_with(fresh).touched()
    }

    fn known(&mut self, token: &OwnerToken, lease: i64, change: impl FnOnce(&mut Known)) {
        let ticket = self.ticket(token);
        if let Some(known) = ticket.and_then(|ticket| ticket.leases.iter_mut().find(|known| known.id == lease)) {
            change(known);
        }
    }

    /// The ticket of a token that was not abandoned.
    fn of_the_living(&mut self, token: &OwnerToken) -> Option<&mut Ticket> {
        (!self.abandoned.contains_key(token)).then(|| self.open(token))
    }

    fn forget_old(&mut self, now: Instant) {
        while let Some((at, token)) = self.forget_at.front().copied() {
            if now.duration_since(at) < REMEMBERED {
                return;
            }
            self.forget_at.pop_front();
            self.abandoned.remove(&token);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_abandoned_token_is_refused_for_a_while() {
        let (tickets, token) = (Tickets::default(), OwnerToken::random());
        tickets.begin(&token, 7, 30).unwrap();
        let remains = LeftBehind { leases: vec![7], waiting: None };
        assert_eq!(tickets.bury(&token), Some(remains.clone()));
        assert_eq!(tickets.begin(&token, 8, 30).unwrap_err().kind(), ErrorKind::NotHeld);
        assert_eq!(tickets.bury(&token), Some(remains), "until it is settled, a repetition has the same to do");
        tickets.settle(&token);
        assert_eq!(tickets.bury(&token), Some(LeftBehind::default()));
        tokio::time::advance(REMEMBERED).await;
        assert!(tickets.begin(&token, 9, 30).is_ok());
    }

    #[test]
    fn a_ticket_ends_with_its_last_lease_and_its_place() {
        let (tickets, token) = (Tickets::default(), OwnerToken::random());
        tickets.begin(&token, 1, 30).unwrap();
        tickets.begin(&token, 2, 30).unwrap();
        let place = Place { spot: Spot { arrival: 4, token }, revision: 5, lease: 3 };
        tickets.set_waiting(Waiting { revision: None, ..place.into() }).unwrap();
        assert_eq!(tickets.place(&token), None, "not known yet");
        tickets.set_waiting(place.into()).unwrap();
        tickets.end(&token, 1);
        assert_eq!((tickets.place(&token), tickets.leases(&token)), (Some(place), vec![2]));
        tickets.waits_no_more(&token);
        tickets.set_hold(&token, 2, Some(9));
        assert_eq!(tickets.hold(&token), Some(On { lease: 2, granted: Some(9) }));
        tickets.end(&token, 2);
        assert!(tickets.state().tickets.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn holds_that_went_elsewhere_are_not_remembered_for_ever() {
        let (tickets, kept) = (Tickets::default(), OwnerToken::random());
        tickets.set_hold(&kept, 1, None);
        for _ in 0..10 * FEW {
            let token = OwnerToken::random();
            tickets.begin(&token, 7, 30).unwrap();
            tickets.set_hold(&token, 7, Some(9));
            tokio::time::advance(Duration::from_secs(1)).await;
            assert!(tickets.hold(&kept).is_some(), "it is asked for again and again");
        }
        let remembered = tickets.state().tickets.len();
        assert!(remembered <= FEW, "{remembered}");
    }

    #[test]
    fn a_lease_is_free_once_it_is_known_to_exist() {
        let (tickets, token) = (Tickets::default(), OwnerToken::random());
        let lease = Lease { id: 7, secs: 5, since: tenure_core::driver::LeaseInstant::now(), term: None };
        tickets.begin(&token, 6, 30).unwrap();
        tickets.begin(&token, 7, 30).unwrap();
        assert_eq!(tickets.free(&token, 7, |_| true), None);
        tickets.made(&token, lease);
        assert_eq!(tickets.free(&token, 6, |_| true), None, "that one is not known to exist");
        assert_eq!(tickets.free(&token, 7, |_| false), None);
        assert_eq!(tickets.free(&token, 7, |_| true), Some(lease));
        tickets.end(&token, 7);
        assert_eq!(tickets.free(&token, 7, |_| true), None);
    }

    /// Each in its time, and none before one that was abandoned earlier.
    #[tokio::test(start_paused = true)]
    async fn the_token_that_was_abandoned_first_is_forgotten_first() {
        let (tickets, [first, second]) = (Tickets::default(), [OwnerToken::random(), OwnerToken::random()]);
        let refused = |token| tickets.ensure_alive(token).is_err();
        tickets.bury(&first);
        tokio::time::advance(REMEMBERED / 2).await;
        tickets.bury(&second);
        tokio::time::advance(REMEMBERED / 2 - Duration::from_millis(1)).await;
        assert!(refused(&first) && refused(&second));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!refused(&first) && refused(&second));
        tokio::time::advance(REMEMBERED / 2).await;
        assert_eq!(tickets.bury(&second), None, "nothing is known of it any more");
        tokio::time::advance(REMEMBERED).await;
        assert!(!refused(&second) && tickets.state().forget_at.is_empty());
    }

    #[test]
    fn a_lease_ends_once_and_one_that_is_not_there_does_not() {
        let (tickets, token) = (Tickets::default(), OwnerToken::random());
        assert!(!tickets.end(&token, 1), "nothing is known of the token");
        tickets.begin(&token, 1, 30).unwrap();
        tickets.begin(&token, 2, 30).unwrap();
        assert!(!tickets.end(&token, 3));
        assert!(tickets.end(&token, 1));
        assert!(!tickets.end(&token, 1));
        assert!(tickets.end(&token, 2) && !tickets.know(&token));
        tickets.set_hold(&token, 5, None);
        assert!(!tickets.end(&token, 5), "it was no lease of the token's own");
        assert!(!tickets.know(&token));
    }

    /// Twice as long as its longest lease, and then a while: the bound itself is kept.
    #[tokio::test(start_paused = true)]
    async fn a_ticket_outlasts_its_leases() {
        let (tickets, token) = (Tickets::default(), OwnerToken::random());
        let is_over_in = |span| {
            let later = Instant::now() + span;
            tickets.state().tickets[&token].is_over_at(later)
        };
        let moment = Duration::from_millis(1);
        tickets.set_hold(&token, 1, None);
        assert!(!is_over_in(UNTOUCHED) && is_over_in(UNTOUCHED + moment));
        tickets.begin(&token, 1, 30).unwrap();
        tickets.begin(&token, 2, 10).unwrap();
        let bound = Duration::from_secs(60) + UNTOUCHED;
        assert!(!is_over_in(bound) && is_over_in(bound + moment));
    }

    #[test]
    fn what_is_done_twice_or_for_nobody_changes_nothing() {
        let (tickets, token) = (Tickets::default(), OwnerToken::random());
        let place = Place { spot: Spot { arrival: 4, token }, revision: 5, lease: 3 };
        tickets.waits_no_more(&token);
        tickets.settle(&token);
        assert!(!tickets.know(&token) && tickets.hold(&token).is_none() && tickets.leases(&token).is_empty());
        tickets.set_waiting(place.into()).unwrap();
        tickets.set_hold(&token, 3, None);
        tickets.waits_no_more(&token);
        assert!(tickets.know(&token) && tickets.waiting(&token).is_none(), "it holds");
        tickets.set_waiting(place.into()).unwrap();
        let remains = LeftBehind { leases: Vec::new(), waiting: Some(place.into()) };
        assert_eq!(tickets.bury(&token), Some(remains));
        assert!(!tickets.know(&token));
        tickets.set_hold(&token, 3, None);
        assert_eq!(tickets.set_waiting(place.into()).unwrap_err().kind(), ErrorKind::NotHeld);
        assert!(!tickets.know(&token), "nothing is noted of an abandoned token");
        let other = OwnerToken::random();
        assert_eq!(tickets.bury(&other), None, "nothing was known of it");
        assert_eq!(tickets.bury(&other), Some(LeftBehind::default()));
        tickets.begin(&OwnerToken::random(), 9, 1).unwrap();
        tickets.forget(&token);
        assert_eq!(tickets.state().tickets.len(), 1);
    }

    #[test]
    fn a_ticket_is_kept_for_each_of_the_three_that_may_stand() {
        let (tickets, token) = (Tickets::default(), OwnerToken::random());
        let place = Place { spot: Spot { arrival: 4, token }, revision: 5, lease: 3 };
        tickets.set_waiting(place.into()).unwrap();
        tickets.begin(&token, 1, 30).unwrap();
        tickets.set_hold(&token, 2, None);
        tickets.end(&token, 1);
        assert_eq!(tickets.hold(&token), Some(On { lease: 2, granted: None }), "it is on another lease");
        tickets.end(&token, 2);
        assert!(tickets.know(&token) && tickets.hold(&token).is_none(), "it waits");
        tickets.waits_no_more(&token);
        assert!(!tickets.know(&token));
        tickets.set_waiting(place.into()).unwrap();
        tickets.begin(&token, 1, 30).unwrap();
        tickets.waits_no_more(&token);
        assert!(tickets.know(&token), "its lease may stand");
        tickets.forget(&token);
        assert!(!tickets.know(&token));
    }

    /// Also what something was known of.
    #[tokio::test(start_paused = true)]
    async fn known_tokens_are_forgotten_in_the_order_in_which_they_were_abandoned() {
        let (tickets, tokens) = (Tickets::default(), [(); 3].map(|()| OwnerToken::random()));
        let step = Duration::from_secs(10);
        for token in &tokens {
            tickets.begin(token, 7, 30).unwrap();
            tickets.bury(token);
            tokio::time::advance(step).await;
        }
        tokio::time::advance(REMEMBERED - step * 3).await;
        for number in 0..3 {
            let refused: Vec<bool> = tokens.iter().map(|token| tickets.ensure_alive(token).is_err()).collect();
            assert_eq!(refused, [0, 1, 2].map(|other| other > number), "{number}");
            tokio::time::advance(step).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn those_that_nobody_touches_are_looked_for_when_there_are_twice_as_many_as_were_left() {
        let tickets = Tickets::default();
        let open_until = |count: usize| {
            while tickets.state().tickets.len() < count {
                tickets.set_hold(&OwnerToken::random(), 1, None);
            }
        };
        let one_more = || {
            tickets.set_hold(&OwnerToken::random(), 1, None);
            tickets.state().tickets.len()
        };
        open_until(FEW - 1);
        tokio::time::advance(UNTOUCHED * 2).await;
        assert_eq!(one_more(), FEW, "they are few");
        assert_eq!(one_more(), 2, "all but the last one were over");
        open_until(FEW);
        assert_eq!(one_more(), FEW + 1, "none is over");
        open_until(2 * FEW - 1);
        tokio::time::advance(UNTOUCHED * 2).await;
        assert_eq!(one_more(), 2 * FEW, "twice as many as were left are not there yet");
        assert_eq!(one_more(), 2);
    }
}
