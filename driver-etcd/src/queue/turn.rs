//! A queue at one moment of its clock: the transactions that move messages, and how messages are found.

use std::collections::HashMap;
use std::time::Duration;

use etcd_client::{Compare, CompareOp, GetOptions, GetResponse, Txn, TxnOp, TxnOpResponse};
use tenure_core::Result;
use tenure_core::driver::{DeadCause, Delay, MessageInfo, MessageState, NamedId, POSTPONED, Payload};
use tenure_core::queue::{MessageId, QueueName};

use super::clock::{Micros, after, span};
use super::entry::{BATCH, Burial, Entry, MOST_STARTS, moving, naming, payload, stored_as};
use super::keys::{Location, QueueKeys, Set};
use super::record::Record;
use crate::inner::Inner;
use crate::link::{odd, reads};

/// A queue at one moment of its clock.
pub(super) struct Turn<'a> {
    pub(super) inner: &'a Inner,
    pub(super) keys: QueueKeys,
    pub(super) now: Micros,
}

/// What a transaction over many messages did: for each step what it read, `None` where its message had moved.
pub(super) struct Applied {
    pub(super) revision: i64,
    pub(super) steps: Vec<Option<Vec<GetResponse>>>,
    /// For each step, whether its alternative was done.
    pub(super) instead: Vec<bool>,
}

impl<'a> Turn<'a> {
    pub(super) fn new(inner: &'a Inner, queue: &QueueName) -> Self {
        Self { inner, keys: inner.queues.of(queue), now: inner.clock.now() }
    }

    pub(super) fn tick(&mut self) {
        self.now = self.inner.clock.now();
    }

    /// Leases that end by then are taken for ended: another client's clock may be behind.
    pub(super) fn leases_ended(&self) -> Micros {
        self.now.saturating_sub(self.error())
    }

    pub(super) fn error(&self) -> Micros {
        self.inner.config.clock_error.as_micros() as Micros
    }

    pub(super) fn state(&self, place: Location) -> MessageState {
        match place {
            Location::Waiting(due) if due > self.now => MessageState::Scheduled,
            Location::Leased(until) if until > self.leases_ended() => MessageState::InFlight,
            Location::Waiting(_) | Location::Held(_) | Location::Leased(_) => MessageState::Ready,
            Location::Dead(_) => MessageState::Dead,
        }
    }

    pub(super) fn info(&self, entry: Entry, payload: Payload) -> MessageInfo {
        let due_in = match entry.place {
            Location::Dead(_) => Duration::ZERO,
            place => span(self.now, place.at()),
        };
        MessageInfo::new(entry.record.id(entry.number), self.state(entry.place), payload)
            .with_attempt(entry.record.life.attempt)
            .with_attempts(entry.record.life.attempts)
            .with_due_in(due_in)
            .with_age(span(entry.record.pushed, self.now))
            .with_key(entry.record.key)
            .with_lock(entry.record.lock)
            .with_reason(entry.record.life.reason)
            .with_expires_in(entry.record.life.expires.map(|until| span(self.now, until)))
            .with_recurrence(entry.record.life.recurrence)
    }

    /// The operations that move a message.
    pub(super) fn relocate(&self, entry: &Entry, to: Location, record: &Record) -> Vec<TxnOp> {
        let key = self.keys.place(to, entry.number);
        let put = TxnOp::put(key.as_slice(), record.encode(), None);
        if key == entry.key {
            return vec![put];
        }
        let pointer = TxnOp::put(self.keys.pointer(entry.number), to.spelled(), None);
        let mut operations = vec![TxnOp::delete(entry.key.as_slice(), None), put, pointer];
        operations.extend(self.leave(entry, to.set()));
        operations.extend(self.enter(entry, to));
        operations
    }

    /// The operations that make a message due after `delay`.
    pub(super) fn delayed(&self, entry: &Entry, delay: Duration, record: &Record) -> Vec<TxnOp> {
        self.relocate(entry, Location::Waiting(after(self.now, delay)), record)
    }

