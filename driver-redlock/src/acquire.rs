//! Acquiring a lock: which nodes are asked, in which order, and what a lost election means for a waiter.
//!
//! A waiter queues at one node at a time, which all clients choose by the same rule, and listens there. While it waits,
//! it asks only that node; it asks the others after that node has granted. So waiters do not split the vote among them,
//! and are served in the order of that queue as long as all of them can reach it. If that node is not in the holder's
//! majority, waiters move to a node that is.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::Result;
use tenure_core::driver::{AcquireRequest, Acquisition, Ballot, Begun, Busy, Grant, Queueing, Vote, Waiting, Watch};
use tokio::time::sleep;

use crate::quorum::{Decision, Defeat, NodeSet, at_majority};
use crate::round::{Outcome, Round};
use crate::shared::Shared;
use crate::slot::{Listener, Slot};

/// How often the first in the queue asks again who refused it: the release of the one before may not have come there.
const SECOND_TRIES: u32 = 2;
/// The longest pause before it does.
const SECOND_TRY_WITHIN: Duration = Duration::from_millis(20);

/// For how long after an attempt without a place in a queue its token may ask again.
const ASKED_AGAIN_WITHIN: Duration = Duration::from_secs(10);

/// Takes the lock for the request's token, or reports that it is busy.
pub(crate) async fn acquire(shared: &Arc<Shared>, request: &AcquireRequest) -> Result<Acquisition> {
    shared.ensure_open()?;
    let slot = shared.slots.open(&request.name, request.token, shared.n())?;
    // Two rounds of one token at a time would give up each other's votes.
    let _turn = slot.turn.lock().await;
    // Before anything is sent: whatever is undone later has to be retried for as long as this ttl lasts.
    slot.ask(request);
    // A repeated request of a token that holds the lock gets the same grant. A new round would have to void its own
    // votes.
    if let Some(grant) = confirm(shared, &slot, request).await {
        return Ok(Acquisition::Granted(grant));
    }
    let answer = match request.queue {
        Queueing::None => once(shared, &slot, request).await,
        Queueing::Join { presence, .. } => queued(shared, &slot, request, presence).await,
    };
    if request.queue != Queueing::None && matches!(answer, Ok(Acquisition::Busy(_))) {
        slot.line().is_contended_now();
    }
    if request.queue == Queueing::None && !slot.state().attempt_state.is_held() {
        // A token that was given up at a node must not be sent there again, and only the slot knows that.
        if slot.has_spoiled() {
            slot.keep_for(ASKED_AGAIN_WITHIN);
        } else {
            shared.slots.remove(&request.token);
        }
    }
    // A place in a queue remains, regardless of the other nodes' answers.
    answer.map_err(|error| if slot.state().queue.joined { error.half_way() } else { error })
}

/// Whether the token holds the lock already; then the answer is the same again.
async fn confirm(shared: &Arc<Shared>, slot: &Arc<Slot>, request: &AcquireRequest) -> Option<Grant> {
    let (fence, granted) = {
        let state = slot.state();
        (state.attempt_state.fence()?, state.attempt_state.granted())
    };
    let once = request.clone().with_queue(Queueing::None);
    let ballots = granted.iter().map(|index| {
        let (node, hold) = (Arc::clone(&shared.nodes[index]), slot.hold_at(index));
        let request = once.clone().with_token(hold.token);
        let (electorate, seniority) = (shared.electorate, Duration::ZERO);
        async move {
            let ballot = Ballot::new(request, electorate).with_proposal(Some(fence)).with_seniority(seniority);
            node.vote(&ballot).await
        }
    });
    let votes = futures_util::future::join_all(ballots).await;
    let ttls: Vec<Duration> = votes
        .into_iter()
        .filter_map(|vote| match vote {
            // A fresh grant does not belong to the hold: another client may have had the node in between.
            Ok(Vote::Cast(Acquisition::Granted(grant))) if grant.begun == Begun::Earlier => Some(grant.ttl),
            _ => None,
        })
        .collect();
    if let Some(ttl) = at_majority(&ttls, shared.needed()) {
        return Some(Grant::new(fence, ttl).with_begun(Begun::Earlier));
    }
    // The token has lost the hold: its remaining votes are undone, and the token takes part anew.
    let all = NodeSet::first(shared.n());
    shared.undo(slot.spoil(all, &shared.nodes), slot.undo_until(Duration::from_secs(60)));
    slot.state().attempt_state.drop_hold();
    None
}

