//! The routes of a backend's wake-ups to their waiters.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::value::queue::QueueName;
use crate::value::token::{FencingToken, OwnerToken};

/// A notification of a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Signal {
    /// A change after which the waiter should ask; several changes may be one signal. A hint only: a waiter asks the
    /// backend before it acts.
    Wake,
    /// The lock was given to this waiter. A waiter that cannot compute if the lease still lasts asks, as after a hint.
    Handed(Handed),
}

/// A lease that a waiter received without a request at that moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Handed {
    /// The fence, as in [`Grant::fence`](crate::driver::Grant::fence).
    pub fence: FencingToken,
    /// The length of the lease unless it is renewed. May be shorter than the requested ttl.
    pub ttl: Duration,
    /// The time at which it began, on the clock of [`Busy::answered_at`](crate::driver::Busy::answered_at).
    pub began_at: Duration,
    /// The number of fences, as in [`Grant::fences`](crate::driver::Grant::fences).
    pub fences: u32,
}

impl Handed {
    /// Makes a lease of one fence.
    #[must_use]
    pub const fn new(fence: FencingToken, ttl: Duration, began_at: Duration) -> Self {
        Self { fence, ttl, began_at, fences: 1 }
    }
}

setters!(const Handed {
    with_fence => fence: FencingToken,
    with_ttl => ttl: Duration,
    with_began_at => began_at: Duration,
    with_fences => fences: u32,
});

/// The waiter's end: returns signals until it is dropped.
pub struct Watch {
    line: Arc<Line>,
    end: End,
}

/// The action that ends the subscription.
enum End {
    Nothing,
    /// Removes the waiter from a router.
    Route(WakeRouter, OwnerToken),
    Call(Box<dyn FnOnce() + Send>),
}

/// The driver's end of a [`Watch`].
#[derive(Clone)]
pub struct WakeHandle(Arc<Line>);

/// The shared state of both ends.
#[derive(Default)]
struct Line {
    notify: Notify,
    news: Mutex<News>,
}

/// The signals that a waiter has not taken yet.
#[derive(Default)]
struct News {
    handed: Option<Handed>,
    /// True if the connection was cut since: later signals may come from another server, with another clock.
    cut: bool,
}

impl Line {
    fn news(&self) -> MutexGuard<'_, News> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watch {
    /// Makes both ends of a new watch.
    #[must_use]
    pub fn channel() -> (WakeHandle, Self) {
        let line = Arc::new(Line::default());
        (WakeHandle(Arc::clone(&line)), Self { line, end: End::Nothing })
    }

    /// Runs `end` when the watch is dropped, to end the subscription. It must not block.
    #[must_use]
    pub fn on_drop(mut self, end: impl FnOnce() + Send + 'static) -> Self {
        self.end = End::Call(Box::new(end));
        self
    }

    /// Returns the next signal; one that arrived before the call is not lost.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no signal.
    pub async fn next(&mut self) -> Signal {
        self.line.notify.notified().await;
        std::mem::take(&mut *self.line.news()).handed.map_or(Signal::Wake, Signal::Handed)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        match std::mem::replace(&mut self.end, End::Nothing) {
            End::Nothing => {}
            End::Route(router, token) => drop(router.routes().remove(&token)),
            End::Call(end) => end(),
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watch")
    }
}

impl WakeHandle {
    /// Wakes the waiter. A signal that is not yet taken absorbs further ones.
    pub fn wake(&self) {
        self.0.notify.notify_one();
    }

    /// Notifies the waiter that it holds the lock. The last one that is not yet taken counts. After a [cut](Self::cut)
    /// it is a hint only.
    pub fn hand(&self, handed: Handed) {
        {
            let mut news = self.0.news();
            if !news.cut {
                news.handed = Some(handed);
            }
        }
        self.wake();
    }

    /// Reports that the connection was cut: it may lead to another server from now on. Until the waiter has asked
    /// again, it cannot compute when a lease began by that server's clock.
    pub fn cut(&self) {
        self.0.news().cut = true;
    }
}

impl fmt::Debug for WakeHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WakeHandle")
    }
}

