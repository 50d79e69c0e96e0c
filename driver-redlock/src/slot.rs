//! The driver's knowledge of one acquisition: its tokens at the nodes, the nodes that granted it, and where it waits.
//!
//! At each node an acquisition has a separate token. At first it is the acquisition's own token everywhere. A token
//! whose undoing was sent to a node is never sent there again: a late frame of the undoing could otherwise undo the
//! grant of a later round. The node gets a fresh token instead; the others keep theirs, and with it their places in
//! queues.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::driver::{AcquireRequest, Hold, LeaseInstant, Ttl, WakeHandle};
use tenure_core::{Label, LockName, OwnerToken};
use tokio::task::AbortHandle;

use crate::attempt_state::{AttemptState, Undo};
use crate::background::Chore;
use crate::node::Node;
use crate::quorum::{NodeSet, ReleaseTally};

#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) name: LockName,
    /// The acquisition's own token, which it is known by to the caller.
    pub(crate) token: OwnerToken,
    /// One request of an acquisition at a time.
    pub(crate) turn: tokio::sync::Mutex<()>,
    line: Arc<Line>,
    state: Mutex<State>,
}

/// What the waiters of one name in this driver share: they wait at the same node, and it is enough when any of them
/// asks all the others now and then.
#[derive(Debug, Default)]
pub(crate) struct Line(Mutex<Shared>);

#[derive(Debug, Default)]
struct Shared {
    at: Option<usize>,
    all_asked: Option<LeaseInstant>,
    contended: Option<LeaseInstant>,
}

/// For how long a name counts as contended after a request had to wait.
const CONTENDED_FOR: Duration = Duration::from_secs(2);

impl Line {
    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The node to wait at.
    pub(crate) fn at(&self) -> Option<usize> {
        self.shared().at
    }

    pub(crate) fn wait_at(&self, at: Option<usize>) {
        self.shared().at = at;
    }

    /// Records that a request has to wait. The next request lines up before asking all nodes, and does not overtake a woken waiter.
    pub(crate) fn is_contended_now(&self) {
        self.shared().contended = Some(LeaseInstant::now());
    }

    /// Whether it is worth keeping, of so many references that do not count.
    pub(crate) fn is_needed(self: &Arc<Self>, idle: usize) -> bool {
        let lately = |at| LeaseInstant::now().since(at) < CONTENDED_FOR;
        Arc::strong_count(self) > idle || self.shared().contended.is_some_and(lately)
    }

    /// Whether all nodes are to be asked now: no request has asked them for `long`. The caller that receives `true` asks them.
    pub(crate) fn is_to_ask_all(&self, long: Duration) -> bool {
        let (mut shared, now) = (self.shared(), LeaseInstant::now());
        let due = shared.all_asked.is_none_or(|asked| now.since(asked) >= long);
        if due {
            shared.all_asked = Some(now);
        }
        due
    }
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) tokens: Vec<OwnerToken>,
    pub(crate) attempt_state: AttemptState,
    pub(crate) ttl: Option<Ttl>,
    pub(crate) label: Option<Label>,
    pub(crate) tally: ReleaseTally,
    pub(crate) queue: Place,
    pub(crate) wake: Option<WakeHandle>,
    /// Until when it is worth remembering without requests for it.
    pub(crate) kept_until: LeaseInstant,
}

/// Where an acquisition waits.
#[derive(Debug, Default)]
pub(crate) struct Place {
    /// The node to queue at.
    pub(crate) at: Option<usize>,
    /// Whether the present token is in its queue.
    pub(crate) joined: bool,
    /// Elections lost since the last wait in the queue.
    pub(crate) losses: u32,
    /// Listens for wake-ups, for this token at this node.
    pub(crate) listener: Option<Listener>,
}

