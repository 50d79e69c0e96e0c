//! The limits of a queue over all clients together.
//!
//! One key contains the settings, another one the bucket of the rate: the instant at which it is full again. Every
//! receive of a limited queue writes the bucket, on condition that no other client has written it since it was read. So
//! no two receives use the same room.

use std::time::Duration;

use etcd_client::{Compare, CompareOp, GetResponse, KeyValue, Txn, TxnOp};
use tenure_core::driver::TokenBucket;
use tenure_core::queue::{QueueLimits, QueueName, Rate};
use tenure_core::{Error, ErrorKind, Result};

use super::clock::Micros;
use super::keys::Set;
use super::line::Soonest;
use super::turn::Turn;
use crate::inner::Inner;

/// How limits begin that limit the messages in flight. It is less than [`RATE`], so that a comparison in etcd finds out.
const IN_FLIGHT: &str = "in_flight";

/// How limits begin that are a rate alone: a settlement makes no room under it.
const RATE: &str = "rate";

/// The limits of a queue, and what counts against them.
#[derive(Clone, Debug, Default)]
pub(super) struct Limiter {
    limits: QueueLimits,
    /// The revision in which they were set, zero if they never were.
    set: i64,
    /// The revision in which the bucket was written.
    counted: i64,
    /// When the bucket is full again.
    full_at: Micros,
    /// The leases that last.
    live: u64,
    /// When the first of them ends.
    first_end: Option<Micros>,
}

impl Inner {
    /// One request.
    pub(super) async fn limit(&self, queue: &QueueName, limits: &QueueLimits) -> Result<()> {
        let turn = Turn::new(self, queue);
        let (key, bucket) = (turn.keys.limits(), turn.keys.bucket());
        let set = match limits.is_none() {
            true => TxnOp::delete(key, None),
            false => TxnOp::put(key, spelled(limits), None),
        };
        let operations = [set, TxnOp::delete(bucket, None), turn.register(), turn.signal_listed(&[0])];
        self.txn(Txn::new().and_then(operations)).await.map(drop)
    }
}

impl Limiter {
    /// How many deliveries there is room for.
    pub(super) fn room(&self, now: Micros) -> usize {
        let places = self.limits.max_in_flight().map(|most| u64::from(most.get()).saturating_sub(self.live));
        let room = [places, self.tokens(now)].into_iter().flatten().min();
        room.map_or(usize::MAX, |room| usize::try_from(room).unwrap_or(usize::MAX))
    }

    /// When there is room, as far as is known now; zero when there is.
    pub(super) fn room_at(&self, now: Micros) -> Micros {
        if self.room(now) > 0 {
            return 0;
        }
        let full = self.limits.max_in_flight().is_some_and(|most| self.live >= u64::from(most.get()));
        let place = self.first_end.filter(|_| full).unwrap_or(now + 1);
        let token = self.bucket().map_or(0, |bucket| bucket.token_at(self.full_at, now));
        place.max(token)
    }

    /// As it is when so many more are in flight, until `end`.
    pub(super) fn with(&self, now: Micros, deliveries: usize, end: Micros) -> Self {
        let mut with = self.clone();
        with.live += deliveries as u64;
        with.first_end = Some(self.first_end.map_or(end, |first| first.min(end)));
        if let Some(bucket) = self.bucket() {
            with.full_at = bucket.spent(self.full_at, now, deliveries);
        }
        with
    }

    /// What may be handed out when this many are due.
    pub(super) fn allowed(&self, now: Micros, due: u64) -> Soonest {
        match self.room(now) as u64 {
            0 => Soonest { due: self.room_at(now), wanted: 1 },
            room => Soonest { due: now, wanted: due.min(room) },
        }
    }

    fn tokens(&self, now: Micros) -> Option<u64> {
        Some(self.bucket()?.tokens(self.full_at, now))
    }

    fn bucket(&self) -> Option<TokenBucket> {
        Some(TokenBucket::new(self.limits.max_rate()?, Duration::from_micros(1)))
    }
}

