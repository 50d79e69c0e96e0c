//! Listing messages, a page at a time.

use etcd_client::{GetOptions, GetResponse, TxnOp};
use tenure_core::Result;
use tenure_core::driver::{ListPlace, Listed, MessageInfo, MessagePage, Payload};
use tenure_core::queue::QueueName;

use super::clock::Micros;
use super::entry::{BATCH, Entry};
use super::keys::Location;
use super::turn::Turn;
use crate::inner::Inner;

impl Inner {
    /// Two requests: up to a hundred messages, and their payloads; one more for each further mebibyte of those.
    pub(super) async fn list_messages(
        &self,
        queue: &QueueName,
        which: Listed,
        from: Option<ListPlace>,
        max: usize,
    ) -> Result<MessagePage> {
        let turn = Turn::new(self, queue);
        let (entries, more) = turn.listed(which, from, max.min(BATCH)).await?;
        let next = entries.last().filter(|_| more).map(|last| ListPlace::new([last.place.at(), last.number, 0]));
        let payloads = turn.payloads(&entries).await?;
        let messages = entries.into_iter().zip(payloads).filter_map(|(entry, payload)| turn.whole(entry, payload));
        Ok(MessagePage::new(messages.collect(), next))
    }
}

impl Turn<'_> {
    /// Up to `limit` messages behind a place, in the order of their times, and whether there are more. One that is held back
    /// has the time at which it was due.
    async fn listed(&self, which: Listed, from: Option<ListPlace>, limit: usize) -> Result<(Vec<Entry>, bool)> {
        let most = i64::try_from(limit).unwrap_or(i64::MAX);
        let range = |place: fn(Micros) -> Location, since, before| {
            let (mut first, end) = self.keys.range(place(0).set(), since, before);
            if let Some([at, number, _]) = from.as_ref().map(ListPlace::parts) {
                first = first.max([self.keys.place(place(at), number), vec![0]].concat());
            }
            TxnOp::get(first.as_slice(), Some(GetOptions::new().with_range(end.max(first.clone())).with_limit(most)))
        };
        let ended = self.leases_ended() + 1;
        let gets = match which {
            Listed::InFlight => vec![range(Location::Leased, ended, None)],
            Listed::Waiting => {
                vec![
                    range(Location::Waiting, 0, None),
                    range(Location::Held, 0, None),
                    range(Location::Leased, 0, Some(ended)),
                ]
            }
        };
        let answers = self.look(gets).await?;
        let found = answers.iter().flat_map(GetResponse::kvs).filter_map(|found| Entry::read(&self.keys, found));
        let mut entries: Vec<_> = found.collect();
        entries.sort_unstable_by_key(|entry| (entry.place.at(), entry.number));
        let more = answers.iter().any(GetResponse::more) || entries.len() > limit;
        entries.truncate(limit);
        Ok((entries, more))
    }

    /// Unless something of it is damaged.
    fn whole(&self, entry: Entry, payload: Option<Payload>) -> Option<MessageInfo> {
        let payload = payload.filter(|payload| !entry.is_damaged() && payload.len() == entry.record.size)?;
        Some(self.info(entry, payload))
    }
}
