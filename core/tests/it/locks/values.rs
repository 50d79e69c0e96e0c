//! What values take, and what they refuse.

use std::borrow::Cow;
use std::time::Duration;

use tenure_core::driver::{QueueRouter, one_line};
use tenure_core::queue::{Jitter, QueueName, Reason, RetryPolicy};
use tenure_core::{DriftBound, ErrorKind, FenceGate, FencingToken, LockName, OwnerToken};

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

#[test]
fn a_reason_has_at_most_256_bytes() {
    assert_eq!(Reason::MAX_LEN, 256);
    let longest = "x".repeat(256);
    assert_eq!(Reason::new(&longest).unwrap().as_str(), longest);
    assert_eq!(Reason::new(longest.clone() + "x").unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(Reason::beginning_of(&(longest.clone() + "x")).as_str(), longest);
}

#[test]
fn the_prefix_of_a_hashed_name_leaves_room_for_the_hash() {
    let longest = "x".repeat(LockName::MAX_LEN - 64);
    assert_eq!(LockName::hashed(&longest, "long").unwrap().as_bytes().len(), LockName::MAX_LEN);
    let error = LockName::hashed(longest + "x", "long").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("the prefix of a hashed name has 449 bytes, the most is 448"), "{error}");
}

#[test]
fn a_line_that_is_fit_to_print_is_not_copied() {
    for text in ["", "as it is", "exactly 10"] {
        assert!(matches!(one_line(Cow::Borrowed(text), 10), Cow::Borrowed(same) if same == text), "{text}");
    }
    assert_eq!(one_line(Cow::Borrowed("one byte more"), 10), "one byte m\u{2026}");
}

#[test]
fn a_router_is_empty_once_nobody_listens() {
    let (router, queue) = (QueueRouter::default(), QueueName::new("jobs").unwrap());
    assert!(router.is_empty());
    let both = [router.register(&queue), router.register(&queue)];
    assert!(!router.is_empty() && router.len() == 2 && router.is_watched(&queue));
    drop(both);
    assert_eq!((router.is_empty(), router.len(), router.is_watched(&queue)), (true, 0, false));
}