impl Turn<'_> {
    /// The reads of [`limiter`](Self::limiter).
    pub(super) fn look_at_limits(&self) -> [TxnOp; 2] {
        [self.keys.limits(), self.keys.bucket()].map(|key| TxnOp::get(key, None))
    }

    /// One request more where the messages in flight are limited.
    pub(super) async fn limiter(&self, answers: [&GetResponse; 2]) -> Result<Limiter> {
        let [set, bucket] = answers.map(|answer| answer.kvs().first());
        let read = |found: &KeyValue| {
            let full_at = std::str::from_utf8(found.value()).ok().and_then(|text| text.parse().ok());
            full_at.ok_or_else(|| damaged(found, "counts of deliveries"))
        };
        let mut limiter = Limiter {
            limits: limits(answers[0])?,
            set: set.map_or(0, KeyValue::mod_revision),
            counted: bucket.map_or(0, KeyValue::mod_revision),
            full_at: bucket.map(read).transpose()?.unwrap_or_default(),
            ..Limiter::default()
        };
        if limiter.limits.max_in_flight().is_some() {
            let live = self.look(vec![self.first(Set::Leased, self.leases_ended() + 1)]).await?;
            limiter.live = live.first().map_or(0, |live| u64::try_from(live.count()).unwrap_or_default());
            limiter.first_end = self.soonest(&live);
        }
        self.correct(&mut limiter).await?;
        Ok(limiter)
    }

    /// A clock that was further ahead than clocks may be has counted: the bucket fills from now on, and not when that clock
    /// says. The correction is stored, since the bucket would be as far from full at the next look. One request, then.
    async fn correct(&self, limiter: &mut Limiter) -> Result<()> {
        let Some(latest) = limiter.bucket().map(|bucket| bucket.emptied(self.now.saturating_add(self.error()))) else {
            return Ok(());
        };
        if limiter.full_at <= latest {
            return Ok(());
        }
        limiter.full_at = latest;
        let same = Compare::mod_revision(self.keys.bucket(), CompareOp::Equal, limiter.counted);
        let put = TxnOp::put(self.keys.bucket(), latest.to_string(), None);
        self.inner.txn(Txn::new().when([same]).and_then([put])).await.map(drop)
    }

    /// That the limits are the same, and that no message was handed out since the look if there are any.
    pub(super) fn within(&self, limiter: &Limiter) -> Vec<Compare> {
        let same = |key, revision| Compare::mod_revision(key, CompareOp::Equal, revision);
        let mut conditions = vec![same(self.keys.limits(), limiter.set)];
        if !limiter.limits.is_none() {
            conditions.push(same(self.keys.bucket(), limiter.counted));
        }
        conditions
    }

    /// Counts the messages that are handed out.
    pub(super) fn counted(&self, limiter: &Limiter) -> Option<TxnOp> {
        (!limiter.limits.is_none()).then(|| TxnOp::put(self.keys.bucket(), limiter.full_at.to_string(), None))
    }

    /// Gives tokens back of deliveries that were not made after all. A failure here costs a moment's rate.
    pub(super) async fn give_back(&self, limiter: &Limiter, deliveries: usize, written: i64) {
        let Some(bucket) = limiter.bucket().filter(|_| deliveries > 0) else { return };
        let full_at = bucket.given_back(limiter.full_at, deliveries);
        let same = Compare::mod_revision(self.keys.bucket(), CompareOp::Equal, written);
        let put = TxnOp::put(self.keys.bucket(), full_at.to_string(), None);
        let reported = self.signal_room(deliveries);
        let _ = self.inner.txn(Txn::new().when([same]).and_then([put, reported])).await;
    }

    /// The signal that goes along with so many settlements, which make messages due at these times: waiters look. Where
    /// the messages in flight are limited, so many of them look in any case: due times do not show whether a waiter was
    /// set to wait for the room, as the clocks of the two may be batch, and the settlement slow.
    pub(super) fn signal_settled(&self, due: &[Micros], count: usize) -> TxnOp {
        let reported: Vec<_> = (!due.is_empty()).then(|| self.signal_all(due)).into_iter().collect();
        let limited = Compare::value(self.keys.limits(), CompareOp::Less, RATE);
        TxnOp::txn(Txn::new().when([limited]).and_then([self.signal_room(count)]).or_else(reported))
    }

    /// Has so many look at once, whatever their clocks say.
    fn signal_room(&self, count: usize) -> TxnOp {
        self.signal_all(&vec![0; count])
    }
}

