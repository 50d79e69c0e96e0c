//! One round of requests to the nodes for a lock: sends the requests that the election decides, and processes the
//! answers.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tenure_core::driver::{
    AcquireRequest, Acquisition, Ballot, Busy, CredibleFences, Grant, Handing, Queueing, Raised, Vote,
};
use tenure_core::{Error, ErrorKind, FenceFloor, FencingToken, Result};

use crate::attempt_state::counts;
use crate::background::Undoer;
use crate::node::Node;
use crate::quorum::{Decision, Defeat, Election, Event, NodeSet, at_majority};
use crate::shared::Shared;
use crate::slot::Slot;

/// What comes back from a node.
pub(crate) enum Answer {
    Vote { node: usize, vote: Result<Vote> },
    Raise { node: usize, fence: u64, raised: Result<Raised> },
}

pub(crate) type Pending = FuturesUnordered<Pin<Box<dyn Future<Output = Answer> + Send>>>;

/// How a round ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    Won(Grant),
    Busy,
    Failed(Error),
}

/// Dropped before its end, it undoes its request at every node that received one.
pub(crate) struct Round<'a> {
    shared: &'a Arc<Shared>,
    slot: &'a Arc<Slot>,
    request: &'a AcquireRequest,
    proposal: Option<FencingToken>,
    /// Which fences of nodes are credible, by the clocks of this client.
    credible: CredibleFences,
    pending: Pending,
    election: Election,
    ttls: Vec<(usize, Duration)>,
    faults: Vec<(usize, Error)>,
    /// Granted, and worth nothing: at an unknown time, or with a fence that is not credible. To be undone.
    void: NodeSet,
    /// Which nodes the tokens had been sent to before.
    asked_before: NodeSet,
    /// The node in whose queue the acquisition was before.
    queued_before: Option<usize>,
    /// Refusals of this round, with when each is worth another try.
    pub(crate) refusals: Vec<(usize, Busy)>,
    sent: NodeSet,
    /// How many rounds of requests were needed: one, if nodes agree.
    rounds: u32,
    done: bool,
}

impl<'a> Round<'a> {
    pub(crate) fn new(shared: &'a Arc<Shared>, slot: &'a Arc<Slot>, request: &'a AcquireRequest) -> Self {
        let proposal = shared.proposal();
        let (asked_before, queued_before) = {
            let state = slot.state();
            (state.attempt_state.asked(), state.queue.at.filter(|_| state.queue.joined))
        };
        let clock = CredibleFences::now();
        Self {
            shared,
            slot,
            request,
            proposal,
            credible: proposal.map_or(clock, |proposal| clock.or(CredibleFences::at(proposal.get()))),
            pending: FuturesUnordered::new(),
            election: Election::new(shared.n()),
            ttls: Vec::with_capacity(shared.n()),
            faults: Vec::new(),
            void: NodeSet::EMPTY,
            asked_before,
            queued_before,
            refusals: Vec::new(),
            sent: NodeSet::EMPTY,
            rounds: 1,
            done: false,
        }
    }

    /// Which nodes have been asked in this round.
    pub(crate) fn sent(&self) -> NodeSet {
        self.sent
    }

    /// Asks these nodes to vote; `queue` names the one that is to keep a place.
    pub(crate) fn ask(&mut self, which: NodeSet, queue: Option<usize>) {
        self.sent = self.sent.or(which);
        for index in which.iter() {
            let node = Arc::clone(&self.shared.nodes[index]);
            let mut request = self.request.clone();
            {
                // Noted before the request exists: a round that is dropped at any later point undoes it at this node.
                let mut state = self.slot.state();
                request.token = state.tokens[index];
                state.attempt_state.ask(index);
                if queue == Some(index) {
                    state.queue.joined = true;
                }
            }
            // A node alone gives nothing away: its turn is a reason to ask them all.
            request.queue = match request.queue {
                Queueing::Join { presence, .. } if queue == Some(index) => {
                    Queueing::Join { presence, accepts: Handing::Asked }
                }
                _ => Queueing::None,
            };
            let (proposal, seniority) = (self.proposal, node.seniority);
            let ballot = Ballot::new(request, self.shared.electorate).with_proposal(proposal).with_seniority(seniority);
            self.pending.push(Box::pin(async move { Answer::Vote { node: index, vote: node.vote(&ballot).await } }));
        }
    }

    fn raise(&mut self, which: NodeSet, fence: u64) {
        let Some(token) = FencingToken::new(fence) else { return };
        self.rounds += 1;
        for index in which.iter() {
            let (node, hold) = (Arc::clone(&self.shared.nodes[index]), self.slot.hold_at(index));
            self.pending.push(Box::pin(async move {
                Answer::Raise { node: index, fence, raised: node.raise(&hold, token).await }
            }));
        }
    }

    /// Takes in answers until the election is decided.
    pub(crate) async fn decide(&mut self) -> Decision {
        while let Some(answer) = self.pending.next().await {
            let event = self.take_in(answer);
            match self.election.take(event) {
                Decision::Wait => {}
                Decision::Raise { nodes, fence } => self.raise(nodes, fence),
                won @ Decision::Won { .. } => return self.hear_suspects(won).await,
                decided => return decided,
            }
        }
        Decision::Wait
    }

