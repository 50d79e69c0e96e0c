//! What a receive does in the line of those who wait: it takes a place when nothing is due, and leaves it with a message.

use etcd_client::{Compare, CompareOp, DeleteOptions, GetOptions, GetResponse, PutOptions, Txn, TxnOp};
use tenure_core::Result;

use super::clock::Micros;
use super::keys::{Set, Spot};
use super::line::{Place, Soonest, Stands};
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

/// What is due next, as far as a look saw.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ahead {
    /// This.
    Known(Option<Micros>),
    /// Nothing within some seconds.
    NotSoon,
}

impl Turn<'_> {
    /// What makes those who wait look: something becomes due by then.
    pub(super) fn signal(&self, due: Micros) -> TxnOp {
        self.signal_all(&[due])
    }

    /// What makes as many look as there are due times. Of a queue that was struck off the list nobody waits for anything,
    /// and no list would remove the signal.
    pub(super) fn signal_all(&self, due: &[Micros]) -> TxnOp {
        let listed = Compare::create_revision(self.keys.registered.as_slice(), CompareOp::Greater, 0);
        TxnOp::txn(Txn::new().when([listed]).and_then([self.signal_listed(due)]))
    }

    /// The same for whoever lists the queue in the same step.
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
        let [signal, all, own @ ..] = answers else { return Err(odd("an answer of another shape")) };
        let signal = written(signal);
        let ahead = match own {
            [before, upto] if upto.count() > before.count() => u64::try_from(before.count()).ok(),
            _ => None,
        };
        Ok(Waiters { revision, signal, any: all.count() > 0, ahead })
    }

    /// What goes along with the messages that a receive takes: the client leaves the line, with those before it if it came
    /// instead of them, and the others learn what is left. Unless more came since the look: they know of that.
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

    /// The client waits where it is in the line, or takes a place; tells when something is due; what is due already
    /// is not to be asked for before there is room under the queue's limits.
    pub(super) async fn wait_in_line(
        &self,
        part: &mut Part,
        waiters: &Waiters,
        next: Ahead,
        room_at: Micros,
    ) -> Result<Option<Micros>> {
        let (stands, next) = match (&part.spot, waiters.ahead, next) {
            (Some(Spot { key, .. }), Some(ahead), Ahead::Known(next)) => {
                // The place lasts for as long as somebody asks. Its end would be an event of the watch.
                self.inner.signals.lease().await?;
                (stands(Place { key: key.clone(), ahead }, next, waiters.revision), next)
            }
            _ => self.stand(part, waiters.signal, room_at).await?,
        };
        part.waits(stands);
        Ok(next)
    }

    /// Takes a place in the line, and looks when something is due, in one step.
    async fn stand(&self, part: &mut Part, signal: i64, room_at: Micros) -> Result<(Stands, Option<Micros>)> {
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
            reads(&answer).try_into().map_err(|_| odd("an answer of another shape"))?;
        // Who made room since the look has told so.
        let room_at = if written(&now) == signal { room_at } else { 0 };
        let due = self.soonest([&waiting, &leased]).map(|due| if due <= self.now { due.max(room_at) } else { due });
        let place = Place { key, ahead: u64::try_from(before.count()).unwrap_or_default() };
        Ok((stands(place, due, revision(&answer)?), due))
    }
}

/// In which revision the key was last written; zero if it is not there.
fn written(answer: &GetResponse) -> i64 {
    answer.kvs().first().map_or(0, etcd_client::KeyValue::mod_revision)
}

fn stands(place: Place, due: Option<Micros>, revision: i64) -> Stands {
    Stands { place, soonest: due.map_or(Soonest::NEVER, |due| Soonest { due, wanted: 1 }), revision }
}
