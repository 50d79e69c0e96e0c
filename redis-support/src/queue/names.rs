//! The names of queues, in one list or, in a cluster, in one for each group.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::try_join_all;
use tenure_core::queue::QueueName;
use tenure_core::{Error, LockName, Result};

use crate::link::Dialer;
use crate::lock::Driver;
use crate::script::{Reply, ScriptCall};

impl<D: Dialer> Driver<D> {
    /// The first `wanted` entries of the list behind `after`, in order; also of queues that hold nothing any more, and what a
    /// foreign hand put there.
    pub(super) async fn listed(&self, after: Option<&[u8]>, wanted: usize) -> Result<Vec<Vec<u8>>> {
        let calls = self.calls().keys.groups().map(|group| self.calls().queue_list(group, after, wanted));
        let lists = try_join_all(calls.map(|call| self.on_names(call, |name| Ok(name.bytes()?.to_vec())))).await?;
        let mut names: Vec<Vec<u8>> = lists.into_iter().flatten().collect();
        names.sort_unstable();
        names.truncate(wanted);
        Ok(names)
    }

    /// Those that hold something, or are paused or limited. The others are taken from their list.
    pub(super) async fn living<'a>(&self, names: &'a [QueueName]) -> Result<BTreeSet<QueueName>> {
        let mut groups: BTreeMap<u16, Vec<&'a QueueName>> = BTreeMap::new();
        for name in names {
            groups.entry(self.calls().keys.group(name)).or_default().push(name);
        }
        let signs = groups.iter().map(|(group, names)| {
            let call = self.calls().queue_living(*group, names);
            self.on_names(call, |sign| sign.int())
        });
        let signs = try_join_all(signs).await?.into_iter().flatten();
        let all = groups.values().flatten().zip(signs);
        Ok(all.filter(|(_, sign)| *sign != 0).map(|(name, _)| (**name).clone()).collect())
    }

    async fn on_names<T>(&self, call: ScriptCall, read: impl Fn(&Reply) -> Result<T> + Send) -> Result<Vec<T>> {
        let nameless = LockName::new("*")?;
        let reported = |error: Error| error.during(D::DRIVER, "list_queues", &nameless);
        let reply = self.run("list_queues", &nameless, call).await?;
        reply.items().and_then(|items| items.iter().map(read).collect()).map_err(reported)
    }
}
