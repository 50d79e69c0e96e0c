//! A store as a node of a quorum: votes and raises.

use std::sync::Arc;

use async_trait::async_trait;
use tenure_core::driver::{Ballot, CredibleFences, Doctor, Electorate, Hold, QuorumNode, Raised, Vote};
use tenure_core::{Error, ErrorKind, FencingToken, LockName, OwnerToken, Result};
use tokio::time::Instant;

use crate::ballots::Voting;
use crate::decide::{Given, Heard, Outside};
use crate::driver::MemoryDriver;
use crate::hold::Claimant;
use crate::link::{Failure, Operation};
use crate::locks::{abandoned, refused};
use crate::store::{Ears, Store};

#[async_trait]
impl QuorumNode for MemoryDriver {
    async fn vote(&self, ballot: &Ballot) -> Result<Vote> {
        let asked = ballot.clone();
        self.call(Operation::Acquire, &ballot.request.name, move |store, _| vote(store, &asked)).await
    }

    async fn raise(&self, hold: &Hold, fence: FencingToken) -> Result<Raised> {
        let token = hold.token;
        if !CredibleFences::now().contain(fence) {
            let text =
                format!("the fence {fence} is more than a day ahead of the node's clock; nothing is raised to it");
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        let decide = move |store: &Store, name: &LockName| {
            Ok(store.with_entry(name, |entry| {
                let now = entry.now;
                let (state, voting, _) = entry.with_voting();
                state.raise(now, &token, fence, || voting.raise(name, fence, now))
            }))
        };
        self.call(Operation::Raise, &hold.name, decide).await
    }

    async fn enroll(&self, electorate: &Electorate) -> Result<()> {
        let electorate = *electorate;
        let apply = move |store: &Store| store.with_voting(|voting, _| voting.electorate = Some(electorate));
        self.carry(Operation::Enroll, apply).await.map_err(Failure::error)
    }

    fn identity(&self) -> Option<String> {
        Some(self.store_identity())
    }

    fn doctor(&self) -> Option<Arc<dyn Doctor>> {
        None // there is no server
    }
}

/// As the acquisition of a plain lock, with a fence of the name's own counter, if the store votes in this electorate.
fn vote(store: &Store, ballot: &Ballot) -> Result<Vote> {
    let request = &ballot.request;
    store.with_entry(&request.name, |entry| {
        let (now, is_buried) = (entry.now, entry.is_buried(&request.token));
        let (state, voting, ears) = entry.with_voting();
        if let Some(left) = voting.too_junior(ballot.seniority, now) {
            let text = format!("the node restarted empty, and votes again in {left:?}");
            return Err(Error::new(ErrorKind::Unavailable, text));
        }
        let own = *voting.electorate.get_or_insert(ballot.electorate);
        if own != ballot.electorate {
            return Ok(Vote::Elsewhere { electorate: own.to_string() });
        }
        if is_buried {
            return Err(abandoned());
        }
        let mut outside = Node { voting, ballot, now, ears };
        let answer = state.acquire(now, Claimant::Plain, request, store.caps, &mut outside);
        answer.map(Vote::Cast).map_err(|refusal| refused(refusal, store.caps))
    })
}

/// The fences of a vote, and those who listen to the node.
struct Node<'a> {
    voting: &'a mut Voting,
    ballot: &'a Ballot,
    now: Instant,
    ears: Ears<'a>,
}

impl Outside for Node<'_> {
    fn fences(&mut self, _count: u32) -> FencingToken {
        self.voting.next(&self.ballot.request.name, self.ballot.proposal, self.now)
    }

    fn tell(&mut self, waiter: &OwnerToken, given: Option<Given>) -> Heard {
        self.ears.tell(waiter, given)
    }
}
