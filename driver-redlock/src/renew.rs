//! Renewing leases: a majority of all nodes must extend, without a gap, the leases that they granted.
//!
//! If a node has lost the lock (it restarted empty, or never granted), the driver asks it to grant the lock again once
//! the others have renewed it. The proposal is the hold's fence (a clock's, if another process won it). Such a node
//! counts from the next renewal on. The proof of the fences allows it: a repeated vote is the same as a late one, and
//! can only move the node's counter up. Exclusion allows it because the lease was continuous at a majority all the
//! while.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tenure_core::driver::{AcquireRequest, Acquisition, Ballot, Hold, Renewed, Ttl, Vote};
use tenure_core::{Error, ErrorKind, Result};

use crate::attempt_state::Healed;
use crate::quorum::{NodeSet, RenewTally, Verdict};
use crate::shared::Shared;
use crate::slot::Slot;

type Answers = (usize, Vec<Result<Renewed>>);
type Pending = FuturesUnordered<Pin<Box<dyn Future<Output = Answers> + Send>>>;

/// One lease of the batch.
struct Lease {
    slot: Arc<Slot>,
    ttl: Ttl,
    tally: RenewTally<Duration>,
    faults: Vec<(usize, Error)>,
}

/// Renews leases at all nodes at once; an answer for each, in order.
pub(crate) async fn renew(shared: &Arc<Shared>, ttl: Ttl, holds: &[Hold]) -> Vec<Result<Renewed>> {
    let find = |hold: &Hold| shared.slots.find(&hold.name, hold.token, shared.n());
    let wanted: Vec<Arc<Slot>> = holds.iter().map(find).collect();
    if let Err(error) = shared.ensure_open() {
        return wanted.iter().map(|_| Err(error.again())).collect();
    }
    let tally = RenewTally::new(shared.n());
    let lease = |slot: Arc<Slot>| Lease { slot, ttl, tally: tally.clone(), faults: Vec::new() };
    let mut leases: Vec<Lease> = wanted.into_iter().map(lease).collect();
    let mut pending = send(shared, ttl, &leases);
    // Until each lease has its majority, and no longer: one slow node must not delay the renewals of the others.
    while leases.iter().any(|lease| lease.tally.verdict() == Verdict::Wait) {
        let Some((node, answers)) = pending.next().await else { break };
        take_in(&mut leases, node, answers);
    }
    let answers = leases.iter().map(|lease| conclude(shared, lease)).collect();
    if !pending.is_empty() {
        shared.background.push(settle_late(Arc::downgrade(shared), pending, leases));
    }
    answers
}

fn send(shared: &Shared, ttl: Ttl, leases: &[Lease]) -> Pending {
    let to_node = |index: usize| {
        let node = Arc::clone(&shared.nodes[index]);
        let holds: Vec<Hold> = leases.iter().map(|lease| lease.slot.hold_at(index)).collect();
        Box::pin(async move { (index, node.renew(ttl, &holds).await) }) as Pin<Box<dyn Future<Output = Answers> + Send>>
    };
    (0..shared.n()).map(to_node).collect()
}

fn take_in(leases: &mut [Lease], node: usize, answers: Vec<Result<Renewed>>) {
    let mut answers = answers.into_iter();
    for lease in leases {
        let missing = || Err(Error::new(ErrorKind::Protocol, "fewer answers than renewals"));
        match answers.next().unwrap_or_else(missing) {
            Ok(Renewed::Extended { ttl }) => {
                lease.slot.state().attempt_state.settle_granted(node);
                lease.tally.kept(ttl);
            }
            Ok(Renewed::Lost) => {
                lease.slot.state().attempt_state.settle_gone(node);
                lease.tally.lost(node);
            }
            Err(error) => {
                lease.faults.push((node, error));
                lease.tally.failed();
            }
        }
    }
}

