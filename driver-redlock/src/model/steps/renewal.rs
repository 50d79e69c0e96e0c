//! The renewal of a hold, answer by answer.

use super::Steps;
use crate::model::mind::{Input, Output};
use crate::model::protocol::{Answer, Attempt, Heal, Label, Phase, Step};
use crate::quorum::{RenewTally, Verdict};

impl Steps<'_> {
    pub(super) fn renew(&mut self, a: usize, i: usize) {
        let mine = usize::from(self.state.nodes[i].owner) == a + 1;
        let answer = if mine { Answer::Kept } else { Answer::Gone };
        self.answer(a, i, answer, "node # answers the renewal of attempt #");
        if self.protocol.faults {
            self.answer(a, i, Answer::Failed, "node # does not answer the renewal of attempt #");
        }
    }

    fn answer(&mut self, a: usize, i: usize, answer: Answer, text: &'static str) {
        let mut next = *self.state;
        let attempt = &mut next.attempts[a];
        attempt.wires[i].answer = answer;
        match answer {
            Answer::Kept => self.think(attempt, Input::Renewed { node: i }),
            Answer::Gone => self.think(attempt, Input::Gone { node: i }),
            _ => Output::Nothing,
        };
        let (tally, missing) = self.tally(attempt);
        let is_kept = |answer| matches!(answer, Answer::Kept | Answer::KeptAndForgotten);
        let believed = match self.protocol.renewal_needs_majority {
            true => matches!(tally.verdict(), Verdict::Kept(_)),
            false => attempt.wires.iter().any(|wire| is_kept(wire.answer)),
        };
        let held = attempt.phase == Phase::Held;
        let mut wrong = None;
        for gone in tally.to_heal().iter().filter(|gone| attempt.wires[*gone].heal == Heal::None).collect::<Vec<_>>() {
            if self.think(attempt, Input::Heal { node: gone }) == (Output::Heal { sent: true }) {
                attempt.wires[gone].heal = Heal::Sent;
                wrong = (!held).then_some("a lost hold is taken back");
            }
        }
        if held && believed && !attempt.renewed {
            attempt.renewed = true;
            let rests_on = attempt.wires.map(|wire| wire.answer == Answer::KeptAndForgotten);
            // The belief does not rest any more on what other nodes have forgotten.
            for (node, _) in next.nodes.iter_mut().zip(rests_on).filter(|(_, rests)| !rests) {
                node.forgot &= !(1 << a);
            }
        }
        let attempt = &mut next.attempts[a];
        if held && tally.verdict() == Verdict::Lost && self.protocol.renewal_needs_majority {
            self.end(attempt, true);
        }
        if missing == 0 {
            let mind = attempt.mind;
            self.forget(attempt);
            attempt.mind = if attempt.phase == Phase::Held { mind } else { 0 };
        }
        self.found.push(Step { label: Label(text, [i, a, 0]), next, wrong });
    }

    /// The driver's count of the answers so far, and how many are missing.
    fn tally(&self, attempt: &Attempt) -> (RenewTally<u8>, usize) {
        let (mut tally, mut missing) = (RenewTally::new(self.protocol.nodes), 0);
        for (node, wire) in attempt.wires.iter().enumerate().take(self.protocol.nodes) {
            match wire.answer {
                Answer::None => missing += 1,
                Answer::Kept | Answer::KeptAndForgotten => tally.kept(1),
                Answer::Gone => tally.lost(node),
                Answer::Failed => tally.failed(),
            }
        }
        (tally, missing)
    }
}
