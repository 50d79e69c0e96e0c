//! The list of held locks.

use async_trait::async_trait;
use tenure_core::driver::{Census, CensusCapabilities, CensusOrder, CensusPlace, HeldLock, HeldPage};
use tenure_core::{LockName, Result};

use crate::driver::SqliteDriver;
use crate::error::{Done, damaged};
use crate::span::of_micros;
use crate::store::Turn;
use crate::{hold, line};

#[async_trait]
impl Census for SqliteDriver {
    fn capabilities(&self) -> CensusCapabilities {
        CensusCapabilities::new(CensusOrder::Sorted)
    }

    async fn held(&self, prefix: &[u8], from: Option<&CensusPlace>, max: usize) -> Result<HeldPage> {
        let (prefix, after) = (prefix.to_vec(), from.map(|place| place.as_bytes().to_vec()));
        self.worker().ask(move |turn| held(turn, &prefix, after.as_deref(), max)).await
    }
}

/// How many rows are looked at for each lock that a page may have: those of leases that ended are passed over, and not without
/// end, since others wait behind this transaction.
const LOOKS: usize = 8;

/// The first locks under a prefix, in the order of their bytes, behind one of them.
fn held(turn: &Turn<'_>, prefix: &[u8], after: Option<&[u8]>, max: usize) -> Done<HeldPage> {
    // The names under a prefix are those from itself on, up to the first that begins otherwise.
    let (from, behind) = match after {
        Some(after) => (after, "name > ?1"),
        None => (prefix, "name >= ?1"),
    };
    let look = format!("SELECT name FROM hold WHERE {behind} ORDER BY name LIMIT ?2");
    let mut look = turn.db.prepare_cached(&look)?;
    let most = i64::try_from(max.saturating_mul(LOOKS)).unwrap_or(i64::MAX);
    let rows = look.query_map((from, most), |row| row.get::<_, Vec<u8>>(0))?;
    let (mut locks, mut looked) = (Vec::new(), 0);
    for row in rows {
        let name = row?;
        looked += 1;
        if !name.starts_with(prefix) {
            return Ok(HeldPage::new(locks, None));
        }
        let name = LockName::new(&name).map_err(|_| damaged("a hold has an invalid name"))?;
        if let Some(held) = hold::read(turn, &name)? {
            let holder = held.seen(of_micros(turn.at));
            locks.push(HeldLock::new(name.clone(), holder).with_waiters(Some(line::count(turn, &name)?)));
        }
        if locks.len() == max || looked == most {
            return Ok(HeldPage::new(locks, Some(CensusPlace::new(name.as_bytes().to_vec()))));
        }
    }
    Ok(HeldPage::new(locks, None))
}
