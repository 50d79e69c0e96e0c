//! Re-entrant locks over plain ones: the process counts entries, and the backend has one lock for each owner.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;

use super::{
    AcquireRequest, Acquisition, Begun, DistributedLock, Exited, Grant, Hold, OwnerScope, ReentrantCapabilities,
    ReentrantEntry, ReentrantHold, ReentrantLock, Released, Renewed, Tombstones,
};
use crate::driver::ErrorExt as _;
use crate::value::error::{Error, ErrorKind, LockName, Result};
use crate::value::time::Ttl;
use crate::value::token::{FencingToken, OwnerId, OwnerToken};

type Locks = Arc<dyn DistributedLock>;
type Key = (LockName, OwnerId);

/// Re-entrant locks over any driver's plain ones, for backends that cannot count entries themselves. An owner holds one
/// plain lock at any depth; the depth is known in this process only ([`OwnerScope::Process`]).
///
/// A hold uses the driver through which it was taken, also for entries through others. When that driver is closed or
/// gone, the hold uses the driver of the next renewal.
///
/// ```
/// use std::sync::Arc;
/// use tenure_core::driver::{Backend, CountedReentry, ProcessOwners};
/// use tenure_core::{Client, OwnerId};
/// use tenure_memory::MemoryDriver;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tenure_core::Result<()> {
/// let locks = Arc::new(MemoryDriver::new());
/// let owners = ProcessOwners::of("the store of this example");
/// let backend = Backend::new(locks.clone()).with_reentrant(Arc::new(CountedReentry::new(locks, owners)));
/// let (client, me) = (Client::new(backend), OwnerId::new());
/// let outer = client.reentrant("ledger", &me).acquire().await?;
/// let inner = client.reentrant("ledger", &me).acquire().await?;
/// assert_eq!((inner.depth(), inner.fence()), (2, outer.fence()));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct CountedReentry {
    locks: Locks,
    owners: Arc<ProcessOwners>,
}

/// The owners that are inside locks of one space, known in this process.
#[derive(Debug, Default)]
pub struct ProcessOwners {
    cells: Mutex<HashMap<Key, Arc<Cell>>>,
    abandoned: Mutex<Tombstones>,
}

/// One owner of one name.
#[derive(Debug, Default)]
struct Cell {
    /// One entry or exit at a time.
    turn: tokio::sync::Mutex<()>,
    inside: Mutex<Option<Inside>>,
}

/// A hold, with the ttl of each entry.
#[derive(Clone, Debug)]
struct Inside {
    through: Weak<dyn DistributedLock>,
    hold: Hold,
    fence: FencingToken,
    entries: HashMap<OwnerToken, Duration>,
}

impl Inside {
    fn depth(&self) -> u32 {
        u32::try_from(self.entries.len()).unwrap_or(u32::MAX)
    }
}

