//! Permits: turns requests into statements, and rows into answers. Every method is one statement, and one round trip.

use std::time::Duration;

use async_trait::async_trait;
use mysql_async::{Row, Value};
use tenure_core::driver::{
    Acquisition, Begun, Busy, ErrorExt as _, Exclusion, Family, Fencing, ForceReleased, Grant, Holder,
    PermitCapabilities, PermitChange, PermitHold, PermitHolder, PermitInspection, PermitRequest, Permits, Queueing,
    Released, Renewed, Share, Tombstones, Ttl, Waiting, Watch,
};
use tenure_core::rules::permits::Refusal;
use tenure_core::{Error, ErrorKind, FencingToken, Label, LockName, OwnerToken, Result};

use crate::connection::DRIVER;
use crate::driver::MysqlDriver;
use crate::error::odd;
use crate::locks::{RENEW_BATCH, TTLS, remaining};
use crate::row::{bytes, column, fence_of, hex, single};
use crate::span::{micros, of_micros};

/// The most holders of one name: a grant, a busy answer and an inspection look at all of them.
const MOST_HOLDERS: u32 = 1_024;
/// The longest presence that is kept, as in the rule.
const LONGEST_PRESENCE: Duration = Duration::from_secs(365 * 86_400);

const ACQUIRE: &str = "CALL tenure_permit_acquire(?, ?, ?, ?, ?, ?, ?, ?, ?)";
const RESIZE: &str = "CALL tenure_permit_resize(?, ?, ?, ?, ?, ?, ?)";
const RENEW: &str = "CALL tenure_permit_renew(?, ?)";
const END: &str = "CALL tenure_permit_end(?, ?, ?)";
const ABANDON: &str = "CALL tenure_permit_abandon(?, ?, ?)";
const INSPECT: &str = "CALL tenure_permit_inspect(?, ?)";

#[async_trait]
impl Permits for MysqlDriver {
    /// Waiters poll: there is no line, and an inspection counts no waiters.
    ///
    /// A waiter with a weight above 1 cannot starve behind lighter requests: a request with
    /// [`Queueing::Join`] that is busy leaves a mark for its presence, and a name has at most one. While the mark lasts,
    /// a request is granted only if the waiter that left the mark fits beside it. Which of several such waiters gets
    /// the mark is by chance, and so is which of several waiters of weight 1 gets a share.
    fn capabilities(&self) -> PermitCapabilities {
        PermitCapabilities::new(Exclusion::LossyFailover, Fencing::ClockSeeded, Waiting::Poll, TTLS)
            .with_max_holders(MOST_HOLDERS)
            .with_renew_batch(RENEW_BATCH)
    }

    async fn acquire(&self, request: &PermitRequest) -> Result<Acquisition> {
        let PermitRequest { family, share, lock, .. } = request;
        let presence = match lock.queue {
            Queueing::None => None,
            Queueing::Join { presence, .. } => Some(micros(presence.min(LONGEST_PRESENCE))),
        };
        let parameters = vec![
            key(*family, &lock.name),
            Value::from(lock.token.expose().as_str()),
            Value::from(share.weight),
            Value::from(share.capacity),
            Value::from(micros(lock.ttl.get())),
            bytes(lock.label.as_ref().map(|label| label.as_str().as_bytes())),
            Value::from(presence),
            Value::from(MOST_HOLDERS),
            Value::from(self.floor()),
        ];
        let rows = self.ask("acquire", &lock.name, ACQUIRE, parameters).await?;
        let answer = single(&rows).and_then(|row| acquisition(row, *share));
        answer.map_err(|error| error.during(DRIVER, "acquire", &lock.name))
    }

    async fn resize(&self, change: &PermitChange) -> Result<Acquisition> {
        let PermitChange { hold, to, step, presence, .. } = change;
        let parameters = vec![
            key(hold.family, &hold.name),
            Value::from(hold.token.expose().as_str()),
            Value::from(to.weight),
            Value::from(to.capacity),
            Value::from(*step),
            Value::from(presence.map(|presence| micros(presence.min(LONGEST_PRESENCE)))),
            Value::from(self.floor()),
        ];
        let rows = self.ask("resize", &hold.name, RESIZE, parameters).await?;
        let answer = single(&rows).and_then(|row| acquisition(row, *to));
        answer.map_err(|error| error.during(DRIVER, "resize", &hold.name))
    }

    async fn renew(&self, ttl: Ttl, holds: &[PermitHold]) -> Vec<Result<Renewed>> {
        let Some(first) = holds.first() else { return Vec::new() };
        let one =
            |hold: &PermitHold| serde_json::json!([hex(&named(hold.family, &hold.name)), hold.token.expose().as_str()]);
        let all: serde_json::Value = holds.iter().map(one).collect();
        let parameters = vec![Value::from(all.to_string()), Value::from(micros(ttl.get()))];
        let rows = self.connections.ask(first.name.as_bytes(), RENEW, parameters).await;
        let left = rows.and_then(|rows| remaining(&rows, holds.len()));
        let one = |(at, hold): (usize, &PermitHold)| match left.as_ref().map(|left| left[at]) {
            Ok(-1) => Ok(Renewed::Lost),
            Ok(left) => Ok(Renewed::Extended { ttl: of_micros(left) }),
            Err(error) => Err(error.again().during(DRIVER, "renew", &hold.name)),
        };
        holds.iter().enumerate().map(one).collect()
    }

