//! Asking for a lock, for the first time or again, plainly or for an owner.

use std::future::Future;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::driver::{AcquireRequest, Acquisition, Begun, Busy, Grant, LeaseInstant, Queueing};
use tenure_core::{Error, ErrorKind, OwnerId, OwnerToken, Result};
use tokio::time::Instant;

use crate::answer::{self, HoldSeen, Seen, Tried};
use crate::error::says_lease_gone;
use crate::fences::{self, Base};
use crate::grants::{Lease, new_id, seconds};
use crate::idle::most_passed;
use crate::inner::Inner;
use crate::keys::{NameKeys, Spot};
use crate::record::Record;
use crate::session::CLAIM;
use crate::tickets::{Place, Remains, Waiting};
use crate::txn::{self, Take};
use crate::watcher::Asking;

/// How many answers somebody waits for who is first in line, and what the news takes.
const ROUNDS_OF_A_TURN: u32 = 3;
/// How often one request starts over when things change under it.
const MOST_STARTS: usize = 4;

/// One request, on its way.
pub(crate) struct Ask<'a> {
    pub(crate) inner: &'a Inner,
    pub(crate) keys: &'a NameKeys,
    pub(crate) owner: Option<OwnerId>,
    pub(crate) request: &'a AcquireRequest,
    pub(crate) secs: i64,
    asking: Asking<'a>,
    /// Not earlier than the true time: what has passed of a lease is counted up to here.
    began: LeaseInstant,
    /// The leases that were asked for on the way.
    made: Mutex<Vec<i64>>,
}

impl Inner {
    pub(crate) async fn ask(&self, owner: Option<OwnerId>, request: &AcquireRequest) -> Result<Acquisition> {
        self.link.ensure_open()?;
        let keys = self.keys(&request.name);
        let ask = Ask::new(self, &keys, owner, request)?;
        self.tickets.ensure_alive(&request.token)?;
        let answer = ask.answer().await.map_err(|error| {
            // Whatever it says of the last step, an earlier one may have left something.
            if self.tickets.know(&request.token) { error.half_way() } else { error }
        });
        if let Err(abandoned) = self.tickets.ensure_alive(&request.token) {
            // Meanwhile; and the undoing may have been too early for what was made since.
            let leases = std::mem::take(&mut *ask.made());
            self.session.gone(&request.token);
            self.undo(owner, &request.name, &request.token, Some(Remains { leases, waiting: None })).await?;
            return Err(abandoned);
        }
        answer
    }

    /// A new lease for the token, which has been noted.
    pub(crate) async fn grant(&self, token: &OwnerToken, id: i64, secs: i64) -> Result<Lease> {
        let answer = self.leases.grant(id, secs).await;
        if answer.as_ref().is_err_and(Error::was_not_applied) {
            self.tickets.end(token, id);
        }
        answer
    }
}

impl<'a> Ask<'a> {
    pub(crate) fn new(
        inner: &'a Inner,
        keys: &'a NameKeys,
        owner: Option<OwnerId>,
        request: &'a AcquireRequest,
    ) -> Result<Self> {
        let (secs, began) = (Inner::ttl_secs(request)?, LeaseInstant::now());
        let asking = inner.watcher.asking(inner.keyspace.encoded(keys));
        Ok(Self { inner, keys, owner, request, secs, asking, began, made: Mutex::default() })
    }
}

