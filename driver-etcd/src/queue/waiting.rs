//! The part of a receive in the line of waiting clients: it takes a place when no message is due, and leaves it with a
//! message.

use etcd_client::{Compare, CompareOp, DeleteOptions, GetOptions, GetResponse, PutOptions, Txn, TxnOp};
use tenure_core::Result;

use super::clock::Micros;
use super::keys::{Set, Spot};
use super::line::{LineState, Place, Soonest};
use super::signals::Part;
use super::turn::Turn;
use crate::error::says_lease_gone;
use crate::link::{odd, reads, revision};

/// What a look saw of the signal and the line.
#[derive(Debug)]
pub(super) struct Waiters {
    /// The revision of the look.
    revision: i64,
    /// The revision in which the signal was last written.
    signal: i64,
    /// Whether there are any.
    any: bool,
    /// How many are before the client's own place, if it is there.
    ahead: Option<u64>,
}

/// The next due time, as far as a look saw.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ahead {
    /// At this time.
    Known(Option<Micros>),
    /// None within some seconds.
    NotSoon,
}

impl Turn<'_> {
    /// What makes those who wait look: something becomes due by then.
    pub(super) fn signal(&self, due: Micros) -> TxnOp {
        self.signal_all(&[due])
    }

    /// Makes as many clients look as there are due times. A queue that was struck off the list has no waiters, and no
    /// list would remove the signal.
    pub(super) fn signal_all(&self, due: &[Micros]) -> TxnOp {
        let listed = Compare::create_revision(self.keys.registered.as_slice(), CompareOp::Greater, 0);
        TxnOp::txn(Txn::new().when([listed]).and_then([self.signal_listed(due)]))
    }

    /// The same for a caller that lists the queue in the same step.
    pub(super) fn signal_listed(&self, due: &[Micros]) -> TxnOp {
        TxnOp::put(self.keys.wake.as_slice(), Soonest::of(due, self.now).spelled(), None)
    }

    /// The reads of [`waiters`](Self::waiters).
    pub(super) fn look_at_waiters(&self, part: Option<&Part>) -> Vec<TxnOp> {
        let (from, to) = self.keys.line();
        let count =
            |from: &[u8], to: Vec<u8>| TxnOp::get(from, Some(GetOptions::new().with_range(to).with_count_only()));
        let mut gets = vec![self.look_at_signal(), count(&from, to)];
        if let Some(place) = part.and_then(|part| part.spot.as_ref()).map(|spot| &spot.key) {
            gets.extend([count(&from, place.clone()), count(&from, [place.as_slice(), &[0]].concat())]);
        }
        gets
    }

    fn look_at_signal(&self) -> TxnOp {
        TxnOp::get(self.keys.wake.as_slice(), Some(GetOptions::new().with_keys_only()))
    }

    pub(super) fn waiters(&self, revision: i64, answers: &[GetResponse]) -> Result<Waiters> {
        let [signal, all, own @ ..] = answers else { return Err(odd("an answer of an unexpected form")) };
        let signal = written(signal);
        let ahead = match own {
            [before, upto] if upto.count() > before.count() => u64::try_from(before.count()).ok(),
            _ => None,
        };
        Ok(Waiters { revision, signal, any: all.count() > 0, ahead })
    }

    /// The change that goes along with the messages that a receive takes: the client leaves the line, with those before
    /// it if it came instead of them, and the others learn the rest. Unless more came since the look: they know of
    /// that.
    pub(super) fn leave_line(&self, waiters: &Waiters, part: Option<&Part>, left: Option<Soonest>) -> Option<TxnOp> {
        let mut operations = Vec::new();
        if let Some((place, part)) = part.and_then(|part| Some((part.spot.as_ref()?.key.as_slice(), part))) {
            let upto = DeleteOptions::new().with_range([place, &[0]].concat());
            operations.push(match part.instead {
                true => TxnOp::delete(self.keys.line().0, Some(upto)),
                false => TxnOp::delete(place, None),
            });
        }
        if let Some(left) = left.filter(|_| waiters.any) {
            let wake = self.keys.wake.as_slice();
            let same = Compare::mod_revision(wake, CompareOp::Equal, waiters.signal);
            let tell = TxnOp::put(wake, format!("={}", left.spelled()), None);
            operations.push(TxnOp::txn(Txn::new().when([same]).and_then([tell])));
        }
        (!operations.is_empty()).then(|| TxnOp::txn(Txn::new().and_then(operations)))
    }

    /// The client waits where it is in the line, or takes a place; returns when something is due; a message that is due
    /// already is not to be asked for before there is room under the queue's limits.
    pub(super) async fn wait_in_line(
        &self,
        part: &mut Part,
        waiters: &Waiters,
        next: Ahead,
        room_at: Micros,
    ) -> Result<Option<Micros>> {
        let (line_state, next) = match (&part.spot, waiters.ahead, next) {
            (Some(Spot { key, .. }), Some(ahead), Ahead::Known(next)) => {
                // The place lasts for as long as a receive asks. Its end would be an event of the watch.
                self.inner.signals.lease().await?;
                (line_state(Place { key: key.clone(), ahead }, next, waiters.revision), next)
            }
            _ => self.take_place(part, waiters.signal, room_at).await?,
        };
        part.waits(line_state);
        Ok(next)
    }

    /// Takes a place in the line, and looks when something is due, in one step.
    async fn take_place(&self, part: &mut Part, signal: i64, room_at: Micros) -> Result<(LineState, Option<Micros>)> {
        let key = part.takes(self.keys.place_in_line(self.now, getrandom::u64().unwrap_or_default()));
        let (from, _) = self.keys.line();
        let ahead = GetOptions::new().with_range(key.clone()).with_count_only();
        let look = [self.first(Set::Waiting, 0), self.first(Set::Leased, 0), TxnOp::get(from, Some(ahead))];
        let mut again = true;
        let answer = loop {
            let lease = self.inner.signals.lease().await?;
            let put = TxnOp::put(key.as_slice(), "", Some(PutOptions::new().with_lease(lease)));
            match self.inner.txn(Txn::new().and_then([&look[..], &[self.look_at_signal(), put]].concat())).await {
                Err(error) if again && says_lease_gone(&error) => {
                    self.inner.signals.lease_is_gone(lease).await;
                    again = false;
                }
                answer => break answer?,
            }
        };
        let [waiting, leased, before, now] =
            reads(&answer).try_into().map_err(|_| odd("an answer of an unexpected form"))?;
        // A client that made room since the look has sent a signal.
        let room_at = if written(&now) == signal { room_at } else { 0 };
        let due = self.soonest([&waiting, &leased]).map(|due| if due <= self.now { due.max(room_at) } else { due });
        let place = Place { key, ahead: u64::try_from(before.count()).unwrap_or_default() };
        Ok((line_state(place, due, revision(&answer)?), due))
    }
}

