//! Work that outlives a call: late answers, and the undoing of votes that won nothing.
//!
//! It has an owner (the driver), a bound (each piece ends by itself, and their number has a cap), and a join
//! ([`Background::drain`]). A piece that was added outside a runtime begins with the next call inside one. So does an
//! undoing whose runtime ended before it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tenure_core::driver::{Hold, LeaseInstant, Released};
use tenure_core::{Error, ErrorKind, Result};
use tokio::task::JoinSet;

use crate::attempt_state::Undo;
use crate::node::Node;

/// The most pieces at once; leases beyond that expire by themselves.
const MOST: usize = 65_536;

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

#[derive(Default)]
pub(crate) struct Background {
    running: Mutex<JoinSet<()>>,
    waiting: Arc<Waiting>,
}

/// The work that is delayed until a runtime is there.
#[derive(Default)]
struct Waiting(Mutex<Line>);

#[derive(Default)]
struct Line {
    work: Vec<Work>,
    undone: Vec<(Chore, LeaseInstant)>,
    closed: bool,
}

impl Waiting {
    fn line(&self) -> MutexGuard<'_, Line> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn len(&self) -> usize {
        let line = self.line();
        line.work.len() + line.undone.len()
    }

    fn take(&self) -> (Vec<Work>, Vec<(Chore, LeaseInstant)>) {
        let mut line = self.line();
        (std::mem::take(&mut line.work), std::mem::take(&mut line.undone))
    }

    fn put_back(&self, chore: Chore, until: LeaseInstant) {
        let mut line = self.line();
        if !line.closed && line.undone.len() < MOST && LeaseInstant::now() < until {
            line.undone.push((chore, until));
        }
    }
}

impl Background {
    /// Begins a piece of work. Never blocks; works outside a runtime.
    pub(crate) fn push(&self, work: impl Future<Output = ()> + Send + 'static) {
        let room = MOST.saturating_sub(self.len());
        let work = Box::pin(work); // dropped when nothing is locked
        {
            let mut line = self.waiting.line();
            if line.closed || room == 0 {
                return;
            }
            line.work.push(work);
        }
        self.resume();
    }

    /// Begins the delayed work, if there is a runtime now.
    pub(crate) fn resume(&self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        // A runtime that is ending drops at once what it is given; an undoing then waits again.
        for piece in self.take_waiting() {
            self.running().spawn_on(piece, &runtime);
        }
    }

    fn take_waiting(&self) -> Vec<Work> {
        let (mut work, undone) = self.waiting.take();
        let undoer = self.undoer();
        let undoing = |(chore, until)| Box::pin(undoer.undoing(chore, until).run()) as Work;
        work.extend(undone.into_iter().map(undoing));
        work
    }

    /// Who undoes tokens, also after the runtime that it was begun on.
    pub(crate) fn undoer(&self) -> Undoer {
        Undoer(Arc::downgrade(&self.waiting))
    }

    /// How many pieces are not done.
    pub(crate) fn len(&self) -> usize {
        let running = {
            let mut running = self.running();
            while running.try_join_next().is_some() {}
            running.len()
        };
        running + self.waiting.len()
    }

    /// Waits until all is done, but no longer than `limit`; drops the remaining work then. Accepts no more work.
    pub(crate) async fn drain(&self, limit: Duration) {
        // First: work that is pushed from now on is dropped, so that the wait has an end.
        self.waiting.line().closed = true;
        let mut running = std::mem::take(&mut *self.running());
        self.take_waiting().into_iter().for_each(|work| drop(running.spawn(work)));
        let all = async { while running.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(limit, all).await; // what is left ends with `running`
    }

    fn running(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Background {
    /// What runs ends by itself; a driver that is dropped does not take it along.
    fn drop(&mut self) {
        self.running().detach_all();
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
    /// Undoes once. Returns the node's answer if this is a release.
    pub(crate) async fn once(&self) -> Result<Option<Released>> {
        // The release first, for its answer: after an abandonment it would find nothing.
        let reported = if self.undo.tells() { Some(self.node.release(&self.hold).await?) } else { None };
        let over = self.undo == Undo::ReleaseOrAbandon && reported == Some(Released::Released);
        if self.undo != Undo::Release && !over {
            self.node.abandon(&self.hold).await?;
        }
        Ok(reported)
    }
}

/// Begins to undo tokens.
#[derive(Clone)]
pub(crate) struct Undoer(Weak<Waiting>);

impl Undoer {
    pub(crate) fn undoing(&self, chore: Chore, until: LeaseInstant) -> Undoing {
        Undoing { chore: Some(chore), until, waiting: Weak::clone(&self.0) }
    }

    /// Undoes until every node has acknowledged, or until it cannot matter any more.
    pub(crate) fn undo(&self, chores: Vec<Chore>, until: LeaseInstant) -> impl Future<Output = ()> + Send + use<> {
        undo_all(chores.into_iter().map(|chore| self.undoing(chore, until)).collect())
    }
}

/// A token that is being undone. Dropped before that is done, it waits for the next runtime.
pub(crate) struct Undoing {
    chore: Option<Chore>,
    until: LeaseInstant,
    waiting: Weak<Waiting>,
}

impl Undoing {
    /// It is undone.
    pub(crate) fn done(mut self) {
        self.chore = None;
    }

    async fn run(mut self) {
        let mut pause = Duration::from_millis(20);
        while let Some(chore) = &self.chore {
            match chore.once().await {
                Err(error) if !is_over(&error) && LeaseInstant::now() < self.until => {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_secs(1));
                }
                _ => self.chore = None,
            }
        }
    }
}

impl Drop for Undoing {
    fn drop(&mut self) {
        if let (Some(chore), Some(waiting)) = (self.chore.take(), self.waiting.upgrade()) {
            waiting.put_back(chore, self.until);
        }
    }
}

fn is_over(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::NotHeld | ErrorKind::Closed)
}

/// Continues until all are undone, or cannot matter any more.
pub(crate) async fn undo_all(tokens: Vec<Undoing>) {
    let mut all: FuturesUnordered<_> = tokens.into_iter().map(Undoing::run).collect();
    while all.next().await.is_some() {}
}

#[cfg(test)]
mod tests;
