//! The list of held locks: a scan of the keys at each server, and a look at those that are locks.

use std::collections::BTreeMap;

use async_trait::async_trait;
use futures_util::future::try_join_all;
use tenure_core::driver::{Census, CensusCapabilities, CensusOrder, CensusPlace, HeldLock, HeldPage};
use tenure_core::{Error, ErrorKind, LockName, Result};

use crate::dial::Reply;
use crate::lock::RedisLocks;
use crate::remote::{Placement, RedisExecutor};
use crate::reply;
use crate::slot;

/// How many locks one script looks at, so that it stays short.
const LOOKS: usize = 100;

/// A page is one `SCAN` at one server, and then a script for each hundred locks that it told, all at once; in a cluster for each
/// slot that they are in. In a cluster the servers come one after the other.
#[async_trait]
impl<E: RedisExecutor> Census for RedisLocks<E> {
    fn capabilities(&self) -> CensusCapabilities {
        CensusCapabilities::new(CensusOrder::None)
    }

    async fn held(&self, prefix: &[u8], from: Option<&CensusPlace>, max: usize) -> Result<HeldPage> {
        let mut homes = self.executor().homes();
        homes.sort_by(|(one, _), (other, _)| one.cmp(other));
        let (cursor, server) = match from {
            Some(place) => read(place)?,
            None => (0, String::new()),
        };
        // The server that the cursor is of, or the next one if that has left the cluster.
        let Some(at) = homes.iter().position(|(home, _)| *home >= server) else {
            return Ok(HeldPage::new(Vec::new(), None));
        };
        let (home, slots) = &homes[at];
        let cursor = if *home == server { cursor } else { 0 };
        let (cursor, count) = (cursor.to_string(), max.to_string());
        let pattern = self.calls().keys.lock_pattern(prefix);
        let words = ["SCAN", &cursor, "MATCH", &pattern, "COUNT", &count];
        let scanned = self.executor().command_at(*slots.start(), &words).await;
        let scanned =
            scanned.map_err(|error| self.calls().keys.explain(error).at(format_args!("the keys at {home}")))?;
        let (cursor, keys) = scan(&scanned)?;
        let next = match (cursor, homes.get(at + 1)) {
            (0, None) => None,
            (0, Some((next, _))) => Some(place(0, next)),
            (cursor, _) => Some(place(cursor, home)),
        };
        // A scan tells a key twice while the server makes room for more of them.
        let names: BTreeMap<&[u8], LockName> =
            keys.into_iter().filter_map(|key| Some((key, self.calls().keys.lock_of(key)?))).collect();
        Ok(HeldPage::new(self.look(names.into_values().collect()).await?, next))
    }
}

impl<E: RedisExecutor> RedisLocks<E> {
    /// Those of the locks that are held.
    async fn look(&self, names: Vec<LockName>) -> Result<Vec<HeldLock>> {
        let mut slots: BTreeMap<u16, Vec<&LockName>> = BTreeMap::new();
        for name in &names {
            let slot = match self.executor().placement() {
                Placement::OneServer | Placement::OnePrimary => 0,
                Placement::Slots => slot::of(&self.calls().keys.lock_key(name)),
            };
            slots.entry(slot).or_default().push(name);
        }
        let parts = slots.values().flat_map(|names| names.chunks(LOOKS)).map(async |names: &[&LockName]| {
            let [first, ..] = names else { return Ok(Vec::new()) };
            let reply = self.run("held_locks", first, self.calls().census(names)).await?;
            let items = reply.items()?;
            if items.len() != names.len() {
                return Err(Error::new(ErrorKind::Protocol, "the number of answers differs from that of the locks"));
            }
            names.iter().zip(items).filter_map(|(name, item)| seen(name, item).transpose()).collect::<Result<Vec<_>>>()
        });
        Ok(try_join_all(parts).await?.into_iter().flatten().collect())
    }
}

/// The lock, if it is held, and a lock at all: others may keep lists under such a key.
fn seen(name: &LockName, item: &Reply) -> Result<Option<HeldLock>> {
    let kind = item.items()?.get(2).map(Reply::bytes).transpose()?;
    if !matches!(kind, Some(b"string" | b"hash")) {
        return Ok(None);
    }
    let seen = reply::inspection(item)?;
    Ok(seen.holder.map(|holder| HeldLock::new(name.clone(), holder).with_waiters(Some(seen.waiters))))
}

/// The cursor that a scan goes on at, and the keys that it told.
fn scan(reply: &Reply) -> Result<(u64, Vec<&[u8]>)> {
    let unexpected = || Error::new(ErrorKind::Protocol, "an answer to SCAN that is none");
    let [cursor, keys] = reply.items()? else { return Err(unexpected()) };
    let cursor = std::str::from_utf8(cursor.bytes()?).ok().and_then(|text| text.parse().ok()).ok_or_else(unexpected)?;
    Ok((cursor, keys.items()?.iter().map(Reply::bytes).collect::<Result<_>>()?))
}

fn place(cursor: u64, server: &str) -> CensusPlace {
    CensusPlace::new(format!("{cursor} {server}").into_bytes())
}

fn read(place: &CensusPlace) -> Result<(u64, String)> {
    let parts = || {
        let (cursor, server) = std::str::from_utf8(place.as_bytes()).ok()?.split_once(' ')?;
        Some((cursor.parse().ok()?, server.to_owned()))
    };
    parts().ok_or_else(|| Error::new(ErrorKind::InvalidArgument, "a place that this driver did not give"))
}
