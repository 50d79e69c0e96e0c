//! Tables of answers and what they come to, for quorums of one to nine nodes.

use super::*;

fn grant(node: usize, fence: u64) -> Event {
    Event::Granted { node, fence }
}

fn refuse(node: usize) -> Event {
    Event::Refused { node }
}

fn fail(node: usize) -> Event {
    Event::Failed { node }
}

fn nodes(all: &[usize]) -> NodeSet {
    all.iter().fold(NodeSet::EMPTY, |set, node| with(set, *node))
}

/// Takes the events in and returns the last decision; the ones before must all be to wait.
fn last(election: &mut Election, events: impl IntoIterator<Item = Event>) -> Decision {
    let mut decision = Decision::Wait;
    for event in events {
        assert_eq!(decision, Decision::Wait, "decided before {event:?}");
        decision = election.take(event);
    }
    decision
}

#[test]
fn majorities_of_one_to_nine() {
    let expected = [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (6, 4), (7, 4), (8, 5), (9, 5)];
    for (n, needed) in expected {
        assert_eq!(majority(n), needed, "{n} nodes");
        assert!(2 * needed > n, "two majorities of {n} share a node");
    }
}

#[test]
fn won_in_one_round_as_soon_as_a_majority_agrees() {
    for n in 1..=9 {
        let mut election = Election::new(n);
        let decision = last(&mut election, (0..majority(n)).map(|node| grant(node, 7)));
        assert_eq!(decision, Decision::Won { fence: 7 }, "{n} nodes");
        assert_eq!(election.pending().len(), n - majority(n), "nobody waits for the rest");
    }
}