/// One attempt at all nodes.
async fn once(shared: &Arc<Shared>, slot: &Arc<Slot>, request: &AcquireRequest) -> Result<Acquisition> {
    let mut round = Round::new(shared, slot, request);
    round.ask(NodeSet::first(shared.n()), None);
    let decision = round.decide().await;
    let soonest = soonest(&round.refusals, shared);
    match round.conclude(decision) {
        Outcome::Won(grant) => Ok(Acquisition::Granted(grant)),
        Outcome::Busy => Ok(Acquisition::Busy(Busy::default().with_recheck_after(soonest))),
        Outcome::Failed(error) => Err(error),
    }
}

/// When so many refusing nodes may be free that the others do not need them.
fn soonest(refusals: &[(usize, Busy)], shared: &Shared) -> Option<Duration> {
    refusals.iter().filter_map(|(_, busy)| busy.recheck_after).min().map(|after| after.min(shared.max_ttl))
}

/// An attempt of a waiter: with a place in a queue, and with the queue's word first.
async fn queued(
    shared: &Arc<Shared>,
    slot: &Arc<Slot>,
    request: &AcquireRequest,
    presence: Duration,
) -> Result<Acquisition> {
    let mut round = Round::new(shared, slot, request);
    let mut head = false;
    if let Some(at) = place_to_ask_first(shared, slot, presence) {
        // In this order: a release between the answer and a later subscription would wake no one.
        listen(shared, slot, at).await;
        round.ask(NodeSet::of(at), Some(at));
        let decision = round.decide_one().await;
        // The others are not asked: waiters that all ask them would split the votes.
        if let Some((_, busy)) = round.refusals.first() {
            let answer =
                Acquisition::Busy((*busy).with_recheck_after(busy.recheck_after.map(|after| jittered(after, request))));
            round.leave();
            slot.state().queue.losses = 0;
            return Ok(answer);
        }
        // It granted, so this waiter was first in its queue. A refusal by the others may be a release that is late
        // there.
        head = slot.state().attempt_state.granted().contains(at);
        if let Some(decided) = decision {
            return finish(shared, slot, request, round, decided);
        }
        if !head {
            wait_at(shared, slot, None); // the node failed: another one is chosen
        }
    }
    // No node is asked twice in a round: its two answers could not be distinguished.
    let rest = NodeSet::first(shared.n()).without(round.sent());
    let at = choose_place(shared, slot);
    if let Some(at) = at.filter(|at| rest.contains(*at)) {
        listen(shared, slot, at).await;
    }
    round.ask(rest, at);
    let mut decision = round.decide().await;
    for _ in 0..SECOND_TRIES {
        if !(head && decision == Decision::Lost(Defeat::Busy)) {
            break;
        }
        let after = soonest(&round.refusals, shared).unwrap_or(SECOND_TRY_WITHIN);
        sleep(jittered(after.min(SECOND_TRY_WITHIN / 2), request)).await;
        round.ask_again();
        decision = round.decide().await;
    }
    finish(shared, slot, request, round, decision)
}

fn finish(
    shared: &Arc<Shared>,
    slot: &Arc<Slot>,
    request: &AcquireRequest,
    round: Round<'_>,
    decision: Decision,
) -> Result<Acquisition> {
    let (refusals, granted) = (round.refusals.clone(), round.granted());
    match round.conclude(decision) {
        Outcome::Won(grant) => Ok(Acquisition::Granted(grant)),
        Outcome::Busy => Ok(Acquisition::Busy(wait_on(shared, slot, request, &refusals, granted))),
        Outcome::Failed(error) => Err(error),
    }
}

