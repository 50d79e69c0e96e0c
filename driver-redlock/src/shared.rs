//! The state that all clones of one driver share.

use std::fmt;
use std::hash::Hasher as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fnv::FnvHasher;
use tenure_core::driver::{Electorate, LeaseInstant, ProcessOwners};
use tenure_core::{Error, ErrorKind, FenceFloor, FencingToken, LockName, Result};

use crate::background::{Background, Chore};
use crate::elections::Counters;
use crate::node::Node;
use crate::quorum::majority;
use crate::slots::Slots;

/// Where fence proposals come from.
pub(crate) type Proposals = Arc<dyn Fn() -> Option<FencingToken> + Send + Sync>;

pub(crate) struct Shared {
    /// In the order of their names, so that all clients number them alike.
    pub(crate) nodes: Vec<Arc<Node>>,
    pub(crate) electorate: Electorate,
    pub(crate) proposals: Proposals,
    /// What fences have to be greater than.
    pub(crate) floor: FenceFloor,
    pub(crate) max_ttl: Duration,
    pub(crate) slots: Slots,
    /// Shared by drivers of one process over the same nodes.
    pub(crate) owners: Arc<ProcessOwners>,
    pub(crate) background: Background,
    pub(crate) elections: Counters,
    pub(crate) closed: AtomicBool,
}

impl Shared {
    pub(crate) fn n(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn needed(&self) -> usize {
        majority(self.n())
    }

    /// Every call begins with it. It also resumes the work that was left when its runtime ended.
    pub(crate) fn ensure_open(&self) -> Result<()> {
        self.background.resume();
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::Closed, "the driver was closed"));
        }
        Ok(())
    }

    /// What nodes are asked to begin a fence with. Without a floor that may be nothing.
    pub(crate) fn proposal(&self) -> Option<FencingToken> {
        let proposal = (self.proposals)();
        let first = (self.floor > FenceFloor::NONE).then(|| self.floor.first());
        proposal.max(first)
    }

    /// The nodes in the order in which waiters of this name prefer them; the same for all clients.
    pub(crate) fn order(&self, name: &LockName) -> impl Iterator<Item = usize> + Clone + use<> {
        let mut hash = FnvHasher::default();
        hash.write(name.as_bytes());
        let (n, first) = (self.n(), usize::try_from(hash.finish() >> 33).unwrap_or_default());
        (0..n).map(move |i| (first + i) % n)
    }

    /// Undoes in the background.
    pub(crate) fn undo(&self, chores: Vec<Chore>, until: LeaseInstant) {
        if !chores.is_empty() {
            self.background.push(self.background.undoer().undo(chores, until));
        }
    }

    /// One error out of what went wrong at the nodes. Its kind is the least certain of theirs; each is named.
    pub(crate) fn failure(&self, what: &str, faults: &[(usize, Error)]) -> Error {
        let reported = |(node, error): &(usize, Error)| {
            format!("{}: {}: {}", self.nodes[*node].name, error.kind(), error.reason())
        };
        let all: Vec<String> = faults.iter().map(reported).collect();
        let kind = faults.iter().map(|(_, error)| error.kind()).max_by_key(|kind| uncertainty(*kind));
        let text = format!("{what} ({} of {} nodes are needed): {}", self.needed(), self.n(), all.join("; "));
        let whole = Error::new(kind.unwrap_or(ErrorKind::Unavailable), text);
        if faults.iter().all(|(_, error)| error.was_not_applied()) { whole } else { whole.half_way() }
    }
}

/// Which of several faults names the whole: first what leaves the outcome open, then what a person has to mend.
fn uncertainty(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::Indeterminate | ErrorKind::Protocol | ErrorKind::TimedOut | ErrorKind::Lost => 5,
        ErrorKind::NotHeld => 4,
        ErrorKind::Misconfigured | ErrorKind::Denied | ErrorKind::Damaged => 3,
        ErrorKind::LimitReached | ErrorKind::InvalidArgument | ErrorKind::Unsupported => 2,
        ErrorKind::Unavailable => 1,
        _ => 0,
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redlock")
            .field("nodes", &self.nodes)
            .field("electorate", &self.electorate)
            .field("acquisitions", &self.slots.len())
            .field("background", &self.background)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tenure_memory::MemoryDriver;

    use super::*;
    use crate::driver::Redlock;

    fn shared() -> Arc<Shared> {
        let node = |_| Arc::new(MemoryDriver::new()) as Arc<dyn tenure_core::driver::QuorumNode>;
        let builder = Redlock::builder().nodes((0..3).map(|number| (format!("n{number}"), node(number))));
        Arc::clone(&builder.proposals(|| None).build().unwrap().0)
    }

    #[test]
    fn an_error_says_that_nothing_was_done_only_if_every_node_says_so() {
        let (shared, fault) = (shared(), |kind| Error::new(kind, "said"));
        let applied = |faults: Vec<Error>| {
            let faults: Vec<_> = faults.into_iter().enumerate().collect();
            let whole = shared.failure("no quorum", &faults);
            (whole.kind(), !whole.was_not_applied())
        };
        let (denied, away) = (ErrorKind::Denied, ErrorKind::Unavailable);
        assert_eq!(applied(vec![fault(denied), fault(away)]), (denied, false));
        assert_eq!(applied(vec![fault(denied), fault(away).half_way()]), (denied, true));
        assert_eq!(applied(vec![fault(away).half_way(), fault(away).half_way()]), (away, true));
        assert_eq!(applied(vec![]), (away, false));
        let (open, full) = (ErrorKind::Indeterminate, ErrorKind::LimitReached);
        assert_eq!(applied(vec![fault(full), fault(away)]).0, full);
        assert_eq!(applied(vec![fault(full), fault(denied), fault(ErrorKind::NotHeld)]).0, ErrorKind::NotHeld);
        assert_eq!(applied(vec![fault(denied), fault(open), fault(ErrorKind::NotHeld)]), (open, true));
        assert_eq!(applied(vec![fault(away), fault(ErrorKind::Closed)]).0, away, "it may be there the next time");
    }

    #[test]
    fn all_clients_prefer_the_nodes_in_the_same_order() {
        let shared = shared();
        let order = |name: &str| shared.order(&LockName::new(name).unwrap()).collect::<Vec<_>>();
        // As in earlier versions, which may be running beside this one.
        assert_eq!((order("a"), order("c"), order("g")), (vec![0, 1, 2], vec![1, 2, 0], vec![2, 0, 1]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_driver_that_was_closed_asks_nobody_and_an_open_one_continues_with_what_was_left() {
        let shared = shared();
        std::thread::scope(|scope| scope.spawn(|| shared.background.push(async {})).join().unwrap());
        tokio::task::yield_now().await;
        assert_eq!(shared.background.len(), 1, "there was no runtime");
        shared.ensure_open().unwrap();
        tokio::task::yield_now().await;
        assert_eq!(shared.background.len(), 0);
        shared.closed.store(true, Ordering::Release);
        assert_eq!(shared.ensure_open().unwrap_err().kind(), ErrorKind::Closed);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_to_do_is_no_work_and_nothing_to_propose_no_proposal() {
        let shared = shared();
        assert_eq!(shared.proposal(), None);
        shared.undo(Vec::new(), LeaseInstant::now().after(Duration::from_secs(1)));
        assert_eq!(shared.background.len(), 0);
        shared.background.push(std::future::pending());
        assert_eq!(shared.background.len(), 1);
        shared.background.drain(Duration::from_secs(1)).await;
        shared.background.push(std::future::pending());
        assert_eq!(shared.background.len(), 0, "it was closed");
    }
}
