//! A store as a node of a quorum: votes and raises.

use std::sync::Arc;

use async_trait::async_trait;
use tenure_core::driver::{Ballot, CredibleFences, Doctor, Electorate, Hold, QuorumNode, Raised, Vote};
use tenure_core::rules::locks::{Claimant, Given, Heard, Outside};
use tenure_core::{Error, ErrorKind, FencingToken, LockName, OwnerToken, Result};

use crate::driver::MemoryDriver;
use crate::link::{Failure, Operation};
use crate::store::{Common, Store};

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
                if entry.hold().as_ref().is_none_or(|held| held.entry(Claimant::Plain, &token).is_none()) {
                    return Raised::NotOwner;
                }
                if let Err(counter) = entry.voting().raise(name, fence, now) {
                    return Raised::Beyond { counter };
                }
                entry.hold().iter_mut().for_each(|held| held.fence = fence);
                Raised::Acknowledged
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
        let (now, time) = (entry.now, entry.time);
        let voting = entry.voting();
        if let Some(left) = voting.too_junior(ballot.seniority, now) {
            let text = format!("the node restarted empty, and votes again in {left:?}");
            return Err(Error::new(ErrorKind::Unavailable, text));
        }
        let own = *voting.electorate.get_or_insert(ballot.electorate);
        if own != ballot.electorate {
            return Ok(Vote::Elsewhere { electorate: own.to_string() });
        }
        let (record, common) = entry.parts();
        let Ok(answer) = record.rule(time, Node { common, ballot }).acquire(Claimant::Plain, request, store.caps.locks);
        Ok(Vote::Cast(answer?))
    })
}

/// The store as a node of a quorum: the fences are those of votes.
struct Node<'a> {
    common: Common<'a>,
    ballot: &'a Ballot,
}

impl Outside for Node<'_> {
    fn fences(&mut self, _count: u32) -> FencingToken {
        self.common.vote(self.ballot.proposal)
    }

    fn signal(&mut self, waiter: &OwnerToken, given: Option<Given>) -> Heard {
        self.common.signal(waiter, given)
    }

    fn bury(&mut self, token: &OwnerToken) {
        self.common.bury(token);
    }

    fn is_buried(&self, token: &OwnerToken) -> bool {
        self.common.is_buried(token)
    }
}
