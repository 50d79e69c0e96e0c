//! The state of one acquisition at each node: the requests sent, the votes granted, and the requests that may yet
//! arrive. No time, no I/O.

use tenure_core::FencingToken;
use tenure_core::driver::Begun;

use crate::node_set::NodeSet;

/// The known state of one acquisition, node by node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct AttemptState {
    /// Where the present token has been sent.
    asked: NodeSet,
    granted: NodeSet,
    /// Where a vote may have been or may yet be cast that we do not know of.
    unknown: NodeSet,
    healing: NodeSet,
    /// Where two votes were sent and one of them was never answered: any later answer may belong to either.
    doubted: NodeSet,
    /// Where the present token was sent once more while a vote was not heard of.
    repeated: NodeSet,
    /// Set while it is held, if it was won here.
    fence: Option<FencingToken>,
    /// Held, and won by another process.
    adopted: bool,
    /// Released, lost or abandoned: nothing may be won for it any more.
    ended: bool,
}

/// What became of a vote that was to take a node back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Healed {
    Granted,
    Refused,
    NotSent,
    /// It failed, and was surely not applied.
    NotApplied,
    /// It may still be applied.
    Unknown,
}

/// How a token is undone at a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Undo {
    /// The node's answer is known: its lease is ended.
    Release,
    /// A request may still be on its way: it is refused when it arrives.
    Abandon,
    /// One request may still be on its way, and the driver has to know whether the node had the lock. So it ends the
    /// lease, and the answer shows it. If the lock was held, that request had arrived; else it is refused when it
    /// arrives.
    ReleaseOrAbandon,
    /// The same, when several requests may be on their way: they are refused, whatever the release answers.
    ReleaseAndAbandon,
}

impl Undo {
    /// Whether the node reports if it had the lock.
    pub(crate) fn tells(self) -> bool {
        self != Self::Abandon
    }
}

impl AttemptState {
    pub(crate) fn asked(&self) -> NodeSet {
        self.asked
    }

    pub(crate) fn granted(&self) -> NodeSet {
        self.granted
    }

    /// Where a vote may have been or may yet be cast that we do not know of.
    pub(crate) fn unknown(&self) -> NodeSet {
        self.unknown.or(self.doubted)
    }

    /// Whether it is held.
    pub(crate) fn is_held(&self) -> bool {
        self.adopted || self.fence.is_some()
    }

    /// The fence of the hold; `None` unless it is held and was won here.
    pub(crate) fn fence(&self) -> Option<FencingToken> {
        self.fence
    }

    /// A vote is sent to the node.
    pub(crate) fn ask(&mut self, node: usize) {
        self.asked.insert(node);
        // With two votes on their way, an answer to one says nothing about the other.
        if self.unknown.contains(node) {
            self.repeated.insert(node);
        }
        self.unknown.insert(node);
    }

    /// The node granted.
    pub(crate) fn settle_granted(&mut self, node: usize) {
        self.settle(node);
        self.granted.insert(node);
    }

    /// The node did not grant, and will not grant for any request sent so far.
    pub(crate) fn settle_refused(&mut self, node: usize) {
        self.settle(node);
        self.granted.remove(node);
    }

    /// An answer was heard. While a node is being taken back, it may be that of the vote before.
    fn settle(&mut self, node: usize) {
        if !self.healing.contains(node) {
            self.unknown.remove(node);
        }
    }

    /// The node does not have it any more, whatever is still on its way there.
    pub(crate) fn settle_gone(&mut self, node: usize) {
        self.granted.remove(node);
    }

    /// The election is won by these nodes, with this fence. Not if the acquisition has ended meanwhile.
    pub(crate) fn win(&mut self, fence: FencingToken, granted: NodeSet) -> bool {
        if !self.ended {
            (self.fence, self.granted) = (Some(fence), granted);
        }
        !self.ended
    }

    /// A majority keeps it. Whether that is news: it was won by another process.
    pub(crate) fn adopt(&mut self) -> bool {
        let is_news = !self.ended && !self.is_held();
        self.adopted |= is_news;
        is_news
    }