/// Routes wake-ups of one connection to the waiters of one process, by token.
///
/// ```
/// use tenure_core::{OwnerToken, driver::WakeRouter};
///
/// let router = WakeRouter::default();
/// let token = OwnerToken::random();
/// let watch = router.register(token);
/// assert!(router.wake(&token));
/// // Ends the registration.
/// drop(watch);
/// assert!(!router.wake(&token));
/// ```
#[derive(Clone, Debug, Default)]
pub struct WakeRouter(Arc<Mutex<Waiters>>);

type Waiters = HashMap<OwnerToken, WakeHandle, BuildHasherDefault<TokenHasher>>;

/// A hasher that uses a token as its own hash: registered tokens are random, and made by this client.
#[derive(Default)]
struct TokenHasher(u64);

impl Hasher for TokenHasher {
    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.0 ^= u64::from_le_bytes(word);
        }
    }

    /// Ignores the length of an array, which is always the same.
    fn write_usize(&mut self, _length: usize) {}

    fn finish(&self) -> u64 {
        self.0
    }
}

impl WakeRouter {
    /// Starts to route wake-ups for `token`, until the watch is dropped.
    #[must_use]
    pub fn register(&self, token: OwnerToken) -> Watch {
        let (handle, mut watch) = Watch::channel();
        self.routes().insert(token, handle);
        watch.end = End::Route(self.clone(), token);
        watch
    }

    /// Wakes the waiter of `token`; returns true if there is one.
    pub fn wake(&self, token: &OwnerToken) -> bool {
        self.routes().get(token).map(WakeHandle::wake).is_some()
    }

    /// Notifies the waiter of `token` that it holds the lock; returns true if there is one.
    pub fn hand(&self, token: &OwnerToken, handed: Handed) -> bool {
        self.routes().get(token).map(|waiter| waiter.hand(handed)).is_some()
    }

    /// Reports a [cut](WakeHandle::cut) to every waiter: when the connection breaks, before it is made again.
    pub fn cut(&self) {
        self.routes().values().for_each(WakeHandle::cut);
    }

    /// Wakes every waiter: after a gap in the connection, in which wake-ups may have been lost.
    pub fn wake_all(&self) {
        self.routes().values().for_each(WakeHandle::wake);
    }

    /// Returns the number of registered waiters.
    #[must_use]
    pub fn len(&self) -> usize {
        self.routes().len()
    }

    /// Returns true if no waiter is registered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn routes(&self) -> MutexGuard<'_, Waiters> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// How a backend's wake-ups reach those who wait on a queue.

/// Routes wake-ups of one connection to the watchers of its queues.
///
/// ```
/// use tenure_core::queue::QueueName;
/// use tenure_core::driver::QueueRouter;
///
/// let router = QueueRouter::default();
/// let jobs = QueueName::new("jobs")?;
/// let watch = router.register(&jobs);
/// assert!(router.wake(&jobs));
/// // Ends the registration.
/// drop(watch);
/// assert!(!router.wake(&jobs));
/// # Ok::<(), tenure_core::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct QueueRouter(Arc<Mutex<Routes>>);

#[derive(Debug, Default)]
struct Routes {
    last: u64,
    watchers: HashMap<QueueName, Vec<(u64, WakeHandle)>>,
}

impl QueueRouter {
    /// Starts to route wake-ups of `queue`, until the watch is dropped.
    #[must_use]
    pub fn register(&self, queue: &QueueName) -> Watch {
        let (handle, watch) = Watch::channel();
        let mut routes = self.routes();
        routes.last += 1;
        let number = routes.last;
        routes.watchers.entry(queue.clone()).or_default().push((number, handle));
        drop(routes);
        let (router, queue) = (self.clone(), queue.clone());
        watch.on_drop(move || router.forget(&queue, number))
    }

    fn forget(&self, queue: &QueueName, number: u64) {
        let mut routes = self.routes();
        let Some(watchers) = routes.watchers.get_mut(queue) else { return };
        watchers.retain(|(other, _)| *other != number);
        if watchers.is_empty() {
            routes.watchers.remove(queue);
        }
    }

    /// Wakes the watchers of `queue`; returns true if there are any.
    pub fn wake(&self, queue: &QueueName) -> bool {
        let routes = self.routes();
        let watchers = routes.watchers.get(queue);
        watchers.into_iter().flatten().for_each(|(_, watcher)| watcher.wake());
        watchers.is_some()
    }

