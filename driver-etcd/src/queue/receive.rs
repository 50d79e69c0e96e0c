//! Delivers due messages, and repairs damaged ones.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use etcd_client::{Compare, CompareOp, GetOptions, GetResponse, KeyValue, TxnOp};
use tenure_core::driver::{DeadCause, Healed, Lease, Next, Payload, RawDelivery, Receipt, ReceiveRequest, Received};
use tenure_core::queue::{ConcurrencyKey, Reason};
use tenure_core::{FencingToken, Result};

use super::clock::{Micros, after, span};
use super::entry::{BATCH, Burial, Entry, MOST_STARTS, cause_of, payload};
use super::keys::{Location, Set};
use super::limits::Limiter;
use super::line::Soonest;
use super::record::Record;
use super::signals::Part;
use super::turn::Turn;
use super::waiting::{Ahead, Waiters};
use crate::inner::Inner;
use crate::link::odd;

/// How many ids one receive forgets.
const FORGOTTEN: i64 = 16;

/// How far ahead the soonest message is looked for at first: on etcd 3.4 a look costs what its range holds, whatever
/// its limit.
const NEAR: Micros = 3_000_000;

/// For how many looks a client that lost a message to another keeps out of the way.
const CROWDED: u32 = 4;

/// The messages due now, and the state of the queue.
pub(super) struct Due {
    /// The soonest first.
    pub(super) entries: Vec<Entry>,
    /// Whether there is more than was read.
    pub(super) more: bool,
    /// When the next message becomes due or the next lease ends.
    next: Ahead,
    /// How many are due.
    count: u64,
    limiter: Limiter,
    waiters: Waiters,
    /// Whether concurrency keys hold messages back.
    pub(super) held: bool,
}

/// What a receive has gathered.
#[derive(Default)]
pub(super) struct Gathered {
    deliveries: Vec<RawDelivery>,
    pub(super) healed: Healed,
    /// When the first lease that was given out ends.
    own: Option<Micros>,
    /// Whether messages were in the way whose keys are in flight.
    passing: bool,
}

impl Gathered {
    pub(super) fn buried(&mut self, burial: Burial) {
        match burial {
            Burial::Dead => self.healed.dead += 1,
            Burial::Postponed => self.healed.postponed += 1,
        }
    }
}

/// What may still be done in one transaction.
struct Plan<'a> {
    lease: Lease,
    /// How many more may be handed out.
    left: usize,
    /// How many more may die.
    room: u64,
    /// The keys of which the transaction leases or buries a message: no second one of them, and no second write.
    keys: HashSet<&'a ConcurrencyKey>,
}

/// The next step for one message.
enum Fate {
    /// Or held back, if its key is in flight.
    Delivered(Micros, Record),
    Held,
    Buried(Burial),
}

impl Inner {
    /// Two requests; a third one when nothing is due soon, when messages have to be buried, or when the number of those
    /// in flight is limited. Starts over for messages that others took in between, and for messages behind those whose
    /// concurrency key is in flight.
    pub(super) async fn receive(&self, request: &ReceiveRequest) -> Result<Received> {
        let mut turn = Turn::new(self, &request.queue);
        let mut asking = self.signals.asks(&request.queue, turn.now);
        let mut gathered = Gathered::default();
        let mut next = None;
        for _ in 0..MOST_STARTS {
            next = match turn.gather(request, &mut gathered, asking.part.as_mut()).await {
                // Messages already handed out are returned, even if a later request failed.
                Err(_) if !gathered.deliveries.is_empty() => Some(Next::Now),
                asked => asked?,
            };
            if next.is_some() || gathered.deliveries.len() == request.max {
                break;
            }
        }
        let next = asking.answered(next.unwrap_or(Next::Now));
        Ok(Received::new(gathered.deliveries, next).with_healed(gathered.healed))
    }
}