/// In which revision the key was last written; zero if it is not there.
fn written(answer: &GetResponse) -> i64 {
    answer.kvs().first().map_or(0, etcd_client::KeyValue::mod_revision)
}

fn line_state(place: Place, due: Option<Micros>, revision: i64) -> LineState {
    LineState { place, soonest: due.map_or(Soonest::NEVER, |due| Soonest { due, wanted: 1 }), revision }
}

#[cfg(test)]
mod tests {
    use super::super::test_support::{SECOND, queue};
    use super::*;
    use crate::test_support::served;

    impl Turn<'_> {
        fn spot(&self, at: Micros) -> Vec<u8> {
            self.keys.place_in_line(at, 7)
        }

        async fn came(&self, at: Micros) {
            self.inner.txn(Txn::new().and_then([TxnOp::put(self.spot(at), "", None)])).await.unwrap();
        }

        /// As seen by the client that has this place.
        async fn seen_by(&self, part: Option<&Part>) -> Waiters {
            let (revision, answers) = self.look_at(self.look_at_waiters(part)).await.unwrap();
            self.waiters(revision, &answers).unwrap()
        }

        async fn all(&self) -> Vec<Vec<u8>> {
            let (from, to) = self.keys.line();
            let answers = self.look(vec![TxnOp::get(from, Some(GetOptions::new().with_range(to)))]).await.unwrap();
            answers[0].kvs().iter().map(|found| found.key().to_vec()).collect()
        }

