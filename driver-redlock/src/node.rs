//! One node, with a time limit for its answers.

use std::fmt;
use std::future::Future;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tenure_core::driver::{
    Ballot, ErrorExt as _, Hold, LeaseInstant, QuorumNode, Raised, Released, Renewed, Ttl, Vote, Watch,
};
use tenure_core::{Error, ErrorKind, FencingToken, LockName, OwnerToken, Result};

use crate::telemetry;

/// For how long a node that failed is not chosen to queue at.
const OUT_OF_FAVOUR: Duration = Duration::from_secs(1);

pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) api: Arc<dyn QuorumNode>,
    pub(crate) timeout: Duration,
    /// For how long it must have kept its memory before it may vote; zero if restarts do not empty it.
    pub(crate) seniority: Duration,
    failed_until: Mutex<Option<LeaseInstant>>,
    /// Whether it said last that it votes in another electorate.
    elsewhere: AtomicBool,
    /// Whether it refused its last vote for a reason that a person has to remove.
    unfit: AtomicBool,
}

impl Node {
    pub(crate) fn new(name: String, api: Arc<dyn QuorumNode>, timeout: Duration, seniority: Duration) -> Self {
        Self {
            name,
            api,
            timeout,
            seniority,
            failed_until: Mutex::new(None),
            elsewhere: AtomicBool::new(false),
            unfit: AtomicBool::new(false),
        }
    }

    pub(crate) async fn vote(&self, ballot: &Ballot) -> Result<Vote> {
        let vote = self.bounded(self.api.vote(ballot)).await;
        match &vote {
            Ok(vote) => {
                self.elsewhere.store(matches!(vote, Vote::Elsewhere { .. }), Ordering::Release);
                self.unfit.store(false, Ordering::Release);
            }
            Err(error) => self.tell_if_unfit(error),
        }
        vote
    }

    /// Reports once that a node has to be repaired; again only after it has voted.
    fn tell_if_unfit(&self, error: &Error) {
        let unfit = matches!(error.kind(), ErrorKind::Misconfigured | ErrorKind::Denied | ErrorKind::Damaged);
        if unfit && !self.unfit.swap(true, Ordering::AcqRel) {
            telemetry::node_unfit(&self.name, error);
        }
    }

    pub(crate) async fn raise(&self, hold: &Hold, fence: FencingToken) -> Result<Raised> {
        self.bounded(self.api.raise(hold, fence)).await
    }

    pub(crate) async fn renew(&self, ttl: Ttl, holds: &[Hold]) -> Vec<Result<Renewed>> {
        let answer = self.bounded(async { Ok(self.api.renew(ttl, holds).await) }).await;
        match answer {
            Ok(answers) => {
                // Each lease has its own error here, so `bounded` has seen none: the first one shows that the node
                // failed.
                if answers.first().is_some_and(Result::is_err) {
                    self.note(false);
                }
                answers
            }
            Err(error) => holds.iter().map(|_| Err(error.again())).collect(),
        }
    }

    pub(crate) async fn release(&self, hold: &Hold) -> Result<Released> {
        self.bounded(self.api.release(hold)).await
    }

    pub(crate) async fn abandon(&self, hold: &Hold) -> Result<()> {
        self.bounded(self.api.abandon(hold)).await
    }

    pub(crate) async fn watch(&self, name: &LockName, token: &OwnerToken) -> Result<Watch> {
        self.bounded(self.api.watch(name, token)).await
    }

    /// Waits for an answer no longer than the node's timeout, and notes whether the node works.
    pub(crate) async fn bounded<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        let answer = match tokio::time::timeout(self.timeout, call).await {
            Ok(answer) => answer,
            Err(_) => Err(Error::new(ErrorKind::Indeterminate, format!("no answer within {:?}", self.timeout))),
        };
        let failed = |error: &Error| matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate);
        self.note(!answer.as_ref().is_err_and(failed));
        answer
    }

    fn note(&self, works: bool) {
        let until = if works { None } else { Some(LeaseInstant::now().after(OUT_OF_FAVOUR)) };
        *self.failed_until.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }

    /// Whether it failed a short while ago.
    pub(crate) fn is_out_of_favour(&self) -> bool {
        let until = *self.failed_until.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| until > LeaseInstant::now())
    }

    /// Whether it said last that it votes in another electorate.
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.elsewhere.load(Ordering::Acquire)
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("name", &self.name).field("driver", &self.api.driver()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use tenure_memory::MemoryDriver;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_node_that_failed_is_out_of_favour_for_a_second_or_until_it_works() {
        let memory = MemoryDriver::new();
        let api = Arc::new(memory.another_client());
        let faults = api.faults();
        let node = Node::new("n".into(), api, Duration::from_millis(100), Duration::ZERO);
        let hold = Hold::new(LockName::new("a").unwrap(), OwnerToken::random());
        let ttl = Ttl::new(Duration::from_secs(10)).unwrap();
        node.release(&hold).await.unwrap();
        assert!(matches!(node.renew(ttl, std::slice::from_ref(&hold)).await[..], [Ok(Renewed::Lost)]));
        assert!(!node.is_out_of_favour());
        faults.outage();
        assert_eq!(node.release(&hold).await.unwrap_err().kind(), ErrorKind::Unavailable);
        assert!(node.is_out_of_favour());
        tokio::time::advance(OUT_OF_FAVOUR).await;
        assert!(!node.is_out_of_favour());
        assert!(node.renew(ttl, std::slice::from_ref(&hold)).await[0].is_err() && node.is_out_of_favour());
        faults.heal();
        node.release(&hold).await.unwrap();
        assert!(!node.is_out_of_favour());
        faults.silence();
        assert_eq!(node.abandon(&hold).await.unwrap_err().kind(), ErrorKind::Indeterminate);
        assert!(node.is_out_of_favour());
    }
}