    /// The operations that remove a message, all but its caller's id.
    pub(super) fn take_away(&self, entry: &Entry) -> Vec<TxnOp> {
        let (pointer, body) = (self.keys.pointer(entry.number), self.keys.body(entry.number));
        let keys = [entry.key.clone(), pointer, body].map(|key| TxnOp::delete(key, None));
        keys.into_iter().chain(self.leave(entry, Set::Waiting)).collect()
    }

    /// The operations that remove a message. Its caller's id is free again, unless it stays known for a window; or it leads to
    /// another message by now, after a foreign hand, and is that one's.
    pub(super) fn remove(&self, entry: &Entry, window: Delay) -> Vec<TxnOp> {
        let mut operations = self.take_away(entry);
        let Some(name) = entry.record.named.as_ref().and_then(|named| named.id.as_name()) else { return operations };
        let key = self.keys.named(name);
        let ours = Compare::value(key.as_slice(), CompareOp::Equal, naming(entry.number));
        let change = if window == Delay::ZERO {
            vec![TxnOp::delete(key.as_slice(), None)]
        } else {
            let until = after(self.now, window.get());
            let forgotten = TxnOp::put(self.keys.forgotten(until, name), "", None);
            vec![TxnOp::put(key.as_slice(), format!("until={until}"), None), forgotten]
        };
        operations.push(TxnOp::txn(Txn::new().when([ours]).and_then(change)));
        operations
    }

    /// The operations that bury a message, or let it wait when `room` says that the dead letters are full.
    pub(super) fn bury(&self, entry: &Entry, mut record: Record, cause: DeadCause, room: bool) -> (Burial, Vec<TxnOp>) {
        record.life.doomed = Some(cause);
        if room {
            return (Burial::Dead, self.relocate(entry, Location::Dead(self.now), &record));
        }
        (Burial::Postponed, self.delayed(entry, POSTPONED, &record))
    }

    /// How many more dead letters there may be.
    pub(super) async fn room_for_dead(&self) -> Result<u64> {
        let (from, to) = self.keys.range(Set::Dead, 0, None);
        let count = TxnOp::get(from, Some(GetOptions::new().with_range(to).with_count_only()));
        let dead = self.look(vec![count]).await?.first().map_or(0, GetResponse::count);
        Ok(self.inner.config.max_dead_letters.saturating_sub(u64::try_from(dead).unwrap_or_default()))
    }

    pub(super) async fn look(&self, gets: Vec<TxnOp>) -> Result<Vec<GetResponse>> {
        Ok(self.look_at(gets).await?.1)
    }

    /// Also returns the revision.
    pub(super) async fn look_at(&self, gets: Vec<TxnOp>) -> Result<(i64, Vec<GetResponse>)> {
        let answer = self.inner.txn(Txn::new().and_then(gets)).await?;
        Ok((crate::link::revision(&answer)?, reads(&answer)))
    }

    /// Carries out steps in one transaction, and `also` along with them; `None` when a condition does not hold.
    pub(super) async fn apply(
        &self,
        conditions: Vec<Compare>,
        steps: Vec<TxnOp>,
        also: impl IntoIterator<Item = TxnOp>,
    ) -> Result<Option<Applied>> {
        let count = steps.len();
        let txn = Txn::new().when(conditions).and_then([steps, Vec::from_iter(also)].concat());
        let answer = self.inner.txn(txn.or_else([self.inner.fences.look()])).await?;
        if !answer.succeeded() {
            self.inner.fences.look_again(reads(&answer).first());
            return Ok(None);
        }
        let revision = crate::link::revision(&answer)?;
        let answers = answer.op_responses().into_iter().take(count).map(step_answer).collect::<Result<Vec<_>>>()?;
        let (steps, instead) = answers.into_iter().unzip();
        Ok(Some(Applied { revision, steps, instead }))
    }

    /// One step; returns whether it was carried out.
    pub(super) async fn apply_one(&self, step: TxnOp, also: Option<TxnOp>) -> Result<bool> {
        let applied = self.apply(Vec::new(), vec![step], also).await?;
        Ok(applied.is_some_and(|applied| applied.steps.first().is_some_and(Option::is_some)))
    }