    /// Takes in the answer of the one node that was asked; returns the decision if it already allows one.
    pub(crate) async fn decide_one(&mut self) -> Option<Decision> {
        let answer = self.pending.next().await?;
        let event = self.take_in(answer);
        // No raise: a majority of one agrees with itself.
        Some(self.election.take(event)).filter(|decision| *decision != Decision::Wait)
    }

    /// Ends a round in which nothing was won and nothing is on its way.
    pub(crate) fn leave(mut self) {
        self.done = true;
    }

    /// Which nodes have granted.
    pub(crate) fn granted(&self) -> NodeSet {
        self.election.granted()
    }

    fn suspects_elsewhere(&self) -> bool {
        self.election.pending().iter().any(|node| self.shared.nodes[node].is_elsewhere())
    }

    /// A node that voted elsewhere last must be heard before a quorum without it is believed in.
    async fn hear_suspects(&mut self, mut decision: Decision) -> Decision {
        while self.suspects_elsewhere() && matches!(decision, Decision::Won { .. }) {
            let Some(answer) = self.pending.next().await else { break };
            let event = self.take_in(answer);
            decision = match self.election.take(event) {
                lost @ Decision::Lost(Defeat::Elsewhere) => lost,
                _ => decision, // it stays won
            };
        }
        decision
    }

    /// Asks once more who refused, if the election was lost for now.
    pub(crate) fn ask_again(&mut self) {
        self.refusals.clear();
        self.rounds += 1;
        let again = self.election.ask_again();
        self.ask(again, None);
    }

    fn take_in(&mut self, answer: Answer) -> Event {
        match answer {
            Answer::Vote { node, vote } => self.take_in_vote(node, vote),
            Answer::Raise { node, fence, raised } => match raised {
                Ok(Raised::Acknowledged) => Event::Raised { node, fence },
                Ok(Raised::Beyond { counter }) if !self.credible.contain(counter) => {
                    self.faults.push((node, incredible(counter)));
                    Event::RaiseFailed { node }
                }
                Ok(Raised::Beyond { counter }) => Event::Beyond { node, fence, counter: counter.get() },
                Ok(Raised::NotOwner) => {
                    self.slot.state().attempt_state.settle_refused(node);
                    Event::NotOwner { node }
                }
                Err(error) => {
                    self.faults.push((node, error));
                    Event::RaiseFailed { node }
                }
            },
        }
    }

    fn take_in_vote(&mut self, node: usize, vote: Result<Vote>) -> Event {
        match vote {
            Ok(Vote::Cast(Acquisition::Granted(grant))) => {
                let mut state = self.slot.state();
                // Settled before it is judged: a vote that does not count here is held by the node all the same, and is
                // undone.
                state.attempt_state.settle_granted(node);
                if state.queue.at == Some(node) {
                    state.queue.joined = false; // who has the lock is not in the queue
                }
                drop(state);
                if !counts(grant.begun, self.asked_before.contains(node)) {
                    let text = "an earlier request took the lock late, at an unknown time";
                    return self.annul(node, Error::new(ErrorKind::Indeterminate, text));
                }
                if !self.credible.contain(grant.fence) {
                    return self.annul(node, incredible(grant.fence));
                }
                if !self.shared.floor.admits(grant.fence) {
                    return self.annul(node, below(self.shared.floor, grant.fence));
                }
                self.ttls.push((node, grant.ttl));
                Event::Granted { node, fence: grant.fence.get() }
            }
            Ok(Vote::Cast(Acquisition::Busy(busy))) => {
                self.slot.state().attempt_state.settle_refused(node);
                self.refusals.push((node, busy));
                Event::Refused { node }
            }
            Ok(Vote::Elsewhere { electorate }) => {
                self.was_not_applied(node);
                let ours = self.shared.electorate;
                let text = format!("the node votes in electorate {electorate}, and this client's is {ours}");
                self.faults.push((node, Error::new(ErrorKind::Misconfigured, text)));
                Event::Elsewhere { node }
            }
            Err(error) => {
                if error.was_not_applied() {
                    self.was_not_applied(node);
                }
                self.faults.push((node, error));
                Event::Failed { node }
            }
        }
    }

    /// The node did nothing: it has the place in its queue that it had before, if any.
    fn was_not_applied(&self, node: usize) {
        let mut state = self.slot.state();
        state.attempt_state.settle_refused(node);
        if state.queue.at == Some(node) {
            state.queue.joined = self.queued_before == Some(node);
        }
    }

    /// Does not count a vote that was cast; it is undone when the round ends.
    fn annul(&mut self, node: usize, why: Error) -> Event {
        self.void.insert(node);
        self.faults.push((node, why));
        Event::Failed { node }
    }

