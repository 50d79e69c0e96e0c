//! How the clients that wait on a queue share its messages: as many clients ask as there are messages.
//!
//! A client that makes a message due writes the due time into the queue's signal. A client that takes a message writes
//! the remaining ones. Every waiting client has a place in the queue's [line](super::line), on a lease, and watches the
//! signals and lines of all queues.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use etcd_client::{Event, EventType, Txn, TxnOp};
use tenure_core::Result;
use tenure_core::driver::{LeaseInstant, Next, QueueRouter, Watch};
use tenure_core::queue::QueueName;
use tokio::sync::Notify;

use super::clock::{Clock, Micros, span};
use super::keys::{QueueSpace, Signalled, Spot};
use super::line::{LineState, News, Sleeper};
use crate::grants::{Lease, Leases, new_id, seconds};
use crate::lasting_watch::{Audience, LastingWatch};
use crate::link::Link;

/// The lease of a client's places, in seconds. A waiting client asks within 20 s, and keeps it alive then.
const SECS: i64 = 60;

/// When a client asks that is not in front, at the latest: what a watcher has promised.
const LATEST: Duration = Duration::from_secs(20);

pub(crate) struct Signals {
    lasting_watch: Arc<LastingWatch<Sleepers>>,
    leases: Arc<Leases>,
    /// The lease that this client's places are on.
    lease: tokio::sync::Mutex<Option<Lease>>,
}

/// The consumers of this client that wait.
struct Sleepers {
    link: Arc<Link>,
    space: QueueSpace,
    root: String,
    clock: Arc<Clock>,
    router: QueueRouter,
    queues: Mutex<HashMap<QueueName, Sleeper>>,
    /// Notified when the next alarm may have changed.
    changed: Notify,
}

/// A receive on its way, and the part that it has in the line.
pub(super) struct Asking<'a> {
    signals: &'a Signals,
    queue: &'a QueueName,
    /// `None` for a receive of a client that does not wait, or that has another one on its way.
    pub(super) part: Option<Part>,
}

/// What a receive does about the client's place.
#[derive(Debug, Default)]
pub(super) struct Part {
    /// The place that the client has, or may have, until it leaves it.
    pub(super) spot: Option<Spot>,
    /// Whether it asks since those before it did not, in time.
    pub(super) instead: bool,
    /// How things stand when it is answered, if the client waits on.
    pub(super) line_state: Option<LineState>,
}

impl Signals {
    pub(crate) fn new(link: Arc<Link>, leases: Arc<Leases>, space: QueueSpace, clock: Arc<Clock>) -> Self {
        let root = space.signals();
        let sleepers = Sleepers {
            link: Arc::clone(&link),
            space,
            root,
            clock,
            router: QueueRouter::default(),
            queues: Mutex::default(),
            changed: Notify::new(),
        };
        Self { lasting_watch: LastingWatch::new(link, sleepers), leases, lease: tokio::sync::Mutex::default() }
    }

    pub(super) async fn listen(&self, queue: &QueueName) -> Result<Watch> {
        let sleepers = &self.lasting_watch.audience;
        let watch = sleepers.router.register(queue);
        sleepers.queues().entry(queue.clone()).or_default();
        self.lasting_watch.ensure_live().await?;
        Ok(watch)
    }

    /// A receive leaves.
    pub(super) fn asks<'a>(&'a self, queue: &'a QueueName, now: Micros) -> Asking<'a> {
        let sleepers = &self.lasting_watch.audience;
        let mut queues = sleepers.queues();
        let sleeper = queues.get_mut(queue).filter(|_| sleepers.router.is_watched(queue));
        let asked = sleeper.and_then(|sleeper| sleeper.asks(now));
        let part = asked.map(|(spot, instead)| Part { spot, instead, line_state: None });
        Asking { signals: self, queue, part }
    }

    /// The lease for the client's places, alive for a while.
    pub(super) async fn lease(&self) -> Result<i64> {
        let mut lease = self.lease.lock().await;
        if let Some(known) = lease.as_mut() {
            let now = LeaseInstant::before_send();
            if known.left_at(now) > seconds(SECS) / 2 {
                return Ok(known.id);
            }
            if self.leases.keep_alive(known.id).await? {
                known.since = now;
                return Ok(known.id);
            }
        }
        let granted = self.leases.grant_loosely(new_id(), SECS).await?;
        Ok(lease.insert(granted).id)
    }

