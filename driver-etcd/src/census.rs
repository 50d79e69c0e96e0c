//! The list of held locks: a range of keys, which includes the keys of places.

use async_trait::async_trait;
use etcd_client::{GetOptions, Txn, TxnOp};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use tenure_core::driver::{Census, CensusCapabilities, CensusOrder, CensusPlace, HeldLock, HeldPage};
use tenure_core::{Error, LockName, Result};

use crate::answer;
use crate::driver::EtcdDriver;
use crate::error::of_a_read;
use crate::inner::Inner;
use crate::keys::{Parsed, decode};
use crate::link::{Stubs, odd, reads};

/// The most locks of a page: each costs a question about its lease, and etcd takes 128 operations in a transaction.
const MOST: usize = 100;
/// How many of these questions are on their way at once.
const AT_ONCE: usize = 32;

/// A page is a range of as many keys, one transaction that counts who waits, and a request about the lease of each lock.
/// Names come in the order of their keys, which is not that of their bytes.
#[async_trait]
impl Census for EtcdDriver {
    fn capabilities(&self) -> CensusCapabilities {
        CensusCapabilities::new(CensusOrder::None).with_max_page(MOST)
    }

    async fn held(&self, prefix: &[u8], from: Option<&CensusPlace>, max: usize) -> Result<HeldPage> {
        self.inner.held(prefix, from, max.min(MOST)).await.map_err(of_a_read)
    }
}

impl Inner {
    async fn held(&self, prefix: &[u8], from: Option<&CensusPlace>, max: usize) -> Result<HeldPage> {
        let (first, end) = self.keyspace.under(prefix);
        let first = from.map_or(first, |place| place.as_bytes().to_vec());
        let limit = i64::try_from(max).unwrap_or(i64::MAX);
        let range = |stubs: Stubs| {
            let options = GetOptions::new().with_range(end.clone()).with_limit(limit);
            let first = first.clone();
            async move { stubs.kv().get(first, Some(options)).await }
        };
        let found = self.link.call(range).await?;
        // By the keys and not by the locks: a page of places alone has a next one too.
        let next = found.kvs().last().filter(|_| found.more()).map(|last| {
            // The key behind this one.
            CensusPlace::new([last.key(), b"\0"].concat())
        });
        let named = |key: &[u8]| match self.keyspace.parse(key) {
            Parsed::Hold(name) => decode(name).and_then(|name| LockName::new(name).ok()),
            _ => None,
        };
        let holds: Vec<_> =
            found.kvs().iter().filter_map(|key| Some((named(key.key())?, answer::hold_of(key)))).collect();
        if holds.is_empty() {
            return Ok(HeldPage::new(Vec::new(), next));
        }
        let count = |(name, _): &(LockName, _)| {
            let keys = self.keys(name);
            TxnOp::get(keys.queue(), Some(GetOptions::new().with_range(keys.queue_end()).with_count_only()))
        };
        let counted = self.txn(Txn::new().and_then(holds.iter().map(count).collect::<Vec<_>>())).await?;
        let counts: Vec<i64> = reads(&counted).iter().map(etcd_client::GetResponse::count).collect();
        if counts.len() != holds.len() {
            return Err(odd("an answer of an unexpected form"));
        }
        let looked = holds.into_iter().zip(counts).map(|((name, hold), waiters)| async move {
            let waiters = u32::try_from(waiters).unwrap_or(u32::MAX);
            let holder = self.holder(hold).await?;
            Ok::<_, Error>(holder.map(|holder| HeldLock::new(name, holder).with_waiters(Some(waiters))))
        });
        let locks: Vec<Option<HeldLock>> = stream::iter(looked).buffered(AT_ONCE).try_collect().await?;
        Ok(HeldPage::new(locks.into_iter().flatten().collect(), next))
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::OwnerToken;
    use tenure_core::driver::{AcquireRequest, DistributedLock as _, Ttl};

    use super::*;
    use crate::test_support::served;

    #[tokio::test]
    async fn a_page_is_of_as_many_keys_as_are_asked_for_and_the_next_one_begins_behind_it() {
        let (_cluster, driver) = served();
        for name in ["a", "b", "c"] {
            let request = AcquireRequest::new(LockName::new(name).unwrap(), OwnerToken::random(), Ttl::DEFAULT);
            driver.acquire(&request).await.unwrap();
        }
        let mut names = Vec::new();
        let (mut from, mut pages) = (None, Vec::new());
        loop {
            let page = Census::held(&driver, b"", from.as_ref(), 2).await.unwrap();
            pages.push(page.locks.len());
            names.extend(page.locks.iter().map(|lock| lock.name.to_string()));
            match page.next {
                Some(next) => from = Some(next),
                None => break,
            }
        }
        assert_eq!(names, ["a", "b", "c"]);
        assert_eq!(pages, [1, 2], "the first of the four keys is no lock's");
    }
}
