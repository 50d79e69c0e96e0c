//! The one watch of a client, and who is woken by it.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use etcd_client::{Event, EventType, WatchOptions, WatchStream};
use tenure_core::driver::Watch;
use tenure_core::{Error, ErrorKind, OwnerToken, Result};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::keys::{Keyspace, Parsed};
use crate::link::Link;
use crate::view::{Change, View};

/// A watch that nobody has needed for this long is given up.
const IDLE: Duration = Duration::from_secs(30);

/// How long opening the watch again may take before it is tried anew.
const OPENING: Duration = Duration::from_secs(3);

pub(crate) struct Watcher {
    link: Arc<Link>,
    keyspace: Keyspace,
    view: Mutex<View>,
    task: tokio::sync::Mutex<Option<JoinHandle<()>>>,
    /// Whether the watch stands.
    live: watch::Sender<bool>,
}

/// A request on its way, for the view.
pub(crate) struct Asking<'a> {
    watcher: &'a Watcher,
    name: &'a [u8],
    pub(crate) epoch: u64,
}

impl Watcher {
    pub(crate) fn new(link: Arc<Link>, keyspace: Keyspace) -> Arc<Self> {
        let (live, _) = watch::channel(false);
        Arc::new(Self { link, keyspace, view: Mutex::default(), task: tokio::sync::Mutex::default(), live })
    }

    pub(crate) fn view(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn asking<'a>(&'a self, name: &'a [u8]) -> Asking<'a> {
        Asking { watcher: self, name, epoch: self.view().asks(name) }
    }

    /// Listens for a token, once the watch stands.
    pub(crate) async fn listen(self: &Arc<Self>, name: &[u8], token: OwnerToken) -> Result<Watch> {
        self.ensure_live().await?;
        let (handle, watch) = Watch::channel();
        let (watcher, name) = (Arc::clone(self), name.to_vec());
        self.view().listen(&name, token, handle);
        Ok(watch.on_drop(move || watcher.view().unlisten(&name, &token)))
    }

    async fn ensure_live(self: &Arc<Self>) -> Result<()> {
        let mut task = self.task.lock().await;
        if task.as_ref().is_none_or(JoinHandle::is_finished) {
            self.live.send_replace(false);
            let stream = self.open().await?;
            self.view().gap();
            self.live.send_replace(true);
            *task = Some(tokio::spawn(Arc::clone(self).run(stream)));
            return Ok(());
        }
        drop(task);
        let mut live = self.live.subscribe();
        let ended = |_| Error::new(ErrorKind::Unavailable, "the watch was given up");
        live.wait_for(|live| *live).await.map(drop).map_err(ended)
    }

    /// Opens the watch, from now on, and waits until it stands. A revision of the past would put it among those that
    /// etcd serves only ten times a second.
    async fn open(&self) -> Result<WatchStream> {
        let root = self.keyspace.root();
        let stream = self.link.call(|mut stubs| async move {
            let mut stream = stubs.watch.watch(root, Some(WatchOptions::new().with_prefix())).await?;
            let first = stream.message().await?;
            Ok((stream, first.is_some_and(|first| first.created() && !first.canceled())))
        });
        match stream.await? {
            (stream, true) => Ok(stream),
            (_, false) => Err(Error::new(ErrorKind::Denied, "etcd refused the watch; it needs to read the prefix")),
        }
    }

    async fn run(self: Arc<Self>, mut stream: WatchStream) {
        let mut turns = self.link.turns();
        loop {
            let ended = tokio::select! {
                ended = self.follow(&mut stream) => ended,
                _ = turns.changed() => Ended::Broken,
            };
            self.live.send_replace(false);
            drop(stream);
            if ended == Ended::Idle {
                return;
            }
            stream = match self.reopen().await {
                Some(stream) => stream,
                None => return,
            };
            turns.borrow_and_update();
            self.view().gap();
            self.live.send_replace(true);
        }
    }

    /// `None` once the driver is closed, or nobody waits any more.
    async fn reopen(&self) -> Option<WatchStream> {
        let mut pause = Duration::from_millis(20);
        loop {
            match tokio::time::timeout(OPENING, self.open()).await {
                Ok(Ok(stream)) => return Some(stream),
                Ok(Err(error)) if error.kind() == ErrorKind::Closed => return None,
                _ if self.view().is_empty() => return None,
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
                        let mut view = self.view();
                        message.events().iter().for_each(|event| self.take_in(&mut view, event));
                    }
                    _ => return Ended::Broken,
                },
                _ = look.tick() => {
                    let empty = self.view().is_empty();
                    if quiet && empty {
                        return Ended::Idle;
                    }
                    quiet = empty;
                }
            }
        }
    }

    fn take_in(&self, view: &mut View, event: &Event) {
        let Some(key) = event.kv() else { return };
        let put = event.event_type() == EventType::Put;
        match self.keyspace.parse(key.key()) {
            Parsed::Hold(name) => {
                view.change(name, key.mod_revision(), if put { Change::Held } else { Change::Freed });
            }
            Parsed::Wait(name, token) => {
                let change = if put { Change::Joined(token, key.create_revision()) } else { Change::Left(token) };
                view.change(name, key.mod_revision(), change);
            }
            Parsed::Foreign => {}
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Broken,
    Idle,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.watcher.view().asked(self.name);
    }
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watcher").field("live", &*self.live.borrow()).finish_non_exhaustive()
    }
}