    /// The lease has ended before its time.
    pub(super) async fn lease_is_gone(&self, id: i64) {
        self.lease.lock().await.take_if(|lease| lease.id == id);
    }

    pub(crate) async fn close(&self) {
        self.lasting_watch.close().await;
    }

    /// Ends all places: what cannot be revoked ends by itself.
    pub(crate) async fn leave(&self) {
        if let Some(lease) = self.lease.lock().await.take() {
            let _ = self.leases.revoke(lease.id).await;
        }
    }

    pub(crate) fn abort(&self) {
        self.lasting_watch.abort();
    }
}

impl Part {
    /// The place to take: the one that the client may have already, so that it never has two, and this one if it has none.
    pub(super) fn takes(&mut self, fresh: Vec<u8>) -> Vec<u8> {
        let fresh = Spot { key: fresh, seen: false };
        let spot = self.spot.take().filter(|spot| !spot.seen).unwrap_or(fresh);
        self.spot.insert(spot).key.clone()
    }

    /// The client has its place.
    pub(super) fn waits(&mut self, line_state: LineState) {
        self.spot = Some(Spot { key: line_state.place.key.clone(), seen: true });
        self.line_state = Some(line_state);
    }
}

impl Asking<'_> {
    /// The receive is answered; returns when it is worth asking again, now that others may do so.
    pub(super) fn answered(mut self, next: Next) -> Next {
        let is_in_front = self.ends();
        match next {
            Next::In(span) if !is_in_front => Next::In(span.max(LATEST)),
            next => next,
        }
    }

    fn ends(&mut self) -> bool {
        let Some(part) = self.part.take() else { return true };
        let sleepers = &self.signals.lasting_watch.audience;
        let mut queues = sleepers.queues();
        let Some(sleeper) = queues.get_mut(self.queue) else { return true };
        sleeper.answered(part.spot, part.line_state, sleepers.clock.now());
        sleepers.changed.notify_one();
        sleeper.is_in_front()
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.ends();
    }
}

impl Sleepers {
    fn queues(&self) -> MutexGuard<'_, HashMap<QueueName, Sleeper>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the sleepers whose time has come, and removes those without a listener; returns for how long the others
    /// sleep.
    fn wake_due(&self) -> Option<Duration> {
        let now = self.clock.now();
        let (mut next, mut left) = (None, Vec::new());
        self.queues().retain(|queue, sleeper| {
            if !sleeper.is_asking() && !self.router.is_watched(queue) {
                left.extend(sleeper.leaves());
                return false;
            }
            match sleeper.alarm() {
                Some(at) if at <= now => {
                    sleeper.woken();
                    self.router.wake(queue);
                }
                Some(at) => next = Some(next.map_or(at, |next: Micros| next.min(at))),
                None => {}
            }
            true
        });
        if !left.is_empty() {
            let link = Arc::clone(&self.link);
            let leave =
                Txn::new().and_then(left.into_iter().map(|place| TxnOp::delete(place, None)).collect::<Vec<_>>());
            tokio::spawn(async move { link.txn(leave).await });
        }
        next.map(|next| span(now, next))
    }
}

impl Audience for Sleepers {
    fn root(&self) -> &[u8] {
        self.root.as_bytes()
    }

    fn take_in(&self, events: &[Event]) {
        let now = self.clock.now();
        let mut queues = self.queues();
        for event in events {
            let Some(found) = event.kv() else { continue };
            let Some((queue, what)) = self.space.signalled(found.key()) else { continue };
            let Some(sleeper) = queues.get_mut(&queue) else { continue };
            let news = match (what, event.event_type()) {
                (Signalled::Soonest, EventType::Put) => News::parse(found.value()),
                (Signalled::Soonest, EventType::Delete) => continue,
                (Signalled::Place, EventType::Put) => News::Came(found.key().to_vec()),
                (Signalled::Place, EventType::Delete) => News::Went(found.key().to_vec()),
            };
            sleeper.take_in(found.mod_revision(), news, now);
        }
        drop(queues);
        self.changed.notify_one();
    }

    fn begin(&self) {
        self.queues().values_mut().for_each(Sleeper::gap);
    }

    fn gap(&self) {
        self.begin();
        self.router.wake_all();
    }

    fn is_empty(&self) -> bool {
        self.router.is_empty()
    }

    async fn attend(&self) {
        loop {
            match self.wake_due() {
                Some(left) => drop(tokio::time::timeout(left, self.changed.notified()).await),
                None => self.changed.notified().await,
            }
        }
    }
}

