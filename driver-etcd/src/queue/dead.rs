//! Dead letters.

use std::collections::HashSet;

use etcd_client::{GetOptions, GetResponse, TxnOp};
use tenure_core::Result;
use tenure_core::driver::{DeadCause, DeadLetter, DeadPage, DeadPlace, DeadSelection, Delay, Purged, Redriven, Rest};
use tenure_core::queue::QueueName;

use super::batch::by_transactions;
use super::clock::{after, span};
use super::entry::{BATCH, Entry, MOST_STARTS};
use super::keys::{Location, Set};
use super::turn::Turn;
use crate::inner::Inner;

/// An operation on dead letters.
#[derive(Clone, Copy, Debug)]
enum Deed {
    Redrive(Delay),
    Purge,
}

impl Inner {
    /// Two requests for each hundred: the letters, and their payloads; one more for each further mebibyte of those.
    pub(super) async fn dead_list(&self, queue: &QueueName, after: Option<DeadPlace>, max: usize) -> Result<DeadPage> {
        let turn = Turn::new(self, queue);
        let mut letters = Vec::new();
        let mut after = after;
        loop {
            let (entries, more) = turn.dead(after, (max - letters.len()).min(BATCH)).await?;
            let last = entries.last().map(|entry| DeadPlace { stamp: entry.place.at(), number: entry.number });
            let payloads = turn.payloads(&entries).await?;
            for (entry, payload) in entries.into_iter().zip(payloads) {
                let (entry, payload) = entry.with(payload)?;
                letters.push(
                    DeadLetter::new(
                        entry.record.id(entry.number),
                        DeadPlace { stamp: entry.place.at(), number: entry.number },
                        payload,
                        entry.record.life.doomed.unwrap_or(DeadCause::Exhausted),
                    )
                    .with_attempt(entry.record.life.attempt)
                    .with_reason(entry.record.life.reason)
                    .with_died(span(entry.place.at(), turn.now)),
                );
            }
            if !more {
                return Ok(DeadPage::new(letters, Rest::None));
            }
            if letters.len() >= max {
                return Ok(DeadPage::new(letters, Rest::More));
            }
            after = last;
        }
    }

    pub(super) async fn dead_redrive(
        &self,
        queue: &QueueName,
        which: &DeadSelection,
        delay: Delay,
    ) -> Result<Redriven> {
        let (moved, rest) = self.with_dead(queue, which, Deed::Redrive(delay)).await?;
        Ok(Redriven::new(moved, rest))
    }

    pub(super) async fn dead_purge(&self, queue: &QueueName, which: &DeadSelection) -> Result<Purged> {
        let (removed, rest) = self.with_dead(queue, which, Deed::Purge).await?;
        Ok(Purged::new(removed, rest))
    }

    async fn with_dead(&self, queue: &QueueName, which: &DeadSelection, deed: Deed) -> Result<(u64, Rest)> {
        match which {
            DeadSelection::Ids(ids) => {
                let mut done = 0;
                let known: HashSet<_> = ids.iter().collect();
                for id in known {
                    for _ in 0..MOST_STARTS {
                        let turn = Turn::new(self, queue);
                        let entry = turn.find(id).await?.filter(|entry| entry.place.set() == Set::Dead);
                        let Some(entry) = entry else { break };
                        if turn.treat(vec![entry], deed).await? == 1 {
                            done += 1;
                            break;
                        }
                    }
                }
                Ok((done, Rest::None))
            }
            DeadSelection::Oldest(count) => {
                let mut done = 0;
                for _ in 0..count.div_ceil(BATCH) + MOST_STARTS {
                    let turn = Turn::new(self, queue);
                    let left = (*count as u64).saturating_sub(done);
                    let (entries, _) = turn.dead(None, usize::try_from(left).unwrap_or(BATCH).clamp(1, BATCH)).await?;
                    if entries.is_empty() {
                        return Ok((done, Rest::None));
                    }
                    if left == 0 {
                        break;
                    }
                    done += turn.treat(entries, deed).await?;
                }
                Ok((done, Rest::More))
            }
        }
    }
}

