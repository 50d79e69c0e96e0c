//! Permits: turns requests into statements, and rows into answers. Every method is one statement, and one round trip.

use std::time::Duration;

use async_trait::async_trait;
use tenure_core::driver::{
    Acquisition, Begun, Busy, ErrorExt as _, Family, Fencing, ForceReleased, Grant, Handing, Holder,
    PermitCapabilities, PermitChange, PermitHold, PermitHolder, PermitInspection, PermitRequest, Permits, Queueing,
    Released, Renewed, Share, Tombstones, Ttl, Waiting, Watch,
};
use tenure_core::rules::permits::Refusal;
use tenure_core::{Error, ErrorKind, FencingToken, Label, LockName, OwnerToken, Result};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::connection::{DRIVER, Parameter};
use crate::driver::PostgresDriver;
use crate::error::{lacks_a_function, odd};
use crate::locks::{RENEW_BATCH, column, fence_of, forgotten, only, renewed};
use crate::record::Record;
use crate::span::{micros, of_micros};

/// The most holders of one name: a busy answer, an inspection and an end look at all of them.
const MOST_HOLDERS: u32 = 1_024;
/// The longest presence that is kept, as in the rule.
const LONGEST_PRESENCE: Duration = Duration::from_secs(365 * 86_400);

const ACQUIRE: &str = "SELECT tenure.permit_acquire($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";
const RESIZE: &str = "SELECT tenure.permit_resize($1, $2, $3, $4, $5, $6, $7, $8, $9)";
const RENEW: &str = "SELECT * FROM tenure.permit_renew($1, $2, $3, $4)";
const END: &str = "SELECT tenure.permit_end($1, $2, $3, $4, $5)";
const ABANDON: &str = "SELECT tenure.permit_abandon($1, $2, $3, $4, $5)";
const INSPECT: &str = "SELECT * FROM tenure.permit_inspect($1, $2)";

/// What to do where the functions are missing.
const ADD: &str = "the schema \"tenure\" of this database was made without semaphores and read-write locks: let its owner run the \
                   statements of tenure_postgres::permits_sql(), or connect once with migrate=true, and GRANT EXECUTE ON ALL FUNCTIONS \
                   IN SCHEMA tenure TO the_user";

#[async_trait]
impl Permits for PostgresDriver {
    fn capabilities(&self) -> PermitCapabilities {
        PermitCapabilities::new(self.exclusion(), Fencing::ClockSeeded, Waiting::Fifo, self.ttls())
            .with_max_holders(MOST_HOLDERS)
            .with_max_waiters(Some(self.caps().max_waiters))
            .with_renew_batch(RENEW_BATCH)
    }

    async fn acquire(&self, request: &PermitRequest) -> Result<Acquisition> {
        let PermitRequest { family, share, lock, .. } = request;
        let (presence, accepts) = match lock.queue {
            Queueing::None => (None, false),
            Queueing::Join { presence, accepts } => {
                self.connections.listen().await.map_err(|error| error.during(DRIVER, "acquire", &lock.name))?;
                (Some(micros(presence.min(LONGEST_PRESENCE))), accepts == Handing::Direct)
            }
        };
        let label = lock.label.as_ref().map(|label| label.as_str().as_bytes());
        let rows = self
            .permit(
                "acquire",
                &lock.name,
                ACQUIRE,
                &[
                    (&key(*family, &lock.name), Type::BYTEA),
                    (&lock.token.expose().as_str(), Type::TEXT),
                    (&i64::from(share.weight), Type::INT8),
                    (&i64::from(share.capacity), Type::INT8),
                    (&micros(lock.ttl.get()), Type::INT8),
                    (&label, Type::BYTEA),
                    (&presence, Type::INT8),
                    (&accepts, Type::BOOL),
                    (&self.connections.ear.id(), Type::INT8),
                    (&self.caps().max_waiters.cast_signed(), Type::INT4),
                    (&MOST_HOLDERS.cast_signed(), Type::INT4),
                    (&self.floor(), Type::INT8),
                ],
            )
            .await?;
        self.share(&rows, *share).map_err(|error| error.during(DRIVER, "acquire", &lock.name))
    }

