//! What the driver knows of one acquisition: its tokens at the nodes, who granted it, where it waits.
//!
//! At each node an acquisition goes by a token of its own. At first it is the acquisition's own token everywhere. A
//! token whose undoing was sent to a node is never sent there again: a late frame of the undoing could otherwise take
//! away what a later round has won. The node gets a fresh token instead; the others keep theirs, and with it their
//! places in queues.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::driver::{AcquireRequest, Hold, WakeHandle};
use tenure_core::{FencingToken, Label, LeaseInstant, LockName, OwnerToken, Ttl};
use tokio::task::AbortHandle;

use crate::background::{Chore, Undo};
use crate::node::Node;
use crate::quorum::{NodeSet, ReleaseTally};

#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) name: LockName,
    /// The acquisition's own token, which it is known by to the caller.
    pub(crate) token: OwnerToken,
    /// One request of an acquisition at a time.
    pub(crate) turn: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) tokens: Vec<OwnerToken>,
    /// Where the present token has been sent before this call.
    pub(crate) asked: NodeSet,
    pub(crate) granted: NodeSet,
    /// Where a vote may have been or may yet be cast that we do not know of.
    pub(crate) unknown: NodeSet,
    pub(crate) healing: NodeSet,
    /// Set while it is held.
    pub(crate) fence: Option<FencingToken>,
    pub(crate) ttl: Option<Ttl>,
    pub(crate) label: Option<Label>,
    /// Released or abandoned: nothing may be won for it any more.
    pub(crate) ended: bool,
    pub(crate) tally: ReleaseTally,
    pub(crate) queue: Place,
    pub(crate) wake: Option<WakeHandle>,
    /// Until when it is worth remembering without anybody asking for it.
    pub(crate) kept_until: LeaseInstant,
}

/// Where an acquisition waits.
#[derive(Debug, Default)]
pub(crate) struct Place {
    /// The node to queue at.
    pub(crate) at: Option<usize>,
    /// Whether the present token is in its queue.
    pub(crate) joined: bool,
    /// When all nodes were asked last.
    pub(crate) all_asked: Option<LeaseInstant>,
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
    pub(crate) fn new(name: LockName, token: OwnerToken, nodes: usize) -> Self {
        let state = State {
            tokens: vec![token; nodes],
            asked: NodeSet::EMPTY,
            granted: NodeSet::EMPTY,
            unknown: NodeSet::EMPTY,
            healing: NodeSet::EMPTY,
            fence: None,
            ttl: None,
            label: None,
            ended: false,
            tally: ReleaseTally::default(),
            queue: Place::default(),
            wake: None,
            kept_until: LeaseInstant::now().after(Duration::from_secs(60)),
        };
        Self { name, token, turn: tokio::sync::Mutex::new(()), state: Mutex::new(state) }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The hold as one node knows it.
    pub(crate) fn hold_at(&self, node: usize) -> Hold {
        Hold { name: self.name.clone(), token: self.state().tokens[node] }
    }

    /// Takes note of what is asked for.
    pub(crate) fn ask(&self, request: &AcquireRequest) {
        let mut state = self.state();
        state.ttl = state.ttl.max(Some(request.ttl));
        state.label.clone_from(&request.label);
        state.keep();
    }

    /// Gives up the present tokens at these nodes, and tells what is to be undone: a release where the vote is known,
    /// an abandonment where one may be on its way.
    pub(crate) fn spoil(&self, which: NodeSet, nodes: &[Arc<Node>]) -> Vec<Chore> {
        let mut state = self.state();
        let mut chores = Vec::with_capacity(which.len());
        for index in which.iter() {
            let token = std::mem::replace(&mut state.tokens[index], OwnerToken::random());
            let queued = state.queue.joined && state.queue.at == Some(index);
            let sure = state.granted.contains(index) && !state.unknown.contains(index) && !queued;
            let undo = if sure { Undo::Release } else { Undo::Abandon };
            let hold = Hold { name: self.name.clone(), token };
            chores.push(Chore { node: Arc::clone(&nodes[index]), hold, undo });
            if state.queue.at == Some(index) {
                state.queue.joined = false;
            }
        }
        state.asked = state.asked.without(which);
        state.granted = state.granted.without(which);
        state.unknown = state.unknown.without(which);
        chores
    }

    /// Until when undoing can matter: a lease that nobody renews has ended by then.
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

    /// Takes in that a node granted.
    pub(crate) fn settle_granted(&mut self, node: usize) {
        self.unknown.remove(node);
        self.granted.insert(node);
    }

    /// Takes in that a node did not grant, and will not for what was sent so far.
    pub(crate) fn settle_refused(&mut self, node: usize) {
        self.unknown.remove(node);
        self.granted.remove(node);
    }
}