    async fn release(&self, hold: &PermitHold) -> Result<Released> {
        let is_released = self.end("release", hold.family, &hold.name, Some(&hold.token), None).await?;
        Ok(if is_released { Released::Released } else { Released::NotHeld })
    }

    async fn abandon(&self, hold: &PermitHold) -> Result<()> {
        let parameters = vec![
            key(hold.family, &hold.name),
            Value::from(hold.token.expose().as_str()),
            Value::from(micros(Tombstones::LIFE)),
        ];
        self.ask("abandon", &hold.name, ABANDON, parameters).await.map(drop)
    }

    async fn watch(&self, _: &PermitHold) -> Result<Watch> {
        Err(Error::new(ErrorKind::Unsupported, "this backend has no notifications; waiters poll"))
    }

    async fn inspect(&self, family: Family, name: &LockName, most: usize) -> Result<PermitInspection> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let rows = self.ask("inspect", name, INSPECT, vec![key(family, name), Value::from(most)]).await?;
        inspection(&rows).map_err(|error| error.during(DRIVER, "inspect", name))
    }

    async fn evict(&self, family: Family, name: &LockName, fence: FencingToken) -> Result<ForceReleased> {
        let is_released = self.end("evict", family, name, None, Some(fence)).await?;
        Ok(if is_released { ForceReleased::Released } else { ForceReleased::NotHeld })
    }
}

impl MysqlDriver {
    /// Ends the hold of a token, or that with a fence. Returns true if there was one.
    async fn end(
        &self,
        operation: &'static str,
        family: Family,
        name: &LockName,
        token: Option<&OwnerToken>,
        fence: Option<FencingToken>,
    ) -> Result<bool> {
        let text = token.map(OwnerToken::expose);
        let parameters = vec![
            key(family, name),
            Value::from(text.as_ref().map(|text| text.as_str())),
            Value::from(fence.map(|fence| fence.get().cast_signed())),
        ];
        let rows = self.ask(operation, name, END, parameters).await?;
        let ended = single(&rows).and_then(|row| column::<i32>(row, 0));
        ended.map(|ended| ended == 1).map_err(|error| error.during(DRIVER, operation, name))
    }
}

/// A name as the tables have it.
fn named(family: Family, name: &LockName) -> Vec<u8> {
    let mut key = Vec::with_capacity(1 + name.as_bytes().len());
    key.push(family.code() as u8); // a letter of ASCII
    key.extend(name.as_bytes());
    key
}

fn key(family: Family, name: &LockName) -> Value {
    Value::Bytes(named(family, name))
}

/// code, fence, ttl, place, recheck, clock
fn acquisition(row: &Row, share: Share) -> Result<Acquisition> {
    Err(match column::<i32>(row, 0)? {
        code @ (1 | 2) => {
            let begun = if code == 1 { Begun::Now } else { Begun::Earlier };
            let grant = Grant::new(fence_of(column(row, 1)?)?, of_micros(column(row, 2)?)).with_begun(begun);
            return Ok(Acquisition::Granted(grant));
        }
        3 => {
            let busy = Busy::default()
                .with_position(column::<Option<u32>>(row, 3)?)
                .with_recheck_after(column::<Option<i64>>(row, 4)?.map(of_micros))
                .with_answered_at(Some(of_micros(column(row, 5)?)));
            return Ok(Acquisition::Busy(busy));
        }
        -1 => Refusal::Abandoned.into(),
        -5 => Refusal::Impossible(share).into(),
        -6 => Refusal::NotHeld.into(),
        -7 => Refusal::Superseded.into(),
        -8 => Refusal::AnotherGrows.into(),
        _ => odd(),
    })
}

/// used, weight, capacity, fence, held_for, remaining, label
fn inspection(rows: &[Row]) -> Result<PermitInspection> {
    let used: i64 = column(single(rows)?, 0)?;
    let mut holders = Vec::with_capacity(rows.len());
    for row in rows {
        if let Some(fence) = column::<Option<i64>>(row, 3)? {
            holders.push(holder(row, fence)?);
        }
    }
    let used = u64::try_from(used).map_err(|_| odd())?;
    Ok(PermitInspection::default().with_used(used).with_holders(holders))
}

fn holder(row: &Row, fence: i64) -> Result<PermitHolder> {
    let damaged = || Error::new(ErrorKind::Damaged, "the row of the hold cannot be read");
    let share = Share { weight: column(row, 1)?, capacity: column(row, 2)? };
    let label: Option<Vec<u8>> = column(row, 6)?;
    let label = label.map(String::from_utf8).transpose().map_err(|_| damaged())?;
    let holder = Holder::default()
        .with_label(label.map(Label::new).transpose().map_err(|_| damaged())?)
        .with_fence(Some(fence_of(fence)?))
        .with_held_for(Some(of_micros(column(row, 4)?)))
        .with_remaining(Some(of_micros(column(row, 5)?)));
    Ok(PermitHolder::new(share, holder))
}