impl Cell {
    fn inside(&self) -> MutexGuard<'_, Option<Inside>> {
        locked(&self.inside)
    }

    /// Removes the hold, if it is this one.
    fn forget(&self, token: OwnerToken) {
        self.inside().take_if(|inside| inside.hold.token == token);
    }

    /// Makes the hold use another driver from now on.
    fn move_to(&self, token: OwnerToken, locks: &Locks) {
        if let Some(inside) = self.inside().as_mut().filter(|inside| inside.hold.token == token) {
            inside.through = Arc::downgrade(locks);
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns true if the driver is closed, so that another one has to be used; an only driver returns the error again.
fn is_closed<T>(answer: &Result<T>) -> bool {
    answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::Closed)
}

impl ProcessOwners {
    /// Returns the owners of the space with this name: all callers with the same name share them, for as long as one of
    /// them lives.
    ///
    /// The name must distinguish different locks: servers, databases, prefixes, stores. A caller that shares its locks
    /// with no other needs no name: `Arc::default()`.
    #[must_use]
    pub fn of(space: &str) -> Arc<Self> {
        static SPACES: LazyLock<Mutex<HashMap<String, Weak<ProcessOwners>>>> = LazyLock::new(Mutex::default);
        let mut spaces = locked(&SPACES);
        if let Some(known) = spaces.get(space).and_then(Weak::upgrade) {
            return known;
        }
        spaces.retain(|_, owners| owners.strong_count() > 0);
        let owners = Arc::default();
        spaces.insert(space.to_owned(), Arc::downgrade(&owners));
        owners
    }

    /// Returns the owner that has the hold with this fence, and its number of entries; `None` if it is not of this
    /// process.
    #[must_use]
    pub fn inside(&self, name: &LockName, fence: FencingToken) -> Option<(OwnerId, u32)> {
        let cells = locked(&self.cells);
        let same = |cell: &Cell| cell.inside().as_ref().filter(|inside| inside.fence == fence).map(Inside::depth);
        let mut of_name = cells.iter().filter(|((known, _), _)| known == name);
        of_name.find_map(|((_, owner), cell)| Some((*owner, same(cell)?)))
    }

    fn cell(&self, key: &Key) -> Arc<Cell> {
        Arc::clone(locked(&self.cells).entry(key.clone()).or_default())
    }

    fn known(&self, hold: &ReentrantHold) -> Option<(Arc<Cell>, Inside)> {
        let cell = Arc::clone(locked(&self.cells).get(&(hold.name.clone(), hold.owner))?);
        let inside = cell.inside().clone().filter(|inside| inside.fence == hold.fence)?;
        Some((cell, inside))
    }

    /// Removes an owner that is not inside and that no other call uses.
    fn tidy(&self, key: &Key, cell: Arc<Cell>) {
        let mut cells = locked(&self.cells);
        let idle = cell.inside().is_none();
        drop(cell);
        if idle && cells.get(key).is_some_and(|known| Arc::strong_count(known) == 1) {
            cells.remove(key);
        }
    }
}

impl CountedReentry {
    /// The deepest re-entry.
    pub const MAX_DEPTH: u32 = 65_535;

    /// Counts the entries into these locks with `owners`, which must be the same for the same locks.
    #[must_use]
    pub fn new(locks: Locks, owners: Arc<ProcessOwners>) -> Self {
        Self { locks, owners }
    }

    /// Returns the driver that a hold uses.
    fn through(&self, inside: &Inside) -> Locks {
        inside.through.upgrade().unwrap_or_else(|| Arc::clone(&self.locks))
    }

    async fn enter_in_turn(&self, cell: &Cell, request: &AcquireRequest) -> Result<Acquisition> {
        if locked(&self.owners.abandoned).hold(&request.token) {
            return Err(Error::new(ErrorKind::NotHeld, "this attempt was abandoned before its request arrived"));
        }
        let known = cell.inside().clone();
        if let Some(inside) = known {
            let (fence, depth) = (inside.fence, inside.depth());
            if let Some(ttl) = inside.entries.get(&request.token) {
                return Ok(Acquisition::Granted(Grant { fence, ttl: *ttl, begun: Begun::Earlier, depth, fences: 1 }));
            }
            if depth >= Self::MAX_DEPTH {
                let text = format!("the owner has entered {depth} times already, the maximum depth");
                return Err(Error::new(ErrorKind::LimitReached, text));
            }
            match self.renew_one(cell, &inside, request.ttl).await? {
                Renewed::Extended { ttl } => {
                    if let Some(inside) = cell.inside().as_mut() {
                        inside.entries.insert(request.token, ttl);
                    }
                    let grant = Grant { fence, ttl, begun: Begun::Now, depth: depth + 1, fences: 1 };
                    return Ok(Acquisition::Granted(grant));
                }
                Renewed::Lost => cell.forget(inside.hold.token),
            }
        }
        let answer = self.locks.acquire(request).await?;
        if let Acquisition::Granted(grant) = &answer {
            let hold = Hold { name: request.name.clone(), token: request.token };
            let entries = HashMap::from([(request.token, grant.ttl)]);
            *cell.inside() = Some(Inside { through: Arc::downgrade(&self.locks), hold, fence: grant.fence, entries });
        }
        Ok(answer)
    }

    async fn renew_one(&self, cell: &Cell, inside: &Inside, ttl: Ttl) -> Result<Renewed> {
        let hold = std::slice::from_ref(&inside.hold);
        let answer = only(self.through(inside).renew(ttl, hold).await);
        if !is_closed(&answer) {
            return answer;
        }
        cell.move_to(inside.hold.token, &self.locks);
        only(self.locks.renew(ttl, hold).await)
    }

    /// Renews holds that use one driver, in one call of it.
    async fn renew_through(
        &self,
        through: &Locks,
        ttl: Ttl,
        holds: Vec<(usize, Arc<Cell>, Hold)>,
    ) -> Vec<(usize, Result<Renewed>)> {
        let all: Vec<Hold> = holds.iter().map(|(_, _, hold)| hold.clone()).collect();
        let mut answers = through.renew(ttl, &all).await.into_iter();
        let mut all = Vec::with_capacity(holds.len());
        for (at, cell, hold) in holds {
            let mut answer = answers.next().unwrap_or_else(missing);
            let token = hold.token;
            if is_closed(&answer) {
                cell.move_to(token, &self.locks);
                answer = only(self.locks.renew(ttl, &[hold]).await);
            }
            if matches!(answer, Ok(Renewed::Lost)) {
                cell.forget(token);
            }
            all.push((at, answer));
        }
        all
    }

    async fn exit_in_turn(&self, cell: &Cell, token: &OwnerToken) -> Result<Exited> {
        let (through, hold) = {
            let mut inside = cell.inside();
            match inside.as_mut() {
                Some(inside) if inside.entries.contains_key(token) => {
                    if inside.entries.len() > 1 {
                        inside.entries.remove(token);
                        return Ok(Exited::Inside { depth: inside.depth() });
                    }
                    (self.through(inside), inside.hold.clone())
                }
                _ => return Ok(Exited::NotHeld),
            }
        };
        let mut released = through.release(&hold).await;
        if is_closed(&released) {
            released = self.locks.release(&hold).await;
        }
        let released = released?;
        cell.forget(hold.token);
        Ok(if released == Released::Released { Exited::Released } else { Exited::NotHeld })
    }

    async fn abandon_in_turn(&self, cell: &Cell, entry: &ReentrantEntry) -> Result<()> {
        let own = || (Arc::clone(&self.locks), entry.token);
        let (through, token) = {
            let mut inside = cell.inside();
            match inside.as_mut() {
                Some(inside) if inside.entries.contains_key(&entry.token) && inside.entries.len() == 1 => {
                    (self.through(inside), inside.hold.token)
                }
                Some(inside) => {
                    inside.entries.remove(&entry.token);
                    if inside.hold.token == entry.token {
                        return Ok(()); // the lock was taken with this token, and others are still inside
                    }
                    own()
                }
                None => own(),
            }
        };
        let hold = Hold { name: entry.name.clone(), token };
        let mut answer = through.abandon(&hold).await;
        if is_closed(&answer) {
            answer = self.locks.abandon(&hold).await;
        }
        answer?;
        cell.forget(token);
        Ok(())
    }
}

fn missing() -> Result<Renewed> {
    Err(Error::new(ErrorKind::Protocol, "fewer answers than renewals"))
}

fn only(answers: Vec<Result<Renewed>>) -> Result<Renewed> {
    answers.into_iter().next().unwrap_or_else(missing)
}

#[async_trait]
impl ReentrantLock for CountedReentry {
    fn capabilities(&self) -> ReentrantCapabilities {
        ReentrantCapabilities { scope: OwnerScope::Process, max_depth: Self::MAX_DEPTH }
    }

    async fn enter(&self, owner: &OwnerId, request: &AcquireRequest) -> Result<Acquisition> {
        let key = (request.name.clone(), *owner);
        let cell = self.owners.cell(&key);
        let answer = {
            let _turn = cell.turn.lock().await;
            self.enter_in_turn(&cell, request).await
        };
        self.owners.tidy(&key, cell);
        answer.map_err(|error| error.during(self.locks.driver(), "enter", &request.name))
    }

    async fn renew(&self, ttl: Ttl, holds: &[ReentrantHold]) -> Vec<Result<Renewed>> {
        let mut answers: Vec<Result<Renewed>> = holds.iter().map(|_| Ok(Renewed::Lost)).collect();
        let mut parts: Vec<(Locks, Vec<(usize, Arc<Cell>, Hold)>)> = Vec::new();
        for (at, hold) in holds.iter().enumerate() {
            let Some((cell, inside)) = self.owners.known(hold) else { continue };
            let through = self.through(&inside);
            let one = (at, cell, inside.hold);
            match parts.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &through)) {
                Some((_, part)) => part.push(one),
                None => parts.push((through, vec![one])),
            }
        }
        let parts = parts.iter_mut().map(|(through, part)| self.renew_through(through, ttl, std::mem::take(part)));
        for (at, answer) in join_all(parts).await.into_iter().flatten() {
            answers[at] = answer;
        }
        answers
    }

    async fn exit(&self, hold: &ReentrantEntry) -> Result<Exited> {
        let key = (hold.name.clone(), hold.owner);
        let cell = self.owners.cell(&key);
        let answer = {
            let _turn = cell.turn.lock().await;
            self.exit_in_turn(&cell, &hold.token).await
        };
        self.owners.tidy(&key, cell);
        answer.map_err(|error| error.during(self.locks.driver(), "exit", &hold.name))
    }

    async fn abandon(&self, hold: &ReentrantEntry) -> Result<()> {
        locked(&self.owners.abandoned).bury(hold.token);
        let key = (hold.name.clone(), hold.owner);
        let cell = self.owners.cell(&key);
        let answer = {
            let _turn = cell.turn.lock().await;
            self.abandon_in_turn(&cell, hold).await
        };
        self.owners.tidy(&key, cell);
        answer.map_err(|error| error.during(self.locks.driver(), "abandon", &hold.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_that_somebody_else_looks_at_is_not_forgotten() {
        let (owners, key) = (ProcessOwners::default(), (LockName::new("a").unwrap(), OwnerId::new()));
        let (cell, other) = (owners.cell(&key), owners.cell(&key));
        owners.tidy(&key, cell);
        assert!(Arc::ptr_eq(&owners.cell(&key), &other), "both take turns");
        owners.tidy(&key, other);
        assert!(locked(&owners.cells).is_empty());
    }
}
