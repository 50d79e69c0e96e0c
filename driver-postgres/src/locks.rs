//! Locks: turns requests into statements, and rows into answers. Every method is one statement, and one round trip.

use std::time::Duration;

use async_trait::async_trait;
use tenure_core::driver::{
    AcquireRequest, Acquisition, Begun, Busy, DistributedLock, ErrorExt as _, Exclusion, Exited, Fencing,
    ForceReleased, Grant, Handing, Hold, Holder, Inspection, LockCapabilities, OwnerScope, Queueing,
    ReentrantCapabilities, ReentrantEntry, ReentrantHold, ReentrantLock, Released, Renewed, Tombstones, Ttl, TtlRange,
    Waiting, Watch,
};
use tenure_core::{Error, ErrorKind, FencingToken, Label, LockName, OwnerId, OwnerToken, Result};
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, Type};

use crate::connection::{DRIVER, Parameter};
use crate::driver::PostgresDriver;
use crate::error::{odd, waited_for_a_lock};
use crate::record::Record;
use crate::span::{micros, of_micros};

/// The most renewals of one statement.
pub(crate) const RENEW_BATCH: usize = 200;
/// The most consecutive fences of one grant.
const MOST_FENCES: u32 = 1024;

const ACQUIRE: &str = "SELECT tenure.acquire($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";
const RENEW: &str = "SELECT * FROM tenure.renew($1, $2, $3, $4)";
const RENEW_HOLD: &str = "SELECT * FROM tenure.renew_hold($1, $2, $3, $4, $5)";
const RELEASE: &str = "SELECT tenure.release($1, $2, $3, $4)";
const ABANDON: &str = "SELECT tenure.abandon($1, $2, $3, $4, $5)";
const FORCE_RELEASE: &str = "SELECT tenure.force_release($1, $2, $3)";
const INSPECT: &str = "SELECT * FROM tenure.inspect($1)";

const GUARDED: &str = "a transaction that its holder guards is open: SELECT * FROM tenure.guards() names its session, and SELECT \
                       pg_terminate_backend(pid) ends it";