impl std::fmt::Debug for Signals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Signals").finish_non_exhaustive()
    }
}

#[cfg(test)]
impl Signals {
    /// As if half of the lease had passed; returns since when it lasts.
    pub(super) async fn half_is_over(&self) -> LeaseInstant {
        let mut lease = self.lease.lock().await;
        let lease = lease.as_mut().unwrap();
        lease.secs = SECS / 2;
        lease.since
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::super::line::{Place, Soonest};
    use super::super::test_support::queue;
    use super::*;
    use crate::EtcdDriver;
    use crate::test_support::{served, unserved};

    /// Adds a listener, without a server.
    fn listens(driver: &EtcdDriver, queue: &QueueName) -> Watch {
        let sleepers = &driver.inner.signals.lasting_watch.audience;
        sleepers.queues().entry(queue.clone()).or_default();
        sleepers.router.register(queue)
    }

    fn line_state(ahead: u64, soonest: Soonest) -> LineState {
        LineState { place: Place { key: b"m".to_vec(), ahead }, soonest, revision: 10 }
    }

    fn reported(due: Micros) -> Soonest {
        Soonest { due, wanted: 1 }
    }

    fn is_woken(watch: &mut Watch) -> bool {
        watch.next().now_or_never().is_some()
    }

    #[tokio::test]
    async fn the_lease_of_places_is_kept_until_half_of_it_has_passed_and_made_anew_when_it_is_gone() {
        let (_cluster, driver) = served();
        let signals = &driver.inner.signals;
        let lease = async || signals.lease().await.unwrap();
        let first = lease().await;
        driver.inner.leases.revoke(first).await.unwrap();
        assert_eq!(lease().await, first, "nobody asked");
        signals.half_is_over().await;
        let second = lease().await;
        assert_ne!(second, first, "it was found gone");
        assert_eq!(signals.lease.lock().await.unwrap().secs, SECS);
        let granted = signals.half_is_over().await;
        assert_eq!(lease().await, second);
        assert!(signals.half_is_over().await > granted, "it was kept alive");
        signals.lease_is_gone(first).await;
        assert_eq!(lease().await, second, "that was another one");
        signals.lease_is_gone(second).await;
        let third = lease().await;
        assert_ne!(third, second);
        signals.leave().await;
        assert!(!driver.inner.lives(third).await && driver.inner.lives(second).await);
    }

    #[test]
    fn one_request_at_a_time_has_the_place_and_only_where_somebody_waits() {
        let (driver, queue) = (unserved(), queue());
        let asks = || driver.inner.signals.asks(&queue, 5);
        assert!(asks().part.is_none());
        let watch = listens(&driver, &queue);
        let first = asks();
        assert!(first.part.is_some() && asks().part.is_none());
        drop(first);
        let mut second = asks();
        second.part.as_mut().unwrap().waits(line_state(0, Soonest::NEVER));
        drop(second);
        let third = asks();
        let spot = third.part.as_ref().unwrap().spot.clone();
        assert_eq!(spot, Some(Spot { key: b"m".to_vec(), seen: true }), "also of one that was dropped");
        drop(third);
        drop(watch);
        assert!(asks().part.is_none());
    }

    #[test]
    fn those_that_are_not_in_front_ask_again_later() {
        let (driver, queue) = (unserved(), queue());
        let _watch = listens(&driver, &queue);
        let (soon, late) = (Next::In(Duration::from_secs(1)), Next::In(Duration::from_secs(30)));
        for (ahead, next, then) in [
            (Some(0), soon, soon),
            (Some(1), soon, Next::In(LATEST)),
            (Some(1), late, late),
            (Some(1), Next::Now, Next::Now),
            (Some(1), Next::Never, Next::Never),
            (None, soon, soon),
        ] {
            let mut asking = driver.inner.signals.asks(&queue, 5);
            ahead.into_iter().for_each(|ahead| asking.part.as_mut().unwrap().waits(line_state(ahead, Soonest::NEVER)));
            assert_eq!(asking.answered(next), then, "{ahead:?}");
        }
        let first = driver.inner.signals.asks(&queue, 5);
        assert_eq!(driver.inner.signals.asks(&queue, 5).answered(soon), soon, "that has no place");
        drop(first);
    }

    #[tokio::test]
    async fn those_are_woken_whose_time_has_come_and_the_others_sleep_until_the_first_of_theirs() {
        let driver = unserved();
        let (signals, sleepers) = (&driver.inner.signals, &driver.inner.signals.lasting_watch.audience);
        let now = driver.inner.clock.now() + 3_600_000_000;
        driver.inner.clock.at_least(now);
        let names = ["due", "soon", "later", "never", "gone"].map(|name| QueueName::new(name).unwrap());
        let [due, soon, later, never, gone] = &names;
        let mut watches: Vec<_> = names.iter().map(|queue| listens(&driver, queue)).collect();
        for (queue, soonest) in [
            (due, reported(now)),
            (soon, reported(now + 70)),
            (later, reported(now + 90)),
            (never, Soonest::NEVER),
            (gone, reported(now)),
        ] {
            let mut asking = signals.asks(queue, now);
            asking.part.as_mut().unwrap().waits(line_state(0, soonest));
            asking.answered(Next::Now);
        }
        watches.pop();
        assert_eq!(sleepers.wake_due(), Some(Duration::from_micros(70)));
        assert!(is_woken(&mut watches[0]));
        for watch in &mut watches[1..] {
            assert!(!is_woken(watch));
        }
        assert_eq!(sleepers.queues().len(), 4, "nobody waits for one of them");
        assert_eq!(sleepers.wake_due(), Some(Duration::from_micros(70)));
        assert!(!is_woken(&mut watches[0]), "once");
        driver.inner.clock.at_least(now + 70);
        assert_eq!(sleepers.wake_due(), Some(Duration::from_micros(20)));
        assert!(is_woken(&mut watches[1]) && !is_woken(&mut watches[2]));
        let asking = signals.asks(never, now);
        drop(watches);
        assert_eq!(sleepers.wake_due(), None);
        assert_eq!(sleepers.queues().keys().collect::<Vec<_>>(), [never], "a request is on its way");
        drop(asking);
        assert_eq!((sleepers.wake_due(), sleepers.queues().len()), (None, 0));
    }

    #[tokio::test]
    async fn nothing_is_sent_unless_somebody_leaves() {
        let (driver, queue) = (unserved(), queue());
        let sleepers = &driver.inner.signals.lasting_watch.audience;
        let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
        let watch = listens(&driver, &queue);
        let mut asking = driver.inner.signals.asks(&queue, 5);
        asking.part.as_mut().unwrap().waits(line_state(0, Soonest::NEVER));
        drop(asking);
        assert_eq!((sleepers.wake_due(), tasks()), (None, 0));
        drop(watch);
        assert_eq!((sleepers.wake_due(), tasks()), (None, 1));
        tokio::task::yield_now().await;
    }

    #[tokio::test]
    async fn the_watch_ends_with_the_driver() {
        let (_cluster, driver) = served();
        let _watch = driver.inner.signals.listen(&queue()).await.unwrap();
        let live = Arc::downgrade(&driver.inner.signals.lasting_watch);
        driver.inner.signals.abort();
        drop(driver);
        let gone = async {
            while live.strong_count() > 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), gone).await.expect("nobody keeps it");
    }