impl Turn<'_> {
    /// Hands out the due messages once; returns when to ask again, or `None` if there may be more now.
    async fn gather(
        &mut self,
        request: &ReceiveRequest,
        gathered: &mut Gathered,
        mut part: Option<&mut Part>,
    ) -> Result<Option<Next>> {
        self.tick();
        let limit = if gathered.passing { BATCH } else { request.max - gathered.deliveries.len() };
        let Some(due) = self.due(limit, part.as_deref()).await? else { return Ok(Some(Next::Paused)) };
        if self.found_stranded(&due).await? {
            return Ok(None);
        }
        let complete = due.entries.is_empty() || self.take(&due, request, gathered, part.as_deref_mut()).await?;
        if !complete || due.more {
            return Ok(None);
        }
        let room_at = due.limiter.room_at(self.now);
        let next = match part {
            // It has what it asked for, and waits no more.
            Some(_) if gathered.deliveries.len() == request.max => return Ok(Some(Next::Now)),
            Some(part) => self.wait_in_line(part, &due.waiters, due.next, room_at).await?,
            None => self.next(due.next, gathered.own).await?,
        };
        let own = gathered.own.map(|until| self.noticed(until));
        Ok(Some(match [next, own].into_iter().flatten().min() {
            None => Next::Never,
            Some(at) if at <= self.now => Next::Now,
            Some(at) => Next::In(span(self.now, at)),
        }))
    }

    /// The due messages, up to `limit`; `None` while the queue is paused.
    async fn due(&self, limit: usize, part: Option<&Part>) -> Result<Option<Due>> {
        let (now, ended, limit) = (self.now + 1, self.leases_ended() + 1, limit.min(BATCH));
        let crowded = self.inner.crowded.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        let most = if crowded.is_ok() { BATCH as i64 } else { limit as i64 };
        let range = |set, from, to, limit| {
            let (from, to) = self.keys.range(set, from, to);
            TxnOp::get(from, Some(GetOptions::new().with_range(to).with_limit(limit)))
        };
        let first = |(from, to): (Vec<u8>, Vec<u8>), limit| {
            TxnOp::get(from, Some(GetOptions::new().with_range(to).with_limit(limit).with_keys_only()))
        };
        // A client that stays in the line needs the time in any case.
        let near = part.is_none_or(|part| part.spot.is_none()).then_some(now + NEAR);
        let mut gets = vec![
            TxnOp::get(self.keys.paused(), None),
            range(Set::Waiting, 0, Some(now), most),
            range(Set::Leased, 0, Some(ended), most),
            range(Set::Waiting, now, near, 1),
            range(Set::Leased, ended, near, 1),
            first(self.keys.forgotten_until(self.now), FORGOTTEN),
            first(self.keys.range(Set::Held, 0, None), 1),
        ];
        gets.extend(self.look_at_limits());
        gets.extend(self.look_at_waiters(part));
        let (revision, answers) = self.look_at(gets).await?;
        let [paused, waiting, leased, later, ending, forgotten, held, limits, bucket, waiters @ ..] =
            answers.as_slice()
        else {
            return Err(odd("an answer of an unexpected form"));
        };
        if !paused.kvs().is_empty() {
            return Ok(None);
        }
        self.forget(forgotten).await?;
        let found = || waiting.kvs().iter().chain(leased.kvs());
        let mut entries: Vec<_> = found().filter_map(|found| Entry::read(&self.keys, found)).collect();
        let mut more = waiting.more() || leased.more() || entries.len() > limit;
        if entries.len() < found().count() {
            more = true;
            let strays = found().map(KeyValue::key).filter(|key| !entries.iter().any(|entry| entry.key == *key));
            self.remove_strays(strays).await?;
        }
        entries.sort_unstable_by_key(|entry| (entry.place.at(), entry.number));
        // Where others take the earliest due messages, each client starts somewhere else.
        let spare = entries.len().saturating_sub(limit);
        if crowded.is_ok() {
            entries.drain(..getrandom::u32().unwrap_or_default() as usize % (spare + 1));
        }
        entries.truncate(limit);
        let limiter = self.limiter([limits, bucket]).await?;
        let count = u64::try_from(waiting.count() + leased.count()).unwrap_or_default();
        let mut next = match (self.soonest([later, ending]), near) {
            (None, Some(_)) => Ahead::NotSoon,
            (soonest, _) => Ahead::Known(soonest),
        };
        // A client that makes room sends a signal: messages that are due later are asked for then.
        if limiter.room(self.now) == 0 && count > 0 {
            entries.clear();
            (more, next) = (false, Ahead::Known(Some(limiter.room_at(self.now))));
        }
        let waiters = self.waiters(revision, waiters)?;
        Ok(Some(Due { entries, more, next, count, limiter, waiters, held: !held.kvs().is_empty() }))
    }

    /// Hands out messages, or buries them; returns whether all went as planned.
    async fn take(
        &self,
        due: &Due,
        request: &ReceiveRequest,
        gathered: &mut Gathered,
        part: Option<&mut Part>,
    ) -> Result<bool> {
        let chosen: Vec<&Entry> = due.entries[..Entry::fitting(&due.entries)].iter().collect();
        let chosen = self.with_payloads(chosen, gathered).await?;
        let doomed = chosen.iter().any(|entry| entry.record.life.doom_at(self.now).is_some());
        let mut plan = Plan {
            lease: request.lease,
            left: (request.max - gathered.deliveries.len()).min(due.limiter.room(self.now)),
            room: if doomed { self.room_for_dead().await? } else { 0 },
            keys: HashSet::new(),
        };
        let decided = chosen.iter().filter_map(|entry| Some((*entry, self.decide(entry, &mut plan)?)));
        let (planned, steps): (Vec<_>, Vec<_>) = decided.map(|(entry, (fate, step))| ((entry, fate), step)).unzip();
        let running = Compare::create_revision(self.keys.paused(), CompareOp::Equal, 0);
        let delivered = |(_, fate): &(&Entry, Fate)| matches!(fate, Fate::Delivered(..));
        let (wanted, until) =
            (planned.iter().filter(|one| delivered(one)).count(), after(self.now, request.lease.get()));
        let limiter = due.limiter.with(self.now, wanted, self.noticed(until));
        let left = self.left(due, steps.len(), until, &limiter);
        let leave = self.leave_line(&due.waiters, part.as_deref(), left);
        let base = self.inner.fences.base().await?;
        let conditions = [self.within(&due.limiter), vec![running, self.inner.fences.unwritten(&base)]].concat();
        let also = leave.into_iter().chain(self.counted(&limiter));
        let Some(applied) = self.apply(conditions, steps, also).await? else { return Ok(false) };
        let missed = planned.iter().zip(&applied.steps).filter(|(one, step)| delivered(one) && step.is_none()).count();
        self.give_back(&limiter, missed, applied.revision).await;
        if let Some(part) = part {
            part.spot = None;
        }
        let mut complete = planned.len() == due.entries.len();
        let mut spoiled = Vec::new();
        let answers = applied.steps.into_iter().zip(applied.instead);
        for (index, ((entry, fate), (answer, held))) in planned.into_iter().zip(answers).enumerate() {
            gathered.passing |= held || matches!(fate, Fate::Held);
            let Some(reads) = answer else {
                if !held && !matches!(fate, Fate::Held) {
                    self.inner.crowded.store(CROWDED, Ordering::Relaxed);
                }
                complete &= held;
                continue;
            };
            gathered.healed.expired += u32::from(entry.place.set() == Set::Leased);
            match fate {
                Fate::Held => {}
                Fate::Buried(burial) => {
                    gathered.buried(burial);
                    self.let_next_go([entry]).await;
                    complete &= entry.record.key.is_none();
                }
                Fate::Delivered(until, record) => match reads.first().and_then(payload) {
                    Some(payload) if payload.len() == entry.record.size => {
                        let fence = base.of_delivery(applied.revision, index)?;
                        let to = Location::Leased(until);
                        let held = entry.moved(&self.keys, to, record.clone(), applied.revision);
                        self.inner.delivered.remember(held.key.clone(), held, self.now);
                        gathered.deliveries.push(self.delivery(entry, record, until, fence, payload));
                        gathered.own = Some(gathered.own.map_or(until, |own| own.min(until)));
                    }
                    payload => spoiled.push((entry, until, applied.revision, payload)),
                },
            }
        }
        // Only now: a failure here loses nothing that was handed out.
        for (entry, until, revision, payload) in spoiled {
            let left = entry.moved(&self.keys, Location::Leased(until), entry.record.clone(), revision);
            self.put_away(&left, payload, gathered).await?;
        }
        Ok(complete)
    }

    /// `None` for what this transaction has to leave alone.
    fn decide<'a>(&self, entry: &'a Entry, plan: &mut Plan<'a>) -> Option<(Fate, TxnOp)> {
        let key = entry.record.key.as_ref();
        let waits = entry.place.set() == Set::Waiting;
        let doom = entry.record.life.doom_at(self.now);
        let changes_key = (waits && plan.left > 0) || doom.is_some();
        let alone = key.is_none_or(|key| !changes_key || plan.keys.insert(key));
        match (doom, key) {
            (Some(_), _) if !alone => return None,
            (Some(cause), _) => {
                let mut record = entry.record.clone();
                if !waits && matches!(cause, DeadCause::Exhausted | DeadCause::Expired) {
                    record.life.reason = Some(Reason::lease_ended());
                }
                let (burial, operations) = self.bury(entry, record, cause, plan.room > 0);
                plan.room = plan.room.saturating_sub(1);
                return Some((Fate::Buried(burial), entry.step(operations)));
            }
            (None, Some(key)) if waits && (!alone || plan.left == 0) => {
                return Some((Fate::Held, self.hold(entry, key)));
            }
            _ => plan.left = plan.left.checked_sub(1)?,
        }
        let until = after(self.now, plan.lease.get());
        let mut record = Record { turn: None, ..entry.record.clone() };
        (record.life.attempt, record.serial) = (record.life.attempt + 1, record.serial + 1);
        let mut operations = self.relocate(entry, Location::Leased(until), &record);
        operations.push(TxnOp::get(self.keys.body(entry.number), None));
        let step = match key {
            Some(key) if waits => self.lease_or_hold(entry, key, operations),
            _ => entry.step(operations),
        };
        Some((Fate::Delivered(until, record), step))
    }

    fn delivery(
        &self,
        entry: &Entry,
        record: Record,
        until: Micros,
        fence: FencingToken,
        payload: Payload,
    ) -> RawDelivery {
        RawDelivery::new(record.id(entry.number), payload, fence, Receipt::new([entry.number, until, record.serial]))
            .with_attempt(record.life.attempt)
            .with_attempts(record.life.attempts)
            .with_cause(cause_of(entry))
            .with_late(span(entry.place.at(), self.now))
            .with_age(span(record.pushed, self.now))
            .with_key(record.key)
            .with_lock(record.lock)
            .with_turn(entry.record.turn.clone())
            .with_reason(record.life.reason)
            .with_recurrence(record.life.recurrence)
    }

    /// The messages left to others by a receive that takes so many, until `own` at the latest; `None` when that is not
    /// known.
    fn left(&self, due: &Due, taken: usize, own: Micros, limiter: &Limiter) -> Option<Soonest> {
        match (due.count.saturating_sub(taken as u64), due.next) {
            (0, Ahead::NotSoon) => None,
            (0, Ahead::Known(next)) => {
                let own = self.noticed(own);
                Some(Soonest { due: next.map_or(own, |next| next.min(own)), wanted: 1 })
            }
            (count, _) => Some(limiter.allowed(self.now, count)),
        }
    }

    /// When the first message becomes due, or the first lease ends, unless only `own` is soon.
    async fn next(&self, next: Ahead, own: Option<Micros>) -> Result<Option<Micros>> {
        match next {
            Ahead::Known(next) => Ok(next),
            Ahead::NotSoon if own.is_some_and(|own| self.noticed(own) <= self.now + NEAR) => Ok(None),
            Ahead::NotSoon => {
                let gets = vec![self.first(Set::Waiting, 0), self.first(Set::Leased, 0)];
                Ok(self.soonest(&self.look(gets).await?))
            }
        }
    }

    /// The first key of a set whose time is `from` or later.
    pub(super) fn first(&self, set: Set, from: Micros) -> TxnOp {
        let (from, to) = self.keys.range(set, from, None);
        TxnOp::get(from, Some(GetOptions::new().with_range(to).with_limit(1).with_keys_only()))
    }

    pub(super) fn soonest<'a>(&self, answers: impl IntoIterator<Item = &'a GetResponse>) -> Option<Micros> {
        let places =
            answers.into_iter().flat_map(GetResponse::kvs).filter_map(|found| self.keys.parse_place(found.key()));
        let noticed = places.map(|(place, _)| match place {
            Location::Leased(until) => self.noticed(until),
            place => place.at(),
        });
        noticed.min()
    }

    /// When a client that asks first at the end of a lease, and then once more, finds that it has ended.
    fn noticed(&self, until: Micros) -> Micros {
        if until > self.now { until } else { until + self.error() }
    }
}

#[cfg(test)]
mod tests;