impl Ask<'_> {
    async fn answer(&self) -> Result<Acquisition> {
        for _ in 0..MOST_STARTS {
            let answer = match self.inner.tickets.place(self.token()) {
                Some(place) => self.again(place).await?,
                None => self.afresh().await?,
            };
            if let Some(answer) = answer {
                return Ok(answer);
            }
        }
        Ok(Acquisition::Busy(Busy::default().with_recheck_after(Some(Duration::ZERO))))
    }

    pub(crate) fn token(&self) -> &OwnerToken {
        &self.request.token
    }

    /// Asks for a token that has no place in the queue, as far as is known. `None` if it is to be asked again: things
    /// have changed on the way.
    async fn afresh(&self) -> Result<Option<Acquisition>> {
        let base = self.inner.fences.base().await?;
        let lease = self.lease(self.secs).await?;
        // A place that was asked for without an answer.
        let unanswered = self.inner.tickets.waiting(self.token());
        let (spot, record) = (unanswered.map(|waiting| waiting.spot), self.record(lease, &base));
        let take = self.taking(&record, lease, &base);
        let free = |foreign| take.free(spot.as_ref(), foreign);
        let seen = match self.try_past_others_keys(&take, self.keys.queue_end(), free).await? {
            Some(Tried::Done(revision)) => {
                let answer = self.won(&record, revision, lease)?;
                self.is_in().await?;
                return Ok(Some(answer));
            }
            Some(Tried::Not(seen)) => seen,
            None => return Ok(None),
        };
        if let Some(answer) = self.resolve(&seen, Some(lease)).await? {
            return Ok(answer.known());
        }
        if seen.place.is_none() {
            self.leave().await?;
        }
        match (self.request.queue, seen.place) {
            (_, Some(place)) if seen.is_next(self.token()) => self.take_place(place, lease).await,
            (Queueing::None, _) => {
                self.give_back(lease).await?;
                Ok(Some(Acquisition::Busy(Busy::default())))
            }
            (Queueing::Join { .. }, Some(place)) => {
                self.give_back(lease).await?;
                self.inner.tickets.set_waiting(place.into())?;
                Ok(None)
            }
            (Queueing::Join { presence, .. }, None) => self.enqueue(presence, seen.revision, lease).await,
        }
    }

    /// Joins the queue, behind whoever found the lock busy before this revision.
    async fn enqueue(&self, presence: Duration, arrival: i64, unneeded: Lease) -> Result<Option<Acquisition>> {
        let (tickets, session) = (&self.inner.tickets, &self.inner.session);
        let prepared = tokio::join!(self.asking.is_to_wait(), self.give_back(unneeded), session.ensure());
        prepared.0?;
        prepared.1?;
        let live = prepared.2?;
        let spot = Spot { arrival, token: *self.token() };
        tickets.set_waiting(Waiting { spot, lease: live.lease, revision: None })?;
        let asked = Instant::now();
        let answer = match self.inner.txn(txn::enqueue(self.keys, &spot, &session.key(&live))).await {
            Ok(answer) => answer::enqueued(&answer, self.keys)?,
            Err(error) if says_lease_gone(&error) => {
                session.corrected(live.lease, None);
                tickets.waits_no_more(self.token());
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let took = asked.elapsed();
        let seen = self.take_in(answer.seen);
        let Some(place) = seen.place else {
            session.corrected(live.lease, answer.session);
            tickets.waits_no_more(self.token());
            return Ok(None);
        };
        tickets.set_waiting(place.into())?;
        let most = self.inner.config.max_waiters;
        if answer.others.is_some_and(|others| others >= i64::from(most)) {
            self.leave().await?;
            return Err(Error::new(ErrorKind::LimitReached, format!("the queue is full: {most} wait already")));
        }
        session.present(self.keys, &place, presence);
        if let Some(answer) = self.resolve(&seen, None).await? {
            return Ok(answer.known());
        }
        self.take_or_wait(place, &seen, took).await
    }

    /// Asks for a token that has a place. `None` if it has lapsed.
    async fn again(&self, place: Place) -> Result<Option<Acquisition>> {
        if let Queueing::Join { presence, .. } = self.request.queue {
            self.inner.session.present(self.keys, &place, presence);
        }
        if self.inner.watcher.view().seems_free_for(self.name(), self.token()) {
            let lease = self.lease(self.secs).await?;
            return self.take_place(place, lease).await;
        }
        let asked = Instant::now();
        let answer = self.inner.txn(txn::just_look(self.keys, Some(&place.spot))).await?;
        let seen = self.take_in(answer::seen(&answer, self.keys)?);
        let took = asked.elapsed();
        if let Some(answer) = self.resolve(&seen, None).await? {
            return Ok(answer.known());
        }
        if seen.place != Some(place) {
            self.lapsed(seen.place)?;
            return Ok(None);
        }
        self.take_or_wait(place, &seen, took).await
    }

    /// Takes a lock that is the token's to take, or says that it is not. `None` if it is to be asked again. Where an answer
    /// takes long, the first in line needs long as well: to hear of the free lock, to get a lease, and to take it.
    async fn take_or_wait(&self, place: Place, seen: &Seen, took: Duration) -> Result<Option<Acquisition>> {
        if seen.is_next(self.token()) || seen.is_obstructed() {
            let lease = self.lease(self.secs).await?;
            return self.take_place(place, lease).await;
        }
        let patience = CLAIM + took * ROUNDS_OF_A_TURN;
        if self.inner.watcher.view().quiet_for(self.name()) >= patience && self.pass_over(place, seen).await? {
            return Ok(None);
        }
        Ok(Some(self.busy(seen)))
    }

    /// Takes the lock for the first in line. `None` if its place has lapsed.
    async fn take_place(&self, place: Place, lease: Lease) -> Result<Option<Acquisition>> {
        let base = self.inner.fences.base().await?;
        let record = self.record(lease, &base);
        let take = self.taking(&record, lease, &base);
        let first = |foreign| take.place(&place, foreign);
        let seen = match self.try_past_others_keys(&take, self.keys.place(&place.spot), first).await? {
            Some(Tried::Done(revision)) => {
                let answer = self.won(&record, revision, lease)?;
                self.is_in().await?; // the place went with the same transaction
                return Ok(Some(answer));
            }
            Some(Tried::Not(seen)) => seen,
            None => return Ok(None),
        };
        if let Some(answer) = self.resolve(&seen, Some(lease)).await? {
            return Ok(answer.known());
        }
        self.give_back(lease).await?;
        if seen.place != Some(place) {
            self.lapsed(seen.place)?;
            return Ok(None);
        }
        Ok(Some(self.busy(&seen)))
    }

    /// The token has another place than was thought, or none.
    fn lapsed(&self, now: Option<Place>) -> Result<()> {
        match now {
            Some(place) => self.inner.tickets.set_waiting(place.into()),
            None => {
                self.inner.tickets.waits_no_more(self.token());
                self.inner.session.gone(self.token());
                Ok(())
            }
        }
    }

    /// Gives up the place that the token has or may get.
    pub(crate) async fn leave(&self) -> Result<()> {
        if let Some(waiting) = self.inner.tickets.waiting(self.token()) {
            self.inner.session.leave(self.keys, &waiting).await?;
            self.inner.tickets.waits_no_more(self.token());
        }
        Ok(())
    }

    /// The token holds the lock, and so has no place; one that was asked for without an answer must not come either.
    async fn is_in(&self) -> Result<()> {
        match self.inner.tickets.place(self.token()) {
            Some(_) => self.lapsed(None),
            None => self.leave().await,
        }
    }

    /// What follows if the token, or its owner, is in already. `lease` is one that was made for a hold.
    async fn resolve(&self, seen: &Seen, lease: Option<Lease>) -> Result<Option<Resolved>> {
        let Some(hold) = &seen.hold else { return Ok(None) };
        let Some(record) = &hold.record else { return Ok(None) };
        if record.has(self.owner, self.token()) {
            return self.earlier(hold, record, lease).await.map(Resolved::Answer).map(Some);
        }
        if self.owner.is_some() && record.owner == self.owner {
            return self.enter_again(hold.clone(), lease).await.map(Some);
        }
        Ok(None)
    }

    /// The token holds it already: an answer was lost.
    pub(crate) async fn earlier(&self, hold: &HoldSeen, record: &Record, lease: Option<Lease>) -> Result<Acquisition> {
        self.inner.tickets.set_hold(self.token(), hold.lease, None);
        self.is_in().await?;
        if let Some(lease) = lease.filter(|lease| lease.id != hold.lease) {
            self.inner.give_up(self.token(), lease.id).await?;
        }
        let whole = seconds(record.lease_secs);
        // It may have served before.
        self.grant(record, hold.granted, whole.saturating_sub(most_passed(whole)), Begun::Earlier)
    }

    fn won(&self, record: &Record, revision: i64, lease: Lease) -> Result<Acquisition> {
        self.inner.tickets.set_hold(self.token(), lease.id, Some(revision));
        // Of a lease that served before, some has passed.
        self.grant(record, revision, lease.left_at(self.began), Begun::Now)
    }

    /// The answer that the lock is the token's, since a grant in this revision. A new grant of a plain lock carries the fences
    /// that were asked for, which are its revision's; what may have been given out of them is not given again.
    pub(crate) fn grant(&self, record: &Record, granted: i64, ttl: Duration, begun: Begun) -> Result<Acquisition> {
        let fence = fences::of_lock(record.base, granted)?;
        let fences = match (begun, self.owner) {
            (Begun::Now, None) => self.request.fences.clamp(1, fences::OF_A_GRANT),
            _ => 1,
        };
        Ok(Acquisition::Granted(
            Grant::new(fence, ttl).with_begun(begun).with_depth(record.depth()).with_fences(fences),
        ))
    }

    /// Etcd tells of an expiry as it tells of a release, so there is no time at which asking would help.
    fn busy(&self, seen: &Seen) -> Acquisition {
        let joined = self.request.queue != Queueing::None;
        let position = seen.place.filter(|_| joined).map(|_| seen.ahead);
        Acquisition::Busy(Busy::default().with_position(position))
    }

    /// A lease for this token: a new one, or for a plain lock one that served before.
    pub(crate) async fn lease(&self, secs: i64) -> Result<Lease> {
        let used = if self.owner.is_none() { self.inner.idle.take(secs, self.began) } else { None };
        let id = used.map_or_else(new_id, |lease| lease.id);
        if let Err(abandoned) = self.inner.tickets.begin(self.token(), id, secs) {
            used.inspect(|lease| self.inner.idle.put(*lease, &self.inner.leases));
            return Err(abandoned);
        }
        self.made().push(id);
        let lease = match used {
            Some(lease) => lease,
            None => self.inner.grant(self.token(), id, secs).await?,
        };
        self.inner.tickets.made(self.token(), lease);
        Ok(lease)
    }

    /// Parts with a lease that nothing is on.
    pub(crate) async fn give_back(&self, lease: Lease) -> Result<()> {
        if !self.keep_for_later(lease.id) {
            self.inner.give_up(self.token(), lease.id).await?;
        }
        Ok(())
    }

    /// Whether a lease that nothing is on now belongs to nobody. Those of re-entrant locks do not: a hold moves between
    /// the leases of its entries.
    fn keep_for_later(&self, lease: i64) -> bool {
        let kept = self.owner.is_none() && self.inner.keep_for_later(self.token(), lease);
        if kept {
            self.made().retain(|made| *made != lease);
        }
        kept
    }

    fn made(&self) -> MutexGuard<'_, Vec<i64>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request that puts something on the lease. `None` if the lease served before and has ended meanwhile.
    pub(crate) async fn on<T>(&self, lease: Lease, request: impl Future<Output = Result<T>>) -> Result<Option<T>> {
        match request.await {
            Ok(answer) => Ok(Some(answer)),
            Err(error) if says_lease_gone(&error) && lease.since < self.began => {
                self.inner.tickets.end(self.token(), lease.id);
                self.inner.idle.spoil(); // the others may be no better
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    pub(crate) fn taking<'a>(&'a self, record: &'a Record, lease: Lease, base: &'a Base) -> Take<'a> {
        Take { keys: self.keys, record, lease, fences: &self.inner.fences, base }
    }

    pub(crate) fn record(&self, lease: Lease, base: &Base) -> Record {
        Record {
            owner: self.owner,
            entries: vec![*self.token()],
            lease_secs: lease.secs,
            term: lease.term,
            base: base.locks,
            label: self.request.label.clone(),
        }
    }

    pub(crate) fn take_in(&self, seen: Seen) -> Seen {
        self.inner.watcher.view().read(self.name(), self.asking.epoch(), self.token(), &seen);
        seen
    }

    fn name(&self) -> &[u8] {
        self.inner.keyspace.encoded(self.keys)
    }
}

/// What is left to do when the token, or its owner, was in already.
pub(crate) enum Resolved {
    Answer(Acquisition),
    /// It no longer is.
    StartOver,
}

impl Resolved {
    fn known(self) -> Option<Acquisition> {
        match self {
            Self::Answer(answer) => Some(answer),
            Self::StartOver => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use etcd_client::Txn;
    use tenure_core::LockName;
    use tenure_core::driver::{DistributedLock as _, Handing, Ttl};

    use super::*;
    use crate::scene::served;

    fn name() -> LockName {
        LockName::new("name").unwrap()
    }

    fn joining(token: OwnerToken) -> AcquireRequest {
        let queue = Queueing::Join { presence: Duration::from_secs(60), accepts: Handing::Asked };
        AcquireRequest::new(name(), token, Ttl::new(Duration::from_secs(60)).unwrap()).with_queue(queue)
    }

    async fn position(inner: &Inner, token: OwnerToken) -> Option<u32> {
        match inner.ask(None, &joining(token)).await.unwrap() {
            Acquisition::Busy(busy) => busy.position,
            other => panic!("not busy: {other:?}"),
        }
    }

    /// The lock is held, and a token asks for a place; tells what the request for the place says, which is still on its way.
    async fn asked(inner: &Inner, token: OwnerToken) -> Txn {
        let held = inner.ask(None, &joining(OwnerToken::random())).await.unwrap();
        assert!(matches!(held, Acquisition::Granted(_)), "{held:?}");
        let live = inner.session.ensure().await.unwrap();
        let spot = Spot { arrival: 1, token };
        inner.tickets.set_waiting(Waiting { spot, lease: live.lease, revision: None }).unwrap();
        txn::enqueue(&inner.keys(&name()), &spot, &inner.session.key(&live))
    }

    #[tokio::test]
    async fn a_place_that_was_made_without_an_answer_is_its_tokens() {
        let (_cluster, driver) = served();
        let token = OwnerToken::random();
        let late = asked(&driver.inner, token).await;
        assert!(driver.inner.txn(late.clone()).await.unwrap().succeeded());
        let again = driver.inner.txn(late).await.unwrap();
        let again = answer::enqueued(&again, &driver.inner.keys(&name())).unwrap();
        assert!(again.others.is_none() && again.session.is_some());
        assert_eq!(again.seen.place.map(|place| place.spot.token), Some(token), "the refusal says why");
        assert_eq!(position(&driver.inner, OwnerToken::random()).await, Some(1));
        assert_eq!(position(&driver.inner, token).await, Some(0), "it came first");
        assert_eq!(driver.inspect(&name()).await.unwrap().waiters, 2);
    }

    #[tokio::test]
    async fn a_request_for_a_place_that_comes_late_makes_no_second_one() {
        let (_cluster, driver) = served();
        let token = OwnerToken::random();
        let late = asked(&driver.inner, token).await;
        assert_eq!(position(&driver.inner, token).await, Some(0));
        assert!(!driver.inner.txn(late).await.unwrap().succeeded());
        assert_eq!(driver.inspect(&name()).await.unwrap().waiters, 1);
    }

    fn plain(token: OwnerToken) -> AcquireRequest {
        joining(token).with_queue(Queueing::None).with_fences(20)
    }

    fn granted(answer: Acquisition) -> Grant {
        match answer {
            Acquisition::Granted(grant) => grant,
            other => panic!("not granted: {other:?}"),
        }
    }

    impl Inner {
        async fn taken(&self) -> OwnerToken {
            let token = OwnerToken::random();
            granted(self.ask(None, &plain(token)).await.unwrap());
            token
        }

        async fn lease_of(&self) -> i64 {
            self.hold(&self.keys(&name())).await.unwrap().unwrap().lease
        }

        async fn is_free(&self) {
            let seen = self.hold(&self.keys(&name())).await.unwrap().unwrap();
            self.change(txn::delete(&self.keys(&name()), &seen)).await.unwrap();
        }

        async fn place_of(&self, token: &OwnerToken) -> Option<Place> {
            self.find_place(&self.keys(&name()), token).await.unwrap()
        }
    }

    #[tokio::test]
    async fn a_request_that_reached_nobody_has_left_nothing() {
        let driver = crate::scene::unserved();
        let (inner, token) = (&driver.inner, OwnerToken::random());
        let refused = inner.ask(None, &plain(token)).await.unwrap_err();
        assert!(refused.kind() == ErrorKind::Unavailable && refused.was_not_applied());
        inner.tickets.begin(&token, 7, 30).unwrap();
        assert_eq!(inner.grant(&token, 7, 30).await.unwrap_err().kind(), ErrorKind::Unavailable);
        assert!(!inner.tickets.know(&token));
        inner.tickets.begin(&token, 7, 30).unwrap();
        let refused = inner.ask(None, &plain(token)).await.unwrap_err();
        assert!(
            refused.kind() == ErrorKind::Unavailable && !refused.was_not_applied(),
            "an earlier one may have left something"
        );
    }

    #[tokio::test]
    async fn a_token_that_holds_already_is_told_so_and_keeps_one_lease() {
        let (_cluster, driver) = served();
        let inner = &driver.inner;
        let token = OwnerToken::random();
        let first = granted(inner.ask(None, &plain(token)).await.unwrap());
        assert_eq!((first.begun, first.fences, first.depth), (Begun::Now, fences::OF_A_GRANT, 1));
        let lease = inner.lease_of().await;
        inner.tickets.forget(&token);
        let live = inner.session.ensure().await.unwrap();
        let spot = Spot { arrival: 1, token };
        inner.tickets.set_waiting(Waiting { spot, lease: live.lease, revision: None }).unwrap();
        let again = granted(inner.ask(None, &plain(token)).await.unwrap());
        assert_eq!((again.begun, again.fences, again.fence), (Begun::Earlier, 1, first.fence));
        assert_eq!(again.ttl, Duration::from_secs(59), "a second of it may have passed when it served before");
        assert_eq!(inner.tickets.hold(&token).map(|on| on.lease), Some(lease));
        assert!(inner.tickets.leases(&token).is_empty() && inner.tickets.waiting(&token).is_none());
        assert!(inner.lives(lease).await);
        let mut other = plain(OwnerToken::random());
        other.name = LockName::new("other").unwrap();
        let entered = granted(inner.ask(Some(OwnerId::new()), &other).await.unwrap());
        assert_eq!((entered.begun, entered.fences), (Begun::Now, 1));
    }

    #[tokio::test]
    async fn a_busy_lock_that_nobody_waits_for_leaves_nothing_of_the_request() {
        let (_cluster, driver) = served();
        let inner = &driver.inner;
        inner.taken().await;
        let token = OwnerToken::random();
        let answer = inner.ask(None, &plain(token)).await.unwrap();
        assert!(matches!(answer, Acquisition::Busy(busy) if busy.position.is_none()));
        assert!(!inner.tickets.know(&token) && inner.place_of(&token).await.is_none());
        assert_eq!(position(inner, token).await, Some(0));
        assert!(inner.tickets.place(&token).is_some() && inner.tickets.leases(&token).is_empty());
        let answer = inner.ask(None, &plain(token)).await.unwrap();
        assert!(matches!(answer, Acquisition::Busy(busy) if busy.position.is_none()), "it did not ask for it");
        assert_eq!(inner.tickets.place(&token), inner.place_of(&token).await);
    }

    #[tokio::test]
    async fn the_first_in_line_takes_a_free_lock_and_its_place_goes_with_it() {
        let (_cluster, driver) = served();
        let inner = &driver.inner;
        let (holder, known, unknown) = (inner.taken().await, OwnerToken::random(), OwnerToken::random());
        assert_eq!(position(inner, known).await, Some(0));
        assert_eq!(position(inner, unknown).await, Some(1));
        for (token, forgets) in [(known, false), (unknown, true)] {
            let place = inner.tickets.place(&token).unwrap();
            if forgets {
                // As where the answer to the request for the place was lost.
                inner.tickets.set_waiting(Waiting { revision: None, ..place.into() }).unwrap();
            }
            inner.is_free().await;
            granted(inner.ask(None, &joining(token)).await.unwrap());
            assert!(inner.place_of(&token).await.is_none() && inner.tickets.waiting(&token).is_none());
            assert_eq!(inner.tickets.leases(&token), [inner.lease_of().await]);
        }
        assert!(inner.tickets.know(&holder));
    }

    #[tokio::test]
    async fn a_waiter_whose_place_was_taken_away_gets_another_one() {
        let (_cluster, driver) = served();
        let (inner, token) = (&driver.inner, OwnerToken::random());
        inner.taken().await;
        assert_eq!(position(inner, token).await, Some(0));
        let first = inner.place_of(&token).await.unwrap();
        let ended = txn::end_place(inner.keys(&name()).place(&first.spot), first.revision);
        assert!(inner.txn(ended).await.unwrap().succeeded());
        assert_eq!(position(inner, token).await, Some(0));
        let second = inner.place_of(&token).await.unwrap();
        assert!(second != first && inner.tickets.place(&token) == Some(second));
    }

    /// Its lease has ended, or its key was written by another request for a place.
    #[tokio::test]
    async fn a_place_is_asked_for_again_where_the_session_was_not_as_thought() {
        let (_cluster, driver) = served();
        let inner = &driver.inner;
        inner.taken().await;
        let live = inner.session.ensure().await.unwrap();
        inner.leases.revoke(live.lease).await.unwrap();
        let first = OwnerToken::random();
        assert_eq!(position(inner, first).await, Some(0));
        let live = inner.session.ensure().await.unwrap();
        let options = etcd_client::PutOptions::new().with_lease(live.lease);
        let put = etcd_client::TxnOp::put(inner.session.key(&live).key, "", Some(options));
        inner.txn(Txn::new().and_then([put])).await.unwrap();
        let second = OwnerToken::random();
        assert_eq!(position(inner, second).await, Some(1));
        for token in [first, second] {
            assert!(inner.tickets.place(&token).is_some() && inner.tickets.leases(&token).is_empty());
        }
    }

    #[tokio::test]
    async fn who_finds_the_queue_full_has_no_place_in_it() {
        let (_cluster, mut driver) = served();
        let inner = std::sync::Arc::get_mut(&mut driver.inner).unwrap();
        inner.config.max_waiters = 1;
        inner.taken().await;
        let (first, second) = (OwnerToken::random(), OwnerToken::random());
        assert_eq!(position(inner, first).await, Some(0));
        assert_eq!(inner.ask(None, &joining(second)).await.unwrap_err().kind(), ErrorKind::LimitReached);
        assert!(inner.place_of(&second).await.is_none() && !inner.tickets.know(&second));
        assert_eq!(position(inner, first).await, Some(0));
    }

    #[tokio::test]
    async fn a_waiter_is_present_for_as_long_as_it_said_after_it_has_asked() {
        let (_cluster, driver) = served();
        let (inner, token) = (&driver.inner, OwnerToken::random());
        inner.taken().await;
        let queue = Queueing::Join { presence: Duration::from_secs(1), accepts: Handing::Asked };
        let request = joining(token).with_queue(queue);
        for _ in 0..5 {
            inner.ask(None, &request).await.unwrap();
            tokio::time::sleep(Duration::from_millis(400)).await;
        }
        let place = inner.place_of(&token).await;
        assert!(
            place.is_some()
                && place.map(|place| place.revision) == inner.tickets.place(&token).map(|place| place.revision)
        );
        let gone = async {
            while inner.place_of(&token).await.is_some() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), gone).await.expect("it asks no more");
    }

    /// Whatever it has made by then is undone.
    #[tokio::test]
    async fn a_token_that_is_abandoned_while_it_is_asked_for_gets_nothing() {
        let (_cluster, driver) = served();
        let (inner, token) = (&driver.inner, OwnerToken::random());
        let request = plain(token);
        let asking = inner.ask(None, &request);
        tokio::pin!(asking);
        while !inner.tickets.know(&token) {
            let polled = tokio::time::timeout(Duration::ZERO, asking.as_mut()).await;
            assert!(polled.is_err(), "it has only begun");
        }
        let leases = inner.tickets.bury(&token).unwrap().leases;
        assert_eq!(asking.await.unwrap_err().kind(), ErrorKind::NotHeld);
        assert!(inner.hold(&inner.keys(&name())).await.unwrap().is_none());
        assert!(leases.len() == 1 && !inner.lives(leases[0]).await);
        assert_eq!(inner.ask(None, &request).await.unwrap_err().kind(), ErrorKind::NotHeld);
    }

    #[tokio::test]
    async fn a_lease_for_later_serves_plain_locks_alone_and_is_parted_with_once() {
        let (_cluster, driver) = served();
        let (inner, keys) = (&driver.inner, driver.inner.keys(&name()));
        let [first, second, buried] = [(); 3].map(|()| plain(OwnerToken::random()));
        let (ask, entry) = (
            Ask::new(inner, &keys, None, &first).unwrap(),
            Ask::new(inner, &keys, Some(OwnerId::new()), &second).unwrap(),
        );
        let [one, other] = [ask.lease(60).await.unwrap(), ask.lease(60).await.unwrap()];
        assert_eq!(*ask.made(), [one.id, other.id]);
        ask.give_back(one).await.unwrap();
        assert_eq!((ask.made().clone(), inner.tickets.leases(&first.token)), (vec![other.id], vec![other.id]));
        assert!(inner.lives(one.id).await, "it is kept");
        let own = entry.lease(60).await.unwrap();
        assert!(own.id != one.id);
        entry.give_back(own).await.unwrap();
        assert!(!inner.lives(own.id).await && inner.tickets.leases(&second.token).is_empty());
        inner.tickets.bury(&buried.token);
        let late = Ask::new(inner, &keys, None, &buried).unwrap();
        assert_eq!(late.lease(60).await.unwrap_err().kind(), ErrorKind::NotHeld);
        let next = ask.lease(60).await.unwrap();
        assert_eq!(next.id, one.id, "it was put back");
    }

    #[tokio::test]
    async fn a_lease_that_served_before_and_has_ended_is_no_error_and_any_other_failure_is() {
        let (_cluster, driver) = served();
        let (inner, keys, request) = (&driver.inner, driver.inner.keys(&name()), plain(OwnerToken::random()));
        let before = inner.leases.grant(new_id(), 60).await.unwrap();
        let spared = inner.leases.grant(new_id(), 60).await.unwrap();
        inner.idle.put(spared, &inner.leases);
        tokio::time::sleep(Duration::from_millis(20)).await;
        let ask = Ask::new(inner, &keys, None, &request).unwrap();
        let put = async |lease: i64| {
            let options = etcd_client::PutOptions::new().with_lease(lease);
            inner.txn(Txn::new().and_then([etcd_client::TxnOp::put("key", "", Some(options))])).await
        };
        let lease = ask.lease(30).await.unwrap();
        assert!(ask.on(before, put(before.id)).await.unwrap().is_some());
        let refused = async { Err::<(), _>(Error::new(ErrorKind::Denied, "no")) };
        assert_eq!(ask.on(before, refused).await.unwrap_err().kind(), ErrorKind::Denied);
        assert!(ask.on(lease, put(new_id())).await.is_err(), "it did not serve before");
        inner.tickets.begin(&request.token, before.id, 60).unwrap();
        assert!(ask.on(before, put(new_id())).await.unwrap().is_none());
        assert_eq!(inner.tickets.leases(&request.token), [lease.id]);
        assert!(inner.idle.take(60, LeaseInstant::now()).is_none(), "the others may be no better");
    }
}
