//! All possible next steps of a state.

mod release;
mod renewal;

use super::mind::{Input, Minds, Output};
use super::protocol::{
    Answer, Attempt, Heal, Hints, Label, Memory, Node, Phase, Protocol, RAISE_OVER, RAISE_SAID, RAISE_SENT, ROUNDS,
    State, Step, Undo, Vote, Wire, WriteBack,
};
use crate::node_set::NodeSet;
use crate::quorum::{Decision, Event};

pub(super) struct Steps<'a> {
    protocol: &'a Protocol,
    minds: &'a mut Minds,
    state: &'a State,
    found: Vec<Step>,
}

impl<'a> Steps<'a> {
    pub(super) fn all(protocol: &'a Protocol, minds: &'a mut Minds, state: &'a State) -> Vec<Step> {
        let mut steps = Self { protocol, minds, state, found: Vec::with_capacity(32) };
        for a in 0..protocol.attempts {
            steps.of_client(a);
            if state.attempts[a].phase != Phase::Idle {
                (0..protocol.nodes).for_each(|i| steps.of_wire(a, i));
            }
        }
        (0..protocol.nodes).for_each(|i| steps.of_node(i));
        steps.found
    }

    fn step(&mut self, text: &'static str, numbers: [usize; 3], next: State) {
        self.found.push(Step { label: Label(text, numbers), next, wrong: None });
    }

    fn wrong(&mut self, text: &'static str, numbers: [usize; 3], why: &'static str) {
        self.found.push(Step { label: Label(text, numbers), next: *self.state, wrong: Some(why) });
    }

    fn think(&mut self, attempt: &mut Attempt, input: Input) -> Output {
        let (mind, output) = self.minds.take(attempt.mind, input);
        attempt.mind = mind;
        output
    }

    // ---- what a client does

    fn of_client(&mut self, a: usize) {
        let attempt = &self.state.attempts[a];
        match attempt.phase {
            // Attempts are alike, so they begin in order.
            Phase::Idle if a == 0 || self.state.attempts[a - 1].phase != Phase::Idle => self.begin(a),
            Phase::Held if self.protocol.heals && !attempt.renewing => {
                let mut next = *self.state;
                next.attempts[a].renewing = true;
                self.step("attempt # begins to renew", [a, 0, 0], next);
            }
            _ => {}
        }
        if matches!(attempt.phase, Phase::Asking | Phase::Held) {
            let mut next = *self.state;
            let tell = self.end(&mut next.attempts[a], attempt.phase == Phase::Held);
            let wrong = (attempt.phase == Phase::Held).then(|| self.misjudged(a, tell)).flatten();
            self.found.push(Step { label: Label("attempt # ends", [a, 0, 0]), next, wrong });
        }
    }

    fn begin(&mut self, a: usize) {
        let hints: &[u8] = match self.protocol.hints {
            Hints::None => &[0],
            Hints::Growing => &[20],
            Hints::Wild => &[0, 3, 5],
        };
        for hint in hints {
            let mut next = *self.state;
            let reported = (0..self.protocol.attempts).filter(|b| self.state.attempts[*b].fence != 0);
            let attempt = &mut next.attempts[a];
            attempt.before = reported.fold(0, |all, b| all | 1 << b);
            attempt.phase = Phase::Asking;
            attempt.hint = *hint;
            if self.protocol.hints == Hints::Growing {
                next.clock += 4;
                attempt.hint += next.clock;
            }
            let Output::Ask(all) = self.think(attempt, Input::Begin) else { unreachable!() };
            all.iter().for_each(|i| attempt.wires[i].vote = Vote::Sent);
            let hint = usize::from(attempt.hint);
            self.step("attempt # begins, proposing #", [a, hint, 0], next);
        }
    }

