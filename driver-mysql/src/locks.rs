//! Locks: turns requests into statements, and rows into answers. Every method is one statement, and one round trip.

use std::time::Duration;

use async_trait::async_trait;
use mysql_async::{Row, Value};
use tenure_core::driver::{
    AcquireRequest, Acquisition, Begun, Busy, DistributedLock, ErrorExt as _, Exclusion, Exited, Fencing,
    ForceReleased, Grant, Hold, Holder, Inspection, LockCapabilities, OwnerScope, ReentrantCapabilities,
    ReentrantEntry, ReentrantHold, ReentrantLock, Released, Renewed, Tombstones, Ttl, TtlRange, Waiting, Watch,
};
use tenure_core::{Error, ErrorKind, FencingToken, Label, LockName, OwnerId, OwnerToken, Result};

use crate::connection::DRIVER;
use crate::driver::MysqlDriver;
use crate::error::odd;
use crate::row::{bytes, column, fence_of, hex, single};
use crate::span::{micros, of_micros};

/// The most renewals of one statement.
pub(crate) const RENEW_BATCH: usize = 200;
/// The most consecutive fences of one grant.
const MOST_FENCES: u32 = 1024;
/// The longest lease.
const LONGEST: Duration = Duration::from_secs(24 * 86_400);
/// The leases that the tables can keep.
pub(crate) const TTLS: TtlRange = TtlRange { min: Ttl::MIN, max: LONGEST, granularity: Duration::from_millis(1) };

const ACQUIRE: &str = "CALL tenure_acquire(?, ?, ?, ?, ?, ?, ?, ?)";
const RENEW: &str = "CALL tenure_renew(?, ?)";
const RELEASE: &str = "CALL tenure_release(?, ?, ?)";
const ABANDON: &str = "CALL tenure_abandon(?, ?, ?, ?)";
const FORCE_RELEASE: &str = "CALL tenure_force_release(?, ?)";
const INSPECT: &str = "CALL tenure_inspect(?)";

#[async_trait]
impl DistributedLock for MysqlDriver {
    fn driver(&self) -> &'static str {
        DRIVER
    }

    fn capabilities(&self) -> LockCapabilities {
        LockCapabilities::new(Exclusion::LossyFailover, Fencing::ClockSeeded, Waiting::Poll, TTLS)
            .with_renew_batch(RENEW_BATCH)
            .with_max_fences(MOST_FENCES)
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Acquisition> {
        self.take("acquire", None, request).await
    }

    async fn renew(&self, ttl: Ttl, holds: &[Hold]) -> Vec<Result<Renewed>> {
        let one =
            |hold: &Hold| serde_json::json!([hex(hold.name.as_bytes()), null, hold.token.expose().as_str(), null]);
        self.extend(ttl, holds.iter().map(one).collect(), holds.iter().map(|hold| &hold.name)).await
    }

    async fn release(&self, hold: &Hold) -> Result<Released> {
        Ok(match self.leave("release", None, &hold.name, &hold.token).await? {
            -1 => Released::NotHeld,
            _ => Released::Released,
        })
    }

    async fn abandon(&self, hold: &Hold) -> Result<()> {
        self.undo(None, &hold.name, &hold.token).await
    }

    async fn watch(&self, _: &LockName, _: &OwnerToken) -> Result<Watch> {
        Err(Error::new(ErrorKind::Unsupported, "this backend has no notifications; waiters poll"))
    }

    async fn inspect(&self, name: &LockName) -> Result<Inspection> {
        let rows = self.ask("inspect", name, INSPECT, vec![Value::from(name.as_bytes())]).await?;
        inspection(&rows).map_err(|error| error.during(DRIVER, "inspect", name))
    }

    async fn force_release(&self, name: &LockName, expected: Option<FencingToken>) -> Result<ForceReleased> {
        let expected = expected.map(|fence| fence.get().cast_signed());
        let parameters = vec![Value::from(name.as_bytes()), Value::from(expected)];
        let rows = self.ask("force_release", name, FORCE_RELEASE, parameters).await?;
        let reported = |error: Error| error.during(DRIVER, "force_release", name);
        match single(&rows).and_then(|row| column(row, 0)).map_err(reported)? {
            1 => Ok(ForceReleased::Released),
            0 => Ok(ForceReleased::NotHeld),
            -1 => Ok(ForceReleased::Changed),
            KEPT => Err(reported(kept())),
            _ => Err(reported(odd())),
        }
    }

    async fn close(&self) {
        self.connections.close();
    }
}

