//! The driver's conclusions from the answers to a release.

use tenure_core::driver::Released;

use super::Steps;
use crate::node_set::NodeSet;
use crate::quorum::{Freed, ReleaseTally, majority};

impl Steps<'_> {
    /// The error in the driver's verdict on a release, if all nodes receive it at once.
    pub(super) fn misjudged(&self, a: usize, tell: NodeSet) -> Option<&'static str> {
        let n = self.protocol.nodes;
        let has = |i: &usize| usize::from(self.state.nodes[*i].owner) == a + 1;
        let mut tally = ReleaseTally::default();
        let before = tally.ask(n);
        for i in 0..n {
            let reported = if has(&i) { Released::Released } else { Released::NotHeld };
            tally.heard(i, tell.contains(i).then_some(reported));
        }
        let verdict = match tally.verdict(before, n) {
            Freed::Open => tally.final_verdict(before, n),
            verdict => verdict,
        };
        let held = (0..n).filter(has).count() >= majority(n);
        let right = if held { Freed::Released } else { Freed::NotHeld };
        (verdict != right).then_some(match held {
            true => "a release says that what a majority serves is not held",
            false => "a release says that what no majority serves is held",
        })
    }
}