        async fn reported(&self) -> Option<String> {
            let answers = self.look(vec![TxnOp::get(self.keys.wake.as_slice(), None)]).await.unwrap();
            answers[0].kvs().first().map(|found| String::from_utf8_lossy(found.value()).into_owned())
        }

        async fn tells(&self, value: &str) {
            self.inner.txn(Txn::new().and_then([TxnOp::put(self.keys.wake.as_slice(), value, None)])).await.unwrap();
        }
    }

    fn at(key: Vec<u8>, instead: bool) -> Part {
        Part { spot: Some(Spot { key, seen: true }), instead, line_state: None }
    }

    #[tokio::test]
    async fn who_takes_a_message_leaves_the_line_and_tells_what_is_left() {
        let left = Some(Soonest { due: 5, wanted: 2 });
        // Whether it has a place, came instead of others, the rest, and whether another client sent a signal since.
        for (has_place, instead, left, since, stay, reported) in [
            (true, false, None, false, &[1, 3][..], Some("0 1")),
            (true, true, None, false, &[3], Some("0 1")),
            (true, true, left, false, &[3], Some("=5 2")),
            (true, false, left, true, &[1, 3], Some("0 9")),
            (false, true, left, false, &[1, 2, 3], Some("=5 2")),
        ] {
            let (_cluster, driver) = served();
            let turn = Turn::new(&driver.inner, &queue());
            turn.tells("0 1").await;
            for place in [1, 2, 3] {
                turn.came(place).await;
            }
            let part = at(turn.spot(2), instead);
            let part = Some(&part).filter(|_| has_place);
            let seen = turn.seen_by(part).await;
            assert_eq!((seen.any, seen.ahead), (true, has_place.then_some(1)));
            if since {
                turn.tells("0 9").await;
            }
            let leave = turn.leave_line(&seen, part, left).unwrap();
            turn.write([leave]).await;
            let stay: Vec<_> = stay.iter().map(|place| turn.spot(*place)).collect();
            assert_eq!((turn.all().await, turn.reported().await.as_deref()), (stay, reported));
        }
    }

    #[tokio::test]
    async fn without_waiters_nothing_is_published() {
        let (_cluster, driver) = served();
        let turn = Turn::new(&driver.inner, &queue());
        let seen = turn.seen_by(None).await;
        assert_eq!((seen.any, seen.signal, seen.ahead), (false, 0, None));
        assert!(turn.leave_line(&seen, None, Some(Soonest { due: 5, wanted: 2 })).is_none());
        assert!(turn.leave_line(&seen, Some(&Part::default()), None).is_none(), "it has no place");
        turn.came(1).await;
        turn.came(9).await;
        let seen = turn.seen_by(Some(&at(turn.spot(5), false))).await;
        assert_eq!((seen.any, seen.ahead), (true, None), "its place is gone");
        assert!(turn.leave_line(&seen, None, None).is_none());
    }

    #[tokio::test]
    async fn a_client_waits_where_it_is_if_all_is_known_and_takes_a_place_otherwise() {
        let (_cluster, driver) = served();
        let turn = Turn::new(&driver.inner, &queue());
        turn.came(1).await;
        turn.came(turn.now - 5).await;
        let due = turn.now + 60 * SECOND;
        let put = TxnOp::put(turn.keys.place(super::super::keys::Location::Waiting(due), 1), "", None);
        turn.write([put]).await;
        for (key, next, stays) in [
            (Some(turn.spot(turn.now - 5)), Ahead::Known(Some(turn.now + 9)), true),
            (Some(turn.spot(turn.now - 5)), Ahead::Known(None), true),
            (Some(turn.spot(turn.now - 5)), Ahead::NotSoon, false),
            (Some(turn.spot(turn.now - 7)), Ahead::Known(None), false),
            (None, Ahead::Known(None), false),
        ] {
            let mut part = key.map_or_else(Part::default, |key| at(key, false));
            let had = part.spot.clone();
            let seen = turn.seen_by(Some(&part)).await;
            let reported = turn.wait_in_line(&mut part, &seen, next, 0).await.unwrap();
            let line_state = part.line_state.unwrap();
            assert_eq!(part.spot, Some(Spot { key: line_state.place.key.clone(), seen: true }));
            let before = turn.all().await.iter().filter(|key| **key < line_state.place.key).count() as u64;
            assert_eq!(line_state.place.ahead, before);
            assert_eq!(stays, had == part.spot, "{next:?}");
            assert_eq!(line_state.soonest, reported.map_or(Soonest::NEVER, |due| Soonest { due, wanted: 1 }));
            match next {
                Ahead::Known(known) if stays => {
                    assert_eq!((reported, line_state.revision, before), (known, seen.revision, 1));
                }
                _ => assert!(reported == Some(due) && line_state.revision > seen.revision),
            }
            if !stays {
                let gone = TxnOp::delete(line_state.place.key, None);
                turn.write([gone]).await;
            }
        }
    }

    #[tokio::test]
    async fn a_client_that_stays_where_it_is_keeps_its_lease_alive() {
        let (_cluster, driver) = served();
        let turn = Turn::new(&driver.inner, &queue());
        let mut part = Part::default();
        turn.take_place(&mut part, 0, 0).await.unwrap();
        let seen = turn.seen_by(Some(&part)).await;
        let since = driver.inner.signals.half_is_over().await;
        turn.wait_in_line(&mut part, &seen, Ahead::Known(None), 0).await.unwrap();
        assert!(driver.inner.signals.half_is_over().await > since);
    }

    /// A message that is due already is not to be asked for before there is room, unless another client has made room
    /// since.
    #[tokio::test]
    async fn who_takes_a_place_waits_for_room_unless_somebody_has_told_of_some() {
        let (_cluster, driver) = served();
        let turn = Turn::new(&driver.inner, &queue());
        turn.tells("0 1").await;
        let signal = turn.seen_by(None).await.signal;
        let (past, room) = (turn.now - SECOND, turn.now + 9);
        for (due, signal, next) in [
            (past, signal, room),
            (past, signal - 1, past),
            (turn.now, signal, room),
            (turn.now + 5, signal, turn.now + 5),
        ] {
            let key = turn.keys.place(super::super::keys::Location::Waiting(due), 1);
            turn.write([TxnOp::put(key.as_slice(), "", None)]).await;
            let (line_state, reported) = turn.take_place(&mut Part::default(), signal, room).await.unwrap();
            assert_eq!((reported, line_state.soonest), (Some(next), Soonest { due: next, wanted: 1 }), "{due}");
            turn.write([TxnOp::delete(key, None)]).await;
        }
        let (line_state, reported) = turn.take_place(&mut Part::default(), signal, room).await.unwrap();
        assert_eq!((reported, line_state.soonest), (None, Soonest::NEVER));
    }

    #[tokio::test]
    async fn a_place_is_taken_on_another_lease_when_the_first_one_is_gone() {
        let (_cluster, driver) = served();
        let turn = Turn::new(&driver.inner, &queue());
        let lease = driver.inner.signals.lease().await.unwrap();
        assert_eq!(driver.inner.signals.lease().await.unwrap(), lease, "one for all places");
        driver.inner.leases.revoke(lease).await.unwrap();
        turn.take_place(&mut Part::default(), 0, 0).await.unwrap();
        let another = driver.inner.signals.lease().await.unwrap();
        assert!(another != lease && driver.inner.lives(another).await);
        assert_eq!(turn.all().await.len(), 1);
        driver.inner.signals.leave().await;
        assert!(turn.all().await.is_empty(), "it was on that lease");
    }
}