#[async_trait]
impl ReentrantLock for MysqlDriver {
    fn capabilities(&self) -> ReentrantCapabilities {
        ReentrantCapabilities::new(OwnerScope::Backend, self.caps().max_depth)
    }

    async fn enter(&self, owner: &OwnerId, request: &AcquireRequest) -> Result<Acquisition> {
        self.take("enter", Some(owner), request).await
    }

    async fn renew(&self, ttl: Ttl, holds: &[ReentrantHold]) -> Vec<Result<Renewed>> {
        let one = |hold: &ReentrantHold| {
            serde_json::json!([hex(hold.name.as_bytes()), hold.owner.to_string(), null, hold.fence.get()])
        };
        self.extend(ttl, holds.iter().map(one).collect(), holds.iter().map(|hold| &hold.name)).await
    }

    async fn exit(&self, entry: &ReentrantEntry) -> Result<Exited> {
        Ok(match self.leave("exit", Some(&entry.owner), &entry.name, &entry.token).await? {
            -1 => Exited::NotHeld,
            0 => Exited::Released,
            rest => Exited::Inside { depth: u32::try_from(rest).unwrap_or(u32::MAX) },
        })
    }

    async fn abandon(&self, entry: &ReentrantEntry) -> Result<()> {
        self.undo(Some(&entry.owner), &entry.name, &entry.token).await
    }
}

impl MysqlDriver {
    async fn take(
        &self,
        operation: &'static str,
        owner: Option<&OwnerId>,
        request: &AcquireRequest,
    ) -> Result<Acquisition> {
        let AcquireRequest { name, token, ttl, label, .. } = request;
        let fences = if owner.is_some() { 1 } else { request.fences.clamp(1, MOST_FENCES) };
        let parameters = vec![
            Value::from(name.as_bytes()),
            Value::from(owner.map(OwnerId::to_string)),
            Value::from(token.expose().as_str()),
            Value::from(micros(ttl.get())),
            Value::from(fences),
            bytes(label.as_ref().map(|label| label.as_str().as_bytes())),
            Value::from(self.caps().max_depth),
            Value::from(self.floor()),
        ];
        let rows = self.ask(operation, name, ACQUIRE, parameters).await?;
        let answer = single(&rows).and_then(|row| self.acquisition(row));
        answer.map_err(|error| error.during(DRIVER, operation, name))
    }

    fn acquisition(&self, row: &Row) -> Result<Acquisition> {
        let code: i32 = column(row, 0)?;
        match code {
            1 | 2 => {
                let grant = Grant::new(fence_of(column(row, 1)?)?, of_micros(column(row, 2)?))
                    .with_begun(if code == 1 { Begun::Now } else { Begun::Earlier })
                    .with_fences(column(row, 3)?)
                    .with_depth(column(row, 4)?);
                Ok(Acquisition::Granted(grant))
            }
            3 => {
                let recheck = of_micros(column(row, 5)?);
                Ok(Acquisition::Busy(Busy::default().with_recheck_after(Some(recheck))))
            }
            -1 => Err(Error::new(ErrorKind::NotHeld, "this attempt was abandoned before its request arrived")),
            -4 => {
                let text = format!("the owner has entered {} times already, the maximum depth", self.caps().max_depth);
                Err(Error::new(ErrorKind::LimitReached, text))
            }
            _ => Err(odd()),
        }
    }

