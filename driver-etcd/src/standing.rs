//! A watch that stands: opened once somebody needs it, opened again whenever it breaks, given up when nobody does.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Event, WatchOptions, WatchStream};
use tenure_core::{Error, ErrorKind, Result};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::link::Link;

/// A watch that nobody has needed for this long is given up.
const IDLE: Duration = Duration::from_secs(30);

/// How long opening the watch again may take before it is tried anew.
const OPENING: Duration = Duration::from_secs(3);

/// Who is told what the watch tells.
pub(crate) trait Audience: Send + Sync + 'static {
    /// What the keys of interest begin with.
    fn root(&self) -> &[u8];

    /// What happened, in order.
    fn take_in(&self, events: &[Event]);

    /// The watch begins. Nobody relied on it before.
    fn begin(&self);

    /// The watch goes on after an interruption: nothing is known of the time between.
    fn gap(&self);

    /// Whether nobody listens.
    fn is_empty(&self) -> bool;

    /// What is to be done as time passes, while the watch stands. Does not end.
    fn attend(&self) -> impl Future<Output = ()> + Send;
}

/// A watch, and the member that serves it.
struct Opened {
    stream: WatchStream,
    member: usize,
}

pub(crate) struct Standing<A> {
    link: Arc<Link>,
    pub(crate) audience: A,
    task: tokio::sync::Mutex<Option<JoinHandle<()>>>,
    /// Whether the watch stands.
    live: watch::Sender<bool>,
}

impl<A: Audience> Standing<A> {
    pub(crate) fn new(link: Arc<Link>, audience: A) -> Arc<Self> {
        let (live, _) = watch::channel(false);
        Arc::new(Self { link, audience, task: tokio::sync::Mutex::default(), live })
    }

    /// Returns when the watch stands. It stands for as long as somebody listens: who needs it listens first.
    pub(crate) async fn ensure_live(self: &Arc<Self>) -> Result<()> {
        loop {
            let mut news = self.live.subscribe();
            let mut task = self.task.lock().await;
            if task.as_ref().is_none_or(JoinHandle::is_finished) {
                self.live.send_replace(false);
                let opened = self.open().await?;
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

    /// Opens the watch, from now on, and waits until it stands. A revision of the past would put it among those that
    /// etcd serves only ten times a second.
    async fn open(&self) -> Result<Opened> {
        let stream = self.link.call(|stubs| async move {
            let options = WatchOptions::new().with_prefix();
            let mut stream = stubs.watch().watch(self.audience.root(), Some(options)).await?;
            let first = stream.message().await?;
            let stands = first.is_some_and(|first| first.created() && !first.canceled());
            Ok((Opened { stream, member: stubs.member() }, stands))
        });
        match stream.await? {
            (opened, true) => Ok(opened),
            (_, false) => Err(Error::new(ErrorKind::Denied, "etcd refused the watch; it needs to read the prefix")),
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
            drop(opened);
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

    /// Ends the watch, unless somebody has begun to listen meanwhile; who comes later opens another one.
    async fn give_up(&self) -> bool {
        let mut task = self.task.lock().await;
        let needed = !self.audience.is_empty() && self.link.ensure_open().is_ok();
        if !needed {
            self.live.send_replace(false);
            *task = None;
        }
        !needed
    }

    /// `None` once the driver is closed, or nobody waits any more.
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
        let mut look = tokio::time::interval(IDLE);
        look.tick().await;
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

    /// Ends the watch of a driver that is dropped: nobody opens one at that time.
    pub(crate) fn abort(&self) {
        if let Ok(mut task) = self.task.try_lock() {
            task.take().inspect(JoinHandle::abort);
        }
    }
}

/// The task that keeps the watch. Dropped before its end, since its runtime ends, it has everybody ask: the first of them
/// opens the watch again where it runs.
struct CutOff<A: Audience>(Option<Arc<Standing<A>>>);

impl<A: Audience> Drop for CutOff<A> {
    fn drop(&mut self) {
        if let Some(standing) = self.0.take() {
            standing.live.send_replace(false);
            standing.audience.gap();
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Broken,
    Idle,
}

impl<A> fmt::Debug for Standing<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Standing").field("live", &*self.live.borrow()).finish_non_exhaustive()
    }
}
