//! When a program has to end because its lock does: a decision by the clock, apart from the code that acts on it.

use std::time::Duration;

use tenure::{HoldState, LostReason};
use tokio::time::Instant;

/// How long a program has after a proof that its lock is gone: it is too late for the next holder anyway.
const AFTER_PROOF: Duration = Duration::from_secs(1);
/// How often the lease is looked at, at least.
const LOOK: Duration = Duration::from_secs(1);

/// The next action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// Nothing, for that long.
    Wait(Duration),
    /// The program is asked to end: so much of the lease is left.
    Term(Duration),
    /// The program is asked to end, because another client may have the lock already.
    TermLate(LostReason),
    /// The program ends.
    Kill,
}

/// Watches one lease.
#[derive(Debug)]
pub(crate) struct Watchdog {
    term_before: Duration,
    /// The kill leaves that long before the end of the view, so that the program is dead when it ends.
    lead: Duration,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Calm,
    Warned { kill_at: Option<Instant> },
    Killed,
}

impl Watchdog {
    pub(crate) fn new(ttl: Duration, term_before: Duration) -> Self {
        let lead = (ttl / 50).min(Duration::from_millis(20));
        Self { term_before: term_before.max(lead), lead, phase: Phase::Calm }
    }

    /// Whether the program was asked to end.
    pub(crate) fn has_acted(&self) -> bool {
        self.phase != Phase::Calm
    }

    /// Whether the program was killed.
    pub(crate) fn has_killed(&self) -> bool {
        self.phase == Phase::Killed
    }

    /// Records that the supervisor has killed the program.
    pub(crate) fn end(&mut self) {
        self.phase = Phase::Killed;
    }

    /// What a lease asks for, of which so much is left.
    pub(crate) fn act(&mut self, now: Instant, rest: Duration, state: HoldState) -> Act {
        let over = match state {
            HoldState::Lost(LostReason::Gone | LostReason::Closed) => None,
            HoldState::Lost(_) => Some(true),
            HoldState::Held | HoldState::Suspect | HoldState::Released => Some(rest <= self.lead),
        };
        match (self.phase, over) {
            (Phase::Killed, _) => Act::Wait(LOOK),
            (Phase::Calm, None) => {
                self.phase = Phase::Warned { kill_at: Some(now + AFTER_PROOF) };
                let HoldState::Lost(reason) = state else { return Act::Wait(LOOK) };
                Act::TermLate(reason)
            }
            (_, Some(true)) => self.kill(),
            (Phase::Calm, Some(false)) if rest <= self.term_before => {
                self.phase = Phase::Warned { kill_at: None };
                Act::Term(rest)
            }
            (Phase::Calm, Some(false)) => Act::Wait((rest - self.term_before).min(LOOK)),
            (Phase::Warned { kill_at: Some(at) }, _) if now >= at => self.kill(),
            (Phase::Warned { kill_at: Some(at) }, _) => Act::Wait(at - now),
            (Phase::Warned { kill_at: None }, Some(false)) => Act::Wait((rest - self.lead).min(LOOK)),
            (Phase::Warned { kill_at: None }, None) => {
                self.phase = Phase::Warned { kill_at: Some(now + AFTER_PROOF) };
                Act::Wait(AFTER_PROOF)
            }
        }
    }

    fn kill(&mut self) -> Act {
        self.phase = Phase::Killed;
        Act::Kill
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(2);
    const QUARTER: Duration = Duration::from_millis(500);

    fn millis(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn term_leaves_before_the_end_and_kill_at_the_end() {
        let (mut dog, now) = (Watchdog::new(TTL, QUARTER), Instant::now());
        assert_eq!(dog.act(now, millis(1900), HoldState::Held), Act::Wait(LOOK));
        assert_eq!(dog.act(now, millis(900), HoldState::Suspect), Act::Wait(millis(400)));
        assert!(!dog.has_acted());
        assert_eq!(dog.act(now, millis(500), HoldState::Suspect), Act::Term(QUARTER));
        assert_eq!(dog.act(now, millis(499), HoldState::Suspect), Act::Wait(millis(479)));
        assert_eq!(dog.act(now, millis(20), HoldState::Suspect), Act::Kill);
        assert_eq!(dog.act(now, millis(0), HoldState::Lost(LostReason::Expired)), Act::Wait(LOOK));
        assert!(dog.has_acted());
    }

    #[test]
    fn a_renewal_after_term_puts_off_the_kill() {
        let (mut dog, now) = (Watchdog::new(TTL, QUARTER), Instant::now());
        assert_eq!(dog.act(now, millis(400), HoldState::Suspect), Act::Term(millis(400)));
        assert_eq!(dog.act(now, millis(1900), HoldState::Held), Act::Wait(LOOK));
    }

    #[test]
    fn a_proof_of_loss_is_term_and_a_second_later_kill() {
        let (mut dog, now) = (Watchdog::new(TTL, QUARTER), Instant::now());
        let gone = HoldState::Lost(LostReason::Gone);
        assert_eq!(dog.act(now, Duration::ZERO, gone), Act::TermLate(LostReason::Gone));
        assert_eq!(dog.act(now + millis(400), Duration::ZERO, gone), Act::Wait(millis(600)));
        assert_eq!(dog.act(now + millis(1000), Duration::ZERO, gone), Act::Kill);
    }

    #[test]
    fn a_lease_that_ended_in_our_absence_is_killed_for_at_once() {
        for reason in [LostReason::Expired, LostReason::MaxHold] {
            let mut dog = Watchdog::new(TTL, QUARTER);
            assert_eq!(dog.act(Instant::now(), Duration::ZERO, HoldState::Lost(reason)), Act::Kill, "{reason:?}");
        }
    }

    #[test]
    fn the_shortest_leases_have_a_lead_as_well() {
        let mut dog = Watchdog::new(millis(10), millis(0));
        assert_eq!(dog.act(Instant::now(), Duration::from_micros(150), HoldState::Held), Act::Kill);
    }
}