/// Where to wait after a lost election, and when to ask again.
fn wait_on(
    shared: &Shared,
    slot: &Slot,
    request: &AcquireRequest,
    refusals: &[(usize, Busy)],
    granted: NodeSet,
) -> Busy {
    let mut state = slot.state();
    let queue = &mut state.queue;
    if let Some((_, busy)) = refusals.iter().find(|(node, _)| queue.joined && queue.at == Some(*node)) {
        queue.losses = 0;
        return (*busy).with_recheck_after(busy.recheck_after.map(|after| jittered(after, request)));
    }
    // The queue that was chosen is not where the holder is: wait at the first node that refused. If there is no holder,
    // and contenders have split the vote, all of them meet at the first node that works.
    let pause = Duration::from_millis(2) * (1 << queue.losses.min(7));
    queue.losses += 1;
    drop(state);
    let split = refusals.len() < shared.needed();
    let refused = |node: usize| refusals.iter().any(|(refused, _)| *refused == node);
    if let Some(at) = shared.order(&request.name).find(|node| refused(*node) || split && granted.contains(*node)) {
        wait_at(shared, slot, Some(at));
    }
    Busy::default().with_recheck_after(Some(jittered(pause, request)))
}

/// The node that the waiters of this driver wait at, if it is to be asked before the others. Now and then one of them
/// asks all, whatever the queue says.
fn place_to_ask_first(shared: &Shared, slot: &Slot, presence: Duration) -> Option<usize> {
    let all = slot.line().is_to_ask_all(presence / 4);
    let at = slot.line().at()?;
    wait_at(shared, slot, Some(at));
    (!all).then_some(at)
}

fn choose_place(shared: &Shared, slot: &Slot) -> Option<usize> {
    let at = slot.state().queue.at;
    at.or_else(|| {
        let order = shared.order(&slot.name);
        let preferred = order.clone().find(|node| !shared.nodes[*node].is_out_of_favour());
        let at = preferred.or_else(|| order.clone().next());
        wait_at(shared, slot, at);
        at
    })
}

/// Chooses the node to wait at, for all waiters of this driver, and gives up the place that this one had elsewhere.
fn wait_at(shared: &Shared, slot: &Slot, at: Option<usize>) {
    slot.line().wait_at(at);
    shared.undo(slot.wait_at(at, &shared.nodes), slot.undo_until(Duration::ZERO));
}

/// Makes sure that wake-ups of the node for its present token reach the waiter. A failure shows when it is asked.
async fn listen(shared: &Arc<Shared>, slot: &Arc<Slot>, at: usize) {
    let (token, wake) = {
        let state = slot.state();
        let Some(wake) = state.wake.clone() else { return };
        let token = state.tokens[at];
        if state
            .queue
            .listener
            .as_ref()
            .is_some_and(|now| now.node == at && now.token == token && !now.task.is_finished())
        {
            return;
        }
        (token, wake)
    };
    let node = &shared.nodes[at];
    if node.api.capabilities().waiting == Waiting::Poll {
        return;
    }
    // A failed subscription costs no more than the wait for the next recheck: the request that follows shows the fault.
    let Ok(mut watch) = node.watch(&slot.name, &token).await else { return };
    let task = tokio::spawn(async move {
        loop {
            watch.next().await;
            wake.wake();
        }
    });
    slot.state().queue.listener = Some(Listener { node: at, token, task: task.abort_handle() });
}

/// The waiter's end of the wake-ups, from whichever node it queues at.
pub(crate) fn watch(slot: &Arc<Slot>) -> Watch {
    let (wake, watch) = Watch::channel();
    slot.state().wake = Some(wake);
    let slot = Arc::downgrade(slot);
    watch.on_drop(move || {
        if let Some(slot) = slot.upgrade() {
            let mut state = slot.state();
            state.wake = None;
            state.queue.listener = None;
        }
    })
}

/// Between `pause` and one and a half of it, at most 10 ms more, so that waiters do not come back as one.
fn jittered(pause: Duration, request: &AcquireRequest) -> Duration {
    let bytes = request.token.expose();
    let seed = bytes.as_ref().iter().fold(0_u32, |all, byte| all.wrapping_mul(31).wrapping_add(u32::from(*byte)));
    let part = f64::from(seed % 1024) / 1024.0;
    pause + pause.mul_f64(0.5 * part).min(Duration::from_millis(10))
}

#[cfg(test)]
mod tests;