    async fn resize(&self, change: &PermitChange) -> Result<Acquisition> {
        let PermitChange { hold, to, step, presence, .. } = change;
        if presence.is_some() {
            self.connections.listen().await.map_err(|error| error.during(DRIVER, "resize", &hold.name))?;
        }
        let rows = self
            .permit(
                "resize",
                &hold.name,
                RESIZE,
                &[
                    (&key(hold.family, &hold.name), Type::BYTEA),
                    (&hold.token.expose().as_str(), Type::TEXT),
                    (&i64::from(to.weight), Type::INT8),
                    (&i64::from(to.capacity), Type::INT8),
                    (&i64::from(*step), Type::INT8),
                    (&presence.map(|presence| micros(presence.min(LONGEST_PRESENCE))), Type::INT8),
                    (&self.connections.ear.id(), Type::INT8),
                    (&MOST_HOLDERS.cast_signed(), Type::INT4),
                    (&self.floor(), Type::INT8),
                ],
            )
            .await?;
        self.share(&rows, *to).map_err(|error| error.during(DRIVER, "resize", &hold.name))
    }

    async fn renew(&self, ttl: Ttl, holds: &[PermitHold]) -> Vec<Result<Renewed>> {
        let keys: Vec<_> = holds.iter().map(|hold| key(hold.family, &hold.name)).collect();
        let texts: Vec<_> = holds.iter().map(|hold| hold.token.expose()).collect();
        let tokens: Vec<&str> = texts.iter().map(|text| text.as_str()).collect();
        let Some(first) = holds.first() else { return Vec::new() };
        let ttl = micros(ttl.get());
        let parameters: [Parameter<'_>; 3] =
            [(&keys, Type::BYTEA_ARRAY), (&tokens, Type::TEXT_ARRAY), (&ttl, Type::INT8)];
        let rows = self.renew_all(&first.name, RENEW, &parameters).await.map_err(added);
        renewed(rows, holds.iter().map(|hold| &hold.name))
    }

    async fn release(&self, hold: &PermitHold) -> Result<Released> {
        let is_released = self.end("release", hold.family, &hold.name, Some(&hold.token), None).await?;
        Ok(if is_released { Released::Released } else { Released::NotHeld })
    }

    async fn abandon(&self, hold: &PermitHold) -> Result<()> {
        let (key, token) = (key(hold.family, &hold.name), hold.token.expose());
        let parameters: [Parameter<'_>; 5] = [
            (&key, Type::BYTEA),
            (&token.as_str(), Type::TEXT),
            (&micros(Tombstones::LIFE), Type::INT8),
            (&MOST_HOLDERS.cast_signed(), Type::INT4),
            (&self.floor(), Type::INT8),
        ];
        self.permit("abandon", &hold.name, ABANDON, &parameters).await.map(drop)
    }

    async fn watch(&self, hold: &PermitHold) -> Result<Watch> {
        let watch = self.connections.ear.locks().register(hold.token);
        self.connections.listen().await.map_err(|error| error.during(DRIVER, "watch", &hold.name))?;
        Ok(watch)
    }

    async fn inspect(&self, family: Family, name: &LockName, most: usize) -> Result<PermitInspection> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let key = key(family, name);
        let parameters: [Parameter<'_>; 2] = [(&key, Type::BYTEA), (&most, Type::INT8)];
        let rows = self.permit("inspect", name, INSPECT, &parameters).await?;
        inspection(&rows).map_err(|error| error.during(DRIVER, "inspect", name))
    }

    async fn evict(&self, family: Family, name: &LockName, fence: FencingToken) -> Result<ForceReleased> {
        let is_released = self.end("evict", family, name, None, Some(fence)).await?;
        Ok(if is_released { ForceReleased::Released } else { ForceReleased::NotHeld })
    }
}

impl PostgresDriver {
    /// Runs one statement about a name of permits.
    async fn permit(
        &self,
        operation: &'static str,
        name: &LockName,
        statement: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>> {
        let rows = self.connections.ask(name.as_bytes(), statement, parameters).await.map_err(added);
        rows.map_err(|error| error.during(DRIVER, operation, name))
    }

    /// Ends the hold of a token, or that with a fence. Returns true if there was one.
    async fn end(
        &self,
        operation: &'static str,
        family: Family,
        name: &LockName,
        token: Option<&OwnerToken>,
        fence: Option<FencingToken>,
    ) -> Result<bool> {
        let (key, text) = (key(family, name), token.map(OwnerToken::expose));
        let (text, fence) = (text.as_ref().map(|text| text.as_str()), fence.map(|fence| fence.get().cast_signed()));
        let parameters: [Parameter<'_>; 5] = [
            (&key, Type::BYTEA),
            (&text, Type::TEXT),
            (&fence, Type::INT8),
            (&MOST_HOLDERS.cast_signed(), Type::INT4),
            (&self.floor(), Type::INT8),
        ];
        let rows = self.permit(operation, name, END, &parameters).await?;
        only::<i32>(&rows).map(|ended| ended == 1).map_err(|error| error.during(DRIVER, operation, name))
    }

    /// The answer to a request for a share.
    fn share(&self, rows: &[Row], share: Share) -> Result<Acquisition> {
        // code, fence, ttl, n, recheck, at
        let record: Record<'_> = only(rows)?;
        Err(match record.int4(0).ok_or_else(odd)? {
            code @ (1 | 2) => {
                let fence = fence_of(record.int8(1).ok_or_else(odd)?)?;
                let ttl = of_micros(record.int8(2).ok_or_else(odd)?);
                let begun = if code == 1 { Begun::Now } else { Begun::Earlier };
                return Ok(Acquisition::Granted(Grant::new(fence, ttl).with_begun(begun)));
            }
            3 => {
                let (place, at) = (record.int4(3).ok_or_else(odd)?, record.int8(5).ok_or_else(odd)?);
                let busy = Busy::default()
                    .with_position(u32::try_from(place).ok())
                    .with_recheck_after(record.int8(4).map(of_micros))
                    .with_answered_at(Some(of_micros(at)));
                return Ok(Acquisition::Busy(busy));
            }
            -1 => Refusal::Abandoned.into(),
            -2 => Refusal::QueueFull(self.caps().max_waiters).into(),
            -3 => forgotten(of_micros(record.int8(4).ok_or_else(odd)?)),
            -5 => Refusal::Impossible(share).into(),
            -6 => Refusal::NotHeld.into(),
            -7 => Refusal::Superseded.into(),
            -8 => Refusal::AnotherGrows.into(),
            _ => odd(),
        })
    }
}

/// A name as the tables have it.
fn key(family: Family, name: &LockName) -> Vec<u8> {
    let mut key = Vec::with_capacity(1 + name.as_bytes().len());
    key.push(family.code() as u8); // a letter of ASCII
    key.extend(name.as_bytes());
    key
}

/// Names what to do where the functions are missing.
fn added(error: Error) -> Error {
    if lacks_a_function(&error) { Error::new(ErrorKind::Misconfigured, ADD).with_source(error) } else { error }
}

/// used, waiters, weight, capacity, fence, held_for, remaining, label
fn inspection(rows: &[Row]) -> Result<PermitInspection> {
    let first = rows.first().ok_or_else(odd)?;
    let (used, waiters): (i64, i64) = (column(first, 0)?, column(first, 1)?);
    let held = rows.iter().map(|row| Ok((row, column::<Option<i64>>(row, 4)?)));
    let holders = held.filter_map(|found: Result<_>| match found {
        Ok((row, Some(fence))) => Some(holder(row, fence)),
        Ok((_, None)) => None,
        Err(error) => Some(Err(error)),
    });
    Ok(PermitInspection::default()
        .with_used(u64::try_from(used).map_err(|_| odd())?)
        .with_waiters(u32::try_from(waiters).unwrap_or(u32::MAX))
        .with_holders(holders.collect::<Result<_>>()?))
}

fn holder(row: &Row, fence: i64) -> Result<PermitHolder> {
    let damaged = || Error::new(ErrorKind::Damaged, "the row of the hold cannot be read");
    let number = |at| column::<i64>(row, at).and_then(|number| u32::try_from(number).map_err(|_| damaged()));
    let share = Share { weight: number(2)?, capacity: number(3)? };
    let label: Option<&[u8]> = column(row, 7)?;
    let label = label.map(std::str::from_utf8).transpose().map_err(|_| damaged())?;
    let holder = Holder::default()
        .with_label(label.map(Label::new).transpose().map_err(|_| damaged())?)
        .with_fence(Some(fence_of(fence)?))
        .with_held_for(Some(of_micros(column(row, 5)?)))
        .with_remaining(Some(of_micros(column(row, 6)?)));
    Ok(PermitHolder::new(share, holder))
}