    /// The attempt ends: `held` and given back or lost, or not won. Returns which nodes report whether they had the lock.
    fn end(&mut self, attempt: &mut Attempt, held: bool) -> NodeSet {
        let undo = self.think(attempt, if held { Input::End } else { Input::Spoil });
        let Output::Undo { release, either, abandon, tell } = undo else { unreachable!() };
        attempt.phase = Phase::Done;
        attempt.hint = if attempt.wires.iter().any(|wire| wire.vote == Vote::Sent) { attempt.hint } else { 0 };
        if !(held && attempt.renewing) {
            self.forget(attempt);
        }
        for (i, wire) in attempt.wires.iter_mut().enumerate() {
            wire.vote = if matches!(wire.vote, Vote::Sent | Vote::Stray) { Vote::Stray } else { Vote::None };
            for round in 0..ROUNDS {
                if wire.raise(round) == RAISE_SAID {
                    wire.set_raise(round, RAISE_OVER);
                }
            }
            if self.protocol.undoes && release.contains(i) {
                wire.undo = Undo::Release;
            }
            if self.protocol.undoes && either.contains(i) {
                wire.undo = Undo::Either;
            }
            if self.protocol.undoes && abandon.contains(i) {
                wire.undo = Undo::Abandon;
            }
        }
        tell
    }

    /// Nothing that the attempt still hears of makes a difference.
    fn forget(&mut self, attempt: &mut Attempt) {
        (attempt.mind, attempt.renewing, attempt.renewed) = (0, false, false);
        attempt.wires.iter_mut().for_each(|wire| wire.answer = Answer::None);
    }

    /// The client hears of a node, and acts.
    fn hear(&mut self, next: &mut State, a: usize, event: Event) {
        let attempt = &mut next.attempts[a];
        let Output::Election(decision) = self.think(attempt, Input::Heard(event)) else { unreachable!() };
        match decision {
            Decision::Wait => {}
            Decision::Raise { fence, .. } if self.protocol.write_back == WriteBack::None => self.win(attempt, fence),
            Decision::Raise { fence, .. } if self.protocol.write_back == WriteBack::Unconditional => {
                raise(attempt, NodeSet::first(self.protocol.nodes), fence as u8);
            }
            Decision::Raise { nodes, fence } => raise(attempt, nodes, fence as u8),
            Decision::Won { fence } => self.win(attempt, fence),
            Decision::Lost(_) if self.protocol.again && !attempt.asked_again => {
                attempt.asked_again = true;
                let Output::Ask(again) = self.think(attempt, Input::AskAgain) else { unreachable!() };
                again.iter().for_each(|i| attempt.wires[i].vote = Vote::Sent);
            }
            Decision::Lost(_) => {
                self.end(attempt, false);
            }
        }
    }

    fn win(&mut self, attempt: &mut Attempt, fence: u64) {
        attempt.fence = fence as u8;
        let won = self.think(attempt, Input::Win { fence: attempt.fence });
        assert_eq!(won, Output::Won(true), "nobody has ended it");
        attempt.phase = Phase::Held;
        for wire in &mut attempt.wires {
            if matches!(wire.vote, Vote::Heard(_)) {
                wire.vote = Vote::None;
            }
            for round in (0..ROUNDS).filter(|round| wire.raise(*round) == RAISE_SAID).collect::<Vec<_>>() {
                wire.set_raise(round, RAISE_OVER);
            }
        }
    }

    // ---- the messages between an attempt and a node

    fn of_wire(&mut self, a: usize, i: usize) {
        let wire = self.state.attempts[a].wires[i];
        self.vote(a, i, wire);
        for round in (0..ROUNDS).filter(|round| wire.raise(*round) != 0) {
            match wire.raise(round) {
                RAISE_SENT => self.raise_arrives(a, i, round),
                RAISE_SAID => self.raise_is_heard(a, i, round),
                _ => {}
            }
        }
        self.heal(a, i, wire);
        self.undo(a, i, wire);
        if self.state.attempts[a].renewing && wire.answer == Answer::None {
            self.renew(a, i);
        }
    }

    /// The state in which node `i` has voted for attempt `a`; `None` if it does not.
    fn cast(&self, a: usize, i: usize, proposal: u8) -> Option<State> {
        let node = &self.state.nodes[i];
        let willing = node.owner == 0 && node.forgot == 0 && node.buried >> a & 1 == 0;
        let mut next = *self.state;
        next.nodes[i].counter = (node.counter + 1).max(proposal);
        next.nodes[i].owner = a as u8 + 1;
        willing.then_some(next)
    }

