//! Dead letters.

use std::collections::HashSet;

use etcd_client::{GetOptions, GetResponse, TxnOp};
use tenure_core::Result;
use tenure_core::driver::{DeadCause, DeadLetter, DeadPage, DeadPlace, DeadSelection, Delay, Purged, Redriven, Rest};
use tenure_core::queue::QueueName;

use super::apart::by_transactions;
use super::clock::{after, span};
use super::entry::{BATCH, Entry, MOST_STARTS};
use super::keys::{Place, Set};
use super::turn::Turn;
use crate::inner::Inner;

/// What is done with dead letters.
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
            from = [self.keys.place(Place::Dead(stamp), number), vec![0]].concat();
        }
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let page = TxnOp::get(from, Some(GetOptions::new().with_range(to).with_limit(limit)));
        let answers = self.look(vec![page]).await?;
        let more = answers.iter().any(GetResponse::more);
        let found = answers.iter().flat_map(GetResponse::kvs);
        Ok((found.filter_map(|found| Entry::read(&self.keys, found)).collect(), more))
    }

    /// Tells with how many it was done.
    async fn treat(&self, mut entries: Vec<Entry>, deed: Deed) -> Result<u64> {
        if matches!(deed, Deed::Redrive(_)) && entries.iter().any(Entry::is_damaged) {
            // Whoever brings it back takes its payload as it is.
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