/// Every mixture of answers for every size: the verdict is the one that counting by hand gives, in whatever order the
/// answers come, and never later than the last answer.
#[test]
fn every_mixture_of_answers_is_decided_as_counted_by_hand() {
    for n in 1..=9 {
        for granted in 0..=n {
            for refused in 0..=n - granted {
                let failed = n - granted - refused;
                let expected = if granted >= majority(n) {
                    Decision::Won { fence: 3 }
                } else if n - failed >= majority(n) {
                    Decision::Lost(Defeat::Busy)
                } else {
                    Decision::Lost(Defeat::Faults)
                };
                for turn in 0..n {
                    let answer = |node: usize| match (node + turn) % n {
                        i if i < granted => grant(node, 3),
                        i if i < granted + refused => refuse(node),
                        _ => fail(node),
                    };
                    let mut election = Election::new(n);
                    let decision =
                        (0..n).map(|node| election.take(answer(node))).find(|decision| *decision != Decision::Wait);
                    let decision = decision.unwrap_or(Decision::Wait);
                    let early_busy =
                        decision == Decision::Lost(Defeat::Busy) && expected == Decision::Lost(Defeat::Faults);
                    assert!(
                        decision == expected || early_busy,
                        "{n}: {granted}/{refused}/{failed} turned {turn}: {decision:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_majority_of_refusals_is_busy_and_of_faults_a_fault() {
    let table: [(usize, &[Event], Decision); 8] = [
        (1, &[refuse(0)], Decision::Lost(Defeat::Busy)),
        (1, &[fail(0)], Decision::Lost(Defeat::Faults)),
        (2, &[refuse(1)], Decision::Lost(Defeat::Busy)),
        (2, &[fail(1)], Decision::Lost(Defeat::Faults)),
        (3, &[fail(2), refuse(0)], Decision::Lost(Defeat::Busy)),
        (3, &[fail(2), fail(0)], Decision::Lost(Defeat::Faults)),
        (4, &[grant(0, 1), fail(1), grant(2, 1), refuse(3)], Decision::Lost(Defeat::Busy)),
        (4, &[grant(0, 1), fail(1), fail(2)], Decision::Lost(Defeat::Faults)),
    ];
    for (n, events, expected) in table {
        assert_eq!(last(&mut Election::new(n), events.iter().copied()), expected, "{n}: {events:?}");
    }
}

#[test]
fn half_is_not_a_majority() {
    for n in [2, 4, 6, 8] {
        let mut election = Election::new(n);
        let half = (0..n / 2).map(|node| grant(node, 1));
        assert_eq!(last(&mut election, half), Decision::Wait, "{n} nodes");
        let others = (n / 2..n).map(refuse);
        assert_eq!(last(&mut election, others), Decision::Lost(Defeat::Busy), "{n} nodes");
    }
}

#[test]
fn disagreement_is_raised_to_the_greatest_and_only_where_it_is_behind() {
    let mut election = Election::new(3);
    let decision = last(&mut election, [grant(0, 4), grant(2, 9)]);
    assert_eq!(decision, Decision::Raise { nodes: nodes(&[0]), fence: 9 });
    assert_eq!(election.take(Event::Raised { node: 0, fence: 9 }), Decision::Won { fence: 9 });
}

#[test]
fn a_late_vote_takes_part_in_the_agreement() {
    let mut election = Election::new(3);
    last(&mut election, [grant(0, 4), grant(2, 9)]);
    assert_eq!(election.clone().take(grant(1, 9)), Decision::Won { fence: 9 });
    assert_eq!(election.take(grant(1, 5)), Decision::Raise { nodes: nodes(&[1]), fence: 9 });
    assert_eq!(election.take(Event::NotOwner { node: 0 }), Decision::Wait);
    assert_eq!(election.take(Event::Raised { node: 1, fence: 9 }), Decision::Won { fence: 9 });
}

#[test]
fn a_counter_that_is_ahead_is_agreed_on_in_the_next_round_and_never_just_believed() {
    let mut election = Election::new(3);
    last(&mut election, [refuse(1), grant(0, 4), grant(2, 9)]);
    let ahead = Event::Beyond { node: 0, fence: 9, counter: 12 };
    assert_eq!(election.take(ahead), Decision::Raise { nodes: nodes(&[0, 2]), fence: 12 });
    assert_eq!(election.take(Event::Raised { node: 2, fence: 9 }), Decision::Wait, "an answer of the round before");
    assert_eq!(election.take(Event::Raised { node: 2, fence: 12 }), Decision::Wait);
    assert_eq!(election.take(Event::Raised { node: 0, fence: 12 }), Decision::Won { fence: 12 });
}

#[test]
fn raising_ends_after_three_rounds() {
    let mut election = Election::new(1);
    let mut counter = 5;
    let mut election2 = Election::new(2);
    assert_eq!(last(&mut election, [grant(0, 5)]), Decision::Won { fence: 5 });
    last(&mut election2, [grant(0, 1), grant(1, counter)]);
    for round in 1..=3 {
        let beyond = Event::Beyond { node: 0, fence: counter, counter: counter + 1 };
        counter += 1;
        match election2.take(beyond) {
            Decision::Raise { fence, .. } => assert!(fence == counter && round < 3, "round {round}"),
            decision => assert_eq!((decision, round), (Decision::Lost(Defeat::Busy), 3)),
        }
    }
}

#[test]
fn a_majority_that_is_not_ours_any_more_when_raising_is_lost() {
    let mut election = Election::new(3);
    last(&mut election, [refuse(1), grant(0, 4), grant(2, 9)]);
    assert_eq!(election.take(Event::NotOwner { node: 0 }), Decision::Lost(Defeat::Busy));
    assert_eq!(election.ask_again(), nodes(&[0, 1]), "somebody else has it there");

    let mut election = Election::new(3);
    last(&mut election, [fail(1), grant(0, 4), grant(2, 9)]);
    assert_eq!(election.take(Event::RaiseFailed { node: 0 }), Decision::Lost(Defeat::Faults));
    assert_eq!(election.granted(), nodes(&[0, 2]), "both are to be released");
}

#[test]
fn one_node_of_another_electorate_spoils_the_election() {
    let mut election = Election::new(5);
    assert_eq!(election.take(grant(0, 1)), Decision::Wait);
    assert_eq!(election.take(Event::Elsewhere { node: 3 }), Decision::Lost(Defeat::Elsewhere));
}

#[test]
fn who_refused_may_be_asked_again() {
    let mut election = Election::new(3);
    assert_eq!(last(&mut election, [grant(0, 2), refuse(1), refuse(2)]), Decision::Lost(Defeat::Busy));
    assert_eq!(election.ask_again(), nodes(&[1, 2]));
    assert_eq!(election.take(grant(2, 2)), Decision::Won { fence: 2 });
}

#[test]
fn a_renewal_needs_a_majority_of_all_nodes_and_tells_a_proven_loss() {
    for n in 1..=9 {
        let mut all = RenewTally::new(n);
        for i in 1..majority(n) {
            all.kept(100 + i);
            assert_eq!(all.verdict(), Verdict::Wait, "{n} nodes");
        }
        all.kept(50);
        assert_eq!(all.verdict(), Verdict::Kept(50), "the majority keeps it only as long as its shortest lease");
        let most_lost = n - majority(n);
        let mut lost = RenewTally::<u32>::new(n);
        for node in 0..most_lost {
            lost.lost(node);
            assert_eq!(lost.verdict(), Verdict::Wait, "{n} nodes");
        }
        let mut unknown = lost.clone();
        lost.lost(most_lost);
        assert_eq!(lost.verdict(), Verdict::Lost, "{n} nodes");
        for i in most_lost..n {
            unknown.failed();
            let expected = if i + 1 == n { Verdict::Unknown } else { Verdict::Wait };
            assert_eq!(unknown.verdict(), expected, "a fault is not a proof");
            assert_eq!(unknown.to_heal(), NodeSet::EMPTY, "what may be lost is taken back nowhere");
        }
    }
    let mut three = RenewTally::new(3);
    [10, 30, 20].into_iter().for_each(|ttl| three.kept(ttl));
    assert_eq!(three.verdict(), Verdict::Kept(20), "with one more answer the majority keeps it longer");
}

#[test]
fn a_release_is_judged_over_several_tries() {
    let mut tally = ReleaseTally::default();
    tally.released(0);
    tally.not_held(1);
    assert_eq!(tally.verdict(ReleaseTally::default(), 3), Freed::Open);
    tally.not_held(0); // a second try finds what the first has done
    assert_eq!(tally.verdict(ReleaseTally::default(), 3), Freed::Open);
    assert_eq!(tally.answered(), nodes(&[0, 1]));
    tally.released(2);
    assert_eq!(tally.verdict(ReleaseTally::default(), 3), Freed::Released);
    for n in 1..=9 {
        let mut tally = ReleaseTally::default();
        (0..=n - majority(n)).for_each(|node| tally.not_held(node));
        assert_eq!(tally.verdict(ReleaseTally::default(), n), Freed::NotHeld, "{n} nodes");
    }
}

#[test]
fn a_release_that_a_majority_answered_is_settled_although_the_rest_is_dead() {
    let mut tally = ReleaseTally::default();
    let first = tally.ask(3);
    tally.released(0);
    assert_eq!(tally.final_verdict(first, 3), Freed::Open, "two nodes may hold it still");
    let mut open = tally;
    open.not_held(1);
    assert_eq!(open.verdict(first, 3), Freed::Open);
    assert_eq!(open.final_verdict(first, 3), Freed::Released, "the dead one and the first were a majority");

    let mut five = ReleaseTally::default();
    let before = five.ask(5);
    five.released(0);
    five.not_held(1);
    five.not_held(2);
    assert_eq!(five.final_verdict(before, 5), Freed::Released, "with the two that are dead");
    five.released(3);
    let mut lost = ReleaseTally::default();
    let before = lost.ask(3);
    lost.not_held(0);
    lost.not_held(1);
    assert_eq!(lost.final_verdict(before, 3), Freed::NotHeld);
    let mut minority = ReleaseTally::default();
    minority.released(0);
    [1, 2, 3].into_iter().for_each(|node| minority.not_held(node));
    assert_eq!(
        minority.final_verdict(ReleaseTally::default(), 5),
        Freed::NotHeld,
        "the first and the dead one are two"
    );

    let mut again = ReleaseTally::default();
    again.ask(5);
    let before = again.ask(5); // nothing was heard of the first try
    again.released(0);
    [1, 2, 3].into_iter().for_each(|node| again.not_held(node));
    assert_eq!(again.final_verdict(before, 5), Freed::Released, "the first try may have released the others");
}

#[test]
fn a_node_that_says_it_has_the_lock_no_more_is_not_waited_for_and_does_not_count() {
    let beyond = Event::Beyond { node: 2, fence: 5, counter: 7 };
    let gone = Event::NotOwner { node: 1 };
    let mut election = Election::new(5);
    let raised = last(&mut election, [grant(0, 5), grant(1, 3), grant(2, 3)]);
    assert_eq!(raised, Decision::Raise { nodes: nodes(&[1, 2]), fence: 5 });
    let mut again = election.clone();
    for away in [gone, Event::RaiseFailed { node: 1 }] {
        assert_eq!(
            last(&mut election.clone(), [away, beyond, refuse(3)]),
            Decision::Raise { nodes: nodes(&[0, 2]), fence: 7 },
            "nobody is left who could agree on 5"
        );
    }
    let raised = |node| Event::Raised { node, fence: 5 };
    assert_eq!(last(&mut again, [raised(1), Event::NotOwner { node: 1 }, raised(2)]), Decision::Wait);
    assert_eq!(last(&mut again, [grant(3, 5)]), Decision::Won { fence: 5 });
}

#[test]
fn what_a_node_released_in_the_end_it_had() {
    let mut tally = ReleaseTally::default();
    let before = tally.ask(3);
    for (node, reported) in [(0, Released::NotHeld), (0, Released::Released), (1, Released::NotHeld)] {
        tally.heard(node, Some(reported));
    }
    assert_eq!(tally.verdict(before, 3), Freed::Open);
    tally.heard(2, Some(Released::Released));
    assert_eq!(tally.verdict(before, 3), Freed::Released);
}