#[async_trait]
impl DistributedLock for PostgresDriver {
    fn driver(&self) -> &'static str {
        DRIVER
    }

    fn capabilities(&self) -> LockCapabilities {
        LockCapabilities::new(self.exclusion(), Fencing::ClockSeeded, Waiting::Fifo, self.ttls())
            .with_max_waiters(Some(self.caps().max_waiters))
            .with_renew_batch(RENEW_BATCH)
            .with_max_fences(MOST_FENCES)
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Acquisition> {
        self.take("acquire", None, request).await
    }

    async fn renew(&self, ttl: Ttl, holds: &[Hold]) -> Vec<Result<Renewed>> {
        let names: Vec<&[u8]> = holds.iter().map(|hold| hold.name.as_bytes()).collect();
        let texts: Vec<_> = holds.iter().map(|hold| hold.token.expose()).collect();
        let tokens: Vec<&str> = texts.iter().map(|text| text.as_str()).collect();
        let Some(first) = holds.first() else { return Vec::new() };
        let ttl = micros(ttl.get());
        let parameters: [Parameter<'_>; 3] =
            [(&names, Type::BYTEA_ARRAY), (&tokens, Type::TEXT_ARRAY), (&ttl, Type::INT8)];
        let rows = self.renew_all(&first.name, RENEW, &parameters).await;
        renewed(rows, holds.iter().map(|hold| &hold.name))
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

    async fn watch(&self, name: &LockName, token: &OwnerToken) -> Result<Watch> {
        let watch = self.connections.ear.locks().register(*token);
        self.connections.listen().await.map_err(|error| error.during(DRIVER, "watch", name))?;
        Ok(watch)
    }

    async fn inspect(&self, name: &LockName) -> Result<Inspection> {
        let rows = self.ask("inspect", name, INSPECT, &[(&name.as_bytes(), Type::BYTEA)]).await?;
        inspection(&rows).map_err(|error| error.during(DRIVER, "inspect", name))
    }

    async fn force_release(&self, name: &LockName, expected: Option<FencingToken>) -> Result<ForceReleased> {
        let expected = expected.map(|fence| fence.get().cast_signed());
        let rows = self
            .ask(
                "force_release",
                name,
                FORCE_RELEASE,
                &[(&name.as_bytes(), Type::BYTEA), (&expected, Type::INT8), (&self.floor(), Type::INT8)],
            )
            .await?;
        let reported = |error: Error| error.during(DRIVER, "force_release", name);
        match only::<i32>(&rows).map_err(reported)? {
            1 => Ok(ForceReleased::Released),
            0 => Ok(ForceReleased::NotHeld),
            -1 => Ok(ForceReleased::Changed),
            -2 => Err(reported(Error::new(ErrorKind::Unavailable, GUARDED))),
            _ => Err(reported(odd())),
        }
    }

    async fn close(&self) {
        self.connections.close().await;
    }
}

#[async_trait]
impl ReentrantLock for PostgresDriver {
    fn capabilities(&self) -> ReentrantCapabilities {
        ReentrantCapabilities::new(OwnerScope::Backend, self.caps().max_depth)
    }

    async fn enter(&self, owner: &OwnerId, request: &AcquireRequest) -> Result<Acquisition> {
        self.take("enter", Some(owner), request).await
    }

    async fn renew(&self, ttl: Ttl, holds: &[ReentrantHold]) -> Vec<Result<Renewed>> {
        let names: Vec<&[u8]> = holds.iter().map(|hold| hold.name.as_bytes()).collect();
        let owners: Vec<String> = holds.iter().map(|hold| hold.owner.to_string()).collect();
        let fences: Vec<i64> = holds.iter().map(|hold| hold.fence.get().cast_signed()).collect();
        let Some(first) = holds.first() else { return Vec::new() };
        let ttl = micros(ttl.get());
        let parameters: [Parameter<'_>; 4] =
            [(&names, Type::BYTEA_ARRAY), (&owners, Type::TEXT_ARRAY), (&fences, Type::INT8_ARRAY), (&ttl, Type::INT8)];
        let rows = self.renew_all(&first.name, RENEW_HOLD, &parameters).await;
        renewed(rows, holds.iter().map(|hold| &hold.name))
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

impl PostgresDriver {
    /// The events that can bring two holders.
    pub(crate) fn exclusion(&self) -> Exclusion {
        if self.installed.logged { Exclusion::LossyFailover } else { Exclusion::OnePrimary }
    }

    /// The leases that the schema was made for.
    pub(crate) fn ttls(&self) -> TtlRange {
        TtlRange { min: Ttl::MIN, max: self.installed.longest, granularity: Duration::from_millis(1) }
    }

    /// Renews leases in one statement, and in another one if a row was locked for long: that one leaves locked rows out.
    pub(crate) async fn renew_all(
        &self,
        first: &LockName,
        statement: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>> {
        let ask = async |waits: bool| {
            let mut all = parameters.to_vec();
            all.push((&waits, Type::BOOL));
            self.connections.ask(first.as_bytes(), statement, &all).await
        };
        match ask(true).await {
            Err(error) if waited_for_a_lock(&error) => ask(false).await,
            rows => rows,
        }
    }

    async fn take(
        &self,
        operation: &'static str,
        owner: Option<&OwnerId>,
        request: &AcquireRequest,
    ) -> Result<Acquisition> {
        let AcquireRequest { name, token, ttl, .. } = request;
        let (presence, accepts) = match request.queue {
            Queueing::None => (None, false),
            // Who enters a re-entrant lock is woken, and asks.
            Queueing::Join { presence, accepts } => {
                self.connections.listen().await.map_err(|error| error.during(DRIVER, operation, name))?;
                (Some(micros(presence)), owner.is_none() && accepts == Handing::Direct)
            }
        };
        let fences = if owner.is_some() { 1 } else { request.fences.clamp(1, MOST_FENCES) };
        let (owner, label) =
            (owner.map(OwnerId::to_string), request.label.as_ref().map(|label| label.as_str().as_bytes()));
        let (max_waiters, max_depth) = (self.caps().max_waiters, self.caps().max_depth);
        let rows = self
            .ask(
                operation,
                name,
                ACQUIRE,
                &[
                    (&name.as_bytes(), Type::BYTEA),
                    (&owner, Type::TEXT),
                    (&token.expose().as_str(), Type::TEXT),
                    (&micros(ttl.get()), Type::INT8),
                    (&fences.cast_signed(), Type::INT4),
                    (&label, Type::BYTEA),
                    (&presence, Type::INT8),
                    (&accepts, Type::BOOL),
                    (&self.connections.ear.id(), Type::INT8),
                    (&max_waiters.cast_signed(), Type::INT4),
                    (&max_depth.cast_signed(), Type::INT4),
                    (&self.floor(), Type::INT8),
                ],
            )
            .await?;
        self.acquisition(&rows).map_err(|error| error.during(DRIVER, operation, name))
    }

    fn acquisition(&self, rows: &[Row]) -> Result<Acquisition> {
        // code, fence, ttl, n, depth, recheck, at
        let record: Record<'_> = only(rows)?;
        match record.int4(0).ok_or_else(odd)? {
            code @ (1 | 2) => {
                let grant = || {
                    let (fence, ttl) = (fence_of(record.int8(1)?).ok()?, record.int8(2)?);
                    let (fences, depth) = (u32::try_from(record.int4(3)?).ok()?, u32::try_from(record.int4(4)?).ok()?);
                    let begun = if code == 1 { Begun::Now } else { Begun::Earlier };
                    Some(Grant::new(fence, of_micros(ttl)).with_begun(begun).with_fences(fences).with_depth(depth))
                };
                Ok(Acquisition::Granted(grant().ok_or_else(odd)?))
            }
            3 => {
                let (place, at) = (record.int4(3).ok_or_else(odd)?, record.int8(6).ok_or_else(odd)?);
                Ok(Acquisition::Busy(
                    Busy::default()
                        .with_position(u32::try_from(place).ok())
                        .with_recheck_after(record.int8(5).map(of_micros))
                        .with_answered_at(Some(of_micros(at))),
                ))
            }
            -1 => Err(Error::new(ErrorKind::NotHeld, "this attempt was abandoned before its request arrived")),
            -2 => {
                let text = format!("the queue of this lock is full: it has {} waiters", self.caps().max_waiters);
                Err(Error::new(ErrorKind::LimitReached, text))
            }
            -3 => Err(forgotten(of_micros(record.int8(5).ok_or_else(odd)?))),
            -4 => {
                let text = format!("the owner has entered {} times already, the maximum depth", self.caps().max_depth);
                Err(Error::new(ErrorKind::LimitReached, text))
            }
            _ => Err(odd()),
        }
    }

    /// How many entries are left; -1 if there was no such entry.
    async fn leave(
        &self,
        operation: &'static str,
        owner: Option<&OwnerId>,
        name: &LockName,
        token: &OwnerToken,
    ) -> Result<i32> {
        let rows = self
            .ask(
                operation,
                name,
                RELEASE,
                &[
                    (&name.as_bytes(), Type::BYTEA),
                    (&owner.map(OwnerId::to_string), Type::TEXT),
                    (&token.expose().as_str(), Type::TEXT),
                    (&self.floor(), Type::INT8),
                ],
            )
            .await?;
        only(&rows).map_err(|error| error.during(DRIVER, operation, name))
    }

    async fn undo(&self, owner: Option<&OwnerId>, name: &LockName, token: &OwnerToken) -> Result<()> {
        let rows = self
            .ask(
                "abandon",
                name,
                ABANDON,
                &[
                    (&name.as_bytes(), Type::BYTEA),
                    (&owner.map(OwnerId::to_string), Type::TEXT),
                    (&token.expose().as_str(), Type::TEXT),
                    (&micros(Tombstones::LIFE), Type::INT8),
                    (&self.floor(), Type::INT8),
                ],
            )
            .await;
        rows.map(drop)
    }
}

/// The refusal of a server that has forgotten its leases.
pub(crate) fn forgotten(left: Duration) -> Error {
    let text = format!("the server was restarted without its leases, and grants none for another {left:.1?}");
    Error::new(ErrorKind::Unavailable, text)
}

pub(crate) fn column<'a, T: FromSql<'a>>(row: &'a Row, at: usize) -> Result<T> {
    row.try_get(at).map_err(|error| odd().with_source(error))
}

/// The one value of the one row.
pub(crate) fn only<'a, T: FromSql<'a>>(rows: &'a [Row]) -> Result<T> {
    column(rows.first().ok_or_else(odd)?, 0)
}

pub(crate) fn fence_of(number: i64) -> Result<FencingToken> {
    u64::try_from(number).ok().and_then(FencingToken::new).ok_or_else(odd)
}

/// The rest of each lease, in the order of the names; a failure applies to all of them.
pub(crate) fn renewed<'a>(
    rows: Result<Vec<Row>>,
    names: impl ExactSizeIterator<Item = &'a LockName>,
) -> Vec<Result<Renewed>> {
    let rows = rows.and_then(|rows| if rows.len() == names.len() { Ok(rows) } else { Err(odd()) });
    let one = |(at, name): (usize, &LockName)| {
        let answer = match &rows {
            Ok(rows) => column::<Option<i64>>(&rows[at], 0).and_then(|left| match left {
                Some(-1) => {
                    Err(Error::new(ErrorKind::Unavailable, "another transaction keeps the row of the lease locked"))
                }
                left => Ok(left.map_or(Renewed::Lost, |left| Renewed::Extended { ttl: of_micros(left) })),
            }),
            Err(error) => Err(error.again()),
        };
        answer.map_err(|error| error.during(DRIVER, "renew", name))
    };
    names.enumerate().map(one).collect()
}

fn inspection(rows: &[Row]) -> Result<Inspection> {
    inspection_of(rows.first().ok_or_else(odd)?)
}

/// What the first seven columns say.
pub(crate) fn inspection_of(row: &Row) -> Result<Inspection> {
    let fence: Option<i64> = column(row, 2)?;
    let damaged = || Error::new(ErrorKind::Damaged, "the row of the lock cannot be read");
    let holder = match fence {
        None => None,
        Some(fence) => {
            let (label, owner): (Option<&[u8]>, Option<&str>) = (column(row, 0)?, column(row, 1)?);
            let label = label.map(std::str::from_utf8).transpose().map_err(|_| damaged())?;
            let (depth, held_for): (i32, i64) = (column(row, 3)?, column(row, 4)?);
            let remaining: Option<i64> = column(row, 5)?;
            Some(
                Holder::default()
                    .with_label(label.map(Label::new).transpose().map_err(|_| damaged())?)
                    .with_owner(owner.map(str::parse).transpose().map_err(|_| damaged())?)
                    .with_fence(Some(fence_of(fence)?))
                    .with_depth(u32::try_from(depth).map_err(|_| damaged())?)
                    .with_held_for(Some(of_micros(held_for)))
                    .with_remaining(remaining.map(of_micros)),
            )
        }
    };
    let waiters: i64 = column(row, 6)?;
    Ok(Inspection::default().with_holder(holder).with_waiters(u32::try_from(waiters).unwrap_or(u32::MAX)))
}