    /// It is held no more, and may be asked for anew.
    pub(crate) fn drop_hold(&mut self) {
        (self.fence, self.adopted) = (None, false);
    }

    /// It ends: nothing can be won or taken back for it from now on.
    pub(crate) fn end(&mut self) {
        self.ended = true;
    }

    /// How a hold that has ended is given back at the node.
    pub(crate) fn give_back(&self, node: usize) -> Undo {
        if self.doubted.or(self.repeated.and(self.unknown)).contains(node) {
            Undo::ReleaseAndAbandon
        } else if self.unknown.contains(node) {
            Undo::ReleaseOrAbandon
        } else {
            Undo::Release
        }
    }

    /// Gives up the present tokens at these nodes. Returns where the answer is known and a release is enough; anywhere
    /// else a vote may be on its way, and has to be refused when it arrives.
    pub(crate) fn spoil(&mut self, which: NodeSet) -> NodeSet {
        let sure = self.granted.without(self.unknown()).and(which);
        self.asked = self.asked.without(which);
        self.granted = self.granted.without(which);
        self.unknown = self.unknown.without(which);
        self.doubted = self.doubted.without(which);
        self.repeated = self.repeated.without(which);
        sure
    }

    /// Whether the node is to be taken back. A node is asked once at a time.
    pub(crate) fn begin_healing(&mut self, node: usize) -> bool {
        let done = self.ended || self.healing.contains(node) || self.granted.contains(node);
        let begins = self.is_held() && !done;
        if begins {
            self.healing.insert(node);
        }
        begins
    }

    /// Whether the vote that takes the node back is sent still: not when the hold has ended since.
    pub(crate) fn send_healing(&mut self, node: usize) -> bool {
        if self.ended {
            return false;
        }
        if self.unknown.contains(node) {
            self.doubted.insert(node);
        }
        self.unknown.insert(node); // a release from here on abandons
        true
    }

    /// What became of it.
    pub(crate) fn settle_healing(&mut self, node: usize, healed: Healed) {
        self.healing.remove(node);
        match healed {
            Healed::Granted if !self.ended => self.settle_granted(node),
            Healed::Refused if !self.ended => self.settle_refused(node),
            Healed::NotApplied => self.unknown.remove(node),
            Healed::Unknown => self.doubted.insert(node),
            Healed::Granted | Healed::Refused | Healed::NotSent => {}
        }
    }
}