    /// The remaining time of each lease, in the order of the names; a failure applies to all of them.
    async fn extend<'a>(
        &self,
        ttl: Ttl,
        holds: serde_json::Value,
        names: impl ExactSizeIterator<Item = &'a LockName> + Clone,
    ) -> Vec<Result<Renewed>> {
        let Some(first) = names.clone().next() else { return Vec::new() };
        let parameters = vec![Value::from(holds.to_string()), Value::from(micros(ttl.get()))];
        let rows = self.connections.ask(first.as_bytes(), RENEW, parameters).await;
        let left = rows.and_then(|rows| remaining(&rows, names.len()));
        let one = |(at, name): (usize, &LockName)| {
            let answer = match left.as_ref().map(|left| left[at]) {
                Ok(-1) => Ok(Renewed::Lost),
                Ok(-2) => Err(kept()),
                Ok(left) => Ok(Renewed::Extended { ttl: of_micros(left) }),
                Err(error) => Err(error.again()),
            };
            answer.map_err(|error| error.during(DRIVER, "renew", name))
        };
        names.enumerate().map(one).collect()
    }

    /// How many entries are left; -1 if there was no such entry.
    async fn leave(
        &self,
        operation: &'static str,
        owner: Option<&OwnerId>,
        name: &LockName,
        token: &OwnerToken,
    ) -> Result<i32> {
        let rows = self.ask(operation, name, RELEASE, entry(owner, name, token)).await?;
        let left = single(&rows).and_then(|row| unless_kept(column(row, 0)?));
        left.map_err(|error| error.during(DRIVER, operation, name))
    }

    async fn undo(&self, owner: Option<&OwnerId>, name: &LockName, token: &OwnerToken) -> Result<()> {
        let mut parameters = entry(owner, name, token);
        parameters.push(Value::from(micros(Tombstones::LIFE)));
        let rows = self.ask("abandon", name, ABANDON, parameters).await?;
        let done = single(&rows).and_then(|row| unless_kept(column(row, 0)?));
        done.map(drop).map_err(|error| error.during(DRIVER, "abandon", name))
    }
}

/// What procedures answer where the transaction of a user keeps the row of a lock.
const KEPT: i32 = -2;

fn unless_kept(answer: i32) -> Result<i32> {
    if answer == KEPT { Err(kept()) } else { Ok(answer) }
}

fn kept() -> Error {
    let text = "another transaction keeps the lock's row, perhaps one that it guards; the README of tenure-mysql says how to find and \
                end it";
    Error::new(ErrorKind::Unavailable, text)
}

fn entry(owner: Option<&OwnerId>, name: &LockName, token: &OwnerToken) -> Vec<Value> {
    vec![Value::from(name.as_bytes()), Value::from(owner.map(OwnerId::to_string)), Value::from(token.expose().as_str())]
}

/// The numbers of a line, each with a comma behind it.
pub(crate) fn remaining(rows: &[Row], count: usize) -> Result<Vec<i64>> {
    let line: String = column(single(rows)?, 0)?;
    let left: Vec<i64> = line.split_terminator(',').map_while(|number| number.parse().ok()).collect();
    if left.len() == count { Ok(left) } else { Err(odd()) }
}

fn inspection(rows: &[Row]) -> Result<Inspection> {
    let holder = rows.first().map(holder_of).transpose()?;
    Ok(Inspection::default().with_holder(holder))
}

/// The first six columns. Nothing is known of the rest of a guarded lock whose lease has ended.
pub(crate) fn holder_of(row: &Row) -> Result<Holder> {
    let damaged = || Error::new(ErrorKind::Damaged, "the row of the lock cannot be read");
    let (label, owner): (Option<Vec<u8>>, Option<Vec<u8>>) = (column(row, 0)?, column(row, 1)?);
    let text = |bytes: Option<Vec<u8>>| bytes.map(String::from_utf8).transpose().map_err(|_| damaged());
    Ok(Holder::default()
        .with_label(text(label)?.map(Label::new).transpose().map_err(|_| damaged())?)
        .with_owner(text(owner)?.map(|owner| owner.parse()).transpose().map_err(|_| damaged())?)
        .with_fence(Some(fence_of(column(row, 2)?)?))
        .with_depth(column(row, 3)?)
        .with_held_for(Some(of_micros(column(row, 4)?)))
        .with_remaining(column::<Option<i64>>(row, 5)?.map(of_micros)))
}