/// The limits that are set, by the key of the limits. A queue whose limits cannot be read is not taken for one that has
/// none.
pub(super) fn limits(answer: &GetResponse) -> Result<QueueLimits> {
    let Some(found) = answer.kvs().first() else { return Ok(QueueLimits::none()) };
    let text = std::str::from_utf8(found.value()).ok();
    text.and_then(parse).filter(|limits| !limits.is_none()).ok_or_else(|| damaged(found, "limits of a queue"))
}

fn damaged(found: &KeyValue, what: &str) -> Error {
    let (key, value) = (found.key().escape_ascii(), found.value()[..found.value().len().min(64)].escape_ascii());
    let text =
        format!("the key \"{key}\" holds \"{value}\", which are not {what}; set its limits again, or delete the key");
    Error::new(ErrorKind::Damaged, text)
}

pub(super) fn spelled(limits: &QueueLimits) -> String {
    let in_flight = limits.max_in_flight().map(|most| format!("{IN_FLIGHT}={most}\n"));
    let rate = limits.max_rate();
    let rate = rate.map(|rate| format!("{RATE}={}/{}\n", rate.deliveries(), rate.per().as_micros()));
    [in_flight, rate].into_iter().flatten().collect()
}

pub(super) fn parse(text: &str) -> Option<QueueLimits> {
    let mut limits = QueueLimits::none();
    for line in text.lines() {
        limits = match line.split_once('=')? {
            (IN_FLIGHT, most) => limits.in_flight(most.parse().ok()?).ok()?,
            (RATE, rate) => {
                let (deliveries, per) = rate.split_once('/')?;
                let per = Duration::from_micros(per.parse().ok()?);
                limits.rate(Rate::new(deliveries.parse().ok()?, per).ok()?)
            }
            _ => limits,
        };
    }
    Some(limits)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Micros = 10_000_000;

    fn limiter(limits: QueueLimits) -> Limiter {
        Limiter { limits, ..Limiter::default() }
    }

    #[test]
    fn limits_are_read_back() {
        let rate = Rate::new(3, Duration::from_millis(10)).unwrap();
        let none = QueueLimits::none();
        for limits in [none, none.rate(rate), none.in_flight(7).unwrap(), none.in_flight(7).unwrap().rate(rate)] {
            assert_eq!(parse(&spelled(&limits)), Some(limits));
        }
        assert_eq!(parse("rate=0/0"), None);
    }

    #[test]
    fn a_comparison_tells_whether_messages_in_flight_are_limited() {
        let rate = Rate::new(3, Duration::from_millis(10)).unwrap();
        let none = QueueLimits::none();
        for (limits, limited) in [
            (none.in_flight(7).unwrap(), true),
            (none.in_flight(7).unwrap().rate(rate), true),
            (none.rate(rate), false),
        ] {
            assert_eq!(spelled(&limits).as_str() < RATE, limited, "{limits:?}");
        }
    }

    #[test]
    fn a_bucket_is_full_at_first_and_fills_again() {
        let limiter = limiter(QueueLimits::none().rate(Rate::new(4, Duration::from_secs(4)).unwrap()));
        assert_eq!((limiter.room(NOW), limiter.room_at(NOW)), (4, 0));
        let empty = limiter.with(NOW, 3, NOW).with(NOW, 1, NOW);
        assert_eq!((empty.room(NOW), empty.room_at(NOW)), (0, NOW + 1_000_000));
        assert_eq!(empty.allowed(NOW, 9), Soonest { due: NOW + 1_000_000, wanted: 1 });
        assert_eq!((empty.room(NOW + 999_999), empty.room(NOW + 1_000_000), empty.room(NOW + 9_000_000)), (0, 1, 4));
    }

    #[test]
    fn messages_in_flight_take_the_room_until_the_first_lease_ends() {
        let limiter = limiter(QueueLimits::none().in_flight(3).unwrap());
        assert_eq!(limiter.allowed(NOW, 2), Soonest { due: NOW, wanted: 2 });
        let full = limiter.with(NOW, 2, NOW + 70).with(NOW, 1, NOW + 90);
        assert_eq!((full.room(NOW), full.room_at(NOW)), (0, NOW + 70));
        assert_eq!(Limiter::default().room(NOW), usize::MAX);
    }

    #[test]
    fn room_comes_with_the_first_end_when_it_is_full_and_with_the_next_token_when_it_is_not() {
        let rate = Rate::new(1, Duration::from_secs(1)).unwrap();
        let limits = QueueLimits::none().in_flight(3).unwrap().rate(rate);
        let room_at = |live, first_end, full_at| {
            let limiter = Limiter { live, first_end, full_at, ..limiter(limits) };
            (limiter.room(NOW), limiter.room_at(NOW))
        };
        assert_eq!(room_at(2, Some(NOW + 9_000_000), NOW), (1, 0));
        assert_eq!(room_at(3, Some(NOW + 9_000_000), NOW), (0, NOW + 9_000_000));
        assert_eq!(room_at(4, Some(NOW + 9_000_000), NOW), (0, NOW + 9_000_000));
        assert_eq!(room_at(2, Some(NOW + 9_000_000), NOW + 1_000_000), (0, NOW + 1_000_000), "no token");
        assert_eq!(room_at(3, Some(NOW + 70), NOW + 1_000_000), (0, NOW + 1_000_000), "neither");
        assert_eq!(room_at(3, None, NOW), (0, NOW + 1), "it is not known when");
        let full_at = NOW + 1_000_000;
        let by_rate = Limiter { first_end: Some(NOW + 9_000_000), full_at, ..limiter(QueueLimits::none().rate(rate)) };
        assert_eq!(by_rate.room_at(NOW), NOW + 1_000_000);
    }

    #[tokio::test]
    async fn limits_that_cannot_be_read_are_an_error_that_says_what_to_do() {
        use tenure_core::driver::{Lease, ReceiveRequest};
        let (_cluster, driver) = crate::test_support::served();
        let queue = QueueName::new("jobs").unwrap();
        let turn = Turn::new(&driver.inner, &queue);
        let rate = QueueLimits::none().rate(Rate::new(3, Duration::from_millis(10)).unwrap());
        let request = ReceiveRequest::new(queue.clone(), 1, Lease::new(Duration::from_secs(1)).unwrap());
        let long = "x".repeat(100);
        for (key, value, shown, not) in [
            (turn.keys.limits(), "in_flight=?", "holds \"in_flight=?\", which are not limits", "many"),
            (turn.keys.limits(), "", "holds \"\", which are not limits", "many"),
            (turn.keys.limits(), &long, &long[..64], &long[..65]),
            (turn.keys.bucket(), "soon", "holds \"soon\", which are not counts of deliveries", "limits of"),
        ] {
            driver.inner.limit(&queue, &rate).await.unwrap();
            driver.inner.receive(&request).await.unwrap();
            turn.write([TxnOp::put(key, value, None)]).await;
            let error = driver.inner.receive(&request).await.unwrap_err();
            let text = error.to_string();
            assert!(error.kind() == ErrorKind::Damaged && text.contains(shown) && !text.contains(not), "{text}");
            assert!(text.contains("set its limits again, or delete the key"), "{text}");
        }
        driver.inner.limit(&queue, &QueueLimits::none()).await.unwrap();
        driver.inner.receive(&request).await.unwrap();
    }

    /// Without a limit, no signal of room is sent.
    #[tokio::test]
    async fn a_settlement_tells_what_becomes_due_and_of_room_where_messages_in_flight_are_limited() {
        let (_cluster, driver) = crate::test_support::served();
        let queue = QueueName::new("jobs").unwrap();
        let turn = Turn::new(&driver.inner, &queue);
        let rate = QueueLimits::none().rate(Rate::new(3, Duration::from_millis(10)).unwrap());
        let (none, in_flight) = (QueueLimits::none(), rate.in_flight(7).unwrap());
        for (limits, due, reported) in [
            (none, &[][..], "?".to_owned()),
            (rate, &[], "?".to_owned()),
            (in_flight, &[], "0 2".to_owned()),
            (none, &[turn.now + 5], format!("{} 1", turn.now + 5)),
            (rate, &[turn.now + 5], format!("{} 1", turn.now + 5)),
            (in_flight, &[turn.now + 5], "0 2".to_owned()),
        ] {
            driver.inner.limit(&queue, &limits).await.unwrap();
            let before = TxnOp::put(turn.keys.wake.as_slice(), "?", None);
            turn.write([before]).await;
            turn.write([turn.signal_settled(due, 2)]).await;
            let answers = turn.look(vec![TxnOp::get(turn.keys.wake.as_slice(), None)]).await.unwrap();
            assert_eq!(answers[0].kvs()[0].value(), reported.as_bytes(), "{limits:?}, {due:?}");
        }
    }
}
