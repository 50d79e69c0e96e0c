//! Work that outlives a call: late answers, and the undoing of votes that won nothing.
//!
//! It has an owner (the driver), a bound (each piece ends by itself, and there is a cap on their number), and a join
//! ([`Background::drain`]). A piece that is handed over outside a runtime is begun with the next one inside.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tenure_core::driver::{Hold, Released};
use tenure_core::{ErrorKind, LeaseInstant, Result};
use tokio::task::JoinSet;

use crate::node::Node;
use crate::standing::Undo;

/// The most pieces at once; what is beyond is left to the leases' own end.
const MOST: usize = 65_536;

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

#[derive(Default)]
pub(crate) struct Background(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    running: JoinSet<()>,
    waiting: VecDeque<Work>,
    closed: bool,
}

impl Background {
    /// Begins a piece of work. Never blocks; works outside a runtime.
    pub(crate) fn push(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut inner = self.inner();
        while inner.running.try_join_next().is_some() {}
        if inner.closed || inner.running.len() + inner.waiting.len() >= MOST {
            return;
        }
        inner.waiting.push_back(Box::pin(work));
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            while let Some(work) = inner.waiting.pop_front() {
                inner.running.spawn_on(work, &runtime);
            }
        }
    }

    /// How many pieces are not done.
    pub(crate) fn len(&self) -> usize {
        let mut inner = self.inner();
        while inner.running.try_join_next().is_some() {}
        inner.running.len() + inner.waiting.len()
    }

    /// Waits until all is done, but no longer than `limit`; what is left then is dropped. Accepts no more work.
    pub(crate) async fn drain(&self, limit: Duration) {
        let (mut running, waiting) = {
            let mut inner = self.inner();
            inner.closed = true;
            (std::mem::take(&mut inner.running), std::mem::take(&mut inner.waiting))
        };
        waiting.into_iter().for_each(|work| drop(running.spawn(work)));
        let all = async { while running.join_next().await.is_some() {} };
        if tokio::time::timeout(limit, all).await.is_err() {
            running.abort_all();
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Background {
    /// What runs ends by itself; a driver that is dropped does not take it along.
    fn drop(&mut self) {
        self.inner().running.detach_all();
    }
}

impl fmt::Debug for Background {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Background({})", self.len())
    }
}

/// A token to be undone at a node.
#[derive(Clone, Debug)]
pub(crate) struct Chore {
    pub(crate) node: Arc<Node>,
    pub(crate) hold: Hold,
    pub(crate) undo: Undo,
}

impl Chore {
    /// Undoes once. What a release tells, if it is one.
    pub(crate) async fn once(&self) -> Result<Option<Released>> {
        let told = if self.undo.tells() { Some(self.node.release(&self.hold).await?) } else { None };
        if self.undo != Undo::Release {
            self.node.abandon(&self.hold).await?;
        }
        Ok(told)
    }
}

/// Undoes until every node has acknowledged, or until it cannot matter any more.
pub(crate) async fn undo_all(chores: Vec<Chore>, until: LeaseInstant) {
    let mut all: FuturesUnordered<_> = chores.into_iter().map(|chore| undo(chore, until)).collect();
    while all.next().await.is_some() {}
}

async fn undo(chore: Chore, until: LeaseInstant) {
    let mut pause = Duration::from_millis(20);
    while let Err(error) = chore.once().await {
        if matches!(error.kind(), ErrorKind::NotHeld | ErrorKind::Closed) || LeaseInstant::now() >= until {
            return;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(1));
    }
}