fn conclude(shared: &Arc<Shared>, lease: &Lease) -> Result<Renewed> {
    match lease.tally.verdict() {
        Verdict::Kept(ttl) => {
            let mut state = lease.slot.state();
            state.ttl = state.ttl.max(Some(lease.ttl));
            state.keep();
            let is_adopted = state.attempt_state.adopt();
            drop(state);
            // After the slot's lock is free: `Slots` locks slots while it is locked itself.
            if is_adopted {
                shared.slots.adopt(&lease.slot);
            }
            heal_gone(shared, lease);
            Ok(Renewed::Extended { ttl })
        }
        Verdict::Lost => {
            // What a minority still has is of no use to us, and in the way of others.
            {
                let mut state = lease.slot.state();
                state.attempt_state.end();
                state.attempt_state.drop_hold();
            }
            shared.slots.remove(&lease.slot.token);
            let all = NodeSet::first(shared.n());
            shared.undo(lease.slot.spoil(all, &shared.nodes), lease.slot.undo_until(Duration::ZERO));
            Ok(Renewed::Lost)
        }
        Verdict::Unknown | Verdict::Wait => Err(shared.failure("no quorum renewed the lease", &lease.faults)),
    }
}

/// Takes in answers that come after the majority's.
async fn settle_late(shared: std::sync::Weak<Shared>, mut pending: Pending, mut leases: Vec<Lease>) {
    while let Some((node, answers)) = pending.next().await {
        let Some(shared) = shared.upgrade() else { return };
        take_in(&mut leases, node, answers);
        leases.iter().for_each(|lease| heal_gone(&shared, lease));
    }
}

fn heal_gone(shared: &Arc<Shared>, lease: &Lease) {
    lease.tally.to_heal().iter().for_each(|node| heal(shared, &lease.slot, node, lease.ttl));
}

/// Asks a node that lost the lock to grant it again, in the background.
fn heal(shared: &Arc<Shared>, slot: &Arc<Slot>, index: usize, ttl: Ttl) {
    let ballot = {
        let mut state = slot.state();
        // One vote at a time for each node. A second one would leave open which of them an answer belongs to.
        if !state.attempt_state.begin_healing(index) {
            return;
        }
        let proposal = state.attempt_state.fence().or_else(|| shared.proposal());
        let (name, token, label) = (slot.name.clone(), state.tokens[index], state.label.clone());
        let request = AcquireRequest::new(name, token, ttl).with_label(label);
        // The vote is for who holds the lock already, so it matters not what the node may have forgotten.
        Ballot::new(request, shared.electorate).with_proposal(proposal)
    };
    let (node, slot) = (Arc::clone(&shared.nodes[index]), Arc::clone(slot));
    let mut healing = Healing { slot, node: index, healed: Healed::NotSent };
    let work = async move {
        if !healing.send(&ballot) {
            return;
        }
        healing.settle(match node.vote(&ballot).await {
            Ok(Vote::Cast(Acquisition::Granted(_))) => Healed::Granted,
            Ok(_) => Healed::Refused,
            Err(error) if error.was_not_applied() => Healed::NotApplied,
            Err(_) => Healed::Unknown,
        });
    };
    shared.background.push(work);
}

/// A node that is being taken back. Dropped, also with its runtime, it is settled with the state known by then.
struct Healing {
    slot: Arc<Slot>,
    node: usize,
    healed: Healed,
}

impl Healing {
    /// Whether the vote is sent still.
    fn send(&mut self, ballot: &Ballot) -> bool {
        let mut state = self.slot.state();
        // Looked at again when the work begins: a release, or an undoing that changed the token, may have come first.
        let sends = state.tokens[self.node] == ballot.request.token && state.attempt_state.send_healing(self.node);
        if sends {
            // Until an answer is heard: dropped from here on, the vote may still be applied.
            self.healed = Healed::Unknown;
        }
        sends
    }

    fn settle(mut self, healed: Healed) {
        self.healed = healed;
    }
}

impl Drop for Healing {
    fn drop(&mut self) {
        self.slot.state().attempt_state.settle_healing(self.node, self.healed);
    }
}

#[cfg(test)]
mod tests;
