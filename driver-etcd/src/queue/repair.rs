//! Repairs during a receive: damaged messages, and remains of crashes and of foreign writes.

use etcd_client::{Compare, CompareOp, GetResponse, KeyValue, Txn, TxnOp};
use tenure_core::Result;
use tenure_core::driver::{DeadCause, Delay, Payload};

use super::clock::Micros;
use super::entry::{BATCH, Entry, payload};
use super::keyed::Look;
use super::receive::{Due, Gathered};
use super::turn::Turn;

impl Turn<'_> {
    /// Looks after held-back messages when there is nothing else to do, and now and then; returns whether it released
    /// some of them.
    pub(super) async fn found_stranded(&self, due: &Due) -> Result<bool> {
        if !due.held {
            self.inner.held_looks.forget(&self.keys);
            return Ok(false);
        }
        if self.inner.held_looks.is_due(&self.keys, self.now) {
            return self.let_stranded_go(Look::Thorough).await;
        }
        Ok(due.entries.is_empty() && !due.more && self.let_stranded_go(Look::Quick).await?)
    }

    /// Leaves out, and removes, those that are damaged and have no payload: no message is left of them.
    pub(super) async fn with_payloads<'a>(
        &self,
        chosen: Vec<&'a Entry>,
        gathered: &mut Gathered,
    ) -> Result<Vec<&'a Entry>> {
        let (damaged, mut whole): (Vec<_>, Vec<_>) = chosen.into_iter().partition(|entry| entry.is_damaged());
        if damaged.is_empty() {
            return Ok(whole);
        }
        let looks = damaged.iter().map(|entry| TxnOp::get(self.keys.body(entry.number), None)).collect();
        for (entry, answer) in damaged.into_iter().zip(self.look(looks).await?) {
            match payload(&answer) {
                Some(_) => whole.push(entry),
                None => self.put_away(entry, None, gathered).await?,
            }
        }
        Ok(whole)
    }

    /// Buries a message whose payload is not the one that was pushed, removes one that has none.
    pub(super) async fn put_away(
        &self,
        entry: &Entry,
        payload: Option<Payload>,
        gathered: &mut Gathered,
    ) -> Result<()> {
        let operations = match payload {
            None => {
                gathered.healed.orphans += 1;
                self.remove(entry, Delay::ZERO)
            }
            Some(payload) => {
                let mut record = entry.record.clone();
                record.is_damaged(&format!("its payload has {} bytes, not {}", payload.len(), record.size));
                let (burial, operations) =
                    self.bury(entry, record, DeadCause::Damaged, self.room_for_dead().await? > 0);
                gathered.buried(burial);
                operations
            }
        };
        self.apply_one(entry.step(operations), Some(self.signal_settled(&[], 1))).await?;
        self.let_next_go([entry]).await;
        Ok(())
    }

    /// Forgets ids whose window has passed.
    pub(super) async fn forget(&self, found: &GetResponse) -> Result<()> {
        let found = || found.kvs().iter().map(KeyValue::key);
        self.remove_strays(found().filter(|found| self.keys.parse_forgotten(found).is_none())).await?;
        let forgotten = found().filter_map(|found| self.keys.parse_forgotten(found));
        let step = |(until, id): (Micros, Vec<u8>)| {
            let name = self.keys.named(&id);
            // It may have been used anew since.
            let same = Compare::value(name.as_slice(), CompareOp::Equal, format!("until={until}"));
            let gone = TxnOp::delete(self.keys.forgotten(until, &id), None);
            let delete = Txn::new().when([same]).and_then([TxnOp::delete(name, None)]);
            [TxnOp::txn(delete), gone]
        };
        let steps: Vec<TxnOp> = forgotten.flat_map(step).collect();
        if !steps.is_empty() {
            self.inner.txn(Txn::new().and_then(steps)).await?;
        }
        Ok(())
    }

    /// Removes keys of the queue that no version of this crate wrote.
    pub(super) async fn remove_strays<'a>(&self, strays: impl Iterator<Item = &'a [u8]>) -> Result<()> {
        let deletes: Vec<_> = strays.take(BATCH).map(|key| TxnOp::delete(key, None)).collect();
        if deletes.is_empty() {
            return Ok(());
        }
        self.inner.txn(Txn::new().and_then(deletes)).await.map(drop)
    }
}