/// Whether a grant counts in the round that asked for it. One that an earlier request took, late, began at a time that is
/// not known; it counts only where this round was the first to send the token.
pub(crate) fn counts(begun: Begun, asked_before: bool) -> bool {
    begun == Begun::Now || !asked_before
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fence() -> FencingToken {
        FencingToken::new(7).unwrap()
    }

    fn all() -> NodeSet {
        NodeSet::of(0).or(NodeSet::of(1)).or(NodeSet::of(2))
    }

    /// Nodes 0 and 1 have granted, and node 2 has not answered.
    fn won() -> AttemptState {
        let mut attempt_state = AttemptState::default();
        (0..3).for_each(|node| attempt_state.ask(node));
        (0..2).for_each(|node| attempt_state.settle_granted(node));
        assert!(attempt_state.win(fence(), attempt_state.granted()));
        attempt_state
    }

    #[test]
    fn one_vote_on_its_way_is_undone_by_the_release_that_finds_it_and_two_are_refused() {
        let mut attempt_state = won();
        assert_eq!((0..3).map(|node| attempt_state.give_back(node)).collect::<Vec<_>>(), {
            [Undo::Release, Undo::Release, Undo::ReleaseOrAbandon]
        });
        attempt_state.ask(2);
        assert_eq!(attempt_state.give_back(2), Undo::ReleaseAndAbandon, "either of the two may come later");
        attempt_state.settle_refused(2);
        attempt_state.ask(2);
        assert_eq!(attempt_state.give_back(2), Undo::ReleaseAndAbandon, "the one that was not heard of still may");
        attempt_state.spoil(NodeSet::of(2));
        attempt_state.ask(2);
        assert_eq!(attempt_state.give_back(2), Undo::ReleaseOrAbandon, "it is another token");
        let mut healing = won();
        assert!(healing.begin_healing(2) && healing.send_healing(2));
        assert_eq!(healing.give_back(2), Undo::ReleaseAndAbandon, "the vote before was not heard of");
        healing.settle_granted(1);
        healing.settle_gone(1);
        assert!(healing.begin_healing(1) && healing.send_healing(1));
        assert_eq!(healing.give_back(1), Undo::ReleaseOrAbandon);
    }

    #[test]
    fn what_is_given_up_at_a_node_is_known_of_it_no_more() {
        let mut attempt_state = won();
        let [first, others] = [NodeSet::of(0), NodeSet::of(1).or(NodeSet::of(2))];
        assert_eq!(attempt_state.spoil(others), NodeSet::of(1), "a vote of the other one may be on its way");
        assert_eq!((attempt_state.granted(), attempt_state.unknown()), (first, NodeSet::default()));
        assert!(attempt_state.begin_healing(1) && !attempt_state.begin_healing(0));
    }

    #[test]
    fn a_node_that_refuses_has_granted_nothing() {
        let mut attempt_state = won();
        attempt_state.settle_refused(1);
        assert_eq!((attempt_state.granted(), attempt_state.unknown()), (NodeSet::of(0), NodeSet::of(2)));
    }

    #[test]
    fn a_hold_that_is_dropped_is_held_no_more_and_may_be_won_anew() {
        let mut adopted = AttemptState::default();
        assert!(adopted.adopt() && !adopted.adopt(), "that is news once");
        for mut attempt_state in [won(), adopted] {
            assert!(attempt_state.is_held());
            attempt_state.drop_hold();
            assert_eq!((attempt_state.is_held(), attempt_state.fence()), (false, None));
            assert!(attempt_state.win(fence(), all()));
        }
        let mut ended = AttemptState::default();
        ended.end();
        assert!(!ended.adopt() && !ended.is_held() && !ended.win(fence(), all()), "it is over");
    }

    #[test]
    fn a_node_is_taken_back_once_at_a_time_for_what_is_held_and_where_it_is_not() {
        let mut attempt_state = won();
        assert!(!attempt_state.begin_healing(0), "it has it");
        assert!(attempt_state.begin_healing(2) && !attempt_state.begin_healing(2), "it is on its way");
        attempt_state.settle_healing(2, Healed::NotSent);
        assert!(attempt_state.begin_healing(2));
        let mut nothing = AttemptState::default();
        assert!(!nothing.begin_healing(2), "nothing is held");
        let mut ended = won();
        assert!(ended.begin_healing(2));
        ended.end();
        assert!(!ended.send_healing(2) && !ended.begin_healing(1));
        let mut ended = won();
        ended.end();
        assert!(!ended.begin_healing(2), "it is over");
        let mut lost = won();
        assert!(!lost.begin_healing(0));
        lost.settle_gone(0);
        assert!(lost.begin_healing(0), "nothing had begun");
    }

    #[test]
    fn what_is_heard_of_a_node_that_is_taken_back_counts_until_the_end() {
        let heard = |healed, ended: bool| {
            let mut attempt_state = won();
            attempt_state.settle_refused(2);
            assert!(
                attempt_state.begin_healing(2) && attempt_state.send_healing(2) && attempt_state.unknown().contains(2)
            );
            if ended {
                attempt_state.end();
            }
            attempt_state.settle_healing(2, healed);
            (attempt_state.granted().contains(2), attempt_state.unknown().contains(2))
        };
        assert_eq!(heard(Healed::Granted, false), (true, false));
        assert_eq!(heard(Healed::Refused, false), (false, false));
        assert_eq!(heard(Healed::NotApplied, false), (false, false));
        assert_eq!(heard(Healed::Unknown, false), (false, true));
        assert_eq!(heard(Healed::Granted, true), (false, true));
        assert_eq!(heard(Healed::Refused, true), (false, true));
    }
}
