//! A lasting watch: opened on first use, opened again whenever it breaks, and closed after a time without users.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Event, WatchOptions, WatchStream};
use tenure_core::{Error, ErrorKind, Result};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::error::EtcdError;
use crate::link::Link;

/// A watch that was not needed for this long is given up.
const IDLE: Duration = Duration::from_secs(30);

/// How long opening the watch again may take before it is tried anew.
const OPENING: Duration = Duration::from_secs(3);

/// The receiver of the watch's events.
pub(crate) trait Audience: Send + Sync + 'static {
    /// What the keys of interest begin with.
    fn root(&self) -> &[u8];

    /// What happened, in order.
    fn take_in(&self, events: &[Event]);

    /// The watch begins. No caller relied on it before.
    fn begin(&self);

    /// The watch continues after an interruption: nothing is known of the time between.
    fn gap(&self);

    /// Whether there are no listeners.
    fn is_empty(&self) -> bool;

    /// The periodic work while the watch is open. Does not end.
    fn attend(&self) -> impl Future<Output = ()> + Send;
}

/// A watch, and the member that serves it.
struct Opened {
    stream: WatchStream,
    member: usize,
}

pub(crate) struct LastingWatch<A> {
    link: Arc<Link>,
    pub(crate) audience: A,
    task: tokio::sync::Mutex<Option<JoinHandle<()>>>,
    /// Whether the watch is open.
    live: watch::Sender<bool>,
    /// How often the watch is checked for listeners.
    idle: Duration,
}

impl<A: Audience> LastingWatch<A> {
    pub(crate) fn new(link: Arc<Link>, audience: A) -> Arc<Self> {
        Self::with_idle(link, audience, IDLE)
    }

    fn with_idle(link: Arc<Link>, audience: A, idle: Duration) -> Arc<Self> {
        let (live, _) = watch::channel(false);
        Arc::new(Self { link, audience, task: tokio::sync::Mutex::default(), live, idle })
    }

    /// Returns when the watch is open. It stays open for as long as there are listeners: a caller that needs it listens
    /// first.
    pub(crate) async fn ensure_live(self: &Arc<Self>) -> Result<()> {
        loop {
            // Before the look, so that a change between the two is not missed.
            let mut news = self.live.subscribe();
            let mut task = self.task.lock().await;
            if task.as_ref().is_none_or(JoinHandle::is_finished) {
                let opened = self.open().await?;
                // Before the watch counts as live: callers that see it live read the epoch, which must be the new one.
                self.audience.begin();
                self.live.send_replace(true);
                *task = Some(tokio::spawn(Arc::clone(self).run(opened)));
                return Ok(());
            }
            drop(task);
            if *news.borrow() {
                return Ok(());
            }
            // It is being opened again, or was given up just now.
            let ended = |_| Error::new(ErrorKind::Unavailable, "the watch was closed");
            news.changed().await.map_err(ended)?;
        }
    }

    /// Opens the watch, from now on, and waits until it is open. A revision of the past would put it among those that
    /// etcd serves only ten times a second.
    async fn open(&self) -> Result<Opened> {
        let stream = self.link.call(|stubs| async move {
            let options = WatchOptions::new().with_prefix();
            let mut stream = stubs.watch().watch(self.audience.root(), Some(options)).await?;
            let ended = || EtcdError::WatchError("it ended before it began".into());
            let first = stream.message().await?.ok_or_else(ended)?;
            Ok((Opened { stream, member: stubs.member() }, first.canceled()))
        });
        match stream.await? {
            (opened, false) => Ok(opened),
            (_, true) => Err(Error::new(ErrorKind::Denied, "etcd refused the watch; it needs to read the prefix")),
        }
    }

    async fn run(self: Arc<Self>, opened: Opened) {
        let mut cut = CutOff(Some(Arc::clone(&self)));
        self.keep(opened).await;
        cut.0 = None;
    }

    async fn keep(&self, mut opened: Opened) {
        loop {
            let ended = tokio::select! {
                ended = self.follow(&mut opened.stream) => ended,
                () = self.audience.attend() => Ended::Broken,
                () = self.link.turned_from(opened.member) => Ended::Broken,
            };
            if ended == Ended::Idle {
                match self.give_up().await {
                    true => return,
                    false => continue,
                }
            }
            self.live.send_replace(false);
            opened = loop {
                match self.reopen().await {
                    Some(opened) => break opened,
                    None if self.give_up().await => return,
                    None => {}
                }
            };
            self.audience.gap();
            self.live.send_replace(true);
        }
    }