    /// Concludes the round. Votes that were won for nothing are undone in the background.
    pub(crate) fn conclude(mut self, decision: Decision) -> Outcome {
        // Each arm below undoes by itself if it has to; the drop must not do so again.
        self.done = true;
        match decision {
            Decision::Won { fence } => self.won(fence),
            Decision::Lost(Defeat::Busy) => {
                self.shared.elections.lost();
                self.undo();
                Outcome::Busy
            }
            Decision::Lost(defeat) => {
                self.shared.elections.lost();
                self.undo();
                let what = match defeat {
                    Defeat::Elsewhere => "clients disagree about which nodes form the quorum",
                    _ => "no quorum",
                };
                Outcome::Failed(self.shared.failure(what, &self.faults))
            }
            Decision::Wait | Decision::Raise { .. } => {
                self.undo();
                Outcome::Failed(self.shared.failure("no decision", &self.faults))
            }
        }
    }

    fn won(&mut self, fence: u64) -> Outcome {
        let granted = self.election.granted();
        let ttls: Vec<Duration> =
            self.ttls.iter().filter(|(node, _)| granted.contains(*node)).map(|(_, ttl)| *ttl).collect();
        let kept = at_majority(&ttls, self.shared.needed());
        let (Some(fence), Some(ttl)) = (FencingToken::new(fence), kept) else {
            self.undo();
            return Outcome::Failed(Error::new(ErrorKind::Protocol, "a majority granted the lock without a fence"));
        };
        // An abandonment may have ended the acquisition while votes were on their way: these would keep their nodes.
        if !self.slot.state().attempt_state.win(fence, granted) {
            self.undo();
            return Outcome::Failed(Error::new(
                ErrorKind::NotHeld,
                "this attempt was abandoned while its request was in flight",
            ));
        }
        self.shared.elections.won(self.rounds);
        let left_queue = {
            let mut state = self.slot.state();
            state.keep();
            state.queue.listener = None;
            state.queue.losses = 0;
            // A place in a queue that was not needed would be called in vain.
            if state.queue.joined { state.queue.at.map_or(NodeSet::EMPTY, NodeSet::of) } else { NodeSet::EMPTY }
        };
        // A node whose vote is pending is left to `settle_late`, which hears whether it granted or queued.
        let not_needed = left_queue.without(granted).without(self.election.pending()).or(self.void);
        let until = self.slot.undo_until(Duration::ZERO);
        self.shared.undo(self.slot.spoil(not_needed, &self.shared.nodes), until);
        // Heard and not dropped: the release has to know which nodes have the lock, and which may still get it.
        let late = std::mem::take(&mut self.pending);
        if !late.is_empty() {
            self.shared.background.push(settle_late(
                late,
                Arc::clone(self.slot),
                self.shared.nodes.clone(),
                self.shared.background.undoer(),
            ));
        }
        Outcome::Won(Grant::new(fence, ttl))
    }

    /// Gives back the votes that were won and calls back those that may be on their way.
    fn undo(&mut self) {
        // First: an answer that is heard after the tokens are given up would be taken for one to the fresh tokens.
        self.pending.clear();
        let which = {
            let attempt_state = self.slot.state().attempt_state;
            attempt_state.granted().or(attempt_state.unknown()).or(self.void)
        };
        let until = self.slot.undo_until(Duration::from_secs(60));
        self.shared.undo(self.slot.spoil(which, &self.shared.nodes), until);
    }
}

impl Drop for Round<'_> {
    fn drop(&mut self) {
        if !self.done {
            self.undo();
        }
    }
}

/// Takes in votes that come after the election was won.
async fn settle_late(mut late: Pending, slot: Arc<Slot>, nodes: Vec<Arc<Node>>, undoer: Undoer) {
    while let Some(answer) = late.next().await {
        let Answer::Vote { node, vote } = answer else { continue };
        let queued = {
            let mut state = slot.state();
            match vote {
                Ok(Vote::Cast(Acquisition::Granted(_))) => state.attempt_state.settle_granted(node),
                Ok(_) => state.attempt_state.settle_refused(node),
                Err(error) if error.was_not_applied() => state.attempt_state.settle_refused(node),
                Err(_) => {}
            }
            state.queue.joined && state.queue.at == Some(node) && !state.attempt_state.granted().contains(node)
        };
        if queued {
            let chores = slot.spoil(NodeSet::of(node), &nodes); // a place in a queue that is not needed any more
            undoer.undo(chores, slot.undo_until(Duration::ZERO)).await;
        }
    }
}

/// The error for a node that did not take up the proposal of a fence beyond the floor.
fn below(floor: FenceFloor, fence: FencingToken) -> Error {
    let text = format!(
        "its fence {fence} is below the fence_floor of {floor}, which has to be more than a day ahead of the node's clock"
    );
    Error::new(ErrorKind::Misconfigured, text)
}

/// The error for a node whose counter is damaged, or that lies.
fn incredible(fence: FencingToken) -> Error {
    let text =
        format!("its fence {fence} is not credible: beyond 2^53, or more than a day ahead of this client's clock");
    Error::new(ErrorKind::Protocol, text)
}