    /// Messages by their numbers, each looked for first where it was last seen.
    pub(super) async fn entries(&self, wanted: &[(u64, Option<Location>)]) -> Result<HashMap<u64, Entry>> {
        let mut found = HashMap::new();
        for chunk in wanted.chunks(BATCH) {
            let mut places: Vec<(u64, Location)> =
                chunk.iter().filter_map(|(number, seen)| Some((*number, (*seen)?))).collect();
            let mut missing: Vec<u64> = chunk.iter().map(|(number, _)| *number).collect();
            let mut followed = HashMap::new();
            for _ in 0..MOST_STARTS {
                for entry in self.at(&places).await? {
                    found.insert(entry.number, entry);
                }
                missing.retain(|number| !found.contains_key(number));
                if missing.is_empty() {
                    break;
                }
                places.clear();
                for (number, place, written) in self.pointed(&missing).await? {
                    // A message that moves writes its pointer as well: one that is the same leads nowhere.
                    if followed.insert(number, written) == Some(written) {
                        found.insert(number, Entry::without_place(&self.keys, place, number));
                    } else {
                        places.push((number, place));
                    }
                }
                missing.retain(|number| places.iter().any(|(other, _)| other == number));
            }
            if !missing.is_empty() {
                return Err(moving());
            }
        }
        Ok(found)
    }

    pub(super) async fn at(&self, places: &[(u64, Location)]) -> Result<Vec<Entry>> {
        if places.is_empty() {
            return Ok(Vec::new());
        }
        let gets = places.iter().map(|(number, place)| TxnOp::get(self.keys.place(*place, *number), None));
        let answers = self.look(gets.collect()).await?;
        Ok(answers.iter().flat_map(GetResponse::kvs).filter_map(|found| Entry::read(&self.keys, found)).collect())
    }

    /// Where messages are by their pointers, and in which revision those were written; those without one are left out.
    pub(super) async fn pointed(&self, numbers: &[u64]) -> Result<Vec<(u64, Location, i64)>> {
        let gets = numbers.iter().map(|number| TxnOp::get(self.keys.pointer(*number), None));
        let answers = self.look(gets.collect()).await?;
        let place = |(number, answer): (&u64, &GetResponse)| {
            let found = answer.kvs().first()?;
            Some((*number, Location::parse(found.value())?, found.mod_revision()))
        };
        Ok(numbers.iter().zip(&answers).filter_map(place).collect())
    }

    /// A message by its id.
    pub(super) async fn find(&self, id: &MessageId) -> Result<Option<Entry>> {
        let number = match (id.as_name(), id.as_number()) {
            (Some(name), _) => {
                let answers = self.look(vec![TxnOp::get(self.keys.named(name), None)]).await?;
                answers.first().and_then(|answer| stored_as(answer.kvs().first()?.value()))
            }
            (None, number) => number,
        };
        let Some(number) = number else { return Ok(None) };
        let Some(mut entry) = self.entries(&[(number, None)]).await?.remove(&number) else { return Ok(None) };
        if entry.is_damaged() && entry.record.named.is_none() && id.as_name().is_some() {
            entry.record.named = Some(NamedId::new(id.clone(), Delay::ZERO)); // it leads here
        }
        Ok((entry.record.id(number) == *id).then_some(entry))
    }

    /// The payload of each message, unless it is gone: as many requests as there are mebibytes, about.
    pub(super) async fn payloads(&self, mut entries: &[Entry]) -> Result<Vec<Option<Payload>>> {
        let mut payloads = Vec::with_capacity(entries.len());
        while !entries.is_empty() {
            let (some, rest) = entries.split_at(Entry::fitting(entries));
            let gets = some.iter().map(|entry| TxnOp::get(self.keys.body(entry.number), None));
            payloads.extend(self.look(gets.collect()).await?.iter().map(payload));
            entries = rest;
        }
        Ok(payloads)
    }
}

