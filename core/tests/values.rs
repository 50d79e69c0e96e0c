//! What values take, and what they refuse.

use std::time::Duration;

use tenure_core::{DriftBound, ErrorKind, Jitter, OwnerToken, RetryPolicy};

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
