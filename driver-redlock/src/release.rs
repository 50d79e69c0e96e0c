//! Releasing locks: by their holder, by an abandoned attempt, by an operator.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tenure_core::driver::{ForceReleased, Hold, LeaseInstant, Released};
use tenure_core::{Error, FencingToken, LockName, Result};

use crate::attempt_state::Undo;
use crate::background::{Chore, undo_all};
use crate::quorum::{Freed, NodeSet};
use crate::shared::Shared;
use crate::slot::Slot;

/// What one node said: whether it had the lock, if that was asked, and that it has it no more.
type Said = Result<Option<Released>>;
type Pending = FuturesUnordered<Pin<Box<dyn Future<Output = (usize, Said)> + Send>>>;

/// Ends the lease at all nodes; done when a majority has answered alike. The others are released in the background.
pub(crate) async fn release(shared: &Arc<Shared>, hold: &Hold) -> Result<Released> {
    shared.ensure_open()?;
    let slot = shared.slots.find(&hold.name, hold.token, shared.n());
    let (attempt_state, before) = {
        let mut state = slot.state();
        // First: from here on no late vote wins anything for the token, and none is sent to take a node back.
        state.attempt_state.end();
        (state.attempt_state, state.tally.ask(shared.n()))
    };
    // A node that released in an earlier try would answer now that it held nothing, so it is not asked again.
    let left = NodeSet::first(shared.n()).without(before.answered());
    let chores = chores(shared, &slot, left, |node| attempt_state.give_back(node));
    let mut pending = send(&chores);
    let (mut heard, mut faults) = (NodeSet::EMPTY, Vec::new());
    let verdict = loop {
        let verdict = slot.state().tally.verdict(before, shared.n());
        if verdict != Freed::Open {
            break verdict;
        }
        let Some((node, said)) = pending.next().await else {
            // No more answers come in this try; those of earlier tries count as well.
            break slot.state().tally.final_verdict(before, shared.n());
        };
        match said {
            Ok(reported) => {
                heard.insert(node);
                slot.state().tally.heard(node, reported);
            }
            Err(error) => faults.push((node, error)),
        }
    };
    let until = slot.undo_until(Duration::ZERO);
    match verdict {
        Freed::Open => return Err(shared.failure("no quorum released the lock", &faults)),
        // The other nodes are free only when they have acknowledged; the caller need not wait for that.
        Freed::Released | Freed::NotHeld => finish(shared, pending, chores, heard, until),
    }
    shared.slots.remove(&slot.token);
    Ok(if verdict == Freed::Released { Released::Released } else { Released::NotHeld })
}

/// Undoes whatever the token asked for at all nodes; done when a majority has acknowledged.
pub(crate) async fn abandon(shared: &Arc<Shared>, hold: &Hold) -> Result<()> {
    shared.ensure_open()?;
    let slot = shared.slots.find(&hold.name, hold.token, shared.n());
    // First: a request of this token that comes later is refused here, before any node is asked.
    shared.slots.bury(hold.token);
    {
        let mut state = slot.state();
        state.attempt_state.end();
        state.queue.listener = None;
    }
    let all = NodeSet::first(shared.n());
    let chores = chores(shared, &slot, all, |_| Undo::Abandon);
    let mut pending = send(&chores);
    let (mut heard, mut faults) = (NodeSet::EMPTY, Vec::new());
    while heard.len() < shared.needed() {
        match pending.next().await {
            Some((node, Ok(_))) => heard.insert(node),
            Some((node, Err(error))) => faults.push((node, error)),
            None => return Err(shared.failure("no quorum acknowledged the end of the attempt", &faults)),
        }
    }
    finish(shared, pending, chores, heard, slot.undo_until(Duration::from_secs(60)));
    shared.slots.remove(&hold.token);
    Ok(())
}

