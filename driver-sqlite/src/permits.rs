//! Semaphores and read-write locks: one record a name, in the table `permit`.

use std::time::Duration;

use async_trait::async_trait;
use rusqlite::OptionalExtension as _;
use tenure_core::driver::{
    Acquisition, ErrorExt as _, Exclusion, Family, Fencing, ForceReleased, PermitCapabilities, PermitChange,
    PermitHold, PermitInspection, PermitRequest, Permits, Released, Renewed, Ttl, TtlRange, Waiting, Watch,
};
use tenure_core::rules::locks::{Given, Heard};
use tenure_core::rules::permits::{Caps, Outside, PermitState, Refusal, Rule};
use tenure_core::{Error, FencingToken, LockName, OwnerToken, Result};

use crate::driver::{DRIVER, SqliteDriver};
use crate::error::{Done, Failed, damaged};
use crate::line::{Waiters, notify};
use crate::locks::RENEW_BATCH;
use crate::span::{micros, of_micros};
use crate::store::{Turn, fences};

/// The most holders of one name.
const HOLDERS: u32 = 1_024;
/// The most waiters of one name, whatever the setting: each of their requests writes the whole record.
const WAITERS: u32 = 1_000;

type PermitRule<'a, 'b> = Rule<'a, Waiters<'a, 'b>>;

/// Reads the record of a name; empty if there is none.
fn read(turn: &Turn<'_>, family: Family, name: &LockName) -> Done<PermitState> {
    let look = "SELECT record FROM permit WHERE name = ?1 AND family = ?2";
    let by = (name.as_bytes(), family.code().to_string());
    let record: Option<Vec<u8>> = turn.db.prepare_cached(look)?.query_row(by, |row| row.get(0)).optional()?;
    let Some(record) = record else { return Ok(PermitState::default()) };
    let read = PermitState::from_bytes(&record);
    Ok(read.map_err(|error| damaged(format!("the permits of \"{name}\": {error}")))?)
}

/// Writes a record. An idle name has no row.
fn write(turn: &Turn<'_>, family: Family, name: &LockName, state: &PermitState) -> Done<()> {
    let (name, family) = (name.as_bytes(), family.code().to_string());
    if state.is_idle(of_micros(turn.at)) {
        turn.db.prepare_cached("DELETE FROM permit WHERE name = ?1 AND family = ?2")?.execute((name, family))?;
        return Ok(());
    }
    let keep = "INSERT OR REPLACE INTO permit VALUES (?1, ?2, ?3, ?4)";
    turn.db.prepare_cached(keep)?.execute((name, family, micros(state.idle_at()), state.to_bytes()))?;
    Ok(())
}

/// Reads the record of a name, decides on it, and writes it if it has changed.
fn decide<T>(
    turn: &mut Turn<'_>,
    family: Family,
    name: &LockName,
    caps: Caps,
    decision: impl FnOnce(&mut PermitRule<'_, '_>) -> Done<T>,
) -> Done<T> {
    let mut state = read(turn, family, name)?;
    let now = of_micros(turn.at);
    let mut rule = Rule::new(&mut state, now, caps, Waiters { turn: &mut *turn, name });
    let answer = decision(&mut rule)?;
    if rule.changed() {
        write(turn, family, name, &state)?;
    }
    Ok(answer)
}

impl Outside for Waiters<'_, '_> {
    type Error = Failed;

    fn fence(&mut self) -> Done<FencingToken> {
        fences(self.turn.db, 1)
    }

    fn client(&self) -> u64 {
        self.turn.client.cast_unsigned()
    }

    fn signal(&mut self, waiter: &OwnerToken, client: u64, given: Option<Given>) -> Done<Heard> {
        Ok(notify(self.turn, client.cast_signed(), *waiter, given))
    }

    fn bury(&mut self, token: &OwnerToken) -> Done<()> {
        tenure_core::rules::locks::Rows::bury(self, token)
    }

