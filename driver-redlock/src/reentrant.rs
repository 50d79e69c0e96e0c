//! Re-entry, counted in this driver: the nodes see one plain lock for each owner, whatever its depth.
//!
//! A count that is kept at the nodes would have to be agreed on by a majority at every entry and exit, and a node that
//! missed some would free the lock too soon. Here it is exact, at the price of its scope: the same owner in another
//! process is another owner.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::driver::{
    AcquireRequest, Acquisition, Begun, Exited, Grant, Hold, ReentrantHold, ReentrantRenewal, Released, Renewed,
};
use tenure_core::{Error, ErrorKind, FencingToken, LockName, OwnerId, OwnerToken, Result};

use crate::acquire;
use crate::release;
use crate::renew;
use crate::shared::Shared;
use crate::slot::Slot;

/// The deepest re-entry.
pub(crate) const MAX_DEPTH: u32 = 65_535;

type Key = (LockName, OwnerId);

/// The re-entrant holds of this driver.
#[derive(Debug, Default)]
pub(crate) struct Holds(Mutex<HashMap<Key, Arc<Owner>>>);

/// One owner of one name.
#[derive(Debug, Default)]
struct Owner {
    /// One entry or exit at a time.
    turn: tokio::sync::Mutex<()>,
    inside: Mutex<Option<Inside>>,
}

/// A hold, with the ttl that each entry was told.
#[derive(Clone, Debug)]
struct Inside {
    slot: Arc<Slot>,
    fence: FencingToken,
    entries: HashMap<OwnerToken, Duration>,
}

impl Inside {
    fn depth(&self) -> u32 {
        u32::try_from(self.entries.len()).unwrap_or(u32::MAX)
    }
}

impl Owner {
    fn inside(&self) -> MutexGuard<'_, Option<Inside>> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Holds {
    fn owner(&self, key: Key) -> Arc<Owner> {
        Arc::clone(self.map().entry(key).or_default())
    }

    /// How often the owner of the hold with this fence is inside, as far as this process knows.
    pub(crate) fn depth(&self, name: &LockName, fence: FencingToken) -> Option<u32> {
        let map = self.map();
        let same = |owner: &Owner| owner.inside().as_ref().filter(|inside| inside.fence == fence).map(Inside::depth);
        map.iter().filter(|((known, _), _)| known == name).find_map(|(_, owner)| same(owner))
    }

    /// Forgets an owner that is not inside and that nobody else looks at.
    fn tidy(&self, key: &Key, owner: Arc<Owner>) {
        let mut map = self.map();
        let idle = owner.inside().is_none();
        drop(owner);
        if idle && map.get(key).is_some_and(|known| Arc::strong_count(known) == 1) {
            map.remove(key);
        }
    }

