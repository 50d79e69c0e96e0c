//! What values take, and what they refuse.

use std::time::Duration;

use tenure_core::queue::{Jitter, RetryPolicy};
use tenure_core::{DriftBound, ErrorKind, FenceGate, FencingToken, OwnerToken};

#[test]
fn a_drift_bound_is_at_most_half_and_a_second() {
    let second = Duration::from_secs(1);
    assert!(DriftBound::new(0.5, second).is_ok());
    for (rate, fixed) in [(0.51, second), (-0.01, second), (f64::NAN, second), (0.0, second + Duration::from_nanos(1))]
    {
        assert_eq!(DriftBound::new(rate, fixed).unwrap_err().kind(), ErrorKind::InvalidArgument, "{rate} {fixed:?}");
    }
}

#[test]
fn a_token_is_the_text_of_sixteen_bytes() {
    let sixteen = "AAAAAAAAAAAAAAAAAAAAAA";
    assert!(OwnerToken::parse(sixteen).is_ok());
    for fewer in ["", "AAAA", &sixteen[..20]] {
        assert!(OwnerToken::parse(fewer).is_err(), "{fewer}");
    }
}

#[test]
fn half_of_a_wait_is_left_to_chance() {
    let second = Duration::from_secs(1);
    let policy = RetryPolicy::fixed(second).jitter(Jitter::Half);
    let waits = [0.0, 0.5, 1.0].map(|chance| policy.wait(1, chance));
    assert_eq!(waits, [second / 2, second * 3 / 4, second]);
}

#[test]
fn a_gate_admits_a_fence_as_often_as_it_comes_until_it_has_seen_a_greater_one() {
    let (gate, fence) = (FenceGate::new(), |number| FencingToken::new(number).unwrap());
    assert_eq!([5, 5, 7, 7].map(|number| gate.admit(fence(number)).is_ok()), [true; 4]);
    let stale = gate.admit(fence(6)).unwrap_err();
    assert_eq!((stale.offered, stale.seen, gate.seen()), (fence(6), fence(7), Some(fence(7))));
}