    fn is_buried(&self, token: &OwnerToken) -> Done<bool> {
        tenure_core::rules::locks::Rows::is_buried(self, token)
    }
}

fn refused(refusal: Refusal) -> Failed {
    Error::from(refusal).into()
}

#[async_trait]
impl Permits for SqliteDriver {
    fn capabilities(&self) -> PermitCapabilities {
        let Caps { waiters, holders } = self.permit_caps();
        PermitCapabilities::new(
            Exclusion::SingleNode,
            Fencing::ClockSeeded,
            Waiting::Fifo,
            TtlRange { min: Ttl::MIN, max: Ttl::MAX, granularity: Duration::from_millis(1) },
        )
        .with_max_holders(holders)
        .with_max_waiters(Some(waiters))
        .with_renew_batch(RENEW_BATCH)
    }

    async fn acquire(&self, request: &PermitRequest) -> Result<Acquisition> {
        let PermitRequest { family, share, lock, .. } = request.clone();
        let acquire = move |rule: &mut PermitRule<'_, '_>| rule.acquire(share, &lock)?.map_err(refused);
        self.call_permits("acquire", family, &request.lock.name, acquire).await
    }

    async fn resize(&self, change: &PermitChange) -> Result<Acquisition> {
        let PermitChange { hold: PermitHold { family, token, .. }, to, step, presence, .. } = *change;
        let resize = move |rule: &mut PermitRule<'_, '_>| rule.resize(&token, to, step, presence)?.map_err(refused);
        self.call_permits("resize", family, &change.hold.name, resize).await
    }

    async fn renew(&self, ttl: Ttl, holds: &[PermitHold]) -> Vec<Result<Renewed>> {
        self.renew_each(holds, move |turn, PermitHold { family, name, token, .. }| {
            let mut state = read(turn, *family, name)?;
            let renewed = state.renew(of_micros(turn.at), token, ttl.get());
            if renewed != Renewed::Lost {
                write(turn, *family, name, &state)?;
            }
            Ok(renewed)
        })
        .await
    }

    async fn release(&self, hold: &PermitHold) -> Result<Released> {
        let token = hold.token;
        self.call_permits("release", hold.family, &hold.name, move |rule| rule.release(&token)).await
    }

    async fn abandon(&self, hold: &PermitHold) -> Result<()> {
        let token = hold.token;
        self.call_permits("abandon", hold.family, &hold.name, move |rule| rule.abandon(&token)).await
    }

    async fn watch(&self, hold: &PermitHold) -> Result<Watch> {
        let bell = self.worker().bell().map_err(|error| error.during(DRIVER, "watch", &hold.name))?;
        Ok(bell.locks.register(hold.token))
    }

    async fn inspect(&self, family: Family, name: &LockName, most: usize) -> Result<PermitInspection> {
        let same = name.clone();
        let look = move |turn: &mut Turn<'_>| Ok(read(turn, family, &same)?.inspect(of_micros(turn.at), most));
        self.worker().ask(look).await.map_err(|error| error.during(DRIVER, "inspect", name))
    }

    async fn evict(&self, family: Family, name: &LockName, fence: FencingToken) -> Result<ForceReleased> {
        self.call_permits("evict", family, name, move |rule| rule.evict(fence)).await
    }
}

impl SqliteDriver {
    fn permit_caps(&self) -> Caps {
        Caps { waiters: self.caps().max_waiters.min(WAITERS), holders: HOLDERS }
    }

    /// Does one request about a name in a transaction.
    async fn call_permits<T: Send + 'static>(
        &self,
        operation: &'static str,
        family: Family,
        name: &LockName,
        decision: impl FnOnce(&mut PermitRule<'_, '_>) -> Done<T> + Send + 'static,
    ) -> Result<T> {
        let (same, caps) = (name.clone(), self.permit_caps());
        let answer = self.worker().ask(move |turn| decide(turn, family, &same, caps, decision)).await;
        answer.map_err(|error| error.during(DRIVER, operation, name))
    }
}