impl Turn<'_> {
    /// Up to `limit` dead letters behind a place, and whether there are more.
    async fn dead(&self, after: Option<DeadPlace>, limit: usize) -> Result<(Vec<Entry>, bool)> {
        let (mut from, to) = self.keys.range(Set::Dead, 0, None);
        if let Some(DeadPlace { stamp, number }) = after {
            from = [self.keys.place(Location::Dead(stamp), number), vec![0]].concat();
        }
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let page = TxnOp::get(from, Some(GetOptions::new().with_range(to).with_limit(limit)));
        let answers = self.look(vec![page]).await?;
        let more = answers.iter().any(GetResponse::more);
        let found = answers.iter().flat_map(GetResponse::kvs);
        Ok((found.filter_map(|found| Entry::read(&self.keys, found)).collect(), more))
    }

    /// Returns how many letters it treated.
    async fn treat(&self, mut entries: Vec<Entry>, deed: Deed) -> Result<u64> {
        if matches!(deed, Deed::Redrive(_)) && entries.iter().any(Entry::is_damaged) {
            // A redrive takes the payload as it is.
            let payloads = self.payloads(&entries).await?;
            for (entry, payload) in entries.iter_mut().zip(payloads) {
                entry.record.size = payload.map_or(0, |payload| payload.len());
            }
        }
        let step = |entry: &Entry| {
            entry.step(match deed {
                Deed::Purge => self.remove(entry, Delay::ZERO),
                Deed::Redrive(delay) => {
                    let mut record = entry.record.clone();
                    record.life.redrive();
                    self.delayed(entry, delay.get(), &record)
                }
            })
        };
        let signal = match deed {
            Deed::Purge => None,
            Deed::Redrive(delay) => Some(self.signal_all(&vec![after(self.now, delay.get()); entries.len()])),
        };
        let mut done = 0;
        for entries in by_transactions(entries) {
            let applied = self.apply(Vec::new(), entries.iter().map(step).collect(), signal.clone()).await?;
            done += applied.map_or(0, |applied| applied.steps.iter().flatten().count() as u64);
        }
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use etcd_client::Txn;
    use tenure_core::driver::{NewMessage, Payload};
    use tenure_core::queue::MessageId;

    use super::super::record::Record;
    use super::super::test_support::queue;
    use super::*;
    use crate::EtcdDriver;
    use crate::test_support::{requests, served};

    /// So many dead letters; two each died at one time.
    async fn bury(driver: &EtcdDriver, count: u64) {
        let turn = Turn::new(&driver.inner, &queue());
        let message = NewMessage::new(Payload::new([]).unwrap());
        let record = Record::of(&message, turn.now, turn.now).encode();
        let puts = |number: u64| {
            let place = Location::Dead(number / 2);
            [
                TxnOp::put(turn.keys.place(place, number), record.as_slice(), None),
                TxnOp::put(turn.keys.pointer(number), place.spelled(), None),
                TxnOp::put(turn.keys.body(number), "", None),
            ]
        };
        for some in (1..=count).collect::<Vec<_>>().chunks(40) {
            driver
                .inner
                .txn(Txn::new().and_then(some.iter().copied().flat_map(puts).collect::<Vec<_>>()))
                .await
                .unwrap();
        }
    }

    fn number(id: &MessageId) -> u64 {
        id.as_number().unwrap()
    }

    #[tokio::test]
    async fn dead_letters_are_listed_over_pages_the_oldest_first() {
        let (_cluster, driver) = served();
        bury(&driver, 230).await;
        for most in [300, 230, 229, 115, 100, 23] {
            let (mut all, mut after, mut pages) = (Vec::new(), None, 0);
            loop {
                let page = driver.inner.dead_list(&queue(), after, most).await.unwrap();
                assert!(page.letters.len() <= most);
                pages += 1;
                all.extend(page.letters.iter().map(|letter| number(&letter.id)));
                after = page.letters.last().map(|letter| letter.place);
                if page.rest == Rest::None {
                    break;
                }
            }
            assert!(all.iter().copied().eq(1..=230), "{most}: {all:?}");
            assert_eq!(pages, 230_usize.div_ceil(most), "{most}");
        }
    }

    /// A redriven letter is handed out with the payload that it has.
    #[tokio::test]
    async fn damaged_ones_among_others_are_brought_back_as_they_are() {
        use tenure_core::driver::{DelayQueueExt as _, Lease, ReceiveRequest};
        let (cluster, driver) = served();
        bury(&driver, 3).await;
        let turn = Turn::new(&driver.inner, &queue());
        let entry = turn.find(&MessageId::assigned(2)).await.unwrap().unwrap();
        let cut = String::from_utf8(entry.record.encode()).unwrap().replace("size=0\n", "");
        let puts = [TxnOp::put(entry.key, cut, None), TxnOp::put(turn.keys.body(2), "four", None)];
        turn.write(puts).await;
        let third = turn.find(&MessageId::assigned(3)).await.unwrap().unwrap();
        turn.write([TxnOp::put(third.key, "?", None)]).await;
        let before = requests(&cluster);
        let which = DeadSelection::Ids(vec![MessageId::assigned(3)]);
        assert_eq!(driver.inner.dead_purge(&queue(), &which).await.unwrap().removed, 1);
        assert_eq!(requests(&cluster), before + 3, "two find it; nobody needs its payload");
        let redriven = driver.inner.dead_redrive(&queue(), &DeadSelection::Oldest(9), Delay::ZERO).await.unwrap();
        assert_eq!(redriven.moved, 2);
        let request = ReceiveRequest::new(queue(), 9, Lease::new(std::time::Duration::from_secs(30)).unwrap());
        let received = driver.receive(&request).await.unwrap().deliveries;
        assert_eq!(received.iter().map(|delivery| delivery.payload.len()).collect::<Vec<_>>(), [0, 4]);
    }

    #[tokio::test]
    async fn as_many_of_the_oldest_are_treated_as_was_said() {
        let (_cluster, driver) = served();
        bury(&driver, 230).await;
        let left = async || {
            let page = driver.inner.dead_list(&queue(), None, 300).await.unwrap();
            (page.letters.len(), page.letters.first().map(|letter| number(&letter.id)))
        };
        let (queue, oldest) = (queue(), DeadSelection::Oldest);
        let redriven = driver.inner.dead_redrive(&queue, &oldest(1), Delay::ZERO).await.unwrap();
        assert_eq!((redriven.moved, redriven.rest, left().await), (1, Rest::More, (229, Some(2))));
        let purged = driver.inner.dead_purge(&queue, &oldest(120)).await.unwrap();
        assert_eq!((purged.removed, purged.rest, left().await), (120, Rest::More, (109, Some(122))));
        let redriven = driver.inner.dead_redrive(&queue, &oldest(109), Delay::ZERO).await.unwrap();
        assert_eq!((redriven.moved, redriven.rest, left().await), (109, Rest::None, (0, None)));
        let waits = MessageId::assigned(200);
        let ids = DeadSelection::Ids(vec![waits.clone(), MessageId::assigned(9_999)]);
        let purged = driver.inner.dead_purge(&queue, &ids).await.unwrap();
        assert_eq!((purged.removed, purged.rest), (0, Rest::None), "it is dead no more");
        assert!(Turn::new(&driver.inner, &queue).find(&waits).await.unwrap().is_some());
        let stats = driver.inner.stats(&queue).await.unwrap();
        assert_eq!((stats.ready, stats.dead), (110, 0));
    }
}