    /// Wakes every watcher: after a gap in the connection, in which wake-ups may have been lost.
    pub fn wake_all(&self) {
        self.routes().watchers.values().flatten().for_each(|(_, watcher)| watcher.wake());
    }

    /// Returns true if `queue` has watchers.
    #[must_use]
    pub fn is_watched(&self, queue: &QueueName) -> bool {
        self.routes().watchers.contains_key(queue)
    }

    /// Returns the watched queues.
    #[must_use]
    pub fn queues(&self) -> Vec<QueueName> {
        self.routes().watchers.keys().cloned().collect()
    }

    /// Returns the number of registered watchers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.routes().watchers.values().map(Vec::len).sum()
    }

    /// Returns true if no watcher is registered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn routes(&self) -> MutexGuard<'_, Routes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::hash::BuildHasher as _;

    use futures_util::FutureExt as _;

    use super::*;

    fn reported(watch: &mut Watch) -> Option<Signal> {
        watch.next().now_or_never()
    }

    fn handed(fence: u64) -> Handed {
        Handed::new(FencingToken::new(fence).unwrap(), Duration::from_secs(1), Duration::ZERO)
    }

    #[test]
    fn a_signal_reaches_its_waiter_once_and_until_it_leaves() {
        let (router, [one, other]) = (WakeRouter::default(), [(); 2].map(|()| OwnerToken::random()));
        assert!(router.is_empty() && !router.wake(&one) && !router.hand(&one, handed(1)));
        let [mut first, mut second] = [one, other].map(|token| router.register(token));
        assert_eq!((router.len(), router.is_empty()), (2, false));
        assert!(router.wake(&one) && router.hand(&other, handed(1)) && router.hand(&other, handed(2)));
        assert_eq!(
            (reported(&mut first), reported(&mut second)),
            (Some(Signal::Wake), Some(Signal::Handed(handed(2))))
        );
        assert_eq!((reported(&mut first), reported(&mut second)), (None, None));
        router.wake_all();
        assert_eq!((reported(&mut first), reported(&mut second)), (Some(Signal::Wake), Some(Signal::Wake)));
        drop(first);
        assert_eq!((router.wake(&one), router.wake(&other), router.len()), (false, true, 1));
    }

    #[test]
    fn after_a_gap_a_waiter_is_notified_of_it_before_a_hand_over() {
        let (router, token) = (WakeRouter::default(), OwnerToken::random());
        let mut watch = router.register(token);
        router.cut();
        router.hand(&token, handed(1));
        assert_eq!(reported(&mut watch), Some(Signal::Wake));
        router.hand(&token, handed(2));
        assert_eq!(reported(&mut watch), Some(Signal::Handed(handed(2))));
    }

    #[test]
    fn tokens_are_distinguished_by_every_byte() {
        let hash = |token: &OwnerToken| BuildHasherDefault::<TokenHasher>::default().hash_one(token);
        let token = |at| OwnerToken::parse(&format!("{}B{}", "A".repeat(at), "A".repeat(21 - at))).unwrap();
        let hashes: HashSet<u64> = (0..21).map(|at| hash(&token(at))).collect();
        assert_eq!((hashes.len(), hash(&token(0)) == hash(&token(0))), (21, true));
    }

    #[test]
    fn the_watchers_of_a_queue_are_woken_and_nobody_else() {
        let (router, [jobs, mails]) =
            (QueueRouter::default(), ["jobs", "mails"].map(|name| QueueName::new(name).unwrap()));
        assert!(router.is_empty() && !router.wake(&jobs) && !router.is_watched(&jobs));
        let (mut one, mut two, mut other) = (router.register(&jobs), router.register(&jobs), router.register(&mails));
        assert_eq!((router.len(), router.queues().len(), router.is_empty()), (3, 2, false));
        assert!(router.is_watched(&jobs) && router.wake(&jobs));
        assert_eq!([&mut one, &mut two, &mut other].map(reported), [Some(Signal::Wake), Some(Signal::Wake), None]);
        router.wake_all();
        assert_eq!([&mut one, &mut two, &mut other].map(reported), [Some(Signal::Wake); 3]);
        drop(one);
        assert!(router.wake(&jobs) && reported(&mut two).is_some() && router.len() == 2, "one is left");
        drop(two);
        assert!(!router.wake(&jobs) && !router.is_watched(&jobs) && router.queues() == [mails]);
    }
}