    fn vote(&mut self, a: usize, i: usize, wire: Wire) {
        let (attempt, node) = (&self.state.attempts[a], &self.state.nodes[i]);
        let asking = attempt.phase == Phase::Asking;
        match wire.vote {
            Vote::Sent | Vote::Stray => {
                let unheard = wire.vote == Vote::Stray;
                if let Some(mut next) = self.cast(a, i, attempt.hint) {
                    let fence = next.nodes[i].counter;
                    next.attempts[a].wires[i].vote = if unheard { Vote::None } else { Vote::Said(fence) };
                    let numbers = [i, a, usize::from(fence)];
                    if wire.undo == Undo::Acknowledged {
                        return self.wrong("node # votes for attempt # with #", numbers, "served after its undoing");
                    }
                    if !unheard && !self.protocol.late {
                        self.hear_vote(&mut next, a, i, fence);
                    }
                    self.step("node # votes for attempt # with #", numbers, next);
                } else if asking && !unheard {
                    let mut next = *self.state;
                    next.attempts[a].wires[i].vote = Vote::None;
                    let event = if node.owner == 0 { Event::Failed { node: i } } else { Event::Refused { node: i } };
                    self.hear(&mut next, a, event);
                    self.step("node # does not vote for attempt #", [i, a, 0], next);
                }
                if asking && !unheard && self.protocol.faults {
                    let mut next = *self.state;
                    next.attempts[a].wires[i].vote = Vote::Stray;
                    self.hear(&mut next, a, Event::Failed { node: i });
                    self.step("node # is not heard of by attempt #", [i, a, 0], next);
                }
            }
            Vote::Said(fence) => {
                let mut next = *self.state;
                self.hear_vote(&mut next, a, i, fence);
                self.step("the vote of node # is heard by attempt #", [i, a, 0], next);
            }
            Vote::Heard(_) if self.protocol.repeats && !wire.repeated => {
                if let Some(mut next) = self.cast(a, i, attempt.hint) {
                    next.attempts[a].wires[i].repeated = true;
                    self.step("node # votes again for attempt #, unheard", [i, a, 0], next);
                }
            }
            Vote::Heard(_) | Vote::None => {}
        }
    }

    fn hear_vote(&mut self, next: &mut State, a: usize, i: usize, fence: u8) {
        let wire = &mut next.attempts[a].wires[i];
        if next.attempts[a].phase == Phase::Asking {
            wire.vote = Vote::Heard(fence);
            self.hear(next, a, Event::Granted { node: i, fence: fence.into() });
        } else {
            wire.vote = Vote::None;
            self.think(&mut next.attempts[a], Input::Late { node: i });
        }
    }

    fn raise_arrives(&mut self, a: usize, i: usize, round: usize) {
        let (attempt, node) = (&self.state.attempts[a], &self.state.nodes[i]);
        let (asking, fence) = (attempt.phase == Phase::Asking, attempt.rounds[round]);
        let mine = usize::from(node.owner) == a + 1;
        let acknowledged = match self.protocol.write_back {
            WriteBack::None => false,
            WriteBack::Unconditional => true,
            WriteBack::OwnerOnly => mine,
            WriteBack::Conditional => mine && node.counter <= fence,
        };
        let mut next = *self.state;
        let wire = &mut next.attempts[a].wires[i];
        wire.set_raise(round, RAISE_OVER);
        if acknowledged {
            if asking {
                wire.set_raise(round, RAISE_SAID);
            }
            next.nodes[i].counter = node.counter.max(fence);
            if asking && !self.protocol.late {
                self.hear_raise(&mut next, a, i, round);
            }
            self.step("node # is raised to # by attempt #", [i, usize::from(fence), a], next);
        } else if asking && mine {
            let beyond = Event::Beyond { node: i, fence: fence.into(), counter: node.counter.into() };
            self.hear(&mut next, a, beyond);
            self.step("attempt # finds # at node #", [a, usize::from(node.counter), i], next);
        } else if asking {
            self.hear(&mut next, a, Event::NotOwner { node: i });
            self.step("attempt # finds that node # is not its own", [a, i, 0], next);
        }
        if asking && self.protocol.faults {
            let mut next = *self.state;
            self.hear(&mut next, a, Event::RaiseFailed { node: i });
            if next != *self.state {
                self.step("the raise of attempt # at node # fails", [a, i, 0], next);
            }
        }
    }

    fn raise_is_heard(&mut self, a: usize, i: usize, round: usize) {
        let mut next = *self.state;
        self.hear_raise(&mut next, a, i, round);
        self.step("the raise at node # is heard of by attempt #", [i, a, 0], next);
    }