    /// Ends the watch, unless a listener has arrived meanwhile; a later listener opens another one.
    async fn give_up(&self) -> bool {
        // The lock of `ensure_live`: a listener that arrives now keeps this watch or opens another one.
        let mut task = self.task.lock().await;
        let needed = !self.audience.is_empty() && self.link.ensure_open().is_ok();
        if !needed {
            self.live.send_replace(false);
            *task = None;
        }
        !needed
    }

    /// `None` once the driver is closed, or without any waiter left.
    async fn reopen(&self) -> Option<Opened> {
        let mut pause = Duration::from_millis(20);
        loop {
            match tokio::time::timeout(OPENING, self.open()).await {
                Ok(Ok(opened)) => return Some(opened),
                Ok(Err(error)) if error.kind() == ErrorKind::Closed => return None,
                _ if self.audience.is_empty() => return None,
                _ => {}
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(500));
        }
    }

    async fn follow(&self, stream: &mut WatchStream) -> Ended {
        let mut look = tokio::time::interval(self.idle);
        look.tick().await;
        // Two looks in a row without listeners: a name that is waited for again and again keeps the watch.
        let mut quiet = false;
        loop {
            tokio::select! {
                message = stream.message() => match message {
                    Ok(Some(message)) if !message.canceled() && message.compact_revision() == 0 => {
                        self.audience.take_in(message.events());
                    }
                    _ => return Ended::Broken,
                },
                _ = look.tick() => {
                    let empty = self.audience.is_empty();
                    if quiet && empty {
                        return Ended::Idle;
                    }
                    quiet = empty;
                }
            }
        }
    }

    /// Ends the watch.
    pub(crate) async fn close(&self) {
        if let Some(task) = self.task.lock().await.take() {
            task.abort();
        }
    }

    /// Ends the watch of a driver that is dropped: no caller opens one at that time.
    pub(crate) fn abort(&self) {
        if let Ok(mut task) = self.task.try_lock() {
            task.take().inspect(JoinHandle::abort);
        }
    }
}

/// The task that keeps the watch. Dropped before its end, since its runtime ends, it has all waiters ask: the first of
/// them opens the watch again where it runs.
struct CutOff<A: Audience>(Option<Arc<LastingWatch<A>>>);

impl<A: Audience> Drop for CutOff<A> {
    fn drop(&mut self) {
        if let Some(lasting_watch) = self.0.take() {
            lasting_watch.live.send_replace(false);
            lasting_watch.audience.gap();
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Broken,
    Idle,
}

impl<A> fmt::Debug for LastingWatch<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LastingWatch").field("live", &*self.live.borrow()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Mutex;

    use tenure_testkit::{EtcdCluster, EtcdOptions};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);
    const MOMENT: Duration = Duration::from_millis(20);

    /// A listener that is there now and then.
    struct Ears {
        /// Whether it does so at each of the next looks; at all later ones as at the last of them.
        listens: Mutex<VecDeque<bool>>,
        looks: Mutex<u32>,
        reported: Mutex<Vec<&'static str>>,
    }

    impl Ears {
        fn tell(&self, what: &'static str) {
            self.reported.lock().unwrap().push(what);
        }

        fn reported(&self) -> String {
            self.reported.lock().unwrap().join(" ")
        }
    }

    impl Audience for Ears {
        fn root(&self) -> &[u8] {
            b"root/"
        }

        fn take_in(&self, events: &[Event]) {
            events.iter().for_each(|_| self.tell("event"));
        }

        fn begin(&self) {
            self.tell("begin");
        }

        fn gap(&self) {
            self.tell("gap");
        }

        fn is_empty(&self) -> bool {
            *self.looks.lock().unwrap() += 1;
            let mut listens = self.listens.lock().unwrap();
            let now = listens[0];
            if listens.len() > 1 {
                listens.pop_front();
            }
            !now
        }

        async fn attend(&self) {
            std::future::pending().await
        }
    }

    fn lasting_watch(url: &str, listens: &[bool], idle: Duration) -> Arc<LastingWatch<Ears>> {
        let listens = Mutex::new(listens.iter().copied().collect());
        let ears = Ears { listens, looks: Mutex::default(), reported: Mutex::default() };
        LastingWatch::with_idle(Arc::new(Link::new(url.parse().unwrap())), ears, idle)
    }

    impl LastingWatch<Ears> {
        async fn is_live(&self, live: bool) {
            let mut news = self.live.subscribe();
            let changed = tokio::time::timeout(PATIENCE, news.wait_for(|now| *now == live));
            changed.await.expect("in time").unwrap();
        }