/// What a step read if it was carried out, and whether its alternative was.
fn step_answer(answer: TxnOpResponse) -> Result<(Option<Vec<GetResponse>>, bool)> {
    let TxnOpResponse::Txn(step) = answer else { return Err(odd("an answer of an unexpected form")) };
    if step.succeeded() {
        return Ok((Some(reads(&step)), false));
    }
    let done = |inner: &TxnOpResponse| matches!(inner, TxnOpResponse::Txn(inner) if inner.succeeded());
    Ok((None, step.op_responses().iter().any(done)))
}

#[cfg(test)]
mod tests {
    use tenure_core::driver::NewMessage;

    use super::super::test_support::{SECOND, queue};
    use super::*;
    use crate::test_support::{served, unserved};

    fn named(id: &str) -> NewMessage {
        let id = NamedId::new(MessageId::named(id).unwrap(), Delay::ZERO);
        NewMessage::new(Payload::new(id.id.as_name().unwrap()).unwrap()).with_id(Some(id))
    }

    #[test]
    fn what_a_place_means_depends_on_the_time() {
        let driver = unserved();
        let turn = Turn::new(&driver.inner, &queue());
        let (now, ended) = (turn.now, turn.now - SECOND);
        for (place, state) in [
            (Location::Waiting(now), MessageState::Ready),
            (Location::Waiting(now + 1), MessageState::Scheduled),
            (Location::Held(now), MessageState::Ready),
            (Location::Held(now + 1), MessageState::Ready),
            (Location::Leased(ended), MessageState::Ready),
            (Location::Leased(ended + 1), MessageState::InFlight),
            (Location::Dead(now), MessageState::Dead),
        ] {
            assert_eq!(turn.state(place), state, "{place:?}");
        }
        let mut later = Turn::new(&driver.inner, &queue());
        driver.inner.clock.at_least(now + 60 * SECOND);
        assert!(later.now < now + 60 * SECOND);
        later.tick();
        assert_eq!(later.now, now + 60 * SECOND);
    }

    /// Where it was last seen, where its pointer says, or nowhere: each of several by itself.
    #[tokio::test]
    async fn messages_are_found_wherever_they_are() {
        let (_cluster, driver) = served();
        let turn = Turn::new(&driver.inner, &queue());
        driver.inner.push(&queue(), &["a", "b", "c", "d"].map(named)).await.unwrap();
        let mut numbers = Vec::new();
        for id in ["a", "b", "c", "d"] {
            numbers.push(turn.find(&MessageId::named(id).unwrap()).await.unwrap().unwrap().number);
        }
        let [a, b, c, d] = numbers[..] else { panic!() };
        let at = turn.entries(&[(a, None)]).await.unwrap()[&a].place;
        let gone = TxnOp::delete(turn.keys.place(at, c), None);
        let without = TxnOp::delete(turn.keys.pointer(d), None);
        turn.write([gone, without]).await;
        let (elsewhere, unknown) = (Location::Leased(at.at()), 17);
        for wanted in [
            &[(a, None), (b, Some(at)), (c, None), (d, Some(at)), (unknown, None)][..],
            &[(unknown, Some(at)), (c, Some(at)), (b, Some(elsewhere)), (a, Some(elsewhere)), (d, None)],
            &[(unknown, Some(at))],
            &[(b, Some(elsewhere)), (a, Some(at))],
            &[],
        ] {
            let found = turn.entries(wanted).await.unwrap();
            let mut known: Vec<u64> = found.keys().copied().collect();
            known.sort_unstable();
            let is_found = |(number, seen): &(u64, Option<Location>)| {
                [a, b, c].contains(number) || (*number == d && *seen == Some(at))
            };
            let mut expected: Vec<u64> = wanted.iter().filter(|one| is_found(one)).map(|(number, _)| *number).collect();
            expected.sort_unstable();
            assert_eq!(known, expected, "{wanted:?}");
            for entry in found.values() {
                assert_eq!((entry.place, entry.is_damaged()), (at, entry.number == c), "{wanted:?}");
            }
        }
    }