    fn hear_raise(&mut self, next: &mut State, a: usize, i: usize, round: usize) {
        let fence = next.attempts[a].rounds[round].into();
        next.attempts[a].wires[i].set_raise(round, RAISE_OVER);
        self.hear(next, a, Event::Raised { node: i, fence });
    }

    fn heal(&mut self, a: usize, i: usize, wire: Wire) {
        let attempt = &self.state.attempts[a];
        if !matches!(wire.heal, Heal::Sent | Heal::Stray) {
            return;
        }
        if attempt.phase == Phase::Held && self.protocol.faults && wire.heal == Heal::Sent {
            let mut next = *self.state;
            next.attempts[a].wires[i].heal = Heal::Stray;
            self.think(&mut next.attempts[a], Input::HealUnheard { node: i });
            self.step("taking node # back is not heard of by attempt #", [i, a, 0], next);
        }
        if let Some(mut next) = self.cast(a, i, attempt.fence) {
            next.attempts[a].wires[i].heal = Heal::Over;
            if wire.undo == Undo::Acknowledged {
                return self.wrong("node # is taken back by attempt #", [i, a, 0], "taken back after its undoing");
            }
            if attempt.phase == Phase::Held && wire.heal == Heal::Sent {
                self.think(&mut next.attempts[a], Input::Healed { node: i });
            }
            self.step("node # is taken back by attempt #", [i, a, 0], next);
        }
    }

    fn undo(&mut self, a: usize, i: usize, wire: Wire) {
        if matches!(wire.undo, Undo::None | Undo::Acknowledged) {
            return;
        }
        let mut next = *self.state;
        let had = usize::from(next.nodes[i].owner) == a + 1;
        if had {
            next.nodes[i].owner = 0;
        }
        if wire.undo == Undo::Abandon || wire.undo == Undo::Either && !had {
            next.nodes[i].buried |= 1 << a;
        }
        next.attempts[a].wires[i].undo = Undo::Acknowledged;
        self.step("node # undoes attempt #", [i, a, 0], next);
    }

    // ---- what a node does by itself

    fn of_node(&mut self, i: usize) {
        let node = self.state.nodes[i];
        if let Some(owner) = usize::from(node.owner).checked_sub(1) {
            let mut next = *self.state;
            next.nodes[i].owner = 0;
            if !self.protocol.timed || self.state.attempts[owner].phase == Phase::Done {
                self.step("node # frees itself of attempt #", [i, owner, 0], next);
            } else if self.protocol.forces {
                next.attempts[owner].forced = true;
                self.step("node # is forced to free itself of attempt #", [i, owner, 0], next);
            }
        }
        if self.protocol.memory != Memory::Kept && self.state.crashes < self.protocol.crashes {
            self.restart(i);
        }
        let over = |b: usize| self.state.attempts[b].phase == Phase::Done;
        let still = (0..self.protocol.attempts).filter(|b| node.forgot >> b & 1 == 1 && !over(*b));
        let still = still.fold(0, |all, b| all | 1 << b);
        if still != node.forgot {
            let mut next = *self.state;
            next.nodes[i].forgot = still;
            self.step("node # has waited", [i, 0, 0], next);
        }
    }

    fn restart(&mut self, i: usize) {
        let mut next = *self.state;
        next.crashes += 1;
        next.nodes[i] = Node::default();
        if self.protocol.memory == Memory::LostWithWait {
            let live = |b: &usize| matches!(self.state.attempts[*b].phase, Phase::Asking | Phase::Held);
            next.nodes[i].forgot = (0..self.protocol.attempts).filter(live).fold(0, |all, b| all | 1 << b);
        }
        for attempt in &mut next.attempts {
            if attempt.wires[i].answer == Answer::Kept {
                attempt.wires[i].answer = Answer::KeptAndForgotten;
            }
        }
        self.step("node # restarts empty", [i, 0, 0], next);
    }
}

/// Sends raises; those to a fence that is raised to already belong to the same round.
fn raise(attempt: &mut Attempt, nodes: NodeSet, fence: u8) {
    let fits = |round: &usize| {
        let unused = nodes.iter().all(|i| attempt.wires[i].raise(*round) == 0);
        attempt.rounds[*round] == 0 || attempt.rounds[*round] == fence && unused
    };
    let round = (0..ROUNDS).find(fits).expect("an election raises a few times");
    attempt.rounds[round] = fence;
    nodes.iter().for_each(|i| attempt.wires[i].set_raise(round, RAISE_SENT));
}