    fn map(&self) -> MutexGuard<'_, HashMap<Key, Arc<Owner>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Enters the lock: a new hold, or one entry more in the one that the owner has.
pub(crate) async fn enter(shared: &Arc<Shared>, owner: &OwnerId, request: &AcquireRequest) -> Result<Acquisition> {
    shared.ensure_open()?;
    let key = (request.name.clone(), *owner);
    let cell = shared.holds.owner(key.clone());
    let answer = {
        let _turn = cell.turn.lock().await;
        enter_in_turn(shared, &cell, request).await
    };
    shared.holds.tidy(&key, cell);
    answer
}

async fn enter_in_turn(shared: &Arc<Shared>, cell: &Owner, request: &AcquireRequest) -> Result<Acquisition> {
    let hold = cell.inside().clone();
    if let Some(inside) = hold {
        let (fence, depth) = (inside.fence, inside.depth());
        if let Some(ttl) = inside.entries.get(&request.token) {
            return Ok(Acquisition::Granted(Grant { fence, ttl: *ttl, begun: Begun::Earlier, depth, fences: 1 }));
        }
        if shared.slots.is_buried(&request.token) {
            return Err(Error::new(ErrorKind::NotHeld, "the entry was abandoned before its request arrived"));
        }
        if depth >= MAX_DEPTH {
            let text = format!("the owner has entered {MAX_DEPTH} times already, the deepest that is kept");
            return Err(Error::new(ErrorKind::LimitReached, text));
        }
        match renew::renew_slots(shared, vec![(Arc::clone(&inside.slot), request.ttl)]).await.remove(0)? {
            Renewed::Extended { ttl } => {
                if let Some(inside) = cell.inside().as_mut() {
                    inside.entries.insert(request.token, ttl);
                }
                let grant = Grant { fence, ttl, begun: Begun::Now, depth: depth + 1, fences: 1 };
                return Ok(Acquisition::Granted(grant));
            }
            Renewed::Lost => *cell.inside() = None,
        }
    }
    let answer = acquire::acquire(shared, request).await?;
    if let Acquisition::Granted(grant) = &answer {
        let slot = shared.slots.find(&request.name, request.token, shared.n());
        let entries = HashMap::from([(request.token, grant.ttl)]);
        *cell.inside() = Some(Inside { slot, fence: grant.fence, entries });
    }
    Ok(answer)
}

/// Renews holds, all in one round.
pub(crate) async fn renew(shared: &Arc<Shared>, renewals: &[ReentrantRenewal]) -> Vec<Result<Renewed>> {
    let find = |renewal: &ReentrantRenewal| {
        let owner = shared.holds.map().get(&(renewal.name.clone(), renewal.owner)).map(Arc::clone)?;
        let slot = owner.inside().as_ref().filter(|inside| inside.fence == renewal.fence)?.slot.clone();
        Some((owner, slot))
    };
    let found: Vec<_> = renewals.iter().map(find).collect();
    let known = found
        .iter()
        .zip(renewals)
        .filter_map(|(found, renewal)| found.as_ref().map(|(_, slot)| (Arc::clone(slot), renewal.ttl)));
    let mut answers = renew::renew_slots(shared, known.collect()).await.into_iter();
    let answer = |found: &Option<(Arc<Owner>, Arc<Slot>)>| {
        let Some((owner, slot)) = found else { return Ok(Renewed::Lost) };
        let answer = answers.next().unwrap_or_else(|| Err(Error::new(ErrorKind::Protocol, "an answer is missing")));
        if matches!(answer, Ok(Renewed::Lost)) {
            owner.inside().take_if(|inside| Arc::ptr_eq(&inside.slot, slot));
        }
        answer
    };
    found.iter().map(answer).collect()
}

/// Undoes one entry; the last one releases the lock.
pub(crate) async fn exit(shared: &Arc<Shared>, hold: &ReentrantHold) -> Result<Exited> {
    shared.ensure_open()?;
    let key = (hold.name.clone(), hold.owner);
    let cell = shared.holds.owner(key.clone());
    let answer = {
        let _turn = cell.turn.lock().await;
        exit_in_turn(shared, &cell, &hold.token).await
    };
    shared.holds.tidy(&key, cell);
    answer
}

async fn exit_in_turn(shared: &Arc<Shared>, cell: &Owner, token: &OwnerToken) -> Result<Exited> {
    let slot = {
        let mut inside = cell.inside();
        match inside.as_mut() {
            Some(hold) if hold.entries.contains_key(token) => {
                if hold.entries.len() > 1 {
                    hold.entries.remove(token);
                    return Ok(Exited::Inside { depth: hold.depth() });
                }
                Arc::clone(&hold.slot)
            }
            _ => return Ok(Exited::NotHeld),
        }
    };
    let released = release::release_slot(shared, &slot).await?;
    *cell.inside() = None;
    Ok(if released == Released::Released { Exited::Released } else { Exited::NotHeld })
}

/// Undoes whatever the token of one entry asked for.
pub(crate) async fn abandon(shared: &Arc<Shared>, hold: &ReentrantHold) -> Result<()> {
    shared.ensure_open()?;
    shared.slots.bury(hold.token);
    let key = (hold.name.clone(), hold.owner);
    let cell = shared.holds.owner(key.clone());
    let answer = {
        let _turn = cell.turn.lock().await;
        abandon_in_turn(shared, &cell, hold).await
    };
    shared.holds.tidy(&key, cell);
    answer
}

async fn abandon_in_turn(shared: &Arc<Shared>, cell: &Owner, hold: &ReentrantHold) -> Result<()> {
    let token = {
        let mut inside = cell.inside();
        match inside.as_mut() {
            Some(held) if held.entries.contains_key(&hold.token) && held.entries.len() == 1 => held.slot.token,
            Some(held) => {
                held.entries.remove(&hold.token);
                if held.slot.token == hold.token {
                    return Ok(()); // the lock was taken with this token, and others are still inside
                }
                hold.token
            }
            None => hold.token,
        }
    };
    release::abandon(shared, &Hold { name: hold.name.clone(), token }).await?;
    cell.inside().take_if(|inside| inside.slot.token == token);
    Ok(())
}