    #[tokio::test]
    async fn after_a_gap_all_look_and_know_nothing() {
        let (driver, queue) = (unserved(), queue());
        let (signals, sleepers) = (&driver.inner.signals, &driver.inner.signals.lasting_watch.audience);
        assert!(sleepers.is_empty());
        let mut watch = listens(&driver, &queue);
        assert!(!sleepers.is_empty());
        for gap in [false, true] {
            let mut asking = signals.asks(&queue, 5);
            asking.part.as_mut().unwrap().waits(line_state(1, reported(driver.inner.clock.now() + 3_600_000_000)));
            asking.answered(Next::Now);
            assert!(sleepers.wake_due().is_some());
            if gap {
                sleepers.gap()
            } else {
                sleepers.begin()
            }
            assert_eq!((sleepers.wake_due(), is_woken(&mut watch)), (None, gap));
        }
    }

    #[test]
    fn a_client_takes_the_place_that_it_may_have_already_and_another_one_for_one_that_it_had() {
        let mut part = Part::default();
        assert_eq!(part.takes(b"a".to_vec()), b"a");
        assert_eq!(part.takes(b"b".to_vec()), b"a", "it may be there");
        assert_eq!(part.spot, Some(Spot { key: b"a".to_vec(), seen: false }));
        part.waits(line_state(0, Soonest::NEVER));
        assert_eq!(part.takes(b"c".to_vec()), b"c", "that one was seen, and is not there any more");
    }
}