fn chores(shared: &Shared, slot: &Slot, which: NodeSet, how: impl Fn(usize) -> Undo) -> Vec<(usize, Chore)> {
    let chore = |index: usize| {
        (index, Chore { node: Arc::clone(&shared.nodes[index]), hold: slot.hold_at(index), undo: how(index) })
    };
    which.iter().map(chore).collect()
}

fn send(chores: &[(usize, Chore)]) -> Pending {
    let one = |(index, chore): &(usize, Chore)| {
        let (index, chore) = (*index, chore.clone());
        Box::pin(async move { (index, chore.once().await) }) as Pin<Box<dyn Future<Output = (usize, Said)> + Send>>
    };
    chores.iter().map(one).collect()
}

/// Receives the other answers in the background, and retries the nodes that failed.
fn finish(shared: &Shared, mut pending: Pending, chores: Vec<(usize, Chore)>, heard: NodeSet, until: LeaseInstant) {
    let undoer = shared.background.undoer();
    let unheard = chores.into_iter().filter(|(node, _)| !heard.contains(*node));
    let mut left: Vec<_> = unheard.map(|(node, chore)| (node, undoer.undoing(chore, until))).collect();
    if left.is_empty() {
        return;
    }
    shared.background.push(async move {
        while let Some((node, said)) = pending.next().await {
            if said.is_ok()
                && let Some(at) = left.iter().position(|(one, _)| *one == node)
            {
                left.swap_remove(at).1.done();
            }
        }
        undo_all(left.into_iter().map(|(_, undoing)| undoing).collect()).await;
    });
}

/// Takes the lock from its holder, or from the hold with the expected fence alone: done when so many nodes are free of
/// it that no hold has a majority.
///
/// Each node compares for itself. One that voted late or was taken back may keep the hold under a greater fence; it is in
/// the minority, and its lease ends with the holder's next renewal.
pub(crate) async fn force_release(
    shared: &Arc<Shared>,
    name: &LockName,
    expected: Option<FencingToken>,
) -> Result<ForceReleased> {
    shared.ensure_open()?;
    let mut pending: FuturesUnordered<_> = shared
        .nodes
        .iter()
        .enumerate()
        .map(|(index, node)| async move { (index, node.bounded(node.api.force_release(name, expected)).await) })
        .collect();
    let (mut forced, mut faults) = (Forced::default(), Vec::<(usize, Error)>::new());
    // All answers and not the first majority: nodes that are not heard could have been part of another one.
    while let Some((node, answer)) = pending.next().await {
        match answer {
            Ok(answer) => forced.count(answer),
            Err(error) => faults.push((node, error)),
        }
    }
    let verdict = forced.verdict(faults.len(), shared.needed());
    verdict.ok_or_else(|| {
        let error = shared.failure("no quorum was freed", &faults);
        if forced.released > 0 { error.half_way() } else { error }
    })
}

/// What the nodes said to a forced release.
#[derive(Clone, Copy, Debug, Default)]
struct Forced {
    released: usize,
    changed: usize,
    not_held: usize,
}

impl Forced {
    fn count(&mut self, answer: ForceReleased) {
        match answer {
            ForceReleased::Released => self.released += 1,
            ForceReleased::Changed => self.changed += 1,
            ForceReleased::NotHeld => self.not_held += 1,
        }
    }

    /// `None` if the verdict is not certain. Nodes that did not answer may have been part of any majority.
    fn verdict(self, unheard: usize, needed: usize) -> Option<ForceReleased> {
        let may_be_most = |nodes: usize| nodes + unheard >= needed;
        if self.released + self.changed + self.not_held < needed {
            return None;
        }
        match (may_be_most(self.released), may_be_most(self.changed)) {
            (true, true) => None,
            (true, false) => Some(ForceReleased::Released),
            (false, true) => Some(ForceReleased::Changed),
            (false, false) => Some(ForceReleased::NotHeld),
        }
    }
}

#[cfg(test)]
mod tests;
