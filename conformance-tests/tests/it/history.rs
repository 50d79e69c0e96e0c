//! What the judge of histories finds, and what it leaves alone.

use std::time::Duration;

use tenure_conformance::history::{Assumption, Grant, Violation, check};

fn grant(fence: u64, asked: u64, granted: u64, ended: u64) -> Grant {
    let ms = Duration::from_millis;
    Grant {
        client: 0,
        fence,
        asked_at: ms(asked),
        granted_at: ms(granted),
        valid_until: ms(granted + 50),
        ended_at: ms(ended),
    }
}

#[test]
fn a_clean_history_is_clean() {
    let grants = [grant(1, 0, 10, 20), grant(2, 5, 20, 30), grant(7, 31, 32, 40)];
    assert!(check(&grants, Some(Duration::from_millis(60)), Assumption::Timed).is_empty());
}

#[test]
fn each_rule_finds_its_violation() {
    let of = |grants: &[Grant]| check(grants, None, Assumption::Timed);
    assert!(matches!(of(&[grant(1, 0, 1, 2), grant(1, 3, 4, 5)])[0], Violation::SameFence(..)));
    assert!(matches!(of(&[grant(5, 0, 1, 2), grant(4, 3, 4, 5)])[0], Violation::FenceInversion(..)));
    assert!(matches!(of(&[grant(1, 0, 1, 9), grant(2, 3, 4, 5)])[0], Violation::Overlap(..)));
    assert!(matches!(of(&[grant(5, 0, 3, 4), grant(4, 0, 5, 6)])[0], Violation::HoldOrder(..)));
    let stillborn = Grant { valid_until: Duration::from_millis(1), ..grant(1, 0, 2, 3) };
    assert!(matches!(of(&[stillborn])[0], Violation::Stillborn(_)));
    let long = check(&[grant(1, 0, 2, 3)], Some(Duration::from_millis(40)), Assumption::Timed);
    assert!(matches!(long[0], Violation::LongWindow(_)));
}

#[test]
fn overlap_is_not_judged_when_clocks_and_data_are_not_trusted() {
    assert!(check(&[grant(1, 0, 1, 9), grant(2, 3, 4, 5)], None, Assumption::Asynchronous).is_empty());
}