/// A task that passes wake-ups on; ends with this value.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) node: usize,
    pub(crate) token: OwnerToken,
    pub(crate) task: AbortHandle,
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Slot {
    pub(crate) fn new(name: LockName, token: OwnerToken, nodes: usize, line: Arc<Line>) -> Self {
        let state = State {
            tokens: vec![token; nodes],
            attempt_state: AttemptState::default(),
            ttl: None,
            label: None,
            tally: ReleaseTally::default(),
            queue: Place::default(),
            wake: None,
            kept_until: LeaseInstant::now().after(Duration::from_secs(60)),
        };
        Self { name, token, turn: tokio::sync::Mutex::new(()), line, state: Mutex::new(state) }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn line(&self) -> &Arc<Line> {
        &self.line
    }

    /// Moves on to another node to wait at. Returns the tokens to be undone where it waited until now.
    pub(crate) fn wait_at(&self, at: Option<usize>, nodes: &[Arc<Node>]) -> Vec<Chore> {
        let left = {
            let queue = &self.state().queue;
            if queue.at == at {
                return Vec::new();
            }
            queue.at.filter(|_| queue.joined).map_or(NodeSet::EMPTY, NodeSet::of)
        };
        // Before `at` changes: by it `spoil` knows that the token has a place, which only an abandonment removes.
        let chores = self.spoil(left, nodes);
        let queue = &mut self.state().queue;
        (queue.at, queue.joined, queue.listener) = (at, false, None);
        chores
    }

    /// The hold as one node knows it.
    pub(crate) fn hold_at(&self, node: usize) -> Hold {
        Hold::new(self.name.clone(), self.state().tokens[node])
    }

    /// Takes note of the request.
    pub(crate) fn ask(&self, request: &AcquireRequest) {
        let mut state = self.state();
        state.ttl = state.ttl.max(Some(request.ttl));
        state.label.clone_from(&request.label);
        state.keep();
    }

    /// Gives up the present tokens at these nodes, and returns the work to undo them: a release where the vote is known,
    /// an abandonment where one may be on its way.
    pub(crate) fn spoil(&self, which: NodeSet, nodes: &[Arc<Node>]) -> Vec<Chore> {
        let mut state = self.state();
        let sure = state.attempt_state.spoil(which);
        let mut chores = Vec::with_capacity(which.len());
        for index in which.iter() {
            let token = std::mem::replace(&mut state.tokens[index], OwnerToken::random());
            // A release ends a lease only; a place in the queue is given up by an abandonment.
            let queued = state.queue.joined && state.queue.at == Some(index);
            let undo = if sure.contains(index) && !queued { Undo::Release } else { Undo::Abandon };
            let hold = Hold::new(self.name.clone(), token);
            chores.push(Chore { node: Arc::clone(&nodes[index]), hold, undo });
            if state.queue.at == Some(index) {
                state.queue.joined = false;
            }
        }
        chores
    }

    /// Whether a token was given up at any node, which must not be sent there again.
    pub(crate) fn has_spoiled(&self) -> bool {
        self.state().tokens.iter().any(|token| *token != self.token)
    }

    /// Remembers the acquisition for so long, without requests for it.
    pub(crate) fn keep_for(&self, span: Duration) {
        self.state().kept_until = LeaseInstant::now().after(span);
    }

    /// Until when undoing can matter: a lease that is not renewed has ended by then.
    pub(crate) fn undo_until(&self, longer: Duration) -> LeaseInstant {
        let ttl = self.state().ttl.map_or(Duration::from_secs(60), Ttl::get);
        LeaseInstant::now().after(ttl + longer)
    }
}

impl State {
    /// Remembers the acquisition for a while longer than its lease, or its place in a queue, can last.
    pub(crate) fn keep(&mut self) {
        let ttl = self.ttl.map_or(Duration::ZERO, Ttl::get);
        self.kept_until = LeaseInstant::now().after(ttl.max(Duration::from_secs(60)) * 2);
    }
}

#[cfg(test)]
mod tests {
    use tenure_memory::MemoryDriver;

    use super::*;

    fn nodes() -> Vec<Arc<Node>> {
        let node = |number: usize| {
            let (api, limit) = (Arc::new(MemoryDriver::new()), Duration::from_secs(1));
            Arc::new(Node::new(format!("n{number}"), api, limit, Duration::ZERO))
        };
        (0..3).map(node).collect()
    }

    fn slot() -> Slot {
        Slot::new(LockName::new("a").unwrap(), OwnerToken::random(), 3, Arc::default())
    }

    fn place(slot: &Slot) -> (Option<usize>, bool) {
        let queue = &slot.state().queue;
        (queue.at, queue.joined)
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn ask(slot: &Slot, ttl: u64) {
        slot.ask(&AcquireRequest::new(slot.name.clone(), slot.token, Ttl::new(seconds(ttl)).unwrap()));
    }

    #[tokio::test(start_paused = true)]
    async fn all_nodes_are_asked_now_and_then_by_one_of_the_line() {
        let (line, long) = (Line::default(), seconds(10));
        assert!(line.is_to_ask_all(long));
        tokio::time::advance(seconds(6)).await;
        assert!(!line.is_to_ask_all(long));
        tokio::time::advance(seconds(4)).await;
        assert!(line.is_to_ask_all(long) && !line.is_to_ask_all(long));
    }

    #[tokio::test(start_paused = true)]
    async fn a_line_is_needed_while_it_is_used_or_was_contended_lately() {
        let line = Arc::new(Line::default());
        assert!(line.is_needed(0) && !line.is_needed(1));
        line.is_contended_now();
        assert!(line.is_needed(1));
        tokio::time::advance(CONTENDED_FOR).await;
        assert!(!line.is_needed(1));
    }

    #[tokio::test(start_paused = true)]
    async fn undoing_can_matter_for_the_longest_ttl_asked_for() {
        let (slot, now) = (slot(), LeaseInstant::now());
        assert_eq!(slot.undo_until(Duration::ZERO), now.after(seconds(60)), "when none is known");
        ask(&slot, 10);
        ask(&slot, 5);
        assert_eq!(slot.undo_until(seconds(1)), now.after(seconds(11)));
        assert_eq!(slot.state().kept_until, now.after(seconds(120)));
        ask(&slot, 3_600);
        assert_eq!(slot.state().kept_until, now.after(seconds(7_200)));
        slot.keep_for(seconds(10));
        assert_eq!(slot.state().kept_until, now.after(seconds(10)));
    }

    #[tokio::test(start_paused = true)]
    async fn tokens_are_given_up_node_by_node() {
        let (slot, nodes) = (slot(), nodes());
        assert!(!slot.has_spoiled());
        {
            let mut state = slot.state();
            (0..3).for_each(|node| state.attempt_state.ask(node));
            (0..2).for_each(|node| state.attempt_state.settle_granted(node));
            (state.queue.at, state.queue.joined) = (Some(1), true);
        }
        let chores = slot.spoil(NodeSet::first(3), &nodes);
        let undo: Vec<Undo> = chores.iter().map(|chore| chore.undo).collect();
        assert_eq!(undo, [Undo::Release, Undo::Abandon, Undo::Abandon], "a place in a queue is abandoned too");
        assert!(chores.iter().all(|chore| chore.hold.token == slot.token));
        assert!(slot.has_spoiled() && (0..3).all(|node| slot.hold_at(node).token != slot.token));
        assert_eq!(place(&slot), (Some(1), false));
    }

    #[tokio::test(start_paused = true)]
    async fn who_moves_on_gives_up_its_place() {
        let (slot, nodes) = (slot(), nodes());
        assert!(slot.wait_at(Some(0), &nodes).is_empty(), "it waited nowhere");
        slot.state().queue.joined = true;
        assert!(slot.wait_at(Some(0), &nodes).is_empty() && slot.state().queue.joined, "it stays");
        let left = slot.wait_at(Some(1), &nodes);
        assert_eq!(left.iter().map(|chore| chore.undo).collect::<Vec<_>>(), [Undo::Abandon]);
        assert!(Arc::ptr_eq(&left[0].node, &nodes[0]));
        assert_eq!(place(&slot), (Some(1), false));
        assert!(slot.wait_at(None, &nodes).is_empty(), "it had no place there yet");
    }
}
