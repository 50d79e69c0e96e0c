//! The knowledge and decisions of a client of the model: the driver's own [`Election`] and [`AttemptState`], driven as a
//! round drives them. States of the search hold a number instead; a decision that was made once is not computed again.

use std::collections::HashMap;

use fnv::FnvHashMap;
use tenure_core::FencingToken;

use crate::attempt_state::{AttemptState, Healed, Undo};
use crate::node_set::NodeSet;
use crate::quorum::{Decision, Election, Event};

/// What a client gets to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Input {
    /// All nodes are asked to vote.
    Begin,
    Heard(Event),
    /// The election was lost, and the nodes that refused are asked once more.
    AskAgain,
    Win {
        fence: u8,
    },
    /// A vote arrived after the election was won.
    Late {
        node: usize,
    },
    Renewed {
        node: usize,
    },
    Gone {
        node: usize,
    },
    /// The renewal decides to take the node back.
    Heal {
        node: usize,
    },
    Healed {
        node: usize,
    },
    /// The vote that should take the node back did not arrive.
    HealUnheard {
        node: usize,
    },
    /// The lease is lost, or released.
    End,
    /// The votes of a lost election are given up.
    Spoil,
}

/// What a client does about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Output {
    Nothing,
    Election(Decision),
    /// The election was won, and the hold began or did not.
    Won(bool),
    /// The nodes to ask.
    Ask(NodeSet),
    Heal {
        sent: bool,
    },
    /// The nodes of each kind of undoing: a release alone; a release that is enough if it ended a lease; an abandonment
    /// in any case, which refuses late votes; and the nodes that report whether they had the lock.
    Undo {
        release: NodeSet,
        either: NodeSet,
        abandon: NodeSet,
        tell: NodeSet,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Mind {
    election: Election,
    attempt_state: AttemptState,
}

impl Mind {
    fn take(&mut self, nodes: usize, input: Input) -> Output {
        let Self { election, attempt_state } = self;
        match input {
            Input::Begin => {
                let all = NodeSet::first(nodes);
                all.iter().for_each(|node| attempt_state.ask(node));
                return Output::Ask(all);
            }
            Input::Heard(event) => {
                match event {
                    Event::Granted { node, .. } => attempt_state.settle_granted(node),
                    Event::Refused { node } | Event::NotOwner { node } => attempt_state.settle_refused(node),
                    _ => {}
                }
                return Output::Election(election.take(event));
            }
            Input::AskAgain => {
                let again = election.ask_again();
                again.iter().for_each(|node| attempt_state.ask(node));
                return Output::Ask(again);
            }
            Input::Win { fence } => {
                let fence = FencingToken::new(fence.into()).expect("a fence is not zero");
                return Output::Won(attempt_state.win(fence, election.granted()));
            }
            Input::Late { node } | Input::Renewed { node } => attempt_state.settle_granted(node),
            Input::Gone { node } => attempt_state.settle_gone(node),
            Input::Heal { node } => {
                let sent = attempt_state.begin_healing(node) && attempt_state.send_healing(node);
                return Output::Heal { sent };
            }
            Input::Healed { node } => attempt_state.settle_healing(node, Healed::Granted),
            Input::HealUnheard { node } => attempt_state.settle_healing(node, Healed::Unknown),
            Input::End => {
                let all = NodeSet::first(nodes);
                attempt_state.end();
                attempt_state.drop_hold();
                let which = |wanted: fn(Undo) -> bool| {
                    let some = all.iter().filter(|node| wanted(attempt_state.give_back(*node)));
                    some.fold(NodeSet::EMPTY, |all, node| all.or(NodeSet::of(node)))
                };
                let release = which(|undo| undo == Undo::Release);
                let either = which(|undo| undo == Undo::ReleaseOrAbandon);
                let abandon = all.without(release).without(either);
                return Output::Undo { release, either, abandon, tell: which(Undo::tells) };
            }
            Input::Spoil => {
                let which = attempt_state.granted().or(attempt_state.unknown());
                let release = attempt_state.spoil(which);
                let (abandon, none) = (which.without(release), NodeSet::EMPTY);
                return Output::Undo { release, either: none, abandon, tell: none };
            }
        }
        Output::Nothing
    }
}

/// A mind, by number. Zero means one that has nothing to think of.
pub(super) type Id = u16;

/// All minds that were met, and what they come to.
#[derive(Debug)]
pub(super) struct Minds {
    nodes: usize,
    /// With all inputs that led there, to repeat them with the nodes in another order.
    known: Vec<(Mind, Vec<Input>)>,
    ids: HashMap<Mind, Id>,
    decided: FnvHashMap<(Id, Input), (Id, Output)>,
    reordered: FnvHashMap<(Id, [u8; 4]), Id>,
}

impl Minds {
    pub(super) fn new(nodes: usize) -> Self {
        let blank = Mind { election: Election::new(nodes), attempt_state: AttemptState::default() };
        let ids = HashMap::from([(blank.clone(), 0)]);
        let known = vec![(blank, Vec::new())];
        Self { nodes, known, ids, decided: FnvHashMap::default(), reordered: FnvHashMap::default() }
    }

    /// What the mind makes of it, and what it becomes.
    pub(super) fn take(&mut self, id: Id, input: Input) -> (Id, Output) {
        if let Some(decided) = self.decided.get(&(id, input)) {
            return *decided;
        }
        let (mut mind, mut story) = self.known[usize::from(id)].clone();
        let output = mind.take(self.nodes, input);
        story.push(input);
        let decided = (self.id(mind, story), output);
        self.decided.insert((id, input), decided);
        decided
    }

    /// The same mind when node `i` is called `names[i]`.
    pub(super) fn reorder(&mut self, id: Id, names: [u8; 4]) -> Id {
        if id == 0 || names == [0, 1, 2, 3] {
            return id;
        }
        if let Some(reordered) = self.reordered.get(&(id, names)) {
            return *reordered;
        }
        let story = self.known[usize::from(id)].1.clone();
        let renamed = story.into_iter().map(|input| rename(input, |node| usize::from(names[node])));
        let other = renamed.fold(0, |id, input| self.take(id, input).0);
        self.reordered.insert((id, names), other);
        other
    }

    fn id(&mut self, mind: Mind, story: Vec<Input>) -> Id {
        let next = Id::try_from(self.known.len()).expect("fewer minds than 2^16");
        let known = &mut self.known;
        *self.ids.entry(mind).or_insert_with_key(|mind| {
            known.push((mind.clone(), story));
            next
        })
    }
}

fn rename(input: Input, name: impl Fn(usize) -> usize) -> Input {
    match input {
        Input::Heard(event) => Input::Heard(match event {
            Event::Granted { node, fence } => Event::Granted { node: name(node), fence },
            Event::Refused { node } => Event::Refused { node: name(node) },
            Event::Failed { node } => Event::Failed { node: name(node) },
            Event::Elsewhere { node } => Event::Elsewhere { node: name(node) },
            Event::Raised { node, fence } => Event::Raised { node: name(node), fence },
            Event::Beyond { node, fence, counter } => Event::Beyond { node: name(node), fence, counter },
            Event::NotOwner { node } => Event::NotOwner { node: name(node) },
            Event::RaiseFailed { node } => Event::RaiseFailed { node: name(node) },
        }),
        Input::Late { node } => Input::Late { node: name(node) },
        Input::Renewed { node } => Input::Renewed { node: name(node) },
        Input::Gone { node } => Input::Gone { node: name(node) },
        Input::Heal { node } => Input::Heal { node: name(node) },
        Input::Healed { node } => Input::Healed { node: name(node) },
        Input::HealUnheard { node } => Input::HealUnheard { node: name(node) },
        other => other,
    }
}