        /// Returns when the task of the watch has ended by itself.
        async fn ended(&self) {
            self.is_live(false).await;
            let gone = async {
                while self.task.lock().await.is_some() {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(PATIENCE, gone).await.expect("nobody keeps it");
        }
    }

    #[tokio::test]
    async fn a_watch_that_nobody_needs_at_two_looks_is_given_up_and_opened_again_for_who_comes_next() {
        let cluster = EtcdCluster::single(EtcdOptions::new()).unwrap();
        // Two looks without a listener and a third one, before the watch is given up, with one; then the same, and the
        // third finds none.
        let now_and_then = [false, true, false, true, false, false, true, true, false, false, false];
        let lasting_watch = lasting_watch(&cluster.url(), &now_and_then, MOMENT);
        lasting_watch.ensure_live().await.unwrap();
        lasting_watch.ended().await;
        assert_eq!(*lasting_watch.audience.looks.lock().unwrap(), now_and_then.len() as u32);
        assert_eq!(lasting_watch.audience.reported(), "begin");
        lasting_watch.ensure_live().await.unwrap();
        assert_eq!(lasting_watch.audience.reported(), "begin begin");
    }

    #[tokio::test]
    async fn a_watch_that_breaks_is_opened_again_for_who_listens() {
        let mut cluster = EtcdCluster::single(EtcdOptions::new()).unwrap();
        let lasting_watch = lasting_watch(&cluster.url(), &[true], MOMENT);
        lasting_watch.ensure_live().await.unwrap();
        cluster.kill(0).unwrap();
        lasting_watch.is_live(false).await;
        cluster.restart(0).unwrap();
        lasting_watch.is_live(true).await;
        assert_eq!(lasting_watch.audience.reported(), "begin gap");
        lasting_watch.ensure_live().await.unwrap();
        assert_eq!(lasting_watch.audience.reported(), "begin gap", "it stays open");
    }

    #[tokio::test]
    async fn a_watch_that_breaks_is_given_up_when_nobody_listens_or_the_driver_is_closed() {
        for closed in [false, true] {
            let cluster = EtcdCluster::single(EtcdOptions::new()).unwrap();
            let lasting_watch = lasting_watch(&cluster.url(), &[closed], PATIENCE);
            lasting_watch.ensure_live().await.unwrap();
            if closed {
                lasting_watch.link.close();
            }
            drop(cluster);
            lasting_watch.ended().await;
            assert_eq!(lasting_watch.audience.reported(), "begin");
        }
    }

    #[tokio::test]
    async fn a_watch_is_kept_for_two_spans_between_looks_after_it_was_opened() {
        let cluster = EtcdCluster::single(EtcdOptions::new()).unwrap();
        let (span, start) = (MOMENT * 10, std::time::Instant::now());
        let lasting_watch = lasting_watch(&cluster.url(), &[false], span);
        lasting_watch.ensure_live().await.unwrap();
        lasting_watch.ended().await;
        assert!(start.elapsed() >= span * 2, "{:?}", start.elapsed());
    }

    #[tokio::test]
    async fn who_needs_it_while_it_is_opened_again_waits_for_that_or_for_the_end_of_the_driver() {
        let mut cluster = EtcdCluster::single(EtcdOptions::new()).unwrap();
        let lasting_watch = lasting_watch(&cluster.url(), &[true], PATIENCE);
        let is_pending =
            async |ensured: &mut JoinHandle<Result<()>>| tokio::time::timeout(MOMENT * 5, ensured).await.is_err();
        let ensure = || {
            let lasting_watch = Arc::clone(&lasting_watch);
            tokio::spawn(async move { lasting_watch.ensure_live().await })
        };
        lasting_watch.ensure_live().await.unwrap();
        for closed in [false, true] {
            cluster.kill(0).unwrap();
            lasting_watch.is_live(false).await;
            let mut ensured = ensure();
            assert!(is_pending(&mut ensured).await);
            if closed {
                lasting_watch.link.close();
            } else {
                cluster.restart(0).unwrap();
            }
            let ensured = tokio::time::timeout(PATIENCE, ensured).await.expect("in time").unwrap();
            let refused = ensured.err().map(|error| error.kind());
            assert_eq!(refused, closed.then_some(ErrorKind::Closed));
        }
    }

    /// No server answers there; the runtime's clock advances while nothing else does.
    #[tokio::test(start_paused = true)]
    async fn who_tries_to_open_it_again_waits_longer_each_time() {
        let listens = [true, true, true, true, true, true, true, false];
        let lasting_watch = lasting_watch("etcd://127.0.0.1:1", &listens, MOMENT);
        let start = tokio::time::Instant::now();
        assert!(lasting_watch.reopen().await.is_none());
        assert_eq!(*lasting_watch.audience.looks.lock().unwrap(), 8);
        let least = 20 + 40 + 80 + 160 + 320 + 500 + 500;
        let took = start.elapsed();
        assert!(took >= Duration::from_millis(least) && took < Duration::from_millis(least + 500), "{took:?}");
    }
}