    #[tokio::test]
    async fn a_name_leads_to_its_message_though_that_is_damaged_and_to_no_other_one() {
        let (_cluster, driver) = served();
        let turn = Turn::new(&driver.inner, &queue());
        driver.inner.push(&queue(), &["a", "b"].map(named)).await.unwrap();
        let (a, b, c) = ("a", "b", "c");
        let find = async |id: &str| turn.find(&MessageId::named(id).unwrap()).await.unwrap();
        let (first, second) = (find(a).await.unwrap(), find(b).await.unwrap());
        assert!(find(c).await.is_none());
        assert!(turn.find(&MessageId::assigned(first.number)).await.unwrap().is_none(), "it has a name");
        let value = |bytes: &'static [u8]| TxnOp::put(first.key.as_slice(), bytes, None);
        let leads = |name: &[u8], number| TxnOp::put(turn.keys.named(name), naming(number), None);
        let plain = NewMessage::new(Payload::new([]).unwrap());
        let pushed = driver.inner.push(&queue(), &[plain]).await.unwrap();
        let tenure_core::driver::Pushed::Stored(plain) = &pushed[0] else { panic!("{pushed:?}") };
        let all = [value(b"?"), leads(b"c", second.number), leads(b"d", plain.as_number().unwrap())];
        turn.write(all).await;
        assert!(find("d").await.is_none(), "it has no name, and is whole");
        let damaged = find(a).await.unwrap();
        assert!(damaged.is_damaged() && damaged.record.id(first.number) == MessageId::named(a).unwrap());
        assert!(find(c).await.is_none(), "that is another one's name");
        let odd = [&second.record.encode()[..], b"key=%\n"].concat();
        turn.write([TxnOp::put(second.key.as_slice(), odd, None)]).await;
        assert!(find(b).await.unwrap().is_damaged() && find(c).await.is_none(), "its name can be read");
        let by_number = turn.find(&MessageId::assigned(first.number)).await.unwrap().unwrap();
        assert_eq!(by_number.record.id(first.number), MessageId::assigned(first.number), "its name is lost");
    }

    #[tokio::test]
    async fn there_is_room_for_as_many_dead_letters_as_are_not_there() {
        let (cluster, _) = served();
        let driver = crate::EtcdDriver::new(format!("{}?max_dead_letters=3", cluster.url()).parse().unwrap());
        let turn = Turn::new(&driver.inner, &queue());
        for (number, room) in [(1, 3), (2, 2), (3, 1), (4, 0), (5, 0)] {
            assert_eq!(turn.room_for_dead().await.unwrap(), room);
            let put = TxnOp::put(turn.keys.place(Location::Dead(5), number), "", None);
            turn.write([put]).await;
        }
    }

    #[tokio::test]
    async fn a_base_of_fences_that_was_written_since_is_read_again() {
        use tenure_core::driver::{DelayQueueExt as _, Lease, ReceiveRequest};
        let (cluster, driver) = served();
        let other = crate::EtcdDriver::new(cluster.url().parse().unwrap());
        let request = ReceiveRequest::new(queue(), 1, Lease::new(Duration::from_secs(60)).unwrap());
        driver.inner.push(&queue(), &["a", "b"].map(named)).await.unwrap();
        let first = driver.receive(&request).await.unwrap().deliveries;
        let all = GetOptions::new().with_all_keys();
        let found = Turn::new(&driver.inner, &queue()).look(vec![TxnOp::get("", Some(all))]).await.unwrap();
        let base = found[0].kvs().iter().find(|found| found.key().ends_with(b"/%/fences")).unwrap();
        other.inner.txn(Txn::new().and_then([TxnOp::put(base.key(), base.value(), None)])).await.unwrap();
        let second = driver.receive(&request).await.unwrap().deliveries;
        assert!(first.len() == 1 && second.len() == 1 && second[0].fence > first[0].fence);
    }

    #[test]
    fn a_message_that_stays_where_it_is_is_written_and_nothing_else() {
        let driver = unserved();
        let turn = Turn::new(&driver.inner, &queue());
        let entry = Entry::without_place(&turn.keys, Location::Waiting(7), 1);
        assert_eq!(turn.relocate(&entry, Location::Waiting(7), &entry.record).len(), 1);
        assert_eq!(turn.relocate(&entry, Location::Waiting(8), &entry.record).len(), 3);
    }
}
